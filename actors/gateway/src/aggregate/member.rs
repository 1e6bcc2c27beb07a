use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::{
    CallTool, CreateMessage, GetPrompt, ListPrompts, ListResources, ListTools, RESERVED_PREFIX,
    STILL_STARTING,
};
use callboard_message::{
    CapabilityChange, Failure, FailureKind, Message, MessageSpec, RawObject, ToolResult,
};
use callboard_runtime::{AgentRef, CallContext, Context};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::names::{NameMapping, joined_name, sanitize_name};
use super::{
    AGGREGATE_MEMBERS_MAX, AGGREGATE_PROBE_PAUSE_MAX, AGGREGATE_PROBE_PAUSE_MIN,
    AGGREGATE_SLOW_PERIOD, AGGREGATE_SLOW_TIMEOUT, AggregateError, AggregateMember, AggregateState,
    NameSeparator, PrefixMode,
};

/// Key in a list's `_meta` whose value names the members whose part is missing: `[{"server":
/// member, "why": sentence}]`.
pub const MISSING_META_KEY: &str = "callboard/away";
/// JSON key of the time for which a list may be cached, in milliseconds (MCP 2026-07-28, caching).
pub(super) const TTL_META_KEY: &str = "ttlMs";
/// Maximum characters of a member's own error message that are included in the reason for its
/// absence; the rest is cut.
const REASON_CHARS_MAX: usize = 200;

/// Member of an aggregate agent, with its state at run time.
pub(super) struct MemberState {
    pub name: String,
    pub separator: NameSeparator,
    keeps_names: bool,
    pub agent: AgentRef,
    pub naming: NameMapping,
    /// Names of the reserved messages that the member handles.
    handles: Vec<String>,
    /// Whether the member is a proxy for a remote agent. A proxy accepts any message, whether or
    /// not the remote agent supports it.
    pub is_proxy: bool,
    /// Message types of the member that are shown as tools; empty if the member lists its tools
    /// itself.
    pub specs: Vec<MessageSpec>,
    absence: Mutex<Absence>,
}

/// Tool of an aggregate that sends a message type of a member.
pub(super) struct MessageTool {
    /// Index of the member that handles the message.
    pub member: usize,
    /// Name of the message.
    pub message: String,
    pub reply: ReplyShape,
    pub descriptor: RawObject,
}

impl MessageTool {
    pub fn new(member: usize, spec: &MessageSpec, shown: &str) -> Self {
        let reply = ReplyShape::of(spec);
        Self {
            member,
            message: spec.name.clone(),
            reply,
            descriptor: tool_descriptor(spec, shown, reply),
        }
    }
}

impl MemberState {
    pub fn new(member: AggregateMember, separator: NameSeparator) -> Result<Self, AggregateError> {
        let AggregateMember {
            name,
            agent,
            filter,
            keeps_names,
        } = member;
        let naming = NameMapping::new(filter);
        let naming = naming.map_err(|to| AggregateError::Rename {
            member: name.clone(),
            name: to,
        })?;
        let all = agent.specs();
        let handles = all.iter().map(|spec| spec.name.clone()).collect();
        let is_outside = agent.is_proxy();
        let mut member = Self {
            name,
            separator,
            keeps_names,
            agent,
            naming,
            handles,
            is_proxy: is_outside,
            specs: Vec::new(),
            absence: Mutex::default(),
        };
        if !member.lists_tools() {
            member.specs = all
                .into_iter()
                .filter(|spec| !spec.name.starts_with(RESERVED_PREFIX))
                .collect();
        }
        Ok(member)
    }

    /// Returns whether the member handles the message `M`. For a proxy it returns `true`, although
    /// the remote agent may reject the message.
    pub fn handles<M: Message>(&self) -> bool {
        self.is_proxy || self.handles.iter().any(|name| name == M::NAME)
    }

    pub fn lists_tools(&self) -> bool {
        self.handles::<ListTools>() && self.handles::<CallTool>()
    }

    pub fn has_prompts(&self) -> bool {
        self.handles::<ListPrompts>() && self.handles::<GetPrompt>()
    }

    /// Returns whether the member declares that it handles `callboard.sample`. Always `false` for a
    /// proxy.
    pub fn answers_samples(&self) -> bool {
        self.handles.iter().any(|name| name == CreateMessage::NAME)
    }

    /// Returns whether the names in the member's own lists are shown without prefix.
    pub fn keeps_names(&self, prefix: PrefixMode) -> bool {
        let lists = || self.lists_tools() || self.has_prompts();
        match prefix {
            PrefixMode::WhereNeeded => self.keeps_names && lists(),
            PrefixMode::Always => false,
            PrefixMode::Never => lists(),
        }
    }

    /// Returns the shown name of an item: its name with this member's prefix.
    pub fn joined(&self, name: &str) -> String {
        joined_name(&self.name, self.separator, name)
    }

    /// Returns the prefix of the member's names.
    pub fn prefix(&self, separator: NameSeparator) -> String {
        format!("{}{}", sanitize_name(&self.name), separator.as_str())
    }

    /// Returns the original name of a shown name with this member's prefix; `None` if the prefix is
    /// another one.
    pub fn own_name<'a>(&self, shown: &'a str, separator: NameSeparator) -> Option<&'a str> {
        shown
            .strip_prefix(&sanitize_name(&self.name))?
            .strip_prefix(separator.as_str())
    }

    /// Sends a message to the member as part of the call that `cx` serves. Returns the reply.
    pub async fn ask<M: Message>(
        &self,
        body: RawObject,
        cx: &Context,
    ) -> Result<RawObject, Failure> {
        let reply = self.ask_named(M::NAME, body.to_raw(), cx).await?;
        RawObject::parse(&reply)
            .map_err(|_| Failure::internal(format!("{} answered no object", self.name)))
    }

    pub async fn ask_named(
        &self,
        name: &str,
        body: Box<RawValue>,
        cx: &Context,
    ) -> Result<Box<RawValue>, Failure> {
        let call = cx.next_hop();
        if call.is_none() && cx.call().is_some() {
            return Err(Failure::rejected(
                "the call passed through too many agents: look for a loop",
            ));
        }
        self.agent
            .ask_named(name, body, call)
            .await
            .map_err(|mut failure| {
                // Callers know only the aggregate, so the failure names the member.
                let before = format!("{}: ", self.name);
                if failure.kind == FailureKind::Unavailable && !failure.message.starts_with(&before)
                {
                    failure.message.insert_str(0, &before);
                }
                failure
            })
    }

    /// Sends a message as [`Self::ask`] does, but waits for the reply only until `limit`. Used for
    /// results that the aggregate can leave out.
    pub async fn ask_until<M: Message>(
        &self,
        body: RawObject,
        limit: Instant,
        cx: &Context,
    ) -> Result<RawObject, Failure> {
        let late = || Failure::timed_out("it doesn't answer in time");
        // The member learns how long is waited, and may say why it isn't ready.
        let limited = cx
            .call()
            .map(|call| cx.with_call(Arc::new(CallContext::clone(call).with_deadline(limit))));
        let asked = timeout_at(limit, self.ask::<M>(body, limited.as_ref().unwrap_or(cx))).await;
        let asked = match asked {
            Ok(Err(failure))
                if failure.kind == FailureKind::TimedOut && Instant::now() >= limit =>
            {
                Err(late())
            }
            Ok(asked) => asked,
            Err(_) => Err(late()),
        };
        match &asked {
            Ok(_) => {
                let mut absence = self.absence();
                absence.slow_until = None;
                // While it is probed, another request than this one has missed it.
                absence.is_reported &= absence.is_probing();
            }
            Err(failure) if failure.kind == FailureKind::TimedOut => {
                self.absence().slow_until = Some(Instant::now() + AGGREGATE_SLOW_PERIOD);
            }
            Err(_) => {}
        }
        asked
    }

    /// Returns the latest time for results that the aggregate can leave out. It is `patience` from
    /// now, less for a member that was slow recently. At most three quarters of the call's
    /// remaining time are used.
    pub fn deadline(&self, patience: Duration, cx: &Context) -> Instant {
        let (now, patience) = (Instant::now(), self.absence().timeout_for(patience));
        let left = cx
            .deadline()
            .map(|deadline| deadline.saturating_duration_since(now).mul_f64(0.75));
        now + left.map_or(patience, |left| left.min(patience))
    }

    pub fn absence(&self) -> MutexGuard<'_, Absence> {
        self.absence.lock()
    }
}

/// Record of a member's slowness and of the probes while it is missing.
#[derive(Default)]
pub(super) struct Absence {
    slow_until: Option<Instant>,
    /// Whether a log line has reported the absence.
    is_reported: bool,
    /// Pause before the next probe; `None` if the member isn't being probed.
    probe_pause: Option<Duration>,
}

impl Absence {
    pub fn timeout_for(&self, patience: Duration) -> Duration {
        match self.slow_until {
            Some(until) if Instant::now() < until => patience.min(AGGREGATE_SLOW_TIMEOUT),
            _ => patience,
        }
    }

    /// Records that the absence is reported in the log. Returns whether that is new.
    fn report(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reported, true)
    }

    /// Starts probing and returns the pause before the first probe; `None` if the member is being
    /// probed already.
    fn start_probing(&mut self) -> Option<Duration> {
        self.probe_pause
            .is_none()
            .then(|| *self.probe_pause.insert(AGGREGATE_PROBE_PAUSE_MIN))
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.probe_pause.unwrap_or_default().saturating_mul(2);
        *self
            .probe_pause
            .insert(pause.clamp(AGGREGATE_PROBE_PAUSE_MIN, AGGREGATE_PROBE_PAUSE_MAX))
    }

    pub fn is_probing(&self) -> bool {
        self.probe_pause.is_some()
    }
}

/// Message by which an aggregate schedules a probe of a missing member. When the member is
/// available again, watchers of the aggregate are notified.
pub(super) struct ProbeMember {
    pub member: usize,
    /// Call that missed the member. The probe uses what the member keeps for its client session.
    pub call: Option<Arc<CallContext>>,
}

impl Message for ProbeMember {
    type Reply = ();
    const NAME: &'static str = "callboard.bundle.probe";
}

/// Members whose part of a list is missing, each with the reason.
#[derive(Default)]
pub(super) struct MissingMembers {
    servers: Vec<(String, String)>,
    /// Shortest caching time that a member states for its part, in milliseconds; `None` if none
    /// states one.
    ttl_ms: Option<u64>,
}

impl MissingMembers {
    /// Records that `member` is missing because of `failure`. Starts probing it if it may become
    /// available again. A member that has no such list isn't recorded.
    pub fn add(&mut self, member: &MemberState, at: usize, failure: &Failure, cx: &Context) {
        if matches!(failure.kind, FailureKind::NotFound | FailureKind::Cancelled) {
            return;
        }
        let reason = absence_reason(member, failure);
        if reason == STILL_STARTING {
            callboard_message::log::debug!(by: &member.name, member = member.name, "a member is starting, its part is missing");
        } else if member.absence().report() {
            callboard_message::log::warn!(by: &member.name, member = member.name, kind = %failure.kind, "a member's part is missing until it is back");
        }
        self.servers.push((member.name.clone(), reason));
        if is_temporary(failure)
            && let Some(pause) = member.absence().start_probing()
        {
            let call = cx.call().map(|call| {
                Arc::new(CallContext {
                    session: call.session.clone(),
                    caller: call.caller.clone(),
                    ..CallContext::new(call.principal.clone())
                })
            });
            cx.tell_after(pause, ProbeMember { member: at, call });
        }
    }

    /// Records the parts that `member` itself reports as missing in a page of its list, and the
    /// page's caching time.
    pub fn add_reported(&mut self, member: &MemberState, page: &RawObject) {
        self.lower_ttl(page.read(TTL_META_KEY));
        let Some(meta) = page
            .get("_meta")
            .filter(|meta| meta.get().contains(MISSING_META_KEY))
        else {
            return;
        };
        let theirs = RawObject::parse(meta)
            .ok()
            .and_then(|meta| meta.read::<Vec<RawObject>>(MISSING_META_KEY));
        for entry in theirs
            .unwrap_or_default()
            .into_iter()
            .take(AGGREGATE_MEMBERS_MAX)
        {
            let (server, why) = (
                entry.text("server").unwrap_or_default(),
                entry.text("why").unwrap_or_default(),
            );
            let server = match server == member.name {
                true => server,
                false => format!("{}/{}", member.name, truncate_reason(&server)),
            };
            let entry = (server, truncate_reason(&why));
            if !self.servers.contains(&entry) {
                self.servers.push(entry);
            }
        }
    }

    pub fn append(&mut self, mut other: Self) {
        self.servers.append(&mut other.servers);
        self.lower_ttl(other.ttl_ms);
    }

    fn lower_ttl(&mut self, millis: Option<u64>) {
        self.ttl_ms = self.ttl_ms.into_iter().chain(millis).min();
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|(server, why)| match why.as_str() {
            STILL_STARTING => {
                format!("{server} is {why}: its lists are announced when it is there")
            }
            why => format!("{server} isn't available now: {why}"),
        })
    }

    /// Writes the missing members into the list's `_meta`. If there are any, the list is also
    /// marked as not cacheable.
    pub fn write_meta(&self, page: &mut RawObject) {
        if self.is_empty() {
            self.ttl_ms
                .into_iter()
                .for_each(|millis| page.set(TTL_META_KEY, millis));
            return;
        }
        let entry =
            |(server, why): &(String, String)| RawObject::single("server", server).with("why", why);
        let missing: Vec<_> = self.servers.iter().map(entry).collect();
        page.set(TTL_META_KEY, 0);
        page.set("_meta", RawObject::single(MISSING_META_KEY, missing));
    }
}

/// Returns whether a member that failed in this way may become available again.
fn is_temporary(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::Overloaded | FailureKind::TimedOut | FailureKind::Unavailable
    )
}

/// Returns the reason reported for a missing member. The message of an internal error is left out,
/// because it may hold data.
fn absence_reason(member: &MemberState, failure: &Failure) -> String {
    let own = failure
        .message
        .strip_prefix(&format!("{}: ", member.name))
        .unwrap_or(&failure.message);
    match failure.kind {
        FailureKind::Internal => "internal error".to_owned(),
        _ => truncate_reason(own),
    }
}

fn truncate_reason(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(REASON_CHARS_MAX)
        .collect()
}

impl AggregateState {
    /// Probes a missing member with a list request. If the member is still unavailable, schedules
    /// the next probe.
    pub async fn probe(&self, probe: ProbeMember, cx: &Context) {
        let ProbeMember { member: at, call } = probe;
        let Some(member) = self.members.get(at) else {
            return;
        };
        let is_over = |call: &Arc<CallContext>| {
            let session = call.session.as_ref();
            session.is_some_and(|session| session.closed.is_cancelled())
        };
        if call.as_ref().is_some_and(is_over) {
            // The next list that misses the member starts probing again.
            *member.absence() = Absence::default();
            return;
        }
        let in_call = call.clone().map(|call| cx.with_call(call));
        let cx = in_call.as_ref().unwrap_or(cx);
        let limit = Instant::now() + self.list_timeout;
        let asked = match () {
            () if member.lists_tools() => {
                member
                    .ask_until::<ListTools>(RawObject::new(), limit, cx)
                    .await
            }
            () if member.has_prompts() => {
                member
                    .ask_until::<ListPrompts>(RawObject::new(), limit, cx)
                    .await
            }
            () => {
                member
                    .ask_until::<ListResources>(RawObject::new(), limit, cx)
                    .await
            }
        };
        if asked.is_err_and(|failure| is_temporary(&failure)) {
            let pause = member.absence().next_pause();
            cx.tell_after(pause, ProbeMember { member: at, call });
            return;
        }
        *member.absence() = Absence::default();
        for (has, change) in [
            (member.lists_tools(), CapabilityChange::Tools),
            (member.has_prompts(), CapabilityChange::Prompts),
            (
                member.handles::<ListResources>(),
                CapabilityChange::Resources,
            ),
        ] {
            if has {
                cx.notify_changed(change);
            }
        }
    }
}

/// Form of a message's reply, which decides how it becomes a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyShape {
    /// The reply is already a tool result.
    Result,
    Object,
    /// The reply is another JSON value. It is wrapped in an object, as every MCP revision requires.
    Value,
    Nothing,
}

impl ReplyShape {
    pub fn of(spec: &MessageSpec) -> Self {
        match &spec.output_schema {
            None => Self::Result,
            Some(schema) if schema["type"] == "null" => Self::Nothing,
            Some(schema) if schema["type"] == "object" => Self::Object,
            Some(_) => Self::Value,
        }
    }

    /// Converts a reply to a tool result.
    pub fn to_tool_result(self, reply: &RawValue) -> ToolResult {
        let text = || serde_json::from_str(reply.get()).unwrap_or_else(|_| reply.get().to_owned());
        match self {
            Self::Result => ToolResult(RawObject::parse(reply).unwrap_or_default()),
            Self::Nothing => ToolResult::from_content([]),
            Self::Object => ToolResult::text(text()).with_structured_content(reply),
            Self::Value => {
                ToolResult::text(text()).with_structured_content(RawObject::single("result", reply))
            }
        }
    }
}

/// Returns the MCP tool descriptor of a message type. It has no `execution` member, because calls
/// through an aggregate can't be tasks.
fn tool_descriptor(spec: &MessageSpec, name: &str, reply: ReplyShape) -> RawObject {
    let tool = RawObject::single("name", name).with("description", &spec.description);
    let mut tool = tool.with("inputSchema", &spec.input_schema);
    match (&spec.output_schema, reply) {
        (Some(schema), ReplyShape::Object) => tool.set("outputSchema", schema),
        (Some(schema), ReplyShape::Value) => tool.set("outputSchema", wrap_schema(schema)),
        _ => {}
    }
    for (member, value) in spec
        .more
        .iter()
        .filter(|(member, _)| *member != "execution")
    {
        tool.set_raw(member, value.to_owned());
    }
    tool
}

/// Wraps the schema of a reply into that of `{"result": reply}`. Definitions stay at the root, to
/// which `$ref`s refer.
fn wrap_schema(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let members = inner.as_object_mut();
    let (definitions, dialect) =
        members.map_or((None, None), |m| (m.remove("$defs"), m.remove("$schema")));
    let mut outer = json!({
        "type": "object", "properties": { "result": inner }, "required": ["result"], "x-callboard-wrapped": true
    });
    if let Some(definitions) = definitions {
        outer["$defs"] = definitions;
    }
    if let Some(dialect) = dialect {
        outer["$schema"] = dialect;
    }
    outer
}
