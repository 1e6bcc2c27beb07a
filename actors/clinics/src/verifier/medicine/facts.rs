//! Facts about medicines in the records, and the check of an answer against them.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::{HashMap, HashSet};
use serde_json::Value;

use crate::verifier::fold;

use super::claims::{FoundClaims, Surroundings, collect_claims};
use super::compare::{daily_total, has_route, is_same_total, supports};
use super::embedded::split_json;
use super::lexicon::{LEXICON, stem};
use super::model::{Amounts, Claim, Dose, Stance, Substance};
use super::part_memo::PartMemo;
use super::parts::{Names, OtherNames};
use super::patient_facts::PatientFacts;
use super::patients::{PatientGroups, PatientIds, id_key};
use super::plausible::is_implausible;
use super::statements::{Statement, collect_recorded, collect_repeated, collect_statements};
use super::token::{Text, join_dotted};
use super::treatment::{Treatments, named_treatments, unrecorded_treatments};

/// Maximum number of notes of one answer.
pub(in crate::verifier) const NOTES_MAX: usize = 8;
/// Maximum number of different recorded claims with which one claim is compared. If none of the
/// first ones supports it, it counts as unsupported.
const CANDIDATES_MAX: usize = 128;
/// Maximum number of claims before a claim of a text to which it is compared, so that of equal ones
/// one is checked.
const EQUAL_CLAIMS_MAX: usize = 16;

/// Returns the notes about what results and text state about medicines and treatments, but no
/// record: at most [`NOTES_MAX`], without repetitions.
pub(in crate::verifier) fn find_fabrications(
    records: &[Value],
    results: &Value,
    text: &str,
) -> Vec<String> {
    let (recorded, objects) = collect_recorded(records);
    let (facts, mut groups) = RecordedFacts::read(records, recorded);
    let mut notes = NoteList::default();
    let (values, around) = split_json(text);
    let mut stated: Vec<Statement> = values.iter().flat_map(collect_statements).collect();
    stated.push(Statement::of_text(&around));
    for statements in [collect_repeated(results, &objects), stated] {
        for statement in &statements {
            if notes.is_full() {
                break;
            }
            facts.check_statement(statement, &mut groups, &mut notes);
        }
    }
    notes.all
}

/// Notes without repetitions.
#[derive(Default)]
struct NoteList {
    all: Vec<String>,
}

impl NoteList {
    fn is_full(&self) -> bool {
        self.all.len() >= NOTES_MAX
    }

    fn add(&mut self, note: String) {
        if !self.is_full() && !self.all.contains(&note) {
            self.all.push(note);
        }
    }
}

/// Returns the note about a dose, schedule or route that no record has. It names the medicine, if
/// one is given.
fn dosage_note(medicine: Option<String>) -> String {
    let of = medicine.map_or_else(String::new, |medicine| format!(" for {medicine}"));
    format!("Response contains fabricated dosage{of}.")
}

/// Returns the note about a dose beyond every plausible range.
fn implausible_note(medicine: Option<String>) -> String {
    let of = medicine.map_or_else(String::new, |medicine| format!(" of {medicine}"));
    format!("Response contains a dose{of} outside the plausible range.")
}

/// Returns the note about a medicine or treatment that no record has.
fn treatment_note(treatment: &str) -> String {
    format!("Response contains a treatment plan absent from clinic data: {treatment}.")
}

/// Statement, split into tokens.
struct ReadStatement<'s> {
    statement: &'s Statement,
    folded: &'s str,
    text: Text<'s>,
}

impl<'s> ReadStatement<'s> {
    fn new(statement: &'s Statement, folded: &'s str) -> Self {
        Self {
            statement,
            folded,
            text: Text::read(folded),
        }
    }
}

/// Returns the text of a statement in folded form, without dots of abbreviations.
fn fold_statement(statement: &Statement) -> String {
    let folded = fold(&statement.text);
    match join_dotted(&folded) {
        Cow::Borrowed(_) => folded,
        Cow::Owned(joined) => joined,
    }
}

/// Statement of a record whose claims are the same wherever it stands.
struct KnownStatement {
    /// Index of the statement.
    index: usize,
    /// Indexes of its claims.
    claims: Range<usize>,
}

/// Key of [`RecordedFacts::by_patient`] under which the claims about all patients are.
const EVERYBODY: &str = "";

/// Claims that the records make about medicines and treatments.
#[derive(Default)]
struct RecordedFacts {
    claims: Vec<Claim>,
    /// Claims by the key of their patient. Under [`EVERYBODY`], one of equal claims is kept.
    by_patient: HashMap<String, PatientFacts>,
    /// Claims about no known patient.
    of_unknown: PatientFacts,
    statements: Vec<Statement>,
    /// Statements by their hash: results repeat them, and needn't be read again.
    known_statements: HashMap<u64, KnownStatement>,
    /// Claims that are kept already under any patient.
    fingerprints: HashSet<Vec<u64>>,
    ids: PatientIds,
    names: OtherNames,
    /// Parts of segments, which depend on no other names than [`Self::names`].
    parts: RefCell<PartMemo>,
    substances: HashSet<Substance>,
    treatments: Treatments,
    /// Whether the records are in Portuguese, so that `1,500` is 1.5.
    is_portuguese: bool,
    /// Patients about whom a record says that a medicine was stopped.
    stopped: HashSet<Option<String>>,
}

impl RecordedFacts {
    /// Reads the records, whose statements are given.
    fn read(records: &[Value], statements: Vec<Statement>) -> (Self, PatientGroups) {
        let folded: Vec<String> = statements.iter().map(fold_statement).collect();
        let read: Vec<ReadStatement<'_>> = statements
            .iter()
            .zip(&folded)
            .map(|(statement, folded)| ReadStatement::new(statement, folded))
            .collect();
        let mut facts = Self {
            is_portuguese: read.iter().map(|s| s.text.portuguese).sum::<i32>() > 0,
            ..Self::default()
        };
        for record in records {
            facts.add_ids(record);
        }
        let mut before = None;
        for statement in &statements {
            if let Some(patient) = statement
                .patient
                .as_deref()
                .filter(|id| before != Some(*id))
            {
                facts.ids.add(patient);
                before = Some(patient);
            }
            if let Some(name) = &statement.subject {
                add_name(&mut facts.names, name);
            }
        }
        let mut groups = PatientGroups::default();
        for (index, read) in read.into_iter().enumerate() {
            facts.treatments |= named_treatments(read.folded);
            let hash = facts.known_statements.hasher().hash_one(read.statement);
            let found = facts.claims_of(read, &mut groups);
            let begins_at = facts.claims.len();
            for claim in found.claims {
                facts.add(claim, &groups);
            }
            if !found.asks_substances {
                let claims = begins_at..facts.claims.len();
                let known = KnownStatement { index, claims };
                facts.known_statements.insert(hash, known);
            }
        }
        facts.statements = statements;
        (facts, groups)
    }

    /// Adds the ids of patients without a statement, such as those without medicines.
    fn add_ids(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add_ids(item)),
            Value::Object(map) => {
                if let Some(id) = map.get("patient_id").and_then(Value::as_str) {
                    self.ids.add(id);
                }
                map.values().for_each(|inner| self.add_ids(inner));
            }
            _ => {}
        }
    }

    fn add(&mut self, claim: Claim, groups: &PatientGroups) {
        let index = self.claims.len();
        let patients = claim.about.map(|about| groups.keys(about));
        let mut substances: Vec<Substance> = Vec::with_capacity(claim.substances.len());
        self.substances.extend(claim.substances.iter().cloned());
        for substance in &claim.substances {
            substances.extend(LEXICON.parent(substance));
            substances.push(substance.clone());
        }
        if claim.stance == Stance::Stopped {
            match patients {
                Some(keys) => self.stopped.extend(keys.iter().cloned().map(Some)),
                None => _ = self.stopped.insert(None),
            }
        }
        for substance in &claim.substances {
            self.treatments |= LEXICON.treatments(substance);
        }
        let is_new = self
            .fingerprints
            .insert(fingerprint(&claim, self.fingerprints.hasher()));
        if patients.is_none() {
            self.of_unknown.add(index, &substances);
        }
        let keys = patients.into_iter().flatten().map(String::as_str);
        for key in keys.chain(is_new.then_some(EVERYBODY)) {
            if !self.by_patient.contains_key(key) {
                self.by_patient
                    .insert(key.to_owned(), PatientFacts::default());
            }
            if let Some(facts) = self.by_patient.get_mut(key) {
                facts.add(index, &substances);
            }
        }
        self.claims.push(claim);
    }

    fn claims_of(&self, read: ReadStatement<'_>, groups: &mut PatientGroups) -> FoundClaims {
        let ReadStatement {
            statement,
            mut text,
            ..
        } = read;
        text.set_decimal_comma(match language_of(&text) {
            0 => self.is_portuguese,
            count => count > 0,
        });
        let about = statement
            .patient
            .as_deref()
            .map(|id| groups.index(&[id_key(id)]));
        let mut own = OtherNames::default();
        let mut subject = Vec::new();
        if let Some(name) = &statement.subject {
            subject = substances_of(name, &self.names);
            if subject.is_empty() {
                add_name(&mut own, name);
                subject = substances_of(name, &own);
            }
        }
        // A prescription begins with the name of its medicine.
        if statement.is_prescription {
            subject.clear();
        }
        let around = Surroundings {
            names: Names {
                recorded: &self.names,
                own: &own,
                substances: &self.substances,
            },
            ids: &self.ids,
            about,
            subject,
            parts: &self.parts,
        };
        collect_claims(&text, around, groups)
    }

    fn check_statement(
        &self,
        statement: &Statement,
        groups: &mut PatientGroups,
        notes: &mut NoteList,
    ) {
        // The treatments of such a statement are recorded.
        if let Some(known) = self.known_claims(statement) {
            self.check_claims(known, groups, notes);
            return;
        }
        let folded = fold_statement(statement);
        let found = self.claims_of(ReadStatement::new(statement, &folded), groups);
        self.check_claims(&found.claims, groups, notes);
        self.check_treatments(&folded, notes);
    }

    /// Returns the claims of a statement that a record has too; `None` if it must be read.
    fn known_claims(&self, statement: &Statement) -> Option<&[Claim]> {
        let hash = self.known_statements.hasher().hash_one(statement);
        let known = self.known_statements.get(&hash)?;
        let is_same = self.statements.get(known.index) == Some(statement);
        is_same.then(|| self.claims.get(known.claims.clone()))?
    }

    fn check_treatments(&self, folded: &str, notes: &mut NoteList) {
        for treatment in unrecorded_treatments(folded, self.treatments) {
            notes.add(treatment_note(treatment));
        }
    }

    fn check_claims(&self, claims: &[Claim], groups: &PatientGroups, notes: &mut NoteList) {
        let mentioned = Mentioned {
            claims,
            substances: OnceCell::new(),
            counts: OnceCell::new(),
        };
        let mut checked: Vec<&Claim> = Vec::new();
        for claim in claims {
            if notes.is_full() {
                return;
            }
            // An equal claim has the same note.
            if checked
                .iter()
                .rev()
                .take(EQUAL_CLAIMS_MAX)
                .any(|c| *c == claim)
            {
                continue;
            }
            checked.push(claim);
            let check = Check {
                facts: self,
                claim,
                mentioned: &mentioned,
            };
            if let Some(note) = check.note(groups) {
                notes.add(note);
            }
        }
    }

    /// Returns the recorded claims about a substance of a patient, or about any of the patient's if
    /// `substance` is `None`: at most [`CANDIDATES_MAX`]. Claims about no known patient count for
    /// each.
    fn candidates<'f>(
        &'f self,
        patient: Option<&str>,
        substance: Option<&Substance>,
    ) -> impl Iterator<Item = &'f Claim> {
        let of = |facts: Option<&'f PatientFacts>| {
            facts.map_or(&[][..], |facts| facts.about(substance)).iter()
        };
        let patient = patient.filter(|_| self.ids.len() > 0);
        let own = of(self.by_patient.get(patient.unwrap_or(EVERYBODY)));
        let shared = of(patient.map(|_| &self.of_unknown));
        own.chain(shared)
            .take(CANDIDATES_MAX)
            .filter_map(|n| self.claims.get(*n))
    }
}

/// Returns a number above 0 for a text in Portuguese, below 0 for one in English, 0 if unknown: by
/// its words, else by the spelling of its medicines.
fn language_of(text: &Text<'_>) -> i32 {
    if text.portuguese != 0 {
        return text.portuguese;
    }
    let spelling = |n: usize| -> Option<i32> {
        let word = text.tokens[n].word().filter(|word| word.len() > 4)?;
        let found = LEXICON.find(&text.tokens[n..])?;
        let generic = LEXICON.generic_name(found.substances.first()?)?;
        let is_english = generic.split([' ', '/']).any(|part| part == word);
        Some(if is_english {
            -1
        } else {
            i32::from(word.ends_with(['a', 'o']))
        })
    };
    (0..text.tokens.len()).filter_map(spelling).sum()
}

/// Adds the words of a medicine's name that no list has, as names of that medicine.
fn add_name(names: &mut OtherNames, name: &str) {
    let folded = fold(name);
    let text = Text::read(&folded);
    if !listed_substances(&text).is_empty() {
        return;
    }
    let words = text.tokens.iter().filter(|t| {
        t.word().is_some_and(|word| word.len() > 3)
            && t.info().flags == 0
            && !t.info().is_quantity()
    });
    let stems: Vec<String> = words.filter_map(|t| t.word()).map(stem).collect();
    if let Some(first) = stems.first() {
        let substance = Substance::Other(first.clone(), false);
        for stem in &stems {
            names
                .entry(stem.clone())
                .or_insert_with(|| substance.clone());
        }
    }
}

/// Returns the substances of the first listed medicine in a name, also after other words:
/// "succinato de metoprolol"; none if there is none. A word with an everyday meaning counts only at
/// the start.
fn listed_substances(name: &Text<'_>) -> Vec<Substance> {
    let found = |at: usize| {
        LEXICON
            .find(&name.tokens[at..])
            .filter(|f| at == 0 || !f.is_weak)
    };
    let first = (0..name.tokens.len()).find_map(found);
    first.map_or_else(Vec::new, |found| found.substances)
}

/// Returns the substances of a medicine that a statement is about; none if its name isn't known.
fn substances_of(name: &str, names: &OtherNames) -> Vec<Substance> {
    let folded = fold(name);
    let text = Text::read(&folded);
    let listed = listed_substances(&text);
    if !listed.is_empty() {
        return listed;
    }
    let named = text
        .tokens
        .iter()
        .filter_map(|t| names.get(&stem(t.word()?)));
    named.take(1).cloned().collect()
}

/// Patients and substances of a claim.
type DoseKey<'c> = (Option<usize>, &'c [Substance]);

/// Claims of one text, with what few checks ask about them.
struct Mentioned<'f> {
    claims: &'f [Claim],
    /// Substances that the text names.
    substances: OnceCell<HashSet<&'f Substance>>,
    /// Numbers of claims with a dose about the same patients and substances.
    counts: OnceCell<HashMap<DoseKey<'f>, usize>>,
}

impl<'f> Mentioned<'f> {
    fn has(&self, substance: &Substance) -> bool {
        let all = || self.claims.iter().flat_map(|c| &c.substances).collect();
        self.substances.get_or_init(all).contains(substance)
    }

    /// Returns whether the text gives several doses of the claim's medicine to the same patients:
    /// "CARD-001 and CARD-002 take losartan 50 mg and 100 mg".
    fn is_shared(&self, claim: &'f Claim) -> bool {
        let counts = self.counts.get_or_init(|| {
            let mut counts: HashMap<DoseKey<'_>, usize> = HashMap::default();
            for claim in self.claims.iter().filter(|c| c.dose.is_some()) {
                *counts.entry((claim.about, &claim.substances)).or_default() += 1;
            }
            counts
        });
        let count = counts.get(&(claim.about, &claim.substances[..]));
        count.is_some_and(|n| *n > 1)
    }
}

/// Check of one claim of an answer.
struct Check<'f, 'c> {
    facts: &'f RecordedFacts,
    claim: &'c Claim,
    /// Claims of the same text.
    mentioned: &'f Mentioned<'c>,
}

impl Check<'_, '_> {
    /// Returns the note about the claim; `None` if a record supports it and it is plausible. A
    /// claim about several patients must hold for each of them, unless they share it
    /// ([`Mentioned::is_shared`]): then for one.
    fn note(&self, groups: &PatientGroups) -> Option<String> {
        let note = match self.claim.about.map(|about| groups.keys(about)) {
            None => self.note_about(None),
            Some([patient]) => self.note_about(Some(patient)),
            Some(patients) => {
                let mut notes = patients
                    .iter()
                    .map(|patient| self.note_about(Some(patient)));
                match self.mentioned.is_shared(self.claim) {
                    true => {
                        let all: Option<Vec<String>> = notes.collect();
                        all.and_then(|all| all.into_iter().next())
                    }
                    false => notes.find_map(|note| note),
                }
            }
        };
        note.or_else(|| {
            let is_wrong = self.claim.stance == Stance::Asserted && is_implausible(self.claim);
            is_wrong.then(|| implausible_note(self.display()))
        })
    }

    fn display(&self) -> Option<String> {
        LEXICON.display(&self.claim.substances)
    }

    fn note_about(&self, patient: Option<&str>) -> Option<String> {
        let claim = self.claim;
        if claim.substances.is_empty() {
            return (!self.is_supported_without_name(patient)).then(|| dosage_note(None));
        }
        let is_dosed = claim.dose.is_some() || claim.pieces.is_some();
        let is_known = self.is_known(patient);
        // "Aspirin 100 mg. Uses the tablet once a month": so it stands in a note without a medicine.
        if claim.is_carried && self.is_noted_without_name(patient) {
            return None;
        }
        match claim.stance {
            Stance::Denied if !is_dosed => return None,
            Stance::NotTaken => {
                let is_prescribed = self.is_prescribed(patient);
                return is_prescribed.then(|| self.treatment());
            }
            Stance::Stopped if !self.facts.stopped.contains(&patient.map(str::to_owned)) => {
                return Some(self.treatment());
            }
            Stance::Stopped if !is_dosed => return (!is_known).then(|| self.treatment()),
            _ => {}
        }
        if !is_known {
            if claim.is_carried && self.is_supported_without_name(patient) {
                return None;
            }
            return Some(if is_dosed {
                dosage_note(self.display())
            } else {
                self.treatment()
            });
        }
        (!self.is_supported(patient)).then(|| dosage_note(self.display()))
    }

    fn treatment(&self) -> String {
        let name = self.display();
        treatment_note(name.as_deref().unwrap_or("an unlisted medicine"))
    }

    /// Returns whether a record of the patient names every substance of the claim.
    fn is_known(&self, patient: Option<&str>) -> bool {
        let has = |substance: &Substance| {
            self.facts
                .candidates(patient, Some(substance))
                .next()
                .is_some()
        };
        self.claim.substances.iter().all(has)
    }

    fn is_prescribed(&self, patient: Option<&str>) -> bool {
        let first = self.claim.substances.first();
        let mut all = self.facts.candidates(patient, first);
        all.any(|c| c.has_details() && c.stance == Stance::Asserted)
    }

    /// Returns whether a dose without a medicine is one of the patient's. Doses that may be of
    /// something else than a medicine need no record.
    fn is_supported_without_name(&self, patient: Option<&str>) -> bool {
        let claim = self.claim;
        let kinds = claim
            .dose
            .iter()
            .map(|d| d.kind)
            .chain(claim.pieces.iter().map(|p| p.kind));
        let mut implied = kinds.filter(|kind| kind.implies_medicine());
        implied.next().is_none()
            || self.facts.candidates(patient, None).any(|recorded| {
                let alone = Claim {
                    route: None,
                    ..claim.clone()
                };
                parts_of(recorded).iter().any(|part| supports(part, &alone))
                    || supports(recorded, &alone)
            })
    }

    /// Returns whether a record of the patient states the same without a medicine.
    fn is_noted_without_name(&self, patient: Option<&str>) -> bool {
        let mut all = self.facts.candidates(patient, None);
        all.any(|recorded| recorded.substances.is_empty() && supports(recorded, self.claim))
    }

    fn is_supported(&self, patient: Option<&str>) -> bool {
        let claim = self.claim;
        if let [one] = claim.substances.as_slice() {
            return self.is_substance_supported(patient, one, claim);
        }
        self.is_combination_supported(patient) || self.are_parts_supported(patient)
    }

    /// Returns whether one record has the same combination of substances, in any order, with the
    /// same doses.
    fn is_combination_supported(&self, patient: Option<&str>) -> bool {
        let claim = self.claim;
        self.facts
            .candidates(patient, claim.substances.first())
            .any(|recorded| {
                let Some(order) = order_of(&claim.substances, &recorded.substances) else {
                    return false;
                };
                let mut same_order = recorded.clone();
                if let Some(dose) = same_order
                    .dose
                    .as_mut()
                    .filter(|d| d.amounts.len() == order.len())
                {
                    dose.amounts = order.iter().map(|n| dose.amounts[*n]).collect();
                }
                supports(&same_order, claim)
            })
    }

    /// Returns whether each substance of a combination has its dose in the records, alone or in
    /// another combination. A single amount is the dose of the last one.
    fn are_parts_supported(&self, patient: Option<&str>) -> bool {
        let claim = self.claim;
        let count = claim.substances.len();
        claim.substances.iter().enumerate().all(|(n, substance)| {
            let mut part = claim.clone();
            part.substances = vec![substance.clone()];
            part.dose = match &claim.dose {
                Some(dose) if dose.amounts.len() == count => Some(Dose {
                    amounts: vec![dose.amounts[n]],
                    relation: Amounts::Single,
                    ..dose.clone()
                }),
                Some(dose) if n + 1 == count => Some(dose.clone()),
                _ => None,
            };
            if part.dose.is_none() {
                part.pieces = None;
            }
            self.is_substance_supported(patient, substance, &part)
        })
    }

    /// Returns whether a record about a single substance supports the claim, or one about a
    /// combination all of whose substances the text names.
    fn is_substance_supported(
        &self,
        patient: Option<&str>,
        substance: &Substance,
        claim: &Claim,
    ) -> bool {
        let matches = |recorded: &Claim| {
            if recorded.substances.len() <= 1 {
                return supports(recorded, claim);
            }
            let names_all = recorded.substances.iter().all(|s| self.mentioned.has(s));
            let is_mention = !claim.has_details();
            is_mention
                || names_all
                    && parts_of(recorded).iter().any(|part| {
                        part.substances.first() == Some(substance) && supports(part, claim)
                    })
        };
        self.facts.candidates(patient, Some(substance)).any(matches)
            || self.is_sum_of_prescriptions(patient, substance, claim)
    }

    /// Returns whether the claim states the total of a day of several prescriptions of a substance.
    fn is_sum_of_prescriptions(
        &self,
        patient: Option<&str>,
        substance: &Substance,
        claim: &Claim,
    ) -> bool {
        let is_total = claim.schedule.is_some_and(|s| s.is_total);
        let Some(said) = daily_total(claim).filter(|_| is_total && patient.is_some()) else {
            return false;
        };
        let totals = self
            .facts
            .candidates(patient, Some(substance))
            .filter(|recorded| has_route(recorded, claim))
            .filter_map(daily_total);
        let mut sum: Option<Dose> = None;
        for total in
            totals.filter(|t| t.kind == said.kind && t.per == said.per && t.amounts.len() == 1)
        {
            match &mut sum {
                Some(sum) => sum.amounts[0] += total.amounts[0],
                None => sum = Some(total),
            }
        }
        sum.is_some_and(|sum| is_same_total(&said, &sum))
    }
}

/// Returns numbers that are equal for equal claims, whomever they concern.
fn fingerprint(claim: &Claim, hasher: &impl BuildHasher) -> Vec<u64> {
    let mut all = Vec::with_capacity(16);
    all.extend(claim.substances.iter().map(|s| hasher.hash_one(s)));
    if let Some(dose) = &claim.dose {
        let flags = (
            dose.kind,
            dose.relation,
            dose.bound,
            dose.per,
            dose.is_strength,
        );
        all.push(hasher.hash_one(flags));
        all.extend(dose.amounts.iter().map(|amount| amount.to_bits()));
    }
    if let Some(pieces) = &claim.pieces {
        all.push(1 + pieces.kind as u64);
        all.extend(pieces.numbers.iter().map(|number| number.to_bits()));
    }
    if let Some(schedule) = claim.schedule {
        all.push(schedule.per_day.to_bits());
        all.push(u64::from(schedule.is_total) + 2 * u64::from(schedule.is_day_part));
    }
    all.push(u64::from(claim.times));
    all.push(claim.portions.map_or(u64::MAX, f64::to_bits));
    all.push(claim.route.map_or(u64::MAX, u64::from));
    all.push(u64::from(claim.as_needed) + 2 * (claim.stance as u64));
    all.push(claim.days.map_or(u64::MAX, f64::to_bits));
    all
}

/// Returns for each of `said` its place in `recorded`; `None` if they aren't the same substances.
fn order_of(said: &[Substance], recorded: &[Substance]) -> Option<Vec<usize>> {
    if said.len() != recorded.len() {
        return None;
    }
    let order: Vec<usize> = said
        .iter()
        .filter_map(|s| recorded.iter().position(|r| r == s))
        .collect();
    let distinct: HashSet<&usize> = order.iter().collect();
    (distinct.len() == recorded.len()).then_some(order)
}

/// Returns the claims about each substance of a combination with a dose for each; none for others.
fn parts_of(recorded: &Claim) -> Vec<Claim> {
    let count = recorded.substances.len();
    let Some(dose) = recorded
        .dose
        .as_ref()
        .filter(|d| count > 1 && d.amounts.len() == count)
    else {
        return Vec::new();
    };
    let part = |n: usize| Claim {
        substances: vec![recorded.substances[n].clone()],
        dose: Some(Dose {
            amounts: vec![dose.amounts[n]],
            relation: Amounts::Single,
            ..dose.clone()
        }),
        ..recorded.clone()
    };
    (0..count).map(part).collect()
}
