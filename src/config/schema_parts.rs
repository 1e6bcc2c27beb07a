//! Parts of the JSON Schema of topology files that declarations name.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

/// Generator of the schema of one declaration.
pub(super) type DeclarationSchema = fn(&mut SchemaGenerator) -> Schema;

/// Adds a key to the schema of a table, unless the table has it.
pub(super) fn add_key(table: &mut Value, key: &str, schema: Value, is_required: bool) {
    let Value::Object(table) = table else {
        return;
    };
    let keys = table.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(keys) = keys {
        keys.entry(key).or_insert(schema);
    }
    if !is_required {
        return;
    }
    let required = table.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required
        && !required.iter().any(|name| name.as_str() == Some(key))
    {
        required.push(Value::from(key));
    }
}
