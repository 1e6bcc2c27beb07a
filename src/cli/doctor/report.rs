//! Results of checks, as text and as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use crate::text::one_line;

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DoctorCheck {
    /// Subject, such as `upstream files`.
    #[serde(rename = "check")]
    subject: String,
    level: CheckLevel,
    /// Finding, without a secret.
    found: String,
    /// Instruction that mends it; `None` if nothing is wrong.
    remedy: Option<String>,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckLevel {
    Ok,
    /// A node works, but perhaps not as intended.
    Warning,
    /// A part of the node doesn't work.
    Error,
}

impl CheckLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl DoctorCheck {
    pub(super) fn ok(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            level: CheckLevel::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    pub(super) fn warning(
        subject: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            level: CheckLevel::Warning,
            remedy: Some(remedy.into()),
            ..Self::ok(subject, found)
        }
    }

    pub(super) fn error(
        subject: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            level: CheckLevel::Error,
            ..Self::warning(subject, found, remedy)
        }
    }

    /// Formats the result as a line, and a second one with the remedy.
    fn to_text(&self) -> String {
        // Files of others may hold line breaks.
        let found = one_line(&self.found, usize::MAX);
        let line = format!("{:8} {}: {found}", self.level.as_str(), self.subject);
        match &self.remedy {
            Some(remedy) => format!("{line}\n{:8} remedy: {remedy}", ""),
            None => line,
        }
    }
}

/// Results of all checks.
pub(super) struct DoctorReport {
    pub(super) checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    fn count(&self, level: CheckLevel) -> usize {
        let checks = self.checks.iter();
        checks.filter(|check| check.level == level).count()
    }

    pub(super) fn has_errors(&self) -> bool {
        self.count(CheckLevel::Error) > 0
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "ok": !self.has_errors(), "checks": self.checks })
    }

    /// Formats the results, and a last line with their numbers.
    pub(super) fn to_text(&self) -> String {
        let mut lines: Vec<_> = self.checks.iter().map(DoctorCheck::to_text).collect();
        lines.push(format!(
            "checks: {}, errors: {}, warnings: {}",
            self.checks.len(),
            self.count(CheckLevel::Error),
            self.count(CheckLevel::Warning)
        ));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: people and programs read the same results, and warnings alone are no error. Method: a check of each level, in both
    /// forms.
    #[test]
    fn forms() {
        let mut report = DoctorReport {
            checks: vec![
                DoctorCheck::ok("a", "fine"),
                DoctorCheck::warning("b c", "odd", "look"),
            ],
        };
        assert!(!report.has_errors());
        report.checks.push(DoctorCheck::error("d", "bad", "mend"));
        assert!(report.has_errors());
        assert_eq!(
            report.to_text(),
            "ok       a: fine\nwarning  b c: odd\n         remedy: look\nerror    d: bad\n         remedy: mend\n\
             checks: 3, errors: 1, warnings: 1"
        );
        assert_eq!(
            report.to_json(),
            json!({ "ok": false, "checks": [
                { "check": "a", "level": "ok", "found": "fine", "remedy": null },
                { "check": "b c", "level": "warning", "found": "odd", "remedy": "look" },
                { "check": "d", "level": "error", "found": "bad", "remedy": "mend" },
            ] })
        );
    }
}
