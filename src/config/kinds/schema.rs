//! JSON Schema of an `[[agent]]`.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::AGENT_KINDS;
use crate::config::DESCRIPTION_KEY;
use crate::config::schema_parts::add_key;

/// Returns the schema of an `[[agent]]`: one alternative for each kind, and for each provider of a model.
pub(in crate::config) fn agent_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut alternatives = Vec::new();
    for (name, kind) in AGENT_KINDS {
        let schema = (kind.schema)(generator).to_value();
        let forms = schema.get("oneOf").and_then(Value::as_array).cloned();
        for mut form in forms.unwrap_or_else(|| vec![schema]) {
            add_key(&mut form, "kind", json!({ "const": name }), true);
            let id = json!({ "type": "string", "description": "Unique name in the directory." });
            add_key(&mut form, "id", id, true);
            if kind.is_described {
                let text = "Description in agent cards. Default: made from its tools.";
                let description = json!({ "type": "string", "description": text });
                add_key(&mut form, DESCRIPTION_KEY, description, false);
            }
            alternatives.push(form);
        }
    }
    let kinds: Vec<_> = AGENT_KINDS.iter().map(|(name, _)| *name).collect();
    json_schema!({
        "type": "object",
        "properties": { "kind": { "description": "Kind of agent.", "enum": kinds } },
        "required": ["kind"],
        "oneOf": alternatives,
    })
}
