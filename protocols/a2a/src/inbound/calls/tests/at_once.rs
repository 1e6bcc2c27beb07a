//! Calls that end immediately, within their sender's task, and calls that don't.

use std::sync::Arc;

use callboard_message::TaskState::{Canceled, Completed, InputRequired, Working};
use callboard_message::capabilities::Converse;
use callboard_message::{Failure, Progress, RawObject, ToolResult};
use callboard_runtime::{
    Agent, AgentProfile, ConcurrentHandler, Context, Handlers, SyncHandler, System,
};
use futures::future::{FutureExt, join};

use super::kit::{
    Talker, made, message, options, paused, refused, request, says, says_as, says_to, sent, serve,
    somebody, texts,
};
use crate::ErrorKind;
use crate::convert::EVENT_METADATA;
use crate::inbound::calls::A2aTaskService;
use crate::wire::{A2aTask, ListTasksRequest, Part, SendMessageRequest};

/// Agent that replies within the caller's task.
struct Quick;

impl Agent for Quick {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Converse>();
    }
}

impl SyncHandler<Converse> for Quick {
    fn handle(&mut self, said: Converse, cx: &mut Context) -> Result<ToolResult, Failure> {
        let text = said.texts();
        if let Some(told) = text.strip_prefix("tell ") {
            cx.progress(Progress {
                done: 1.0,
                total: None,
                message: Some(told.to_owned()),
            });
        }
        Ok(ToolResult::text(format!("heard: {text}")))
    }
}

/// A [`Talker`] whose calls begin within the caller's task.
struct Near(Talker);

impl Agent for Near {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(64);
    }

    fn profile() -> AgentProfile {
        AgentProfile::default().inline_concurrent()
    }
}

impl ConcurrentHandler<Converse> for Near {
    fn handle(
        &mut self,
        said: Converse,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        ConcurrentHandler::handle(&mut self.0, said, cx)
    }
}

fn quick(system: &System) -> Arc<A2aTaskService> {
    serve(&system.spawn(Quick))
}

fn keyed(key: &str, text: &str) -> SendMessageRequest {
    let mut request = request(message("m1", vec![Part::text(text)]));
    request.message.metadata = Some(RawObject::single("callboard/key", key));
    request
}

fn last_event(task: &A2aTask) -> Option<u64> {
    task.metadata.as_ref()?.read(EVENT_METADATA)
}

/// Goal: a call that ends immediately is a task like any other. Method: sent without ever waiting;
/// then it is read, listed, subscribed to, cancelled and sent a message.
#[test]
fn what_ends_at_once_is_a_task() {
    paused(async |system| {
        let (calls, ann, ben) = (quick(system), somebody("ann"), somebody("ben"));
        // A newly started agent handles its start first.
        sent(&calls, &somebody("cleo"), says("hello")).await;
        let task = sent(&calls, &ann, says("hello \"you\"\n"))
            .now_or_never()
            .expect("it waits for something");
        assert_eq!((task.status.state, last_event(&task)), (Completed, Some(3)));
        assert_eq!(
            made(&task),
            [("result".into(), "heard: hello \"you\"\n".into())]
        );
        assert_eq!(
            texts(&task.history.as_ref().unwrap()[0].parts),
            "hello \"you\"\n"
        );
        assert!(calls.get_task(&ann, &task.id, None).await.unwrap() == task);
        assert_eq!(
            calls
                .list_tasks(&ann, ListTasksRequest::default())
                .await
                .unwrap()
                .total_size,
            1
        );
        assert_eq!(
            calls
                .list_tasks(&ben, ListTasksRequest::default())
                .await
                .unwrap()
                .total_size,
            0
        );
        let told = super::kit::all(calls.subscribe(&ann, &task.id, Some(1)).await.unwrap()).await;
        assert_eq!(
            told.iter().map(|event| event.number).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert_eq!(
            calls.cancel_task(&ann, &task.id).await.unwrap_err().kind,
            ErrorKind::TaskNotCancelable
        );
        assert_eq!(
            refused(&calls, &ann, says_to(&task, "m2", "more"))
                .await
                .kind,
            ErrorKind::UnsupportedOperation
        );
        assert_eq!(
            calls.get_task(&ben, &task.id, None).await.unwrap_err().kind,
            ErrorKind::TaskNotFound
        );
    });
}

/// Goal: progress reported before an immediate end isn't lost. Method: one that reports once.
#[test]
fn what_is_told_before_the_end_is_kept() {
    paused(async |system| {
        let (calls, ann) = (quick(system), somebody("ann"));
        let task = sent(&calls, &ann, says("tell half")).await;
        assert_eq!((task.status.state, last_event(&task)), (Completed, Some(4)));
        assert_eq!(made(&task), [("result".into(), "heard: tell half".into())]);
    });
}

/// Goal: a call that asks or takes time continues in the background. Method: an agent whose calls
/// begin with their sender: one asks at once and is answered; one works, is listed meanwhile, and
/// is cancelled.
#[test]
fn what_doesnt_end_at_once_goes_on() {
    paused(async |system| {
        let (calls, ann) = (serve(&system.spawn(Near(Talker))), somebody("ann"));
        let asks = sent(&calls, &ann, says("ask name")).await;
        assert_eq!(asks.status.state, InputRequired);
        let done = sent(&calls, &ann, says_to(&asks, "m2", "Kim")).await;
        assert_eq!(
            (done.status.state, done.history.unwrap().len()),
            (Completed, 3)
        );

        let (waits, watched) = join(sent(&calls, &ann, says("wait")), async {
            loop {
                let listed = calls
                    .list_tasks(&ann, ListTasksRequest::default())
                    .await
                    .unwrap();
                if let Some(task) = listed
                    .tasks
                    .into_iter()
                    .find(|task| task.status.state == Working)
                {
                    assert_eq!(
                        calls
                            .cancel_task(&ann, &task.id)
                            .await
                            .unwrap()
                            .status
                            .state,
                        Canceled
                    );
                    return task;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!((waits.status.state, &waits.id), (Canceled, &watched.id));
        let at_once = sent(&calls, &ann, says("hello")).await;
        assert_eq!(
            texts(&at_once.artifacts.as_ref().unwrap()[0].parts),
            "heard: hello"
        );
    });
}

/// Goal: limits also hold for calls that end immediately. Method: as many as may be stored run; one
/// more is rejected; once they have ended, it replaces the oldest.
#[test]
fn limits_hold_at_once() {
    paused(async |system| {
        for agent in [system.spawn(Near(Talker)), system.spawn(Talker)] {
            let mut options = options();
            (options.tasks.tasks_max, options.tasks.owner_tasks_max) = (3, 2);
            let calls = A2aTaskService::new(agent, Arc::new(options));
            let (ann, ben) = (somebody("ann"), somebody("ben"));
            let first = sent(&calls, &ann, says("ask name")).await;
            let second = sent(&calls, &ann, says_as("m1b", "ask name")).await;
            assert_eq!(
                refused(&calls, &ann, says("hello")).await.kind,
                ErrorKind::Overloaded
            );
            assert_eq!(
                sent(&calls, &ben, says("hello")).await.status.state,
                Completed
            );
            assert_eq!(
                refused(&calls, &somebody("cleo"), says("hello")).await.kind,
                ErrorKind::Overloaded
            );
            for task in [&first, &second] {
                assert_eq!(
                    sent(&calls, &ann, says_to(task, "m2", "Kim"))
                        .await
                        .status
                        .state,
                    Completed
                );
            }
            assert_eq!(
                sent(&calls, &ann, says("hello")).await.status.state,
                Completed
            );
            assert_eq!(
                calls
                    .get_task(&ann, &first.id, None)
                    .await
                    .unwrap_err()
                    .kind,
                ErrorKind::TaskNotFound
            );
        }
    });
}

/// Goal: one idempotency key is one task, even for concurrent messages, and a different message
/// with it is rejected; the message id alone isn't a key. Method: two sends together, of an agent
/// that ends at once and of one that doesn't; again, without the key, by another owner, with other
/// texts or parts, and with a reserved key.
#[test]
fn a_key_is_one_task() {
    paused(async |system| {
        for calls in [quick(system), serve(&system.spawn(Talker))] {
            let ann = somebody("ann");
            let (one, other) = join(
                sent(&calls, &ann, keyed("k", "hi")),
                sent(&calls, &ann, keyed("k", "hi")),
            )
            .await;
            assert_eq!(
                (&one.id, one.status.state, other.status.state),
                (&other.id, Completed, Completed)
            );
            assert!(sent(&calls, &ann, keyed("k", "hi")).await == one);
            assert_ne!(sent(&calls, &ann, says("hi")).await.id, one.id);
            assert_ne!(
                sent(&calls, &somebody("bob"), keyed("k", "hi")).await.id,
                one.id
            );
            let mut more = keyed("k", "hi");
            more.message.parts.push(Part::text("more"));
            for wrong in [keyed("k", "ho"), more, keyed("callboard/again:0:0", "hi")] {
                assert_eq!(
                    refused(&calls, &ann, wrong).await.kind,
                    ErrorKind::InvalidParams
                );
            }
            assert_eq!(
                calls
                    .list_tasks(&ann, ListTasksRequest::default())
                    .await
                    .unwrap()
                    .total_size,
                2
            );
        }
    });
}
