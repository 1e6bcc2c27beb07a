//! Tests that take too long to run on every change.

use crate::bench;
use crate::command::{Outcome, cargo, run};
use crate::postgres::{self, Postgres};

/// Duration of the soak of a whole node, when none is given, in minutes.
const SOAK_MINUTES_DEFAULT: u64 = 120;

/// The soak of a whole node, for so long with `--minutes`; then nothing else. Without it the stress bench and every ignored test
/// with `soak` in its name come first, on SQLite and Postgres where they keep something. `--record` writes the node's table.
pub fn soak(options: &[&str]) -> Outcome {
    let (options, is_recorded) = match options {
        [options @ .., "--record"] => (options, true),
        options => (options, false),
    };
    match options {
        [] => {
            soak_tests()?;
            bench::soak(SOAK_MINUTES_DEFAULT, is_recorded)
        }
        ["--minutes", minutes] => {
            let minutes = minutes
                .parse()
                .map_err(|_| format!("the number of minutes must be a number, not {minutes:?}"))?;
            bench::soak(minutes, is_recorded)
        }
        _ => Err(format!("unknown options: {}", options.join(" "))),
    }
}

fn soak_tests() -> Outcome {
    run(cargo(&["bench", "--bench", "stress"]))?;
    let postgres = Postgres::start()?;
    let mut soaks = cargo(&[
        "test",
        "--workspace",
        "--release",
        "--",
        "--ignored",
        "soak",
        "--nocapture",
    ]);
    soaks.env(postgres::VARIABLE, postgres.url());
    run(soaks)
}
