use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use callboard::a2a::card::CardSigningKey;
use callboard::a2a::inbound::A2aOptions;
use callboard::message::{Artifact, Content, Elicitation, Progress};
use callboard::rpc::UnauthenticatedAccess;
use callboard::{
    Agent, ConcurrentHandler, Context, Failure, FailureKind, Handlers, Message, System,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kit::gateway::{end, serve};
use crate::kit::{Finished, Home, Listening, a2a, ended, soon};

/// The example of RFC 8410, section 10.3.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
-----END PRIVATE KEY-----";

/// Does as it is told: `greet`, `ask`, `fail`, `refuse`, `pieces`, or lingers.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, fallible)]
struct Act {
    text: String,
}

struct Actor;

impl Agent for Actor {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Act>(16);
    }
}

impl ConcurrentHandler<Act> for Actor {
    fn handle(
        &mut self,
        Act { text }: Act,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        async move {
            match &*text {
                "ask" => {
                    let form = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
                    let answer = cx
                        .elicit(Elicitation::form("Who is it?\u{7}", form))
                        .await?;
                    Ok(format!(
                        "hello {}",
                        answer.content().unwrap_or_default()["name"]
                    ))
                }
                "fail" => Err(Failure::unavailable("no disk")),
                "refuse" => Err(Failure::new(FailureKind::Rejected, "not this")),
                "pieces" => {
                    cx.progress(Progress {
                        done: 1.0,
                        total: None,
                        message: Some("cutting".into()),
                    });
                    cx.artifact(Artifact::new("cake", [Content::text("one,")]));
                    cx.artifact(Artifact::new("cake", [Content::text("two")]).appending(true));
                    Ok("eaten".into())
                }
                "linger" => {
                    cx.cancelled().await;
                    Ok(String::new())
                }
                _ => Ok(format!("you said {text}\u{1b}[31m")),
            }
        }
    }
}

/// An agent that the commands talk to, as its URL.
struct Served {
    url: String,
    system: System,
    _listening: Listening,
}

impl Served {
    fn start(change: impl FnOnce(&mut A2aOptions)) -> Self {
        let system = System::start(1).unwrap();
        let listening = a2a::serve(system.spawn(Actor), |options| {
            options.access = UnauthenticatedAccess::LoopbackOperator.into();
            options.agent.name = "actor".into();
            change(options);
        });
        Self {
            url: format!("{}/a2a", listening.url),
            system,
            _listening: listening,
        }
    }

    async fn stop(self) {
        self.system.shutdown(Duration::ZERO).await;
    }
}

async fn run(home: &Home, input: Option<&str>, arguments: &[&str]) -> Finished {
    ended(&mut home.callboard(&[&["a2a"], arguments].concat()), input).await
}

/// The id of the task that a command says to go on with.
fn task_of(ended: &Finished) -> String {
    let line = ended
        .err
        .lines()
        .find(|line| line.starts_with("continue with:"))
        .unwrap_or_else(|| panic!("{ended:?}"));
    line.split_whitespace()
        .skip_while(|word| *word != "--task")
        .nth(1)
        .unwrap()
        .to_owned()
}

/// Goal: a person sees what an agent is and who signed that; a program gets one object. Method: a card that nobody signed, one
/// that is signed, checked by its key and by another.
/// Rows: B-16.
#[tokio::test]
async fn cards_are_shown() {
    let (home, served) = (Home::new(), Served::start(|_| {}));
    let shown = run(&home, None, &["card", &served.url]).await.quiet(0);
    for line in [
        "name actor",
        "skill act: Does as it is told: `greet`, `ask`, `fail`, `refuse`, `pieces`, or lingers.",
        "not signed",
    ] {
        assert!(
            shown.out.lines().any(|shown| shown == line),
            "{line}: {}",
            shown.out
        );
    }
    assert!(
        shown
            .out
            .contains(&format!("interface JSONRPC 1.0 {}", served.url)),
        "{}",
        shown.out
    );
    let json = run(&home, None, &["card", &served.url, "--json"]).await;
    let card = json.json();
    assert_eq!(
        (card["name"].as_str(), json.out.lines().count()),
        (Some("actor"), 1)
    );
    served.stop().await;
    let key = CardSigningKey::from_pem(&KEY.into()).unwrap();
    let (id, keys) = (
        key.id().to_owned(),
        home.write("keys.json", &serde_json::to_string(&key.jwks()).unwrap()),
    );
    let others = home.write("others.json", r#"{"keys":[]}"#);
    let served = Served::start(|options| options.signer = Some(key));
    for (keys, code, told) in [
        (&keys, 0, format!("signed by {id}")),
        (
            &others,
            4,
            "BAD signature: no signature of the card is by a trusted key: add the signer's key if you trust it".to_owned(),
        ),
    ] {
        let shown = run(&home, None, &["card", &served.url, "--verify", keys]).await;
        assert_eq!(
            (shown.code, shown.out.lines().last()),
            (Some(code), Some(&*told)),
            "{shown:?}"
        );
    }
    served.stop().await;
}

/// Goal: what an agent answers is printed, what it says about it stands aside, and how it ended is the exit code. Method: each
/// end, in every version; what the command line gets wrong.
#[tokio::test]
async fn messages_are_answered() {
    let (home, served) = (Home::new(), Served::start(|_| {}));
    for version in ["1.0", "0.3", "0.1"] {
        run(
            &home,
            None,
            &["send", &served.url, "hi", "--version", version],
        )
        .await
        .printing(0, "you said hi[31m\n");
        for (text, code, told) in [("fail", 4, "failed: no disk"), ("refuse", 4, "not this")] {
            run(
                &home,
                None,
                &["send", &served.url, text, "--version", version],
            )
            .await
            .with(code, told);
        }
    }
    let said = run(
        &home,
        None,
        &[
            "send",
            &served.url,
            "--data",
            r#"{"text":"x"}"#,
            "--skill",
            "act",
            "--json",
        ],
    )
    .await;
    let answer = said.json();
    assert_eq!(
        answer["task"]["artifacts"][0]["parts"][0]["text"],
        "you said x\u{1b}[31m"
    );
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    for (arguments, code, why) in [
        (vec!["send", &*served.url], 2, "the message is empty"),
        (
            vec!["send", &*served.url, "--data", "{"],
            2,
            "--data must be JSON",
        ),
        (vec!["send", "nowhere", "hi"], 2, "URL"),
        (
            vec!["send", "http://u:p@a.example/", "hi"],
            2,
            "without user and password",
        ),
        (
            vec!["send", "http://127.0.0.1:9/", "hi"],
            4,
            "can't connect",
        ),
        (
            vec!["send", &*served.url, "hi", "--skill", "none"],
            4,
            "(code -32602)",
        ),
        (
            vec!["send", &*served.url, "hi", "--key-env", "NO_SUCH"],
            2,
            "there is no environment variable NO_SUCH",
        ),
        (vec!["task", &*served.url, "none"], 4, "(code -32001)"),
        (
            vec!["list", &*served.url, "--state", "done"],
            2,
            "input_required",
        ),
    ] {
        run(&home, None, &arguments).await.with(code, why);
    }
    served.stop().await;
}

/// Goal: a question is asked of whoever is there; else the command says how to go on, and going on works. Method: answers on
/// standard input; nobody, then an answer to the task.
#[tokio::test]
async fn questions_are_asked_or_left() {
    let (home, served) = (Home::new(), Served::start(|_| {}));
    run(&home, Some("Ann\n"), &["send", &served.url, "ask", "--ask"])
        .await
        .printing(0, "hello \"Ann\"\n");
    let left = run(&home, None, &["send", &served.url, "ask"])
        .await
        .printing(5, "");
    assert!(
        left.err.contains("[input required] Who is it?\n"),
        "{left:?}"
    );
    let task = task_of(&left);
    let shown = run(&home, None, &["task", &served.url, &task])
        .await
        .with(5, "");
    assert!(
        shown.out.starts_with(&format!("{task}\tinput_required\t")),
        "{shown:?}"
    );
    run(&home, None, &["send", &served.url, "Bob", "--task", &task])
        .await
        .printing(0, "hello \"Bob\"\n");
    run(&home, None, &["send", &served.url, "Cid", "--task", &task])
        .await
        .with(4, "");
    served.stop().await;
}

/// Goal: what an agent makes is printed as it comes, apart from where it stands. Method: a stream for people, and for programs.
#[tokio::test]
async fn streams_are_printed() {
    let (home, served) = (Home::new(), Served::start(|_| {}));
    let shown = run(&home, None, &["stream", &served.url, "pieces"])
        .await
        .printing(0, "one,two\neaten\n");
    for line in ["working cutting", "completed"] {
        assert!(
            shown.err.lines().any(|shown| shown == line),
            "{line}: {shown:?}"
        );
    }
    let json = run(&home, None, &["stream", &served.url, "pieces", "--json"]).await;
    let events: Vec<Value> = json
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(events[0].get("task").is_some(), "{json:?}");
    let last = &events[events.len() - 1]["statusUpdate"]["status"]["state"];
    assert_eq!(last, "TASK_STATE_COMPLETED", "{json:?}");
    served.stop().await;
}

/// Goal: tasks can be begun, listed, followed and ended by different commands. Method: one that lingers.
/// Rows: B-16.
#[tokio::test]
async fn tasks_are_looked_after() {
    let (home, served) = (Home::new(), Served::start(|_| {}));
    let begun = run(
        &home,
        None,
        &["send", &served.url, "linger", "--no-wait", "--json"],
    )
    .await;
    let answer = begun.json();
    let (id, context) = (
        answer["task"]["id"].as_str().unwrap(),
        answer["task"]["contextId"].as_str().unwrap(),
    );
    assert_eq!(begun.code, Some(0), "{begun:?}");
    run(&home, None, &["send", &served.url, "hi"]).await;
    let all = run(&home, None, &["list", &served.url]).await;
    assert_eq!((all.code, all.out.lines().count()), (Some(0), 2), "{all:?}");
    let working = run(&home, None, &["list", &served.url, "--state", "working"]).await;
    let columns: Vec<&str> = working.out.trim_end().split('\t').collect();
    assert_eq!(
        (&columns[..3], columns.len()),
        (&[id, "working", context][..], 4),
        "{working:?}"
    );
    assert_eq!(
        run(&home, None, &["list", &served.url, "--limit", "1"])
            .await
            .out
            .lines()
            .count(),
        1
    );
    let follower = home
        .callboard(&["a2a", "task", &served.url, id, "--follow"])
        .spawn()
        .unwrap();
    run(&home, None, &["cancel", &served.url, id])
        .await
        .printing(0, &format!("cancelled {id}\n"));
    let followed = soon("the end of the task", follower.wait_with_output())
        .await
        .unwrap();
    assert_eq!(followed.status.code(), Some(4), "{followed:?}");
    assert_eq!(
        run(&home, None, &["cancel", &served.url, id]).await.code,
        Some(4)
    );
    served.stop().await;
}

/// Goal: what is meant for one agent never reaches another. Method: a node with an agent that answers and one that is away;
/// words for the one that is away, and for one that isn't there, by every address; then what the node does have.
#[tokio::test]
async fn messages_reach_the_addressed_agent_alone() {
    let home = Home::new();
    let file = "[node]\nname = \"two\"\n[[agent]]\nkind = \"model\"\nprovider = \"echo\"\nid = \"up\"\n\
                [[agent]]\nkind = \"a2a\"\nid = \"down\"\nurl = \"http://127.0.0.1:9\"\n\
                [[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nanonymous = \"operator\"\n";
    let (running, addresses) = serve(&home, &[&home.write("two.toml", file)]).await;
    let base = addresses[0].1.strip_suffix("/a2a").unwrap().to_owned();
    for (path, told) in [
        ("/agents/down", "HTTP status"),
        ("/agents/down/a2a", "HTTP status"),
        ("/agents/nosuch", "another agent"),
        ("/agents/nosuch/a2a", "another agent"),
    ] {
        let url = format!("{base}{path}");
        let ended = run(&home, None, &["send", &url, "secret for down"])
            .await
            .printing(4, "");
        assert!(
            ended.err.contains(told) && ended.err.contains(&url),
            "{path}: {ended:?}"
        );
        let answer = soon(
            "an answer",
            reqwest::Client::new().post(&url).body("{}").send(),
        )
        .await
        .unwrap();
        assert_eq!(answer.status() == 404, path.contains("nosuch"), "{path}");
    }
    let up = format!("{base}/agents/up");
    run(&home, None, &["list", &up]).await.printing(0, "");
    let said = run(&home, None, &["send", &up, "hello"]).await;
    assert_eq!(
        (said.code, said.out.contains("hello")),
        (Some(0), true),
        "{said:?}"
    );
    // Without a path it is the node itself.
    assert_eq!(
        run(&home, None, &["card", &format!("{base}/")]).await.code,
        Some(0)
    );
    end(running, &home).await;
}

/// Goal: an answer that an agent gives while it is working, or in its last status, is printed as its answer. Method: agents that
/// say no more, with a stream and without, asked by each command.
#[tokio::test]
async fn answers_while_working_are_printed() {
    let home = Home::new();
    for (streams, at_end) in [(true, false), (false, false), (true, true), (false, true)] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = a2a::card("bee", &url, json!({ "streaming": streams }), json!([]));
        let app = Router::new()
            .route(
                "/.well-known/agent-card.json",
                get(move || async move { as_json(&card) }),
            )
            .route(
                "/",
                post(move |body: String| async move { bee(&body, at_end) }),
            );
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        for arguments in [
            ["send", &*url, "hi"],
            ["stream", &*url, "hi"],
            ["task", &*url, "t"],
        ] {
            let ended = run(&home, None, &arguments).await.with(0, "");
            assert!(
                ended.out.ends_with("THE ANSWER\nand more\n"),
                "{streams} {at_end} {arguments:?}: {ended:?}"
            );
        }
        serving.abort();
    }
}

/// Answers in messages of a task that is working, and completes it without more; or in the message that completes it.
fn bee(body: &str, at_end: bool) -> axum::response::Response {
    let request: Value = serde_json::from_str(body).unwrap();
    let said = |role: &str, text: &str| json!({ "messageId": text, "role": role, "parts": [{ "text": text }] });
    let working =
        |text: &str| json!({ "state": "TASK_STATE_WORKING", "message": said("ROLE_AGENT", text) });
    let mut completed = json!({ "state": "TASK_STATE_COMPLETED" });
    if at_end {
        completed["message"] = said("ROLE_AGENT", "THE ANSWER\nand more");
    }
    let answer = |result: Value| json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    let history = [
        said("ROLE_USER", "hi"),
        said("ROLE_AGENT", "THE ANSWER"),
        said("ROLE_AGENT", "and more"),
    ];
    let mut task = json!({ "id": "t", "contextId": "c", "status": completed });
    if !at_end {
        task["history"] = json!(history);
    }
    match request["method"].as_str().unwrap() {
        "SendStreamingMessage" => {
            let statuses = match at_end {
                false => [working("THE ANSWER"), working("and more"), completed],
                true => [working("thinking"), working("still"), completed],
            };
            let events = statuses.map(|status| {
                let event = json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": status } });
                format!("data: {}\n\n", answer(event))
            });
            let events = events.concat();
            ([(CONTENT_TYPE, "text/event-stream")], events).into_response()
        }
        "SendMessage" => as_json(&answer(json!({ "task": task }))),
        "GetTask" if request["params"]["historyLength"] == 0 => {
            let mut short = task;
            short["history"] = json!([]);
            as_json(&answer(short))
        }
        _ => as_json(&answer(task)),
    }
}

fn as_json(value: &Value) -> axum::response::Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
