//! Patterns that legitimate text doesn't match. A built-in one is tried only near one of its
//! literals, which a single pass over the text finds.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::{Regex, RegexSet};

use super::RuleError;
use super::windows::windows;

/// Bytes before and after a literal that its pattern is tried on. No pattern reaches further: the
/// longest match has about 240 characters of up to four bytes.
const MARGIN_BYTES: usize = 1024;

/// Weight of a rule: one value for texts of the user, one for texts of other origins.
pub(super) struct OriginWeight {
    users: u32,
    outside: u32,
}

impl OriginWeight {
    pub(super) fn new(users: u32, outside: Option<u32>) -> Self {
        Self {
            users,
            outside: outside.unwrap_or_default().max(users),
        }
    }

    pub(super) fn for_origin(&self, is_users: bool) -> u32 {
        if is_users { self.users } else { self.outside }
    }
}

/// Rule with a regular expression that legitimate text doesn't match.
pub(super) struct PatternRule {
    pub id: String,
    pub weight: OriginWeight,
    /// Regular expression.
    pub pattern: String,
    /// Texts of which each match contains one. Without any, the pattern is tried on the whole text.
    pub literals: Vec<String>,
}

/// Compiled patterns.
pub(super) struct Patterns {
    near: Vec<(PatternRule, Regex)>,
    literals: AhoCorasick,
    /// Index of the pattern in `near` of each literal.
    pattern_of: Vec<usize>,
    everywhere: Vec<PatternRule>,
    everywhere_set: RegexSet,
}

impl Patterns {
    /// Compiles the rules.
    ///
    /// # Errors
    /// [`RuleError`] with the first pattern that is invalid or too large.
    pub(super) fn compile(rules: Vec<PatternRule>) -> Result<Self, RuleError> {
        let mistake = |id: &str, why: String| RuleError {
            id: id.to_owned(),
            why,
        };
        let (near, everywhere): (Vec<_>, Vec<_>) = rules
            .into_iter()
            .partition(|rule| !rule.literals.is_empty());
        let compiled = near
            .into_iter()
            .map(|rule| match Regex::new(&rule.pattern) {
                Ok(regex) => Ok((rule, regex)),
                Err(error) => Err(mistake(&rule.id, error.to_string())),
            });
        let near = compiled.collect::<Result<Vec<_>, _>>()?;
        let set = RegexSet::new(everywhere.iter().map(|rule| &rule.pattern)).map_err(|error| {
            let mut each = everywhere.iter();
            let wrong = each.find_map(|rule| Some((rule, Regex::new(&rule.pattern).err()?)));
            match wrong {
                Some((rule, error)) => mistake(&rule.id, error.to_string()),
                None => mistake("rules", format!("{error}: use fewer rules")),
            }
        })?;
        let literals = near
            .iter()
            .enumerate()
            .flat_map(|(n, (rule, _))| rule.literals.iter().map(move |literal| (n, literal)));
        let (pattern_of, literals): (Vec<_>, Vec<_>) = literals.unzip();
        let literals = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .build(literals)
            .map_err(|error| mistake("signs", format!("{error}: use fewer texts in `near`")))?;
        Ok(Self {
            near,
            literals,
            pattern_of,
            everywhere,
            everywhere_set: set,
        })
    }

    /// Calls `found` with each rule that matches a normalized text, and a byte near the match.
    pub(super) fn find<'a>(&'a self, plain: &str, mut found: impl FnMut(&'a PatternRule, usize)) {
        let mut places: Vec<Vec<usize>> = Vec::new();
        for hit in self.literals.find_overlapping_iter(plain) {
            places.resize_with(self.near.len(), Vec::new);
            let pattern = self.pattern_of[hit.pattern().as_usize()];
            places[pattern].push(hit.start());
        }
        for ((rule, regex), places) in self.near.iter().zip(&mut places) {
            places.sort_unstable();
            for window in windows(plain, places.iter().copied(), MARGIN_BYTES) {
                if let Some(hit) = regex.find(&plain[window.clone()]) {
                    found(rule, window.start + hit.start());
                }
            }
        }
        if !self.everywhere.is_empty() {
            let matches = self.everywhere_set.matches(plain);
            matches.iter().for_each(|n| found(&self.everywhere[n], 0));
        }
    }
}
