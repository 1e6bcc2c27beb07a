//! One broadcast, and every way in which it can arrive; and an A2A client that sends.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use callboard::message::mail::{BroadcastMessage, DeliveryState, MemberId, MessageHistory};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::kit::gateway::serve;
use crate::kit::mail::Office;
use crate::kit::{Home, a2a, found, soon, until};

/// A server of tmux of its own; ended with this.
struct Tmux(PathBuf);

impl Tmux {
    /// With a session `pane` that keeps what is typed into it in `file`. `None`: there is no tmux.
    fn start(home: &Home, file: &str) -> Option<Self> {
        let socket = home.path("tmux.sock");
        let keeps = format!("exec cat > {}", home.path(file).display());
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&socket).args([
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "pane",
            "-x",
            "120",
        ]);
        match command.args(["-y", "40", &keeps]).status() {
            Ok(status) => {
                assert!(status.success());
                Some(Self(socket))
            }
            Err(_) => {
                assert!(
                    std::env::var_os("CALLBOARD_PEERS").is_none(),
                    "there is no tmux"
                );
                println!("skipped: there is no tmux to type into");
                None
            }
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(&self.0)
            .arg("kill-server")
            .status();
    }
}

/// Received posts: headers and bodies.
type Posted = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// Takes posts, each with 200; where it is.
async fn receiver(posted: Posted) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let takes = post(move |headers: HeaderMap, body: Bytes| async move {
        posted.lock().unwrap().push((headers, body));
    });
    tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/in", takes))
            .await
            .unwrap()
    });
    format!("http://{address}/in")
}

/// An orchestrator that speaks A2A, elsewhere.
const ELSEWHERE: &str = "[node]\nname = \"elsewhere\"\n[[agent]]\nkind = \"orchestrator\"\nid = \"remote\"\n\
    [[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nagent = \"remote\"\n";

/// Goal: a broadcast arrives at an agent of the node, at an A2A agent elsewhere, at a webhook, in a tmux pane and with an MCP client;
/// each counts as delivered, and not before it is; what agents answer is mail in the same thread. Method: a node with all of
/// them, one of each.
/// Rows: P-3.
#[tokio::test]
async fn a_broadcast_by_every_way() {
    let elsewhere = Home::new();
    let (_other, listening) =
        serve(&elsewhere, &[&elsewhere.write("elsewhere.toml", ELSEWHERE)]).await;
    let remote = &listening[0].1;
    let posted = Posted::default();
    let hook = receiver(posted.clone()).await;
    let tmux_home = Home::new();
    let tmux = Tmux::start(&tmux_home, "typed");
    let mut ways = vec!["helper", "hook", "remote"];
    let mut agents = format!(
        "[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\nmember = [{{ id = \"helper\" }}, {{ id = \"remote\" }}, \
         {{ id = \"hook\" }}{}]\n[[agent]]\nkind = \"orchestrator\"\nid = \"helper\"\n[[agent]]\nkind = \"a2a\"\nid = \"remote\"\n\
         url = \"{remote}\"\n[[agent]]\nkind = \"webhook\"\nid = \"hook\"\nurl = \"{hook}\"\nallow = [\"127.0.0.1\"]\n",
        if tmux.is_some() {
            ", { id = \"pane\" }"
        } else {
            ""
        }
    );
    if let Some(Tmux(socket)) = &tmux {
        ways.push("pane");
        agents += &format!(
            "[[agent]]\nkind = \"tmux\"\nid = \"pane\"\ntarget = \"pane:0.0\"\nsocket = \"{}\"\n",
            socket.display()
        );
    }
    let office = Office::open(&agents, &[("chief", &[]), ("claude", &[])]).await;
    soon("its first word", office.client("claude").agents(None))
        .await
        .unwrap();
    let chief = office.client("chief");
    let message = BroadcastMessage {
        message: "echo hello".to_owned(),
        ..BroadcastMessage::default()
    };
    let sent = soon("an answer", chief.broadcast(&message)).await.unwrap();
    assert_eq!(sent.recipient_count, Some(ways.len() as u64 + 1));
    let (id, thread) = (sent.message_id.unwrap(), sent.thread.unwrap());
    let mail_id = MemberId::parse(&*id).unwrap();
    let receipts = async || {
        chief
            .message(&mail_id, true)
            .await
            .unwrap()
            .receipts
            .unwrap()
    };
    let arrived = async || {
        let receipts = receipts().await;
        let has = |way: &&str| {
            receipts
                .iter()
                .any(|r| r.agent_id == **way && r.state != DeliveryState::Accepted)
        };
        ways.iter().all(has).then_some(receipts)
    };
    let seen = found("every way", arrived).await;
    // Nobody has shown it to the client of MCP.
    let claude = seen
        .iter()
        .find(|receipt| receipt.agent_id == "claude")
        .unwrap();
    assert_eq!(claude.state, DeliveryState::Accepted);
    let inbox =
        office.call("claude", "check_inbox", &json!({})).await["result"]["structuredContent"]
            .clone();
    assert_eq!(
        (
            &inbox["messages"][0]["message_id"],
            &inbox["messages"][0]["state"]
        ),
        (&json!(id), &json!("read"))
    );
    let read = async || {
        let receipts = receipts().await;
        receipts
            .iter()
            .any(|r| r.agent_id == "claude" && r.state == DeliveryState::Read)
            .then_some(())
    };
    found("its reading", read).await;

    let (headers, body) = posted.lock().unwrap()[0].clone();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&body["message_id"], &body["text"]),
        (&json!(id), &json!("[AGENT chief BROADCAST]: echo hello"))
    );
    assert_eq!(headers["idempotency-key"], *id);
    assert!(
        !headers.contains_key("x-callboard-signature"),
        "nothing to sign with"
    );
    if tmux.is_some() {
        let typed = || std::fs::read_to_string(tmux_home.path("typed")).unwrap();
        until("what was typed", || {
            typed().contains("[AGENT chief BROADCAST]: echo hello\n")
        })
        .await;
    }
    // Agents that take words answer in words.
    let answers = async || {
        let filter = MessageHistory {
            thread: Some(thread.clone()),
            ..MessageHistory::default()
        };
        let all = chief.messages(&filter).await.unwrap().messages;
        let from = |who: &str| {
            all.iter()
                .any(|m| m.from == who && m.reply_to.as_ref() == Some(&id))
        };
        (from("helper") && from("remote")).then_some(())
    };
    found("two answers", answers).await;
    assert_eq!(
        posted.lock().unwrap().len(),
        1,
        "an answer is for whoever asked"
    );
}

/// Goal: a client of A2A sends mail by a skill, under the name of its key and no other. Method: an A2A listener in front of the
/// mailroom; a claim that isn't the key's.
#[tokio::test]
async fn an_a2a_client_sends() {
    let agents = "[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\n[[listener]]\nprotocol = \"a2a\"\n\
        bind = \"127.0.0.1:0\"\nagent = \"mailroom\"\nkeys = \"keys.toml\"\n";
    let office = Office::open(agents, &[("caller", &[]), ("reader", &[])]).await;
    soon("its first word", office.client("reader").agents(None))
        .await
        .unwrap();
    let a2a_url = office
        .more
        .iter()
        .find(|url| url.ends_with("/a2a"))
        .unwrap();
    let say = async |arguments: Value| {
        let metadata = json!({ "skill": "send_message" });
        let id = format!(
            "m-{}",
            arguments["sender_agent_id"].as_str().unwrap_or("none")
        );
        let parts = json!([{ "text": arguments.to_string() }]);
        let message =
            json!({ "messageId": id, "role": "ROLE_USER", "parts": parts, "metadata": metadata });
        let request = a2a::request(a2a_url, "SendMessage", json!({ "message": message }));
        a2a::response(request.bearer_auth(office.key("caller").expose_secret())).await
    };
    let sent = say(json!({ "recipient_agent_id": "reader", "message": "by A2A" })).await;
    assert!(
        sent.to_string().contains("Message sent to agent reader"),
        "{sent}"
    );
    let posing =
        json!({ "recipient_agent_id": "reader", "message": "x", "sender_agent_id": "reader" });
    let refused = say(posing).await;
    assert!(!refused.to_string().contains("Message sent"), "{refused}");
    let inbox = soon(
        "an inbox",
        office.client("reader").messages(&MessageHistory::default()),
    )
    .await
    .unwrap()
    .messages;
    let texts: Vec<_> = inbox.iter().map(|message| &*message.text).collect();
    assert_eq!(texts, ["[AGENT caller TO AGENT reader]: by A2A"]);
    office.close().await;
}
