//! Questions of tasks over the wire, in every dialect.

use callboard_a2a::Operation as Op;
use serde_json::Value;

use crate::blocking::state;
use crate::kit::serving;
use crate::tongue::{About, Tongue};

fn texts(parts: &Value) -> Vec<String> {
    let texts = parts
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|part| part["text"].as_str());
    texts.map(str::to_owned).collect()
}

/// Goal: a question is the state input-required with its text, a message to the task answers it,
/// and the result follows; a repeated message changes nothing. Method: every dialect, a task that
/// asks for a name.
#[tokio::test]
async fn a_message_answers() {
    let (served, peer) = serving(|_| {}).await;
    for tongue in Tongue::ALL {
        let own = if tongue == Tongue::Rpc01 {
            "booking"
        } else {
            ""
        };
        let message = format!("m-{tongue:?}");
        let about = About {
            message: &message,
            skill: "book",
            text: "{}",
            task: own,
            ..About::default()
        };
        let task = tongue.task(&tongue.result(&peer, Op::SendMessage, about).await);
        assert_eq!(state(&task), "input_required", "{tongue:?}: {task}");
        let said = &task["status"]["message"];
        let parts = if said["parts"].is_null() {
            &said["content"]
        } else {
            &said["parts"]
        };
        assert!(
            texts(parts).contains(&"Which name?".to_owned()),
            "{tongue:?}: {task}"
        );
        let id = task["id"].as_str().unwrap();
        let answer = About {
            task: id,
            message: "m-2",
            text: "Ann",
            ..About::default()
        };
        let done = tongue.task(&tongue.result(&peer, Op::SendMessage, answer).await);
        assert_eq!(state(&done), "completed", "{tongue:?}: {done}");
        assert_eq!(
            texts(&done["artifacts"][0]["parts"]),
            ["booked for Ann"],
            "{tongue:?}: {done}"
        );
        if tongue != Tongue::Rpc01 {
            let again = tongue.task(&tongue.result(&peer, Op::SendMessage, answer).await);
            assert_eq!(again, done, "{tongue:?}");
        }
        let late = About {
            message: "m-3",
            ..answer
        };
        let late = tongue.ask(&peer, Op::SendMessage, late).await;
        match tongue {
            // Its messages go to the same task, which begins anew.
            Tongue::Rpc01 => assert_eq!(tongue.code(&late), None),
            _ => assert_eq!(tongue.code(&late), Some(-32_004), "{tongue:?}"),
        }
    }
    served.stop().await;
}
