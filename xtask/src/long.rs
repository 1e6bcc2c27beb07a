//! What takes too long for every change.

use crate::command::{Outcome, cargo, run};

/// Cases a property test, when none are given.
pub const CASES_DEFAULT: u64 = 10_000;

/// The stress bench, then every ignored test with `soak` in its name.
pub fn soak() -> Outcome {
    run(cargo(&["bench", "--bench", "stress"]))?;
    run(cargo(&["test", "--workspace", "--release", "--", "--ignored", "soak", "--nocapture"]))
}

/// Every test, each property with so many cases (those that fix their own number apart).
pub fn fuzz(cases: u64) -> Outcome {
    let mut tests = cargo(&["test", "--workspace", "--release"]);
    tests.env("PROPTEST_CASES", cases.to_string());
    run(tests)
}
