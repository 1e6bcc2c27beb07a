//! `callboard eval`: quality of decisions, measured with labelled lines and 95 % intervals.

mod clinics;
mod metrics;
mod privacy;
mod report;
mod results;
mod routing;
mod sets;
#[cfg(test)]
mod tests;
mod texts;

use std::path::PathBuf;

use serde_json::{Map, Value};

pub(super) use sets::EvalCaseError;

use super::{
    CommandError, CommandResult, EXIT_ANSWERED, EXIT_FAILED, output, run_until_interrupted,
};
use clinics::{ClinicRun, ClinicsArguments};
use results::EvalResults;
use routing::RoutingArguments;
use sets::{EvalSet, SetArguments};
use texts::TextEval;

#[derive(Debug, clap::Subcommand)]
pub(super) enum EvalCommand {
    /// Measure the routing of labelled requests: accuracy with its 95 % interval, and the confusion
    /// matrix. Exit code: 0 measured, 2 usage, 4 failed, or below `--min`.
    Routing(RoutingArguments),
    /// Ask the three example clinics labelled questions: share handled as labelled, the blueprint's
    /// measures, personal data shown; with faults injected, the share of them that is found.
    Clinics(ClinicsArguments),
    /// Measure how many altered doses and treatments the verifier finds (rule R1), and how many true
    /// ones it stops.
    #[command(alias = "answers")]
    Doses(SetArguments),
    /// Measure how much medical advice the verifier finds (rule R3), and how many harmless sentences
    /// and clinic notes are stopped.
    Scope(SetArguments),
    /// Measure how much personal data the verifier finds (rule R2), by document and by place.
    Privacy(SetArguments),
    /// Measure how many prompt injections the guardrail finds, and how many harmless texts it stops.
    Guard(SetArguments),
    /// Measure all of these with the lines that come with callboard, the clinics with each fault
    /// too, and write one report.
    All(AllArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct AllArguments {
    /// Folder for the report: a Markdown page, figures, and the log of the pipeline.
    #[arg(long, value_name = "DIR")]
    report: PathBuf,
    /// Print one JSON object with the results of each evaluation.
    #[arg(long)]
    json: bool,
}

/// Runs `callboard eval`.
pub(super) async fn run(command: EvalCommand) -> CommandResult {
    run_until_interrupted(async {
        match command {
            EvalCommand::Routing(arguments) => routing::evaluate(arguments).await,
            EvalCommand::Clinics(arguments) => evaluate_clinics(&arguments).await,
            EvalCommand::Doses(arguments) => evaluate_texts(TextEval::Doses, &arguments),
            EvalCommand::Scope(arguments) => evaluate_texts(TextEval::Scope, &arguments),
            EvalCommand::Privacy(arguments) => evaluate_texts(TextEval::Privacy, &arguments),
            EvalCommand::Guard(arguments) => evaluate_texts(TextEval::Guard, &arguments),
            EvalCommand::All(arguments) => evaluate_all(&arguments).await,
        }
    })
    .await
}

fn evaluate_texts(eval: TextEval, arguments: &SetArguments) -> CommandResult {
    let results = eval.measure(arguments)?;
    if let Some(folder) = &arguments.report {
        report::write(folder, &[&results])?;
    }
    print_results(&results, arguments)
}

async fn evaluate_clinics(arguments: &ClinicsArguments) -> CommandResult {
    let measured = clinics::measure(arguments).await?;
    if let Some(folder) = &arguments.sets.report {
        report::write(folder, &[&measured.results])?;
        measured.write_log(folder)?;
    }
    print_results(&measured.results, &arguments.sets)
}

fn print_results(results: &EvalResults, arguments: &SetArguments) -> CommandResult {
    if results.is_empty() {
        return Err(CommandError::usage(
            "there are no lines to measure with: name a file that has some",
        ));
    }
    match arguments.json {
        true => output::print_json(&results.to_json(arguments.failures))?,
        false => output::print_line(results.to_text(arguments.failures))?,
    }
    let is_enough = arguments.min.is_none_or(|min| results.score() >= min);
    Ok(match is_enough {
        true => EXIT_ANSWERED,
        false => EXIT_FAILED,
    })
}

async fn evaluate_all(arguments: &AllArguments) -> CommandResult {
    let sets = SetArguments {
        files: Vec::new(),
        set: EvalSet::Both,
        json: arguments.json,
        failures: false,
        min: None,
        report: Some(arguments.report.clone()),
    };
    let mut all = Vec::new();
    for eval in TextEval::ALL {
        all.push(eval.measure(&sets)?);
    }
    let mut logged = None;
    for run in ClinicRun::ALL {
        let measured = clinics::measure(&ClinicsArguments::with_fault(&sets, run)).await?;
        all.push(measured.results.clone());
        logged.get_or_insert(measured);
    }
    report::write(&arguments.report, &all.iter().collect::<Vec<_>>())?;
    // The first run is the honest one.
    if let Some(measured) = logged {
        measured.write_log(&arguments.report)?;
    }
    if arguments.json {
        let entries = all
            .iter()
            .map(|results| (results.name.to_owned(), results.to_json(false)));
        output::print_json(&Value::Object(Map::from_iter(entries)))?;
    } else {
        let page = arguments.report.display();
        output::print_line(format_args!("the report is in {page}"))?;
    }
    Ok(EXIT_ANSWERED)
}
