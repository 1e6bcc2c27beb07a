//! Streams: every event once, for every subscriber at any time.

use callboard_message::TaskState::Completed;
use futures::StreamExt;

use super::kit::{all, made, says, says_to, sent, story, talking, texts};
use crate::ErrorKind;
use crate::wire::StreamResponse;

/// Goal: a stream begins with the task at its beginning, has each artifact in order, and ends with
/// the task. Method: three pieces; the task afterwards contains them as one artifact.
#[test]
fn a_stream_tells_everything_in_order() {
    talking(async |calls, ann| {
        let told = all(calls.stream(&ann, says("make 3")).await.unwrap()).await;
        let numbers = [
            "numbers 1 false false",
            "numbers 2 true false",
            "numbers 3 true true",
        ];
        assert_eq!(
            story(&told),
            [&["task working"][..], &numbers, &["completed"]].concat()
        );
        assert_eq!(
            told.iter().map(|event| event.number).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5]
        );
        assert_eq!(
            told.iter().map(|event| event.is_last).collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
        let StreamResponse::Task(task) = &told[0].event else {
            panic!("no task")
        };
        assert_eq!(
            made(&calls.get_task(&ann, &task.id, None).await.unwrap()),
            [("numbers".into(), "123".into())]
        );
    });
}

/// Goal: the stream of a message ends with a question, that of the answer continues, and a
/// subscription contains both. Method: a question.
#[test]
fn a_question_ends_the_stream_of_its_message() {
    talking(async |calls, ann| {
        let told = all(calls.stream(&ann, says("ask name")).await.unwrap()).await;
        assert_eq!(story(&told), ["task working", "input_required Which name?"]);
        let StreamResponse::Task(task) = &told[0].event else {
            panic!("no task")
        };
        let all_of_it = calls.subscribe(&ann, &task.id, Some(0)).await.unwrap();
        let answered = all(calls
            .stream(&ann, says_to(task, "m2", "Ann"))
            .await
            .unwrap())
        .await;
        let result = r#"result Accept {"name":"Ann"} by m2 false true"#;
        assert_eq!(story(&answered), ["task working", result, "completed"]);
        let told = story(&all(all_of_it).await);
        assert_eq!(
            told,
            [
                "task submitted",
                "working",
                "input_required Which name?",
                "working",
                result,
                "completed"
            ]
        );
    });
}

/// Returns the numbers from 1 to `last`, with `between` between them.
fn numbers(last: u32, between: &str) -> String {
    let all: Vec<_> = (1..=last).map(|number| number.to_string()).collect();
    all.join(between)
}

/// Goal: a subscriber that resumes gets the events after its last one: each once, and artifacts
/// never twice. Method: a task of 200 pieces, from every event on; from its end, and without a last
/// event, there is nothing.
#[test]
fn who_comes_back_misses_nothing() {
    talking(async |calls, ann| {
        let task = sent(&calls, &ann, says("make 200")).await;
        assert_eq!(task.status.state, Completed);
        for last in (0..202).step_by(7) {
            let told = all(calls.subscribe(&ann, &task.id, Some(last)).await.unwrap()).await;
            let StreamResponse::Task(then) = &told[0].event else {
                panic!("no task")
            };
            let mut text = made(then).pop().map(|(_, all)| all).unwrap_or_default();
            for event in &told[1..] {
                if let StreamResponse::ArtifactUpdate(update) = &event.event {
                    text += &texts(&update.artifact.parts);
                }
            }
            assert_eq!(text, numbers(200, ""), "after {last}");
            assert!(told.last().unwrap().is_last);
        }
        for last in [None, Some(202), Some(999)] {
            let error = calls
                .subscribe(&ann, &task.id, last)
                .await
                .map(drop)
                .unwrap_err();
            assert_eq!(error.kind, ErrorKind::UnsupportedOperation);
        }
    });
}

/// Goal: a client that disconnects ends only its stream. Method: a stream of a task that waits,
/// dropped after two events.
#[test]
fn a_stream_that_is_dropped_ends_nothing() {
    talking(async |calls, ann| {
        let mut told = calls.stream(&ann, says("wait")).await.unwrap();
        let StreamResponse::Task(task) = told.next().await.unwrap().unwrap().event else {
            panic!("no task")
        };
        told.next().await.unwrap().unwrap();
        drop(told);
        assert_eq!(
            calls
                .get_task(&ann, &task.id, None)
                .await
                .unwrap()
                .status
                .state,
            callboard_message::TaskState::Working
        );
        let rest = calls.subscribe(&ann, &task.id, None).await.unwrap();
        calls.cancel_task(&ann, &task.id).await.unwrap();
        assert_eq!(
            story(&all(rest).await),
            ["task working waiting", "canceled cancelled by request"]
        );
    });
}

/// Goal: if more artifacts are reported at once than can be queued, nothing of the result is lost,
/// because the reply contains all of it. Method: as many pieces as fit into the queue, and one
/// more.
#[test]
fn what_is_missed_is_in_the_result() {
    talking(async |calls, ann| {
        let pieces = ("numbers".to_owned(), numbers(1_024, ""));
        let result = ("result".to_owned(), numbers(1_025, "|"));
        for (count, wanted) in [(1_024, vec![pieces.clone()]), (1_025, vec![pieces, result])] {
            let task = sent(&calls, &ann, says(&format!("make {count}"))).await;
            assert!(made(&task) == wanted, "{count}");
        }
    });
}
