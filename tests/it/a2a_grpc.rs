use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{
    Message, Part, Role, SendMessageRequest, Task, TaskState, part, send_message_response,
};
use callboard_rpc::ClientTls;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::certificates::{Authority, LOCAL};
use crate::kit::gateway::{A2A, NODE, began, end, reloaded, script, started};
use crate::kit::{Home, found, soon, until};

/// Calls a tenant's only skill. Returns its text, or a sentence if the call fails.
async fn call(address: &str, tenant: &str) -> Result<Task, String> {
    let client = A2aServiceClient::connect(format!("http://{address}"));
    call_over(client.await.map_err(|e| e.to_string())?, tenant, None).await
}

/// Calls a tenant's only skill like [`call`], over a connection.
async fn call_over(
    mut client: A2aServiceClient<Channel>,
    tenant: &str,
    key: Option<&str>,
) -> Result<Task, String> {
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
    let mut request = tonic::Request::new(request);
    if let Some(key) = key {
        let bearer = format!("Bearer {key}").parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
    }
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
    let is_gone = async || TcpStream::connect(&first).await.is_err().then_some(());
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
    let is_gone = async || TcpStream::connect(&second).await.is_err().then_some(());
    found("the end of the new address", is_gone).await;
    end(running, &home).await;
}

/// Connects over TLS to a gRPC address through a proxy that sends this header first.
async fn connected(
    address: &str,
    header: &'static str,
    tls: &ClientTls,
) -> Result<A2aServiceClient<Channel>, tonic::transport::Error> {
    let mut config = tls.config().unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (address, connector) = (address.to_owned(), TlsConnector::from(Arc::new(config)));
    let connect = tower::service_fn(move |_| {
        let (address, connector) = (address.clone(), connector.clone());
        async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(header.as_bytes()).await?;
            let name = "localhost".try_into().unwrap();
            let stream = connector.connect(name, stream).await?;
            std::io::Result::Ok(TokioIo::new(stream))
        }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connect).await?;
    Ok(A2aServiceClient::new(channel))
}

/// Goal: gRPC has the listener's TLS, and the client is who the proxy's PROXY header names. Method: calls
/// with and without a key, the authority, TLS and the header; the audit's addresses.
#[tokio::test]
async fn grpc_behind_tls_and_a_proxy() {
    let home = Home::new();
    let authority = Authority::new("test authority");
    authority.write(&home.path(""), "ca");
    authority.issue(&LOCAL, &home.path(""), "server");
    let add = home.run(&["keys", "--keys", "keys.toml", "add", "client"]);
    let key = add.await.with(0, "").out;
    let one = script(&home, "one", "one") + "tools = { allow = [\"who\"] }\n";
    let secured = "grpc_bind = \"127.0.0.1:0\"\nkeys = \"keys.toml\"\ntrusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = true\n\
                   tls = { certificate = \"server.pem\", key = \"server-key.pem\" }\n";
    let (running, listening) = started(&home, &format!("{NODE}{one}{A2A}{secured}")).await;
    let (_, url) = listening.last().unwrap();
    let address = url.strip_prefix("grpc://").unwrap();
    let tls = ClientTls::default().with_ca(&home.path("ca.pem")).unwrap();
    let header = "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n";

    let client = soon("a connection", connected(address, header, &tls)).await;
    let client = client.unwrap();
    let call = async |key| soon("a call", call_over(client.clone(), "one", Some(key))).await;
    assert_eq!(said(&call(key.trim()).await.unwrap()), Some("one"));
    call("cbk_wrong").await.unwrap_err();
    let show = ["audit", "show", "--event", "auth.failed", "--topology"];
    let show = [&show[..], &["n.toml"]].concat();
    let audited = async { while !home.run(&show).await.out.contains("192.0.2.7") {} };
    soon("the wrong key in the audit", audited).await;
    for (header, tls) in [("", &tls), (header, &ClientTls::default())] {
        let connected = soon("an end", connected(address, header, tls)).await;
        assert!(connected.is_err(), "{header}");
    }
    assert!(soon("an end", self::call(address, "one")).await.is_err());
    end(running, &home).await;
}

/// Goal: a listed client certificate alone opens gRPC, and another of the same authority doesn't.
/// Method: a call with each, without a key.
#[tokio::test]
async fn grpc_with_a_client_certificate() {
    let home = Home::new();
    let authority = Authority::new("test authority");
    authority.write(&home.path(""), "ca");
    authority.issue(&LOCAL, &home.path(""), "server");
    let one = script(&home, "one", "one") + "tools = { allow = [\"who\"] }\n";
    let secured = "grpc_bind = \"127.0.0.1:0\"\n\
                   tls = { certificate = \"server.pem\", key = \"server-key.pem\", client_ca = \"ca.pem\", \
                   client = [{ name = \"robot.example\" }] }\n";
    let (running, listening) = started(&home, &format!("{NODE}{one}{A2A}{secured}")).await;
    let (_, url) = listening.last().unwrap();
    let address = url.strip_prefix("grpc://").unwrap();
    let call = async |name: &str| {
        let issued = authority.issue(&[name], &home.path(""), "client");
        let tls = ClientTls::default().with_ca(&home.path("ca.pem")).unwrap();
        let tls = tls
            .with_certificate(&issued.certificate, &issued.key)
            .unwrap();
        let client = soon("a connection", connected(address, "", &tls)).await;
        soon("a call", call_over(client.unwrap(), "one", None)).await
    };
    assert_eq!(said(&call("robot.example").await.unwrap()), Some("one"));
    let refused = call("other.example").await.unwrap_err();
    assert!(refused.contains("isn't listed here"), "{refused}");
    end(running, &home).await;
}
