//! HMCP: a client sends a server sampling requests. And the messages after a request that policies
//! see.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_macros::Message;
use callboard_mcp::inbound::{StdioOptions, serve_stdio};
use callboard_mcp::outbound::Era;
use callboard_message::capabilities::{
    CreateMessage, DescribeAgent, DescribeAgentResult, MISSING_META_KEY,
};
use callboard_message::{
    Answer, Elicitation, ElicitationAnswer, Failure, FailureKind, Principal, PrincipalKind,
    RawObject, SamplingAnswer, SamplingRequest,
};
use callboard_runtime::{
    Agent, AgentRef, CallEvent, ConcurrentHandler, Context, Direction, ExchangePart, Handlers,
    Policy, PolicyRequest, SyncHandler, System,
};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};

use crate::bridge_kit::Site;
use crate::kit::soon;

type Sampled = Result<SamplingAnswer, Failure>;

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// Acts as the text says, by conversation or by tool.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, fallible)]
struct Talk {
    text: String,
}

#[derive(Clone)]
struct Talker;

/// Agent with tools and without conversation.
#[derive(Clone)]
struct Mute;

async fn talk(text: String, cx: &Context) -> Result<String, Failure> {
    match &*text {
        "ask" => {
            let form = Elicitation::form("Whose?", json!({ "type": "object", "properties": {} }));
            let answer = cx.elicit(form.with_key("whose")).await?;
            Ok(format!("heard {}", answer.content().unwrap_or_default()))
        }
        "block" => Err(
            Failure::new(FailureKind::Blocked, "Request blocked by guardrails")
                .with_data(json!({ "reason": "guardrail", "rules": ["test.rule"] })),
        ),
        "reject" => Err(Failure::new(FailureKind::Rejected, "not today")),
        _ => Ok(text),
    }
}

impl Agent for Talker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(64).concurrent::<Talk>(64);
    }
}

impl ConcurrentHandler<CreateMessage> for Talker {
    fn handle(
        &mut self,
        m: CreateMessage,
        cx: Context,
    ) -> impl Future<Output = Sampled> + Send + 'static {
        async move {
            let marked =
                m.0.object("_meta")
                    .is_some_and(|meta| meta.has(MISSING_META_KEY));
            let text = SamplingRequest(m.0)
                .texts()
                .pop()
                .map(|(_, text)| text)
                .unwrap_or_default();
            let mut answer =
                SamplingAnswer::text("talker", talk(text, &cx).await?, Some("endTurn"));
            if marked {
                answer.0.set("_meta", json!({ MISSING_META_KEY: ["x"] }));
            }
            Ok(answer)
        }
    }
}

impl ConcurrentHandler<Talk> for Talker {
    fn handle(
        &mut self,
        m: Talk,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        async move { talk(m.text, &cx).await }
    }
}

impl Agent for Mute {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Talk>();
    }
}

impl SyncHandler<Talk> for Mute {
    fn handle(&mut self, message: Talk, _: &mut Context) -> Result<String, Failure> {
        Ok(message.text)
    }
}

fn turn(text: &str) -> CreateMessage {
    CreateMessage(SamplingRequest::prompt(text, 100).0)
}

/// Sends a sampling request; every form is answered `{"id": "PT1"}`.
async fn converse(agent: &AgentRef, text: &str) -> Result<SamplingAnswer, Failure> {
    let mut call = agent.call(turn(text)).start();
    while let Some(event) = soon(call.next()).await {
        if let CallEvent::Question(asked) = event {
            asked.answer(Answer::Elicit(ElicitationAnswer::accept(
                json!({ "id": "PT1" }),
            )));
        }
    }
    soon(call.reply()).await.unwrap()
}

/// Goal: an agent that answers like a model is asked by clients of both eras, live or in rounds,
/// and through another server of either; it is advertised in each era's form. Method: every pair of
/// eras on two hops, with and without a question.
/// Rows: H-2, H-8, H-11, H-19.
#[tokio::test]
async fn clients_ask_servers() {
    for (near, far) in ERAS
        .into_iter()
        .flat_map(|near| ERAS.map(|far| (near, far)))
    {
        let mut site = Site::new();
        let talker = site.system.spawn(Talker);
        let middle = site.beyond(talker, far);
        let agent = site.beyond(middle, near);
        let about = agent
            .ask(DescribeAgent(RawObject::new()))
            .await
            .unwrap()
            .unwrap();
        let can: Value = about.0.read("capabilities").unwrap();
        let hmcp = json!({ "sampling": true, "version": "0.1.0" });
        assert_eq!(
            can["experimental"],
            json!({ "hmcp": hmcp }),
            "{near:?} {far:?}"
        );
        if near == Era::Modern {
            assert_eq!(can["extensions"]["com.innovaccer/hmcp"], hmcp);
        }
        let answer = converse(&agent, "good morning").await.unwrap();
        assert_eq!(
            (answer.written_text(), answer.model()),
            (Some("good morning".into()), Some("talker".into()))
        );
        // In the modern era missing information is named without being requested.
        let is_marked = answer
            .0
            .object("_meta")
            .is_some_and(|meta| meta.has(MISSING_META_KEY));
        assert_eq!(is_marked, far == Era::Modern, "{near:?} {far:?}");
        let asked = converse(&agent, "ask").await.unwrap();
        assert_eq!(
            asked.written_text().unwrap(),
            r#"heard {"id":"PT1"}"#,
            "{near:?} {far:?}"
        );
        assert_eq!(
            converse(&agent, "reject").await.unwrap_err().kind,
            FailureKind::Rejected
        );
        let blocked = converse(&agent, "block").await.unwrap_err();
        assert_eq!(
            (blocked.kind, &*blocked.message),
            (FailureKind::Blocked, "Request blocked by guardrails")
        );
        assert_eq!(blocked.data.unwrap()["rpc"]["code"], -1);
        site.end().await;
    }
}

/// Agent that answers like a model, and declares its own capabilities.
struct Knowing;

impl Agent for Knowing {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<CreateMessage>().sync::<DescribeAgent>();
    }
}

impl SyncHandler<CreateMessage> for Knowing {
    fn handle(&mut self, _: CreateMessage, _: &mut Context) -> Result<SamplingAnswer, Failure> {
        Ok(SamplingAnswer::text("knowing", "yes", Some("endTurn")))
    }
}

impl SyncHandler<DescribeAgent> for Knowing {
    fn handle(
        &mut self,
        _: DescribeAgent,
        _: &mut Context,
    ) -> Result<DescribeAgentResult, Failure> {
        Ok(DescribeAgentResult(
            RawObject::new().with("capabilities", json!({ "logging": {} })),
        ))
    }
}

/// Goal: an agent needn't know the name of this protocol's capability. Method: one that declares
/// its own capabilities, in both eras.
#[tokio::test]
async fn agents_that_say_what_they_can() {
    for era in ERAS {
        let mut site = Site::new();
        let knowing = site.system.spawn(Knowing);
        let agent = site.beyond(knowing, era);
        let about = agent
            .ask(DescribeAgent(RawObject::new()))
            .await
            .unwrap()
            .unwrap();
        let can: Value = about.0.read("capabilities").unwrap();
        assert_eq!(
            (&can["logging"], &can["experimental"]["hmcp"]["sampling"]),
            (&json!({}), &json!(true)),
            "{era:?}"
        );
        assert_eq!(
            converse(&agent, "are you there?")
                .await
                .unwrap()
                .written_text(),
            Some("yes".into())
        );
        site.end().await;
    }
}

/// Goal: a server that doesn't advertise HMCP isn't asked. Method: one with tools only, in both
/// eras.
/// Rows: H-7.
#[tokio::test]
async fn servers_that_do_not_converse_are_not_asked() {
    for era in ERAS {
        let mut site = Site::new();
        let mute = site.system.spawn(Mute);
        let agent = site.beyond(mute, era);
        let refused = converse(&agent, "hello").await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::NotFound);
        assert!(
            refused.message.contains("sampling/createMessage"),
            "{}",
            refused.message
        );
        assert_eq!(
            agent
                .ask(Talk {
                    text: "hello".into()
                })
                .await
                .unwrap()
                .unwrap(),
            "hello"
        );
        site.end().await;
    }
}

/// A raw client at the other end of a pipe.
struct Pipe {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    system: System,
}

impl Pipe {
    async fn to(agent: impl Agent, capabilities: Value) -> Self {
        Self::with(agent, capabilities, StdioOptions::default()).await
    }

    async fn with(agent: impl Agent, capabilities: Value, options: StdioOptions) -> Self {
        let system = System::start(1).unwrap();
        let agent = system.spawn(agent);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(theirs);
        tokio::spawn(serve_stdio(agent, options, input, output));
        let (output, input) = tokio::io::split(ours);
        let mut pipe = Self {
            input,
            output: BufReader::new(output).lines(),
            system,
        };
        let params = json!({ "protocolVersion": "2025-03-26", "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" } });
        pipe.say(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
            .await;
        assert_eq!(pipe.next().await["id"], 0);
        pipe
    }

    async fn say(&mut self, message: Value) {
        self.input
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&soon(self.output.next_line()).await.unwrap().unwrap()).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
            .await;
        self.next().await
    }

    async fn end(self) {
        self.system.shutdown(Duration::ZERO).await;
    }
}

fn messages(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }], "maxTokens": 100 })
}

/// Goal: the method works in both directions, and each side has its own ids. Method: request 1
/// causes the server's request 1, of the same id, whose answer isn't taken for another.
/// Rows: H-2, H-21, X-2.
#[tokio::test]
async fn ids_are_of_one_direction() {
    let mut pipe = Pipe::to(Asker, json!({ "sampling": {} })).await;
    let asked = pipe
        .ask("sampling/createMessage", messages("over to you"))
        .await;
    assert_eq!(
        (&asked["id"], &asked["method"]),
        (&json!(1), &json!("sampling/createMessage"))
    );
    let text = json!({ "type": "text", "text": "and back" });
    pipe.say(json!({ "jsonrpc": "2.0", "id": 1, "result": { "role": "assistant", "content": text, "model": "m" } }))
        .await;
    let answer = pipe.next().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["content"]),
        (&json!(1), &text)
    );
    pipe.end().await;
}

/// Agent that asks the caller's model in turn.
struct Asker;

impl Agent for Asker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(4);
    }
}

impl ConcurrentHandler<CreateMessage> for Asker {
    fn handle(
        &mut self,
        m: CreateMessage,
        cx: Context,
    ) -> impl Future<Output = Sampled> + Send + 'static {
        async move { cx.sample(SamplingRequest(m.0)).await }
    }
}

/// Goal: the guardrail's refusal is HMCP's own error, whole, for a sampling request, and an error
/// with code and reason for a tool. Method: the same failure by both.
/// Rows: H-29, X-18.
#[tokio::test]
async fn refusals_on_the_wire() {
    let mut pipe = Pipe::to(Talker, json!({})).await;
    let sampled = pipe.ask("sampling/createMessage", messages("block")).await;
    let exact = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -1, "message": "Request blocked by guardrails" } });
    assert_eq!(sampled, exact);
    let tool = pipe
        .ask(
            "tools/call",
            json!({ "name": "talk", "arguments": { "text": "block" } }),
        )
        .await;
    let data = json!({ "reason": "guardrail", "rules": ["test.rule"] });
    assert_eq!(
        tool["error"],
        json!({ "code": 1_001, "message": "Request blocked by guardrails", "data": data })
    );
    let mut unknown = Pipe::to(Mute, json!({})).await;
    assert_eq!(
        unknown
            .ask("sampling/createMessage", messages("hello"))
            .await["error"]["code"],
        -32601
    );
    unknown.end().await;
    pipe.end().await;
}

/// Goal: only the local operator learns which rules blocked a message; others get a reference to
/// the log. Method: the same block for a peer with a key.
#[tokio::test]
async fn rules_are_for_the_operator() {
    let options = StdioOptions {
        principal: Principal {
            kind: PrincipalKind::ApiKey,
            ..Principal::agent("robot")
        },
        ..StdioOptions::default()
    };
    let mut pipe = Pipe::with(Talker, json!({}), options).await;
    let arguments = json!({ "name": "talk", "arguments": { "text": "block" } });
    let error = pipe.ask("tools/call", arguments).await["error"].clone();
    assert_eq!(
        (&error["code"], &error["message"], &error["data"]["reason"]),
        (
            &json!(1_001),
            &json!("Request blocked by guardrails"),
            &json!("guardrail")
        )
    );
    assert_eq!(error["data"].get("rules"), None);
    assert!(error["data"]["reference"].is_string(), "{error}");
    pipe.end().await;
}

type RecordedPart = (Option<ExchangePart>, Direction, String, String);

/// Policy that records all messages, and rejects those with `stop`.
#[derive(Clone, Default)]
struct Watch {
    seen: Arc<Mutex<Vec<RecordedPart>>>,
    stop: &'static str,
}

impl Watch {
    fn see(&self, part: Option<ExchangePart>, crossing: &PolicyRequest<'_>) -> Result<(), Failure> {
        let payload = crossing.payload.get().to_owned();
        let stopped = !self.stop.is_empty() && payload.contains(self.stop) && part.is_some();
        self.seen.lock().unwrap().push((
            part,
            crossing.direction,
            crossing.message.to_owned(),
            payload,
        ));
        match stopped {
            true => Err(Failure::new(FailureKind::Blocked, "stopped")),
            false => Ok(()),
        }
    }
}

impl Policy for Watch {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(std::future::ready(self.see(None, &crossing)))
    }

    fn checks_parts(&self) -> bool {
        true
    }

    fn check_part<'a>(
        &'a self,
        part: ExchangePart,
        crossing: PolicyRequest<'a>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(std::future::ready(self.see(Some(part), &crossing)))
    }
}

/// Goal: policies see the messages that follow a request - question, answer and reply - at either
/// side of a boundary, and can reject each. Method: a server and a client in systems of their own;
/// one policy sees it all, others stop one part each.
/// Rows: H-38.
#[tokio::test]
async fn policies_see_parts() {
    for era in ERAS {
        for (stop, inbound) in [
            ("", true),
            ("", false),
            ("Whose?", true),
            ("PT1", true),
            ("heard", false),
            ("Whose?", false),
        ] {
            // The client has another system.
            let (server, mut site) = (Site::new(), Site::new());
            let watch = Watch {
                stop,
                ..Watch::default()
            };
            if inbound {
                &server.system
            } else {
                &site.system
            }
            .policy()
            .push(watch.clone());
            let talker = server.system.spawn(Talker);
            let agent = site.beyond(talker, era);
            let answer = converse(&agent, "ask").await;
            let seen = std::mem::take(&mut *watch.seen.lock().unwrap());
            if stop.is_empty() {
                assert_eq!(
                    answer.unwrap().written_text().unwrap(),
                    r#"heard {"id":"PT1"}"#
                );
                let direction = if inbound {
                    Direction::Inbound
                } else {
                    Direction::Outbound
                };
                assert!(seen.iter().all(|(_, of, ..)| *of == direction));
                let seen: Vec<_> = seen
                    .iter()
                    .map(|(part, _, message, _)| (*part, &**message))
                    .collect();
                let name = "callboard.sample";
                let whole = [
                    (None, name),
                    (Some(ExchangePart::Question), "elicit"),
                    (Some(ExchangePart::Answer), "elicit"),
                    (Some(ExchangePart::Reply), name),
                ];
                assert_eq!(seen, whole, "{era:?}");
            } else {
                assert!(answer.is_err(), "{era:?} {stop} {inbound}");
                assert!(
                    seen.iter()
                        .any(|(part, .., payload)| part.is_some() && payload.contains(stop))
                );
            }
            site.end().await;
            server.end().await;
        }
    }
}
