//! What is wrong with a file, where, and why one can't be used.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use serde::{Serialize, de};

/// Most mistakes of one file that are told; what follows is counted.
pub const PROBLEMS_MAX: usize = 100;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing starts with it.
    Error,
    /// It starts, and something won't be as it was meant.
    Warning,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub level: Level,
    /// Where, in bytes of the text; `None` where it is nowhere in particular.
    #[serde(skip)]
    pub span: Option<Range<usize>>,
    /// Where: the line, from 1; 0 without a place.
    pub line: usize,
    /// Where: the column in characters, from 1; 0 without a place.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do, where that isn't plain.
    pub help: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(help) = &self.help {
            write!(f, " ({help})")?;
        }
        if self.line > 0 {
            write!(f, " at line {}, column {}", self.line, self.column)?;
        }
        Ok(())
    }
}

/// All that is wrong with a text.
#[derive(Debug)]
pub(crate) struct Problems<'a> {
    text: &'a str,
    found: Vec<Problem>,
    left_out: usize,
}

impl<'a> Problems<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self {
            text,
            found: Vec::new(),
            left_out: 0,
        }
    }

    pub(super) fn error(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        self.add(Level::Error, span, message.into(), None);
    }

    pub(super) fn error_with(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.add(Level::Error, span, message.into(), help);
    }

    /// An error about a name that isn't among those `known`.
    pub(super) fn unknown<'k>(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        written: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) {
        self.error_with(span, message, did_you_mean(written, known));
    }

    /// The same, with a list of those `known` where none is like it.
    pub(super) fn not_among(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        written: &str,
        known: &[&str],
    ) {
        let help = did_you_mean(written, known.iter().copied()).or_else(|| one_of(known));
        self.error_with(span, message, help);
    }

    pub(super) fn warning(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        self.add(Level::Warning, span, message.into(), None);
    }

    pub(super) fn warning_with(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.add(Level::Warning, span, message.into(), help);
    }

    pub(super) fn add(
        &mut self,
        level: Level,
        span: Option<Range<usize>>,
        message: String,
        help: Option<String>,
    ) {
        if self.found.len() >= PROBLEMS_MAX {
            self.left_out += 1;
            return;
        }
        // A table made of headers has no place of its own.
        let span = span.filter(|span| span.end > 0 && span.start <= self.text.len());
        let (line, column) = span
            .as_ref()
            .map_or((0, 0), |span| place(self.text, span.start));
        let problem = Problem {
            level,
            span,
            line,
            column,
            message,
            help,
        };
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.found
            .iter()
            .any(|problem| problem.level == Level::Error)
    }

    /// In the order of the text.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.found
            .sort_by_key(|problem| (problem.line == 0, problem.line, problem.column));
        if self.left_out > 0 {
            let message = format!("there are {} more", self.left_out);
            self.found.push(Problem {
                level: Level::Error,
                span: None,
                line: 0,
                column: 0,
                message,
                help: None,
            });
        }
        self.found
    }
}

/// The line and column (in characters) of a byte, from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = (0..=at.min(text.len()))
        .rev()
        .find_map(|at| text.get(..at))
        .unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}

/// What was meant, of what there is: for a name that is close to one of them.
pub(super) fn did_you_mean<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    closest(written, known).map(|name| format!("did you mean `{name}`?"))
}

/// The names that there are.
pub(super) fn one_of(known: &[&str]) -> Option<String> {
    (!known.is_empty()).then(|| format!("there are `{}`", known.join("`, `")))
}

/// The name that is close to what is written.
pub(crate) fn closest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    /// How alike two names must be, of 1.
    const ALIKE_MIN: f64 = 0.75;
    let alike = known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(written, name), name));
    let best = alike
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name)
}

/// Why a topology can't be used; each names the place to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Check the path and its permissions.
    #[error("failed to read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Split the file.
    #[error("{path} has more than {} bytes", super::TOPOLOGY_BYTES_MAX)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Correct what is named.
    #[error("{}: {}", .path.display(), summary(.problems))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All that is wrong with it; at least one is an error.
        problems: Vec<Problem>,
    },
    /// Name one that is declared.
    #[error("there is no agent {agent} in the topology")]
    UnknownAgent {
        /// Who was asked for.
        agent: String,
    },
    /// Add an `[[agent]]` or an `[[upstream]]`.
    #[error("the topology declares no agent")]
    NoAgents,
    /// Correct the listener.
    #[error("the listener on {bind}: {why}")]
    Listener {
        /// Where it would listen.
        bind: SocketAddr,
        /// What is wrong with it.
        why: String,
    },
}

impl ConfigError {
    pub(crate) fn mistakes(path: &Path, problems: Vec<Problem>) -> Self {
        Self::Mistakes {
            path: path.to_owned(),
            problems,
        }
    }
}

/// The first error, and how many more there are.
fn summary(problems: &[Problem]) -> String {
    let errors: Vec<_> = problems
        .iter()
        .filter(|problem| problem.level == Level::Error)
        .collect();
    match errors.as_slice() {
        [] => "it can't be used".to_owned(),
        [only] => only.to_string(),
        [first, more @ ..] => format!(
            "{first}, and {} more (`callboard check` tells them all)",
            more.len()
        ),
    }
}

/// What serde calls by the name of a type.
pub(super) fn in_words(expected: &dyn de::Expected) -> String {
    let expected = expected.to_string();
    let is_type = |kind: char| {
        expected.starts_with(kind) && expected.chars().skip(1).all(|c| c.is_ascii_digit())
    };
    match &*expected {
        "usize" => "a whole number, 0 at least".to_owned(),
        "a string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        _ if is_type('u') => "a whole number, 0 at least".to_owned(),
        _ if is_type('i') => "a whole number".to_owned(),
        _ if expected.starts_with("a nonzero ") => "a whole number, 1 at least".to_owned(),
        _ if expected.starts_with("struct ") => "a table".to_owned(),
        _ => expected,
    }
}

pub(super) fn kind_of(found: &de::Unexpected<'_>) -> &'static str {
    match found {
        de::Unexpected::Bool(_) => "true or false",
        de::Unexpected::Unsigned(_) | de::Unexpected::Signed(_) => "a whole number",
        de::Unexpected::Float(_) => "a number with a fraction",
        de::Unexpected::Str(_) => "a text",
        de::Unexpected::Seq => "a list",
        de::Unexpected::Map => "a table",
        de::Unexpected::Unit | de::Unexpected::Option => "empty",
        _ => "this",
    }
}

/// An error unless the variable is there.
pub(super) fn is_set(name: &str, span: Option<Range<usize>>, problems: &mut Problems<'_>) {
    if std::env::var_os(name).is_none() {
        problems.error(span, format!("there is no {}", variable(name)));
    }
}

/// The file of a program in `PATH`.
pub(super) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// An error unless the key file is there, where one is named.
pub(super) fn check_key_file(
    file: Option<&Path>,
    span: Option<Range<usize>>,
    problems: &mut Problems<'_>,
) {
    if let Some(file) = file.filter(|file| !file.is_file()) {
        problems.error(span, format!("there is no key file {}", file.display()));
    }
}

/// A variable as a message may name it: what can't be a name may be the secret itself, put in the wrong place.
pub(super) fn variable(name: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match !name.is_empty() && name.len() <= 64 && name.chars().all(is_name) {
        true => format!("variable {name}"),
        false => "variable of that name (write the name of one, not what it holds)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::variable;

    /// Goal: a secret in a name's place isn't repeated. Method: a name, and what can't be one.
    #[test]
    fn secrets_are_not_repeated() {
        assert_eq!(variable("OPENAI_API_KEY"), "variable OPENAI_API_KEY");
        for secret in ["sk-proj-1234", "", "a b", &"A".repeat(65)] {
            assert!(
                !variable(secret).contains("sk-") && !variable(secret).contains("AAAA"),
                "{secret}"
            );
        }
    }
}
