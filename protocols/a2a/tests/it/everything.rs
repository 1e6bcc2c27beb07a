//! An agent that uses every feature of A2A.

use callboard_macros::Message;
use callboard_message::{Artifact, Content, Elicitation, Failure, FailureKind, Progress};
use callboard_runtime::{
    Agent, AgentRef, ConcurrentHandler, Context, Handlers, SyncHandler, System,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::lingering::{Lingering, Watch, lingering};

/// Says it again.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Echo {
    pub text: String,
}

/// Adds.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = Sum)]
#[serde(deny_unknown_fields)]
pub struct Add {
    pub a: i64,
    pub b: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sum {
    pub sum: i64,
}

/// Asks for a name, and says it.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, fallible)]
pub struct Book {}

/// Says that it works, then waits until the test lets it go on, or it is cancelled.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Linger {}

/// Gives pieces of one artifact, as many as asked for, each a number.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
pub struct Pieces {
    pub count: u32,
}

/// Fails as it is told.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = (), fallible)]
pub struct Fail {
    pub kind: FailureKind,
}

#[derive(Clone)]
pub struct Everything(Lingering);

impl Agent for Everything {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>()
            .sync::<Add>()
            .sync::<Fail>()
            .concurrent::<Book>(512)
            .concurrent::<Linger>(512)
            .concurrent::<Pieces>(512);
    }
}

impl SyncHandler<Echo> for Everything {
    fn handle(&mut self, message: Echo, _: &mut Context) -> String {
        message.text
    }
}

impl SyncHandler<Add> for Everything {
    fn handle(&mut self, Add { a, b }: Add, _: &mut Context) -> Sum {
        Sum {
            sum: a.saturating_add(b),
        }
    }
}

impl SyncHandler<Fail> for Everything {
    fn handle(&mut self, message: Fail, _: &mut Context) -> Result<(), Failure> {
        Err(Failure::new(message.kind, "as told"))
    }
}

impl ConcurrentHandler<Book> for Everything {
    fn handle(
        &mut self,
        _: Book,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        async move {
            let form = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
            let answer = cx.elicit(Elicitation::form("Which name?", form)).await?;
            let name = answer
                .content()
                .and_then(|content| content["name"].as_str().map(str::to_owned));
            Ok(name.map_or_else(|| "nobody".to_owned(), |name| format!("booked for {name}")))
        }
    }
}

impl ConcurrentHandler<Linger> for Everything {
    fn handle(&mut self, _: Linger, cx: Context) -> impl Future<Output = String> + Send + 'static {
        self.0.wait(cx, |cx| {
            cx.progress(Progress {
                done: 1.0,
                total: None,
                message: Some("lingering".into()),
            })
        })
    }
}

impl ConcurrentHandler<Pieces> for Everything {
    fn handle(
        &mut self,
        message: Pieces,
        cx: Context,
    ) -> impl Future<Output = String> + Send + 'static {
        async move {
            for nth in 1..=message.count {
                let piece = Artifact::new("pieces", [Content::text(nth.to_string())]);
                cx.artifact(if nth == 1 {
                    piece
                } else {
                    piece.appending(nth == message.count)
                });
                // The stream is read between two pieces.
                tokio::task::yield_now().await;
            }
            "done".into()
        }
    }
}

/// Agent that can only echo.
pub struct OnlyEcho;

impl Agent for OnlyEcho {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>();
    }
}

impl SyncHandler<Echo> for OnlyEcho {
    fn handle(&mut self, message: Echo, _: &mut Context) -> String {
        message.text
    }
}

/// Creates [`Everything`] agents and records their actions.
pub struct Watched {
    pub watch: Watch,
    made: Everything,
}

impl Watched {
    pub fn new() -> Self {
        let (lingering, watch) = lingering();
        Self {
            watch,
            made: Everything(lingering),
        }
    }

    pub fn spawn(&self, system: &System) -> AgentRef {
        let made = self.made.clone();
        system.spawn_with(move || made.clone())
    }
}
