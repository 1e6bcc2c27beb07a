//! The contestants, one file each, and the workloads that all of them run.
//!
//! A workload is written once, over [`Contestant`], which defines how a library spawns, tells and
//! asks.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub mod actix;
pub mod callboard;
pub mod clock;
#[cfg(feature = "contest")]
pub mod kameo;
#[cfg(feature = "contest")]
pub mod ractor;
pub mod tokio_mpsc;
pub mod works;

/// Capacity of every mailbox, in messages. For contestants without a bound, `works` enforces it by
/// a window.
pub const MAILBOX_CAPACITY: usize = 1024;

/// Actor library under test.
///
/// An *adder* is an agent whose state is a sum: a tell adds a number, an ask adds a number and
/// returns the sum. A *relay* passes a countdown to the next relay and notifies `done` at zero.
pub trait Contestant: Sized + 'static {
    /// Column heading.
    const NAME: &'static str;
    /// True if `tell` waits while the mailbox holds [`MAILBOX_CAPACITY`] messages.
    const BOUNDED: bool;

    /// Handle of an adder.
    type Adder: Clone + Send + 'static;
    /// Handle of a relay.
    type Relay: Clone + Send + Sync + 'static;

    /// Runs `main` on the library's usual single-threaded runtime.
    fn block_on<F: Future>(main: F) -> F::Output;
    /// Sets up the library. Called first on that runtime.
    async fn start() -> Self;
    /// Tears down the library. Called last on that runtime, outside the measured time.
    async fn finish(self) {}

    /// Spawns an adder with sum 0.
    async fn adder(&self) -> Self::Adder;
    /// Adds without a reply; waits for room if the library can.
    async fn tell(adder: &Self::Adder, number: u64);
    /// Adds and waits for the sum.
    async fn ask(adder: &Self::Adder, number: u64) -> u64;

    /// Spawns `size` relays in a ring and returns one of them.
    async fn ring(&self, size: usize, done: Arc<Notify>) -> Self::Relay;
    /// Sends a relay a countdown of `left` hops, without waiting.
    fn pass(relay: &Self::Relay, left: u64);

    /// Handle of a slow agent, see [`Waits`].
    type Slow: Clone + 'static;
    /// Spawns an agent that records each message in `waits`, then sleeps for [`SERVICE`], one
    /// message at a time. Its mailbox holds [`SLOW_CAPACITY`] messages, if the library has a bound.
    async fn slow(&self, waits: Arc<Waits>) -> Self::Slow;
    /// Offers a message without waiting. Returns false if it was rejected.
    fn offer(slow: &Self::Slow, sent: Instant) -> bool;
}

/// Name of our contestant.
pub const OURS: &str = "callboard";
/// Name of our contestant without inline handling; has the same targets where asks are compared.
pub const OURS_PINNED: &str = "callboard pinned";

/// Mailbox capacity of a slow agent, in messages.
pub const SLOW_CAPACITY: usize = 64;
/// Time that a slow agent takes for a message.
pub const SERVICE: Duration = Duration::from_millis(1);

/// Times that messages waited in the mailbox of a slow agent.
#[derive(Default)]
pub struct Waits(Mutex<Vec<Duration>>);

impl Waits {
    /// Records that a message sent at `sent` is being handled now.
    pub fn note(&self, sent: Instant) {
        self.0
            .lock()
            .expect("no holder panics")
            .push(sent.elapsed());
    }

    /// Returns all waiting times so far.
    pub fn taken(&self) -> Vec<Duration> {
        self.0.lock().expect("no holder panics").clone()
    }
}

/// Applies a generic function to every contestant; the first is the reference for the others.
macro_rules! contestants {
    ($function:ident) => {
        [
            $function::<$crate::contest::tokio_mpsc::Bare>,
            $function::<$crate::contest::actix::Actix>,
            #[cfg(feature = "contest")]
            $function::<$crate::contest::ractor::Ractor>,
            #[cfg(feature = "contest")]
            $function::<$crate::contest::kameo::Kameo>,
            $function::<$crate::contest::callboard::Callboard<$crate::contest::callboard::Plain>>,
            $function::<$crate::contest::callboard::Callboard<$crate::contest::callboard::Pinned>>,
            $function::<$crate::contest::callboard::Callboard<$crate::contest::callboard::Async>>,
            $function::<$crate::contest::callboard::Callboard<$crate::contest::callboard::Typed>>,
        ]
    };
}
/// Returns a single-threaded tokio runtime with all drivers.
pub fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("failed to build a tokio runtime")
}
