//! Messages that refer to tasks.

use std::sync::Arc;

use super::kit::{Talker, made, paused, says, says_to, sent, serve_with, somebody, talking};
use crate::wire::{A2aMessage, SendMessageRequest};

fn about(text: &str, tasks: &[&str]) -> SendMessageRequest {
    let request = says(text);
    let reference_task_ids = tasks.iter().map(|id| (*id).to_owned()).collect();
    SendMessageRequest {
        message: A2aMessage {
            message_id: "m9".into(),
            reference_task_ids,
            ..request.message
        },
        ..request
    }
}

/// Goal: an agent that converses gets the messages and artifacts of the tasks that a message refers
/// to, in their order, and none of other owners; without references there is no history. Method: a
/// task that asked, one that failed, another owner's, a missing one.
#[test]
fn it_hears_of_what_is_referred_to() {
    talking(async |calls, ann| {
        let eve = somebody("eve");
        let asked = sent(&calls, &ann, says("ask name")).await;
        let asked = sent(&calls, &ann, says_to(&asked, "m2", "Ann")).await;
        let failed = sent(&calls, &ann, says("fail")).await;
        let other = sent(&calls, &eve, says("a secret")).await;
        let ids = [&*failed.id, &*other.id, "never-was", &*asked.id];
        let told = sent(&calls, &ann, about("recall", &ids)).await;
        let answered = &made(&asked)[0].1;
        let expected = [
            "user: fail",
            "assistant: no luck",
            "user: ask name",
            "assistant: Which name?",
            "user: Ann",
            &format!("assistant: {answered}"),
        ];
        // A question also has a data part after its text.
        let told: Vec<_> = made(&told)[0]
            .1
            .lines()
            .map(|line| line.split("|{").next().unwrap().to_owned())
            .collect();
        assert_eq!(told, expected);
        let nothing = sent(&calls, &ann, about("recall", &[])).await;
        assert_eq!(made(&nothing)[0].1, "");
    });
}

/// Goal: a repeated message is recognised although a task that it refers to has changed. Method: a
/// task that asks, and is answered in between, in a durable store.
#[test]
fn it_is_known_again() {
    paused(async |system| {
        let (calls, ann) = (
            serve_with(&system.spawn(Talker), &Arc::default()),
            somebody("ann"),
        );
        let asked = sent(&calls, &ann, says("ask name")).await;
        let told = sent(&calls, &ann, about("recall", &[&asked.id])).await;
        assert!(made(&told)[0].1.starts_with("user: ask name"));
        sent(&calls, &ann, says_to(&asked, "m2", "Ann")).await;
        assert_eq!(
            sent(&calls, &ann, about("recall", &[&asked.id])).await.id,
            told.id
        );
    });
}

/// Goal: the content of referenced tasks is limited: the rest is omitted, and the call continues.
/// Method: tasks of 100 KiB, of which the third exceeds the limit.
#[test]
fn what_is_told_is_bounded() {
    talking(async |calls, ann| {
        let mut ids = Vec::new();
        for name in ["a", "b", "c"] {
            let text = format!("reject {}", name.repeat(100 * 1024));
            ids.push(sent(&calls, &ann, says(&text)).await.id);
        }
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let told = sent(&calls, &ann, about("recall", &ids)).await;
        let told = made(&told)[0]
            .1
            .lines()
            .map(|line| line.len())
            .collect::<Vec<_>>();
        let whole = "user: reject ".len() + 100 * 1024;
        let won_t = "assistant: I won't".len();
        assert_eq!(told, [whole, won_t, whole, won_t]);
    });
}
