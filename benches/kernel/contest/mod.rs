//! The contestants, one file each, and the works that all of them do.
//!
//! A work is written once, over [`Contestant`]; a contestant says how *it* spawns, tells and asks.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub mod actix;
pub mod callboard;
pub mod clock;
pub mod kameo;
pub mod ractor;
pub mod tokio_mpsc;
pub mod works;

/// Capacity of every mailbox, in messages. Contestants without a bound are held to it by a barrier (see `works`).
pub const MAILBOX_CAPACITY: usize = 1024;

/// How one actor library does the works.
///
/// An *adder* is an agent whose state is a sum: told a number it adds it, asked with a number it adds it and answers
/// the sum. A *relay* hands a countdown to the next relay and notifies `done` at zero.
pub trait Contestant: Sized + 'static {
    /// Column heading.
    const NAME: &'static str;
    /// Whether `tell` waits while the mailbox holds [`MAILBOX_CAPACITY`] messages.
    const BOUNDED: bool;

    /// Handle of an adder.
    type Adder: Clone + Send + 'static;
    /// Handle of a relay.
    type Relay: Clone + Send + Sync + 'static;

    /// Runs `main` on the library's usual single-threaded runtime.
    fn block_on<F: Future>(main: F) -> F::Output;
    /// Called first on that runtime.
    async fn start() -> Self;
    /// Called last on that runtime, outside the measured time.
    async fn finish(self) {}

    /// Spawns an adder with sum 0.
    async fn adder(&self) -> Self::Adder;
    /// Adds without an answer; waits for room if the library can.
    async fn tell(adder: &Self::Adder, number: u64);
    /// Adds and waits for the sum.
    async fn ask(adder: &Self::Adder, number: u64) -> u64;

    /// Spawns `size` relays in a ring and returns one of them.
    async fn ring(&self, size: usize, done: Arc<Notify>) -> Self::Relay;
    /// Hands `left` more hops to a relay, never waiting.
    fn pass(relay: &Self::Relay, left: u64);

    /// Handle of a slow agent, see [`Waits`].
    type Slow: Clone + 'static;
    /// Spawns an agent that notes each message in `waits`, then sleeps [`SERVICE`], exclusively. Its mailbox holds
    /// [`SLOW_CAPACITY`] messages, if the library has a bound.
    async fn slow(&self, waits: Arc<Waits>) -> Self::Slow;
    /// Offers a message without waiting. False when it was refused.
    fn offer(slow: &Self::Slow, sent: Instant) -> bool;
}

/// The contestant on trial.
pub const OURS: &str = "callboard";
/// The same without handling in place: held to the same marks where asks are compared.
pub const OURS_PINNED: &str = "callboard pinned";

/// Capacity of a slow agent's mailbox, in messages.
pub const SLOW_CAPACITY: usize = 64;
/// What a slow agent needs for a message.
pub const SERVICE: Duration = Duration::from_millis(1);

/// How long messages waited in a mailbox before a slow agent took them.
#[derive(Default)]
pub struct Waits(Mutex<Vec<Duration>>);

impl Waits {
    /// Notes that a message sent at `sent` is being handled now.
    pub fn note(&self, sent: Instant) {
        self.0
            .lock()
            .expect("no holder panics")
            .push(sent.elapsed());
    }

    /// All waits so far.
    pub fn taken(&self) -> Vec<Duration> {
        self.0.lock().expect("no holder panics").clone()
    }
}

/// Applies a generic function to every contestant; the first is the measure for the others.
macro_rules! contestants {
    ($function:ident) => {
        [
            $function::<$crate::contest::tokio_mpsc::Bare>,
            $function::<$crate::contest::actix::Actix>,
            $function::<$crate::contest::ractor::Ractor>,
            $function::<$crate::contest::kameo::Kameo>,
            $function::<$crate::contest::callboard::Callboard<$crate::contest::callboard::Plain>>,
            $function::<$crate::contest::callboard::Callboard<$crate::contest::callboard::Pinned>>,
            $function::<$crate::contest::callboard::Callboard<$crate::contest::callboard::Async>>,
            $function::<$crate::contest::callboard::Callboard<$crate::contest::callboard::Typed>>,
        ]
    };
}
/// The usual single-threaded tokio runtime, drivers included.
pub fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("failed to build a tokio runtime")
}
