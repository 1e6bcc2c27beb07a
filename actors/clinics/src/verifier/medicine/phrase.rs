//! Phrases of a prescription: doses, schedules, routes, in English and Portuguese.

use std::sync::LazyLock;

use callboard_message::text::{WordTable, is_one_of, word_table};

use super::Dose;
use super::token::{Token, UnitKind, parse_number_words, period_per_day, unit_of_word};

/// Reference quantity of a dose, other than time, such as body weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DosePer {
    /// Per kilogram of body weight.
    Weight,
    /// Per square metre of body surface.
    Surface,
    /// Per millilitre: the strength of a liquid. Laboratory values in this unit aren't told apart.
    Millilitre,
    /// Per litre, decilitre, `mm` or `mmol`: a laboratory value, not a dose.
    LabVolume,
}

/// Route of administration, as one English word for all its synonyms.
pub(super) type RouteName = &'static str;

fn word(tokens: &[Token], at: usize) -> Option<&str> {
    tokens.get(at)?.as_word()
}

fn sign(tokens: &[Token], at: usize, sign: char) -> bool {
    tokens.get(at).is_some_and(|t| t.is_sign(sign))
}

/// Parses a number at the start of `tokens`, in digits or words, with a fraction ("2 1/2") or a
/// multiplier ("2 million") after it. Returns the number and how many tokens it has; `None` if
/// there is no number. Of a fraction alone, only the numerator is parsed.
fn parse_number(tokens: &[Token]) -> Option<(f64, usize)> {
    let (value, taken) = match tokens.first()? {
        Token::Number(v) => (*v, 1),
        Token::Word(_) => {
            let words: Vec<&str> = tokens.iter().map_while(Token::as_word).take(8).collect();
            parse_number_words(&words)?
        }
        Token::Sign(_) => return None,
    };
    if let (Some(Token::Number(over)), true, Some(Token::Number(under))) = (
        tokens.get(taken),
        sign(tokens, taken + 1, '/'),
        tokens.get(taken + 2),
    ) && over < under
    {
        return Some((value + over / under, taken + 3));
    }
    match word(tokens, taken) {
        Some("thousand" | "mil") => Some((value * 1e3, taken + 1)),
        Some("million" | "milhao" | "milhoes") => Some((value * 1e6, taken + 1)),
        _ => Some((value, taken)),
    }
}

/// Parses a route of administration at the start of `tokens`. Returns the route and how many tokens
/// it has; `None` if there is none.
pub(super) fn parse_route(tokens: &[Token]) -> Option<(RouteName, usize)> {
    let first = word(tokens, 0)?;
    match (first, word(tokens, 1)) {
        ("by", Some("mouth")) | ("via", Some("oral")) => Some(("oral", 2)),
        _ => Some((*ROUTES.get(first)?, 1)),
    }
}

static ROUTES: WordTable<RouteName> = LazyLock::new(|| {
    word_table(&[
        ("oral orally po vo oralmente", "oral"),
        (
            "iv ev intravenous intravenously intravenosa intravenoso endovenosa endovenoso",
            "intravenous",
        ),
        ("im intramuscular intramuscularly", "intramuscular"),
        (
            "sc sq subcutaneous subcutaneously subcutanea subcutaneo",
            "subcutaneous",
        ),
        ("topical topically topica topico cutaneous", "topical"),
        ("inhaled inalatoria inalado inhalational", "inhaled"),
        ("sublingual sublingually sl", "sublingual"),
        ("rectal rectally retal", "rectal"),
        ("nasal intranasal intranasally", "nasal"),
        ("ophthalmic ocular oftalmica oftalmico", "ophthalmic"),
        ("transdermal transdermica", "transdermal"),
        ("vaginal vaginally", "vaginal"),
    ])
});

/// Returns whether a sentence holds a negation, a word such as `absent` or `unknown`, or the number
/// 0 in digits.
pub(super) fn denies(tokens: &[Token]) -> bool {
    tokens.iter().any(|t| match t {
        Token::Number(n) => *n == 0.0,
        Token::Word(w) => is_one_of(
            w,
            "no not never without denies denied none nobody nothing neither nao nenhum \
            nenhuma sem nega nunca ninguem nada t absent unknown",
        ),
        Token::Sign(_) => false,
    })
}

/// Returns whether a token names a preparation for skin or eye, such as a cream.
pub(super) fn is_preparation(token: &Token) -> bool {
    const WORDS: &str = "cream ointment gel lotion shampoo solution creme pomada locao colirio";
    token.as_word().is_some_and(|w| is_one_of(w, WORDS))
}

/// Returns whether a token may stand between a dose and the medicine after it.
pub(super) fn is_link_or_form(token: &Token) -> bool {
    token.as_word().is_some_and(|w| {
        is_one_of(w, "of de do da the oral iv")
            || unit_of_word(w).is_some_and(|(kind, _)| kind.is_count())
    })
}

/// Returns whether a token may stand between a dose and a word before it that counts as a medicine
/// only because of the dose. After other medicines, any token may.
pub(super) fn is_filler(token: &Token) -> bool {
    match token {
        Token::Word(w) => is_one_of(
            w,
            "at a an the of is was dose dosage doses to in with on de do da na em uma um foi dosagem oral orally iv \
            po total about approximately up as for s and",
        ),
        Token::Sign(s) => matches!(s, ':' | '(' | ',' | '-' | '=' | '"' | '\'' | '*' | '|'),
        Token::Number(_) => false,
    }
}

/// Returns whether a word before an amount is an ordinary word and thus not an unlisted medicine.
pub(super) fn is_ordinary(word: &str) -> bool {
    const WORDS: &str = "about added additional administered adjusted amount another approximately around aumentada \
        aumentado average below bolus comprimidos continue continued continues cream current currently daily dosagem \
        doses dosed either every exactly extra first followed full given gives gram increase increased infusion \
        initial initially injection least level loading maintenance maximum medication medicine medicamento minimum \
        mesma needs ointment patient paciente pediatric plus prescribed prescribe prescription quantity receive \
        received receives receiving recebe recebeu reduced remains same second single solution start started \
        starting strength strong syrup tablet tablets takes taking taper tapered target than their then third \
        titrated tomar tomou total treatment twice under using usual weight weighing weighed which within capsules \
        drops dosage toma usava usando";
    is_one_of(word, WORDS)
}

/// Parses a unit at index `at`. Returns its kind, its size in the base unit of the kind, and how
/// many tokens it has; `None` if there is no unit.
fn unit_at(tokens: &[Token], at: usize) -> Option<(UnitKind, f64, usize)> {
    if sign(tokens, at, '%') {
        return Some((UnitKind::Percent, 1.0, 1));
    }
    match (word(tokens, at)?, word(tokens, at + 1)) {
        ("micro", Some("g" | "gram" | "grams" | "grama" | "gramas")) => {
            Some((UnitKind::Mass, 1e-3, 2))
        }
        ("international", Some("units" | "unit")) | ("unidades", Some("internacionais")) => {
            Some((UnitKind::Activity, 1.0, 2))
        }
        ("per" | "por", Some("cent" | "cento")) => Some((UnitKind::Percent, 1.0, 2)),
        (w, next) => {
            let (kind, size) = unit_of_word(w)?;
            let twice = kind == UnitKind::Activity && matches!(next, Some("units" | "unit"));
            Some((kind, size, 1 + usize::from(twice)))
        }
    }
}

/// Parses a dose, or a number of pieces such as tablets, at the start of `tokens`. Returns it, the
/// schedule in its unit (mg/day) if there is one, and how many tokens both have; `None` if there is
/// no number with a unit.
pub(in crate::verifier::medicine) fn parse_dose(
    tokens: &[Token],
) -> Option<(Dose, Option<Schedule>, usize)> {
    let (first, mut at) = parse_number(tokens)?;
    if let Some(halved) = parse_half_dose(tokens, first, at) {
        return Some(halved);
    }
    let first_unit = unit_at(tokens, at);
    at += first_unit.map_or(0, |(_, _, taken)| taken);
    let (kind, amounts) = if let Some((joint, skip)) = parse_joint(tokens, at)
        && let Some((second, taken)) = tokens.get(at + skip..).and_then(parse_number)
        && let Some((kind, size, n)) = unit_at(tokens, at + skip + taken)
        && first_unit.is_none_or(|(k, _, _)| k == kind)
    {
        at += skip + taken + n;
        let first_size = first_unit.map_or(size, |(_, s, _)| s);
        let amounts = match joint {
            NumberJoint::Times => vec![first * second * size],
            NumberJoint::Fraction if kind.is_count() && first < second => vec![first / second],
            NumberJoint::Fraction | NumberJoint::Range => vec![first * first_size, second * size],
        };
        (kind, amounts)
    } else {
        let (kind, size, _) = first_unit?;
        (kind, vec![first * size])
    };
    let mut dose = Dose {
        kind,
        amounts,
        per: None,
        is_strength: false,
    };
    let schedule = parse_denominators(tokens, &mut at, &mut dose);
    dose.is_strength = !kind.is_count()
        && word(tokens, at)
            .and_then(unit_of_word)
            .is_some_and(|(k, _)| k.is_count());
    Some((dose, schedule, at))
}

/// Parses a dose of a part of a piece: "half a tablet", "half of a 200 mg tablet". `value` is the
/// number before, and `at` the index of the token after it. `None` if the number isn't below 1, no
/// article or `of` follows it, or no word for a piece follows that within four tokens. Returns the
/// same as [`parse_dose`], always without a schedule. The count ends before a strength such as
/// "200 mg tablet", which is then parsed as a dose of its own.
fn parse_half_dose(
    tokens: &[Token],
    value: f64,
    at: usize,
) -> Option<(Dose, Option<Schedule>, usize)> {
    let skip = tokens[at..]
        .iter()
        .take_while(|t| matches!(t.as_word(), Some("a" | "an" | "of" | "de" | "um" | "uma")))
        .count();
    if skip == 0 || value >= 1.0 {
        return None;
    }
    let from = at + skip;
    let ahead = tokens[from..].iter().take(4).enumerate();
    let mut pieces = ahead
        .filter_map(|(n, t)| Some((n, unit_of_word(t.as_word()?)?.0)))
        .filter(|(_, kind)| kind.is_count());
    let (n, kind) = pieces.next()?;
    let dose = Dose {
        kind,
        amounts: vec![value],
        per: None,
        is_strength: false,
    };
    Some((dose, None, from + usize::from(n == 0)))
}

enum NumberJoint {
    Range,
    Fraction,
    Times,
}

/// Parses the sign or word at index `at` that connects two numbers of one dose, as in "5-10 mg" or
/// "2 x 5 mg". Returns the kind of connection and how many tokens it has; `None` if there is none.
fn parse_joint(tokens: &[Token], at: usize) -> Option<(NumberJoint, usize)> {
    match (tokens.get(at)?, word(tokens, at)) {
        (Token::Sign('/'), _) => Some((NumberJoint::Fraction, 1)),
        (Token::Sign('-' | '±' | '~'), _) | (_, Some("to" | "or" | "ou" | "a" | "ate")) => {
            Some((NumberJoint::Range, 1))
        }
        (Token::Sign('+'), _) if sign(tokens, at + 1, '/') && sign(tokens, at + 2, '-') => {
            Some((NumberJoint::Range, 3))
        }
        (_, Some("x")) => Some((NumberJoint::Times, 1)),
        _ => None,
    }
}

/// Parses the denominators that follow a unit: "/kg/day", "per m2", "a day". Sets the dose's
/// reference quantity, converts amounts such as "/5 mL" to 1 mL, and moves `at` behind the last
/// denominator. Those such as "/dose" or "per tablet" have no other effect. Returns the schedule if
/// there is one.
fn parse_denominators(tokens: &[Token], at: &mut usize, dose: &mut Dose) -> Option<Schedule> {
    let mut schedule = None;
    loop {
        let article = match word(tokens, *at) {
            None if sign(tokens, *at, '/') => false,
            Some("per" | "por") => false,
            Some("a" | "ao" | "each" | "an") => true,
            _ => return schedule,
        };
        let counted = match tokens.get(*at + 1) {
            Some(Token::Number(n)) if *n > 0.0 => Some(*n),
            _ => None,
        };
        let name_at = *at + 1 + usize::from(counted.is_some());
        let Some(name) = word(tokens, name_at) else {
            return schedule;
        };
        let squared = matches!(tokens.get(name_at + 1), Some(Token::Number(n)) if *n == 2.0);
        let mut taken = 1;
        let period = period_per_day(name);
        match name {
            _ if period.is_some() => {
                schedule = period.map(|p| Schedule::total(p / counted.unwrap_or(1.0)))
            }
            _ if article => return schedule,
            "kg" | "kilo" | "quilo" | "kilogram" => dose.per = Some(DosePer::Weight),
            "m" if squared => {
                dose.per = Some(DosePer::Surface);
                taken = 2;
            }
            "ml" | "millilitre" | "milliliter" => {
                dose.per = Some(DosePer::Millilitre);
                let volume = counted.unwrap_or(1.0);
                dose.amounts.iter_mut().for_each(|a| *a /= volume);
            }
            "l" | "dl" | "litre" | "liter" | "mm" | "mmol" => dose.per = Some(DosePer::LabVolume),
            "dose" | "doses" | "day1" => {}
            _ if unit_of_word(name).is_some_and(|(k, _)| k.is_count()) => {}
            _ => return schedule,
        }
        *at = name_at + taken;
    }
}

/// Frequency of a dose.
#[derive(Clone, Copy)]
pub(in crate::verifier::medicine) struct Schedule {
    /// Number of times a day; below 1 for every other day, weekly and so on.
    pub per_day: f64,
    /// Whether the dose is the total of a day or other period ("1 g a day", "1 g daily"), however
    /// it is divided.
    pub total: bool,
    part_of_day: bool,
}

impl Schedule {
    fn times(per_day: f64) -> Self {
        Self {
            per_day,
            total: false,
            part_of_day: false,
        }
    }

    fn total(per_day: f64) -> Self {
        Self {
            per_day,
            total: true,
            part_of_day: false,
        }
    }

    fn part_of_day() -> Self {
        Self {
            per_day: 1.0,
            total: false,
            part_of_day: true,
        }
    }

    /// Combines two schedules of one dose. Two parts of a day, such as mornings and evenings, are
    /// added. Otherwise the schedule that isn't a part of a day is kept: `self` if neither is one.
    pub fn combine(self, other: Self) -> Self {
        match (self.part_of_day, other.part_of_day) {
            (true, true) => Self {
                per_day: self.per_day + other.per_day,
                ..self
            },
            (true, false) => other,
            _ => self,
        }
    }
}

/// Parses a schedule at the start of `tokens`. Returns the schedule and how many tokens it has;
/// `None` if there is none.
pub(in crate::verifier::medicine) fn parse_schedule(tokens: &[Token]) -> Option<(Schedule, usize)> {
    if let Some(found) = word(tokens, 0).and_then(|word| SINGLE_WORD_SCHEDULES.get(word)) {
        return Some((*found, 1));
    }
    let times = |n: f64, from: usize| {
        let skip = usize::from(
            sign(tokens, from, '/')
                || sign(tokens, from, '-')
                || word(tokens, from)
                    .is_some_and(|w| is_one_of(w, "a per ao por each every na pela in")),
        );
        let period = word(tokens, from + skip)?;
        let per_day =
            period_per_day(period).or_else(|| Some(SINGLE_WORD_SCHEDULES.get(period)?.per_day))?;
        Some((Schedule::times(n * per_day), from + skip + 1))
    };
    match (word(tokens, 0).unwrap_or_default(), word(tokens, 1)) {
        ("once", _) => times(1.0, 1),
        ("twice", _) => times(2.0, 1),
        ("thrice", _) => times(3.0, 1),
        ("every" | "each" | "cada" | "q" | "todo" | "todos" | "todas", _) => {
            interval_schedule(tokens)
        }
        ("a", Some("cada")) => interval_schedule(&tokens[1..]).map(|(s, n)| (s, n + 1)),
        ("alternate", Some("days")) | ("dias", Some("alternados")) => {
            Some((Schedule::times(0.5), 2))
        }
        ("at", Some("night" | "bedtime" | "noon"))
        | ("before", Some("bed"))
        | ("ao", Some("deitar" | "dormir"))
        | ("pela" | "de" | "a", Some("manha" | "noite" | "tarde")) => {
            Some((Schedule::part_of_day(), 2))
        }
        ("in", Some("the"))
            if matches!(word(tokens, 2), Some("morning" | "evening" | "afternoon")) =>
        {
            Some((Schedule::part_of_day(), 3))
        }
        ("de", _) => interval_schedule(tokens),
        ("per" | "a" | "por" | "ao", Some(period)) => {
            period_per_day(period).map(|p| (Schedule::total(p), 2))
        }
        _ => match tokens {
            // "8/8h"
            [
                Token::Number(n),
                Token::Sign('/'),
                Token::Number(same),
                Token::Word(period),
                ..,
            ] if n == same => period_per_day(period).map(|p| (Schedule::times(p / n), 4)),
            _ => {
                let (n, at) = parse_number(tokens)?;
                is_one_of(word(tokens, at)?, "times time vezes vez x doses tomadas")
                    .then(|| times(n, at + 1))?
            }
        },
    }
}

/// Parses a schedule given as an interval: "every 8 hours", "every other day", "de 8 em 8 horas",
/// "q 8 h". The first token must be the word that introduces it; only `de` is told apart. Returns
/// the same as [`parse_schedule`].
fn interval_schedule(tokens: &[Token]) -> Option<(Schedule, usize)> {
    let portuguese_pair = word(tokens, 0) == Some("de");
    let mut at = 1;
    let mut n = 1.0;
    match word(tokens, at) {
        Some("other" | "second") => (n, at) = (2.0, 2),
        next => {
            at += usize::from(matches!(next, Some("os" | "as")));
            let counted = parse_number(&tokens[at..]);
            if let Some((count, taken)) = counted {
                (n, at) = (count, at + taken);
            }
            if portuguese_pair {
                counted.filter(|_| word(tokens, at) == Some("em"))?;
                at += 1 + parse_number(&tokens[at + 1..])?.1;
            }
        }
    }
    let period = period_per_day(word(tokens, at)?).filter(|_| n > 0.0)?;
    Some((Schedule::times(period / n), at + 1))
}

static SINGLE_WORD_SCHEDULES: WordTable<Schedule> = LazyLock::new(|| {
    word_table(&[
        (
            "daily diario diaria diarios diarias diariamente",
            Schedule::total(1.0),
        ),
        ("qd od qday qam qpm", Schedule::times(1.0)),
        ("nightly qhs hs nocte mane", Schedule::part_of_day()),
        ("bid bd", Schedule::times(2.0)),
        ("tid tds", Schedule::times(3.0)),
        ("qid qds", Schedule::times(4.0)),
        ("qod", Schedule::times(0.5)),
        (
            "weekly semanal semanais semanalmente qw",
            Schedule::times(1.0 / 7.0),
        ),
        ("monthly mensal mensalmente", Schedule::times(1.0 / 30.0)),
        ("hourly", Schedule::times(24.0)),
    ])
});

#[cfg(test)]
mod tests {
    use crate::verifier::fold;

    use super::super::token::sentences;
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        sentences(&fold(text)).concat()
    }

    /// Goal: all spellings of an amount are equal. Method: a table of doses in base units.
    #[test]
    fn doses() {
        for (text, kind, amounts) in [
            ("200 mg", UnitKind::Mass, vec![200.0]),
            ("0.2 g", UnitKind::Mass, vec![200.0]),
            ("1,500 mg", UnitKind::Mass, vec![1500.0]),
            ("50 µg", UnitKind::Mass, vec![0.05]),
            ("50 micro g", UnitKind::Mass, vec![0.05]),
            ("200-400 mg", UnitKind::Mass, vec![200.0, 400.0]),
            ("200 mg to 400 mg", UnitKind::Mass, vec![200.0, 400.0]),
            ("875/125 mg", UnitKind::Mass, vec![875.0, 125.0]),
            ("half a tablet", UnitKind::Tablet, vec![0.5]),
            ("½ tablet", UnitKind::Tablet, vec![0.5]),
            ("2½ tablets", UnitKind::Tablet, vec![2.5]),
            ("meio comprimido", UnitKind::Tablet, vec![0.5]),
            ("half of a 200 mg tablet", UnitKind::Tablet, vec![0.5]),
            ("two hundred milligrams", UnitKind::Mass, vec![200.0]),
            ("5000 UI", UnitKind::Activity, vec![5000.0]),
            ("1.2 million units", UnitKind::Activity, vec![1.2e6]),
            ("2 x 500 mg", UnitKind::Mass, vec![1000.0]),
            ("250 mg/5 mL", UnitKind::Mass, vec![50.0]),
            ("10 ± 2 mg", UnitKind::Mass, vec![10.0, 2.0]),
            ("10 +/- 2 mg", UnitKind::Mass, vec![10.0, 2.0]),
            ("5 mg +/", UnitKind::Mass, vec![5.0]),
        ] {
            let found = parse_dose(&tokens(text)).map(|(d, _, _)| (d.kind, d.amounts));
            assert_eq!(found, Some((kind, amounts)), "{text}");
        }
    }

    /// Goal: an incomplete dose at the end of a text is no dose. Method: ends.
    #[test]
    fn unfinished() {
        for text in ["2+/", "5 +/", "2+", "3 x", "200-"] {
            assert!(parse_dose(&tokens(text)).is_none(), "{text}");
        }
    }

    /// Goal: schedules compare as times a day. Method: a table in both languages.
    #[test]
    fn schedules() {
        for (text, per_day) in [
            ("once daily", 1.0),
            ("twice a day", 2.0),
            ("b.i.d.", 2.0),
            ("three times a day", 3.0),
            ("3x/day", 3.0),
            ("every 8 hours", 3.0),
            ("q8h", 3.0),
            ("8/8h", 3.0),
            ("de 8 em 8 horas", 3.0),
            ("a cada 12 horas", 2.0),
            ("uma vez ao dia", 1.0),
            ("duas vezes por dia", 2.0),
            ("every other day", 0.5),
            ("once weekly", 1.0 / 7.0),
            ("at bedtime", 1.0),
        ] {
            let found = parse_schedule(&sentences(&fold(text)).concat()).map(|(s, _)| s.per_day);
            assert!(
                found.is_some_and(|f| (f - per_day).abs() < 1e-9),
                "{text}: {found:?}"
            );
        }
    }
}
