//! Messages that any agent may handle to show more than its tools: resources, prompts, completion, and what it is.
//!
//! Their bodies are MCP's params and results (2026-07-28 where revisions differ), raw, so that an agent that stands for
//! something outside forwards what it doesn't know. An agent that handles one of them has that ability on every
//! protocol; the ones about tools are for agents whose tools aren't their own message types.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::content::{blocks, texts, with_blocks};
use crate::message::codec;
use crate::raw::raw_bodies;
use crate::{
    Content, Failure, Message, Question, RawObject, ResourceContent, SampleAnswer, Speaker,
    ToolResult, Wire,
};

/// How the name of every message here begins: such a message is no tool.
pub const RESERVED_PREFIX: &str = "callboard.";

/// Member of `_meta`: in [`CreateMessage`]'s params `true`, where whoever asks wants to know by name what an answer lacks;
/// in the answer the names.
pub const MISSING: &str = "callboard/missing";

/// Member of the `_meta` of an answer to a question: the message that answered, as an agent that converses sees it (`key`,
/// `content`, `metadata`).
pub const SAID: &str = "callboard/said";

macro_rules! surface {
    ($($(#[$doc:meta])* $name:ident = $wire:literal -> $reply:ty;)*) => {$(
        raw_bodies! {
            $(#[$doc])*
            $name;
        }

        impl Message for $name {
            type Reply = Result<$reply, Failure>;
            const NAME: &'static str = concat!("callboard.", $wire);

            fn wire() -> Option<&'static Wire<Self>> {
                static WIRE: Wire<$name> = Wire {
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

surface! {
    /// What are you? Answers server info, instructions and capabilities, as far as the agent knows them.
    Describe = "describe" -> About;
    /// Which tools are there? Params `cursor`; answers `tools`, `nextCursor` (`tools/list`).
    ListTools = "tools.list" -> RawObject;
    /// Use a tool: params `name`, `arguments` and whatever came with them (`tools/call`).
    CallTool = "tools.call" -> ToolResult;
    /// Which resources are there? Params `cursor`; answers `resources`, `nextCursor` (`resources/list`).
    ListResources = "resources.list" -> RawObject;
    /// Which families of resources? Answers `resourceTemplates` (`resources/templates/list`).
    ListResourceTemplates = "resources.templates.list" -> RawObject;
    /// What does it hold? Params `uri`; answers `contents` (`resources/read`). `NotFound` where there is none.
    ReadResource = "resources.read" -> ReadResourceResult;
    /// Tell me when `uri` changes (`resources/subscribe`). Only for agents that must know; the inbound side keeps count.
    Subscribe = "resources.subscribe" -> RawObject;
    /// No more (`resources/unsubscribe`).
    Unsubscribe = "resources.unsubscribe" -> RawObject;
    /// Which prompts are there? Answers `prompts`, `nextCursor` (`prompts/list`).
    ListPrompts = "prompts.list" -> RawObject;
    /// Fill in a prompt: params `name`, `arguments` (`prompts/get`). `NotFound` where there is none.
    GetPrompt = "prompts.get" -> GetPromptResult;
    /// How could the argument go on? Params `ref`, `argument`, `context` (`completion/complete`).
    Complete = "complete" -> CompleteResult;
    /// Go on with this conversation: the params of `sampling/createMessage`. For agents that are a language model, or
    /// answer like one.
    CreateMessage = "sample" -> SampleAnswer;
    /// Somebody says something, in no skill's words, to an agent that converses: `content` (blocks), `key` (the sender's name
    /// for it), `context` (what it belongs to), and, where there are any, `skill`, `metadata`, `history` (`role`, `content`).
    Converse = "converse" -> ToolResult;
    /// Any other request of the protocol that the agent stands for: params `method`, `params`. Answers its result.
    Forward = "forward" -> RawObject;
}

raw_bodies! {
    /// What an agent says of itself: `serverInfo`, `instructions`, `capabilities` (MCP's server capabilities).
    About;
    /// The result of `resources/read`.
    ReadResourceResult;
    /// The result of `prompts/get`.
    GetPromptResult;
    /// The result of `completion/complete`.
    CompleteResult;
    /// What a caller can answer when it is asked in mid-call: MCP's client capabilities.
    Abilities;
}

impl CallTool {
    /// A tool by name, with its arguments: a JSON object.
    pub fn new(name: &str, arguments: impl Serialize) -> Self {
        Self(RawObject::of("name", name).with("arguments", arguments))
    }
}

impl Converse {
    /// Blocks, in order.
    pub fn of(content: impl IntoIterator<Item = Content>) -> Self {
        Self(with_blocks(content))
    }

    /// What is said.
    pub fn content(&self) -> Vec<Content> {
        blocks(&self.0)
    }

    /// Its texts, one a line.
    pub fn texts(&self) -> String {
        texts(&self.0)
    }

    /// The sender's name for it; empty where it gave none.
    pub fn key(&self) -> String {
        self.0.text("key").unwrap_or_default()
    }

    /// The conversation that it belongs to; empty where it is in none.
    pub fn context(&self) -> String {
        self.0.text("context").unwrap_or_default()
    }
}

impl ReadResource {
    /// Its address.
    pub fn uri(&self) -> String {
        self.0.text("uri").unwrap_or_default()
    }
}

impl ReadResourceResult {
    /// What it holds; several where `uri` is a family of its own, for example a folder.
    pub fn of(contents: impl IntoIterator<Item = ResourceContent>) -> Self {
        Self(RawObject::of(
            "contents",
            contents.into_iter().collect::<Vec<_>>(),
        ))
    }
}

impl GetPrompt {
    /// Which.
    pub fn name(&self) -> String {
        self.0.text("name").unwrap_or_default()
    }

    /// One of its arguments.
    pub fn argument(&self, name: &str) -> Option<String> {
        self.0.object("arguments")?.text(name)
    }
}

impl GetPromptResult {
    /// Turns of a conversation.
    pub fn of(messages: impl IntoIterator<Item = (Speaker, Content)>) -> Self {
        let turn = |(role, content)| RawObject::of("role", role).with("content", content);
        Self(RawObject::of(
            "messages",
            messages.into_iter().map(turn).collect::<Vec<_>>(),
        ))
    }
}

impl Complete {
    /// What has been typed so far.
    pub fn typed(&self) -> String {
        self.0
            .object("argument")
            .and_then(|a| a.text("value"))
            .unwrap_or_default()
    }

    /// Which argument.
    pub fn argument(&self) -> String {
        self.0
            .object("argument")
            .and_then(|a| a.text("name"))
            .unwrap_or_default()
    }
}

/// Most values of one completion (MCP, server/utilities/completion).
const COMPLETION_VALUES_MAX: usize = 100;

impl CompleteResult {
    /// Values, best first; at most `COMPLETION_VALUES_MAX` are sent, and how many there are is told.
    pub fn of(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.into_iter().collect();
        let total = values.len();
        values.truncate(COMPLETION_VALUES_MAX);
        let more = total > values.len();
        let completion = RawObject::of("values", values)
            .with("total", total)
            .with("hasMore", more);
        Self(RawObject::of("completion", completion))
    }
}

impl Abilities {
    /// Everything that a question can be: a caller in this process sees them all.
    pub fn all() -> Self {
        let forms = RawObject::of("form", RawObject::new()).with("url", RawObject::new());
        let tools = RawObject::of("tools", RawObject::new()).with("context", RawObject::new());
        Self(
            RawObject::of("sampling", tools)
                .with("elicitation", forms)
                .with("roots", RawObject::new()),
        )
    }

    /// A model.
    pub fn sampling(&self) -> bool {
        self.0.has("sampling")
    }

    /// A person, by a form. A capability without modes is the form (MCP 2025-06-18).
    pub fn elicitation_form(&self) -> bool {
        self.0
            .object("elicitation")
            .is_some_and(|e| e.has("form") || !e.has("url"))
    }

    /// A person, by an address to visit.
    pub fn elicitation_url(&self) -> bool {
        self.0.object("elicitation").is_some_and(|e| e.has("url"))
    }

    /// Folders.
    pub fn roots(&self) -> bool {
        self.0.has("roots")
    }

    /// Folders, and whoever asked for them is told when there are others.
    pub fn roots_list_changed(&self) -> bool {
        self.0
            .object("roots")
            .is_some_and(|roots| roots.read("listChanged") == Some(true))
    }

    /// Whether a question can be answered: a sample with tools needs `sampling.tools`, an address its own mode.
    pub fn can_answer(&self, question: &Question) -> bool {
        match question {
            Question::Sample(sample) => {
                let with_tools = sample.0.has("tools") || sample.0.has("toolChoice");
                let tools = || {
                    self.0
                        .object("sampling")
                        .is_some_and(|sampling| sampling.has("tools"))
                };
                self.sampling() && (!with_tools || tools())
            }
            Question::Elicit(elicitation) if elicitation.is_visit() => self.elicitation_url(),
            Question::Elicit(_) => self.elicitation_form(),
            Question::Roots(_) => self.roots(),
        }
    }
}

/// A line of a call's log, for whoever called: the params of MCP `notifications/message`.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Log(pub RawObject);

impl Log {
    /// A line of the agent `logger`; `data` is any JSON, often a sentence.
    pub fn new(level: LogLevel, logger: &str, data: impl Serialize) -> Self {
        Self(
            RawObject::of("level", level)
                .with("logger", logger)
                .with("data", data),
        )
    }

    /// How grave.
    pub fn level(&self) -> LogLevel {
        self.0.read("level").unwrap_or(LogLevel::Info)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({:?})", self.level())
    }
}

/// How grave a line of a log is (RFC 5424), least first.
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

/// Something that an agent shows has changed: clients are told (`list_changed`, `resources/updated`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// Its tools.
    Tools,
    /// Its prompts.
    Prompts,
    /// Which resources there are.
    Resources,
    /// What the resource of this URI holds.
    Resource(String),
}
