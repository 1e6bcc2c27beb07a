//! `callboard eval`: how well decisions are made, as shares with their intervals.

mod cases;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use callboard_orchestration::decide::World;
use callboard_orchestration::decide::intake::RoutingDecision;
use cases::{By, Case, Cases, Routed};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(super) use cases::CaseError;

use super::{CommandError, EXIT_ANSWERED, EXIT_FAILED, Outcome, show, unless_interrupted};

#[derive(Debug, clap::Subcommand)]
pub(super) enum EvalCommand {
    /// Where labelled requests go: accuracy with its 95 % interval, and which class is taken for which. Exit code: 0 measured,
    /// 2 usage, 4 failed, or below what --min wants.
    Routing(RoutingArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct RoutingArguments {
    /// Which requests: those to look at, those to measure with, or both.
    #[arg(long, value_enum, default_value_t = Wanted::Both)]
    set: Wanted,
    /// Who decides: `rules`, or an orchestrator of --topology with whoever decides for it.
    #[arg(long, value_name = "rules|ID", default_value = cases::RULES)]
    by: String,
    /// The topology file (TOML or YAML) with that orchestrator. Its listeners stay closed.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// A folder with other requests: world.json, routing_dev.jsonl, routing_heldout.jsonl.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// Also show what went elsewhere than expected; texts of the requests to look at only.
    #[arg(long)]
    failures: bool,
    /// Fail below this accuracy, 0 to 1, of the requests to measure with (or of the others, where only those are wanted).
    #[arg(long, value_name = "SHARE", value_parser = share)]
    min: Option<f64>,
}

/// Which of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Wanted {
    Dev,
    Heldout,
    Both,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("it is a number from 0 to 1".to_owned()),
    }
}

/// Runs it.
pub(super) async fn run(EvalCommand::Routing(arguments): EvalCommand) -> Outcome {
    unless_interrupted(routing(arguments)).await
}

async fn routing(arguments: RoutingArguments) -> Outcome {
    let RoutingArguments {
        set,
        by,
        topology,
        dir,
        json,
        failures,
        min,
    } = arguments;
    let Cases {
        world,
        dev,
        heldout,
    } = Cases::read(dir.as_deref())?;
    let parts = [
        ("dev", dev, Wanted::Heldout),
        (HELDOUT, heldout, Wanted::Dev),
    ];
    let wanted = parts
        .into_iter()
        .filter(|(_, cases, other)| *other != set && !cases.is_empty());
    let router = By::start(&by, topology.as_deref()).await?;
    let measuring = async {
        let mut measured = Vec::new();
        for (name, cases, _) in wanted {
            let begun = Instant::now();
            let routed = router.route(&cases, &world).await?;
            measured.push(Part::of(name, cases, routed, &world, begun.elapsed()));
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
        true => show::json(&report_json(&by, &measured, failures))?,
        false => show::line(report_text(&by, &measured, failures))?,
    }
    Ok(if is_enough {
        EXIT_ANSWERED
    } else {
        EXIT_FAILED
    })
}

/// Where a request can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Class {
    Local,
    Remote,
    Reject,
    Clarify,
    Decompose,
}

impl Class {
    /// Names of all classes, in their order.
    const NAMES: [&str; 5] = ["local", "remote", "reject", "clarify", "decompose"];

    const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    fn parse(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }

    /// The class of a decision, and the tool or agent.
    fn of(decision: &RoutingDecision) -> (Self, Option<&str>) {
        match decision {
            RoutingDecision::Local { tool_name, .. } => (Self::Local, Some(tool_name)),
            RoutingDecision::Remote { agent_id } => (Self::Remote, Some(agent_id)),
            RoutingDecision::Reject { .. } => (Self::Reject, None),
            RoutingDecision::NeedsClarification { .. } => (Self::Clarify, None),
            RoutingDecision::Decompose { .. } => (Self::Decompose, None),
        }
    }

    /// The class that an entry of `also` stands for.
    fn implied(entry: &str, world: &World) -> Option<Self> {
        match Self::parse(entry) {
            Some(class) => Some(class),
            None if world.tool(entry).is_some() => Some(Self::Local),
            None if world.agent(entry).is_some() => Some(Self::Remote),
            None => None,
        }
    }
}

/// So many of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Share {
    right: usize,
    all: usize,
}

impl Share {
    fn add(&mut self, is_right: bool) {
        self.all += 1;
        self.right += usize::from(is_right);
    }

    /// 0 to 1; of none, 0.
    fn accuracy(self) -> f64 {
        if self.all == 0 {
            0.0
        } else {
            self.right as f64 / self.all as f64
        }
    }

    /// Its 95 % interval after Wilson (1927): it holds for few and for extreme shares too.
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

/// One request that went elsewhere.
#[derive(Debug, Serialize)]
struct Miss {
    id: String,
    expected: String,
    got: String,
    /// `None` of those to measure with: who reads one writes rules for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// Name of the requests to measure with.
const HELDOUT: &str = "heldout";

/// Into how many parts the requests are dealt to see how much the accuracy varies.
const FOLDS: usize = 5;

/// What came of a set of requests.
#[derive(Debug, Default)]
struct Part {
    name: &'static str,
    all: Share,
    /// The class alone, whoever does it.
    class_only: Share,
    /// Row: expected, column: got, in the order of [`Class::NAMES`].
    confusion: [[usize; 5]; 5],
    by_lang: BTreeMap<String, Share>,
    tricky: Share,
    /// The requests dealt into five, in turn.
    folds: [Share; FOLDS],
    misses: Vec<Miss>,
    decisions: usize,
    fallbacks: usize,
    micro_usd: u64,
    took: Duration,
}

impl Part {
    fn of(
        name: &'static str,
        cases: Vec<Case>,
        routed: Vec<Routed>,
        world: &World,
        took: Duration,
    ) -> Self {
        let mut part = Self {
            name,
            took,
            ..Self::default()
        };
        for (at, (case, routed)) in cases.into_iter().zip(routed).enumerate() {
            let (class, target) = Class::of(&routed.decision);
            let is_right = is_right(&case, class, target);
            let is_implied = |also: &String| Class::implied(also, world) == Some(class);
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
            let named = |class: Class, target: Option<&str>| match target {
                Some(target) => format!("{} {target}", class.as_str()),
                None => class.as_str().to_owned(),
            };
            let (expected, got) = (
                named(case.expect, case.target.as_deref()),
                named(class, target),
            );
            let text = (name != HELDOUT).then_some(case.text);
            part.misses.push(Miss {
                id: case.id,
                expected,
                got,
                text,
            });
        }
        part
    }
}

/// The class is the expected one, and for local and remote the target too; or it is one of `also`.
fn is_right(case: &Case, class: Class, target: Option<&str>) -> bool {
    let expected =
        class == case.expect && (case.target.is_none() || case.target.as_deref() == target);
    expected
        || case
            .also
            .iter()
            .any(|also| target == Some(also.as_str()) || Class::parse(also) == Some(class))
}

/// One object: `by`, and each set by its name.
fn report_json(by: &str, parts: &[Part], failures: bool) -> Value {
    let mut all = json!({ "by": by });
    for part in parts {
        all[part.name] = part_json(part, failures);
    }
    all
}

fn part_json(part: &Part, failures: bool) -> Value {
    let by_lang: Map<String, Value> = part
        .by_lang
        .iter()
        .map(|(lang, share)| (lang.clone(), share_json(*share)))
        .collect();
    let mut value = json!({
        "n": part.all.all,
        "correct": part.all.right,
        "accuracy": rounded(part.all.accuracy()),
        "interval": part.all.interval().map(rounded),
        "classes": Class::NAMES,
        "confusion": part.confusion,
        "by_lang": by_lang,
        "tricky": share_json(part.tricky),
        "class_accuracy": rounded(part.class_only.accuracy()),
        "folds": part.folds.map(|fold| rounded(fold.accuracy())),
        "decisions": part.decisions,
        "fallbacks": part.fallbacks,
        "decisions_per_s": per_second(part).round(),
        "micro_usd": part.micro_usd,
    });
    if failures {
        value["failures"] = json!(part.misses);
    }
    value
}

fn share_json(share: Share) -> Value {
    json!({"n": share.all, "correct": share.right, "accuracy": rounded(share.accuracy()), "interval": share.interval().map(rounded)})
}

/// To four places: more would say what nobody knows.
fn rounded(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}

fn per_second(part: &Part) -> f64 {
    part.decisions as f64 / part.took.as_secs_f64().max(1e-9)
}

/// The same for people.
fn report_text(by: &str, parts: &[Part], failures: bool) -> String {
    let texts = parts.iter().map(|part| part_text(part, failures));
    format!("Routing, decided by {by}{}", texts.collect::<String>())
}

fn part_text(part: &Part, failures: bool) -> String {
    let Part {
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
    let folds = part.folds.map(Share::accuracy);
    let (low, high) = (
        folds.into_iter().fold(1.0, f64::min),
        folds.into_iter().fold(0.0, f64::max),
    );
    let (each_second, usd) = (per_second(part), part.micro_usd as f64 / 1e6);
    text += &format!("  tricky        {}\n", share_text(part.tricky));
    text += &format!("  five parts    {} to {}\n", percent(low), percent(high));
    text += &format!(
        "  {decisions} decisions, {each_second:.0} a second, {fallbacks} by fallback, {usd:.4} USD\n"
    );
    text += &format!("\n  {:<22}", "expected \\ got");
    text.extend(Class::NAMES.map(|class| format!("{class:>10}")));
    for (class, row) in Class::NAMES.into_iter().zip(part.confusion) {
        text += &format!("\n  {class:<22}");
        text.extend(row.map(|count| format!("{count:>10}")));
    }
    for Miss {
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

fn share_text(share: Share) -> String {
    let [low, high] = share.interval();
    let Share { right, all } = share;
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
