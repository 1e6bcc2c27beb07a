//! Remote A2A agents (`[[agent]] kind = "a2a"`): connection, push notifications, and the peers of
//! an orchestrator.

use std::collections::HashMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use callboard_a2a::card::Jwks;
use callboard_a2a::outbound::{
    A2aClient, CardTrust, PushInbox, RemoteA2aAgent, RemoteAuth, RemoteOptions, skill_tools,
};
use callboard_a2a::wire::{AgentCard, AgentInterface};
use callboard_gateway::aggregate::ToolFilter;
use callboard_message::mail::DeliveryMethod;
use callboard_message::{DataClass, Failure};
use callboard_orchestration::peer_registry::{
    AddressSource, AgentConnector, FetchedCard, skill_of_tool,
};
use callboard_rpc::{EgressPolicy, IpNetwork};
use callboard_runtime::{AgentRef, System};
use futures::future::{BoxFuture, join_all};
use parking_lot::{Mutex, RwLock};
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::{
    AgentDeclaration, RunningAgent, StartContext, StartError, decode_declaration,
    report_key_errors, spawn_cloned,
};
use crate::config::DeclaredNames;
use crate::config::address::{NetworkRange, WebUrl};
use crate::config::problem::{ProblemCollector, check_key_file};
use crate::config::secret::{check_secret, read_secret};
use crate::config::tls::{check_ca_file, client_tls, resolve_ca};
use crate::config::tree::ConfigTree;

/// Path for push notifications of remote agents, on each A2A listener.
const PUSH_INBOX_PATH: &str = "/a2a-push";
/// Header with the token of a push notification.
const PUSH_TOKEN_HEADER: &str = "X-A2A-Notification-Token";
/// Default header of an API key.
const API_KEY_HEADER_DEFAULT: &str = "X-API-Key";

/// A remote agent that speaks A2A (`[[agent]] kind = "a2a"`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct A2aAgentDeclaration {
    /// Unique name in the directory, also used in policies and as prefix of tool names.
    pub id: String,
    /// URL of the agent or of its card.
    pub url: WebUrl,
    /// Interface of an agent without a card; `url` is its endpoint then.
    pub interface: Option<InterfaceDeclaration>,
    /// Highest class of data in messages and replies. Of tasks with `clinical` data only the states
    /// are written to disk. Default: `internal`.
    #[serde(default)]
    pub class: DataClass,
    /// Maximum duration in seconds of a call, questions included, if the call has no deadline of
    /// its own. Default: 300.
    pub call_timeout_s: Option<NonZeroU64>,
    /// Environment variable with a bearer token.
    pub bearer_env: Option<String>,
    /// Environment variable with an API key.
    pub api_key_env: Option<String>,
    /// Header of the API key. Default: `X-API-Key`.
    pub api_key_header: Option<String>,
    /// OAuth 2 client credentials.
    pub oauth: Option<OauthDeclaration>,
    /// Networks that its card may point to, in addition to the public internet and the card's own
    /// origin.
    #[serde(default)]
    pub networks: Vec<NetworkRange>,
    /// File with a JWK set, relative to the topology file. The card must be signed by one of its
    /// keys.
    pub trusted_keys: Option<PathBuf>,
    /// PEM file with the authorities of the certificate of the agent's server, in place of the public
    /// ones; relative to the topology file.
    pub ca: Option<PathBuf>,
    /// URL of an A2A listener of this node, as seen by the agent, for push notifications of task
    /// states.
    pub push_url: Option<WebUrl>,
    /// Filter and renaming of its skills.
    #[serde(default)]
    pub tools: ToolFilter,
}

/// Interface of an agent without a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceDeclaration {
    /// Protocol binding.
    #[serde(default)]
    pub binding: A2aBindingName,
    /// Version of A2A.
    pub version: A2aVersionName,
}

/// Protocol binding of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum A2aBindingName {
    /// JSON-RPC.
    #[default]
    Jsonrpc,
    /// HTTP+JSON.
    Http,
}

/// Version of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum A2aVersionName {
    /// 1.0.
    #[serde(rename = "1.0")]
    V10,
    /// 0.3.
    #[serde(rename = "0.3")]
    V03,
    /// 0.1.
    #[serde(rename = "0.1")]
    V01,
}

/// OAuth 2 client credentials.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OauthDeclaration {
    /// Client id at the authorization server.
    pub client_id: String,
    /// Environment variable with the client secret.
    pub secret_env: String,
    /// Token endpoint. Default: the one in the card.
    pub token_url: Option<WebUrl>,
    /// Requested scopes.
    #[serde(default)]
    pub scopes: Vec<String>,
}

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<A2aAgentDeclaration>(tree, "an A2A agent", problems)
}

impl A2aAgentDeclaration {
    /// Returns the agent that represents the remote one. Reads the environment variables and key
    /// file that the declaration names.
    fn open_remote(&self, inboxes: &PushInboxes) -> Result<RemoteA2aAgent, StartError> {
        let wrong = StartError::declaration_error("agent", &self.id);
        let url = self.url.url();
        let mut options = RemoteOptions {
            auth: self.auth()?,
            tls: client_tls(self.ca.as_deref()).map_err(&wrong)?,
            ..RemoteOptions::default()
        };
        let networks = self.networks.iter().map(|range| range.network());
        options.egress = networks.fold(EgressPolicy::public_internet(), EgressPolicy::with_network);
        options.interface = self
            .interface
            .map(|interface| agent_interface(url, interface));
        if let Some(seconds) = self.call_timeout_s {
            options.call_timeout = Duration::from_secs(seconds.get());
        }
        if let Some(file) = &self.trusted_keys {
            let text = fs::read(file)
                .map_err(|error| wrong(format!("failed to read {}: {error}", file.display())))?;
            let keys = Jwks::parse(&text)
                .map_err(|error| wrong(format!("{}: {error}", file.display())))?;
            options.card_trust = CardTrust::Signed {
                keys,
                jku_hosts: Vec::new(),
            };
        }
        if let Some(here) = &self.push_url {
            options.push = Some(
                inboxes
                    .get_or_create(here.url())
                    .map_err(|error| wrong(format!("`push_url`: {error}")))?,
            );
        }
        RemoteA2aAgent::new(url.clone(), options).map_err(|error| wrong(error.to_string()))
    }

    fn auth(&self) -> Result<RemoteAuth, StartError> {
        let variable = |name: &str| {
            read_secret(name).map_err(StartError::declaration_error("agent", &self.id))
        };
        if let Some(name) = &self.bearer_env {
            return Ok(RemoteAuth::Bearer(variable(name)?));
        }
        if let Some(name) = &self.api_key_env {
            let header = self
                .api_key_header
                .clone()
                .unwrap_or_else(|| API_KEY_HEADER_DEFAULT.to_owned());
            return Ok(RemoteAuth::ApiKey {
                header,
                key: variable(name)?,
            });
        }
        let Some(oauth) = &self.oauth else {
            return Ok(RemoteAuth::None);
        };
        Ok(RemoteAuth::ClientCredentials {
            token_url: oauth.token_url.as_ref().map(|url| url.url().clone()),
            client_id: oauth.client_id.clone(),
            secret: variable(&oauth.secret_env)?,
            scopes: oauth.scopes.clone(),
        })
    }
}

impl AgentDeclaration for A2aAgentDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "a2a"
    }

    fn class(&self) -> DataClass {
        self.class
    }

    fn mail_delivery(&self) -> DeliveryMethod {
        DeliveryMethod::A2a
    }

    fn resolve_paths(&mut self, folder: &Path) {
        self.trusted_keys = self.trusted_keys.take().map(|file| folder.join(file));
        self.ca = self.ca.take().map(|file| resolve_ca(&file, folder));
    }

    fn check(&self, tree: &ConfigTree, _: &DeclaredNames<'_>, problems: &mut ProblemCollector<'_>) {
        let mut wrong = Vec::new();
        let ways = [
            ("bearer_env", self.bearer_env.is_some()),
            ("api_key_env", self.api_key_env.is_some()),
            ("oauth", self.oauth.is_some()),
        ];
        let more = ways.into_iter().filter(|(_, is_set)| *is_set).skip(1);
        wrong.extend(
            more.map(|(key, _)| (key, "write one of `bearer_env`, `api_key_env` and `oauth`")),
        );
        if let Some(header) = &self.api_key_header {
            if self.api_key_env.is_none() {
                wrong.push((
                    "api_key_header",
                    "it names the header of a key: write `api_key_env` too",
                ));
            } else if actix_web::http::header::HeaderName::try_from(header.as_str()).is_err() {
                wrong.push(("api_key_header", "this is not a header's name"));
            }
        }
        if self.interface.is_some() && self.trusted_keys.is_some() {
            wrong.push((
                "trusted_keys",
                "with `interface` no card is read, so no signature is checked: leave one of the two out",
            ));
        }
        report_key_errors(&self.id, wrong, tree, problems);
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        // A missing `secret_env` was reported before.
        let secret = self
            .oauth
            .as_ref()
            .map(|oauth| &oauth.secret_env)
            .filter(|name| !name.is_empty());
        let variables: [(&[&str], _); 3] = [
            (&["bearer_env"], self.bearer_env.as_ref()),
            (&["api_key_env"], self.api_key_env.as_ref()),
            (&["oauth", "secret_env"], secret),
        ];
        for (path, name) in variables {
            name.into_iter()
                .for_each(|name| check_secret(name, tree.span_at_path(path), problems));
        }
        check_ca_file(self.ca.as_deref(), tree, problems);
        check_key_file(
            self.trusted_keys.as_deref(),
            tree.span_of("trusted_keys"),
            problems,
        );
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            let remote = self.open_remote(cx.push_inboxes)?;
            let running = RunningAgent::new(spawn_cloned(cx.system, &self.id, remote.clone()));
            Ok(RunningAgent {
                filter: self.tools.clone(),
                ..running.with_teardown(async move { remote.drained().await })
            })
        })
    }
}

fn agent_interface(url: &Url, declared: InterfaceDeclaration) -> AgentInterface {
    let binding = match declared.binding {
        A2aBindingName::Jsonrpc => "JSONRPC",
        A2aBindingName::Http => "HTTP+JSON",
    };
    let version = match declared.version {
        A2aVersionName::V10 => "1.0",
        A2aVersionName::V03 => "0.3",
        A2aVersionName::V01 => "0.1",
    };
    AgentInterface {
        url: url.to_string(),
        protocol_binding: binding.to_owned(),
        tenant: String::new(),
        protocol_version: version.to_owned(),
    }
}

/// Receivers of push notifications, by declared URL. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct PushInboxes(Arc<RwLock<HashMap<Url, PushInbox>>>);

impl PushInboxes {
    /// Returns the receiver for a URL; creates it on first use.
    fn get_or_create(&self, declared: &Url) -> Result<PushInbox, url::ParseError> {
        let base = Url::parse(&format!(
            "{}{PUSH_INBOX_PATH}",
            declared.as_str().trim_end_matches('/')
        ))?;
        let mut all = self.0.write();
        Ok(all
            .entry(base.clone())
            .or_insert_with(|| PushInbox::new(base))
            .clone())
    }

    /// Adds the push routes to a listener.
    pub(crate) fn configure(&self, config: &mut ServiceConfig) {
        let path = format!("{PUSH_INBOX_PATH}/{{id}}");
        config.service(
            web::resource(path)
                .app_data(Data::new(self.clone()))
                .route(web::post().to(handle_push)),
        );
    }
}

/// The body isn't read: a notification only makes us query the agent.
async fn handle_push(request: HttpRequest, inboxes: Data<PushInboxes>) -> HttpResponse {
    let id = request.match_info().get("id").unwrap_or_default();
    let token = request
        .headers()
        .get(PUSH_TOKEN_HEADER)
        .and_then(|token| token.to_str().ok());
    let all: Vec<_> = inboxes.0.read().values().cloned().collect();
    match all.iter().any(|inbox| inbox.deliver(id, token)) {
        true => HttpResponse::NoContent().finish(),
        false => HttpResponse::NotFound().finish(),
    }
}

/// Connects an orchestrator to remote agents over A2A.
pub(super) struct PeerConnector {
    networks: Vec<IpNetwork>,
    keys: Option<Jwks>,
    /// Opened agents by URL, for cleanup.
    opened: Mutex<HashMap<Url, RemoteA2aAgent>>,
}

impl PeerConnector {
    /// Creates a connector. Cards may point to `networks` in addition to the public internet and
    /// their own origin. Agents learned from other agents are accepted if one of `keys` signed
    /// their card.
    pub(super) fn new(networks: Vec<IpNetwork>, keys: Option<Jwks>) -> Self {
        Self {
            networks,
            keys,
            opened: Mutex::default(),
        }
    }

    /// Returns the options for an agent whose URL came from `by`.
    ///
    /// # Errors
    /// `FailureKind::Denied` if no card of it could be trusted.
    fn remote_options(&self, by: AddressSource) -> Result<RemoteOptions, Failure> {
        let egress = self
            .networks
            .iter()
            .copied()
            .fold(EgressPolicy::public_internet(), EgressPolicy::with_network);
        let AddressSource::Peer {
            may_be_local: may_be_here,
            must_be_signed,
        } = by
        else {
            return Ok(RemoteOptions {
                egress,
                ..RemoteOptions::default()
            });
        };
        let trust = match (must_be_signed, &self.keys) {
            (false, _) => CardTrust::Any,
            (true, Some(keys)) => CardTrust::Signed {
                keys: keys.clone(),
                jku_hosts: Vec::new(),
            },
            (true, None) => {
                let why = "agents that others name have to be allowed, or signed by a trusted key";
                return Err(Failure::denied(why));
            }
        };
        let egress = if may_be_here {
            egress.with_loopback()
        } else {
            egress
        };
        Ok(RemoteOptions {
            egress,
            card_trust: trust,
            is_url_untrusted: true,
            ..RemoteOptions::default()
        })
    }
}

impl AgentConnector for PeerConnector {
    fn fetch_card<'a>(
        &'a self,
        url: &'a Url,
        by: AddressSource,
    ) -> BoxFuture<'a, Result<FetchedCard, Failure>> {
        Box::pin(async move {
            // A separate agent, so that the card is fetched now.
            let peer = A2aClient::new(url.clone(), self.remote_options(by)?)
                .map_err(|error| Failure::invalid(error.to_string()))?;
            Ok(card_summary(&peer.public_card().await?.card))
        })
    }

    fn open(&self, system: &System, url: &Url, by: AddressSource) -> Result<AgentRef, Failure> {
        let remote = RemoteA2aAgent::new(url.clone(), self.remote_options(by)?);
        let remote = remote.map_err(|error| Failure::invalid(error.to_string()))?;
        let mut opened = self.opened.lock();
        opened.insert(url.clone(), remote.clone());
        Ok(system
            .prepare_with(move || remote.clone())
            .label(url.as_str())
            .spawn())
    }

    fn drained(&self) -> BoxFuture<'_, ()> {
        let opened = std::mem::take(&mut *self.opened.lock());
        Box::pin(async move {
            join_all(opened.values().map(RemoteA2aAgent::drained)).await;
        })
    }
}

/// Returns the orchestrator's view of a card. Skills become tools, as those of declared agents do.
fn card_summary(card: &AgentCard) -> FetchedCard {
    let skills = skill_tools(card).iter().filter_map(skill_of_tool).collect();
    FetchedCard {
        name: card.name.clone(),
        description: card.description.clone(),
        skills,
    }
}
