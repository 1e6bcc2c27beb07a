//! Whether those that were used lately still answer.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::book::keep;
use super::learn::EXCHANGE_WITHIN;
use super::says::now_ms;
use super::{Health, KnownAgents, Learned, Seen, url_of};

/// How often those that were used lately are looked at: half of it, or half more, at random.
pub const CHECK_EVERY: Duration = Duration::from_secs(60);
/// Who wasn't used for that long isn't looked at.
pub const USED_WITHIN: Duration = Duration::from_secs(3_600);
/// How often in a row an agent doesn't answer before it counts as down.
pub const DOWN_AFTER_MISSES: u32 = 2;

impl KnownAgents {
    /// Looks, now and then, whether those that were used lately still answer: until `ending` fires, or nobody has the
    /// directory any more.
    pub fn keep_checking(&self, ending: CancellationToken) -> impl Future<Output = ()> + Send + 'static {
        let inner = Arc::downgrade(&self.inner);
        async move {
            loop {
                let pause = CHECK_EVERY.mul_f64(rand::rng().random_range(0.5..1.5));
                tokio::select! {
                    biased;
                    () = ending.cancelled() => return,
                    () = sleep(pause) => {}
                }
                let Some(known) = inner.upgrade().map(|inner| Self { inner }) else { return };
                tokio::select! {
                    biased;
                    () = ending.cancelled() => return,
                    () = known.check_lately_used() => {}
                }
            }
        }
    }

    /// Asks all whether they answer, one after the other.
    pub async fn check_all(&self) {
        let all: Vec<_> = self.list().into_iter().map(|known| known.id).collect();
        self.check(all).await;
    }

    async fn check_lately_used(&self) {
        let is_used = |since: Instant| since.elapsed() < USED_WITHIN;
        let used: Vec<_> = {
            let book = self.book();
            let used = book.all().filter(|entry| entry.used.is_some_and(is_used));
            used.map(|entry| entry.known.id.clone()).collect()
        };
        self.check(used).await;
    }

    async fn check(&self, ids: Vec<String>) {
        for id in ids {
            // Those of the topology say what they can do when a request needs it.
            let Some(known) = self.get(&id).filter(|known| known.learned != Learned::Declared) else { continue };
            let Ok(url) = url_of(&known) else { continue };
            let seen = self.look(&url, self.named_by(&known), EXCHANGE_WITHIN).await;
            match seen {
                // Of hearsay the name was part.
                Ok(seen) if seen.name == known.name || known.learned == Learned::Connected => {
                    self.answered(&id, Some(seen)).await;
                }
                _ => self.missed(&id).await,
            }
        }
    }

    /// Notes that an agent answered, and what its card says where that was looked at.
    pub async fn answered(&self, id: &str, seen: Option<Seen>) {
        let changed = {
            let mut book = self.book();
            let Some(entry) = book.get_mut(id) else { return };
            entry.misses = 0;
            let known = &mut entry.known;
            let before = known.clone();
            known.state = Health::Up;
            if let Some(Seen { name, description, skills }) = seen {
                (known.name, known.description, known.skills) = (name, description, skills);
            }
            let is_other = *known != before;
            known.seen_ms = now_ms();
            (is_other && known.learned != Learned::Declared).then(|| known.clone())
        };
        self.keep_quietly(changed).await;
    }

    /// Notes that an agent didn't answer: it is away, not that it failed at something.
    pub async fn missed(&self, id: &str) {
        let changed = {
            let mut book = self.book();
            let Some(entry) = book.get_mut(id) else { return };
            entry.misses = entry.misses.saturating_add(1);
            let goes_down = entry.misses >= DOWN_AFTER_MISSES && entry.known.state != Health::Down;
            if goes_down {
                entry.known.state = Health::Down;
                callboard_message::log::info!(id, "an agent doesn't answer any more");
            }
            (goes_down && entry.known.learned != Learned::Declared).then(|| entry.known.clone())
        };
        self.keep_quietly(changed).await;
    }

    async fn keep_quietly(&self, changed: Option<super::Known>) {
        if let Some(known) = changed
            && let Err(failure) = keep(&*self.inner.notes, &known).await
        {
            callboard_message::log::warn!(id = known.id, %failure, "what is known of an agent can't be kept");
        }
    }
}
