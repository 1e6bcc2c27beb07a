//! An agent with all MCP features, and a server for it.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use callboard_macros::Message;
use callboard_mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard_message::capabilities::{ListResources, ReadResource, ReadResourceResult};
use callboard_message::{
    CapabilityChange, Elicitation, Failure, FailureKind, LogLevel, LogMessage, Progress, RawObject,
    ResourceContent, SamplingRequest,
};
use callboard_runtime::{Agent, ConcurrentHandler, Context, Handlers, SyncHandler, System};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::kit::{Connection, soon};
use crate::lingering::{Lingering, Watch, lingering};
use crate::mcp_client::Client;

/// Returns the text.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Echo {
    pub text: String,
}

/// Reports progress `steps` times, then returns the number.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Count {
    pub steps: u32,
}

/// Sends a log message of each level.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ())]
pub struct Babble {}

/// Kind of question to the caller.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    Sample,
    SampleWithTools,
    Form,
    Url,
    Roots,
}

/// Asks the caller, and returns the answer.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, fallible)]
pub struct Inquire {
    pub what: QuestionKind,
}

/// Waits until the test releases it, or it is cancelled.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Linger {
    #[serde(default)]
    pub progress: bool,
}

/// Reports a change.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ())]
pub struct Announce {
    /// `tools`, `prompts`, `resources`, the URI of a resource, or `flood`: tools, 200 times.
    pub what: String,
}

pub struct Everything(Lingering);

impl Everything {
    pub fn new(lingering: Lingering) -> Self {
        Self(lingering)
    }
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
    fn handle(&mut self, message: Echo, _: &mut Context) -> String {
        message.text
    }
}

impl SyncHandler<Babble> for Everything {
    fn handle(&mut self, _: Babble, cx: &mut Context) {
        for level in [
            LogLevel::Debug,
            LogLevel::Info,
            LogLevel::Warning,
            LogLevel::Error,
            LogLevel::Emergency,
        ] {
            cx.log(LogMessage::new(level, "everything", "a line"));
        }
    }
}

impl SyncHandler<Announce> for Everything {
    fn handle(&mut self, message: Announce, cx: &mut Context) {
        if message.what == "flood" {
            return (0..200).for_each(|_| cx.notify_changed(CapabilityChange::Tools));
        }
        cx.notify_changed(match &*message.what {
            "tools" => CapabilityChange::Tools,
            "prompts" => CapabilityChange::Prompts,
            "resources" => CapabilityChange::Resources,
            uri => CapabilityChange::Resource(uri.to_owned()),
        });
    }
}

impl SyncHandler<ListResources> for Everything {
    fn handle(&mut self, _: ListResources, _: &mut Context) -> Result<RawObject, Failure> {
        Ok(RawObject::new().with("resources", json!([{ "uri": "test://a", "name": "a" }])))
    }
}

impl SyncHandler<ReadResource> for Everything {
    fn handle(
        &mut self,
        message: ReadResource,
        _: &mut Context,
    ) -> Result<ReadResourceResult, Failure> {
        match message.uri().as_str() {
            "test://a" => Ok(ReadResourceResult::from_contents([ResourceContent::text(
                "test://a",
                "text/plain",
                "a",
            )])),
            _ => Err(Failure::not_found("no such resource")),
        }
    }
}

impl ConcurrentHandler<Count> for Everything {
    fn handle(
        &mut self,
        message: Count,
        cx: Context,
    ) -> impl Future<Output = String> + Send + 'static {
        count(message.steps, cx)
    }
}

async fn count(steps: u32, cx: Context) -> String {
    for step in 0..=steps {
        cx.progress(Progress {
            done: step.into(),
            total: Some(steps.into()),
            message: None,
        });
    }
    // No further than the report before: must not be sent.
    cx.progress(Progress {
        done: 0.0,
        total: None,
        message: Some("back".into()),
    });
    "counted".into()
}

impl ConcurrentHandler<Inquire> for Everything {
    fn handle(
        &mut self,
        message: Inquire,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        inquire(message.what, cx)
    }
}

async fn inquire(what: QuestionKind, cx: Context) -> Result<String, Failure> {
    let name = json!({ "name": { "type": "string", "maxLength": 8 } });
    let form = || {
        Elicitation::form(
            "Your name?",
            json!({ "type": "object", "properties": name }),
        )
    };
    Ok(match what {
        QuestionKind::Sample => cx
            .sample(SamplingRequest::prompt("Say something", 10))
            .await?
            .written_text()
            .unwrap_or_default(),
        QuestionKind::SampleWithTools => {
            let mut sample = SamplingRequest::prompt("Use something", 10);
            sample.0.set("tools", json!([]));
            cx.sample(sample).await?.written_text().unwrap_or_default()
        }
        QuestionKind::Form => format!("{:?}", cx.elicit(form()).await?.content()),
        QuestionKind::Url => format!(
            "{:?}",
            cx.elicit(Elicitation::url("Go", "https://x.example", "e1"))
                .await?
                .action()
        ),
        QuestionKind::Roots => format!("{} roots", cx.roots().await?.roots().len()),
    })
}

impl ConcurrentHandler<Linger> for Everything {
    fn handle(
        &mut self,
        message: Linger,
        cx: Context,
    ) -> impl Future<Output = String> + Send + 'static {
        self.0.wait(cx, move |cx| {
            if message.progress {
                cx.progress(Progress {
                    done: 1.0,
                    ..Progress::default()
                });
            }
        })
    }
}

/// The agent, served on a free port. Ends with [`Served::stop`].
pub struct Served {
    pub address: SocketAddr,
    pub watch: Watch,
    pub system: System,
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
        let (lingering, watch) = lingering();
        let system = System::start(1).unwrap();
        let agent = system.spawn_with(move || Everything(lingering.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let serving = serve(listener, agent, options, listen).unwrap();
        let handle = serving.server.handle();
        tokio::spawn(serving.server);
        Self {
            address: serving.address,
            watch,
            system,
            handle,
        }
    }

    pub async fn connect(&self) -> Connection {
        Connection(soon(TcpStream::connect(self.address)).await.unwrap())
    }

    /// Returns a client of an existing session, with additional header lines.
    pub fn client(&self, session: &str, more: &str) -> Client {
        Client::new(self.address, session, more)
    }

    /// Opens a session of `revision` whose client declares `capabilities`.
    pub async fn session(&self, revision: &str, capabilities: Value) -> Client {
        Client::open(self.address, revision, &capabilities).await
    }

    pub async fn stop(self) {
        self.handle.stop(false).await;
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// Returns the failure kind of a tool error.
pub fn failure_kind(answer: &Value) -> Option<FailureKind> {
    serde_json::from_value(answer["result"]["_meta"]["callboard/failure"]["kind"].clone()).ok()
}
