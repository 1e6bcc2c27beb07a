//! What happens to the mail, as it happens: WebSocket `/api/events`.
//!
//! A socket has a cursor and no queue: it reads pages when something has happened, and those who see the same share what
//! was read last. So a slow reader holds nothing but its own place.

mod frames;
mod socket;
mod view;

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::Principal;
use callboard_message::mail::{Events as Found, MAIL_TOPIC, MailHappened, ReadEvents, WATCH_SCOPE};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::{Permit, Standing, accept, websocket};
use callboard_runtime::{Agent, AgentRef, Cx, Handlers, SyncHandler, System};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::frames::Types;
use self::socket::{Cursor, Held, Socket};
use self::view::View;
use super::admit::Caller;
use super::read::Query;
use super::reply::Problem;
use super::server::Server;
use crate::EVENT_SEQUENCE;
use crate::limits::{INCOMING_FRAME_BYTES_MAX, OWN_RECORDS_KEPT, RECORDS_KEPT};

/// How long sockets may take to hear that the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The event sockets of a server.
pub(super) struct Events {
    /// Hears of what happens, for all of them.
    ear: AgentRef,
    /// The newest event's number, as far as the ear knows.
    newest: watch::Sender<u64>,
    open: Arc<AtomicUsize>,
    views: Mutex<HashMap<Sees, Weak<View>>>,
    stopping: CancellationToken,
    sockets: TaskTracker,
}

/// What somebody sees: those who see the same share it.
#[derive(PartialEq, Eq, Hash)]
enum Sees {
    All,
    Own(Arc<Principal>),
}

struct Ear(watch::Sender<u64>);

impl Agent for Ear {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<MailHappened>();
    }
}

impl SyncHandler<MailHappened> for Ear {
    fn handle(&mut self, happened: MailHappened, _cx: &mut Cx) {
        self.0.send_modify(|newest| *newest = happened.last.max(*newest));
    }
}

impl Events {
    /// Listens to what happens in this system.
    pub(super) fn of(system: &System) -> Self {
        let (newest, _) = watch::channel(0);
        let hears = newest.clone();
        let ear = system.spawn_with(move || Ear(hears.clone()));
        if let Some(recipient) = ear.recipient::<MailHappened>() {
            system.events().subscribe(MAIL_TOPIC, recipient);
        }
        let (open, views) = Default::default();
        Self { ear, newest, open, views, stopping: CancellationToken::new(), sockets: TaskTracker::new() }
    }

    /// Closes every socket.
    pub(super) async fn stop(&self) {
        self.stopping.cancel();
        self.sockets.close();
        // Whoever doesn't hear it in time loses its connection with the listener's end.
        let _ = timeout(STOP_TIMEOUT, self.sockets.wait()).await;
    }

    fn view(&self, principal: &Arc<Principal>) -> Arc<View> {
        let (sees, records_max) = match principal.scopes.iter().any(|scope| scope == WATCH_SCOPE) {
            true => (Sees::All, RECORDS_KEPT),
            false => (Sees::Own(principal.clone()), OWN_RECORDS_KEPT),
        };
        let mut views = self.views.lock();
        if let Some(view) = views.get(&sees).and_then(Weak::upgrade) {
            return view;
        }
        views.retain(|_, view| view.strong_count() > 0);
        let view = Arc::new(View::keeping(records_max));
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
        return Err(Problem::new(StatusCode::BAD_REQUEST, "events come over WebSocket: send its handshake"));
    }
    if events.stopping.is_cancelled() {
        return Err(Problem::full("this server is about to stop"));
    }
    let permit = Permit::take(&events.open, server.options.sockets_max)
        .ok_or_else(|| Problem::full("there are too many event sockets: try again later"))?;
    let after = query.text("after").filter(|after| *after != "now").map(|_| query.word::<u64>("after"));
    let after = after.transpose()?.flatten();
    // The policy judges this one, and no page that follows. It is about the newest number alone.
    let first = ReadEvents { after: 0, limit: Some(1), types: Vec::new() };
    let Found { newest, .. } = server.ask(&caller, &first).await?;
    if after.is_some_and(|after| after > newest) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "`after` is above the newest event's number"));
    }
    let incomplete = |_| Problem::new(StatusCode::BAD_REQUEST, "the WebSocket handshake is not complete");
    let opened = websocket::open(request, payload, &[], INCOMING_FRAME_BYTES_MAX);
    let (mut response, session, messages) = opened.map_err(incomplete)?;
    response.headers_mut().insert(HeaderName::from_static(EVENT_SEQUENCE), HeaderValue::from(newest));
    let numbered = query.text("after").is_some();
    let view = events.view(&caller.principal);
    let cursor = Cursor { at: after.unwrap_or(newest), numbered, types, view, newest: events.newest.subscribe() };
    let socket = Socket { server: server.clone(), caller, session };
    let standing = Standing::of(request, &server.options.access);
    let held = Held { _busy: busy, _permit: permit };
    let stopping = events.stopping.clone();
    actix_web::rt::spawn(events.sockets.track_future(socket.serve(cursor, standing, messages, held, stopping)));
    Ok(response)
}
