use callboard_message::DataClass;
use callboard_message::surface::CallTool;
use callboard_message::{Answer, Content, ElicitAnswer, Principal, Question};
use callboard_runtime::testkit::paused;
use callboard_runtime::{
    Agent, AgentRef, CallEvent, ConcurrentHandler, Handlers, MemoryNotes, Notes, SyncHandler,
    System,
};
use futures::future::BoxFuture;
use serde_json::Value;
use std::time::Duration;
use url::Url;

use super::*;
use crate::decide::{Cost, Decided, Decider, Risk};
use crate::peer_registry::{
    Connect, DIRECTORY_SPACE, KNOWN_AGENTS_MAX, KnownOptions, NamedBy, Seen,
};

/// Nobody is anywhere but at one address.
struct Nowhere;

impl Connect for Nowhere {
    fn look<'a>(&'a self, url: &'a Url, by: NamedBy) -> BoxFuture<'a, Result<Seen, Failure>> {
        let is_there = url.port() == Some(4201) && by == NamedBy::Operator;
        let seen = Seen {
            name: "Agent Two".into(),
            ..Seen::default()
        };
        Box::pin(async move {
            is_there
                .then_some(seen)
                .ok_or_else(|| Failure::unavailable("nobody is there"))
        })
    }

    fn open(&self, _: &System, _: &Url, _: NamedBy) -> Result<AgentRef, Failure> {
        Err(Failure::unavailable("nobody is there"))
    }
}

/// Answers every request with what it was asked.
struct Writer;

impl Agent for Writer {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<WriteAnswer>();
    }
}

impl SyncHandler<WriteAnswer> for Writer {
    fn handle(&mut self, asked: WriteAnswer, _: &mut Cx) -> Result<Decided<String>, Failure> {
        let said = format!(
            "[{}|{}] {}",
            asked.system_prompt,
            asked.history.len(),
            asked.request
        );
        Ok(Decided {
            outcome: Some(said),
            confidence: 1.0,
            why: String::new(),
            cost: Cost::default(),
        })
    }
}

/// An agent whose tools they are.
struct Owner(Toolbox);

impl Agent for Owner {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CallTool>(16);
    }
}

impl ConcurrentHandler<CallTool> for Owner {
    fn handle(
        &mut self,
        message: CallTool,
        cx: Cx,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let tools = self.0.clone();
        async move {
            let name = message.0.text("name").unwrap_or_default();
            tools
                .run(
                    &name,
                    message.0.object("arguments").unwrap_or_default(),
                    &cx,
                )
                .await
        }
    }
}

async fn toolbox(system: &System, has_model: bool, command: Option<CommandOptions>) -> Toolbox {
    toolbox_of(system, has_model, command, MemoryNotes::default()).await
}

async fn toolbox_of(
    system: &System,
    has_model: bool,
    command: Option<CommandOptions>,
    notes: MemoryNotes,
) -> Toolbox {
    let options = KnownOptions {
        id: "me".into(),
        name: "Me".into(),
        allow: Vec::new(),
    };
    let known = KnownAgents::open(system, Arc::new(notes), Arc::new(Nowhere), options)
        .await
        .unwrap();
    let decider = match has_model {
        true => Decider::model("m", system.spawn(Writer)),
        false => Decider::nobody("rules", "no language model is configured: write one"),
    };
    let deciders = Arc::new(Deciders::all("me", DataClass::Internal, &decider));
    let deps = ToolDeps {
        deciders,
        known,
        system_prompt: "S".into(),
        command,
    };
    Toolbox::new(&TOOL_NAMES.map(str::to_owned), deps).unwrap()
}

/// A test with an agent that has all tools.
fn with_tools(has_model: bool, test: impl AsyncFnOnce(&AgentRef, &Toolbox)) {
    paused(async |system| {
        let tools = toolbox(system, has_model, None).await;
        let owner = system.spawn(Owner(tools.clone()));
        test(&owner, &tools).await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

async fn used(owner: &AgentRef, tool: &str, arguments: Value) -> Result<ToolResult, Failure> {
    let call = owner
        .call(CallTool::new(tool, arguments))
        .principal(Principal::local_operator());
    call.start().reply().await?
}

/// Goal: every tool says truthfully what it takes. Method: each view's schema names what the tool reads, no more; who acts on
/// the world says so.
#[test]
fn views_are_true() {
    with_tools(false, async |_, tools| {
        let views = tools.list();
        let names: Vec<_> = views.iter().map(|view| &*view.name).collect();
        assert_eq!(names, TOOL_NAMES[..6], "commands are off");
        for view in views {
            let properties = view.params["properties"].as_object().unwrap();
            let mut given = RawObject::new();
            for (name, schema) in properties {
                match schema["type"].as_str() {
                    Some("integer") => given.set(name, 2),
                    _ => given.set(name, schema["enum"].get(0).unwrap_or(&json!("localhost:1"))),
                }
            }
            tools.check(&view.name, &given).unwrap();
            let extra = tools
                .check(&view.name, &given.clone().with("more", 1))
                .unwrap_err();
            assert!(extra.message.contains("`more`"), "{extra}");
            for required in view.params["required"].as_array().unwrap() {
                let required = required.as_str().unwrap();
                let mut without = given.clone();
                without.remove(required);
                let missing = tools.check(&view.name, &without).unwrap_err();
                assert_eq!(missing.kind, FailureKind::InvalidInput);
                assert!(
                    missing.message.contains(&format!("`{required}`")),
                    "{missing}"
                );
            }
            let wrong = properties
                .keys()
                .next()
                .map(|name| given.clone().with(name, json!({})));
            assert!(wrong.is_none_or(|wrong| tools.check(&view.name, &wrong).is_err()));
            assert_eq!(view.risk > Risk::Reads, view.name == REMEMBER_AGENT);
        }
        assert_eq!(
            tools.check("ghost", &RawObject::new()).unwrap_err().kind,
            FailureKind::NotFound
        );
        assert_eq!(
            tools
                .check(EXECUTE_COMMAND, &RawObject::new())
                .unwrap_err()
                .kind,
            FailureKind::NotFound
        );
    });
}

/// Goal: an agent alone says so in the document's words, and lists itself to others. Method: each format, exactly; then one
/// agent that was remembered.
#[test]
fn agents_are_listed() {
    with_tools(false, async |owner, _| {
        for (format, expected) in [
            (
                json!({}),
                r#"{"count":0,"message":"No agents found in the directory"}"#,
            ),
            (
                json!({ "format": "simple" }),
                r#"{"count":0,"message":"No agents found in the directory"}"#,
            ),
            (
                json!({ "format": "exchange" }),
                r#"{"self":{"id":"me","name":"Me"},"agents":[]}"#,
            ),
        ] {
            assert_eq!(
                used(owner, LIST_AGENTS, format).await.unwrap().texts(),
                expected
            );
        }
        let two = used(owner, REMEMBER_AGENT, json!({ "url": "localhost:4201" }))
            .await
            .unwrap();
        assert_eq!(two.structured_content().unwrap()["id"], "agent-two");
        for (format, expected) in [
            (
                "default",
                json!({ "count": 1, "agents": [{ "id": "agent-two", "name": "Agent Two" }] }),
            ),
            ("simple", json!({ "count": 1, "agents": ["agent-two"] })),
        ] {
            let listed = used(owner, LIST_AGENTS, json!({ "format": format }))
                .await
                .unwrap();
            assert_eq!(listed.structured_content().unwrap(), expected);
            assert_eq!(
                serde_json::from_str::<Value>(&listed.texts()).unwrap(),
                expected
            );
        }
        let detailed = used(owner, LIST_AGENTS, json!({ "format": "detailed" }))
            .await
            .unwrap();
        let detailed = &detailed.structured_content().unwrap()["agents"][0];
        assert_eq!(
            (&detailed["url"], &detailed["learned"]),
            (&json!("http://localhost:4201/"), &json!("told"))
        );
        assert!(
            used(owner, LIST_AGENTS, json!({ "format": "odd" }))
                .await
                .unwrap_err()
                .message
                .contains("`format`")
        );
    });
}

/// Goal: a list has room for so much, and tells what it hasn't. Method: as many agents as can be known, with long addresses.
#[test]
fn long_lists_are_cut() {
    paused(async |system| {
        let notes = MemoryNotes::default();
        for nth in 0..KNOWN_AGENTS_MAX {
            let body = RawObject::of("url", format!("http://a.example/{nth}/{}", "x".repeat(100)));
            notes
                .put(DIRECTORY_SPACE, &format!("a{nth}"), body, None)
                .await
                .unwrap();
        }
        let owner = system.spawn(Owner(toolbox_of(system, false, None, notes).await));
        let simple = used(&owner, LIST_AGENTS, json!({ "format": "simple" }))
            .await
            .unwrap();
        assert_eq!(
            simple.structured_content().unwrap()["agents"]
                .as_array()
                .unwrap()
                .len(),
            KNOWN_AGENTS_MAX
        );
        for format in ["exchange", "detailed"] {
            let listed = used(&owner, LIST_AGENTS, json!({ "format": format }))
                .await
                .unwrap();
            assert!(listed.texts().len() < TOOL_REPLY_BYTES_MAX);
            let listed = listed.structured_content().unwrap();
            let (there, left_out) = (
                listed["agents"].as_array().unwrap().len(),
                listed["left_out"].as_u64().unwrap(),
            );
            assert_eq!(there + left_out as usize, KNOWN_AGENTS_MAX, "{format}");
        }
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: a peer's word isn't the operator's. Method: the same address, said by somebody without a credential.
#[test]
fn peers_teach_nothing_by_themselves() {
    with_tools(false, async |owner, _| {
        let call = CallTool::new(REMEMBER_AGENT, json!({ "url": "localhost:4201" }));
        let said = owner
            .call(call)
            .principal(Principal::anonymous())
            .start()
            .reply()
            .await
            .unwrap();
        assert!(said.is_err());
    });
}

/// Goal: text comes back as it is, whole up to the limit. Method: at the limit and one past it; a reply that would be too
/// long is cut between characters, and says so.
#[test]
fn echo_is_exact() {
    with_tools(false, async |owner, _| {
        let odd = "a\n\"b\" 😀 ";
        assert_eq!(
            used(owner, "echo", json!({ "text": odd }))
                .await
                .unwrap()
                .texts(),
            odd
        );
        let long = "a".repeat(TOOL_TEXT_BYTES_MAX);
        assert_eq!(
            used(owner, "echo", json!({ "text": &long }))
                .await
                .unwrap()
                .texts(),
            long
        );
        assert!(
            used(owner, "echo", json!({ "text": format!("{long}a") }))
                .await
                .is_err()
        );
        let cut = as_text(&"é".repeat(TOOL_REPLY_BYTES_MAX)).texts();
        assert!(cut.len() <= TOOL_REPLY_BYTES_MAX && cut.ends_with("é\n[the rest was left out]"));
    });
}

/// Goal: `llm` is the model's answer, and without a model says what is missing. Method: both; the history goes along.
#[test]
fn answers_are_the_models() {
    with_tools(true, async |owner, _| {
        let text = json!({ "text": "What is the capital of France?" });
        assert_eq!(
            used(owner, LLM, text).await.unwrap().texts(),
            "[S|0] What is the capital of France?"
        );
        let short = used(
            owner,
            "summarize",
            json!({ "text": "One. Two.", "sentences": 1 }),
        )
        .await
        .unwrap()
        .texts();
        assert!(
            short.contains("at most 1 sentences") && short.contains("One. Two."),
            "{short}"
        );
        let long = json!({ "text": "a".repeat(REQUEST_CHARS_MAX + 1) });
        assert_eq!(
            used(owner, LLM, long).await.unwrap_err().kind,
            FailureKind::InvalidInput
        );
    });
    with_tools(false, async |owner, _| {
        let none = used(owner, LLM, json!({ "text": "Hello?" }))
            .await
            .unwrap_err();
        assert_eq!(none.kind, FailureKind::NobodyToAsk);
        assert_eq!(none.message, "no language model is configured: write one");
        let short = used(
            owner,
            "summarize",
            json!({ "text": "One. Two.", "sentences": 1 }),
        )
        .await
        .unwrap()
        .texts();
        assert_eq!(short, "One.");
        let many = |most: usize| json!({ "text": "One.", "sentences": most });
        assert!(used(owner, "summarize", many(SENTENCES_MAX)).await.is_ok());
        assert!(
            used(owner, "summarize", many(SENTENCES_MAX + 1))
                .await
                .unwrap_err()
                .message
                .contains("`sentences`")
        );
    });
}

/// Goal: the person behind the call is asked, and only an answer is one. Method: each thing a person can do, and nobody.
#[test]
fn persons_are_asked() {
    with_tools(false, async |owner, _| {
        let question = || CallTool::new(HUMAN_INPUT, json!({ "question": "Which city?" }));
        for (answer, expected) in [
            (
                ElicitAnswer::accept(json!({ "answer": " Lisbon " })),
                Some("Lisbon"),
            ),
            (ElicitAnswer::accept(json!({ "answer": "" })), None),
            (ElicitAnswer::decline(), None),
            (ElicitAnswer::cancel(), None),
        ] {
            let mut call = owner.call(question()).start();
            while let Some(event) = call.next().await {
                if let CallEvent::Question(asked) = event {
                    let Question::Elicit(form) = &asked.question else {
                        panic!("another question")
                    };
                    assert_eq!(form.message(), "Which city?");
                    asked.answer(Answer::Elicit(answer.clone()));
                }
            }
            let said = call.reply().await.unwrap();
            assert_eq!(said.ok().map(|said| said.texts()).as_deref(), expected);
        }
        let nobody = owner.ask(question()).await.unwrap().unwrap_err();
        assert_eq!(nobody.kind, FailureKind::NobodyToAsk);
    });
}

/// Goal: commands are there only where it is said what may run, and only for the operator. Method: with and without; another
/// principal; a tool that isn't.
#[test]
fn commands_are_the_operators() {
    callboard_runtime::testkit::real(async |system| {
        let home = tempfile::tempdir().unwrap();
        let tools = toolbox(
            system,
            false,
            Some(CommandOptions::new(["echo"], home.path())),
        )
        .await;
        assert_eq!(tools.spec(EXECUTE_COMMAND).unwrap().risk, Risk::Acts);
        let owner = system.spawn(Owner(tools.clone()));
        let command = || json!({ "command": ["echo", "hi; ls"] });
        let ran = used(&owner, EXECUTE_COMMAND, command()).await.unwrap();
        assert_eq!(ran.content(), [Content::text("hi; ls\n")]);
        assert_eq!(
            ran.structured_content().unwrap(),
            json!({ "exit_code": 0, "is_cut": false })
        );
        assert_eq!(
            used(&owner, EXECUTE_COMMAND, json!({ "command": "echo a  b" }))
                .await
                .unwrap()
                .texts(),
            "a b\n"
        );
        for principal in [Principal::anonymous(), Principal::agent("peer")] {
            let call = owner
                .call(CallTool::new(EXECUTE_COMMAND, command()))
                .principal(principal);
            assert_eq!(
                call.start().reply().await.unwrap().unwrap_err().kind,
                FailureKind::Denied
            );
        }
        let unknown = used(&owner, EXECUTE_COMMAND, json!({ "command": "rm -rf x" }))
            .await
            .unwrap_err();
        assert_eq!(unknown.kind, FailureKind::Denied);
        let deps = ToolDeps {
            deciders: tools.inner.deciders.clone(),
            known: tools.inner.known.clone(),
            system_prompt: String::new(),
            command: Some(CommandOptions::new(["no-such-program"], home.path())),
        };
        let new = |names: &[&str]| {
            Toolbox::new(
                &names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>(),
                deps.clone(),
            )
        };
        assert!(
            new(&[EXECUTE_COMMAND])
                .unwrap_err()
                .message
                .contains("no-such-program")
        );
        assert!(new(&["ghost"]).unwrap_err().message.contains("ghost"));
        assert_eq!(new(&["echo"]).unwrap().list().len(), 1);
        system.shutdown(Duration::from_secs(5)).await;
    });
}
