//! Questions of tasks, and messages that answer them.

use callboard_message::RawObject;
use callboard_message::TaskState::{AuthRequired, Completed, InputRequired};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::kit::{
    made, message, refused, request, said_in, says, says_as, says_to, sent, talking, texts,
};
use crate::ErrorKind;
use crate::convert::QUESTION_METADATA;
use crate::wire::{A2aMessage, Part, Role};

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

/// Goal: an unsuitable answer is reported with its reason, and the task keeps asking; then a suitable
/// one is accepted. Method: a form with a text, and one with a choice; a missing field, null, wrong
/// types and choices, as data, as text and in the format of an elicitation answer.
#[test]
fn what_does_not_fit_is_asked_again() {
    talking(async |calls, ann| {
        let answer = |task: &crate::wire::A2aTask, id: &str, value| {
            let parts = vec![Part::data(to_raw_value(&value).unwrap())];
            let task_id = task.id.clone();
            request(A2aMessage {
                task_id,
                ..message(id, parts)
            })
        };
        let accept = |content| json!({ "action": "accept", "content": content });
        let type_fault = "`name` must be of type string";
        let choice_fault = "`size` must be one of: small, large";
        let rows = [
            (
                "ask name",
                json!({ "nam": "x" }),
                "name",
                json!({ "name": "x" }),
            ),
            (
                "ask name",
                json!({ "name": null }),
                "name",
                json!({ "name": "x" }),
            ),
            (
                "ask name",
                json!({ "name": 7 }),
                type_fault,
                json!({ "name": "x" }),
            ),
            (
                "ask name",
                accept(json!({ "name": null })),
                "name",
                accept(json!({ "name": "x" })),
            ),
            (
                "ask name",
                accept(json!({ "name": [] })),
                type_fault,
                json!({ "name": "x" }),
            ),
            (
                "ask name",
                json!({ "action": "accept" }),
                "name",
                json!({ "action": "decline" }),
            ),
            (
                "ask name",
                json!({ "action": "submit", "content": {} }),
                "`action` must be one of: accept, decline, cancel",
                json!({ "action": "cancel" }),
            ),
            (
                "choose size",
                json!({ "size": "huge" }),
                choice_fault,
                json!({ "size": "small" }),
            ),
            (
                "choose size",
                accept(json!({ "size": "huge" })),
                choice_fault,
                accept(json!({ "size": "large" })),
            ),
        ];
        for (ask, wrong, fault, right) in rows {
            // Another message each time: a repeated one would find its task.
            let opening = says_as(&format!("m1 {wrong}"), ask);
            let task = sent(&calls, &ann, opening).await;
            let question = said_in(&task);
            let asks = sent(&calls, &ann, answer(&task, "m2", wrong.clone())).await;
            let wanted = format!("{question}|still needed: {fault}");
            assert_eq!(
                (asks.status.state, said_in(&asks)),
                (InputRequired, wanted),
                "{wrong}"
            );
            let done = sent(&calls, &ann, answer(&task, "m3", right.clone())).await;
            assert_eq!(done.status.state, Completed, "{right}");
        }
    });
}

/// Goal: each asking of a question is a message of the history, except the latest one while the
/// status shows it; the latest 16 repeated ones are kept. Method: unsuitable answers, two and then
/// one above the limit, and a suitable one.
#[test]
fn repeated_questions_are_in_the_history() {
    talking(async |calls, ann| {
        let task = sent(&calls, &ann, says("choose size")).await;
        let history = |task: &crate::wire::A2aTask| -> Vec<String> {
            let said = task.history.iter().flatten();
            said.map(|said| texts(&said.parts)).collect()
        };
        assert_eq!(history(&task), ["choose size"]);
        let again = "Which size?|still needed: size";
        let mut asks = task.clone();
        for id in ["m2", "m3"] {
            asks = sent(&calls, &ann, says_to(&task, id, "huge")).await;
        }
        assert_eq!(said_in(&asks), again);
        let before = ["choose size", "Which size?", "huge", again, "huge"];
        assert_eq!(history(&asks), before);
        let ids: Vec<_> = asks
            .history
            .iter()
            .flatten()
            .map(|m| &m.message_id)
            .collect();
        assert!(!ids.contains(&&asks.status.message.as_ref().unwrap().message_id));
        for nth in 0..15 {
            sent(&calls, &ann, says_to(&task, &format!("n{nth}"), "huge")).await;
        }
        let done = sent(&calls, &ann, says_to(&task, "m4", "small")).await;
        assert_eq!(done.status.state, Completed);
        let said = history(&done);
        assert_eq!(said[..4], ["choose size", "Which size?", "huge", "huge"]);
        assert_eq!(said.iter().filter(|text| **text == again).count(), 16);
        assert_eq!(said[said.len() - 2..], [again, "small"]);
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
