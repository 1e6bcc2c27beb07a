//! `cargo xtask fuzz`: the properties of every decoder with many generated cases, or under libFuzzer.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::command::{Outcome, cargo, output, program, root, run, target};

/// Cases a property test, when none are given.
const CASES_DEFAULT: &str = "10000";
/// Flags of rustc for the coverage that libFuzzer reads. All are stable, so that any compiler will do. The lints forbid the
/// unmangled entry point.
const COVERAGE: &str = "--cap-lints=allow -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Shortest run of one target, in seconds.
const SLICE_MIN_S: u64 = 5;
/// Size of an input that is kept in the repository, in bytes, and number of such inputs a target and run: the tests cut each at
/// every byte.
const KEPT_BYTES_MAX: &str = "-max_len=256";
const KEPT_MAX: usize = 16;

/// Runs the tests, or libFuzzer.
pub fn fuzz(options: &[&str]) -> Outcome {
    match options {
        [] => properties(CASES_DEFAULT),
        ["--minutes", minutes] => libfuzzer(minutes, false),
        ["--minutes", minutes, "--keep"] => libfuzzer(minutes, true),
        [cases] => properties(cases),
        _ => Err(format!("unknown options: {}", options.join(" "))),
    }
}

/// Every test, each property with so many cases (those that fix their own number apart): among them the decoders'
/// properties, on mutations of their corpus.
fn properties(cases: &str) -> Outcome {
    let cases: u64 = number("cases", cases)?;
    let mut tests = cargo(&["test", "--workspace", "--release"]);
    tests.env("PROPTEST_CASES", cases.to_string());
    run(tests)
}

fn number(of: &str, text: &str) -> Outcome<u64> {
    text.parse()
        .map_err(|_| format!("the number of {of} must be a number, not {text:?}"))
}

/// One target under libFuzzer.
struct Fuzzed {
    name: OsString,
    corpus: PathBuf,
    /// Inputs that were found, which later runs begin with. No part of the repository.
    found: PathBuf,
    seconds: u64,
    /// New inputs of all runs, and of the last one. Each covers something that the others don't.
    new: usize,
    new_last: usize,
}

/// Runs all targets for so many minutes together. Each round has half of the time that is left, shared by the targets that found
/// something in their last run, or by all if none did.
fn libfuzzer(minutes: &str, keeps: bool) -> Outcome {
    let left = Duration::from_secs(60 * number("minutes", minutes)?);
    let program = build()?;
    let mut targets = targets()?;
    let end = Instant::now() + left;
    let mut is_first = true;
    loop {
        let is_open = |target: &Fuzzed| is_first || target.new_last > 0;
        let all = !targets.iter().any(is_open);
        let open: Vec<_> = targets
            .iter_mut()
            .filter(|target| all || is_open(target))
            .collect();
        let left = end.saturating_duration_since(Instant::now()).as_secs();
        if left < SLICE_MIN_S {
            break;
        }
        let share = (left / 2 / open.len() as u64).max(SLICE_MIN_S);
        for target in open {
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            if left == 0 {
                break;
            }
            target.run(&program, share.min(left))?;
        }
        is_first = false;
    }
    println!("\n| target | seconds | new inputs |\n|---|---|---|");
    for target in &targets {
        let name = target.name.display();
        println!("| {name} | {} | {} |", target.seconds, target.new);
    }
    match keeps {
        true => targets.iter().try_for_each(|target| target.keep(&program)),
        false => Ok(()),
    }
}

/// Builds the targets. Returns the program. Only the crates of the target are built for coverage, not build scripts.
fn build() -> Outcome<PathBuf> {
    let rustc = output(program("rustc", &["-vV"]))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc names no host")?;
    let home = target().join("fuzz");
    let mut build = cargo(&[
        "build",
        "--release",
        "-p",
        "callboard-fuzz",
        "--features",
        "libfuzzer",
        "--bin",
        "libfuzzer",
        "--target",
        host,
    ]);
    build
        .env("CARGO_TARGET_DIR", &home)
        .env("RUSTFLAGS", COVERAGE);
    run(build).map_err(|why| format!("{why}; it needs a C++ compiler too"))?;
    Ok(home.join(host).join("release/libfuzzer"))
}

/// The targets: those with a directory in the corpus.
fn targets() -> Outcome<Vec<Fuzzed>> {
    let unreadable = |e| format!("fuzz/corpus can't be read: {e}");
    let entries = fs::read_dir(root().join("fuzz/corpus")).map_err(unreadable)?;
    let mut targets = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let found = target().join("fuzz-found").join(entry.file_name());
        fs::create_dir_all(&found)
            .map_err(|e| format!("{} can't be made: {e}", found.display()))?;
        targets.push(Fuzzed {
            name: entry.file_name(),
            corpus: entry.path(),
            found,
            seconds: 0,
            new: 0,
            new_last: 0,
        });
    }
    targets.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(targets)
}

impl Fuzzed {
    fn run(&mut self, program: &Path, seconds: u64) -> Outcome {
        let before = files(&self.found)?.len();
        let mut fuzzer = self.fuzzer(program);
        fuzzer
            .arg(format!("-max_total_time={seconds}"))
            .args([
                "-max_len=65536",
                "-timeout=10",
                "-rss_limit_mb=512",
                "-verbosity=0",
            ])
            .args([&self.found, &self.corpus]);
        run(fuzzer)?;
        self.new_last = files(&self.found)?.len().saturating_sub(before);
        self.new += self.new_last;
        self.seconds += seconds;
        Ok(())
    }

    fn fuzzer(&self, program: &Path) -> std::process::Command {
        let mut fuzzer = crate::command::program(&program.to_string_lossy(), &[]);
        // An input that breaks a property is written beside those that were found.
        let artifacts = format!("-artifact_prefix={}.broken-", self.found.display());
        fuzzer.env("FUZZ_TARGET", &self.name).arg(artifacts);
        fuzzer
    }

    /// Adds those of the found inputs to the repository's corpus that together cover most of what it doesn't cover.
    fn keep(&self, program: &Path) -> Outcome {
        let before: HashSet<_> = files(&self.corpus)?.into_iter().collect();
        let mut merge = self.fuzzer(program);
        merge
            .args(["-set_cover_merge=1", "-verbosity=0", KEPT_BYTES_MAX])
            .args([&self.corpus, &self.found]);
        run(merge)?;
        // Each is written after those that add more.
        let written = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
        let mut new = files(&self.corpus)?;
        new.retain(|path| !before.contains(path));
        new.sort_by_key(written);
        for path in new.iter().skip(KEPT_MAX) {
            fs::remove_file(path)
                .map_err(|e| format!("{} can't be removed: {e}", path.display()))?;
        }
        Ok(())
    }
}

fn files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let unreadable = |e| format!("{} can't be read: {e}", folder.display());
    let entries = fs::read_dir(folder).map_err(unreadable)?;
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(unreadable))
        .collect()
}
