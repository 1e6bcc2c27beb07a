//! Delivery by webhook: signed, repeated as requested, and never to a URL that isn't allowed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_mail::outbound::webhook::{WebhookAgent, WebhookError, WebhookOptions};
use callboard_message::mail::DeliverMessage;
use callboard_message::{Failure, FailureKind};
use callboard_runtime::{AgentRef, System};
use hmac::{Hmac, Mac};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use secrecy::SecretString;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::net::TcpListener;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::inside::INSIDE;
use crate::kit::SOON;
use crate::letter::{self, letter};

const SECRET: &str = "what both know";

/// A server that must not be reached.
struct Victim {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Victim {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let victim = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
        };
        let connections = victim.connections.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        victim
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A resolver that returns each answer once, and the last one forever. `None` means no answer.
struct Answers(Mutex<Vec<Option<&'static str>>>);

impl Resolve for Answers {
    fn resolve(&self, _: Name) -> Resolving {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 {
            answers.remove(0)
        } else {
            answers[0]
        };
        Box::pin(async move {
            let ip = answer
                .ok_or_else(|| std::io::Error::other("no answer"))?
                .parse()
                .unwrap();
            Ok(Box::new(std::iter::once(SocketAddr::new(ip, 0))) as Addrs)
        })
    }
}

/// Starts a receiver that gives each response once, and the last one forever.
async fn receiver(answers: impl IntoIterator<Item = ResponseTemplate>) -> MockServer {
    let server = MockServer::start().await;
    let mut answers: Vec<_> = answers.into_iter().collect();
    let last = answers.pop().unwrap();
    for answer in answers {
        Mock::given(any())
            .respond_with(answer)
            .up_to_n_times(1)
            .mount(&server)
            .await;
    }
    Mock::given(any()).respond_with(last).mount(&server).await;
    server
}

fn options(url: &str) -> WebhookOptions {
    WebhookOptions::new(url.parse().unwrap())
}

/// Creates an agent that may post to this machine.
fn here(system: &System, url: &str) -> AgentRef {
    let allow = vec!["127.0.0.0/8".parse().unwrap()];
    let secret = Some(SecretString::from(SECRET));
    system.spawn(
        WebhookAgent::new(WebhookOptions {
            allowed_networks: allow,
            secret,
            ..options(url)
        })
        .unwrap(),
    )
}

/// Sends the same message in each attempt.
async fn send(agent: &AgentRef, attempt: u32) -> Result<(), Failure> {
    let topic = Some("builds".into());
    letter::send(
        agent,
        DeliverMessage {
            attempt,
            topic,
            urgent: true,
            ..letter("0198-m", "é")
        },
    )
    .await
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request
        .headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// Goal: a receiver gets the whole message, can verify its sender and recognise a repetition.
/// Method: two requests for one message, the first answered with 503; the signature computed here;
/// a receiver without a secret.
#[tokio::test]
async fn posts_are_whole_and_signed() {
    let system = System::start(1).unwrap();
    let server = receiver([ResponseTemplate::new(503), ResponseTemplate::new(204)]).await;
    let agent = here(&system, &format!("{}/hook?a=b", server.uri()));
    assert_eq!(
        send(&agent, 1).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    send(&agent, 2).await.unwrap();
    let posts = server.received_requests().await.unwrap();
    assert_eq!(
        (posts.len(), posts[0].url.path(), posts[0].url.query()),
        (2, "/hook", Some("a=b"))
    );
    assert_eq!(posts[0].body, posts[1].body);
    let body: Value = serde_json::from_slice(&posts[0].body).unwrap();
    let expected = json!({
        "message_id": "0198-m", "number": 7, "kind": "direct", "from": "12345678-a", "to": "87654321-b",
        "thread": "0198-m", "topic": "builds", "urgent": true, "sent": "2026-01-02T03:04:05.678Z",
        "text": "[AGENT 12345678 TO AGENT 87654321]: é", "message": "é",
        "display": { "from": "12345678", "to": "87654321" },
    });
    assert_eq!(body, expected);
    for post in &posts {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(header(post, "x-callboard-timestamp").as_bytes());
        mac.update(b".");
        mac.update(&post.body);
        let digits: String = mac
            .finalize()
            .into_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            header(post, "x-callboard-signature"),
            format!("sha256={digits}")
        );
        let same = ["x-callboard-message-id", "idempotency-key"].map(|name| header(post, name));
        assert_eq!(
            (same, header(post, "content-type")),
            (["0198-m"; 2], "application/json")
        );
    }
    let allowed_networks = vec!["127.0.0.1/32".parse().unwrap()];
    let unsigned = WebhookOptions {
        allowed_networks,
        ..options(&server.uri())
    };
    send(&system.spawn(WebhookAgent::new(unsigned).unwrap()), 1)
        .await
        .unwrap();
    let post = server.received_requests().await.unwrap().pop().unwrap();
    assert!(post.headers.get("x-callboard-signature").is_none());
    assert!(!header(&post, "x-callboard-timestamp").is_empty());
}

/// Goal: a requested delay is respected. Method: 429 with a long `Retry-After`, within which
/// nothing is posted; one with a short one, after which it is.
#[tokio::test]
async fn a_receiver_is_left_alone() {
    let system = System::start(1).unwrap();
    let later = |seconds: &str| ResponseTemplate::new(429).insert_header("retry-after", seconds);
    let server = receiver([later("60")]).await;
    let agent = here(&system, &server.uri());
    for _ in 0..2 {
        assert_eq!(
            send(&agent, 1).await.unwrap_err().kind,
            FailureKind::Unavailable
        );
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
    let server = receiver([later("1"), ResponseTemplate::new(200)]).await;
    let agent = here(&system, &server.uri());
    assert_eq!(
        send(&agent, 2).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    let began = tokio::time::Instant::now();
    while send(&agent, 3).await.is_err() {
        assert!(began.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 2);
}

/// Goal: redirects are not followed. Method: a receiver that redirects to an allowed URL.
#[tokio::test]
async fn redirects_are_not_followed() {
    let system = System::start(1).unwrap();
    for status in [301, 302, 303, 307, 308] {
        let victim = Victim::start().await;
        let away = ResponseTemplate::new(status)
            .insert_header("location", format!("http://{}/", victim.address));
        let server = receiver([away]).await;
        let failure = send(&here(&system, &server.uri()), 1).await.unwrap_err();
        assert_eq!(
            (failure.kind, victim.connections()),
            (FailureKind::Rejected, 0),
            "{status}"
        );
    }
}

/// Goal: no spelling of a local address or network is accepted. Method: each, over both schemes, on
/// a victim's port.
#[tokio::test]
async fn no_spelling_leads_inside() {
    let victim = Victim::start().await;
    let port = victim.address.port();
    for host in INSIDE {
        for scheme in ["http", "https"] {
            let made = WebhookAgent::new(options(&format!("{scheme}://{host}:{port}/")));
            assert!(matches!(made, Err(WebhookError::Url(_))), "{scheme} {host}");
        }
    }
    for url in [
        "http://hook.example/",
        "ftp://hook.example/",
        "file:///etc/passwd",
        "https://a:b@hook.example/",
    ] {
        assert!(
            matches!(WebhookAgent::new(options(url)), Err(WebhookError::Url(_))),
            "{url}"
        );
    }
    let empty = WebhookOptions {
        secret: Some(SecretString::from("")),
        ..options("https://hook.example/")
    };
    assert!(matches!(
        WebhookAgent::new(empty),
        Err(WebhookError::Secret)
    ));
    assert_eq!(victim.connections(), 0);
}

/// Goal: `http` is limited to the allowed networks. Method: a network of one address.
#[tokio::test]
async fn http_stays_where_it_is_allowed() {
    for (url, is_taken) in [
        ("http://127.0.0.3:1/", true),
        ("https://127.0.0.3:1/", true),
        ("http://127.0.0.4:1/", false),
        ("http://93.184.216.34:1/", false),
        ("https://93.184.216.34:1/", true),
    ] {
        let made = WebhookAgent::new(WebhookOptions {
            allowed_networks: vec!["127.0.0.3/32".parse().unwrap()],
            ..options(url)
        });
        assert_eq!(made.is_ok(), is_taken, "{url}");
    }
}

/// Goal: the address of a name is checked at each request. Method: names that resolve to this
/// machine at once, or after another answer; one that doesn't resolve may be retried.
#[tokio::test]
async fn names_that_lead_inside() {
    let system = System::start(1).unwrap();
    let victim = Victim::start().await;
    let url = format!("https://hook.example:{}/", victim.address.port());
    for (answers, expected) in [
        (vec![Some("127.0.0.1")], [FailureKind::Rejected; 2]),
        (vec![Some("::ffff:10.0.0.1")], [FailureKind::Rejected; 2]),
        (
            vec![None, Some("127.0.0.1")],
            [FailureKind::Unavailable, FailureKind::Rejected],
        ),
    ] {
        let resolver = Some(Arc::new(Answers(Mutex::new(answers))) as Arc<dyn Resolve>);
        let agent = system.spawn(
            WebhookAgent::new(WebhookOptions {
                resolver,
                ..options(&url)
            })
            .unwrap(),
        );
        for (attempt, expected) in expected.into_iter().enumerate() {
            assert_eq!(
                send(&agent, attempt as u32 + 1).await.unwrap_err().kind,
                expected
            );
        }
    }
    assert_eq!(victim.connections(), 0);
}
