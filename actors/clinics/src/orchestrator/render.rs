//! Deterministic rendering of results as plain text, without a model.

use callboard_message::text::{is_invisible, is_one_of};
use serde_json::{Map, Value};

use super::answer::AnswerStatus;
use super::patients::StepsRun;
use crate::plan::{ClinicRegistry, ReplyOptions, Step};
use crate::router::StepOutcome;

/// Names of the fields that are shown first in a table or record, in this order. The others follow
/// sorted by name. Records on one line keep their own order.
const FIRST_FIELDS: &str = "patient_id name condition dose frequency route medications notes";
/// Names of the text fields at the top level of a result that should only repeat what the heading
/// shows: specialty and request. They are left out.
const ECHOED_FIELDS: &str = "query specialty patient_id";
/// Number of spaces of one level of indentation in the rendered text.
const INDENT: usize = 3;
/// Maximum number of different keys of all rows of a table. Rows with more are rendered one a line,
/// because a few rows with many different keys would become a huge table of empty cells.
const COLUMNS_MAX: usize = 16;
/// Maximum width of a table column, in characters. Longer texts overflow, so that one long text
/// doesn't pad every row.
const COLUMN_CHARS_MAX: usize = 60;

/// Renders the answer to a question: the planner's notes, what is missing in a partial answer, the
/// numbers that were asked for, then one block for each step.
pub(super) fn render_answer(
    run: &StepsRun,
    reply: &ReplyOptions,
    registry: &ClinicRegistry,
    status: AnswerStatus,
) -> String {
    let specialty = |id: &str| registry.clinic(id).map_or("", |c| c.specialty.as_str());
    let mut lines: Vec<String> = reply.notes.iter().map(|note| single_line(note)).collect();
    if status == AnswerStatus::Partial {
        let mut missing: Vec<String> = Vec::new();
        for outcome in run.outcomes.iter().filter(|outcome| outcome.is_missing()) {
            let clinic = format!("{} ({})", outcome.clinic, specialty(&outcome.clinic));
            if !missing.contains(&clinic) {
                missing.push(clinic);
            }
        }
        let missing = missing.join(", ");
        lines.push(format!(
            "Partial answer: what {missing} was asked is missing, in whole or in part."
        ));
    }
    let summary = run.summary(reply, |id| specialty(id));
    lines.extend(summary.iter().map(|line| single_line(line)));
    let steps = render_steps(&run.steps, &run.outcomes, registry);
    match lines.is_empty() {
        true => steps,
        false => format!("{}\n\n{steps}", lines.join("\n")),
    }
}

/// Returns the words of a step's heading about other steps; empty if it uses none.
pub(super) fn flow_of(step: &Step) -> String {
    let mut words = step
        .for_each
        .map_or_else(String::new, |of| format!(" for each patient of step {of}"));
    if !step.except.is_empty() {
        let of: Vec<String> = step.except.iter().map(u32::to_string).collect();
        words.push_str(&format!(" without those of step {}", of.join(", ")));
    }
    words
}

/// Renders one block for each step: clinic, tool and parameters, then the result rows or the error.
/// `outcomes` has one outcome for each step, in the same order.
pub(super) fn render_steps(
    steps: &[Step],
    outcomes: &[StepOutcome],
    registry: &ClinicRegistry,
) -> String {
    let blocks = steps
        .iter()
        .zip(outcomes)
        .map(|(step, outcome)| render_step(step, outcome, registry));
    blocks.collect::<Vec<_>>().join("\n\n")
}

/// Returns the text without invisible characters, and with spaces in place of control characters
/// such as line breaks.
pub(super) fn single_line(text: &str) -> String {
    text.chars()
        .filter(|c| !is_invisible(*c))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn render_step(step: &Step, outcome: &StepOutcome, registry: &ClinicRegistry) -> String {
    let specialty = registry
        .clinic(&step.clinic)
        .map_or("", |c| c.specialty.as_str());
    let mut heading = format!(
        "{}. {} ({specialty}): {}",
        step.step_id, step.clinic, step.action
    );
    for parameter in step.parameters.values().filter_map(Value::as_str) {
        heading.push_str(&format!(" \"{}\"", single_line(parameter)));
    }
    heading.push_str(&flow_of(step));
    let mut lines = vec![heading];
    match (&outcome.result, &outcome.error) {
        (Some(Value::Object(fields)), _) => {
            // Sorted, because the order of JSON object keys depends on a build feature of
            // `serde_json`.
            let told = ordered_keys(fields.keys())
                .into_iter()
                .filter_map(|key| Some((key, fields.get(key)?)));
            for (key, value) in
                told.filter(|(key, v)| !(is_one_of(key, ECHOED_FIELDS) && v.is_string()))
            {
                // With a single record, as in `{"patient": {…}}`, the record's fields are shown
                // without its key.
                match value {
                    Value::Object(record) if fields.len() == 1 => {
                        render_record(record, 1, &mut lines)
                    }
                    value => render_field(key, value, 1, &mut lines),
                }
            }
        }
        (Some(value), _) => render_field("answer", value, 1, &mut lines),
        (None, Some(error)) => {
            let label = if error.not_found {
                "nobody"
            } else {
                "not answered"
            };
            let message = single_line(&error.message);
            lines.push(format!("   {label}: {message} ({})", error.code));
        }
        (None, None) => lines.push("   not answered".into()),
    }
    lines.join("\n")
}

fn render_field(key: &str, value: &Value, level: usize, lines: &mut Vec<String>) {
    let (pad, key) = (" ".repeat(INDENT * level), single_line(key));
    match value {
        Value::Array(items) if items.is_empty() => lines.push(format!("{pad}{key}: none")),
        Value::Array(items) if items.iter().all(Value::is_object) => {
            lines.push(format!("{pad}{key}: {}", items.len()));
            render_table(
                &items
                    .iter()
                    .filter_map(Value::as_object)
                    .collect::<Vec<_>>(),
                level + 1,
                lines,
            );
        }
        Value::Object(record) => {
            lines.push(format!("{pad}{key}:"));
            render_record(record, level + 1, lines);
        }
        value => lines.push(format!("{pad}{key}: {}", render_cell(value))),
    }
}

fn render_record(record: &Map<String, Value>, level: usize, lines: &mut Vec<String>) {
    for key in ordered_keys(record.keys()) {
        if let Some(value) = record.get(key) {
            render_field(key, value, level, lines);
        }
    }
}

/// Renders rows as an aligned table without column names. A dose and its unit share one column. If
/// the rows have more than [`COLUMNS_MAX`] different keys, each becomes a line of keys and values.
fn render_table(rows: &[&Map<String, Value>], level: usize, lines: &mut Vec<String>) {
    let mut columns: Vec<&str> = Vec::new();
    let pad = " ".repeat(INDENT * level);
    for key in rows.iter().flat_map(|row| row.keys()) {
        if columns.contains(&key.as_str()) {
            continue;
        }
        if columns.len() == COLUMNS_MAX {
            lines.extend(
                rows.iter()
                    .map(|row| format!("{pad}{}", render_fields(row))),
            );
            return;
        }
        columns.push(key);
    }
    let joins_unit = columns.contains(&"dose") && columns.contains(&"unit");
    columns.retain(|c| !(joins_unit && *c == "unit"));
    let columns = ordered_keys(columns.into_iter());
    let text = |row: &Map<String, Value>, column: &str| {
        let value = row.get(column).map(render_cell).unwrap_or_default();
        match row.get("unit") {
            Some(unit) if joins_unit && column == "dose" => {
                format!("{value} {}", render_cell(unit))
            }
            _ => value,
        }
    };
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| columns.iter().map(|c| text(row, c)).collect())
        .collect();
    let width = |at: usize| {
        cells
            .iter()
            .map(|row| row[at].chars().count())
            .max()
            .unwrap_or(0)
            .min(COLUMN_CHARS_MAX)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in &cells {
        let padded = row
            .iter()
            .zip(&widths)
            .map(|(text, width)| format!("{text:<width$}"));
        let row = padded.collect::<Vec<_>>().join("  ");
        lines.push(format!("{pad}{}", row.trim_end()));
    }
}

fn render_cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => single_line(text),
        Value::Array(items) => items.iter().map(render_cell).collect::<Vec<_>>().join(", "),
        Value::Object(record) => render_fields(record),
    }
}

fn render_fields(record: &Map<String, Value>) -> String {
    let parts = record
        .iter()
        .map(|(key, value)| format!("{}: {}", single_line(key), render_cell(value)));
    parts.collect::<Vec<_>>().join("; ")
}

fn ordered_keys<'a, K: AsRef<str> + ?Sized + 'a>(
    keys: impl Iterator<Item = &'a K>,
) -> Vec<&'a str> {
    let mut keys: Vec<&str> = keys.map(AsRef::as_ref).collect();
    let place = |key: &str| {
        FIRST_FIELDS
            .split(' ')
            .position(|first| first == key)
            .unwrap_or(usize::MAX)
    };
    keys.sort_by_key(|key| (place(key), *key));
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::Plan;
    use crate::plan::samples::two_clinics;

    fn rendered(action: &str, parameters: Value, end: Value) -> String {
        let step = json!({ "step_id": 1, "clinic": "clinic_a", "action": action, "parameters": parameters });
        let mut outcome = json!({ "step_id": 1, "clinic": "clinic_a", "action": action, "ms": 1 });
        for (key, value) in end.as_object().into_iter().flatten() {
            outcome[key] = value.clone();
        }
        let outcome: StepOutcome =
            serde_json::from_value(outcome).unwrap_or_else(|e| panic!("{e}"));
        render_steps(
            &Plan::parse_or_refuse(&json!([step]).to_string()).steps,
            &[outcome],
            &two_clinics(),
        )
    }

    fn check(action: &str, parameters: Value, result: Value, expect: &[&str]) {
        assert_eq!(
            rendered(action, parameters, json!({ "result": result })),
            expect.join("\n")
        );
    }

    /// Goal: the four tools' answers read well: ids first, dose with its unit, echoes left out. Method: rows.
    #[test]
    fn the_four_tools() {
        let row = |id: &str, condition: &str| json!({ "condition": condition, "patient_id": id });
        let rows = [row("CARD-001", "Hypertension"), row("CARD-1002", "Angina")];
        let expect = [
            "1. clinic_a (cardiology): list_patients",
            "   patients: 2",
            "      CARD-001   Hypertension",
            "      CARD-1002  Angina",
        ];
        check(
            "list_patients",
            json!({}),
            json!({ "patients": rows }),
            &expect,
        );

        let empty = json!({ "specialty": "cardiology", "query": "gout", "matches": [] });
        let expect = [
            "1. clinic_a (cardiology): query \"gout\"",
            "   matches: none",
        ];
        check("query", json!({ "query": "gout" }), empty, &expect);

        let medicine = json!({ "name": "Amiodarone", "dose": 200, "unit": "mg", "frequency": "once daily", "route": "oral" });
        let medications = json!({ "patient_id": "CARD-002", "medications": [medicine] });
        let expect = [
            "1. clinic_a (cardiology): check_medications \"CARD-002\"",
            "   medications: 1",
            "      Amiodarone  200 mg  once daily  oral",
        ];
        check(
            "check_medications",
            json!({ "patient_id": "CARD-002" }),
            medications,
            &expect,
        );

        let patient = json!({ "redacted": ["name", "phone"], "condition": "Angina", "patient_id": "CARD-003", "age": 61 });
        let expect = [
            "1. clinic_a (cardiology): get_patient \"CARD-003\"",
            "   patient_id: CARD-003",
            "   condition: Angina",
            "   age: 61",
            "   redacted: name, phone",
        ];
        check(
            "get_patient",
            json!({ "patient_id": "CARD-003" }),
            json!({ "patient": patient }),
            &expect,
        );
    }

    /// Goal: a clinic's odd rows cost no more than they hold. Method: columns and a width at their limits and one
    /// above; a text wider than any column, which stands over.
    #[test]
    fn tables_are_bounded() {
        let heading = "1. clinic_a (cardiology): list_patients\n   rows: ";
        let row = |keys: usize| {
            Value::Object(
                (10..10 + keys)
                    .map(|n| (format!("k{n}"), json!(n)))
                    .collect(),
            )
        };
        let shown = |rows: Value| {
            rendered(
                "list_patients",
                json!({}),
                json!({ "result": { "rows": rows } }),
            )
        };
        let numbers = (10..10 + COLUMNS_MAX)
            .map(|n| n.to_string())
            .collect::<Vec<_>>();
        let table = shown(json!([row(COLUMNS_MAX)]));
        assert_eq!(
            table.split_once(heading).unwrap().1,
            format!("1\n      {}", numbers.join("  "))
        );
        let listed = shown(json!([row(COLUMNS_MAX + 1)]));
        assert!(
            listed.contains("\n      k10: 10; k11: 11; ") && listed.ends_with("; k26: 26"),
            "{listed}"
        );

        let long = "x".repeat(usize::from(u16::MAX) + 1);
        for (text, width) in [
            (&long[..COLUMN_CHARS_MAX], COLUMN_CHARS_MAX),
            (&long, COLUMN_CHARS_MAX),
        ] {
            let table = shown(json!([{ "a": text, "b": 1 }, { "a": "y", "b": 2 }]));
            let (first, second) = table
                .split_once("2\n      ")
                .unwrap()
                .1
                .split_once('\n')
                .unwrap();
            assert_eq!(
                (first, second),
                (
                    format!("{text}  1").as_str(),
                    format!("      {:width$}  2", "y").as_str()
                )
            );
        }
    }

    /// Goal: any JSON has a text, and no text of a peer's moves the terminal or forges a line. Method: odd shapes,
    /// escape sequences, line breaks, text that runs backwards.
    #[test]
    fn odd_values_are_harmless() {
        check(
            "list_patients",
            json!({}),
            json!([]),
            &["1. clinic_a (cardiology): list_patients", "   answer: none"],
        );
        let odd = json!({ "a": "x\u{1b}[2J\r\n2. clinic_b", "b": [1, [true, null]], "c": [{ "d": { "e": "\u{202e}f" } }] });
        let expect = [
            "1. clinic_a (cardiology): list_patients",
            "   a: x [2J  2. clinic_b",
            "   b: 1, yes, -",
            "   c: 1",
            "      e: f",
        ];
        check("list_patients", json!({}), odd, &expect);
        let error = json!({ "error": { "code": -32602, "message": "no\nsuch\u{1b} patient" } });
        let expect =
            "1. clinic_a (cardiology): list_patients\n   not answered: no such  patient (-32602)";
        assert_eq!(rendered("list_patients", json!({}), error), expect);
    }
}
