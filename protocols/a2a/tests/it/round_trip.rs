//! Round trips: nothing is lost that a version can express, and the official types read what is
//! written here.

use std::time::{Duration, UNIX_EPOCH};

use callboard_a2a::Dialect;
use callboard_a2a::wire::*;
use callboard_message::{RawObject, TaskState};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::samples::raw;

fn text() -> impl Strategy<Value = String> {
    "[a-z \"\\\\\n\u{1}é😀]{0,8}"
}

fn id() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_.:-]{1,12}"
}

/// Strategy for any JSON value; objects have at most one member, because some readers sort them.
fn value() -> impl Strategy<Value = Box<RawValue>> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        any::<i32>().prop_map(|n| n.to_string()),
        text().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    let nested = leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|all| format!("[{}]", all.join(","))),
            (select(vec!["a", "data", "value"]), inner)
                .prop_map(|(name, value)| format!("{{\"{name}\":{value}}}")),
            Just("{}".to_owned()),
        ]
    });
    nested.prop_map(|json| raw(&json))
}

fn metadata() -> impl Strategy<Value = Option<RawObject>> {
    option::of(
        (id(), value()).prop_filter_map("null is none in some readers", |(name, value)| {
            let mut object = RawObject::new();
            object.set_raw(&name, value);
            Some(object)
        }),
    )
}

prop_compose! {
    fn part()(
        content in prop_oneof![
            text().prop_map(PartContent::Text),
            vec(any::<u8>(), 0..9).prop_map(|bytes| PartContent::Raw(bytes.into())),
            id().prop_map(PartContent::Url),
            value().prop_map(PartContent::Data),
        ],
        metadata in metadata(),
        filename in text(),
        media_type in select(vec!["", "text/plain", "image/png"]),
    ) -> Part {
        Part { content, metadata, filename, media_type: media_type.to_owned() }
    }
}

prop_compose! {
    fn message()(
        message_id in id(),
        context_id in option::of(id()),
        task_id in option::of(id()),
        role in select(vec![Role::User, Role::Agent]),
        parts in vec(part(), 1..4),
        metadata in metadata(),
        extensions in vec(id(), 0..3),
        reference_task_ids in vec(id(), 0..3),
    ) -> A2aMessage {
        let (context_id, task_id) = (context_id.unwrap_or_default(), task_id.unwrap_or_default());
        A2aMessage { message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids }
    }
}

prop_compose! {
    fn status()(
        state in select(TaskState::ALL.to_vec()),
        message in option::of(message()),
        timestamp in option::of(0..4_102_444_800_000_u64),
    ) -> TaskStatus {
        TaskStatus { state, message, timestamp: timestamp.map(|ms| UNIX_EPOCH + Duration::from_millis(ms)) }
    }
}

prop_compose! {
    fn artifact()(
        artifact_id in id(),
        name in text(),
        description in text(),
        parts in vec(part(), 1..3),
        metadata in metadata(),
        extensions in vec(id(), 0..2),
    ) -> A2aArtifact {
        A2aArtifact { artifact_id, name, description, parts, metadata, extensions }
    }
}

prop_compose! {
    fn task()(
        id in id(),
        context_id in id(),
        status in status(),
        artifacts in option::of(vec(artifact(), 0..3)),
        history in option::of(vec(message(), 0..3)),
        metadata in metadata(),
    ) -> A2aTask {
        A2aTask { id, context_id, status, artifacts, history, metadata }
    }
}

fn event() -> impl Strategy<Value = StreamResponse> {
    let status =
        (id(), id(), status(), metadata()).prop_map(|(task_id, context_id, status, metadata)| {
            StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                task_id,
                context_id,
                status,
                metadata,
            })
        });
    let artifact = (
        id(),
        id(),
        artifact(),
        any::<bool>(),
        any::<bool>(),
        metadata(),
    )
        .prop_map(
            |(task_id, context_id, artifact, append, last_chunk, metadata)| {
                StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                    task_id,
                    context_id,
                    artifact,
                    append,
                    last_chunk,
                    metadata,
                })
            },
        );
    prop_oneof![
        task().prop_map(StreamResponse::Task),
        message().prop_map(StreamResponse::Message),
        status,
        artifact,
    ]
}

prop_compose! {
    fn push()(
        id in id(),
        task_id in id(),
        url in id(),
        token in text(),
        authentication in option::of((id(), text())),
    ) -> TaskPushNotificationConfig {
        let authentication = authentication
            .map(|(scheme, credentials)| AuthenticationInfo { scheme, credentials: credentials.into() });
        TaskPushNotificationConfig { tenant: String::new(), id, task_id, url, token: token.into(), authentication }
    }
}

prop_compose! {
    fn send()(
        message in message().prop_map(|message| A2aMessage { role: Role::User, ..message }),
        accepted_output_modes in vec(id(), 0..2),
        push in option::of(push()),
        history_length in option::of(0..100),
        return_immediately in any::<bool>(),
        metadata in metadata(),
    ) -> SendMessageRequest {
        let configuration = SendMessageConfiguration {
            accepted_output_modes,
            task_push_notification_config: push.map(|push| TaskPushNotificationConfig { task_id: String::new(), ..push }),
            history_length,
            return_immediately,
        };
        SendMessageRequest { tenant: String::new(), message, configuration: Some(configuration), metadata }
    }
}

/// Removes from a message what a version can't express.
fn forget_of_message(dialect: Dialect, message: &mut A2aMessage) {
    match dialect {
        Dialect::V10 | Dialect::V03 => {}
        Dialect::V03Rest => message.reference_task_ids.clear(),
        Dialect::V01 => {
            let A2aMessage {
                role,
                parts,
                metadata,
                ..
            } = std::mem::take(message);
            *message = A2aMessage {
                role,
                parts,
                metadata,
                ..A2aMessage::default()
            };
        }
    }
}

fn forget_of_status(dialect: Dialect, status: &mut TaskStatus) {
    status
        .message
        .iter_mut()
        .for_each(|message| forget_of_message(dialect, message));
    if dialect == Dialect::V01 {
        match status.state {
            TaskState::AuthRequired => status.state = TaskState::InputRequired,
            TaskState::Rejected => {
                *status = TaskStatus {
                    timestamp: status.timestamp,
                    ..TaskStatus::new(TaskState::Failed)
                }
            }
            _ => {}
        }
    }
}

fn forget_of_task(dialect: Dialect, task: &mut A2aTask) {
    forget_of_status(dialect, &mut task.status);
    task.history
        .iter_mut()
        .flatten()
        .for_each(|message| forget_of_message(dialect, message));
    if dialect == Dialect::V01 {
        for (index, artifact) in task.artifacts.iter_mut().flatten().enumerate() {
            artifact.artifact_id = index.to_string();
            artifact.extensions.clear();
        }
    }
}

/// Removes ids that a reader of 0.1 generates, and the text that it adds to a rejection.
fn forget_made_up(dialect: Dialect, task: &mut A2aTask, was: TaskState) {
    if dialect == Dialect::V01 {
        task.history
            .iter_mut()
            .flatten()
            .for_each(|message| message.message_id.clear());
        task.status
            .message
            .iter_mut()
            .for_each(|message| message.message_id.clear());
        if was == TaskState::Rejected {
            task.status.message = None;
        }
    }
}

const ALL: [Dialect; 4] = [Dialect::V10, Dialect::V03, Dialect::V03Rest, Dialect::V01];

proptest! {
    /// Goal: a task is unchanged after a version wrote and read it. Method: any task, except what
    /// the version lacks.
    #[test]
    fn tasks(task in task()) {
        for dialect in ALL {
            let mut expected = task.clone();
            forget_of_task(dialect, &mut expected);
            let mut read = dialect.read_task(&dialect.write_task(&task)).unwrap();
            forget_made_up(dialect, &mut read, task.status.state);
            prop_assert_eq!(read.to_json(), expected.to_json(), "{:?}", dialect);
        }
    }

    /// Goal: an event is unchanged after a version wrote and read it. Method: any event, in every
    /// version that has it.
    #[test]
    fn events(event in event(), ends in any::<bool>()) {
        for dialect in [Dialect::V10, Dialect::V03, Dialect::V03Rest] {
            let mut expected = event.clone();
            match &mut expected {
                StreamResponse::Task(task) => forget_of_task(dialect, task),
                StreamResponse::Message(message) => forget_of_message(dialect, message),
                StreamResponse::StatusUpdate(update) => forget_of_status(dialect, &mut update.status),
                StreamResponse::ArtifactUpdate(_) => {}
            }
            let read = dialect.read_event(&dialect.event_writer().write(&event, ends)).unwrap();
            prop_assert_eq!(read.to_json(), expected.to_json(), "{:?}", dialect);
        }
        let read = Dialect::V01.read_event(&Dialect::V01.event_writer().write(&event, ends)).unwrap();
        match (&event, read) {
            (StreamResponse::ArtifactUpdate(sent), StreamResponse::ArtifactUpdate(read)) => {
                prop_assert_eq!(&*read.artifact.artifact_id, "0");
                prop_assert_eq!((read.append, read.last_chunk), (sent.append, sent.last_chunk));
                prop_assert_eq!(&read.artifact.parts, &sent.artifact.parts);
            }
            (StreamResponse::StatusUpdate(sent), StreamResponse::StatusUpdate(read)) => {
                prop_assert_eq!(&read.task_id, &sent.task_id);
                prop_assert_eq!(read.status.timestamp, sent.status.timestamp);
            }
            (StreamResponse::Message(sent), StreamResponse::Task(read)) => {
                prop_assert_eq!(&read.artifacts.unwrap()[0].parts, &sent.parts);
            }
            (StreamResponse::Task(sent), StreamResponse::Task(read)) => prop_assert_eq!(&sent.id, &read.id),
            // A task without content is read as a status.
            (StreamResponse::Task(sent), StreamResponse::StatusUpdate(read)) => {
                prop_assert!(sent.artifacts.is_none() && sent.history.is_none());
                prop_assert_eq!(&sent.id, &read.task_id);
            }
            _ => prop_assert!(false, "another event"),
        }
    }

    /// Goal: a request is unchanged after a version wrote and read it. Method: any message to send.
    #[test]
    fn requests(request in send()) {
        for dialect in [Dialect::V10, Dialect::V03, Dialect::V03Rest] {
            let mut expected = request.clone();
            forget_of_message(dialect, &mut expected.message);
            let read = dialect.read_send(Some(&dialect.write_send(&request))).unwrap();
            prop_assert_eq!(read.to_json(), expected.to_json(), "{:?}", dialect);
        }
        let read = Dialect::V01.read_send(Some(&Dialect::V01.write_send(&request))).unwrap();
        prop_assert_eq!(&read.message.parts, &request.message.parts);
        prop_assert_eq!(&read.message.context_id, &request.message.context_id);
        prop_assert!(request.message.task_id.is_empty() || read.message.task_id == request.message.task_id);
        let push = |request: SendMessageRequest| request.configuration.unwrap().task_push_notification_config;
        prop_assert_eq!(push(read), push(request));
    }

    /// Goal: a push configuration is unchanged after a version wrote and read it, and so is each
    /// version's way to name one. Method: any.
    #[test]
    fn pushes(config in push()) {
        for dialect in ALL {
            let sent = dialect.read_push_create(Some(&dialect.write_push_config(&config)), None).unwrap();
            prop_assert_eq!(sent.to_json(), config.to_json(), "{:?}", dialect);
            let get = GetTaskPushNotificationConfigRequest {
                task_id: config.task_id.clone(),
                id: config.id.clone(),
                ..Default::default()
            };
            let (task, id) = (&config.task_id, &config.id);
            let named = match dialect {
                Dialect::V10 => serde_json::json!({ "taskId": task, "id": id }),
                Dialect::V03Rest => serde_json::json!({ "name": format!("tasks/{task}/pushNotificationConfigs/{id}") }),
                Dialect::V03 | Dialect::V01 => serde_json::json!({ "id": task, "pushNotificationConfigId": id }),
            };
            let named = serde_json::value::to_raw_value(&named).unwrap();
            prop_assert_eq!(dialect.read_push_get(Some(&named)).unwrap(), get);
        }
    }

    /// Goal: the official Rust types read what is written here and write the same. Method: through
    /// them and back.
    #[test]
    fn with_the_official_types(task in task(), event in event(), request in send()) {
        prop_assert_eq!(through::<a2a::Task, A2aTask>(&task), task);
        prop_assert_eq!(through::<a2a::StreamResponse, StreamResponse>(&event), event);
        prop_assert_eq!(through::<a2a::SendMessageRequest, SendMessageRequest>(&request), request);
    }
}

fn through<Theirs: Serialize + DeserializeOwned, Ours: WireType>(ours: &Ours) -> Ours {
    let json = ours.to_json();
    let theirs: Theirs = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e} in {json}"));
    Ours::from_raw(&raw(&serde_json::to_string(&theirs).unwrap())).unwrap()
}

/// Goal: a card keeps what its reader can use in every version, and a hybrid card contains all of
/// it. Method: a card with all members.
#[test]
fn cards() {
    let card = crate::samples::card();
    assert_eq!(
        Dialect::read_card(&Dialect::V10.write_card(&card)).unwrap(),
        card
    );
    let hybrid = Dialect::write_hybrid_card(&card);
    assert_eq!(Dialect::read_card(&hybrid).unwrap(), card);
    let only = |version: &str| {
        let of_version = |i: &&AgentInterface| i.protocol_version == version;
        AgentCard {
            supported_interfaces: card
                .supported_interfaces
                .iter()
                .filter(of_version)
                .cloned()
                .collect(),
            signatures: Vec::new(),
            ..card.clone()
        }
    };
    assert_eq!(
        Dialect::read_card(&Dialect::V03.write_card(&card)).unwrap(),
        only("0.3")
    );
    let oldest = Dialect::read_card(&Dialect::V01.write_card(&card)).unwrap();
    assert_eq!(
        oldest.supported_interfaces,
        only("0.1").supported_interfaces
    );
    assert!(
        matches!(&oldest.security_schemes["bearer"], SecurityScheme::HttpAuth(http) if http.scheme == "Bearer")
    );
    // The hybrid has the members that 0.3's own types require.
    for (name, json) in [
        ("url", r#""https://agents.example/a2a""#),
        ("preferredTransport", r#""JSONRPC""#),
    ] {
        assert_eq!(
            RawObject::parse(&hybrid).unwrap().get(name).unwrap().get(),
            json
        );
    }
    let theirs: a2a::AgentCard = serde_json::from_str(hybrid.get()).unwrap();
    assert_eq!(theirs.supported_interfaces.len(), 5);
}
