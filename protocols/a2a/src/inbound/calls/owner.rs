use std::sync::Arc;

use callboard_message::{Principal, PrincipalKind, TraceContext};
use callboard_runtime::{CallMeta, TaskOwner};

use crate::Dialect;

/// Who sends a request, and how.
#[derive(Clone)]
pub(crate) struct Who {
    /// Whose the task is that it begins, and which it finds.
    pub(crate) principal: Arc<Principal>,
    /// What it speaks.
    pub(crate) dialect: Dialect,
    /// The request's place in a trace.
    pub(crate) trace: TraceContext,
    /// How many agents it has passed through.
    pub(crate) hops: u16,
}

impl Who {
    /// Somebody at the beginning of a trace.
    pub(crate) fn new(principal: Arc<Principal>, dialect: Dialect) -> Self {
        Self { principal, dialect, trace: TraceContext::root(), hops: 0 }
    }

    pub(crate) fn owner(&self) -> TaskOwner {
        TaskOwner::of(&self.principal, None)
    }

    /// Whether it showed no credential.
    pub(super) fn is_anonymous(&self) -> bool {
        self.principal.kind == PrincipalKind::Anonymous
    }

    /// A call of its own: the request's ends with its answer.
    pub(crate) fn call(&self) -> CallMeta {
        CallMeta { trace: self.trace, hops: self.hops, ..CallMeta::new(self.principal.clone()) }
    }
}
