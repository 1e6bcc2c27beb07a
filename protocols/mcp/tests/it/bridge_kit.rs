//! Test kit of the bridge: servers behind it, clients in front of it.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_mcp::bridge::{Bridge, BridgeOptions, BridgeToolOptions};
use callboard_mcp::inbound::{ListenOptions, McpServerOptions, StreamOptions, serve};
use callboard_mcp::outbound::{
    ChildCommand, Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint,
};
use callboard_message::capabilities::{CallTool, ListTools};
use callboard_message::{
    Answer, CallerCapabilities, CapabilityChange, ElicitationAnswer, Failure, Principal, Question,
    RawObject, SamplingAnswer, ToolResult,
};
use callboard_runtime::{
    Agent, AgentRef, CallContext, CallEvent, Caller, ConcurrentHandler, Context, Handlers,
    PeerSession, RunningCall, System,
};
use futures::future::BoxFuture;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kit::soon;

/// Beginning of every scripted server. `hear` reads a line and its id, `say` answers the latest
/// line, `part` reads a string from the line, `ask` sends a form elicitation, `tools` answers with
/// the tool list.
const SHELL: &str = r#"
hear() { IFS= read -r line || exit 0; id=$(printf '%s' "$line" | sed 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/'); }
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
text() { say "$1" "{\"content\":[{\"type\":\"text\",\"text\":\"$2\"}]}"; }
tools() { say "$id" '{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}'; }
part() { printf '%s' "$line" | sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/"; }
ask() { printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"%s","requestedSchema":{"type":"object","properties":{}}}}\n' "$1"; }
initialize() { hear; say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'; hear; }
"#;

/// Returns the endpoint of a scripted server.
pub fn child(script: &str) -> ServerEndpoint {
    ServerEndpoint::Child(ChildCommand::new(
        "sh",
        ["-c".to_owned(), format!("{SHELL}{script}")],
    ))
}

/// Returns options of a bridge to a server of this era, which sends nothing that the test doesn't:
/// no list is fetched to check a call or to compare it, and changes are told at short intervals.
pub fn of(era: Era) -> BridgeOptions {
    let client = McpClientOptions {
        era: EraChoice::Only(era),
        log_level: None,
        change_interval: Duration::from_millis(10),
        compares_lists: false,
        ..McpClientOptions::default()
    };
    let tools = BridgeToolOptions {
        checks_listed: false,
        ..BridgeToolOptions::default()
    };
    BridgeOptions {
        client,
        tools,
        ..BridgeOptions::default()
    }
}

/// Server whose only tool asks the caller, and returns question and answer: `question:answer`.
/// Argument `silent`: it asks nothing and waits until cancelled; `quick`: it returns `quick` at
/// once; `changed`: it reports that its tools have changed.
pub struct Asker {
    /// Number of running calls.
    pub running: Arc<AtomicUsize>,
}

impl Agent for Asker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CallTool>(2_048).concurrent::<ListTools>(64);
    }
}

impl ConcurrentHandler<ListTools> for Asker {
    fn handle(
        &mut self,
        _: ListTools,
        _: Context,
    ) -> impl Future<Output = Result<RawObject, Failure>> + Send + 'static {
        async {
            Ok(RawObject::new().with(
                "tools",
                json!([{ "name": "ask", "inputSchema": { "type": "object" } }]),
            ))
        }
    }
}

impl ConcurrentHandler<CallTool> for Asker {
    fn handle(
        &mut self,
        call: CallTool,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let running = Running::new(&self.running);
        async move {
            let _running = running;
            let arguments = call.0.object("arguments").unwrap_or_default();
            if arguments.has("quick") {
                return Ok(ToolResult::text("quick"));
            }
            if arguments.has("changed") {
                cx.notify_changed(CapabilityChange::Tools);
                return Ok(ToolResult::text("changed"));
            }
            if arguments.has("silent") {
                std::future::pending::<()>().await;
            }
            let secret = arguments.text("secret").unwrap();
            let question = Question::elicit(&secret, json!({ "type": "object", "properties": {} }));
            match cx.ask_caller(question).await? {
                Answer::Elicit(answer) => {
                    let answer = answer.0.object("content").unwrap().text("answer").unwrap();
                    Ok(ToolResult::text(format!("{secret}:{answer}")))
                }
                _ => Err(Failure::internal("no answer to a form")),
            }
        }
    }
}

struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A system with servers, which end with it.
pub struct Site {
    pub system: System,
    servers: Vec<actix_web::dev::ServerHandle>,
}

impl Site {
    pub fn new() -> Self {
        Self {
            system: System::start(1).unwrap(),
            servers: Vec::new(),
        }
    }

    /// Serves `agent` over HTTP on a free port.
    pub fn serve(&mut self, agent: AgentRef, options: McpServerOptions) -> String {
        self.serve_on(TcpListener::bind("127.0.0.1:0").unwrap(), agent, options)
    }

    /// Serves `agent` over HTTP on `listener`.
    pub fn serve_on(
        &mut self,
        listener: TcpListener,
        agent: AgentRef,
        options: McpServerOptions,
    ) -> String {
        let listen = ListenOptions {
            connections_max: 4_096,
            ..ListenOptions::default()
        };
        let serving = serve(listener, agent, options, &listen).unwrap();
        self.servers.push(serving.server.handle());
        tokio::spawn(serving.server);
        format!("http://{}/mcp", serving.address)
    }

    /// Serves an [`Asker`]. Returns its address, and its number of running calls.
    pub fn asker(&mut self) -> (ServerEndpoint, Arc<AtomicUsize>) {
        let running = Arc::new(AtomicUsize::new(0));
        let agent = self.system.spawn(Asker {
            running: running.clone(),
        });
        let streams = StreamOptions {
            streams_max: 4_096,
            ..StreamOptions::default()
        };
        let mut options = McpServerOptions {
            streams,
            ..McpServerOptions::default()
        };
        options.inbound.modern.suspended_calls_max = 4_096;
        options.inbound.principal_share_percent = 100;
        let url = self.serve(agent, options);
        (ServerEndpoint::from_url(&url).unwrap(), running)
    }

    pub fn bridge(&self, endpoint: ServerEndpoint, options: BridgeOptions) -> AgentRef {
        let bridge = Bridge::new("far", endpoint, options).unwrap();
        self.system.spawn_with(move || bridge.clone())
    }

    /// Returns a client of the server at `url` that can answer `offers`.
    pub fn client(&self, url: &str, era: Era, offers: CallerCapabilities) -> AgentRef {
        let options = McpClientOptions {
            era: EraChoice::Only(era),
            offered_capabilities: offers,
            listen: false,
            ..McpClientOptions::default()
        };
        let client = McpClient::new(ServerEndpoint::from_url(url).unwrap(), options).unwrap();
        self.system.spawn_with(move || client.clone())
    }

    /// Returns a client, able to answer everything, of a server for `agent`.
    pub fn beyond(&mut self, agent: AgentRef, era: Era) -> AgentRef {
        let url = self.serve(agent, McpServerOptions::default());
        self.client(&url, era, CallerCapabilities::all())
    }

    pub async fn end(self) {
        self.system.shutdown(Duration::ZERO).await;
        for server in self.servers {
            server.stop(false).await;
        }
    }
}

/// Starts a call of the tool.
pub fn call(agent: &AgentRef, arguments: Value) -> RunningCall<CallTool> {
    let call = agent
        .call(CallTool::new("ask", arguments))
        .principal(Principal::local_operator());
    call.within(Duration::from_secs(60)).start()
}

/// Calls with `secret` and answers each question with `answer`. Returns the tool's result and its
/// questions.
pub async fn converse(
    agent: &AgentRef,
    secret: &str,
    answer: &str,
) -> (Result<ToolResult, Failure>, Vec<String>) {
    let mut call = call(agent, json!({ "secret": secret }));
    let mut asked = Vec::new();
    while let Some(event) = soon(call.next()).await {
        if let CallEvent::Question(pending) = event {
            if let Question::Elicit(form) = &pending.question {
                asked.extend(form.0.text("message"));
            }
            pending.answer(Answer::Elicit(ElicitationAnswer::accept(
                json!({ "answer": answer }),
            )));
        }
    }
    (soon(call.reply()).await.unwrap(), asked)
}

/// User who can answer some questions, and answers with their name.
pub struct Person {
    name: String,
    abilities: CallerCapabilities,
    /// Questions received.
    pub asked: Mutex<Vec<RawObject>>,
    /// Never answers if true.
    thinks: bool,
    /// Number of unanswered questions.
    pub open: Arc<AtomicUsize>,
}

impl Person {
    pub fn new(name: &str, abilities: &str) -> Arc<Self> {
        let abilities = CallerCapabilities(serde_json::from_str(abilities).unwrap());
        Arc::new(Self {
            name: name.into(),
            abilities,
            asked: Mutex::default(),
            thinks: false,
            open: Arc::default(),
        })
    }

    /// Returns a user who accepts forms and never answers.
    pub fn thinker(name: &str) -> Arc<Self> {
        let person = Self::new(name, r#"{"elicitation":{}}"#);
        let (name, abilities, open) = (
            person.name.clone(),
            person.abilities.clone(),
            person.open.clone(),
        );
        Arc::new(Self {
            name,
            abilities,
            asked: Mutex::default(),
            thinks: true,
            open,
        })
    }

    /// Returns a call of this user.
    pub fn call(self: &Arc<Self>) -> CallContext {
        let principal = Principal {
            id: self.name.clone(),
            ..Principal::local_operator()
        };
        CallContext::new(Arc::new(principal)).with_caller(self.clone())
    }

    /// Returns a session of this user.
    pub fn session(self: &Arc<Self>) -> Arc<PeerSession> {
        Arc::new(PeerSession::new(CancellationToken::new(), self.clone()))
    }

    /// Returns a call of this user in a session.
    pub fn call_in(self: &Arc<Self>, session: &Arc<PeerSession>) -> CallContext {
        CallContext {
            session: Some(session.clone()),
            ..self.call()
        }
    }
}

impl Caller for Person {
    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        if self.thinks {
            let open = Running::new(&self.open);
            return Box::pin(async move {
                let _open = open;
                std::future::pending().await
            });
        }
        let (body, answer) = match question {
            Question::Sample(sample) => (
                sample.0,
                Answer::Sample(SamplingAnswer::text("m", &self.name, None)),
            ),
            Question::Elicit(form) => (
                form.0,
                Answer::Elicit(ElicitationAnswer::accept(
                    json!({ "answer": self.name.clone() }),
                )),
            ),
            _ => return Box::pin(async { Err(Failure::internal("not expected")) }),
        };
        self.asked.lock().unwrap().push(body);
        Box::pin(async { Ok(answer) })
    }

    fn forward(
        &self,
        _: String,
        _: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        let answer = to_raw_value(&json!({ "answer": self.name }));
        Box::pin(async { Ok(answer.unwrap()) })
    }

    fn capabilities(&self) -> CallerCapabilities {
        self.abilities.clone()
    }
}

/// Calls the tool as `call`. Returns its result.
pub async fn ask_as(
    agent: &AgentRef,
    call: CallContext,
    arguments: Value,
) -> Result<Value, Failure> {
    let params = json!({ "name": "ask", "arguments": arguments });
    send_as(agent, call, "callboard.tools.call", params).await
}

/// Sends a message by name as `call`.
pub async fn send_as(
    agent: &AgentRef,
    call: CallContext,
    name: &str,
    params: Value,
) -> Result<Value, Failure> {
    let asked = agent.ask_named(
        name.to_owned(),
        to_raw_value(&params).unwrap(),
        Some(Arc::new(call)),
    );
    Ok(serde_json::from_str(soon(asked).await?.get()).unwrap())
}

/// Returns the only text of a result.
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}
