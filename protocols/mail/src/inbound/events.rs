//! Event stream of the mail server: WebSocket `/api/events`.
//!
//! A socket has a cursor instead of a queue: when there are new events, it reads them in pages.
//! Sockets with the same view share recently read pages. So a slow reader occupies no memory but
//! its position.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use actix_ws::{AggregatedMessage, CloseCode, CloseReason, ProtocolError};
use callboard_message::mail::{
    MAIL_EVENTS_TOPIC, MailEvent, MailEventPage as Found, NewMailEvents, NumberedMailEvent,
    ReadEvents, WATCH_SCOPE,
};
use callboard_message::{Failure, FailureKind, Message as _, Principal};
use callboard_rpc::BufferReservation;
use callboard_rpc::serve::idle_timeout::ActiveRequest;
use callboard_rpc::serve::websocket::{
    self, AcceptedWebSocket, WebSocketError, WebSocketReader, WebSocketSender,
};
use callboard_rpc::serve::{
    CREDENTIAL_ENDED_MESSAGE, CredentialWatch, HeartbeatMonitor, accept_header, buffers,
};
use callboard_runtime::{
    Agent, AgentRef, Context, Handlers, PrincipalShares, SharePermit, SyncHandler, System,
    inbound_policy,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::EVENT_SEQUENCE_HEADER;

use super::http::{ProblemResponse, QueryParameters};
use super::{MailCaller, MailServerState};

/// Maximum size of a WebSocket message from a client, in bytes. A socket that receives a larger one
/// is closed with code 1009.
const INCOMING_FRAME_BYTES_MAX: usize = 1_024;
/// Maximum number of text or binary messages from a client. Their content is ignored. A socket that
/// receives more is closed with code 1008.
pub const INCOMING_MESSAGES_MAX: u32 = 64;
/// Maximum number of sequence numbers in one page of events that is read from the mailroom.
const EVENTS_PAGE_ITEMS: u32 = 64;
/// Maximum number of cached event records in the view of all events, which sockets of callers with
/// the right to watch share. A socket that needs older records reads them from the mailroom.
const CACHED_RECORDS_MAX: usize = 1_024;
/// Maximum number of cached event records in the view of one agent. It is small, because such a
/// view mostly serves one socket.
const OWN_CACHED_RECORDS_MAX: usize = 64;
/// Maximum time in which the sockets must close when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Open event sockets of a mail server, with the state that they share.
pub(super) struct EventSockets {
    /// Agent that receives the notifications of new events for all sockets.
    listener: AgentRef,
    /// Sequence number of the newest event, published to all sockets.
    newest: watch::Sender<u64>,
    open: Arc<PrincipalShares>,
    /// Event views in use, by the principal whose events they hold; the key `None` is the view of
    /// all events.
    views: Mutex<HashMap<Option<Arc<Principal>>, Weak<EventView>>>,
    stopping: CancellationToken,
    sockets: TaskTracker,
}

struct MailEventListener(watch::Sender<u64>);

impl Agent for MailEventListener {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<NewMailEvents>();
    }
}

impl SyncHandler<NewMailEvents> for MailEventListener {
    fn handle(&mut self, happened: NewMailEvents, _cx: &mut Context) {
        self.0
            .send_modify(|newest| *newest = happened.last.max(*newest));
    }
}

impl EventSockets {
    /// Subscribes to notifications of new mail events in this system. `open` are the places of the
    /// sockets.
    pub fn subscribe(system: &System, open: Arc<PrincipalShares>) -> Self {
        let (newest, _) = watch::channel(0);
        let hears = newest.clone();
        let listener = system.spawn_with(move || MailEventListener(hears.clone()));
        if let Some(recipient) = listener.recipient::<NewMailEvents>() {
            system.events().subscribe(MAIL_EVENTS_TOPIC, recipient);
        }
        let views = Mutex::default();
        Self {
            listener,
            newest,
            open,
            views,
            stopping: CancellationToken::new(),
            sockets: TaskTracker::new(),
        }
    }

    /// Closes all sockets with code 1001 and a reason. Waits up to [`STOP_TIMEOUT`] until they are
    /// closed.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.sockets.close();
        // Sockets that don't close in time lose their connection with the listener.
        let _ = timeout(STOP_TIMEOUT, self.sockets.wait()).await;
    }

    fn view(&self, principal: &Arc<Principal>) -> Arc<EventView> {
        let (sees, records_max) = if principal.scopes.iter().any(|scope| scope == WATCH_SCOPE) {
            (None, CACHED_RECORDS_MAX)
        } else {
            (Some(principal.clone()), OWN_CACHED_RECORDS_MAX)
        };
        let mut views = self.views.lock();
        if let Some(view) = views.get(&sees).and_then(Weak::upgrade) {
            return view;
        }
        views.retain(|_, view| view.strong_count() > 0);
        let view = Arc::new(EventView {
            cache: tokio::sync::Mutex::default(),
            records_max,
        });
        views.insert(sees, Arc::downgrade(&view));
        view
    }
}

impl Drop for EventSockets {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.listener.stop();
    }
}

/// Answers a WebSocket handshake and starts an event socket for the caller.
///
/// # Errors
/// The error response if the request is invalid, access is denied, or too many sockets are open.
pub(super) async fn open_socket(
    request: &HttpRequest,
    payload: Payload,
    server: &Data<MailServerState>,
    caller: MailCaller,
    query: &QueryParameters<'_>,
    busy: ActiveRequest,
) -> Result<HttpResponse, ProblemResponse> {
    let events = &server.events;
    let types = EventTypeFilter::read(query.text("types"))?;
    if !accept_header::wants_websocket(request.headers()) {
        return Err(ProblemResponse::new(
            StatusCode::BAD_REQUEST,
            "events come over WebSocket: send its handshake",
        ));
    }
    if events.stopping.is_cancelled() {
        return Err(ProblemResponse::at_capacity(
            "this server is about to stop: try again later",
        ));
    }
    let permit = events.open.try_acquire(&*caller.principal);
    let permit = permit.map_err(|error| ProblemResponse::no_place("event sockets", error))?;
    let (after, newest) = read_start(server, &caller, query).await?;
    let incomplete = |_| {
        ProblemResponse::new(
            StatusCode::BAD_REQUEST,
            "the WebSocket handshake is not complete: send `Sec-WebSocket-Key` and version 13",
        )
    };
    let opened = websocket::accept_handshake(request, payload, &[], INCOMING_FRAME_BYTES_MAX);
    let AcceptedWebSocket {
        mut response,
        sender,
        messages,
    } = opened.map_err(incomplete)?;
    response.headers_mut().insert(
        HeaderName::from_static(EVENT_SEQUENCE_HEADER),
        HeaderValue::from(newest),
    );
    let numbered = query.text("after").is_some();
    let view = events.view(&caller.principal);
    let cursor = SocketCursor {
        sequence: after.unwrap_or(newest),
        numbered,
        types,
        view,
        newest: events.newest.subscribe(),
    };
    let socket = EventSocket {
        server: server.clone(),
        caller,
        sender,
    };
    let counted = buffers::account_of(request).map(|account| account.reservation());
    let standing = CredentialWatch::new(request, &server.options.access);
    let stopping = events.stopping.clone();
    let served = socket.serve(
        (cursor, counted),
        standing,
        messages,
        (busy, permit),
        stopping,
    );
    actix_web::rt::spawn(events.sockets.track_future(served));
    Ok(response)
}

/// Returns the sequence number after which events are wanted, `None` for new ones only, and that of
/// the newest event.
///
/// # Errors
/// The error response if `after` is no number or above the newest event's, or access is denied.
async fn read_start(
    server: &MailServerState,
    caller: &MailCaller,
    query: &QueryParameters<'_>,
) -> Result<(Option<u64>, u64), ProblemResponse> {
    let after = query
        .text("after")
        .filter(|after| *after != "now")
        .map(|_| query.parse::<u64>("after"));
    let after = after.transpose()?.flatten();
    // Only this request is checked by the policy, not the following pages. It reads the newest
    // sequence number only.
    let first = ReadEvents {
        after: 0,
        limit: Some(1),
        types: Vec::new(),
    };
    let agent = server.agent();
    let name = agent.to_string();
    let read = Some(ReadEvents::NAME);
    if inbound_policy::may_need_approval(&agent, &name, &caller.principal, read) {
        let why = "a rule demands an approval of each reading of events, which a stream can't wait for: call the tool `read_events` over MCP";
        return Err(ProblemResponse::new(StatusCode::FORBIDDEN, why));
    }
    let Found { newest, .. } = server.ask(caller, &first).await?;
    if after.is_some_and(|after| after > newest) {
        return Err(ProblemResponse::new(
            StatusCode::BAD_REQUEST,
            format!("`after` is above the newest event's number, which is {newest}"),
        ));
    }
    Ok((after, newest))
}

/// Timeout for sending the close frame of a socket. The client may first have to read earlier
/// frames.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which a socket checks for new events if it gets no notification of them.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// WebSocket over which one client receives mail events.
struct EventSocket {
    server: Data<MailServerState>,
    caller: MailCaller,
    sender: WebSocketSender,
}

/// Position of an event socket in the events, and its settings.
struct SocketCursor {
    /// Sequence number of the last event that was sent or skipped.
    sequence: u64,
    /// Whether events are sent with their sequence numbers.
    numbered: bool,
    types: EventTypeFilter,
    view: Arc<EventView>,
    newest: watch::Receiver<u64>,
}

/// Close frame to send when a socket ends; `None` if its client has gone.
type SocketClose = Option<CloseReason>;

fn socket_close(code: CloseCode, why: impl Into<String>) -> SocketClose {
    Some(CloseReason {
        code,
        description: Some(why.into()),
    })
}

impl EventSocket {
    /// Runs the socket until the client or the server closes it, or the credential of its handshake
    /// is revoked.
    async fn serve(
        self,
        (cursor, counted): (SocketCursor, Option<BufferReservation>),
        mut standing: CredentialWatch,
        mut messages: WebSocketReader,
        held: (ActiveRequest, SharePermit),
        stopping: CancellationToken,
    ) {
        let mut alive = HeartbeatMonitor::new(self.server.options.ping_interval);
        let mut heard = 0;
        let why = {
            let mut writing = pin!(self.write(cursor, counted));
            loop {
                tokio::select! {
                    why = &mut writing => break why,
                    () = standing.wait_revoked() => break socket_close(CloseCode::Policy, CREDENTIAL_ENDED_MESSAGE),
                    () = stopping.cancelled() => break socket_close(CloseCode::Away, "the server stops"),
                    message = messages.recv() => {
                        alive.record_activity();
                        match message {
                            Some(Ok(AggregatedMessage::Text(_) | AggregatedMessage::Binary(_))) => {
                                heard += 1;
                                if heard > INCOMING_MESSAGES_MAX {
                                    break socket_close(CloseCode::Policy, "too many messages: this socket reads none");
                                }
                            }
                            Some(Ok(AggregatedMessage::Ping(payload))) => {
                                self.sender.clone().try_pong(&payload).await;
                            }
                            Some(Ok(AggregatedMessage::Pong(_))) => {}
                            Some(Ok(AggregatedMessage::Close(_))) | None => break None,
                            Some(Err(WebSocketError::Protocol(ProtocolError::Overflow))) => {
                                break socket_close(CloseCode::Size, "the frame is too large");
                            }
                            Some(Err(_)) => break socket_close(CloseCode::Protocol, "the frame can't be read"),
                        }
                    }
                    () = alive.tick() => {
                        if alive.is_dead() {
                            break None;
                        }
                        self.sender.clone().try_ping().await;
                    }
                }
            }
        };
        // The permit is released at once, and the connection is subject to the idle timeout again.
        drop(held);
        let Self { sender, .. } = self;
        let _ = timeout(
            if why.is_some() {
                CLOSE_TIMEOUT
            } else {
                Duration::ZERO
            },
            sender.close(why),
        )
        .await;
    }

    /// Sends events in order. Returns the close frame when the socket must close.
    async fn write(
        &self,
        mut cursor: SocketCursor,
        mut counted: Option<BufferReservation>,
    ) -> SocketClose {
        let mut sender = self.sender.clone();
        let mut look = true;
        loop {
            let newest = *cursor.newest.borrow_and_update();
            while look || cursor.sequence < newest {
                let page = match cursor
                    .view
                    .records_after(cursor.sequence, async |after| self.read(after).await)
                    .await
                {
                    Ok(page) => page,
                    Err(failure) => return close_for_failure(&failure, cursor.sequence),
                };
                // Otherwise the event was announced, but isn't stored yet.
                let moved = page.to > cursor.sequence;
                for record in &page.records {
                    for frame in record.frames_for(&cursor.types, cursor.numbered) {
                        match self.send(frame, &mut counted).await {
                            Ok(true) => {}
                            Ok(false) => return None,
                            Err(TooSlow) => {
                                let why = format!("too slow: go on with after={}", cursor.sequence);
                                return socket_close(CloseCode::Again, why);
                            }
                        }
                    }
                    cursor.sequence = record.sequence;
                }
                if !moved {
                    break;
                }
                cursor.sequence = page.to;
            }
            look = false;
            tokio::select! {
                changed = cursor.newest.changed() => if changed.is_err() { return None },
                () = sleep(POLL_INTERVAL) => look = true,
                () = sender.wait_taken() => {
                    // Can't fail, because it is less than before.
                    let _ = counted.as_mut().map(|held| held.resize(sender.untaken_bytes()));
                }
            }
        }
    }

    /// Sends a frame, and counts those that the connection hasn't taken. Returns false if the
    /// client has gone.
    async fn send(
        &self,
        frame: String,
        counted: &mut Option<BufferReservation>,
    ) -> Result<bool, TooSlow> {
        let mut sender = self.sender.clone();
        let sent = timeout(self.server.options.frame_timeout, sender.text(frame)).await;
        if sent.map_err(|_| TooSlow)?.is_err() {
            return Ok(false);
        }
        let counted = counted.as_mut();
        let resized = counted.map(|held| held.resize(sender.untaken_bytes()));
        resized.transpose().map_err(|_| TooSlow)?;
        Ok(true)
    }

    async fn read(&self, after: u64) -> Result<Found, Failure> {
        let asked = ReadEvents {
            after,
            limit: Some(EVENTS_PAGE_ITEMS),
            types: Vec::new(),
        };
        self.server.ask_admitted(&self.caller, &asked).await
    }
}

/// Reason to close a socket: its client reads too slowly for the time limit of a frame, or for the
/// memory that is left.
struct TooSlow;

fn close_for_failure(failure: &Failure, at: u64) -> SocketClose {
    match failure.kind {
        FailureKind::Denied | FailureKind::Blocked => {
            socket_close(CloseCode::Policy, "access to these events was withdrawn")
        }
        _ => socket_close(
            CloseCode::Again,
            format!("the mailroom did not answer: go on with after={at}"),
        ),
    }
}

/// Cache of the latest event records that a principal may see, shared by all sockets with the same
/// view. The first socket that needs a further page reads it for the others.
struct EventView {
    cache: tokio::sync::Mutex<CachedRecords>,
    records_max: usize,
}

/// Cached records: all visible ones with sequence numbers greater than `from` and up to `to`.
#[derive(Default)]
struct CachedRecords {
    from: u64,
    to: u64,
    records: VecDeque<Arc<EventRecord>>,
}

/// Page of event records, in order of sequence numbers.
struct RecordPage {
    records: Vec<Arc<EventRecord>>,
    /// Sequence number up to which the page is complete, also if the last record has a lower one.
    to: u64,
}

impl EventView {
    /// Returns a page of the records with sequence numbers greater than `cursor`: from the cache,
    /// or from the mailroom by `read`, which fetches the page after a sequence number.
    ///
    /// # Errors
    /// Returns the failure of the mailroom.
    async fn records_after(
        &self,
        cursor: u64,
        read: impl AsyncFnOnce(u64) -> Result<Found, Failure>,
    ) -> Result<RecordPage, Failure> {
        let mut kept = self.cache.lock().await;
        if let Some(page) = kept.records_after(cursor) {
            return Ok(page);
        }
        if cursor < kept.from {
            // A socket that is far behind reads by itself, without blocking the others.
            drop(kept);
            let found = read(cursor).await?;
            return Ok(RecordPage {
                records: EventRecord::of(&found.events).collect(),
                to: found.last.max(cursor),
            });
        }
        if cursor > kept.to {
            *kept = CachedRecords {
                from: cursor,
                to: cursor,
                records: VecDeque::new(),
            };
        }
        let found = read(cursor).await?;
        kept.add(&found, self.records_max);
        Ok(kept.records_after(cursor).unwrap_or(RecordPage {
            records: Vec::new(),
            to: cursor,
        }))
    }
}

impl CachedRecords {
    fn records_after(&self, cursor: u64) -> Option<RecordPage> {
        if !(self.from..self.to).contains(&cursor) {
            return None;
        }
        let first = self
            .records
            .partition_point(|record| record.sequence <= cursor);
        let rest = self.records.iter().skip(first);
        let records: Vec<_> = rest.take(EVENTS_PAGE_ITEMS as usize).cloned().collect();
        let is_all = first + records.len() == self.records.len();
        let to = records
            .last()
            .filter(|_| !is_all)
            .map_or(self.to, |record| record.sequence);
        Some(RecordPage { records, to })
    }

    fn add(&mut self, found: &Found, records_max: usize) {
        self.records.extend(EventRecord::of(&found.events));
        self.to = found.last.max(self.to);
        while self.records.len() > records_max
            && let Some(gone) = self.records.pop_front()
        {
            self.from = gone.sequence;
        }
    }
}

/// Events with the same sequence number, serialised.
struct EventRecord {
    sequence: u64,
    /// Type and serialised form of each event.
    frames: Vec<(&'static str, String)>,
}

impl EventRecord {
    /// Groups a page's events by sequence number, one record each.
    fn of(events: &[NumberedMailEvent]) -> impl Iterator<Item = Arc<Self>> {
        events
            .chunk_by(|one, next| one.sequence == next.sequence)
            .map(|of_one| {
                let frame = |NumberedMailEvent { event, .. }: &NumberedMailEvent| {
                    Some((event.kind(), serde_json::to_string(event).ok()?))
                };
                let frames = of_one.iter().filter_map(frame).collect();
                Arc::new(Self {
                    sequence: of_one.first().map_or(0, |numbered| numbered.sequence),
                    frames,
                })
            })
    }

    /// Returns the WebSocket texts of the events that pass the filter, with their sequence number
    /// if `numbered`.
    fn frames_for(&self, types: &EventTypeFilter, numbered: bool) -> impl Iterator<Item = String> {
        let wanted = self.frames.iter().filter(|(kind, _)| types.accepts(kind));
        wanted.map(move |(_, event)| match numbered {
            true => format!(r#"{{"sequence":{},"event":{event}}}"#, self.sequence),
            false => event.clone(),
        })
    }
}

/// Event types that a socket's client has requested; `None` for all. Events of the type `missed`
/// always pass.
#[derive(Debug, Clone)]
struct EventTypeFilter(Option<Vec<&'static str>>);

impl EventTypeFilter {
    /// Parses the comma-separated event types of the parameter `types`; an absent parameter means
    /// all types.
    ///
    /// # Errors
    /// 422 if a type is unknown.
    fn read(list: Option<&str>) -> Result<Self, ProblemResponse> {
        let known = |name: &str| {
            MailEvent::KINDS
                .into_iter()
                .find(|known| *known == name.trim())
        };
        let Some(list) = list else {
            return Ok(Self(None));
        };
        let named: Option<Vec<_>> = list.split(',').map(known).collect();
        named.map(|named| Self(Some(named))).ok_or_else(|| {
            ProblemResponse::unprocessable(
                "the parameter `types` must be names of events, separated by commas: see /api/openapi.json",
            )
        })
    }

    fn accepts(&self, kind: &str) -> bool {
        kind == "missed" || self.0.as_ref().is_none_or(|named| named.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::mail::{DeliveryMethod, MailEvent, NumberedMailEvent};

    use super::*;

    /// Events after `after`, up to `newest`, of which only the even numbers are visible, each
    /// twice.
    fn found(after: u64, newest: u64) -> Found {
        let last = newest.min(after + u64::from(EVENTS_PAGE_ITEMS));
        let event = || MailEvent::AgentLeft {
            agent_id: "a".into(),
            reason: "ended".into(),
        };
        let seen = (after + 1..=last).filter(|n| n % 2 == 0);
        let events = seen
            .flat_map(|sequence| {
                [0, 1].map(|_| NumberedMailEvent {
                    sequence,
                    event: event(),
                })
            })
            .collect();
        Found {
            events,
            last,
            newest,
        }
    }

    async fn all(view: &EventView, mut cursor: u64, newest: u64, reads: &mut usize) -> Vec<u64> {
        let mut seen = Vec::new();
        while cursor < newest {
            let read = async |after| {
                *reads += 1;
                Ok(found(after, newest))
            };
            let page = view.records_after(cursor, read).await.unwrap();
            assert!(page.to > cursor && page.records.iter().all(|record| record.frames.len() == 2));
            seen.extend(page.records.iter().map(|record| record.sequence));
            cursor = page.to;
        }
        seen
    }

    /// Goal: sockets with the same view share reads, and each gets all events in order, once.
    /// Method: readers at several positions over more records than are cached.
    #[tokio::test]
    async fn what_was_read_is_shared() {
        let (view, newest) = (
            EventView {
                cache: tokio::sync::Mutex::default(),
                records_max: CACHED_RECORDS_MAX,
            },
            10_000,
        );
        let even = |after: u64, newest: u64| {
            (after + 1..=newest)
                .filter(|n| n % 2 == 0)
                .collect::<Vec<_>>()
        };
        let mut reads = 0;
        assert_eq!(
            all(&view, 7_000, newest, &mut reads).await,
            even(7_000, newest)
        );
        let first = reads;
        assert_eq!(first, 3_000_usize.div_ceil(EVENTS_PAGE_ITEMS as usize));
        // The last 1,024 even numbers are cached.
        let kept_from = newest - 2 * CACHED_RECORDS_MAX as u64;
        assert_eq!(
            all(&view, kept_from, newest, &mut reads).await,
            even(kept_from, newest)
        );
        assert_eq!(
            all(&view, newest - 1, newest, &mut reads).await,
            even(newest - 1, newest)
        );
        assert_eq!(reads, first, "nobody had to read");
        assert_eq!(all(&view, 0, newest, &mut reads).await, even(0, newest));
        assert!(reads > first);
        // The first socket reads a later page; a position beyond the cache starts a new one.
        assert_eq!(
            all(&view, newest, newest + 4, &mut reads).await,
            even(newest, newest + 4)
        );
        let before = reads;
        assert_eq!(
            all(&view, newest, newest + 4, &mut reads).await,
            even(newest, newest + 4)
        );
        assert_eq!(reads, before);
        assert_eq!(
            all(&view, 20_000, 20_010, &mut reads).await,
            even(20_000, 20_010)
        );
    }

    /// Goal: every event type can be requested by its name, and no other. Method: rows.
    #[test]
    fn types() {
        let joined = MailEvent::AgentJoined {
            agent_id: "a".into(),
            way: DeliveryMethod::Mcp,
        };
        assert!(MailEvent::KINDS.contains(&joined.kind()));
        assert!(EventTypeFilter::read(None).unwrap().accepts("agent_left"));
        let some = EventTypeFilter::read(Some("agent_left, message_read")).unwrap();
        assert!(
            some.accepts("agent_left")
                && some.accepts("message_read")
                && some.accepts("missed")
                && !some.accepts("agent_joined")
        );
        for bad in ["", "agent", "agent_left,", "AGENT_LEFT"] {
            assert!(EventTypeFilter::read(Some(bad)).is_err(), "{bad}");
        }
    }
}
