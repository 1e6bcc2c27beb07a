//! Messages for an agent's capabilities beyond its own tools: resources, prompts, completion,
//! sampling and self-description.
//!
//! Their bodies are MCP's params and results (of 2026-07-28 where revisions differ) as raw JSON, so
//! that an agent that represents an external server forwards members it doesn't know. An agent that
//! handles one of these messages has the capability on every protocol. The messages about tools are
//! for agents whose tools aren't message types of their own.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::content::{blocks, texts, with_blocks};
use crate::message::codec;
use crate::raw_object::raw_object_types;
use crate::{
    Content, Failure, Message, MessageCodec, Question, RawObject, ResourceContent, SamplingAnswer,
    Speaker, ToolResult,
};

/// Prefix of the names of this module's messages. Messages with this prefix are never listed as
/// tools.
pub const RESERVED_PREFIX: &str = "callboard.";

/// Member of `_meta` about missing parts of a [`CreateMessage`] answer. In the request, `true` asks
/// for the report; in the answer, it is a list of the names of the missing parts.
pub const MISSING_META_KEY: &str = "callboard/missing";

/// Member of `_meta` in an answer to a question or in a tool call, if a conversational message
/// answered the question or calls the tool. It holds that message in the form of [`Converse`]
/// (`key`, `content`, `metadata`, `extensions`; in a tool call all members).
pub const SOURCE_MESSAGE_META_KEY: &str = "callboard/said";

/// Member of `_meta` in a listed tool or in an elicitation. `true` if its agent reads the whole
/// message that calls the tool or answers the elicitation from [`SOURCE_MESSAGE_META_KEY`], so that
/// any message is accepted. The values of such an elicitation are `text`, the texts of the message.
pub const PARTS_META_KEY: &str = "callboard/parts";

macro_rules! capability_messages {
    ($($(#[$doc:meta])* $name:ident = $wire:literal -> $reply:ty;)*) => {$(
        raw_object_types! {
            $(#[$doc])*
            $name;
        }

        impl Message for $name {
            type Reply = Result<$reply, Failure>;
            const NAME: &'static str = concat!("callboard.", $wire);

            fn codec() -> Option<&'static MessageCodec<Self>> {
                static WIRE: MessageCodec<$name> = MessageCodec {
                    description: "",
                    decode: |raw| codec::decode_object::<$name>(raw).map($name),
                    encode: |message| Ok(message.0.to_raw()),
                    decode_reply: codec::decode_fallible::<$reply>,
                    encode_reply: codec::encode_fallible::<$reply>,
                    input_schema: codec::input_schema::<$name>,
                    output_schema: codec::schema::<$reply>,
                    more: &[],
                };
                Some(&WIRE)
            }
        }
    )*};
}

capability_messages! {
    /// Request for an agent's self-description: server info, instructions and capabilities. Unknown
    /// parts are left out.
    DescribeAgent = "describe" -> DescribeAgentResult;
    /// Request for a page of the list of tools (MCP `tools/list`). Params: `cursor`. Result:
    /// `tools`, `nextCursor`.
    ListTools = "tools.list" -> RawObject;
    /// Call of a tool (MCP `tools/call`). Params: `name`, `arguments` and any others of the
    /// request.
    CallTool = "tools.call" -> ToolResult;
    /// Request for a page of the list of resources (MCP `resources/list`). Params: `cursor`.
    /// Result: `resources`, `nextCursor`.
    ListResources = "resources.list" -> RawObject;
    /// Request for the list of resource templates (MCP `resources/templates/list`). Result:
    /// `resourceTemplates`.
    ListResourceTemplates = "resources.templates.list" -> RawObject;
    /// Request for the content of a resource (MCP `resources/read`). Params: `uri`. Result:
    /// `contents`. Fails with `NotFound` if there is no such resource.
    ReadResource = "resources.read" -> ReadResourceResult;
    /// Subscription to changes of a resource (MCP `resources/subscribe`). Params: `uri`. An agent
    /// needs to handle it only if it must know of subscriptions, because the adapter that serves
    /// the clients keeps track of subscribers.
    SubscribeResource = "resources.subscribe" -> RawObject;
    /// End of a subscription to a resource (MCP `resources/unsubscribe`). Params: `uri`.
    UnsubscribeResource = "resources.unsubscribe" -> RawObject;
    /// Request for a page of the list of prompts (MCP `prompts/list`). Result: `prompts`,
    /// `nextCursor`.
    ListPrompts = "prompts.list" -> RawObject;
    /// Request to render a prompt (MCP `prompts/get`). Params: `name`, `arguments`. Fails with
    /// `NotFound` if there is no such prompt.
    GetPrompt = "prompts.get" -> GetPromptResult;
    /// Request for completions of an argument (MCP `completion/complete`). Params: `ref`,
    /// `argument`, `context`.
    CompleteArgument = "complete" -> CompleteResult;
    /// Request for the next turn of a conversation, with the params of MCP
    /// `sampling/createMessage`. Handled by agents that are a language model or behave like one.
    CreateMessage = "sample" -> SamplingAnswer;
    /// Conversational message to an agent, without a specific message type. Params: `content`
    /// (blocks), `key` (id that the sender has given the message), `context` (id of the
    /// conversation), and optionally `skill`, `metadata`, `history` (turns of `role` and
    /// `content`), `extensions` (URIs of protocol extensions that the message uses),
    /// `referenceTaskIds` (ids of tasks that it refers to, as the agent knows them), and of the
    /// request beside the message `requestMetadata` and `requestedExtensions` (URIs).
    Converse = "converse" -> ToolResult;
    /// Request of the protocol that an outbound agent represents, if this module has no message for
    /// it. Params: `method`, `params`. The reply is the request's result.
    ForwardRequest = "forward" -> RawObject;
}

raw_object_types! {
    /// Self-description of an agent: `serverInfo`, `instructions`, `capabilities` (MCP server
    /// capabilities).
    DescribeAgentResult;
    /// Result of MCP `resources/read`: the contents of a resource.
    ReadResourceResult;
    /// Result of MCP `prompts/get`: a rendered prompt.
    GetPromptResult;
    /// Result of MCP `completion/complete`: suggested values of an argument.
    CompleteResult;
    /// Kinds of questions that a caller can answer during a call, in the format of MCP client
    /// capabilities.
    CallerCapabilities;
}

impl CallTool {
    /// Creates a call of the tool `name`. `arguments` must serialise to a JSON object.
    pub fn new(name: &str, arguments: impl Serialize) -> Self {
        Self(RawObject::single("name", name).with("arguments", arguments))
    }
}

impl Converse {
    /// Creates a message from content blocks, in order.
    pub fn from_content(content: impl IntoIterator<Item = Content>) -> Self {
        Self(with_blocks(content))
    }

    /// Returns the content blocks of the message; empty if they are missing, or one of them is not
    /// an object or has a duplicate key.
    pub fn content(&self) -> Vec<Content> {
        blocks(&self.0)
    }

    /// Returns the texts of the message's text blocks, joined by line feeds; empty if there are
    /// none, or one of the blocks is not an object.
    pub fn texts(&self) -> String {
        texts(&self.0)
    }

    /// Returns the id that the sender has given the message; empty if it is missing.
    pub fn key(&self) -> String {
        self.0.text("key").unwrap_or_default()
    }

    /// Returns the id of the conversation; empty if it has none.
    pub fn context(&self) -> String {
        self.0.text("context").unwrap_or_default()
    }

    /// Returns the URIs of the protocol extensions that the message uses; empty if they are missing
    /// or invalid.
    pub fn extensions(&self) -> Vec<String> {
        self.0.read("extensions").unwrap_or_default()
    }

    /// Returns the ids of the tasks that the message refers to; empty if they are missing or
    /// invalid.
    pub fn reference_task_ids(&self) -> Vec<String> {
        self.0.read("referenceTaskIds").unwrap_or_default()
    }
}

impl ReadResource {
    /// Returns the URI of the resource; empty if it is missing.
    pub fn uri(&self) -> String {
        self.0.text("uri").unwrap_or_default()
    }
}

impl ReadResourceResult {
    /// Creates a result from the contents of a resource. A URI that denotes a collection, for
    /// example a folder, has several contents.
    pub fn from_contents(contents: impl IntoIterator<Item = ResourceContent>) -> Self {
        Self(RawObject::single(
            "contents",
            contents.into_iter().collect::<Vec<_>>(),
        ))
    }
}

impl GetPrompt {
    /// Returns the name of the prompt; empty if it is missing.
    pub fn name(&self) -> String {
        self.0.text("name").unwrap_or_default()
    }

    /// Returns an argument of the prompt by name; `None` if it is missing or no string.
    pub fn argument(&self, name: &str) -> Option<String> {
        self.0.object("arguments")?.text(name)
    }
}

impl GetPromptResult {
    /// Creates a rendered prompt from the turns of a conversation.
    pub fn from_turns(messages: impl IntoIterator<Item = (Speaker, Content)>) -> Self {
        let turn = |(role, content)| RawObject::single("role", role).with("content", content);
        Self(RawObject::single(
            "messages",
            messages.into_iter().map(turn).collect::<Vec<_>>(),
        ))
    }
}

impl CompleteArgument {
    /// Returns the value typed so far, for which completions are requested; empty if it is missing.
    pub fn typed_value(&self) -> String {
        self.0
            .object("argument")
            .and_then(|a| a.text("value"))
            .unwrap_or_default()
    }

    /// Returns the name of the argument to complete; empty if it is missing.
    pub fn argument(&self) -> String {
        self.0
            .object("argument")
            .and_then(|a| a.text("name"))
            .unwrap_or_default()
    }
}

/// Maximum number of values in one completion (MCP, server/utilities/completion). Further ones are
/// left out.
const COMPLETION_VALUES_MAX: usize = 100;

impl CompleteResult {
    /// Creates a result from all completion values, best first. It contains the first 100
    /// (`COMPLETION_VALUES_MAX`); `total` is the number of all values.
    pub fn from_values(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.into_iter().collect();
        let total = values.len();
        values.truncate(COMPLETION_VALUES_MAX);
        let more = total > values.len();
        let completion = RawObject::single("values", values)
            .with("total", total)
            .with("hasMore", more);
        Self(RawObject::single("completion", completion))
    }
}

impl CallerCapabilities {
    /// Returns capabilities to answer every kind of question, as callers in this process have them.
    pub fn all() -> Self {
        let forms = RawObject::single("form", RawObject::new()).with("url", RawObject::new());
        let tools = RawObject::single("tools", RawObject::new()).with("context", RawObject::new());
        Self(
            RawObject::single("sampling", tools)
                .with("elicitation", forms)
                .with("roots", RawObject::new()),
        )
    }

    /// Returns whether the caller offers a language model.
    pub fn has_sampling(&self) -> bool {
        self.0.has("sampling")
    }

    /// Returns whether the caller can show a form to a person. An `elicitation` capability without
    /// modes means forms (MCP 2025-06-18).
    pub fn has_elicitation_form(&self) -> bool {
        self.0
            .object("elicitation")
            .is_some_and(|e| e.has("form") || !e.has("url"))
    }

    /// Returns whether the caller can ask a person to visit a URL.
    pub fn has_elicitation_url(&self) -> bool {
        self.0.object("elicitation").is_some_and(|e| e.has("url"))
    }

    /// Returns whether the caller shares folders.
    pub fn has_roots(&self) -> bool {
        self.0.has("roots")
    }

    /// Returns whether the caller shares folders and sends notifications when the list of folders
    /// changes.
    pub fn has_roots_list_changed(&self) -> bool {
        self.0
            .object("roots")
            .is_some_and(|roots| roots.read("listChanged") == Some(true))
    }

    /// Returns whether the caller can answer `question`. Sampling with tools requires the
    /// capability `sampling.tools`; an elicitation by URL requires the mode `url`.
    pub fn can_answer(&self, question: &Question) -> bool {
        match question {
            Question::Sample(sample) => {
                let with_tools = sample.0.has("tools") || sample.0.has("toolChoice");
                let tools = || {
                    self.0
                        .object("sampling")
                        .is_some_and(|sampling| sampling.has("tools"))
                };
                self.has_sampling() && (!with_tools || tools())
            }
            Question::Elicit(elicitation) if elicitation.is_url() => self.has_elicitation_url(),
            Question::Elicit(_) => self.has_elicitation_form(),
            Question::Roots(_) => self.has_roots(),
        }
    }
}

/// Log message that an agent sends to its caller during a call, as params of MCP
/// `notifications/message`.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "Log")]
pub struct LogMessage(pub RawObject);

impl LogMessage {
    /// Creates a log message. `logger` names its source; `data` is any JSON value, often a
    /// sentence.
    pub fn new(level: LogLevel, logger: &str, data: impl Serialize) -> Self {
        Self(
            RawObject::single("level", level)
                .with("logger", logger)
                .with("data", data),
        )
    }

    /// Returns the severity; `Info` if it is missing or unknown.
    pub fn level(&self) -> LogLevel {
        self.0.read("level").unwrap_or(LogLevel::Info)
    }
}

impl fmt::Debug for LogMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({:?})", self.level())
    }
}

/// Severity of a log message (RFC 5424), in ascending order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words are RFC 5424's")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// Reason for which a remote agent that has just been started isn't available. Once it is
/// available, clients that got this reason are notified that its lists have changed.
pub const STILL_STARTING: &str = "still starting";

/// Change of an agent's capabilities. Clients are notified of it (`list_changed`,
/// `resources/updated`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CapabilityChange {
    /// The list of tools has changed.
    Tools,
    /// The list of prompts has changed.
    Prompts,
    /// The list of resources has changed.
    Resources,
    /// The content of the resource with this URI has changed.
    Resource(String),
}
