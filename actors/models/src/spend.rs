//! What a model may use up: tokens, money and calls, of one call, a minute and a day.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Budget, Failure};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::{ModelError, ModelLimits, Prices};
use super::request::Usage;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The highest price, in dollars for a million tokens: more is a mistake.
const PRICE_USD_MAX: f64 = 1_000_000.0;

/// One model's account.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: ModelLimits,
    /// Without prices a model is free.
    prices: Prices,
    /// This minute and this day.
    windows: Mutex<[Window; 2]>,
}

/// What was used, or is set aside, since a moment.
#[derive(Debug)]
struct Window {
    length: Duration,
    since: Instant,
    requests: u64,
    tokens: u64,
    micro_usd: u64,
}

impl Ledger {
    /// # Errors
    /// [`ModelError::Setting`] for limits and prices that can't be meant.
    pub fn new(limits: &ModelLimits, prices: Option<Prices>) -> Result<Arc<Self>, ModelError> {
        let wrong = |setting, rule| Err(ModelError::Setting { setting, rule });
        if limits.calls_max == 0 || limits.tokens_max == 0 {
            return wrong("limits", "`calls_max` and `tokens_max` are at least 1");
        }
        let dollars = [limits.usd_per_call_max, limits.usd_per_day_max];
        if dollars
            .iter()
            .flatten()
            .any(|usd| !usd.is_finite() || *usd < 0.0)
        {
            return wrong("limits", "dollars are numbers from 0");
        }
        if prices.is_none() && dollars.iter().any(Option::is_some) {
            return wrong("prices", "limits in dollars need prices");
        }
        let free = Prices {
            input_usd_per_million: 0.0,
            output_usd_per_million: 0.0,
        };
        let prices = prices.unwrap_or(free);
        let is_price = |usd: f64| (0.0..=PRICE_USD_MAX).contains(&usd);
        if !is_price(prices.input_usd_per_million) || !is_price(prices.output_usd_per_million) {
            return wrong(
                "prices",
                "a price is a number from 0 to 1,000,000 dollars for a million tokens",
            );
        }
        let windows = Mutex::new([MINUTE, DAY].map(Window::new));
        Ok(Arc::new(Self {
            limits: limits.clone(),
            prices,
            windows,
        }))
    }

    /// Sets aside what a call may use at most: `input` tokens (a guess) and the answer's. Gives also how many tokens the
    /// answer may have: what was asked for, cut to the limits of the call.
    ///
    /// # Errors
    /// `Overloaded`, which says what is used up.
    pub fn grant(
        self: &Arc<Self>,
        input: u64,
        asked: Option<u32>,
        budget: Budget,
    ) -> Result<(Grant, u32), Failure> {
        let limits = &self.limits;
        let mut output = u64::from(asked.unwrap_or(limits.tokens_max).min(limits.tokens_max));
        for tokens_max in [limits.tokens_per_call_max, budget.tokens]
            .into_iter()
            .flatten()
        {
            output = output.min(tokens_max.saturating_sub(input));
        }
        let money = [limits.usd_per_call_max.map(micro_usd), budget.micro_usd];
        for micro_usd_max in money.into_iter().flatten() {
            output = output.min(self.output_for(micro_usd_max, input));
        }
        if output == 0 {
            return Err(Failure::overloaded(
                "the call's budget is too small for this conversation",
            ));
        }
        let most = Usage { input, output };
        let (tokens, cost) = (most.total(), self.cost(most));
        let mut windows = self.windows.lock();
        windows.iter_mut().for_each(Window::turn);
        let [minute, day] = &*windows;
        let used = [
            (
                minute.requests + 1,
                limits.requests_per_minute_max,
                "calls of this minute are",
            ),
            (
                minute.tokens.saturating_add(tokens),
                limits.tokens_per_minute_max,
                "tokens of this minute are",
            ),
            (
                day.tokens.saturating_add(tokens),
                limits.tokens_per_day_max,
                "tokens of this day are",
            ),
            (
                day.micro_usd.saturating_add(cost),
                limits.usd_per_day_max.map(micro_usd),
                "money of this day is",
            ),
        ];
        if let Some((.., what)) = used
            .iter()
            .find(|(used, max, _)| max.is_some_and(|max| *used > max))
        {
            return Err(Failure::overloaded(format!("the model's {what} used up")));
        }
        let since = [minute.since, day.since];
        for window in windows.iter_mut() {
            window.requests += 1;
            window.tokens = window.tokens.saturating_add(tokens);
            window.micro_usd = window.micro_usd.saturating_add(cost);
        }
        drop(windows);
        let grant = Grant {
            ledger: self.clone(),
            since,
            most,
            spent: Mutex::default(),
        };
        Ok((grant, u32::try_from(output).unwrap_or(u32::MAX)))
    }

    /// In millionths of a dollar, rounded up: a dollar for a million tokens is a millionth for one.
    pub fn cost(&self, usage: Usage) -> u64 {
        let Prices {
            input_usd_per_million,
            output_usd_per_million,
        } = self.prices;
        (usage.input as f64 * input_usd_per_million + usage.output as f64 * output_usd_per_million)
            .ceil() as u64
    }

    /// How many tokens can be written for this much, after so many were read.
    fn output_for(&self, micro_usd_max: u64, input: u64) -> u64 {
        let read = self.cost(Usage { input, output: 0 });
        match micro_usd_max.checked_sub(read) {
            None => 0,
            Some(_) if self.prices.output_usd_per_million == 0.0 => u64::MAX,
            Some(left) => (left as f64 / self.prices.output_usd_per_million) as u64,
        }
    }

    /// Tokens and millionths of a dollar of this day, what is set aside included.
    pub fn today(&self) -> (u64, u64) {
        let [_, day] = &mut *self.windows.lock();
        day.turn();
        (day.tokens, day.micro_usd)
    }
}

impl Window {
    fn new(length: Duration) -> Self {
        Self {
            length,
            since: Instant::now(),
            requests: 0,
            tokens: 0,
            micro_usd: 0,
        }
    }

    /// A new one begins where this is over.
    fn turn(&mut self) {
        if self.since.elapsed() >= self.length {
            *self = Self::new(self.length);
        }
    }

    fn settle(&mut self, since: Instant, aside: (u64, u64), spent: (u64, u64)) {
        if self.since == since {
            self.tokens = self.tokens.saturating_sub(aside.0).saturating_add(spent.0);
            self.micro_usd = self
                .micro_usd
                .saturating_sub(aside.1)
                .saturating_add(spent.1);
        }
    }
}

/// What a call may use. When it goes, what wasn't spent is free again.
pub(super) struct Grant {
    ledger: Arc<Ledger>,
    /// Which minute and day it was taken from.
    since: [Instant; 2],
    most: Usage,
    spent: Mutex<Usage>,
}

impl Grant {
    /// The provider works on it: even a call that is cancelled has cost this.
    pub fn spend(&self, usage: Usage) {
        *self.spent.lock() = usage;
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let both = |usage: Usage| (usage.total(), self.ledger.cost(usage));
        let spent = *self.spent.get_mut();
        let (aside, spent) = (both(self.most), both(spent));
        for (window, since) in self.ledger.windows.lock().iter_mut().zip(self.since) {
            window.settle(since, aside, spent);
        }
    }
}

fn micro_usd(usd: f64) -> u64 {
    (usd * 1_000_000.0).round() as u64
}
