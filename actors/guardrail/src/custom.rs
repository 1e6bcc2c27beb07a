//! Rules that an operator adds to the built-in ones.

use schemars::JsonSchema;
use serde::Deserialize;

use super::normalize::normalize;
use super::{BLOCKING_SCORE, RuleError};

/// Maximum bytes of the phrases and the pattern of one [`CustomRule`] together. A longer rule is an
/// error at start. Fixed.
pub const CUSTOM_RULE_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of custom rules. One more is an error at start. Fixed.
pub const CUSTOM_RULES_MAX: usize = 1_000;

/// Maximum weight of a [`CustomRule`]. A heavier rule is an error at start. Fixed.
pub const CUSTOM_RULE_WEIGHT_MAX: u32 = 1_000;

/// Rule added by an operator to the built-in ones. It applies to texts of every origin.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomRule {
    /// Id in the audit log: letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// Score that the rule adds to a text, 1 to [`CUSTOM_RULE_WEIGHT_MAX`]; [`BLOCKING_SCORE`] blocks
    /// the text.
    #[serde(default = "blocking")]
    pub weight: u32,
    /// Phrases to match, each as whole words. Case, accents, disguises and the width of spaces
    /// don't matter.
    #[serde(default)]
    pub phrases: Vec<String>,
    /// Regular expression (syntax of the crate `regex`), matched against the text without accents and
    /// disguises. Case doesn't matter. A letter with an accent is an error at start.
    #[serde(default)]
    pub pattern: Option<String>,
}

const fn blocking() -> u32 {
    BLOCKING_SCORE
}

impl CustomRule {
    /// Builds the regular expression of the rule, which matches any of its phrases and its pattern.
    ///
    /// # Errors
    /// [`RuleError`] with the mistake: an invalid id, a weight of 0, too many bytes, an empty
    /// phrase, neither phrase nor pattern, or a pattern that is invalid, never matches or matches
    /// an empty text.
    pub(super) fn to_pattern(&self) -> Result<String, RuleError> {
        let mistake = |why: String| {
            Err(RuleError {
                id: self.id.clone(),
                why,
            })
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if self.id.is_empty() || !self.id.chars().all(is_name) {
            return mistake(
                "its `id` may have only ASCII letters, digits, `.`, `_` and `-`, and at least one"
                    .to_owned(),
            );
        }
        if self.weight == 0 {
            return mistake("its `weight` must be 1 or more".to_owned());
        }
        if self.weight > CUSTOM_RULE_WEIGHT_MAX {
            return mistake(format!(
                "its weight {} is too large (at most {CUSTOM_RULE_WEIGHT_MAX})",
                self.weight
            ));
        }
        let bytes = self
            .phrases
            .iter()
            .chain(&self.pattern)
            .map(String::len)
            .sum::<usize>();
        if bytes > CUSTOM_RULE_BYTES_MAX {
            return mistake(format!(
                "its `phrases` and `pattern` have {bytes} bytes together, over the limit of {CUSTOM_RULE_BYTES_MAX}"
            ));
        }
        let mut parts = Vec::new();
        for phrase in &self.phrases {
            let plain = normalize(phrase).text;
            let words: Vec<String> = plain.split_whitespace().map(regex::escape).collect();
            if words.is_empty() {
                return mistake("one of its `phrases` is empty or blank".to_owned());
            }
            let edges = [
                plain.trim_start().chars().next(),
                plain.trim_end().chars().next_back(),
            ];
            let [before, after] =
                edges.map(|edge| edge.map_or("", |edge| word_end_pattern(edge, plain.is_ascii())));
            let before = before.replace('$', "^");
            parts.push(format!("{before}{}{after}", words.join(r"\s+")));
        }
        if let Some(pattern) = &self.pattern {
            if let Some((written, read)) = pattern.chars().find_map(folded_letter) {
                return mistake(format!(
                    "its pattern never matches {written:?}: write {read:?}, as in the text without accents and disguises"
                ));
            }
            parts.push(format!("(?i:{pattern})"));
        }
        let pattern = parts.join("|");
        match regex::Regex::new(&pattern) {
            _ if pattern.is_empty() => mistake("it must have `phrases` or a `pattern`".to_owned()),
            Ok(regex) if regex.is_match("") => mistake(
                "its `pattern` matches an empty text, and so every text: require a character"
                    .to_owned(),
            ),
            Ok(_) => Ok(pattern),
            Err(e) => mistake(e.to_string()),
        }
    }
}

/// Returns a character of a pattern that normalized text doesn't contain, and what it contains
/// instead. `None` for all others; case doesn't count.
pub(super) fn folded_letter(written: char) -> Option<(char, String)> {
    let lower: String = written.to_lowercase().collect();
    let read = normalize(&lower).text;
    (!written.is_ascii() && read != lower).then_some((written, read))
}

/// Returns the pattern for the end of a word whose last character is `edge`: the text's end, or a
/// character that is neither letter nor digit. `is_ascii` tells that the whole phrase is ASCII, so
/// that only ASCII letters and digits continue its words. Scripts that write words without spaces
/// have no such end.
fn word_end_pattern(edge: char, is_ascii: bool) -> &'static str {
    match edge {
        // Normalized text has no capitals, and this class is far smaller than the Unicode one.
        _ if is_ascii => "(?:$|[^a-z0-9])",
        '\u{0e00}'..='\u{0eff}'
        | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' => "",
        _ => r"(?:$|[^\p{L}\p{N}])",
    }
}
