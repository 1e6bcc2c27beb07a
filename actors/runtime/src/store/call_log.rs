//! Lines about calls in the audit: who called what, one line a call.
//!
//! Lines are collected for a second, so that many of them are one entry of the audit store.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::{CallId, Principal, log};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::audit::{AuditEntry, AuditStore, AuditValue, CALLS_EVENT, CALLS_LINES_DETAIL};
use crate::journal::JournalError;
use crate::sync::Mutex;

/// Maximum number of lines about calls that wait in memory to be written to the store. Further ones are
/// counted as lost.
pub const CALL_LINES_QUEUED_MAX: usize = 16_384;
/// Maximum size of the lines in one entry of the store, in bytes.
const ENTRY_BYTES_MAX: usize = 12 * 1024;
/// Maximum number of entries in one write.
const WRITE_ENTRIES_MAX: usize = 64;
/// Time for which lines are collected.
const COLLECT_TIME: Duration = Duration::from_secs(1);
/// Maximum length of a name in a line, in bytes; the rest is cut.
const NAME_BYTES_MAX: usize = 128;

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
    /// Returns the line: time in Unix milliseconds, kind and id of the principal, agent, tool, outcome,
    /// milliseconds, and id of the call, with spaces in between.
    fn to_line(&self) -> String {
        let at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut line = String::with_capacity(160);
        // Writing to a text can't fail.
        let _ = write!(line, "{} {}:", at.as_millis(), self.principal.kind);
        push_name(&mut line, &self.principal.id);
        for name in [self.agent, self.tool, self.outcome] {
            line.push(' ');
            push_name(&mut line, name);
        }
        let _ = write!(line, " {} {}", self.time.as_millis(), self.call);
        line
    }
}

/// Appends a name without characters that would end it, or that JSON escapes.
fn push_name(line: &mut String, name: &str) {
    if name.is_empty() {
        line.push('-');
    }
    let end = line.len() + NAME_BYTES_MAX;
    for c in name.chars() {
        if line.len() + c.len_utf8() > end {
            return;
        }
        let is_plain = !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\\');
        line.push(if is_plain { c } else { '_' });
    }
}

/// Lines that wait to be written.
#[derive(Default)]
pub(super) struct CallQueue {
    is_on: AtomicBool,
    state: Mutex<QueueState>,
    /// Notified when an entry is full, or the lines must be written now.
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
}

impl QueueState {
    /// Takes the lines of one write as entries, at most [`WRITE_ENTRIES_MAX`].
    fn take_entries(&mut self) -> Vec<AuditEntry> {
        let mut entries = Vec::new();
        while entries.len() < WRITE_ENTRIES_MAX && !self.lines.is_empty() {
            let mut bytes = 0;
            let fits = |line: &&String| {
                bytes += line.len();
                bytes <= ENTRY_BYTES_MAX
            };
            // A line is never as long as an entry.
            let number = self.lines.iter().take_while(fits).count().max(1);
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
        let mut state = self.state.lock();
        if state.lines.len() >= CALL_LINES_QUEUED_MAX {
            state.lost += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        let is_full = state.bytes >= ENTRY_BYTES_MAX;
        let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) else {
            return;
        };
        if !state.has_writer {
            state.has_writer = true;
            drop(state);
            let writer = CallWriter {
                queue: self.clone(),
                audit: audit.clone(),
                is_done: false,
            };
            runtime.spawn(async move { writer.run().await });
        } else if is_full {
            drop(state);
            self.due.notify_one();
        }
    }

    /// Waits until all queued lines are stored or lost.
    pub(super) async fn flush(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            {
                let state = self.state.lock();
                if !state.has_writer {
                    return;
                }
            }
            self.due.notify_one();
            idle.await;
        }
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
        loop {
            tokio::select! {
                () = queue.due.notified() => {}
                () = tokio::time::sleep(COLLECT_TIME) => {}
            }
            let entries = queue.state.lock().take_entries();
            if !entries.is_empty() {
                self.append(entries).await;
            }
            let mut state = queue.state.lock();
            if state.lines.is_empty() {
                state.has_writer = false;
                self.is_done = true;
                return;
            }
        }
    }

    async fn append(&self, entries: Vec<AuditEntry>) {
        let lines = entries.iter().map(|entry| entry.call_lines().len() as u64);
        let number: u64 = lines.sum();
        let stored = self.audit.append_calls(entries.clone()).await;
        let Err(error) = stored else { return };
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
            return;
        }
        for line in entries
            .iter()
            .rev()
            .flat_map(|entry| entry.call_lines().iter().rev())
        {
            state.bytes += line.len();
            state.lines.push_front(line.clone());
        }
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

    /// Store that fails with these errors first.
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
            self.queue.flush().await;
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
            let long = "é".repeat(NAME_BYTES_MAX);
            for (id, tool, expected) in [
                ("a", "read", "agent:a files read invalid_input 2".to_owned()),
                (
                    "a b\n",
                    "\"\\\u{2028}\u{85}x",
                    "agent:a_b_ files ____x invalid_input 2".to_owned(),
                ),
                ("", "", "agent:- files - invalid_input 2".to_owned()),
                (
                    "a",
                    &long,
                    format!(
                        "agent:a files {} invalid_input 2",
                        "é".repeat(NAME_BYTES_MAX / 2)
                    ),
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

    /// Goal: lines are written together within a second, a full entry at once, in order, and not lost while the store
    /// is unavailable. Method: lines of more than one entry beside errors.
    #[test]
    fn lines_are_written_together() {
        run_with_paused_time(async |_| {
            let away = || JournalError::Unavailable("away".to_owned());
            let store = Failing::new(vec![away(), away()]);
            let log = TestLog::new(store.clone());
            let tools: Vec<_> = (0..1_000).map(|n| format!("t{n}")).collect();
            tools.iter().for_each(|tool| enqueue(&log, "a", tool));
            log.flush().await;
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

    /// Goal: what waits is bounded, and lost lines are told. Method: the most lines and one more, and a store that
    /// refuses lines for good.
    #[test]
    fn lost_lines_are_told() {
        run_with_paused_time(async |_| {
            let store = Failing::new(vec![JournalError::Invalid("no")]);
            let log = TestLog::new(store.clone());
            (0..=CALL_LINES_QUEUED_MAX).for_each(|_| enqueue(&log, "a", "t"));
            log.flush().await;
            enqueue(&log, "a", "t");
            log.flush().await;
            let lost =
                store
                    .kept
                    .entries()
                    .into_iter()
                    .map(|entry| match entry.details.get("lost") {
                        Some(AuditValue::Number(lost)) => *lost,
                        _ => 0,
                    });
            let all = CALL_LINES_QUEUED_MAX + 2;
            assert_eq!(lost.sum::<i64>() as usize + store.lines().len(), all);
        });
    }
}
