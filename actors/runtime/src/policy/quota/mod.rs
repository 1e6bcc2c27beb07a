//! Quotas: limits of calls, tokens and money in a minute, day or month, which outlive the process.
//!
//! Counters are in memory, and are written to the key-value store within a second, as changes: several nodes on
//! one store add up. What a node has counted in its last second is lost if it crashes.

mod counter;
mod rule;
mod store;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, SystemTime};

use callboard_message::capabilities::UnsubscribeResource;
use callboard_message::{Failure, Message, Principal, log};
use futures::future::{join_all, try_join_all};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

pub use counter::QUOTA_COUNTERS_MAX;
pub use rule::{QUOTA_ID_BYTES_MAX, QUOTA_USD_MAX, QUOTAS_MAX, Quota, QuotaError, QuotaShare};
pub use store::{QuotaUsage, quota_usage};
pub use window::QuotaWindow;

use super::access::AccessItem;
use super::{PolicyChain, PolicyRequest, unix_s};
use crate::journal::JournalError;
use crate::kv_store::{KvError, KvStore};
use crate::sync::Mutex;
use counter::{Counter, CounterKey, Counters, UsageChange};
use rule::CompiledQuota;
use store::EXPIRED_REMOVALS_MAX;

/// Time between two writes of changed counters to the store.
const COUNTER_WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of counters that are written at once.
const COUNTER_WRITES_MAX: usize = 16;
/// Maximum number of attempts to write a counter that other nodes write too. After it the next write tries again.
const COUNTER_WRITE_ATTEMPTS_MAX: usize = 5;
/// Maximum number of times that the counters of a call are read, because they are dropped meanwhile.
const COUNTER_READ_ATTEMPTS_MAX: usize = 3;
/// Maximum time to read a counter. After it, a counter that is known goes on without the store.
const COUNTER_READ_TIME_MAX: Duration = Duration::from_secs(2);

/// Source of the current time.
type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Quotas of a system with their counters. Without quotas, counting costs one atomic load.
pub struct Quotas(Arc<QuotaState>);

struct QuotaState {
    has_quotas: AtomicBool,
    quotas: Mutex<Arc<Vec<Arc<CompiledQuota>>>>,
    counters: Mutex<Counters>,
    /// Lock of the writes to the store, so that no change is written twice.
    writing: tokio::sync::Mutex<()>,
    clock: Clock,
}

impl Default for Quotas {
    fn default() -> Self {
        Self::with_clock(Arc::new(SystemTime::now))
    }
}

impl Quotas {
    fn with_clock(clock: Clock) -> Self {
        Self(Arc::new(QuotaState {
            has_quotas: AtomicBool::new(false),
            quotas: Mutex::default(),
            counters: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            clock,
        }))
    }

    /// Replaces the quotas, which [`Quota::validate_all`] has checked. Counters belong to the id of a quota: they
    /// stay, unless its window is another one.
    pub fn set(&self, quotas: Vec<Quota>) {
        let has_quotas = !quotas.is_empty();
        let quotas = quotas.into_iter().map(CompiledQuota::from).map(Arc::new);
        let quotas: Vec<_> = quotas.collect();
        let counted = quotas.iter().map(|quota| (quota.id.clone(), quota.window));
        let counted: HashSet<_> = counted.collect();
        *self.0.quotas.lock() = Arc::new(quotas);
        self.0.counters.lock().retain(&counted);
        self.0.has_quotas.store(has_quotas, Release);
    }

    /// Returns whether there are quotas.
    pub(crate) fn has_quotas(&self) -> bool {
        self.0.has_quotas.load(Acquire)
    }

    /// Counts a message at the quotas of its principal, unless one of them is used up. Lists, descriptions and the
    /// ends of subscriptions aren't counted.
    ///
    /// # Errors
    /// `Overloaded` with quota and reset time if one is used up; `Unavailable` if it isn't known how much is used.
    pub(crate) async fn count_call(
        &self,
        store: &Arc<dyn KvStore>,
        request: PolicyRequest<'_>,
    ) -> Result<(), Failure> {
        if !self.has_quotas() {
            return Ok(());
        }
        let quotas = self.0.quotas_of_call(request);
        self.0.take(store, request.principal, quotas).await?;
        Ok(())
    }

    /// Counts a request to a language model on behalf of a principal, unless one of its quotas is used up. What
    /// the request uses is recorded in the returned value. Requests that have begun are answered to their end, so
    /// those that run at once may exceed a quota of tokens or money.
    ///
    /// # Errors
    /// `Overloaded` with quota and reset time if one is used up; `Unavailable` if it isn't known how much is used.
    pub async fn reserve(
        &self,
        store: &Arc<dyn KvStore>,
        principal: &Principal,
        model: &str,
    ) -> Result<ModelUse, Failure> {
        let charges = match self.has_quotas() {
            true => {
                let quotas = self.0.quotas_of_model(principal, model);
                self.0.take(store, principal, quotas).await?
            }
            false => Vec::new(),
        };
        Ok(ModelUse {
            state: self.0.clone(),
            store: store.clone(),
            charges: Mutex::new(charges),
        })
    }

    /// Writes all changes to the store. Call it before the store is closed. The writing goes on if this future is
    /// dropped: the answers of the store tell what has been counted there.
    pub async fn flush(&self, store: &Arc<dyn KvStore>) {
        let (state, store) = (self.0.clone(), store.clone());
        let writing = tokio::spawn(async move { state.write_changes(&*store).await });
        if let Err(error) = writing.await {
            log::error!(%error, "the usage of quotas can't be written");
        }
    }
}

/// Attempt to count a call.
enum CountAttempt {
    Counted(Vec<Charge>),
    Refused(Failure),
    /// The store's entries of these counters must be read first.
    Unread(Vec<CounterKey>),
}

impl QuotaState {
    fn now_s(&self) -> u64 {
        unix_s((self.clock)())
    }

    fn quotas_of_call(&self, request: PolicyRequest<'_>) -> Vec<Arc<CompiledQuota>> {
        let PolicyRequest {
            principal,
            agent,
            message,
            ..
        } = request;
        if AccessItem::is_of_agent(message) || message == UnsubscribeResource::NAME {
            return Vec::new();
        }
        let quotas = self.quotas.lock().clone();
        let applying = quotas
            .iter()
            .filter(|quota| quota.counts_calls(principal, agent));
        let mut applying: Vec<_> = applying.cloned().collect();
        if !applying.is_empty() {
            let item = AccessItem::of_message(message, request.payload);
            applying.retain(|quota| quota.covers(agent, item.as_ref()));
        }
        applying
    }

    fn quotas_of_model(&self, principal: &Principal, model: &str) -> Vec<Arc<CompiledQuota>> {
        let quotas = self.quotas.lock().clone();
        let applying = quotas
            .iter()
            .filter(|quota| quota.counts_model(principal, model));
        applying.cloned().collect()
    }

    /// Counts a call at each of these quotas, or at none if one of them is used up.
    async fn take(
        self: &Arc<Self>,
        store: &Arc<dyn KvStore>,
        principal: &Principal,
        quotas: Vec<Arc<CompiledQuota>>,
    ) -> Result<Vec<Charge>, Failure> {
        if quotas.is_empty() {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        let mut attempt = self.try_take(principal, &quotas, Some(begun));
        for reads_left in (0..COUNTER_READ_ATTEMPTS_MAX).rev() {
            let CountAttempt::Unread(unread) = &attempt else {
                break;
            };
            try_join_all(unread.iter().map(|key| self.read(&**store, key))).await?;
            // In the end, counters that are known count, however old they are.
            let begun = (reads_left > 0).then_some(begun);
            attempt = self.try_take(principal, &quotas, begun);
        }
        match attempt {
            CountAttempt::Counted(charges) => {
                self.start_writer(store);
                Ok(charges)
            }
            CountAttempt::Refused(failure) => Err(failure),
            CountAttempt::Unread(_) => Err(unknown_usage()),
        }
    }

    /// Counts a call, unless counters must be read for it ([`Counter::needs_read`]).
    fn try_take(
        &self,
        principal: &Principal,
        quotas: &[Arc<CompiledQuota>],
        begun: Option<Instant>,
    ) -> CountAttempt {
        let now_s = self.now_s();
        let mut counters = self.counters.lock();
        let own = quotas.iter().map(|quota| quota.counter_key(principal));
        let keys: Vec<_> = own.map(|own| counters.place(own, now_s)).collect();
        let mut unread = Vec::new();
        // Of several that are used up, the last to reset.
        let mut exhausted: Option<(u64, &Arc<CompiledQuota>, String)> = None;
        for (quota, key) in quotas.iter().zip(&keys) {
            let counter = counters.current(key, now_s);
            if counter.needs_read(begun) {
                unread.push(key.clone());
                continue;
            }
            let end_s = counter.span.end_s;
            let is_last = exhausted.as_ref().is_none_or(|(other, ..)| *other < end_s);
            if is_last && let Some(limit) = quota.exhausted_limit(counter.used()) {
                exhausted = Some((end_s, quota, limit));
            }
        }
        if !unread.is_empty() {
            return CountAttempt::Unread(unread);
        }
        if let Some((end_s, quota, limit)) = exhausted {
            drop(counters);
            return CountAttempt::Refused(quota.refusal(&limit, end_s, now_s));
        }
        let charges = keys.into_iter().map(|key| {
            let counter = counters.current(&key, now_s);
            counter.add(UsageChange::of_calls(1));
            Charge::new(key, counter)
        });
        CountAttempt::Counted(charges.collect())
    }

    /// Reads the store's entry of a counter. A counter that is known goes on without the store.
    ///
    /// # Errors
    /// `Unavailable` if the store fails, and the counter isn't known.
    async fn read(&self, store: &dyn KvStore, key: &CounterKey) -> Result<(), Failure> {
        let read = timeout(COUNTER_READ_TIME_MAX, store::read(store, key)).await;
        let late = || JournalError::Unavailable("it doesn't answer in time".to_owned());
        let mut counters = self.counters.lock();
        match read.unwrap_or_else(|_| Err(late())) {
            Ok(read) => {
                counters.refresh(key, read, self.now_s());
                Ok(())
            }
            Err(error) => {
                log::error!(by: &key.quota, quota = &*key.quota, %error, "the usage of a quota can't be read");
                match counters.keep_unread(key) {
                    true => Ok(()),
                    false => Err(unknown_usage()),
                }
            }
        }
    }

    /// Starts a task that writes changes to the store, unless one is running.
    fn start_writer(self: &Arc<Self>, store: &Arc<dyn KvStore>) {
        // Without a runtime, the next change tries again.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if std::mem::replace(&mut self.counters.lock().has_writer, true) {
            return;
        }
        // Created before the task, whose future is dropped unpolled if the runtime has ended.
        let writer = CounterWriter {
            state: self.clone(),
            is_done: false,
        };
        let store = store.clone();
        runtime.spawn(writer.run(store));
    }

    /// Writes the changes of all counters to the store.
    async fn write_changes(&self, store: &dyn KvStore) {
        let _writing = self.writing.lock().await;
        let mut changed = self.counters.lock().dirty();
        // In the order of the entries, so that two nodes lock them in the same order and can't deadlock.
        changed.sort_by_cached_key(|key| (key.quota.clone(), key.owner.store_key()));
        let mut full: BTreeSet<&Arc<str>> = BTreeSet::new();
        for keys in changed.chunks(COUNTER_WRITES_MAX) {
            let writes = keys.iter().map(|key| self.write(store, key));
            let has_room = join_all(writes).await;
            let unstored = keys.iter().zip(has_room).filter(|(_, has_room)| !has_room);
            full.extend(unstored.map(|(key, _)| &key.quota));
        }
        for quota in full {
            let keys = changed.iter().filter(|key| key.quota == *quota);
            let keys: Vec<_> = keys.collect();
            self.make_room(store, quota, &keys).await;
        }
    }

    /// Removes entries of a quota whose window is over, and writes these counters again.
    async fn make_room(&self, store: &dyn KvStore, quota: &Arc<str>, keys: &[&CounterKey]) {
        let swept = store::sweep(store, quota, self.now_s()).await;
        let removed = swept.unwrap_or_default();
        let mut has_room = removed > 0;
        if has_room {
            self.counters.lock().note_room(quota);
        }
        for key in keys {
            has_room = has_room && self.write(store, key).await;
        }
        if removed == EXPIRED_REMOVALS_MAX {
            // There may be more to remove: the next write goes on.
            self.counters.lock().note_room(quota);
        } else if !has_room {
            log::warn!(by: quota, quota = &**quota, "the store has no room for more counters of a quota: they are lost if the node stops");
        }
    }

    /// Writes the changes of a counter to the store. Returns false if the store has no room for it. After another
    /// failure, the next write tries again.
    async fn write(&self, store: &dyn KvStore, key: &CounterKey) -> bool {
        for _ in 0..COUNTER_WRITE_ATTEMPTS_MAX {
            let draft = self.counters.lock().draft(key, self.now_s());
            let Some(draft) = draft else {
                return true;
            };
            let error = match store::write(store, key, &draft).await {
                Ok(version) => {
                    self.counters.lock().settle(key, &draft, version);
                    return true;
                }
                // Another node has written it: this node's changes are added to it.
                Err(KvError::VersionConflict { .. }) => match store::read(store, key).await {
                    Ok(read) => {
                        self.counters.lock().replace(key, read, self.now_s());
                        continue;
                    }
                    Err(error) => error,
                },
                Err(KvError::Journal(JournalError::Full { .. })) => {
                    self.counters.lock().note_full(&key.quota);
                    return false;
                }
                Err(KvError::Journal(error)) => {
                    if matches!(error, JournalError::Unknown(_)) {
                        self.counters.lock().note_unconfirmed(key, &draft);
                    }
                    error
                }
            };
            log::error!(by: &key.quota, quota = &*key.quota, %error, "the usage of a quota can't be written");
            return true;
        }
        true
    }
}

/// Task that writes changes to the store until there are none, or the runtime ends.
struct CounterWriter {
    state: Arc<QuotaState>,
    /// Whether it ended because there were no changes. Another writer may be running by then.
    is_done: bool,
}

impl CounterWriter {
    async fn run(mut self, store: Arc<dyn KvStore>) {
        loop {
            tokio::time::sleep(COUNTER_WRITE_INTERVAL).await;
            self.state.write_changes(&*store).await;
            let mut counters = self.state.counters.lock();
            // Decided under the lock, so that no change is missed.
            if !counters.has_dirty() {
                counters.has_writer = false;
                break;
            }
        }
        self.is_done = true;
    }
}

impl Drop for CounterWriter {
    fn drop(&mut self) {
        if !self.is_done {
            self.state.counters.lock().has_writer = false;
        }
    }
}

/// Use of a language model by one request, which counts at quotas. It counts as far as it was recorded, also if
/// the request is cancelled.
pub struct ModelUse {
    state: Arc<QuotaState>,
    store: Arc<dyn KvStore>,
    charges: Mutex<Vec<Charge>>,
}

/// Part of a counter that one request has counted.
struct Charge {
    key: CounterKey,
    /// Beginning of the window in which the call counted, in seconds since the Unix epoch.
    called_s: u64,
    /// Beginning of the window in which its use counted last, in seconds since the Unix epoch.
    start_s: u64,
    /// Tokens, and millionths of a US dollar, that count in this window.
    counted: [u64; 2],
    /// The same in earlier windows, of a request that began there.
    counted_before: [u64; 2],
}

impl Charge {
    fn new(key: CounterKey, counter: &Counter) -> Self {
        Self {
            key,
            called_s: counter.span.start_s,
            start_s: counter.span.start_s,
            counted: [0; 2],
            counted_before: [0; 2],
        }
    }

    /// Returns the change of a counter by which it counts `used` of the request, in place of what it did.
    fn change_to(&mut self, used: [u64; 2], counter: &Counter) -> UsageChange {
        let Self {
            counted,
            counted_before,
            ..
        } = self;
        if self.start_s != counter.span.start_s {
            self.start_s = counter.span.start_s;
            for (before, counted) in counted_before.iter_mut().zip(counted.iter_mut()) {
                *before = before.saturating_add(std::mem::take(counted));
            }
        }
        let mut change = [0; 2];
        for (at, change) in change.iter_mut().enumerate() {
            let now = used[at].saturating_sub(counted_before[at]);
            *change = difference(now, std::mem::replace(&mut counted[at], now));
        }
        let [tokens, micro_usd] = change;
        UsageChange {
            calls: 0,
            tokens,
            micro_usd,
        }
    }
}

fn difference(now: u64, before: u64) -> i64 {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    match now >= before {
        true => signed(now - before),
        false => -signed(before - now),
    }
}

impl ModelUse {
    /// Records what the request has used so far: tokens, and money in millionths of a US dollar. It takes the place
    /// of what was recorded before.
    pub fn record(&self, tokens: u64, micro_usd: u64) {
        self.change(|charge, counter| charge.change_to([tokens, micro_usd], counter));
    }

    /// Takes back the count of the request, which isn't made.
    pub fn withdraw(&self) {
        self.change(
            |charge, counter| match charge.called_s == counter.span.start_s {
                true => UsageChange::of_calls(-1),
                false => UsageChange::default(),
            },
        );
    }

    fn change(&self, change: impl Fn(&mut Charge, &Counter) -> UsageChange) {
        let mut charges = self.charges.lock();
        if charges.is_empty() {
            return;
        }
        let now_s = self.state.now_s();
        // A reload may have taken a quota away.
        let quotas = self.state.quotas.lock().clone();
        let mut counters = self.state.counters.lock();
        let mut is_changed = false;
        for charge in charges.iter_mut() {
            if !quotas.iter().any(|quota| quota.has_counter(&charge.key)) {
                continue;
            }
            let counter = counters.current(&charge.key, now_s);
            let change = change(charge, counter);
            counter.add(change);
            is_changed |= !change.is_none();
        }
        drop(counters);
        if is_changed {
            self.state.start_writer(&self.store);
        }
    }
}

fn unknown_usage() -> Failure {
    Failure::unavailable("the node can't read how much of your quota is used: try again later")
}

impl PolicyChain {
    /// Returns the quotas.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Counts a message at the quotas of its principal.
    ///
    /// # Errors
    /// Those of [`Quotas::count_call`], after all policies were told of it by
    /// [`Policy::on_rejected`](super::Policy::on_rejected).
    pub(crate) async fn count_call(
        &self,
        store: &Arc<dyn KvStore>,
        request: PolicyRequest<'_>,
    ) -> Result<(), Failure> {
        let counted = self.quotas.count_call(store, request).await;
        if let Err(failure) = &counted {
            self.tell_rejected(None, request, failure).await;
        }
        counted
    }
}
