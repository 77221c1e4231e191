//! What a command answers, and its bytes in either version of the protocol: pure.

use std::borrow::Cow;

use super::data::Bytes;
use super::number;
use super::settings::Version;

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Status(Cow<'static, str>),
    Int(i64),
    Bulk(Bytes),
    /// A text that RESP3 marks as one.
    Text(String),
    Nil,
    /// No array: RESP2 tells it from the other nil.
    NilArray,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    /// An array in RESP2.
    Push(Vec<Reply>),
    /// How it is written in digits depends on the version.
    Double(f64, Digits),
    Error(Failure),
    /// Several, of one command.
    Many(Vec<Reply>),
    /// None now: it comes later, or the command never has one.
    Later,
}

/// How a server writes a double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Digits {
    /// As many as are there.
    Seventeen,
    /// As many as are needed.
    Shortest,
}

/// An error, with its code in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure(pub(super) Cow<'static, str>);

pub(super) type Answer = Result<Reply, Failure>;

pub(super) const OK: Reply = Reply::Status(Cow::Borrowed("OK"));
pub(super) const SYNTAX: Failure = Failure(Cow::Borrowed("ERR syntax error"));
pub(super) const NOT_AN_INTEGER: Failure =
    Failure(Cow::Borrowed("ERR value is not an integer or out of range"));
pub(super) const NOT_A_FLOAT: Failure = Failure(Cow::Borrowed("ERR value is not a valid float"));
pub(super) const NO_SUCH_KEY: Failure = Failure(Cow::Borrowed("ERR no such key"));
pub(super) const OUT_OF_RANGE: Failure = Failure(Cow::Borrowed("ERR index out of range"));
pub(super) const OVERFLOW: Failure =
    Failure(Cow::Borrowed("ERR increment or decrement would overflow"));
pub(super) const WRONG_TYPE: Failure =
    Failure(Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// A word as C prints it: up to its first zero.
pub(super) fn printed(word: &[u8]) -> String {
    let end = word.iter().position(|byte| *byte == 0).unwrap_or(word.len());
    String::from_utf8_lossy(&word[..end]).into_owned()
}

impl Reply {
    pub(super) fn bulk(bytes: &[u8]) -> Self {
        Self::Bulk(bytes.to_vec())
    }

    /// Bytes, or nil.
    pub(super) fn maybe(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self::Nil, Self::bulk)
    }

    pub(super) fn bulks<'a>(all: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self::Array(all.into_iter().map(Self::bulk).collect())
    }

    pub(super) fn count(many: usize) -> Self {
        Self::Int(i64::try_from(many).unwrap_or(i64::MAX))
    }

    /// Writes it for a client with this version of the protocol.
    pub(super) fn write(&self, resp3: bool, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(b'+', text.as_bytes(), out),
            Self::Int(number) => head(b':', *number, out),
            Self::Bulk(bytes) => bulk(bytes, out),
            Self::Text(text) if resp3 => {
                head(b'=', text.len() as i64 + 4, out);
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Text(text) => bulk(text.as_bytes(), out),
            Self::Nil | Self::NilArray if resp3 => out.extend_from_slice(b"_\r\n"),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::NilArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Array(all) => aggregate(b'*', all, resp3, out),
            Self::Set(all) => aggregate(if resp3 { b'~' } else { b'*' }, all, resp3, out),
            Self::Push(all) => aggregate(if resp3 { b'>' } else { b'*' }, all, resp3, out),
            Self::Map(all) => {
                let many = all.len() as i64;
                if resp3 {
                    head(b'%', many, out)
                } else {
                    head(b'*', 2 * many, out)
                }
                for (key, value) in all {
                    key.write(resp3, out);
                    value.write(resp3, out);
                }
            }
            Self::Double(number, digits) => {
                let text = digits.of(*number);
                if resp3 { line(b',', text.as_bytes(), out) } else { bulk(text.as_bytes(), out) }
            }
            Self::Error(Failure(text)) => {
                let plain = text.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " ");
                line(b'-', plain.as_bytes(), out);
            }
            Self::Many(all) => all.iter().for_each(|one| one.write(resp3, out)),
            Self::Later => {}
        }
    }
}

impl Digits {
    pub(super) fn of_version(version: Version) -> Self {
        if version <= Version::Redis70 { Self::Seventeen } else { Self::Shortest }
    }

    pub(super) fn of(self, number: f64) -> String {
        match self {
            Self::Seventeen => number::general(number, 17),
            Self::Shortest => number::shortest(number),
        }
    }
}

fn head(kind: u8, number: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let (mut at, mut left) = (digits.len(), number.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.push(kind);
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    head(b'$', bytes.len() as i64, out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn aggregate(kind: u8, all: &[Reply], resp3: bool, out: &mut Vec<u8>) {
    head(kind, all.len() as i64, out);
    all.iter().for_each(|one| one.write(resp3, out));
}
