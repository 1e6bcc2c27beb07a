//! Agents elsewhere that speak A2A (`[[agent]]` of the kind `a2a`): how they are reached, where they push, and how an orchestrator
//! meets those that it learns of.

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
    Auth, CardTrust, Peer, PushInbox, RemoteA2a, RemoteOptions, skill_tools,
};
use callboard_a2a::wire::{AgentCard, AgentInterface};
use callboard_gateway::bundle::Filter;
use callboard_message::mail::MemberWay;
use callboard_message::{DataClass, Failure};
use callboard_orchestration::peer_registry::{Connect, NamedBy, Seen, skill_of_tool};
use callboard_rpc::{Egress, Network};
use callboard_runtime::{AgentRef, System};
use futures::future::{BoxFuture, join_all};
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use url::Url;

use super::{AgentKind, Running, StartContext, StartError, declared, report, secret, spawn};
use crate::config::Names;
use crate::config::address::{Range, WebUrl};
use crate::config::problem::{Problems, check_key_file, is_set};
use crate::config::tree::Tree;

/// Where agents elsewhere push, at each A2A listener.
const INBOX_PATH: &str = "/a2a-push";
/// The header that shows that whoever pushes was told where.
const TOKEN_HEADER: &str = "X-A2A-Notification-Token";
/// The header of an API key, where the file doesn't say.
const KEY_HEADER_DEFAULT: &str = "X-API-Key";

/// An agent elsewhere that speaks A2A (`[[agent]]` of the kind `a2a`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteDeclaration {
    /// Its name in the directory, in rules and in names of tools.
    pub id: String,
    /// Where it is, or where its card is.
    pub url: WebUrl,
    /// How it is spoken to, where it has no card: `url` is the endpoint then.
    pub interface: Option<InterfaceDeclaration>,
    /// What its messages and replies may hold: where it is `clinical`, tasks of them are never on a disk.
    #[serde(default)]
    pub class: DataClass,
    /// How many seconds a call may take that has no deadline of its own.
    pub call_timeout_s: Option<NonZeroU64>,
    /// The variable that holds a bearer token.
    pub bearer_env: Option<String>,
    /// The variable that holds an API key.
    pub api_key_env: Option<String>,
    /// The header that the API key is sent in; `X-API-Key` where it isn't said.
    pub api_key_header: Option<String>,
    /// OAuth 2, by client credentials.
    pub oauth: Option<OauthDeclaration>,
    /// Networks that its card may lead to, beside the public internet and its own origin.
    #[serde(default)]
    pub networks: Vec<Range>,
    /// Keys (a JWK set) of which one must have signed its card. Relative to the topology file.
    pub trusted_keys: Option<PathBuf>,
    /// Where it may tell how its tasks go: an A2A listener of this node, as the agent reaches it.
    pub push_url: Option<WebUrl>,
    /// Which of its skills are shown, and as what.
    #[serde(default)]
    pub tools: Filter,
}

/// How an agent without a card is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceDeclaration {
    /// The binding.
    #[serde(default)]
    pub binding: BindingName,
    /// The version of A2A.
    pub version: VersionName,
}

/// A binding of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingName {
    /// JSON-RPC.
    #[default]
    Jsonrpc,
    /// HTTP+JSON.
    Http,
}

/// A version of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum VersionName {
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

/// Client credentials of OAuth 2.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OauthDeclaration {
    /// The client's name at the authorization server.
    pub client_id: String,
    /// The variable that holds its secret.
    pub secret_env: String,
    /// Where tokens are; by default what the card says.
    pub token_url: Option<WebUrl>,
    /// What is asked for.
    #[serde(default)]
    pub scopes: Vec<String>,
}

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    declared::<RemoteDeclaration>(tree, "an A2A agent", problems)
}

impl RemoteDeclaration {
    /// The agent that it stands for. Reads the variables and the file that it names.
    fn open(&self, inboxes: &Inboxes) -> Result<RemoteA2a, StartError> {
        let wrong = StartError::declared("agent", &self.id);
        let url = self.url.url();
        let mut options = RemoteOptions {
            auth: self.auth()?,
            ..RemoteOptions::default()
        };
        let networks = self.networks.iter().map(|range| range.network());
        options.egress = networks.fold(Egress::public(), Egress::with_network);
        options.interface = self.interface.map(|interface| endpoint(url, interface));
        if let Some(seconds) = self.call_timeout_s {
            options.call_timeout = Duration::from_secs(seconds.get());
        }
        if let Some(file) = &self.trusted_keys {
            let text = fs::read(file)
                .map_err(|error| wrong(format!("failed to read {}: {error}", file.display())))?;
            let keys = Jwks::parse(&text)
                .map_err(|error| wrong(format!("{}: {error}", file.display())))?;
            options.trust = CardTrust::Signed {
                keys,
                jku_hosts: Vec::new(),
            };
        }
        if let Some(here) = &self.push_url {
            options.push = Some(
                inboxes
                    .at(here.url())
                    .map_err(|error| wrong(format!("`push_url`: {error}")))?,
            );
        }
        RemoteA2a::new(url.clone(), options).map_err(|error| wrong(error.to_string()))
    }

    fn auth(&self) -> Result<Auth, StartError> {
        let variable = |name: &str| secret(name).map_err(StartError::declared("agent", &self.id));
        if let Some(name) = &self.bearer_env {
            return Ok(Auth::Bearer(variable(name)?));
        }
        if let Some(name) = &self.api_key_env {
            let header = self
                .api_key_header
                .clone()
                .unwrap_or_else(|| KEY_HEADER_DEFAULT.to_owned());
            return Ok(Auth::ApiKey {
                header,
                key: variable(name)?,
            });
        }
        let Some(oauth) = &self.oauth else {
            return Ok(Auth::None);
        };
        Ok(Auth::ClientCredentials {
            token_url: oauth.token_url.as_ref().map(|url| url.url().clone()),
            client_id: oauth.client_id.clone(),
            secret: variable(&oauth.secret_env)?,
            scopes: oauth.scopes.clone(),
        })
    }
}

impl AgentKind for RemoteDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> DataClass {
        self.class
    }

    fn mail_way(&self) -> MemberWay {
        MemberWay::A2a
    }

    fn resolve(&mut self, folder: &Path) {
        self.trusted_keys = self.trusted_keys.take().map(|keys| folder.join(keys));
    }

    fn check(&self, tree: &Tree, _: &Names<'_>, problems: &mut Problems<'_>) {
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
                "with `interface` no card is read, so that no signature is",
            ));
        }
        report(&self.id, wrong, tree, problems);
    }

    fn check_machine(&self, tree: &Tree, problems: &mut Problems<'_>) {
        // Where a secret's variable isn't written it has been missed already.
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
                .for_each(|name| is_set(name, tree.place_at(path), problems));
        }
        check_key_file(
            self.trusted_keys.as_deref(),
            tree.place("trusted_keys"),
            problems,
        );
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let remote = self.open(cx.inboxes)?;
            let running = Running::new(spawn(cx.system, &self.id, remote.clone()));
            Ok(Running {
                filter: self.tools.clone(),
                ..running.ending_with(async move { remote.said_goodbye().await })
            })
        })
    }
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

/// Where agents elsewhere push, by the address that they are given. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Inboxes(Arc<RwLock<HashMap<Url, PushInbox>>>);

impl Inboxes {
    /// The one below this address.
    fn at(&self, declared: &Url) -> Result<PushInbox, url::ParseError> {
        let base = Url::parse(&format!(
            "{}{INBOX_PATH}",
            declared.as_str().trim_end_matches('/')
        ))?;
        let mut all = self.0.write();
        Ok(all
            .entry(base.clone())
            .or_insert_with(|| PushInbox::new(base))
            .clone())
    }

    /// Adds them to a listener's addresses.
    pub(crate) fn configure(&self, config: &mut ServiceConfig) {
        let path = format!("{INBOX_PATH}/{{id}}");
        config.service(
            web::resource(path)
                .app_data(Data::new(self.clone()))
                .route(web::post().to(pushed)),
        );
    }
}

/// What a push says is asked of the agent itself: the body isn't read.
async fn pushed(request: HttpRequest, inboxes: Data<Inboxes>) -> HttpResponse {
    let id = request.match_info().get("id").unwrap_or_default();
    let token = request
        .headers()
        .get(TOKEN_HEADER)
        .and_then(|token| token.to_str().ok());
    let all: Vec<_> = inboxes.0.read().values().cloned().collect();
    match all.iter().any(|inbox| inbox.deliver(id, token)) {
        true => HttpResponse::NoContent().finish(),
        false => HttpResponse::NotFound().finish(),
    }
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
        Self {
            networks,
            keys,
            opened: Mutex::default(),
        }
    }

    /// How an agent is reached whose address `by` named.
    ///
    /// # Errors
    /// `Denied` where nothing that it could say would be believed.
    fn options(&self, by: NamedBy) -> Result<RemoteOptions, Failure> {
        let egress = self
            .networks
            .iter()
            .copied()
            .fold(Egress::public(), Egress::with_network);
        let NamedBy::Peer {
            may_be_here,
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
            trust,
            is_hearsay: true,
            ..RemoteOptions::default()
        })
    }
}

impl Connect for Peers {
    fn look<'a>(&'a self, url: &'a Url, by: NamedBy) -> BoxFuture<'a, Result<Seen, Failure>> {
        Box::pin(async move {
            // One of its own, so that the card is fetched now.
            let peer = Peer::new(url.clone(), self.options(by)?)
                .map_err(|error| Failure::invalid(error.to_string()))?;
            Ok(seen(&peer.public_card().await?.card))
        })
    }

    fn open(&self, system: &System, url: &Url, by: NamedBy) -> Result<AgentRef, Failure> {
        let remote = RemoteA2a::new(url.clone(), self.options(by)?);
        let remote = remote.map_err(|error| Failure::invalid(error.to_string()))?;
        let mut opened = self.opened.lock();
        opened.insert(url.clone(), remote.clone());
        Ok(system
            .prepare_with(move || remote.clone())
            .label(url.as_str())
            .spawn())
    }

    fn said_goodbye(&self) -> BoxFuture<'_, ()> {
        let opened = std::mem::take(&mut *self.opened.lock());
        Box::pin(async move {
            join_all(opened.values().map(RemoteA2a::said_goodbye)).await;
        })
    }
}

/// What a card says. Its skills take the way of those of a declared agent: as tools.
fn seen(card: &AgentCard) -> Seen {
    let skills = skill_tools(card).iter().filter_map(skill_of_tool).collect();
    Seen {
        name: card.name.clone(),
        description: card.description.clone(),
        skills,
    }
}
