//! JSON Schema of topology files, made from the declarations that decode them.

use schemars::consts::meta_schemas;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::lists::LIST_SECTIONS;
use super::magictunnel::ExternalSwitches;
use super::schema_parts::add_key;
use super::sections::SECTIONS;
use super::{NodeDeclaration, RoutingDeclaration, UpstreamDeclaration, bidirectional};

/// Section with MagicTunnel's servers.
const EXTERNAL_SECTION: &str = "external_mcp";
/// Sections of a bidirectional agent's file that may contain switches.
const SWITCH_SECTIONS: [&str; 2] = ["mode", "llm"];
/// Names that are accepted in addition to the current ones (`#[serde(alias)]`), which schemars doesn't
/// know: definition, current name, other name. They are keys of tables, or values.
const ALIASES: [(&str, &str, &str); 4] = [
    (
        "AnswerRouting",
        "fallback_to_models",
        "fallback_to_magictunnel",
    ),
    ("AnswerStrategy", "models", "magictunnel_handled"),
    ("AnswerStrategy", "models_first", "magictunnel_first"),
    ("UpstreamTransport", "streamable_http", "http"),
];

/// Returns the JSON Schema (draft 2020-12) of a topology file.
///
/// It has the keys with their types, names and meanings, and refuses unknown keys: also in a bidirectional
/// agent's file and in `external_mcp`, where a check only warns of them. References between
/// declarations, and anything on this machine, are checked by [`Topology::check`](super::Topology::check)
/// alone. Renamed keys have their new names only.
pub fn topology_schema() -> Value {
    let generator = &mut SchemaSettings::draft2020_12().into_generator();
    let mut keys = Map::new();
    let node = NodeDeclaration::json_schema(generator);
    keys.insert("node".to_owned(), node.to_value());
    for (name, _, schema) in SECTIONS {
        keys.insert((*name).to_owned(), schema(generator).to_value());
    }
    for section in LIST_SECTIONS {
        let items = (section.schema)(generator);
        let list = json!({ "type": "array", "items": items });
        keys.insert(section.name.to_owned(), list);
    }
    keys.insert(EXTERNAL_SECTION.to_owned(), external_schema(generator));
    let only_bidirectional = add_bidirectional_keys(&mut keys, generator);
    let mut definitions = generator.take_definitions(true);
    for (definition, name, alias) in ALIASES {
        if let Some(schema) = definitions.get_mut(definition) {
            add_alias(schema, name, alias);
        }
    }
    let mut schema = json!({
        "$schema": meta_schemas::DRAFT2020_12,
        "title": "callboard topology",
        "description": "Agents, upstreams, listeners, policies and routing of a callboard node.",
        "type": "object",
        "properties": keys,
        "additionalProperties": false,
        "anyOf": file_forms(),
        "dependentSchemas": section_dependencies(&only_bidirectional),
        "$defs": definitions,
    });
    tidy_descriptions(&mut schema);
    schema
}

/// Returns the schema of the section with MagicTunnel's servers.
fn external_schema(generator: &mut SchemaGenerator) -> Value {
    let mut server = UpstreamDeclaration::json_schema(generator).to_value();
    // The key that a server stands under is its id.
    if let Some(Value::Object(keys)) = server.get_mut("properties") {
        keys.remove("id");
    }
    if let Some(Value::Array(required)) = server.get_mut("required") {
        required.retain(|name| name != "id");
    }
    let servers = json!({ "type": "object", "additionalProperties": server });
    let routing = RoutingDeclaration::json_schema(generator).to_value();
    let mut schema = ExternalSwitches::json_schema(generator).to_value();
    add_key(&mut schema, "servers", servers, false);
    add_key(&mut schema, "external_routing", routing, false);
    schema
}

/// Adds the keys at the top level of a bidirectional agent's file to `keys`. Returns the schemas that
/// these keys have in other files: they stand there not at all, or as a list.
fn add_bidirectional_keys(
    keys: &mut Map<String, Value>,
    generator: &mut SchemaGenerator,
) -> Map<String, Value> {
    let mut elsewhere = Map::new();
    let switches = bidirectional::switches_schema(generator).to_value();
    let switches = switches.get("properties").and_then(Value::as_object);
    for (name, schema) in bidirectional::section_schemas(generator) {
        let mut schema = schema.to_value();
        if SWITCH_SECTIONS.contains(&name) {
            for (switch, of_switch) in switches.into_iter().flatten() {
                add_key(&mut schema, switch, of_switch.clone(), false);
            }
        }
        let schema = match keys.remove(name) {
            // `server` is a list of virtual servers in other files.
            Some(list) => {
                elsewhere.insert(name.to_owned(), json!({ "type": "array" }));
                json!({ "anyOf": [list, schema] })
            }
            None => {
                elsewhere.insert(name.to_owned(), Value::Bool(false));
                schema
            }
        };
        keys.insert(name.to_owned(), schema);
    }
    for (switch, schema) in switches.into_iter().flatten() {
        elsewhere.insert(switch.clone(), Value::Bool(false));
        keys.insert(switch.clone(), schema.clone());
    }
    elsewhere
}

/// Returns the conditions of which a file meets one: a topology has a node, other programs' files have
/// one of their own sections.
fn file_forms() -> Vec<Value> {
    let mut forms = vec![json!({ "required": ["node"] })];
    let of_others = bidirectional::MARKER_SECTIONS
        .into_iter()
        .chain([EXTERNAL_SECTION]);
    forms.extend(of_others.map(|section| json!({ "required": [section] })));
    forms.push(json!({
        "required": ["server"],
        "properties": { "server": { "type": "object", "required": ["port"] } },
    }));
    forms
}

/// Returns what the other keys of a file are, by a section that tells its form. `elsewhere` are the
/// schemas of a bidirectional agent's keys in other files.
fn section_dependencies(elsewhere: &Map<String, Value>) -> Value {
    let of_others =
        ["node", EXTERNAL_SECTION].map(|name| (name, json!({ "properties": elsewhere })));
    let of_bidirectional = bidirectional::MARKER_SECTIONS.map(|name| {
        (
            name,
            json!({ "properties": { "server": { "type": "object" } } }),
        )
    });
    of_others.into_iter().chain(of_bidirectional).collect()
}

/// Adds another name of a key, or of a value, to the schema that has it.
fn add_alias(schema: &mut Value, name: &str, alias: &str) {
    let same = format!("Other name of `{name}`.");
    if let Some(Value::Object(keys)) = schema.get_mut("properties")
        && let Some(mut of_alias) = keys.get(name).cloned()
    {
        if let Value::Object(of_alias) = &mut of_alias {
            of_alias.insert("description".to_owned(), Value::from(same.as_str()));
        }
        keys.insert(alias.to_owned(), of_alias);
    }
    if let Some(Value::Array(values)) = schema.get_mut("oneOf") {
        values.push(json!({ "const": alias, "description": same }));
    }
}

/// Rewrites all descriptions, which are doc comments, as plain text.
fn tidy_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match member {
                    Value::String(text) if name == "description" => *text = plain_text(text),
                    other => tidy_descriptions(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_descriptions),
        _ => {}
    }
}

/// Returns a doc comment as plain text: one line a paragraph, and names in place of links to items.
fn plain_text(doc: &str) -> String {
    let paragraphs = doc.split("\n\n").map(|lines| lines.replace('\n', " "));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some((before, linked)) = rest.split_once("[`") {
        let Some((name, after)) = linked.split_once("`]") else {
            break;
        };
        plain.push_str(&format!("{before}`{name}`"));
        let target = after.strip_prefix('(').and_then(|it| it.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::plain_text;

    /// Goal: an editor shows sentences, not the markup of doc comments. Method: lines, paragraphs, links
    /// with and without a target, and a bracket that is none.
    #[test]
    fn descriptions_are_plain_text() {
        for (doc, expected) in [
            ("One\nsentence.\n\nAnother.", "One sentence.\n\nAnother."),
            (
                "Default: [`Limits::MAX`], see [`Planner`](crate::planner::Planner), or (none).",
                "Default: `Limits::MAX`, see `Planner`, or (none).",
            ),
            ("A list such as [`a.", "A list such as [`a."),
        ] {
            assert_eq!(plain_text(doc), expected);
        }
    }
}
