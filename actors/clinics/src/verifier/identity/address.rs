//! Postal addresses, postcodes, coordinates and places of residence.

use callboard_message::is_one_of;

use super::Hit;
use super::class::IdentityClass::{Address, Place};
use super::lexicon::{
    ADDRESS_LABEL, CLAUSE, MEASURE, PARTICLE, RESIDENCE, STREET, STREET_START, SURE_START,
    SURE_STREET, UNIT,
};
use super::reading::{TokenKind, Tokens};
use crate::verifier::word_lists::EVERYDAY;

/// Maximum number of words of a street's name.
const STREET_WORDS_MAX: usize = 6;
/// Maximum number of tokens of an address after its street: unit, town, postcode.
const TAIL_TOKENS_MAX: usize = 16;

/// Ends of street names that are one word with it, in Germanic and Finnic languages.
const STREET_ENDS: [&str; 19] = [
    "strasse", "straat", "strase", "strabe", "gasse", "allee", "gatan", "gata", "vagen", "vegen",
    "veien", "katu", "laan", "gade", "utca", "terrasse", "plads", "platz", "weg",
];
/// Adds addresses, postcodes with a town, coordinates, and places of residence.
pub(super) fn find_addresses(tokens: &Tokens<'_>, out: &mut Vec<Hit>) {
    let mut at = 0;
    while at < tokens.len() {
        let found = match tokens.kind(at) {
            Some(TokenKind::Number) => numbered_street(tokens, at)
                .or_else(|| coordinates(tokens, at))
                .or_else(|| postcode(tokens, at)),
            Some(TokenKind::Word) if !may_begin(tokens, at) => None,
            Some(TokenKind::Word) => named_street(tokens, at)
                .or_else(|| joined_street(tokens, at))
                .or_else(|| box_number(tokens, at))
                .or_else(|| unit(tokens, at))
                .or_else(|| postcode(tokens, at))
                .or_else(|| labelled(tokens, at)),
            Some(TokenKind::Sign) if tokens.sign(at) == Some(b'-') && tokens.is_number(at + 1) => {
                coordinates(tokens, at)
            }
            _ => None,
        };
        match found {
            Some((first, last)) => {
                let last = tail_end(tokens, last);
                out.push(Hit::new(tokens.range(first, last), Address));
                at = last + 1;
            }
            None => match residence(tokens, at) {
                Some((first, last)) => {
                    out.push(Hit::new(tokens.range(first, last), Place));
                    at = last + 1;
                }
                None => at += 1,
            },
        }
    }
}

type FoundAddress = Option<(usize, usize)>;

/// Returns whether an address may begin with the word at `at`. Most words don't need to be examined
/// further: without a meaning for addresses, a number must follow within two tokens.
fn may_begin(tokens: &Tokens<'_>, at: usize) -> bool {
    tokens.is_number(at + 1)
        || tokens.is_number(at + 2)
        || tokens.is(at, STREET_START | UNIT | ADDRESS_LABEL | RESIDENCE)
        || is_one_of!(tokens.lower(at), "r p zip cep postcode eircode")
}

fn same_line(tokens: &Tokens<'_>, at: usize) -> bool {
    tokens.lines(at) == 0
}

/// Returns the end of the words that may be a street's name, from `at`: capitalised words,
/// particles, ordinals, and full stops and hyphens inside.
fn name_end(tokens: &Tokens<'_>, at: usize, any_case: bool) -> usize {
    let (mut next, mut words) = (at, 0);
    while words < STREET_WORDS_MAX {
        let word = tokens.is_capital(next)
            || any_case && tokens.is_word(next)
            || tokens.is_word(next) && tokens.is(next, PARTICLE);
        let inner = next > at
            && tokens.is_word(next + 1)
            && !tokens.gap(next)
            && match tokens.sign(next) {
                Some(b'-' | b'\'') => !tokens.gap(next + 1),
                // A full stop shortens a word: "St. James".
                Some(b'.') => tokens.lower(next - 1).len() <= 3,
                _ => false,
            };
        if !(word || inner) || next > at && !same_line(tokens, next) {
            break;
        }
        words += usize::from(word);
        next += 1;
    }
    next
}

/// Returns an address that begins with its number: `2 Jones Road`, `31 rue de la Paix`, `5586
/// Tylova 31`.
fn numbered_street(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    let number = tokens.cased(at);
    // "5/22 Banksia Street": the unit before the house.
    if tokens.sign(at + 1) == Some(b'/') && tokens.gap(at) && tokens.is_number(at + 2) {
        return numbered_street(tokens, at + 2).map(|(_, end)| (at, end));
    }
    let inner = at > 0 && !tokens.gap(at) && !matches!(tokens.sign(at - 1), Some(b'(' | b'/'));
    if number.len() > 6 || inner {
        return None;
    }
    let mut next = at + 1;
    // "12a", "4th", a second number before the street.
    if tokens.is_word(next) && !tokens.gap(next) && tokens.lower(next).len() <= 2 {
        next += 1;
    }
    next += usize::from(tokens.sign(next) == Some(b','));
    let second = tokens.is_number(next) && tokens.cased(next).len() <= 4 && same_line(tokens, next);
    next += usize::from(second);
    if second && is_one_of!(tokens.lower(next), "st nd rd th") {
        next += 1;
    }
    if let Some(end) = ordinal_street(tokens, next) {
        return Some((at, end));
    }
    if !tokens.is_word(next) || !same_line(tokens, next) || !tokens.gap(next) {
        return None;
    }
    if tokens.is(next, STREET_START)
        && let Some(found) = street_after(tokens, next, false)
    {
        return Some((at, found));
    }
    let name = name_end(tokens, next, false);
    // The last street word of the name, behind at least one other word.
    let end = (next + 1..name).rev().find(|i| is_street_word(tokens, *i));
    if let Some(end) = end {
        return Some((at, end));
    }
    let any = name_end(tokens, next, true).min(next + 5);
    let sure = (next + 1..any)
        .find(|i| tokens.is_word(*i) && tokens.is(*i, SURE_STREET) && same_line(tokens, *i));
    if let Some(end) = sure.filter(|_| !is_one_of!(tokens.lower(next), "mg g ml days of in")) {
        return Some((at, end));
    }
    // Number, name, number: a house and its street in much of Europe, with a unit or town after it.
    let house = name;
    let rare = |at: usize| {
        let long = tokens.lower(at).chars().count() >= 4;
        tokens.is_capital(at) && long && !EVERYDAY.contains(tokens.lower(at))
    };
    let comma = tokens.sign(at + 1) == Some(b',');
    let named = name > next && !comma && (next..name).any(rare);
    let follows = matches!(tokens.sign(house + 1), Some(b','))
        || tokens.lines(house + 1) > 0
        || tokens.is(house + 1, UNIT);
    (named
        && number.len() >= 2
        && tokens.is_number(house)
        && tokens.cased(house).len() <= 4
        && follows
        && same_line(tokens, house))
    .then_some((at, house))
}

/// Returns the end of a numbered street of America, perhaps behind a point of the compass: `57th St`,
/// `W 57th St`.
fn ordinal_street(tokens: &Tokens<'_>, at: usize) -> Option<usize> {
    let compass = is_one_of!(
        tokens.lower(at),
        "n s e w ne nw se sw north south east west",
    );
    let mut number = at + usize::from(compass);
    number += usize::from(compass && tokens.sign(number) == Some(b'.'));
    if compass && tokens.is_number(number) {
        let ordinal = is_one_of!(tokens.lower(number + 1), "st nd rd th");
        number += 1 + usize::from(ordinal);
    }
    (tokens.is(number, STREET) && (compass || tokens.is_number(number - 2)))
        .then_some(number)
        .filter(|end| same_line(tokens, *end) && tokens.is_capital(*end))
}

fn is_street_word(tokens: &Tokens<'_>, at: usize) -> bool {
    let word = tokens.lower(at);
    tokens.is_word(at)
        && tokens.is(at, STREET)
        // "St" and "Dr" before a name are titles.
        && !(is_one_of!(word, "st dr") && tokens.sign(at + 1) == Some(b'.') && tokens.is_capital(at + 2))
}

/// Returns the end of a street whose name begins with the word for it, at `at`.
fn street_after(tokens: &Tokens<'_>, at: usize, needs_number: bool) -> Option<usize> {
    let mut next = at + 1;
    next += usize::from(tokens.sign(next) == Some(b'.') && !tokens.gap(next));
    // "25 de Abril", as streets are called after dates.
    if tokens.is_number(next) && tokens.is(next + 1, PARTICLE) {
        next += 1;
    }
    let capital = tokens.is_capital(next)
        || tokens.is(next, PARTICLE)
            && (tokens.is_capital(next + 1) || tokens.is(next + 1, PARTICLE));
    // In lower case a number must follow.
    let needs_number = needs_number || !capital;
    let end = name_end(tokens, next, !capital);
    if end == next || capital && !(next..end).any(|i| tokens.is_capital(i)) {
        return None;
    }
    let mut number = end;
    number += usize::from(tokens.sign(number) == Some(b','));
    if is_one_of!(tokens.lower(number), "n no num numero nr lote km casa") {
        number += 1;
        number += usize::from(matches!(tokens.sign(number), Some(b'.')));
        number += usize::from(tokens.lower(number) == "o");
    }
    if tokens.is_number(number) && same_line(tokens, number) && tokens.cased(number).len() <= 6 {
        return Some(number);
    }
    (!needs_number).then_some(end - 1)
}

/// Returns a street by the word before its name: `Rua das Flores, 123`.
fn named_street(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    let word = tokens.lower(at);
    if word.len() < 2 || !tokens.is(at, STREET_START) {
        // "R. das Flores, 12", as Brazilians abbreviate it.
        let short = word == "r"
            && tokens.sign(at + 1) == Some(b'.')
            && (tokens.is_capital(at) || tokens.is(at + 2, PARTICLE));
        return short
            .then(|| street_after(tokens, at, true).map(|end| (at, end)))
            .flatten();
    }
    let dated = tokens.is_number(at + 1) && !tokens.is(at + 2, PARTICLE);
    let sure = !dated && tokens.is(at, SURE_START) || word == "av" && tokens.is_capital(at);
    if !sure && !tokens.is_capital(at) {
        return None;
    }
    street_after(tokens, at, !sure).map(|end| (at, end))
}

/// Returns a street of one word with its number: `Feldstrasse 42`.
fn joined_street(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    let word = tokens.lower(at);
    let long = |end: &&str| word.len() >= end.len() + 3 && word.ends_with(*end);
    let number = at + 1 + usize::from(tokens.sign(at + 1) == Some(b'.'));
    if !tokens.is_number(number) || !same_line(tokens, number) {
        return None;
    }
    let is = STREET_ENDS.iter().any(&long)
        || tokens.is_capital(at) && ["vej", "tie", "vei", "str"].iter().any(long);
    (is && tokens.cased(number).len() <= 5).then(|| {
        let before = at
            .checked_sub(1)
            .filter(|i| tokens.is_number(*i) && same_line(tokens, at));
        (before.unwrap_or(at), number)
    })
}

/// Returns a post box: `P.O. Box 12`, `PSC 3117, Box 0609`, `Caixa Postal 12`.
fn box_number(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    let word = tokens.lower(at);
    match word {
        "p" => {
            let o = at + 1 + usize::from(tokens.sign(at + 1) == Some(b'.'));
            let b = o + 1 + usize::from(tokens.sign(o + 1) == Some(b'.'));
            (tokens.lower(o) == "o" && tokens.lower(b) == "box" && tokens.is_number(b + 1))
                .then_some((at, b + 1))
        }
        "po" => (tokens.lower(at + 1) == "box" && tokens.is_number(at + 2)).then_some((at, at + 2)),
        "psc" | "cmr" | "unit" => {
            let b = at + 2 + usize::from(tokens.sign(at + 2) == Some(b','));
            (tokens.is_number(at + 1) && tokens.lower(b) == "box" && tokens.is_number(b + 1))
                .then_some((at, b + 1))
        }
        "apo" | "fpo" | "dpo" => (is_one_of!(tokens.lower(at + 1), "aa ae ap")
            && tokens.is_number(at + 2))
        .then_some((at, at + 2)),
        "caixa" => {
            (tokens.lower(at + 1) == "postal" && tokens.is_number(at + 2)).then_some((at, at + 2))
        }
        "postbox" | "postboks" | "apartado" | "postfach" => {
            tokens.is_number(at + 1).then_some((at, at + 1))
        }
        _ => None,
    }
}

/// Returns a unit inside a building, with the street before it: `Apt. 169`.
fn unit(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    if !tokens.is(at, UNIT) || is_one_of!(tokens.lower(at), "room floor casa sala andar unit") {
        return None;
    }
    let mut number = at + 1;
    number += usize::from(tokens.sign(number) == Some(b'.'));
    if !tokens.is_number(number) || !same_line(tokens, number) || tokens.cased(number).len() > 5 {
        return None;
    }
    let letter = tokens.is_word(number + 1) && !tokens.gap(number + 1);
    let last = number + usize::from(letter);
    let alone = matches!(tokens.sign(last + 1), Some(b','))
        || tokens.is_capital(last + 1)
        || tokens.is_number(last + 1);
    // The street before it: capitalised words behind a number on the same or the line before.
    let mut first = at;
    for back in 1..=8 {
        let Some(i) = at.checked_sub(back) else { break };
        if tokens.is_number(i) {
            first = i;
        } else if !(tokens.is_capital(i)
            || tokens.is(i, PARTICLE)
            || tokens.sign(i).is_some_and(|s| b",.-'".contains(&s)))
        {
            break;
        }
    }
    // The street may follow: "flat 3, 81 Dunbar Road".
    let street = last + 1 + usize::from(tokens.sign(last + 1) == Some(b','));
    if let Some((_, end)) = Some(street)
        .filter(|i| tokens.is_number(*i))
        .and_then(|i| numbered_street(tokens, i))
    {
        return Some((first, end));
    }
    (alone || first < at).then_some((first, last))
}

/// States of the United States, as in postal addresses.
const STATES: &str = "AL AK AZ AR AA AE AP CA CO CT DE DC FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ \
    NM NY NC ND OH OK OR PA RI SC SD TN TX UT VT VA WA WV WI WY PR MH FM GU VI AS PW MP";

/// Returns a postcode: `Gilbertberg, MD 34131`, `L3 6AY`, `13010-100`, `3000-123 Coimbra`.
fn postcode(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    if tokens.is_number(at) {
        let tight = tokens.sign(at + 1) == Some(b'-')
            && !tokens.gap(at + 1)
            && !tokens.gap(at + 2)
            && tokens.is_number(at + 2);
        let alone = (at == 0 || tokens.gap(at) || tokens.sign(at - 1) == Some(b'('))
            && (tokens.gap(at + 3) || tokens.sign(at + 3) != Some(b'-'));
        if tight && alone && tokens.cased(at + 2).len() == 3 {
            let town = tokens.is_capital(at + 3) && same_line(tokens, at + 3);
            return match tokens.cased(at).len() {
                5 => Some((at, at + 2)),
                4 if town => Some((at, at + 3)),
                _ => None,
            };
        }
        return None;
    }
    let word = tokens.cased(at);
    if word.len() == 2
        && is_one_of!(word, STATES)
        && tokens.is_number(at + 1)
        && tokens.cased(at + 1).len() == 5
        && same_line(tokens, at + 1)
    {
        let comma = at > 0 && tokens.sign(at - 1) == Some(b',');
        let mut first = at - usize::from(comma);
        while first > 0 && tokens.is_capital(first - 1) && at - first < 5 {
            first -= 1;
        }
        return (first < at && tokens.is_word(first)).then_some((first, at + 1));
    }
    if matches!(tokens.lower(at), "zip" | "cep" | "postcode" | "eircode") {
        return labelled_postcode(tokens, at);
    }
    if let Some(end) = irish_postcode(tokens, at) {
        return Some((at, end));
    }
    // British: one or two letters, digits, white space, digit, two letters.
    let letters = word.len() <= 2 && word.bytes().all(|b| b.is_ascii_uppercase());
    if !letters || !tokens.is_number(at + 1) || tokens.gap(at + 1) || tokens.cased(at + 1).len() > 2
    {
        return None;
    }
    let mut inward = at + 2;
    inward += usize::from(
        tokens.is_word(inward) && !tokens.gap(inward) && tokens.cased(inward).len() == 1,
    );
    let letters = tokens.cased(inward + 1);
    (tokens.is_number(inward)
        && tokens.gap(inward)
        && same_line(tokens, inward)
        && tokens.cased(inward).len() == 1
        && !tokens.gap(inward + 1)
        && letters.len() == 2
        && letters.bytes().all(|b| b.is_ascii_uppercase()))
    .then_some((at, inward + 1))
}

/// Returns the end of an Irish postcode: a letter and two digits, then four letters and digits, as in
/// `P17 AW68`.
fn irish_postcode(tokens: &Tokens<'_>, at: usize) -> Option<usize> {
    let area = tokens.cased(at).len() == 1
        && tokens.is_capital(at)
        && !tokens.gap(at + 1)
        && tokens.cased(at + 1).len() == 2
        && tokens.is_number(at + 1);
    if !area {
        return None;
    }
    let start = tokens.get(at + 2).filter(|t| t.gap && t.lines == 0)?;
    let mut last = at + 2;
    while !tokens.gap(last + 1) && tokens.sign(last + 1).is_none() {
        last += 1;
    }
    let unique = &tokens.reading.cased[start.start..tokens.get(last)?.end];
    let mixed = unique.bytes().any(|b| b.is_ascii_digit())
        && unique.bytes().any(|b| b.is_ascii_uppercase())
        && unique
            .bytes()
            .all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    (mixed && unique.len() == 4).then_some(last)
}

fn labelled_postcode(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    let mut next = at + 1;
    while next < at + 5
        && (is_one_of!(tokens.lower(next), "code is e :") || tokens.sign(next) == Some(b':'))
    {
        next += 1;
    }
    let digits = tokens.cased(next).len();
    (tokens.is_number(next) && (4..=8).contains(&digits)).then(|| {
        let more = tokens.sign(next + 1) == Some(b'-') && tokens.is_number(next + 2);
        (next, if more { next + 2 } else { next })
    })
}

/// Returns a pair of coordinates: `-22.9056, -47.0608`, `22°54'S 47°03'W`.
fn coordinates(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    let decimal = |from: usize| -> Option<(f64, usize)> {
        let minus = usize::from(tokens.sign(from) == Some(b'-'));
        let whole = from + minus;
        let tight = tokens.sign(whole + 1) == Some(b'.')
            && !tokens.gap(whole + 1)
            && !tokens.gap(whole + 2);
        let (degrees, fraction) = (tokens.cased(whole), tokens.cased(whole + 2));
        let shaped = tokens.is_number(whole)
            && tight
            && tokens.is_number(whole + 2)
            && degrees.len() <= 3
            && fraction.len() >= 4;
        shaped
            .then(|| Some((degrees.parse().ok()?, whole + 2)))
            .flatten()
    };
    let skip = |mut at: usize| {
        while is_one_of!(
            tokens.lower(at),
            "o n s e w , ; lat lon lng long latitude longitude : =",
        ) {
            at += 1;
        }
        at
    };
    if let Some((latitude, end)) = decimal(at) {
        let (longitude, last) = decimal(skip(end + 1))?;
        return (latitude <= 90.0 && longitude <= 180.0).then_some((at, last));
    }
    // Degrees and minutes: the degree sign reads as the letter o.
    let degree = |from: usize| {
        let shaped = tokens.is_number(from)
            && tokens.lower(from + 1) == "o"
            && tokens.is_number(from + 2)
            && matches!(tokens.sign(from + 3), Some(b'\''));
        if !shaped {
            return None;
        }
        let mut end = from + 3;
        if tokens.is_number(end + 1) {
            end += 2;
            while tokens.is_number(end + 1)
                || matches!(tokens.sign(end + 1), Some(b'.' | b'"' | b'\'')) && end < from + 12
            {
                end += 1;
            }
        }
        is_one_of!(tokens.lower(end + 1), "n s e w o l").then_some(end + 1)
    };
    let end = degree(at)?;
    Some((
        at,
        degree(end + 1 + usize::from(tokens.sign(end + 1) == Some(b',')))?,
    ))
}

/// Returns what stands behind a label of an address, up to the end of the line or sentence, if it
/// holds a number or two capitalised words.
fn labelled(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    if !tokens.is(at, ADDRESS_LABEL | RESIDENCE) {
        return None;
    }
    let start = match tokens.lower(at) {
        "address" | "endereco" | "morada" | "direccion" | "adresse" => {
            let next = at + 1;
            let colon = tokens.sign(next) == Some(b':');
            (colon || is_one_of!(tokens.lower(next), "is e")).then_some(next + 1)?
        }
        "lives" | "live" | "lived" | "living" | "resides" | "residing" | "reside" | "mora"
        | "moro" | "vive" | "residente" => {
            is_one_of!(tokens.lower(at + 1), "at on na no em in").then_some(at + 2)?
        }
        _ => return None,
    };
    let (mut last, mut capitals, mut numbers) = (None, 0, 0);
    for next in start..start + TAIL_TOKENS_MAX {
        let ends = match tokens.kind(next) {
            None | Some(TokenKind::Redacted) => true,
            Some(TokenKind::Sign) => {
                matches!(tokens.sign(next), Some(b';' | b'(' | b'?' | b'!' | b'@'))
                    || tokens.sign(next) == Some(b'.')
                        && tokens.gap(next + 1)
                        && tokens.lower(next - 1).len() > 3
            }
            _ => false,
        };
        if ends || next > start && tokens.lines(next) > 0 || tokens.is(next, CLAUSE) {
            break;
        }
        capitals += usize::from(tokens.is_capital(next));
        numbers += usize::from(tokens.is_number(next));
        if tokens.sign(next).is_none() {
            last = Some(next);
        }
    }
    let last = last?;
    let street =
        capitals > 0 && numbers > 0 && tokens.is_number(start) || capitals > 1 && numbers > 0;
    (street && (!tokens.is_number(last) || last > start)).then_some((start, last))
}

/// Returns the last token of an address whose street ends at `last`: unit, town, state, postcode
/// and country behind commas or line breaks.
fn tail_end(tokens: &Tokens<'_>, last: usize) -> usize {
    let (mut end, mut next) = (last, last + 1);
    let mut separated = false;
    while next <= last + TAIL_TOKENS_MAX {
        let Some(token) = tokens.get(next) else { break };
        if token.lines > 1 {
            break;
        }
        separated |= token.lines > 0;
        let word = tokens.lower(next);
        match token.kind {
            TokenKind::Sign if matches!(tokens.sign(next), Some(b',' | b'>')) => separated = true,
            TokenKind::Sign
                if matches!(tokens.sign(next), Some(b'-' | b'.' | b'/')) && !token.gap => {}
            TokenKind::Sign if tokens.sign(next) == Some(b'-') => separated = true,
            TokenKind::Word if tokens.is(next, UNIT) => end = next,
            TokenKind::Number if token.end - token.start <= 6 && !is_amount(tokens, next) => {
                end = next
            }
            TokenKind::Word if !token.gap && tokens.is_number(next - 1) && word.len() <= 2 => {
                end = next
            }
            // A town: capitalised, behind a separator or a unit's number.
            TokenKind::Word
                if tokens.is_capital(next)
                    && (separated || tokens.is_number(next - 1) || end + 1 == next)
                    && is_town_word(tokens, next)
                    && tokens.sign(next + 1) != Some(b':') =>
            {
                end = next;
            }
            TokenKind::Word
                if tokens.is(next, PARTICLE) && tokens.is_capital(next + 1) && end + 1 == next => {}
            // A town in lower case before a postcode.
            TokenKind::Word if separated && !tokens.is_capital(next) => {
                match postcode(tokens, next + 1) {
                    Some((_, last)) => return last,
                    None => break,
                }
            }
            _ => break,
        }
        next += 1;
    }
    end
}

/// Returns whether a capitalised word may be part of a town's name: it is no everyday word, or such
/// a word or a comma follows.
fn is_town_word(tokens: &Tokens<'_>, at: usize) -> bool {
    let rare = |at: usize| tokens.is_capital(at) && !EVERYDAY.contains(tokens.lower(at));
    rare(at)
        || rare(at + 1) && same_line(tokens, at + 1)
        || tokens.sign(at + 1) == Some(b',') && (rare(at + 2) || tokens.is_number(at + 2))
}

/// Returns whether a number after an address is one of another kind: a date, time, dose or ratio.
fn is_amount(tokens: &Tokens<'_>, at: usize) -> bool {
    let after = tokens.sign(at + 1);
    let tight = !tokens.gap(at + 1);
    tight && matches!(after, Some(b':' | b'%'))
        || tight && matches!(after, Some(b'/' | b'.')) && tokens.is_number(at + 2)
        || tokens.is(at + 1, MEASURE)
        || super::date::date_at(tokens, at).is_some()
}

/// Returns the place after a phrase of residence or origin, such as "lives in" or "natural de".
fn residence(tokens: &Tokens<'_>, at: usize) -> FoundAddress {
    if !tokens.is(at, RESIDENCE) {
        return None;
    }
    let (word, next) = (tokens.lower(at), tokens.lower(at + 1));
    let start = match (word, next) {
        (
            "lives" | "live" | "lived" | "living" | "resides" | "residing" | "reside" | "born",
            "in" | "near",
        ) => at + 2,
        ("resident" | "native", "of") => at + 2,
        ("originally" | "comes" | "moved" | "here" | "hails", "from") => at + 2,
        ("moved" | "relocated", "to") => at + 2,
        (
            "mora" | "moro" | "vive" | "vivo" | "reside" | "residente" | "moradora" | "morador"
            | "nascido" | "nascida" | "domiciliado" | "domiciliada",
            "em" | "no" | "na",
        ) => at + 2,
        ("natural" | "naturais" | "procedente" | "oriundo" | "oriunda", "de" | "do" | "da") => {
            at + 2
        }
        (
            "city" | "town" | "cidade" | "hometown" | "birthplace" | "naturalidade" | "municipio",
            _,
        ) if tokens.sign(at + 1) == Some(b':') => at + 2,
        _ => return None,
    };
    let end = name_end(tokens, start, false);
    let named = (start..end).any(|i| tokens.is_capital(i) && !EVERYDAY.contains(tokens.lower(i)));
    if !named || !tokens.is_capital(start) {
        return None;
    }
    let mut last = end - 1;
    if tokens.sign(end) == Some(b',')
        && tokens.is_capital(end + 1)
        && !EVERYDAY.contains(tokens.lower(end + 1))
    {
        last = name_end(tokens, end + 1, false) - 1;
    }
    while last > start && !tokens.is_capital(last) {
        last -= 1;
    }
    Some((start, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::identity::reading::IdentityReading;

    /// Goal: addresses of several countries are found whole, and clinical text isn't taken for one. Method: a table.
    #[test]
    fn addresses() {
        for (text, expect) in [
            (
                "to 2 Jones Road, Lake Tracyhaven, L3 6AY.",
                Some("2 Jones Road, Lake Tracyhaven, L3 6AY"),
            ),
            ("12 Acacia Avenue", Some("12 Acacia Avenue")),
            (
                "799 Smith Road Suite 655, Robertburgh, WI 37765.",
                Some("799 Smith Road Suite 655, Robertburgh, WI 37765"),
            ),
            ("mora na Rua das Flores, 123", Some("Rua das Flores, 123")),
            (
                "Av. Brasil, 1500, Campinas",
                Some("Av. Brasil, 1500, Campinas"),
            ),
            ("31 rue de la Paix", Some("31 rue de la Paix")),
            ("Feldstrasse 42", Some("Feldstrasse 42")),
            ("PSC 3117, Box 0609", Some("PSC 3117, Box 0609")),
            ("P.O. Box 12", Some("P.O. Box 12")),
            ("CEP 13010-100", Some("13010-100")),
            ("at -22.9056, -47.0608 today", Some("-22.9056, -47.0608")),
            ("lives in Porto Alegre", Some("Porto Alegre")),
            ("Kinsale, P17 AW68 today", Some("P17 AW68")),
            (
                "to 221 W 57th St, New York.",
                Some("221 W 57th St, New York"),
            ),
            ("Unit 5/22 Banksia Street.", Some("5/22 Banksia Street")),
            ("Avenida 25 de Abril, 112", Some("Avenida 25 de Abril, 112")),
            ("pain at T12 L1 today", None),
            ("amiodarone 200 mg once daily", None),
            ("BP 120/80, seen at 10:30 in Room 4", None),
            ("pain for 12-24 hours", None),
            ("lives in a nursing home", None),
            ("INR 2.3, 2.4 and 2.5", None),
        ] {
            let reading = IdentityReading::new(text);
            let mut hits = Vec::new();
            find_addresses(&Tokens::new(&reading), &mut hits);
            let found = hits.first().map(|hit| &reading.cased[hit.range.clone()]);
            assert_eq!(found, expect, "{text}");
        }
    }
}
