//! A store that outlives its server.

use std::sync::Arc;

use callboard_message::TaskState::{Completed, InputRequired, Working};
use callboard_runtime::MemoryTaskStore;

use super::kit::{
    LOOKS_FOR, Talker, Usher, made, paused, says, says_as, says_to, sent, serve_with, somebody,
};

/// Goal: a server that doesn't run a task can answer and cancel it: the worker is notified, and the
/// history has the message. Method: two servers on one store at once; the question is asked by the
/// first and answered by the second.
#[test]
fn another_server_answers() {
    paused(async |system| {
        let (tasks, ann) = (Arc::new(MemoryTaskStore::default()), somebody("ann"));
        let agent = system.spawn(Talker);
        let (here, there) = (serve_with(&agent, &tasks), serve_with(&agent, &tasks));
        let asks = sent(&here, &ann, says("ask name")).await;
        let done = sent(&there, &ann, says_to(&asks, "m2", "Ann")).await;
        assert_eq!(done.status.state, Completed);
        let said: Vec<_> = done
            .history
            .iter()
            .flatten()
            .map(|said| said.message_id.clone())
            .collect();
        assert_eq!((said.len(), &*said[0], &*said[2]), (3, "m1", "m2"));
        let waits = sent(&here, &ann, says_as("m3", "ask name")).await;
        let ended = there.cancel_task(&ann, &waits.id).await.unwrap();
        assert_eq!(ended.status.state, callboard_message::TaskState::Canceled);
    });
}

/// Goal: an answer to a question from before a restart is accepted when it is asked again, not
/// rejected meanwhile. Method: a task that asks 2 s after it was begun, taken over by another
/// server; the answer comes before that, when the task works.
#[test]
fn an_answer_waits_for_its_question() {
    paused(async |system| {
        let (tasks, ann) = (Arc::new(MemoryTaskStore::default()), somebody("ann"));
        let agent = system.spawn(Usher);
        let first = serve_with(&agent, &tasks);
        let asks = sent(&first, &ann, says("{}")).await;
        assert_eq!(asks.status.state, InputRequired);
        first.stop().await;

        let second = serve_with(&agent, &tasks);
        tokio::time::sleep(LOOKS_FOR / 2).await;
        assert_eq!(
            second
                .get_task(&ann, &asks.id, None)
                .await
                .unwrap()
                .status
                .state,
            Working
        );
        let done = sent(&second, &ann, says_to(&asks, "m2", "12A")).await;
        assert_eq!(done.status.state, Completed);
        assert!(made(&done)[0].1.contains("12A"), "{:?}", made(&done));
    });
}
