//! The `callboard` binary.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// A gateway allocates on every thread, briefly: see ARCHITECTURE.md for what this one saves.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    callboard::cli::run(callboard::cli::Arguments::parse())
}
