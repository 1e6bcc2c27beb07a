const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Encodes bytes as lower-case hexadecimal, two digits a byte.
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| hex_pair(*byte))
        .map(char::from)
        .collect()
}

/// Encodes bytes as lower-case hexadecimal into `digits`, whose length must be twice that of
/// `bytes`, and returns `digits` as text.
pub(crate) fn write_hex<'a>(bytes: &[u8], digits: &'a mut [u8]) -> &'a str {
    for (byte, two) in bytes.iter().zip(digits.as_chunks_mut().0) {
        *two = hex_pair(*byte);
    }
    std::str::from_utf8(digits).unwrap_or_default()
}

fn hex_pair(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|nibble| DIGITS[usize::from(nibble)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every byte has two digits. Method: the ends, the letters, nothing.
    #[test]
    fn digits() {
        assert_eq!(encode_hex(&[0, 9, 0xaf, 0xff]), "0009afff");
        assert_eq!(encode_hex(&[]), "");
        assert_eq!(write_hex(&[0x10, 0xfe], &mut [0; 4]), "10fe");
    }
}
