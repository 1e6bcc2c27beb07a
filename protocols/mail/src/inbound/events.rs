//! What happens to the mail, as it happens: WebSocket `/api/events`.
//!
//! A socket has a cursor and no queue: it reads pages when something has happened, and those who see the same share what
//! was read last. So a slow reader holds nothing but its own place.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use actix_ws::{AggregatedMessage, CloseCode, CloseReason, ProtocolError, Session};
use callboard_message::mail::{
    Events as Found, MAIL_TOPIC, MailEvent, MailHappened, Numbered, ReadEvents, WATCH_SCOPE,
};
use callboard_message::{Failure, FailureKind, Principal};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::websocket::{self, Messages};
use callboard_rpc::serve::{Alive, COUNTS_NO_MORE, Permit, Standing, accept};
use callboard_runtime::{Agent, AgentRef, Cx, Handlers, SyncHandler, System};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::EVENT_SEQUENCE;

use super::http::{Problem, Query};
use super::{Caller, Server};

/// Bytes of a message, and so of a frame, that a client sends to an event socket. At a larger one the socket is closed with
/// 1009.
const INCOMING_FRAME_BYTES_MAX: usize = 1_024;
/// Number of messages that a client sends to an event socket, which reads none of them. At one more the socket is closed with
/// 1008.
pub const INCOMING_MESSAGES_MAX: u32 = 64;
/// Number of events that are asked for at once. What is beyond it comes with the next page.
const EVENTS_PAGE: u32 = 64;
/// Number of records of events that are kept for those who see every event, so that they read them once for all. Whoever is
/// further behind reads from the store.
const RECORDS_KEPT: usize = 1_024;
/// The same for those who see what one agent sees: mostly one socket.
const OWN_RECORDS_KEPT: usize = 64;
/// How long sockets may take to hear that the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The event sockets of a server.
pub(super) struct Events {
    /// Hears of what happens, for all of them.
    ear: AgentRef,
    /// The newest event's number, as far as the ear knows.
    newest: watch::Sender<u64>,
    open: Arc<AtomicUsize>,
    /// What somebody sees: those who see the same share it. `None`: whoever sees everything.
    views: Mutex<HashMap<Option<Arc<Principal>>, Weak<View>>>,
    stopping: CancellationToken,
    sockets: TaskTracker,
}

struct Ear(watch::Sender<u64>);

impl Agent for Ear {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<MailHappened>();
    }
}

impl SyncHandler<MailHappened> for Ear {
    fn handle(&mut self, happened: MailHappened, _cx: &mut Cx) {
        self.0
            .send_modify(|newest| *newest = happened.last.max(*newest));
    }
}

impl Events {
    /// Listens to what happens in this system.
    pub fn of(system: &System) -> Self {
        let (newest, _) = watch::channel(0);
        let hears = newest.clone();
        let ear = system.spawn_with(move || Ear(hears.clone()));
        if let Some(recipient) = ear.recipient::<MailHappened>() {
            system.events().subscribe(MAIL_TOPIC, recipient);
        }
        let (open, views) = Default::default();
        Self {
            ear,
            newest,
            open,
            views,
            stopping: CancellationToken::new(),
            sockets: TaskTracker::new(),
        }
    }

    /// Closes every socket.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.sockets.close();
        // Whoever doesn't hear it in time loses its connection with the listener's end.
        let _ = timeout(STOP_TIMEOUT, self.sockets.wait()).await;
    }

    fn view(&self, principal: &Arc<Principal>) -> Arc<View> {
        let (sees, records_max) = if principal.scopes.iter().any(|scope| scope == WATCH_SCOPE) {
            (None, RECORDS_KEPT)
        } else {
            (Some(principal.clone()), OWN_RECORDS_KEPT)
        };
        let mut views = self.views.lock();
        if let Some(view) = views.get(&sees).and_then(Weak::upgrade) {
            return view;
        }
        views.retain(|_, view| view.strong_count() > 0);
        let view = Arc::new(View {
            kept: tokio::sync::Mutex::default(),
            records_max,
        });
        views.insert(sees, Arc::downgrade(&view));
        view
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.ear.stop();
    }
}

/// Opens a socket.
pub(super) async fn open(
    request: &HttpRequest,
    payload: Payload,
    server: &Data<Server>,
    caller: Caller,
    query: &Query<'_>,
    busy: Busy,
) -> Result<HttpResponse, Problem> {
    let events = &server.events;
    let types = Types::read(query.text("types"))?;
    if !accept::wants_websocket(request.headers()) {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "events come over WebSocket: send its handshake",
        ));
    }
    if events.stopping.is_cancelled() {
        return Err(Problem::full("this server is about to stop"));
    }
    let permit = Permit::take(&events.open, server.options.sockets_max)
        .ok_or_else(|| Problem::full("there are too many event sockets: try again later"))?;
    let after = query
        .text("after")
        .filter(|after| *after != "now")
        .map(|_| query.word::<u64>("after"));
    let after = after.transpose()?.flatten();
    // The policy judges this one, and no page that follows. It is about the newest number alone.
    let first = ReadEvents {
        after: 0,
        limit: Some(1),
        types: Vec::new(),
    };
    let Found { newest, .. } = server.ask(&caller, &first).await?;
    if after.is_some_and(|after| after > newest) {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "`after` is above the newest event's number",
        ));
    }
    let incomplete = |_| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "the WebSocket handshake is not complete",
        )
    };
    let opened = websocket::open(request, payload, &[], INCOMING_FRAME_BYTES_MAX);
    let (mut response, session, messages) = opened.map_err(incomplete)?;
    response.headers_mut().insert(
        HeaderName::from_static(EVENT_SEQUENCE),
        HeaderValue::from(newest),
    );
    let numbered = query.text("after").is_some();
    let view = events.view(&caller.principal);
    let cursor = Cursor {
        at: after.unwrap_or(newest),
        numbered,
        types,
        view,
        newest: events.newest.subscribe(),
    };
    let socket = Socket {
        server: server.clone(),
        caller,
        session,
    };
    let standing = Standing::of(request, &server.options.access);
    let stopping = events.stopping.clone();
    let served = socket.serve(cursor, standing, messages, (busy, permit), stopping);
    actix_web::rt::spawn(events.sockets.track_future(served));
    Ok(response)
}

/// How long a socket that was closed may take to hear why: a slow one has to read what was sent before.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a socket looks whether something has happened that nobody told it of.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// One client's socket.
struct Socket {
    server: Data<Server>,
    caller: Caller,
    session: Session,
}

/// Where a socket is, and what it wants.
struct Cursor {
    /// The number of the last event that was sent, or seen to be none of the socket's.
    at: u64,
    /// Whether events come with their numbers.
    numbered: bool,
    types: Types,
    view: Arc<View>,
    newest: watch::Receiver<u64>,
}

/// Why a socket is closed; `None` where its client has gone.
type Closing = Option<CloseReason>;

fn closing(code: CloseCode, why: impl Into<String>) -> Closing {
    Some(CloseReason {
        code,
        description: Some(why.into()),
    })
}

impl Socket {
    /// Serves it until either side closes it, or the credential of its handshake counts no more.
    async fn serve(
        self,
        cursor: Cursor,
        mut standing: Standing,
        mut messages: Messages,
        held: (Busy, Permit),
        stopping: CancellationToken,
    ) {
        let mut alive = Alive::new(self.server.options.ping_every);
        let mut heard = 0;
        let why = {
            let mut writing = pin!(self.write(cursor));
            loop {
                tokio::select! {
                    why = &mut writing => break why,
                    () = standing.lost() => break closing(CloseCode::Policy, COUNTS_NO_MORE),
                    () = stopping.cancelled() => break closing(CloseCode::Away, "the server stops"),
                    message = messages.recv() => {
                        alive.seen();
                        match message {
                            Some(Ok(AggregatedMessage::Text(_) | AggregatedMessage::Binary(_))) => {
                                heard += 1;
                                if heard > INCOMING_MESSAGES_MAX {
                                    break closing(CloseCode::Policy, "nothing that is sent here is read");
                                }
                            }
                            Some(Ok(AggregatedMessage::Ping(payload))) => {
                                // Who is in the way with pings gets no answer to them.
                                let mut session = self.session.clone();
                                let _ = timeout(Duration::ZERO, session.pong(&payload)).await;
                            }
                            Some(Ok(AggregatedMessage::Pong(_))) => {}
                            Some(Ok(AggregatedMessage::Close(_))) | None => break None,
                            Some(Err(ProtocolError::Overflow)) => {
                                break closing(CloseCode::Size, "the frame is too large");
                            }
                            Some(Err(_)) => break closing(CloseCode::Protocol, "the frame can't be read"),
                        }
                    }
                    () = alive.tick() => {
                        if alive.is_over() {
                            break None;
                        }
                        let mut session = self.session.clone();
                        let _ = timeout(Duration::ZERO, session.ping(b"")).await;
                    }
                }
            }
        };
        // Its place is free at once, and its connection is watched like any that is idle.
        drop(held);
        let Self { session, .. } = self;
        let _ = timeout(
            if why.is_some() {
                CLOSE_TIMEOUT
            } else {
                Duration::ZERO
            },
            session.close(why),
        )
        .await;
    }

    /// Sends what happens, in order, until something prevents it.
    async fn write(&self, mut cursor: Cursor) -> Closing {
        let frame_timeout = self.server.options.frame_timeout;
        let mut session = self.session.clone();
        let mut look = true;
        loop {
            let newest = *cursor.newest.borrow_and_update();
            while look || cursor.at < newest {
                let page = match cursor
                    .view
                    .after(cursor.at, async |after| self.read(after).await)
                    .await
                {
                    Ok(page) => page,
                    Err(failure) => return of_failure(&failure, cursor.at),
                };
                // Else it was announced, and isn't there yet.
                let moved = page.to > cursor.at;
                for record in &page.records {
                    for frame in record.wanted(&cursor.types, cursor.numbered) {
                        match timeout(frame_timeout, session.text(frame)).await {
                            Ok(Ok(())) => {}
                            Ok(Err(_)) => return None,
                            Err(_) => {
                                let why = format!("too slow: go on with after={}", cursor.at);
                                return closing(CloseCode::Again, why);
                            }
                        }
                    }
                    cursor.at = record.sequence;
                }
                if !moved {
                    break;
                }
                cursor.at = page.to;
            }
            look = false;
            tokio::select! {
                changed = cursor.newest.changed() => if changed.is_err() { return None },
                () = sleep(LOOK_EVERY) => look = true,
            }
        }
    }

    async fn read(&self, after: u64) -> Result<Found, Failure> {
        let asked = ReadEvents {
            after,
            limit: Some(EVENTS_PAGE),
            types: Vec::new(),
        };
        self.server.ask_again(&self.caller, &asked).await
    }
}

fn of_failure(failure: &Failure, at: u64) -> Closing {
    match failure.kind {
        FailureKind::Denied | FailureKind::Blocked => {
            closing(CloseCode::Policy, "you may not see this any more")
        }
        _ => closing(
            CloseCode::Again,
            format!("the mailroom did not answer: go on with after={at}"),
        ),
    }
}

/// The last records that somebody may see. Whoever comes to their end reads on, for all.
struct View {
    kept: tokio::sync::Mutex<Kept>,
    records_max: usize,
}

/// What is kept: everything visible whose number is above `from`, up to `to`.
#[derive(Default)]
struct Kept {
    from: u64,
    to: u64,
    records: VecDeque<Arc<Record>>,
}

/// Some records in order.
struct Page {
    records: Vec<Arc<Record>>,
    /// Up to here there is nothing else.
    to: u64,
}

impl View {
    /// What comes after `cursor`; `read` asks the mailroom for what comes after a number.
    ///
    /// # Errors
    /// The mailroom's.
    async fn after(
        &self,
        cursor: u64,
        read: impl AsyncFnOnce(u64) -> Result<Found, Failure>,
    ) -> Result<Page, Failure> {
        let mut kept = self.kept.lock().await;
        if let Some(page) = kept.after(cursor) {
            return Ok(page);
        }
        if cursor < kept.from {
            // Whoever is far behind reads alone, and lets the others go on.
            drop(kept);
            let found = read(cursor).await?;
            return Ok(Page {
                records: Record::of(&found.events).collect(),
                to: found.last.max(cursor),
            });
        }
        if cursor > kept.to {
            *kept = Kept {
                from: cursor,
                to: cursor,
                records: VecDeque::new(),
            };
        }
        let found = read(cursor).await?;
        kept.add(&found, self.records_max);
        Ok(kept.after(cursor).unwrap_or(Page {
            records: Vec::new(),
            to: cursor,
        }))
    }
}

impl Kept {
    fn after(&self, cursor: u64) -> Option<Page> {
        if !(self.from..self.to).contains(&cursor) {
            return None;
        }
        let first = self
            .records
            .partition_point(|record| record.sequence <= cursor);
        let rest = self.records.iter().skip(first);
        let records: Vec<_> = rest.take(EVENTS_PAGE as usize).cloned().collect();
        let is_all = first + records.len() == self.records.len();
        let to = records
            .last()
            .filter(|_| !is_all)
            .map_or(self.to, |record| record.sequence);
        Some(Page { records, to })
    }

    fn add(&mut self, found: &Found, records_max: usize) {
        self.records.extend(Record::of(&found.events));
        self.to = found.last.max(self.to);
        while self.records.len() > records_max
            && let Some(gone) = self.records.pop_front()
        {
            self.from = gone.sequence;
        }
    }
}

/// What one thing gave rise to: all that has the same number.
struct Record {
    sequence: u64,
    /// Each event's kind, and the event as it is sent.
    frames: Vec<(&'static str, String)>,
}

impl Record {
    /// The events of a page, in order, by their number.
    fn of(events: &[Numbered]) -> impl Iterator<Item = Arc<Self>> {
        events
            .chunk_by(|one, next| one.sequence == next.sequence)
            .map(|of_one| {
                let frame = |Numbered { event, .. }: &Numbered| {
                    Some((event.kind(), serde_json::to_string(event).ok()?))
                };
                let frames = of_one.iter().filter_map(frame).collect();
                Arc::new(Self {
                    sequence: of_one.first().map_or(0, |numbered| numbered.sequence),
                    frames,
                })
            })
    }

    /// The frames that a socket wants.
    fn wanted(&self, types: &Types, numbered: bool) -> impl Iterator<Item = String> {
        let wanted = self.frames.iter().filter(|(kind, _)| types.has(kind));
        wanted.map(move |(_, event)| match numbered {
            true => format!(r#"{{"sequence":{},"event":{event}}}"#, self.sequence),
            false => event.clone(),
        })
    }
}

/// Which types a socket wants. That some are missing is told to everybody.
#[derive(Debug, Clone)]
struct Types(Option<Vec<&'static str>>);

impl Types {
    /// Those of a list with commas; all where there is none.
    fn read(list: Option<&str>) -> Result<Self, Problem> {
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
            Problem::unfit(
                "the parameter `types` doesn't fit: names of events with commas between, see /api/openapi.json",
            )
        })
    }

    fn has(&self, kind: &str) -> bool {
        kind == "missed" || self.0.as_ref().is_none_or(|named| named.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::mail::{MailEvent, MemberWay, Numbered};

    use super::*;

    /// The events of numbers above `after`, up to `newest`, of which only the even ones may be seen, each twice.
    fn found(after: u64, newest: u64) -> Found {
        let last = newest.min(after + u64::from(EVENTS_PAGE));
        let event = || MailEvent::AgentLeft {
            agent_id: "a".into(),
            reason: "ended".into(),
        };
        let seen = (after + 1..=last).filter(|n| n % 2 == 0);
        let events = seen
            .flat_map(|sequence| {
                [0, 1].map(|_| Numbered {
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

    async fn all(view: &View, mut cursor: u64, newest: u64, reads: &mut usize) -> Vec<u64> {
        let mut seen = Vec::new();
        while cursor < newest {
            let read = async |after| {
                *reads += 1;
                Ok(found(after, newest))
            };
            let page = view.after(cursor, read).await.unwrap();
            assert!(page.to > cursor && page.records.iter().all(|record| record.frames.len() == 2));
            seen.extend(page.records.iter().map(|record| record.sequence));
            cursor = page.to;
        }
        seen
    }

    /// Goal: whoever sees the same reads once for all, and each gets everything in order, once. Method: readers from
    /// several places over more records than are kept.
    #[tokio::test]
    async fn what_was_read_is_shared() {
        let (view, newest) = (
            View {
                kept: tokio::sync::Mutex::default(),
                records_max: RECORDS_KEPT,
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
        assert_eq!(first, 3_000_usize.div_ceil(EVENTS_PAGE as usize));
        // Kept are the last 1,024 even numbers.
        let kept_from = newest - 2 * RECORDS_KEPT as u64;
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
        // A later page is read by whoever comes first; a later place begins anew.
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

    /// Goal: every type can be asked for by its name, and no other. Method: rows.
    #[test]
    fn types() {
        let joined = MailEvent::AgentJoined {
            agent_id: "a".into(),
            way: MemberWay::Mcp,
        };
        assert!(MailEvent::KINDS.contains(&joined.kind()));
        assert!(Types::read(None).unwrap().has("agent_left"));
        let some = Types::read(Some("agent_left, message_read")).unwrap();
        assert!(
            some.has("agent_left")
                && some.has("message_read")
                && some.has("missed")
                && !some.has("agent_joined")
        );
        for bad in ["", "agent", "agent_left,", "AGENT_LEFT"] {
            assert!(Types::read(Some(bad)).is_err(), "{bad}");
        }
    }
}
