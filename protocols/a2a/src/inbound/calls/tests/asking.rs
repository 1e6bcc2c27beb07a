//! Questions of tasks, and messages that answer them.

use callboard_message::RawObject;
use callboard_message::TaskState::{AuthRequired, Completed, InputRequired};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::kit::{made, message, refused, request, said_in, says, says_to, sent, talking};
use crate::ErrorKind;
use crate::convert::QUESTION_METADATA;
use crate::wire::{Message, Part, Role};

/// Goal: a question is the task's state, a message answers it, and the history contains both.
/// Method: a form with one text; the answer is a text; a repeated answer gets the task as it is.
#[test]
fn a_message_answers_a_question() {
    talking(async |calls, ann| {
        let task = sent(&calls, &ann, says("ask name")).await;
        assert_eq!(
            (task.status.state, said_in(&task)),
            (InputRequired, "Which name?".into())
        );
        let asks = task.status.message.as_ref().unwrap();
        assert_eq!(
            asks.metadata
                .as_ref()
                .unwrap()
                .text(QUESTION_METADATA)
                .as_deref(),
            Some("q1")
        );
        let asked = RawObject::parse(asks.parts[1].as_data().unwrap())
            .unwrap()
            .object("question")
            .unwrap();
        assert_eq!(
            (asked.text("key").as_deref(), asked.text("kind").as_deref()),
            (Some("q1"), Some("elicit"))
        );

        let done = sent(&calls, &ann, says_to(&task, "m2", "Ann")).await;
        assert_eq!(done.status.state, Completed);
        assert_eq!(
            made(&done),
            [("result".into(), r#"Accept {"name":"Ann"} by m2"#.into())]
        );
        let said: Vec<_> = done
            .history
            .iter()
            .flatten()
            .map(|said| (said.role, &*said.message_id))
            .collect();
        assert_eq!(said.len(), 3);
        assert_eq!([said[0], said[2]], [(Role::User, "m1"), (Role::User, "m2")]);
        assert_eq!(said[1].0, Role::Agent);
        let again = sent(&calls, &ann, says_to(&task, "m2", "Ann")).await;
        assert!(
            again == done,
            "a message that is sent again changes nothing"
        );
        // A different message with the same id counts as another message.
        assert_eq!(
            refused(&calls, &ann, says_to(&task, "m2", "Bob"))
                .await
                .kind,
            ErrorKind::UnsupportedOperation
        );
        let last = calls
            .get_task(&ann, &task.id, Some(1))
            .await
            .unwrap()
            .history
            .unwrap();
        assert_eq!((last.len(), &*last[0].message_id), (1, "m2"));
    });
}

/// Goal: an unsuitable answer is reported, and the task keeps asking; then a suitable one is
/// accepted. Method: a form with two fields.
#[test]
fn what_does_not_fit_is_asked_again() {
    talking(async |calls, ann| {
        let task = sent(&calls, &ann, says("ask name")).await;
        let data = |value| vec![Part::data(to_raw_value(&value).unwrap())];
        let wrong = Message {
            task_id: task.id.clone(),
            ..message("m2", data(json!({ "nam": "x" })))
        };
        let asks = sent(&calls, &ann, request(wrong)).await;
        assert_eq!(
            (asks.status.state, said_in(&asks)),
            (InputRequired, "Which name?|still needed: name".into())
        );
        let right = Message {
            task_id: task.id.clone(),
            ..message("m3", data(json!({ "name": "x" })))
        };
        assert_eq!(
            sent(&calls, &ann, request(right)).await.status.state,
            Completed
        );
    });
}

/// Goal: a question with a URL is AUTH_REQUIRED, is found by that state, and is answered by any
/// message. Method: a visit.
#[test]
fn a_visit_is_an_authorization() {
    talking(async |calls, ann| {
        let task = sent(&calls, &ann, says("visit")).await;
        assert_eq!(
            (task.status.state, said_in(&task)),
            (AuthRequired, "Sign in\nhttps://id.example/1".into())
        );
        for (state, count) in [(AuthRequired, 1), (InputRequired, 0)] {
            let filter = crate::wire::ListTasksRequest {
                status: Some(state),
                ..Default::default()
            };
            assert_eq!(
                calls.list_tasks(&ann, filter).await.unwrap().total_size,
                count
            );
        }
        let done = sent(&calls, &ann, says_to(&task, "m2", "done")).await;
        assert_eq!(made(&done), [("result".into(), "Accept".into())]);
    });
}

/// Goal: a message that nothing would read is rejected. Method: to a task that has ended, to
/// another conversation, to a question that isn't asked, to a missing task.
#[test]
fn messages_that_nobody_reads() {
    talking(async |calls, ann| {
        let asks = sent(&calls, &ann, says("ask name")).await;
        let mut elsewhere = says_to(&asks, "m2", "x");
        elsewhere.message.context_id = "another".into();
        assert_eq!(
            refused(&calls, &ann, elsewhere).await.kind,
            ErrorKind::InvalidParams
        );
        let mut unasked = says_to(&asks, "m2", "x");
        unasked.message.metadata = Some(RawObject::single(QUESTION_METADATA, "q9"));
        assert_eq!(
            refused(&calls, &ann, unasked).await.kind,
            ErrorKind::UnsupportedOperation
        );
        let done = sent(&calls, &ann, says("hello")).await;
        assert_eq!(
            refused(&calls, &ann, says_to(&done, "m2", "x")).await.kind,
            ErrorKind::UnsupportedOperation
        );
        let mut nobodys = says_to(&done, "m2", "x");
        nobodys.message.task_id = "never-was".into();
        assert_eq!(
            refused(&calls, &ann, nobodys).await.kind,
            ErrorKind::TaskNotFound
        );
    });
}
