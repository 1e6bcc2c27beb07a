//! Lexicon of everyday words by meaning, parsed once from `lexicon.toml`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

use callboard_message::text::fold;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::matcher::Matcher;
use super::pattern::Pattern;

const LEXICON: &str = include_str!("lexicon.toml");
/// Minimum letters of a word that is checked for misspelling.
const SPELLED_LETTERS_MIN: usize = 5;
/// Minimum letters of a known word for which a wrong letter is corrected. In shorter words, only
/// swapped letters are corrected.
const SLIP_LETTERS_MIN: usize = 6;
/// Minimum letters of a known word for which two typing errors are corrected.
const TWO_SLIPS_LETTERS_MIN: usize = 8;

/// Set of words or signs with the same function in a request, such as greetings or pronouns,
/// whatever the request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WordSet {
    Stop,
    Filler,
    VagueVerb,
    Pronoun,
    Deictic,
    Generic,
    Thinking,
    Compose,
    Genre,
    Knowledge,
    TranslateVerb,
    SummarizeVerb,
    EchoVerb,
    SayVerb,
    RunVerb,
    Program,
    CommandWord,
    KillVerb,
    Process,
    Agents,
    Helpers,
    Who,
    CanHelp,
    NoteVerb,
    Person,
    HumanWord,
    RealPerson,
    TalkVerb,
    SpeakVerb,
    Accept,
    TimeWord,
    PlanVerb,
    Languages,
    ReviewVerb,
    Question,
    Sequence,
    Greeting,
    Wish,
    Context,
    Governs,
    Going,
    Into,
    Change,
    InHouse,
    Asks,
    AnAddress,
    CodeWord,
    ANumber,
    AnHour,
    AName,
    AText,
    ALongText,
    FewWords,
    AProgram,
}

impl WordSet {
    /// Returns the bit that stands for this set in a token's bit mask of sets.
    pub(super) const fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// Word set that a pattern requires. The flag is `true` if the word must be the first content word.
pub(super) type Term = (WordSet, bool);

/// Word that points to a subject, such as the weather. `subject` is an index in
/// [`Lexicon::subjects`]; `is_strong` tells that the word alone identifies the subject.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SubjectWord {
    pub(super) subject: usize,
    pub(super) is_strong: bool,
}

/// Lexicon of words, subjects and tool patterns.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// Patterns of each subject, by the subject's index.
    pub(super) subjects: Vec<Vec<Pattern<Term>>>,
    /// Patterns of the built-in tools, by name.
    pub(super) tools: HashMap<String, Vec<Pattern<Term>>>,
    /// Words that assign a skill to a subject if they occur in the skill's name or tags.
    pub(super) anchors: Matcher<usize>,
    pub(super) words: Matcher<SubjectWord>,
    pub(super) sets: Matcher<WordSet>,
    /// Words of a concept in both languages, such as price and cost; the value is the concept's
    /// index.
    pub(super) concepts: Matcher<usize>,
    emoji: HashMap<char, String>,
    /// Known single words by first letter, for spelling correction. Words of subjects come first.
    spelling: HashMap<char, Vec<String>>,
    known: HashSet<String>,
    /// Words by abbreviation, in three lists: valid in both languages, only in English, only in
    /// Portuguese.
    short: [HashMap<String, String>; 3],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LexiconFile {
    subjects: BTreeMap<String, Subject>,
    concepts: BTreeMap<String, String>,
    tools: HashMap<String, Vec<String>>,
    sets: BTreeMap<WordSet, String>,
    emoji: BTreeMap<String, String>,
    short: Abbreviations,
}

/// Abbreviations as in the lexicon file: entries `word=short,short`, where each `short` abbreviates
/// `word`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Abbreviations {
    both: String,
    english: String,
    portuguese: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    anchors: String,
    strong: String,
    hints: String,
    #[serde(default)]
    patterns: Vec<String>,
}

/// Returns the lexicon. It is empty if the built-in file can't be parsed, which a test rules out.
pub(super) fn lexicon() -> &'static Lexicon {
    static READ: OnceLock<Lexicon> = OnceLock::new();
    READ.get_or_init(|| {
        let read = toml::from_str(LEXICON)
            .map_err(|error| error.to_string())
            .and_then(|file| Lexicon::new(&file));
        read.unwrap_or_else(|error| {
            callboard_message::log::error!(
                error,
                "failed to parse the built-in lexicon: the rules recognize no words"
            );
            Lexicon::default()
        })
    })
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern<Term>>, String> {
    let term = |name: &str| {
        let bare = name.strip_prefix('^');
        let set = WordSet::deserialize(IntoDeserializer::<Error>::into_deserializer(
            bare.unwrap_or(name),
        ))
        .ok()?;
        Some((set, bare.is_some()))
    };
    texts
        .iter()
        .map(|text| Pattern::parse(text, term))
        .collect()
}

impl Lexicon {
    fn new(file: &LexiconFile) -> Result<Self, String> {
        let Abbreviations {
            both,
            english,
            portuguese,
        } = &file.short;
        let mut lexicon = Self {
            short: [both, english, portuguese].map(|list| parse_abbreviations(list)),
            ..Self::default()
        };
        for (subject, words) in file.subjects.values().enumerate() {
            lexicon.subjects.push(patterns(&words.patterns)?);
            lexicon.anchors.add(&words.anchors, subject);
            for (list, is_strong) in [(&words.strong, true), (&words.hints, false)] {
                lexicon.words.add(list, SubjectWord { subject, is_strong });
                lexicon.index_spelling(list);
            }
        }
        for (set, list) in &file.sets {
            lexicon.sets.add(list, *set);
            lexicon.index_spelling(list);
        }
        for (concept, list) in file.concepts.values().enumerate() {
            lexicon.concepts.add(list, concept);
            lexicon.index_spelling(list);
        }
        for (name, texts) in &file.tools {
            lexicon.tools.insert(name.clone(), patterns(texts)?);
        }
        for (word, pictures) in &file.emoji {
            let pictures = pictures
                .chars()
                .filter(|c| !matches!(c, '\u{200d}' | '\u{fe0f}'));
            lexicon
                .emoji
                .extend(pictures.map(|c| (c, word.replace('_', " "))));
        }
        Ok(lexicon)
    }

    fn index_spelling(&mut self, list: &str) {
        for word in list.split(|c: char| c.is_whitespace() || c == '_' || c == '=') {
            if let Some(first) = word.chars().next()
                && self.known.insert(word.to_owned())
                && word.chars().count() >= SPELLED_LETTERS_MIN
            {
                self.spelling
                    .entry(first)
                    .or_default()
                    .push(word.to_owned());
            }
        }
    }

    /// Returns the expansion of an abbreviation. `portuguese` selects the Portuguese list (`true`)
    /// or the English list (`false`); `None` selects the list common to both.
    pub(super) fn expand_abbreviation(
        &self,
        folded: &str,
        portuguese: Option<bool>,
    ) -> Option<&str> {
        let [both, english, pt] = &self.short;
        let list = portuguese.map_or(
            both,
            |is_portuguese| if is_portuguese { pt } else { english },
        );
        list.get(folded).map(String::as_str)
    }

    /// Returns the word for an emoji.
    pub(super) fn emoji(&self, c: char) -> Option<&str> {
        self.emoji.get(&c).map(String::as_str)
    }

    /// Returns the known word that a misspelt one probably means: same first letter and one typing
    /// error, or two in long words.
    pub(super) fn correct_spelling(&self, folded: &str) -> Option<&str> {
        let letters = folded.chars().count();
        if letters < SPELLED_LETTERS_MIN || self.known.contains(folded) {
            return None;
        }
        let near = self
            .spelling
            .get(&folded.chars().next()?)?
            .iter()
            .filter_map(|word| {
                let length = word.chars().count();
                let slips_max = if length >= TWO_SLIPS_LETTERS_MIN {
                    2
                } else {
                    1
                };
                // Two short words that differ in a letter are usually different words; swapped letters
                // usually aren't.
                if length.abs_diff(letters) > slips_max
                    || length < SLIP_LETTERS_MIN && sorted_letters(word) != sorted_letters(folded)
                {
                    return None;
                }
                let slips = strsim::osa_distance(word, folded);
                (slips <= slips_max).then_some((slips, word.as_str()))
            });
        near.min_by_key(|(slips, _)| *slips).map(|(_, word)| word)
    }
}

/// Parses `word=short,short` entries into a map from abbreviation to word.
fn parse_abbreviations(list: &str) -> HashMap<String, String> {
    let lines = list
        .split_whitespace()
        .filter_map(|line| line.split_once('='));
    lines
        .flat_map(|(word, short)| {
            short
                .split(',')
                .map(move |short| (short.to_owned(), word.to_owned()))
        })
        .collect()
}

fn sorted_letters(word: &str) -> Vec<char> {
    let mut letters: Vec<char> = fold(word).chars().collect();
    letters.sort_unstable();
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the built-in file is valid, and each set fits into the mask. Method: parse it; the
    /// last set.
    #[test]
    fn the_file_is_whole() {
        Lexicon::new(&toml::from_str(LEXICON).unwrap()).unwrap();
        assert!((WordSet::AProgram as u64) < 64, "a bit each");
    }

    /// Goal: misspelt words are corrected, other words are unchanged. Method: rows.
    #[test]
    fn slips() {
        for (word, expect) in [
            ("fligt", Some("flight")),
            ("wether", Some("weather")),
            ("agnet", Some("agent")),
            ("flight", None),
            ("plate", None),
            ("cat", None),
            ("lights", None),
        ] {
            assert_eq!(lexicon().correct_spelling(word), expect, "{word}");
        }
    }
}
