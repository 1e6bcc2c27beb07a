//! Mail for agents that converse: those of A2A, and whoever else takes words.
//!
//! Such an agent has a message as soon as it gives any sign of it. What it says to it becomes a message of its own, in the same
//! thread.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::Converse;
use callboard_message::{Answer, Artifact, Content, Failure, Log, Progress, Question, ToolResult};
use callboard_runtime::{AgentRef, CallMeta, Caller};
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Shared;
use super::text::Handed;

/// Maximum duration of one delivery.
pub const DELIVER_WITHIN: Duration = Duration::from_secs(60);
/// How long such an agent may take to answer a message that it has.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(600);
/// How the key of an answer begins; the id of what it answers follows.
pub(super) const ANSWER_KEY: &str = "a2a:";

/// Letters of one line that are being answered at once: the next is said when an answer is there.
pub const TALKS_AT_ONCE_MAX: usize = 64;

/// The talks of a line.
pub(super) struct Talks(Arc<Semaphore>);

impl Default for Talks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TALKS_AT_ONCE_MAX)))
    }
}

impl Talks {
    /// Waits until one more may begin.
    ///
    /// # Errors
    /// `Overloaded` where none ended within [`DELIVER_WITHIN`].
    pub async fn begin(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let turn = tokio::time::timeout(DELIVER_WITHIN, self.0.clone().acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok);
        turn.ok_or_else(|| Failure::overloaded("the agent answers too many messages at once"))
    }
}

/// Notes any sign of life. Nobody is there to answer a question: its message is delivered all the same.
struct Sign(watch::Sender<bool>);

impl Sign {
    fn seen(&self) {
        self.0.send_replace(true);
    }
}

impl Caller for Sign {
    fn progress(&self, _: Progress) {
        self.seen();
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.seen();
        let nobody = Failure::nobody_to_ask("this is mail: answer it with what you would ask");
        Box::pin(std::future::ready(Err(nobody)))
    }

    fn log(&self, _: Log) {
        self.seen();
    }

    fn artifact(&self, _: Artifact) {
        self.seen();
    }
}

/// Says a letter to an agent. Ends when the agent has it; what it answers is waited for beside that, and its `turn` with it.
///
/// # Errors
/// The agent's own, or `TimedOut` where it gave no sign within [`DELIVER_WITHIN`].
pub(super) async fn deliver(
    room: &Arc<Shared>,
    agent: &AgentRef,
    handed: &Arc<Handed>,
    id: &Arc<str>,
    call: CallMeta,
    turn: OwnedSemaphorePermit,
) -> Result<(), Failure> {
    let new = &handed.letter.new;
    let Converse(said) = Converse::of([Content::text(room.text(handed, id))]);
    let said = Converse(said.with("key", &new.id).with("context", new.thread()));
    let (sign, mut seen) = watch::channel(false);
    let has_it = seen.clone();
    let call = Arc::new(call.with_caller(Arc::new(Sign(sign))));
    let (room, agent, handed, id) = (room.clone(), agent.clone(), handed.clone(), id.clone());
    let mut talk = tokio::spawn(async move {
        let answer = agent
            .ask(said)
            .within_call(Some(call))
            .within(ANSWER_WITHIN)
            .await;
        let _turn = turn;
        answered(
            &room,
            &handed,
            &id,
            answer.map_err(Failure::from).and_then(|reply| reply)?,
        )
        .await
    });
    tokio::select! {
        biased;
        ended = &mut talk => match ended.unwrap_or_else(|_| Err(Failure::internal("the delivery broke off"))) {
            // However it went on: it has it.
            Err(_) if *has_it.borrow() => Ok(()),
            ended => ended,
        },
        Ok(_) = seen.wait_for(|seen| *seen) => Ok(()),
        () = tokio::time::sleep(DELIVER_WITHIN) => {
            talk.abort();
            Err(Failure::timed_out("the agent gave no sign"))
        }
    }
}

/// Makes a message of an agent's answer. An answer to an answer isn't one: two that always answer would never end.
async fn answered(
    room: &Arc<Shared>,
    handed: &Handed,
    id: &str,
    answer: ToolResult,
) -> Result<(), Failure> {
    if answer.is_error() {
        return Err(Failure::rejected("the agent refused it"));
    }
    let letter = &handed.letter;
    let is_answer = letter
        .new
        .key
        .as_ref()
        .is_some_and(|key| key.starts_with(ANSWER_KEY));
    if !is_answer && let Err(failure) = room.answer(letter, id, &answer.texts()).await {
        callboard_message::log::warn!(letter = letter.new.id, member = id, kind = %failure.kind, "an answer to mail isn't kept");
    }
    Ok(())
}
