//! `callboard eval`: how well decisions are made.

use super::{EXIT_FAILED, show};

#[derive(Debug, clap::Subcommand)]
pub(super) enum EvalCommand {
    /// Where labelled requests go: accuracy, intervals and the confusion matrix.
    Routing,
}

/// Runs it.
pub(super) fn run(_command: &EvalCommand) -> u8 {
    show::complain("not built yet");
    EXIT_FAILED
}
