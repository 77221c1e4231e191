//! Patterns of `KEYS`, `PSUBSCRIBE` and of users' rights: pure.

/// Whether the text matches the pattern.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    while let [first, rest @ ..] = pattern {
        match first {
            b'*' => {
                let rest = &pattern[pattern.iter().take_while(|byte| **byte == b'*').count()..];
                return rest.is_empty() || (0..=text.len()).any(|at| matches(rest, &text[at..]));
            }
            b'[' => {
                let Some((byte, after)) = text.split_first() else { return false };
                let (matched, after_class) = class(rest, *byte);
                if !matched {
                    return false;
                }
                (pattern, text) = (after_class, after);
            }
            _ => {
                let (literal, after) = match (first, rest) {
                    (b'\\', [escaped, after @ ..]) => (Some(escaped), after),
                    (b'?', after) => (None, after),
                    (_, after) => (Some(first), after),
                };
                match text.split_first() {
                    Some((byte, left)) if literal.is_none_or(|literal| literal == byte) => {
                        (pattern, text) = (after, left);
                    }
                    _ => return false,
                }
            }
        }
    }
    text.is_empty()
}

/// Whether the byte is in the class behind a bracket, and what of the pattern comes behind it.
fn class(mut pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = pattern.first() == Some(&b'^');
    if negated {
        pattern = &pattern[1..];
    }
    let mut found = false;
    loop {
        match pattern {
            [] => break,
            [b'\\', escaped, rest @ ..] => {
                found |= *escaped == byte;
                pattern = rest;
            }
            [b']', rest @ ..] => {
                pattern = rest;
                break;
            }
            [from, b'-', to, rest @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                pattern = rest;
            }
            [one, rest @ ..] => {
                found |= *one == byte;
                pattern = rest;
            }
        }
    }
    (found != negated, pattern)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_matches_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("lock:*", "lock:", true),
            ("a*b*c", "aXbYYbc", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
