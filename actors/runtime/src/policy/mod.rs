//! The policy chain: the one place that sees every message that crosses a boundary, with the questions and answers of its
//! call.

pub(crate) mod audit_policy;
pub(crate) mod rate_limit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use callboard_message::surface::{ListPrompts, ListResourceTemplates, ListResources, ListTools};
use callboard_message::{CallId, Failure, FailureKind, Message, Principal, RawObject, RawReply};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::sync::Mutex;

/// Which way a message crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a peer to one of our agents.
    Inbound,
    /// From one of our agents to a peer.
    Outbound,
}

/// A message at a boundary.
#[derive(Clone, Copy)]
pub struct Crossing<'a> {
    /// Which way.
    pub direction: Direction,
    /// Who is behind it.
    pub principal: &'a Principal,
    /// The call that it belongs to.
    pub call: CallId,
    /// The agent that it is for.
    pub agent: &'a str,
    /// Its name.
    pub message: &'a str,
    /// What it says: a JSON object.
    pub payload: &'a RawValue,
}

/// What a message that crossed brings after it, over the same boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Its reply, the other way; of a failure `message` and `data`.
    Reply,
    /// A question asked in mid-call, the other way. The crossing's message is its kind: `sample`, `elicit` or `roots`.
    Question,
    /// What was answered to one, the message's way. The crossing's message is the same.
    Answer,
}

/// A link's verdict: an error is its refusal.
pub type PolicyFuture<'a> = BoxFuture<'a, Result<(), Failure>>;

/// One link of the chain: it authorises, limits, guards or records.
pub trait Policy: Send + Sync {
    /// Lets the message pass, or says why not. An error is an answer to the sender: it holds no secret.
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> PolicyFuture<'a>;

    /// Whether it judges parts too. Asked once, when it joins a chain: one without such policies does nothing for them.
    fn judges_parts(&self) -> bool {
        false
    }

    /// Lets a part pass, or says why not: the failure takes the part's place. The crossing is the message's, with the
    /// part's payload.
    fn judge_part<'a>(&'a self, _part: Part, _crossing: Crossing<'a>) -> PolicyFuture<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Learns that a link refused: a message, or a `part` of one. Its sender waits for this.
    fn refused<'a>(
        &'a self,
        _part: Option<Part>,
        _crossing: Crossing<'a>,
        _failure: &'a Failure,
    ) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The policies of a system, in order. Empty, it costs one load.
#[derive(Default)]
pub struct PolicyChain {
    any: AtomicBool,
    /// One of them at least judges parts.
    parts: AtomicBool,
    links: Mutex<Arc<Vec<Arc<dyn Policy>>>>,
}

impl PolicyChain {
    /// Adds `policy` at the end.
    pub fn push(&self, policy: impl Policy + 'static) {
        let mut links = self.links.lock();
        let mut longer = Vec::clone(&links);
        let judges_parts = policy.judges_parts();
        longer.push(Arc::new(policy));
        *links = Arc::new(longer);
        self.any.store(true, Release);
        self.parts.fetch_or(judges_parts, Release);
    }

    /// Asks each policy in turn; the first that refuses decides.
    ///
    /// # Errors
    /// Its refusal.
    pub async fn judge(&self, crossing: Crossing<'_>) -> Result<(), Failure> {
        if !self.any.load(Acquire) {
            return Ok(());
        }
        self.ask_links(None, crossing).await
    }

    /// Whether any of them judges parts.
    pub fn judges_parts(&self) -> bool {
        self.parts.load(Acquire)
    }

    /// Asks each policy that judges parts about one.
    ///
    /// # Errors
    /// The first refusal.
    pub async fn judge_part(&self, part: Part, crossing: Crossing<'_>) -> Result<(), Failure> {
        if !self.judges_parts() {
            return Ok(());
        }
        self.ask_links(Some(part), crossing).await
    }

    async fn ask_links(&self, part: Option<Part>, crossing: Crossing<'_>) -> Result<(), Failure> {
        let links = self.links.lock().clone();
        for link in links.iter() {
            let judged = match part {
                None => link.judge(crossing).await,
                Some(part) if link.judges_parts() => link.judge_part(part, crossing).await,
                Some(_) => Ok(()),
            };
            if let Err(failure) = judged {
                for link in links.iter() {
                    link.refused(part, crossing, &failure).await;
                }
                return Err(failure);
            }
        }
        Ok(())
    }

    /// The reply to the message that crossed, or the failure in its place, if it may pass; else the refusal.
    ///
    /// # Errors
    /// The failure that there was, or the first refusal.
    pub async fn judge_reply(&self, crossing: Crossing<'_>, reply: RawReply) -> RawReply {
        if !self.judges_parts() {
            return reply;
        }
        let told = match &reply {
            Ok(reply) => reply.clone(),
            // A policy's own refusal; what a peer says never stands there.
            Err(refusal) if refusal.kind == FailureKind::Blocked && has_reason(refusal) => {
                return reply;
            }
            Err(failure) => RawObject::of("message", &failure.message)
                .with("data", &failure.data)
                .to_raw(),
        };
        let crossing = Crossing {
            payload: &told,
            ..crossing
        };
        let Err(refusal) = self.judge_part(Part::Reply, crossing).await else {
            return reply;
        };
        match reply
            .ok()
            .and_then(|reply| List::read(crossing.message, &reply))
        {
            Some(list) if refusal.kind == FailureKind::Blocked => {
                self.judge_items(crossing, list).await
            }
            _ => Err(refusal),
        }
    }

    /// A list that may not pass as a whole without those of its items that may not: one server's bad tool isn't the end of
    /// the others, and honest descriptions beside each other may read like an attack that none of them is.
    ///
    /// # Errors
    /// The refusal of what stands beside the items.
    async fn judge_items(&self, crossing: Crossing<'_>, list: List) -> RawReply {
        let rest = list.with(&[]);
        self.judge_part(
            Part::Reply,
            Crossing {
                payload: &rest.to_raw(),
                ..crossing
            },
        )
        .await?;
        let mut kept = Vec::with_capacity(list.items.len());
        for item in &list.items {
            if self
                .judge_part(
                    Part::Reply,
                    Crossing {
                        payload: item,
                        ..crossing
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
            callboard_message::log::warn!(by: crossing.agent, server = crossing.agent, quarantined, "a list passes without some of its items");
            let meta = passed.object("_meta").unwrap_or_default();
            let before: usize = meta.read(QUARANTINED).unwrap_or_default();
            passed.set("_meta", meta.with(QUARANTINED, before + quarantined));
        }
        Ok(passed.to_raw())
    }
}

/// In the `_meta` of a list: how many of its items a policy kept back.
const QUARANTINED: &str = "callboard/quarantined";

/// A reply that lists things that each say what they are.
struct List {
    /// The list without them.
    rest: RawObject,
    /// The member where they stand.
    member: &'static str,
    items: Vec<Box<RawValue>>,
}

impl List {
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

fn has_reason(failure: &Failure) -> bool {
    failure
        .data
        .as_ref()
        .is_some_and(|data| data.get("reason").is_some())
}
