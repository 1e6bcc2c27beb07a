//! Elicitations of calls that wait for a person at this node, beside the person at the caller.

use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use callboard_message::{
    Answer, CallId, Elicitation, ElicitationAction, ElicitationAnswer, Failure, FailureKind,
    Principal,
};
use tokio::sync::oneshot;

use crate::audit::AuditEntry;
use crate::node_events::ContentFilter;
use crate::store::AuditLog;
use crate::sync::Mutex;

/// Maximum number of questions that wait at once. Further ones are put to the caller alone.
pub const WAITING_QUESTIONS_MAX: usize = 1_000;
/// Maximum number of questions of one principal that wait at once. Further ones are put to the caller alone.
pub const WAITING_QUESTIONS_PER_PRINCIPAL_MAX: usize = 100;

/// Elicitation that waits for an answer.
#[derive(derive_more::Debug)]
pub struct WaitingQuestion {
    /// Id, which is different for each question.
    pub id: CallId,
    /// Call that waits for the answer.
    pub call: CallId,
    /// Name by which policies know the agent that was called.
    pub agent: Box<str>,
    /// Principal of the call.
    pub principal: Arc<Principal>,
    /// Text and form.
    #[debug(skip)]
    pub question: Elicitation,
    /// Time of the question.
    pub asked_at: SystemTime,
}

/// Error of an answer to a waiting question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitingQuestionError {
    /// There is none with this id.
    #[error("no question waits for this answer: it has been answered, or its call has ended")]
    Unknown,
    /// The answer doesn't fit the question.
    #[error("the answer doesn't fit the form: {}", .0.join("; "))]
    Invalid(Vec<String>),
}

/// Returns the name of an answer's action, as MCP has it.
pub(crate) fn action_name(answer: &ElicitationAnswer) -> &'static str {
    match answer.action() {
        ElicitationAction::Accept => "accept",
        ElicitationAction::Decline => "decline",
        ElicitationAction::Cancel => "cancel",
    }
}

/// Answer with the principal that gave it.
type GivenAnswer = (ElicitationAnswer, Arc<Principal>);

/// Questions of calls that wait for a person. They are in memory: a call and its questions end with the node.
#[derive(Default)]
pub struct WaitingQuestions {
    is_open: AtomicBool,
    /// Agents whose questions may wait here, by the names that policies know.
    agents: OnceLock<ContentFilter>,
    waiting: Mutex<Vec<(Arc<WaitingQuestion>, oneshot::Sender<GivenAnswer>)>>,
}

impl WaitingQuestions {
    /// Makes elicitations by form of the calls of some agents wait here too from now on, for which `agents` returns true.
    /// Callers then count as able to answer them. Does nothing the second time.
    pub fn open(&self, agents: ContentFilter) {
        if self.agents.set(agents).is_ok() {
            self.is_open.store(true, Release);
        }
    }

    /// Returns whether elicitations in calls of an agent wait here.
    pub fn is_open_for(&self, agent: &str) -> bool {
        self.is_open.load(Acquire) && self.agents.get().is_some_and(|agents| agents(agent))
    }

    /// Returns the questions, oldest first.
    pub fn list(&self) -> Vec<Arc<WaitingQuestion>> {
        let waiting = self.waiting.lock();
        let answerable = waiting.iter().filter(|(_, answer)| !answer.is_closed());
        answerable.map(|(question, _)| question.clone()).collect()
    }

    /// Answers a question as the person `by`, who is recorded in the audit.
    ///
    /// # Errors
    /// [`WaitingQuestionError`]; the question then waits on.
    pub fn answer(
        &self,
        audit: &AuditLog,
        id: CallId,
        by: &Arc<Principal>,
        answer: ElicitationAnswer,
    ) -> Result<(), WaitingQuestionError> {
        let (question, sender) = {
            let mut waiting = self.waiting.lock();
            let found = waiting.iter().position(|(question, _)| question.id == id);
            let at = found.ok_or(WaitingQuestionError::Unknown)?;
            let (question, _) = waiting.get(at).ok_or(WaitingQuestionError::Unknown)?;
            let faults = question.question.check_answer(&answer);
            if !faults.is_empty() {
                return Err(WaitingQuestionError::Invalid(faults));
            }
            waiting.remove(at)
        };
        let entry = AuditEntry::new("question.answered")
            .with_principal(by)
            .with_call(question.call)
            .with_agent(&*question.agent)
            .with_detail("action", action_name(&answer));
        sender
            .send((answer, by.clone()))
            .map_err(|_| WaitingQuestionError::Unknown)?;
        audit.try_enqueue(entry);
        Ok(())
    }

    /// Adds a question. `None` if too many wait.
    fn add(&self, question: Arc<WaitingQuestion>) -> Option<oneshot::Receiver<GivenAnswer>> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|(_, answer)| !answer.is_closed());
        let is_own = |other: &WaitingQuestion| {
            other.principal.kind == question.principal.kind
                && other.principal.id == question.principal.id
        };
        let own = waiting.iter().filter(|(other, _)| is_own(other)).count();
        if waiting.len() >= WAITING_QUESTIONS_MAX || own >= WAITING_QUESTIONS_PER_PRINCIPAL_MAX {
            return None;
        }
        let (sender, answered) = oneshot::channel();
        waiting.push((question, sender));
        Some(answered)
    }

    /// Waits for the answer of the caller, or of a person at this node, whichever is first. If the caller can't answer,
    /// waits for the person alone. Returns the person who answered here.
    pub(crate) async fn first_answer(
        &self,
        question: WaitingQuestion,
        caller: impl Future<Output = Result<Answer, Failure>>,
    ) -> Result<(Answer, Option<Arc<Principal>>), Failure> {
        let Some(mut answered) = self.add(Arc::new(question)) else {
            return caller.await.map(|answer| (answer, None));
        };
        let given = |(answer, by): GivenAnswer| Ok((Answer::Elicit(answer), Some(by)));
        // Only a node that ends drops the sender.
        let withdrawn = || Err(Failure::cancelled("the question was withdrawn"));
        let by_caller = tokio::select! {
            biased;
            answer = &mut answered => return answer.map_or_else(|_| withdrawn(), given),
            answer = caller => answer,
        };
        match by_caller {
            Err(failure) if failure.kind == FailureKind::NoResponder => {
                answered.await.map_or_else(|_| withdrawn(), given)
            }
            answer => {
                // An answer that was accepted here counts.
                answered.close();
                match answered.try_recv() {
                    Ok(here) => given(here),
                    Err(_) => answer.map(|answer| (answer, None)),
                }
            }
        }
    }
}
