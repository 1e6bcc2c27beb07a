//! Uses of tools that wait for an approval (`effect = "approve"`).

use serde_json::{Value, json};

use crate::kit::gateway::{
    A2A, KeyClient, MCP, NODE, address_of, end, is_refused, said, script, started,
};
use crate::kit::{Home, a2a, found, soon};

const RULES: &str = r#"
[[policy.rules]]
id = "ask-me"
effect = "approve"
principals = ["alice"]
tools = ["one.who"]

[[policy.rules]]
id = "ask-a-lead"
effect = "approve"
agents = ["two", "room"]
tools = ["who", "send_message"]
approvers = ["role:lead"]

[[policy.rules]]
id = "rest"
effect = "allow"
"#;
const LISTENERS: [&str; 3] = [
    MCP,
    A2A,
    "[[listener]]\nprotocol = \"mail\"\nbind = \"127.0.0.1:0\"\nagent = \"room\"\n",
];

fn topology(home: &Home) -> String {
    let agents = [
        script(home, "one", "one"),
        script(home, "two", "two"),
        "[[agent]]\nkind = \"approvals\"\nid = \"desk\"\n".to_owned(),
        "[[agent]]\nkind = \"mailroom\"\nid = \"room\"\n".to_owned(),
    ];
    let listeners = LISTENERS.map(|listener| format!("{listener}keys = \"keys.toml\"\n"));
    [
        NODE,
        "[store]\n",
        &agents.concat(),
        &listeners.concat(),
        RULES,
    ]
    .concat()
}

/// Runs `callboard approvals` for the node.
async fn command(home: &Home, arguments: &[&str]) -> crate::kit::Finished {
    let at = ["--topology", "n.toml"];
    home.run(&[&["approvals"][..], arguments, &at].concat())
        .await
}

/// Returns the uses that wait, once there is one.
async fn waiting(home: &Home) -> Vec<Value> {
    let look = async || {
        let listed = command(home, &["list", "--json"]).await.with(0, "");
        let lines = listed.out.lines();
        let all: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        (!all.is_empty()).then_some(all)
    };
    found("a use that waits", look).await
}

/// Goal: the person at the caller approves a use, and nothing runs before: over MCP, of one agent and of all, and
/// over A2A as a task that needs input. Method: the same tool over each, approved and refused; a client that can't
/// ask anybody.
#[tokio::test]
async fn approved_by_the_person_at_the_caller() {
    let home = Home::new();
    let alice = KeyClient::new(&home, "alice", &[]).await;
    let (running, listening) = started(&home, &topology(&home)).await;
    let able = json!({ "elicitation": { "form": {} } });
    for (path, tool) in [("/one/mcp", "who"), ("/mcp", "one__who")] {
        let url = address_of(&listening, path);
        assert!(alice.tools(url).await.contains(&tool.to_owned()));
        for (answer, runs) in [
            (
                json!({ "action": "accept", "content": { "approve": true } }),
                true,
            ),
            (
                json!({ "action": "accept", "content": { "approve": false } }),
                false,
            ),
            (json!({ "action": "decline" }), false),
        ] {
            let mut params = json!({ "name": tool, "arguments": { "n": 7 } });
            let asked = alice
                .mcp_with(url, &able, "tools/call", params.clone())
                .await;
            let requests = asked["result"]["inputRequests"].as_object();
            let requests = requests.unwrap_or_else(|| panic!("{asked}"));
            let (key, request) = requests.iter().next().unwrap();
            let message = request["params"]["message"].as_str().unwrap();
            assert_eq!(
                message,
                "api_key:alice wants to run the tool who of one with these arguments: {\"n\":7}"
            );
            params["requestState"] = asked["result"]["requestState"].clone();
            params["inputResponses"] = json!({ key: answer });
            let answered = alice.mcp_with(url, &able, "tools/call", params).await;
            match runs {
                true => assert_eq!(said(&answered), "one"),
                false => assert!(
                    answered.to_string().contains("didn't approve"),
                    "{answered}"
                ),
            }
        }
        let unable = alice.call(url, tool).await;
        assert!(is_refused(&unable), "{unable}");
        assert!(unable.to_string().contains("elicitation"), "{unable}");
    }
    let url = address_of(&listening, "/one/a2a");
    for (answer, said) in [("yes", "\"one\""), ("no", "didn't approve")] {
        let asked = alice.ask(url, "who").await;
        let task = &asked["result"]["task"];
        assert_eq!(
            task["status"]["state"], "TASK_STATE_INPUT_REQUIRED",
            "{asked}"
        );
        let message = json!({
            "messageId": format!("m-{answer}"), "role": "ROLE_USER", "taskId": task["id"],
            "parts": [{ "text": answer }],
        });
        let request = a2a::request(url, "SendMessage", json!({ "message": message }));
        let done = a2a::response(alice.signed(request)).await;
        assert!(done.to_string().contains(said), "{done}");
    }
    end(running, &home).await;
}

/// Goal: a use waits for somebody with the scope, in the store, past the end of its call and of the node; its
/// requester can't approve it, and one that is approved runs once. Method: calls that wait while others decide by
/// the agent for approvals and by the command; a restart in between.
#[tokio::test]
async fn approved_by_somebody_else() {
    let home = Home::new();
    let bob = KeyClient::new(&home, "bob", &["role:lead"]).await;
    let carol = KeyClient::new(&home, "carol", &["role:lead"]).await;
    let dave = KeyClient::new(&home, "dave", &[]).await;
    let text = topology(&home);
    let (running, listening) = started(&home, &text).await;
    let [two, desk] = ["/two/mcp", "/desk/mcp"].map(|end| address_of(&listening, end));
    let able = json!({ "elicitation": { "form": {} } });
    let decide = async |who: &KeyClient, desk: &str, id: &Value| {
        let arguments = json!({ "id": id, "approve": true });
        let mut params = json!({ "name": "decide_approval", "arguments": arguments });
        // Without a person nobody approves.
        let unable = who.mcp(desk, "tools/call", params.clone()).await;
        assert!(is_refused(&unable), "{unable}");
        let asked = who
            .mcp_with(desk, &able, "tools/call", params.clone())
            .await;
        let Some(requests) = asked["result"]["inputRequests"].as_object() else {
            return asked.to_string();
        };
        let (key, request) = requests.iter().next().unwrap();
        let message = request["params"]["message"].as_str().unwrap();
        let shown = "api_key:bob wants to run the tool who of two with these arguments: {}";
        assert_eq!(message, shown);
        let answer = json!({ "action": "accept", "content": { "approve": true } });
        params["requestState"] = asked["result"]["requestState"].clone();
        params["inputResponses"] = json!({ key: answer });
        let decided = who.mcp_with(desk, &able, "tools/call", params).await;
        decided.to_string()
    };
    let deciding = async {
        let [pending] = &waiting(&home).await[..] else {
            panic!("not one")
        };
        assert_eq!(
            (&pending["requester"], &pending["agent"], &pending["tool"]),
            (&json!("api_key:bob"), &json!("two"), &json!("who"))
        );
        for (who, is_shown, said) in [
            (&bob, false, "can't approve it"),
            (&dave, false, "isn't yours to decide"),
            (&carol, true, "\"approved\":true"),
        ] {
            let listed = who.call(desk, "list_approvals").await.to_string();
            let id = pending["id"].as_str().unwrap();
            assert_eq!(listed.contains(id), is_shown, "{listed}");
            let decided = decide(who, desk, &pending["id"]).await;
            assert!(decided.contains(said), "{decided}");
        }
    };
    let (answered, ()) = tokio::join!(bob.call(two, "who"), deciding);
    assert_eq!(said(&answered), "two");

    // A client that goes away while it waits, and a node that restarts.
    let params = json!({ "name": "who", "arguments": {} });
    tokio::select! {
        answered = bob.mcp(two, "tools/call", params) => panic!("{answered}"),
        _ = waiting(&home) => {}
    }
    end(running, &home).await;
    let (running, listening) = started(&home, &text).await;
    let two = address_of(&listening, "/two/mcp");
    let [pending] = &waiting(&home).await[..] else {
        panic!("not one")
    };
    let id = pending["id"].as_str().unwrap();
    let approved = command(&home, &["approve", id]).await;
    assert_eq!(
        (approved.code, &*approved.err),
        (Some(0), "approved who of two for api_key:bob\n")
    );
    let again = command(&home, &["approve", id]).await;
    assert!(
        again.code == Some(4) && again.err.contains("decided about already"),
        "{again:?}"
    );
    assert_eq!(said(&bob.call(two, "who").await), "two");

    let denying = async {
        let [pending] = &waiting(&home).await[..] else {
            panic!("not one")
        };
        let id = pending["id"].as_str().unwrap();
        let denied = command(&home, &["deny", id, "--reason", "not today"]).await;
        assert_eq!(denied.code, Some(0), "{denied:?}");
    };
    let (refused, ()) = tokio::join!(bob.call(two, "who"), denying);
    assert!(refused.to_string().contains("not today"), "{refused}");
    let audit = ["audit", "show", "--topology", "n.toml", "--event"];
    for (event, number) in [
        ("approval.requested", 3),
        ("approval.used", 2),
        ("approval.decided", 1),
        ("approval.denied", 1),
        ("denied", 1),
    ] {
        let shown = home.run(&[&audit[..], &[event]].concat()).await;
        let shown = shown.with(0, "");
        assert_eq!(shown.out.lines().count(), number, "{event} {shown:?}");
    }
    end(running, &home).await;
    // Once the node has ended, the lines about all calls are written.
    let calls = ["audit", "calls", "--topology", "n.toml", "--principal"];
    let outcomes = async |who: &str| {
        let shown = home.run(&[&calls[..], &[who]].concat()).await;
        let shown = shown.with(0, "");
        let cells = |line: &str| {
            line.split('\t')
                .skip(2)
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        };
        shown.out.lines().map(cells).collect::<Vec<_>>()
    };
    let bobs = outcomes("bob").await;
    let ran = bobs.iter().filter(|call| *call == "two who answered");
    assert_eq!(ran.count(), 2, "{bobs:?}");
    assert!(bobs.contains(&"two who denied".to_owned()), "{bobs:?}");
    let carols = outcomes("api_key:carol").await;
    assert!(
        carols.contains(&"desk decide_approval answered".to_owned()),
        "{carols:?}"
    );
}

/// Goal: a message of the mailroom waits too, over its REST API. Method: one that is approved.
#[tokio::test]
async fn mail_that_waits() {
    let home = Home::new();
    let dave = KeyClient::new(&home, "dave", &[]).await;
    let (running, listening) = started(&home, &topology(&home)).await;
    let is_mail = |(agent, url): &&(String, String)| agent == "room" && !url.contains("/agents/");
    let (_, mail) = listening.iter().find(is_mail).unwrap();
    let letter = json!({ "recipient_agent_id": "dave", "message": "hello" });
    let send = || {
        let post = reqwest::Client::new().post(format!("{mail}/api/send_message"));
        let post = post.header("x-agent-id", "dave").json(&letter);
        soon("an answer", dave.signed(post).send())
    };
    let approving = async {
        let [pending] = &waiting(&home).await[..] else {
            panic!("not one")
        };
        let arguments = pending["arguments"].as_str().unwrap();
        assert!(arguments.contains("hello"), "{pending}");
        let id = pending["id"].as_str().unwrap();
        command(&home, &["approve", id]).await.code
    };
    let (sent, approved) = tokio::join!(send(), approving);
    assert_eq!(approved, Some(0));
    // A busy machine may pass the deadline of the call; then it is sent again.
    let sent = match sent.unwrap() {
        sent if sent.status().is_success() => sent,
        late => {
            assert!(
                late.text()
                    .await
                    .unwrap()
                    .contains("waits for the approval")
            );
            send().await.unwrap()
        }
    };
    assert!(sent.status().is_success(), "{sent:?}");
    end(running, &home).await;
}
