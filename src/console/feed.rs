//! Event stream that tells the pages of a browser that the node has changed.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Bytes;
use callboard_message::{Principal, PrincipalKind};
use callboard_rpc::serve::http_response::event_stream_response;
use callboard_rpc::serve::{ConcurrencyPermit, CredentialWatch, idle_timeout};
use callboard_rpc::{SseEvent, encode_event};
use futures::stream;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::request::{ConsoleError, ConsoleRequest};
use super::session::Session;
use crate::monitor::NodeMonitor;

/// Maximum number of open event streams of a console. Further ones are refused with 503.
pub(super) const FEEDS_MAX: usize = 64;
/// Maximum number of open event streams of one principal. Further ones are refused with 503.
pub(super) const FEEDS_PER_PRINCIPAL_MAX: usize = 8;
/// Minimum time between two events of a stream: at most four a second.
const EVENT_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// Time without an event after which a stream sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Delay before a browser opens a stream again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Type of the events.
const CHANGE_EVENT: &str = "change";

/// Numbers of open event streams of a console: of all, and of each principal that has some.
#[derive(Default)]
pub(super) struct Feeds {
    all: Arc<AtomicUsize>,
    by_principal: Mutex<HashMap<(PrincipalKind, String), Arc<AtomicUsize>>>,
}

/// Places of an open event stream, among its principal's and among all.
type FeedPermits = (ConcurrencyPermit, ConcurrencyPermit);

impl Feeds {
    /// Takes a place for one more stream.
    ///
    /// # Errors
    /// 503 if there is none, for the principal or at all.
    fn open(&self, principal: &Principal) -> Result<FeedPermits, ConsoleError> {
        let mut counts = self.by_principal.lock();
        counts.retain(|_, count| count.load(Ordering::Relaxed) > 0);
        let key = (principal.kind, principal.id.clone());
        let count = counts.entry(key).or_default();
        let own = ConcurrencyPermit::try_acquire(count, FEEDS_PER_PRINCIPAL_MAX);
        let own = own.ok_or_else(|| too_many(FEEDS_PER_PRINCIPAL_MAX, "of your pages"))?;
        let all = ConcurrencyPermit::try_acquire(&self.all, FEEDS_MAX);
        let all = all.ok_or_else(|| too_many(FEEDS_MAX, "pages"))?;
        Ok((own, all))
    }
}

fn too_many(feeds_max: usize, of: &str) -> ConsoleError {
    ConsoleError::unavailable(format!(
        "{feeds_max} {of} follow this node already: close some, or load this one again by hand"
    ))
}

/// Opens an event stream. It ends with the session and the credential of its request, and when the node stops.
///
/// # Errors
/// 503 if too many are open.
pub(super) fn open_feed(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let console = request.console;
    let permits = console.feeds.open(&request.client.principal)?;
    let feed = NodeFeed {
        monitor: console.monitor.clone(),
        changes: PacedChanges::new(console.monitor.changes()),
        session: request.client.session.clone(),
        stop: console.stop.clone(),
    };
    let events = stream::unfold(feed, |mut feed| async move {
        let event = feed.next().await?;
        let event = Bytes::from(encode_event(&event));
        Some((Ok::<_, io::Error>(event), feed))
    });
    let busy = idle_timeout::track_request(request.request);
    let watch = CredentialWatch::new(request.request, &console.access.access);
    Ok(event_stream_response(
        Box::pin(events),
        KEEP_ALIVE,
        watch,
        (permits, busy),
    ))
}

/// Changes of a node, as events of one stream.
struct NodeFeed {
    monitor: NodeMonitor,
    changes: PacedChanges,
    /// Session of the stream; `None` if its request had a credential of its own.
    session: Option<Arc<Session>>,
    stop: CancellationToken,
}

impl NodeFeed {
    /// Waits for the next event: at once at the beginning, then for a change. `None` if the session ends or the node stops.
    async fn next(&mut self) -> Option<SseEvent> {
        let Self {
            monitor,
            changes,
            session,
            stop,
        } = self;
        let signed_out = async {
            match &*session {
                Some(session) => session.ended.cancelled().await,
                None => pending().await,
            }
        };
        let change = tokio::select! {
            () = stop.cancelled() => return None,
            () = signed_out => return None,
            change = changes.next() => change?,
        };
        // The node announces a change each few seconds, so a session whose time is over is noticed.
        let now = Instant::now();
        if session.as_ref().is_some_and(|session| session.is_over(now)) {
            return None;
        }
        let overview = monitor.overview();
        let data = json!({
            "change": change,
            "running": overview.running,
            "upstreams_away": overview.upstreams_away,
        });
        Some(SseEvent {
            event: Some(CHANGE_EVENT.to_owned()),
            retry: Some(RETRY_DELAY),
            ..SseEvent::message(data.to_string())
        })
    }
}

/// Numbers of a node's changes, with at least [`EVENT_INTERVAL_MIN`] between two.
struct PacedChanges {
    changes: watch::Receiver<u64>,
    /// Time of the latest; `None` before the first.
    latest: Option<Instant>,
}

impl PacedChanges {
    fn new(changes: watch::Receiver<u64>) -> Self {
        Self {
            changes,
            latest: None,
        }
    }

    /// Waits for a change, and returns its number: at once the first time. `None` if there won't be one any more.
    async fn next(&mut self) -> Option<u64> {
        if let Some(latest) = self.latest {
            tokio::time::sleep_until(latest + EVENT_INTERVAL_MIN).await;
            self.changes.changed().await.ok()?;
        }
        self.latest = Some(Instant::now());
        Some(*self.changes.borrow_and_update())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a page is told of changes at most four times a second, and goes on being told. Method: paused time; a node that
    /// changes each millisecond for ten seconds.
    #[tokio::test(start_paused = true)]
    async fn changes_are_paced() {
        let sender = watch::Sender::new(0_u64);
        let mut changes = PacedChanges::new(sender.subscribe());
        let busy = tokio::spawn(async move {
            loop {
                sender.send_modify(|change| *change += 1);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let (began, mut events) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(10) {
            assert!(changes.next().await.is_some());
            events += 1;
        }
        busy.abort();
        assert!((35..=41).contains(&events), "{events}");
    }

    /// Goal: neither one principal nor all together hold more streams than the limits; a closed one makes room. Method: one
    /// more than each.
    #[test]
    fn feeds_are_bounded() {
        let feeds = Feeds::default();
        let one = Principal::agent("a");
        let mut own: Vec<_> = (0..FEEDS_PER_PRINCIPAL_MAX)
            .map(|_| feeds.open(&one).unwrap())
            .collect();
        assert!(feeds.open(&one).is_err());
        drop(own.pop());
        own.push(feeds.open(&one).unwrap());
        let others: Vec<_> = (FEEDS_PER_PRINCIPAL_MAX..FEEDS_MAX)
            .map(|n| feeds.open(&Principal::agent(format!("p{n}"))).unwrap())
            .collect();
        assert!(feeds.open(&Principal::agent("b")).is_err());
        drop((own, others));
        assert!(feeds.open(&one).is_ok());
        assert_eq!(feeds.by_principal.lock().len(), 1);
    }
}
