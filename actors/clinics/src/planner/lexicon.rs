//! Clinical vocabulary: medicines, terms with their synonyms, and single medical words. All of it is
//! compiled in; the sources are named at the top of the files.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use callboard_message::text::{fold, is_one_of};

use super::spelling::NearWords;
use super::tokens::{QueryToken, QueryWord, singular};
use super::vocabulary::word_role;

/// Maximum words of a medicine's name.
const MEDICINE_WORDS_MAX: usize = 3;

/// Group of terms with the same meaning, from `data/terms.txt`.
#[derive(Debug)]
pub(super) struct TermGroup {
    /// Phrases of the group; the first is the one to search for.
    pub phrases: Vec<&'static str>,
    /// Narrower terms that are searched in place of the group; empty if there are none.
    pub narrower: Vec<&'static str>,
}

/// Phrase of a [`TermGroup`], by which a query mentions it.
#[derive(Debug)]
struct TermPhrase {
    words: Vec<String>,
    is_abbreviation: bool,
    group: usize,
}

/// Single medical word, from `data/words_medical.txt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MedicalWord {
    pub word: &'static str,
    /// Whether it counts only beside another medical word, because it has an everyday meaning.
    pub is_weak: bool,
    /// Chapters of ICD-10 that it belongs to, one letter each; empty if it has none of its own.
    pub chapters: &'static str,
}

/// Clinical vocabulary of the planner.
pub(super) struct ClinicalLexicon {
    groups: Vec<TermGroup>,
    /// Phrases of the groups by their first word, the longest first.
    phrases: HashMap<String, Vec<TermPhrase>>,
    /// Words of those phrases, in singular form.
    phrase_words: HashSet<String>,
    /// Words of those phrases other than abbreviations, and of the medicines' generic names.
    term_words: BTreeSet<String>,
    /// Generic name of each medicine, by the key of each of its names.
    medicines: HashMap<String, &'static str>,
    /// Medical words, sorted.
    words: Vec<MedicalWord>,
    /// Medical words by their key, which is the same in both languages.
    cognates: HashMap<String, Vec<&'static str>>,
}

/// Lexicon from the data files.
pub(super) static LEXICON: LazyLock<ClinicalLexicon> = LazyLock::new(|| {
    let words = read_words(include_str!("../../data/words_medical.txt"));
    let mut cognates: HashMap<String, Vec<&'static str>> = HashMap::new();
    for word in words.iter().filter(|word| !word.is_weak) {
        let same = cognates.entry(cognate_key(word.word)).or_default();
        same.push(word.word);
    }
    ClinicalLexicon {
        cognates,
        groups: Vec::new(),
        phrases: HashMap::new(),
        phrase_words: HashSet::new(),
        term_words: BTreeSet::new(),
        medicines: read_medicines(include_str!("../../data/medicines.txt")),
        words,
    }
    .with_terms(include_str!("../../data/terms.txt"))
});

fn data_lines(data: &'static str) -> impl Iterator<Item = &'static str> {
    data.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn read_medicines(data: &'static str) -> HashMap<String, &'static str> {
    let mut medicines = HashMap::new();
    for line in data_lines(data) {
        let line = line.strip_prefix('~').unwrap_or(line);
        let (generic, others) = line.split_once(':').unwrap_or((line, ""));
        let generic = generic.trim();
        for name in std::iter::once(generic).chain(others.split(',')) {
            let key = medicine_key(&fold(name));
            if !key.is_empty() {
                medicines.entry(key).or_insert(generic);
            }
        }
    }
    medicines
}

fn read_words(data: &'static str) -> Vec<MedicalWord> {
    let mut words: Vec<MedicalWord> = data_lines(data)
        .map(|line| {
            let (word, chapters) = line.split_once(' ').unwrap_or((line, ""));
            MedicalWord {
                word: word.trim_start_matches('~'),
                is_weak: word.starts_with('~'),
                chapters,
            }
        })
        .collect();
    words.sort_unstable_by_key(|word| word.word);
    words
}

impl ClinicalLexicon {
    fn with_terms(mut self, data: &'static str) -> Self {
        for line in data_lines(data) {
            let (phrases, narrower) = line.split_once('>').unwrap_or((line, ""));
            let split = |text: &'static str, by| {
                text.split(by)
                    .map(str::trim)
                    .filter(|t| !t.is_empty())
                    .collect::<Vec<_>>()
            };
            let group = TermGroup {
                phrases: split(phrases, '|'),
                narrower: split(narrower, ','),
            };
            for phrase in &group.phrases {
                let is_abbreviation = phrase.starts_with(|c: char| c.is_ascii_uppercase());
                let lower = phrase.to_lowercase();
                let bare = lower.split(' ').map(|w| w.strip_suffix("'s").unwrap_or(w));
                let words: Vec<String> = bare
                    .clone()
                    .map(|w| level_word(singular(w)).to_owned())
                    .collect();
                let Some(first) = words.first().cloned() else {
                    continue;
                };
                if !is_abbreviation {
                    self.term_words.extend(bare.map(str::to_owned));
                }
                self.phrase_words.extend(words.iter().cloned());
                self.phrases.entry(first).or_default().push(TermPhrase {
                    words,
                    is_abbreviation,
                    group: self.groups.len(),
                });
            }
            self.groups.push(group);
        }
        for phrases in self.phrases.values_mut() {
            phrases.sort_by_key(|phrase| std::cmp::Reverse(phrase.words.len()));
        }
        let generics = self.medicines.values();
        let words = generics.flat_map(|name| name.split([' ', '/', '-']));
        self.term_words.extend(words.map(str::to_owned));
        self
    }

    /// Returns the group with the longest phrase at the start of `tokens`, and the number of its
    /// tokens; `None` if there is none. `shouted` tells that the whole query is in capitals, so that
    /// they don't mark abbreviations.
    pub fn find_group(&self, tokens: &[QueryToken], shouted: bool) -> Option<(&TermGroup, usize)> {
        let word = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
        let first = word(0)?;
        let phrase = self
            .phrases
            .get(level_word(singular(first.bare())))?
            .iter()
            .find(|phrase| {
                let fits = |(at, p): (usize, &String)| {
                    word(at).is_some_and(|w| level_word(singular(w.bare())) == p)
                };
                phrase.words.iter().enumerate().all(fits)
                    && (!phrase.is_abbreviation || self.is_abbreviation(first, shouted))
            })?;
        Some((self.groups.get(phrase.group)?, phrase.words.len()))
    }

    /// Returns whether a word that is spelled as an abbreviation is one: by its capitals, or because
    /// it means nothing else.
    fn is_abbreviation(&self, word: &QueryWord, shouted: bool) -> bool {
        const LOWER_LETTERS_MIN: usize = 3;
        if word.is_upper && !shouted {
            return true;
        }
        word_role(&word.folded).is_none()
            && self.word(&word.folded).is_none()
            && word.text == word.folded
            && (shouted || word.folded.len() >= LOWER_LETTERS_MIN)
    }

    /// Returns the words of every term's phrase except abbreviations, in singular form.
    pub fn phrase_words(&self) -> impl Iterator<Item = &[String]> {
        let spelled = self.phrases.values().flatten();
        spelled
            .filter(|p| !p.is_abbreviation)
            .map(|p| p.words.as_slice())
    }

    /// Returns the generic name of the medicine with the longest name at the start of `tokens`, and
    /// the number of the name's tokens; `None` if there is none.
    pub fn find_medicine(&self, tokens: &[QueryToken]) -> Option<(&'static str, usize)> {
        let words = tokens
            .iter()
            .take(MEDICINE_WORDS_MAX)
            .map_while(QueryToken::as_word);
        let words: Vec<&str> = words.map(QueryWord::bare).collect();
        (1..=words.len()).rev().find_map(|len| {
            let key = medicine_key(&words[..len].join(" "));
            let generic = self.medicines.get(&key)?;
            Some((*generic, len))
        })
    }

    /// Returns the generic name of a medicine by any of its names in folded form.
    pub fn generic_name(&self, folded: &str) -> Option<&'static str> {
        self.medicines.get(&medicine_key(folded)).copied()
    }

    /// Returns the generic name of the one medicine that a misspelt word probably stands for, by its
    /// English and Portuguese names of one word and its brands; `None` if there is none, or several.
    pub fn near_medicine(&self, folded: &str, errors_max: usize) -> Option<&'static str> {
        let key = medicine_key(folded);
        let mut near = NearWords::new(&key);
        let one_word = || self.medicines.iter().filter(|(key, _)| !key.contains(' '));
        let generics = one_word().filter(|(key, generic)| medicine_key(&fold(generic)) == **key);
        near.collect(generics.map(|(key, _)| key.as_str()), errors_max);
        // Brands are invented: many an everyday word is near to one.
        const BRAND_LETTERS_MIN: usize = 8;
        let brand_errors_max = match key.chars().count() < BRAND_LETTERS_MIN {
            true => 0,
            false => errors_max.min(1),
        };
        near.collect(one_word().map(|(key, _)| key.as_str()), brand_errors_max);
        let mut found = near
            .corrections()
            .iter()
            .filter_map(|key| self.medicines.get(*key).copied());
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }

    /// Returns a medical word by its folded form, or that without a plural `s`.
    pub fn word(&self, folded: &str) -> Option<MedicalWord> {
        let find = |wanted: &str| {
            let at = self
                .words
                .binary_search_by_key(&wanted, |word| word.word)
                .ok()?;
            self.words.get(at).copied()
        };
        find(folded).or_else(|| find(singular(folded)))
    }

    /// Returns the medical words that are spelled as a word in folded form would be in the other language:
    /// `coronary` for `coronaria`.
    pub fn cognates(&self, folded: &str) -> &[&'static str] {
        self.cognates
            .get(&cognate_key(folded))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns whether a word consists of medical words that hyphens join: `guillain-barre`.
    pub fn is_compound(&self, folded: &str) -> bool {
        folded.contains('-') && folded.split('-').all(|part| self.word(part).is_some())
    }

    /// Returns whether a word in folded form is part of a term's phrase or of a medicine's name.
    pub fn is_term_word(&self, folded: &str) -> bool {
        self.generic_name(folded).is_some()
            || self.phrase_words.contains(singular(folded))
            || self.term_words.contains(folded)
    }

    /// Returns every word of the terms' phrases and of the medicines' generic names, sorted.
    pub fn term_words(&self) -> impl Iterator<Item = &str> {
        self.term_words.iter().map(String::as_str)
    }

    /// Returns every single medical word that counts by itself.
    pub fn medical_words(&self) -> impl Iterator<Item = &'static str> {
        self.words
            .iter()
            .filter(|word| !word.is_weak)
            .map(|word| word.word)
    }

    /// Returns the chapters of ICD-10 that the words of a text belong to.
    pub fn chapters(&self, text: &str) -> String {
        let words = text
            .split([' ', '-'])
            .filter_map(|word| self.word(&fold(word)));
        words.map(|word| word.chapters).collect()
    }
}

/// Returns the word of everyday language for a level or a narrow vessel that means the same: `high` for
/// `elevated`, `blocked` for `narrowed`. Other words stay.
fn level_word(folded: &str) -> &str {
    const LEVELS: [(&str, &str); 5] = [
        ("blocked", "clogged narrowed narrow obstructed"),
        ("high", "elevated raised increased much"),
        ("low", "reduced decreased"),
        (
            "alto",
            "alta elevado elevada aumentado aumentada subido subida",
        ),
        ("baixo", "baixa reduzido reduzida diminuido diminuida"),
    ];
    let level = LEVELS
        .into_iter()
        .find(|(_, others)| is_one_of(folded, others));
    level.map_or(folded, |(level, _)| level)
}

/// Key of a medicine's name, the same for its English, Portuguese and Spanish spellings, which
/// follow from each other by rule: `methotrexate` and `metotrexato`, `warfarin` and `varfarina`.
/// `folded` is in folded form.
fn medicine_key(folded: &str) -> String {
    let words = folded
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty());
    words.map(word_key).collect::<Vec<_>>().join(" ")
}

/// Key of a medical word, the same for its English and Portuguese spellings: `pericarditis` and
/// `pericardite`.
fn cognate_key(folded: &str) -> String {
    let stem = folded.strip_suffix("is").unwrap_or(folded);
    word_key(singular(stem))
}

fn word_key(word: &str) -> String {
    let spelled = word
        .replace("ph", "f")
        .replace("th", "t")
        .replace("ch", "c")
        .replace("rh", "r");
    let mut key = String::with_capacity(spelled.len());
    for c in spelled.chars() {
        let c = match c {
            'y' => 'i',
            'k' => 'c',
            'w' => 'v',
            'm' => 'n',
            c => c,
        };
        if !key.ends_with(c) || c.is_ascii_digit() {
            key.push(c);
        }
    }
    const STEM_LETTERS_MIN: usize = 5;
    if key.len() > STEM_LETTERS_MIN {
        if key.starts_with("es") && !key[2..].starts_with(['a', 'e', 'i', 'o', 'u']) {
            key.remove(0);
        }
        let stem = key.strip_suffix("us").unwrap_or(&key);
        let stem = stem.trim_end_matches(['a', 'e', 'o']);
        if stem.len() >= STEM_LETTERS_MIN - 1 {
            return stem.to_owned();
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::tokens::tokenize;

    /// Goal: the data files are written as they are compared. Method: walk all of them.
    #[test]
    fn data_is_in_order() {
        let lexicon = &*LEXICON;
        for word in &lexicon.words {
            assert_eq!(fold(word.word), word.word);
            assert!(
                word.chapters.bytes().all(|b| b.is_ascii_uppercase()),
                "{word:?}"
            );
        }
        assert!(
            lexicon
                .words
                .windows(2)
                .all(|pair| pair[0].word < pair[1].word)
        );
        for group in &lexicon.groups {
            for phrase in group.phrases.iter().chain(&group.narrower) {
                assert_eq!(fold(phrase), phrase.to_lowercase(), "{phrase}");
            }
        }
    }

    /// Goal: a medicine is known by its spellings and brands, and nothing else is one. Method: rows.
    #[test]
    fn medicines_by_their_names() {
        for (text, expect) in [
            ("methotrexate", Some(("methotrexate", 1))),
            ("metotrexato", Some(("methotrexate", 1))),
            ("Varfarina", Some(("warfarin", 1))),
            ("furosemida 40", Some(("furosemide", 1))),
            ("hidroclorotiazida", Some(("hydrochlorothiazide", 1))),
            ("espironolactona", Some(("spironolactone", 1))),
            ("sinvastatina", Some(("simvastatin", 1))),
            ("dupilumabe", Some(("dupilumab", 1))),
            ("apixabano", Some(("apixaban", 1))),
            ("tacrolimo", Some(("tacrolimus", 1))),
            ("ácido fólico", Some(("folic acid", 2))),
            ("zentrava", None),
            ("patients", None),
            ("", None),
        ] {
            assert_eq!(LEXICON.find_medicine(&tokenize(text)), expect, "{text}");
        }
    }

    /// Goal: abbreviations count in capitals, and in lower case only if they mean nothing else; the
    /// longest phrase wins. Method: rows.
    #[test]
    fn terms_and_abbreviations() {
        for (text, expect) in [
            ("AF", Some("atrial fibrillation")),
            ("af", None),
            ("HAS", Some("hypertension")),
            ("has", None),
            ("htn", Some("hypertension")),
            ("beta blockers", Some("beta blocker")),
            ("Parkinson's", Some("parkinson's disease")),
            ("dores de cabeça", Some("headache")),
            ("heart attack", Some("myocardial infarction")),
            ("heart", None),
        ] {
            let found = LEXICON.find_group(&tokenize(text), false);
            assert_eq!(found.map(|(group, _)| group.phrases[0]), expect, "{text}");
        }
    }
}
