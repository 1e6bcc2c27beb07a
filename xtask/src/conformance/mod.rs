//! `cargo xtask conformance`: the official suite against our server and our client, and what came of it.

mod score;
mod server;

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Outcome, cargo_tested, program, run, target, watch_whatever};
use crate::peers::Peers;
use crate::tally::Tally;
use score::Sheet;
pub use server::Server;

/// Timeout of our client in one scenario, in milliseconds. The suite runs all scenarios at once.
const CLIENT_TIME_MAX_MS: &str = "60000";

/// Run of the suite: one side at one revision.
struct Run {
    name: &'static str,
    side: Side,
    /// Arguments that select the scenarios.
    selection: &'static [&'static str],
    /// Number of scenarios that the revision requires. Any other number is a failure, because some
    /// were not run.
    required: usize,
    /// Of those that a revision doesn't score (extensions, scenarios younger than it): how many must hold all the same.
    beside: usize,
}

/// Side under test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `examples/conformance_server`.
    Server,
    /// `examples/conformance_client`.
    Client,
}

const RUNS: &[Run] = &[
    Run {
        name: "server 2025-06-18",
        side: Side::Server,
        selection: &["--suite", "all", "--spec-version", "2025-06-18"],
        required: 27,
        beside: 0,
    },
    Run {
        name: "server 2025-11-25",
        side: Side::Server,
        selection: &["--requirements", "2025-11-25"],
        required: 30,
        beside: 3,
    },
    // Beside those required: the ten of the tasks extension, two of headers, one of schemas.
    Run {
        name: "server 2026-07-28",
        side: Side::Server,
        selection: &["--requirements", "2026-07-28"],
        required: 37,
        beside: 13,
    },
    // Beside those required: client credentials, and schemas that stay as they are.
    Run {
        name: "client 2025-11-25",
        side: Side::Client,
        selection: &["--requirements", "2025-11-25"],
        required: 18,
        beside: 2,
    },
    Run {
        name: "client 2026-07-28",
        side: Side::Client,
        selection: &["--requirements", "2026-07-28"],
        required: 32,
        beside: 2,
    },
];

impl Side {
    /// Both sides.
    pub const ALL: [Self; 2] = [Self::Server, Self::Client];

    fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Server => "conformance_server",
            Self::Client => "conformance_client",
        }
    }
}

/// Returns the side with this name; both without a name.
pub fn sides(word: Option<&str>) -> Outcome<Vec<Side>> {
    match word {
        None => Ok(Side::ALL.to_vec()),
        Some(word) => match Side::ALL.into_iter().find(|side| side.word() == word) {
            Some(side) => Ok(vec![side]),
            None => Err(format!(
                "conformance of what? server or client, not {word:?}"
            )),
        },
    }
}

/// Runs the suite for these sides, a step each, and prints the score sheet.
pub fn steps(tally: &mut Tally, sides: &[Side]) {
    let peers = match Peers::with_node() {
        Ok(peers) => peers,
        Err(why) => return tally.step("the conformance suite", || Err(why)),
    };
    let mut sheets = Vec::new();
    for side in sides {
        let mut built = false;
        tally.step(&format!("build {}", side.example()), || {
            run(cargo_tested(&["build", "--example", side.example()]))?;
            built = true;
            Ok(())
        });
        if !built {
            tally.skip(format!(
                "conformance of the {}: it doesn't build",
                side.word()
            ));
            continue;
        }
        for run in RUNS.iter().filter(|run| run.side == *side) {
            tally.tests(&format!("conformance of the {}", run.name), |counted| {
                let sheet = play(run, &peers)?;
                (counted.passed, counted.failed) = sheet.scenarios_passed_and_failed(run.beside);
                let verdict = sheet.verdict(run.required, run.beside);
                sheets.push((run.name, run.beside, sheet));
                verdict
            });
        }
    }
    print!("{}", score::table(&sheets));
}

/// Runs the suite and reads its results.
fn play(run: &Run, peers: &Peers) -> Outcome<Sheet> {
    let results = results_of(run)?;
    let example = target()
        .join("debug")
        .join("examples")
        .join(run.side.example());
    let mut suite = program(&peers.node()?.to_string_lossy(), &[]);
    suite
        .arg(peers.conformance())
        .arg(run.side.word())
        .args(run.selection)
        .arg("--output-dir")
        .arg(&results);
    // Its guard ends the server whatever happens.
    let _server = match run.side {
        Side::Server => {
            let server = Server::start(&example, &results.join("server.log"))?;
            suite.args(["--url", &server.url()]);
            Some(server)
        }
        Side::Client => {
            suite
                .arg("--command")
                .arg(&example)
                .args(["--timeout", CLIENT_TIME_MAX_MS]);
            None
        }
    };
    let mut lines = Vec::new();
    // It ends with an error when a check fails, which the sheet says better.
    watch_whatever(suite, |line| lines.push(line.to_owned()))?;
    let mut sheet = Sheet::read(lines.iter().map(String::as_str));
    let prefix = match run.side {
        Side::Server => "server-",
        Side::Client => "",
    };
    sheet.name_failures(&results, prefix)?;
    Ok(sheet)
}

/// Creates an empty folder for the suite's files: the checks of each scenario as JSON.
fn results_of(run: &Run) -> Outcome<PathBuf> {
    let folder = target()
        .join("conformance")
        .join(run.name.replace(' ', "-"));
    let cannot = |e: std::io::Error| format!("{} can't be emptied: {e}", folder.display());
    if Path::new(&folder).exists() {
        fs::remove_dir_all(&folder).map_err(cannot)?;
    }
    fs::create_dir_all(&folder).map_err(cannot)?;
    Ok(folder)
}
