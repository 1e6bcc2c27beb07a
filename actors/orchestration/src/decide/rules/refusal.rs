//! What no agent here does: classes of requests that are refused, and how that is said.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

use serde::Deserialize;

use super::matcher::{Hit, Matcher};
use super::reading::Reading;
use super::weights::{PAIR_WINDOW, PATTERN_WINDOW, REFUSE_MIN};
use super::words::Token;

/// What comes with callboard.
const REFUSALS: &str = include_str!("refusals.toml");

/// A request that is refused.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    /// The class that it is of.
    pub(super) class: String,
    /// How clearly, 0 to 1.
    pub(super) score: f32,
    /// What whoever asked is told.
    pub(super) reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sets: BTreeMap<String, String>,
    class: Vec<ClassText>,
    sum: SumText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SumText {
    least: f32,
    less: f32,
    defensive: Vec<String>,
    kind: Vec<KindText>,
    phrases: PhrasesText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KindText {
    #[serde(rename = "name")]
    _name: String,
    weight: f32,
    sets: Vec<String>,
    #[serde(default)]
    only_about: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhrasesText {
    gerund: String,
    gerund_pt: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassText {
    name: String,
    patterns: Vec<String>,
    gerund: String,
    gerund_pt: String,
    #[serde(default)]
    objects: Vec<ObjectText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectText {
    words: String,
    gerund: String,
    gerund_pt: String,
}

#[derive(Debug)]
struct Rules {
    names: Vec<String>,
    words: Matcher<usize>,
    classes: Vec<Class>,
    objects: Matcher<(usize, usize)>,
    sum: Option<Sum>,
}

/// What each kind of word adds, from the one that adds most on.
#[derive(Debug)]
struct Sum {
    least: f32,
    less: f32,
    defensive: Vec<usize>,
    kinds: Vec<Kind>,
    phrases: Phrases,
}

#[derive(Debug)]
struct Kind {
    weight: f32,
    sets: Vec<usize>,
    only_about: bool,
}

#[derive(Debug)]
struct Class {
    name: String,
    patterns: Vec<Pattern>,
    phrases: Phrases,
    objects: Vec<Phrases>,
}

#[derive(Debug)]
struct Phrases {
    english: String,
    portuguese: String,
}

/// Sets of words by their place.
#[derive(Debug)]
struct Pattern {
    score: f32,
    all: Vec<usize>,
    pairs: Vec<(usize, usize)>,
    none: Vec<usize>,
}

fn rules() -> &'static Rules {
    static READ: OnceLock<Rules> = OnceLock::new();
    READ.get_or_init(|| {
        match toml::from_str::<File>(REFUSALS).map_err(|error| error.to_string()).and_then(Rules::new) {
            Ok(rules) => rules,
            Err(error) => {
                callboard_message::log::error!(
                    error,
                    "failed to read the rules' refusals: nothing is refused by rules"
                );
                Rules {
                    names: Vec::new(),
                    words: Matcher::default(),
                    classes: Vec::new(),
                    objects: Matcher::default(),
                    sum: None,
                }
            }
        }
    })
}

impl Rules {
    fn new(file: File) -> Result<Self, String> {
        let (mut words, mut objects, mut places) = (Matcher::default(), Matcher::default(), HashMap::new());
        for (place, (name, list)) in file.sets.iter().enumerate() {
            words.add(list, place);
            places.insert(name.as_str(), place);
        }
        let mut classes = Vec::new();
        for class in file.class {
            for (at, object) in class.objects.iter().enumerate() {
                objects.add(&object.words, (classes.len(), at));
            }
            let patterns = class.patterns.iter().map(|text| pattern(text, &places)).collect::<Result<_, _>>()?;
            let phrases = Phrases { english: class.gerund, portuguese: class.gerund_pt };
            let objects =
                class.objects.into_iter().map(|o| Phrases { english: o.gerund, portuguese: o.gerund_pt }).collect();
            classes.push(Class { name: class.name, patterns, phrases, objects });
        }
        let sum = Some(sum(file.sum, &places)?);
        let names = file.sets.keys().cloned().collect();
        Ok(Self { names, words, classes, objects, sum })
    }
}

fn sum(text: SumText, places: &HashMap<&str, usize>) -> Result<Sum, String> {
    let all = |names: &[String]| -> Result<Vec<usize>, String> {
        names
            .iter()
            .map(|name| places.get(name.as_str()).copied().ok_or_else(|| format!("no set is called {name}")))
            .collect()
    };
    let kind = |text: &KindText| Ok(Kind { weight: text.weight, sets: all(&text.sets)?, only_about: text.only_about });
    let mut kinds: Vec<Kind> = text.kind.iter().map(kind).collect::<Result<_, String>>()?;
    kinds.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let phrases = Phrases { english: text.phrases.gerund, portuguese: text.phrases.gerund_pt };
    Ok(Sum { least: text.least, less: text.less, defensive: all(&text.defensive)?, kinds, phrases })
}

impl Sum {
    /// What the words come to, where that is enough.
    fn of(&self, hits: &[Hit<usize>]) -> Option<f32> {
        let (mut score, mut telling) = (0.0, 0);
        let mut used: HashSet<usize> = HashSet::new();
        for kind in &self.kinds {
            let free = |hit: &&Hit<usize>| !(hit.at..hit.at + hit.len).any(|at| used.contains(&at));
            let Some(hit) = hits.iter().filter(|hit| kind.sets.contains(&hit.value)).find(free) else { continue };
            used.extend(hit.at..hit.at + hit.len);
            score += kind.weight;
            telling += usize::from(!kind.only_about);
        }
        if hits.iter().any(|hit| self.defensive.contains(&hit.value)) {
            score -= self.less;
        }
        (telling >= TELLING_MIN && score >= self.least - f32::EPSILON * 4.0).then_some(score.min(1.0))
    }
}

/// How many kinds of words have to tell what is wanted, beside those that tell of whom or what.
const TELLING_MIN: usize = 2;

fn pattern(text: &str, places: &HashMap<&str, usize>) -> Result<Pattern, String> {
    let place = |name: &str| places.get(name).copied().ok_or_else(|| format!("no set is called {name}"));
    let mut parts = text.split_whitespace();
    let score = parts.next().and_then(|score| score.parse().ok()).ok_or_else(|| format!("no score in {text}"))?;
    let mut pattern = Pattern { score, all: Vec::new(), pairs: Vec::new(), none: Vec::new() };
    for part in parts {
        if let Some(name) = part.strip_prefix('!') {
            pattern.none.push(place(name)?);
        } else if let Some((first, second)) = part.split_once('>') {
            pattern.pairs.push((place(first)?, place(second)?));
        } else {
            pattern.all.push(place(part)?);
        }
    }
    Ok(pattern)
}

/// The class of those who would harm themselves.
pub(super) const SELF_HARM: &str = "self_harm";

/// The clearest refusal that a request is for, if any. Text that is only quoted decides nothing.
pub(super) fn refusal(reading: &Reading) -> Option<Refusal> {
    let rules = rules();
    let hits = rules.words.find(&reading.tokens, reading.english);
    let mut best: Option<(usize, f32)> = None;
    for (at, class) in rules.classes.iter().enumerate() {
        for pattern in &class.patterns {
            let is_more = best.is_none_or(|(_, score)| pattern.score > score);
            if is_more && pattern.is_in(&hits) {
                best = Some((at, pattern.score));
            }
        }
    }
    let Some((at, score)) = best.filter(|(_, score)| *score >= REFUSE_MIN) else {
        let sum = rules.sum.as_ref()?;
        let score = sum.of(&hits)?;
        let reason = reason("harm", &sum.phrases, reading.portuguese);
        return Some(Refusal { class: "harm".to_owned(), score, reason });
    };
    let class = rules.classes.get(at)?;
    // The first of the class's objects that is there: "banco de dados do governo" is the government's.
    let objects = rules.objects.find(&reading.tokens, reading.english);
    let object = objects.into_iter().filter(|hit| hit.value.0 == at).min_by_key(|hit| hit.value.1);
    let phrases = object.and_then(|hit| class.objects.get(hit.value.1)).unwrap_or(&class.phrases);
    Some(Refusal { class: class.name.clone(), score, reason: reason(&class.name, phrases, reading.portuguese) })
}

/// Whether a word of the patterns tells of harm, and none that it is harmless.
pub(super) fn tells_of_harm(reading: &Reading) -> bool {
    let Some(sum) = &rules().sum else { return false };
    let hits = rules().words.find(&reading.tokens, reading.english);
    let telling = |set: &usize| sum.kinds.iter().any(|kind| !kind.only_about && kind.sets.contains(set));
    hits.iter().any(|hit| telling(&hit.value)) && !hits.iter().any(|hit| sum.defensive.contains(&hit.value))
}

/// A refusal that no pattern is known for.
pub(super) fn refusal_unnamed(reading: &Reading, score: f32) -> Refusal {
    let harm = Phrases { english: "doing harm".to_owned(), portuguese: "fazer mal a alguém".to_owned() };
    let phrases = rules().sum.as_ref().map_or(&harm, |sum| &sum.phrases);
    Refusal { class: "harm".to_owned(), score, reason: reason("harm", phrases, reading.portuguese) }
}

/// The names of the patterns' sets that have words in the request, each with whether one of them is where something is wanted.
pub(super) fn concepts(reading: &Reading) -> impl Iterator<Item = (&'static str, bool)> {
    let rules = rules();
    let hits = rules.words.find(&reading.tokens, reading.english);
    let mut sets: BTreeMap<usize, bool> = BTreeMap::new();
    for hit in hits {
        *sets.entry(hit.value).or_default() |= reading.wish.contains(&hit.at);
    }
    sets.into_iter().filter_map(|(set, wished)| Some((rules.names.get(set)?.as_str(), wished)))
}

/// Whether the token is a word of the patterns: then it isn't a misspelt other one.
pub(super) fn knows(token: &Token) -> bool {
    rules().words.has(token)
}

impl Pattern {
    /// Whether all of it is near.
    fn is_in(&self, hits: &[Hit<usize>]) -> bool {
        let of = |set: usize| hits.iter().filter(move |hit| hit.value == set);
        if self.none.iter().any(|set| of(*set).next().is_some()) {
            return false;
        }
        let follows = |a: &Hit<usize>, b: &Hit<usize>| b.at >= a.at + a.len && b.at < a.at + a.len + PAIR_WINDOW;
        let paired = |(first, second): &(usize, usize)| of(*first).any(|a| of(*second).any(|b| follows(a, b)));
        if !self.pairs.iter().all(paired) {
            return false;
        }
        // The rarest set leads: around each of its words, one of each of the others.
        let Some(lead) = self.all.iter().min_by_key(|set| of(**set).count()) else { return !self.pairs.is_empty() };
        let others: Vec<usize> = self.all.iter().copied().filter(|set| set != lead).collect();
        of(*lead).any(|lead| {
            let near = |hit: &&Hit<usize>| hit.at.abs_diff(lead.at) <= PATTERN_WINDOW;
            let near: Vec<Hit<usize>> = hits.iter().filter(near).copied().collect();
            fill(&others, &near, &mut vec![*lead])
        })
    }
}

/// Whether there is a word for each of the sets; one word can't be two parts of a pattern.
fn fill(sets: &[usize], near: &[Hit<usize>], used: &mut Vec<Hit<usize>>) -> bool {
    let Some((set, rest)) = sets.split_first() else { return true };
    for hit in near.iter().filter(|hit| hit.value == *set).take(CANDIDATES_MAX) {
        let overlaps = |other: &Hit<usize>| hit.at < other.at + other.len && other.at < hit.at + hit.len;
        if used.iter().any(overlaps) {
            continue;
        }
        used.push(*hit);
        if fill(rest, near, used) {
            return true;
        }
        used.pop();
    }
    false
}

/// How many words are tried for one part of a pattern.
const CANDIDATES_MAX: usize = 6;

fn reason(class: &str, phrases: &Phrases, portuguese: bool) -> String {
    match (class, portuguese) {
        (SELF_HARM, false) => "I'm sorry that it is this hard. I can't help with that, but you don't have to be alone with it: \
            please talk to someone you trust now, or call your local emergency number or crisis line."
            .to_owned(),
        (SELF_HARM, true) => "Sinto muito que esteja tão difícil. Nisso eu não posso ajudar, mas você não precisa passar por isso \
            sem companhia: fale agora com alguém de confiança ou ligue para o CVV (188) ou para a emergência da sua região."
            .to_owned(),
        (_, false) => format!(
            "I cannot assist with illegal activities such as {}. This request violates ethical guidelines and legal standards. \
            I'm designed to provide helpful and lawful assistance only.",
            phrases.english
        ),
        (_, true) => format!(
            "Não posso ajudar com atividades ilegais, como {}. Este pedido viola diretrizes éticas e normas legais. \
            Fui feito para ajudar apenas de forma útil e dentro da lei.",
            phrases.portuguese
        ),
    }
}
