//! What kind of request it is, whoever is there to do it: a field, one of our own tools, nothing that anybody does, too little, or
//! several at once. A linear model over the signs of [`features`], its weights fitted on `sentences/` (see `fit.rs`).

mod features;
#[cfg(test)]
mod fit;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::OnceLock;

use callboard_message::Speaker;

use super::reading::Reading;
use super::vague::carries_on;
use crate::decide::Turn;

/// What was fitted: a line of kinds, then a line for each sign.
const WEIGHTS: &str = include_str!("weights.tsv");
/// Weights are written in hundredths.
const SCALE: f32 = 100.0;

/// Too vague to act on.
pub(super) const CLARIFY: &str = "clarify";
/// Harmful or aimed at somebody.
pub(super) const REJECT: &str = "reject";
/// Parts for different ones.
pub(super) const SEVERAL: &str = "several";

/// The kinds and how much each sign speaks for them.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    names: Vec<String>,
    /// By sign, its place in `weights`.
    places: HashMap<u64, usize>,
    /// What a sign adds to which kinds.
    weights: Vec<Vec<(usize, f32)>>,
}

/// How likely each kind is, 0 to 1, all together 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Likely {
    shares: Vec<f32>,
}

impl Likely {
    /// Of the request, by its words alone.
    pub(super) fn of(reading: &Reading) -> Self {
        kinds().likely(reading)
    }

    /// How likely the kind of that name is.
    pub(super) fn share(&self, kind: &str) -> f32 {
        let at = kinds().names.iter().position(|name| name == kind);
        at.and_then(|at| self.shares.get(at)).copied().unwrap_or(0.0)
    }

    /// The same; where the request is short and goes on from what was said before, of that too.
    pub(super) fn after(&self, reading: &Reading, history: &[Turn]) -> Self {
        let mut own = self.clone();
        const SHORT_WORDS_MAX: usize = 9;
        let short = reading.tokens.iter().filter(|token| token.is_word()).count() <= SHORT_WORDS_MAX;
        let last = |by: Speaker| history.iter().rev().find(|turn| turn.by == by);
        let (Some(asked), true) = (last(Speaker::User), short && carries_on(history)) else { return own };
        // What says clearly enough what it is doesn't only carry on.
        const BY_ITSELF: f32 = 0.85;
        if own.best().1 >= BY_ITSELF && own.best().0 != CLARIFY {
            return own;
        }
        /// How much of what was said before is in what only carries on, at least.
        const BEFORE: f32 = 0.6;
        let open = own.share(CLARIFY).max(BEFORE);
        let before = Self::of(&Reading::new(&asked.text));
        let of = |name: &str| kinds().names.iter().position(|kind| kind == name);
        for (at, share) in own.shares.iter_mut().enumerate() {
            let is_asked = [CLARIFY, SEVERAL, REJECT].iter().any(|name| of(name) == Some(at));
            let earlier = before.shares.get(at).copied().filter(|_| !is_asked).unwrap_or(0.0);
            let own = if of(CLARIFY) == Some(at) { 0.0 } else { *share };
            *share = own * (1.0 - open) + earlier * open;
        }
        let sum: f32 = own.shares.iter().sum();
        own.shares.iter_mut().for_each(|share| *share /= sum.max(f32::MIN_POSITIVE));
        own
    }

    /// How likely a kind is where these others aren't the question.
    pub(super) fn share_but(&self, kind: &str, but: &[&str]) -> f32 {
        self.share(kind) / self.rest(but)
    }

    /// What is left for all kinds but these. Summed up, for what is left of a share of nearly 1 is lost in the difference.
    fn rest(&self, but: &[&str]) -> f32 {
        let shares = kinds().names.iter().zip(&self.shares).filter(|(name, _)| !but.contains(&name.as_str()));
        shares.map(|(_, share)| share).sum::<f32>().max(f32::MIN_POSITIVE)
    }

    /// The likeliest kind.
    pub(super) fn best(&self) -> (&'static str, f32) {
        let names = kinds().names.iter().map(String::as_str);
        names.zip(self.shares.iter().copied()).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((CLARIFY, 0.0))
    }

    /// All kinds but these, the likeliest first, their shares of the rest.
    pub(super) fn ranked_but(&self, but: &[&str]) -> Vec<(&'static str, f32)> {
        let names = kinds().names.iter().map(String::as_str);
        let rest = self.rest(but);
        let share = |share: f32| share / rest;
        let mut ranked: Vec<(&'static str, f32)> =
            names.zip(self.shares.iter().copied().map(share)).filter(|(name, _)| !but.contains(name)).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        ranked
    }
}

/// Whether requests of that kind are known.
pub(super) fn is_known(kind: &str) -> bool {
    kinds().names.iter().any(|name| name == kind)
}

/// The kinds that come with callboard. A file that can't be read, which a test rules out, knows none.
fn kinds() -> &'static Kinds {
    #[cfg(test)]
    if let Some(instead) = lists::INSTEAD.get() {
        return instead;
    }
    static READ: OnceLock<Kinds> = OnceLock::new();
    READ.get_or_init(|| Kinds::read(WEIGHTS))
}

impl Kinds {
    fn read(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.starts_with("# "));
        let names: Vec<String> = lines.next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        let (mut places, mut weights) = (HashMap::new(), Vec::new());
        for line in lines {
            let mut columns = line.split('\t');
            let Some(sign) = columns.next() else { continue };
            let of = columns.filter_map(|column| {
                let (kind, weight) = column.split_once(' ')?;
                Some((kind.parse::<usize>().ok()?, weight.parse::<f32>().ok()? / SCALE))
            });
            places.insert(key_of(sign), weights.len());
            weights.push(of.filter(|(kind, _)| *kind < names.len()).collect());
        }
        Self { names, places, weights }
    }

    fn likely(&self, reading: &Reading) -> Likely {
        let mut shares = vec![0.0; self.names.len()];
        let mut seen = vec![false; self.weights.len()];
        let mut add = |sign: u64| {
            if let Some(at) = self.places.get(&sign).copied()
                && !std::mem::replace(&mut seen[at], true)
            {
                self.weights[at].iter().for_each(|(kind, weight)| shares[*kind] += weight);
            }
        };
        add(key(BIAS, "", ""));
        features::signs(reading, |group, a, b| add(key(group, a, b)));
        let most = shares.iter().copied().fold(f32::MIN, f32::max);
        shares.iter_mut().for_each(|share| *share = (*share - most).exp());
        let sum: f32 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum.max(f32::MIN_POSITIVE));
        Likely { shares }
    }
}

/// The sign that every request has.
const BIAS: &str = "bias";

/// A sign as it is written.
#[cfg(test)]
fn written(group: &str, a: &str, b: &str) -> String {
    format!("{group} {a} {b}").trim_end().to_owned()
}

fn key_of(written: &str) -> u64 {
    let mut words = written.splitn(3, ' ');
    let mut next = || words.next().unwrap_or_default();
    let (group, a, b) = (next(), next(), next());
    key(group, a, b)
}

/// FNV-1a: the same everywhere and always.
fn key(group: &str, a: &str, b: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = OFFSET;
    for word in [group, a, b] {
        for byte in word.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
    hash
}
