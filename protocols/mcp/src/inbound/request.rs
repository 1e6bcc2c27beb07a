//! Requests of both eras, parsed once: the method, and the members of the params that the server looks at itself.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use callboard_message::RawObject;
use callboard_message::json::{Walk, raw_ref, text};
use callboard_rpc::{self as rpc, Id, Incoming, Notification, Response, RpcError};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::wire::code::OVERLOADED;
use crate::wire::hmcp;
use crate::wire::meta::PROTOCOL_VERSION;

/// Methods with a handler here, of both eras and of the extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
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
    /// HMCP's.
    CreateMessage,
    GetTask,
    TaskResult,
    ListTasks,
    UpdateTask,
    CancelTask,
    /// Any other: an agent that stands for something outside may know it.
    Other,
}

impl Method {
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

/// One message of a client's, its request parsed.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each request an allocation"
)]
pub(crate) enum Message<'a> {
    /// With its id.
    Request(Id, Request),
    Notification(Notification<'a>),
    Response(Response<'a>),
}

impl<'a> From<Incoming<'a>> for Message<'a> {
    fn from(message: Incoming<'a>) -> Self {
        match message {
            Incoming::Request(rpc::Request { id, method, params }) => {
                Self::Request(id, Request::new(method, params.map(RawValue::to_owned)))
            }
            Incoming::Notification(notification) => Self::Notification(notification),
            Incoming::Response(response) => Self::Response(response),
        }
    }
}

impl Message<'_> {
    /// Whether its `_meta` names a revision, as in the stateless era.
    pub fn is_modern(&self) -> bool {
        let meta = match self {
            Self::Request(_, request) => request.params.get(Member::Meta),
            Self::Notification(told) => told.params.and_then(meta_of),
            Self::Response(_) => None,
        };
        meta.is_some_and(|meta| version_in_meta(meta).is_some())
    }
}

fn meta_of(params: &RawValue) -> Option<&RawValue> {
    Walk::object(params)?.find_map(|(name, value)| (name == "_meta").then_some(value))
}

/// One request, without its id. Owned, for its work may outlive the body that it came in.
pub(crate) struct Request {
    /// The method's name, as it came.
    pub name: String,
    pub method: Method,
    pub params: Params,
}

impl Request {
    pub fn new(name: impl Into<String>, params: Option<Box<RawValue>>) -> Self {
        let name = name.into();
        Self {
            method: Method::parse(&name),
            name,
            params: Params::read(params),
        }
    }
}

/// Params of a request, and the places of the members that the server looks at itself.
#[derive(Default)]
pub(crate) struct Params {
    /// All of them.
    raw: Option<Box<RawValue>>,
    /// In the order of [`MEMBERS`].
    places: [Option<Range<usize>>; MEMBERS.len()],
}

/// Names of the members that the server looks at itself, in the order of [`Member`].
const MEMBERS: [&str; 11] = [
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

/// A member of the params that the server looks at itself.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Member {
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

impl Params {
    /// Reads them. What is no object has no members; [`Self::check_object`] tells it from an empty one.
    fn read(raw: Option<Box<RawValue>>) -> Self {
        let mut places = [const { None }; MEMBERS.len()];
        if let Some(params) = raw.as_deref() {
            let begins = params.get().as_ptr() as usize;
            for (name, value) in Walk::object(params).into_iter().flatten() {
                if let Some(at) = MEMBERS.iter().position(|member| *member == name) {
                    let from = value.get().as_ptr() as usize - begins;
                    places[at] = Some(from..from + value.get().len());
                }
            }
        }
        Self { raw, places }
    }

    /// A member as it came. From [`Member::Task`] on it may be `null`, which elsewhere is as good as missing.
    pub fn get(&self, member: Member) -> Option<&RawValue> {
        let place = self.places[member as usize].clone()?;
        let value = self
            .raw()?
            .get()
            .get(place)
            .filter(|value| member >= Member::Task || *value != "null")?;
        Some(raw_ref(value))
    }

    /// All of them, as they came.
    pub fn raw(&self) -> Option<&RawValue> {
        self.raw.as_deref()
    }

    pub fn name(&self) -> Option<Cow<'_, str>> {
        text(self.get(Member::Name)?)
    }

    pub fn uri(&self) -> Option<Cow<'_, str>> {
        text(self.get(Member::Uri)?)
    }

    pub fn task_id(&self) -> Option<Cow<'_, str>> {
        text(self.get(Member::TaskId)?)
    }

    /// # Errors
    /// `INVALID_PARAMS` where there are params that are no object.
    pub fn check_object(&self) -> Result<(), RpcError> {
        match &self.raw {
            Some(raw) if !raw.get().starts_with('{') => Err(no_object()),
            _ => Ok(()),
        }
    }

    /// Tool and arguments of a `tools/call`.
    ///
    /// # Errors
    /// `INVALID_PARAMS` where one is missing or of the wrong type.
    pub fn tool_call(&self) -> Result<(Cow<'_, str>, Option<&RawValue>), RpcError> {
        if self.raw.is_none() {
            return Err(no_object());
        }
        self.check_object()?;
        let name = self.name().ok_or_else(|| {
            RpcError::invalid_params("`name` must be a string, `arguments` an object")
        })?;
        match self.get(Member::Arguments) {
            Some(arguments) if !arguments.get().starts_with('{') => {
                Err(RpcError::invalid_params("`arguments` must be an object"))
            }
            arguments => Ok((name, arguments)),
        }
    }

    /// The member `name` of `_meta`. Most requests have no such, and then nothing is read.
    pub fn meta_member(&self, name: &str) -> Option<Box<RawValue>> {
        RawObject::parse(
            self.get(Member::Meta)
                .filter(|meta| meta.get().contains(name))?,
        )
        .ok()?
        .remove(name)
    }
}

pub(crate) fn no_object() -> RpcError {
    RpcError::invalid_params("`params` must be an object")
}

/// Params of a notification or of a handshake; none is an empty object.
///
/// # Errors
/// `INVALID_PARAMS` where they are no object.
pub(crate) fn object(params: Option<&RawValue>) -> Result<RawObject, RpcError> {
    params.map_or(Ok(RawObject::new()), |raw| {
        RawObject::parse(raw).map_err(|_| no_object())
    })
}

/// The revision that a `_meta` names.
pub(crate) fn version_in_meta(meta: &RawValue) -> Option<String> {
    let (_, version) = Walk::object(meta)?.find(|(name, _)| name == PROTOCOL_VERSION)?;
    text(version).map(Cow::into_owned)
}

/// Requests of one peer that run, so that they can be cancelled by their ids.
pub(crate) struct RunningRequests {
    /// `None` once the peer is gone.
    by_id: Mutex<Option<HashMap<Id, CancellationToken>>>,
    requests_max: usize,
}

/// A request that runs, until this is dropped.
pub(crate) struct Running<'a> {
    requests: &'a RunningRequests,
    id: &'a Id,
}

impl RunningRequests {
    pub fn new(requests_max: usize) -> Self {
        Self {
            by_id: Mutex::new(Some(HashMap::new())),
            requests_max,
        }
    }

    /// Notes a request that begins.
    ///
    /// # Errors
    /// Where one of that id or too many run, or the peer is gone.
    pub fn enter<'a>(
        &'a self,
        id: &'a Id,
        cancel: &CancellationToken,
    ) -> Result<Running<'a>, RpcError> {
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
        Ok(Running { requests: self, id })
    }

    /// Cancels what the params of a `notifications/cancelled` name; `false` where no such request runs.
    pub fn cancel(&self, params: Option<&RawValue>) -> bool {
        let id = object(params)
            .ok()
            .and_then(|params| Id::read(params.get("requestId")?));
        let cancel = id.and_then(|id| self.by_id.lock().as_ref()?.get(&id).cloned());
        cancel.inspect(CancellationToken::cancel).is_some()
    }

    /// Cancels all of them. Nothing begins any more.
    pub fn close(&self) {
        let all = self.by_id.lock().take().unwrap_or_default();
        all.values().for_each(CancellationToken::cancel);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(running) = &mut *self.requests.by_id.lock() {
            running.remove(self.id);
        }
    }
}
