//! Floating-point numbers of eighty bits, in which Redis adds what `INCRBYFLOAT` is told: pure.

/// A whole number without a sign, in pieces of 32 bits, the lowest first and the highest not zero.
#[derive(Clone, PartialEq, Eq)]
struct Whole(Vec<u32>);

impl Whole {
    fn new(number: u64) -> Self {
        Self(vec![number as u32, (number >> 32) as u32]).trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn bits(&self) -> usize {
        self.0.last().map_or(0, |last| 32 * self.0.len() - last.leading_zeros() as usize)
    }

    fn bit(&self, at: usize) -> bool {
        self.0.get(at / 32).is_some_and(|piece| piece >> (at % 32) & 1 == 1)
    }

    /// Times a number, and a number more.
    fn times(&mut self, by: u32, more: u32) {
        let mut carry = u64::from(more);
        for piece in &mut self.0 {
            carry += u64::from(*piece) * u64::from(by);
            *piece = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn times_ten_to(mut self, exponent: usize) -> Self {
        (0..exponent).for_each(|_| self.times(10, 0));
        self
    }

    fn shifted(&self, by: usize) -> Self {
        let mut shifted = Self(vec![0; by / 32]);
        shifted.0.extend_from_slice(&self.0);
        shifted.times(1 << (by % 32), 0);
        shifted.trimmed()
    }

    fn is_less(&self, other: &Self) -> bool {
        let length = self.0.len().cmp(&other.0.len());
        length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_lt()
    }

    fn plus(mut self, other: &Self) -> Self {
        self.0.resize(self.0.len().max(other.0.len()) + 1, 0);
        let mut carry = 0;
        for (at, piece) in self.0.iter_mut().enumerate() {
            carry += u64::from(*piece) + u64::from(other.0.get(at).copied().unwrap_or(0));
            *piece = carry as u32;
            carry >>= 32;
        }
        self.trimmed()
    }

    /// Less another one, which is not larger.
    fn minus(mut self, other: &Self) -> Self {
        let mut borrow = 0;
        for (at, piece) in self.0.iter_mut().enumerate() {
            let left =
                i64::from(*piece) - i64::from(other.0.get(at).copied().unwrap_or(0)) - borrow;
            borrow = i64::from(left < 0);
            *piece = left as u32;
        }
        self.trimmed()
    }

    /// How often the other one is in it, and what is left.
    fn divided(&self, by: &Self) -> (Self, Self) {
        let (mut times, mut left) = (Self(Vec::new()), Self(Vec::new()));
        for at in (0..self.bits()).rev() {
            left = left.shifted(1).plus(&Self::new(self.bit(at).into()));
            let fits = !left.is_less(by);
            if fits {
                left = left.minus(by);
            }
            times = times.shifted(1).plus(&Self::new(fits.into()));
        }
        (times, left)
    }

    /// The same, rounded to the nearest number, and to an even one of two that are as near.
    fn rounded(&self, by: &Self) -> Self {
        let (times, left) = self.divided(by);
        let twice = left.shifted(1);
        let up = by.is_less(&twice) || twice == *by && times.bit(0);
        if up { times.plus(&Self::new(1)) } else { times }
    }

    fn digits(mut self) -> String {
        let mut digits = Vec::new();
        while !self.0.is_empty() {
            let mut left = 0;
            for piece in self.0.iter_mut().rev() {
                let all = left << 32 | u64::from(*piece);
                *piece = (all / 10) as u32;
                left = all % 10;
            }
            digits.push(b'0' + left as u8);
            self = self.trimmed();
        }
        digits.iter().rev().map(|digit| char::from(*digit)).collect()
    }
}

/// A number with 64 bits, and where its point is.
#[derive(Clone)]
pub(super) struct Extended {
    is_negative: bool,
    whole: Whole,
    exponent: i32,
}

const BITS: usize = 64;

/// So many decimals are written.
const DECIMALS: usize = 17;

/// More digits in front of the point than that are no number here.
const LARGEST: i32 = 4000;

impl Extended {
    /// Reads a decimal number.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let is_negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i32 = exponent.parse().ok()?;
        let (front, behind) = digits.split_once('.').unwrap_or((digits, ""));
        let all = format!("{front}{behind}");
        if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let exponent = exponent.checked_sub(i32::try_from(behind.len()).ok()?)?;
        if exponent.abs() > LARGEST {
            return None;
        }
        let mut whole = Whole(Vec::new());
        all.bytes().for_each(|digit| whole.times(10, u32::from(digit - b'0')));
        let one = Whole::new(1);
        let tens = exponent.unsigned_abs() as usize;
        let (over, under) = if exponent < 0 {
            (whole, one.times_ten_to(tens))
        } else {
            (whole.times_ten_to(tens), one)
        };
        Some(Self::of(is_negative, &over, &under, 0))
    }

    /// A fraction times a power of two, rounded to as many bits as there are.
    fn of(is_negative: bool, over: &Whole, under: &Whole, exponent: i32) -> Self {
        // The rounded quotient may have a bit more, which is zero then.
        let mut shift = (BITS + under.bits()) as i32 - over.bits() as i32;
        let quotient = |shift: i32| {
            let by = shift.unsigned_abs() as usize;
            if shift < 0 {
                over.rounded(&under.shifted(by))
            } else {
                over.shifted(by).rounded(under)
            }
        };
        let exact = |shift: i32| {
            let by = shift.unsigned_abs() as usize;
            let (over, under) = if shift < 0 {
                (over.clone(), under.shifted(by))
            } else {
                (over.shifted(by), under.clone())
            };
            over.divided(&under).0.bits()
        };
        while exact(shift) > BITS {
            shift -= 1;
        }
        Self { is_negative, whole: quotient(shift), exponent: exponent - shift }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let aligned = |one: &Self| one.whole.shifted((one.exponent - exponent) as usize);
        let (a, b) = (aligned(self), aligned(other));
        let (is_negative, sum) = if self.is_negative == other.is_negative {
            (self.is_negative, a.plus(&b))
        } else if a.is_less(&b) {
            (other.is_negative, b.minus(&a))
        } else {
            (self.is_negative, a.minus(&b))
        };
        Self::of(is_negative, &sum, &Whole::new(1), exponent)
    }

    /// With seventeen decimals at most, and no exponent.
    pub(super) fn text(&self) -> String {
        let scaled = self.whole.clone().times_ten_to(DECIMALS);
        let shift = self.exponent.unsigned_abs() as usize;
        let scaled = if self.exponent < 0 {
            scaled.rounded(&Whole::new(1).shifted(shift))
        } else {
            scaled.shifted(shift)
        };
        let digits = format!("{:0>1$}", scaled.digits(), DECIMALS + 1);
        let (front, behind) = digits.split_at(digits.len() - DECIMALS);
        let text = format!("{front}.{behind}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let sign = if self.is_negative && text != "0" { "-" } else { "" };
        format!("{sign}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::Extended;

    #[test]
    fn a_sum_is_as_inexact_as_in_redis() {
        for (a, b, sum) in [
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("1000", "6.58", "1006.58000000000000002"),
            ("1764000000123456", "8.70", "1764000000123464.699951171875"),
            ("1", "-1.0", "0"),
            ("-0.1", "-0.2", "-0.3"),
            ("0", "3.0e-30", "0"),
        ] {
            let [a, b] = [a, b].map(|text| Extended::parse(text.as_bytes()).expect("a number"));
            assert_eq!(a.plus(&b).text(), sum);
        }
    }
}
