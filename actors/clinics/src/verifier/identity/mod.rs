//! Rule R2: no full name, government id, address or contact of a person.
//!
//! What the clinics' own answers mark as personal is looked for first, in any disguise. Patterns, check digits and
//! lists of names are for the rest.

mod names;
mod pattern;

use std::borrow::Cow;
use std::sync::LazyLock;

use callboard_message::text::{base64, is_one_of, printable, words};
use percent_encoding::percent_decode_str;
use regex::Regex;

use super::{Identity, Line, LineKind, fold, strip};

/// The first piece of personal data in `text` that isn't allowed, by its kind.
///
/// Values in `withheld` may not be shown in any form; what `allowed` covers may.
pub(super) fn find(text: &str, withheld: &Known, allowed: &Known) -> Option<Identity> {
    readings(text).iter().find_map(|reading| {
        withheld.find(reading).or_else(|| {
            let mut found = pattern::find(reading)
                .into_iter()
                .chain(names::find(reading));
            found
                .find(|hit| !allowed.covers(&hit.text))
                .map(|hit| hit.kind)
        })
    })
}

/// Something that looks like personal data. The text never leaves the verifier.
struct Hit {
    kind: Identity,
    text: String,
}

/// Words that may stand between a known given and family name: middle names, initials.
const BETWEEN_WORDS_MAX: usize = 3;
/// Characters of the shortest id, without separators, that is matched.
const ID_CHARS_MIN: usize = 5;
/// Digits of a phone number that tell it from others: country and area codes are often left out.
const PHONE_DIGITS: usize = 8;
/// Letters of the shortest name that is matched written together, as in an e-mail address.
const JOINED_LETTERS_MIN: usize = 8;

/// Personal values, by kind.
#[derive(Default)]
pub(in crate::verifier) struct Known {
    values: Vec<(Identity, String)>,
}

impl Known {
    /// The values in lines that their keys mark as personal.
    pub fn new(lines: &[Line]) -> Self {
        let personal = lines.iter().filter_map(|line| match line.kind {
            LineKind::Identity(kind) => Some((kind, fold(&line.text))),
            _ => None,
        });
        Self {
            values: personal.collect(),
        }
    }

    /// The kind of the first known value in `text`.
    fn find(&self, text: &str) -> Option<Identity> {
        if self.values.is_empty() {
            return None;
        }
        let haystack = Haystack::new(text);
        self.values
            .iter()
            .find(|(kind, value)| haystack.holds(*kind, value))
            .map(|(kind, _)| *kind)
    }

    /// Whether `found` is (part of) one known value.
    pub fn covers(&self, found: &str) -> bool {
        let folded = fold(found);
        let compacted = compact(&folded);
        self.values.iter().any(|(kind, value)| {
            let known: Vec<&str> = words(value).collect();
            let part = words(&folded).all(|w| {
                known
                    .iter()
                    .any(|k| *k == w || w.len() == 1 && k.starts_with(w))
            });
            let value = compact(value);
            part || if *kind == Identity::Name {
                value == compacted
            } else {
                value.contains(&compacted)
            }
        })
    }
}

/// A text in the forms that values are looked for in.
struct Haystack {
    folded: String,
    compact: String,
    digits: String,
}

impl Haystack {
    fn new(text: &str) -> Self {
        let folded = fold(text);
        let digits = folded.chars().filter(char::is_ascii_digit).collect();
        Self {
            compact: compact(&folded),
            digits,
            folded,
        }
    }

    fn holds(&self, kind: Identity, value: &str) -> bool {
        let compact = compact(value);
        match kind {
            Identity::Name => self.holds_name(value),
            Identity::NamePart => false,
            Identity::Id | Identity::Email => {
                compact.len() >= ID_CHARS_MIN && self.compact.contains(&compact)
            }
            Identity::Address => self.holds_address(value),
            Identity::Phone => {
                let digits: String = value.chars().filter(char::is_ascii_digit).collect();
                let tail = digits.len().saturating_sub(PHONE_DIGITS);
                digits.len() >= PHONE_DIGITS - 1 && self.digits.contains(&digits[tail..])
            }
            Identity::BirthDate => date_forms(value)
                .iter()
                .any(|form| self.folded.contains(form.as_str())),
        }
    }

    /// The first part of an address (street and number) identifies it; the town alone doesn't.
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
        let compact = compact(&first);
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
            (word == given && near(at + 1, BETWEEN_WORDS_MAX, &|w| w == *family))
                || (word == family && near(at + 1, 1, &|w| w == *given || initial(w)))
                || (initial(word) && family.len() > 2 && near(at + 1, 2, &|w| w == *family))
        });
        let letters: String = text
            .iter()
            .filter(|w| w.chars().count() == 1)
            .copied()
            .collect();
        // Written together, as in an e-mail address, or letter by letter.
        let in_letters = [format!("{given}{family}"), name.concat()]
            .iter()
            .any(|joined| {
                joined.len() >= JOINED_LETTERS_MIN
                    && (self.compact.contains(joined) || letters.contains(joined))
            });
        in_words || in_letters
    }
}

fn compact(folded: &str) -> String {
    folded.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// An ISO date in the forms that people write; any other value as it stands.
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

/// Encodings that are unwrapped inside each other.
const LAYERS_MAX: usize = 2;

/// The text itself, letters made plain, and what its encoded parts say.
fn readings(text: &str) -> Vec<String> {
    let mut all = vec![strip(text)];
    let mut layer = 0;
    for _ in 0..LAYERS_MAX {
        let inside: Vec<String> = all[layer..]
            .iter()
            .flat_map(|t| decoded(t))
            .map(|t| strip(&t))
            .collect();
        layer = all.len();
        all.extend(inside);
    }
    all
}

fn decoded(text: &str) -> Vec<String> {
    // Shorter runs of base64 aren't looked at.
    static RUN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/_-]{8,}={0,2}").ok());
    let runs = RUN
        .iter()
        .flat_map(|r| r.find_iter(text))
        .filter_map(|run| from_base64(run.as_str()));
    runs.chain(from_percent(text)).collect()
}

/// Base64 of either alphabet that decodes to readable text.
fn from_base64(run: &str) -> Option<String> {
    let letters = run.trim_end_matches('=');
    if letters.len() % 4 == 1 {
        None
    } else {
        base64(letters.as_bytes()).and_then(printable)
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

    /// Goal: encodings are undone, also one in another. Method: a table.
    #[test]
    fn encodings_are_undone() {
        for text in [
            "see TWFyaWEgU2lsdmE= there",
            "Maria%20Silva",
            "TWFyaWElMjBTaWx2YQ==",
        ] {
            assert!(
                readings(text).iter().any(|r| r.contains("Maria Silva")),
                "{text}"
            );
        }
    }
}
