//! Legacy sessions over HTTP: their ids, their streams, their end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use callboard_message::Principal;
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::replay_buffer::{Kind, ReplayBuffer};
use crate::inbound::legacy::Session;
use crate::inbound::options::{SessionOptions, StreamLimits};
use crate::inbound::tasks::TaskService;

/// The sessions of one server.
pub(crate) struct Sessions {
    pub options: SessionOptions,
    limits: StreamLimits,
    table: Mutex<HashMap<String, Arc<HttpSession>>>,
}

/// A session and its streams.
pub(crate) struct HttpSession {
    pub session: Arc<Session>,
    /// What no request caused.
    pub unsolicited: Arc<ReplayBuffer>,
    limits: StreamLimits,
    replay_streams_max: usize,
    last_stream: AtomicU64,
    /// Streams of requests, running ones and the last that finished.
    streams: Mutex<BTreeMap<u64, Arc<ReplayBuffer>>>,
    pub open_streams: Arc<AtomicUsize>,
    /// Requests and streams at this moment.
    active: AtomicUsize,
    idle_since: Mutex<Instant>,
}

impl Sessions {
    pub fn new(options: SessionOptions, limits: StreamLimits) -> Self {
        Self {
            options,
            limits,
            table: Mutex::default(),
        }
    }

    /// A session that isn't known by any id yet.
    pub fn prepare(&self, tasks: &Arc<TaskService>, principal: Principal) -> Arc<HttpSession> {
        let unsolicited = ReplayBuffer::new(0, Kind::Unsolicited, true, self.limits);
        Arc::new(HttpSession {
            session: Session::open(tasks.clone(), Arc::new(principal), unsolicited.clone()),
            unsolicited,
            limits: self.limits,
            replay_streams_max: self.options.replay_streams_max,
            last_stream: AtomicU64::new(0),
            streams: Mutex::default(),
            open_streams: Arc::default(),
            active: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
        })
    }

    /// Whether there is room for one more of `principal`'s; sessions that nobody has used for long make some.
    pub fn has_room(&self, principal: &Principal) -> bool {
        self.make_room(&mut self.table.lock(), principal)
    }

    /// Gives a session its id: 244 random bits. `None` where there are too many.
    pub fn admit(&self, session: Arc<HttpSession>) -> Option<String> {
        let id = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut table = self.table.lock();
        if !self.make_room(&mut table, &session.session.principal) {
            return None;
        }
        table.insert(id.clone(), session);
        Some(id)
    }

    /// The session of that id, if it is `principal`'s.
    pub fn get(&self, id: &str, principal: &Principal) -> Option<Arc<HttpSession>> {
        let found = self.table.lock().get(id).cloned()?;
        if *found.session.principal != *principal {
            return None;
        }
        if found.is_idle_for(self.options.idle_max) {
            self.end(id);
            return None;
        }
        Some(found)
    }

    /// Ends a session.
    pub fn end(&self, id: &str) {
        let ended = self.table.lock().remove(id);
        if let Some(ended) = ended {
            ended.close();
        }
    }

    fn make_room(
        &self,
        table: &mut HashMap<String, Arc<HttpSession>>,
        principal: &Principal,
    ) -> bool {
        if self.fits(table, principal) {
            return true;
        }
        table.retain(|_, session| {
            let idle = session.is_idle_for(self.options.idle_max);
            if idle {
                session.close();
            }
            !idle
        });
        self.fits(table, principal)
    }

    fn fits(&self, table: &HashMap<String, Arc<HttpSession>>, principal: &Principal) -> bool {
        let of_principal_max = self.options.of_principal_max;
        let is_theirs = |session: &&Arc<HttpSession>| *session.session.principal == *principal;
        // Under its share in any case, where all sessions together are.
        table.len() < self.options.sessions_max
            && (table.len() < of_principal_max
                || table.values().filter(is_theirs).count() < of_principal_max)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for session in self.table.lock().values() {
            session.close();
        }
    }
}

impl HttpSession {
    /// A stream for one request; it can't be found before it is [kept](Self::keep).
    pub fn new_stream(&self, readable: bool) -> Arc<ReplayBuffer> {
        let number = self.last_stream.fetch_add(1, Ordering::Relaxed) + 1;
        ReplayBuffer::new(number, Kind::Resumable, readable, self.limits)
    }

    /// Keeps a stream for readers that come back. The oldest finished ones make room.
    pub fn keep(&self, log: &Arc<ReplayBuffer>) {
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

    /// The stream of that number.
    pub fn stream(&self, number: u64) -> Option<Arc<ReplayBuffer>> {
        match number {
            0 => Some(self.unsolicited.clone()),
            _ => self.streams.lock().get(&number).cloned(),
        }
    }

    /// Keeps it from being idle.
    pub fn busy(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(self.clone())
    }

    fn is_idle_for(&self, idle_max: std::time::Duration) -> bool {
        let idle_since = *self.idle_since.lock();
        self.active.load(Ordering::Relaxed) == 0 && idle_since.elapsed() > idle_max
    }

    fn close(&self) {
        self.session.close();
        self.unsolicited.finish(None);
    }
}

/// A request or a stream of a session.
pub(crate) struct Active(pub Arc<HttpSession>);

impl Drop for Active {
    fn drop(&mut self) {
        *self.0.idle_since.lock() = Instant::now();
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}
