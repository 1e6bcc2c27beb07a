//! Rule R2: no personal name, id number, birth date, address or contact.
//!
//! Values under keys of personal data in the clinics' answers are searched first, also in
//! disguises, unless the caller may see them. Patterns, check digits and lists of names find other
//! values.

mod names;
mod pattern;

use std::borrow::Cow;
use std::sync::LazyLock;

use callboard_message::text::{decode_base64, is_one_of, printable_text, words};
use percent_encoding::percent_decode_str;
use regex::Regex;

use super::{IdentityKind, SpanKind, TextSpan, fold, remove_disguises};

/// Returns the kind of personal data found in `text`, also in its encoded parts, that may not be
/// shown; `None` if none is found.
///
/// Values in `withheld`, except short ones, names of one word and parts of names, are searched for
/// first and may never appear. Other personal data may appear only if `allowed` covers it.
pub(super) fn find_identity(
    text: &str,
    withheld: &KnownIdentities,
    allowed: &KnownIdentities,
) -> Option<IdentityKind> {
    decoded_readings(text).iter().find_map(|reading| {
        withheld.find(reading).or_else(|| {
            let mut found = pattern::find_patterns(reading)
                .into_iter()
                .chain(names::find_names(reading));
            found
                .find(|hit| !allowed.covers(&hit.text))
                .map(|hit| hit.kind)
        })
    })
}

/// Personal data that was found in a text. The found text never leaves the verifier.
struct IdentityMatch {
    kind: IdentityKind,
    text: String,
}

/// Maximum distance, in words, from the given name of a known person to the family name after it.
/// Up to one word less, such as middle names or initials, may stand between them.
const NAME_DISTANCE_WORDS_MAX: usize = 3;
/// Minimum characters of an id, e-mail address or street with number, without separators, that is
/// searched for. Shorter ones occur by chance.
const ID_CHARS_MIN: usize = 5;
/// Number of last digits by which phone numbers are compared, because country and area codes are
/// often left out. A number with one digit less is compared as a whole, a shorter one isn't
/// searched for.
const PHONE_DIGITS: usize = 8;
/// Minimum letters of a full name that is searched for without spaces, as in an e-mail address, or
/// letter by letter.
const JOINED_LETTERS_MIN: usize = 8;

/// Personal values of the records in folded form, with their kinds. Either what may not appear, or
/// what alone may: see [`find_identity`].
#[derive(Default)]
pub(in crate::verifier) struct KnownIdentities {
    values: Vec<(IdentityKind, String)>,
}

impl KnownIdentities {
    /// Collects the values of those spans whose keys mark them as personal.
    pub fn new(lines: &[TextSpan]) -> Self {
        let personal = lines.iter().filter_map(|line| match line.kind {
            SpanKind::Identity(kind) => Some((kind, fold(&line.text))),
            _ => None,
        });
        Self {
            values: personal.collect(),
        }
    }

    /// Returns the kind of the first known personal value, in the order of the records, that `text`
    /// contains in a form that is searched for; `None` if it contains none. Values that are too
    /// short, names of one word and parts of names are never found.
    fn find(&self, text: &str) -> Option<IdentityKind> {
        if self.values.is_empty() {
            return None;
        }
        let haystack = SearchText::new(text);
        self.values
            .iter()
            .find(|(kind, value)| haystack.holds(*kind, value))
            .map(|(kind, _)| *kind)
    }

    /// Returns whether each word of `found` is a word of one known personal value of any kind, in
    /// any order. A single letter stands for a word that begins with it. The whole value without
    /// separators counts too and, except for full names, any part of that. Case and accents don't
    /// matter.
    pub fn covers(&self, found: &str) -> bool {
        let folded = fold(found);
        let compacted = compact_text(&folded);
        self.values.iter().any(|(kind, value)| {
            let known: Vec<&str> = words(value).collect();
            let part = words(&folded).all(|w| {
                known
                    .iter()
                    .any(|k| *k == w || w.len() == 1 && k.starts_with(w))
            });
            let value = compact_text(value);
            part || if *kind == IdentityKind::Name {
                value == compacted
            } else {
                value.contains(&compacted)
            }
        })
    }
}

/// Text of an answer in the forms in which personal values are searched for.
struct SearchText {
    folded: String,
    compact: String,
    digits: String,
}

impl SearchText {
    fn new(text: &str) -> Self {
        let folded = fold(text);
        let digits = folded.chars().filter(char::is_ascii_digit).collect();
        Self {
            compact: compact_text(&folded),
            digits,
            folded,
        }
    }

    fn holds(&self, kind: IdentityKind, value: &str) -> bool {
        let compact = compact_text(value);
        match kind {
            IdentityKind::Name => self.holds_name(value),
            IdentityKind::NamePart => false,
            IdentityKind::Id | IdentityKind::Email => {
                compact.len() >= ID_CHARS_MIN && self.compact.contains(&compact)
            }
            IdentityKind::Address => self.holds_address(value),
            IdentityKind::Phone => {
                let digits: String = value.chars().filter(char::is_ascii_digit).collect();
                let tail = digits.len().saturating_sub(PHONE_DIGITS);
                digits.len() >= PHONE_DIGITS - 1 && self.digits.contains(&digits[tail..])
            }
            IdentityKind::BirthDate => date_forms(value)
                .iter()
                .any(|form| self.folded.contains(form.as_str())),
        }
    }

    /// Returns whether the text contains the start of an address's first line: its part before the
    /// first comma or, if that has no digit, its first two parts. So the street without its number
    /// or the town alone doesn't count, unless the address has nothing else. Starts that are
    /// shorter than [`ID_CHARS_MIN`] or have no ASCII letter aren't searched for.
    fn holds_address(&self, value: &str) -> bool {
        let street = value.split(['\n', ';']).next().unwrap_or(value);
        let mut parts = street.split(',').map(str::trim).filter(|p| !p.is_empty());
        let Some(first) = parts.next() else {
            return false;
        };
        let first = if first.chars().any(|c| c.is_ascii_digit()) {
            first.to_owned()
        } else {
            format!("{first} {}", parts.next().unwrap_or(""))
        };
        let compact = compact_text(&first);
        compact.len() >= ID_CHARS_MIN
            && compact.chars().any(|c| c.is_ascii_alphabetic())
            && self.compact.contains(&compact)
    }

    fn holds_name(&self, value: &str) -> bool {
        const PARTICLES: &str = "de da do dos das e van von dr dra mr mrs ms sr sra";
        let name: Vec<&str> = words(value).filter(|w| !is_one_of(w, PARTICLES)).collect();
        let (Some(given), Some(family)) = (name.first(), name.last()) else {
            return false;
        };
        if name.len() < 2 {
            return false;
        }
        let text: Vec<&str> = words(&self.folded).collect();
        let near = |from: usize, reach: usize, like: &dyn Fn(&str) -> bool| {
            text.iter().skip(from).take(reach).any(|w| like(w))
        };
        let initial = |w: &str| w.len() == 1 && given.starts_with(w);
        let in_words = text.iter().enumerate().any(|(at, word)| {
            (word == given && near(at + 1, NAME_DISTANCE_WORDS_MAX, &|w| w == *family))
                || (word == family && near(at + 1, 1, &|w| w == *given || initial(w)))
                || (initial(word) && family.len() > 2 && near(at + 1, 2, &|w| w == *family))
        });
        let letters: String = text
            .iter()
            .filter(|w| w.chars().count() == 1)
            .copied()
            .collect();
        // Without spaces, as in an e-mail address, or letter by letter.
        let in_letters = [format!("{given}{family}"), name.concat()]
            .iter()
            .any(|joined| {
                joined.len() >= JOINED_LETTERS_MIN
                    && (self.compact.contains(joined) || letters.contains(joined))
            });
        in_words || in_letters
    }
}

fn compact_text(folded: &str) -> String {
    folded.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// Returns an ISO date as it is and with day or month first, but not with a named month or a short
/// year; any other value only as it is.
fn date_forms(value: &str) -> Vec<String> {
    let parts: Vec<&str> = value.split('-').collect();
    match parts[..] {
        [year, month, day] if year.len() == 4 => {
            let short = |n: &str| n.trim_start_matches('0').to_owned();
            let (m, d) = (short(month), short(day));
            let mut forms = vec![
                value.to_owned(),
                format!("{m}/{d}/{year}"),
                format!("{d}/{m}/{year}"),
            ];
            for separator in ['/', '.', '-'] {
                forms.push(format!("{day}{separator}{month}{separator}{year}"));
                forms.push(format!("{month}{separator}{day}{separator}{year}"));
            }
            forms
        }
        _ => vec![value.to_owned()],
    }
}

/// Maximum nesting of encodings, such as base64, that are decoded. Text in deeper ones isn't found.
const LAYERS_MAX: usize = 2;

/// Returns the text without disguises, then the decoded content of its runs of base64 and the whole
/// text without percent-encoding, up to [`LAYERS_MAX`] deep. Upper and lower case are kept.
fn decoded_readings(text: &str) -> Vec<String> {
    let mut all = vec![remove_disguises(text)];
    let mut layer = 0;
    for _ in 0..LAYERS_MAX {
        let inside: Vec<String> = all[layer..]
            .iter()
            .flat_map(|t| decoded_parts(t))
            .map(|t| remove_disguises(&t))
            .collect();
        layer = all.len();
        all.extend(inside);
    }
    all
}

fn decoded_parts(text: &str) -> Vec<String> {
    // Shorter runs of base64 are ignored.
    static RUN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/_-]{8,}={0,2}").ok());
    let runs = RUN
        .iter()
        .flat_map(|r| r.find_iter(text))
        .filter_map(|run| from_base64(run.as_str()));
    runs.chain(from_percent(text)).collect()
}

/// Decodes base64 in the standard or the URL alphabet; `None` if the result isn't readable text.
fn from_base64(run: &str) -> Option<String> {
    let letters = run.trim_end_matches('=');
    if letters.len() % 4 == 1 {
        None
    } else {
        decode_base64(letters.as_bytes()).and_then(printable_text)
    }
}

fn from_percent(text: &str) -> Option<String> {
    match Cow::from(percent_decode_str(text)) {
        Cow::Owned(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Cow::Borrowed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: encodings are decoded, also nested ones. Method: a table.
    #[test]
    fn encodings_are_undone() {
        for text in [
            "see TWFyaWEgU2lsdmE= there",
            "Maria%20Silva",
            "TWFyaWElMjBTaWx2YQ==",
        ] {
            assert!(
                decoded_readings(text)
                    .iter()
                    .any(|r| r.contains("Maria Silva")),
                "{text}"
            );
        }
    }
}
