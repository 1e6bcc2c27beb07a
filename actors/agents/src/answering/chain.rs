//! Which servers wait for an answer, one behind another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use callboard_message::CallId;

use super::lock;

/// For each call that was made to answer a question: who asked, and who asked before that, outermost first.
///
/// Such a call has an id of its own, which goes along to every agent that it reaches. So whoever asks in the course of it
/// is found here, through whatever agents and callers there are in between.
#[derive(Default)]
pub(super) struct Chains(Mutex<HashMap<CallId, Chain>>);

pub(super) type Chain = Arc<[Arc<str>]>;

impl Chains {
    /// Who waits behind the call.
    pub(super) fn of(&self, call: CallId) -> Chain {
        lock(&self.0).get(&call).cloned().unwrap_or_default()
    }

    /// A call that answers a question of `asker`'s, who has `chain` behind it. It is known while the link is kept.
    pub(super) fn link(self: &Arc<Self>, chain: &Chain, asker: &Arc<str>) -> Link {
        let call = CallId::fresh();
        let longer = chain.iter().chain([asker]).cloned().collect();
        lock(&self.0).insert(call, longer);
        Link { chains: self.clone(), call }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// A call that answers a question. Dropped, it is forgotten.
pub(super) struct Link {
    chains: Arc<Chains>,
    pub(super) call: CallId,
}

impl Drop for Link {
    fn drop(&mut self) {
        lock(&self.chains.0).remove(&self.call);
    }
}
