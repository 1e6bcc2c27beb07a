//! How `weights.tsv` is made: multinomial logistic regression over the signs of the sentences in `sentences/` and of the labelled
//! requests of development, by AdaGrad with L2, in an order that is always the same. Nothing is random: twice the same file.
//!
//! `cargo test -p callboard-agents --lib fits_the_weights -- --ignored` writes it anew; do so after any change of a lexicon, a rule
//! or a sentence. `FIT_WITHOUT=f` leaves out development's requests whose id begins so, to measure with them.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::super::reading::Reading;
use super::features::signs;
use super::{BIAS, SCALE, SEVERAL, written};

/// How often all sentences are gone through.
const ROUNDS: usize = 15;
/// The first step's length.
const RATE: f32 = 0.15;
/// How strongly weights are drawn to nothing: pairs of words more, for they are many and each is rare.
const DRAW: f32 = 1e-3;
const DRAW_OF_PAIRS: f32 = 4e-3;
/// A sign of fewer sentences than that tells nothing.
const SENTENCES_MIN: usize = 2;
/// Smaller weights aren't written.
const WEIGHT_MIN: f32 = 0.07;
/// Every so manyth pair of sentences of different kinds is joined to one of several.
const JOINED: usize = 260;
const JOINED_WEIGHT: f32 = 0.5;

struct Sentence {
    text: String,
    kind: String,
    weight: f32,
}

#[derive(Deserialize)]
struct Labelled {
    id: String,
    text: String,
    expect: String,
    target: Option<String>,
    #[serde(default)]
    history: Vec<serde_json::Value>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/decide/rules/kinds")
}

/// A file a kind, a sentence a line.
fn sentences() -> Vec<Sentence> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder().join("sentences")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut out = Vec::new();
    for file in files {
        let kind = file.file_stem().unwrap().to_str().unwrap().to_owned();
        for line in fs::read_to_string(&file).unwrap().lines().filter(|line| !line.is_empty()) {
            out.push(Sentence { text: line.replace("\\n", "\n"), kind: kind.clone(), weight: 1.0 });
        }
    }
    out
}

/// What requests of development are labelled with, as kinds. Those that carry on are left out: a kind is of words alone.
fn development() -> Vec<Sentence> {
    const DEV: &str = "../../examples/eval/routing_dev.jsonl";
    let without = std::env::var("FIT_WITHOUT").unwrap_or_default();
    let left_out = |id: &str| without.chars().any(|letter| id.starts_with(letter));
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(DEV)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Labelled>(line).unwrap());
    let kind = |line: &Labelled| match (line.expect.as_str(), line.target.as_deref()) {
        ("decompose", _) => SEVERAL.to_owned(),
        // The agents of the eval's world by the field that they are of.
        (_, Some("invoices")) => "accounting".to_owned(),
        (_, Some("code-review")) => "code".to_owned(),
        (_, Some("web-research")) => "research".to_owned(),
        (_, Some("recipes")) => "food".to_owned(),
        (expect, target) => target.unwrap_or(expect).to_owned(),
    };
    lines
        .filter(|line| line.history.is_empty() && !left_out(&line.id))
        .map(|line| Sentence { kind: kind(&line), text: line.text, weight: 1.0 })
        .collect()
}

/// Sentences of two kinds with a joining word between them.
fn joined(single: &[Sentence]) -> Vec<Sentence> {
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
        let portuguese = Reading::new(&first.text).portuguese;
        if first.kind == second.kind || portuguese != Reading::new(&second.text).portuguese {
            continue;
        }
        let joint = if portuguese { JOINTS_PT } else { JOINTS }[at % 8];
        let head = first.text.trim_end_matches(['.', '?', '!', ' ']);
        let tail = second.text.trim();
        let tail: String = tail.chars().take(1).flat_map(char::to_lowercase).chain(tail.chars().skip(1)).collect();
        out.push(Sentence { text: format!("{head}{joint}{tail}"), kind: SEVERAL.to_owned(), weight: JOINED_WEIGHT });
    }
    out
}

struct Fitted {
    kinds: Vec<String>,
    signs: Vec<String>,
    /// By sign, by kind.
    weights: Vec<Vec<f32>>,
}

fn fit(sentences: &[Sentence]) -> Fitted {
    let mut kinds: Vec<String> = sentences.iter().map(|one| one.kind.clone()).collect();
    kinds.sort();
    kinds.dedup();
    let mut count: HashMap<String, usize> = HashMap::new();
    let shown: Vec<Vec<String>> = sentences
        .iter()
        .map(|one| {
            let mut shown = vec![BIAS.to_owned()];
            signs(&Reading::new(&one.text), |group, a, b| shown.push(written(group, a, b)));
            shown.sort();
            shown.dedup();
            shown.iter().for_each(|sign| *count.entry(sign.clone()).or_default() += 1);
            shown
        })
        .collect();
    let mut names: Vec<String> = count.into_iter().filter(|(_, n)| *n >= SENTENCES_MIN).map(|(sign, _)| sign).collect();
    names.sort();
    let place: HashMap<&str, usize> = names.iter().enumerate().map(|(at, sign)| (sign.as_str(), at)).collect();
    let shown: Vec<Vec<usize>> =
        shown.iter().map(|signs| signs.iter().filter_map(|sign| place.get(sign.as_str()).copied()).collect()).collect();
    let labels: Vec<usize> =
        sentences.iter().map(|one| kinds.iter().position(|kind| *kind == one.kind).unwrap()).collect();
    let draw: Vec<f32> = names.iter().map(|sign| if sign.starts_with("2 ") { DRAW_OF_PAIRS } else { DRAW }).collect();
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
    fn written(&self) -> String {
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

/// Goal: the weights are of these sentences. Method: fits them and writes the file.
#[test]
#[ignore = "writes a file: run it after a change of a lexicon, a rule or a sentence"]
fn fits_the_weights() {
    let mut all = sentences();
    let joined = joined(&all);
    all.extend(development());
    all.extend(joined);
    fs::write(folder().join("weights.tsv"), fit(&all).written()).unwrap();
}

/// Goal: what a kind's sentences have in common is learnt, not each by heart. Method: a fifth left out in turn.
#[test]
#[ignore = "fits five times"]
fn fifths() {
    let mut all = sentences();
    all.extend(development());
    let (mut right, mut wrong) = (0, Vec::new());
    for fifth in 0..5 {
        let (mut learnt, mut asked) = (Vec::new(), Vec::new());
        for (at, one) in all.iter().enumerate() {
            let one = Sentence { text: one.text.clone(), kind: one.kind.clone(), weight: 1.0 };
            if at % 5 == fifth { asked.push(one) } else { learnt.push(one) }
        }
        learnt.extend(joined(&learnt));
        let kinds = super::Kinds::read(&fit(&learnt).written());
        for one in asked {
            let shares = kinds.likely(&Reading::new(&one.text)).shares;
            let best = shares.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at);
            if kinds.names[best] == one.kind {
                right += 1;
            } else {
                wrong.push(format!("{} got {}: {}", one.kind, kinds.names[best], one.text));
            }
        }
    }
    println!("{}\n{right} of {}", wrong.join("\n"), all.len());
    assert!(right * 10 >= all.len() * 7);
}
