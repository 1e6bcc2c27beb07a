//! Rights: which principal may use which agents, tools, resources and prompts, by rules.
//!
//! The first rule that applies decides; without one, the use is denied. The operator of the process
//! and its own agents aren't bound by rules.

mod rule;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use callboard_message::{DataClass, Failure, Principal, PrincipalKind, RawObject, RawReply};
use derive_more::Debug;
use serde_json::json;

pub use rule::{
    ACCESS_ENTRY_BYTES_MAX, ACCESS_RULE_ENTRIES_MAX, ACCESS_RULES_MAX, APPROVAL_MINUTES_DEFAULT,
    APPROVAL_MINUTES_MAX, APPROVERS_BYTES_MAX, AccessEffect, AccessRule, AccessRuleError,
    ApprovalTerms, ArgumentCondition,
};
pub use target::{AccessItem, AccessTarget, has_ambiguous_names};

use super::audit_policy::DataClassLookup;
use super::{AWAY_META_KEY, ItemList, PolicyChain, PolicyRequest, RULES_MEMBER};
use rule::CompiledRule;
pub(super) use rule::{Patterns, names_kind};

/// Rules about who may use what, in order.
#[derive(Debug)]
pub struct AccessRules {
    rules: Vec<CompiledRule>,
    #[debug(skip)]
    class_of: DataClassLookup,
}

/// Decision about the use of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessDecision<'a> {
    /// Whether the use is permitted.
    pub is_permitted: bool,
    /// Terms on which a use is permitted; `None` if it needs no approval.
    pub approval: Option<&'a Arc<ApprovalTerms>>,
    /// Id of the rule that decided; `None` if no rule applies, or the principal isn't bound by rules.
    pub rule: Option<&'a str>,
}

/// Rules that permit nothing.
impl Default for AccessRules {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            class_of: Arc::new(|_| DataClass::Clinical),
        }
    }
}

impl AccessRules {
    /// Creates rules, of which the first that applies decides. `class_of` returns the data class of an
    /// agent.
    ///
    /// # Errors
    /// Returns the first mistake and the position of its rule.
    pub fn new(
        rules: Vec<AccessRule>,
        class_of: DataClassLookup,
    ) -> Result<Self, (usize, AccessRuleError)> {
        if rules.len() > ACCESS_RULES_MAX {
            return Err((ACCESS_RULES_MAX, AccessRuleError::TooMany));
        }
        for (at, rule) in rules.iter().enumerate() {
            rule.validate().map_err(|error| (at, error))?;
            if rules.iter().take(at).any(|other| other.id == rule.id) {
                return Err((at, AccessRuleError::Id));
            }
        }
        Ok(Self {
            rules: rules.into_iter().map(CompiledRule::from).collect(),
            class_of,
        })
    }

    /// Decides whether a principal may use something.
    pub fn decide(&self, principal: &Principal, target: &AccessTarget<'_>) -> AccessDecision<'_> {
        if !is_bound(principal) {
            return AccessDecision {
                is_permitted: true,
                approval: None,
                rule: None,
            };
        }
        let class = || (self.class_of)(target.agent);
        let mut rules = self.rules.iter();
        let decisive = rules.find(|rule| rule.applies(principal, target, class));
        let approval = decisive.and_then(|rule| rule.approval.as_ref());
        let is_call = !matches!(target.item, AccessItem::Agent);
        // Clinical data isn't kept for approvers.
        let is_stored = approval.is_some_and(|terms| !terms.approvers.is_empty());
        let is_withheld = is_call && is_stored && class() == DataClass::Clinical;
        let is_permitted = decisive.is_some_and(|rule| rule.effect != AccessEffect::Deny);
        AccessDecision {
            is_permitted: is_permitted && !is_withheld,
            approval,
            rule: decisive.map(|rule| &*rule.id),
        }
    }

    /// Returns whether a rule that needs approvals applies to some use: before any rule that applies to all of them, if
    /// the target is a tool.
    fn may_demand_approval(&self, principal: &Principal, target: &AccessTarget<'_>) -> bool {
        let class = || (self.class_of)(target.agent);
        let mut rules = self.rules.iter();
        let first = rules.find(|rule| {
            let is_decisive = rule.approval.is_some()
                || rule.is_unconditional() && !matches!(target.item, AccessItem::Agent);
            is_decisive && rule.applies(principal, target, class)
        });
        first.is_some_and(|rule| rule.approval.is_some())
    }

    /// Checks that a principal may use something. Returns the terms of the approval that it needs.
    ///
    /// # Errors
    /// `Denied`, with the id of the rule in its data.
    fn check(
        &self,
        principal: &Principal,
        target: &AccessTarget<'_>,
    ) -> Result<Option<Arc<ApprovalTerms>>, Failure> {
        let decision = self.decide(principal, target);
        if decision.is_permitted {
            let is_call = !matches!(target.item, AccessItem::Agent);
            return Ok(decision.approval.filter(|_| is_call).cloned());
        }
        let what = match &target.item {
            AccessItem::Agent => "this agent",
            AccessItem::Tool {
                arguments: Some(_), ..
            } => "this tool with these arguments",
            AccessItem::Tool { .. } => "this tool",
            AccessItem::Resource(_) => "this resource",
            AccessItem::Prompt(_) => "this prompt",
        };
        let rules: Vec<_> = decision.rule.into_iter().collect();
        let why = match decision.approval {
            Some(_) => "clinical data isn't kept for approvers: ask the operator for a rule that needs an approval by the person at the caller, without `approvers`".to_owned(),
            None => format!(
                "the rules of this node don't permit you {what}: ask its operator, who finds the rule by `callboard policy explain`"
            ),
        };
        Err(Failure::denied(why).with_data(json!({ "reason": "access", RULES_MEMBER: rules })))
    }

    /// Removes from the reply to `message` the items of a list that the principal may not use. Another
    /// reply is returned as it is.
    fn filter_list(
        &self,
        principal: &Principal,
        agent: &str,
        message: &str,
        reply: RawReply,
    ) -> RawReply {
        let reply = reply?;
        let Some(mut list) = ItemList::read(message, &reply) else {
            return Ok(reply);
        };
        let all = list.items.len();
        list.items.retain(|item| {
            let item = RawObject::parse(item).ok();
            let item = item.and_then(|item| AccessItem::of_listed(message, &item));
            item.is_some_and(|item| {
                let target = AccessTarget { agent, item };
                self.decide(principal, &target).is_permitted
            })
        });
        if list.items.len() == all {
            return Ok(reply);
        }
        let items = std::mem::take(&mut list.items);
        let mut rest = list.with(&items);
        // It may name what isn't shown.
        if let Some(mut meta) = rest.object("_meta") {
            meta.remove(AWAY_META_KEY);
            rest.set("_meta", meta);
        }
        Ok(rest.to_raw())
    }
}

/// Returns whether a principal is bound by rules.
pub(super) fn is_bound(principal: &Principal) -> bool {
    !matches!(
        principal.kind,
        PrincipalKind::LocalOperator | PrincipalKind::Agent
    )
}

impl PolicyChain {
    /// Replaces the rules about who may use what; `None` for none, so that everything is permitted.
    pub fn set_access_rules(&self, rules: Option<Arc<AccessRules>>) {
        let has_rules = rules.is_some();
        let needs_approvals = rules.as_ref().is_some_and(|rules| {
            let mut rules = rules.rules.iter();
            rules.any(|rule| rule.approval.is_some())
        });
        // The flag is never down while a rule that needs it is up.
        self.needs_approvals.fetch_or(needs_approvals, Release);
        *self.access.lock() = rules;
        self.needs_approvals.store(needs_approvals, Release);
        self.has_access_rules.store(has_rules, Release);
    }

    /// Returns the rules that bind a principal; `None` if there are none.
    fn access_rules_for(&self, principal: &Principal) -> Option<Arc<AccessRules>> {
        self.binds(principal)
            .then(|| self.access.lock().clone())
            .flatten()
    }

    /// Checks that the principal of a message may use what the message is about. Returns what it uses and the
    /// terms of the approval that the use needs; `None` if it needs none.
    ///
    /// # Errors
    /// `Denied`, after all policies were told of it by [`Policy::on_rejected`](super::Policy::on_rejected).
    pub(crate) async fn authorize<'a>(
        &self,
        request: PolicyRequest<'a>,
    ) -> Result<Option<(Arc<ApprovalTerms>, AccessItem<'a>)>, Failure> {
        let Some(rules) = self.access_rules_for(request.principal) else {
            return Ok(None);
        };
        let checked = match AccessItem::of_message(request.message, request.payload) {
            Some(item) => {
                let agent = request.agent;
                let target = AccessTarget { agent, item };
                let terms = rules.check(request.principal, &target);
                terms.map(|terms| terms.map(|terms| (terms, target.item)))
            }
            None => Err(Failure::invalid(
                "the message must name what it uses: `name`, `uri` or `method` as a text, or `ref` with its `type` and only the member for it, and nothing by names in another case",
            )),
        };
        if let Err(failure) = &checked {
            self.tell_rejected(None, request, failure).await;
        }
        checked
    }

    /// Returns whether some use by a principal needs an approval: of a tool whatever its arguments, or of any tool of
    /// an agent.
    pub(crate) fn may_demand_approval(
        &self,
        principal: &Principal,
        target: &AccessTarget<'_>,
    ) -> bool {
        let rules = self.access_rules_for(principal);
        rules.is_some_and(|rules| rules.may_demand_approval(principal, target))
    }

    /// Returns whether a use by this principal may need an approval.
    pub(crate) fn may_need_approval(&self, principal: &Principal) -> bool {
        self.needs_approvals.load(Acquire) && is_bound(principal)
    }

    /// Returns whether rules bind a principal.
    pub(crate) fn binds(&self, principal: &Principal) -> bool {
        self.has_access_rules.load(Acquire) && is_bound(principal)
    }

    /// Returns whether a principal may use something.
    pub(crate) fn permits(&self, principal: &Principal, target: &AccessTarget<'_>) -> bool {
        let rules = self.access_rules_for(principal);
        rules.is_none_or(|rules| rules.decide(principal, target).is_permitted)
    }

    /// Returns the reply to a message without the items of a list that its principal may not use.
    pub(crate) fn without_denied(&self, request: PolicyRequest<'_>, reply: RawReply) -> RawReply {
        let PolicyRequest {
            principal,
            agent,
            message,
            ..
        } = request;
        match self.access_rules_for(principal) {
            Some(rules) => rules.filter_list(principal, agent, message, reply),
            None => reply,
        }
    }
}
