use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{CallerCapabilities, Principal, RawObject};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{Agent, CallContext, ConcurrentHandler, Context, Handlers, System};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{TASKS_EXTENSION, TaskRequest, TaskService, legacy, modern};
use crate::inbound::endpoint::AgentEndpoint;
use crate::inbound::options::InboundOptions;
use crate::inbound::request::McpRequest;
use crate::wire::Revision;

/// A tool that never ends.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = (), task = "optional")]
struct Work {}

struct Worker;

impl Agent for Worker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Work>(8);
    }
}

impl ConcurrentHandler<Work> for Worker {
    fn handle(&mut self, _: Work, cx: Context) -> impl Future<Output = ()> + Send + 'static {
        async move { cx.cancelled().await }
    }
}

/// Peer of one of the two eras.
pub(crate) struct Peer {
    pub principal: Principal,
    pub session: Option<u64>,
    pub revision: Revision,
}

pub(crate) const LEGACY: Revision = Revision::V2025_11_25;
pub(crate) const MODERN: Revision = Revision::V2026_07_28;

pub(crate) async fn ask(
    endpoint: &Arc<TaskService>,
    peer: &Peer,
    method: &str,
    params: Value,
) -> Result<Value, i64> {
    let params = RawValue::from_string(params.to_string()).unwrap();
    let extensions = RawObject::single(TASKS_EXTENSION, RawObject::new());
    let request = &TaskRequest {
        request: &McpRequest::new(method, Some(params)),
        revision: peer.revision,
        call: CallContext::new(Arc::new(peer.principal.clone())),
        session: peer.session,
        client: CallerCapabilities(
            RawObject::single("extensions", extensions).with("elicitation", RawObject::new()),
        ),
        background: None,
        unsolicited: None,
    };
    assert!(endpoint.serves(peer.revision));
    let outcome = match (method, peer.revision == MODERN) {
        ("tools/call", false) => legacy::start(endpoint, request).await,
        ("tasks/get", false) => legacy::get(endpoint, request).await,
        ("tasks/list", false) => legacy::list(endpoint, request).await,
        ("tasks/cancel", false) => legacy::cancel(endpoint, request).await,
        ("tasks/result", false) => legacy::wait_result(endpoint, request).await,
        ("tools/call", true) => modern::start(endpoint, request).await,
        ("tasks/get", true) => modern::get(endpoint, request).await,
        ("tasks/update", true) => modern::update(endpoint, request).await,
        ("tasks/cancel", true) => modern::cancel(endpoint, request).await,
        other => panic!("{other:?}"),
    };
    outcome
        .map(|result| serde_json::from_str(result.get()).unwrap())
        .map_err(|error| error.code)
}

fn endpoint(system: &System) -> Arc<TaskService> {
    TaskService::new(AgentEndpoint::new(
        system.spawn(Worker),
        InboundOptions::default(),
    ))
}

/// Goal: a task is visible to its owner only, in either era. Method: every other peer requests it
/// by its id, lists tasks, and tries to cancel it.
#[test]
fn a_task_is_its_owners() {
    run_with_paused_time(async |system| {
        let endpoint = endpoint(system);
        let key = |id: &str| Principal {
            id: id.into(),
            ..Principal::agent(id)
        };
        let peer = |principal, session, revision| Peer {
            principal,
            session,
            revision,
        };
        let owners = [
            peer(key("a"), Some(1), LEGACY),
            peer(key("b"), Some(2), LEGACY),
            peer(Principal::anonymous(), Some(3), LEGACY),
            peer(Principal::anonymous(), Some(4), LEGACY),
            peer(Principal::anonymous(), None, MODERN),
            peer(key("c"), None, MODERN),
        ];
        for (at, owner) in owners.iter().enumerate() {
            let begun = ask(
                &endpoint,
                owner,
                "tools/call",
                json!({ "name": "work", "task": {} }),
            )
            .await
            .unwrap();
            let task = if owner.revision == MODERN {
                &begun
            } else {
                &begun["task"]
            };
            let named = json!({ "taskId": task["taskId"] });
            for (_, stranger) in owners.iter().enumerate().filter(|(other, _)| *other != at) {
                for method in ["tasks/get", "tasks/cancel"] {
                    assert_eq!(
                        ask(&endpoint, stranger, method, named.clone()).await,
                        Err(-32602)
                    );
                }
            }
            assert_eq!(
                ask(&endpoint, owner, "tasks/get", named.clone())
                    .await
                    .unwrap()["status"],
                "working"
            );
            if owner.revision == LEGACY {
                let listed = ask(&endpoint, owner, "tasks/list", json!({}))
                    .await
                    .unwrap();
                let ids: Vec<_> = listed["tasks"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|task| &task["taskId"])
                    .collect();
                assert_eq!(ids, [&named["taskId"]]);
            }
        }
        // The owner finds it in the other era, too.
        let (before, after) = (peer(key("c"), Some(9), LEGACY), &owners[5]);
        let listed = ask(&endpoint, &before, "tasks/list", json!({}))
            .await
            .unwrap();
        let named = json!({ "taskId": listed["tasks"][0]["taskId"] });
        ask(&endpoint, &before, "tasks/cancel", named.clone())
            .await
            .unwrap();
        assert_eq!(
            ask(&endpoint, after, "tasks/get", named).await.unwrap()["status"],
            "cancelled"
        );
        endpoint.close();
        system.shutdown(Duration::from_secs(5)).await;
    });
}
