//! Requests of both eras, parsed once: the method, and the members of the params that the server looks at itself.

use std::borrow::Cow;

use callboard_message::RawObject;
use callboard_rpc::{self as rpc, Id, RpcError};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

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

/// One request, without its id.
pub(crate) struct Request<'a> {
    /// The method's name, as it came.
    pub name: &'a str,
    pub method: Method,
    pub params: Params<'a>,
}

impl<'a> Request<'a> {
    pub fn read(name: &'a str, params: Option<&'a RawValue>) -> Self {
        Self { name, method: Method::parse(name), params: Params::read(params) }
    }
}

/// A request that may outlive the body that it came in.
pub(crate) struct OwnedRequest {
    pub id: Id,
    method: String,
    params: Option<Box<RawValue>>,
}

impl From<rpc::Request<'_>> for OwnedRequest {
    fn from(request: rpc::Request<'_>) -> Self {
        let rpc::Request { id, method, params } = request;
        Self { id, method, params: params.map(RawValue::to_owned) }
    }
}

impl OwnedRequest {
    pub fn read(&self) -> Request<'_> {
        Request::read(&self.method, self.params.as_deref())
    }

    pub fn is_modern(&self) -> bool {
        is_modern(self.params.as_deref())
    }
}

/// Params of a request: the members that the server looks at, as they came. `null` is as good as missing, but for members
/// that say otherwise.
#[derive(Default, Deserialize)]
pub(crate) struct Params<'a> {
    /// All of them.
    #[serde(skip)]
    pub raw: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub cursor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub level: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub notifications: Option<&'a RawValue>,
    /// May be `null`.
    #[serde(borrow, default, deserialize_with = "present")]
    pub task: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task_id: Option<&'a RawValue>,
    /// May be `null`.
    #[serde(borrow, default, rename = "inputResponses", deserialize_with = "present")]
    pub input_responses: Option<&'a RawValue>,
    /// May be `null`.
    #[serde(borrow, default, rename = "requestState", deserialize_with = "present")]
    pub request_state: Option<&'a RawValue>,
}

/// Tells a member that is `null` from one that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Params<'a> {
    /// Reads them. What is no object has no members; [`Self::check_object`] tells it from an empty one.
    fn read(raw: Option<&'a RawValue>) -> Self {
        // A struct can be read from an array too.
        let object = raw.map(RawValue::get).filter(|params| params.starts_with('{'));
        let members = object.and_then(|params| serde_json::from_str::<Self>(params).ok());
        Self { raw, ..members.unwrap_or_default() }
    }

    /// # Errors
    /// `INVALID_PARAMS` where there are params that are no object.
    pub fn check_object(&self) -> Result<(), RpcError> {
        match self.raw {
            Some(raw) if !raw.get().starts_with('{') => Err(no_object()),
            _ => Ok(()),
        }
    }

    pub fn name(&self) -> Option<Cow<'a, str>> {
        text(self.name)
    }

    pub fn uri(&self) -> Option<Cow<'a, str>> {
        text(self.uri)
    }

    pub fn task_id(&self) -> Option<Cow<'a, str>> {
        text(self.task_id)
    }

    /// Tool and arguments of a `tools/call`.
    ///
    /// # Errors
    /// `INVALID_PARAMS` where one is missing or of the wrong type.
    pub fn tool_call(&self) -> Result<(Cow<'a, str>, Option<&'a RawValue>), RpcError> {
        if self.raw.is_none() {
            return Err(no_object());
        }
        self.check_object()?;
        let name =
            self.name().ok_or_else(|| RpcError::invalid_params("`name` must be a string, `arguments` an object"))?;
        match self.arguments {
            Some(arguments) if !arguments.get().starts_with('{') => {
                Err(RpcError::invalid_params("`arguments` must be an object"))
            }
            arguments => Ok((name, arguments)),
        }
    }

    /// The member `name` of `_meta`. Most requests have no such, and then nothing is read.
    pub fn meta_member(&self, name: &str) -> Option<Box<RawValue>> {
        RawObject::parse(self.meta.filter(|meta| meta.get().contains(name))?).ok()?.remove(name)
    }
}

/// A string's value: borrowed, unless it has escapes.
fn text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let json = raw?.get();
    serde_json::from_str(json).map(Cow::Borrowed).ok().or_else(|| serde_json::from_str(json).map(Cow::Owned).ok())
}

pub(crate) fn no_object() -> RpcError {
    RpcError::invalid_params("`params` must be an object")
}

/// Params of a notification or of a handshake; none is an empty object.
///
/// # Errors
/// `INVALID_PARAMS` where they are no object.
pub(crate) fn object(params: Option<&RawValue>) -> Result<RawObject, RpcError> {
    params.map_or(Ok(RawObject::new()), |raw| RawObject::parse(raw).map_err(|_| no_object()))
}

/// The last of the member's name: up to 32 bytes are found without a table.
const ENDS_IN: &str = PROTOCOL_VERSION.split_at(PROTOCOL_VERSION.len() - 32).1;

/// Whether params name the revision of their request, as they do in the stateless era.
pub(crate) fn is_modern(params: Option<&RawValue>) -> bool {
    // Most that don't name it are told so by their bytes, of which an escape could hide some.
    let may_name = |params: &&RawValue| params.get().contains(ENDS_IN) || params.get().contains("\\u");
    params.filter(may_name).is_some_and(|params| Params::read(Some(params)).meta.and_then(version_in_meta).is_some())
}

/// The revision that a `_meta` names.
pub(crate) fn version_in_meta(meta: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Version {
        #[serde(default, rename = "io.modelcontextprotocol/protocolVersion")]
        version: Option<String>,
    }
    let meta = meta.get().starts_with('{').then_some(meta.get())?;
    serde_json::from_str::<Version>(meta).ok()?.version
}
