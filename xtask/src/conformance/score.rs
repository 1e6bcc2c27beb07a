//! Results of the conformance suite by scenario.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::Outcome;

/// Results of one run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    scores: Vec<Score>,
}

/// Results of one scenario.
#[derive(Debug, Default, PartialEq, Eq)]
struct Score {
    scenario: String,
    passed: u64,
    failed: u64,
    warnings: u64,
    /// Whether the revision doesn't score the scenario.
    beside: bool,
    /// Names of failed checks.
    failures: Vec<String>,
    /// `check: why`, of each check that failed or warned.
    complaints: Vec<String>,
}

impl Sheet {
    /// From the lines of a run: `✓ NAME: N passed, N failed` in its summary, and the indented list of what isn't scored.
    pub fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut sheet = Self::default();
        let summary =
            lines.skip_while(|line| !(line.starts_with("===") && line.contains("SUMMARY")));
        for line in summary {
            if let Some(score) = Score::read(line) {
                sheet.scores.push(score);
            } else if let Some(name) = not_scored(line) {
                sheet
                    .scores
                    .iter_mut()
                    .filter(|score| score.scenario == name)
                    .for_each(|score| score.beside = true);
            }
        }
        sheet
    }

    /// Reads the checks that the suite wrote, a file a scenario, for the names of those that failed. Its folders are
    /// called `PREFIX + SCENARIO-TIME`.
    pub fn name_failures(&mut self, results: &Path, prefix: &str) -> Outcome {
        for score in &mut self.scores {
            let Some(file) = checks_file(results, prefix, &score.scenario) else {
                continue;
            };
            let text = fs::read_to_string(&file)
                .map_err(|e| format!("{} can't be read: {e}", file.display()))?;
            let checks: Value = serde_json::from_str(&text)
                .map_err(|e| format!("{} isn't JSON: {e}", file.display()))?;
            score.note(checks.as_array().map_or(&[], Vec::as_slice));
        }
        Ok(())
    }

    /// Whether fewer scenarios than `beside` hold of those that the revision doesn't score.
    pub fn too_few_beside(&self, beside: usize) -> bool {
        self.scores
            .iter()
            .filter(|score| score.beside && score.failed == 0)
            .count()
            < beside
    }

    /// Scenarios without and with a failed check. Those that aren't scored fail only if too few of them hold.
    pub fn scenarios_passed_and_failed(&self, beside: usize) -> (u64, u64) {
        let too_few = self.too_few_beside(beside);
        let counted = self
            .scores
            .iter()
            .filter(|score| score.failed == 0 || !score.beside || too_few);
        let (passed, failed): (Vec<_>, Vec<_>) = counted.partition(|score| score.failed == 0);
        (passed.len() as u64, failed.len() as u64)
    }

    /// An error that names every failed check, or a scenario that is missing or in which nothing was shown. Of what the
    /// revision doesn't score, at least `beside` scenarios must hold.
    pub fn verdict(&self, required: usize, beside: usize) -> Outcome {
        let mut wrong = Vec::new();
        let scored: Vec<_> = self.scores.iter().filter(|score| !score.beside).collect();
        if scored.len() != required {
            wrong.push(format!(
                "{} scenarios ran, {required} are required",
                scored.len()
            ));
        }
        wrong.extend(scored.iter().filter_map(|score| score.complaint()));
        wrong.extend(
            scored
                .iter()
                .filter(|score| score.passed + score.failed == 0)
                .map(|score| format!("{}: no check passed", score.scenario)),
        );
        if self.too_few_beside(beside) {
            wrong.push(format!(
                "fewer than {beside} scenarios hold beside those required"
            ));
            wrong.extend(
                self.scores
                    .iter()
                    .filter(|score| score.beside)
                    .filter_map(Score::complaint),
            );
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n  "))
        }
    }
}

impl Score {
    fn read(line: &str) -> Option<Self> {
        let line = line.strip_prefix('✓').or_else(|| line.strip_prefix('✗'))?;
        let (scenario, numbers) = line.trim_start().rsplit_once(": ")?;
        let mut score = Self {
            scenario: scenario.to_owned(),
            ..Self::default()
        };
        for part in numbers.split(", ") {
            let (number, what) = part.split_once(' ')?;
            let number = number.parse().ok()?;
            match what {
                "passed" => score.passed = number,
                "failed" => score.failed = number,
                "warnings" => score.warnings = number,
                _ => return None,
            }
        }
        Some(score)
    }

    fn note(&mut self, checks: &[Value]) {
        let of =
            |status: &'static str| checks.iter().filter(move |check| check["status"] == status);
        self.warnings = of("WARNING").count() as u64;
        self.failures = of("FAILURE")
            .filter_map(|check| check["id"].as_str().map(str::to_owned))
            .collect();
        for check in of("FAILURE").chain(of("WARNING")) {
            let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
            let why = check["errorMessage"]
                .as_str()
                .or_else(|| check["description"].as_str())
                .unwrap_or_default();
            self.complaints
                .push(format!("{} ({}): {why}", text("id"), text("status")));
        }
    }

    /// Returns the scenario and its failed checks; the table has the reasons.
    fn complaint(&self) -> Option<String> {
        (self.failed > 0).then(|| match self.failures.is_empty() {
            true => format!("{}: {} checks failed", self.scenario, self.failed),
            false => format!("{}: {}", self.scenario, self.failures.join(", ")),
        })
    }
}

/// Returns the scenario's name in a line like `  ✗ NAME (extension)`.
fn not_scored(line: &str) -> Option<&str> {
    let line = line.strip_prefix("  ")?;
    let line = line.strip_prefix('✓').or_else(|| line.strip_prefix('✗'))?;
    line.trim_start().split_once(" (").map(|(name, _)| name)
}

/// `PREFIX + SCENARIO-TIME/checks.json`; a scenario's name may have a slash in it.
fn checks_file(results: &Path, prefix: &str, scenario: &str) -> Option<PathBuf> {
    let start = format!("{prefix}{scenario}");
    let (folder, start) = match start.rsplit_once('/') {
        Some((folder, start)) => (results.join(folder), start),
        None => (results.to_owned(), start.as_str()),
    };
    // The time begins with the year; the name of a longer scenario that begins alike goes on with a letter.
    let is_it = |name: &str| {
        name.strip_prefix(start)
            .is_some_and(|rest| rest.starts_with("-2"))
    };
    let mut entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let entry = entries.find(|entry| is_it(&entry.file_name().to_string_lossy()))?;
    Some(entry.path().join("checks.json")).filter(|file| file.exists())
}

/// The score sheet: a line a run, then every complaint. With each sheet comes how many scenarios must hold beside those
/// that are scored.
pub fn table(sheets: &[(&str, usize, Sheet)]) -> String {
    let mut table = format!(
        "\n{:<20} {:>9} {:>7} {:>7} {:>9}\n",
        "conformance", "scenarios", "passed", "failed", "warnings"
    );
    let mut complaints = String::new();
    for (name, must_hold, sheet) in sheets {
        for (beside, label) in [
            (false, (*name).to_owned()),
            (true, "  beside it".to_owned()),
        ] {
            let scores: Vec<_> = sheet
                .scores
                .iter()
                .filter(|score| score.beside == beside)
                .collect();
            if scores.is_empty() && beside {
                continue;
            }
            let sum = |of: fn(&Score) -> u64| scores.iter().map(|score| of(score)).sum::<u64>();
            let (passed, failed, warnings) =
                (sum(|s| s.passed), sum(|s| s.failed), sum(|s| s.warnings));
            // Writing to a string doesn't fail.
            let _ = writeln!(
                table,
                "{label:<20} {:>9} {passed:>7} {failed:>7} {warnings:>9}",
                scores.len()
            );
            // What may fail is counted; what fails there is in the suite's own files.
            let told = if beside && !sheet.too_few_beside(*must_hold) {
                &[]
            } else {
                scores.as_slice()
            };
            for complaint in told
                .iter()
                .flat_map(|score| score.complaints.iter().map(|c| (&score.scenario, c)))
            {
                let _ = writeln!(complaints, "{name}, {}: {}", complaint.0, complaint.1);
            }
        }
    }
    table + &complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
=== Running scenario: ping ===
✓ ping: 99 passed, 0 failed


=== SUMMARY ===
✓ ping: 2 passed, 0 failed
✗ auth/basic: 1 passed, 2 failed, 3 warnings
✓ empty: 0 passed, 0 failed
✗ tasks-lifecycle: 7 passed, 1 failed

Total: 10 passed, 3 failed

Not scored for 2026-07-28: 1 scenario(s) run, 1 failing. These do not affect conformance.
  ✗ tasks-lifecycle (extension)";

    /// Goal: the suite's summary is read, and only it. Method: a printed run with a line that looks like one.
    #[test]
    fn the_summary_is_read() {
        let sheet = Sheet::read(OUTPUT.lines());
        let numbers: Vec<_> = sheet
            .scores
            .iter()
            .map(|s| {
                (
                    s.scenario.as_str(),
                    s.passed,
                    s.failed,
                    s.warnings,
                    s.beside,
                )
            })
            .collect();
        assert_eq!(
            numbers,
            [
                ("ping", 2, 0, 0, false),
                ("auth/basic", 1, 2, 3, false),
                ("empty", 0, 0, 0, false),
                ("tasks-lifecycle", 7, 1, 0, true),
            ]
        );
        assert_eq!(sheet.scenarios_passed_and_failed(1), (2, 2));
        assert_eq!(sheet.scenarios_passed_and_failed(0), (2, 1));
        assert!(
            table(&[("server", 1, sheet)])
                .contains("server                       3       3       2         3")
        );
    }

    /// Goal: nothing but a full, clean run passes. Method: one thing wrong at a time.
    #[test]
    fn the_verdict_names_what_is_wrong() {
        let clean = Sheet::read("=== SUMMARY ===\n✓ ping: 2 passed, 0 failed".lines());
        assert_eq!(clean.verdict(1, 0), Ok(()));
        assert_eq!(
            clean.verdict(2, 0),
            Err("1 scenarios ran, 2 are required".to_owned())
        );
        assert!(
            clean
                .verdict(1, 1)
                .unwrap_err()
                .contains("fewer than 1 scenarios")
        );
        let sheet = Sheet::read(OUTPUT.lines());
        let why = sheet.verdict(3, 1).unwrap_err();
        for part in [
            "auth/basic: 2 checks failed",
            "empty: no check passed",
            "tasks-lifecycle: 1 checks failed",
        ] {
            assert!(why.contains(part), "{why}");
        }
        assert!(!sheet.verdict(3, 0).unwrap_err().contains("tasks"));
        assert!(Sheet::read("nothing at all".lines()).verdict(1, 0).is_err());
    }

    /// Goal: a failure is named by its check. Method: files as the suite writes them, with names that begin alike.
    #[test]
    fn failed_checks_are_named() {
        let results = std::env::temp_dir().join(format!("callboard_score_{}", std::process::id()));
        let time = "-2026-07-28T01-02-03-004Z";
        let check =
            |id: &str| format!(r#"[{{"id":"{id}","status":"FAILURE","errorMessage":"no"}}]"#);
        for (folder, id) in [
            ("ping", "right"),
            ("ping-more", "wrong"),
            ("auth/basic", "slashed"),
            ("server-sse", "twice"),
        ] {
            let folder = format!("server-{folder}{time}");
            fs::create_dir_all(results.join(&folder)).unwrap();
            fs::write(results.join(&folder).join("checks.json"), check(id)).unwrap();
        }
        let lines = "=== SUMMARY ===\n✗ ping: 0 passed, 1 failed\n✗ auth/basic: 0 passed, 1 failed\n✗ server-sse: 0 passed, 1 failed";
        let mut sheet = Sheet::read(lines.lines());
        sheet.name_failures(&results, "server-").unwrap();
        let named: Vec<_> = sheet
            .scores
            .iter()
            .flat_map(|score| score.complaints.clone())
            .collect();
        assert!(sheet.verdict(3, 0).unwrap_err().contains("ping: right"));
        assert_eq!(
            named,
            [
                "right (FAILURE): no",
                "slashed (FAILURE): no",
                "twice (FAILURE): no"
            ]
        );
        fs::remove_dir_all(&results).unwrap();
    }
}
