//! Classes of ASCII bytes in one table, by which texts are split: one look-up a byte instead of a
//! comparison for each class.

/// Letter.
pub(super) const LETTER: u8 = 1;
/// Decimal digit.
pub(super) const DIGIT: u8 = 1 << 1;
pub(super) const HYPHEN: u8 = 1 << 2;
/// Hexadecimal digit.
pub(super) const HEX: u8 = 1 << 3;
/// Sign among the digits of base64, besides the hyphen: `+`, `/` or `_`.
pub(super) const BASE64_SIGN: u8 = 1 << 4;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut at = 0;
    while at < classes.len() {
        classes[at] = match at as u8 {
            b'a'..=b'f' | b'A'..=b'F' => LETTER | HEX,
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'0'..=b'9' => DIGIT | HEX,
            b'-' => HYPHEN,
            b'+' | b'/' | b'_' => BASE64_SIGN,
            _ => 0,
        };
        at += 1;
    }
    classes
};

/// Returns the classes of a byte; none for one of a character that isn't ASCII.
#[inline]
pub(super) fn classes_of(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

/// Returns the end of the bytes from `start` that have one of the classes.
#[inline]
pub(super) fn run_end(bytes: &[u8], start: usize, classes: u8) -> usize {
    let mut end = start;
    while let Some(byte) = bytes.get(end)
        && classes_of(*byte) & classes != 0
    {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each class has its bytes and no others. Method: all bytes.
    #[test]
    fn bytes_have_their_classes() {
        for byte in 0..=u8::MAX {
            for (class, is_expected) in [
                (LETTER, byte.is_ascii_alphabetic()),
                (DIGIT, byte.is_ascii_digit()),
                (HEX, byte.is_ascii_hexdigit()),
                (HYPHEN, byte == b'-'),
                (BASE64_SIGN, b"+/_".contains(&byte)),
            ] {
                assert_eq!(classes_of(byte) & class != 0, is_expected, "{byte}");
            }
        }
        assert_eq!(run_end(b"a b2-\xc3", 2, LETTER | DIGIT), 4);
        assert_eq!(run_end(b"ab", 0, LETTER), 2);
    }
}
