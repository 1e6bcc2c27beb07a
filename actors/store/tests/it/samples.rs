//! Sample data, one of every kind of stored item. Its rows are a snapshot; later versions must read
//! them.

use std::time::{Duration, UNIX_EPOCH};

use callboard_message::mail::MailMessageKind;
use callboard_message::{
    DataClass, Failure, FailureKind, Principal, PrincipalKind, Question, RawObject,
};
use callboard_runtime::*;
use callboard_store::SqlStore;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

/// Expiry of the samples: the year 2100.
pub const EXPIRES: Duration = Duration::from_secs(4_102_444_800);
/// Lease duration of the samples.
pub const LEASE: Duration = Duration::from_secs(60);
/// Ids of a parent task and its two children; the second needs the first.
pub const GRAPH: [&str; 3] = ["whole", "first", "second"];

pub fn id(name: &str) -> TaskId {
    TaskId::new(name).unwrap()
}

fn raw(value: serde_json::Value) -> Box<RawValue> {
    to_raw_value(&value).unwrap()
}

/// Returns a task. Creating it again must find the stored one by its key.
pub fn task(name: &str) -> NewTask {
    let principal = Principal {
        id: "ann".into(),
        kind: PrincipalKind::ApiKey,
        scopes: vec!["agents:ask".into()],
        purpose: Some("treatment".into()),
    };
    NewTask {
        id: id(name),
        key: Some(format!("key of {name}")),
        request: Some(raw(json!({"text": "what is due?"}))),
        class: DataClass::Personal,
        deadline: Some(UNIX_EPOCH + EXPIRES),
        extra: RawObject::new().with("shape", "tool_result"),
        ..NewTask::new(principal, "clinic", "ask", UNIX_EPOCH + EXPIRES)
    }
}

pub fn asked(key: &str, question: Question) -> TaskStep {
    TaskStep::Asked(OpenQuestion {
        key: key.into(),
        question: question.into(),
    })
}

/// Returns tasks that took every path, with their steps.
fn tasks() -> Vec<(NewTask, Vec<TaskStep>)> {
    let failure =
        || Failure::new(FailureKind::Blocked, "not shown").with_data(json!({"rule": "identity"}));
    let elicit = || {
        Question::elicit(
            "which patient?",
            json!({"type": "object", "properties": {}}),
        )
    };
    let answered = |key: &str| TaskStep::Answered {
        key: key.into(),
        answer: raw(json!({"action": "decline"})),
    };
    let resumed = |name: &str| NewTask {
        on_restart: OnRestart::Resume,
        ..task(name)
    };
    let clinical = NewTask {
        class: DataClass::Clinical,
        ..task("clinical")
    };
    vec![
        (
            task("completed"),
            vec![
                TaskStep::Said("half way".into()),
                TaskStep::History(RawObject::new().with("role", "user")),
                TaskStep::Artifact(RawObject::new().with("name", "plan")),
                asked("q1", Question::sample("say so", 64)),
                asked("q2", elicit()),
                TaskStep::GivenUp { key: "q1".into() },
                answered("q2"),
                TaskStep::Completed(raw(json!({"content": []}))),
            ],
        ),
        (
            task("failed"),
            vec![asked("q", Question::roots()), TaskStep::Failed(failure())],
        ),
        (task("rejected"), vec![TaskStep::Rejected(failure())]),
        (task("cancelled"), vec![TaskStep::cancelled()]),
        (task("waits for an answer"), vec![asked("q", elicit())]),
        (
            task("waits for a credential"),
            vec![TaskStep::AuthWanted("a key of the clinic".into())],
        ),
        (resumed("resumed"), vec![]),
        (task("interrupted"), vec![]),
        (clinical, vec![TaskStep::Completed(raw(json!("Ana Silva")))]),
    ]
}

/// Returns a message. Posting it again must find the stored one by its key.
pub fn letter(kind: MailMessageKind) -> NewMailMessage {
    let place = MailMessageKind::ALL
        .iter()
        .position(|of| *of == kind)
        .unwrap();
    NewMailMessage {
        id: format!("01890a5d-ac96-774b-bcce-b302099a805{place}"),
        sender: "ann".into(),
        kind,
        label: (kind == MailMessageKind::Guidance).then(|| "STUCK".into()),
        audience: "list".into(),
        recipients: vec!["bob".into(), "eve".into()],
        topic: Some("rota".into()),
        thread: Some("t".into()),
        reply_to: Some("r".into()),
        urgent: kind == MailMessageKind::Group,
        key: Some(format!("key of {place}")),
        class: DataClass::Internal,
        body: format!("hello as {}", kind.as_str()),
        expires: UNIX_EPOCH + EXPIRES,
    }
}

/// Returns a record. Appending it again must find the stored one by its key.
pub fn record() -> JournalRecord {
    JournalRecord {
        stream: "effects/a".into(),
        key: Some("k".into()),
        body: json!({"done": true}),
    }
}

fn entry(audit: &dyn AuditStore) -> AuditEntry {
    AuditEntry::new("message")
        .with_agent("clinic")
        .with_message("ask")
        .with_peer("10.0.0.1")
        .with_call(serde_json::from_value(json!("01890a5d-ac96-774b-bcce-b302099a8057")).unwrap())
        .with_principal(&Principal::anonymous())
        .with_class(DataClass::Clinical)
        .with_body(audit.digest(DataClass::Clinical, b"Ana Silva"))
        .with_outcome("ok")
        .with_detail("flag", true)
        .with_detail("list", vec!["a".to_owned()])
        .with_detail("number", 1_u64)
        .with_detail("text", "t")
}

/// Fills an empty store with one item of every kind.
pub async fn fill(store: &SqlStore) {
    let Store {
        journal,
        tasks: kept,
        mail,
        kv: notes,
        audit,
        ..
    } = store.store();
    for (new, steps) in tasks() {
        let CreateOutcome::Created(task, lease) = kept.create(new).await.unwrap() else {
            panic!("the store isn't empty")
        };
        for step in steps {
            kept.apply(&task.id, TaskActor::Worker(&lease), vec![step])
                .await
                .unwrap();
        }
    }
    let [whole, first, second] = GRAPH.map(task);
    let parent = Some(whole.id.clone());
    let first = NewTask {
        parent: parent.clone(),
        ..first
    };
    let second = NewTask {
        parent,
        needs: vec![first.id.clone()],
        ..second
    };
    kept.create_all(vec![whole, first, second]).await.unwrap();

    for kind in MailMessageKind::ALL.iter().copied() {
        mail.post(letter(kind)).await.unwrap();
    }
    mail.update_receipts(
        vec![("bob".into(), 1), ("eve".into(), 2)],
        ReceiptUpdate::Delivered,
    )
    .await
    .unwrap();
    mail.update_receipts(vec![("bob".into(), 2)], ReceiptUpdate::Read)
        .await
        .unwrap();
    mail.count_attempt("eve", 1).await.unwrap();
    mail.append_event(StoredMailEvent::Joined("bob".into(), "webhook".into()))
        .await
        .unwrap();
    mail.append_event(StoredMailEvent::Left("bob".into(), "idle".into()))
        .await
        .unwrap();

    journal.append(record()).await.unwrap();
    journal
        .append(JournalRecord {
            key: None,
            body: json!([1.5, null]),
            ..record()
        })
        .await
        .unwrap();
    notes
        .put("directory", "a", RawObject::new().with("name", "Ann"), None)
        .await
        .unwrap();
    notes
        .put(
            "directory",
            "a",
            RawObject::new().with("name", "Anna"),
            Some(1),
        )
        .await
        .unwrap();
    audit.append(vec![entry(&*audit)]).await.unwrap();
}
