//! Numbers of a prescription, in digits and in words, English and Portuguese.

use callboard_message::word_set;

use super::model::UnitKind;
use super::token::Token;
use super::word_meanings::{SpelledNumber, flags, word_info};

/// Maximum number of tokens of a number in words.
const NUMBER_TOKENS_MAX: usize = 12;
/// Maximum number of parts into which the letters of a unit are split.
const SPLIT_WORDS_MAX: usize = 12;
/// Maximum number of groups of digits that are separated by spaces and make up one number.
const DIGIT_GROUPS_MAX: usize = 8;

/// Parses a number at the start of `tokens`, in digits or words, with a fraction ("2 1/2", "2 and a
/// half") or a multiplier ("2 million") after it. Returns the number and how many tokens it has;
/// `None` if there is no number.
pub(super) fn parse_number(tokens: &[Token<'_>]) -> Option<(f64, usize)> {
    let (mut value, mut taken) = match tokens.first()?.number() {
        Some(_) => parse_digit_groups(tokens),
        None => parse_number_words(tokens)?,
    };
    if let Some((part, more)) = parse_fraction(&tokens[taken..]) {
        (value, taken) = (value + part, taken + more);
    } else if let Some((whole, more)) = simple_fraction(tokens, value, taken) {
        (value, taken) = (whole, more);
    }
    match tokens.get(taken).map(|t| t.info().number) {
        Some(Some(SpelledNumber::Scale(scale))) => Some((value * scale, taken + 1)),
        _ if tokens
            .get(taken)
            .is_some_and(|t| t.is_glued && t.is_word(word_set!("k"))) =>
        {
            Some((value * 1e3, taken + 1))
        }
        _ => Some((value, taken)),
    }
}

/// Parses the fraction after a whole number: "1/2", "-1/2", "and a half", "e meio".
fn parse_fraction(rest: &[Token<'_>]) -> Option<(f64, usize)> {
    let skip = usize::from(rest.first()?.is_sign('-'));
    if let [over, slash, under, ..] = &rest[skip..]
        && let (Some(over), true, Some(under)) = (over.number(), slash.is_sign('/'), under.number())
        && over < under
        && under <= 8.0
    {
        return Some((over / under, skip + 3));
    }
    parse_and_part(rest)
}

/// Parses "and a half", "e meio" at the start of `rest`.
pub(super) fn parse_and_part(rest: &[Token<'_>]) -> Option<(f64, usize)> {
    if !rest.first()?.is_word(word_set!("and e")) {
        return None;
    }
    let article = usize::from(rest.get(1)?.is_word(word_set!("a an um uma")));
    match rest.get(1 + article)?.info().number {
        Some(SpelledNumber::Part(part)) => Some((part, 2 + article)),
        _ => None,
    }
}

/// Returns the value and the number of tokens of a fraction such as `1/2` or `3/4` that begins with
/// the number `over`, whose tokens end at `taken`. A date isn't a fraction.
fn simple_fraction(tokens: &[Token<'_>], over: f64, taken: usize) -> Option<(f64, usize)> {
    let [slash, under, ..] = tokens.get(taken..)? else {
        return None;
    };
    let under = under.number().filter(|_| slash.is_sign('/'))?;
    const FRACTIONS: [(f64, f64); 5] = [(1.0, 2.0), (1.0, 3.0), (2.0, 3.0), (1.0, 4.0), (3.0, 4.0)];
    let is_date = tokens.get(taken + 2).is_some_and(|t| t.is_sign('/'));
    (FRACTIONS.contains(&(over, under)) && !is_date).then_some((over / under, taken + 2))
}

/// Parses a number in digits, whose groups may be separated by spaces: "1 500 mg", "5 00 mg". Two
/// numbers before a unit and a form stay apart: "2 500 mg tablets".
fn parse_digit_groups(tokens: &[Token<'_>]) -> (f64, usize) {
    let value = |token: &Token<'_>| token.number().unwrap_or_default();
    let groups = tokens
        .iter()
        .take(DIGIT_GROUPS_MAX)
        .enumerate()
        .take_while(|(n, t)| {
            t.number().is_some()
                && t.text.bytes().all(|b| b.is_ascii_digit())
                && (*n == 0 || !t.is_glued)
        })
        .count();
    let zeros = glued_zeros(tokens);
    if groups < 2 {
        return (value(&tokens[0]) * zeros.0, 1 + zeros.1);
    }
    let after = &tokens[groups..];
    let unit = unit_at(tokens, groups).is_some();
    let form = after
        .get(1)
        .is_some_and(|t| t.info().unit.is_some_and(|(kind, _)| kind.is_count()))
        || after
            .first()
            .is_some_and(|t| t.info().unit.is_some_and(|(kind, _)| kind.is_count()));
    let rest = &tokens[1..groups];
    let thousands = tokens[0].text.len() <= 3 && rest.iter().all(|t| t.text.len() == 3);
    let split = rest.iter().any(|t| t.text.starts_with('0'))
        || (groups > 2 || !form) && tokens[..groups].iter().all(|t| t.text.len() == 1);
    if unit && (split || thousands && !form) {
        let digits: String = tokens[..groups].iter().map(|t| t.text).collect();
        return (digits.parse().unwrap_or_default(), groups);
    }
    (value(&tokens[0]), 1)
}

/// Returns the factor of letters `o` written in place of zeros after a number ("2oo mg"), and the
/// number of their tokens: 1 and 0 if there are none before a unit.
fn glued_zeros(tokens: &[Token<'_>]) -> (f64, usize) {
    let is_unit = tokens.get(2).is_some_and(|t| t.info().unit.is_some());
    match tokens.get(1) {
        Some(token) if token.is_glued && is_unit => match token.word() {
            Some(word) if word.len() <= 4 && word.bytes().all(|b| b == b'o') => {
                (10f64.powi(i32::try_from(word.len()).unwrap_or_default()), 1)
            }
            _ => (1.0, 0),
        },
        _ => (1.0, 0),
    }
}

/// Parses a spelled-out number at the start of `tokens`, also with decimals ("one point five"),
/// parts ("three quarters") and hyphens ("twenty-five"). Values in a row are added. Returns the
/// number and how many tokens it has; `None` if the first word isn't part of a number.
pub(super) fn parse_number_words(tokens: &[Token<'_>]) -> Option<(f64, usize)> {
    let (mut total, mut current, mut used) = (0.0, 0.0, 0);
    let mut after_and = false;
    while used < NUMBER_TOKENS_MAX {
        let Some(token) = tokens.get(used) else { break };
        match token.info().number {
            // A new number begins: "two, one tablet each" has a sign between, "one two" hasn't.
            Some(SpelledNumber::Value(v)) => current += v,
            Some(SpelledNumber::Part(part)) if current > 0.0 && !after_and => current *= part,
            Some(SpelledNumber::Part(part)) => current += part,
            Some(SpelledNumber::Hundred) if current == 0.0 => current = 100.0,
            Some(SpelledNumber::Hundred) => current *= 100.0,
            Some(SpelledNumber::Scale(scale)) => {
                total += if current == 0.0 {
                    scale
                } else {
                    current * scale
                };
                current = 0.0;
            }
            None if used > 0 => match joint(&tokens[used..]) {
                Some((skip, is_and)) => {
                    after_and = is_and;
                    used += skip;
                    continue;
                }
                None => break,
            },
            None => break,
        }
        after_and = false;
        used += 1;
    }
    if used == 0 {
        return None;
    }
    let value = total + current;
    match parse_decimals(&tokens[used..]) {
        Some((decimals, more)) => Some((value + decimals, used + more)),
        None => Some((value, used)),
    }
}

/// Returns the number of tokens that join two words of one number, such as `and` or a hyphen, and
/// whether they are `and`; `None` if no such word follows.
fn joint(rest: &[Token<'_>]) -> Option<(usize, bool)> {
    let is_number = |at: usize| rest.get(at).is_some_and(|t| t.info().number.is_some());
    let first = rest.first()?;
    if first.is_sign('-') && first.is_glued && is_number(1) {
        return Some((1, false));
    }
    if !first.is_word(word_set!("and e y")) {
        return None;
    }
    let article = usize::from(rest.get(1)?.is_word(word_set!("a an")));
    is_number(1 + article).then_some((1 + article, true))
}

/// Parses decimals in words: "point five", "virgula vinte e cinco".
fn parse_decimals(rest: &[Token<'_>]) -> Option<(f64, usize)> {
    if !rest
        .first()?
        .is_word(word_set!("point virgula ponto comma decimal"))
    {
        return None;
    }
    let (mut decimals, mut scale, mut used) = (0.0, 1.0, 1);
    while let Some((digits, taken)) = rest.get(used..).and_then(decimal_digits) {
        if used > NUMBER_TOKENS_MAX {
            break;
        }
        // "twenty-five" counts as two digits, "cento e vinte e cinco" as three.
        scale *= match digits {
            d if d >= 100.0 => 1e3,
            d if d >= 10.0 => 1e2,
            _ => 10.0,
        };
        decimals += digits / scale;
        used += taken;
    }
    (used > 1).then_some((decimals, used))
}

/// Parses a number below a thousand in words that is a part of decimals: "five", "twenty-five",
/// "cento e vinte e cinco". Returns it and how many tokens it has.
fn decimal_digits(rest: &[Token<'_>]) -> Option<(f64, usize)> {
    let value = |at: usize| match rest.get(at)?.info().number {
        Some(SpelledNumber::Value(value)) => Some(value),
        _ => None,
    };
    let mut total = value(0)?;
    let (mut last, mut used) = (total, 1);
    while last >= 20.0 {
        let is_joint = |t: &Token<'_>| t.is_word(word_set!("e and")) || t.is_sign('-');
        let joint = usize::from(rest.get(used).is_some_and(is_joint));
        let floor = if last >= 100.0 { 100.0 } else { 10.0 };
        let Some(next) = value(used + joint).filter(|next| (1.0..floor).contains(next)) else {
            break;
        };
        total += next;
        last = next;
        used += joint + 1;
    }
    Some((total, used))
}

/// Parses a unit at index `at`, also one whose letters are split ("m g") or after a hyphen
/// ("50-mg"). Returns its kind, its size in the base unit of the kind, and how many tokens it has;
/// `None` if there is no unit.
pub(super) fn unit_at(tokens: &[Token<'_>], at: usize) -> Option<(UnitKind, f64, usize)> {
    let first = tokens.get(at)?;
    if first.is_sign('%') {
        return Some((UnitKind::Percent, 1.0, 1));
    }
    let is_hyphen = first.is_sign('-') && first.is_glued && tokens.get(at + 1)?.is_glued;
    // A bullet of the next line.
    let is_bullet = matches!(first.sign(), Some('-' | '*' | '•')) && !first.is_glued;
    if is_bullet && tokens.get(at + 1).is_some_and(|t| t.is_sign('%')) {
        return Some((UnitKind::Percent, 1.0, 2));
    }
    if is_hyphen || is_bullet {
        let (kind, size, taken) = unit_at_word(tokens, at + 1)?;
        return Some((kind, size, taken + 1));
    }
    unit_at_word(tokens, at)
}

fn unit_at_word(tokens: &[Token<'_>], at: usize) -> Option<(UnitKind, f64, usize)> {
    let word = tokens.get(at)?.word()?;
    let next = tokens.get(at + 1).and_then(Token::word);
    match (word, next) {
        ("micro", Some("g")) => return Some((UnitKind::Mass, 1e-3, 2)),
        ("international", Some("units" | "unit")) | ("unidades", Some("internacionais")) => {
            return Some((UnitKind::Activity, 1.0, 2));
        }
        ("per" | "por", Some("cent" | "cento")) => return Some((UnitKind::Percent, 1.0, 2)),
        ("colher" | "colheres", Some("de")) => {
            let size = match tokens.get(at + 2)?.word()? {
                "cha" => 5.0,
                "sobremesa" => 10.0,
                "sopa" => 15.0,
                _ => return None,
            };
            return Some((UnitKind::Volume, size, 3));
        }
        _ => {}
    }
    if tokens[at].is(flags::UNIT_LABEL)
        && let Some((kind, size, taken)) = labelled_unit(tokens, at)
    {
        return Some((kind, size, taken));
    }
    let unit = tokens[at].info().unit;
    if let Some((kind, size, taken)) = split_unit(tokens, at, unit.is_some()) {
        return Some((kind, size, taken));
    }
    let (kind, size) = unit?;
    let twice = kind == UnitKind::Activity && matches!(next, Some("units" | "unit" | "unidades"));
    Some((kind, size, 1 + usize::from(twice)))
}

/// Parses the unit after a label: "unit: mg", "unit mg". `None` if no other unit follows.
fn labelled_unit(tokens: &[Token<'_>], at: usize) -> Option<(UnitKind, f64, usize)> {
    let skip = 1 + usize::from(matches!(tokens.get(at + 1)?.sign(), Some(':' | '=' | '|')));
    let next = tokens.get(at + skip)?;
    if next.is(flags::UNIT_LABEL) && next.text == tokens[at].text {
        return None;
    }
    let (kind, size, taken) = unit_at(tokens, at + skip)?;
    Some((kind, size, skip + taken))
}

/// Parses a unit whose letters are separated by spaces or signs: "m g", "m-cg", "milli grams".
fn split_unit(tokens: &[Token<'_>], at: usize, is_unit: bool) -> Option<(UnitKind, f64, usize)> {
    if is_unit && tokens.get(at)?.text.len() > 1 {
        return None;
    }
    let mut joined = String::new();
    let mut found = None;
    let mut words = 0;
    for (n, token) in tokens[at..].iter().enumerate().take(2 * SPLIT_WORDS_MAX) {
        let Some(word) = token.word() else {
            // A slash after a whole unit is a denominator.
            let separates = matches!(token.sign(), Some('-' | '_'))
                || !is_unit
                    && words == 1
                    && matches!(token.sign(), Some('.' | '/' | '*' | '|' | '\'' | ','));
            if separates && n > 0 {
                continue;
            }
            break;
        };
        // Several short parts are joined, or two of any length.
        let is_short = word.len() <= 2 || word.len() == 3 && words == 1;
        if words > 0 && !is_short && (is_unit || words > 1) {
            break;
        }
        joined.push_str(word);
        words += 1;
        let unit = word_info(&joined).and_then(|info| info.unit);
        // "t a b s", but not "pu ff".
        let is_spelled = joined.len() <= 2 * words && words > 2;
        let is_split = |kind: UnitKind| words > 1 && (!kind.is_count() || is_spelled);
        if let Some((kind, size)) = unit.filter(|(kind, _)| is_split(*kind)) {
            found = Some((kind, size, n + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::fold;
    use crate::verifier::medicine::token::Text;

    /// Goal: numbers in words and in odd digits are parsed. Method: a table in both languages.
    #[test]
    fn numbers() {
        for (text, expect) in [
            ("two hundred and fifty mg", (250.0, 4)),
            ("one and a half tablets", (1.5, 4)),
            ("duzentos e cinquenta mg", (250.0, 3)),
            ("dois comprimidos", (2.0, 1)),
            ("one point two million units", (1.2e6, 4)),
            ("two million units", (2e6, 2)),
            ("twenty-five mg", (25.0, 3)),
            ("one hundred twenty-five mg", (125.0, 5)),
            ("fifteen hundred mg", (1500.0, 2)),
            ("mil e quinhentos mg", (1500.0, 3)),
            ("one half tablet", (0.5, 2)),
            ("three quarters", (0.75, 2)),
            ("zero point five mg", (0.5, 3)),
            ("doze virgula cinco mg", (12.5, 3)),
            ("zero vírgula cento e vinte e cinco mg", (0.125, 7)),
            ("zero point one two five mg", (0.125, 5)),
            ("zero vírgula zero cinco mg", (0.05, 4)),
            ("2 5 mg", (25.0, 2)),
            ("2 5 mg tablets", (2.0, 1)),
            ("1 2 0 0 0 0 0 IU", (1.2e6, 7)),
            ("dois virgula vinte e cinco mg", (2.25, 5)),
            ("2 1/2 tablets", (2.5, 4)),
            ("2 and a half tablets", (2.5, 4)),
            ("1/2 tablet", (0.5, 3)),
            ("½ tablet", (0.5, 3)),
            ("1 500 mg", (1500.0, 2)),
            ("1 500 mg tablet", (1.0, 1)),
            ("5 00 mg", (500.0, 2)),
            ("2 0 0 mg", (200.0, 3)),
            ("2oo mg", (200.0, 2)),
            ("10k units", (10000.0, 2)),
        ] {
            let folded = fold(text);
            let found = parse_number(&Text::read(&folded).tokens);
            assert_eq!(found, Some(expect), "{text}");
        }
        assert_eq!(parse_number(&Text::read("mg").tokens), None);
    }

    /// Goal: units are found in all spellings. Method: a table.
    #[test]
    fn units() {
        for (text, kind, size) in [
            ("m g", UnitKind::Mass, 1.0),
            ("m c g", UnitKind::Mass, 1e-3),
            ("m-g", UnitKind::Mass, 1.0),
            ("m.g", UnitKind::Mass, 1.0),
            ("m i l l i g r a m s", UnitKind::Mass, 1.0),
            ("m-cg", UnitKind::Mass, 1e-3),
            ("unit: mg", UnitKind::Mass, 1.0),
            ("d r o p s", UnitKind::Drop, 1.0),
            ("µg", UnitKind::Mass, 1e-3),
            ("micro g", UnitKind::Mass, 1e-3),
            ("micro grams", UnitKind::Mass, 1e-3),
            ("mili gramas", UnitKind::Mass, 1.0),
            ("u i", UnitKind::Activity, 1.0),
            ("UI", UnitKind::Activity, 1.0),
            ("international units", UnitKind::Activity, 1.0),
            ("colheres de chá", UnitKind::Volume, 5.0),
            ("%", UnitKind::Percent, 1.0),
        ] {
            let folded = fold(text);
            let found = unit_at(&Text::read(&folded).tokens, 0).map(|(k, s, _)| (k, s));
            assert_eq!(found, Some((kind, size)), "{text}");
        }
    }
}
