//! Answers, taken out of the bytes of a server.

use std::fmt;

#[derive(Clone, PartialEq, PartialOrd)]
pub(crate) enum Value {
    /// What begins with this byte and is one line.
    Line(u8, String),
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    /// What has elements, by its first byte. `None` is the nil of RESP2 that is no array.
    Many(u8, Option<Vec<Value>>),
    Nil,
}

/// The first value, and how many bytes it is long. `None` if it has not arrived.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Value, usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let kind = bytes[0];
    let text = String::from_utf8_lossy(&bytes[1..end]).into_owned();
    let mut at = end + 2;
    let number = || text.parse::<i64>().expect("a length");
    let value = match kind {
        b'$' | b'=' => match usize::try_from(number()) {
            Err(_) => Value::Nil,
            Ok(length) => {
                let body = bytes.get(at..at + length + 2)?[..length].to_vec();
                at += length + 2;
                if kind == b'$' { Value::Bulk(body) } else { Value::Verbatim(body[4..].to_vec()) }
            }
        },
        b'*' | b'~' | b'>' | b'%' => match usize::try_from(number()) {
            Err(_) => Value::Many(kind, None),
            Ok(length) => {
                let length = if kind == b'%' { 2 * length } else { length };
                let mut all = Vec::new();
                for _ in 0..length {
                    let (one, long) = parse(&bytes[at..])?;
                    all.push(one);
                    at += long;
                }
                Value::Many(kind, Some(all))
            }
        },
        b'_' => Value::Nil,
        _ => Value::Line(kind, text),
    };
    Some((value, at))
}

impl Value {
    /// Puts what has no order into one.
    pub(crate) fn sorted(self) -> Self {
        match self {
            Self::Many(kind, Some(all)) => {
                let mut all: Vec<Self> = all.into_iter().map(Self::sorted).collect();
                all.sort_by(|a, b| a.partial_cmp(b).expect("no floats"));
                Self::Many(kind, Some(all))
            }
            other => other,
        }
    }

    /// What kind of value it is, without what is in it.
    pub(crate) fn shape(self) -> Self {
        match self {
            Self::Line(b'-', text) => Self::Line(b'-', text),
            Self::Line(kind, _) => Self::Line(kind, String::new()),
            Self::Bulk(_) => Self::Bulk(Vec::new()),
            Self::Verbatim(_) => Self::Verbatim(Vec::new()),
            Self::Many(kind, Some(all)) => {
                Self::Many(kind, Some(all.into_iter().map(Self::shape).collect()))
            }
            other => other,
        }
    }

    /// The same with another text, if it is one.
    pub(crate) fn rewritten(self, rewrite: &dyn Fn(&str) -> String) -> Self {
        let text = |bytes: &[u8]| rewrite(&String::from_utf8_lossy(bytes)).into_bytes();
        match self {
            Self::Bulk(bytes) => Self::Bulk(text(&bytes)),
            Self::Verbatim(bytes) => Self::Verbatim(text(&bytes)),
            Self::Many(kind, Some(all)) => {
                let all = all.into_iter().map(|one| one.rewritten(rewrite));
                Self::Many(kind, Some(all.collect()))
            }
            other => other,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(kind, text) => write!(f, "{}{text}", char::from(*kind)),
            Self::Bulk(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Self::Verbatim(bytes) => write!(f, "={:?}", String::from_utf8_lossy(bytes)),
            Self::Many(kind, all) => {
                write!(f, "{}", char::from(*kind))?;
                f.debug_list().entries(all.iter().flatten()).finish()?;
                if all.is_none() { f.write_str("nil") } else { Ok(()) }
            }
            Self::Nil => f.write_str("nil"),
        }
    }
}
