//! Tests that take too long to run on every change.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Outcome, cargo, program, root, run, target};
use crate::postgres::{self, Postgres};
use crate::tools;

/// Cases a property test, when none are given.
pub const CASES_DEFAULT: u64 = 10_000;

/// Time that libFuzzer spends on one target, in seconds.
const LIBFUZZER_TIME: &str = "-max_total_time=60";

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

/// Every test, each property with so many cases (those that fix their own number apart): among them the decoders'
/// promises, on mutations of their corpus. Then the same promises under libFuzzer, where it can be had.
pub fn fuzz(cases: u64) -> Outcome {
    let mut tests = cargo(&["test", "--workspace", "--release"]);
    tests.env("PROPTEST_CASES", cases.to_string());
    run(tests)?;
    if !tools::has_libfuzzer() {
        println!(
            "without libFuzzer: it needs a nightly compiler and `cargo install --locked cargo-fuzz`"
        );
        return Ok(());
    }
    corpora()?.iter().try_for_each(|corpus| libfuzzer(corpus))
}

/// The directories of the corpus, one a target.
fn corpora() -> Outcome<Vec<PathBuf>> {
    let unreadable = |e| format!("fuzz/corpus can't be read: {e}");
    let entries = fs::read_dir(root().join("fuzz/corpus")).map_err(unreadable)?;
    let mut corpora: Vec<_> = entries
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    corpora.sort();
    Ok(corpora)
}

fn libfuzzer(corpus: &Path) -> Outcome {
    let name = corpus.file_name().unwrap_or_default();
    // What it finds goes to the first directory, which is no part of the repository.
    let found = target().join("fuzz").join(name);
    fs::create_dir_all(&found).map_err(|e| format!("{} can't be made: {e}", found.display()))?;
    let mut fuzzer = program(
        "cargo",
        &[
            "+nightly",
            "fuzz",
            "run",
            "--features",
            "libfuzzer",
            "libfuzzer",
        ],
    );
    fuzzer.arg(&found).arg(corpus).args([
        "--",
        LIBFUZZER_TIME,
        "-max_len=65536",
        "-timeout=10",
        "-rss_limit_mb=512",
    ]);
    // Its entry point is an unmangled function, which the workspace's lints forbid to hand-written code.
    fuzzer
        .env("FUZZ_TARGET", name)
        .env("RUSTFLAGS", "--cap-lints=allow");
    run(fuzzer)
}
