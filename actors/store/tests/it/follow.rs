//! Reading the audit onward from a position.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use callboard_runtime::{AuditEntry, CALLS_EVENT, CALLS_LINES_DETAIL};
use callboard_store::{AuditCursor, AuditFollowError, AuditPage, PAGE_ROWS_MAX, SqlStore};

use crate::audit::entry;
use crate::kit::stores;

fn calls(lines: &[&str]) -> AuditEntry {
    let lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
    AuditEntry::new(CALLS_EVENT).with_detail(CALLS_LINES_DETAIL, lines)
}

async fn start(store: &SqlStore) -> AuditCursor {
    AuditCursor::since(store, SystemTime::UNIX_EPOCH)
        .await
        .unwrap()
}

/// Returns chain and number of each entry.
fn numbers(page: &AuditPage) -> Vec<(&str, u64)> {
    let entries = page.entries.iter();
    entries
        .map(|entry| (entry.chain.as_str(), entry.number))
        .collect()
}

/// Goal: a position that was written down continues after a restart, also with the chain of a writer that is new; calls are
/// read only on demand. Method: pages before and after restarts, the position as JSON between them.
#[tokio::test]
async fn positions_outlive_restarts() {
    stores(async |opened| {
        let audit = opened.sql.audit();
        audit.append(vec![entry(1), entry(2)]).await.unwrap();
        let call = format!("7 api_key:alice files read answered 3 {:032x}", 1);
        let lines = calls(&[call.as_str(), "damaged"]).with_detail("lost", 2_u64);
        audit.append_calls(vec![lines]).await.unwrap();

        let begin = start(&opened.sql).await;
        let page = begin.read_next(&opened.sql, false).await.unwrap();
        assert_eq!(numbers(&page), [("node", 1), ("node", 2), ("node", 3)]);
        assert!(page.entries.iter().all(|entry| entry.calls().is_none()));
        let page = begin.read_next(&opened.sql, true).await.unwrap();
        assert_eq!(
            (page.entries.len(), page.removed, page.has_more),
            (4, 0, false)
        );
        assert_eq!(numbers(&page)[3], ("node.calls", 1));
        let (found, lost) = page.entries[3].calls().unwrap();
        assert_eq!((found.len(), found[0].tool.as_str(), lost), (1, "read", 3));
        assert_eq!(
            found[0].at(),
            SystemTime::UNIX_EPOCH + Duration::from_millis(7)
        );
        assert_eq!(page.cursor, AuditCursor::at_end(&opened.sql).await.unwrap());

        let written = serde_json::to_value(&page.cursor).unwrap();
        for (chain, number) in [("node", 3), ("node.calls", 1)] {
            assert_eq!(written[chain]["number"], number, "{written}");
            assert_eq!(written[chain]["hash"].as_str().unwrap().len(), 64);
        }
        let cursor: AuditCursor = serde_json::from_value(written).unwrap();
        let none = cursor.read_next(&opened.sql, true).await.unwrap();
        assert_eq!((none.entries.len(), &none.cursor), (0, &cursor));

        let other = opened.options().writer("other");
        opened.restart_with(other).await;
        let page = cursor.read_next(&opened.sql, true).await.unwrap();
        // The end of the first run, and the start of the second.
        assert_eq!(numbers(&page), [("node", 4), ("other", 1)]);
    })
    .await;
}

/// Goal: entries of a time are found. Method: two entries of known times, and a time after all.
#[tokio::test]
async fn positions_by_time() {
    stores(async |opened| {
        let now = SystemTime::now();
        let hours = |hours| now + Duration::from_secs(hours * 3_600);
        let at = |hour| AuditEntry {
            at: hours(hour),
            ..entry(hour)
        };
        let audit = opened.sql.audit();
        audit.append(vec![at(1), at(2)]).await.unwrap();
        for (since, first) in [(hours(1), Some(2)), (hours(2), Some(3)), (hours(3), None)] {
            let cursor = AuditCursor::since(&opened.sql, since).await.unwrap();
            let page = cursor.read_next(&opened.sql, true).await.unwrap();
            assert_eq!(page.entries.first().map(|entry| entry.number), first);
        }
    })
    .await;
}

/// Goal: a page is bounded, a busy chain doesn't delay another, and no entry is read twice or left out. Method: more entries
/// than a page has, beside one of calls; pages until the end.
#[tokio::test]
async fn pages_are_bounded() {
    stores(async |opened| {
        let audit = opened.sql.audit();
        let wanted = PAGE_ROWS_MAX as u64 + 1;
        for first in (0..wanted).step_by(100) {
            let entries = (first..wanted.min(first + 100)).map(entry).collect();
            audit.append(entries).await.unwrap();
        }
        audit.append_calls(vec![calls(&[])]).await.unwrap();
        let (mut cursor, mut found) = (start(&opened.sql).await, BTreeSet::new());
        let mut pages = 0;
        loop {
            let page = cursor.read_next(&opened.sql, true).await.unwrap();
            assert!(page.entries.len() <= PAGE_ROWS_MAX && page.removed == 0);
            for (chain, number) in numbers(&page) {
                assert!(found.insert((chain.to_owned(), number)), "{chain} {number}");
            }
            pages += 1;
            assert!(pages > 1 || found.contains(&("node.calls".to_owned(), 1)));
            cursor = page.cursor;
            if !page.has_more {
                break;
            }
        }
        // Half of the first page is for the other chain; the start of the run is an entry too.
        assert_eq!((pages, found.len() as u64), (2, wanted + 2));
    })
    .await;
}

/// Goal: entries that were removed before they were read are counted once. Method: remove the first ones, then all.
#[tokio::test]
async fn removed_entries_are_counted() {
    stores(async |opened| {
        let begin = start(&opened.sql).await;
        let audit = opened.sql.audit();
        audit.append((0..5).map(entry).collect()).await.unwrap();
        opened
            .raw("DELETE FROM audit WHERE chain = 'node' AND number <= 4")
            .await;
        let page = begin.read_next(&opened.sql, true).await.unwrap();
        assert_eq!(
            (page.removed, numbers(&page)),
            (4, vec![("node", 5), ("node", 6)])
        );
        // Nobody has asked for entries that were removed before.
        let late = start(&opened.sql).await;
        let late = late.read_next(&opened.sql, true).await.unwrap();
        assert_eq!((late.removed, numbers(&late)), (0, numbers(&page)));

        opened.raw("DELETE FROM audit WHERE chain = 'node'").await;
        let all = begin.read_next(&opened.sql, true).await.unwrap();
        assert_eq!(
            (all.removed, all.entries.len(), all.has_more),
            (6, 0, false)
        );
        let none = all.cursor.read_next(&opened.sql, true).await.unwrap();
        assert_eq!((none.removed, none.cursor), (0, all.cursor));
    })
    .await;
}

/// Goal: the position of another store is rejected, since it would skip entries. Method: a number past the end, and a chain
/// that there isn't.
#[tokio::test]
async fn positions_of_another_store() {
    stores(async |opened| {
        for (text, chain, last) in [(r#"{"node":2}"#, "node", 1), (r#"{"else":1}"#, "else", 0)] {
            let cursor: AuditCursor = serde_json::from_str(text).unwrap();
            let error = cursor.read_next(&opened.sql, true).await.unwrap_err();
            let AuditFollowError::Ahead {
                chain: found,
                position,
                last: end,
            } = error
            else {
                panic!("{error}")
            };
            assert_eq!((found.as_str(), position, end), (chain, last + 1, last));
        }
        // This one has grown past the position.
        let audit = opened.sql.audit();
        audit.append(vec![entry(1), entry(2)]).await.unwrap();
        let text = r#"{"node":{"number":2,"hash":"00"}}"#;
        let cursor: AuditCursor = serde_json::from_str(text).unwrap();
        let error = cursor.read_next(&opened.sql, true).await.unwrap_err();
        let AuditFollowError::Changed { chain, position } = error else {
            panic!("{error}")
        };
        assert_eq!((chain.as_str(), position), ("node", 2));
        // A number alone isn't checked, nor is an entry that was removed.
        let number: AuditCursor = serde_json::from_str(r#"{"node":2}"#).unwrap();
        let page = number.read_next(&opened.sql, true).await.unwrap();
        assert_eq!(numbers(&page), [("node", 3)]);
        opened
            .raw("DELETE FROM audit WHERE chain = 'node' AND number <= 2")
            .await;
        let page = cursor.read_next(&opened.sql, true).await.unwrap();
        assert_eq!(numbers(&page), [("node", 3)]);
    })
    .await;
}

/// Goal: a reader that begins with calls after a long time isn't given all of them. Method: a page without calls, and the
/// next one with them.
#[tokio::test]
async fn calls_that_nobody_wants_are_passed() {
    stores(async |opened| {
        let audit = opened.sql.audit();
        let begin = start(&opened.sql).await;
        audit.append_calls(vec![calls(&[])]).await.unwrap();
        let page = begin.read_next(&opened.sql, false).await.unwrap();
        assert_eq!((page.removed, numbers(&page)), (0, vec![("node", 1)]));
        audit.append_calls(vec![calls(&[])]).await.unwrap();
        let page = page.cursor.read_next(&opened.sql, true).await.unwrap();
        assert_eq!(numbers(&page), [("node.calls", 2)]);
    })
    .await;
}

/// Goal: an entry about calls that has no readable details is shown as it is. Method: the text of one that was cut, of one
/// without lines, and of whole ones.
#[tokio::test]
async fn cut_entries_about_calls() {
    stores(async |opened| {
        let audit = opened.sql.audit();
        // The text of an entry has at most 16 KiB.
        let long = calls(&["x".repeat(17 * 1024).as_str()]);
        let entries = vec![calls(&[]), AuditEntry::new(CALLS_EVENT), long];
        audit.append_calls(entries).await.unwrap();
        let page = start(&opened.sql).await;
        let page = page.read_next(&opened.sql, true).await.unwrap();
        let about_calls = page
            .entries
            .iter()
            .filter(|entry| entry.chain == "node.calls");
        let whole: Vec<_> = about_calls.map(|entry| entry.calls().is_some()).collect();
        assert_eq!(whole, [true, false, false]);
    })
    .await;
}
