//! Confirmation by a person before destructive actions of other agents, however they became known.

use std::path::Path;
use std::time::Duration;

use axum::http::StatusCode;
use callboard::config::Topology;
use callboard::message::capabilities::CallTool;
use callboard::message::{Answer, ElicitationAnswer, Principal, Question};
use callboard::{CallEvent, Node};
use serde_json::json;

use crate::kit::a2a::Refusing;
use crate::kit::{Home, soon};

/// The first line of what is asked.
const CONFIRM: &str = "⚠️ Planned action needs your confirmation…";

/// Whether a person is asked before an agent that wipes disks is told something, and says no to that; how often it was told
/// something.
async fn asked_and_told(tags: &[&str], is_declared: bool) -> (bool, u32) {
    let skill =
        json!({ "id": "wipe", "name": "wipe", "description": "Wipe the disk", "tags": tags });
    let (home, wiper) = (
        Home::new(),
        Refusing::start("wiper", skill, StatusCode::NOT_IMPLEMENTED).await,
    );
    let (declared, agents) = match is_declared {
        true => (
            format!(
                "[[agent]]\nkind = \"a2a\"\nid = \"wiper\"\nurl = \"{}\"\n",
                wiper.url
            ),
            "agents = [\"wiper\"]\n",
        ),
        false => (String::new(), ""),
    };
    let topology = format!(
        "[node]\nname = \"guide\"\n{declared}[[agent]]\nkind = \"orchestrator\"\nid = \"guide\"\nguard = false\n{agents}\
         [[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nagent = \"guide\"\n"
    );
    let topology =
        Topology::parse(&topology, false, Path::new(".")).unwrap_or_else(|error| panic!("{error}"));
    let state = home.path("guide");
    std::fs::create_dir_all(&state).unwrap();
    let node = soon("a node", Node::start(&topology, &state, false))
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    let guide = node.orchestrator("guide").unwrap();
    if !is_declared {
        let learned = guide
            .known
            .remember(&wiper.url, Some("wiper"), "operator", true);
        soon("a look at the agent", learned).await.unwrap();
    }
    let request = CallTool::new("request", json!({ "text": "wiper: wipe the disk" }));
    let mut call = guide
        .agent
        .call(request)
        .principal(Principal::local_operator())
        .within(Duration::from_secs(60))
        .start();
    let mut asked = false;
    while let Some(event) = soon("the call", call.next()).await {
        let CallEvent::Question(pending) = event else {
            continue;
        };
        if let Question::Elicit(form) = &pending.question {
            asked |= form.message().starts_with(CONFIRM) && wiper.tried() == 0;
        }
        pending.answer(Answer::Elicit(ElicitationAnswer::accept(
            json!({ "confirm": false, "answer": "no" }),
        )));
    }
    drop(soon("a reply", call.reply()).await);
    soon("the end of a node", node.shutdown()).await;
    (asked, wiper.tried())
}

/// Goal: asking an agent one of whose skills has the tag `destructive` is confirmed first, and not done where a person says no;
/// whether the file declares the agent or it was learned. Method: both ways, with the tag and without.
#[actix_web::test]
async fn destructive_skills_are_confirmed() {
    for is_declared in [true, false] {
        for (tags, is_destructive) in [(&["disk", "destructive"][..], true), (&["disk"], false)] {
            let (asked, told) = asked_and_told(tags, is_declared).await;
            assert_eq!(
                (asked, told == 0),
                (is_destructive, is_destructive),
                "declared: {is_declared}, told: {told}"
            );
        }
    }
}
