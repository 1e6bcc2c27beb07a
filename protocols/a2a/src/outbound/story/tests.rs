use super::*;
use crate::outbound::options::HISTORY_MESSAGES_MAX;
use crate::wire::{Role, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};

fn numbered(number: u64) -> Option<RawObject> {
    (number > 0).then(|| RawObject::of(EVENT, number))
}

fn status(number: u64, state: TaskState, text: &str) -> StreamResponse {
    let message = Message {
        message_id: text.into(),
        parts: vec![Part::text(text)],
        ..Message::default()
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
    let artifact = Artifact {
        artifact_id: "a".into(),
        parts: vec![Part::text(text)],
        ..Artifact::default()
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

fn task(number: u64, state: TaskState, texts: &[&str]) -> Task {
    let parts: Vec<Part> = texts.iter().copied().map(Part::text).collect();
    let artifact = Artifact {
        artifact_id: "a".into(),
        parts,
        ..Artifact::default()
    };
    let artifacts = (!texts.is_empty()).then(|| vec![artifact]);
    Task {
        artifacts,
        metadata: numbered(number),
        ..Task::new("t", "c", TaskStatus::new(state))
    }
}

fn told(news: Vec<News>) -> Vec<String> {
    let in_words = |news| match news {
        News::Said(text) => text,
        News::Artifact {
            artifact, append, ..
        } => {
            let texts: Vec<&str> = artifact.parts.iter().filter_map(Part::as_text).collect();
            format!("{}{}", if append { "+" } else { "=" }, texts.join("|"))
        }
    };
    news.into_iter().map(in_words).collect()
}

fn hear(story: &mut Story, event: StreamResponse, resumed: bool) -> Vec<String> {
    told(story.hear(&event, resumed).unwrap().unwrap_or_default())
}

/// Goal: numbered events count once each, however often a stream is taken up. Method: a stream, a snapshot of later and
/// what had been heard already.
#[test]
fn numbered_events_count_once() {
    let mut story = Story::default();
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
    // Broken off, taken up after 3; the task has come to 5 meanwhile.
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
    assert_eq!(story.artifacts[0].parts.len(), 2);
    // Nothing comes after the end.
    assert!(hear(&mut story, chunk(6, "z", true), true).is_empty());
    assert!(hear(&mut story, status(7, TaskState::Working, "again"), true).is_empty());
    assert!(story.has_ended());
}

/// Goal: without numbers, a snapshot brings what is new and nothing twice. Method: one that goes on, one that repeats, one
/// that is another.
#[test]
fn snapshots_are_reconciled() {
    let mut story = Story::default();
    hear(&mut story, chunk(0, "x", false), false);
    let snapshot = |texts: &[&str]| StreamResponse::Task(task(0, TaskState::Working, texts));
    assert!(hear(&mut story, snapshot(&["x"]), false).is_empty());
    assert_eq!(hear(&mut story, snapshot(&["x", "y"]), false), ["+y"]);
    assert_eq!(hear(&mut story, snapshot(&["other"]), false), ["=other"]);
    assert_eq!(
        hear(&mut story, status(0, TaskState::Working, "on"), false),
        ["on"]
    );
    assert!(hear(&mut story, status(0, TaskState::Working, "on"), false).is_empty());
    // Two statuses without ids, of one moment.
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

/// Goal: what belongs to another task is nothing to us. Method: each kind of event of another's.
#[test]
fn other_tasks_are_others() {
    let mut story = Story::of("mine", "c");
    for event in [
        StreamResponse::Task(task(1, TaskState::Completed, &["x"])),
        status(2, TaskState::Failed, "no"),
        chunk(3, "x", false),
    ] {
        assert!(hear(&mut story, event, false).is_empty());
    }
    assert!(story.artifacts.is_empty() && story.state.is_none());
}

/// Goal: a question is asked once; the next one is another. Method: the same status again after the answer, then a new
/// one; and one that can't be told apart.
#[test]
fn questions_are_told_apart() {
    let mut story = Story::default();
    hear(
        &mut story,
        status(0, TaskState::InputRequired, "which?"),
        false,
    );
    assert!(story.is_paused());
    story.answer();
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
    let mut story = Story::default();
    hear(&mut story, bare(), false);
    story.answer();
    hear(&mut story, bare(), false);
    assert!(story.is_paused());
}

/// Goal: an agent can't fill this process. Method: events and bytes at their bounds, and one more.
#[test]
fn stories_are_bounded() {
    let mut story = Story::default();
    for n in 0..EVENTS_MAX {
        assert!(
            story
                .hear(&status(0, TaskState::Working, &n.to_string()), false)
                .is_ok()
        );
    }
    assert!(matches!(
        story.hear(&status(0, TaskState::Working, ""), false),
        Err(PeerError::TooLarge)
    ));
    let mut story = Story::default();
    assert!(
        story
            .hear(&chunk(0, &"x".repeat(ARTIFACT_BYTES_MAX), false), false)
            .is_ok()
    );
    assert!(matches!(
        story.hear(&chunk(0, "x", true), false),
        Err(PeerError::TooLarge)
    ));
}

/// Goal: what was said while working is the answer where there is no other, in order and each once. Method: statuses and
/// histories that overlap; then another kind of answer.
#[test]
fn interim_messages_are_the_last_resort() {
    let says = |role: Role, id: &str, text: &str| Message {
        message_id: id.into(),
        role,
        parts: vec![Part::text(text)],
        ..Message::default()
    };
    let working = |message: Message| {
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
    let answer = |story: &Story| {
        story
            .interim_answer()
            .iter()
            .map(Message::text)
            .collect::<Vec<_>>()
    };
    let ended = |history: Vec<Message>| Task {
        history: Some(history),
        ..task(0, TaskState::Completed, &[])
    };

    let mut story = Story::default();
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
    story.adopt(&ended(history.clone())).unwrap();
    assert_eq!(answer(&story), ["one", "one and a half", "two", "three"]);
    let SendMessageResponse::Task(told) = story.into_response() else {
        panic!("no task")
    };
    assert_eq!(told.history.unwrap().len(), 4);

    // Where there is another answer, or the agent is a callboard, they are progress and nothing else.
    let made = Task {
        history: Some(history.clone()),
        ..task(0, TaskState::Completed, &["made"])
    };
    let mut said = ended(history.clone());
    said.status.message = Some(says(Role::Agent, "last", "said"));
    let numbered = Task {
        metadata: numbered(7),
        ..ended(history)
    };
    let failed = Task {
        status: TaskStatus::new(TaskState::Failed),
        ..ended(vec![says(Role::Agent, "1", "one")])
    };
    for task in [made, said, numbered, failed] {
        let mut story = Story::default();
        hear(&mut story, working(says(Role::Agent, "1", "one")), false);
        story.adopt(&task).unwrap();
        assert!(answer(&story).is_empty());
    }
}

fn says(id: &str, text: &str) -> Message {
    Message {
        message_id: id.into(),
        role: Role::Agent,
        parts: vec![Part::text(text)],
        ..Message::default()
    }
}

/// Goal: what is said while working is bounded in bytes, ids and parts included. Method: one message at the limit, and one
/// more byte in its text, its id and beside its part; then a message behind one at the limit.
#[test]
fn interim_messages_are_bounded_in_bytes() {
    let fixed = size_of::<Message>() + size_of::<Part>();
    let hear = |message: &Message| {
        let mut story = Story::default();
        let status = TaskStatus {
            message: Some(message.clone()),
            ..TaskStatus::new(TaskState::Working)
        };
        let heard = story.adopt(&Task::new("t", "c", status)).map(drop);
        heard.and_then(|()| {
            story.adopt(&Task {
                history: Some(vec![says("z", "z")]),
                ..task(0, TaskState::Working, &[])
            })
        })
    };
    let last = fixed + "z".len() + 2 * "z".len();
    let message =
        |text: usize, id: &str| says(id, &"x".repeat(ARTIFACT_BYTES_MAX - last - fixed - text));
    assert!(hear(&message(2, "i")).is_ok());
    assert!(matches!(hear(&message(1, "i")), Err(PeerError::TooLarge)));
    assert!(matches!(hear(&message(2, "ii")), Err(PeerError::TooLarge)));
    let mut named = message(2, "i");
    named.parts[0].filename = "f".into();
    assert!(matches!(hear(&named), Err(PeerError::TooLarge)));
}

/// Goal: nothing unweighed of an interim message is kept. Method: one with everything beside its parts.
#[test]
fn interim_messages_are_kept_bare() {
    let full = Message {
        context_id: "c".into(),
        task_id: "t".into(),
        metadata: Some(RawObject::of("m", "x")),
        extensions: vec!["urn:e".into()],
        reference_task_ids: vec!["r".into()],
        ..says("1", "one")
    };
    let twice = Message {
        message_id: "2".into(),
        parts: vec![Part::text("two")],
        ..full.clone()
    };
    let mut story = Story::default();
    let status = TaskStatus {
        message: Some(full),
        ..TaskStatus::new(TaskState::Working)
    };
    story.adopt(&Task::new("t", "c", status)).unwrap();
    story
        .adopt(&Task {
            history: Some(vec![twice]),
            ..task(0, TaskState::Completed, &[])
        })
        .unwrap();
    assert_eq!(story.interim_answer(), [says("2", "two"), says("1", "one")]);
}

/// Goal: of a history no more counts than was asked for. Method: one message more than that.
#[test]
fn histories_are_bounded() {
    let asked_for = usize::try_from(HISTORY_MESSAGES_MAX).unwrap();
    let history: Vec<Message> = (0..=asked_for)
        .map(|nth| says(&nth.to_string(), "x"))
        .collect();
    let mut story = Story::default();
    story
        .adopt(&Task {
            history: Some(history),
            ..task(0, TaskState::Completed, &[])
        })
        .unwrap();
    let kept = story.interim_answer();
    assert_eq!((kept.len(), &*kept[0].message_id), (asked_for, "1"));
}

/// Goal: interim messages are bounded in number. Method: the limit in as many histories as that takes, and one more.
#[test]
fn interim_messages_are_bounded_in_number() {
    let mut story = Story::default();
    let ids: Vec<String> = (0..=INTERIM_MESSAGES_MAX)
        .map(|nth| nth.to_string())
        .collect();
    let (within, beyond) = ids.split_at(INTERIM_MESSAGES_MAX);
    let mut look = |ids: &[String]| {
        let history = Some(ids.iter().map(|id| says(id, "x")).collect());
        story
            .adopt(&Task {
                history,
                ..task(0, TaskState::Working, &[])
            })
            .map(drop)
    };
    for ids in within.chunks(usize::try_from(HISTORY_MESSAGES_MAX).unwrap()) {
        look(ids).unwrap();
    }
    assert!(matches!(look(beyond), Err(PeerError::TooLarge)));
}
