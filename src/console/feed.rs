//! Event stream that tells the pages of a browser that the node has changed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Bytes;
use callboard_rpc::serve::http_response::event_stream_response;
use callboard_rpc::serve::{ConcurrencyPermit, CredentialWatch, idle_timeout};
use callboard_rpc::{SseEvent, encode_event};
use futures::stream;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::request::{ConsoleError, ConsoleRequest};
use crate::monitor::NodeMonitor;

/// Maximum number of open event streams of a console. Further ones are refused with 503.
pub(super) const FEEDS_MAX: usize = 64;
/// Minimum time between two events of a stream: at most four a second.
const EVENT_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// Time without an event after which a stream sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Delay before a browser opens a stream again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Type of the events.
const CHANGE_EVENT: &str = "change";

/// Number of open event streams of a console.
#[derive(Default)]
pub(super) struct Feeds(Arc<AtomicUsize>);

impl Feeds {
    fn open(&self) -> Option<ConcurrencyPermit> {
        ConcurrencyPermit::try_acquire(&self.0, FEEDS_MAX)
    }
}

/// Opens an event stream. It ends with the credential of its request, and when the node stops.
///
/// # Errors
/// 503 if too many are open.
pub(super) fn open_feed(request: &ConsoleRequest<'_>) -> Result<HttpResponse, ConsoleError> {
    let console = request.console;
    let permit = console.feeds.open().ok_or_else(|| {
        ConsoleError::unavailable(format!(
            "{FEEDS_MAX} pages follow this node already: close some, or load this one again by hand"
        ))
    })?;
    let changes = NodeChanges {
        monitor: console.monitor.clone(),
        changes: console.monitor.changes(),
        stop: console.stop.clone(),
        latest: None,
    };
    let events = stream::unfold(changes, |mut changes| async move {
        let event = changes.next().await?;
        let event = Bytes::from(encode_event(&event));
        Some((Ok::<_, io::Error>(event), changes))
    });
    let busy = idle_timeout::track_request(request.request);
    let watch = CredentialWatch::new(request.request, &console.access.access);
    Ok(event_stream_response(
        Box::pin(events),
        KEEP_ALIVE,
        watch,
        (permit, busy),
    ))
}

/// Changes of a node, as events of one stream.
struct NodeChanges {
    monitor: NodeMonitor,
    changes: watch::Receiver<u64>,
    stop: CancellationToken,
    /// Time of the latest event; `None` before the first.
    latest: Option<Instant>,
}

impl NodeChanges {
    /// Waits for the next event: at once at the beginning, then for a change. `None` if the node stops.
    async fn next(&mut self) -> Option<SseEvent> {
        if let Some(latest) = self.latest {
            let Self { changes, stop, .. } = self;
            let changed = async {
                tokio::time::sleep_until(latest + EVENT_INTERVAL_MIN).await;
                changes.changed().await
            };
            tokio::select! {
                () = stop.cancelled() => return None,
                changed = changed => changed.ok()?,
            }
        }
        self.latest = Some(Instant::now());
        let change = *self.changes.borrow_and_update();
        let overview = self.monitor.overview();
        let data = json!({
            "change": change,
            "running": overview.running,
            "questions": overview.questions,
            "upstreams_away": overview.upstreams_away,
        });
        Some(SseEvent {
            event: Some(CHANGE_EVENT.to_owned()),
            retry: Some(RETRY_DELAY),
            ..SseEvent::message(data.to_string())
        })
    }
}
