//! Bounds on introspections, so that a flood of tokens at a listener doesn't become one at its issuers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::network_of;

/// Maximum number of tokens of a listener that are introspected at once. Requests with further
/// tokens are answered 503.
pub const INTROSPECTIONS_MAX: usize = 32;
/// Maximum number of introspections at once at which a token begins one that wasn't active before.
/// The rest is for tokens whose answer has become too old.
pub const NEW_INTROSPECTIONS_MAX: usize = 24;
/// Maximum number of tokens that weren't active before and are introspected at once for requests of
/// one address: an IPv4 address, or the first 64 bits of an IPv6 address.
pub const ADDRESS_INTROSPECTIONS_MAX: usize = 8;
/// Maximum number of introspected tokens of all addresses, in one [`REFUSED_TOKENS_WINDOW`], that
/// weren't accepted. Then tokens that weren't active before aren't introspected until its end:
/// requests with them are answered 503.
pub const REFUSED_TOKENS_MAX: usize = 1_000;
/// Maximum number of introspected tokens of one address, as in [`REFUSED_TOKENS_MAX`].
pub const ADDRESS_REFUSED_TOKENS_MAX: usize = 20;
/// Time for which introspected tokens that weren't accepted are counted.
pub const REFUSED_TOKENS_WINDOW: Duration = Duration::from_secs(10);

/// Purpose of an introspection, by which it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntrospectionPurpose {
    /// Token that wasn't active before, in a request of this address.
    New(Option<IpAddr>),
    /// Token that was active when it was last introspected.
    Renewal,
}

/// Numbers of introspections in progress, and of tokens that weren't accepted.
#[derive(Debug, Default)]
pub(super) struct IntrospectionQuota {
    running: usize,
    /// Tokens that weren't accepted since `began`.
    refused: usize,
    /// Beginning of the current [`REFUSED_TOKENS_WINDOW`].
    began: Option<Instant>,
    addresses: HashMap<Option<IpAddr>, AddressNumbers>,
}

/// Numbers of tokens of one address that weren't active before.
#[derive(Debug, Default, Clone, Copy)]
struct AddressNumbers {
    running: usize,
    refused: usize,
}

impl IntrospectionPurpose {
    /// Returns the address for which it counts; `None` for a renewal.
    fn address(self) -> Option<Option<IpAddr>> {
        match self {
            Self::New(peer) => Some(peer.map(network_of)),
            Self::Renewal => None,
        }
    }
}

impl IntrospectionQuota {
    /// Counts an introspection that begins. Returns whether it may.
    pub(super) fn try_begin(&mut self, purpose: IntrospectionPurpose, now: Instant) -> bool {
        if self.running >= INTROSPECTIONS_MAX {
            return false;
        }
        if let Some(address) = purpose.address() {
            self.forget_refused(now);
            let numbers = self.addresses.get(&address).copied().unwrap_or_default();
            // Those in progress may be refused too.
            if self.running >= NEW_INTROSPECTIONS_MAX
                || self.running + self.refused >= REFUSED_TOKENS_MAX
                || numbers.running >= ADDRESS_INTROSPECTIONS_MAX
                || numbers.running + numbers.refused >= ADDRESS_REFUSED_TOKENS_MAX
            {
                return false;
            }
            self.addresses.entry(address).or_default().running += 1;
        }
        self.running += 1;
        true
    }

    /// Counts the end of an introspection. `is_refused` tells that the token isn't accepted.
    pub(super) fn end(&mut self, purpose: IntrospectionPurpose, is_refused: bool) {
        self.running = self.running.saturating_sub(1);
        let Some(address) = purpose.address() else {
            return;
        };
        let numbers = self.addresses.entry(address).or_default();
        numbers.running = numbers.running.saturating_sub(1);
        if is_refused {
            numbers.refused += 1;
            self.refused += 1;
        } else if numbers.running + numbers.refused == 0 {
            self.addresses.remove(&address);
        }
    }

    /// Forgets the refused tokens once their window has ended.
    fn forget_refused(&mut self, now: Instant) {
        let is_over = |began: Instant| now.duration_since(began) >= REFUSED_TOKENS_WINDOW;
        if self.began.is_some_and(|began| !is_over(began)) {
            return;
        }
        (self.began, self.refused) = (Some(now), 0);
        self.addresses.retain(|_, numbers| {
            numbers.refused = 0;
            numbers.running > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn new(host: usize) -> IntrospectionPurpose {
        let host = u32::try_from(host).unwrap();
        IntrospectionPurpose::New(Some(Ipv4Addr::from_bits(host).into()))
    }

    /// Goal: introspections at once are bounded for an address and in all, and those of tokens that
    /// were active before have places of their own. Method: each limit, one more, and one ended.
    #[test]
    fn introspections_at_once() {
        let (mut quota, now) = (IntrospectionQuota::default(), Instant::now());
        for _ in 0..ADDRESS_INTROSPECTIONS_MAX {
            assert!(quota.try_begin(new(0), now));
        }
        assert!(!quota.try_begin(new(0), now));
        for host in ADDRESS_INTROSPECTIONS_MAX..NEW_INTROSPECTIONS_MAX {
            assert!(quota.try_begin(new(host), now));
        }
        assert!(!quota.try_begin(new(NEW_INTROSPECTIONS_MAX), now));
        for _ in NEW_INTROSPECTIONS_MAX..INTROSPECTIONS_MAX {
            assert!(quota.try_begin(IntrospectionPurpose::Renewal, now));
        }
        assert!(!quota.try_begin(IntrospectionPurpose::Renewal, now));
        quota.end(IntrospectionPurpose::Renewal, true);
        assert!(quota.try_begin(IntrospectionPurpose::Renewal, now));
        for _ in NEW_INTROSPECTIONS_MAX..INTROSPECTIONS_MAX {
            quota.end(IntrospectionPurpose::Renewal, false);
        }
        quota.end(new(0), false);
        assert!(quota.try_begin(new(0), now));
        assert!(!quota.try_begin(new(0), now));
    }

    /// Goal: tokens that aren't accepted are bounded in a window, for an address and in all, those in
    /// progress included; accepted ones and renewals aren't counted. Method: each limit, one more, and
    /// the next window.
    #[test]
    fn refused_tokens() {
        let (mut quota, now) = (IntrospectionQuota::default(), Instant::now());
        let refuse = |quota: &mut IntrospectionQuota, host: usize| {
            let began = quota.try_begin(new(host), now);
            if began {
                quota.end(new(host), true);
            }
            began
        };
        for _ in 0..2 * ADDRESS_REFUSED_TOKENS_MAX {
            assert!(quota.try_begin(new(0), now));
            quota.end(new(0), false);
        }
        for _ in 1..ADDRESS_REFUSED_TOKENS_MAX {
            assert!(refuse(&mut quota, 0));
        }
        assert!(quota.try_begin(new(0), now));
        assert!(!quota.try_begin(new(0), now), "one in progress counts");
        quota.end(new(0), true);
        assert!(!refuse(&mut quota, 0));
        for number in ADDRESS_REFUSED_TOKENS_MAX..REFUSED_TOKENS_MAX {
            assert!(refuse(&mut quota, number));
        }
        assert!(!refuse(&mut quota, REFUSED_TOKENS_MAX));
        assert!(quota.try_begin(IntrospectionPurpose::Renewal, now));
        let later = now + REFUSED_TOKENS_WINDOW;
        assert!(quota.try_begin(new(0), later));
        assert_eq!(quota.addresses.len(), 1);
    }
}
