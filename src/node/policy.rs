//! What holds for every message that crosses a boundary, as the topology of the moment wants it.

use std::sync::{Arc, PoisonError, RwLock};

use callboard_message::Failure;
use callboard_runtime::{Crossing, Policy, RateLimit, System};
use futures::future::BoxFuture;

use crate::config::PolicyDeclaration;

type Links = Arc<RwLock<Arc<Vec<Box<dyn Policy>>>>>;

/// The policies of a topology, in a system's chain.
pub(super) struct Policies {
    system: System,
    links: Links,
    /// In the chain since there were any: an empty chain costs nothing.
    is_pushed: std::cell::Cell<bool>,
}

impl Policies {
    pub(super) fn of(system: &System) -> Self {
        Self { system: system.clone(), links: Links::default(), is_pushed: false.into() }
    }
}

/// Puts what a topology wants in place of what was.
pub(super) fn install(policies: &Policies, declared: &PolicyDeclaration) {
    let mut links: Vec<Box<dyn Policy>> = Vec::new();
    if let Some(per_second) = declared.per_client_per_second {
        links.push(Box::new(RateLimit::per_principal(per_second)));
    }
    let has_any = !links.is_empty();
    *policies.links.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(links);
    if has_any && !policies.is_pushed.replace(true) {
        policies.system.policy().push(Current(policies.links.clone()));
    }
}

/// The policies of the moment, as one.
struct Current(Links);

impl Policy for Current {
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let links = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            for link in links.iter() {
                link.judge(crossing).await?;
            }
            Ok(())
        })
    }
}
