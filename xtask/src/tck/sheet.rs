//! Results of the A2A kit by test and requirement.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::Outcome;

/// Longest reason that is written, in characters.
const REASON_CHARS_MAX: usize = 240;

/// Results of one branch of the kit.
#[derive(Debug, Default)]
pub struct Sheet {
    version: String,
    branch: String,
    commit: String,
    date: String,
    reports: Vec<Report>,
    /// The level, and what it came to by binding.
    requirements: BTreeMap<String, (String, String)>,
}

/// One file of the kit's.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    about: String,
    tests: Vec<Test>,
}

#[derive(Debug, PartialEq, Eq)]
struct Test {
    name: String,
    /// `passed`, `failed`, `skipped`, `error`, `xfailed`, `xpassed`.
    outcome: String,
    why: String,
}

impl Report {
    /// Reads a file of the plugin pytest-json-report.
    pub fn read(file: &Path, about: &str) -> Outcome<Self> {
        let text = fs::read_to_string(file)
            .map_err(|e| format!("{} can't be read: {e}", file.display()))?;
        let report: Value = serde_json::from_str(&text)
            .map_err(|e| format!("{} isn't JSON: {e}", file.display()))?;
        Ok(Self::of(&report, about))
    }

    fn of(report: &Value, about: &str) -> Self {
        let tests = report["tests"].as_array().map_or(&[][..], Vec::as_slice);
        Self {
            about: about.to_owned(),
            tests: tests.iter().map(Test::of).collect(),
        }
    }

    fn count(&self, outcomes: &[&str]) -> usize {
        self.tests
            .iter()
            .filter(|test| outcomes.contains(&&*test.outcome))
            .count()
    }
}

impl Test {
    fn of(test: &Value) -> Self {
        let name = test["nodeid"].as_str().unwrap_or_default();
        // The folder is the kit's; the file, class, function and what it was given tell which it is.
        let name = name.rsplit('/').next().unwrap_or(name).replace("::", " › ");
        let outcome = test["outcome"].as_str().unwrap_or_default().to_owned();
        let phases = ["setup", "call", "teardown"].map(|phase| &test[phase]);
        let ended = phases.into_iter().find(|phase| {
            phase["outcome"]
                .as_str()
                .is_some_and(|outcome| outcome != "passed")
        });
        Self {
            name,
            outcome,
            why: ended.map(reason).unwrap_or_default(),
        }
    }
}

/// Returns the reason for which a phase of a test didn't pass, as one line.
fn reason(phase: &Value) -> String {
    let crash = phase["crash"]["message"].as_str();
    let long = phase["longrepr"].as_str().unwrap_or_default();
    // Of a test that was skipped: `('file', line, 'Skipped: why')`.
    let skipped = long
        .split_once("Skipped: ")
        .map(|(_, why)| why.trim_end_matches(['\'', '"', ')']));
    let said = skipped.or(crash).unwrap_or(long);
    let line = said
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|");
    // Ids of a run would change the file each time.
    match line.char_indices().nth(REASON_CHARS_MAX) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

impl Sheet {
    /// Creates the sheet of a branch at a commit, on a date.
    pub fn new(version: &str, branch: &str, commit: &str, date: &str) -> Self {
        let [version, branch, commit, date] = [version, branch, commit, date].map(str::to_owned);
        Self {
            version,
            branch,
            commit,
            date,
            ..Self::default()
        }
    }

    /// Adds a report.
    pub fn add(&mut self, report: Report) {
        self.reports.push(report);
    }

    /// Reads the kit's results by requirement.
    pub fn requirements(&mut self, file: &Path) -> Outcome {
        let text = fs::read_to_string(file)
            .map_err(|e| format!("{} can't be read: {e}", file.display()))?;
        let all: Value = serde_json::from_str(&text)
            .map_err(|e| format!("{} isn't JSON: {e}", file.display()))?;
        for (id, requirement) in all["per_requirement"].as_object().into_iter().flatten() {
            let level = requirement["level"].as_str().unwrap_or_default().to_owned();
            let bindings = requirement["transports"].as_object().into_iter().flatten();
            let bindings = bindings
                .map(|(name, outcome)| format!("{name} {}", outcome.as_str().unwrap_or_default()));
            let said = bindings.collect::<Vec<_>>().join(", ").to_lowercase();
            self.requirements.insert(
                id.clone(),
                (
                    level,
                    if said.is_empty() {
                        "not tested".to_owned()
                    } else {
                        said
                    },
                ),
            );
        }
        Ok(())
    }

    /// Returns the numbers of passed, failed and skipped tests.
    pub fn sums(&self) -> String {
        let count = |outcomes: &[&str]| {
            self.reports
                .iter()
                .map(|report| report.count(outcomes))
                .sum::<usize>()
        };
        let (passed, skipped) = (count(&["passed", "xpassed"]), count(&["skipped"]));
        let failed = count(&["failed", "error", "xfailed"]);
        format!(
            "A2A {}: {passed} passed, {failed} failed, {skipped} skipped",
            self.version
        )
    }

    fn section(&self) -> String {
        let mut text = format!(
            "{}. Kit: branch `{}` at {}, {}.\n\n",
            self.sums(),
            self.branch,
            self.commit,
            self.date
        );
        // Writing to a string doesn't fail.
        if self.reports.len() > 1 {
            text.push_str("| tests | passed | failed | skipped |\n|---|---:|---:|---:|\n");
            for report in &self.reports {
                let failed = report.count(&["failed", "error", "xfailed"]);
                let (passed, skipped) = (
                    report.count(&["passed", "xpassed"]),
                    report.count(&["skipped"]),
                );
                let _ = writeln!(
                    text,
                    "| {} | {passed} | {failed} | {skipped} |",
                    report.about
                );
            }
            text.push('\n');
        }
        text.push_str("| what didn't pass | | why |\n|---|---|---|\n");
        for report in &self.reports {
            for test in report
                .tests
                .iter()
                .filter(|test| !test.outcome.ends_with("passed"))
            {
                let about = if self.reports.len() > 1 {
                    format!(" ({})", report.about)
                } else {
                    String::new()
                };
                let _ = writeln!(
                    text,
                    "| {}{about} | {} | {} |",
                    test.name, test.outcome, test.why
                );
            }
        }
        if !self.requirements.is_empty() {
            text.push_str("\n| requirement | level | |\n|---|---|---|\n");
            for (id, (level, said)) in &self.requirements {
                let _ = writeln!(text, "| {id} | {level} | {said} |");
            }
        }
        text
    }
}

/// Returns the document with these sheets in their places; the rest is written by hand.
pub fn written(before: &str, sheets: &[Sheet]) -> Outcome<String> {
    let mut text = before.to_owned();
    for sheet in sheets {
        let begin = format!("<!-- {}: written by `cargo xtask tck` -->", sheet.version);
        let end = format!("<!-- end of {} -->", sheet.version);
        let parts = text
            .split_once(&*begin)
            .and_then(|(head, rest)| Some((head, rest.split_once(&*end)?.1)));
        let (head, rest) =
            parts.ok_or_else(|| format!("the document needs the lines {begin} and {end}"))?;
        text = format!("{head}{begin}\n\n{}\n{end}{rest}", sheet.section());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> Report {
        let skipped = "('tests/a.py', 12, \"Skipped: no push | here\")";
        Report::of(
            &json!({ "tests": [
                { "nodeid": "tests/x/test_a.py::TestA::test_one[jsonrpc]", "outcome": "passed", "call": { "outcome": "passed" } },
                { "nodeid": "tests/x/test_a.py::test_two", "outcome": "failed",
                  "setup": { "outcome": "passed" },
                  "call": { "outcome": "failed", "crash": { "message": "AssertionError:\n  no" }, "longrepr": "long" } },
                { "nodeid": "tests/x/test_a.py::test_three", "outcome": "skipped",
                  "setup": { "outcome": "skipped", "longrepr": skipped } },
            ] }),
            "all",
        )
    }

    /// Goal: what the plugin wrote is read, reasons too. Method: a test of each outcome.
    #[test]
    fn reports_are_read() {
        let tests = report().tests;
        let told: Vec<_> = tests
            .iter()
            .map(|test| (&*test.name, &*test.outcome, &*test.why))
            .collect();
        assert_eq!(
            told,
            [
                ("test_a.py › TestA › test_one[jsonrpc]", "passed", ""),
                ("test_a.py › test_two", "failed", "AssertionError: no"),
                ("test_a.py › test_three", "skipped", "no push \\| here"),
            ]
        );
    }

    /// Goal: a sheet is written in its place, whatever stands around it. Method: twice, and into a text without a place.
    #[test]
    fn sheets_are_replaced_in_place() {
        let mut sheet = Sheet::new("1.0", "main", "c0ffee", "2026-01-01");
        sheet.add(report());
        let before =
            "# Kit\n<!-- 1.0: written by `cargo xtask tck` -->\nold\n<!-- end of 1.0 -->\nend\n";
        let once = written(before, std::slice::from_ref(&sheet)).unwrap();
        let twice = written(&once, std::slice::from_ref(&sheet)).unwrap();
        assert!(
            once == twice && once.starts_with("# Kit\n<!--") && once.ends_with("-->\nend\n"),
            "{once}"
        );
        assert!(once.contains("A2A 1.0: 1 passed, 1 failed, 1 skipped") && !once.contains("old"));
        assert!(
            !once.contains("test_one")
                && once.contains("| test_a.py › test_two | failed | AssertionError: no |")
        );
        assert!(written("nothing", &[sheet]).is_err());
    }
}
