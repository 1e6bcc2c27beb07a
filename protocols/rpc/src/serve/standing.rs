//! Whether who opened a stream may still have it.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::AUTHORIZATION;
use callboard_message::Principal;
use tokio::time::{Instant, Sleep, sleep};

use crate::{Access, Credential};

/// How often a credential is looked at again while what it opened is open.
pub const STANDING_LOOKED_AT_EVERY: Duration = Duration::from_millis(500);

/// Why a stream ends whose credential counts no more, for a person.
pub const COUNTS_NO_MORE: &str = "the key counts no more";

/// The credential of a request that opened a stream, looked at again as long as that is open: a key may be revoked meanwhile.
pub struct Standing {
    /// `None` where nobody has to show anything.
    shown: Option<Shown>,
    next: Pin<Box<Sleep>>,
}

struct Shown {
    access: Access,
    authorization: Option<Vec<u8>>,
    peer: Option<IpAddr>,
    local: Option<IpAddr>,
    principal: Option<Principal>,
}

impl Shown {
    fn principal(&self) -> Option<Principal> {
        let Self { authorization, peer, local, .. } = self;
        // A key counts whoever passes it on.
        let shown =
            Credential { peer: *peer, local: *local, authorization: authorization.as_deref(), is_forwarded: false };
        self.access.principal(&shown).ok()
    }
}

impl Standing {
    /// Of a request that was let in just now.
    pub fn of(request: &HttpRequest, access: &Access) -> Self {
        let shown = matches!(access, Access::Bearer(_)).then(|| {
            let shown = Shown {
                access: access.clone(),
                authorization: request.headers().get(AUTHORIZATION).map(|value| value.as_bytes().to_vec()),
                peer: request.peer_addr().map(|address| address.ip()),
                local: Some(request.app_config().local_addr().ip()),
                principal: None,
            };
            Shown { principal: shown.principal(), ..shown }
        });
        Self { shown, next: Box::pin(sleep(STANDING_LOOKED_AT_EVERY)) }
    }

    /// Ready once the credential stands for somebody else than it did, or for nobody.
    pub fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(shown) = &self.shown else { return Poll::Pending };
        loop {
            ready!(self.next.as_mut().poll(cx));
            let now = shown.principal();
            if now.is_none() || now != shown.principal {
                return Poll::Ready(());
            }
            self.next.as_mut().reset(Instant::now() + STANDING_LOOKED_AT_EVERY);
        }
    }

    /// Ends once the credential stands for somebody else than it did, or for nobody.
    pub async fn lost(&mut self) {
        poll_fn(|cx| self.poll_lost(cx)).await;
    }
}
