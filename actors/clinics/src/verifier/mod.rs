//! Verifier agent: decides by three rules whether an answer may be shown, without a model.
//!
//! - **R1** no dose and no treatment that isn't in the clinics' answers;
//! - **R2** no personal name, id number, birth date, address or contact; a caller with the right to
//!   it sees those in the records;
//! - **R3** no diagnosing, no prescribing, no advice against seeing a doctor.
//!
//! Each rule reads the aggregated results and the final text; R1 and R3 skip echoes of the request,
//! such as the question, in the text only quoted ones. Data that is too long or nested too deeply
//! counts as unsafe.

mod identity;
mod medicine;
mod scope;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use callboard_macros::Message;
use callboard_message::text::{WordTable, is_invisible, is_one_of, latin_lookalike, word_table};
use callboard_runtime::{Agent, AgentProfile, Context, Handlers, SyncHandler};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use identity::KnownIdentities;
use medicine::RecordedMedicines;

/// Maximum size of one verification, in bytes: the text, and the strings and keys of results and
/// records; other values count a few bytes each. A larger one counts as unsafe.
pub const VERIFY_BYTES_MAX: usize = 4 << 20;

/// Verifier agent: handles [`Verify`].
#[derive(Debug, Default)]
pub struct Verifier {
    verified: u64,
    withheld: u64,
}

impl Agent for Verifier {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Verify>();
    }

    /// Returns the agent's profile: it never runs on the caller's thread, because a verification
    /// may take long.
    fn profile() -> AgentProfile {
        AgentProfile::default().without_inline()
    }

    fn observe(&self) -> Value {
        json!({"verified": self.verified, "withheld": self.withheld})
    }
}

impl SyncHandler<Verify> for Verifier {
    fn handle(&mut self, message: Verify, _cx: &mut Context) -> Verdict {
        let verdict = message.verdict();
        self.verified += 1;
        self.withheld += u64::from(!verdict.safe);
        verdict
    }
}

impl Verify {
    /// Returns the verdict: the first broken rule in the order R1, R2, R3, if any. An input above a
    /// limit is unsafe without a rule. The same input always gives the same verdict. The time grows
    /// with the product of the sizes of records and answer, and with the square of the records'
    /// size.
    pub fn verdict(&self) -> Verdict {
        if self.bytes() > VERIFY_BYTES_MAX {
            return Verdict::withheld(None, "Response is too long to be verified.");
        }
        let too_deep = || Verdict::withheld(None, "Response is nested too deeply to be verified.");
        self.apply_rules().unwrap_or_else(too_deep)
    }

    /// Applies the rules. Returns `None` if a value is nested deeper than [`VALUE_DEPTH_MAX`].
    fn apply_rules(&self) -> Option<Verdict> {
        let recorded = text_spans(&self.records)?;
        let shown = text_spans([&self.results])?;
        let text = self.without_echoes(&recorded);
        let broken = check_medicines(&recorded, &shown, &text)
            .or_else(|| self.check_identity(&recorded, &shown))
            .or_else(|| check_advice(&recorded, &shown, &text));
        Some(broken.unwrap_or_else(Verdict::safe))
    }

    /// Returns the answer's text without quoted echoes of the request, as the records hold them,
    /// since these state no facts.
    fn without_echoes(&self, recorded: &[TextSpan]) -> String {
        let echoes = recorded
            .iter()
            .filter(|l| l.kind == SpanKind::Echo && !l.text.is_empty());
        echoes.fold(self.text.clone(), |text, echo| {
            let quoted = [('"', '"'), ('\'', '\''), ('“', '”'), ('`', '`')];
            quoted.iter().fold(text, |text, (open, close)| {
                text.replace(&format!("{open}{}{close}", echo.text), "")
            })
        })
    }

    fn check_identity(&self, recorded: &[TextSpan], shown: &[TextSpan]) -> Option<Verdict> {
        let known = KnownIdentities::new(recorded);
        let nothing = KnownIdentities::default();
        let (withheld, allowed) = match self.identities {
            Identities::Withheld => (&known, &nothing),
            Identities::AsRecorded => (&nothing, &known),
        };
        let field = shown.iter().find_map(|line| match line.kind {
            SpanKind::Identity(kind) if !allowed.covers(&line.text) => Some(kind),
            _ => None,
        });
        let in_lines = || {
            shown
                .iter()
                .find_map(|line| identity::find_identity(&line.text, withheld, allowed))
        };
        let kind = field
            .or_else(in_lines)
            .or_else(|| identity::find_identity(&self.text, withheld, allowed))?;
        Some(Verdict::withheld(
            Some(Rule::R2),
            format!(
                "Response exposes personal data ({}).",
                identity_description(kind)
            ),
        ))
    }
}

fn check_medicines(recorded: &[TextSpan], shown: &[TextSpan], text: &str) -> Option<Verdict> {
    let grounds = RecordedMedicines::new(recorded);
    let in_lines =
        asserted_spans(shown).find_map(|line| grounds.check(&line.text, line.patient.as_deref()));
    let note = in_lines.or_else(|| grounds.check_about_patients(text))?;
    Some(Verdict::withheld(Some(Rule::R1), note))
}

fn check_advice(recorded: &[TextSpan], shown: &[TextSpan], text: &str) -> Option<Verdict> {
    let records = scope::RecordedText::new(asserted_spans(recorded).map(|line| fold(&line.text)));
    let in_lines = asserted_spans(shown).find_map(|line| scope::find_advice(&line.text, &records));
    let found = in_lines.or_else(|| scope::find_advice(text, &records))?;
    let note = format!("Response recommends an action outside the agent's scope ({found}).");
    Some(Verdict::withheld(Some(Rule::R3), note))
}

/// Returns the text spans that state facts, which excludes echoes of the request.
fn asserted_spans(lines: &[TextSpan]) -> impl Iterator<Item = &TextSpan> {
    lines.iter().filter(|line| line.kind != SpanKind::Echo)
}

fn identity_description(kind: IdentityKind) -> &'static str {
    match kind {
        IdentityKind::Name | IdentityKind::NamePart => "a person's name",
        IdentityKind::Id => "an identification number",
        IdentityKind::Address => "an address",
        IdentityKind::Phone => "a phone number",
        IdentityKind::Email => "an e-mail address",
        IdentityKind::BirthDate => "a date of birth",
    }
}

/// Checks the answer to a question before a person sees it: medicines and doses against the
/// records, personal data, medical advice.
#[derive(derive_more::Debug, Clone, Message, Serialize, Deserialize, JsonSchema)]
// Records and text hold patient data: they are never printed.
#[debug("Verify({} records, {} bytes, identities {:?})", records.len(), self.bytes(), identities)]
#[message(name = "verify", reply = Verdict)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// Answers of the clinics to this question: the only facts that the answer may state.
    pub records: Vec<Value>,
    /// Aggregated results as they would be shown; `null` if only the text is shown.
    #[serde(default)]
    pub results: Value,
    /// Final text of the answer.
    #[serde(default)]
    pub text: String,
    /// Whether the caller may see patients' identities.
    #[serde(default)]
    pub identities: Identities,
}

impl Verify {
    /// Returns the size compared with [`VERIFY_BYTES_MAX`], in bytes: that of the text, and those
    /// of results and records as [`text_bytes`] counts them.
    fn bytes(&self) -> usize {
        self.records
            .iter()
            .chain([&self.results])
            .map(|value| text_bytes(value, 0))
            .sum::<usize>()
            + self.text.len()
    }
}

/// Returns the total size of the strings and keys in a value, in bytes; numbers, booleans and
/// `null` count as 4 bytes each, and each item of an array as one more. Values nested deeper than
/// [`VALUE_DEPTH_MAX`] aren't counted.
fn text_bytes(value: &Value, depth: usize) -> usize {
    match value {
        _ if depth > VALUE_DEPTH_MAX => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|v| 1 + text_bytes(v, depth + 1)).sum(),
        Value::Object(map) => map
            .iter()
            .map(|(k, v)| k.len() + text_bytes(v, depth + 1))
            .sum(),
        _ => 4,
    }
}

/// Visibility of patients' identities for a caller, by its principal and purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identities {
    /// No identifying data may be shown.
    #[default]
    Withheld,
    /// Names, ids and addresses may be shown, but only those that the records hold.
    AsRecorded,
}

/// Result of a verification: whether an answer may be shown, and the reason if not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Whether the answer may be shown; if not, only the note may.
    pub safe: bool,
    /// `OK`, or one sentence with the defect. Never repeats personal data.
    pub note: String,
    /// Broken rule; `None` if the answer is safe, or was too long or too deeply nested to be
    /// checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
}

impl Verdict {
    fn safe() -> Self {
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

/// Safety rule of the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Rule {
    /// No fabricated doses or treatments.
    R1,
    /// No personal data.
    R2,
    /// No medical advice that only a physician may give.
    R3,
}

/// Maximum nesting depth of a JSON value. A deeper value can't be checked, so the answer counts as
/// unsafe.
pub const VALUE_DEPTH_MAX: usize = 64;

/// Kind of a text span, derived from its key, the key of the object around it and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpanKind {
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
enum IdentityKind {
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
struct TextSpan {
    pub text: String,
    pub kind: SpanKind,
    /// Presumed id of the patient, of the innermost object that has one: its text field
    /// `patient_id` or, without such a field, its `id`, even if that is the id of a medicine.
    /// `None` if none has.
    pub patient: Option<String>,
    /// Name of the medicine, if the text is composed of the fields of a prescription; else `None`,
    /// also for free text about one.
    pub medicine: Option<String>,
}

/// Returns the text spans of all strings and numbers, of keys with a space or `@`, and of each
/// prescription and full name that an object's fields make up. `None` if a value is nested deeper
/// than [`VALUE_DEPTH_MAX`].
fn text_spans<'a>(values: impl IntoIterator<Item = &'a Value>) -> Option<Vec<TextSpan>> {
    let mut out = Vec::new();
    let top = ValuePosition {
        key: "",
        parent: "",
        patient: None,
        depth: 0,
    };
    values
        .into_iter()
        .try_for_each(|value| collect_spans(value, &top, &mut out))?;
    Some(out)
}

#[derive(Clone, Copy)]
struct ValuePosition<'a> {
    key: &'a str,
    parent: &'a str,
    patient: Option<&'a str>,
    depth: usize,
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
    if let Some((text, medicine)) = prescription_text(map, place) {
        out.push(TextSpan {
            text,
            kind: SpanKind::Plain,
            patient: patient.map(str::to_owned),
            medicine: Some(medicine),
        });
    }
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
    let kind = span_kind(place, &text);
    TextSpan {
        text,
        kind,
        patient: place.patient.map(str::to_owned),
        medicine: None,
    }
}

/// Returns the prescription that an object describes, as one text like a person would write it, and
/// the name of its medicine. `None` if the object describes none: it has neither a key for a
/// medicine, nor a `name` together with a dose, a schedule or a key such as `medications` above it.
/// A dose isn't required.
fn prescription_text(
    map: &Map<String, Value>,
    place: &ValuePosition<'_>,
) -> Option<(String, String)> {
    let field =
        |keys| find_field(map, keys).and_then(|(key, value)| Some((key, literal_text(value)?)));
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

fn span_kind(place: &ValuePosition<'_>, text: &str) -> SpanKind {
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
/// a word such as `hidden` or `none`, whatever digits stand beside it, or any text that has neither
/// an ASCII letter in folded form nor an ASCII digit, for example `***`, but also a Chinese name.
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

/// Compiles a regular expression that is written in several lines. Line breaks and the spaces after
/// them are removed first.
fn read_pattern(lines: &str) -> Result<Regex, regex::Error> {
    Regex::new(&lines.lines().map(str::trim_start).collect::<String>())
}

/// Returns a text in folded form: compatibility form, lower case, without accents and invisible
/// characters; look-alike letters, dashes, quotation marks and signs such as `½` as ASCII. Line
/// breaks are kept.
fn fold(text: &str) -> String {
    remove_disguises(text)
        .chars()
        .flat_map(char::to_lowercase)
        .collect()
}

/// Normalizes a text as [`fold`] does, but keeps upper and lower case.
fn remove_disguises(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // NFKC would join the fraction to the number before it: "2½" must not become "21/2".
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
                    .map(lookalike_ascii),
            ),
        }
    }
    out
}

/// Returns the ASCII character that `c` looks like, for characters that normalisation doesn't
/// convert, so that look-alike letters can't hide a name. Other characters are returned unchanged.
fn lookalike_ascii(c: char) -> char {
    match c {
        'đ' => 'd',
        'æ' => 'a',
        'Æ' => 'A',
        '⁄' | '∕' => '/',
        '，' => ',',
        c => latin_lookalike(c).unwrap_or(c),
    }
}
