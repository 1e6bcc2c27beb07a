//! What was read last, for those who see the same.

use std::collections::VecDeque;
use std::sync::Arc;

use callboard_message::Failure;
use callboard_message::mail::Events as Found;
use tokio::sync::Mutex;

use super::frames::Record;
use crate::limits::EVENTS_PAGE;

/// The last records that somebody may see. Whoever comes to their end reads on, for all.
pub(super) struct View {
    kept: Mutex<Kept>,
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
pub(super) struct Page {
    pub(super) records: Vec<Arc<Record>>,
    /// Up to here there is nothing else.
    pub(super) to: u64,
}

impl View {
    /// Keeps nothing yet, and then at most so many.
    pub(super) fn keeping(records_max: usize) -> Self {
        Self { kept: Mutex::default(), records_max }
    }

    /// What comes after `cursor`; `read` asks the mailroom for what comes after a number.
    ///
    /// # Errors
    /// The mailroom's.
    pub(super) async fn after(
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
            let records = Record::of(&found.events).map(Arc::new).collect();
            return Ok(Page { records, to: found.last.max(cursor) });
        }
        if cursor > kept.to {
            *kept = Kept { from: cursor, to: cursor, records: VecDeque::new() };
        }
        let found = read(cursor).await?;
        kept.add(&found, self.records_max);
        Ok(kept.after(cursor).unwrap_or(Page { records: Vec::new(), to: cursor }))
    }
}

impl Kept {
    fn after(&self, cursor: u64) -> Option<Page> {
        if !(self.from..self.to).contains(&cursor) {
            return None;
        }
        let first = self.records.partition_point(|record| record.sequence <= cursor);
        let rest = self.records.iter().skip(first);
        let records: Vec<_> = rest.take(EVENTS_PAGE as usize).cloned().collect();
        let is_all = first + records.len() == self.records.len();
        let to = records.last().filter(|_| !is_all).map_or(self.to, |record| record.sequence);
        Some(Page { records, to })
    }

    fn add(&mut self, found: &Found, records_max: usize) {
        self.records.extend(Record::of(&found.events).map(Arc::new));
        self.to = found.last.max(self.to);
        while self.records.len() > records_max
            && let Some(gone) = self.records.pop_front()
        {
            self.from = gone.sequence;
        }
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::mail::{MailEvent, Numbered};

    use super::*;
    use crate::limits::RECORDS_KEPT;

    /// The events of numbers above `after`, up to `newest`, of which only the even ones may be seen, each twice.
    fn found(after: u64, newest: u64) -> Found {
        let last = newest.min(after + u64::from(EVENTS_PAGE));
        let event = || MailEvent::AgentLeft { agent_id: "a".into(), reason: "ended".into() };
        let seen = (after + 1..=last).filter(|n| n % 2 == 0);
        let events = seen.flat_map(|sequence| [0, 1].map(|_| Numbered { sequence, event: event() })).collect();
        Found { events, last, newest }
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
        let (view, newest) = (View::keeping(RECORDS_KEPT), 10_000);
        let even = |after: u64, newest: u64| (after + 1..=newest).filter(|n| n % 2 == 0).collect::<Vec<_>>();
        let mut reads = 0;
        assert_eq!(all(&view, 7_000, newest, &mut reads).await, even(7_000, newest));
        let first = reads;
        assert_eq!(first, 3_000_usize.div_ceil(EVENTS_PAGE as usize));
        // Kept are the last 1,024 even numbers.
        let kept_from = newest - 2 * RECORDS_KEPT as u64;
        assert_eq!(all(&view, kept_from, newest, &mut reads).await, even(kept_from, newest));
        assert_eq!(all(&view, newest - 1, newest, &mut reads).await, even(newest - 1, newest));
        assert_eq!(reads, first, "nobody had to read");
        assert_eq!(all(&view, 0, newest, &mut reads).await, even(0, newest));
        assert!(reads > first);
        // A later page is read by whoever comes first; a later place begins anew.
        assert_eq!(all(&view, newest, newest + 4, &mut reads).await, even(newest, newest + 4));
        let before = reads;
        assert_eq!(all(&view, newest, newest + 4, &mut reads).await, even(newest, newest + 4));
        assert_eq!(reads, before);
        assert_eq!(all(&view, 20_000, 20_010, &mut reads).await, even(20_000, 20_010));
    }
}
