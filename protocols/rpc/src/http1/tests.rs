use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures::future::join_all;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

use super::connection::{IDLE_CONNECTION_AGE_MAX, IDLE_CONNECTIONS_MAX};
use super::*;
use crate::READS_PER_SECOND_MAX;

/// A server with a different behaviour for each path, which counts connections.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Number of connections whose end it has seen.
    ended: Arc<AtomicUsize>,
}

impl Server {
    /// Starts the server. `/together` is answered once `together` requests wait for it.
    async fn start(together: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (opened, closed, barrier) = (
            connections.clone(),
            ended.clone(),
            Arc::new(Barrier::new(together)),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                opened.fetch_add(1, SeqCst);
                let (closed, barrier) = (closed.clone(), barrier.clone());
                tokio::spawn(async move {
                    serve(stream, &barrier).await;
                    closed.fetch_add(1, SeqCst);
                });
            }
        });
        Self {
            address,
            connections,
            ended,
        }
    }

    fn at(&self, path: &str) -> Arc<RequestTarget> {
        RequestTarget::new(&format!("http://{}{path}", self.address).parse().unwrap()).unwrap()
    }

    async fn has_ended(&self, connections: usize) {
        until(|| self.ended.load(SeqCst) == connections).await;
    }
}

/// Serves requests without a body, until one of them decides how the connection ends.
async fn serve(mut stream: TcpStream, together: &Barrier) {
    let mut received = Vec::new();
    loop {
        while !received.ends_with(b"\r\n\r\n") {
            match stream.read_buf(&mut received).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let head = String::from_utf8(std::mem::take(&mut received)).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        let answer: &[u8] = match path {
            "/whole" | "/close-after" => b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole",
            "/together" => {
                together.wait().await;
                b"HTTP/1.1 204 No Content\r\n\r\n"
            }
            "/parts" => {
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\nx: y\r\n\r\n"
            }
            "/half" => b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf",
            "/events" => {
                // One more than are read in a second.
                let events = "data: x\n\n".repeat(READS_PER_SECOND_MAX as usize + 1);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
                let told = format!("{head}content-length: {}\r\n\r\n{events}", events.len());
                stream.write_all(told.as_bytes()).await.unwrap();
                b""
            }
            "/echo" => {
                let told = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{head}", head.len());
                stream.write_all(told.as_bytes()).await.unwrap();
                b""
            }
            _ => return,
        };
        stream.write_all(answer).await.unwrap();
        if path == "/close-after" {
            return;
        }
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), waiting)
        .await
        .expect("it doesn't come to that");
}

fn client() -> Http1Client {
    Http1Client::new(Connector::new(Duration::from_secs(5)).unwrap())
}

async fn get(client: &Http1Client, target: &RequestTarget) -> Result<ClientResponse, NetError> {
    client
        .send(target, Method::GET, HeaderMap::new(), Bytes::new())
        .await
}

async fn text(mut response: ClientResponse) -> Result<String, NetError> {
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await? {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    Ok(text)
}

/// Goal: one request after another goes by one connection, whether the body has a length, comes in
/// chunks or is none. Method: each, several times, and the server counts.
#[tokio::test]
async fn connections_are_kept() {
    let (server, client) = (Server::start(1).await, client());
    for _ in 0..3 {
        assert_eq!(
            text(get(&client, &server.at("/whole")).await.unwrap())
                .await
                .unwrap(),
            "whole"
        );
        assert_eq!(
            text(get(&client, &server.at("/parts")).await.unwrap())
                .await
                .unwrap(),
            "onetwo"
        );
        assert_eq!(
            get(&client, &server.at("/together"))
                .await
                .unwrap()
                .status(),
            StatusCode::NO_CONTENT
        );
    }
    assert_eq!((server.connections.load(SeqCst), client.idle.len()), (1, 1));
}

/// Goal: path, query and host are sent as in the URL. Method: the server echoes the head.
#[tokio::test]
async fn the_head_names_path_and_host() {
    let server = Server::start(1).await;
    let target =
        RequestTarget::new(&format!("http://{}/echo", server.address).parse().unwrap()).unwrap();
    let head = text(get(&client(), &target).await.unwrap()).await.unwrap();
    assert_eq!(
        head,
        format!("GET /echo HTTP/1.1\r\nhost: {}\r\n\r\n", server.address)
    );
    let target =
        RequestTarget::new(&"https://tools.example/a%20b/?q=1#part".parse().unwrap()).unwrap();
    assert_eq!(
        (target.path.to_string(), target.host.to_str().unwrap()),
        ("/a%20b/?q=1".into(), "tools.example")
    );
    assert_eq!(target.origin.to_string(), "https://tools.example/");
}

/// Goal: a pooled connection that the server has closed doesn't fail a request. Method: it closes
/// after each answer.
#[tokio::test]
async fn closed_connections_are_replaced() {
    let (server, client) = (Server::start(1).await, client());
    for nth in 1..=3 {
        assert_eq!(
            text(get(&client, &server.at("/close-after")).await.unwrap())
                .await
                .unwrap(),
            "whole"
        );
        server.has_ended(nth).await;
    }
    assert_eq!(server.connections.load(SeqCst), 3);
}

/// Goal: a failure tells whether the server may have acted. Method: no listener; the connection
/// ends before the answer, and within it.
#[tokio::test]
async fn failures_are_told_apart() {
    let (server, client) = (Server::start(1).await, client());
    let nobody = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let target = RequestTarget::new(&format!("http://{nobody}/").parse().unwrap()).unwrap();
    assert_eq!(
        get(&client, &target).await.err(),
        Some(NetError::Unreachable(ConnectFailure::Refused))
    );
    assert_eq!(
        get(&client, &server.at("/nothing")).await.err(),
        Some(NetError::Broken)
    );
    // On a pooled connection the failure is the same: the request was sent, so it isn't repeated.
    text(get(&client, &server.at("/whole")).await.unwrap())
        .await
        .unwrap();
    assert_eq!(
        get(&client, &server.at("/nothing")).await.err(),
        Some(NetError::Broken)
    );
    assert_eq!(server.connections.load(SeqCst), 2);
}

/// Goal: dropping a response before its end closes the connection, because the rest would be read
/// as another response. Method: drop one within its body; the server sees the end.
#[tokio::test]
async fn left_responses_close() {
    let (server, client) = (Server::start(1).await, client());
    let mut response = get(&client, &server.at("/half")).await.unwrap();
    assert_eq!(
        (
            response.content_length(),
            response.chunk().await.unwrap().unwrap()
        ),
        (Some(50), Bytes::from("half"))
    );
    drop(response);
    server.has_ended(1).await;
    assert_eq!(client.idle.len(), 0);
}

/// Goal: idle connections are bounded, and closed when they expire. Method: one more than the bound
/// at once; then time passes.
#[tokio::test]
async fn idle_connections_are_bounded() {
    let at_once = IDLE_CONNECTIONS_MAX + 1;
    let (server, client) = (Server::start(at_once).await, client());
    let target = server.at("/together");
    for answered in join_all((0..at_once).map(|_| get(&client, &target))).await {
        assert!(answered.is_ok());
    }
    assert_eq!(
        (server.connections.load(SeqCst), client.idle.len()),
        (at_once, IDLE_CONNECTIONS_MAX)
    );
    tokio::time::pause();
    tokio::time::advance(IDLE_CONNECTION_AGE_MAX + Duration::from_secs(1)).await;
    tokio::time::resume();
    until(|| client.idle.len() == 0).await;
    server.has_ended(at_once).await;
}

/// Goal: an untrusted name leads only to allowed addresses, whatever DNS answers. Method: a
/// resolver that answers with this machine; with and without a policy.
#[tokio::test]
async fn guarded_connections_go_nowhere_else() {
    use crate::EgressPolicy;
    use reqwest::dns::{Addrs, Name, Resolve, Resolving};

    struct LocalResolver(SocketAddr);
    impl Resolve for LocalResolver {
        fn resolve(&self, _: Name) -> Resolving {
            let here = self.0;
            Box::pin(async move { Ok(Box::new(std::iter::once(here)) as Addrs) })
        }
    }

    let server = Server::start(1).await;
    let public =
        EgressPolicy::public_internet().with_resolver(Arc::new(LocalResolver(server.address)));
    let target = RequestTarget::new(
        &format!("http://agent.example:{}/whole", server.address.port())
            .parse()
            .unwrap(),
    )
    .unwrap();
    for (egress, arrives) in [(public.clone(), false), (public.with_loopback(), true)] {
        let client = Http1Client::new(
            Connector::with_egress(Duration::from_secs(5), egress, &ClientTls::default()).unwrap(),
        );
        assert_eq!(
            get(&client, &target)
                .await
                .map_err(|error| error == NetError::Unreachable(ConnectFailure::Refused))
                .is_ok(),
            arrives
        );
        assert_eq!(server.connections.load(SeqCst), usize::from(arrives));
    }
}

/// Goal: responses that somebody waits for aren't slowed down. Method: one more than the limit of a
/// second.
#[tokio::test]
async fn awaited_events_are_not_paced() {
    let server = Server::start(0).await;
    let response = get(&client(), &server.at("/events")).await.unwrap();
    let mut events = SseStream::new(response, 1_024, StreamPosition::default());
    let mut count = 0;
    let begun = std::time::Instant::now();
    while events.next().await.unwrap().is_some() {
        events.discount();
        count += 1;
    }
    assert_eq!(count, READS_PER_SECOND_MAX + 1);
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
}

/// Goal: a flood of events is read at the limited rate, and none is lost. Method: one event more
/// than the limit of a second.
#[tokio::test]
async fn events_are_paced() {
    let server = Server::start(0).await;
    let begun = std::time::Instant::now();
    let response = get(&client(), &server.at("/events")).await.unwrap();
    let mut events = SseStream::new(response, 1_024, StreamPosition::default());
    let mut count = 0;
    while events.next().await.unwrap().is_some() {
        count += 1;
        if count == READS_PER_SECOND_MAX {
            assert!(
                begun.elapsed() < Duration::from_secs(1),
                "{:?}",
                begun.elapsed()
            );
        }
    }
    assert_eq!(count, READS_PER_SECOND_MAX + 1);
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
}
