//! Personal data in texts: labelled places, and those that the verifier finds.

use std::ops::Range;

use callboard_clinics::verifier::{IdentityPolicy, find_personal_data};
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

/// Returns the places of personal data that rule R2 finds in `text`, in characters.
pub(super) fn personal_ranges(text: &str, records: &[Value]) -> Vec<Range<usize>> {
    let (mut chars, mut counted) = (0, 0);
    let mut to_chars = |byte: usize| {
        chars += text[counted..byte].chars().count();
        counted = byte;
        chars
    };
    let found = find_personal_data(text, records, &IdentityPolicy::default());
    found
        .into_iter()
        .map(|span| to_chars(span.range.start)..to_chars(span.range.end))
        .collect()
}
