//! Fits the weights of the model to the labelled lines of `examples/eval`.
//!
//! Logistic regression by stochastic gradient descent. A line is labelled, not its sentences: of a line
//! with advice, the sentence with the highest score counts as the advice.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::features::{FEATURES, rule};
use super::model::{BUCKET_SLOTS, BUCKETS, FILE_BYTES, scale, slot};
use super::{Found, RecordedText, find_advice, fold, read_sentences};

/// Sets of lines that the weights are fitted to. The held-out lines are never among them.
const SETS: [&str; 2] = ["scope_dev", "scope_more"];
const EPOCHS: usize = 20;
const RATE: f32 = 0.05;
const BIAS_RATE: f32 = 0.0025;
/// Share of each weight that is lost with each epoch.
const DECAY: f32 = 0.05;
/// Number of lines below which a feature gets no weight.
const LINES_MIN: u8 = 2;
/// Subtracted from the bias, for fewer false positives. Chosen by cross-validation between the sources of lines.
const MARGIN: f32 = 0.1;
/// Epochs during which only lines of one sentence are read as advice.
const SINGLE_EPOCHS: usize = 2;
/// Importance of the sentences beside the advice of a line.
const BESIDE_IMPORTANCE: f32 = 0.5;

/// Part of a sentence: features of its words, and of what the grammar found.
struct Sample {
    words: Vec<u32>,
    rule: Option<u32>,
}

struct LabelledLine {
    is_advice: bool,
    samples: Vec<Sample>,
}

fn path(set: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/eval");
    folder.join(format!("{set}.jsonl"))
}

fn weights_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/advice_weights.bin")
}

/// Reads the lines of a set: whether each is advice, its text and its records.
fn lines(set: &str) -> impl Iterator<Item = (bool, String, RecordedText)> + use<> {
    let text = fs::read_to_string(path(set)).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    lines.into_iter().map(|line| {
        let text = line["text"].as_str().unwrap().to_owned();
        let note = (line["place"] == "record").then(|| fold(&text));
        let records = RecordedText::new(note.into_iter());
        (line["label"] == "advice", text, records)
    })
}

fn samples(text: &str, records: &RecordedText) -> Vec<Sample> {
    let mut samples = Vec::new();
    read_sentences(text, records, |reading| {
        let found = Found::new(reading);
        for (part, place) in found.parts() {
            let words = reading.features(part.clone(), place);
            let address = found.strongest(|hit| part.contains(&hit.at));
            let rule = address.map(|address| rule(place, address));
            samples.push(Sample { words, rule });
        }
        None::<()>
    });
    samples
}

struct Fit {
    /// Whether each feature has a weight, see [`LINES_MIN`].
    is_frequent: Vec<bool>,
    weights: Vec<f32>,
    /// Sum of the squares of each weight's gradients (Adagrad).
    squares: Vec<f32>,
    bias: f32,
}

impl Fit {
    fn score(&self, sample: &Sample) -> f32 {
        let features = sample.words.iter().chain(&sample.rule);
        let sum: f32 = features
            .map(|feature| self.weights[*feature as usize])
            .sum();
        self.bias + sum * scale(sample.words.len())
    }

    fn learn(&mut self, sample: &Sample, is_advice: bool, importance: f32) {
        let believed = 1.0 / (1.0 + (-self.score(sample)).exp());
        let error = importance * (f32::from(u8::from(is_advice)) - believed);
        self.bias += BIAS_RATE * error;
        let gradient = error * scale(sample.words.len());
        let features = sample.words.iter().chain(&sample.rule);
        for feature in features.filter(|feature| self.is_frequent[**feature as usize]) {
            let square = &mut self.squares[*feature as usize];
            *square += gradient * gradient;
            self.weights[*feature as usize] += RATE * gradient / (square.sqrt() + 1e-3);
        }
    }

    fn learn_line(&mut self, line: &LabelledLine, advice_importance: f32) {
        if !line.is_advice {
            for sample in &line.samples {
                self.learn(sample, false, 1.0);
            }
            return;
        }
        let scores: Vec<f32> = line.samples.iter().map(|s| self.score(s)).collect();
        let highest = scores.iter().copied().fold(f32::MIN, f32::max);
        for (sample, score) in line.samples.iter().zip(scores) {
            if score == highest {
                self.learn(sample, true, advice_importance);
            } else if score < 0.0 {
                self.learn(sample, false, BESIDE_IMPORTANCE);
            }
        }
    }

    /// Returns the contents of the file of weights. Of the features of a full bucket, those of the smallest weights
    /// have none.
    fn bytes(&self) -> Vec<u8> {
        let largest = self
            .weights
            .iter()
            .fold(0.0_f32, |most, w| most.max(w.abs()));
        let unit = largest / 127.0;
        let mut buckets = vec![Vec::new(); BUCKETS];
        for (feature, weight) in (0_u32..).zip(&self.weights) {
            let weight = (weight / unit).round() as i8;
            if weight != 0 {
                let (bucket, tag) = slot(feature);
                buckets[bucket].push((tag, weight));
            }
        }
        let mut bytes = unit.to_le_bytes().to_vec();
        bytes.extend((self.bias - MARGIN).to_le_bytes());
        for mut bucket in buckets {
            bucket.sort_by_key(|(_, weight)| Reverse(weight.unsigned_abs()));
            bucket.resize(BUCKET_SLOTS, (0, 0));
            bytes.extend(bucket.iter().map(|(tag, _)| tag));
            bytes.extend(bucket.iter().map(|(_, weight)| weight.cast_unsigned()));
        }
        assert_eq!(bytes.len(), FILE_BYTES);
        bytes
    }
}

/// Returns for each feature whether at least [`LINES_MIN`] lines have it.
fn frequent_features(lines: &[LabelledLine]) -> Vec<bool> {
    let mut counts = vec![0_u8; FEATURES];
    for line in lines {
        let samples = line.samples.iter();
        let features: HashSet<&u32> = samples
            .flat_map(|sample| sample.words.iter().chain(&sample.rule))
            .collect();
        for feature in features {
            let count = &mut counts[*feature as usize];
            *count = count.saturating_add(1);
        }
    }
    counts.iter().map(|count| *count >= LINES_MIN).collect()
}

fn fit(lines: &[LabelledLine]) -> Fit {
    let mut fit = Fit {
        is_frequent: frequent_features(lines),
        weights: vec![0.0; FEATURES],
        squares: vec![0.0; FEATURES],
        bias: 0.0,
    };
    let advice = lines.iter().filter(|line| line.is_advice).count() as f32;
    let harmless = lines.iter().filter(|line| !line.is_advice);
    let harmless: usize = harmless.map(|line| line.samples.len()).sum();
    let advice_importance = (harmless as f32 / advice).sqrt();
    let mut order: Vec<usize> = (0..lines.len()).collect();
    // Always the same order of lines (a linear congruential generator of Knuth's).
    let mut random = 1_u64;
    for epoch in 0..EPOCHS {
        for n in (1..order.len()).rev() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            order.swap(n, (random >> 33) as usize % (n + 1));
        }
        for n in &order {
            let line = &lines[*n];
            if epoch >= SINGLE_EPOCHS || !line.is_advice || line.samples.len() == 1 {
                fit.learn_line(line, advice_importance);
            }
        }
        fit.weights
            .iter_mut()
            .for_each(|weight| *weight *= 1.0 - DECAY);
    }
    fit
}

/// Writes `data/advice_weights.bin`: `cargo test --release -p callboard-clinics fit_weights -- --ignored`.
#[test]
#[ignore = "writes the weights of the model"]
fn fit_weights() {
    let lines: Vec<LabelledLine> = SETS
        .into_iter()
        .flat_map(lines)
        .map(|(is_advice, text, records)| LabelledLine {
            is_advice,
            samples: samples(&text, &records),
        })
        .collect();
    fs::write(weights_path(), fit(&lines).bytes()).unwrap();
}

/// Goal: the weights are those of the lines, in the form of this version. Method: every tenth line that they were
/// fitted to is judged.
#[test]
fn weights_suit_their_lines() {
    let (mut right, mut all) = (0, 0);
    for set in SETS {
        for (is_advice, text, records) in lines(set).step_by(10) {
            all += 1;
            right += usize::from(find_advice(&text, &records).is_some() == is_advice);
        }
    }
    assert!(right * 100 >= all * 95, "{right} of {all}");
}

/// Goal: held-out lines measure what the weights haven't seen. Method: their texts, folded, among those that the
/// weights were fitted to.
#[test]
fn held_out_lines_are_no_others() {
    let texts = |set| lines(set).map(|(_, text, _)| fold(&text));
    let fitted: HashSet<String> = SETS.into_iter().flat_map(texts).collect();
    assert!(texts("scope_heldout").all(|text| !fitted.contains(&text)));
}
