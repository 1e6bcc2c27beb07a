//! Lines about calls in the audit.

use std::time::{Duration, SystemTime};

use callboard_runtime::{AuditEntry, CALLS_EVENT, CALLS_LINES_DETAIL};
use callboard_store::{
    AuditFilter, AuditVerifyOptions, CHECKPOINT_ENTRIES, CallFilter, ChainReport, SqlStore,
    verify_export,
};

use crate::kit::{stores, stores_with};

fn line(at_ms: u64, who: &str, tool: &str) -> String {
    format!("{at_ms} {who} files {tool} answered 3 {at_ms:032x}")
}

fn entry(lines: Vec<String>) -> AuditEntry {
    AuditEntry::new(CALLS_EVENT).with_detail(CALLS_LINES_DETAIL, lines)
}

async fn reports(store: &SqlStore) -> Vec<ChainReport> {
    let reports = store.verify_audit(&AuditVerifyOptions::default()).await;
    reports.unwrap()
}

/// Returns the tools of the lines that match a filter.
async fn tools(store: &SqlStore, filter: CallFilter) -> Vec<String> {
    let (lines, _) = store.audit_calls(&filter).await.unwrap();
    lines.into_iter().map(|line| line.tool).collect()
}

/// Goal: lines are in the order of their times, whatever entries have them, with the number of lost ones; names are
/// found in full and as they are stored. Method: two entries of the same time, and names with a space.
#[tokio::test]
async fn lines_of_several_entries() {
    stores(async |opened| {
        let audit = opened.sql.audit();
        let first = [line(1, "token:b%20o", "a%20a"), line(4, "token:b%20o", "d")];
        let second = [line(2, "token:alice", "b"), line(3, "token:alice", "c")];
        let second = entry(second.to_vec()).with_detail("lost", 2_u64);
        let entries = vec![entry(first.to_vec()), second];
        audit.append_calls(entries).await.unwrap();
        let newest = CallFilter {
            lines_max: 3,
            ..CallFilter::default()
        };
        let (lines, lost) = opened.sql.audit_calls(&newest).await.unwrap();
        let found: Vec<_> = lines.iter().map(|line| line.tool.as_str()).collect();
        assert_eq!((&found[..], lost), (&["b", "c", "d"][..], 2));
        for (principal, tool) in [
            ("b o", "a a"),
            ("token:b o", "a%20a"),
            ("token:b%20o", "a a"),
        ] {
            let filter = CallFilter {
                principal: Some(principal.to_owned()),
                tool: Some(tool.to_owned()),
                ..newest.clone()
            };
            assert_eq!(tools(&opened.sql, filter).await, ["a%20a"], "{principal}");
        }
    })
    .await;
}

/// Goal: the end of the chain is signed after the interval without another entry. Method: a short interval; wait for the
/// checkpoint.
#[tokio::test]
async fn calls_are_signed_by_the_clock() {
    let every = Duration::from_millis(5);
    stores_with(
        |options| options.sign_interval(Some(every)),
        async |opened| {
            let entries = vec![entry(vec![line(1, "token:bob", "a")])];
            opened.sql.audit().append_calls(entries).await.unwrap();
            let signed = async {
                while reports(&opened.sql).await.pop().unwrap().signed_up_to < 1 {
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

/// Goal: lines about calls are found by principal, agent, tool, call and time, in a chain of their own that is signed
/// at the end and goes on after a restart; other entries are listed without them. Method: two writes and a restart.
#[tokio::test]
async fn lines_about_calls() {
    stores(async |opened| {
        let audit = opened.sql.audit();
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let now = u64::try_from(now.as_millis()).unwrap();
        let hour = 3_600_000;
        let first = [
            line(now - hour, "api_key:alice", "a"),
            line(now - hour, "token:bob", "b"),
        ];
        audit
            .append_calls(vec![entry(first.to_vec())])
            .await
            .unwrap();
        audit
            .append_calls(vec![
                entry(vec![line(now, "token:alice", "c")]),
                entry(vec![
                    line(now + 1, "api_key:alice", "d"),
                    "damaged".to_owned(),
                ]),
            ])
            .await
            .unwrap();
        let all = || CallFilter {
            lines_max: 10,
            ..CallFilter::default()
        };
        let text = |text: &str| Some(text.to_owned());
        for (filter, expected) in [
            (all(), &["a", "b", "c", "d"][..]),
            (
                CallFilter {
                    lines_max: 3,
                    ..all()
                },
                &["b", "c", "d"],
            ),
            (
                CallFilter {
                    principal: text("alice"),
                    ..all()
                },
                &["a", "c", "d"],
            ),
            (
                CallFilter {
                    principal: text("token:alice"),
                    ..all()
                },
                &["c"],
            ),
            (
                CallFilter {
                    principal: text("lice"),
                    ..all()
                },
                &[],
            ),
            (
                CallFilter {
                    agent: text("files"),
                    tool: text("b"),
                    ..all()
                },
                &["b"],
            ),
            (
                CallFilter {
                    agent: text("other"),
                    ..all()
                },
                &[],
            ),
            (
                CallFilter {
                    call: Some(format!("{now:032x}")),
                    ..all()
                },
                &["c"],
            ),
            (
                CallFilter {
                    since: Some(SystemTime::now() - Duration::from_secs(600)),
                    ..all()
                },
                &["c", "d"],
            ),
        ] {
            assert_eq!(
                tools(&opened.sql, filter.clone()).await,
                expected,
                "{filter:?}"
            );
        }
        let others = opened
            .sql
            .audit_lines(&AuditFilter::default())
            .await
            .unwrap();
        assert!(others.iter().all(|line| !line.line.contains("\"calls\"")));
        opened.restart().await;
        let audit = opened.sql.audit();
        audit
            .append_calls(vec![entry(vec![line(now + 2, "token:bob", "e")])])
            .await
            .unwrap();
        let reports = reports(&opened.sql).await;
        let [own, calls] = &reports[..] else {
            panic!("{reports:?}")
        };
        assert!(own.fault.is_none() && calls.fault.is_none(), "{reports:?}");
        assert_eq!(calls.chain, format!("{}.calls", own.chain));
        assert_eq!((calls.last, calls.signed_up_to), (4, 3));
        assert_eq!(
            tools(
                &opened.sql,
                CallFilter {
                    tool: text("e"),
                    ..all()
                }
            )
            .await,
            ["e"]
        );
    })
    .await;
}

/// Goal: the lines are bounded: the oldest are removed, which is on record, and the chain stays valid. Method: entries
/// past the maximum, and as many as fit.
#[tokio::test]
async fn the_oldest_lines_are_removed() {
    let bytes = 10_000;
    let lines = vec!["x".repeat(bytes)];
    // Two checkpoints' entries fit, each with 512 bytes beside its lines.
    let bytes_max = 2 * CHECKPOINT_ENTRIES * (bytes as u64 + 512);
    stores_with(
        move |options| options.audit_calls_bytes_max(bytes_max),
        async |opened| {
            let audit = opened.sql.audit();
            let append = async |count: u64| {
                for _ in 0..count / 16 {
                    let entries = vec![entry(lines.clone()); 16];
                    audit.append_calls(entries).await.unwrap();
                }
            };
            let calls = async || reports(&opened.sql).await.pop().unwrap();
            append(2 * CHECKPOINT_ENTRIES).await;
            assert_eq!(calls().await.first, 1);
            append(CHECKPOINT_ENTRIES).await;
            let cut = calls().await;
            assert!(cut.fault.is_none(), "{cut:?}");
            assert_eq!(cut.first, CHECKPOINT_ENTRIES + 1, "{cut:?}");
            let removed = AuditFilter {
                event: Some("audit.cut".to_owned()),
                ..AuditFilter::default()
            };
            assert_eq!(opened.sql.audit_lines(&removed).await.unwrap().len(), 1);
            // The chain of calls comes first, so that the record of each of its removals comes after it.
            let mut exported = Vec::new();
            opened.sql.export_audit(&mut exported).await.unwrap();
            assert!(exported.starts_with(br#"{"kind":"chain","chain":"node.calls""#));
            let options = AuditVerifyOptions {
                public_keys: Some(opened.folder().join("audit.pub")),
                ..AuditVerifyOptions::default()
            };
            let again = verify_export(&exported[..], &options).unwrap();
            assert_eq!(again, reports(&opened.sql).await);
        },
    )
    .await;
}
