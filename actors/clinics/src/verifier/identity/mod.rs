//! Rule R2: no personal name, id number, birth date, address or contact.
//!
//! Values under keys of personal data in the clinics' answers are searched first, also in
//! disguises, unless the caller may see them. Patterns, check digits and lists of names find other
//! values. What is found is cut out of the answer.

mod address;
mod checksum;
mod class;
mod contact;
mod date;
mod encoded;
mod joined;
mod known;
mod lexicon;
mod names;
mod number;
mod reading;
mod redact;
#[cfg(test)]
mod tests;

use std::ops::Range;

use serde_json::Value;

pub(crate) use class::IDENTITY_MARKS;
pub use class::{Disclosure, IdentityClass, IdentityPolicy};
pub(crate) use known::{KnownIdentities, NameReach};
pub(crate) use redact::redact_known;
pub(in crate::verifier) use redact::{Redaction, redact_answer, redact_note};

use super::spans::text_spans;
use reading::{IdentityReading, Tokens};

/// Maximum nesting of encodings, such as base64, that are decoded. Text in deeper ones isn't found.
const LAYERS_MAX: usize = 3;

/// Personal data in a reading.
#[derive(Debug, Clone)]
struct Hit {
    range: Range<usize>,
    class: IdentityClass,
}

impl Hit {
    fn new(range: Range<usize>, class: IdentityClass) -> Self {
        Self { range, class }
    }
}

/// Returns the last of the hits, which are in ascending order, that ends before a byte.
fn hits_before(hits: &[Hit], byte: usize) -> Option<&Hit> {
    let count = hits.partition_point(|hit| hit.range.end <= byte);
    count.checked_sub(1).map(|last| &hits[last])
}

/// Sorts hits and unites those that overlap; the longest of these gives the class.
fn merge(hits: &mut Vec<Hit>) {
    hits.retain(|hit| !hit.range.is_empty());
    hits.sort_by_key(|hit| (hit.range.start, std::cmp::Reverse(hit.range.end)));
    let mut merged: Vec<Hit> = Vec::with_capacity(hits.len());
    let mut longest = 0;
    for hit in hits.drain(..) {
        let len = hit.range.len();
        match merged.last_mut() {
            Some(last) if hit.range.start < last.range.end => {
                if len > longest {
                    (last.class, longest) = (hit.class, len);
                }
                last.range.end = last.range.end.max(hit.range.end);
            }
            _ => {
                longest = len;
                merged.push(hit);
            }
        }
    }
    *hits = merged;
}

/// Search for personal data that may not be shown.
#[derive(Clone, Copy)]
pub(in crate::verifier) struct Finder<'a> {
    /// Known values that may never appear.
    pub withheld: Option<&'a KnownIdentities>,
    /// Known values that may appear.
    pub allowed: &'a KnownIdentities,
    pub policy: &'a IdentityPolicy,
    /// Whether only known values are searched for.
    pub known_only: bool,
}

impl Finder<'_> {
    /// Returns the personal data in `text` that may not be shown, in ascending order without
    /// overlaps. The time is linear in the length of the text.
    fn find(&self, text: &str) -> Vec<Hit> {
        self.find_in(text, LAYERS_MAX)
    }

    fn find_in(&self, text: &str, layers: usize) -> Vec<Hit> {
        let mut hits = Vec::new();
        for reading in IdentityReading::all(text) {
            let tokens = Tokens::new(&reading);
            let found = self.find_plain(&tokens);
            hits.extend(
                found
                    .into_iter()
                    .map(|hit| Hit::new(reading.original(hit.range), hit.class)),
            );
        }
        if layers > 0 {
            for (range, content) in encoded::encoded_parts(text) {
                if let Some(inside) = self.find_in(&content, layers - 1).first() {
                    hits.push(Hit::new(range, inside.class));
                }
            }
        }
        merge(&mut hits);
        hits
    }

    fn find_plain(&self, tokens: &Tokens<'_>) -> Vec<Hit> {
        let mut hits = Vec::new();
        if !self.known_only {
            names::find_names(tokens, &mut hits);
            hits.retain(|hit| self.policy.disclosure(hit.class) == Disclosure::Redact);
            let mut dates = Vec::new();
            date::find_birth_dates(tokens, &hits, &mut dates);
            hits.append(&mut dates);
            number::find_numbers(tokens, &mut hits);
            address::find_addresses(tokens, &mut hits);
            contact::find_contacts(tokens, &mut hits);
            hits.retain(|hit| self.policy.disclosure(hit.class) == Disclosure::Redact);
            if !self.allowed.is_empty() {
                self.retain_foreign(tokens, &mut hits);
            }
        }
        if let Some(withheld) = self.withheld {
            withheld.find(tokens, NameReach::Parts, &mut hits);
        }
        hits
    }

    /// Drops hits that the caller may see: known values, or nothing but known values and what
    /// separates them.
    fn retain_foreign(&self, tokens: &Tokens<'_>, hits: &mut Vec<Hit>) {
        if hits.is_empty() {
            return;
        }
        let mut known = Vec::new();
        self.allowed.find(tokens, NameReach::Full, &mut known);
        merge(&mut known);
        hits.retain(|hit| {
            !self.allowed.covers(tokens, hit) && !is_covered_by(&known, hit, &tokens.reading.lower)
        });
    }
}

/// Returns whether a hit holds no letters or digits outside of the known values, which are in
/// ascending order.
fn is_covered_by(known: &[Hit], hit: &Hit, text: &str) -> bool {
    let first = known.partition_point(|value| value.range.end <= hit.range.start);
    let mut at = hit.range.start;
    for value in &known[first..] {
        if value.range.start >= hit.range.end {
            break;
        }
        if value.range.start > at && text[at..value.range.start].contains(char::is_alphanumeric) {
            return false;
        }
        at = at.max(value.range.end);
    }
    at > hit.range.start
        && !text[at.min(hit.range.end)..hit.range.end].contains(char::is_alphanumeric)
}

/// Place of personal data in a text, in bytes, and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonalSpan {
    /// Place in the text, in bytes.
    pub range: Range<usize>,
    /// Class of the data.
    pub class: IdentityClass,
}

/// Finds the personal data in a text that rule R2 cuts out for a caller who may not see
/// identities: in ascending order, without overlaps. `records` are answers of clinics whose
/// personal values are searched for in every disguise; too deeply nested ones are ignored.
pub fn find_personal_data(
    text: &str,
    records: &[Value],
    policy: &IdentityPolicy,
) -> Vec<PersonalSpan> {
    let withheld = KnownIdentities::new(&text_spans(records).unwrap_or_default());
    let allowed = KnownIdentities::default();
    let finder = Finder {
        withheld: Some(&withheld),
        allowed: &allowed,
        policy,
        known_only: false,
    };
    let found = finder.find(text).into_iter();
    found
        .map(|Hit { range, class }| PersonalSpan { range, class })
        .collect()
}
