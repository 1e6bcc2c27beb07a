//! Agents elsewhere that speak A2A: how they are reached, where they push, and how an orchestrator meets those that it learns of.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use callboard_a2a::card::Jwks;
use callboard_a2a::outbound::{Auth, CardTrust, Peer, PushInbox, RemoteA2a, RemoteOptions, skill_tools};
use callboard_a2a::wire::{AgentCard, AgentInterface};
use callboard_message::Failure;
use callboard_orchestration::peer_registry::{Connect, NamedBy, Seen, skill_of_tool};
use callboard_rpc::{Egress, Network};
use callboard_runtime::{AgentRef, System};
use futures::future::{BoxFuture, join_all};
use parking_lot::RwLock;
use secrecy::SecretString;
use url::Url;

use super::NodeError;
use crate::config::{BindingName, InterfaceDeclaration, RemoteDeclaration, VersionName};

/// Where agents elsewhere push, at each A2A listener.
const INBOX_PATH: &str = "/a2a-push";
/// The header that shows that whoever pushes was told where.
const TOKEN_HEADER: &str = "X-A2A-Notification-Token";
/// The header of an API key, where the file doesn't say.
const KEY_HEADER_DEFAULT: &str = "X-API-Key";

/// Where agents elsewhere push, by the address that they are given. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Inboxes(Arc<RwLock<HashMap<Url, PushInbox>>>);

impl Inboxes {
    /// The one below this address.
    fn at(&self, declared: &Url) -> Result<PushInbox, url::ParseError> {
        let base = Url::parse(&format!("{}{INBOX_PATH}", declared.as_str().trim_end_matches('/')))?;
        let mut all = self.0.write();
        Ok(all.entry(base.clone()).or_insert_with(|| PushInbox::new(base)).clone())
    }

    /// Adds them to a listener's addresses.
    pub(super) fn configure(&self, config: &mut ServiceConfig) {
        let path = format!("{INBOX_PATH}/{{id}}");
        config.service(web::resource(path).app_data(Data::new(self.clone())).route(web::post().to(pushed)));
    }
}

/// What a push says is asked of the agent itself: the body isn't read.
async fn pushed(request: HttpRequest, inboxes: Data<Inboxes>) -> HttpResponse {
    let id = request.match_info().get("id").unwrap_or_default();
    let token = request.headers().get(TOKEN_HEADER).and_then(|token| token.to_str().ok());
    let all: Vec<_> = inboxes.0.read().values().cloned().collect();
    match all.iter().any(|inbox| inbox.deliver(id, token)) {
        true => HttpResponse::NoContent().finish(),
        false => HttpResponse::NotFound().finish(),
    }
}

/// The agent that a declaration stands for. Reads the variables and the file that it names.
pub(super) fn open(declared: &RemoteDeclaration, inboxes: &Inboxes) -> Result<RemoteA2a, NodeError> {
    let wrong = NodeError::declared("agent", &declared.id);
    let url = declared.url.url();
    let mut options = RemoteOptions { auth: auth(declared)?, ..RemoteOptions::default() };
    let networks = declared.networks.iter().map(|range| range.network());
    options.egress = networks.fold(Egress::public(), Egress::with_network);
    options.interface = declared.interface.map(|interface| endpoint(url, interface));
    if let Some(seconds) = declared.call_timeout_s {
        options.call_timeout = Duration::from_secs(seconds.get());
    }
    if let Some(file) = &declared.trusted_keys {
        let text = fs::read(file).map_err(|error| wrong(format!("failed to read {}: {error}", file.display())))?;
        let keys = Jwks::parse(&text).map_err(|error| wrong(format!("{}: {error}", file.display())))?;
        options.trust = CardTrust::Signed { keys, jku_hosts: Vec::new() };
    }
    if let Some(here) = &declared.push_url {
        options.push = Some(inboxes.at(here.url()).map_err(|error| wrong(format!("`push_url`: {error}")))?);
    }
    RemoteA2a::new(url.clone(), options).map_err(|error| wrong(error.to_string()))
}

fn endpoint(url: &Url, declared: InterfaceDeclaration) -> AgentInterface {
    let binding = match declared.binding {
        BindingName::Jsonrpc => "JSONRPC",
        BindingName::Http => "HTTP+JSON",
    };
    let version = match declared.version {
        VersionName::V10 => "1.0",
        VersionName::V03 => "0.3",
        VersionName::V01 => "0.1",
    };
    AgentInterface {
        url: url.to_string(),
        protocol_binding: binding.to_owned(),
        tenant: String::new(),
        protocol_version: version.to_owned(),
    }
}

fn auth(declared: &RemoteDeclaration) -> Result<Auth, NodeError> {
    let variable = |name: &str| {
        let missing = |_| NodeError::declared("agent", &declared.id)(format!("there is no variable {name}"));
        std::env::var(name).map(SecretString::from).map_err(missing)
    };
    if let Some(name) = &declared.bearer_env {
        return Ok(Auth::Bearer(variable(name)?));
    }
    if let Some(name) = &declared.api_key_env {
        let header = declared.api_key_header.clone().unwrap_or_else(|| KEY_HEADER_DEFAULT.to_owned());
        return Ok(Auth::ApiKey { header, key: variable(name)? });
    }
    let Some(oauth) = &declared.oauth else { return Ok(Auth::None) };
    Ok(Auth::ClientCredentials {
        token_url: oauth.token_url.as_ref().map(|url| url.url().clone()),
        client_id: oauth.client_id.clone(),
        secret: variable(&oauth.secret_env)?,
        scopes: oauth.scopes.clone(),
    })
}

/// Reaches agents over A2A.
pub(super) struct Peers {
    networks: Vec<Network>,
    keys: Option<Jwks>,
    /// Those that were opened, by their addresses: what they have to end elsewhere.
    opened: Mutex<HashMap<Url, RemoteA2a>>,
}

impl Peers {
    /// Cards may lead to these networks, beside the public internet and their own origin; `keys` are those of whose
    /// signatures agents are learned of second-hand.
    pub(super) fn new(networks: Vec<Network>, keys: Option<Jwks>) -> Self {
        Self { networks, keys, opened: Mutex::default() }
    }

    /// How an agent is reached whose address `by` named.
    ///
    /// # Errors
    /// `Denied` where nothing that it could say would be believed.
    fn options(&self, by: NamedBy) -> Result<RemoteOptions, Failure> {
        let egress = self.networks.iter().copied().fold(Egress::public(), Egress::with_network);
        let NamedBy::Peer { may_be_here, must_be_signed } = by else {
            return Ok(RemoteOptions { egress, ..RemoteOptions::default() });
        };
        let trust = match (must_be_signed, &self.keys) {
            (false, _) => CardTrust::Any,
            (true, Some(keys)) => CardTrust::Signed { keys: keys.clone(), jku_hosts: Vec::new() },
            (true, None) => {
                let why = "agents that others name have to be allowed, or signed by a trusted key";
                return Err(Failure::denied(why));
            }
        };
        let egress = if may_be_here { egress.with_loopback() } else { egress };
        Ok(RemoteOptions { egress, trust, is_hearsay: true, ..RemoteOptions::default() })
    }
}

impl Connect for Peers {
    fn look<'a>(&'a self, url: &'a Url, by: NamedBy) -> BoxFuture<'a, Result<Seen, Failure>> {
        Box::pin(async move {
            // One of its own, so that the card is fetched now.
            let peer =
                Peer::new(url.clone(), self.options(by)?).map_err(|error| Failure::invalid(error.to_string()))?;
            Ok(seen(&peer.public_card().await?.card))
        })
    }

    fn open(&self, system: &System, url: &Url, by: NamedBy) -> Result<AgentRef, Failure> {
        let remote = RemoteA2a::new(url.clone(), self.options(by)?);
        let remote = remote.map_err(|error| Failure::invalid(error.to_string()))?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(url.clone(), remote.clone());
        Ok(system.prepare_with(move || remote.clone()).label(url.as_str()).spawn())
    }

    fn said_goodbye(&self) -> BoxFuture<'_, ()> {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move {
            join_all(opened.values().map(RemoteA2a::said_goodbye)).await;
        })
    }
}

/// What a card says. Its skills take the way of those of a declared agent: as tools.
fn seen(card: &AgentCard) -> Seen {
    let skills = skill_tools(card).iter().filter_map(skill_of_tool).collect();
    Seen { name: card.name.clone(), description: card.description.clone(), skills }
}
