//! Conversion between callboard's content blocks and A2A parts, without loss in either direction.
//!
//! Properties that one side lacks are stored in the other's metadata: a part's in the block's
//! `_meta["a2a/part"]`, a block's in the part's `metadata["callboard/content"]`. The reverse
//! conversion removes them again.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use callboard_message::json::text;
use callboard_message::{Content, RawObject};
use serde_json::value::RawValue;

use crate::wire::{JsonWriter, Part, PartContent};

/// Member of a content block's `_meta` with the `filename`, `mediaType` and `metadata` of the part
/// that it was converted from. Members that the block itself expresses are omitted. The URI of a
/// resource block with this member is generated.
const PART_META: &str = "a2a/part";
/// Member of a text block's `_meta`. It is `true` if the block was converted from a data part,
/// whose JSON is the text.
const DATA_META: &str = "callboard/data";
/// Member of a part's `metadata` with those members of the original content block that a part can't
/// express.
const CONTENT_METADATA: &str = "callboard/content";
/// Media type of a data part that contains a complete content block, because A2A has no part for
/// blocks of that kind.
const BLOCK_TYPE: &str = "application/vnd.callboard.content+json";

/// Converts content blocks (MCP) to parts (A2A), in order.
pub(crate) fn content_to_parts(content: &[Content]) -> Vec<Part> {
    content.iter().map(block_to_part).collect()
}

/// Converts parts (A2A) to content blocks (MCP), in order.
pub(crate) fn parts_to_content(parts: &[Part]) -> Vec<Content> {
    parts.iter().map(part_to_block).collect()
}

/// Converts a content block to a part.
pub(crate) fn block_to_part(block: &Content) -> Part {
    if let Some(text) = plain_text(block) {
        return Part::text(text);
    }
    let mut rest = block.0.clone();
    let stated = take_meta(&mut rest, PART_META).and_then(|stated| RawObject::parse(&stated).ok());
    let is_data = take_meta(&mut rest, DATA_META).is_some();
    let kind = rest.text("type").unwrap_or_default();
    let made = match &*kind {
        "text" => part_from_text_block(&mut rest, is_data),
        "image" | "audio" => part_from_media_block(&mut rest, &kind),
        "resource" => part_from_resource_block(&mut rest, stated.is_some()),
        "resource_link" => part_from_link_block(&mut rest),
        _ => None,
    };
    let Some(mut part) = made else {
        // The block is of a kind without a part, or lacks a member that its kind requires.
        return Part {
            media_type: BLOCK_TYPE.to_owned(),
            ..Part::data(block.0.to_raw())
        };
    };
    if let Some(stated) = stated {
        part.filename = stated.text("filename").unwrap_or(part.filename);
        part.media_type = stated.text("mediaType").unwrap_or(part.media_type);
        part.metadata = stated.object("metadata");
    }
    if !rest.is_empty() {
        part.metadata = Some(
            part.metadata
                .unwrap_or_default()
                .with(CONTENT_METADATA, rest),
        );
    }
    part
}

/// Returns the text of a block that has no members besides its type and text, which is the common
/// case.
fn plain_text(block: &Content) -> Option<String> {
    let is_text = block.0.len() == 2
        && block
            .0
            .get("type")
            .is_some_and(|kind| kind.get() == "\"text\"");
    is_text.then(|| block.0.text("text"))?
}

// Each of these functions removes from `rest` what the part itself expresses.

fn part_from_text_block(rest: &mut RawObject, is_data: bool) -> Option<Part> {
    rest.remove("type");
    let text = take_text(rest, "text")?;
    Some(if is_data {
        Part::data(RawValue::from_string(text).ok()?)
    } else {
        Part::text(text)
    })
}

fn part_from_media_block(rest: &mut RawObject, kind: &str) -> Option<Part> {
    let raw = decode_base64(&take_text(rest, "data")?)?;
    let media_type = take_text(rest, "mimeType").filter(|media_type| !media_type.is_empty())?;
    if media_kind(&media_type) == Some(kind) {
        rest.remove("type");
    }
    Some(Part::raw(raw, media_type))
}

fn part_from_resource_block(rest: &mut RawObject, is_part: bool) -> Option<Part> {
    let mut resource = rest.object("resource")?;
    let content = match (
        take_text(&mut resource, "blob"),
        take_text(&mut resource, "text"),
    ) {
        (Some(blob), None) => PartContent::Raw(decode_base64(&blob)?),
        (None, Some(text)) => PartContent::Text(text),
        _ => return None,
    };
    let media_type = take_media_type(&mut resource)?;
    match is_part {
        // The URI was made up for a part without one.
        true => {
            rest.remove("resource");
            rest.remove("type");
        }
        false => rest.set("resource", resource),
    }
    Some(Part {
        media_type,
        ..Part::new(content)
    })
}

fn part_from_link_block(rest: &mut RawObject) -> Option<Part> {
    rest.remove("type");
    let url = take_text(rest, "uri")?;
    let filename = take_text(rest, "name").filter(|name| !name.is_empty())?;
    Some(Part {
        filename,
        ..Part::url(url, take_media_type(rest)?)
    })
}

/// Removes the member `name` from a block and returns its text; `None` if it isn't a string.
fn take_text(block: &mut RawObject, name: &str) -> Option<String> {
    text(&block.remove(name)?).map(Cow::into_owned)
}

/// Removes the media type of a block and returns it; empty if the block has none, `None` if it is
/// invalid.
fn take_media_type(block: &mut RawObject) -> Option<String> {
    match block.has("mimeType") {
        false => Some(String::new()),
        true => take_text(block, "mimeType").filter(|media_type| !media_type.is_empty()),
    }
}

/// Converts a part to a content block.
fn part_to_block(part: &Part) -> Content {
    let Part {
        content,
        metadata,
        filename,
        media_type,
    } = part;
    if let (PartContent::Text(text), None, "", "") = (content, metadata, &**filename, &**media_type)
    {
        return Content::text(text);
    }
    if let (PartContent::Data(data), None, "", BLOCK_TYPE) =
        (content, metadata, &**filename, &**media_type)
        && let Ok(block) = RawObject::parse(data)
        && is_unmapped_block(&block)
    {
        return Content(block);
    }
    let mut metadata = metadata.clone();
    let rest = take_rest(&mut metadata, content, media_type);
    let is_block = rest.is_some();
    let rest = rest.unwrap_or_default();
    let resource = rest
        .object("resource")
        .filter(|_| rest.text("type").as_deref() == Some("resource"));
    let (mut block, says_type) = match (content, resource) {
        (PartContent::Text(text), Some(resource)) => (
            with_resource(rest, resource, "text", text, media_type),
            true,
        ),
        (PartContent::Text(text), None) => (build_text_block(rest, text), media_type.is_empty()),
        (PartContent::Raw(raw), resource) => (
            build_bytes_block(rest, resource, raw, filename, media_type),
            true,
        ),
        (PartContent::Url(url), _) => {
            let name = if filename.is_empty() { url } else { filename };
            let mut block = RawObject::single("type", "resource_link")
                .with("uri", url)
                .with("name", name);
            set_media_type(&mut block, media_type);
            (merge_members(block, rest), true)
        }
        (PartContent::Data(data), _) => {
            let mut block = build_text_block(rest, data.get());
            put_meta(&mut block, DATA_META, true);
            (block, media_type.is_empty())
        }
    };
    // Only names of links are read back from the block itself.
    let says_name = filename.is_empty() != matches!(content, PartContent::Url(_));
    // Marks a resource with a made-up URI, so that it differs from one with a URI of its own.
    let is_made_up = !is_block && block.text("type").as_deref() == Some("resource");
    if !says_name || !says_type || metadata.is_some() || is_made_up {
        let mut stated = RawObject::new();
        if !says_name {
            stated.set("filename", filename);
        }
        if !says_type {
            stated.set("mediaType", media_type);
        }
        if let Some(metadata) = metadata {
            stated.set("metadata", metadata);
        }
        put_meta(&mut block, PART_META, stated);
    }
    Content(block)
}

/// Writes a part as the JSON of a content block.
pub(crate) fn write_part_as_block(part: &Part, out: &mut JsonWriter<'_>) {
    match part {
        Part {
            content: PartContent::Text(text),
            metadata: None,
            filename,
            media_type,
        } if filename.is_empty() && media_type.is_empty() => {
            let mut block = out.object();
            block.member("type").json("\"text\"");
            block.text("text", text);
            block.end();
        }
        _ => part_to_block(part).0.write_with(&[], out.buffer()),
    }
}

/// Removes [`CONTENT_METADATA`] from a part's metadata and returns its value: the members of the
/// content block that the part was converted from. Returns `None`, without removing it, if these
/// members don't fit the part's content.
fn take_rest(
    metadata: &mut Option<RawObject>,
    content: &PartContent,
    media_type: &str,
) -> Option<RawObject> {
    let members = metadata.as_mut()?;
    let rest = members.object(CONTENT_METADATA)?;
    let kind = rest.text("type");
    let fits = match (content, kind.as_deref()) {
        (PartContent::Text(_) | PartContent::Url(_) | PartContent::Data(_), None) => true,
        (PartContent::Raw(_), None) => media_kind(media_type).is_some(),
        (PartContent::Raw(_), Some("image" | "audio")) => !media_type.is_empty(),
        (PartContent::Raw(_) | PartContent::Text(_), Some("resource")) => {
            rest.object("resource").is_some()
        }
        _ => false,
    };
    if !fits {
        return None;
    }
    members.remove(CONTENT_METADATA);
    if members.is_empty() {
        *metadata = None;
    }
    Some(rest)
}

fn build_text_block(rest: RawObject, text: &str) -> RawObject {
    let mut block = RawObject::single("type", "text");
    block.set_text("text", text);
    merge_members(block, rest)
}

fn build_bytes_block(
    rest: RawObject,
    resource: Option<RawObject>,
    raw: &Bytes,
    filename: &str,
    media_type: &str,
) -> RawObject {
    let encoded = STANDARD.encode(raw);
    if let Some(resource) = resource {
        return with_resource(rest, resource, "blob", &encoded, media_type);
    }
    if let Some(kind) = rest
        .text("type")
        .as_deref()
        .or_else(|| media_kind(media_type))
    {
        return merge_members(
            RawObject::single("type", kind)
                .with("data", encoded)
                .with("mimeType", media_type),
            rest,
        );
    }
    // MCP requires a URI, which a part of bytes lacks.
    let resource = RawObject::single("uri", format!("attachment:{}", escape_name(filename)));
    merge_members(
        with_resource(
            RawObject::single("type", "resource"),
            resource,
            "blob",
            &encoded,
            media_type,
        ),
        rest,
    )
}

/// Returns `block` with `resource` as its resource. The resource gets the media type, and `content`
/// as its member `name`.
fn with_resource(
    block: RawObject,
    mut resource: RawObject,
    name: &str,
    content: &str,
    media_type: &str,
) -> RawObject {
    set_media_type(&mut resource, media_type);
    block.with("resource", resource.with(name, content))
}

/// Returns whether a content block is of a kind that A2A has no part for. Only such a block is
/// restored from a data part that contains it, so that every conversion can be reversed.
fn is_unmapped_block(block: &RawObject) -> bool {
    let again = block_to_part(&Content(block.clone()));
    again.media_type == BLOCK_TYPE && matches!(again.content, PartContent::Data(_))
}

fn set_media_type(block: &mut RawObject, media_type: &str) {
    if !media_type.is_empty() {
        block.set("mimeType", media_type);
    }
}

fn media_kind(media_type: &str) -> Option<&'static str> {
    match media_type.split_once('/')?.0 {
        "image" => Some("image"),
        "audio" => Some("audio"),
        _ => None,
    }
}

/// Decodes base64; `None` also for non-canonical encodings, which wouldn't be restored identically.
fn decode_base64(base64: &str) -> Option<Bytes> {
    STANDARD.decode(base64).ok().map(Bytes::from)
}

fn escape_name(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

/// Adds to `block` those members of `rest` that `block` lacks.
fn merge_members(mut block: RawObject, rest: RawObject) -> RawObject {
    for (name, value) in rest.iter() {
        if !block.has(name) {
            block.set_raw(name, value.to_owned());
        }
    }
    block
}

fn take_meta(block: &mut RawObject, name: &str) -> Option<Box<RawValue>> {
    let mut meta = block.object("_meta")?;
    let taken = meta.remove(name)?;
    match meta.is_empty() {
        true => drop(block.remove("_meta")),
        false => block.set("_meta", meta),
    }
    Some(taken)
}

pub(super) fn put_meta(block: &mut RawObject, name: &str, value: impl serde::Serialize) {
    let meta = block.object("_meta").unwrap_or_default();
    block.set("_meta", meta.with(name, value));
}
