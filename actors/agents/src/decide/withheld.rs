//! Parts of an answer that nobody gets before the whole is judged.

use std::sync::Arc;

use callboard_message::Artifact;
use callboard_runtime::{CallMeta, Caller, Cx};

/// The same surroundings, in which whoever called gets no artifacts: what they are parts of is judged before it is shown, and
/// it holds them all.
pub(crate) fn withheld(cx: &Cx) -> Cx {
    let Some(call) = cx.call() else { return cx.clone() };
    let Some(inner) = call.caller.clone() else { return cx.clone() };
    let caller: Arc<dyn Caller> = Arc::new(Withheld(inner));
    cx.within(Arc::new(CallMeta { caller: Some(caller), ..CallMeta::clone(call) }))
}

struct Withheld(Arc<dyn Caller>);

impl Caller for Withheld {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.0)
    }

    fn artifact(&self, _: Artifact) {}
}
