use std::time::Duration;

use callboard_mcp::inbound::{InboundOptions, McpTaskOptions, StdioOptions};
use serde_json::{Value, json};

use crate::kit::Event;
use crate::pipe::{Pipe, with_legacy, with_options, with_pipe};

const RELATED: &str = "io.modelcontextprotocol/related-task";

async fn begin(pipe: &mut Pipe, tool: &str, arguments: Value, task: Value) -> Value {
    let created = pipe
        .ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments, "task": task }),
        )
        .await;
    let task = created["result"]["task"].clone();
    assert_eq!(task["status"], "working", "{created}");
    task
}

async fn get(pipe: &mut Pipe, id: &Value) -> Value {
    pipe.ask("tasks/get", json!({ "taskId": id })).await["result"].clone()
}

/// Goal: a task runs from its call to its result, with a notification at every step. Method: every
/// request and notification of it.
#[test]
fn life_of_a_task() {
    with_pipe(async |pipe| {
        let welcome = pipe.initialize("2025-11-25").await;
        let can = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        assert_eq!(welcome["capabilities"]["tasks"], can);
        let task = begin(pipe, "work", json!({}), json!({ "ttl": 60_000 })).await;
        let id = task["taskId"].clone();
        assert_eq!(
            (&task["ttl"], &task["pollInterval"]),
            (&json!(60_000), &json!(1_000))
        );
        assert_eq!(pipe.event().await, Event::Began);
        let now = get(pipe, &id).await;
        assert_eq!(
            (&now["status"], &now["statusMessage"]),
            (&json!("working"), &json!("halfway"))
        );
        let result = pipe.request("tasks/result", json!({ "taskId": id })).await;
        let listed = pipe.ask("tasks/list", json!({})).await;
        assert_eq!(listed["result"]["tasks"][0]["taskId"], id);
        pipe.go();
        let result = pipe.response(result).await["result"].clone();
        assert_eq!(result["content"][0]["text"], "done");
        assert_eq!(result["_meta"][RELATED]["taskId"], id);
        let told = pipe.heard("notifications/tasks/status").await;
        assert_eq!(
            (&told["params"]["status"], &told["params"]["taskId"]),
            (&json!("completed"), &id)
        );
        assert!(told["params"].get("_meta").is_none());
        // Its final state stays, even if a client tries to cancel it.
        let refused = pipe.ask("tasks/cancel", json!({ "taskId": id })).await;
        assert_eq!(refused["error"]["code"], -32602);
        assert_eq!(get(pipe, &id).await["status"], "completed");
        assert_eq!(
            pipe.ask("tasks/result", json!({ "taskId": id })).await["result"],
            result
        );
    });
}

/// Goal: tools that may, must or can't be tasks behave so; earlier revisions have no tasks. Method:
/// every mix.
#[test]
fn tools_say_whether_they_are_tasks() {
    with_legacy(async |pipe| {
        for (tool, params, code) in [
            (
                "echo",
                json!({ "arguments": { "text": "a" }, "task": {} }),
                -32601,
            ),
            (
                "confirm_delete",
                json!({ "arguments": { "file": "a" } }),
                -32601,
            ),
            ("ask_then_work", json!({}), -32601),
            ("work", json!({ "task": 1 }), -32602),
            ("work", json!({ "task": { "ttl": "soon" } }), -32602),
            ("work", json!({ "task": { "ttl": -1 } }), -32602),
        ] {
            let mut params = params;
            params["name"] = json!(tool);
            assert_eq!(
                pipe.ask("tools/call", params).await["error"]["code"],
                code,
                "{tool}"
            );
        }
        let tools = pipe.ask("tools/list", json!({})).await;
        let support = |name: &str| {
            let tools = tools["result"]["tools"].as_array().unwrap();
            tools.iter().find(|tool| tool["name"] == name).unwrap()["execution"]["taskSupport"]
                .clone()
        };
        let words = ["echo", "work", "confirm_delete", "ask_then_work"].map(support);
        assert_eq!(
            words,
            [
                Value::Null,
                json!("optional"),
                json!("required"),
                json!("required")
            ]
        );
    });
    with_pipe(async |earlier| {
        let welcome = earlier.initialize("2025-06-18").await;
        assert!(welcome["capabilities"].get("tasks").is_none());
        assert_eq!(
            earlier.ask("tasks/list", json!({})).await["error"]["code"],
            -32601
        );
        let ignored = json!({ "name": "echo", "arguments": { "text": "a" }, "task": {} });
        assert_eq!(
            earlier.ask("tools/call", ignored).await["result"]["content"][0]["text"],
            "a"
        );
    });
}

/// Goal: a question makes a task wait, goes to the client that requests its result, and the answer
/// continues the task. Method: a form, filled in.
#[test]
fn questions_come_while_the_result_is_open() {
    with_legacy(async |pipe| {
        let task = begin(
            pipe,
            "confirm_delete",
            json!({ "file": "a.txt" }),
            json!({}),
        )
        .await;
        let id = task["taskId"].clone();
        let told = pipe.heard("notifications/tasks/status").await;
        assert_eq!(told["params"]["status"], "input_required");
        assert_eq!(get(pipe, &id).await["status"], "input_required");
        let result = pipe.request("tasks/result", json!({ "taskId": id })).await;
        let question = pipe.heard("elicitation/create").await;
        assert_eq!(question["params"]["_meta"][RELATED]["taskId"], id);
        assert_eq!(question["params"]["message"], "Delete a.txt?");
        // A second client that waits isn't asked too.
        let second = pipe.request("tasks/result", json!({ "taskId": id })).await;
        let answer = json!({ "action": "accept", "content": {} });
        pipe.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }))
            .await;
        assert_eq!(
            pipe.response(result).await["result"]["content"][0]["text"],
            "deleted"
        );
        assert_eq!(
            pipe.response(second).await["result"]["content"][0]["text"],
            "deleted"
        );
        assert!(
            pipe.aside
                .iter()
                .all(|message| message["method"] != "elicitation/create")
        );
    });
}

/// Goal: a question of a client that disconnected goes to another that waits, or to the next.
/// Method: results are cancelled one by one.
#[test]
fn questions_survive_who_was_asked() {
    with_legacy(async |pipe| {
        let task = begin(
            pipe,
            "confirm_delete",
            json!({ "file": "a.txt" }),
            json!({}),
        )
        .await;
        let id = task["taskId"].clone();
        let first = pipe.request("tasks/result", json!({ "taskId": id })).await;
        pipe.heard("elicitation/create").await;
        let waits_too = pipe.request("tasks/result", json!({ "taskId": id })).await;
        for result in [first, waits_too] {
            let params = json!({ "requestId": result });
            pipe.send(
                &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
            )
            .await;
            if result == first {
                pipe.heard("elicitation/create").await;
            }
        }
        assert_eq!(get(pipe, &id).await["status"], "input_required");
        let second = pipe.request("tasks/result", json!({ "taskId": id })).await;
        let question = pipe.heard("elicitation/create").await;
        pipe.send(
            &json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } }),
        )
        .await;
        assert_eq!(
            pipe.response(second).await["result"]["content"][0]["text"],
            "kept"
        );
    });
}

/// Goal: cancelling a task cancels its execution, before the response, and for good. Method: a call
/// that would never end.
#[test]
fn cancelled_work_is_cancelled() {
    with_legacy(async |pipe| {
        let id = begin(pipe, "work", json!({}), json!({})).await["taskId"].clone();
        assert_eq!(pipe.event().await, Event::Began);
        let waiting = pipe.request("tasks/result", json!({ "taskId": id })).await;
        let cancelled = pipe.ask("tasks/cancel", json!({ "taskId": id })).await;
        assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
        assert_eq!(pipe.event().await, Event::Cancelled);
        let result = pipe.response(waiting).await;
        assert_eq!(result["error"]["code"], -8, "{result}");
        assert_eq!(get(pipe, &id).await["status"], "cancelled");
    });
}

/// Goal: a tool result with `isError` is a failed task with its result; an error is an error.
/// Method: both.
#[test]
fn failures_of_tasks() {
    with_legacy(async |pipe| {
        for (kind, said, has_result) in [
            ("rejected", Value::Null, true),
            ("denied", json!("as told"), false),
        ] {
            let id =
                begin(pipe, "fail_as", json!({ "kind": kind }), json!({})).await["taskId"].clone();
            let result = pipe.ask("tasks/result", json!({ "taskId": id })).await;
            let now = get(pipe, &id).await;
            assert_eq!(
                (&now["status"], &now["statusMessage"]),
                (&json!("failed"), &said)
            );
            match has_result {
                true => assert_eq!(result["result"]["isError"], true),
                false => assert_eq!(result["error"], json!({ "code": -2, "message": "as told" })),
            }
        }
    });
}

/// Goal: a task is removed after its time to live, running or not; the client's wish is limited.
/// Method: paused time.
#[test]
fn tasks_go_when_their_time_is_over() {
    with_legacy(async |pipe| {
        let short = begin(pipe, "work", json!({}), json!({ "ttl": 0 })).await;
        assert_eq!(short["ttl"], 1_000);
        assert_eq!(pipe.event().await, Event::Began);
        let long = begin(
            pipe,
            "fail_as",
            json!({ "kind": "denied" }),
            json!({ "ttl": 1e300 }),
        )
        .await;
        assert_eq!(long["ttl"], 86_400_000);
        let result = pipe
            .request("tasks/result", json!({ "taskId": short["taskId"] }))
            .await;
        tokio::time::sleep(Duration::from_millis(1_001)).await;
        assert_eq!(pipe.event().await, Event::Cancelled);
        assert_eq!(pipe.response(result).await["error"]["code"], -32602);
        let gone = pipe
            .ask("tasks/get", json!({ "taskId": short["taskId"] }))
            .await;
        assert_eq!(gone["error"]["code"], -32602);
        assert_eq!(get(pipe, &long["taskId"]).await["status"], "failed");
    });
}

/// Goal: tasks are limited, and listed page by page. Method: one more than fits, pages of two.
#[test]
fn tasks_are_bounded_and_paged() {
    let tasks = McpTaskOptions {
        tasks_per_owner_max: 5,
        ..McpTaskOptions::default()
    };
    let inbound = InboundOptions {
        tasks,
        page_items_max: 2,
        ..InboundOptions::default()
    };
    with_options(
        StdioOptions {
            inbound,
            ..StdioOptions::default()
        },
        async |pipe| {
            pipe.initialize("2025-11-25").await;
            let mut begun = Vec::new();
            for _ in 0..5 {
                let task = begin(
                    pipe,
                    "fail_as",
                    json!({ "kind": "denied" }),
                    json!({ "ttl": 60_000 }),
                )
                .await;
                begun.push(task["taskId"].clone());
            }
            let more = json!({ "name": "fail_as", "arguments": { "kind": "denied" }, "task": {} });
            assert_eq!(
                pipe.ask("tools/call", more.clone()).await["error"]["code"],
                -3
            );
            let (mut listed, mut params) = (Vec::new(), json!({}));
            loop {
                let page = pipe.ask("tasks/list", params.clone()).await["result"].clone();
                let tasks = page["tasks"].as_array().unwrap();
                assert!(tasks.len() <= 2);
                listed.extend(tasks.iter().map(|task| task["taskId"].clone()));
                match page.get("nextCursor") {
                    Some(cursor) => params = json!({ "cursor": cursor }),
                    None => break,
                }
            }
            assert_eq!(listed, begun);
            assert_eq!(
                pipe.ask("tasks/list", json!({ "cursor": "x" })).await["error"]["code"],
                -32602
            );
            // Expired tasks make room.
            tokio::time::sleep(Duration::from_millis(60_001)).await;
            assert!(pipe.ask("tools/call", more).await["result"]["task"]["taskId"].is_string());
        },
    );
}

/// Goal: unknown task ids are errors. Method: rows.
#[test]
fn unknown_tasks() {
    with_legacy(async |pipe| {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            for params in [json!({ "taskId": "no" }), json!({ "taskId": 7 }), json!({})] {
                assert_eq!(
                    pipe.ask(method, params).await["error"]["code"],
                    -32602,
                    "{method}"
                );
            }
        }
    });
}
