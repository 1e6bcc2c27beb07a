//! Parsed requests, and the cache of conversation histories.

use std::sync::Arc;

use callboard_message::capabilities::Converse;
use callboard_message::text::cut_bytes;
use callboard_message::{Content, Failure, RawObject, Speaker};
use callboard_runtime::TaskId;
use quick_cache::sync::Cache;

use crate::decide::Turn;
use crate::decide::limits::{HISTORY_TURNS_MAX, REQUEST_CHARS_MAX, TURN_BYTES_MAX};

/// Prefix of a request that calls a tool by name.
const TOOL_PREFIX: &str = ":tool";
/// Key in a message of the task that it began, set by the protocol or the REPL.
const TASK_MEMBER: &str = "task";
/// Metadata keys of a message that name a skill.
const SKILL_MEMBERS: [&str; 2] = ["skill", "skillId"];
/// Maximum conversations in the history cache; the least recently used are evicted first. Fixed.
pub const CONVERSATIONS_MAX: usize = 1_024;

/// Parsed request.
pub(super) struct ParsedRequest {
    pub text: String,
    /// Idempotency key from the sender; empty if none.
    pub key: String,
    /// Conversation id; empty if none.
    pub context: String,
    /// Task that the request came from, such as that of an A2A client.
    pub origin: Option<TaskId>,
    /// Tool called by name, with its parameters.
    pub tool: Option<(String, RawObject)>,
    /// History sent by the caller, if any.
    pub history: Option<Vec<Turn>>,
}

impl ParsedRequest {
    /// Parses a message. `takes` maps a tool name to the tool's only text parameter, if it has one,
    /// and to `None` for an unknown tool.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed or too long request, `NotFound` for an unknown tool.
    pub fn parse(
        said: &Converse,
        takes: impl Fn(&str) -> Option<Option<String>>,
    ) -> Result<Self, Failure> {
        let text = said.texts();
        let skill = said.0.text("skill").or_else(|| {
            let metadata = said.0.object("metadata")?;
            SKILL_MEMBERS.iter().find_map(|name| metadata.text(name))
        });
        let tool = match (parse_tool_line(&text)?, skill) {
            (Some(named), _) => Some(named),
            (None, Some(skill)) if skill != super::REQUEST_TOOL => {
                Some(parse_skill_call(skill, &text, takes)?)
            }
            (None, _) => None,
        };
        if text.trim().is_empty() && tool.is_none() {
            return Err(Failure::invalid(
                "the request is empty: describe in words what to do",
            ));
        }
        check_length(&text)?;
        let history = said
            .0
            .read::<Vec<RawObject>>("history")
            .map(|turns| turns.iter().filter_map(parse_turn).collect());
        Ok(Self {
            text,
            key: said.key(),
            context: said.context(),
            origin: said.0.text(TASK_MEMBER).and_then(|id| TaskId::new(id).ok()),
            tool,
            history: history.map(truncate_history),
        })
    }

    /// Creates a request from text, without a key or conversation.
    ///
    /// # Errors
    /// `InvalidInput` for a text of more than [`REQUEST_CHARS_MAX`] characters or a malformed tool
    /// call.
    pub fn from_text(text: String) -> Result<Self, Failure> {
        Self::parse(&Converse::from_content([Content::text(text)]), |_| None)
    }
}

/// Checks the length of a request.
///
/// # Errors
/// `InvalidInput` for a text of more than [`REQUEST_CHARS_MAX`] characters.
fn check_length(text: &str) -> Result<(), Failure> {
    match text.chars().nth(REQUEST_CHARS_MAX) {
        None => Ok(()),
        Some(_) => Err(Failure::invalid(format!(
            "the request has more than {REQUEST_CHARS_MAX} characters: send a shorter one"
        ))),
    }
}

/// Parses `:tool NAME {…}` to the tool's name and parameters; without `{…}`, the parameters are
/// empty. Returns `None` for any other text.
///
/// # Errors
/// `InvalidInput` without a name, or for parameters that aren't a JSON object.
fn parse_tool_line(text: &str) -> Result<Option<(String, RawObject)>, Failure> {
    let Some(rest) = text.trim().strip_prefix(TOOL_PREFIX) else {
        return Ok(None);
    };
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return Ok(None);
    }
    let rest = rest.trim();
    let (name, params) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if name.is_empty() {
        return Err(Failure::invalid(
            "the tool's name is missing. Write: :tool NAME {\"member\": \"value\"}",
        ));
    }
    let params = match params.trim() {
        "" => RawObject::new(),
        json => serde_json::from_str(json).map_err(|error| {
            Failure::invalid(format!(
                "the parameters are no JSON object ({error}). Write: :tool {name} {{\"member\": \"value\"}}"
            ))
        })?,
    };
    Ok(Some((name.to_owned(), params)))
}

/// Parses a call of a skill by name to the tool's name and parameters. A text that is a JSON object
/// becomes the parameters; any other text becomes the only text parameter; an empty one means no
/// parameters. `takes` is that of [`ParsedRequest::parse`].
///
/// # Errors
/// `NotFound` for an unknown skill, `InvalidInput` for a text if the skill has no single text
/// parameter.
fn parse_skill_call(
    skill: String,
    text: &str,
    takes: impl Fn(&str) -> Option<Option<String>>,
) -> Result<(String, RawObject), Failure> {
    let Some(member) = takes(&skill) else {
        return Err(Failure::not_found(
            "there is no skill of that name: leave it out, or use one that the agent card lists",
        ));
    };
    let params = match (serde_json::from_str(text), member, text.trim().is_empty()) {
        (Ok(params), ..) => params,
        (Err(_), _, true) => RawObject::new(),
        (Err(_), Some(member), false) => RawObject::single(&member, text),
        (Err(_), None, false) => {
            return Err(Failure::invalid(format!(
                "the skill {skill} takes a JSON object, not a text: see its schema in the agent card"
            )));
        }
    };
    Ok((skill, params))
}

fn parse_turn(told: &RawObject) -> Option<Turn> {
    let by = match &*told.text("role")? {
        "user" | "ROLE_USER" => Speaker::User,
        _ => Speaker::Assistant,
    };
    let blocks = told
        .read::<Vec<Content>>("content")
        .or_else(|| Some(vec![told.read("content")?]))?;
    let text = blocks
        .iter()
        .filter_map(Content::as_text)
        .collect::<Vec<_>>()
        .join("\n");
    (!text.is_empty()).then_some(Turn { by, text })
}

/// Returns the newest [`HISTORY_TURNS_MAX`] turns, each cut to [`TURN_BYTES_MAX`] bytes.
pub(super) fn truncate_history(mut turns: Vec<Turn>) -> Vec<Turn> {
    turns.drain(..turns.len().saturating_sub(HISTORY_TURNS_MAX));
    for turn in &mut turns {
        turn.text
            .truncate(cut_bytes(&turn.text, TURN_BYTES_MAX).len());
    }
    turns
}

/// Conversation histories by owner and conversation id.
pub(super) struct ConversationCache(Cache<(String, String), Arc<Vec<Turn>>>);

impl Default for ConversationCache {
    fn default() -> Self {
        Self(Cache::new(CONVERSATIONS_MAX))
    }
}

impl ConversationCache {
    pub fn history(&self, owner: &str, context: &str) -> Vec<Turn> {
        if context.is_empty() {
            return Vec::new();
        }
        self.0
            .get(&cache_key(owner, context))
            .map(|turns| turns.to_vec())
            .unwrap_or_default()
    }

    pub fn append(&self, owner: &str, context: &str, turns: impl IntoIterator<Item = Turn>) {
        if context.is_empty() {
            return;
        }
        // Of two concurrent exchanges in one conversation, one may be lost, but neither is stored
        // in part.
        let mut all = self.history(owner, context);
        all.extend(turns);
        self.0
            .insert(cache_key(owner, context), Arc::new(truncate_history(all)));
    }
}

fn cache_key(owner: &str, context: &str) -> (String, String) {
    (owner.to_owned(), context.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: Converse) -> Result<ParsedRequest, Failure> {
        ParsedRequest::parse(&said, |name| {
            (name == "echo").then(|| Some("text".to_owned()))
        })
    }

    /// Goal: a tool is called by a line or by a skill's name, and other text is a request. Method:
    /// rows.
    #[test]
    fn tools_by_name() {
        for (text, skill, expect) in [
            ("hello", None, Some(None)),
            (":tools are nice", None, Some(None)),
            (":tool list_agents", None, Some(Some(("list_agents", "{}")))),
            (
                ":tool echo {\"text\":\"a b\"}",
                None,
                Some(Some(("echo", r#"{"text":"a b"}"#))),
            ),
            (":tool echo nonsense", None, None),
            (":tool", None, None),
            (
                "say this",
                Some("echo"),
                Some(Some(("echo", r#"{"text":"say this"}"#))),
            ),
            (
                "{\"text\":\"x\"}",
                Some("echo"),
                Some(Some(("echo", r#"{"text":"x"}"#))),
            ),
            ("say this", Some("request"), Some(None)),
            ("say this", Some("ghost"), None),
            ("  ", None, None),
        ] {
            let mut said = Converse::from_content([Content::text(text)]);
            if let Some(skill) = skill {
                said.0.set("metadata", RawObject::single("skill", skill));
            }
            let tool = read(said).ok().map(|said| {
                said.tool
                    .map(|(name, params)| (name, params.to_raw().get().to_owned()))
            });
            let expect =
                expect.map(|tool| tool.map(|(name, params)| (name.to_owned(), params.to_owned())));
            assert_eq!(tool, expect, "{text:?} {skill:?}");
        }
    }

    /// Goal: overlong requests are rejected, and histories are cut. Method: at each limit and one
    /// more.
    #[test]
    fn limits() {
        assert!(ParsedRequest::from_text("x".repeat(REQUEST_CHARS_MAX)).is_ok());
        assert!(ParsedRequest::from_text("é".repeat(REQUEST_CHARS_MAX + 1)).is_err());
        let turns = |count: usize| {
            (0..count)
                .map(|nth| Turn::user(nth.to_string()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            truncate_history(turns(HISTORY_TURNS_MAX)).len(),
            HISTORY_TURNS_MAX
        );
        let cut = truncate_history(turns(HISTORY_TURNS_MAX + 1));
        assert_eq!((cut.len(), &*cut[0].text), (HISTORY_TURNS_MAX, "1"));
        let cut = truncate_history(vec![Turn::user("é".repeat(TURN_BYTES_MAX / 2) + "x")]);
        assert_eq!(cut[0].text.len(), TURN_BYTES_MAX);
    }

    /// Goal: conversations are separate per owner, and their number is limited. Method: one name,
    /// two owners; one conversation too many.
    #[test]
    fn bounded_and_apart() {
        let all = ConversationCache::default();
        all.append("ann", "c", [Turn::user("hers")]);
        all.append("ann", "", [Turn::user("nowhere")]);
        assert_eq!(all.history("ann", "c").len(), 1);
        assert!(all.history("bob", "c").is_empty() && all.history("ann", "").is_empty());
        for nth in 0..=CONVERSATIONS_MAX {
            all.append("bob", &nth.to_string(), [Turn::user("his")]);
        }
        assert!(all.0.len() <= CONVERSATIONS_MAX);
    }
}
