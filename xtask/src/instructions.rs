//! Instructions a tell and an ask, counted by callgrind: free of noise, so a gate in every test run.
//!
//! A run of twice the operations less a run of once leaves out start-up, warm-up and teardown.

use std::process::Stdio;

use crate::command::{Outcome, cargo, output, program, run};
use crate::tools;

/// Operations of the shorter run; the longer has twice as many.
const OPERATIONS: u64 = 20_000;
/// Most instructions of callboard: a tell through a typed handle, an ask through any. (An erased handle looks the message's lane up,
/// and a pinned ask pays two wake-ups like everybody's: the tables show them.)
const GATES: [(&str, &str, u64); 3] = [
    ("callboard typed", "tell", 320),
    ("callboard typed", "ask", 1_650),
    ("callboard", "ask", 1_650),
];
/// Measured operations.
const WORKS: [&str; 2] = ["tell", "ask"];
/// All contestants.
const CONTESTANTS: [&str; 8] = [
    "tokio",
    "actix",
    "ractor",
    "kameo",
    "callboard",
    "callboard pinned",
    "callboard async",
    "callboard typed",
];

/// Fails if a tell or an ask of callboard takes more instructions than its gate. `binary` is that of
/// [`build`].
pub fn gate(binary: &str) -> Outcome {
    tools::valgrind()?;
    let mut over = Vec::new();
    for (ours, work, most) in GATES {
        let count = count(binary, ours, work)?;
        println!("{ours}, {work}: {count} instructions, at most {most}");
        if count > most {
            over.push(format!(
                "{ours}, {work}: {count} instructions, at most {most} are allowed"
            ));
        }
    }
    match over.is_empty() {
        true => Ok(()),
        false => Err(over.join("; ")),
    }
}

/// Returns a Markdown table of all contestants.
pub fn table() -> Outcome<String> {
    tools::valgrind()?;
    let binary = build(&[])?;
    let mut table = "| instructions | tell | ask |\n|---|---|---|\n".to_owned();
    for contestant in CONTESTANTS {
        let mut row = format!("| {contestant} |");
        for work in WORKS {
            row += &format!(" {} |", count(&binary, contestant, work)?);
        }
        table += &row;
        table.push('\n');
    }
    let [(_, _, tell), (_, _, ask), _] = GATES;
    Ok(table + &format!("| must | ≤ {tell} | ≤ {ask} |\n"))
}

/// Builds the binary with callboard, tokio and actix only. Returns its path.
pub fn build_gate() -> Outcome<String> {
    build(&["--no-default-features"])
}

/// Builds the binary with further options of cargo. Returns its path.
fn build(more: &[&str]) -> Outcome<String> {
    // The one package, so that nothing which speaks a protocol is built for it.
    let build = [
        "build",
        "--profile",
        "bench",
        "--package",
        "callboard-kernel-bench",
        "--bin",
        "instructions",
    ];
    let build = |options: &[&str]| {
        let mut command = cargo(&[&build[..], more, options].concat());
        // Instructions are counted as a whole, not by line.
        command.env("CARGO_PROFILE_BENCH_DEBUG", "0");
        command
    };
    run(build(&[]))?;
    // The second time nothing is built; only the path is asked for.
    let messages = output(build(&["--quiet", "--message-format", "json"]))?;
    executable(&messages).ok_or_else(|| "cargo named no executable of `instructions`".to_owned())
}

/// The path in cargo's message about the binary. Cargo escapes nothing in a path without quotes and backslashes.
fn executable(messages: &str) -> Option<String> {
    let message = messages
        .lines()
        .find(|line| line.contains(r#""kind":["bin"]"#))?;
    let (_, rest) = message.split_once(r#""executable":""#)?;
    rest.split_once('"').map(|(path, _)| path.to_owned())
}

/// Counts the instructions of one operation of a contestant.
fn count(binary: &str, contestant: &str, work: &str) -> Outcome<u64> {
    let once = total(binary, contestant, work, OPERATIONS)?;
    let twice = total(binary, contestant, work, 2 * OPERATIONS)?;
    Ok(twice.saturating_sub(once) / OPERATIONS)
}

fn total(binary: &str, contestant: &str, work: &str, operations: u64) -> Outcome<u64> {
    let operations = operations.to_string();
    let arguments = [
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        binary,
        contestant,
        work,
        &operations,
    ];
    let mut valgrind = program("valgrind", &arguments);
    let result = valgrind
        .stdout(Stdio::null())
        .output()
        .map_err(|e| format!("valgrind can't be started: {e}"))?;
    let report = String::from_utf8_lossy(&result.stderr);
    if !result.status.success() {
        return Err(format!(
            "{contestant} {work} failed under callgrind:\n{report}"
        ));
    }
    collected(&report).ok_or_else(|| format!("callgrind reported no count:\n{report}"))
}

/// Returns the count in callgrind's line `==123== Collected : 456`.
fn collected(report: &str) -> Option<u64> {
    let (_, rest) = report.split_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the count and the path are found. Method: lines as valgrind and cargo print them.
    #[test]
    fn reports_are_read() {
        assert_eq!(
            collected("==7== Events    : Ir\n==7== Collected : 11483973\n==7==\n"),
            Some(11_483_973)
        );
        assert_eq!(collected("==7== Collected : many"), None);
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"x"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"i"},"executable":"/t/i-1"}"#,
        );
        assert_eq!(executable(messages).as_deref(), Some("/t/i-1"));
    }
}
