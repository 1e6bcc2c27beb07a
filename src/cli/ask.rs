//! `callboard ask`.

use callboard_agents::orchestrator::{Answer, AskClinics, Status};

use super::orderly::{self, Stopped, with_clinics};
use super::{AskArguments, EXIT_ANSWERED, EXIT_BLOCKED, EXIT_FAILED, show};
use crate::clinics::{Clinics, ClinicsError};
use crate::config::Topology;

/// Asks, prints, and says how it ended.
pub(super) fn run(arguments: &AskArguments) -> u8 {
    orderly::run(ask(arguments))
}

async fn ask(arguments: &AskArguments) -> Result<u8, Stopped> {
    let AskArguments { query, purpose, .. } = arguments;
    // What can't be asked starts no clinic.
    AskClinics { query: query.clone(), purpose: purpose.clone() }.check().map_err(ClinicsError::from)?;
    let starting = async {
        match &arguments.topology {
            Some(file) => Clinics::connect(Topology::read(file)?),
            None => Clinics::start_examples().await,
        }
    };
    let told = |line: &str| {
        if !arguments.json {
            show::progress(line);
        }
    };
    let asking = async |clinics: &Clinics| Ok(clinics.ask(query, purpose.as_deref(), told).await?);
    let answer = with_clinics(starting, asking).await?;
    match arguments.json {
        true => show::json(&answer),
        false => show::answer(&answer),
    }
    .map_err(Stopped::Output)?;
    Ok(exit_code(&answer))
}

fn exit_code(answer: &Answer) -> u8 {
    match answer.status() {
        Status::Answered => EXIT_ANSWERED,
        Status::Blocked => EXIT_BLOCKED,
        Status::Failed => EXIT_FAILED,
    }
}
