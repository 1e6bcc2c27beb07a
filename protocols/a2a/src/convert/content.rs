//! Content blocks and parts, both ways without loss.
//!
//! What one side has no word for travels in the other's metadata: a part's in the block's `_meta["a2a/part"]`, a block's in the
//! part's `metadata["callboard/content"]`. Going back, that is taken out again.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use callboard_message::json::text;
use callboard_message::{Content, RawObject};
use serde_json::value::RawValue;

use crate::wire::{Part, PartContent, Writer};

/// Member of a block's `_meta`: `filename`, `mediaType` and `metadata` of the part that it was, or is to be, as far as the block says
/// otherwise. A resource with it has no address of its own.
const PART: &str = "a2a/part";
/// Member of a text block's `_meta`, `true` where its text is the JSON of a data part.
const DATA: &str = "callboard/data";
/// Member of a part's `metadata`: what else the block had that it was.
const CONTENT: &str = "callboard/content";
/// The media type of a data part that is a block of a kind that A2A has no part for.
const BLOCK_TYPE: &str = "application/vnd.callboard.content+json";

/// Blocks as parts, in order.
pub(crate) fn parts_of(content: &[Content]) -> Vec<Part> {
    content.iter().map(part_of).collect()
}

/// Parts as blocks, in order.
pub(crate) fn content_of(parts: &[Part]) -> Vec<Content> {
    parts.iter().map(block_of).collect()
}

/// A block as a part.
pub(crate) fn part_of(block: &Content) -> Part {
    if let Some(text) = only_text(block) {
        return Part::text(text);
    }
    let mut rest = block.0.clone();
    let stated = take_meta(&mut rest, PART).and_then(|stated| RawObject::parse(&stated).ok());
    let is_data = take_meta(&mut rest, DATA).is_some();
    let kind = rest.text("type").unwrap_or_default();
    let made = match &*kind {
        "text" => text_block(&mut rest, is_data),
        "image" | "audio" => media_block(&mut rest, &kind),
        "resource" => resource_block(&mut rest, stated.is_some()),
        "resource_link" => link_block(&mut rest),
        _ => None,
    };
    let Some(mut part) = made else {
        // A block of a kind without a part, or that lacks what its kind has.
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
        part.metadata = Some(part.metadata.unwrap_or_default().with(CONTENT, rest));
    }
    part
}

/// The text of a block that has nothing else: most are such.
fn only_text(block: &Content) -> Option<String> {
    let is_text = block.0.len() == 2
        && block
            .0
            .get("type")
            .is_some_and(|kind| kind.get() == "\"text\"");
    is_text.then(|| block.0.text("text"))?
}

// Each of these takes out of `rest` what the part says in its own words.

fn text_block(rest: &mut RawObject, is_data: bool) -> Option<Part> {
    rest.remove("type");
    let text = take_text(rest, "text")?;
    Some(if is_data {
        Part::data(RawValue::from_string(text).ok()?)
    } else {
        Part::text(text)
    })
}

fn media_block(rest: &mut RawObject, kind: &str) -> Option<Part> {
    let raw = decoded(&take_text(rest, "data")?)?;
    let media_type = take_text(rest, "mimeType").filter(|media_type| !media_type.is_empty())?;
    if media_kind(&media_type) == Some(kind) {
        rest.remove("type");
    }
    Some(Part::raw(raw, media_type))
}

fn resource_block(rest: &mut RawObject, is_part: bool) -> Option<Part> {
    let mut resource = rest.object("resource")?;
    let content = match (
        take_text(&mut resource, "blob"),
        take_text(&mut resource, "text"),
    ) {
        (Some(blob), None) => PartContent::Raw(decoded(&blob)?),
        (None, Some(text)) => PartContent::Text(text),
        _ => return None,
    };
    let media_type = take_media_type(&mut resource)?;
    match is_part {
        // Its address was made up for a part that has none.
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

fn link_block(rest: &mut RawObject) -> Option<Part> {
    rest.remove("type");
    let url = take_text(rest, "uri")?;
    let filename = take_text(rest, "name").filter(|name| !name.is_empty())?;
    Some(Part {
        filename,
        ..Part::url(url, take_media_type(rest)?)
    })
}

/// Takes out a member. Returns its text; `None` where it is none.
fn take_text(block: &mut RawObject, name: &str) -> Option<String> {
    text(&block.remove(name)?).map(Cow::into_owned)
}

/// Takes out the media type that a block says, empty where it says none; `None` where it says no type.
fn take_media_type(block: &mut RawObject) -> Option<String> {
    match block.has("mimeType") {
        false => Some(String::new()),
        true => take_text(block, "mimeType").filter(|media_type| !media_type.is_empty()),
    }
}

/// A part as a block.
fn block_of(part: &Part) -> Content {
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
        && is_unknown(&block)
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
        (PartContent::Text(text), Some(resource)) => {
            (filled(rest, resource, "text", text, media_type), true)
        }
        (PartContent::Text(text), None) => (text_in(rest, text), media_type.is_empty()),
        (PartContent::Raw(raw), resource) => {
            (bytes_in(rest, resource, raw, filename, media_type), true)
        }
        (PartContent::Url(url), _) => {
            let name = if filename.is_empty() { url } else { filename };
            let mut block = RawObject::of("type", "resource_link")
                .with("uri", url)
                .with("name", name);
            set_media_type(&mut block, media_type);
            (joined(block, rest), true)
        }
        (PartContent::Data(data), _) => {
            let mut block = text_in(rest, data.get());
            put_meta(&mut block, DATA, true);
            (block, media_type.is_empty())
        }
    };
    // What the block itself will say again when it is read as a part: of names only a link's.
    let says_name = filename.is_empty() != matches!(content, PartContent::Url(_));
    // A resource whose address was made up is told from one that has its own by what stands here.
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
        put_meta(&mut block, PART, stated);
    }
    Content(block)
}

/// Writes a part as a block.
pub(crate) fn write_block(part: &Part, out: &mut Writer<'_>) {
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
        _ => block_of(part).0.write_with(&[], out.out()),
    }
}

/// Takes out what else the block had that a part was, where that fits the part.
fn take_rest(
    metadata: &mut Option<RawObject>,
    content: &PartContent,
    media_type: &str,
) -> Option<RawObject> {
    let members = metadata.as_mut()?;
    let rest = members.object(CONTENT)?;
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
    members.remove(CONTENT);
    if members.is_empty() {
        *metadata = None;
    }
    Some(rest)
}

fn text_in(rest: RawObject, text: &str) -> RawObject {
    let mut block = RawObject::of("type", "text");
    block.set_text("text", text);
    joined(block, rest)
}

fn bytes_in(
    rest: RawObject,
    resource: Option<RawObject>,
    raw: &Bytes,
    filename: &str,
    media_type: &str,
) -> RawObject {
    let encoded = STANDARD.encode(raw);
    if let Some(resource) = resource {
        return filled(rest, resource, "blob", &encoded, media_type);
    }
    if let Some(kind) = rest
        .text("type")
        .as_deref()
        .or_else(|| media_kind(media_type))
    {
        return joined(
            RawObject::of("type", kind)
                .with("data", encoded)
                .with("mimeType", media_type),
            rest,
        );
    }
    // MCP wants an address; a part has none.
    let resource = RawObject::of("uri", format!("attachment:{}", escaped(filename)));
    joined(
        filled(
            RawObject::of("type", "resource"),
            resource,
            "blob",
            &encoded,
            media_type,
        ),
        rest,
    )
}

/// The block with its resource, which holds the content as its member `name`.
fn filled(
    block: RawObject,
    mut resource: RawObject,
    name: &str,
    content: &str,
    media_type: &str,
) -> RawObject {
    set_media_type(&mut resource, media_type);
    block.with("resource", resource.with(name, content))
}

/// Whether a part that is a block whole may stand as that block: only one that would become the same part again.
fn is_unknown(block: &RawObject) -> bool {
    let again = part_of(&Content(block.clone()));
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

/// `None` also for what isn't the one way to write these bytes: it would come back otherwise.
fn decoded(base64: &str) -> Option<Bytes> {
    STANDARD.decode(base64).ok().map(Bytes::from)
}

fn escaped(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

/// `block` with the members of `rest` that it hasn't itself.
fn joined(mut block: RawObject, rest: RawObject) -> RawObject {
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
