//! What is wrong with a topology, and where.

use std::fmt;
use std::ops::Range;

/// Most mistakes of one file that are told; what follows is counted.
pub const PROBLEMS_MAX: usize = 100;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Nothing starts with it.
    Error,
    /// It starts, and something won't be as it was meant.
    Warning,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub level: Level,
    /// Where, in bytes of the text; `None` where it is nowhere in particular.
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
pub(super) struct Problems<'a> {
    text: &'a str,
    found: Vec<Problem>,
    left_out: usize,
}

impl<'a> Problems<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { text, found: Vec::new(), left_out: 0 }
    }

    pub(super) fn error(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        self.add(Level::Error, span, message.into(), None);
    }

    pub(super) fn error_with(&mut self, span: Option<Range<usize>>, message: impl Into<String>, help: Option<String>) {
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

    fn add(&mut self, level: Level, span: Option<Range<usize>>, message: String, help: Option<String>) {
        if self.found.len() >= PROBLEMS_MAX {
            self.left_out += 1;
            return;
        }
        // A table made of headers has no place of its own.
        let span = span.filter(|span| span.end > 0 && span.start <= self.text.len());
        let (line, column) = span.as_ref().map_or((0, 0), |span| place(self.text, span.start));
        let problem = Problem { level, span, line, column, message, help };
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.found.iter().any(|problem| problem.level == Level::Error)
    }

    /// In the order of the text.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| (problem.line == 0, problem.line, problem.column));
        if self.left_out > 0 {
            let message = format!("there are {} more", self.left_out);
            self.found.push(Problem { level: Level::Error, span: None, line: 0, column: 0, message, help: None });
        }
        self.found
    }
}

/// The line and column (in characters) of a byte, from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = (0..=at.min(text.len())).rev().find_map(|at| text.get(..at)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}

/// What was meant, of what there is: for a name that is close to one of them.
pub(super) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    closest(written, known).map(|name| format!("did you mean `{name}`?"))
}

/// The name that is close to what is written.
pub(crate) fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// How alike two names must be, of 1.
    const ALIKE_MIN: f64 = 0.75;
    let alike = known.into_iter().map(|name| (strsim::jaro_winkler(written, name), name));
    let best = alike.filter(|(alike, _)| *alike >= ALIKE_MIN).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name)
}
