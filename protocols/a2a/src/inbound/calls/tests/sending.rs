//! Messages that begin a task, and their responses.

use callboard_message::TaskState::{Canceled, Completed, Failed, Rejected, Working};

use super::kit::{Talker, made, paused, said_in, says, sent, serve, somebody, talking, texts};
use crate::ErrorKind;
use crate::convert::EVENT_METADATA;
use crate::wire::{
    ListTasksRequest, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
};

fn at_once(request: SendMessageRequest) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        return_immediately: true,
        ..Default::default()
    };
    SendMessageRequest {
        configuration: Some(configuration),
        ..request
    }
}

/// Goal: the response to a message is the ended task with its artifact, history and last event
/// number. Method: an echo; read again afterwards, with and without history.
#[test]
fn a_message_is_answered_by_its_task() {
    talking(async |calls, ann| {
        let task = sent(&calls, &ann, says("hello")).await;
        assert_eq!(task.status.state, Completed);
        assert_eq!(made(&task), [("result".into(), "heard: hello".into())]);
        // The message that the agent got is no skill.
        assert_eq!(task.artifacts.as_ref().unwrap()[0].name, "");
        assert!(!task.context_id.is_empty());
        let history = task.history.as_ref().unwrap();
        assert_eq!(
            (history.len(), &*history[0].message_id, &*history[0].task_id),
            (1, "m1", &*task.id)
        );
        assert_eq!(history[0].context_id, task.context_id);
        assert_eq!(
            task.metadata.as_ref().unwrap().read::<u64>(EVENT_METADATA),
            Some(3)
        );
        let again = calls.get_task(&ann, &task.id, None).await.unwrap();
        assert!(again == task);
        assert!(
            calls
                .get_task(&ann, &task.id, Some(0))
                .await
                .unwrap()
                .history
                .is_none()
        );
    });
}

/// Goal: an agent may reply with a message in place of a task, and then there is no task. Method:
/// one that does so, sent and streamed; the list is empty after each.
#[test]
fn what_is_said_at_once_is_no_task() {
    talking(async |calls, ann| {
        let answer = super::kit::answered(&calls, &ann, says("say hi")).await;
        let Ok(SendMessageResponse::Message(said)) = answer else {
            panic!("a task")
        };
        assert_eq!((texts(&said.parts), &*said.task_id), ("hi".into(), ""));
        let told = super::kit::all(calls.stream(&ann, says("say hi")).await.unwrap()).await;
        assert_eq!(super::kit::story(&told), ["message hi"]);
        assert!(told[0].is_last);
        assert_eq!(
            calls
                .list_tasks(&ann, ListTasksRequest::default())
                .await
                .unwrap()
                .total_size,
            0
        );
    });
}

/// Goal: the end of a call is the task's state, never an error. Method: one that rejects, a tool
/// that reports an error.
#[test]
fn failures_are_states() {
    talking(async |calls, ann| {
        for (text, state, why) in [("reject", Rejected, "I won't"), ("fail", Failed, "no luck")] {
            let task = sent(&calls, &ann, says(text)).await;
            assert_eq!((task.status.state, said_in(&task)), (state, why.to_owned()));
            assert!(made(&task).is_empty());
        }
    });
}

/// Goal: a non-blocking message returns at once, and the call continues until it is cancelled,
/// once. Method: a call that waits; cancelled twice; read in between.
#[test]
fn returns_at_once_and_cancels() {
    talking(async |calls, ann| {
        let task = sent(&calls, &ann, at_once(says("wait"))).await;
        assert_eq!(task.status.state, Working);
        let cancelled = calls.cancel_task(&ann, &task.id).await.unwrap();
        assert_eq!(cancelled.status.state, Canceled);
        let error = calls.cancel_task(&ann, &task.id).await.unwrap_err();
        assert_eq!(
            (error.kind, error.task.as_deref()),
            (ErrorKind::TaskNotCancelable, Some(&*task.id))
        );
        assert_eq!(
            calls
                .get_task(&ann, &task.id, None)
                .await
                .unwrap()
                .status
                .state,
            Canceled
        );
    });
}

/// Goal: a call that exceeds the deadline is answered by its current state and continues. Method: a
/// blocking message to a call that waits; the time is skipped.
#[test]
fn a_long_call_is_answered_as_it_is() {
    talking(async |calls, ann| {
        let task = sent(&calls, &ann, says("wait")).await;
        assert_eq!(
            (task.status.state, said_in(&task)),
            (Working, "waiting".into())
        );
        calls.cancel_task(&ann, &task.id).await.unwrap();
    });
}

/// Goal: a replacement agent gets all later messages. Method: a talker replaced by an agent with
/// one skill.
#[test]
fn another_agent_takes_its_place() {
    paused(async |system| {
        let (calls, ann) = (serve(&system.spawn(Talker)), somebody("ann"));
        sent(&calls, &ann, says("hello")).await;
        calls.replace_agent(system.spawn(super::kit::EchoAgent));
        assert_eq!(
            made(&sent(&calls, &ann, says("hello")).await),
            [("result".into(), "hello".into())]
        );
    });
}
