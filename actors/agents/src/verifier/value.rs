//! JSON values as the lines that a person would read, with what their place in the value says about them.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fold::fold;
use crate::text::{Meanings, is_one_of, meanings};

/// Levels of nesting that are read; anything deeper isn't checked and so isn't shown.
pub const VALUE_DEPTH_MAX: usize = 64;

/// What a line's key says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// Free text, codes, numbers.
    Plain,
    /// A person's name, government id, address, phone, e-mail.
    Identity(Identity),
    /// What was asked, given back: no evidence of anything.
    Echo,
}

/// A kind of personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    Name,
    /// One part of a name in a field of its own.
    NamePart,
    Id,
    Address,
    Phone,
    Email,
    BirthDate,
}

/// One readable line of a value.
pub(super) struct Line {
    pub text: String,
    pub kind: LineKind,
    /// The id of the patient whose record it stands in.
    pub patient: Option<String>,
    /// The medicine's name, where the line is about one.
    pub medicine: Option<String>,
}

/// A value nested deeper than [`VALUE_DEPTH_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooDeep;

/// All lines of `value`, keys included.
pub(super) fn lines(value: &Value) -> Result<Vec<Line>, TooDeep> {
    let mut out = Vec::new();
    walk(value, &Place { key: "", parent: "", patient: None, depth: 0 }, &mut out)?;
    Ok(out)
}

#[derive(Clone, Copy)]
struct Place<'a> {
    key: &'a str,
    parent: &'a str,
    patient: Option<&'a str>,
    depth: usize,
}

fn walk(value: &Value, place: &Place<'_>, out: &mut Vec<Line>) -> Result<(), TooDeep> {
    if place.depth > VALUE_DEPTH_MAX {
        return Err(TooDeep);
    }
    let deeper = Place { depth: place.depth + 1, ..*place };
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::String(text) => out.push(line(text.clone(), place)),
        Value::Number(number) => out.push(line(number.to_string(), place)),
        Value::Array(items) => {
            for item in items {
                walk(item, &deeper, out)?;
            }
        }
        Value::Object(map) => object(map, &deeper, out)?,
    }
    Ok(())
}

fn object(map: &Map<String, Value>, place: &Place<'_>, out: &mut Vec<Line>) -> Result<(), TooDeep> {
    let patient = map.get("patient_id").or_else(|| map.get("id")).and_then(Value::as_str).or(place.patient);
    let place = &Place { patient, ..*place };
    if let Some((text, medicine)) = prescription(map, place) {
        out.push(Line { text, kind: LineKind::Plain, patient: patient.map(str::to_owned), medicine: Some(medicine) });
    }
    for (key, value) in map {
        // A key may carry what a value should: `{"Maria Silva": …}`.
        if key.contains(' ') || key.contains('@') {
            out.push(line(key.clone(), &Place { key: "", ..*place }));
        }
        walk(value, &Place { key, parent: place.key, ..*place }, out)?;
    }
    // Name parts in fields of their own make a full name together.
    let part = |keys: &str| map.iter().find(|(k, _)| is_one_of(&plain_key(k), keys)).and_then(|(_, v)| v.as_str());
    if let (Some(given), Some(family)) = (part(GIVEN_KEYS), part(FAMILY_KEYS)) {
        let full = format!("{given} {family}");
        out.push(Line { kind: LineKind::Identity(Identity::Name), ..line(full, place) });
    }
    Ok(())
}

fn line(text: String, place: &Place<'_>) -> Line {
    let kind = kind(place, &text);
    Line { text, kind, patient: place.patient.map(str::to_owned), medicine: None }
}

/// An object that holds a medicine and its dose in fields: one line, as a person would write it.
fn prescription(map: &Map<String, Value>, place: &Place<'_>) -> Option<(String, String)> {
    let text = |value: &Value| match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    };
    let field = |keys: &str| {
        map.iter().find(|(k, _)| is_one_of(&plain_key(k), keys)).and_then(|(k, v)| Some((plain_key(k), text(v)?)))
    };
    let dosed = field(DOSE_KEYS).is_some() || field(SCHEDULE_KEYS).is_some();
    let in_list = is_medication_key(place.key) || is_medication_key(place.parent);
    let (_, name) = field(MEDICINE_KEYS).or_else(|| if dosed || in_list { field("name nome") } else { None })?;
    let mut parts = vec![name.clone()];
    if let Some((key, amount)) = field(DOSE_KEYS) {
        parts.push(amount);
        if let Some(unit) = ["mcg", "mg", "ml", "iu", "g"].into_iter().find(|u| key.ends_with(u) && key.len() > u.len())
        {
            parts.push(unit.to_owned());
        }
    }
    for keys in [UNIT_KEYS, SCHEDULE_KEYS, ROUTE_KEYS] {
        parts.extend(field(keys).map(|(_, value)| value));
    }
    Some((parts.join(" "), name))
}

fn plain_key(key: &str) -> String {
    fold(key).chars().filter(char::is_ascii_alphanumeric).collect()
}

fn is_medication_key(key: &str) -> bool {
    let key = plain_key(key);
    "medic drug prescri treatment tratamento remedio therap".split(' ').any(|m| key.contains(m))
}

fn kind(place: &Place<'_>, text: &str) -> LineKind {
    if is_redacted(text) {
        return LineKind::Plain;
    }
    let key = plain_key(place.key);
    let key = key.as_str();
    let identity = match KEYS.get(key) {
        _ if is_one_of(key, "query specialty action clinic purpose") => return LineKind::Echo,
        Some(identity) => *identity,
        None if matches!(key, "name" | "nome") && !is_thing(place.parent) => Identity::Name,
        None if is_one_of(key, GIVEN_KEYS) || is_one_of(key, FAMILY_KEYS) => Identity::NamePart,
        None if is_one_of(key, "line line1 line2 postcode zip cep")
            && is_one_of(&plain_key(place.parent), "address endereco") =>
        {
            Identity::Address
        }
        None => return LineKind::Plain,
    };
    LineKind::Identity(identity)
}

static KEYS: Meanings<Identity> = LazyLock::new(|| {
    use Identity::*;
    meanings(&[
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
        ("address endereco street rua streetaddress homeaddress addressline1 logradouro", Address),
        ("phone telephone telefone celular mobile phonenumber fax", Phone),
        ("email mail emailaddress", Email),
        ("birthdate dateofbirth dob datadenascimento datanascimento nascimento", BirthDate),
    ])
});

/// Whether what has this key is named without being a person.
fn is_thing(parent: &str) -> bool {
    let key = plain_key(parent);
    is_medication_key(parent)
        || "condition clinic hospital tool allerg alerg diagnos procedure test lab specialty agent"
            .split(' ')
            .any(|m| key.contains(m))
}

/// Whether a value says that it was withheld.
fn is_redacted(text: &str) -> bool {
    let letters: String = fold(text).chars().filter(char::is_ascii_alphabetic).collect();
    letters.is_empty() && !text.chars().any(|c| c.is_ascii_digit())
        || is_one_of(&letters, "redacted withheld hidden omitted removed none unknown xxx")
}

const GIVEN_KEYS: &str = "firstname givenname first given prenome primeironome";
const FAMILY_KEYS: &str = "lastname surname familyname last family sobrenome ultimonome";
const MEDICINE_KEYS: &str = "medication drug medicine medicamento drugname medicationname generic";
const DOSE_KEYS: &str = "dose dosage strength amount posologia dosagem dosemg dosemcg doseg doseml doseiu dosagemg \
    strengthmg quantity dosevalue";
const UNIT_KEYS: &str = "unit units doseunit unidade";
const SCHEDULE_KEYS: &str = "frequency schedule frequencia interval timing sig freq";
const ROUTE_KEYS: &str = "route via viadeadministracao";
