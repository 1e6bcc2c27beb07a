use std::sync::Arc;

use callboard_message::mail::{DeliveryState, MAIL_LOG_CHARS, MailMessageKind};
use callboard_message::time::format_rfc3339;
use callboard_runtime::{
    MAIL_SCAN_MAX, MailMessageFilter, MailStore, NewMailMessage, ReceiptUpdate,
};
use futures::future::join_all;

use super::{letter, mails, pair, to_crowd};

/// Goal: history finds a member's messages by each filter, page by page, newest first. Method: a
/// dozen messages among three.
#[tokio::test]
async fn history() {
    mails(async |mail| {
        let from = |sender: &str, to: &[&str], body: &str| NewMailMessage {
            sender: sender.into(),
            ..letter(to, body)
        };
        let first = mail.post(from("ann", &["bob"], "The Pumps")).await.unwrap();
        let thread = Some(first.new.id.clone());
        mail.post(NewMailMessage {
            thread: thread.clone(),
            ..from("bob", &["ann"], "which?")
        })
        .await
        .unwrap();
        mail.post(NewMailMessage {
            topic: Some("rota".into()),
            ..from("eve", &["ann", "bob"], "rota")
        })
        .await
        .unwrap();
        mail.post(from("eve", &["max"], "pumps")).await.unwrap();
        mail.post(NewMailMessage {
            sender: "eve".into(),
            ..to_crowd(40, "PUMPS ÄÖ")
        })
        .await
        .unwrap();
        mail.post(from("ann", &["agent-00007"], "seven"))
            .await
            .unwrap();
        mail.update_receipts(vec![pair("bob", 1)], ReceiptUpdate::Read)
            .await
            .unwrap();
        let seen = async |filter: MailMessageFilter, before, most| -> (Vec<u64>, Option<u64>) {
            let (found, next) = mail.history(filter, before, most).await.unwrap();
            (
                found.iter().map(|(letter, _)| letter.number).collect(),
                next,
            )
        };
        let all = async |filter: MailMessageFilter| -> Vec<u64> {
            let (found, next) = seen(filter, 0, 100).await;
            assert_eq!(next, None);
            found
        };
        let any = MailMessageFilter::default;
        let of = |agent: &str| MailMessageFilter {
            member: Some(agent.into()),
            ..any()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(all(any()).await, [6, 5, 4, 3, 2, 1]);
        assert_eq!(all(of("ann")).await, [6, 3, 2, 1]);
        assert_eq!(all(of("agent-00007")).await, [6, 5]);
        assert_eq!(all(of("nobody")).await, [0; 0]);
        assert_eq!(
            all(MailMessageFilter {
                sent: Some(true),
                ..of("ann")
            })
            .await,
            [6, 1]
        );
        assert_eq!(
            all(MailMessageFilter {
                sent: Some(false),
                ..of("ann")
            })
            .await,
            [3, 2]
        );
        assert_eq!(
            all(MailMessageFilter {
                with: some("bob"),
                ..of("ann")
            })
            .await,
            [2, 1]
        );
        assert_eq!(
            all(MailMessageFilter {
                with: some("eve"),
                ..of("agent-00007")
            })
            .await,
            [5]
        );
        assert_eq!(
            all(MailMessageFilter {
                with: some("agent-00039"),
                ..of("eve")
            })
            .await,
            [5]
        );
        assert_eq!(
            all(MailMessageFilter {
                sender: some("eve"),
                ..of("bob")
            })
            .await,
            [3]
        );
        assert_eq!(
            all(MailMessageFilter {
                sender: some("eve"),
                ..any()
            })
            .await,
            [5, 4, 3]
        );
        assert_eq!(
            all(MailMessageFilter {
                topic: some("rota"),
                ..of("bob")
            })
            .await,
            [3]
        );
        assert_eq!(
            all(MailMessageFilter {
                thread: thread.clone(),
                ..of("bob")
            })
            .await,
            [2, 1]
        );
        assert_eq!(
            all(MailMessageFilter {
                thread,
                ..of("eve")
            })
            .await,
            [0; 0],
            "a thread is theirs whom it concerns"
        );
        assert_eq!(
            all(MailMessageFilter {
                text: some("pumps"),
                ..any()
            })
            .await,
            [5, 4, 1]
        );
        assert_eq!(
            all(MailMessageFilter {
                text: some("umps ÄÖ"),
                ..any()
            })
            .await,
            [5]
        );
        assert_eq!(
            all(MailMessageFilter {
                text: some("äö"),
                ..any()
            })
            .await,
            [0; 0]
        );
        assert_eq!(
            all(MailMessageFilter {
                text: some("100%_"),
                ..any()
            })
            .await,
            [0; 0]
        );
        assert_eq!(
            all(MailMessageFilter {
                state: Some(DeliveryState::Read),
                ..of("bob")
            })
            .await,
            [1]
        );
        assert_eq!(
            all(MailMessageFilter {
                state: Some(DeliveryState::Accepted),
                ..of("agent-00007")
            })
            .await,
            [6, 5]
        );
        assert_eq!(
            all(MailMessageFilter {
                since: Some(first.accepted),
                ..of("bob")
            })
            .await,
            [3, 2, 1]
        );
        assert_eq!(
            all(MailMessageFilter {
                until: Some(first.accepted),
                ..of("bob")
            })
            .await,
            [0; 0]
        );
        let mut pages = Vec::new();
        let mut before = 0;
        loop {
            let (found, next) = seen(of("ann"), before, 3).await;
            pages.extend(found);
            match next {
                Some(next) => before = next,
                None => break,
            }
        }
        assert_eq!(pages, [6, 3, 2, 1]);
        let (found, _) = mail.history(of("agent-00007"), 6, 9).await.unwrap();
        let copy = found[0].1.as_ref().unwrap();
        assert_eq!(
            (copy.recipient.as_str(), copy.message_number, copy.state),
            ("agent-00007", 5, DeliveryState::Accepted)
        );
        assert_eq!(
            mail.history(of("eve"), 0, 9).await.unwrap().0[0].1,
            None,
            "a sender has no copy"
        );
    })
    .await;
}

/// Goal: a search scans up to its limit and returns where to continue. Method: one message more
/// than the limit, of which the oldest matches.
#[tokio::test]
async fn a_search_is_bounded() {
    mails(search_is_bounded).await;
}

async fn search_is_bounded(mail: Arc<dyn MailStore>) {
    mail.post(letter(&["bob"], "needle")).await.unwrap();
    for _ in 0..MAIL_SCAN_MAX / 500 {
        let hay = (0..500).map(|_| mail.post(letter(&["bob"], "hay")));
        join_all(hay)
            .await
            .into_iter()
            .for_each(|posted| assert!(posted.is_ok()));
    }
    let filter = || MailMessageFilter {
        member: Some("bob".into()),
        text: Some("needle".into()),
        ..MailMessageFilter::default()
    };
    let (found, next) = mail.history(filter(), 0, 9).await.unwrap();
    assert_eq!((found.len(), next), (0, Some(2)));
    let (found, next) = mail.history(filter(), next.unwrap(), 9).await.unwrap();
    assert_eq!((found[0].0.number, next), (1, None));
}

/// Goal: the log has a row for each message and recipient, with the first 200 characters. Method: a
/// message to one with 250 characters, one to two, one to many; in pages, and of one agent.
/// Rows: P-20.
#[tokio::test]
async fn logs() {
    mails(async |mail| {
        let long: String = "é".repeat(250);
        let sender = "12345678-90".to_owned();
        let posted = mail
            .post(NewMailMessage {
                sender: sender.clone(),
                ..letter(&["bob"], &long)
            })
            .await
            .unwrap();
        mail.post(NewMailMessage {
            kind: MailMessageKind::Group,
            ..letter(&["bob", "eve"], "two")
        })
        .await
        .unwrap();
        mail.post(to_crowd(20, "all")).await.unwrap();
        let rows = mail.log_rows(Some("bob"), 0, 9).await.unwrap();
        let row = &rows[0];
        assert_eq!(
            (row.log_type.as_str(), row.agent_id.as_str()),
            ("agent_communication", "bob")
        );
        assert_eq!(row.message, "Direct message from agent 12345678");
        let details = &row.details;
        assert_eq!(
            (&details.sender_id, details.recipient_id.as_str()),
            (&sender, "bob")
        );
        assert_eq!(details.message_content, "é".repeat(MAIL_LOG_CHARS));
        assert_eq!(
            (details.message_type, &details.timestamp),
            (MailMessageKind::Direct, &format_rfc3339(posted.accepted))
        );
        assert_eq!(
            (rows.len(), rows[1].message.as_str()),
            (2, "Group message from agent ann")
        );
        assert_eq!(
            mail.log_rows(Some("agent-00019"), 0, 9)
                .await
                .unwrap()
                .len(),
            1
        );
        let mut all = Vec::new();
        while let Some(page) = Some(
            mail.log_rows(None, all.last().copied().unwrap_or_default(), 4)
                .await
                .unwrap(),
        )
        .filter(|page| !page.is_empty())
        {
            all.extend(page.iter().map(|row| row.number));
        }
        assert_eq!(all.len(), 23);
        assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
    })
    .await;
}
