use callboard_message::surface::{
    CallTool, Complete, Describe, GetPrompt, ListPrompts, ListResourceTemplates, ListResources, ListTools, ReadResource,
};
use callboard_message::{Failure, FailureKind, Message, MessageSpec, RawObject};
use callboard_runtime::{AgentRef, Cx};
use serde_json::value::RawValue;

use super::names::{joined, plain};
use super::tools::{Reply, is_tool, listed};

/// One of a bundle's agents.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) agent: AgentRef,
    /// The reserved messages that it handles.
    handles: Vec<String>,
    /// Takes any message by name: stands for something outside.
    outside: bool,
    /// Its message types as tools; none where it lists its tools itself.
    pub(super) specs: Vec<MessageSpec>,
}

/// A message type that is a tool of the bundle.
pub(super) struct OwnTool {
    /// Whose it is, by place.
    pub(super) member: usize,
    /// The message's name.
    pub(super) message: String,
    pub(super) reply: Reply,
    pub(super) listed: RawObject,
}

impl OwnTool {
    pub(super) fn new(member: usize, spec: &MessageSpec, shown: &str) -> Self {
        let reply = Reply::of(spec);
        Self { member, message: spec.name.clone(), reply, listed: listed(spec, shown, reply) }
    }
}

impl Member {
    pub(super) fn new(name: String, agent: AgentRef) -> Self {
        let all = agent.specs();
        let handles = all.iter().map(|spec| spec.name.clone()).collect();
        let outside = agent.is_outside();
        let mut member = Self { name, agent, handles, outside, specs: Vec::new() };
        if !member.lists_tools() {
            member.specs = all.into_iter().filter(is_tool).collect();
        }
        member
    }

    fn handles<M: Message>(&self) -> bool {
        self.outside || self.handles.iter().any(|name| name == M::NAME)
    }

    pub(super) fn lists_tools(&self) -> bool {
        self.handles::<ListTools>() && self.handles::<CallTool>()
    }

    pub(super) fn has_resources(&self) -> bool {
        self.handles::<ReadResource>()
    }

    pub(super) fn lists_resources(&self) -> bool {
        self.handles::<ListResources>()
    }

    pub(super) fn lists_templates(&self) -> bool {
        self.handles::<ListResourceTemplates>()
    }

    pub(super) fn has_prompts(&self) -> bool {
        self.handles::<ListPrompts>() && self.handles::<GetPrompt>()
    }

    pub(super) fn completes(&self) -> bool {
        self.handles::<Complete>()
    }

    pub(super) fn describes(&self) -> bool {
        self.handles::<Describe>()
    }

    /// The name that something of this member's is shown under.
    pub(super) fn joined(&self, name: &str) -> String {
        joined(&self.name, name)
    }

    /// What of a shown name is this member's own; `None` where the name is another's, or was cut.
    pub(super) fn own_name<'a>(&self, shown: &'a str) -> Option<&'a str> {
        shown.strip_prefix(&plain(&self.name))?.strip_prefix('.')
    }

    /// Asks as a part of the call that `cx` serves.
    pub(super) async fn ask<M: Message>(&self, body: RawObject, cx: &Cx) -> Result<RawObject, Failure> {
        let reply = self.ask_named(M::NAME, body.to_raw(), cx).await?;
        RawObject::parse(&reply).map_err(|_| Failure::internal(format!("{} answered no object", self.name)))
    }

    pub(super) async fn ask_named(&self, name: &str, body: Box<RawValue>, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        let call = cx.next_hop();
        if call.is_none() && cx.call().is_some() {
            return Err(Failure::new(FailureKind::Rejected, "the call passed through too many agents"));
        }
        self.agent.ask_named(name, body, call).await
    }
}
