use serde_json::{Value, json};

use super::form::{FORM_FIELDS_MAX, FORM_VALUES_MAX, fields, values};

/// Schema of an object with one property `f`.
fn schema(property: Value, is_required: bool) -> Value {
    let required = if is_required { json!(["f"]) } else { json!([]) };
    json!({ "type": "object", "properties": { "f": property }, "required": required })
}

fn pairs(texts: &[&str]) -> Vec<(String, String)> {
    texts
        .iter()
        .map(|text| ("v.f".to_owned(), (*text).to_owned()))
        .collect()
}

fn nullable(property: Value) -> Value {
    json!({ "anyOf": [property, { "type": "null" }], "default": null })
}

/// Goal: a posted form becomes what the schema wants. Method: each kind of field.
#[test]
fn posted_texts_become_values() {
    let titled = json!({ "oneOf": [{ "const": "r", "title": "Red" }, { "const": "g" }] });
    let several = json!({ "type": "array", "items": { "enum": ["a", "b", "c"] }, "maxItems": 2 });
    let text = json!({ "type": "string" });
    for (property, texts, value) in [
        (text.clone(), &["42"][..], json!("42")),
        (text, &["a\r\nb"], json!("a\nb")),
        (
            json!({ "type": "string", "format": "email" }),
            &["a@b.example"],
            json!("a@b.example"),
        ),
        (
            json!({ "type": "string", "format": "uri" }),
            &["https://b.example/"],
            json!("https://b.example/"),
        ),
        (
            json!({ "type": "string", "format": "date" }),
            &["2026-01-31"],
            json!("2026-01-31"),
        ),
        (
            json!({ "type": "integer", "minimum": 1 }),
            &[" 42 "],
            json!(42),
        ),
        (json!({ "type": "number" }), &["4.5"], json!(4.5)),
        (json!({ "type": "number" }), &["4"], json!(4)),
        (json!({ "type": "boolean" }), &["true"], json!(true)),
        (json!({ "type": "boolean" }), &[], json!(false)),
        (json!({ "enum": ["x", 2] }), &["2"], json!(2)),
        (titled, &["r"], json!("r")),
        (several, &["a", "c"], json!(["a", "c"])),
        (nullable(json!({ "type": "integer" })), &["3"], json!(3)),
        (json!({ "type": ["string", "null"] }), &["s"], json!("s")),
        (
            json!({ "type": "object" }),
            &["{\"a\": 1}"],
            json!({ "a": 1 }),
        ),
        (json!({ "$ref": "#/$defs/other" }), &["[1]"], json!([1])),
    ] {
        let read = values(&schema(property.clone(), true), &pairs(texts));
        assert_eq!(
            read.map(Value::from),
            Ok(json!({ "f": value })),
            "{property}"
        );
    }
}

/// Goal: an optional field without input is left out, and a needed one is asked for. Method: no text for each kind.
#[test]
fn empty_fields() {
    for property in [
        json!({ "type": "string" }),
        json!({ "type": "integer" }),
        json!({ "type": "boolean" }),
        json!({ "enum": ["x"] }),
        json!({ "type": "array", "items": { "enum": ["a"] } }),
        json!({}),
    ] {
        let read = values(&schema(property.clone(), false), &pairs(&[""]));
        assert_eq!(read.map(Value::from), Ok(json!({})), "{property}");
    }
    let error = values(
        &schema(json!({ "type": "string", "title": "Name" }), true),
        &[],
    );
    assert_eq!(error, Err("field \"Name\": a value is needed".to_owned()));
    let unchecked = schema(json!({ "type": "boolean", "default": true }), false);
    assert_eq!(
        values(&unchecked, &[]).map(Value::from),
        Ok(json!({ "f": false }))
    );
}

/// Goal: a text that doesn't fit is refused. Method: one beyond each bound.
#[test]
fn misfits_are_refused() {
    for (property, texts) in [
        (json!({ "type": "string", "maxLength": 3 }), &["four"][..]),
        (json!({ "type": "string", "minLength": 3 }), &["tw"]),
        (json!({ "type": "string", "format": "email" }), &["nobody"]),
        (json!({ "type": "string", "format": "uri" }), &["nowhere"]),
        (
            json!({ "type": "string", "format": "date" }),
            &["31.1.2026"],
        ),
        (
            json!({ "type": "string", "format": "date-time" }),
            &["2026-01-31"],
        ),
        (json!({ "type": "string" }), &["a", "b"]),
        (json!({ "type": "integer", "maximum": 5 }), &["6"]),
        (json!({ "type": "integer" }), &["1.5"]),
        (json!({ "type": "number" }), &["NaN"]),
        (json!({ "type": "boolean" }), &["perhaps"]),
        (json!({ "enum": ["x"] }), &["y"]),
        (
            json!({ "type": "array", "items": { "enum": ["a"] }, "minItems": 1 }),
            &[],
        ),
        (json!({ "type": "object" }), &["{"]),
    ] {
        let read = values(&schema(property.clone(), true), &pairs(texts));
        assert!(read.is_err(), "{property} {texts:?}");
    }
}

/// Goal: only inputs of the form count. Method: other names beside them, and an unknown field.
#[test]
fn names_of_the_form() {
    let form = schema(json!({ "type": "string" }), true);
    let mut posted = pairs(&["x"]);
    posted.push(("csrf".to_owned(), "token".to_owned()));
    assert_eq!(
        values(&form, &posted).map(Value::from),
        Ok(json!({ "f": "x" }))
    );
    posted.push(("v.other".to_owned(), "y".to_owned()));
    assert!(values(&form, &posted).is_err());
}

/// Goal: an object without listed properties is written as JSON, and one that takes nothing needs no input. Method: both.
#[test]
fn whole_objects() {
    let open = json!({ "type": "object", "additionalProperties": true });
    let posted = [("v.".to_owned(), "{\"a\": [1]}".to_owned())];
    assert_eq!(
        values(&open, &posted).map(Value::from),
        Ok(json!({ "a": [1] }))
    );
    let wrong = [("v.".to_owned(), "[1]".to_owned())];
    assert!(values(&open, &wrong).is_err());
    let empty = json!({ "type": "object" });
    assert_eq!(fields(&empty, "p").into_string(), "");
    assert_eq!(values(&empty, &[]).map(Value::from), Ok(json!({})));
}

/// Goal: forms are bounded. Method: as many properties and values as are allowed, and one more.
#[test]
fn forms_are_bounded() {
    let form = |count: usize| {
        let properties = (0..count).map(|nth| (format!("p{nth}"), json!({ "type": "string" })));
        json!({ "type": "object", "properties": properties.collect::<serde_json::Map<_, _>>() })
    };
    let inputs = |count: usize| {
        fields(&form(count), "p")
            .into_string()
            .matches("<input")
            .count()
    };
    assert_eq!(inputs(FORM_FIELDS_MAX), FORM_FIELDS_MAX);
    assert_eq!(inputs(FORM_FIELDS_MAX + 1), 0);
    let list = schema(json!({ "type": "array", "items": { "enum": ["a"] } }), true);
    assert!(values(&list, &pairs(&vec!["a"; FORM_VALUES_MAX])).is_ok());
    assert!(values(&list, &pairs(&vec!["a"; FORM_VALUES_MAX + 1])).is_err());
}

/// Goal: texts of a schema are texts in the page. Method: markup in each of them.
#[test]
fn schemas_are_escaped() {
    let evil = "\"><script>alert(1)</script>";
    let form = json!({ "type": "object", "properties": {
        evil: { "type": "string", "title": evil, "description": evil, "default": evil },
        "choice": { "enum": [evil], "enumNames": [evil] },
        "json": { "default": { "a": evil } },
    } });
    let page = fields(&form, "p").into_string();
    assert!(!page.contains("<script"), "{page}");
    assert!(page.contains("&lt;script&gt;"), "{page}");
}
