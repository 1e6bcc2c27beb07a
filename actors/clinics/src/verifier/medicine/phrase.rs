//! Doses of a prescription, in English and Portuguese.

use callboard_message::word_set;

use super::model::{Amounts, Bound, Dose, DosePer, Pieces, Schedule, UnitKind};
use super::number::{parse_and_part, parse_number, unit_at};
use super::schedule::parse_schedule;
use super::token::Token;
use super::word_meanings::flags;

/// Maximum number of amounts in one dose; of three or more, all are of a combination.
const AMOUNTS_MAX: usize = 4;
/// Maximum number of tokens in brackets after a number of pieces that are searched for `each`.
const TOTAL_TOKENS_MAX: usize = 7;
/// Maximum number of tokens between "half a" and the word for a piece.
const HALF_TOKENS_MAX: usize = 4;

/// Dose at the start of a text.
#[derive(Debug, Clone, Default)]
pub(super) struct FoundDose {
    pub dose: Option<Dose>,
    pub pieces: Option<Pieces>,
    /// Schedule in the unit, as in mg/day.
    pub schedule: Option<Schedule>,
    /// Number of tokens.
    pub taken: usize,
}

fn word<'t>(tokens: &[Token<'t>], at: usize) -> &'t str {
    tokens.get(at).and_then(Token::word).unwrap_or_default()
}

fn sign(tokens: &[Token<'_>], at: usize, sign: char) -> bool {
    tokens.get(at).is_some_and(|t| t.is_sign(sign))
}

/// Returns the kind of a counted form, such as tablets, at index `at`.
fn form_at(tokens: &[Token<'_>], at: usize) -> Option<UnitKind> {
    let (kind, _) = tokens.get(at)?.info().unit?;
    kind.is_count().then_some(kind)
}

/// Parses a dose, or a number of pieces such as tablets, or both ("two 50 mg tablets"), at the
/// start of `tokens`; `None` if there is no number with a unit.
pub(super) fn parse_dose(tokens: &[Token<'_>]) -> Option<FoundDose> {
    if let Some(found) = relative_dose(tokens) {
        return Some(found);
    }
    let (first, at) = parse_number(tokens).or_else(|| article(tokens))?;
    if let Some(found) = at_a_time(tokens, first, at) {
        return Some(found);
    }
    if let Some(found) =
        part_of_piece(tokens, first, at).or_else(|| pieces_of_strength(tokens, first, at))
    {
        return Some(found);
    }
    let (mut found, kind) = amounts(tokens, first, at)?;
    let schedule = found
        .dose
        .as_mut()
        .and_then(|dose| denominators(tokens, &mut found.taken, dose));
    found.schedule = schedule;
    if kind.is_count() {
        into_pieces(tokens, &mut found);
    } else {
        strength(tokens, &mut found);
    }
    Some(found)
}

/// Parses a number of pieces at once: "two at a time", "dois por vez".
fn at_a_time(tokens: &[Token<'_>], number: f64, at: usize) -> Option<FoundDose> {
    let taken = match (word(tokens, at), word(tokens, at + 1), word(tokens, at + 2)) {
        ("at", "a", "time") | ("de", "cada", "vez") => 3,
        ("at", "once", _) | ("por", "vez", _) | ("each", "time", _) => 2,
        ("together", ..) => 1,
        _ => return None,
    };
    Some(FoundDose {
        pieces: Some(pieces(UnitKind::Tablet, number)),
        taken: at + taken,
        ..FoundDose::default()
    })
}

/// Parses an article before a form as one: "a tablet".
fn article(tokens: &[Token<'_>]) -> Option<(f64, usize)> {
    (tokens.first()?.is_word(word_set!("a an")) && form_at(tokens, 1).is_some()).then_some((1.0, 1))
}

/// Parses amounts and their unit, after the number `first`: "5-10 mg", "875/125 mg", "50 mg". The
/// unit may follow the last amount alone.
fn amounts(tokens: &[Token<'_>], first: f64, at: usize) -> Option<(FoundDose, UnitKind)> {
    let mut taken = at;
    let mut unit = unit_at(tokens, at);
    taken += unit.map_or(0, |(_, _, n)| n);
    let mut values = vec![(first, unit.map(|(_, size, _)| size))];
    let mut joints = Vec::new();
    while values.len() < AMOUNTS_MAX
        && let Some((joint, skip)) = joint_at(tokens, taken)
        && let Some((next, n)) = tokens.get(taken + skip..).and_then(parse_number)
    {
        let next_unit = unit_at(tokens, taken + skip + n);
        let same_kind = match (unit, next_unit) {
            (Some((a, ..)), Some((b, ..))) => a == b,
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !same_kind
            || unit.is_none() && next_unit.is_none() && !leads_to_unit(tokens, taken + skip + n)
        {
            break;
        }
        taken += skip + n + next_unit.map_or(0, |(_, _, n)| n);
        values.push((next, next_unit.map(|(_, size, _)| size)));
        joints.push(joint);
        unit = unit.or(next_unit);
    }
    // "50 and 5 mg": the first amount alone, with the unit of the second.
    let borrowed = || borrowed_unit(tokens, at);
    let (kind, size, _) = unit.or_else(borrowed)?;
    let last_size = values
        .iter()
        .rev()
        .find_map(|(_, size)| *size)
        .unwrap_or(size);
    let amounts: Vec<f64> = values
        .iter()
        .map(|(value, size)| value * size.unwrap_or(last_size))
        .collect();
    let relation = match joints.first() {
        None => Amounts::Single,
        Some(Joint::Range) if joints.len() == 1 => Amounts::Range,
        Some(_) => Amounts::Parts,
    };
    let mut dose = Dose::single(kind, 0.0);
    dose.amounts = amounts;
    dose.relation = relation;
    let found = FoundDose {
        dose: Some(dose),
        taken,
        ..FoundDose::default()
    };
    Some((found, kind))
}

/// Returns whether another joint, or a unit, follows.
fn leads_to_unit(tokens: &[Token<'_>], at: usize) -> bool {
    unit_at(tokens, at).is_some()
        || joint_at(tokens, at).is_some_and(|(_, skip)| {
            tokens
                .get(at + skip..)
                .and_then(parse_number)
                .is_some_and(|(_, n)| unit_at(tokens, at + skip + n).is_some())
        })
}

/// Returns the unit of the next number in a list with `and`: that of 5 in "50 and 5 mg".
fn borrowed_unit(tokens: &[Token<'_>], at: usize) -> Option<(UnitKind, f64, usize)> {
    if !tokens.get(at)?.is_word(word_set!("and e")) {
        return None;
    }
    let (_, taken) = parse_number(tokens.get(at + 1..)?)?;
    unit_at(tokens, at + 1 + taken).filter(|(kind, ..)| !kind.is_count())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joint {
    Range,
    Part,
}

/// Parses the sign or word at index `at` that connects two numbers of one dose, as in "5-10 mg" or
/// "875/125 mg". Returns the kind of connection and how many tokens it has; `None` if there is none.
fn joint_at(tokens: &[Token<'_>], at: usize) -> Option<(Joint, usize)> {
    let token = tokens.get(at)?;
    match token.sign() {
        Some('/') => Some((Joint::Part, 1)),
        Some('+') if sign(tokens, at + 1, '/') && sign(tokens, at + 2, '-') => {
            Some((Joint::Range, 3))
        }
        Some('+') => Some((Joint::Part, 1)),
        Some('-' | '±' | '~') => Some((Joint::Range, 1)),
        Some(_) => None,
        None => token
            .is_word(word_set!("to or ou a ate"))
            .then_some((Joint::Range, 1)),
    }
}

/// Turns a dose whose unit is a form into a number of pieces.
fn into_pieces(tokens: &[Token<'_>], found: &mut FoundDose) {
    let Some(dose) = found.dose.take() else {
        return;
    };
    let mut numbers = dose.amounts;
    if dose.relation == Amounts::Parts && numbers.len() == 2 && numbers[0] < numbers[1] {
        numbers = vec![numbers[0] / numbers[1]];
    }
    // "dois comprimidos e meio"
    if let Some((part, taken)) = tokens.get(found.taken..).and_then(parse_and_part)
        && numbers.len() == 1
        && form_at(tokens, found.taken + taken).is_none()
    {
        numbers[0] += part;
        found.taken += taken;
    }
    found.pieces = Some(Pieces {
        kind: dose.kind,
        numbers,
        may_be_total: is_total_after(tokens, found.taken),
    });
}

/// Returns whether a dose after a number of pieces may be their total: "2 tablets (50 mg)", but not
/// "2 tablets (50 mg each)".
fn is_total_after(tokens: &[Token<'_>], at: usize) -> bool {
    let opens = sign(tokens, at, '(') || sign(tokens, at, '=');
    let mut inside = tokens
        .get(at..)
        .unwrap_or_default()
        .iter()
        .take(TOTAL_TOKENS_MAX);
    opens && !inside.any(|t| t.is(flags::EACH) || t.is_word(word_set!("apiece per por")))
}

/// Parses what follows a dose that is the strength of one piece: "tablets", "tablets x 2".
fn strength(tokens: &[Token<'_>], found: &mut FoundDose) {
    let Some(dose) = found.dose.as_mut() else {
        return;
    };
    let form = form_at(tokens, found.taken);
    if let Some(kind) = form {
        dose.is_strength = true;
        // "50 mg tablets" is one phrase, but "50 mg, 2 tablets" are two.
        found.taken += 1;
        if let Some((n, taken)) = multiplier(tokens, found.taken) {
            found.pieces = Some(pieces(kind, n));
            found.taken += taken;
        } else if let Some(n) = cut_after(&tokens[found.taken..]) {
            found.pieces = Some(pieces(kind, n));
        }
    } else if let Some((n, taken)) = multiplier(tokens, found.taken) {
        let kind = form_at(tokens, found.taken + taken);
        found.pieces = Some(pieces(kind.unwrap_or(UnitKind::Tablet), n));
        found.taken += taken + usize::from(kind.is_some());
    } else if let Some(n) = cut_after(&tokens[found.taken..]) {
        found.pieces = Some(pieces(UnitKind::Tablet, n));
    }
}

/// Returns the part of a piece that is left if the words after it state that it is cut: "cut in
/// half".
fn cut_after(rest: &[Token<'_>]) -> Option<f64> {
    const CUTS: [(&str, &str); 7] = [
        ("in", "half"),
        ("cut", "in"),
        ("split", "in"),
        ("broken", "in"),
        ("into", "halves"),
        ("ao", "meio"),
        ("pela", "metade"),
    ];
    let near = &rest[..rest.len().min(TOTAL_TOKENS_MAX)];
    let is_cut = near.windows(2).any(|pair| {
        CUTS.iter()
            .any(|(a, b)| pair[0].word() == Some(a) && pair[1].word() == Some(b))
    });
    is_cut.then_some(0.5)
}

fn pieces(kind: UnitKind, number: f64) -> Pieces {
    Pieces {
        kind,
        numbers: vec![number],
        may_be_total: false,
    }
}

/// Parses a number of pieces after a strength: "x 2". A number of times a day or of days isn't one.
fn multiplier(tokens: &[Token<'_>], at: usize) -> Option<(f64, usize)> {
    if !tokens.get(at)?.is_word(word_set!("x")) && !sign(tokens, at, '*') {
        return None;
    }
    let (n, taken) = parse_number(tokens.get(at + 1..)?)?;
    let after = at + 1 + taken;
    let is_time = sign(tokens, after, '/')
        || tokens.get(after).is_some_and(|t| {
            let info = t.info();
            info.period.is_some()
                || info.schedule.is_some()
                || t.is_word(word_set!("a ao per por times vezes x na"))
        });
    (!is_time).then_some((n, 1 + taken))
}

/// Words between a part and the piece that it is of: "half of each tablet".
const BEFORE_PIECE: &str = "a an of de um uma the do da one each cada his her their this that";

/// Parses a part of a piece: "half a tablet", "half of a 200 mg tablet", "half of 50 mg". `value` is
/// the number before, and `at` the index of the token after it. `None` if the number isn't below 1,
/// or no word for a piece follows within [`HALF_TOKENS_MAX`] tokens, nor `of` and a dose. The phrase
/// ends before a strength such as "200 mg tablet", which is then a dose of its own.
fn part_of_piece(tokens: &[Token<'_>], value: f64, at: usize) -> Option<FoundDose> {
    if value >= 1.0 {
        return None;
    }
    let skip = tokens[at..]
        .iter()
        .take(HALF_TOKENS_MAX)
        .take_while(|t| t.is_word(word_set!(BEFORE_PIECE)))
        .count();
    let from = at + skip;
    let part = |kind: UnitKind, taken: usize| {
        Some(FoundDose {
            pieces: Some(pieces(kind, value)),
            taken,
            ..FoundDose::default()
        })
    };
    let ahead = tokens[from..].iter().take(HALF_TOKENS_MAX + 1).enumerate();
    let mut forms = ahead.filter_map(|(n, t)| Some((n, t.info().unit?.0)));
    match forms.find(|(_, kind)| kind.is_count()) {
        Some((n, kind)) if skip > 0 || n == 0 || tokens[from].number().is_some() => {
            part(kind, from + usize::from(n == 0))
        }
        _ => {
            let is_of = tokens[at..from].iter().any(|t| t.is(flags::OF));
            let amount = tokens.get(from..).and_then(parse_number).filter(|_| is_of);
            let (_, taken) = amount?;
            unit_at(tokens, from + taken)?;
            part(UnitKind::Tablet, from)
        }
    }
}

/// Parses a dose relative to another one: "half the recorded dose", "double dose", "o dobro da
/// dose". It is read as pieces of a dose.
fn relative_dose(tokens: &[Token<'_>]) -> Option<FoundDose> {
    let first = tokens.first()?.word()?;
    let factor = match first {
        "half" | "metade" => 0.5,
        "quarter" => 0.25,
        "third" => 1.0 / 3.0,
        "double" | "twice" | "dobro" => 2.0,
        "triple" | "triplo" => 3.0,
        _ => return None,
    };
    // "takes only half", "half once daily"
    let is_alone = matches!(first, "half" | "metade")
        && tokens.get(1).is_none_or(|t| {
            t.is_sign(',') || t.is_sign(')') || parse_schedule(&tokens[1..]).is_some()
        });
    if is_alone {
        return Some(FoundDose {
            pieces: Some(pieces(UnitKind::Tablet, 0.5)),
            taken: 1,
            ..FoundDose::default()
        });
    }
    let is_link = |t: &&Token<'_>| {
        t.is_word(word_set!(BEFORE_PIECE)) || t.is_sign('-') || t.is_word(word_set!(RELATED_DOSES))
    };
    let skip = tokens[1..]
        .iter()
        .take(HALF_TOKENS_MAX)
        .take_while(is_link)
        .count();
    let is_dose = |at: usize| {
        let words = word_set!("it them dose dosage amount dosagem quantity quantidade");
        tokens.get(at).is_some_and(|t| t.is_word(words))
    };
    // "twice the losartan dose": the medicine stays.
    let is_before_name = || !word(tokens, 1 + skip).is_empty() && is_dose(2 + skip);
    let taken = match is_dose(1 + skip) {
        true => 2 + skip,
        false if is_before_name() => 1 + skip,
        false => return None,
    };
    Some(FoundDose {
        pieces: Some(pieces(UnitKind::Tablet, factor)),
        taken,
        ..FoundDose::default()
    })
}

/// Words that tell to which dose another one is relative.
const RELATED_DOSES: &str = "recorded usual prescribed normal current previous original registrada habitual prescrita atual anterior standard listed daily";

/// Parses pieces of a stated strength: "two 25 mg tablets", "2 x 25 mg". `number` is the number
/// before, and `at` the index of the token after it.
fn pieces_of_strength(tokens: &[Token<'_>], number: f64, at: usize) -> Option<FoundDose> {
    let is_times = word(tokens, at) == "x" || sign(tokens, at, '*');
    let from = at + usize::from(is_times);
    let links = tokens
        .get(from..)?
        .iter()
        .take(2)
        .take_while(|t| t.is_word(word_set!("of the de dos das")))
        .count();
    let strength_at = from + links;
    let (amount, taken) = parse_number(tokens.get(strength_at..)?)?;
    let (found, kind) = amounts(&tokens[strength_at..], amount, taken)?;
    if kind.is_count() || number > 20.0 {
        return None;
    }
    let mut end = strength_at + found.taken;
    let mut dose = found.dose?;
    let schedule = denominators(tokens, &mut end, &mut dose);
    let form = form_at(tokens, end);
    if !is_times && form.is_none() {
        return None;
    }
    dose.is_strength = true;
    Some(FoundDose {
        dose: Some(dose),
        pieces: Some(pieces(form.unwrap_or(UnitKind::Tablet), number)),
        schedule,
        taken: end + usize::from(form.is_some()),
    })
}

/// Parses the denominators that follow a unit: "/kg/day", "per m2", "a day". Sets the dose's
/// reference quantity, converts amounts such as "/5 mL" to 1 mL, and moves `at` behind the last
/// denominator. Those such as "/dose" or "per tablet" have no other effect. Returns the schedule if
/// there is one.
pub(super) fn denominators(
    tokens: &[Token<'_>],
    at: &mut usize,
    dose: &mut Dose,
) -> Option<Schedule> {
    let mut schedule = None;
    loop {
        let article = match word(tokens, *at) {
            "" if sign(tokens, *at, '/') => false,
            "per" | "por" => false,
            "a" | "ao" | "each" | "an" | "cada" | "every" => true,
            _ => return schedule,
        };
        let counted = tokens
            .get(*at + 1)
            .and_then(Token::number)
            .filter(|n| *n > 0.0);
        let name_at = *at + 1 + usize::from(counted.is_some());
        let name = word(tokens, name_at);
        let info = match tokens.get(name_at) {
            Some(token) if !name.is_empty() => token.info(),
            _ => return schedule,
        };
        let squared = name == "m" && tokens.get(name_at + 1).and_then(Token::number) == Some(2.0);
        let is_interval = article && matches!(word(tokens, *at), "each" | "cada" | "every");
        let mut taken = 1;
        match name {
            // "50 mg every 8 hours" is a dose and its schedule.
            _ if is_interval => return schedule,
            _ if info.period.is_some() && !(article && counted.is_some()) => {
                let per_day = info.period.unwrap_or_default() / counted.unwrap_or(1.0);
                if per_day <= 1.0 {
                    schedule = Some(Schedule::total(per_day));
                } else if dose.kind == UnitKind::Volume && per_day > 24.0 {
                    dose.per = Some(DosePer::Laboratory);
                } else {
                    dose.per = Some(DosePer::Hour);
                    let factor = per_day / 24.0;
                    dose.amounts.iter_mut().for_each(|a| *a *= factor);
                }
            }
            _ if article => return schedule,
            "kg" | "kilo" | "quilo" | "kilogram" | "kilograms" => dose.per = Some(DosePer::Weight),
            "m" if squared => {
                dose.per = Some(DosePer::Surface);
                taken = 2;
            }
            "l" | "litres" | "dl" | "litre" | "liter" | "litro" | "mm" | "mmol" | "decilitre"
            | "deciliter" | "hg" => {
                dose.per = Some(DosePer::Laboratory);
            }
            _ if info.unit.is_some_and(|(kind, _)| kind == UnitKind::Volume) => {
                let is_laboratory = dose.kind == UnitKind::Mass
                    && tokens[..*at]
                        .iter()
                        .any(|t| t.is_word(word_set!("ng pg nanograms nanogramas picograms")));
                dose.per = Some(if is_laboratory {
                    DosePer::Laboratory
                } else {
                    DosePer::Millilitre
                });
                let volume = counted.unwrap_or(1.0) * info.unit.map_or(1.0, |(_, size)| size);
                dose.amounts.iter_mut().for_each(|a| *a /= volume);
            }
            _ if info.unit.is_some_and(|(kind, _)| kind == UnitKind::Mass) => {
                dose.per = Some(DosePer::Laboratory);
            }
            "dose" | "doses" | "actuation" | "application" | "injection" | "tomada" => {}
            _ if info.unit.is_some_and(|(kind, _)| kind.is_count()) => {}
            _ => return schedule,
        }
        *at = name_at + taken;
    }
}

/// Parses a number without a unit as a dose: the number after a medicine or a word such as `dose`,
/// also several with `/` between them. It must end the sentence, or a sign or schedule must follow. A
/// year isn't a dose.
pub(super) fn parse_bare_dose(tokens: &[Token<'_>]) -> Option<FoundDose> {
    let (value, mut taken) = parse_number(tokens)?;
    let is_year = (1900.0..2100.0).contains(&value) && tokens[0].text.len() == 4;
    let mut amounts = vec![value];
    while amounts.len() < AMOUNTS_MAX
        && sign(tokens, taken, '/')
        && let Some(next) = tokens.get(taken + 1).and_then(Token::number)
    {
        amounts.push(next);
        taken += 2;
    }
    let rest = &tokens[taken..];
    let ends = match rest.first() {
        None => true,
        Some(next) => {
            matches!(
                next.sign(),
                Some(',' | ')' | '|' | '"' | '}' | ']' | '<' | '*' | '_' | '`')
            ) || parse_schedule(rest).is_some()
                || is_fragment(next)
        }
    };
    if is_year || !ends || amounts.iter().any(|amount| *amount <= 0.0) {
        return None;
    }
    let mut dose = Dose::single(UnitKind::Bare, value);
    if amounts.len() > 1 {
        dose.relation = Amounts::Parts;
    }
    dose.amounts = amounts;
    Some(FoundDose {
        dose: Some(dose),
        taken,
        ..FoundDose::default()
    })
}

/// Returns whether a token may be a fragment of a unit: one to three letters without a meaning.
fn is_fragment(token: &Token<'_>) -> bool {
    let info = token.info();
    token.word().is_some_and(|word| word.len() <= 3)
        && info.flags == 0
        && info.times == 0
        && info.route.is_none()
        && !info.is_quantity()
}

/// Returns how the real amount relates to the one at index `at`, by the words or sign before it.
pub(super) fn bound_before(tokens: &[Token<'_>], at: usize) -> Bound {
    let before = |n: usize| at.checked_sub(n).and_then(|at| tokens.get(at));
    let last = before(1);
    // A tag such as `<dose>` isn't a comparison.
    let is_tag = last.is_some_and(|t| t.is_glued) && before(2).is_some_and(|t| t.word().is_some());
    if last.is_some_and(|t| t.is_sign('>')) && !is_tag {
        return Bound::Above;
    }
    if last.is_some_and(|t| t.is_sign('<')) {
        return Bound::Below;
    }
    if last.is_some_and(|t| t.is_word(word_set!("than de que"))) {
        return match before(2) {
            Some(t) if t.is_word(word_set!("more greater higher mais maior acima")) => Bound::Above,
            Some(t) if t.is_word(word_set!("less lower fewer menos menor abaixo")) => Bound::Below,
            _ => Bound::Exact,
        };
    }
    match last {
        Some(t) if t.is(flags::ABOVE) => Bound::Above,
        Some(t) if t.is(flags::BELOW) => Bound::Below,
        _ => Bound::Exact,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::fold;
    use crate::verifier::medicine::token::{Text, join_dotted};

    fn parse(text: &str) -> Option<FoundDose> {
        let folded = fold(text);
        let joined = join_dotted(&folded);
        parse_dose(&Text::read(&joined).tokens)
    }

    /// Goal: all spellings of an amount are equal. Method: a table of doses in base units.
    #[test]
    fn doses() {
        for (text, kind, amounts) in [
            ("200 mg", UnitKind::Mass, vec![200.0]),
            ("200-mg", UnitKind::Mass, vec![200.0]),
            ("500 m g", UnitKind::Mass, vec![500.0]),
            ("0.2 g", UnitKind::Mass, vec![200.0]),
            ("1,500 mg", UnitKind::Mass, vec![1500.0]),
            ("50 µg", UnitKind::Mass, vec![0.05]),
            ("200-400 mg", UnitKind::Mass, vec![200.0, 400.0]),
            ("200 mg to 400 mg", UnitKind::Mass, vec![200.0, 400.0]),
            ("875/125 mg", UnitKind::Mass, vec![875.0, 125.0]),
            ("875 mg + 125 mg", UnitKind::Mass, vec![875.0, 125.0]),
            ("160/25/10 mg", UnitKind::Mass, vec![160.0, 25.0, 10.0]),
            ("two hundred milligrams", UnitKind::Mass, vec![200.0]),
            ("5000 UI", UnitKind::Activity, vec![5000.0]),
            ("1.2 million units", UnitKind::Activity, vec![1.2e6]),
            ("250 mg/5 mL", UnitKind::Mass, vec![50.0]),
            ("10 ± 2 mg", UnitKind::Mass, vec![10.0, 2.0]),
            ("10 +/- 2 mg", UnitKind::Mass, vec![10.0, 2.0]),
            ("5 mg +/", UnitKind::Mass, vec![5.0]),
            ("50 and 5 mg", UnitKind::Mass, vec![50.0]),
        ] {
            let found = parse(text)
                .and_then(|f| f.dose)
                .map(|d| (d.kind, d.amounts));
            assert_eq!(found, Some((kind, amounts)), "{text}");
        }
    }

    /// Goal: numbers of pieces are told from strengths. Method: a table of numbers and strengths.
    #[test]
    fn counted_pieces() {
        for (text, number, strength) in [
            ("half a tablet", 0.5, None),
            ("a tablet", 1.0, None),
            ("½ tablet", 0.5, None),
            ("2½ tablets", 2.5, None),
            ("meio comprimido", 0.5, None),
            ("dois comprimidos e meio", 2.5, None),
            ("half of a 200 mg tablet", 0.5, None),
            ("two 50 mg tablets", 2.0, Some(50.0)),
            ("couple of 50 mg tablets", 2.0, Some(50.0)),
            ("two of the 50 mg tablets", 2.0, Some(50.0)),
            ("half the recorded dose", 0.5, None),
            ("half of it", 0.5, None),
            ("two at a time", 2.0, None),
            ("quarter of a tablet", 0.25, None),
            ("double dose", 2.0, None),
            ("half of 50 mg", 0.5, None),
            ("half of each tablet", 0.5, None),
            ("two 50-mg tablets", 2.0, Some(50.0)),
            ("2 x 500 mg", 2.0, Some(500.0)),
            ("2 500 mg tablets", 2.0, Some(500.0)),
            ("25 mg tablets x 2", 2.0, Some(25.0)),
        ] {
            let found = parse(text).unwrap_or_default();
            let dose = found.dose.map(|d| d.amounts[0]);
            assert_eq!(
                (found.pieces.map(|p| p.numbers[0]), dose),
                (Some(number), strength),
                "{text}"
            );
        }
        for text in ["50 mg x 2/day", "50 mg x 7 days", "50 mg"] {
            assert!(parse(text).is_some_and(|f| f.pieces.is_none()), "{text}");
        }
    }

    /// Goal: laboratory values are no doses. Method: a table of reference quantities.
    #[test]
    fn reference_quantities() {
        for (text, per) in [
            ("98 mg/dL", DosePer::Laboratory),
            ("4.1 mmol/L", DosePer::Laboratory),
            ("30 mg/g", DosePer::Laboratory),
            ("0.9 ng/mL", DosePer::Laboratory),
            ("60 mL/min", DosePer::Laboratory),
            ("25 mcg/h", DosePer::Hour),
            ("5 mg/kg", DosePer::Weight),
            ("75 mg/m²", DosePer::Surface),
        ] {
            let found = parse(text).and_then(|f| f.dose).and_then(|d| d.per);
            assert_eq!(found, Some(per), "{text}");
        }
    }

    /// Goal: an incomplete dose at the end of a text is no dose. Method: ends.
    #[test]
    fn unfinished() {
        for text in ["2+/", "5 +/", "2+", "3 x", "200-", "half of", "a"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
