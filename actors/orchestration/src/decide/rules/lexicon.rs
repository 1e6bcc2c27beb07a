//! Everyday words and what they stand for: `lexicon.toml`, read once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

use callboard_message::text::fold;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::matcher::Matcher;
use super::pattern::Pattern;

const LEXICON: &str = include_str!("lexicon.toml");
/// Misspelt words are looked up from so many letters on.
const SPELLED_LETTERS_MIN: usize = 5;
/// Words of so many letters may have another letter, shorter ones only letters in another order.
const SLIP_LETTERS_MIN: usize = 6;
/// Words of so many letters may have two slips.
const TWO_SLIPS_LETTERS_MIN: usize = 8;

/// A kind of word or sign, whatever it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Set {
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
    Common,
    Going,
    Into,
    Change,
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

impl Set {
    /// A bit of its own.
    pub(super) const fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// A set in a pattern, and whether its word has to be the first that isn't empty.
pub(super) type Term = (Set, bool);

/// A word of a subject: the subject's place in [`Lexicon::subjects`], and whether the word tells it alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OfSubject {
    pub(super) subject: usize,
    pub(super) is_strong: bool,
}

/// Everyday words by what they are about.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// Patterns of each subject.
    pub(super) subjects: Vec<Vec<Pattern<Term>>>,
    /// Patterns of our own tools, by name.
    pub(super) tools: HashMap<String, Vec<Pattern<Term>>>,
    /// Words by which a skill shows that it is of a subject.
    pub(super) anchors: Matcher<usize>,
    pub(super) words: Matcher<OfSubject>,
    pub(super) sets: Matcher<Set>,
    emoji: HashMap<char, String>,
    /// Single words by first letter, for misspellings. Those of subjects come first.
    spelling: HashMap<char, Vec<String>>,
    known: HashSet<String>,
    /// Words written in a hurry, as they are meant: in either language, only in English, only in Portuguese.
    short: [HashMap<String, String>; 3],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    subjects: BTreeMap<String, Subject>,
    tools: HashMap<String, Vec<String>>,
    sets: BTreeMap<Set, String>,
    emoji: BTreeMap<String, String>,
    short: Short,
}

/// How words are written in a hurry: `word=short,short`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
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

/// The lexicon. One that can't be read, which a test rules out, is empty.
pub(super) fn lexicon() -> &'static Lexicon {
    static READ: OnceLock<Lexicon> = OnceLock::new();
    READ.get_or_init(|| {
        let read = toml::from_str(LEXICON)
            .map_err(|error| error.to_string())
            .and_then(|file| Lexicon::new(&file));
        read.unwrap_or_else(|error| {
            callboard_message::log::error!(
                error,
                "failed to read the rules' lexicon: they know no words"
            );
            Lexicon::default()
        })
    })
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern<Term>>, String> {
    let term = |name: &str| {
        let bare = name.strip_prefix('^');
        let set = Set::deserialize(IntoDeserializer::<Error>::into_deserializer(
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
    fn new(file: &File) -> Result<Self, String> {
        let Short {
            both,
            english,
            portuguese,
        } = &file.short;
        let mut lexicon = Self {
            short: [both, english, portuguese].map(|list| short(list)),
            ..Self::default()
        };
        for (subject, words) in file.subjects.values().enumerate() {
            lexicon.subjects.push(patterns(&words.patterns)?);
            lexicon.anchors.add(&words.anchors, subject);
            for (list, is_strong) in [(&words.strong, true), (&words.hints, false)] {
                lexicon.words.add(list, OfSubject { subject, is_strong });
                lexicon.spell(list);
            }
        }
        for (set, list) in &file.sets {
            lexicon.sets.add(list, *set);
            lexicon.spell(list);
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

    fn spell(&mut self, list: &str) {
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

    /// The word that is meant by one written in a hurry; `portuguese`: by those that only mean it in that language.
    pub(super) fn meant(&self, folded: &str, portuguese: Option<bool>) -> Option<&str> {
        let [both, english, pt] = &self.short;
        let list = portuguese.map_or(
            both,
            |is_portuguese| if is_portuguese { pt } else { english },
        );
        list.get(folded).map(String::as_str)
    }

    /// The word that a picture stands for.
    pub(super) fn emoji(&self, c: char) -> Option<&str> {
        self.emoji.get(&c).map(String::as_str)
    }

    /// The known word that a misspelt one probably is: the same first letter, one slip, in long words two.
    pub(super) fn spelled(&self, folded: &str) -> Option<&str> {
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
                // Two short words one letter apart are mostly two words; with letters swapped they aren't.
                if length.abs_diff(letters) > slips_max
                    || length < SLIP_LETTERS_MIN && sorted(word) != sorted(folded)
                {
                    return None;
                }
                let slips = strsim::osa_distance(word, folded);
                (slips <= slips_max).then_some((slips, word.as_str()))
            });
        near.min_by_key(|(slips, _)| *slips).map(|(_, word)| word)
    }
}

/// Lines of `word=short,short`, by what is short.
fn short(list: &str) -> HashMap<String, String> {
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

fn sorted(word: &str) -> Vec<char> {
    let mut letters: Vec<char> = fold(word).chars().collect();
    letters.sort_unstable();
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the file can be read, and each set has a bit. Method: read it; the last set.
    #[test]
    fn the_file_is_whole() {
        Lexicon::new(&toml::from_str(LEXICON).unwrap()).unwrap();
        assert!((Set::AProgram as u64) < 64, "a bit each");
    }

    /// Goal: slips are read, other words are left. Method: rows.
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
            assert_eq!(lexicon().spelled(word), expect, "{word}");
        }
    }
}
