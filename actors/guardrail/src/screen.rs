//! Screening of a text: matches each of its readings against the rules and scores matches close
//! together.

use callboard_macros::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BLOCKING_SCORE;
use super::concept_words::{ConceptId, TaggedWord, TaggedWords};
use super::disguises::{self, Disguise, SuspectPlaces};
use super::encodings;
use super::normalize::{self, NORMALIZED_BYTES_MAX, SCREEN_BYTES_MAX};
use super::rules::{ChainRule, RuleSet};
use super::windows::windows;

/// Rule id reported if the built-in rules can't be used.
pub(super) const NO_RULES_ID: &str = "limit.no_rules";
/// Length of the window, in words, within which the weights of matches add up. Matches that are
/// further apart in a long text are unrelated.
const WINDOW_WORDS: u32 = 160;
/// Number of words after a chain within which an exception cancels the match.
const EXCEPTION_WORDS: u32 = 6;
/// Number of words before a chain within which an exception cancels the match.
const EXCEPTION_BEFORE_WORDS: u32 = 2;
/// Additional weight of a match that is hidden by a disguise.
const DISGUISED_WEIGHT: u32 = 40;
/// Minimum number of Unicode tag characters, lookalike characters, invisible splitters or repeated
/// variation selectors at which they count as a match by themselves.
const HIDDEN_CHARS_MIN: usize = 8;
/// Maximum number of tag characters in legitimate flag emoji. More tag characters, or more repeated
/// variation selectors than this, block the text.
const TAG_CHARS_MAX: usize = 24;
/// Number of words before and after a chain within which words of a report are counted.
const REPORT_WORDS: u32 = 12;
/// Minimum words of a report near a chain at which the chain counts as quoted in a report of an
/// attack. One is enough if the text isn't the user's and the chain can't be an order.
const REPORT_SIGNS_MIN: usize = 2;
/// Divisor of the weight of a chain in a report of an attack.
const REPORTED_SHARE: u32 = 4;
/// Divisor of the same in a text of the user, who may order something in any form.
const USERS_REPORTED_SHARE: u32 = 2;
/// Number of words before a chain in which an admonition is looked for.
const ADMONITION_WORDS: u32 = 5;
/// Weight of each further matching rule of one rule family. It is low because the rules of a family
/// match much the same.
const EXTRA_FAMILY_HIT_WEIGHT: u32 = 10;

/// Screens a text for prompt injection: injected instructions, requests for the system prompt,
/// forged turns and disguises.
#[derive(derive_more::Debug, Clone, Message, Serialize, Deserialize, JsonSchema)]
// `Debug` omits the text: it may contain patient data.
#[debug("Screen({} bytes, {:?})", text.len(), origin)]
#[message(name = "screen", reply = ScreenResult)]
#[serde(deny_unknown_fields)]
pub struct Screen {
    /// Text to screen. The parts of one message are joined first, because an attack may be split
    /// over them.
    pub text: String,
    /// Origin of the text.
    #[serde(default)]
    pub origin: TextOrigin,
}

/// Origin of a text. Only the user may give instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TextOrigin {
    /// User or program that sends the request.
    #[default]
    User,
    /// Tool, clinic or other agent.
    ToolResult,
    /// Document, resource or file.
    Document,
    /// Description of a tool or agent.
    Description,
}

/// Result of a screening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Screening")]
pub struct ScreenResult {
    /// Whether the text must not be passed on.
    pub blocked: bool,
    /// Highest sum of weights of rules that match close together. A text is blocked from 100.
    pub score: u32,
    /// Ids of the matching rules, sorted, for the audit; never text. A text that passes may have
    /// some too.
    pub rules: Vec<String>,
}

impl ScreenResult {
    pub(super) fn blocked_by(rule: &str) -> Self {
        Self {
            blocked: true,
            score: BLOCKING_SCORE,
            rules: vec![rule.to_owned()],
        }
    }
}

impl RuleSet {
    /// Screens `text` in time linear in its length. The result is deterministic. Text that can't be
    /// screened, because it or its decoded content is too long, is blocked.
    pub fn screen(&self, text: &str, origin: TextOrigin) -> ScreenResult {
        if text.len() > SCREEN_BYTES_MAX {
            return ScreenResult::blocked_by("limit.too_long");
        }
        let plain = normalize::normalize(text);
        if plain.text.len() > NORMALIZED_BYTES_MAX {
            return ScreenResult::blocked_by("limit.expands");
        }
        let Some(decoded) = encodings::decode_layers(text) else {
            return ScreenResult::blocked_by("limit.decoded_too_long");
        };
        let mut scan = Scan {
            rules: self,
            is_users: origin == TextOrigin::User,
            hits: Vec::new(),
        };
        scan.text(text, &plain.text, Disguise::None);
        if plain.splitters > 0 {
            let split = normalize::split_at_invisible(text);
            let seen = rule_ids(&scan.hits);
            let words = self.tag_words(&split);
            scan.reading(&split, &words, Disguise::Hidden, 0, &seen);
        }
        for text in decoded {
            let reading = normalize::normalize(&text).text;
            scan.text(&text, &reading, Disguise::Hidden);
        }
        let mut hits = scan.hits;
        let hidden_weight = |count: usize| match count > TAG_CHARS_MAX {
            true => BLOCKING_SCORE,
            false => 60,
        };
        let tags_weight = hidden_weight(plain.tags);
        let selectors_weight = hidden_weight(plain.selectors);
        let lookalikes = if plain.text.is_ascii() {
            plain.lookalikes
        } else {
            0
        };
        for (count, id, weight) in [
            (plain.tags, "hidden.tags", tags_weight),
            (lookalikes, "hidden.lookalikes", 30),
            (plain.splitters, "hidden.splitters", 30),
            (plain.selectors, "hidden.selectors", selectors_weight),
        ] {
            if count >= HIDDEN_CHARS_MIN {
                hits.push(RuleHit {
                    place: 0,
                    id,
                    weight,
                });
            }
        }
        score_hits(hits)
    }

    fn match_chains<'a>(
        &'a self,
        text: &TaggedWords,
        first_place: u32,
        is_users: bool,
        hits: &mut Vec<RuleHit<'a>>,
    ) {
        let mut state = vec![ChainProgress::default(); self.steps];
        let mut last_hit = vec![0_u32; self.chain_rules.len()];
        for (m, mark) in text.words.iter().enumerate() {
            let concepts = text.concepts_of(mark).iter();
            for step in concepts.flat_map(|concept| &self.steps_of[usize::from(*concept)]) {
                let start = match step.within {
                    0 => m,
                    within => {
                        let before = state[step.step - 1];
                        let gap = mark.word_position.saturating_sub(before.place);
                        if before.place == 0 || gap == 0 || gap > within {
                            continue;
                        }
                        before.start
                    }
                };
                state[step.step] = ChainProgress {
                    place: mark.word_position,
                    start,
                };
                if !step.is_last {
                    continue;
                }
                let (rule, last_hit) = (&self.chain_rules[step.rule], &mut last_hit[step.rule]);
                // One match per window suffices, so that repetitive text isn't slower.
                let fresh = *last_hit == 0 || mark.word_position - *last_hit > WINDOW_WORDS / 4;
                let counts = rule.weight.for_origin(is_users) > 0;
                if counts && fresh && !has_exception(rule, text, start, m) {
                    *last_hit = mark.word_position;
                    let share = match rule.is_quotable && self.is_reported(text, start, m, is_users)
                    {
                        true if is_users => USERS_REPORTED_SHARE,
                        true => REPORTED_SHARE,
                        false => 1,
                    };
                    hits.push(RuleHit {
                        place: first_place + mark.word_position,
                        id: &rule.id,
                        weight: rule.weight.for_origin(is_users) / share,
                    });
                }
            }
        }
    }

    /// Returns whether a chain, from the word with index `start` to that with index `end`, is part
    /// of a report about attacks, not an attack itself.
    fn is_reported(&self, text: &TaggedWords, start: usize, end: usize, is_users: bool) -> bool {
        let (marks, of) = (&text.words, &self.reports);
        let first = || marks[start..=start].iter();
        if contains_any(text, first(), &of.unless_first) {
            return false;
        }
        let place = marks[start].word_position;
        let until = marks[end].word_position + REPORT_WORDS;
        let within = |words: u32| {
            let before = marks[..start].iter().rev();
            before.take_while(move |m| m.word_position + words >= place)
        };
        let is_report = |m: &&TaggedWord| text.concepts_of(m).contains(&of.report);
        let behind = marks[end..].iter();
        let behind = behind.take_while(|m| m.word_position <= until);
        let near = within(REPORT_WORDS).chain(first()).chain(behind);
        match near.filter(is_report).take(REPORT_SIGNS_MIN).count() {
            REPORT_SIGNS_MIN => true,
            _ if is_users || contains_any(text, first(), &of.order) => false,
            0 => contains_any(text, within(ADMONITION_WORDS), &of.admonition),
            _ => true,
        }
    }
}

/// Matches of the rules in the readings of a text.
struct Scan<'a> {
    rules: &'a RuleSet,
    is_users: bool,
    hits: Vec<RuleHit<'a>>,
}

impl<'a> Scan<'a> {
    /// Matches a text, with `plain` as its normalized form, and its readings without disguises.
    fn text(&mut self, text: &str, plain: &str, disguise: Disguise) {
        let words = self.rules.tag_words(plain);
        let from = self.hits.len();
        self.reading(plain, &words, disguise, 0, &[]);
        let seen = rule_ids(&self.hits[from..]);
        let places = SuspectPlaces::find(plain);
        for found in disguises::readings(text, plain, &places, &words.turned) {
            let place = words.position_before(found.at);
            self.part(&found.text, found.disguise, place, &seen);
            if found.disguise == Disguise::Hidden {
                self.split_words(&found.text, Disguise::Hidden, |_| place, &seen);
            }
        }
        let place = |at| words.position_before(at);
        self.split_words(plain, Disguise::Joined, place, &seen);
    }

    /// Matches the parts around long words with a space between the words that they may consist of.
    fn split_words(
        &mut self,
        plain: &str,
        disguise: Disguise,
        place: impl Fn(usize) -> u32,
        seen: &[&str],
    ) {
        let long_words = disguises::long_words(plain);
        for part in windows(plain, long_words, disguises::MARGIN_BYTES) {
            let first_place = place(part.start);
            let split = self.rules.split_words(&plain[part]);
            self.part(&split, disguise, first_place, seen);
        }
    }

    fn part(&mut self, plain: &str, disguise: Disguise, first_place: u32, seen: &[&str]) {
        let words = self.rules.tag_words(plain);
        self.reading(plain, &words, disguise, first_place, seen);
    }

    /// Appends the matches of one reading, whose first word has the position `first_place` in the
    /// text. `seen` are the rules that match the undisguised text. Each reading contains that text
    /// too, so a match of these rules doesn't indicate a disguise.
    fn reading(
        &mut self,
        plain: &str,
        words: &TaggedWords,
        disguise: Disguise,
        first_place: u32,
        seen: &[&str],
    ) {
        let (is_users, from) = (self.is_users, self.hits.len());
        self.rules
            .match_chains(words, first_place, is_users, &mut self.hits);
        // Disguised text is matched against patterns too, but reversed and rotated text can't
        // contain any.
        if disguise != Disguise::Turned {
            self.rules.patterns.find(plain, |rule, at| {
                let weight = rule.weight.for_origin(is_users);
                if weight > 0 {
                    self.hits.push(RuleHit {
                        place: first_place + words.position_before(at),
                        id: &rule.id,
                        weight,
                    });
                }
            });
        }
        if !matches!(disguise, Disguise::None | Disguise::Joined) {
            let disguised = self.hits[from..]
                .iter_mut()
                .filter(|hit| !seen.contains(&hit.id));
            disguised.for_each(|hit| hit.weight = hit.weight.saturating_add(DISGUISED_WEIGHT));
        }
    }
}

/// Returns the ids of the rules that match, each once and sorted.
fn rule_ids<'a>(hits: &[RuleHit<'a>]) -> Vec<&'a str> {
    let mut ids: Vec<_> = hits.iter().map(|hit| hit.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Progress of a chain up to one of its steps: position of the word that matched the step, and
/// index of the word at which the chain began.
#[derive(Clone, Copy, Default)]
struct ChainProgress {
    /// Position of the word in the text; 0 if the step hasn't matched.
    place: u32,
    start: usize,
}

fn has_exception(rule: &ChainRule, text: &TaggedWords, start: usize, end: usize) -> bool {
    let marks = &text.words;
    let (first, last) = (marks[start].word_position, marks[end].word_position);
    let behind = marks[start + 1..]
        .iter()
        .take_while(|m| m.word_position <= last + EXCEPTION_WORDS);
    let before = marks[..start]
        .iter()
        .rev()
        .take_while(|m| m.word_position + EXCEPTION_BEFORE_WORDS >= first);
    contains_any(text, behind, &rule.unless_behind)
        || contains_any(text, before, &rule.unless_before)
        || contains_any(text, marks[start..end].iter(), &rule.unless_inside)
}

fn contains_any<'a>(
    text: &TaggedWords,
    mut marks: impl Iterator<Item = &'a TaggedWord>,
    concepts: &[ConceptId],
) -> bool {
    !concepts.is_empty()
        && marks.any(|m| {
            text.concepts_of(m)
                .iter()
                .any(|concept| concepts.contains(concept))
        })
}

/// Match of a rule.
struct RuleHit<'a> {
    place: u32,
    id: &'a str,
    weight: u32,
}

/// Computes the score and the verdict. The score is the weight of the heaviest match if it alone
/// blocks the text, otherwise the score of the best window ([`best_window`]).
fn score_hits(mut hits: Vec<RuleHit<'_>>) -> ScreenResult {
    hits.sort_by_key(|h| h.place);
    let ids = rule_ids(&hits);
    let score = if hits.iter().any(|h| h.weight >= BLOCKING_SCORE) {
        hits.iter()
            .map(|h| h.weight)
            .max()
            .unwrap_or(BLOCKING_SCORE)
    } else {
        best_window(&hits, &ids)
    };
    ScreenResult {
        blocked: score >= BLOCKING_SCORE,
        score,
        rules: ids.into_iter().map(str::to_owned).collect(),
    }
}

/// Returns the highest score of any window of [`WINDOW_WORDS`] words. The score of a window is, for
/// each rule family, the heaviest match plus [`EXTRA_FAMILY_HIT_WEIGHT`] for each further rule.
/// Windows start half a window apart, so that each stretch of half a window is covered.
fn best_window(hits: &[RuleHit<'_>], ids: &[&str]) -> u32 {
    let mut best = 0;
    let mut from = 0;
    while from < hits.len() {
        let start = hits[from].place;
        let mut heaviest = vec![0; ids.len()];
        for hit in hits[from..]
            .iter()
            .take_while(|h| h.place - start <= WINDOW_WORDS)
        {
            if let Ok(n) = ids.binary_search(&hit.id) {
                heaviest[n] = heaviest[n].max(hit.weight);
            }
        }
        best = best.max(family_score(ids, &heaviest));
        from += hits[from..]
            .iter()
            .take_while(|h| h.place - start <= WINDOW_WORDS / 2)
            .count()
            .max(1);
    }
    best
}

fn rule_family(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}

fn family_score(ids: &[&str], heaviest: &[u32]) -> u32 {
    let mut sum = 0_u32;
    let mut at = 0;
    while at < ids.len() {
        let same = ids[at..]
            .iter()
            .take_while(|id| rule_family(id) == rule_family(ids[at]))
            .count();
        let hit = heaviest[at..at + same].iter().filter(|w| **w > 0).count() as u32;
        let extra = hit
            .saturating_sub(1)
            .saturating_mul(EXTRA_FAMILY_HIT_WEIGHT);
        sum = sum
            .saturating_add(heaviest[at..at + same].iter().max().copied().unwrap_or(0))
            .saturating_add(extra);
        at += same;
    }
    sum
}
