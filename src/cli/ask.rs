//! `callboard ask`.

use callboard_agents::orchestrator::{Answer, AskClinics, Status};

use super::{
    AskArguments, CommandError, EXIT_ANSWERED, EXIT_BLOCKED, EXIT_FAILED, Outcome, interrupted, show,
    unless_interrupted,
};
use crate::clinics::{Clinics, ClinicsError};
use crate::config::Topology;

/// Asks, prints, and says how it ended.
pub(super) async fn run(arguments: &AskArguments) -> Outcome {
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
    }?;
    Ok(exit_code(&answer))
}

fn exit_code(answer: &Answer) -> u8 {
    match answer.status() {
        Status::Answered => EXIT_ANSWERED,
        Status::Blocked => EXIT_BLOCKED,
        Status::Failed => EXIT_FAILED,
    }
}

/// Runs `work` with clinics, which have ended when this returns.
pub(super) async fn with_clinics<T>(
    starting: impl Future<Output = Result<Clinics, ClinicsError>>,
    work: impl AsyncFnOnce(&Clinics) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let clinics = unless_interrupted(async { Ok(starting.await?) }).await?;
    let outcome = unless_interrupted(work(&clinics)).await;
    // Whoever interrupts once more doesn't want to wait: then the clinics end by their lifelines.
    tokio::select! {
        () = clinics.shutdown() => {}
        () = interrupted() => {}
    }
    outcome
}
