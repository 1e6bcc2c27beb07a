//! Delivery to agents that converse (A2A agents, and others that handle `Converse`).
//!
//! A message counts as delivered at the agent's first sign of activity. The agent's answer becomes
//! a new message in the same thread.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::Converse;
use callboard_message::{
    Answer, Artifact, Content, Failure, LogMessage, Progress, Question, ToolResult,
};
use callboard_runtime::{AgentRef, CallContext, Caller};
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::DeliveryService;
use crate::post::ANSWER_KEY_PREFIX;
use crate::text::OutgoingMail;

/// Maximum duration of one attempt to deliver a message to an agent. After it the attempt counts as
/// failed, and the message is delivered again later.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time that a conversing agent has to answer a delivered message. After it no answer is
/// posted; the message stays delivered.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum number of conversations of one delivery queue that are open at once. Further deliveries
/// wait until an agent has answered.
pub const CONVERSATIONS_MAX: usize = 64;

/// Limit of concurrent conversations of one delivery queue. Clones share it.
#[derive(Clone)]
pub(crate) struct ConversationLimit(Arc<Semaphore>);

impl Default for ConversationLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CONVERSATIONS_MAX)))
    }
}

impl ConversationLimit {
    /// Waits for capacity for one more conversation.
    ///
    /// # Errors
    /// `Overloaded` if none ended within [`DELIVERY_TIMEOUT`].
    pub async fn acquire(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let turn = tokio::time::timeout(DELIVERY_TIMEOUT, self.0.clone().acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok);
        turn.ok_or_else(|| {
            Failure::overloaded(
                "the agent is answering as many messages as it may at once: try again later",
            )
        })
    }
}

/// Caller of a conversation that only records whether the agent has shown activity: progress, a log
/// message, an artifact or a question. Questions fail with `NoResponder`.
struct ActivityCaller(watch::Sender<bool>);

impl ActivityCaller {
    fn record_activity(&self) {
        self.0.send_replace(true);
    }
}

impl Caller for ActivityCaller {
    fn progress(&self, _: Progress) {
        self.record_activity();
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.record_activity();
        let nobody =
            Failure::no_responder("mail has no client to ask: reply with the question instead");
        Box::pin(std::future::ready(Err(nobody)))
    }

    fn log(&self, _: LogMessage) {
        self.record_activity();
    }

    fn artifact(&self, _: Artifact) {
        self.record_activity();
    }
}

/// Delivers a message to an agent, for the member `id`, as a `Converse` call. Returns once the
/// agent has shown activity or answered. The answer is awaited in the background and posted as a
/// message; `turn` is held until then.
///
/// # Errors
/// Returns the agent's failure before its first activity, or `TimedOut` if it showed none within
/// [`DELIVERY_TIMEOUT`]; the call is then aborted.
pub(crate) async fn deliver(
    room: &Arc<DeliveryService>,
    agent: &AgentRef,
    outgoing: &Arc<OutgoingMail>,
    id: &Arc<str>,
    call: CallContext,
    turn: OwnedSemaphorePermit,
) -> Result<(), Failure> {
    let new = &outgoing.letter.new;
    let Converse(message) =
        Converse::from_content([Content::text(room.directory.display_text(outgoing, id))]);
    let message = Converse(message.with("key", &new.id).with("context", new.thread()));
    let (activity, mut observed) = watch::channel(false);
    let has_it = observed.clone();
    let call = Arc::new(call.with_caller(Arc::new(ActivityCaller(activity))));
    let (room, agent, outgoing, id) = (room.clone(), agent.clone(), outgoing.clone(), id.clone());
    let mut conversation = tokio::spawn(async move {
        let answer = agent
            .ask(message)
            .within_call(Some(call))
            .within(ANSWER_TIMEOUT)
            .await;
        let _turn = turn;
        post_answer(
            &room,
            &outgoing,
            &id,
            answer.map_err(Failure::from).and_then(|reply| reply)?,
        )
        .await
    });
    tokio::select! {
        biased;
        ended = &mut conversation => match ended.unwrap_or_else(|_| Err(Failure::internal("the delivery to the agent panicked: this is a bug, report it"))) {
            // A failure after the first activity doesn't undo the delivery.
            Err(_) if *has_it.borrow() => Ok(()),
            ended => ended,
        },
        Ok(_) = observed.wait_for(|observed| *observed) => Ok(()),
        () = tokio::time::sleep(DELIVERY_TIMEOUT) => {
            conversation.abort();
            Err(Failure::timed_out(format!(
                "the agent showed no activity in {} s",
                DELIVERY_TIMEOUT.as_secs()
            )))
        }
    }
}

/// Posts an agent's answer to the message `outgoing` as a message to its sender. If `outgoing` is
/// itself such an answer, nothing is posted, so that two agents don't answer each other endlessly.
/// `id` is the answering member. A failure to post is only logged.
///
/// # Errors
/// `Rejected` if the answer is an error result.
async fn post_answer(
    room: &Arc<DeliveryService>,
    outgoing: &OutgoingMail,
    id: &str,
    answer: ToolResult,
) -> Result<(), Failure> {
    if answer.is_error() {
        return Err(Failure::rejected(
            "the agent answered the message with an error",
        ));
    }
    let letter = &outgoing.letter;
    let is_answer = letter
        .new
        .key
        .as_ref()
        .is_some_and(|key| key.starts_with(ANSWER_KEY_PREFIX));
    if !is_answer
        && let Err(failure) = room
            .post
            .post_agent_answer(letter, id, &answer.texts())
            .await
    {
        callboard_message::log::warn!(letter = letter.new.id, member = id, kind = %failure.kind, "failed to store an agent's answer to mail");
    }
    Ok(())
}
