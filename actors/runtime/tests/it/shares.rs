use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{FailureKind, Message as _, Principal, RawMessage, RawReply};
use callboard_runtime::testkit::{eventually, run_with_real_time};
use callboard_runtime::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::messages::SECOND;

const SOON: Duration = Duration::from_secs(10);

/// Waits for a permit, if the principal is `a`. Replies with the principal's id.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
struct Hold {}

#[derive(Clone)]
struct Holder {
    begun: Arc<AtomicU32>,
    permits: Arc<Semaphore>,
}

impl Holder {
    fn new() -> Self {
        Self {
            begun: Arc::default(),
            permits: Arc::new(Semaphore::new(0)),
        }
    }
}

impl Agent for Holder {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Hold>(4);
    }

    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe().principal_share(25)
    }
}

impl ConcurrentHandler<Hold> for Holder {
    fn handle(&mut self, _: Hold, cx: Context) -> impl Future<Output = String> + Send + 'static {
        self.begun.fetch_add(1, SeqCst);
        let permits = self.permits.clone();
        async move {
            let id = cx.principal().id.clone();
            if id == "a" {
                permits.acquire().await.unwrap().forget();
            }
            id
        }
    }
}

/// Sends the agent a message as a server does.
async fn receive(agent: AgentRef, call: CallContext) -> RawReply {
    let sent = RawMessage {
        name: Hold::NAME.to_owned(),
        payload: to_raw_value(&Hold {}).unwrap(),
    };
    inbound_policy::ask(&agent, "holder", Hold::NAME, sent, call).await
}

fn call_of(name: &str) -> CallContext {
    CallContext::new(Arc::new(Principal::agent(name)))
}

/// Goal: the calls of one principal, all of which wait, leave handlers to others; its further calls
/// wait until a handler is free, their deadline or their cancellation. Method: of four handlers,
/// one principal's calls and one more than it gets, those of another, then each end of a wait.
#[test]
fn handlers_are_shared() {
    run_with_real_time(async |system| {
        let holder = Holder::new();
        let (begun, permits) = (holder.begun.clone(), holder.permits.clone());
        let agent = system.spawn_with(move || holder.clone());
        let of_a: Vec<_> = (0..4)
            .map(|_| tokio::spawn(receive(agent.clone(), call_of("a"))))
            .collect();
        eventually("three calls run", SOON, || begun.load(SeqCst) == 3).await;
        for _ in 0..2 {
            let of_b = timeout(SOON, receive(agent.clone(), call_of("b"))).await;
            assert_eq!(of_b.unwrap().unwrap().get(), r#""b""#);
        }
        assert_eq!(begun.load(SeqCst), 5, "the fourth call of a waits");

        let deadline = Instant::now() + Duration::from_millis(20);
        let late = timeout(
            SOON,
            receive(agent.clone(), call_of("a").with_deadline(deadline)),
        );
        let late = late.await.unwrap().unwrap_err();
        assert_eq!(late.kind, FailureKind::Overloaded);
        let limits = "no handler is free: of 4, 3 for one principal";
        assert!(late.message.contains(limits), "{}", late.message);
        let cancelled = call_of("a");
        cancelled.cancel.cancel();
        let cancelled = timeout(SOON, receive(agent.clone(), cancelled)).await;
        assert_eq!(cancelled.unwrap().unwrap_err().kind, FailureKind::Cancelled);

        permits.add_permits(4);
        for reply in of_a {
            assert_eq!(
                timeout(SOON, reply).await.unwrap().unwrap().unwrap().get(),
                r#""a""#
            );
        }
        assert_eq!(begun.load(SeqCst), 6);
        system.shutdown(SECOND).await;
    });
}

/// Agent whose handlers go on after their callers have gone, for a minute at most.
#[derive(Clone)]
struct Lingering(Holder);

impl Agent for Lingering {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Hold>(4);
    }

    fn profile() -> AgentProfile {
        AgentProfile {
            cancel_grace: Duration::from_secs(60),
            ..Holder::profile()
        }
    }
}

impl ConcurrentHandler<Hold> for Lingering {
    fn handle(&mut self, hold: Hold, cx: Context) -> impl Future<Output = String> + Send + 'static {
        self.0.handle(hold, cx)
    }
}

/// Goal: a handler whose caller has gone counts for its principal until it ends. Method: a principal
/// abandons all the calls that it may have, and calls once more, with a deadline while the handlers
/// run and without one; then the handlers end.
#[test]
fn abandoned_handlers_count() {
    run_with_real_time(async |system| {
        let holder = Holder::new();
        let (begun, permits) = (holder.begun.clone(), holder.permits.clone());
        let agent = system.spawn_with(move || Lingering(holder.clone()));
        let abandoned: Vec<_> = (0..3)
            .map(|_| tokio::spawn(receive(agent.clone(), call_of("a"))))
            .collect();
        eventually("three calls run", SOON, || begun.load(SeqCst) == 3).await;
        for call in abandoned {
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
        }
        let deadline = Instant::now() + Duration::from_millis(20);
        let late = call_of("a").with_deadline(deadline);
        let late = timeout(SOON, receive(agent.clone(), late)).await;
        assert_eq!(late.unwrap().unwrap_err().kind, FailureKind::Overloaded);
        assert_eq!(begun.load(SeqCst), 3);
        let more = tokio::spawn(receive(agent.clone(), call_of("a")));
        // One for the call, which begins when an abandoned handler has ended.
        permits.add_permits(4);
        let more = timeout(SOON, more).await.unwrap().unwrap();
        assert_eq!(more.unwrap().get(), r#""a""#);
        system.shutdown(SECOND).await;
    });
}
