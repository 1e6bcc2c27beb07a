//! A client at the other end of a pipe, and an agent controlled by the test.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_mcp::inbound::{StdioOptions, serve_stdio};
use callboard_message::{
    Elicitation, ElicitationAction, Failure, FailureKind, Progress, ToolResult,
};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{Agent, ConcurrentHandler, Context, Handlers, SyncHandler, System};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::kit::{Event, soon};

/// Capacity of the pipe, in bytes.
const PIPE_BYTES: usize = 64 * 1024;

/// Returns the text.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Echo {
    pub text: String,
}

/// Returns the principal.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct WhoAsks {}

/// Runs until the test releases it.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, task = "optional")]
pub struct Work {}

/// Asks for confirmation before it deletes.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "required")]
pub struct ConfirmDelete {
    pub file: String,
}

/// Asks two questions concurrently.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "required")]
pub struct TwoQuestions {}

/// Asks a question, then runs until the test releases it.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "after_questions")]
pub struct AskThenWork {}

/// Fails with a given failure.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = (), fallible, task = "optional")]
pub struct FailAs {
    pub kind: FailureKind,
}

/// Result of a tool that may ask questions.
type Outcome = Result<ToolResult, Failure>;

#[derive(Clone)]
pub struct Worker {
    events: mpsc::Sender<Event>,
    go: Arc<Notify>,
}

impl Agent for Worker {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>()
            .sync::<WhoAsks>()
            .sync::<FailAs>()
            .concurrent::<Work>(64);
        on.concurrent::<ConfirmDelete>(64)
            .concurrent::<TwoQuestions>(64)
            .concurrent::<AskThenWork>(64);
    }
}

impl SyncHandler<Echo> for Worker {
    fn handle(&mut self, message: Echo, _: &mut Context) -> String {
        message.text
    }
}

impl SyncHandler<WhoAsks> for Worker {
    fn handle(&mut self, _: WhoAsks, cx: &mut Context) -> String {
        cx.principal().id.clone()
    }
}

impl SyncHandler<FailAs> for Worker {
    fn handle(&mut self, message: FailAs, _: &mut Context) -> Result<(), Failure> {
        Err(Failure::new(message.kind, "as told"))
    }
}

impl Worker {
    /// Notifies the test, and runs until released or cancelled.
    async fn work(self, cx: Context) {
        self.events.send(Event::Began).await.unwrap();
        cx.progress(Progress {
            done: 1.0,
            total: Some(2.0),
            message: Some("halfway".into()),
        });
        tokio::select! {
            () = self.go.notified() => {}
            () = cx.cancelled() => self.events.send(Event::Cancelled).await.unwrap(),
        }
    }
}

impl ConcurrentHandler<Work> for Worker {
    fn handle(&mut self, _: Work, cx: Context) -> impl Future<Output = String> + Send + 'static {
        let worker = self.clone();
        async move {
            worker.work(cx).await;
            "done".to_owned()
        }
    }
}

fn form(message: &str) -> Elicitation {
    Elicitation::form(
        message,
        json!({ "type": "object", "properties": { "yes": { "type": "boolean" } } }),
    )
}

async fn confirm_delete(message: ConfirmDelete, cx: Context) -> Outcome {
    let answer = cx
        .elicit(form(&format!("Delete {}?", message.file)).with_key("confirm"))
        .await?;
    Ok(ToolResult::text(match answer.action() {
        ElicitationAction::Accept => "deleted",
        _ => "kept",
    }))
}

async fn two_questions(cx: Context) -> Outcome {
    let (one, two) = tokio::join!(cx.elicit(form("One?")), cx.elicit(form("Two?")));
    let (one, two) = (one?.content(), two?.content());
    Ok(ToolResult::text(format!(
        "{} {}",
        one.unwrap_or_default(),
        two.unwrap_or_default()
    )))
}

impl ConcurrentHandler<ConfirmDelete> for Worker {
    fn handle(
        &mut self,
        message: ConfirmDelete,
        cx: Context,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        confirm_delete(message, cx)
    }
}

impl ConcurrentHandler<TwoQuestions> for Worker {
    fn handle(
        &mut self,
        _: TwoQuestions,
        cx: Context,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        two_questions(cx)
    }
}

impl ConcurrentHandler<AskThenWork> for Worker {
    fn handle(
        &mut self,
        _: AskThenWork,
        cx: Context,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        let worker = self.clone();
        async move {
            let answer = cx.elicit(form("Who?").with_key("who")).await?;
            let who = answer
                .content()
                .map_or_else(|| "nobody".to_owned(), |content| content["who"].to_string());
            worker.work(cx).await;
            Ok(ToolResult::text(who))
        }
    }
}

/// An agent behind a pipe, and its client.
pub struct Pipe {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    serving: JoinHandle<io::Result<()>>,
    events: mpsc::Receiver<Event>,
    go: Arc<Notify>,
    last_id: i64,
    /// Messages received while waiting for others.
    pub aside: VecDeque<Value>,
}

impl Pipe {
    pub fn with(system: &System, options: StdioOptions) -> Self {
        let (sender, events) = mpsc::channel(256);
        let go = Arc::new(Notify::new());
        let agent = system.spawn(Worker {
            events: sender,
            go: go.clone(),
        });
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (reader, writer) = tokio::io::split(theirs);
        let serving = tokio::spawn(serve_stdio(agent, options, reader, writer));
        let (reader, writer) = tokio::io::split(ours);
        let lines = BufReader::new(reader).lines();
        Self {
            lines,
            writer,
            serving,
            events,
            go,
            last_id: 0,
            aside: VecDeque::new(),
        }
    }

    /// Opens a session with a client that accepts form elicitations.
    pub async fn initialize(&mut self, version: &str) -> Value {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": { "elicitation": {} }, "clientInfo": client });
        let answer = self.ask("initialize", params).await;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
            .await;
        answer["result"].clone()
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_raw(format!("{message}\n").as_bytes()).await;
    }

    pub async fn send_raw(&mut self, bytes: &[u8]) {
        soon(self.writer.write_all(bytes)).await.unwrap();
    }

    /// Returns the next line.
    pub async fn next(&mut self) -> Value {
        let line = soon(self.lines.next_line()).await.unwrap().expect("closed");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    /// Sends a request and returns its id.
    pub async fn request(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        id
    }

    /// Returns the response to a request of ours; other messages are put aside.
    pub async fn response(&mut self, id: i64) -> Value {
        let is_it = |message: &Value| message["id"] == id && message["method"].is_null();
        if let Some(at) = self.aside.iter().position(is_it) {
            return self.aside.remove(at).unwrap();
        }
        loop {
            let message = self.next().await;
            if is_it(&message) {
                return message;
            }
            self.aside.push_back(message);
        }
    }

    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.response(id).await
    }

    /// Returns the result of a tool call.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
        .await
    }

    /// Sends a request of the modern era with these client capabilities.
    pub async fn modern(&mut self, method: &str, mut params: Value, capabilities: Value) -> Value {
        params["_meta"] = meta(capabilities);
        self.ask(method, params).await
    }

    /// Returns the next message with this method, of those put aside and those to come.
    pub async fn heard(&mut self, method: &str) -> Value {
        if let Some(at) = self
            .aside
            .iter()
            .position(|message| message["method"] == method)
        {
            return self.aside.remove(at).unwrap();
        }
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
            self.aside.push_back(message);
        }
    }

    pub async fn event(&mut self) -> Event {
        soon(self.events.recv()).await.expect("the worker is gone")
    }

    /// Releases one running tool.
    pub fn go(&self) {
        self.go.notify_one();
    }

    /// Closes our side and waits for the server's end.
    pub async fn close(mut self) -> mpsc::Receiver<Event> {
        soon(self.writer.shutdown()).await.unwrap();
        soon(self.serving).await.unwrap().unwrap();
        self.events
    }
}

/// Returns the `_meta` of a request of the modern era.
pub fn meta(capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// Runs a test with a pipe and paused time, and ends both.
pub fn with_options(options: StdioOptions, test: impl AsyncFnOnce(&mut Pipe)) {
    run_with_paused_time(async |system| {
        let mut pipe = Pipe::with(system, options);
        test(&mut pipe).await;
        pipe.close().await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

pub fn with_pipe(test: impl AsyncFnOnce(&mut Pipe)) {
    with_options(StdioOptions::default(), test);
}

/// Runs a test with a pipe after `initialize`.
pub fn with_legacy(test: impl AsyncFnOnce(&mut Pipe)) {
    with_pipe(async |pipe| {
        pipe.initialize("2025-11-25").await;
        test(pipe).await;
    });
}
