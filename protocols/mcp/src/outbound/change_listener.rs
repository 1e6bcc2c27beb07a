//! Listener for a server's change notifications: the GET stream (legacy), `subscriptions/listen`
//! (modern).

use std::sync::Arc;
use std::time::Duration;

use callboard_message::RawObject;
use callboard_runtime::Backoff;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::call_exchange::ServerConnection;
use super::change_route::ListSource;
use super::exchange::{ExchangeResult, ServerMessage, TransportError};
use super::modern;
use super::session::UpstreamSession;
use super::transport::HttpTransport;
use crate::wire::{Era, meta};

impl ListSource for UpstreamSession {
    fn fetch_page(
        &self,
        method: &'static str,
        mut params: RawObject,
    ) -> BoxFuture<'_, ExchangeResult> {
        if self.hops > 0 {
            params.set("_meta", RawObject::single(meta::HOPS, self.hops));
        }
        Box::pin(async move {
            match self.era() {
                Era::Legacy => self.request_without_call(method, params).await,
                Era::Modern => {
                    let options = &self.options;
                    let build = |number| {
                        modern::build_request(number, method, &params, None, options, None)
                    };
                    self.send_without_call(build).await
                }
            }
        })
    }

    fn pages_max(&self) -> u32 {
        self.options.pages_max
    }
}

/// Pauses between attempts to open the stream of change notifications again.
const RECONNECT_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    max: Duration::from_secs(30),
    jitter: 0.0,
};
/// Age from which a stream of change notifications counts as stable. When a stable stream breaks,
/// failures are counted from zero again.
const STABLE_STREAM_AGE: Duration = Duration::from_secs(60);
/// Time that a new legacy session waits for the server's answer to the GET request that opens its
/// event stream. Some servers send a call's questions on this stream and lose those sent before it
/// is open. Others answer only once they have a message, so the wait is limited.
const STREAM_WAIT_MAX: Duration = Duration::from_millis(500);

/// Running task that receives a server's change notifications.
pub(crate) struct ChangeListener {
    task: AbortOnDropHandle<()>,
    /// Completes, with an error, once the server has acknowledged or refused the subscription, or
    /// answered the GET request.
    ready: oneshot::Receiver<()>,
}

impl ChangeListener {
    /// Waits until the server has acknowledged or refused the subscription, then stops the
    /// session's previous listener and stores this one instead.
    pub async fn replace(self, session: &UpstreamSession) {
        // An error means that the server refused; the task has logged it.
        let _ = self.ready.await;
        let before = session.listener.lock().replace(self.task);
        drop(before);
    }

    /// Stores the listener in a new session. For a legacy server, waits up to [`STREAM_WAIT_MAX`]
    /// for the answer to the GET request.
    pub async fn install(self, session: &UpstreamSession) {
        let before = session.listener.lock().replace(self.task);
        drop(before);
        if session.era() == Era::Legacy {
            let _ = timeout(STREAM_WAIT_MAX, self.ready).await;
        }
    }
}

/// Starts a task that receives change notifications from the server of `session`: changes of its
/// lists, and of the resources with the given URIs. Returns `None` if there is nothing to listen
/// to.
pub(crate) fn start_listener(
    session: &UpstreamSession,
    resources: Vec<String>,
) -> Option<ChangeListener> {
    let (ready_sender, ready) = oneshot::channel();
    let connection = ServerConnection::clone(session);
    let task = match (session.era(), session.transport.http()) {
        (Era::Legacy, Some(http)) if session.options.listen => tokio::spawn(follow_get(
            http.clone(),
            session.options.reconnects_max,
            ready_sender,
        )),
        (Era::Legacy, _) => return None,
        (Era::Modern, _) => {
            let filter = Some(subscription_filter(session, resources))
                .filter(|filter| !filter.is_empty())?;
            tokio::spawn(subscribe(connection, filter, ready_sender))
        }
    };
    Some(ChangeListener {
        task: AbortOnDropHandle::new(task),
        ready,
    })
}

fn subscription_filter(session: &UpstreamSession, resources: Vec<String>) -> RawObject {
    let mut filter = RawObject::new();
    for (capability, member) in [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ] {
        if session.options.listen && session.has_capability_option(capability, "listChanged") {
            filter.set(member, true);
        }
    }
    if !resources.is_empty() {
        filter.set("resourceSubscriptions", resources);
    }
    filter
}

/// Reads a legacy server's GET stream and opens it again when it ends. Returns if the server offers
/// no such stream, the session is lost, or more than `reconnects_max` attempts in a row have
/// failed.
async fn follow_get(http: Arc<HttpTransport>, reconnects_max: u32, ready: oneshot::Sender<()>) {
    let (mut place, mut failures, mut ready) = (None, 0, Some(ready));
    loop {
        match http.read_get_stream(&mut place, &mut ready).await {
            Ok(Some(pause)) => {
                failures = 0;
                sleep(pause).await;
            }
            // The next call begins another session, with its own listener.
            Ok(None) | Err(TransportError::SessionLost) => return,
            Err(error) if failures >= reconnects_max => {
                callboard_message::log::warn!(%error, reconnects_max, "stopped listening for the server's changes after failed attempts");
                return;
            }
            Err(_) => {
                sleep(RECONNECT_BACKOFF.pause(failures)).await;
                failures += 1;
            }
        }
    }
}

/// Keeps a modern server's `subscriptions/listen` request open. Returns if the server rejects it,
/// the channel is closed, or more than `reconnects_max` attempts in a row have failed.
async fn subscribe(connection: ServerConnection, filter: RawObject, ready: oneshot::Sender<()>) {
    let mut ready = Some(ready);
    let mut failures = 0;
    loop {
        let began = Instant::now();
        match listen_once(&connection, &filter, &mut ready).await {
            // The server refuses, despite its declared capabilities.
            Err(TransportError::Rpc { error, .. }) => {
                callboard_message::log::warn!(
                    code = error.code,
                    "the server rejects the subscription to its changes: they aren't announced"
                );
                return;
            }
            _ if connection.transport.is_closed() => return,
            _ if began.elapsed() > STABLE_STREAM_AGE => failures = 0,
            _ if failures >= connection.options.reconnects_max => {
                callboard_message::log::warn!(
                    reconnects_max = connection.options.reconnects_max,
                    "stopped listening for the server's changes after failed attempts"
                );
                return;
            }
            _ => {}
        }
        sleep(RECONNECT_BACKOFF.pause(failures)).await;
        failures += 1;
    }
}

/// Sends one `subscriptions/listen` request and publishes the reported changes until the server
/// ends it. Drops `ready` once the server has acknowledged the subscription.
async fn listen_once(
    ServerConnection {
        transport,
        notifications,
        options,
        ..
    }: &ServerConnection,
    filter: &RawObject,
    ready: &mut Option<oneshot::Sender<()>>,
) -> Result<(), TransportError> {
    let (mut pending, mut messages) = notifications.pending_requests.register(false);
    let params = RawObject::single("notifications", filter);
    let outgoing = modern::build_request(
        pending.number,
        "subscriptions/listen",
        &params,
        None,
        options,
        None,
    );
    let mut exchange = std::pin::pin!(transport.exchange(&outgoing, &mut pending));
    loop {
        tokio::select! {
            biased;
            Some(event) = messages.recv() => {
                let ServerMessage::Notification { method, params } = *event else { continue };
                if method == "notifications/subscriptions/acknowledged" {
                    drop(ready.take());
                } else {
                    notifications.publish_change(&method, params.as_deref());
                }
            }
            ended = &mut exchange => return ended.map(drop),
        }
    }
}
