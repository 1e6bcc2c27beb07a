//! `callboard ask`.

use callboard_agents::orchestrator::{Answer, Status};

use super::{AskArguments, EXIT_ANSWERED, EXIT_BLOCKED, EXIT_FAILED, EXIT_USAGE, block_on, interrupted, show};
use crate::clinics::{Clinics, ClinicsError};
use crate::config::Topology;

/// Asks, prints, and says how it ended.
pub(super) fn run(arguments: &AskArguments) -> u8 {
    let outcome = block_on(async {
        tokio::select! {
            code = ask(arguments) => code,
            () = interrupted() => Ok(EXIT_FAILED),
        }
    });
    match outcome {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            eprintln!("callboard: {error}");
            if error.is_usage() { EXIT_USAGE } else { EXIT_FAILED }
        }
        Err(error) => {
            eprintln!("callboard: {error}");
            EXIT_FAILED
        }
    }
}

async fn ask(arguments: &AskArguments) -> Result<u8, ClinicsError> {
    let clinics = match &arguments.topology {
        Some(file) => Clinics::connect(Topology::read(file)?)?,
        None => Clinics::start_examples().await?,
    };
    let quiet = arguments.json;
    let told = |line: &str| {
        if !quiet {
            show::progress(line);
        }
    };
    let answer = clinics.ask(&arguments.query, arguments.purpose.as_deref(), told).await;
    clinics.shutdown().await;
    let answer = answer?;
    match arguments.json {
        true => show::json(&answer),
        false => show::answer(&answer),
    }
    Ok(exit_code(&answer))
}

pub(super) fn exit_code(answer: &Answer) -> u8 {
    match answer.status() {
        Status::Answered => EXIT_ANSWERED,
        Status::Blocked => EXIT_BLOCKED,
        Status::Failed => EXIT_FAILED,
    }
}
