//! How `weights.tsv` is made: multinomial logistic regression over the signs of the sentences in `sentences/` and of the labelled
//! requests of development, by AdaGrad with L2, in an order that is always the same. Nothing is random: twice the same file.
//!
//! `cargo test -p callboard-orchestration --lib fits_the_weights -- --ignored` writes it anew; do so after any change of a lexicon, a rule
//! or a sentence; `lists.rs` measures what it is worth.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::super::reading::Reading;
use super::features::signs;
use super::{BIAS, SCALE, SEVERAL, written};

/// How often all sentences are gone through.
const ROUNDS: usize = 25;
/// The first step's length.
const RATE: f32 = 0.15;
/// How strongly weights are drawn to nothing: pairs of words more, for they are many and each is rare.
const DRAW: f32 = 1e-3;
const DRAW_OF_PAIRS: f32 = 4e-3;
/// Of words that only led to what is wanted still more: each stands there by chance.
const DRAW_OF_BACKGROUND: f32 = 8e-3;
/// A sign of fewer sentences than that tells nothing.
const SENTENCES_MIN: usize = 2;
/// Smaller weights aren't written.
const WEIGHT_MIN: f32 = 0.07;
/// Every so manyth pair of sentences of different kinds is joined to one of several.
const JOINED: usize = 260;
const JOINED_WEIGHT: f32 = 0.5;
/// So many sentences are put behind others that only tell how it came to them.
const TOLD_FIRST: usize = 600;
const TOLD_FIRST_WEIGHT: f32 = 0.5;

/// A sentence, and what it is fitted to.
#[derive(Clone)]
pub(super) struct Sentence {
    pub(super) text: String,
    pub(super) kind: String,
    weight: f32,
    portuguese: bool,
    /// What it shows, each sign once.
    shown: Vec<String>,
}

impl Sentence {
    pub(super) fn new(text: String, kind: String, weight: f32) -> Self {
        let reading = Reading::new(&text);
        let mut shown = vec![BIAS.to_owned()];
        signs(&reading, |group, a, b| shown.push(written(group, a, b)));
        shown.sort();
        shown.dedup();
        Self { text, kind, weight, portuguese: reading.portuguese, shown }
    }
}

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/decide/rules/kinds")
}

/// A file a kind, a sentence a line.
pub(super) fn sentences() -> Vec<Sentence> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder().join("sentences")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut out = Vec::new();
    for file in files {
        let kind = file.file_stem().unwrap().to_str().unwrap().to_owned();
        for line in fs::read_to_string(&file).unwrap().lines().filter(|line| !line.is_empty()) {
            out.push(Sentence::new(line.replace("\\n", "\n"), kind.clone(), 1.0));
        }
    }
    out
}

/// Sentences of two kinds with a joining word between them.
pub(super) fn joined(single: &[Sentence]) -> Vec<Sentence> {
    const JOINTS: [&str; 8] = [" and ", ", then ", ". Also ", "; ", " and also ", ", and after that ", ", ", " + "];
    const JOINTS_PT: [&str; 8] = [" e ", ", depois ", ". E também ", "; ", " e já ", ", e em seguida ", ", ", " + "];
    const UNJOINED: [&str; 5] = ["clarify", "reject", SEVERAL, "echo", "human_input"];
    const WORDS_MAX: usize = 16;
    let short =
        |one: &&Sentence| !UNJOINED.contains(&one.kind.as_str()) && one.text.split_whitespace().count() <= WORDS_MAX;
    let short: Vec<&Sentence> = single.iter().filter(short).collect();
    let mut out = Vec::new();
    let mut at = 7;
    while out.len() < JOINED && !short.is_empty() {
        // Steps without a common divisor with most lengths: all kinds meet.
        at += 1;
        let (first, second) = (short[at * 97 % short.len()], short[at * 193 % short.len()]);
        let portuguese = first.portuguese;
        if first.kind == second.kind || portuguese != second.portuguese {
            continue;
        }
        let joint = if portuguese { JOINTS_PT } else { JOINTS }[at % 8];
        let head = first.text.trim_end_matches(['.', '?', '!', ' ']);
        let tail = second.text.trim();
        let tail: String = tail.chars().take(1).flat_map(char::to_lowercase).chain(tail.chars().skip(1)).collect();
        out.push(Sentence::new(format!("{head}{joint}{tail}"), SEVERAL.to_owned(), JOINED_WEIGHT));
    }
    out
}

/// Sentences behind others that only tell how it came to them.
pub(super) fn told_first(single: &[Sentence]) -> Vec<Sentence> {
    const WORDS_MAX: usize = 24;
    const POLITE: [&str; 6] =
        ["Please ", "Could you please ", "I would be grateful if you could ", "Would you kindly ", "Can you ", ""];
    const POLITE_PT: [&str; 6] =
        ["Por favor, ", "Agradecia que ", "Gostaria que você ", "Por gentileza, ", "Peço que ", ""];
    let short = |one: &&Sentence| one.text.split_whitespace().count() <= WORDS_MAX && !one.text.contains('\n');
    let short: Vec<&Sentence> = single.iter().filter(short).collect();
    let mut out = Vec::new();
    for at in 0..TOLD_FIRST {
        let one = short[(at * 7_919 + 13) % short.len()];
        let told: Vec<&str> = if one.portuguese { TOLD_PT } else { TOLD }.lines().collect();
        let first = told[at * 31 % told.len()];
        let second = if at % 3 == 0 { "" } else { told[(at * 17 + 5) % told.len()] };
        let text = one.text.trim();
        let is_order = Reading::new(&format!("x. {text}")).wish.start > 0 && !text.contains('?');
        let low: String = text.chars().take(1).flat_map(char::to_lowercase).chain(text.chars().skip(1)).collect();
        let wish = match is_order {
            true => format!("{}{low}", if one.portuguese { POLITE_PT } else { POLITE }[at % 6]),
            false if text.ends_with(['?', '.', '!', '"', '\'']) => text.to_owned(),
            false => format!("{text}{}", if one.portuguese { ", por favor?" } else { ", please?" }),
        };
        out.push(Sentence::new(format!("{first} {second} {wish}"), one.kind.clone(), TOLD_FIRST_WEIGHT));
    }
    out
}

/// What people tell first, of all kinds of things.
const TOLD: &str = include_str!("told_first.txt");
const TOLD_PT: &str = include_str!("told_first_pt.txt");

pub(super) struct Fitted {
    kinds: Vec<String>,
    signs: Vec<String>,
    /// By sign, by kind.
    weights: Vec<Vec<f32>>,
}

pub(super) fn fit(sentences: &[Sentence]) -> Fitted {
    let mut kinds: Vec<String> = sentences.iter().map(|one| one.kind.clone()).collect();
    kinds.sort();
    kinds.dedup();
    let mut count: HashMap<String, usize> = HashMap::new();
    let all = sentences.iter().flat_map(|one| &one.shown);
    all.for_each(|sign| *count.entry(sign.clone()).or_default() += 1);
    let mut names: Vec<String> = count.into_iter().filter(|(_, n)| *n >= SENTENCES_MIN).map(|(sign, _)| sign).collect();
    names.sort();
    let place: HashMap<&str, usize> = names.iter().enumerate().map(|(at, sign)| (sign.as_str(), at)).collect();
    let places = |one: &Sentence| one.shown.iter().filter_map(|sign| place.get(sign.as_str()).copied()).collect();
    let shown: Vec<Vec<usize>> = sentences.iter().map(places).collect();
    let labels: Vec<usize> =
        sentences.iter().map(|one| kinds.iter().position(|kind| *kind == one.kind).unwrap()).collect();
    let draw: Vec<f32> = names
        .iter()
        .map(|sign| match sign.split(' ').next() {
            Some("bw") => DRAW_OF_BACKGROUND,
            Some("2") => DRAW_OF_PAIRS,
            _ => DRAW,
        })
        .collect();
    let mut weights = vec![vec![0.0_f32; kinds.len()]; names.len()];
    let mut squares = vec![vec![1e-2_f32; kinds.len()]; names.len()];
    let n = sentences.len();
    // Steps that visit all, for the number of sentences is no multiple of this prime.
    const STRIDE: usize = 7_919;
    for round in 0..ROUNDS {
        for step in 0..n {
            let at = (step * STRIDE + round) % n;
            let mut scores = vec![0.0_f32; kinds.len()];
            for sign in &shown[at] {
                scores.iter_mut().zip(&weights[*sign]).for_each(|(score, weight)| *score += weight);
            }
            let most = scores.iter().copied().fold(f32::MIN, f32::max);
            scores.iter_mut().for_each(|score| *score = (*score - most).exp());
            let sum: f32 = scores.iter().sum();
            for (kind, score) in scores.iter().enumerate() {
                let error = (score / sum - f32::from(u8::from(kind == labels[at]))) * sentences[at].weight;
                for sign in &shown[at] {
                    let weight = &mut weights[*sign][kind];
                    let slope = error + draw[*sign] * *weight;
                    let square = &mut squares[*sign][kind];
                    *square += slope * slope;
                    *weight -= RATE * slope / square.sqrt();
                }
            }
        }
    }
    Fitted { kinds, signs: names, weights }
}

impl Fitted {
    pub(super) fn written(&self) -> String {
        let mut out =
            String::from("# Fitted by fit.rs: kinds, then for each sign what it adds to which kind, in hundredths.\n");
        let _ = writeln!(out, "{}", self.kinds.join(" "));
        for (sign, weights) in self.signs.iter().zip(&self.weights) {
            let mut line = sign.clone();
            for (kind, weight) in weights.iter().enumerate().filter(|(_, weight)| weight.abs() >= WEIGHT_MIN) {
                let _ = write!(line, "\t{kind} {:.0}", weight * SCALE);
            }
            if line.len() > sign.len() {
                let _ = writeln!(out, "{line}");
            }
        }
        out
    }
}
