//! Making a connection: which era the server is of, and the handshake of that.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use callboard_message::RawObject;
use callboard_rpc::http1::Clients;
use callboard_runtime::Cx;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::ear::Ear;
use super::link::{Http, Link, LinkError, child, lock, old_sse, websocket};
use super::news::News;
use super::options::{ClientError, ClientOptions, Endpoint, EraChoice};
use super::session::Session;
use super::tool_book::ToolBook;
use super::{legacy, listen, modern};
use crate::wire::{Era, Revision};

/// A server, and what outlasts an incarnation of the agent that stands for it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    http: Clients,
    /// Which era it was found to be of.
    pub(crate) remembered: Arc<Mutex<Option<Era>>>,
    /// What ended connections have left to do.
    farewells: TaskTracker,
}

impl Server {
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn new(endpoint: Endpoint, options: &ClientOptions) -> Result<Self, ClientError> {
        options.fit(&endpoint)?;
        let http = options.clients()?;
        Ok(Self { endpoint, http, remembered: Arc::default(), farewells: TaskTracker::new() })
    }

    /// What connections of the agent `cx` are made from.
    pub(crate) fn wiring(&self, options: Arc<ClientOptions>, cx: &Cx) -> Wiring {
        Wiring {
            server: self.clone(),
            options,
            runtime: Handle::try_current().ok(),
            news: News { cx: cx.clone(), tells: true },
            tools: Arc::default(),
        }
    }

    /// Ends when all that connections had to end has ended: children, sessions with servers.
    pub(crate) async fn said_goodbye(&self) {
        self.farewells.close();
        self.farewells.wait().await;
    }
}

/// What a connection is made from.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub(crate) server: Server,
    pub(crate) options: Arc<ClientOptions>,
    /// Where what outlasts a call runs: a call's own runtime may be somebody else's.
    pub(crate) runtime: Option<Handle>,
    /// Whom to tell of changes.
    pub(crate) news: News,
    /// What is known of the server's tools.
    pub(crate) tools: Arc<ToolBook>,
}

impl Wiring {
    /// Runs `work` where it can outlast the call that needed it.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        match &self.runtime {
            Some(runtime) => runtime.spawn(work),
            None => tokio::spawn(work),
        }
    }
}

/// What one connection after another is made from.
pub(super) struct Core {
    pub(super) wiring: Wiring,
    /// Resources whose changes somebody wants to be told of: asked for again on each new connection.
    pub(super) resources: Mutex<BTreeSet<String>>,
}

impl Deref for Core {
    type Target = Wiring;

    fn deref(&self) -> &Wiring {
        &self.wiring
    }
}

impl Core {
    fn ear(&self) -> Arc<Ear> {
        Arc::new(Ear::new(
            self.tools.clone(),
            self.news.clone(),
            self.server.farewells.clone(),
            self.options.only_caller.clone(),
            self.options.dialect,
        ))
    }

    /// Connects, and says what each connection begins with.
    pub(super) async fn connect(&self) -> Result<Arc<Session>, LinkError> {
        let session = self.agree().await?;
        *lock(&self.server.remembered) = Some(session.era());
        let resources: Vec<String> = lock(&self.resources).iter().cloned().collect();
        if session.era() == Era::Legacy {
            self.greet(&session, &resources).await;
        }
        if let Some(listener) = listen::start(&session, resources) {
            listener.install(&session).await;
        }
        session.ear.roots.connected();
        Ok(session)
    }

    /// Finds out which era the server is of, and opens a session of that.
    async fn agree(&self) -> Result<Arc<Session>, LinkError> {
        let only = match self.options.era {
            EraChoice::Only(era) => Some(era),
            EraChoice::Auto => None,
        };
        let known = only.or(*lock(&self.server.remembered));
        if known == Some(Era::Legacy) || matches!(self.server.endpoint, Endpoint::Sse(_)) {
            return self.agree_legacy(None).await;
        }
        let ear = self.ear();
        ear.set_modern(true);
        let link = self.open(&ear).await?;
        let probe = modern::discover(&link, &ear, &self.options);
        let found = match known {
            Some(_) => probe.await,
            // A legacy server may say nothing to what it doesn't know.
            None => timeout(self.options.probe_timeout, probe).await.unwrap_or(Ok(None)),
        };
        match (found, only) {
            (Ok(Some(about)), _) => Ok(self.session(link, ear, Revision::V2026_07_28, about)),
            (Ok(None), Some(_)) => {
                Err(LinkError::Protocol("the server is of the legacy era, which isn't wanted".into()))
            }
            // One that ended over a question that it didn't know is started again.
            (Err(LinkError::Broken(_)), None) if matches!(self.server.endpoint, Endpoint::Child(_)) => {
                self.agree_legacy(None).await
            }
            (Ok(None), None) => self.agree_legacy(Some((link, ear))).await,
            (Err(error), _) => Err(error),
        }
    }

    async fn agree_legacy(&self, opened: Option<(Link, Arc<Ear>)>) -> Result<Arc<Session>, LinkError> {
        let (link, ear) = match opened.filter(|(link, _)| !link.is_closed()) {
            Some(opened) => opened,
            None => {
                let ear = self.ear();
                (self.open(&ear).await?, ear)
            }
        };
        ear.set_modern(false);
        match legacy::initialize(&link, &ear, &self.options).await {
            Ok((revision, about)) => Ok(self.session(link, ear, revision, about)),
            // There may be a server of 2024-11-05 (2026-07-28, streamable HTTP, HTTP+SSE transport).
            Err(LinkError::Status(status @ (400 | 404 | 405))) => match &self.server.endpoint {
                Endpoint::Http(url) => {
                    let ear = self.ear();
                    let http = Http::new(self.server.http.clone(), url.clone(), self.options.clone(), ear.clone());
                    let link = old_sse::open(http, ear.clone()).await.map_err(|_| LinkError::Status(status))?;
                    let (revision, about) = legacy::initialize(&link, &ear, &self.options).await?;
                    Ok(self.session(link, ear, revision, about))
                }
                _ => Err(LinkError::Status(status)),
            },
            // A modern one that was being loaded all the time that a probe waits.
            Err(LinkError::Rpc { error, status })
                if self.options.era == EraChoice::Auto && modern::is_modern_only(&error) =>
            {
                ear.set_modern(true);
                match modern::discover(&link, &ear, &self.options).await? {
                    Some(about) => Ok(self.session(link, ear, Revision::V2026_07_28, about)),
                    None => Err(LinkError::Rpc { error, status }),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn session(&self, link: Link, ear: Arc<Ear>, revision: Revision, about: RawObject) -> Arc<Session> {
        Arc::new(Session { link, ear, options: self.options.clone(), revision, about, listener: Mutex::default() })
    }

    async fn open(&self, ear: &Arc<Ear>) -> Result<Link, LinkError> {
        let http =
            |url: &reqwest::Url| Http::new(self.server.http.clone(), url.clone(), self.options.clone(), ear.clone());
        match &self.server.endpoint {
            Endpoint::Http(url) => Ok(Link::Http(Arc::new(http(url)))),
            Endpoint::Sse(url) => old_sse::open(http(url), ear.clone()).await,
            Endpoint::WebSocket(url) => websocket::open(url, &self.options, ear.clone()).await,
            Endpoint::Child(command) => child::start(command, &self.options, ear.clone()),
        }
    }

    /// What a legacy server is told once it is connected. What it refuses of that, the calls don't need.
    async fn greet(&self, session: &Session, resources: &[String]) {
        let level = self.options.log_level.filter(|_| session.has("logging"));
        if let Some(level) = level {
            let params = RawObject::new().with("level", level);
            if let Err(error) = session.request_quietly("logging/setLevel", params).await {
                callboard_message::log::debug!(%error, "the server sets no log level");
            }
        }
        for uri in resources {
            let params = RawObject::new().with("uri", uri);
            if let Err(error) = session.request_quietly("resources/subscribe", params).await {
                callboard_message::log::warn!(%error, "a resource is no longer followed");
            }
        }
    }
}
