//! The same over gRPC, where an operation of A2A is a method.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, Message, Part, Role, SendMessageRequest, SubscribeToTaskRequest,
    TaskPushNotificationConfig, part,
};
use callboard::a2a::Operation;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use super::site::{ExpectedRefusal, TestNode};
use super::unknown;
use crate::kit::soon;

/// Calls an operation about a task, from an address of its own.
async fn call(
    site: &TestNode,
    operation: Operation,
    authorization: Option<&str>,
    task: &str,
) -> Result<(), Status> {
    static NEXT: AtomicU32 = AtomicU32::new(0x7F00_0101);
    let from = IpAddr::V4(Ipv4Addr::from(NEXT.fetch_add(1, Relaxed)));
    let endpoint = Endpoint::from_shared(site.bases["grpc"].clone()).unwrap();
    let endpoint = endpoint.local_address(Some(from));
    let connected = endpoint.connect();
    let mut client = A2aServiceClient::new(soon("a connection", connected).await.unwrap());
    soon(
        "an answer",
        ask(&mut client, operation, authorization, task),
    )
    .await
}

async fn ask(
    client: &mut A2aServiceClient<tonic::transport::Channel>,
    operation: Operation,
    authorization: Option<&str>,
    task: &str,
) -> Result<(), Status> {
    let (id, task_id) = (task.to_owned(), task.to_owned());
    match operation {
        Operation::SendMessage => {
            let request = with(authorization, follow_up(task));
            client.send_message(request).await.map(drop)
        }
        Operation::SendStreamingMessage => {
            let request = with(authorization, follow_up(task));
            client.send_streaming_message(request).await.map(drop)
        }
        Operation::GetTask => {
            let request = GetTaskRequest {
                id,
                ..Default::default()
            };
            client
                .get_task(with(authorization, request))
                .await
                .map(drop)
        }
        Operation::ListTasks => {
            let request = ListTasksRequest::default();
            client
                .list_tasks(with(authorization, request))
                .await
                .map(drop)
        }
        Operation::CancelTask => {
            let request = CancelTaskRequest {
                id,
                ..Default::default()
            };
            client
                .cancel_task(with(authorization, request))
                .await
                .map(drop)
        }
        Operation::SubscribeToTask => {
            let request = SubscribeToTaskRequest {
                id,
                ..Default::default()
            };
            client
                .subscribe_to_task(with(authorization, request))
                .await
                .map(drop)
        }
        Operation::GetExtendedAgentCard => {
            let request = GetExtendedAgentCardRequest::default();
            client
                .get_extended_agent_card(with(authorization, request))
                .await
                .map(drop)
        }
        about_configs => ask_of_configs(client, about_configs, authorization, task_id).await,
    }
}

/// Calls an operation about push configurations.
async fn ask_of_configs(
    client: &mut A2aServiceClient<tonic::transport::Channel>,
    operation: Operation,
    authorization: Option<&str>,
    task_id: String,
) -> Result<(), Status> {
    let config = "c".to_owned();
    match operation {
        Operation::CreateTaskPushNotificationConfig => {
            let url = "http://127.0.0.1:9/hook".to_owned();
            let request = TaskPushNotificationConfig {
                task_id,
                id: config,
                url,
                ..Default::default()
            };
            let request = with(authorization, request);
            client
                .create_task_push_notification_config(request)
                .await
                .map(drop)
        }
        Operation::GetTaskPushNotificationConfig => {
            let request = GetTaskPushNotificationConfigRequest {
                task_id,
                id: config,
                ..Default::default()
            };
            let request = with(authorization, request);
            client
                .get_task_push_notification_config(request)
                .await
                .map(drop)
        }
        Operation::ListTaskPushNotificationConfigs => {
            let request = ListTaskPushNotificationConfigsRequest {
                task_id,
                ..Default::default()
            };
            let request = with(authorization, request);
            client
                .list_task_push_notification_configs(request)
                .await
                .map(drop)
        }
        Operation::DeleteTaskPushNotificationConfig => {
            let request = DeleteTaskPushNotificationConfigRequest {
                task_id,
                id: config,
                ..Default::default()
            };
            let request = with(authorization, request);
            client
                .delete_task_push_notification_config(request)
                .await
                .map(drop)
        }
        other => unreachable!("{other:?} is about no configuration"),
    }
}

fn with<T>(authorization: Option<&str>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(authorization) = authorization {
        request
            .metadata_mut()
            .insert("authorization", authorization.parse().unwrap());
    }
    request
}

/// A message to a task.
fn follow_up(task: &str) -> SendMessageRequest {
    let content = Some(part::Content::Text("{}".to_owned()));
    let message = Message {
        message_id: "m".to_owned(),
        task_id: task.to_owned(),
        role: Role::User.into(),
        parts: vec![Part {
            content,
            ..Part::default()
        }],
        ..Message::default()
    };
    SendMessageRequest {
        message: Some(message),
        ..Default::default()
    }
}

/// Code that the right credential gets for a task that has ended, and whether the operation is about a
/// task.
fn expected(operation: Operation) -> (Code, bool) {
    match operation {
        Operation::SendMessage | Operation::SendStreamingMessage | Operation::SubscribeToTask => {
            (Code::FailedPrecondition, true)
        }
        Operation::CancelTask => (Code::FailedPrecondition, true),
        Operation::GetTask
        | Operation::CreateTaskPushNotificationConfig
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig => (Code::Ok, true),
        Operation::ListTasks | Operation::GetExtendedAgentCard => (Code::Ok, false),
    }
}

fn code(result: &Result<(), Status>) -> Code {
    result.as_ref().err().map_or(Code::Ok, Status::code)
}

/// Goal: over gRPC a credential opens what it is for and nothing else. Method: each operation of A2A with each credential.
/// Rows: H-17, H-37.
#[tokio::test]
async fn each_grpc_method_with_each_credential() {
    let site = TestNode::start().await;
    let task = site.ids[0]["task"].clone();
    let (alice, bob) = (site.authorization("alice"), site.authorization("bob"));
    let (mut wrong, mut different) = (Vec::new(), Vec::new());
    for operation in Operation::ALL {
        let mut check = |credential: &str, is: Code, should_be: Code| {
            if is != should_be {
                wrong.push(format!(
                    "{operation:?} / {credential}: {is:?}, not {should_be:?}"
                ));
            }
        };
        for credential in &site.bad {
            let refused = call(&site, operation, credential.authorization.as_deref(), &task).await;
            let should_be = match credential.refusal {
                ExpectedRefusal::Missing | ExpectedRefusal::Invalid => Code::Unauthenticated,
                ExpectedRefusal::Scope => Code::PermissionDenied,
            };
            check(credential.name, code(&refused), should_be);
        }
        let (right, is_about_task) = expected(operation);
        if is_about_task {
            let nobodys = unknown(&task);
            let missing = call(&site, operation, Some(&bob), &nobodys).await;
            let theirs = call(&site, operation, Some(&bob), &task).await;
            check("another's task", code(&theirs), Code::NotFound);
            let [theirs, missing] = [(theirs, &task), (missing, &nobodys)].map(|(result, id)| {
                let error = result.err().map(|status| {
                    let details = String::from_utf8_lossy(status.details()).into_owned();
                    [status.message().to_owned(), details]
                });
                error.map(|texts| texts.map(|text| text.replace(id, "ID")))
            });
            if theirs != missing {
                different.push(format!("{operation:?}: {theirs:?}, not {missing:?}"));
            }
        }
        let served = call(&site, operation, Some(&alice), &task).await;
        check("right", code(&served), right);
    }
    site.end().await;
    wrong.extend(different);
    assert!(
        wrong.is_empty(),
        "{} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
