use std::fs;
use std::time::{Duration, SystemTime};

use callboard_message::{CallId, DataClass, Principal};
use callboard_runtime::{AuditEntry, AuditLog, JournalError, JournalRecord};
use callboard_store::{
    AUDIT_LINES_DEFAULT, AuditFilter, AuditVerifyOptions, CHECKPOINT_ENTRIES, ChainReport,
    SqlStore, StoreError,
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::kit::{Opened, in_file, stores, stores_with};

pub fn entry(n: u64) -> AuditEntry {
    AuditEntry::new("test")
        .with_agent(format!("agent {n}"))
        .with_detail("n", n)
}

/// Verifies the audit of a store with one chain. Returns its report.
pub async fn report(store: &SqlStore) -> ChainReport {
    let reports = store
        .verify_audit(&AuditVerifyOptions::default())
        .await
        .unwrap();
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.into_iter().next().unwrap()
}

/// Returns the newest entries as JSON.
async fn shown(store: &SqlStore, filter: AuditFilter) -> Vec<Value> {
    let lines = store.audit_lines(&filter).await.unwrap();
    lines
        .iter()
        .map(|line| serde_json::from_str(&line.line).unwrap())
        .collect()
}

fn anchor(opened: &Opened) -> Vec<String> {
    let text = fs::read_to_string(opened.folder().join("audit.anchor")).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Goal: entries of concurrent writers form one valid chain without gaps, which is signed when the
/// store is closed and continued after a restart. Method: 500 entries in concurrent batches, beside
/// other writes; two restarts.
/// Rows: X-44.
#[tokio::test]
async fn one_chain_over_restarts() {
    stores(async |opened| {
        let (audit, journal) = (opened.sql.audit(), opened.sql.journal());
        let entries =
            (0..100_u64).map(|n| audit.append((0..5).map(|m| entry(n * 5 + m)).collect()));
        let records = (0..50).map(|n| {
            journal.append(JournalRecord {
                stream: "s".to_owned(),
                key: None,
                body: json!(n),
            })
        });
        let (numbers, records) = futures::join!(join_all(entries), join_all(records));
        let mut numbers: Vec<u64> = numbers.into_iter().map(Result::unwrap).collect();
        numbers.sort_unstable();
        // The first entry is the start of the run; each result is the last number of a batch.
        assert_eq!(numbers, (1..=100).map(|n| n * 5 + 1).collect::<Vec<_>>());
        assert!(records.iter().all(Result::is_ok));

        let before = report(&opened.sql).await;
        assert_eq!((before.first, before.last, &before.fault), (1, 501, &None));
        assert!(501 - before.signed_up_to < CHECKPOINT_ENTRIES, "{before:?}");

        opened.restart().await;
        // The end and the next start.
        let after = report(&opened.sql).await;
        assert_eq!(
            (after.first, after.last, after.signed_up_to, &after.fault),
            (1, 503, 503, &None)
        );
        assert_eq!(opened.sql.audit().append(vec![entry(9)]).await, Ok(504));
        let started = AuditFilter {
            event: Some("run.started".to_owned()),
            ..AuditFilter::default()
        };
        let started = shown(&opened.sql, started).await;
        assert_eq!(started.len(), 2);
        assert_eq!(
            (
                &started[1]["more"]["unsigned"],
                &started[1]["more"]["worker"]
            ),
            (&json!(0), &json!("node#2"))
        );
        assert_ne!(started[0]["run"], started[1]["run"]);
        assert_eq!(started[1]["run"], opened.sql.run_id());

        // The anchor file agrees with the database.
        let newest = anchor(opened).last().unwrap().clone();
        assert!(newest.starts_with("node 503 "), "{newest}");
    })
    .await;
}

/// Goal: the next start reports entries that were unsigned when the process was killed. Method:
/// undo the writes of closing the store.
#[tokio::test]
async fn unsigned_entries_are_told() {
    let mut opened = in_file(|options| options).await;
    opened
        .sql
        .audit()
        .append((0..7).map(entry).collect())
        .await
        .unwrap();
    opened.sql.close().await;
    // State after a kill.
    opened
        .raw("DELETE FROM audit_checkpoint WHERE number > 1")
        .await;
    opened.raw("DELETE FROM audit WHERE number > 8").await;
    opened
        .raw("UPDATE stream SET last = 8 WHERE name = 'a/node'")
        .await;
    fs::remove_file(opened.folder().join("audit.anchor")).unwrap();
    opened.restart().await;
    let started = AuditFilter {
        event: Some("run.started".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(shown(&opened.sql, started).await[1]["more"]["unsigned"], 7);
    assert_eq!(report(&opened.sql).await.fault, None);
    opened.end().await;
}

/// Goal: filters find the newest matching entries, oldest first. Method: a filter of each kind.
#[tokio::test]
async fn entries_are_found() {
    stores(async |opened| {
        let audit = opened.sql.audit();
        let call = CallId::generate();
        let told = AuditEntry::new("told")
            .with_agent("a")
            .with_message("m")
            .with_peer("p")
            .with_call(call);
        let told = told
            .with_principal(&Principal::agent("who"))
            .with_class(DataClass::Clinical)
            .with_outcome("kept");
        let told = told
            .with_body(audit.digest(DataClass::Clinical, b"Ana Silva"))
            .with_detail("rules", vec!["r".to_owned()]);
        let told = AuditEntry {
            at: SystemTime::now() + Duration::from_secs(1),
            ..told
        };
        audit
            .append((0..200).map(entry).chain([told]).collect())
            .await
            .unwrap();

        let all = shown(&opened.sql, AuditFilter::default()).await;
        assert_eq!(all.len(), AUDIT_LINES_DEFAULT);
        assert_eq!(all[99]["event"], "told");
        assert_eq!(all[98]["more"]["n"], 199);
        let found = &all[99];
        assert_eq!(found["principal"], json!({ "id": "who", "kind": "agent" }));
        assert_eq!(
            (&found["class"], &found["number"]),
            (&json!("clinical"), &json!(202))
        );
        let hash = found["body"]["hash"].as_str().unwrap();
        assert!(
            hash.starts_with("hmac-sha256:") && hash.len() == 76,
            "{hash}"
        );

        let some = |text: &str| Some(text.to_owned());
        let filters = [
            AuditFilter {
                event: some("told"),
                ..AuditFilter::default()
            },
            AuditFilter {
                agent: some("a"),
                ..AuditFilter::default()
            },
            AuditFilter {
                principal: some("who"),
                ..AuditFilter::default()
            },
            AuditFilter {
                call: Some(call.to_string()),
                chain: some("node"),
                ..AuditFilter::default()
            },
            AuditFilter {
                entries_max: Some(1),
                ..AuditFilter::default()
            },
        ];
        for filter in filters {
            let found = shown(&opened.sql, filter.clone()).await;
            assert_eq!(found.len(), 1, "{filter:?}");
            assert_eq!(&found[0], &all[99], "{filter:?}");
        }
        let none = [
            AuditFilter {
                chain: some("other"),
                ..AuditFilter::default()
            },
            AuditFilter {
                since: Some(SystemTime::now() + Duration::from_secs(60)),
                ..AuditFilter::default()
            },
        ];
        for filter in none {
            assert!(shown(&opened.sql, filter).await.is_empty());
        }
    })
    .await;
}

/// Goal: an audit log over the store writes a record before it acknowledges it, and queued notes
/// before the store is closed. Method: notes, then a record; a flush.
#[tokio::test]
async fn a_log_is_kept() {
    stores(async |opened| {
        let log = AuditLog::new(opened.sql.audit());
        (0..20).for_each(|n| log.try_enqueue(entry(n)));
        let number = log.record(entry(20)).await.unwrap();
        assert_eq!(number, 22);
        log.try_enqueue(entry(21));
        log.flush().await;
        let report = report(&opened.sql).await;
        assert_eq!((report.last, report.fault, log.lost_count()), (23, None, 0));
    })
    .await;
}

/// Goal: hostile names can't spoil a chain. Method: NULs, quotes, control characters and names longer than a line.
#[tokio::test]
async fn any_name_can_be_kept() {
    stores(async |opened| {
        let long = "\u{1}\u{1F600}".repeat(20_000);
        let names = [
            "",
            "\0",
            "'; DROP TABLE audit; --",
            "\"\\\n\u{7f}\u{2028}",
            &long,
        ];
        let named = names.iter().map(|name| {
            let entry = AuditEntry::new((*name).to_owned())
                .with_agent(*name)
                .with_message(*name)
                .with_peer(*name);
            entry
                .with_principal(&Principal::agent(*name))
                .with_detail("name", *name)
        });
        opened.sql.audit().append(named.collect()).await.unwrap();
        let report = report(&opened.sql).await;
        assert_eq!((report.last, report.fault), (6, None));
        let refused = opened.sql.audit().append(Vec::new()).await;
        assert!(matches!(refused, Err(JournalError::Invalid(_))));
    })
    .await;
}

/// Goal: checkpoints are signed after a fixed number of entries, and at once only on request.
/// Method: one entry less than the number, and one more.
#[tokio::test]
async fn checkpoints_come_in_time() {
    stores(async |opened| {
        let audit = opened.sql.audit();
        // The first has a checkpoint: the start of the run is signed.
        for _ in 1..CHECKPOINT_ENTRIES {
            audit.append(vec![entry(1)]).await.unwrap();
        }
        assert_eq!(report(&opened.sql).await.signed_up_to, 1);
        assert_eq!(
            audit.append(vec![entry(1)]).await,
            Ok(CHECKPOINT_ENTRIES + 1)
        );
        let report = report(&opened.sql).await;
        assert_eq!(
            (report.signed_up_to, report.checkpoints),
            (CHECKPOINT_ENTRIES + 1, 2)
        );
    })
    .await;
}

/// Goal: an entry is signed after the interval without another entry. Method: a short interval;
/// wait for the checkpoint.
#[tokio::test]
async fn checkpoints_come_by_the_clock() {
    let every = Duration::from_millis(5);
    stores_with(
        |options| options.sign_interval(Some(every)),
        async |opened| {
            assert_eq!(opened.sql.audit().append(vec![entry(1)]).await, Ok(2));
            let signed = async {
                while report(&opened.sql).await.signed_up_to < 2 {
                    tokio::time::sleep(every).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), signed)
                .await
                .unwrap();
        },
    )
    .await;
}

/// Goal: a signed chain needs its key, unless the operator requests a new one, which is recorded.
/// Method: delete the key.
#[tokio::test]
async fn a_lost_key_is_no_new_key() {
    stores(async |opened| {
        let key = opened.folder().join("audit.key");
        opened.sql.close().await;
        let kept = fs::read(&key).unwrap();
        fs::remove_file(&key).unwrap();
        let refused = SqlStore::open(&opened.options()).await.err();
        assert!(
            matches!(&refused, Some(StoreError::Key { .. })),
            "{refused:?}"
        );
        assert!(!key.exists());
        let options = opened.options().audit_key_new(true);
        opened.restart_with(options.clone()).await;
        assert_ne!(fs::read(&key).unwrap(), kept);
        let keys = AuditFilter {
            event: Some("audit.key".to_owned()),
            ..AuditFilter::default()
        };
        assert_eq!(shown(&opened.sql, keys.clone()).await.len(), 1);
        assert_eq!(report(&opened.sql).await.fault, None);
        opened.restart_with(options.audit_key_new(false)).await;
        assert_eq!(shown(&opened.sql, keys).await.len(), 1);
        assert_eq!(report(&opened.sql).await.fault, None);
    })
    .await;
}

/// Goal: a full store rejects audit entries, but still records the end of the run. Method: a small
/// store, filled with entries; close it; open it again.
#[tokio::test]
async fn a_full_store_refuses_the_audit() {
    let mut opened = in_file(|options| options.size_max(512 * 1024)).await;
    let audit = opened.sql.audit();
    let full = loop {
        if let Err(error) = audit.append((0..64).map(entry).collect()).await {
            break error;
        }
    };
    assert!(matches!(full, JournalError::SizeLimit { .. }), "{full:?}");
    assert_eq!(report(&opened.sql).await.fault, None);
    opened.restart().await;
    let ended = AuditFilter {
        event: Some("run.ended".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(shown(&opened.sql, ended).await.len(), 1);
    assert_eq!(report(&opened.sql).await.fault, None);
    opened.end().await;
}

/// Goal: two processes on one database have separate chains, and each verifies. Method: two writers
/// on one Postgres.
#[tokio::test]
async fn each_writer_has_its_chain() {
    stores_with(
        |options| options.writer("a"),
        async |opened| {
            if opened.is_sqlite() {
                return;
            }
            let other = SqlStore::open(&opened.options().writer("b b"))
                .await
                .unwrap();
            let (first, second) = (opened.sql.audit(), other.audit());
            let writes =
                (0..40).map(|n| if n % 2 == 0 { &first } else { &second }.append(vec![entry(n)]));
            assert!(join_all(writes).await.iter().all(Result::is_ok));
            other.close().await;
            let reports = opened
                .sql
                .verify_audit(&AuditVerifyOptions::default())
                .await
                .unwrap();
            let told: Vec<_> = reports
                .iter()
                .map(|r| (r.chain.as_str(), r.last, r.fault.clone()))
                .collect();
            assert_eq!(told, [("a", 21, None), ("b b", 22, None)]);
        },
    )
    .await;
}
