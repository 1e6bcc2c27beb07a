//! Personal data in texts: labelled places, and those that the verifier cut out.

use std::ops::Range;

use serde_json::Value;

use super::metrics::{Proportion, SpanCounts};

/// Labels of decoys: places that look like personal data and aren't.
const DECOYS: [&str; 1] = ["EPONYM"];

/// Labelled place in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelledSpan {
    /// Place in the text, in characters.
    pub(super) range: Range<usize>,
    /// Whether it is personal data and no decoy.
    pub(super) is_personal: bool,
}

/// Reads the field `spans` of a text: arrays of start, end and type, or objects with `start`, `end`
/// and `type`. Positions are in characters.
///
/// # Errors
/// The form that a span must have, if one has another or lies outside the text.
pub(super) fn parse_spans(items: &[Value], text: &str) -> Result<Vec<LabelledSpan>, String> {
    let chars = text.chars().count();
    let span = |item: &Value| {
        let part = |index: usize, name: &str| match item {
            Value::Array(parts) => parts.get(index).cloned(),
            Value::Object(parts) => parts.get(name).cloned(),
            _ => None,
        };
        let position = |value: Option<Value>| {
            value
                .and_then(|value| value.as_u64())
                .and_then(|at| usize::try_from(at).ok())
        };
        let range = position(part(0, "start"))?..position(part(1, "end"))?;
        let kind = part(2, "type")?.as_str()?.to_ascii_uppercase();
        let is_personal = !DECOYS.contains(&kind.as_str());
        (range.start < range.end && range.end <= chars)
            .then_some(LabelledSpan { range, is_personal })
    };
    let read = items.iter().map(|item| {
        span(item).ok_or_else(|| {
            format!(
                "`spans` has {item}: write [start, end, \"TYPE\"], in characters, within the \
                 text's {chars}"
            )
        })
    });
    read.collect()
}

/// Returns the counts of labelled and found places that overlap each other. Decoys aren't labelled.
pub(super) fn compare_spans(labelled: &[LabelledSpan], found: &[Range<usize>]) -> SpanCounts {
    let overlap =
        |one: &Range<usize>, other: &Range<usize>| one.start < other.end && other.start < one.end;
    let mut counts = SpanCounts::default();
    let personal: Vec<&Range<usize>> = labelled
        .iter()
        .filter(|span| span.is_personal)
        .map(|span| &span.range)
        .collect();
    for range in &personal {
        counts
            .labelled
            .add(found.iter().any(|found| overlap(range, found)));
    }
    counts.found = Proportion {
        correct: found
            .iter()
            .filter(|found| personal.iter().any(|range| overlap(range, found)))
            .count(),
        all: found.len(),
    };
    counts
}

/// Marks by which the verifier replaces personal data.
const MARKS: [&str; 7] = [
    "[name]",
    "[place]",
    "[id]",
    "[address]",
    "[phone]",
    "[e-mail]",
    "[date of birth]",
];

/// Returns the places of `text`, in characters, that `redacted` has a mark in place of. Where a mark
/// ends is known only by the text after it, so between marks that follow one another closely the
/// border may be off by a few characters.
pub(super) fn redacted_ranges(text: &str, redacted: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let pieces = split_at_marks(redacted);
    let (mut at, last) = (0, pieces.len() - 1);
    for (index, piece) in pieces.iter().enumerate() {
        let rest = &text[at..];
        let found = match index {
            // What stands after the last mark ends the text.
            _ if index == last && rest.ends_with(piece) => Some(rest.len() - piece.len()),
            0 => rest.starts_with(piece).then_some(0),
            _ => rest.find(piece),
        };
        // A piece that isn't in the text: the verifier changed more than marks; all the rest counts.
        let Some(skipped) = found else {
            push_range(&mut ranges, text, at..text.len());
            return ranges;
        };
        push_range(&mut ranges, text, at..at + skipped);
        at += skipped + piece.len();
    }
    ranges
}

/// Adds a place, given in bytes of `text`, unless it is empty or a mark that the text itself has.
fn push_range(ranges: &mut Vec<Range<usize>>, text: &str, bytes: Range<usize>) {
    let chars = |end: usize| text[..end].chars().count();
    if !bytes.is_empty() && !MARKS.contains(&&text[bytes.clone()]) {
        ranges.push(chars(bytes.start)..chars(bytes.end));
    }
}

/// Returns the texts between the marks, at least one. Two marks with nothing but spaces between them
/// count as one.
fn split_at_marks(redacted: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut at) = (Vec::new(), 0, 0);
    while let Some(open) = redacted[at..].find('[').map(|found| at + found) {
        let mark = MARKS
            .iter()
            .find(|mark| redacted[open..].starts_with(**mark));
        let Some(mark) = mark else {
            at = open + 1;
            continue;
        };
        let piece = &redacted[start..open];
        if pieces.is_empty() || !piece.trim().is_empty() {
            pieces.push(piece);
        }
        (start, at) = (open + mark.len(), open + mark.len());
    }
    pieces.push(&redacted[start..]);
    pieces
}
