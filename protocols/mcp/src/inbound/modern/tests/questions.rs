use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::kit::{error_code, named, with_peer};
use crate::inbound::modern::pending_elicitations::ELICITATIONS_MAX;

/// Goal: a question is the result, under its author's key, and the answer resumes the call. Method:
/// one question, of each request that may ask.
#[test]
fn one_question() {
    with_peer(async |peer| {
        for (method, params, path) in [
            (
                "tools/call",
                json!({ "name": "ask_name", "arguments": { "greeting": "Hello" } }),
                "/content/0/text",
            ),
            (
                "prompts/get",
                json!({ "name": "p" }),
                "/messages/0/content/text",
            ),
            (
                "resources/read",
                json!({ "uri": "test://asks" }),
                "/contents/0/text",
            ),
        ] {
            let (status, first) = peer.post(method, params.clone()).await;
            let result = &first["result"];
            assert_eq!(
                (status, &result["resultType"]),
                (200, &json!("input_required")),
                "{first}"
            );
            assert_eq!(result.get("ttlMs"), None);
            let asked = &result["inputRequests"]["user_name"];
            assert_eq!(asked["method"], "elicitation/create");
            assert_eq!(
                asked["params"].get("_meta"),
                None,
                "the key isn't in the question"
            );
            assert_eq!(asked["params"]["message"], "What is your name?");

            let mut retry = params;
            retry["requestState"] = result["requestState"].clone();
            retry["inputResponses"] = json!({ "user_name": named("Alice"), "unknown": 1 });
            let (_, last) = peer.post(method, retry).await;
            assert_eq!(last["result"]["resultType"], "complete", "{last}");
            assert!(
                last["result"]
                    .pointer(path)
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .contains("Alice")
            );
            if method == "resources/read" {
                assert_eq!(
                    last["result"]["ttlMs"], 0,
                    "what answers led to is kept by nobody"
                );
            }
        }
        assert_eq!(peer.service.calls.waiting(), 0);
    });
}

/// Goal: concurrent questions come together, and an unanswered one is asked again. Method: three,
/// answered in two parts, the second with an unknown key besides.
#[test]
fn several_questions() {
    with_peer(async |peer| {
        let first = peer.tool("ask_three", json!({})).await;
        let keys = |result: &Value| {
            let mut keys: Vec<_> = result["inputRequests"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect();
            keys.sort();
            keys
        };
        assert_eq!(keys(&first), ["folders", "greeting", "who"]);
        let methods = ["roots/list", "sampling/createMessage", "elicitation/create"];
        for (key, method) in ["folders", "greeting", "who"].into_iter().zip(methods) {
            assert_eq!(first["inputRequests"][key]["method"], method);
        }
        let part = json!({ "who": named("Bob"), "folders": { "roots": [{ "uri": "file:///a" }] } });
        let second = peer
            .tool(
                "ask_three",
                json!({ "requestState": first["requestState"], "inputResponses": part }),
            )
            .await;
        assert_eq!(keys(&second), ["greeting"]);
        let written = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "Hi" } });
        let rest = json!({ "greeting": written, "who": named("Eve") });
        let last = peer
            .tool(
                "ask_three",
                json!({ "requestState": second["requestState"], "inputResponses": rest }),
            )
            .await;
        assert_eq!(last["content"][0]["text"], "Hi Bob");
    });
}

/// Goal: questions of several rounds, named by their order. Method: a tool that asks twice.
#[test]
fn several_rounds() {
    with_peer(async |peer| {
        let first = peer.tool("ask_twice", json!({})).await;
        assert!(first["inputRequests"]["q1"].is_object(), "{first}");
        let answers = json!({ "q1": named("A") });
        let second = peer
            .tool(
                "ask_twice",
                json!({ "requestState": first["requestState"], "inputResponses": answers }),
            )
            .await;
        assert!(second["inputRequests"]["q2"].is_object(), "{second}");
        assert_ne!(first["requestState"], second["requestState"]);
        let answers = json!({ "q2": named("B") });
        let last = peer
            .tool(
                "ask_twice",
                json!({ "requestState": second["requestState"], "inputResponses": answers }),
            )
            .await;
        assert_eq!(last["content"][0]["text"], "A B");
    });
}

/// Goal: early answers are taken by key, once; unknown and invalid ones aren't. Method: calls
/// without state.
#[test]
fn answers_before_their_questions() {
    with_peer(async |peer| {
        let early = json!({ "inputResponses": { "user_name": named("Alice"), "unknown": 1 } });
        assert_eq!(
            peer.tool("ask_name", early).await["content"][0]["text"],
            " Alice"
        );
        for wrong in [
            json!({ "wrong_key": named("Alice") }),
            json!({ "user_name": 12345 }),
            json!({}),
        ] {
            let result = peer
                .tool("ask_name", json!({ "inputResponses": wrong }))
                .await;
            assert_eq!(result["resultType"], "input_required");
        }
        for wrong in [json!(null), json!([]), json!("a")] {
            let (status, response) = peer
                .call("ask_name", json!({ "inputResponses": wrong }))
                .await;
            assert_eq!((status, error_code(&response)), (400, -32602));
        }
        assert_eq!(peer.counts.greeted.load(Ordering::SeqCst), 1);
    });
}

/// Goal: a retry without answers is asked again and may be repeated; one with an invalid answer is
/// rejected and may be repeated too. Method: both, then the right one.
#[test]
fn a_retry_without_its_answers() {
    with_peer(async |peer| {
        let first = peer.tool("ask_name", json!({})).await;
        let retry = |answers: Value| json!({ "requestState": first["requestState"], "inputResponses": answers });
        let again = peer
            .tool("ask_name", retry(json!({ "other": named("X") })))
            .await;
        assert_eq!(again["inputRequests"], first["inputRequests"]);
        let none = peer
            .tool("ask_name", json!({ "requestState": again["requestState"] }))
            .await;
        assert_eq!(none["inputRequests"], first["inputRequests"]);
        for wrong in [
            json!(1),
            json!({}),
            json!({ "action": "maybe" }),
            json!({ "action": "accept", "content": "A" }),
        ] {
            let (_, response) = peer
                .call("ask_name", retry(json!({ "user_name": wrong })))
                .await;
            assert_eq!(error_code(&response), -32602);
        }
        assert_eq!(
            peer.tool("ask_name", retry(json!({ "user_name": named("A") })))
                .await["content"][0]["text"],
            " A"
        );
    });
}

/// Goal: questions beyond the client's capabilities aren't asked. Method: capabilities that lack
/// one, or all.
#[test]
fn only_what_the_client_can_answer() {
    with_peer(async |peer| {
        let call = json!({ "name": "ask_name", "arguments": {} });
        for capabilities in [
            json!({}),
            json!({ "sampling": {} }),
            json!({ "elicitation": { "url": {} } }),
        ] {
            let (status, response) = peer.post_as("tools/call", call.clone(), capabilities).await;
            assert_eq!((status, error_code(&response)), (400, -32021), "{response}");
            assert_eq!(
                response["error"]["data"],
                json!({ "requiredCapabilities": { "elicitation": {} } })
            );
        }
        let (status, response) = peer
            .post_as("prompts/get", json!({ "name": "p" }), json!({}))
            .await;
        assert_eq!((status, error_code(&response)), (400, -32021));
        let three = json!({ "name": "ask_three", "arguments": {} });
        let (_, response) = peer
            .post_as("tools/call", three, json!({ "sampling": {} }))
            .await;
        let asked = response["result"]["inputRequests"].as_object().unwrap();
        assert_eq!(asked.keys().collect::<Vec<_>>(), ["greeting"]);
    });
}

/// Goal: the unanswered questions of a call are limited exactly, and each has its own key. Method:
/// limit + 1 under one key.
#[test]
fn questions_are_bounded() {
    with_peer(async |peer| {
        let arguments = json!({ "count": ELICITATIONS_MAX + 1 });
        let first = peer
            .tool("ask_many", json!({ "arguments": arguments }))
            .await;
        let asked = first["inputRequests"].as_object().unwrap();
        assert_eq!(asked.len(), ELICITATIONS_MAX);
        let answers: serde_json::Map<_, _> =
            asked.keys().map(|key| (key.clone(), named("A"))).collect();
        let retry = json!({ "arguments": arguments, "requestState": first["requestState"], "inputResponses": answers });
        assert_eq!(
            peer.tool("ask_many", retry).await["content"][0]["text"],
            "1 refused"
        );
    });
}
