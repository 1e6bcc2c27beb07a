//! Hears of what changes at a server: the GET stream (legacy), `subscriptions/listen` (modern).

use std::sync::Arc;
use std::time::Duration;

use callboard_message::RawObject;
use callboard_runtime::Backoff;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::conversation::Connection;
use super::exchange::{Heard, TransportError};
use super::modern;
use super::session::Session;
use super::transport::Http;
use crate::wire::Era;

/// Pauses before a listener that lost its stream listens again.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(500),
    max: Duration::from_secs(30),
    jitter: 0.0,
};
/// A stream that lived so long was a good one: counting begins again.
const GOOD: Duration = Duration::from_secs(60);
/// How long the first call waits for the GET stream to be answered. Some servers ask there what belongs to a call, and what is
/// asked before anybody listens is lost; some answer only once they have something to say.
const STREAM_WAIT_MAX: Duration = Duration::from_millis(500);

/// A listener that has begun.
pub(crate) struct Listener {
    task: AbortOnDropHandle<()>,
    /// Ends when the server has said what it will tell of, or that it won't.
    ready: oneshot::Receiver<()>,
}

impl Listener {
    /// Waits until it hears; then it takes the place of the one before.
    pub async fn replace(self, session: &Session) {
        // An error means that the server won't tell: the task has logged that.
        let _ = self.ready.await;
        let before = session.listener.lock().replace(self.task);
        drop(before);
    }

    /// Lets it begin beside what follows; a GET stream is there by then, unless its answer takes longer than
    /// [`STREAM_WAIT_MAX`].
    pub async fn install(self, session: &Session) {
        let before = session.listener.lock().replace(self.task);
        drop(before);
        if session.era() == Era::Legacy {
            let _ = timeout(STREAM_WAIT_MAX, self.ready).await;
        }
    }
}

/// Listens for what `session`'s server tells of, with these resources among it. `None`: there is nothing to listen to.
pub(crate) fn start(session: &Session, resources: Vec<String>) -> Option<Listener> {
    let (told, ready) = oneshot::channel();
    let connection = Connection::clone(session);
    let task = match (session.era(), session.link.http()) {
        (Era::Legacy, Some(http)) if session.options.listen => tokio::spawn(follow_get(
            http.clone(),
            session.options.reconnects_max,
            told,
        )),
        (Era::Legacy, _) => return None,
        (Era::Modern, _) => {
            let filter = Some(filter(session, resources)).filter(|filter| !filter.is_empty())?;
            tokio::spawn(subscribe(connection, filter, told))
        }
    };
    Some(Listener {
        task: AbortOnDropHandle::new(task),
        ready,
    })
}

fn filter(session: &Session, resources: Vec<String>) -> RawObject {
    let mut filter = RawObject::new();
    for (capability, member) in [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ] {
        if session.options.listen && session.can(capability, "listChanged") {
            filter.set(member, true);
        }
    }
    if !resources.is_empty() {
        filter.set("resourceSubscriptions", resources);
    }
    filter
}

/// Follows the GET stream for as long as the server keeps one.
async fn follow_get(http: Arc<Http>, reconnects_max: u32, ready: oneshot::Sender<()>) {
    let (mut place, mut failures, mut ready) = (None, 0, Some(ready));
    loop {
        match http.follow_get(&mut place, &mut ready).await {
            Ok(Some(pause)) => {
                failures = 0;
                sleep(pause).await;
            }
            // The next call begins another session, with a listener of its own.
            Ok(None) | Err(TransportError::SessionLost) => return,
            Err(error) if failures >= reconnects_max => {
                callboard_message::log::warn!(%error, "the server can't be listened to");
                return;
            }
            Err(_) => {
                sleep(PAUSES.pause(failures)).await;
                failures += 1;
            }
        }
    }
}

/// Keeps a subscription open.
async fn subscribe(connection: Connection, filter: RawObject, ready: oneshot::Sender<()>) {
    let mut ready = Some(ready);
    let mut failures = 0;
    loop {
        let began = Instant::now();
        match listen_once(&connection, &filter, &mut ready).await {
            // It doesn't offer that, whatever it said before.
            Err(TransportError::Rpc { error, .. }) => {
                callboard_message::log::warn!(
                    code = error.code,
                    "the server refuses to tell of changes"
                );
                return;
            }
            _ if connection.link.is_closed() => return,
            _ if began.elapsed() > GOOD => failures = 0,
            _ if failures >= connection.options.reconnects_max => {
                callboard_message::log::warn!("the server can't be listened to");
                return;
            }
            _ => {}
        }
        sleep(PAUSES.pause(failures)).await;
        failures += 1;
    }
}

/// One `subscriptions/listen`, to its end.
async fn listen_once(
    Connection { link, ear, options }: &Connection,
    filter: &RawObject,
    ready: &mut Option<oneshot::Sender<()>>,
) -> Result<(), TransportError> {
    let (mut flight, mut heard) = ear.flights.open(false);
    let params = RawObject::of("notifications", filter);
    let outgoing = modern::request(
        flight.number,
        "subscriptions/listen",
        &params,
        None,
        options,
        None,
    );
    let mut exchange = std::pin::pin!(link.exchange(&outgoing, &mut flight));
    loop {
        tokio::select! {
            biased;
            Some(event) = heard.recv() => {
                let Heard::Notification { method, params } = *event else { continue };
                if method == "notifications/subscriptions/acknowledged" {
                    drop(ready.take());
                } else {
                    ear.changed(&method, params.as_deref());
                }
            }
            ended = &mut exchange => return ended.map(drop),
        }
    }
}
