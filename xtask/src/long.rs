//! Tests that take too long to run on every change.

use crate::command::{Outcome, cargo, run};
use crate::postgres::{self, Postgres};

/// The stress bench, then every ignored test with `soak` in its name, on SQLite and Postgres where they keep something.
pub fn soak() -> Outcome {
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
