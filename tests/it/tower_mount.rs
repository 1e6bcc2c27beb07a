//! MCP and A2A servers as services of axum, and of tower alone.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::{self, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use callboard::a2a::inbound::{A2aOptions, A2aServer, NamedAgents};
use callboard::a2a::outbound::{RemoteA2aAgent, RemoteOptions};
use callboard::mcp::inbound::{
    CompatOptions, McpServer, McpServerOptions, NamedServers, ServeError,
};
use callboard::mcp::outbound::{Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint};
use callboard::message::{Answer, Elicitation, ElicitationAnswer, Progress};
use callboard::rpc::{
    ADDRESS_DELAYED_RESPONSES_MAX, AccessControl, UNDELAYED_AUTH_FAILURES_MAX,
    UnauthenticatedAccess,
};
use callboard::tower::{
    ClientAddress, MountOptions, MountedBody, MountedService, a2a_service, mcp_service,
};
use callboard::{
    Agent, AgentRef, CallEvent, ConcurrentHandler, Context, Failure, Handlers, Message, Principal,
    SyncHandler, System,
};
use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};
use reqwest::RequestBuilder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::kit::{SOON, mcp, soon};

const AT_ONCE_MAX: u32 = 8;
const EVENTS_MAX: usize = 8;
const RESPONSE_BYTES_MAX: usize = 100_000;

/// An agent that says when calls begin and are cancelled.
struct Probe {
    events: mpsc::Sender<&'static str>,
}

impl Probe {
    fn spawn(system: &System) -> (AgentRef, mpsc::Receiver<&'static str>) {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        (system.spawn(Self { events: sender }), events)
    }
}

impl Agent for Probe {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Add>()
            .sync::<TellPrincipal>()
            .concurrent::<AskName>(AT_ONCE_MAX)
            .concurrent::<Hang>(AT_ONCE_MAX);
    }
}

/// Adds two numbers.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "add", reply = u32)]
struct Add {
    a: u32,
    b: u32,
}

impl SyncHandler<Add> for Probe {
    fn handle(&mut self, Add { a, b }: Add, _: &mut Context) -> u32 {
        a + b
    }
}

/// Returns the id of the caller's principal.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "tell_principal", reply = String)]
struct TellPrincipal {}

impl SyncHandler<TellPrincipal> for Probe {
    fn handle(&mut self, _: TellPrincipal, cx: &mut Context) -> String {
        cx.principal().id.clone()
    }
}

/// Asks for a name, and returns it.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "ask_name", reply = String, fallible)]
struct AskName {}

impl ConcurrentHandler<AskName> for Probe {
    fn handle(
        &mut self,
        _: AskName,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        async move {
            let fields = json!({ "name": { "type": "string" } });
            let form = json!({ "type": "object", "properties": fields, "required": ["name"] });
            let answer = cx.elicit(Elicitation::form("Your name?", form)).await?;
            let content = answer.content().unwrap_or_default();
            Ok(content["name"].as_str().unwrap_or("nobody").to_owned())
        }
    }
}

/// Reports progress, and waits until it is cancelled.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "hang", reply = String)]
struct Hang {}

impl ConcurrentHandler<Hang> for Probe {
    fn handle(&mut self, _: Hang, cx: Context) -> impl Future<Output = String> + Send + 'static {
        let events = self.events.clone();
        async move {
            let _ = events.try_send("began");
            cx.progress(Progress {
                done: 1.0,
                total: None,
                message: None,
            });
            cx.cancelled().await;
            let _ = events.try_send("cancelled");
            String::new()
        }
    }
}

/// An axum application with an agent: its MCP server below `/mcp`, its A2A server at all other paths.
struct Host {
    address: SocketAddr,
    url: String,
    serving: JoinHandle<()>,
}

impl Host {
    async fn start(agent: &AgentRef) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (url, mount) = (format!("http://{address}"), MountOptions::new(address));
        let access = AccessControl::Open(UnauthenticatedAccess::LoopbackOperator);
        let mut options = A2aOptions::new(url.parse().unwrap());
        options.access = access.clone();
        let a2a = A2aServer::new(agent.clone(), options);
        let a2a = a2a_service(a2a, NamedAgents::default(), &mount).unwrap();
        let options = McpServerOptions {
            access,
            ..McpServerOptions::default()
        };
        let mcp = McpServer::new(agent.clone(), options);
        let mcp = mcp_service(vec![mcp], NamedServers::default(), &mount).unwrap();
        let app = Router::new()
            .nest_service("/mcp", mcp.nested_at("/mcp"))
            .fallback_service(a2a)
            .layer(from_fn(pass_address_on))
            .into_make_service_with_connect_info::<SocketAddr>();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            url,
            serving,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Gives mounted services the address of the client.
async fn pass_address_on(
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(ClientAddress(client));
    next.run(request).await
}

/// Mounts an agent as an MCP server in no application.
fn mounted(agent: &AgentRef, options: McpServerOptions) -> MountedService {
    let server = McpServer::new(agent.clone(), options);
    let mount = MountOptions::new(SocketAddr::from(([127, 0, 0, 1], 80)));
    mcp_service(vec![server], NamedServers::default(), &mount).unwrap()
}

/// A call of the stateless era.
fn call(tool: &str, arguments: Value, meta: Value) -> RequestBuilder {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    mcp::request("http://localhost/mcp", &json!({}), "tools/call", params)
}

fn built(request: RequestBuilder) -> http::Request<reqwest::Body> {
    request.build().unwrap().try_into().unwrap()
}

async fn response(
    service: &MountedService,
    request: http::Request<reqwest::Body>,
) -> http::Response<MountedBody> {
    let responded = service.clone().oneshot(request);
    soon("a response", responded).await.unwrap()
}

/// Sends a request to a host, on a connection of its own.
async fn connection_with(host: &Host, request: RequestBuilder) -> TcpStream {
    let request = request.build().unwrap();
    let (path, body) = (request.url().path(), request.body().unwrap());
    let body = body.as_bytes().unwrap();
    let length = body.len();
    let mut head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n");
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    let sent = [head.as_bytes(), b"\r\n", body].concat();
    let mut connection = TcpStream::connect(host.address).await.unwrap();
    soon("a request", connection.write_all(&sent))
        .await
        .unwrap();
    connection
}

/// Goal: MCP clients of either era use an agent in axum, questions in mid-call included, and the server
/// knows their address. Method: a sum, the operator's principal, which only clients of this machine have,
/// and a question.
#[tokio::test]
async fn mcp_clients_of_axum() {
    let system = System::start(1).unwrap();
    let (agent, _events) = Probe::spawn(&system);
    let host = Host::start(&agent).await;
    for era in [Era::Legacy, Era::Modern] {
        let options = McpClientOptions {
            era: EraChoice::Only(era),
            ..McpClientOptions::default()
        };
        let server = ServerEndpoint::from_url(&format!("{}/mcp", host.url)).unwrap();
        let client = system.spawn(McpClient::new(server, options).unwrap());
        let sum = soon("a sum", client.ask(Add { a: 1, b: 2 })).await;
        assert_eq!(sum.unwrap(), 3, "{era:?}");
        let id = soon("a principal", client.ask(TellPrincipal {})).await;
        assert_eq!(id.unwrap(), Principal::local_operator().id, "{era:?}");
        let mut call = client.call(AskName {}).within(SOON).start();
        while let Some(event) = soon("a question", call.next()).await {
            if let CallEvent::Question(pending) = event {
                let answer = ElicitationAnswer::accept(json!({ "name": "Ada" }));
                pending.answer(Answer::Elicit(answer));
            }
        }
        let name = soon("a name", call.reply()).await.unwrap();
        assert_eq!(name.unwrap(), "Ada", "{era:?}");
    }
}

/// Goal: an A2A client uses an agent in axum, and the server knows its address. Method: the card, and a
/// message of a client that reads it.
#[tokio::test]
async fn a2a_clients_of_axum() {
    let system = System::start(1).unwrap();
    let (agent, _events) = Probe::spawn(&system);
    let host = Host::start(&agent).await;
    let card = reqwest::get(format!("{}/.well-known/agent-card.json", host.url));
    let card = soon("a card", card).await.unwrap();
    let card: Value = soon("a card", card.json()).await.unwrap();
    let mut skills = card["skills"].as_array().unwrap().iter();
    assert!(skills.any(|skill| skill["id"] == "add"), "{card}");
    let remote = RemoteA2aAgent::new(host.url.parse().unwrap(), RemoteOptions::default());
    let client = system.spawn(remote.unwrap());
    let id = soon("a principal", client.ask(TellPrincipal {})).await;
    assert_eq!(id.unwrap(), Principal::local_operator().id);
}

/// Goal: a client that leaves cancels its call, before the response and within its body. Method: drop the
/// future and the body of a call that hangs.
#[tokio::test]
async fn dropped_responses_cancel_calls() {
    let system = System::start(1).unwrap();
    let (agent, mut events) = Probe::spawn(&system);
    let service = mounted(&agent, McpServerOptions::default());
    let mut hanging = Box::pin(
        service
            .clone()
            .oneshot(built(call("hang", json!({}), json!({})))),
    );
    tokio::select! {
        _ = &mut hanging => panic!("the call has ended"),
        event = soon("a call", events.recv()) => assert_eq!(event, Some("began")),
    }
    drop(hanging);
    let event = soon("the end of the call", events.recv()).await;
    assert_eq!(event, Some("cancelled"));

    let streamed = call("hang", json!({}), json!({ "progressToken": "p" }));
    let streamed = response(&service, built(streamed)).await;
    assert_eq!(streamed.headers()["content-type"], "text/event-stream");
    let mut body = Body::new(streamed.into_body()).into_data_stream();
    let first = soon("progress", body.next()).await.unwrap().unwrap();
    let first = String::from_utf8_lossy(&first);
    assert!(first.contains("notifications/progress"), "{first}");
    let event = soon("a call", events.recv()).await;
    assert_eq!(event, Some("began"));
    drop(body);
    let event = soon("the end of the call", events.recv()).await;
    assert_eq!(event, Some("cancelled"));
}

/// Goal: a client that closes its connection to axum cancels its call, before the response and within its
/// body. Method: TCP connections with a call that hangs.
#[tokio::test]
async fn closed_connections_cancel_calls() {
    let system = System::start(1).unwrap();
    let (agent, mut events) = Probe::spawn(&system);
    let host = Host::start(&agent).await;
    for is_streamed in [false, true] {
        let meta = match is_streamed {
            true => json!({ "progressToken": "p" }),
            false => json!({}),
        };
        let mut connection = connection_with(&host, call("hang", json!({}), meta)).await;
        let event = soon("a call", events.recv()).await;
        assert_eq!(event, Some("began"));
        let mut received = Vec::new();
        while is_streamed && !String::from_utf8_lossy(&received).contains("notifications/progress")
        {
            let read = soon("progress", connection.read_buf(&mut received)).await;
            assert_ne!(read.unwrap(), 0, "the host has closed the connection");
        }
        drop(connection);
        let event = soon("the end of the call", events.recv()).await;
        assert_eq!(event, Some("cancelled"), "streamed: {is_streamed}");
    }
}

/// Goal: the server's limit on bodies holds. Method: a call of as many bytes as are allowed, and of one
/// more, with a declared length and in chunks.
#[tokio::test]
async fn bodies_are_limited() {
    const BODY_BYTES_MAX: usize = 2_000;
    let system = System::start(1).unwrap();
    let (agent, _events) = Probe::spawn(&system);
    let mut options = McpServerOptions::default();
    options.inbound.limits.body_bytes_max = BODY_BYTES_MAX;
    let service = mounted(&agent, options);
    for (bytes, status) in [
        (BODY_BYTES_MAX, StatusCode::OK),
        (BODY_BYTES_MAX + 1, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let sum = || call("add", json!({ "a": 1, "b": 2 }), json!({}));
        let request = sum().build().unwrap();
        let mut body = request.body().unwrap().as_bytes().unwrap().to_vec();
        body.resize(bytes, b' ');
        let chunks: Vec<_> = body
            .chunks(500)
            .map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec()))
            .collect();
        let declared = sum().header("content-length", bytes).body(body);
        let chunked = sum().body(reqwest::Body::wrap_stream(stream::iter(chunks)));
        for request in [declared, chunked] {
            assert_eq!(response(&service, built(request)).await.status(), status);
        }
    }
}

/// Goal: credentials are checked as on a listener, and WebSockets aren't offered. Method: a host that
/// anybody reaches, without keys; a call without a key; a handshake.
#[tokio::test]
async fn access_is_that_of_a_listener() {
    let system = System::start(1).unwrap();
    let (agent, _events) = Probe::spawn(&system);
    let public = MountOptions::new(SocketAddr::from(([192, 0, 2, 1], 80)));
    let server = McpServer::new(agent.clone(), McpServerOptions::default());
    let refused = mcp_service(vec![server], NamedServers::default(), &public).err();
    assert!(matches!(
        refused,
        Some(ServeError::UnauthenticatedListener { .. })
    ));

    let with_keys = McpServerOptions {
        access: AccessControl::with_verifiers(Vec::new()),
        ..McpServerOptions::default()
    };
    let service = mounted(&agent, with_keys);
    let refused = response(&service, built(call("add", json!({}), json!({})))).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers()["www-authenticate"], "Bearer");

    let compat = CompatOptions {
        websocket: true,
        ..CompatOptions::default()
    };
    let with_websockets = McpServerOptions {
        compat,
        ..McpServerOptions::default()
    };
    let handshake = reqwest::Client::new()
        .get("http://localhost/mcp")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "x3JJHMbDL1EzLkh9GBhXDw==")
        .header("sec-websocket-protocol", "mcp");
    let service = mounted(&agent, with_websockets);
    let refused = response(&service, built(handshake)).await;
    assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
}

/// Goal: only a client that is known to be on this machine is its operator; one that is known to be elsewhere is
/// refused where the host says that it listens on a loopback address. Method: a call without an address, and of two.
#[tokio::test]
async fn operators_are_on_this_machine() {
    let system = System::start(1).unwrap();
    let (agent, _events) = Probe::spawn(&system);
    let options = McpServerOptions {
        access: AccessControl::Open(UnauthenticatedAccess::LoopbackOperator),
        ..McpServerOptions::default()
    };
    let service = mounted(&agent, options);
    for (client, principal) in [
        (None, Some(Principal::anonymous())),
        (Some([127_u8, 0, 0, 1]), Some(Principal::local_operator())),
        (Some([192, 0, 2, 7]), None),
    ] {
        let mut request = built(call("tell_principal", json!({}), json!({})));
        if let Some(client) = client {
            let client = ClientAddress(SocketAddr::from((client, 1)));
            request.extensions_mut().insert(client);
        }
        let response = response(&service, request).await;
        let Some(principal) = principal else {
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{client:?}");
            continue;
        };
        assert_eq!(response.status(), StatusCode::OK, "{client:?}");
        let body = to_bytes(Body::new(response.into_body()), RESPONSE_BYTES_MAX);
        let body = soon("a body", body).await.unwrap();
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains(&*principal.id), "{client:?}: {body}");
    }
}

/// Goal: wrong keys are counted without addresses of clients too. Method: as many at once as are answered late, and
/// more.
#[tokio::test]
async fn guesses_without_addresses_are_counted() {
    let system = System::start(1).unwrap();
    let (agent, _events) = Probe::spawn(&system);
    let with_keys = McpServerOptions {
        access: AccessControl::with_verifiers(Vec::new()),
        ..McpServerOptions::default()
    };
    let service = mounted(&agent, with_keys);
    let guess = |_| {
        let request = call("add", json!({}), json!({})).header("authorization", "Bearer guess");
        service.clone().oneshot(built(request))
    };
    let guesses = UNDELAYED_AUTH_FAILURES_MAX as usize + 2 * ADDRESS_DELAYED_RESPONSES_MAX;
    let mut responses: FuturesUnordered<_> = (0..guesses).map(guess).collect();
    let too_many = loop {
        let response = soon("a response", responses.next()).await;
        let response = response.expect("no guess is one too many").unwrap();
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            break response;
        }
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    };
    assert_eq!(too_many.headers()["connection"], "close");
}

/// Goal: the name in the target of an HTTP/2 request is checked as a `Host` is. Method: this machine's, and another.
#[tokio::test]
async fn names_of_http2_requests_are_checked() {
    let system = System::start(1).unwrap();
    let (agent, _events) = Probe::spawn(&system);
    let service = mounted(&agent, McpServerOptions::default());
    for (target, status) in [
        ("http://localhost/mcp", StatusCode::OK),
        ("http://elsewhere.example/mcp", StatusCode::FORBIDDEN),
    ] {
        let mut request = built(call("add", json!({ "a": 1, "b": 2 }), json!({})));
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = target.parse().unwrap();
        assert!(!request.headers().contains_key("host"));
        let response = response(&service, request).await;
        assert_eq!(response.status(), status, "{target}");
        assert!(!response.headers().contains_key("connection"));
    }
}
