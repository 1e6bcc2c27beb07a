//! One socket: a cursor, no queue.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use actix_ws::{AggregatedMessage, CloseCode, CloseReason, ProtocolError, Session};
use callboard_message::mail::ReadEvents;
use callboard_message::{Failure, FailureKind};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::websocket::Messages;
use callboard_rpc::serve::{Alive, COUNTS_NO_MORE, Permit, Standing};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::frames::Types;
use super::view::View;
use crate::inbound::admit::Caller;
use crate::inbound::server::Server;
use crate::limits::{EVENTS_PAGE, INCOMING_MESSAGES_MAX};

/// How long a socket that was closed may take to hear why: a slow one has to read what was sent before.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a socket looks whether something has happened that nobody told it of.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// One client's socket.
pub(super) struct Socket {
    pub(super) server: Data<Server>,
    pub(super) caller: Caller,
    pub(super) session: Session,
}

/// Where a socket is, and what it wants.
pub(super) struct Cursor {
    /// The number of the last event that was sent, or seen to be none of the socket's.
    pub(super) at: u64,
    /// Whether events come with their numbers.
    pub(super) numbered: bool,
    pub(super) types: Types,
    pub(super) view: Arc<View>,
    pub(super) newest: watch::Receiver<u64>,
}

/// What a socket holds as long as it is served.
pub(super) struct Held {
    pub(super) _busy: Busy,
    pub(super) _permit: Permit,
}

/// Why a socket is closed; `None` where its client has gone.
type Closing = Option<CloseReason>;

fn closing(code: CloseCode, why: impl Into<String>) -> Closing {
    Some(CloseReason { code, description: Some(why.into()) })
}

impl Socket {
    /// Serves it until either side closes it, or the credential of its handshake counts no more.
    pub(super) async fn serve(
        self,
        cursor: Cursor,
        mut standing: Standing,
        mut messages: Messages,
        held: Held,
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
        let _ = timeout(if why.is_some() { CLOSE_TIMEOUT } else { Duration::ZERO }, session.close(why)).await;
    }

    /// Sends what happens, in order, until something prevents it.
    async fn write(&self, mut cursor: Cursor) -> Closing {
        let frame_timeout = self.server.options.frame_timeout;
        let mut session = self.session.clone();
        let mut look = true;
        loop {
            let newest = *cursor.newest.borrow_and_update();
            while look || cursor.at < newest {
                let page = match cursor.view.after(cursor.at, async |after| self.read(after).await).await {
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

    async fn read(&self, after: u64) -> Result<callboard_message::mail::Events, Failure> {
        let asked = ReadEvents { after, limit: Some(EVENTS_PAGE), types: Vec::new() };
        self.server.ask_again(&self.caller, &asked).await
    }
}

fn of_failure(failure: &Failure, at: u64) -> Closing {
    match failure.kind {
        FailureKind::Denied | FailureKind::Blocked => closing(CloseCode::Policy, "you may not see this any more"),
        _ => closing(CloseCode::Again, format!("the mailroom did not answer: go on with after={at}")),
    }
}
