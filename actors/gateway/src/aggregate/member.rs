//! Members of an aggregate agent: requests to them, and their availability.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::{
    CallTool, CreateMessage, GetPrompt, ListPrompts, ListResourceTemplates, ListResources,
    ListTools, RESERVED_PREFIX,
};
use callboard_message::{Failure, FailureKind, Message, MessageSpec, RawMessage, RawObject};
use callboard_runtime::{AccessItem, AgentRef, CallContext, Context, inbound_policy};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::names::{NameMapping, joined_name, sanitize_name};
use super::uris::{ResourceIndex, member_session};
use super::{
    AGGREGATE_PROBE_PAUSE_MAX, AGGREGATE_PROBE_PAUSE_MIN, AGGREGATE_READ_GRACE,
    AGGREGATE_SLOW_PERIOD, AGGREGATE_SLOW_TIMEOUT, AggregateError, AggregateMember,
    AggregateOptions, NameSeparator, PrefixMode,
};

/// Member of an aggregate agent, with its state at run time.
pub(super) struct MemberState {
    pub name: String,
    pub separator: NameSeparator,
    keeps_names: bool,
    pub agent: AgentRef,
    pub naming: NameMapping,
    /// Whether the rules of the system bind the callers of the aggregate.
    judges_callers: bool,
    /// Names of all messages that the member handles, with the reserved ones.
    handles: Vec<String>,
    /// Whether the member is a proxy for a remote agent. A proxy accepts any message, whether or
    /// not the remote agent supports it.
    pub is_proxy: bool,
    /// Message types of the member that are shown as tools; empty if the member lists its tools
    /// itself.
    pub specs: Vec<MessageSpec>,
    /// Index of this member, and the resources of all members. `None` for the only member, whose
    /// resources have no duplicates.
    resources: Option<(usize, Arc<ResourceIndex>)>,
    absence: Mutex<Absence>,
}

impl MemberState {
    pub fn new(
        member: AggregateMember,
        options: &AggregateOptions,
    ) -> Result<Self, AggregateError> {
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
            separator: options.separator,
            keeps_names,
            agent,
            naming,
            judges_callers: !options.is_for_agents,
            handles,
            is_proxy: is_outside,
            specs: Vec::new(),
            resources: None,
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

    /// Sets the index of this member and the resources of all, by which changes are told to client
    /// sessions.
    pub fn share_resources(&mut self, at: usize, index: &Arc<ResourceIndex>) {
        self.resources = Some((at, index.clone()));
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

    /// Returns the shown name of an item: its name with this member's prefix, truncated if it is
    /// too long ([`joined_name`]).
    pub fn joined(&self, name: &str) -> String {
        joined_name(&self.name, self.separator, name)
    }

    /// Returns the prefix of the member's names: its name with `_` for characters that tool names
    /// don't allow, and the separator.
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

    /// Returns whether the caller of `cx` may use an item of the member, so that it may be shown.
    pub fn is_permitted(&self, item: AccessItem<'_>, cx: &Context) -> bool {
        !self.judges_callers
            || inbound_policy::may_use(&self.agent, &self.name, cx.principal(), item)
    }

    /// Sends a message to the member as part of the call that `cx` serves. Returns the reply.
    ///
    /// # Errors
    /// The member's failure, with its name in front if it is `Unavailable`; `Rejected`, if the call
    /// passed through too many agents; `Internal`, if the reply isn't a JSON object.
    pub async fn ask<M: Message>(
        &self,
        body: RawObject,
        cx: &Context,
    ) -> Result<RawObject, Failure> {
        let reply = self.ask_named(M::NAME, body.to_raw(), cx).await?;
        RawObject::parse(&reply).map_err(|_| {
            let (name, message) = (&self.name, M::NAME);
            Failure::internal(format!(
                "{name}: its reply to {message} is no JSON object: the agent has to be corrected"
            ))
        })
    }

    pub async fn ask_named(
        &self,
        name: &str,
        body: Box<RawValue>,
        cx: &Context,
    ) -> Result<Box<RawValue>, Failure> {
        if self.judges_callers {
            inbound_policy::authorize_for(cx, &self.agent, &self.name, name, &body).await?;
        }
        let mut call = cx.next_hop();
        if let Some(call) = call.as_mut().and_then(Arc::get_mut)
            && let Some((at, index)) = &self.resources
            && let Some(session) = &call.session
        {
            call.session = Some(member_session(session, index, *at));
        }
        if call.is_none()
            && let Some(own) = cx.call()
        {
            return Err(Failure::rejected(format!(
                "the call passed through more than {} agents: look for a loop",
                own.hops_max
            )));
        }
        let reply = match call {
            // The aggregate's handlers don't bound the principal here: a member may have fewer.
            Some(call) => {
                let (name, payload) = (name.to_owned(), body);
                let sent = RawMessage { name, payload };
                inbound_policy::ask_in_share(&self.agent, sent, call).await
            }
            None => self.agent.ask_named(name, body, None).await,
        };
        reply.map_err(|mut failure| {
            // Callers know only the aggregate, so the failure names the member.
            let before = format!("{}: ", self.name);
            if failure.kind == FailureKind::Unavailable && !failure.message.starts_with(&before) {
                failure.message.insert_str(0, &before);
            }
            failure
        })
    }

    /// Sends a message as [`Self::ask`] does, but waits for the reply only until `limit`. Used for
    /// results that the aggregate can leave out. After a timeout, the member has shorter time
    /// limits for [`AGGREGATE_SLOW_PERIOD`].
    ///
    /// # Errors
    /// `TimedOut` at `limit`; else as [`Self::ask`].
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
    /// now, but at most [`AGGREGATE_SLOW_TIMEOUT`] for a member that was slow recently. At most
    /// three quarters of the call's remaining time are used.
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
    pub fn report(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reported, true)
    }

    /// Starts probing and returns the pause before the first probe; `None` if the member is being
    /// probed already.
    pub fn start_probing(&mut self) -> Option<Duration> {
        self.probe_pause
            .is_none()
            .then(|| *self.probe_pause.insert(AGGREGATE_PROBE_PAUSE_MIN))
    }

    pub fn next_pause(&mut self) -> Duration {
        let pause = self.probe_pause.unwrap_or_default().saturating_mul(2);
        *self
            .probe_pause
            .insert(pause.clamp(AGGREGATE_PROBE_PAUSE_MIN, AGGREGATE_PROBE_PAUSE_MAX))
    }

    pub fn is_probing(&self) -> bool {
        self.probe_pause.is_some()
    }
}

/// Kind of list that an aggregate combines from its members.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Tools,
    Resources,
    Templates,
    Prompts,
}

impl ListKind {
    /// Returns the JSON key of the items in the result of a list request.
    pub fn items_key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// Returns an item of a member's list as what rules decide about; `None` without its name or URI.
    pub fn access_item<'a>(self, item: &'a RawObject) -> Option<AccessItem<'a>> {
        let message = match self {
            Self::Tools => ListTools::NAME,
            Self::Resources => ListResources::NAME,
            Self::Templates => ListResourceTemplates::NAME,
            Self::Prompts => ListPrompts::NAME,
        };
        AccessItem::of_listed(message, item)
    }

    pub fn is_listed_by(self, member: &MemberState) -> bool {
        match self {
            Self::Tools => member.lists_tools(),
            Self::Resources => member.handles::<ListResources>(),
            Self::Templates => member.handles::<ListResourceTemplates>(),
            Self::Prompts => member.has_prompts(),
        }
    }
}

/// Requests one page of a member's list, the first one if `cursor` is `None`. Waits until `limit`.
///
/// # Errors
/// As [`MemberState::ask_until`].
pub(super) async fn ask_page(
    what: ListKind,
    member: &MemberState,
    cursor: Option<&str>,
    limit: Instant,
    cx: &Context,
) -> Result<RawObject, Failure> {
    let mut params = RawObject::new();
    params.set_some("cursor", &cursor);
    match what {
        ListKind::Tools => member.ask_until::<ListTools>(params, limit, cx).await,
        ListKind::Resources => member.ask_until::<ListResources>(params, limit, cx).await,
        ListKind::Templates => {
            member
                .ask_until::<ListResourceTemplates>(params, limit, cx)
                .await
        }
        ListKind::Prompts => member.ask_until::<ListPrompts>(params, limit, cx).await,
    }
}

/// Asks several members, by index, concurrently. If more than one answers, the first in the
/// aggregate's order is preferred, unless its answer comes more than [`AGGREGATE_READ_GRACE`] after
/// another. Returns the index of the preferred member and its reply. `why` is the failure of a
/// member that was asked before.
///
/// # Errors
/// The most informative failure ([`failure_rank`]), including `why`; `NotFound`, if there is none,
/// because nobody was asked.
pub(super) async fn ask_first<M: Message>(
    members: &[MemberState],
    asked: BTreeSet<usize>,
    params: RawObject,
    mut why: Option<(usize, Failure)>,
    cx: &Context,
) -> Result<(usize, RawObject), Failure> {
    let ask = |at: usize| {
        let (member, params) = (members.get(at), params.clone());
        async move { Some((at, member?.ask::<M>(params, cx).await)) }
    };
    let mut pending: FuturesUnordered<_> = asked.iter().map(|at| ask(*at)).collect();
    let mut open = asked;
    let mut best: Option<(usize, RawObject)> = None;
    let mut limit: Option<Instant> = None;
    loop {
        let next = match limit {
            Some(limit) => timeout_at(limit, pending.next()).await.unwrap_or(None),
            None => pending.next().await,
        };
        let Some(answered) = next else { break };
        let Some((at, reply)) = answered else {
            continue;
        };
        open.remove(&at);
        match reply {
            Ok(reply) => {
                limit.get_or_insert_with(|| Instant::now() + AGGREGATE_READ_GRACE);
                if best.as_ref().is_none_or(|(before, _)| at < *before) {
                    best = Some((at, reply));
                }
            }
            Err(failure) => {
                let key = |at: usize, failure: &Failure| (failure_rank(failure), at);
                if why
                    .as_ref()
                    .is_none_or(|(other, before)| key(at, &failure) < key(*other, before))
                {
                    why = Some((at, failure));
                }
            }
        }
        if best
            .as_ref()
            .is_some_and(|(best, _)| open.first().is_none_or(|first| best < first))
        {
            break;
        }
    }
    let failed = || {
        why.map_or_else(
            || Failure::not_found("no such resource: list the resources for their URIs"),
            |(_, failure)| failure,
        )
    };
    best.ok_or_else(failed)
}

/// Returns the rank of a failure by how informative it is; 0 is the most informative. An
/// unavailable member ranks high, since it may have what the others lack.
fn failure_rank(failure: &Failure) -> u8 {
    match failure.kind {
        FailureKind::NotFound => 1,
        FailureKind::InvalidInput => 2,
        _ => 0,
    }
}

/// Returns the text parameter `name`.
///
/// # Errors
/// `InvalidInput` if it is missing or no text.
pub(super) fn text_param(params: &RawObject, name: &str) -> Result<String, Failure> {
    params
        .text(name)
        .ok_or_else(|| Failure::invalid(format!("`{name}` must be a string")))
}
