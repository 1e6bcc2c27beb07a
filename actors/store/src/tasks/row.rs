//! A task and its events as rows: what is looked for has a column, the rest is JSON in `body`.

use std::time::{Duration, UNIX_EPOCH};

use callboard_message::{Principal, RawObject};
use callboard_runtime::{
    BodyMark, LeaseView, NewTask, OpenQuestion, Task, TaskEvent, TaskId, TaskOutcome, TaskOwner,
    TaskStep,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::sql::{Row, ms, time};

/// What [`stored`] reads, in its order.
macro_rules! columns {
    () => {
        "id, number, scope, owner, key, parent, agent, message, class, on_restart, state, waiting, children_open, cancel, \
         lease_by, lease_epoch, lease_until_ms, created_ms, updated_ms, deadline_ms, expires_ms, last_event, \
         request_mark, body"
    };
}
pub(super) use columns;

/// A task with what only the store knows of it.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) task: Task,
    /// Of its latest lease, also where that is over.
    pub(super) epoch: u64,
    /// What stands for what it was begun with.
    pub(super) request_mark: String,
    /// The worker whose memory has its bodies, where the store may not have them.
    pub(super) held_by: Option<String>,
}

#[derive(Serialize)]
struct BodyOut<'a> {
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
}

#[derive(Deserialize)]
struct BodyIn {
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
}

/// A request may be `null`, which isn't none.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// An event as it is kept: the mark stands for the body of a step that the store may not have.
#[derive(Serialize, Deserialize)]
struct EventBody<S> {
    step: S,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<BodyMark>,
}

impl Stored {
    /// The JSON of what has no column.
    pub(super) fn body(&self) -> sqlx::Result<String> {
        let task = &self.task;
        encoded(&BodyOut {
            principal: &task.principal,
            request: task.request.as_deref(),
            needs: &task.needs,
            extra: &task.extra,
            said: task.said.as_deref(),
            open: &task.open,
            outcome: task.outcome.as_ref(),
            artifacts: &task.artifacts,
            held_by: self.held_by.as_deref(),
        })
    }

    /// When its lease is over, in milliseconds; none where it has none.
    pub(super) fn lease_until_ms(&self) -> Option<i64> {
        self.task.lease.as_ref().map(|lease| ms(lease.until))
    }
}

pub(super) fn stored(row: &Row) -> sqlx::Result<Stored> {
    let body: BodyIn = row.json(23)?;
    let epoch = row.get(15)?;
    let lease = row
        .get::<Option<String>>(14)?
        .zip(row.get(16)?)
        .map(|(by, until)| LeaseView { by, epoch, until });
    let new = NewTask {
        id: row.get(0)?,
        scope: row.get(2)?,
        owner: TaskOwner::named(row.get::<String>(3)?),
        principal: body.principal,
        key: row.get(4)?,
        agent: row.get(6)?,
        message: row.get(7)?,
        request: body.request,
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
        new,
        number: row.get(1)?,
        state: row.get(10)?,
        created: row.get(17)?,
        updated: row.get(18)?,
        said: body.said,
        open: body.open,
        outcome: body.outcome,
        artifacts: body.artifacts,
        last_event: row.get(21)?,
        waiting: row.get(11)?,
        children_open: row.get(12)?,
        cancel_wanted: row.get(13)?,
        lease,
    };
    Ok(Stored {
        task,
        epoch,
        request_mark: row.get(22)?,
        held_by: body.held_by,
    })
}

/// The JSON of an event's step.
pub(super) fn event_body(step: &TaskStep, mark: Option<&BodyMark>) -> sqlx::Result<String> {
    encoded(&EventBody {
        step,
        mark: mark.cloned(),
    })
}

/// An event from `number, at_ms, state, body`.
pub(super) fn event(row: &Row) -> sqlx::Result<TaskEvent> {
    let body: EventBody<TaskStep> = row.json(3)?;
    Ok(TaskEvent {
        number: row.get(0)?,
        at: row.get(1)?,
        state: row.get(2)?,
        step: body.step,
    })
}

/// A list of ids as a statement takes it.
pub(super) fn list<'a>(ids: impl IntoIterator<Item = &'a TaskId>) -> sqlx::Result<String> {
    encoded(&ids.into_iter().collect::<Vec<_>>())
}

fn encoded(body: &impl Serialize) -> sqlx::Result<String> {
    serde_json::to_string(body).map_err(|_| unreadable("a task's JSON"))
}

/// A row that this program didn't write. Serde's own words may quote the row, so they aren't part of it.
fn unreadable(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("{what} can't be read").into())
}

/// A time as it is read again: to the millisecond.
pub(super) fn whole_ms(at: std::time::SystemTime) -> std::time::SystemTime {
    time(ms(at))
}

/// The end of a lease that is over, whatever the clock says.
pub(super) const OVER: std::time::SystemTime = UNIX_EPOCH;

/// The end of a lease that begins now.
pub(super) fn until(now_ms: i64, lease: Duration) -> std::time::SystemTime {
    time(now_ms.saturating_add(crate::sql::duration_ms(lease)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use callboard_message::{Failure, Question};
    use serde_json::json;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    /// Goal: what has no column comes back as it was, to the byte. Method: a body with everything in it, also a request that
    /// is `null`, and JSON whose spelling a parser would change.
    #[test]
    fn a_body_reads_back() {
        let request = raw(r#"{"b": 1.0, "a":"\u0000\u00e9"}"#);
        let new = NewTask {
            request: Some(request),
            needs: vec![TaskId::new("n").unwrap()],
            extra: RawObject::of("shape", "tool_result"),
            ..NewTask::new(Principal::agent("ann"), "clinic", "ask", UNIX_EPOCH)
        };
        let mut task = Task::submitted(new, 1, 0, UNIX_EPOCH);
        task.said = Some("half way".into());
        task.open = vec![OpenQuestion {
            key: "q".into(),
            question: Arc::new(Question::elicit("who?", json!({}))),
        }];
        task.artifacts = vec![RawObject::of("name", "plan")];
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
            let stored = Stored {
                task: task.clone(),
                epoch: 3,
                request_mark: "m".into(),
                held_by: Some("node#1".into()),
            };
            let body = stored.body().unwrap();
            let back: BodyIn = serde_json::from_str(&body).unwrap();
            assert_eq!(
                back.request.as_ref().map(|r| r.get()),
                task.request.as_ref().map(|r| r.get())
            );
            assert_eq!(back.held_by.as_deref(), Some("node#1"));
            let new = NewTask {
                request: back.request,
                needs: back.needs,
                extra: back.extra,
                ..task.new.clone()
            };
            let again = Task {
                new,
                said: back.said,
                open: back.open,
                outcome: back.outcome,
                ..task.clone()
            };
            let again = Task {
                artifacts: back.artifacts,
                ..again
            };
            assert_eq!(
                Stored {
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
            TaskStep::History(RawObject::of("a", 1)),
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
            let mark = (step.bytes() > 2).then(|| BodyMark {
                bytes: 7,
                hash: "sha256:00".into(),
            });
            let body = event_body(&step, mark.as_ref()).unwrap();
            let back: EventBody<TaskStep> = serde_json::from_str(&body).unwrap();
            assert_eq!(event_body(&back.step, back.mark.as_ref()).unwrap(), body);
        }
    }
}
