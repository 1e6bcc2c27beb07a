//! Requests of both eras, parsed once: the method, and the params that the server itself reads.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use callboard_message::RawObject;
use callboard_message::json::{RawCursor, raw_ref, text};
use callboard_rpc::{self as rpc, RequestId, RpcError, RpcMessage, RpcNotification, RpcResponse};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::wire::code::OVERLOADED;
use crate::wire::hmcp;
use crate::wire::meta::PROTOCOL_VERSION;

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

impl McpMethod {
    fn parse(name: &str) -> Self {
        match name {
            "initialize" => Self::Initialize,
            "ping" => Self::Ping,
            "logging/setLevel" => Self::SetLevel,
            "resources/subscribe" => Self::Subscribe,
            "resources/unsubscribe" => Self::Unsubscribe,
            "server/discover" => Self::Discover,
            "subscriptions/listen" => Self::Listen,
            "tools/call" => Self::CallTool,
            "tools/list" => Self::ListTools,
            "resources/list" => Self::ListResources,
            "resources/templates/list" => Self::ListResourceTemplates,
            "resources/read" => Self::ReadResource,
            "prompts/list" => Self::ListPrompts,
            "prompts/get" => Self::GetPrompt,
            "completion/complete" => Self::Complete,
            hmcp::METHOD => Self::CreateMessage,
            "tasks/get" => Self::GetTask,
            "tasks/result" => Self::TaskResult,
            "tasks/list" => Self::ListTasks,
            "tasks/update" => Self::UpdateTask,
            "tasks/cancel" => Self::CancelTask,
            _ => Self::Other,
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
        let meta = match self {
            Self::Request(_, request) => request.params.get(ParamName::Meta),
            Self::Notification(notification) => notification.params.and_then(find_meta),
            Self::Response(_) => None,
        };
        meta.is_some_and(|meta| version_in_meta(meta).is_some())
    }
}

fn find_meta(params: &RawValue) -> Option<&RawValue> {
    RawCursor::object(params)?.find_map(|(name, value)| (name == "_meta").then_some(value))
}

/// MCP request without its id. It owns its params, because its execution may outlive the message's
/// buffer.
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

/// Params of a request as JSON text, with the positions of the members in [`PARAM_NAMES`].
#[derive(Default)]
pub(crate) struct RequestParams {
    raw: Option<Box<RawValue>>,
    /// Byte ranges of the members' values in `raw`, in the order of [`PARAM_NAMES`].
    ranges: [Option<Range<usize>>; PARAM_NAMES.len()],
}

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

impl RequestParams {
    /// Locates the members in [`PARAM_NAMES`]. Params that aren't an object have none;
    /// [`Self::check_object`] rejects them.
    fn parse(raw: Option<Box<RawValue>>) -> Self {
        let mut ranges = [const { None }; PARAM_NAMES.len()];
        if let Some(params) = raw.as_deref() {
            let begins = params.get().as_ptr() as usize;
            for (name, value) in RawCursor::object(params).into_iter().flatten() {
                if let Some(at) = PARAM_NAMES.iter().position(|member| *member == name) {
                    let from = value.get().as_ptr() as usize - begins;
                    ranges[at] = Some(from..from + value.get().len());
                }
            }
        }
        Self { raw, ranges }
    }

    /// Returns the value of a member as received. `null` counts as missing for members before
    /// [`ParamName::Task`], but as a value for the others.
    pub fn get(&self, member: ParamName) -> Option<&RawValue> {
        let place = self.ranges[member as usize].clone()?;
        let value = self
            .raw()?
            .get()
            .get(place)
            .filter(|value| member >= ParamName::Task || *value != "null")?;
        Some(raw_ref(value))
    }

    /// Returns all params as received.
    pub fn raw(&self) -> Option<&RawValue> {
        self.raw.as_deref()
    }

    pub fn name(&self) -> Option<Cow<'_, str>> {
        text(self.get(ParamName::Name)?)
    }

    pub fn uri(&self) -> Option<Cow<'_, str>> {
        text(self.get(ParamName::Uri)?)
    }

    pub fn task_id(&self) -> Option<Cow<'_, str>> {
        text(self.get(ParamName::TaskId)?)
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

    /// Returns the value of the member `name` of `_meta`; `None` if it is missing. `_meta` is
    /// parsed only if its text contains the name.
    pub fn meta_member(&self, name: &str) -> Option<Box<RawValue>> {
        RawObject::parse(
            self.get(ParamName::Meta)
                .filter(|meta| meta.get().contains(name))?,
        )
        .ok()?
        .remove(name)
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

/// Returns the protocol revision that `_meta` names.
pub(crate) fn version_in_meta(meta: &RawValue) -> Option<String> {
    let (_, version) = RawCursor::object(meta)?.find(|(name, _)| name == PROTOCOL_VERSION)?;
    text(version).map(Cow::into_owned)
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
        let running = by_id
            .as_mut()
            .ok_or_else(|| RpcError::invalid_request("the session is closed"))?;
        if running.contains_key(id) {
            return Err(RpcError::invalid_request(
                "a request with that `id` is running",
            ));
        }
        if running.len() >= self.requests_max {
            return Err(RpcError::new(
                OVERLOADED,
                "too many requests of this session are running",
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
