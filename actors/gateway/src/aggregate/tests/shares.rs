use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use callboard_message::Message as _;
use callboard_message::{RawMessage, RawReply};
use callboard_runtime::testkit::{eventually, run_with_real_time};
use callboard_runtime::{AgentProfile, ConcurrentHandler, inbound_policy};
use tokio::time::timeout;

use super::*;
use crate::aggregate::AGGREGATE_CALLS_MAX;

const SOON: Duration = Duration::from_secs(20);

/// Waits forever, if the principal is `a`.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = u32)]
struct Hold {}

/// Member whose calls wait for a person who doesn't answer. Holds the number of its calls.
#[derive(Clone, Default)]
struct Unanswered(Arc<AtomicUsize>);

impl Agent for Unanswered {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Hold>(4 * AGGREGATE_CALLS_MAX);
    }
}

impl ConcurrentHandler<Hold> for Unanswered {
    fn handle(&mut self, _: Hold, cx: Context) -> impl Future<Output = u32> + Send + 'static {
        self.0.fetch_add(1, SeqCst);
        async move {
            if cx.principal().id == "a" {
                std::future::pending::<()>().await;
            }
            1
        }
    }
}

/// As [`Unanswered`], with four handlers that principals share.
#[derive(Clone, Default)]
struct FewHandlers(Unanswered);

impl Agent for FewHandlers {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Hold>(4);
    }

    fn profile() -> AgentProfile {
        AgentProfile::default().principal_share(25)
    }
}

impl ConcurrentHandler<Hold> for FewHandlers {
    fn handle(&mut self, hold: Hold, cx: Context) -> impl Future<Output = u32> + Send + 'static {
        self.0.handle(hold, cx)
    }
}

/// Calls the tool `hold` as a server does.
async fn call(aggregate: AgentRef, name: &'static str) -> RawReply {
    let params = RawObject::single("name", Hold::NAME);
    let sent = RawMessage {
        name: CallTool::NAME.to_owned(),
        payload: params.to_raw(),
    };
    let call = CallContext::new(Arc::new(Principal::agent(name)));
    inbound_policy::ask(&aggregate, "all", CallTool::NAME, sent, call).await
}

/// Has a principal call `member` through an aggregate, `calls` times, of which three quarters of the
/// `handlers` may run; `held` counts them. Then another principal's call must be answered.
async fn leave_handlers(
    system: &System,
    member: AgentRef,
    held: &AtomicUsize,
    handlers: usize,
    calls: usize,
) {
    let aggregate = AggregateAgent::new([("member".to_owned(), member)]).unwrap();
    let aggregate = aggregate.spawn(system, "all");
    let waiting: Vec<_> = (0..calls)
        .map(|_| tokio::spawn(call(aggregate.clone(), "a")))
        .collect();
    let own = handlers * 3 / 4;
    eventually("its share is held", SOON, || held.load(SeqCst) >= own).await;
    let other = timeout(SOON, call(aggregate.clone(), "b")).await;
    assert!(other.unwrap().is_ok());
    assert_eq!(held.load(SeqCst), own + 1);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    system.shutdown(Duration::from_secs(1)).await;
}

/// Goal: one principal whose calls all wait for an answer leaves handlers of the aggregate to
/// others. Method: one call more of a principal than there are handlers, then one of another.
#[test]
fn waiting_calls_leave_handlers_to_others() {
    run_with_real_time(async |system| {
        let member = Unanswered::default();
        let held = member.0.clone();
        let member = system.spawn_with(move || member.clone());
        let handlers = AGGREGATE_CALLS_MAX as usize;
        leave_handlers(system, member, &held, handlers, handlers + 1).await;
    });
}

/// Goal: the handlers of a member are shared too, though the aggregate has handlers left. Method: as
/// many calls of a principal as the member has handlers, then one of another.
#[test]
fn waiting_calls_leave_handlers_of_a_member_to_others() {
    run_with_real_time(async |system| {
        let member = FewHandlers::default();
        let held = member.0.0.clone();
        let member = system.spawn_with(move || member.clone());
        leave_handlers(system, member, &held, 4, 4).await;
    });
}
