//! Messages to skills that take parts, among several agents behind one.

use callboard_message::capabilities::{
    CallTool, ListTools, PARTS_META_KEY, SOURCE_MESSAGE_META_KEY,
};
use callboard_message::{DECISION_META_KEY, Failure, RawObject, ToolResult};
use callboard_runtime::{Agent, Context, Handlers, SyncHandler};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::kit::{message, paused, request, sent, serve, serve_with, somebody};
use crate::wire::{A2aMessage, Part};

/// Agent with a tool that takes parts and one that doesn't. Each answers its call's params, and
/// names a remote task.
struct Board;

impl Agent for Board {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<ListTools>().sync::<CallTool>();
    }
}

impl SyncHandler<ListTools> for Board {
    fn handle(&mut self, _: ListTools, _: &mut Context) -> Result<RawObject, Failure> {
        let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
        let tools = json!([
            { "name": "far__see", "inputSchema": schema, "_meta": { PARTS_META_KEY: true } },
            { "name": "near", "inputSchema": schema },
        ]);
        Ok(RawObject::single("tools", tools))
    }
}

impl SyncHandler<CallTool> for Board {
    fn handle(
        &mut self,
        CallTool(params): CallTool,
        _: &mut Context,
    ) -> Result<ToolResult, Failure> {
        let name = params.text("name").unwrap();
        let place = json!({ "taskId": format!("{name}-1"), "contextId": "theirs" });
        let decided = json!({ "outcome": "remote far", "confidence": 0.82 });
        let meta = RawObject::single("a2a", place).with(DECISION_META_KEY, decided);
        let told = ToolResult::text(params.to_raw().get());
        Ok(ToolResult(told.0.with("_meta", meta)))
    }
}

fn for_skill(id: &str, skill: &str, parts: Vec<Part>, refers: &[&str]) -> A2aMessage {
    A2aMessage {
        context_id: "c".into(),
        metadata: Some(RawObject::single("skill", skill)),
        reference_task_ids: refers.iter().map(|id| (*id).to_owned()).collect(),
        ..message(id, parts)
    }
}

/// Goal: only a skill that takes parts gets the message itself, also behind an agent of several, with
/// the ids that its own agent gave to the tasks that the message refers to; the ids are shown. Method:
/// both skills, without a durable store and with one.
#[test]
fn each_skill_gets_what_it_takes() {
    paused(async |system| {
        let ann = somebody("ann");
        let agent = system.spawn(Board);
        for calls in [serve(&agent), serve_with(&agent, &Default::default())] {
            let data = Part::data(to_raw_value(&json!({ "text": "hi" })).unwrap());
            let parts = || {
                vec![
                    Part::text("look"),
                    data.clone(),
                    Part::raw("x", "image/png"),
                ]
            };
            let ask = async |id, skill, parts, refers: &[&str]| {
                let task = sent(&calls, &ann, request(for_skill(id, skill, parts, refers))).await;
                let text = task.artifacts.as_ref().unwrap()[0].parts[0]
                    .as_text()
                    .unwrap();
                (serde_json::from_str::<Value>(text).unwrap(), task.clone())
            };
            let (near, near_task) = ask("m1", "near", vec![data.clone()], &[]).await;
            assert_eq!(near["arguments"], json!({ "text": "hi" }));
            assert_eq!(near.get("_meta"), None);
            let (far, far_task) = ask("m2", "far__see", parts(), &[]).await;
            assert_eq!(far["arguments"], json!({}));
            let said = &far["_meta"][SOURCE_MESSAGE_META_KEY];
            assert_eq!(said.get("task"), None);
            let content = said["content"].as_array().unwrap();
            assert_eq!(content.len(), 3, "{said}");
            assert_eq!(
                (&content[0]["text"], &said["key"], &said["context"]),
                (&json!("look"), &json!("m2"), &json!("c"))
            );
            let refers = [&*near_task.id, &*far_task.id, "nobody's"];
            let (again, _) = ask("m3", "far__see", parts(), &refers).await;
            let said = &again["_meta"][SOURCE_MESSAGE_META_KEY];
            assert_eq!(said["referenceTaskIds"], json!(["far__see-1"]));
            let metadata = far_task.metadata.unwrap();
            let decided = metadata.object("callboard/decision").unwrap();
            assert_eq!(decided.read::<f64>("confidence"), Some(0.82));
            let metadata = metadata.object("callboard/remote").unwrap();
            assert_eq!(metadata.text("taskId").unwrap(), "far__see-1");
            assert_eq!(metadata.text("contextId").unwrap(), "theirs");
        }
    });
}
