use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use callboard_message::mail::MailMessageKind;
use callboard_message::{RawObject, TaskState};
use callboard_runtime::*;
use callboard_store::{AuditVerifyOptions, SqlStore};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::kit::{Opened, in_database, in_file};
use crate::samples::{self, GRAPH, fill, id, letter, record, task};

/// Environment variable with the folder for the fixture that [`write_fixture`] writes.
const FOLDER: &str = "CALLBOARD_FIXTURE";
/// Extensions of the audit files beside a store.
const AUDIT_FILES: [&str; 3] = ["key", "pub", "anchor"];
const VIEW: &str = "view.jsonl";

/// Returns the folders of the fixtures of every version.
fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/upgrade");
    let mut fixtures: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    fixtures.sort();
    assert!(!fixtures.is_empty());
    fixtures
}

fn ms(at: SystemTime) -> u128 {
    at.duration_since(UNIX_EPOCH).unwrap().as_millis()
}

/// Returns everything in a store that opening it doesn't change, as JSON lines.
async fn view(store: &SqlStore) -> String {
    let Store {
        journal,
        tasks,
        mail,
        kv: notes,
        ..
    } = store.store();
    let mut lines: Vec<Value> = Vec::new();
    for task in tasks.list(TaskFilter::default(), 0, 100).await.unwrap().0 {
        let NewTask {
            id,
            scope,
            owner,
            principal,
            key,
            agent,
            message,
            request,
            class,
            on_restart,
            ..
        } = &task.spec;
        lines.push(json!({"task": id, "number": task.number, "scope": scope, "owner": owner, "principal": principal, "key": key,
            "agent": agent, "message": message, "request": request, "class": class.as_str(), "on_restart": on_restart.as_str()}));
        let NewTask {
            parent,
            needs,
            deadline,
            expires,
            extra,
            ..
        } = &task.spec;
        let Task {
            state,
            created,
            updated,
            status_message: said,
            open_questions: open,
            outcome,
            ..
        } = &*task;
        lines.push(json!({"parent": parent, "needs": needs, "deadline": deadline.map(ms), "expires": ms(*expires), "extra": extra,
            "state": state.as_str(), "created": ms(*created), "updated": ms(*updated), "said": said, "open": open,
            "outcome": outcome}));
        let Task {
            artifacts,
            last_event,
            pending_needs: waiting,
            open_children: children_open,
            cancel_requested: cancel_wanted,
            ..
        } = &*task;
        lines.push(
            json!({"artifacts": artifacts, "last_event": last_event, "waiting": waiting,
            "children_open": children_open, "cancel_wanted": cancel_wanted}),
        );
        for TaskEvent {
            number,
            at,
            state,
            step,
        } in tasks.events(id, 0, 100).await.unwrap()
        {
            lines.push(
                json!({"event": number, "at": ms(at), "state": state.as_str(), "step": step}),
            );
        }
    }
    for (found, _) in mail
        .history(MailMessageFilter::default(), 0, 100)
        .await
        .unwrap()
        .0
    {
        let NewMailMessage {
            id,
            sender,
            kind,
            label,
            audience,
            recipients,
            topic,
            thread,
            ..
        } = &found.new;
        lines.push(
            json!({"letter": id, "number": found.number, "sender": sender, "kind": kind.as_str(), "label": label,
            "audience": audience, "recipients": recipients, "topic": topic, "thread": thread}),
        );
        let NewMailMessage {
            reply_to,
            urgent,
            key,
            class,
            body,
            expires,
            ..
        } = &found.new;
        lines.push(json!({"reply_to": reply_to, "urgent": urgent, "key": key, "class": class.as_str(), "body": body,
            "expires": ms(*expires), "mark": found.digest, "accepted": ms(found.accepted), "spread": found.copies_made}));
        for copy in mail.receipts(found.number, None, 100).await.unwrap() {
            lines.push(json!({"copy": copy.recipient, "state": copy.state.as_str(), "attempts": copy.attempts,
                "delivered": copy.delivered.map(ms), "read": copy.read.map(ms)}));
        }
    }
    for (number, event) in mail.events(0, 100).await.unwrap() {
        let told = match event {
            StoredMailEvent::Posted(letter) => json!(["posted", letter.number]),
            StoredMailEvent::ReceiptsUpdated {
                message_number: letter,
                id,
                sender,
                state,
                recipients,
            } => {
                json!(["marked", letter, id, sender, state.as_str(), recipients])
            }
            StoredMailEvent::Joined(agent, way) => json!(["joined", agent, way]),
            StoredMailEvent::Left(agent, why) => json!(["left", agent, why]),
        };
        lines.push(json!({"mail event": number, "told": told}));
    }
    for (number, record) in journal.read(&record().stream, 0, 100).await.unwrap() {
        lines.push(json!({"record": number, "key": record.key, "body": record.body}));
    }
    for KvEntry {
        key,
        version,
        body,
        at,
    } in notes.list("directory", None, 100).await.unwrap()
    {
        lines.push(json!({"note": key, "version": version, "body": body, "at": ms(at)}));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Checks that this writer's audit chain is intact and matches the anchor. Returns its last number.
async fn verified(store: &SqlStore) -> u64 {
    let reports = store
        .verify_audit(&AuditVerifyOptions::default())
        .await
        .unwrap();
    let [report] = reports.as_slice() else {
        panic!("{reports:?}")
    };
    assert_eq!((report.first, &report.fault), (1, &None));
    assert!(report.signed_up_to > 0, "{report:?}");
    report.last
}

/// Writes new data to an earlier version's store; keys and versions of that version must still
/// hold.
async fn goes_on(store: &SqlStore) {
    let Store {
        journal,
        tasks,
        mail,
        kv: notes,
        audit,
        ..
    } = store.store();
    let kept = tasks.list(TaskFilter::default(), 0, 100).await.unwrap().0;
    let highest = kept.iter().map(|task| task.number).max().unwrap();
    match tasks
        .create(NewTask {
            id: TaskId::generate(),
            ..task("completed")
        })
        .await
        .unwrap()
    {
        CreateOutcome::Existing(task) => assert_eq!(
            (task.id.as_str(), task.state),
            ("completed", TaskState::Completed)
        ),
        CreateOutcome::Created(task, _) => panic!("{} is new", task.id),
    }
    let answer = TaskStep::Answered {
        key: "q".into(),
        answer: RawValue::from_string("null".into()).unwrap(),
    };
    let answered = tasks
        .apply(
            &id("waits for an answer"),
            TaskActor::Operator,
            vec![answer],
        )
        .await
        .unwrap();
    assert!(answered.open_questions.is_empty());
    let claim = ClaimRequest {
        scope: "agent".into(),
        worker: tasks.worker_id().into(),
        tasks_max: 9,
        except_owners: Vec::new(),
        lease: samples::LEASE,
    };
    let claimed = tasks.claim(claim).await.unwrap();
    let names: Vec<&str> = claimed.iter().map(|(task, _)| task.id.as_str()).collect();
    assert_eq!(names, ["resumed", GRAPH[1]]);
    for (task, lease) in &claimed {
        let done = TaskStep::Completed(RawValue::from_string("1".into()).unwrap());
        let start = (task.state == TaskState::Submitted).then_some(TaskStep::Start);
        let steps = start.into_iter().chain([done]).collect();
        tasks
            .apply(&task.id, TaskActor::Worker(lease), steps)
            .await
            .unwrap();
    }
    let interrupted = tasks.get(&id("interrupted")).await.unwrap().unwrap();
    assert_eq!(interrupted.state, TaskState::Failed);
    assert_eq!(
        tasks
            .get(&id(GRAPH[2]))
            .await
            .unwrap()
            .unwrap()
            .pending_needs,
        0
    );
    let CreateOutcome::Created(begun, _) = tasks.create(task("new")).await.unwrap() else {
        panic!("it isn't new")
    };
    assert_eq!(begun.number, highest + 1);

    let again = mail
        .post(NewMailMessage {
            id: uuid::Uuid::now_v7().to_string(),
            ..letter(MailMessageKind::Direct)
        })
        .await
        .unwrap();
    assert_eq!(
        (again.is_new, &again.new.body),
        (false, &letter(MailMessageKind::Direct).body)
    );
    assert_eq!(
        mail.update_receipts(vec![("bob".into(), again.number)], ReceiptUpdate::Read)
            .await
            .unwrap()
            .len(),
        1
    );
    let event = mail.last_event().await.unwrap();
    let new = mail
        .post(crate::mail::letter(&["bob"], "hello"))
        .await
        .unwrap();
    assert_eq!(mail.last_event().await.unwrap(), event + 1);
    assert!(
        mail.list_open("bob", None, false, 100)
            .await
            .unwrap()
            .iter()
            .any(|(letter, _)| letter.number == new.number)
    );

    let records = journal.read(&record().stream, 0, 100).await.unwrap().len() as u64;
    assert_eq!(journal.append(record()).await, Ok(1));
    assert_eq!(
        journal
            .append(JournalRecord {
                key: None,
                ..record()
            })
            .await,
        Ok(records + 1)
    );
    let note = notes.get("directory", "a").await.unwrap().unwrap();
    let put = notes
        .put("directory", "a", RawObject::new(), Some(note.version))
        .await;
    assert_eq!(put, Ok(note.version + 1));
    audit
        .append(vec![AuditEntry::new("upgraded")])
        .await
        .unwrap();
}

/// Replaces an empty store by a fixture, and opens it.
async fn restored(mut opened: Opened, fixture: &Path) -> Opened {
    opened.sql.close().await;
    let kind = if opened.is_sqlite() {
        "sqlite"
    } else {
        "postgres"
    };
    for ending in AUDIT_FILES {
        fs::copy(
            fixture.join(format!("{kind}.{ending}")),
            opened.folder().join("audit").with_extension(ending),
        )
        .unwrap();
    }
    if opened.is_sqlite() {
        fs::copy(fixture.join("sqlite.db"), opened.file()).unwrap();
    } else {
        opened
            .raw("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            .await;
        opened
            .raw(&fs::read_to_string(fixture.join("postgres.sql")).unwrap())
            .await;
    }
    opened.restart().await;
    opened
}

/// Goal: a new version reads an earlier version's store, verifies its audit, and continues it.
/// Method: the fixtures of every version, compared with the content that their version wrote down;
/// then reopen.
#[tokio::test]
async fn earlier_stores_are_gone_on_with() {
    for fixture in fixtures() {
        let stores = [
            Some(in_file(|options| options).await),
            in_database(|options| options).await,
        ];
        for opened in stores.into_iter().flatten() {
            let mut opened = restored(opened, &fixture).await;
            let kind = if opened.is_sqlite() {
                "sqlite"
            } else {
                "postgres"
            };
            let expected = fs::read_to_string(fixture.join(format!("{kind}.{VIEW}"))).unwrap();
            let parsed = |text: &str| -> Vec<Value> {
                text.lines()
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect()
            };
            let (found, expected) = (parsed(&view(&opened.sql).await), parsed(&expected));
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{}", fixture.display());
            }
            assert_eq!(found.len(), expected.len());
            let entries = verified(&opened.sql).await;
            goes_on(&opened.sql).await;
            opened.restart().await;
            assert!(verified(&opened.sql).await > entries);
            opened.end().await;
        }
    }
}

/// Goal: a signature of an earlier version still protects its entries. Method: change one entry of
/// a fixture.
#[tokio::test]
async fn a_changed_entry_of_an_earlier_store_is_found() {
    for fixture in fixtures() {
        let mut opened = restored(in_file(|options| options).await, &fixture).await;
        opened.sql.close().await;
        opened.raw("DROP TRIGGER audit_stays; UPDATE audit SET line = replace(line, 'clinic', 'clinik') WHERE event = 'message'").await;
        opened.restart().await;
        let reports = opened
            .sql
            .verify_audit(&AuditVerifyOptions::default())
            .await
            .unwrap();
        assert!(reports[0].fault.is_some(), "{reports:?}");
        opened.end().await;
    }
}

/// Returns the rows of a Postgres store as INSERT statements.
async fn statements(opened: &Opened) -> String {
    let mut statements = String::new();
    for table in opened
        .texts("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        .await
    {
        for row in opened
            .texts(&format!(
                "SELECT row_to_json(t)::text FROM {table} AS t ORDER BY 1"
            ))
            .await
        {
            let row = row.replace('\'', "''");
            statements += &format!(
                "INSERT INTO public.{table} SELECT * FROM json_populate_record(NULL::public.{table}, '{row}');\n"
            );
        }
    }
    statements
}

/// Writes the fixture of this version; run by `cargo xtask fixture`.
#[tokio::test]
#[ignore = "writes a fixture for later versions: cargo xtask fixture"]
async fn write_fixture() {
    let Ok(folder) = std::env::var(FOLDER).map(PathBuf::from) else {
        return;
    };
    fs::create_dir_all(&folder).unwrap();
    let stores = [
        Some(in_file(|options| options).await),
        in_database(|options| options).await,
    ];
    for mut opened in stores.into_iter().flatten() {
        fill(&opened.sql).await;
        // Clinical bodies end with the process that held them.
        opened.restart().await;
        let kind = if opened.is_sqlite() {
            "sqlite"
        } else {
            "postgres"
        };
        fs::write(
            folder.join(format!("{kind}.{VIEW}")),
            view(&opened.sql).await,
        )
        .unwrap();
        opened.sql.close().await;
        for ending in AUDIT_FILES {
            fs::copy(
                opened.folder().join("audit").with_extension(ending),
                folder.join(format!("{kind}.{ending}")),
            )
            .unwrap();
        }
        if opened.is_sqlite() {
            fs::copy(opened.file(), folder.join("sqlite.db")).unwrap();
        } else {
            let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/schema/postgres");
            let mut files: Vec<_> = fs::read_dir(schema)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            files.sort();
            let schema: String = files
                .iter()
                .map(|file| fs::read_to_string(file).unwrap() + "\n")
                .collect();
            fs::write(
                folder.join("postgres.sql"),
                schema + &statements(&opened).await,
            )
            .unwrap();
        }
        opened.end().await;
    }
}
