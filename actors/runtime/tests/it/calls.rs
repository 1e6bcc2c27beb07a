use std::time::Duration;

use callboard_macros::Message;
use callboard_message::*;
use callboard_runtime::*;

use crate::messages::{SECOND, running};

/// Asks a person for a city, through as many agents as there are.
#[derive(Message)]
#[message(reply = String, fallible, local)]
struct Weather;

struct Forecaster {
    next: Option<AgentRef>,
}

impl Agent for Forecaster {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Weather>(8);
    }
}

impl ConcurrentHandler<Weather> for Forecaster {
    fn handle(
        &mut self,
        _: Weather,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let next = self.next.clone();
        async move {
            cx.progress(Progress {
                done: f64::from(cx.call().map_or(0, |c| c.hops)),
                ..Progress::default()
            });
            if let Some(next) = next {
                return cx.ask(&next, Weather).await?;
            }
            let question = Elicitation::form("Which city?", serde_json::json!({"type": "object"}));
            let answer = cx.elicit(question).await?;
            match answer.content() {
                Some(content) => Ok(format!("sunny in {content}, {}", cx.principal().id)),
                None => Ok(format!("{:?}", answer.action())),
            }
        }
    }
}

/// Goal: progress and questions of an agent two hops away reach the caller, and the principal
/// reaches that agent. Method: a chain.
#[test]
fn questions_find_the_caller() {
    running(async |system| {
        let last = system.spawn(Forecaster { next: None });
        let first = system.spawn(Forecaster { next: Some(last) });
        let mut call = first
            .call(Weather)
            .principal(Principal::agent("ann"))
            .start();
        let mut progress = Vec::new();
        while let Some(event) = call.next().await {
            match event {
                CallEvent::Progress(p) => progress.push(p.done),
                CallEvent::Question(q) => {
                    assert!(
                        matches!(&q.question, Question::Elicit(e) if e.message() == "Which city?")
                    );
                    q.answer(Answer::Elicit(ElicitationAnswer::accept("Rio".into())));
                }
                _ => unreachable!(),
            }
        }
        assert_eq!(
            call.reply().await.unwrap().unwrap(),
            "sunny in \"Rio\", ann"
        );
        assert_eq!(progress, [0.0, 1.0]);
    });
}

/// Goal: a question that can't be answered fails and never hangs. Method: a plain ask; a caller
/// that reads no events; one that drops the question.
#[test]
fn nobody_to_ask() {
    running(async |system| {
        let agent = system.spawn(Forecaster { next: None });
        assert_eq!(
            agent.ask(Weather).await.unwrap().unwrap_err().kind,
            FailureKind::NoResponder
        );
        let call = agent.call(Weather).start();
        assert_eq!(
            call.reply().await.unwrap().unwrap_err().kind,
            FailureKind::NoResponder
        );
        let mut call = agent.call(Weather).start();
        while let Some(event) = call.next().await {
            drop(event);
        }
        assert_eq!(
            call.reply().await.unwrap().unwrap_err().kind,
            FailureKind::NoResponder
        );
    });
}

/// Returns principal and deadline as the callee sees them.
#[derive(Message)]
#[message(reply = (u16, Option<Duration>), fallible, local)]
struct Loop;

struct Looper {
    hops: u16,
}

impl Agent for Looper {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Loop>(64);
    }
}

impl ConcurrentHandler<Loop> for Looper {
    fn handle(
        &mut self,
        _: Loop,
        cx: Context,
    ) -> impl Future<Output = Result<(u16, Option<Duration>), Failure>> + Send + 'static {
        self.hops += 1;
        let hops = self.hops;
        async move {
            match cx.ask(cx.me(), Loop).await {
                Ok(reply) => reply,
                Err(SendError::TooManyHops { hops_max }) => {
                    assert_eq!(hops, hops_max + 1);
                    Ok((
                        hops_max,
                        cx.deadline().map(|d| d - tokio::time::Instant::now()),
                    ))
                }
                Err(other) => Err(other.into()),
            }
        }
    }
}

/// Goal: a loop of agents ends at the hop limit, and the deadline is passed on unchanged. Method:
/// an agent that asks itself.
#[test]
fn loops_end() {
    running(async |system| {
        let looper = system.spawn(Looper { hops: 0 });
        let reply = looper
            .call(Loop)
            .within(5 * SECOND)
            .start()
            .reply()
            .await
            .unwrap()
            .unwrap();
        assert_eq!(reply, (HOPS_MAX_DEFAULT, Some(5 * SECOND)));
    });
}

/// Goal: dropping a call cancels the whole chain. Method: drop it while the last agent asks.
#[test]
fn dropping_cancels_the_chain() {
    running(async |system| {
        let last = system.spawn(Forecaster { next: None });
        let first = system.spawn(Forecaster {
            next: Some(last.clone()),
        });
        let mut call = first.call(Weather).start();
        let question = loop {
            if let CallEvent::Question(question) = call.next().await.unwrap() {
                break question;
            }
        };
        assert_eq!(
            (first.snapshot().in_flight, last.snapshot().in_flight),
            (1, 1)
        );
        drop(call);
        // Neither handler cleans up, so each is dropped after its grace period.
        tokio::time::sleep(2 * CANCEL_GRACE_DEFAULT).await;
        assert_eq!(
            (first.snapshot().in_flight, last.snapshot().in_flight),
            (0, 0)
        );
        drop(question);
    });
}
