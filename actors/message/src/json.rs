//! Strings of JSON, read and written eight bytes at a time.

use serde_json::value::RawValue;

/// How many bytes in a row stand for themselves in a string: no quote, backslash or control character. Eight at a time.
#[inline]
pub fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 0x80;
    // Sets the high bit of each byte under `n`; a bit above the lowest that is set may be wrong.
    let under = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & HIGHS;
    let equal = |word: u64, byte: u8| under(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks::<8>();
    for (nth, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let special = under(word, 0x20) | equal(word, b'"') | equal(word, b'\\');
        if special != 0 {
            return nth * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let special = rest.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\'));
    words.len() * 8 + special.unwrap_or(rest.len())
}

/// Writes `text` as a JSON string, quotes included (RFC 8259, section 7).
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16 + 2);
    quote_to(text, &mut out);
    out
}

/// The same, at the end of `out`.
pub fn quote_to(text: &str, out: &mut String) {
    const OF_CONTROLS: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    let mut rest = text;
    // What needs an escape is ASCII, so both sides of it are whole characters.
    while let Some((before, special)) = rest.split_at_checked(plain(rest.as_bytes())) {
        out.push_str(before);
        let mut characters = special.chars();
        match characters.next() {
            None => break,
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(c @ ('"' | '\\')) => {
                out.push('\\');
                out.push(c);
            }
            Some(control) => {
                let code = u32::from(control) as usize;
                out.push_str("\\u00");
                out.extend([code / 16, code % 16].map(|digit| char::from(OF_CONTROLS[digit % 16])));
            }
        }
        rest = characters.as_str();
    }
    out.push('"');
}

/// The same as a raw value.
pub(crate) fn quoted(text: &str) -> Box<RawValue> {
    RawValue::from_string(quote(text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: eight bytes at a time end where one at a time would. Method: each byte at each place among each other.
    #[test]
    fn plain_bytes_are_counted_exactly() {
        for filler in [b'a', 0x20, 0x21, 0x23, 0x5B, 0x5D, 0x7F, 0x80, 0xFF] {
            for byte in 0..=u8::MAX {
                for at in 0..20 {
                    let mut bytes = [filler; 20];
                    bytes[at] = byte;
                    let expected = if byte < 0x20 || byte == b'"' || byte == b'\\' { at } else { 20 };
                    assert_eq!(plain(&bytes), expected, "{byte:#x} at {at} among {filler:#x}");
                }
            }
        }
        assert_eq!((plain(b""), plain(b"aaaaaa\"\x01\\"), plain(b"aaaa\x01\x20\"\\")), (0, 6, 4));
    }

    /// Goal: what is quoted reads back as it was. Method: every character of one byte between others, and longer ones.
    #[test]
    fn quoted_text_reads_back() {
        for c in (0..=0x7Fu8).map(char::from).chain(['é', '\u{2028}', '😀']) {
            for before in 0..10 {
                let text = format!("{}{c}é{c}{c}", "a".repeat(before));
                assert_eq!(serde_json::from_str::<String>(&quote(&text)).unwrap(), text);
            }
        }
        assert_eq!(quote("a\"b\\\n\u{1}"), r#""a\"b\\\n\u0001""#);
    }
}
