//! Raw actix: `do_send` and `send`. Its mailbox bound doesn't apply to `do_send`, so `works` limits
//! the queued messages by a window.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ::actix::prelude::*;
use tokio::sync::Notify;

use super::{Contestant, MAILBOX_CAPACITY, SERVICE, SLOW_CAPACITY, Waits};

/// Contestant: raw actix.
pub struct Actix;

/// Actor whose state is a sum.
pub struct Adder(u64);

/// Tell message: adds a number.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Tell(u64);

/// Ask message: adds a number and returns the sum.
#[derive(Message)]
#[rtype(result = "u64")]
pub struct Ask(u64);

impl Actor for Adder {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
    }
}

impl Handler<Tell> for Adder {
    type Result = ();

    fn handle(&mut self, message: Tell, _: &mut Self::Context) {
        self.0 += message.0;
    }
}

impl Handler<Ask> for Adder {
    type Result = u64;

    fn handle(&mut self, message: Ask, _: &mut Self::Context) -> u64 {
        self.0 += message.0;
        self.0
    }
}

/// Actor that passes a countdown on.
pub struct Relay {
    next: Arc<OnceLock<Addr<Relay>>>,
    done: Arc<Notify>,
}

impl Actor for Relay {
    type Context = Context<Self>;
}

impl Handler<Tell> for Relay {
    type Result = ();

    fn handle(&mut self, Tell(left): Tell, _: &mut Self::Context) {
        match (left, self.next.get()) {
            (1.., Some(next)) => Actix::pass(next, left - 1),
            _ => self.done.notify_one(),
        }
    }
}

/// Actor that sleeps during each message.
pub struct Slow(Arc<Waits>);

/// Message with its time of sending.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Sent(Instant);

impl Actor for Slow {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(SLOW_CAPACITY);
    }
}

impl Handler<Sent> for Slow {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, message: Sent, _: &mut Self::Context) -> Self::Result {
        self.0.note(message.0);
        AtomicResponse::new(Box::pin(tokio::time::sleep(SERVICE).into_actor(self)))
    }
}

impl Contestant for Actix {
    const NAME: &'static str = "actix";
    const BOUNDED: bool = false;
    type Adder = Addr<Adder>;
    type Relay = Addr<Relay>;

    fn block_on<F: Future>(main: F) -> F::Output {
        System::new().block_on(main)
    }

    async fn start() -> Self {
        Self
    }

    async fn adder(&self) -> Self::Adder {
        Adder(0).start()
    }

    async fn tell(adder: &Self::Adder, number: u64) {
        do_send(adder, number);
    }

    async fn ask(adder: &Self::Adder, number: u64) -> u64 {
        adder.send(Ask(number)).await.expect("the adder answers")
    }

    async fn ring(&self, size: usize, done: Arc<Notify>) -> Self::Relay {
        let close = Arc::new(OnceLock::new());
        let mut next = close.clone();
        for _ in 1..size {
            next = Arc::new(OnceLock::from(
                Relay {
                    next,
                    done: done.clone(),
                }
                .start(),
            ));
        }
        let first = Relay { next, done }.start();
        close.set(first.clone()).expect("a ring is closed once");
        first
    }

    fn pass(relay: &Self::Relay, left: u64) {
        do_send(relay, left);
    }

    type Slow = Addr<Slow>;

    async fn slow(&self, waits: Arc<Waits>) -> Self::Slow {
        Slow(waits).start()
    }

    fn offer(slow: &Self::Slow, sent: Instant) -> bool {
        slow.try_send(Sent(sent)).is_ok()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is what actix offers, so it is what is measured"
)]
fn do_send<A: Actor<Context = Context<A>> + Handler<Tell>>(address: &Addr<A>, number: u64) {
    address.do_send(Tell(number));
}
