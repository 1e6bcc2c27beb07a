//! Targets of rules: an agent, or a tool, resource or prompt of it, which a message uses.

use std::borrow::Cow;

use callboard_message::capabilities::{
    CallTool, CompleteArgument, DescribeAgent, ForwardRequest, GetPrompt, ListPrompts,
    ListResourceTemplates, ListResources, ListTools, RESERVED_PREFIX, ReadResource,
    SubscribeResource, UnsubscribeResource,
};
use callboard_message::{Message, RawObject};
use serde::Deserialize;
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
}

impl<'a> Named<'a> {
    fn read(payload: &'a RawValue) -> Option<Self> {
        serde_json::from_str(payload.get()).ok()
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
                text(call.name).map(|name| Self::Tool {
                    name,
                    arguments: Some(call.arguments.unwrap_or(RawValue::NULL)),
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
