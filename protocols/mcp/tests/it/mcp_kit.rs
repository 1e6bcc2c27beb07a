//! An agent with everything that MCP can show, a server around it, and a raw client of the legacy era.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use callboard_macros::Message;
use callboard_mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard_message::surface::{ListResources, ReadResource, ReadResourceResult};
use callboard_message::{
    Change, Elicitation, Failure, FailureKind, Log, LogLevel, Progress, RawObject, ResourceContent, Sample,
};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, SyncHandler, System};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::kit::{Connection, Reply, header, soon};

/// Says it again.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Echo {
    pub text: String,
}

/// Tells how far it has come, `steps` times, then says so.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Count {
    pub steps: u32,
}

/// Writes a line of each level to the log.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ())]
pub struct Babble {}

/// What to ask the caller.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Sample,
    SampleWithTools,
    Form,
    Url,
    Roots,
}

/// Asks the caller, and says what came back.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, fallible)]
pub struct Inquire {
    pub what: What,
}

/// Waits until the test lets it go on, or it is cancelled.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Linger {
    #[serde(default)]
    pub progress: bool,
}

/// Says that something has changed.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ())]
pub struct Announce {
    /// `tools`, `prompts`, `resources`, or the address of a resource.
    pub what: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Began,
    Cancelled,
    Finished,
}

/// What a test leaves unread, in events.
const EVENTS_MAX: usize = 256;

pub struct Everything {
    seen: mpsc::Sender<Seen>,
    go_on: tokio::sync::watch::Receiver<bool>,
}

impl Agent for Everything {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>()
            .sync::<Babble>()
            .sync::<Announce>()
            .sync::<ListResources>()
            .sync::<ReadResource>()
            .concurrent::<Count>(512)
            .concurrent::<Inquire>(512)
            .concurrent::<Linger>(512);
    }
}

impl SyncHandler<Echo> for Everything {
    fn handle(&mut self, message: Echo, _: &mut Cx) -> String {
        message.text
    }
}

impl SyncHandler<Babble> for Everything {
    fn handle(&mut self, _: Babble, cx: &mut Cx) {
        for level in [LogLevel::Debug, LogLevel::Info, LogLevel::Warning, LogLevel::Error, LogLevel::Emergency] {
            cx.log(Log::new(level, "everything", "a line"));
        }
    }
}

impl SyncHandler<Announce> for Everything {
    fn handle(&mut self, message: Announce, cx: &mut Cx) {
        cx.changed(match &*message.what {
            "tools" => Change::Tools,
            "prompts" => Change::Prompts,
            "resources" => Change::Resources,
            uri => Change::Resource(uri.to_owned()),
        });
    }
}

impl SyncHandler<ListResources> for Everything {
    fn handle(&mut self, _: ListResources, _: &mut Cx) -> Result<RawObject, Failure> {
        Ok(RawObject::new().with("resources", json!([{ "uri": "test://a", "name": "a" }])))
    }
}

impl SyncHandler<ReadResource> for Everything {
    fn handle(&mut self, message: ReadResource, _: &mut Cx) -> Result<ReadResourceResult, Failure> {
        match message.uri().as_str() {
            "test://a" => Ok(ReadResourceResult::of([ResourceContent::text("test://a", "text/plain", "a")])),
            _ => Err(Failure::not_found("no such resource")),
        }
    }
}

impl ConcurrentHandler<Count> for Everything {
    fn handle(&mut self, message: Count, cx: Cx) -> impl Future<Output = String> + Send + 'static {
        count(message.steps, cx)
    }
}

async fn count(steps: u32, cx: Cx) -> String {
    for step in 0..=steps {
        cx.progress(Progress { done: step.into(), total: Some(steps.into()), message: None });
    }
    // Not further than before: must not be told.
    cx.progress(Progress { done: 0.0, total: None, message: Some("back".into()) });
    "counted".into()
}

impl ConcurrentHandler<Inquire> for Everything {
    fn handle(&mut self, message: Inquire, cx: Cx) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        inquire(message.what, cx)
    }
}

async fn inquire(what: What, cx: Cx) -> Result<String, Failure> {
    let form = || Elicitation::form("Your name?", json!({ "type": "object", "properties": {} }));
    Ok(match what {
        What::Sample => cx.sample(Sample::prompt("Say something", 10)).await?.written().unwrap_or_default(),
        What::SampleWithTools => {
            let mut sample = Sample::prompt("Use something", 10);
            sample.0.set("tools", json!([]));
            cx.sample(sample).await?.written().unwrap_or_default()
        }
        What::Form => format!("{:?}", cx.elicit(form()).await?.content()),
        What::Url => format!("{:?}", cx.elicit(Elicitation::url("Go", "https://x.example", "e1")).await?.action()),
        What::Roots => format!("{} roots", cx.roots().await?.roots().len()),
    })
}

impl ConcurrentHandler<Linger> for Everything {
    fn handle(&mut self, message: Linger, cx: Cx) -> impl Future<Output = String> + Send + 'static {
        let (seen, mut go_on) = (self.seen.clone(), self.go_on.clone());
        async move {
            let _ = seen.try_send(Seen::Began);
            if message.progress {
                cx.progress(Progress { done: 1.0, ..Progress::default() });
            }
            tokio::select! {
                _ = go_on.wait_for(|go_on| *go_on) => {
                    let _ = seen.try_send(Seen::Finished);
                    "went on".into()
                }
                () = cx.cancelled() => {
                    let _ = seen.try_send(Seen::Cancelled);
                    String::new()
                }
            }
        }
    }
}

/// Everything behind a listener on a free port. Ends with [`Served::stop`].
pub struct Served {
    pub address: SocketAddr,
    pub go_on: tokio::sync::watch::Sender<bool>,
    system: System,
    seen: mpsc::Receiver<Seen>,
    handle: actix_web::dev::ServerHandle,
}

impl Served {
    pub async fn start() -> Self {
        Self::with(McpServerOptions::default()).await
    }

    pub async fn with(options: McpServerOptions) -> Self {
        Self::on(options, &ListenOptions::default()).await
    }

    pub async fn on(options: McpServerOptions, listen: &ListenOptions) -> Self {
        let (sender, seen) = mpsc::channel(EVENTS_MAX);
        let (go_on, may_go_on) = tokio::sync::watch::channel(false);
        let system = System::start(1).unwrap();
        let agent = system.spawn_with(move || Everything { seen: sender.clone(), go_on: may_go_on.clone() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let serving = serve(listener, agent, options, listen).unwrap();
        let handle = serving.server.handle();
        tokio::spawn(serving.server);
        Self { address: serving.address, go_on, system, seen, handle }
    }

    pub async fn seen(&mut self) -> Seen {
        soon(self.seen.recv()).await.expect("the agent is gone")
    }

    pub async fn connect(&self) -> Connection {
        Connection(soon(TcpStream::connect(self.address)).await.unwrap())
    }

    /// A client of a session that there is, with more header lines.
    pub fn client(&self, session: &str, more: &str) -> Client {
        Client { address: self.address, session: session.to_owned(), more: more.to_owned(), last_id: 0 }
    }

    /// A session of `revision` whose client declares `capabilities`.
    pub async fn session(&self, revision: &str, capabilities: Value) -> Client {
        let mut client = self.client("", "");
        let reply = client.post(&initialize(revision, &capabilities).to_string()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        client.session = header(&reply.head, "mcp-session-id").unwrap().to_owned();
        client.more = format!("MCP-Protocol-Version: {revision}\r\n");
        let done = client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert_eq!((done.status, done.body.as_str()), (202, ""));
        client
    }

    pub async fn stop(self) {
        self.handle.stop(false).await;
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// The request that begins a session.
pub fn initialize(revision: &str, capabilities: &Value) -> Value {
    let info = json!({ "name": "test", "version": "0" });
    let params = json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": info });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

/// A raw client of one session; each request on a connection of its own.
pub struct Client {
    pub address: SocketAddr,
    pub session: String,
    /// Header lines beside the usual ones.
    pub more: String,
    last_id: i64,
}

/// What is read of a response that isn't whole yet.
pub struct Streaming {
    pub status: u16,
    pub head: String,
    connection: Connection,
    /// Of the body, framing taken off.
    body: String,
    raw: Vec<u8>,
    over: bool,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    pub id: Option<String>,
    pub retry: Option<u64>,
    pub name: Option<String>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

pub const BOTH: &str = "Accept: application/json, text/event-stream\r\n";

impl Client {
    pub fn headers(&self) -> String {
        let session = match self.session.is_empty() {
            true => String::new(),
            false => format!("Mcp-Session-Id: {}\r\n", self.session),
        };
        format!("{session}{}", self.more)
    }

    /// A request with the next id.
    pub fn request(&mut self, method: &str, params: Value) -> String {
        self.last_id += 1;
        json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }).to_string()
    }

    /// Posts and reads the whole answer, however it is framed.
    pub async fn post(&self, body: &str) -> Reply {
        let stream = self.stream(body).await;
        let (status, head) = (stream.status, stream.head.clone());
        Reply { status, head, body: stream.rest().await }
    }

    /// Asks, and expects plain JSON.
    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = self.request(method, params);
        let reply = self.post(&request).await;
        assert_eq!(header(&reply.head, "content-type"), Some("application/json"), "{reply:?}");
        reply.json()
    }

    /// Calls a tool, and reads its answer as it comes.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Streaming {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } });
        let request = self.request("tools/call", params);
        self.stream(&request).await
    }

    pub async fn stream(&self, body: &str) -> Streaming {
        let headers = self.headers();
        self.send(&format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             {BOTH}{headers}\r\n{body}",
            body.len()
        ))
        .await
    }

    pub async fn get(&self, last_event_id: Option<&str>) -> Streaming {
        let headers = self.headers();
        let last = last_event_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        self.send(&format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{last}{headers}\r\n"))
            .await
    }

    pub async fn delete(&self) -> Streaming {
        let headers = self.headers();
        self.send(&format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")).await
    }

    pub async fn send(&self, request: &str) -> Streaming {
        let mut connection = Connection(soon(TcpStream::connect(self.address)).await.unwrap());
        connection.send(request.as_bytes()).await;
        Streaming::begin(connection).await
    }

    /// Answers a request of the server's.
    pub async fn answer(&self, question: &Value, result: Value) {
        let reply = self.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }).to_string()).await;
        assert_eq!(reply.status, 202, "{reply:?}");
    }
}

impl Streaming {
    pub async fn begin(mut connection: Connection) -> Self {
        use tokio::io::AsyncReadExt as _;
        let mut raw = Vec::new();
        let head = loop {
            if let Some(end) = raw.windows(4).position(|w| w == b"\r\n\r\n") {
                break String::from_utf8(raw.drain(..end + 4).collect()).unwrap();
            }
            assert!(soon(connection.0.read_buf(&mut raw)).await.unwrap() > 0, "closed without a reply");
        };
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, connection, body: String::new(), raw, over: false }
    }

    /// Reads on until something more of the body is there, or it is over.
    async fn more(&mut self) {
        use tokio::io::AsyncReadExt as _;
        let length = header(&self.head, "content-length").map(|l| l.parse::<usize>().unwrap());
        loop {
            let had = self.body.len();
            match length {
                Some(length) => {
                    self.body.push_str(std::str::from_utf8(&self.raw).unwrap());
                    self.raw.clear();
                    self.over = self.body.len() >= length;
                }
                None if header(&self.head, "transfer-encoding") == Some("chunked") => self.unchunk(),
                None => self.over = true,
            }
            if self.over || self.body.len() > had {
                return;
            }
            if soon(self.connection.0.read_buf(&mut self.raw)).await.unwrap_or(0) == 0 {
                self.over = true;
                return;
            }
        }
    }

    fn unchunk(&mut self) {
        while let Some(end) = self.raw.windows(2).position(|w| w == b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..end]).unwrap(), 16).unwrap();
            if self.raw.len() < end + 2 + size + 2 {
                return;
            }
            self.body.push_str(std::str::from_utf8(&self.raw[end + 2..end + 2 + size]).unwrap());
            self.raw.drain(..end + 2 + size + 2);
            self.over |= size == 0;
        }
    }

    /// The connection, and what was read of it beyond the head.
    pub fn into_parts(self) -> (Connection, Vec<u8>) {
        (self.connection, self.raw)
    }

    /// What comes next of the body.
    pub async fn chunk(&mut self) -> String {
        if self.body.is_empty() {
            self.more().await;
        }
        std::mem::take(&mut self.body)
    }

    /// The rest of the body.
    pub async fn rest(mut self) -> String {
        while !self.over {
            self.more().await;
        }
        self.body
    }

    /// The next event; `None` where the stream is over.
    pub async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.body.find("\n\n") {
                let text: String = self.body.drain(..end + 2).collect();
                let mut event = Event::default();
                for line in text.lines() {
                    match line.split_once(": ").unwrap_or((line.trim_end_matches(':'), "")) {
                        ("id", id) => event.id = Some(id.into()),
                        ("retry", ms) => event.retry = ms.parse().ok(),
                        ("event", name) => event.name = Some(name.into()),
                        ("data", data) => event.data.push_str(data),
                        _ => {}
                    }
                }
                // A comment is no event.
                if event != Event::default() {
                    return Some(event);
                }
                continue;
            }
            if self.over {
                return None;
            }
            self.more().await;
        }
    }

    /// The next message.
    pub async fn message(&mut self) -> Value {
        loop {
            let event = self.event().await.expect("the stream is over");
            if !event.data.is_empty() {
                return event.json();
            }
        }
    }

    /// All messages until the end.
    pub async fn messages(mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(event) = self.event().await {
            if !event.data.is_empty() {
                messages.push(event.json());
            }
        }
        messages
    }
}

/// The kind of failure that a tool error carries.
pub fn failure_kind(answer: &Value) -> Option<FailureKind> {
    serde_json::from_value(answer["result"]["_meta"]["callboard/failure"]["kind"].clone()).ok()
}
