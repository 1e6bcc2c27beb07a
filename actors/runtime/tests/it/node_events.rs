use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{
    Elicitation, ElicitationAction, ElicitationAnswer, Failure, FailureKind, Message as _,
    Principal, Question, RawMessage, RawReply,
};
use callboard_runtime::outbound_policy::exchange;
use callboard_runtime::testkit::{eventually, run_with_real_time};
use callboard_runtime::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(10);

/// Asks the caller a question, sends a message to a peer, and replies with the answer.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, fallible)]
struct Consult {}

struct Desk(AgentRef);

impl Agent for Desk {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Consult>(200);
    }
}

impl ConcurrentHandler<Consult> for Desk {
    fn handle(
        &mut self,
        _: Consult,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let peer = self.0.clone();
        async move {
            let form = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
            let answer = cx.elicit(Elicitation::form("Which name?", form)).await?;
            if answer.action() != ElicitationAction::Accept {
                return Err(Failure::denied("refused"));
            }
            let next = cx.next_hop();
            peer.ask_named("look_up", RawValue::NULL.to_owned(), next)
                .await?;
            Ok(answer.content().unwrap_or_default().to_string())
        }
    }
}

/// Agent that stands for a peer.
struct Remote;

impl Agent for Remote {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(200);
    }
}

impl ConcurrentHandler<RawMessage> for Remote {
    fn handle(
        &mut self,
        message: RawMessage,
        cx: Context,
    ) -> impl Future<Output = RawReply> + Send + 'static {
        async move {
            let work = async |_| Ok(to_raw_value(&json!({"isError": true})).unwrap());
            let deadline = || Instant::now() + SOON;
            exchange(message, &cx, "peer", CallOrigin::A2A, deadline, work).await
        }
    }
}

async fn consult(agent: AgentRef, name: &str) -> RawReply {
    let call = CallContext {
        origin: CallOrigin::MCP,
        ..CallContext::new(Arc::new(Principal::agent(name)))
    };
    let sent = RawMessage {
        name: Consult::NAME.to_owned(),
        payload: to_raw_value(&Consult {}).unwrap(),
    };
    inbound_policy::ask(&agent, "desk", Consult::NAME, sent, call).await
}

fn answer_first(system: &System, answer: ElicitationAnswer) -> Result<(), WaitingQuestionError> {
    let questions = system.waiting_questions();
    let first = questions.list().first().unwrap().clone();
    let by = Arc::new(Principal::agent("operator"));
    questions.answer(system.audit(), first.id, &by, answer)
}

/// Goal: a call's exchanges and question are events of one trace, each a child of the one that caused it, with their
/// outcomes; a person at the node answers where the caller can't, with an answer that fits. Method: a call without a
/// caller that asks and then reaches a peer.
#[test]
fn call_is_recorded_and_answered_at_the_node() {
    run_with_real_time(async |system| {
        let mut reader = system
            .node_events()
            .subscribe(NodeEventOptions::default())
            .unwrap();
        system.waiting_questions().open(Arc::new(|_| true));
        let remote = system.spawn(Remote);
        let desk = system.prepare(Desk(remote)).label("desk-1").spawn();
        let reply = tokio::spawn(consult(desk, "a"));
        let questions = system.waiting_questions();
        eventually("the question waits", SOON, || questions.list().len() == 1).await;
        let unfit = answer_first(system, ElicitationAnswer::accept(json!({})));
        assert!(matches!(unfit, Err(WaitingQuestionError::Invalid(_))));
        answer_first(system, ElicitationAnswer::accept(json!({"name": "Ada"}))).unwrap();
        let reply = timeout(SOON, reply).await.unwrap().unwrap().unwrap();
        assert!(reply.get().contains("Ada"));
        assert!(questions.list().is_empty());

        let mut spans = Vec::new();
        let mut told = Vec::new();
        while let Some(event) = reader.try_next() {
            match event {
                NodeEvent::ExchangeBegan(_) => {}
                NodeEvent::ExchangeEnded(end) => {
                    let exchange = &end.exchange;
                    spans.push((exchange.agent.to_string(), exchange.trace));
                    told.push(format!(
                        "{:?} {} {} {:?} {}",
                        exchange.kind,
                        exchange.agent,
                        exchange.origin.protocol,
                        end.failure,
                        end.is_tool_error
                    ));
                }
                NodeEvent::QuestionAsked(_) => {}
                NodeEvent::QuestionEnded(end) => {
                    spans.push(("question".to_owned(), end.question.trace));
                    let by = end.answered_by.as_ref().unwrap();
                    told.push(format!("question {} by {}", end.action, by.id));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            told,
            [
                "question accept by operator",
                "Outbound peer a2a None true",
                "Local desk-1  None false",
                "Inbound desk mcp None false",
            ]
        );
        let span = |name: &str| spans.iter().find(|(at, _)| at == name).unwrap().1;
        let root = span("desk");
        assert!(spans.iter().all(|(_, at)| at.trace_id() == root.trace_id()));
        assert_eq!(root.parent_id(), None);
        assert_eq!(span("question").parent_id(), Some(root.span_id()));
        assert_eq!(span("desk-1").parent_id(), Some(root.span_id()));
        assert_eq!(span("peer").parent_id(), Some(span("desk-1").span_id()));
        system.shutdown(SOON).await;
    });
}

/// Goal: a person's refusal ends the call; a question is gone with its call; one principal's waiting questions are
/// limited, and one more fails as for a caller who can't answer, while another principal's waits.
#[test]
fn questions_end_and_are_limited() {
    run_with_real_time(async |system| {
        system.waiting_questions().open(Arc::new(|_| true));
        let remote = system.spawn(Remote);
        let desk = system.spawn(Desk(remote));
        let questions = system.waiting_questions();
        let refused = tokio::spawn(consult(desk.clone(), "a"));
        eventually("the question waits", SOON, || questions.list().len() == 1).await;
        answer_first(system, ElicitationAnswer::decline()).unwrap();
        let refused = timeout(SOON, refused).await.unwrap().unwrap();
        assert_eq!(refused.unwrap_err().kind, FailureKind::Denied);

        let max = WAITING_QUESTIONS_PER_PRINCIPAL_MAX;
        let waiting: Vec<_> = (0..max)
            .map(|_| tokio::spawn(consult(desk.clone(), "a")))
            .collect();
        eventually("they wait", SOON, || questions.list().len() == max).await;
        let more = timeout(SOON, consult(desk.clone(), "a")).await.unwrap();
        assert_eq!(more.unwrap_err().kind, FailureKind::NoResponder);
        let other = tokio::spawn(consult(desk.clone(), "b"));
        eventually("b's waits", SOON, || questions.list().len() == max + 1).await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        eventually("a's are gone", SOON, || questions.list().len() == 1).await;
        other.abort();
        system.shutdown(SOON).await;
    });
}

/// Goal: a consent that only the caller's own person may give isn't asked of people at the node, nor counts a caller as
/// able to give it because of them.
#[test]
fn consents_are_for_the_caller_alone() {
    run_with_real_time(async |system| {
        system
            .waiting_questions()
            .open(Arc::new(|agent| agent == "desk"));
        let call = |agent: &str| {
            let call = CallContext::new(Arc::new(Principal::agent("a")));
            call.with_policy(system, Direction::Inbound, agent)
        };
        let desk = call("desk");
        let can_ask = |caller: &Arc<dyn Caller>| caller.capabilities().has_elicitation_form();
        assert!(desk.caller.as_ref().is_some_and(can_ask));
        let own = desk.own_caller().unwrap();
        assert!(!can_ask(own));
        let refused = own.ask(Question::elicit("Approve?", json!({"type": "object"})));
        assert_eq!(refused.await.unwrap_err().kind, FailureKind::NoResponder);
        assert!(system.waiting_questions().list().is_empty());
        assert!(call("clinic").caller.is_none(), "its texts don't wait here");
        system.shutdown(SOON).await;
    });
}

/// Agent that replies with what it gets, and fails without a payload.
struct Echo;

impl Agent for Echo {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(200);
    }
}

impl ConcurrentHandler<RawMessage> for Echo {
    fn handle(
        &mut self,
        message: RawMessage,
        _: Context,
    ) -> impl Future<Output = RawReply> + Send + 'static {
        std::future::ready(match message.payload.get() {
            "null" => Err(Failure::unavailable("nothing to reply")),
            _ => Ok(message.payload),
        })
    }
}

async fn echo(agent: &AgentRef, payload: &str) -> RawReply {
    let sent = RawMessage {
        name: "echo".to_owned(),
        payload: RawValue::from_string(payload.to_owned()).unwrap(),
    };
    let call = CallContext::new(Arc::new(Principal::agent("a")));
    inbound_policy::ask(agent, "echo", "echo", sent, call).await
}

/// Goal: beyond the rate limit exchanges are counted and not recorded, but for those that fail. Method: a limit of one a
/// second, exceeded by one batch, then a second batch and a failure.
#[test]
fn exchanges_beyond_the_rate_are_counted() {
    run_with_real_time(async |system| {
        let options = NodeEventOptions {
            recorded_per_second: NonZeroU32::new(1),
            ..NodeEventOptions::default()
        };
        let mut reader = system.node_events().subscribe(options).unwrap();
        let agent = system.prepare(Echo).label("echo").spawn();
        let began = std::time::Instant::now();
        let mut batch = async |count: usize| {
            for _ in 0..count {
                echo(&agent, "1").await.unwrap();
            }
            let recorded = std::iter::from_fn(|| reader.try_next()).count();
            let counts = reader.take_counts();
            let outcomes = counts.series.iter().flat_map(|counts| &counts.outcomes);
            let counted: u64 = outcomes.map(|of| of.durations.count).sum();
            (recorded, counted)
        };
        // Each call is an inbound exchange with two events and a local one with one.
        assert_eq!(batch(1_000).await, (3_000, 2_000));
        let (recorded, counted) = batch(1_000).await;
        assert!(
            began.elapsed() >= Duration::from_secs(1) || recorded < 300,
            "{recorded}"
        );
        assert_eq!(counted, 2_000);
        echo(&agent, "null").await.unwrap_err();
        let events = std::iter::from_fn(|| reader.try_next());
        let failed = events.filter(|event| match event {
            NodeEvent::ExchangeEnded(end) => end.failure == Some(FailureKind::Unavailable),
            _ => false,
        });
        assert_eq!(failed.count(), 2);
        system.shutdown(SOON).await;
    });
}
