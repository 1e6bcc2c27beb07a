//! What a server's questions have cost, and what they may still cost.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Budget, CallId, Failure, RawObject};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::USAGE;
use super::options::Caps;

/// What is counted for a minute.
const MINUTE: Duration = Duration::from_secs(60);

/// So many ended calls of one server may be remembered before they are looked for.
const CALLS_LOOKED_AT_MIN: usize = 32;

/// One server's account.
pub(super) struct Ledger {
    caps: Caps,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    /// The questions of the last minute, oldest first.
    minute: VecDeque<Entry>,
    /// What calls under way have cost.
    calls: HashMap<CallId, Weak<Mutex<Spent>>>,
    /// How many of them were left when those that have ended were last looked for.
    calls_looked_at: usize,
    next: u64,
}

struct Entry {
    number: u64,
    at: Instant,
    spent: Spent,
}

/// What was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spent {
    questions: u32,
    pub tokens_in: u64,
    pub tokens_out: u64,
    micro_usd: u64,
}

impl Spent {
    /// What an answer says that it cost. `None` where it doesn't say.
    pub fn told(answer: &RawObject) -> Option<Self> {
        let usage = answer.object("_meta")?.object(USAGE)?;
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

    fn take(&mut self, other: &Self) {
        self.tokens_in = self.tokens_in.saturating_sub(other.tokens_in);
        self.tokens_out = self.tokens_out.saturating_sub(other.tokens_out);
        self.micro_usd = self.micro_usd.saturating_sub(other.micro_usd);
    }
}

impl Ledger {
    pub fn new(caps: Caps) -> Arc<Self> {
        Arc::new(Self {
            caps,
            book: Mutex::default(),
        })
    }

    /// What the server's questions in `call` cost; the same for all who ask in that call at a time.
    pub fn account(self: &Arc<Self>, call: CallId, budget: Budget) -> Account {
        let mut book = self.book.lock();
        let open = book.calls.get(&call).and_then(Weak::upgrade);
        let spent = open.unwrap_or_else(|| {
            // Each time that the calls have doubled, so that looking through them stays cheap.
            if book.calls.len() >= book.calls_looked_at.saturating_mul(2) {
                book.calls.retain(|_, spent| spent.strong_count() > 0);
                book.calls_looked_at = book.calls.len().max(CALLS_LOOKED_AT_MIN);
            }
            let spent = Arc::default();
            book.calls.insert(call, Arc::downgrade(&spent));
            spent
        });
        Account {
            ledger: self.clone(),
            spent,
            budget,
        }
    }
}

/// What one server's questions in one call cost.
#[derive(Clone)]
pub(super) struct Account {
    ledger: Arc<Ledger>,
    spent: Arc<Mutex<Spent>>,
    budget: Budget,
}

impl Account {
    /// Counts a question.
    ///
    /// # Errors
    /// `Overloaded` where there were too many.
    pub fn admit(&self) -> Result<(), Failure> {
        let caps = &self.ledger.caps;
        let mut book = self.ledger.book.lock();
        book.forget_old();
        let mut spent = self.spent.lock();
        if spent.questions >= caps.requests_per_call_max {
            return Err(Failure::overloaded(format!(
                "more than {} questions in one call",
                caps.requests_per_call_max
            )));
        }
        if book.questions() >= caps.requests_per_minute_max {
            return Err(Failure::overloaded(format!(
                "more than {} questions in a minute",
                caps.requests_per_minute_max
            )));
        }
        let one = Spent {
            questions: 1,
            ..Spent::default()
        };
        spent.add(&one);
        book.enter(one);
        Ok(())
    }

    /// How many tokens an answer may have that is to have `asked`.
    pub fn answer_tokens(&self, asked: Option<u64>) -> u64 {
        let caps = &self.ledger.caps;
        asked
            .unwrap_or(caps.tokens_per_answer_default.into())
            .min(caps.tokens_per_answer_max.into())
    }

    /// Sets tokens aside for an answer, as many as are left of those wanted.
    ///
    /// # Errors
    /// `Overloaded` where nothing is left.
    pub fn reserve(&self, wanted: u64) -> Result<Charge, Failure> {
        let caps = &self.ledger.caps;
        let mut book = self.ledger.book.lock();
        book.forget_old();
        let mut spent = self.spent.lock();
        let minute = book.spent();
        let of_call = caps
            .tokens_per_call_max
            .min(self.budget.tokens.unwrap_or(u64::MAX));
        let left = of_call.saturating_sub(spent.tokens());
        if left == 0 {
            return Err(Failure::overloaded(
                "this call's questions have used up their tokens",
            ));
        }
        let left = left.min(caps.tokens_per_minute_max.saturating_sub(minute.tokens()));
        let money_left =
            |cap: Option<u64>, spent: &Spent| cap.map(|cap| cap.saturating_sub(spent.micro_usd));
        let of_call =
            [caps.micro_usd_per_call_max, self.budget.micro_usd].map(|cap| money_left(cap, &spent));
        let of_minute = money_left(caps.micro_usd_per_minute_max, &minute);
        let micro_usd = of_call.into_iter().chain([of_minute]).flatten().min();
        if left == 0 {
            return Err(Failure::overloaded(
                "the server's questions have used up this minute's tokens",
            ));
        }
        if of_call.contains(&Some(0)) {
            return Err(Failure::overloaded(
                "this call's questions have used up their money",
            ));
        }
        if of_minute == Some(0) {
            return Err(Failure::overloaded(
                "the server's questions have used up this minute's money",
            ));
        }
        let aside = Spent {
            tokens_out: left.min(wanted),
            ..Spent::default()
        };
        spent.add(&aside);
        let number = book.enter(aside);
        let budget = Budget {
            tokens: Some(left),
            micro_usd,
        };
        Ok(Charge {
            account: self.clone(),
            number,
            aside,
            budget,
        })
    }
}

/// Tokens set aside for one answer. Dropped without being settled, they count as used: nobody knows what was.
pub(super) struct Charge {
    account: Account,
    number: u64,
    aside: Spent,
    /// All that whoever answers may use up, what is read included.
    pub budget: Budget,
}

impl Charge {
    /// How many tokens the answer may have.
    pub fn tokens(&self) -> u64 {
        self.aside.tokens_out
    }

    /// What was really used up takes the place of what was set aside.
    pub fn settle(self, used: &Spent) {
        let mut book = self.account.ledger.book.lock();
        let mut spent = self.account.spent.lock();
        spent.take(&self.aside);
        spent.add(used);
        if let Some(entry) = book
            .minute
            .iter_mut()
            .rev()
            .find(|entry| entry.number == self.number)
        {
            entry.spent = Spent {
                questions: 0,
                ..*used
            };
        }
    }
}

impl Book {
    fn enter(&mut self, spent: Spent) -> u64 {
        self.next += 1;
        self.minute.push_back(Entry {
            number: self.next,
            at: Instant::now(),
            spent,
        });
        self.next
    }

    fn forget_old(&mut self) {
        while self
            .minute
            .front()
            .is_some_and(|entry| entry.at.elapsed() >= MINUTE)
        {
            self.minute.pop_front();
        }
    }

    fn spent(&self) -> Spent {
        let mut sum = Spent::default();
        self.minute.iter().for_each(|entry| sum.add(&entry.spent));
        sum
    }

    fn questions(&self) -> u32 {
        self.spent().questions
    }
}
