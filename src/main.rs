//! The `callboard` binary.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// A gateway makes many short-lived allocations on every thread; ARCHITECTURE.md has the measured
/// gain.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = callboard::cli::run_launcher() {
        return code;
    }
    callboard::cli::run(callboard::cli::Arguments::parse())
}
