//! Splitting of a query's text into words and separators.

use callboard_message::text::{fold, is_one_of, normalize};

/// Token of a query's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QueryToken {
    Word(QueryWord),
    /// Comma or similar sign (`/`, `:`, a bracket, a dash between spaces): the words after it may
    /// continue the clause. `&` and `+` are read as the word `and`.
    Join,
    /// End of a sentence: `.`, `?`, `!`, `;` or a line break.
    Stop,
}

impl QueryToken {
    pub fn as_word(&self) -> Option<&QueryWord> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Word of a query, in the forms that the rules compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryWord {
    /// Word in lower case with accents. This form is sent to clinics.
    pub text: String,
    /// Word in lower case without accents.
    pub folded: String,
    /// Whether the word starts with a capital letter.
    pub is_capitalized: bool,
    /// Whether the word has two or more letters, all of them capital.
    pub is_upper: bool,
}

impl QueryWord {
    /// Returns the word in folded form without an English possessive: `patient` for `patient's`.
    pub fn bare(&self) -> &str {
        self.folded.strip_suffix("'s").unwrap_or(&self.folded)
    }

    /// Returns whether the word equals another one in folded form, apart from a plural `s`.
    pub fn equals_singular(&self, folded: &str) -> bool {
        singular(self.bare()) == singular(folded)
    }
}

/// Removes a final plural `s` from a word of more than three letters. Both sides of a comparison
/// are reduced, so words such as `diabetes` still match.
pub(super) fn singular(folded: &str) -> &str {
    if folded.len() > 3 {
        folded.strip_suffix('s').unwrap_or(folded)
    } else {
        folded
    }
}

/// Returns whether a word has the form of an id: letters, an optional hyphen, and three or more
/// digits. (`covid-19` is a condition.)
pub(super) fn looks_like_an_id(folded: &str) -> bool {
    const DIGITS_MIN: usize = 3;
    let digits = folded.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let letters = folded.len() - digits.len();
    let digits = digits.strip_prefix('-').unwrap_or(digits);
    letters > 0 && digits.len() >= DIGITS_MIN && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Returns whether a full stop after a word doesn't end a sentence: it abbreviates a title, or a word
/// for a number (`no. 7`).
fn is_abbreviated(word: &str, after: &[char]) -> bool {
    const TITLES: &str = "dr dra mr mrs sr sra";
    let is_number = || {
        let next = after.iter().find(|c| !c.is_whitespace());
        next.is_some_and(char::is_ascii_digit)
    };
    is_one_of(word, TITLES) || (is_one_of(word, NUMBER_WORDS) && is_number())
}

/// Returns whether a token may number an item of a list.
fn is_list_number(token: &QueryToken) -> bool {
    const DIGITS_MAX: usize = 2;
    let text = token.as_word().map_or("", |word| word.text.as_str());
    (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

/// Abbreviations with a slash, and the words that they stand for.
const SLASHED: [(&str, &str); 5] = [
    (" w/o ", " without "),
    (" w/", " with "),
    (" c/", " com "),
    (" s/", " sem "),
    (" p/", " para "),
];

/// Words before the number of an id.
pub(super) const NUMBER_WORDS: &str = "no nr num n number numero id";

/// Splits the text of a query, or a phrase of the registry, into words and separators. Other signs,
/// such as quotation marks, are dropped.
pub(super) fn tokenize(text: &str) -> Vec<QueryToken> {
    let text = format!(" {}", normalize(text));
    let text = SLASHED
        .into_iter()
        .fold(text, |text, (short, long)| text.replace(short, long));
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut word = String::new();
    let mut is_open = false;
    for (at, &c) in chars.iter().enumerate() {
        if is_inside_word(&chars, at) {
            word.push(c);
            continue;
        }
        let title = c == '.' && is_abbreviated(&word.to_lowercase(), &chars[at + 1..]);
        end_word(&mut word, &mut tokens);
        // "1) patients with acne"
        if c == ')' && !is_open && tokens.last().is_some_and(is_list_number) {
            tokens.pop();
        }
        is_open = c == '(' || is_open && c != ')';
        match c {
            '.' if title => {}
            ',' | '/' | ':' | '(' | ')' => tokens.push(QueryToken::Join),
            '&' | '+' => end_word(&mut "and".to_owned(), &mut tokens),
            // A dash between two words.
            '-' if is_between_spaces(&chars, at) || chars.get(at + 1) == Some(&'-') => {
                tokens.push(QueryToken::Join);
            }
            ';' | '.' | '?' | '!' | '\n' => tokens.push(QueryToken::Stop),
            _ => {}
        }
    }
    end_word(&mut word, &mut tokens);
    tokens
}

/// Returns whether the character at index `at` belongs to a word. Letters, digits, marks and `_`
/// do. A hyphen or apostrophe does only between letters or digits (`CARD-001`, `don't`), and a full
/// stop only between digits (`2.5`).
fn is_inside_word(chars: &[char], at: usize) -> bool {
    let plain = |c: &char| {
        c.is_alphanumeric() || *c == '_' || unicode_normalization::char::is_combining_mark(*c)
    };
    let around = |fits: fn(&char) -> bool| {
        at > 0 && chars.get(at - 1).is_some_and(fits) && chars.get(at + 1).is_some_and(fits)
    };
    match chars[at] {
        '-' | '\'' => around(|c| c.is_alphanumeric()),
        '.' => around(char::is_ascii_digit),
        c => plain(&c),
    }
}

fn is_between_spaces(chars: &[char], at: usize) -> bool {
    let is_space = |at: Option<usize>| {
        at.and_then(|at| chars.get(at))
            .is_some_and(|c| c.is_whitespace())
    };
    is_space(at.checked_sub(1)) && is_space(at.checked_add(1))
}

fn end_word(word: &mut String, tokens: &mut Vec<QueryToken>) {
    if !word.is_empty() {
        let (shown, folded) = (word.to_lowercase(), fold(word));
        let capital = word.starts_with(char::is_uppercase);
        let upper = word.chars().filter(|c| c.is_uppercase()).count() >= 2
            && !word.contains(char::is_lowercase);
        tokens.push(QueryToken::Word(QueryWord {
            text: shown,
            folded,
            is_capitalized: capital,
            is_upper: upper,
        }));
        word.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ids, contractions and numbers stay whole; signs split. Method: rows.
    #[test]
    fn words_and_signs() {
        let shown = |text: &str| {
            let token = |t| match t {
                QueryToken::Word(w) => w.text,
                QueryToken::Join => ",".into(),
                QueryToken::Stop => ".".into(),
            };
            tokenize(text)
                .into_iter()
                .map(token)
                .collect::<Vec<String>>()
                .join(" ")
        };
        for (text, expect) in [
            ("Get CARD-001, please.", "get card-001 , please ."),
            ("don’t — 2.5 mg", "don't , 2.5 mg"),
            ("clinic_a: psoríase?", "clinic_a , psoríase ."),
            ("-a- 'b' a\u{0}b", "a b a b"),
            ("Dr. Silva. Next", "dr silva . next"),
            ("CARD no. 7 w/o MS", "card no 7 without ms"),
            ("acne c/ AVC s/ MS", "acne com avc sem ms"),
            ("acne + MS & AVC", "acne and ms and avc"),
            ("1) acne 2) MS (3)", ", acne , ms , 3 ,"),
            ("", ""),
        ] {
            assert_eq!(shown(text), expect, "{text:?}");
        }
    }
}
