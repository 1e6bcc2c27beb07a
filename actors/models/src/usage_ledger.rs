//! Usage limits of a model: tokens, money and calls, per call, minute and day.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Budget, Failure};
use callboard_runtime::ModelUse;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::{ModelError, ModelLimits, TokenPrices};
use super::request::TokenCounts;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum price in US dollars per million tokens. Higher ones are rejected as mistakes.
const PRICE_USD_MAX: f64 = 1_000_000.0;

/// Account of one model's token usage and cost, with its limits.
#[derive(Debug)]
pub(super) struct UsageLedger {
    limits: ModelLimits,
    /// Token prices; zero without configured prices.
    prices: TokenPrices,
    /// Usage of the current minute and day.
    windows: Mutex<[UsageWindow; 2]>,
}

/// Requests, tokens and cost that were used or reserved since the start of a time window, such as
/// the current day.
#[derive(Debug)]
struct UsageWindow {
    length: Duration,
    since: Instant,
    requests: u64,
    tokens: u64,
    micro_usd: u64,
}

impl UsageLedger {
    /// Creates the account.
    ///
    /// # Errors
    /// [`ModelError::InvalidSetting`] for invalid limits or prices.
    pub fn new(limits: &ModelLimits, prices: Option<TokenPrices>) -> Result<Arc<Self>, ModelError> {
        let wrong = |setting, rule| Err(ModelError::InvalidSetting { setting, rule });
        if limits.calls_max == 0 || limits.tokens_max == 0 {
            return wrong("limits", "`calls_max` and `tokens_max` must be at least 1");
        }
        let dollars = [limits.usd_per_call_max, limits.usd_per_day_max];
        if dollars
            .iter()
            .flatten()
            .any(|usd| !usd.is_finite() || *usd < 0.0)
        {
            return wrong(
                "limits",
                "`usd_per_call_max` and `usd_per_day_max` must be numbers of at least 0",
            );
        }
        if prices.is_none() && dollars.iter().any(Option::is_some) {
            return wrong(
                "prices",
                "they are missing, and `usd_per_call_max` and `usd_per_day_max` need them",
            );
        }
        let free = TokenPrices {
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
        let windows = Mutex::new([MINUTE, DAY].map(UsageWindow::new));
        Ok(Arc::new(Self {
            limits: limits.clone(),
            prices,
            windows,
        }))
    }

    /// Reserves the maximum usage of a call: `input` tokens (an estimate) and the answer's. Returns
    /// the reservation and the maximum tokens of the answer: the requested number `asked`, or else
    /// the model's limit, reduced to the limits of the call and the `budget`.
    ///
    /// # Errors
    /// `Overloaded`, naming the exhausted limit; nothing is reserved then.
    pub fn reserve(
        self: &Arc<Self>,
        input: u64,
        asked: Option<u32>,
        budget: Budget,
    ) -> Result<(UsageReservation, u32), Failure> {
        let limits = &self.limits;
        let mut output = u64::from(asked.unwrap_or(limits.tokens_max).min(limits.tokens_max));
        for tokens_max in [limits.tokens_per_call_max, budget.tokens]
            .into_iter()
            .flatten()
        {
            output = output.min(tokens_max.saturating_sub(input));
        }
        let money = [limits.usd_per_call_max.map(to_micro_usd), budget.micro_usd];
        for micro_usd_max in money.into_iter().flatten() {
            output = output.min(self.affordable_output_tokens(micro_usd_max, input));
        }
        if output == 0 {
            return Err(Failure::overloaded(
                "the conversation uses up the limit of tokens or money for one call: shorten it or raise the limit",
            ));
        }
        let most = TokenCounts { input, output };
        let (tokens, cost) = (most.total(), self.cost(most));
        let mut windows = self.windows.lock();
        windows.iter_mut().for_each(UsageWindow::reset_if_over);
        let [minute, day] = &*windows;
        let used = [
            (
                minute.requests + 1,
                limits.requests_per_minute_max,
                "`requests_per_minute_max`",
            ),
            (
                minute.tokens.saturating_add(tokens),
                limits.tokens_per_minute_max,
                "`tokens_per_minute_max`",
            ),
            (
                day.tokens.saturating_add(tokens),
                limits.tokens_per_day_max,
                "`tokens_per_day_max`",
            ),
            (
                day.micro_usd.saturating_add(cost),
                limits.usd_per_day_max.map(to_micro_usd),
                "`usd_per_day_max`",
            ),
        ];
        if let Some((.., what)) = used
            .iter()
            .find(|(used, max, _)| max.is_some_and(|max| *used > max))
        {
            return Err(Failure::overloaded(format!(
                "the model's limit {what} is used up: try again later, or raise it"
            )));
        }
        let since = [minute.since, day.since];
        for window in windows.iter_mut() {
            window.requests += 1;
            window.tokens = window.tokens.saturating_add(tokens);
            window.micro_usd = window.micro_usd.saturating_add(cost);
        }
        drop(windows);
        let grant = UsageReservation {
            ledger: self.clone(),
            since,
            reserved: most,
            spent: Mutex::default(),
            quotas: None,
        };
        Ok((grant, u32::try_from(output).unwrap_or(u32::MAX)))
    }

    /// Returns the cost in millionths of a US dollar, rounded up; 0 without prices. A price of one
    /// dollar per million tokens is a millionth per token.
    pub fn cost(&self, usage: TokenCounts) -> u64 {
        let TokenPrices {
            input_usd_per_million,
            output_usd_per_million,
        } = self.prices;
        (usage.input as f64 * input_usd_per_million + usage.output as f64 * output_usd_per_million)
            .ceil() as u64
    }

    /// Returns the number of output tokens that `micro_usd_max`, in millionths of a US dollar, pays
    /// for after `input` input tokens. It is 0 if that doesn't pay for the input, and `u64::MAX` if
    /// output is free.
    fn affordable_output_tokens(&self, micro_usd_max: u64, input: u64) -> u64 {
        let read = self.cost(TokenCounts { input, output: 0 });
        match micro_usd_max.checked_sub(read) {
            None => 0,
            Some(_) if self.prices.output_usd_per_million == 0.0 => u64::MAX,
            Some(left) => (left as f64 / self.prices.output_usd_per_million) as u64,
        }
    }

    /// Returns the tokens and the cost, in millionths of a US dollar, of the current day, including
    /// reservations. The day is a window of 24 hours, not a calendar day.
    pub fn usage_today(&self) -> (u64, u64) {
        let [_, day] = &mut *self.windows.lock();
        day.reset_if_over();
        (day.tokens, day.micro_usd)
    }
}

impl UsageWindow {
    fn new(length: Duration) -> Self {
        Self {
            length,
            since: Instant::now(),
            requests: 0,
            tokens: 0,
            micro_usd: 0,
        }
    }

    /// Starts a new window with zero usage if this one is over.
    fn reset_if_over(&mut self) {
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

/// Usage that is reserved for one call. Dropping it replaces the reservation by the usage recorded
/// last, which is none if [`Self::record_usage`] was never called.
pub(super) struct UsageReservation {
    ledger: Arc<UsageLedger>,
    /// Start times of the minute and the day in which the usage was reserved.
    since: [Instant; 2],
    reserved: TokenCounts,
    spent: Mutex<TokenCounts>,
    /// Use of the model by the call, which counts at its principal's quotas.
    quotas: Option<ModelUse>,
}

impl UsageReservation {
    /// Sets the use that counts at quotas, to be recorded with the usage, and returns the reservation.
    pub fn with_quotas(mut self, quotas: ModelUse) -> Self {
        self.quotas = Some(quotas);
        self
    }

    /// Records the usage of the call so far, in place of the one recorded before, so that a
    /// cancelled call is charged for it too.
    pub fn record_usage(&self, usage: TokenCounts) {
        *self.spent.lock() = usage;
        if let Some(quotas) = &self.quotas {
            quotas.record(usage.total(), self.ledger.cost(usage));
        }
    }
}

impl Drop for UsageReservation {
    fn drop(&mut self) {
        let both = |usage: TokenCounts| (usage.total(), self.ledger.cost(usage));
        let spent = *self.spent.get_mut();
        let (aside, spent) = (both(self.reserved), both(spent));
        for (window, since) in self.ledger.windows.lock().iter_mut().zip(self.since) {
            window.settle(since, aside, spent);
        }
    }
}

fn to_micro_usd(usd: f64) -> u64 {
    (usd * 1_000_000.0).round() as u64
}
