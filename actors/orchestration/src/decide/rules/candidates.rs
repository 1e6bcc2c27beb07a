//! Candidates for a request: local tools and peer agents, scored by how well their descriptions
//! match.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use callboard_message::text::{fold, is_one_of, normalize};

use super::lexicon::{WordSet, lexicon};
use super::pattern::best_score;
use super::reading::RequestReading;
use super::tokens::{Token, TokenKind, tokenize};
use crate::decide::{PeerAgentView, TOOL_LLM, ToolView};
use crate::tool_name::BuiltinTool;

/// Evidence of a request word that is a tag. Tags count most, because their authors chose them as
/// topics.
const TAG: f32 = 1.0;
/// Evidence of a request word in the name of a tool or skill.
const NAME: f32 = 0.8;
/// Evidence of a request word that is one word of a tag of several: lower than for a whole tag.
const TAG_OF_SEVERAL: f32 = 0.45;
/// Evidence of a request word in prose, such as descriptions and examples.
const PROSE: f32 = 0.4;
/// Factor for the evidence of a generic word that fits any candidate.
const COMMON: f32 = 0.3;
/// Factor for the evidence of a request word that only shares a concept with a word of the
/// candidate.
const CONCEPT: f32 = 0.6;
/// Factor for the evidence of an everyday word that only shares a concept.
const EVERYDAY: f32 = 0.5;
/// Minimum similarity of a request word to a word of a candidate's texts, 0 to 1, at which it is
/// taken for that word misspelt or inflected.
const SIMILAR_FROM: f32 = 0.65;
/// Minimum letters of a request word that is compared by similarity.
const SIMILAR_LETTERS_MIN: usize = 5;
/// Evidence of a request word that alone identifies a subject of the candidate.
const STRONG: f32 = 1.0;
/// Evidence of a request word that only hints at a subject of the candidate.
const HINT: f32 = 0.45;
/// Factor for the letter-gram similarity when it is added to a candidate's evidence.
const ALIKE: f32 = 2.0;
/// Bonus for a built-in tool with evidence of at least [`SURE_FROM`], because its patterns match
/// nothing else.
const SURE: f32 = 1.0;
/// Minimum evidence at which a built-in tool gets the bonus [`SURE`].
const SURE_FROM: f32 = 1.1;
/// Factor for the evidence of other candidates if the request asks [`TOOL_LLM`] for a text or
/// knowledge about their subject, not for their service.
const ONLY_ABOUT: f32 = 0.3;
/// Minimum evidence for [`TOOL_LLM`] at which [`ONLY_ABOUT`] lowers the evidence of other
/// candidates.
const WORDS_FROM: f32 = 0.9;
/// Minimum pattern score of a candidate's subjects, added up, at which its other evidence isn't
/// reduced by the factor [`ONLY_ABOUT`], because the request asks for its service.
const OF_SUBJECT_SURELY: f32 = 0.8;
/// Maximum words of a request part that are compared by letter grams.
const COMPARED_WORDS_MAX: usize = 64;
/// Minimum bytes of an agent's name, counting letters only, for a request to address the agent by
/// name. Shorter names are often ordinary words.
const NAME_LETTERS_MIN: usize = 4;

/// Tool or agent that may handle a request.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Name of the tool or id of the agent.
    pub(super) id: String,
    /// Display name.
    pub(super) name: String,
    pub(super) is_agent: bool,
    pub(super) is_up: bool,
    /// Evidence that a request word gives for this candidate, by the word's stems and concepts.
    words: HashMap<WordKey, f32>,
    /// Evidence of each word of the candidate's texts, for misspelt and inflected request words.
    spelling: BTreeMap<String, f32>,
    subjects: BTreeSet<usize>,
}

/// Key by which a request word is compared with the words of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum WordKey {
    /// English stem.
    English(String),
    /// Portuguese stem.
    Portuguese(String),
    /// Index of a concept of the lexicon.
    Concept(usize),
}

/// Candidate with its evidence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranked<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) evidence: f32,
}

/// All candidates of a routing context.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    all: Vec<Candidate>,
    /// Statistics of the letter grams in the candidates' texts, by gram.
    letters: BTreeMap<String, LetterGram>,
}

/// Statistics of one letter gram.
#[derive(Debug, Default)]
struct LetterGram {
    /// Weight by rarity: the fewer candidates use the gram, the higher.
    rarity: f32,
    /// Candidates that use the gram: index in `Candidates::all`, and normalized weight of the gram
    /// in the candidate's texts.
    said: Vec<(usize, f32)>,
}

/// Texts that describe one skill or tool.
struct SourceTexts<'a> {
    name: &'a str,
    description: &'a str,
    tags: &'a [String],
    examples: &'a [String],
}

impl Candidates {
    /// Builds the candidates from the descriptions of tools and agents.
    pub(super) fn of(tools: &[ToolView], agents: &[PeerAgentView]) -> Self {
        let mut read = Self::default();
        for tool in tools {
            let ToolView {
                name,
                description,
                tags,
                examples,
                ..
            } = tool;
            let said = [SourceTexts {
                name,
                description,
                tags,
                examples,
            }];
            read.add(
                name,
                name,
                false,
                true,
                if BuiltinTool::from_name(name).is_some() {
                    &[]
                } else {
                    &said
                },
            );
        }
        for agent in agents {
            let own = SourceTexts {
                name: "",
                description: &agent.description,
                tags: &[],
                examples: &[],
            };
            let skills = agent.skills.iter().map(|skill| SourceTexts {
                name: &skill.name,
                description: &skill.description,
                tags: &skill.tags,
                examples: &skill.examples,
            });
            let said: Vec<SourceTexts<'_>> = std::iter::once(own).chain(skills).collect();
            read.add(&agent.id, &agent.name, true, agent.is_up, &said);
        }
        read.weigh_by_rarity();
        read
    }

    fn add(&mut self, id: &str, name: &str, is_agent: bool, is_up: bool, said: &[SourceTexts<'_>]) {
        let (mut words, mut subjects) = (HashMap::new(), BTreeSet::new());
        let mut spelling: BTreeMap<String, f32> = BTreeMap::new();
        let mut raise = |key: WordKey, weight: f32| {
            let kept: &mut f32 = words.entry(key).or_default();
            *kept = kept.max(weight);
        };
        let mut letters: BTreeMap<String, f32> = BTreeMap::new();
        for SourceTexts {
            name,
            description,
            tags,
            examples,
        } in said
        {
            let of_tags = tags.iter().map(|tag| {
                (
                    &**tag,
                    if tag.contains(' ') {
                        TAG_OF_SEVERAL
                    } else {
                        TAG
                    },
                )
            });
            let prose = examples.iter().map(|example| (&**example, PROSE));
            let texts = of_tags
                .chain([(*name, NAME), (*description, PROSE)])
                .chain(prose);
            for (text, weight) in texts {
                let tokens = tokenize(&normalize(text), |_| None);
                for hit in lexicon().concepts.find(&tokens, false) {
                    raise(WordKey::Concept(hit.value), weight * CONCEPT);
                }
                for (token, is_common) in content_words(&tokens) {
                    let weight = if is_common { weight * COMMON } else { weight };
                    raise(WordKey::English(token.english.clone()), weight);
                    raise(WordKey::Portuguese(token.portuguese.clone()), weight);
                    let kept = spelling.entry(token.folded.clone()).or_default();
                    *kept = kept.max(weight);
                    letter_grams(&token.folded)
                        .for_each(|gram| *letters.entry(gram).or_default() += 1.0);
                }
            }
            let label = tags
                .iter()
                .map(String::as_str)
                .chain([*name])
                .collect::<Vec<_>>()
                .join(" . ");
            subjects.extend(
                lexicon()
                    .anchors
                    .find(&tokenize(&normalize(&label), |_| None), false)
                    .iter()
                    .map(|hit| hit.value),
            );
        }
        for (gram, count) in letters {
            self.letters
                .entry(gram)
                .or_default()
                .said
                .push((self.all.len(), 1.0 + count.ln()));
        }
        self.all.push(Candidate {
            id: id.to_owned(),
            name: name.to_owned(),
            is_agent,
            is_up,
            words,
            spelling,
            subjects,
        });
    }

    /// Lowers the weight of words and letter grams by the number of candidates that use them.
    fn weigh_by_rarity(&mut self) {
        let speak = self
            .all
            .iter()
            .filter(|candidate| !candidate.words.is_empty())
            .count()
            .max(2);
        let mut count: HashMap<WordKey, usize> = HashMap::new();
        for word in self.all.iter().flat_map(|candidate| candidate.words.keys()) {
            *count.entry(word.clone()).or_default() += 1;
        }
        for (word, weight) in self
            .all
            .iter_mut()
            .flat_map(|candidate| &mut candidate.words)
        {
            *weight *= 1.0 - 0.8 * (count[word] as f32).ln() / (speak as f32).ln();
        }
        let mut lengths = vec![0.0_f32; self.all.len()];
        for LetterGram { rarity, said } in self.letters.values_mut() {
            *rarity = ((speak + 1) as f32 / said.len() as f32).ln();
            for (at, weight) in said {
                *weight *= *rarity;
                lengths[*at] += *weight * *weight;
            }
        }
        for (at, weight) in self
            .letters
            .values_mut()
            .flat_map(|letters| &mut letters.said)
        {
            *weight /= lengths[*at].sqrt().max(f32::EPSILON);
        }
    }

    /// Ranks all candidates by evidence in a part of a request, highest first. Ties go to reachable
    /// agents, then by id.
    pub(super) fn rank(&self, reading: &RequestReading, span: &Range<usize>) -> Vec<Ranked<'_>> {
        let signs = reading.signs(span);
        let of_tool = |name: &str| {
            lexicon()
                .tools
                .get(name)
                .map(|patterns| best_score(patterns, &signs))
        };
        let is_words = self.all.iter().any(|other| other.id == TOOL_LLM)
            && of_tool(TOOL_LLM).is_some_and(|evidence| evidence >= WORDS_FROM);
        let alike = self.gram_similarity(reading, span);
        let is_said = |token: &Token| {
            let said = |candidate: &Candidate| candidate.own_evidence(token, reading.english) > 0.0;
            self.all.iter().any(said)
        };
        let evidence = |(at, candidate): (usize, &Candidate)| {
            if let Some(evidence) = of_tool(&candidate.id).filter(|_| !candidate.is_agent) {
                let is_sure = evidence >= SURE_FROM && candidate.id != TOOL_LLM;
                return evidence + if is_sure { SURE } else { 0.0 };
            }
            let patterns = candidate
                .subjects
                .iter()
                .filter_map(|subject| lexicon().subjects.get(*subject));
            let pattern: f32 = patterns.map(|patterns| best_score(patterns, &signs)).sum();
            let share = if is_words && pattern < OF_SUBJECT_SURELY {
                ONLY_ABOUT
            } else {
                1.0
            };
            share * (candidate.word_evidence(reading, span, &is_said) + ALIKE * alike[at]) + pattern
        };
        let ranked = self.all.iter().enumerate().map(|each| Ranked {
            candidate: each.1,
            evidence: evidence(each),
        });
        let mut ranked: Vec<Ranked<'_>> = ranked.collect();
        ranked.sort_by(|a, b| {
            let by = b
                .evidence
                .total_cmp(&a.evidence)
                .then(b.candidate.is_up.cmp(&a.candidate.is_up));
            by.then_with(|| a.candidate.id.cmp(&b.candidate.id))
        });
        ranked
    }

    /// Returns the similarity of a request part's letter grams to each candidate's texts, from 0 to
    /// 1, in the order of `Candidates::all`. It recognizes misspelt and inflected words and related
    /// languages.
    fn gram_similarity(&self, reading: &RequestReading, span: &Range<usize>) -> Vec<f32> {
        let mut sums = vec![0.0; self.all.len()];
        let mut length = 0.0_f32;
        let mut seen = HashSet::new();
        let is_empty = |at: &usize| {
            [
                WordSet::Stop,
                WordSet::TimeWord,
                WordSet::Generic,
                WordSet::Pronoun,
                WordSet::Deictic,
            ]
            .iter()
            .any(|set| reading.is_in_set(*at, *set))
        };
        let words = span
            .clone()
            .filter(|at| reading.tokens[*at].is_word() && !is_empty(at))
            .take(COMPARED_WORDS_MAX);
        for gram in words.flat_map(|at| letter_grams(&reading.tokens[at].folded)) {
            if !seen.insert(gram.clone()) {
                continue;
            }
            let said = self.letters.get(&gram);
            let rarity = said.map_or(UNSEEN_GRAM_WEIGHT, |letters| letters.rarity);
            length += rarity * rarity;
            said.into_iter()
                .flat_map(|letters| &letters.said)
                .for_each(|(at, weight)| sums[*at] += rarity * weight);
        }
        let length = length.sqrt().max(f32::EPSILON);
        sums.into_iter().map(|sum| sum / length).collect()
    }

    /// Returns the agent that the request addresses by name, if it is reachable: `NAME, …`, `hey
    /// NAME …` or `ask NAME to …`, at the beginning of the request or of the sentences that state
    /// the wish. The longest matching name wins.
    pub(super) fn addressed_agent(&self, reading: &RequestReading) -> Option<&Candidate> {
        const CALLS: &str = "o oi ola ei hey hi hello dear ask tell pede peca pergunta pergunte";
        let tokens = &reading.tokens;
        let starts = [0, reading.wish.start];
        let is_light = |at: usize| {
            tokens[at].kind == TokenKind::Sign
                || reading.is_in_set(at, WordSet::Filler)
                || reading.is_in_set(at, WordSet::Stop)
        };
        let begins = |at: usize| {
            starts
                .iter()
                .any(|start| *start <= at && (*start..at).all(is_light))
        };
        let is_called = |at: usize, end: usize| {
            let is_apart = tokens
                .get(end)
                .is_some_and(|t| t.is_sign(",") || t.is_sign(":") || t.is_sign("!"));
            let call = at
                .checked_sub(1)
                .filter(|call| is_one_of(&tokens[*call].folded, CALLS) && begins(*call));
            // The Portuguese call "o" is also an article, and a lower-case name may be an ordinary
            // word.
            let is_name =
                || tokens[at].capital || !tokens[at].folded.chars().all(char::is_alphabetic);
            is_apart && starts.contains(&at)
                || call.is_some_and(|call| is_apart || tokens[call].folded != "o" && is_name())
        };
        // Code tokens keep their capitals, so they are folded here.
        let folded = |tokens: &[Token]| {
            tokens
                .iter()
                .map(|token| fold(&token.folded))
                .collect::<Vec<_>>()
        };
        let request = folded(tokens);
        let called = |name: &str| {
            let name = folded(&tokenize(&normalize(name), |c| lexicon().emoji(c)));
            let letters = name
                .iter()
                .flat_map(|word| word.chars())
                .filter(|c| c.is_alphanumeric());
            let is_long = letters.map(char::len_utf8).sum::<usize>() >= NAME_LETTERS_MIN;
            let is_here =
                |at: usize| request[at..].starts_with(&name) && is_called(at, at + name.len());
            (is_long && (0..request.len()).any(is_here)).then_some(name.len())
        };
        let agents = self.all.iter().filter(|candidate| candidate.is_agent);
        let called =
            agents.filter_map(|agent| Some((called(&agent.name).max(called(&agent.id))?, agent)));
        let longest = called.rev().max_by_key(|(len, agent)| (*len, agent.is_up));
        longest.map(|(_, agent)| agent).filter(|agent| agent.is_up)
    }
}

/// Weight of a request's letter gram that no candidate uses.
const UNSEEN_GRAM_WEIGHT: f32 = 1.5;

/// Word sets without content, ignored in descriptions of tools and agents.
const EMPTY_SETS: [WordSet; 3] = [WordSet::Stop, WordSet::TimeWord, WordSet::Languages];

/// Returns the content words of a text. The flag is `true` for a generic word that fits any
/// candidate.
fn content_words(tokens: &[Token]) -> impl Iterator<Item = (&Token, bool)> {
    const WITH_EVERYTHING: [WordSet; 9] = [
        WordSet::Thinking,
        WordSet::VagueVerb,
        WordSet::Generic,
        WordSet::Compose,
        WordSet::PlanVerb,
        WordSet::Question,
        WordSet::Pronoun,
        WordSet::Deictic,
        WordSet::Context,
    ];
    let hits = lexicon().sets.find(tokens, false);
    let words = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| token.is_word() && token.folded.chars().count() > 2);
    words.filter_map(move |(at, token)| {
        let is_of = |sets: &[WordSet]| {
            hits.iter()
                .any(|hit| hit.at == at && sets.contains(&hit.value))
        };
        (!is_of(&EMPTY_SETS)).then(|| (token, is_of(&WITH_EVERYTHING)))
    })
}

/// Returns the letter grams of a word: three to five letters, with `^` and `$` as its ends.
fn letter_grams(word: &str) -> impl Iterator<Item = String> + use<> {
    let letters: Vec<char> = std::iter::once('^')
        .chain(word.chars())
        .chain(['$'])
        .collect();
    let of = |n: usize| {
        letters
            .windows(n)
            .map(|window| window.iter().collect())
            .collect::<Vec<String>>()
    };
    [3, 4, 5].map(of).into_iter().flatten()
}

impl Candidate {
    /// Sums the evidence that the words of a request part give for this candidate, by its own texts
    /// and by its subjects. Each word and each concept counts once. `is_said` tells whether any
    /// candidate has a word.
    fn word_evidence(
        &self,
        reading: &RequestReading,
        span: &Range<usize>,
        is_said: &dyn Fn(&Token) -> bool,
    ) -> f32 {
        let mut counted = HashSet::new();
        let mut sum = 0.0;
        for at in span.clone().filter(|at| reading.tokens[*at].is_word()) {
            let token = &reading.tokens[at];
            let english = WordKey::English(token.english.clone());
            let own = match reading.is_in_set(at, WordSet::Stop) {
                true => 0.0,
                false if is_said(token) => self.own_evidence(token, reading.english),
                false => self.similar_evidence(token),
            };
            let of_subject = reading
                .subjects
                .iter()
                .filter(|hit| hit.at == at && self.subjects.contains(&hit.value.subject))
                .map(|hit| if hit.value.is_strong { STRONG } else { HINT })
                .fold(0.0, f32::max);
            let of_concept = reading
                .concepts
                .iter()
                .filter(|hit| hit.at == at)
                .filter_map(|hit| {
                    let key = WordKey::Concept(hit.value);
                    let share = if is_everyday(reading, at) {
                        EVERYDAY
                    } else {
                        1.0
                    };
                    Some((share * self.words.get(&key)?, key))
                })
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let known = own.max(of_subject);
            let (evidence, key) = match of_concept {
                Some((evidence, key)) if evidence > known => (evidence, key),
                _ => (known, english),
            };
            if evidence > 0.0 && counted.insert(key) {
                sum += evidence;
            }
        }
        sum
    }

    /// Returns the evidence of a word that is in the candidate's texts, by its stems.
    fn own_evidence(&self, token: &Token, is_english: bool) -> f32 {
        let of = |key: WordKey| self.words.get(&key).copied().unwrap_or(0.0);
        let english = of(WordKey::English(token.english.clone()));
        if is_english {
            return english;
        }
        english.max(of(WordKey::Portuguese(token.portuguese.clone())))
    }

    /// Returns the evidence of a word that is similar to one of the candidate's texts.
    fn similar_evidence(&self, token: &Token) -> f32 {
        if token.folded.chars().count() < SIMILAR_LETTERS_MIN {
            return 0.0;
        }
        self.spelling
            .iter()
            .map(|(word, weight)| (similarity(&token.folded, word), weight))
            .filter(|(similarity, _)| *similarity >= SIMILAR_FROM)
            .map(|(similarity, weight)| similarity * weight)
            .fold(0.0, f32::max)
    }
}

/// Whether a word is common in requests about anything.
fn is_everyday(reading: &RequestReading, at: usize) -> bool {
    const EVERYDAY_SETS: [WordSet; 5] = [
        WordSet::VagueVerb,
        WordSet::Generic,
        WordSet::Context,
        WordSet::Thinking,
        WordSet::TimeWord,
    ];
    EVERYDAY_SETS.iter().any(|set| reading.is_in_set(at, *set))
}

/// Returns the similarity of two words, 0 to 1: of their pairs of letters, or of their beginnings.
/// Words with another first letter aren't similar.
fn similarity(a: &str, b: &str) -> f32 {
    let common = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    if common == 0 || b.chars().count() < SIMILAR_LETTERS_MIN {
        return 0.0;
    }
    let longest = a.chars().count().max(b.chars().count());
    let pairs = strsim::sorensen_dice(a, b) as f32;
    pairs.max(common as f32 / longest as f32)
}
