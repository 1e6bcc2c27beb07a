//! `callboard eval`: how well decisions are made.

mod cases;
mod score;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Instant;

pub(super) use self::cases::CaseError;
use self::cases::{By, Cases};
use self::score::{Class, Part};
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
pub(super) async fn run(EvalCommand::Routing(arguments): &EvalCommand) -> Outcome {
    unless_interrupted(routing(arguments)).await
}

async fn routing(arguments: &RoutingArguments) -> Outcome {
    let Cases { world, dev, heldout } = Cases::read(arguments.dir.as_deref())?;
    let parts = [("dev", dev, Wanted::Heldout), ("heldout", heldout, Wanted::Dev)];
    let wanted = parts.into_iter().filter(|(_, cases, other)| *other != arguments.set && !cases.is_empty());
    let by = By::start(&arguments.by, arguments.topology.as_deref()).await?;
    let measuring = async {
        let mut measured: Vec<(&str, Part)> = Vec::new();
        for (name, cases, _) in wanted {
            let begun = Instant::now();
            let routed = by.route(&cases, &world).await?;
            measured.push((name, Part::of(cases, routed, &world, begun.elapsed())));
        }
        Ok::<_, CommandError>(measured)
    };
    let measured = measuring.await;
    by.stop().await;
    let measured = measured?;
    let (_, last) = measured.last().ok_or_else(|| CommandError::usage("there are no requests of that set"))?;
    let is_enough = arguments.min.is_none_or(|min| last.accuracy() >= min);
    match arguments.json {
        true => show::json(&score::json(&arguments.by, &measured, arguments.failures))?,
        false => show::line(score::text(&arguments.by, &measured, arguments.failures))?,
    }
    Ok(if is_enough { EXIT_ANSWERED } else { EXIT_FAILED })
}
