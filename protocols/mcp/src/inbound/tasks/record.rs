//! A task as it is kept: what is known of it, and which steps it can take.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Principal, Question, TaskState};
use callboard_rpc::RpcError;
use serde_json::value::RawValue;

/// What the call came to: its result, or its error.
pub(crate) type Outcome = Arc<Result<Box<RawValue>, RpcError>>;

/// Whose a task is: to anybody else it doesn't exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner(String);

impl Owner {
    /// The principal; where that is nobody in particular, its session, as far as it has one. (Without one the task's id,
    /// which can't be guessed, is all that keeps strangers away.)
    pub(crate) fn of(principal: &Principal, session: Option<u64>) -> Self {
        use callboard_message::PrincipalKind::Anonymous;
        match session.filter(|_| principal.kind == Anonymous) {
            Some(session) => Self(format!("session:{session}")),
            None => Self(format!("{:?}:{}", principal.kind, principal.id)),
        }
    }
}

/// A question that waits for its answer.
#[derive(Debug, Clone)]
pub(crate) struct OpenQuestion {
    /// Used once in the life of a task.
    pub(crate) key: String,
    pub(crate) question: Arc<Question>,
}

/// What is known of a task.
#[derive(Debug, Clone)]
pub(crate) struct TaskRecord {
    /// Random: can't be guessed.
    pub(crate) id: String,
    pub(crate) owner: Owner,
    /// Its place in the order in which tasks began.
    pub(crate) number: u64,
    pub(crate) created: SystemTime,
    pub(crate) updated: SystemTime,
    /// How long it is kept, from its beginning.
    pub(crate) ttl: Duration,
    pub(crate) state: TaskState,
    /// For people: how far it has come, or why it ended.
    pub(crate) said: Option<String>,
    /// What it waits for.
    pub(crate) open: Vec<OpenQuestion>,
    /// What it came to, once it has ended otherwise than by its owner.
    pub(crate) outcome: Option<Outcome>,
}

/// What can happen to a task.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// It told how far it has come.
    Said(String),
    /// It asked.
    Asked(OpenQuestion),
    /// A question waits no more: it was answered, or given up.
    Settled(String),
    /// Its call ended.
    Ended(Outcome),
    /// Its owner wants it no more.
    Cancelled,
}

/// The task has ended, and stays as it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HasEnded;

impl TaskRecord {
    /// Takes a step. A task works, or waits for input as long as it has a question, until it ends for good.
    pub(crate) fn step(&mut self, step: Step, now: SystemTime) -> Result<(), HasEnded> {
        if self.state.is_terminal() {
            return Err(HasEnded);
        }
        match step {
            Step::Said(message) => self.said = Some(message),
            Step::Asked(question) => self.open.push(question),
            Step::Settled(key) => self.open.retain(|open| open.key != key),
            Step::Ended(outcome) => {
                self.said = outcome.as_ref().as_ref().err().map(|error| error.message.clone());
                self.state = if outcome.is_ok() { TaskState::Completed } else { TaskState::Failed };
                self.outcome = Some(outcome);
            }
            Step::Cancelled => {
                self.said = Some("cancelled by request".to_owned());
                self.state = TaskState::Canceled;
            }
        }
        if self.state.is_terminal() {
            self.open.clear();
        } else {
            self.state = if self.open.is_empty() { TaskState::Working } else { TaskState::InputRequired };
        }
        // Clocks are set back; a task isn't.
        self.updated = now.max(self.updated);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn begun() -> TaskRecord {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        TaskRecord {
            id: "t".into(),
            owner: Owner::of(&Principal::local_operator(), None),
            number: 1,
            created: now,
            updated: now,
            ttl: Duration::from_secs(60),
            state: TaskState::Working,
            said: None,
            open: Vec::new(),
            outcome: None,
        }
    }

    fn steps() -> impl Strategy<Value = Step> {
        let key = (0u8..4).prop_map(|n| format!("q{n}"));
        prop_oneof![
            "[a-z]{0,8}".prop_map(Step::Said),
            key.clone().prop_map(|key| Step::Asked(OpenQuestion { key, question: Arc::new(Question::roots()) })),
            key.prop_map(Step::Settled),
            Just(Step::Ended(Arc::new(Ok(RawValue::from_string("{}".into()).unwrap())))),
            Just(Step::Ended(Arc::new(Err(RpcError::new(-32603, "internal error"))))),
            Just(Step::Cancelled),
        ]
    }

    proptest! {
        /// Goal: an end is final, input is required just while something is open, time doesn't run back. Method: any steps
        /// at any times.
        #[test]
        fn any_steps_keep_the_rules(steps in prop::collection::vec((steps(), 0u64..2_000), 0..40)) {
            let mut task = begun();
            for (step, at) in steps {
                let before = task.clone();
                let taken = task.step(step, SystemTime::UNIX_EPOCH + Duration::from_secs(at));
                prop_assert_eq!(taken.is_err(), before.state.is_terminal());
                if taken.is_err() {
                    prop_assert_eq!(task.state, before.state);
                    prop_assert_eq!(task.updated, before.updated);
                    prop_assert_eq!(task.said, before.said);
                    prop_assert!(task.open.is_empty());
                    return Ok(());
                }
                prop_assert!(task.updated >= before.updated);
                prop_assert_eq!(task.state == TaskState::InputRequired, !task.open.is_empty());
                let has_outcome = matches!(task.state, TaskState::Completed | TaskState::Failed);
                prop_assert_eq!(task.outcome.is_some(), has_outcome);
            }
        }
    }

    /// Goal: a principal owns its tasks wherever it comes from; nobody in particular owns them by session. Method: rows.
    #[test]
    fn owners() {
        let key = Principal { id: "a".into(), ..Principal::agent("a") };
        assert_eq!(Owner::of(&key, Some(1)), Owner::of(&key, None));
        assert_ne!(Owner::of(&key, None), Owner::of(&Principal::agent("b"), None));
        let nobody = Principal::anonymous();
        assert_ne!(Owner::of(&nobody, Some(1)), Owner::of(&nobody, Some(2)));
        assert_ne!(Owner::of(&nobody, Some(1)), Owner::of(&nobody, None));
        // Not even by its name can a principal become a session.
        assert_ne!(Owner::of(&Principal::agent("1"), None), Owner::of(&nobody, Some(1)));
    }
}
