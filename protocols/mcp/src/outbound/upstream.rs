//! One server: connected when it is first needed, connected again when that was lost.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use callboard_message::{Failure, RawObject};
use callboard_rpc::http1::{Clients, Connector};
use callboard_runtime::Cx;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::conversation::Connection;
use super::exchange::{Exchanged, TransportError};
use super::options::{ClientError, ClientOptions, Endpoint, EraChoice, SUBSCRIPTIONS_MAX};
use super::server_messages::NotificationHandler;
use super::session::{Session, initialize};
use super::tool_cache::ToolCache;
use super::transport::{Http, Transport, child, http, websocket};
use super::{listen, modern};
use crate::wire::{Era, Revision, hmcp};

/// The request to be told of a resource's changes.
const SUBSCRIBE: &str = "resources/subscribe";

/// What one incarnation of a client has of its server.
pub(crate) struct Upstream {
    core: Arc<Core>,
    state: Mutex<State>,
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Session>, TransportError>>>;

enum State {
    Apart,
    Connecting(Connecting),
    Up(Arc<Session>),
}

impl Upstream {
    pub fn new(wiring: Wiring) -> Self {
        let core = Arc::new(Core {
            wiring,
            resources: Mutex::default(),
        });
        Self {
            core,
            state: Mutex::new(State::Apart),
        }
    }

    /// The connection there is, if there is one.
    pub fn current(&self) -> Option<Arc<Session>> {
        match &*self.state.lock() {
            State::Up(session) if !session.link.is_closed() => Some(session.clone()),
            _ => None,
        }
    }

    /// Asks the server whether it is there, over the connection where there is one; else makes one.
    pub async fn check(&self) -> Result<Arc<Session>, TransportError> {
        let Some(session) = self.current() else {
            return self.session().await;
        };
        let checked = match session.era() {
            Era::Legacy => session
                .request_quietly("ping", RawObject::new())
                .await
                .map(drop),
            Era::Modern => modern::discover(&session).await.map(drop),
        };
        match checked {
            // Whatever it says, it is there.
            Ok(()) | Err(TransportError::Rpc { .. }) => Ok(session),
            Err(TransportError::SessionLost) => {
                self.leave(&session);
                self.session().await
            }
            Err(error) => Err(error),
        }
    }

    /// The connection, made now where there is none. Several calls that need one share it.
    pub async fn session(&self) -> Result<Arc<Session>, TransportError> {
        let connecting = {
            let mut state = self.state.lock();
            match &*state {
                State::Up(session) if !session.link.is_closed() => return Ok(session.clone()),
                // One that failed while nobody looked tells nothing of now.
                State::Connecting(connecting) if !matches!(connecting.peek(), Some(Err(_))) => {
                    connecting.clone()
                }
                _ => {
                    let connecting = self.connecting();
                    *state = State::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        let connected = connecting.clone().await;
        let mut state = self.state.lock();
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
        let task = self.core.spawn(async move {
            let limit = core.options.handshake_timeout;
            timeout(limit, core.connect())
                .await
                .unwrap_or(Err(TransportError::TimedOut(limit)))
        });
        let task = AbortOnDropHandle::new(task);
        async move {
            task.await
                .unwrap_or(Err(TransportError::Broken("the connection was given up")))
        }
        .boxed()
        .shared()
    }

    /// Forgets `session`: the next call makes another.
    pub fn leave(&self, session: &Arc<Session>) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Up(current) if Arc::ptr_eq(current, session)) {
            *state = State::Apart;
        }
    }

    /// Tells the server that the client's roots have changed, where it was promised to hear of that. A connection to be made
    /// asks for them anew.
    pub async fn roots_changed(&self) {
        let connecting = match &*self.state.lock() {
            State::Connecting(connecting) => Some(connecting.clone()),
            _ => None,
        };
        let session = match connecting {
            Some(connecting) => connecting.await.ok(),
            None => self.current(),
        };
        if let Some(session) = session {
            session.tell_roots_changed().await;
        }
    }

    /// Does a request of the call `cx`.
    pub async fn request(&self, method: &str, params: &RawObject, cx: &Cx) -> Exchanged {
        match method {
            // Boxed, for they are rare: other requests carry no room for them.
            "tools/list" => Box::pin(self.list_tools(params, cx)).await,
            SUBSCRIBE | "resources/unsubscribe" => {
                Box::pin(self.subscribe(method, params, cx)).await
            }
            _ => self.send(method, params, cx).await,
        }
    }

    /// Sends a request. A server that has forgotten the session is greeted once more.
    async fn send(&self, method: &str, params: &RawObject, cx: &Cx) -> Exchanged {
        let session = self.session().await?;
        match self.send_in(&session, method, params, cx).await {
            Err(TransportError::SessionLost) => {
                self.leave(&session);
                drop(session);
                let session = self.session().await?;
                self.send_in(&session, method, params, cx).await
            }
            other => other,
        }
    }

    async fn send_in(
        &self,
        session: &Arc<Session>,
        method: &str,
        params: &RawObject,
        cx: &Cx,
    ) -> Exchanged {
        if method == hmcp::METHOD {
            hmcp::gate(&session.about).map_err(TransportError::Failed)?;
        }
        if session.era() == Era::Legacy {
            return session.request(method, params, cx).await;
        }
        let tools = &self.core.tools;
        let mirrors = method == "tools/call" && session.link.http().is_some();
        if mirrors {
            self.know(session, params).await?;
        }
        let result = modern::rounds(session, tools, method, params, cx).await;
        match result {
            Err(error) if mirrors && modern::is_header_mismatch(&error) => {
                tools.forget();
                self.know(session, params).await?;
                modern::rounds(session, tools, method, params, cx).await
            }
            Err(TransportError::Status(status @ (400 | 404 | 405))) => {
                // No modern server answers so: it may have become another.
                *self.core.server.remembered.lock() = None;
                self.leave(session);
                Err(TransportError::Status(status))
            }
            other => other,
        }
    }

    /// Sees to it that the tool's schema is known before it is called: it says what goes into headers.
    async fn know(&self, session: &Session, params: &RawObject) -> Result<(), TransportError> {
        let Some(tool) = params.text("name") else {
            return Ok(());
        };
        if self.core.tools.lacks(&tool) {
            // Boxed, for most calls need it not: they carry no room for it.
            Box::pin(self.read_tools(session)).await;
        }
        match self.core.tools.get(&tool) {
            Some(known) if known.header_params.is_none() => Err(TransportError::Failed(
                Failure::rejected("the tool's x-mcp-header annotations are invalid"),
            )),
            _ => Ok(()),
        }
    }

    /// Reads the list of tools to its end, or as far as it goes.
    async fn read_tools(&self, session: &Session) {
        let mut cursor = None;
        for _ in 0..self.core.options.pages_max {
            let mut params = RawObject::new();
            params.set_some("cursor", &cursor);
            let page = match session.era() {
                Era::Legacy => session.request_quietly("tools/list", params).await,
                Era::Modern => {
                    let ask = |number| {
                        modern::request(number, "tools/list", &params, None, &session.options, None)
                    };
                    session.quietly(ask).await
                }
            };
            let Ok(page) = page else { return };
            cursor = self.learn(session, &page).1;
            if cursor.is_none() {
                self.core.tools.set_whole();
                return;
            }
        }
        callboard_message::log::warn!(
            pages_max = self.core.options.pages_max,
            "the list of tools doesn't end"
        );
    }

    /// Learns from a page of `tools/list`: the page without tools that mustn't be used where it has some, and the cursor
    /// of the next.
    fn learn(
        &self,
        session: &Session,
        page: &RawValue,
    ) -> (Option<Box<RawValue>>, Option<Box<RawValue>>) {
        let is_strict = session.era() == Era::Modern && session.link.http().is_some();
        let kept = self.core.tools.learn(page, is_strict);
        let next = RawObject::parse(page)
            .ok()
            .and_then(|mut page| page.remove("nextCursor"));
        (kept, next.filter(|cursor| cursor.get() != "null"))
    }

    /// `tools/list`, without tools that mustn't be used.
    async fn list_tools(&self, params: &RawObject, cx: &Cx) -> Exchanged {
        let from_start = !params.has("cursor");
        let page = self.send("tools/list", params, cx).await?;
        let session = self.session().await?;
        let (kept, next) = self.learn(&session, &page);
        if from_start && next.is_none() {
            self.core.tools.set_whole();
        }
        Ok(kept.unwrap_or(page))
    }

    /// Whether a tool's structured content is `{"result": …}` around the value.
    pub async fn is_wrapped(&self, tool: &str) -> bool {
        if self.core.tools.lacks(tool)
            && let Ok(session) = self.session().await
        {
            self.read_tools(&session).await;
        }
        self.core.tools.get(tool).is_some_and(|known| known.wrapped)
    }

    /// Tells this agent's followers of changes to a resource, or no more.
    async fn subscribe(&self, method: &str, params: &RawObject, cx: &Cx) -> Exchanged {
        let on = method == SUBSCRIBE;
        let uri = params
            .text("uri")
            .ok_or_else(|| TransportError::Failed(Failure::invalid("`uri` must be a string")))?;
        let session = self.session().await?;
        if on && self.core.resources.lock().len() >= SUBSCRIPTIONS_MAX {
            let why = format!("more than {SUBSCRIPTIONS_MAX} resources are followed");
            return Err(TransportError::Failed(Failure::overloaded(why)));
        }
        let result = match session.era() {
            Era::Legacy => self.send(method, params, cx).await?,
            Era::Modern => RawObject::of("resultType", "complete").to_raw(),
        };
        let resources: Vec<String> = {
            let mut resources = self.core.resources.lock();
            match on {
                true => drop(resources.insert(uri)),
                false => drop(resources.remove(&uri)),
            }
            resources.iter().cloned().collect()
        };
        if session.era() == Era::Modern {
            let listener = {
                let _there = self.core.runtime.as_ref().map(|runtime| runtime.enter());
                listen::start(&session, resources)
            };
            match listener {
                Some(listener) => listener.replace(&session).await,
                None => drop(session.listener.lock().take()),
            }
        }
        Ok(result)
    }

    /// What people see of it.
    pub fn observe(&self) -> serde_json::Value {
        let mut seen = serde_json::json!({ "server": self.core.server.endpoint.to_string(), "state": "apart" });
        match &*self.state.lock() {
            State::Apart => {}
            State::Connecting(_) => seen["state"] = "connecting".into(),
            State::Up(session) => {
                if !session.link.is_closed() {
                    seen["state"] = "connected".into();
                }
                seen["revision"] = session.revision.as_str().into();
                seen["unknown_responses"] = session.ear.flights.unknown().into();
            }
        }
        seen
    }
}

/// A server, and what outlasts an incarnation of the agent that stands for it.
#[derive(Clone)]
pub(crate) struct Server {
    pub endpoint: Endpoint,
    http: Clients,
    /// Which era it was found to be of.
    pub remembered: Arc<Mutex<Option<Era>>>,
    /// What ended connections have left to do.
    farewells: TaskTracker,
}

impl Server {
    /// # Errors
    /// See [`ClientError`].
    pub fn new(endpoint: Endpoint, options: &ClientOptions) -> Result<Self, ClientError> {
        options.fit(&endpoint)?;
        let http =
            Clients::new(Connector::new(options.connect_timeout).map_err(ClientError::Client)?);
        Ok(Self {
            endpoint,
            http,
            remembered: Arc::default(),
            farewells: TaskTracker::new(),
        })
    }

    /// What connections of the agent `cx` are made from.
    pub fn wiring(&self, options: Arc<ClientOptions>, cx: &Cx) -> Wiring {
        Wiring {
            server: self.clone(),
            options,
            runtime: Handle::try_current().ok(),
            news: Some(cx.clone()),
            tools: Arc::default(),
        }
    }

    /// Ends when all that connections had to end has ended: children, sessions with servers.
    pub async fn said_goodbye(&self) {
        self.farewells.close();
        self.farewells.wait().await;
    }
}

/// What a connection is made from.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub server: Server,
    pub options: Arc<ClientOptions>,
    /// Where what outlasts a call runs: a call's own runtime may be somebody else's.
    pub runtime: Option<Handle>,
    /// Whose followers are told of changes; nobody where another connection with the server tells.
    pub news: Option<Cx>,
    /// What is known of the server's tools.
    pub tools: Arc<ToolCache>,
}

impl Wiring {
    /// Runs `work` where it can outlast the call that needed it.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.runtime {
            Some(runtime) => runtime.spawn(work),
            None => tokio::spawn(work),
        }
    }
}

/// What one connection after another is made from.
pub(crate) struct Core {
    wiring: Wiring,
    /// Resources whose changes somebody wants to be told of: asked for again on each new connection.
    resources: Mutex<BTreeSet<String>>,
}

impl Deref for Core {
    type Target = Wiring;

    fn deref(&self) -> &Wiring {
        &self.wiring
    }
}

impl Core {
    /// Connects, and says what each connection begins with.
    async fn connect(&self) -> Result<Arc<Session>, TransportError> {
        let session = self.agree().await?;
        *self.server.remembered.lock() = Some(session.era());
        let resources: Vec<String> = self.resources.lock().iter().cloned().collect();
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
    async fn agree(&self) -> Result<Arc<Session>, TransportError> {
        let only = self.options.era.only();
        let known = only.or(*self.server.remembered.lock());
        if known == Some(Era::Legacy) || matches!(self.server.endpoint, Endpoint::Sse(_)) {
            return self.agree_legacy(None).await;
        }
        let connection = self.open(&self.server.endpoint).await?;
        connection.ear.set_modern(true);
        let probe = modern::discover(&connection);
        let found = match known {
            Some(_) => probe.await,
            // A legacy server may say nothing to what it doesn't know.
            None => timeout(self.options.probe_timeout, probe)
                .await
                .unwrap_or(Ok(None)),
        };
        match (found, only) {
            (Ok(Some(about)), _) => Ok(Session::new(connection, Revision::V2026_07_28, about)),
            (Ok(None), Some(_)) => Err(TransportError::Protocol(
                "the server is of the legacy era, which isn't wanted".into(),
            )),
            // One that ended over a question that it didn't know is started again.
            (Err(TransportError::Broken(_)), None)
                if matches!(self.server.endpoint, Endpoint::Child(_)) =>
            {
                self.agree_legacy(None).await
            }
            (Ok(None), None) => self.agree_legacy(Some(connection)).await,
            (Err(error), _) => Err(error),
        }
    }

    async fn agree_legacy(
        &self,
        opened: Option<Connection>,
    ) -> Result<Arc<Session>, TransportError> {
        let connection = match opened.filter(|opened| !opened.link.is_closed()) {
            Some(opened) => opened,
            None => self.open(&self.server.endpoint).await?,
        };
        connection.ear.set_modern(false);
        match (initialize(&connection).await, &self.server.endpoint) {
            // There may be a server of 2024-11-05 (2026-07-28, streamable HTTP, HTTP+SSE transport).
            (Err(TransportError::Status(status @ (400 | 404 | 405))), Endpoint::Http(url)) => {
                let opened = self.open(&Endpoint::Sse(url.clone())).await;
                initialize(&opened.map_err(|_| TransportError::Status(status))?).await
            }
            // A modern one that was being loaded all the time that a probe waits.
            (Err(TransportError::Rpc { error, status }), _)
                if self.options.era == EraChoice::Auto && modern::is_modern_only(&error) =>
            {
                connection.ear.set_modern(true);
                match modern::discover(&connection).await? {
                    Some(about) => Ok(Session::new(connection, Revision::V2026_07_28, about)),
                    None => Err(TransportError::Rpc { error, status }),
                }
            }
            (agreed, _) => agreed,
        }
    }

    async fn open(&self, endpoint: &Endpoint) -> Result<Connection, TransportError> {
        let options = self.options.clone();
        let (tools, news) = (self.tools.clone(), self.news.clone());
        let ear = Arc::new(NotificationHandler::new(
            tools,
            news,
            self.server.farewells.clone(),
            &options,
        ));
        let http = |url: &Url| {
            Http::new(
                self.server.http.clone(),
                url.clone(),
                options.clone(),
                ear.clone(),
            )
        };
        let link = match endpoint {
            Endpoint::Http(url) => Transport::Http(Arc::new(http(url))),
            Endpoint::Sse(url) => http::open_event_stream(http(url)).await?,
            Endpoint::WebSocket(url) => websocket::open(url, &options, ear.clone()).await?,
            Endpoint::Child(command) => child::start(command, &options, ear.clone())?,
        };
        Ok(Connection { link, ear, options })
    }

    /// What a legacy server is told once it is connected. What it refuses of that, the calls don't need.
    async fn greet(&self, session: &Session, resources: &[String]) {
        let level = self.options.log_level.filter(|_| session.has("logging"));
        if let Some(level) = level {
            let params = RawObject::of("level", level);
            if let Err(error) = session.request_quietly("logging/setLevel", params).await {
                callboard_message::log::debug!(%error, "the server sets no log level");
            }
        }
        for uri in resources {
            let params = RawObject::of("uri", uri);
            if let Err(error) = session.request_quietly(SUBSCRIBE, params).await {
                callboard_message::log::warn!(%error, "a resource is no longer followed");
            }
        }
    }
}
