//! kameo with a bounded mailbox.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ::kameo::actor::{Actor, ActorRef, Spawn};
use ::kameo::error::Infallible;
use ::kameo::mailbox;
use ::kameo::message::{Context, Message};
use tokio::sync::Notify;

use super::{Contestant, MAILBOX_CAPACITY, SERVICE, SLOW_CAPACITY, Waits, current_thread};

/// Contestant: kameo.
pub struct Kameo;

/// Actor whose state is a sum.
pub struct Adder(u64);

/// Tell message: adds a number.
pub struct Tell(u64);

/// Ask message: adds a number and returns the sum.
pub struct Ask(u64);

impl Actor for Adder {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(adder: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(adder)
    }
}

impl Message<Tell> for Adder {
    type Reply = ();

    async fn handle(&mut self, message: Tell, _: &mut Context<Self, ()>) {
        self.0 += message.0;
    }
}

impl Message<Ask> for Adder {
    type Reply = u64;

    async fn handle(&mut self, message: Ask, _: &mut Context<Self, u64>) -> u64 {
        self.0 += message.0;
        self.0
    }
}

/// Actor that passes a countdown on.
pub struct Relay {
    next: Arc<OnceLock<ActorRef<Relay>>>,
    done: Arc<Notify>,
}

impl Actor for Relay {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(relay: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(relay)
    }
}

impl Message<Tell> for Relay {
    type Reply = ();

    async fn handle(&mut self, Tell(left): Tell, _: &mut Context<Self, ()>) {
        match (left, self.next.get()) {
            (1.., Some(next)) => Kameo::pass(next, left - 1),
            _ => self.done.notify_one(),
        }
    }
}

/// Actor that sleeps during each message.
pub struct Slow(Arc<Waits>);

/// Message with its time of sending.
pub struct Sent(Instant);

impl Actor for Slow {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(slow: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(slow)
    }
}

impl Message<Sent> for Slow {
    type Reply = ();

    async fn handle(&mut self, message: Sent, _: &mut Context<Self, ()>) {
        self.0.note(message.0);
        tokio::time::sleep(SERVICE).await;
    }
}

impl Contestant for Kameo {
    const NAME: &'static str = "kameo";
    const BOUNDED: bool = true;
    type Adder = ActorRef<Adder>;
    type Relay = ActorRef<Relay>;

    fn block_on<F: Future>(main: F) -> F::Output {
        current_thread().block_on(main)
    }

    async fn start() -> Self {
        Self
    }

    async fn adder(&self) -> Self::Adder {
        Adder::spawn_with_mailbox(Adder(0), mailbox::bounded(MAILBOX_CAPACITY))
    }

    async fn tell(adder: &Self::Adder, number: u64) {
        adder
            .tell(Tell(number))
            .send()
            .await
            .expect("the adder lives");
    }

    async fn ask(adder: &Self::Adder, number: u64) -> u64 {
        adder
            .ask(Ask(number))
            .send()
            .await
            .expect("the adder answers")
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
            .tell(Tell(left))
            .try_send()
            .expect("a token is alone in its mailbox");
    }

    type Slow = ActorRef<Slow>;

    async fn slow(&self, waits: Arc<Waits>) -> Self::Slow {
        Slow::spawn_with_mailbox(Slow(waits), mailbox::bounded(SLOW_CAPACITY))
    }

    fn offer(slow: &Self::Slow, sent: Instant) -> bool {
        slow.tell(Sent(sent)).try_send().is_ok()
    }
}

fn relay(next: Arc<OnceLock<ActorRef<Relay>>>, done: Arc<Notify>) -> ActorRef<Relay> {
    Relay::spawn_with_mailbox(Relay { next, done }, mailbox::bounded(MAILBOX_CAPACITY))
}
