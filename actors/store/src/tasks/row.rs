//! Tasks and their events as rows: searchable members have columns, the rest is JSON in `body`.

use std::num::NonZeroU32;
use std::time::Duration;

use callboard_message::{Principal, RawObject};
use callboard_runtime::{
    BodyDigest, LeaseView, NewTask, OpenQuestion, Task, TaskEvent, TaskId, TaskOutcome, TaskOwner,
    TaskStep,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::sql::{Row, from_unix_ms, to_unix_ms};

/// Columns that [`task_record`] reads, in its order.
macro_rules! columns {
    () => {
        "id, number, scope, owner, key, parent, agent, message, class, on_restart, state, waiting, children_open, cancel, \
         lease_by, lease_epoch, lease_until_ms, created_ms, updated_ms, deadline_ms, expires_ms, last_event, \
         request_mark, body, \
         (SELECT r.body FROM task_request AS r WHERE r.number = task.number)"
    };
}
pub(super) use columns;

/// Stored task, with the members that are internal to the store.
#[derive(Debug, Clone)]
pub(super) struct TaskRecord {
    pub(super) task: Task,
    /// Epoch of the task's latest lease, also after the lease has ended.
    pub(super) epoch: u64,
    /// Digest of the request that created the task.
    pub(super) request_digest: String,
    /// Worker in whose memory the task's bodies are, if they must not be stored on disk.
    pub(super) held_by: Option<String>,
    /// Whether the request has a row of its own, so that a step doesn't write it again.
    pub(super) has_request_row: bool,
}

/// Size from which a request is stored in a row of its own, in bytes: about a page of the database.
/// A smaller one is part of the task's row. Fixed.
pub const REQUEST_ROW_BYTES_MIN: usize = 4 * 1024;

#[derive(Serialize)]
struct TaskBodyRef<'a> {
    principal: &'a Principal,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    needs: &'a [TaskId],
    #[serde(skip_serializing_if = "RawObject::is_empty")]
    extra: &'a RawObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    open: &'a [OpenQuestion],
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a TaskOutcome>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    artifacts: &'a [RawObject],
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_workers: Option<NonZeroU32>,
}

#[derive(Deserialize)]
struct TaskBody {
    principal: Principal,
    #[serde(default, deserialize_with = "present")]
    request: Option<Box<RawValue>>,
    #[serde(default)]
    needs: Vec<TaskId>,
    #[serde(default)]
    extra: RawObject,
    said: Option<String>,
    #[serde(default)]
    open: Vec<OpenQuestion>,
    outcome: Option<TaskOutcome>,
    #[serde(default)]
    artifacts: Vec<RawObject>,
    held_by: Option<String>,
    #[serde(default)]
    lost_workers: u32,
}

/// Deserializes an optional JSON value so that `null` is `Some`; an absent member stays `None` by
/// default.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// JSON body of an event row. `mark` is the digest of the body of a redacted step.
#[derive(Serialize, Deserialize)]
struct TaskEventBody<S> {
    step: S,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<BodyDigest>,
}

impl TaskRecord {
    /// Returns the JSON text of those task members that have no column of their own.
    pub(super) fn body(&self) -> sqlx::Result<String> {
        let task = &self.task;
        encode_json(&TaskBodyRef {
            principal: &task.principal,
            request: task.request.as_deref().filter(|_| !self.has_request_row),
            needs: &task.needs,
            extra: &task.extra,
            said: task.status_message.as_deref(),
            open: &task.open_questions,
            outcome: task.outcome.as_ref(),
            artifacts: &task.artifacts,
            held_by: self.held_by.as_deref(),
            lost_workers: NonZeroU32::new(task.lost_workers),
        })
    }

    /// Returns the text of the request's own row; `None` without such a row.
    pub(super) fn request_row(&self) -> Option<&str> {
        let request = self
            .task
            .request
            .as_deref()
            .filter(|_| self.has_request_row);
        request.map(RawValue::get)
    }

    /// Returns the bytes that the task's rows have with this body.
    pub(super) fn row_bytes(&self, body: &str) -> usize {
        body.len() + self.request_row().map_or(0, str::len)
    }

    /// Returns the end of the task's lease in Unix milliseconds; `None` without a lease.
    pub(super) fn lease_until_ms(&self) -> Option<i64> {
        self.task
            .lease
            .as_ref()
            .map(|lease| to_unix_ms(lease.until))
    }
}

pub(super) fn task_record(row: &Row) -> sqlx::Result<TaskRecord> {
    let body: TaskBody = row.json(23)?;
    let request_row = row.get::<Option<&str>>(24)?;
    let request = match request_row {
        Some(_) => Some(row.json(24)?),
        None => body.request,
    };
    let epoch = row.get(15)?;
    let lease = row
        .get::<Option<String>>(14)?
        .zip(row.get(16)?)
        .map(|(by, until)| LeaseView {
            worker: by,
            epoch,
            until,
        });
    let new = NewTask {
        id: row.get(0)?,
        scope: row.get(2)?,
        owner: TaskOwner::from_text(row.get::<String>(3)?),
        principal: body.principal,
        key: row.get(4)?,
        agent: row.get(6)?,
        message: row.get(7)?,
        request,
        class: row.get(8)?,
        on_restart: row.get(9)?,
        parent: row.get(5)?,
        needs: body.needs,
        deadline: row.get(19)?,
        expires: row.get(20)?,
        extra: body.extra,
        scope_tasks_max: None,
        owner_tasks_max: None,
    };
    let task = Task {
        spec: new,
        number: row.get(1)?,
        state: row.get(10)?,
        created: row.get(17)?,
        updated: row.get(18)?,
        status_message: body.said,
        open_questions: body.open,
        outcome: body.outcome,
        artifacts: body.artifacts,
        last_event: row.get(21)?,
        pending_needs: row.get(11)?,
        open_children: row.get(12)?,
        cancel_requested: row.get(13)?,
        lost_workers: body.lost_workers,
        lease,
    };
    Ok(TaskRecord {
        task,
        epoch,
        request_digest: row.get(22)?,
        held_by: body.held_by,
        has_request_row: request_row.is_some(),
    })
}

/// Returns the JSON body of an event.
pub(super) fn event_body(step: &TaskStep, mark: Option<&BodyDigest>) -> sqlx::Result<String> {
    encode_json(&TaskEventBody {
        step,
        mark: mark.cloned(),
    })
}

/// Reads a task event from the columns `number, at_ms, state, body`.
pub(super) fn task_event(row: &Row) -> sqlx::Result<TaskEvent> {
    let body: TaskEventBody<TaskStep> = row.json(3)?;
    Ok(TaskEvent {
        number: row.get(0)?,
        at: row.get(1)?,
        state: row.get(2)?,
        step: body.step,
    })
}

/// Serializes a list of task ids as a JSON parameter.
pub(super) fn id_list<'a>(ids: impl IntoIterator<Item = &'a TaskId>) -> sqlx::Result<String> {
    encode_json(&ids.into_iter().collect::<Vec<_>>())
}

fn encode_json(body: &impl Serialize) -> sqlx::Result<String> {
    serde_json::to_string(body).map_err(|_| unreadable("a task's JSON"))
}

/// Creates the error for a row that this program can't have written. The parser's message is
/// dropped, because it may quote the row.
fn unreadable(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("{what} can't be read").into())
}

/// Truncates a time to milliseconds, as the database stores it.
pub(super) fn truncate_to_ms(at: std::time::SystemTime) -> std::time::SystemTime {
    from_unix_ms(to_unix_ms(at))
}

/// Returns the end of a lease that begins at `now_ms`, in Unix milliseconds.
pub(super) fn lease_end(now_ms: i64, lease: Duration) -> std::time::SystemTime {
    from_unix_ms(now_ms.saturating_add(crate::sql::duration_ms(lease)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use callboard_message::{Failure, Question};
    use serde_json::json;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    /// Goal: members without a column are read back byte by byte. Method: a body with everything in
    /// it, also a request that is `null`, and JSON whose spelling a parser would change.
    #[test]
    fn a_body_reads_back() {
        let request = raw(r#"{"b": 1.0, "a":"\u0000\u00e9"}"#);
        let new = NewTask {
            request: Some(request),
            needs: vec![TaskId::new("n").unwrap()],
            extra: RawObject::single("shape", "tool_result"),
            ..NewTask::new(Principal::agent("ann"), "clinic", "ask", UNIX_EPOCH)
        };
        let mut task = Task::new_submitted(new, 1, 0, UNIX_EPOCH);
        task.lost_workers = 2;
        task.status_message = Some("half way".into());
        task.open_questions = vec![OpenQuestion {
            key: "q".into(),
            question: Arc::new(Question::elicit("who?", json!({}))),
        }];
        task.artifacts = vec![RawObject::single("name", "plan")];
        for outcome in [
            None,
            Some(TaskOutcome::Reply(raw("null"))),
            Some(TaskOutcome::Failed(
                Failure::internal("no").with_data(json!([1])),
            )),
            Some(TaskOutcome::NotKept),
        ] {
            task.outcome = outcome;
            task.request = task.outcome.is_some().then(|| raw("null"));
            let stored = TaskRecord {
                task: task.clone(),
                epoch: 3,
                request_digest: "m".into(),
                held_by: Some("node#1".into()),
                has_request_row: false,
            };
            let body = stored.body().unwrap();
            let back: TaskBody = serde_json::from_str(&body).unwrap();
            assert_eq!(
                back.request.as_ref().map(|r| r.get()),
                task.request.as_ref().map(|r| r.get())
            );
            assert_eq!(back.held_by.as_deref(), Some("node#1"));
            assert_eq!(back.lost_workers, 2);
            let new = NewTask {
                request: back.request,
                needs: back.needs,
                extra: back.extra,
                ..task.spec.clone()
            };
            let again = Task {
                spec: new,
                status_message: back.said,
                open_questions: back.open,
                outcome: back.outcome,
                ..task.clone()
            };
            let again = Task {
                artifacts: back.artifacts,
                ..again
            };
            assert_eq!(
                TaskRecord {
                    task: again,
                    ..stored
                }
                .body()
                .unwrap(),
                body
            );
        }
    }

    /// Goal: every step reads back. Method: one of each kind.
    #[test]
    fn steps_read_back() {
        let failure = Failure::internal("no");
        let question = OpenQuestion {
            key: "q".into(),
            question: Arc::new(Question::roots()),
        };
        let steps = [
            TaskStep::Start,
            TaskStep::Said("a".into()),
            TaskStep::History(RawObject::single("a", 1)),
            TaskStep::Artifact(RawObject::new()),
            TaskStep::Asked(question),
            TaskStep::AuthWanted("which".into()),
            TaskStep::Answered {
                key: "q".into(),
                answer: raw("null"),
            },
            TaskStep::GivenUp { key: "q".into() },
            TaskStep::Completed(raw(r#"{"x":  1.50}"#)),
            TaskStep::Failed(failure.clone()),
            TaskStep::Rejected(failure),
            TaskStep::cancelled(),
        ];
        for step in steps {
            let mark = (step.bytes() > 2).then(|| BodyDigest {
                bytes: 7,
                hash: "sha256:00".into(),
            });
            let body = event_body(&step, mark.as_ref()).unwrap();
            let back: TaskEventBody<TaskStep> = serde_json::from_str(&body).unwrap();
            assert_eq!(event_body(&back.step, back.mark.as_ref()).unwrap(), body);
        }
    }
}
