//! `cargo xtask fixture`: what this version writes, for later versions to read.

use crate::command::{Outcome, cargo, root, run};
use crate::postgres::{self, Postgres};

/// Packages that store data, and the folder of their fixtures, one subfolder a version.
const KEEPERS: [(&str, &str); 2] = [
    ("callboard-store", "actors/store/tests/data/upgrade"),
    ("callboard-rpc", "protocols/rpc/tests/data/upgrade"),
];
/// Name of the test that writes a fixture.
const TEST: &str = "upgrade::write_fixture";
/// Environment variable with the folder to write to.
const VARIABLE: &str = "CALLBOARD_FIXTURE";

/// Writes a store in SQLite, one in Postgres and a key file, each into a folder of the workspace's version. One that is there
/// was released and stays.
pub fn write() -> Outcome {
    let postgres = Postgres::start()?;
    for (package, fixtures) in KEEPERS {
        let folder = root().join(fixtures).join(env!("CARGO_PKG_VERSION"));
        if folder.exists() {
            return Err(format!(
                "{} is there: a released fixture stays as it is",
                folder.display()
            ));
        }
        let mut test = cargo(&[
            "test",
            "-p",
            package,
            "--test",
            "it",
            "--",
            "--exact",
            TEST,
            "--ignored",
        ]);
        test.env(postgres::VARIABLE, postgres.url())
            .env(VARIABLE, folder);
        run(test)?;
    }
    Ok(())
}
