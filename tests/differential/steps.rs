//! What is done to both servers.

use std::fmt;

/// How the answers of both are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Like {
    /// They are the same.
    Same,
    /// The same, in any order.
    AnyOrder,
    /// Arrays of the same things, each column of them in any order.
    Columns,
    /// As much of the same kind.
    Shape,
    /// The fields that [`wanted`](super::wanted) names.
    Fields,
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) like: Like,
}

#[derive(Clone)]
pub(crate) enum Step {
    /// A connection sends these at once; cut into two pieces, if at all, behind so many bytes.
    Ask { connection: usize, requests: Vec<Request>, cut: Option<usize> },
    /// So many microseconds pass.
    Later(u64),
    /// A connection is closed by its client, and made again.
    Reconnect(usize),
}

impl Request {
    pub(crate) fn new(like: Like, words: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), like }
    }

    /// As it is sent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", self.words.len()).into_bytes();
        for word in &self.words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.words.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            let mut text = String::from_utf8_lossy(word).into_owned();
            // The rest of a script says little.
            if let Some((end, _)) = text.char_indices().nth(100) {
                text.replace_range(end.., "...");
            }
            let is_plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
            if is_plain { write!(f, "{space}{text}")? } else { write!(f, "{space}{text:?}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask { connection, requests, cut } => {
                write!(f, "{connection}>")?;
                requests.iter().try_for_each(|request| write!(f, " {request:?};"))?;
                cut.map_or(Ok(()), |at| write!(f, " (cut at {at})"))
            }
            Self::Later(micros) => write!(f, "{micros} us later"),
            Self::Reconnect(connection) => write!(f, "{connection} comes again"),
        }
    }
}
