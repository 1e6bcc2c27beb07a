use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::mail::{EntryState, LetterKind};
use callboard_runtime::*;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::letter;
use crate::kit::{seed, stores};

const HOUR: Duration = Duration::from_secs(3_600);
/// Things that are done.
const ACTS: usize = 300;
/// Agents: more than have their copies made at once.
const AGENTS: usize = 24;
const WORDS: [&str; 4] = ["Pumps", "rota", "valves and pumps", "ä"];

fn agent(random: &mut StdRng) -> String {
    format!("a{:02}", random.random_range(0..AGENTS))
}

/// What somebody does, and can do to several stores.
#[derive(Debug)]
enum Act {
    /// At the same time, in this order: a store takes them in together.
    Post(Vec<NewLetter>),
    Spread(u64, u32, Vec<String>),
    Mark(Vec<(String, u64)>, Mark),
    Tried(String, u64),
    Tell(StoredEvent),
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
                        Mark::Delivered
                    } else {
                        Mark::Read
                    },
                )
            }
            17..19 => Self::Tried(agent(random), nth(random)),
            _ => Self::Tell(StoredEvent::Left(agent(random), "gone".into())),
        }
    }

    /// Does it, and tells what came of it.
    async fn on(&self, mail: &Arc<dyn Mail>) -> String {
        match self {
            Self::Post(new) => {
                let posted = join_all(new.iter().map(|new| mail.post(new.clone()))).await;
                let told = |posted: Result<Arc<Letter>, _>| {
                    let posted = posted.unwrap();
                    format!(
                        "{} {} {} {:?}",
                        posted.number, posted.is_new, posted.spread, posted.new
                    )
                };
                posted.into_iter().map(told).collect()
            }
            Self::Spread(letter, to, delivered) => {
                format!("{:?}", mail.spread(*letter, *to, delivered.clone()).await)
            }
            Self::Mark(marks, mark) => {
                let mut moved = mail.mark(marks.clone(), *mark).await.unwrap();
                moved.sort_unstable();
                format!("{moved:?}")
            }
            Self::Tried(recipient, letter) => format!("{:?}", mail.tried(recipient, *letter).await),
            Self::Tell(event) => format!("{:?}", mail.tell(event.clone()).await),
        }
    }
}

fn new(random: &mut StdRng, letters: u64) -> NewLetter {
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
    NewLetter {
        sender: agent(random),
        kind: if many {
            LetterKind::Broadcast
        } else {
            LetterKind::Direct
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

/// A filter of any kind.
fn filter(random: &mut StdRng) -> LetterFilter {
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
    // Of nobody, there is neither a way nor a state.
    let of_one = of.is_some();
    LetterFilter {
        sent: (of_one && random.random_ratio(1, 3)).then(|| random.random()),
        state: (of_one && random.random_ratio(1, 4))
            .then(|| *EntryState::ALL.choose(random).unwrap()),
        with: with.filter(|_| of_one),
        of,
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
        letter,
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

/// All that can be seen, as far as it is the same everywhere: no times, no ids.
async fn seen(mail: &Arc<dyn Mail>, random: &mut StdRng, letters: u64) -> Vec<String> {
    let mut seen = Vec::new();
    let agent = agent(random);
    for undelivered in [false, true] {
        let after = random
            .random_ratio(1, 2)
            .then(|| (random.random(), random.random_range(0..=letters)));
        let open = mail
            .open(&agent, after, undelivered, random.random_range(1..20))
            .await
            .unwrap();
        seen.extend(
            open.iter()
                .map(|(letter, copy)| format!("open {} {}", letter.number, copy_of(copy))),
        );
    }
    let waiting: BTreeMap<String, u64> = mail.waiting().await.unwrap().into_iter().collect();
    seen.push(format!("waiting {waiting:?}"));
    let unspread = mail.unspread(9).await.unwrap();
    seen.extend(
        unspread
            .iter()
            .map(|letter| format!("unspread {} {}", letter.number, letter.spread)),
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
            StoredEvent::Posted(letter) => {
                format!("{number} posted {} {:?}", letter.number, letter.new)
            }
            other => format!("{number} {other:?}"),
        });
    }
    seen.push(format!("last {}", mail.last_event().await.unwrap()));
    for of in [None, Some(agent.as_str())] {
        let rows = mail
            .logs(
                of,
                after * MAIL_LOG_ROWS_A_LETTER + 3,
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

/// Goal: mail goes the same way wherever it is kept. Method: random acts, possible and not, on mail in memory and in a store at
/// the same time; after each, all that is seen of it is compared. Fails with the seed in `CALLBOARD_SEED`.
#[tokio::test]
async fn memory_and_store_are_alike() {
    let seed = seed();
    stores(async |opened| {
        let memory: Arc<dyn Mail> = Arc::new(MemoryMail::new(Arc::new(MemoryAudit::default())));
        let store = opened.sql.store().mail;
        let mut random = StdRng::seed_from_u64(seed);
        let mut letters = 0;
        for n in 0..ACTS {
            let act = Act::some(&mut random, letters);
            let (ours, theirs) = (act.on(&memory).await, act.on(&store).await);
            assert_eq!(ours, theirs, "act {n}: {act:?}");
            letters = memory
                .history(LetterFilter::default(), 0, 1)
                .await
                .unwrap()
                .0
                .first()
                .map_or(0, |l| l.0.number);
            // Both are looked at in the same way.
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
