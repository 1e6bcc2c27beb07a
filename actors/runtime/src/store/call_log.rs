//! Lines about calls in the audit: who called what, one line a call.
//!
//! Lines are collected for a second, so that many of them are one entry of the audit store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::{CallId, Principal, log};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::audit::{
    AuditEntry, AuditStore, AuditValue, CALLS_EVENT, CALLS_LINES_DETAIL, call_line_name,
};
use crate::journal::JournalError;
use crate::sync::Mutex;

/// Maximum number of lines about calls that wait in memory to be written to the store. Further ones are
/// counted as lost.
pub const CALL_LINES_QUEUED_MAX: usize = 16_384;
/// Maximum size of the lines in one entry of the store, in bytes.
const ENTRY_BYTES_MAX: usize = 12 * 1024;
/// Maximum number of entries in one write.
const WRITE_ENTRIES_MAX: usize = 64;
/// Minimum size of the waiting lines, in bytes, from which they are written before [`COLLECT_TIME`] has passed.
const WRITE_BYTES_MIN: usize = 16 * ENTRY_BYTES_MAX;
/// Time for which lines are collected, and the wait after a failed write.
const COLLECT_TIME: Duration = Duration::from_secs(1);

/// Call that ended.
pub(crate) struct EndedCall<'a> {
    pub principal: &'a Principal,
    pub agent: &'a str,
    pub tool: &'a str,
    pub outcome: &'a str,
    pub time: Duration,
    pub call: CallId,
}

impl EndedCall<'_> {
    /// Returns the line in the format of [`CALLS_LINES_DETAIL`].
    fn to_line(&self) -> String {
        let at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let names = [self.principal.id.as_str(), self.agent, self.tool];
        let [id, agent, tool] = names.map(call_line_name);
        format!(
            "{} {}:{id} {agent} {tool} {} {} {}",
            at.as_millis(),
            self.principal.kind,
            self.outcome.replace(' ', "_"),
            self.time.as_millis(),
            self.call
        )
    }
}

/// Lines that wait to be written.
#[derive(Default)]
pub(super) struct CallQueue {
    is_on: AtomicBool,
    state: Mutex<QueueState>,
    /// Notified when [`QueueState::is_due`] may have become true.
    due: Notify,
    /// Notified when a writer task ends.
    idle: Notify,
}

#[derive(Default)]
struct QueueState {
    lines: VecDeque<String>,
    bytes: usize,
    /// Number of lines dropped since the last entry.
    lost: u64,
    /// True while a writer task is running.
    has_writer: bool,
    /// True while somebody waits until all lines are written.
    is_flushing: bool,
}

impl QueueState {
    /// Returns whether lines must be written before [`COLLECT_TIME`] has passed.
    fn is_due(&self) -> bool {
        self.is_flushing || self.bytes >= WRITE_BYTES_MIN
    }

    /// Takes the lines of one write as entries, at most [`WRITE_ENTRIES_MAX`]. If only lost ones are to be told, the
    /// entry has no lines.
    fn take_entries(&mut self) -> Vec<AuditEntry> {
        let mut entries = Vec::new();
        while entries.len() < WRITE_ENTRIES_MAX && (self.lost > 0 || !self.lines.is_empty()) {
            let mut bytes = 0;
            let fits = |line: &&String| {
                bytes += line.len();
                bytes <= ENTRY_BYTES_MAX
            };
            // A line is never as long as an entry.
            let number = self.lines.iter().take_while(fits).count();
            let lines: Vec<String> = self.lines.drain(..number).collect();
            self.bytes -= lines.iter().map(String::len).sum::<usize>();
            let entry = AuditEntry::new(CALLS_EVENT).with_detail(CALLS_LINES_DETAIL, lines);
            entries.push(match std::mem::take(&mut self.lost) {
                0 => entry,
                lost => entry.with_detail("lost", lost),
            });
        }
        entries
    }
}

impl CallQueue {
    pub(super) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Queues the line about a call that ended, to be written to `audit` on `runtime`. Never waits: if the queue is
    /// full, the line is lost, and a later entry tells how many are.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        call: &EndedCall<'_>,
        audit: &Arc<dyn AuditStore>,
        runtime: Option<Handle>,
    ) {
        let line = call.to_line();
        let (has_writer, is_due) = {
            let mut state = self.state.lock();
            if state.lines.len() >= CALL_LINES_QUEUED_MAX {
                state.lost += 1;
            } else {
                state.bytes += line.len();
                state.lines.push_back(line);
            }
            (state.has_writer, state.is_due())
        };
        if has_writer {
            if is_due {
                self.due.notify_one();
            }
        } else if let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) {
            // Without a runtime, the next call or a flush tries again.
            self.start_writer(audit, &runtime);
        }
    }

    /// Starts a writer task unless one is running.
    fn start_writer(self: &Arc<Self>, audit: &Arc<dyn AuditStore>, runtime: &Handle) {
        if std::mem::replace(&mut self.state.lock().has_writer, true) {
            return;
        }
        // Created before the task, whose future is dropped unpolled if the runtime has ended.
        let writer = CallWriter {
            queue: self.clone(),
            audit: audit.clone(),
            is_done: false,
        };
        runtime.spawn(async move { writer.run().await });
    }

    /// Returns whether no line waits or is being written, and none is lost that no entry tells of.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        !state.has_writer && state.lines.is_empty() && state.lost == 0
    }

    /// Waits until all queued lines are stored or lost, without a time limit while the store is unavailable. That
    /// lines are lost is told once: a store may refuse that too.
    pub(super) async fn flush(self: &Arc<Self>, audit: &Arc<dyn AuditStore>) {
        // The task of the caller runs on it, so it hasn't ended.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut has_told = false;
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            {
                let mut state = self.state.lock();
                let is_told = has_told || state.lost == 0;
                if !state.has_writer && state.lines.is_empty() && is_told {
                    return;
                }
                state.is_flushing = true;
            }
            has_told = true;
            self.start_writer(audit, &runtime);
            self.due.notify_one();
            idle.await;
        }
    }

    /// Waits until lines are due, at most [`COLLECT_TIME`].
    async fn collect(&self) {
        let due = async {
            while !self.state.lock().is_due() {
                self.due.notified().await;
            }
        };
        // Afterwards the lines are written in any case.
        let _ = tokio::time::timeout(COLLECT_TIME, due).await;
    }
}

/// Task that writes queued lines until there are none.
struct CallWriter {
    queue: Arc<CallQueue>,
    audit: Arc<dyn AuditStore>,
    /// True if the queue was empty at the end. Another writer may be running by then.
    is_done: bool,
}

impl CallWriter {
    async fn run(mut self) {
        let queue = self.queue.clone();
        let mut has_failed = false;
        loop {
            match has_failed {
                // Also if lines are due: the store can't accept them now.
                true => tokio::time::sleep(COLLECT_TIME).await,
                false => queue.collect().await,
            }
            let entries = queue.state.lock().take_entries();
            let has_lines = entries.iter().any(|entry| !entry.call_lines().is_empty());
            has_failed = !entries.is_empty() && !self.append(entries).await;
            let mut state = queue.state.lock();
            // If the store doesn't accept that lines are lost, the entry of the next line tells it.
            let is_told = state.lost == 0 || (has_failed && !has_lines);
            if state.lines.is_empty() && is_told {
                state.has_writer = false;
                state.is_flushing = false;
                self.is_done = true;
                return;
            }
        }
    }

    /// Writes entries. Returns whether they are stored; if not, their lines wait again or are lost.
    async fn append(&self, entries: Vec<AuditEntry>) -> bool {
        let lines = entries.iter().map(|entry| entry.call_lines().len() as u64);
        let number: u64 = lines.sum();
        let stored = self.audit.append_calls(entries.clone()).await;
        let Err(error) = stored else { return true };
        log::error!(target: "callboard::audit", %error, lines = number, "failed to store the audit's lines about calls");
        let may_retry = error.is_transient() && !matches!(error, JournalError::Unknown(_));
        let mut state = self.queue.state.lock();
        // What they told of lost lines isn't stored either.
        let told = entries.iter().map(|entry| match entry.details.get("lost") {
            Some(AuditValue::Number(lost)) => lost.unsigned_abs(),
            _ => 0,
        });
        state.lost += told.sum::<u64>();
        if !may_retry {
            state.lost += number;
            return false;
        }
        for line in entries
            .iter()
            .rev()
            .flat_map(|entry| entry.call_lines().iter().rev())
        {
            state.bytes += line.len();
            state.lines.push_front(line.clone());
        }
        false
    }
}

impl Drop for CallWriter {
    fn drop(&mut self) {
        if !self.is_done {
            self.queue.state.lock().has_writer = false;
        }
        self.queue.idle.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use callboard_message::DataClass;

    use super::*;
    use crate::audit::{BodyDigest, MemoryAuditStore};
    use crate::journal::JournalResult;
    use crate::testkit::run_with_paused_time;

    /// Store that fails with these errors first, the last one first.
    struct Failing {
        errors: Mutex<Vec<JournalError>>,
        kept: MemoryAuditStore,
    }

    impl Failing {
        fn new(errors: Vec<JournalError>) -> Arc<Self> {
            Arc::new(Self {
                errors: Mutex::new(errors),
                kept: MemoryAuditStore::default(),
            })
        }

        fn lines(&self) -> Vec<String> {
            let entries = self.kept.entries();
            let lines = entries.iter().flat_map(|entry| entry.call_lines().to_vec());
            lines.collect()
        }

        /// Returns the number of lines that the entries tell as lost.
        fn lost(&self) -> i64 {
            let entries = self.kept.entries();
            let lost = entries.iter().map(|entry| match entry.details.get("lost") {
                Some(AuditValue::Number(lost)) => *lost,
                _ => 0,
            });
            lost.sum()
        }
    }

    #[async_trait]
    impl AuditStore for Failing {
        async fn append(&self, entries: Vec<AuditEntry>) -> JournalResult<u64> {
            if let Some(error) = self.errors.lock().pop() {
                return Err(error);
            }
            self.kept.append(entries).await
        }

        fn digest(&self, class: DataClass, body: &[u8]) -> BodyDigest {
            self.kept.digest(class, body)
        }
    }

    /// Queue in front of a store.
    struct TestLog {
        queue: Arc<CallQueue>,
        audit: Arc<dyn AuditStore>,
    }

    impl TestLog {
        fn new(audit: Arc<dyn AuditStore>) -> Self {
            let queue = Arc::default();
            Self { queue, audit }
        }

        async fn flush(&self) {
            self.queue.flush(&self.audit).await;
        }
    }

    fn enqueue(log: &TestLog, id: &str, tool: &str) {
        let call = EndedCall {
            principal: &Principal::agent(id),
            agent: "files",
            tool,
            outcome: "invalid input",
            time: Duration::from_micros(2_900),
            call: CallId::generate(),
        };
        log.queue.enqueue(&call, &log.audit, None);
    }

    /// Goal: a line has seven parts whatever the names are, and no more than names of a bounded length. Method:
    /// names with spaces, line breaks and quotes, none, and long ones.
    #[test]
    fn parts_of_a_line() {
        run_with_paused_time(async |_| {
            let store = Failing::new(Vec::new());
            let log = TestLog::new(store.clone());
            let long = "é".repeat(128);
            for (id, tool, expected) in [
                ("a", "read", "agent:a files read invalid_input 2".to_owned()),
                (
                    "a b\n",
                    "\"\\\u{2028}\u{85}x",
                    "agent:a%20b%0A files %22%5C%E2%80%A8%C2%85x invalid_input 2".to_owned(),
                ),
                ("", "", "agent:- files - invalid_input 2".to_owned()),
                (
                    "a",
                    &long,
                    format!("agent:a files {}~e42dd264 invalid_input 2", "é".repeat(59)),
                ),
            ] {
                enqueue(&log, id, tool);
                log.flush().await;
                let line = store.lines().pop().unwrap();
                let parts: Vec<_> = line.split(' ').collect();
                assert_eq!(parts.len(), 7, "{line}");
                assert_eq!(parts[1..6].join(" "), expected);
            }
        });
    }

    /// Goal: lines are written together within a second, in order, and not lost while the store is unavailable, which
    /// gets a second after each error. Method: lines of more than one entry beside errors.
    #[test]
    fn lines_are_written_together() {
        run_with_paused_time(async |_| {
            let away = || JournalError::Unavailable("away".to_owned());
            let store = Failing::new(vec![away(), away()]);
            let log = TestLog::new(store.clone());
            let tools: Vec<_> = (0..1_000).map(|n| format!("t{n}")).collect();
            tools.iter().for_each(|tool| enqueue(&log, "a", tool));
            let began = tokio::time::Instant::now();
            log.flush().await;
            assert!(began.elapsed() >= 2 * COLLECT_TIME);
            let found = store.lines();
            let found = found.iter().map(|line| line.split(' ').nth(3).unwrap());
            assert!(found.eq(tools.iter().map(String::as_str)));
            let entries = store.kept.entries();
            let bytes = |entry: &AuditEntry| entry.call_lines().iter().map(String::len).sum();
            assert!(entries.len() < 12, "{}", entries.len());
            assert!(
                entries
                    .iter()
                    .map(bytes)
                    .all(|bytes: usize| bytes <= ENTRY_BYTES_MAX)
            );
            enqueue(&log, "a", "later");
            assert_eq!(store.lines().len(), 1_000);
            tokio::time::sleep(2 * COLLECT_TIME).await;
            assert_eq!(store.lines().len(), 1_001);
        });
    }

    /// Goal: many lines are written at once, and few ones wait for others. Method: lines below and above the size, while
    /// no time passes.
    #[test]
    fn many_lines_are_written_at_once() {
        run_with_paused_time(async |_| {
            let store = Failing::new(Vec::new());
            let log = TestLog::new(store.clone());
            let settle = async || {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            };
            enqueue(&log, "a", "t");
            settle().await;
            assert_eq!(store.lines().len(), 0);
            while log.queue.state.lock().bytes < WRITE_BYTES_MIN {
                enqueue(&log, "a", "t");
            }
            settle().await;
            assert!(store.lines().len() > 1);
        });
    }

    /// Goal: what waits is bounded, and lost lines are told. Method: the most lines and one more, and a store that
    /// refuses lines for good.
    #[test]
    fn lost_lines_are_told() {
        run_with_paused_time(async |_| {
            let refused = || JournalError::Invalid("no");
            let store = Failing::new(vec![refused()]);
            let log = TestLog::new(store.clone());
            (0..=CALL_LINES_QUEUED_MAX).for_each(|_| enqueue(&log, "a", "t"));
            log.flush().await;
            assert!(store.lost() > 1);
            let all = CALL_LINES_QUEUED_MAX + 1;
            assert_eq!(store.lost() as usize + store.lines().len(), all);

            // Without further lines, and while the store refuses that too.
            for (errors, told) in [(1, [1, 1]), (2, [0, 1])] {
                let store = Failing::new((0..errors).map(|_| refused()).collect());
                let log = TestLog::new(store.clone());
                enqueue(&log, "a", "t");
                log.flush().await;
                assert_eq!((store.lost(), store.lines().len()), (told[0], 0));
                enqueue(&log, "a", "t");
                log.flush().await;
                assert_eq!((store.lost(), store.lines().len()), (told[1], 1));
            }
        });
    }

    /// Goal: a line of a thread without a runtime is written by a flush. Method: such a thread.
    #[test]
    fn lines_of_other_threads_are_flushed() {
        run_with_paused_time(async |_| {
            let store = Failing::new(Vec::new());
            let log = TestLog::new(store.clone());
            std::thread::scope(|threads| {
                threads.spawn(|| enqueue(&log, "a", "t"));
            });
            assert!(!log.queue.is_idle());
            log.flush().await;
            assert_eq!(store.lines().len(), 1);
            assert!(log.queue.is_idle());
        });
    }
}
