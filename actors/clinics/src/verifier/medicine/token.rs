//! Tokenizer: splits a folded text into sentences of words, numbers and signs.

use std::sync::LazyLock;

use callboard_message::text::{WordTable, is_one_of, word_table, words};
use regex::Regex;

/// Token of a sentence about medicines.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// Word that consists of letters only.
    Word(String),
    /// Number that was written in digits.
    Number(f64),
    /// Any other character, except white space and the end of a sentence.
    Sign(char),
}

impl Token {
    pub fn as_word(&self) -> Option<&str> {
        match self {
            Self::Word(w) => Some(w),
            _ => None,
        }
    }

    pub fn is_sign(&self, sign: char) -> bool {
        matches!(self, Self::Sign(s) if *s == sign)
    }
}

/// Splits a text in folded form into sentences of tokens. A sentence ends at a line break, at a
/// semicolon, or at `.`, `!` or `?` before white space or the end. A dotted abbreviation such as
/// `b.i.d.` is one word, and its full stops end no sentence. Empty sentences are left out. The
/// language of the whole text decides how ambiguous numbers such as `1.500` are read.
pub(super) fn sentences(folded: &str) -> Vec<Vec<Token>> {
    let joined = join_dotted(folded);
    let decimal_comma = reads_portuguese(&joined);
    let mut sentences = vec![Vec::new()];
    let chars: Vec<char> = joined.chars().collect();
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        let next_is_digit = chars.get(i + 1).is_some_and(char::is_ascii_digit);
        let start = i;
        i += 1;
        match c {
            c if c.is_ascii_digit()
                || (c == '.' && next_is_digit && !starts_after_word(&chars, start)) =>
            {
                while i < chars.len() && continues_number(&chars, i) {
                    i += 1;
                }
                let digits: String = chars[start..i].iter().collect();
                push_token(
                    &mut sentences,
                    parse_digits(&digits, decimal_comma).map(Token::Number),
                );
            }
            c if c.is_alphabetic() => {
                while i < chars.len() && chars[i].is_alphabetic() {
                    i += 1;
                }
                push_token(
                    &mut sentences,
                    Some(Token::Word(chars[start..i].iter().collect())),
                );
            }
            '\n' | ';' => sentences.push(Vec::new()),
            '.' | '!' | '?' if chars.get(i).is_none_or(|n| n.is_whitespace()) => {
                sentences.push(Vec::new())
            }
            c if c.is_whitespace() => {}
            c => push_token(&mut sentences, Some(Token::Sign(c))),
        }
    }
    sentences.retain(|s| !s.is_empty());
    sentences
}

fn push_token(sentences: &mut [Vec<Token>], token: Option<Token>) {
    if let (Some(sentence), Some(token)) = (sentences.last_mut(), token) {
        sentence.push(token);
    }
}

fn starts_after_word(chars: &[char], at: usize) -> bool {
    at > 0 && chars[at - 1].is_alphanumeric()
}

fn continues_number(chars: &[char], at: usize) -> bool {
    let c = chars[at];
    c.is_ascii_digit()
        || (matches!(c, '.' | ',') && chars.get(at + 1).is_some_and(char::is_ascii_digit))
}

/// Removes the full stops of dotted abbreviations of two or three letters, also with spaces between
/// them, so that `b.i.d.` is one word. The last full stop of one thus ends no sentence.
fn join_dotted(folded: &str) -> String {
    static DOTTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?-u:\b)([a-z])\.\s?([a-z])\.(?:\s?([a-z])\.)?").ok());
    match &*DOTTED {
        Some(dotted) => dotted.replace_all(folded, "$1$2$3 ").into_owned(),
        None => folded.to_owned(),
    }
}

/// Returns whether a text in folded form is in Portuguese (or Spanish) rather than English, by
/// counting function words; `false` if it has as many of both.
fn reads_portuguese(folded: &str) -> bool {
    const PORTUGUESE: &str = "de do da ao dia vez vezes por com comprimido comprimidos paciente cada \
        uma um para horas noite manha em toma tomar via oral";
    const ENGLISH: &str = "the of and daily patient is with for twice every once \
        day takes was tablet tablets per hours at by mouth";
    let of = |list| words(folded).filter(|word| is_one_of(word, list)).count();
    of(PORTUGUESE) > of(ENGLISH)
}

/// Parses a number in digits with separators. Of two different separators, the last is the decimal
/// one; several equal ones separate thousands. A lone separator between one to three digits, the
/// first not 0, and three digits is ambiguous, and `decimal_comma` decides: `1,500` is 1.5 in a
/// Portuguese text and 1500 in an English one; `1.500` is the reverse.
fn parse_digits(digits: &str, decimal_comma: bool) -> Option<f64> {
    let is_mixed = digits.contains(',') && digits.contains('.');
    let is_lone = digits.matches([',', '.']).count() == 1;
    let last = digits.chars().rfind(|c| !c.is_ascii_digit());
    let decimal =
        last.filter(|last| is_mixed || is_lone && separates_decimals(digits, *last, decimal_comma));
    let plain = digits
        .chars()
        .filter(|c| c.is_ascii_digit() || Some(*c) == decimal);
    plain.collect::<String>().replace(',', ".").parse().ok()
}

/// Returns whether `separator`, the only separator in `digits`, separates decimals and not
/// thousands.
fn separates_decimals(digits: &str, separator: char, decimal_comma: bool) -> bool {
    let Some((whole, part)) = digits.split_once(separator) else {
        return false;
    };
    let thousands_shape =
        part.len() == 3 && (1..=3).contains(&whole.len()) && !whole.starts_with('0');
    !thousands_shape || (separator == ',') == decimal_comma
}

/// Parses a spelled-out number at the start of `words`, which are folded. Values in a row are
/// added. Returns the number and how many words it has; `None` if the first word isn't part of a
/// number.
pub(super) fn parse_number_words(words: &[&str]) -> Option<(f64, usize)> {
    let (mut total, mut current, mut used, mut any) = (0.0, 0.0, 0, false);
    while let Some(word) = words.get(used) {
        match SPELLED.get(word).copied() {
            Some(SpelledNumber::Value(v)) => current += v,
            Some(SpelledNumber::Hundred) => {
                current = if current == 0.0 {
                    100.0
                } else {
                    current * 100.0
                }
            }
            Some(SpelledNumber::Scale(s)) => {
                total += if current == 0.0 { s } else { current * s };
                current = 0.0;
            }
            None if any && matches!(*word, "and" | "e" | "y" | "-") => {
                let follows = words.get(used + 1).copied();
                let article = usize::from(matches!(follows, Some("a" | "an")));
                if words
                    .get(used + 1 + article)
                    .is_some_and(|w| SPELLED.contains_key(w))
                {
                    used += 1 + article;
                    continue;
                }
                break;
            }
            None => break,
        }
        any = true;
        used += 1;
    }
    any.then_some((total + current, used))
}

#[derive(Clone, Copy)]
enum SpelledNumber {
    Value(f64),
    Hundred,
    Scale(f64),
}

static SPELLED: WordTable<SpelledNumber> = LazyLock::new(|| {
    use SpelledNumber::*;
    let counted = |words: &'static [&'static str], first: u32, unit: u32| {
        (first..)
            .zip(words)
            .map(move |(n, words)| (*words, Value(f64::from(n * unit))))
    };
    let others = [
        ("half meio meia", Value(0.5)),
        ("quarter", Value(0.25)),
        ("hundred", Hundred),
        ("thousand mil", Scale(1e3)),
        ("million milhao milhoes", Scale(1e6)),
    ];
    let rows = counted(ONE_TO_NINETEEN, 1, 1)
        .chain(counted(TENS, 2, 10))
        .chain(counted(HUNDREDS, 1, 100))
        .chain(others);
    word_table(&rows.collect::<Vec<_>>())
});

const ONE_TO_NINETEEN: &[&str] = &[
    "one um uma",
    "two dois duas",
    "three tres",
    "four quatro",
    "five cinco",
    "six seis",
    "seven sete",
    "eight oito",
    "nine nove",
    "ten dez",
    "eleven onze",
    "twelve doze",
    "thirteen treze",
    "fourteen quatorze catorze",
    "fifteen quinze",
    "sixteen dezesseis",
    "seventeen dezessete",
    "eighteen dezoito",
    "nineteen dezenove",
];
/// Words for twenty, thirty and so on, English and Portuguese.
const TENS: &[&str] = &[
    "twenty vinte",
    "thirty trinta",
    "forty quarenta",
    "fifty cinquenta",
    "sixty sessenta",
    "seventy setenta",
    "eighty oitenta",
    "ninety noventa",
];
/// Words for a hundred, two hundred and so on, Portuguese only.
const HUNDREDS: &[&str] = &[
    "cem cento",
    "duzentos duzentas",
    "trezentos trezentas",
    "quatrocentos quatrocentas",
    "quinhentos quinhentas",
    "seiscentos seiscentas",
    "setecentos setecentas",
    "oitocentos oitocentas",
    "novecentos novecentas",
];

/// Kind of a unit of medicine. Amounts can be compared only within one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitKind {
    /// Mass; base unit milligram.
    Mass,
    /// Volume; base unit millilitre.
    Volume,
    /// Activity in units, international or not.
    Activity,
    /// Milliequivalents.
    Equivalent,
    /// Millimoles.
    Mole,
    /// Per cent.
    Percent,
    /// Tablets, capsules and other single doses to swallow.
    Tablet,
    /// Drops.
    Drop,
    /// Puffs of an inhaler or spray.
    Puff,
    /// Patches.
    Patch,
    /// Vials and ampoules.
    Vial,
    /// Sachets, suppositories and other counted forms.
    Piece,
}

impl UnitKind {
    /// Returns whether the unit counts pieces, such as tablets. The strength of one piece may be
    /// stated beside it.
    pub fn is_count(self) -> bool {
        matches!(
            self,
            Self::Tablet | Self::Drop | Self::Puff | Self::Patch | Self::Vial | Self::Piece
        )
    }
}

static UNITS: WordTable<(UnitKind, f64)> = LazyLock::new(|| {
    use UnitKind::*;
    word_table(&[
        (
            "g gm gms gr gram grams gramme grammes grama gramas",
            (Mass, 1e3),
        ),
        (
            "mg mgs milligram milligrams milligramme milligrammes miligrama miligramas",
            (Mass, 1.0),
        ),
        (
            "mcg mcgs ug microgram micrograms microgramme micrograma microgramas",
            (Mass, 1e-3),
        ),
        ("ng nanogram nanograms nanograma nanogramas", (Mass, 1e-6)),
        (
            "ml millilitre millilitres milliliter milliliters mililitro mililitros cc",
            (Volume, 1.0),
        ),
        ("iu ui u unit units unidade unidades", (Activity, 1.0)),
        ("miu mu mui", (Activity, 1e6)),
        ("meq", (Equivalent, 1.0)),
        ("mmol millimole millimoles", (Mole, 1.0)),
        ("% percent", (Percent, 1.0)),
        (
            "tablet tablets tab tabs comprimido comprimidos comp cp cps pill pills capsule capsules cap caps capsula \
             capsulas dragea drageas",
            (Tablet, 1.0),
        ),
        ("drop drops gota gotas", (Drop, 1.0)),
        (
            "puff puffs inhalation inhalations spray sprays jato jatos",
            (Puff, 1.0),
        ),
        ("patch patches adesivo adesivos", (Patch, 1.0)),
        (
            "vial vials ampoule ampoules ampule ampules ampola ampolas",
            (Vial, 1.0),
        ),
        (
            "sachet sachets suppository suppositories supositorio lozenge lozenges envelope envelopes sache saches",
            (Piece, 1.0),
        ),
    ])
});

/// Returns the kind of a unit word, and the unit's size in the base unit of that kind; `None` if
/// the word isn't a unit.
pub(super) fn unit_of_word(word: &str) -> Option<(UnitKind, f64)> {
    UNITS.get(word).copied()
}

static PERIODS: WordTable<f64> = LazyLock::new(|| {
    word_table(&[
        ("day days d dia dias daily 24h", 1.0),
        ("week weeks wk semana semanas", 1.0 / 7.0),
        ("month months mes meses", 1.0 / 30.0),
        ("year years ano anos", 1.0 / 365.0),
        ("hour hours h hr hrs hora horas", 24.0),
        ("min minute minutes minuto minutos", 1440.0),
        (
            "night nights noite noites morning mornings manha manhas evening evenings bedtime",
            1.0,
        ),
    ])
});

/// Returns how many times a day "once in this period" is, for the word of a period: 1 for a day.
/// `None` for any other word.
pub(super) fn period_per_day(word: &str) -> Option<f64> {
    PERIODS.get(word).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sentences end at sentence ends, not inside numbers or `b.i.d.`. Method: count them.
    #[test]
    fn sentence_ends() {
        for (text, expect) in [
            ("amiodarone 200 mg b.i.d. then stop. next", 2),
            ("0.5 mg; 1.5 mg\n.25 mg", 3),
            ("", 0),
        ] {
            assert_eq!(sentences(text).len(), expect, "{text}");
        }
    }

    /// Goal: a unit without a space is split from its number. Method: tokens of "200mg".
    #[test]
    fn glued_units() {
        let tokens = sentences("200mg");
        assert_eq!(
            tokens,
            [vec![Token::Number(200.0), Token::Word("mg".into())]]
        );
    }

    /// Goal: a separator is read by the text's language. Method: a table.
    #[test]
    fn separators() {
        for (digits, decimal_comma, expect) in [
            ("1,500", false, 1500.0),
            ("1,500", true, 1.5),
            ("1.500", false, 1.5),
            ("1.500", true, 1500.0),
            ("0.125", true, 0.125),
            ("0,125", false, 0.125),
            ("2,5", false, 2.5),
            ("1.234,5", false, 1234.5),
            ("1,234.5", true, 1234.5),
            ("1.200.000", false, 1_200_000.0),
        ] {
            assert_eq!(
                parse_digits(digits, decimal_comma),
                Some(expect),
                "{digits} {decimal_comma}"
            );
        }
    }

    /// Goal: spelled-out numbers are parsed. Method: a table in both languages.
    #[test]
    fn spelled_out() {
        for (text, expect) in [
            ("two hundred and fifty mg", Some((250.0, 4))),
            ("one and a half tablets", Some((1.5, 4))),
            ("duzentos e cinquenta mg", Some((250.0, 3))),
            ("dois comprimidos e meio", Some((2.0, 1))),
            ("one point two million units", Some((1.0, 1))),
            ("two million units", Some((2e6, 2))),
            ("mg", None),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            assert_eq!(parse_number_words(&words), expect, "{text}");
        }
    }
}
