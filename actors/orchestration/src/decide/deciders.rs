#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use callboard_message::{Artifact, DataClass, Failure, FailureKind, Progress, encode_hex};
use callboard_runtime::{AgentRef, AuditEntry, BodyDigest, CallContext, Caller, Context};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::decision::DecisionRequest;
use super::limits::{EMBEDDING_TIMEOUT, MODEL_TIMEOUT, RULES_TIMEOUT};
use super::messages::DecisionOutcome;
use super::point::{DeciderReply, DecisionCost, DecisionPoint};
use crate::memory::now_ms;

/// Kind of decider, as configured for a decision point.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeciderKind {
    /// Built-in rules, without a model or an API key.
    Rules,
    /// Language model of the orchestrator.
    Model,
    /// Person behind the call, asked by forms.
    Person,
    /// Similarity of the request to what tools and agents say of themselves, by embeddings.
    Embedding,
    /// Agent in the directory, local or remote, by its id.
    Agent(String),
}

impl DeciderKind {
    /// Parses a configuration value: `rules`, `model`, `person` or `embedding`; any other text is an
    /// agent's id.
    pub fn parse(text: &str) -> Self {
        match text {
            "rules" => Self::Rules,
            "model" => Self::Model,
            "person" => Self::Person,
            "embedding" => Self::Embedding,
            id => Self::Agent(id.to_owned()),
        }
    }
}

/// Decider of a decision point, with its address and time limit.
#[derive(Debug, Clone)]
pub struct Decider {
    /// Label in records: `rules`, `model:ID`, `person`, `embedding:ID` or `agent:ID`.
    pub label: String,
    /// Recipient of the decision messages.
    pub target: DeciderRef,
    /// Time limit of a decision; `None` uses the deadline of the call.
    pub timeout: Option<Duration>,
}

/// Address of a [`Decider`].
#[derive(Debug, Clone)]
pub enum DeciderRef {
    /// Fixed agent.
    Agent(AgentRef),
    /// Agent id, looked up in the directory for each decision.
    Id(String),
    /// No decider is configured. The text is the error message and names the remedy.
    Unavailable(String),
}

impl Decider {
    /// Creates the decider by rules, with the time limit [`RULES_TIMEOUT`].
    pub fn rules(agent: AgentRef) -> Self {
        Self {
            label: "rules".to_owned(),
            target: DeciderRef::Agent(agent),
            timeout: Some(RULES_TIMEOUT),
        }
    }

    /// Creates the decider over the language model `id`, with the time limit [`MODEL_TIMEOUT`].
    pub fn model(id: &str, agent: AgentRef) -> Self {
        Self {
            label: format!("model:{id}"),
            target: DeciderRef::Agent(agent),
            timeout: Some(MODEL_TIMEOUT),
        }
    }

    /// Creates the decider that asks the person behind the call, without a time limit of its own.
    pub fn person(agent: AgentRef) -> Self {
        Self {
            label: "person".to_owned(),
            target: DeciderRef::Agent(agent),
            timeout: None,
        }
    }

    /// Creates the decider that is the agent with this id in the directory, with the time limit
    /// [`MODEL_TIMEOUT`].
    pub fn agent(id: &str) -> Self {
        Self {
            label: format!("agent:{id}"),
            target: DeciderRef::Id(id.to_owned()),
            timeout: Some(MODEL_TIMEOUT),
        }
    }

    /// Creates the decider by embeddings of the agent `id`, with the time limit
    /// [`EMBEDDING_TIMEOUT`].
    pub fn embedding(id: &str, agent: AgentRef) -> Self {
        Self {
            label: format!("embedding:{id}"),
            target: DeciderRef::Agent(agent),
            timeout: Some(EMBEDDING_TIMEOUT),
        }
    }

    /// Sets the time limit of a decision.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }

    /// Creates an unavailable decider with the label `by`. Each decision fails with
    /// [`FailureKind::NoResponder`] and the message `reason`, and the fallback of the decision
    /// point applies.
    pub fn unavailable(by: &str, reason: &str) -> Self {
        Self {
            label: by.to_owned(),
            target: DeciderRef::Unavailable(reason.to_owned()),
            timeout: None,
        }
    }
}

/// Deciders of one decision point, in order. A decider whose decision can't be used is followed by
/// the next one.
pub type DeciderChain = Vec<Decider>;

/// Deciders of all decision points. Sends decision requests, applies time limits, checks outcomes
/// and records decisions.
pub struct Deciders {
    /// Id of the agent that the decisions are for, as in the audit log.
    agent: String,
    class: DataClass,
    /// Deciders of each decision point, by [`DecisionPoint::index`].
    chains: Vec<DeciderChain>,
    counts: [DecisionCounts; DecisionPoint::ALL.len()],
}

#[derive(Default)]
struct DecisionCounts {
    decided: AtomicU64,
    /// Deciders whose decision couldn't be used, and which were followed by another.
    skipped: AtomicU64,
    fallbacks: AtomicU64,
}

impl fmt::Debug for Deciders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = DecisionPoint::ALL
            .iter()
            .map(|point| (point, self.labels_at(*point)));
        f.debug_map().entries(by).finish()
    }
}

/// Result of a decision, after the fallback has been applied.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionResult<T> {
    /// Outcome of the first decider with one that can be used, or else the fallback of the decision
    /// point. `None` if the decision point has no fallback; if the last decider failed, `failure`
    /// holds the reason.
    pub outcome: Option<T>,
    /// Failure or timeout of the last decider that was asked; `None` if it replied.
    pub failure: Option<Failure>,
    /// Record of the decision.
    pub record: DecisionRecord,
}

impl Deciders {
    /// Creates the deciders of the agent `agent`, whose requests have the data class `class`.
    /// `chain` returns the deciders of each decision point. Without a decider at
    /// [`DecisionPoint::Intake`], the points of a request are decided one by one; without one at
    /// another point, its fallback applies.
    pub fn new(
        agent: &str,
        class: DataClass,
        chain: impl FnMut(DecisionPoint) -> DeciderChain,
    ) -> Self {
        Self {
            agent: agent.to_owned(),
            class,
            chains: DecisionPoint::ALL.into_iter().map(chain).collect(),
            counts: Default::default(),
        }
    }

    /// Creates deciders that use one decider for all decision points, one by one.
    pub fn uniform(agent: &str, class: DataClass, decider: &Decider) -> Self {
        Self::new(agent, class, |point| match point {
            DecisionPoint::Intake => Vec::new(),
            _ => vec![decider.clone()],
        })
    }

    /// Returns the deciders at `point`, in order.
    pub fn chain_at(&self, point: DecisionPoint) -> &[Decider] {
        &self.chains[point.index()]
    }

    /// Returns the labels of the deciders at `point`, such as `model:gpt, rules`.
    fn labels_at(&self, point: DecisionPoint) -> String {
        let labels: Vec<&str> = self.chain_at(point).iter().map(|d| &*d.label).collect();
        labels.join(", ")
    }

    /// Requests the decision `message` from the deciders of its decision point, as part of the run
    /// `run`. Equal to [`Self::decide_from`] with the first decider.
    pub async fn decide<D: DecisionRequest>(
        &self,
        cx: &Context,
        run: &RunId,
        message: D,
    ) -> DecisionResult<D::Outcome> {
        self.decide_from(cx, run, message, 0).await
    }

    /// Requests the decision `message` from the deciders of its decision point, from the one at
    /// `first` on. A decider that is unclear, fails, times out or returns an invalid outcome is
    /// followed by the next one at once, unless the first one decides alone
    /// ([`DecisionRequest::FIRST_DECIDES_ALONE`]); after the last one, or if there is none, the
    /// fallback applies. The outcome of a later decider is limited
    /// ([`DecisionRequest::limit_later_outcome`]). Every decision is counted and written to the
    /// audit log.
    pub async fn decide_from<D: DecisionRequest>(
        &self,
        cx: &Context,
        run: &RunId,
        message: D,
        first: usize,
    ) -> DecisionResult<D::Outcome> {
        let mut chain = self.chain_at(D::POINT).get(first..).unwrap_or_default();
        if D::FIRST_DECIDES_ALONE {
            chain = &chain[..chain.len().min(1)];
        }
        let (begun, at_ms) = (Instant::now(), now_ms());
        let body = D::codec().and_then(|wire| (wire.encode)(&message).ok());
        let inputs = cx.system().audit().digest(
            self.class,
            body.as_deref().map_or(&[], |body| body.get().as_bytes()),
        );
        let mut skipped: Vec<SkippedDecider> = Vec::new();
        let mut cost = DecisionCost::default();
        let mut last = Attempt::without_decider();
        for (at, decider) in chain.iter().enumerate() {
            last = Attempt::of(decider, cx, &message).await;
            cost = cost.plus(last.reply.cost);
            let Some(why) = last.unusable else { break };
            if at + 1 == chain.len() || cx.is_cancelled() {
                break;
            }
            callboard_message::log::warn!(by: &self.agent, agent = self.agent, point = %D::POINT, by = decider.label, %why, failure = last.failure.as_ref().map(|f| &f.message), "no valid decision: the next decider is asked");
            skipped.push(SkippedDecider {
                by: decider.label.clone(),
                why,
            });
        }
        let Attempt {
            by,
            reply,
            failure,
            unusable: fallback,
        } = last;
        let (mut outcome, confidence) = match fallback {
            // Other agents may send any number.
            None if reply.confidence.is_finite() => {
                (reply.outcome, reply.confidence.clamp(0.0, 1.0))
            }
            None => (reply.outcome, 0.0),
            Some(_) => (message.fallback(), 0.0),
        };
        if !skipped.is_empty() {
            outcome = outcome.map(D::limit_later_outcome);
        }
        let word = outcome
            .as_ref()
            .map_or_else(|| "none".to_owned(), DecisionOutcome::label);
        let record = DecisionRecord {
            point: D::POINT,
            by,
            inputs,
            outcome: word,
            confidence,
            ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            cost,
            skipped,
            fallback,
            at_ms,
        };
        self.record_decision(cx, run, &record, failure.as_ref());
        DecisionResult {
            outcome,
            failure,
            record,
        }
    }

    /// Returns a JSON object with the labels of the deciders, the number of decisions, of deciders
    /// that were followed by the next one, and of fallbacks, of each decision point that has a
    /// decider, for [`callboard_runtime::Agent::observe`].
    pub fn observe(&self) -> Value {
        let of = |point: DecisionPoint| {
            let count = &self.counts[point.index()];
            let [decided, skipped, fallbacks] =
                [&count.decided, &count.skipped, &count.fallbacks].map(|count| count.load(Relaxed));
            (
                point.as_str().to_owned(),
                json!({"by": self.labels_at(point), "decided": decided, "skipped": skipped, "fallbacks": fallbacks}),
            )
        };
        let decided = |point: &DecisionPoint| !self.chain_at(*point).is_empty();
        Value::Object(
            DecisionPoint::ALL
                .into_iter()
                .filter(decided)
                .map(of)
                .collect(),
        )
    }

    fn record_decision(
        &self,
        cx: &Context,
        run: &RunId,
        record: &DecisionRecord,
        failure: Option<&Failure>,
    ) {
        let count = &self.counts[record.point.index()];
        count.decided.fetch_add(1, Relaxed);
        let mut entry = AuditEntry::new("decision")
            .with_agent(&self.agent)
            .with_class(self.class)
            .with_body(record.inputs.clone())
            .with_principal(cx.principal())
            .with_outcome(record.outcome.clone())
            .with_detail("point", record.point.as_str())
            .with_detail("by", record.by.as_str())
            .with_detail("run", run.as_str())
            // Audit details are integers: per mille instead of a fraction.
            .with_detail("confidence", (record.confidence * 1_000.0).round() as u32)
            .with_detail("ms", record.ms)
            .with_detail("micro_usd", record.cost.micro_usd);
        if let Some(call) = cx.call() {
            entry = entry.with_call(call.id);
        }
        if !record.skipped.is_empty() {
            let skipped = record.skipped.len() as u64;
            count.skipped.fetch_add(skipped, Relaxed);
            let all: Vec<String> = record.skipped.iter().map(ToString::to_string).collect();
            entry = entry.with_detail("skipped", all.join(", "));
        }
        if let Some(why) = record.fallback {
            count.fallbacks.fetch_add(1, Relaxed);
            entry = entry.with_detail("fallback", why.to_string());
            let (point, by, why, failure) =
                (record.point, &record.by, why, failure.map(|f| &f.message));
            callboard_message::log::warn!(by: &self.agent, agent = self.agent, %point, by, %why, failure, outcome = record.outcome, "no valid decision: the fallback applies");
        }
        cx.system().audit().try_enqueue(entry);
        cx.progress(Progress {
            message: Some(record.to_string()),
            ..Progress::default()
        });
    }
}

/// Reply of one decider of a chain.
struct Attempt<T> {
    /// Label of the decider.
    by: String,
    reply: DeciderReply<T>,
    failure: Option<Failure>,
    /// Reason that the reply can't be used; `None` if it can.
    unusable: Option<FallbackReason>,
}

impl<T: DecisionOutcome> Attempt<T> {
    /// Returns the attempt of a point that has no decider.
    fn without_decider() -> Self {
        Self {
            by: "none".to_owned(),
            reply: DeciderReply::unclear(""),
            failure: None,
            unusable: Some(FallbackReason::Unclear),
        }
    }

    async fn of<D: DecisionRequest<Outcome = T>>(
        decider: &Decider,
        cx: &Context,
        message: &D,
    ) -> Self {
        let (reply, failure) = match ask_decider(decider, cx, message.clone()).await {
            Ok(reply) => (reply, None),
            Err(failure) => (DeciderReply::unclear(""), Some(failure)),
        };
        let unusable = match (&failure, &reply.outcome) {
            (Some(failure), _) if failure.kind == FailureKind::TimedOut => {
                Some(FallbackReason::TimedOut)
            }
            (Some(failure), _) => Some(FallbackReason::Failed(failure.kind)),
            (None, None) => Some(FallbackReason::Unclear),
            (None, Some(outcome)) => {
                (!message.is_valid_outcome(outcome)).then_some(FallbackReason::Unknown)
            }
        };
        Self {
            by: decider.label.clone(),
            reply,
            failure,
            unusable,
        }
    }
}

async fn ask_decider<D: DecisionRequest>(
    decider: &Decider,
    cx: &Context,
    message: D,
) -> Result<DeciderReply<D::Outcome>, Failure> {
    let (found, silent);
    let mut cx = cx;
    let agent = match &decider.target {
        DeciderRef::Agent(agent) => agent,
        DeciderRef::Id(id) => {
            let gone = || {
                Failure::unavailable(format!(
                    "there is no agent {id}: correct `decide` in the topology"
                ))
            };
            found = cx.system().directory().get(id).ok_or_else(gone)?;
            // Artifacts of such an agent are parts of a decision, not of the answer.
            silent = suppress_artifacts(cx);
            cx = &silent;
            &found
        }
        // Not `Unavailable`: the decider stays missing, so neither a retry nor a question to a
        // person helps.
        DeciderRef::Unavailable(reason) => return Err(Failure::no_responder(reason.clone())),
    };
    let ask = cx.ask(agent, message);
    match decider.timeout {
        Some(within) => ask.within(within).await?,
        None => ask.await?,
    }
}

/// Id of a run, which is all work for one request. A request that is repeated with the same key has
/// the same run id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Arc<str>);

impl RunId {
    /// Derives the id from agent, owner, conversation (`context`) and request key. Returns a random
    /// id if the key is empty.
    pub fn of(agent: &str, owner: &str, context: &str, key: &str) -> Self {
        if key.is_empty() {
            return Self::random();
        }
        let mut hash = Sha256::new();
        for part in [agent, owner, context, key] {
            // The length prefix keeps different lists of parts from hashing alike.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(format!("run-{}", encode_hex(&hash.finalize()[..16])).into())
    }

    /// Creates a unique id.
    pub fn random() -> Self {
        Self(format!("run-{}", Uuid::now_v7().simple()).into())
    }

    /// Returns the id as text: `run-` and 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reason that a decider's reply isn't used: the next decider is asked, or the fallback applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallbackReason {
    /// The decider returned no outcome.
    Unclear,
    /// The decider failed.
    Failed(FailureKind),
    /// The decider timed out.
    TimedOut,
    /// The outcome named a missing tool or agent, or exceeded a limit.
    Unknown,
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclear => f.write_str("unclear"),
            Self::Failed(kind) => write!(f, "failed: {kind}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Unknown => f.write_str("names what isn't there"),
        }
    }
}

/// Audit record of a decision. Contains no user text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Decision point.
    pub point: DecisionPoint,
    /// Label of the decider: `rules`, `model:ID`, `person`, `embedding:ID` or `agent:ID`.
    pub by: String,
    /// Digest of the decider's input.
    pub inputs: BodyDigest,
    /// Label of the outcome; `none` without an outcome.
    pub outcome: String,
    /// Confidence, 0 to 1; 0 if the fallback applied.
    pub confidence: f32,
    /// Duration in milliseconds.
    pub ms: u64,
    /// Model usage of the decision, with that of skipped deciders.
    pub cost: DecisionCost,
    /// Deciders asked before, whose decisions couldn't be used, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedDecider>,
    /// Reason that the fallback applied, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackReason>,
    /// Time of the decision, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// Decider of a chain whose decision couldn't be used, so that the next one was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedDecider {
    /// Label of the decider.
    pub by: String,
    /// Reason.
    pub why: FallbackReason,
}

impl fmt::Display for SkippedDecider {
    /// Writes label and reason, such as `model:gpt (timed_out)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.by, self.why)
    }
}

impl fmt::Display for DecisionRecord {
    /// Writes one line for people, such as `Routing to weather, confidence 0.82 (rules)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = describe_outcome(self.point, &self.outcome);
        match &self.fallback {
            Some(why) => write!(f, "{what} by default ({}: {why})", self.by),
            None => write!(f, "{what}, confidence {:.2} ({})", self.confidence, self.by),
        }
    }
}

/// Returns a context whose caller receives no artifacts during the call. The result contains all
/// artifacts, and is checked before the caller gets it.
pub(crate) fn suppress_artifacts(cx: &Context) -> Context {
    with_caller(cx, |inner| Arc::new(ArtifactSuppressor(inner))).unwrap_or_else(|| cx.clone())
}

/// Returns a context whose caller is replaced by `before(caller)`. `None` if the context has no
/// caller.
pub(crate) fn with_caller(
    cx: &Context,
    before: impl FnOnce(Arc<dyn Caller>) -> Arc<dyn Caller>,
) -> Option<Context> {
    let call = cx.call()?;
    let caller = before(call.caller.clone()?);
    Some(cx.with_call(Arc::new(CallContext {
        caller: Some(caller),
        ..CallContext::clone(call)
    })))
}

struct ArtifactSuppressor(Arc<dyn Caller>);

impl Caller for ArtifactSuppressor {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.0)
    }

    fn artifact(&self, _: Artifact) {}
}

/// Describes an outcome in words, by its label ([`DecisionOutcome::label`]), for example `Routing
/// to weather`.
pub(crate) fn describe_outcome(point: DecisionPoint, label: &str) -> String {
    let (kind, detail) = label.split_once(' ').unwrap_or((label, ""));
    match (point, kind) {
        (_, "none") => format!("No decision on {}", point.as_str().replace('_', " ")),
        (DecisionPoint::FollowUp, "handle_directly") => "Passing the reply on".to_owned(),
        (DecisionPoint::FollowUp, _) => "Asking for more information".to_owned(),
        (DecisionPoint::Intake, "needs_clarify") => "The request needs clarification".to_owned(),
        (DecisionPoint::Intake, "split") => format!("Planned {detail}"),
        (DecisionPoint::Intake, "tool") => format!("Using the tool {detail}"),
        (DecisionPoint::Intake, "answer") => format!("Wrote an answer of {detail}"),
        (DecisionPoint::Clarity, "clear") => "The request is clear".to_owned(),
        (DecisionPoint::Clarity, _) => "The request needs clarification".to_owned(),
        (DecisionPoint::Split, "yes") => "Several steps are needed".to_owned(),
        (DecisionPoint::Split, _) => "One step is enough".to_owned(),
        (DecisionPoint::Plan, _) => format!("Planned {label}"),
        (DecisionPoint::Intake | DecisionPoint::Route, "remote") => format!("Routing to {detail}"),
        (DecisionPoint::Intake | DecisionPoint::Route, "reject") => {
            "Rejecting the request".to_owned()
        }
        (DecisionPoint::Intake | DecisionPoint::Route, _) => {
            "Handling the request locally".to_owned()
        }
        (DecisionPoint::Tool, _) => format!("Using the tool {label}"),
        (DecisionPoint::Answer, _) => format!("Wrote an answer of {label}"),
        (DecisionPoint::Recovery, "retry_same") => "Trying the step again".to_owned(),
        (DecisionPoint::Recovery, "retry_modified") => {
            "Trying the step again with changes".to_owned()
        }
        (DecisionPoint::Recovery, "use_alternative") => format!("Using alternative {detail}"),
        (DecisionPoint::Recovery, "ask_human") => "Asking a person how to go on".to_owned(),
        (DecisionPoint::Recovery, _) => "Abandoning the step".to_owned(),
        (DecisionPoint::Synthesis, _) => "Combined the results".to_owned(),
        (DecisionPoint::Confirm, "confirm_needed") => "Confirmation is needed".to_owned(),
        (DecisionPoint::Confirm, _) => "No confirmation is needed".to_owned(),
    }
}
