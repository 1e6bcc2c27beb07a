//! Shares with their intervals, precision and recall, and times of one evaluation.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// Ratio of two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Proportion {
    pub(super) correct: usize,
    pub(super) all: usize,
}

impl Proportion {
    pub(super) fn add(&mut self, is_right: bool) {
        self.all += 1;
        self.correct += usize::from(is_right);
    }

    /// Returns the ratio, 0 to 1; 0 for an empty set.
    pub(super) fn accuracy(self) -> f64 {
        self.share().unwrap_or(0.0)
    }

    /// Returns the ratio, 0 to 1; `None` for an empty set.
    pub(super) fn share(self) -> Option<f64> {
        (self.all > 0).then(|| self.correct as f64 / self.all as f64)
    }

    /// Returns lower and upper end of the 95 % interval after Wilson (1927), which holds for small
    /// sets and extreme ratios too. For an empty set they are 0 and 1.
    pub(super) fn interval(self) -> [f64; 2] {
        const Z: f64 = 1.959_963_984_540_054;
        if self.all == 0 {
            return [0.0, 1.0];
        }
        let (n, p) = (self.all as f64, self.accuracy());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        [
            ((middle - half) / scale).max(0.0),
            ((middle + half) / scale).min(1.0),
        ]
    }

    /// Returns the share as JSON: `n`, `correct`, `accuracy` and its `interval`.
    pub(super) fn to_json(self) -> Value {
        json!({
            "n": self.all,
            "correct": self.correct,
            "accuracy": round_share(self.accuracy()),
            "interval": self.interval().map(round_share),
        })
    }

    /// Returns the share as text: percent, counts and interval.
    pub(super) fn to_text(self) -> String {
        let [low, high] = self.interval();
        format!(
            "{} ({} of {}; 95 %: {} to {})",
            percent(self.accuracy()),
            self.correct,
            self.all,
            percent(low),
            percent(high)
        )
    }

    /// Returns the share as a cell of a table: percent and interval, `–` for an empty set.
    pub(super) fn to_cell(self) -> String {
        let [low, high] = self.interval();
        match self.share() {
            Some(share) => format!("{} ({} to {})", percent(share), percent(low), percent(high)),
            None => "–".to_owned(),
        }
    }
}

/// Rounds to four decimal places.
pub(super) fn round_share(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Counts of a detector's four outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Detection {
    pub(super) true_positives: usize,
    pub(super) false_positives: usize,
    pub(super) false_negatives: usize,
    pub(super) true_negatives: usize,
}

impl Detection {
    pub(super) fn add(&mut self, is_positive: bool, is_flagged: bool) {
        *match (is_positive, is_flagged) {
            (true, true) => &mut self.true_positives,
            (false, true) => &mut self.false_positives,
            (true, false) => &mut self.false_negatives,
            (false, false) => &mut self.true_negatives,
        } += 1;
    }

    pub(super) fn all(self) -> usize {
        self.true_positives + self.false_positives + self.false_negatives + self.true_negatives
    }

    /// Returns the share of flagged items that are positive.
    pub(super) fn precision(self) -> Proportion {
        Proportion {
            correct: self.true_positives,
            all: self.true_positives + self.false_positives,
        }
    }

    /// Returns the share of positive items that are flagged.
    pub(super) fn recall(self) -> Proportion {
        Proportion {
            correct: self.true_positives,
            all: self.true_positives + self.false_negatives,
        }
    }

    /// Returns the share of negative items that are flagged.
    pub(super) fn false_positive_rate(self) -> Proportion {
        Proportion {
            correct: self.false_positives,
            all: self.false_positives + self.true_negatives,
        }
    }

    /// Returns the share of items that are judged as labelled.
    pub(super) fn accuracy(self) -> Proportion {
        Proportion {
            correct: self.true_positives + self.true_negatives,
            all: self.all(),
        }
    }

    /// Returns the harmonic mean of precision and recall; `None` if no item is positive or flagged.
    pub(super) fn f1(self) -> Option<f64> {
        let wrong = self.false_positives + self.false_negatives;
        let twice = 2 * self.true_positives;
        (twice + wrong > 0).then(|| twice as f64 / (twice + wrong) as f64)
    }

    /// Adds the numbers to a JSON object. A ratio without items is `null`.
    fn write_json(self, object: &mut Map<String, Value>) {
        let number = |share: Option<f64>| share.map(round_share).map_or(Value::Null, Value::from);
        let shares = [
            ("precision", self.precision()),
            ("recall", self.recall()),
            ("fpr", self.false_positive_rate()),
            ("accuracy", self.accuracy()),
        ];
        object.insert("n".to_owned(), self.all().into());
        for (name, share) in shares {
            object.insert(name.to_owned(), number(share.share()));
        }
        object.insert("f1".to_owned(), number(self.f1()));
        let intervals = shares.map(|(name, share)| {
            let ends = share.interval().map(round_share);
            (name.to_owned(), json!(ends))
        });
        object.insert("intervals".to_owned(), Map::from_iter(intervals).into());
        let counts = json!({
            "tp": self.true_positives, "fp": self.false_positives,
            "fn": self.false_negatives, "tn": self.true_negatives,
        });
        object.insert("counts".to_owned(), counts);
    }
}

/// Counts of one group of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct GroupCounts {
    /// Counts by line.
    pub(super) lines: Detection,
    /// Counts by place in a text: labelled ones that were found, and found ones that aren't
    /// labelled. Zero for evaluations without places.
    pub(super) spans: SpanCounts,
    /// Lines that were handled as labelled; empty for evaluations of a detector.
    pub(super) handled: Proportion,
}

/// Counts of places in texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SpanCounts {
    /// Labelled places, and those of them that overlap a found one.
    pub(super) labelled: Proportion,
    /// Found places, and those of them that overlap a labelled one.
    pub(super) found: Proportion,
}

impl SpanCounts {
    pub(super) fn add(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.labelled, other.labelled),
            (&mut self.found, other.found),
        ] {
            sum.correct += more.correct;
            sum.all += more.all;
        }
    }

    /// Returns the harmonic mean of precision and recall; `None` if nothing is labelled or found.
    pub(super) fn f1(self) -> Option<f64> {
        let (precision, recall) = (self.found.accuracy(), self.labelled.accuracy());
        match self.labelled.all + self.found.all {
            0 => None,
            _ if precision + recall == 0.0 => Some(0.0),
            _ => Some(2.0 * precision * recall / (precision + recall)),
        }
    }

    fn to_json(self) -> Value {
        json!({
            "n": self.labelled.all,
            "precision": self.found.share().map(round_share),
            "recall": self.labelled.share().map(round_share),
            "f1": self.f1().map(round_share),
            "intervals": {
                "precision": self.found.interval().map(round_share),
                "recall": self.labelled.interval().map(round_share),
            },
        })
    }
}

impl GroupCounts {
    pub(super) fn to_json(self) -> Value {
        let mut object = Map::new();
        self.lines.write_json(&mut object);
        if self.spans != SpanCounts::default() {
            object.insert("spans".to_owned(), self.spans.to_json());
        }
        if self.handled.all > 0 {
            object.insert("handled".to_owned(), self.handled.to_json());
        }
        object.into()
    }

    /// Returns the share by which a group is drawn in a figure: lines that were handled or judged
    /// as labelled.
    pub(super) fn as_labelled(self) -> Proportion {
        match self.handled.all {
            0 => self.lines.accuracy(),
            _ => self.handled,
        }
    }
}

/// Counts of groups by name.
pub(super) type Groups = BTreeMap<String, GroupCounts>;

pub(super) fn groups_json(groups: &Groups) -> Value {
    let entries = groups
        .iter()
        .map(|(name, counts)| (name.clone(), counts.to_json()));
    Value::Object(entries.collect())
}

/// Durations of single measurements.
#[derive(Debug, Clone, Default)]
pub(super) struct Durations(Vec<Duration>);

impl Durations {
    pub(super) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Returns the time of the first measurement, the median and the 99th percentile, in
    /// microseconds. The first one may include work that is done once in a process.
    pub(super) fn microseconds(&self) -> [f64; 3] {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |rank: f64| {
            let index = (rank * sorted.len() as f64).ceil() as usize;
            sorted.get(index.saturating_sub(1)).copied()
        };
        [self.0.first().copied(), at(0.5), at(0.99)]
            .map(|took| took.unwrap_or_default().as_nanos() as f64 / 1e3)
    }

    pub(super) fn to_json(&self) -> Value {
        let [first, median, p99] = self.microseconds();
        json!({ "first_us": first, "p50_us": median, "p99_us": p99 })
    }
}
