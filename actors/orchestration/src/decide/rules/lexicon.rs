//! Everyday words and what they stand for: `lexicon.toml`, read once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

use callboard_message::text::fold;
use serde::Deserialize;

use super::matcher::Matcher;
use super::weights::{FUZZY_TERM_LETTERS_MIN, FUZZY_TWO_LETTERS_MIN, FUZZY_WORD_LETTERS_MIN};

/// What comes with callboard.
const LEXICON: &str = include_str!("lexicon.toml");

macro_rules! sets {
    ($($name:ident = $key:literal),* $(,)?) => {
        /// A kind of word, whatever it is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Set { $($name),* }

        impl Set {
            const ALL: &'static [(&'static str, Self)] = &[$(($key, Self::$name)),*];

            /// A bit of its own.
            pub(super) const fn bit(self) -> u64 {
                1 << self as u64
            }

            /// All of them, each with its name.
            pub(super) fn all() -> impl Iterator<Item = (&'static str, Self)> {
                Self::ALL.iter().copied()
            }
        }
    };
}

sets! {
    Stop = "stop",
    Filler = "filler",
    VagueVerb = "vague_verb",
    Pronoun = "pronoun",
    Deictic = "deictic",
    Generic = "generic",
    Thinking = "thinking",
    Compose = "compose",
    Genre = "genre",
    Knowledge = "knowledge",
    TranslateVerb = "translate_verb",
    SummarizeVerb = "summarize_verb",
    EchoVerb = "echo_verb",
    SayVerb = "say_verb",
    RunVerb = "run_verb",
    Program = "program",
    CommandWord = "command_word",
    KillVerb = "kill_verb",
    Process = "process",
    Agents = "agents",
    Helpers = "helpers",
    Who = "who",
    CanHelp = "can_help",
    NoteVerb = "note_verb",
    AddressWord = "address_word",
    Person = "person",
    RealPerson = "real_person",
    TalkVerb = "talk_verb",
    Accept = "accept",
    CarryOn = "carry_on",
    TimeWord = "time_word",
    PlanVerb = "plan_verb",
    MealTime = "meal_time",
    Languages = "languages",
    ToLanguage = "to_language",
    ReviewVerb = "review_verb",
    Question = "question",
    Sequence = "sequence",
    Greeting = "greeting",
    Governs = "governs",
    Common = "common",
    Context = "context",
    Subordinate = "subordinate",
    Surprise = "surprise",
    Wish = "wish",
}

/// What a word of a field says: which field, by its place in [`Lexicon::fields`], and how much alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OfField {
    pub(super) field: usize,
    pub(super) strong: bool,
}

/// Everyday words by what they are about.
#[derive(Debug)]
pub(super) struct Lexicon {
    /// The fields' names, in order.
    fields: Vec<String>,
    /// Words by which a skill shows that it is of a field.
    pub(super) anchors: Matcher<usize>,
    pub(super) words: Matcher<OfField>,
    pub(super) sets: Matcher<Set>,
    emoji: HashMap<char, &'static str>,
    /// Single words, as they stand, by first letter: for misspellings. Those of fields come first.
    spelling: HashMap<char, Vec<String>>,
    known: HashSet<String>,
    /// Words written in a hurry, as they are meant: in either language, only in English, only in Portuguese.
    short: [HashMap<String, String>; 3],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    fields: BTreeMap<String, FieldWords>,
    sets: BTreeMap<String, String>,
    emoji: BTreeMap<String, String>,
    short: Short,
}

/// How words are written in a hurry: `word=short,short`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Short {
    both: String,
    english: String,
    portuguese: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldWords {
    anchors: String,
    strong: String,
    hints: String,
}

/// The lexicon. One that can't be read, which a test rules out, is empty.
pub(super) fn lexicon() -> &'static Lexicon {
    static READ: OnceLock<Lexicon> = OnceLock::new();
    READ.get_or_init(|| match toml::from_str(LEXICON) {
        Ok(file) => Lexicon::new(&file),
        Err(error) => {
            callboard_message::log::error!(%error, "failed to read the rules' lexicon: they know no words");
            Lexicon::new(&File {
                fields: BTreeMap::new(),
                sets: BTreeMap::new(),
                emoji: BTreeMap::new(),
                short: Short::default(),
            })
        }
    })
}

impl Lexicon {
    fn new(file: &File) -> Self {
        let mut lexicon = Self {
            fields: Vec::new(),
            anchors: Matcher::default(),
            words: Matcher::default(),
            sets: Matcher::default(),
            emoji: HashMap::new(),
            spelling: HashMap::new(),
            known: HashSet::new(),
            short: [&file.short.both, &file.short.english, &file.short.portuguese].map(|list| short(list)),
        };
        for (name, words) in &file.fields {
            let field = lexicon.fields.len();
            lexicon.fields.push(name.clone());
            lexicon.anchors.add(&words.anchors, field);
            lexicon.words.add(&words.strong, OfField { field, strong: true });
            lexicon.words.add(&words.hints, OfField { field, strong: false });
            for list in [&words.strong, &words.hints] {
                lexicon.spell(list);
            }
        }
        for (key, set) in Set::ALL {
            let Some(list) = file.sets.get(*key) else { continue };
            lexicon.sets.add(list, *set);
            lexicon.spell(list);
        }
        for (word, pictures) in &file.emoji {
            // Leaked once a process: they live as long as the lexicon.
            let word: &'static str = Box::leak(word.replace('_', " ").into_boxed_str());
            lexicon.emoji.extend(pictures.chars().filter(|c| !matches!(c, '\u{200d}' | '\u{fe0f}')).map(|c| (c, word)));
        }
        lexicon
    }

    fn spell(&mut self, list: &str) {
        for word in list.split(|c: char| c.is_whitespace() || c == '_' || c == '=').filter(|word| !word.is_empty()) {
            if self.known.insert(word.to_owned())
                && word.chars().count() >= FUZZY_TERM_LETTERS_MIN - 1
                && let Some(first) = word.chars().next()
            {
                self.spelling.entry(first).or_default().push(word.to_owned());
            }
        }
    }

    /// The field of that name.
    pub(super) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field == name)
    }

    /// A field's name.
    pub(super) fn name(&self, field: usize) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }

    /// How many fields there are.
    pub(super) fn fields_count(&self) -> usize {
        self.fields.len()
    }

    /// The word that is meant by one written in a hurry; `portuguese`: also by those that only mean it there.
    pub(super) fn meant(&self, folded: &str, portuguese: Option<bool>) -> Option<&str> {
        let [both, english, pt] = &self.short;
        let list = match portuguese {
            None => both,
            Some(false) => english,
            Some(true) => pt,
        };
        list.get(folded).map(String::as_str)
    }

    /// The word that a picture stands for.
    pub(super) fn emoji(&self, c: char) -> Option<&'static str> {
        self.emoji.get(&c).copied()
    }

    /// The known word that a misspelt one probably is: the same first letter, one slip, in long words two.
    pub(super) fn spelled(&self, folded: &str) -> Option<&str> {
        let letters = folded.chars().count();
        if letters < FUZZY_WORD_LETTERS_MIN || self.known.contains(folded) {
            return None;
        }
        let near = self.spelling.get(&folded.chars().next()?)?.iter().filter_map(|word| {
            let length = word.chars().count();
            let slips_max = if length >= FUZZY_TWO_LETTERS_MIN { 2 } else { 1 };
            if length.abs_diff(letters) > slips_max {
                return None;
            }
            // Two short words one letter apart are mostly two words; with letters swapped they aren't.
            if length < FUZZY_TERM_LETTERS_MIN && !is_swapped(word, folded) {
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
    let lines = list.split_whitespace().filter_map(|line| line.split_once('='));
    let each = lines.flat_map(|(word, short)| short.split(',').map(move |short| (short.to_owned(), word.to_owned())));
    each.collect()
}

/// Whether the two have the same letters in another order.
fn is_swapped(a: &str, b: &str) -> bool {
    let sorted = |word: &str| {
        let mut letters: Vec<char> = fold(word).chars().collect();
        letters.sort_unstable();
        letters
    };
    a.len() == b.len() && sorted(a) == sorted(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the file is whole: every set that rules name is there, and none that they don't. Method: both ways.
    #[test]
    fn every_set_is_there() {
        let file: File = toml::from_str(LEXICON).unwrap();
        let named: Vec<&str> = Set::ALL.iter().map(|(key, _)| *key).collect();
        let mut there: Vec<&str> = file.sets.keys().map(String::as_str).collect();
        let mut sorted = named.clone();
        sorted.sort_unstable();
        there.sort_unstable();
        assert_eq!(there, sorted);
        assert!(named.len() <= 64, "a bit each");
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
