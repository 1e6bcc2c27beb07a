//! Failed authentications by address: reports for the audit, and delays against guessing.
//!
//! Only rejected requests are delayed. A request with a valid credential is served at once, from
//! whatever address, so nobody can lock out others who share an address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use derive_more::Debug;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::CredentialError;

/// Maximum number of addresses whose failures are counted. Beyond it, the address whose latest
/// failure is oldest is forgotten.
pub const AUTH_FAILURE_ADDRESSES_MAX: usize = 4_096;
/// Number of failures of an address, each less than [`AUTH_FAILURE_WINDOW`] after the one before,
/// whose responses are not delayed.
pub const UNDELAYED_AUTH_FAILURES_MAX: u32 = 5;
/// Time without failures after which an address counts as new, and minimum time between two reports
/// about one address.
pub const AUTH_FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Delay of the first delayed response. It doubles with each further failure.
pub const AUTH_FAILURE_DELAY_MIN: Duration = Duration::from_millis(500);
/// Maximum delay of a response.
pub const AUTH_FAILURE_DELAY_MAX: Duration = Duration::from_secs(5);
/// Maximum number of responses that are delayed at once, over all addresses. Beyond it, responses
/// are sent at once and say 429.
pub const DELAYED_RESPONSES_MAX: usize = 256;
/// Maximum number of responses to one address that are delayed at once. Beyond it, responses are
/// sent at once and say 429.
pub const ADDRESS_DELAYED_RESPONSES_MAX: usize = 16;
/// Maximum number of reports in an [`AUTH_FAILURE_WINDOW`], over all addresses. Beyond it, failures
/// are counted in [`AuthFailureReport::others`] of the next report.
pub const AUTH_FAILURE_REPORTS_MAX: u32 = 60;

/// Report on the failed authentications of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthFailureReport {
    /// Address of the peer: an IPv4 address, or the first 64 bits of an IPv6 address.
    pub address: IpAddr,
    /// Reason of the latest failure.
    pub reason: CredentialError,
    /// Number of failures since the previous report on this address, this one included.
    pub count: u64,
    /// Number of failures of other addresses that no report tells of, because there were too many
    /// reports or addresses.
    pub others: u64,
}

/// Consequence of a failed authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthFailureResponse {
    /// The rejection is sent as it is, after its delay.
    Reject,
    /// Too many responses are delayed already: the rejection is replaced by 429, too many requests,
    /// and the connection is closed.
    TooMany,
}

type ReportHandler = dyn Fn(AuthFailureReport) + Send + Sync;

/// Counter of failed authentications by address, shared by all listeners of a node.
#[derive(Default, Debug)]
#[debug("AuthFailures({} addresses)", counted.lock().addresses.len())]
pub struct AuthFailures {
    counted: Mutex<CountedFailures>,
    delayed: Mutex<DelayedResponses>,
    report: Option<Box<ReportHandler>>,
}

#[derive(Default)]
struct CountedFailures {
    addresses: HashMap<IpAddr, AddressFailures>,
    /// Start of the period whose reports are counted; `None` before the first report.
    period: Option<Instant>,
    /// Reports in the period.
    reports: u32,
    /// Failures, since the latest report, of addresses that were forgotten or whose report was one
    /// too many.
    others: u64,
}

/// Numbers of the responses that are being delayed.
#[derive(Default)]
struct DelayedResponses {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

struct AddressFailures {
    /// Failures, each less than [`AUTH_FAILURE_WINDOW`] after the one before.
    recent: u32,
    last: Instant,
    reported: Option<Instant>,
    /// Failures since the latest report.
    unreported: u64,
}

impl AuthFailures {
    /// Creates a counter that reports the first failure of an address to `report`, and then at most
    /// one each [`AUTH_FAILURE_WINDOW`]; over all addresses at most [`AUTH_FAILURE_REPORTS_MAX`].
    /// `report` must not block.
    pub fn with_report(report: impl Fn(AuthFailureReport) + Send + Sync + 'static) -> Self {
        Self {
            report: Some(Box::new(report)),
            ..Self::default()
        }
    }

    /// Counts a failed authentication, waits as long as its response is to be delayed, and returns
    /// how the request is answered. Only wrong, malformed and unlisted credentials are counted: nobody
    /// guesses without a credential, or where none is required.
    pub async fn penalize(
        &self,
        peer: Option<IpAddr>,
        reason: CredentialError,
    ) -> AuthFailureResponse {
        let is_guess = matches!(
            reason,
            CredentialError::Wrong
                | CredentialError::Malformed
                | CredentialError::UnknownCertificate
        );
        let Some(peer) = peer.filter(|_| is_guess) else {
            return AuthFailureResponse::Reject;
        };
        let address = network_of(peer);
        let delay = self.count(address, reason);
        if delay.is_zero() {
            return AuthFailureResponse::Reject;
        }
        let Some(_delayed) = DelayedResponse::begin(&self.delayed, address) else {
            return AuthFailureResponse::TooMany;
        };
        sleep(delay).await;
        AuthFailureResponse::Reject
    }

    /// Counts a failure of an address and returns the delay of its response.
    fn count(&self, address: IpAddr, reason: CredentialError) -> Duration {
        let (recent, report) = self.counted.lock().count(address, reason, Instant::now());
        if let (Some(report), Some(handler)) = (report, &self.report) {
            handler(report);
        }
        delay_after(recent)
    }
}

impl CountedFailures {
    /// Counts a failure of an address. Returns its number of recent failures, and a report if one
    /// is due.
    fn count(
        &mut self,
        address: IpAddr,
        reason: CredentialError,
        now: Instant,
    ) -> (u32, Option<AuthFailureReport>) {
        if !self.addresses.contains_key(&address) {
            self.make_room(now);
        }
        let failures = self.addresses.entry(address).or_insert(AddressFailures {
            recent: 0,
            last: now,
            reported: None,
            unreported: 0,
        });
        let recent = failures.count(now);
        if !failures.is_report_due(now) {
            return (recent, None);
        }
        let count = std::mem::take(&mut failures.unreported);
        if self
            .period
            .is_none_or(|began| now.duration_since(began) >= AUTH_FAILURE_WINDOW)
        {
            (self.period, self.reports) = (Some(now), 0);
        }
        if self.reports >= AUTH_FAILURE_REPORTS_MAX {
            self.others = self.others.saturating_add(count);
            return (recent, None);
        }
        self.reports += 1;
        failures.reported = Some(now);
        let report = AuthFailureReport {
            address,
            reason,
            count,
            others: std::mem::take(&mut self.others),
        };
        (recent, Some(report))
    }

    /// Makes room for one more address: forgets those without recent failures, or else the one
    /// whose latest failure is oldest.
    fn make_room(&mut self, now: Instant) {
        if self.addresses.len() < AUTH_FAILURE_ADDRESSES_MAX {
            return;
        }
        let others = &mut self.others;
        self.addresses.retain(|_, failures| {
            let is_recent = now.duration_since(failures.last) < AUTH_FAILURE_WINDOW;
            if !is_recent {
                *others = others.saturating_add(failures.unreported);
            }
            is_recent
        });
        if self.addresses.len() < AUTH_FAILURE_ADDRESSES_MAX {
            return;
        }
        let oldest = self
            .addresses
            .iter()
            .min_by_key(|(_, failures)| failures.last)
            .map(|(address, _)| *address);
        if let Some(forgotten) = oldest.and_then(|oldest| self.addresses.remove(&oldest)) {
            self.others = self.others.saturating_add(forgotten.unreported);
        }
    }
}

impl AddressFailures {
    /// Counts a failure and returns the number of recent failures.
    fn count(&mut self, now: Instant) -> u32 {
        if now.duration_since(self.last) >= AUTH_FAILURE_WINDOW {
            self.recent = 0;
        }
        self.recent = self.recent.saturating_add(1);
        self.unreported = self.unreported.saturating_add(1);
        self.last = now;
        self.recent
    }

    /// Returns whether the latest report is an [`AUTH_FAILURE_WINDOW`] ago, or there was none.
    fn is_report_due(&self, now: Instant) -> bool {
        self.reported
            .is_none_or(|reported| now.duration_since(reported) >= AUTH_FAILURE_WINDOW)
    }
}

/// Returns the delay of the response to the failure with this number, counted from 1.
fn delay_after(recent: u32) -> Duration {
    match recent.checked_sub(UNDELAYED_AUTH_FAILURES_MAX + 1) {
        None => Duration::ZERO,
        Some(doublings) => 2_u32
            .checked_pow(doublings)
            .and_then(|factor| AUTH_FAILURE_DELAY_MIN.checked_mul(factor))
            .map_or(AUTH_FAILURE_DELAY_MAX, |delay| {
                delay.min(AUTH_FAILURE_DELAY_MAX)
            }),
    }
}

/// Returns the network that counts as one peer: an IPv4 address, or the first 64 bits of an IPv6
/// address, of which one subscriber usually has all.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// Place among the delayed responses, released when dropped.
struct DelayedResponse<'a> {
    delayed: &'a Mutex<DelayedResponses>,
    address: IpAddr,
}

impl<'a> DelayedResponse<'a> {
    /// Takes a place; `None` if [`DELAYED_RESPONSES_MAX`] are taken, or
    /// [`ADDRESS_DELAYED_RESPONSES_MAX`] by this address.
    fn begin(delayed: &'a Mutex<DelayedResponses>, address: IpAddr) -> Option<Self> {
        let mut numbers = delayed.lock();
        let of_address = numbers.by_address.get(&address).copied().unwrap_or(0);
        if numbers.all >= DELAYED_RESPONSES_MAX || of_address >= ADDRESS_DELAYED_RESPONSES_MAX {
            return None;
        }
        numbers.all += 1;
        numbers.by_address.insert(address, of_address + 1);
        drop(numbers);
        Some(Self { delayed, address })
    }
}

impl Drop for DelayedResponse<'_> {
    fn drop(&mut self) {
        let mut numbers = self.delayed.lock();
        numbers.all -= 1;
        if let Some(of_address) = numbers.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                numbers.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: delays begin after the fifth failure, double and are limited. Method: rows.
    #[test]
    fn delays() {
        let delays = [5, 6, 7, 8, 9, 10, 11, 40, u32::MAX].map(delay_after);
        let ms = delays.map(|delay| delay.as_millis());
        assert_eq!(
            ms,
            [0, 500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000, 5_000]
        );
    }

    /// Goal: an IPv6 subscriber is one peer, an IPv4 address another, however it is written.
    /// Method: rows.
    #[test]
    fn networks() {
        for (address, network) in [
            ("10.0.0.7", "10.0.0.7"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:3::1", "2001:db8:1:3::"),
        ] {
            let network: IpAddr = network.parse().unwrap();
            assert_eq!(network_of(address.parse().unwrap()), network, "{address}");
        }
    }

    /// Goal: the number of addresses is limited, and the oldest is forgotten first. Method: the
    /// limit and one more, in paused time.
    #[tokio::test(start_paused = true)]
    async fn addresses_are_bounded() {
        let failures = AuthFailures::default();
        let address = |nth: usize| IpAddr::from(u32::try_from(nth).unwrap().to_be_bytes());
        for nth in 0..=AUTH_FAILURE_ADDRESSES_MAX {
            failures.count(address(nth), CredentialError::Wrong);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let counted = failures.counted.lock();
        let known = &counted.addresses;
        assert_eq!(known.len(), AUTH_FAILURE_ADDRESSES_MAX);
        assert!(!known.contains_key(&address(0)) && known.contains_key(&address(1)));
    }
}
