//! callboard with all defaults: bounded mailboxes, supervision, tracing, an empty policy chain.
//!
//! It takes part in four variants: plain (synchronous handlers, `AgentRef`); pinned, where no ask
//! is handled inline and every message goes through the queue, as with the other contestants; with
//! async handlers; and through typed handles.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use callboard_macros::Message;
use callboard_runtime::{
    Agent, AgentProfile, AgentRef, Context, Handler, Handlers, Recipient, SyncHandler, System,
};
use tokio::sync::Notify;

use super::{Contestant, MAILBOX_CAPACITY, SERVICE, SLOW_CAPACITY, Waits};

/// Time limit of a shutdown, outside the measured time.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);

/// Contestant: callboard in variant `U`.
pub struct Callboard<U>(System, PhantomData<U>);

/// Variant of use.
pub trait Usage: Sized + Send + Sync + 'static {
    /// Column heading.
    const NAME: &'static str;
    /// Handle of an adder.
    type Handle: Clone + Send + 'static;

    /// Registers the adder's handlers.
    fn adder(on: &mut Handlers<Adder<Self>>);
    /// Registers the relay's handler.
    fn relay(on: &mut Handlers<Relay<Self>>);
    /// Returns the adder's profile.
    fn profile() -> AgentProfile {
        AgentProfile::default().mailbox_capacity(MAILBOX_CAPACITY as u32)
    }
    /// Converts a handle to the variant's type.
    fn handle(agent: AgentRef) -> Self::Handle;
    /// Sends a tell.
    async fn tell(handle: &Self::Handle, message: Tell);
    /// Sends an ask and returns the sum.
    async fn ask(handle: &Self::Handle, message: Ask) -> u64;
}

/// Tell message: adds a number.
#[derive(Debug, Message)]
#[message(local)]
pub struct Tell(u64);

/// Ask message: adds a number and returns the sum.
#[derive(Debug, Message)]
#[message(local, reply = u64)]
pub struct Ask(u64);

/// Variant with synchronous handlers and `AgentRef`.
pub struct Plain;

impl Usage for Plain {
    const NAME: &'static str = "callboard";
    type Handle = AgentRef;

    fn adder(on: &mut Handlers<Adder<Self>>) {
        on.sync::<Tell>().sync::<Ask>();
    }

    fn relay(on: &mut Handlers<Relay<Self>>) {
        on.sync::<Tell>();
    }

    fn handle(agent: AgentRef) -> AgentRef {
        agent
    }

    async fn tell(handle: &AgentRef, message: Tell) {
        handle.tell(message).await.expect("the adder lives");
    }

    async fn ask(handle: &AgentRef, message: Ask) -> u64 {
        handle.ask(message).await.expect("the adder answers")
    }
}

/// Variant pinned to its arbiter: no ask is handled inline.
pub struct Pinned;

impl Usage for Pinned {
    const NAME: &'static str = "callboard pinned";
    type Handle = AgentRef;

    fn adder(on: &mut Handlers<Adder<Self>>) {
        on.sync::<Tell>().sync::<Ask>();
    }

    fn relay(on: &mut Handlers<Relay<Self>>) {
        on.sync::<Tell>();
    }

    fn profile() -> AgentProfile {
        Plain::profile().without_inline()
    }

    fn handle(agent: AgentRef) -> AgentRef {
        agent
    }

    async fn tell(handle: &AgentRef, message: Tell) {
        Plain::tell(handle, message).await;
    }

    async fn ask(handle: &AgentRef, message: Ask) -> u64 {
        Plain::ask(handle, message).await
    }
}

/// Variant with async handlers.
pub struct Async;

impl Usage for Async {
    const NAME: &'static str = "callboard async";
    type Handle = AgentRef;

    fn adder(on: &mut Handlers<Adder<Self>>) {
        on.exclusive::<Tell>().exclusive::<Ask>();
    }

    fn relay(on: &mut Handlers<Relay<Self>>) {
        on.exclusive::<Tell>();
    }

    fn handle(agent: AgentRef) -> AgentRef {
        agent
    }

    async fn tell(handle: &AgentRef, message: Tell) {
        Plain::tell(handle, message).await;
    }

    async fn ask(handle: &AgentRef, message: Ask) -> u64 {
        Plain::ask(handle, message).await
    }
}

/// Variant with typed handles.
pub struct Typed;

impl Usage for Typed {
    const NAME: &'static str = "callboard typed";
    type Handle = (Recipient<Tell>, Recipient<Ask>);

    fn adder(on: &mut Handlers<Adder<Self>>) {
        on.sync::<Tell>().sync::<Ask>();
    }

    fn relay(on: &mut Handlers<Relay<Self>>) {
        on.sync::<Tell>();
    }

    fn handle(agent: AgentRef) -> Self::Handle {
        let tell = agent.recipient().expect("the adder takes Tell");
        let ask = agent.recipient().expect("the adder takes Ask");
        (tell, ask)
    }

    async fn tell((handle, _): &Self::Handle, message: Tell) {
        handle.tell(message).await.expect("the adder lives");
    }

    async fn ask((_, handle): &Self::Handle, message: Ask) -> u64 {
        handle.ask(message).await.expect("the adder answers")
    }
}

/// Agent whose state is a sum.
pub struct Adder<U>(u64, PhantomData<U>);

impl<U: Usage> Agent for Adder<U> {
    fn handlers(on: &mut Handlers<Self>) {
        U::adder(on);
    }

    fn profile() -> AgentProfile {
        U::profile()
    }
}

impl<U: Usage> SyncHandler<Tell> for Adder<U> {
    fn handle(&mut self, message: Tell, _: &mut Context) {
        self.0 += message.0;
    }
}

impl<U: Usage> SyncHandler<Ask> for Adder<U> {
    fn handle(&mut self, message: Ask, _: &mut Context) -> u64 {
        self.0 += message.0;
        self.0
    }
}

impl<U: Usage> Handler<Tell> for Adder<U> {
    async fn handle(&mut self, message: Tell, _: &mut Context) {
        self.0 += message.0;
    }
}

impl<U: Usage> Handler<Ask> for Adder<U> {
    async fn handle(&mut self, message: Ask, _: &mut Context) -> u64 {
        self.0 += message.0;
        self.0
    }
}

/// Agent that passes a countdown on.
pub struct Relay<U> {
    next: Arc<OnceLock<AgentRef>>,
    done: Arc<Notify>,
    usage: PhantomData<U>,
}

impl<U: Usage> Relay<U> {
    fn hand_on(&self, Tell(left): Tell) {
        match (left, self.next.get()) {
            (1.., Some(next)) => Callboard::<U>::pass(next, left - 1),
            _ => self.done.notify_one(),
        }
    }
}

impl<U: Usage> Agent for Relay<U> {
    fn handlers(on: &mut Handlers<Self>) {
        U::relay(on);
    }
}

impl<U: Usage> SyncHandler<Tell> for Relay<U> {
    fn handle(&mut self, message: Tell, _: &mut Context) {
        self.hand_on(message);
    }
}

impl<U: Usage> Handler<Tell> for Relay<U> {
    async fn handle(&mut self, message: Tell, _: &mut Context) {
        self.hand_on(message);
    }
}

/// Agent that sleeps during each message.
pub struct Slow(Arc<Waits>);

/// Message with its time of sending.
#[derive(Debug, Message)]
#[message(local)]
pub struct Sent(Instant);

impl Agent for Slow {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Sent>();
    }

    fn profile() -> AgentProfile {
        AgentProfile::default().mailbox_capacity(SLOW_CAPACITY as u32)
    }
}

impl Handler<Sent> for Slow {
    async fn handle(&mut self, message: Sent, _: &mut Context) {
        self.0.note(message.0);
        tokio::time::sleep(SERVICE).await;
    }
}

impl<U: Usage> Contestant for Callboard<U> {
    const NAME: &'static str = U::NAME;
    const BOUNDED: bool = true;
    type Adder = U::Handle;
    type Relay = AgentRef;

    fn block_on<F: Future>(main: F) -> F::Output {
        ::actix::System::new().block_on(main)
    }

    async fn start() -> Self {
        Self(System::on_current_arbiter(), PhantomData)
    }

    async fn finish(self) {
        self.0.shutdown(SHUTDOWN_MAX).await;
    }

    async fn adder(&self) -> Self::Adder {
        U::handle(self.0.spawn(Adder::<U>(0, PhantomData)))
    }

    async fn tell(adder: &Self::Adder, number: u64) {
        U::tell(adder, Tell(number)).await;
    }

    async fn ask(adder: &Self::Adder, number: u64) -> u64 {
        U::ask(adder, Ask(number)).await
    }

    async fn ring(&self, size: usize, done: Arc<Notify>) -> Self::Relay {
        let relay = |next| {
            self.0.spawn(Relay::<U> {
                next,
                done: done.clone(),
                usage: PhantomData,
            })
        };
        let close = Arc::new(OnceLock::new());
        let mut next = close.clone();
        for _ in 1..size {
            next = Arc::new(OnceLock::from(relay(next)));
        }
        let first = relay(next);
        close.set(first.clone()).expect("a ring is closed once");
        first
    }

    fn pass(relay: &Self::Relay, left: u64) {
        relay
            .try_tell(Tell(left))
            .expect("a token is alone in its mailbox");
    }

    type Slow = AgentRef;

    async fn slow(&self, waits: Arc<Waits>) -> Self::Slow {
        self.0.spawn(Slow(waits))
    }

    fn offer(slow: &Self::Slow, sent: Instant) -> bool {
        slow.try_tell(Sent(sent)).is_ok()
    }
}
