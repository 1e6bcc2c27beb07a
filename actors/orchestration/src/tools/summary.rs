//! A text's main sentences, chosen by rules: those whose words the text uses most, in their order.

use std::collections::HashMap;

use callboard_message::text::{fold, words};

/// Sentences of a summary, where nobody says how many.
pub const SENTENCES_DEFAULT: usize = 3;
/// Most sentences of a summary.
pub const SENTENCES_MAX: usize = 20;
/// Shorter words say little about what a text is about.
const WORD_CHARS_MIN: usize = 4;

/// The `most` main sentences.
pub(super) fn summary(text: &str, most: usize) -> String {
    let sentences: Vec<&str> = sentences(text).collect();
    if sentences.len() <= most {
        return sentences.join(" ");
    }
    let terms: Vec<Vec<String>> = sentences.iter().map(|sentence| terms(sentence)).collect();
    let mut used: HashMap<&str, u32> = HashMap::new();
    for term in terms.iter().flatten() {
        *used.entry(term).or_default() += 1;
    }
    // Of what is said once no sentence is about; long sentences shouldn't win by length.
    let weight = |term: &String| {
        f64::from(
            used.get(&**term)
                .copied()
                .unwrap_or_default()
                .saturating_sub(1),
        )
    };
    let score = |terms: &[String]| {
        terms.iter().map(weight).sum::<f64>() / (terms.len().max(1) as f64).sqrt()
    };
    let mut ranked: Vec<(usize, f64)> =
        terms.iter().map(|terms| score(terms)).enumerate().collect();
    // Equals stay in the text's order: the sort is stable.
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut chosen: Vec<usize> = ranked.into_iter().take(most).map(|(at, _)| at).collect();
    chosen.sort_unstable();
    chosen
        .iter()
        .filter_map(|at| sentences.get(*at).copied())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Sentences, and lines that end without a stop.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(|line| {
            let mut rest = line;
            std::iter::from_fn(move || {
                if rest.is_empty() {
                    return None;
                }
                let ends = rest.char_indices().zip(rest.chars().skip(1)).find_map(
                    |((at, stop), after)| {
                        (matches!(stop, '.' | '!' | '?' | '…') && after.is_whitespace())
                            .then_some(at + stop.len_utf8())
                    },
                );
                let (sentence, after) = rest.split_at(ends.unwrap_or(rest.len()));
                rest = after;
                Some(sentence.trim())
            })
        })
        .filter(|sentence| !sentence.is_empty())
}

fn terms(sentence: &str) -> Vec<String> {
    let folded = fold(sentence);
    words(&folded)
        .filter(|word| word.chars().count() >= WORD_CHARS_MIN)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the text is about stays, in its order. Method: three sentences about one thing, two about nothing else.
    #[test]
    fn main_sentences_stay() {
        let text = "The harbour bridge was closed today. Bananas are yellow. Ships wait outside the harbour until the \
                    bridge is repaired.\nA cat slept. Repairs of the bridge cost 3.5 million!";
        let short = summary(text, 3);
        assert_eq!(
            short,
            "The harbour bridge was closed today. Ships wait outside the harbour until the bridge is repaired. Repairs of the \
             bridge cost 3.5 million!"
        );
        assert_eq!(
            summary(text, 20).matches(['.', '!']).count(),
            6,
            "no longer than the text"
        );
        assert_eq!(summary("", 3), "");
        assert_eq!(summary("no stop", 1), "no stop");
        assert_eq!(
            sentences("Ça va? Oui…  Bon.\n\nFin").collect::<Vec<_>>(),
            ["Ça va?", "Oui…", "Bon.", "Fin"]
        );
    }
}
