//! How often a medicine is taken.

use std::sync::LazyLock;

use super::{number, sign, word};
use crate::text::{Meanings, is_one_of, meanings};
use crate::verifier::medicine::token::Token;
use crate::verifier::medicine::unit::period_per_day;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::verifier::medicine) struct Schedule {
    /// Times a day; below 1 for every other day, weekly and so on.
    pub(in crate::verifier::medicine) per_day: f64,
    /// The dose is what a whole period takes ("1 g a day"), however it is divided.
    pub(in crate::verifier::medicine) total: bool,
    part_of_day: bool,
}

impl Schedule {
    fn times(per_day: f64) -> Self {
        Self { per_day, total: false, part_of_day: false }
    }

    pub fn total(per_day: f64) -> Self {
        Self { per_day, total: true, part_of_day: false }
    }

    fn part_of_day() -> Self {
        Self { per_day: 1.0, total: false, part_of_day: true }
    }

    /// Two schedules of one dose: mornings and evenings add up, anything else says the same twice.
    pub(in crate::verifier::medicine) fn and(self, other: Self) -> Self {
        match (self.part_of_day, other.part_of_day) {
            (true, true) => Self { per_day: self.per_day + other.per_day, ..self },
            (true, false) => other,
            _ => self,
        }
    }
}

/// A schedule at the start of `tokens` and the tokens it takes.
pub(in crate::verifier::medicine) fn schedule(tokens: &[Token]) -> Option<(Schedule, usize)> {
    if let Some(found) = word(tokens, 0).and_then(|word| ONE_WORD.get(word)) {
        return Some((*found, 1));
    }
    let times = |n: f64, from: usize| {
        let skip = usize::from(
            sign(tokens, from, '/')
                || sign(tokens, from, '-')
                || word(tokens, from).is_some_and(|w| is_one_of(w, "a per ao por each every na pela in")),
        );
        let period = word(tokens, from + skip)?;
        let per_day = period_per_day(period).or_else(|| Some(ONE_WORD.get(period)?.per_day))?;
        Some((Schedule::times(n * per_day), from + skip + 1))
    };
    match (tokens.first()?, word(tokens, 1)) {
        (Token::Word(w), next) => match (w.as_str(), next) {
            ("once", _) => return times(1.0, 1),
            ("twice", _) => return times(2.0, 1),
            ("thrice", _) => return times(3.0, 1),
            ("every" | "each" | "cada" | "q" | "todo" | "todos" | "todas", _) => return every(tokens),
            ("a", Some("cada")) => return every(&tokens[1..]).map(|(s, n)| (s, n + 1)),
            ("alternate", Some("days")) | ("dias", Some("alternados")) => return Some((Schedule::times(0.5), 2)),
            ("at", Some("night" | "bedtime" | "noon"))
            | ("before", Some("bed"))
            | ("ao", Some("deitar" | "dormir"))
            | ("pela" | "de" | "a", Some("manha" | "noite" | "tarde")) => return Some((Schedule::part_of_day(), 2)),
            ("in", Some("the")) if matches!(word(tokens, 2), Some("morning" | "evening" | "afternoon")) => {
                return Some((Schedule::part_of_day(), 3));
            }
            ("de", _) => return every(tokens),
            ("per" | "a" | "por" | "ao", Some(period)) => {
                return period_per_day(period).map(|p| (Schedule::total(p), 2));
            }
            _ => {}
        },
        (Token::Number(n), _) if sign(tokens, 1, '/') && tokens.get(2) == Some(&Token::Number(*n)) => {
            return period_per_day(word(tokens, 3)?).map(|p| (Schedule::times(p / n), 4));
        }
        _ => {}
    }
    let (n, at) = number(tokens)?;
    match word(tokens, at)? {
        "times" | "time" | "vezes" | "vez" | "x" | "doses" | "tomadas" => times(n, at + 1),
        _ => None,
    }
}

/// "every 8 hours", "every other day", "de 8 em 8 horas", "q 8 h".
fn every(tokens: &[Token]) -> Option<(Schedule, usize)> {
    let portuguese_pair = word(tokens, 0) == Some("de");
    let mut at = 1;
    match word(tokens, at) {
        Some("other" | "second") => return period_per_day(word(tokens, 2)?).map(|p| (Schedule::times(p / 2.0), 3)),
        Some("os" | "as") => at += 1,
        _ => {}
    }
    let (n, taken) = number(&tokens[at..]).unwrap_or((1.0, 0));
    at += taken;
    if portuguese_pair {
        if taken == 0 || word(tokens, at) != Some("em") {
            return None;
        }
        at += 1;
        at += number(&tokens[at..])?.1;
    }
    let period = word(tokens, at)?;
    (n > 0.0).then_some(())?;
    period_per_day(period).map(|p| (Schedule::times(p / n), at + 1))
}

static ONE_WORD: Meanings<Schedule> = LazyLock::new(|| {
    meanings(&[
        ("daily diario diaria diarios diarias diariamente", Schedule::total(1.0)),
        ("qd od qday qam qpm", Schedule::times(1.0)),
        ("nightly qhs hs nocte mane", Schedule::part_of_day()),
        ("bid bd", Schedule::times(2.0)),
        ("tid tds", Schedule::times(3.0)),
        ("qid qds", Schedule::times(4.0)),
        ("qod", Schedule::times(0.5)),
        ("weekly semanal semanais semanalmente qw", Schedule::times(1.0 / 7.0)),
        ("monthly mensal mensalmente", Schedule::times(1.0 / 30.0)),
        ("hourly", Schedule::times(24.0)),
    ])
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::fold::fold;
    use crate::verifier::medicine::token::sentences;

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
            let found = schedule(&sentences(&fold(text)).concat()).map(|(s, _)| s.per_day);
            assert!(found.is_some_and(|f| (f - per_day).abs() < 1e-9), "{text}: {found:?}");
        }
    }
}
