//! An agent's MCP interface without any connection: lists, tools, resources and prompts.

use super::request::{
    McpMethod, McpRequest, MetaName, ParamName, RequestParams, params_not_object,
};
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::capabilities::{
    CallTool, CompleteArgument, CreateMessage, DescribeAgent, DescribeAgentResult, ForwardRequest,
    ListPrompts, ListResources, ListTools, MISSING_META_KEY, RESERVED_PREFIX, ReadResource,
    SubscribeResource,
};
use callboard_message::json::raw_from_written;
use callboard_message::{Failure, FailureKind, Message, Principal, RawMessage, RawObject};
use callboard_rpc::{RpcError, code};
use callboard_runtime::{
    AccessItem, AgentRef, CallContext, OnRestart, has_ambiguous_names, inbound_policy,
};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::list_items::fit_items;
use super::options::InboundOptions;
use super::tools::{AgentTools, ReplyShape, TaskSupport, tool_result};
use crate::wire::error_mapping::{peer_error, to_rpc_or};
use crate::wire::header::HeaderParam;
use crate::wire::{Era, Revision, code as mcp, error_mapping, hmcp, meta};

/// Prefix of the cursors of `tools/list`, which tells them from cursors of other lists.
const TOOL_CURSOR: &str = "from";

/// Outcome of a request: its result as JSON, or a JSON-RPC error.
pub(crate) type RpcResult = Result<Box<RawValue>, RpcError>;

/// Method of [`AgentAdapter`] that executes a request.
pub(crate) type AgentHandler =
    for<'a> fn(&'a AgentAdapter, &'a McpRequest, Revision, CallContext) -> BoxFuture<'a, RpcResult>;

/// Adapter that executes MCP requests by sending messages to one agent, independent of connections.
pub(crate) struct AgentAdapter {
    pub agent: AgentRef,
    /// Name of the agent in policies and logs.
    pub agent_name: String,
    /// Names of the messages that the agent handles.
    message_names: Vec<String>,
    /// Tools made from the agent's message types; unused if the agent lists its tools itself.
    tools: AgentTools,
    /// True if the agent passes any message on to a remote server, so that it handles all names.
    is_proxy: bool,
    /// True once a repaired list has been logged.
    is_repair_logged: AtomicBool,
    options: Arc<InboundOptions>,
}

impl AgentAdapter {
    pub fn new(agent: AgentRef, options: Arc<InboundOptions>) -> Self {
        let specs = agent.specs();
        let message_names = specs.iter().map(|s| s.name.clone()).collect();
        let (agent_name, is_proxy) = (agent.to_string(), agent.is_proxy());
        Self {
            agent,
            agent_name,
            message_names,
            tools: AgentTools::from_specs(specs),
            is_proxy,
            is_repair_logged: AtomicBool::new(false),
            options,
        }
    }

    fn handles_message(&self, message: &str) -> bool {
        self.is_proxy || self.message_names.iter().any(|name| name == message)
    }

    /// Returns true if the agent lists and calls its tools itself, so that its message types aren't
    /// tools.
    fn lists_tools(&self) -> bool {
        self.handles_message(ListTools::NAME)
    }

    /// Returns whether calls of a tool may or must run as tasks. `Forbidden` for an unknown tool,
    /// and for a tool that the agent lists itself, because such an agent runs tasks by itself.
    pub fn task_support(&self, tool: &str) -> TaskSupport {
        self.tools
            .get(tool, Era::Legacy)
            .map_or(TaskSupport::Forbidden, |tool| tool.task)
    }

    /// Returns how a task of a tool is handled if the process ended during its call: `Fail` for a
    /// tool that the agent lists itself.
    pub fn on_restart(&self, tool: &str) -> OnRestart {
        self.tools
            .get(tool, Era::Legacy)
            .map_or(OnRestart::Fail, |tool| tool.on_restart)
    }

    /// Returns the arguments of a tool that clients repeat in request headers. Empty for a tool
    /// that the agent lists itself, because its schema isn't known to this adapter.
    pub fn header_params(&self, tool: &str) -> &[HeaderParam] {
        self.tools
            .get(tool, Era::Modern)
            .map_or(&[], |tool| &tool.header_params)
    }

    /// Returns true if a call of any tool may run as a task of this server.
    pub fn has_task_tools(&self) -> bool {
        !self.lists_tools() && self.tools.has_tasks
    }

    /// Asks the agent to accept a subscription to the resource `uri`. Does nothing if the agent
    /// doesn't handle `SubscribeResource`.
    pub async fn subscribe(&self, uri: &str, call: CallContext) -> Result<(), RpcError> {
        if !self.handles_message(SubscribeResource::NAME) {
            let item = AccessItem::Resource(uri.into());
            let (agent, name) = (&self.agent, &*self.agent_name);
            return match inbound_policy::may_use(agent, name, &call.principal, item) {
                true => Ok(()),
                false => Err(to_rpc_error(Failure::denied(
                    "the rules of this node don't permit you this resource",
                ))),
            };
        }
        let body = RawObject::single("uri", uri).to_raw();
        self.ask(SubscribeResource::NAME, body, call)
            .await
            .map(drop)
            .map_err(to_rpc_error)
    }

    /// Returns the agent's description of itself; empty if it has none or the call fails. If the agent
    /// isn't available, the reason is in its instructions.
    pub async fn describe(&self, call: CallContext) -> DescribeAgentResult {
        if !self.handles_message(DescribeAgent::NAME) {
            return DescribeAgentResult::default();
        }
        let asked = self.ask(DescribeAgent::NAME, RawObject::new().to_raw(), call);
        let about = match asked.await {
            Ok(raw) => RawObject::parse(&raw).unwrap_or_default(),
            Err(failure) if failure.kind == FailureKind::Unavailable => {
                RawObject::single("instructions", failure.message).with("ttlMs", 0)
            }
            Err(_) => RawObject::new(),
        };
        DescribeAgentResult(about)
    }

    /// Returns MCP's server capabilities, without those that only one era has (tasks, extensions).
    pub fn capabilities(&self, about: &DescribeAgentResult) -> RawObject {
        if let Some(mut theirs) = about.0.object("capabilities") {
            // The agent can't know the name of this capability; a proxy's remote server declares it
            // itself.
            if self
                .message_names
                .iter()
                .any(|name| name == CreateMessage::NAME)
            {
                hmcp::advertise(&mut theirs);
            }
            return theirs;
        }
        let changing = || RawObject::single("listChanged", true);
        let mut can = RawObject::single("logging", RawObject::new());
        if self.lists_tools() || !self.tools.is_empty() {
            can.set("tools", changing());
        }
        if self.has_resources() {
            can.set(
                "resources",
                RawObject::single("subscribe", true).with("listChanged", true),
            );
        }
        if self.handles_message(ListPrompts::NAME) {
            can.set("prompts", changing());
        }
        if self.handles_message(CompleteArgument::NAME) {
            can.set("completions", RawObject::new());
        }
        if self.handles_message(CreateMessage::NAME) {
            hmcp::advertise(&mut can);
        }
        can
    }

    /// Returns true if the agent handles listing or reading of resources.
    pub fn has_resources(&self) -> bool {
        self.handles_message(ListResources::NAME) || self.handles_message(ReadResource::NAME)
    }

    /// Executes `tools/list`: by the agent if it lists its tools itself.
    pub fn list_tools<'a>(
        &'a self,
        request: &'a McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> BoxFuture<'a, RpcResult> {
        match self.lists_tools() {
            true => self.ask_or_forward(request, revision, call),
            false => {
                let call = with_purpose(&request.params, call);
                let listed =
                    call.and_then(|call| self.list_own_tools(&request.params, revision, &call));
                ready(listed).boxed()
            }
        }
    }

    /// Executes a list of resources or resource templates. An agent that can be read but not listed
    /// has an empty list.
    pub fn list_resources<'a>(
        &'a self,
        request: &'a McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> BoxFuture<'a, RpcResult> {
        let message = request.method.agent_message();
        if message.is_some_and(|message| self.handles_message(message))
            || !self.handles_message(ReadResource::NAME)
        {
            return self.ask_or_forward(request, revision, call);
        }
        let empty = match request.method {
            McpMethod::ListResourceTemplates => r#"{"resourceTemplates":[]}"#,
            _ => r#"{"resources":[]}"#,
        };
        ready(Ok(raw_from_written(empty.into()))).boxed()
    }

    /// Sends the agent the message that stands for the request's method. A request without one, or
    /// whose message the agent doesn't handle, is forwarded.
    pub fn ask_or_forward<'a>(
        &'a self,
        request: &'a McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> BoxFuture<'a, RpcResult> {
        let message = request.method.agent_message();
        let Some(message) = message.filter(|message| self.handles_message(message)) else {
            return self.forward(request, revision, call);
        };
        Box::pin(async move {
            let call = with_purpose(&request.params, call)?;
            let params = strip_hop_params(&request.params, &call.principal)?;
            let asked = self.ask(message, params, call).await;
            let result = asked.map_err(to_rpc_error)?;
            Ok(self.fit_list(request.method, result, revision))
        })
    }

    /// Forwards a request of any method, if the agent can.
    ///
    /// # Errors
    /// `METHOD_NOT_FOUND` if it can't; otherwise the error of the call.
    pub fn forward<'a>(
        &'a self,
        request: &'a McpRequest,
        _: Revision,
        call: CallContext,
    ) -> BoxFuture<'a, RpcResult> {
        if !self.handles_message(ForwardRequest::NAME) {
            let name = printable_name(&request.name);
            let unknown = RpcError::method_not_found(format!("method not found: {name}"));
            return ready(Err(unknown)).boxed();
        }
        Box::pin(async move {
            let call = with_purpose(&request.params, call)?;
            let params = strip_hop_params(&request.params, &call.principal)?;
            let body = RawObject::single("method", &request.name).with("params", params);
            let asked = self.ask(ForwardRequest::NAME, body.to_raw(), call).await;
            asked.map_err(to_rpc_error)
        })
    }

    /// Repairs the items of a list result for the client's era. The first repair of this agent's
    /// lists is logged.
    fn fit_list(
        &self,
        method: McpMethod,
        result: Box<RawValue>,
        revision: Revision,
    ) -> Box<RawValue> {
        let list = fit_items(method, result, revision.era());
        let (repaired, dropped) = (list.repaired, list.dropped);
        if repaired + dropped > 0 && !self.is_repair_logged.swap(true, Ordering::Relaxed) {
            callboard_message::log::warn!(
                agent = %self.agent_name,
                ?method,
                repaired,
                dropped,
                "list items that clients would refuse are repaired, or dropped without a name or URI; further ones of this agent aren't logged"
            );
        }
        list.result
    }

    fn list_own_tools(
        &self,
        params: &RequestParams,
        revision: Revision,
        call: &CallContext,
    ) -> RpcResult {
        let from = parse_cursor(params, TOOL_CURSOR)?
            .try_into()
            .unwrap_or(usize::MAX);
        let may_use = |name: &str| {
            let item = AccessItem::tool(name);
            inbound_policy::may_use(&self.agent, &self.agent_name, &call.principal, item)
        };
        let tools = self.tools.listings(revision.era());
        let tools = tools.filter(|(name, _)| may_use(name));
        let tools: Vec<_> = tools.map(|(_, listing)| listing).collect();
        let rest = tools.get(from..).ok_or_else(invalid_cursor)?;
        let page = rest
            .get(..self.options.page_items_max.max(1))
            .unwrap_or(rest);
        let mut result = RawObject::single("tools", page);
        result.set_some(
            "nextCursor",
            &(page.len() < rest.len()).then(|| encode_cursor(TOOL_CURSOR, from + page.len())),
        );
        Ok(result.to_raw())
    }

    /// Executes `tools/call`.
    pub fn call_tool<'a>(
        &'a self,
        request: &'a McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> BoxFuture<'a, RpcResult> {
        Box::pin(async move {
            let params = &request.params;
            if params.raw().is_none() {
                return Err(params_not_object());
            }
            params.check_object()?;
            let invalid = |why: &str| RpcError::invalid_params(why);
            let name = params
                .text(ParamName::Name)
                .ok_or_else(|| invalid("`name` must be a string, `arguments` an object"))?;
            let arguments = match params.get(ParamName::Arguments) {
                Some(arguments) if !arguments.get().starts_with('{') => {
                    return Err(invalid("`arguments` must be an object"));
                }
                Some(arguments) => Cow::Borrowed(arguments),
                None => Cow::Owned(raw_from_written("{}".into())),
            };
            // Rules would take it for a message of the runtime. An aggregate judges the names of its members.
            if name.starts_with(RESERVED_PREFIX) && !self.agent.authorizes_itself() {
                return Err(invalid(&format!("unknown tool: {}", printable_name(&name))));
            }
            let call = with_purpose(params, call)?;
            if inbound_policy::judges_names(&self.agent, &call.principal)
                && params.raw().is_some_and(has_ambiguous_names)
            {
                return Err(invalid(
                    "a member's name is that of another one but for its case: leave it out",
                ));
            }
            let tool = match self.handles_message(CallTool::NAME) {
                true => None,
                false => {
                    let unknown = || invalid(&format!("unknown tool: {}", printable_name(&name)));
                    Some(self.tools.get(&name, revision.era()).ok_or_else(unknown)?)
                }
            };
            inbound_policy::admit(&self.agent, &self.agent_name, &name, &arguments, &call)
                .await
                .map_err(to_rpc_error)?;
            let (message, payload) = match tool {
                Some(_) => (&*name, arguments.into_owned()),
                None => (CallTool::NAME, strip_hop_params(params, &call.principal)?),
            };
            let outcome = self.send(message, payload, call).await;
            let shape = tool.map_or(ReplyShape::Result, |tool| tool.reply);
            tool_result(outcome, shape, revision)
        })
    }

    /// Executes `resources/read`.
    pub fn read_resource<'a>(
        &'a self,
        request: &'a McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> BoxFuture<'a, RpcResult> {
        if !self.handles_message(ReadResource::NAME) {
            return self.forward(request, revision, call);
        }
        Box::pin(async move {
            let params = &request.params;
            params.check_object()?;
            let call = with_purpose(params, call)?;
            let uri = params
                .text(ParamName::Uri)
                .ok_or_else(|| RpcError::invalid_params("`uri` must be a string"))?;
            let asked = self
                .ask(
                    ReadResource::NAME,
                    strip_hop_params(params, &call.principal)?,
                    call,
                )
                .await;
            asked.map_err(|failure| to_resource_error(failure, revision, &uri))
        })
    }

    /// Executes HMCP's `sampling/createMessage`. In the modern era, params for an agent that isn't
    /// a proxy get the `_meta` member [`MISSING_META_KEY`], which asks the agent to report what its
    /// answer lacks. In the legacy era the client sets it.
    pub fn create_message<'a>(
        &'a self,
        request: &'a McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> BoxFuture<'a, RpcResult> {
        if !self.handles_message(CreateMessage::NAME) {
            return self.forward(request, revision, call);
        }
        Box::pin(async move {
            let call = with_purpose(&request.params, call)?;
            let mut params = strip_hop_params(&request.params, &call.principal)?;
            if revision.era() == Era::Modern && !self.is_proxy {
                let mut members = RawObject::parse(&params).map_err(|_| params_not_object())?;
                let own = members.object("_meta").unwrap_or_default();
                members.set("_meta", own.with(MISSING_META_KEY, true));
                params = members.to_raw();
            }
            self.ask(CreateMessage::NAME, params, call)
                .await
                .map_err(error_mapping::to_rpc)
        })
    }

    /// Sends the agent a message by name and returns its reply. Fails if the inbound policy rejects
    /// the call.
    pub async fn ask(
        &self,
        name: &str,
        body: Box<RawValue>,
        call: CallContext,
    ) -> Result<Box<RawValue>, Failure> {
        inbound_policy::admit(&self.agent, &self.agent_name, name, &body, &call).await?;
        self.send(name, body, call).await
    }

    /// Sends the agent a message that the inbound policy has admitted, and returns its reply. A
    /// call without a deadline gets one: [`InboundOptions::call_deadline`] from now.
    fn send<'a>(
        &'a self,
        name: &'a str,
        payload: Box<RawValue>,
        mut call: CallContext,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'a {
        let deadline = || Instant::now() + self.options.call_deadline;
        call.deadline = call.deadline.or_else(|| Some(deadline()));
        let sent = RawMessage {
            name: name.to_owned(),
            payload,
        };
        inbound_policy::ask(&self.agent, &self.agent_name, name, sent, call)
    }
}

/// Returns the call with the purpose that the request's `_meta` states, if any. The connection
/// determines the principal, but the purpose is the client's own claim.
///
/// # Errors
/// `INVALID_PARAMS` if the purpose isn't a string, is empty or too long.
fn with_purpose(params: &RequestParams, mut call: CallContext) -> Result<CallContext, RpcError> {
    let Some(stated) = params.meta(MetaName::Purpose) else {
        return Ok(call);
    };
    let purpose: Option<String> = serde_json::from_str(stated.get()).ok();
    let fits = |purpose: &String| (1..=meta::PURPOSE_BYTES_MAX).contains(&purpose.len());
    let purpose = purpose.filter(fits).ok_or_else(|| {
        let why = format!(
            "`_meta[\"{}\"]` must be a string of 1 to {} bytes",
            meta::PURPOSE,
            meta::PURPOSE_BYTES_MAX
        );
        RpcError::invalid_params(why)
    })?;
    call.principal = Arc::new(Principal::clone(&call.principal).with_purpose(purpose));
    Ok(call)
}

/// Returns the params as received, without the `_meta` members that concern only the connection to
/// this client, and without a purpose that its credential may not claim: the agent may pass it on
/// under a credential that may.
fn strip_hop_params(
    params: &RequestParams,
    principal: &Principal,
) -> Result<Box<RawValue>, RpcError> {
    let may_claim = || {
        let stated = params.meta(MetaName::Purpose)?;
        let purpose: String = serde_json::from_str(stated.get()).ok()?;
        Some(principal.may_claim_purpose(&purpose))
    };
    match params.raw() {
        None => Ok(raw_from_written("{}".into())),
        Some(untouched)
            if params.get(ParamName::Meta).is_none() && params.check_object().is_ok() =>
        {
            Ok(untouched.to_owned())
        }
        Some(params) => meta::strip_hop_members(params, may_claim().unwrap_or(false))
            .map_err(|_| params_not_object()),
    }
}

/// Returns the position at which the requested page of `list` starts; 0 without a `cursor`.
///
/// # Errors
/// `INVALID_PARAMS` if the cursor is malformed or belongs to another list.
pub(crate) fn parse_cursor(params: &RequestParams, list: &str) -> Result<u64, RpcError> {
    params.check_object()?;
    let Some(cursor) = params.get(ParamName::Cursor) else {
        return Ok(0);
    };
    let read = || {
        let bytes = URL_SAFE_NO_PAD
            .decode(serde_json::from_str::<String>(cursor.get()).ok()?)
            .ok()?;
        std::str::from_utf8(&bytes)
            .ok()?
            .strip_prefix(list)?
            .strip_prefix(':')?
            .parse()
            .ok()
    };
    read().ok_or_else(invalid_cursor)
}

/// Returns the cursor of the page of `list` that starts at `from`.
pub(crate) fn encode_cursor(list: &str, from: impl Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("{list}:{from}"))
}

fn invalid_cursor() -> RpcError {
    RpcError::invalid_params("invalid cursor: request the list again without a cursor")
}

/// Returns a peer's name for use in an error message: without control characters, cut to 80
/// characters.
fn printable_name(name: &str) -> String {
    const CHARS_MAX: usize = 80;
    name.chars()
        .filter(|c| !c.is_control())
        .take(CHARS_MAX)
        .collect()
}

fn to_rpc_error(failure: Failure) -> RpcError {
    to_rpc_or(code::INVALID_PARAMS, failure)
}

/// Converts a failure of `resources/read` to an error. A missing resource gets the code that the
/// revision's era has for it.
fn to_resource_error(failure: Failure, revision: Revision, uri: &str) -> RpcError {
    let missing = failure.kind == FailureKind::NotFound && peer_error(&failure).is_none();
    let mut error = to_rpc_error(failure);
    if missing && revision.era() == Era::Legacy {
        error.code = mcp::RESOURCE_NOT_FOUND_LEGACY;
    }
    if missing && error.data.is_none() {
        error.data = Some(RawObject::single("uri", uri).to_raw());
    }
    error
}
