//! Object schemas of a skill's arguments and of a question's form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callboard_message::RawObject;
use serde_json::{Map, Value};

use crate::wire::{Part, PartContent};

/// Preferred properties for a plain text, if several properties could take it.
const TEXT_PROPERTIES: [&str; 5] = ["text", "message", "query", "prompt", "input"];

/// Properties and required members of an object, as stated by its JSON Schema.
pub(crate) struct ObjectSchema<'a> {
    pub(crate) properties: Vec<(&'a str, &'a Value)>,
    pub(crate) required: Vec<&'a str>,
}

impl<'a> ObjectSchema<'a> {
    pub(crate) fn from_schema(schema: &'a Value) -> Self {
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

    /// Returns whether `object` has at least one of the schema's properties. Returns true if the
    /// schema has no properties.
    pub(crate) fn has_known_property(&self, object: &RawObject) -> bool {
        self.properties.is_empty() || self.properties.iter().any(|(name, _)| object.has(name))
    }

    /// Returns the names of the required properties that `object` lacks.
    pub(crate) fn missing_properties(&self, object: &RawObject) -> Vec<&'a str> {
        self.required
            .iter()
            .copied()
            .filter(|name| !object.has(name))
            .collect()
    }

    /// Returns the names of the required properties; all names if no property is required.
    pub(crate) fn expected_properties(&self) -> Vec<&'a str> {
        match self.required.is_empty() {
            true => self.properties.iter().map(|(name, _)| *name).collect(),
            false => self.required.clone(),
        }
    }

    fn text_properties(&self) -> impl Iterator<Item = &'a str> {
        let is_text = |of: &Value| is_string_schema(of) && !is_file_schema(of);
        self.properties
            .iter()
            .filter(move |(_, of)| is_text(of))
            .map(|(name, _)| *name)
    }

    pub(crate) fn needs_one_text(&self) -> bool {
        matches!(&*self.required, [only] if self.text_properties().any(|name| name == *only))
    }

    /// Returns the name of the property that takes a plain text: the only required string property,
    /// else the only string property, else the first one of [`TEXT_PROPERTIES`].
    pub(crate) fn text_property(&self) -> Option<&'a str> {
        let only = |mut names: Vec<&'a str>| names.pop().filter(|_| names.is_empty());
        only(
            self.text_properties()
                .filter(|name| self.required.contains(name))
                .collect(),
        )
        .or_else(|| only(self.text_properties().collect()))
        .or_else(|| {
            TEXT_PROPERTIES
                .into_iter()
                .find(|name| self.text_properties().any(|other| other == *name))
        })
    }

    /// Returns the names of the properties that take a file, which are base64-encoded strings.
    pub(crate) fn file_properties(&self) -> impl Iterator<Item = &'a str> {
        self.properties
            .iter()
            .filter(|(_, of)| is_file_schema(of))
            .map(|(name, _)| *name)
    }

    /// Sets the properties that take a file and that `object` lacks to `files`, in order. Returns
    /// whether there was a property for each file.
    pub(crate) fn set_files(&self, object: &mut RawObject, files: &[&Part]) -> bool {
        let free: Vec<_> = self
            .file_properties()
            .filter(|name| !object.has(name))
            .collect();
        for (name, file) in free.iter().zip(files) {
            match &file.content {
                PartContent::Raw(bytes) => object.set(name, STANDARD.encode(bytes)),
                PartContent::Url(url) => object.set(name, url),
                PartContent::Text(_) | PartContent::Data(_) => {}
            }
        }
        files.len() <= free.len()
    }
}

fn is_string_schema(of: &Value) -> bool {
    match of.get("type") {
        Some(Value::String(kind)) => kind == "string",
        // The schema of `Option<String>` allows a string or null.
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => false,
    }
}

fn is_file_schema(of: &Value) -> bool {
    is_string_schema(of)
        && of
            .get("contentEncoding")
            .is_some_and(|encoding| encoding == "base64")
}
