//! Claims of a text about medicines: which dose, schedule and route belong to which medicine and
//! patient.

use callboard_message::word_set;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::verifier::word_lists::EVERYDAY;

use super::lexicon::{SUBSTANCES_MAX, stem};
use super::model::{
    Amounts, Claim, Dose, Routes, Schedule, Stance, Substance, Times, UnitKind, routes, times,
};
use super::part_memo::PartMemo;
use super::parts::{FORWARD_TOKENS_MAX, Item, Names, Part};
use super::patients::{Mention, PatientGroups, PatientIds};
use super::phrase::FoundDose;
use super::stance::{denies_record, stance};
use super::token::{Sentence, Text, Token};
use super::word_meanings::flags;

/// Maximum distance, in tokens, from a dose to an unlisted medicine before it: "zorblatin at a dose
/// of 50 mg". Up to one token less may stand between them.
const BACKWARD_TOKENS_MAX: usize = 6;
/// Maximum number of claims before a schedule or route for each of them: "both once daily".
const EACH_CLAIMS_MAX: usize = 16;
/// Minimum letters of an unlisted word that counts as a medicine because a dose follows it.
const UNLISTED_LETTERS_MIN: usize = 5;

/// Context of a text: known names, patients and subject.
pub(super) struct Surroundings<'n> {
    pub names: Names<'n>,
    pub ids: &'n PatientIds,
    /// Patients whom the text concerns, as an index of [`PatientGroups`]; `None` if unknown.
    pub about: Option<usize>,
    /// Medicine that the text concerns until it names another; empty if unknown.
    pub subject: Vec<Substance>,
    /// Parts of the segments before.
    pub parts: &'n RefCell<PartMemo>,
}

/// Claims of a text.
pub(super) struct FoundClaims {
    pub claims: Vec<Claim>,
    /// Whether they depend on [`Names::substances`], which grow while the records are read.
    pub asks_substances: bool,
}

/// Collects all claims about medicines in a text. A dose in a sentence without a medicine belongs
/// to the last one before, if any. A claim concerns the patient named last, or the next one if
/// doses precede all ids of the sentence.
pub(super) fn collect_claims(
    text: &Text<'_>,
    around: Surroundings<'_>,
    groups: &mut PatientGroups,
) -> FoundClaims {
    let mut builder = Builder {
        tokens: &text.tokens,
        names: around.names,
        parts: around.parts,
        claims: Vec::new(),
        about: around.about,
        carried: around.subject,
        last: None,
        open: Vec::new(),
        queue: VecDeque::new(),
        unit: None,
        is_denied: false,
        is_dosed: false,
        waiting: None,
        asks_substances: false,
    };
    for sentence in &text.sentences {
        builder.add_sentence(sentence, around.ids, groups);
    }
    builder.claims.extend(builder.waiting.take());
    FoundClaims {
        claims: builder.claims,
        asks_substances: builder.asks_substances,
    }
}

struct Builder<'t, 'n> {
    tokens: &'t [Token<'t>],
    names: Names<'n>,
    parts: &'n RefCell<PartMemo>,
    claims: Vec<Claim>,
    /// Patients whom the text concerns at this place.
    about: Option<usize>,
    /// Medicine named last, to which a sentence without one may refer; empty if none was.
    carried: Vec<Substance>,
    /// Index of the claim to which further parts may belong.
    last: Option<usize>,
    /// Indexes of the claims about the medicines named in a row without a dose.
    open: Vec<usize>,
    /// Indexes of the claims that wait for a dose each: "50 mg and 5 mg respectively".
    queue: VecDeque<usize>,
    /// Unit of the next amount without one, from a field before it.
    unit: Option<Dose>,
    /// Whether the sentence denies that what it states is recorded: "no record that CARD-001 takes".
    is_denied: bool,
    /// Whether the segment has given a dose to the last claim.
    is_dosed: bool,
    /// Claim without a medicine from lines with nothing but fields, for the medicine of a next line.
    waiting: Option<Claim>,
    asks_substances: bool,
}

impl Builder<'_, '_> {
    fn add_sentence(&mut self, sentence: &Sentence, ids: &PatientIds, groups: &mut PatientGroups) {
        let range = sentence.tokens.clone();
        let mentions = ids.mentions(self.tokens, range.clone());
        let named_at = mentions.first().map_or(range.start, |m| m.place.start);
        self.is_denied = denies_record(&self.tokens[range.start..named_at]);
        let Some(first) = mentions.first() else {
            self.add_segment(range);
            return;
        };
        let before = self.find_parts(range.start..first.place.start, false);
        // "Losartan 50 mg (CARD-001), warfarin 5 mg (CARD-002)"
        let is_forward = before.iter().any(Part::is_dose);
        if is_forward {
            let mut from = range.start;
            for mention in &mentions {
                self.set_patients(mention, groups);
                self.add_segment(from..mention.place.start);
                from = mention.place.end;
            }
            self.add_segment(from..range.end);
            return;
        }
        let named_before = before.iter().any(Part::is_medicine);
        self.set_patients(first, groups);
        if named_before {
            self.add_segment(range.start..first.place.start);
        }
        // "Twice a day, CARD-001 takes 50 mg of losartan"
        let begins_before = !named_before && !before.is_empty();
        for (n, mention) in mentions.iter().enumerate() {
            self.set_patients(mention, groups);
            let end = mentions
                .get(n + 1)
                .map_or(range.end, |next| next.place.start);
            let from = match n == 0 && begins_before {
                true => range.start,
                false => mention.place.end,
            };
            self.add_segment(from..end);
        }
    }

    /// Returns the parts of a range of tokens, in which the first token has the place 0.
    fn find_parts(&self, range: Range<usize>, knows_medicine: bool) -> Rc<[Part]> {
        let mut memo = self.parts.borrow_mut();
        memo.find(&self.tokens[range], self.names, knows_medicine)
    }

    fn set_patients(&mut self, mention: &Mention, groups: &mut PatientGroups) {
        let about = Some(groups.index(&mention.keys));
        if about != self.about {
            self.about = about;
            self.last = None;
            self.open.clear();
            self.queue.clear();
        }
    }

    /// Adds the claims of a sentence, or of its part about one patient.
    fn add_segment(&mut self, range: Range<usize>) {
        let parts = self.find_parts(range.clone(), !self.carried.is_empty());
        let tokens = &self.tokens[range];
        self.is_dosed = false;
        if parts.iter().any(Part::is_medicine) {
            self.last = None;
            self.open.clear();
            self.queue.clear();
        }
        let last_medicine = parts.iter().rposition(Part::is_medicine);
        let mut pending = self.take_waiting(&parts);
        let begins_at = self.claims.len();
        let is_prescription = last_medicine.is_none() && is_prescription(tokens, &parts);
        let mut named = None;
        for (n, part) in parts.iter().enumerate() {
            let scope = Segment {
                tokens,
                parts: &parts,
                n,
                begins_at,
                medicine_end: named,
                has_medicine_ahead: last_medicine.is_some_and(|last| last > n),
                is_prescription,
            };
            if part.is_medicine() {
                named = Some(part.place.end);
            }
            match &part.item {
                Item::Medicine {
                    substances,
                    is_weak,
                } => self.add_medicine(&scope, substances, *is_weak, &mut pending),
                Item::Dose(found) => {
                    self.add_dose(&scope, found, &mut pending);
                    let is_bare = found
                        .dose
                        .as_ref()
                        .is_some_and(|d| d.kind == UnitKind::Bare);
                    if let Some(unit) = self.unit.take().filter(|_| is_bare) {
                        self.set_unit(&unit, &mut pending);
                    }
                }
                Item::Schedule(schedule, times) => {
                    let schedule = *schedule;
                    let times = *times;
                    self.change(&scope, &mut pending, &|claim| {
                        set_schedule(claim, schedule, times)
                    });
                }
                Item::Route(route) => {
                    let route = *route;
                    self.change(&scope, &mut pending, &|claim| set_route(claim, route));
                }
                Item::AsNeeded => {
                    self.change(&scope, &mut pending, &|claim| claim.as_needed = true)
                }
                Item::Duration(days) => {
                    let days = *days;
                    self.change(&scope, &mut pending, &|claim| claim.days = Some(days));
                }
                Item::Unit(unit) => self.set_unit(unit, &mut pending),
            }
        }
        self.settle(pending, is_prescription);
    }

    /// Returns the claim that waits for a medicine, if the first part may belong to it; else adds it
    /// without a medicine.
    fn take_waiting(&mut self, parts: &[Part]) -> Claim {
        let Some(waiting) = self.waiting.take() else {
            return Claim::default();
        };
        let continues = match parts.first() {
            Some(Part {
                item: Item::Dose(found),
                ..
            }) => {
                (found.dose.is_none() || waiting.dose.is_none())
                    && (found.pieces.is_none() || waiting.pieces.is_none())
            }
            _ => true,
        };
        if continues {
            return waiting;
        }
        self.claims.push(waiting);
        Claim::default()
    }

    /// Adds the claim whose medicine the segment doesn't name, or keeps it for the next segment.
    fn settle(&mut self, mut pending: Claim, is_prescription: bool) {
        if pending.dose.is_none() && pending.pieces.is_none() {
            let has_more = pending.schedule.is_some() || pending.route.is_some();
            self.waiting = Some(pending).filter(|_| is_prescription && has_more);
            return;
        }
        pending.about = pending.about.or(self.about);
        if is_prescription && self.carried.is_empty() {
            self.waiting = Some(pending);
            return;
        }
        self.last = Some(self.claims.len());
        self.claims.push(pending);
    }

    fn add_medicine(
        &mut self,
        scope: &Segment<'_>,
        substances: &[Substance],
        is_weak: bool,
        pending: &mut Claim,
    ) {
        let place = &scope.part().place;
        let next_dose = scope
            .next()
            .is_some_and(|p| p.is_dose() && p.place.start <= place.end + FORWARD_TOKENS_MAX);
        let from = place.start.saturating_sub(FORWARD_TOKENS_MAX);
        let mut before = scope.tokens[from..place.start].iter().rev();
        let is_taken = before
            .find(|t| !t.is_word(word_set!(BEFORE_TAKEN)))
            .is_some_and(|t| t.is_word(word_set!(TAKING_VERBS)));
        let is_dosed = pending.dose.is_some() || pending.pieces.is_some() || next_dose;
        if is_weak && !is_dosed && !is_taken {
            self.asks_substances = true;
            let mut others = scope.tokens.iter().enumerate();
            let is_alone = others.all(|(n, t)| place.contains(&n) || t.sign().is_some());
            if !is_alone || !substances.iter().all(|s| self.names.substances.contains(s)) {
                return;
            }
        }
        if self.extend_combination(scope, substances) {
            return;
        }
        let claim = Claim {
            substances: substances.to_vec(),
            stance: match self.is_denied {
                true => Stance::Denied,
                false => stance(scope.tokens, place),
            },
            about: self.about,
            ..std::mem::take(pending)
        };
        let is_open = claim.dose.is_none() && claim.pieces.is_none();
        self.carried = claim.substances.clone();
        self.last = Some(self.claims.len());
        if is_open {
            self.open.push(self.claims.len());
        } else {
            self.open.clear();
        }
        self.claims.push(claim);
    }

    /// Adds substances to the medicine directly before, with only `/`, `+` or `-` between them.
    fn extend_combination(&mut self, scope: &Segment<'_>, substances: &[Substance]) -> bool {
        let Some(previous) = scope
            .n
            .checked_sub(1)
            .map(|n| &scope.parts[n])
            .filter(|p| p.is_medicine())
        else {
            return false;
        };
        let between = &scope.tokens[previous.place.end..scope.part().place.start];
        let is_joined = matches!(between, [sign] if matches!(sign.sign(), Some('/' | '+' | '-')));
        let claim = self.last.and_then(|last| self.claims.get_mut(last));
        match claim.filter(|_| is_joined) {
            Some(claim) if claim.substances.len() + substances.len() <= SUBSTANCES_MAX => {
                claim.substances.extend_from_slice(substances);
                self.carried = claim.substances.clone();
                true
            }
            _ => false,
        }
    }

    fn add_dose(&mut self, scope: &Segment<'_>, found: &FoundDose, pending: &mut Claim) {
        if scope.belongs_to_next(self.last_has_dose(scope)) {
            set_dose(pending, found);
            return;
        }
        if self.queue.is_empty() && self.open.len() >= 2 && scope.doses_ahead() == self.open.len() {
            self.queue = self.open.drain(..).collect();
        }
        if let Some(claim) = self.queue.pop_front() {
            self.last = Some(claim);
            set_dose(&mut self.claims[claim], found);
            return;
        }
        if self.spread_parts(found) {
            return;
        }
        let applies_to_all = self.open.len() >= 2 && scope.has_each();
        if applies_to_all {
            for claim in self.open.drain(..) {
                set_dose(&mut self.claims[claim], found);
            }
            return;
        }
        self.open.clear();
        match self.claim_of_dose(scope, found) {
            Some(claim) => {
                self.is_dosed = true;
                set_dose(&mut self.claims[claim], found);
            }
            None => set_dose(pending, found),
        }
    }

    /// Gives each medicine named in a row its amount of a dose with as many amounts: "levodopa plus
    /// carbidopa, 100 mg + 25 mg". Returns whether it did.
    fn spread_parts(&mut self, found: &FoundDose) -> bool {
        let Some(dose) = found.dose.as_ref().filter(|dose| {
            dose.relation == Amounts::Parts && dose.amounts.len() == self.open.len()
        }) else {
            return false;
        };
        for (claim, amount) in self.open.drain(..).zip(&dose.amounts) {
            let part = FoundDose {
                dose: Some(Dose {
                    amounts: vec![*amount],
                    relation: Amounts::Single,
                    ..dose.clone()
                }),
                ..found.clone()
            };
            set_dose(&mut self.claims[claim], &part);
            self.last = Some(claim);
        }
        true
    }

    fn last_has_dose(&self, scope: &Segment<'_>) -> bool {
        let last = self.last.filter(|last| *last >= scope.begins_at);
        last.and_then(|last| self.claims.get(last))
            .is_none_or(|claim| claim.dose.is_some() || claim.pieces.is_some())
    }

    /// Returns the index of the claim that a dose belongs to: that of the medicine before it, else a
    /// new one about an unlisted word before it or about the medicine named last. If that claim has
    /// such a dose already, a new claim about the same medicine is added. `None` if a medicine
    /// follows in the same segment, or none is known.
    fn claim_of_dose(&mut self, scope: &Segment<'_>, found: &FoundDose) -> Option<usize> {
        let place = scope.part().place.start;
        let named = scope.medicine_end;
        let before = &scope.tokens[named.unwrap_or_default()..place];
        if named.is_none()
            && let Some(medicine) = unlisted_before(before)
        {
            return Some(self.new_claim(vec![medicine], false));
        }
        if named.is_none() && scope.has_medicine_ahead {
            return None;
        }
        let Some(last) = self.last.filter(|last| *last < self.claims.len()) else {
            return (!self.carried.is_empty()).then(|| self.new_claim(self.carried.clone(), true));
        };
        let claim = &self.claims[last];
        let is_full = found.dose.is_some() && claim.dose.is_some()
            || found.pieces.is_some() && claim.pieces.is_some();
        if !is_full {
            return Some(last);
        }
        let (substances, route) = (claim.substances.clone(), claim.route);
        let again = self.new_claim(substances, named.is_none());
        self.claims[again].route = route;
        Some(again)
    }

    fn new_claim(&mut self, substances: Vec<Substance>, is_carried: bool) -> usize {
        let index = self.claims.len();
        self.carried = substances.clone();
        self.last = Some(index);
        self.claims.push(Claim {
            substances,
            about: self.about,
            is_carried,
            ..Claim::default()
        });
        index
    }

    /// Applies a schedule, a route and so on to the claim that it belongs to.
    fn change(&mut self, scope: &Segment<'_>, pending: &mut Claim, set: &dyn Fn(&mut Claim)) {
        let before_medicine = scope
            .next()
            .is_some_and(|p| p.is_medicine() && p.place.start == scope.part().place.end);
        if before_medicine || pending.dose.is_some() || pending.pieces.is_some() {
            set(pending);
            return;
        }
        let is_dosed = self.is_dosed;
        if let Some(last) = self
            .last
            .filter(|last| *last >= scope.begins_at || is_dosed)
        {
            if scope.has_each() {
                let from = scope
                    .begins_at
                    .max(self.claims.len().saturating_sub(EACH_CLAIMS_MAX));
                self.claims[from..].iter_mut().for_each(set);
            } else {
                set(&mut self.claims[last]);
            }
            return;
        }
        if scope.has_medicine_ahead {
            set(pending);
        } else if scope.is_prescription {
            match self.last {
                Some(last) => self.change_earlier(last, set),
                None if !self.carried.is_empty() => {
                    let claim = self.new_claim(self.carried.clone(), true);
                    set(&mut self.claims[claim]);
                }
                None => set(pending),
            }
        }
    }

    /// Applies a schedule, a route and so on to a claim of an earlier sentence. A route that excludes
    /// the claim's own belongs to another claim about the same medicine: "oral. Uses the sublingual
    /// tablet about once a month".
    fn change_earlier(&mut self, last: usize, set: &dyn Fn(&mut Claim)) {
        let mut changed = self.claims[last].clone();
        set(&mut changed);
        if changed.route != Some(0) {
            self.claims[last] = changed;
            return;
        }
        let other = self.new_claim(changed.substances, true);
        set(&mut self.claims[other]);
        self.last = Some(other);
    }

    /// Sets the unit of the amount without one, or keeps it for the next amount.
    fn set_unit(&mut self, unit: &Dose, pending: &mut Claim) {
        let claim = match self.last.and_then(|last| self.claims.get_mut(last)) {
            Some(claim) if pending.dose.is_none() => claim,
            _ => pending,
        };
        let size = unit.amounts.first().copied().unwrap_or(1.0);
        match claim.dose.as_mut() {
            Some(dose) if dose.kind == UnitKind::Bare => {
                dose.kind = unit.kind;
                dose.per = unit.per;
                dose.amounts.iter_mut().for_each(|amount| *amount *= size);
            }
            Some(_) => {}
            None => self.unit = Some(unit.clone()),
        }
    }
}

/// Returns the word among those before a dose that is taken for a medicine only because of the dose: the
/// nearest one that isn't a filler, if it is none of the words known here or everyday ones.
fn unlisted_before(before: &[Token<'_>]) -> Option<Substance> {
    let mut near = before.iter().rev().take(BACKWARD_TOKENS_MAX);
    let token = near.find(|t| !is_filler(t))?;
    let word = token.word()?;
    let is_unknown = word.len() >= UNLISTED_LETTERS_MIN
        && word.is_ascii()
        && !token.info().is_quantity()
        && token.info().flags == 0
        && token.info().times == 0
        && token.info().route.is_none()
        && !has_common_ending(word)
        && !EVERYDAY.contains(word);
    is_unknown.then(|| Substance::Other(stem(word), false))
}

/// Words between such a verb and the medicine.
const BEFORE_TAKEN: &str = "also still an a um uma tambem ainda some daily oral the";

/// Verbs before a word with an everyday meaning by which it is a medicine: "takes iron".
const TAKING_VERBS: &str = "take takes taking took uses using use receives receiving given on toma tomar tomando usa usar usando recebe recebendo supplement supplements suplemento prescribed added adicionado";

fn set_dose(claim: &mut Claim, found: &FoundDose) {
    if found.dose.is_some() {
        claim.dose.clone_from(&found.dose);
    }
    if found.pieces.is_some() {
        claim.pieces.clone_from(&found.pieces);
    }
    if let Some(schedule) = found.schedule {
        claim.schedule = Some(schedule);
    }
}

fn set_schedule(claim: &mut Claim, schedule: Schedule, named: Times) {
    if schedule.is_division {
        claim.portions = Some(schedule.per_day);
        claim.schedule.get_or_insert(Schedule::total(1.0));
        return;
    }
    // "every night at bedtime" is one part of the day.
    let is_same_part =
        schedule.is_day_part && !schedule.is_clock && claim.times & named & times::OF_DAY != 0;
    if !is_same_part || claim.schedule.is_none() {
        claim.schedule = Some(claim.schedule.map_or(schedule, |s| s.combine(schedule)));
    }
    claim.times |= named;
}

/// Narrows a route by another one about the same medicine. Of two that exclude each other, one that
/// only a form tells gives way; else no record can support them.
fn set_route(claim: &mut Claim, route: Routes) {
    claim.route = Some(match claim.route {
        None => route,
        Some(known) if known & route & !routes::FORM != 0 => known & route,
        Some(known) if route & routes::FORM != 0 => known,
        Some(known) if known & routes::FORM != 0 => route,
        Some(_) => 0,
    });
}

/// Returns whether a token may stand between an unlisted medicine and its dose.
fn is_filler(token: &Token<'_>) -> bool {
    match token.sign() {
        Some(sign) => matches!(
            sign,
            ':' | '(' | ',' | '-' | '=' | '"' | '\'' | '*' | '|' | '[' | '{'
        ),
        None => token.is(flags::FILLER | flags::ARTICLE),
    }
}

/// Returns whether a word ends like a verb, adverb or plural, as no medicine does.
fn has_common_ending(word: &str) -> bool {
    word_set!("ing ed ly ndo mente ado ada ido ida s cao tion ment ness").ends(word, 0)
}

/// Place of a part in its segment.
struct Segment<'p> {
    tokens: &'p [Token<'p>],
    parts: &'p [Part],
    n: usize,
    /// Number of claims before the segment.
    begins_at: usize,
    /// End of the medicine before the part; `None` if the segment has none there.
    medicine_end: Option<usize>,
    has_medicine_ahead: bool,
    /// Whether the segment names no medicine but speaks of a prescription.
    is_prescription: bool,
}

impl Segment<'_> {
    fn part(&self) -> &Part {
        &self.parts[self.n]
    }

    fn next(&self) -> Option<&Part> {
        self.parts.get(self.n + 1)
    }

    /// Returns the number of doses from this one to the next medicine or the end.
    fn doses_ahead(&self) -> usize {
        let ahead = self.parts[self.n..].iter().take_while(|p| !p.is_medicine());
        ahead.filter(|p| p.is_dose()).count()
    }

    fn has_each(&self) -> bool {
        let place = &self.part().place;
        let from = self.n.checked_sub(1).map_or(0, |n| self.parts[n].place.end);
        let after = self.tokens.get(place.end);
        self.tokens[from..place.start]
            .iter()
            .chain(after)
            .any(|t| t.is(flags::EACH))
    }

    /// Returns whether a dose belongs to the medicine after it: "5 mg amlodipine", "200 mg tablets
    /// of amiodarone", "50 mg once daily of losartan". Only schedules, routes and linking words may
    /// stand between them. Without `of` or `de`, it doesn't if the medicine before has no dose yet
    /// and is nearer: see [`Self::is_nearer_to_next`].
    fn belongs_to_next(&self, last_has_dose: bool) -> bool {
        let mut at = self.part().place.end;
        let mut is_linked = false;
        for part in &self.parts[self.n + 1..] {
            let between = &self.tokens[at..part.place.start];
            let is_link = |t: &Token<'_>| {
                t.is(flags::LINK)
                    || t.info().unit.is_some_and(|(kind, _)| kind.is_count())
                    || t.is_sign('-')
            };
            // "50 mg de succinato de metoprolol"
            let is_salt = matches!(between, [of, salt, rest @ ..]
                if of.is(flags::OF) && salt.word().is_some_and(|word| !EVERYDAY.contains(word))
                    && salt.info().flags == 0 && !salt.info().is_quantity() && rest.iter().all(is_link));
            if part.is_dose()
                || between.len() > FORWARD_TOKENS_MAX
                || !(is_salt || between.iter().all(is_link))
            {
                return false;
            }
            is_linked |= between.iter().any(|t| t.is(flags::OF));
            if part.is_medicine() {
                return is_linked || last_has_dose || self.is_nearer_to_next();
            }
            at = part.place.end;
        }
        false
    }

    /// Returns whether a sign or `and` separates the dose from the medicine before it: "losartan
    /// and 5 mg amlodipine".
    fn is_nearer_to_next(&self) -> bool {
        let Some(previous) = self.n.checked_sub(1).map(|n| &self.parts[n]) else {
            return true;
        };
        let between = &self.tokens[previous.place.end..self.part().place.start];
        between
            .iter()
            .any(|t| t.is(flags::AND) || t.is_sign(',') || t.is_sign('+'))
    }
}

/// Returns whether a segment speaks of a prescription, without naming a medicine: it takes, gives
/// or labels, or has nothing but parts.
fn is_prescription(tokens: &[Token<'_>], parts: &[Part]) -> bool {
    let mut at = 0;
    let mut only_parts = true;
    let mut is_taken = false;
    for part in parts {
        let gap = &tokens[at..part.place.start];
        only_parts &= gap.iter().all(is_field_gap);
        is_taken |= gap
            .iter()
            .any(|t| t.is(flags::TAKING) && !t.is_word(word_set!("on em")));
        at = part.place.end;
    }
    only_parts &= !parts.is_empty() && tokens[at..].iter().all(is_field_gap);
    only_parts || is_taken
}

/// Returns whether a token may stand in a line that consists of fields of a prescription.
fn is_field_gap(token: &Token<'_>) -> bool {
    let words = flags::FILLER | flags::LABEL | flags::AND | flags::ARTICLE;
    token.sign().is_some()
        || token.is(words)
        || token.is_word(word_set!("by through via using into often how"))
}
