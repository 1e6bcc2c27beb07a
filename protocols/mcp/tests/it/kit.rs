use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_mcp::bare::{BareClientOptions, BareMcpClient};
use callboard_mcp::inbound::{InboundOptions, ListenOptions, McpServerOptions, serve};
use callboard_message::{Failure, FailureKind};
use callboard_rpc::UnauthenticatedAccess;
use callboard_runtime::{
    Agent, AgentRef, CallContext, ConcurrentHandler, Context, Handlers, SyncHandler, System,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Time limit of a condition that a test waits for.
pub const SOON: Duration = Duration::from_secs(10);

/// Returns the result of `work`. Panics after [`SOON`].
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work)
        .await
        .expect("it did not happen in time")
}

/// Reads a patient's record.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = Record, fallible)]
#[serde(deny_unknown_fields)]
pub struct GetPatient {
    pub patient_id: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    pub patient: Patient,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Patient {
    pub patient_id: String,
    pub condition: String,
}

/// Returns the principal.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = CallerInfo)]
pub struct Whoami {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CallerInfo {
    pub principal: Value,
    pub patience_ms: u64,
    pub hops: u16,
    pub trace_id: String,
}

/// Fails with a given failure.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = (), fallible)]
pub struct Fail {
    pub kind: FailureKind,
}

/// Panics.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ())]
pub struct Panic {}

/// Never answers; notifies the test when it starts and when it is cancelled.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ())]
pub struct Hang {}

/// Answers with text of the requested length.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Blob {
    pub bytes: usize,
}

#[derive(Debug, PartialEq)]
pub enum Event {
    Began,
    Cancelled,
}

/// Events that a test leaves unread.
const EVENTS_MAX: usize = 256;

pub struct Clinic {
    events: mpsc::Sender<Event>,
}

impl Agent for Clinic {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<GetPatient>()
            .sync::<Whoami>()
            .sync::<Fail>()
            .sync::<Panic>()
            .sync::<Blob>()
            .concurrent::<Hang>(64);
    }
}

impl SyncHandler<GetPatient> for Clinic {
    fn handle(&mut self, message: GetPatient, _: &mut Context) -> Result<Record, Failure> {
        if message.patient_id != "CARD-001" {
            return Err(Failure::not_found("unknown patient"));
        }
        Ok(Record {
            patient: Patient {
                patient_id: message.patient_id,
                condition: "Hypertension".into(),
            },
        })
    }
}

impl SyncHandler<Whoami> for Clinic {
    fn handle(&mut self, _: Whoami, cx: &mut Context) -> CallerInfo {
        let call = cx.call().expect("comes as a call");
        let left = cx
            .deadline()
            .map(|d| d.saturating_duration_since(tokio::time::Instant::now()));
        CallerInfo {
            principal: serde_json::to_value(cx.principal()).unwrap(),
            patience_ms: left.map_or(0, |left| left.as_millis() as u64),
            hops: call.hops,
            trace_id: format!("{:032x}", call.trace.trace_id()),
        }
    }
}

impl SyncHandler<Fail> for Clinic {
    fn handle(&mut self, message: Fail, _: &mut Context) -> Result<(), Failure> {
        Err(Failure::new(message.kind, "as told").with_data(json!({ "rule": "R1" })))
    }
}

impl SyncHandler<Panic> for Clinic {
    fn handle(&mut self, _: Panic, _: &mut Context) {
        panic!("Ana Souza");
    }
}

impl SyncHandler<Blob> for Clinic {
    fn handle(&mut self, message: Blob, _: &mut Context) -> String {
        "x".repeat(message.bytes)
    }
}

impl ConcurrentHandler<Hang> for Clinic {
    fn handle(&mut self, _: Hang, cx: Context) -> impl Future<Output = ()> + Send + 'static {
        let events = self.events.clone();
        async move {
            let _ = events.try_send(Event::Began);
            cx.cancelled().await;
            let _ = events.try_send(Event::Cancelled);
        }
    }
}

/// A clinic served on a free port. Ends with [`Server::stop`].
pub struct Server {
    pub address: SocketAddr,
    pub system: System,
    pub events: mpsc::Receiver<Event>,
    handle: actix_web::dev::ServerHandle,
}

impl Server {
    pub async fn start() -> Self {
        Self::with(McpServerOptions::bare(), &ListenOptions::default()).await
    }

    pub async fn with(options: McpServerOptions, listen: &ListenOptions) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let system = System::start(1).unwrap();
        let clinic = system.spawn_with(move || Clinic {
            events: sender.clone(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let serving = serve(listener, clinic, options, listen).unwrap();
        let handle = serving.server.handle();
        tokio::spawn(serving.server);
        Self {
            address: serving.address,
            system,
            events,
            handle,
        }
    }

    pub async fn event(&mut self) -> Event {
        soon(self.events.recv()).await.expect("the clinic is gone")
    }

    pub async fn connect(&self) -> Connection {
        Connection(soon(TcpStream::connect(self.address)).await.unwrap())
    }

    /// Posts `body` on a new connection.
    pub async fn post(&self, body: impl AsRef<[u8]>) -> Reply {
        self.connect().await.post(body).await
    }

    /// Returns this server as an agent of another system.
    pub fn client(&self) -> Client {
        Client::of(
            &format!("http://{}/mcp", self.address),
            BareClientOptions::default(),
        )
    }

    pub async fn stop(self) {
        self.handle.stop(false).await;
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// A remote agent in its own system.
pub struct Client {
    pub agent: AgentRef,
    system: System,
}

impl Client {
    pub fn of(url: &str, options: BareClientOptions) -> Self {
        let system = System::start(1).unwrap();
        let client = BareMcpClient::new(url, options).unwrap();
        Self {
            agent: system.spawn_with(move || client.clone()),
            system,
        }
    }

    pub async fn ask(
        &self,
        tool: &str,
        arguments: Value,
        call: Option<CallContext>,
    ) -> Result<Box<RawValue>, Failure> {
        soon(
            self.agent
                .ask_named(tool, to_raw_value(&arguments).unwrap(), call.map(Arc::new)),
        )
        .await
    }

    pub async fn stop(self) {
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// One HTTP/1.1 connection, raw.
pub struct Connection(pub TcpStream);

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Returns the error's code.
    pub fn code(&self) -> i64 {
        self.json()["error"]["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("no error: {self:?}"))
    }
}

impl Connection {
    pub async fn post(&mut self, body: impl AsRef<[u8]>) -> Reply {
        self.post_with("Content-Type: application/json\r\n", body)
            .await
    }

    /// Posts with additional header lines besides `Host` and `Content-Length`.
    pub async fn post_with(&mut self, headers: &str, body: impl AsRef<[u8]>) -> Reply {
        let body = body.as_ref();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat()).await;
        self.reply().await
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        soon(self.0.write_all(bytes)).await.unwrap();
    }

    pub async fn reply(&mut self) -> Reply {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break String::from_utf8(bytes.drain(..end + 4).collect()).unwrap();
            }
            assert!(
                soon(self.0.read_buf(&mut bytes)).await.unwrap() > 0,
                "closed without a reply"
            );
        };
        let length = header(&head, "content-length").map_or(0, |l| l.parse().unwrap());
        while bytes.len() < length {
            assert!(
                soon(self.0.read_buf(&mut bytes)).await.unwrap() > 0,
                "closed within a reply"
            );
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply {
            status,
            head,
            body: String::from_utf8(bytes).unwrap(),
        }
    }

    /// Reads until the other side closes.
    pub async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = soon(self.0.read_to_end(&mut bytes)).await;
        String::from_utf8(bytes).unwrap()
    }
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Returns a request body that calls `tool`.
pub fn call(id: &str, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

/// Returns the options of a server that treats this machine as its operator.
pub fn operator() -> McpServerOptions {
    McpServerOptions {
        access: UnauthenticatedAccess::LoopbackOperator.into(),
        ..McpServerOptions::bare()
    }
}

/// Returns the options of a server with this call deadline.
pub fn patient_for(call_deadline: Duration) -> McpServerOptions {
    let bare = McpServerOptions::bare();
    McpServerOptions {
        inbound: InboundOptions {
            call_deadline,
            ..bare.inbound
        },
        ..bare
    }
}
