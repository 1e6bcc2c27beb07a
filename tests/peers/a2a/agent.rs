use std::net::TcpListener;

use callboard::a2a::inbound::{A2aOptions, A2aServer, NamedAgents, serve};
use callboard::message::capabilities::Converse;
use callboard::message::{
    ARTIFACTS_SENT_META_KEY, Artifact, Content, Failure, Progress, RawObject, ToolResult,
};
use callboard::rpc::serve::ListenOptions;
use callboard::{Agent, ConcurrentHandler, Context, Handlers, System};
use callboard_rpc::{AccessControl, UnauthenticatedAccess};
use serde_json::json;

use crate::kit::Ours;
use crate::server::ask_name;

const AT_ONCE_MAX: u32 = 16;

struct Talking;

impl Agent for Talking {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<Converse> for Talking {
    fn handle(
        &mut self,
        said: Converse,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let text = said.texts();
            let tell = |what: &str| {
                cx.progress(Progress {
                    done: 1.0,
                    total: None,
                    message: Some(what.to_owned()),
                })
            };
            if let Some(words) = text.strip_prefix("echo ") {
                return Ok(ToolResult::text(words));
            }
            match &*text {
                "count" => {
                    tell("counting");
                    for (piece, last) in [("1", false), (" 2", false), (" 3", true)] {
                        cx.artifact(
                            Artifact::new("counted", [Content::text(piece)]).appending(last),
                        );
                    }
                    let shown = RawObject::new()
                        .with("content", json!([]))
                        .with("_meta", json!({ ARTIFACTS_SENT_META_KEY: true }));
                    Ok(ToolResult(shown))
                }
                "ask" => ask_name(&cx).await,
                _ => {
                    tell("waiting");
                    cx.cancelled().await;
                    Err(Failure::internal("it was cancelled"))
                }
            }
        }
    }
}

/// Serves it on a free port.
pub fn start() -> Ours {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let system = System::start(1).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut options = A2aOptions::new(url.parse().unwrap());
    options.access = AccessControl::Open(UnauthenticatedAccess::LoopbackOperator);
    // The peers' webhooks.
    options.push.allowed_networks = vec!["127.0.0.0/8".parse().unwrap()];
    let server = A2aServer::new(system.spawn(Talking), options);
    let serving = serve(
        listener,
        server,
        NamedAgents::default(),
        &ListenOptions::default(),
    )
    .unwrap();
    Ours::new(url, serving.server, system)
}
