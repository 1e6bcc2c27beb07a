//! Content blocks and parts, both ways without loss.
//!
//! What one side has no word for travels in the other's metadata: a part's in the block's `_meta["a2a/part"]`, a block's in the
//! part's `metadata["callboard/content"]`. Going back, that is taken out again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
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
    let Some(Made { content, filename, media_type }) = made else {
        // A block of a kind without a part, or that lacks what its kind has.
        return Part { media_type: BLOCK_TYPE.to_owned(), ..Part::data(block.0.to_raw()) };
    };
    let mut part = Part { content, metadata: None, filename, media_type };
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
    let is_text = block.0.len() == 2 && block.0.get("type").is_some_and(|kind| kind.get() == "\"text\"");
    is_text.then(|| block.0.text("text"))?
}

/// What a part is made of, as far as the block says it in its own words.
struct Made {
    content: PartContent,
    filename: String,
    media_type: String,
}

impl Made {
    fn of(content: PartContent) -> Self {
        Self { content, filename: String::new(), media_type: String::new() }
    }
}

fn text_block(rest: &mut RawObject, is_data: bool) -> Option<Made> {
    let text = rest.text("text")?;
    let content = match is_data {
        true => PartContent::Data(RawValue::from_string(text).ok()?),
        false => PartContent::Text(text),
    };
    rest.remove("text");
    rest.remove("type");
    Some(Made::of(content))
}

fn media_block(rest: &mut RawObject, kind: &str) -> Option<Made> {
    let raw = decoded(&rest.text("data")?)?;
    let media_type = rest.text("mimeType").filter(|media_type| !media_type.is_empty())?;
    for known in ["data", "mimeType"] {
        rest.remove(known);
    }
    if media_kind(&media_type) == Some(kind) {
        rest.remove("type");
    }
    Some(Made { media_type, ..Made::of(PartContent::Raw(raw)) })
}

fn resource_block(rest: &mut RawObject, is_part: bool) -> Option<Made> {
    let mut resource = rest.object("resource")?;
    let content = match (resource.text("blob"), resource.text("text")) {
        (Some(blob), None) => PartContent::Raw(decoded(&blob)?),
        (None, Some(text)) => PartContent::Text(text),
        _ => return None,
    };
    let media_type = media_type_of(&resource)?;
    for known in ["blob", "text", "mimeType"] {
        resource.remove(known);
    }
    match is_part {
        // Its address was made up for a part that has none.
        true => {
            rest.remove("resource");
            rest.remove("type");
        }
        false => rest.set("resource", resource),
    }
    Some(Made { media_type, ..Made::of(content) })
}

fn link_block(rest: &mut RawObject) -> Option<Made> {
    let url = rest.text("uri")?;
    let filename = rest.text("name").filter(|name| !name.is_empty())?;
    let media_type = media_type_of(rest)?;
    for known in ["type", "uri", "name", "mimeType"] {
        rest.remove(known);
    }
    Some(Made { filename, media_type, ..Made::of(PartContent::Url(url)) })
}

/// The media type that a block says, empty where it says none; `None` where it says no type.
fn media_type_of(block: &RawObject) -> Option<String> {
    match block.has("mimeType") {
        false => Some(String::new()),
        true => block.text("mimeType").filter(|media_type| !media_type.is_empty()),
    }
}

/// A part as a block.
fn block_of(part: &Part) -> Content {
    let Part { content, metadata, filename, media_type } = part;
    if let (PartContent::Text(text), None, "", "") = (content, metadata, &**filename, &**media_type) {
        return Content::text(text);
    }
    if let (PartContent::Data(data), None, "", BLOCK_TYPE) = (content, metadata, &**filename, &**media_type)
        && let Ok(block) = RawObject::parse(data)
        && is_unknown(&block)
    {
        return Content(block);
    }
    let mut metadata = metadata.clone();
    let rest = take_rest(&mut metadata, content, media_type);
    let is_block = rest.is_some();
    let rest = rest.unwrap_or_default();
    // What the block itself will say again when it is read as a part.
    let (mut block, says_name, says_type) = match content {
        PartContent::Text(text) => text_or_resource(rest, text, filename, media_type),
        PartContent::Raw(raw) => bytes_block(rest, raw, filename, media_type),
        PartContent::Url(url) => {
            let name = if filename.is_empty() { url } else { filename };
            let mut block = RawObject::of("type", "resource_link").with("uri", url).with("name", name);
            set_media_type(&mut block, media_type);
            (joined(block, rest), !filename.is_empty(), true)
        }
        PartContent::Data(data) => {
            let mut block = RawObject::of("type", "text");
            block.set("text", data.get());
            let mut block = joined(block, rest);
            put_meta(&mut block, DATA, true);
            (block, filename.is_empty(), media_type.is_empty())
        }
    };
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
        Part { content: PartContent::Text(text), metadata: None, filename, media_type }
            if filename.is_empty() && media_type.is_empty() =>
        {
            let mut block = out.object();
            block.member("type").json("\"text\"");
            block.text("text", text);
            block.end();
        }
        _ => block_of(part).0.write_with(&[], out.out()),
    }
}

/// Takes out what else the block had that a part was, where that fits the part.
fn take_rest(metadata: &mut Option<RawObject>, content: &PartContent, media_type: &str) -> Option<RawObject> {
    let members = metadata.as_mut()?;
    let rest = members.object(CONTENT)?;
    let kind = rest.text("type");
    let fits = match (content, kind.as_deref()) {
        (PartContent::Text(_) | PartContent::Url(_) | PartContent::Data(_), None) => true,
        (PartContent::Raw(_), None) => media_kind(media_type).is_some(),
        (PartContent::Raw(_), Some("image" | "audio")) => !media_type.is_empty(),
        (PartContent::Raw(_) | PartContent::Text(_), Some("resource")) => rest.object("resource").is_some(),
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

fn text_or_resource(mut rest: RawObject, text: &str, filename: &str, media_type: &str) -> (RawObject, bool, bool) {
    if let Some(mut resource) = rest.object("resource").filter(|_| rest.has("type")) {
        set_media_type(&mut resource, media_type);
        resource.set("text", text);
        rest.set("resource", resource);
        return (rest, filename.is_empty(), true);
    }
    let mut block = RawObject::of("type", "text");
    block.set_text("text", text);
    (joined(block, rest), filename.is_empty(), media_type.is_empty())
}

fn bytes_block(mut rest: RawObject, raw: &Bytes, filename: &str, media_type: &str) -> (RawObject, bool, bool) {
    let encoded = STANDARD.encode(raw);
    let kind = rest.text("type");
    if kind.as_deref() == Some("resource") {
        let mut resource = rest.object("resource").unwrap_or_default();
        set_media_type(&mut resource, media_type);
        rest.set("resource", resource.with("blob", encoded));
        return (rest, filename.is_empty(), true);
    }
    if let Some(kind) = kind.as_deref().or_else(|| media_kind(media_type)) {
        let block = RawObject::of("type", kind).with("data", encoded).with("mimeType", media_type);
        return (joined(block, rest), filename.is_empty(), true);
    }
    // MCP wants an address; a part has none.
    let mut resource = RawObject::of("uri", format!("attachment:{}", escaped(filename)));
    set_media_type(&mut resource, media_type);
    let block = RawObject::of("type", "resource").with("resource", resource.with("blob", encoded));
    (joined(block, rest), filename.is_empty(), true)
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
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
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

fn put_meta(block: &mut RawObject, name: &str, value: impl serde::Serialize) {
    let meta = block.object("_meta").unwrap_or_default();
    block.set("_meta", meta.with(name, value));
}
