//! An initialized connection to a server, and requests on it.

use std::ops::Deref;
use std::sync::Arc;

use callboard_message::json::quote;
use callboard_message::{LogLevel, RawObject};
use callboard_rpc::{encode_notification, encode_request_with};
use callboard_runtime::Context;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::call_exchange::ServerConnection;
use super::change_route::ListSource;
use super::exchange::{ExchangeResult, TransportError, request_id};
use super::options::ROOTS_REQUEST_TIMEOUT;
use super::transport::{OutgoingRequest, RequestHeaders};
use crate::wire::{Era, Revision, meta};

/// Initialized session with a server. The modern era has no sessions: there it is a connection with
/// the description from `server/discover`.
pub(crate) struct UpstreamSession {
    connection: ServerConnection,
    pub revision: Revision,
    /// Server's description: `serverInfo`, `instructions`, `capabilities` and further members.
    pub about: RawObject,
    /// Task that receives the server's change notifications; aborted when dropped.
    pub listener: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Deref for UpstreamSession {
    type Target = ServerConnection;

    fn deref(&self) -> &ServerConnection {
        &self.connection
    }
}

impl UpstreamSession {
    pub fn new(connection: ServerConnection, revision: Revision, about: RawObject) -> Arc<Self> {
        let session = Arc::new(Self {
            connection,
            revision,
            about,
            listener: Mutex::default(),
        });
        let lists: Arc<dyn ListSource> = session.clone();
        session.notifications.set_session(Arc::downgrade(&lists));
        session
    }

    pub fn era(&self) -> Era {
        self.revision.era()
    }

    /// Returns true if all requests share one channel, so that a question from the server may
    /// belong to any pending call. False over HTTP.
    pub fn shares_channel(&self) -> bool {
        self.transport.http().is_none()
    }

    /// Returns true if the server declares the capability with its option `detail` set to true,
    /// such as `listChanged`.
    pub fn has_capability_option(&self, capability: &str, detail: &str) -> bool {
        let offered = self
            .about
            .object("capabilities")
            .and_then(|c| c.object(capability));
        offered.is_some_and(|c| c.read(detail) == Some(true))
    }

    pub fn has_capability(&self, capability: &str) -> bool {
        self.about
            .object("capabilities")
            .is_some_and(|c| c.has(capability))
    }

    /// Sends a legacy request of the call `cx` and waits for its response. If the caller has roots,
    /// the server first gets time to request them.
    pub async fn request(&self, method: &str, params: &RawObject, cx: &Context) -> ExchangeResult {
        if self.options.offered_capabilities.has_roots() && cx.caller_capabilities().has_roots() {
            Box::pin(self.settle_roots(method, cx)).await?;
        }
        self.send_in_call(cx, |number| {
            legacy_request(number, method, params, Some(cx))
        })
        .await
    }

    /// Waits until the server had the opportunity to request the caller's roots, so that it doesn't
    /// execute the call without them.
    ///
    /// Only the first call waits if the connection serves one client. If it serves several and the
    /// server requests roots, each call first notifies the server that the roots have changed.
    ///
    /// # Errors
    /// `SessionLost` if the server doesn't request the roots after such a notification. It may
    /// still have another client's roots, so a new connection is needed. A list is requested anyway,
    /// because a modern client gives roots in calls only.
    async fn settle_roots(&self, method: &str, cx: &Context) -> Result<(), TransportError> {
        let roots = &self.notifications.roots;
        let mut settled = roots.settled.lock().await;
        let has_one_client = self.options.only_caller.is_some()
            || !self.options.offered_capabilities.has_roots_list_changed();
        // A server may request roots only after the first call's wait.
        let may_have_others = !has_one_client && (*settled == Some(true) || roots.was_requested());
        if settled.is_some() && !may_have_others {
            return Ok(());
        }
        let mut deadline = roots.connected_at() + ROOTS_REQUEST_TIMEOUT;
        if may_have_others {
            // Set before the wait, so that it holds even if this call is cancelled.
            *settled = Some(true);
            roots.reset();
            self.notify_roots_changed().await;
            deadline = Instant::now() + ROOTS_REQUEST_TIMEOUT;
        }
        self.answer_questions_until(cx, roots.wait_until_given(deadline))
            .await;
        if may_have_others && !roots.is_given() && !method.ends_with("/list") {
            callboard_message::log::warn!(
                "the server didn't request the roots of the next client: discarding the connection"
            );
            return Err(TransportError::SessionLost);
        }
        *settled = Some(may_have_others || roots.was_requested());
        Ok(())
    }

    /// Notifies a legacy server that the roots have changed, if the client offered
    /// `roots.listChanged` in `initialize`. Failures are logged.
    pub async fn notify_roots_changed(&self) {
        if self.era() == Era::Modern || !self.options.offered_capabilities.has_roots_list_changed()
        {
            return;
        }
        if let Err(error) = self
            .transport
            .send(encode_notification(
                "notifications/roots/list_changed",
                None,
            ))
            .await
        {
            callboard_message::log::debug!(%error, "failed to notify the server of changed roots");
        }
    }

    /// Sets the minimum level of a legacy server's log messages, if it has any. Failures are logged.
    pub async fn set_log_level(&self, level: LogLevel) {
        if self.era() == Era::Modern || !self.has_capability("logging") {
            return;
        }
        let params = RawObject::single("level", level);
        if let Err(error) = self.request_without_call("logging/setLevel", params).await {
            callboard_message::log::debug!(%error, "failed to set the server's log level");
        }
    }

    /// Sends a legacy request that belongs to no call and waits for its response.
    pub async fn request_without_call(&self, method: &str, params: RawObject) -> ExchangeResult {
        self.send_without_call(|number| legacy_request(number, method, &params, None))
            .await
    }
}

impl Drop for UpstreamSession {
    fn drop(&mut self) {
        if let Some(http) = self.transport.http() {
            http.end_session();
        }
    }
}

/// Builds a request of the legacy era. `cx` is the call that it belongs to, if any.
fn legacy_request(
    number: u64,
    method: &str,
    params: &RawObject,
    cx: Option<&Context>,
) -> OutgoingRequest {
    let mut meta = MetaAdditions::default();
    if let Some(cx) = cx {
        meta.add_call(number, cx);
    }
    OutgoingRequest {
        number,
        method: method.to_owned(),
        body: encode_body(number, method, params, &meta),
        headers: RequestHeaders::Legacy,
        is_cancellable: method != "initialize",
    }
}

/// Encodes a JSON-RPC request, with the members of `meta` added to `_meta` in `params`.
pub(crate) fn encode_body(
    number: u64,
    method: &str,
    params: &RawObject,
    meta: &MetaAdditions,
) -> Vec<u8> {
    let added = meta.merged_with(params);
    let put = added.as_deref().map(|meta| ("_meta", meta));
    let bytes = params
        .iter()
        .map(|(name, value)| name.len() + value.get().len() + 4)
        .sum::<usize>();
    let bytes = bytes + added.as_ref().map_or(0, |meta| meta.len() + 16);
    encode_request_with(&request_id(number), method, bytes, |out| {
        params.write_with(put.as_slice(), out)
    })
}

/// Members added to the `_meta` of a request's params: names, and values as JSON.
#[derive(Default)]
pub(crate) struct MetaAdditions(Vec<(&'static str, String)>);

impl MetaAdditions {
    /// Adds the progress token, if the call has a caller to report to, the trace context and the
    /// number of hops, which ends circles of gateways. Both eras have these.
    pub fn add_call(&mut self, number: u64, cx: &Context) {
        let Some(call) = cx.call() else { return };
        if call.caller.is_some() {
            self.add(meta::PROGRESS_TOKEN, number.to_string());
        }
        self.add(meta::TRACEPARENT, quote(&call.trace.to_string()));
        self.add(meta::HOPS, call.hops.saturating_add(1).to_string());
    }

    pub fn add(&mut self, name: &'static str, json: String) {
        self.0.push((name, json));
    }

    /// Returns the `_meta` of `params` as JSON with the additions. Returns `None` if there are no
    /// additions.
    fn merged_with(&self, params: &RawObject) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let put: Vec<_> = self
            .0
            .iter()
            .map(|(name, json)| (*name, json.as_str()))
            .collect();
        let own = params.object("_meta").unwrap_or_default();
        let mut written = String::with_capacity(
            put.iter()
                .map(|(name, json)| name.len() + json.len() + 4)
                .sum(),
        );
        own.write_with(&put, &mut written);
        Some(written)
    }
}

/// Executes the `initialize` handshake of the legacy era and returns the session. Fails with
/// `Protocol` if the server chooses a revision that isn't a supported one of this era.
pub(crate) async fn initialize(
    connection: &ServerConnection,
) -> Result<Arc<UpstreamSession>, TransportError> {
    let ServerConnection {
        transport, options, ..
    } = connection;
    let mut params = RawObject::new()
        .with("protocolVersion", options.revision.as_str())
        .with("capabilities", &options.offered_capabilities)
        .with("clientInfo", &options.client_info);
    if connection.hops > 0 {
        params.set("_meta", RawObject::single(meta::HOPS, connection.hops));
    }
    let result = connection
        .send_without_call(|number| legacy_request(number, "initialize", &params, None))
        .await?;
    let about = RawObject::parse(&result).map_err(|_| {
        TransportError::Protocol(
            "the server's result of `initialize` is no JSON object: the server has to be corrected"
                .into(),
        )
    })?;
    let chosen = about
        .text("protocolVersion")
        .and_then(|version| Revision::parse(&version));
    let Some(revision) = chosen.filter(|revision| revision.era() == Era::Legacy) else {
        return Err(TransportError::Protocol(format!(
            "the server chose a protocol version that callboard doesn't support: {:?}",
            shown_version(&about)
        )));
    };
    if let Some(http) = transport.http() {
        http.set_revision(revision);
    }
    transport
        .send(encode_notification("notifications/initialized", None))
        .await?;
    Ok(UpstreamSession::new(connection.clone(), revision, about))
}

/// Returns the protocol version in the result of `initialize`, cut to 40 characters, for use in an
/// error message.
fn shown_version(about: &RawObject) -> String {
    const CHARS_MAX: usize = 40;
    let version = about.text("protocolVersion").unwrap_or_default();
    version.chars().take(CHARS_MAX).collect()
}
