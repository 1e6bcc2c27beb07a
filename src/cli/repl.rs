//! `callboard repl`: talk to an agent.

use std::path::PathBuf;

use super::{EXIT_FAILED, show};

#[derive(Debug, clap::Args)]
pub(super) struct ReplArguments {
    /// A topology file, or the address of an agent elsewhere. Without it, an agent of its own.
    #[arg(value_name = "CONFIG|ADDRESS")]
    target: Option<String>,
    /// Listen on this port from the start.
    #[arg(long, value_name = "PORT")]
    listen: Option<u16>,
    /// Where agents keep their data.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Say this, print the answer and end.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

/// Runs it.
pub(super) fn run(_arguments: &ReplArguments) -> u8 {
    show::complain("not built yet");
    EXIT_FAILED
}
