//! Selection of the skill and arguments of a message. Nothing is guessed: the error for an
//! unsuitable message names what would fit.

use callboard_message::capabilities::Converse;
use callboard_message::{Message as _, RawObject};
use serde_json::value::RawValue;

use super::skills::{ANY_MODE, Skill, SkillSet};
use crate::convert::{ObjectSchema, write_part_as_block};
use crate::wire::{A2aMessage, Part, PartContent, SendMessageRequest, write_json_sized};
use crate::{A2aError, ErrorKind};

/// Keys in the metadata of a message or request whose value names the skill to call.
const SKILL_NAMES: [&str; 3] = ["skill", "skillId", "skill_id"];
/// Keys in a data part whose value names the skill to call.
const CALL_NAMES: [&str; 3] = ["skill", "name", "tool"];
/// Keys in a data part whose value is the arguments of the skill to call.
const CALL_ARGUMENTS: [&str; 3] = ["arguments", "args", "input"];
/// Maximum number of skills named in an error.
const SKILLS_NAMED_MAX: usize = 32;

/// Skill and arguments selected for a message.
#[derive(Debug)]
pub(super) struct SelectedSkill {
    /// Name of the skill. [`Converse::NAME`] if the message itself is passed to the agent, for no
    /// skill in particular.
    pub(super) skill: String,
    /// The arguments, a JSON object. With `is_message` they are the message, as [`Converse`].
    pub(super) arguments: Box<RawValue>,
    /// Whether the skill gets the message itself.
    pub(super) is_message: bool,
}

/// Selects the skill that a message calls, and builds the skill's arguments.
///
/// # Errors
/// `InvalidParams` if no skill fits or a required argument is missing; `ContentTypeNotSupported` if
/// the skill doesn't accept a part's media type.
pub(super) fn select_skill(
    skills: &SkillSet,
    request: &SendMessageRequest,
) -> Result<SelectedSkill, A2aError> {
    let selected = select_named(skills, request)?;
    let is_passed_on = selected.is_message;
    match is_passed_on && names_other_skill(skills, request, &selected.skill) {
        true => Err(unknown_skill_error(
            skills,
            "the message names another skill than the one that it is for: send a message for each",
        )),
        false => Ok(selected),
    }
}

fn select_named(
    skills: &SkillSet,
    request: &SendMessageRequest,
) -> Result<SelectedSkill, A2aError> {
    let message = &request.message;
    let named = |metadata: &Option<RawObject>| {
        let metadata = metadata.as_ref()?;
        SKILL_NAMES.iter().find_map(|name| metadata.text(name))
    };
    let wanted = named(&message.metadata).or_else(|| named(&request.metadata));
    if names_withheld(skills, request) {
        return Err(unknown_skill_error(
            skills,
            "there is no skill of that name",
        ));
    }
    if let Some(wanted) = &wanted {
        return match skills.get(wanted) {
            Some(skill) => call_selection(skill, request),
            // An agent that takes parts lists all of its skills.
            None if skills.accepts_messages && !skills.takes_parts() => {
                Ok(converse_selection(request, Some(wanted)))
            }
            None => Err(unknown_skill_error(
                skills,
                "there is no skill of that name",
            )),
        };
    }
    if let Some((skill, arguments)) = call_from_data_part(skills, message) {
        return check_arguments(skill, arguments);
    }
    if let [only] = &*skills.all
        && only.takes_parts
    {
        return call_selection(only, request);
    }
    if skills.accepts_messages {
        return Ok(converse_selection(request, None));
    }
    let mut talkers = skills
        .all
        .iter()
        .filter(|skill| input_schema(skill).needs_one_text());
    let skill = match (&*skills.all, talkers.next(), talkers.next()) {
        ([only], ..) => only,
        (_, Some(only), None) => only,
        _ => {
            return Err(unknown_skill_error(
                skills,
                "say in `metadata.skill` which skill this is for",
            ));
        }
    };
    call_selection(skill, request)
}

/// Returns whether a message names a skill that is kept back, or in its metadata one that isn't there while some
/// are kept back: the agent may know it by another name. The message could be passed on as a whole.
fn names_withheld(skills: &SkillSet, request: &SendMessageRequest) -> bool {
    if skills.withheld.is_empty() {
        return false;
    }
    let metadata = [&request.message.metadata, &request.metadata];
    let mut named = metadata.into_iter().flatten().flat_map(|metadata| {
        let names = SKILL_NAMES.iter();
        names.filter_map(|name| metadata.text(name))
    });
    let mut parts = request.message.parts.iter().filter_map(Part::as_data);
    named.any(|name| skills.get(&name).is_none())
        || parts.any(|data| {
            let data = RawObject::parse(data).unwrap_or_default();
            let mut names = SKILL_NAMES.iter().chain(&CALL_NAMES);
            names.any(|name| {
                let named = data.text(name);
                named.is_some_and(|named| skills.withheld.contains(&named))
            })
        })
}

/// Returns whether a message that is passed on as a whole names a skill besides the selected one, while some of the
/// agent's are kept back or need an approval: the agent could take the message for that.
fn names_other_skill(skills: &SkillSet, request: &SendMessageRequest, selected: &str) -> bool {
    if skills.withheld.is_empty() && !skills.need_approval {
        return false;
    }
    let is_other = |named: String| named != selected;
    let metadata = [&request.message.metadata, &request.metadata];
    let mut metadata = metadata.into_iter().flatten();
    let mut parts = request.message.parts.iter().filter_map(Part::as_data);
    metadata.any(|metadata| {
        let mut names = SKILL_NAMES.iter();
        names.any(|name| metadata.text(name).is_some_and(is_other))
    }) || parts.any(|data| {
        let data = RawObject::parse(data).unwrap_or_default();
        let is_call = CALL_ARGUMENTS.iter().any(|name| data.has(name));
        let mut names = SKILL_NAMES.iter().chain(&CALL_NAMES);
        is_call && names.any(|name| data.text(name).is_some_and(is_other))
    })
}

/// Selects `skill`, with the whole message if its agent takes parts, else with arguments built from
/// them.
fn call_selection(skill: &Skill, request: &SendMessageRequest) -> Result<SelectedSkill, A2aError> {
    match skill.takes_parts {
        true => Ok(SelectedSkill {
            skill: skill.spec.name.clone(),
            is_message: true,
            ..converse_selection(request, None)
        }),
        false => check_arguments(skill, build_arguments(skill, &request.message)?),
    }
}

fn unknown_skill_error(skills: &SkillSet, why: &str) -> A2aError {
    let names: Vec<&str> = skills
        .all
        .iter()
        .take(SKILLS_NAMED_MAX)
        .map(|skill| &*skill.spec.name)
        .collect();
    ErrorKind::InvalidParams.error(format!("{why}: {}", names.join(", ")))
}

/// Estimated size of a conversation message's JSON without its parts, in bytes. Used for the
/// initial capacity of buffers.
const CONVERSE_OVERHEAD_BYTES: usize = 128;

/// Selects [`Converse`], which passes the whole message to the agent as a conversation message.
fn converse_selection(request: &SendMessageRequest, skill: Option<&str>) -> SelectedSkill {
    let message = &request.message;
    let bytes: usize = message.parts.iter().map(Part::content_bytes).sum();
    let arguments = write_json_sized(
        bytes + message.message_id.len() + CONVERSE_OVERHEAD_BYTES,
        |out| {
            let mut body = out.object();
            body.list("content", &message.parts, write_part_as_block);
            body.text("key", &message.message_id);
            body.non_empty_text("skill", skill.unwrap_or_default());
            body.optional("metadata", &message.metadata);
            body.default("extensions", &message.extensions);
            body.optional("requestMetadata", &request.metadata);
            body.end();
        },
    );
    SelectedSkill {
        skill: Converse::NAME.to_owned(),
        arguments,
        is_message: true,
    }
}

/// Returns the skill and arguments that the message's only data part names explicitly; `None` if it
/// doesn't name a skill.
fn call_from_data_part<'a>(
    skills: &'a SkillSet,
    message: &A2aMessage,
) -> Option<(&'a Skill, RawObject)> {
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

fn check_arguments(skill: &Skill, arguments: RawObject) -> Result<SelectedSkill, A2aError> {
    let missing = input_schema(skill).missing_properties(&arguments);
    if !missing.is_empty() {
        let why = format!("`{}` needs: {}", skill.spec.name, missing.join(", "));
        return Err(ErrorKind::InvalidParams.error(why));
    }
    Ok(SelectedSkill {
        skill: skill.spec.name.clone(),
        arguments: arguments.to_raw(),
        is_message: false,
    })
}

/// Builds a skill's arguments from the parts of a message.
fn build_arguments(skill: &Skill, message: &A2aMessage) -> Result<RawObject, A2aError> {
    let form = input_schema(skill);
    let mut files = Vec::new();
    let (mut data, mut texts) = (Vec::new(), Vec::new());
    for part in &message.parts {
        check_media_type(skill, &form, part)?;
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
            .filter(|object| form.has_known_property(object))
        {
            Some(arguments) => arguments,
            None => text_arguments(skill, &form, RawObject::new(), &text, files.is_empty())?,
        },
        [one] => {
            let given = RawObject::parse(one)
                .map_err(|_| argument_error(skill, "a data part that is an object"))?;
            text_arguments(skill, &form, given, &text, false)?
        }
        _ => return Err(argument_error(skill, "one data part")),
    };
    match form.set_files(&mut arguments, &files) {
        true => Ok(arguments),
        false => Err(argument_error(skill, "fewer files")),
    }
}

/// Returns a skill's arguments with a text added as the property that takes plain text, unless
/// `given` has it already. `is_all` tells that the message contains only this text.
fn text_arguments(
    skill: &Skill,
    form: &ObjectSchema<'_>,
    mut given: RawObject,
    text: &str,
    is_all: bool,
) -> Result<RawObject, A2aError> {
    if text.is_empty() {
        return Ok(given);
    }
    match form.text_property() {
        Some(property) if !given.has(property) => given.set(property, text),
        None if is_all && !form.properties.is_empty() => {
            return Err(argument_error(skill, "a data part"));
        }
        _ => {}
    }
    Ok(given)
}

/// Checks that a skill accepts a part's media type. Fails with `ContentTypeNotSupported`.
fn check_media_type(skill: &Skill, form: &ObjectSchema<'_>, part: &Part) -> Result<(), A2aError> {
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

fn input_schema(skill: &Skill) -> ObjectSchema<'_> {
    ObjectSchema::from_schema(&skill.spec.input_schema)
}

fn argument_error(skill: &Skill, wanted: &str) -> A2aError {
    let why = format!(
        "`{}` takes {wanted}, with: {}",
        skill.spec.name,
        input_schema(skill).expected_properties().join(", ")
    );
    ErrorKind::InvalidParams.error(why)
}
