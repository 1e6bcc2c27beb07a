use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::Event;
use crate::pipe::{Pipe, meta, with_pipe};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Returns the capabilities of a client with tasks and form elicitation.
fn able() -> Value {
    json!({ "elicitation": {}, "extensions": { EXTENSION: {} } })
}

async fn begin(pipe: &mut Pipe, tool: &str, arguments: Value) -> Value {
    let created = pipe
        .modern(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
            able(),
        )
        .await;
    let task = created["result"].clone();
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{created}"
    );
    task["taskId"].clone()
}

async fn get(pipe: &mut Pipe, id: &Value) -> Value {
    pipe.modern("tasks/get", json!({ "taskId": id }), able())
        .await["result"]
        .clone()
}

/// Waits until the task no longer has status `working`.
async fn settled(pipe: &mut Pipe, id: &Value) -> Value {
    loop {
        let now = get(pipe, id).await;
        if now["status"] != "working" {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Goal: a task is created by the server, found at once, and contains its result at the end.
/// Method: every answer of its life.
#[test]
fn life_of_a_task() {
    with_pipe(async |pipe| {
        let discovered = pipe.modern("server/discover", json!({}), able()).await;
        let can = &discovered["result"]["capabilities"];
        assert_eq!(
            (&can["extensions"][EXTENSION], can.get("tasks")),
            (&json!({}), None)
        );
        let created = pipe
            .modern(
                "tools/call",
                json!({ "name": "work", "task": { "ttl": 1 } }),
                able(),
            )
            .await;
        let task = &created["result"];
        assert_eq!(
            (&task["ttlMs"], &task["pollIntervalMs"]),
            (&json!(600_000), &json!(1_000))
        );
        for none in [
            "task",
            "ttl",
            "pollInterval",
            "result",
            "error",
            "inputRequests",
            "requestState",
        ] {
            assert!(task.get(none).is_none(), "{none}");
        }
        let id = task["taskId"].clone();
        assert_eq!(pipe.event().await, Event::Began);
        let now = get(pipe, &id).await;
        assert_eq!(
            (&now["resultType"], &now["status"]),
            (&json!("complete"), &json!("working"))
        );
        assert_eq!(now["statusMessage"], "halfway");
        pipe.go();
        let done = settled(pipe, &id).await;
        assert_eq!(
            (&done["status"], &done["result"]["content"][0]["text"]),
            (&json!("completed"), &json!("done"))
        );
        assert!(done["result"].get("_meta").is_none());
        // Cancelling a finished task is acknowledged, and changes nothing.
        let acknowledged = pipe
            .modern("tasks/cancel", json!({ "taskId": id }), able())
            .await["result"]
            .clone();
        assert_eq!(acknowledged["resultType"], "complete");
        assert!(acknowledged.get("status").is_none() && acknowledged.get("taskId").is_none());
        assert_eq!(get(pipe, &id).await, done);
    });
}

/// Goal: a client without the extension gets no task: a result if possible, otherwise the extension
/// to declare. Method: every method and kind of tool.
#[test]
fn clients_without_the_extension() {
    with_pipe(async |pipe| {
        let elsewhere = json!({ "tasks": { "list": {} }, "elicitation": {} });
        for capabilities in [json!({}), elsewhere] {
            for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
                let refused = pipe
                    .modern(method, json!({ "taskId": "no" }), capabilities.clone())
                    .await;
                assert_eq!(refused["error"]["code"], -32021, "{method}");
            }
            for tool in ["two_questions", "ask_then_work"] {
                let refused = pipe
                    .modern("tools/call", json!({ "name": tool }), capabilities.clone())
                    .await;
                let wanted = json!({ "requiredCapabilities": { "extensions": { EXTENSION: {} } } });
                assert_eq!(
                    (&refused["error"]["code"], &refused["error"]["data"]),
                    (&json!(-32021), &wanted),
                    "{tool}"
                );
            }
            let params = json!({ "name": "fail_as", "arguments": { "kind": "rejected" } });
            let result = pipe.modern("tools/call", params, capabilities).await["result"].clone();
            assert_eq!(
                (&result["resultType"], &result["isError"]),
                (&json!("complete"), &json!(true))
            );
        }
        for method in ["tasks/result", "tasks/list"] {
            assert_eq!(
                pipe.modern(method, json!({ "taskId": "no" }), able()).await["error"]["code"],
                -32601
            );
        }
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let params = json!({ "taskId": "no", "inputResponses": {} });
            assert_eq!(
                pipe.modern(method, params, able()).await["error"]["code"],
                -32602
            );
        }
    });
}

/// Answers that don't fit the form of the pipe's agent, each with the end of its error.
fn unfit_answers() -> [(Value, &'static str); 4] {
    let accept = |content| json!({ "action": "accept", "content": content });
    [
        (json!(5), "it must be an object"),
        (
            json!({ "action": "yes" }),
            "`action` must be one of: accept, decline, cancel",
        ),
        (accept(json!([])), "the values of a form must be an object"),
        (
            accept(json!({ "yes": "true" })),
            "`yes` must be of type boolean",
        ),
    ]
}

/// Goal: the task holds its questions until each is answered; unknown and repeated answers are
/// ignored. Method: two questions, answered one by one.
#[test]
fn questions_are_answered_by_updates() {
    with_pipe(async |pipe| {
        let id = begin(pipe, "two_questions", json!({})).await;
        let asked = loop {
            let now = settled(pipe, &id).await;
            if now["inputRequests"]
                .as_object()
                .is_some_and(|requests| requests.len() == 2)
            {
                break now;
            }
        };
        assert_eq!(asked["status"], "input_required");
        assert_eq!(asked["inputRequests"]["q1"]["method"], "elicitation/create");
        assert_eq!(asked["inputRequests"]["q2"]["params"]["message"], "Two?");
        let answer = |n: i64| json!({ "action": "accept", "content": { "n": n } });
        for (responses, left) in [
            (json!({ "no_such": answer(0) }), vec!["q1", "q2"]),
            (json!({ "q2": answer(2) }), vec!["q1"]),
            (json!({ "q2": answer(9) }), vec!["q1"]),
        ] {
            let params = json!({ "taskId": id, "inputResponses": responses });
            let told = pipe.modern("tasks/update", params, able()).await;
            assert_eq!(told["result"]["resultType"], "complete", "{told}");
            let now = get(pipe, &id).await;
            let keys: Vec<_> = now["inputRequests"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect();
            assert_eq!(
                (keys, &now["status"]),
                (
                    left.into_iter().map(str::to_owned).collect(),
                    &json!("input_required")
                )
            );
        }
        // An invalid answer is an error, and the question stays.
        for (invalid, why) in unfit_answers() {
            let params = json!({ "taskId": id, "inputResponses": { "q1": invalid } });
            let refused = pipe.modern("tasks/update", params, able()).await["error"].clone();
            assert_eq!(refused["code"], -32602);
            assert!(
                refused["message"].as_str().unwrap().ends_with(why),
                "{refused}"
            );
        }
        let params = json!({ "taskId": id, "inputResponses": { "q1": answer(1) } });
        pipe.modern("tasks/update", params, able()).await;
        let done = settled(pipe, &id).await;
        assert_eq!(
            done["result"]["content"][0]["text"], r#"{"n":1} {"n":2}"#,
            "{done}"
        );
    });
}

/// Goal: a tool that asks first becomes a task with the answer. Method: the question by
/// multi-round-trip, the execution as a task, the retry repeated.
#[test]
fn questions_first_then_a_task() {
    with_pipe(async |pipe| {
        let asked = pipe
            .modern("tools/call", json!({ "name": "ask_then_work" }), able())
            .await["result"]
            .clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        assert!(asked.get("taskId").is_none() && asked["inputRequests"]["who"].is_object());
        let responses = json!({ "who": { "action": "accept", "content": { "who": "Alice" } } });
        let state = &asked["requestState"];
        for (invalid, why) in unfit_answers() {
            let responses = json!({ "who": invalid });
            let retry = json!({ "name": "ask_then_work", "inputResponses": responses, "requestState": state });
            let refused = pipe.modern("tools/call", retry, able()).await["error"].clone();
            assert_eq!(refused["code"], -32602);
            assert!(
                refused["message"].as_str().unwrap().ends_with(why),
                "{refused}"
            );
        }
        let retry =
            json!({ "name": "ask_then_work", "inputResponses": responses, "requestState": state });
        let created = pipe.modern("tools/call", retry.clone(), able()).await["result"].clone();
        assert_eq!(created["resultType"], "task", "{created}");
        assert!(created.get("requestState").is_none() && created.get("inputRequests").is_none());
        let again = pipe.modern("tools/call", retry, able()).await["result"].clone();
        assert_eq!(again["taskId"], created["taskId"]);
        assert_eq!(pipe.event().await, Event::Began);
        let id = &created["taskId"];
        assert_eq!(get(pipe, id).await["statusMessage"], "halfway");
        pipe.go();
        assert_eq!(
            settled(pipe, id).await["result"]["content"][0]["text"],
            "\"Alice\""
        );
    });
}

/// Goal: cancelling is acknowledged and cancels the execution; failures are errors, a tool's own
/// error is a result. Method: each.
#[test]
fn ends_of_tasks() {
    with_pipe(async |pipe| {
        let id = begin(pipe, "work", json!({})).await;
        assert_eq!(pipe.event().await, Event::Began);
        pipe.modern("tasks/cancel", json!({ "taskId": id }), able())
            .await;
        assert_eq!(pipe.event().await, Event::Cancelled);
        assert_eq!(get(pipe, &id).await["status"], "cancelled");
        let id = begin(pipe, "fail_as", json!({ "kind": "denied" })).await;
        let failed = settled(pipe, &id).await;
        assert_eq!(
            (&failed["status"], failed.get("result")),
            (&json!("failed"), None)
        );
        assert_eq!(failed["error"], json!({ "code": -2, "message": "as told" }));
        let id = begin(pipe, "fail_as", json!({ "kind": "rejected" })).await;
        let completed = settled(pipe, &id).await;
        assert_eq!(
            (&completed["status"], &completed["result"]["isError"]),
            (&json!("completed"), &json!(true))
        );
    });
}

/// Goal: a subscriber gets each step of its own tasks, whole, and of no other. Method: a listed
/// task and a foreign id.
#[test]
fn steps_are_told_to_subscribers() {
    with_pipe(async |pipe| {
        let id = begin(pipe, "confirm_delete", json!({ "file": "a" })).await;
        let wanted = json!({ "notifications": { "taskIds": [id, "no-such-task"] } });
        let refused = pipe
            .modern("subscriptions/listen", wanted.clone(), json!({}))
            .await;
        assert_eq!(refused["error"]["code"], -32021);
        let mut params = wanted;
        params["_meta"] = meta(able());
        let listening = pipe.request("subscriptions/listen", params).await;
        let agreed = pipe.heard("notifications/subscriptions/acknowledged").await;
        assert_eq!(agreed["params"]["notifications"]["taskIds"], json!([id]));
        let mut told = pipe.heard("notifications/tasks").await;
        while told["params"]["status"] == "working" {
            told = pipe.heard("notifications/tasks").await;
        }
        assert_eq!(
            told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
            listening
        );
        assert_eq!(
            told["params"]["inputRequests"]["confirm"]["method"],
            "elicitation/create"
        );
        let answer = json!({ "confirm": { "action": "accept", "content": {} } });
        pipe.modern(
            "tasks/update",
            json!({ "taskId": id, "inputResponses": answer }),
            able(),
        )
        .await;
        while told["params"]["status"] != "completed" {
            told = pipe.heard("notifications/tasks").await;
        }
        assert_eq!(told["params"]["result"]["content"][0]["text"], "deleted");
    });
}
