/// The bytes that base64 letters of either alphabet stand for.
pub(crate) fn base64(run: &[u8]) -> Option<Vec<u8>> {
    bits(run, 6, |b| {
        Some(match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        })
    })
}

/// The bytes that base32 letters stand for, in upper or lower case.
pub(crate) fn base32(run: &[u8]) -> Option<Vec<u8>> {
    bits(run, 5, |b| {
        Some(match b.to_ascii_uppercase() {
            b @ b'A'..=b'Z' => b - b'A',
            b @ b'2'..=b'7' => b - b'2' + 26,
            _ => return None,
        })
    })
}

/// The text that bytes are, if a person could read it.
pub(crate) fn printable(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    text.chars().all(|c| !c.is_control() || c.is_whitespace()).then_some(text)
}

/// Joins `width` bits a letter; fill-up signs at the end and bits that make no whole byte are left out.
fn bits(run: &[u8], width: u32, value: fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    let end = run.iter().rposition(|b| *b != b'=')? + 1;
    let (mut out, mut held, mut count) = (Vec::with_capacity(end), 0_u32, 0);
    for byte in &run[..end] {
        held = (held << width | u32::from(value(*byte)?)) & 0xffff;
        count += width;
        if count >= 8 {
            count -= 8;
            out.push((held >> count) as u8);
        }
    }
    Some(out)
}
