//! Text spans of JSON values, each with the kind of its key.

use std::borrow::Cow;

use callboard_message::is_one_of;
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
pub(super) struct TextSpan<'v> {
    pub text: Cow<'v, str>,
    pub kind: SpanKind,
    /// Presumed id of the patient, of the innermost object that has one: its text field
    /// `patient_id` or, without such a field, its `id`, even if that is the id of a medicine.
    /// `None` if none has.
    pub patient: Option<&'v str>,
}

/// Returns the text spans of all strings and numbers, of keys with a space or `@`, and of each
/// full name that an object's fields make up. `None` if a value is nested deeper
/// than [`VALUE_DEPTH_MAX`].
pub(super) fn text_spans<'v>(
    values: impl IntoIterator<Item = &'v Value>,
) -> Option<Vec<TextSpan<'v>>> {
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

fn collect_spans<'v>(
    value: &'v Value,
    place: &ValuePosition<'v>,
    out: &mut Vec<TextSpan<'v>>,
) -> Option<()> {
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
fn literal_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

fn collect_object<'v>(
    map: &'v Map<String, Value>,
    place: &ValuePosition<'v>,
    out: &mut Vec<TextSpan<'v>>,
) -> Option<()> {
    let patient = map
        .get("patient_id")
        .or_else(|| map.get("id"))
        .and_then(Value::as_str)
        .or(place.patient);
    let place = &ValuePosition { patient, ..*place };
    // The first fields with parts of a name.
    let (mut given, mut family) = (None, None);
    for (key, value) in map {
        let plain = plain_key(key);
        if is_given_key(&plain) {
            given.get_or_insert(value);
        } else if is_family_key(&plain) {
            family.get_or_insert(value);
        }
        // A key may hold a value: `{"Maria Silva": …}`.
        if key.contains(' ') || key.contains('@') {
            let place = ValuePosition { key: "", ..*place };
            out.push(span_at(Cow::Borrowed(key), &place));
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
    let part = |field: Option<&'v Value>| field.and_then(Value::as_str);
    if let (Some(given), Some(family)) = (part(given), part(family)) {
        let full = format!("{given} {family}");
        out.push(TextSpan {
            kind: SpanKind::Identity(IdentityKind::Name),
            ..span_at(Cow::Owned(full), place)
        });
    }
    Some(())
}

fn span_at<'v>(text: Cow<'v, str>, place: &ValuePosition<'v>) -> TextSpan<'v> {
    TextSpan {
        kind: span_kind(place, &text),
        patient: place.patient,
        text,
    }
}

/// Returns a key in folded form, with ASCII letters and digits only.
pub(super) fn plain_key(key: &str) -> Cow<'_, str> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if key.bytes().all(is_plain) {
        return Cow::Borrowed(key);
    }
    let mut plain = fold(key);
    plain.retain(|c| c.is_ascii_alphanumeric());
    Cow::Owned(plain)
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
    match key_kind(place) {
        SpanKind::Plain => SpanKind::Plain,
        _ if is_redacted(text) => SpanKind::Plain,
        kind => kind,
    }
}

/// Returns the kind of any text at a place but a mark for withheld data.
fn key_kind(place: &ValuePosition<'_>) -> SpanKind {
    let key = plain_key(place.key);
    let identity = match identity_key(&key) {
        _ if is_one_of!(&key, "query specialty action clinic purpose") => return SpanKind::Echo,
        Some(identity) => identity,
        None if is_one_of!(&key, "name nome") && !is_thing(place.parent) => IdentityKind::Name,
        None if is_given_key(&key) || is_family_key(&key) => IdentityKind::NamePart,
        None if is_one_of!(&key, "line line1 line2 postcode zip cep")
            && is_one_of!(&plain_key(place.parent), "address endereco") =>
        {
            IdentityKind::Address
        }
        None => return SpanKind::Plain,
    };
    SpanKind::Identity(identity)
}

/// Returns the kind of personal data that a key names by itself.
fn identity_key(plain: &str) -> Option<IdentityKind> {
    Some(match plain {
        "fullname" | "patientname" | "nomecompleto" | "nomedopaciente" | "nomepaciente"
        | "mothername" | "nomedamae" | "contactname" | "emergencycontact" | "nextofkin" => {
            IdentityKind::Name
        }
        "ssn"
        | "cpf"
        | "rg"
        | "nif"
        | "nhs"
        | "nhsnumber"
        | "aadhaar"
        | "cns"
        | "cartaosus"
        | "passport"
        | "passportnumber"
        | "governmentid"
        | "govid"
        | "governmentidnumber"
        | "nationalid"
        | "taxid"
        | "mrn"
        | "documento"
        | "socialsecuritynumber"
        | "insurancenumber"
        | "identifier" => IdentityKind::Id,
        "address" | "endereco" | "street" | "rua" | "streetaddress" | "homeaddress"
        | "addressline1" | "logradouro" => IdentityKind::Address,
        "phone" | "telephone" | "telefone" | "celular" | "mobile" | "phonenumber" | "fax" => {
            IdentityKind::Phone
        }
        "email" | "mail" | "emailaddress" => IdentityKind::Email,
        "birthdate" | "dateofbirth" | "dob" | "datadenascimento" | "datanascimento"
        | "nascimento" => IdentityKind::BirthDate,
        _ => return None,
    })
}

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
    // No such word is longer.
    if text
        .bytes()
        .filter(u8::is_ascii_alphabetic)
        .nth(8)
        .is_some()
    {
        return false;
    }
    let letters: String = fold(text).chars().filter(|c| c.is_alphabetic()).collect();
    letters.is_empty() && !text.chars().any(char::is_numeric)
        || is_one_of!(
            &letters,
            "redacted withheld hidden omitted removed none unknown xxx",
        )
}

fn is_given_key(plain: &str) -> bool {
    is_one_of!(
        plain,
        "firstname givenname first given prenome primeironome"
    )
}

fn is_family_key(plain: &str) -> bool {
    is_one_of!(
        plain,
        "lastname surname familyname last family sobrenome ultimonome"
    )
}

/// Returns the text spans that state facts, which excludes echoes of the request.
pub(super) fn asserted_spans<'a, 'v>(
    lines: &'a [TextSpan<'v>],
) -> impl Iterator<Item = &'a TextSpan<'v>> {
    lines.iter().filter(|line| line.kind != SpanKind::Echo)
}
