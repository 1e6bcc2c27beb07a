//! Whether a claim stands in the records.

use super::claim::{Claim, Dose, claims};
use super::lexicon::{LEXICON, Medicine, stem};
use super::phrase::Schedule;
use super::unit::Kind;
use crate::text::{is_one_of, words};
use crate::verifier::fold::fold;
use crate::verifier::value::{Line, LineKind};

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

/// A claim that the records don't hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verifier) enum Ungrounded {
    /// A dose, schedule or route; of which medicine, if it is a listed one.
    Dosage(Option<String>),
    /// A medicine or treatment.
    Plan(String),
}

impl Grounds {
    /// Reads all lines of the records.
    pub(in crate::verifier) fn new(lines: &[Line]) -> Self {
        let mut named: Vec<String> = lines
            .iter()
            .filter_map(|l| l.medicine.as_deref())
            .flat_map(|m| words(&fold(m)).map(stem).collect::<Vec<_>>())
            .collect();
        named.retain(|n| n.len() > 3);
        let recorded = || lines.iter().filter(|l| l.kind != LineKind::Echo);
        let claims = recorded().flat_map(|l| claims(&l.text, l.patient.as_deref(), &named)).collect();
        let text = recorded().map(|l| fold(&l.text)).collect::<Vec<_>>().join("\n");
        Self { claims, named, text }
    }

    /// The first claim in `text` that isn't recorded; `patient` is who the text is about, if it is known.
    pub(in crate::verifier) fn check(&self, text: &str, patient: Option<&str>) -> Option<Ungrounded> {
        let ungrounded = claims(text, patient, &self.named).into_iter().find_map(|claim| self.refute(&claim));
        ungrounded.or_else(|| self.unrecorded_treatment(text))
    }

    /// As [`Grounds::check`] for a text about several patients: each part is held to the records of the patient named
    /// last.
    pub(in crate::verifier) fn check_about_patients(&self, text: &str) -> Option<Ungrounded> {
        let ids: Vec<&str> = self.patients();
        let mut patient = None;
        let mut part = String::new();
        for line in text.lines() {
            let named = ids.iter().filter_map(|id| Some((line.find(id)?, *id))).min();
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

    fn patients(&self) -> Vec<&str> {
        let mut ids: Vec<&str> = self.claims.iter().filter_map(|c| c.patient.as_deref()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    fn refute(&self, claim: &Claim) -> Option<Ungrounded> {
        let dosed = claim.dose.is_some() || claim.count.is_some();
        let Some(medicine) = &claim.medicine else {
            let counts = [&claim.dose, &claim.count].into_iter().flatten().any(|d| speaks_of_medicine(d.kind));
            let recorded = self.claims.iter().any(|r| agrees(claim, r));
            return (counts && !recorded).then_some(Ungrounded::Dosage(None));
        };
        let shown = matches!(medicine, Medicine::Listed(_)).then(|| LEXICON.display(medicine));
        let same: Vec<&Claim> = self.about(medicine, claim.patient.as_deref());
        if same.is_empty() {
            return match (dosed, claim.denied) {
                (true, _) => Some(Ungrounded::Dosage(shown)),
                (false, true) => None,
                (false, false) => Some(Ungrounded::Plan(LEXICON.display(medicine))),
            };
        }
        let route_recorded = claim.route.is_none() || same.iter().any(|r| r.route == claim.route);
        let dose_recorded = match dosed {
            true => same.iter().any(|r| agrees(claim, r)),
            false => claim
                .schedule
                .is_none_or(|s| s.total || same.iter().any(|r| r.schedule.is_some_and(|t| t.per_day == s.per_day))),
        };
        (!(route_recorded && dose_recorded)).then_some(Ungrounded::Dosage(shown))
    }

    /// What is recorded about a medicine: of this patient, if the records tell patients apart.
    fn about(&self, medicine: &Medicine, patient: Option<&str>) -> Vec<&Claim> {
        let same = || self.claims.iter().filter(|r| r.medicine.as_ref() == Some(medicine));
        let own = |id: &str| self.claims.iter().any(|r| r.patient.as_deref() == Some(id));
        match patient {
            Some(id) if own(id) => same().filter(|r| r.patient.as_deref() == Some(id)).collect(),
            _ => same().collect(),
        }
    }

    /// A treatment other than a medicine that the text plans and no record mentions.
    fn unrecorded_treatment(&self, text: &str) -> Option<Ungrounded> {
        let folded = fold(text);
        folded.split(['\n', '.', ';']).find_map(|sentence| {
            let has = |list: &str| words(sentence).any(|w| is_one_of(w, list));
            if !has(PLAN_WORDS) || has(DENIAL_WORDS) {
                return None;
            }
            let found = TREATMENTS.iter().find(|(name, spellings)| {
                spellings.iter().any(|s| sentence.contains(s))
                    && !spellings.iter().any(|s| self.text.contains(s))
                    && !name.is_empty()
            })?;
            Some(Ungrounded::Plan(found.0.to_owned()))
        })
    }
}

/// Whether a dose without a medicine beside it is one of a medicine: volumes and percentages are of many things.
fn speaks_of_medicine(kind: Kind) -> bool {
    matches!(kind, Kind::Mass | Kind::Activity | Kind::Tablet | Kind::Puff)
}

/// Whether what `said` states of dose and schedule is what `recorded` holds.
fn agrees(said: &Claim, recorded: &Claim) -> bool {
    let Some(schedule) = said.schedule else { return same_dose(said, recorded) };
    let Some(recorded_schedule) = recorded.schedule else { return false };
    let same_times = close(schedule.per_day, recorded_schedule.per_day);
    if same_times && same_dose(said, recorded) {
        return true;
    }
    (schedule.total || recorded_schedule.total)
        && match (per_day(said, schedule), per_day(recorded, recorded_schedule)) {
            (Some(a), Some(b)) => same_amounts(&a, &b),
            _ => false,
        }
}

fn per_day(claim: &Claim, schedule: Schedule) -> Option<Dose> {
    let mut dose = taken_at_once(claim)?;
    dose.amounts.iter_mut().for_each(|a| *a *= schedule.per_day);
    Some(dose)
}

/// Strength times pieces, or whichever is stated.
fn taken_at_once(claim: &Claim) -> Option<Dose> {
    match (&claim.dose, &claim.count) {
        (Some(dose), Some(count)) if count.amounts.len() == 1 => {
            let mut product = dose.clone();
            product.amounts.iter_mut().for_each(|a| *a *= count.amounts[0]);
            Some(product)
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
    parts
        || said.dose.is_some()
            && match (taken_at_once(said), taken_at_once(recorded)) {
                (Some(a), Some(b)) => same_amounts(&a, &b),
                _ => false,
            }
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

const DENIAL_WORDS: &str = "no not never without denies none nao nenhum nenhuma sem nega nunca 0 declined";

/// Treatments by name, each with the folded spellings that stand for it in text and records.
const TREATMENTS: &[(&str, &[&str])] = &[
    ("Chemotherapy", &["chemotherap", "quimioterap"]),
    ("Radiotherapy", &["radiotherap", "radiation therap", "radioterap"]),
    ("Immunotherapy", &["immunotherap", "imunoterap"]),
    ("Phototherapy", &["phototherap", "fototerap", "uvb", "puva"]),
    ("Physiotherapy", &["physiotherap", "physical therap", "fisioterap"]),
    ("Dialysis", &["dialysis", "dialise"]),
    ("Transplant", &["transplant"]),
    ("Angioplasty", &["angioplast", "stent"]),
    ("Bypass surgery", &["bypass", "revascularizacao"]),
    ("Ablation", &["ablation", "ablacao"]),
    ("Cardioversion", &["cardioversion", "cardioversao"]),
    ("Pacemaker", &["pacemaker", "marca-passo", "marcapasso"]),
    ("Defibrillator", &["defibrillator", "desfibrilador"]),
    ("Surgery", &["surgery", "surgical", "cirurgia", "excision", "resection"]),
    ("Transfusion", &["transfusion", "transfusao"]),
    ("Anticoagulant", &["anticoag"]),
    ("Antibiotic", &["antibiotic"]),
    ("Beta blocker", &["beta blocker", "beta-blocker", "betablocker", "betabloqueador"]),
    ("Statin", &["statin", "estatina"]),
    ("Diuretic", &["diuretic"]),
    ("ACE inhibitor", &["ace inhibitor", "inibidor da eca"]),
    ("Corticosteroid", &["steroid", "esteroide"]),
    ("Opioid", &["opioid"]),
    ("Insulin", &["insulin"]),
];
