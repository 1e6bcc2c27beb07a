use callboard_message::RawObject;
use serde_json::value::RawValue;

use crate::Dialect;
use crate::wire::{Message, Part, PartContent, Role, Wire, Writer};

/// In a part's metadata: its data was no object, and stands under `value`.
const WRAPPED: &str = "callboard/wrapped";
/// In a part's metadata: what has no other place in old versions.
const MEDIA_TYPE: &str = "callboard/mediaType";
const FILENAME: &str = "callboard/filename";

/// The member that tells parts apart.
fn label(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::V10 | Dialect::V03Rest => None,
        Dialect::V03 => Some("kind"),
        Dialect::V01 => Some("type"),
    }
}

pub(crate) fn write_part(dialect: Dialect, part: &Part, out: &mut Writer<'_>) {
    let mut metadata = part.metadata.clone();
    let mut beside = |name: &str, value: Box<RawValue>| {
        metadata.get_or_insert_default().set_raw(name, value);
    };
    let is_file = matches!(part.content, PartContent::Raw(_) | PartContent::Url(_));
    if !is_file && !part.media_type.is_empty() {
        beside(MEDIA_TYPE, part.media_type.to_raw());
    }
    if !is_file && !part.filename.is_empty() {
        beside(FILENAME, part.filename.to_raw());
    }
    let mut object = out.object();
    let mut is_a = |kind| {
        if let Some(label) = label(dialect) {
            object.text(label, kind);
        }
    };
    match &part.content {
        PartContent::Text(text) => {
            is_a("text");
            object.text("text", text);
        }
        PartContent::Raw(_) | PartContent::Url(_) => {
            is_a("file");
            write_file(dialect, part, &mut object.member("file"));
        }
        PartContent::Data(value) => {
            is_a("data");
            let is_object = value.get().starts_with('{');
            if !is_object {
                beside(WRAPPED, true.to_raw());
            }
            let wrap = |name, value: &RawValue| RawObject::new().with(name, value).to_raw();
            let value = if is_object { value.clone() } else { wrap("value", value) };
            let value = if dialect == Dialect::V03Rest { wrap("data", &value) } else { value };
            object.always("data", &value);
        }
    }
    object.optional("metadata", &metadata);
    object.end();
}

fn write_file(dialect: Dialect, part: &Part, out: &mut Writer<'_>) {
    let is_rest = dialect == Dialect::V03Rest;
    let mut file = out.object();
    match &part.content {
        PartContent::Raw(bytes) => file.always(if is_rest { "fileWithBytes" } else { "bytes" }, bytes),
        PartContent::Url(url) => file.text(if is_rest { "fileWithUri" } else { "uri" }, url),
        PartContent::Text(_) | PartContent::Data(_) => {}
    }
    file.words("mimeType", &part.media_type);
    // Not in the schema of 0.3.0, but in its SDKs'.
    file.words("name", &part.filename);
    file.end();
}

/// Takes back what [`write_part`] did to parts that are none of 1.0's.
pub(crate) fn settle_parts(dialect: Dialect, parts: &mut [Part]) {
    for part in parts {
        if let (Dialect::V03Rest, PartContent::Data(value)) = (dialect, &mut part.content)
            && let Some(inner) = only_member(value, "data")
        {
            *value = inner;
        }
        let Some(metadata) = &mut part.metadata else { continue };
        if let PartContent::Data(value) = &mut part.content
            && metadata.remove(WRAPPED).is_some()
            && let Some(inner) = only_member(value, "value")
        {
            *value = inner;
        }
        for (name, at) in [(MEDIA_TYPE, &mut part.media_type), (FILENAME, &mut part.filename)] {
            if let Some(text) = metadata.text(name) {
                metadata.remove(name);
                *at = text;
            }
        }
        if metadata.is_empty() {
            part.metadata = None;
        }
    }
}

fn only_member(value: &RawValue, name: &str) -> Option<Box<RawValue>> {
    let mut object = RawObject::parse(value).ok().filter(|object| object.len() == 1)?;
    object.remove(name)
}

pub(crate) fn settle_message(dialect: Dialect, message: &mut Message) {
    settle_parts(dialect, &mut message.parts);
}

pub(crate) fn write_message(dialect: Dialect, message: &Message, out: &mut Writer<'_>) {
    let mut object = out.object();
    if dialect == Dialect::V03 {
        object.text("kind", "message");
    }
    if dialect != Dialect::V01 {
        object.text("messageId", &message.message_id);
        object.words("contextId", &message.context_id);
        object.words("taskId", &message.task_id);
    }
    match (dialect, message.role) {
        (Dialect::V10 | Dialect::V03Rest, role) => object.always("role", &role),
        (_, Role::User) => object.text("role", "user"),
        (_, Role::Agent | Role::Unspecified) => object.text("role", "agent"),
    }
    let parts = if dialect == Dialect::V03Rest { "content" } else { "parts" };
    object.list(parts, &message.parts, |part, out| write_part(dialect, part, out));
    object.optional("metadata", &message.metadata);
    if dialect != Dialect::V01 {
        object.default("extensions", &message.extensions);
    }
    // Not in the schema of 0.3.
    if dialect == Dialect::V03 {
        object.default("referenceTaskIds", &message.reference_task_ids);
    }
    object.end();
}
