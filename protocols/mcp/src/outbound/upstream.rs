//! One MCP server: connected on demand, and reconnected after a failure.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use callboard_message::{CallerCapabilities, Failure, LogLevel, RawObject};
use callboard_runtime::Context;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::call_exchange::ServerConnection;
use super::change_route::ListSource;
use super::exchange::{ExchangeResult, TransportError};
use super::options::{EraChoice, SUBSCRIPTIONS_MAX, ServerEndpoint};
use super::server_messages::NotificationHandler;
use super::session::{UpstreamSession, initialize};
use super::tool_result::complete_tool_result;
use super::transport::{HttpTransport, Transport, child, http, websocket};
use super::upstream_server::ConnectionParams;
use super::{change_listener, modern, url_elicitation};
use crate::wire::{Era, Revision, hmcp};

const SUBSCRIBE: &str = "resources/subscribe";

/// Connection of a client to its server, opened on demand and again after a failure.
pub(crate) struct Upstream {
    factory: Arc<SessionFactory>,
    state: Mutex<ConnectionState>,
}

type ConnectFuture = Shared<BoxFuture<'static, Result<Arc<UpstreamSession>, TransportError>>>;

enum ConnectionState {
    Disconnected,
    Connecting(ConnectFuture),
    Connected(Arc<UpstreamSession>),
}

impl Upstream {
    pub fn new(connection_params: ConnectionParams) -> Self {
        let factory = Arc::new(SessionFactory {
            params: connection_params,
            subscribed_resources: Mutex::default(),
            announces: AtomicBool::new(false),
        });
        Self {
            factory,
            state: Mutex::new(ConnectionState::Disconnected),
        }
    }

    /// Returns the capabilities that are offered to the server.
    pub fn offered_capabilities(&self) -> &CallerCapabilities {
        &self.factory.params.options.offered_capabilities
    }

    /// Returns the open session, or `None` if there is none.
    pub fn current(&self) -> Option<Arc<UpstreamSession>> {
        match &*self.state.lock() {
            ConnectionState::Connected(session) if !session.transport.is_closed() => {
                Some(session.clone())
            }
            _ => None,
        }
    }

    /// Checks that the server is available: sends `ping` (legacy) or `server/discover` (modern), or
    /// connects if there is no session. Returns the session.
    pub async fn ping(&self) -> Result<Arc<UpstreamSession>, TransportError> {
        let Some(session) = self.current() else {
            return self.connect().await;
        };
        let checked = match session.era() {
            Era::Legacy => session
                .request_without_call("ping", RawObject::new())
                .await
                .map(drop),
            Era::Modern => modern::discover(&session).await.map(drop),
        };
        match checked {
            // Even an error shows that the server is available.
            Ok(()) | Err(TransportError::Rpc { .. }) => Ok(session),
            Err(TransportError::SessionLost) => {
                self.discard_session(&session);
                self.connect().await
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the open session, connecting first if there is none. Concurrent callers share one
    /// connection attempt.
    pub async fn connect(&self) -> Result<Arc<UpstreamSession>, TransportError> {
        let connecting = {
            let mut state = self.state.lock();
            match &*state {
                ConnectionState::Connected(session) if !session.transport.is_closed() => {
                    return Ok(session.clone());
                }
                // An attempt that failed while no caller waited says nothing about now.
                ConnectionState::Connecting(connecting)
                    if !matches!(connecting.peek(), Some(Err(_))) =>
                {
                    connecting.clone()
                }
                _ => {
                    let connecting = self.spawn_connect();
                    *state = ConnectionState::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        let connected = connecting.clone().await;
        let mut state = self.state.lock();
        if matches!(&*state, ConnectionState::Connecting(current) if current.ptr_eq(&connecting)) {
            *state = match &connected {
                Ok(session) => ConnectionState::Connected(session.clone()),
                Err(_) => ConnectionState::Disconnected,
            };
        }
        connected
    }

    /// Spawns a connection attempt, limited by `handshake_timeout`. It continues if the call that
    /// began it is cancelled while others wait for it.
    fn spawn_connect(&self) -> ConnectFuture {
        let factory = self.factory.clone();
        let task = self.factory.spawn(async move {
            let limit = factory.options.handshake_timeout;
            let connected = timeout(limit, factory.connect_session())
                .await
                .unwrap_or(Err(TransportError::TimedOut(limit)));
            // Failures of one principal's credential say nothing about the server; the rest is the breaker's.
            if connected.is_ok() {
                factory.emit_connected();
            }
            connected
        });
        let task = AbortOnDropHandle::new(task);
        async move {
            task.await.unwrap_or(Err(TransportError::Broken(
                "the attempt to connect to the server was abandoned: try again".into(),
            )))
        }
        .boxed()
        .shared()
    }

    /// Discards `session` if it is the current one, so that the next call opens another.
    pub fn discard_session(&self, session: &Arc<UpstreamSession>) {
        let mut state = self.state.lock();
        if matches!(&*state, ConnectionState::Connected(current) if Arc::ptr_eq(current, session)) {
            *state = ConnectionState::Disconnected;
        }
    }

    /// Closes the session. The next request opens another, with the same subscriptions.
    pub fn disconnect(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), ConnectionState::Disconnected);
        drop(before);
    }

    /// Returns true if there is a session or a connection attempt.
    pub fn is_open(&self) -> bool {
        match &*self.state.lock() {
            ConnectionState::Disconnected => false,
            ConnectionState::Connecting(connecting) => !matches!(connecting.peek(), Some(Err(_))),
            ConnectionState::Connected(session) => !session.transport.is_closed(),
        }
    }

    pub fn has_subscriptions(&self) -> bool {
        !self.factory.subscribed_resources.lock().is_empty()
    }

    /// Announces the next session as a change of all lists, because somebody was told that the
    /// server isn't there yet.
    pub fn announce_next(&self) {
        self.factory.announces.store(true, Relaxed);
    }

    /// Notifies the server that the client's roots have changed, if the client offered
    /// `roots.listChanged`. Waits for a connection attempt in progress; does nothing without a
    /// connection.
    pub async fn notify_roots_changed(&self) {
        if let Some(session) = self.settled().await {
            session.notify_roots_changed().await;
        }
    }

    /// Sets the minimum level of the server's log messages, as [`Self::notify_roots_changed`] does.
    pub async fn set_log_level(&self, level: LogLevel) {
        if let Some(session) = self.settled().await {
            session.set_log_level(level).await;
        }
    }

    /// Returns the open session, after a connection attempt in progress.
    async fn settled(&self) -> Option<Arc<UpstreamSession>> {
        let connecting = match &*self.state.lock() {
            ConnectionState::Connecting(connecting) => Some(connecting.clone()),
            _ => None,
        };
        match connecting {
            Some(connecting) => connecting.await.ok(),
            None => self.current(),
        }
    }

    /// Executes a request of the call `cx`, connecting first if necessary.
    pub async fn request(&self, method: &str, params: &RawObject, cx: &Context) -> ExchangeResult {
        match method {
            // Boxed because they are rare, so that other requests don't carry their state.
            "tools/list" => Box::pin(self.list_tools(params, cx)).await,
            // The result of a call that becomes a task is the task.
            "tools/call" if !params.has("task") => {
                Ok(complete_tool_result(self.send(method, params, cx).await?))
            }
            SUBSCRIBE | "resources/unsubscribe" => {
                Box::pin(self.subscribe(method, params, cx)).await
            }
            _ => self.send(method, params, cx).await,
        }
    }

    /// Sends a request in the current session. If the server has lost the session, opens another
    /// and sends the request once more.
    async fn send(&self, method: &str, params: &RawObject, cx: &Context) -> ExchangeResult {
        let session = self.connect().await?;
        let outcome = match self.send_in_session(&session, method, params, cx).await {
            Err(TransportError::SessionLost) => {
                self.discard_session(&session);
                drop(session);
                let session = self.connect().await?;
                self.send_in_session(&session, method, params, cx).await
            }
            other => other,
        };
        outcome.map_err(url_elicitation::screen_error)
    }

    async fn send_in_session(
        &self,
        session: &Arc<UpstreamSession>,
        method: &str,
        params: &RawObject,
        cx: &Context,
    ) -> ExchangeResult {
        if method == hmcp::METHOD {
            hmcp::check_supported(&session.about).map_err(TransportError::Failed)?;
        }
        if session.era() == Era::Legacy {
            return session.request(method, params, cx).await;
        }
        let tools = &self.factory.tools;
        let mirrors = method == "tools/call" && session.transport.http().is_some();
        if mirrors {
            self.ensure_tool_schema(session, params).await?;
        }
        let result = modern::request_in_rounds(session, tools, method, params, cx).await;
        match result {
            Err(error) if mirrors && modern::is_header_mismatch(&error) => {
                tools.invalidate();
                self.ensure_tool_schema(session, params).await?;
                modern::request_in_rounds(session, tools, method, params, cx).await
            }
            Err(TransportError::Status(status @ (400 | 404 | 405))) => {
                // No modern server answers with this status: it may have been replaced by another.
                *self.factory.server.detected_era.lock() = None;
                self.discard_session(session);
                Err(TransportError::Status(status))
            }
            other => other,
        }
    }

    /// Fetches the tool list if the called tool isn't cached, because its schema determines the
    /// headers of the call. Fails with `Rejected` if the tool's `x-mcp-header` annotations are
    /// invalid.
    async fn ensure_tool_schema(
        &self,
        session: &UpstreamSession,
        params: &RawObject,
    ) -> Result<(), TransportError> {
        let Some(tool) = params.text("name") else {
            return Ok(());
        };
        if self.factory.tools.needs_listing(&tool) {
            // Boxed because it is rare, so that most calls don't carry its state.
            Box::pin(self.fetch_tools(session)).await;
        }
        match self.factory.tools.get(&tool) {
            Some(known) if known.header_params.is_none() => {
                Err(TransportError::Failed(Failure::rejected(format!(
                    "the x-mcp-header annotations of the tool {tool:?} are invalid: the server has to be corrected"
                ))))
            }
            _ => Ok(()),
        }
    }

    /// Fetches and caches the server's tool list, up to `pages_max` pages. Stops at the first
    /// error.
    async fn fetch_tools(&self, session: &UpstreamSession) {
        let mut cursor = None;
        for _ in 0..self.factory.options.pages_max {
            let mut params = RawObject::new();
            params.set_some("cursor", &cursor);
            let Ok(page) = session.fetch_page("tools/list", params).await else {
                return;
            };
            cursor = self.record_tools_page(&page).1;
            if cursor.is_none() {
                self.factory.tools.mark_complete();
                return;
            }
        }
        callboard_message::log::warn!(
            pages_max = self.factory.options.pages_max,
            "the server's list of tools has more pages than the limit: the others are left out"
        );
    }

    /// Caches the tools on a page of `tools/list`. Returns the page without unusable tools, or
    /// `None` if all are usable, and the cursor of the next page, if any. Tools with invalid
    /// `x-mcp-header` annotations are unusable.
    fn record_tools_page(&self, page: &RawValue) -> (Option<Box<RawValue>>, Option<Box<RawValue>>) {
        let filtered = self.factory.tools.record_page(page);
        let next = RawObject::parse(page)
            .ok()
            .and_then(|mut page| page.remove("nextCursor"));
        (filtered, next.filter(|cursor| cursor.get() != "null"))
    }

    /// Executes `tools/list`, caches the page and returns it without unusable tools.
    async fn list_tools(&self, params: &RawObject, cx: &Context) -> ExchangeResult {
        let from_start = !params.has("cursor");
        let page = self.send("tools/list", params, cx).await?;
        let (filtered, next) = self.record_tools_page(&page);
        if from_start && next.is_none() {
            self.factory.tools.mark_complete();
        }
        Ok(filtered.unwrap_or(page))
    }

    /// Returns true if the tool's structured content is `{"result": …}` around its plain value.
    /// Fetches the tool list if the tool isn't cached.
    pub async fn is_wrapped(&self, tool: &str) -> bool {
        if self.factory.tools.needs_listing(tool)
            && let Ok(session) = self.connect().await
        {
            self.fetch_tools(&session).await;
        }
        self.factory
            .tools
            .get(tool)
            .is_some_and(|known| known.is_wrapped)
    }

    /// Executes `resources/subscribe` or `resources/unsubscribe`. In the modern era, replaces the
    /// `subscriptions/listen` request instead. Fails with `Overloaded` above [`SUBSCRIPTIONS_MAX`]
    /// resources.
    async fn subscribe(&self, method: &str, params: &RawObject, cx: &Context) -> ExchangeResult {
        let on = method == SUBSCRIBE;
        let uri = params
            .text("uri")
            .ok_or_else(|| TransportError::Failed(Failure::invalid("`uri` must be a string")))?;
        let session = self.connect().await?;
        if on && self.factory.subscribed_resources.lock().len() >= SUBSCRIPTIONS_MAX {
            let why = format!(
                "there are subscriptions to {SUBSCRIPTIONS_MAX} resources, which is the limit: end one first"
            );
            return Err(TransportError::Failed(Failure::overloaded(why)));
        }
        let result = match session.era() {
            Era::Legacy => self.send(method, params, cx).await?,
            Era::Modern => RawObject::single("resultType", "complete").to_raw(),
        };
        {
            let mut resources = self.factory.subscribed_resources.lock();
            match on {
                true => resources.insert(uri),
                false => resources.remove(&uri),
            };
        }
        self.renew_listener(&session).await;
        Ok(result)
    }

    /// Ends the subscription to the resource `uri`, if this connection has one, for no call.
    pub async fn unsubscribe(&self, uri: &str) {
        if !self.factory.subscribed_resources.lock().remove(uri) {
            return;
        }
        let Some(session) = self.current() else {
            return;
        };
        if session.era() == Era::Legacy {
            let params = RawObject::single("uri", uri);
            let ended = session.request_without_call("resources/unsubscribe", params);
            if let Err(error) = ended.await {
                callboard_message::log::debug!(%error, "failed to end a resource subscription");
            }
        }
        self.renew_listener(&session).await;
    }

    /// Replaces the `subscriptions/listen` request of a modern server by one for the resources that
    /// are subscribed to now.
    async fn renew_listener(&self, session: &Arc<UpstreamSession>) {
        if session.era() == Era::Modern {
            let resources = self.factory.resources();
            let listener = {
                let _there = self.factory.runtime.as_ref().map(|runtime| runtime.enter());
                change_listener::start_listener(session, resources)
            };
            match listener {
                Some(listener) => listener.replace(session).await,
                None => drop(session.listener.lock().take()),
            }
        }
    }

    /// Returns the connection's state as JSON for the admin page.
    pub fn observe(&self) -> serde_json::Value {
        let mut seen = serde_json::json!({ "server": self.factory.server.endpoint.to_string(), "state": "apart" });
        let stderr = self.factory.server.stderr.lines();
        if !stderr.is_empty() {
            seen["stderr"] = stderr.into();
        }
        match &*self.state.lock() {
            ConnectionState::Disconnected => {}
            ConnectionState::Connecting(_) => seen["state"] = "connecting".into(),
            ConnectionState::Connected(session) => {
                if !session.transport.is_closed() {
                    seen["state"] = "connected".into();
                }
                seen["revision"] = session.revision.as_str().into();
                seen["unknown_responses"] = session
                    .notifications
                    .pending_requests
                    .unknown_responses()
                    .into();
            }
        }
        seen
    }
}

/// Returns true for errors of opening a connection after which another transport may work. A server
/// that rejects the credentials rejects them over any.
fn is_unopened(error: &TransportError) -> bool {
    match error {
        TransportError::Unreachable(_) | TransportError::TimedOut(_) => true,
        TransportError::Status(status) => !matches!(status, 401 | 403),
        _ => false,
    }
}

/// Factory of sessions with one server, one at a time.
pub(crate) struct SessionFactory {
    params: ConnectionParams,
    /// URIs of subscribed resources. Each new session subscribes to them again.
    subscribed_resources: Mutex<BTreeSet<String>>,
    /// True if the next session is announced as a change of all lists.
    announces: AtomicBool,
}

impl Deref for SessionFactory {
    type Target = ConnectionParams;

    fn deref(&self) -> &ConnectionParams {
        &self.params
    }
}

impl SessionFactory {
    /// Opens a session, sets its log level, renews its subscriptions and starts the change
    /// listener. A session that isn't the first is announced as a change of all lists.
    async fn connect_session(&self) -> Result<Arc<UpstreamSession>, TransportError> {
        let session = self.negotiate_transport().await?;
        let resources = self.resources();
        if session.era() == Era::Legacy {
            self.configure_session(&session, &resources).await;
        }
        if let Some(listener) = change_listener::start_listener(&session, resources) {
            listener.install(&session).await;
        }
        session.notifications.roots.connected_at();
        if self.announces.swap(true, Relaxed) {
            session.notifications.publish_lists(&session.about);
        }
        Ok(session)
    }

    fn resources(&self) -> Vec<String> {
        self.subscribed_resources.lock().iter().cloned().collect()
    }

    /// Opens a session over the transport of the server's address. If its WebSocket can't be opened,
    /// opens one at the same URL over HTTP, unless the transport is fixed.
    async fn negotiate_transport(&self) -> Result<Arc<UpstreamSession>, TransportError> {
        let endpoint = &self.server.endpoint;
        let first = self.negotiate_era(endpoint).await;
        let other = endpoint
            .over_http()
            .filter(|_| !self.options.is_transport_fixed);
        let (Err(why), Some(other)) = (&first, other) else {
            return first;
        };
        if !is_unopened(why) {
            return first;
        }
        // Boxed because it is rare, so that other connections don't carry its state.
        match Box::pin(self.negotiate_era(&other)).await {
            Err(error) if is_unopened(&error) => Err(TransportError::Unreachable(
                format!("over WebSocket: {why}; over HTTP at the same URL: {error}").into(),
            )),
            session => session,
        }
    }

    /// Opens a session of the configured era, or else of the remembered or newly detected one, and
    /// remembers the era. The legacy era isn't remembered if it only follows from a probe without an
    /// answer in time: the server may be of both eras and have been slow.
    async fn negotiate_era(
        &self,
        endpoint: &ServerEndpoint,
    ) -> Result<Arc<UpstreamSession>, TransportError> {
        let mut is_timed_out = false;
        let session = self.open_session(endpoint, &mut is_timed_out).await?;
        if !is_timed_out || session.era() == Era::Modern {
            *self.server.detected_era.lock() = Some(session.era());
        }
        Ok(session)
    }

    /// Opens a session of the configured, remembered or newly detected era. Sets `is_timed_out` if the
    /// probe got no answer in time.
    ///
    /// Over pipes and WebSocket, detection begins with `initialize`, which servers of both eras
    /// accept, and servers of one era reject. Several legacy servers don't answer any other first
    /// request, or stop working after it. Over HTTP it begins with `server/discover`.
    async fn open_session(
        &self,
        endpoint: &ServerEndpoint,
        is_timed_out: &mut bool,
    ) -> Result<Arc<UpstreamSession>, TransportError> {
        let only = self.options.era.fixed_era();
        let known = only.or(*self.server.detected_era.lock());
        let is_http = matches!(endpoint, ServerEndpoint::Http(_));
        let is_sse = matches!(endpoint, ServerEndpoint::Sse(_));
        if known == Some(Era::Legacy) || is_sse || known.is_none() && !is_http {
            return self.negotiate_legacy(endpoint, None).await;
        }
        let connection = self.open_connection(endpoint).await?;
        connection.notifications.set_modern(true);
        let probe = modern::discover(&connection);
        let found = match known {
            Some(_) => probe.await,
            // A legacy server may not answer unknown requests.
            None => match timeout(self.options.probe_timeout, probe).await {
                Ok(found) => found,
                Err(_) => {
                    *is_timed_out = true;
                    Ok(None)
                }
            },
        };
        match (found?, only) {
            (Some(about), _) => {
                if known.is_none()
                    && self.options.expects_questions
                    && let Some(session) = self.negotiate_askable(endpoint).await
                {
                    return Ok(session);
                }
                let revision = Revision::V2026_07_28;
                Ok(UpstreamSession::new(connection, revision, about))
            }
            (None, Some(_)) => Err(TransportError::Protocol(
                "the server doesn't support revision 2026-07-28, which `era = \"modern\"` requires: set another `era`, or check the URL".into(),
            )),
            (None, None) => self.negotiate_legacy(endpoint, Some(connection)).await,
        }
    }

    /// Opens a legacy session with a modern server over HTTP. Returns `None` if it doesn't support
    /// that era, or has no sessions there, in which it could ask.
    async fn negotiate_askable(&self, endpoint: &ServerEndpoint) -> Option<Arc<UpstreamSession>> {
        let connection = self.open_connection(endpoint).await.ok()?;
        let session = initialize(&connection).await.ok()?;
        let http = session.transport.http()?;
        http.has_session().then_some(session)
    }

    async fn negotiate_legacy(
        &self,
        endpoint: &ServerEndpoint,
        opened: Option<ServerConnection>,
    ) -> Result<Arc<UpstreamSession>, TransportError> {
        let connection = match opened.filter(|opened| !opened.transport.is_closed()) {
            Some(opened) => opened,
            None => self.open_connection(endpoint).await?,
        };
        connection.notifications.set_modern(false);
        let is_http = connection.transport.http().is_some();
        match (initialize(&connection).await, endpoint) {
            // The URL may be that of a server of 2024-11-05 (2026-07-28, streamable HTTP, HTTP+SSE
            // transport).
            (
                Err(TransportError::Status(status @ (400 | 404 | 405))),
                ServerEndpoint::Http(url),
            ) => {
                let opened = self
                    .open_connection(&ServerEndpoint::Sse(url.clone()))
                    .await;
                let opened = opened.map_err(|_| TransportError::Status(status))?;
                initialize(&opened).await
            }
            // A modern server: over HTTP, one that was still loading when the probe timed out.
            (Err(TransportError::Rpc { error, status }), _)
                if self.options.era == EraChoice::Auto
                    && (!is_http || modern::is_modern_only(&error)) =>
            {
                connection.notifications.set_modern(true);
                match modern::discover(&connection).await? {
                    Some(about) => Ok(UpstreamSession::new(
                        connection,
                        Revision::V2026_07_28,
                        about,
                    )),
                    None => Err(TransportError::Rpc { error, status }),
                }
            }
            (agreed, _) => agreed,
        }
    }

    async fn open_connection(
        &self,
        endpoint: &ServerEndpoint,
    ) -> Result<ServerConnection, TransportError> {
        let options = self.options.clone();
        let notifications = Arc::new(NotificationHandler::new(
            self.tools.clone(),
            self.changes.clone(),
            self.server.cleanup_tasks.clone(),
            &options,
        ));
        let http = |url: &Url| {
            HttpTransport::new(
                self.server.http.clone(),
                url.clone(),
                options.clone(),
                notifications.clone(),
            )
        };
        let transport = match endpoint {
            ServerEndpoint::Http(url) => Transport::Http(Arc::new(http(url))),
            ServerEndpoint::Sse(url) => http::open_event_stream(http(url)).await?,
            ServerEndpoint::WebSocket(url) => {
                websocket::open(url, &options, notifications.clone()).await?
            }
            ServerEndpoint::Child(command) => {
                child::spawn_child(
                    command,
                    &options,
                    notifications.clone(),
                    self.server.stderr.clone(),
                )
                .await?
            }
        };
        Ok(ServerConnection {
            transport,
            notifications,
            options,
            hops: self.hops,
        })
    }

    /// Sets the log level of a new legacy session and subscribes to `resources` again. Errors are
    /// only logged, because calls don't depend on either.
    async fn configure_session(&self, session: &UpstreamSession, resources: &[String]) {
        if let Some(level) = self.changes.log_level().or(self.options.log_level) {
            session.set_log_level(level).await;
        }
        for uri in resources {
            let params = RawObject::single("uri", uri);
            if let Err(error) = session.request_without_call(SUBSCRIBE, params).await {
                callboard_message::log::warn!(%error, "failed to renew a resource subscription");
            }
        }
    }
}
