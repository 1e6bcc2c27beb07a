//! The gRPC binding: operations, errors and authentication.

use std::time::Duration;

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{self, TaskState, part, send_message_response, stream_response};
use callboard_a2a::grpc::{BoundGrpcServer, GRPC_STREAMS_MAX, serve};
use callboard_a2a::inbound::{A2aOptions, A2aServer, ListenOptions};
use callboard_a2a::wire::AgentExtension;
use callboard_rpc::{BufferBudget, BufferLimits};
use callboard_runtime::testkit::eventually;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::kit::{SOON, Seen, Served, named_keys, options, soon};
use crate::streams::Alice;

pub type Client = A2aServiceClient<Channel>;

pub async fn start(change: impl FnOnce(&mut A2aOptions)) -> (Served, BoundGrpcServer, Client) {
    let served = Served::with(change).await;
    let (serving, client) = beside(&served, &ListenOptions::default()).await;
    (served, serving, client)
}

pub async fn beside(served: &Served, listen: &ListenOptions) -> (BoundGrpcServer, Client) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let serving = serve(
        listener,
        served.server.clone(),
        served.named.clone(),
        listen,
    )
    .unwrap();
    let client = soon(A2aServiceClient::connect(format!(
        "http://{}",
        serving.address
    )))
    .await
    .unwrap();
    (serving, client)
}

pub fn message(id: &str, skill: &str, text: &str) -> proto::SendMessageRequest {
    let metadata = prost_types::Struct {
        fields: [(
            "skill".to_owned(),
            prost_types::Value {
                kind: Some(prost_types::value::Kind::StringValue(skill.to_owned())),
            },
        )]
        .into(),
    };
    let content = Some(part::Content::Text(text.to_owned()));
    proto::SendMessageRequest {
        message: Some(proto::Message {
            message_id: id.to_owned(),
            role: proto::Role::User.into(),
            parts: vec![proto::Part {
                content,
                ..Default::default()
            }],
            metadata: Some(metadata),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn at_once(request: proto::SendMessageRequest) -> proto::SendMessageRequest {
    let configuration = proto::SendMessageConfiguration {
        return_immediately: true,
        ..Default::default()
    };
    proto::SendMessageRequest {
        configuration: Some(configuration),
        ..request
    }
}

pub fn keyed<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

fn with<T>(name: &'static str, value: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(name, value.parse().unwrap());
    request
}

pub async fn sent(client: &mut Client, request: proto::SendMessageRequest) -> proto::Task {
    let answer = soon(client.send_message(request))
        .await
        .unwrap()
        .into_inner();
    match answer.payload.unwrap() {
        send_message_response::Payload::Task(task) => task,
        send_message_response::Payload::Message(_) => panic!("a message"),
    }
}

fn state(status: Option<&proto::TaskStatus>) -> TaskState {
    status.unwrap().state()
}

fn get(id: &str) -> proto::GetTaskRequest {
    proto::GetTaskRequest {
        id: id.to_owned(),
        ..Default::default()
    }
}

/// Goal: the operations on tasks work as in other bindings. Method: each; the same task over
/// JSON-RPC.
#[tokio::test]
async fn tasks() {
    let (mut served, serving, mut client) = start(|_| {}).await;
    let task = sent(&mut client, message("m-1", "echo", "hello ö")).await;
    assert_eq!(state(task.status.as_ref()), TaskState::Completed);
    assert_eq!(
        task.artifacts[0].parts[0].content,
        Some(part::Content::Text("hello ö".into()))
    );
    let again = soon(client.get_task(get(&task.id)))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((&again.id, &again.artifacts), (&task.id, &task.artifacts));
    let over_rpc = served
        .client()
        .result("GetTask", serde_json::json!({ "id": task.id }))
        .await;
    assert_eq!(over_rpc["artifacts"][0]["parts"][0]["text"], "hello ö");
    let cancelled = soon(client.cancel_task(proto::CancelTaskRequest {
        id: task.id.clone(),
        ..Default::default()
    }));
    assert_eq!(
        cancelled.await.unwrap_err().code(),
        Code::FailedPrecondition
    );

    let lingering = sent(&mut client, at_once(message("m-2", "linger", ""))).await;
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    let request = proto::CancelTaskRequest {
        id: lingering.id.clone(),
        ..Default::default()
    };
    let cancelled = soon(client.cancel_task(request))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(state(cancelled.status.as_ref()), TaskState::Canceled);

    let listed = soon(client.list_tasks(proto::ListTasksRequest::default()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((listed.tasks.len(), listed.total_size), (2, 2));
    let completed = proto::ListTasksRequest {
        status: TaskState::Completed.into(),
        ..Default::default()
    };
    let listed = soon(client.list_tasks(completed))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        listed.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(),
        [&task.id]
    );
    serving.stop().await;
    served.stop().await;
}

/// Goal: streams return the task and then its events, and a question can be answered. Method: a
/// task with pieces; one that asks and is subscribed to.
#[tokio::test]
async fn streams() {
    let (served, serving, mut client) = start(|_| {}).await;
    let mut request = message("m-1", "pieces", "");
    let count = prost_types::Value {
        kind: Some(prost_types::value::Kind::NumberValue(20.0)),
    };
    let data = prost_types::Struct {
        fields: [("count".to_owned(), count)].into(),
    };
    let data = prost_types::Value {
        kind: Some(prost_types::value::Kind::StructValue(data)),
    };
    request.message.as_mut().unwrap().parts[0].content = Some(part::Content::Data(data));
    let mut stream = soon(client.send_streaming_message(request))
        .await
        .unwrap()
        .into_inner();
    let (mut pieces, mut ended) = (Vec::new(), None);
    while let Some(event) = soon(stream.message()).await.unwrap() {
        assert_eq!(ended, None, "the end is the last");
        match event.payload.unwrap() {
            stream_response::Payload::Task(task) => {
                let parts = task
                    .artifacts
                    .into_iter()
                    .flat_map(|artifact| artifact.parts);
                pieces.extend(parts.filter_map(|part| part.content));
            }
            stream_response::Payload::ArtifactUpdate(update) => {
                pieces.extend(
                    update
                        .artifact
                        .unwrap()
                        .parts
                        .into_iter()
                        .filter_map(|part| part.content),
                );
            }
            stream_response::Payload::StatusUpdate(update) => {
                let state = state(update.status.as_ref());
                ended = (state == TaskState::Completed).then_some(state);
            }
            stream_response::Payload::Message(_) => panic!("a message"),
        }
    }
    assert_eq!(ended, Some(TaskState::Completed));
    let numbers: Vec<_> = (1..=20)
        .map(|n| part::Content::Text(n.to_string()))
        .collect();
    assert_eq!(pieces[..20], numbers);

    let asked = sent(&mut client, message("m-2", "book", "{}")).await;
    assert_eq!(state(asked.status.as_ref()), TaskState::InputRequired);
    let subscribe = proto::SubscribeToTaskRequest {
        id: asked.id.clone(),
        ..Default::default()
    };
    let mut stream = soon(client.subscribe_to_task(subscribe.clone()))
        .await
        .unwrap()
        .into_inner();
    assert!(soon(stream.message()).await.unwrap().is_some());
    let mut answer = message("m-3", "book", "Ada");
    answer.message.as_mut().unwrap().task_id = asked.id.clone();
    let answered = sent(&mut client, answer).await;
    assert_eq!(
        answered.artifacts[0].parts[0].content,
        Some(part::Content::Text("booked for Ada".into()))
    );
    let mut last = None;
    while let Some(event) = soon(stream.message()).await.unwrap() {
        last = event.payload;
    }
    let Some(stream_response::Payload::StatusUpdate(last)) = last else {
        panic!("no status")
    };
    assert_eq!(state(last.status.as_ref()), TaskState::Completed);
    let ended = soon(client.subscribe_to_task(subscribe)).await.unwrap_err();
    assert_eq!(ended.code(), Code::FailedPrecondition);
    serving.stop().await;
    served.stop().await;
}

/// Goal: push configurations are shared by all bindings, and checked. Method: created, read,
/// listed, deleted; one with an internal URL.
#[tokio::test]
async fn push_configurations() {
    let (served, serving, mut client) = start(|_| {}).await;
    let task = sent(&mut client, message("m-1", "echo", "hello")).await;
    let config = proto::TaskPushNotificationConfig {
        task_id: task.id.clone(),
        id: "c".into(),
        url: "https://hook.invalid/".into(),
        token: "t".into(),
        authentication: Some(proto::AuthenticationInfo {
            scheme: "Bearer".into(),
            credentials: "x".into(),
        }),
        ..Default::default()
    };
    let made = soon(client.create_task_push_notification_config(config.clone()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(made, config);
    let of = || proto::GetTaskPushNotificationConfigRequest {
        task_id: task.id.clone(),
        id: "c".into(),
        ..Default::default()
    };
    assert_eq!(
        soon(client.get_task_push_notification_config(of()))
            .await
            .unwrap()
            .into_inner(),
        config
    );
    let all = proto::ListTaskPushNotificationConfigsRequest {
        task_id: task.id.clone(),
        ..Default::default()
    };
    assert_eq!(
        soon(client.list_task_push_notification_configs(all))
            .await
            .unwrap()
            .into_inner()
            .configs,
        std::slice::from_ref(&config)
    );
    let delete = proto::DeleteTaskPushNotificationConfigRequest {
        task_id: task.id.clone(),
        id: "c".into(),
        ..Default::default()
    };
    soon(client.delete_task_push_notification_config(delete))
        .await
        .unwrap();
    let gone = soon(client.get_task_push_notification_config(of()))
        .await
        .unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    let inside = proto::TaskPushNotificationConfig {
        url: "https://169.254.169.254/".into(),
        ..config
    };
    let refused = soon(client.create_task_push_notification_config(inside))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    serving.stop().await;
    served.stop().await;
}

/// Returns whether the bytes of a status' details contain a text.
fn has_detail(status: &Status, text: &str) -> bool {
    status
        .details()
        .windows(text.len())
        .any(|bytes| bytes == text.as_bytes())
}

/// Goal: a request through a proxy doesn't count as this machine's operator. Method: headers of
/// proxies as metadata.
#[tokio::test]
async fn forwarded_calls() {
    let (served, serving, mut client) = start(|_| {}).await;
    for name in ["x-forwarded-for", "forwarded", "via"] {
        let request = with(name, "203.0.113.9", message("m", "echo", "x"));
        let refused = soon(client.send_message(request)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{name}");
        assert!(refused.message().contains("configure `keys`"), "{name}");
    }
    serving.stop().await;
    served.stop().await;
}

/// Goal: a caller without a key is rejected, and another owner's task looks as if it didn't exist.
/// Method: two keys, each operation on the other's task and on none.
#[tokio::test]
async fn owners() {
    let (served, serving, mut client) = start(|options| {
        options.access = named_keys();
        options.extended_card = true;
    })
    .await;
    let nobody = soon(client.send_message(message("m", "echo", "x")))
        .await
        .unwrap_err();
    assert_eq!(nobody.code(), Code::Unauthenticated);
    let stranger = soon(client.send_message(keyed("mallory", message("m", "echo", "x"))))
        .await
        .unwrap_err();
    assert_eq!(stranger.code(), Code::Unauthenticated);
    let twice = {
        let mut request = keyed("alice", message("m", "echo", "x"));
        request
            .metadata_mut()
            .insert("x-api-key", "alice".parse().unwrap());
        soon(client.send_message(request)).await.unwrap_err()
    };
    assert_eq!(twice.code(), Code::InvalidArgument);
    let answer = soon(client.send_message(with("x-api-key", "alice", message("m", "book", "{}"))))
        .await
        .unwrap();
    let Some(send_message_response::Payload::Task(task)) = answer.into_inner().payload else {
        panic!("no task")
    };
    for id in [&*task.id, "nothing"] {
        let named = id.to_owned();
        let follow_up = || {
            let mut request = message("m", "book", "Ada");
            request.message.as_mut().unwrap().task_id = named.clone();
            keyed("bob", request)
        };
        let cancel = proto::CancelTaskRequest {
            id: named.clone(),
            ..Default::default()
        };
        let subscribe = proto::SubscribeToTaskRequest {
            id: named.clone(),
            ..Default::default()
        };
        let config = proto::TaskPushNotificationConfig {
            task_id: named.clone(),
            url: "https://hook.invalid/".into(),
            ..Default::default()
        };
        let list = proto::ListTaskPushNotificationConfigsRequest {
            task_id: named.clone(),
            ..Default::default()
        };
        let refused = [
            soon(client.get_task(keyed("bob", get(id)))).await.err(),
            soon(client.cancel_task(keyed("bob", cancel))).await.err(),
            soon(client.subscribe_to_task(keyed("bob", subscribe)))
                .await
                .err(),
            soon(client.send_message(follow_up())).await.err(),
            soon(client.send_streaming_message(follow_up())).await.err(),
            soon(client.create_task_push_notification_config(keyed("bob", config)))
                .await
                .err(),
            soon(client.list_task_push_notification_configs(keyed("bob", list)))
                .await
                .err(),
        ];
        for status in refused {
            let status = status.unwrap();
            assert_eq!(
                (status.code(), status.message()),
                (Code::NotFound, "task not found")
            );
            assert!(
                has_detail(&status, "TASK_NOT_FOUND") && has_detail(&status, "a2a-protocol.org")
            );
        }
    }
    let listed = soon(client.list_tasks(keyed("bob", proto::ListTasksRequest::default())))
        .await
        .unwrap()
        .into_inner();
    assert!(listed.tasks.is_empty());
    let card = soon(client.get_extended_agent_card(keyed("bob", Default::default())))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((&*card.name, card.skills.is_empty()), ("everything", false));
    serving.stop().await;
    served.stop().await;
}

/// Goal: unsupported requests are reported as such. Method: versions, a required extension, a
/// tenant, missing fields, a message over the limit.
#[tokio::test]
async fn refusals() {
    let (served, serving, mut client) = start(|options| {
        options.extensions = vec![AgentExtension {
            uri: "urn:must".into(),
            required: true,
            ..Default::default()
        }];
        options.limits.body_bytes_max = 64 * 1024;
    })
    .await;
    let echo = || message("m", "echo", "x");
    let knowing = |mut request: Request<proto::SendMessageRequest>| {
        request
            .metadata_mut()
            .append("a2a-extensions", "urn:other, URN:must".parse().unwrap());
        request
    };
    assert!(
        soon(client.send_message(knowing(Request::new(echo()))))
            .await
            .is_ok()
    );
    for (version, served) in [
        ("1.0", true),
        ("1.0.1", true),
        ("", true),
        ("0.3", false),
        ("2.0", false),
        ("x", false),
    ] {
        let answer = soon(client.send_message(knowing(with("a2a-version", version, echo())))).await;
        assert_eq!(answer.is_ok(), served, "{version}");
        assert!(
            answer
                .err()
                .is_none_or(|status| has_detail(&status, "VERSION_NOT_SUPPORTED")),
            "{version}"
        );
    }
    let unaware = soon(client.send_message(echo())).await.unwrap_err();
    assert!(
        unaware.code() == Code::FailedPrecondition
            && has_detail(&unaware, "EXTENSION_SUPPORT_REQUIRED")
    );
    let mut nameless = echo();
    nameless.message.as_mut().unwrap().message_id.clear();
    let refused = soon(client.send_message(knowing(Request::new(nameless))))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        has_detail(&refused, "google.rpc.BadRequest") && has_detail(&refused, "message.messageId")
    );
    let elsewhere = proto::SendMessageRequest {
        tenant: "west".into(),
        ..echo()
    };
    let refused = soon(client.send_message(knowing(Request::new(elsewhere.clone()))))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let west = A2aServer::new(served.watched.spawn(&served.system), options(&listener));
    served.named.set([("west".to_owned(), west)].into());
    assert!(
        soon(client.send_message(knowing(Request::new(elsewhere))))
            .await
            .is_ok()
    );
    let long = |bytes: usize| message("m", "echo", &"x".repeat(bytes));
    assert!(
        soon(client.send_message(knowing(Request::new(long(63 * 1024)))))
            .await
            .is_ok()
    );
    let over = soon(client.send_message(knowing(Request::new(long(64 * 1024)))))
        .await
        .unwrap_err();
    assert_eq!(over.code(), Code::OutOfRange, "{over}");
    serving.stop().await;
    served.stop().await;
}

/// Goal: the number of concurrent calls of a connection is limited, and the next one waits. Method:
/// calls that wait until they are released.
#[tokio::test]
async fn calls_of_a_connection() {
    let (mut served, serving, client) = start(|_| {}).await;
    let calls: Vec<_> = (0..=GRPC_STREAMS_MAX)
        .map(|n| {
            let mut client = client.clone();
            tokio::spawn(async move {
                client
                    .send_message(message(&format!("m-{n}"), "linger", ""))
                    .await
            })
        })
        .collect();
    for _ in 0..GRPC_STREAMS_MAX {
        assert_eq!(served.watched.watch.event().await, Seen::Began);
    }
    assert!(
        tokio::time::timeout(Duration::from_millis(200), served.watched.watch.event())
            .await
            .is_err()
    );
    served.watched.watch.go_on.send(true).unwrap();
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
    serving.stop().await;
    served.stop().await;
}

/// Goal: connections are limited, and a server that stops lets calls end. Method: room for one
/// connection, and a second client; a stop while a call runs.
#[tokio::test]
async fn bounds() {
    let mut served = Served::start().await;
    let listen = ListenOptions {
        connections_max: 1,
        ..ListenOptions::default()
    };
    let (serving, mut client) = beside(&served, &listen).await;
    sent(&mut client, message("m-1", "echo", "x")).await;
    let address = format!("http://{}", serving.address);
    let second = async {
        let mut client = A2aServiceClient::connect(address).await.unwrap();
        client.send_message(message("m-2", "echo", "x")).await
    };
    let mut second = Box::pin(second);
    assert!(
        tokio::time::timeout(Duration::from_millis(200), &mut second)
            .await
            .is_err()
    );
    let going_on =
        tokio::spawn(async move { client.send_message(message("m-3", "linger", "")).await });
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    let stopping = tokio::spawn(serving.stop());
    served.watched.watch.go_on.send(true).unwrap();
    assert!(soon(going_on).await.unwrap().is_ok());
    drop(second);
    soon(stopping).await.unwrap();
    served.stop().await;
}

/// Goal: the agent that a tenant names has keys of its own, and needs none of the address. Method: an open
/// address with a closed agent; calls without a key, with a wrong one and a right one, and a stream.
#[tokio::test]
async fn a_tenant_has_keys_of_its_own() {
    let (served, serving, mut client) = start(|_| {}).await;
    let closed = served.watched.spawn(&served.system);
    served.name([("closed", closed)], |options| {
        options.access = named_keys()
    });
    let request = || proto::SendMessageRequest {
        tenant: "closed".to_owned(),
        ..message("m-1", "echo", "x")
    };
    sent(&mut client, message("m-1", "echo", "x")).await;
    let refused = soon(client.send_message(request())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let wrong = soon(client.send_message(keyed("mallory", request()))).await;
    assert_eq!(wrong.unwrap_err().code(), Code::Unauthenticated);
    let refused = soon(client.send_streaming_message(request())).await;
    assert_eq!(refused.err().unwrap().code(), Code::Unauthenticated);
    soon(client.send_message(keyed("alice", request())))
        .await
        .unwrap();
    let unknown = proto::SendMessageRequest {
        tenant: "absent".to_owned(),
        ..message("m-2", "echo", "x")
    };
    let unknown = soon(client.send_message(unknown)).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument, "{unknown}");
    serving.stop().await;
    served.stop().await;
}

/// Goal: a request over the node's budget of buffered bytes fails with `RESOURCE_EXHAUSTED`, others
/// are served, and all is released. Method: a message over an address's share, and smaller ones.
#[tokio::test]
async fn memory() {
    let mut served = Served::start().await;
    let budget = BufferBudget::new(BufferLimits {
        bytes_max: 1_000_000,
        principal_percent: 25,
    });
    let listen = ListenOptions {
        buffers: budget.clone(),
        ..ListenOptions::default()
    };
    let (serving, mut client) = beside(&served, &listen).await;
    let large = message("m-1", "echo", &"x".repeat(900_000));
    let refused = soon(client.send_message(large)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    sent(&mut client, message("m-2", "echo", &"x".repeat(100_000))).await;
    let waiting = message("m-3", "linger", &"x".repeat(100_000));
    let waiting = tokio::spawn(async move { client.send_message(waiting).await });
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    assert!(budget.used_bytes() > 100_000);
    served.watched.watch.go_on.send(true).unwrap();
    soon(waiting).await.unwrap().unwrap();
    soon(async {
        while budget.used_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    serving.stop().await;
    served.stop().await;
}

/// Goal: a large response counts for its client until it has read it. Method: a response beyond the
/// window of a client that waits before it reads.
#[tokio::test]
async fn unread_responses() {
    const BYTES: usize = 400_000;
    let served = Served::start().await;
    let budget = BufferBudget::new(BufferLimits {
        bytes_max: 8_000_000,
        principal_percent: 25,
    });
    let listen = ListenOptions {
        buffers: budget.clone(),
        ..ListenOptions::default()
    };
    let (serving, _) = beside(&served, &listen).await;
    let channel = Channel::from_shared(format!("http://{}", serving.address)).unwrap();
    let channel = channel.initial_stream_window_size(Some(65_535));
    let mut client = A2aServiceClient::new(soon(channel.connect()).await.unwrap());
    let request = message("m-1", "echo", &"x".repeat(BYTES));
    let stream = soon(client.send_streaming_message(request)).await.unwrap();
    let mut stream = stream.into_inner();
    // Until then the request may count.
    let first = soon(stream.message()).await.unwrap();
    assert!(first.is_some());
    eventually("the response counts", SOON, || {
        (BYTES..2 * BYTES).contains(&budget.used_bytes())
    })
    .await;
    while soon(stream.message()).await.unwrap().is_some() {}
    eventually("nothing counts", SOON, || budget.used_bytes() == 0).await;
    serving.stop().await;
    served.stop().await;
}

/// Goal: a stream ends soon after its key is revoked, with a status. Method: a message's stream that
/// lingers.
#[tokio::test]
async fn revoked_keys_end_streams() {
    let alice = Alice::default();
    let access = alice.access();
    let (served, serving, mut client) = start(|options| options.access = access).await;
    let request = keyed("alice", message("m-1", "linger", ""));
    let events = soon(client.send_streaming_message(request)).await.unwrap();
    let mut events = events.into_inner();
    assert!(soon(events.message()).await.unwrap().is_some());
    alice.revoke();
    let ended = async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a status"),
                Err(status) => return status,
            }
        }
    };
    let status = soon(ended).await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    drop(events);
    serving.stop().await;
    served.stop().await;
}
