//! Forms from JSON schemas, and values from posted forms.
//!
//! A property with a text, number, boolean, choice or list of choices becomes an input. Other properties, and schemas
//! that list no properties, become a text area for JSON.

use callboard_runtime::visible;
use maud::{Markup, html};
use serde_json::{Map, Value};
use url::Url;

/// Maximum number of properties with an input of their own: 100. A schema with more gets one text area for JSON.
pub(crate) const FORM_FIELDS_MAX: usize = 100;
/// Maximum number of posted values: 1,000. It bounds lists of choices.
pub(super) const FORM_VALUES_MAX: usize = 1_000;
/// Maximum length of a text that gets an input of one line: 200 characters.
const LINE_CHARS_MAX: u64 = 200;
/// Beginning of the names of inputs; the name of the property follows. Alone, it is the name of the text area for a
/// whole object.
const NAME_PREFIX: &str = "v.";

/// Property of a schema, with the kind of its input.
struct FormField<'a> {
    name: &'a str,
    schema: &'a Value,
    kind: FieldKind,
    is_required: bool,
}

enum FieldKind {
    /// Text with the bounds of its length in characters.
    Text {
        chars_min: Option<u64>,
        chars_max: Option<u64>,
    },
    Number {
        is_whole: bool,
    },
    /// Check box if the property is required or has a default, else a choice with a third state.
    Boolean,
    /// Values with their labels.
    SingleChoice(Vec<(Value, String)>),
    MultipleChoice(Vec<(Value, String)>),
    Json,
}

/// Returns the inputs of an object's properties. `id_prefix` makes their ids unique in the page.
pub(crate) fn fields(schema: &Value, id_prefix: &str) -> Markup {
    let Some(fields) = form_fields(schema) else {
        let id = format!("{id_prefix}-json");
        return html! {
            div.field {
                label for=(id) { "Input as JSON" }
                textarea #(id) name=(NAME_PREFIX) rows="4" spellcheck="false" { "{}" }
            }
        };
    };
    html! {
        @for (nth, field) in fields.iter().enumerate() {
            (field.render(&format!("{id_prefix}-{nth}")))
        }
    }
}

/// Returns the object that a posted form stands for. `pairs` are all posted names and values; those that belong to no
/// input are passed over.
///
/// # Errors
/// Text with the name of the field, what is wrong with its value and what is expected.
pub(crate) fn values(
    schema: &Value,
    pairs: &[(String, String)],
) -> Result<Map<String, Value>, String> {
    let posted: Vec<(&str, &str)> = pairs
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(NAME_PREFIX)?, value.as_str())))
        .collect();
    if posted.len() > FORM_VALUES_MAX {
        return Err(format!(
            "the form has {} values, at most {FORM_VALUES_MAX} are allowed: send fewer",
            posted.len()
        ));
    }
    let Some(fields) = form_fields(schema) else {
        return whole_object(&posted);
    };
    if let Some((name, _)) = posted
        .iter()
        .find(|(name, _)| !fields.iter().any(|field| field.name == *name))
    {
        return Err(format!(
            "the form has no field \"{}\": reload the page, because the form may have changed",
            visible(name)
        ));
    }
    let mut object = Map::new();
    for field in &fields {
        let texts: Vec<&str> = posted
            .iter()
            .filter(|(name, _)| *name == field.name)
            .map(|(_, value)| *value)
            .collect();
        let value = field
            .value(&texts)
            .map_err(|why| format!("field \"{}\": {why}", field.title()))?;
        object.extend(value.map(|value| (field.name.to_owned(), value)));
    }
    Ok(object)
}

/// Reads the object of a form that has one text area.
fn whole_object(posted: &[(&str, &str)]) -> Result<Map<String, Value>, String> {
    let text = posted
        .iter()
        .find(|(name, _)| name.is_empty())
        .map_or("{}", |(_, text)| *text);
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("the input must be a JSON object, such as {\"name\": \"value\"}".to_owned()),
        Err(error) => Err(format!("the input is not JSON ({error}): correct it")),
    }
}

/// Returns the properties of an object schema; `None` if the input must be written as JSON.
fn form_fields(schema: &Value) -> Option<Vec<FormField<'_>>> {
    const COMPOSED: [&str; 5] = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties"];
    let Some(properties) = schema["properties"].as_object() else {
        let takes_others = !matches!(
            &schema["additionalProperties"],
            Value::Null | Value::Bool(false)
        );
        let is_composed = COMPOSED.iter().any(|member| schema.get(*member).is_some());
        let is_empty = schema["type"].as_str() == Some("object") && !takes_others && !is_composed;
        return is_empty.then(Vec::new);
    };
    if properties.len() > FORM_FIELDS_MAX || properties.contains_key("") {
        return None;
    }
    let required = schema["required"].as_array();
    let is_required = |name: &str| {
        required.is_some_and(|names| names.iter().any(|needed| needed.as_str() == Some(name)))
    };
    let fields = properties.iter().map(|(name, schema)| FormField {
        name,
        schema,
        kind: FieldKind::from_schema(schema),
        is_required: is_required(name),
    });
    Some(fields.collect())
}

impl FieldKind {
    fn from_schema(schema: &Value) -> Self {
        let schema = without_null(schema);
        let choices = schema_choices(schema);
        if !choices.is_empty() {
            return Self::SingleChoice(choices);
        }
        match type_name(schema) {
            Some("string") => Self::Text {
                chars_min: schema["minLength"].as_u64(),
                chars_max: schema["maxLength"].as_u64(),
            },
            Some("integer") => Self::Number { is_whole: true },
            Some("number") => Self::Number { is_whole: false },
            Some("boolean") => Self::Boolean,
            Some("array") => match schema_choices(&schema["items"]) {
                choices if choices.is_empty() => Self::Json,
                choices => Self::MultipleChoice(choices),
            },
            _ => Self::Json,
        }
    }
}

/// Returns the only alternative of an `anyOf` besides `null`, or else the schema itself.
fn without_null(schema: &Value) -> &Value {
    let Some(alternatives) = schema["anyOf"].as_array() else {
        return schema;
    };
    let mut others = alternatives
        .iter()
        .filter(|alternative| alternative["type"].as_str() != Some("null"));
    match (others.next(), others.next()) {
        (Some(only), None) => only,
        _ => schema,
    }
}

/// Returns the type of a schema, or the first of several that isn't `null`.
fn type_name(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::Array(types) => types
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null"),
        other => other.as_str(),
    }
}

/// Returns the values of a schema with their labels: of `oneOf` or `anyOf` (`const` with `title`), else of `enum` (labels
/// from `enumNames`). Empty if the schema has no choices.
fn schema_choices(schema: &Value) -> Vec<(Value, String)> {
    let titled = schema["oneOf"]
        .as_array()
        .or_else(|| schema["anyOf"].as_array());
    if let Some(titled) = titled {
        let named: Option<Vec<_>> = titled
            .iter()
            .map(|choice| {
                let value = choice.get("const")?.clone();
                let label = choice["title"]
                    .as_str()
                    .map_or_else(|| value_text(&value), str::to_owned);
                Some((value, label))
            })
            .collect();
        return named.unwrap_or_default();
    }
    let values = schema["enum"].as_array().into_iter().flatten();
    values
        .enumerate()
        .map(|(nth, value)| {
            let label = schema["enumNames"][nth]
                .as_str()
                .map_or_else(|| value_text(value), str::to_owned);
            (value.clone(), label)
        })
        .collect()
}

/// Returns a value as the text of an input: texts as they are, others as JSON.
fn value_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

impl FormField<'_> {
    /// Title of the field, or else its name, with hidden characters escaped.
    fn title(&self) -> String {
        visible(self.schema["title"].as_str().unwrap_or(self.name))
    }

    /// Returns the default as the text of an input; empty without one.
    fn default_text(&self) -> String {
        match self.schema.get("default") {
            None | Some(Value::Null) => String::new(),
            Some(default) => value_text(default),
        }
    }

    /// Returns whether the field is a check box, which is never left out.
    fn is_check_box(&self) -> bool {
        let has_default = self.schema["default"].is_boolean();
        matches!(self.kind, FieldKind::Boolean) && (self.is_required || has_default)
    }

    fn render(&self, id: &str) -> Markup {
        let name = format!("{NAME_PREFIX}{}", self.name);
        let hint = format!("{id}-hint");
        let description = self.schema["description"].as_str().map(visible);
        let described_by = description.as_ref().map(|_| hint.as_str());
        html! {
            div.field {
                @if let FieldKind::MultipleChoice(choices) = &self.kind {
                    (self.check_boxes(choices, &name, id, described_by))
                } @else if self.is_check_box() {
                    div.check {
                        input #(id) type="checkbox" name=(name) value="true" checked[self.schema["default"] == true]
                            aria-describedby=[described_by];
                        label for=(id) { (self.title()) }
                    }
                } @else {
                    label for=(id) { (self.title()) (self.required_note()) }
                    (self.input(&name, id, described_by))
                }
                @if let Some(description) = &description {
                    p.hint #(hint) { (description) }
                }
            }
        }
    }

    /// Renders the note after the label of a required field.
    fn required_note(&self) -> Markup {
        html! {
            @if self.is_required { span.required { " (required)" } }
        }
    }

    /// Renders the check boxes of a list of choices.
    fn check_boxes(
        &self,
        choices: &[(Value, String)],
        name: &str,
        id: &str,
        described_by: Option<&str>,
    ) -> Markup {
        let defaults = self.schema["default"].as_array();
        let is_default = |value: &Value| defaults.is_some_and(|defaults| defaults.contains(value));
        html! {
            fieldset aria-describedby=[described_by] {
                legend { (self.title()) (self.required_note()) }
                @for (nth, (value, label)) in choices.iter().enumerate() {
                    @let id = format!("{id}-{nth}");
                    div.check {
                        input #(id) type="checkbox" name=(name) value=(value_text(value)) checked[is_default(value)];
                        label for=(id) { (visible(label)) }
                    }
                }
            }
        }
    }

    /// Renders the input of a field with one value.
    fn input(&self, name: &str, id: &str, described_by: Option<&str>) -> Markup {
        let default = self.default_text();
        let schema = without_null(self.schema);
        let bound = |member: &str| schema[member].as_number().map(ToString::to_string);
        match &self.kind {
            FieldKind::Text {
                chars_min,
                chars_max,
            } => {
                let (kind, example) = text_input(schema["format"].as_str());
                let is_long = chars_max.is_some_and(|max| max > LINE_CHARS_MAX);
                html! {
                    @if is_long && kind == "text" {
                        textarea #(id) name=(name) rows="4" minlength=[*chars_min] maxlength=[*chars_max]
                            required[self.is_required] aria-describedby=[described_by] { (default) }
                    } @else {
                        input #(id) type=(kind) name=(name) value=(default) placeholder=[example] minlength=[*chars_min]
                            maxlength=[*chars_max] required[self.is_required] aria-describedby=[described_by]
                            autocomplete="off";
                    }
                }
            }
            FieldKind::Number { is_whole } => html! {
                input #(id) type="number" name=(name) value=(default) step=(if *is_whole { "1" } else { "any" })
                    min=[bound("minimum")] max=[bound("maximum")] required[self.is_required]
                    aria-describedby=[described_by];
            },
            FieldKind::Boolean => {
                let answers = [(Value::Bool(true), "yes"), (Value::Bool(false), "no")];
                let answers = answers.map(|(value, label)| (value, label.to_owned()));
                self.select(&answers, name, id, described_by)
            }
            FieldKind::SingleChoice(choices) => self.select(choices, name, id, described_by),
            FieldKind::MultipleChoice(_) | FieldKind::Json => html! {
                textarea #(id) name=(name) rows="4" spellcheck="false" placeholder="JSON" required[self.is_required]
                    aria-describedby=[described_by] { (default) }
            },
        }
    }

    fn select(
        &self,
        choices: &[(Value, String)],
        name: &str,
        id: &str,
        described_by: Option<&str>,
    ) -> Markup {
        let default = self.schema.get("default");
        html! {
            select #(id) name=(name) required[self.is_required] aria-describedby=[described_by] {
                option value="" { (if self.is_required { "Choose…" } else { "(not set)" }) }
                @for (value, label) in choices {
                    option value=(value_text(value)) selected[default == Some(value)] { (visible(label)) }
                }
            }
        }
    }

    /// Reads the posted texts of the field. `Ok(None)` leaves the property out.
    fn value(&self, texts: &[&str]) -> Result<Option<Value>, String> {
        if let FieldKind::MultipleChoice(choices) = &self.kind {
            return self.chosen_values(choices, texts);
        }
        let text = match texts {
            [] => "",
            [text] => *text,
            _ => return Err("it is there more than once: send one value".to_owned()),
        };
        if self.is_check_box() && text.is_empty() {
            return Ok(Some(Value::Bool(false)));
        }
        if text.trim().is_empty() {
            return match self.is_required {
                true => Err("a value is needed".to_owned()),
                false => Ok(None),
            };
        }
        let schema = without_null(self.schema);
        match &self.kind {
            FieldKind::Text {
                chars_min,
                chars_max,
            } => text_value(text, *chars_min, *chars_max, schema["format"].as_str()),
            FieldKind::Number { is_whole } => number_value(text.trim(), *is_whole, schema),
            FieldKind::Boolean => match text {
                "true" | "on" | "yes" => Ok(Value::Bool(true)),
                "false" | "no" => Ok(Value::Bool(false)),
                _ => Err("expected true or false".to_owned()),
            },
            FieldKind::SingleChoice(choices) => chosen_value(choices, text),
            FieldKind::MultipleChoice(_) | FieldKind::Json => serde_json::from_str(text)
                .map_err(|error| format!("expected JSON ({error}): correct it")),
        }
        .map(Some)
    }

    /// Reads a list of choices. An optional list without any is left out.
    fn chosen_values(
        &self,
        choices: &[(Value, String)],
        texts: &[&str],
    ) -> Result<Option<Value>, String> {
        let chosen = texts
            .iter()
            .filter(|text| !text.is_empty())
            .map(|text| chosen_value(choices, text))
            .collect::<Result<Vec<_>, _>>()?;
        let schema = without_null(self.schema);
        let count = chosen.len() as u64;
        if count == 0 && !self.is_required {
            return Ok(None);
        }
        if let Some(min) = schema["minItems"].as_u64().filter(|min| count < *min) {
            return Err(format!("choose at least {min}"));
        }
        if let Some(max) = schema["maxItems"].as_u64().filter(|max| count > *max) {
            return Err(format!("choose at most {max}"));
        }
        Ok(Some(Value::Array(chosen)))
    }
}

/// Returns the type of the input for a text of a format, and an example that it shows.
fn text_input(format: Option<&str>) -> (&'static str, Option<&'static str>) {
    match format {
        Some("email") => ("email", None),
        Some("uri") => ("url", None),
        Some("date") => ("date", None),
        // Browsers' own input for it has no time zone.
        Some("date-time") => ("text", Some("2026-01-31T12:00:00Z")),
        _ => ("text", None),
    }
}

fn text_value(
    text: &str,
    chars_min: Option<u64>,
    chars_max: Option<u64>,
    format: Option<&str>,
) -> Result<Value, String> {
    // Forms send line breaks as two characters.
    let text = text.replace("\r\n", "\n");
    let chars = text.chars().count() as u64;
    if let Some(min) = chars_min.filter(|min| chars < *min) {
        return Err(format!(
            "it has {chars} characters, at least {min} are needed"
        ));
    }
    if let Some(max) = chars_max.filter(|max| chars > *max) {
        return Err(format!(
            "it has {chars} characters, at most {max} are allowed"
        ));
    }
    let is_date = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
        lengths == [4, 2, 2] && parts.iter().all(is_number)
    };
    let expected = match format {
        Some("email")
            if text
                .split_once('@')
                .is_none_or(|(name, host)| name.is_empty() || host.is_empty()) =>
        {
            "an e-mail address, such as a@example.org"
        }
        Some("uri") if Url::parse(&text).is_err() => "an address, such as https://example.org/",
        Some("date") if !is_date(&text) => "a date, such as 2026-01-31",
        Some("date-time") if text.split_once('T').is_none_or(|(date, _)| !is_date(date)) => {
            "a date with a time, such as 2026-01-31T12:00:00Z"
        }
        _ => return Ok(Value::String(text)),
    };
    Err(format!("expected {expected}"))
}

fn number_value(text: &str, is_whole: bool, schema: &Value) -> Result<Value, String> {
    let whole = text.parse::<i64>().ok();
    let number = whole
        .map(|number| number as f64)
        .or_else(|| text.parse::<f64>().ok());
    let Some(number) = number.filter(|number| number.is_finite()) else {
        return Err("expected a number".to_owned());
    };
    if is_whole && whole.is_none() {
        return Err("expected a whole number".to_owned());
    }
    if let Some(min) = schema["minimum"].as_f64().filter(|min| number < *min) {
        return Err(format!("expected at least {min}"));
    }
    if let Some(max) = schema["maximum"].as_f64().filter(|max| number > *max) {
        return Err(format!("expected at most {max}"));
    }
    Ok(whole.map_or_else(|| Value::from(number), Value::from))
}

fn chosen_value(choices: &[(Value, String)], text: &str) -> Result<Value, String> {
    choices
        .iter()
        .find(|(value, _)| value_text(value) == text)
        .map(|(value, _)| value.clone())
        .ok_or_else(|| "expected one of the listed values".to_owned())
}
