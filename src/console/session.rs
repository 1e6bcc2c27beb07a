//! Sessions of browsers that signed in at the console.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Principal, encode_hex};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of sessions. Beyond it, the one that was used least recently ends.
pub(super) const SESSIONS_MAX: usize = 1_000;
/// Maximum number of sessions of one principal. Beyond it, its session that was used least recently
/// ends.
pub(super) const SESSIONS_PER_PRINCIPAL_MAX: usize = 50;
/// Time after which a session ends.
pub(super) const SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Time without requests after which a session ends. Those that a page makes by itself don't count.
pub(super) const SESSION_IDLE_TIME: Duration = Duration::from_secs(60 * 60);
/// Size of the random ids of sessions and of their tokens against forged requests, in bytes.
const TOKEN_BYTES: usize = 32;

/// Session of a browser. Its credential is verified again with each request.
pub(super) struct Session {
    /// Id, which the browser's cookie has.
    pub(super) id: String,
    /// Token that each request of the session that changes something repeats.
    pub(super) csrf: String,
    /// Credential of the session, in the format of the header `Authorization`.
    pub(super) authorization: Vec<u8>,
    /// Principal of the credential.
    pub(super) principal: Arc<Principal>,
    /// Cancelled when the session is ended. One whose time is over may not be ended yet: see [`Session::is_over`].
    pub(super) ended: CancellationToken,
    began: Instant,
    used: Mutex<Instant>,
}

impl Session {
    /// Returns whether the session's time is over.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= SESSION_TIME
            || now.duration_since(*self.used.lock()) >= SESSION_IDLE_TIME
    }

    /// Returns whether a text is the session's token. Takes as long for a wrong one as for the right
    /// one.
    pub(super) fn is_csrf(&self, text: &str) -> bool {
        let (own, other) = (self.csrf.as_bytes(), text.as_bytes());
        let differing = own
            .iter()
            .zip(other)
            .fold(0, |differing, (own, other)| differing | (own ^ other));
        own.len() == other.len() && differing == 0
    }
}

/// Open sessions by id.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Arc<Session>>>);

impl Sessions {
    /// Begins a session with a credential that has just been verified.
    pub(super) fn begin(&self, authorization: Vec<u8>, principal: Arc<Principal>) -> Arc<Session> {
        let now = Instant::now();
        let session = Arc::new(Session {
            id: random_token(),
            csrf: random_token(),
            authorization,
            principal,
            ended: CancellationToken::new(),
            began: now,
            used: Mutex::new(now),
        });
        let mut open = self.0.lock();
        open.retain(|_, session| {
            let is_over = session.is_over(now);
            if is_over {
                session.ended.cancel();
            }
            !is_over
        });
        let is_own = |other: &Session| {
            other.principal.kind == session.principal.kind
                && other.principal.id == session.principal.id
        };
        if open.values().filter(|other| is_own(other)).count() >= SESSIONS_PER_PRINCIPAL_MAX {
            end_oldest(&mut open, is_own);
        }
        if open.len() >= SESSIONS_MAX {
            end_oldest(&mut open, |_| true);
        }
        open.insert(session.id.clone(), session.clone());
        session
    }

    /// Returns a session; `None` if there is none, or it is over. With `is_use` it counts as used now.
    pub(super) fn find(&self, id: &str, is_use: bool) -> Option<Arc<Session>> {
        let now = Instant::now();
        let mut open = self.0.lock();
        let session = open.get(id)?.clone();
        if session.is_over(now) {
            end_session(&mut open, id);
            return None;
        }
        if is_use {
            *session.used.lock() = now;
        }
        Some(session)
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &str) {
        end_session(&mut self.0.lock(), id);
    }
}

fn end_session(open: &mut HashMap<String, Arc<Session>>, id: &str) {
    if let Some(session) = open.remove(id) {
        session.ended.cancel();
    }
}

/// Ends the session that was used least recently, of those that `is_meant` holds for.
fn end_oldest(open: &mut HashMap<String, Arc<Session>>, is_meant: impl Fn(&Session) -> bool) {
    let meant = open.values().filter(|session| is_meant(session));
    let oldest = meant.min_by_key(|session| *session.used.lock());
    if let Some(id) = oldest.map(|session| session.id.clone()) {
        end_session(open, &id);
    }
}

/// Returns a random token of 256 bits, in hexadecimal.
pub(super) fn random_token() -> String {
    encode_hex(&rand::random::<[u8; TOKEN_BYTES]>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(sessions: &Sessions, name: &str) -> Arc<Session> {
        sessions.begin(b"Bearer x".to_vec(), Arc::new(Principal::agent(name)))
    }

    /// Goal: a session ends after its time, and without requests of its reader. Method: paused time, on both sides of each;
    /// requests that are no use.
    #[tokio::test(start_paused = true)]
    async fn sessions_end() {
        let sessions = Sessions::default();
        let id = begin(&sessions, "a").id.clone();
        let almost = SESSION_IDLE_TIME - Duration::from_secs(1);
        for _ in 0..12 {
            tokio::time::advance(almost).await;
            assert!(sessions.find(&id, true).is_some());
        }
        tokio::time::advance(almost).await;
        assert!(sessions.find(&id, true).is_none());
        let session = begin(&sessions, "a");
        tokio::time::advance(almost).await;
        assert!(sessions.find(&session.id, false).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!session.ended.is_cancelled());
        assert!(sessions.find(&session.id, true).is_none());
        assert!(session.ended.is_cancelled());
    }

    /// Goal: there are no more sessions than the limits, and those used last stay. Method: one more than each.
    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded() {
        let sessions = Sessions::default();
        let mut ids = Vec::new();
        for _ in 0..=SESSIONS_PER_PRINCIPAL_MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            ids.push(begin(&sessions, "a").id.clone());
        }
        assert!(sessions.find(&ids[0], true).is_none());
        assert!(sessions.find(&ids[1], true).is_some());
        for n in 0..SESSIONS_MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            begin(&sessions, &format!("p{n}"));
        }
        assert_eq!(sessions.0.lock().len(), SESSIONS_MAX);
        assert!(sessions.find(&ids[2], true).is_none());
    }

    /// Goal: only the whole token is taken, and no two are alike. Method: rows.
    #[tokio::test]
    async fn tokens() {
        let sessions = Sessions::default();
        let (one, other) = (begin(&sessions, "a"), begin(&sessions, "a"));
        assert!(one.is_csrf(&one.csrf) && one.csrf.len() == 2 * TOKEN_BYTES);
        assert!(!one.is_csrf(&other.csrf) && !one.is_csrf("") && !one.is_csrf(&one.csrf[1..]));
        assert!(one.id != other.id && one.id != one.csrf);
        sessions.end(&one.id);
        assert!(sessions.find(&one.id, true).is_none());
        assert!(one.ended.is_cancelled() && !other.ended.is_cancelled());
    }
}
