//! One server: connected when it is first needed, connected again when that was lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use callboard_message::{Failure, FailureKind, RawObject};
use callboard_runtime::Cx;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::ear::Ear;
use super::legacy;
use super::link::{Http, Link, LinkError, client, lock};
use super::listen;
use super::modern::{self, Discovered};
use super::options::{ClientOptions, Endpoint, EraChoice, SUBSCRIPTIONS_MAX};
use super::session::{Session, quietly};
use super::tool_book::ToolBook;
use crate::wire::{Era, Revision};

/// What one incarnation of a client has of its server.
pub(super) struct Upstream {
    core: Arc<Core>,
    state: Mutex<State>,
}

/// What a connection is made from.
struct Core {
    endpoint: Endpoint,
    options: Arc<ClientOptions>,
    http: reqwest::Client,
    cx: Cx,
    tools: Arc<ToolBook>,
    /// Resources whose changes somebody wants to be told of: asked for again on each new connection.
    resources: Mutex<BTreeSet<String>>,
    /// Which era the server was found to be of; outlasts this incarnation.
    remembered: Arc<Mutex<Option<Era>>>,
    farewells: TaskTracker,
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Session>, LinkError>>>;

enum State {
    Apart,
    Connecting(Connecting),
    Up(Arc<Session>),
}

impl Upstream {
    pub(super) fn new(
        endpoint: Endpoint,
        options: Arc<ClientOptions>,
        http: reqwest::Client,
        (remembered, farewells): (Arc<Mutex<Option<Era>>>, TaskTracker),
        cx: Cx,
    ) -> Self {
        let (tools, resources) = (Arc::default(), Mutex::default());
        let core = Arc::new(Core { endpoint, options, http, cx, tools, resources, remembered, farewells });
        Self { core, state: Mutex::new(State::Apart) }
    }

    /// The connection, made now where there is none. Several calls that need one share it.
    pub(super) async fn session(&self) -> Result<Arc<Session>, LinkError> {
        let connecting = {
            let mut state = lock(&self.state);
            match &*state {
                State::Up(session) if !session.link.is_closed() => return Ok(session.clone()),
                // One that failed while nobody looked tells nothing of now.
                State::Connecting(connecting) if !matches!(connecting.peek(), Some(Err(_))) => connecting.clone(),
                _ => {
                    let connecting = self.connecting();
                    *state = State::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        let connected = connecting.clone().await;
        let mut state = lock(&self.state);
        if matches!(&*state, State::Connecting(current) if current.ptr_eq(&connecting)) {
            *state = match &connected {
                Ok(session) => State::Up(session.clone()),
                Err(_) => State::Apart,
            };
        }
        connected
    }

    /// A task of its own, so that it goes on when the call that needed it first is cancelled.
    fn connecting(&self) -> Connecting {
        let core = self.core.clone();
        let task = tokio::spawn(async move {
            let limit = core.options.handshake_timeout;
            timeout(limit, core.connect()).await.unwrap_or(Err(LinkError::TimedOut(limit)))
        });
        let task = AbortOnDropHandle::new(task);
        async move { task.await.unwrap_or(Err(LinkError::Broken("the connection was given up"))) }.boxed().shared()
    }

    /// Forgets `session`: the next call makes another.
    fn leave(&self, session: &Arc<Session>) {
        let mut state = lock(&self.state);
        if matches!(&*state, State::Up(current) if Arc::ptr_eq(current, session)) {
            *state = State::Apart;
        }
    }

    /// Does a request of the call `cx`. A server that has forgotten the session is greeted once more.
    pub(super) async fn request(&self, method: &str, params: RawObject, cx: &Cx) -> Result<Box<RawValue>, LinkError> {
        let session = self.session().await?;
        match self.request_in(&session, method, params.clone(), cx).await {
            Err(LinkError::SessionLost) => {
                self.leave(&session);
                drop(session);
                let session = self.session().await?;
                self.request_in(&session, method, params, cx).await
            }
            other => other,
        }
    }

    async fn request_in(
        &self,
        session: &Arc<Session>,
        method: &str,
        params: RawObject,
        cx: &Cx,
    ) -> Result<Box<RawValue>, LinkError> {
        if session.era() == Era::Legacy {
            return session.request(method, params, cx).await;
        }
        let tools = &self.core.tools;
        let mirrors = method == "tools/call" && session.link.http().is_some();
        if mirrors {
            self.know(session, &params).await?;
        }
        let result = modern::rounds(session, tools, method, params.clone(), cx).await;
        match result {
            Err(error) if mirrors && modern::is_header_mismatch(&error) => {
                tools.forget();
                self.know(session, &params).await?;
                modern::rounds(session, tools, method, params, cx).await
            }
            Err(LinkError::Status(status @ (400 | 404 | 405))) => {
                // No modern server answers so: it may have become another.
                self.forget_era();
                self.leave(session);
                Err(LinkError::Status(status))
            }
            other => other,
        }
    }

    /// Sees to it that the tool's schema is known before it is called: it says what goes into headers.
    async fn know(&self, session: &Session, params: &RawObject) -> Result<(), LinkError> {
        let Some(tool) = params.text("name") else { return Ok(()) };
        if self.core.tools.get(&tool).is_none() && !self.core.tools.is_whole() {
            self.read_tools(session).await;
        }
        match self.core.tools.get(&tool) {
            Some(known) if known.mirrors.is_none() => Err(LinkError::Failed(Failure::new(
                FailureKind::Rejected,
                "the tool's x-mcp-header annotations are invalid",
            ))),
            _ => Ok(()),
        }
    }

    /// Reads the list of tools to its end, or as far as it goes.
    async fn read_tools(&self, session: &Session) {
        let mut cursor: Option<Box<RawValue>> = None;
        for _ in 0..self.core.options.pages_max {
            let mut params = RawObject::new();
            if let Some(cursor) = cursor.take() {
                params.set_raw("cursor", cursor);
            }
            let page = match session.era() {
                Era::Legacy => session.request_quietly("tools/list", params).await,
                Era::Modern => {
                    let ask = |number| modern::request(number, "tools/list", params, None, &self.core.options, None);
                    quietly(&session.link, &session.ear, ask).await
                }
            };
            let Ok(page) = page else { return };
            cursor = self.learn(session, &page).1;
            if cursor.is_none() {
                self.core.tools.set_whole();
                return;
            }
        }
        tracing::warn!(pages_max = self.core.options.pages_max, "the list of tools doesn't end");
    }

    /// Learns from a page of `tools/list`: the page without tools that mustn't be used where it has some, and the cursor
    /// of the next.
    fn learn(&self, session: &Session, page: &RawValue) -> (Option<Box<RawValue>>, Option<Box<RawValue>>) {
        let is_strict = session.era() == Era::Modern && session.link.http().is_some();
        let kept = self.core.tools.learn(page, is_strict);
        let next = RawObject::parse(page).ok().and_then(|mut page| page.remove("nextCursor"));
        (kept, next.filter(|cursor| cursor.get() != "null"))
    }

    /// `tools/list`, without tools that mustn't be used.
    pub(super) async fn list_tools(&self, params: RawObject, cx: &Cx) -> Result<Box<RawValue>, LinkError> {
        let from_start = !params.has("cursor");
        let page = self.request("tools/list", params, cx).await?;
        let session = self.session().await?;
        let (kept, next) = self.learn(&session, &page);
        if from_start && next.is_none() {
            self.core.tools.set_whole();
        }
        Ok(kept.unwrap_or(page))
    }

    /// Whether a tool's structured content is `{"result": …}` around the value.
    pub(super) async fn is_wrapped(&self, tool: &str) -> bool {
        if self.core.tools.get(tool).is_none()
            && !self.core.tools.is_whole()
            && let Ok(session) = self.session().await
        {
            self.read_tools(&session).await;
        }
        self.core.tools.get(tool).is_some_and(|known| known.wrapped)
    }

    /// Tells this agent's followers of changes to a resource, or no more.
    pub(super) async fn subscribe(&self, on: bool, params: RawObject, cx: &Cx) -> Result<Box<RawValue>, LinkError> {
        let uri = params.text("uri").ok_or_else(|| LinkError::Failed(Failure::invalid("`uri` must be a string")))?;
        let session = self.session().await?;
        if on && lock(&self.core.resources).len() >= SUBSCRIPTIONS_MAX {
            let why = format!("more than {SUBSCRIPTIONS_MAX} resources are followed");
            return Err(LinkError::Failed(Failure::new(FailureKind::Overloaded, why)));
        }
        let result = match session.era() {
            Era::Legacy if on => self.request("resources/subscribe", params, cx).await?,
            Era::Legacy => self.request("resources/unsubscribe", params, cx).await?,
            Era::Modern => RawObject::new().with("resultType", "complete").to_raw(),
        };
        let resources: Vec<String> = {
            let mut resources = lock(&self.core.resources);
            match on {
                true => drop(resources.insert(uri)),
                false => drop(resources.remove(&uri)),
            }
            resources.iter().cloned().collect()
        };
        if session.era() == Era::Modern {
            match listen::start(&session, resources) {
                Some(listener) => listener.replace(&session).await,
                None => drop(lock(&session.listener).take()),
            }
        }
        Ok(result)
    }

    fn forget_era(&self) {
        *lock(&self.core.remembered) = None;
    }

    /// What people see of it.
    pub(super) fn observe(&self) -> serde_json::Value {
        match &*lock(&self.state) {
            State::Apart => serde_json::json!({ "server": self.core.endpoint.to_string(), "state": "apart" }),
            State::Connecting(_) => {
                serde_json::json!({ "server": self.core.endpoint.to_string(), "state": "connecting" })
            }
            State::Up(session) => serde_json::json!({
                "server": self.core.endpoint.to_string(),
                "state": if session.link.is_closed() { "apart" } else { "connected" },
                "revision": session.revision.as_str(),
                "unknown_responses": session.ear.flights().unknown(),
            }),
        }
    }
}

impl Core {
    fn ear(&self) -> Arc<Ear> {
        Arc::new(Ear::new(
            self.tools.clone(),
            self.cx.clone(),
            self.farewells.clone(),
            self.options.only_caller.clone(),
        ))
    }

    async fn connect(&self) -> Result<Arc<Session>, LinkError> {
        let session = self.agree().await?;
        *lock(&self.remembered) = Some(session.era());
        let resources: Vec<String> = lock(&self.resources).iter().cloned().collect();
        if session.era() == Era::Legacy {
            self.greet(&session, &resources).await;
        }
        if let Some(listener) = listen::start(&session, resources) {
            listener.install(&session);
        }
        Ok(session)
    }

    /// Finds out which era the server is of, and opens a session of that.
    async fn agree(&self) -> Result<Arc<Session>, LinkError> {
        let only = match self.options.era {
            EraChoice::Only(era) => Some(era),
            EraChoice::Auto => None,
        };
        let known = only.or(*lock(&self.remembered));
        if known == Some(Era::Legacy) || matches!(self.endpoint, Endpoint::Sse(_)) {
            return self.agree_legacy(None).await;
        }
        let ear = self.ear();
        ear.set_modern();
        let link = self.open(&ear).await?;
        let probe = modern::discover(&link, &ear, &self.options);
        let found = match known {
            Some(_) => probe.await,
            // A legacy server may say nothing to what it doesn't know.
            None => timeout(self.options.probe_timeout, probe).await.unwrap_or(Ok(Discovered::Legacy)),
        };
        match (found, only) {
            (Ok(Discovered::Modern(about)), _) => Ok(self.modern(link, ear, about)),
            (Ok(Discovered::Legacy), Some(_)) => {
                Err(LinkError::Protocol("the server is of the legacy era, which isn't wanted".into()))
            }
            // One that ended over a question that it didn't know is started again.
            (Err(LinkError::Broken(_)), None) if matches!(self.endpoint, Endpoint::Child(_)) => {
                self.agree_legacy(None).await
            }
            (Ok(Discovered::Legacy), None) => self.agree_legacy(Some((link, ear))).await,
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
        ear.set_legacy();
        match legacy::initialize(&link, &ear, &self.options).await {
            Ok((revision, about)) => Ok(self.legacy(link, ear, revision, about)),
            // There may be a server of 2024-11-05 (2026-07-28, streamable HTTP, HTTP+SSE transport).
            Err(LinkError::Status(status @ (400 | 404 | 405))) => match &self.endpoint {
                Endpoint::Http(url) => {
                    let ear = self.ear();
                    let http = Http::new(self.http.clone(), url.clone(), self.options.clone(), ear.clone());
                    let link = Link::old_sse(http, ear.clone()).await.map_err(|_| LinkError::Status(status))?;
                    let (revision, about) = legacy::initialize(&link, &ear, &self.options).await?;
                    Ok(self.legacy(link, ear, revision, about))
                }
                _ => Err(LinkError::Status(status)),
            },
            // A modern one that was being loaded all the time that a probe waits.
            Err(LinkError::Rpc { error, status })
                if self.options.era == EraChoice::Auto && modern::is_modern_only(&error) =>
            {
                ear.set_modern();
                match modern::discover(&link, &ear, &self.options).await? {
                    Discovered::Modern(about) => Ok(self.modern(link, ear, about)),
                    Discovered::Legacy => Err(LinkError::Rpc { error, status }),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn modern(&self, link: Link, ear: Arc<Ear>, about: RawObject) -> Arc<Session> {
        Arc::new(Session::new(link, ear, self.options.clone(), Revision::V2026_07_28, about))
    }

    fn legacy(&self, link: Link, ear: Arc<Ear>, revision: Revision, about: RawObject) -> Arc<Session> {
        Arc::new(Session::new(link, ear, self.options.clone(), revision, about))
    }

    async fn open(&self, ear: &Arc<Ear>) -> Result<Link, LinkError> {
        let http = |url: &reqwest::Url| Http::new(self.http.clone(), url.clone(), self.options.clone(), ear.clone());
        match &self.endpoint {
            Endpoint::Http(url) => Ok(Link::Http(Arc::new(http(url)))),
            Endpoint::Sse(url) => Link::old_sse(http(url), ear.clone()).await,
            Endpoint::WebSocket(url) => Link::websocket(url, &self.options, ear.clone()).await,
            Endpoint::Child(command) => Link::child(command, &self.options, ear.clone()),
        }
    }

    /// What a legacy server is told once it is connected. What it refuses of that, the calls don't need.
    async fn greet(&self, session: &Session, resources: &[String]) {
        let level = self.options.log_level.filter(|_| session.has("logging"));
        if let Some(level) = level {
            let params = RawObject::new().with("level", level);
            if let Err(error) = session.request_quietly("logging/setLevel", params).await {
                tracing::debug!(%error, "the server sets no log level");
            }
        }
        for uri in resources {
            let params = RawObject::new().with("uri", uri);
            if let Err(error) = session.request_quietly("resources/subscribe", params).await {
                tracing::warn!(%error, "a resource is no longer followed");
            }
        }
    }
}

/// The HTTP client for one agent's server.
pub(super) fn http_client(options: &ClientOptions) -> Result<reqwest::Client, super::ClientError> {
    client(options)
}
