//! Tests of the agent adapter, without any connection.

use super::request::{McpMethod, McpRequest};
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::capabilities::{
    CallTool, ForwardRequest, ListTools, ReadResource, ReadResourceResult,
};
use callboard_message::{Failure, FailureKind, Principal, RawObject, ResourceContent, ToolResult};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{Agent, CallContext, Context, Handlers, SyncHandler, System};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::agent_adapter::{AgentAdapter, AgentHandler};
use super::options::InboundOptions;
use crate::wire::Revision;

macro_rules! tools {
    ($($name:ident($($reply:tt)*);)*) => {$(
        /// A tool.
        #[derive(Message, Serialize, Deserialize, JsonSchema)]
        #[message(reply = $($reply)*, fallible)]
        struct $name {
            #[serde(default)]
            fail: Option<FailureKind>,
        }
    )*};
}

tools! {
    Number(u32);
    Words(String);
    Object(Point);
    Nothing(());
    Blocks(ToolResult);
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Point {
    x: f64,
}

struct Fixture;

impl Agent for Fixture {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Number>()
            .sync::<Words>()
            .sync::<Object>()
            .sync::<Nothing>()
            .sync::<Blocks>()
            .sync::<ReadResource>();
    }
}

macro_rules! answers {
    ($($name:ident => $reply:ty: $value:expr;)*) => {$(
        impl SyncHandler<$name> for Fixture {
            fn handle(&mut self, message: $name, _: &mut Context) -> Result<$reply, Failure> {
                match message.fail {
                    Some(kind) => Err(Failure::new(kind, "told").with_data(json!({ "why": 1 }))),
                    None => Ok($value),
                }
            }
        }
    )*};
}

answers! {
    Number => u32: 7;
    Words => String: "seven \"7\"".into();
    Object => Point: Point { x: 1.0 };
    Nothing => (): ();
    Blocks => ToolResult: ToolResult::text("seven").with_structured_content(json!({ "n": 7 }));
}

impl SyncHandler<ReadResource> for Fixture {
    fn handle(
        &mut self,
        message: ReadResource,
        _: &mut Context,
    ) -> Result<ReadResourceResult, Failure> {
        match message.uri().as_str() {
            "test://a" => Ok(ReadResourceResult::from_contents([ResourceContent::text(
                "test://a",
                "text/plain",
                "a",
            )])),
            _ => Err(Failure::not_found("no such resource")),
        }
    }
}

fn adapter(system: &System, page_items_max: usize) -> AgentAdapter {
    let options = InboundOptions {
        page_items_max,
        ..InboundOptions::default()
    };
    AgentAdapter::new(system.spawn(Fixture), Arc::new(options))
}

async fn perform(
    adapter: &AgentAdapter,
    method: &str,
    params: Value,
    revision: Revision,
) -> Result<Value, (i64, String)> {
    let params = RawValue::from_string(params.to_string()).unwrap();
    let call = CallContext::new(Arc::new(Principal::anonymous()));
    let request = McpRequest::new(method, Some(params));
    let handler = match request.method {
        McpMethod::CallTool => AgentAdapter::call_tool,
        McpMethod::ListTools => AgentAdapter::list_tools,
        McpMethod::ReadResource => AgentAdapter::read_resource,
        _ => AgentAdapter::ask_or_forward as AgentHandler,
    };
    match handler(adapter, &request, revision, call).await {
        Ok(result) => Ok(serde_json::from_str(result.get()).unwrap()),
        Err(error) => Err((error.code, error.message)),
    }
}

const LEGACY: Revision = Revision::V2025_11_25;
const MODERN: Revision = Revision::V2026_07_28;

/// Goal: every shape of reply is a tool result, and a value other than an object is wrapped in the
/// legacy era only. Method: a tool of each shape.
/// Rows: X-15.
#[test]
fn replies_become_results() {
    run_with_paused_time(async |system| {
        let adapter = adapter(system, 10);
        let text = |text: &str| json!([{ "type": "text", "text": text }]);
        for (tool, legacy, modern) in [
            ("number", json!({ "result": 7 }), json!(7)),
            (
                "words",
                json!({ "result": "seven \"7\"" }),
                json!("seven \"7\""),
            ),
            ("object", json!({ "x": 1.0 }), json!({ "x": 1.0 })),
        ] {
            for (revision, structured) in [(LEGACY, legacy), (MODERN, modern)] {
                let result = perform(&adapter, "tools/call", json!({ "name": tool }), revision)
                    .await
                    .unwrap();
                assert_eq!(result["structuredContent"], structured, "{tool}");
                let wanted = match tool {
                    "number" => text("7"),
                    "words" => text("seven \"7\""),
                    _ => text("{\"x\":1.0}"),
                };
                assert_eq!(result["content"], wanted);
            }
        }
        let nothing = perform(&adapter, "tools/call", json!({ "name": "nothing" }), MODERN)
            .await
            .unwrap();
        assert_eq!(nothing, json!({ "content": [] }));
        let blocks = perform(&adapter, "tools/call", json!({ "name": "blocks" }), LEGACY)
            .await
            .unwrap();
        assert_eq!(
            blocks,
            json!({ "content": text("seven"), "structuredContent": { "n": 7 } })
        );
        system.shutdown(Duration::from_secs(1)).await;
    });
}

/// Goal: a tool's failure is a result for the model, and a failure of protocol or policy is an
/// error. Method: each kind.
#[test]
fn failures_are_results_or_errors() {
    run_with_paused_time(async |system| {
        let adapter = adapter(system, 10);
        let fail = |kind: &str| json!({ "name": "number", "arguments": { "fail": kind } });
        for kind in [
            "not_found",
            "rejected",
            "overloaded",
            "unavailable",
            "timed_out",
            "nobody_to_ask",
        ] {
            let result = perform(&adapter, "tools/call", fail(kind), LEGACY)
                .await
                .unwrap();
            assert_eq!(
                (&result["isError"], &result["content"][0]["text"]),
                (&json!(true), &json!("told")),
                "{kind}"
            );
            assert_eq!(
                result["_meta"]["callboard/failure"],
                json!({ "kind": kind, "data": { "why": 1 } })
            );
        }
        let bug = perform(&adapter, "tools/call", fail("internal"), LEGACY)
            .await
            .unwrap();
        assert_eq!(bug["content"][0]["text"], "internal error");
        for (kind, code) in [("blocked", -1), ("denied", -2)] {
            assert_eq!(
                perform(&adapter, "tools/call", fail(kind), LEGACY).await,
                Err((code, "told".into()))
            );
        }
        // Since 2025-11-25, invalid arguments are the model's to correct.
        let wrong = json!({ "name": "number", "arguments": { "fail": 3 } });
        assert_eq!(
            perform(&adapter, "tools/call", wrong.clone(), LEGACY)
                .await
                .unwrap()["isError"],
            true
        );
        assert_eq!(
            perform(&adapter, "tools/call", wrong, Revision::V2025_06_18)
                .await
                .unwrap_err()
                .0,
            -32602
        );
        for params in [
            json!({ "name": "no" }),
            json!({}),
            json!({ "name": "number", "arguments": [] }),
            json!([]),
        ] {
            assert_eq!(
                perform(&adapter, "tools/call", params, MODERN)
                    .await
                    .unwrap_err()
                    .0,
                -32602
            );
        }
        system.shutdown(Duration::from_secs(1)).await;
    });
}

/// Goal: the pages of a list join to the whole, and only our cursors are accepted. Method: pages of
/// two.
#[test]
fn lists_have_pages() {
    run_with_paused_time(async |system| {
        let adapter = adapter(system, 2);
        let (mut names, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let params = cursor.take().map_or(json!({}), |c| json!({ "cursor": c }));
            let page = perform(&adapter, "tools/list", params, LEGACY)
                .await
                .unwrap();
            let tools = page["tools"].as_array().unwrap();
            assert!((1..=2).contains(&tools.len()));
            names.extend(tools.iter().map(|t| t["name"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        assert_eq!(names, ["number", "words", "object", "nothing", "blocks"]);
        for cursor in [json!("x"), json!(1), json!("ZnJvbTo5OQ"), json!("")] {
            let error = perform(&adapter, "tools/list", json!({ "cursor": cursor }), LEGACY)
                .await
                .unwrap_err();
            assert_eq!(error.0, -32602);
        }
        system.shutdown(Duration::from_secs(1)).await;
    });
}

/// Goal: a missing resource has its revision's error, and a method that the agent lacks doesn't
/// exist. Method: rows.
#[test]
fn resources_and_unknown_methods() {
    run_with_paused_time(async |system| {
        let adapter = adapter(system, 2);
        let read = perform(
            &adapter,
            "resources/read",
            json!({ "uri": "test://a" }),
            LEGACY,
        )
        .await
        .unwrap();
        assert_eq!(read["contents"][0]["text"], "a");
        for (revision, code) in [(LEGACY, -32002), (MODERN, -32602)] {
            let missing = perform(
                &adapter,
                "resources/read",
                json!({ "uri": "test://b" }),
                revision,
            )
            .await;
            assert_eq!(missing.unwrap_err().0, code);
        }
        for method in ["prompts/list", "completion/complete", "no/such"] {
            assert_eq!(
                perform(&adapter, method, json!({}), LEGACY)
                    .await
                    .unwrap_err()
                    .0,
                -32601,
                "{method}"
            );
        }
        let can = adapter.capabilities(
            &adapter
                .describe(CallContext::new(Arc::new(Principal::anonymous())))
                .await,
        );
        let names: Vec<&str> = RawObject::iter(&can).map(|(name, _)| name).collect();
        assert_eq!(names, ["logging", "tools", "resources"]);
        system.shutdown(Duration::from_secs(1)).await;
    });
}

/// Agent that lists tools of its own: one with a flawed definition.
struct Lister;

impl Agent for Lister {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<ListTools>();
    }
}

impl SyncHandler<ListTools> for Lister {
    fn handle(&mut self, _: ListTools, _: &mut Context) -> Result<RawObject, Failure> {
        let tools = json!([
            { "name": "good", "inputSchema": { "type": "object" } },
            { "name": "flawed", "outputSchema": { "type": "array" } },
            { "title": "nameless" },
        ]);
        Ok(RawObject::single("tools", tools))
    }
}

/// Goal: a flawed definition costs a client no other tool. Method: the list of an agent with tools
/// of its own, for both eras.
#[test]
fn flawed_tools_cost_no_others() {
    run_with_paused_time(async |system| {
        let adapter = AgentAdapter::new(system.spawn(Lister), Arc::default());
        let flawed = json!({ "name": "flawed", "inputSchema": { "type": "object" } });
        let mut modern = flawed.clone();
        modern["outputSchema"] = json!({ "type": "array" });
        for (revision, flawed) in [(LEGACY, flawed), (MODERN, modern)] {
            let list = perform(&adapter, "tools/list", json!({}), revision).await;
            let good = json!({ "name": "good", "inputSchema": { "type": "object" } });
            assert_eq!(list.unwrap()["tools"], json!([good, flawed]));
        }
        system.shutdown(Duration::from_secs(1)).await;
    });
}

/// Agent whose tools answer the params of their calls.
struct Told;

impl Agent for Told {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<CallTool>().sync::<ForwardRequest>();
    }
}

impl SyncHandler<CallTool> for Told {
    fn handle(
        &mut self,
        CallTool(params): CallTool,
        _: &mut Context,
    ) -> Result<ToolResult, Failure> {
        Ok(ToolResult::text(params.to_raw().get()))
    }
}

impl SyncHandler<ForwardRequest> for Told {
    fn handle(
        &mut self,
        ForwardRequest(body): ForwardRequest,
        _: &mut Context,
    ) -> Result<RawObject, Failure> {
        Ok(body)
    }
}

/// Goal: a client can't replace the arguments that the policy has checked by a message in `_meta`.
/// Method: one beside another member, its name plain and escaped; a tool call and a forwarded
/// request.
#[test]
fn clients_send_no_source_messages() {
    run_with_paused_time(async |system| {
        let adapter = AgentAdapter::new(system.spawn(Told), Arc::default());
        let call = CallContext::new(Arc::new(Principal::anonymous()));
        for name in ["callboard/said", r"callboard\/said", r"\u0063allboard/said"] {
            let params = format!(
                r#"{{"name":"t","arguments":{{"a":1}},"_meta":{{"{name}":{{"content":[]}},"x":1}}}}"#
            );
            for (method, handler) in [
                ("tools/call", AgentAdapter::call_tool as AgentHandler),
                ("no/such", AgentAdapter::ask_or_forward),
            ] {
                let params = RawValue::from_string(params.clone()).unwrap();
                let request = McpRequest::new(method, Some(params));
                let told = handler(&adapter, &request, MODERN, call.clone()).await;
                let told = told.map_err(|error| error.message).unwrap();
                let told: Value = serde_json::from_str(told.get()).unwrap();
                let params = match told["content"][0]["text"].as_str() {
                    Some(text) => serde_json::from_str(text).unwrap(),
                    None => told["params"].clone(),
                };
                assert_eq!(params["arguments"], json!({ "a": 1 }), "{method} {name}");
                assert_eq!(params["_meta"], json!({ "x": 1 }), "{method} {name}");
            }
        }
        system.shutdown(Duration::from_secs(1)).await;
    });
}
