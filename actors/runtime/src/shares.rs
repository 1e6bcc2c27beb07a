//! Shares of principals in a limited number of places, such as streams, sessions, calls or
//! handlers.
//!
//! Each principal has a share of the places, by default a quarter. Beyond its share, a principal
//! may use places as long as a reserve of the size of a share is left, which is for principals that
//! use less than theirs. So one alone uses three quarters, and another always finds room. Where one
//! waits for a place, a freed one goes to the waiting principal that uses the fewest, and of its
//! calls to the one that came first. Callers without a credential are one principal.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use callboard_message::{Principal, PrincipalKind};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::sync::Mutex;

/// Default share of a principal in a resource that several use, in percent.
pub const PRINCIPAL_SHARE_PERCENT_DEFAULT: u8 = 25;

/// Principal as the owner of places.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShareOwner {
    kind: PrincipalKind,
    id: String,
}

impl From<&Principal> for ShareOwner {
    fn from(principal: &Principal) -> Self {
        Self {
            kind: principal.kind,
            id: principal.id.clone(),
        }
    }
}

/// Rule by which principals share a limited number of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FairShare {
    /// Number of places.
    pub max: usize,
    /// Number of places that a principal may use in any case while there are free ones.
    pub share: usize,
    /// Number of places that only principals below their share may use.
    reserve: usize,
}

impl FairShare {
    /// Creates a rule for `max` places. `percent` is a principal's share of them, 1 to 100. With
    /// 100, one principal may use all.
    pub fn new(max: usize, percent: u8) -> Self {
        let part = max.saturating_mul(percent.min(100).into()) / 100;
        // A small share leaves a place for others too.
        let reserve = part.max(usize::from(max >= 4));
        Self {
            max,
            share: part.max(1),
            reserve: reserve.min(max - part),
        }
    }

    /// Returns the number of places that a principal may use if no other uses any.
    pub fn alone_max(&self) -> usize {
        (self.max - self.reserve).max(self.share.min(self.max))
    }

    /// Checks whether a principal with `own` places may use one more while `used` are in use.
    ///
    /// # Errors
    /// [`ShareError::Full`], [`ShareError::AboveShare`].
    pub fn check(&self, own: usize, used: usize) -> Result<(), ShareError> {
        let Self {
            max,
            share,
            reserve,
        } = *self;
        if used >= max {
            return Err(ShareError::Full { max });
        }
        if own >= share && used >= max - reserve {
            return Err(ShareError::AboveShare {
                own,
                used,
                max,
                reserve,
            });
        }
        Ok(())
    }
}

/// Reason why a principal gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// All places are in use.
    #[error("all {max} are in use: try again later")]
    Full {
        /// Number of places.
        max: usize,
    },
    /// The principal uses its share, and the places that are left are for others.
    #[error(
        "{used} of {max} are in use, {own} by this principal; the last {reserve} are for others (`principal_share_percent`): end one first"
    )]
    AboveShare {
        /// Number of places that the principal uses.
        own: usize,
        /// Number of places in use.
        used: usize,
        /// Number of places.
        max: usize,
        /// Number of places that only principals below their share may use.
        reserve: usize,
    },
    /// No place became free in time.
    #[error("of {max}, {alone_max} for one principal, none became free in time: try again later")]
    TimedOut {
        /// Number of places.
        max: usize,
        /// Number of places that a principal may use if no other uses any.
        alone_max: usize,
    },
    /// Too many of the principal wait already.
    #[error("{waiters_max} of this principal wait already: try again later")]
    TooManyWaiters {
        /// Maximum number of a principal's calls that wait for a place.
        waiters_max: usize,
    },
}

impl ShareError {
    /// Returns whether the principal itself is at its limit, and others may get a place.
    pub fn is_own_limit(&self) -> bool {
        matches!(self, Self::AboveShare { .. } | Self::TooManyWaiters { .. })
    }
}

/// Places that principals share by the rule of the module: [`FairShare`].
pub struct PrincipalShares {
    rule: FairShare,
    /// Maximum number of calls of one principal that wait for a place.
    waiters_max: usize,
    table: Mutex<ShareTable>,
}

#[derive(Default)]
struct ShareTable {
    /// Number of places in use. [`PrincipalShares::acquire_above_limit`] may exceed the limit.
    used: usize,
    waiting: usize,
    /// Number of calls that have begun to wait so far.
    arrivals: u64,
    principals: HashMap<ShareOwner, OwnPlaces>,
}

/// Places of one principal, and its calls that wait for one.
#[derive(Default)]
struct OwnPlaces {
    used: usize,
    waiters: VecDeque<Waiter>,
}

/// A call that waits for a place.
struct Waiter {
    arrival: u64,
    grant: oneshot::Sender<SharePermit>,
}

impl PrincipalShares {
    /// Creates `max` places for which nobody waits. `percent` is a principal's share of them.
    pub fn new(max: usize, percent: u8) -> Arc<Self> {
        Self::with_queue(max, percent, 0)
    }

    /// Creates `max` places for which up to `waiters_max` calls of each principal may wait.
    pub fn with_queue(max: usize, percent: u8, waiters_max: usize) -> Arc<Self> {
        Arc::new(Self {
            rule: FairShare::new(max, percent),
            waiters_max,
            table: Mutex::default(),
        })
    }

    /// Returns the rule by which the places are shared.
    pub fn rule(&self) -> FairShare {
        self.rule
    }

    /// Returns the number of places in use.
    pub fn used(&self) -> usize {
        self.table.lock().used
    }

    /// Returns a place for `owner`.
    ///
    /// # Errors
    /// [`ShareError::Full`], [`ShareError::AboveShare`].
    pub fn try_acquire(
        self: &Arc<Self>,
        owner: impl Into<ShareOwner>,
    ) -> Result<SharePermit, ShareError> {
        let owner = owner.into();
        let mut table = self.table.lock();
        self.rule.check(table.used_by(&owner), table.used)?;
        Ok(self.take(&mut table, &owner))
    }

    /// Returns a place for `owner`, which may exceed the limit: for one that gave its place up for
    /// a while, and can't wait.
    pub fn acquire_above_limit(self: &Arc<Self>, owner: impl Into<ShareOwner>) -> SharePermit {
        self.take(&mut self.table.lock(), &owner.into())
    }

    /// Returns a place for `owner`. Waits for one until `deadline`; without one, as long as needed.
    ///
    /// # Errors
    /// [`ShareError::TimedOut`], [`ShareError::TooManyWaiters`].
    pub async fn acquire(
        self: &Arc<Self>,
        owner: impl Into<ShareOwner>,
        deadline: Option<Instant>,
    ) -> Result<SharePermit, ShareError> {
        let owner = owner.into();
        let mut waiting = {
            let mut table = self.table.lock();
            let is_queued = table
                .principals
                .get(&owner)
                .is_some_and(|own| !own.waiters.is_empty());
            if !is_queued && self.rule.check(table.used_by(&owner), table.used).is_ok() {
                return Ok(self.take(&mut table, &owner));
            }
            self.enqueue(&mut table, owner)?
        };
        let granted = &mut waiting.granted;
        let granted = match deadline {
            Some(deadline) => timeout_at(deadline, granted).await.ok(),
            None => Some(granted.await),
        };
        granted.and_then(Result::ok).ok_or(ShareError::TimedOut {
            max: self.rule.max,
            alone_max: self.rule.alone_max(),
        })
    }

    fn enqueue(
        &self,
        table: &mut ShareTable,
        owner: ShareOwner,
    ) -> Result<WaitingCall<'_>, ShareError> {
        let waiters_max = self.waiters_max;
        let own = table.principals.entry(owner.clone()).or_default();
        if own.waiters.len() >= waiters_max {
            table.forget_idle(&owner);
            return Err(ShareError::TooManyWaiters { waiters_max });
        }
        let (grant, granted) = oneshot::channel();
        table.arrivals += 1;
        let arrival = table.arrivals;
        own.waiters.push_back(Waiter { arrival, grant });
        table.waiting += 1;
        Ok(WaitingCall {
            shares: self,
            owner,
            arrival,
            granted,
        })
    }

    fn take(self: &Arc<Self>, table: &mut ShareTable, owner: &ShareOwner) -> SharePermit {
        table.used += 1;
        table.principals.entry(owner.clone()).or_default().used += 1;
        SharePermit {
            shares: self.clone(),
            owner: owner.clone(),
        }
    }

    /// Frees a place of `owner`, and grants those that are free to waiting calls.
    fn release(self: &Arc<Self>, owner: &ShareOwner) {
        let mut grants = Vec::new();
        {
            let mut table = self.table.lock();
            table.used = table.used.saturating_sub(1);
            if let Some(own) = table.principals.get_mut(owner) {
                own.used = own.used.saturating_sub(1);
            }
            while let Some((next, waiter)) = self.pop_waiter(&mut table) {
                grants.push((waiter.grant, self.take(&mut table, &next)));
            }
            table.forget_idle(owner);
        }
        // Outside the lock: a place whose call has given up is freed by its drop.
        for (grant, permit) in grants {
            drop(grant.send(permit));
        }
    }

    /// Removes and returns the waiting call that gets the next place, if one may be given.
    fn pop_waiter(&self, table: &mut ShareTable) -> Option<(ShareOwner, Waiter)> {
        if table.waiting == 0 {
            return None;
        }
        let waiting = table.principals.iter().filter_map(|(owner, own)| {
            let first = own.waiters.front()?;
            let may = self.rule.check(own.used, table.used).is_ok();
            may.then_some(((own.used, first.arrival), owner))
        });
        let (_, next) = waiting.min_by_key(|(rank, _)| *rank)?;
        let next = next.clone();
        let waiter = table.principals.get_mut(&next)?.waiters.pop_front()?;
        table.waiting -= 1;
        Some((next, waiter))
    }
}

impl ShareTable {
    fn used_by(&self, owner: &ShareOwner) -> usize {
        self.principals.get(owner).map_or(0, |own| own.used)
    }

    fn forget_idle(&mut self, owner: &ShareOwner) {
        let is_idle = |own: &OwnPlaces| own.used == 0 && own.waiters.is_empty();
        if self.principals.get(owner).is_some_and(is_idle) {
            self.principals.remove(owner);
        }
    }
}

/// Guard of a waiting call. Dropping it removes the call from the queue.
struct WaitingCall<'a> {
    shares: &'a PrincipalShares,
    owner: ShareOwner,
    arrival: u64,
    granted: oneshot::Receiver<SharePermit>,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut table = self.shares.table.lock();
        if let Some(own) = table.principals.get_mut(&self.owner) {
            let before = own.waiters.len();
            own.waiters.retain(|waiter| waiter.arrival != self.arrival);
            let removed = before - own.waiters.len();
            table.waiting -= removed;
            table.forget_idle(&self.owner);
        }
    }
}

/// Place of a principal. Dropping it frees the place.
#[must_use]
pub struct SharePermit {
    shares: Arc<PrincipalShares>,
    owner: ShareOwner,
}

impl SharePermit {
    /// Returns the principal whose place it is.
    pub fn owner(&self) -> &ShareOwner {
        &self.owner
    }
}

impl Drop for SharePermit {
    fn drop(&mut self) {
        self.shares.release(&self.owner);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    const QUEUE: usize = 4;

    fn owner(name: &str) -> ShareOwner {
        (&Principal::agent(name)).into()
    }

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(5))
    }

    fn fill(shares: &Arc<PrincipalShares>, name: &str) -> Vec<SharePermit> {
        std::iter::from_fn(|| shares.try_acquire(owner(name)).ok()).collect()
    }

    /// Goal: a principal alone uses all but the reserve; others still get their share, and freed
    /// places leave nothing behind. Method: rows of maxima and shares, one principal after the
    /// other.
    #[tokio::test]
    async fn shares_are_exact() {
        for (max, share, taken) in [
            (0, 25, [0, 0, 0]),
            (1, 25, [1, 0, 0]),
            (2, 25, [2, 0, 0]),
            (4, 25, [3, 1, 0]),
            (64, 25, [48, 16, 0]),
            (64, 10, [58, 6, 0]),
            (64, 1, [63, 1, 0]),
            (8, 10, [7, 1, 0]),
            (64, 100, [64, 0, 0]),
            (8, 75, [6, 2, 0]),
            (896, 25, [672, 224, 0]),
        ] {
            let shares = PrincipalShares::new(max, share);
            assert_eq!(shares.rule().alone_max(), taken[0]);
            let mut held = Vec::new();
            for (name, expected) in ["a", "b", "c"].into_iter().zip(taken) {
                let own = fill(&shares, name);
                assert_eq!(own.len(), expected, "{max} {share} {name}");
                held.push(own);
            }
            assert_eq!(shares.used(), taken.iter().sum::<usize>());
            drop(held);
            assert_eq!(shares.used(), 0);
            assert!(shares.table.lock().principals.is_empty());
        }
    }

    /// Goal: principals that together use all but the reserve leave it to one with none. Method:
    /// three at their share or above, then a fourth.
    #[tokio::test]
    async fn the_reserve_is_for_those_below_their_share() {
        let shares = PrincipalShares::new(16, 25);
        let take = |name, count| -> Vec<_> {
            (0..count)
                .map(|_| shares.try_acquire(owner(name)).unwrap())
                .collect()
        };
        let _held = [take("a", 5), take("b", 4), take("c", 3)];
        let refused = |own| {
            Some(ShareError::AboveShare {
                own,
                used: 12,
                max: 16,
                reserve: 4,
            })
        };
        assert_eq!(shares.try_acquire(owner("a")).err(), refused(5));
        assert_eq!(shares.try_acquire(owner("b")).err(), refused(4));
        let fourth = fill(&shares, "d");
        assert_eq!(fourth.len(), 4);
        let full = Some(ShareError::Full { max: 16 });
        assert_eq!(shares.try_acquire(owner("d")).err(), full);
        assert_eq!(shares.try_acquire(owner("e")).err(), full);
    }

    /// Goal: a freed place goes to the waiting principal with the fewest, and within it to the call
    /// that came first. Method: waiters of a principal with many places and of two with few, in an
    /// adverse order; places are freed one by one.
    #[tokio::test]
    async fn the_fewest_are_served_first() {
        let shares = PrincipalShares::with_queue(4, 25, QUEUE);
        let mut held = fill(&shares, "a");
        held.extend(fill(&shares, "b"));
        let mut waiting: Vec<_> = ["a", "a", "b", "c", "c"]
            .into_iter()
            .map(|name| (name, Box::pin(shares.acquire(owner(name), soon()))))
            .collect();
        for (_, waiter) in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        let mut taken = Vec::new();
        // The second is kept for a principal without any.
        for served in [Some("c"), None, Some("a"), Some("b")] {
            drop(held.remove(0));
            let ready = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(at, (name, waiter))| {
                    Some((at, *name, waiter.as_mut().now_or_never()?))
                });
            assert_eq!(ready.as_ref().map(|(_, name, _)| *name), served);
            if let Some((at, _, permit)) = ready {
                drop(waiting.remove(at));
                taken.push(permit.unwrap());
            }
        }
    }

    /// Goal: waiting calls of a principal are bounded, those that give up leave nothing, and none
    /// waits longer than its limit. Method: the limit and one more; drop them; paused time.
    #[tokio::test(start_paused = true)]
    async fn waiters_are_bounded() {
        let shares = PrincipalShares::with_queue(1, 25, QUEUE);
        let held = shares.try_acquire(owner("a")).unwrap();
        let mut waiting: Vec<_> = (0..QUEUE)
            .map(|_| Box::pin(shares.acquire(owner("b"), soon())))
            .collect();
        for waiter in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        let refused = shares.acquire(owner("b"), soon()).now_or_never();
        let too_many = ShareError::TooManyWaiters { waiters_max: QUEUE };
        assert_eq!(refused.unwrap().err(), Some(too_many));
        drop(waiting);
        assert_eq!(shares.table.lock().principals.len(), 1);
        let late = shares.acquire(owner("b"), soon()).await;
        let timed_out = ShareError::TimedOut {
            max: 1,
            alone_max: 1,
        };
        assert_eq!(late.err(), Some(timed_out));
        let mut patient = Box::pin(shares.acquire(owner("b"), None));
        assert!(patient.as_mut().now_or_never().is_none());
        drop(held);
        assert!(patient.await.is_ok());
        assert_eq!(shares.used(), 0);
        assert!(shares.table.lock().principals.is_empty());
    }
}
