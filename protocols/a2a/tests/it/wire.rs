//! Exact output in each dialect.

use callboard_a2a::wire::*;
use callboard_a2a::{A2aError, Dialect, ErrorKind};
use callboard_message::TaskState;

use crate::samples::*;

const ALL: [Dialect; 4] = [Dialect::V10, Dialect::V03, Dialect::V03Rest, Dialect::V01];

/// Goal: every request is written in its version's format. Method: each kind with all members, in
/// snapshots.
#[test]
fn requests() {
    for dialect in ALL {
        let get = GetTaskRequest {
            id: "t-1".into(),
            history_length: Some(3),
            ..Default::default()
        };
        let cancel = CancelTaskRequest {
            id: "t-1".into(),
            metadata: Some(object(r#"{"why":"x"}"#)),
            ..Default::default()
        };
        let subscribe = SubscribeToTaskRequest {
            id: "t-1".into(),
            ..Default::default()
        };
        insta::assert_snapshot!(
            format!("requests_{dialect:?}"),
            lines(&[
                ("send", dialect.write_send(&send())),
                ("get", dialect.write_request(&get)),
                ("list", dialect.write_request(&list_request())),
                ("cancel", dialect.write_request(&cancel)),
                ("subscribe", dialect.write_request(&subscribe)),
                ("push create", dialect.write_push_config(&push())),
                (
                    "card",
                    dialect.write_request(&GetExtendedAgentCardRequest::default())
                ),
            ])
        );
    }
}

/// Goal: every response is written in its version's format. Method: each kind with all members, in
/// snapshots.
#[test]
fn responses() {
    for dialect in ALL {
        let bare = A2aTask::new("t-1", "", TaskStatus::new(TaskState::Submitted));
        let answer = A2aMessage {
            task_id: String::new(),
            role: Role::Agent,
            ..message()
        };
        let configs = ListTaskPushNotificationConfigsResponse {
            configs: vec![push()],
            next_page_token: String::new(),
        };
        insta::assert_snapshot!(
            format!("responses_{dialect:?}"),
            lines(&[
                ("bare task", dialect.write_task(&bare)),
                ("task", dialect.write_task(&task(TaskState::InputRequired))),
                (
                    "send: task",
                    dialect.write_send_response(&SendMessageResponse::Task(bare.clone()))
                ),
                (
                    "send: message",
                    dialect.write_send_response(&SendMessageResponse::Message(answer))
                ),
                ("list", dialect.write_task_list(&list())),
                ("push", dialect.write_push_config(&push())),
                ("pushes", dialect.write_push_configs(&configs)),
                ("deleted", dialect.write_deleted()),
                ("card", dialect.write_card(&card())),
            ])
        );
    }
}

/// Goal: a state is written under its version's name; a state that the version lacks becomes one
/// that its readers know. Method: all states.
#[test]
fn states() {
    let row = |state: TaskState| {
        let task = A2aTask::new("t", "c", status(state));
        let names = ALL.map(|dialect| {
            let json: serde_json::Value =
                serde_json::from_str(dialect.write_task(&task).get()).unwrap();
            let said = json["status"]["message"]["parts"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            format!("{} ({said})", json["status"]["state"].as_str().unwrap())
        });
        names.join(" | ")
    };
    insta::assert_snapshot!(TaskState::ALL.map(row).join("\n"));
}

/// Goal: a stream's events are written in their version's format; 0.1 numbers artifacts by their
/// first event. Method: one stream.
#[test]
fn events() {
    for dialect in ALL {
        let mut events = dialect.event_writer();
        let answer = A2aMessage {
            role: Role::Agent,
            ..message()
        };
        let first = A2aTask {
            history: None,
            ..task(TaskState::Working)
        };
        insta::assert_snapshot!(
            format!("events_{dialect:?}"),
            lines(&[
                ("task", events.write(&StreamResponse::Task(first), false)),
                (
                    "new artifact",
                    events.write(&artifact_update("a-2", false), false)
                ),
                (
                    "known artifact",
                    events.write(&artifact_update("a-1", true), false)
                ),
                (
                    "status",
                    events.write(&status_update(TaskState::Working), false)
                ),
                (
                    "last",
                    events.write(&status_update(TaskState::Canceled), true)
                ),
                (
                    "message",
                    events.write(&StreamResponse::Message(answer), true)
                ),
            ])
        );
    }
}

/// Goal: an error has its version's code, data and shape. Method: kinds that differ, over both
/// bindings.
#[test]
fn errors() {
    let errors = [
        A2aError::task_not_found("t-1"),
        ErrorKind::ContentTypeNotSupported.error("text only"),
        ErrorKind::VersionNotSupported.error("another version"),
        A2aError::invalid_params("message.parts[0]", "has two contents"),
        A2aError::invalid_params("", "must be an object"),
        A2aError::internal(),
        ErrorKind::Overloaded.error("too many tasks"),
        ErrorKind::Denied.error("not yours to ask"),
    ];
    for dialect in ALL {
        let row = |error: &A2aError| {
            let rpc = dialect.write_error(error);
            let data = rpc.data.as_ref().map_or("none", |data| data.get());
            let http = dialect.write_http_error(error);
            format!(
                "{} {} {data}\n    {} {}\n",
                rpc.code,
                rpc.message,
                error.kind.http_status(),
                http.get()
            )
        };
        insta::assert_snapshot!(
            format!("errors_{dialect:?}"),
            errors.iter().map(row).collect::<String>()
        );
    }
}

/// Goal: the reader of an error gets its kind and its task. Method: all kinds there and back.
#[test]
fn errors_are_read_again() {
    for kind in ErrorKind::ALL {
        let error = kind.error("so").with_task("t-1");
        let is_plain = kind.code() <= -32_600
            && !matches!(
                kind,
                ErrorKind::Overloaded | ErrorKind::Denied | ErrorKind::Blocked
            );
        let task = (!is_plain).then(|| "t-1".to_owned());
        for dialect in ALL {
            let read = Dialect::read_error(&dialect.write_error(&error));
            assert_eq!(
                (read.kind, &*read.message, &read.task),
                (kind, "so", &task),
                "{dialect:?}"
            );
            assert!(read.details.is_empty());
        }
        let read =
            Dialect::read_http_error(kind.http_status(), &Dialect::V10.write_http_error(&error))
                .unwrap();
        let told = if kind.http_status() == 400 && is_plain {
            ErrorKind::InvalidParams
        } else {
            kind
        };
        assert_eq!(read.kind, told);
        let read = Dialect::read_http_error(
            kind.http_status(),
            &Dialect::V03Rest.write_http_error(&error),
        )
        .unwrap();
        assert_eq!(read.kind, kind);
    }
    assert_eq!(
        Dialect::read_http_error(502, &raw(r#"{"title":"Bad Gateway"}"#)),
        None
    );
    assert_eq!(Dialect::read_http_error(502, &raw("[]")), None);
}

/// Goal: debug output contains no content and no secret. Method: values with all members.
#[test]
fn nothing_is_printed() {
    let printed = format!(
        "{:?} {:?} {:?} {:?} {:?}",
        message(),
        task(TaskState::Failed),
        push(),
        send(),
        card()
    );
    for secret in ["which day", "quoted", "key", "once", "Clinic", "t-1"] {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
    assert_eq!(
        format!("{:?}", A2aError::invalid_params("id", "is missing")),
        "A2aError(InvalidParams)"
    );
}
