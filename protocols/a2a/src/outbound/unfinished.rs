//! What is left to do about a task whose caller has left.

use futures::future::BoxFuture;

use super::error::PeerError;
use super::peer::Peer;
use super::story::Story;
use super::stream::Events;
use crate::wire::StreamResponse;

/// A task that hasn't ended: dropped with it, the agent is told that nobody waits any more.
pub(super) struct Unfinished {
    pub(super) peer: Peer,
    pub(super) task: Option<String>,
    /// A stream that hasn't said yet which task it is of.
    pub(super) beginning: Option<BoxFuture<'static, Result<Begun, PeerError>>>,
}

/// A stream and its first event.
pub(super) type Begun = (Events, Option<StreamResponse>);

impl Unfinished {
    pub(super) fn follow(&mut self, story: &Story) {
        let is_open = !story.has_ended() && story.message.is_none() && !story.task.is_empty();
        self.task = is_open.then(|| story.task.clone());
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let (task, beginning, peer) = (self.task.take(), self.beginning.take(), self.peer.clone());
        if task.is_none() && beginning.is_none() {
            return;
        }
        self.peer.leave(async move {
            let begun = async { story_of(beginning?.await.ok()?.1?).filter(|story| !story.has_ended()) };
            let task = match task {
                Some(task) => task,
                None => match begun.await {
                    Some(story) => story.task,
                    None => return,
                },
            };
            if let Err(error) = peer.cancel(&task).await {
                callboard_message::log::debug!(%error, "a remote agent isn't told of a cancelled call");
            }
        });
    }
}

fn story_of(event: StreamResponse) -> Option<Story> {
    let mut story = Story::default();
    story.hear(&event, false).ok()?;
    (!story.task.is_empty() && story.message.is_none()).then_some(story)
}
