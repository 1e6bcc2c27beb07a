//! Tests of the monitor with events made by hand.

use std::time::UNIX_EPOCH;

use callboard_message::{FailureKind, Principal, PrincipalKind, TaskState, TraceContext};
use callboard_runtime::{
    Agent, AgentEvent, AgentRef, CallOrigin, Exchange, ExchangeEnd, Handlers, LatencyCounts,
    OTHER_SERIES, PolicyRefusal, QuestionEnd, TaskStateChange,
};

use super::agents::{AGENTS_COUNTED_MAX, AGENTS_SHOWN_MAX};
use super::calls::{CALL_STEPS_MAX, CALLS_KEPT_MAX, QUESTIONS_KEPT_MAX, STEPS_KEPT_MAX};
use super::metrics::LABEL_VALUES_MAX;
use super::*;

struct Idle;

impl Agent for Idle {
    fn handlers(_: &mut Handlers<Self>) {}
}

/// Id of the principal of all events, which no metric may show.
const PRINCIPAL: &str = "alice-7f3";

fn principal() -> Arc<Principal> {
    Arc::new(Principal {
        id: PRINCIPAL.to_owned(),
        kind: PrincipalKind::ApiKey,
        scopes: Vec::new(),
        purpose: None,
    })
}

fn monitor() -> NodeMonitor {
    NodeMonitor::new(&System::start(1).unwrap(), "bridge".to_owned())
}

impl NodeMonitor {
    /// Takes note of an event; of an exchange that ended at its own time also as counts.
    fn apply(&self, event: NodeEvent) {
        let mut state = self.0.state.lock();
        if let NodeEvent::ExchangeEnded(end) = &event {
            let ended_at = end.exchange.began_at + end.duration;
            state.count(&ExchangeCounts::of(end), ended_at);
            let mut latencies = LatencyCounts::default();
            latencies.record(end.duration);
            state.last_minute.add_latencies(ended_at, &latencies);
        }
        state.apply(event);
    }

    fn kept(&self) -> (usize, usize) {
        self.0.state.lock().calls.kept()
    }
}

/// A time from which offsets are counted, in milliseconds.
fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_millis(ms)
}

/// An exchange of `call` that begins at an offset in milliseconds. Over MCP, unless it is local.
fn exchange(
    kind: ExchangeKind,
    (call, trace): (CallId, TraceContext),
    agent: &str,
    tool: Option<&str>,
    ms: u64,
) -> Arc<Exchange> {
    let is_local = kind == ExchangeKind::Local;
    Arc::new(Exchange {
        kind,
        call,
        trace,
        principal: principal(),
        agent: agent.into(),
        message: "callboard.tools.call".into(),
        tool: tool.map(Into::into),
        origin: match is_local {
            true => CallOrigin::default(),
            false => CallOrigin::MCP,
        },
        began_at: at(ms),
        request_bytes: 10,
        content: (!is_local).then(|| "request".into()),
    })
}

fn inbound(agent: &str, tool: &str) -> Arc<Exchange> {
    let ids = (CallId::generate(), TraceContext::root());
    exchange(ExchangeKind::Inbound, ids, agent, Some(tool), 0)
}

fn ended(exchange: &Arc<Exchange>, ms: u64, failure: Option<FailureKind>) -> NodeEvent {
    NodeEvent::ExchangeEnded(Box::new(ExchangeEnd {
        exchange: exchange.clone(),
        duration: Duration::from_millis(ms),
        failure,
        is_tool_error: false,
        reply_bytes: 20,
        content: exchange.content.as_ref().map(|_| "reply".into()),
    }))
}

fn question(call: CallId, trace: TraceContext, ms: u64) -> Arc<QuestionEvent> {
    Arc::new(QuestionEvent {
        id: CallId::generate(),
        call,
        trace,
        principal: principal(),
        agent: "jira".into(),
        kind: "elicit".into(),
        origin: CallOrigin::MCP,
        asked_at: at(ms),
    })
}

fn refusal(call: CallId, ms: u64) -> NodeEvent {
    NodeEvent::Refused {
        at: at(ms),
        refusal: Box::new(PolicyRefusal {
            call,
            principal: format!("api_key:{PRINCIPAL}").into(),
            agent: "files".into(),
            message: "write".into(),
            direction: ExchangeKind::Outbound,
            part: "message",
            kind: FailureKind::Blocked,
            rules: vec!["rule.7".to_owned()],
            reason: "blocked".into(),
        }),
    }
}

/// Goal: one call is one timeline: its steps by their beginning and below their parents, with what came of each. Method:
/// inbound, local and outbound exchange, a question that waits and is answered here, a refusal; then as a reader without
/// the right to see contents.
#[test]
fn timeline_of_a_call() {
    let monitor = monitor();
    let (call, root) = (CallId::generate(), TraceContext::root());
    let local = root.child();
    let front = exchange(
        ExchangeKind::Inbound,
        (call, root),
        "front",
        Some("create"),
        0,
    );
    let hop = exchange(ExchangeKind::Local, (call, local), "jira\u{7}", None, 1);
    let away = exchange(
        ExchangeKind::Outbound,
        (call, local.child()),
        "jira",
        Some("create"),
        2,
    );
    let asked = question(call, away.trace.child(), 3);
    monitor.apply(NodeEvent::ExchangeBegan(front.clone()));
    assert_eq!(monitor.calls("", 10)[0].outcome, "running");
    monitor.apply(NodeEvent::ExchangeBegan(away.clone()));
    monitor.apply(NodeEvent::QuestionAsked(asked.clone()));
    assert_eq!(monitor.calls("", 10)[0].outcome, "asks");
    let questions = monitor.questions(true);
    assert_eq!(questions.len(), 1);
    assert_eq!(
        (questions[0].id.clone(), questions[0].can_answer),
        (asked.id.to_string(), false)
    );
    assert_eq!(
        (monitor.overview().running, monitor.overview().questions),
        (1, 1)
    );
    monitor.apply(NodeEvent::QuestionEnded(Box::new(QuestionEnd {
        question: asked,
        duration: Duration::from_millis(5),
        failure: None,
        action: "accept",
        answered_by: Some(principal()),
    })));
    monitor.apply(refusal(call, 9));
    monitor.apply(ended(&away, 8, Some(FailureKind::Blocked)));
    monitor.apply(ended(&hop, 9, None));
    monitor.apply(ended(&front, 10, None));
    let timeline = monitor.timeline(&call.to_string(), true).unwrap();
    let steps = timeline.steps.iter();
    let steps: Vec<_> = steps
        .map(|step| {
            let (kind, outcome) = (step.kind.as_str(), step.outcome.as_str());
            (kind, step.depth, step.start_ms, step.ms, outcome)
        })
        .collect();
    assert_eq!(
        steps,
        [
            ("inbound", 0, 0.0, Some(10.0), "ok"),
            ("local", 1, 1.0, Some(9.0), "ok"),
            ("outbound", 2, 2.0, Some(8.0), "blocked"),
            ("question", 3, 3.0, Some(5.0), "accept"),
            ("refusal", 1, 9.0, Some(0.0), "blocked"),
        ]
    );
    assert_eq!(timeline.line.outcome, "ok");
    assert_eq!(timeline.line.trace, format!("{:032x}", root.trace_id()));
    assert_eq!(timeline.steps[1].agent, "jira\\u{7}");
    assert_eq!(timeline.steps[2].reply.as_deref(), Some("reply"));
    assert_eq!(timeline.steps[3].detail, format!("api_key:{PRINCIPAL}"));
    assert_eq!(timeline.steps[4].detail, "rules rule.7: blocked");
    assert!(monitor.questions(true).is_empty());
    let timeline = monitor.timeline(&call.to_string(), false).unwrap();
    let is_hidden = |step: &view::CallStep| step.request.is_none() && step.reply.is_none();
    assert!(timeline.steps.iter().all(is_hidden));
    assert!(monitor.timeline("no-id", true).is_none());
}

/// Goal: the list has exchanges with peers, newest first, and a filter by words. Method: calls from a peer, one of a
/// policy's refusals, and one within the node.
#[test]
fn list_of_calls() {
    let monitor = monitor();
    let search = inbound("github", "search");
    monitor.apply(NodeEvent::ExchangeBegan(search.clone()));
    monitor.apply(ended(&search, 41, None));
    let (own, trace) = (CallId::generate(), TraceContext::root());
    let hop = exchange(ExchangeKind::Local, (own, trace), "planner", None, 0);
    monitor.apply(ended(&hop, 1, None));
    let refused = CallId::generate();
    monitor.apply(refusal(refused, 0));
    let targets = |filter: &str| -> Vec<String> {
        let lines = monitor.calls(filter, 10).into_iter();
        lines.map(|line| line.target).collect()
    };
    assert_eq!(targets(""), ["write", "search"]);
    assert_eq!(targets("GitHub ok"), ["search"]);
    assert_eq!(targets("github blocked"), [""; 0]);
    assert_eq!(targets("mcp"), ["search"]);
    assert_eq!(targets(&refused.to_string()), ["write"]);
    assert_eq!(monitor.calls("", 1).len(), 1);
    let (call, trace) = (CallId::generate(), TraceContext::root());
    let own = exchange(
        ExchangeKind::Outbound,
        (call, trace),
        "jira",
        Some("poll"),
        0,
    );
    let own_call = own.call.to_string();
    monitor.apply(NodeEvent::ExchangeBegan(own));
    let kinds = ["poll", "write", "search"].map(|target| {
        let lines = monitor.calls(target, 10);
        lines.into_iter().map(|line| line.kind).collect::<String>()
    });
    assert_eq!(kinds, ["outbound", "refusal", "inbound"]);
    assert!(monitor.timeline(&own_call, true).is_some());
}

/// Goal: each limit holds at one more, and a call that runs outlives those that have ended.
#[test]
fn limits_of_calls() {
    let monitor = monitor();
    let waiting = inbound("front", "wait");
    monitor.apply(NodeEvent::ExchangeBegan(waiting.clone()));
    for _ in 0..CALLS_KEPT_MAX {
        monitor.apply(ended(&inbound("front", "quick"), 1, None));
    }
    assert_eq!(monitor.kept().0, CALLS_KEPT_MAX);
    assert_eq!(monitor.calls("running", 10).len(), 1);
    for _ in 0..CALL_STEPS_MAX {
        let ids = (waiting.call, waiting.trace.child());
        let step = exchange(ExchangeKind::Outbound, ids, "away", Some("step"), 1);
        monitor.apply(NodeEvent::ExchangeBegan(step.clone()));
        monitor.apply(ended(&step, 1, None));
    }
    let timeline = monitor.timeline(&waiting.call.to_string(), false).unwrap();
    assert_eq!((timeline.steps.len(), timeline.more), (CALL_STEPS_MAX, 1));
    for _ in 0..=STEPS_KEPT_MAX / CALL_STEPS_MAX {
        let (call, trace) = (CallId::generate(), TraceContext::root());
        for _ in 0..CALL_STEPS_MAX {
            let hop = exchange(ExchangeKind::Local, (call, trace.child()), "a", None, 0);
            monitor.apply(ended(&hop, 1, None));
        }
    }
    let (calls, steps) = monitor.kept();
    assert!(calls <= CALLS_KEPT_MAX && steps <= STEPS_KEPT_MAX);
    for _ in 0..=QUESTIONS_KEPT_MAX {
        let asked = question(waiting.call, waiting.trace.child(), 1);
        monitor.apply(NodeEvent::QuestionAsked(asked));
    }
    assert_eq!(monitor.questions(false).len(), QUESTIONS_KEPT_MAX);
}

/// Goal: calls whose end was lost don't displace those that end. Method: more of them than are kept, then a call.
#[test]
fn lost_ends_are_forgotten() {
    let monitor = monitor();
    for _ in 0..=CALLS_KEPT_MAX {
        monitor.apply(NodeEvent::ExchangeBegan(inbound("front", "lost")));
    }
    let last = inbound("front", "last");
    monitor.apply(ended(&last, 1, None));
    assert_eq!(monitor.kept().0, CALLS_KEPT_MAX);
    assert!(monitor.timeline(&last.call.to_string(), false).is_some());
}

/// Goal: what runs when events are dropped isn't shown as running for good, and an end that still comes counts. Method: a
/// stream that has no room for the ends of a call and its question, read to its end.
#[tokio::test]
async fn open_calls_are_forgotten_after_dropped_events() {
    let system = System::start(1).unwrap();
    let options = MonitorOptions {
        node: "bridge".to_owned(),
        events: NodeEventOptions {
            capacity: 2,
            ..NodeEventOptions::default()
        },
    };
    let stop = CancellationToken::new();
    let monitor = NodeMonitor::start(&system, options, stop.clone()).unwrap();
    let call = inbound("front", "create");
    let asked = question(call.call, call.trace.child(), 1);
    for event in [
        NodeEvent::ExchangeBegan(call.clone()),
        NodeEvent::QuestionAsked(asked),
        ended(&call, 1, None),
    ] {
        system.node_events().emit(|| event);
    }
    stop.cancel();
    let ending = tokio::time::timeout(Duration::from_secs(10), monitor.ended());
    ending.await.unwrap();
    let overview = monitor.overview();
    assert_eq!(
        (
            overview.events_dropped,
            overview.running,
            overview.questions
        ),
        (1, 0, 0)
    );
    monitor.kept();
    let timeline = monitor.timeline(&call.call.to_string(), false).unwrap();
    assert_eq!(
        (timeline.line.outcome.as_str(), timeline.line.ms),
        ("unknown", None)
    );
    assert!(timeline.steps.iter().all(|step| step.outcome == "unknown"));
    monitor.apply(ended(&call, 5, None));
    let timeline = monitor.timeline(&call.call.to_string(), false).unwrap();
    assert_eq!(
        (timeline.line.outcome.as_str(), timeline.line.ms),
        ("ok", Some(5.0))
    );
    let outcomes: Vec<_> = timeline.steps.iter().map(|step| &*step.outcome).collect();
    assert_eq!(outcomes, ["ok", "unknown"]);
    monitor.kept();
}

/// Goal: rate and percentile are those of the last minute.
#[test]
fn last_minute() {
    let monitor = monitor();
    let ms = [1; 98].into_iter().chain([1_000; 2]);
    for (n, ms) in ms.enumerate() {
        let failure = (n == 0).then_some(FailureKind::Internal);
        monitor.apply(ended(&inbound("front", "t"), ms, failure));
    }
    let summary = |now| monitor.0.state.lock().last_minute.summary(now);
    let minute = summary(at(2_000));
    assert_eq!((minute.calls, minute.failures), (100, 1));
    assert!((1_000.0..=1_250.0).contains(&minute.p99_ms.unwrap()));
    let later = summary(at(120_000));
    assert_eq!((later.calls, later.failures, later.p99_ms), (0, 0, None));
}

/// Goal: metrics have the names of the conventions, and no principal.
#[test]
fn metrics_have_names_and_no_principals() {
    let monitor = monitor();
    monitor.apply(ended(&inbound("front", "search"), 3, None));
    let unknown = inbound("front", OTHER_SERIES);
    monitor.apply(ended(&unknown, 3, Some(FailureKind::NotFound)));
    monitor.apply(refusal(CallId::generate(), 0));
    let restarted = AgentEvent {
        name: "front".into(),
        kind: "Aggregate",
        event: "restarted".into(),
    };
    monitor.apply(NodeEvent::Agent {
        at: at(0),
        event: Box::new(restarted),
    });
    let lost = UpstreamChange {
        server: "jira".into(),
        is_up: false,
    };
    monitor.apply(NodeEvent::Upstream {
        at: at(0),
        change: Box::new(lost),
    });
    monitor.apply(NodeEvent::Mail {
        at: at(0),
        from: PRINCIPAL.into(),
        recipients: 2,
    });
    monitor.apply(NodeEvent::Task {
        at: at(0),
        change: Box::new(TaskStateChange {
            id: "task-1".into(),
            agent: "orchestrator".into(),
            state: TaskState::Completed,
        }),
    });
    let text = monitor.metrics_text();
    for line in [
        "mcp_server_operation_duration_seconds_count{agent=\"front\",error_type=\"\",mcp_method_name=\"tools/call\",gen_ai_tool_name=\"search\"} 1",
        "mcp_server_operation_duration_seconds_count{agent=\"front\",error_type=\"not_found\",mcp_method_name=\"tools/call\",gen_ai_tool_name=\"other\"} 1",
        "callboard_policy_refusals_total{agent=\"files\",error_type=\"blocked\",direction=\"outbound\"} 1",
        "callboard_guard_decisions_total{decision=\"blocked\",rule=\"rule.7\"} 1",
        "callboard_restarts_total{agent=\"front\"} 1",
        "callboard_upstream_up{upstream=\"jira\"} 0",
        "callboard_mail_accepted_total 1",
        "callboard_tasks_total{state=\"completed\"} 1",
        "callboard_dead_letters_total 0",
        "callboard_events_dropped_total 0",
        "callboard_exchanges_unrecorded_total 0",
        "callboard_questions_waiting 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let last_bucket = "mcp_server_operation_duration_seconds_bucket{le=\"+Inf\",agent=\"front\"";
    assert!(text.contains(last_bucket), "{text}");
    assert!(text.contains("process_start_time_seconds ") && text.ends_with("# EOF\n"));
    assert!(!text.contains(PRINCIPAL));
    assert_eq!(monitor.overview().upstreams_away, 1);
    monitor.set_upstreams(vec!["github".to_owned()]);
    assert_eq!(monitor.overview().upstreams_away, 0);
}

/// Goal: many named agents don't push a peer into `other`. Method: local messages to more agents than a label has values,
/// then a peer.
#[test]
fn labels_of_peers_have_room() {
    let monitor = monitor();
    for n in 0..=LABEL_VALUES_MAX {
        let ids = (CallId::generate(), TraceContext::root());
        let hop = exchange(ExchangeKind::Local, ids, &format!("agent-{n}"), None, 0);
        monitor.apply(ended(&hop, 1, None));
    }
    monitor.apply(ended(&inbound("jira", "create"), 1, None));
    let text = monitor.metrics_text();
    for line in [
        "mcp_server_operation_duration_seconds_count{agent=\"jira\",error_type=\"\",mcp_method_name=\"tools/call\",gen_ai_tool_name=\"create\"} 1",
        "callboard_exchange_duration_seconds_count{agent=\"other\",error_type=\"\",protocol=\"\",direction=\"local\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

/// Goal: a call that an upstream passes on under its own name counts once; lists have the topology's agents first.
#[test]
fn agents_with_their_calls() {
    let monitor = monitor();
    let spawn = |name: &str| monitor.system().prepare(Idle).label(name).spawn();
    let unnamed = monitor.system().spawn(Idle);
    let agents = [spawn("b"), spawn("c"), spawn("a"), unnamed];
    monitor.set_kinds(HashMap::from([("c".to_owned(), "upstream".to_owned())]));
    let front = inbound("c", "t");
    let ids = (front.call, front.trace.child());
    let away = exchange(ExchangeKind::Outbound, ids, "c", Some("t"), 1);
    monitor.apply(NodeEvent::ExchangeBegan(front.clone()));
    monitor.apply(ended(&away, 1, Some(FailureKind::Unavailable)));
    monitor.apply(ended(&front, 2, Some(FailureKind::Unavailable)));
    let views = monitor.agents();
    let names: Vec<_> = views.iter().map(|view| view.name.as_deref()).collect();
    assert_eq!(names, [Some("c"), Some("a"), Some("b"), None]);
    let all = monitor.system().snapshot();
    let kinds = HashMap::from([("c".to_owned(), String::new())]);
    let first = agents::first_sorted(all, &kinds, 2);
    let names: Vec<_> = first.iter().map(|agent| agent.name.as_deref()).collect();
    assert_eq!(names, [Some("c"), Some("a")]);
    let first = &views[0];
    assert_eq!(
        (first.kind.as_str(), first.calls, first.failures),
        ("upstream", 1, 1)
    );
    drop(agents);
}

/// Goal: memory is bounded, whatever the number of agents. Method: calls of one more agent than are counted, then as many
/// living agents as one more than are shown.
#[test]
fn many_agents_stay_bounded() {
    let monitor = monitor();
    for n in 0..=AGENTS_COUNTED_MAX {
        monitor.apply(ended(&inbound(&format!("agent-{n}"), "t"), 1, None));
    }
    assert_eq!(monitor.0.state.lock().counts.counted(), AGENTS_COUNTED_MAX);
    assert_eq!(monitor.kept(), (CALLS_KEPT_MAX, CALLS_KEPT_MAX));
    let spawn = |n: usize| {
        let agent = monitor.system().prepare(Idle);
        agent.label(format!("agent-{n}")).spawn()
    };
    let agents: Vec<AgentRef> = (0..=AGENTS_SHOWN_MAX).map(spawn).collect();
    assert_eq!(monitor.agents().len(), AGENTS_SHOWN_MAX);
    let text = monitor.metrics_text();
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(
        lines("mcp_server_operation_duration_seconds_count{"),
        LABEL_VALUES_MAX + 1
    );
    assert_eq!(lines("callboard_mailbox_depth{"), LABEL_VALUES_MAX + 1);
    assert_eq!(lines("callboard_mailbox_depth{agent=\"other\""), 1);
    drop(agents);
}

/// Goal: messages and methods of any version have the words of the conventions. Method: rows.
#[test]
fn methods_of_messages() {
    for (message, method) in [
        ("callboard.tools.list", "tools/list"),
        ("callboard.resources.read", "resources/read"),
        ("callboard.complete", "completion/complete"),
        ("callboard.sample", "sampling/createMessage"),
        ("callboard.converse", "tools/call"),
        ("callboard.forward", "other"),
        ("search", "tools/call"),
    ] {
        assert_eq!(names::method(&CallOrigin::MCP, message, false), method);
    }
    for (method, operation) in [
        ("tasks/sendSubscribe", "SendStreamingMessage"),
        ("tasks/resubscribe", "SubscribeToTask"),
        ("GetTask", "GetTask"),
        ("", "SendMessage"),
    ] {
        let origin = CallOrigin {
            method,
            ..CallOrigin::A2A
        };
        assert_eq!(names::method(&origin, "search", true), operation);
    }
    assert_eq!(names::method(&CallOrigin::MAIL, "search", true), "other");
}

struct CountingSink(Arc<Mutex<usize>>);

impl EventSink for CountingSink {
    fn event(&mut self, _: &NodeEvent) {
        *self.0.lock() += 1;
    }

    fn flush(&mut self) {}
}

/// Goal: one reading takes all that the stream holds by default, which [`Monitor::read`] relies on to know when ends are
/// lost.
#[test]
fn one_reading_takes_a_full_stream() {
    let read_max = EVENTS_PER_TURN_MAX * TURNS_PER_POLL_MAX;
    assert!(read_max >= NodeEventOptions::default().capacity);
}

/// Goal: a turn of the reader is bounded, a sink gets each event, and changes are announced at most four times a second.
#[test]
fn reading_is_bounded() {
    let monitor = monitor();
    let events = monitor.system().node_events();
    let mut reader = events.subscribe(NodeEventOptions::default()).unwrap();
    let seen = Arc::new(Mutex::new(0));
    monitor.add_sink(Box::new(CountingSink(seen.clone())));
    for _ in 0..=EVENTS_PER_TURN_MAX {
        events.emit(|| NodeEvent::Mail {
            at: at(0),
            from: "a".into(),
            recipients: 1,
        });
    }
    let changes = monitor.changes();
    assert_eq!(monitor.0.read_turn(&mut reader), EVENTS_PER_TURN_MAX);
    assert_eq!(monitor.0.read_turn(&mut reader), 1);
    assert_eq!(monitor.0.read_turn(&mut reader), 0);
    assert_eq!(*seen.lock(), EVENTS_PER_TURN_MAX + 1);
    assert!(
        !monitor
            .0
            .announce(CHANGE_INTERVAL - Duration::from_millis(1))
    );
    assert!(monitor.0.announce(CHANGE_INTERVAL));
    assert!(!monitor.0.announce(CHANGE_INTERVAL), "nothing has changed");
    assert!(monitor.0.announce(IDLE_CHANGE_INTERVAL));
    assert_eq!(*changes.borrow(), 2);
}

/// Goal: an upstream that tells nothing of itself has the state that is known from its events.
#[tokio::test]
async fn states_of_upstreams() {
    let monitor = monitor();
    monitor.set_upstreams(vec!["jira".to_owned(), "github".to_owned()]);
    monitor.apply(NodeEvent::Upstream {
        at: at(0),
        change: Box::new(UpstreamChange {
            server: "jira".into(),
            is_up: false,
        }),
    });
    let views = monitor.upstreams().await;
    let states: Vec<_> = views
        .iter()
        .map(|view| (view.name.as_str(), view.state.as_str()))
        .collect();
    assert_eq!(states, [("github", "unknown"), ("jira", "away")]);
    let told = serde_json::json!({ "state": "away", "next_try_ms": 12_000, "failures": 3 });
    let view = upstream_view("jira", Some(true), told);
    assert_eq!(
        (view.state.as_str(), view.retry_ms, view.failures),
        ("away", Some(12_000), 3)
    );
}
