//! Hints about destructive tools, on the agent's card and on the tools that a client makes from it.

use callboard_macros::Message;
use callboard_runtime::{Agent, Context, Handlers, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client_kit::{Remote, quick};
use crate::kit::Served;

/// Wipes.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, destructive = true)]
struct Wipe {
    disk: String,
}

/// Looks.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, read_only)]
struct Look {
    disk: String,
}

struct Disks;

impl Agent for Disks {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Wipe>().sync::<Look>();
    }
}

impl SyncHandler<Wipe> for Disks {
    fn handle(&mut self, Wipe { disk }: Wipe, _: &mut Context) -> String {
        disk
    }
}

impl SyncHandler<Look> for Disks {
    fn handle(&mut self, Look { disk }: Look, _: &mut Context) -> String {
        disk
    }
}

/// Goal: the hint that a tool is destructive reaches clients of its agent over A2A. Method: two
/// message types through a card and back; the tools made from it.
#[tokio::test]
async fn destructive_hints_go_through_cards() {
    let served = Served::start().await;
    let url = format!("http://{}/agents/disks", served.address);
    served.name([("disks", served.system.spawn(Disks))], |options| {
        options.base_url = url.parse().unwrap()
    });
    let remote = Remote::at(&url, quick());
    let listed = remote.ask("callboard.tools.list", json!({})).await.unwrap();
    let tool = |name: &str| -> Value {
        let tools = listed["tools"].as_array().unwrap();
        tools
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap_or_else(|| panic!("{listed}"))
            .clone()
    };
    let (wipe, look) = (tool("wipe"), tool("look"));
    assert_eq!(wipe["tags"], json!(["wipe", "destructive"]));
    assert_eq!(
        wipe["annotations"],
        json!({ "readOnlyHint": false, "destructiveHint": true })
    );
    assert_eq!(
        (&look["tags"], &look["annotations"]),
        (&json!(["look"]), &Value::Null)
    );
    remote.stop().await;
    served.stop().await;
}
