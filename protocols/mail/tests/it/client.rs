//! The mail client against a real server.

use callboard_mail::MailClientError;
use callboard_mail::client::MailClient;
use callboard_message::mail::{
    AgentLogs, BroadcastMessage, MailDirection, MemberId, MemberState, MessageHistory, Priority,
    SendMessage,
};
use callboard_message::{Failure, FailureKind};
use secrecy::SecretString;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::{Served, soon};
use crate::resume::client;
use crate::room::{sent, view};

/// Goal: every operation of the server can be called, and its arguments arrive unchanged. Method:
/// each method, and the requests that the mailroom got.
#[tokio::test]
async fn everything() {
    let served = Served::start().await;
    let alice = client(&served, "alice");
    let id = |id: &str| MemberId::parse(id).unwrap();
    let broadcast = BroadcastMessage {
        message: "héllo\n".into(),
        ..Default::default()
    };
    assert_eq!(
        alice.broadcast(&broadcast).await,
        Ok(sent(Some(3), "Message broadcast to 3 agent(s)"))
    );
    let message = SendMessage {
        message: "x".into(),
        recipient_agent_id: Some("agent-456".into()),
        priority: Some(Priority::Urgent),
        ..Default::default()
    };
    assert_eq!(
        alice.send(&message).await,
        Ok(sent(None, "Message sent to agent agent-45"))
    );
    assert!(alice.reply(&id("m-1"), "x", true).await.unwrap().success);
    assert_eq!(alice.agents(None).await.unwrap().count, 2);
    assert_eq!(
        alice.agents(Some(MemberState::Away)).await.unwrap().agents[0].agent_id,
        "bob"
    );
    assert_eq!(alice.agent(&id("bob")).await.unwrap().agent_id, "bob");
    assert!(alice.end_agent(&id("bob"), true).await.unwrap().success);
    served.room.asked();
    let filter = MessageHistory {
        direction: Some(MailDirection::All),
        with: Some("bob".into()),
        text: Some("a&b=c é".into()),
        limit: Some(3),
        ..Default::default()
    };
    let page = alice.messages(&filter).await.unwrap();
    assert_eq!(
        (
            page.next,
            page.messages.len(),
            page.messages[0].message.as_deref()
        ),
        (Some(6), 2, Some("hello"))
    );
    let (name, body, who) = served.room.asked().swap_remove(0);
    assert_eq!(
        (name, body, &*who),
        (
            "message_history",
            serde_json::to_value(&filter).unwrap(),
            "alice"
        )
    );
    let mut expected = view("m-3");
    expected.message = Some("hello".into());
    assert_eq!(alice.message(&id("m-3"), true).await, Ok(expected));
    assert!(alice.mark_read(&id("m-3")).await.unwrap().success);
    assert_eq!(
        alice.agent_logs(&AgentLogs::default()).await.unwrap().logs[0].agent_id,
        "alice"
    );
    served.stop().await;
}

/// Goal: a response is read up to a limit. Method: a server whose response has as many bytes, then
/// one more.
#[tokio::test]
async fn answers_are_bounded() {
    const BYTES_MAX: usize = 64 * 1024 * 1024;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let serving = tokio::spawn(async move {
        for more in [0, 1] {
            let (mut peer, _) = listener.accept().await.unwrap();
            peer.read_buf(&mut Vec::with_capacity(4_096)).await.unwrap();
            let answer = r#"{"count":0,"agents":[]}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                BYTES_MAX + more
            );
            let rest = vec![b' '; BYTES_MAX + more - answer.len()];
            for part in [head.as_bytes(), answer.as_bytes(), &rest] {
                // A client that rejects the body may close the connection.
                let _ = peer.write_all(part).await;
            }
        }
    });
    let client = MailClient::new(
        url,
        SecretString::from("key"),
        &MemberId::parse("alice").unwrap(),
    )
    .unwrap();
    assert_eq!(soon(client.agents(None)).await.unwrap().count, 0);
    assert_eq!(
        soon(client.agents(None)).await,
        Err(MailClientError::InvalidResponse)
    );
    soon(serving).await.unwrap();
}

/// Goal: an error has the server's explanation and the right kind. Method: each kind of error.
#[tokio::test]
async fn errors() {
    let served = Served::start().await;
    let alice = client(&served, "alice");
    let nobody = client(&served, "nobody").agents(None).await.unwrap_err();
    assert!(nobody.is_denied() && !nobody.is_transient(), "{nobody}");
    let nowhere = alice
        .message(&MemberId::parse("nowhere").unwrap(), false)
        .await
        .unwrap_err();
    assert!(
        matches!(nowhere, MailClientError::Refused { status: 404, .. }),
        "{nowhere}"
    );
    let full = Failure::new(FailureKind::Overloaded, "too many messages")
        .with_data(json!({ "retry_after_s": 9 }));
    served.room.refuse(Some(full));
    let detail = "too many messages".to_owned();
    let full = alice.agents(None).await.unwrap_err();
    assert_eq!(
        full,
        MailClientError::Refused {
            status: 429,
            detail,
            retry_after_s: Some(9)
        }
    );
    assert!(full.is_transient());
    let id = MemberId::parse("alice").unwrap();
    for bad in [
        "ftp://localhost",
        "http://localhost/x",
        "http://localhost/?x=1",
        "http://user:pass@localhost",
        "data:x",
    ] {
        assert_eq!(
            MailClient::new(bad.parse().unwrap(), None, &id).unwrap_err(),
            MailClientError::InvalidAddress,
            "{bad}"
        );
    }
    let url = || format!("http://{}", served.address).parse().unwrap();
    let secret = SecretString::from("s3cret\n");
    assert_eq!(
        MailClient::new(url(), secret, &id).unwrap_err(),
        MailClientError::InvalidKey
    );
    let key = SecretString::from("s3cret");
    assert!(!format!("{:?}", MailClient::new(url(), key, &id).unwrap()).contains("s3cret"));
    served.stop().await;
    // A worker may still answer on an open connection.
    let gone = async {
        while !matches!(
            alice.agents(None).await,
            Err(MailClientError::Unreachable { .. } | MailClientError::ConnectionLost)
        ) {
            tokio::task::yield_now().await;
        }
    };
    soon(gone).await;
}
