//! The verifier: an observer that decides what may be shown. Three rules, no model.
//!
//! - **R1** no dose and no treatment that the clinics' answers don't hold;
//! - **R2** no full name, government id, address or contact of a person, unless the caller may see them;
//! - **R3** no diagnosing, no prescribing, no talking anybody out of seeing a doctor.
//!
//! Each rule reads every value of the aggregated results and the final text. What can't be read isn't safe.

mod identity;
mod medicine;
mod scope;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use callboard_macros::Message;
use callboard_message::text::{Meanings, is_invisible, is_one_of, lookalike, meanings};
use callboard_runtime::{Agent, Cx, Handlers, Profile, SyncHandler};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use identity::Known;
use medicine::Grounds;

/// Bytes of text and of JSON values, together, that one verification reads; more isn't shown.
pub const VERIFY_BYTES_MAX: usize = 4 << 20;

/// The verifier as an agent: ask it to [`Verify`].
#[derive(Debug, Default)]
pub struct Verifier {
    verified: u64,
    withheld: u64,
}

impl Agent for Verifier {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Verify>();
    }

    /// It may think for long: not on the thread of whoever asks.
    fn profile() -> Profile {
        Profile::default().pinned()
    }

    fn observe(&self) -> Value {
        json!({"verified": self.verified, "withheld": self.withheld})
    }
}

impl SyncHandler<Verify> for Verifier {
    fn handle(&mut self, message: Verify, _cx: &mut Cx) -> Verdict {
        let verdict = message.verdict();
        self.verified += 1;
        self.withheld += u64::from(!verdict.safe);
        verdict
    }
}

impl Verify {
    /// Applies the three rules, R1 first. Deterministic; takes time linear in the sizes of records and results.
    pub fn verdict(&self) -> Verdict {
        if self.bytes() > VERIFY_BYTES_MAX {
            return Verdict::withheld(None, "Response is too long to be verified.");
        }
        let too_deep = || Verdict::withheld(None, "Response is nested too deeply to be verified.");
        self.apply().unwrap_or_else(too_deep)
    }

    /// `None` where a value is nested too deeply.
    fn apply(&self) -> Option<Verdict> {
        let recorded = lines(&self.records)?;
        let shown = lines([&self.results])?;
        let text = self.without_echoes(&recorded);
        let broken = fabricated(&recorded, &shown, &text)
            .or_else(|| self.personal(&recorded, &shown))
            .or_else(|| out_of_scope(&recorded, &shown, &text));
        Some(broken.unwrap_or_else(Verdict::ok))
    }

    /// The final text less the quoted repetition of what was asked: that asserts nothing.
    fn without_echoes(&self, recorded: &[Line]) -> String {
        let echoes = recorded
            .iter()
            .filter(|l| l.kind == LineKind::Echo && !l.text.is_empty());
        echoes.fold(self.text.clone(), |text, echo| {
            let quoted = [('"', '"'), ('\'', '\''), ('“', '”'), ('`', '`')];
            quoted.iter().fold(text, |text, (open, close)| {
                text.replace(&format!("{open}{}{close}", echo.text), "")
            })
        })
    }

    fn personal(&self, recorded: &[Line], shown: &[Line]) -> Option<Verdict> {
        let known = Known::new(recorded);
        let nothing = Known::default();
        let (withheld, allowed) = match self.identities {
            Identities::Withheld => (&known, &nothing),
            Identities::AsRecorded => (&nothing, &known),
        };
        let field = shown.iter().find_map(|line| match line.kind {
            LineKind::Identity(kind) if !allowed.covers(&line.text) => Some(kind),
            _ => None,
        });
        let in_lines = || {
            shown
                .iter()
                .find_map(|line| identity::find(&line.text, withheld, allowed))
        };
        let kind = field
            .or_else(in_lines)
            .or_else(|| identity::find(&self.text, withheld, allowed))?;
        Some(Verdict::withheld(
            Some(Rule::R2),
            format!("Response exposes personal data ({}).", words(kind)),
        ))
    }
}

fn fabricated(recorded: &[Line], shown: &[Line], text: &str) -> Option<Verdict> {
    let grounds = Grounds::new(recorded);
    let in_lines = said(shown).find_map(|line| grounds.check(&line.text, line.patient.as_deref()));
    let note = in_lines.or_else(|| grounds.check_about_patients(text))?;
    Some(Verdict::withheld(Some(Rule::R1), note))
}

fn out_of_scope(recorded: &[Line], shown: &[Line], text: &str) -> Option<Verdict> {
    let records = scope::Records::new(said(recorded).map(|line| fold(&line.text)));
    let in_lines = said(shown).find_map(|line| scope::find(&line.text, &records));
    let found = in_lines.or_else(|| scope::find(text, &records))?;
    let note = format!("Response recommends an action outside the agent's scope ({found}).");
    Some(Verdict::withheld(Some(Rule::R3), note))
}

/// The lines that assert something.
fn said(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|line| line.kind != LineKind::Echo)
}

fn words(kind: Identity) -> &'static str {
    match kind {
        Identity::Name | Identity::NamePart => "a person's name",
        Identity::Id => "an identification number",
        Identity::Address => "an address",
        Identity::Phone => "a phone number",
        Identity::Email => "an e-mail address",
        Identity::BirthDate => "a date of birth",
    }
}

/// Checks the answer to a query before a person sees it: medicines and doses against the records, personal data,
/// medical advice.
#[derive(derive_more::Debug, Clone, Message, Serialize, Deserialize, JsonSchema)]
// Records and text hold patient data: they are never printed.
#[debug("Verify({} records, {} bytes, identities {:?})", records.len(), self.bytes(), identities)]
#[message(name = "verify", reply = Verdict)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// What the clinics answered in this query: all that the answer may rest on.
    pub records: Vec<Value>,
    /// The aggregated results as they would be shown; null if only the text is.
    #[serde(default)]
    pub results: Value,
    /// The final text.
    #[serde(default)]
    pub text: String,
    /// Whether the caller may see who the patients are.
    #[serde(default)]
    pub identities: Identities,
}

impl Verify {
    /// Bytes of text and values that the rules will read.
    fn bytes(&self) -> usize {
        self.records
            .iter()
            .chain([&self.results])
            .map(|value| bytes(value, 0))
            .sum::<usize>()
            + self.text.len()
    }
}

/// Bytes of the strings in a value; stops counting where a value is nested too deeply to be read at all.
fn bytes(value: &Value, depth: usize) -> usize {
    match value {
        _ if depth > VALUE_DEPTH_MAX => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|v| 1 + bytes(v, depth + 1)).sum(),
        Value::Object(map) => map.iter().map(|(k, v)| k.len() + bytes(v, depth + 1)).sum(),
        _ => 4,
    }
}

/// What the caller's principal and purpose allow it to see of a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identities {
    /// Nothing that identifies a person.
    #[default]
    Withheld,
    /// Names, ids and addresses, but only those that the records hold.
    AsRecorded,
}

/// Whether an answer may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Show the answer; else show the note and nothing else.
    pub safe: bool,
    /// `OK`, or one sentence that says what is wrong. Never repeats personal data.
    pub note: String,
    /// The rule that was broken; none if the answer is safe, or couldn't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
}

impl Verdict {
    fn ok() -> Self {
        Self {
            safe: true,
            note: "OK".to_owned(),
            rule: None,
        }
    }

    fn withheld(rule: Option<Rule>, note: impl Into<String>) -> Self {
        Self {
            safe: false,
            note: note.into(),
            rule,
        }
    }
}

/// A safety rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Rule {
    /// No fabricated doses or treatments.
    R1,
    /// No personal data.
    R2,
    /// No medical advice that only a physician may give.
    R3,
}

/// Levels of nesting that are read; anything deeper isn't checked and so isn't shown.
pub const VALUE_DEPTH_MAX: usize = 64;

/// What a line's key says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    /// Free text, codes, numbers.
    Plain,
    /// A person's name, government id, address, phone, e-mail.
    Identity(Identity),
    /// What was asked, given back: no evidence of anything.
    Echo,
}

/// A kind of personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identity {
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
struct Line {
    pub text: String,
    pub kind: LineKind,
    /// The id of the patient whose record it stands in.
    pub patient: Option<String>,
    /// The medicine's name, where the line is about one.
    pub medicine: Option<String>,
}

/// All lines of `values`, keys included; `None` where one is nested deeper than [`VALUE_DEPTH_MAX`].
fn lines<'a>(values: impl IntoIterator<Item = &'a Value>) -> Option<Vec<Line>> {
    let mut out = Vec::new();
    let top = Place {
        key: "",
        parent: "",
        patient: None,
        depth: 0,
    };
    values
        .into_iter()
        .try_for_each(|value| walk(value, &top, &mut out))?;
    Some(out)
}

#[derive(Clone, Copy)]
struct Place<'a> {
    key: &'a str,
    parent: &'a str,
    patient: Option<&'a str>,
    depth: usize,
}

fn walk(value: &Value, place: &Place<'_>, out: &mut Vec<Line>) -> Option<()> {
    if place.depth > VALUE_DEPTH_MAX {
        return None;
    }
    let deeper = Place {
        depth: place.depth + 1,
        ..*place
    };
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| walk(item, &deeper, out))?,
        Value::Object(map) => object(map, &deeper, out)?,
        scalar => out.extend(written(scalar).map(|text| line(text, place))),
    }
    Some(())
}

/// A text or a number as it is written.
fn written(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The first field whose key is one of `keys`, and its key in letters and digits alone.
fn field<'a>(map: &'a Map<String, Value>, keys: &str) -> Option<(String, &'a Value)> {
    map.iter()
        .map(|(key, value)| (plain_key(key), value))
        .find(|(key, _)| is_one_of(key, keys))
}

fn object(map: &Map<String, Value>, place: &Place<'_>, out: &mut Vec<Line>) -> Option<()> {
    let patient = map
        .get("patient_id")
        .or_else(|| map.get("id"))
        .and_then(Value::as_str)
        .or(place.patient);
    let place = &Place { patient, ..*place };
    if let Some((text, medicine)) = prescription(map, place) {
        out.push(Line {
            text,
            kind: LineKind::Plain,
            patient: patient.map(str::to_owned),
            medicine: Some(medicine),
        });
    }
    for (key, value) in map {
        // A key may carry what a value should: `{"Maria Silva": …}`.
        if key.contains(' ') || key.contains('@') {
            out.push(line(key.clone(), &Place { key: "", ..*place }));
        }
        walk(
            value,
            &Place {
                key,
                parent: place.key,
                ..*place
            },
            out,
        )?;
    }
    // Name parts in fields of their own make a full name together.
    let part = |keys| field(map, keys).and_then(|(_, value)| value.as_str());
    if let (Some(given), Some(family)) = (part(GIVEN_KEYS), part(FAMILY_KEYS)) {
        let full = format!("{given} {family}");
        out.push(Line {
            kind: LineKind::Identity(Identity::Name),
            ..line(full, place)
        });
    }
    Some(())
}

fn line(text: String, place: &Place<'_>) -> Line {
    let kind = kind(place, &text);
    Line {
        text,
        kind,
        patient: place.patient.map(str::to_owned),
        medicine: None,
    }
}

/// An object that holds a medicine and its dose in fields: one line, as a person would write it.
fn prescription(map: &Map<String, Value>, place: &Place<'_>) -> Option<(String, String)> {
    let field = |keys| field(map, keys).and_then(|(key, value)| Some((key, written(value)?)));
    let dosed = field(DOSE_KEYS).is_some() || field(SCHEDULE_KEYS).is_some();
    let in_list = is_medication_key(place.key) || is_medication_key(place.parent);
    let (_, name) = field(MEDICINE_KEYS).or_else(|| {
        if dosed || in_list {
            field("name nome")
        } else {
            None
        }
    })?;
    let mut parts = vec![name.clone()];
    if let Some((key, amount)) = field(DOSE_KEYS) {
        parts.push(amount);
        if let Some(unit) = "mcg mg ml iu g"
            .split(' ')
            .find(|u| key.ends_with(u) && key.len() > u.len())
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
    fold(key)
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect()
}

fn is_medication_key(key: &str) -> bool {
    has_part(
        key,
        "medic drug prescri treatment tratamento remedio therap",
    )
}

fn has_part(key: &str, parts: &str) -> bool {
    let key = plain_key(key);
    parts
        .split_ascii_whitespace()
        .any(|part| key.contains(part))
}

fn kind(place: &Place<'_>, text: &str) -> LineKind {
    if is_redacted(text) {
        return LineKind::Plain;
    }
    let key = plain_key(place.key);
    let is = |keys| is_one_of(&key, keys);
    let identity = match KEYS.get(key.as_str()) {
        _ if is("query specialty action clinic purpose") => return LineKind::Echo,
        Some(identity) => *identity,
        None if is("name nome") && !is_thing(place.parent) => Identity::Name,
        None if is(GIVEN_KEYS) || is(FAMILY_KEYS) => Identity::NamePart,
        None if is("line line1 line2 postcode zip cep")
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

/// Whether what has this key is named without being a person.
fn is_thing(parent: &str) -> bool {
    is_medication_key(parent)
        || has_part(
            parent,
            "condition clinic hospital tool allerg alerg diagnos procedure test lab specialty agent",
        )
}

/// Whether a value says that it was withheld.
fn is_redacted(text: &str) -> bool {
    let letters: String = fold(text)
        .chars()
        .filter(char::is_ascii_alphabetic)
        .collect();
    letters.is_empty() && !text.chars().any(|c| c.is_ascii_digit())
        || is_one_of(
            &letters,
            "redacted withheld hidden omitted removed none unknown xxx",
        )
}

const GIVEN_KEYS: &str = "firstname givenname first given prenome primeironome";
const FAMILY_KEYS: &str = "lastname surname familyname last family sobrenome ultimonome";
const MEDICINE_KEYS: &str = "medication drug medicine medicamento drugname medicationname generic";
const DOSE_KEYS: &str = "dose dosage strength amount posologia dosagem dosemg dosemcg doseg doseml doseiu dosagemg \
    strengthmg quantity dosevalue";
const UNIT_KEYS: &str = "unit units doseunit unidade";
const SCHEDULE_KEYS: &str = "frequency schedule frequencia interval timing sig freq";
const ROUTE_KEYS: &str = "route via viadeadministracao";

/// Reads a pattern that may be written in several lines: line breaks, with the spaces after them, are no part of it.
fn read_pattern(lines: &str) -> Result<Regex, regex::Error> {
    Regex::new(&lines.lines().map(str::trim_start).collect::<String>())
}

/// `text` in NFKC, lower case, without accents and invisible characters. Line breaks stay.
fn fold(text: &str) -> String {
    strip(text).chars().flat_map(char::to_lowercase).collect()
}

/// As [`fold`], but upper and lower case are kept.
fn strip(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // NFKC would glue the fraction to the number before it: "2½" must not become "21/2".
            '½' => out.push_str(" 1/2"),
            '¼' => out.push_str(" 1/4"),
            '¾' => out.push_str(" 3/4"),
            'µ' | 'μ' => out.push('u'),
            'º' | '°' => out.push('o'),
            '–' | '—' | '‒' | '−' | '‐' | '‑' => out.push('-'),
            '’' | '‘' | 'ʼ' => out.push('\''),
            '“' | '”' => out.push('"'),
            '×' => out.push('x'),
            c if is_invisible(c) || is_combining_mark(c) => {}
            c if c.is_ascii() => out.push(c),
            c => out.extend(
                std::iter::once(c)
                    .nfkd()
                    .filter(|d| !is_combining_mark(*d))
                    .map(like_ascii),
            ),
        }
    }
    out
}

/// The plain letter for another Latin one that has no compatibility form, or for one that is only drawn like it: a name
/// can't hide behind a look-alike.
fn like_ascii(c: char) -> char {
    match c {
        'đ' => 'd',
        'æ' => 'a',
        'Æ' => 'A',
        '⁄' | '∕' => '/',
        '，' => ',',
        c => lookalike(c).unwrap_or(c),
    }
}
