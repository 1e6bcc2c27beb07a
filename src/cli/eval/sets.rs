//! Labelled lines: the sets that come with callboard, or files of one's own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Invalid case files. The text says what to correct.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum EvalCaseError {
    /// The file doesn't exist or can't be read.
    #[error("failed to read {file}: {source}")]
    File { file: String, source: io::Error },
    /// A line of a case file is invalid.
    #[error("{file}, line {line}: {why}")]
    Line {
        file: String,
        line: usize,
        why: String,
    },
}

/// Choice of the lines that come with callboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum EvalSet {
    Dev,
    Heldout,
    Both,
}

pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a number from 0 to 1".to_owned()),
    }
}

/// Arguments of every evaluation of labelled lines.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::cli) struct SetArguments {
    /// JSON Lines files to measure with, as examples/eval/README.md describes them. Without any,
    /// the lines that come with callboard.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Lines to use of those that come with callboard: those for development (dev), those for
    /// measurement (heldout), or both.
    #[arg(long, value_enum, default_value_t = EvalSet::Both)]
    pub(super) set: EvalSet,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    pub(super) json: bool,
    /// Also list the lines that went wrong; with texts only if their file isn't a held-out one.
    #[arg(long)]
    pub(super) failures: bool,
    /// Fail below this F1 (0 to 1), or for `clinics` this share of questions handled as labelled:
    /// of the held-out lines, if they are among those measured, or else of all.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub(super) min: Option<f64>,
    /// Folder for a Markdown report with figures; for `clinics` also for the log of the pipeline.
    /// Created if needed.
    #[arg(long, value_name = "DIR")]
    pub(super) report: Option<PathBuf>,
}

/// Name of the set for measurement. Texts of its lines are never shown.
pub(super) const HELDOUT_SET: &str = "heldout";
/// Name of the set for development.
pub(super) const DEV_SET: &str = "dev";

/// Lines of the two sets that come with callboard.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuiltInLines {
    /// Name of the evaluation, with which the files' names begin.
    pub(super) name: &'static str,
    pub(super) dev: &'static str,
    pub(super) heldout: &'static str,
}

/// Labelled lines of one file.
#[derive(Debug)]
pub(super) struct LabelledSet<T> {
    /// `dev`, `heldout`, or the path of a file of one's own.
    pub(super) name: String,
    pub(super) cases: Vec<T>,
}

/// Returns whether texts of the set with this name may be shown: not those of held-out lines, so that
/// no rules are written for them.
pub(super) fn is_shown(set: &str) -> bool {
    !set.contains(HELDOUT_SET)
}

/// Reads the files of `arguments`, or the built-in lines. `parse` turns a line into a case.
///
/// # Errors
/// The first file that can't be read, or its first line that is wrong.
pub(super) fn read_sets<T>(
    arguments: &SetArguments,
    built_in: BuiltInLines,
    parse: impl Fn(LineFields) -> Result<T, String>,
) -> Result<Vec<LabelledSet<T>>, EvalCaseError> {
    if arguments.files.is_empty() {
        let parts = [
            (DEV_SET, built_in.dev, EvalSet::Heldout),
            (HELDOUT_SET, built_in.heldout, EvalSet::Dev),
        ];
        let wanted = parts
            .into_iter()
            .filter(|(_, _, other)| *other != arguments.set);
        let read = wanted.map(|(name, text, _)| {
            let file = format!("{}_{name}.jsonl", built_in.name);
            let cases = parse_lines(&file, text, &parse)?;
            Ok(LabelledSet {
                name: name.to_owned(),
                cases,
            })
        });
        return read.collect();
    }
    let read = arguments.files.iter().map(|file| {
        let name = file.display().to_string();
        let cases = parse_lines(&name, &read_file(file)?, &parse)?;
        Ok(LabelledSet { name, cases })
    });
    read.collect()
}

pub(super) fn read_file(file: &Path) -> Result<String, EvalCaseError> {
    fs::read_to_string(file).map_err(|source| EvalCaseError::File {
        file: file.display().to_string(),
        source,
    })
}

/// Parses a text with one JSON object a line. Empty lines are skipped.
///
/// # Errors
/// The first line that is no JSON object, that `parse` refuses, or whose `id` another line has.
pub(super) fn parse_lines<T>(
    file: &str,
    text: &str,
    parse: impl Fn(LineFields) -> Result<T, String>,
) -> Result<Vec<T>, EvalCaseError> {
    let mut ids = BTreeSet::new();
    let mut cases = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |why: String| EvalCaseError::Line {
            file: file.to_owned(),
            line: at + 1,
            why,
        };
        let fields = serde_json::from_str(line)
            .map_err(|error| wrong(format!("write one JSON object a line ({error})")))?;
        let fields = LineFields {
            fields,
            line: at + 1,
        };
        let id = fields.id();
        if ids.contains(&id) {
            let why = format!("{id} is the `id` of an earlier line: give each line its own");
            return Err(wrong(why));
        }
        ids.insert(id);
        cases.push(parse(fields).map_err(wrong)?);
    }
    Ok(cases)
}

/// Fields of one line. Those that no getter asks for are ignored.
#[derive(Debug)]
pub(super) struct LineFields {
    fields: Map<String, Value>,
    /// Number of the line in its file, from 1.
    line: usize,
}

/// Identity and groups of a line.
#[derive(Debug, Clone)]
pub(super) struct LineMeta {
    pub(super) id: String,
    pub(super) lang: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) source: Option<String>,
}

impl LineFields {
    /// Returns the field; `None` if it is absent or `null`.
    fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Returns the line's id: the field `id`, or `line N`.
    fn id(&self) -> String {
        self.label("id")
            .unwrap_or_else(|| format!("line {}", self.line))
    }

    /// Returns a field that only names a group, as text whatever its type.
    pub(super) fn label(&self, name: &str) -> Option<String> {
        self.field(name).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    pub(super) fn meta(&self) -> LineMeta {
        LineMeta {
            id: self.id(),
            lang: self.label("lang"),
            kind: self.label("kind"),
            source: self.label("source"),
        }
    }

    /// Returns a required text.
    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        match self.field(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(format!("`{name}` must be a string")),
            None => Err(format!("`{name}` is missing: write a string")),
        }
    }

    /// Returns the value of a required field that has one of a few texts; integers and booleans are
    /// compared as they are written in JSON.
    pub(super) fn one_of<T: Copy>(&self, name: &str, values: &[(&str, T)]) -> Result<T, String> {
        let names: Vec<&str> = values.iter().map(|(value, _)| *value).collect();
        let remedy = format!("write one of {}", names.join(", "));
        let Some(written) = self.label(name) else {
            return Err(format!("`{name}` is missing: {remedy}"));
        };
        let found = values.iter().find(|(value, _)| *value == written);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("`{name}` is {written:?}: {remedy}"))
    }

    /// Returns whether the line has the field.
    pub(super) fn has(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// Returns the items of an array; `None` if the field is absent.
    pub(super) fn items(&self, name: &str) -> Result<Option<&Vec<Value>>, String> {
        match self.field(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(format!("`{name}` must be an array")),
        }
    }

    /// Returns the texts of an array; `None` if the field is absent.
    pub(super) fn texts(&self, name: &str) -> Result<Option<BTreeSet<String>>, String> {
        let Some(items) = self.items(name)? else {
            return Ok(None);
        };
        let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
        let all: Option<BTreeSet<String>> = texts.collect();
        all.map(Some)
            .ok_or_else(|| format!("`{name}` must be an array of strings"))
    }

    /// Returns the members of an object; none if the field is absent.
    pub(super) fn members(&self, name: &str) -> Result<Map<String, Value>, String> {
        match self.field(name) {
            None => Ok(Map::new()),
            Some(Value::Object(members)) => Ok(members.clone()),
            Some(_) => Err(format!("`{name}` must be an object")),
        }
    }
}
