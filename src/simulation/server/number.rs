//! Numbers as Redis reads and writes them: pure.

/// A whole number in its one spelling: no plus, no zero in front, nothing around it.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}

/// What C reads of a word: nothing behind a zero.
pub(super) fn c_text(word: &[u8]) -> &[u8] {
    word.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The number that a word begins with, as `atoi` reads it.
pub(super) fn leading(word: &[u8]) -> i64 {
    let text = word.trim_ascii_start();
    let (is_negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let add = |all: i64, digit: &u8| all.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let number = digits.fold(0, add) as i32;
    i64::from(if is_negative { number.wrapping_neg() } else { number })
}

/// A floating-point number, as `strtod` reads it when nothing may be left over.
pub(super) fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// The number in so many significant digits, as `%.*g` prints it.
pub(super) fn general(number: f64, digits: usize) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .into();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.into();
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{number:.decimals$}"))
}

/// The shortest text that is read back as the same number, in the form of `fpconv`.
pub(super) fn shortest(number: f64) -> String {
    if !number.is_finite() || number == 0.0 {
        return general(number, 17);
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let digits = mantissa.trim_start_matches('-').replace('.', "");
    let many = digits.len() as i32;
    // The power of ten of the last digit.
    let last = exponent - many + 1;
    // Plain where that is no longer than with an exponent.
    let plain = if last >= 0 { exponent.abs() < many + 7 } else { last > -7 || exponent.abs() < 4 };
    if plain {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{}", exponent.abs())
}

/// The bounds of a range of a list of so many elements, of which negative ones count from the end.
/// `None` if it is empty.
pub(super) fn range(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let absolute = |at: i64| if at < 0 { (at.saturating_add(length)).max(0) } else { at };
    let end = if end < 0 { end.saturating_add(length) } else { end.min(length - 1) };
    let start = absolute(start);
    (start <= end && start < length).then_some((start as usize, end as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_printed_as_c_prints_it() {
        for (number, printed) in [
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (1e17, "1e+17"),
            (1.764e15, "1764000000000000"),
            (1e-5, "1.0000000000000001e-05"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(general(number, 17), printed);
        }
    }
}
