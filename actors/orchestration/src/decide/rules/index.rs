//! Who of the world a request speaks for: evidence from the skills' own words and from everyday words of their fields.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use callboard_message::text::{fold, is_one_of, plain};

use super::kinds::is_known;
use super::lexicon::{Set, lexicon};
use super::reading::Reading;
use super::signs::signs;
use super::tools::is_ours;
use super::weights::{
    DESCRIPTION, EXAMPLE, FUZZY, GOVERNED, HINT, NAME, NAMED, STRONG, TAG, TAG_OF_EVERY_DAY, TAG_OF_SEVERAL,
    WEAK_BELOW, WEAK_SUM_MAX,
};
use super::words::{stems, tokenize};
use crate::decide::{AgentView, ToolView, World};

/// An agent that is named is asked where no other has so much for it.
const NAMED_BELOW: f32 = 0.3;

/// One who could do what is asked: another agent, or a tool of ours that the rules have no grammar for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The agent's id or the tool's name.
    pub(super) id: String,
    pub(super) is_agent: bool,
    pub(super) is_up: bool,
}

/// The world, ready to be matched.
#[derive(Debug)]
pub(super) struct Index {
    world: Option<Arc<World>>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    /// By field, whether a skill of it is of that field.
    fields: Vec<bool>,
    /// Weights of its own words, by English stem.
    own: HashMap<String, f32>,
    /// Its name and id as words that people may call it by.
    called: Vec<Vec<String>>,
}

/// What a skill or tool says of itself.
struct Said<'a> {
    name: &'a str,
    description: &'a str,
    tags: &'a [String],
    examples: &'a [String],
}

/// How much speaks for a target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) target: Target,
    pub(super) evidence: f32,
}

impl Index {
    /// Of nobody.
    pub(super) fn empty() -> Self {
        Self { world: None, entries: Vec::new() }
    }

    /// Of tools alone.
    pub(super) fn of_tools(tools: &[ToolView]) -> Self {
        let mut entries: Vec<Entry> = tools.iter().filter(|tool| !is_ours(&tool.name)).map(entry_of_tool).collect();
        weigh_by_rarity(&mut entries);
        Self { world: None, entries }
    }

    /// Whether it was made of exactly this world.
    pub(super) fn is_of(&self, world: &Arc<World>) -> bool {
        self.world.as_ref().is_some_and(|own| Arc::ptr_eq(own, world))
    }

    /// Of this world.
    pub(super) fn new(world: &Arc<World>) -> Self {
        let tools = world.tools.iter().filter(|tool| !is_ours(&tool.name)).map(entry_of_tool);
        let agents = world.agents.iter().map(entry_of_agent);
        let mut entries: Vec<Entry> = tools.chain(agents).collect();
        weigh_by_rarity(&mut entries);
        Self { world: Some(Arc::clone(world)), entries }
    }

    /// What speaks for whom in a part of a request, most first; nobody with nothing.
    pub(super) fn find(&self, reading: &Reading, span: &Range<usize>) -> Vec<Found> {
        let seen = Seen::of(reading, span, &self.addressed(reading));
        let lead = lead_field(reading, span);
        let share = |entry: &Entry| match lead {
            Some(field) if !entry.fields.get(field).copied().unwrap_or(false) => GOVERNED,
            _ => 1.0,
        };
        let mut found: Vec<Found> = self
            .entries
            .iter()
            .map(|entry| Found {
                target: entry.target.clone(),
                evidence: entry.evidence(reading, &seen) * share(entry),
            })
            .filter(|found| found.evidence > 0.0)
            .collect();
        if *span == reading.all() && !found.iter().any(|found| found.evidence >= NAMED_BELOW) {
            for entry in self.entries.iter().filter(|entry| entry.is_called(reading, span)) {
                found.retain(|found| found.target != entry.target);
                found.push(Found { target: entry.target.clone(), evidence: NAMED });
            }
        }
        // Equal evidence: who is up, then the order of ids, so that the same request always goes the same way.
        found.sort_by(|a, b| {
            let by = b.evidence.total_cmp(&a.evidence);
            by.then(b.target.is_up.cmp(&a.target.is_up)).then_with(|| a.target.id.cmp(&b.target.id))
        });
        found
    }

    /// Whether the target is of that field.
    pub(super) fn is_of_field(&self, id: &str, field: &str) -> bool {
        let Some(field) = lexicon().field(field) else { return false };
        let of = |entry: &Entry| entry.fields.get(field).copied().unwrap_or(false);
        self.entries.iter().any(|entry| entry.target.id == id && of(entry))
    }

    /// The first target of that field, one that is up before others.
    pub(super) fn first_of_field(&self, field: &str) -> Option<Target> {
        let field = lexicon().field(field)?;
        let of = |entry: &&Entry| entry.fields.get(field).copied().unwrap_or(false);
        let first = self.entries.iter().filter(of).find(|entry| entry.target.is_up);
        first.or_else(|| self.entries.iter().find(of)).map(|entry| entry.target.clone())
    }

    /// Whether the target is of a field whose requests are a known kind.
    pub(super) fn is_of_a_kind(&self, id: &str) -> bool {
        let entry = self.entries.iter().find(|entry| entry.target.id == id);
        let known = |(field, is_of): (usize, &bool)| *is_of && is_known(lexicon().name(field));
        entry.is_some_and(|entry| entry.fields.iter().enumerate().any(known))
    }

    /// Tokens with which an agent is only addressed ("Skycast, …", "ask the weather bot to …"): what is asked is the rest.
    fn addressed(&self, reading: &Reading) -> HashSet<usize> {
        let span = &reading.all();
        let mut out = HashSet::new();
        for entry in &self.entries {
            out.extend(entry.called_at(reading, span).filter(|at| is_vocative(reading, span, at)).flatten());
        }
        out
    }
}

/// What of a span says something about fields, gathered once for all targets.
pub(super) struct Seen {
    /// Tokens that count, each with its stem and what its being misspelt takes away.
    words: Vec<(usize, f32)>,
    /// By field: the weight at each token.
    fields: HashMap<usize, Vec<f32>>,
    /// By field: what signs that aren't words say.
    pub(super) signs: Vec<f32>,
}

impl Seen {
    /// Of a part of a request.
    pub(super) fn of(reading: &Reading, span: &Range<usize>, addressed: &HashSet<usize>) -> Self {
        let lexicon = lexicon();
        let mut covered = vec![false; reading.tokens.len()];
        for hit in reading.of(Set::MealTime, span) {
            covered[hit.at..(hit.at + hit.len).min(reading.tokens.len())].fill(true);
        }
        for at in only_addressed(reading).into_iter().chain(addressed.iter().copied()) {
            covered[at] = true;
        }
        let mut fields: HashMap<usize, Vec<f32>> = HashMap::new();
        for hit in &reading.fields {
            if !span.contains(&hit.at) || covered[hit.at] {
                continue;
            }
            let alone = if hit.value.strong { STRONG } else { HINT };
            let weights = fields.entry(hit.at).or_insert_with(|| vec![0.0; lexicon.fields_count()]);
            let weight = &mut weights[hit.value.field];
            *weight = weight.max(alone);
        }
        let words = span.clone().filter(|at| reading.tokens.get(*at).is_some_and(|t| t.is_word()) && !covered[*at]);
        let words = words.map(|at| (at, if reading.misspelt[at] { FUZZY } else { 1.0 })).collect();
        Self { words, fields, signs: signs(reading, span) }
    }

    /// How much speaks for a field alone, whoever is of it.
    pub(super) fn of_field(&self, reading: &Reading, field: usize) -> f32 {
        let mut counted = HashSet::new();
        let words = self.words.iter().filter_map(|(at, share)| {
            let weight = self.fields.get(at).and_then(|weights| weights.get(field)).copied().unwrap_or(0.0);
            (weight > 0.0 && counted.insert(&reading.tokens[*at].english)).then_some(weight * share)
        });
        words.sum::<f32>() + self.signs.get(field).copied().unwrap_or(0.0)
    }

    /// The most that speaks for any field.
    pub(super) fn best_field(&self, reading: &Reading) -> f32 {
        (0..lexicon().fields_count()).map(|field| self.of_field(reading, field)).fold(0.0, f32::max)
    }
}

/// `ask the … bot to`, `could the … agent`, `o robô de … pode`: whoever is named there is only spoken to.
pub(super) fn only_addressed(reading: &Reading) -> Vec<usize> {
    const BEFORE: &str = "ask tell get have let could can would will pede peca pergunta pergunte diga fala";
    const AFTER: &str = "pode podia poderia consegue can could will would please";
    const WORDS_MAX: usize = 5;
    let word = |at: usize| reading.tokens.get(at).map_or("", |t| t.folded.as_str());
    let mut out = Vec::new();
    for at in reading.all().filter(|at| reading.is(*at, Set::Agents)) {
        let is_one = !word(at).ends_with('s');
        let ask = (at.saturating_sub(WORDS_MAX)..at).rev().find(|at| is_one_of(word(*at), BEFORE));
        let can = (at + 1..at + WORDS_MAX).find(|at| is_one_of(word(*at), AFTER));
        // "who can I ask", "which agent could …" ask for a list.
        let lists = |from: usize| {
            (from.saturating_sub(2)..at).any(|at| {
                matches!(word(at), "which" | "what" | "who" | "any" | "qual" | "quais" | "que" | "outro" | "other")
            })
        };
        match (ask, can) {
            (Some(ask), _) if is_one && !lists(ask) => out.extend(ask..=at),
            (None, Some(can)) if is_one && !lists(at.saturating_sub(WORDS_MAX)) => out.extend(at..=can),
            _ => {}
        }
    }
    out
}

/// The field of the verb that a part begins with, where what follows is only what the verb is applied to.
pub(super) fn lead_field(reading: &Reading, span: &Range<usize>) -> Option<usize> {
    if !reading.begins_with(Set::Governs, span) {
        return None;
    }
    let verb = reading.of(Set::Governs, span).next()?;
    reading.fields.iter().find(|hit| hit.at == verb.at).map(|hit| hit.value.field)
}

/// Whether a name is called out: `NAME, …`, `hey NAME …`, `ask NAME to …`.
fn is_vocative(reading: &Reading, span: &Range<usize>, name: &Range<usize>) -> bool {
    const CALLS: &str = "o oi ola ei hey hi hello dear ask tell pede peca pergunta pergunte";
    let before = name.start.checked_sub(1).filter(|at| span.contains(at)).and_then(|at| reading.tokens.get(at));
    let after = reading.tokens.get(name.end);
    let comma = after.is_some_and(|t| t.is_sign(",") || t.is_sign(":") || t.is_sign("!"));
    let called = before.is_some_and(|t| is_one_of(&t.folded, CALLS));
    let shown = reading.tokens.get(name.start).is_some_and(|t| t.capital);
    comma && (before.is_none() || called) || called && shown
}

impl Entry {
    fn evidence(&self, reading: &Reading, seen: &Seen) -> f32 {
        let mut counted: HashSet<&str> = HashSet::new();
        let (mut sum, mut weak) = (0.0, 0.0);
        for (at, share) in &seen.words {
            let token = &reading.tokens[*at];
            let own =
                if reading.is(*at, Set::Stop) { 0.0 } else { self.own.get(&token.english).copied().unwrap_or(0.0) };
            let known = seen.fields.get(at);
            let field = known.map_or(0.0, |weights| self.of_fields(weights));
            let is_of_every_day = known.is_some_and(|weights| weights.iter().all(|weight| *weight < STRONG));
            let own = if is_of_every_day { own.min(TAG_OF_EVERY_DAY) } else { own };
            let weight = own.max(field) * share;
            if weight <= 0.0 || !counted.insert(&token.english) {
                continue;
            }
            if weight < WEAK_BELOW && field <= 0.0 { weak += weight } else { sum += weight }
        }
        let signs = self.of_fields(&seen.signs);
        sum + weak.min(WEAK_SUM_MAX) + signs
    }

    fn of_fields(&self, weights: &[f32]) -> f32 {
        self.fields.iter().zip(weights).filter(|(is_of, _)| **is_of).map(|(_, weight)| *weight).fold(0.0, f32::max)
    }

    fn is_called(&self, reading: &Reading, span: &Range<usize>) -> bool {
        self.called_at(reading, span).next().is_some()
    }

    /// Where its name or id stands.
    fn called_at(&self, reading: &Reading, span: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (tokens, span) = (&reading.tokens, span.clone());
        self.called.iter().flat_map(move |name| {
            span.clone().filter_map(move |at| {
                let there = tokens.get(at..at + name.len())?;
                there.iter().zip(name).all(|(token, word)| token.folded == *word).then_some(at..at + name.len())
            })
        })
    }
}

fn entry_of_tool(tool: &ToolView) -> Entry {
    let ToolView { name, description, tags, examples, .. } = tool;
    let target = Target { id: name.clone(), is_agent: false, is_up: true };
    entry(target, name, &[Said { name, description, tags, examples }])
}

fn entry_of_agent(agent: &AgentView) -> Entry {
    let target = Target { id: agent.id.clone(), is_agent: true, is_up: agent.is_up };
    let own = Said { name: "", description: &agent.description, tags: &[], examples: &[] };
    let skills = agent.skills.iter().map(|skill| Said {
        name: &skill.name,
        description: &skill.description,
        tags: &skill.tags,
        examples: &skill.examples,
    });
    entry(target, &agent.name, &std::iter::once(own).chain(skills).collect::<Vec<_>>())
}

fn entry(target: Target, name: &str, said: &[Said<'_>]) -> Entry {
    let lexicon = lexicon();
    let mut fields = vec![false; lexicon.fields_count()];
    let mut own = HashMap::new();
    for Said { name, description, tags, examples } in said {
        for (text, weight) in [(*name, NAME), (*description, DESCRIPTION)] {
            learn(&mut own, text, weight);
        }
        for tag in *tags {
            // Of `car rental`, neither word says all.
            let share = if tag.split_whitespace().nth(1).is_some() { TAG_OF_SEVERAL } else { TAG };
            learn(&mut own, tag, share);
        }
        examples.iter().for_each(|example| learn(&mut own, example, EXAMPLE));
        let label = tags.iter().map(String::as_str).chain([*name]).collect::<Vec<_>>().join(" . ");
        for hit in lexicon.anchors.find(&tokenize(&plain(&label), |_| None), false) {
            fields[hit.value] = true;
        }
    }
    let said_words = |text: &str| {
        tokenize(&plain(text), |_| None).into_iter().filter(|t| t.is_word()).map(|t| t.folded).collect::<Vec<_>>()
    };
    let mut called = vec![said_words(name), vec![fold(&target.id)]];
    called.retain(|words| !words.is_empty() && words.iter().map(String::len).sum::<usize>() >= CALLED_LETTERS_MIN);
    Entry { target, fields, own, called }
}

/// A name shorter than that is also a word.
const CALLED_LETTERS_MIN: usize = 4;

/// Adds the words of what a skill says, at a weight; a word of several tags' words counts as much as its best place.
fn learn(own: &mut HashMap<String, f32>, text: &str, weight: f32) {
    let tokens = tokenize(&plain(text), |_| None);
    let sets = lexicon().sets.find(&tokens, false);
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.is_word()) {
        let is_stop =
            sets.iter().any(|hit| hit.at == at && matches!(hit.value, Set::Stop | Set::TimeWord | Set::Languages));
        // Verbs that go with everything and words of time tell no one from another.
        let is_common = sets.iter().any(|hit| {
            hit.at == at && matches!(hit.value, Set::VagueVerb | Set::Generic | Set::Compose | Set::PlanVerb)
        });
        if is_stop || token.folded.chars().count() < 3 {
            continue;
        }
        let weight = if is_common { weight * 0.3 } else { weight };
        let (english, _) = stems(&token.folded);
        let kept = own.entry(english).or_insert(0.0);
        *kept = kept.max(weight);
    }
}

/// What all say tells nothing: a word's weight falls with how many have it.
fn weigh_by_rarity(entries: &mut [Entry]) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for entry in entries.iter() {
        for word in entry.own.keys() {
            *count.entry(word.clone()).or_default() += 1;
        }
    }
    let all = entries.len();
    for entry in entries {
        for (word, weight) in &mut entry.own {
            *weight *= rarity(count.get(word).copied().unwrap_or(1), all);
        }
    }
}

/// 1 for a word that one has, falling to a fifth for one that all have.
fn rarity(have: usize, all: usize) -> f32 {
    if all < 2 || have <= 1 {
        return 1.0;
    }
    // At most WORLD_AGENTS_MAX + WORLD_TOOLS_MAX: exact in f32.
    let (have, all) = (have as f32, all as f32);
    1.0 - 0.8 * have.ln() / all.ln()
}
