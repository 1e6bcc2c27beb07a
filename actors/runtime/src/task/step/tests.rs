use std::sync::Arc;
use std::time::Duration;

use callboard_message::{DataClass, MessageSpec, Principal, Question};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::task::{LeaseView, NewTask, TaskOwner};

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

fn submitted() -> Task {
    Task::new_submitted(
        NewTask::new(Principal::local_operator(), "a", "m", at(9_000)),
        1,
        0,
        at(1_000),
    )
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn asked(key: &str) -> TaskStep {
    TaskStep::Asked(OpenQuestion {
        key: key.to_owned(),
        question: Arc::new(Question::roots()),
    })
}

fn steps() -> impl Strategy<Value = TaskStep> {
    let key = (0u8..4).prop_map(|n| format!("q{n}"));
    let ends = prop_oneof![
        Just(TaskStep::Completed(raw("{}"))),
        Just(TaskStep::Failed(Failure::internal("no"))),
        Just(TaskStep::Rejected(Failure::invalid("no"))),
        Just(TaskStep::cancelled()),
    ];
    prop_oneof![
        3 => Just(TaskStep::Start),
        2 => "[a-z]{0,8}".prop_map(TaskStep::Said),
        1 => Just(TaskStep::History(RawObject::new().with("role", "user"))),
        1 => Just(TaskStep::Artifact(RawObject::new().with("name", "a"))),
        4 => key.clone().prop_map(|key| asked(&key)),
        1 => Just(TaskStep::AuthWanted("sign in".to_owned())),
        2 => key.clone().prop_map(|key| TaskStep::Answered { key, answer: raw("1") }),
        2 => key.prop_map(|key| TaskStep::GivenUp { key }),
        1 => ends,
    ]
}

proptest! {
    /// Goal: an end is final, input is required exactly while a question is open, steps are atomic,
    /// event numbers have no gap, and time never runs back. Method: random steps at random times,
    /// with and without open children.
    #[test]
    fn any_steps_keep_the_rules(
        steps in prop::collection::vec((steps(), 0u64..2_000), 0..60), open_children in 0u32..2, pending_needs in 0u32..2,
    ) {
        let mut task = Task { open_children, pending_needs, ..submitted() };
        for (step, second) in steps {
            let before = task.clone();
            match task.apply(&step, at(second)) {
                Ok(state) => {
                    prop_assert!(!before.state.is_terminal());
                    prop_assert_eq!(state, task.state);
                    prop_assert_eq!(task.last_event, before.last_event + 1);
                    prop_assert!(task.updated >= before.updated);
                    prop_assert_eq!(step.is_end(), state.is_terminal());
                    prop_assert!(state != TaskState::Completed || open_children == 0);
                    prop_assert!(pending_needs == 0 || matches!(state, TaskState::Submitted | TaskState::Failed | TaskState::Rejected | TaskState::Canceled));
                }
                Err(error) => {
                    let has_ended = matches!(error, TaskError::HasEnded(_));
                    prop_assert_eq!(has_ended, before.state.is_terminal());
                    prop_assert_eq!(
                        (task.state, task.updated, &task.status_message, task.last_event, &task.open_questions, &task.artifacts),
                        (before.state, before.updated, &before.status_message, before.last_event, &before.open_questions, &before.artifacts)
                    );
                    prop_assert_eq!(task.outcome.is_some(), before.outcome.is_some());
                }
            }
            prop_assert_eq!(task.state == TaskState::InputRequired, !task.open_questions.is_empty());
            prop_assert_eq!(task.outcome.is_some(), task.state.is_terminal() && task.state != TaskState::Canceled);
        }
    }

    /// Goal: the recovery steps of any interrupted task can be applied, and leave it working, ended
    /// or not started. Method: random steps before it.
    #[test]
    fn recovery_can_be_taken(steps in prop::collection::vec(steps(), 0..40), resumes: bool, cancelled: bool) {
        let on_restart = if resumes { OnRestart::Resume } else { OnRestart::Fail };
        let mut task = submitted();
        task.on_restart = on_restart;
        for step in steps {
            let _ = task.apply(&step, at(1_000));
        }
        if task.state.is_terminal() {
            return Ok(());
        }
        task.cancel_requested = cancelled;
        let begun = task.state != TaskState::Submitted;
        task.apply_all(task.recovery_steps(), at(1_000)).unwrap();
        let expected = match (cancelled, begun, resumes) {
            (true, ..) => TaskState::Canceled,
            (_, false, _) => TaskState::Submitted,
            (.., true) => TaskState::Working,
            (.., false) => TaskState::Failed,
        };
        prop_assert_eq!(task.state, expected);
    }

    /// Goal: a stored step reads back unchanged. Method: random steps, through JSON.
    #[test]
    fn steps_read_back(step in steps()) {
        let text = serde_json::to_string(&step).unwrap();
        prop_assert!(text.starts_with(&format!(r#"{{"kind":"{}""#, step.name())), "{}", text);
        let read: TaskStep = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}

/// Goal: each state allows the right steps. Method: a table.
/// Rows: B-55.
#[test]
fn legal_steps() {
    use TaskState::*;
    let all = [
        TaskStep::Start,
        TaskStep::Said("s".into()),
        TaskStep::Artifact(RawObject::new()),
        asked("new"),
        TaskStep::AuthWanted("a".into()),
        TaskStep::Answered {
            key: "q".into(),
            answer: raw("1"),
        },
        TaskStep::Completed(raw("1")),
        TaskStep::Failed(Failure::internal("f")),
        TaskStep::Rejected(Failure::internal("r")),
        TaskStep::cancelled(),
    ];
    let after = [
        (
            Submitted,
            [
                Some(Working),
                Some(Submitted),
                None,
                None,
                None,
                None,
                None,
                Some(Failed),
                Some(Rejected),
                Some(Canceled),
            ],
        ),
        (
            Working,
            [
                Some(Working),
                Some(Working),
                Some(Working),
                Some(InputRequired),
                Some(AuthRequired),
                None,
                Some(Completed),
                Some(Failed),
                Some(Rejected),
                Some(Canceled),
            ],
        ),
        (
            InputRequired,
            [
                None,
                Some(InputRequired),
                Some(InputRequired),
                Some(InputRequired),
                None,
                Some(Working),
                Some(Completed),
                Some(Failed),
                None,
                Some(Canceled),
            ],
        ),
        (
            AuthRequired,
            [
                Some(Working),
                Some(AuthRequired),
                Some(AuthRequired),
                None,
                None,
                None,
                Some(Completed),
                Some(Failed),
                None,
                Some(Canceled),
            ],
        ),
    ];
    for (from, expected) in after {
        for (step, expected) in all.iter().zip(expected) {
            let mut task = submitted();
            let way = match from {
                Submitted => vec![],
                Working => vec![TaskStep::Start],
                InputRequired => vec![TaskStep::Start, asked("q")],
                _ => vec![TaskStep::Start, TaskStep::AuthWanted("a".into())],
            };
            task.apply_all(way, at(1_000)).unwrap();
            assert_eq!(task.state, from);
            assert_eq!(
                task.apply(step, at(1_000)).ok(),
                expected,
                "{from} {step:?}"
            );
        }
    }
}

/// Goal: a task with too many status texts still ends and has bounded history. Method: the limits,
/// and one more.
#[test]
fn events_have_a_limit() {
    let mut task = Task {
        last_event: TASK_STATUS_EVENTS_MAX - 1,
        ..submitted()
    };
    let said = || vec![TaskStep::Said("on it".into())];
    assert_eq!(task.apply_all(said(), at(1_000)).unwrap().len(), 1);
    assert_eq!(task.apply_all(said(), at(1_000)).unwrap().len(), 0);
    task.last_event = TASK_EVENTS_MAX_DEFAULT - 1;
    assert_eq!(
        task.apply_all(vec![TaskStep::Start], at(1_000)).unwrap()[0].number,
        TASK_EVENTS_MAX_DEFAULT
    );
    let refused = task
        .apply_all(vec![TaskStep::Start], at(1_000))
        .unwrap_err();
    assert_eq!(
        refused,
        TaskError::TooManyEvents {
            events_max: TASK_EVENTS_MAX_DEFAULT
        }
    );
    let events = task
        .apply_all(vec![TaskStep::Completed(raw("1"))], at(1_000))
        .unwrap();
    assert_eq!(
        (events[0].number, events[0].state),
        (TASK_EVENTS_MAX_DEFAULT + 1, TaskState::Completed)
    );
}

/// Goal: a task during which workers are lost fails after some reruns, and a bystander that waits
/// for an answer each time goes on. Method: one of each, with as many lost workers as are allowed,
/// and one more.
#[test]
fn only_working_tasks_count_lost_workers() {
    let goes_on = |waits: bool| {
        let lease = || LeaseView {
            worker: "w".to_owned(),
            epoch: 1,
            until: at(1_000),
        };
        let mut task = submitted();
        task.on_restart = OnRestart::Resume;
        task.set_lease(lease());
        task.apply(&TaskStep::Start, at(1_000)).unwrap();
        for _ in 0..=TASK_RERUNS_MAX_DEFAULT {
            if waits {
                task.apply(&asked("q"), at(1_000)).unwrap();
            }
            let steps = task.recovery_steps();
            if steps.iter().any(TaskStep::is_end) {
                return false;
            }
            task.apply_all(steps, at(1_000)).unwrap();
            task.set_lease(lease());
        }
        true
    };
    assert!(!goes_on(false));
    assert!(goes_on(true));
}

/// Goal: a principal owns its tasks across sessions; an anonymous one owns them by session. Method:
/// rows.
#[test]
fn owners() {
    let [a, b] = ["a", "b"].map(Principal::agent);
    let nobody = Principal::anonymous();
    let session = |n: u32| format!("run:{n}");
    assert_eq!(
        TaskOwner::from_principal(&a, Some(&session(1))),
        TaskOwner::from_principal(&a, None)
    );
    assert_ne!(
        TaskOwner::from_principal(&a, None),
        TaskOwner::from_principal(&b, None)
    );
    assert_ne!(
        TaskOwner::from_principal(&nobody, Some(&session(1))),
        TaskOwner::from_principal(&nobody, Some(&session(2)))
    );
    assert_ne!(
        TaskOwner::from_principal(&nobody, Some(&session(1))),
        TaskOwner::from_principal(&nobody, None)
    );
    // A principal can't impersonate a session by its name.
    assert_ne!(
        TaskOwner::from_principal(&Principal::agent("run:1"), None),
        TaskOwner::from_principal(&nobody, Some(&session(1)))
    );
}

/// Goal: only messages annotated as idempotent are restarted. Method: rows of annotations.
#[test]
fn restart_policies() {
    let of = |annotations: serde_json::Value| {
        let more = RawObject::new().with("annotations", annotations);
        let (input_schema, name) = (json!({}), "m".to_owned());
        OnRestart::from_spec(&MessageSpec {
            name,
            description: String::new(),
            input_schema,
            output_schema: None,
            more,
        })
    };
    assert_eq!(of(json!({ "readOnlyHint": true })), OnRestart::Resume);
    assert_eq!(
        of(json!({ "idempotentHint": true, "readOnlyHint": false })),
        OnRestart::Resume
    );
    for other in [
        json!({}),
        json!({ "idempotentHint": false }),
        json!({ "readOnlyHint": "true" }),
        json!(null),
    ] {
        assert_eq!(of(other), OnRestart::Fail);
    }
}

/// Goal: debug output contains no text of people or agents. Method: a marker word in every body.
#[test]
fn debug_shows_sizes_only() {
    let body = || RawObject::new().with("text", "Maria");
    let question = Arc::new(Question::elicit("Maria", json!({})));
    let mut new = NewTask::new(Principal::local_operator(), "a", "m", at(9_000));
    (new.request, new.extra, new.class) = (Some(raw(r#""Maria""#)), body(), DataClass::Personal);
    let shown = format!("{new:?}");
    let mut task = Task::new_submitted(new, 1, 0, at(1_000));
    let steps = vec![
        TaskStep::Start,
        TaskStep::Said("Maria".into()),
        TaskStep::Artifact(body()),
        TaskStep::Asked(OpenQuestion {
            key: "q".into(),
            question,
        }),
        TaskStep::Completed(raw(r#""Maria""#)),
    ];
    let events = task.apply_all(steps[..4].to_vec(), at(1_000)).unwrap();
    let shown = format!(
        "{shown}{task:?}{events:?}{steps:?}{:?}",
        task.open_questions
    );
    task.apply(&steps[4], at(1_000)).unwrap();
    let shown = format!("{shown}{task:?}{:?}", task.outcome);
    assert!(!shown.contains("Maria"), "{shown}");
}
