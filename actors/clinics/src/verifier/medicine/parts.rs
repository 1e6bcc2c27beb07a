//! Parts of statements about medicines in a range of tokens: medicines, doses, schedules, routes.

use callboard_message::word_set;

use std::ops::Range;

use foldhash::{HashMap, HashSet};

use super::lexicon::{LEXICON, stem};
use super::model::{
    Bound, Dose, DosePer, Pieces, Routes, Schedule, Substance, Times, UnitKind, routes,
};
use super::number::{parse_number, unit_at};
use super::phrase::{FoundDose, bound_before, denominators, parse_bare_dose, parse_dose};
use super::schedule::{parse_as_needed, parse_duration, parse_route, parse_schedule};
use super::stance::is_negation;
use super::steps::count_step;
use super::token::Token;
use super::word_meanings::flags;

/// Maximum number of pieces that a number before a medicine may count.
const PIECES_MAX: f64 = 20.0;
/// Maximum number of signs around a value on a line of its own.
const SIGNS_MAX: usize = 4;
/// Maximum number of tokens between an ambiguous name and its dose.
pub(super) const FORWARD_TOKENS_MAX: usize = 3;
/// Maximum number of tokens between a word for a laboratory value or nutrient and its amount.
const MEASURED_TOKENS_MAX: usize = 5;
/// One kilogram in milligrams.
const KILOGRAM: f64 = 1e6;
/// Maximum number of tokens between other parts and a route of the same medicine.
const ROUTE_GAP_TOKENS_MAX: usize = 3;

/// Names of medicines that only the records know, by the stems of their words.
pub(super) type OtherNames = HashMap<String, Substance>;

/// Names of medicines that no list has, for one text.
#[derive(Clone, Copy)]
pub(super) struct Names<'n> {
    /// Names in the records.
    pub recorded: &'n OtherNames,
    /// Names that only the text's own subject has.
    pub own: &'n OtherNames,
    /// Substances in the records.
    pub substances: &'n HashSet<Substance>,
}

impl<'n> Names<'n> {
    /// Returns the medicine that a word names.
    fn get(self, word: &str) -> Option<&'n Substance> {
        if self.recorded.is_empty() && self.own.is_empty() {
            return None;
        }
        let stem = stem(word);
        self.recorded.get(&stem).or_else(|| self.own.get(&stem))
    }
}

#[derive(Debug, Clone)]
pub(super) enum Item {
    Medicine {
        substances: Vec<Substance>,
        /// Whether the name counts only beside a dose.
        is_weak: bool,
    },
    Dose(FoundDose),
    Schedule(Schedule, Times),
    Route(Routes),
    AsNeeded,
    Duration(f64),
    /// Unit in a field of its own, after an amount without one: the dose of one of it.
    Unit(Dose),
}

#[derive(Debug, Clone)]
pub(super) struct Part {
    pub place: Range<usize>,
    pub item: Item,
}

impl Part {
    pub fn is_medicine(&self) -> bool {
        matches!(self.item, Item::Medicine { .. })
    }

    pub fn is_dose(&self) -> bool {
        matches!(self.item, Item::Dose(_))
    }
}

/// Finds the parts in a range of tokens. Laboratory values, and schedules of other activities, are
/// left out. `knows_medicine` is set if a medicine was named before.
pub(super) fn find_parts(
    tokens: &[Token<'_>],
    range: Range<usize>,
    names: Names<'_>,
    knows_medicine: bool,
) -> Vec<Part> {
    let segment = &tokens[..range.end];
    let mut parts: Vec<Part> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let found = part_at(segment, at, &range, parts.last(), names, knows_medicine);
        let start = at;
        at += found.as_ref().map_or(1, |(_, taken)| (*taken).max(1));
        at = at.min(range.end);
        parts.extend(found.map(|(item, _)| Part {
            place: start..at,
            item,
        }));
    }
    let mut medicine_end = None;
    let mut is_kept = Vec::with_capacity(parts.len());
    for n in 0..parts.len() {
        let view = PartView {
            tokens: segment,
            range: &range,
            parts: &parts,
            n,
            medicine_end,
            knows_medicine,
        };
        is_kept.push(view.is_about_medicine());
        if parts[n].is_medicine() {
            medicine_end = Some(parts[n].place.end);
        }
    }
    let mut kept = is_kept.into_iter();
    parts.retain(|_| kept.next().unwrap_or(false));
    parts
}

fn part_at(
    tokens: &[Token<'_>],
    at: usize,
    range: &Range<usize>,
    last: Option<&Part>,
    names: Names<'_>,
    knows_medicine: bool,
) -> Option<(Item, usize)> {
    count_step();
    let rest = &tokens[at..];
    if let Some(found) = medicine_at(rest, names) {
        return Some(found);
    }
    if let Some(taken) = parse_as_needed(rest) {
        return Some((Item::AsNeeded, taken));
    }
    if let Some((days, taken)) = parse_duration(rest) {
        return Some((Item::Duration(days), taken));
    }
    if let Some(found) = parse_schedule(rest) {
        return Some((Item::Schedule(found.schedule, found.times), found.taken));
    }
    if let Some(found) = counted_medicine(rest, at > range.start, names) {
        let taken = found.taken;
        return Some((Item::Dose(found), taken));
    }
    if let Some(mut found) = parse_dose(rest) {
        if let Some(dose) = &mut found.dose {
            dose.bound = bound_before(&tokens[range.start..], at - range.start);
        }
        let taken = found.taken;
        return Some((Item::Dose(found), taken));
    }
    if let Some((route, taken)) = parse_route(rest) {
        return Some((Item::Route(route), taken));
    }
    if let Some(found) = labelled_amount(rest) {
        let taken = found.taken;
        return Some((Item::Dose(found), taken));
    }
    if rest[0].is(flags::UNIT_LABEL) {
        let is_sign = |t: &&Token<'_>| t.sign().is_some_and(|sign| sign != '%');
        let skip = 1 + rest[1..].iter().take(SIGNS_MAX).take_while(is_sign).count();
        if let Some((kind, size, taken)) = unit_at(rest, skip) {
            let mut dose = Dose::single(kind, size);
            let mut end = skip + taken;
            denominators(rest, &mut end, &mut dose);
            return Some((Item::Unit(dose), end));
        }
    }
    let is_amount = rest[0].number().is_some()
        && (follows_label(tokens, at, range, last)
            || knows_medicine && is_only_number(tokens, at, range));
    let found = is_amount.then(|| parse_bare_dose(rest)).flatten()?;
    let taken = found.taken;
    Some((Item::Dose(found), taken))
}

/// Parses an amount whose unit is in its label: "dose (mg): 50", "dose mg = 50".
fn labelled_amount(rest: &[Token<'_>]) -> Option<FoundDose> {
    if !rest.first()?.is(flags::LABEL) {
        return None;
    }
    let open = usize::from(matches!(rest.get(1)?.sign(), Some('(' | '[' | '_')));
    let (kind, size, taken) = unit_at(rest, 1 + open)?;
    let mut end = 1 + open + taken;
    let mut dose = Dose::single(kind, size);
    let schedule = denominators(rest, &mut end, &mut dose);
    let is_sign = |t: &&Token<'_>| t.sign().is_some();
    let signs = rest
        .get(end..)?
        .iter()
        .take(SIGNS_MAX)
        .take_while(is_sign)
        .count();
    let (value, more) = parse_number(rest.get(end + signs..)?)?;
    (signs > 0).then(|| FoundDose {
        dose: Some(dose.times(value)),
        schedule,
        taken: end + signs + more,
        ..FoundDose::default()
    })
}

/// Parses a number of pieces before the medicine: "two losartan 50 mg tablets", "two 50 mg losartan
/// tablets". In digits at the start of a line, it is rather the number of the line.
fn counted_medicine(rest: &[Token<'_>], is_inside: bool, names: Names<'_>) -> Option<FoundDose> {
    let first = rest.first()?;
    if first.number().is_some() && !is_inside {
        return None;
    }
    let (value, taken) = parse_number(rest)?;
    if value > PIECES_MAX {
        return None;
    }
    let strength = |at: usize| {
        let (_, digits) = parse_number(rest.get(at..)?)?;
        let (kind, _, unit) = unit_at(rest, at + digits)?;
        (!kind.is_count()).then_some(digits + unit)
    };
    let is_link = |t: &&Token<'_>| t.is(flags::OF | flags::ARTICLE);
    let mut end = taken + rest[taken..].iter().take(2).take_while(is_link).count();
    end += strength(end).unwrap_or(0);
    end += usize::from(rest.get(end)?.is(flags::OF));
    let (_, named) = medicine_at(rest.get(end..)?, names)?;
    end += named;
    end += strength(end).unwrap_or(0);
    let form = rest
        .get(end)
        .and_then(|t| t.info().unit)
        .filter(|(kind, _)| kind.is_count());
    // "half of the losartan"
    let (kind, _) = form.or((value < 1.0).then_some((UnitKind::Tablet, 1.0)))?;
    Some(FoundDose {
        pieces: Some(Pieces {
            kind,
            numbers: vec![value],
            may_be_total: false,
        }),
        taken,
        ..FoundDose::default()
    })
}

/// Returns whether a range of tokens has nothing but the number at index `at` and signs, and thus is
/// a value on a line of its own.
fn is_only_number(tokens: &[Token<'_>], at: usize, range: &Range<usize>) -> bool {
    let others = range.end - range.start - 1;
    others <= SIGNS_MAX && range.clone().all(|n| n == at || tokens[n].sign().is_some())
}

/// Returns the medicine at the start of `rest`, also one that only the records know.
fn medicine_at(rest: &[Token<'_>], names: Names<'_>) -> Option<(Item, usize)> {
    let word = rest.first()?.word()?;
    let info = rest[0].info();
    let is_other = info.is_quantity() || info.route.is_some() || info.flags & !flags::MEASURED != 0;
    if is_other {
        return None;
    }
    if let Some(substance) = names.get(word) {
        let more = rest[1..]
            .iter()
            .take_while(|t| t.word().and_then(|word| names.get(word)) == Some(substance));
        let taken = 1 + more.count();
        let item = Item::Medicine {
            substances: vec![substance.clone()],
            is_weak: false,
        };
        return Some((item, taken));
    }
    let found = LEXICON.find(rest)?;
    let item = Item::Medicine {
        substances: found.substances,
        is_weak: found.is_weak,
    };
    Some((item, found.taken))
}

/// Returns whether a number without a unit is an amount: directly after a medicine, or after a word
/// such as `dose`, with a sign or `is` between them.
fn follows_label(
    tokens: &[Token<'_>],
    at: usize,
    range: &Range<usize>,
    last: Option<&Part>,
) -> bool {
    let mut from = at;
    let is_between = |t: &Token<'_>| {
        let signs = [
            ':', '=', '"', '(', ')', '|', '*', '\'', '>', '[', '{', '→', '-', ',',
        ];
        t.sign().is_some_and(|sign| signs.contains(&sign))
    };
    while from > range.start && at - from < SIGNS_MAX && is_between(&tokens[from - 1]) {
        from -= 1;
    }
    let mut named = from;
    let is_form = |t: &Token<'_>| {
        t.info().unit.is_some_and(|(kind, _)| kind.is_count()) || t.is(flags::PREPARATION)
    };
    if named > range.start && is_form(&tokens[named - 1]) {
        named -= 1;
    }
    let after_medicine =
        last.is_some_and(|p| p.is_medicine() && (p.place.end == from || p.place.end == named));
    let is_labelled = from > range.start
        && (from < at || tokens[from - 1].is_word(word_set!("is of e")))
        && {
            let label = if from < at {
                from - 1
            } else {
                from.saturating_sub(2).max(range.start)
            };
            tokens[label].is_word(word_set!("dose dosage strength amount dosagem potencia value valor quantity qty quantidade posologia concentracao"))
        };
    after_medicine || is_labelled
}

/// Part with what stands around it.
struct PartView<'p> {
    tokens: &'p [Token<'p>],
    range: &'p Range<usize>,
    parts: &'p [Part],
    n: usize,
    /// End of the medicine before the part in the range; `None` if there is none.
    medicine_end: Option<usize>,
    /// Whether a medicine was named before the range.
    knows_medicine: bool,
}

impl PartView<'_> {
    /// Returns whether the part is about a medicine rather than a laboratory value, a nutrient, or
    /// another activity.
    fn is_about_medicine(&self) -> bool {
        let part = &self.parts[self.n];
        let from = self
            .n
            .checked_sub(1)
            .map_or(self.range.start, |n| self.parts[n].place.end);
        let before = &self.tokens[from..part.place.start];
        match &part.item {
            Item::Dose(found) => self.is_dose_of_medicine(found),
            Item::Schedule(..) | Item::Duration(_) => {
                let after = self.tokens.get(part.place.end);
                let is_activity = |t: &Token<'_>| t.is(flags::ACTIVITY);
                // "15 mg weekly, not daily"
                let is_denied = self.n > 0 && before.last().is_some_and(is_negation);
                !is_denied && !before.iter().any(is_activity) && !after.is_some_and(is_activity)
            }
            Item::Route(route) => {
                // "For plaques on the skin" isn't a route.
                let is_certain = part.place.len() > 1 && route & routes::SURFACE == 0
                    || self.tokens[part.place.start].text.ends_with("ly");
                let knows = self.medicine_end.is_some() || self.knows_medicine;
                let is_label = is_certain && knows && !before.iter().any(|t| t.is(flags::ACTIVITY))
                    || before
                        .iter()
                        .any(|t| t.is_word(word_set!("route via")) || t.is(flags::TAKING));
                let is_beside =
                    self.n > 0 && before.len() <= ROUTE_GAP_TOKENS_MAX && before.iter().all(is_gap);
                let is_before = self.parts.get(self.n + 1).is_some_and(|p| {
                    let between = &self.tokens[part.place.end..p.place.start];
                    between.len() <= 1 && between.iter().all(|t| t.is(flags::ARTICLE))
                });
                is_beside || is_before || is_label || part.place == *self.range
            }
            _ => true,
        }
    }

    fn is_dose_of_medicine(&self, found: &FoundDose) -> bool {
        let Some(dose) = &found.dose else { return true };
        if dose.per == Some(DosePer::Laboratory) {
            return false;
        }
        let place = &self.parts[self.n].place;
        let from = self.medicine_end.unwrap_or(self.range.start);
        let near = from.max(place.start.saturating_sub(MEASURED_TOKENS_MAX));
        let after = &self.tokens[place.end..];
        let is_measured = self.tokens[near..place.start]
            .iter()
            .any(|t| t.is(flags::MEASURED))
            || matches!(after, [of, what, ..] if of.is(flags::OF) && what.is(flags::MEASURED));
        let next = self
            .parts
            .get(self.n + 1)
            .filter(|p| p.place.start <= place.end + 2);
        let is_of_next = next.filter(|p| p.is_medicine()).is_some_and(|p| {
            let between = &self.tokens[place.end..p.place.start];
            between.iter().all(|t| t.is(flags::OF | flags::LINK))
        });
        if is_measured && !is_of_next {
            return false;
        }
        let is_doubtful = match dose.kind {
            UnitKind::Percent | UnitKind::Equivalent | UnitKind::Mole | UnitKind::Volume => true,
            // A body weight.
            UnitKind::Mass => dose.per.is_none() && dose.amounts.iter().all(|a| *a >= KILOGRAM),
            _ => false,
        };
        !is_doubtful || self.is_beside_medicine(place, next)
    }

    /// Returns whether an amount that may be something else than a dose stands beside a medicine, a
    /// schedule or route, a cream, or a label such as `dose`.
    fn is_beside_medicine(&self, place: &Range<usize>, next: Option<&Part>) -> bool {
        let from = self
            .n
            .checked_sub(1)
            .map_or(self.range.start, |n| self.parts[n].place.end);
        let before = &self.tokens[from..place.start];
        let is_cream = self.tokens[place.end..]
            .iter()
            .take(2)
            .any(|t| t.is(flags::PREPARATION));
        // A line of its own, before the medicine.
        let is_line = self.parts.len() == 1
            && self.range.len() <= place.len() + SIGNS_MAX
            && self.tokens[self.range.clone()]
                .iter()
                .enumerate()
                .all(|(n, t)| place.contains(&(n + self.range.start)) || t.sign().is_some());
        // "Plaques on elbows, about 8% of the body" tells no taking.
        let is_stated = before
            .iter()
            .any(|t| t.is(flags::LABEL | flags::TAKING) && !t.is_word(word_set!("on em")));
        let is_labelled = is_stated || before.iter().all(|t| t.sign().is_some());
        // "0.1% each time", "2% per dose"
        let after = &self.tokens[place.end..self.range.end.max(place.end)];
        let is_each = matches!(after, [each, time, ..] if each.is_word(word_set!("each every por cada"))
                && time.is_word(word_set!("time vez dose application")))
            || self.tokens[place.clone()]
                .iter()
                .any(|t| t.is_word(word_set!("dose application tomada")))
            || after.iter().take(2).any(|t| t.is(flags::TAKING));
        // "0.05% of betamethasone dipropionate", "de dipropionato de betametasona"
        let is_of_medicine = after.first().is_some_and(|t| t.is(flags::OF))
            && self.parts.get(self.n + 1).is_some_and(|p| {
                p.is_medicine() && p.place.start <= place.end + 1 + FORWARD_TOKENS_MAX
            });
        // "<b>Adapalene</b>, <i>0.1%</i>"
        let is_marked = self.medicine_end.is_some_and(|end| {
            let mut between = self.tokens[end..place.start].iter();
            between.all(|t| t.sign().is_some() || t.text.len() == 1 && !t.is(flags::AND))
        });
        self.medicine_end
            .is_some_and(|end| place.start <= end + FORWARD_TOKENS_MAX)
            || is_cream
            || is_line
            || is_each
            || is_of_medicine
            || is_marked
            || self.knows_medicine && is_labelled
            || self.medicine_end.is_some() && is_stated
            || next.is_some_and(|p| !p.is_dose())
    }
}

/// Returns whether a token may stand between two parts of one statement.
fn is_gap(token: &Token<'_>) -> bool {
    let words = flags::FILLER | flags::LABEL | flags::TAKING | flags::AND | flags::ARTICLE;
    token.sign().is_some()
        || token.is(words)
        || token.is_word(word_set!("by through via using into form por pela forma"))
}

/// Returns whether the bound of a dose leaves its amount open.
pub(super) fn is_open(bound: Bound) -> bool {
    bound != Bound::Exact
}
