//! Encoded parts of a text: base64, base32, hexadecimal, binary and decimal character codes.

use std::ops::Range;

use callboard_message::text::{decode_base32, decode_base64, printable_text};

use crate::verifier::byte_classes::{BASE64_SIGN, DIGIT, HEX, HYPHEN, LETTER, classes_of};

/// Minimum length of a run of base64, base32 or hexadecimal digits that is decoded, in bytes.
const RUN_BYTES_MIN: usize = 8;
/// Maximum number of `=` behind a run that belong to it.
const PADDING_BYTES_MAX: usize = 6;
/// Minimum number of separate character codes that are decoded.
const CODES_MIN: usize = 4;

/// Returns the encoded parts of a text, each with its content.
pub(super) fn encoded_parts(text: &str) -> Vec<(Range<usize>, String)> {
    let mut parts = Vec::new();
    let bytes = text.as_bytes();
    let (mut digits, mut code_starts) = (0, Vec::new());
    let mut at = 0;
    while at < bytes.len() {
        let run_start = at;
        let mut before = 0;
        while let Some(class) = bytes.get(at).map(|b| classes_of(*b))
            && class & RUN != 0
        {
            if class & HEX != 0 && before & WORD == 0 {
                code_starts.push(at);
            }
            digits += usize::from(class & DIGIT != 0);
            before = class;
            at += 1;
        }
        if at - run_start >= RUN_BYTES_MIN {
            decode_run(text, run_start..at, &mut parts);
        }
        at += 1;
    }
    let codes: [(u32, usize, usize); 3] = [(16, 2, 2), (2, 8, 8), (10, 2, 3)];
    if digits >= CODES_MIN {
        codes
            .iter()
            .for_each(|code| separate_codes(text, *code, &code_starts, &mut parts));
    }
    parts
}

/// Classes of the bytes of a word.
const WORD: u8 = LETTER | DIGIT;
/// Classes of the bytes of a run that is decoded as a whole.
const RUN: u8 = WORD | HYPHEN | BASE64_SIGN;

/// Decodes a run, as a whole and in its parts between the signs that may be separators too.
fn decode_run(text: &str, run: Range<usize>, parts: &mut Vec<(Range<usize>, String)>) {
    let whole = &text[run.clone()];
    let behind = text.as_bytes()[run.end..].iter().take(PADDING_BYTES_MAX);
    let padding = behind.take_while(|b| **b == b'=').count();
    let mut found = |range: Range<usize>, content: Option<String>| match content {
        Some(content) => {
            let padded = if range.end == run.end { padding } else { 0 };
            parts.push((range.start..range.end + padded, content));
            true
        }
        None => false,
    };
    if found(run.clone(), decode(whole)) {
        return;
    }
    if !whole.contains(['-', '/', '_', '+']) {
        return;
    }
    let mut start = run.start;
    for piece in whole.split(['-', '/', '_', '+']) {
        if piece.len() >= RUN_BYTES_MIN {
            found(start..start + piece.len(), decode(piece));
        }
        start += piece.len() + 1;
    }
}

/// Decodes a run of hexadecimal digits, base32 or base64; `None` if none of them gives a readable
/// text.
fn decode(run: &str) -> Option<String> {
    let bytes = run.as_bytes();
    let hex = bytes
        .strip_prefix(b"0x")
        .or(bytes.strip_prefix(b"0X"))
        .unwrap_or(bytes);
    if hex.len().is_multiple_of(2) && hex.iter().all(u8::is_ascii_hexdigit) {
        let pairs = hex
            .chunks(2)
            .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        if let Some(text) = readable(pairs.collect()) {
            return Some(text);
        }
    }
    let base32 = |b: &u8| b.is_ascii_alphabetic() || (b'2'..=b'7').contains(b);
    let one_case =
        !(bytes.iter().any(u8::is_ascii_lowercase) && bytes.iter().any(u8::is_ascii_uppercase));
    if one_case
        && bytes.iter().all(base32)
        && may_be_readable(bytes, 5)
        && let Some(text) = decode_base32(bytes).and_then(readable)
    {
        return Some(text);
    }
    if bytes.len() % 4 == 1 || !may_be_readable(bytes, 6) {
        return None;
    }
    decode_base64(bytes).and_then(readable)
}

/// Values of the digits of base32 and of base64, by their bytes.
static DIGIT_VALUES: [[u8; 256]; 2] = {
    let mut values = [[0; 256]; 2];
    let mut at = 0;
    while at < values[0].len() {
        let b = at as u8;
        values[0][at] = match b {
            b'2'..=b'7' => b - b'2' + 26,
            _ => b.to_ascii_uppercase().wrapping_sub(b'A'),
        };
        values[1][at] = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        at += 1;
    }
    values
};

/// Returns whether the first bytes of a run of at least eight digits, in base32 if `width` is 5 or in
/// base64 if it is 6, may begin a text without control characters: most words don't.
fn may_be_readable(run: &[u8], width: u32) -> bool {
    let values = &DIGIT_VALUES[usize::from(width != 5)];
    let (first, unused) = (&run[..RUN_BYTES_MIN], 64 - width * RUN_BYTES_MIN as u32);
    let bits = first.iter().fold(0, |bits, b| {
        bits << width | u64::from(values[usize::from(*b)])
    });
    let bytes = (bits << unused).to_be_bytes();
    // No character begins with these: the usual case for a word.
    if matches!(bytes[0], 0x80..0xc2 | 0xf5..) {
        return false;
    }
    let whole = width as usize;
    let text = match std::str::from_utf8(&bytes[..whole]) {
        Ok(text) => text,
        Err(error) if error.error_len().is_some() => return false,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    !text.chars().any(|c| c.is_control() && !c.is_whitespace())
}

/// Returns bytes as text if that has letters or digits, and no control characters.
fn readable(bytes: Vec<u8>) -> Option<String> {
    let text = printable_text(bytes)?;
    (text.chars().filter(|c| c.is_alphanumeric()).count() >= 3).then_some(text)
}

/// Adds the texts that are written as separate character codes to a base, with a minimum and
/// maximum number of digits each: `4d 61 72 69 61`, `77, 97, 114`. `starts` are the places of all
/// words that begin with a hexadecimal digit.
fn separate_codes(
    text: &str,
    (base, min, max): (u32, usize, usize),
    starts: &[usize],
    parts: &mut Vec<(Range<usize>, String)>,
) {
    let bytes = text.as_bytes();
    let mut at = 0;
    for start in starts.iter().copied() {
        // The codes before reach further.
        if start < at || !char::from(bytes[start]).is_digit(base) {
            continue;
        }
        at = start;
        let (mut codes, mut end) = (Vec::new(), at);
        while let Some((code, code_end)) = code_at(bytes, at, base, min, max) {
            codes.push(code);
            end = code_end;
            // One or two separators.
            let gap = bytes[end..]
                .iter()
                .take(2)
                .take_while(|b| b" ,;:-".contains(b))
                .count();
            at = end + gap;
            if gap == 0 && max > min {
                break;
            }
        }
        if codes.len() >= CODES_MIN {
            parts.extend(readable(codes).map(|content| (start..end, content)));
        }
    }
}

fn code_at(bytes: &[u8], at: usize, base: u32, min: usize, max: usize) -> Option<(u8, usize)> {
    let rest = &bytes[at..];
    let skip = if base == 16 && rest.starts_with(b"0x") {
        2
    } else {
        0
    };
    let len = rest[skip..]
        .iter()
        .take(max)
        .take_while(|b| char::from(**b).is_digit(base))
        .count();
    // In one run without separators only codes of a fixed length can be told apart.
    let next = rest.get(skip + len);
    let ends = !next.is_some_and(u8::is_ascii_alphanumeric) || base == 2;
    if len < min || !ends {
        return None;
    }
    let digits = std::str::from_utf8(&rest[skip..skip + len]).ok()?;
    Some((u8::from_str_radix(digits, base).ok()?, at + skip + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each encoding is decoded, and its place found. Method: one name in each.
    #[test]
    fn encodings_are_undone() {
        for coded in [
            "TWFyaWEgU2lsdmE=",
            "TWFyaWEgU2lsdmE",
            "4d617269612053696c7661",
            "0x4d617269612053696c7661",
            "4d 61 72 69 61 20 53 69 6c 76 61",
            "4D:61:72:69:61:20:53:69:6C:76:61",
            "JVQXE2LBEBJWS3DWME======",
            "jvqxe2lbebjws3dwme",
            "77, 97, 114, 105, 97, 32, 83, 105, 108, 118, 97",
            "01001101 01100001 01110010 01101001 01100001 00100000 01010011 01101001 01101100 01110110 01100001",
        ] {
            let text = format!("see {coded} there");
            let found = encoded_parts(&text);
            let right = |(range, content): &(Range<usize>, String)| {
                content == "Maria Silva" && text[range.clone()] == *coded
            };
            assert!(found.iter().any(right), "{coded}: {found:?}");
        }
        for text in ["hypertension since 2019", "10 20 30 40 50", "12345678", ""] {
            let found = encoded_parts(text);
            assert!(
                found.iter().all(|(_, content)| !content.contains("aria")),
                "{found:?}"
            );
        }
    }
}
