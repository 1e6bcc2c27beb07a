//! Slow readers are disconnected without delaying others.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::TcpSocket;

use crate::events::broadcast;
use crate::kit::{EventSocketClient, Served, SocketItem, soon};

const SOCKETS: usize = 64;
const ROUNDS: u64 = 100;
/// Size of a socket's buffers in bytes: small, so that few frames fill them.
const BUFFER_BYTES: usize = 4_096;

/// Returns a listener whose connections have small buffers.
fn small() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_send_buffer_size(BUFFER_BYTES).unwrap();
    socket
        .bind(
            &"127.0.0.1:0"
                .parse::<std::net::SocketAddr>()
                .unwrap()
                .into(),
        )
        .unwrap();
    socket.listen(128).unwrap();
    socket.into()
}

/// Returns the 99th percentile of the time until an event has reached all sockets.
async fn p99(served: &Served, ears: &mut [EventSocketClient], after: u64) -> Duration {
    let mut took = Vec::new();
    for round in 1..=ROUNDS {
        let begun = Instant::now();
        assert_eq!(served.happen(broadcast("alice")), after + round);
        for ears in &mut *ears {
            assert_eq!(ears.json().await["sequence"], after + round);
            assert_eq!(ears.json().await["sequence"], after + round);
            took.push(begun.elapsed());
        }
    }
    took.sort();
    took[took.len() * 99 / 100]
}

/// Goal: a client that doesn't read is disconnected with the reason and the position to resume at,
/// and others get all events without delay. Method: 64 sockets with small buffers, of which one
/// reads nothing until it is disconnected.
#[tokio::test]
async fn one_who_does_not_read() {
    let served = Served::on(small(), |options| {
        options.frame_timeout = Duration::from_millis(300);
        (options.sockets_max, options.principal_share_percent) = (SOCKETS, 100);
    })
    .await;
    let watcher = served.agent("watcher");
    let mut ears = Vec::new();
    for _ in 1..SOCKETS {
        ears.push(watcher.listen("?after=now").await.unwrap());
    }
    let alone = p99(&served, &mut ears, 0).await;
    let socket = TcpSocket::new_v4().unwrap();
    SockRef::from(&socket)
        .set_recv_buffer_size(BUFFER_BYTES)
        .unwrap();
    let stream = soon(socket.connect(served.address)).await.unwrap();
    let mut slow = watcher.listen_on(stream, "?after=now").await.unwrap();
    let mut newest = ROUNDS;
    let mut beside = Vec::new();
    for _ in 0..6 {
        beside.push(p99(&served, &mut ears, newest).await);
        newest += ROUNDS;
    }
    beside.sort();
    // A quarter of a second would be most of the slow client's timeout; below it, only the machine
    // varies.
    let bound = (alone * 5).max(Duration::from_millis(250));
    assert!(
        beside[beside.len() / 2] < bound,
        "alone {alone:?}, beside {beside:?}"
    );
    // Its place is released after the disconnection.
    let cut = async { while watcher.listen("").await.is_err() {} };
    soon(cut).await;
    let mut last = ROUNDS;
    let why = loop {
        match slow.next().await {
            SocketItem::Frame(text) => {
                let event: serde_json::Value = serde_json::from_str(&text).unwrap();
                let sequence = event["sequence"].as_u64().unwrap();
                assert!(
                    sequence == last || sequence == last + 1,
                    "{last} {sequence}"
                );
                last = sequence;
            }
            SocketItem::Closed(code, why) => break (code, why),
            SocketItem::Gone => panic!("cut without a word"),
        }
    };
    assert!(last < newest, "it had room for everything");
    let (code, why) = why;
    let at: u64 = why
        .strip_prefix("too slow: go on with after=")
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(code, 1013);
    assert!(at == last || at + 1 == last, "{at} {last}");
    let mut again = watcher.listen(&format!("?after={at}")).await.unwrap();
    assert_eq!(again.json().await["sequence"], at + 1);
    served.stop().await;
}
