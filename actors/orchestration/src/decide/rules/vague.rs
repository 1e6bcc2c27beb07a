//! How vague a request is, and what is missing in it.

use std::ops::Range;

use callboard_message::text::is_one_of;

use super::clauses::clauses;
use super::index::Seen;
use super::lexicon::Set;
use super::reading::Reading;
use super::tools::{explains, intent};
use super::words::{Kind, Token};
use crate::decide::Turn;
use crate::tools::Tool;
use callboard_message::Speaker;

/// What is missing in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// Nothing.
    Nothing,
    /// What is to be done with what.
    Everything,
    /// What something that is only pointed at is.
    Referent,
    /// The text to work on.
    Text,
}

impl Missing {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Everything => "everything",
            Self::Referent => "referent",
            Self::Text => "text",
        }
    }
}

/// How vague a request is, 0 to 1, and what is missing.
pub(super) fn vagueness(reading: &Reading, history: &[Turn]) -> (f32, Missing) {
    let all = reading.wish.clone();
    if works_on_nothing(reading, history) {
        return (0.9, Missing::Text);
    }
    let wanted = intent(reading, &all).filter(|intent| !matches!(intent.tool, Tool::Summarize | Tool::Echo));
    if wanted.is_some_and(|intent| intent.score >= 0.6) || reading.has_content() {
        return (0.0, Missing::Nothing);
    }
    if explains(reading, &all) {
        return (0.1, Missing::Nothing);
    }
    let mass = mass(reading, &all);
    let field = field(reading, &all);
    if mass < 0.5 && reading.has(Set::Greeting, &all) && !reading.has(Set::VagueVerb, &all) {
        return (0.1, Missing::Nothing);
    }
    if carries_on(history) {
        return (0.3, Missing::Nothing);
    }
    if mass < 0.5 {
        return (0.95, Missing::Everything);
    }
    // Many words, few of which say anything.
    const WORDY: usize = 15;
    const SAYING_MIN: f32 = 0.28;
    let words = all.clone().filter(|at| reading.tokens.get(*at).is_some_and(Token::is_word)).count();
    // At most TOKENS_MAX: exact in f32.
    let saying = mass / words.max(1) as f32;
    let pointed = reading.of(Set::Deictic, &all).count();
    if words >= WORDY && saying < SAYING_MIN && field < 0.8 && pointed >= 1 {
        return (0.85, Missing::Referent);
    }
    if pointed >= 2 && field < 0.8 {
        return (0.9, Missing::Referent);
    }
    if field >= 0.5 {
        return (0.1, Missing::Nothing);
    }
    // What is asked is asked in one clause: where that only points, and nothing else says what at, it is vague.
    let points = |span: &Range<usize>| {
        let asks = reading.begins_with(Set::VagueVerb, span) || asks_for_it(reading, span);
        asks && self::mass(reading, span) < 0.5 && reading.has(Set::Pronoun, span)
    };
    const MUCH: f32 = 4.0;
    if mass < MUCH && clauses(reading).iter().any(points) {
        return (0.9, Missing::Referent);
    }
    // "Give her the other dose": somebody nobody has spoken of.
    const SOMEBODY: &str = "her him them hers his dele dela deles ele ela eles";
    let somebody = all.clone().any(|at| reading.tokens.get(at).is_some_and(|t| is_one_of(&t.folded, SOMEBODY)));
    if somebody && mass < 1.5 && reading.begins_with(Set::VagueVerb, &all) {
        return (0.85, Missing::Referent);
    }
    if pointed >= 1 && mass < 1.5 {
        return (0.85, Missing::Referent);
    }
    (0.2, Missing::Nothing)
}

/// `can you … it`.
fn asks_for_it(reading: &Reading, span: &Range<usize>) -> bool {
    reading.has(Set::Filler, span) && reading.has(Set::VagueVerb, span)
}

/// A text is to be translated or shortened, and there is none.
fn works_on_nothing(reading: &Reading, history: &[Turn]) -> bool {
    let all = reading.wish.clone();
    let works = reading.begins_with(Set::TranslateVerb, &all)
        || reading.begins_with(Set::SummarizeVerb, &all)
        || reading.begins_with(Set::ReviewVerb, &all);
    if !works || reading.has_content() || reading.has_code || carries_on(history) {
        return false;
    }
    let object = all.filter(|at| {
        let counts = weight(reading, *at) >= 1.0;
        counts
            && !reading.is(*at, Set::TranslateVerb)
            && !reading.is(*at, Set::SummarizeVerb)
            && !reading.is(*at, Set::Languages)
            && !reading.is(*at, Set::ReviewVerb)
            && !reading.is(*at, Set::Genre)
    });
    object.count() == 0
}

/// Whether something was said before that the request can go on from.
pub(super) fn carries_on(history: &[Turn]) -> bool {
    let newest = history.iter().rev().filter(|turn| turn.by == Speaker::User).take(2);
    newest
        .map(|turn| Reading::new(&turn.text))
        .any(|before| before.has_content() || mass(&before, &before.all()) >= 1.0)
}

/// The most that speaks for anything anybody does.
fn field(reading: &Reading, span: &Range<usize>) -> f32 {
    Seen::of(reading, span, &Default::default()).best_field(reading)
}

/// How many words tell what it is about.
fn mass(reading: &Reading, span: &Range<usize>) -> f32 {
    let mut counted: Vec<&str> = Vec::new();
    let mut sum = 0.0;
    for at in span.clone() {
        let Some(token) = reading.tokens.get(at) else { continue };
        if !counted.contains(&token.english.as_str()) {
            sum += weight(reading, at);
            counted.push(&token.english);
        }
        if sum >= MASS_ENOUGH {
            break;
        }
    }
    sum
}

/// More than this is never asked for.
const MASS_ENOUGH: f32 = 200.0;

fn weight(reading: &Reading, at: usize) -> f32 {
    let Some(token) = reading.tokens.get(at) else { return 0.0 };
    match token.kind {
        Kind::Sign => 0.0,
        Kind::Code | Kind::Address => 2.0,
        Kind::Number => 0.6,
        Kind::Word => {
            const NOTHING: [Set; 11] = [
                Set::Governs,
                Set::PlanVerb,
                Set::Context,
                Set::Stop,
                Set::Filler,
                Set::VagueVerb,
                Set::Thinking,
                Set::Pronoun,
                Set::Deictic,
                Set::Accept,
                Set::Greeting,
            ];
            if reading.is(at, Set::TimeWord) {
                return 0.6;
            }
            if NOTHING.iter().any(|set| reading.is(at, *set)) || token.folded.chars().count() < 2 {
                return 0.0;
            }
            if reading.is(at, Set::Generic) { 0.1 } else { 1.0 }
        }
    }
}

/// The question that asks for what is missing.
pub(super) fn question(reading: &Reading, missing: Missing) -> String {
    let all = reading.all();
    let translates = reading.has(Set::TranslateVerb, &all);
    let reviews = reading.has(Set::ReviewVerb, &all) && !reading.has(Set::SummarizeVerb, &all);
    let question = match (missing, reading.portuguese) {
        (Missing::Text, false) if translates => "Which text should I translate, and into which language?",
        (Missing::Text, true) if translates => "Qual texto devo traduzir, e para qual idioma?",
        (Missing::Text, false) if reviews => "What should I look at? Please paste or name it.",
        (Missing::Text, true) if reviews => "O que devo olhar? Cole ou diga qual é, por favor.",
        (Missing::Text, false) => "Which text should I shorten?",
        (Missing::Text, true) => "Qual texto devo resumir?",
        (Missing::Referent, true) => "A que você se refere exatamente, e o que devo fazer?",
        (Missing::Referent, false) => match verb(reading) {
            Some(verb) => return format!("What should I {verb}?"),
            None => "What exactly do you mean, and what should I do?",
        },
        (_, true) => "O que exatamente você quer que eu faça, e com o quê?",
        (_, false) => match verb(reading) {
            Some(verb) => return format!("What should I {verb}?"),
            None => "What exactly would you like me to do?",
        },
    };
    question.to_owned()
}

/// The verb that the request begins with, where a question can be made of it.
fn verb(reading: &Reading) -> Option<&str> {
    const VERBS: &str = "fix handle sort solve finish change update continue repeat start stop try check send move cancel undo redo improve tweak adjust correct restore \
        resend open close show run keep remove delete add rename reset swap";
    let first = reading.of(Set::VagueVerb, &reading.all()).next()?;
    let verb = reading.tokens.get(first.at)?.folded.as_str();
    is_one_of(verb, VERBS).then_some(verb)
}
