//! Text to search for: the terms of a fragment, each with alternative spellings.

use super::phrases::{PhraseKind, extend_unique};
use super::refusal::PlanRefusal;
use super::tags::{PhraseTag, TaggedPhrase};
use super::term::{TOPIC_WORDS_MAX, TopicTerm};
use super::vocabulary::WordRole;
use crate::plan::QUERY_TEXT_CHARS_MAX;

/// Maximum number of alternatives that a search text joins by `or`.
const ALTERNATIVES_MAX: usize = 12;

/// Text to search for at clinics: the terms of a fragment, which must all match. Some other words
/// next to these belong to it: `skin rash`, `type 2`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SearchTopic {
    pub terms: Vec<TopicTerm>,
    /// Words that the user wrote, for sentences to the user.
    pub shown: String,
}

impl SearchTopic {
    /// Returns the clinics that list any of its conditions, as indexes in the registry.
    pub fn seen_at(&self) -> Vec<usize> {
        let mut clinics = Vec::new();
        for term in &self.terms {
            extend_unique(&mut clinics, &term.clinics);
        }
        clinics
    }

    /// Returns whether it has a medicine.
    pub fn has_medicine(&self) -> bool {
        self.terms.iter().any(|term| term.is_medicine)
    }

    /// Returns the chapters of ICD-10 of its terms; empty if it has a medicine, which every clinic may
    /// prescribe.
    pub fn chapters(&self) -> String {
        match self.has_medicine() {
            true => String::new(),
            false => self
                .terms
                .iter()
                .map(|term| term.chapters.as_str())
                .collect(),
        }
    }

    /// Adds the terms of another topic, which must match too.
    pub fn and(&mut self, other: &Self) {
        extend_unique(&mut self.terms, &other.terms);
        self.shown = format!("{} {}", self.shown, other.shown);
    }

    /// Adds the medicine of another topic as an alternative to this one's last term, if that is a medicine
    /// and not the only term. Returns whether it did.
    pub fn or_medicine(&mut self, other: &Self) -> bool {
        match (&mut self.terms[..], &other.terms[..]) {
            ([_, .., last], [more]) if last.is_medicine && more.is_medicine => {
                extend_unique(&mut last.alternatives, &more.alternatives);
                self.shown = format!("{} {}", self.shown, other.shown);
                true
            }
            _ => false,
        }
    }

    /// Returns the texts for a clinic: all words of an alternative must match, and `or` separates
    /// alternatives. There are several if one has no room for all alternatives of its medicines. Each
    /// has at most [`QUERY_TEXT_CHARS_MAX`] characters where the terms' first alternatives have.
    pub fn query_texts(&self) -> Vec<String> {
        /// Further combinations of medicines would need more steps than a plan may have.
        const COMBINATIONS_MAX: usize = 96;
        let counts = self.terms.iter().map(|term| term.alternatives.len());
        if !self.has_medicine() || counts.product::<usize>() > COMBINATIONS_MAX {
            return vec![self.query_text()];
        }
        let mut texts: Vec<Vec<String>> = Vec::new();
        for text in combine(&self.terms) {
            match texts.last_mut() {
                Some(last) if last.len() < ALTERNATIVES_MAX => {
                    last.push(text);
                    if !fits(last) {
                        let text = last.split_off(last.len() - 1);
                        texts.push(text);
                    }
                }
                _ => texts.push(vec![text]),
            }
        }
        texts.iter().map(|texts| texts.join(" or ")).collect()
    }

    /// Returns one text for a clinic, with the first alternatives where there is no room for all.
    fn query_text(&self) -> String {
        let mut texts = vec![String::new()];
        for term in &self.terms {
            let joined = |kept: &[String]| with_each(&texts, kept);
            // With fewer alternatives where all of them are too many.
            texts = (1..=term.alternatives.len())
                .rev()
                .map(|kept| joined(&term.alternatives[..kept]))
                .find(|texts| texts.len() <= ALTERNATIVES_MAX && fits(texts))
                .unwrap_or_else(|| joined(&term.alternatives[..term.alternatives.len().min(1)]));
        }
        texts.join(" or ")
    }
}

/// Returns each text with each of the alternatives after it.
fn with_each(texts: &[String], alternatives: &[String]) -> Vec<String> {
    let with = |text: &String, more: &String| match text.is_empty() {
        true => more.clone(),
        false => format!("{text} {more}"),
    };
    texts
        .iter()
        .flat_map(|text| alternatives.iter().map(move |more| with(text, more)))
        .collect()
}

/// Returns all combinations of an alternative of each term.
fn combine(terms: &[TopicTerm]) -> Vec<String> {
    let start = vec![String::new()];
    terms
        .iter()
        .fold(start, |texts, term| with_each(&texts, &term.alternatives))
}

fn fits(texts: &[String]) -> bool {
    /// As the clinics' limit of words in a query.
    const WORDS_MAX: usize = 32;
    let joined = texts.join(" or ");
    joined.chars().count() <= QUERY_TEXT_CHARS_MAX && joined.split([' ', '-']).count() <= WORDS_MAX
}

/// Returns which phrases belong to the text to search for: the terms; weak words, numbers after
/// these, and synonyms of a specialty, if one of them stands beside a term; and prepositions between.
fn topic_phrases(pieces: &[TaggedPhrase]) -> Vec<bool> {
    let mut topic: Vec<bool> = pieces
        .iter()
        .map(|p| matches!(p.tag, PhraseTag::Term(_)))
        .collect();
    let may_join = |at: usize, beside: usize| match (&pieces[at].tag, &pieces[beside].tag) {
        // "daily aspirin"
        (PhraseTag::Weak, PhraseTag::Term(term)) => !term.is_medicine,
        (PhraseTag::Weak, _) => true,
        // `type 2 diabetes`
        (PhraseTag::Number, _) => at
            .checked_sub(1)
            .is_some_and(|before| matches!(pieces[before].tag, PhraseTag::Weak)),
        // `skin rash` is searched as a whole, while `skin patients` only names a clinic.
        (PhraseTag::Clinic(PhraseKind::Synonym, _), PhraseTag::Term(term)) => {
            term.clinics.is_empty() && !term.is_medicine
        }
        _ => false,
    };
    for at in (0..pieces.len().saturating_sub(1)).rev() {
        topic[at] |= topic[at + 1] && may_join(at, at + 1);
    }
    for at in 1..pieces.len() {
        topic[at] |= topic[at - 1] && may_join(at, at - 1);
    }
    for at in 1..pieces.len().saturating_sub(1) {
        let is_of = matches!(pieces[at].tag, PhraseTag::Vocabulary(WordRole::Of));
        topic[at] |= is_of && topic[at - 1] && topic[at + 1];
    }
    topic
}

/// Returns whether the phrase at `at` belongs to the text to search for.
pub(super) fn is_part_of_topic(pieces: &[TaggedPhrase], at: usize) -> bool {
    topic_phrases(pieces).get(at).copied().unwrap_or_default()
}

/// Returns the text to search for of a fragment's phrases; `None` if they have no term.
///
/// # Errors
/// [`PlanRefusal::LongTopic`].
pub(super) fn build_topic(pieces: &[TaggedPhrase]) -> Result<Option<SearchTopic>, PlanRefusal> {
    let belongs = topic_phrases(pieces);
    let mut topic = SearchTopic::default();
    let mut words: Vec<&str> = Vec::new();
    for piece in pieces
        .iter()
        .zip(&belongs)
        .filter_map(|(p, b)| b.then_some(p))
    {
        words.extend(piece.shown.split(' '));
        topic.terms.push(match &piece.tag {
            PhraseTag::Term(term) => term.clone(),
            _ => TopicTerm::word(&piece.shown, ""),
        });
    }
    if words.len() > TOPIC_WORDS_MAX {
        return Err(PlanRefusal::LongTopic {
            start: words[..3].join(" "),
        });
    }
    topic.shown = words.join(" ");
    Ok((!topic.terms.is_empty()).then_some(topic))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(terms: &[&[&str]]) -> SearchTopic {
        let term = |alternatives: &&[&str]| TopicTerm {
            alternatives: alternatives.iter().map(|text| (*text).to_owned()).collect(),
            ..TopicTerm::default()
        };
        SearchTopic {
            terms: terms.iter().map(term).collect(),
            shown: String::new(),
        }
    }

    /// Goal: alternatives of several terms are multiplied out, because a clinic splits a query at
    /// `or`; too many are cut, the first stay. Method: rows, at the limit and above.
    #[test]
    fn texts_with_alternatives() {
        for (terms, expect) in [
            (vec![&["a"][..]], "a"),
            (vec![&["a", "b"][..]], "a or b"),
            (vec![&["a"][..], &["b", "c"][..]], "a b or a c"),
            (
                vec![&["a", "b"][..], &["c", "d"][..]],
                "a c or a d or b c or b d",
            ),
        ] {
            assert_eq!(topic(&terms).query_text(), expect);
        }
        let many: Vec<String> = (0..=ALTERNATIVES_MAX).map(|n| format!("t{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let count = |terms: &[&str]| topic(&[terms]).query_text().split(" or ").count();
        assert_eq!(count(&many[..ALTERNATIVES_MAX]), ALTERNATIVES_MAX);
        assert_eq!(count(&many), ALTERNATIVES_MAX);
        let class = |names: &[&str]| {
            let mut topic = topic(&[&["a b"], names]);
            topic.terms[1].is_medicine = true;
            topic.query_texts()
        };
        assert_eq!(class(&["c", "d"]), ["a b c or a b d"]);
        let texts = class(&many);
        assert_eq!(texts.len(), 2);
        assert!(many.iter().all(|name| {
            let text = format!("a b {name}");
            texts
                .iter()
                .any(|texts| texts.split(" or ").any(|t| t == text))
        }));
        let long = "x".repeat(QUERY_TEXT_CHARS_MAX);
        assert_eq!(topic(&[&[&*long, "y"]]).query_text(), long);
    }
}
