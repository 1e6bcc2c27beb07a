//! Results of one evaluation: counts by group, wrong lines and times, as JSON and as text.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::metrics::{Detection, Durations, GroupCounts, Groups, Proportion, groups_json, percent};
use super::sets::{HELDOUT_SET, LineMeta, is_shown};

/// Way in which a line went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrongWay {
    /// A positive line passed.
    Missed,
    /// A negative line was flagged.
    FalseAlarm,
    /// The line was rightly flagged or passed, but is wrong in another way.
    Otherwise,
}

/// Line that went wrong.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WrongLine {
    #[serde(skip)]
    pub(super) way: WrongWay,
    pub(super) set: String,
    pub(super) id: String,
    pub(super) expected: String,
    pub(super) got: String,
    /// Text of the line; `None` if its file is a held-out one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
}

/// Result for one line.
#[derive(Debug, Clone)]
pub(super) struct LineResult<'a> {
    pub(super) set: &'a str,
    pub(super) meta: &'a LineMeta,
    /// Text to show if the line went wrong.
    pub(super) text: &'a str,
    pub(super) expected: String,
    pub(super) got: String,
    /// Whether the line went wrong.
    pub(super) is_wrong: bool,
    /// Counts of this line alone.
    pub(super) counts: GroupCounts,
}

/// Results of one evaluation.
#[derive(Debug, Clone)]
pub(super) struct EvalResults {
    /// Name of the evaluation.
    pub(super) name: &'static str,
    /// Description of a positive line and of a flagged one, for tables.
    pub(super) positive: &'static str,
    pub(super) all: GroupCounts,
    pub(super) by_set: Groups,
    pub(super) by_source: Groups,
    pub(super) by_kind: Groups,
    pub(super) by_lang: Groups,
    pub(super) wrong: Vec<WrongLine>,
    pub(super) durations: Durations,
    /// Further members of the JSON object.
    pub(super) more: Map<String, Value>,
    /// Further rows of the text and the report: name and share.
    pub(super) shares: Vec<(String, Proportion)>,
}

fn add(sum: &mut GroupCounts, counts: GroupCounts) {
    sum.lines.true_positives += counts.lines.true_positives;
    sum.lines.false_positives += counts.lines.false_positives;
    sum.lines.false_negatives += counts.lines.false_negatives;
    sum.lines.true_negatives += counts.lines.true_negatives;
    sum.spans.add(counts.spans);
    sum.handled.correct += counts.handled.correct;
    sum.handled.all += counts.handled.all;
}

impl EvalResults {
    pub(super) fn new(name: &'static str, positive: &'static str) -> Self {
        Self {
            name,
            positive,
            all: GroupCounts::default(),
            by_set: Groups::new(),
            by_source: Groups::new(),
            by_kind: Groups::new(),
            by_lang: Groups::new(),
            wrong: Vec::new(),
            durations: Durations::default(),
            more: Map::new(),
            shares: Vec::new(),
        }
    }

    /// Adds a line. Lines without a source, kind or language count under `none`.
    pub(super) fn add(&mut self, line: LineResult<'_>) {
        add(&mut self.all, line.counts);
        let name = |label: &Option<String>| label.clone().unwrap_or_else(|| "none".to_owned());
        for (groups, group) in [
            (&mut self.by_set, line.set.to_owned()),
            (&mut self.by_source, name(&line.meta.source)),
            (&mut self.by_kind, name(&line.meta.kind)),
            (&mut self.by_lang, name(&line.meta.lang)),
        ] {
            add(groups.entry(group).or_default(), line.counts);
        }
        if line.is_wrong {
            let Detection {
                false_positives,
                false_negatives,
                ..
            } = line.counts.lines;
            self.wrong.push(WrongLine {
                way: match (false_negatives, false_positives) {
                    (0, 0) => WrongWay::Otherwise,
                    (0, _) => WrongWay::FalseAlarm,
                    _ => WrongWay::Missed,
                },
                set: line.set.to_owned(),
                id: line.meta.id.clone(),
                expected: line.expected,
                got: line.got,
                text: is_shown(line.set).then(|| line.text.to_owned()),
            });
        }
    }

    /// Returns whether any line was measured.
    pub(super) fn is_empty(&self) -> bool {
        self.by_set.is_empty()
    }

    /// Returns the number that `--min` limits: F1, or the share of handled questions; of the
    /// held-out lines, if they were measured.
    pub(super) fn score(&self) -> f64 {
        let counts = self.by_set.get(HELDOUT_SET).unwrap_or(&self.all);
        match counts.handled.share() {
            Some(share) => share,
            None => counts.lines.f1().unwrap_or(0.0),
        }
    }

    /// Returns the JSON report. All but `times` is the same on every run.
    pub(super) fn to_json(&self, failures: bool) -> Value {
        let mut object = match self.all.to_json() {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        object.insert("eval".to_owned(), self.name.into());
        for (name, groups) in [
            ("by_set", &self.by_set),
            ("by_source", &self.by_source),
            ("by_kind", &self.by_kind),
            ("by_lang", &self.by_lang),
        ] {
            object.insert(name.to_owned(), groups_json(groups));
        }
        object.extend(self.more.clone());
        if failures {
            object.insert("failures".to_owned(), json!(self.wrong));
        }
        object.insert("times".to_owned(), self.durations.to_json());
        object.into()
    }

    /// Returns the report as text for people. With `failures`, it lists the wrong lines.
    pub(super) fn to_text(&self, failures: bool) -> String {
        let mut text = format!("{} (positive: {})\n", self.name, self.positive);
        text += &counts_text(&self.all);
        for (name, share) in &self.shares {
            text += &format!("  {name:<22} {}\n", share.to_text());
        }
        for (heading, groups) in [
            ("by set", &self.by_set),
            ("by source", &self.by_source),
            ("by kind", &self.by_kind),
            ("by language", &self.by_lang),
        ] {
            text += &format!("\n  {heading}\n");
            for (name, counts) in groups {
                text += &format!("    {name:<20} {}\n", counts.as_labelled().to_text());
            }
        }
        let [first, median, p99] = self.durations.microseconds();
        text += &format!("\n  time: first {first:.0} µs, p50 {median:.0} µs, p99 {p99:.0} µs");
        for line in self.wrong.iter().filter(|_| failures) {
            text += &format!(
                "\n  {} {}: expected {}, got {}",
                line.set, line.id, line.expected, line.got
            );
            text.extend(line.text.iter().map(|shown| format!("\n      {shown}")));
        }
        text
    }
}

fn counts_text(counts: &GroupCounts) -> String {
    let f1 = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), percent);
    let lines = counts.lines;
    let mut rows = vec![
        ("precision", lines.precision().to_text()),
        ("recall", lines.recall().to_text()),
        ("false-positive rate", lines.false_positive_rate().to_text()),
        ("F1", f1(lines.f1())),
        ("as labelled", counts.as_labelled().to_text()),
    ];
    if counts.spans != Default::default() {
        rows.push(("precision of places", counts.spans.found.to_text()));
        rows.push(("recall of places", counts.spans.labelled.to_text()));
        rows.push(("F1 of places", f1(counts.spans.f1())));
    }
    let rows = rows
        .into_iter()
        .map(|(name, value)| format!("  {name:<22} {value}\n"));
    rows.collect()
}
