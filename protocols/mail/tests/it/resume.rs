//! Reconnection of event streams without loss of events.

use callboard_mail::MailClientError;
use callboard_mail::client::{MailClient, MailStreamItem};
use callboard_message::mail::{MailEvent, MemberId};
use secrecy::SecretString;

use crate::events::broadcast;
use crate::kit::{Served, soon};

/// Returns a mail client for the given agent.
pub fn client(served: &Served, id: &str) -> MailClient {
    let base = format!("http://{}", served.address).parse().unwrap();
    MailClient::new(base, SecretString::from(id), &MemberId::parse(id).unwrap()).unwrap()
}

/// Goal: each event is returned once, in order, however often the connection breaks, also between
/// events of one number. Method: 20 cuts among events of two frames each, while more are added;
/// from the beginning and from now on.
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
            MailStreamItem::Event(event) => heard.push((event.sequence, event.event.kind())),
            _ => broke += 1,
        }
        if heard.len() % 6 == 5 && cuts < 20 {
            stream.disconnect();
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

/// Goal: a stream from now on loses no events while its connection is broken. Method: a cut before
/// the first event; only one type.
#[tokio::test]
async fn from_now_on() {
    let served = Served::start().await;
    served.happen(broadcast("before"));
    let client = client(&served, "watcher");
    let mut stream = client.events(None, &["agent_broadcast"]);
    soon(stream.ensure_connected()).await.unwrap();
    stream.disconnect();
    for sender in ["one", "two"] {
        served.happen(broadcast(sender));
    }
    for sequence in [2, 3] {
        match soon(stream.next()).await.unwrap() {
            MailStreamItem::Event(event) => {
                assert_eq!(
                    (event.sequence, event.event.kind()),
                    (sequence, "agent_broadcast")
                )
            }
            other => panic!("{other:?}"),
        }
    }
    served.stop().await;
}

/// Goal: an event over the size limit breaks the connection and isn't read. Method: one at the
/// limit, and one of one more byte.
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
    assert!(matches!(
        soon(stream.next()).await,
        Ok(MailStreamItem::Event(_))
    ));
    served.happen([left("x".repeat(BYTES_MAX - around + 1))]);
    assert_eq!(
        soon(stream.next()).await,
        Ok(MailStreamItem::Disconnected(
            MailClientError::ConnectionLost
        ))
    );
    served.stop().await;
}

/// Goal: permanent errors end the stream with the server's explanation; temporary ones are retried.
/// Method: a wrong key, an unknown path; a server that comes back.
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
    assert!(matches!(
        soon(stream.next()).await,
        Ok(MailStreamItem::Event(_))
    ));
    let (room, names) = (served.room.clone(), served.names.clone());
    served.stop().await;
    let (mut breaks, mut back, mut heard) = (0, None, Vec::new());
    while heard.len() < 3 {
        match soon(stream.next()).await.unwrap() {
            MailStreamItem::Event(event) => heard.push((event.sequence, event.event.kind())),
            _ => breaks += 1,
        }
        // The lost connection, and an attempt that failed.
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
