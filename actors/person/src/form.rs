//! Forms of questions to people: the flat subset of JSON Schema of MCP's `elicitation/create`.

use callboard_message::RawObject;
use serde_json::{Map, Value, json};

/// Maximum size of a form's schema, in bytes. Fixed.
pub const PERSON_SCHEMA_BYTES_MAX: usize = 8 * 1024;

/// Returns the form of a question without a schema: one text, the member `answer`.
pub(crate) fn text_form() -> RawObject {
    RawObject::single("type", "object")
        .with(
            "properties",
            json!({ "answer": { "type": "string", "title": "Answer", "minLength": 1 } }),
        )
        .with("required", json!(["answer"]))
}

/// Checks that a schema is a form.
///
/// # Errors
/// The reason, with the field and a remedy.
pub(crate) fn check_schema(schema: &RawObject) -> Result<(), String> {
    let raw = schema.to_raw();
    let bytes = raw.get().len();
    if bytes > PERSON_SCHEMA_BYTES_MAX {
        return Err(format!(
            "`schema` has {bytes} bytes, {PERSON_SCHEMA_BYTES_MAX} are allowed: ask in a shorter form"
        ));
    }
    let schema: Value = serde_json::from_str(raw.get())
        .map_err(|_| "`schema` is nested too deeply: write a flat object".to_owned())?;
    let fields = match (&schema["type"], &schema["properties"]) {
        (Value::String(kind), Value::Object(fields)) if kind == "object" && !fields.is_empty() => {
            fields
        }
        _ => {
            return Err(
                "`schema` must be of the type object, with at least one member in `properties`"
                    .to_owned(),
            );
        }
    };
    if let Some((name, _)) = fields.iter().find(|(_, field)| !is_primitive(field)) {
        return Err(format!(
            "`schema`: {name:?} must be a string, number, integer, boolean, choice or list of choices"
        ));
    }
    match has_known_names(&schema["required"], fields) {
        true => Ok(()),
        false => Err("`schema`: `required` must list names of `properties`".to_owned()),
    }
}

/// Returns whether `required` is left out, or lists only names of fields.
fn has_known_names(required: &Value, fields: &Map<String, Value>) -> bool {
    let is_known =
        |name: &Value| matches!(name, Value::String(name) if fields.contains_key(name.as_str()));
    match required {
        Value::Null => true,
        Value::Array(names) => names.iter().all(is_known),
        _ => false,
    }
}

/// Returns whether the schema of a field is one that people can fill in.
fn is_primitive(field: &Value) -> bool {
    match &field["type"] {
        Value::String(kind) => match kind.as_str() {
            "string" | "number" | "integer" | "boolean" => true,
            "array" => field["items"]["type"] == "string" || has_choices(&field["items"]),
            _ => false,
        },
        Value::Null => has_choices(field),
        _ => false,
    }
}

/// Returns whether a schema lists choices.
fn has_choices(schema: &Value) -> bool {
    ["enum", "oneOf", "anyOf"].iter().any(|list| {
        let choices = schema[*list].as_array();
        choices.is_some_and(|choices| {
            let is_scalar = |choice: &Value| !choice.is_object() && !choice.is_array();
            let is_titled = |choice: &Value| choice.get("const").is_some_and(is_scalar);
            !choices.is_empty()
                && choices.iter().all(|choice| match *list {
                    "enum" => is_scalar(choice),
                    _ => is_titled(choice),
                })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(schema: Value) -> Result<(), String> {
        check_schema(&serde_json::from_value(schema).unwrap())
    }

    /// Goal: only flat forms of fields that people can fill in are shown. Method: rows of fields.
    #[test]
    fn forms_are_flat() {
        let titled = json!([{ "const": "a", "title": "Anna" }]);
        for (field, is_right) in [
            (json!({ "type": "string", "format": "date" }), true),
            (json!({ "type": "number" }), true),
            (json!({ "type": "integer" }), true),
            (json!({ "type": "boolean" }), true),
            (json!({ "type": "string", "enum": ["a"] }), true),
            (json!({ "enum": ["a", 1] }), true),
            (json!({ "oneOf": titled }), true),
            (
                json!({ "type": "array", "items": { "type": "string" } }),
                true,
            ),
            (
                json!({ "type": "array", "items": { "anyOf": titled } }),
                true,
            ),
            (json!({ "type": "array" }), false),
            (
                json!({ "type": "array", "items": { "type": "object" } }),
                false,
            ),
            (json!({ "type": "object", "properties": {} }), false),
            (json!({ "type": ["string", "null"] }), false),
            (json!({ "oneOf": [{ "type": "string" }] }), false),
            (json!({ "enum": [] }), false),
            (json!({ "enum": [{}] }), false),
            (json!({}), false),
            (json!(true), false),
        ] {
            let schema = json!({ "type": "object", "properties": { "x": field } });
            assert_eq!(checked(schema).is_ok(), is_right, "{field}");
        }
        let field = json!({ "x": { "type": "string" } });
        for (schema, is_right) in [
            (
                json!({ "type": "object", "properties": field, "required": ["x"] }),
                true,
            ),
            (
                json!({ "type": "object", "properties": field, "required": ["y"] }),
                false,
            ),
            (
                json!({ "type": "object", "properties": field, "required": "x" }),
                false,
            ),
            (json!({ "type": "object", "properties": {} }), false),
            (json!({ "type": "string", "properties": field }), false),
            (json!({ "properties": field }), false),
            (json!({}), false),
        ] {
            assert_eq!(checked(schema.clone()).is_ok(), is_right, "{schema}");
        }
        assert_eq!(check_schema(&text_form()), Ok(()));
    }

    /// Goal: a schema is bounded. Method: the longest, and a byte more.
    #[test]
    fn schemas_are_bounded() {
        let of_title = |chars: usize| {
            let title = "x".repeat(chars);
            json!({ "type": "object", "properties": { "x": { "type": "string", "title": title } } })
        };
        let room = PERSON_SCHEMA_BYTES_MAX - of_title(0).to_string().len();
        assert_eq!(checked(of_title(room)), Ok(()));
        let longer = checked(of_title(room + 1)).unwrap_err();
        assert!(longer.contains("8193 bytes"), "{longer}");
    }
}
