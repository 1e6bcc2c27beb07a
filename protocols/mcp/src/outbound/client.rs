//! MCP client as an agent.

use std::sync::Arc;

use callboard_message::capabilities::{
    CallTool, CompleteArgument, CreateMessage, DescribeAgent, ForwardRequest, GetPrompt,
    ListPrompts, ListResourceTemplates, ListResources, ListTools, RESERVED_PREFIX, ReadResource,
    SubscribeResource, UnsubscribeResource,
};
use callboard_message::{Failure, Message, RawMessage, RawObject};
use callboard_runtime::outbound_policy::exchange;
use callboard_runtime::{Agent, AgentProfile, CallOrigin, ConcurrentHandler, Context, Handlers};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::options::{McpClientError, McpClientOptions, PENDING_CALLS_MAX, ServerEndpoint};
use super::tool_result::plain_value;
use super::upstream::Upstream;
use super::upstream_server::UpstreamServer;
use crate::wire::hmcp;

/// Agent that stands for one remote MCP server.
///
/// - `callboard.tools.call` and the other messages of [`callboard_message::capabilities`] are
///   forwarded as MCP requests. Params and results pass unchanged.
/// - A message of any other name calls the tool of that name. Its reply is the tool's plain value,
///   so that a typed message to a remote agent works like one to a local agent.
///
/// The server's questions, progress and log messages go to the caller. Followers of the agent
/// ([`AgentRef::follow`](callboard_runtime::AgentRef::follow)) are notified of changes to the
/// server's lists and resources. The client connects on the first request. When the agent stops,
/// the client ends the connection or the child process. It follows one HTTP redirect within the
/// server's origin and none to another, and ignores proxy variables.
#[derive(Clone)]
pub struct McpClient {
    server: UpstreamServer,
    options: Arc<McpClientOptions>,
    /// Connection of the running agent; dropped when the agent stops.
    upstream: Option<Arc<Upstream>>,
}

impl McpClient {
    /// Creates a client of the server at `endpoint` without connecting.
    ///
    /// # Errors
    /// See [`McpClientError`].
    pub fn new(
        endpoint: ServerEndpoint,
        options: McpClientOptions,
    ) -> Result<Self, McpClientError> {
        Ok(Self {
            server: UpstreamServer::new(endpoint, &options)?,
            options: Arc::new(options),
            upstream: None,
        })
    }

    /// Waits until the child processes and server sessions of this client and all its clones have
    /// ended. Stop the agents first, and call this on a clone that you kept.
    pub async fn drained(&self) {
        self.server.drained().await;
    }
}

impl Agent for McpClient {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(PENDING_CALLS_MAX);
    }

    fn profile() -> AgentProfile {
        // A cancelled call is cancelled on the wire too; the state is a handle to the connection.
        AgentProfile::default().cancel_safe().inline_concurrent()
    }

    fn started(&mut self, cx: &mut Context) {
        self.upstream = Some(Arc::new(Upstream::new(
            self.server.connection_params(self.options.clone(), cx),
        )));
    }

    fn observe(&self) -> serde_json::Value {
        self.upstream
            .as_ref()
            .map_or(serde_json::Value::Null, |upstream| upstream.observe())
    }
}

impl ConcurrentHandler<RawMessage> for McpClient {
    fn handle(
        &mut self,
        message: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let (upstream, limit) = (self.upstream.clone(), self.options.call_timeout);
        let endpoint = self.server.endpoint.to_string();
        async move {
            let upstream = upstream.ok_or_else(|| {
                Failure::internal("`McpClient` got a message before it was started")
            })?;
            let server = cx.me().name().unwrap_or(&endpoint);
            let deadline = || cx.deadline().unwrap_or_else(|| Instant::now() + limit);
            exchange(message, &cx, server, CallOrigin::MCP, deadline, |message| {
                perform(&upstream, message, &cx)
            })
            .await
        }
    }
}

async fn perform(
    upstream: &Upstream,
    message: RawMessage,
    cx: &Context,
) -> Result<Box<RawValue>, Failure> {
    Ok(match ClientOperation::from_message(message)? {
        ClientOperation::Describe => upstream.connect().await?.about.to_raw(),
        ClientOperation::Request { method, params } => {
            upstream.request(&method, &params, cx).await?
        }
        ClientOperation::CallToolForValue { tool, params } => {
            let result = upstream.request("tools/call", &params, cx).await?;
            plain_value(&result, || upstream.is_wrapped(&tool)).await?
        }
    })
}

/// Methods that [`ForwardRequest`] rejects: those that only the client itself may send, because they set up
/// the connection, and those with a message of their own, by which policies know them.
const RESERVED_METHODS: [&str; 14] = [
    "initialize",
    "server/discover",
    "subscriptions/listen",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    hmcp::METHOD,
];

/// Operation on an MCP server that an agent's message asks for.
pub(crate) enum ClientOperation {
    /// Replies with the server's description.
    Describe,
    /// Sends the MCP request `method` and replies with its result.
    Request { method: String, params: RawObject },
    /// Sends `tools/call` with `params` and replies with the plain value of the result.
    CallToolForValue { tool: String, params: RawObject },
}

impl ClientOperation {
    /// Converts a message to an operation: a message of [`callboard_message::capabilities`], or one
    /// that has the name of a tool.
    ///
    /// # Errors
    /// `NotFound` for a reserved name without an equivalent in MCP, `InvalidInput` if the payload
    /// is no JSON object, `Rejected` for a forwarded request that only the client itself may send.
    pub fn from_message(message: RawMessage) -> Result<Self, Failure> {
        let RawMessage { name, payload } = message;
        if !name.starts_with(RESERVED_PREFIX) {
            if !payload.get().starts_with('{') {
                return Err(Failure::invalid("the message must be a JSON object"));
            }
            let mut params = RawObject::single("name", &name);
            params.set_raw("arguments", payload);
            return Ok(Self::CallToolForValue { tool: name, params });
        }
        let params = RawObject::parse(&payload)
            .map_err(|_| Failure::invalid("the message must be a JSON object"))?;
        let method = match name.as_str() {
            DescribeAgent::NAME => return Ok(Self::Describe),
            ForwardRequest::NAME => return parse_forward(&params),
            ListTools::NAME => "tools/list",
            CallTool::NAME => "tools/call",
            SubscribeResource::NAME => "resources/subscribe",
            UnsubscribeResource::NAME => "resources/unsubscribe",
            ListResources::NAME => "resources/list",
            ListResourceTemplates::NAME => "resources/templates/list",
            ReadResource::NAME => "resources/read",
            ListPrompts::NAME => "prompts/list",
            GetPrompt::NAME => "prompts/get",
            CompleteArgument::NAME => "completion/complete",
            CreateMessage::NAME => hmcp::METHOD,
            _ => {
                return Err(Failure::not_found(format!(
                    "MCP has no method for the message {name}"
                )));
            }
        };
        Ok(Self::Request {
            method: method.to_owned(),
            params,
        })
    }
}

fn parse_forward(params: &RawObject) -> Result<ClientOperation, Failure> {
    let method = params
        .text("method")
        .ok_or_else(|| Failure::invalid("`method` must be a string"))?;
    if RESERVED_METHODS.contains(&method.as_str()) {
        return Err(Failure::rejected(format!(
            "{method} belongs to the connection or has a message of its own, and can't be forwarded"
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
