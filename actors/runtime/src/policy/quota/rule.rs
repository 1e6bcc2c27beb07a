//! Quotas as they are written, and what they apply to.

use std::sync::Arc;

use callboard_message::mail::RETRY_AFTER_DATA_KEY;
use callboard_message::time::format_rfc3339;
use callboard_message::{Failure, Principal};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::counter::{CounterKey, CounterOwner, Usage};
use super::window::{QuotaWindow, to_time};
use crate::policy::access::{
    ACCESS_ENTRY_BYTES_MAX, ACCESS_RULE_ENTRIES_MAX, AccessItem, Patterns, is_bound, names_kind,
};

/// Maximum number of quotas of one node. More are an error at start.
pub const QUOTAS_MAX: usize = 100;
/// Maximum length of the id of a quota, in bytes: it is a part of names in the store. A longer one is an error at
/// start.
pub const QUOTA_ID_BYTES_MAX: usize = 128;
/// Maximum amount of money of a quota, in US dollars. A larger one is an error at start.
pub const QUOTA_USD_MAX: f64 = 1_000_000_000.0;
/// Minimum amount of money of a quota, in US dollars.
const QUOTA_USD_MIN: f64 = 0.000_001;

/// Principals that use up a quota together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaShare {
    /// Each principal has the quota for itself. The operator and the node's own agents aren't bound.
    #[default]
    Principal,
    /// All principals have the quota together.
    All,
}

/// Limit of calls, tokens or money in a window of time. It applies if all its fields do; an empty list applies to
/// everything. Entries are names or patterns (`*` for any characters, `?` for one). With `models`, it counts the
/// requests that these models answer on behalf of a principal, whoever asks; else the calls of a principal at
/// agents.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Id in errors and in the store: letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// Window of time.
    pub window: QuotaWindow,
    /// Principals that use it up together.
    #[serde(default)]
    pub share: QuotaShare,
    /// Ids of principals, or kinds and ids, such as `token:corp.alice`.
    #[serde(default)]
    pub principals: Vec<String>,
    /// Scopes, of which the credential needs one.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Names of agents.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Names of tools, skills and messages, or with a dot of agent and tool, such as `files.read_*`.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Ids of language models.
    #[serde(default)]
    pub models: Vec<String>,
    /// Maximum number of calls.
    #[serde(default)]
    pub calls: Option<u64>,
    /// Number of tokens, input and output together, after which no further request is answered.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Amount of money in US dollars after which no further request is answered. The models need prices.
    #[serde(default)]
    pub usd: Option<f64>,
}

/// Mistake in a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// There are more than [`QUOTAS_MAX`] quotas.
    #[error("there are more than {QUOTAS_MAX} quotas: use patterns")]
    TooMany,
    /// The id has other characters or more than [`QUOTA_ID_BYTES_MAX`] bytes, or another quota has it.
    #[error(
        "`id` must have 1 to {QUOTA_ID_BYTES_MAX} letters, digits, `.`, `_` or `-`, and be unique"
    )]
    Id,
    /// A list has too many entries, or one that is empty or too long.
    #[error(
        "a list may have at most {ACCESS_RULE_ENTRIES_MAX} entries, each of 1 to {ACCESS_ENTRY_BYTES_MAX} bytes"
    )]
    Entries,
    /// It limits nothing.
    #[error("it limits nothing: write `calls`, `tokens` or `usd`")]
    NoLimit,
    /// A limit is too small or too large.
    #[error(
        "`calls` and `tokens` must be at least 1, and `usd` a number from {QUOTA_USD_MIN} to {QUOTA_USD_MAX}"
    )]
    Limit,
    /// It limits tokens or money without models.
    #[error("only models use tokens and money: add `models` with their ids, or `\"*\"` for all")]
    WithoutModels,
    /// It is about models, and about agents or tools.
    #[error(
        "a request to a model counts whoever asks: leave out `agents` and `tools`, or write another quota"
    )]
    ModelsAndAgents,
}

impl Quota {
    /// Checks the quotas of a node.
    ///
    /// # Errors
    /// Returns the first mistake and the position of its quota.
    pub fn validate_all(quotas: &[Self]) -> Result<(), (usize, QuotaError)> {
        if quotas.len() > QUOTAS_MAX {
            return Err((QUOTAS_MAX, QuotaError::TooMany));
        }
        for (at, quota) in quotas.iter().enumerate() {
            quota.validate().map_err(|error| (at, error))?;
            if quotas.iter().take(at).any(|other| other.id == quota.id) {
                return Err((at, QuotaError::Id));
            }
        }
        Ok(())
    }

    /// Checks the quota by itself.
    ///
    /// # Errors
    /// Returns the first mistake.
    pub fn validate(&self) -> Result<(), QuotaError> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let length = self.id.len();
        if !(1..=QUOTA_ID_BYTES_MAX).contains(&length) || !self.id.chars().all(is_fine) {
            return Err(QuotaError::Id);
        }
        let lists = [
            &self.principals,
            &self.scopes,
            &self.agents,
            &self.tools,
            &self.models,
        ];
        let fits = |entry: &String| (1..=ACCESS_ENTRY_BYTES_MAX).contains(&entry.len());
        let is_bounded =
            |list: &&Vec<String>| list.len() <= ACCESS_RULE_ENTRIES_MAX && list.iter().all(fits);
        if !lists.iter().all(is_bounded) {
            return Err(QuotaError::Entries);
        }
        if self.calls.is_none() && self.tokens.is_none() && self.usd.is_none() {
            return Err(QuotaError::NoLimit);
        }
        let is_none = [self.calls, self.tokens].contains(&Some(0));
        let is_amount = |usd: f64| (QUOTA_USD_MIN..=QUOTA_USD_MAX).contains(&usd);
        if is_none || self.usd.is_some_and(|usd| !is_amount(usd)) {
            return Err(QuotaError::Limit);
        }
        let is_about_use = self.tokens.is_some() || self.usd.is_some();
        if self.models.is_empty() && is_about_use {
            return Err(QuotaError::WithoutModels);
        }
        match self.models.is_empty() || self.agents.is_empty() && self.tools.is_empty() {
            true => Ok(()),
            false => Err(QuotaError::ModelsAndAgents),
        }
    }
}

/// A quota with its patterns, ready to be applied.
#[derive(Debug)]
pub(super) struct CompiledQuota {
    pub id: Arc<str>,
    pub window: QuotaWindow,
    share: QuotaShare,
    principals: Patterns,
    scopes: Patterns,
    agents: Patterns,
    tools: Patterns,
    models: Patterns,
    calls: Option<u64>,
    tokens: Option<u64>,
    usd: Option<f64>,
}

impl From<Quota> for CompiledQuota {
    fn from(quota: Quota) -> Self {
        Self {
            id: quota.id.into(),
            window: quota.window,
            share: quota.share,
            principals: Patterns::new(&quota.principals, names_kind),
            scopes: Patterns::new(&quota.scopes, |_| false),
            agents: Patterns::new(&quota.agents, |_| false),
            tools: Patterns::new(&quota.tools, |entry| entry.contains('.')),
            models: Patterns::new(&quota.models, |_| false),
            calls: quota.calls,
            tokens: quota.tokens,
            usd: quota.usd,
        }
    }
}

impl CompiledQuota {
    /// Returns whether calls of a principal at an agent count, if [`Self::covers`] their items.
    pub fn counts_calls(&self, principal: &Principal, agent: &str) -> bool {
        self.models.is_empty()
            && self.is_about(principal)
            && (self.agents.is_empty() || self.agents.has_plain(agent))
    }

    /// Returns whether the use of an item of an agent counts. One that can't be read could be any.
    pub fn covers(&self, agent: &str, item: Option<&AccessItem<'_>>) -> bool {
        self.tools.is_empty()
            || match item {
                Some(AccessItem::Tool { name, .. }) => {
                    self.tools.has(name, || format!("{agent}.{name}"))
                }
                Some(_) => false,
                None => true,
            }
    }

    /// Returns whether requests to a model on behalf of a principal count.
    pub fn counts_model(&self, principal: &Principal, model: &str) -> bool {
        // Without any, it is about agents.
        self.models.has_plain(model) && self.is_about(principal)
    }

    fn is_about(&self, principal: &Principal) -> bool {
        let by_kind = || format!("{}:{}", principal.kind, principal.id);
        let is_counted = self.share == QuotaShare::All || is_bound(principal);
        let is_named = self.principals.is_empty() || self.principals.has(&principal.id, by_kind);
        let mut scopes = principal.scopes.iter();
        let has_scope = self.scopes.is_empty() || scopes.any(|scope| self.scopes.has_plain(scope));
        is_counted && is_named && has_scope
    }

    /// Returns the key of a principal's own counter.
    pub fn counter_key(&self, principal: &Principal) -> CounterKey {
        CounterKey {
            quota: self.id.clone(),
            window: self.window,
            owner: match self.share {
                QuotaShare::All => CounterOwner::All,
                QuotaShare::Principal => {
                    CounterOwner::Principal(principal.kind, principal.id.clone())
                }
            },
        }
    }

    /// Returns whether a counter is one of this quota.
    pub fn has_counter(&self, key: &CounterKey) -> bool {
        self.id == key.quota && self.window == key.window
    }

    /// Returns the limit that is used up, with its unit; `None` if there is room for another call.
    pub fn exhausted_limit(&self, used: Usage) -> Option<String> {
        if let Some(calls) = self.calls.filter(|calls| used.calls >= *calls) {
            return Some(format!("{calls} calls"));
        }
        if let Some(tokens) = self.tokens.filter(|tokens| used.tokens >= *tokens) {
            return Some(format!("{tokens} tokens"));
        }
        let is_spent = |usd: &f64| used.micro_usd >= to_micro_usd(*usd);
        let usd = self.usd.filter(is_spent)?;
        Some(format!("{usd} US dollars"))
    }

    /// Returns the refusal of a call. `limit` is used up until `end_s`, in seconds since the Unix epoch.
    pub fn refusal(&self, limit: &str, end_s: u64, now_s: u64) -> Failure {
        let (id, window) = (&*self.id, self.window.as_str());
        let resets_at = format_rfc3339(to_time(end_s));
        let shared = match self.share {
            QuotaShare::Principal => "",
            QuotaShare::All => ", which several principals share,",
        };
        let why = format!(
            "the quota `{id}` of {limit} per {window}{shared} is used up: it resets at {resets_at}"
        );
        Failure::overloaded(why).with_data(json!({
            "reason": "quota",
            "quota": id,
            "resets_at": resets_at,
            RETRY_AFTER_DATA_KEY: end_s.saturating_sub(now_s).max(1),
        }))
    }
}

/// Returns an amount of US dollars in millionths of one.
fn to_micro_usd(usd: f64) -> u64 {
    (usd * 1_000_000.0).round() as u64
}
