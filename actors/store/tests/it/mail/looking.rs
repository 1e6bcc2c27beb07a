use std::sync::Arc;

use callboard_message::mail::{EntryState, LetterKind, MAIL_LOG_CHARS};
use callboard_message::time::rfc3339;
use callboard_runtime::{LetterFilter, MAIL_LOOKED_MAX, Mail, Mark, NewLetter};
use futures::future::join_all;

use super::{letter, mails, pair, to_crowd};

/// Goal: one finds what concerns one, by each filter, page by page, newest first. Method: a dozen letters among three.
#[tokio::test]
async fn history() {
    mails(async |mail| {
        let from = |sender: &str, to: &[&str], body: &str| NewLetter {
            sender: sender.into(),
            ..letter(to, body)
        };
        let first = mail.post(from("ann", &["bob"], "The Pumps")).await.unwrap();
        let thread = Some(first.new.id.clone());
        mail.post(NewLetter {
            thread: thread.clone(),
            ..from("bob", &["ann"], "which?")
        })
        .await
        .unwrap();
        mail.post(NewLetter {
            topic: Some("rota".into()),
            ..from("eve", &["ann", "bob"], "rota")
        })
        .await
        .unwrap();
        mail.post(from("eve", &["max"], "pumps")).await.unwrap();
        mail.post(NewLetter {
            sender: "eve".into(),
            ..to_crowd(40, "PUMPS ÄÖ")
        })
        .await
        .unwrap();
        mail.post(from("ann", &["agent-00007"], "seven"))
            .await
            .unwrap();
        mail.mark(vec![pair("bob", 1)], Mark::Read).await.unwrap();
        let seen = async |filter: LetterFilter, before, most| -> (Vec<u64>, Option<u64>) {
            let (found, next) = mail.history(filter, before, most).await.unwrap();
            (
                found.iter().map(|(letter, _)| letter.number).collect(),
                next,
            )
        };
        let all = async |filter: LetterFilter| -> Vec<u64> {
            let (found, next) = seen(filter, 0, 100).await;
            assert_eq!(next, None);
            found
        };
        let any = LetterFilter::default;
        let of = |agent: &str| LetterFilter {
            of: Some(agent.into()),
            ..any()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(all(any()).await, [6, 5, 4, 3, 2, 1]);
        assert_eq!(all(of("ann")).await, [6, 3, 2, 1]);
        assert_eq!(all(of("agent-00007")).await, [6, 5]);
        assert_eq!(all(of("nobody")).await, [0; 0]);
        assert_eq!(
            all(LetterFilter {
                sent: Some(true),
                ..of("ann")
            })
            .await,
            [6, 1]
        );
        assert_eq!(
            all(LetterFilter {
                sent: Some(false),
                ..of("ann")
            })
            .await,
            [3, 2]
        );
        assert_eq!(
            all(LetterFilter {
                with: some("bob"),
                ..of("ann")
            })
            .await,
            [2, 1]
        );
        assert_eq!(
            all(LetterFilter {
                with: some("eve"),
                ..of("agent-00007")
            })
            .await,
            [5]
        );
        assert_eq!(
            all(LetterFilter {
                with: some("agent-00039"),
                ..of("eve")
            })
            .await,
            [5]
        );
        assert_eq!(
            all(LetterFilter {
                sender: some("eve"),
                ..of("bob")
            })
            .await,
            [3]
        );
        assert_eq!(
            all(LetterFilter {
                sender: some("eve"),
                ..any()
            })
            .await,
            [5, 4, 3]
        );
        assert_eq!(
            all(LetterFilter {
                topic: some("rota"),
                ..of("bob")
            })
            .await,
            [3]
        );
        assert_eq!(
            all(LetterFilter {
                thread: thread.clone(),
                ..of("bob")
            })
            .await,
            [2, 1]
        );
        assert_eq!(
            all(LetterFilter {
                thread,
                ..of("eve")
            })
            .await,
            [0; 0],
            "a thread is theirs whom it concerns"
        );
        assert_eq!(
            all(LetterFilter {
                text: some("pumps"),
                ..any()
            })
            .await,
            [5, 4, 1]
        );
        assert_eq!(
            all(LetterFilter {
                text: some("umps ÄÖ"),
                ..any()
            })
            .await,
            [5]
        );
        assert_eq!(
            all(LetterFilter {
                text: some("äö"),
                ..any()
            })
            .await,
            [0; 0]
        );
        assert_eq!(
            all(LetterFilter {
                text: some("100%_"),
                ..any()
            })
            .await,
            [0; 0]
        );
        assert_eq!(
            all(LetterFilter {
                state: Some(EntryState::Read),
                ..of("bob")
            })
            .await,
            [1]
        );
        assert_eq!(
            all(LetterFilter {
                state: Some(EntryState::Accepted),
                ..of("agent-00007")
            })
            .await,
            [6, 5]
        );
        assert_eq!(
            all(LetterFilter {
                since: Some(first.accepted),
                ..of("bob")
            })
            .await,
            [3, 2, 1]
        );
        assert_eq!(
            all(LetterFilter {
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
            (copy.recipient.as_str(), copy.letter, copy.state),
            ("agent-00007", 5, EntryState::Accepted)
        );
        assert_eq!(
            mail.history(of("eve"), 0, 9).await.unwrap().0[0].1,
            None,
            "a sender has no copy"
        );
    })
    .await;
}

/// Goal: a search looks at no more than its bound, and says where to go on. Method: one letter more than it looks at, of which
/// the oldest has the word.
#[tokio::test]
async fn a_search_is_bounded() {
    mails(search_is_bounded).await;
}

async fn search_is_bounded(mail: Arc<dyn Mail>) {
    mail.post(letter(&["bob"], "needle")).await.unwrap();
    for _ in 0..MAIL_LOOKED_MAX / 500 {
        let hay = (0..500).map(|_| mail.post(letter(&["bob"], "hay")));
        join_all(hay)
            .await
            .into_iter()
            .for_each(|posted| assert!(posted.is_ok()));
    }
    let filter = || LetterFilter {
        of: Some("bob".into()),
        text: Some("needle".into()),
        ..LetterFilter::default()
    };
    let (found, next) = mail.history(filter(), 0, 9).await.unwrap();
    assert_eq!((found.len(), next), (0, Some(2)));
    let (found, next) = mail.history(filter(), next.unwrap(), 9).await.unwrap();
    assert_eq!((found[0].0.number, next), (1, None));
}

/// Goal: the log has a row a letter and recipient, with the first 200 characters, whoever reads it how. Method: a letter to one
/// with 250 characters, one to two, one to many; in pages, and of one agent.
#[tokio::test]
async fn logs() {
    mails(async |mail| {
        let long: String = "é".repeat(250);
        let sender = "12345678-90".to_owned();
        let posted = mail
            .post(NewLetter {
                sender: sender.clone(),
                ..letter(&["bob"], &long)
            })
            .await
            .unwrap();
        mail.post(NewLetter {
            kind: LetterKind::Group,
            ..letter(&["bob", "eve"], "two")
        })
        .await
        .unwrap();
        mail.post(to_crowd(20, "all")).await.unwrap();
        let rows = mail.logs(Some("bob"), 0, 9).await.unwrap();
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
            (LetterKind::Direct, &rfc3339(posted.accepted))
        );
        assert_eq!(
            (rows.len(), rows[1].message.as_str()),
            (2, "Group message from agent ann")
        );
        assert_eq!(mail.logs(Some("agent-00019"), 0, 9).await.unwrap().len(), 1);
        let mut all = Vec::new();
        while let Some(page) = Some(
            mail.logs(None, all.last().copied().unwrap_or_default(), 4)
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
