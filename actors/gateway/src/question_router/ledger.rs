//! Usage of servers' questions, and enforcement of their caps.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Budget, CallId, Failure, RawObject};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::USAGE_META_KEY;
use super::options::UsageCaps;

/// Length of the sliding window for the caps per minute.
const USAGE_WINDOW: Duration = Duration::from_secs(60);

/// Minimum of [`LedgerState::calls_at_last_sweep`]. Entries of ended calls are evicted from a
/// server's ledger when it has twice as many calls as at the last eviction.
const SWEEP_CALLS_MIN: usize = 32;

/// Usage of one server's questions, with its caps.
pub(super) struct UsageLedger {
    caps: UsageCaps,
    book: Mutex<LedgerState>,
}

#[derive(Default)]
struct LedgerState {
    /// Usage entries of the last minute, oldest first.
    minute: VecDeque<UsageEntry>,
    /// Usage in each call under way. The reference is dead once the call has ended; dead entries
    /// are evicted later.
    calls: HashMap<CallId, Weak<Mutex<Usage>>>,
    /// Number of calls that were left after entries of ended calls were last evicted, but at least
    /// [`SWEEP_CALLS_MIN`]; 0 before the first call.
    calls_at_last_sweep: usize,
    next: u64,
}

struct UsageEntry {
    number: u64,
    at: Instant,
    spent: Usage,
}

/// Usage by questions: their number, tokens, and cost in millionths of a US dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    questions: u32,
    pub tokens_in: u64,
    pub tokens_out: u64,
    micro_usd: u64,
}

impl Usage {
    /// Parses the usage that an answer reports in its `_meta`; `None` if it reports none. A count
    /// that is missing there is 0.
    pub fn from_answer(answer: &RawObject) -> Option<Self> {
        let usage = answer.object("_meta")?.object(USAGE_META_KEY)?;
        let count = |name| usage.read::<u64>(name).unwrap_or_default();
        Some(Self {
            questions: 0,
            tokens_in: count("inputTokens"),
            tokens_out: count("outputTokens"),
            micro_usd: count("microUsd"),
        })
    }

    fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }

    fn add(&mut self, other: &Self) {
        self.questions = self.questions.saturating_add(other.questions);
        self.tokens_in = self.tokens_in.saturating_add(other.tokens_in);
        self.tokens_out = self.tokens_out.saturating_add(other.tokens_out);
        self.micro_usd = self.micro_usd.saturating_add(other.micro_usd);
    }

    fn subtract(&mut self, other: &Self) {
        self.tokens_in = self.tokens_in.saturating_sub(other.tokens_in);
        self.tokens_out = self.tokens_out.saturating_sub(other.tokens_out);
        self.micro_usd = self.micro_usd.saturating_sub(other.micro_usd);
    }
}

impl UsageLedger {
    pub fn new(caps: UsageCaps) -> Arc<Self> {
        Arc::new(Self {
            caps,
            book: Mutex::default(),
        })
    }

    /// Returns the account of the server's questions in `call`. All accounts for the same call
    /// share one usage. `budget` limits the call's tokens and cost in addition to the caps.
    pub fn account(self: &Arc<Self>, call: CallId, budget: Budget) -> CallAccount {
        let mut book = self.book.lock();
        let open = book.calls.get(&call).and_then(Weak::upgrade);
        let spent = open.unwrap_or_else(|| {
            // Evicted each time the number of calls has doubled, so that the cost is amortised.
            if book.calls.len() >= book.calls_at_last_sweep.saturating_mul(2) {
                book.calls.retain(|_, spent| spent.strong_count() > 0);
                book.calls_at_last_sweep = book.calls.len().max(SWEEP_CALLS_MIN);
            }
            let spent = Arc::default();
            book.calls.insert(call, Arc::downgrade(&spent));
            spent
        });
        CallAccount {
            ledger: self.clone(),
            spent,
            budget,
        }
    }
}

/// Account of one server's questions in one call, by which the caps are enforced.
#[derive(Clone)]
pub(super) struct CallAccount {
    ledger: Arc<UsageLedger>,
    spent: Arc<Mutex<Usage>>,
    budget: Budget,
}

impl CallAccount {
    /// Counts one question.
    ///
    /// # Errors
    /// `Overloaded`, if the server has asked too many questions in this call or minute.
    pub fn admit(&self) -> Result<(), Failure> {
        let caps = &self.ledger.caps;
        let mut book = self.ledger.book.lock();
        book.evict_old();
        let mut spent = self.spent.lock();
        if spent.questions >= caps.requests_per_call_max {
            return Err(Failure::overloaded(format!(
                "more than {} questions in one call (`requests_per_call_max`)",
                caps.requests_per_call_max
            )));
        }
        if book.questions() >= caps.requests_per_minute_max {
            return Err(Failure::overloaded(format!(
                "more than {} questions in a minute (`requests_per_minute_max`)",
                caps.requests_per_minute_max
            )));
        }
        let one = Usage {
            questions: 1,
            ..Usage::default()
        };
        spent.add(&one);
        book.record_usage(one);
        Ok(())
    }

    /// Returns the maximum tokens of an answer: `asked`, or the default if the question sets no
    /// limit. Both are limited by the cap.
    pub fn answer_tokens(&self, asked: Option<u64>) -> u64 {
        let caps = &self.ledger.caps;
        asked
            .unwrap_or(caps.tokens_per_answer_default.into())
            .min(caps.tokens_per_answer_max.into())
    }

    /// Reserves tokens for an answer: `wanted`, or fewer if fewer are left in this call or minute.
    /// They count as used until [`TokenReservation::settle`] records the real usage.
    ///
    /// # Errors
    /// `Overloaded`, if no tokens or no money is left.
    pub fn reserve(&self, wanted: u64) -> Result<TokenReservation, Failure> {
        let caps = &self.ledger.caps;
        let mut book = self.ledger.book.lock();
        book.evict_old();
        let mut spent = self.spent.lock();
        let minute = book.total_usage();
        let of_call = caps
            .tokens_per_call_max
            .min(self.budget.tokens.unwrap_or(u64::MAX));
        let left = of_call.saturating_sub(spent.tokens());
        if left == 0 {
            return Err(Failure::overloaded(
                "this call's questions have used up their tokens (`tokens_per_call_max` or the call's budget)",
            ));
        }
        let left = left.min(caps.tokens_per_minute_max.saturating_sub(minute.tokens()));
        let money_left =
            |cap: Option<u64>, spent: &Usage| cap.map(|cap| cap.saturating_sub(spent.micro_usd));
        let of_call =
            [caps.micro_usd_per_call_max, self.budget.micro_usd].map(|cap| money_left(cap, &spent));
        let of_minute = money_left(caps.micro_usd_per_minute_max, &minute);
        let micro_usd = of_call.into_iter().chain([of_minute]).flatten().min();
        if left == 0 {
            return Err(Failure::overloaded(
                "the server's questions have used up this minute's tokens (`tokens_per_minute_max`)",
            ));
        }
        if of_call.contains(&Some(0)) {
            return Err(Failure::overloaded(
                "this call's questions have used up their money (`micro_usd_per_call_max` or the call's budget)",
            ));
        }
        if of_minute == Some(0) {
            return Err(Failure::overloaded(
                "the server's questions have used up this minute's money (`micro_usd_per_minute_max`)",
            ));
        }
        let aside = Usage {
            tokens_out: left.min(wanted),
            ..Usage::default()
        };
        spent.add(&aside);
        let number = book.record_usage(aside);
        let budget = Budget {
            tokens: Some(left),
            micro_usd,
        };
        Ok(TokenReservation {
            account: self.clone(),
            number,
            reserved: aside,
            budget,
        })
    }
}

/// Tokens reserved for one answer. If the reservation is dropped without [`Self::settle`], all its
/// tokens count as used, because the real usage is unknown.
pub(super) struct TokenReservation {
    account: CallAccount,
    number: u64,
    reserved: Usage,
    /// Limit of everything that the answerer may use for this answer, including input tokens.
    pub budget: Budget,
}

impl TokenReservation {
    /// Returns the maximum number of tokens of the answer.
    pub fn tokens(&self) -> u64 {
        self.reserved.tokens_out
    }

    /// Ends the reservation and records the real usage in its place. If the reservation is older
    /// than a minute, the usage counts for the call only.
    pub fn settle(self, used: &Usage) {
        let mut book = self.account.ledger.book.lock();
        let mut spent = self.account.spent.lock();
        spent.subtract(&self.reserved);
        spent.add(used);
        if let Some(entry) = book
            .minute
            .iter_mut()
            .rev()
            .find(|entry| entry.number == self.number)
        {
            entry.spent = Usage {
                questions: 0,
                ..*used
            };
        }
    }
}

impl LedgerState {
    fn record_usage(&mut self, spent: Usage) -> u64 {
        self.next += 1;
        self.minute.push_back(UsageEntry {
            number: self.next,
            at: Instant::now(),
            spent,
        });
        self.next
    }

    fn evict_old(&mut self) {
        while self
            .minute
            .front()
            .is_some_and(|entry| entry.at.elapsed() >= USAGE_WINDOW)
        {
            self.minute.pop_front();
        }
    }

    fn total_usage(&self) -> Usage {
        let mut sum = Usage::default();
        self.minute.iter().for_each(|entry| sum.add(&entry.spent));
        sum
    }

    fn questions(&self) -> u32 {
        self.total_usage().questions
    }
}
