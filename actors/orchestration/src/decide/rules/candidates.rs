//! Who may do a request: our own tools and the other agents, each by what it says of itself.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use callboard_message::text::{fold, is_one_of, plain};

use super::lexicon::{Set, lexicon};
use super::pattern::best;
use super::reading::Reading;
use super::words::{Kind, Token, tokenize};
use crate::decide::{AgentView, TOOL_LLM, ToolView};
use crate::tool_name::Tool;

/// Evidence of a word by where its agent says it. A word of a tag is its author's own choice of what it is about.
const TAG: f32 = 1.0;
const NAME: f32 = 0.8;
/// Of a tag of several words, neither says all. Descriptions and examples are prose.
const TAG_OF_SEVERAL: f32 = 0.45;
const PROSE: f32 = 0.4;
/// Share that is left of a word that goes with everything.
const COMMON: f32 = 0.3;
/// Evidence of a word that tells a subject by itself, and of one that tells it with others.
const STRONG: f32 = 1.0;
const HINT: f32 = 0.45;
/// Evidence of letters that are all alike.
const ALIKE: f32 = 2.0;
/// Added to the evidence for one of our tools from [`SURE_FROM`] on: its words are about nothing else.
const SURE: f32 = 1.0;
const SURE_FROM: f32 = 1.1;
/// Share that is left of a subject's words where a piece of writing or knowledge is asked for that is only about it.
const ONLY_ABOUT: f32 = 0.3;
/// Evidence for [`TOOL_LLM`] from which on that is so, but where a subject's pattern gives so much.
const WORDS_FROM: f32 = 0.9;
const OF_SUBJECT_SURELY: f32 = 0.8;
/// Words of a part that are compared letter by letter.
const COMPARED_WORDS_MAX: usize = 64;
/// A shorter name is also a word.
const NAME_LETTERS_MIN: usize = 4;

/// A tool or an agent.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Name of the tool, or id of the agent.
    pub(super) id: String,
    /// Name for people.
    pub(super) name: String,
    pub(super) is_agent: bool,
    pub(super) is_up: bool,
    /// Evidence by stem.
    words: HashMap<String, f32>,
    subjects: BTreeSet<usize>,
}

/// A candidate with the evidence for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranked<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) evidence: f32,
}

/// All candidates of a world.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    all: Vec<Candidate>,
    /// Letters in a row.
    letters: BTreeMap<String, Letters>,
}

/// Letters in a row, as candidates say them.
#[derive(Debug, Default)]
struct Letters {
    /// The fewer say them, the more.
    rarity: f32,
    /// Who says them, and their weight in what it says.
    said: Vec<(usize, f32)>,
}

/// Texts of one skill or tool.
struct Said<'a> {
    name: &'a str,
    description: &'a str,
    tags: &'a [String],
    examples: &'a [String],
}

impl Candidates {
    /// Reads what each says of itself.
    pub(super) fn of(tools: &[ToolView], agents: &[AgentView]) -> Self {
        let mut read = Self::default();
        for tool in tools {
            let ToolView {
                name,
                description,
                tags,
                examples,
                ..
            } = tool;
            let said = [Said {
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
                if Tool::named(name).is_some() {
                    &[]
                } else {
                    &said
                },
            );
        }
        for agent in agents {
            let own = Said {
                name: "",
                description: &agent.description,
                tags: &[],
                examples: &[],
            };
            let skills = agent.skills.iter().map(|skill| Said {
                name: &skill.name,
                description: &skill.description,
                tags: &skill.tags,
                examples: &skill.examples,
            });
            let said: Vec<Said<'_>> = std::iter::once(own).chain(skills).collect();
            read.add(&agent.id, &agent.name, true, agent.is_up, &said);
        }
        read.weigh_by_rarity();
        read
    }

    fn add(&mut self, id: &str, name: &str, is_agent: bool, is_up: bool, said: &[Said<'_>]) {
        let (mut words, mut subjects) = (HashMap::new(), BTreeSet::new());
        let mut letters: BTreeMap<String, f32> = BTreeMap::new();
        for Said {
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
                let tokens = tokenize(&plain(text), |_| None);
                for (token, is_common) in saying(&tokens) {
                    let weight = if is_common { weight * COMMON } else { weight };
                    let kept: &mut f32 = words.entry(token.english.clone()).or_default();
                    *kept = kept.max(weight);
                    grams(&token.folded).for_each(|gram| *letters.entry(gram).or_default() += 1.0);
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
                    .find(&tokenize(&plain(&label), |_| None), false)
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
            subjects,
        });
    }

    /// A word that one says tells it from the others; one that all say tells nothing.
    fn weigh_by_rarity(&mut self) {
        let speak = self
            .all
            .iter()
            .filter(|candidate| !candidate.words.is_empty())
            .count()
            .max(2);
        let mut count: HashMap<String, usize> = HashMap::new();
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
        for Letters { rarity, said } in self.letters.values_mut() {
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

    /// The candidates by evidence in a part of a request, most first; of equals who is up, then by id.
    pub(super) fn ranked(&self, reading: &Reading, span: &Range<usize>) -> Vec<Ranked<'_>> {
        let signs = reading.signs(span);
        let of_tool = |name: &str| {
            lexicon()
                .tools
                .get(name)
                .map(|patterns| best(patterns, &signs))
        };
        let is_words = self.all.iter().any(|other| other.id == TOOL_LLM)
            && of_tool(TOOL_LLM).is_some_and(|evidence| evidence >= WORDS_FROM);
        let alike = self.alike(reading, span);
        let evidence = |(at, candidate): (usize, &Candidate)| {
            if let Some(evidence) = of_tool(&candidate.id).filter(|_| !candidate.is_agent) {
                let is_sure = evidence >= SURE_FROM && candidate.id != TOOL_LLM;
                return evidence + if is_sure { SURE } else { 0.0 };
            }
            let patterns = candidate
                .subjects
                .iter()
                .filter_map(|subject| lexicon().subjects.get(*subject));
            let pattern: f32 = patterns.map(|patterns| best(patterns, &signs)).sum();
            let share = if is_words && pattern < OF_SUBJECT_SURELY {
                ONLY_ABOUT
            } else {
                1.0
            };
            share * (candidate.said(reading, span) + ALIKE * alike[at]) + pattern
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

    /// How alike the letters of a part are to what each says, 0 to 1: for words that are misspelt, bent or of a kindred language.
    fn alike(&self, reading: &Reading, span: &Range<usize>) -> Vec<f32> {
        let mut sums = vec![0.0; self.all.len()];
        let mut length = 0.0_f32;
        let mut seen = HashSet::new();
        let is_empty = |at: &usize| {
            [
                Set::Stop,
                Set::TimeWord,
                Set::Generic,
                Set::Pronoun,
                Set::Deictic,
            ]
            .iter()
            .any(|set| reading.is(*at, *set))
        };
        let words = span
            .clone()
            .filter(|at| reading.tokens[*at].is_word() && !is_empty(at))
            .take(COMPARED_WORDS_MAX);
        for gram in words.flat_map(|at| grams(&reading.tokens[at].folded)) {
            if !seen.insert(gram.clone()) {
                continue;
            }
            let said = self.letters.get(&gram);
            let rarity = said.map_or(UNSAID, |letters| letters.rarity);
            length += rarity * rarity;
            said.into_iter()
                .flat_map(|letters| &letters.said)
                .for_each(|(at, weight)| sums[*at] += rarity * weight);
        }
        let length = length.sqrt().max(f32::EPSILON);
        sums.into_iter().map(|sum| sum / length).collect()
    }

    /// The agent that the request is addressed to, if it is up: `NAME, …`, `hey NAME …`, `ask NAME to …`, where the request or
    /// its wish begins. Of several names the longest.
    pub(super) fn named(&self, reading: &Reading) -> Option<&Candidate> {
        const CALLS: &str = "o oi ola ei hey hi hello dear ask tell pede peca pergunta pergunte";
        let tokens = &reading.tokens;
        let starts = [0, reading.wish.start];
        let is_light = |at: usize| {
            tokens[at].kind == Kind::Sign
                || reading.is(at, Set::Filler)
                || reading.is(at, Set::Stop)
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
            // "o" is an article too, and a name of small letters a word.
            let is_name =
                || tokens[at].capital || !tokens[at].folded.chars().all(char::is_alphabetic);
            is_apart && starts.contains(&at)
                || call.is_some_and(|call| is_apart || tokens[call].folded != "o" && is_name())
        };
        // Code keeps its capitals in a token.
        let folded = |tokens: &[Token]| {
            tokens
                .iter()
                .map(|token| fold(&token.folded))
                .collect::<Vec<_>>()
        };
        let request = folded(tokens);
        let called = |name: &str| {
            let name = folded(&tokenize(&plain(name), |c| lexicon().emoji(c)));
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

/// Weight of letters that nobody says.
const UNSAID: f32 = 1.5;

/// Sets of words that say nothing of what a candidate does.
const EMPTY: [Set; 3] = [Set::Stop, Set::TimeWord, Set::Languages];

/// The words of a text that say something, each with whether it goes with everything.
fn saying(tokens: &[Token]) -> impl Iterator<Item = (&Token, bool)> {
    const WITH_EVERYTHING: [Set; 8] = [
        Set::VagueVerb,
        Set::Generic,
        Set::Compose,
        Set::PlanVerb,
        Set::Question,
        Set::Pronoun,
        Set::Deictic,
        Set::Context,
    ];
    let hits = lexicon().sets.find(tokens, false);
    let words = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| token.is_word() && token.folded.chars().count() > 2);
    words.filter_map(move |(at, token)| {
        let is_of = |sets: &[Set]| {
            hits.iter()
                .any(|hit| hit.at == at && sets.contains(&hit.value))
        };
        (!is_of(&EMPTY)).then(|| (token, is_of(&WITH_EVERYTHING)))
    })
}

/// Three to five letters in a row, with marks for the ends of the word.
fn grams(word: &str) -> impl Iterator<Item = String> + use<> {
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
    /// Evidence of the words of a part: its own, and those of its subjects. A word counts once.
    fn said(&self, reading: &Reading, span: &Range<usize>) -> f32 {
        let mut counted = HashSet::new();
        let mut sum = 0.0;
        for at in span.clone().filter(|at| reading.tokens[*at].is_word()) {
            let stem = &reading.tokens[at].english;
            let own = self
                .words
                .get(stem)
                .filter(|_| !reading.is(at, Set::Stop))
                .copied()
                .unwrap_or(0.0);
            let hits = reading
                .subjects
                .iter()
                .filter(|hit| hit.at == at && self.subjects.contains(&hit.value.subject));
            let of_subject = hits
                .map(|hit| if hit.value.is_strong { STRONG } else { HINT })
                .fold(0.0, f32::max);
            let evidence = own.max(of_subject);
            if evidence > 0.0 && counted.insert(stem) {
                sum += evidence;
            }
        }
        sum
    }
}
