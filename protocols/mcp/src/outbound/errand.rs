//! What a message wants of an MCP server.

use callboard_message::surface::{
    CallTool, Complete, CreateMessage, Describe, Forward, GetPrompt, ListPrompts, ListResourceTemplates, ListResources,
    ListTools, RESERVED_PREFIX, ReadResource, Subscribe, Unsubscribe,
};
use callboard_message::{Failure, FailureKind, Message, Named, RawObject};

use crate::wire::hmcp;

/// Requests that belong to the connection, not to a call on it.
const NOT_FORWARDED: [&str; 3] = ["initialize", "server/discover", "subscriptions/listen"];

/// What a message wants of an MCP server.
pub(crate) enum Errand {
    /// What it says of itself.
    Describe,
    /// A page of its tools.
    ListTools(RawObject),
    /// To be told of a resource's changes, or no more.
    Subscribe { on: bool, params: RawObject },
    /// A request, whose result is the reply.
    Request { method: String, params: RawObject },
    /// A tool, whose plain value is the reply. `params` are those of `tools/call`.
    Use { tool: String, params: RawObject },
}

impl Errand {
    /// Reads a message: one of [`callboard_message::surface`], or a tool by its name.
    ///
    /// # Errors
    /// Where it is none that MCP has, or no JSON object.
    pub(crate) fn read(message: Named) -> Result<Self, Failure> {
        let Named { name, payload } = message;
        if !name.starts_with(RESERVED_PREFIX) {
            if !payload.get().starts_with('{') {
                return Err(Failure::invalid("the message must be a JSON object"));
            }
            let mut params = RawObject::new().with("name", &name);
            params.set_raw("arguments", payload);
            return Ok(Self::Use { tool: name, params });
        }
        let params = RawObject::parse(&payload).map_err(|_| Failure::invalid("the message must be a JSON object"))?;
        let method = match name.as_str() {
            Describe::NAME => return Ok(Self::Describe),
            ListTools::NAME => return Ok(Self::ListTools(params)),
            Subscribe::NAME => return Ok(Self::Subscribe { on: true, params }),
            Unsubscribe::NAME => return Ok(Self::Subscribe { on: false, params }),
            Forward::NAME => return forward(&params),
            CallTool::NAME => "tools/call",
            ListResources::NAME => "resources/list",
            ListResourceTemplates::NAME => "resources/templates/list",
            ReadResource::NAME => "resources/read",
            ListPrompts::NAME => "prompts/list",
            GetPrompt::NAME => "prompts/get",
            Complete::NAME => "completion/complete",
            CreateMessage::NAME => hmcp::METHOD,
            _ => return Err(Failure::not_found("no MCP server has such a message")),
        };
        Ok(Self::Request { method: method.to_owned(), params })
    }
}

fn forward(params: &RawObject) -> Result<Errand, Failure> {
    let method = params.text("method").ok_or_else(|| Failure::invalid("`method` must be a string"))?;
    if NOT_FORWARDED.contains(&method.as_str()) {
        return Err(Failure::new(FailureKind::Rejected, format!("{method} is the connection's own")));
    }
    let params = match params.get("params") {
        Some(inner) => RawObject::parse(inner).map_err(|_| Failure::invalid("`params` must be an object"))?,
        None => RawObject::new(),
    };
    Ok(Errand::Request { method, params })
}
