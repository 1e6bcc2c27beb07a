//! One field of a form that a server sends (MCP elicitation's subset of JSON Schema).

use callboard_message::{RawObject, assent};
use serde_json::Value;
use serde_json::value::RawValue;

/// A field, as far as a person fills it in.
pub(crate) struct Field {
    title: String,
    told: Option<String>,
    kind: Kind,
    default: Option<Value>,
    is_required: bool,
}

enum Kind {
    Text {
        chars_min: u64,
        chars_max: u64,
    },
    Integer {
        min: f64,
        max: f64,
    },
    Number {
        min: f64,
        max: f64,
    },
    YesNo,
    /// Values and what they are called.
    One(Vec<(Value, String)>),
    Several(Vec<(Value, String)>),
}

/// What came of a line.
pub(crate) enum Filled {
    With(Value),
    LeftOut,
}

impl Field {
    pub(crate) fn read(name: &str, field: &RawValue, is_required: bool) -> Self {
        let schema: Value = serde_json::from_str(field.get()).unwrap_or_default();
        let body = RawObject::parse(field).unwrap_or_default();
        let number = |member: &str, otherwise: f64| schema[member].as_f64().unwrap_or(otherwise);
        let (min, max) = (number("minimum", f64::NEG_INFINITY), number("maximum", f64::INFINITY));
        let kind = match schema["type"].as_str() {
            _ if schema.get("enum").is_some() || schema.get("oneOf").is_some() => Kind::One(choices(&schema)),
            Some("array") => Kind::Several(choices(&schema["items"])),
            Some("integer") => Kind::Integer { min, max },
            Some("number") => Kind::Number { min, max },
            Some("boolean") => Kind::YesNo,
            _ => Kind::Text {
                chars_min: schema["minLength"].as_u64().unwrap_or(0),
                chars_max: schema["maxLength"].as_u64().unwrap_or(u64::MAX),
            },
        };
        Self {
            title: body.text("title").unwrap_or_else(|| name.to_owned()),
            told: body.text("description"),
            kind,
            default: schema.get("default").cloned(),
            is_required,
        }
    }

    /// What the person sees.
    pub(crate) fn prompt(&self) -> String {
        let mut prompt = format!("  {}", self.title);
        if let Some(told) = &self.told {
            prompt += &format!(" – {told}");
        }
        match &self.kind {
            Kind::One(choices) | Kind::Several(choices) => {
                for (n, (_, called)) in choices.iter().enumerate() {
                    prompt += &format!("\n    {}) {called}", n + 1);
                }
                prompt += "\n   ";
            }
            Kind::YesNo => prompt += " (yes/no)",
            Kind::Text { .. } | Kind::Integer { .. } | Kind::Number { .. } => {}
        }
        if let Kind::Several(_) = self.kind {
            prompt += " several, with commas";
        }
        match &self.default {
            Some(default) => prompt += &format!(" [{}]", self.called(default)),
            None if !self.is_required => prompt += " [nothing]",
            None => {}
        }
        prompt + ": "
    }

    /// A value by the name that its choice has.
    fn called(&self, value: &Value) -> String {
        match (&self.kind, value) {
            (Kind::One(choices) | Kind::Several(choices), value) if !value.is_array() => {
                let choice = choices.iter().find(|(of, _)| of == value);
                choice.map_or_else(|| shown(value), |(_, called)| called.clone())
            }
            (_, Value::Array(values)) => values.iter().map(|v| self.called(v)).collect::<Vec<_>>().join(", "),
            (_, value) => shown(value),
        }
    }

    /// The value of a line, or what is wrong with it.
    pub(crate) fn fill(&self, line: &str) -> Result<Filled, String> {
        if line.is_empty() {
            return match (&self.default, self.is_required) {
                (Some(default), _) => Ok(Filled::With(default.clone())),
                (None, false) => Ok(Filled::LeftOut),
                (None, true) => Err("this is needed".into()),
            };
        }
        self.value(line).map(Filled::With)
    }

    fn value(&self, line: &str) -> Result<Value, String> {
        match &self.kind {
            Kind::Text { chars_min, chars_max } => {
                let chars = line.chars().count() as u64;
                match (*chars_min..=*chars_max).contains(&chars) {
                    true => Ok(line.into()),
                    false if chars < *chars_min => Err(format!("at least {chars_min} characters")),
                    false => Err(format!("at most {chars_max} characters")),
                }
            }
            Kind::Integer { min, max } => {
                let value: i64 = line.parse().map_err(|_| "a whole number".to_owned())?;
                within(value as f64, *min, *max).map(|()| value.into())
            }
            Kind::Number { min, max } => {
                let value = line.parse::<f64>().ok().filter(|v| v.is_finite()).ok_or("a number")?;
                within(value, *min, *max).map(|()| value.into())
            }
            Kind::YesNo => assent(line).map(Value::from).ok_or_else(|| "yes or no".to_owned()),
            Kind::One(choices) => choice(choices, line),
            Kind::Several(choices) => {
                line.split(',').map(|part| choice(choices, part.trim())).collect::<Result<Vec<_>, _>>().map(Value::from)
            }
        }
    }
}

fn within(value: f64, min: f64, max: f64) -> Result<(), String> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false if value < min => Err(format!("at least {min}")),
        false => Err(format!("at most {max}")),
    }
}

/// The values of an `enum` (with `enumNames`), or of a `oneOf` or `anyOf` of `const`s with titles.
fn choices(schema: &Value) -> Vec<(Value, String)> {
    let titled = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
    if let Some(titled) = titled {
        let named = |choice: &Value| {
            let value = choice.get("const")?.clone();
            let called = choice["title"].as_str().map_or_else(|| shown(&value), str::to_owned);
            Some((value, called))
        };
        return titled.iter().filter_map(named).collect();
    }
    let values = schema["enum"].as_array().into_iter().flatten();
    let name = |n: usize, value: &Value| schema["enumNames"][n].as_str().map_or_else(|| shown(value), str::to_owned);
    values.enumerate().map(|(n, value)| (value.clone(), name(n, value))).collect()
}

/// A choice by its number, its value or its name; a value goes before a number.
fn choice(choices: &[(Value, String)], line: &str) -> Result<Value, String> {
    let said = choices.iter().find(|(value, called)| shown(value) == line || called == line);
    let numbered = || line.parse::<usize>().ok().and_then(|n| choices.get(n.checked_sub(1)?));
    said.or_else(numbered).map(|(value, _)| value.clone()).ok_or_else(|| "one of the choices".to_owned())
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filled(schema: Value, is_required: bool, line: &str) -> Result<Option<Value>, String> {
        let raw = serde_json::value::to_raw_value(&schema).unwrap();
        Field::read("f", &raw, is_required).fill(line).map(|filled| match filled {
            Filled::With(value) => Some(value),
            Filled::LeftOut => None,
        })
    }

    /// Goal: what a person types becomes what the schema wants. Method: each kind of field, with its defaults.
    #[test]
    fn lines_become_values() {
        let titled = json!({ "type": "string", "oneOf": [{ "const": "r", "title": "Red" }, { "const": "g", "title": "Green" }] });
        let several =
            json!({ "type": "array", "items": { "anyOf": [{ "const": "a", "title": "A" }, { "const": "b" }] } });
        for (schema, line, value) in [
            (json!({ "type": "string" }), "42", json!("42")),
            (json!({ "type": "integer", "minimum": 1 }), "42", json!(42)),
            (json!({ "type": "number" }), "4.5", json!(4.5)),
            (json!({ "type": "boolean" }), "No", json!(false)),
            (json!({ "type": "boolean" }), "Yes, go ahead", json!(true)),
            (json!({ "type": "string", "enum": ["x", "y"], "enumNames": ["Ex", "Why"] }), "Why", json!("y")),
            (titled.clone(), "2", json!("g")),
            (titled, "r", json!("r")),
            (several, "A, b", json!(["a", "b"])),
            (json!({ "type": "number", "default": 95.5 }), "", json!(95.5)),
        ] {
            assert_eq!(filled(schema.clone(), true, line), Ok(Some(value)), "{schema}");
        }
        assert_eq!(filled(json!({ "type": "string" }), false, ""), Ok(None));
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
            assert!(filled(schema.clone(), true, line).is_err(), "{schema} {line}");
        }
    }
}
