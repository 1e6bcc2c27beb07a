//! The `callboard` binary.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    callboard::cli::run(callboard::cli::Arguments::parse())
}
