//! Client for a remote A2A agent.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use callboard_message::TraceContext;
use parking_lot::Mutex;
use reqwest::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use url::Url;

use super::bindings::{self, RemoteEventStream, protocol_error};
use super::connection::{
    ExtraHeaders, HttpClient, InterfaceConnection, RequestCredentials, with_timeout,
};
use super::error::A2aClientError;
use super::interface_selection::{InterfaceCandidate, is_at_or_below, select_interfaces};
use super::operations::{ClientOperation, path_segment, query_string};
use super::options::{
    CANCEL_TIMEOUT, CARD_CACHE_AGE, CONTROL_REQUEST_TIMEOUT, FAILED_INTERFACE_TTL, ProtocolVersion,
    RemoteOptions, RemoteOptionsError, is_plain_http_url,
};
use super::resolve::{CachedCard, ResolvedCard, check_card_trust, resolve_card};
use crate::dialect::{Dialect, Operation};
use crate::limits::EXTENSIONS_MAX;
use crate::wire::{
    A2aTask, AgentCard, CancelTaskRequest, GetExtendedAgentCardRequest, GetTaskRequest,
    ListTasksRequest, ListTasksResponse, SendMessageRequest, SendMessageResponse, StreamResponse,
    SubscribeToTaskRequest, TaskPushNotificationConfig,
};

/// Client for a remote A2A agent. The card is fetched on first use, and requests go to the best
/// interface on it. Clones share their state.
#[derive(Clone)]
pub struct A2aClient {
    inner: Arc<ClientState>,
    /// `traceparent` header sent with every request.
    trace: Option<HeaderValue>,
    /// `A2A-Extensions` header sent with every request.
    extensions: Option<HeaderValue>,
}

struct ClientState {
    url: Url,
    options: RemoteOptions,
    http_client: Arc<HttpClient>,
    credentials: Arc<RequestCredentials>,
    /// Card and interfaces; the lock ensures that one caller at a time fetches them.
    resolved: tokio::sync::Mutex<Option<ResolvedAgent>>,
    /// Cleanup after dropped calls.
    cleanup_tasks: TaskTracker,
    runtime: Mutex<Option<Handle>>,
    /// Interfaces that failed, and the time of the failure.
    failed_interfaces: Mutex<Vec<(InterfaceCandidate, Instant)>>,
}

#[derive(Clone)]
struct ResolvedAgent {
    cached_card: CachedCard,
    /// Extended card, if the agent has one and it could be fetched.
    extended: Option<Arc<AgentCard>>,
    interfaces: Arc<[InterfaceConnection]>,
}

impl A2aClient {
    /// Creates a client for the card or endpoint at `url`. Nothing is fetched yet.
    ///
    /// # Errors
    /// [`RemoteOptionsError`] if the URL or the options are invalid.
    pub fn new(url: Url, options: RemoteOptions) -> Result<Self, RemoteOptionsError> {
        if !is_plain_http_url(&url) {
            return Err(RemoteOptionsError::Url);
        }
        if options.bindings.is_empty() || options.versions.is_empty() {
            return Err(RemoteOptionsError::NoProtocolSelected);
        }
        let (http_client, credentials) = (
            Arc::new(HttpClient::new(&options)?),
            RequestCredentials::new(&options.auth, &options.headers)?,
        );
        let inner = Arc::new(ClientState {
            url,
            options,
            http_client,
            credentials,
            resolved: tokio::sync::Mutex::default(),
            cleanup_tasks: TaskTracker::new(),
            runtime: Mutex::default(),
            failed_interfaces: Mutex::default(),
        });
        Ok(Self {
            inner,
            trace: None,
            extensions: None,
        })
    }

    /// Returns the configured URL.
    pub fn url(&self) -> &Url {
        &self.inner.url
    }

    /// Returns a client that sends its requests as part of a trace.
    pub fn with_trace(&self, trace: &TraceContext) -> Self {
        Self {
            trace: HeaderValue::from_str(&trace.to_string()).ok(),
            ..self.clone()
        }
    }

    /// Returns a client that requests the protocol extensions with these URIs. Those that a header
    /// can't hold, and more than [`EXTENSIONS_MAX`], are left out.
    pub(super) fn with_extensions(&self, uris: &[String]) -> Self {
        let is_fit = |uri: &&String| {
            let fits = |byte: u8| byte.is_ascii_graphic() && byte != b',';
            !uri.is_empty() && uri.bytes().all(fits)
        };
        let mut fit: Vec<&str> = Vec::new();
        for uri in uris.iter().filter(is_fit) {
            if fit.len() < EXTENSIONS_MAX && !fit.contains(&&**uri) {
                fit.push(uri);
            }
        }
        let header = HeaderValue::from_str(&fit.join(", ")).ok();
        Self {
            extensions: header.filter(|header| !header.is_empty()),
            ..self.clone()
        }
    }

    fn extra_headers<'a>(&'a self, last_event_id: Option<&'a str>) -> ExtraHeaders<'a> {
        ExtraHeaders {
            last_event_id,
            trace: self.trace.as_ref(),
            extensions: self.extensions.as_ref(),
        }
    }

    pub(super) fn options(&self) -> &RemoteOptions {
        &self.inner.options
    }

    pub(super) fn http_client(&self) -> &HttpClient {
        &self.inner.http_client
    }

    pub(super) fn credentials(&self) -> &RequestCredentials {
        &self.inner.credentials
    }

    /// Returns the agent's card: the extended one if the agent has one and credentials are
    /// configured, else the public one.
    ///
    /// # Errors
    /// [`A2aClientError`] if the card can't be fetched or isn't trusted.
    pub async fn card(&self) -> Result<Arc<AgentCard>, A2aClientError> {
        let known = self.resolve_agent().await?;
        Ok(known.extended.unwrap_or(known.cached_card.resolved.card))
    }

    /// Returns the agent's public card and the URL where it was found.
    ///
    /// # Errors
    /// [`A2aClientError`] if the card can't be fetched or isn't trusted.
    pub async fn public_card(&self) -> Result<ResolvedCard, A2aClientError> {
        Ok(self.resolve_agent().await?.cached_card.resolved)
    }

    /// Fetches the extended card for authenticated clients.
    ///
    /// # Errors
    /// [`A2aClientError`] if the agent has none, or it can't be fetched or isn't trusted.
    pub async fn extended_card(&self) -> Result<AgentCard, A2aClientError> {
        self.fetch_extended_card(&self.resolve_agent().await?.interfaces)
            .await
    }

    async fn fetch_extended_card(
        &self,
        interfaces: &[InterfaceConnection],
    ) -> Result<AgentCard, A2aClientError> {
        let write =
            |dialect: Dialect| dialect.write_request(&GetExtendedAgentCardRequest::default());
        let read = |_, raw: &RawValue| Dialect::read_card(raw);
        let ask = ClientOperation::new(
            Operation::GetExtendedAgentCard,
            "/extendedAgentCard",
            &write,
            read,
        );
        with_timeout(CONTROL_REQUEST_TIMEOUT, async {
            check_card_trust(
                self.run_operation_on(interfaces, &ask).await?,
                &self.inner.options,
            )
            .await
        })
        .await
    }

    /// Sends a message (`SendMessage`). The request's tenant is replaced by the interface's.
    ///
    /// # Errors
    /// [`A2aClientError`] if the request fails.
    pub async fn send(
        &self,
        mut request: SendMessageRequest,
    ) -> Result<SendMessageResponse, A2aClientError> {
        request.tenant.clear();
        let write = |dialect: Dialect| dialect.write_send(&request);
        self.run_operation(ClientOperation::new(
            Operation::SendMessage,
            "/message:send",
            &write,
            Dialect::read_send_response,
        ))
        .await
    }

    /// Sends a message (`SendStreamingMessage`) and returns the stream of events.
    ///
    /// # Errors
    /// [`A2aClientError`] if the request fails.
    pub async fn stream(
        &self,
        mut request: SendMessageRequest,
    ) -> Result<RemoteEventStream, A2aClientError> {
        request.tenant.clear();
        let write = |dialect: Dialect| dialect.write_send(&request);
        self.open_stream(
            ClientOperation::new(
                Operation::SendStreamingMessage,
                "/message:stream",
                &write,
                Dialect::read_event,
            ),
            None,
        )
        .await
    }

    /// Subscribes to the events of a task (`SubscribeToTask`). `last_event_id` is the position of
    /// an earlier stream of it that broke off.
    ///
    /// # Errors
    /// [`A2aClientError`] if the request fails.
    pub async fn subscribe(
        &self,
        id: &str,
        last_event_id: Option<&str>,
    ) -> Result<RemoteEventStream, A2aClientError> {
        let request = SubscribeToTaskRequest {
            id: id.to_owned(),
            ..SubscribeToTaskRequest::default()
        };
        let write = |dialect: Dialect| dialect.write_request(&request);
        let place = format!("/tasks/{}:subscribe", path_segment(id));
        self.open_stream(
            ClientOperation::new(
                Operation::SubscribeToTask,
                place,
                &write,
                Dialect::read_event,
            ),
            last_event_id,
        )
        .await
    }

    /// Returns the current state of a task (`GetTask`).
    ///
    /// # Errors
    /// [`A2aClientError`] if the request fails, or takes longer than 15 s.
    pub async fn get_task(&self, mut request: GetTaskRequest) -> Result<A2aTask, A2aClientError> {
        request.tenant.clear();
        let write = |dialect: Dialect| dialect.write_request(&request);
        let place = format!(
            "/tasks/{}{}",
            path_segment(&request.id),
            query_string(&request, &["id"])
        );
        with_timeout(
            CONTROL_REQUEST_TIMEOUT,
            self.run_operation(ClientOperation::new(
                Operation::GetTask,
                place,
                &write,
                Dialect::read_task,
            )),
        )
        .await
    }

    /// Returns a page of this principal's tasks (`ListTasks`).
    ///
    /// # Errors
    /// As [`A2aClient::get_task`].
    pub async fn list_tasks(
        &self,
        mut request: ListTasksRequest,
    ) -> Result<ListTasksResponse, A2aClientError> {
        request.tenant.clear();
        let write = |dialect: Dialect| dialect.write_request(&request);
        let place = format!("/tasks{}", query_string(&request, &[]));
        with_timeout(
            CONTROL_REQUEST_TIMEOUT,
            self.run_operation(ClientOperation::new(
                Operation::ListTasks,
                place,
                &write,
                Dialect::read_task_list,
            )),
        )
        .await
    }

    /// Cancels a task (`CancelTask`) and returns its state.
    ///
    /// # Errors
    /// As [`A2aClient::get_task`].
    pub async fn cancel_task(&self, id: &str) -> Result<A2aTask, A2aClientError> {
        let request = CancelTaskRequest {
            id: id.to_owned(),
            ..CancelTaskRequest::default()
        };
        let write = |dialect: Dialect| dialect.write_request(&request);
        let place = format!("/tasks/{}:cancel", path_segment(id));
        with_timeout(
            CONTROL_REQUEST_TIMEOUT,
            self.run_operation(ClientOperation::new(
                Operation::CancelTask,
                place,
                &write,
                Dialect::read_task,
            )),
        )
        .await
    }

    /// Adds a push configuration to a task. The response only repeats it and is ignored.
    pub(super) async fn create_push_config(
        &self,
        config: TaskPushNotificationConfig,
    ) -> Result<(), A2aClientError> {
        let write = |dialect: Dialect| dialect.write_push_config(&config);
        let place = format!(
            "/tasks/{}/pushNotificationConfigs",
            path_segment(&config.task_id)
        );
        let ask = ClientOperation::new(
            Operation::CreateTaskPushNotificationConfig,
            place,
            &write,
            |_, _| Ok(()),
        );
        with_timeout(CONTROL_REQUEST_TIMEOUT, self.run_operation(ask)).await
    }

    /// Waits until the cleanup of abandoned calls has finished: remote tasks of calls that were
    /// dropped are cancelled.
    pub async fn drained(&self) {
        self.inner.cleanup_tasks.close();
        self.inner.cleanup_tasks.wait().await;
    }

    /// Uses the current runtime, if there is one, for cleanup from now on. The runtimes of the
    /// callers may have shut down by then.
    pub(super) fn use_current_runtime(&self) {
        *self.inner.runtime.lock() = Handle::try_current().ok();
    }

    /// Runs cleanup in the background, for at most [`CANCEL_TIMEOUT`].
    pub(super) fn spawn_cleanup(&self, farewell: impl Future<Output = ()> + Send + 'static) {
        let kept = self.inner.runtime.lock().clone();
        if let Some(runtime) = kept.or_else(|| Handle::try_current().ok()) {
            self.inner
                .cleanup_tasks
                .spawn_on(timeout(CANCEL_TIMEOUT, farewell), &runtime);
        }
    }

    async fn resolve_agent(&self) -> Result<ResolvedAgent, A2aClientError> {
        let mut known = self.inner.resolved.lock().await;
        if let Some(known) = known
            .as_ref()
            .filter(|known| Instant::now() < known.cached_card.expires_at)
        {
            return Ok(known.clone());
        }
        let ClientState {
            url,
            options,
            http_client,
            credentials,
            ..
        } = &*self.inner;
        let before = known.as_ref().map(|known| &known.cached_card);
        let kept = match resolve_card(url, before, http_client, credentials, options).await {
            Ok(kept) => kept,
            Err(error) => {
                let Some(stale) = known.as_mut().filter(|_| !error.revokes_card()) else {
                    return Err(error);
                };
                callboard_message::log::warn!(%error, "failed to refresh a remote agent's card: using the earlier one");
                stale.cached_card.expires_at = Instant::now() + CARD_CACHE_AGE.0;
                return Ok(stale.clone());
            }
        };
        let is_same =
            before.is_some_and(|before| Arc::ptr_eq(&before.resolved.card, &kept.resolved.card));
        // The card stays cached while a new one is loaded: a card once found is never searched
        // elsewhere.
        let fresh = match known.as_ref().filter(|_| is_same) {
            Some(before) => ResolvedAgent {
                cached_card: kept,
                ..before.clone()
            },
            None => self.load_interfaces(kept).await,
        };
        *known = Some(fresh.clone());
        Ok(fresh)
    }

    async fn load_interfaces(&self, kept: CachedCard) -> ResolvedAgent {
        let ClientState {
            url,
            options,
            http_client,
            credentials,
            ..
        } = &*self.inner;
        let card = kept.resolved.card.clone();
        let connect = |to| {
            let (http_client, credentials, card) =
                (http_client.clone(), credentials.clone(), card.clone());
            InterfaceConnection {
                interface: to,
                http_client,
                credentials,
                card,
                flips_trailing_slash: AtomicBool::new(false),
            }
        };
        // The other interfaces on a card found above the address belong to other agents.
        let is_ours =
            |to: &InterfaceCandidate| !kept.is_from_parent_path || is_at_or_below(&to.url, url);
        let spoken = select_interfaces(&card, &kept.resolved.url, options)
            .into_iter()
            .filter(is_ours);
        let interfaces: Arc<[InterfaceConnection]> = spoken.map(connect).collect();
        let is_offered =
            card.capabilities.extended_agent_card == Some(true) && credentials.has_credentials();
        let mut extended = None;
        if is_offered {
            match self.fetch_extended_card(&interfaces).await {
                Ok(card) => extended = Some(Arc::new(card)),
                Err(error) => {
                    callboard_message::log::debug!(%error, "failed to get the extended card")
                }
            }
        }
        ResolvedAgent {
            cached_card: kept,
            extended,
            interfaces,
        }
    }

    /// Returns the interfaces to try: those without a recent failure, or all if none is left.
    fn usable_interfaces<'a>(
        &self,
        interfaces: &'a [InterfaceConnection],
    ) -> Vec<&'a InterfaceConnection> {
        let mut passed_over = self.inner.failed_interfaces.lock();
        passed_over.retain(|(_, since)| since.elapsed() < FAILED_INTERFACE_TTL);
        let works = |connection: &&InterfaceConnection| {
            !passed_over
                .iter()
                .any(|(to, _)| *to == connection.interface)
        };
        let working: Vec<_> = interfaces.iter().filter(works).collect();
        if working.is_empty() {
            interfaces.iter().collect()
        } else {
            working
        }
    }

    /// Skips an interface from now on, unless it may recover immediately. Returns the error.
    fn mark_failed(
        &self,
        connection: &InterfaceConnection,
        error: A2aClientError,
    ) -> A2aClientError {
        callboard_message::log::debug!(%error, version = ?connection.interface.version, binding = ?connection.interface.binding, "skipping an interface that failed");
        if !matches!(
            error,
            A2aClientError::Unreachable(_) | A2aClientError::UnsupportedByVersion
        ) {
            let mut passed_over = self.inner.failed_interfaces.lock();
            passed_over.retain(|(to, _)| *to != connection.interface);
            passed_over.push((connection.interface.clone(), Instant::now()));
        }
        error
    }

    /// Returns whether this client assigns task ids: the agent supports 0.1 and no newer supported
    /// version.
    pub(super) async fn assigns_task_ids(&self) -> bool {
        let known = self.resolve_agent().await;
        known.is_ok_and(|known| {
            !known.interfaces.is_empty()
                && known
                    .interfaces
                    .iter()
                    .all(|is| is.interface.version == ProtocolVersion::V01)
        })
    }

    async fn run_operation<T>(&self, ask: ClientOperation<'_, T>) -> Result<T, A2aClientError> {
        self.run_operation_on(&self.resolve_agent().await?.interfaces, &ask)
            .await
    }

    async fn run_operation_on<T>(
        &self,
        interfaces: &[InterfaceConnection],
        ask: &ClientOperation<'_, T>,
    ) -> Result<T, A2aClientError> {
        // Every agent supports messages.
        let is_essential = ask.operation == Operation::SendMessage;
        let mut why = A2aClientError::NoCommonInterface;
        for connection in self.usable_interfaces(interfaces) {
            match self.send_operation(connection, ask).await {
                Err(error) if error.is_interface_failure(is_essential) => {
                    why = self.mark_failed(connection, error)
                }
                other => return other,
            }
        }
        Err(why)
    }

    async fn send_operation<T>(
        &self,
        connection: &InterfaceConnection,
        ask: &ClientOperation<'_, T>,
    ) -> Result<T, A2aClientError> {
        let (response, id) =
            bindings::send_request(connection, ask, self.extra_headers(None)).await?;
        let raw = bindings::read_result(response, id.as_ref(), &self.inner.options.limits).await?;
        (ask.read)(connection.interface.dialect(), &raw).map_err(protocol_error)
    }

    async fn open_stream(
        &self,
        ask: ClientOperation<'_, StreamResponse>,
        last_event_id: Option<&str>,
    ) -> Result<RemoteEventStream, A2aClientError> {
        let known = self.resolve_agent().await?;
        let mut why = A2aClientError::NoCommonInterface;
        for connection in self.usable_interfaces(&known.interfaces) {
            match RemoteEventStream::open(
                connection,
                &ask,
                self.extra_headers(last_event_id),
                &self.inner.options.limits,
            )
            .await
            {
                Err(error) if error.is_interface_failure(false) => {
                    why = self.mark_failed(connection, error)
                }
                other => return other,
            }
        }
        Err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::resolve::tests::{CardServer, OWN, ROOT};

    /// Goal: an agent whose server restarts is never mistaken for another; while its card can't be
    /// fetched for another reason, the earlier one stays. Method: a card that has expired, and each
    /// response.
    #[tokio::test]
    async fn restarted_agents_stay_themselves() {
        let server = CardServer::start().await;
        server.put_card(OWN, "down", "/agents/down");
        let peer = A2aClient::new(server.agent(), RemoteOptions::default()).unwrap();
        assert_eq!(peer.card().await.unwrap().name, "down");
        let is_due = async || {
            peer.inner
                .resolved
                .lock()
                .await
                .as_mut()
                .unwrap()
                .cached_card
                .expires_at = Instant::now()
        };
        server.put_card(ROOT, "up", "/agents/down");
        for _ in 0..2 {
            server.put(OWN, 404, String::new());
            is_due().await;
            let error = peer.card().await.unwrap_err();
            assert!(
                matches!(error, A2aClientError::CardStatus { status: 404, .. }),
                "{error}"
            );
        }
        for status in [401, 429, 503] {
            server.put(OWN, status, String::new());
            is_due().await;
            assert_eq!(peer.card().await.unwrap().name, "down", "{status}");
        }
        assert!(!server.asked().iter().any(|path| path == ROOT));
        server.put_card(OWN, "down, again", "/agents/down");
        is_due().await;
        assert_eq!(peer.card().await.unwrap().name, "down, again");
    }

    /// Goal: on a card above an address only the interfaces there are used; on an agent's own card
    /// all are. Method: a card of several interfaces at both places.
    #[tokio::test]
    async fn interfaces_of_others_are_not_spoken_to() {
        let interfaces = [
            "/agents/up",
            "/agents/downtown",
            "/agents/down",
            "/",
            "/agents/down/a2a",
            "https://b.example/",
        ];
        for (place, expected) in [
            (ROOT, vec!["/agents/down", "/agents/down/a2a"]),
            (OWN, interfaces.to_vec()),
        ] {
            let server = CardServer::start().await;
            server.put_card_with(place, "down", &interfaces);
            let peer = A2aClient::new(server.agent(), RemoteOptions::default()).unwrap();
            let known = peer.resolve_agent().await.unwrap();
            let spoken: Vec<Url> = known
                .interfaces
                .iter()
                .map(|is| is.interface.url.clone())
                .collect();
            let base: Url = server.url.parse().unwrap();
            let expected: Vec<Url> = expected.iter().map(|url| base.join(url).unwrap()).collect();
            assert_eq!(spoken, expected, "{place}");
        }
    }
}
