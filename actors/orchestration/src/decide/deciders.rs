use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use callboard_message::{Artifact, DataClass, Failure, FailureKind, Progress, hex};
use callboard_runtime::{AgentRef, AuditEntry, BodyMark, CallMeta, Caller, Cx};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::decision::Decision;
use super::limits::{MODEL_WITHIN, RULES_WITHIN};
use super::messages::Outcome;
use super::point::{Cost, Decided, Point};
use crate::memory::now_ms;

/// Kind of decider at a point.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Who {
    /// Rules: no model, no key.
    Rules,
    /// The orchestrator's language model.
    Model,
    /// Whoever called.
    Person,
    /// An agent, here or elsewhere, by its id in the directory.
    Agent(String),
}

impl Who {
    /// As it is written in a file: `rules`, `model`, `person`, or an agent's id.
    pub fn parse(text: &str) -> Self {
        match text {
            "rules" => Self::Rules,
            "model" => Self::Model,
            "person" => Self::Person,
            id => Self::Agent(id.to_owned()),
        }
    }
}

/// One who decides, and how it is asked.
#[derive(Debug, Clone)]
pub struct Decider {
    /// As in records: `rules`, `model:ID`, `person`, `agent:ID`.
    pub by: String,
    /// Recipient of the messages.
    pub asked: Asked,
    /// Time limit; `None`: that of the call.
    pub within: Option<Duration>,
}

/// Recipient of the messages of a [`Decider`].
#[derive(Debug, Clone)]
pub enum Asked {
    /// This agent.
    Agent(AgentRef),
    /// The agent of that id in the directory, whoever that is at the time.
    Id(String),
    /// Nobody: what to do about it.
    Nobody(String),
}

impl Decider {
    /// Rules.
    pub fn rules(agent: AgentRef) -> Self {
        Self {
            by: "rules".to_owned(),
            asked: Asked::Agent(agent),
            within: Some(RULES_WITHIN),
        }
    }

    /// A model decider over the model `id`.
    pub fn model(id: &str, agent: AgentRef) -> Self {
        Self {
            by: format!("model:{id}"),
            asked: Asked::Agent(agent),
            within: Some(MODEL_WITHIN),
        }
    }

    /// Whoever called.
    pub fn person(agent: AgentRef) -> Self {
        Self {
            by: "person".to_owned(),
            asked: Asked::Agent(agent),
            within: None,
        }
    }

    /// An agent by its id in the directory.
    pub fn agent(id: &str) -> Self {
        Self {
            by: format!("agent:{id}"),
            asked: Asked::Id(id.to_owned()),
            within: Some(MODEL_WITHIN),
        }
    }

    /// Nobody: every decision fails as [`FailureKind::NobodyToAsk`], for that reason, and the point's fallback holds.
    pub fn nobody(by: &str, reason: &str) -> Self {
        Self {
            by: by.to_owned(),
            asked: Asked::Nobody(reason.to_owned()),
            within: None,
        }
    }
}

/// Deciders of all points: the one place that asks, times, checks and records.
pub struct Deciders {
    /// The agent that they decide for, as in the audit.
    agent: String,
    /// Class of the data in requests.
    class: DataClass,
    /// By [`Point::index`].
    seats: Vec<Decider>,
    counts: [Count; Point::ALL.len()],
}

#[derive(Default)]
struct Count {
    decided: AtomicU64,
    fallbacks: AtomicU64,
}

impl fmt::Debug for Deciders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = Point::ALL
            .iter()
            .zip(&self.seats)
            .map(|(point, seat)| (point, &seat.by));
        f.debug_map().entries(by).finish()
    }
}

/// Decision after the fallback.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled<T> {
    /// The decider's outcome, or the fallback. `None` only where there is none of both: then see `failure`.
    pub outcome: Option<T>,
    /// Why the decider didn't decide: it failed or was late.
    pub failure: Option<Failure>,
    /// Record of it.
    pub record: DecisionRecord,
}

impl Deciders {
    /// For the agent `agent`, whose requests are of `class`; `seat` gives who decides at each point.
    pub fn new(agent: &str, class: DataClass, seat: impl FnMut(Point) -> Decider) -> Self {
        let seats = Point::ALL.into_iter().map(seat).collect();
        Self {
            agent: agent.to_owned(),
            class,
            seats,
            counts: Default::default(),
        }
    }

    /// The same one decides everything.
    pub fn all(agent: &str, class: DataClass, decider: &Decider) -> Self {
        Self::new(agent, class, |_| decider.clone())
    }

    /// Decider at `point`.
    pub fn at(&self, point: Point) -> &Decider {
        &self.seats[point.index()]
    }

    /// Has `message` decided, as part of this call and of `run`. Where nobody decides, the fallback holds: that is logged,
    /// counted and on record, as every decision is.
    pub async fn decide<D: Decision>(
        &self,
        cx: &Cx,
        run: &RunId,
        message: D,
    ) -> Settled<D::Outcome> {
        let seat = self.at(D::POINT);
        let (begun, at_ms) = (Instant::now(), now_ms());
        let body = D::wire().and_then(|wire| (wire.encode)(&message).ok());
        let inputs = cx.system().audit().mark(
            self.class,
            body.as_deref().map_or(&[], |body| body.get().as_bytes()),
        );
        let (decided, failure) = match ask(seat, cx, message.clone()).await {
            Ok(decided) => (decided, None),
            Err(failure) => (Decided::unclear(""), Some(failure)),
        };
        let fallback = match (&failure, &decided.outcome) {
            (
                Some(Failure {
                    kind: FailureKind::TimedOut,
                    ..
                }),
                _,
            ) => Some(FallbackWhy::TimedOut),
            (Some(failure), _) => Some(FallbackWhy::Failed(failure.kind)),
            (None, None) => Some(FallbackWhy::Unclear),
            (None, Some(outcome)) => (!message.fits(outcome)).then_some(FallbackWhy::Unknown),
        };
        let (outcome, confidence) = match fallback {
            // What comes from elsewhere may be any number.
            None if decided.confidence.is_finite() => {
                (decided.outcome, decided.confidence.clamp(0.0, 1.0))
            }
            None => (decided.outcome, 0.0),
            Some(_) => (message.fallback(), 0.0),
        };
        let word = outcome
            .as_ref()
            .map_or_else(|| "none".to_owned(), Outcome::word);
        let record = DecisionRecord {
            point: D::POINT,
            by: seat.by.clone(),
            inputs,
            outcome: word,
            confidence,
            ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            cost: decided.cost,
            fallback,
            at_ms,
        };
        self.tell(cx, run, &record, failure.as_ref());
        Settled {
            outcome,
            failure,
            record,
        }
    }

    /// Number of decisions and of fallbacks by point: for [`callboard_runtime::Agent::observe`].
    pub fn observe(&self) -> Value {
        let of = |point: Point| {
            let count = &self.counts[point.index()];
            let (decided, fallbacks) = (count.decided.load(Relaxed), count.fallbacks.load(Relaxed));
            (
                point.as_str().to_owned(),
                json!({"by": self.at(point).by, "decided": decided, "fallbacks": fallbacks}),
            )
        };
        Value::Object(Point::ALL.into_iter().map(of).collect())
    }

    fn tell(&self, cx: &Cx, run: &RunId, record: &DecisionRecord, failure: Option<&Failure>) {
        let count = &self.counts[record.point.index()];
        count.decided.fetch_add(1, Relaxed);
        let mut entry = AuditEntry::new("decision")
            .with_agent(&self.agent)
            .with_class(self.class)
            .with_body(record.inputs.clone())
            .with_principal(cx.principal())
            .with_outcome(record.outcome.clone())
            .with("point", record.point.as_str())
            .with("by", record.by.as_str())
            .with("run", run.as_str())
            // Per mille of 0 to 1.
            .with("confidence", (record.confidence * 1_000.0).round() as u32)
            .with("ms", record.ms)
            .with("micro_usd", record.cost.micro_usd);
        if let Some(call) = cx.call() {
            entry = entry.with_call(call.id);
        }
        if let Some(why) = record.fallback {
            count.fallbacks.fetch_add(1, Relaxed);
            entry = entry.with("fallback", why.to_string());
            let (point, by, why, failure) =
                (record.point, &record.by, why, failure.map(|f| &f.message));
            callboard_message::log::warn!(by: &self.agent, agent = self.agent, %point, by, %why, failure, outcome = record.outcome, "the fallback decides");
        }
        cx.system().audit().note(entry);
        cx.progress(Progress {
            message: Some(record.to_string()),
            ..Progress::default()
        });
    }
}

async fn ask<D: Decision>(
    seat: &Decider,
    cx: &Cx,
    message: D,
) -> Result<Decided<D::Outcome>, Failure> {
    let (found, judged);
    let mut cx = cx;
    let agent = match &seat.asked {
        Asked::Agent(agent) => agent,
        Asked::Id(id) => {
            let gone = || {
                Failure::unavailable(format!(
                    "no agent is called {id}: see the topology's decide"
                ))
            };
            found = cx.system().directory().get(id).ok_or_else(gone)?;
            // What such an agent gives early are parts of a decision, and no answer.
            judged = withheld(cx);
            cx = &judged;
            &found
        }
        // Not `Unavailable`: it doesn't come back, so trying again and asking people how to go on lead nowhere.
        Asked::Nobody(reason) => return Err(Failure::nobody_to_ask(reason.clone())),
    };
    let ask = cx.ask(agent, message);
    match seat.within {
        Some(within) => ask.within(within).await?,
        None => ask.await?,
    }
}

/// Names everything that is done for one request: the same request again, under the same key, has the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Arc<str>);

impl RunId {
    /// That of what `owner` said under `key` in `context` to `agent`; a fresh one where the key is empty.
    pub fn of(agent: &str, owner: &str, context: &str, key: &str) -> Self {
        if key.is_empty() {
            return Self::fresh();
        }
        let mut hash = Sha256::new();
        for part in [agent, owner, context, key] {
            // With its length before it, so that no two lists of parts are one text.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(format!("run-{}", hex(&hash.finalize()[..16])).into())
    }

    /// One that nothing else has.
    pub fn fresh() -> Self {
        Self(format!("run-{}", Uuid::now_v7().simple()).into())
    }

    /// As text: `run-` and 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why the fallback held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallbackWhy {
    /// The decider said that it isn't clear.
    Unclear,
    /// It failed.
    Failed(FailureKind),
    /// It was late.
    TimedOut,
    /// It named what isn't there, or passed a limit.
    Unknown,
}

impl fmt::Display for FallbackWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclear => f.write_str("unclear"),
            Self::Failed(kind) => write!(f, "failed: {kind}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Unknown => f.write_str("names what isn't there"),
        }
    }
}

/// That something was decided. It holds no text that anybody said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Where.
    pub point: Point,
    /// By whom: `rules`, `model:ID`, `person`, `agent:ID`.
    pub by: String,
    /// Mark of the decider's input.
    pub inputs: BodyMark,
    /// Outcome in a word or two; `none` without one.
    pub outcome: String,
    /// Confidence, 0 to 1.
    pub confidence: f32,
    /// Duration in milliseconds.
    pub ms: u64,
    /// Cost.
    pub cost: Cost,
    /// Why the fallback holds, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackWhy>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

impl fmt::Display for DecisionRecord {
    /// As people see it in progress: `DP2: remote weather (0.82, rules)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({:.2}, {}",
            self.point.code(),
            self.outcome,
            self.confidence,
            self.by
        )?;
        match &self.fallback {
            Some(why) => write!(f, "; fallback, {why})"),
            None => f.write_str(")"),
        }
    }
}

/// The same surroundings, in which whoever called gets no artifacts: what they are parts of is judged before it is shown, and
/// it holds them all.
pub(crate) fn withheld(cx: &Cx) -> Cx {
    with_caller(cx, |inner| Arc::new(Withheld(inner))).unwrap_or_else(|| cx.clone())
}

/// The same surroundings with another caller, who stands before the call's own; `None` where nobody called.
pub(crate) fn with_caller(
    cx: &Cx,
    before: impl FnOnce(Arc<dyn Caller>) -> Arc<dyn Caller>,
) -> Option<Cx> {
    let call = cx.call()?;
    let caller = before(call.caller.clone()?);
    Some(cx.within(Arc::new(CallMeta {
        caller: Some(caller),
        ..CallMeta::clone(call)
    })))
}

struct Withheld(Arc<dyn Caller>);

impl Caller for Withheld {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.0)
    }

    fn artifact(&self, _: Artifact) {}
}
