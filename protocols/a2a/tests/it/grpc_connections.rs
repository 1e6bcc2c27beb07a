//! Connections of the gRPC binding: proxies, timeouts and ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use callboard_a2a::grpc::serve;
use callboard_a2a::inbound::ListenOptions;
use callboard_rpc::{AuthFailureReport, AuthFailures};
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::grpc::{beside, keyed, message, sent};
use crate::kit::{SOON, Seen, Served, named_keys, soon};

/// Goal: of a trusted proxy's connection, the header names the client; of others it doesn't. Method: wrong
/// keys with the header, with and without trust; the addresses that are reported.
#[tokio::test]
async fn proxies_name_clients() {
    let served = Served::with(|options| options.access = named_keys()).await;
    for (trusted, expected) in [(Some("127.0.0.1"), "192.0.2.7"), (None, "127.0.0.1")] {
        let (sender, reported) = std::sync::mpsc::channel();
        let report = move |report: AuthFailureReport| sender.send(report.address).unwrap();
        let listen = ListenOptions {
            auth_failures: Arc::new(AuthFailures::with_report(report)),
            trusted_proxies: trusted.iter().map(|net| net.parse().unwrap()).collect(),
            ..ListenOptions::default()
        };
        let (serving, mut client) = beside(&served, &listen).await;
        let mut wrong = keyed("mallory", message("m", "echo", "x"));
        let forwarded = "198.51.100.1, 192.0.2.7".parse().unwrap();
        wrong.metadata_mut().insert("x-forwarded-for", forwarded);
        soon(client.send_message(wrong)).await.unwrap_err();
        let address = reported.try_recv().unwrap();
        assert_eq!(address.to_string(), expected, "{trusted:?}");
        serving.stop().await;
    }
    served.stop().await;
}

/// Waits until the server closes a connection.
async fn ended(mut connection: TcpStream) {
    // It may be reset.
    let _ = soon(connection.read_to_end(&mut Vec::new())).await;
}

/// Passes connections to `address` on, and counts them. Returns its own address.
async fn counting(address: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (own, count) = (
        listener.local_addr().unwrap(),
        Arc::<AtomicUsize>::default(),
    );
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(address).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (own, count)
}

/// Goal: a connection that doesn't begin with the preface of HTTP/2 in time is closed, and one that does
/// stays open. Method: half of a preface; a client that calls before and after its end, over one connection.
#[tokio::test]
async fn silent_connections_end() {
    let served = Served::start().await;
    let listen = ListenOptions {
        headers_timeout: Duration::from_secs(2),
        ..ListenOptions::default()
    };
    let (serving, _) = beside(&served, &listen).await;
    let (through, connections) = counting(serving.address).await;
    let client = A2aServiceClient::connect(format!("http://{through}"));
    let mut client = soon(client).await.unwrap();
    sent(&mut client, message("m-1", "echo", "x")).await;
    let mut silent = TcpStream::connect(serving.address).await.unwrap();
    silent.write_all(b"PRI * HTTP/2.0").await.unwrap();
    ended(silent).await;
    sent(&mut client, message("m-2", "echo", "x")).await;
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    serving.stop().await;
    served.stop().await;
}

/// Goal: a connection without a call for too long is closed, and one with a call isn't. Method: a connection
/// with a preface alone, which ends while a call of another one runs.
#[tokio::test]
async fn idle_connections_end() {
    let mut served = Served::start().await;
    let listen = ListenOptions {
        headers_timeout: Duration::from_secs(2),
        keep_alive: Duration::from_millis(300),
        ..ListenOptions::default()
    };
    let (serving, mut client) = beside(&served, &listen).await;
    let running =
        tokio::spawn(async move { client.send_message(message("m-1", "linger", "")).await });
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    for _ in 0..2 {
        let mut idle = TcpStream::connect(serving.address).await.unwrap();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat();
        idle.write_all(&preface).await.unwrap();
        ended(idle).await;
    }
    served.watched.watch.go_on.send(true).unwrap();
    soon(running).await.unwrap().unwrap();
    serving.stop().await;
    served.stop().await;
}

/// Goal: no connection outlives its server. Method: a stop beside a silent connection, whose time to speak
/// is longer than that of the stop.
#[tokio::test]
async fn connections_end_with_the_server() {
    let served = Served::start().await;
    let listen = ListenOptions {
        headers_timeout: SOON * 10,
        keep_alive: SOON * 10,
        drain_timeout: Duration::from_millis(100),
        ..ListenOptions::default()
    };
    let (serving, _) = beside(&served, &listen).await;
    let silent = TcpStream::connect(serving.address).await.unwrap();
    // Accepted after the silent one.
    let second = A2aServiceClient::connect(format!("http://{}", serving.address));
    let mut second = soon(second).await.unwrap();
    sent(&mut second, message("m-1", "echo", "x")).await;
    soon(serving.stop()).await;
    ended(silent).await;
    served.stop().await;
}

/// Goal: a server that accepts no further connection leaves them to another one on its socket, and its own
/// go on. Method: a second server that closes silent connections, which the first one would keep; a call over
/// the open connection of the first.
#[tokio::test]
async fn accepting_stops() {
    let served = Served::start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listener_of_both = listener.try_clone().unwrap();
    let start = |listener, listen: &ListenOptions| {
        serve(
            listener,
            served.server.clone(),
            served.named.clone(),
            listen,
        )
        .unwrap()
    };
    let patient = ListenOptions {
        headers_timeout: SOON * 10,
        ..ListenOptions::default()
    };
    let first = start(listener, &patient);
    let (through, connections) = counting(first.address).await;
    let old = A2aServiceClient::connect(format!("http://{through}"));
    let mut old = soon(old).await.unwrap();
    sent(&mut old, message("m-1", "echo", "x")).await;
    first.stop_accepting();
    let second = ListenOptions {
        headers_timeout: Duration::from_millis(300),
        ..ListenOptions::default()
    };
    let second = start(listener_of_both, &second);
    let silent = (0..20).map(|_| async {
        ended(TcpStream::connect(second.address).await.unwrap()).await;
    });
    join_all(silent).await;
    sent(&mut old, message("m-2", "echo", "x")).await;
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    first.stop().await;
    second.stop().await;
    served.stop().await;
}
