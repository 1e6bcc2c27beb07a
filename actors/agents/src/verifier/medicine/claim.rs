//! What a text says about medicines: which one, how much, how often, by which route, for whom.

use super::lexicon::{LEXICON, Medicine};
use super::phrase::{self, Schedule};
use super::token::{Token, sentences};
use super::unit::Kind;
use crate::verifier::fold::fold;

/// Tokens between a dose and the medicine it belongs to, if it stands before it: "200 mg tablets of amiodarone".
const FORWARD_TOKENS_MAX: usize = 3;
/// Tokens from a dose back to a medicine that isn't on the list: "zorblatin at a dose of 50 mg".
const BACKWARD_TOKENS_MAX: usize = 6;

/// An amount with its unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Dose {
    pub kind: Kind,
    /// In the kind's base unit; two for a range or a combination.
    pub amounts: Vec<f64>,
    /// Per kilogram of body weight, per square metre of body surface, per millilitre.
    pub per: Option<phrase::Per>,
    /// A form follows ("200 mg tablets"): the amount is a piece's strength.
    pub strength: bool,
}

/// One statement about one medicine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Claim {
    /// `None`: a dose that no medicine stands by.
    pub medicine: Option<Medicine>,
    pub dose: Option<Dose>,
    /// How many pieces, beside or instead of the dose.
    pub count: Option<Dose>,
    pub schedule: Option<Schedule>,
    pub route: Option<phrase::Route>,
    /// The patient's id, where the text says for whom.
    pub patient: Option<String>,
    /// The sentence denies something: "no record of digoxin".
    pub denied: bool,
}

enum Item {
    Medicine { medicine: Medicine, weak: bool },
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
pub(super) fn claims(text: &str, patient: Option<&str>, known: &[String]) -> Vec<Claim> {
    let mut all = Vec::new();
    let mut last: Option<Medicine> = None;
    for tokens in sentences(&fold(text)) {
        let mut found = Sentence { tokens: &tokens, known, claims: Vec::new(), carried: last.clone() }.read();
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
            match &placed.item {
                Item::Medicine { medicine, weak } => {
                    if *weak && pending.dose.is_none() && !dose_follows(next, placed.end) {
                        continue;
                    }
                    let claim = Claim { medicine: Some(medicine.clone()), ..std::mem::take(&mut pending) };
                    self.claims.push(claim);
                }
                Item::Dose(dose, schedule) => {
                    let target = match self.goes_forward(placed, next) {
                        true => &mut pending,
                        false => self.claim_for(dose, placed, &mut pending),
                    };
                    let slot = if dose.kind.is_count() { &mut target.count } else { &mut target.dose };
                    *slot = Some(dose.clone());
                    if schedule.is_some() {
                        target.schedule = *schedule;
                    }
                }
                Item::Schedule(schedule) => {
                    let before_medicine = matches!(next, Some(p) if p.start == placed.end && is_medicine(p));
                    let target = match self.claims.last_mut() {
                        Some(claim) if !before_medicine && pending.dose.is_none() => claim,
                        _ => &mut pending,
                    };
                    target.schedule = Some(target.schedule.map_or(*schedule, |s| s.and(*schedule)));
                }
                Item::Route(route) => {
                    let before_medicine = matches!(next, Some(p) if p.start == placed.end && is_medicine(p));
                    let target = match self.claims.last_mut() {
                        Some(claim) if !before_medicine => claim,
                        _ => &mut pending,
                    };
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
            let (item, taken) = if let Some(found) = LEXICON.find(rest) {
                (Some(Item::Medicine { medicine: found.medicine, weak: found.weak }), found.tokens)
            } else if let Some(medicine) = self.known_here(rest) {
                (Some(Item::Medicine { medicine, weak: false }), 1)
            } else if let Some((schedule, taken)) = phrase::schedule(rest) {
                (Some(Item::Schedule(schedule)), taken)
            } else if let Some((dose, schedule, taken)) = phrase::dose(rest) {
                (Some(Item::Dose(dose, schedule)), taken)
            } else if let Some((route, taken)) = phrase::route(rest) {
                (Some(Item::Route(route)), taken)
            } else {
                (None, 1)
            };
            if let Some(item) = item {
                items.push(Placed { start: at, end: at + taken, item });
            }
            at += taken;
        }
        items.retain(|p| self.is_a_dose(p));
        items
    }

    fn known_here(&self, rest: &[Token]) -> Option<Medicine> {
        let stem = super::lexicon::stem(rest.first()?.word()?);
        self.known.contains(&stem).then_some(Medicine::Unlisted(stem))
    }

    /// Laboratory values and percentages are no doses unless a medicine stands right beside them.
    fn is_a_dose(&self, placed: &Placed) -> bool {
        let Item::Dose(dose, _) = &placed.item else { return true };
        let laboratory = matches!(dose.kind, Kind::Percent | Kind::Equivalent | Kind::Mole)
            || matches!(dose.per, Some(phrase::Per::LabVolume));
        !laboratory || dose.per != Some(phrase::Per::LabVolume) && self.medicine_beside(placed)
    }

    /// A medicine on either side, or behind it what only a medicine has: a schedule, a route, a form.
    fn medicine_beside(&self, placed: &Placed) -> bool {
        let before = (1..=3).filter_map(|n| placed.start.checked_sub(n));
        let after = || placed.end..(placed.end + 2).min(self.tokens.len());
        before.chain(after()).any(|at| LEXICON.find(&self.tokens[at..]).is_some())
            || after().map(|at| &self.tokens[at..]).any(|rest| {
                phrase::schedule(rest).is_some() || phrase::route(rest).is_some() || phrase::is_preparation(&rest[0])
            })
    }

    /// "5 mg amlodipine", "200 mg tablets of amiodarone": the dose belongs to what follows.
    fn goes_forward(&self, dose: &Placed, next: Option<&Placed>) -> bool {
        let Some(next) = next.filter(|n| is_medicine(n)) else { return false };
        let between = &self.tokens[dose.end..next.start];
        let linked = between.iter().any(|t| matches!(t.word(), Some("of" | "de" | "do" | "da")));
        let only_links = between.iter().all(phrase::is_link_or_form);
        let taken = self.claims.last().is_none_or(|c| c.dose.is_some() || c.count.is_some());
        between.len() <= FORWARD_TOKENS_MAX && only_links && (linked || taken)
    }

    /// The claim that a dose joins: the medicine before it, a word that looks like one, or whatever comes.
    fn claim_for<'c>(&'c mut self, dose: &Dose, placed: &Placed, pending: &'c mut Claim) -> &'c mut Claim {
        let unlisted = if self.claims.is_empty() { self.unlisted_before(placed.start) } else { None };
        if let Some(medicine) = unlisted {
            self.claims.push(Claim { medicine: Some(medicine), ..Claim::default() });
        }
        let Some(last) = self.claims.last() else { return pending };
        let full = if dose.kind.is_count() { last.count.is_some() } else { last.dose.is_some() };
        if full {
            let again = Claim { medicine: last.medicine.clone(), route: last.route, ..Claim::default() };
            self.claims.push(again);
        }
        match self.claims.last_mut() {
            Some(claim) => claim,
            None => pending,
        }
    }

    fn unlisted_before(&self, dose_at: usize) -> Option<Medicine> {
        let from = dose_at.saturating_sub(BACKWARD_TOKENS_MAX);
        let back = self.tokens[from..dose_at].iter().rev();
        let token = back.into_iter().find(|t| !phrase::is_filler(t))?;
        let word = token.word().filter(|w| w.len() > 4 && w.is_ascii() && !phrase::is_ordinary(w))?;
        Some(Medicine::Unlisted(super::lexicon::stem(word)))
    }
}

fn is_medicine(placed: &Placed) -> bool {
    matches!(placed.item, Item::Medicine { .. })
}

fn dose_follows(next: Option<&Placed>, end: usize) -> bool {
    matches!(next, Some(p) if matches!(p.item, Item::Dose(..)) && p.start <= end + FORWARD_TOKENS_MAX)
}
