//! Dates in texts, and which of them are dates of birth.

use callboard_message::is_one_of;

use super::class::IdentityClass;
use super::lexicon::{BIRTH, DATE_WORD, EVENT, MEASURE, NUMBER_WORDS, SEX_OR_AGE};
use super::reading::{TokenKind, Tokens};
use super::{Hit, hits_before};

/// Latest year of a date that counts as one of birth by the person's name, sex or age beside it.
/// Later ones are more often those of visits.
const UNLABELLED_YEAR_MAX: u16 = 2015;
/// Earliest year of two digits that counts so. Earlier ones are of this century.
const UNLABELLED_SHORT_YEAR_MIN: u16 = 30;
/// Maximum number of tokens between a word such as "born" and the date.
const LABEL_DISTANCE_MAX: usize = 8;
/// Maximum number of tokens between a person's name, sex or age and the date.
const PERSON_DISTANCE_MAX: usize = 6;

/// Date with a day, by its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    pub first: usize,
    pub last: usize,
    /// Year; below 100 if it has two digits.
    pub year: u16,
    /// Month and day, or day and month where the order isn't certain.
    pub parts: (u8, u8),
}

/// Returns the number of the month that a word names, in English, Portuguese or Spanish.
fn month_of(word: &str) -> Option<u8> {
    Some(match word {
        "jan" | "january" | "janeiro" | "enero" => 1,
        "feb" | "february" | "fev" | "fevereiro" | "febrero" => 2,
        "mar" | "march" | "marco" | "marzo" => 3,
        "apr" | "april" | "abr" | "abril" => 4,
        "may" | "mai" | "maio" | "mayo" => 5,
        "jun" | "june" | "junho" | "junio" => 6,
        "jul" | "july" | "julho" | "julio" => 7,
        "aug" | "august" | "ago" | "agosto" => 8,
        "sep" | "sept" | "september" | "set" | "setembro" | "septiembre" => 9,
        "oct" | "october" | "out" | "outubro" | "octubre" => 10,
        "nov" | "november" | "novembro" | "noviembre" => 11,
        "dec" | "december" | "dez" | "dezembro" | "diciembre" => 12,
        _ => return None,
    })
}

fn number(tokens: &Tokens<'_>, at: usize, digits: std::ops::RangeInclusive<usize>) -> Option<u16> {
    let text = tokens.cased(at);
    (tokens.is_number(at) && digits.contains(&text.len()))
        .then(|| text.parse().ok())
        .flatten()
}

fn month(tokens: &Tokens<'_>, at: usize) -> Option<u8> {
    (tokens.is_word(at) && tokens.lower(at).len() >= 3)
        .then(|| month_of(tokens.lower(at)))
        .flatten()
}

fn checked(first: usize, last: usize, year: u16, parts: (u16, u16)) -> Option<Date> {
    let (low, high) = (parts.0.min(parts.1), parts.0.max(parts.1));
    let plausible = year < 100 || (1900..=2100).contains(&year);
    (plausible && (1..=12).contains(&low) && (1..=31).contains(&high)).then_some(Date {
        first,
        last,
        year,
        parts: (parts.0 as u8, parts.1 as u8),
    })
}

/// Returns the date that begins at a token: `1961-03-12`, `12/03/61`, `12 March 1961`,
/// `March 12th, 1961`, `12 de março de 1961`.
pub(super) fn date_at(tokens: &Tokens<'_>, at: usize) -> Option<Date> {
    if tokens.is_number(at) {
        return numeric_date(tokens, at).or_else(|| day_first(tokens, at));
    }
    let month = month(tokens, at)?;
    let day_at = at + 1 + usize::from(tokens.sign(at + 1) == Some(b'.'));
    let day = number(tokens, day_at, 1..=2)?;
    let mut next = day_at + 1;
    next += usize::from(is_one_of!(tokens.lower(next), "st nd rd th"));
    next += usize::from(tokens.sign(next) == Some(b','));
    let year = number(tokens, next, 4..=4)?;
    checked(at, next, year, (u16::from(month), day))
}

fn numeric_date(tokens: &Tokens<'_>, at: usize) -> Option<Date> {
    let sign = tokens.sign(at + 1).filter(|s| b"-/.".contains(s))?;
    let tight = (at + 1..at + 5).all(|i| !tokens.gap(i));
    // A number after the date, or before it, makes it part of something else.
    let ends = tokens.gap(at + 5)
        || !(tokens.sign(at + 5) == Some(sign) && tokens.is_number(at + 6) && !tokens.gap(at + 6));
    let begins =
        at < 2 || tokens.gap(at) || tokens.sign(at - 1) != Some(sign) || tokens.gap(at - 1);
    if !tight || !ends || !begins || tokens.sign(at + 3) != Some(sign) {
        return None;
    }
    let short = 1..=2;
    if let Some(year) = number(tokens, at, 4..=4) {
        let parts = (
            number(tokens, at + 2, short.clone())?,
            number(tokens, at + 4, short)?,
        );
        return checked(at, at + 4, year, parts);
    }
    let parts = (
        number(tokens, at, short.clone())?,
        number(tokens, at + 2, short)?,
    );
    let year = number(tokens, at + 4, 2..=4).filter(|y| *y < 100 || *y > 999)?;
    checked(at, at + 4, year, parts)
}

fn day_first(tokens: &Tokens<'_>, at: usize) -> Option<Date> {
    let day = number(tokens, at, 1..=2)?;
    let mut next = at + 1;
    next += usize::from(tokens.sign(next) == Some(b'.') && tokens.lower(next + 1) == "o");
    next += usize::from(is_one_of!(tokens.lower(next), "st nd rd th o"));
    next += usize::from(matches!(tokens.sign(next), Some(b'-' | b'/' | b'.')));
    next += usize::from(is_one_of!(tokens.lower(next), "de of do"));
    let month = month(tokens, next)?;
    next += 1;
    next += usize::from(matches!(tokens.sign(next), Some(b'-' | b',' | b'.' | b'/')));
    next += usize::from(is_one_of!(tokens.lower(next), "de of do"));
    let year = number(tokens, next, 2..=4).filter(|y| *y < 100 || *y > 999)?;
    // "12 mar 20" may be anything.
    (year > 999 || matches!(tokens.sign(next - 1), Some(b'-' | b'/')))
        .then(|| checked(at, next, year, (day, u16::from(month))))
        .flatten()
}

/// Adds the dates of birth: dates next to a word of birth, or of a plausible year next to a
/// person's name, sex or age. `names` are hits in ascending order.
pub(super) fn find_birth_dates(tokens: &Tokens<'_>, names: &[Hit], out: &mut Vec<Hit>) {
    let mut at = 0;
    while at < tokens.len() {
        if !tokens.is_number(at) && !tokens.is(at, DATE_WORD) {
            at += 1;
            continue;
        }
        let date = date_at(tokens, at)
            .or_else(|| compact_date(tokens, at))
            .or_else(|| birthday(tokens, at))
            .or_else(|| spoken_date(tokens, at))
            .or_else(|| loose_date(tokens, at));
        let Some(date) = date else {
            at += 1;
            continue;
        };
        if is_birth(tokens, &date, names) {
            out.push(Hit::new(
                tokens.range(date.first, date.last),
                IdentityClass::BirthDate,
            ));
        }
        at = date.last + 1;
    }
}

/// Returns a date of eight digits, year first or last, that directly follows a word of birth.
fn compact_date(tokens: &Tokens<'_>, at: usize) -> Option<Date> {
    let text = tokens.cased(at);
    if !tokens.is_number(at) || text.len() != 8 || !is_labelled(tokens, at) {
        return None;
    }
    let part = |range: std::ops::Range<usize>| text[range].parse::<u16>().ok();
    checked(at, at, part(0..4)?, (part(4..6)?, part(6..8)?))
        .or_else(|| checked(at, at, part(4..8)?, (part(0..2)?, part(2..4)?)))
}

/// Returns a day and month without a year that directly follow a word of birth: "faz anos a 8 de
/// fevereiro", "birthday: 30 October".
fn birthday(tokens: &Tokens<'_>, at: usize) -> Option<Date> {
    let (day_at, month_at) = if tokens.is_number(at) {
        let next = at + 1;
        let next = next + usize::from(matches!(tokens.lower(next), "st" | "nd" | "rd" | "th"));
        (
            at,
            next + usize::from(matches!(tokens.lower(next), "de" | "of")),
        )
    } else {
        (at + 1, at)
    };
    // "aniversário 15/08".
    let numeric = at + 2;
    let slash = tokens.sign(at + 1) == Some(b'/') && tokens.sign(numeric + 1) != Some(b'/');
    let (day_at, month_at, month) = match (slash, number(tokens, numeric, 1..=2)) {
        (true, Some(month)) if near_birth(tokens, at) => (at, numeric, u8::try_from(month).ok()?),
        _ => (day_at, month_at, month(tokens, month_at)?),
    };
    let day = number(tokens, day_at, 1..=2)?;
    let anniversary = (1..=3)
        .filter_map(|back| at.checked_sub(back))
        .any(|i| tokens.lower(i) == "anos" && i > 0 && tokens.lower(i - 1) == "faz");
    // "turns 80 on 19 October".
    let turns = (2..=5).filter_map(|back| at.checked_sub(back)).any(|i| {
        is_one_of!(tokens.lower(i), "turns turned completa completou") && tokens.is_number(i + 1)
    });
    (anniversary || turns || is_labelled(tokens, at))
        .then(|| checked(at, day_at.max(month_at), 0, (day, u16::from(month))))
        .flatten()
}

/// Returns a date behind a word of birth in a form that is no date elsewhere: `12 / 03 / 1961`,
/// `12 03 1961`, `March 1961`, or a year alone directly behind the word.
fn loose_date(tokens: &Tokens<'_>, at: usize) -> Option<Date> {
    if month(tokens, at).is_some() {
        let of = usize::from(matches!(tokens.lower(at + 1), "of" | "de"));
        let year = number(tokens, at + 1 + of, 4..=4)?;
        let plausible = (1900..=2100).contains(&year) && is_labelled(tokens, at);
        return plausible.then_some(Date {
            first: at,
            last: at + 1 + of,
            year: 0,
            parts: (0, 0),
        });
    }
    let first = number(tokens, at, 1..=4)?;
    if !is_labelled(tokens, at) {
        return None;
    }
    let skip = |at: usize| at + usize::from(matches!(tokens.sign(at), Some(b'/' | b'-' | b'.')));
    let second_at = skip(at + 1);
    let third_at = skip(second_at + 1);
    if let (Some(second), Some(third)) = (
        number(tokens, second_at, 1..=2),
        number(tokens, third_at, 2..=4),
    ) {
        let ordered = checked(at, third_at, third, (first, second));
        return ordered.or_else(|| checked(at, third_at, first, (second, third)));
    }
    (near_birth(tokens, at) && (1900..=UNLABELLED_YEAR_MAX).contains(&first)).then_some(Date {
        first: at,
        last: at,
        year: 0,
        parts: (0, 0),
    })
}

/// Returns whether a word of birth stands at most three tokens before.
fn near_birth(tokens: &Tokens<'_>, at: usize) -> bool {
    (1..=3).any(|back| at.checked_sub(back).is_some_and(|i| tokens.is(i, BIRTH)))
}

/// Maximum tokens of a date in words, on each side of its month.
const SPOKEN_TOKENS_MAX: usize = 12;

/// Returns a date in words behind a word of birth, from the token of its first number: "twenty-first
/// of June nineteen fifty-two".
fn spoken_date(tokens: &Tokens<'_>, at: usize) -> Option<Date> {
    let number = |at: usize| tokens.is_word(at) && is_one_of!(tokens.lower(at), NUMBER_WORDS);
    if !number(at) && month(tokens, at).is_none() || !is_labelled(tokens, at) {
        return None;
    }
    let link = |at: usize| {
        tokens.sign(at) == Some(b'-') || is_one_of!(tokens.lower(at), "de of the e and do")
    };
    let mut month_at = at;
    while month(tokens, month_at).is_none() {
        if !(number(month_at) || link(month_at)) || month_at > at + SPOKEN_TOKENS_MAX {
            return None;
        }
        month_at += 1;
    }
    let mut last = month_at;
    for next in month_at + 1..=month_at + SPOKEN_TOKENS_MAX {
        if number(next) {
            last = next;
        } else if !link(next) {
            break;
        }
    }
    let words = last > month_at && number(last);
    words.then_some(Date {
        first: at,
        last,
        year: 0,
        parts: (0, month(tokens, month_at)?),
    })
}

fn is_labelled(tokens: &Tokens<'_>, at: usize) -> bool {
    (1..=LABEL_DISTANCE_MAX)
        .map_while(|back| at.checked_sub(back))
        .take_while(|i| {
            let line = tokens.lines(i + 1) > 0 && tokens.sign(*i) != Some(b':');
            !(line
                || tokens.kind(*i) == Some(TokenKind::Redacted)
                || tokens.is(*i, EVENT) && tokens.lower(*i).len() > 3
                || tokens.sign(*i) == Some(b';')
                || tokens.sign(*i) == Some(b'.') && tokens.gap(i + 1) && tokens.is_capital(i + 1))
        })
        .any(|i| {
            let star = tokens.sign(i) == Some(b'*') && i + 1 == at;
            let short = i + 2 == at
                && matches!(tokens.lower(i), "b" | "n")
                && tokens.sign(i + 1) == Some(b'.')
                && (i == 0 || tokens.gap(i));
            let dotted = i + 4 == at
                && tokens.lower(i) == "d"
                && tokens.lower(i + 2) == "n"
                && matches!(tokens.sign(i + 1), Some(b'.' | b'/'))
                || i + 5 == at
                    && tokens.lower(i) == "d"
                    && tokens.lower(i + 2) == "n"
                    && tokens.sign(i + 4) == Some(b':');
            star || short
                || dotted
                || tokens.is_word(i)
                    && (tokens.is(i, BIRTH)
                        || tokens.lower(i) == "b" && i >= 2 && tokens.lower(i - 2) == "o")
        })
}

fn is_birth(tokens: &Tokens<'_>, date: &Date, names: &[Hit]) -> bool {
    if date.year == 0 || is_labelled(tokens, date.first) {
        return true;
    }
    let after = (1..=PERSON_DISTANCE_MAX).any(|step| {
        let at = date.last + step;
        let near = step <= 3 || tokens.sign(at - 1) == Some(b'(');
        near && tokens.lines(at) == 0 && tokens.is(at, BIRTH)
    });
    if after {
        return true;
    }
    let plausible = (1000..=UNLABELLED_YEAR_MAX).contains(&date.year)
        || (UNLABELLED_SHORT_YEAR_MIN..100).contains(&date.year);
    if !plausible {
        return false;
    }
    let same_line = |from: usize, to: usize| (from + 1..=to).all(|i| tokens.lines(i) == 0);
    let event = |from: usize, to: usize| (from..to).any(|i| tokens.is(i, EVENT));
    let only_person = |from: usize, to: usize| {
        (from..to).all(|i| {
            !tokens.is_word(i) || tokens.lower(i).len() < 3 || tokens.is(i, SEX_OR_AGE | MEASURE)
        })
    };
    let from = date.first.saturating_sub(PERSON_DISTANCE_MAX);
    let person_before = (from..date.first).any(|i| {
        tokens.is(i, SEX_OR_AGE)
            && same_line(i, date.first)
            && !event(i, date.first)
            && only_person(i, date.first)
    });
    let until = date.last + PERSON_DISTANCE_MAX;
    let person_after = (date.last + 1..=until).any(|i| {
        tokens.is(i, SEX_OR_AGE)
            && same_line(date.last, i)
            && !event(date.last, i)
            && only_person(date.last + 1, i)
    });
    let start = tokens.range(date.first, date.first).start;
    let header = hits_before(names, start).is_some_and(|name| {
        let first = (from..date.first).find(|i| tokens.range(*i, *i).start >= name.range.end);
        let first = first.unwrap_or(date.first);
        tokens.range(from, from).start < name.range.end
            && same_line(first.saturating_sub(1), date.first)
            && !(first..date.first).any(|i| tokens.is_word(i) && tokens.lower(i).len() > 2)
    });
    person_before || person_after || header
}

#[cfg(test)]
mod tests {
    use callboard_message::text::words;

    use super::*;
    use crate::verifier::identity::lexicon::{MONTHS, meaning_of};
    use crate::verifier::identity::reading::IdentityReading;

    /// Goal: dates of birth are found in each usual form, and other dates aren't. Method: a table.
    #[test]
    fn birth_dates() {
        for (text, expect) in [
            ("DOB 1922-05-23", Some("1922-05-23")),
            ("D.O.B.: 13/05/2019", Some("13/05/2019")),
            ("date of birth is June 20, 1959.", Some("June 20, 1959")),
            ("born on the 3rd of May 1971", Some("3rd of May 1971")),
            (
                "nascida em 12 de março de 1961",
                Some("12 de marco de 1961"),
            ),
            ("Data de nascimento: 12.03.61", Some("12.03.61")),
            ("DN 12031961", Some("12031961")),
            ("female, 64 years, 1961-03-12", Some("1961-03-12")),
            ("12/03/1961 (DOB)", Some("12/03/1961")),
            ("d.n. 17-06-1972", Some("17-06-1972")),
            ("12/mar/1961 (DOB)", Some("12/mar/1961")),
            ("22/08/2024 as 3 h (nascimento)", Some("22/08/2024")),
            ("turns 80 on 19 October", Some("19 October")),
            ("aniversario 15/08", Some("15/08")),
            ("turned on 3 May", None),
            ("woman with a knee of 12/03/2010", None),
            ("born in Lisbon, seen on 2026-10-16", None),
            ("seen on 2026-10-16", None),
            ("ECG of 12/03/1999 normal", None),
            ("version 1.2.3", None),
        ] {
            let reading = IdentityReading::new(text);
            let mut hits = Vec::new();
            find_birth_dates(&Tokens::new(&reading), &[], &mut hits);
            let found = hits.first().map(|hit| &reading.cased[hit.range.clone()]);
            assert_eq!(found, expect, "{text}");
        }
    }

    /// Goal: every word with which a date begins is marked as one. Method: all names of months.
    #[test]
    fn date_words() {
        let months: Vec<u8> = words(MONTHS).filter_map(month_of).collect();
        assert_eq!(months.len(), words(MONTHS).count());
        assert!(words(MONTHS).all(|word| meaning_of(word) & DATE_WORD != 0));
    }
}
