use callboard_message::DataClass;
use callboard_message::capabilities::CallTool;
use callboard_message::{Answer, Content, ElicitationAnswer, Principal, Question};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{
    Agent, AgentRef, CallEvent, ConcurrentHandler, Handlers, KvStore, MemoryKvStore, SyncHandler,
    System,
};
use futures::future::BoxFuture;
use serde_json::Value;
use std::time::Duration;
use url::Url;

use super::*;
use crate::decide::{Decider, DeciderReply, DecisionCost, Risk};
use crate::peer_registry::{
    AddressSource, AgentConnector, DIRECTORY_SPACE, FetchedCard, KNOWN_AGENTS_MAX,
    PeerRegistryOptions,
};

/// Connector with an agent at a single address.
struct Nowhere;

impl AgentConnector for Nowhere {
    fn fetch_card<'a>(
        &'a self,
        url: &'a Url,
        by: AddressSource,
    ) -> BoxFuture<'a, Result<FetchedCard, Failure>> {
        let is_there = url.port() == Some(4201) && by == AddressSource::Operator;
        let seen = FetchedCard {
            name: "Agent Two".into(),
            ..FetchedCard::default()
        };
        Box::pin(async move {
            is_there
                .then_some(seen)
                .ok_or_else(|| Failure::unavailable("nobody is there"))
        })
    }

    fn open(&self, _: &System, _: &Url, _: AddressSource) -> Result<AgentRef, Failure> {
        Err(Failure::unavailable("nobody is there"))
    }
}

/// Decider that answers every request with the request itself.
struct Writer;

impl Agent for Writer {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<WriteAnswer>();
    }
}

impl SyncHandler<WriteAnswer> for Writer {
    fn handle(
        &mut self,
        asked: WriteAnswer,
        _: &mut Context,
    ) -> Result<DeciderReply<String>, Failure> {
        let said = format!(
            "[{}|{}] {}",
            asked.system_prompt,
            asked.history.len(),
            asked.request
        );
        Ok(DeciderReply {
            outcome: Some(said),
            confidence: 1.0,
            why: String::new(),
            cost: DecisionCost::default(),
        })
    }
}

/// Agent that owns the tools.
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
        cx: Context,
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
    toolbox_of(system, has_model, command, MemoryKvStore::default()).await
}

async fn toolbox_of(
    system: &System,
    has_model: bool,
    command: Option<CommandOptions>,
    notes: MemoryKvStore,
) -> Toolbox {
    let options = PeerRegistryOptions {
        id: "me".into(),
        name: "Me".into(),
        allowed_origins: Vec::new(),
    };
    let known = PeerRegistry::open(system, Arc::new(notes), Arc::new(Nowhere), options)
        .await
        .unwrap();
    let decider = match has_model {
        true => Decider::model("m", system.spawn(Writer)),
        false => Decider::unavailable("rules", "no language model is configured: write one"),
    };
    let deciders = Arc::new(Deciders::uniform("me", DataClass::Internal, &decider));
    let deps = ToolDeps {
        deciders,
        peer_registry: known,
        system_prompt: "S".into(),
        command,
    };
    Toolbox::new(&TOOL_NAMES.map(str::to_owned), deps).unwrap()
}

/// Runs a test with an agent that has all tools.
fn with_tools(has_model: bool, test: impl AsyncFnOnce(&AgentRef, &Toolbox)) {
    run_with_paused_time(async |system| {
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

/// Goal: every tool describes its parameters and risk correctly. Method: each schema lists exactly
/// the parameters that the tool reads, and tools with outside effects are marked.
/// Rows: B-19.
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

/// Goal: an empty registry gives the documented message, and the exchange format lists this agent.
/// Method: each format, exactly; then one remembered agent.
/// Rows: B-19, B-32, B-37.
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

/// Goal: a long list is cut at its limit and states the number of omitted agents. Method: the
/// maximum number of agents, with long addresses.
#[test]
fn long_lists_are_cut() {
    run_with_paused_time(async |system| {
        let notes = MemoryKvStore::default();
        for nth in 0..KNOWN_AGENTS_MAX {
            let body =
                RawObject::single("url", format!("http://a.example/{nth}/{}", "x".repeat(100)));
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

/// Goal: a peer can't add an agent as the operator can. Method: the same address, sent by an
/// anonymous principal.
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

/// Goal: text is returned unchanged up to the limit. Method: at the limit and one beyond; a result
/// that is too long is cut between characters, with a note.
/// Rows: B-19.
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
        let cut = text_result(&"é".repeat(TOOL_REPLY_BYTES_MAX)).texts();
        assert!(cut.len() <= TOOL_REPLY_BYTES_MAX && cut.ends_with("é\n[the rest was left out]"));
    });
}

/// Goal: `llm` returns the model's answer, and without a model states what is missing. Method:
/// both; the history is passed on.
/// Rows: B-2, B-19.
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
        assert_eq!(none.kind, FailureKind::NoResponder);
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
        assert!(
            used(owner, "summarize", many(SUMMARY_SENTENCES_MAX))
                .await
                .is_ok()
        );
        assert!(
            used(owner, "summarize", many(SUMMARY_SENTENCES_MAX + 1))
                .await
                .unwrap_err()
                .message
                .contains("`sentences`")
        );
    });
}

/// Goal: the person behind the call is asked, and only an accepted form is an answer. Method: each
/// reaction of a person, and nobody to ask.
/// Rows: B-19.
#[test]
fn persons_are_asked() {
    with_tools(false, async |owner, _| {
        let question = || CallTool::new(HUMAN_INPUT, json!({ "question": "Which city?" }));
        for (answer, expected) in [
            (
                ElicitationAnswer::accept(json!({ "answer": " Lisbon " })),
                Some("Lisbon"),
            ),
            (ElicitationAnswer::accept(json!({ "answer": "" })), None),
            (ElicitationAnswer::decline(), None),
            (ElicitationAnswer::cancel(), None),
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
        assert_eq!(nobody.kind, FailureKind::NoResponder);
    });
}

/// Goal: commands are available only if configured, and only for the operator. Method: with and
/// without configuration; another principal; an unknown tool.
/// Rows: B-14, B-19.
#[test]
fn commands_are_the_operators() {
    callboard_runtime::testkit::run_with_real_time(async |system| {
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
            peer_registry: tools.inner.known.clone(),
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
