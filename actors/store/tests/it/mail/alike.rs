use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::mail::{DeliveryState, MailMessageKind};
use callboard_runtime::*;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::letter;
use crate::kit::{seed, stores};

const HOUR: Duration = Duration::from_secs(3_600);
/// Number of random operations.
const ACTS: usize = 300;
/// Number of agents: more than get their copies at once.
const AGENTS: usize = 24;
const WORDS: [&str; 4] = ["Pumps", "rota", "valves and pumps", "ä"];

fn agent(random: &mut StdRng) -> String {
    format!("a{:02}", random.random_range(0..AGENTS))
}

/// Random operation, applicable to several stores.
#[derive(Debug)]
enum Act {
    /// Posts at the same time, in this order: a store merges them.
    Post(Vec<NewMailMessage>),
    Spread(u64, u32, Vec<String>),
    Mark(Vec<(String, u64)>, ReceiptUpdate),
    Tried(String, u64),
    Tell(StoredMailEvent),
}

impl Act {
    fn some(random: &mut StdRng, letters: u64) -> Self {
        let nth = |random: &mut StdRng| random.random_range(0..=letters + 1);
        match random.random_range(0..20) {
            0..7 => Self::Post(
                (0..random.random_range(1..5))
                    .map(|_| new(random, letters))
                    .collect(),
            ),
            7..10 => {
                let delivered = (0..random.random_range(0..4))
                    .map(|_| agent(random))
                    .collect();
                Self::Spread(
                    nth(random),
                    random.random_range(0..AGENTS as u32 + 4),
                    delivered,
                )
            }
            10..17 => {
                let marks = (0..random.random_range(1..6))
                    .map(|_| (agent(random), nth(random)))
                    .collect();
                Self::Mark(
                    marks,
                    if random.random() {
                        ReceiptUpdate::Delivered
                    } else {
                        ReceiptUpdate::Read
                    },
                )
            }
            17..19 => Self::Tried(agent(random), nth(random)),
            _ => Self::Tell(StoredMailEvent::Left(agent(random), "gone".into())),
        }
    }

    /// Runs the operation and returns its result as text.
    async fn on(&self, mail: &Arc<dyn MailStore>) -> String {
        match self {
            Self::Post(new) => {
                let posted = join_all(new.iter().map(|new| mail.post(new.clone()))).await;
                let told = |posted: Result<Arc<MailMessage>, _>| {
                    let posted = posted.unwrap();
                    format!(
                        "{} {} {} {:?}",
                        posted.number, posted.is_new, posted.copies_made, posted.new
                    )
                };
                posted.into_iter().map(told).collect()
            }
            Self::Spread(letter, to, delivered) => {
                format!("{:?}", mail.fan_out(*letter, *to, delivered.clone()).await)
            }
            Self::Mark(marks, mark) => {
                let mut moved = mail.update_receipts(marks.clone(), *mark).await.unwrap();
                moved.sort_unstable();
                format!("{moved:?}")
            }
            Self::Tried(recipient, letter) => {
                format!("{:?}", mail.count_attempt(recipient, *letter).await)
            }
            Self::Tell(event) => format!("{:?}", mail.append_event(event.clone()).await),
        }
    }
}

fn new(random: &mut StdRng, letters: u64) -> NewMailMessage {
    let many = random.random_ratio(1, 3);
    let count = if many {
        random.random_range(10..AGENTS)
    } else {
        random.random_range(1..4)
    };
    let to: BTreeMap<String, ()> = (0..count).map(|_| (agent(random), ())).collect();
    let expires = if random.random_ratio(1, 8) {
        SystemTime::UNIX_EPOCH
    } else {
        SystemTime::now() + HOUR
    };
    NewMailMessage {
        sender: agent(random),
        kind: if many {
            MailMessageKind::Broadcast
        } else {
            MailMessageKind::Direct
        },
        recipients: to.into_keys().collect(),
        topic: random.random_ratio(1, 3).then(|| "rota".to_owned()),
        thread: random
            .random_ratio(1, 3)
            .then(|| format!("t{}", random.random_range(0..3))),
        urgent: random.random_ratio(1, 3),
        key: random
            .random_ratio(1, 3)
            .then(|| format!("k{}", random.random_range(0..=letters / 16))),
        expires,
        ..letter(&[], WORDS.choose(random).unwrap())
    }
}

/// Returns a random filter.
fn filter(random: &mut StdRng) -> MailMessageFilter {
    let mut some = |n, value: String| random.random_ratio(1, n).then_some(value);
    let (of, with, sender) = (
        some(2, "a03".into()),
        some(4, "a05".into()),
        some(4, "a07".into()),
    );
    let (topic, thread, text) = (
        some(4, "rota".into()),
        some(4, "t1".into()),
        some(3, "pumps".into()),
    );
    // Direction and state need a member.
    let of_one = of.is_some();
    MailMessageFilter {
        sent: (of_one && random.random_ratio(1, 3)).then(|| random.random()),
        state: (of_one && random.random_ratio(1, 4))
            .then(|| *DeliveryState::ALL.choose(random).unwrap()),
        with: with.filter(|_| of_one),
        member: of,
        sender,
        topic,
        thread,
        text,
        since: None,
        until: None,
    }
}

fn copy_of(copy: &MailCopy) -> String {
    let MailCopy {
        recipient,
        message_number: letter,
        state,
        delivered,
        read,
        attempts,
        ..
    } = copy;
    format!(
        "{recipient} {letter} {state:?} {} {} {attempts}",
        delivered.is_some(),
        read.is_some()
    )
}

/// Returns everything visible, without times and ids, which differ between stores.
async fn seen(mail: &Arc<dyn MailStore>, random: &mut StdRng, letters: u64) -> Vec<String> {
    let mut seen = Vec::new();
    let agent = agent(random);
    for undelivered in [false, true] {
        let after = random
            .random_ratio(1, 2)
            .then(|| (random.random(), random.random_range(0..=letters)));
        let open = mail
            .list_open(&agent, after, undelivered, random.random_range(1..20))
            .await
            .unwrap();
        seen.extend(
            open.iter()
                .map(|(letter, copy)| format!("open {} {}", letter.number, copy_of(copy))),
        );
    }
    let waiting: BTreeMap<String, u64> = mail.unread_counts().await.unwrap().into_iter().collect();
    seen.push(format!("waiting {waiting:?}"));
    let unspread = mail.pending_fan_out(9).await.unwrap();
    seen.extend(
        unspread
            .iter()
            .map(|letter| format!("unspread {} {}", letter.number, letter.copies_made)),
    );
    let nth = random.random_range(0..=letters + 1);
    let receipts = mail
        .receipts(nth, random.random_ratio(1, 2).then_some("a11"), 9)
        .await
        .unwrap();
    seen.extend(receipts.iter().map(copy_of));
    let filter = filter(random);
    let (mut before, most) = (random.random_range(0..=letters), random.random_range(1..30));
    loop {
        let (page, next) = mail.history(filter.clone(), before, most).await.unwrap();
        seen.extend(
            page.iter().map(|(letter, copy)| {
                format!("{} {:?}", letter.number, copy.as_ref().map(copy_of))
            }),
        );
        match next {
            Some(next) => before = next,
            None => break,
        }
    }
    let after = random.random_range(0..=letters);
    for (number, event) in mail.events(after, 20).await.unwrap() {
        seen.push(match event {
            StoredMailEvent::Posted(letter) => {
                format!("{number} posted {} {:?}", letter.number, letter.new)
            }
            other => format!("{number} {other:?}"),
        });
    }
    seen.push(format!("last {}", mail.last_event().await.unwrap()));
    for of in [None, Some(agent.as_str())] {
        let rows = mail
            .log_rows(
                of,
                after * MAIL_LOG_ROWS_PER_MESSAGE + 3,
                random.random_range(1..30),
            )
            .await
            .unwrap();
        seen.extend(
            rows.into_iter()
                .map(|row| format!("{} {} {}", row.number, row.agent_id, row.message)),
        );
    }
    seen
}

/// Goal: mail behaves the same in every store. Method: the same random operations, valid and
/// invalid, on mail in memory and in a store; compare everything visible after each. A failure
/// prints the seed for `CALLBOARD_SEED`.
#[tokio::test]
async fn memory_and_store_are_alike() {
    let seed = seed();
    stores(async |opened| {
        let memory: Arc<dyn MailStore> =
            Arc::new(MemoryMailStore::new(Arc::new(MemoryAuditStore::default())));
        let store = opened.sql.store().mail;
        let mut random = StdRng::seed_from_u64(seed);
        let mut letters = 0;
        for n in 0..ACTS {
            let act = Act::some(&mut random, letters);
            let (ours, theirs) = (act.on(&memory).await, act.on(&store).await);
            assert_eq!(ours, theirs, "act {n}: {act:?}");
            letters = memory
                .history(MailMessageFilter::default(), 0, 1)
                .await
                .unwrap()
                .0
                .first()
                .map_or(0, |l| l.0.number);
            // Both are read with the same random choices.
            let look = random.random();
            let ours = seen(&memory, &mut StdRng::seed_from_u64(look), letters).await;
            assert_eq!(
                ours,
                seen(&store, &mut StdRng::seed_from_u64(look), letters).await,
                "act {n}: {act:?}"
            );
        }
        assert!(letters > 20, "little has happened");
    })
    .await;
}
