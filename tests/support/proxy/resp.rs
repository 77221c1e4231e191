//! As much of the protocol as the proxy reads: where a command or an answer ends.

/// The words of the first command in `buffer` and the command's length, once it is all there.
pub(crate) fn command(buffer: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (count, mut at) = number(buffer, 0, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, start) = number(buffer, at, b'$')?;
        words.push(buffer.get(start..start + length)?);
        at = start + length + 2;
    }
    (at <= buffer.len()).then_some((words, at))
}

/// The number in a line such as `$12`, and where the next line begins.
fn number(buffer: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let (line, next) = line(buffer, at)?;
    assert_eq!(line.first(), Some(&mark), "a client that does not speak in arrays of strings");
    Some((std::str::from_utf8(&line[1..]).ok()?.parse().ok()?, next))
}

/// What a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    Answer,
    Error,
    /// That a subscription begins or ends. RESP3 sends it as a push, RESP2 as an answer.
    Subscription,
    Push,
}

/// The first frame in `buffer` and its length, once it is all there.
pub(super) fn frame(buffer: &[u8]) -> Option<(Frame, usize)> {
    let length = end_of(buffer, 0)?;
    let subscription = || {
        let (_, first) = line(buffer, 0)?;
        let (_, start) = line(buffer, first)?;
        Some(buffer[..length].get(start..end_of(buffer, first)?)?.ends_with(b"subscribe\r\n"))
    };
    let frame = match buffer[0] {
        b'-' => Frame::Error,
        b'*' | b'>' if subscription() == Some(true) => Frame::Subscription,
        b'>' => Frame::Push,
        _ => Frame::Answer,
    };
    Some((frame, length))
}

/// Where the value ends that begins at `at`.
fn end_of(buffer: &[u8], at: usize) -> Option<usize> {
    let (head, mut at) = line(buffer, at)?;
    let (mark, rest) = head.split_first()?;
    // A length of -1 is a null.
    let length = || std::str::from_utf8(rest).ok()?.parse::<i64>().ok();
    let values = match mark {
        b'$' | b'=' | b'!' => {
            let length = usize::try_from(length()?).ok().map_or(0, |length| length + 2);
            return (at + length <= buffer.len()).then_some(at + length);
        }
        b'*' | b'~' | b'>' => length()?.max(0),
        b'%' => length()? * 2,
        // An attribute comes before the value that it is of.
        b'|' => length()? * 2 + 1,
        _ => 0,
    };
    for _ in 0..values {
        at = end_of(buffer, at)?;
    }
    Some(at)
}

/// The line that begins at `at`, and where the next one begins.
fn line(buffer: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = buffer.get(at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&rest[..end], at + end + 2))
}
