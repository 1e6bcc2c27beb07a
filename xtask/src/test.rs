//! `cargo xtask test`: everything that must hold. Each step runs whatever became of those before it.

use std::num::NonZeroUsize;
use std::process::{Command, ExitCode};
use std::thread::JoinHandle;

use crate::command::{self, cargo, cargo_tested, watch};
use crate::conformance::{self, Side};
use crate::peers::{self, Peers};
use crate::postgres::{self, Postgres};
use crate::tally::Tally;
use crate::{bench, book, examples, instructions, release, tools};

/// Packages outside the workspace, and where each is built below the target directory.
pub const APART: [(&str, &str); 2] = [(bench::DIRECT, "sqlite-direct"), (peers::RUST, "a2a-rust")];

/// Runs all steps; the last line says `N passed, N failed`.
pub fn run() -> ExitCode {
    tallied(steps)
}

/// `cargo xtask conformance [server|client]`.
pub fn conformance(side: Option<&str>) -> ExitCode {
    match conformance::sides(side) {
        Ok(sides) => tallied(|tally| conformance::steps(tally, &sides)),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn tallied(steps: impl FnOnce(&mut Tally)) -> ExitCode {
    let mut tally = Tally::default();
    steps(&mut tally);
    match tally.report() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Features that no other feature brings along. The lints have them all, so that they compile each file.
const OPTIONAL: &str = "callboard/acme,callboard/grpc,callboard/tower";

/// Features of the library, without those that need a topology file, and without `store-postgres`: all other builds have it, and
/// only this one sees that the store does without.
const PARTS: &str =
    "mcp,a2a,mail,models,guardrail,gateway,clinics,orchestration,person,store-sqlite,tower";

/// Features of the library that are checked alone too: those with the fewest crates.
const ALONE: [&str; 2] = ["gateway", "guardrail"];

fn steps(tally: &mut Tally) {
    // They mostly wait for the network, while the steps before the tests compile.
    let downloads = std::thread::spawn(Peers::downloaded);
    tally.step("rustfmt and clippy", tools::components);
    tally.step("format", || {
        command::run(cargo(&["fmt", "--all", "--check"]))?;
        for (manifest, _) in APART {
            command::run(cargo(&["fmt", "--manifest-path", manifest, "--check"]))?;
        }
        Ok(())
    });
    tally.step("lints", || {
        let strict = ["--all-targets", "--quiet", "--", "--deny", "warnings"];
        let all = ["clippy", "--workspace", "--features", OPTIONAL];
        command::run(cargo(&[&all[..], &strict[..]].concat()))?;
        // It has a target directory of its own: another lock file, other features. (The other package apart is built below,
        // without warnings.)
        let apart = ["clippy", "--locked", "--manifest-path", bench::DIRECT];
        let mut apart = cargo(&[&apart[..], &strict[..]].concat());
        apart.env("CARGO_TARGET_DIR", command::target().join("sqlite-direct"));
        command::run(apart)
    });
    // With the default features, as most people build it, without what only tests or other packages switch on. Clippy, because the
    // lints above leave out what is compiled only without the optional features. It builds no more than a check does.
    tally.step("check", || {
        let check = ["clippy", "--package", "callboard", "--quiet"];
        command::run(cargo(&[&check[..], &["--", "--deny", "warnings"]].concat()))
    });
    tally.step("features", || {
        for features in ["", PARTS].into_iter().chain(ALONE) {
            command::run(cargo(&[
                "check",
                "--package",
                "callboard",
                "--no-default-features",
                "--features",
                features,
            ]))?;
        }
        Ok(())
    });
    let mut all = cargo_tested(&["test", "--no-fail-fast"]);
    all.env("RUST_TEST_THREADS", test_threads().to_string());
    // The last crates of the tests compile one after the other: what has target directories of its own fills the other cores.
    let peer = std::thread::spawn(|| peers::rust_peer(&[]).map(drop));
    let counted = std::thread::spawn(instructions::build_gate);
    let mdbook = std::thread::spawn(tools::mdbook);
    tally.step("build tests", || {
        command::run(cargo_tested(&["test", "--no-run"]))
    });
    tally.step("peers", || {
        // Both end before the tests begin, whatever becomes of one.
        let (downloaded, built) = (joined(downloads), joined(peer));
        let peers = downloaded?;
        built?;
        all.env(peers::VARIABLE, peers.home());
        Ok(())
    });
    let mut server = None;
    tally.step("postgres", || {
        let postgres = server.insert(Postgres::start()?);
        all.env(postgres::VARIABLE, postgres.url());
        Ok(())
    });
    // The arrows and the other rules of the repository are tests/it/tidy.rs.
    tests(tally, "tests", all);
    drop(server);
    examples::steps(tally);
    conformance::steps(tally, &Side::ALL);
    release::steps(tally);
    tally.step("book", || book::build(&joined(mdbook)?));
    tally.step("instructions", || instructions::gate(&joined(counted)?));
    tally.step("long files", warn_of_long_files);
}

/// Waits for the result of a thread.
fn joined<T>(thread: JoinHandle<command::Outcome<T>>) -> command::Outcome<T> {
    let ended = thread.join();
    ended.map_err(|_| "a thread of this task panicked".to_owned())?
}

/// Returns how many tests of a binary run at once: two for each core, because many wait for a process or the disk.
fn test_threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Length in lines above which a Rust file is named in a warning: it may have more than one responsibility. The limit is
/// in tests/it/tidy.rs.
const FILE_LINES_WARN: usize = 600;

/// Prints the Rust files with more than [`FILE_LINES_WARN`] lines, the longest first. Fails only if they can't be listed.
fn warn_of_long_files() -> command::Outcome {
    let listed = command::output(command::program("git", &["ls-files", "*.rs"]))?;
    let lines = |path: &str| {
        let text = std::fs::read_to_string(command::root().join(path)).unwrap_or_default();
        text.lines().count()
    };
    let mut long: Vec<(usize, &str)> = listed
        .lines()
        .map(|path| (lines(path), path))
        .filter(|(lines, _)| *lines > FILE_LINES_WARN)
        .collect();
    long.sort_unstable_by(|one, other| other.cmp(one));
    for (lines, path) in long {
        println!("warning: {path} has {lines} lines: has it more than one responsibility?");
    }
    Ok(())
}

fn tests(tally: &mut Tally, name: &str, command: Command) {
    tally.tests(name, |counted| watch(command, |line| counted.see(line)));
}
