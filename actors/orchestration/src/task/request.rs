//! Requests as they come in, and the conversations that they belong to.

use std::sync::Arc;

use callboard_message::surface::Converse;
use callboard_message::text::cut_bytes;
use callboard_message::{Content, Failure, RawObject, Speaker};
use quick_cache::sync::Cache;

use crate::decide::Turn;
use crate::decide::limits::{HISTORY_TURNS_MAX, REQUEST_CHARS_MAX, TURN_BYTES_MAX};

/// Prefix of a text that names a tool.
const TOOL_PREFIX: &str = ":tool";
/// Members of a message's metadata that name a skill.
const SKILL_NAMES: [&str; 2] = ["skill", "skillId"];
/// Conversations that are remembered: those used last.
pub const CONVERSATIONS_MAX: usize = 1_024;

/// Request, read.
pub(super) struct Said {
    pub text: String,
    /// The sender's name for it; empty where it gave none.
    pub key: String,
    /// The conversation that it belongs to; empty where it is in none.
    pub context: String,
    /// A tool that is asked for by its name, and its parameters.
    pub tool: Option<(String, RawObject)>,
    /// History, if the sender gives one.
    pub history: Option<Vec<Turn>>,
}

impl Said {
    /// Reads a message. `takes` says which member of a tool takes one text; `None`: there is no such tool.
    ///
    /// # Errors
    /// `InvalidInput`, `NotFound`: what to say instead.
    pub fn read(
        said: &Converse,
        takes: impl Fn(&str) -> Option<Option<String>>,
    ) -> Result<Self, Failure> {
        let text = said.texts();
        let skill = said.0.text("skill").or_else(|| {
            let metadata = said.0.object("metadata")?;
            SKILL_NAMES.iter().find_map(|name| metadata.text(name))
        });
        let tool = match (tool_line(&text)?, skill) {
            (Some(named), _) => Some(named),
            (None, Some(skill)) if skill != super::REQUEST => Some(skilled(skill, &text, takes)?),
            (None, _) => None,
        };
        if text.trim().is_empty() && tool.is_none() {
            return Err(Failure::invalid(
                "there is nothing to do: say in words what it is",
            ));
        }
        check(&text)?;
        let history = said
            .0
            .read::<Vec<RawObject>>("history")
            .map(|turns| turns.iter().filter_map(turn).collect());
        Ok(Self {
            text,
            key: said.key(),
            context: said.context(),
            tool,
            history: history.map(bounded),
        })
    }

    /// A request in words, under no name.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub fn request(text: String) -> Result<Self, Failure> {
        Self::read(&Converse::of([Content::text(text)]), |_| None)
    }
}

/// # Errors
/// `InvalidInput` for a text of more than [`REQUEST_CHARS_MAX`] characters.
fn check(text: &str) -> Result<(), Failure> {
    match text.chars().nth(REQUEST_CHARS_MAX) {
        None => Ok(()),
        Some(_) => Err(Failure::invalid(format!(
            "the request has more than {REQUEST_CHARS_MAX} characters"
        ))),
    }
}

/// `:tool NAME {…}`.
fn tool_line(text: &str) -> Result<Option<(String, RawObject)>, Failure> {
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
            "which tool? Say: :tool NAME {\"member\": \"value\"}",
        ));
    }
    let params = match params.trim() {
        "" => RawObject::new(),
        json => serde_json::from_str(json).map_err(|error| {
            Failure::invalid(format!(
                "the parameters are no JSON object ({error}). Say: :tool {name} {{\"member\": \"value\"}}"
            ))
        })?,
    };
    Ok(Some((name.to_owned(), params)))
}

/// A skill by its name: a JSON object is its parameters, other text the one that it takes.
fn skilled(
    skill: String,
    text: &str,
    takes: impl Fn(&str) -> Option<Option<String>>,
) -> Result<(String, RawObject), Failure> {
    let Some(member) = takes(&skill) else {
        return Err(Failure::not_found(
            "there is no skill of that name here: leave it out, or look at the card",
        ));
    };
    let params = match (serde_json::from_str(text), member, text.trim().is_empty()) {
        (Ok(params), ..) => params,
        (Err(_), _, true) => RawObject::new(),
        (Err(_), Some(member), false) => RawObject::of(&member, text),
        (Err(_), None, false) => {
            return Err(Failure::invalid(format!(
                "{skill} takes a JSON object: see its schema"
            )));
        }
    };
    Ok((skill, params))
}

fn turn(told: &RawObject) -> Option<Turn> {
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

/// The newest [`HISTORY_TURNS_MAX`] turns, each of at most [`TURN_BYTES_MAX`] bytes.
pub(super) fn bounded(mut turns: Vec<Turn>) -> Vec<Turn> {
    turns.drain(..turns.len().saturating_sub(HISTORY_TURNS_MAX));
    for turn in &mut turns {
        turn.text
            .truncate(cut_bytes(&turn.text, TURN_BYTES_MAX).len());
    }
    turns
}

/// By whose it is, and its name.
pub(super) struct Conversations(Cache<(String, String), Arc<Vec<Turn>>>);

impl Default for Conversations {
    fn default() -> Self {
        Self(Cache::new(CONVERSATIONS_MAX))
    }
}

impl Conversations {
    pub fn history(&self, owner: &str, context: &str) -> Vec<Turn> {
        if context.is_empty() {
            return Vec::new();
        }
        self.0
            .get(&key(owner, context))
            .map(|turns| turns.to_vec())
            .unwrap_or_default()
    }

    pub fn add(&self, owner: &str, context: &str, turns: impl IntoIterator<Item = Turn>) {
        if context.is_empty() {
            return;
        }
        // Two exchanges of one conversation at once: one of them may be missed, neither is half there.
        let mut all = self.history(owner, context);
        all.extend(turns);
        self.0.insert(key(owner, context), Arc::new(bounded(all)));
    }
}

fn key(owner: &str, context: &str) -> (String, String) {
    (owner.to_owned(), context.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: Converse) -> Result<Said, Failure> {
        Said::read(&said, |name| {
            (name == "echo").then(|| Some("text".to_owned()))
        })
    }

    /// Goal: a tool is asked for by a line or by a skill's name, and what is neither is a request. Method: rows.
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
            let mut said = Converse::of([Content::text(text)]);
            if let Some(skill) = skill {
                said.0.set("metadata", RawObject::of("skill", skill));
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

    /// Goal: what is too long is refused, and what was said before is cut. Method: at each limit and one more.
    #[test]
    fn limits() {
        assert!(Said::request("x".repeat(REQUEST_CHARS_MAX)).is_ok());
        assert!(Said::request("é".repeat(REQUEST_CHARS_MAX + 1)).is_err());
        let turns = |count: usize| {
            (0..count)
                .map(|nth| Turn::user(nth.to_string()))
                .collect::<Vec<_>>()
        };
        assert_eq!(bounded(turns(HISTORY_TURNS_MAX)).len(), HISTORY_TURNS_MAX);
        let cut = bounded(turns(HISTORY_TURNS_MAX + 1));
        assert_eq!((cut.len(), &*cut[0].text), (HISTORY_TURNS_MAX, "1"));
        let cut = bounded(vec![Turn::user("é".repeat(TURN_BYTES_MAX / 2) + "x")]);
        assert_eq!(cut[0].text.len(), TURN_BYTES_MAX);
    }

    /// Goal: each has conversations of their own, and there are no more than the limit. Method: one name, two owners; one
    /// conversation too many.
    #[test]
    fn bounded_and_apart() {
        let all = Conversations::default();
        all.add("ann", "c", [Turn::user("hers")]);
        all.add("ann", "", [Turn::user("nowhere")]);
        assert_eq!(all.history("ann", "c").len(), 1);
        assert!(all.history("bob", "c").is_empty() && all.history("ann", "").is_empty());
        for nth in 0..=CONVERSATIONS_MAX {
            all.add("bob", &nth.to_string(), [Turn::user("his")]);
        }
        assert!(all.0.len() <= CONVERSATIONS_MAX);
    }
}
