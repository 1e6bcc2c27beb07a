//! Statements about medicines in JSON values: each prescription as one text like a person would
//! write it, under whatever keys its fields stand, and all other texts.

mod repeated;

use std::borrow::Cow;
use std::rc::Rc;

use callboard_message::{is_one_of, word_set};
use serde_json::{Map, Value};

use crate::verifier::fold;
use crate::verifier::spans::plain_key;

use super::lexicon::LEXICON;
use super::number::unit_at;
use super::phrase::parse_dose;
use super::schedule::{parse_as_needed, parse_route, parse_schedule};
use super::token::{Text, Token, join_dotted};
use super::word_meanings::flags;
use repeated::RecordedObject;

pub(super) use repeated::{collect_recorded, collect_repeated};

/// Maximum length of a text that may be one field of a prescription, in bytes. A longer one is read
/// by itself.
const FIELD_BYTES_MAX: usize = 64;
/// Maximum number of groups of fields, such as several doses, that one medicine is composed with.
const GROUPS_MAX: usize = 64;

/// Text of a JSON value about medicines.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Statement {
    pub text: String,
    /// Id of the patient whom it concerns, if known.
    pub patient: Option<Rc<str>>,
    /// Name of the medicine that it concerns until it names another.
    pub subject: Option<String>,
    /// Whether it is a prescription composed of fields, which begins with the subject.
    pub is_prescription: bool,
}

impl Statement {
    /// Creates the statement of an answer's text.
    pub fn of_text(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            patient: None,
            subject: None,
            is_prescription: false,
        }
    }
}

/// Collects the statements of a value. Echoes of the request are left out. The value must not be
/// nested deeper than the verifier permits.
pub(super) fn collect_statements(value: &Value) -> Vec<Statement> {
    let mut walk = Walk::new(&[]);
    let loose = walk.value(value, &ValuePlace::default());
    walk.emit(loose, None);
    walk.out
}

#[derive(Clone, Default)]
struct ValuePlace<'v> {
    key: &'v str,
    /// Whether a key such as `medications` is above the value.
    in_list: bool,
    patient: Option<Rc<str>>,
}

/// Field of a prescription, in the order in which a person writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Amount,
    Unit,
    Phrase,
    Schedule,
    Route,
}

type Fields = Vec<(Rank, String)>;

/// Parts of a prescription that aren't composed yet.
#[derive(Clone, Default)]
struct Loose {
    medicines: Vec<String>,
    groups: Vec<Fields>,
    patient: Option<Rc<str>>,
}

struct Walk<'r> {
    out: Vec<Statement>,
    /// Objects that weren't met yet.
    recorded: &'r [RecordedObject<'r>],
}

impl<'r> Walk<'r> {
    fn new(recorded: &'r [RecordedObject<'r>]) -> Self {
        Self {
            out: Vec::new(),
            recorded,
        }
    }

    fn value(&mut self, value: &Value, place: &ValuePlace<'_>) -> Loose {
        match value {
            Value::Object(map) => self.object(map, place),
            Value::Array(items) => self.array(items, place),
            scalar => {
                if let Some(text) = scalar_text(scalar) {
                    self.text(text, place, None);
                }
                Loose::default()
            }
        }
    }

    fn text(&mut self, text: String, place: &ValuePlace<'_>, subject: Option<String>) {
        self.out.push(Statement {
            text,
            patient: place.patient.clone(),
            subject,
            is_prescription: false,
        });
    }

    fn array(&mut self, items: &[Value], place: &ValuePlace<'_>) -> Loose {
        if items
            .iter()
            .all(|item| !item.is_object() && !item.is_array())
        {
            // Values of one prescription may stand one in each item.
            let lines: Vec<String> = items.iter().filter_map(scalar_text).collect();
            if !lines.is_empty() && !is_echo(place.key) {
                self.text(lines.join("\n"), place, None);
            }
            return Loose::default();
        }
        if let Some(map) = named_values(items) {
            return self.object(&map, place);
        }
        let mut all = Loose::default();
        let single = items.len() == 1;
        for item in items {
            let loose = self.value(item, place);
            if single {
                return loose;
            }
            if loose.medicines.is_empty() {
                all.groups.extend(loose.groups);
            } else {
                self.emit(loose, None);
            }
        }
        all.groups.truncate(GROUPS_MAX);
        all
    }

    fn object(&mut self, map: &Map<String, Value>, place: &ValuePlace<'_>) -> Loose {
        if let Some(loose) = self.repeated(map, place) {
            return loose;
        }
        let keys: Vec<Cow<'_, str>> = map.keys().map(|key| plain_key(key)).collect();
        let place = &ValuePlace {
            patient: patient_of(map, &keys, place),
            ..place.clone()
        };
        let mut loose = Loose {
            patient: place.patient.clone(),
            ..Loose::default()
        };
        let mut own: Fields = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        let is_dosed = keys.iter().any(|key| is_one_of!(key, PRESCRIPTION_KEYS));
        self.parallel_arrays(map, place);
        timing_fields(map, &keys, &mut own);
        for ((key, value), plain) in map.iter().zip(&keys) {
            let is_scalar = !value.is_object() && !value.is_array();
            if is_scalar && (is_echo(plain) || is_one_of!(plain, PATIENT_KEYS)) {
                continue;
            }
            let below = ValuePlace {
                key,
                in_list: place.in_list || is_medication_key(plain),
                patient: patient_key(key).or_else(|| place.patient.clone()),
            };
            let named = medicine_key(key, value);
            match scalar_text(value) {
                Some(text) if named.is_some() => {
                    let (name, unit) = named.unwrap_or_default();
                    let has_dose = unit.starts_with(|c: char| c.is_ascii_digit());
                    let value = if has_dose {
                        Rank::Schedule
                    } else {
                        Rank::Amount
                    };
                    let fields = [(value, text), (Rank::Unit, unit)];
                    self.prescription(&name, &fields, &below.patient);
                }
                Some(text) => {
                    let takes_name = is_dosed || below.in_list;
                    match field_kind(plain, &text, value, takes_name) {
                        Field::Medicine => loose.medicines.push(text),
                        Field::Part(rank) => own.push((rank, text)),
                        Field::AmountWithUnit(unit) => {
                            own.push((Rank::Amount, format!("{text} {unit}")))
                        }
                        Field::Text => texts.push(text),
                        Field::Other => {}
                    }
                }
                None => {
                    let inner = self.value(value, &below);
                    match named {
                        Some((name, _)) => self.named(&name, inner, &below.patient),
                        None => {
                            loose.medicines.extend(inner.medicines);
                            loose.groups.extend(inner.groups);
                        }
                    }
                }
            }
        }
        take_unknown_name(&mut texts, &own, &mut loose);
        self.free_texts(texts, &loose, place);
        unknown_amount(map, &mut own);
        join_own(own, &mut loose.groups);
        loose.groups.truncate(GROUPS_MAX);
        self.settle(loose, place)
    }

    /// Emits what is complete; returns a lone medicine or lone fields for the object above.
    fn settle(&mut self, loose: Loose, place: &ValuePlace<'_>) -> Loose {
        let is_whole =
            loose.medicines.len() > 1 || loose.medicines.len() == 1 && !loose.groups.is_empty();
        if is_whole {
            self.emit(loose, place.patient.clone());
            return Loose::default();
        }
        loose
    }

    /// Emits a statement for each free text of an object, about its medicine if there is one.
    fn free_texts(&mut self, texts: Vec<String>, loose: &Loose, place: &ValuePlace<'_>) {
        let subject = match loose.medicines.as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        };
        for text in texts {
            self.text(text, place, subject.clone());
        }
    }

    /// Emits the prescriptions of a medicine that is the key of a value.
    fn named(&mut self, name: &str, inner: Loose, patient: &Option<Rc<str>>) {
        let mut loose = inner;
        loose.medicines.insert(0, name.to_owned());
        loose.medicines.truncate(1);
        self.emit(loose, patient.clone());
    }

    fn emit(&mut self, loose: Loose, patient: Option<Rc<str>>) {
        let patient = loose.patient.clone().or(patient);
        match loose.medicines.as_slice() {
            [] => {
                for group in &loose.groups {
                    self.prescription("", group, &patient);
                }
            }
            [one] if !loose.groups.is_empty() => {
                for group in &loose.groups {
                    self.prescription(one, group, &patient);
                }
            }
            many => {
                for medicine in many {
                    self.prescription(medicine, &[], &patient);
                }
                for group in &loose.groups {
                    self.prescription("", group, &patient);
                }
            }
        }
    }

    fn prescription(
        &mut self,
        medicine: &str,
        fields: &[(Rank, String)],
        patient: &Option<Rc<str>>,
    ) {
        let mut sorted: Vec<&(Rank, String)> = fields.iter().collect();
        sorted.sort_by_key(|(rank, _)| *rank);
        let mut text = medicine.to_owned();
        for (_, field) in sorted.into_iter().filter(|(_, field)| !field.is_empty()) {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(field);
        }
        if text.is_empty() {
            return;
        }
        self.out.push(Statement {
            text,
            patient: patient.clone(),
            subject: (!medicine.is_empty()).then(|| medicine.to_owned()),
            is_prescription: !medicine.is_empty(),
        });
    }

    /// Emits the rows of arrays that stand side by side: names, doses, and so on.
    fn parallel_arrays(&mut self, map: &Map<String, Value>, place: &ValuePlace<'_>) {
        let columns: Vec<Vec<String>> = map
            .values()
            .filter_map(Value::as_array)
            .map(|items| items.iter().filter_map(scalar_text).collect::<Vec<_>>())
            .filter(|column| !column.is_empty())
            .collect();
        let is_name = |column: &&Vec<String>| column.iter().all(|name| is_medicine_name(name));
        let Some(names) = columns.iter().find(is_name) else {
            return;
        };
        let others: Vec<&Vec<String>> = columns
            .iter()
            .filter(|c| c.len() == names.len() && !is_name(c))
            .collect();
        if others.is_empty() || names.len() < 2 {
            return;
        }
        for (n, name) in names.iter().enumerate() {
            let fields: Fields = others
                .iter()
                .map(|c| (value_rank(&c[n]), c[n].clone()))
                .collect();
            self.prescription(name, &fields, &place.patient);
        }
    }
}

/// Returns the fields of an array whose items are a key and a value each: `[{"key": "dose", "value":
/// "50 mg"}]`; `None` for other arrays.
fn named_values(items: &[Value]) -> Option<Map<String, Value>> {
    let field = |map: &Map<String, Value>, is_named: fn(&str) -> bool| {
        let found = map.iter().find(|(key, _)| is_named(&plain_key(key)));
        found.map(|(_, value)| value.clone())
    };
    let mut fields = Map::new();
    for item in items {
        let map = item.as_object().filter(|map| map.len() == 2)?;
        let key = field(map, |key| {
            is_one_of!(
                key,
                "key k field attribute attr property prop label campo chave"
            )
        })?;
        let value = field(map, |key| is_one_of!(key, "value v val valor"))?;
        fields.insert(key.as_str()?.to_owned(), value);
    }
    (fields.len() > 1 && fields.len() == items.len()).then_some(fields)
}

/// Adds fields of the object itself to those of the objects in it: to the only group, or as a group
/// of their own.
fn join_own(own: Fields, groups: &mut Vec<Fields>) {
    if own.is_empty() {
        return;
    }
    match groups.as_mut_slice() {
        [one] => one.extend(own),
        _ => groups.push(own),
    }
}

enum Field {
    Medicine,
    Part(Rank),
    /// Amount under a key that ends with its unit: `dose_mg`.
    AmountWithUnit(&'static str),
    /// Free text.
    Text,
    Other,
}

fn field_kind(key: &str, text: &str, value: &Value, takes_name: bool) -> Field {
    if is_one_of!(key, MEDICINE_KEYS) || takes_name && is_one_of!(key, NAME_KEYS) {
        return if value.is_string() {
            Field::Medicine
        } else {
            Field::Other
        };
    }
    if is_one_of!(key, DOSE_KEYS) {
        let units = ["mcg", "mg", "ml", "iu", "g"];
        let unit = units
            .into_iter()
            .find(|unit| key.ends_with(unit) && key.len() > unit.len() && !value.is_string());
        return unit.map_or(Field::Part(Rank::Amount), Field::AmountWithUnit);
    }
    if is_one_of!(key, UNIT_KEYS) {
        return Field::Part(Rank::Unit);
    }
    if is_one_of!(key, SCHEDULE_KEYS) {
        return match value {
            Value::Number(_) => Field::Other,
            _ => Field::Part(Rank::Schedule),
        };
    }
    if is_one_of!(key, ROUTE_KEYS) {
        return Field::Part(Rank::Route);
    }
    if !value.is_string() {
        return Field::Other;
    }
    if is_medicine_name(text) {
        return Field::Medicine;
    }
    match phrase_rank(text) {
        Some(rank) => Field::Part(rank),
        None => Field::Text,
    }
}

/// Returns the rank of a text that is nothing but a part of a prescription; `None` for other texts.
fn phrase_rank(text: &str) -> Option<Rank> {
    if text.len() > FIELD_BYTES_MAX {
        return None;
    }
    let folded = fold(text);
    let joined = join_dotted(&folded);
    let read = Text::read(&joined);
    let (tokens, mut at, mut rank) = (&read.tokens, 0, None);
    while at < tokens.len() {
        let rest = &tokens[at..];
        let (found, taken) = if let Some(found) = parse_schedule(rest) {
            (Rank::Schedule, found.taken)
        } else if let Some(taken) = parse_as_needed(rest) {
            (Rank::Schedule, taken)
        } else if let Some(found) = parse_dose(rest) {
            (Rank::Phrase, found.taken)
        } else if let Some((_, taken)) = parse_route(rest) {
            (Rank::Route, taken)
        } else if let Some((.., taken)) = unit_at(rest, 0) {
            (Rank::Unit, taken)
        } else if at > 0 && rest[0].sign().is_some() || rest.len() > 1 && rest[0].is(flags::FILLER)
        {
            at += 1;
            continue;
        } else {
            return None;
        };
        rank.get_or_insert(found);
        at += taken;
    }
    rank
}

/// Returns the rank of a value in a column of values.
fn value_rank(text: &str) -> Rank {
    let is_number = text
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '.' | ','));
    if is_number {
        return Rank::Amount;
    }
    phrase_rank(text).unwrap_or(Rank::Schedule)
}

/// Takes the only short text of an object with a dose for the name of its medicine, if none of its
/// fields names a known one.
fn take_unknown_name(texts: &mut Vec<String>, own: &Fields, loose: &mut Loose) {
    let is_dosed = own
        .iter()
        .any(|(rank, _)| matches!(rank, Rank::Amount | Rank::Phrase))
        && own
            .iter()
            .any(|(rank, _)| matches!(rank, Rank::Unit | Rank::Schedule | Rank::Route));
    let is_short =
        |text: &str| text.len() <= FIELD_BYTES_MAX && text.split_whitespace().count() <= 3;
    if is_dosed
        && loose.medicines.is_empty()
        && loose.groups.is_empty()
        && texts.len() == 1
        && is_short(&texts[0])
    {
        loose.medicines.append(texts);
    }
}

/// Adds the only number under an unknown key as the amount, if the object has a unit but no amount.
fn unknown_amount(map: &Map<String, Value>, own: &mut Fields) {
    let has = |rank: Rank| own.iter().any(|(r, _)| *r == rank);
    if !has(Rank::Unit) || has(Rank::Amount) || has(Rank::Phrase) {
        return;
    }
    let is_number = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit())
            && text
                .chars()
                .all(|c| c.is_ascii_digit() || matches!(c, '.' | ',' | '/'))
    };
    let mut numbers = map
        .values()
        .filter_map(scalar_text)
        .filter(|text| is_number(text));
    if let (Some(number), None) = (numbers.next(), numbers.next()) {
        own.push((Rank::Amount, number));
    }
}

/// Adds the schedule that several fields of an object, whose plain keys are `keys`, state in numbers: `times_per_day`, `interval_hours`, or
/// `frequency`, `period` and `period_unit`.
fn timing_fields(map: &Map<String, Value>, keys: &[Cow<'_, str>], own: &mut Fields) {
    let find = |is_named: fn(&str) -> bool| {
        let found = keys.iter().position(|key| is_named(key))?;
        map.values().nth(found)
    };
    let number = |is_named| find(is_named).and_then(Value::as_f64).filter(|n| *n > 0.0);
    if let Some(n) = number(|key| {
        is_one_of!(
            key,
            "timesperday timesaday perday dosesperday vezesaodia vezespordia"
        )
    }) {
        own.push((Rank::Schedule, format!("{n} times a day")));
    }
    if let Some(n) = number(|key| {
        is_one_of!(
            key,
            "intervalhours everyhours hours intervalh qh intervalohoras"
        )
    }) {
        own.push((Rank::Schedule, format!("every {n} hours")));
    }
    let unit = find(|key| matches!(key, "periodunit" | "periodunits"));
    match (
        number(|key| matches!(key, "frequency" | "frequencia" | "freq")),
        unit.and_then(Value::as_str),
    ) {
        (Some(n), Some(unit)) => {
            let period = number(|key| key == "period").unwrap_or(1.0);
            own.push((Rank::Schedule, format!("{n} times per {period} {unit}")));
        }
        (Some(n), None) => own.push((Rank::Schedule, format!("{n} times a day"))),
        _ => {}
    }
}

/// Returns the text of a JSON string or number; `None` for other values. A number has never three
/// decimals, so that they aren't taken for thousands.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => {
            let mut text = number.to_string();
            if text
                .split_once('.')
                .is_some_and(|(_, decimals)| decimals.len() == 3)
            {
                text.push('0');
            }
            Some(text)
        }
        _ => None,
    }
}

fn is_medicine_name(text: &str) -> bool {
    text.len() <= FIELD_BYTES_MAX && names_medicine(text)
}

/// Returns whether a text is a medicine's name, also with its form: "fentanyl patch".
fn names_medicine(text: &str) -> bool {
    let folded = fold(text);
    let read = Text::read(&folded);
    let Some(found) = LEXICON.find(&read.tokens) else {
        return false;
    };
    let is_form = |t: &Token<'_>| {
        let info = t.info();
        t.sign().is_some()
            || info.unit.is_some_and(|(kind, _)| kind.is_count())
            || info.route.is_some()
            || t.is_word(word_set!("xr er sr cr la xl retard hcl sodium potassium"))
    };
    read.tokens[found.taken..].iter().all(is_form)
}

/// Returns the medicine that a key names, and the unit or dose after it, if any: `losartan`,
/// `losartan_mg`, `losartan_50_mg`. `None` if it names none.
fn medicine_key(key: &str, value: &Value) -> Option<(String, String)> {
    if is_usual_key(key)
        || key.len() > FIELD_BYTES_MAX
        || is_one_of!(&key.to_ascii_lowercase(), MEDICINE_KEYS)
    {
        return None;
    }
    let spaced = fold(&key.replace(['_', '-', '.'], " "));
    let first = spaced
        .split(|c: char| !c.is_alphabetic())
        .find(|word| !word.is_empty());
    if !LEXICON.has_beginning(first.unwrap_or_default()) {
        return None;
    }
    let text = Text::read(&spaced);
    // `iron: 60` may be a laboratory value, `iron: {"qty": 60, "unit": "mg"}` is checked by its unit.
    let is_named = value.is_object() || value.is_string();
    let found = LEXICON
        .find(&text.tokens)
        .filter(|found| !found.is_weak || is_named)?;
    let (named, rest) = text.tokens.split_at(found.taken);
    let is_unit = unit_at(rest, 0).is_some_and(|(.., taken)| taken == rest.len());
    let is_dose = parse_dose(rest).is_some_and(|found| found.taken == rest.len());
    let join = |tokens: &[Token<'_>]| tokens.iter().map(|t| t.text).collect::<Vec<_>>().join(" ");
    (rest.is_empty() || is_unit || is_dose).then(|| (join(named), join(rest)))
}

/// Returns whether a key is one of the usual ones of records, none of which names a medicine.
fn is_usual_key(key: &str) -> bool {
    is_one_of!(key, DOSE_KEYS)
        || is_one_of!(key, UNIT_KEYS)
        || is_one_of!(key, SCHEDULE_KEYS)
        || is_one_of!(key, ROUTE_KEYS)
        || is_one_of!(key, NAME_KEYS)
        || is_one_of!(key, "patient patient_id condition medications notes id age")
}

/// Returns the id of a patient that is a key: `{"CARD-001": {…}}`.
fn patient_key(key: &str) -> Option<Rc<str>> {
    let (letters, digits) = key.split_once(['-', '_'])?;
    let is_id = letters.len() >= 2
        && letters.chars().all(char::is_alphabetic)
        && digits.len() >= 3
        && digits.bytes().all(|b| b.is_ascii_digit());
    is_id.then(|| Rc::from(key))
}

/// Returns the id of the patient whom an object with these plain keys concerns: its own, or that of the objects around.
/// A plain `id`, or any value that looks like an id, counts only outside of lists of medicines and
/// of a patient's object.
fn patient_of(
    map: &Map<String, Value>,
    keys: &[Cow<'_, str>],
    place: &ValuePlace<'_>,
) -> Option<Rc<str>> {
    let own = keys
        .iter()
        .position(|key| is_one_of!(key, PATIENT_KEYS))
        .and_then(|at| map.values().nth(at))
        .and_then(scalar_text);
    let plain = || match place.in_list || place.patient.is_some() {
        true => None,
        false => map.get("id").and_then(Value::as_str).map(str::to_owned),
    };
    let by_form = || match place.in_list || place.patient.is_some() {
        true => None,
        false => map
            .values()
            .filter_map(Value::as_str)
            .find(|text| patient_key(text).is_some())
            .map(str::to_owned),
    };
    own.or_else(plain)
        .or_else(by_form)
        .map(Rc::from)
        .or_else(|| place.patient.clone())
}

fn is_echo(plain: &str) -> bool {
    is_one_of!(plain, "query specialty action clinic purpose question")
}

/// Returns whether a value has an echo of the request at any depth.
pub(super) fn has_echo(value: &Value) -> bool {
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(key, inner)| is_echo(&plain_key(key)) || has_echo(inner)),
        Value::Array(items) => items.iter().any(has_echo),
        _ => false,
    }
}

/// Returns whether a value consists of lists of numbers and the like, without a name.
pub(super) fn is_bare(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.iter().all(is_bare),
        Value::String(_) => false,
        _ => true,
    }
}

fn is_medication_key(plain: &str) -> bool {
    const PARTS: [&str; 10] = [
        "medic",
        "meds",
        "drug",
        "prescri",
        "treatment",
        "tratamento",
        "remedio",
        "therap",
        "terapia",
        "rx",
    ];
    let key = plain.as_bytes();
    (0..key.len()).any(|at| {
        let begins = |part: &&str| key[at..].starts_with(part.as_bytes());
        matches!(key[at], b'm' | b'd' | b'p' | b't' | b'r') && PARTS.iter().any(begins)
    })
}

const PATIENT_KEYS: &str = "patientid pid patient paciente pacienteid idpaciente iddopaciente subject subjectid patientref";
const MEDICINE_KEYS: &str = "medication drug medicine medicamento drugname medicationname generic genericname substance \
    remedio farmaco product drogas droga active activeingredient principioativo";
const NAME_KEYS: &str = "name nome display title label what";
const DOSE_KEYS: &str = "dose dosage strength amount posologia dosagem dosemg dosemcg doseg doseml doseiu dosagemg \
    strengthmg dosevalue value valor concentration concentracao potency potencia dosequantity mg mcg";
/// Keys by which an object with a `name` is a prescription.
const PRESCRIPTION_KEYS: &str = "dose dosage strength posologia dosagem dosemg dosemcg frequency schedule frequencia \
    sig freq doseunit route via";
const UNIT_KEYS: &str =
    "unit units doseunit unidade unidades uom doseunits unitofmeasure unitmeasure";
const SCHEDULE_KEYS: &str = "frequency schedule frequencia interval timing sig freq intervalo horario horarios when \
    directions instructions";
const ROUTE_KEYS: &str =
    "route via viadeadministracao administrationroute routeofadministration viaadministracao";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(value: &Value) -> Vec<String> {
        collect_statements(value)
            .into_iter()
            .map(|s| s.text)
            .collect()
    }

    /// Goal: a prescription is one text whatever its fields are called and nested. Method: shapes.
    #[test]
    fn shapes_of_prescriptions() {
        let expect = "Losartan 50 mg once daily oral";
        for value in [
            json!({"name": "Losartan", "dose": 50, "unit": "mg", "frequency": "once daily", "route": "oral"}),
            json!({"drug": "Losartan", "dose": "50 mg", "frequency": "once daily", "route": "oral"}),
            json!({"what": "Losartan", "howmuch": 50, "u": "mg", "rhythm": "once daily", "way": "oral"}),
            json!({"medication": {"name": "Losartan"}, "dosage": {"value": 50, "unit": "mg", "frequency": "once daily", "route": "oral"}}),
            json!({"Losartan": {"dose": 50, "unit": "mg", "frequency": "once daily", "route": "oral"}}),
            json!([{"Losartan": "50 mg once daily oral"}]),
            json!({"names": ["Losartan", "Aspirin"], "doses": ["50 mg once daily oral", "81 mg"]}),
        ] {
            assert!(
                texts(&value)
                    .iter()
                    .any(|text| text.eq_ignore_ascii_case(expect)),
                "{value}: {:?}",
                texts(&value)
            );
        }
    }

    /// Goal: the usual keys name no medicine, and those of medicines are found. Method: all of them as
    /// they are and in capitals, which aren't taken for usual ones.
    #[test]
    fn usual_keys() {
        let lists = [DOSE_KEYS, UNIT_KEYS, SCHEDULE_KEYS, ROUTE_KEYS, NAME_KEYS];
        let keys = lists.iter().flat_map(|list| list.split_ascii_whitespace());
        for key in keys.chain("patient condition medications notes id age".split(' ')) {
            assert!(is_usual_key(key), "{key}");
            let found = medicine_key(&key.to_uppercase(), &json!({}));
            assert_eq!(found, None, "{key}");
        }
        assert!(!is_usual_key("losartan") && medicine_key("losartan", &json!("50 mg")).is_some());
        assert!(is_medication_key("currentmeds") && !is_medication_key("medium"));
    }

    /// Goal: other values are no prescriptions. Method: an age, a birth date, echoes.
    #[test]
    fn other_values() {
        let value = json!({"patient_id": "CARD-001", "age": 61, "weight": 80, "condition": "Angina", "query": "losartan 50 mg"});
        let all = collect_statements(&value);
        assert_eq!(
            all.iter().map(|s| s.text.as_str()).collect::<Vec<_>>(),
            ["Angina"]
        );
        assert_eq!(all[0].patient.as_deref(), Some("CARD-001"));
    }
}
