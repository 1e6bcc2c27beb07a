//! The client over shared channels: a child process, a WebSocket, HTTP+SSE.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::auth::{AuthChallenge, AuthError, Authorizer};
use callboard_mcp::outbound::{ChildCommand, Era, McpClient, McpClientOptions, ServerEndpoint};
use callboard_message::{Answer, ElicitationAnswer, Failure, FailureKind, LogMessage, Question};
use callboard_runtime::testkit::{Probe, eventually, run_with_real_time};
use callboard_runtime::{AgentChanged, CallContext, CallEvent, Caller, System};
use futures::future::BoxFuture;
use futures::{SinkExt, StreamExt};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tracing::level_filters::LevelFilter;

use crate::bridge_kit::child;
use crate::client_kit::{Client, Played, auto, joined, only, tool};
use crate::kit::{SOON, soon};
use crate::recording::Recording;

const CALL: &str = "callboard.tools.call";

fn legacy(script: &str) -> Client {
    Client::of(child(script), only(Era::Legacy))
}

fn process_is_gone(id: u64) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat"));
    // A zombie process has ended, too.
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// Goal: a child sends one message per line; other output is skipped; its environment has the named
/// variables only. Method: a script that prints noise and reports its environment.
/// Rows: M-14, M-48, M-55.
#[tokio::test]
async fn children_speak_lines() {
    let script = r#"
        echo starting up; initialize; echo '{"half":'; echo >&2 "a line for the log"
        hear; say "$id" "{\"content\":[],\"sent\":$line,\"environment\":\"$(env | cut -d= -f1 | sort | tr '\n' ' ')\"}"; hear
    "#;
    let ServerEndpoint::Child(mut command) = child(script) else {
        panic!()
    };
    command.env_passthrough = vec!["PATH".into()];
    command.env = vec![("NAMED".into(), "value".to_owned().into())];
    let client = Client::of(ServerEndpoint::Child(command), only(Era::Legacy));
    let result = joined(client.ask(CALL, tool("t", json!({ "text": "two\nlines" }))))
        .await
        .unwrap();
    assert_eq!(
        result["sent"]["params"],
        tool("t", json!({ "text": "two\nlines" }))
    );
    let variables: Vec<&str> = result["environment"].as_str().unwrap().split(' ').collect();
    assert!(variables.contains(&"NAMED") && variables.contains(&"PATH"));
    assert!(
        !variables.contains(&"HOME") && !variables.iter().any(|v| v.starts_with("CARGO")),
        "{variables:?}"
    );
    client.stop().await;
}

/// Goal: a child ends with its client, and so do its own children, even if they ignore requests to.
/// Method: a script that ignores the end of its input and SIGTERM; stop the agent, then the whole
/// system.
#[tokio::test]
async fn children_end_with_the_client() {
    for whole_system in [false, true] {
        let script = r#"
            trap '' TERM; sleep 600 & other=$!
            initialize; hear; say "$id" "{\"content\":[],\"pids\":[$$,$other]}"
            while :; do sleep 600; done
        "#;
        let client = legacy(script);
        let result = joined(client.ask(CALL, tool("t", json!({}))))
            .await
            .unwrap();
        let pids: Vec<u64> = serde_json::from_value(result["pids"].clone()).unwrap();
        assert!(pids.iter().all(|pid| !process_is_gone(*pid)));
        match whole_system {
            false => client.agent.kill(),
            true => drop(client.system.shutdown(Duration::ZERO).await),
        }
        eventually("the child and its child have ended", SOON, || {
            pids.iter().all(|pid| process_is_gone(*pid))
        })
        .await;
        client.stop().await;
    }
}

/// Goal: a child that ends fails the running calls, and the next call starts another. Method: a
/// script that serves one call per start.
#[tokio::test]
async fn children_are_started_again() {
    let client = legacy(
        r#"initialize; hear; case "$line" in *die*) exit 1;; esac; say "$id" '{"content":[]}'; hear"#,
    );
    let failed = joined(client.ask(CALL, tool("die", json!({}))))
        .await
        .unwrap_err();
    assert_eq!(failed.kind, FailureKind::Unavailable);
    joined(client.ask(CALL, tool("live", json!({}))))
        .await
        .unwrap();
    client.stop().await;
    let missing = Client::of(
        ServerEndpoint::Child(ChildCommand::new("/no/such/program", [""])),
        auto(),
    );
    let failed = joined(missing.ask(CALL, tool("t", json!({}))))
        .await
        .unwrap_err();
    assert_eq!(failed.kind, FailureKind::Unavailable);
    missing.stop().await;
}

/// Goal: the failure of a call tells how the server's program ended, and why it can't be started.
/// Method: a program that exits with 3 during a call, one that a signal kills, one that closes its
/// input before it exits, while a message is written, and one that doesn't exist.
#[tokio::test]
async fn ends_of_programs_are_told() {
    let missing = ServerEndpoint::Child(ChildCommand::new("/nowhere/server", [] as [&str; 0]));
    for (endpoint, expected) in [
        (child("initialize; hear; exit 3"), "exit status: 3"),
        (child("initialize; hear; kill -9 $$"), "signal: 9"),
        (
            child("initialize; exec <&-; sleep 0.1; exit 3"),
            "exit status: 3",
        ),
        (missing, "No such file or directory"),
    ] {
        let client = Client::of(endpoint, only(Era::Legacy));
        // More than a pipe holds.
        let arguments = json!({"text": "x".repeat(1 << 17)});
        let failure = joined(client.ask(CALL, tool("t", arguments)))
            .await
            .unwrap_err();
        assert!(failure.message.contains(expected), "{}", failure.message);
        client.stop().await;
    }
}

/// Goal: the last lines that a program wrote before it ended stand in the log beside its end, so that
/// the operator needn't look for them. Method: one line more than are kept, and the exit.
#[test]
fn last_words_of_programs_are_logged() {
    run_with_real_time(async |system| {
        let recording = Recording::start(LevelFilter::WARN);
        let script =
            r#"initialize; hear; for n in 1 2 3 4 5 6; do echo "word $n" >&2; done; exit 3"#;
        let options = McpClientOptions {
            name: Some("last-words".into()),
            ..only(Era::Legacy)
        };
        let client = McpClient::new(child(script), options).unwrap();
        let agent = system.spawn_with(move || client.clone());
        let params = serde_json::value::to_raw_value(&tool("t", json!({}))).unwrap();
        soon(agent.ask_named(CALL.to_owned(), params, None))
            .await
            .unwrap_err();
        let log = recording.text();
        let end = log.lines().find(|line| line.contains("has ended"));
        let end = end.unwrap_or_else(|| panic!("{log}"));
        assert!(
            end.contains("last-words") && end.contains("exit status: 3"),
            "{end}"
        );
        assert!(end.contains("word 2") && end.contains("word 6"), "{end}");
        assert!(!end.contains("word 1"), "{end}");
        system.shutdown(Duration::from_secs(1)).await;
    });
}

/// Goal: servers of each era are detected over pipes, and none is sent what it can't stand. Method:
/// legacy servers that don't answer another first request, stop working after it, or end; modern
/// ones that reject `initialize`; one of both eras.
#[tokio::test]
async fn eras_are_found_over_pipes() {
    let serve =
        r#"hear; say "$id" "{\"content\":[],\"resultType\":\"complete\",\"sent\":$line}"; hear"#;
    let legacy = |otherwise: &str| {
        format!(
            r#"hear; case "$line" in *discover*) {otherwise};; esac
            say "$id" '{{"protocolVersion":"2024-11-05","capabilities":{{}},"serverInfo":{{"name":"p","version":"1"}}}}'; hear; {serve}"#
        )
    };
    let modern = |error: &str| {
        format!(
            r#"hear; case "$line" in *'"initialize"'*) printf '{{"jsonrpc":"2.0","id":%s,"error":%s}}\n' "$id" '{error}'; hear;; esac
            say "$id" '{{"supportedVersions":["2026-07-28"],"capabilities":{{}}}}'; {serve}"#
        )
    };
    let refusal = r#"{"code":-32022,"message":"modern","data":{"supported":["2026-07-28"]}}"#;
    let unknown = r#"{"code":-32601,"message":"method not found"}"#;
    let both = legacy(r#"say "$id" '{"supportedVersions":["2026-07-28"],"capabilities":{}}'"#);
    for (script, is_modern) in [
        (legacy("hear"), false),
        (legacy("cat > /dev/null; exit"), false),
        (legacy("exit 1"), false),
        (modern(refusal), true),
        (modern(unknown), true),
        (both, false),
    ] {
        let client = Client::of(child(&script), auto());
        let result = joined(client.ask(CALL, tool("t", json!({}))))
            .await
            .unwrap();
        let has_meta = result["sent"]["params"]["_meta"].is_object();
        assert_eq!(has_meta, is_modern, "{script}");
        client.stop().await;
    }
}

/// Goal: on a shared channel a question goes to the only running call, and is rejected while there
/// are two. Method: a script that asks in both situations and reports the answers.
#[tokio::test]
async fn questions_are_never_guessed() {
    let script = r#"
        ask() { printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}\n'; }
        initialize
        hear; call=$id; ask; hear; say "$call" "{\"content\":[],\"heard\":$line}"
        hear; one=$id; hear; two=$id; ask; hear
        say "$one" "{\"content\":[],\"heard\":$line}"; say "$two" '{"content":[]}'; hear
    "#;
    let client = legacy(script);
    let mut call = client.call(CALL, tool("only", json!({})));
    let answering = tokio::spawn(async move {
        while let Some(event) = soon(call.next()).await {
            if let CallEvent::Question(pending) = event {
                pending.answer(Answer::Elicit(ElicitationAnswer::decline()));
            }
        }
        call.reply().await.unwrap().unwrap()
    });
    let heard: Value = serde_json::from_str(joined(answering).await.get()).unwrap();
    assert_eq!(
        heard["heard"],
        json!({ "jsonrpc": "2.0", "id": "q", "result": { "action": "decline" } })
    );
    let (one, two) = (
        client.ask(CALL, tool("one", json!({}))),
        client.ask(CALL, tool("two", json!({}))),
    );
    let results = [joined(one).await.unwrap(), joined(two).await.unwrap()];
    let heard = results
        .iter()
        .find_map(|result| result.get("heard"))
        .unwrap();
    assert_eq!(heard["error"]["code"], -7);
    assert!(
        heard["error"]["message"]
            .as_str()
            .unwrap()
            .contains("several calls"),
        "{heard}"
    );
    client.stop().await;
}

/// Rejects every question, and records notifications.
#[derive(Default)]
struct Sayer(std::sync::Mutex<Vec<String>>);

impl Caller for Sayer {
    fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.0.lock().unwrap().push("asked".into());
        Box::pin(async { Ok(Answer::Elicit(ElicitationAnswer::decline())) })
    }

    fn log(&self, line: LogMessage) {
        self.0.lock().unwrap().extend(line.0.text("data"));
    }
}

/// Goal: a client that serves one caller passes it messages that no call caused. Method: a script
/// that asks between the calls, and during two of them.
#[tokio::test]
async fn an_only_caller_is_always_meant() {
    let script = r#"
        ask() { printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}\n'; }
        initialize; echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"idle"}}'
        ask; hear; first=$line; hear
        one=$id; hear; two=$id; ask; hear
        say "$one" "{\"content\":[],\"heard\":[$first,$line]}"; say "$two" '{"content":[]}'; hear
    "#;
    let sayer = Arc::new(Sayer::default());
    let client = Client::of(
        child(script),
        McpClientOptions {
            only_caller: Some(sayer.clone()),
            ..only(Era::Legacy)
        },
    );
    joined(client.ask("callboard.describe", json!({})))
        .await
        .unwrap();
    eventually("asked without a call", SOON, || {
        sayer.0.lock().unwrap().len() == 2
    })
    .await;
    let (one, two) = (
        client.ask(CALL, tool("one", json!({}))),
        client.ask(CALL, tool("two", json!({}))),
    );
    let results = [joined(one).await.unwrap(), joined(two).await.unwrap()];
    let heard = results
        .iter()
        .find_map(|result| result.get("heard"))
        .unwrap();
    let declined = json!({ "jsonrpc": "2.0", "id": "q", "result": { "action": "decline" } });
    assert_eq!(heard, &json!([declined, declined]));
    assert_eq!(*sayer.0.lock().unwrap(), ["idle", "asked", "asked"]);
    client.stop().await;
}

/// Goal: a caller that stops a client can wait until its server has ended properly. Method: a
/// script that leaves a mark when its input closes.
#[tokio::test]
async fn ends_can_be_waited_for() {
    let folder = std::env::temp_dir().join(format!("callboard-{}", std::process::id()));
    let script = format!(
        "initialize; while read -r line; do :; done; sleep 0.2; echo over > '{}'",
        folder.display()
    );
    let client = McpClient::new(child(&script), only(Era::Legacy)).unwrap();
    let (kept, system) = (client.clone(), System::start(1).unwrap());
    let client = Client {
        agent: system.spawn(client),
        system,
    };
    joined(client.ask("callboard.describe", json!({})))
        .await
        .unwrap();
    client.agent.stop();
    soon(client.agent.wait_for_exit()).await;
    soon(kept.drained()).await;
    assert_eq!(std::fs::read_to_string(&folder).unwrap(), "over\n");
    std::fs::remove_file(&folder).unwrap();
    client.stop().await;
}

/// Goal: the server is notified of a cancelled call, and its late answer is dropped. Method:
/// cancel; the script answers all the same, then the next call.
#[tokio::test]
async fn cancelled_calls_are_told() {
    let script = r#"
        initialize; hear; late=$id; echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"
        hear; told=$line; say "$late" '{"content":[]}'
        hear; say "$id" "{\"content\":[],\"told\":$told}"; hear
    "#;
    let client = legacy(script);
    let (follower, mut began) = Probe::<AgentChanged>::spawn(&client.system, |_| ());
    client.agent.follow(follower.recipient().unwrap());
    let meta = CallContext::new(Arc::new(callboard_message::Principal::local_operator()));
    let cancel = meta.cancel.clone();
    let asked = client.ask_in(CALL, tool("t", json!({})), meta);
    soon(began.recv()).await.unwrap();
    cancel.cancel();
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Cancelled
    );
    let result = joined(client.ask(CALL, tool("next", json!({}))))
        .await
        .unwrap();
    assert_eq!(result["told"]["method"], "notifications/cancelled");
    assert_eq!(soon(client.agent.observe()).await["unknown_responses"], 1);
    client.stop().await;
}

/// Goal: a line over the limit fails the only call that it can belong to, and the channel
/// continues. Method: one byte more than the limit; then a small line.
#[tokio::test]
async fn long_lines_are_dropped() {
    let script = r#"
        long() { printf '{"jsonrpc":"2.0","id":%s,"result":{"fill":"' "$id"; head -c "$1" /dev/zero | tr '\0' x; printf '"}}\n'; }
        initialize; hear; long 955; hear; long 956; hear; say "$id" '{"content":[]}'; hear
    "#;
    let limits = callboard_rpc::DecodeLimits {
        body_bytes_max: 1_000,
        ..Default::default()
    };
    let client = Client::of(
        child(script),
        McpClientOptions {
            limits,
            ..only(Era::Legacy)
        },
    );
    // {"jsonrpc":"2.0","id":2,"result":{"fill":""}} has 45 bytes.
    joined(client.ask(CALL, tool("t", json!({}))))
        .await
        .unwrap();
    let failed = joined(client.ask(CALL, tool("t", json!({}))))
        .await
        .unwrap_err();
    assert_eq!(failed.kind, FailureKind::Overloaded);
    joined(client.ask(CALL, tool("t", json!({}))))
        .await
        .unwrap();
    client.stop().await;
}

/// Goal: a response that can't be read fails its call at once, whatever else is pending, and the reason
/// names the limit. Method: two calls; the first is answered by text that is nested too deeply, isn't
/// UTF-8, is over the limit with the id at its end, or has both a result and an error, neither, or no
/// error where one must be; after lines that are nothing.
#[tokio::test]
async fn unreadable_answers_fail_their_calls() {
    let script = r#"
        fill() { head -c "$1" /dev/zero | tr '\0' "$2"; }
        deep() { printf '{"jsonrpc":"2.0","id":%s,"result":{"a":' "$1"; fill 70 '['; fill 70 ']'; printf '}}\n'; }
        broken() { printf '{"jsonrpc":"2.0","id":%s,"result":{"a":"\377"}}\n' "$1"; }
        long() { printf '{"result":{"fill":"'; fill 1000 x; printf '"},"jsonrpc":"2.0","id":%s}\n' "$1"; }
        both() { printf '{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"m"}}\n' "$1"; }
        neither() { printf '{"jsonrpc":"2.0","id":%s}\n' "$1"; }
        null() { printf '{"jsonrpc":"2.0","id":%s,"error":null}\n' "$1"; }
        initialize
        for bad in deep broken long both neither null; do
            hear; one=$id; hear; echo '{"half":'; printf '{"level":"info","id":%s}\n' "$id"
            "$bad" "$one"; say "$id" '{"content":[]}'
        done; hear
    "#;
    let limits = callboard_rpc::DecodeLimits {
        body_bytes_max: 1_000,
        ..Default::default()
    };
    let options = McpClientOptions {
        limits,
        ..only(Era::Legacy)
    };
    let client = Client::of(child(script), options);
    for (kind, why) in [
        (FailureKind::Unavailable, "64"),
        (FailureKind::Unavailable, "UTF-8"),
        (
            FailureKind::Overloaded,
            "over the limit of 1000 bytes; `body_bytes_max` raises it",
        ),
        (FailureKind::Unavailable, "the server's response"),
        (FailureKind::Unavailable, "the server's response"),
        (FailureKind::Unavailable, "the server's response"),
    ] {
        let calls = [(); 2].map(|()| client.ask(CALL, tool("t", json!({}))));
        let mut failed = Vec::new();
        for call in calls {
            failed.extend(joined(call).await.err());
        }
        let [failed] = &failed[..] else {
            panic!("{failed:?}")
        };
        assert_eq!(failed.kind, kind, "{failed}");
        assert!(failed.message.contains(why), "{failed}");
    }
    client.stop().await;
}

/// Goal: one item that can't be read or shown doesn't hide the others of a list. Method: a list of tools
/// with a schema of 40 nested objects, with a name that isn't UTF-8, and with an annotation that no
/// header can have, which a client of this gateway would meet over HTTP.
/// Rows: M-55.
#[tokio::test]
async fn the_rest_of_a_list_comes() {
    let schema = (0..40).fold(r#"{"type":"object"}"#.to_owned(), |inner, _| {
        format!(r#"{{"type":"object","properties":{{"a":{inner}}}}}"#)
    });
    let script = format!(
        r#"initialize; hear
        printf '{{"jsonrpc":"2.0","id":%s,"result":{{"tools":[{{"name":"good","inputSchema":{{"odd":1.0}}}},{{"name":"deep","inputSchema":%s}},{{"name":"split","inputSchema":{{"properties":{{"a":{{"type":"string","x-mcp-header":"A B"}}}}}}}},{{"name":"\377"}}],"more":[]}}}}\n' "$id" '{schema}'; hear"#
    );
    let client = legacy(&script);
    let listed = joined(client.ask("callboard.tools.list", json!({})))
        .await
        .unwrap();
    let good = json!([{ "name": "good", "inputSchema": { "odd": 1.0 } }]);
    assert_eq!(listed, json!({ "tools": good, "more": [] }));
    client.stop().await;
}

/// An authorizer with one token.
struct OneToken;

impl Authorizer for OneToken {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<SecretString>, AuthError>> {
        Box::pin(async { Ok(Some("Bearer token".to_owned().into())) })
    }

    fn handle_challenge<'a>(
        &'a self,
        _: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<bool, AuthError>> {
        Box::pin(async { Ok(false) })
    }
}

/// Goal: MCP runs over a WebSocket with its subprotocol; the authorizer's token replaces a
/// configured header. Method: a server that echoes its input, and closes.
/// Rows: M-17, M-48.
#[tokio::test]
async fn websockets_speak() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        #[expect(
            clippy::result_large_err,
            reason = "the callback's type is the library's"
        )]
        let accept = |request: &Request, mut response: Response| {
            assert_eq!(request.headers()["sec-websocket-protocol"], "mcp");
            assert_eq!(request.headers()["x-extra"], "e");
            let authorization: Vec<_> = request.headers().get_all("authorization").iter().collect();
            assert_eq!(authorization, ["Bearer token"]);
            response
                .headers_mut()
                .insert("sec-websocket-protocol", "mcp".parse().unwrap());
            Ok(response)
        };
        let mut socket = tokio_tungstenite::accept_hdr_async(stream, accept)
            .await
            .unwrap();
        while let Some(Ok(Message::Text(text))) = socket.next().await {
            let sent: Value = serde_json::from_str(&text).unwrap();
            let result = match sent["method"].as_str() {
                Some("initialize") => {
                    json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } })
                }
                Some("tools/call") if sent["params"]["name"] == "close" => break,
                Some("tools/call") => json!({ "content": [], "sent": sent["params"] }),
                _ => continue,
            };
            let response = json!({ "jsonrpc": "2.0", "id": sent["id"], "result": result });
            socket
                .send(Message::text(response.to_string()))
                .await
                .unwrap();
        }
        let _ = socket.close(None).await;
    });
    let options = McpClientOptions {
        authorizer: Some(Arc::new(OneToken)),
        ..only(Era::Legacy)
    };
    let options = options
        .with_header("X-Extra", &"e".to_owned().into())
        .unwrap();
    let options = options
        .with_header("Authorization", &"Bearer fixed".to_owned().into())
        .unwrap();
    let client = Client::at(&url, options);
    let result = joined(client.ask(CALL, tool("t", json!({ "x": 1 }))))
        .await
        .unwrap();
    assert_eq!(result["sent"], tool("t", json!({ "x": 1 })));
    let failed = joined(client.ask(CALL, tool("close", json!({}))))
        .await
        .unwrap_err();
    assert_eq!(failed.kind, FailureKind::Unavailable);
    joined(server).await;
    client.stop().await;
}

/// Goal: a server of 2024-11-05 is detected at a URL that accepts no POST. Method: reject the
/// handshake, serve the event stream.
/// Rows: H-16, M-54, M-57.
#[tokio::test]
async fn old_servers_are_found() {
    let mut peer = Played::start().await;
    let client = Client::at(&peer.url, only(Era::Legacy));
    let asked = client.ask(CALL, tool("t", json!({})));
    peer.expect("initialize").await.empty(405).await;
    let hit = peer.hit().await;
    assert_eq!(
        (hit.method.as_str(), hit.header("accept")),
        ("GET", Some("text/event-stream"))
    );
    let mut events = hit.stream().await;
    events
        .raw("event: endpoint\ndata: /messages?session=1\n\n")
        .await;
    let hit = peer.expect("initialize").await;
    assert_eq!(hit.target, "/messages?session=1");
    let result = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
    events.say(hit.response(Ok(result))).await;
    hit.empty(202).await;
    peer.expect("notifications/initialized")
        .await
        .empty(202)
        .await;
    let hit = peer.expect("tools/call").await;
    events.say(hit.response(Ok(json!({ "content": [] })))).await;
    hit.empty(202).await;
    joined(asked).await.unwrap();
    let refused = client.ask(CALL, tool("t", json!({})));
    peer.expect("tools/call").await.empty(400).await;
    assert_eq!(
        joined(refused).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    client.stop().await;
}

/// Goal: an event stream can't direct messages and credentials elsewhere. Method: an endpoint of
/// another origin.
#[tokio::test]
async fn foreign_endpoints_are_refused() {
    let mut peer = Played::start().await;
    let client = Client::of(ServerEndpoint::sse(&peer.url).unwrap(), auto());
    let asked = client.ask(CALL, tool("t", json!({})));
    let mut events = peer.hit().await.stream().await;
    events
        .raw("event: endpoint\ndata: http://elsewhere.example/messages\n\n")
        .await;
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    client.stop().await;
}

/// Goal: invalid configurations are rejected when the client is created. Method: URLs and options
/// that don't fit.
#[test]
fn configurations_are_checked() {
    for url in [
        "ftp://a.example/",
        "http://user@a.example/",
        "http://u:p@a.example/",
        "nonsense",
        "ws:",
    ] {
        assert!(ServerEndpoint::from_url(url).is_err(), "{url}");
    }
    assert!(ServerEndpoint::sse("wss://a.example/").is_err());
    let sse = ServerEndpoint::sse("http://a.example/sse").unwrap();
    assert!(McpClient::new(sse, only(Era::Modern)).is_err());
    let options = only(Era::Legacy);
    assert!(
        options
            .clone()
            .with_header("bad name", &"v".to_owned().into())
            .is_err()
    );
    let options = options
        .with_header("X-Key", &"s3cret".to_owned().into())
        .unwrap();
    assert!(options.headers["x-key"].is_sensitive());
    assert!(
        !ServerEndpoint::from_url("https://a.example/mcp?key=s3cret")
            .unwrap()
            .to_string()
            .contains("s3cret")
    );
}
