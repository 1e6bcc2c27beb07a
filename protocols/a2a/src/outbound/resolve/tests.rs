use std::collections::HashMap;
use std::sync::Mutex;

use callboard_message::{Failure, FailureKind};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::outbound::options::CardTrust;

/// Path of the card of the agent `down`.
pub const OWN: &str = "/agents/down/.well-known/agent-card.json";
pub const ROOT: &str = "/.well-known/agent-card.json";

/// Server of cards: each path has a status and a body, all others are 404.
pub struct CardServer {
    pub url: String,
    answers: Arc<Mutex<HashMap<String, (u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl CardServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (answers, asked) = (
            Arc::<Mutex<HashMap<String, (u16, String)>>>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let (answered, heard) = (answers.clone(), asked.clone());
        let serving = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n")
                    && socket.read_buf(&mut request).await.unwrap() > 0
                {}
                let request = String::from_utf8(request).unwrap();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let (status, body) = answered
                    .lock()
                    .unwrap()
                    .get(&path)
                    .cloned()
                    .unwrap_or((404, String::new()));
                heard.lock().unwrap().push(path);
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
                );
                let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self {
            url,
            answers,
            asked,
            serving,
        }
    }

    pub fn put(&self, path: &str, status: u16, body: String) {
        self.answers
            .lock()
            .unwrap()
            .insert(path.to_owned(), (status, body));
    }

    /// Adds a card of `name` with one interface.
    pub fn put_card(&self, path: &str, name: &str, interface: &str) {
        self.put_card_with(path, name, &[interface]);
    }

    /// Adds a card of `name` with several interfaces.
    pub fn put_card_with(&self, path: &str, name: &str, interfaces: &[&str]) {
        let interface = |url: &&str| json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
        let interfaces: Vec<_> = interfaces.iter().map(interface).collect();
        self.put(
            path,
            200,
            json!({ "name": name, "supportedInterfaces": interfaces }).to_string(),
        );
    }

    /// Returns the paths requested since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    pub fn agent(&self) -> Url {
        format!("{}/agents/down", self.url).parse().unwrap()
    }

    async fn find(&self, before: Option<&CachedCard>) -> Result<CachedCard, A2aClientError> {
        let options = RemoteOptions {
            card_trust: CardTrust::Any,
            ..RemoteOptions::default()
        };
        let (door, badge) = (
            HttpClient::new(&options).unwrap(),
            RequestCredentials::new(&options.auth, &options.headers).unwrap(),
        );
        resolve_card(&self.agent(), before, &door, &badge, &options).await
    }
}

impl Drop for CardServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Goal: only 404 leads to the card above an address; every other refusal is an error with status
/// and URL, retryable if it is 429 or 5xx. Method: each status at the agent's own URL, beside a
/// root card that would fit.
#[tokio::test]
async fn only_404_leads_above() {
    for (status, kind) in [
        (401, FailureKind::Denied),
        (403, FailureKind::Denied),
        (429, FailureKind::Overloaded),
        (500, FailureKind::Unavailable),
        (503, FailureKind::Unavailable),
        (504, FailureKind::TimedOut),
        (302, FailureKind::Unavailable),
        (204, FailureKind::Unavailable),
    ] {
        let server = CardServer::start().await;
        server.put(OWN, status, String::new());
        server.put_card(ROOT, "root", "/agents/down");
        let failure = Failure::from(server.find(None).await.err().unwrap());
        assert_eq!(
            (failure.kind, server.asked()),
            (kind, vec![OWN.to_owned()]),
            "{status}"
        );
        let told = format!("{}{OWN} answered with HTTP status {status}", server.url);
        assert!(failure.message.contains(&told), "{}", failure.message);
    }
    // An unreadable card doesn't continue the search either.
    let server = CardServer::start().await;
    server.put(OWN, 200, "[]".into());
    server.put_card(ROOT, "root", "/agents/down");
    assert!(matches!(
        server.find(None).await,
        Err(A2aClientError::Protocol(_))
    ));
    assert_eq!(server.asked(), [OWN]);
}

/// Goal: a card above an address counts only if it is that agent's; another agent's is rejected
/// with the names of both. Method: root cards with an interface at the address, below it, and
/// elsewhere.
#[tokio::test]
async fn cards_above_are_of_the_same_agent() {
    let server = CardServer::start().await;
    let port = server.agent().port().unwrap();
    for (interface, is_it) in [
        ("/agents/down".to_owned(), true),
        ("/agents/down/".to_owned(), true),
        ("/agents/down/a2a".to_owned(), true),
        (format!("http://0.0.0.0:{port}/agents/down"), true),
        ("/agents/up".to_owned(), false),
        ("/agents/downtown".to_owned(), false),
        ("/a2a".to_owned(), false),
        ("/agents".to_owned(), false),
        ("/".to_owned(), false),
        ("https://other.example/agents/down".to_owned(), false),
    ] {
        server.put_card(ROOT, "up", &interface);
        match server.find(None).await {
            Ok(_) => assert!(is_it, "{interface}"),
            Err(error) => {
                assert!(
                    !is_it && matches!(error, A2aClientError::OtherAgent { .. }),
                    "{interface}: {error}"
                );
                let told = error.to_string();
                for part in [
                    server.agent().as_str(),
                    &format!("{}{ROOT}", server.url),
                    "\"up\"",
                    &interface,
                ] {
                    assert!(told.contains(part), "{part}: {told}");
                }
            }
        }
    }
}

/// Goal: the query of an address distinguishes agents at the same path. Method: root cards with an
/// interface of the same query, another and none.
#[tokio::test]
async fn queries_tell_agents_apart() {
    let server = CardServer::start().await;
    let address: Url = format!("{}?agent=down", server.agent()).parse().unwrap();
    let options = RemoteOptions {
        card_trust: CardTrust::Any,
        ..RemoteOptions::default()
    };
    let (door, badge) = (
        HttpClient::new(&options).unwrap(),
        RequestCredentials::new(&options.auth, &options.headers).unwrap(),
    );
    for (interface, is_it) in [
        ("/agents/down?agent=down", true),
        ("/agents/down?agent=up", false),
        ("/agents/down", false),
    ] {
        server.put_card(ROOT, "root", interface);
        match resolve_card(&address, None, &door, &badge, &options).await {
            Ok(kept) => assert!(is_it && kept.is_from_parent_path, "{interface}"),
            Err(error) => assert!(
                !is_it && matches!(error, A2aClientError::OtherAgent { .. }),
                "{interface}: {error}"
            ),
        }
    }
}

/// Goal: a card once found is never searched above its URL. Method: the server removes it, and has
/// a root card that would fit; then it has the card under the older name.
#[tokio::test]
async fn found_cards_are_not_looked_for_above() {
    let server = CardServer::start().await;
    server.put_card(OWN, "down", "/agents/down");
    let found = server.find(None).await.unwrap();
    server.asked();
    server.put(OWN, 404, String::new());
    server.put_card(ROOT, "root", "/agents/down");
    let error = server.find(Some(&found)).await.err().unwrap();
    assert!(
        matches!(error, A2aClientError::CardStatus { status: 404, .. }),
        "{error}"
    );
    let old = "/agents/down/.well-known/agent.json";
    assert_eq!(server.asked(), [OWN, old]);
    server.put_card(old, "down", "/agents/down");
    assert_eq!(
        server.find(Some(&found)).await.unwrap().resolved.url.path(),
        old
    );
}

fn looked_for(url: &str) -> Vec<String> {
    card_locations(&url.parse().unwrap())
        .into_iter()
        .map(|place| place.path().to_owned())
        .collect()
}

/// Goal: a card is searched under its agent's URL, beside it, and at the root, in that order.
/// Method: rows; a URL with more parents than are searched.
#[test]
fn cards_are_looked_for() {
    assert_eq!(
        looked_for("https://a.example/card.json?x=1"),
        ["/card.json"]
    );
    assert_eq!(
        looked_for("https://a.example"),
        ["/.well-known/agent-card.json", "/.well-known/agent.json"]
    );
    assert_eq!(
        looked_for("https://a.example/agents/x/a2a/?q"),
        [
            "/agents/x/a2a/.well-known/agent-card.json",
            "/agents/x/a2a/.well-known/agent.json",
            "/agents/x/.well-known/agent-card.json",
            "/agents/.well-known/agent-card.json",
            "/.well-known/agent-card.json",
            "/.well-known/agent.json",
        ]
    );
    let deep = looked_for("https://a.example/1/2/3/4/5/6/7/8/9");
    assert_eq!(deep.len(), CARD_LOCATIONS_MAX);
    assert_eq!(deep.last().unwrap(), "/.well-known/agent.json");
    assert!(deep.contains(&"/.well-known/agent-card.json".to_owned()));
}

/// Goal: a card is cached for as long as its server says, within limits. Method: at the limits and
/// past them.
#[test]
fn ages_are_bounded() {
    for (said, seconds) in [
        ("max-age=59", 60),
        ("public, max-age=61", 61),
        ("max-age=3600", 3600),
        ("max-age=3601", 3600),
        ("no-store", 60),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, said.parse().unwrap());
        assert_eq!(
            cache_lifetime(&headers),
            Duration::from_secs(seconds),
            "{said}"
        );
    }
}
