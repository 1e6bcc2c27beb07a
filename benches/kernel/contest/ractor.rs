//! ractor. Its mailbox has no bound, so `works` limits the queued messages by a window.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ::ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::Notify;

use super::{Contestant, SERVICE, Waits, current_thread};

/// Contestant: ractor.
pub struct Ractor;

/// Actor whose state is a sum.
pub struct Adder;

/// Messages of an adder.
pub enum Add {
    Tell(u64),
    Ask(u64, RpcReplyPort<u64>),
}

impl Actor for Adder {
    type Msg = Add;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Add>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _: ActorRef<Add>,
        message: Add,
        sum: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Add::Tell(number) => *sum += number,
            Add::Ask(number, reply) => {
                *sum += number;
                reply.send(*sum)?;
            }
        }
        Ok(())
    }
}

/// Actor that passes a countdown on.
pub struct Relay;

/// Next relay, and the notification at zero.
pub struct Links {
    next: Arc<OnceLock<ActorRef<Token>>>,
    done: Arc<Notify>,
}

/// Number of hops left.
pub struct Token(u64);

impl Actor for Relay {
    type Msg = Token;
    type State = Links;
    type Arguments = Links;

    async fn pre_start(
        &self,
        _: ActorRef<Token>,
        links: Links,
    ) -> Result<Links, ActorProcessingErr> {
        Ok(links)
    }

    async fn handle(
        &self,
        _: ActorRef<Token>,
        token: Token,
        links: &mut Links,
    ) -> Result<(), ActorProcessingErr> {
        match (token.0, links.next.get()) {
            (left @ 1.., Some(next)) => next.cast(Token(left - 1))?,
            _ => links.done.notify_one(),
        }
        Ok(())
    }
}

/// Actor that sleeps during each message.
pub struct Slow;

/// Message with its time of sending.
pub struct Sent(Instant);

impl Actor for Slow {
    type Msg = Sent;
    type State = Arc<Waits>;
    type Arguments = Arc<Waits>;

    async fn pre_start(
        &self,
        _: ActorRef<Sent>,
        waits: Arc<Waits>,
    ) -> Result<Arc<Waits>, ActorProcessingErr> {
        Ok(waits)
    }

    async fn handle(
        &self,
        _: ActorRef<Sent>,
        sent: Sent,
        waits: &mut Arc<Waits>,
    ) -> Result<(), ActorProcessingErr> {
        waits.note(sent.0);
        tokio::time::sleep(SERVICE).await;
        Ok(())
    }
}

impl Contestant for Ractor {
    const NAME: &'static str = "ractor";
    const BOUNDED: bool = false;
    type Adder = ActorRef<Add>;
    type Relay = ActorRef<Token>;

    fn block_on<F: Future>(main: F) -> F::Output {
        current_thread().block_on(main)
    }

    async fn start() -> Self {
        Self
    }

    async fn adder(&self) -> Self::Adder {
        Actor::spawn(None, Adder, ())
            .await
            .expect("an adder starts")
            .0
    }

    async fn tell(adder: &Self::Adder, number: u64) {
        adder.cast(Add::Tell(number)).expect("the adder lives");
    }

    async fn ask(adder: &Self::Adder, number: u64) -> u64 {
        adder
            .call(|reply| Add::Ask(number, reply), None)
            .await
            .expect("the adder lives")
            .expect("the adder answers")
    }

    async fn ring(&self, size: usize, done: Arc<Notify>) -> Self::Relay {
        let close = Arc::new(OnceLock::new());
        let mut next = close.clone();
        for _ in 1..size {
            next = Arc::new(OnceLock::from(relay(next, done.clone()).await));
        }
        let first = relay(next, done).await;
        close.set(first.clone()).expect("a ring is closed once");
        first
    }

    fn pass(relay: &Self::Relay, left: u64) {
        relay.cast(Token(left)).expect("the relay lives");
    }

    type Slow = ActorRef<Sent>;

    async fn slow(&self, waits: Arc<Waits>) -> Self::Slow {
        Actor::spawn(None, Slow, waits)
            .await
            .expect("a slow actor starts")
            .0
    }

    fn offer(slow: &Self::Slow, sent: Instant) -> bool {
        slow.cast(Sent(sent)).is_ok()
    }
}

async fn relay(next: Arc<OnceLock<ActorRef<Token>>>, done: Arc<Notify>) -> ActorRef<Token> {
    Actor::spawn(None, Relay, Links { next, done })
        .await
        .expect("a relay starts")
        .0
}
