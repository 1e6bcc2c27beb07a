use super::*;
use crate::outbound::options::HISTORY_MESSAGES_MAX;
use crate::wire::{Role, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};

fn numbered(number: u64) -> Option<RawObject> {
    (number > 0).then(|| RawObject::single(EVENT_METADATA, number))
}

fn status(number: u64, state: TaskState, text: &str) -> StreamResponse {
    let message = A2aMessage {
        message_id: text.into(),
        parts: vec![Part::text(text)],
        ..A2aMessage::default()
    };
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: "t".into(),
        context_id: "c".into(),
        status: TaskStatus {
            state,
            message: Some(message),
            timestamp: None,
        },
        metadata: numbered(number),
    })
}

fn chunk(number: u64, text: &str, append: bool) -> StreamResponse {
    let artifact = A2aArtifact {
        artifact_id: "a".into(),
        parts: vec![Part::text(text)],
        ..A2aArtifact::default()
    };
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: "t".into(),
        context_id: "c".into(),
        artifact,
        append,
        last_chunk: false,
        metadata: numbered(number),
    })
}

fn task(number: u64, state: TaskState, texts: &[&str]) -> A2aTask {
    let parts: Vec<Part> = texts.iter().copied().map(Part::text).collect();
    let artifact = A2aArtifact {
        artifact_id: "a".into(),
        parts,
        ..A2aArtifact::default()
    };
    let artifacts = (!texts.is_empty()).then(|| vec![artifact]);
    A2aTask {
        artifacts,
        metadata: numbered(number),
        ..A2aTask::new("t", "c", TaskStatus::new(state))
    }
}

fn told(news: Vec<TaskUpdate>) -> Vec<String> {
    let in_words = |news| match news {
        TaskUpdate::Progress(text) => text,
        TaskUpdate::Artifact {
            artifact, append, ..
        } => {
            let texts: Vec<&str> = artifact.parts.iter().filter_map(Part::as_text).collect();
            format!("{}{}", if append { "+" } else { "=" }, texts.join("|"))
        }
    };
    news.into_iter().map(in_words).collect()
}

fn hear(story: &mut RemoteTaskState, event: StreamResponse, resumed: bool) -> Vec<String> {
    told(
        story
            .apply_event(&event, resumed)
            .unwrap()
            .unwrap_or_default(),
    )
}

/// Goal: numbered events count once each, however often a stream is resumed. Method: a stream, a
/// snapshot of a later state, and repeated events.
#[test]
fn numbered_events_count_once() {
    let mut story = RemoteTaskState::default();
    assert!(
        hear(
            &mut story,
            StreamResponse::Task(task(1, TaskState::Working, &[])),
            false
        )
        .is_empty()
    );
    assert_eq!(
        hear(&mut story, status(2, TaskState::Working, "one"), false),
        ["one"]
    );
    assert_eq!(hear(&mut story, chunk(3, "x", false), false), ["=x"]);
    // Interrupted and resumed after 3; the task has reached 5 meanwhile.
    assert!(
        hear(
            &mut story,
            StreamResponse::Task(task(5, TaskState::Completed, &["x", "y"])),
            true
        )
        .is_empty()
    );
    assert!(hear(&mut story, chunk(3, "x", false), true).is_empty());
    assert_eq!(hear(&mut story, chunk(4, "y", true), true), ["+y"]);
    assert!(!story.is_settled());
    hear(&mut story, status(5, TaskState::Completed, "done"), true);
    assert!(story.has_ended());
    assert!(story.artifacts[0].parts == [Part::text("xy")]);
    // Events after the end are ignored.
    assert!(hear(&mut story, chunk(6, "z", true), true).is_empty());
    assert!(hear(&mut story, status(7, TaskState::Working, "again"), true).is_empty());
    assert!(story.has_ended());
}

/// Goal: without numbers, a snapshot adds what is new and nothing twice. Method: one that
/// continues, one that repeats, one that differs.
#[test]
fn snapshots_are_reconciled() {
    let mut story = RemoteTaskState::default();
    hear(&mut story, chunk(0, "x", false), false);
    let snapshot = |texts: &[&str]| StreamResponse::Task(task(0, TaskState::Working, texts));
    assert!(hear(&mut story, snapshot(&["x"]), false).is_empty());
    assert_eq!(hear(&mut story, snapshot(&["x", "y"]), false), ["+y"]);
    // The pieces are one text, however the snapshot has them.
    assert!(story.artifacts[0].parts == [Part::text("xy")]);
    assert!(hear(&mut story, snapshot(&["x", "y"]), false).is_empty());
    assert!(hear(&mut story, snapshot(&["xy"]), false).is_empty());
    assert_eq!(hear(&mut story, snapshot(&["xyz"]), false), ["+z"]);
    assert_eq!(hear(&mut story, snapshot(&["other"]), false), ["=other"]);
    assert_eq!(
        hear(&mut story, status(0, TaskState::Working, "on"), false),
        ["on"]
    );
    assert!(hear(&mut story, status(0, TaskState::Working, "on"), false).is_empty());
    // Two statuses without ids at the same time.
    let bare = |text: &str| match status(0, TaskState::Working, text) {
        StreamResponse::StatusUpdate(mut update) => {
            update.status.message.as_mut().unwrap().message_id.clear();
            StreamResponse::StatusUpdate(update)
        }
        other => other,
    };
    assert_eq!(
        [
            hear(&mut story, bare("a"), false),
            hear(&mut story, bare("b"), false)
        ],
        [["a"], ["b"]]
    );
}

/// Goal: events of other tasks are ignored. Method: each kind of event.
#[test]
fn other_tasks_are_others() {
    let mut story = RemoteTaskState::for_task("mine", "c");
    for event in [
        StreamResponse::Task(task(1, TaskState::Completed, &["x"])),
        status(2, TaskState::Failed, "no"),
        chunk(3, "x", false),
    ] {
        assert!(hear(&mut story, event, false).is_empty());
    }
    assert!(story.artifacts.is_empty() && story.state.is_none());
}

/// Goal: a question is asked once; the next status is a new question. Method: the same status again
/// after the answer, then a new one; and one that can't be distinguished.
#[test]
fn questions_are_told_apart() {
    let mut story = RemoteTaskState::default();
    hear(
        &mut story,
        status(0, TaskState::InputRequired, "which?"),
        false,
    );
    assert!(story.is_paused());
    story.mark_answered();
    hear(
        &mut story,
        status(0, TaskState::InputRequired, "which?"),
        false,
    );
    assert!(!story.is_paused(), "the agent hasn't heard the answer yet");
    hear(
        &mut story,
        status(0, TaskState::InputRequired, "and when?"),
        false,
    );
    assert!(story.is_paused());
    let bare = || StreamResponse::Task(task(0, TaskState::InputRequired, &[]));
    let mut story = RemoteTaskState::default();
    hear(&mut story, bare(), false);
    story.mark_answered();
    hear(&mut story, bare(), false);
    assert!(story.is_paused());
}

/// Goal: an agent can't exhaust this process's memory. Method: events and bytes at their limits,
/// and one more.
#[test]
fn stories_are_bounded() {
    let mut story = RemoteTaskState::default();
    for n in 0..CALL_EVENTS_MAX {
        assert!(
            story
                .apply_event(&status(0, TaskState::Working, &n.to_string()), false)
                .is_ok()
        );
    }
    assert!(matches!(
        story.apply_event(&status(0, TaskState::Working, ""), false),
        Err(A2aClientError::TooLarge)
    ));
    let mut story = RemoteTaskState::default();
    assert!(
        story
            .apply_event(&chunk(0, &"x".repeat(ARTIFACT_BYTES_MAX), false), false)
            .is_ok()
    );
    assert!(matches!(
        story.apply_event(&chunk(0, "x", true), false),
        Err(A2aClientError::TooLarge)
    ));
}

/// Goal: messages of a working task are the answer if there is no other, in order and each once.
/// Method: statuses and histories that overlap; then another kind of answer.
#[test]
fn interim_messages_are_the_last_resort() {
    let says = |role: Role, id: &str, text: &str| A2aMessage {
        message_id: id.into(),
        role,
        parts: vec![Part::text(text)],
        ..A2aMessage::default()
    };
    let working = |message: A2aMessage| {
        let status = TaskStatus {
            message: Some(message),
            ..TaskStatus::new(TaskState::Working)
        };
        let (task_id, context_id) = ("t".to_owned(), "c".to_owned());
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id,
            context_id,
            status,
            metadata: None,
        })
    };
    let answer = |story: &RemoteTaskState| {
        story
            .interim_answer()
            .iter()
            .map(A2aMessage::text)
            .collect::<Vec<_>>()
    };
    let ended = |history: Vec<A2aMessage>| A2aTask {
        history: Some(history),
        ..task(0, TaskState::Completed, &[])
    };

    let mut story = RemoteTaskState::default();
    for (role, id, text) in [
        (Role::Agent, "1", "one"),
        (Role::User, "2", "not the agent's"),
        (Role::Agent, "3", "tw"),
        (Role::Agent, "3", "two"),
        (Role::Unspecified, "", "three"),
    ] {
        hear(&mut story, working(says(role, id, text)), false);
    }
    assert!(answer(&story).is_empty(), "it isn't over");
    let history = vec![
        says(Role::Agent, "0", "of an earlier round"),
        says(Role::User, "u", "go"),
        says(Role::Agent, "1", "one"),
        says(Role::Agent, "missed", "one and a half"),
        says(Role::Agent, "3", "two"),
        says(Role::Agent, "x", "three"),
    ];
    story.apply_task(&ended(history.clone())).unwrap();
    assert_eq!(answer(&story), ["one", "one and a half", "two", "three"]);
    let SendMessageResponse::Task(told) = story.into_response() else {
        panic!("no task")
    };
    assert_eq!(told.history.unwrap().len(), 4);

    // If there is another answer, or the agent is a callboard, they are only progress.
    let made = A2aTask {
        history: Some(history.clone()),
        ..task(0, TaskState::Completed, &["made"])
    };
    let mut said = ended(history.clone());
    said.status.message = Some(says(Role::Agent, "last", "said"));
    let numbered = A2aTask {
        metadata: numbered(7),
        ..ended(history)
    };
    let failed = A2aTask {
        status: TaskStatus::new(TaskState::Failed),
        ..ended(vec![says(Role::Agent, "1", "one")])
    };
    for task in [made, said, numbered, failed] {
        let mut story = RemoteTaskState::default();
        hear(&mut story, working(says(Role::Agent, "1", "one")), false);
        story.apply_task(&task).unwrap();
        assert!(answer(&story).is_empty());
    }
}

fn says(id: &str, text: &str) -> A2aMessage {
    A2aMessage {
        message_id: id.into(),
        role: Role::Agent,
        parts: vec![Part::text(text)],
        ..A2aMessage::default()
    }
}

/// Goal: interim messages are limited in bytes, ids and parts included. Method: one message at the
/// limit, and one more byte in its text, its id and beside its part; then a message after one at
/// the limit.
#[test]
fn interim_messages_are_bounded_in_bytes() {
    let fixed = size_of::<A2aMessage>() + size_of::<Part>();
    let hear = |message: &A2aMessage| {
        let mut story = RemoteTaskState::default();
        let status = TaskStatus {
            message: Some(message.clone()),
            ..TaskStatus::new(TaskState::Working)
        };
        let heard = story.apply_task(&A2aTask::new("t", "c", status)).map(drop);
        heard.and_then(|()| {
            story.apply_task(&A2aTask {
                history: Some(vec![says("z", "z")]),
                ..task(0, TaskState::Working, &[])
            })
        })
    };
    let last = fixed + "z".len() + 2 * "z".len();
    let message =
        |text: usize, id: &str| says(id, &"x".repeat(ARTIFACT_BYTES_MAX - last - fixed - text));
    assert!(hear(&message(2, "i")).is_ok());
    assert!(matches!(
        hear(&message(1, "i")),
        Err(A2aClientError::TooLarge)
    ));
    assert!(matches!(
        hear(&message(2, "ii")),
        Err(A2aClientError::TooLarge)
    ));
    let mut named = message(2, "i");
    named.parts[0].filename = "f".into();
    assert!(matches!(hear(&named), Err(A2aClientError::TooLarge)));
}

/// Goal: only the counted members of an interim message are stored. Method: one with everything
/// beside its parts.
#[test]
fn interim_messages_are_kept_bare() {
    let full = A2aMessage {
        context_id: "c".into(),
        task_id: "t".into(),
        metadata: Some(RawObject::single("m", "x")),
        extensions: vec!["urn:e".into()],
        reference_task_ids: vec!["r".into()],
        ..says("1", "one")
    };
    let twice = A2aMessage {
        message_id: "2".into(),
        parts: vec![Part::text("two")],
        ..full.clone()
    };
    let mut story = RemoteTaskState::default();
    let status = TaskStatus {
        message: Some(full),
        ..TaskStatus::new(TaskState::Working)
    };
    story.apply_task(&A2aTask::new("t", "c", status)).unwrap();
    story
        .apply_task(&A2aTask {
            history: Some(vec![twice]),
            ..task(0, TaskState::Completed, &[])
        })
        .unwrap();
    assert_eq!(story.interim_answer(), [says("2", "two"), says("1", "one")]);
}

/// Goal: no more of a history counts than was requested. Method: one message more than that.
#[test]
fn histories_are_bounded() {
    let asked_for = usize::try_from(HISTORY_MESSAGES_MAX).unwrap();
    let history: Vec<A2aMessage> = (0..=asked_for)
        .map(|nth| says(&nth.to_string(), "x"))
        .collect();
    let mut story = RemoteTaskState::default();
    story
        .apply_task(&A2aTask {
            history: Some(history),
            ..task(0, TaskState::Completed, &[])
        })
        .unwrap();
    let kept = story.interim_answer();
    assert_eq!((kept.len(), &*kept[0].message_id), (asked_for, "1"));
}

/// Goal: interim messages are limited in number. Method: the limit in as many histories as that
/// takes, and one more.
#[test]
fn interim_messages_are_bounded_in_number() {
    let mut story = RemoteTaskState::default();
    let ids: Vec<String> = (0..=INTERIM_MESSAGES_MAX)
        .map(|nth| nth.to_string())
        .collect();
    let (within, beyond) = ids.split_at(INTERIM_MESSAGES_MAX);
    let mut look = |ids: &[String]| {
        let history = Some(ids.iter().map(|id| says(id, "x")).collect());
        story
            .apply_task(&A2aTask {
                history,
                ..task(0, TaskState::Working, &[])
            })
            .map(drop)
    };
    for ids in within.chunks(usize::try_from(HISTORY_MESSAGES_MAX).unwrap()) {
        look(ids).unwrap();
    }
    assert!(matches!(look(beyond), Err(A2aClientError::TooLarge)));
}

/// Goal: pieces of plain text are joined, other parts stay apart. Method: pieces with and without a
/// media type, data between texts; what is beyond them in a whole.
#[test]
fn pieces_of_text_are_joined() {
    let markdown = || Part {
        media_type: "text/markdown".into(),
        ..Part::text("c")
    };
    let data = || Part::data(serde_json::value::to_raw_value(&json!({})).unwrap());
    let mut parts = Vec::new();
    for piece in [
        vec![Part::text("a")],
        vec![Part::text("b"), Part::text("B")],
        vec![],
        vec![markdown()],
        vec![Part::text("d")],
        vec![data(), Part::text("e")],
        vec![Part::text("f")],
    ] {
        append_parts(&mut parts, piece);
    }
    let joined = [
        Part::text("ab"),
        Part::text("B"),
        markdown(),
        Part::text("d"),
        data(),
        Part::text("ef"),
    ];
    assert!(parts == joined);
    let beyond = |known: &[Part], now: &[Part]| parts_beyond(known, now);
    let (a, b) = (Part::text("a"), Part::text("b"));
    assert!(beyond(&[], std::slice::from_ref(&a)).is_none());
    assert!(beyond(&[Part::text("ab")], &[a.clone(), b.clone()]) == Some(vec![]));
    assert!(beyond(&[a.clone(), data()], &[a.clone(), data(), b.clone()]) == Some(vec![b.clone()]));
    assert!(
        beyond(std::slice::from_ref(&a), &[Part::text("ab"), data()])
            == Some(vec![b.clone(), data()])
    );
    assert!(beyond(&[markdown()], &[markdown(), b.clone()]) == Some(vec![b.clone()]));
    for other in [vec![], vec![b], vec![data(), a.clone()]] {
        assert!(beyond(std::slice::from_ref(&a), &other).is_none());
    }
}
