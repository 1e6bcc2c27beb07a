//! `callboard eval routing`: accuracy of routing decisions, with confidence intervals.

mod cases;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use callboard_orchestration::decide::RoutingContext;
use callboard_orchestration::decide::intake::RoutingDecision;
use cases::{EvalCase, EvalDataset, EvalSystem, RoutingResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::metrics::{Detection, GroupCounts, Proportion, percent, round_share};
use super::results::{EvalResults, LineResult};
use super::sets::{DEV_SET, EvalSet, HELDOUT_SET, LineMeta, is_shown, parse_share};
use crate::cli::{CommandError, CommandResult, EXIT_ANSWERED, EXIT_FAILED, output};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RoutingArguments {
    /// JSON Lines files of requests to use instead of those that come with callboard. Their tools
    /// and agents are those of `world.json`.
    #[arg(value_name = "FILE", conflicts_with = "set")]
    files: Vec<PathBuf>,
    /// Requests to use: those for development (dev), those for measurement (heldout), or both.
    #[arg(long, value_enum, default_value_t = EvalSet::Both)]
    set: EvalSet,
    /// Decider: `rules`, or the id of an orchestrator of --topology.
    #[arg(long, value_name = "rules|ID", default_value = cases::RULES)]
    by: String,
    /// Topology file (TOML or YAML) with that orchestrator. Its listeners stay closed.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Folder with other requests: world.json, routing_dev.jsonl, routing_heldout.jsonl. With
    /// FILE, only its world.json is used.
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

/// Runs `callboard eval routing`.
pub(super) async fn evaluate(arguments: RoutingArguments) -> CommandResult {
    let RoutingArguments {
        files,
        set,
        by,
        topology,
        dir,
        json,
        failures,
        min,
    } = arguments;
    let (world, parts) = read_parts(&files, set, dir.as_deref())?;
    let router = EvalSystem::start(&by, topology.as_deref()).await?;
    let mut results = EvalResults::new("routing", "not to be carried out");
    let measuring = async {
        let mut measured = Vec::new();
        for (name, cases) in parts {
            let begun = Instant::now();
            let routed = router.route(&cases, &world).await?;
            add_requests(&mut results, &name, &cases, &routed);
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
        true if files.is_empty() => output::print_json(&report_json(&by, &measured, failures))?,
        true => output::print_json(&files_json(&by, &results, &measured, failures))?,
        false => output::print_line(report_text(&by, &measured, failures))?,
    }
    Ok(if is_enough {
        EXIT_ANSWERED
    } else {
        EXIT_FAILED
    })
}

/// Sets of requests, by name.
type RequestSets = Vec<(String, Vec<EvalCase>)>;

/// Reads the tools and agents to choose from, and the sets of requests that have any.
fn read_parts(
    files: &[PathBuf],
    set: EvalSet,
    dir: Option<&Path>,
) -> Result<(Arc<RoutingContext>, RequestSets), CommandError> {
    if !files.is_empty() {
        let world = cases::read_context(dir)?;
        let read = files
            .iter()
            .map(|file| Ok((file.display().to_string(), cases::read_cases(file, &world)?)));
        let sets = read.collect::<Result<RequestSets, CommandError>>()?;
        return Ok((world, sets));
    }
    let EvalDataset {
        context,
        dev,
        heldout,
    } = EvalDataset::read(dir)?;
    let parts = [
        (DEV_SET, dev, EvalSet::Heldout),
        (HELDOUT_SET, heldout, EvalSet::Dev),
    ];
    let wanted = parts
        .into_iter()
        .filter(|(_, cases, other)| *other != set && !cases.is_empty())
        .map(|(name, cases, _)| (name.to_owned(), cases));
    Ok((context, wanted.collect()))
}

/// Adds requests to the results of all files. Requests that are to be rejected or asked about are
/// positive.
fn add_requests(
    results: &mut EvalResults,
    set: &str,
    cases: &[EvalCase],
    routed: &[RoutingResult],
) {
    let is_held = |class: RouteClass| matches!(class, RouteClass::Reject | RouteClass::Clarify);
    for (case, routed) in cases.iter().zip(routed) {
        let (class, target) = RouteClass::of_decision(&routed.decision);
        let is_right = is_correct(case, class, target);
        let mut lines = Detection::default();
        lines.add(is_held(case.expect), is_held(class));
        let mut handled = Proportion::default();
        handled.add(is_right);
        let kind = case.kind.clone();
        results.add(LineResult {
            set,
            meta: &LineMeta {
                id: case.id.clone(),
                lang: Some(case.lang.clone()),
                kind: kind.or_else(|| Some(case.expect.as_str().to_owned())),
                source: case.source.clone(),
            },
            text: &case.text,
            expected: case.expect.as_str().to_owned(),
            got: class.as_str().to_owned(),
            is_wrong: !is_right,
            counts: GroupCounts {
                lines,
                handled,
                ..GroupCounts::default()
            },
        });
    }
}

/// Returns the JSON report of files: the numbers of all of them, and `files` with those of each.
fn files_json(by: &str, results: &EvalResults, parts: &[SetReport], failures: bool) -> Value {
    let mut all = results.to_json(failures);
    let speed: f64 = parts.iter().map(decisions_per_second).sum::<f64>() / parts.len() as f64;
    all["by"] = by.into();
    all["times"] = json!({ "decisions_per_s": speed.round() });
    for part in parts {
        let mut set = set_json(part, failures);
        if let Some(set) = set.as_object_mut() {
            set.remove("decisions_per_s");
        }
        all["files"][&part.name] = set;
    }
    all
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

/// Number of folds for the spread of the accuracy.
const FOLDS: usize = 5;

/// Accuracy of a decider that gives every request the same route.
#[derive(Debug, Clone, PartialEq)]
struct ConstantRoute {
    /// The best such route: a class, and its tool or agent.
    route: String,
    accuracy: Proportion,
}

impl ConstantRoute {
    /// Returns the best of the routes that the requests expect; `None` without requests.
    fn best(cases: &[EvalCase]) -> Option<Self> {
        let expected: BTreeMap<String, (RouteClass, Option<&str>)> = cases
            .iter()
            .map(|case| {
                let target = case.target.as_deref();
                (route_name(case.expect, target), (case.expect, target))
            })
            .collect();
        let accuracy = |(route, (class, target)): (String, (RouteClass, Option<&str>))| {
            let mut accuracy = Proportion::default();
            for case in cases {
                accuracy.add(is_correct(case, class, target));
            }
            Self { route, accuracy }
        };
        expected
            .into_iter()
            .map(accuracy)
            .max_by_key(|constant| constant.accuracy.correct)
    }
}

/// Returns a route in words: the class, and its tool or agent.
fn route_name(class: RouteClass, target: Option<&str>) -> String {
    match target {
        Some(target) => format!("{} {target}", class.as_str()),
        None => class.as_str().to_owned(),
    }
}

/// Results for one set of requests.
#[derive(Debug, Default)]
struct SetReport {
    name: String,
    all: Proportion,
    /// Best route for all requests alike; `None` without requests.
    constant: Option<ConstantRoute>,
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
        name: String,
        cases: Vec<EvalCase>,
        routed: Vec<RoutingResult>,
        world: &RoutingContext,
        took: Duration,
    ) -> Self {
        let mut part = Self {
            name,
            constant: ConstantRoute::best(&cases),
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
            let (expected, got) = (
                route_name(case.expect, case.target.as_deref()),
                route_name(class, target),
            );
            let text = is_shown(&part.name).then_some(case.text);
            part.misses.push(RoutingMiss {
                id: case.id,
                expected,
                got,
                text,
            });
        }
        part
    }

    /// Whether the lower end of the accuracy's 95 % interval is above what the best constant route
    /// gets. `false` without requests.
    fn is_better_than_chance(&self) -> bool {
        let [low, _] = self.all.interval();
        let constant = self.constant.as_ref();
        constant.is_some_and(|constant| low > constant.accuracy.accuracy())
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
        all[&part.name] = set_json(part, failures);
    }
    all
}

fn set_json(part: &SetReport, failures: bool) -> Value {
    let by_lang: Map<String, Value> = part
        .by_lang
        .iter()
        .map(|(lang, share)| (lang.clone(), share.to_json()))
        .collect();
    let mut value = json!({
        "n": part.all.all,
        "correct": part.all.correct,
        "accuracy": round_share(part.all.accuracy()),
        "interval": part.all.interval().map(round_share),
        "classes": RouteClass::NAMES,
        "confusion": part.confusion,
        "by_lang": by_lang,
        "tricky": part.tricky.to_json(),
        "class_accuracy": round_share(part.class_only.accuracy()),
        "folds": part.folds.map(|fold| round_share(fold.accuracy())),
        "decisions": part.decisions,
        "fallbacks": part.fallbacks,
        "decisions_per_s": decisions_per_second(part).round(),
        "micro_usd": part.micro_usd,
    });
    if let Some(ConstantRoute { route, accuracy }) = &part.constant {
        value["chance"] = json!({
            "route": route,
            "accuracy": round_share(accuracy.accuracy()),
            "is_beaten": part.is_better_than_chance(),
        });
    }
    if failures {
        value["failures"] = json!(part.misses);
    }
    value
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
        part.all.to_text(),
        part.class_only.to_text()
    );
    if let Some(ConstantRoute { route, accuracy }) = &part.constant {
        let verdict = match part.is_better_than_chance() {
            true => "",
            false => "; the decider is no better than chance",
        };
        let share = percent(accuracy.accuracy());
        text += &format!("  always {route}: {share}{verdict}\n");
    }
    for (lang, share) in &part.by_lang {
        text += &format!("  {lang:<13} {}\n", share.to_text());
    }
    let folds = part.folds.map(Proportion::accuracy);
    let (low, high) = (
        folds.into_iter().fold(1.0, f64::min),
        folds.into_iter().fold(0.0, f64::max),
    );
    let (each_second, usd) = (decisions_per_second(part), part.micro_usd as f64 / 1e6);
    text += &format!("  tricky        {}\n", part.tricky.to_text());
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
