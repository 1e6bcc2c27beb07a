//! Line-by-line forms at a terminal, for MCP elicitation's subset of JSON Schema.

use std::fmt::Display;

use callboard_message::{Elicitation, ElicitationAnswer, parse_yes_no};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Input that declines a form.
pub(crate) const DECLINE_COMMAND: &str = ":decline";
/// Input that cancels a form.
pub(crate) const CANCEL_COMMAND: &str = ":cancel";

/// Fills in a form. With `alone_is_required`, the only field of a form is required even if the schema
/// makes it optional.
/// `line` gets the prompt of a field, with the error of the previous input above it, and the number
/// of fields; it returns one line. A form without fields reads one line: words that mean no decline
/// it, anything else accepts it.
///
/// # Errors
/// Those of `line`.
pub(crate) async fn fill_in<E>(
    form: &Elicitation,
    alone_is_required: bool,
    mut line: impl AsyncFnMut(String, usize) -> Result<String, E>,
) -> Result<ElicitationAnswer, E> {
    let schema = form.0.object("requestedSchema").unwrap_or_default();
    let fields = schema.object("properties").unwrap_or_default();
    let required: Vec<String> = schema.read("required").unwrap_or_default();
    let must = alone_is_required && fields.len() == 1;
    let mut content = Map::new();
    for (name, field) in fields.iter() {
        let field = FormField::from_schema(
            name,
            field,
            must || required.iter().any(|needed| needed == name),
        );
        let mut prompt = field.prompt();
        let value = loop {
            match field.parse_line(line(prompt, fields.len()).await?.trim()) {
                Ok(value) => break value,
                Err(why) => prompt = format!("  {why}\n{}", field.prompt()),
            }
        };
        content.extend(value.map(|value| (name.to_owned(), value)));
    }
    if fields.is_empty() && parse_yes_no(&line(String::new(), 0).await?) == Some(false) {
        return Ok(ElicitationAnswer::decline());
    }
    Ok(ElicitationAnswer::accept(content.into()))
}

/// A field of a form.
struct FormField {
    title: String,
    description: Option<String>,
    kind: FieldKind,
    default: Option<Value>,
    is_required: bool,
}

enum FieldKind {
    Text {
        chars_min: u64,
        chars_max: u64,
    },
    Number {
        min: f64,
        max: f64,
        is_whole: bool,
    },
    Boolean,
    /// Values with their labels.
    SingleChoice(Vec<(Value, String)>),
    MultipleChoice(Vec<(Value, String)>),
}

impl FormField {
    fn from_schema(name: &str, field: &RawValue, is_required: bool) -> Self {
        let schema: Value = serde_json::from_str(field.get()).unwrap_or_default();
        let text = |member: &str| schema[member].as_str().map(str::to_owned);
        let number = |member: &str, otherwise: f64| schema[member].as_f64().unwrap_or(otherwise);
        let kind = match schema["type"].as_str() {
            _ if schema.get("enum").is_some() || schema.get("oneOf").is_some() => {
                FieldKind::SingleChoice(schema_choices(&schema))
            }
            Some("array") => FieldKind::MultipleChoice(schema_choices(&schema["items"])),
            Some(kind @ ("integer" | "number")) => FieldKind::Number {
                min: number("minimum", f64::NEG_INFINITY),
                max: number("maximum", f64::INFINITY),
                is_whole: kind == "integer",
            },
            Some("boolean") => FieldKind::Boolean,
            _ => FieldKind::Text {
                chars_min: schema["minLength"].as_u64().unwrap_or(0),
                chars_max: schema["maxLength"].as_u64().unwrap_or(u64::MAX),
            },
        };
        Self {
            title: text("title").unwrap_or_else(|| name.to_owned()),
            description: text("description"),
            kind,
            default: schema.get("default").cloned(),
            is_required,
        }
    }

    /// Returns the prompt of the field.
    fn prompt(&self) -> String {
        let mut prompt = format!("  {}", self.title);
        if let Some(told) = &self.description {
            prompt += &format!(" – {told}");
        }
        if let FieldKind::SingleChoice(choices) | FieldKind::MultipleChoice(choices) = &self.kind {
            for (n, (_, called)) in choices.iter().enumerate() {
                prompt += &format!("\n    {}) {called}", n + 1);
            }
            prompt += "\n   ";
        }
        prompt += match self.kind {
            FieldKind::Boolean => " (yes/no)",
            FieldKind::MultipleChoice(_) => " several, with commas",
            _ => "",
        };
        match &self.default {
            Some(default) => prompt += &format!(" [{}]", self.choice_label(default)),
            None if !self.is_required => prompt += " [nothing]",
            None => {}
        }
        prompt + ": "
    }

    /// Returns the label of a value.
    fn choice_label(&self, value: &Value) -> String {
        match (&self.kind, value) {
            (FieldKind::SingleChoice(choices) | FieldKind::MultipleChoice(choices), value)
                if !value.is_array() =>
            {
                let choice = choices.iter().find(|(of, _)| of == value);
                choice.map_or_else(|| display_value(value), |(_, called)| called.clone())
            }
            (_, Value::Array(values)) => values
                .iter()
                .map(|v| self.choice_label(v))
                .collect::<Vec<_>>()
                .join(", "),
            (_, value) => display_value(value),
        }
    }

    /// Parses a line. `Ok(None)` leaves the field out; an error says what is wrong with the input.
    fn parse_line(&self, line: &str) -> Result<Option<Value>, String> {
        match (line.is_empty(), &self.default) {
            (false, _) => self.parse_value(line).map(Some),
            (true, None) if self.is_required => Err("this is needed".into()),
            (true, default) => Ok(default.clone()),
        }
    }

    fn parse_value(&self, line: &str) -> Result<Value, String> {
        match &self.kind {
            FieldKind::Text {
                chars_min,
                chars_max,
            } => {
                check_range(
                    &(line.chars().count() as u64),
                    chars_min,
                    chars_max,
                    " characters",
                )?;
                Ok(line.into())
            }
            FieldKind::Number { min, max, is_whole } => {
                let (number, value) = if *is_whole {
                    let number: i64 = line.parse().map_err(|_| "a whole number")?;
                    (number as f64, number.into())
                } else {
                    let number = line
                        .parse::<f64>()
                        .ok()
                        .filter(|number| number.is_finite())
                        .ok_or("a number")?;
                    (number, number.into())
                };
                check_range(&number, min, max, "").map(|()| value)
            }
            FieldKind::Boolean => parse_yes_no(line)
                .map(Value::from)
                .ok_or_else(|| "yes or no".to_owned()),
            FieldKind::SingleChoice(choices) => parse_choice(choices, line),
            FieldKind::MultipleChoice(choices) => line
                .split(',')
                .map(|part| parse_choice(choices, part.trim()))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::from),
        }
    }
}

fn check_range<T: PartialOrd + Display>(
    value: &T,
    min: &T,
    max: &T,
    unit: &str,
) -> Result<(), String> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false if value < min => Err(format!("at least {min}{unit}")),
        false => Err(format!("at most {max}{unit}")),
    }
}

/// Returns the values of a schema with their labels: of `oneOf` or `anyOf` (`const` with `title`),
/// else of `enum` (labels from `enumNames`). A value without a label gets its own text as the
/// label. Empty if the schema has no choices.
fn schema_choices(schema: &Value) -> Vec<(Value, String)> {
    let titled = schema["oneOf"]
        .as_array()
        .or_else(|| schema["anyOf"].as_array());
    if let Some(titled) = titled {
        let named = |choice: &Value| {
            let value = choice.get("const")?.clone();
            let called = choice["title"]
                .as_str()
                .map_or_else(|| display_value(&value), str::to_owned);
            Some((value, called))
        };
        return titled.iter().filter_map(named).collect();
    }
    let values = schema["enum"].as_array().into_iter().flatten();
    let name = |n: usize, value: &Value| {
        schema["enumNames"][n]
            .as_str()
            .map_or_else(|| display_value(value), str::to_owned)
    };
    values
        .enumerate()
        .map(|(n, value)| (value.clone(), name(n, value)))
        .collect()
}

/// Finds a choice by its value or label, or else by its number from 1.
///
/// # Errors
/// Text that names the expected input.
fn parse_choice(choices: &[(Value, String)], line: &str) -> Result<Value, String> {
    let said = choices
        .iter()
        .find(|(value, called)| display_value(value) == line || called == line);
    let numbered = || {
        line.parse::<usize>()
            .ok()
            .and_then(|n| choices.get(n.checked_sub(1)?))
    };
    said.or_else(numbered)
        .map(|(value, _)| value.clone())
        .ok_or_else(|| "one of the choices".to_owned())
}

fn display_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(values) => values
            .iter()
            .map(display_value)
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callboard_message::ElicitationAction;
    use serde_json::json;

    fn filled(schema: Value, is_required: bool, line: &str) -> Result<Option<Value>, String> {
        let raw = serde_json::value::to_raw_value(&schema).unwrap();
        FormField::from_schema("f", &raw, is_required).parse_line(line)
    }

    /// Goal: what a person types becomes what the schema wants. Method: each kind of field, with its defaults.
    #[test]
    fn lines_become_values() {
        let titled = json!({ "type": "string", "oneOf": [{ "const": "r", "title": "Red" }, { "const": "g", "title": "Green" }] });
        let several = json!({ "type": "array", "items": { "anyOf": [{ "const": "a", "title": "A" }, { "const": "b" }] } });
        for (schema, line, value) in [
            (json!({ "type": "string" }), "42", json!("42")),
            (json!({ "type": "integer", "minimum": 1 }), "42", json!(42)),
            (json!({ "type": "number" }), "4.5", json!(4.5)),
            (json!({ "type": "boolean" }), "No", json!(false)),
            (json!({ "type": "boolean" }), "Yes, go ahead", json!(true)),
            (
                json!({ "type": "string", "enum": ["x", "y"], "enumNames": ["Ex", "Why"] }),
                "Why",
                json!("y"),
            ),
            (titled.clone(), "2", json!("g")),
            (titled, "r", json!("r")),
            (several, "A, b", json!(["a", "b"])),
            (
                json!({ "type": "number", "default": 95.5 }),
                "",
                json!(95.5),
            ),
        ] {
            assert_eq!(
                filled(schema.clone(), true, line),
                Ok(Some(value)),
                "{schema}"
            );
        }
        assert_eq!(filled(json!({ "type": "string" }), false, ""), Ok(None));
    }

    /// Goal: a form without fields is declined by a no. Method: Enter, a yes and a no.
    #[tokio::test]
    async fn empty_forms() {
        for (line, action) in [
            ("", ElicitationAction::Accept),
            ("yes", ElicitationAction::Accept),
            ("no", ElicitationAction::Decline),
        ] {
            let typed = async |_, _| Ok::<_, ()>(line.to_owned());
            let answer = fill_in(&Elicitation::form("m", json!({})), true, typed)
                .await
                .unwrap();
            assert_eq!(answer.action(), action, "{line}");
        }
    }

    /// Goal: what doesn't fit is said, and asked again. Method: a line beyond each bound.
    #[test]
    fn misfits_are_told() {
        for (schema, line) in [
            (json!({ "type": "string" }), ""),
            (json!({ "type": "string", "maxLength": 3 }), "four"),
            (json!({ "type": "string", "minLength": 3 }), "tw"),
            (json!({ "type": "integer", "maximum": 5 }), "6"),
            (json!({ "type": "integer" }), "1.5"),
            (json!({ "type": "number" }), "NaN"),
            (json!({ "type": "boolean" }), "perhaps"),
            (json!({ "enum": ["x"] }), "2"),
        ] {
            assert!(
                filled(schema.clone(), true, line).is_err(),
                "{schema} {line}"
            );
        }
    }
}
