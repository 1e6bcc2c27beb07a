//! `initialize`: what both sides say of themselves, and which revision they speak.

use callboard_message::RawObject;
use callboard_message::surface::{Abilities, About};
use callboard_rpc::{RpcError, code};
use serde_json::value::RawValue;

use crate::inbound::endpoint::Endpoint;
use crate::inbound::surface::object;
use crate::inbound::tasks;
use crate::wire::{Era, Revision, hmcp};

/// What a session knows of its client.
pub(crate) struct Client {
    /// What both speak.
    pub(crate) revision: Revision,
    /// What it can be asked, as far as the revision has it.
    pub(crate) abilities: Abilities,
}

impl Client {
    /// Reads the params of `initialize`. A revision that isn't spoken here, or is of the other era, is answered with the
    /// newest legacy one: the client decides whether that will do (2025-11-25, lifecycle).
    ///
    /// # Errors
    /// `INVALID_PARAMS` where a member has the wrong type.
    pub(crate) fn read(params: Option<&RawValue>) -> Result<Self, RpcError> {
        let params = object(params)?;
        let wanted = params.text("protocolVersion").ok_or_else(|| invalid("`protocolVersion` must be a string"))?;
        let spoken = Revision::parse(&wanted).filter(|revision| revision.era() == Era::Legacy);
        let revision = spoken.unwrap_or(Revision::LATEST_LEGACY);
        let capabilities = match params.get("capabilities") {
            None => RawObject::new(),
            Some(raw) => RawObject::parse(raw).map_err(|_| invalid("`capabilities` must be an object"))?,
        };
        if params.get("clientInfo").is_some_and(|info| !info.get().starts_with('{')) {
            return Err(invalid("`clientInfo` must be an object"));
        }
        Ok(Self { revision, abilities: known_to(revision, capabilities) })
    }
}

fn invalid(why: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, why)
}

/// What of a client's capabilities may be used: a revision before a question has never heard of it.
fn known_to(revision: Revision, mut capabilities: RawObject) -> Abilities {
    if revision < Revision::V2025_06_18 {
        capabilities.remove("elicitation");
    }
    if revision < Revision::V2025_11_25 {
        if let Some(mut elicitation) = capabilities.object("elicitation") {
            elicitation.remove("url");
            capabilities.set("elicitation", elicitation);
        }
        if let Some(mut sampling) = capabilities.object("sampling") {
            sampling.remove("tools");
            capabilities.set("sampling", sampling);
        }
    }
    Abilities(capabilities)
}

/// The result of `initialize`.
pub(crate) fn welcome(endpoint: &Endpoint, revision: Revision, about: &About) -> Box<RawValue> {
    let options = &endpoint.options;
    let mut capabilities = endpoint.surface().capabilities(about);
    hmcp::translate(&mut capabilities, false);
    if revision < Revision::V2025_03_26 {
        capabilities.remove("completions");
    }
    if let Some((name, tasks)) = tasks::capability(endpoint, revision) {
        capabilities.set(name, tasks);
    }
    let mut result = RawObject::new().with("protocolVersion", revision.as_str()).with("capabilities", capabilities);
    match about.0.get("serverInfo") {
        Some(theirs) => result.set_raw("serverInfo", theirs.to_owned()),
        None => result.set("serverInfo", options.info.implementation()),
    }
    let instructions = about.0.text("instructions").or_else(|| options.info.instructions.clone());
    if let Some(instructions) = instructions {
        result.set("instructions", instructions);
    }
    result.to_raw()
}
