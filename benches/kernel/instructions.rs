//! Runs one workload with one contestant, for `cargo xtask instructions` under callgrind.
//!
//! `instructions CONTESTANT WORK OPERATIONS`; without arguments it runs a little of everything, as
//! a smoke test.

#[macro_use]
#[expect(
    dead_code,
    reason = "time is for the table, the slow agents for the stress bench"
)]
mod contest;

use std::process::ExitCode;

use contest::Contestant;
use contest::works::{self, Work};

/// Number of operations in the smoke test.
const SMOKE_OPERATIONS: u64 = 1_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let entries = contestants!(entry).map(|entry| entry());
    if words.is_empty() {
        for (_, run) in entries {
            Work::ALL
                .into_iter()
                .for_each(|work| run(work, SMOKE_OPERATIONS));
        }
        return ExitCode::SUCCESS;
    }
    match chosen(&words, &entries) {
        Some((run, work, operations)) => {
            run(work, operations);
            ExitCode::SUCCESS
        }
        None => {
            let names = entries.map(|(name, _)| name);
            eprintln!(
                "usage: instructions CONTESTANT WORK OPERATIONS\n{names:?}\n{:?}",
                Work::ALL.map(Work::name)
            );
            ExitCode::from(2)
        }
    }
}

type Run = fn(Work, u64);

fn entry<C: Contestant>() -> (&'static str, Run) {
    (C::NAME, |work, operations| {
        works::run::<C>(work, operations);
    })
}

fn chosen(words: &[String], entries: &[(&'static str, Run)]) -> Option<(Run, Work, u64)> {
    let [name, work, operations] = words else {
        return None;
    };
    let (_, run) = entries.iter().find(|(entry, _)| entry == name)?;
    let work = Work::ALL
        .into_iter()
        .find(|candidate| candidate.name() == work)?;
    Some((*run, work, operations.parse().ok()?))
}
