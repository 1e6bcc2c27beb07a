//! How a command that needs clinics ends: in order, also when it is interrupted.

use std::io;
use std::pin::pin;

use super::{EXIT_FAILED, EXIT_USAGE, interrupted, show};
use crate::clinics::{Clinics, ClinicsError};

/// Why a command stopped before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// The user or the system wanted it to.
    #[error("interrupted")]
    Interrupted,
    /// What there is to say can't be said: make room, or write elsewhere.
    #[error("failed to write to standard output: {0}")]
    Output(io::Error),
    /// See what the clinics say.
    #[error(transparent)]
    Clinics(#[from] ClinicsError),
}

/// Runs `work` with clinics, which have ended when this returns.
pub(super) async fn with_clinics<T>(
    starting: impl Future<Output = Result<Clinics, ClinicsError>>,
    work: impl AsyncFnOnce(&Clinics) -> Result<T, Stopped>,
) -> Result<T, Stopped> {
    let mut stop = pin!(interrupted());
    let clinics = tokio::select! {
        started = starting => started?,
        () = &mut stop => return Err(Stopped::Interrupted),
    };
    let outcome = tokio::select! {
        outcome = work(&clinics) => outcome,
        () = &mut stop => Err(Stopped::Interrupted),
    };
    // Whoever interrupts once more doesn't want to wait: then the clinics end by their lifelines.
    tokio::select! {
        () = clinics.shutdown() => {}
        () = interrupted() => {}
    }
    outcome
}

/// Runs a command on this thread, says why it stopped if it did, and gives its exit code.
pub(super) fn run(command: impl Future<Output = Result<u8, Stopped>>) -> u8 {
    let outcome = super::block_on(command).map_err(|e| Stopped::Clinics(e.into())).flatten();
    outcome.unwrap_or_else(|stopped| {
        show::complain(&stopped);
        match stopped {
            Stopped::Clinics(error) if error.is_usage() => EXIT_USAGE,
            _ => EXIT_FAILED,
        }
    })
}
