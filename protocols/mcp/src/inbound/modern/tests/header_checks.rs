use crate::inbound::request::ClientMessage;
use std::collections::HashMap;

use callboard_rpc::{DecodeLimits, decode};
use serde_json::{Value, json};

use super::kit::{Peer, with_peer};
use crate::inbound::modern::{HeaderField, check_headers};

/// Returns the code of the rejection, 0 if the request passes.
fn check(peer: &Peer, headers: &[(&str, &str)], method: &str, mut params: Value) -> i64 {
    if params.get("_meta").is_none() {
        params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let message = decode(body.as_bytes(), &DecodeLimits::default())
        .unwrap()
        .into();
    let ClientMessage::Request(_, request) = message else {
        panic!("no request")
    };
    let mut found: HashMap<&str, Vec<&str>> = HashMap::new();
    headers
        .iter()
        .for_each(|(name, value)| found.entry(name).or_default().push(value));
    let field = |name: &str| match found.get(name).map(Vec::as_slice) {
        None => HeaderField::Missing,
        Some([value]) => HeaderField::One(value.as_bytes()),
        Some(_) => HeaderField::Several,
    };
    check_headers(&peer.service.tasks.endpoint, &field, &request)
        .err()
        .map_or(0, |error| error.code)
}

const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
const CALL: (&str, &str) = ("mcp-method", "tools/call");
const ECHO: (&str, &str) = ("mcp-name", "echo");

/// Goal: standard headers repeat the body, or the request is rejected. Method: one row per
/// difference.
#[test]
fn standard_headers() {
    with_peer(async |peer| {
        let list = ("mcp-method", "tools/list");
        let echo = || json!({ "name": "echo" });
        for (headers, method, params, code) in [
            (vec![VERSION, list], "tools/list", json!({}), 0),
            (vec![list], "tools/list", json!({}), -32020),
            (vec![VERSION], "tools/list", json!({}), -32020),
            (vec![VERSION, list, list], "tools/list", json!({}), -32020),
            (
                vec![VERSION, ("mcp-method", "TOOLS/LIST")],
                "tools/list",
                json!({}),
                -32020,
            ),
            (
                vec![("mcp-protocol-version", "2025-11-25"), list],
                "tools/list",
                json!({}),
                -32020,
            ),
            (vec![VERSION, CALL, ECHO], "tools/call", echo(), 0),
            (
                vec![VERSION, CALL, ("mcp-name", "  echo ")],
                "tools/call",
                echo(),
                0,
            ),
            (
                vec![VERSION, CALL, ("mcp-name", "=?base64?ZWNobw==?=")],
                "tools/call",
                echo(),
                0,
            ),
            (
                vec![VERSION, CALL, ("mcp-name", "=?base64?ZWNobw?=")],
                "tools/call",
                echo(),
                -32020,
            ),
            (
                vec![VERSION, CALL, ("mcp-name", "Echo")],
                "tools/call",
                echo(),
                -32020,
            ),
            (vec![VERSION, CALL], "tools/call", echo(), -32020),
            (vec![VERSION, CALL], "tools/call", json!({}), 0),
            (
                vec![VERSION, ("mcp-method", "resources/read"), ECHO],
                "resources/read",
                json!({ "uri": "a" }),
                -32020,
            ),
            (
                vec![VERSION, ("mcp-method", "tasks/get")],
                "tasks/get",
                json!({ "taskId": "a" }),
                0,
            ),
            (
                vec![VERSION, ("mcp-method", "tasks/get"), ECHO],
                "tasks/get",
                json!({ "taskId": "a" }),
                -32020,
            ),
            // An invalid body is rejected later, with another code.
            (vec![VERSION], "tools/list", json!({ "_meta": {} }), 0),
            (
                vec![("mcp-protocol-version", "v999")],
                "a",
                json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "v999" } }),
                0,
            ),
            (
                vec![VERSION],
                "a",
                json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "v999" } }),
                -32020,
            ),
        ] {
            assert_eq!(
                check(&peer, &headers, method, params),
                code,
                "{headers:?} {method}"
            );
        }
    });
}

/// Goal: annotated arguments are repeated exactly if they have a value. Method: one row per rule.
#[test]
fn argument_headers() {
    with_peer(async |peer| {
        for (header, arguments, code) in [
            (None, json!({}), 0),
            (None, json!({ "text": null }), 0),
            (None, json!({ "text": "Hello" }), -32020),
            (
                Some(("mcp-param-text", "Hello")),
                json!({ "text": "Hello" }),
                0,
            ),
            (
                Some(("mcp-param-text", "=?base64?SGVsbG8=?=")),
                json!({ "text": "Hello" }),
                0,
            ),
            (
                Some(("mcp-param-text", "=?base64?SGVsbG8?=")),
                json!({ "text": "Hello" }),
                -32020,
            ),
            (
                Some(("mcp-param-text", "SGVsbG8=")),
                json!({ "text": "SGVsbG8=" }),
                0,
            ),
            (
                Some(("mcp-param-text", "=?base64?SGVsbG8=")),
                json!({ "text": "=?base64?SGVsbG8=" }),
                0,
            ),
            (
                Some(("mcp-param-text", "hello")),
                json!({ "text": "Hello" }),
                -32020,
            ),
            (Some(("mcp-param-text", "Hello")), json!({}), -32020),
            (Some(("mcp-param-text", "5")), json!({ "text": 5 }), -32020),
            (Some(("mcp-param-times", "42")), json!({ "times": 42 }), 0),
            (Some(("mcp-param-times", "42.0")), json!({ "times": 42 }), 0),
            (
                Some(("mcp-param-times", "43")),
                json!({ "times": 42 }),
                -32020,
            ),
            (
                Some(("mcp-param-times", "x")),
                json!({ "times": 42 }),
                -32020,
            ),
            (Some(("mcp-param-unknown", "x")), json!({}), 0),
        ] {
            let headers: Vec<_> = [VERSION, CALL, ECHO].into_iter().chain(header).collect();
            let params = json!({ "name": "echo", "arguments": arguments });
            assert_eq!(
                check(&peer, &headers, "tools/call", params.clone()),
                code,
                "{header:?} {params}"
            );
        }
    });
}
