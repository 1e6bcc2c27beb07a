//! Checks of the versions and of the topology file as a whole.

use std::fs;
use std::path::Path;

use super::report::DoctorCheck;
use crate::config::{CheckReport, Severity};
use crate::text::one_line;

/// File with the release of the kernel, on Linux.
const KERNEL_RELEASE_FILE: &str = "/proc/sys/kernel/osrelease";
/// Maximum length of a problem that is shown, in characters. A longer one is cut. Fixed.
const PROBLEM_CHARS_MAX: usize = 400;

/// Returns the versions of callboard and of the system.
pub(super) fn check_version() -> DoctorCheck {
    let release = fs::read_to_string(KERNEL_RELEASE_FILE).unwrap_or_default();
    let release = release.trim();
    let separator = if release.is_empty() { "" } else { " " };
    let found = format!(
        "callboard {} on {}{separator}{release}, {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    DoctorCheck::ok("version", found)
}

/// Returns the result if there is no topology file to check.
pub(super) fn missing_topology() -> DoctorCheck {
    DoctorCheck::warning(
        "topology",
        "no file is named, and this folder has no callboard.toml",
        "name yours, `callboard doctor FILE`, or write a first one, `callboard init`",
    )
}

/// Returns the number of problems that `callboard check` finds in the file, and the first of the worst.
pub(super) fn check_topology(file: &Path, report: &CheckReport) -> DoctorCheck {
    let file = file.display();
    let of_level = |level: Severity| {
        let problems = report.problems.iter();
        problems.filter(move |problem| problem.level == level)
    };
    let (errors, warnings) = (of_level(Severity::Error), of_level(Severity::Warning));
    let counts = format!(
        "errors: {}, warnings: {}",
        errors.clone().count(),
        warnings.clone().count()
    );
    let Some(worst) = errors.chain(warnings).next() else {
        return DoctorCheck::ok("topology", format!("{file} has no errors and no warnings"));
    };
    let first = one_line(&worst.to_string(), PROBLEM_CHARS_MAX);
    let found = format!("{file} has {counts}; the first: {first}");
    let remedy = format!("`callboard check {file}` shows each at its place");
    match worst.level {
        Severity::Error => DoctorCheck::error("topology", found, remedy),
        Severity::Warning => DoctorCheck::warning("topology", found, remedy),
    }
}
