use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::capabilities::{
    CallTool, CompleteArgument, CompleteResult, DescribeAgent, DescribeAgentResult, GetPrompt,
    GetPromptResult, ListPrompts, ListTools, ReadResource, ReadResourceResult,
};
use callboard_message::{
    CapabilityChange, Content, Failure, FailureKind, Principal, RawObject, ResourceContent,
    Speaker, ToolResult,
};
use callboard_runtime::testkit;
use callboard_runtime::{
    Agent, AgentChanged, AgentRef, CallContext, Context, Handlers, SyncHandler, System,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{AGGREGATE_MEMBERS_MAX, AggregateAgent, AggregateError};

mod away;
mod filters;
mod names;
mod resources;
mod shares;
mod upstream;

/// Runs a test with paused time, then shuts the system down.
fn paused<T>(test: impl AsyncFnOnce(&System) -> T) -> T {
    testkit::run_with_paused_time(async |system| {
        let ended = test(system).await;
        system.shutdown(Duration::from_secs(1)).await;
        ended
    })
}

/// Request for a number.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = u32, task = "optional")]
struct Count {}

/// Request for the principal's id.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = Seen, fallible, title = "Who", read_only)]
struct Who {}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Seen {
    principal: String,
}

struct Typed(u32);

impl Agent for Typed {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Count>().sync::<Who>();
    }
}

impl SyncHandler<Count> for Typed {
    fn handle(&mut self, _: Count, cx: &mut Context) -> u32 {
        cx.notify_changed(CapabilityChange::Tools);
        self.0
    }
}

impl SyncHandler<Who> for Typed {
    fn handle(&mut self, _: Who, cx: &mut Context) -> Result<Seen, Failure> {
        Ok(Seen {
            principal: cx.principal().id.clone(),
        })
    }
}

/// Agent that lists its tools itself, one a page; has a resource and a prompt.
struct Listing;

impl Agent for Listing {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<ListTools>()
            .sync::<CallTool>()
            .sync::<ReadResource>()
            .sync::<ListPrompts>()
            .sync::<GetPrompt>();
        on.sync::<CompleteArgument>().sync::<DescribeAgent>();
    }
}

const LONG: &str = "a_tool_with_a_name_that_is_much_too_long_to_be_put_behind_another_one";

impl SyncHandler<ListTools> for Listing {
    fn handle(&mut self, message: ListTools, _: &mut Context) -> Result<RawObject, Failure> {
        let tool =
            |name: &str| json!({ "name": name, "inputSchema": {}, "execution": {}, "x-kept": 1.0 });
        Ok(match message.0.text("cursor").as_deref() {
            None => RawObject::single("tools", [tool("count")]).with("nextCursor", "two"),
            _ => RawObject::single("tools", [tool(LONG)]),
        })
    }
}

impl SyncHandler<CallTool> for Listing {
    fn handle(&mut self, message: CallTool, _: &mut Context) -> Result<ToolResult, Failure> {
        Ok(ToolResult::text(format!(
            "{} {}",
            message.0.text("name").unwrap(),
            message.0.get("arguments").unwrap()
        )))
    }
}

impl SyncHandler<ReadResource> for Listing {
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
            _ => Err(Failure::not_found("not here")),
        }
    }
}

impl SyncHandler<ListPrompts> for Listing {
    fn handle(&mut self, _: ListPrompts, _: &mut Context) -> Result<RawObject, Failure> {
        Ok(RawObject::single("prompts", json!([{ "name": "greet" }])))
    }
}

impl SyncHandler<GetPrompt> for Listing {
    fn handle(&mut self, message: GetPrompt, _: &mut Context) -> Result<GetPromptResult, Failure> {
        Ok(GetPromptResult::from_turns([(
            Speaker::User,
            Content::text(message.name()),
        )]))
    }
}

impl SyncHandler<CompleteArgument> for Listing {
    fn handle(
        &mut self,
        message: CompleteArgument,
        _: &mut Context,
    ) -> Result<CompleteResult, Failure> {
        Ok(CompleteResult::from_values([message
            .0
            .object("ref")
            .unwrap()
            .text("name")
            .unwrap_or_default()]))
    }
}

impl SyncHandler<DescribeAgent> for Listing {
    fn handle(
        &mut self,
        _: DescribeAgent,
        _: &mut Context,
    ) -> Result<DescribeAgentResult, Failure> {
        Ok(DescribeAgentResult(RawObject::single(
            "instructions",
            "Ask nicely.",
        )))
    }
}

fn bundle(system: &System) -> AgentRef {
    let one = system.spawn(Typed(1));
    let two = system.spawn(Typed(2));
    let listing = system.spawn(Listing);
    let members = [
        ("one".to_owned(), one),
        ("two".to_owned(), two),
        ("upstream".to_owned(), listing),
    ];
    system.spawn(AggregateAgent::new(members).unwrap())
}

async fn ask(bundle: &AgentRef, message: &str, body: Value) -> Result<Value, Failure> {
    let call = CallContext::new(Arc::new(Principal::agent("somebody")));
    let body: Box<RawValue> = to_raw_value(&body).unwrap();
    let reply = bundle
        .ask_named(format!("callboard.{message}"), body, Some(Arc::new(call)))
        .await?;
    Ok(serde_json::from_str(reply.get()).unwrap())
}

async fn call(bundle: &AgentRef, tool: &str) -> Result<Value, Failure> {
    ask(
        bundle,
        "tools.call",
        json!({ "name": tool, "arguments": { "a": 1.0 } }),
    )
    .await
}

/// Goal: all tools are in one list under unique names, with their descriptors. Method: two agents
/// of one type, and one that lists its tools itself.
#[test]
fn tools_of_all_in_one_list() {
    paused(async |system| {
        let bundle = bundle(system);
        let listed = ask(&bundle, "tools.list", json!({})).await.unwrap();
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<_> = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names[..5],
            [
                "one__count",
                "one__who",
                "two__count",
                "two__who",
                "upstream__count"
            ]
        );
        assert!(
            names[5].len() == 64 && names[5].starts_with("upstream__a_tool_with"),
            "{}",
            names[5]
        );
        assert_eq!(names.len(), 6);
        assert_eq!(
            tools[0]["outputSchema"]["properties"]["result"]["type"],
            "integer"
        );
        assert_eq!(
            (&tools[1]["title"], &tools[1]["annotations"]["readOnlyHint"]),
            (&json!("Who"), &json!(true))
        );
        assert!(tools.iter().all(|tool| tool.get("execution").is_none()));
        assert_eq!(tools[4]["x-kept"].to_string(), "1.0");
        assert_eq!(
            ask(&bundle, "tools.list", json!({ "cursor": "x" }))
                .await
                .unwrap_err()
                .kind,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: a call reaches the named tool with the caller's principal. Method: each name, and an
/// unknown one.
/// Rows: M-7.
#[test]
fn calls_reach_whom_they_mean() {
    paused(async |system| {
        let bundle = bundle(system);
        for (tool, result) in [("one__count", 1), ("two__count", 2)] {
            let called = call(&bundle, tool).await.unwrap();
            assert_eq!(called["structuredContent"], json!({ "result": result }));
        }
        let seen = call(&bundle, "two__who").await.unwrap();
        assert_eq!(
            seen["structuredContent"],
            json!({ "principal": "somebody" })
        );
        assert_eq!(
            call(&bundle, "upstream__count").await.unwrap()["content"][0]["text"],
            r#"count {"a":1.0}"#
        );
        let listed = ask(&bundle, "tools.list", json!({})).await.unwrap();
        let cut = call(&bundle, listed["tools"][5]["name"].as_str().unwrap())
            .await
            .unwrap();
        assert_eq!(cut["content"][0]["text"], format!("{LONG} {{\"a\":1.0}}"));
        assert_eq!(
            call(&bundle, "count").await.unwrap_err().kind,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: resources, prompts, completion and instructions come from the members. Method: one of
/// each.
#[test]
fn more_than_tools() {
    paused(async |system| {
        let bundle = bundle(system);
        let about = ask(&bundle, "describe", json!({})).await.unwrap();
        assert_eq!(about["instructions"], "upstream: Ask nicely.");
        let can: Vec<_> = about["capabilities"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(can.len(), 5, "{can:?}");
        let read = ask(&bundle, "resources.read", json!({ "uri": "test://a" }))
            .await
            .unwrap();
        assert_eq!(read["contents"][0]["text"], "a");
        let missing = ask(&bundle, "resources.read", json!({ "uri": "test://b" }))
            .await
            .unwrap_err();
        assert_eq!(
            (missing.kind, &*missing.message),
            (FailureKind::NotFound, "not here")
        );
        let prompts = ask(&bundle, "prompts.list", json!({})).await.unwrap();
        assert_eq!(prompts["prompts"][0]["name"], "upstream__greet");
        let prompt = ask(&bundle, "prompts.get", json!({ "name": "upstream__greet" }))
            .await
            .unwrap();
        assert_eq!(prompt["messages"][0]["content"]["text"], "greet");
        let reference =
            json!({ "ref": { "type": "ref/prompt", "name": "upstream__greet" }, "argument": {} });
        let completed = ask(&bundle, "complete", reference).await.unwrap();
        assert_eq!(completed["completion"]["values"], json!(["greet"]));
        let resources = ask(&bundle, "resources.list", json!({})).await.unwrap();
        assert_eq!(resources, json!({ "resources": [] }));
    });
}

struct Follower(tokio::sync::mpsc::Sender<CapabilityChange>);

impl Agent for Follower {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<AgentChanged>();
    }
}

impl SyncHandler<AgentChanged> for Follower {
    fn handle(&mut self, changed: AgentChanged, _: &mut Context) {
        self.0.try_send(changed.change).unwrap();
    }
}

/// Goal: watchers of an aggregate are notified of its members' changes. Method: a member that
/// changes when it is called.
#[test]
fn changes_of_members_are_the_bundles() {
    paused(async |system| {
        let bundle = bundle(system);
        let (sender, mut changes) = tokio::sync::mpsc::channel(16);
        let follower = system.spawn(Follower(sender));
        bundle.follow(follower.recipient().unwrap());
        call(&bundle, "one__count").await.unwrap();
        let change = tokio::time::timeout(Duration::from_secs(5), changes.recv())
            .await
            .unwrap();
        assert_eq!(change, Some(CapabilityChange::Tools));
    });
}

/// Goal: members with the same name, and too many, are rejected. Method: both.
#[test]
fn bundles_that_cannot_be() {
    paused(async |system| {
        let agent = system.spawn(Listing);
        let named = |name: &str| (name.to_owned(), agent.clone());
        assert_eq!(
            AggregateAgent::new([named("a b"), named("a_b")]).unwrap_err(),
            AggregateError::SameName("a_b".into())
        );
        let many = |n: usize| (0..n).map(|n| named(&format!("m{n}"))).collect::<Vec<_>>();
        assert!(AggregateAgent::new(many(AGGREGATE_MEMBERS_MAX)).is_ok());
        assert_eq!(
            AggregateAgent::new(many(AGGREGATE_MEMBERS_MAX + 1)).unwrap_err(),
            AggregateError::TooManyMembers
        );
    });
}
