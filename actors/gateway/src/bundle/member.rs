use std::time::Duration;

use callboard_message::surface::{
    CallTool, CreateMessage, GetPrompt, ListPrompts, ListResources, ListTools, RESERVED_PREFIX,
};
use callboard_message::{
    Change, Failure, FailureKind, Message, MessageSpec, RawObject, ToolResult,
};
use callboard_runtime::{AgentRef, Cx};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::names::{Naming, joined, plain};
use super::{
    BUNDLE_MEMBERS_MAX, BUNDLE_PROBE_PAUSE_MAX, BUNDLE_PROBE_PAUSE_MIN, BUNDLE_SLOW_FOR,
    BUNDLE_SLOW_WAIT, BundleError, BundleMember, Parts, Separator,
};

/// In the `_meta` of a list: `[{"server": member, "why": sentence}]`, the members whose part is missing.
pub const MISSING: &str = "callboard/away";
/// How long a list may be kept, in milliseconds (MCP 2026-07-28, caching).
pub(super) const KEPT_FOR: &str = "ttlMs";
/// Most characters of a member's own sentence that are told.
const WHY_CHARS_MAX: usize = 200;

/// One of a bundle's agents.
pub(super) struct Member {
    pub name: String,
    pub separator: Separator,
    pub agent: AgentRef,
    pub naming: Naming,
    /// The reserved messages that it handles.
    handles: Vec<String>,
    /// It stands for something outside: it takes any message by name, and may not have what it could have.
    pub is_outside: bool,
    /// Its message types as tools; none where it lists its tools itself.
    pub specs: Vec<MessageSpec>,
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
        Self {
            member,
            message: spec.name.clone(),
            reply,
            listed: listed(spec, shown, reply),
        }
    }
}

impl Member {
    pub fn new(member: BundleMember, separator: Separator) -> Result<Self, BundleError> {
        let BundleMember {
            name,
            agent,
            filter,
        } = member;
        let naming = Naming::new(filter);
        let naming = naming.map_err(|to| BundleError::Rename {
            member: name.clone(),
            name: to,
        })?;
        let all = agent.specs();
        let handles = all.iter().map(|spec| spec.name.clone()).collect();
        let is_outside = agent.is_outside();
        let mut member = Self {
            name,
            separator,
            agent,
            naming,
            handles,
            is_outside,
            specs: Vec::new(),
            away: Mutex::default(),
        };
        if !member.lists_tools() {
            member.specs = all
                .into_iter()
                .filter(|spec| !spec.name.starts_with(RESERVED_PREFIX))
                .collect();
        }
        Ok(member)
    }

    /// Whether it takes the message `M`, or may: of one outside it isn't known before it is asked.
    pub fn handles<M: Message>(&self) -> bool {
        self.is_outside || self.handles.iter().any(|name| name == M::NAME)
    }

    pub fn lists_tools(&self) -> bool {
        self.handles::<ListTools>() && self.handles::<CallTool>()
    }

    pub fn has_prompts(&self) -> bool {
        self.handles::<ListPrompts>() && self.handles::<GetPrompt>()
    }

    /// Whether it says itself that it answers like a model: what stands for anything outside doesn't.
    pub fn samples(&self) -> bool {
        self.handles.iter().any(|name| name == CreateMessage::NAME)
    }

    /// The name that something of this member's is shown under.
    pub fn joined(&self, name: &str) -> String {
        joined(&self.name, self.separator, name)
    }

    /// What of a shown name is this member's own; `None` where the name is another's, or was cut.
    pub fn own_name<'a>(&self, shown: &'a str) -> Option<&'a str> {
        shown
            .strip_prefix(&plain(&self.name))?
            .strip_prefix(self.separator.text())
    }

    /// Asks as a part of the call that `cx` serves.
    pub async fn ask<M: Message>(&self, body: RawObject, cx: &Cx) -> Result<RawObject, Failure> {
        let reply = self.ask_named(M::NAME, body.to_raw(), cx).await?;
        RawObject::parse(&reply)
            .map_err(|_| Failure::internal(format!("{} answered no object", self.name)))
    }

    pub async fn ask_named(
        &self,
        name: &str,
        body: Box<RawValue>,
        cx: &Cx,
    ) -> Result<Box<RawValue>, Failure> {
        let call = cx.next_hop();
        if call.is_none() && cx.call().is_some() {
            return Err(Failure::rejected("the call passed through too many agents"));
        }
        self.agent
            .ask_named(name, body, call)
            .await
            .map_err(|mut failure| {
                // Whoever called knows the bundle only.
                let before = format!("{}: ", self.name);
                if failure.kind == FailureKind::Unavailable && !failure.message.starts_with(&before)
                {
                    failure.message.insert_str(0, &before);
                }
                failure
            })
    }

    /// Like [`Member::ask`], for what the bundle can do without: waits until `limit` at most.
    pub async fn ask_until<M: Message>(
        &self,
        body: RawObject,
        limit: Instant,
        cx: &Cx,
    ) -> Result<RawObject, Failure> {
        let late = || Failure::timed_out("it doesn't answer in time");
        let asked = timeout_at(limit, self.ask::<M>(body, cx))
            .await
            .unwrap_or_else(|_| Err(late()));
        match &asked {
            Ok(_) => self.away().slow_until = None,
            Err(failure) if failure.kind == FailureKind::TimedOut => {
                self.away().slow_until = Some(Instant::now() + BUNDLE_SLOW_FOR);
            }
            Err(_) => {}
        }
        asked
    }

    /// Until when to wait for what the bundle can do without: `patience` at most, less of one that was slow just now, and
    /// never so long that the call `cx` is of no use any more.
    pub fn limit(&self, patience: Duration, cx: &Cx) -> Instant {
        let (now, patience) = (Instant::now(), self.away().patience(patience));
        let left = cx
            .deadline()
            .map(|deadline| deadline.saturating_duration_since(now).mul_f64(0.75));
        now + left.map_or(patience, |left| left.min(patience))
    }

    pub fn away(&self) -> MutexGuard<'_, Away> {
        self.away.lock()
    }
}

/// What is known of a member's absence.
#[derive(Default)]
pub(super) struct Away {
    slow_until: Option<Instant>,
    /// It will be looked after, next after this pause.
    probing: Option<Duration>,
}

impl Away {
    pub fn patience(&self, patience: Duration) -> Duration {
        match self.slow_until {
            Some(until) if Instant::now() < until => patience.min(BUNDLE_SLOW_WAIT),
            _ => patience,
        }
    }

    /// How long until it is looked after; `None` where that is under way.
    fn begin(&mut self) -> Option<Duration> {
        self.probing
            .is_none()
            .then(|| *self.probing.insert(BUNDLE_PROBE_PAUSE_MIN))
    }

    fn longer(&mut self) -> Duration {
        let pause = self.probing.unwrap_or_default().saturating_mul(2);
        *self
            .probing
            .insert(pause.clamp(BUNDLE_PROBE_PAUSE_MIN, BUNDLE_PROBE_PAUSE_MAX))
    }

    pub fn is_missed(&self) -> bool {
        self.probing.is_some()
    }
}

/// Looks whether a member is there again; followers of the bundle are told when it is.
pub(super) struct Probe {
    pub member: usize,
}

impl Message for Probe {
    type Reply = ();
    const NAME: &'static str = "callboard.bundle.probe";
}

/// Which members' parts are missing, and why.
#[derive(Default)]
pub(super) struct Missing {
    servers: Vec<(String, String)>,
    /// How long what there is may be kept, in milliseconds, where a member says so.
    kept_for: Option<u64>,
}

impl Missing {
    /// Puts a failure to the account of `member`; one that has no such thing isn't missing.
    pub fn add(&mut self, member: &Member, at: usize, failure: &Failure, cx: &Cx) {
        if matches!(failure.kind, FailureKind::NotFound | FailureKind::Cancelled) {
            return;
        }
        callboard_message::log::warn!(by: &member.name, member = member.name, kind = %failure.kind, "a member's part is missing");
        self.servers
            .push((member.name.clone(), why(member, failure)));
        if may_return(failure)
            && let Some(pause) = member.away().begin()
        {
            cx.tell_after(pause, Probe { member: at });
        }
    }

    /// Puts down what is missing of `member`'s own list, as it says itself, and how long that may be kept.
    pub fn add_theirs(&mut self, member: &Member, page: &RawObject) {
        self.keep(page.read(KEPT_FOR));
        let Some(meta) = page
            .get("_meta")
            .filter(|meta| meta.get().contains(MISSING))
        else {
            return;
        };
        let theirs = RawObject::parse(meta)
            .ok()
            .and_then(|meta| meta.read::<Vec<RawObject>>(MISSING));
        for entry in theirs
            .unwrap_or_default()
            .into_iter()
            .take(BUNDLE_MEMBERS_MAX)
        {
            let (server, why) = (
                entry.text("server").unwrap_or_default(),
                entry.text("why").unwrap_or_default(),
            );
            let server = match server == member.name {
                true => server,
                false => format!("{}/{}", member.name, told(&server)),
            };
            let entry = (server, told(&why));
            if !self.servers.contains(&entry) {
                self.servers.push(entry);
            }
        }
    }

    pub fn append(&mut self, mut other: Self) {
        self.servers.append(&mut other.servers);
        self.keep(other.kept_for);
    }

    fn keep(&mut self, millis: Option<u64>) {
        self.kept_for = self.kept_for.into_iter().chain(millis).min();
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.servers
            .iter()
            .map(|(server, why)| format!("{server} isn't available now: {why}"))
    }

    /// Says it in a list's `_meta`; a list that lacks something is kept by nobody.
    pub fn note(&self, page: &mut RawObject) {
        if self.is_empty() {
            self.kept_for
                .into_iter()
                .for_each(|millis| page.set(KEPT_FOR, millis));
            return;
        }
        let entry =
            |(server, why): &(String, String)| RawObject::of("server", server).with("why", why);
        let missing: Vec<_> = self.servers.iter().map(entry).collect();
        page.set(KEPT_FOR, 0);
        page.set("_meta", RawObject::of(MISSING, missing));
    }
}

/// Whether a member that failed so may be there again.
fn may_return(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::Overloaded | FailureKind::TimedOut | FailureKind::Unavailable
    )
}

/// A bug's sentence stays here, because a panic or a parser may have put data in it.
fn why(member: &Member, failure: &Failure) -> String {
    let own = failure
        .message
        .strip_prefix(&format!("{}: ", member.name))
        .unwrap_or(&failure.message);
    match failure.kind {
        FailureKind::Internal => "internal error".to_owned(),
        _ => told(own),
    }
}

fn told(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(WHY_CHARS_MAX)
        .collect()
}

impl Parts {
    /// Asks a missing member for a list, and again later while it is away.
    pub async fn probe(&self, at: usize, cx: &Cx) {
        let Some(member) = self.members.get(at) else {
            return;
        };
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
        if asked.is_err_and(|failure| may_return(&failure)) {
            let pause = member.away().longer();
            cx.tell_after(pause, Probe { member: at });
            return;
        }
        *member.away() = Away::default();
        for (has, change) in [
            (member.lists_tools(), Change::Tools),
            (member.has_prompts(), Change::Prompts),
            (member.handles::<ListResources>(), Change::Resources),
        ] {
            if has {
                cx.changed(change);
            }
        }
    }
}

/// What a tool's reply becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// It is a tool result.
    Result,
    Object,
    /// Any other value: wrapped in an object, which every revision of MCP takes.
    Value,
    Nothing,
}

impl Reply {
    pub fn of(spec: &MessageSpec) -> Self {
        match &spec.output_schema {
            None => Self::Result,
            Some(schema) if schema["type"] == "null" => Self::Nothing,
            Some(schema) if schema["type"] == "object" => Self::Object,
            Some(_) => Self::Value,
        }
    }

    /// The tool's result.
    pub fn result(self, reply: &RawValue) -> ToolResult {
        let text = || serde_json::from_str(reply.get()).unwrap_or_else(|_| reply.get().to_owned());
        match self {
            Self::Result => ToolResult(RawObject::parse(reply).unwrap_or_default()),
            Self::Nothing => ToolResult::of([]),
            Self::Object => ToolResult::text(text()).structured(reply),
            Self::Value => ToolResult::text(text()).structured(RawObject::of("result", reply)),
        }
    }
}

/// A message type as a tool of this name. Calls here aren't tasks, so `execution` stays away.
fn listed(spec: &MessageSpec, name: &str, reply: Reply) -> RawObject {
    let tool = RawObject::of("name", name).with("description", &spec.description);
    let mut tool = tool.with("inputSchema", &spec.input_schema);
    match (&spec.output_schema, reply) {
        (Some(schema), Reply::Object) => tool.set("outputSchema", schema),
        (Some(schema), Reply::Value) => tool.set("outputSchema", wrapped(schema)),
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

/// The schema of `{"result": reply}`; definitions stay at the root, where `$ref`s look for them.
fn wrapped(schema: &Value) -> Value {
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
