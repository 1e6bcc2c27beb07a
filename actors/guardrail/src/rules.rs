//! The rules: concepts that follow each other closely, and signs that no honest text carries. `rules.toml` has those of
//! every guardrail and says what they mean; an operator adds [`OwnRule`]s.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use regex::RegexSet;
use serde::Deserialize;

use super::normalize::plain;

/// Score at which a text is blocked.
pub const SCORE_BLOCKED: u32 = 100;
/// Maximum bytes of the phrases and the pattern of one [`OwnRule`] together. A longer rule is an error at start. Fixed.
pub const OWN_RULE_BYTES_MAX: usize = 16 * 1024;
/// Maximum rules that an operator adds. One more is an error at start. Fixed.
pub const OWN_RULES_MAX: usize = 1_000;

const BUILT_IN: &str = include_str!("rules.toml");

/// A rule that an operator adds to those of every guardrail. It holds for texts of every origin.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnRule {
    /// Name in the audit: letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// Score that the rule adds to a text, from 1; [`SCORE_BLOCKED`] blocks it.
    #[serde(default = "blocking")]
    pub weight: u32,
    /// Phrases, each as whole words. Case, accents, disguises and the width of spaces make no difference.
    #[serde(default)]
    pub phrases: Vec<String>,
    /// Regular expression (syntax of the crate `regex`) over the text in lower case, without accents and disguises.
    #[serde(default)]
    pub pattern: Option<String>,
}

const fn blocking() -> u32 {
    SCORE_BLOCKED
}

/// A rule that can't be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("guardrail rule `{id}`: {why}")]
pub struct RuleError {
    /// The rule's id; the name of a concept or a section where no rule is wrong.
    pub id: String,
    /// The mistake, with the remedy.
    pub why: String,
}

/// Number of a concept in [`Rules`].
pub(super) type Concept = u16;

/// Rules ready to screen with.
pub struct Rules {
    words: Words,
    pub(super) rules: Vec<Rule>,
    /// For each concept the steps of rules that it is: (rule, step), of each rule the later steps first.
    pub(super) steps_of: Vec<Vec<(usize, usize)>>,
    /// Number of steps of all rules.
    pub(super) steps: usize,
    pub(super) reported: Concept,
    compounds: Vec<Compound>,
    /// Concept of a word after `@` or `://`.
    address: Concept,
    /// Concept of a word after `_`.
    underscore: Concept,
    pub(super) signs: Vec<Sign>,
    pub(super) patterns: RegexSet,
}

/// A chain of concepts.
pub(super) struct Rule {
    pub id: String,
    pub weight: Weight,
    /// Number of its first step among the steps of all rules.
    pub first_step: usize,
    /// For each step the words within which it must follow the one before.
    pub within: Vec<u32>,
    pub unless_before: Vec<Concept>,
    pub unless_inside: Vec<Concept>,
    pub unless_behind: Vec<Concept>,
    /// A report of an attack may quote it; an order to act is one wherever it stands.
    pub is_quotable: bool,
}

/// A pattern that no honest text has.
pub(super) struct Sign {
    pub id: String,
    pub weight: Weight,
}

/// Weight in texts of the user, and in those from outside.
pub(super) struct Weight {
    users: u32,
    outside: u32,
}

impl Weight {
    fn new(users: u32, outside: Option<u32>) -> Self {
        Self {
            users,
            outside: outside.unwrap_or_default().max(users),
        }
    }

    pub(super) fn of(&self, is_users: bool) -> u32 {
        if is_users { self.users } else { self.outside }
    }
}

/// Two words that are one concept together.
struct Compound {
    concept: Concept,
    first: Concept,
    first_not: Vec<Concept>,
    second: Concept,
    second_not: Vec<Concept>,
    within: u32,
}

/// `rules.toml` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    rules: Vec<WrittenRule>,
    signs: Vec<WrittenSign>,
    forms: Forms,
    reports: Reports,
    compounds: Vec<WrittenCompound>,
    concepts: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    id: String,
    weight: u32,
    outside: Option<u32>,
    chain: String,
    #[serde(default)]
    unless_before: String,
    #[serde(default)]
    unless_inside: String,
    #[serde(default)]
    unless_behind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSign {
    id: String,
    weight: u32,
    outside: Option<u32>,
    pattern: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Forms {
    address: String,
    underscore: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reports {
    concept: String,
    families: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCompound {
    concept: String,
    first: String,
    #[serde(default)]
    first_not: String,
    second: String,
    #[serde(default)]
    second_not: String,
    within: u32,
}

/// Concepts by name.
struct Names<'a>(BTreeMap<&'a str, Concept>);

impl Names<'_> {
    fn one(&self, id: &str, name: &str) -> Result<Concept, RuleError> {
        let why = || format!("`{name}` is no concept: add it to `concepts`");
        self.0.get(name).copied().ok_or_else(|| RuleError {
            id: id.to_owned(),
            why: why(),
        })
    }

    /// The concepts of `a|b`; none of an empty text.
    fn any(&self, id: &str, names: &str) -> Result<Vec<Concept>, RuleError> {
        names
            .split('|')
            .filter(|name| !name.is_empty())
            .map(|name| self.one(id, name))
            .collect()
    }
}

static RULES: LazyLock<Result<Arc<Rules>, RuleError>> =
    LazyLock::new(|| Rules::compile(BUILT_IN, &[]).map(Arc::new));

impl Rules {
    /// The rules of every guardrail.
    ///
    /// # Errors
    /// [`RuleError`]; a test sees to it that there is none.
    pub fn built_in() -> Result<Arc<Self>, RuleError> {
        RULES.clone()
    }

    /// The rules of every guardrail, and an operator's.
    ///
    /// # Errors
    /// [`RuleError`] names the first rule that can't be used.
    pub fn with(own: &[OwnRule]) -> Result<Arc<Self>, RuleError> {
        if own.is_empty() {
            Self::built_in()
        } else {
            Self::compile(BUILT_IN, own).map(Arc::new)
        }
    }

    fn compile(text: &str, own: &[OwnRule]) -> Result<Self, RuleError> {
        let error = |id: &str, why: String| RuleError {
            id: id.to_owned(),
            why,
        };
        let written: Document =
            toml::from_str(text).map_err(|e| error("rules.toml", e.to_string()))?;
        let Document {
            rules: chains,
            signs,
            forms,
            reports,
            compounds,
            concepts,
        } = written;
        let names = concepts
            .keys()
            .map(String::as_str)
            .zip(0..=Concept::MAX)
            .collect::<BTreeMap<_, _>>();
        if names.len() < concepts.len() {
            return Err(error(
                "concepts",
                format!("there are more than {}", Concept::MAX),
            ));
        }
        let names = Names(names);
        let mut words = Words::default();
        for (name, list) in &concepts {
            let concept = names.one(name, name)?;
            list.split_ascii_whitespace()
                .for_each(|word| words.add(word, concept));
        }
        let compound = |w: WrittenCompound| {
            let id = "compounds";
            Ok(Compound {
                concept: names.one(id, &w.concept)?,
                first: names.one(id, &w.first)?,
                first_not: names.any(id, &w.first_not)?,
                second: names.one(id, &w.second)?,
                second_not: names.any(id, &w.second_not)?,
                within: w.within,
            })
        };
        let mut found = Self {
            words,
            rules: Vec::with_capacity(chains.len()),
            steps_of: vec![Vec::new(); names.0.len()],
            steps: 0,
            reported: names.one("reports", &reports.concept)?,
            compounds: compounds
                .into_iter()
                .map(compound)
                .collect::<Result<_, _>>()?,
            address: names.one("forms", &forms.address)?,
            underscore: names.one("forms", &forms.underscore)?,
            signs: Vec::new(),
            patterns: RegexSet::empty(),
        };
        for chain in chains {
            found.add_rule(chain, &names, &reports.families)?;
        }
        found.add_signs(signs, own)?;
        Ok(found)
    }

    fn add_rule(
        &mut self,
        written: WrittenRule,
        names: &Names<'_>,
        quotable: &[String],
    ) -> Result<(), RuleError> {
        let id = written.id.as_str();
        let mistake = |why: &str| RuleError {
            id: id.to_owned(),
            why: why.to_owned(),
        };
        let family = id
            .split_once('.')
            .ok_or_else(|| mistake("its id must be FAMILY.CASE"))?
            .0;
        let mut within = vec![0];
        let mut steps = Vec::new();
        for (n, part) in written.chain.split_ascii_whitespace().enumerate() {
            match n % 2 {
                0 => steps.push(names.any(id, part)?),
                _ => within.push(
                    part.parse()
                        .map_err(|_| mistake("its chain must be CONCEPT WORDS CONCEPT …"))?,
                ),
            }
        }
        if steps.len() < 2 || steps.len() != within.len() || written.weight == 0 {
            return Err(mistake(
                "it must have a weight and a chain of two concepts or more",
            ));
        }
        for (step, concepts) in steps.iter().enumerate().rev() {
            concepts.iter().for_each(|concept| {
                self.steps_of[usize::from(*concept)].push((self.rules.len(), step))
            });
        }
        let rule = Rule {
            weight: Weight::new(written.weight, written.outside),
            first_step: self.steps,
            unless_before: names.any(id, &written.unless_before)?,
            unless_inside: names.any(id, &written.unless_inside)?,
            unless_behind: names.any(id, &written.unless_behind)?,
            is_quotable: quotable.iter().any(|of| of == family),
            id: written.id,
            within,
        };
        self.steps += rule.within.len();
        self.rules.push(rule);
        Ok(())
    }

    fn add_signs(&mut self, signs: Vec<WrittenSign>, own: &[OwnRule]) -> Result<(), RuleError> {
        if own.len() > OWN_RULES_MAX {
            let why = format!("{} rules are too many (at most {OWN_RULES_MAX})", own.len());
            return Err(RuleError {
                id: "rules".to_owned(),
                why,
            });
        }
        let mut patterns = Vec::new();
        for WrittenSign {
            id,
            weight,
            outside,
            pattern,
        } in signs
        {
            self.signs.push(Sign {
                id,
                weight: Weight::new(weight, outside),
            });
            patterns.push(pattern);
        }
        for rule in own {
            patterns.push(rule.checked()?);
            self.signs.push(Sign {
                id: rule.id.clone(),
                weight: Weight::new(rule.weight, None),
            });
        }
        let too_large = |e: regex::Error| RuleError {
            id: "rules".to_owned(),
            why: format!("{e}: use fewer rules"),
        };
        self.patterns = RegexSet::new(&patterns).map_err(too_large)?;
        Ok(())
    }

    /// The words of a plain text that have concepts, in order.
    pub(super) fn marks(&self, plain: &str) -> Marks {
        let bytes = plain.as_bytes();
        let mut marks = Marks::default();
        let (mut place, mut at, mut end) = (0, 0, 0);
        while at < bytes.len() {
            if !is_letter(bytes[at]) {
                at += 1;
                continue;
            }
            let start = at;
            while at < bytes.len() && is_letter(bytes[at]) {
                at += 1;
            }
            let gap = &bytes[end..start];
            let sentence = gap.iter().any(|b| matches!(b, b'!' | b'?' | b'\n'))
                || gap.first() == Some(&b'.') && gap.len() > 1;
            place += 1 + if sentence { SENTENCE_END_WORDS } else { 0 };
            end = at;
            let from = marks.concepts.len();
            self.words.find(&plain[start..at], &mut marks.concepts);
            if gap.ends_with(b"@") || gap.starts_with(b"://") {
                marks.concepts.push(self.address);
            }
            if gap == b"_" {
                marks.concepts.push(self.underscore);
            }
            if marks.concepts.len() > from {
                self.compose(&mut marks, place, from);
                marks.marks.push(Mark {
                    place,
                    from,
                    to: marks.concepts.len(),
                });
            }
        }
        marks
    }

    /// Adds the concepts that the last word and the one from `from` are together.
    fn compose(&self, marks: &mut Marks, place: u32, from: usize) {
        let Some(before) = marks.marks.last() else {
            return;
        };
        for compound in &self.compounds {
            let (first, second) = (marks.of(before), &marks.concepts[from..]);
            let has = |concepts: &[Concept], one: Concept, none: &[Concept]| {
                concepts.contains(&one) && !none.iter().any(|concept| concepts.contains(concept))
            };
            if place - before.place <= compound.within
                && has(first, compound.first, &compound.first_not)
                && has(second, compound.second, &compound.second_not)
            {
                marks.concepts.push(compound.concept);
            }
        }
    }
}

impl OwnRule {
    /// The pattern of the rule.
    fn checked(&self) -> Result<String, RuleError> {
        let mistake = |why: String| {
            Err(RuleError {
                id: self.id.clone(),
                why,
            })
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if self.id.is_empty() || !self.id.chars().all(is_name) {
            return mistake("its id must be letters, digits, `.`, `_` and `-`".to_owned());
        }
        if self.weight == 0 {
            return mistake("its weight must be 1 or more".to_owned());
        }
        let bytes = self
            .phrases
            .iter()
            .chain(&self.pattern)
            .map(String::len)
            .sum::<usize>();
        if bytes > OWN_RULE_BYTES_MAX {
            return mistake(format!(
                "{bytes} bytes are too many (at most {OWN_RULE_BYTES_MAX})"
            ));
        }
        let mut parts = Vec::new();
        for phrase in &self.phrases {
            let plain = plain(phrase).text;
            let words: Vec<String> = plain.split_whitespace().map(regex::escape).collect();
            if words.is_empty() {
                return mistake("one of its phrases is empty".to_owned());
            }
            let edges = [
                plain.trim_start().chars().next(),
                plain.trim_end().chars().next_back(),
            ];
            let [before, after] =
                edges.map(|edge| edge.map_or("", |edge| no_letter_beside(edge, plain.is_ascii())));
            let before = before.replace('$', "^");
            parts.push(format!("{before}{}{after}", words.join(r"\s+")));
        }
        parts.extend(self.pattern.iter().map(|pattern| format!("(?:{pattern})")));
        let pattern = parts.join("|");
        match regex::Regex::new(&pattern) {
            _ if pattern.is_empty() => mistake("it must have `phrases` or a `pattern`".to_owned()),
            Ok(regex) if regex.is_match("") => {
                mistake("its pattern matches an empty text".to_owned())
            }
            Ok(_) => Ok(pattern),
            Err(e) => mistake(e.to_string()),
        }
    }
}

/// Pattern of what may follow a word that ends with `edge`: nothing, or no letter and no digit. Scripts that write words without
/// spaces between them have no such end.
fn no_letter_beside(edge: char, is_ascii: bool) -> &'static str {
    match edge {
        // Plain text has no capitals. This class is far smaller than that of all scripts.
        _ if is_ascii => "(?:$|[^a-z0-9])",
        '\u{0e00}'..='\u{0eff}'
        | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' => "",
        _ => r"(?:$|[^\p{L}\p{N}])",
    }
}

/// Letters by which a word is looked up before it is compared.
const KEY_LETTERS: usize = 3;
const BUCKETS: usize = 1 << 12;

struct Entry {
    word: String,
    begins: bool,
    concepts: Vec<Concept>,
}

/// Words with their concepts, by a hash of their first letters.
struct Words(Vec<Vec<Entry>>);

impl Default for Words {
    fn default() -> Self {
        Self(std::iter::repeat_with(Vec::new).take(BUCKETS).collect())
    }
}

impl Words {
    /// Adds a word; one that ends in `*` stands for every word that begins so.
    fn add(&mut self, word: &str, concept: Concept) {
        let (word, begins) = word
            .strip_suffix('*')
            .map_or((word, false), |word| (word, true));
        let entries = &mut self.0[bucket(word)];
        match entries
            .iter_mut()
            .find(|entry| entry.word == word && entry.begins == begins)
        {
            Some(entry) => entry.concepts.push(concept),
            None => entries.push(Entry {
                word: word.to_owned(),
                begins,
                concepts: vec![concept],
            }),
        }
    }

    /// Adds the concepts of a plain word to `found`; most words have none.
    fn find(&self, word: &str, found: &mut Vec<Concept>) {
        for entry in &self.0[bucket(word)] {
            if entry.word == word || entry.begins && word.starts_with(&*entry.word) {
                found.extend_from_slice(&entry.concepts);
            }
        }
    }
}

/// Bucket of words with these first letters. Shorter words count as filled up.
fn bucket(word: &str) -> usize {
    let letters = word.as_bytes().iter().take(KEY_LETTERS);
    letters.fold(0x9e37, |hash: usize, letter| {
        (hash ^ usize::from(*letter)).wrapping_mul(0x0100_0193)
    }) >> 7
        & (BUCKETS - 1)
}

/// Words with concepts in a text, in order.
#[derive(Default)]
pub(super) struct Marks {
    pub marks: Vec<Mark>,
    concepts: Vec<Concept>,
}

impl Marks {
    pub(super) fn of(&self, mark: &Mark) -> &[Concept] {
        &self.concepts[mark.from..mark.to]
    }
}

/// A word with concepts, and its place in the text.
pub(super) struct Mark {
    /// In words; the end of a sentence counts as some words more.
    pub place: u32,
    from: usize,
    to: usize,
}

/// Words that the end of a sentence counts as: two sentences hang together less.
const SENTENCE_END_WORDS: u32 = 3;

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: words of one concept are found in each language, ordinary words aren't. Method: a table.
    #[test]
    fn words_have_concepts() {
        let rules = Rules::built_in().unwrap();
        let document: Document = toml::from_str(BUILT_IN).unwrap();
        let concepts = |word: &str| {
            let mut found = Vec::new();
            rules.words.find(word, &mut found);
            let names: Vec<&String> = document.concepts.keys().collect();
            found
                .into_iter()
                .map(|concept| names[usize::from(concept)].clone())
                .collect::<Vec<_>>()
        };
        for (word, concept) in [
            ("ignore", "override"),
            ("disregarding", "override"),
            ("esqueca", "override"),
            ("vergiss", "override"),
            ("anweisungen", "instruction"),
            ("istruzioni", "instruction"),
            ("passwort", "secret"),
        ] {
            assert!(concepts(word).contains(&concept.to_owned()), "{word}");
        }
        for word in ["ignorance", "hypertension", "psoriasis", "cardiology"] {
            assert!(concepts(word).is_empty(), "{word}");
        }
    }

    /// Goal: no rule is wrong in silence. Method: the rules with one mistake each.
    #[test]
    fn mistakes_are_errors() {
        let of = |text: &str| {
            Rules::compile(&format!("{text}\n{MINIMAL}"), &[])
                .err()
                .map(|e| e.to_string())
        };
        let rule = |rule: &str| {
            of(&format!(
                "signs = []\nrules = [{{ id = \"a.b\", weight = 100, {rule} }}]"
            ))
        };
        assert_eq!(
            rule(r#"chain = "x 5 y|x 3 x 2 y 2 x 9 y""#),
            None,
            "as long as it likes"
        );
        for (wrong, why) in [
            (r#"chain = "x 5 z""#, "`z` is no concept"),
            (r#"chain = "x y""#, "CONCEPT WORDS CONCEPT"),
            (r#"chain = "x""#, "two concepts or more"),
            (r#"chain = "x 5""#, "two concepts or more"),
            (r#"chain = "x 5 y", unless = "x""#, "unknown field `unless`"),
            (
                r#"chain = "x 5 y", unless_behind = "z""#,
                "`z` is no concept",
            ),
        ] {
            let found = rule(wrong).unwrap();
            assert!(found.contains(why), "{wrong}: {found}");
        }
    }

    const MINIMAL: &str = "[forms]\naddress = \"x\"\nunderscore = \"x\"\n[reports]\nconcept = \"x\"\nfamilies = []\n[concepts]\n\
        x = \"a\"\ny = \"b\"\n[[compounds]]\nconcept = \"x\"\nfirst = \"x\"\nsecond = \"y\"\nwithin = 1";
}
