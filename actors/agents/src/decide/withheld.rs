//! Parts of an answer that nobody gets before the whole is judged.

use std::sync::Arc;

use callboard_message::Artifact;
use callboard_runtime::{CallMeta, Caller, Cx};

/// The same surroundings, in which whoever called gets no artifacts: what they are parts of is judged before it is shown, and
/// it holds them all.
pub(crate) fn withheld(cx: &Cx) -> Cx {
    with_caller(cx, |inner| Arc::new(Withheld(inner))).unwrap_or_else(|| cx.clone())
}

/// The same surroundings with another caller, who stands before the call's own; `None` where nobody called.
pub(crate) fn with_caller(cx: &Cx, before: impl FnOnce(Arc<dyn Caller>) -> Arc<dyn Caller>) -> Option<Cx> {
    let call = cx.call()?;
    let caller = before(call.caller.clone()?);
    Some(cx.within(Arc::new(CallMeta { caller: Some(caller), ..CallMeta::clone(call) })))
}

struct Withheld(Arc<dyn Caller>);

impl Caller for Withheld {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.0)
    }

    fn artifact(&self, _: Artifact) {}
}
