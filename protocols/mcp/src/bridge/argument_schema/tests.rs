use serde_json::json;
use serde_json::value::to_raw_value;
use sha2::{Digest, Sha256};

use super::*;

fn listed(schema: &Value) -> ListedTool {
    let schema = to_raw_value(schema).unwrap();
    ListedTool {
        digest: Sha256::digest(schema.get()).into(),
        input_schema: Some(schema),
    }
}

async fn checked(
    schemas: &ArgumentSchemas,
    schema: &Value,
    arguments: &Value,
) -> Result<(), String> {
    let arguments = to_raw_value(arguments).unwrap();
    schemas.check("t", &listed(schema), &arguments).await
}

fn unenforced(schemas: &ArgumentSchemas) -> u64 {
    schemas.unenforced.load(Relaxed)
}

/// Goal: an error names the place and the rule, and no value of the arguments. Method: a table of
/// schemas and arguments, with a secret as each wrong value.
#[tokio::test]
async fn errors_name_place_and_rule() {
    let schemas = ArgumentSchemas::new("far");
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    for (schema, arguments, place, rule) in [
        (
            object(json!({ "a": { "type": "integer" } })),
            json!({ "a": "s3cret" }),
            "`/a`",
            "`/properties/a/type`",
        ),
        (
            json!({ "type": "object", "required": ["b"] }),
            json!({ "a": "s3cret" }),
            "the object",
            "`/required`",
        ),
        (
            object(json!({ "a": object(json!({ "b": { "enum": ["x"] } })) })),
            json!({ "a": { "b": "s3cret" } }),
            "`/a/b`",
            "`/properties/a/properties/b/enum`",
        ),
        (
            object(json!({ "l": { "items": { "maxLength": 1 } } })),
            json!({ "l": ["a", "s3cret"] }),
            "`/l/1`",
            "`/properties/l/items/maxLength`",
        ),
        (
            object(json!({ "a": { "pattern": "^x$" } })),
            json!({ "a": "s3cret" }),
            "`/a`",
            "`/properties/a/pattern`",
        ),
    ] {
        let flaw = checked(&schemas, &schema, &arguments).await.unwrap_err();
        assert!(flaw.contains(place) && flaw.contains(rule), "{flaw}");
        assert!(!flaw.contains("s3cret"), "{flaw}");
        assert!(flaw.starts_with("the arguments of `t` don't fit"), "{flaw}");
    }
    assert_eq!(unenforced(&schemas), 0);
    assert_eq!(schemas.observe()["refused"], 5);
}

/// Goal: arguments that fit pass, in every draft; formats are no rule. Method: a table.
#[tokio::test]
async fn fitting_arguments_pass() {
    let schemas = ArgumentSchemas::new("far");
    for (schema, arguments) in [
        (json!({}), json!({ "a": 1 })),
        (json!({ "type": "object" }), json!({})),
        (json!(true), json!({ "a": 1 })),
        (
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "properties": { "a": { "format": "email" } } }),
            json!({ "a": "x" }),
        ),
        (
            json!({ "$defs": { "n": { "type": "number" } }, "properties": { "a": { "$ref": "#/$defs/n" } } }),
            json!({ "a": 1.5 }),
        ),
        (
            json!({ "properties": { "children": { "items": { "$ref": "#" } } } }),
            json!({ "children": [{ "children": [{}] }] }),
        ),
    ] {
        assert_eq!(
            checked(&schemas, &schema, &arguments).await,
            Ok(()),
            "{schema}"
        );
    }
    assert_eq!(unenforced(&schemas), 0);
    let tree =
        json!({ "properties": { "children": { "type": "array", "items": { "$ref": "#" } } } });
    let wrong = json!({ "children": [{ "children": [{ "children": 7 }] }] });
    assert!(checked(&schemas, &tree, &wrong).await.is_err());
}

/// Goal: a schema that is no schema, or costs too much, isn't enforced, and is counted once.
/// Method: a table, with limits exceeded by one and expansions beyond any memory.
#[tokio::test]
async fn hostile_schemas_are_not_enforced() {
    let schemas = ArgumentSchemas::new("far");
    let doubling = {
        let mut defs = json!({ "d0": { "type": "null" } });
        for n in 1..40 {
            let below = json!({ "$ref": format!("#/$defs/d{}", n - 1) });
            defs[format!("d{n}")] = json!({ "allOf": [below, below] });
        }
        json!({ "$defs": defs, "$ref": "#/$defs/d39" })
    };
    let nested = |levels: usize| {
        (1..levels).fold(
            json!({ "type": "null" }),
            |inner, _| json!({ "not": inner }),
        )
    };
    let patterns = |number: usize| {
        let all: Vec<_> = (0..number)
            .map(|n| json!({ "pattern": format!("a{n}") }))
            .collect();
        json!({ "anyOf": all })
    };
    let named = |number: usize| {
        let all: serde_json::Map<_, _> = (0..number)
            .map(|n| (format!("a{n}"), json!(true)))
            .collect();
        json!({ "patternProperties": all })
    };
    let max = PATTERNS_MAX as usize;
    let hostile = [
        json!({ "type": "nonsense" }),
        json!({ "type": 7 }),
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "$ref": "https://a.example/x" }),
        json!({ "$ref": "#/$defs/none" }),
        // The validator decodes the reference, and resolves below an identifier against it.
        json!({ "$ref": "#/$defs/%61", "$defs": { "%61": true, "a": { "type": "null" } } }),
        json!({
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": { "a": { "id": "http://a.example/x", "type": "null" } },
        }),
        json!({
            "$ref": "#/$defs/a/properties/b",
            "$defs": { "a": { "$id": "http://a.example/x", "properties": { "b": {} } } },
        }),
        json!({ "properties": { "a": { "$dynamicRef": "#x" } } }),
        json!({ "pattern": "(a+)\\1" }),
        json!({ "pattern": "(((a{1,99}){1,99}){1,99}){1,99}" }),
        json!({ "description": "x".repeat(SCHEMA_BYTES_MAX) }),
        json!({ "enum": vec![0; SUBSCHEMAS_MAX as usize] }),
        doubling,
        nested(SCHEMA_DEPTH_MAX as usize + 1),
        patterns(max + 1),
        named(max + 1),
        json!({ "allOf": vec![true; SUBSCHEMAS_MAX as usize] }),
    ];
    for (nth, schema) in hostile.iter().enumerate() {
        for _ in 0..2 {
            assert_eq!(checked(&schemas, schema, &json!({})).await, Ok(()), "{nth}");
        }
        assert_eq!(unenforced(&schemas), nth as u64 + 1, "{nth}");
    }
    let weight = schemas.compiled.as_ref().unwrap().weight();
    assert_eq!(weight, COMPILED_ENTRY_BYTES * hostile.len() as u64);
    for fine in [nested(SCHEMA_DEPTH_MAX as usize), patterns(max), named(max)] {
        assert!(compile_schema(&fine.to_string()).is_ok(), "{fine}");
    }
}

/// Goal: what a schema costs in memory counts, not its text alone. Method: short schemas with many
/// subschemas by references, and with patterns.
#[test]
fn compiled_sizes_count_parts() {
    for (schema, bytes_min) in [
        (json!({}), COMPILED_ENTRY_BYTES),
        (
            json!({ "$defs": { "a": {} }, "allOf": vec![json!({ "$ref": "#/$defs/a" }); 50] }),
            COMPILED_ENTRY_BYTES + 100 * COMPILED_SUBSCHEMA_BYTES,
        ),
        (
            json!({ "pattern": "a" }),
            COMPILED_ENTRY_BYTES + PATTERN_BYTES_MAX as u64,
        ),
    ] {
        let cost = SchemaCost::estimate(&schema).unwrap();
        assert!(cost.compiled_bytes(0) >= bytes_min, "{schema}");
    }
}

/// Goal: no arguments make a check long or deep. Method: a schema that visits each value twice, and
/// so grows with the depth as a power; a deep value; many values; a long text for a large pattern.
#[tokio::test]
async fn hostile_arguments_are_not_checked() {
    let schemas = ArgumentSchemas::new("far");
    let twice = json!({ "properties": { "a": { "anyOf": [{ "$ref": "#" }, { "$ref": "#" }] } } });
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    let many = json!({ "items": { "anyOf": vec![json!({ "type": "string" }); 100] } });
    let values = |number: usize| json!(vec![1; number]);
    let pattern = |pattern: &str| json!({ "items": { "pattern": pattern } });
    let (short, long) = (pattern("^[a-z]+-x{1,9}$"), pattern("(x{1,20}){1,20}"));
    let text = |bytes: usize| json!(["x".repeat(bytes)]);
    for (schema, arguments, is_checked) in [
        (&twice, deep(4), true),
        (&twice, deep(40), false),
        (&many, values(9), true),
        (&many, values(20_000), false),
        (&short, text(64 << 10), true),
        (&long, text(64), true),
        (&long, text(64 << 10), false),
    ] {
        let before = schemas.unchecked.load(Relaxed);
        let _ = checked(&schemas, schema, &arguments).await;
        assert_eq!(schemas.unchecked.load(Relaxed) == before, is_checked);
    }
    assert_eq!(unenforced(&schemas), 0);
}

/// Goal: the deepest check that is made fits the stack of a small thread. Method: a schema and
/// arguments at the limits of depth and recursion, with the checker's own stack limit.
#[test]
fn the_deepest_check_fits_the_stack() {
    const STACK_BYTES: usize = 1 << 20;
    let levels = RECURSION_MAX as usize / 4;
    let schema = json!({ "properties": { "a": { "allOf": [{ "anyOf": [{ "$ref": "#" }] }] } } });
    let arguments = (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
    let straight = (1..SCHEMA_DEPTH_MAX).fold(
        json!({ "type": "null" }),
        |inner, _| json!({ "properties": { "a": inner } }),
    );
    let run = move || {
        for schema in [schema, straight] {
            let (validator, cost) = compile_schema(&schema.to_string()).unwrap();
            assert!(cost.steps_for(&arguments).is_some(), "{cost:?}");
            let _ = validator.validate(&arguments);
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(run).unwrap().join().unwrap();
}
