//! Cutting personal data out of an answer.

use foldhash::HashSet;
use serde_json::{Map, Value};

use super::class::{IdentityClass, IdentityPolicy};
use super::known::KnownIdentities;
use super::reading::{IdentityReading, Tokens};
use super::{Finder, Hit};
use crate::verifier::Identities;
use crate::verifier::spans::{SpanKind, TextSpan, ValuePosition, span_kind};

/// Maximum number of times that a text is searched again after personal data was cut out of it. If
/// there is still some, the text can't be shown.
const ROUNDS_MAX: usize = 4;
/// Minimum digits of a JSON number that is searched.
const NUMBER_DIGITS_MIN: usize = 7;

/// Answer without personal data.
pub(in crate::verifier) struct Redaction {
    pub results: Value,
    pub text: String,
    /// Number of places where data was cut out.
    pub count: u32,
    /// Classes of what was cut out, each once, in the order of their first places.
    pub classes: Vec<IdentityClass>,
    /// Class of data that can't be cut out; `None` if all was.
    pub stuck: Option<IdentityClass>,
}

/// Cuts personal data out of results and text. `recorded` are the spans of the records: known
/// values, which are withheld or allowed by `identities`.
pub(in crate::verifier) fn redact_answer(
    mut results: Value,
    text: String,
    recorded: &[TextSpan<'_>],
    identities: Identities,
    policy: &IdentityPolicy,
) -> Redaction {
    let (known, public) = (KnownIdentities::new(recorded), public_ids(recorded));
    let finder = finder_of(&known, &public, identities, policy);
    let mut redactor = Redactor::new(finder);
    redactor.redact_value(&mut results, &ValuePosition::default());
    let text = redactor.redact_text(&text).unwrap_or(text);
    if finder.withheld.is_some_and(KnownIdentities::is_searched) {
        redactor.search_joined(&results);
    }
    Redaction {
        results,
        text,
        count: redactor.count,
        classes: redactor.classes,
        stuck: redactor.stuck,
    }
}

/// Cuts personal data out of the note of a finding.
pub(in crate::verifier) fn redact_note(
    note: &mut String,
    recorded: &[TextSpan<'_>],
    identities: Identities,
    policy: &IdentityPolicy,
) {
    let (known, public) = (KnownIdentities::new(recorded), public_ids(recorded));
    let mut redactor = Redactor::new(finder_of(&known, &public, identities, policy));
    if let Some(redacted) = redactor.redact_text(note) {
        *note = redacted;
    }
}

/// Returns the ids by which the records call their patients.
fn public_ids(recorded: &[TextSpan<'_>]) -> KnownIdentities {
    let mut public = KnownIdentities::default();
    let mut before = None;
    for id in recorded.iter().filter_map(|span| span.patient) {
        if before != Some(id) {
            public.insert_public(id);
            before = Some(id);
        }
    }
    public
}

/// Returns a search for what may not be shown: `known` values or, if the caller may see these, all
/// others.
fn finder_of<'a>(
    known: &'a KnownIdentities,
    public: &'a KnownIdentities,
    identities: Identities,
    policy: &'a IdentityPolicy,
) -> Finder<'a> {
    let (withheld, allowed) = match identities {
        Identities::Withheld => (Some(known), public),
        Identities::AsRecorded => (None, known),
    };
    Finder {
        withheld,
        allowed,
        policy,
        known_only: false,
    }
}

/// Cuts known values out of a text; `None` if it holds none. Data that can't be cut out makes the
/// whole text a mark.
pub(crate) fn redact_known(text: &str, known: &KnownIdentities) -> Option<String> {
    let (nothing, policy) = (KnownIdentities::default(), IdentityPolicy::default());
    let mut redactor = Redactor::new(Finder {
        withheld: Some(known),
        allowed: &nothing,
        policy: &policy,
        known_only: true,
    });
    let redacted = redactor.redact_text(text)?;
    Some(match redactor.stuck {
        None => redacted,
        Some(class) => class.mark().to_owned(),
    })
}

struct Redactor<'a> {
    finder: Finder<'a>,
    /// Texts so far that hold no personal data.
    harmless: HashSet<String>,
    count: u32,
    classes: Vec<IdentityClass>,
    stuck: Option<IdentityClass>,
}

impl<'a> Redactor<'a> {
    fn new(finder: Finder<'a>) -> Self {
        Self {
            finder,
            harmless: HashSet::default(),
            count: 0,
            classes: Vec::new(),
            stuck: None,
        }
    }

    fn add(&mut self, class: IdentityClass) {
        self.count = self.count.saturating_add(1);
        if !self.classes.contains(&class) {
            self.classes.push(class);
        }
    }

    /// Returns the text with marks in place of personal data; `None` if it has none.
    fn redact_text(&mut self, text: &str) -> Option<String> {
        if self.harmless.contains(text) {
            return None;
        }
        let mut hits = self.finder.find(text);
        if hits.is_empty() {
            self.harmless.insert(text.to_owned());
            return None;
        }
        let mut redacted = text.to_owned();
        for _ in 0..ROUNDS_MAX {
            hits.iter().for_each(|hit| self.add(hit.class));
            redacted = with_marks(&redacted, &hits);
            hits = self.finder.find(&redacted);
            if hits.is_empty() {
                return Some(redacted);
            }
        }
        self.stuck = hits.first().map(|hit| hit.class);
        Some(redacted)
    }

    fn redact_value(&mut self, value: &mut Value, place: &ValuePosition<'_>) {
        match value {
            Value::String(text) => {
                let redacted = match self.identity_of(text, place) {
                    Some(class) => {
                        self.add(class);
                        Some(class.mark().to_owned())
                    }
                    None => self.redact_text(text),
                };
                if let Some(redacted) = redacted {
                    *text = redacted;
                }
            }
            Value::Number(number) => {
                let text = number.to_string();
                let class = self.identity_of(&text, place).or_else(|| {
                    let digits = text.bytes().filter(u8::is_ascii_digit).count();
                    let long = digits >= NUMBER_DIGITS_MIN && !text.contains('.');
                    let hits = long.then(|| self.finder.find(&text))?;
                    hits.first().map(|hit| hit.class)
                });
                if let Some(class) = class {
                    self.add(class);
                    *value = Value::String(class.mark().to_owned());
                }
            }
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.redact_value(item, place)),
            Value::Object(map) => self.redact_object(map, place),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn redact_object(&mut self, map: &mut Map<String, Value>, place: &ValuePosition<'_>) {
        for (key, value) in map.iter_mut() {
            // A key can't be cut: other values are found by it.
            if is_searched(key)
                && let Some(hit) = self.finder.find(key).first()
            {
                self.stuck = Some(hit.class);
            }
            self.redact_value(value, &place.inside(key));
        }
    }

    /// Returns the class of a value whose key marks it as personal, unless the caller may see it.
    fn identity_of(&self, text: &str, place: &ValuePosition<'_>) -> Option<IdentityClass> {
        let SpanKind::Identity(kind) = span_kind(place, text) else {
            return None;
        };
        let class = IdentityClass::from(kind);
        if super::class::mark_len(text) == text.len() {
            return None;
        }
        let reading = IdentityReading::new(text);
        let hit = Hit::new(0..reading.lower.len(), class);
        let covered = self.finder.allowed.covers(&Tokens::new(&reading), &hit);
        (!covered).then_some(class)
    }

    /// Searches for a known value that is spread over several values of the results. It can't be
    /// cut out.
    fn search_joined(&mut self, results: &Value) {
        let (mut text, mut ends) = (String::new(), Vec::new());
        join_values(results, &mut text, &mut ends);
        let known = Finder {
            known_only: true,
            ..self.finder
        };
        let spread = known.find(&text).into_iter().find(|hit| {
            let within = ends.partition_point(|end| *end <= hit.range.start);
            ends.get(within).is_some_and(|end| *end < hit.range.end)
        });
        if let Some(hit) = spread {
            self.stuck = Some(hit.class);
        }
    }
}

/// Returns whether a key may hold a value: it has more than letters of lower case, `_` and single
/// capitals as in `birthDate`.
fn is_searched(key: &str) -> bool {
    let plain = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    !plain || key.len() > 24
}

/// Returns a text with the mark of its class in place of each hit.
fn with_marks(text: &str, hits: &[Hit]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for hit in hits {
        out.push_str(&text[at..hit.range.start]);
        out.push_str(hit.class.mark());
        at = hit.range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// Appends all strings and numbers of a value, each on a line, and the ends of the lines.
fn join_values(value: &Value, text: &mut String, ends: &mut Vec<usize>) {
    match value {
        Value::String(part) => text.push_str(part),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::Array(items) => return items.iter().for_each(|item| join_values(item, text, ends)),
        Value::Object(map) => return map.values().for_each(|item| join_values(item, text, ends)),
        Value::Null | Value::Bool(_) => return,
    }
    text.push('\n');
    ends.push(text.len());
}
