//! Problems of a topology file with their positions, and the error type of reading one.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use serde::{Serialize, de};

/// Maximum number of problems reported for one file. Further ones are only counted.
pub const PROBLEMS_MAX: usize = 100;

/// Severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file can't be used.
    Error,
    /// The file can be used, but part of it has no effect or an unintended one.
    Warning,
}

/// A problem of a topology file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigProblem {
    /// Severity.
    pub level: Severity,
    /// Byte range in the text; `None` if the problem has no position.
    #[serde(skip)]
    pub span: Option<Range<usize>>,
    /// Line, from 1; 0 without a position.
    pub line: usize,
    /// Column in characters, from 1; 0 without a position.
    pub column: usize,
    /// Description of the problem.
    pub message: String,
    /// Advice on how to fix it, where there is any.
    pub help: Option<String>,
}

impl fmt::Display for ConfigProblem {
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

/// Returns the range extended to whole characters and cut at the end of the text: a parser may point behind the last character,
/// or into one.
fn whole_chars(text: &str, span: Range<usize>) -> Range<usize> {
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let start = (0..=span.start).rev().find(is_boundary);
    let end = (span.end..text.len()).find(is_boundary);
    start.unwrap_or(0)..end.unwrap_or(text.len())
}

/// Collects the problems of one text, up to [`PROBLEMS_MAX`].
#[derive(Debug)]
pub(crate) struct ProblemCollector<'a> {
    text: &'a str,
    found: Vec<ConfigProblem>,
    omitted_count: usize,
}

impl<'a> ProblemCollector<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            found: Vec::new(),
            omitted_count: 0,
        }
    }

    pub(super) fn error(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        self.add(Severity::Error, span, message.into(), None);
    }

    pub(super) fn error_with(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.add(Severity::Error, span, message.into(), help);
    }

    /// Reports an unknown name as an error, with the most similar of the `known` ones as a
    /// suggestion.
    pub(super) fn unknown_name<'k>(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        written: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) {
        self.error_with(span, message, suggestion(written, known));
    }

    /// Reports an unknown name like [`Self::unknown_name`]; without a similar name the help lists
    /// all `known` ones.
    pub(super) fn not_one_of(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        written: &str,
        known: &[&str],
    ) {
        let help = suggestion(written, known.iter().copied()).or_else(|| known_names_help(known));
        self.error_with(span, message, help);
    }

    pub(super) fn warning(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        self.add(Severity::Warning, span, message.into(), None);
    }

    pub(super) fn warning_with(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.add(Severity::Warning, span, message.into(), help);
    }

    pub(super) fn add(
        &mut self,
        level: Severity,
        span: Option<Range<usize>>,
        message: String,
        help: Option<String>,
    ) {
        if self.found.len() >= PROBLEMS_MAX {
            self.omitted_count += 1;
            return;
        }
        // TOML tables that exist only as parts of header names have no position.
        let span = span.filter(|span| span.end > 0 && span.start <= self.text.len());
        let span = span.map(|span| whole_chars(self.text, span));
        let (line, column) = span
            .as_ref()
            .map_or((0, 0), |span| line_and_column(self.text, span.start));
        let problem = ConfigProblem {
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
            .any(|problem| problem.level == Severity::Error)
    }

    /// Returns the problems in file order, and the count of omitted ones as a last error.
    pub(super) fn into_sorted(mut self) -> Vec<ConfigProblem> {
        self.found
            .sort_by_key(|problem| (problem.line == 0, problem.line, problem.column));
        if self.omitted_count > 0 {
            let message = format!("more problems, not listed: {}", self.omitted_count);
            self.found.push(ConfigProblem {
                level: Severity::Error,
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

/// Returns line and column (in characters) of a byte offset, from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = (0..=at.min(text.len()))
        .rev()
        .find_map(|at| text.get(..at))
        .unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}

/// Returns "did you mean …" for the most similar known name; `None` if none is similar enough.
pub(super) fn suggestion<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    closest_name(written, known).map(|name| format!("did you mean `{name}`?"))
}

/// Returns a list of the known names as help text; `None` if there are none.
pub(super) fn known_names_help(known: &[&str]) -> Option<String> {
    (!known.is_empty()).then(|| format!("there are `{}`", known.join("`, `")))
}

/// Returns the most similar known name, if its similarity is at least 0.75.
pub(crate) fn closest_name<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    /// Minimum Jaro–Winkler similarity of a suggestion, 0 to 1.
    const ALIKE_MIN: f64 = 0.75;
    let alike = known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(written, name), name));
    let best = alike
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name)
}

/// Failure to use a topology. Each variant says what to correct.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file can't be read or isn't UTF-8. Check the path and its permissions.
    #[error("failed to read {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is larger than [`super::TOPOLOGY_BYTES_MAX`]. Split it.
    #[error(
        "{path} has more than {} bytes: split or shorten it",
        super::TOPOLOGY_BYTES_MAX
    )]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file has errors.
    #[error("{}: {}", .path.display(), summary(.problems))]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Problems of the file; at least one is an error.
        problems: Vec<ConfigProblem>,
    },
    /// A requested agent isn't declared.
    #[error("there is no agent {agent} in the topology{}", suggestion_suffix(.nearest.as_deref()))]
    UnknownAgent {
        /// Id that was requested.
        agent: String,
        /// Most similar id that is declared; `None` if none is similar.
        nearest: Option<String>,
    },
    /// No agent or upstream is declared.
    #[error("the topology declares no agent: add an [[agent]] or [[upstream]] section")]
    NoAgents,
    /// A listener can't be configured as declared.
    #[error("the listener on {bind}: {why}")]
    Listener {
        /// Address of the listener.
        bind: SocketAddr,
        /// Description of the problem.
        why: String,
    },
}

impl ConfigError {
    pub(crate) fn invalid(path: &Path, problems: Vec<ConfigProblem>) -> Self {
        Self::Invalid {
            path: path.to_owned(),
            problems,
        }
    }

    /// Returns the error about an agent that isn't one of the `known` ones.
    pub(crate) fn unknown_agent<'a>(agent: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Self::UnknownAgent {
            agent: agent.to_owned(),
            nearest: closest_name(agent, known).map(str::to_owned),
        }
    }
}

/// Returns the end of a message that suggests a name; empty without one.
pub(crate) fn suggestion_suffix(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(": did you mean {name}?"))
}

/// Returns the first error and the number of others.
fn summary(problems: &[ConfigProblem]) -> String {
    let errors: Vec<_> = problems
        .iter()
        .filter(|problem| problem.level == Severity::Error)
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

/// Translates serde's description of an expected type into words of the file format.
pub(super) fn describe_expected(expected: &dyn de::Expected) -> String {
    let expected = expected.to_string();
    let is_type = |kind: char| {
        expected.starts_with(kind) && expected.chars().skip(1).all(|c| c.is_ascii_digit())
    };
    match &*expected {
        "usize" => "a whole number, 0 at least".to_owned(),
        "a string" | "path string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        _ if is_type('u') => "a whole number, 0 at least".to_owned(),
        _ if is_type('i') => "a whole number".to_owned(),
        _ if expected.starts_with("a nonzero ") => "a whole number, 1 at least".to_owned(),
        _ if expected.starts_with("struct ") => "a table".to_owned(),
        _ => expected,
    }
}

/// Describes the numbers of an expected type to which `number` doesn't belong: by their limit, if that
/// is exceeded.
pub(super) fn describe_range(expected: &dyn de::Expected, number: i128) -> String {
    let written = expected.to_string();
    let largest: Option<i128> = match written.strip_prefix("a nonzero ").unwrap_or(&written) {
        "u8" => Some(u8::MAX.into()),
        "u16" => Some(u16::MAX.into()),
        "u32" => Some(u32::MAX.into()),
        _ => None,
    };
    match largest.filter(|largest| number > *largest) {
        Some(largest) => format!("a whole number, {largest} at most"),
        None => describe_expected(expected),
    }
}

pub(super) fn describe_found(found: &de::Unexpected<'_>) -> &'static str {
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

/// Returns the path of a program found in `PATH`: of the first file that can be executed, or else of the first.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    find_program_in(program, std::env::split_paths(&path))
}

fn find_program_in(program: &str, folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let files = folders.map(|folder| folder.join(program));
    let mut files = files.filter(|file| file.is_file());
    let first = files.next()?;
    let executable = match is_executable(&first) {
        true => None,
        false => files.find(|file| is_executable(file)),
    };
    Some(executable.unwrap_or(first))
}

/// Returns whether somebody may execute a file.
fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|about| about.permissions().mode() & 0o111 != 0)
}

/// Reports an error if a key file is named and missing.
pub(super) fn check_key_file(
    file: Option<&Path>,
    span: Option<Range<usize>>,
    problems: &mut ProblemCollector<'_>,
) {
    if let Some(file) = file.filter(|file| !file.is_file()) {
        problems.error(span, format!("there is no key file {}", file.display()));
    }
}

/// Returns the reason why the value of `key` is no share in percent; `None` if it is one, or absent.
pub(super) fn percent_error(key: &str, percent: Option<u8>) -> Option<String> {
    let percent = percent.filter(|percent| !(1..=100).contains(percent))?;
    Some(format!("`{key}` must be from 1 to 100, not {percent}"))
}

/// Formats a variable's name for a message. A text that is no valid name is omitted, because it may
/// be the secret itself.
pub(crate) fn variable_for_message(name: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // Names have one case. Keys in base64 have both, and some of them no other character.
    let is_mixed = name.contains(|c: char| c.is_ascii_lowercase())
        && name.contains(|c: char| c.is_ascii_uppercase());
    let is_name = !name.is_empty() && name.len() <= 64 && name.chars().all(is_name);
    match is_name && !is_mixed {
        true => format!("environment variable {name}"),
        false => "environment variable of that name (write the name of one, not what it holds)"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::{find_program_in, variable_for_message};

    /// Goal: a program is found as the system finds it: a file that can't be executed doesn't hide one that can. Method: two folders
    /// with files of both modes.
    #[test]
    fn programs_are_found() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32| {
            let file = home.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            file
        };
        file("a/tool", 0o644);
        let (tool, plain) = (file("b/tool", 0o755), file("a/plain", 0o644));
        let search = |program: &str| {
            let folders = ["a", "b", "none"].map(|folder| home.path().join(folder));
            find_program_in(program, folders.into_iter())
        };
        assert_eq!(search("tool"), Some(tool));
        assert_eq!(search("plain"), Some(plain));
        assert_eq!(search("missing"), None);
    }

    /// Goal: a secret in a name's place isn't repeated. Method: a name, and what can't be one.
    #[test]
    fn secrets_are_not_repeated() {
        assert_eq!(
            variable_for_message("OPENAI_API_KEY"),
            "environment variable OPENAI_API_KEY"
        );
        for secret in ["sk-proj-1234", "", "a b", "cbk_AAAAb1_", &"A".repeat(65)] {
            assert!(
                !variable_for_message(secret).contains("sk-")
                    && !variable_for_message(secret).contains("AAAA"),
                "{secret}"
            );
        }
    }
}
