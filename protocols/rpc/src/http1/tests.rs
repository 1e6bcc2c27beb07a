use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures::future::join_all;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

use super::connection::{IDLE_CONNECTIONS_MAX, IDLE_TIME_MAX};
use super::*;

/// A server that answers each path in its own way, and counts.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// How many it has seen the end of.
    ended: Arc<AtomicUsize>,
}

impl Server {
    /// `/together` is answered once so many ask for it.
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

    fn at(&self, path: &str) -> Arc<Target> {
        Target::new(&format!("http://{}{path}", self.address).parse().unwrap()).unwrap()
    }

    async fn has_ended(&self, connections: usize) {
        until(|| self.ended.load(SeqCst) == connections).await;
    }
}

/// Requests without a body, until one says how the connection ends.
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

fn client() -> Client {
    Client::new(Connector::new(Duration::from_secs(5)).unwrap())
}

async fn get(client: &Client, target: &Target) -> Result<Response, NetError> {
    client
        .send(target, Method::GET, HeaderMap::new(), Bytes::new())
        .await
}

async fn text(mut response: Response) -> Result<String, NetError> {
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await? {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    Ok(text)
}

/// Goal: one request after another goes by one connection, whether the body has a length, comes in chunks or is none.
/// Method: each, several times, and the server counts.
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

/// Goal: path, query and host go out as the URL has them. Method: the server repeats the head.
#[tokio::test]
async fn the_head_names_path_and_host() {
    let server = Server::start(1).await;
    let target = Target::new(&format!("http://{}/echo", server.address).parse().unwrap()).unwrap();
    let head = text(get(&client(), &target).await.unwrap()).await.unwrap();
    assert_eq!(
        head,
        format!("GET /echo HTTP/1.1\r\nhost: {}\r\n\r\n", server.address)
    );
    let target = Target::new(&"https://tools.example/a%20b/?q=1#part".parse().unwrap()).unwrap();
    assert_eq!(
        (target.path.to_string(), target.host.to_str().unwrap()),
        ("/a%20b/?q=1".into(), "tools.example")
    );
    assert_eq!(target.origin.to_string(), "https://tools.example/");
}

/// Goal: a kept connection that the server has closed costs a request nothing. Method: it closes after each answer.
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

/// Goal: what came to nothing says whether the server may have acted. Method: nobody listens; the connection ends before
/// the answer, and within it.
#[tokio::test]
async fn failures_are_told_apart() {
    let (server, client) = (Server::start(1).await, client());
    let nobody = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let target = Target::new(&format!("http://{nobody}/").parse().unwrap()).unwrap();
    assert_eq!(
        get(&client, &target).await.err(),
        Some(NetError::Unreachable)
    );
    assert_eq!(
        get(&client, &server.at("/nothing")).await.err(),
        Some(NetError::Broken)
    );
    // By a connection that was kept it is no other: it was sent, so it isn't sent again.
    text(get(&client, &server.at("/whole")).await.unwrap())
        .await
        .unwrap();
    assert_eq!(
        get(&client, &server.at("/nothing")).await.err(),
        Some(NetError::Broken)
    );
    assert_eq!(server.connections.load(SeqCst), 2);
}

/// Goal: who leaves before the end of a response closes its connection, for the rest would be read as another's. Method:
/// drop one in mid-body; the server sees the end.
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

/// Goal: idle connections are bounded, and closed after a while. Method: one more than the bound at once; then the time
/// passes.
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
    tokio::time::advance(IDLE_TIME_MAX + Duration::from_secs(1)).await;
    tokio::time::resume();
    until(|| client.idle.len() == 0).await;
    server.has_ended(at_once).await;
}

/// Goal: a name that somebody else wrote leads nowhere but where the guard lets it, whatever the name service says. Method:
/// a name service that answers with this machine; guarded and not.
#[tokio::test]
async fn guarded_connections_go_nowhere_else() {
    use crate::Egress;
    use reqwest::dns::{Addrs, Name, Resolve, Resolving};

    struct Here(SocketAddr);
    impl Resolve for Here {
        fn resolve(&self, _: Name) -> Resolving {
            let here = self.0;
            Box::pin(async move { Ok(Box::new(std::iter::once(here)) as Addrs) })
        }
    }

    let server = Server::start(1).await;
    let public = Egress::public().with_lookup(Arc::new(Here(server.address)));
    let target = Target::new(
        &format!("http://agent.example:{}/whole", server.address.port())
            .parse()
            .unwrap(),
    )
    .unwrap();
    for (egress, arrives) in [(public.clone(), false), (public.with_loopback(), true)] {
        let client = Client::new(Connector::guarded(Duration::from_secs(5), egress).unwrap());
        assert_eq!(
            get(&client, &target)
                .await
                .map_err(|error| error == NetError::Unreachable)
                .is_ok(),
            arrives
        );
        assert_eq!(server.connections.load(SeqCst), usize::from(arrives));
    }
}
