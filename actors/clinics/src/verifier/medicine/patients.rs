//! Ids of the patients whom a text concerns.

use std::ops::Range;

use foldhash::{HashMap, HashSet};

use crate::verifier::fold;

use super::token::Token;
use super::word_meanings::flags;

/// Maximum number of words and numbers in a patient's id.
const ID_TOKENS_MAX: usize = 6;
/// Minimum letters before the hyphen of an id that isn't recorded but looks like one: `CARD-001`.
const ID_LETTERS_MIN: usize = 3;
/// Minimum digits of such an id, and of one without letters.
const ID_DIGITS_MIN: usize = 3;

/// Returns an id for comparison: its letters and digits in folded form.
pub(super) fn id_key(id: &str) -> String {
    fold(id).chars().filter(|c| c.is_alphanumeric()).collect()
}

/// Ids of all patients in the records.
#[derive(Default)]
pub(super) struct PatientIds {
    keys: HashSet<String>,
    /// First words and numbers of the ids.
    starts: HashSet<String>,
    /// First bytes of [`Self::starts`], so that most words needn't be looked up.
    start_bytes: Vec<u8>,
}

impl PatientIds {
    pub fn add(&mut self, id: &str) {
        let folded = fold(id);
        let first: String = folded
            .chars()
            .skip_while(|c| !c.is_alphanumeric())
            .scan(None, |digits, c| {
                let is_digit = c.is_ascii_digit();
                (c.is_alphanumeric() && *digits.get_or_insert(is_digit) == is_digit).then_some(c)
            })
            .collect();
        let key = id_key(id);
        if !key.is_empty() {
            let byte = first.bytes().next().unwrap_or_default();
            if !self.start_bytes.contains(&byte) {
                self.start_bytes.push(byte);
            }
            self.starts.insert(first);
            self.keys.insert(key);
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the key of the id at the start of `tokens`, and its number of tokens; `None` if there
    /// is none. An unrecorded id counts if it has the form of one, such as `CARD-009`.
    fn find(&self, tokens: &[Token<'_>]) -> Option<(String, usize)> {
        let first = tokens.first()?;
        if first.sign().is_some() {
            return None;
        }
        let mut best = None;
        let may_start = |b: &u8| self.start_bytes.contains(b);
        if first.text.as_bytes().first().is_some_and(may_start) && self.starts.contains(first.text)
        {
            let mut key = String::new();
            let mut parts = 0;
            for (n, token) in tokens.iter().enumerate() {
                match token.sign() {
                    Some('-' | '_' | '/' | '.' | '#') if n > 0 => continue,
                    Some(_) => break,
                    None => key.push_str(token.text),
                }
                parts += 1;
                if self.keys.contains(&key) && !is_plain_number(&key, tokens.get(n + 1)) {
                    best = Some((key.clone(), n + 1));
                }
                if parts == ID_TOKENS_MAX {
                    break;
                }
            }
        }
        best.or_else(|| self.unrecorded(tokens))
    }

    fn unrecorded(&self, tokens: &[Token<'_>]) -> Option<(String, usize)> {
        let [letters, hyphen, digits, ..] = tokens else {
            return None;
        };
        let word = letters.word()?;
        let has_form = hyphen.is_sign('-')
            && hyphen.is_glued
            && digits.is_glued
            && digits.number().is_some()
            && digits.text.len() >= ID_DIGITS_MIN
            && digits.text.bytes().all(|b| b.is_ascii_digit());
        let is_id = has_form && (word.len() >= ID_LETTERS_MIN || self.starts.contains(word));
        is_id.then(|| (format!("{word}{}", digits.text), 3))
    }

    /// Finds the ids in a range of tokens. Ids with only commas and words such as `and` between them
    /// make up one mention.
    pub fn mentions(&self, tokens: &[Token<'_>], range: Range<usize>) -> Vec<Mention> {
        let mut found: Vec<Mention> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some((key, taken)) = self.find(&tokens[at..range.end]) else {
                at += 1;
                continue;
            };
            let place = at..at + taken;
            at += taken;
            match found.last_mut() {
                Some(last) if is_list(&tokens[last.place.end..place.start]) => {
                    last.keys.push(key);
                    last.place.end = place.end;
                }
                _ => found.push(Mention {
                    keys: vec![key],
                    place,
                }),
            }
        }
        found
    }
}

/// Returns whether a number of an id is rather an amount, because a unit follows or it is short.
fn is_plain_number(key: &str, next: Option<&Token<'_>>) -> bool {
    key.bytes().all(|b| b.is_ascii_digit())
        && (key.len() < ID_DIGITS_MIN
            || next.is_some_and(|t| t.info().is_quantity() || t.is_sign('%')))
}

fn is_list(between: &[Token<'_>]) -> bool {
    between.len() <= 2
        && between
            .iter()
            .all(|t| t.is_sign(',') || t.is_sign('&') || t.is(flags::AND))
}

/// Patients named at one place of a text.
#[derive(Debug, Clone)]
pub(super) struct Mention {
    /// Keys of their ids.
    pub keys: Vec<String>,
    pub place: Range<usize>,
}

/// Distinct keys with an index each, for the patients of claims.
#[derive(Default)]
pub(super) struct PatientGroups {
    groups: Vec<Vec<String>>,
    by_keys: HashMap<Vec<String>, usize>,
}

impl PatientGroups {
    pub fn index(&mut self, keys: &[String]) -> usize {
        if let Some(index) = self.by_keys.get(keys) {
            return *index;
        }
        let index = self.groups.len();
        self.groups.push(keys.to_vec());
        self.by_keys.insert(keys.to_vec(), index);
        index
    }

    pub fn keys(&self, index: usize) -> &[String] {
        self.groups.get(index).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::medicine::token::Text;

    /// Goal: ids are found in all spellings, and other numbers aren't. Method: a table.
    #[test]
    fn ids() {
        let mut ids = PatientIds::default();
        ids.add("CARD-001");
        ids.add("77120");
        for (text, expect) in [
            ("CARD-001 takes", vec![vec!["card001"]]),
            ("card 001 takes", vec![vec!["card001"]]),
            (
                "CARD-001 and CARD-002 take",
                vec![vec!["card001", "card002"]],
            ),
            ("DERM-003: x", vec![vec!["derm003"]]),
            ("patient 77120", vec![vec!["77120"]]),
            ("77120 units of it", vec![]),
            ("COVID-19 and B-12", vec![]),
            ("losartan 100 mg", vec![]),
        ] {
            let folded = fold(text);
            let read = Text::read(&folded);
            let found: Vec<_> = ids
                .mentions(&read.tokens, 0..read.tokens.len())
                .into_iter()
                .map(|m| m.keys)
                .collect();
            assert_eq!(found, expect, "{text}");
        }
    }
}
