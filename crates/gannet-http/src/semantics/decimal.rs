//! Decimal numbers in fields: written without allocating, parsed strictly.

/// Appends `number` in decimal.
pub fn write_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Reads one or more digits and nothing else.
///
/// `None` for an empty value, any other byte, or a number above [`u64::MAX`].
#[must_use]
pub fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Digits of [`u64::MAX`].
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            write_decimal(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
            assert_eq!(parse_decimal(&out), Some(number));
        }
    }

    #[test]
    fn anything_but_digits_is_refused() {
        for bad in [
            "",
            " 1",
            "1 ",
            "+1",
            "-1",
            "0x1",
            "1,1",
            "18446744073709551616",
        ] {
            assert_eq!(parse_decimal(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(parse_decimal(b"007"), Some(7));
    }
}
