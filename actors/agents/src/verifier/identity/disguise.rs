//! Other readings of a text: what base64 and percent signs hide.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::{base64, printable};
use crate::verifier::fold::strip;

/// Encodings that are unwrapped inside each other.
const LAYERS_MAX: usize = 2;
/// Letters in the shortest base64 run that is looked at.
const BASE64_LETTERS_MIN: usize = 8;

/// The text itself, letters made plain, and what its encoded parts say.
pub(super) fn readings(text: &str) -> Vec<String> {
    let mut all = vec![strip(text)];
    let mut layer = all.clone();
    for _ in 0..LAYERS_MAX {
        layer = layer.iter().flat_map(|t| decoded(t)).map(|t| strip(&t)).collect();
        if layer.is_empty() {
            break;
        }
        all.extend(layer.iter().cloned());
    }
    all
}

fn decoded(text: &str) -> Vec<String> {
    static RUN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/_-]{8,}={0,2}").ok());
    let runs = RUN.iter().flat_map(|r| r.find_iter(text)).filter_map(|run| from_base64(run.as_str()));
    runs.chain(from_percent(text)).collect()
}

/// Base64 of either alphabet that decodes to readable text.
fn from_base64(run: &str) -> Option<String> {
    let letters = run.trim_end_matches('=');
    if letters.len() < BASE64_LETTERS_MIN || letters.len() % 4 == 1 {
        return None;
    }
    base64(letters.as_bytes()).and_then(printable)
}

fn from_percent(text: &str) -> Option<String> {
    if !text.contains('%') {
        return None;
    }
    let bytes = text.as_bytes();
    let (mut out, mut at, mut changed) = (Vec::with_capacity(bytes.len()), 0, false);
    while at < bytes.len() {
        let hex = |n: usize| bytes.get(at + n).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                changed = true;
                at += 3;
            }
            (byte, _, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    changed.then(|| String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: encodings are undone, also one in another. Method: a table.
    #[test]
    fn encodings_are_undone() {
        for text in ["see TWFyaWEgU2lsdmE= there", "Maria%20Silva", "TWFyaWElMjBTaWx2YQ=="] {
            assert!(readings(text).iter().any(|r| r.contains("Maria Silva")), "{text}");
        }
    }
}
