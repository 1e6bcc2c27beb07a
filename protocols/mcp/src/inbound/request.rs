//! Requests of both eras, parsed once: the method with its properties, and the params that the
//! server itself reads.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use callboard_message::capabilities::{
    CompleteArgument, CreateMessage, GetPrompt, ListPrompts, ListResourceTemplates, ListResources,
    ListTools, ReadResource,
};
use callboard_message::json::{RawCursor, raw_ref, text};
use callboard_message::{Message, RawMembers, RawObject, TraceContext};
use callboard_rpc::{self as rpc, RequestId, RpcError, RpcMessage, RpcNotification, RpcResponse};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::options::{CacheHint, ModernOptions};
use crate::wire::code::OVERLOADED;
use crate::wire::{hmcp, meta};

/// Methods of requests that this server knows, of both eras and of the extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum McpMethod {
    Initialize,
    Ping,
    SetLevel,
    Subscribe,
    Unsubscribe,
    Discover,
    Listen,
    CallTool,
    ListTools,
    ListResources,
    ListResourceTemplates,
    ReadResource,
    ListPrompts,
    GetPrompt,
    Complete,
    /// `sampling/createMessage` from a client, as HMCP defines.
    CreateMessage,
    GetTask,
    TaskResult,
    ListTasks,
    UpdateTask,
    CancelTask,
    /// Any other method, which a proxy may forward.
    Other,
}

/// Methods by name: one row for each of [`McpMethod`], except for `Other`.
const METHODS: [(&str, McpMethod); 21] = [
    ("tools/call", McpMethod::CallTool),
    ("tools/list", McpMethod::ListTools),
    ("initialize", McpMethod::Initialize),
    ("ping", McpMethod::Ping),
    ("logging/setLevel", McpMethod::SetLevel),
    ("resources/subscribe", McpMethod::Subscribe),
    ("resources/unsubscribe", McpMethod::Unsubscribe),
    ("server/discover", McpMethod::Discover),
    ("subscriptions/listen", McpMethod::Listen),
    ("resources/list", McpMethod::ListResources),
    ("resources/templates/list", McpMethod::ListResourceTemplates),
    ("resources/read", McpMethod::ReadResource),
    ("prompts/list", McpMethod::ListPrompts),
    ("prompts/get", McpMethod::GetPrompt),
    ("completion/complete", McpMethod::Complete),
    (hmcp::METHOD, McpMethod::CreateMessage),
    ("tasks/get", McpMethod::GetTask),
    ("tasks/result", McpMethod::TaskResult),
    ("tasks/list", McpMethod::ListTasks),
    ("tasks/update", McpMethod::UpdateTask),
    ("tasks/cancel", McpMethod::CancelTask),
];

/// Returns the names of the methods that a server knows, of both eras. Each era has its own table of
/// them, and refuses or forwards those of the other.
#[doc(hidden)]
pub fn method_names() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(|(name, _)| *name)
}

impl McpMethod {
    fn parse(name: &str) -> Self {
        let found = METHODS.iter().find(|(known, _)| *known == name);
        found.map_or(Self::Other, |(_, method)| *method)
    }

    /// Returns the name of the message by which an agent executes the method; `None` if no single
    /// message stands for it.
    pub fn agent_message(self) -> Option<&'static str> {
        Some(match self {
            Self::ListTools => ListTools::NAME,
            Self::ListResources => ListResources::NAME,
            Self::ListResourceTemplates => ListResourceTemplates::NAME,
            Self::ReadResource => ReadResource::NAME,
            Self::ListPrompts => ListPrompts::NAME,
            Self::GetPrompt => GetPrompt::NAME,
            Self::Complete => CompleteArgument::NAME,
            Self::CreateMessage => CreateMessage::NAME,
            _ => return None,
        })
    }

    /// Returns the param that clients of 2026-07-28 repeat in the header `Mcp-Name`, and whether
    /// they must. Extensions leave the header to the client.
    pub fn repeated_param(self) -> Option<(ParamName, bool)> {
        match self {
            Self::CallTool | Self::GetPrompt => Some((ParamName::Name, true)),
            Self::ReadResource => Some((ParamName::Uri, true)),
            Self::GetTask | Self::UpdateTask | Self::CancelTask => Some((ParamName::TaskId, false)),
            _ => None,
        }
    }

    /// Returns the cache hint for results of the method in the modern era; `None` if the
    /// specification defines no caching for it.
    pub fn cache_hint(self, options: &ModernOptions) -> Option<CacheHint> {
        match self {
            Self::Discover => Some(options.discover_cache),
            Self::ListTools
            | Self::ListPrompts
            | Self::ListResources
            | Self::ListResourceTemplates => Some(options.list_cache),
            Self::ReadResource => Some(options.read_cache),
            _ => None,
        }
    }
}

/// JSON-RPC message from a client. Of a request, the method and params are parsed.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each request an allocation"
)]
pub(crate) enum ClientMessage<'a> {
    /// A request and its id.
    Request(RequestId, McpRequest),
    Notification(RpcNotification<'a>),
    Response(RpcResponse<'a>),
}

impl<'a> From<RpcMessage<'a>> for ClientMessage<'a> {
    fn from(message: RpcMessage<'a>) -> Self {
        match message {
            RpcMessage::Request(rpc::RpcRequest { id, method, params }) => {
                Self::Request(id, McpRequest::new(method, params.map(RawValue::to_owned)))
            }
            RpcMessage::Notification(notification) => Self::Notification(notification),
            RpcMessage::Response(response) => Self::Response(response),
        }
    }
}

impl ClientMessage<'_> {
    /// Returns true if the message's `_meta` names a protocol revision, as only messages of the
    /// modern era do.
    pub fn is_modern(&self) -> bool {
        match self {
            Self::Request(_, request) => request.params.protocol_version().is_some(),
            Self::Notification(notification) => {
                let find = |params, member: &str| {
                    let value = RawCursor::object(params)?.find(|(name, _)| name == member);
                    value.map(|(_, value)| value)
                };
                let meta = notification.params.and_then(|params| find(params, "_meta"));
                let version = meta.and_then(|meta| find(meta, meta::PROTOCOL_VERSION));
                version.and_then(text).is_some()
            }
            Self::Response(_) => false,
        }
    }
}

/// MCP request without its id. It owns its params, because its execution may outlive the message's
/// buffer.
#[derive(Clone)]
pub(crate) struct McpRequest {
    /// Name of the method as received.
    pub name: String,
    pub method: McpMethod,
    pub params: RequestParams,
}

impl McpRequest {
    pub fn new(name: impl Into<String>, params: Option<Box<RawValue>>) -> Self {
        let name = name.into();
        Self {
            method: McpMethod::parse(&name),
            name,
            params: RequestParams::parse(params),
        }
    }
}

/// Params of a request as JSON text, with the positions of the members in [`PARAM_NAMES`] and, of
/// `_meta`, in [`META_NAMES`].
#[derive(Clone, Default)]
pub(crate) struct RequestParams {
    raw: Option<Box<RawValue>>,
    /// Byte ranges of the members' values in `raw`, in the order of [`PARAM_NAMES`].
    ranges: MemberRanges<{ PARAM_NAMES.len() }>,
    /// Byte ranges of the values of `_meta`'s members in `raw`, in the order of [`META_NAMES`].
    meta_ranges: MemberRanges<{ META_NAMES.len() }>,
    /// True if `_meta` is an object whose members have different names.
    is_meta_valid: bool,
    /// Trace context that came beside the message, in a header.
    header_trace: Option<TraceContext>,
}

type MemberRanges<const N: usize> = [Option<Range<usize>>; N];

/// Names of the params that the server itself reads, in the order of [`ParamName`].
const PARAM_NAMES: [&str; 11] = [
    "_meta",
    "name",
    "arguments",
    "uri",
    "cursor",
    "level",
    "notifications",
    "taskId",
    "task",
    "inputResponses",
    "requestState",
];

/// A param that the server itself reads.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum ParamName {
    Meta,
    Name,
    Arguments,
    Uri,
    Cursor,
    Level,
    Notifications,
    TaskId,
    Task,
    InputResponses,
    RequestState,
}

/// Names of the members of `_meta` that the server itself reads, in the order of [`MetaName`].
const META_NAMES: [&str; 8] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::LOG_LEVEL,
    meta::PROGRESS_TOKEN,
    meta::TRACEPARENT,
    meta::HOPS,
    meta::PURPOSE,
    IDEMPOTENCY_KEY_META,
];

/// Member of `_meta` with the idempotency key of a tool call: a string.
pub(crate) const IDEMPOTENCY_KEY_META: &str = "callboard/key";

/// Member of `_meta` that the server itself reads.
#[derive(Clone, Copy)]
pub(crate) enum MetaName {
    ProtocolVersion,
    ClientCapabilities,
    LogLevel,
    ProgressToken,
    Traceparent,
    Hops,
    Purpose,
    IdempotencyKey,
}

/// Returns the byte ranges of the values of an object's members, counted from the text that begins
/// at the address `begins`. All are `None` if it isn't an object.
fn locate_members<const N: usize>(
    object: &RawValue,
    names: &[&str; N],
    begins: usize,
) -> MemberRanges<N> {
    let mut ranges = [const { None }; N];
    for (name, value) in RawCursor::object(object).into_iter().flatten() {
        if let Some(at) = names.iter().position(|member| *member == name) {
            let from = value.get().as_ptr() as usize - begins;
            ranges[at] = Some(from..from + value.get().len());
        }
    }
    ranges
}

impl RequestParams {
    /// Locates the members in [`PARAM_NAMES`] and [`META_NAMES`]. Params that aren't an object have
    /// none; [`Self::check_object`] rejects them.
    fn parse(raw: Option<Box<RawValue>>) -> Self {
        let begins = raw.as_deref().map_or(0, |raw| raw.get().as_ptr() as usize);
        let ranges = raw
            .as_deref()
            .map(|params| locate_members(params, &PARAM_NAMES, begins));
        let mut params = Self {
            ranges: ranges.unwrap_or_default(),
            raw,
            ..Self::default()
        };
        if let Some(meta) = params.get(ParamName::Meta) {
            let is_valid = RawMembers::parse(meta).is_ok();
            params.meta_ranges = locate_members(meta, &META_NAMES, begins);
            params.is_meta_valid = is_valid;
        }
        params
    }

    /// Returns a member of `_meta` as received; `None` if `_meta` isn't valid.
    pub fn meta(&self, member: MetaName) -> Option<&RawValue> {
        self.located(&self.meta_ranges[member as usize])
            .filter(|_| self.is_meta_valid)
    }

    /// Returns true if `_meta` is an object whose members have different names.
    pub fn is_meta_valid(&self) -> bool {
        self.is_meta_valid
    }

    /// Returns the protocol revision that `_meta` names, even if `_meta` isn't valid.
    pub fn protocol_version(&self) -> Option<Cow<'_, str>> {
        text(self.located(&self.meta_ranges[MetaName::ProtocolVersion as usize])?)
    }

    /// Sets the trace context of the request's HTTP header, which counts if `_meta` has none.
    pub fn set_header_trace(&mut self, trace: Option<TraceContext>) {
        self.header_trace = trace;
    }

    /// Returns the trace context of the request: a child of the `traceparent` in `_meta`, else of
    /// that of its header, or a new trace (W3C, section 2.3).
    pub fn trace(&self) -> TraceContext {
        let sent: Option<TraceContext> = match self.meta(MetaName::Traceparent) {
            Some(sent) => serde_json::from_str(sent.get()).ok(),
            None => self.header_trace,
        };
        sent.as_ref()
            .map_or_else(TraceContext::root, TraceContext::child)
    }

    /// Returns the number of agents through which the request has passed, as `_meta` says; 0 if it
    /// says none.
    pub fn hops(&self) -> u16 {
        let said = self.meta(MetaName::Hops);
        said.and_then(|hops| serde_json::from_str(hops.get()).ok())
            .unwrap_or_default()
    }

    fn located(&self, range: &Option<Range<usize>>) -> Option<&RawValue> {
        self.raw()?.get().get(range.clone()?).map(raw_ref)
    }

    /// Returns the value of a member as received. `null` counts as missing for members before
    /// [`ParamName::Task`], but as a value for the others.
    pub fn get(&self, member: ParamName) -> Option<&RawValue> {
        self.located(&self.ranges[member as usize])
            .filter(|value| member >= ParamName::Task || value.get() != "null")
    }

    /// Returns all params as received.
    pub fn raw(&self) -> Option<&RawValue> {
        self.raw.as_deref()
    }

    /// Returns the value of a member that is a string.
    pub fn text(&self, member: ParamName) -> Option<Cow<'_, str>> {
        text(self.get(member)?)
    }

    /// Checks that the params, if any, are an object.
    ///
    /// # Errors
    /// `INVALID_PARAMS` if they aren't.
    pub fn check_object(&self) -> Result<(), RpcError> {
        match &self.raw {
            Some(raw) if !raw.get().starts_with('{') => Err(params_not_object()),
            _ => Ok(()),
        }
    }

    /// Returns the params without a member.
    pub fn without(&self, member: ParamName) -> Self {
        let members = self.raw().and_then(|raw| RawObject::parse(raw).ok());
        let mut members = members.unwrap_or_default();
        members.remove(PARAM_NAMES[member as usize]);
        Self::parse(Some(members.to_raw()))
    }
}

pub(crate) fn params_not_object() -> RpcError {
    RpcError::invalid_params("`params` must be an object")
}

/// Parses the params of a notification or handshake; missing params are an empty object.
///
/// # Errors
/// `INVALID_PARAMS` if they aren't an object.
pub(crate) fn parse_params_object(params: Option<&RawValue>) -> Result<RawObject, RpcError> {
    params.map_or(Ok(RawObject::new()), |raw| {
        RawObject::parse(raw).map_err(|_| params_not_object())
    })
}

/// Running requests of one peer, by id, so that they can be cancelled.
pub(crate) struct RunningRequests {
    /// Cancellation tokens of the running requests; `None` after [`Self::close`].
    by_id: Mutex<Option<HashMap<RequestId, CancellationToken>>>,
    requests_max: usize,
}

/// Registration of a running request; ends when dropped.
pub(crate) struct RunningRequest<'a> {
    requests: &'a RunningRequests,
    id: &'a RequestId,
}

impl RunningRequests {
    pub fn new(requests_max: usize) -> Self {
        Self {
            by_id: Mutex::new(Some(HashMap::new())),
            requests_max,
        }
    }

    /// Registers a request as running until the returned guard is dropped. `cancel` is cancelled by
    /// [`Self::cancel`] and [`Self::close`].
    ///
    /// # Errors
    /// `INVALID_REQUEST` if a request with that id is running or the session is closed,
    /// `OVERLOADED` if too many are running.
    pub fn register<'a>(
        &'a self,
        id: &'a RequestId,
        cancel: &CancellationToken,
    ) -> Result<RunningRequest<'a>, RpcError> {
        let mut by_id = self.by_id.lock();
        let running = by_id.as_mut().ok_or_else(|| {
            RpcError::invalid_request("the session is closed: begin another one with `initialize`")
        })?;
        if running.contains_key(id) {
            return Err(RpcError::invalid_request(
                "a request with that `id` is running: use another id",
            ));
        }
        if running.len() >= self.requests_max {
            return Err(RpcError::new(
                OVERLOADED,
                format!(
                    "{} requests of this session are running, which is the limit: wait for one to end",
                    self.requests_max
                ),
            ));
        }
        running.insert(id.clone(), cancel.clone());
        Ok(RunningRequest { requests: self, id })
    }

    /// Cancels the request named by the params of `notifications/cancelled`. Returns false if no
    /// such request is running.
    pub fn cancel(&self, params: Option<&RawValue>) -> bool {
        let id = parse_params_object(params)
            .ok()
            .and_then(|params| RequestId::from_raw(params.get("requestId")?));
        let cancel = id.and_then(|id| self.by_id.lock().as_ref()?.get(&id).cloned());
        cancel.inspect(CancellationToken::cancel).is_some()
    }

    /// Cancels all running requests. Further registrations fail.
    pub fn close(&self) {
        let all = self.by_id.lock().take().unwrap_or_default();
        all.values().for_each(CancellationToken::cancel);
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        if let Some(running) = &mut *self.requests.by_id.lock() {
            running.remove(self.id);
        }
    }
}
