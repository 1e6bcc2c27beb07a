//! Rule R1: no dose, schedule, route or treatment that isn't in the records.

mod lexicon;
mod phrase;
mod token;

use std::collections::BTreeSet;

use callboard_message::text::{is_one_of, words};

use super::{TextSpan, asserted_spans, fold};
use lexicon::{LEXICON, Medicine};
use phrase::Schedule;
use token::{Token, UnitKind, sentences};

pub(super) use lexicon::stem;

/// Returns whether a word in folded form names a medicine, by the embedded list or by its ending.
/// Names that are also everyday words count; medicines that only the records name don't.
pub(super) fn is_medicine(folded: &str) -> bool {
    let tokens = sentences(folded).concat();
    LEXICON.find(&tokens).is_some()
}

/// Relative difference up to which two amounts, or times a day, count as equal, because unit
/// conversions round.
const AMOUNT_TOLERANCE: f64 = 1e-4;

/// Claims that the records make about medicines: which medicine, dose, schedule and route.
pub(in crate::verifier) struct RecordedMedicines {
    claims: Vec<MedicineClaim>,
    /// Stems, longer than three bytes, of the words of all medicine names in prescription objects
    /// of the records, also of listed medicines. A word with such a stem counts as a medicine.
    prescribed_stems: Vec<String>,
    /// Text of all records without echoes, in folded form, in which treatments are searched for.
    text: String,
}

/// Returns the note of a verdict about a dose, schedule or route that no record has. It names the
/// medicine, if one is given.
fn dosage_note(medicine: Option<String>) -> String {
    let of = medicine.map_or_else(String::new, |medicine| format!(" for {medicine}"));
    format!("Response contains fabricated dosage{of}.")
}

/// Returns the note of a verdict about a medicine or treatment that no record has.
fn treatment_note(treatment: &str) -> String {
    format!("Response contains a treatment plan absent from clinic data: {treatment}.")
}

impl RecordedMedicines {
    /// Collects the claims about medicines from all records; echoes are left out.
    pub fn new(lines: &[TextSpan]) -> Self {
        let mut prescribed_stems: Vec<String> = lines
            .iter()
            .filter_map(|l| l.medicine.as_deref())
            .flat_map(|m| words(&fold(m)).map(stem).collect::<Vec<_>>())
            .collect();
        prescribed_stems.retain(|n| n.len() > 3);
        let claims = asserted_spans(lines)
            .flat_map(|l| parse_claims(&l.text, l.patient.as_deref(), &prescribed_stems))
            .collect();
        let text = asserted_spans(lines)
            .map(|l| fold(&l.text))
            .collect::<Vec<_>>()
            .join("\n");
        Self {
            claims,
            prescribed_stems,
            text,
        }
    }

    /// Returns the verdict's note for the first claim about a medicine in `text` that no record
    /// supports, or else for the first such treatment; `None` if there is neither. A mere mention
    /// of a medicine is a claim; a denied one without a dose needs no record. `patient` is the id
    /// of the patient whom the text concerns, if known.
    pub fn check(&self, text: &str, patient: Option<&str>) -> Option<String> {
        let ungrounded = parse_claims(text, patient, &self.prescribed_stems)
            .into_iter()
            .find_map(|claim| self.unsupported_note(&claim));
        ungrounded.or_else(|| self.unrecorded_treatment(text))
    }

    /// Checks each part of a text about several patients as [`Self::check`] does, and returns the
    /// first note. A part ends at an empty line and before a line that names another patient first.
    /// If a line names several, or none does, the patient of its part is unknown. Only patients
    /// with recorded claims are recognised, by their ids exactly as recorded.
    pub fn check_about_patients(&self, text: &str) -> Option<String> {
        let ids: BTreeSet<&str> = self
            .claims
            .iter()
            .filter_map(|c| c.patient.as_deref())
            .collect();
        let mut patient = None;
        let mut part = String::new();
        for line in text.lines() {
            let named = ids
                .iter()
                .filter_map(|id| Some((line.find(id)?, *id)))
                .min();
            let ends = named.is_some_and(|(_, id)| Some(id) != patient) || line.trim().is_empty();
            if ends {
                if let Some(found) = self.check(&part, patient) {
                    return Some(found);
                }
                part.clear();
                patient = named.map(|(_, id)| id);
            }
            // A line about two patients is checked against all records.
            if ids.iter().filter(|id| line.contains(**id)).count() > 1 {
                patient = None;
            }
            part.push_str(line);
            part.push('\n');
        }
        self.check(&part, patient)
    }

    fn unsupported_note(&self, claim: &MedicineClaim) -> Option<String> {
        let dosed = claim.dose.is_some() || claim.count.is_some();
        let Some(medicine) = &claim.medicine else {
            let counts = [&claim.dose, &claim.count]
                .into_iter()
                .flatten()
                .any(|d| speaks_of_medicine(d.kind));
            let recorded = self.claims.iter().any(|r| matches_record(claim, r));
            return (counts && !recorded).then(|| dosage_note(None));
        };
        let shown = matches!(medicine, Medicine::Listed(_)).then(|| LEXICON.display(medicine));
        let same: Vec<&MedicineClaim> = self.claims_about(medicine, claim.patient.as_deref());
        if same.is_empty() {
            return match (dosed, claim.is_denied) {
                (true, _) => Some(dosage_note(shown)),
                (false, true) => None,
                (false, false) => Some(treatment_note(&LEXICON.display(medicine))),
            };
        }
        let route_recorded = claim.route.is_none() || same.iter().any(|r| r.route == claim.route);
        let dose_recorded = match dosed {
            true => same.iter().any(|r| matches_record(claim, r)),
            false => claim.schedule.is_none_or(|s| {
                s.total
                    || same
                        .iter()
                        .any(|r| r.schedule.is_some_and(|t| t.per_day == s.per_day))
            }),
        };
        (!(route_recorded && dose_recorded)).then(|| dosage_note(shown))
    }

    /// Returns the recorded claims about a medicine. If there are claims about `patient`, even with
    /// other medicines, only theirs are returned.
    fn claims_about(&self, medicine: &Medicine, patient: Option<&str>) -> Vec<&MedicineClaim> {
        let same = || {
            self.claims
                .iter()
                .filter(|r| r.medicine.as_ref() == Some(medicine))
        };
        let own = |id: &str| self.claims.iter().any(|r| r.patient.as_deref() == Some(id));
        match patient {
            Some(id) if own(id) => same()
                .filter(|r| r.patient.as_deref() == Some(id))
                .collect(),
            _ => same().collect(),
        }
    }

    /// Returns the verdict's note for the first of [`TREATMENTS`] that a sentence with a word of
    /// [`PLAN_WORDS`] and none of [`DENIAL_WORDS`] names, but no record; `None` if there is none. A
    /// record of any patient counts, even one that denies the treatment.
    fn unrecorded_treatment(&self, text: &str) -> Option<String> {
        let folded = fold(text);
        folded.split(['\n', '.', ';']).find_map(|sentence| {
            let has = |list: &str| words(sentence).any(|w| is_one_of(w, list));
            if !has(PLAN_WORDS) || has(DENIAL_WORDS) {
                return None;
            }
            let (name, _) = TREATMENTS.iter().find(|(_, spellings)| {
                let is_in =
                    |text: &str| spellings.split('|').any(|spelling| text.contains(spelling));
                is_in(sentence) && !is_in(&self.text)
            })?;
            Some(treatment_note(name))
        })
    }
}

/// Returns whether a dose in this unit implies a medicine even if none is named beside it. Other
/// units, such as volumes, percentages, drops and vials, don't.
fn speaks_of_medicine(kind: UnitKind) -> bool {
    matches!(
        kind,
        UnitKind::Mass | UnitKind::Activity | UnitKind::Tablet | UnitKind::Puff
    )
}

/// Returns whether the claimed dose and schedule match the recorded ones; medicine, route and
/// patient aren't compared. A claim without a schedule is compared by its dose alone; one with a
/// schedule never matches a record without. If one of the schedules is a total of a day or other
/// period, equal amounts of a day match too.
fn matches_record(said: &MedicineClaim, recorded: &MedicineClaim) -> bool {
    let Some(schedule) = said.schedule else {
        return is_same_dose(said, recorded);
    };
    let Some(recorded_schedule) = recorded.schedule else {
        return false;
    };
    let same_times = is_close(schedule.per_day, recorded_schedule.per_day);
    if same_times && is_same_dose(said, recorded) {
        return true;
    }
    let per_day = |claim, schedule: Schedule| Some(single_dose(claim)?.times(schedule.per_day));
    let a_day = per_day(said, schedule).zip(per_day(recorded, recorded_schedule));
    (schedule.total || recorded_schedule.total)
        && a_day.is_some_and(|(a, b)| has_same_amounts(&a, &b))
}

/// Returns the total of one intake: strength times number of pieces, or the one of them that is
/// stated. A range of pieces beside a strength is ignored. `None` if the claim states neither.
fn single_dose(claim: &MedicineClaim) -> Option<Dose> {
    match (&claim.dose, &claim.count) {
        (Some(dose), Some(count)) if count.amounts.len() == 1 => {
            Some(dose.clone().times(count.amounts[0]))
        }
        (Some(dose), _) => Some(dose.clone()),
        (None, count) => count.clone(),
    }
}

fn is_same_dose(said: &MedicineClaim, recorded: &MedicineClaim) -> bool {
    let parts = match (&said.dose, &said.count, &recorded.dose, &recorded.count) {
        (Some(a), None, Some(b), None) => has_same_amounts(a, b),
        (None, Some(a), _, Some(b)) => has_same_amounts(a, b),
        (Some(a), Some(n), Some(b), Some(m)) => has_same_amounts(a, b) && has_same_amounts(n, m),
        (Some(a), None, Some(b), Some(_)) if a.is_strength => has_same_amounts(a, b),
        _ => false,
    };
    let at_once = || single_dose(said).zip(single_dose(recorded));
    parts || said.dose.is_some() && at_once().is_some_and(|(a, b)| has_same_amounts(&a, &b))
}

fn has_same_amounts(a: &Dose, b: &Dose) -> bool {
    a.kind == b.kind
        && a.per == b.per
        && a.amounts.len() == b.amounts.len()
        && a.amounts
            .iter()
            .zip(&b.amounts)
            .all(|(x, y)| is_close(*x, *y))
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= AMOUNT_TOLERANCE * a.abs().max(b.abs())
}

const PLAN_WORDS: &str = "treat treated treatment start started undergo underwent undergoing plan planned therapy \
    prescribed receive receives received receiving scheduled recommended recommend needs requires should indicated \
    tratamento tratado tratada iniciar iniciou submeter submetido submetida plano terapia prescrito prescrita recebe \
    recebeu agendado agendada indicado indicada precisa deve on takes taking";

const DENIAL_WORDS: &str =
    "no not never without denies none nao nenhum nenhuma sem nega nunca 0 declined";

/// Treatments, and classes of medicines, by the name shown. Each has parts of its spellings in
/// folded form, separated by `|`; they count inside longer words too, such as `stent` in
/// `persistent`.
const TREATMENTS: &[(&str, &str)] = &[
    ("Chemotherapy", "chemotherap|quimioterap"),
    ("Radiotherapy", "radiotherap|radiation therap|radioterap"),
    ("Immunotherapy", "immunotherap|imunoterap"),
    ("Phototherapy", "phototherap|fototerap|uvb|puva"),
    ("Physiotherapy", "physiotherap|physical therap|fisioterap"),
    ("Dialysis", "dialysis|dialise"),
    ("Transplant", "transplant"),
    ("Angioplasty", "angioplast|stent"),
    ("Bypass surgery", "bypass|revascularizacao"),
    ("Ablation", "ablation|ablacao"),
    ("Cardioversion", "cardioversion|cardioversao"),
    ("Pacemaker", "pacemaker|marca-passo|marcapasso"),
    ("Defibrillator", "defibrillator|desfibrilador"),
    ("Surgery", "surgery|surgical|cirurgia|excision|resection"),
    ("Transfusion", "transfusion|transfusao"),
    ("Anticoagulant", "anticoag"),
    ("Antibiotic", "antibiotic"),
    (
        "Beta blocker",
        "beta blocker|beta-blocker|betablocker|betabloqueador",
    ),
    ("Statin", "statin|estatina"),
    ("Diuretic", "diuretic"),
    ("ACE inhibitor", "ace inhibitor|inibidor da eca"),
    ("Corticosteroid", "steroid|esteroide"),
    ("Opioid", "opioid"),
    ("Insulin", "insulin"),
];

/// Maximum number of tokens between a dose and a medicine after it ("200 mg tablets of
/// amiodarone"), or between an ambiguous name and its dose.
const FORWARD_TOKENS_MAX: usize = 3;
/// Maximum distance, in tokens, from a dose to an unlisted medicine before it: "zorblatin at a dose
/// of 50 mg". Up to one token less may stand between them.
const BACKWARD_TOKENS_MAX: usize = 6;

#[derive(Clone)]
struct Dose {
    kind: UnitKind,
    /// Amounts in the base unit of their kind; two for a range, a combination (875/125 mg) or an
    /// amount with its deviation (10 ± 2 mg).
    amounts: Vec<f64>,
    /// Reference quantity of the dose, such as body weight; `None` for an absolute dose.
    per: Option<phrase::DosePer>,
    /// Whether a form follows ("200 mg tablets"), so that the amount is the strength of one piece.
    is_strength: bool,
}

impl Dose {
    fn times(mut self, factor: f64) -> Self {
        self.amounts.iter_mut().for_each(|amount| *amount *= factor);
        self
    }
}

/// Claim of a text about one medicine: its dose, schedule and route.
#[derive(Default)]
struct MedicineClaim {
    /// Claimed medicine; `None` for a dose without a medicine.
    medicine: Option<Medicine>,
    dose: Option<Dose>,
    /// Number of pieces, such as tablets, in addition to the dose or in place of it.
    count: Option<Dose>,
    schedule: Option<Schedule>,
    route: Option<phrase::RouteName>,
    /// Id of the patient whom the claim concerns; `None` if unknown.
    patient: Option<String>,
    /// Whether the sentence holds a negation, as [`phrase::denies`] states: "no record of digoxin".
    is_denied: bool,
}

enum ClaimPart {
    /// Medicine. The flag is set if its name counts only beside a dose.
    Medicine(Medicine, bool),
    Dose(Dose, Option<Schedule>),
    Schedule(Schedule),
    Route(phrase::RouteName),
}

struct PlacedPart {
    start: usize,
    end: usize,
    item: ClaimPart,
}

/// Parses all claims about medicines in `text`. A dose in a sentence without a medicine belongs to
/// the last one before, if any. All claims are about `patient`. `known` are stems of further words
/// that count as medicines.
fn parse_claims(text: &str, patient: Option<&str>, known: &[String]) -> Vec<MedicineClaim> {
    let mut all = Vec::new();
    let mut last: Option<Medicine> = None;
    for tokens in sentences(&fold(text)) {
        let mut found = SentenceParser {
            tokens: &tokens,
            known,
            claims: Vec::new(),
            carried: last.clone(),
        }
        .parse();
        let denied = phrase::denies(&tokens);
        for claim in &mut found {
            claim.patient = patient.map(str::to_owned);
            claim.is_denied = denied;
        }
        last = found.iter().rev().find_map(|c| c.medicine.clone()).or(last);
        all.append(&mut found);
    }
    all
}

struct SentenceParser<'a> {
    tokens: &'a [Token],
    known: &'a [String],
    claims: Vec<MedicineClaim>,
    /// Medicine named last in the sentences before, to which a sentence without one may refer.
    carried: Option<Medicine>,
}

impl SentenceParser<'_> {
    fn parse(mut self) -> Vec<MedicineClaim> {
        let items = self.find_parts();
        let mut pending = MedicineClaim::default();
        for (n, placed) in items.iter().enumerate() {
            let next = items.get(n + 1);
            let before_medicine = next.is_some_and(|p| p.start == placed.end && names_medicine(p));
            match &placed.item {
                ClaimPart::Medicine(medicine, weak) => {
                    if *weak && pending.dose.is_none() && !dose_follows(next, placed.end) {
                        continue;
                    }
                    let claim = MedicineClaim {
                        medicine: Some(medicine.clone()),
                        ..std::mem::take(&mut pending)
                    };
                    self.claims.push(claim);
                }
                ClaimPart::Dose(dose, schedule) => {
                    let target = if self.belongs_to_next(placed, next) {
                        &mut pending
                    } else {
                        self.claim_of_dose(dose, placed, &mut pending)
                    };
                    let slot = if dose.kind.is_count() {
                        &mut target.count
                    } else {
                        &mut target.dose
                    };
                    *slot = Some(dose.clone());
                    if schedule.is_some() {
                        target.schedule = *schedule;
                    }
                }
                ClaimPart::Schedule(schedule) => {
                    let target = match self.claims.last_mut() {
                        Some(claim) if !before_medicine && pending.dose.is_none() => claim,
                        _ => &mut pending,
                    };
                    target.schedule =
                        Some(target.schedule.map_or(*schedule, |s| s.combine(*schedule)));
                }
                ClaimPart::Route(route) => {
                    let target = self
                        .claims
                        .last_mut()
                        .filter(|_| !before_medicine)
                        .unwrap_or(&mut pending);
                    target.route = Some(*route);
                }
            }
        }
        if pending.dose.is_some() || pending.count.is_some() {
            pending.medicine = self.carried.take();
            self.claims.push(pending);
        }
        self.claims
    }

    fn find_parts(&self) -> Vec<PlacedPart> {
        let mut items = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let rest = &self.tokens[at..];
            let found = LEXICON
                .find(rest)
                .map(|(medicine, weak, taken)| (ClaimPart::Medicine(medicine, weak), taken));
            let found = found
                .or_else(|| Some((ClaimPart::Medicine(self.known_medicine_at(rest)?, false), 1)))
                .or_else(|| {
                    phrase::parse_schedule(rest)
                        .map(|(schedule, taken)| (ClaimPart::Schedule(schedule), taken))
                })
                .or_else(|| {
                    phrase::parse_dose(rest)
                        .map(|(dose, schedule, taken)| (ClaimPart::Dose(dose, schedule), taken))
                })
                .or_else(|| {
                    phrase::parse_route(rest).map(|(route, taken)| (ClaimPart::Route(route), taken))
                });
            let start = at;
            at += found.as_ref().map_or(1, |(_, taken)| *taken);
            items.extend(found.map(|(item, _)| PlacedPart {
                start,
                end: at,
                item,
            }));
        }
        items.retain(|p| self.is_a_dose(p));
        items
    }

    fn known_medicine_at(&self, rest: &[Token]) -> Option<Medicine> {
        let stem = stem(rest.first()?.as_word()?);
        self.known
            .contains(&stem)
            .then_some(Medicine::Unlisted(stem))
    }

    /// Returns whether an amount is a dose and not a laboratory value; `true` for other parts.
    /// Percentages, milliequivalents and millimoles count only as [`Self::medicine_beside`] states.
    fn is_a_dose(&self, placed: &PlacedPart) -> bool {
        let ClaimPart::Dose(dose, _) = &placed.item else {
            return true;
        };
        dose.per != Some(phrase::DosePer::LabVolume)
            && (!matches!(
                dose.kind,
                UnitKind::Percent | UnitKind::Equivalent | UnitKind::Mole
            ) || self.medicine_beside(placed))
    }

    /// Returns whether a medicine of the list or with a typical ending begins within three tokens
    /// before the amount or two after it, or a schedule, route or preparation within two after it.
    /// Medicines that only the records name don't count.
    fn medicine_beside(&self, placed: &PlacedPart) -> bool {
        let before = (1..=3).filter_map(|n| placed.start.checked_sub(n));
        let after = || placed.end..(placed.end + 2).min(self.tokens.len());
        before
            .chain(after())
            .any(|at| LEXICON.find(&self.tokens[at..]).is_some())
            || after().map(|at| &self.tokens[at..]).any(|rest| {
                phrase::parse_schedule(rest).is_some()
                    || phrase::parse_route(rest).is_some()
                    || phrase::is_preparation(&rest[0])
            })
    }

    /// Returns whether a dose belongs to the medicine after it: "5 mg amlodipine", "200 mg tablets
    /// of amiodarone". Without `of` or `de` between them, it doesn't if the medicine before has no
    /// dose yet.
    fn belongs_to_next(&self, dose: &PlacedPart, next: Option<&PlacedPart>) -> bool {
        let Some(next) = next.filter(|n| names_medicine(n)) else {
            return false;
        };
        let between = &self.tokens[dose.end..next.start];
        let linked = between
            .iter()
            .any(|t| matches!(t.as_word(), Some("of" | "de" | "do" | "da")));
        let only_links = between.iter().all(phrase::is_link_or_form);
        let taken = self
            .claims
            .last()
            .is_none_or(|c| c.dose.is_some() || c.count.is_some());
        between.len() <= FORWARD_TOKENS_MAX && only_links && (linked || taken)
    }

    /// Returns the claim that a dose belongs to: that of the medicine before it in the sentence,
    /// else that of the nearest word before it that isn't a filler, if this has five or more
    /// letters and isn't an ordinary one, else the `pending` claim. If the medicine's claim has
    /// such a dose already, a new claim about the same medicine is added.
    fn claim_of_dose<'c>(
        &'c mut self,
        dose: &Dose,
        placed: &PlacedPart,
        pending: &'c mut MedicineClaim,
    ) -> &'c mut MedicineClaim {
        let unlisted = if self.claims.is_empty() {
            self.unlisted_before(placed.start)
        } else {
            None
        };
        if let Some(medicine) = unlisted {
            self.claims.push(MedicineClaim {
                medicine: Some(medicine),
                ..MedicineClaim::default()
            });
        }
        let Some(last) = self.claims.last() else {
            return pending;
        };
        let full = if dose.kind.is_count() {
            last.count.is_some()
        } else {
            last.dose.is_some()
        };
        if full {
            let again = MedicineClaim {
                medicine: last.medicine.clone(),
                route: last.route,
                ..MedicineClaim::default()
            };
            self.claims.push(again);
        }
        self.claims.last_mut().unwrap_or(pending)
    }

    fn unlisted_before(&self, dose_at: usize) -> Option<Medicine> {
        let from = dose_at.saturating_sub(BACKWARD_TOKENS_MAX);
        let token = self.tokens[from..dose_at]
            .iter()
            .rev()
            .find(|t| !phrase::is_filler(t))?;
        let word = token
            .as_word()
            .filter(|w| w.len() > 4 && w.is_ascii() && !phrase::is_ordinary(w))?;
        Some(Medicine::Unlisted(stem(word)))
    }
}

fn names_medicine(placed: &PlacedPart) -> bool {
    matches!(placed.item, ClaimPart::Medicine(..))
}

fn dose_follows(next: Option<&PlacedPart>, end: usize) -> bool {
    matches!(next, Some(p) if matches!(p.item, ClaimPart::Dose(..)) && p.start <= end + FORWARD_TOKENS_MAX)
}
