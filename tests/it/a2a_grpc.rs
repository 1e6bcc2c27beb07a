use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{
    Message, Part, Role, SendMessageRequest, Task, TaskState, part, send_message_response,
};
use serde_json::Value;

use crate::kit::gateway::{A2A, NODE, began, end, reloaded, script, started};
use crate::kit::{Home, found, soon, until};

/// Calls a tenant's only skill. Returns its text, or a sentence if the call fails.
async fn call(address: &str, tenant: &str) -> Result<Task, String> {
    let text = part::Content::Text("{}".to_owned());
    let message = Message {
        message_id: "m".to_owned(),
        role: Role::User.into(),
        parts: vec![Part {
            content: Some(text),
            ..Part::default()
        }],
        ..Message::default()
    };
    let request = SendMessageRequest {
        tenant: tenant.to_owned(),
        message: Some(message),
        ..Default::default()
    };
    let mut client = A2aServiceClient::connect(format!("http://{address}"))
        .await
        .map_err(|e| e.to_string())?;
    let answer = client
        .send_message(request)
        .await
        .map_err(|e| e.to_string())?
        .into_inner();
    match answer.payload {
        Some(send_message_response::Payload::Task(task)) => Ok(task),
        other => Err(format!("no task: {other:?}")),
    }
}

fn said(task: &Task) -> Option<&str> {
    assert_eq!(
        task.status.as_ref()?.state(),
        TaskState::Completed,
        "{task:?}"
    );
    match task.artifacts.first()?.parts.first()?.content.as_ref()? {
        part::Content::Text(text) => Some(text),
        _ => None,
    }
}

/// The gRPC address that is listened on, and what the card says of it.
async fn addresses_of(listening: &[(String, String)]) -> (String, Vec<Value>) {
    let (agent, url) = listening.last().unwrap();
    assert_eq!(agent, "n");
    let card = format!(
        "{}/.well-known/agent-card.json",
        listening[0].1.strip_suffix("/a2a").unwrap()
    );
    let card = reqwest::Client::new()
        .get(card)
        .header("a2a-version", "1.0");
    let card: Value = soon("a card", card.send())
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let all = card["supportedInterfaces"].as_array().unwrap();
    let grpc = all
        .iter()
        .filter(|interface| interface["protocolBinding"] == "GRPC");
    (
        url.strip_prefix("grpc://").unwrap().to_owned(),
        grpc.map(|interface| interface["url"].clone()).collect(),
    )
}

/// Goal: a listener speaks gRPC where the file says, to its agents as tenants, and its card says where; a reload moves it, and what
/// is in flight ends. Method: calls before, during and after; the old address, and a target of the file's own.
#[tokio::test]
async fn grpc_is_declared_and_moves() {
    let home = Home::new();
    let one = script(&home, "one", "one") + "tools = { allow = [\"who\"] }\n";
    let two = script(&home, "two", "two") + "tools = { allow = [\"wait\"] }\n";
    let (mut running, listening) = started(
        &home,
        &format!("{NODE}{one}{two}{A2A}grpc_bind = \"127.0.0.1:0\"\n"),
    )
    .await;
    let (first, told) = addresses_of(&listening).await;
    assert_eq!(told, [&*first]);
    assert_eq!(
        said(&soon("a call", call(&first, "one")).await.unwrap()),
        Some("one")
    );
    assert!(soon("a call", call(&first, "three")).await.is_err());
    let in_flight = tokio::spawn({
        let first = first.clone();
        async move { call(&first, "two").await }
    });
    until("the call to begin", || began(&home) == 1).await;

    let moved = "grpc_bind = \"127.0.0.2:0\"\ngrpc_target = \"agents.example:443\"\n";
    let now = reloaded(
        &home,
        &mut running,
        &format!("{NODE}{one}{two}{A2A}{moved}"),
    )
    .await;
    assert_eq!(now[0], listening[0]);
    let declared = async || {
        let (address, told) = addresses_of(&now).await;
        (told == ["agents.example:443"]).then_some(address)
    };
    let second = found("the new card", declared).await;
    assert!(second.starts_with("127.0.0.2:"), "{second}");
    assert_eq!(
        said(&soon("a call", call(&second, "one")).await.unwrap()),
        Some("one")
    );
    let is_gone = async || {
        tokio::net::TcpStream::connect(&first)
            .await
            .is_err()
            .then_some(())
    };
    found("the end of the old address", is_gone).await;
    assert!(!in_flight.is_finished());
    home.write("go", "");
    assert_eq!(
        said(&soon("the old call", in_flight).await.unwrap().unwrap()),
        Some("two")
    );

    // Not declared any more, it isn't there.
    assert_eq!(
        reloaded(&home, &mut running, &format!("{NODE}{one}{two}{A2A}")).await,
        &now[..3]
    );
    let is_gone = async || {
        tokio::net::TcpStream::connect(&second)
            .await
            .is_err()
            .then_some(())
    };
    found("the end of the new address", is_gone).await;
    end(running, &home).await;
}
