//! Guardrail rules: chains of concepts, and patterns that legitimate text doesn't contain.
//! `rules.toml` has the built-in rules and explains its format, `words.toml` their words; operators
//! add [`CustomRule`]s.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::RuleError;
use super::concept_words::{
    ConceptId, FormConcepts, SENTENCE_END_WORDS, SHORT_LINE_WORDS, TaggedWord, TaggedWords,
    WordHashes, WordIndex, char_len, word_char_len,
};
use super::custom::{CUSTOM_RULES_MAX, CustomRule, folded_letter};
use super::disguises::JOINED_CHARS_MIN;
use super::patterns::{OriginWeight, PatternRule, Patterns};

/// Mistake of a rule with the id of another.
const SAME_ID: &str = "two rules have this id, which the audit log couldn't tell apart: rename one";

const BUILT_IN_RULES: &str = concat!(include_str!("rules.toml"), include_str!("words.toml"));

/// Compiled rules of a guardrail: chains of concepts, and patterns.
pub struct RuleSet {
    words: WordIndex,
    pub(super) chain_rules: Vec<ChainRule>,
    /// Steps of chain rules that a concept matches, by concept; for each rule, later steps come
    /// first.
    pub(super) steps_of: Vec<Vec<ChainStep>>,
    pub(super) steps: usize,
    pub(super) reports: ReportConcepts,
    /// Compounds by their second concept.
    compounds_of: Vec<Vec<CompoundConcept>>,
    forms: FormConcepts,
    pub(super) patterns: Patterns,
}

/// Concepts by which reports of attacks are told from attacks.
pub(super) struct ReportConcepts {
    /// Words of reports.
    pub report: ConceptId,
    /// First words of chains that are no reports.
    pub unless_first: Vec<ConceptId>,
    /// First words of chains that may be orders.
    pub order: Vec<ConceptId>,
    /// Words of admonitions, which stand before what one must not do.
    pub admonition: Vec<ConceptId>,
}

/// Rule that matches words of given concepts in sequence, each close to the previous one.
pub(super) struct ChainRule {
    pub id: String,
    pub weight: OriginWeight,
    pub unless_before: Vec<ConceptId>,
    pub unless_inside: Vec<ConceptId>,
    pub unless_behind: Vec<ConceptId>,
    /// Whether the rule counts less in a report of an attack, which may quote it. Chains that give
    /// orders may not be quoted.
    pub is_quotable: bool,
}

/// Step of a [`ChainRule`].
#[derive(Clone, Copy)]
pub(super) struct ChainStep {
    /// Index of the rule.
    pub rule: usize,
    /// Index of the step, counted over the steps of all rules. The previous step of the rule is one
    /// less.
    pub step: usize,
    /// Maximum distance, in words, from the previous step; 0 for the first step.
    pub within: u32,
    /// Whether the chain is complete with this step.
    pub is_last: bool,
}

/// Concept that two neighbouring words with given concepts form together, or one word with both.
struct CompoundConcept {
    concept: ConceptId,
    first: ConceptId,
    first_not: Vec<ConceptId>,
    second_not: Vec<ConceptId>,
    /// Maximum distance of the words; 0 if both concepts are of one word.
    within: u32,
}

/// Contents of the file `rules.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    rules: Vec<ChainRuleEntry>,
    signs: Vec<PatternRuleEntry>,
    forms: WordForms,
    reports: ReportSettings,
    compounds: Vec<CompoundEntry>,
    concepts: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainRuleEntry {
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
struct PatternRuleEntry {
    id: String,
    weight: u32,
    outside: Option<u32>,
    pattern: String,
    near: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WordForms {
    address: String,
    underscore: String,
    #[serde(default)]
    sentence: String,
    #[serde(default)]
    clause: String,
    #[serde(default)]
    colon: String,
    #[serde(default)]
    quote: String,
}

impl WordForms {
    /// Returns whether a word gets the concept `name` by its form.
    fn has(&self, name: &str) -> bool {
        let Self {
            address,
            underscore,
            sentence,
            clause,
            colon,
            quote,
        } = self;
        [address, underscore, sentence, clause, colon, quote]
            .iter()
            .any(|form| form.split('|').any(|concept| concept == name))
    }

    fn resolve(&self, names: &ConceptNames<'_>) -> Result<FormConcepts, RuleError> {
        let of = |form: &str| names.resolve_all("forms", form);
        Ok(FormConcepts {
            address: of(&self.address)?,
            underscore: of(&self.underscore)?,
            sentence: of(&self.sentence)?,
            clause: of(&self.clause)?,
            colon: of(&self.colon)?,
            quote: of(&self.quote)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportSettings {
    concept: String,
    #[serde(default)]
    unless_first: String,
    #[serde(default)]
    order: String,
    #[serde(default)]
    admonition: String,
    families: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompoundEntry {
    concept: String,
    first: String,
    #[serde(default)]
    first_not: String,
    second: String,
    #[serde(default)]
    second_not: String,
    within: u32,
}

/// Indexes of concepts, by the concept's name.
struct ConceptNames<'a>(BTreeMap<&'a str, ConceptId>);

impl ConceptNames<'_> {
    fn resolve(&self, id: &str, name: &str) -> Result<ConceptId, RuleError> {
        let why = || format!("`{name}` is no concept: add it to `concepts`");
        self.0.get(name).copied().ok_or_else(|| RuleError {
            id: id.to_owned(),
            why: why(),
        })
    }

    /// Returns the concepts named in `a|b`; none for an empty text.
    fn resolve_all(&self, id: &str, names: &str) -> Result<Vec<ConceptId>, RuleError> {
        names
            .split('|')
            .filter(|name| !name.is_empty())
            .map(|name| self.resolve(id, name))
            .collect()
    }
}

fn mistake(id: &str, why: &str) -> RuleError {
    RuleError {
        id: id.to_owned(),
        why: why.to_owned(),
    }
}

/// Returns whether a word of a concept can match normalized text.
fn can_match(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    word.chars().all(is_plain)
}

static RULES: LazyLock<Result<Arc<RuleSet>, RuleError>> =
    LazyLock::new(|| RuleSet::compile(BUILT_IN_RULES, &[]).map(Arc::new));

impl RuleSet {
    /// Returns the built-in rules.
    ///
    /// # Errors
    /// [`RuleError`]; a test rules this out.
    pub fn built_in() -> Result<Arc<Self>, RuleError> {
        RULES.clone()
    }

    /// Returns the built-in rules with an operator's custom rules.
    ///
    /// # Errors
    /// [`RuleError`] naming the first rule that can't be used.
    pub fn with_custom(own: &[CustomRule]) -> Result<Arc<Self>, RuleError> {
        if own.is_empty() {
            Self::built_in()
        } else {
            Self::compile(BUILT_IN_RULES, own).map(Arc::new)
        }
    }

    fn compile(text: &str, own: &[CustomRule]) -> Result<Self, RuleError> {
        let written: RulesFile =
            toml::from_str(text).map_err(|e| mistake("rules.toml", &e.to_string()))?;
        let RulesFile {
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
            .zip(0..=ConceptId::MAX)
            .collect::<BTreeMap<_, _>>();
        if names.len() < concepts.len() {
            let why = format!("there are more than {} concepts", ConceptId::MAX);
            return Err(mistake("concepts", &why));
        }
        let names = ConceptNames(names);
        let mut words = WordIndex::default();
        for (name, list) in &concepts {
            let concept = names.resolve(name, name)?;
            for word in list.split_ascii_whitespace() {
                if !can_match(word) {
                    let why = "never matches: write lower-case ASCII letters and digits";
                    return Err(mistake(name, &format!("the word `{word}` {why}")));
                }
                words.add(word, concept);
            }
            let is_made =
                forms.has(name) || compounds.iter().any(|compound| compound.concept == *name);
            if list.trim().is_empty() && !is_made {
                return Err(mistake(
                    name,
                    "it never matches: give the concept at least one word",
                ));
            }
        }
        let compound = |w: CompoundEntry| {
            let id = "compounds";
            let compound = CompoundConcept {
                concept: names.resolve(id, &w.concept)?,
                first: names.resolve(id, &w.first)?,
                first_not: names.resolve_all(id, &w.first_not)?,
                second_not: names.resolve_all(id, &w.second_not)?,
                within: w.within,
            };
            Ok((names.resolve(id, &w.second)?, compound))
        };
        let mut found = Self {
            words,
            chain_rules: Vec::with_capacity(chains.len()),
            steps_of: vec![Vec::new(); names.0.len()],
            steps: 0,
            reports: ReportConcepts {
                report: names.resolve("reports", &reports.concept)?,
                unless_first: names.resolve_all("reports", &reports.unless_first)?,
                order: names.resolve_all("reports", &reports.order)?,
                admonition: names.resolve_all("reports", &reports.admonition)?,
            },
            compounds_of: std::iter::repeat_with(Vec::new)
                .take(names.0.len())
                .collect(),
            forms: forms.resolve(&names)?,
            patterns: Patterns::compile(Vec::new())?,
        };
        for compound in compounds.into_iter().map(compound) {
            let (second, compound) = compound?;
            found.compounds_of[usize::from(second)].push(compound);
        }
        for chain in chains {
            found.add_chain_rule(chain, &names, &reports.families)?;
        }
        found.patterns = Patterns::compile(found.pattern_rules(signs, own)?)?;
        Ok(found)
    }

    fn add_chain_rule(
        &mut self,
        written: ChainRuleEntry,
        names: &ConceptNames<'_>,
        quotable: &[String],
    ) -> Result<(), RuleError> {
        let id = written.id.as_str();
        let mistake = |why: &str| mistake(id, why);
        let family = id
            .split_once('.')
            .ok_or_else(|| mistake("its id must be FAMILY.CASE, for example `override.prior`"))?
            .0;
        let mut within = vec![0];
        let mut steps = Vec::new();
        for (n, part) in written.chain.split_ascii_whitespace().enumerate() {
            match n % 2 {
                0 => steps.push(names.resolve_all(id, part)?),
                _ => within.push(
                    part.parse()
                        .map_err(|_| mistake("each second part of its chain must be a number of words: CONCEPT WORDS CONCEPT …"))?,
                ),
            }
        }
        if steps.iter().any(Vec::is_empty) || within.iter().skip(1).any(|words| *words == 0) {
            return Err(mistake(
                "it never matches: each step must name a concept, and each distance be 1 or more",
            ));
        }
        let weight = OriginWeight::new(written.weight, written.outside);
        if steps.len() < 2 || steps.len() != within.len() || weight.for_origin(false) == 0 {
            return Err(mistake(
                "it must have a weight of 1 or more, and a chain of two concepts or more that ends with a concept",
            ));
        }
        for (step, concepts) in steps.iter().enumerate().rev() {
            concepts.iter().for_each(|concept| {
                self.steps_of[usize::from(*concept)].push(ChainStep {
                    rule: self.chain_rules.len(),
                    step: self.steps + step,
                    within: within[step],
                    is_last: step + 1 == within.len(),
                })
            });
        }
        let rule = ChainRule {
            weight,
            unless_before: names.resolve_all(id, &written.unless_before)?,
            unless_inside: names.resolve_all(id, &written.unless_inside)?,
            unless_behind: names.resolve_all(id, &written.unless_behind)?,
            is_quotable: quotable.iter().any(|of| of == family),
            id: written.id,
        };
        self.steps += steps.len();
        self.chain_rules.push(rule);
        Ok(())
    }

    fn pattern_rules(
        &self,
        signs: Vec<PatternRuleEntry>,
        own: &[CustomRule],
    ) -> Result<Vec<PatternRule>, RuleError> {
        if own.len() > CUSTOM_RULES_MAX {
            let why = format!(
                "{} rules are too many (at most {CUSTOM_RULES_MAX})",
                own.len()
            );
            return Err(mistake("rules", &why));
        }
        let mut all = Vec::with_capacity(signs.len() + own.len());
        // Several chains may be cases of one rule; a sign has its id alone.
        let chains = self.chain_rules.iter().map(|rule| rule.id.clone());
        let mut ids: HashSet<String> = chains.collect();
        for PatternRuleEntry {
            id,
            weight,
            outside,
            pattern,
            near,
        } in signs
        {
            let weight = OriginWeight::new(weight, outside);
            if weight.for_origin(false) == 0 {
                return Err(mistake(&id, "its weight must be 1 or more"));
            }
            let literals: Vec<String> = near.iter().map(|literal| fold_scripts(literal)).collect();
            if literals.is_empty() || literals.iter().any(String::is_empty) {
                let why = "`near` must name texts of which each match contains one";
                return Err(mistake(&id, why));
            }
            let pattern = fold_scripts(&pattern);
            if let Some((written, read)) = unmatched_letter(&pattern) {
                let why = format!("its pattern never matches {written:?}: write {read:?}");
                return Err(mistake(&id, &why));
            }
            if !ids.insert(id.clone()) {
                return Err(mistake(&id, SAME_ID));
            }
            all.push(PatternRule {
                id,
                weight,
                pattern,
                literals,
            });
        }
        for rule in own {
            let pattern = rule.to_pattern()?;
            if !ids.insert(rule.id.clone()) {
                return Err(mistake(&rule.id, SAME_ID));
            }
            all.push(PatternRule {
                id: rule.id.clone(),
                weight: OriginWeight::new(rule.weight, None),
                pattern,
                literals: Vec::new(),
            });
        }
        Ok(all)
    }

    /// Returns the words of a normalized text that have concepts, in order.
    pub(super) fn tag_words(&self, plain: &str) -> TaggedWords {
        let bytes = plain.as_bytes();
        let mut marks = TaggedWords::with_capacity(plain.len());
        let (mut place, mut end, mut line_start) = (0, 0, 0);
        while let Some((word, hashes)) = next_word(plain, end) {
            let gap = &bytes[end..word.start];
            let (mut sentence, mut breaks) = (false, 0);
            if gap != b" " {
                breaks = gap.iter().filter(|b| **b == b'\n').count();
                // A short line without punctuation may be a piece of a sentence.
                let is_piece = breaks == 1
                    && place - line_start <= SHORT_LINE_WORDS
                    && gap.iter().all(u8::is_ascii_whitespace);
                sentence = breaks > 0 && !is_piece
                    || gap.iter().any(|b| matches!(b, b'!' | b'?'))
                    || gap.first() == Some(&b'.') && gap.len() > 1;
            }
            place += 1 + if sentence { SENTENCE_END_WORDS } else { 0 };
            if breaks > 0 {
                line_start = place - 1;
            }
            let start = word.start;
            end = word.end;
            let from = marks.concepts.len();
            self.words.collect_concepts(&hashes, &mut marks.concepts);
            self.words.collect_turned(word, &hashes, &mut marks.turned);
            if gap.ends_with(b"@") || gap.starts_with(b"://") {
                marks.concepts.extend_from_slice(&self.forms.address);
            }
            if gap == b"_" {
                marks.concepts.extend_from_slice(&self.forms.underscore);
            }
            if marks.concepts.len() > from || gap.first() == Some(&b':') {
                if gap != b" " || place == 1 {
                    let begins = sentence || breaks > 0 || place == 1;
                    self.forms.collect(gap, begins, &mut marks.concepts);
                }
                self.add_compounds(&mut marks, place, from);
                marks.words.push(TaggedWord {
                    word_position: place,
                    at: start,
                    from,
                    to: marks.concepts.len(),
                });
            }
        }
        marks
    }

    /// Returns a text with a space between the words that were written together. Only words of
    /// [`JOINED_CHARS_MIN`] letters or more are cut, at the words of concepts.
    pub(super) fn split_words(&self, plain: &str) -> String {
        let letters = |c: char| !c.is_ascii_alphabetic();
        let mut out = String::with_capacity(plain.len());
        for word in plain.split_inclusive(letters) {
            let end = word.trim_end_matches(letters).len();
            if end < JOINED_CHARS_MIN {
                out.push_str(word);
                continue;
            }
            let mut at = 0;
            while at < end {
                let known = self.words.longest_prefix(&word.as_bytes()[at..end]);
                if known > 0 {
                    out.push(' ');
                    out.push_str(&word[at..at + known]);
                    out.push(' ');
                } else {
                    out.push_str(&word[at..=at]);
                }
                at += known.max(1);
            }
            out.push_str(&word[end..]);
        }
        out
    }

    /// Adds the compound concepts of the current word and those before it. `place` is the current
    /// word's position, and `from` the index of its first concept.
    fn add_compounds(&self, marks: &mut TaggedWords, place: u32, from: usize) {
        let has = |concepts: &[ConceptId], one: ConceptId, none: &[ConceptId]| {
            concepts.contains(&one) && !none.iter().any(|concept| concepts.contains(concept))
        };
        let mut at = from;
        // A compound may be the second concept of another one.
        while let Some(second) = marks.concepts.get(at).copied() {
            at += 1;
            for compound in &self.compounds_of[usize::from(second)] {
                let own = &marks.concepts[from..];
                if own.contains(&compound.concept) || !has(own, second, &compound.second_not) {
                    continue;
                }
                let is_first =
                    |concepts: &[ConceptId]| has(concepts, compound.first, &compound.first_not);
                let is_near = |word: &&TaggedWord| place - word.word_position <= compound.within;
                let found = match compound.within {
                    0 => is_first(own),
                    _ => {
                        let mut before = marks.words.iter().rev().take_while(is_near);
                        before.any(|word| is_first(marks.concepts_of(word)))
                    }
                };
                if found {
                    marks.concepts.push(compound.concept);
                }
            }
        }
    }
}

/// Returns the next word of a normalized text from the byte `at`, with its hashes.
fn next_word(plain: &str, mut at: usize) -> Option<(Range<usize>, WordHashes)> {
    let bytes = plain.as_bytes();
    while let byte = *bytes.get(at)?
        && !byte.is_ascii_alphanumeric()
    {
        if !byte.is_ascii() && word_char_len(plain, at) > 0 {
            break;
        }
        at += char_len(byte);
    }
    let (start, mut hashes) = (at, WordHashes::default());
    while let Some(byte) = bytes.get(at) {
        if byte.is_ascii_alphanumeric() {
            hashes.add(*byte);
            at += 1;
            continue;
        }
        let length = match byte.is_ascii() {
            true => 0,
            false => word_char_len(plain, at),
        };
        if length == 0 {
            break;
        }
        let letter = &bytes[at..at + length];
        letter.iter().for_each(|byte| hashes.add(*byte));
        at += length;
    }
    Some((start..at, hashes))
}

/// Returns a pattern with the letters of other scripts as normalized text has them. Letters that
/// have another form in lower case or without accents stay.
fn fold_scripts(pattern: &str) -> String {
    let fold = |c: char| match c.is_alphabetic() && !is_latin(c) {
        true => folded_letter(c).map_or_else(|| c.into(), |(_, read)| read),
        false => c.into(),
    };
    pattern.chars().map(fold).collect()
}

/// Returns whether a letter is Latin, with or without accents.
fn is_latin(c: char) -> bool {
    c <= '\u{24f}' || matches!(c, '\u{1e00}'..='\u{1eff}')
}

/// Returns a letter of a sign's pattern that normalized text doesn't contain, and what it contains
/// instead. Letters of escapes such as `\S` and `\p{L}` are none.
fn unmatched_letter(pattern: &str) -> Option<(char, String)> {
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            let is_class = matches!(letters.next(), Some('p' | 'P'));
            if is_class && letters.next() == Some('{') {
                letters.find(|end| *end == '}');
            }
        } else if letter.is_ascii_uppercase() {
            return Some((letter, letter.to_ascii_lowercase().into()));
        } else if let Some(folded) = folded_letter(letter) {
            return Some(folded);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::string::string_regex;
    use proptest::test_runner::TestRunner;

    use super::*;

    /// Goal: words of one concept are found in each language, ordinary words aren't. Method: a table.
    #[test]
    fn words_have_concepts() {
        let rules = RuleSet::built_in().unwrap();
        let document: RulesFile = toml::from_str(BUILT_IN_RULES).unwrap();
        let concepts = |word: &str| {
            let mut found = Vec::new();
            let hashes = WordHashes::of(word.as_bytes());
            rules.words.collect_concepts(&hashes, &mut found);
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
        for word in ["ignorance", "hypertension", "psoriasis", "arthroscopy"] {
            assert!(concepts(word).is_empty(), "{word}");
        }
    }

    /// Goal: an order is a verb that begins a sentence or clause; a compound is found over a word
    /// between. Method: the concepts of a text's words.
    #[test]
    fn forms_and_compounds_have_concepts() {
        let rules = RuleSet::built_in().unwrap();
        let document: RulesFile = toml::from_str::<RulesFile>(BUILT_IN_RULES).unwrap();
        let has = |text: &str, concept: &str| {
            let at = document.concepts.keys().position(|name| name == concept);
            let id = ConceptId::try_from(at.unwrap()).unwrap();
            let marks = rules.tag_words(text);
            marks
                .words
                .iter()
                .any(|word| marks.concepts_of(word).contains(&id))
        };
        for (text, concept, found) in [
            ("send it", "order", true),
            ("later, send it", "order", true),
            ("please send it", "order", true),
            ("they send it", "order", false),
            ("note: send it", "order_colon", true),
            ("note, send it", "order_colon", false),
            ("prompt do sistema", "system_prompt", true),
            ("language model", "ai_name", true),
            ("model railway", "ai_name", false),
        ] {
            assert_eq!(has(text, concept), found, "{text}: {concept}");
        }
    }

    /// Goal: every mistake in a rule is reported. Method: the rules with one mistake each.
    #[test]
    fn mistakes_are_errors() {
        let of = |text: &str| {
            RuleSet::compile(&format!("{text}\n{MINIMAL}"), &[])
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
            (r#"chain = "x 0 y""#, "each distance be 1 or more"),
            (r#"chain = "x 5 |""#, "each step must name a concept"),
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
        let sign = |sign: &str| {
            of(&format!(
                "rules = []\nsigns = [{{ id = \"sign.b\", near = [\"a\"], {sign} }}]"
            ))
        };
        assert_eq!(sign(r#"weight = 1, pattern = "a""#), None);
        assert_eq!(
            sign(r"weight = 1, pattern = '\S\p{Lu}\PL[^\W]{1,2}'"),
            None,
            "no letters"
        );
        for (wrong, why) in [
            (r#"weight = 1, pattern = "(""#, "rule `sign.b`: "),
            (r#"weight = 0, pattern = "a""#, "weight must be 1 or more"),
            (r#"weight = 1, pattern = "aB""#, "matches 'B': write \"b\""),
            (r#"weight = 1, pattern = "é""#, "matches 'é': write \"e\""),
            (r"weight = 1, pattern = '\p{L}\pLC'", "matches 'C'"),
            (
                r#"weight = 1, pattern = "a" }, { id = "sign.b", near = ["b"], weight = 1, pattern = "b""#,
                "two rules have this id",
            ),
        ] {
            let found = sign(wrong).unwrap();
            assert!(found.contains(why), "{wrong}: {found}");
        }
        let text = MINIMAL.replace("y = \"b\"", "y = \" \"");
        let found = RuleSet::compile(&format!("signs = []\nrules = []\n{text}"), &[]);
        let found = found.err().unwrap().to_string();
        assert!(found.contains("rule `y`: it never matches"), "{found}");
        for word in ["esqueçam", "Ignore", "system-prompt", "sys_tem", "ign*re"] {
            let text = MINIMAL.replace("\"b\"", &format!("\"{word}\""));
            let found = RuleSet::compile(&format!("signs = []\nrules = []\n{text}"), &[])
                .err()
                .unwrap()
                .to_string();
            assert!(found.contains("never matches"), "{word}: {found}");
        }
    }

    /// Goal: each match of a sign contains one of its literals. Method: matches made from the patterns
    /// without their anchors.
    #[test]
    fn signs_contain_their_literals() {
        let mut runner = TestRunner::deterministic();
        let document: RulesFile = toml::from_str(BUILT_IN_RULES).unwrap();
        for sign in document.signs {
            let anchors = ["^|", "$|", "|$", r"(?-u:\b)"];
            let pattern = anchors.iter().fold(sign.pattern, |p, a| p.replace(a, ""));
            let matches = string_regex(&pattern).unwrap();
            for _ in 0..256 {
                let text = matches.new_tree(&mut runner).unwrap().current();
                let has_literal = sign.near.iter().any(|literal| text.contains(literal));
                assert!(has_literal, "{}: {text}", sign.id);
            }
        }
    }

    const MINIMAL: &str = "[forms]\naddress = \"x\"\nunderscore = \"x\"\n[reports]\nconcept = \"x\"\nfamilies = []\n[concepts]\n\
        x = \"a\"\ny = \"b\"\n[[compounds]]\nconcept = \"x\"\nfirst = \"x\"\nsecond = \"y\"\nwithin = 1";
}
