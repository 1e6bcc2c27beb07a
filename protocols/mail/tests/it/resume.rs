//! A client that loses its connection loses no event.

use callboard_mail::ClientError;
use callboard_mail::client::{Client, Heard};
use callboard_message::mail::{MailEvent, MailId};
use secrecy::SecretString;

use crate::events::broadcast;
use crate::kit::{Served, soon};

/// A client under this name.
pub fn client(served: &Served, id: &str) -> Client {
    let base = format!("http://{}", served.address).parse().unwrap();
    Client::new(base, SecretString::from(id), &MailId::parse(id).unwrap()).unwrap()
}

/// Goal: each event comes once, in order, however often the connection breaks, in the midst of a number too. Method: 20 cuts
/// among events of two frames each, while more happen; from the beginning and from now on.
#[tokio::test]
async fn cut_twenty_times() {
    const EVENTS: u64 = 63;
    let served = Served::start().await;
    for n in 0..EVENTS / 3 {
        served.happen(broadcast(&format!("agent-{n}")));
    }
    let client = client(&served, "watcher");
    let mut stream = client.events(Some(0), &[]);
    let (mut heard, mut cuts, mut broke) = (Vec::new(), 0, 0);
    while heard.len() < 2 * EVENTS as usize {
        match soon(stream.next()).await.unwrap() {
            Heard::Event(event) => heard.push((event.sequence, event.event.kind())),
            _ => broke += 1,
        }
        if heard.len() % 6 == 5 && cuts < 20 {
            stream.cut();
            cuts += 1;
        }
        if heard.len() % 3 == 1 && (heard.len() as u64) / 3 < EVENTS - EVENTS / 3 {
            served.happen(broadcast("later"));
        }
    }
    assert_eq!((cuts, broke), (20, 0));
    let both = |n: u64| [(n, "message_accepted"), (n, "agent_broadcast")];
    assert_eq!(heard, (1..=EVENTS).flat_map(both).collect::<Vec<_>>());
    served.stop().await;
}

/// Goal: whoever listens from now on misses nothing of what happens while its connection is broken. Method: a cut before the
/// first event; only one type.
#[tokio::test]
async fn from_now_on() {
    let served = Served::start().await;
    served.happen(broadcast("before"));
    let client = client(&served, "watcher");
    let mut stream = client.events(None, &["agent_broadcast"]);
    soon(stream.ready()).await.unwrap();
    stream.cut();
    for sender in ["one", "two"] {
        served.happen(broadcast(sender));
    }
    for sequence in [2, 3] {
        match soon(stream.next()).await.unwrap() {
            Heard::Event(event) => assert_eq!(
                (event.sequence, event.event.kind()),
                (sequence, "agent_broadcast")
            ),
            other => panic!("{other:?}"),
        }
    }
    served.stop().await;
}

/// Goal: an event that is larger than any is breaks the connection, and isn't read. Method: one of as many bytes as an event may
/// have, and one of one more.
#[tokio::test]
async fn events_are_bounded() {
    const BYTES_MAX: usize = 64 * 1024;
    let left = |reason: String| MailEvent::AgentLeft {
        agent_id: "a".into(),
        reason,
    };
    let around = r#"{"sequence":1,"event":{"type":"agent_left","agent_id":"a","reason":""}}"#.len();
    let served = Served::start().await;
    let client = client(&served, "watcher");
    let mut stream = client.events(Some(0), &[]);
    served.happen([left("x".repeat(BYTES_MAX - around))]);
    assert!(matches!(soon(stream.next()).await, Ok(Heard::Event(_))));
    served.happen([left("x".repeat(BYTES_MAX - around + 1))]);
    assert_eq!(
        soon(stream.next()).await,
        Ok(Heard::Broken(ClientError::Broken))
    );
    served.stop().await;
}

/// Goal: what won't pass ends the stream, with the server's words; what may pass is tried again. Method: a key that isn't one, a
/// place that isn't there; a server that comes back.
#[tokio::test]
async fn ends_and_breaks() {
    let served = Served::start().await;
    let refused = soon(client(&served, "nobody").events(None, &[]).next())
        .await
        .unwrap_err();
    assert!(refused.is_denied(), "{refused}");
    let beyond = soon(client(&served, "alice").events(Some(7), &[]).next())
        .await
        .unwrap_err();
    assert!(beyond.to_string().contains("after"), "{beyond}");
    let address = served.address;
    let mut stream = client(&served, "watcher").events(Some(0), &[]);
    served.happen(broadcast("one"));
    assert!(matches!(soon(stream.next()).await, Ok(Heard::Event(_))));
    let (room, names) = (served.room.clone(), served.names.clone());
    served.stop().await;
    let (mut breaks, mut back, mut heard) = (0, None, Vec::new());
    while heard.len() < 3 {
        match soon(stream.next()).await.unwrap() {
            Heard::Event(event) => heard.push((event.sequence, event.event.kind())),
            _ => breaks += 1,
        }
        // The connection, and one that couldn't be made.
        if breaks == 2 && back.is_none() {
            let served = back.insert(Served::again(address, room.clone(), names.clone()));
            served.happen(broadcast("two"));
        }
    }
    assert_eq!(
        heard,
        [
            (1, "agent_broadcast"),
            (2, "message_accepted"),
            (2, "agent_broadcast")
        ]
    );
    back.unwrap().stop().await;
}
