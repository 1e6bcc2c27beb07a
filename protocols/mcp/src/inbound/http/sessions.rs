//! Legacy sessions over HTTP, with their ids and streams.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use callboard_message::Principal;
use callboard_rpc::BufferAccount;
use callboard_rpc::serve::guard::{HttpRejection, http_rejection};
use callboard_runtime::{PrincipalShares, ShareError, SharePermit};
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::SESSION_ID;
use super::replay_buffer::{ReplayBuffer, StreamKind};
use crate::inbound::legacy::LegacySession;
use crate::inbound::options::{SessionOptions, StreamLimits};
use crate::inbound::tasks::TaskService;

/// Minimum time between two searches for idle sessions at the limit, so that a flood of refused ones
/// costs nothing. Fixed.
const IDLE_SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Legacy sessions of one HTTP server, by session id.
pub(crate) struct SessionTable {
    pub options: SessionOptions,
    limits: StreamLimits,
    shares: Arc<PrincipalShares>,
    table: Mutex<HashMap<String, PlacedSession>>,
    /// Time of the last search for idle sessions.
    searched_at: Mutex<Option<Instant>>,
}

/// A session of the table, with its place.
struct PlacedSession {
    session: Arc<HttpSession>,
    _place: SharePermit,
}

/// A legacy session over HTTP, with its event streams.
pub(crate) struct HttpSession {
    pub session: Arc<LegacySession>,
    /// Stream of messages that no request caused.
    pub unsolicited: Arc<ReplayBuffer>,
    limits: StreamLimits,
    /// Account that the events of its streams count for; `None` without a budget.
    account: Option<BufferAccount>,
    replay_streams_max: usize,
    last_stream: AtomicU64,
    /// Streams of requests by number: running ones, and the latest finished ones.
    streams: Mutex<BTreeMap<u64, Arc<ReplayBuffer>>>,
    pub open_streams: Arc<AtomicUsize>,
    /// Number of running requests and open streams.
    active: AtomicUsize,
    idle_since: Mutex<Instant>,
}

impl SessionTable {
    /// Creates an empty table. `share_percent` is a principal's share of the sessions.
    pub fn new(options: SessionOptions, limits: StreamLimits, share_percent: u8) -> Self {
        Self {
            shares: PrincipalShares::new(options.sessions_max, share_percent),
            options,
            limits,
            table: Mutex::default(),
            searched_at: Mutex::default(),
        }
    }

    /// Creates a session that isn't in the table yet. [`Self::insert`] gives it an id. The events
    /// of its streams count for `account`.
    pub fn create_session(
        &self,
        tasks: &Arc<TaskService>,
        principal: Arc<Principal>,
        account: Option<BufferAccount>,
    ) -> Arc<HttpSession> {
        let kind = StreamKind::Unsolicited;
        let unsolicited = ReplayBuffer::new(0, kind, true, self.limits, account.as_ref());
        Arc::new(HttpSession {
            session: LegacySession::open(tasks.clone(), principal, unsolicited.clone()),
            unsolicited,
            limits: self.limits,
            account,
            replay_streams_max: self.options.replay_streams_max,
            last_stream: AtomicU64::new(0),
            streams: Mutex::default(),
            open_streams: Arc::default(),
            active: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
        })
    }

    /// Returns the place for another session of `principal`. At the limit, idle sessions past their
    /// timeout are closed first, unless they were within [`IDLE_SEARCH_INTERVAL`].
    ///
    /// # Errors
    /// The server or the principal has too many sessions.
    pub fn acquire_place(&self, principal: &Principal) -> Result<SharePermit, ShareError> {
        self.shares.try_acquire(principal).or_else(|_| {
            self.close_idle();
            self.shares.try_acquire(principal)
        })
    }

    /// Adds a session to the table and returns its id, which has 244 random bits.
    pub fn insert(&self, session: Arc<HttpSession>, place: SharePermit) -> String {
        let id = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let placed = PlacedSession {
            session,
            _place: place,
        };
        self.table.lock().insert(id.clone(), placed);
        id
    }

    /// Returns the session that the `Mcp-Session-Id` header names; `None` without that header.
    ///
    /// # Errors
    /// 404 if there is no such session, it has expired, or it belongs to another principal.
    pub fn find(
        &self,
        headers: &HeaderMap,
        principal: &Principal,
    ) -> Result<Option<Arc<HttpSession>>, HttpRejection> {
        const NONE: HttpRejection = http_rejection(
            StatusCode::NOT_FOUND,
            "there is no such session: send `initialize` without a session id",
        );
        let Some(id) = headers.get(&SESSION_ID) else {
            return Ok(None);
        };
        let id = std::str::from_utf8(id.as_bytes()).map_err(|_| NONE)?;
        let found = self
            .table
            .lock()
            .get(id)
            .map(|placed| placed.session.clone());
        let found = found.ok_or(NONE)?;
        if *found.session.principal != *principal {
            return Err(NONE);
        }
        if found.is_idle_for(self.options.idle_timeout) {
            self.end(id);
            return Err(NONE);
        }
        Ok(Some(found))
    }

    pub fn end(&self, id: &str) {
        let ended = self.table.lock().remove(id);
        if let Some(ended) = ended {
            ended.session.close();
        }
    }

    /// Closes idle sessions past their timeout, unless they were searched within
    /// [`IDLE_SEARCH_INTERVAL`].
    fn close_idle(&self) {
        // Held meanwhile, so that others look for a place after the search.
        let mut searched_at = self.searched_at.lock();
        if searched_at.is_none_or(|at| at.elapsed() >= IDLE_SEARCH_INTERVAL) {
            *searched_at = Some(Instant::now());
            self.close_all_idle();
        }
    }

    fn close_all_idle(&self) {
        self.table
            .lock()
            .retain(|_, PlacedSession { session, .. }| {
                let idle = session.is_idle_for(self.options.idle_timeout);
                if idle {
                    session.close();
                }
                !idle
            });
    }
}

impl Drop for SessionTable {
    fn drop(&mut self) {
        for placed in self.table.lock().values() {
            placed.session.close();
        }
    }
}

impl HttpSession {
    /// Creates a stream for one request. [`Self::stream`] finds it only after
    /// [`Self::retain_stream`].
    pub fn new_stream(&self, readable: bool) -> Arc<ReplayBuffer> {
        let number = self.last_stream.fetch_add(1, Ordering::Relaxed) + 1;
        let (kind, account) = (StreamKind::Resumable, self.account.as_ref());
        ReplayBuffer::new(number, kind, readable, self.limits, account)
    }

    /// Keeps a request's stream, so that the client may reconnect to it. The oldest finished
    /// streams over the limit are dropped.
    pub fn retain_stream(&self, log: &Arc<ReplayBuffer>) {
        let mut streams = self.streams.lock();
        let finished: Vec<u64> = streams
            .values()
            .filter(|log| log.is_finished())
            .map(|log| log.number)
            .collect();
        for number in finished
            .iter()
            .take(finished.len().saturating_sub(self.replay_streams_max))
        {
            streams.remove(number);
        }
        streams.insert(log.number, log.clone());
    }

    /// Returns the kept stream with this number; 0 is the stream of unsolicited messages.
    pub fn stream(&self, number: u64) -> Option<Arc<ReplayBuffer>> {
        match number {
            0 => Some(self.unsolicited.clone()),
            _ => self.streams.lock().get(&number).cloned(),
        }
    }

    /// Marks the session as in use until the returned guard is dropped.
    pub fn mark_active(self: &Arc<Self>) -> ActiveSession {
        self.active.fetch_add(1, Ordering::Relaxed);
        ActiveSession(self.clone())
    }

    fn is_idle_for(&self, idle_max: Duration) -> bool {
        let idle_since = *self.idle_since.lock();
        self.active.load(Ordering::Relaxed) == 0 && idle_since.elapsed() > idle_max
    }

    fn close(&self) {
        self.session.close();
        self.unsolicited.finish(None);
    }
}

/// Guard of a running request or open stream. The session can't expire before it is dropped.
pub(crate) struct ActiveSession(pub Arc<HttpSession>);

impl Drop for ActiveSession {
    fn drop(&mut self) {
        *self.0.idle_since.lock() = Instant::now();
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: idle sessions are searched again after the interval, and not before. Method: just below it and at it.
    #[tokio::test(start_paused = true)]
    async fn searches_keep_their_interval() {
        let table = SessionTable::new(SessionOptions::default(), StreamLimits::default(), 100);
        let searched_at = || {
            table.close_idle();
            table.searched_at.lock().unwrap()
        };
        let first = searched_at();
        tokio::time::advance(IDLE_SEARCH_INTERVAL - Duration::from_millis(1)).await;
        assert_eq!(searched_at(), first);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(searched_at(), first + IDLE_SEARCH_INTERVAL);
    }
}
