//! What a JSON Schema asks for: arguments of a skill, fields of a question.

use callboard_message::RawObject;
use serde_json::{Map, Value};

/// Properties that take a text where several could.
const TEXT_PROPERTIES: [&str; 5] = ["text", "message", "query", "prompt", "input"];

/// The object that a JSON Schema asks for, as far as the schema says: its properties, and those that it must have.
pub(crate) struct Form<'a> {
    pub(crate) properties: Vec<(&'a str, &'a Value)>,
    pub(crate) required: Vec<&'a str>,
}

impl<'a> Form<'a> {
    pub(crate) fn of(schema: &'a Value) -> Self {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        Self {
            properties: properties
                .into_iter()
                .flat_map(Map::iter)
                .map(|(name, of)| (&**name, of))
                .collect(),
            required: required.filter_map(Value::as_str).collect(),
        }
    }

    /// Whether `object` has any of the properties, where there are some.
    pub(crate) fn knows(&self, object: &RawObject) -> bool {
        self.properties.is_empty() || self.properties.iter().any(|(name, _)| object.has(name))
    }

    /// What must be there that `object` lacks.
    pub(crate) fn lacks(&self, object: &RawObject) -> Vec<&'a str> {
        self.required
            .iter()
            .copied()
            .filter(|name| !object.has(name))
            .collect()
    }

    /// What must be there; all where nothing must.
    pub(crate) fn wanted(&self) -> Vec<&'a str> {
        match self.required.is_empty() {
            true => self.properties.iter().map(|(name, _)| *name).collect(),
            false => self.required.clone(),
        }
    }

    fn strings(&self) -> impl Iterator<Item = &'a str> {
        let is_text = |of: &Value| is_string(of) && !is_file(of);
        self.properties
            .iter()
            .filter(move |(_, of)| is_text(of))
            .map(|(name, _)| *name)
    }

    pub(crate) fn needs_one_text(&self) -> bool {
        matches!(&*self.required, [only] if self.strings().any(|name| name == *only))
    }

    /// Where a text goes.
    pub(crate) fn text_property(&self) -> Option<&'a str> {
        let only = |mut names: Vec<&'a str>| names.pop().filter(|_| names.is_empty());
        only(
            self.strings()
                .filter(|name| self.required.contains(name))
                .collect(),
        )
        .or_else(|| only(self.strings().collect()))
        .or_else(|| {
            TEXT_PROPERTIES
                .into_iter()
                .find(|name| self.strings().any(|other| other == *name))
        })
    }

    /// Where files go.
    pub(crate) fn file_properties(&self) -> impl Iterator<Item = &'a str> {
        self.properties
            .iter()
            .filter(|(_, of)| is_file(of))
            .map(|(name, _)| *name)
    }
}

fn is_string(of: &Value) -> bool {
    match of.get("type") {
        Some(Value::String(kind)) => kind == "string",
        // `Option<String>` is a string or nothing.
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => false,
    }
}

fn is_file(of: &Value) -> bool {
    is_string(of)
        && of
            .get("contentEncoding")
            .is_some_and(|encoding| encoding == "base64")
}
