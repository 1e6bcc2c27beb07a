//! Schedules, times of day, durations and routes of a prescription, in English and Portuguese.

use callboard_message::word_set;

use super::model::{Routes, Schedule, Times, routes, times};
use super::number::parse_number;
use super::token::Token;
use super::word_meanings::flags;

/// Maximum number of words inside of "only if it is needed".
const NEED_LINKS_MAX: usize = 4;
/// Maximum number of words between a preposition and a part of the day.
const DAY_PART_LINKS_MAX: usize = 3;
/// Maximum number of times in a period that stand before a slash: "3/day".
const TIMES_IN_PERIOD_MAX: f64 = 24.0;
/// Maximum number of words between `in` or `into` and the doses of a day.
const DIVISION_WORDS_MAX: usize = 3;
/// Maximum number of words before the number of a duration: "for the next 3 days".
const DURATION_WORDS_MAX: usize = 5;

/// Schedule at the start of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundSchedule {
    pub schedule: Schedule,
    pub times: Times,
    /// Number of tokens.
    pub taken: usize,
}

impl FoundSchedule {
    fn new(schedule: Schedule, taken: usize) -> Option<Self> {
        Some(Self {
            schedule,
            times: 0,
            taken,
        })
    }
}

fn word<'t>(tokens: &[Token<'t>], at: usize) -> &'t str {
    tokens.get(at).and_then(Token::word).unwrap_or_default()
}

fn sign(tokens: &[Token<'_>], at: usize, sign: char) -> bool {
    tokens.get(at).is_some_and(|t| t.is_sign(sign))
}

fn period_at(tokens: &[Token<'_>], at: usize) -> Option<f64> {
    tokens.get(at)?.info().period
}

/// Parses a schedule at the start of `tokens`; `None` if there is none.
pub(super) fn parse_schedule(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    let first = tokens.first()?;
    if let Some(found) = clock_times(tokens).or_else(|| weekdays(tokens)) {
        return Some(found);
    }
    if let Some(schedule) = first.info().schedule {
        // "daily, twice" is rare; "daily in the morning" is a part of the day beside it.
        return Some(FoundSchedule {
            schedule,
            times: first.info().times,
            taken: 1,
        });
    }
    division(tokens)
        .or_else(|| named_schedule(tokens))
        .or_else(|| counted_schedule(tokens))
        .map(|found| with_times(found, tokens))
}

/// Adds the times of day that the tokens of a schedule name.
fn with_times(found: FoundSchedule, tokens: &[Token<'_>]) -> FoundSchedule {
    let named = tokens[..found.taken]
        .iter()
        .fold(0, |bits, token| bits | token.info().times);
    FoundSchedule {
        times: named & times::OF_DAY,
        ..found
    }
}

/// Parses a schedule that begins with a certain word: "once", "every", "at night".
fn named_schedule(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    if let Some(taken) = part_of_day(tokens) {
        return FoundSchedule::new(Schedule::day_part(), taken);
    }
    match (word(tokens, 0), word(tokens, 1)) {
        ("once", _) => times_in_period(tokens, 1.0, 1),
        ("twice", _) => times_in_period(tokens, 2.0, 1),
        ("thrice", _) => times_in_period(tokens, 3.0, 1),
        ("alternate" | "alternating", "days") | ("dias", "alternados") => {
            FoundSchedule::new(Schedule::times(0.5), 2)
        }
        (_, "sim") => alternating(tokens),
        ("every" | "each" | "cada" | "q" | "todo" | "todos" | "toda" | "todas", _) => {
            interval(tokens)
        }
        ("a", "cada") | ("on", "alternate") => {
            let found = parse_schedule(&tokens[1..])?;
            FoundSchedule::new(found.schedule, found.taken + 1)
        }
        ("mornings" | "evenings" | "nights" | "afternoons", _) => {
            FoundSchedule::new(Schedule::day_part(), 1)
        }
        (
            "morning" | "evening" | "night" | "noon" | "bedtime" | "breakfast" | "lunch" | "dinner"
            | "supper" | "manha" | "noite" | "almoco" | "jantar",
            _,
        ) => FoundSchedule::new(Schedule::day_part(), 1),
        ("de", _) => interval(tokens),
        ("per" | "a" | "por" | "ao" | "an", _) => {
            FoundSchedule::new(Schedule::total(period_at(tokens, 1)?), 2)
        }
        _ => None,
    }
}

/// Parses a part of the day after a preposition: "at bedtime", "before going to bed", "na hora de
/// dormir". Returns the number of tokens; `None` if there is none.
fn part_of_day(tokens: &[Token<'_>]) -> Option<usize> {
    const BEFORE: &str = "at in on before after with during by ao a antes depois apos na no pela pelo de da com durante logo around";
    const LINKS: &str = "the going to his her se o a de do da ao hora time of late early";
    if !tokens.first()?.is_word(word_set!(BEFORE)) {
        return None;
    }
    let links = tokens[1..]
        .iter()
        .take(DAY_PART_LINKS_MAX)
        .take_while(|t| t.is_word(word_set!(LINKS)))
        .count();
    let named = tokens.get(1 + links)?;
    let is_place =
        named.is_word(word_set!("bed")) && !tokens[0].is_word(word_set!("before at after"));
    let is_part = named.info().times & times::OF_DAY != 0
        && named.info().schedule.is_none()
        && !named.is_word(word_set!("am pm"));
    (is_part && !is_place).then_some(2 + links)
}

/// Parses "dia sim, dia nao", "semana sim, semana nao".
fn alternating(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    let period = period_at(tokens, 0)?;
    let skip = 2 + usize::from(sign(tokens, 2, ',') || word(tokens, 2) == "e");
    let is_same = word(tokens, skip) == word(tokens, 0) && word(tokens, skip + 1) == "nao";
    FoundSchedule::new(Schedule::times(period / 2.0), skip + 2).filter(|_| is_same)
}

/// Parses the period after a number of times: "a day", "/day", "daily", "na semana", "every 8
/// hours".
fn times_in_period(tokens: &[Token<'_>], n: f64, from: usize) -> Option<FoundSchedule> {
    let mut at = from;
    let mut every = 1.0;
    if sign(tokens, at, '/') || sign(tokens, at, '-') {
        at += 1;
    } else if tokens.get(at)?.is_word(word_set!(BEFORE_PERIOD)) {
        at += 1;
        at += usize::from(matches!(
            word(tokens, at),
            "the" | "os" | "as" | "cada" | "each"
        ));
        if matches!(word(tokens, at), "other" | "second") {
            (at, every) = (at + 1, 2.0);
        }
    }
    let counted = parse_number(tokens.get(at..)?).filter(|(count, _)| *count > 0.0);
    let (count, taken) = counted.unwrap_or((1.0, 0));
    let after = at + taken + usize::from(taken > 0 && sign(tokens, at + taken, '-'));
    let info = tokens.get(after)?.info();
    let period = info.period.or(info.schedule.map(|s| s.per_day))?;
    let per_day = n * period / count / every;
    FoundSchedule::new(Schedule::times(per_day), after + 1)
}

/// Words between a number of times and the period.
const BEFORE_PERIOD: &str =
    "a per ao por each every na pela in cada an de em no the todo todos toda todas";

/// Parses the number of doses into which the total of a day is divided: "in two divided doses",
/// "dividido em 2 doses".
fn division(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    const DIVIDED: &str = "divided split dividido dividida divididos divididas";
    let first = usize::from(tokens.first()?.is_word(word_set!(DIVIDED)));
    if !tokens.get(first)?.is_word(word_set!("in into em")) {
        return None;
    }
    let (number, taken) = tokens.get(first + 1..).and_then(parse_number)?;
    let mut at = first + 1 + taken;
    let mut is_divided = first == 1;
    for _ in 0..DIVISION_WORDS_MAX {
        let token = tokens.get(at)?;
        at += 1;
        if token.is_word(word_set!("doses tomadas portions intakes administracoes")) {
            let schedule = Schedule {
                is_division: true,
                ..Schedule::times(number)
            };
            return FoundSchedule::new(schedule, at).filter(|_| is_divided && number >= 1.0);
        }
        is_divided |= token.is_word(word_set!(DIVIDED))
            || token.is_word(word_set!("equal separate iguais separadas"));
        token.word()?;
    }
    None
}

/// Parses a schedule that begins with a number: "3 times a day", "8/8h", "1-0-1", "5 days a week".
fn counted_schedule(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    if let [a, slash, b, period, ..] = tokens
        && (slash.is_sign('/') || slash.is_sign('-'))
        && let (Some(a), Some(b), Some(period)) = (a.number(), b.number(), period.info().period)
        && a == b
        && a > 0.0
    {
        return FoundSchedule::new(Schedule::times(period / a), 4);
    }
    if let Some(found) = pattern_of_day(tokens) {
        return Some(found);
    }
    let (n, at) = parse_number(tokens)?;
    // "12 em 12 horas"
    if word(tokens, at) == "em"
        && let Some((same, taken)) = tokens.get(at + 1..).and_then(parse_number)
        && same == n
        && n > 0.0
    {
        let period = period_at(tokens, at + 1 + taken)?;
        return FoundSchedule::new(Schedule::times(period / n), at + 2 + taken);
    }
    // "3/day"
    if sign(tokens, at, '/')
        && n <= TIMES_IN_PERIOD_MAX
        && let Some(period) = period_at(tokens, at + 1)
    {
        return FoundSchedule::new(Schedule::times(n * period), at + 2);
    }
    // "8-hourly"
    let hyphen = usize::from(sign(tokens, at, '-'));
    if word(tokens, at + hyphen) == "hourly" && n > 0.0 {
        return FoundSchedule::new(Schedule::times(24.0 / n), at + hyphen + 1);
    }
    if matches!(
        word(tokens, at),
        "times" | "time" | "vezes" | "vez" | "x" | "doses" | "dose" | "tomadas" | "tomada" | "xs"
    ) {
        return times_in_period(tokens, n, at + 1);
    }
    // "5 days a week"
    if matches!(word(tokens, at), "days" | "dias" | "day" | "nights")
        && period_at(tokens, at + 2).is_some_and(|p| p < 1.0)
    {
        return times_in_period(tokens, n, at + 1);
    }
    None
}

/// Parses the pieces in the morning, at noon, in the evening and at night: "1-0-1". All that are
/// taken must be one piece.
fn pattern_of_day(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    let mut pieces = Vec::new();
    for pair in tokens.chunks(2).take(4) {
        pieces.push(pair[0].number()?);
        if !pair.get(1).is_some_and(|t| t.is_sign('-') && t.is_glued) {
            break;
        }
    }
    let taken = pieces.iter().filter(|n| **n == 1.0).count();
    let is_pattern =
        pieces.len() >= 3 && taken > 0 && pieces.iter().all(|n| *n == 0.0 || *n == 1.0);
    let count = u32::try_from(taken).ok().filter(|_| is_pattern)?;
    FoundSchedule::new(Schedule::times(f64::from(count)), pieces.len() * 2 - 1)
}

/// Parses a schedule given as an interval: "every 8 hours", "every other day", "de 8 em 8 horas",
/// "q 8 h". The first token must be the word that introduces it; only `de` is told apart.
fn interval(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    let is_pair = word(tokens, 0) == "de";
    let mut at = 1;
    let mut n = 1.0;
    if matches!(word(tokens, at), "other" | "second" | "alternate") {
        (n, at) = (2.0, 2);
    } else if matches!(word(tokens, at), "third") {
        (n, at) = (3.0, 2);
    } else {
        at += usize::from(matches!(word(tokens, at), "os" | "as" | "the" | "single"));
        let counted = parse_number(&tokens[at.min(tokens.len())..]);
        if let Some((count, taken)) = counted {
            (n, at) = (count, at + taken);
            // "every 3rd day"
            at += usize::from(matches!(word(tokens, at), "rd" | "th" | "nd" | "st"));
        }
        if is_pair && counted.is_none() {
            // "de hora em hora"
            let period = period_at(tokens, at)?;
            let same = word(tokens, at + 1) == "em" && period_at(tokens, at + 2) == Some(period);
            return FoundSchedule::new(Schedule::times(period), at + 3).filter(|_| same);
        }
        if is_pair {
            // "de 12/12h"
            if sign(tokens, at, '/') {
                at += 2;
            } else if word(tokens, at) == "em" {
                at += 1 + parse_number(&tokens[at + 1..])?.1;
            } else {
                return None;
            }
        } else if sign(tokens, at, '/') && tokens.get(at + 1).and_then(Token::number) == Some(n) {
            at += 2;
        } else if sign(tokens, at, '-') && period_at(tokens, at + 1).is_some() {
            // "every 8-hours"
            at += 1;
        }
    }
    let of_week = (word(tokens, 0) == "q" && word(tokens, at) == "w").then_some(1.0 / 7.0);
    let period = period_at(tokens, at).or(of_week).filter(|_| n > 0.0)?;
    if n == 1.0 && tokens[at].info().times & times::OF_DAY != 0 {
        return FoundSchedule::new(Schedule::day_part(), at + 1);
    }
    FoundSchedule::new(Schedule::times(period / n), at + 1)
}

/// Parses days of the week: "on Mondays, Wednesdays and Fridays", "segunda-feira".
fn weekdays(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    let mut at = usize::from(matches!(
        word(tokens, 0),
        "on" | "every" | "each" | "as" | "aos" | "nas" | "toda" | "todas"
    ));
    at += usize::from(at > 0 && matches!(word(tokens, at), "as" | "os"));
    let (mut days, mut end) = (0, 0);
    while let Some(token) = tokens.get(at) {
        let bit = token.info().times & !times::OF_DAY;
        let is_feira =
            sign(tokens, at + 1, '-') && matches!(word(tokens, at + 2), "feira" | "feiras");
        // "segunda" alone is an ordinal number.
        let is_day = bit != 0
            && (is_feira
                || token.text.ends_with("day")
                || token.text.ends_with('s')
                || matches!(token.text, "sabado" | "domingo"));
        if !is_day {
            break;
        }
        days |= bit;
        end = at + if is_feira { 3 } else { 1 };
        at = end;
        while sign(tokens, at, ',')
            || tokens.get(at).is_some_and(|t| t.is(flags::AND))
            || sign(tokens, at, '/')
        {
            at += 1;
        }
    }
    if days == 0 {
        return None;
    }
    Some(FoundSchedule {
        schedule: Schedule::times(f64::from(days.count_ones()) / 7.0),
        times: days,
        taken: end,
    })
}

/// Parses a time of the clock, such as "at 8 am" or "08:00", as a part of the day.
fn clock_times(tokens: &[Token<'_>]) -> Option<FoundSchedule> {
    let from = usize::from(matches!(word(tokens, 0), "at" | "as"));
    let hour = tokens.get(from)?.number().filter(|h| *h <= 24.0)?;
    let minutes = sign(tokens, from + 1, ':')
        && tokens.get(from + 2).is_some_and(|t| {
            t.number().is_some_and(|m| m < 60.0) && t.text.len() == 2 && t.is_glued
        });
    let after = from + if minutes { 3 } else { 1 };
    let half = word(tokens, after);
    let is_hours = from == 1 && word(tokens, 0) == "as" && half == "h";
    let named = matches!(half, "am" | "pm") || is_hours;
    if !minutes && !named {
        return None;
    }
    let afternoon = half == "pm" || !matches!(half, "am") && hour >= 12.0;
    let bit = match (afternoon, hour) {
        (false, _) => times::MORNING,
        (true, h) if h == 12.0 || (h % 12.0) < 5.0 => times::MIDDAY,
        _ => times::NIGHT,
    };
    Some(FoundSchedule {
        schedule: Schedule {
            is_clock: true,
            ..Schedule::day_part()
        },
        times: bit,
        taken: after + usize::from(named),
    })
}

/// Parses "as needed" and the like at the start of `tokens`. Returns how many tokens it has; `None`
/// if there is none.
pub(super) fn parse_as_needed(tokens: &[Token<'_>]) -> Option<usize> {
    const NEEDED: &str =
        "needed required necessary necessario necessaria preciso precisar precise necessidade";
    let begins = tokens.first()?.is_word(word_set!("as if when whenever where only in se quando caso conforme em apenas somente so segundo sempre"));
    // The usual case: no words between need to be examined.
    if !begins {
        return match (word(tokens, 0), word(tokens, 1)) {
            ("prn" | "sos", _) => Some(1),
            ("on" | "sob", "demand" | "demanda") => Some(2),
            _ => None,
        };
    }
    let links = tokens[1..]
        .iter()
        .take(NEED_LINKS_MAX)
        .take_while(|t| {
            t.is_word(word_set!(
                "and if when as is it case of se quando que for seja a caso de houver e"
            ))
        })
        .count();
    let is_needed = tokens
        .get(1 + links)
        .is_some_and(|t| t.is_word(word_set!(NEEDED)));
    let is_in_need = matches!(word(tokens, 0), "in" | "em")
        && matches!(word(tokens, 1 + links), "need" | "necessidade");
    (is_needed || is_in_need).then_some(2 + links)
}

/// Parses the duration of a treatment at the start of `tokens`: "for 7 days", "x 7 days". Returns
/// the number of days and how many tokens it has; `None` if there is none, or it is shorter than a
/// day.
pub(super) fn parse_duration(tokens: &[Token<'_>]) -> Option<(f64, usize)> {
    let first = tokens.first()?;
    let mut at = usize::from(first.is(flags::BEFORE_DURATION) || first.is_word(word_set!("x")));
    if at == 0 {
        return None;
    }
    while at < DURATION_WORDS_MAX
        && matches!(
            word(tokens, at),
            "the"
                | "a"
                | "next"
                | "another"
                | "mais"
                | "os"
                | "as"
                | "proximos"
                | "proximas"
                | "total"
                | "of"
                | "further"
        )
    {
        at += 1;
    }
    let (n, taken) = parse_number(tokens.get(at..)?)?;
    at += taken;
    let period = period_at(tokens, at).filter(|p| *p <= 1.0)?;
    // "for 7 days a week" is no duration.
    Some((n / period, at + 1))
}

type Site = (&'static [&'static str], Routes, Routes, Routes);

/// Places of the body by which a medicine enters: words, and the routes in or on it, under it, and
/// through it.
const SITES: &[Site] = &[
    (
        &["mouth", "os", "boca"],
        routes::ORAL,
        routes::SUBLINGUAL,
        routes::ORAL,
    ),
    (
        &["tongue", "lingua"],
        routes::ORAL,
        routes::SUBLINGUAL,
        routes::ORAL,
    ),
    (
        &["skin", "pele"],
        routes::TOPICAL,
        routes::SUBCUTANEOUS,
        routes::TRANSDERMAL,
    ),
    (
        &["scalp", "couro"],
        routes::TOPICAL,
        routes::SUBCUTANEOUS,
        routes::TRANSDERMAL,
    ),
    (
        &["vein", "veins", "veia", "veias"],
        routes::INTRAVENOUS,
        routes::INTRAVENOUS,
        routes::INTRAVENOUS,
    ),
    (
        &["muscle", "muscles", "musculo", "nadega", "buttock"],
        routes::INTRAMUSCULAR,
        routes::INTRAMUSCULAR,
        routes::INTRAMUSCULAR,
    ),
    (
        &["eye", "eyes", "olho", "olhos"],
        routes::EYE,
        routes::EYE,
        routes::EYE,
    ),
    (
        &["ear", "ears", "ouvido", "ouvidos", "orelha"],
        routes::EAR,
        routes::EAR,
        routes::EAR,
    ),
    (
        &["nose", "nostril", "nostrils", "nariz", "narina", "narinas"],
        routes::NASAL,
        routes::NASAL,
        routes::NASAL,
    ),
    (
        &["rectum", "reto", "anus"],
        routes::RECTAL,
        routes::RECTAL,
        routes::RECTAL,
    ),
    (
        &["vagina"],
        routes::VAGINAL,
        routes::VAGINAL,
        routes::VAGINAL,
    ),
    (
        &["lungs", "pulmao", "pulmoes"],
        routes::INHALED,
        routes::INHALED,
        routes::INHALED,
    ),
    (
        &["lesion", "lesions", "lesao", "lesoes"],
        routes::INTRALESIONAL | routes::TOPICAL,
        routes::INTRALESIONAL,
        routes::INTRALESIONAL,
    ),
    (
        &["joint", "articulacao"],
        routes::OTHER,
        routes::OTHER,
        routes::OTHER,
    ),
];

/// Maximum number of words between a preposition and the place or route after it.
const ROUTE_LINKS_MAX: usize = 4;

/// Parses a route of administration at the start of `tokens`: a place after a preposition ("into a
/// vein"), or a word for a route, with or without a preposition ("by the oral route"). Several words
/// of one route are one: "subcutaneous injection". Returns the route and how many tokens it has;
/// `None` if there is none.
pub(super) fn parse_route(tokens: &[Token<'_>]) -> Option<(Routes, usize)> {
    const IN: &str = "in into inside on onto to up over by per via na no nas nos em ao aos sobre por pela pelo pelas pelos dentro";
    const UNDER: &str = "under beneath below underneath sob embaixo debaixo abaixo";
    const THROUGH: &str = "through across atraves";
    const BY: &str = "by via per as through with using por pela pelo como em com";
    let first = tokens.first()?;
    first.word()?;
    let is_by = first.is_word(word_set!(BY));
    // The usual case: no words between need to be examined.
    if !is_by
        && !first.is_word(word_set!(IN))
        && !first.is_word(word_set!(UNDER))
        && !first.is_word(word_set!(THROUGH))
    {
        return named_route(tokens);
    }
    let links = tokens[1..]
        .iter()
        .take(ROUTE_LINKS_MAX)
        .take_while(|t| t.is_word(word_set!(ROUTE_LINKS)))
        .count();
    let place = word(tokens, 1 + links);
    // "no skin changes" in English
    const MASCULINE: &[&str] = &[
        "nariz", "olho", "ouvido", "musculo", "reto", "anus", "pulmao", "couro",
    ];
    let is_none = first.is_word(word_set!("no")) && !MASCULINE.contains(&place);
    let way: Option<fn(&Site) -> Routes> = match first {
        _ if is_none => None,
        t if t.is_word(word_set!(IN)) => Some(|site| site.1),
        t if t.is_word(word_set!(UNDER)) => Some(|site| site.2),
        t if t.is_word(word_set!(THROUGH)) => Some(|site| site.3),
        _ => None,
    };
    let site = || SITES.iter().find(|(words, ..)| words.contains(&place));
    if let Some((way, site)) = way.and_then(|way| Some((way, site()?))) {
        return Some((way(site), 2 + links));
    }
    if let Some((route, taken)) = named_route(tokens) {
        return Some((route, taken));
    }
    let (route, taken) = tokens.get(1 + links..).and_then(named_route)?;
    is_by.then_some((route, 1 + links + taken))
}

/// Words between a preposition and a place or route.
const ROUTE_LINKS: &str = "the a an each both either every one his her their affected left right o os as da do de das dos cada ambos ambas via uma um seu sua";

/// Parses words of one route at the start of `tokens`: "oral route", "intravenous infusion", "eye
/// drops".
fn named_route(tokens: &[Token<'_>]) -> Option<(Routes, usize)> {
    let drops = matches!(word(tokens, 1), "drop" | "drops");
    match word(tokens, 0) {
        "eye" if drops => return Some((routes::EYE | routes::FORM, 2)),
        "ear" if drops => return Some((routes::EAR | routes::FORM, 2)),
        _ => {}
    }
    let mut route = tokens.first()?.info().route?;
    let mut taken = 1;
    while let Some(next) = tokens.get(taken) {
        match next.info().route {
            Some(other) if route & other & !routes::FORM != 0 => route &= other,
            None if next.is_word(word_set!("route")) => {}
            _ => break,
        }
        taken += 1;
    }
    Some((route, taken))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::fold;
    use crate::verifier::medicine::token::{Text, join_dotted};

    fn parse<T>(text: &str, parse: impl Fn(&[Token<'_>]) -> T) -> T {
        let folded = fold(text);
        let joined = join_dotted(&folded);
        parse(&Text::read(&joined).tokens)
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
            ("12-12h", 2.0),
            ("de 8 em 8 horas", 3.0),
            ("de oito em oito horas", 3.0),
            ("de 12/12h", 2.0),
            ("a cada 12 horas", 2.0),
            ("uma vez ao dia", 1.0),
            ("duas vezes por dia", 2.0),
            ("every other day", 0.5),
            ("em dias alternados", 0.5),
            ("dia sim, dia não", 0.5),
            ("semana sim, semana não", 1.0 / 14.0),
            ("once weekly", 1.0 / 7.0),
            ("once a week", 1.0 / 7.0),
            ("uma vez por semana", 1.0 / 7.0),
            ("every two weeks", 1.0 / 14.0),
            ("twice per week", 2.0 / 7.0),
            ("5 days a week", 5.0 / 7.0),
            ("every Monday", 1.0 / 7.0),
            ("on Mondays, Wednesdays and Fridays", 3.0 / 7.0),
            ("às segundas-feiras", 1.0 / 7.0),
            ("at bedtime", 1.0),
            ("every hour", 24.0),
            ("hourly", 24.0),
            ("every night", 1.0),
            ("todos os dias", 1.0),
            ("1-0-1", 2.0),
            ("1x/dia", 1.0),
            ("uma vez a cada 6 horas", 4.0),
            ("de hora em hora", 24.0),
            ("every meal", 3.0),
            ("8-hourly", 3.0),
            ("twelve hourly", 2.0),
            ("once every three days", 1.0 / 3.0),
            ("every 3rd day", 1.0 / 3.0),
            ("q2w", 1.0 / 14.0),
            ("one dose each day", 1.0),
            ("before going to bed", 1.0),
            ("na hora de dormir", 1.0),
            ("ao se deitar", 1.0),
            ("3/day", 3.0),
            ("12 em 12 horas", 2.0),
            ("in two divided doses", 2.0),
        ] {
            let skip = usize::from(text.starts_with("em "));
            let found = parse(text, |t| {
                parse_schedule(&t[skip..]).map(|s| s.schedule.per_day)
            });
            assert!(
                found.is_some_and(|f| (f - per_day).abs() < 1e-9),
                "{text}: {found:?}"
            );
        }
        for text in [
            "200 mg",
            "for 7 days",
            "128/78",
            "segunda dose",
            "12/03/2020",
            "3 patients",
        ] {
            assert!(parse(text, |t| parse_schedule(t).is_none()), "{text}");
        }
    }

    /// Goal: durations and needs are told from schedules. Method: a table.
    #[test]
    fn durations() {
        for (text, days) in [
            ("for 7 days", Some(7.0)),
            ("for two weeks", Some(14.0)),
            ("por 10 dias", Some(10.0)),
            ("for the next 3 days", Some(3.0)),
            ("for 2 hours", None),
            ("for hypertension", None),
        ] {
            let found = parse(text, |t| parse_duration(t).map(|(days, _)| days.round()));
            assert_eq!(found, days, "{text}");
        }
        assert_eq!(parse("as needed", parse_as_needed), Some(2));
        assert_eq!(parse("se necessário", parse_as_needed), Some(2));
        assert_eq!(parse("only if it is needed", parse_as_needed), Some(5));
        assert_eq!(parse("em caso de necessidade", parse_as_needed), Some(4));
        assert_eq!(parse("se precisar", parse_as_needed), Some(2));
    }

    /// Goal: routes have one form. Method: a table.
    #[test]
    fn all_routes() {
        for (text, route) in [
            ("by mouth", routes::ORAL),
            ("p.o.", routes::ORAL),
            ("VO", routes::ORAL),
            ("via oral", routes::ORAL),
            ("i.v.", routes::INTRAVENOUS),
            ("via intravenosa", routes::INTRAVENOUS),
            ("under the skin", routes::SUBCUTANEOUS),
            ("debaixo da pele", routes::SUBCUTANEOUS),
            ("by subcutaneous injection", routes::SUBCUTANEOUS),
            ("by the intravenous route", routes::INTRAVENOUS),
            ("into his affected eye", routes::EYE),
            ("através da pele", routes::TRANSDERMAL),
            ("em cada narina", routes::NASAL),
            ("por via sublingual", routes::SUBLINGUAL),
            ("per rectum", routes::RECTAL),
        ] {
            assert_eq!(
                parse(text, |t| parse_route(t).map(|(r, _)| r)),
                Some(route),
                "{text}"
            );
        }
    }
}
