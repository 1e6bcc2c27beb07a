//! Tasks in a store that outlives their endpoint.

use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{Elicitation, Failure, Principal, ToolResult};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{
    Agent, AgentRef, ConcurrentHandler, Context, Handlers, MemoryTaskStore, OnRestart, System,
    TaskActor, TaskId, TaskStore,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::tests::{LEGACY, MODERN, Peer, ask};
use super::{McpTaskStore, TaskService};
use crate::inbound::endpoint::AgentEndpoint;
use crate::inbound::options::InboundOptions;

/// A tool that may be repeated.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, task = "optional", idempotent)]
struct Repeat {}

/// A tool that must not be repeated.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, task = "optional")]
struct Once {}

/// A tool that asks a question.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "optional", idempotent)]
struct Wonder {}

/// A tool that runs until released.
#[derive(Clone)]
struct Worker(Arc<Semaphore>);

impl Agent for Worker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Repeat>(8)
            .concurrent::<Once>(8)
            .concurrent::<Wonder>(8);
    }
}

impl Worker {
    fn work(&self) -> impl Future<Output = String> + Send + 'static {
        let go = self.0.clone();
        async move {
            let _ = go.acquire().await;
            "done".to_owned()
        }
    }
}

impl ConcurrentHandler<Repeat> for Worker {
    fn handle(&mut self, _: Repeat, _: Context) -> impl Future<Output = String> + Send + 'static {
        self.work()
    }
}

impl ConcurrentHandler<Once> for Worker {
    fn handle(&mut self, _: Once, _: Context) -> impl Future<Output = String> + Send + 'static {
        self.work()
    }
}

impl ConcurrentHandler<Wonder> for Worker {
    fn handle(
        &mut self,
        _: Wonder,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let form = Elicitation::form("Who?", json!({ "type": "object", "properties": {} }));
            let answer = cx.elicit(form).await?;
            Ok(ToolResult::text(
                answer.content().unwrap_or_default().to_string(),
            ))
        }
    }
}

/// An endpoint of one run of the process.
fn serve(agent: &AgentRef, tasks: &Arc<MemoryTaskStore>, run: &str) -> Arc<TaskService> {
    let store = McpTaskStore::new(tasks.clone(), run);
    let mut options = InboundOptions::default();
    options.tasks.store = Some(store);
    TaskService::new(AgentEndpoint::new(agent.clone(), options))
}

fn worker(system: &System) -> (AgentRef, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    (system.spawn(Worker(go.clone())), go)
}

fn of(id: &str) -> Peer {
    Peer {
        principal: Principal {
            id: id.into(),
            ..Principal::agent(id)
        },
        session: None,
        revision: MODERN,
    }
}

fn call(tool: &str, key: &str) -> Value {
    json!({ "name": tool, "arguments": {}, "_meta": { "callboard/key": key } })
}

async fn begin(endpoint: &Arc<TaskService>, peer: &Peer, tool: &str, key: &str) -> Value {
    ask(endpoint, peer, "tools/call", call(tool, key))
        .await
        .unwrap()["taskId"]
        .clone()
}

/// Waits until the task satisfies `is`.
async fn until(
    endpoint: &Arc<TaskService>,
    peer: &Peer,
    id: &Value,
    is: impl Fn(&Value) -> bool,
) -> Value {
    for _ in 0..1_000 {
        let now = ask(endpoint, peer, "tasks/get", json!({ "taskId": id }))
            .await
            .unwrap();
        if is(&now) {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it doesn't come to that");
}

/// Goal: a key identifies one task, whatever the members of this hop; another request under it is
/// rejected, and another owner's key is another task. Method: the same call with other hop members,
/// another tool, another owner, invalid keys.
#[test]
fn a_key_is_one_task() {
    run_with_paused_time(async |system| {
        let (agent, _) = worker(system);
        let endpoint = serve(&agent, &Arc::default(), "one");
        let (ann, bob) = (of("ann"), of("bob"));
        let first = begin(&endpoint, &ann, "repeat", "k").await;
        let mut again = call("repeat", "k");
        again["_meta"]["progressToken"] = json!(7);
        again["task"] = json!({ "ttl": 5 });
        assert_eq!(
            ask(&endpoint, &ann, "tools/call", again).await.unwrap()["taskId"],
            first
        );
        assert_eq!(
            ask(&endpoint, &ann, "tools/call", call("once", "k")).await,
            Err(-32602)
        );
        assert_ne!(begin(&endpoint, &bob, "repeat", "k").await, first);
        assert_ne!(begin(&endpoint, &ann, "repeat", "l").await, first);
        for none in [json!(1), json!(""), json!("x".repeat(129)), json!("\0")] {
            let params = json!({ "name": "repeat", "_meta": { "callboard/key": none } });
            assert_eq!(
                ask(&endpoint, &ann, "tools/call", params).await,
                Err(-32602),
                "{none}"
            );
        }
        endpoint.close();
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: after a restart, repeatable calls complete and others have failed with a reason; keys and
/// owners hold. Method: a run is stopped during a call, another begins on the same store.
#[test]
fn a_restart_goes_on_or_says_that_it_does_not() {
    run_with_paused_time(async |system| {
        let (agent, go) = worker(system);
        let tasks = Arc::new(MemoryTaskStore::default());
        let (ann, bob) = (of("ann"), of("bob"));
        let nobody = Peer {
            principal: Principal::anonymous(),
            session: Some(1),
            revision: LEGACY,
        };
        let first = serve(&agent, &tasks, "one");
        let repeat = begin(&first, &ann, "repeat", "r").await;
        let once = begin(&first, &ann, "once", "o").await;
        let of_session = json!({ "name": "repeat", "task": {} });
        let of_session = ask(&first, &nobody, "tools/call", of_session)
            .await
            .unwrap()["task"]["taskId"]
            .clone();
        first.close();

        let second = serve(&agent, &tasks, "two");
        let failed = until(&second, &ann, &once, |now| now["status"] == "failed").await;
        assert!(
            failed["error"]["message"]
                .as_str()
                .unwrap()
                .contains("whether the agent acted is unknown"),
            "{failed}"
        );
        assert_eq!(begin(&second, &ann, "repeat", "r").await, repeat);
        assert_eq!(begin(&second, &ann, "once", "o").await, once);
        go.add_permits(8);
        let done = until(&second, &ann, &repeat, |now| now["status"] != "working").await;
        assert_eq!(
            (&done["status"], &done["result"]["content"][0]["text"]),
            (&json!("completed"), &json!("done"))
        );
        for id in [&repeat, &once] {
            assert_eq!(
                ask(&second, &bob, "tasks/get", json!({ "taskId": id })).await,
                Err(-32602)
            );
        }
        // That session number belongs to another client now.
        assert_eq!(
            ask(
                &second,
                &nobody,
                "tasks/get",
                json!({ "taskId": of_session })
            )
            .await,
            Err(-32602)
        );
        let id = TaskId::new(of_session.as_str().unwrap()).unwrap();
        assert!(tasks.get(&id).await.unwrap().is_none());
        second.close();
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: a task that runs at one node can be read, answered and cancelled at another. Method: two
/// endpoints on one store.
#[test]
fn another_node_answers_and_cancels() {
    run_with_paused_time(async |system| {
        let (agent, _) = worker(system);
        let tasks = Arc::new(MemoryTaskStore::default());
        let (here, there) = (serve(&agent, &tasks, "one"), serve(&agent, &tasks, "two"));
        let ann = of("ann");
        let asks = begin(&here, &ann, "wonder", "w").await;
        let asking = until(&there, &ann, &asks, |now| now["status"] == "input_required").await;
        assert_eq!(asking["inputRequests"]["q1"]["params"]["message"], "Who?");
        let answer = json!({ "q1": { "action": "accept", "content": { "who": "ann" } } });
        let update = json!({ "taskId": asks, "inputResponses": answer });
        ask(&there, &ann, "tasks/update", update).await.unwrap();
        let done = until(&there, &ann, &asks, |now| now["status"] == "completed").await;
        assert_eq!(done["result"]["content"][0]["text"], r#"{"who":"ann"}"#);
        let works = begin(&here, &ann, "once", "o").await;
        ask(&there, &ann, "tasks/cancel", json!({ "taskId": works }))
            .await
            .unwrap();
        until(&here, &ann, &works, |now| now["status"] == "cancelled").await;
        // The operator of the node can cancel it too.
        let works = begin(&here, &ann, "repeat", "p").await;
        let id = TaskId::new(works.as_str().unwrap()).unwrap();
        assert_eq!(
            tasks.get(&id).await.unwrap().unwrap().on_restart,
            OnRestart::Resume
        );
        tasks
            .request_cancel(&id, TaskActor::Operator)
            .await
            .unwrap();
        until(&here, &ann, &works, |now| now["status"] == "cancelled").await;
        here.close();
        there.close();
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: tasks in a system's store continue when their endpoint ends, and no session of the next
/// endpoint is taken for an earlier one. Method: a call that can't be repeated, and two endpoints
/// in turn.
#[test]
fn another_endpoint_takes_its_place() {
    run_with_paused_time(async |system| {
        let (agent, go) = worker(system);
        let serve = || {
            let mut options = InboundOptions::default();
            options.tasks.store = Some(system.store().into());
            TaskService::new(AgentEndpoint::new(agent.clone(), options))
        };
        let (ann, first) = (of("ann"), serve());
        let once = begin(&first, &ann, "once", "o").await;
        let session = first.endpoint.changes.subscribe(|_| ()).number;
        first.close();
        drop(first);

        let second = serve();
        assert_ne!(second.endpoint.changes.subscribe(|_| ()).number, session);
        go.add_permits(1);
        let done = until(&second, &ann, &once, |now| now["status"] != "working").await;
        assert_eq!(done["status"], "completed", "{done}");
        system.store().running_tasks.stop().await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}
