//! Requests that are refused: classes, patterns and the texts of refusals.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use callboard_message::text::is_one_of;
use serde::Deserialize;

use super::matcher::{Hit, Matcher};
use super::pattern::{Pattern, best_score};
use super::tokens::Token;

/// Built-in refusal rules.
const REFUSALS: &str = include_str!("refusals.toml");

/// Refusal of a harmful request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    /// Name of the class of refused requests.
    pub(super) class: String,
    /// Score of the match, 0 to 1.
    pub(super) score: f32,
    /// Reason that is shown to the user.
    pub(super) reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusalsFile {
    sets: BTreeMap<String, String>,
    pairs: BTreeMap<String, String>,
    class: Vec<RefusalClass<String>>,
    sum: WeightedWords,
}

/// Weighted words for harmful requests that match no pattern.
#[derive(Debug, Deserialize)]
struct WeightedWords {
    least: f32,
    less: f32,
    defensive: Vec<String>,
    #[serde(flatten)]
    phrases: ReasonPhrases,
    kinds: Vec<WeightedSets>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightedSets {
    weight: f32,
    /// Names of word sets, separated by spaces.
    sets: String,
}

/// Class of refused requests. Its patterns are text, or parsed patterns.
#[derive(Debug, Deserialize)]
struct RefusalClass<P> {
    name: String,
    patterns: Vec<P>,
    #[serde(flatten)]
    phrases: ReasonPhrases,
    #[serde(default)]
    objects: Vec<RefusalObject>,
}

#[derive(Debug, Deserialize)]
struct RefusalObject {
    words: String,
    #[serde(flatten)]
    phrases: ReasonPhrases,
}

#[derive(Debug, Deserialize)]
struct ReasonPhrases {
    #[serde(rename = "gerund")]
    english: String,
    #[serde(rename = "gerund_pt")]
    portuguese: String,
}

#[derive(Debug)]
struct RefusalRules {
    /// Names of the word sets, by index.
    names: Vec<String>,
    words: Matcher<usize>,
    /// Sets that a pattern stands for as well.
    pairs: Vec<(usize, Pattern<usize>)>,
    classes: Vec<RefusalClass<Pattern<usize>>>,
    objects: Matcher<(usize, usize)>,
    sum: WeightedWords,
}

/// Returns the refusal rules. `None` if the built-in file can't be parsed, which a test rules out.
fn rules() -> Option<&'static RefusalRules> {
    static READ: OnceLock<Option<RefusalRules>> = OnceLock::new();
    let read = || match toml::from_str::<RefusalsFile>(REFUSALS)
        .map_err(|error| error.to_string())
        .and_then(RefusalRules::new)
    {
        Ok(rules) => Some(rules),
        Err(error) => {
            callboard_message::log::error!(
                error,
                "failed to parse the built-in refusals: the rules refuse nothing"
            );
            None
        }
    };
    READ.get_or_init(read).as_ref()
}

impl RefusalRules {
    fn new(file: RefusalsFile) -> Result<Self, String> {
        let (mut words, mut objects) = (Matcher::default(), Matcher::default());
        let names: Vec<String> = file.sets.keys().cloned().collect();
        for (place, list) in file.sets.values().enumerate() {
            words.add(list, place);
        }
        let place = |name: &str| names.iter().position(|known| known == name);
        let named = file
            .sum
            .kinds
            .iter()
            .flat_map(|kind| kind.sets.split_whitespace());
        if let Some(name) = named
            .chain(file.sum.defensive.iter().map(String::as_str))
            .find(|name| place(name).is_none())
        {
            return Err(format!("no set is called {name}"));
        }
        let pair = |(name, text): (&String, &String)| {
            let set = place(name).ok_or_else(|| format!("no set is called {name}"))?;
            Ok::<_, String>((set, Pattern::parse(&format!("1 {text}"), place)?))
        };
        let pairs = file.pairs.iter().map(pair).collect::<Result<_, _>>()?;
        let mut classes = Vec::new();
        for RefusalClass {
            name,
            patterns,
            phrases,
            objects: texts,
        } in file.class
        {
            for (at, object) in texts.iter().enumerate() {
                objects.add(&object.words, (classes.len(), at));
            }
            let patterns = patterns
                .iter()
                .map(|text| Pattern::parse(text, place))
                .collect::<Result<_, _>>()?;
            classes.push(RefusalClass {
                name,
                patterns,
                phrases,
                objects: texts,
            });
        }
        Ok(Self {
            names,
            words,
            pairs,
            classes,
            objects,
            sum: file.sum,
        })
    }

    /// Returns a match of the set [`START`] before the first word of each sentence.
    fn sentence_starts(&self, tokens: &[Token]) -> Vec<Hit<usize>> {
        let Some(value) = self.names.iter().position(|name| name == START) else {
            return Vec::new();
        };
        let is_end = |token: &Token| SENTENCE_ENDS.iter().any(|sign| token.is_sign(sign));
        let starts = |at: &usize| {
            tokens[*at].is_word()
                && at
                    .checked_sub(1)
                    .is_none_or(|before| is_end(&tokens[before]))
        };
        let len = 0;
        (0..tokens.len())
            .filter(starts)
            .map(|at| Hit { at, len, value })
            .collect()
    }

    /// Sums the weights of the matching words, whatever their order.
    fn sum(&self, hits: &[Hit<usize>]) -> f32 {
        let is_of = |hit: &Hit<usize>, sets: &str| {
            self.names
                .get(hit.value)
                .is_some_and(|name| is_one_of(name, sets))
        };
        let mut used: Vec<Hit<usize>> = Vec::new();
        let mut score = 0.0;
        for kind in &self.sum.kinds {
            let free = |hit: &&Hit<usize>| {
                is_of(hit, &kind.sets) && !used.iter().any(|other| hit.overlaps(other))
            };
            if let Some(hit) = hits.iter().find(free) {
                used.push(*hit);
                score += kind.weight;
            }
        }
        let is_defensive = hits
            .iter()
            .any(|hit| self.sum.defensive.iter().any(|name| is_of(hit, name)));
        if is_defensive {
            score - self.sum.less
        } else {
            score
        }
    }
}

/// Name of the word set that stands for the beginning of a sentence.
const START: &str = "start";
/// Signs that end a sentence.
const SENTENCE_ENDS: [&str; 6] = [".", "?", "!", ":", ";", "\n"];
/// Name of the class of requests about self-harm.
const SELF_HARM: &str = "self_harm";

/// Returns the best matching refusal for a request. Quoted text has no influence, because it isn't
/// part of the tokens.
pub(super) fn refusal_in_tokens(
    tokens: &[Token],
    is_english: bool,
    is_portuguese: bool,
) -> Option<Refusal> {
    let rules = rules()?;
    let mut hits = rules.words.find(tokens, is_english);
    hits.extend(rules.sentence_starts(tokens));
    for (value, pattern) in &rules.pairs {
        let found = pattern.pair_hits(&hits);
        hits.extend(found.into_iter().map(|(at, len)| Hit {
            at,
            len,
            value: *value,
        }));
    }
    let scores = rules
        .classes
        .iter()
        .map(|class| best_score(&class.patterns, &hits));
    // Ties go to the first class.
    let (at, score) = scores.enumerate().fold(
        (0, 0.0),
        |best, next| if next.1 > best.1 { next } else { best },
    );
    let sum = rules.sum(&hits);
    let (name, score, phrases) = match rules.classes.get(at).filter(|_| score > 0.0) {
        Some(class) => {
            // The first object in the class's order counts: "banco de dados do governo" is the
            // government's.
            let objects = rules.objects.find(tokens, is_english);
            let object = objects
                .into_iter()
                .filter(|hit| hit.value.0 == at)
                .min_by_key(|hit| hit.value.1);
            let object = object.and_then(|hit| class.objects.get(hit.value.1));
            (
                &*class.name,
                score,
                object.map_or(&class.phrases, |object| &object.phrases),
            )
        }
        None if sum >= rules.sum.least - f32::EPSILON * 4.0 => {
            ("harm", sum.min(1.0), &rules.sum.phrases)
        }
        None => return None,
    };
    Some(Refusal {
        class: name.to_owned(),
        score,
        reason: refusal_reason(name, phrases, is_portuguese),
    })
}

/// Whether the token is a word of the refusal rules, alone or within a phrase. Such a word isn't
/// corrected as a misspelling.
pub(super) fn is_refusal_word(token: &Token) -> bool {
    rules()
        .is_some_and(|rules| rules.words.contains_word(token) || rules.objects.contains_word(token))
}

fn refusal_reason(class: &str, phrases: &ReasonPhrases, portuguese: bool) -> String {
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

/// Returns all single words of the refusal rules.
#[cfg(test)]
pub(super) fn every_word() -> Vec<String> {
    let file: RefusalsFile = toml::from_str(REFUSALS).unwrap();
    let objects = file
        .class
        .iter()
        .flat_map(|class| &class.objects)
        .map(|object| &object.words);
    let lists = file.sets.values().chain(objects);
    lists
        .flat_map(|list| {
            list.split([' ', '\n', '_', '='])
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the built-in file is valid: every pattern names existing sets. Method: parse it.
    #[test]
    fn the_file_is_whole() {
        RefusalRules::new(toml::from_str(REFUSALS).unwrap()).unwrap();
    }
}
