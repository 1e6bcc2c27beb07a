//! What an agent shows over MCP, without any connection: its lists, its tools, its resources and prompts.

use super::request::{Member, Method, Params, Request, no_object};
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::json::{quote, raw};
use callboard_message::surface::{
    About, CallTool, Complete, CreateMessage, Describe, Forward, GetPrompt, ListPrompts,
    ListResourceTemplates, ListResources, ListTools, MISSING, ReadResource, Subscribe,
};
use callboard_message::{Failure, FailureKind, Message, Named, Principal, RawObject, ToolResult};
use callboard_rpc::{RpcError, code};
use callboard_runtime::{AgentRef, CallMeta, OnRestart, inward};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::options::InboundOptions;
use super::tools::{Reply, TaskSupport, Tools};
use crate::wire::failure::{sent_by_peer, to_rpc_or};
use crate::wire::header::HeaderParam;
use crate::wire::{Era, Revision, code as mcp, failure, hmcp, meta};

/// The list of tools, in cursors.
const TOOLS: &str = "from";

/// What a request comes to: its result, or its error.
pub(crate) type Outcome = Result<Box<RawValue>, RpcError>;

/// An agent as an MCP server, as far as no connection matters.
pub(crate) struct AgentAdapter {
    pub agent: AgentRef,
    /// What the policy and the log know the agent by.
    pub agent_name: String,
    /// The reserved messages that it handles.
    handles: Vec<String>,
    /// Its message types as tools; none where it lists its tools itself.
    tools: Tools,
    /// Takes any message by name: stands for something outside.
    outside: bool,
    options: Arc<InboundOptions>,
}

impl AgentAdapter {
    pub fn new(agent: AgentRef, options: Arc<InboundOptions>) -> Self {
        let specs = agent.specs();
        let handles = specs.iter().map(|s| s.name.clone()).collect();
        let (agent_name, outside) = (agent.to_string(), agent.is_outside());
        Self {
            agent,
            agent_name,
            handles,
            tools: Tools::of(specs),
            outside,
            options,
        }
    }

    fn handles(&self, message: &str) -> bool {
        self.outside || self.handles.iter().any(|name| name == message)
    }

    /// Whether the agent lists and calls tools itself, in place of its message types.
    fn lists_tools(&self) -> bool {
        self.handles(ListTools::NAME)
    }

    /// Whether a tool may run as a task. A tool that the agent lists itself says so there: `Forbidden` here.
    pub fn task_support(&self, tool: &str) -> TaskSupport {
        self.tools
            .get(tool, Era::Legacy)
            .map_or(TaskSupport::Forbidden, |tool| tool.task)
    }

    /// What becomes of a tool's task where the process ends in the midst of it.
    pub fn on_restart(&self, tool: &str) -> OnRestart {
        self.tools
            .get(tool, Era::Legacy)
            .map_or(OnRestart::Fail, |tool| tool.on_restart)
    }

    /// The arguments of a tool that headers repeat. None of a tool that the agent lists itself: its schema isn't known here.
    pub fn header_params(&self, tool: &str) -> &[HeaderParam] {
        self.tools
            .get(tool, Era::Modern)
            .map_or(&[], |tool| &tool.header_params)
    }

    /// Whether any tool may run as a task.
    pub fn has_task_tools(&self) -> bool {
        !self.lists_tools() && self.tools.has_tasks
    }

    /// Tells the agent that somebody watches a resource, where it wants to know.
    pub async fn subscribe(&self, uri: &str, call: CallMeta) -> Result<(), RpcError> {
        if !self.handles(Subscribe::NAME) {
            return Ok(());
        }
        let body = RawObject::of("uri", uri).to_raw();
        self.ask(Subscribe::NAME, body, call)
            .await
            .map(drop)
            .map_err(error)
    }

    /// What the agent says of itself, where it does.
    pub async fn about(&self, call: CallMeta) -> About {
        if !self.handles(Describe::NAME) {
            return About::default();
        }
        self.ask(Describe::NAME, RawObject::new().to_raw(), call)
            .await
            .ok()
            .and_then(|raw| RawObject::parse(&raw).ok())
            .map(About)
            .unwrap_or_default()
    }

    /// MCP's server capabilities, without those of an era's own (tasks, extensions).
    pub fn capabilities(&self, about: &About) -> RawObject {
        if let Some(mut theirs) = about.0.object("capabilities") {
            // It can't know what this protocol calls that; what stands for something outside says it itself.
            if self.handles.iter().any(|name| name == CreateMessage::NAME) {
                hmcp::advertise(&mut theirs);
            }
            return theirs;
        }
        let changing = || RawObject::of("listChanged", true);
        let mut can = RawObject::of("logging", RawObject::new());
        if self.lists_tools() || !self.tools.is_empty() {
            can.set("tools", changing());
        }
        if self.has_resources() {
            can.set(
                "resources",
                RawObject::of("subscribe", true).with("listChanged", true),
            );
        }
        if self.handles(ListPrompts::NAME) {
            can.set("prompts", changing());
        }
        if self.handles(Complete::NAME) {
            can.set("completions", RawObject::new());
        }
        if self.handles(CreateMessage::NAME) {
            hmcp::advertise(&mut can);
        }
        can
    }

    /// Whether there can be resources.
    pub fn has_resources(&self) -> bool {
        self.handles(ListResources::NAME) || self.handles(ReadResource::NAME)
    }

    /// Does a request that both eras have: lists, `tools/call`, `resources/read`, `prompts/get`, `completion/complete`.
    ///
    /// # Errors
    /// `METHOD_NOT_FOUND` for any other, unless the agent stands for something outside, which is asked.
    pub async fn perform(&self, request: &Request, revision: Revision, call: CallMeta) -> Outcome {
        let params = &request.params;
        let message = match request.method {
            Method::CallTool => return self.call_tool(params, revision, call).await,
            Method::ListTools if !self.lists_tools() => return self.own_tools(params, revision),
            Method::ListTools => Some(ListTools::NAME),
            Method::ListResources => Some(ListResources::NAME),
            Method::ListResourceTemplates => Some(ListResourceTemplates::NAME),
            Method::ReadResource => Some(ReadResource::NAME),
            Method::ListPrompts => Some(ListPrompts::NAME),
            Method::GetPrompt => Some(GetPrompt::NAME),
            Method::CreateMessage => Some(CreateMessage::NAME),
            Method::Complete => Some(Complete::NAME),
            _ => None,
        };
        match (
            request.method,
            message.filter(|message| self.handles(message)),
        ) {
            (Method::ReadResource, Some(_)) => self.read_resource(params, revision, call).await,
            (Method::CreateMessage, Some(_)) => self.create_message(params, revision, call).await,
            (_, Some(message)) => self
                .ask(message, without_hop(params)?, call)
                .await
                .map_err(error),
            // Whoever can be read but not listed has an empty list.
            (Method::ListResources, None) if self.handles(ReadResource::NAME) => {
                Ok(raw(r#"{"resources":[]}"#.into()))
            }
            (Method::ListResourceTemplates, None) if self.handles(ReadResource::NAME) => {
                Ok(raw(r#"{"resourceTemplates":[]}"#.into()))
            }
            _ if self.handles(Forward::NAME) => {
                let body =
                    RawObject::of("method", &request.name).with("params", without_hop(params)?);
                self.ask(Forward::NAME, body.to_raw(), call)
                    .await
                    .map_err(error)
            }
            _ => Err(RpcError::method_not_found(format!(
                "method not found: {}",
                printable(&request.name)
            ))),
        }
    }

    fn own_tools(&self, params: &Params, revision: Revision) -> Outcome {
        let from = page_start(params, TOOLS)?.try_into().unwrap_or(usize::MAX);
        let tools: Vec<_> = self.tools.listed(revision.era()).collect();
        let rest = tools.get(from..).ok_or_else(invalid_cursor)?;
        let page = rest
            .get(..self.options.page_items_max.max(1))
            .unwrap_or(rest);
        let mut result = RawObject::of("tools", page);
        result.set_some(
            "nextCursor",
            &(page.len() < rest.len()).then(|| cursor(TOOLS, from + page.len())),
        );
        Ok(result.to_raw())
    }

    async fn call_tool(&self, params: &Params, revision: Revision, call: CallMeta) -> Outcome {
        let (name, arguments) = params.tool_call()?;
        let call = for_purpose(params, call)?;
        let arguments = arguments.map_or_else(|| Cow::Owned(raw("{}".into())), Cow::Borrowed);
        let tool = match self.handles(CallTool::NAME) {
            true => None,
            false => Some(self.tools.get(&name, revision.era()).ok_or_else(|| {
                RpcError::invalid_params(format!("unknown tool: {}", printable(&name)))
            })?),
        };
        inward::admit(&self.agent, &self.agent_name, &name, &arguments, &call)
            .await
            .map_err(error)?;
        let (message, payload) = match tool {
            Some(_) => (&*name, arguments.into_owned()),
            None => (CallTool::NAME, without_hop(params)?),
        };
        match self.ask_admitted(message, payload, call).await {
            Ok(reply) => Ok(tool_result(
                reply,
                tool.map_or(Reply::Result, |tool| tool.reply),
                revision.era(),
            )),
            Err(failure) => tool_failure(failure, revision),
        }
    }

    async fn read_resource(&self, params: &Params, revision: Revision, call: CallMeta) -> Outcome {
        params.check_object()?;
        let uri = params
            .uri()
            .ok_or_else(|| RpcError::invalid_params("`uri` must be a string"))?;
        let asked = self
            .ask(ReadResource::NAME, without_hop(params)?, call)
            .await;
        asked.map_err(|failure| resource_error(failure, revision, &uri))
    }

    /// HMCP: the agent answers as a model does. A client of the stateless era is told by name what an answer lacks; one
    /// of the legacy era where it asks for that.
    async fn create_message(&self, params: &Params, revision: Revision, call: CallMeta) -> Outcome {
        let call = for_purpose(params, call)?;
        let mut params = without_hop(params)?;
        if revision.era() == Era::Modern && !self.outside {
            let mut members = RawObject::parse(&params).map_err(|_| no_object())?;
            let own = members.object("_meta").unwrap_or_default();
            members.set("_meta", own.with(MISSING, true));
            params = members.to_raw();
        }
        self.ask(CreateMessage::NAME, params, call)
            .await
            .map_err(failure::to_rpc)
    }

    /// Asks the agent by a message's name, if the policy lets the call in.
    pub async fn ask(
        &self,
        name: &str,
        body: Box<RawValue>,
        call: CallMeta,
    ) -> Result<Box<RawValue>, Failure> {
        inward::admit(&self.agent, &self.agent_name, name, &body, &call).await?;
        self.ask_admitted(name, body, call).await
    }

    /// Asks until the call's deadline; one that has none gets the usual.
    async fn ask_admitted(
        &self,
        name: &str,
        payload: Box<RawValue>,
        call: CallMeta,
    ) -> Result<Box<RawValue>, Failure> {
        let deadline = call
            .deadline
            .unwrap_or_else(|| Instant::now() + self.options.call_deadline);
        let sent = Named {
            name: name.to_owned(),
            payload,
        };
        // It gives up at the call's deadline by itself.
        inward::ask(
            &self.agent,
            &self.agent_name,
            name,
            sent,
            call.until(deadline),
        )
        .await
    }
}

/// The call, for the purpose that its `_meta` states. Who asks comes from the connection; why, the asker says.
fn for_purpose(params: &Params, mut call: CallMeta) -> Result<CallMeta, RpcError> {
    let Some(stated) = params.meta_member(meta::PURPOSE) else {
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
    call.principal = Arc::new(Principal::clone(&call.principal).for_purpose(purpose));
    Ok(call)
}

/// The params as they are written, without what belongs to this hop.
fn without_hop(params: &Params) -> Result<Box<RawValue>, RpcError> {
    match params.raw() {
        None => Ok(raw("{}".into())),
        Some(untouched) if params.get(Member::Meta).is_none() && params.check_object().is_ok() => {
            Ok(untouched.to_owned())
        }
        Some(params) => meta::without_hop(params).map_err(|_| no_object()),
    }
}

/// Where the page begins that the `cursor` of a list's params names: 0 where there is none.
pub(crate) fn page_start(params: &Params, list: &str) -> Result<u64, RpcError> {
    params.check_object()?;
    let Some(cursor) = params.get(Member::Cursor) else {
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

/// The cursor of a list's page that begins there.
pub(crate) fn cursor(list: &str, from: impl Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("{list}:{from}"))
}

fn invalid_cursor() -> RpcError {
    RpcError::invalid_params("invalid cursor: begin the list again without one")
}

/// A peer's name for something, fit to be repeated to it.
fn printable(name: &str) -> String {
    const CHARS_MAX: usize = 80;
    name.chars()
        .filter(|c| !c.is_control())
        .take(CHARS_MAX)
        .collect()
}

/// The result of `tools/call`, from a reply.
fn tool_result(reply: Box<RawValue>, shape: Reply, era: Era) -> Box<RawValue> {
    let structured = match shape {
        Reply::Result => return reply,
        Reply::Nothing => return raw(r#"{"content":[]}"#.to_owned()),
        Reply::Value if era == Era::Legacy => {
            Cow::Owned(format!(r#"{{"result":{}}}"#, reply.get()))
        }
        Reply::Object | Reply::Value => Cow::Borrowed(reply.get()),
    };
    // The text is the reply itself where that is a string, else its JSON.
    let text = match reply.get().starts_with('"') {
        true => Cow::Borrowed(reply.get()),
        false => Cow::Owned(quote(reply.get())),
    };
    let parts = [
        r#"{"content":[{"type":"text","text":"#,
        &text,
        r#"}],"structuredContent":"#,
        &structured,
        "}",
    ];
    raw(parts.concat())
}

/// What a failed tool says: most failures are the tool's own word to the model; what no retry mends is an error.
///
/// # Errors
/// Where it is the protocol's or the policy's word.
fn tool_failure(failure: Failure, revision: Revision) -> Result<Box<RawValue>, RpcError> {
    let of_protocol = match failure.kind {
        FailureKind::Blocked | FailureKind::Denied | FailureKind::Cancelled => true,
        // Since 2025-11-25 a model is told what is wrong with its arguments.
        FailureKind::InvalidInput => revision < Revision::V2025_11_25,
        // A client that can't be asked what the tool needs is told so by the modern era's own code.
        FailureKind::NobodyToAsk => {
            let data = failure.data.as_ref();
            revision.era() == Era::Modern
                && data.is_some_and(|data| data.get(REQUIRED_CAPABILITIES).is_some())
        }
        _ => false,
    };
    if of_protocol || sent_by_peer(&failure).is_some() {
        return Err(error(failure));
    }
    let shown = match failure.kind {
        FailureKind::Internal => "internal error".to_owned(),
        _ => failure.message,
    };
    let mut ours = RawObject::of("kind", failure.kind);
    ours.set_some(
        "data",
        &failure
            .data
            .filter(|_| failure.kind != FailureKind::Internal),
    );
    let result = ToolResult::error(shown)
        .0
        .with("_meta", RawObject::of(meta::FAILURE, ours));
    Ok(result.to_raw())
}

/// Member of a failure's data: what a client would have to declare to be asked.
pub(crate) const REQUIRED_CAPABILITIES: &str = "requiredCapabilities";

/// A failure as an error.
fn error(failure: Failure) -> RpcError {
    to_rpc_or(code::INVALID_PARAMS, failure)
}

/// The error of `resources/read` for an address that nothing has.
fn resource_error(failure: Failure, revision: Revision, uri: &str) -> RpcError {
    let missing = failure.kind == FailureKind::NotFound && sent_by_peer(&failure).is_none();
    let mut error = error(failure);
    if missing && revision.era() == Era::Legacy {
        error.code = mcp::RESOURCE_NOT_FOUND_LEGACY;
    }
    if missing && error.data.is_none() {
        error.data = Some(RawObject::of("uri", uri).to_raw());
    }
    error
}
