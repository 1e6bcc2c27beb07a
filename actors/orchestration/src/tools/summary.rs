//! Extractive summary by rules: the sentences with the most frequent words of the text, in their
//! order.

use std::collections::HashMap;

use callboard_message::text::{fold, words};

/// Default number of sentences in a summary.
pub const SUMMARY_SENTENCES_DEFAULT: usize = 3;
/// Maximum number of sentences in a summary. A request for more is rejected with `InvalidInput`.
pub const SUMMARY_SENTENCES_MAX: usize = 20;
/// Minimum characters of a word that counts towards a sentence's score.
const WORD_CHARS_MIN: usize = 4;

/// Returns the `most` highest-scoring sentences, in the order of the text, separated by spaces; all
/// sentences if there are no more.
pub(super) fn extract_main_sentences(text: &str, most: usize) -> String {
    let sentences: Vec<&str> = split_sentences(text).collect();
    if sentences.len() <= most {
        return sentences.join(" ");
    }
    let terms: Vec<Vec<String>> = sentences
        .iter()
        .map(|sentence| sentence_terms(sentence))
        .collect();
    let mut used: HashMap<&str, u32> = HashMap::new();
    for term in terms.iter().flatten() {
        *used.entry(term).or_default() += 1;
    }
    // Words used once have no weight. Dividing by the root of the length keeps long sentences from
    // winning.
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
    // The sort is stable: equal scores stay in the order of the text.
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut chosen: Vec<usize> = ranked.into_iter().take(most).map(|(at, _)| at).collect();
    chosen.sort_unstable();
    chosen
        .iter()
        .filter_map(|at| sentences.get(*at).copied())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Splits a text into sentences. A line end also ends a sentence.
fn split_sentences(text: &str) -> impl Iterator<Item = &str> {
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

fn sentence_terms(sentence: &str) -> Vec<String> {
    let folded = fold(sentence);
    words(&folded)
        .filter(|word| word.chars().count() >= WORD_CHARS_MIN)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the summary keeps the main topic, in the text's order. Method: three sentences about
    /// one topic, two about none.
    /// Rows: B-19.
    #[test]
    fn main_sentences_stay() {
        let text = "The harbour bridge was closed today. Bananas are yellow. Ships wait outside the harbour until the \
                    bridge is repaired.\nA cat slept. Repairs of the bridge cost 3.5 million!";
        let short = extract_main_sentences(text, 3);
        assert_eq!(
            short,
            "The harbour bridge was closed today. Ships wait outside the harbour until the bridge is repaired. Repairs of the \
             bridge cost 3.5 million!"
        );
        assert_eq!(
            extract_main_sentences(text, 20).matches(['.', '!']).count(),
            6,
            "no longer than the text"
        );
        assert_eq!(extract_main_sentences("", 3), "");
        assert_eq!(extract_main_sentences("no stop", 1), "no stop");
        assert_eq!(
            split_sentences("Ça va? Oui…  Bon.\n\nFin").collect::<Vec<_>>(),
            ["Ça va?", "Oui…", "Bon.", "Fin"]
        );
    }
}
