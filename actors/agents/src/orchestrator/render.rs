//! Results as plain text, the same for the same results: no model writes here.

use serde_json::{Map, Value};

use crate::plan::{Registry, Step, is_invisible};
use crate::router::StepOutcome;

/// Fields that come first in a row or record, in this order; the others follow by name.
const FIRST_FIELDS: [&str; 8] =
    ["patient_id", "name", "condition", "dose", "frequency", "route", "medications", "notes"];
/// Fields of an answer that only repeat what was asked: the heading has them.
const ECHOES: [&str; 3] = ["query", "specialty", "patient_id"];
/// How far one level is indented, in spaces.
const INDENT: usize = 3;

/// One block a step: who was asked what, then the rows or the error.
pub(super) fn text(steps: &[Step], outcomes: &[StepOutcome], registry: &Registry) -> String {
    let blocks = steps.iter().zip(outcomes).map(|(step, outcome)| block(step, outcome, registry));
    blocks.collect::<Vec<_>>().join("\n\n")
}

/// A text on one line, without anything that moves a terminal's cursor or hides.
pub(super) fn line(text: &str) -> String {
    text.chars().filter(|c| !is_invisible(*c)).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn block(step: &Step, outcome: &StepOutcome, registry: &Registry) -> String {
    let specialty = registry.clinic(&step.clinic).map_or("", |c| c.specialty.as_str());
    let mut heading = format!("{}. {} ({specialty}): {}", step.step_id, step.clinic, step.action);
    for parameter in step.parameters.values().filter_map(Value::as_str) {
        heading.push_str(&format!(" \"{}\"", line(parameter)));
    }
    let mut lines = vec![heading];
    match (&outcome.result, &outcome.error) {
        (Some(Value::Object(fields)), _) => {
            let told = fields.iter().filter(|(key, v)| !(ECHOES.contains(&key.as_str()) && v.is_string()));
            for (key, value) in told {
                // `{"patient": {…}}`: the one record is the answer.
                match value {
                    Value::Object(record) if fields.len() == 1 => record_lines(record, 1, &mut lines),
                    value => field(key, value, 1, &mut lines),
                }
            }
        }
        (Some(value), _) => field("answer", value, 1, &mut lines),
        (None, Some(error)) => lines.push(format!("   not answered: {} ({})", line(&error.message), error.code)),
        (None, None) => lines.push("   not answered".into()),
    }
    lines.join("\n")
}

fn field(key: &str, value: &Value, level: usize, lines: &mut Vec<String>) {
    let (pad, key) = (" ".repeat(INDENT * level), line(key));
    match value {
        Value::Array(items) if items.is_empty() => lines.push(format!("{pad}{key}: none")),
        Value::Array(items) if items.iter().all(Value::is_object) => {
            lines.push(format!("{pad}{key}: {}", items.len()));
            table(&items.iter().filter_map(Value::as_object).collect::<Vec<_>>(), level + 1, lines);
        }
        Value::Object(record) => {
            lines.push(format!("{pad}{key}:"));
            record_lines(record, level + 1, lines);
        }
        value => lines.push(format!("{pad}{key}: {}", cell(value))),
    }
}

fn record_lines(record: &Map<String, Value>, level: usize, lines: &mut Vec<String>) {
    for key in order(record.keys()) {
        if let Some(value) = record.get(key) {
            field(key, value, level, lines);
        }
    }
}

/// Rows in columns; a dose and its unit are one column, as they are read.
fn table(rows: &[&Map<String, Value>], level: usize, lines: &mut Vec<String>) {
    let mut columns: Vec<&str> = Vec::new();
    for key in rows.iter().flat_map(|row| row.keys()) {
        if !columns.contains(&key.as_str()) {
            columns.push(key);
        }
    }
    let joins_unit = columns.contains(&"dose") && columns.contains(&"unit");
    columns.retain(|c| !(joins_unit && *c == "unit"));
    let columns = order(columns.into_iter());
    let text = |row: &Map<String, Value>, column: &str| {
        let value = row.get(column).map(cell).unwrap_or_default();
        match row.get("unit") {
            Some(unit) if joins_unit && column == "dose" => format!("{value} {}", cell(unit)),
            _ => value,
        }
    };
    let cells: Vec<Vec<String>> = rows.iter().map(|row| columns.iter().map(|c| text(row, c)).collect()).collect();
    let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in &cells {
        let padded = row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
        let row = padded.collect::<Vec<_>>().join("  ");
        lines.push(format!("{}{}", " ".repeat(INDENT * level), row.trim_end()));
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => line(text),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let parts = fields.iter().map(|(key, value)| format!("{}: {}", line(key), cell(value)));
            parts.collect::<Vec<_>>().join("; ")
        }
    }
}

fn order<'a, K: AsRef<str> + ?Sized + 'a>(keys: impl Iterator<Item = &'a K>) -> Vec<&'a str> {
    let mut keys: Vec<&str> = keys.map(AsRef::as_ref).collect();
    let place = |key: &str| FIRST_FIELDS.iter().position(|f| *f == key).unwrap_or(FIRST_FIELDS.len());
    keys.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.cmp(b)));
    keys
}
