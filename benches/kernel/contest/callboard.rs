//! callboard, with everything on that a user gets by default: bound, supervision, tracing, an empty policy chain.
//!
//! Four ways of using it take part: as it comes (synchronous handlers, `AgentRef`); pinned, so that no ask is handled
//! in place and every message goes through the queue, as with the others; with async handlers; and through typed
//! handles.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use callboard_macros::Message;
use callboard_runtime::{
    Agent, AgentRef, Cx, Handler, Handlers, Profile, Recipient, SyncHandler, System,
};
use tokio::sync::Notify;

use super::{Contestant, MAILBOX_CAPACITY, SERVICE, SLOW_CAPACITY, Waits};

/// How long a shutdown may take, outside the measured time.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);

/// callboard, used as `U` says.
pub struct Callboard<U>(System, PhantomData<U>);

/// A way of using it.
pub trait Usage: Sized + Send + Sync + 'static {
    /// Column heading.
    const NAME: &'static str;
    /// Handle of an adder.
    type Handle: Clone + Send + 'static;

    /// Registers the adder's handlers.
    fn adder(on: &mut Handlers<Adder<Self>>);
    /// Registers the relay's handler.
    fn relay(on: &mut Handlers<Relay<Self>>);
    /// The adder's profile.
    fn profile() -> Profile {
        Profile::default().mailbox_capacity(MAILBOX_CAPACITY as u32)
    }
    /// Wraps the handle.
    fn handle(agent: AgentRef) -> Self::Handle;
    /// Tells.
    async fn tell(handle: &Self::Handle, message: Tell);
    /// Asks.
    async fn ask(handle: &Self::Handle, message: Ask) -> u64;
}

/// Told.
#[derive(Debug, Message)]
#[message(local)]
pub struct Tell(u64);

/// Asked.
#[derive(Debug, Message)]
#[message(local, reply = u64)]
pub struct Ask(u64);

/// As it comes.
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

/// Pinned to its arbiter: nothing is handled in place.
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

    fn profile() -> Profile {
        Plain::profile().pinned()
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

/// With async handlers.
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

/// Through typed handles.
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

/// An agent whose state is a sum.
pub struct Adder<U>(u64, PhantomData<U>);

impl<U: Usage> Agent for Adder<U> {
    fn handlers(on: &mut Handlers<Self>) {
        U::adder(on);
    }

    fn profile() -> Profile {
        U::profile()
    }
}

impl<U: Usage> SyncHandler<Tell> for Adder<U> {
    fn handle(&mut self, message: Tell, _: &mut Cx) {
        self.0 += message.0;
    }
}

impl<U: Usage> SyncHandler<Ask> for Adder<U> {
    fn handle(&mut self, message: Ask, _: &mut Cx) -> u64 {
        self.0 += message.0;
        self.0
    }
}

impl<U: Usage> Handler<Tell> for Adder<U> {
    async fn handle(&mut self, message: Tell, _: &mut Cx) {
        self.0 += message.0;
    }
}

impl<U: Usage> Handler<Ask> for Adder<U> {
    async fn handle(&mut self, message: Ask, _: &mut Cx) -> u64 {
        self.0 += message.0;
        self.0
    }
}

/// Hands a countdown on.
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
    fn handle(&mut self, message: Tell, _: &mut Cx) {
        self.hand_on(message);
    }
}

impl<U: Usage> Handler<Tell> for Relay<U> {
    async fn handle(&mut self, message: Tell, _: &mut Cx) {
        self.hand_on(message);
    }
}

/// Sleeps over each message.
pub struct Slow(Arc<Waits>);

/// When a message was sent.
#[derive(Debug, Message)]
#[message(local)]
pub struct Sent(Instant);

impl Agent for Slow {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Sent>();
    }

    fn profile() -> Profile {
        Profile::default().mailbox_capacity(SLOW_CAPACITY as u32)
    }
}

impl Handler<Sent> for Slow {
    async fn handle(&mut self, message: Sent, _: &mut Cx) {
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
        Self(System::here(), PhantomData)
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
