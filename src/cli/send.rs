//! `callboard send`: one message, one answer.

use super::{EXIT_FAILED, show};

#[derive(Debug, clap::Args)]
pub(super) struct SendArguments {
    /// A topology file, or the address of an agent elsewhere.
    #[arg(value_name = "FILE|ADDRESS")]
    target: String,
    /// What to say.
    text: String,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// How long to wait, in seconds.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

/// Runs it.
pub(super) fn run(_arguments: &SendArguments) -> u8 {
    show::complain("not built yet");
    EXIT_FAILED
}
