//! Takes requests out of what a client has sent: pure.

use super::number;

/// What stands at the beginning of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// The words of a request, none for an empty one, and how many bytes it is long.
    Request(Vec<&'a [u8]>, usize),
    /// The same for one that a person has typed.
    Line(Vec<Vec<u8>>, usize),
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
        Some(_) => inline(input),
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

fn inline(input: &[u8]) -> Parsed<'_> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return unfinished(input, "too big inline request");
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    match words(line) {
        Some(words) => Parsed::Line(words, end + 1),
        None => invalid("unbalanced quotes in request"),
    }
}

/// Splits a line as a shell would. `None` if a quote does not end.
pub(super) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let mut word = Vec::new();
        let mut quote = None;
        loop {
            match (quote, rest) {
                (Some(_), []) => return None,
                (None, []) => break,
                (None, [space, ..]) if space.is_ascii_whitespace() || *space == 0 => break,
                (Some(b'"'), [b'\\', b'x', high, low, after @ ..])
                    if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                {
                    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
                    word.push(digit(*high) * 16 + digit(*low));
                    rest = after;
                }
                (Some(b'"'), [b'\\', escaped, after @ ..]) => {
                    word.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        other => *other,
                    });
                    rest = after;
                }
                (Some(b'\''), [b'\\', b'\'', after @ ..]) => {
                    word.push(b'\'');
                    rest = after;
                }
                (Some(open), [close, after @ ..]) if open == *close => {
                    if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                    (quote, rest) = (None, after);
                }
                (None, [open @ (b'"' | b'\''), after @ ..]) => (quote, rest) = (Some(*open), after),
                (_, [byte, after @ ..]) => {
                    word.push(*byte);
                    rest = after;
                }
            }
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str], length: usize) -> Parsed<'static> {
        Parsed::Line(words.iter().map(|word| word.as_bytes().to_vec()).collect(), length)
    }

    #[test]
    fn a_request_is_found_when_its_last_byte_has_come_and_not_before() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        for end in 0..input.len() {
            assert_eq!(parse(&input[..end], true), Parsed::Incomplete, "{end}");
        }
        assert_eq!(parse(input, true), Parsed::Request(vec![b"GET", b"k"], input.len()));
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        assert_eq!(parse(b"SET k \"a \\x41\"\r\n", true), typed(&["SET", "k", "a A"], 16));
        assert_eq!(parse(b"\r\nPING\r\n", true), typed(&[], 2));
        let unbalanced = "ERR Protocol error: unbalanced quotes in request".to_owned();
        assert_eq!(parse(b"GET \"k\r\n", true), Parsed::Invalid(unbalanced));
    }
}
