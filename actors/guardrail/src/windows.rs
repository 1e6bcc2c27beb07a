//! Windows of a text: the surroundings of places of interest, so that the rest isn't read again.

use std::ops::Range;

/// Maximum bytes by which the edge of a window moves outwards to white space.
const EDGE_BYTES_MAX: usize = 48;

/// Returns the parts of a text within `margin` bytes of the places, which must ascend. Edges are at
/// white space if it is near, and between characters in any case.
pub(super) fn windows(
    text: &str,
    places: impl IntoIterator<Item = usize>,
    margin: usize,
) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    for place in places {
        let (from, to) = (place.saturating_sub(margin), place + margin);
        match all.last_mut() {
            Some(last) if from <= last.end => last.end = to,
            _ => all.push(from..to),
        }
    }
    for window in &mut all {
        *window = edge_before(text, window.start)..edge_behind(text, window.end);
    }
    all
}

fn edge_before(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let lowest = at.saturating_sub(EDGE_BYTES_MAX);
    let blank = bytes[lowest..at].iter().rposition(u8::is_ascii_whitespace);
    let mut edge = blank.map_or(at, |blank| lowest + blank + 1);
    if lowest == 0 && blank.is_none() {
        return 0;
    }
    while !text.is_char_boundary(edge) {
        edge -= 1;
    }
    edge
}

fn edge_behind(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    let mut beyond = text.as_bytes()[at..].iter().take(EDGE_BYTES_MAX);
    let mut edge = at + beyond.position(u8::is_ascii_whitespace).unwrap_or(0);
    while !text.is_char_boundary(edge) {
        edge += 1;
    }
    edge
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: windows cover their places, don't cut words or characters, and join when near. Method:
    /// a table.
    #[test]
    fn windows_cover_places() {
        let text = "one two three four five six";
        let parts = |places: &[usize], margin| {
            let ranges = windows(text, places.iter().copied(), margin);
            ranges
                .into_iter()
                .map(|range| &text[range])
                .collect::<Vec<_>>()
        };
        assert_eq!(parts(&[9], 3), ["two three"]);
        assert_eq!(parts(&[0, 26], 2), ["one", "six"]);
        assert_eq!(parts(&[0, 9], 5), ["one two three four"]);
        assert_eq!(parts(&[], 4), [""; 0]);
        let text = "é".repeat(100);
        assert_eq!(windows(&text, [101], 0), vec![100..102; 1]);
    }
}
