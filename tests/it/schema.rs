use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use walkdir::WalkDir;

use crate::kit::Home;

/// Keys of a topology, one a line, which every later version reads.
const KEYS: &str =
    include_str!("../../src/config/tests/snapshots/callboard__config__tests__frozen__keys.snap");
const NODE: &str = "[node]\nname = \"n\"\n";

async fn schema() -> Value {
    Home::new().run(&["schema"]).await.quiet(0).json()
}

/// Mistakes that the schema finds in a topology.
fn mistakes(schema: &Value, topology: &str) -> Vec<String> {
    let topology: toml::Table = topology.parse().unwrap();
    let topology = serde_json::to_value(topology).unwrap();
    let validator = jsonschema::validator_for(schema).unwrap();
    let found = validator.iter_errors(&topology);
    found
        .map(|mistake| format!("{}: {mistake}", mistake.instance_path()))
        .collect()
}

/// Goal: an editor accepts each topology that comes with callboard. Method: all TOML files of the examples.
#[tokio::test]
async fn examples_are_valid() {
    let schema = schema().await;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in WalkDir::new(examples) {
        let entry = entry.unwrap();
        let is_topology = entry.path().extension().is_some_and(|of| of == "toml");
        if !is_topology || entry.file_name() == "rustfmt.toml" {
            continue;
        }
        let found = mistakes(&schema, &fs::read_to_string(entry.path()).unwrap());
        assert!(found.is_empty(), "{:?}: {found:#?}", entry.path());
        count += 1;
    }
    assert!(count >= 13, "the walk misses files: {count}");
}

/// Goal: an editor marks a key that is misspelled or stands in the wrong place, and a value that can't be. Method: rows of
/// a valid text, and another one in its place, at every kind of table.
#[tokio::test]
async fn mistakes_are_refused() {
    let schema = schema().await;
    let listener = "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:1\"\n";
    for (valid, right, wrong) in [
        ("[store]\nsize_max_mib = 64", "[store]", "[stores]"),
        ("[store]\nsize_max_mib = 64", "size_max_mib", "size_max"),
        ("[store]\nsize_max_mib = 64", "64", "\"64\""),
        ("[store]\nsize_max_mib = 64", "64", "0"),
        ("[store]\naudit = \"calls\"", "calls", "call"),
        (
            "[store.retention]\nmail_days = 1",
            "mail_days",
            "mails_days",
        ),
        (
            "[[upstream]]\nid = \"a\"\ncommand = [\"b\"]",
            "command",
            "comand",
        ),
        (
            "[[upstream]]\nid = \"a\"\ncommand = [\"b\"]",
            "id = \"a\"",
            "",
        ),
        (
            "[[upstream]]\nid = \"a\"\ntools.allow = [\"b\"]",
            "allow",
            "allowed",
        ),
        (
            "[[upstream]]\nid = \"a\"\ntransport = \"sse\"",
            "sse",
            "ssh",
        ),
        (
            "[[agent]]\nkind = \"person\"\nid = \"a\"\nlabel = \"A\"",
            "label",
            "lable",
        ),
        (
            "[[agent]]\nkind = \"person\"\nid = \"a\"",
            "person",
            "persona",
        ),
        (
            "[[agent]]\nkind = \"person\"\nid = \"a\"",
            "kind = \"person\"",
            "",
        ),
        (
            "[[agent]]\nkind = \"model\"\nid = \"a\"\nprovider = \"echo\"",
            "echo",
            "ecco",
        ),
        (
            "[[agent]]\nkind = \"model\"\nid = \"a\"\nprovider = \"echo\"",
            "id = \"a\"",
            "",
        ),
        (
            "[[agent]]\nkind = \"orchestrator\"\nid = \"a\"\ndecide.plan = \"rules\"",
            "plan",
            "plans",
        ),
        (
            "[[agent]]\nkind = \"orchestrator\"\nid = \"a\"\ntools = [\"llm\"]",
            "llm",
            "llms",
        ),
        ("anonymous = \"guest\"", "guest", "guests"),
        ("anonymous = false", "false", "true"),
        (
            "provider = { organization = \"o\", url = \"https://o.example\" }",
            "url",
            "link",
        ),
        ("", "dialect = \"mcp\"", "dialekt = \"mcp\""),
        ("", "name = \"n\"", ""),
        // Sections of other programs' files have no place beside a node.
        ("[store]", "[store]", "[mode]"),
    ] {
        let text = format!("{NODE}{listener}{valid}\n");
        let found = mistakes(&schema, &text);
        assert!(found.is_empty(), "{text}: {found:#?}");
        assert!(text.contains(right), "{right} isn't in {text}");
        let text = text.replacen(right, wrong, 1);
        assert!(!mistakes(&schema, &text).is_empty(), "accepted: {text}");
    }
}

/// Goal: in a bidirectional agent's file `server` is one table, elsewhere a list. Method: both forms of it in
/// both files.
#[tokio::test]
async fn the_server_of_a_form() {
    let schema = schema().await;
    let list = "[[server]]\nid = \"s\"\nmembers = [\"a\"]\n";
    let table = "[server]\nport = 1\n";
    for (form, server, is_valid) in [
        (NODE, list, true),
        (NODE, table, false),
        ("[mode]\n", table, true),
        ("[mode]\n", list, false),
        ("[llm]\n", list, false),
        ("[client]\n", list, false),
    ] {
        let found = mistakes(&schema, &format!("{form}{server}"));
        assert_eq!(found.is_empty(), is_valid, "{form}{server}: {found:#?}");
    }
}

/// Schemas at one place of a topology, of which a value may meet any.
struct SchemaNode<'a> {
    root: &'a Value,
    schemas: Vec<&'a Value>,
}

impl<'a> SchemaNode<'a> {
    /// The place with these schemas, references and alternatives resolved.
    fn new(root: &'a Value, schemas: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut node = Self {
            root,
            schemas: Vec::new(),
        };
        schemas.into_iter().for_each(|schema| node.add(schema));
        node
    }

    fn add(&mut self, schema: &'a Value) {
        self.schemas.push(schema);
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.root.pointer(reference.trim_start_matches('#'));
            self.add(target.unwrap_or_else(|| panic!("{reference} leads nowhere")));
        }
        for alternatives in ["anyOf", "oneOf"] {
            let all = schema[alternatives].as_array().into_iter().flatten();
            all.for_each(|schema| self.add(schema));
        }
    }

    /// The place of the member `name`, which may be any of a map.
    fn member(&self, name: &str) -> Self {
        let members = self.schemas.iter().filter_map(|schema| {
            let of_map = schema.get("additionalProperties");
            let declared = schema["properties"].get(name);
            declared.or_else(|| of_map.filter(|of| of.is_object()))
        });
        Self::new(self.root, members)
    }

    /// Names of the members that are declared.
    fn names(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for schema in &self.schemas {
            let keys = schema["properties"].as_object().into_iter().flatten();
            names.extend(keys.map(|(name, _)| name.as_str()));
            if let Some(of_map) = schema.get("propertyNames") {
                names.extend(Self::new(self.root, [of_map]).values());
            }
        }
        names
    }

    /// Texts that a value at this place may have, if it can't have all.
    fn values(&self) -> Vec<&'a str> {
        let mut values = Vec::new();
        for schema in &self.schemas {
            values.extend(schema["const"].as_str());
            let listed = schema["enum"].as_array().into_iter().flatten();
            values.extend(listed.filter_map(Value::as_str));
        }
        values
    }

    /// Whether there is a place at the rest of a line: `.key`, `[]` for an item, `{}` for a member of a map, and ` = value`.
    /// Keys may contain dots. A value may be written as a key too.
    fn has(&self, rest: &str) -> bool {
        if rest.is_empty() {
            return !self.schemas.is_empty();
        }
        if let Some(value) = rest.strip_prefix(" = ") {
            return self.values().contains(&value);
        }
        if let Some(rest) = rest.strip_prefix("[]") {
            let items = self.schemas.iter().filter_map(|schema| schema.get("items"));
            return Self::new(self.root, items).has(rest);
        }
        if let Some(rest) = rest.strip_prefix("{}") {
            let members = self
                .schemas
                .iter()
                .filter_map(|schema| schema.get("additionalProperties"));
            return Self::new(self.root, members).has(rest);
        }
        let Some(key) = rest.strip_prefix('.') else {
            return false;
        };
        let is_member = |name: &str| {
            key.strip_prefix(name).is_some_and(|rest| {
                rest.is_empty()
                    || rest.starts_with(['.', '[', '{', ' ']) && self.member(name).has(rest)
            })
        };
        self.values().contains(&key) || self.names().into_iter().any(is_member)
    }
}

/// The lines of the snapshot that the schema lacks.
fn lacking(schema: &Value) -> Vec<&'static str> {
    let root = SchemaNode::new(schema, [schema]);
    let is_there = |line: &str| {
        let Some((label, rest)) = line
            .strip_prefix("agent[")
            .and_then(|line| line.split_once(']'))
        else {
            return root.has(&format!(".{line}"));
        };
        let (kind, provider) = label.split_once(' ').unwrap_or((label, ""));
        let agents = schema["properties"]["agent"]["items"]["oneOf"]
            .as_array()
            .unwrap();
        let of_label = agents.iter().filter(|agent| {
            let keys = &agent["properties"];
            keys["kind"]["const"] == kind
                && keys["provider"]["const"].as_str().unwrap_or_default() == provider
        });
        SchemaNode::new(schema, of_label).has(rest)
    };
    let (_, lines) = KEYS.split_once("---\nsource").unwrap();
    let (_, lines) = lines.split_once("---\n").unwrap();
    let lines: Vec<_> = lines.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 800, "the snapshot has {} lines", lines.len());
    lines.into_iter().filter(|line| !is_there(line)).collect()
}

/// Goal: an editor knows each key and each named value that callboard reads. Method: the snapshot of all keys against the
/// schema, and against one that lacks a key of a section, an agent and a list.
#[tokio::test]
async fn every_key_is_in_the_schema() {
    let mut schema = schema().await;
    assert_eq!(lacking(&schema), [""; 0]);
    let mut remove = |table: &str, key: &str| {
        let keys = schema.pointer_mut(table).unwrap();
        keys.as_object_mut().unwrap().remove(key).unwrap();
    };
    remove("/properties/store/properties", "writer");
    remove("/properties/listener/items/properties", "hosts");
    remove("/$defs/AnswerRouting/properties", "order");
    let expected = [
        "listener[].hosts",
        "routing.elicitation.order",
        "routing.sampling.order",
        "store.writer",
    ];
    assert_eq!(lacking(&schema), expected);
}

/// Goal: the document is a schema of the draft that it names, and says what each key is for. Method: the draft's meta-schema;
/// the description of each key of the largest tables, as text without markup of doc comments.
#[tokio::test]
async fn the_document_is_a_schema_with_meanings() {
    let schema = schema().await;
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    jsonschema::meta::validate(&schema).unwrap();
    for table in ["upstream", "listener", "server/anyOf/0", "clinic"] {
        let keys = schema.pointer(&format!("/properties/{table}/items/properties"));
        let keys = keys.and_then(Value::as_object).unwrap();
        for (key, of_key) in keys {
            let meaning = of_key["description"].as_str().unwrap_or_default();
            assert!(!meaning.is_empty(), "{table}.{key} has no description");
            assert!(!meaning.contains("[`"), "{table}.{key}: {meaning}");
        }
    }
    let node = &schema["properties"]["node"]["properties"]["name"];
    assert_eq!(
        node,
        &json!({ "type": "string", "description": "Name of the node." })
    );
}
