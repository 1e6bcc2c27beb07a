use std::time::Duration;

use callboard_runtime::{
    DeliveryState, FAN_OUT_BATCH_MAX, JournalError, JournalRecord, MailMessageFilter,
    NewMailMessage, ReceiptUpdate, StoredMailEvent,
};
use callboard_store::{CLEANUP_ROWS_MAX, CleanupReport, Retention, SqlStore};
use serde_json::json;
use tokio::time::timeout;

use crate::kit::{Opened, stores, stores_with};
use crate::mail::letter;

/// Time past every retention of the tests.
const OLD: i64 = 1_000_000_000_000;
const FUTURE: i64 = 9_000_000_000_000;

fn keep(retention: Option<Duration>) -> Retention {
    Retention {
        tasks: retention,
        mail_bodies: retention,
        audit: retention,
        streams: retention,
    }
}

fn record(n: usize) -> JournalRecord {
    JournalRecord {
        stream: "s".to_owned(),
        key: Some(format!("{n}")),
        body: json!(n),
    }
}

/// Goal: old records are removed over several transactions; numbering continues. Method: three
/// transactions' worth, no retention time.
#[tokio::test]
async fn streams() {
    stores_with(
        |options| options.retention(keep(Some(Duration::ZERO))),
        async |opened| {
            let journal = opened.sql.journal();
            let wanted = CLEANUP_ROWS_MAX * 2 + 1;
            for n in 0..wanted {
                if n % 100 == 0 {
                    let until = wanted.min(n + 100);
                    journal
                        .append_all((n..until).map(record).collect())
                        .await
                        .unwrap();
                }
            }
            // The newest may be of this very millisecond.
            let all_gone = async {
                let mut removed = 0;
                while removed < wanted as u64 {
                    removed += opened.sql.clean().await.unwrap().records;
                }
                removed
            };
            assert_eq!(
                timeout(Duration::from_secs(30), all_gone).await.unwrap(),
                wanted as u64
            );
            assert_eq!(journal.read("s", 0, 10).await, Ok(vec![]));
            assert_eq!(journal.append(record(0)).await, Ok(wanted as u64 + 1));
        },
    )
    .await;
}

async fn task(opened: &Opened, number: i64, id: &str, state: &str, parent: Option<&str>, at: i64) {
    let parent = parent.map_or("NULL".to_owned(), |parent| format!("'{parent}'"));
    opened
        .raw(&format!(
            "INSERT INTO task (id, number, scope, owner, request_mark, parent, agent, message, class, on_restart, state, \
             created_ms, updated_ms, expires_ms, body) VALUES ('{id}', {number}, 's', 'o', '', {parent}, 'a', 'm', \
             'internal', 'fail', '{state}', {at}, {at}, {FUTURE}, '{{}}'); \
             INSERT INTO task_event (task, number, at_ms, state, body) VALUES ('{id}', 1, {at}, '{state}', '{{}}')"
        ))
        .await;
}

/// Goal: terminal tasks are removed, except those a running task may still read. Method: one row of
/// each kind.
#[tokio::test]
async fn tasks() {
    stores(async |opened| {
        let now = FUTURE - 1;
        task(opened, 1, "old", "completed", None, OLD).await;
        task(opened, 2, "new", "completed", None, now).await;
        task(opened, 3, "runs", "working", None, OLD).await;
        task(opened, 4, "child of runs", "failed", Some("runs"), OLD).await;
        task(opened, 5, "waits", "submitted", None, OLD).await;
        task(opened, 6, "needed", "completed", None, OLD).await;
        task(opened, 7, "child of old", "rejected", Some("old"), OLD).await;
        opened.raw("INSERT INTO task_need (task, needs) VALUES ('waits', 'needed'), ('old', 'child of old')").await;
        opened.raw("INSERT INTO task_request (number, body) VALUES (1, '{}'), (3, '{}')").await;
        let cleaned = opened.sql.clean().await.unwrap();
        assert_eq!(cleaned.tasks, 2, "{cleaned:?}");
        assert_eq!(opened.number("SELECT count(*) FROM task WHERE id IN ('old', 'child of old')").await, 0);
        assert_eq!(opened.number("SELECT count(*) FROM task_event").await, 5);
        assert_eq!(opened.number("SELECT count(*) FROM task_need").await, 1);
        assert_eq!(opened.number("SELECT count(*) FROM task_request").await, 1);
        assert!(opened.sql.clean().await.unwrap().is_empty());
    })
    .await;
}

/// Goal: a message's body is removed first, after all have read it or it expired; the message and
/// its copies are removed with the audit, in parts. Method: messages of each kind, one of them with
/// more copies than a transaction removes.
#[tokio::test]
async fn letters() {
    stores(async |opened| {
        let mail = opened.sql.store().mail;
        let to = |recipients: &[&str]| letter(recipients, "body");
        mail.post(to(&["read", "reads"])).await.unwrap();
        mail.post(to(&["read", "unread"])).await.unwrap();
        mail.post(to(&["expired"])).await.unwrap();
        mail.post(to(&["new"])).await.unwrap();
        let many: Vec<String> = (0..CLEANUP_ROWS_MAX * 2 + 1).map(|n| format!("agent-{n:05}")).collect();
        mail.post(NewMailMessage { recipients: many.clone(), ..to(&[]) }).await.unwrap();
        for to in (0..many.len() + FAN_OUT_BATCH_MAX).step_by(FAN_OUT_BATCH_MAX) {
            mail.fan_out(5, u32::try_from(to).unwrap(), Vec::new()).await.unwrap();
        }
        let read = [("read", 1), ("reads", 1), ("read", 2), ("new", 4)].map(|(to, letter)| (to.to_owned(), letter));
        mail.update_receipts(read.to_vec(), ReceiptUpdate::Read).await.unwrap();
        opened
            .raw(&format!(
                "UPDATE copy SET read_ms = {OLD} WHERE letter <= 2 AND state = 'read'; \
                 UPDATE letter SET at_ms = {OLD} WHERE number <> 4; UPDATE letter SET at_ms = {FUTURE} WHERE number = 4; \
                 UPDATE copy SET read_ms = {FUTURE} WHERE letter = 4; \
                 UPDATE letter SET expires_ms = {OLD} WHERE number IN (3, 5)"
            ))
            .await;
        let cleaned = opened.sql.clean().await.unwrap();
        let rows = 1 + 2 + 1 + 1 + 1 + many.len() as u64;
        assert_eq!((cleaned.message_bodies, cleaned.messages), (3, rows), "{cleaned:?}");
        assert_eq!(opened.number("SELECT count(*) FROM letter WHERE body = 'body' AND number IN (2, 4)").await, 2);
        assert_eq!(opened.number("SELECT count(*) FROM letter").await, 2);
        assert_eq!(opened.number("SELECT count(*) FROM copy").await, 3);
        let events = mail.events(0, 100).await.unwrap();
        let posted = events.iter().filter(|(_, event)| matches!(event, StoredMailEvent::Posted(_)));
        assert_eq!(posted.map(|(number, _)| *number).collect::<Vec<_>>(), [2, 4], "others went with their letter");
        assert!(opened.sql.clean().await.unwrap().is_empty());
    })
    .await;
}

/// Goal: a message without its body still has its recipients and receipts. Method: no retention for
/// bodies, unlimited for the audit.
#[tokio::test]
async fn a_letter_without_its_body() {
    stores_with(
        |options| {
            options.retention(Retention {
                mail_bodies: Some(Duration::ZERO),
                ..keep(None)
            })
        },
        async |opened| {
            let mail = opened.sql.store().mail;
            let id = mail
                .post(letter(&["bob"], "body"))
                .await
                .unwrap()
                .new
                .id
                .clone();
            mail.update_receipts(vec![("bob".to_owned(), 1)], ReceiptUpdate::Read)
                .await
                .unwrap();
            let gone = async {
                while opened.sql.clean().await.unwrap().message_bodies == 0 {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(30), gone).await.unwrap();
            let letter = mail.message(&id).await.unwrap().unwrap();
            assert_eq!((letter.new.body.as_str(), letter.digest.bytes), ("", 4));
            assert_eq!(
                mail.receipts(1, None, 9).await.unwrap()[0].state,
                DeliveryState::Read
            );
            assert_eq!(
                mail.log_rows(None, 0, 9).await.unwrap()[0]
                    .details
                    .message_content,
                ""
            );
            let filter = MailMessageFilter {
                member: Some("bob".into()),
                ..MailMessageFilter::default()
            };
            assert_eq!(mail.history(filter.clone(), 0, 9).await.unwrap().0.len(), 1);
            let filter = MailMessageFilter {
                text: Some("body".into()),
                ..filter
            };
            assert_eq!(mail.history(filter, 0, 9).await.unwrap().0.len(), 0);
        },
    )
    .await;
}

/// Goal: the audit is cut at an old checkpoint, which stays, and never at its last entry. Method:
/// another writer's chain of 1,000 entries with a checkpoint every 100, the last three of them new;
/// another whose only checkpoint is at its end.
#[tokio::test]
async fn audit() {
    stores(async |opened| {
        let mut sql = String::new();
        for n in 1..=1000 {
            sql += &format!(
                "INSERT INTO audit (chain, number, at_ms, event, class, line, hash) VALUES ('c', {n}, {OLD}, 'e', 'internal', \
                 'l', CAST('h' AS {BYTES}));",
                BYTES = if opened.is_sqlite() { "BLOB" } else { "BYTEA" }
            );
        }
        let bytes = if opened.is_sqlite() { "BLOB" } else { "BYTEA" };
        let checkpoint = |chain: &str, n: i64, at: i64| {
            format!(
                "INSERT INTO audit_checkpoint (chain, number, at_ms, hash, key_id, signature) VALUES ('{chain}', {n}, {at}, \
                 CAST('h' AS {bytes}), 'k', CAST('s' AS {bytes}));"
            )
        };
        for n in 1..=10 {
            sql += &checkpoint("c", n * 100, if n <= 7 { OLD } else { FUTURE });
        }
        sql += &format!(
            "INSERT INTO audit (chain, number, at_ms, event, class, line, hash) VALUES ('d', 1, {OLD}, 'e', 'internal', 'l', \
             CAST('h' AS {bytes}));"
        );
        sql += &checkpoint("d", 1, OLD);
        opened.raw(&format!("BEGIN; {sql} COMMIT")).await;
        let cleaned = opened.sql.clean().await.unwrap();
        assert_eq!(cleaned.audit, 700, "{cleaned:?}");
        assert_eq!(opened.number("SELECT min(number) FROM audit WHERE chain = 'c'").await, 701);
        assert_eq!(opened.number("SELECT min(number) FROM audit_checkpoint WHERE chain = 'c'").await, 700);
        assert_eq!(opened.number("SELECT count(*) FROM audit WHERE chain = 'd'").await, 1);
    })
    .await;
}

/// Goal: without a retention time only expired items are removed. Method: old rows, nothing set.
#[tokio::test]
async fn none() {
    stores_with(
        |options| options.retention(keep(None)),
        async |opened| {
            task(opened, 1, "old", "completed", None, OLD).await;
            opened.sql.journal().append(record(1)).await.unwrap();
            assert_eq!(opened.sql.clean().await, Ok(CleanupReport::default()));
        },
    )
    .await;
}

/// Goal: an open store cleans up periodically, a closed one doesn't. Method: an interval, no
/// retention time, and a wait for the record's removal.
#[tokio::test]
async fn by_itself() {
    stores(async |opened| {
        let options = opened
            .options()
            .retention(keep(Some(Duration::ZERO)))
            .cleanup_interval(Some(Duration::ZERO));
        opened.restart_with(options).await;
        let journal = opened.sql.journal();
        journal.append(record(1)).await.unwrap();
        let gone = async {
            while !journal.read("s", 0, 10).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), gone).await.unwrap();
        let closed: SqlStore = opened.sql.clone();
        closed.close().await;
        assert!(matches!(
            closed.clean().await,
            Err(JournalError::Unavailable(_))
        ));
    })
    .await;
}

/// Goal: a clock that is far ahead at a start removes nothing that is only old by it, and says so
/// in the audit; an operator who raises the limit has it removed. Method: the last trusted time
/// lies thirty days back, so that the clock seems to have jumped.
#[tokio::test]
async fn a_clock_far_ahead_removes_nothing() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    stores_with(
        |options| options.cleanup_interval(None),
        async |opened| {
            opened
                .sql
                .journal()
                .append(JournalRecord {
                    stream: "s".to_owned(),
                    key: None,
                    body: json!(1),
                })
                .await
                .unwrap();
            assert!(opened.sql.clean().await.unwrap().is_empty());
            let now = opened.number("SELECT max(at_ms) FROM record").await;
            let before = now - 40 * DAY_MS;
            opened
                .raw(&format!(
                    "UPDATE meta SET value = '{before}' WHERE name = 'clock.trusted_ms'; \
                     UPDATE record SET at_ms = {before}"
                ))
                .await;
            opened.restart().await;
            for _ in 0..2 {
                assert!(opened.sql.clean().await.unwrap().is_empty());
            }
            let jumps = "SELECT count(*) FROM audit WHERE event = 'store.clock_jump'";
            assert_eq!(opened.number(jumps).await, 1);
            let options = opened
                .options()
                .clock_jump_max(Duration::from_secs(41 * 24 * 60 * 60));
            opened.restart_with(options).await;
            assert_eq!(opened.sql.clean().await.unwrap().records, 1);
        },
    )
    .await;
}
