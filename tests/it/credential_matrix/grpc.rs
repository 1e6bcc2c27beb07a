//! The same over gRPC, where an operation of A2A is a method.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use a2a_pb::pbconv::to_proto_struct;
use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, Message, Part, Role, SendMessageRequest, SubscribeToTaskRequest,
    TaskPushNotificationConfig, part,
};
use callboard::a2a::Operation;
use callboard::rpc::ClientTls;
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tonic::transport::{self, Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use super::client_certificates::REFUSED;
use super::rules::{self, LIMITED, LimitedCaller, ServedItem, shown_items};
use super::site::{ExpectedRefusal, ShownCredential, TestNode};
use super::unknown;
use crate::kit::soon;

/// Object of a call: a task, at the agent of a tenant or of the address.
#[derive(Clone, Copy)]
struct CallTarget<'a> {
    /// Empty for the agent of the address.
    tenant: &'a str,
    /// Empty for a new message to the tool `who`.
    task: &'a str,
}

/// Calls an operation about a task, from an address of its own, and returns the text of the response. Fails as unavailable without a
/// connection.
async fn call(
    site: &TestNode,
    operation: Operation,
    credential: ShownCredential<'_>,
    target: CallTarget<'_>,
) -> Result<String, Status> {
    static NEXT: AtomicU32 = AtomicU32::new(0x7F00_0101);
    let from = IpAddr::V4(Ipv4Addr::from(NEXT.fetch_add(1, Relaxed)));
    let endpoint = Endpoint::from_shared(site.bases["grpc"].clone()).unwrap();
    let connecting = async {
        match &site.certificates {
            None => endpoint.local_address(Some(from)).connect().await,
            Some(certificates) => {
                let tls = certificates.client_tls(credential.certificate_of);
                connect_with_tls(&endpoint, from, &tls).await
            }
        }
    };
    let connected = soon("a connection", connecting).await;
    let connected = connected.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut client = A2aServiceClient::new(connected);
    let asked = ask(&mut client, operation, credential.authorization, target);
    soon("an answer", asked).await
}

/// Connects over TLS from an address.
async fn connect_with_tls(
    endpoint: &Endpoint,
    from: IpAddr,
    tls: &ClientTls,
) -> Result<Channel, transport::Error> {
    let authority = endpoint.uri().authority().unwrap();
    let address: SocketAddr = authority.as_str().parse().unwrap();
    let mut config = tls.config().unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let connect = tower::service_fn(move |_| {
        let connector = connector.clone();
        async move {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(from, 0))?;
            let stream = socket.connect(address).await?;
            let name = "localhost".try_into().unwrap();
            let stream = connector.connect(name, stream).await?;
            io::Result::Ok(TokioIo::new(stream))
        }
    });
    endpoint.connect_with_connector(connect).await
}

async fn ask(
    client: &mut A2aServiceClient<Channel>,
    operation: Operation,
    authorization: Option<&str>,
    target: CallTarget<'_>,
) -> Result<String, Status> {
    let (tenant, id) = (target.tenant.to_owned(), target.task.to_owned());
    match operation {
        Operation::SendMessage => {
            let request = with(authorization, message_to(target));
            client.send_message(request).await.map(text_of)
        }
        Operation::SendStreamingMessage => {
            let request = with(authorization, message_to(target));
            let events = client.send_streaming_message(request).await?;
            first_text(events.into_inner()).await
        }
        Operation::GetTask => {
            let request = GetTaskRequest {
                tenant,
                id,
                ..Default::default()
            };
            client
                .get_task(with(authorization, request))
                .await
                .map(text_of)
        }
        Operation::ListTasks => {
            let request = ListTasksRequest {
                tenant,
                ..Default::default()
            };
            client
                .list_tasks(with(authorization, request))
                .await
                .map(text_of)
        }
        Operation::CancelTask => {
            let request = CancelTaskRequest {
                tenant,
                id,
                ..Default::default()
            };
            client
                .cancel_task(with(authorization, request))
                .await
                .map(text_of)
        }
        Operation::SubscribeToTask => {
            let request = SubscribeToTaskRequest { tenant, id };
            let request = with(authorization, request);
            let events = client.subscribe_to_task(request).await?;
            first_text(events.into_inner()).await
        }
        Operation::GetExtendedAgentCard => {
            let request = GetExtendedAgentCardRequest { tenant };
            client
                .get_extended_agent_card(with(authorization, request))
                .await
                .map(text_of)
        }
        about_configs => ask_of_configs(client, about_configs, authorization, target).await,
    }
}

/// Calls an operation about push configurations.
async fn ask_of_configs(
    client: &mut A2aServiceClient<Channel>,
    operation: Operation,
    authorization: Option<&str>,
    target: CallTarget<'_>,
) -> Result<String, Status> {
    let (tenant, task_id) = (target.tenant.to_owned(), target.task.to_owned());
    let config = "c".to_owned();
    match operation {
        Operation::CreateTaskPushNotificationConfig => {
            let url = "http://127.0.0.1:9/hook".to_owned();
            let request = TaskPushNotificationConfig {
                tenant,
                task_id,
                id: config,
                url,
                ..Default::default()
            };
            let request = with(authorization, request);
            client
                .create_task_push_notification_config(request)
                .await
                .map(text_of)
        }
        Operation::GetTaskPushNotificationConfig => {
            let request = GetTaskPushNotificationConfigRequest {
                tenant,
                task_id,
                id: config,
            };
            let request = with(authorization, request);
            client
                .get_task_push_notification_config(request)
                .await
                .map(text_of)
        }
        Operation::ListTaskPushNotificationConfigs => {
            let request = ListTaskPushNotificationConfigsRequest {
                tenant,
                task_id,
                ..Default::default()
            };
            let request = with(authorization, request);
            client
                .list_task_push_notification_configs(request)
                .await
                .map(text_of)
        }
        Operation::DeleteTaskPushNotificationConfig => {
            let request = DeleteTaskPushNotificationConfigRequest {
                tenant,
                task_id,
                id: config,
            };
            let request = with(authorization, request);
            client
                .delete_task_push_notification_config(request)
                .await
                .map(text_of)
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

/// Text of a response, with all its fields.
fn text_of<T: fmt::Debug>(response: Response<T>) -> String {
    format!("{:?}", response.into_inner())
}

/// Text of the first event of a stream.
async fn first_text<T: fmt::Debug>(mut events: Streaming<T>) -> Result<String, Status> {
    let first = events.message().await?;
    Ok(format!("{first:?}"))
}

/// A message to the target.
fn message_to(target: CallTarget<'_>) -> SendMessageRequest {
    // A message of a known id is a repetition.
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let is_new = target.task.is_empty();
    let skill = HashMap::from([("skill".to_owned(), "who".into())]);
    let content = Some(part::Content::Text("{}".to_owned()));
    let message = Message {
        message_id: format!("grpc-{}", NEXT.fetch_add(1, Relaxed)),
        task_id: target.task.to_owned(),
        metadata: is_new.then(|| to_proto_struct(&skill)),
        role: Role::User.into(),
        parts: vec![Part {
            content,
            ..Part::default()
        }],
        ..Message::default()
    };
    SendMessageRequest {
        tenant: target.tenant.to_owned(),
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

fn code(result: &Result<String, Status>) -> Code {
    result.as_ref().err().map_or(Code::Ok, Status::code)
}

/// Goal: over gRPC a credential opens what it is for and nothing else. Method: each operation of A2A with each credential, at the
/// address's own agent and at a tenant.
/// Rows: H-17, H-37.
#[tokio::test]
async fn each_grpc_method_with_each_credential() {
    check_methods(TestNode::start().await).await;
}

/// Goal: over gRPC a client certificate opens what its principal may use and nothing else. Method: the same calls over TLS, and one
/// with each certificate that no handshake accepts.
#[tokio::test]
async fn each_grpc_method_with_each_certificate() {
    check_methods(TestNode::start_with_certificates().await).await;
}

/// Goal: over gRPC too, callers get what the rules permit them and nothing else. Method: each operation of A2A and a message to a tool,
/// at the address's own agent and at a tenant, by a caller who may use everything, one who may use nothing and two who may use a
/// part.
#[tokio::test]
async fn each_grpc_method_with_rules() {
    let site = rules::start().await;
    let task = &*site.ids[0]["task"];
    let messages = [Operation::SendMessage, Operation::SendStreamingMessage];
    let mut wrong = Vec::new();
    for tenant in ["", "one"] {
        for operation in Operation::ALL {
            wrong.extend(limited_cells(&site, operation, CallTarget { tenant, task }).await);
        }
        for operation in messages {
            let target = CallTarget { tenant, task: "" };
            wrong.extend(limited_cells(&site, operation, target).await);
        }
    }
    site.end().await;
    assert!(
        wrong.is_empty(),
        "{} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Calls an operation as a caller who may use everything and as each limited one. Returns the wrong cells.
async fn limited_cells(
    site: &TestNode,
    operation: Operation,
    target: CallTarget<'_>,
) -> Vec<String> {
    let (tenant, is_new) = (target.tenant, target.task.is_empty());
    let (right, is_about_task) = match is_new {
        true => (Code::Ok, false),
        false => expected(operation),
    };
    let is_card = matches!(operation, Operation::GetExtendedAgentCard);
    let cell = |who: &str, answer: &Result<String, Status>| {
        format!("{operation:?} {tenant:?} new: {is_new} / {who}: {answer:?}")
    };
    let mut wrong = Vec::new();
    let served = call(site, operation, site.credential("alice"), target).await;
    let listed = shown_items(served.as_deref().unwrap_or_default());
    // The first event of a stream may be without the answer.
    let has_item = is_card || is_new && matches!(operation, Operation::SendMessage);
    let shows_item = listed.iter().any(|(item, _)| *item == ServedItem::Who);
    if code(&served) != right || has_item && !shows_item {
        wrong.push(cell("alice", &served));
    }
    for LimitedCaller { name, items } in &LIMITED {
        let answer = call(site, operation, site.credential(name), target).await;
        let should_be = match is_new && !items.contains(&ServedItem::Who) {
            true => Code::InvalidArgument,
            false if is_about_task => Code::NotFound,
            false => right,
        };
        let shown = match &answer {
            Ok(text) => shown_items(text),
            Err(status) => shown_items(&format!("{status:?}")),
        };
        let may_see = |(item, _): &(ServedItem, &str)| items.contains(item);
        let is_as_ruled = match is_card {
            true => shown == listed.iter().copied().filter(may_see).collect::<Vec<_>>(),
            false => shown.iter().all(may_see),
        };
        if code(&answer) != should_be || !is_as_ruled {
            wrong.push(cell(name, &answer));
        }
    }
    wrong
}

/// Calls each operation with each credential of a node's callers. Fails if a cell is wrong.
async fn check_methods(site: TestNode) {
    let task = &*site.ids[0]["task"];
    let mut wrong = Vec::new();
    for tenant in ["", "one"] {
        for operation in Operation::ALL {
            wrong.extend(wrong_cells(&site, operation, CallTarget { tenant, task }).await);
        }
    }
    for who in REFUSED.iter().filter(|_| site.certificates.is_some()) {
        let target = CallTarget { tenant: "", task };
        let refused = call(&site, Operation::ListTasks, site.credential(who), target).await;
        let is = code(&refused);
        // Of the service itself.
        if matches!(
            is,
            Code::Ok | Code::Unauthenticated | Code::PermissionDenied
        ) {
            wrong.push(format!("{who}: {is:?}"));
        }
    }
    site.end().await;
    assert!(
        wrong.is_empty(),
        "{} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Calls an operation with each credential. Returns the wrong cells.
async fn wrong_cells(site: &TestNode, operation: Operation, target: CallTarget<'_>) -> Vec<String> {
    let CallTarget { tenant, task } = target;
    let cell = |credential: &str, is: Code, should_be: Code| {
        let cell = format!("{operation:?} {tenant:?} / {credential}: {is:?}, not {should_be:?}");
        (is != should_be).then_some(cell)
    };
    let mut wrong = Vec::new();
    for bad in &site.bad {
        let refused = call(site, operation, bad.credential(), target).await;
        let should_be = match bad.refusal {
            ExpectedRefusal::Missing | ExpectedRefusal::Invalid => Code::Unauthenticated,
            ExpectedRefusal::Scope => Code::PermissionDenied,
        };
        wrong.extend(cell(bad.name, code(&refused), should_be));
    }
    let (right, is_about_task) = expected(operation);
    if is_about_task {
        let (bob, nobodys) = (site.credential("bob"), unknown(task));
        let not_there = CallTarget {
            tenant,
            task: &nobodys,
        };
        let missing = call(site, operation, bob, not_there).await;
        let theirs = call(site, operation, bob, target).await;
        wrong.extend(cell("another's task", code(&theirs), Code::NotFound));
        let [theirs, missing] = [(theirs, task), (missing, &*nobodys)].map(|(result, id)| {
            let error = result.err().map(|status| {
                let details = String::from_utf8_lossy(status.details()).into_owned();
                [status.message().to_owned(), details]
            });
            error.map(|texts| texts.map(|text| text.replace(id, "ID")))
        });
        if theirs != missing {
            wrong.push(format!("{operation:?}: {theirs:?}, not {missing:?}"));
        }
    }
    let served = call(site, operation, site.credential("alice"), target).await;
    if code(&served) != right {
        wrong.push(format!(
            "{operation:?} {tenant:?} / right: {served:?}, not {right:?}"
        ));
    }
    wrong
}
