//! Bare tokio: a task, a bounded mpsc channel, and a oneshot channel for a reply. The reference for
//! the others.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::{Notify, mpsc, oneshot};

use super::{Contestant, MAILBOX_CAPACITY, SERVICE, SLOW_CAPACITY, Waits, current_thread};

/// Contestant: bare tokio.
pub struct Bare;

/// Messages of an adder.
pub enum Add {
    Tell(u64),
    Ask(u64, oneshot::Sender<u64>),
}

impl Contestant for Bare {
    const NAME: &'static str = "tokio";
    const BOUNDED: bool = true;
    type Adder = mpsc::Sender<Add>;
    type Relay = mpsc::Sender<u64>;

    fn block_on<F: Future>(main: F) -> F::Output {
        current_thread().block_on(main)
    }

    async fn start() -> Self {
        Self
    }

    async fn adder(&self) -> Self::Adder {
        let (sender, mut receiver) = mpsc::channel(MAILBOX_CAPACITY);
        tokio::spawn(async move {
            let mut sum = 0;
            while let Some(message) = receiver.recv().await {
                match message {
                    Add::Tell(number) => sum += number,
                    Add::Ask(number, reply) => {
                        sum += number;
                        reply.send(sum).expect("the asker waits");
                    }
                }
            }
        });
        sender
    }

    async fn tell(adder: &Self::Adder, number: u64) {
        adder
            .send(Add::Tell(number))
            .await
            .expect("the adder lives");
    }

    async fn ask(adder: &Self::Adder, number: u64) -> u64 {
        let (reply, answer) = oneshot::channel();
        adder
            .send(Add::Ask(number, reply))
            .await
            .expect("the adder lives");
        answer.await.expect("the adder answers")
    }

    async fn ring(&self, size: usize, done: Arc<Notify>) -> Self::Relay {
        let close = Arc::new(OnceLock::new());
        let mut next = close.clone();
        for _ in 1..size {
            next = Arc::new(OnceLock::from(relay(next, done.clone())));
        }
        let first = relay(next, done);
        close.set(first.clone()).expect("a ring is closed once");
        first
    }

    fn pass(relay: &Self::Relay, left: u64) {
        relay
            .try_send(left)
            .expect("a token is alone in its mailbox");
    }

    type Slow = mpsc::Sender<Instant>;

    async fn slow(&self, waits: Arc<Waits>) -> Self::Slow {
        let (sender, mut receiver) = mpsc::channel(SLOW_CAPACITY);
        tokio::spawn(async move {
            while let Some(sent) = receiver.recv().await {
                waits.note(sent);
                tokio::time::sleep(SERVICE).await;
            }
        });
        sender
    }

    fn offer(slow: &Self::Slow, sent: Instant) -> bool {
        slow.try_send(sent).is_ok()
    }
}

fn relay(next: Arc<OnceLock<mpsc::Sender<u64>>>, done: Arc<Notify>) -> mpsc::Sender<u64> {
    let (sender, mut receiver) = mpsc::channel(MAILBOX_CAPACITY);
    tokio::spawn(async move {
        while let Some(left) = receiver.recv().await {
            match (left, next.get()) {
                (1.., Some(next)) => Bare::pass(next, left - 1),
                _ => done.notify_one(),
            }
        }
    });
    sender
}
