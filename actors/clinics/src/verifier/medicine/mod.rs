//! Rule R1: no dose and no treatment that the records don't hold.

mod lexicon;
mod phrase;
mod token;

use std::collections::BTreeSet;

use callboard_message::text::{is_one_of, words};

use super::{Line, fold, said};
use lexicon::{LEXICON, Medicine};
use phrase::Schedule;
use token::{Kind, Token, sentences};

pub(super) use lexicon::stem;

/// Whether a folded word names a medicine.
pub(super) fn is_medicine(folded: &str) -> bool {
    let tokens = sentences(folded).concat();
    LEXICON.find(&tokens).is_some()
}

/// Amounts this close, relatively, are equal: unit conversions round.
const AMOUNT_TOLERANCE: f64 = 1e-4;

/// What the records say about medicines.
pub(in crate::verifier) struct Grounds {
    claims: Vec<Claim>,
    /// Stems of medicines that the records name and the list doesn't.
    named: Vec<String>,
    /// Every recorded line, folded: treatments are looked up here.
    text: String,
}

/// What is said of a dose, schedule or route that the records don't hold; of which medicine, if it is a listed one.
fn dosage(medicine: Option<String>) -> String {
    let of = medicine.map_or_else(String::new, |medicine| format!(" for {medicine}"));
    format!("Response contains fabricated dosage{of}.")
}

/// What is said of a medicine or treatment that they don't hold.
fn plan(treatment: &str) -> String {
    format!("Response contains a treatment plan absent from clinic data: {treatment}.")
}

impl Grounds {
    /// Reads all lines of the records.
    pub fn new(lines: &[Line]) -> Self {
        let mut named: Vec<String> = lines
            .iter()
            .filter_map(|l| l.medicine.as_deref())
            .flat_map(|m| words(&fold(m)).map(stem).collect::<Vec<_>>())
            .collect();
        named.retain(|n| n.len() > 3);
        let claims = said(lines)
            .flat_map(|l| claims(&l.text, l.patient.as_deref(), &named))
            .collect();
        let text = said(lines)
            .map(|l| fold(&l.text))
            .collect::<Vec<_>>()
            .join("\n");
        Self {
            claims,
            named,
            text,
        }
    }

    /// What is said of the first claim in `text` that isn't recorded; `patient` is who the text is about, if it is known.
    pub fn check(&self, text: &str, patient: Option<&str>) -> Option<String> {
        let ungrounded = claims(text, patient, &self.named)
            .into_iter()
            .find_map(|claim| self.refute(&claim));
        ungrounded.or_else(|| self.unrecorded_treatment(text))
    }

    /// As [`Grounds::check`] for a text about several patients: each part is held to the records of the patient named
    /// last.
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
            // A line about two patients is held to nobody's records in particular.
            if ids.iter().filter(|id| line.contains(**id)).count() > 1 {
                patient = None;
            }
            part.push_str(line);
            part.push('\n');
        }
        self.check(&part, patient)
    }

    fn refute(&self, claim: &Claim) -> Option<String> {
        let dosed = claim.dose.is_some() || claim.count.is_some();
        let Some(medicine) = &claim.medicine else {
            let counts = [&claim.dose, &claim.count]
                .into_iter()
                .flatten()
                .any(|d| speaks_of_medicine(d.kind));
            let recorded = self.claims.iter().any(|r| agrees(claim, r));
            return (counts && !recorded).then(|| dosage(None));
        };
        let shown = matches!(medicine, Medicine::Listed(_)).then(|| LEXICON.display(medicine));
        let same: Vec<&Claim> = self.about(medicine, claim.patient.as_deref());
        if same.is_empty() {
            return match (dosed, claim.denied) {
                (true, _) => Some(dosage(shown)),
                (false, true) => None,
                (false, false) => Some(plan(&LEXICON.display(medicine))),
            };
        }
        let route_recorded = claim.route.is_none() || same.iter().any(|r| r.route == claim.route);
        let dose_recorded = match dosed {
            true => same.iter().any(|r| agrees(claim, r)),
            false => claim.schedule.is_none_or(|s| {
                s.total
                    || same
                        .iter()
                        .any(|r| r.schedule.is_some_and(|t| t.per_day == s.per_day))
            }),
        };
        (!(route_recorded && dose_recorded)).then(|| dosage(shown))
    }

    /// What is recorded about a medicine: of this patient, if the records tell patients apart.
    fn about(&self, medicine: &Medicine, patient: Option<&str>) -> Vec<&Claim> {
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

    /// A treatment other than a medicine that the text plans and no record mentions.
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
            Some(plan(name))
        })
    }
}

/// Whether a dose without a medicine beside it is one of a medicine: volumes and percentages are of many things.
fn speaks_of_medicine(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Mass | Kind::Activity | Kind::Tablet | Kind::Puff
    )
}

/// Whether what `said` states of dose and schedule is what `recorded` holds.
fn agrees(said: &Claim, recorded: &Claim) -> bool {
    let Some(schedule) = said.schedule else {
        return same_dose(said, recorded);
    };
    let Some(recorded_schedule) = recorded.schedule else {
        return false;
    };
    let same_times = close(schedule.per_day, recorded_schedule.per_day);
    if same_times && same_dose(said, recorded) {
        return true;
    }
    let per_day = |claim, schedule: Schedule| Some(taken_at_once(claim)?.times(schedule.per_day));
    let a_day = per_day(said, schedule).zip(per_day(recorded, recorded_schedule));
    (schedule.total || recorded_schedule.total) && a_day.is_some_and(|(a, b)| same_amounts(&a, &b))
}

/// Strength times pieces, or whichever is stated.
fn taken_at_once(claim: &Claim) -> Option<Dose> {
    match (&claim.dose, &claim.count) {
        (Some(dose), Some(count)) if count.amounts.len() == 1 => {
            Some(dose.clone().times(count.amounts[0]))
        }
        (Some(dose), _) => Some(dose.clone()),
        (None, count) => count.clone(),
    }
}

fn same_dose(said: &Claim, recorded: &Claim) -> bool {
    let parts = match (&said.dose, &said.count, &recorded.dose, &recorded.count) {
        (Some(a), None, Some(b), None) => same_amounts(a, b),
        (None, Some(a), _, Some(b)) => same_amounts(a, b),
        (Some(a), Some(n), Some(b), Some(m)) => same_amounts(a, b) && same_amounts(n, m),
        (Some(a), None, Some(b), Some(_)) if a.strength => same_amounts(a, b),
        _ => false,
    };
    let at_once = || taken_at_once(said).zip(taken_at_once(recorded));
    parts || said.dose.is_some() && at_once().is_some_and(|(a, b)| same_amounts(&a, &b))
}

fn same_amounts(a: &Dose, b: &Dose) -> bool {
    a.kind == b.kind
        && a.per == b.per
        && a.amounts.len() == b.amounts.len()
        && a.amounts.iter().zip(&b.amounts).all(|(x, y)| close(*x, *y))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= AMOUNT_TOLERANCE * a.abs().max(b.abs())
}

const PLAN_WORDS: &str = "treat treated treatment start started undergo underwent undergoing plan planned therapy \
    prescribed receive receives received receiving scheduled recommended recommend needs requires should indicated \
    tratamento tratado tratada iniciar iniciou submeter submetido submetida plano terapia prescrito prescrita recebe \
    recebeu agendado agendada indicado indicada precisa deve on takes taking";

const DENIAL_WORDS: &str =
    "no not never without denies none nao nenhum nenhuma sem nega nunca 0 declined";

/// Treatments by name, each with the folded spellings that stand for it in text and records, with `|` between.
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

/// Tokens between a dose and the medicine it belongs to, if it stands before it: "200 mg tablets of amiodarone".
const FORWARD_TOKENS_MAX: usize = 3;
/// Tokens from a dose back to a medicine that isn't on the list: "zorblatin at a dose of 50 mg".
const BACKWARD_TOKENS_MAX: usize = 6;

/// An amount with its unit.
#[derive(Clone)]
struct Dose {
    kind: Kind,
    /// In the kind's base unit; two for a range or a combination.
    amounts: Vec<f64>,
    /// Per kilogram of body weight, per square metre of body surface, per millilitre.
    per: Option<phrase::Per>,
    /// A form follows ("200 mg tablets"): the amount is a piece's strength.
    strength: bool,
}

impl Dose {
    fn times(mut self, factor: f64) -> Self {
        self.amounts.iter_mut().for_each(|amount| *amount *= factor);
        self
    }
}

/// One statement about one medicine.
#[derive(Default)]
struct Claim {
    /// `None`: a dose that no medicine stands by.
    medicine: Option<Medicine>,
    dose: Option<Dose>,
    /// How many pieces, beside or instead of the dose.
    count: Option<Dose>,
    schedule: Option<Schedule>,
    route: Option<phrase::Route>,
    /// The patient's id, where the text says for whom.
    patient: Option<String>,
    /// The sentence denies something: "no record of digoxin".
    denied: bool,
}

enum Item {
    /// The second: it is one only beside a dose.
    Medicine(Medicine, bool),
    Dose(Dose, Option<Schedule>),
    Schedule(Schedule),
    Route(phrase::Route),
}

struct Placed {
    start: usize,
    end: usize,
    item: Item,
}

/// All claims in `text`. `known` are medicines that the records name and the list doesn't.
fn claims(text: &str, patient: Option<&str>, known: &[String]) -> Vec<Claim> {
    let mut all = Vec::new();
    let mut last: Option<Medicine> = None;
    for tokens in sentences(&fold(text)) {
        let mut found = Sentence {
            tokens: &tokens,
            known,
            claims: Vec::new(),
            carried: last.clone(),
        }
        .read();
        let denied = phrase::denies(&tokens);
        for claim in &mut found {
            claim.patient = patient.map(str::to_owned);
            claim.denied = denied;
        }
        last = found.iter().rev().find_map(|c| c.medicine.clone()).or(last);
        all.append(&mut found);
    }
    all
}

struct Sentence<'a> {
    tokens: &'a [Token],
    known: &'a [String],
    claims: Vec<Claim>,
    /// The medicine that the sentence before spoke of.
    carried: Option<Medicine>,
}

impl Sentence<'_> {
    fn read(mut self) -> Vec<Claim> {
        let items = self.items();
        let mut pending = Claim::default();
        for (n, placed) in items.iter().enumerate() {
            let next = items.get(n + 1);
            let before_medicine = next.is_some_and(|p| p.start == placed.end && names_medicine(p));
            match &placed.item {
                Item::Medicine(medicine, weak) => {
                    if *weak && pending.dose.is_none() && !dose_follows(next, placed.end) {
                        continue;
                    }
                    let claim = Claim {
                        medicine: Some(medicine.clone()),
                        ..std::mem::take(&mut pending)
                    };
                    self.claims.push(claim);
                }
                Item::Dose(dose, schedule) => {
                    let target = if self.goes_forward(placed, next) {
                        &mut pending
                    } else {
                        self.claim_for(dose, placed, &mut pending)
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
                Item::Schedule(schedule) => {
                    let target = match self.claims.last_mut() {
                        Some(claim) if !before_medicine && pending.dose.is_none() => claim,
                        _ => &mut pending,
                    };
                    target.schedule = Some(target.schedule.map_or(*schedule, |s| s.and(*schedule)));
                }
                Item::Route(route) => {
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

    fn items(&self) -> Vec<Placed> {
        let mut items = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let rest = &self.tokens[at..];
            let found = LEXICON
                .find(rest)
                .map(|(medicine, weak, taken)| (Item::Medicine(medicine, weak), taken));
            let found = found
                .or_else(|| Some((Item::Medicine(self.known_here(rest)?, false), 1)))
                .or_else(|| {
                    phrase::schedule(rest)
                        .map(|(schedule, taken)| (Item::Schedule(schedule), taken))
                })
                .or_else(|| {
                    phrase::dose(rest)
                        .map(|(dose, schedule, taken)| (Item::Dose(dose, schedule), taken))
                })
                .or_else(|| phrase::route(rest).map(|(route, taken)| (Item::Route(route), taken)));
            let start = at;
            at += found.as_ref().map_or(1, |(_, taken)| *taken);
            items.extend(found.map(|(item, _)| Placed {
                start,
                end: at,
                item,
            }));
        }
        items.retain(|p| self.is_a_dose(p));
        items
    }

    fn known_here(&self, rest: &[Token]) -> Option<Medicine> {
        let stem = stem(rest.first()?.word()?);
        self.known
            .contains(&stem)
            .then_some(Medicine::Unlisted(stem))
    }

    /// Laboratory values and percentages are no doses unless a medicine stands right beside them.
    fn is_a_dose(&self, placed: &Placed) -> bool {
        let Item::Dose(dose, _) = &placed.item else {
            return true;
        };
        dose.per != Some(phrase::Per::LabVolume)
            && (!matches!(dose.kind, Kind::Percent | Kind::Equivalent | Kind::Mole)
                || self.medicine_beside(placed))
    }

    /// A medicine on either side, or behind it what only a medicine has: a schedule, a route, a form.
    fn medicine_beside(&self, placed: &Placed) -> bool {
        let before = (1..=3).filter_map(|n| placed.start.checked_sub(n));
        let after = || placed.end..(placed.end + 2).min(self.tokens.len());
        before
            .chain(after())
            .any(|at| LEXICON.find(&self.tokens[at..]).is_some())
            || after().map(|at| &self.tokens[at..]).any(|rest| {
                phrase::schedule(rest).is_some()
                    || phrase::route(rest).is_some()
                    || phrase::is_preparation(&rest[0])
            })
    }

    /// "5 mg amlodipine", "200 mg tablets of amiodarone": the dose belongs to what follows.
    fn goes_forward(&self, dose: &Placed, next: Option<&Placed>) -> bool {
        let Some(next) = next.filter(|n| names_medicine(n)) else {
            return false;
        };
        let between = &self.tokens[dose.end..next.start];
        let linked = between
            .iter()
            .any(|t| matches!(t.word(), Some("of" | "de" | "do" | "da")));
        let only_links = between.iter().all(phrase::is_link_or_form);
        let taken = self
            .claims
            .last()
            .is_none_or(|c| c.dose.is_some() || c.count.is_some());
        between.len() <= FORWARD_TOKENS_MAX && only_links && (linked || taken)
    }

    /// The claim that a dose joins: the medicine before it, a word that looks like one, or whatever comes.
    fn claim_for<'c>(
        &'c mut self,
        dose: &Dose,
        placed: &Placed,
        pending: &'c mut Claim,
    ) -> &'c mut Claim {
        let unlisted = if self.claims.is_empty() {
            self.unlisted_before(placed.start)
        } else {
            None
        };
        if let Some(medicine) = unlisted {
            self.claims.push(Claim {
                medicine: Some(medicine),
                ..Claim::default()
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
            let again = Claim {
                medicine: last.medicine.clone(),
                route: last.route,
                ..Claim::default()
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
            .word()
            .filter(|w| w.len() > 4 && w.is_ascii() && !phrase::is_ordinary(w))?;
        Some(Medicine::Unlisted(stem(word)))
    }
}

fn names_medicine(placed: &Placed) -> bool {
    matches!(placed.item, Item::Medicine(..))
}

fn dose_follows(next: Option<&Placed>, end: usize) -> bool {
    matches!(next, Some(p) if matches!(p.item, Item::Dose(..)) && p.start <= end + FORWARD_TOKENS_MAX)
}
