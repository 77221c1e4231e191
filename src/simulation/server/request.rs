//! Takes requests out of what a client has sent: pure.

use super::number;

/// What stands at the beginning of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// The words of a request, none for an empty one, and how many bytes it is long.
    Request(Vec<&'a [u8]>, usize),
    /// The rest has not arrived.
    Incomplete,
    /// The server says this, and closes the connection.
    Invalid(String),
}

/// What clients may not exceed: words of a request, bytes of a word, and of a line.
const WORDS: i64 = 1024 * 1024;
const WORD: i64 = 512 * 1024 * 1024;
const LINE: usize = 64 * 1024;

/// Looks at the input. A client that has not said who it is may send only little.
pub(super) fn parse(input: &[u8], known: bool) -> Parsed<'_> {
    match input.first() {
        None => Parsed::Incomplete,
        Some(b'*') => multibulk(input, known),
        Some(_) => invalid("no line that a person has typed is read here"),
    }
}

/// The line from there on, and where the next one starts.
fn line(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let length = input[at..].iter().position(|byte| *byte == b'\r')?;
    let next = at + length + 2;
    (next <= input.len()).then(|| (&input[at..at + length], next))
}

fn multibulk(input: &[u8], known: bool) -> Parsed<'_> {
    let Some((count, mut at)) = line(input, 1) else {
        return unfinished(input, "too big mbulk count string");
    };
    let count = match number::integer(count) {
        Some(count) if count <= WORDS => count,
        _ => return invalid("invalid multibulk length"),
    };
    if count > 10 && !known {
        return invalid("unauthenticated multibulk length");
    }
    let mut words = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(1024));
    for _ in 0..count {
        if at >= input.len() {
            return Parsed::Incomplete;
        }
        let Some((length, start)) = line(input, at) else {
            return unfinished(&input[at..], "too big bulk count string");
        };
        let Some((b'$', length)) = length.split_first() else {
            let found = String::from_utf8_lossy(&input[at..=at]).into_owned();
            return invalid(&format!("expected '$', got '{found}'"));
        };
        let length = match number::integer(length) {
            Some(length @ 0..=WORD) => length,
            _ => return invalid("invalid bulk length"),
        };
        if length > 16384 && !known {
            return invalid("unauthenticated bulk length");
        }
        let end = start + length as usize;
        if end + 2 > input.len() {
            return Parsed::Incomplete;
        }
        words.push(&input[start..end]);
        at = end + 2;
    }
    Parsed::Request(words, at)
}

fn invalid(why: &str) -> Parsed<'static> {
    Parsed::Invalid(format!("ERR Protocol error: {why}"))
}

fn unfinished<'a>(input: &[u8], why: &str) -> Parsed<'a> {
    if input.len() > LINE { invalid(why) } else { Parsed::Incomplete }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_when_its_last_byte_has_come_and_not_before() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        for end in 0..input.len() {
            assert_eq!(parse(&input[..end], true), Parsed::Incomplete, "{end}");
        }
        assert_eq!(parse(input, true), Parsed::Request(vec![b"GET", b"k"], input.len()));
    }
}
