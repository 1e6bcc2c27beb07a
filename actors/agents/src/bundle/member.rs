use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callboard_message::surface::{
    CallTool, Complete, CreateMessage, Describe, GetPrompt, ListPrompts, ListResourceTemplates, ListResources,
    ListTools, ReadResource, Subscribe,
};
use callboard_message::{Failure, FailureKind, Message, MessageSpec, RawObject};
use callboard_runtime::{AgentRef, Cx};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::away::Away;
use super::filter::Naming;
use super::names::{joined, plain};
use super::options::{BundleError, BundleMember, Separator};
use super::tools::{Reply, is_tool, listed};

/// One of a bundle's agents.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) separator: Separator,
    pub(super) agent: AgentRef,
    pub(super) naming: Naming,
    /// The reserved messages that it handles.
    handles: Vec<String>,
    /// Takes any message by name: stands for something outside.
    outside: bool,
    /// Its message types as tools; none where it lists its tools itself.
    pub(super) specs: Vec<MessageSpec>,
    away: Mutex<Away>,
}

/// A message type that is a tool of the bundle.
pub(super) struct OwnTool {
    /// Whose it is, by place.
    pub member: usize,
    /// The message's name.
    pub message: String,
    pub reply: Reply,
    pub listed: RawObject,
}

impl OwnTool {
    pub fn new(member: usize, spec: &MessageSpec, shown: &str) -> Self {
        let reply = Reply::of(spec);
        Self { member, message: spec.name.clone(), reply, listed: listed(spec, shown, reply) }
    }
}

impl Member {
    pub(super) fn new(member: BundleMember, separator: Separator) -> Result<Self, BundleError> {
        let BundleMember { name, agent, filter } = member;
        let naming = Naming::new(filter);
        let naming = naming.map_err(|to| BundleError::Rename { member: name.clone(), name: to })?;
        let all = agent.specs();
        let handles = all.iter().map(|spec| spec.name.clone()).collect();
        let outside = agent.is_outside();
        let mut member =
            Self { name, separator, agent, naming, handles, outside, specs: Vec::new(), away: Mutex::default() };
        if !member.lists_tools() {
            member.specs = all.into_iter().filter(is_tool).collect();
        }
        Ok(member)
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

    pub(super) fn subscribes(&self) -> bool {
        self.handles::<Subscribe>()
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

    /// Whether it says itself that it answers like a model: what stands for anything outside doesn't.
    pub(super) fn samples(&self) -> bool {
        self.handles.iter().any(|name| name == CreateMessage::NAME)
    }

    /// Whether it stands for something outside, which may not have what it could have.
    pub(super) fn is_outside(&self) -> bool {
        self.outside
    }

    /// The name that something of this member's is shown under.
    pub(super) fn joined(&self, name: &str) -> String {
        joined(&self.name, self.separator, name)
    }

    /// What of a shown name is this member's own; `None` where the name is another's, or was cut.
    pub(super) fn own_name<'a>(&self, shown: &'a str) -> Option<&'a str> {
        shown.strip_prefix(&plain(&self.name))?.strip_prefix(self.separator.text())
    }

    /// Asks as a part of the call that `cx` serves.
    pub(super) async fn ask<M: Message>(&self, body: RawObject, cx: &Cx) -> Result<RawObject, Failure> {
        let reply = self.ask_named(M::NAME, body.to_raw(), cx).await?;
        RawObject::parse(&reply).map_err(|_| Failure::internal(format!("{} answered no object", self.name)))
    }

    pub(super) async fn ask_named(&self, name: &str, body: Box<RawValue>, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        let call = cx.next_hop();
        if call.is_none() && cx.call().is_some() {
            return Err(Failure::rejected("the call passed through too many agents"));
        }
        self.agent.ask_named(name, body, call).await.map_err(|mut failure| {
            // Whoever called knows the bundle only.
            let before = format!("{}: ", self.name);
            if failure.kind == FailureKind::Unavailable && !failure.message.starts_with(&before) {
                failure.message.insert_str(0, &before);
            }
            failure
        })
    }

    /// Like [`Member::ask`], for what the bundle can do without: waits until `limit` at most.
    pub(super) async fn ask_until<M: Message>(
        &self,
        body: RawObject,
        limit: Instant,
        cx: &Cx,
    ) -> Result<RawObject, Failure> {
        let late = || Failure::timed_out("it doesn't answer in time");
        let asked = timeout_at(limit, self.ask::<M>(body, cx)).await.unwrap_or_else(|_| Err(late()));
        match &asked {
            Ok(_) => self.away().returned(),
            Err(failure) if failure.kind == FailureKind::TimedOut => self.away().is_slow(),
            Err(_) => {}
        }
        asked
    }

    /// Until when to wait for what the bundle can do without: `patience` at most, less of one that was slow just now, and
    /// never so long that the call `cx` is of no use any more.
    pub(super) fn limit(&self, patience: Duration, cx: &Cx) -> Instant {
        let (now, patience) = (Instant::now(), self.away().patience(patience));
        let left = cx.deadline().map(|deadline| deadline.saturating_duration_since(now).mul_f64(0.75));
        now + left.map_or(patience, |left| left.min(patience))
    }

    pub(super) fn away(&self) -> MutexGuard<'_, Away> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
