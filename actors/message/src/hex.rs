const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Two lower-case hexadecimal digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| pair(*byte))
        .map(char::from)
        .collect()
}

/// The same, into `digits`: twice as many as there are bytes.
pub(crate) fn write_hex<'a>(bytes: &[u8], digits: &'a mut [u8]) -> &'a str {
    for (byte, two) in bytes.iter().zip(digits.as_chunks_mut().0) {
        *two = pair(*byte);
    }
    std::str::from_utf8(digits).unwrap_or_default()
}

fn pair(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|nibble| DIGITS[usize::from(nibble)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every byte has two digits. Method: the ends, the letters, nothing.
    #[test]
    fn digits() {
        assert_eq!(hex(&[0, 9, 0xaf, 0xff]), "0009afff");
        assert_eq!(hex(&[]), "");
        assert_eq!(write_hex(&[0x10, 0xfe], &mut [0; 4]), "10fe");
    }
}
