//! Messages that come again.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Principal, RawObject};
use callboard_runtime::{AgentRef, MemoryTasks};

use super::kit::{Talker, all, options, paused, says, sent, serve_with, somebody, talking};
use crate::Dialect;
use crate::inbound::calls::{Calls, Who};
use crate::inbound::options::A2aOptions;
use crate::wire::{
    ListTasksRequest, Part, SendMessageConfiguration, SendMessageRequest, StreamResponse,
    TaskPushNotificationConfig,
};

fn changed(change: impl FnOnce(&mut SendMessageRequest)) -> SendMessageRequest {
    let mut request = says("hello");
    change(&mut request);
    request
}

/// Wants to be told of all that happens.
fn configured() -> SendMessageConfiguration {
    let push = TaskPushNotificationConfig {
        url: "https://hook.example/".into(),
        ..Default::default()
    };
    SendMessageConfiguration {
        task_push_notification_config: Some(push),
        ..Default::default()
    }
}

fn serving(agent: &AgentRef, change: impl FnOnce(&mut A2aOptions)) -> Arc<Calls> {
    let mut options = options();
    change(&mut options);
    Calls::new(agent.clone(), Arc::new(options))
}

/// Goal: a message that comes again is answered by the task that it began, whether it is sent or streamed; one that says anything else
/// under its id, or is another's, begins a task. Method: rows; then the list has no more than those.
#[test]
fn a_message_that_comes_again_begins_nothing() {
    talking(async |calls, ann| {
        calls.keep_pushes_with(Arc::new(|_, _, _| Box::pin(std::future::ready(Ok(())))));
        let first = sent(&calls, &ann, says("hello")).await;
        assert!(sent(&calls, &ann, says("hello")).await == first);
        let told = all(calls.stream(&ann, says("hello")).await.unwrap()).await;
        assert!(matches!(&told[0].event, StreamResponse::Task(task) if task.id == first.id));
        assert!(
            told.last().unwrap().ends && told.len() > 1,
            "all of it is told"
        );

        let others = [
            says("hello!"),
            changed(|request| request.message.message_id = "m2".into()),
            changed(|request| request.message.context_id = "c".into()),
            changed(|request| request.message.parts.push(Part::text("more"))),
            changed(|request| request.configuration = Some(configured())),
            changed(|request| request.message.metadata = Some(RawObject::of("skill", "other"))),
        ];
        let mut ids = vec![first.id.clone()];
        for other in others {
            let task = sent(&calls, &ann, other).await;
            assert!(!ids.contains(&task.id));
            ids.push(task.id);
        }
        let listed = calls.list(&ann, ListTasksRequest::default()).await.unwrap();
        assert_eq!(listed.total_size, i32::try_from(ids.len()).unwrap());
        assert_ne!(
            sent(&calls, &somebody("bob"), says("hello")).await.id,
            first.id
        );
    });
}

/// Goal: what came twice at once was one message. Method: one that asks, twice, of which neither waits for the other.
#[test]
fn two_at_once_are_one() {
    talking(async |calls, ann| {
        let (one, other) = futures::join!(
            sent(&calls, &ann, says("ask name")),
            sent(&calls, &ann, says("ask name"))
        );
        assert_eq!(one.id, other.id);
        assert_eq!(
            one.status.state,
            callboard_message::TaskState::InputRequired
        );
    });
}

/// Goal: what came to nothing is tried again by the same message. Method: one that fails, one that is refused, and one that is
/// cancelled while it asks; before that it is known.
#[test]
fn what_came_to_nothing_is_tried_again() {
    talking(async |calls, ann| {
        for text in ["fail", "reject", "ask name"] {
            let mut ids = Vec::new();
            for _ in 0..3 {
                let task = sent(&calls, &ann, says(text)).await;
                if !task.status.state.is_terminal() {
                    assert_eq!(sent(&calls, &ann, says(text)).await.id, task.id);
                    calls.cancel(&ann, &task.id).await.unwrap();
                }
                assert!(!ids.contains(&task.id), "{text}");
                ids.push(task.id);
            }
        }
    });
}

/// Goal: for how long a message is known is the host's to say. Method: a time that is over at once, twice in a row; none.
#[test]
fn not_for_ever() {
    paused(async |system| {
        let (agent, ann) = (system.spawn(Talker), somebody("ann"));
        for within in [Duration::from_nanos(1), Duration::ZERO] {
            let calls = serving(&agent, |options| options.tasks.repeat_within = within);
            let mut ids = Vec::new();
            for _ in 0..3 {
                ids.push(sent(&calls, &ann, says("hello")).await.id);
            }
            ids.dedup();
            assert_eq!(ids.len(), 3, "{within:?}");
        }
    });
}

/// Goal: whom nobody tells apart has no other's answer, unless all of them are one party. Method: an id that two may have, and one
/// that nobody has twice, on both.
#[test]
fn the_anonymous() {
    paused(async |system| {
        let agent = system.spawn(Talker);
        let nobody = Who::new(Arc::new(Principal::anonymous()), Dialect::V10);
        for (is_one, id, is_known) in [
            (false, "m1", false),
            (false, "0b0e4f6c-6a3f-4c61-9f0e-2b8d2f1f7a11", true),
            (true, "m1", true),
            (true, "0b0e4f6c-6a3f-4c61-9f0e-2b8d2f1f7a11", true),
        ] {
            let calls = serving(&agent, |options| options.one_anonymous = is_one);
            let says = || changed(|request| request.message.message_id = id.into());
            let [first, second] = [
                sent(&calls, &nobody, says()).await,
                sent(&calls, &nobody, says()).await,
            ];
            assert_eq!(first.id == second.id, is_known, "{is_one} {id}");
        }
    });
}

/// Goal: in a store that lasts a message is known to whoever serves next. Method: two servers on one store, in turn.
#[test]
fn the_next_server_knows_it() {
    paused(async |system| {
        let (tasks, ann) = (Arc::new(MemoryTasks::default()), somebody("ann"));
        let agent = system.spawn(Talker);
        let first = serve_with(&agent, &tasks);
        let task = sent(&first, &ann, says("hello")).await;
        first.stop().await;
        assert_eq!(
            sent(&serve_with(&agent, &tasks), &ann, says("hello"))
                .await
                .id,
            task.id
        );
    });
}
