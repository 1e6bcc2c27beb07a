//! Twelve agents, each with a key of its own: whoever is away, and whatever is killed, each message is read by all, once.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard::mail::client::{MailClient, MailStreamItem};
use callboard::message::mail::{
    BroadcastMessage, DeliveryState, MailEvent, MemberId, MessageHistory, NumberedMailEvent,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::kit::mail::Office;
use crate::kit::{found, soon};

const MAILROOM: &str = "[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\nbroadcasts_a_minute = 6000\nmessages_a_second = 1000\n";
/// Number of kills.
const ROUNDS: u64 = 10;
/// Broadcasts a round.
const BROADCASTS: usize = 20;
/// The longest that callboard lives after the first of them is accepted.
const LIVES_MAX: Duration = Duration::from_millis(300);

fn twelve() -> Vec<String> {
    (1..=12).map(|n| format!("agent-{n:02}")).collect()
}

async fn office() -> Office {
    let ids = twelve();
    let mut members: Vec<(&str, &[&str])> = vec![("chief", &["mail.watch"])];
    members.extend(ids.iter().map(|id| (id.as_str(), &[][..])));
    let office = Office::open(MAILROOM, &members).await;
    for (id, _) in &members {
        soon("its first word", office.client(id).agents(None))
            .await
            .unwrap();
    }
    office
}

/// Reads whatever comes, over HTTP, and says so; ends with its connection.
async fn reads(client: MailClient, read: Arc<Mutex<Vec<String>>>) {
    let mut events = client.events(Some(0), &["agent_broadcast"]);
    loop {
        if unread(&client, &read).await.is_none() {
            return;
        }
        match events.next().await {
            Ok(MailStreamItem::Event(_)) => {}
            _ => return,
        }
    }
}

/// Marks all that isn't read as read; `None` where nobody answers any more.
async fn unread(client: &MailClient, read: &Mutex<Vec<String>>) -> Option<()> {
    for state in [DeliveryState::Accepted, DeliveryState::Delivered] {
        let filter = MessageHistory {
            state: Some(state),
            limit: Some(100),
            ..MessageHistory::default()
        };
        for message in client.messages(&filter).await.ok()?.messages {
            client
                .mark_read(&MemberId::parse(&*message.message_id).unwrap())
                .await
                .ok()?;
            read.lock().unwrap().push(message.message_id);
        }
    }
    Some(())
}

/// All that happened, as `chief` sees it, up to now.
async fn events(office: &Office) -> Vec<NumberedMailEvent> {
    let client = office.client("chief");
    // What says that the end is reached.
    let last = client
        .broadcast(&of("the end"))
        .await
        .unwrap()
        .message_id
        .unwrap();
    let (mut stream, mut all) = (client.events(Some(0), &[]), Vec::new());
    loop {
        let MailStreamItem::Event(event) = soon("an event", stream.next()).await.unwrap() else {
            panic!("it broke")
        };
        let is_last = matches!(&event.event, MailEvent::MessageAccepted { message_id, .. } if *message_id == last);
        all.push(event);
        if is_last {
            return all;
        }
    }
}

fn of(message: &str) -> BroadcastMessage {
    BroadcastMessage {
        message: message.to_owned(),
        ..BroadcastMessage::default()
    }
}

/// Returns the number of reads by each member, from the events.
fn readers(events: &[NumberedMailEvent], id: &str) -> BTreeMap<String, usize> {
    let mut readers = BTreeMap::new();
    for event in events {
        if let MailEvent::MessageRead {
            message_id,
            recipient_agent_ids,
            ..
        } = &event.event
            && message_id == id
        {
            recipient_agent_ids
                .iter()
                .for_each(|who| *readers.entry(who.clone()).or_default() += 1);
        }
    }
    readers
}

async fn all_have_read(office: &Office, id: &str) {
    let (client, id) = (office.client("chief"), MemberId::parse(id).unwrap());
    let look = async || {
        let receipts = client.message(&id, true).await.unwrap().receipts.unwrap();
        assert_eq!(receipts.len(), 12);
        receipts
            .iter()
            .all(|receipt| receipt.state == DeliveryState::Read)
            .then_some(())
    };
    found("twelve receipts", look).await;
}

fn once_each() -> BTreeMap<String, usize> {
    twelve().into_iter().map(|id| (id, 1)).collect()
}

/// Goal: one of twelve is gone while all are told something; it reads it once it is back; all twelve have read it once.
/// Method: half of them over HTTP, half over MCP; one is ended before the broadcast.
/// Rows: P-28, P-44.
#[tokio::test]
async fn twelve_agents_one_killed() {
    let office = Arc::new(office().await);
    let read = Arc::new(Mutex::new(Vec::new()));
    let start = |id: &str| tokio::spawn(reads(office.client(id), read.clone()));
    let ids = twelve();
    let (over_http, over_mcp) = ids.split_at(6);
    let mut running: Vec<_> = over_http.iter().map(|id| start(id)).collect();
    let killed = running.remove(3);
    killed.abort();
    assert!(killed.await.unwrap_err().is_cancelled());

    let sent = soon("an answer", office.client("chief").broadcast(&of("lunch")))
        .await
        .unwrap();
    assert_eq!(
        (sent.recipient_count, &*sent.message),
        (Some(12), "Message broadcast to 12 agent(s)")
    );
    let id = sent.message_id.unwrap();
    for who in over_mcp {
        let inbox =
            office.call(who, "check_inbox", &json!({})).await["result"]["structuredContent"]
                .clone();
        assert_eq!(inbox["messages"][0]["message_id"], id, "{inbox}");
        let again =
            office.call(who, "check_inbox", &json!({})).await["result"]["structuredContent"]
                .clone();
        assert_eq!(
            (
                &again["unread"],
                again["messages"].as_array().unwrap().len()
            ),
            (&json!(0), 0)
        );
    }
    found("five readers", async || {
        (read.lock().unwrap().len() == 5).then_some(())
    })
    .await;
    running.push(start(&over_http[3]));
    all_have_read(&office, &id).await;
    assert_eq!(readers(&events(&office).await, &id), once_each());
    running.iter().for_each(tokio::task::JoinHandle::abort);
    for task in running {
        drop(task.await);
    }
}

/// Goal: callboard is killed (SIGKILL) in the middle, again and again: what it accepted is read by all twelve, once each, and
/// events have no gaps. Method: a moment of its end by a seed, while twelve read and one sends; the same store again.
#[tokio::test]
async fn twelve_agents_and_callboard_killed() {
    let mut office = office().await;
    let mut accepted = Vec::new();
    let read: Vec<_> = twelve()
        .into_iter()
        .map(|id| (id, Arc::new(Mutex::new(Vec::new()))))
        .collect();
    for round in 0..ROUNDS {
        let lives = LIVES_MAX.mul_f64(StdRng::seed_from_u64(round).random());
        let running: Vec<_> = read
            .iter()
            .map(|(id, read)| tokio::spawn(reads(office.client(id), read.clone())))
            .collect();
        let (chief, (first, is_first)) = (office.client("chief"), tokio::sync::oneshot::channel());
        let sending = tokio::spawn(async move {
            let (mut accepted, mut first) = (Vec::new(), Some(first));
            for nth in 0..BROADCASTS {
                let Ok(sent) = chief.broadcast(&of(&format!("{round} {nth}"))).await else {
                    break;
                };
                assert_eq!(sent.recipient_count, Some(12));
                accepted.push(sent.message_id.unwrap());
                if let Some(first) = first.take() {
                    let _ = first.send(());
                }
            }
            accepted
        });
        soon("the first to be accepted", is_first).await.unwrap();
        // The moment is what is tested: nothing is waited for.
        tokio::time::sleep(lives).await;
        office.kill().await;
        accepted.extend(soon("the sender's end", sending).await.unwrap());
        running.iter().for_each(tokio::task::JoinHandle::abort);
        for task in running {
            drop(task.await);
        }
        office.start().await;
    }
    assert!(accepted.len() >= ROUNDS as usize);
    for (id, read) in &read {
        let client = office.client(id);
        let all_read = async || {
            let before = read.lock().unwrap().len();
            unread(&client, read).await.unwrap();
            (read.lock().unwrap().len() == before).then_some(())
        };
        found("an inbox without more", all_read).await;
    }
    for id in &accepted {
        all_have_read(&office, id).await;
    }
    let events = events(&office).await;
    for id in &accepted {
        assert_eq!(readers(&events, id), once_each(), "{id}");
    }
    let numbers: BTreeSet<u64> = events.iter().map(|event| event.sequence).collect();
    let last = *numbers.last().unwrap();
    assert_eq!(
        (numbers.len() as u64, *numbers.first().unwrap()),
        (last, 1),
        "a gap"
    );
    // Nothing was accepted twice.
    assert_eq!(
        accepted.iter().collect::<HashSet<_>>().len(),
        accepted.len()
    );
    office.close().await;
}
