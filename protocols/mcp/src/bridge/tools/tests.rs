use std::collections::VecDeque;
use std::sync::Mutex;

use callboard_message::capabilities::CallTool;
use callboard_message::{
    Answer, CallId, CallerCapabilities, Failure, FailureKind, Message, Principal, Question,
    RawMessage,
};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{
    Agent, AgentRef, CallContext, Caller, ConcurrentHandler, Handlers, System,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::super::options::RETRY_PAUSE_DEFAULT;
use super::*;

#[derive(Clone)]
enum Step {
    Result(Value),
    Fails(FailureKind),
    /// No connection comes about.
    Unsent,
    /// Asks its caller, then fails or not.
    Asks(Result<Value, FailureKind>),
    Hangs,
}

/// A server's tools, with a script instead of the server.
#[derive(Clone)]
struct Host {
    tools: Arc<ToolCallRunner>,
    script: Arc<Mutex<(VecDeque<Step>, u32)>>,
}

impl Agent for Host {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(64);
    }
}

impl Host {
    fn new(options: BridgeToolOptions, script: impl IntoIterator<Item = Step>) -> Self {
        let book = Arc::new(ToolCache::default());
        book.record_page(
            &RawValue::from_string(
                json!({ "tools": [
                    { "name": "plain" },
                    { "name": "reads", "annotations": { "readOnlyHint": true } },
                    { "name": "again", "annotations": { "idempotentHint": true } },
                    { "name": "kept", "annotations": { "readOnlyHint": true }, "_meta": { "callboard/cache": 60 } },
                ] })
                .to_string(),
            )
            .unwrap(),
        );
        let tools = Arc::new(ToolCallRunner::new(&options, book));
        Self {
            tools,
            script: Arc::new(Mutex::new((script.into_iter().collect(), 0))),
        }
    }

    async fn send(&self, watch: AttemptMonitor, cx: &Context) -> AttemptResult {
        let step = {
            let mut script = self.script.lock().unwrap();
            script.1 += 1;
            script
                .0
                .pop_front()
                .unwrap_or_else(|| Step::Result(answer("end")))
        };
        let is_unsent = matches!(step, Step::Unsent);
        let outcome = match step {
            Step::Unsent => Err(FailureKind::Unavailable),
            Step::Result(value) => Ok(value),
            Step::Fails(kind) => Err(kind),
            Step::Asks(outcome) => {
                let caller = watch.wrap(cx.call().unwrap().caller.clone().unwrap());
                let _ = caller.ask(Question::roots()).await;
                outcome
            }
            Step::Hangs => std::future::pending().await,
        };
        let value = outcome.map_err(|kind| {
            let failure = Failure::new(kind, "as the script says");
            AttemptError {
                is_transient: is_transient(&TransportError::Failed(failure.clone())),
                is_unsent,
                failure,
            }
        })?;
        Ok(RawValue::from_string(value.to_string()).unwrap())
    }

    fn sent(&self) -> u32 {
        self.script.lock().unwrap().1
    }
}

impl ConcurrentHandler<RawMessage> for Host {
    fn handle(
        &mut self,
        message: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let host = self.clone();
        async move {
            let params = RawObject::parse(&message.payload).unwrap();
            Ok(host
                .tools
                .call_tool(&params, &cx, |watch| host.send(watch, &cx))
                .await?)
        }
    }
}

struct Nobody;

/// Caller that can answer any question.
struct Somebody;

impl Caller for Somebody {
    fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async { Err(Failure::no_responder("not now")) })
    }

    fn capabilities(&self) -> CallerCapabilities {
        CallerCapabilities::all()
    }
}

impl Caller for Nobody {}

fn answer(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn call_of(who: &str) -> CallContext {
    CallContext {
        id: CallId::generate(),
        ..CallContext::new(Arc::new(Principal::agent(who))).with_caller(Arc::new(Nobody))
    }
}

async fn ask(agent: &AgentRef, call: CallContext, params: Value) -> Result<String, FailureKind> {
    let params = RawValue::from_string(params.to_string()).unwrap();
    let reply = agent
        .ask_named(CallTool::NAME, params, Some(Arc::new(call)))
        .await
        .map_err(|failure| failure.kind)?;
    let reply: Value = serde_json::from_str(reply.get()).unwrap();
    Ok(reply["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

async fn call(agent: &AgentRef, tool: &str, arguments: Value) -> Result<String, FailureKind> {
    ask(
        agent,
        call_of("ann"),
        json!({ "name": tool, "arguments": arguments }),
    )
    .await
}

async fn end(system: &System) {
    system.shutdown(Duration::from_secs(1)).await;
}

/// Options with which calls to the tool `reads` are retried.
fn retrying() -> BridgeToolOptions {
    BridgeToolOptions {
        retry_tools: vec!["re*".into()],
        ..BridgeToolOptions::default()
    }
}

/// Goal: only tools that the operator names are retried, and unsent calls to idempotent ones, after
/// errors that a retry may change. Method: a tool of each kind, failures of each kind.
#[test]
fn only_what_may_be_repeated_is() {
    use FailureKind::{InvalidInput, Overloaded, TimedOut, Unavailable};
    run_with_paused_time(async |system| {
        for (tool, step, failure, sent) in [
            ("plain", Step::Unsent, Unavailable, 1),
            ("unknown", Step::Unsent, Unavailable, 1),
            ("kept", Step::Unsent, Unavailable, 1),
            ("again", Step::Unsent, Unavailable, 2),
            ("again", Step::Fails(Unavailable), Unavailable, 1),
            ("again", Step::Fails(Overloaded), Overloaded, 1),
            ("reads", Step::Unsent, Unavailable, 2),
            ("reads", Step::Fails(Unavailable), Unavailable, 2),
            ("reads", Step::Fails(Overloaded), Overloaded, 2),
            ("reads", Step::Fails(TimedOut), TimedOut, 1),
            ("reads", Step::Fails(InvalidInput), InvalidInput, 1),
        ] {
            let host = Host::new(retrying(), [step]);
            let agent = system.spawn(host.clone());
            let expected = if sent == 2 {
                Ok("end".to_owned())
            } else {
                Err(failure)
            };
            assert_eq!(
                call(&agent, tool, json!({})).await,
                expected,
                "{tool} {failure}"
            );
            assert_eq!(host.sent(), sent, "{tool} {failure}");
        }
        end(system).await;
    });
}

/// Goal: the number of retries is limited. Method: one failure more.
#[test]
fn retries_are_bounded() {
    run_with_paused_time(async |system| {
        for retries_max in [0, 1, 3] {
            let options = BridgeToolOptions {
                retries_max,
                ..retrying()
            };
            let fails = vec![Step::Fails(FailureKind::Unavailable); retries_max as usize + 1];
            let host = Host::new(options, fails);
            let agent = system.spawn(host.clone());
            assert_eq!(
                call(&agent, "reads", json!({})).await,
                Err(FailureKind::Unavailable)
            );
            assert_eq!(host.sent(), retries_max + 1);
            assert_eq!(call(&agent, "reads", json!({})).await, Ok("end".into()));
        }
        end(system).await;
    });
}

/// Goal: no caller is asked twice. Method: a server that asks, gets no answer, and disconnects.
#[test]
fn nobody_is_asked_twice() {
    run_with_paused_time(async |system| {
        let host = Host::new(retrying(), [Step::Asks(Err(FailureKind::Unavailable))]);
        let agent = system.spawn(host.clone());
        assert_eq!(
            call(&agent, "reads", json!({})).await,
            Err(FailureKind::Unavailable)
        );
        assert_eq!(host.sent(), 1);
        end(system).await;
    });
}

/// Goal: no pause outlasts the call. Method: a deadline before the shortest pause ends, on paused
/// time.
#[test]
fn retries_keep_the_deadline() {
    run_with_paused_time(async |system| {
        let host = Host::new(retrying(), [Step::Fails(FailureKind::Unavailable)]);
        let agent = system.spawn(host.clone());
        let began = Instant::now();
        let call = call_of("ann").with_deadline(began + RETRY_PAUSE_DEFAULT / 2);
        let params = json!({ "name": "reads", "arguments": {} });
        assert_eq!(
            ask(&agent, call, params).await,
            Err(FailureKind::Unavailable)
        );
        assert_eq!(
            (host.sent(), began.elapsed() < RETRY_PAUSE_DEFAULT / 4),
            (1, true)
        );
        end(system).await;
    });
}

/// Goal: an overloaded server isn't called again by all callers at once. Method: one call more than
/// there are permits, all failing at one moment and then never answered.
#[test]
fn retries_at_once_are_bounded() {
    run_with_paused_time(async |system| {
        let n = CONCURRENT_RETRIES_MAX + 1;
        let steps = vec![Step::Fails(FailureKind::Unavailable); n]
            .into_iter()
            .chain(vec![Step::Hangs; n]);
        let host = Host::new(retrying(), steps);
        let agent = system.spawn(host.clone());
        let deadline = Instant::now() + Duration::from_secs(30);
        let calls = (0..n).map(|_| {
            let params = json!({ "name": "reads", "arguments": {} });
            ask(&agent, call_of("ann").with_deadline(deadline), params)
        });
        let replies = futures::future::join_all(calls).await;
        assert_eq!(
            replies
                .iter()
                .filter(|reply| **reply == Err(FailureKind::Unavailable))
                .count(),
            1
        );
        assert_eq!(host.sent() as usize, n + CONCURRENT_RETRIES_MAX);
        end(system).await;
    });
}

fn steps(n: usize) -> impl Iterator<Item = Step> {
    (0..n).map(|n| Step::Result(answer(&n.to_string())))
}

/// Goal: a result is cached for its time to live, for the same arguments of the same principal
/// only. Method: calls that differ in one thing each, then time.
#[test]
fn declared_results_are_kept() {
    run_with_paused_time(async |system| {
        let host = Host::new(BridgeToolOptions::default(), steps(9));
        let agent = system.spawn(host.clone());
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(
            call(&agent, "kept", json!({ "a": 1, "b": [] })).await,
            ok("0")
        );
        assert_eq!(
            call(&agent, "kept", json!({ "b": [], "a": 1 })).await,
            ok("0")
        );
        assert_eq!(
            call(&agent, "kept", json!({ "a": 2, "b": [] })).await,
            ok("1")
        );
        assert_eq!(
            call(&agent, "reads", json!({ "a": 1, "b": [] })).await,
            ok("2")
        );
        assert_eq!(
            call(&agent, "reads", json!({ "a": 1, "b": [] })).await,
            ok("3")
        );
        let same = json!({ "name": "kept", "arguments": { "a": 1, "b": [] } });
        assert_eq!(ask(&agent, call_of("bob"), same.clone()).await, ok("4"));
        let mut purpose = call_of("ann");
        purpose.principal = Arc::new(Principal::agent("ann").with_purpose("research"));
        assert_eq!(ask(&agent, purpose, same.clone()).await, ok("5"));
        // A tool may answer otherwise if it can ask other questions.
        assert_eq!(
            ask(&agent, call_of("ann").with_caller(Arc::new(Somebody)), same).await,
            ok("6")
        );
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(
            call(&agent, "kept", json!({ "a": 1, "b": [] })).await,
            ok("0")
        );
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            call(&agent, "kept", json!({ "a": 1, "b": [] })).await,
            ok("7")
        );
        // Another version of the tool list may answer otherwise.
        host.tools.tool_cache.invalidate();
        assert_eq!(
            call(&agent, "kept", json!({ "a": 1, "b": [] })).await,
            ok("8")
        );
        assert_eq!(host.tools.observe()["cache"]["hits"], 2);
        end(system).await;
    });
}

/// Goal: the operator's setting takes precedence over the tool's. Method: a tool cached by pattern
/// for all callers, and one that isn't cached although it declares so.
#[test]
fn configured_results_are_kept() {
    run_with_paused_time(async |system| {
        let cache =
            [("pl*", 60), ("kept", 0)].map(|(tool, s)| (tool.to_owned(), Duration::from_secs(s)));
        let options = BridgeToolOptions {
            cache_ttl: cache.into(),
            cache_shared: vec!["plain".into()],
            ..BridgeToolOptions::default()
        };
        let agent = system.spawn(Host::new(options, steps(9)));
        let plain = json!({ "name": "plain", "arguments": {} });
        assert_eq!(
            ask(&agent, call_of("ann"), plain.clone()).await,
            Ok("0".into())
        );
        assert_eq!(ask(&agent, call_of("bob"), plain).await, Ok("0".into()));
        assert_eq!(call(&agent, "kept", json!({})).await, Ok("1".into()));
        assert_eq!(call(&agent, "kept", json!({})).await, Ok("2".into()));
        end(system).await;
    });
}

/// Goal: errors, results after a question, and parts of a task are never cached. Method: each,
/// twice.
#[test]
fn what_is_never_kept() {
    run_with_paused_time(async |system| {
        let error = json!({ "content": [{ "type": "text", "text": "error" }], "isError": true });
        let script = [
            Step::Result(error),
            Step::Fails(FailureKind::Rejected),
            Step::Asks(Ok(answer("asked"))),
            Step::Result(answer("task")),
            Step::Result(answer("kept")),
        ];
        let host = Host::new(BridgeToolOptions::default(), script);
        let agent = system.spawn(host.clone());
        assert_eq!(call(&agent, "kept", json!({})).await, Ok("error".into()));
        assert_eq!(
            call(&agent, "kept", json!({})).await,
            Err(FailureKind::Rejected)
        );
        assert_eq!(call(&agent, "kept", json!({})).await, Ok("asked".into()));
        let task = json!({ "name": "kept", "arguments": {}, "task": {} });
        assert_eq!(ask(&agent, call_of("ann"), task).await, Ok("task".into()));
        assert_eq!(call(&agent, "kept", json!({})).await, Ok("kept".into()));
        assert_eq!(call(&agent, "kept", json!({})).await, Ok("kept".into()));
        assert_eq!(host.sent(), 5);
        end(system).await;
    });
}
