//! Identification and telephone numbers, by label, by shape and by check digits.

use std::ops::RangeInclusive;

use callboard_message::is_one_of;

use super::Hit;
use super::checksum::{
    is_aadhaar, is_cnpj, is_cns, is_cpf, is_dni, is_iban, is_luhn_valid, is_nhs_number, is_nif,
    is_npi, is_personnummer,
};
use super::class::IdentityClass::{self, Id, Phone};
use super::date::date_at;
use super::lexicon::{CALL, FILLER, MEASURE, NUMBER_LABEL, PATIENT, SCHEME, TELEPHONE};
use super::reading::{TokenKind, Tokens};

/// Maximum number of tokens between a label and its number.
const LABEL_DISTANCE_MAX: usize = 8;

/// Minimum digits of a number without a label.
const NUMBER_DIGITS_MIN: usize = 7;
/// Number of digits after which the rest of a code isn't read.
const CODE_DIGITS_MAX: usize = 24;

/// Groups of digits, with the tokens between them.
struct DigitRun {
    first: usize,
    last: usize,
    /// Lengths of the groups.
    groups: Vec<usize>,
    /// Signs between the groups; a space for white space.
    signs: Vec<u8>,
    digits: String,
    /// Whether a `+` stands before it, or a `(`.
    plus: bool,
    paren: bool,
}

/// Maximum number of groups of digits in one number.
const GROUPS_MAX: usize = 8;

/// Adds the identification numbers and telephone numbers.
pub(super) fn find_numbers(tokens: &Tokens<'_>, out: &mut Vec<Hit>) {
    let mut at = 0;
    while at < tokens.len() {
        let found = match tokens.kind(at) {
            Some(TokenKind::Word) => labelled(tokens, at)
                .or_else(|| coded(tokens, at))
                .or_else(|| lettered(tokens, at))
                .or_else(|| spoken(tokens, at)),
            Some(TokenKind::Number) if is_short(tokens, at) => None,
            Some(TokenKind::Number) => unlabelled(tokens, at),
            Some(TokenKind::Sign) if tokens.is_number(at + 1) && !tokens.gap(at + 1) => {
                match tokens.sign(at) {
                    Some(b'+' | b'(') => unlabelled(tokens, at),
                    _ => None,
                }
            }
            _ => None,
        };
        match found {
            Some((first, last, class)) => {
                out.push(Hit::new(tokens.range(first, last), class));
                at = last + 1;
            }
            // The rest of a number isn't a number of its own.
            None if tokens.is_number(at) && !is_short(tokens, at) => {
                // Behind a bracket another one may begin: "CARD-001 (894.099.085-40)".
                let run = digit_run(tokens, at).filter(|run| !run.signs.contains(&b'('));
                at = run.map_or(at, |run| run.last) + 1;
            }
            None => at += 1,
        }
    }
}

/// Returns whether the number at `at` is too short to be found without a label, and nothing that could
/// be another group of digits follows.
fn is_short(tokens: &Tokens<'_>, at: usize) -> bool {
    let continues = match tokens.kind(at + 1) {
        Some(TokenKind::Number) => true,
        Some(TokenKind::Sign) => tokens.sign(at + 1).is_some_and(|s| b"-./()".contains(&s)),
        _ => false,
    };
    !continues && tokens.cased(at).len() < NUMBER_DIGITS_MIN
}

type FoundNumber = Option<(usize, usize, IdentityClass)>;

/// Returns the number after the label at `at`.
fn labelled(tokens: &Tokens<'_>, at: usize) -> FoundNumber {
    if !tokens.is(at, SCHEME | NUMBER_LABEL | TELEPHONE | CALL) {
        return None;
    }
    let mut label = at;
    let mut next = at + 1;
    while next <= at + LABEL_DISTANCE_MAX {
        let token = tokens.get(next)?;
        if token.lines > 1 || token.lines == 1 && tokens.sign(next - 1) != Some(b':') {
            return None;
        }
        match token.kind {
            TokenKind::Redacted => return None,
            TokenKind::Number => break,
            TokenKind::Sign => match tokens.sign(next) {
                Some(b'+' | b'(') if tokens.is_number(next + 1) => break,
                // A code of an error: "no patient with that patient_id (-32000)".
                Some(b'-') if is_negative_aside(tokens, next) && !tokens.is(label, SCHEME) => {
                    return None;
                }
                // "her driver's license, D1234-56789": a longer number than a year.
                Some(b',')
                    if tokens.is(label, SCHEME)
                        && (begins_code(tokens, next + 1)
                            || tokens.is_number(next + 1) && tokens.cased(next + 1).len() > 4) => {}
                Some(
                    b':' | b'#' | b'.' | b'-' | b'=' | b'(' | b'_' | b'/' | b'"' | b'\'' | b'*'
                    | b'|',
                ) => {}
                _ => return None,
            },
            TokenKind::Word => {
                // A code that begins with letters: "H0797307", "MRN-775627".
                if begins_code(tokens, next) {
                    break;
                }
                if is_state(tokens, next) {
                    next += 1;
                    continue;
                }
                if is_series(tokens, next) {
                    break;
                }
                // "insurance phone": the later label is meant.
                if tokens.is(next, SCHEME | TELEPHONE) {
                    label = next;
                } else if !(tokens.is(next, FILLER | NUMBER_LABEL | PATIENT)
                    // "Passaporte angolano N1882034".
                    || tokens.is(label, SCHEME) && next == at + 1 && begins_code(tokens, next + 1))
                {
                    return None;
                }
            }
        }
        next += 1;
    }
    let is = |meaning| tokens.is(label, meaning);
    if is(SCHEME) {
        code_of(tokens, next, 4)
    } else if is(TELEPHONE) {
        phone_of(tokens, next, 6)
    } else if is(NUMBER_LABEL) {
        // With letters it is hardly a year or an amount.
        let mixed = tokens.is_word(next);
        code_of(tokens, next, if mixed { 4 } else { 5 })
    } else {
        phone_of(tokens, next, 7)
    }
}

/// Returns whether a word is the series before a longer number, as in `YB 2209147`.
fn is_series(tokens: &Tokens<'_>, at: usize) -> bool {
    let series = tokens.cased(at);
    series.len() <= 3
        && series.bytes().all(|b| b.is_ascii_uppercase())
        && tokens.lines(at + 1) == 0
        && tokens.is_number(at + 1)
        && tokens.cased(at + 1).len() > 4
}

/// Returns whether a word is the state of the council before it, as in `CRM-SP` and `CRM/SP`.
fn is_state(tokens: &Tokens<'_>, at: usize) -> bool {
    let code = tokens.cased(at);
    code.len() == 2
        && code.bytes().all(|b| b.is_ascii_uppercase())
        && matches!(tokens.sign(at - 1), Some(b'-' | b'/'))
        && !tokens.gap(at)
}

/// Returns whether the `-` at `at` begins a negative number in parentheses.
fn is_negative_aside(tokens: &Tokens<'_>, at: usize) -> bool {
    tokens.sign(at - 1) == Some(b'(') && tokens.is_number(at + 1) && !tokens.gap(at + 1)
}

/// Returns whether a word begins a code: digits follow without white space, perhaps behind a
/// hyphen.
fn begins_code(tokens: &Tokens<'_>, at: usize) -> bool {
    let hyphen = usize::from(tokens.sign(at + 1) == Some(b'-') && !tokens.gap(at + 1));
    let next = at + 1 + hyphen;
    tokens.is_number(next) && !tokens.gap(next) && tokens.lower(at).len() <= 8
}

/// Returns the code of letters, digits and separators at `at`, if it has at least `digits_min`
/// digits and is no date.
fn code_of(tokens: &Tokens<'_>, at: usize, digits_min: usize) -> FoundNumber {
    if date_at(tokens, at).is_some() {
        return None;
    }
    let (mut last, mut digits) = (None, 0);
    let mut next = at;
    while let Some(token) = tokens.get(next).filter(|_| digits <= CODE_DIGITS_MAX) {
        let inner = next == at || !token.gap;
        let len = token.end - token.start;
        match token.kind {
            TokenKind::Number if inner || last.is_some() && token.lines == 0 && digits < 20 => {
                digits += len;
                last = Some(next);
            }
            TokenKind::Word
                if inner && len <= 6
                    || last.is_some() && len <= 2 && is_code_letter(tokens, next) =>
            {
                last = Some(next);
            }
            TokenKind::Sign
                if inner
                    && matches!(
                        tokens.sign(next),
                        Some(b'-' | b'.' | b'/' | b'(' | b')' | b'+' | b'_')
                    )
                    && !tokens.gap(next + 1) => {}
            _ => break,
        }
        next += 1;
    }
    // A unit after the number belongs to another one.
    (digits >= digits_min).then_some((at, last?, Id))
}

/// Returns whether a word of one or two capital letters continues a code, as in `QQ 12 34 56 C`.
fn is_code_letter(tokens: &Tokens<'_>, at: usize) -> bool {
    tokens.lines(at) == 0
        && tokens.cased(at).bytes().all(|b| b.is_ascii_uppercase())
        && (tokens.gap(at + 1) || tokens.is_number(at + 1))
        && tokens.cased(at).len() == 1
}

fn phone_of(tokens: &Tokens<'_>, at: usize, digits_min: usize) -> FoundNumber {
    if date_at(tokens, at).is_some() {
        return None;
    }
    let run = digit_run(tokens, at)?;
    let digits = run.digits.len();
    ((digits_min..=15).contains(&digits) && !is_years(&run, tokens))
        .then(|| (run.first, extension(tokens, run.last), Phone))
}

/// Returns the last token of a telephone extension behind a number, as in `x498`, or else `last`.
fn extension(tokens: &Tokens<'_>, last: usize) -> usize {
    let word = last + 1;
    let number = word + 1 + usize::from(tokens.sign(word + 1) == Some(b'.'));
    let named = is_one_of!(tokens.lower(word), "x ext extension ramal") && tokens.lines(word) == 0;
    if named && tokens.is_number(number) {
        number
    } else {
        last
    }
}

fn is_years(run: &DigitRun, tokens: &Tokens<'_>) -> bool {
    run.groups.len() > 1
        && run.groups.iter().all(|len| *len == 4)
        && (run.first..=run.last)
            .filter(|i| tokens.is_number(*i))
            .all(|i| tokens.cased(i).starts_with("19") || tokens.cased(i).starts_with("20"))
}

/// Reads groups of digits with single separators between them, from `at`: a number, or a `+` or
/// `(` before one.
fn digit_run(tokens: &Tokens<'_>, at: usize) -> Option<DigitRun> {
    let mut next = at;
    let plus = tokens.sign(next) == Some(b'+');
    next += usize::from(plus);
    let paren = tokens.sign(next) == Some(b'(');
    next += usize::from(paren);
    if !tokens.is_number(next) {
        return None;
    }
    let mut run = DigitRun {
        first: at,
        last: next,
        groups: vec![tokens.cased(next).len()],
        signs: Vec::new(),
        digits: tokens.cased(next).to_owned(),
        plus,
        paren,
    };
    while run.groups.len() < GROUPS_MAX {
        let mut next = run.last + 1;
        let mut sign = b' ';
        let mut tight = true;
        // At most two signs: `) `, ` (`, `(0)`.
        for _ in 0..2 {
            match tokens.sign(next) {
                Some(s @ (b'-' | b'.' | b'/')) if sign == b' ' && !tokens.gap(next) => {
                    tight = !tokens.gap(next + 1);
                    sign = s;
                }
                Some(s @ (b'(' | b')')) => sign = s,
                _ => break,
            }
            next += 1;
        }
        let near = tokens.get(next).is_some_and(|t| t.lines == 0);
        if !tokens.is_number(next)
            || !near
            || !tight
            || tokens.get(next).is_some_and(|t| !t.gap) && next == run.last + 1
        {
            break;
        }
        run.groups.push(tokens.cased(next).len());
        run.signs.push(sign);
        run.digits.push_str(tokens.cased(next));
        run.last = next;
    }
    // A bracket around the whole number isn't part of it.
    if run.paren && !run.signs.contains(&b')') && !plus {
        run.first += 1;
        run.paren = false;
    }
    // The last group may be an amount of its own: "… 4567 50 mg".
    if run.signs.last() == Some(&b' ') && tokens.is(run.last + 1, MEASURE) {
        let len = run.groups.pop().unwrap_or_default();
        run.signs.pop();
        run.digits.truncate(run.digits.len() - len);
        run.last = (run.first..run.last).rev().find(|i| tokens.is_number(*i))?;
    }
    Some(run)
}

/// Returns whether letters stand directly before or after a run, so that it is part of a code.
fn is_in_code(tokens: &Tokens<'_>, run: &DigitRun) -> bool {
    let before = run.first > 0 && !tokens.gap(run.first) && !run.plus && !run.paren && {
        let hyphen = tokens.sign(run.first - 1) == Some(b'-') && run.first > 1;
        let letter = run.first - 1 - usize::from(hyphen);
        tokens.is_word(letter) && (!hyphen || !tokens.gap(run.first - 1))
    };
    let after = !tokens.gap(run.last + 1) && tokens.is_word(run.last + 1);
    before || after
}

fn unlabelled(tokens: &Tokens<'_>, at: usize) -> FoundNumber {
    if date_at(tokens, at).is_some() {
        return None;
    }
    let run = digit_run(tokens, at)?;
    if run.digits.len() < NUMBER_DIGITS_MIN {
        return None;
    }
    let code = is_in_code(tokens, &run);
    let class = if code {
        letter_id(tokens, &run)
    } else {
        id_shape(&run).or_else(|| phone_shape(tokens, &run))
    };
    let last = match class? {
        Phone => extension(tokens, run.last),
        _ if code && tokens.is_word(run.last + 1) && !tokens.gap(run.last + 1) => run.last + 1,
        _ => run.last,
    };
    Some((run.first, last, class?))
}

/// Returns the class of a number whose check letter follows: a Spanish NIF.
fn letter_id(tokens: &Tokens<'_>, run: &DigitRun) -> Option<IdentityClass> {
    let letter = tokens.cased(run.last + 1);
    let alone = run.first == 0 || tokens.gap(run.first);
    (alone && run.groups == [8] && letter.len() == 1 && is_dni(&format!("{}{letter}", run.digits)))
        .then_some(Id)
}

fn signs_are(run: &DigitRun, signs: &[u8]) -> bool {
    run.signs == signs
}

/// Returns whether a number is an id by its groups, or by its check digits.
fn id_shape(run: &DigitRun) -> Option<IdentityClass> {
    let (d, groups) = (run.digits.as_str(), run.groups.as_slice());
    if run.plus || run.paren {
        return None;
    }
    let grouped = match groups {
        [3, 2, 4] => signs_are(run, b"--") || signs_are(run, b"  ") && !d.starts_with("000"),
        [3, 3, 3, 2] => true,
        [2, 3, 3, 4, 2] => signs_are(run, b"../-"),
        // Residents of the Emirates and of Sweden.
        [3, 4, 7, 1] => d.starts_with("784"),
        [6 | 8, 4] => signs_are(run, b"-") && is_personnummer(d),
        [2, 3, 3, 1] => signs_are(run, b"..-"),
        [3, 3, 4] => signs_are(run, b"  ") || is_nhs_number(d),
        [3, 3, 3] => {
            signs_are(run, b"   ") || is_nif(d) && !d.starts_with('9') && !d.starts_with('2')
        }
        [4, 4, 4] => !d.starts_with(['0', '1']) && !signs_are(run, b".."),
        [4, 4, 4, 1..=7] => true,
        [3, 4, 4, 4] => is_cns(d) || signs_are(run, b"   "),
        [4, 6, 4 | 5] => is_luhn_valid(d),
        [_] => match d.len() {
            9 => is_nif(d) && !d.starts_with('9'),
            10 => is_nhs_number(d) || is_npi(d),
            11 => is_cpf(d),
            12 => is_aadhaar(d) || is_luhn_valid(d) && is_card(d),
            14 => is_cnpj(d) || is_luhn_valid(d) && is_card(d),
            15 => is_cns(d) || is_luhn_valid(d),
            13 | 16..=19 => is_luhn_valid(d) && is_card(d),
            _ => false,
        },
        _ => false,
    };
    grouped.then_some(Id)
}

/// Returns whether a number begins as those of payment cards do.
fn is_card(digits: &str) -> bool {
    digits.starts_with(['2', '3', '4', '5', '6'])
}

/// Returns whether a number is a telephone number by its groups.
fn phone_shape(tokens: &Tokens<'_>, run: &DigitRun) -> Option<IdentityClass> {
    let (d, groups) = (run.digits.as_str(), run.groups.as_slice());
    let any = |range: RangeInclusive<usize>| range.contains(&d.len());
    let tight = |sign: u8| run.signs.iter().all(|s| *s == sign);
    let afterwards = is_one_of!(
        tokens.lower(run.last + 1),
        "office fax mobile home work cell desk phone tel direct",
    ) && tokens.lines(run.last + 1) == 0;
    let shaped = run.plus && any(8..=15)
        || d.starts_with("00") && groups.len() > 1 && any(9..=16)
        || afterwards && any(7..=13)
        || match groups {
            _ if run.paren && groups.len() > 1 => groups[0] <= 5 && any(7..=13),
            [3, 3, 4] | [1, 3, 3, 4] => !tight(b'/'),
            [3, 4] => tight(b'-'),
            [2, 4 | 5, 4] => run.signs.last() == Some(&b'-') || tight(b' '),
            [5, 4] => tight(b'-') && d.starts_with('9') || tight(b' ') && d.starts_with('9'),
            [4, 4] => tight(b'-') && !is_years(run, tokens),
            [2, 2, 2, 2] => tight(b'-') || tight(b'.'),
            [2, 2, 2, 2, 2] => tight(b'-') || tight(b'.') || d.starts_with('0') || tight(b' '),
            [first, ..] if d.starts_with('0') && groups.len() > 1 => {
                (3..=5).contains(first) && any(9..=12) && !tight(b'.') && !tight(b'/')
            }
            [11] => d.starts_with("01") || d.starts_with("07") || d.starts_with("02"),
            [9] => {
                d.starts_with("91")
                    || d.starts_with("92")
                    || d.starts_with("93")
                    || d.starts_with("96")
            }
            [3, 3, 3] => d.starts_with(['9', '2']) && tight(b' '),
            _ => false,
        };
    shaped.then_some(Phone)
}

/// Returns an id that begins with letters: an IBAN, a British national insurance number, or a
/// record number with its scheme as prefix.
fn coded(tokens: &Tokens<'_>, at: usize) -> FoundNumber {
    let prefix = tokens.cased(at);
    if prefix.len() > 6 || !prefix.bytes().all(|b| b.is_ascii_uppercase()) {
        return None;
    }
    let hyphen = usize::from(tokens.sign(at + 1) == Some(b'-') && !tokens.gap(at + 1));
    let number = at + 1 + hyphen;
    let digits = tokens.cased(number);
    if !tokens.is_number(number) {
        return None;
    }
    if matches!(
        prefix,
        "MRN" | "PRONT" | "NHS" | "CRM" | "RG" | "CNS" | "SUS"
    ) && (4..=12).contains(&digits.len())
        && !tokens.gap(number)
    {
        return Some((at, number, Id));
    }
    if prefix.len() == 2
        && digits.len() == 2
        && !tokens.gap(number)
        && let Some(last) = iban_end(tokens, at)
    {
        return Some((at, last, Id));
    }
    (prefix.len() == 2 && hyphen == 0)
        .then(|| nino_end(tokens, at))
        .flatten()
        .map(|last| (at, last, Id))
}

/// Forms of ids without a label, `A` for a capital letter and `0` for a digit: taxpayers of India and
/// Italy, and residents of Mexico.
const LETTERED_FORMS: [&str; 3] = ["AAAAA0000A", "AAAAAA00A00A000A", "AAAA000000AAAAAA00"];

/// Returns an id of capital letters and digits without separators, by its form. One of Singapore or
/// a foreigner's of Spain also has a known first letter.
fn lettered(tokens: &Tokens<'_>, at: usize) -> FoundNumber {
    /// Maximum length of such an id, in bytes.
    const BYTES_MAX: usize = 18;
    // Each form has a digit behind its first letters.
    let begins = tokens
        .cased(at)
        .starts_with(|c: char| c.is_ascii_uppercase());
    if !begins || !tokens.is_number(at + 1) || tokens.gap(at + 1) {
        return None;
    }
    let (mut form, mut next) = (String::new(), at);
    while let Some(token) = tokens.get(next) {
        let alnum = matches!(token.kind, TokenKind::Word | TokenKind::Number);
        if !alnum || token.gap && next > at || form.len() + token.end - token.start > BYTES_MAX {
            break;
        }
        form.extend(tokens.cased(next).chars().map(|c| match c {
            '0'..='9' => '0',
            'A'..='Z' => 'A',
            _ => '-',
        }));
        next += 1;
    }
    let alone = tokens.gap(at) || at == 0 || tokens.sign(at - 1).is_some_and(|s| s != b'-');
    let ends = tokens.gap(next) || tokens.sign(next).is_some_and(|s| s != b'-');
    let resident =
        form == "A0000000A" && is_one_of!(tokens.cased(at), "S T F G M X Y Z") && next == at + 3;
    let known = resident || LETTERED_FORMS.contains(&form.as_str());
    (known && alone && ends).then(|| (at, next - 1, Id))
}

fn iban_end(tokens: &Tokens<'_>, at: usize) -> Option<usize> {
    let (mut text, mut end) = (String::new(), None);
    let mut next = at;
    while let Some(token) = tokens.get(next) {
        let alnum = matches!(token.kind, TokenKind::Word | TokenKind::Number);
        if !alnum || token.lines > 0 && next > at || text.len() > 34 {
            break;
        }
        text.push_str(tokens.cased(next));
        if text.len() >= 15 && is_iban(&text.to_ascii_uppercase()) {
            end = Some(next);
        }
        next += 1;
    }
    end
}

/// Returns the last token of a British national insurance number: `QQ 12 34 56 C`.
fn nino_end(tokens: &Tokens<'_>, at: usize) -> Option<usize> {
    let (mut digits, mut next) = (0, at + 1);
    while tokens.is_number(next) && digits < 6 && tokens.lines(next) == 0 {
        digits += tokens.cased(next).len();
        next += 1;
    }
    let letter = tokens.cased(next);
    let excluded = tokens.cased(at).contains(['D', 'F', 'I', 'Q', 'U', 'V']);
    (digits == 6 && matches!(letter, "A" | "B" | "C" | "D") && !excluded).then_some(next)
}

/// Minimum number of digits, spoken as words one after another, that count as a number.
const SPOKEN_DIGITS_MIN: usize = 7;

/// Returns the digit that a word names, in English or Portuguese.
pub(super) fn spoken_digit(word: &str) -> Option<char> {
    Some(match word {
        "zero" | "oh" | "nought" => '0',
        "one" | "um" | "uma" => '1',
        "two" | "dois" | "duas" => '2',
        "three" | "tres" => '3',
        "four" | "quatro" => '4',
        "five" | "cinco" => '5',
        "six" | "seis" | "meia" => '6',
        "seven" | "sete" => '7',
        "eight" | "oito" => '8',
        "nine" | "nove" => '9',
        _ => return None,
    })
}

/// Returns a number that is spoken digit by digit, from `at`.
fn spoken(tokens: &Tokens<'_>, at: usize) -> FoundNumber {
    let (mut digits, mut last, mut next) = (0, at, at);
    while let Some(token) = tokens.get(next) {
        match token.kind {
            TokenKind::Word if spoken_digit(tokens.lower(next)).is_some() => {
                digits += 1;
                last = next;
            }
            TokenKind::Word
                if digits > 0
                    && is_one_of!(
                        tokens.lower(next),
                        "double triple hundred ponto traco dash hifen e",
                    ) => {}
            TokenKind::Sign
                if digits > 0 && matches!(tokens.sign(next), Some(b'-' | b',' | b'.')) => {}
            _ => break,
        }
        next += 1;
    }
    (digits >= SPOKEN_DIGITS_MIN).then_some((at, last, Id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::identity::reading::IdentityReading;

    /// Goal: ids and telephone numbers are found by label, shape and check digits; clinical numbers
    /// aren't. Method: a table.
    #[test]
    fn numbers() {
        for (text, expect) in [
            ("SSN 123-45-6789", Some("123-45-6789")),
            ("SSN: 000-00-0000", Some("000-00-0000")),
            ("CPF 529.982.247-25", Some("529.982.247-25")),
            ("CPF 111.222.333-44", Some("111.222.333-44")),
            ("number 52998224725 here", Some("52998224725")),
            ("number 52998224726 here", None),
            ("NHS number: 943 476 5918", Some("943 476 5918")),
            ("NIF: 123456789", Some("123456789")),
            ("NIF 123456780", Some("123456780")),
            ("Aadhaar 2345 6789 0123", Some("2345 6789 0123")),
            ("CNS 700000000000000", Some("700000000000000")),
            ("CNPJ 11.222.333/0001-81", Some("11.222.333/0001-81")),
            ("passport number A11764701", Some("A11764701")),
            ("MRN H0797307, seen", Some("H0797307")),
            ("MRN MRN-775627", Some("MRN-775627")),
            ("the identifier is 4471902", Some("4471902")),
            (
                "insurance number is 768 694 5820, can",
                Some("768 694 5820"),
            ),
            (
                "IBAN GB90YNTU67299444055881",
                Some("GB90YNTU67299444055881"),
            ),
            (
                "five two nine nine eight two two four",
                Some("five two nine nine eight two two four"),
            ),
            ("tel +55 11 91234-5678", Some("+55 11 91234-5678")),
            ("at +44(0)121 496 0202.", Some("+44(0)121 496 0202")),
            ("call 001-998-666-2342x498", Some("001-998-666-2342x498")),
            ("87 4466-5056", Some("87 4466-5056")),
            ("Telefone: 912 345 678", Some("912 345 678")),
            ("CRM-MG 51234, seen", Some("51234")),
            ("resident S8412093F", Some("S8412093F")),
            ("tax BNZPM2501F", Some("BNZPM2501F")),
            ("card 784-1988-2345678-1", Some("784-1988-2345678-1")),
            ("remiss 640823-3234", Some("640823-3234")),
            ("passport no: YB 2209147.", Some("YB 2209147")),
            ("driver's license, D1234-56789", Some("D1234-56789")),
            ("seen by the NHS, 2019", None),
            ("CARD-001 amiodarone 200 mg once daily", None),
            ("patient id CARD-001", None),
            ("potassium 4.1 mmol/L on 2026-10-16", None),
            ("BP 120/80, HR 72, sample 790343", None),
            ("pain for 12-24 hours, 1990-1995", None),
            ("Appointment 932405 is confirmed for 2026-10-16", None),
            ("10 20 30 40 mg", None),
            ("one two three", None),
        ] {
            let reading = IdentityReading::new(text);
            let mut hits = Vec::new();
            find_numbers(&Tokens::new(&reading), &mut hits);
            let found = hits.first().map(|hit| &reading.cased[hit.range.clone()]);
            assert_eq!(found, expect, "{text}");
        }
    }
}
