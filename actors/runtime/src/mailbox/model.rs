//! Model check of the mailbox under shuttle's schedules: the same source with shuttle's lock
//! instead of parking_lot's.

#[expect(
    clippy::duplicate_mod,
    dead_code,
    reason = "the same with another lock; the kernel uses more of it"
)]
#[path = "queue.rs"]
mod queue;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use queue::{Batch, HasBatch, Mailbox, PushResult, TurnOutcome, WaiterId};
use shuttle::future::block_on;
use shuttle::sync::{Arc, Mutex, mpsc};
use shuttle::thread;

mod sync {
    pub(crate) use shuttle::sync::MutexGuard;

    /// Mutex of the Shuttle scheduler with the interface of parking_lot's: a panicking holder
    /// doesn't poison it.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }
}

/// Number of thread schedules that Shuttle tries for each property.
const SCHEDULES: usize = 3_000;
const CAPACITY: u32 = 2;
const SENDERS: u32 = 3;
const MESSAGES: u32 = 3;

/// Test message: index of the sender, and sequence number.
type Message = (u32, u32);

#[derive(Default)]
struct Messages(VecDeque<Message>);

impl Batch for Messages {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Default)]
struct Ticket(Messages);

impl HasBatch<Messages> for Ticket {
    fn batch(&mut self) -> &mut Messages {
        &mut self.0
    }
}

/// Agent with a mailbox whose run tokens go to a channel, as they go to a scheduler.
struct Agent {
    mailbox: Mailbox<Messages, Ticket, ()>,
    host: Mutex<mpsc::Sender<Ticket>>,
}

impl Agent {
    fn new() -> (Arc<Self>, mpsc::Receiver<Ticket>) {
        let (host, tickets) = mpsc::channel();
        host.send(Ticket::default()).unwrap();
        (
            Arc::new(Self {
                mailbox: Mailbox::new(CAPACITY),
                host: Mutex::new(host),
            }),
            tickets,
        )
    }

    fn run(&self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            let host = self.host.lock().unwrap();
            // The host may have ended.
            let _ = host.send(ticket);
        }
    }

    /// Sends and waits for room. Returns false if the mailbox is closed.
    async fn tell(&self, message: Message) -> bool {
        let mut place: Option<WaiterId> = None;
        poll_fn(|cx| {
            let admitted = self.mailbox.admit_or_wait(
                || false,
                place,
                cx.waker(),
                |queue| queue.0.push_back(message),
            );
            match admitted {
                PushResult::Queued(ticket) => {
                    self.run(ticket);
                    Poll::Ready(true)
                }
                PushResult::Waiting(id) => {
                    place = Some(id);
                    Poll::Pending
                }
                PushResult::Closed => Poll::Ready(false),
                PushResult::Full => unreachable!("it waits"),
            }
        })
        .await
    }

    /// Sends and waits for room with a single poll, then gives up its place. Returns true if the
    /// message was queued.
    fn try_and_leave(&self, message: Message) -> bool {
        block_on(poll_fn(|cx| {
            let admitted = self.mailbox.admit_or_wait(
                || false,
                None,
                cx.waker(),
                |queue| queue.0.push_back(message),
            );
            Poll::Ready(match admitted {
                PushResult::Queued(ticket) => {
                    self.run(ticket);
                    true
                }
                PushResult::Waiting(id) => {
                    thread::yield_now();
                    self.mailbox.forget(id);
                    false
                }
                _ => false,
            })
        }))
    }

    fn senders(self: &Arc<Self>) -> Vec<thread::JoinHandle<u32>> {
        let one = |sender| {
            let agent = self.clone();
            thread::spawn(move || {
                let mut sent = 0;
                for nth in 0..MESSAGES {
                    sent += u32::from(block_on(agent.tell((sender, nth))));
                }
                sent
            })
        };
        (0..SENDERS).map(one).collect()
    }
}

/// Takes turns until `enough` messages have been started, and returns them. Now and then the agent
/// panics after a message, and its successor continues with the same token, as in a restart.
fn host(agent: &Agent, tickets: &mpsc::Receiver<Ticket>, enough: usize) -> Vec<Message> {
    let mut begun: Vec<Message> = Vec::new();
    while begun.len() < enough {
        let mut ticket = tickets.recv().unwrap();
        let mut unreleased = 0;
        for _ in 0..2 {
            agent
                .mailbox
                .take(std::mem::take(&mut unreleased), &mut ticket.0, true);
            assert!(agent.mailbox.depth_and_activity().0 <= CAPACITY);
            let Some(message) = ticket.0.0.pop_front() else {
                break;
            };
            begun.push(message);
            unreleased += 1;
        }
        let rest = if ticket.0.is_empty() {
            TurnOutcome::Idle
        } else {
            TurnOutcome::More
        };
        agent.run(agent.mailbox.settle(unreleased, rest, ticket));
    }
    begun
}

/// Goal: with three senders on a mailbox of two, no message is lost, duplicated or reordered, and
/// no sender stays asleep.
#[test]
fn nothing_is_lost() {
    shuttle::check_random(
        || {
            let (agent, tickets) = Agent::new();
            let senders = agent.senders();
            let begun = host(&agent, &tickets, (SENDERS * MESSAGES) as usize);
            for sender in 0..SENDERS {
                let nths: Vec<_> = begun
                    .iter()
                    .filter(|m| m.0 == sender)
                    .map(|m| m.1)
                    .collect();
                assert_eq!(nths, (0..MESSAGES).collect::<Vec<_>>());
            }
            senders
                .into_iter()
                .for_each(|sender| assert_eq!(sender.join().unwrap(), MESSAGES));
        },
        SCHEDULES,
    );
}

/// Goal: a sender that gives up its place, waiting or reserved, doesn't block other senders.
#[test]
fn giving_up_passes_the_promise_on() {
    shuttle::check_random(
        || {
            let (agent, tickets) = Agent::new();
            let leaver = {
                let agent = agent.clone();
                thread::spawn(move || {
                    (0..MESSAGES)
                        .filter(|nth| agent.try_and_leave((SENDERS, *nth)))
                        .count()
                })
            };
            let senders = agent.senders();
            let told = (SENDERS * MESSAGES) as usize;
            let begun = host(&agent, &tickets, told);
            let left = leaver.join().unwrap();
            let rest = host(&agent, &tickets, left + told - begun.len());
            let all = begun.len() + rest.len();
            senders
                .into_iter()
                .for_each(|sender| assert_eq!(sender.join().unwrap(), MESSAGES));
            assert_eq!(all, told + left);
        },
        SCHEDULES,
    );
}

/// Goal: when the agent ends, each message was started, is left over, or returned to its sender,
/// and no sender waits for ever.
#[test]
fn closing_accounts_for_all() {
    shuttle::check_random(
        || {
            let (agent, tickets) = Agent::new();
            let senders = agent.senders();
            let begun = host(&agent, &tickets, 2).len();
            let mut left = Messages::default();
            // Only the holder of the token may end an agent.
            let ticket = tickets.recv().unwrap();
            agent.mailbox.close(&mut left);
            let sent: u32 = senders
                .into_iter()
                .map(|sender| sender.join().unwrap())
                .sum();
            assert_eq!(sent as usize, begun + left.0.len() + ticket.0.0.len());
        },
        SCHEDULES,
    );
}
