//! What no agent here does: classes of requests that are refused, and how that is said.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use callboard_message::text::is_one_of;
use serde::Deserialize;

use super::matcher::{Hit, Matcher};
use super::pattern::{Pattern, best};
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
    class: Vec<Class<String>>,
    sum: Sum,
}

/// Wishes that no pattern knows.
#[derive(Debug, Deserialize)]
struct Sum {
    least: f32,
    less: f32,
    defensive: Vec<String>,
    #[serde(flatten)]
    phrases: Phrases,
    kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    weight: f32,
    /// Names of sets, with spaces between them.
    sets: String,
}

/// A class of requests, its patterns as they are written or read.
#[derive(Debug, Deserialize)]
struct Class<P> {
    name: String,
    patterns: Vec<P>,
    #[serde(flatten)]
    phrases: Phrases,
    #[serde(default)]
    objects: Vec<Object>,
}

#[derive(Debug, Deserialize)]
struct Object {
    words: String,
    #[serde(flatten)]
    phrases: Phrases,
}

#[derive(Debug, Deserialize)]
struct Phrases {
    #[serde(rename = "gerund")]
    english: String,
    #[serde(rename = "gerund_pt")]
    portuguese: String,
}

#[derive(Debug)]
struct Rules {
    /// Names of the sets, by place.
    names: Vec<String>,
    words: Matcher<usize>,
    classes: Vec<Class<Pattern<usize>>>,
    objects: Matcher<(usize, usize)>,
    sum: Sum,
}

/// `None` where the file can't be read, which a test rules out.
fn rules() -> Option<&'static Rules> {
    static READ: OnceLock<Option<Rules>> = OnceLock::new();
    let read = || match toml::from_str::<File>(REFUSALS)
        .map_err(|error| error.to_string())
        .and_then(Rules::new)
    {
        Ok(rules) => Some(rules),
        Err(error) => {
            callboard_message::log::error!(
                error,
                "failed to read the rules' refusals: nothing is refused by rules"
            );
            None
        }
    };
    READ.get_or_init(read).as_ref()
}

impl Rules {
    fn new(file: File) -> Result<Self, String> {
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
        let mut classes = Vec::new();
        for Class {
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
            classes.push(Class {
                name,
                patterns,
                phrases,
                objects: texts,
            });
        }
        Ok(Self {
            names,
            words,
            classes,
            objects,
            sum: file.sum,
        })
    }

    /// Weight of the words, whatever they say together.
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

/// The class of those who would harm themselves.
const SELF_HARM: &str = "self_harm";

/// The clearest refusal that a request is for, if any. Text that is only quoted decides nothing.
pub(super) fn refusal(tokens: &[Token], is_english: bool, is_portuguese: bool) -> Option<Refusal> {
    let rules = rules()?;
    let hits = rules.words.find(tokens, is_english);
    let scores = rules
        .classes
        .iter()
        .map(|class| best(&class.patterns, &hits));
    // The first of those that are as clear.
    let (at, score) = scores.enumerate().fold(
        (0, 0.0),
        |best, next| if next.1 > best.1 { next } else { best },
    );
    let sum = rules.sum(&hits);
    let (name, score, phrases) = match rules.classes.get(at).filter(|_| score > 0.0) {
        Some(class) => {
            // The first of the class's objects that is there: "banco de dados do governo" is the government's.
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
        reason: reason(name, phrases, is_portuguese),
    })
}

/// Whether the token is a word of the file, also within a phrase: then it isn't a misspelt other one.
pub(super) fn knows(token: &Token) -> bool {
    rules().is_some_and(|rules| rules.words.knows(token) || rules.objects.knows(token))
}

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

/// The words of the file, one by one.
#[cfg(test)]
pub(super) fn every_word() -> Vec<String> {
    let file: File = toml::from_str(REFUSALS).unwrap();
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

    /// Goal: the file can be read: every pattern names sets that are there. Method: read it.
    #[test]
    fn the_file_is_whole() {
        Rules::new(toml::from_str(REFUSALS).unwrap()).unwrap();
    }
}
