//! The one place that sees every message that crosses a boundary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use callboard_message::{CallId, Failure, Principal};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::sync::Mutex;

/// Which way a message crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a peer to one of our agents.
    Inbound,
    /// From one of our agents to a peer.
    Outbound,
}

/// A message at a boundary.
#[derive(Clone, Copy)]
pub struct Crossing<'a> {
    /// Which way.
    pub direction: Direction,
    /// Who is behind it.
    pub principal: &'a Principal,
    /// The call that it belongs to.
    pub call: CallId,
    /// The agent that it is for.
    pub agent: &'a str,
    /// Its name.
    pub message: &'a str,
    /// What it says: a JSON object.
    pub payload: &'a RawValue,
}

/// One link of the chain: it authorises, limits, guards or records.
pub trait Policy: Send + Sync {
    /// Lets the message pass, or says why not. An error is an answer to the sender: it holds no secret.
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> BoxFuture<'a, Result<(), Failure>>;
}

/// The policies of a system, in order. Empty, it costs one load.
#[derive(Default)]
pub struct PolicyChain {
    any: AtomicBool,
    links: Mutex<Arc<Vec<Arc<dyn Policy>>>>,
}

impl PolicyChain {
    /// Adds `policy` at the end.
    pub fn push(&self, policy: impl Policy + 'static) {
        let mut links = self.links.lock();
        let mut longer = Vec::clone(&links);
        longer.push(Arc::new(policy));
        *links = Arc::new(longer);
        self.any.store(true, Release);
    }

    /// Asks each policy in turn; the first that refuses decides.
    ///
    /// # Errors
    /// Its refusal.
    pub async fn judge(&self, crossing: Crossing<'_>) -> Result<(), Failure> {
        if !self.any.load(Acquire) {
            return Ok(());
        }
        let links = self.links.lock().clone();
        for link in links.iter() {
            link.judge(crossing).await?;
        }
        Ok(())
    }
}
