//! The client as an agent.

use std::sync::Arc;

use callboard_message::surface::{
    CallTool, Complete, CreateMessage, Describe, Forward, GetPrompt, ListPrompts,
    ListResourceTemplates, ListResources, ListTools, RESERVED_PREFIX, ReadResource, Subscribe,
    Unsubscribe,
};
use callboard_message::{Failure, Message, Named, RawObject};
use callboard_runtime::outward::exchange;
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::options::{CALLS_IN_FLIGHT_MAX, ClientError, ClientOptions, Endpoint};
use super::tool_cache::plain_value;
use super::upstream::{Server, Upstream};
use crate::wire::hmcp;

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
    server: Server,
    options: Arc<ClientOptions>,
    /// Of this incarnation; made when it starts, so that it ends with it.
    upstream: Option<Arc<Upstream>>,
}

impl McpClient {
    /// A client of the server at `endpoint`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn new(endpoint: Endpoint, options: ClientOptions) -> Result<Self, ClientError> {
        Ok(Self {
            server: Server::new(endpoint, &options)?,
            options: Arc::new(options),
            upstream: None,
        })
    }

    /// Ends when all that clients like this one (its clones) had to end has ended: children, sessions with servers. Call
    /// it once the agents have been stopped, on a clone kept for that.
    pub async fn said_goodbye(&self) {
        self.server.said_goodbye().await;
    }
}

impl Agent for McpClient {
    fn handlers(on: &mut Handlers<Self>) {
        on.anything(CALLS_IN_FLIGHT_MAX);
    }

    fn profile() -> Profile {
        // What is given up is given up on the wire too; the state is a handle to the connection.
        Profile::default().cancel_safe().with_askers()
    }

    fn started(&mut self, cx: &mut Cx) {
        self.upstream = Some(Arc::new(Upstream::new(
            self.server.wiring(self.options.clone(), cx),
        )));
    }

    fn observe(&self) -> serde_json::Value {
        self.upstream
            .as_ref()
            .map_or(serde_json::Value::Null, |upstream| upstream.observe())
    }
}

impl ConcurrentHandler<Named> for McpClient {
    fn handle(
        &mut self,
        message: Named,
        cx: Cx,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let (upstream, limit) = (self.upstream.clone(), self.options.call_timeout);
        let endpoint = self.server.endpoint.to_string();
        async move {
            let upstream =
                upstream.ok_or_else(|| Failure::internal("the client hasn't started"))?;
            let server = cx.me().name().unwrap_or(&endpoint);
            let deadline = || cx.deadline().unwrap_or_else(|| Instant::now() + limit);
            exchange(message, &cx, server, deadline, |message| {
                answer(&upstream, message, &cx)
            })
            .await
        }
    }
}

async fn answer(upstream: &Upstream, message: Named, cx: &Cx) -> Result<Box<RawValue>, Failure> {
    Ok(match ClientOperation::read(message)? {
        ClientOperation::Describe => upstream.session().await?.about.to_raw(),
        ClientOperation::Request { method, params } => {
            upstream.request(&method, &params, cx).await?
        }
        ClientOperation::Use { tool, params } => {
            let result = upstream.request("tools/call", &params, cx).await?;
            plain_value(&result, || upstream.is_wrapped(&tool)).await?
        }
    })
}

/// Requests that belong to the connection, not to a call on it.
const NOT_FORWARDED: [&str; 3] = ["initialize", "server/discover", "subscriptions/listen"];

/// What a message wants of an MCP server.
pub(crate) enum ClientOperation {
    /// What it says of itself.
    Describe,
    /// A request, whose result is the reply.
    Request { method: String, params: RawObject },
    /// A tool, whose plain value is the reply. `params` are those of `tools/call`.
    Use { tool: String, params: RawObject },
}

impl ClientOperation {
    /// Reads a message: one of [`callboard_message::surface`], or a tool by its name.
    ///
    /// # Errors
    /// Where it is none that MCP has, or no JSON object.
    pub fn read(message: Named) -> Result<Self, Failure> {
        let Named { name, payload } = message;
        if !name.starts_with(RESERVED_PREFIX) {
            if !payload.get().starts_with('{') {
                return Err(Failure::invalid("the message must be a JSON object"));
            }
            let mut params = RawObject::of("name", &name);
            params.set_raw("arguments", payload);
            return Ok(Self::Use { tool: name, params });
        }
        let params = RawObject::parse(&payload)
            .map_err(|_| Failure::invalid("the message must be a JSON object"))?;
        let method = match name.as_str() {
            Describe::NAME => return Ok(Self::Describe),
            Forward::NAME => return forward(&params),
            ListTools::NAME => "tools/list",
            CallTool::NAME => "tools/call",
            Subscribe::NAME => "resources/subscribe",
            Unsubscribe::NAME => "resources/unsubscribe",
            ListResources::NAME => "resources/list",
            ListResourceTemplates::NAME => "resources/templates/list",
            ReadResource::NAME => "resources/read",
            ListPrompts::NAME => "prompts/list",
            GetPrompt::NAME => "prompts/get",
            Complete::NAME => "completion/complete",
            CreateMessage::NAME => hmcp::METHOD,
            _ => return Err(Failure::not_found("no MCP server has such a message")),
        };
        Ok(Self::Request {
            method: method.to_owned(),
            params,
        })
    }
}

fn forward(params: &RawObject) -> Result<ClientOperation, Failure> {
    let method = params
        .text("method")
        .ok_or_else(|| Failure::invalid("`method` must be a string"))?;
    if NOT_FORWARDED.contains(&method.as_str()) {
        return Err(Failure::rejected(format!(
            "{method} is the connection's own"
        )));
    }
    let params = match params.get("params") {
        Some(inner) => {
            RawObject::parse(inner).map_err(|_| Failure::invalid("`params` must be an object"))?
        }
        None => RawObject::new(),
    };
    Ok(ClientOperation::Request { method, params })
}
