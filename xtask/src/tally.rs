//! Counting what passed and failed, over steps and over the tests that cargo reports.

use std::time::Instant;

use crate::command::Outcome;

/// Totals of all steps.
#[derive(Default)]
pub struct Tally {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
    skipped: Vec<String>,
}

/// The numbers of the `test result:` lines of one `cargo test`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests marked `#[ignore]`.
    pub ignored: u64,
}

impl Counted {
    /// Adds a line of cargo's output, if it is a `test result:` line.
    pub fn see(&mut self, line: &str) {
        let Some((_, result)) = line.split_once("test result:") else {
            return;
        };
        for part in result.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(number)), Some(what)) =
                (words.next().map(str::parse::<u64>), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl Tally {
    /// Does a step that passes or fails as a whole.
    pub fn step(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        self.tests(name, |counted| {
            step()?;
            counted.passed += 1;
            Ok(())
        });
    }

    /// Does a step that counts tests. An error with no failed test (it didn't build, it crashed) is one failure; so is
    /// a step in which not one test ran.
    pub fn tests(&mut self, name: &str, step: impl FnOnce(&mut Counted) -> Outcome) {
        println!("\n== {name}");
        let start = Instant::now();
        let mut counted = Counted::default();
        let outcome = step(&mut counted).and_then(|()| match counted.passed + counted.failed {
            0 => Err("no test ran".to_owned()),
            _ => Ok(()),
        });
        if let Err(why) = &outcome {
            counted.failed = counted.failed.max(1);
            self.failures.push(format!("{name}: {why}"));
        }
        self.passed += counted.passed;
        self.failed += counted.failed;
        if counted.ignored > 0 {
            self.skip(format!(
                "{} ignored in {name}: they are run by soak or fuzz",
                counted.ignored
            ));
        }
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!(
            "== {name}: {verdict}, {:.0} s",
            start.elapsed().as_secs_f32()
        );
    }

    /// Notes what wasn't done, and why.
    pub fn skip(&mut self, what: String) {
        self.skipped.push(what);
    }

    /// Says what failed and what was skipped; the last line is the sum. True if nothing failed.
    pub fn report(&self) -> bool {
        println!();
        self.failures
            .iter()
            .for_each(|failure| println!("failed: {failure}"));
        self.skipped
            .iter()
            .for_each(|skipped| println!("skipped: {skipped}"));
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: cargo's numbers are read right. Method: lines as cargo prints them, and one that only looks like one.
    #[test]
    fn result_lines_are_added_up() {
        let mut counted = Counted::default();
        counted.see("test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.01s");
        counted
            .see("test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out");
        counted.see("test passed_and_failed ... ok");
        assert_eq!(
            counted,
            Counted {
                passed: 13,
                failed: 4,
                ignored: 2
            }
        );
    }

    /// Goal: nothing that went wrong counts as passed. Method: a step that crashed before a test, and one that ran
    /// none.
    #[test]
    fn a_crash_and_an_empty_run_are_failures() {
        let mut tally = Tally::default();
        tally.step("good", || Ok(()));
        assert!(tally.report());
        tally.tests("crash", |_| Err("it crashed".to_owned()));
        tally.tests("empty", |_| Ok(()));
        assert_eq!((tally.passed, tally.failed), (1, 2));
        assert!(!tally.report());
    }
}
