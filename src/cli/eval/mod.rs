//! `callboard eval`: accuracy of routing decisions, with confidence intervals.

mod cases;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use callboard_orchestration::decide::RoutingContext;
use callboard_orchestration::decide::intake::RoutingDecision;
use cases::{EvalCase, EvalDataset, EvalSystem, RoutingResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(super) use cases::EvalCaseError;

use super::{
    CommandError, CommandResult, EXIT_ANSWERED, EXIT_FAILED, output, run_until_interrupted,
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum EvalCommand {
    /// Measure the routing of labelled requests: accuracy with its 95 % interval, and the confusion
    /// matrix. Exit code: 0 measured, 2 usage, 4 failed, or below `--min`.
    Routing(RoutingArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct RoutingArguments {
    /// Requests to use: those for development (dev), those for measurement (heldout), or both.
    #[arg(long, value_enum, default_value_t = EvalSet::Both)]
    set: EvalSet,
    /// Decider: `rules`, or the id of an orchestrator of --topology.
    #[arg(long, value_name = "rules|ID", default_value = cases::RULES)]
    by: String,
    /// Topology file (TOML or YAML) with that orchestrator. Its listeners stay closed.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Folder with other requests: world.json, routing_dev.jsonl, routing_heldout.jsonl.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// Also list misrouted requests; with texts for the development requests only.
    #[arg(long)]
    failures: bool,
    /// Fail below this accuracy (0 to 1) of the held-out requests, or of the development requests
    /// if only those are used.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    min: Option<f64>,
}

/// Choice of request files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum EvalSet {
    Dev,
    Heldout,
    Both,
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a number from 0 to 1".to_owned()),
    }
}

/// Runs `callboard eval`.
pub(super) async fn run(EvalCommand::Routing(arguments): EvalCommand) -> CommandResult {
    run_until_interrupted(evaluate_routing(arguments)).await
}

async fn evaluate_routing(arguments: RoutingArguments) -> CommandResult {
    let RoutingArguments {
        set,
        by,
        topology,
        dir,
        json,
        failures,
        min,
    } = arguments;
    let EvalDataset {
        context: world,
        dev,
        heldout,
    } = EvalDataset::read(dir.as_deref())?;
    let parts = [
        ("dev", dev, EvalSet::Heldout),
        (HELDOUT_SET, heldout, EvalSet::Dev),
    ];
    let wanted = parts
        .into_iter()
        .filter(|(_, cases, other)| *other != set && !cases.is_empty());
    let router = EvalSystem::start(&by, topology.as_deref()).await?;
    let measuring = async {
        let mut measured = Vec::new();
        for (name, cases, _) in wanted {
            let begun = Instant::now();
            let routed = router.route(&cases, &world).await?;
            measured.push(SetReport::measure(
                name,
                cases,
                routed,
                &world,
                begun.elapsed(),
            ));
        }
        Ok::<_, CommandError>(measured)
    };
    let measured = measuring.await;
    router.stop().await;
    let measured = measured?;
    let last = measured
        .last()
        .ok_or_else(|| CommandError::usage("there are no requests of that set"))?;
    let is_enough = min.is_none_or(|min| last.all.accuracy() >= min);
    match json {
        true => output::print_json(&report_json(&by, &measured, failures))?,
        false => output::print_line(report_text(&by, &measured, failures))?,
    }
    Ok(if is_enough {
        EXIT_ANSWERED
    } else {
        EXIT_FAILED
    })
}

/// Class of a routing decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RouteClass {
    Local,
    Remote,
    Reject,
    Clarify,
    Decompose,
}

impl RouteClass {
    /// Names of all classes, in order.
    const NAMES: [&str; 5] = ["local", "remote", "reject", "clarify", "decompose"];

    const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    fn parse(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }

    /// Returns the class of a decision and its target: the tool of a local decision, the agent of a
    /// remote one, `None` for other classes.
    fn of_decision(decision: &RoutingDecision) -> (Self, Option<&str>) {
        match decision {
            RoutingDecision::Local { tool_name, .. } => (Self::Local, Some(tool_name)),
            RoutingDecision::Remote { agent_id } => (Self::Remote, Some(agent_id)),
            RoutingDecision::Reject { .. } => (Self::Reject, None),
            RoutingDecision::NeedsClarification { .. } => (Self::Clarify, None),
            RoutingDecision::Decompose { .. } => (Self::Decompose, None),
        }
    }

    /// Returns the class that an entry of `also` ([`EvalCase::also`]) stands for: itself if it is a
    /// class, local for a tool, remote for an agent; `None` for another text.
    fn from_also(entry: &str, world: &RoutingContext) -> Option<Self> {
        match Self::parse(entry) {
            Some(class) => Some(class),
            None if world.tool(entry).is_some() => Some(Self::Local),
            None if world.agent(entry).is_some() => Some(Self::Remote),
            None => None,
        }
    }
}

/// Ratio of two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Proportion {
    correct: usize,
    all: usize,
}

impl Proportion {
    fn add(&mut self, is_right: bool) {
        self.all += 1;
        self.correct += usize::from(is_right);
    }

    /// Returns the ratio, 0 to 1; 0 for an empty set.
    fn accuracy(self) -> f64 {
        if self.all == 0 {
            0.0
        } else {
            self.correct as f64 / self.all as f64
        }
    }

    /// Returns lower and upper end of the 95 % interval after Wilson (1927), which holds for small
    /// sets and extreme ratios too. For an empty set they are 0 and 1.
    fn interval(self) -> [f64; 2] {
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
}

/// Misrouted request.
#[derive(Debug, Serialize)]
struct RoutingMiss {
    id: String,
    expected: String,
    got: String,
    /// Text of the request; `None` for held-out requests, so that no rules are written for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// Name of the set of held-out requests.
const HELDOUT_SET: &str = "heldout";

/// Number of folds for the spread of the accuracy.
const FOLDS: usize = 5;

/// Results for one set of requests.
#[derive(Debug, Default)]
struct SetReport {
    name: &'static str,
    all: Proportion,
    /// Accuracy of the class alone: the tool or agent may be another than expected.
    class_only: Proportion,
    /// Confusion matrix: number of requests. Row: expected class, column: decided class, in the
    /// order of [`RouteClass::NAMES`].
    confusion: [[usize; 5]; 5],
    by_lang: BTreeMap<String, Proportion>,
    tricky: Proportion,
    /// Accuracy of each fold. Requests are dealt to folds in turn.
    folds: [Proportion; FOLDS],
    misses: Vec<RoutingMiss>,
    decisions: usize,
    fallbacks: usize,
    micro_usd: u64,
    elapsed: Duration,
}

impl SetReport {
    fn measure(
        name: &'static str,
        cases: Vec<EvalCase>,
        routed: Vec<RoutingResult>,
        world: &RoutingContext,
        took: Duration,
    ) -> Self {
        let mut part = Self {
            name,
            elapsed: took,
            ..Self::default()
        };
        for (at, (case, routed)) in cases.into_iter().zip(routed).enumerate() {
            let (class, target) = RouteClass::of_decision(&routed.decision);
            let is_right = is_correct(&case, class, target);
            let is_implied = |also: &String| RouteClass::from_also(also, world) == Some(class);
            part.all.add(is_right);
            part.class_only
                .add(class == case.expect || case.also.iter().any(is_implied));
            part.confusion[case.expect as usize][class as usize] += 1;
            part.by_lang.entry(case.lang).or_default().add(is_right);
            if case.tricky {
                part.tricky.add(is_right);
            }
            part.folds[at % FOLDS].add(is_right);
            part.decisions += routed.decisions;
            part.fallbacks += routed.fallbacks;
            part.micro_usd += routed.micro_usd;
            if is_right {
                continue;
            }
            let named = |class: RouteClass, target: Option<&str>| match target {
                Some(target) => format!("{} {target}", class.as_str()),
                None => class.as_str().to_owned(),
            };
            let (expected, got) = (
                named(case.expect, case.target.as_deref()),
                named(class, target),
            );
            let text = (name != HELDOUT_SET).then_some(case.text);
            part.misses.push(RoutingMiss {
                id: case.id,
                expected,
                got,
                text,
            });
        }
        part
    }
}

/// Returns whether class and, for local and remote, target are as expected, or one of `also`.
fn is_correct(case: &EvalCase, class: RouteClass, target: Option<&str>) -> bool {
    let expected =
        class == case.expect && (case.target.is_none() || case.target.as_deref() == target);
    expected
        || case
            .also
            .iter()
            .any(|also| target == Some(also.as_str()) || RouteClass::parse(also) == Some(class))
}

/// Returns the JSON report: `by` (the decider), and each set by its name. With `failures`, a set
/// lists its misrouted requests.
fn report_json(by: &str, parts: &[SetReport], failures: bool) -> Value {
    let mut all = json!({ "by": by });
    for part in parts {
        all[part.name] = set_json(part, failures);
    }
    all
}

fn set_json(part: &SetReport, failures: bool) -> Value {
    let by_lang: Map<String, Value> = part
        .by_lang
        .iter()
        .map(|(lang, share)| (lang.clone(), share_json(*share)))
        .collect();
    let mut value = json!({
        "n": part.all.all,
        "correct": part.all.correct,
        "accuracy": round_share(part.all.accuracy()),
        "interval": part.all.interval().map(round_share),
        "classes": RouteClass::NAMES,
        "confusion": part.confusion,
        "by_lang": by_lang,
        "tricky": share_json(part.tricky),
        "class_accuracy": round_share(part.class_only.accuracy()),
        "folds": part.folds.map(|fold| round_share(fold.accuracy())),
        "decisions": part.decisions,
        "fallbacks": part.fallbacks,
        "decisions_per_s": decisions_per_second(part).round(),
        "micro_usd": part.micro_usd,
    });
    if failures {
        value["failures"] = json!(part.misses);
    }
    value
}

fn share_json(share: Proportion) -> Value {
    json!({"n": share.all, "correct": share.correct, "accuracy": round_share(share.accuracy()), "interval": share.interval().map(round_share)})
}

/// Rounds to four decimal places.
fn round_share(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}

fn decisions_per_second(part: &SetReport) -> f64 {
    part.decisions as f64 / part.elapsed.as_secs_f64().max(1e-9)
}

/// Returns the report as text for people. With `failures`, it lists the misrouted requests.
fn report_text(by: &str, parts: &[SetReport], failures: bool) -> String {
    let texts = parts.iter().map(|part| set_text(part, failures));
    format!("Routing, decided by {by}{}", texts.collect::<String>())
}

fn set_text(part: &SetReport, failures: bool) -> String {
    let SetReport {
        name,
        decisions,
        fallbacks,
        ..
    } = part;
    let mut text = format!(
        "\n\n{name}: {}\n  class alone   {}\n",
        share_text(part.all),
        share_text(part.class_only)
    );
    for (lang, share) in &part.by_lang {
        text += &format!("  {lang:<13} {}\n", share_text(*share));
    }
    let folds = part.folds.map(Proportion::accuracy);
    let (low, high) = (
        folds.into_iter().fold(1.0, f64::min),
        folds.into_iter().fold(0.0, f64::max),
    );
    let (each_second, usd) = (decisions_per_second(part), part.micro_usd as f64 / 1e6);
    text += &format!("  tricky        {}\n", share_text(part.tricky));
    text += &format!("  five parts    {} to {}\n", percent(low), percent(high));
    text += &format!(
        "  {decisions} decisions, {each_second:.0} a second, {fallbacks} by fallback, {usd:.4} USD\n"
    );
    text += &format!("\n  {:<22}", "expected \\ got");
    text.extend(RouteClass::NAMES.map(|class| format!("{class:>10}")));
    for (class, row) in RouteClass::NAMES.into_iter().zip(part.confusion) {
        text += &format!("\n  {class:<22}");
        text.extend(row.map(|count| format!("{count:>10}")));
    }
    for RoutingMiss {
        id,
        expected,
        got,
        text: request,
    } in part.misses.iter().filter(|_| failures)
    {
        text += &format!("\n  {id}: expected {expected}, got {got}");
        text.extend(request.iter().map(|request| format!("\n      {request}")));
    }
    text
}

fn share_text(share: Proportion) -> String {
    let [low, high] = share.interval();
    let Proportion {
        correct: right,
        all,
    } = share;
    format!(
        "{} ({right} of {all}; 95 %: {} to {})",
        percent(share.accuracy()),
        percent(low),
        percent(high)
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
