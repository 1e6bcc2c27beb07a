//! `callboard eval clinics`: labelled questions through the whole pipeline, with faults injected.

mod cases;
mod faults;
mod federation;
mod outcome;
mod pipeline_log;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use callboard_clinics::plan::ClinicRegistry;
use serde_json::json;

use super::metrics::{Detection, GroupCounts, Proportion};
use super::results::{EvalResults, LineResult};
use super::sets::{BuiltInLines, LabelledSet, SetArguments, read_sets};
use crate::cli::CommandError;
use cases::ClinicCase;
use faults::{FaultDice, FaultSource};
use federation::{Federation, QuestionTrace, example_registry};
use outcome::{ShownAnswer, is_fault_caught, is_handled};
use pipeline_log::{BlueprintMeasures, LoggedVerdict, PipelineRecord, hash_text};

/// Lines that come with callboard.
const BUILT_IN: BuiltInLines = BuiltInLines {
    name: "clinics",
    dev: include_str!("../../../../examples/eval/clinics_dev.jsonl"),
    heldout: include_str!("../../../../examples/eval/clinics_heldout.jsonl"),
};

#[derive(Debug, Clone, clap::Args)]
pub(in crate::cli) struct ClinicsArguments {
    #[command(flatten)]
    pub(super) sets: SetArguments,
    /// Stage to leave out, to see what it is good for.
    #[arg(long, value_enum)]
    without: Option<LeftOutStage>,
    /// Fault of the text of answers, injected at known places: then the numbers are about faults
    /// found, with the unchanged answers as negatives.
    #[arg(long, value_enum, default_value_t = ComposerFault::Honest)]
    composer: ComposerFault,
    /// Fault of the first clinic that is asked; the numbers are about faults found.
    #[arg(long, value_enum, default_value_t = ClinicFault::Honest, conflicts_with = "composer")]
    clinic: ClinicFault,
    /// Seed of the faults. The same seed gives the same faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LeftOutStage {
    Verifier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ComposerFault {
    Honest,
    Hallucinating,
    Leaking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ClinicFault {
    Honest,
    Hostile,
}

impl ClinicsArguments {
    /// Creates the arguments of a run with a fault, or an honest one.
    pub(super) fn with_fault(sets: &SetArguments, run: ClinicRun) -> Self {
        let mut arguments = Self {
            sets: sets.clone(),
            without: None,
            composer: ComposerFault::Honest,
            clinic: ClinicFault::Honest,
            seed: 1,
        };
        match run {
            ClinicRun::Honest => {}
            ClinicRun::Hallucinating => arguments.composer = ComposerFault::Hallucinating,
            ClinicRun::Leaking => arguments.composer = ComposerFault::Leaking,
            ClinicRun::Hostile => arguments.clinic = ClinicFault::Hostile,
            ClinicRun::WithoutVerifier => arguments.without = Some(LeftOutStage::Verifier),
        }
        arguments
    }

    fn fault(&self) -> Option<FaultSource> {
        match (self.composer, self.clinic) {
            (ComposerFault::Hallucinating, _) => Some(FaultSource::HallucinatingComposer),
            (ComposerFault::Leaking, _) => Some(FaultSource::LeakingComposer),
            (_, ClinicFault::Hostile) => Some(FaultSource::HostileClinic),
            _ => None,
        }
    }

    /// Returns the name of the results: `clinics`, or that with the fault and what is left out.
    fn name(&self) -> &'static str {
        match (self.fault(), self.without.is_some()) {
            (None, false) => "clinics",
            (None, true) => "clinics without verifier",
            (Some(FaultSource::HallucinatingComposer), false) => "clinics, hallucinating composer",
            (Some(FaultSource::HallucinatingComposer), true) => {
                "clinics without verifier, hallucinating composer"
            }
            (Some(FaultSource::LeakingComposer), false) => "clinics, leaking composer",
            (Some(FaultSource::LeakingComposer), true) => {
                "clinics without verifier, leaking composer"
            }
            (Some(FaultSource::HostileClinic), false) => "clinics, hostile clinic",
            (Some(FaultSource::HostileClinic), true) => "clinics without verifier, hostile clinic",
        }
    }
}

/// Runs of the clinics that a report of everything has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClinicRun {
    Honest,
    WithoutVerifier,
    Hallucinating,
    Leaking,
    Hostile,
}

impl ClinicRun {
    pub(super) const ALL: [Self; 5] = [
        Self::Honest,
        Self::WithoutVerifier,
        Self::Hallucinating,
        Self::Leaking,
        Self::Hostile,
    ];
}

/// Results of the clinics, and the log of the pipeline.
pub(super) struct ClinicsResults {
    pub(super) results: EvalResults,
    log: Vec<PipelineRecord>,
}

impl ClinicsResults {
    /// Writes the log to `pipeline_YYYYMMDD.jsonl` in the folder, by today's date in UTC.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn write_log(&self, folder: &Path) -> Result<(), CommandError> {
        let mut text = String::new();
        for record in &self.log {
            text += &serde_json::to_string(record).map_err(CommandError::failed)?;
            text.push('\n');
        }
        let file = folder.join(format!("pipeline_{}.jsonl", today()));
        fs::write(&file, text).map_err(|error| CommandError::file(&file, error))
    }
}

/// Returns today's date in UTC as `YYYYMMDD`.
fn today() -> String {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    date_of_day(since.map_or(0, |since| since.as_secs() / 86_400))
}

/// Returns the date of a day, counted from 1970-01-01, as `YYYYMMDD` (Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms").
fn date_of_day(day: u64) -> String {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let part = (5 * of_year + 2) / 153;
    let month = if part < 10 { part + 3 } else { part - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}{month:02}{:02}",
        of_year - (153 * part + 2) / 5 + 1
    )
}

/// Measures the questions that `arguments` name, one after the other.
///
/// # Errors
/// A line that is wrong, or a question that isn't answered in time.
pub(super) async fn measure(arguments: &ClinicsArguments) -> Result<ClinicsResults, CommandError> {
    let registry = example_registry()?;
    let sets = read_sets(&arguments.sets, BUILT_IN, |line| {
        let ids: Vec<&str> = registry.clinics().iter().map(|c| c.id.as_str()).collect();
        ClinicCase::parse(&line, &ids)
    })?;
    let federation = Federation::start(arguments.without.is_none()).await?;
    let measuring = async {
        match arguments.fault() {
            None => measure_questions(&federation, &sets, arguments.name()).await,
            Some(source) => measure_faults(&federation, &sets, arguments, source).await,
        }
    };
    let measured = measuring.await;
    federation.stop().await;
    measured
}

/// Asks every question, and judges whether it was handled as labelled. Questions that must not be
/// answered are positive.
async fn measure_questions(
    federation: &Federation,
    sets: &[LabelledSet<ClinicCase>],
    name: &'static str,
) -> Result<ClinicsResults, CommandError> {
    let mut results = EvalResults::new(name, "not to be answered");
    let (mut log, mut leaked) = (Vec::new(), Proportion::default());
    for (set, case) in cases_of(sets) {
        let (answer, trace) = federation.ask(&case.question, &case.down, None).await?;
        let shown = ShownAnswer::new(&answer);
        let is_right = is_handled(case, &shown, &trace, &federation.registry);
        leaked.add(shown.leaks(&federation.patients));
        let mut counts = GroupCounts::default();
        counts
            .lines
            .add(case.expect.is_withheld(), !shown.is_given());
        counts.handled.add(is_right);
        if let Some(took) = trace.verifying {
            results.durations.add(took);
        }
        results.add(LineResult {
            set: &set.name,
            meta: &case.meta,
            text: &case.question,
            expected: expected_text(case),
            got: got_text(&shown, &trace.asked),
            is_wrong: !is_right,
            counts,
        });
        log.push(PipelineRecord {
            id: case.meta.id.clone(),
            question: hash_text(&case.question),
            plan: trace.plan.iter().map(Into::into).collect(),
            steps: trace.outcomes.iter().map(Into::into).collect(),
            status: shown.status,
            verdict: trace.verdict.as_ref().map(LoggedVerdict::from),
            answer: hash_text(&shown.text),
            is_handled: is_right,
            times_ms: answer.times_ms(),
        });
    }
    add_measures(&mut results, &log, leaked, &federation.registry);
    Ok(ClinicsResults { results, log })
}

fn cases_of(
    sets: &[LabelledSet<ClinicCase>],
) -> impl Iterator<Item = (&LabelledSet<ClinicCase>, &ClinicCase)> {
    sets.iter()
        .flat_map(|set| set.cases.iter().map(move |case| (set, case)))
}

/// Adds the blueprint's measures, and the honest ones beside them.
fn add_measures(
    results: &mut EvalResults,
    log: &[PipelineRecord],
    leaked: Proportion,
    registry: &ClinicRegistry,
) {
    let measures = BlueprintMeasures::compute(log, registry);
    let handled = results.all.handled;
    let honest = json!({ "task_success": handled.to_json(), "leaked": leaked.to_json() });
    let more = [("formulas", measures.to_json()), ("honest", honest)];
    results
        .more
        .extend(more.map(|(name, value)| (name.to_owned(), value)));
    let shares = [
        ("handled as labelled", handled),
        ("personal data shown", leaked),
        ("TSR by the formula", measures.tsr),
        ("TCA by the formula", measures.tca),
        ("HR by the formula", measures.hr),
        ("PVR by the formula", measures.pvr),
    ];
    results
        .shares
        .extend(shares.map(|(name, share)| (name.to_owned(), share)));
}

fn expected_text(case: &ClinicCase) -> String {
    let patients = case
        .patients
        .as_ref()
        .map(|ids| format!(", {} patients", ids.len()));
    format!("{}{}", case.expect.as_str(), patients.unwrap_or_default())
}

fn got_text(shown: &ShownAnswer, asked: &BTreeSet<String>) -> String {
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    format!(
        "{}, {} patients of [{}]",
        shown.status,
        shown.patients().len(),
        asked.join(" ")
    )
}

/// Asks every question twice, without a fault and with one. A faulty answer is positive; an
/// unchanged one, if the verifier saw results of clinics, is negative and flagged if it is withheld.
async fn measure_faults(
    federation: &Federation,
    sets: &[LabelledSet<ClinicCase>],
    arguments: &ClinicsArguments,
    source: FaultSource,
) -> Result<ClinicsResults, CommandError> {
    let mut results = EvalResults::new(arguments.name(), "faulty answer");
    for (at, (set, case)) in cases_of(sets).enumerate() {
        let (answer, honest) = federation.ask(&case.question, &case.down, None).await?;
        if !honest.outcomes.is_empty() {
            let is_withheld = honest.verdict.as_ref().is_some_and(|verdict| !verdict.safe);
            let got = got_text(&ShownAnswer::new(&answer), &honest.asked);
            add_fault(&mut results, set, case, (None, is_withheld), got);
        }
        let fault = Some((source, FaultDice::new(arguments.seed, at)));
        let (answer, faulty) = federation.ask(&case.question, &case.down, fault).await?;
        let QuestionTrace {
            injected: Some(injected),
            ..
        } = &faulty
        else {
            continue;
        };
        let shown = ShownAnswer::new(&answer);
        let is_caught = is_fault_caught(&shown, &faulty);
        if let Some(took) = faulty.verifying {
            results.durations.add(took);
        }
        let got = got_text(&shown, &faulty.asked);
        add_fault(
            &mut results,
            set,
            case,
            (Some(injected.kind), is_caught),
            got,
        );
    }
    Ok(ClinicsResults {
        results,
        log: Vec::new(),
    })
}

/// Adds an answer to the results of faults, under the kind of its fault, `None` for an unchanged
/// answer, with whether it was flagged.
fn add_fault(
    results: &mut EvalResults,
    set: &LabelledSet<ClinicCase>,
    case: &ClinicCase,
    (kind, is_flagged): (Option<&'static str>, bool),
    got: String,
) {
    let mut lines = Detection::default();
    lines.add(kind.is_some(), is_flagged);
    let mut meta = case.meta.clone();
    let kind_name = kind.unwrap_or("unchanged");
    meta.kind = Some(kind_name.to_owned());
    results.add(LineResult {
        set: &set.name,
        meta: &meta,
        text: &case.question,
        expected: kind.map_or("shown".to_owned(), |kind| format!("{kind} found")),
        got,
        is_wrong: kind.is_some() != is_flagged,
        counts: GroupCounts {
            lines,
            ..GroupCounts::default()
        },
    });
}
