//! Repeated messages.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::TaskState::InputRequired;
use callboard_message::{Principal, RawObject};
use callboard_runtime::{AgentRef, MemoryTaskStore};

use super::kit::{
    Talker, all, made, options, paused, refused, said_in, says, says_as, sent, serve_with,
    somebody, talking,
};
use crate::inbound::calls::{A2aTaskService, RequestContext};
use crate::inbound::options::A2aOptions;
use crate::wire::{
    ListTasksRequest, Part, SendMessageConfiguration, SendMessageRequest, StreamResponse,
    TaskPushNotificationConfig,
};
use crate::{Dialect, ErrorKind};

fn changed(change: impl FnOnce(&mut SendMessageRequest)) -> SendMessageRequest {
    let mut request = says("hello");
    change(&mut request);
    request
}

/// Returns a configuration with a receiver for push notifications.
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

fn serving(agent: &AgentRef, change: impl FnOnce(&mut A2aOptions)) -> Arc<A2aTaskService> {
    let mut options = options();
    change(&mut options);
    A2aTaskService::new(agent.clone(), Arc::new(options))
}

/// Goal: a repeated message is answered by the task that it began, whether it is sent or streamed;
/// different content under its id, or another sender, begins a task. Method: rows; then the list
/// has no more than those.
#[test]
fn a_message_that_comes_again_begins_nothing() {
    talking(async |calls, ann| {
        calls.set_push_handler(Arc::new(|_, _, _| Box::pin(std::future::ready(Ok(())))));
        let first = sent(&calls, &ann, says("hello")).await;
        assert!(sent(&calls, &ann, says("hello")).await == first);
        let told = all(calls.stream(&ann, says("hello")).await.unwrap()).await;
        assert!(matches!(&told[0].event, StreamResponse::Task(task) if task.id == first.id));
        assert!(
            told.last().unwrap().is_last && told.len() > 1,
            "all of it is told"
        );

        let others = [
            says("hello!"),
            changed(|request| request.message.message_id = "m2".into()),
            changed(|request| request.message.context_id = "c".into()),
            changed(|request| request.message.parts.push(Part::text("more"))),
            changed(|request| request.configuration = Some(configured())),
            changed(|request| request.message.metadata = Some(RawObject::single("skill", "other"))),
        ];
        let mut ids = vec![first.id.clone()];
        for other in others {
            let task = sent(&calls, &ann, other).await;
            assert!(!ids.contains(&task.id));
            ids.push(task.id);
        }
        let listed = calls
            .list_tasks(&ann, ListTasksRequest::default())
            .await
            .unwrap();
        assert_eq!(listed.total_size, i32::try_from(ids.len()).unwrap());
        assert_ne!(
            sent(&calls, &somebody("bob"), says("hello")).await.id,
            first.id
        );
    });
}

/// Goal: two concurrent sends of one message begin one task. Method: one that asks, sent twice
/// without waiting.
#[test]
fn two_at_once_are_one() {
    talking(async |calls, ann| {
        let (one, other) = futures::join!(
            sent(&calls, &ann, says("ask name")),
            sent(&calls, &ann, says("ask name"))
        );
        assert_eq!(one.id, other.id);
        assert_eq!(one.status.state, InputRequired);
    });
}

/// Goal: a repeated message whose task failed begins a new one. Method: one that fails, one that is
/// rejected, and one that is cancelled while it asks; before that it is recognised.
#[test]
fn what_came_to_nothing_is_tried_again() {
    talking(async |calls, ann| {
        for text in ["fail", "reject", "ask name"] {
            let mut ids = Vec::new();
            for _ in 0..3 {
                let task = sent(&calls, &ann, says(text)).await;
                if !task.status.state.is_terminal() {
                    assert_eq!(sent(&calls, &ann, says(text)).await.id, task.id);
                    calls.cancel_task(&ann, &task.id).await.unwrap();
                }
                assert!(!ids.contains(&task.id), "{text}");
                ids.push(task.id);
            }
        }
    });
}

/// Goal: the host configures for how long a message is recognised. Method: a window that is over at
/// once, twice in a row; zero.
#[test]
fn not_for_ever() {
    paused(async |system| {
        let (agent, ann) = (system.spawn(Talker), somebody("ann"));
        for within in [Duration::from_nanos(1), Duration::ZERO] {
            let calls = serving(&agent, |options| options.tasks.idempotency_window = within);
            let mut ids = Vec::new();
            for _ in 0..3 {
                ids.push(sent(&calls, &ann, says("hello")).await.id);
            }
            ids.dedup();
            assert_eq!(ids.len(), 3, "{within:?}");
        }
    });
}

/// Goal: anonymous callers don't get each other's tasks by a repeated message, unless all of them
/// count as one owner. Method: an id that two may use, and a unique one, with and without the
/// option.
#[test]
fn the_anonymous() {
    paused(async |system| {
        let agent = system.spawn(Talker);
        let nobody = RequestContext::new(Arc::new(Principal::anonymous()), Dialect::V10);
        for (is_one, id, is_known) in [
            (false, "m1", false),
            (false, "0b0e4f6c-6a3f-4c61-9f0e-2b8d2f1f7a11", true),
            (true, "m1", true),
            (true, "0b0e4f6c-6a3f-4c61-9f0e-2b8d2f1f7a11", true),
        ] {
            let calls = serving(&agent, |options| options.shares_anonymous_tasks = is_one);
            let says = || changed(|request| request.message.message_id = id.into());
            let [first, second] = [
                sent(&calls, &nobody, says()).await,
                sent(&calls, &nobody, says()).await,
            ];
            assert_eq!(first.id == second.id, is_known, "{is_one} {id}");
        }
    });
}

/// Goal: in a durable store the next server recognises a repeated message. Method: two servers on
/// one store, in turn.
#[test]
fn the_next_server_knows_it() {
    paused(async |system| {
        let (tasks, ann) = (Arc::new(MemoryTaskStore::default()), somebody("ann"));
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

/// Goal: in 0.1, where messages have no ids, a repeated opening message isn't taken for the answer
/// to the task's question; a message to a task that has ended begins it anew in its conversation,
/// and the agent gets the earlier messages. Method: a task that asks, its opening again, an answer,
/// a further message, and another conversation.
#[test]
fn named_tasks_go_on() {
    talking(async |calls, ann| {
        let old = RequestContext {
            dialect: Dialect::V01,
            ..ann.clone()
        };
        let say = |id: &str, text: &str| {
            let mut request = says_as(id, text);
            request.message.task_id = "chat".into();
            request
        };
        let asks = sent(&calls, &old, say("a", "ask name")).await;
        assert_eq!(asks.status.state, InputRequired);
        let again = sent(&calls, &old, say("b", "ask name")).await;
        assert_eq!(
            (again.status.state, said_in(&again)),
            (InputRequired, "Which name?".into())
        );
        let done = sent(&calls, &old, say("c", "Ann")).await;
        assert_eq!(made(&done)[0].1, r#"Accept {"name":"Ann"} by c"#);
        let mut elsewhere = say("d", "recall");
        elsewhere.message.context_id = "another".into();
        assert_eq!(
            refused(&calls, &old, elsewhere).await.kind,
            ErrorKind::InvalidParams
        );
        let next = sent(&calls, &old, say("e", "recall")).await;
        assert_eq!((&next.id, &next.context_id), (&done.id, &done.context_id));
        let told = &made(&next)[0].1;
        assert!(told.starts_with("user: ask name\n"), "{told}");
        assert!(
            told.ends_with(r#"assistant: Accept {"name":"Ann"} by c"#),
            "{told}"
        );
        let last = sent(&calls, &old, say("f", "hello")).await;
        assert_eq!(made(&last)[0].1, "heard: hello");
    });
}
