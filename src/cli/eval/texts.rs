//! Texts with a label: doses, advice, personal data and prompt injections, each judged by the rule
//! that has to find it.

use std::ops::Range;
use std::time::{Duration, Instant};

use callboard_clinics::verifier::{Identities, Rule, Verified, Verify};
use callboard_guardrail::{RuleSet, TextOrigin};
use serde_json::{Value, json};

use super::metrics::{Detection, GroupCounts};
use super::privacy::{LabelledSpan, compare_spans, parse_spans, personal_ranges};
use super::results::{EvalResults, LineResult};
use super::sets::{BuiltInLines, LabelledSet, LineFields, LineMeta, SetArguments, read_sets};
use crate::cli::CommandError;

/// Evaluation of labelled texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextEval {
    /// Altered doses and treatments: rule R1.
    Doses,
    /// Medical advice: rule R3, and for text of a record also the guardrail.
    Scope,
    /// Personal data: rule R2.
    Privacy,
    /// Prompt injections: the guardrail.
    Guard,
}

/// Place where a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextPlace {
    /// The system's own words.
    Answer,
    /// Free text of a clinic's record.
    Record,
    /// A user's request.
    User,
    /// Result of a tool or another agent.
    ToolResult,
}

/// Labelled text.
#[derive(Debug)]
pub(super) struct TextCase {
    meta: LineMeta,
    text: String,
    records: Vec<Value>,
    place: TextPlace,
    is_positive: bool,
    spans: Vec<LabelledSpan>,
}

/// Judgement of a text.
#[derive(Debug, Default)]
struct Judgement {
    is_flagged: bool,
    /// Places that were found, in characters.
    ranges: Vec<Range<usize>>,
    took: Duration,
}

macro_rules! built_in {
    ($name:literal) => {
        BuiltInLines {
            name: $name,
            dev: include_str!(concat!("../../../examples/eval/", $name, "_dev.jsonl")),
            heldout: include_str!(concat!("../../../examples/eval/", $name, "_heldout.jsonl")),
        }
    };
}

impl TextEval {
    pub(super) const ALL: [Self; 4] = [Self::Doses, Self::Scope, Self::Privacy, Self::Guard];

    fn built_in(self) -> BuiltInLines {
        match self {
            Self::Doses => built_in!("doses"),
            Self::Scope => built_in!("scope"),
            Self::Privacy => built_in!("privacy"),
            Self::Guard => built_in!("guard"),
        }
    }

    /// Returns the descriptions of a positive line and of a negative one.
    const fn labels(self) -> [&'static str; 2] {
        match self {
            Self::Doses => ["altered", "true"],
            Self::Scope => ["advice", "harmless"],
            Self::Privacy => ["personal data", "none"],
            Self::Guard => ["attack", "harmless"],
        }
    }

    /// Reads a line of the evaluation.
    ///
    /// # Errors
    /// The first field that is wrong, with its remedy.
    pub(super) fn parse(self, line: LineFields) -> Result<TextCase, String> {
        let text = line.text("text")?;
        let records = line.items("records")?.cloned();
        let mut spans = Vec::new();
        let (is_positive, place) = match self {
            Self::Doses => {
                if records.is_none() {
                    return Err(
                        "`records` is missing: write the clinics' answers as an array".to_owned(),
                    );
                }
                let is_altered = line.one_of("label", &[("altered", true), ("true", false)])?;
                (is_altered, TextPlace::Answer)
            }
            Self::Scope => {
                let places = [("answer", TextPlace::Answer), ("record", TextPlace::Record)];
                let is_advice = line.one_of("label", &[("advice", true), ("harmless", false)])?;
                (is_advice, line.one_of("place", &places)?)
            }
            Self::Privacy => {
                let items = line.items("spans")?;
                let items = items.ok_or(
                    "`spans` is missing: write an array of [start, end, \"TYPE\"], [] for none",
                )?;
                spans = parse_spans(items, &text)?;
                let is_personal = spans.iter().any(|span| span.is_personal);
                (is_personal, TextPlace::Answer)
            }
            Self::Guard => {
                let labels = [("1", true), ("0", false), ("true", true), ("false", false)];
                let places = [
                    ("user", TextPlace::User),
                    ("tool_result", TextPlace::ToolResult),
                ];
                let place = match line.has("place") {
                    true => line.one_of("place", &places)?,
                    false => TextPlace::User,
                };
                (line.one_of("label", &labels)?, place)
            }
        };
        let mut meta = line.meta();
        if self == Self::Guard && meta.kind.is_none() {
            meta.kind = line.label("family");
        }
        Ok(TextCase {
            meta,
            text,
            records: records.unwrap_or_default(),
            place,
            is_positive,
            spans,
        })
    }

    fn judge(self, case: &TextCase, rules: &RuleSet) -> Judgement {
        match self {
            Self::Guard => judge_by_guardrail(case, rules),
            Self::Scope if case.place == TextPlace::Record => judge_record(case, rules),
            Self::Scope => judge_answer(case, Rule::R3),
            Self::Doses => judge_answer(case, Rule::R1),
            Self::Privacy => judge_privacy(case),
        }
    }

    /// Measures the lines that `arguments` name.
    ///
    /// # Errors
    /// A line that is wrong, or a rule of the guardrail that can't be used.
    pub(super) fn measure(self, arguments: &SetArguments) -> Result<EvalResults, CommandError> {
        let sets = read_sets(arguments, self.built_in(), |line| self.parse(line))?;
        let rules = RuleSet::with_custom(&[]).map_err(CommandError::failed)?;
        let mut results = EvalResults::new(self.name(), self.labels()[0]);
        for set in &sets {
            for case in &set.cases {
                self.measure_case(set, case, &rules, &mut results);
            }
        }
        Ok(results)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Doses => "doses",
            Self::Scope => "scope",
            Self::Privacy => "privacy",
            Self::Guard => "guard",
        }
    }

    fn measure_case(
        self,
        set: &LabelledSet<TextCase>,
        case: &TextCase,
        rules: &RuleSet,
        results: &mut EvalResults,
    ) {
        let judgement = self.judge(case, rules);
        let mut lines = Detection::default();
        lines.add(case.is_positive, judgement.is_flagged);
        let spans = compare_spans(&case.spans, &judgement.ranges);
        let is_partial = self == Self::Privacy && spans.labelled.correct < spans.labelled.all;
        let [positive, negative] = self.labels();
        let label = |is_positive: bool| match is_positive {
            true => positive.to_owned(),
            false => negative.to_owned(),
        };
        let got = match is_partial && judgement.is_flagged {
            true => format!(
                "{} of {} places",
                spans.labelled.correct, spans.labelled.all
            ),
            false => label(judgement.is_flagged),
        };
        results.durations.add(judgement.took);
        results.add(LineResult {
            set: &set.name,
            meta: &case.meta,
            text: &case.text,
            expected: label(case.is_positive),
            got,
            is_wrong: is_partial || case.is_positive != judgement.is_flagged,
            counts: GroupCounts {
                lines,
                spans,
                ..GroupCounts::default()
            },
        });
    }
}

/// Returns whether the verdict has a finding of the rule, or couldn't check the answer.
fn breaks(verified: &Verified, rule: Rule) -> bool {
    let verdict = &verified.verdict;
    let is_unchecked = !verdict.safe && verdict.rule.is_none();
    is_unchecked || verdict.findings.iter().any(|finding| finding.rule == rule)
}

/// Checks the text as the final text of an answer to a caller who may not see identities. Returns
/// the result and the time that it took.
fn verify(text: &str, records: Vec<Value>, results: Value) -> (Verified, Duration) {
    let message = Verify {
        records,
        results,
        text: text.to_owned(),
        identities: Identities::Withheld,
    };
    let begun = Instant::now();
    let verified = message.check();
    (verified, begun.elapsed())
}

fn judge_answer(case: &TextCase, rule: Rule) -> Judgement {
    let (verified, took) = verify(&case.text, case.records.clone(), Value::Null);
    Judgement {
        is_flagged: breaks(&verified, rule),
        took,
        ranges: Vec::new(),
    }
}

/// Judges free text of a record as the pipeline does: the guardrail screens the clinic's answer, and
/// the verifier the result and the text that shows it. Anything that withholds the record counts.
fn judge_record(case: &TextCase, rules: &RuleSet) -> Judgement {
    let record = json!({ "patient": { "patient_id": "EVAL-001", "notes": case.text } });
    let begun = Instant::now();
    let screened = format!("patient\npatient_id\nEVAL-001\nnotes\n{}", case.text);
    let is_blocked = rules.screen(&screened, TextOrigin::ToolResult).blocked;
    let screening = begun.elapsed();
    let text = format!("   patient_id: EVAL-001\n   notes: {}", case.text);
    let mut records = case.records.clone();
    records.push(record.clone());
    let (verified, verifying) = verify(&text, records, record);
    Judgement {
        is_flagged: is_blocked || !verified.verdict.safe || breaks(&verified, Rule::R3),
        took: screening + verifying,
        ranges: Vec::new(),
    }
}

fn judge_privacy(case: &TextCase) -> Judgement {
    let begun = Instant::now();
    let ranges = personal_ranges(&case.text, &case.records);
    Judgement {
        is_flagged: !ranges.is_empty(),
        took: begun.elapsed(),
        ranges,
    }
}

fn judge_by_guardrail(case: &TextCase, rules: &RuleSet) -> Judgement {
    let origin = match case.place {
        TextPlace::ToolResult => TextOrigin::ToolResult,
        _ => TextOrigin::User,
    };
    let begun = Instant::now();
    let is_flagged = rules.screen(&case.text, origin).blocked;
    Judgement {
        is_flagged,
        took: begun.elapsed(),
        ranges: Vec::new(),
    }
}
