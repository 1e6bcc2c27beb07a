//! Text spans of JSON values, each with the kind of its key.

use std::sync::LazyLock;

use callboard_message::text::{WordTable, is_one_of, word_table};
use serde_json::{Map, Value};

use super::fold;

/// Maximum nesting depth of a JSON value. A deeper value can't be checked, so the answer counts as
/// unsafe.
pub const VALUE_DEPTH_MAX: usize = 64;

/// Kind of a text span, derived from its key, the key of the object around it and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// Other text: free text, codes, numbers, and marks in place of withheld data.
    Plain,
    /// Text under a key of personal data, or a full name composed of such texts. Personal data in
    /// free text is [`Self::Plain`].
    Identity(IdentityKind),
    /// Echo of the request, such as the question or the clinic, by its key. It isn't evidence for
    /// the answer.
    Echo,
}

/// Kind of personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdentityKind {
    Name,
    /// Part of a person's name, in a field of its own.
    NamePart,
    Id,
    Address,
    Phone,
    Email,
    BirthDate,
}

/// Text of one JSON value or key, or composed of several fields, with its context.
pub(super) struct TextSpan {
    pub text: String,
    pub kind: SpanKind,
    /// Presumed id of the patient, of the innermost object that has one: its text field
    /// `patient_id` or, without such a field, its `id`, even if that is the id of a medicine.
    /// `None` if none has.
    pub patient: Option<String>,
}

/// Returns the text spans of all strings and numbers, of keys with a space or `@`, and of each
/// full name that an object's fields make up. `None` if a value is nested deeper
/// than [`VALUE_DEPTH_MAX`].
pub(super) fn text_spans<'a>(values: impl IntoIterator<Item = &'a Value>) -> Option<Vec<TextSpan>> {
    let mut out = Vec::new();
    let top = ValuePosition::default();
    values
        .into_iter()
        .try_for_each(|value| collect_spans(value, &top, &mut out))?;
    Some(out)
}

/// Place of a JSON value in the values around it.
#[derive(Clone, Copy, Default)]
pub(super) struct ValuePosition<'a> {
    key: &'a str,
    parent: &'a str,
    patient: Option<&'a str>,
    depth: usize,
}

impl<'a> ValuePosition<'a> {
    /// Returns the place of the value under a key of the object at this place.
    pub fn inside<'b>(&self, key: &'b str) -> ValuePosition<'b>
    where
        'a: 'b,
    {
        ValuePosition {
            key,
            parent: self.key,
            patient: self.patient,
            depth: self.depth,
        }
    }
}

fn collect_spans(value: &Value, place: &ValuePosition<'_>, out: &mut Vec<TextSpan>) -> Option<()> {
    if place.depth > VALUE_DEPTH_MAX {
        return None;
    }
    let deeper = ValuePosition {
        depth: place.depth + 1,
        ..*place
    };
    match value {
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| collect_spans(item, &deeper, out))?,
        Value::Object(map) => collect_object(map, &deeper, out)?,
        scalar => out.extend(literal_text(scalar).map(|text| span_at(text, place))),
    }
    Some(())
}

/// Returns the text of a JSON string or number; `None` for other values.
fn literal_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the first field of an object whose key is in the space-separated list `keys`. Keys are
/// compared and returned in folded form, with ASCII letters and digits only.
fn find_field<'a>(map: &'a Map<String, Value>, keys: &str) -> Option<(String, &'a Value)> {
    map.iter()
        .map(|(key, value)| (plain_key(key), value))
        .find(|(key, _)| is_one_of(key, keys))
}

fn collect_object(
    map: &Map<String, Value>,
    place: &ValuePosition<'_>,
    out: &mut Vec<TextSpan>,
) -> Option<()> {
    let patient = map
        .get("patient_id")
        .or_else(|| map.get("id"))
        .and_then(Value::as_str)
        .or(place.patient);
    let place = &ValuePosition { patient, ..*place };
    for (key, value) in map {
        // A key may hold a value: `{"Maria Silva": …}`.
        if key.contains(' ') || key.contains('@') {
            out.push(span_at(key.clone(), &ValuePosition { key: "", ..*place }));
        }
        collect_spans(
            value,
            &ValuePosition {
                key,
                parent: place.key,
                ..*place
            },
            out,
        )?;
    }
    // Parts of a name in separate fields form a full name.
    let part = |keys| find_field(map, keys).and_then(|(_, value)| value.as_str());
    if let (Some(given), Some(family)) = (part(GIVEN_KEYS), part(FAMILY_KEYS)) {
        let full = format!("{given} {family}");
        out.push(TextSpan {
            kind: SpanKind::Identity(IdentityKind::Name),
            ..span_at(full, place)
        });
    }
    Some(())
}

fn span_at(text: String, place: &ValuePosition<'_>) -> TextSpan {
    TextSpan {
        kind: span_kind(place, &text),
        patient: place.patient.map(str::to_owned),
        text,
    }
}

fn plain_key(key: &str) -> String {
    fold(key)
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect()
}

fn is_medication_key(key: &str) -> bool {
    has_any_part(
        key,
        "medic drug prescri treatment tratamento remedio therap",
    )
}

fn has_any_part(key: &str, parts: &str) -> bool {
    let key = plain_key(key);
    parts
        .split_ascii_whitespace()
        .any(|part| key.contains(part))
}

/// Returns the kind of a text by its place.
pub(super) fn span_kind(place: &ValuePosition<'_>, text: &str) -> SpanKind {
    if is_redacted(text) {
        return SpanKind::Plain;
    }
    let key = plain_key(place.key);
    let is = |keys| is_one_of(&key, keys);
    let identity = match IDENTITY_KEYS.get(key.as_str()) {
        _ if is("query specialty action clinic purpose") => return SpanKind::Echo,
        Some(identity) => *identity,
        None if is("name nome") && !is_thing(place.parent) => IdentityKind::Name,
        None if is(GIVEN_KEYS) || is(FAMILY_KEYS) => IdentityKind::NamePart,
        None if is("line line1 line2 postcode zip cep")
            && is_one_of(&plain_key(place.parent), "address endereco") =>
        {
            IdentityKind::Address
        }
        None => return SpanKind::Plain,
    };
    SpanKind::Identity(identity)
}

static IDENTITY_KEYS: WordTable<IdentityKind> = LazyLock::new(|| {
    use IdentityKind::*;
    word_table(&[
        (
            "fullname patientname nomecompleto nomedopaciente nomepaciente mothername nomedamae contactname \
             emergencycontact nextofkin",
            Name,
        ),
        (
            "ssn cpf rg nif nhs nhsnumber aadhaar cns cartaosus passport passportnumber governmentid govid \
             governmentidnumber nationalid taxid mrn documento socialsecuritynumber insurancenumber \
             identifier",
            Id,
        ),
        (
            "address endereco street rua streetaddress homeaddress addressline1 logradouro",
            Address,
        ),
        (
            "phone telephone telefone celular mobile phonenumber fax",
            Phone,
        ),
        ("email mail emailaddress", Email),
        (
            "birthdate dateofbirth dob datadenascimento datanascimento nascimento",
            BirthDate,
        ),
    ])
});

/// Returns whether a key has a part that speaks of things, such as `medic` or `hospital`. A `name`
/// in an object under such a key doesn't count as a person's.
fn is_thing(parent: &str) -> bool {
    is_medication_key(parent)
        || has_any_part(
            parent,
            "condition clinic hospital tool allerg alerg diagnos procedure test lab specialty agent",
        )
}

/// Returns whether a value counts as a mark in place of the real one: a text whose only letters are
/// a word such as `hidden` or `none`, whatever digits stand beside it, or any text without letters
/// and digits of any script, for example `***`.
fn is_redacted(text: &str) -> bool {
    let letters: String = fold(text).chars().filter(|c| c.is_alphabetic()).collect();
    letters.is_empty() && !text.chars().any(char::is_numeric)
        || is_one_of(
            &letters,
            "redacted withheld hidden omitted removed none unknown xxx",
        )
}

const GIVEN_KEYS: &str = "firstname givenname first given prenome primeironome";
const FAMILY_KEYS: &str = "lastname surname familyname last family sobrenome ultimonome";
/// Returns the text spans that state facts, which excludes echoes of the request.
pub(super) fn asserted_spans(lines: &[TextSpan]) -> impl Iterator<Item = &TextSpan> {
    lines.iter().filter(|line| line.kind != SpanKind::Echo)
}
