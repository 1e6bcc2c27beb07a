//! The client as an agent.

use std::fmt;
use std::sync::{Arc, Mutex};

use callboard_message::surface::{
    CallTool, Complete, CreateMessage, Describe, Forward, GetPrompt, ListPrompts, ListResourceTemplates, ListResources,
    ListTools, RESERVED_PREFIX, ReadResource, Subscribe, Unsubscribe,
};
use callboard_message::{CallId, Failure, FailureKind, Message, Named, RawObject};
use callboard_runtime::{Agent, ConcurrentHandler, Crossing, Cx, Direction, Handlers, Profile};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use super::link::LinkError;
use super::options::{CALLS_IN_FLIGHT_MAX, ClientError, ClientOptions, Endpoint, EraChoice};
use super::unwrap;
use super::upstream::{Upstream, http_client};
use crate::wire::{Era, hmcp};

/// Requests that belong to the connection, not to a call on it.
const NOT_FORWARDED: [&str; 3] = ["initialize", "server/discover", "subscriptions/listen"];

/// An MCP server elsewhere, as an agent of this system.
///
/// - `callboard.tools.call` and its kind ([`callboard_message::surface`]) are MCP's requests: params go as they came,
///   results come as they are.
/// - Any other message is a tool of its name. Its reply is the plain value, so that asking a remote agent a typed message
///   looks like asking a local one.
///
/// The server's questions go to whoever called, as do progress and the lines of its log; whoever follows the agent
/// ([`AgentRef::follow`](callboard_runtime::AgentRef::follow)) is told when what it shows changes. It connects when it
/// is first asked and ends its connection, or its child process, when it ends. It follows no redirects and no proxy
/// variables.
#[derive(Clone)]
pub struct McpClient {
    endpoint: Endpoint,
    options: Arc<ClientOptions>,
    http: reqwest::Client,
    /// Which era the server was found to be of.
    remembered: Arc<Mutex<Option<Era>>>,
    /// What ended clients have left to do.
    farewells: TaskTracker,
    /// Of this incarnation; made when it starts, so that it ends with it.
    upstream: Option<Arc<Upstream>>,
}

impl McpClient {
    /// A client of the server at `endpoint`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn new(endpoint: Endpoint, options: ClientOptions) -> Result<Self, ClientError> {
        let wants_modern = options.era == EraChoice::Only(Era::Modern);
        if options.revision.era() == Era::Modern || wants_modern && matches!(endpoint, Endpoint::Sse(_)) {
            return Err(ClientError::Era);
        }
        let http = http_client(&options)?;
        Ok(Self {
            endpoint,
            options: Arc::new(options),
            http,
            remembered: Arc::default(),
            farewells: TaskTracker::new(),
            upstream: None,
        })
    }

    /// Ends when all that clients like this one (its clones) had to end has ended: children, sessions with servers. Call
    /// it once the agents have been stopped, on a clone kept for that.
    pub async fn said_goodbye(&self) {
        self.farewells.close();
        self.farewells.wait().await;
    }
}

impl Agent for McpClient {
    fn handlers(on: &mut Handlers<Self>) {
        on.anything(CALLS_IN_FLIGHT_MAX);
    }

    fn profile() -> Profile {
        // What is given up is given up on the wire too; the state is a handle to the connection.
        Profile::default().cancel_safe()
    }

    fn started(&mut self, cx: &mut Cx) {
        let (endpoint, options, http) = (self.endpoint.clone(), self.options.clone(), self.http.clone());
        self.upstream = Some(Arc::new(Upstream::new(
            endpoint,
            options,
            http,
            (self.remembered.clone(), self.farewells.clone()),
            cx.clone(),
        )));
    }

    fn observe(&self) -> serde_json::Value {
        self.upstream.as_ref().map_or(serde_json::Value::Null, |upstream| upstream.observe())
    }
}

impl ConcurrentHandler<Named> for McpClient {
    fn handle(
        &mut self,
        message: Named,
        cx: Cx,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let (upstream, limit, server) = (self.upstream.clone(), self.options.call_timeout, self.endpoint.to_string());
        async move {
            let upstream = upstream.ok_or_else(|| Failure::internal("the client hasn't started"))?;
            admit(&message, &cx, &server).await?;
            let name = message.name.clone();
            let cx = cx.clone().judged(cx.me().name().unwrap_or(&server));
            let deadline = cx.deadline().unwrap_or_else(|| Instant::now() + limit);
            let answering = timeout_at(deadline, answer(&upstream, message, &cx));
            let reply = tokio::select! {
                // The deadline cancels too.
                () = cx.cancelled() => Err(if Instant::now() < deadline { cancelled() } else { timed_out() }),
                answer = answering => answer.unwrap_or_else(|_| Err(timed_out())),
            };
            cx.system().policy().judge_reply(crossing(&name, RawValue::NULL, &cx, &server), reply).await
        }
    }
}

/// Whether the message may leave.
async fn admit(message: &Named, cx: &Cx, server: &str) -> Result<(), Failure> {
    if cx.call().is_some_and(|call| call.hops >= call.hops_max) {
        return Err(Failure::new(FailureKind::Rejected, "the call passed through too many agents"));
    }
    cx.system().policy().judge(crossing(&message.name, &message.payload, cx, server)).await
}

fn crossing<'a>(message: &'a str, payload: &'a RawValue, cx: &'a Cx, server: &'a str) -> Crossing<'a> {
    Crossing {
        direction: Direction::Outbound,
        principal: cx.principal(),
        call: cx.call().map_or_else(CallId::fresh, |call| call.id),
        agent: cx.me().name().unwrap_or(server),
        message,
        payload,
    }
}

async fn answer(upstream: &Upstream, message: Named, cx: &Cx) -> Result<Box<RawValue>, Failure> {
    let Named { name, payload } = message;
    let object = || RawObject::parse(&payload).map_err(|_| Failure::invalid("the message must be a JSON object"));
    if !name.starts_with(RESERVED_PREFIX) {
        return use_tool(upstream, name, payload, cx).await;
    }
    let params = object()?;
    let method = match name.as_str() {
        Describe::NAME => return Ok(upstream.session().await?.about.to_raw()),
        ListTools::NAME => return Ok(upstream.list_tools(params, cx).await?),
        Subscribe::NAME => return Ok(upstream.subscribe(true, params, cx).await?),
        Unsubscribe::NAME => return Ok(upstream.subscribe(false, params, cx).await?),
        Forward::NAME => return forward(upstream, params, cx).await,
        CallTool::NAME => "tools/call",
        ListResources::NAME => "resources/list",
        ListResourceTemplates::NAME => "resources/templates/list",
        ReadResource::NAME => "resources/read",
        ListPrompts::NAME => "prompts/list",
        GetPrompt::NAME => "prompts/get",
        Complete::NAME => "completion/complete",
        CreateMessage::NAME => {
            hmcp::gate(&upstream.session().await?.about)?;
            hmcp::METHOD
        }
        _ => return Err(Failure::not_found("no MCP server has such a message")),
    };
    Ok(upstream.request(method, params, cx).await?)
}

/// A message as a tool of its name, and its reply as a plain value.
async fn use_tool(
    upstream: &Upstream,
    name: String,
    payload: Box<RawValue>,
    cx: &Cx,
) -> Result<Box<RawValue>, Failure> {
    if !payload.get().starts_with('{') {
        return Err(Failure::invalid("the message must be a JSON object"));
    }
    let mut params = RawObject::new().with("name", &name);
    params.set_raw("arguments", payload);
    let result = upstream.request("tools/call", params, cx).await?;
    let result = RawObject::parse(&result)
        .map_err(|_| Failure::from(LinkError::Protocol("the tool's result is no object".into())))?;
    let wrapped = unwrap::may_be_wrapped(&result) && upstream.is_wrapped(&name).await;
    unwrap::value(result, wrapped)
}

async fn forward(upstream: &Upstream, params: RawObject, cx: &Cx) -> Result<Box<RawValue>, Failure> {
    let method = params.text("method").ok_or_else(|| Failure::invalid("`method` must be a string"))?;
    if NOT_FORWARDED.contains(&method.as_str()) {
        return Err(Failure::new(FailureKind::Rejected, format!("{method} is the connection's own")));
    }
    let inner = match params.get("params") {
        Some(inner) => RawObject::parse(inner).map_err(|_| Failure::invalid("`params` must be an object"))?,
        None => RawObject::new(),
    };
    Ok(upstream.request(&method, inner, cx).await?)
}

fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, "the call was cancelled")
}

fn timed_out() -> Failure {
    Failure::new(FailureKind::TimedOut, "no response in time")
}

impl fmt::Debug for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClient").field("endpoint", &self.endpoint.to_string()).finish_non_exhaustive()
    }
}
