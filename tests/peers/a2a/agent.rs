use std::net::TcpListener;

use actix_web::dev::ServerHandle;
use callboard::a2a::inbound::{A2aOptions, A2aServer, NamedAgents, serve};
use callboard::message::surface::Converse;
use callboard::message::{Artifact, Content, Elicitation, Failure, Progress, RawObject, SHOWN, ToolResult};
use callboard::rpc::serve::ListenOptions;
use callboard::{Agent, ConcurrentHandler, Cx, Handlers, System};
use callboard_rpc::{Access, Trust};
use serde_json::json;

use crate::round::ASKS_NAME;

const AT_ONCE_MAX: u32 = 16;

struct Talking;

impl Agent for Talking {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<Converse> for Talking {
    fn handle(&mut self, said: Converse, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let text = said.texts();
            let tell = |what: &str| cx.progress(Progress { done: 1.0, total: None, message: Some(what.to_owned()) });
            if let Some(words) = text.strip_prefix("echo ") {
                return Ok(ToolResult::text(words));
            }
            match &*text {
                "count" => {
                    tell("counting");
                    for (piece, last) in [("1", false), (" 2", false), (" 3", true)] {
                        cx.artifact(Artifact::new("counted", [Content::text(piece)]).appended(last));
                    }
                    let shown = RawObject::new().with("content", json!([])).with("_meta", json!({ SHOWN: true }));
                    Ok(ToolResult(shown))
                }
                "ask" => {
                    let fields = json!({ "name": { "type": "string" } });
                    let form = json!({ "type": "object", "properties": fields, "required": ["name"] });
                    let content = cx.elicit(Elicitation::form(ASKS_NAME, form)).await?.content().unwrap_or_default();
                    Ok(ToolResult::text(format!("Hello, {}!", content["name"].as_str().unwrap_or("nobody"))))
                }
                _ => {
                    tell("waiting");
                    cx.cancelled().await;
                    Err(Failure::internal("it was cancelled"))
                }
            }
        }
    }
}

/// It is served as long as this is held.
pub struct Ours {
    pub url: String,
    handle: ServerHandle,
    _system: System,
}

impl Drop for Ours {
    fn drop(&mut self) {
        // It is told at once; nobody waits for its end.
        drop(self.handle.stop(false));
    }
}

/// Serves it on a free port.
pub fn start() -> Ours {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let system = System::start(1).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut options = A2aOptions::at(url.parse().unwrap());
    options.access = Access::Open(Trust::LoopbackOperator);
    // The peers' webhooks.
    options.push.allow = vec!["127.0.0.0/8".parse().unwrap()];
    let server = A2aServer::new(system.spawn(Talking), options);
    let serving = serve(listener, server, NamedAgents::default(), &ListenOptions::default()).unwrap();
    let handle = serving.server.handle();
    actix_web::rt::spawn(serving.server);
    Ours { url, handle, _system: system }
}
