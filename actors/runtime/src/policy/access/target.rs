//! Targets of rules: an agent, or a tool, resource or prompt of it, which a message uses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use callboard_message::capabilities::{
    CallTool, CompleteArgument, Converse, DescribeAgent, ForwardRequest, GetPrompt, ListPrompts,
    ListResourceTemplates, ListResources, ListTools, RESERVED_PREFIX, ReadResource,
    SOURCE_MESSAGE_META_KEY, SubscribeResource, UnsubscribeResource,
};
use callboard_message::json::raw_from_written;
use callboard_message::{Message, RawObject};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Target of a rule: what a principal wants to use.
#[derive(Debug, Clone)]
pub struct AccessTarget<'a> {
    /// Name of the agent.
    pub agent: &'a str,
    /// Part of the agent.
    pub item: AccessItem<'a>,
}

/// Part of an agent.
#[derive(Debug, Clone)]
pub enum AccessItem<'a> {
    /// The agent as such: its description and its lists, whose items are decided about one by one.
    Agent,
    /// Tool, skill or message.
    Tool {
        /// Name.
        name: Cow<'a, str>,
        /// Arguments of a call; `None` in a list.
        arguments: Option<&'a RawValue>,
    },
    /// Resource, by its URI, or resource template.
    Resource(Cow<'a, str>),
    /// Prompt, by its name.
    Prompt(Cow<'a, str>),
}

/// Members of a message by which it names what it uses, whatever their type.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    uri: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, rename = "ref")]
    about: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// Name of a conversation as a tool.
const CONVERSE_TOOL: &str = "converse";
/// Names of the members by which a message names what it uses.
const NAMES: [&str; 6] = ["name", "uri", "arguments", "method", "type", "ref"];
/// Arguments of a call without any.
static NO_ARGUMENTS: LazyLock<Box<RawValue>> = LazyLock::new(|| raw_from_written("{}".to_owned()));

/// Returns whether two different names are the same but for their case.
pub(super) fn is_similar(one: &str, other: &str) -> bool {
    let is_folded =
        || one.to_lowercase() == other.to_lowercase() || one.to_uppercase() == other.to_uppercase();
    one != other && is_folded()
}

/// Returns whether an object has a member that some receivers take for one by which a message names what it
/// uses: its name differs in its case only.
pub fn has_ambiguous_names(object: &RawValue) -> bool {
    let members: HashMap<String, IgnoredAny> =
        serde_json::from_str(object.get()).unwrap_or_default();
    let mut names = members.keys();
    names.any(|name| NAMES.iter().any(|known| is_similar(name, known)))
}

impl<'a> Named<'a> {
    /// Reads an object; `None` if it isn't one, or has ambiguous names.
    fn read(payload: &'a RawValue) -> Option<Self> {
        let named = serde_json::from_str(payload.get()).ok();
        named.filter(|_| !has_ambiguous_names(payload))
    }
}

fn text(value: Option<&RawValue>) -> Option<Cow<'static, str>> {
    let text: String = serde_json::from_str(value?.get()).ok()?;
    Some(Cow::Owned(text))
}

impl<'a> AccessItem<'a> {
    /// Returns what a message uses. `None` if its name, URI or reference isn't there, isn't a text, or isn't
    /// the only one, so that its receiver could take it for another.
    pub fn of_message(message: &'a str, payload: &'a RawValue) -> Option<Self> {
        if Self::is_of_agent(message) {
            return Some(Self::Agent);
        }
        match message {
            CallTool::NAME => {
                let call = Named::read(payload)?;
                let meta = call.meta.and_then(|meta| RawObject::parse(meta).ok());
                let arguments = match meta.is_some_and(|meta| meta.has(SOURCE_MESSAGE_META_KEY)) {
                    // They are in the message, and only its receiver reads them.
                    true => RawValue::NULL,
                    false => call.arguments.unwrap_or(&NO_ARGUMENTS),
                };
                text(call.name).map(|name| Self::Tool {
                    name,
                    arguments: Some(arguments),
                })
            }
            GetPrompt::NAME => text(Named::read(payload)?.name).map(Self::Prompt),
            ReadResource::NAME | SubscribeResource::NAME | UnsubscribeResource::NAME => {
                text(Named::read(payload)?.uri).map(Self::Resource)
            }
            CompleteArgument::NAME => {
                let about = Named::read(Named::read(payload)?.about?)?;
                match (&*text(about.kind)?, about.name, about.uri) {
                    ("ref/prompt", name, None) => text(name).map(Self::Prompt),
                    ("ref/resource", None, uri) => text(uri).map(Self::Resource),
                    _ => None,
                }
            }
            ForwardRequest::NAME => {
                let request = Named::read(payload)?;
                text(request.method).map(|name| Self::Tool {
                    name,
                    arguments: Some(payload),
                })
            }
            // What is said to it is no arguments, and only its receiver reads it.
            Converse::NAME => Some(Self::Tool {
                name: Cow::Borrowed(CONVERSE_TOOL),
                arguments: Some(RawValue::NULL),
            }),
            _ => Some(Self::Tool {
                name: Cow::Borrowed(message.strip_prefix(RESERVED_PREFIX).unwrap_or(message)),
                arguments: Some(payload),
            }),
        }
    }

    /// Returns a tool of a list.
    pub fn tool(name: &'a str) -> Self {
        Self::Tool {
            name: Cow::Borrowed(name),
            arguments: None,
        }
    }

    /// Returns whether a message asks for a list of an agent, or its description.
    pub fn is_of_agent(message: &str) -> bool {
        matches!(
            message,
            DescribeAgent::NAME
                | ListTools::NAME
                | ListPrompts::NAME
                | ListResources::NAME
                | ListResourceTemplates::NAME
        )
    }

    /// Returns an item of the list that `message` asks for; `None` without its name or URI, or if it
    /// asks for no list.
    pub fn of_listed(message: &str, item: &RawObject) -> Option<Self> {
        let text = |key: &str| item.text(key).map(Cow::Owned);
        match message {
            ListTools::NAME => text("name").map(|name| Self::Tool {
                name,
                arguments: None,
            }),
            ListPrompts::NAME => text("name").map(Self::Prompt),
            ListResources::NAME => text("uri").map(Self::Resource),
            ListResourceTemplates::NAME => text("uriTemplate").map(Self::Resource),
            _ => None,
        }
    }
}
