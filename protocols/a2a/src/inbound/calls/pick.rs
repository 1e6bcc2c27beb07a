//! Which skill a message is for, and what it gives it. Nothing is guessed: what doesn't fit is answered with what would.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callboard_message::surface::Converse;
use callboard_message::{Message as _, RawObject};
use serde_json::value::RawValue;

use super::skills::{ANY_MODE, Skill, Skills};
use crate::convert::{Form, write_block};
use crate::wire::{Message, Part, PartContent, SendMessageRequest, written_about};
use crate::{A2aError, ErrorKind};

/// Members of a message's or a request's metadata that name a skill.
const SKILL_NAMES: [&str; 3] = ["skill", "skillId", "skill_id"];
/// Members of a data part that does.
const CALL_NAMES: [&str; 3] = ["skill", "name", "tool"];
/// Its members that hold the arguments.
const CALL_ARGUMENTS: [&str; 3] = ["arguments", "args", "input"];
/// Skills that an error names at most.
const SKILLS_NAMED_MAX: usize = 32;

/// What a message asks for.
#[derive(Debug)]
pub(super) struct Picked {
    /// A skill's name, or [`Converse::NAME`].
    pub(super) skill: String,
    /// A JSON object.
    pub(super) arguments: Box<RawValue>,
}

/// # Errors
/// `InvalidParams` where no skill fits, or something is missing; `ContentTypeNotSupported`.
pub(super) fn pick(skills: &Skills, request: &SendMessageRequest) -> Result<Picked, A2aError> {
    let message = &request.message;
    let named = |metadata: &Option<RawObject>| {
        let metadata = metadata.as_ref()?;
        SKILL_NAMES.iter().find_map(|name| metadata.text(name))
    };
    let wanted = named(&message.metadata).or_else(|| named(&request.metadata));
    if let Some(wanted) = &wanted {
        return match skills.get(wanted) {
            Some(skill) => fitted(skill, arguments_of(skill, message)?),
            None if skills.converses => Ok(conversed(message, Some(wanted))),
            None => Err(which(skills, "there is no skill of that name")),
        };
    }
    if let Some((skill, arguments)) = call_in_data(skills, message) {
        return fitted(skill, arguments);
    }
    if skills.converses {
        return Ok(conversed(message, None));
    }
    let mut talkers = skills
        .all
        .iter()
        .filter(|skill| form_of(skill).needs_one_text());
    let skill = match (&*skills.all, talkers.next(), talkers.next()) {
        ([only], ..) => only,
        (_, Some(only), None) => only,
        _ => {
            return Err(which(
                skills,
                "say in `metadata.skill` which skill this is for",
            ));
        }
    };
    fitted(skill, arguments_of(skill, message)?)
}

fn which(skills: &Skills, why: &str) -> A2aError {
    let names: Vec<&str> = skills
        .all
        .iter()
        .take(SKILLS_NAMED_MAX)
        .map(|skill| &*skill.spec.name)
        .collect();
    ErrorKind::InvalidParams.error(format!("{why}: {}", names.join(", ")))
}

/// Room for what is said besides what the parts hold, in bytes.
const CONVERSED_ROOM_BYTES: usize = 128;

/// The whole message, to an agent that converses: [`Converse`], written in one go.
fn conversed(message: &Message, skill: Option<&str>) -> Picked {
    let bytes: usize = message.parts.iter().map(Part::bytes).sum();
    let arguments = written_about(
        bytes + message.message_id.len() + CONVERSED_ROOM_BYTES,
        |out| {
            let mut body = out.object();
            body.list("content", &message.parts, write_block);
            body.text("key", &message.message_id);
            body.words("skill", skill.unwrap_or_default());
            body.optional("metadata", &message.metadata);
            body.end();
        },
    );
    Picked {
        skill: Converse::NAME.to_owned(),
        arguments,
    }
}

/// A call written out in the only data part: which skill, and its arguments.
fn call_in_data<'a>(skills: &'a Skills, message: &Message) -> Option<(&'a Skill, RawObject)> {
    let [
        Part {
            content: PartContent::Data(data),
            ..
        },
    ] = &*message.parts
    else {
        return None;
    };
    let data = RawObject::parse(data).ok()?;
    let skill = CALL_NAMES
        .iter()
        .find_map(|name| skills.get(&data.text(name)?))?;
    let arguments = CALL_ARGUMENTS.iter().find_map(|name| data.object(name))?;
    Some((skill, arguments))
}

fn fitted(skill: &Skill, arguments: RawObject) -> Result<Picked, A2aError> {
    let missing = form_of(skill).lacks(&arguments);
    if !missing.is_empty() {
        let why = format!("`{}` needs: {}", skill.spec.name, missing.join(", "));
        return Err(ErrorKind::InvalidParams.error(why));
    }
    Ok(Picked {
        skill: skill.spec.name.clone(),
        arguments: arguments.to_raw(),
    })
}

/// What a message gives to a skill.
fn arguments_of(skill: &Skill, message: &Message) -> Result<RawObject, A2aError> {
    let form = form_of(skill);
    let mut files = Vec::new();
    let (mut data, mut texts) = (Vec::new(), Vec::new());
    for part in &message.parts {
        takes(skill, &form, part)?;
        match &part.content {
            PartContent::Text(text) => texts.push(&**text),
            PartContent::Data(value) => data.push(value),
            PartContent::Raw(_) | PartContent::Url(_) => files.push(part),
        }
    }
    let text = texts.join("\n");
    let mut arguments = match &*data {
        [] => match serde_json::from_str::<RawObject>(text.trim())
            .ok()
            .filter(|object| form.knows(object))
        {
            Some(arguments) => arguments,
            None => text_arguments(skill, &form, RawObject::new(), &text, files.is_empty())?,
        },
        [one] => {
            let given = RawObject::parse(one)
                .map_err(|_| refusal(skill, "a data part that is an object"))?;
            text_arguments(skill, &form, given, &text, false)?
        }
        _ => return Err(refusal(skill, "one data part")),
    };
    let places: Vec<_> = form
        .file_properties()
        .filter(|name| !arguments.has(name))
        .collect();
    if files.len() > places.len() {
        return Err(refusal(skill, "fewer files"));
    }
    for (name, file) in places.into_iter().zip(files) {
        match &file.content {
            PartContent::Raw(bytes) => arguments.set(name, STANDARD.encode(bytes)),
            PartContent::Url(url) => arguments.set(name, url),
            PartContent::Text(_) | PartContent::Data(_) => {}
        }
    }
    Ok(arguments)
}

/// Arguments with a text in the property that takes it, unless that is given. `is_all`: there is nothing but the text.
fn text_arguments(
    skill: &Skill,
    form: &Form<'_>,
    mut given: RawObject,
    text: &str,
    is_all: bool,
) -> Result<RawObject, A2aError> {
    if text.is_empty() {
        return Ok(given);
    }
    match form.text_property() {
        Some(property) if !given.has(property) => given.set(property, text),
        None if is_all && !form.properties.is_empty() => return Err(refusal(skill, "a data part")),
        _ => {}
    }
    Ok(given)
}

/// Whether a skill takes a part of that media type at all.
fn takes(skill: &Skill, form: &Form<'_>, part: &Part) -> Result<(), A2aError> {
    let media_type = part
        .media_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_lowercase();
    let is_file = matches!(part.content, PartContent::Raw(_) | PartContent::Url(_));
    let takes_files = is_file && form.file_properties().next().is_some();
    let fits = |mode: &String| {
        mode == ANY_MODE
            || mode.eq_ignore_ascii_case(&media_type)
            || mode
                .strip_suffix('*')
                .is_some_and(|family| media_type.starts_with(&family.to_lowercase()))
    };
    let is_taken = match (is_file, media_type.is_empty()) {
        (false, true) => true,
        (true, _) if takes_files => true,
        (true, true) => skill.input_modes.iter().any(|mode| mode == ANY_MODE),
        (_, false) => skill.input_modes.iter().any(fits),
    };
    if is_taken {
        return Ok(());
    }
    let why = format!(
        "`{}` takes {} only",
        skill.spec.name,
        skill.input_modes.join(", ")
    );
    Err(ErrorKind::ContentTypeNotSupported.error(why))
}

fn form_of(skill: &Skill) -> Form<'_> {
    Form::of(&skill.spec.input_schema)
}

fn refusal(skill: &Skill, wanted: &str) -> A2aError {
    let why = format!(
        "`{}` takes {wanted}, with: {}",
        skill.spec.name,
        form_of(skill).wanted().join(", ")
    );
    ErrorKind::InvalidParams.error(why)
}
