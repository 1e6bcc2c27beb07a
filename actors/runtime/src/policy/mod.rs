//! Policy chain: checks every message that crosses a boundary, with its reply and the questions and
//! answers of its call.

pub(crate) mod access;
pub(crate) mod approval;
pub(crate) mod audit_policy;
pub(crate) mod quota;
pub(crate) mod rate_limit;
pub(crate) mod tool_pins;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::time::SystemTime;

use callboard_message::capabilities::{
    DescribeAgent, ListPrompts, ListResourceTemplates, ListResources, ListTools,
};
use callboard_message::{CallId, Failure, FailureKind, Message, Principal, RawObject, RawReply};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::node_events::{ExchangeKind, NodeEvent, NodeEvents, PolicyRefusal};
use crate::sync::Mutex;
use access::AccessRules;
use approval::WaitingCalls;
use quota::Quotas;
use tool_pins::ToolPins;

/// Direction of a message between a peer and an agent of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a peer to a local agent.
    Inbound,
    /// From a local agent to a peer.
    Outbound,
}

/// Message between a peer and an agent of this process, to be checked by policies.
#[derive(Clone, Copy)]
pub struct PolicyRequest<'a> {
    /// Direction of the message.
    pub direction: Direction,
    /// Principal on whose behalf the message is sent.
    pub principal: &'a Principal,
    /// Id of the call that the message belongs to.
    pub call: CallId,
    /// Name of the agent or peer that the message is for.
    pub agent: &'a str,
    /// Name of the message.
    pub message: &'a str,
    /// Payload of the message or part, as JSON; `null` if it has none.
    pub payload: &'a RawValue,
}

/// Part of an exchange that follows its first message: reply, question or answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangePart {
    /// Reply to the message, in the opposite direction. For a failure, the payload is an object
    /// with `message` and `data`.
    Reply,
    /// Question during the call, in the direction opposite to the message.
    /// [`PolicyRequest::message`] is then the kind of question: `sample`, `elicit` or `roots`, or
    /// the method of a forwarded request ([`Caller::forward`](crate::Caller::forward)).
    Question,
    /// Answer to a question, in the direction of the message. [`PolicyRequest::message`] is then
    /// the kind of question.
    Answer,
}

/// Future of a policy decision. An error rejects the message.
pub type PolicyFuture<'a> = BoxFuture<'a, Result<(), Failure>>;

/// Policy that permits or rejects messages, for example authorisation, rate limiting, content
/// checks or audit.
pub trait Policy: Send + Sync {
    /// Checks a message. An error rejects it and is sent to the sender, so it must not contain
    /// secrets.
    fn check<'a>(&'a self, request: PolicyRequest<'a>) -> PolicyFuture<'a>;

    /// Returns true if the policy also checks replies, questions and answers. Read once, when the
    /// policy is added to a chain. If no policy of the chain does, they aren't checked at all.
    fn checks_parts(&self) -> bool {
        false
    }

    /// Checks a reply, question or answer. An error replaces it. The request is that of the
    /// exchange's first message, with the payload of the part, and for a question or answer with
    /// its kind as the message.
    fn check_part<'a>(
        &'a self,
        _part: ExchangePart,
        _crossing: PolicyRequest<'a>,
    ) -> PolicyFuture<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Called on every policy of the chain when one of them has rejected a message (`part` is
    /// `None`) or a part of its exchange. The sender gets the response only after this method has
    /// completed.
    fn on_rejected<'a>(
        &'a self,
        _part: Option<ExchangePart>,
        _crossing: PolicyRequest<'a>,
        _failure: &'a Failure,
    ) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Policies of a system, in order. Checking an empty chain costs one atomic load.
#[derive(Default)]
pub struct PolicyChain {
    has_policies: AtomicBool,
    /// True if any policy checks replies, questions and answers.
    has_part_policies: AtomicBool,
    links: Mutex<Arc<Vec<Arc<dyn Policy>>>>,
    has_access_rules: AtomicBool,
    /// True if any rule needs approvals.
    needs_approvals: AtomicBool,
    access: Mutex<Option<Arc<AccessRules>>>,
    /// Calls that wait for approvals.
    waiting: WaitingCalls,
    tool_pins: ToolPins,
    quotas: Quotas,
    /// Event stream of the system, which is told of rejections.
    events: Arc<NodeEvents>,
}

impl PolicyChain {
    /// Creates an empty chain that tells `events` of rejections.
    pub(crate) fn new(events: Arc<NodeEvents>) -> Self {
        Self {
            events,
            ..Self::default()
        }
    }

    /// Adds a policy at the end of the chain.
    pub fn push(&self, policy: impl Policy + 'static) {
        let mut links = self.links.lock();
        let mut longer = Vec::clone(&links);
        let judges_parts = policy.checks_parts();
        longer.push(Arc::new(policy));
        *links = Arc::new(longer);
        self.has_policies.store(true, Release);
        self.has_part_policies.fetch_or(judges_parts, Release);
    }

    /// Returns the calls that wait for approvals.
    pub(crate) fn waiting_calls(&self) -> &WaitingCalls {
        &self.waiting
    }

    /// Returns the pins of remote servers' tools.
    pub fn tool_pins(&self) -> &ToolPins {
        &self.tool_pins
    }

    /// Returns true if any policy checks replies, questions and answers.
    pub fn checks_parts(&self) -> bool {
        self.has_part_policies.load(Acquire)
    }

    /// Runs the policies in order on a message (`part` is `None`) or a part of its exchange. The
    /// first error rejects it; then [`Policy::on_rejected`] is called on all policies.
    ///
    /// # Errors
    /// The failure of the first policy that rejects.
    pub async fn check(
        &self,
        part: Option<ExchangePart>,
        request: PolicyRequest<'_>,
    ) -> Result<(), Failure> {
        let any = if part.is_some() {
            &self.has_part_policies
        } else {
            &self.has_policies
        };
        if !any.load(Acquire) {
            return Ok(());
        }
        let links = self.links.lock().clone();
        for link in links.iter() {
            let judged = match part {
                None => link.check(request).await,
                Some(part) if link.checks_parts() => link.check_part(part, request).await,
                Some(_) => Ok(()),
            };
            if let Err(failure) = judged {
                self.tell_rejected(part, request, &failure).await;
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Tells all policies of a rejection.
    pub(crate) async fn tell_rejected(
        &self,
        part: Option<ExchangePart>,
        request: PolicyRequest<'_>,
        failure: &Failure,
    ) {
        self.events.emit(|| NodeEvent::Refused {
            at: SystemTime::now(),
            refusal: Box::new(refusal(part, request, failure)),
        });
        let links = self.links.lock().clone();
        for link in links.iter() {
            link.on_rejected(part, request, failure).await;
        }
    }

    /// Checks the reply to a message and returns it if permitted. If a list of tools, prompts or
    /// resources is rejected as [`FailureKind::Blocked`], its items are checked one by one, and
    /// rejected items are removed; the list's `_meta` has their number as `callboard/quarantined`.
    /// Of a description of an agent that is rejected so, the instructions are removed.
    ///
    /// # Errors
    /// The failure in `reply`, or that of the first policy that rejects.
    pub async fn check_reply(&self, request: PolicyRequest<'_>, reply: RawReply) -> RawReply {
        if !self.checks_parts() {
            return reply;
        }
        let told = match &reply {
            Ok(reply) => reply.clone(),
            // A policy's own rejection; a peer's failure never has this kind and a reason.
            Err(refusal) if refusal.kind == FailureKind::Blocked && has_reason(refusal) => {
                return reply;
            }
            Err(failure) => RawObject::single("message", &failure.message)
                .with("data", &failure.data)
                .to_raw(),
        };
        let request = PolicyRequest {
            payload: &told,
            ..request
        };
        let Err(refusal) = self.check(Some(ExchangePart::Reply), request).await else {
            return reply;
        };
        let blocked = reply.ok().filter(|_| refusal.kind == FailureKind::Blocked);
        let Some(reply) = blocked else {
            return Err(refusal);
        };
        if request.message == DescribeAgent::NAME {
            let rest = self.without_instructions(request, &reply).await;
            return rest.ok_or(refusal);
        }
        match ItemList::read(request.message, &reply) {
            Some(list) => self.check_items(request, list).await,
            None => Err(refusal),
        }
    }

    /// Removes the instructions from a rejected description of an agent. Returns `None` if there
    /// are none, or the rest is rejected too.
    async fn without_instructions(
        &self,
        request: PolicyRequest<'_>,
        reply: &RawValue,
    ) -> Option<Box<RawValue>> {
        let mut about = RawObject::parse(reply).ok()?;
        about.remove("instructions")?;
        let rest = about.to_raw();
        let request = PolicyRequest {
            payload: &rest,
            ..request
        };
        self.check(Some(ExchangePart::Reply), request).await.ok()?;
        callboard_message::log::warn!(by: request.agent, server = request.agent, "removed instructions that a policy blocks");
        Some(rest)
    }

    /// Checks the items of a rejected list one by one and removes those that are rejected. One bad
    /// tool must not hide the others, and harmless descriptions may look like an attack only in
    /// combination.
    ///
    /// # Errors
    /// The failure with which the policies reject the list without any items.
    async fn check_items(&self, request: PolicyRequest<'_>, list: ItemList) -> RawReply {
        let rest = list.with(&[]);
        self.check(
            Some(ExchangePart::Reply),
            PolicyRequest {
                payload: &rest.to_raw(),
                ..request
            },
        )
        .await?;
        let mut kept = Vec::with_capacity(list.items.len());
        for item in &list.items {
            if self
                .check(
                    Some(ExchangePart::Reply),
                    PolicyRequest {
                        payload: item,
                        ..request
                    },
                )
                .await
                .is_ok()
            {
                kept.push(item.clone());
            }
        }
        let quarantined = list.items.len() - kept.len();
        let mut passed = list.with(&kept);
        if quarantined > 0 {
            callboard_message::log::warn!(by: request.agent, server = request.agent, principal = request.principal.id, quarantined, "removed items from a list that a policy blocks");
            let meta = passed.object("_meta").unwrap_or_default();
            let before: usize = meta.read(QUARANTINED_META_KEY).unwrap_or_default();
            passed.set(
                "_meta",
                meta.with(QUARANTINED_META_KEY, before + quarantined),
            );
        }
        Ok(passed.to_raw())
    }
}

/// Returns a rejection as events have it.
fn refusal(
    part: Option<ExchangePart>,
    request: PolicyRequest<'_>,
    failure: &Failure,
) -> PolicyRefusal {
    let rules = failure
        .data
        .as_ref()
        .and_then(|data| data.get(RULES_MEMBER));
    let rules = rules.and_then(serde_json::Value::as_array);
    let principal = request.principal;
    PolicyRefusal {
        call: request.call,
        principal: format!("{}:{}", principal.kind, principal.id).into(),
        agent: request.agent.into(),
        message: request.message.into(),
        direction: match request.direction {
            Direction::Inbound => ExchangeKind::Inbound,
            Direction::Outbound => ExchangeKind::Outbound,
        },
        part: match part {
            None => "message",
            Some(ExchangePart::Reply) => "reply",
            Some(ExchangePart::Question) => "question",
            Some(ExchangePart::Answer) => "answer",
        },
        kind: failure.kind,
        rules: rules.map_or_else(Vec::new, |rules| {
            let ids = rules.iter().filter_map(serde_json::Value::as_str);
            ids.map(str::to_owned).collect()
        }),
        reason: failure.message.as_str().into(),
    }
}

/// Key in a list's `_meta` whose value names what is missing in it: `[{"server": name, "why":
/// sentence}]`.
pub const AWAY_META_KEY: &str = "callboard/away";
/// Key in the `_meta` object of a list reply: number of items that policies removed.
const QUARANTINED_META_KEY: &str = "callboard/quarantined";

/// Reply that lists tools, prompts, resources or resource templates, split so that policies can
/// check each item.
struct ItemList {
    /// Reply as received, whose list is replaced.
    rest: RawObject,
    /// Key of the list in the reply, for example `tools`.
    member: &'static str,
    items: Vec<Box<RawValue>>,
}

impl ItemList {
    fn read(message: &str, reply: &RawValue) -> Option<Self> {
        let member = match message {
            ListTools::NAME => "tools",
            ListPrompts::NAME => "prompts",
            ListResources::NAME => "resources",
            ListResourceTemplates::NAME => "resourceTemplates",
            _ => return None,
        };
        let rest = RawObject::parse(reply).ok()?;
        let items = rest.read(member)?;
        Some(Self {
            rest,
            member,
            items,
        })
    }

    fn with(&self, items: &[Box<RawValue>]) -> RawObject {
        self.rest.clone().with(self.member, items)
    }
}

/// Member of a block's data with the ids of the rules that blocked the message.
pub(crate) const RULES_MEMBER: &str = "rules";

/// Returns true if the failure has a reason in its data, as a policy's own rejection has.
pub(crate) fn has_reason(failure: &Failure) -> bool {
    failure
        .data
        .as_ref()
        .is_some_and(|data| data.get("reason").is_some())
}

/// Returns a time in seconds since the Unix epoch, 0 before it.
pub(crate) fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
