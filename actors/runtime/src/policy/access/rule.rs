//! Rules about who may use what, as they are written.

use std::sync::Arc;

use callboard_message::{DataClass, Principal, PrincipalKind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wildmatch::WildMatch;

use super::target::{AccessItem, AccessTarget, is_similar};

/// Maximum number of rules of one node. More are an error at start.
pub const ACCESS_RULES_MAX: usize = 1_000;
/// Maximum number of entries in one list of a rule. More are an error at start.
pub const ACCESS_RULE_ENTRIES_MAX: usize = 1_000;
/// Maximum length of an entry in a list of a rule, in bytes. A longer one is an error at start.
pub const ACCESS_ENTRY_BYTES_MAX: usize = 1_024;

/// Time for which a use waits for its approval if its rule doesn't say, in minutes.
pub const APPROVAL_MINUTES_DEFAULT: u32 = 60;
/// Maximum size of the approvers of one rule together, in bytes. More are an error at start.
pub const APPROVERS_BYTES_MAX: usize = 4 * 1024;
/// Maximum time for which a use waits for its approval, in minutes: 30 days. A longer one is an error at start.
pub const APPROVAL_MINUTES_MAX: u32 = 30 * 24 * 60;

/// Consequence of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessEffect {
    /// Permits uses to which the rule applies.
    Allow,
    /// Denies uses to which the rule applies.
    Deny,
    /// Permits a use of a tool to which the rule applies once a person has approved it.
    Approve,
}

/// Rule about who may use what. It applies if all its fields do. An empty list applies to everything;
/// but a rule with `tools`, `resources` or `prompts` applies only to what these name. Entries
/// are names or patterns (`*` for any characters, `?` for one).
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// Id in explanations and in the audit: letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// Consequence of the rule.
    pub effect: AccessEffect,
    /// Ids of principals, or kinds and ids, such as `token:corp.alice`.
    #[serde(default)]
    pub principals: Vec<String>,
    /// Scopes, of which the credential needs one. Roles are scopes: `role:ROLE`.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Purposes, of which the call must state one that its credential may claim.
    #[serde(default)]
    pub purposes: Vec<String>,
    /// Names of agents.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Data classes of agents.
    #[serde(default)]
    pub classes: Vec<DataClass>,
    /// Names of tools, skills and messages, or with a dot of agent and tool, such as `files.read_*`.
    #[serde(default)]
    pub tools: Vec<String>,
    /// URIs of resources.
    #[serde(default)]
    pub resources: Vec<String>,
    /// Names of prompts.
    #[serde(default)]
    pub prompts: Vec<String>,
    /// Conditions on the arguments of a tool, all of which must hold.
    #[serde(default)]
    pub when: Vec<ArgumentCondition>,
    /// Scopes, of which an approver needs one. Without any, the person at the caller approves.
    #[serde(default)]
    pub approvers: Vec<String>,
    /// Time after which a use that nobody has decided about isn't approved any more, in minutes; `None` for
    /// [`APPROVAL_MINUTES_DEFAULT`].
    #[serde(default)]
    pub approval_minutes: Option<u32>,
}

/// Condition on an argument of a tool. All the operators that it has must hold. It never holds for a
/// missing argument.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArgumentCondition {
    /// Name of the argument, or a path of names joined by `.` to one in nested objects.
    pub argument: String,
    /// The value.
    #[serde(default)]
    pub equals: Option<Value>,
    /// Values, of which the argument must be one.
    #[serde(default, rename = "in")]
    pub one_of: Option<Vec<Value>>,
    /// Pattern of the whole text (`*` for any characters, `?` for one).
    #[serde(default)]
    pub matches: Option<String>,
    /// Minimum of a number.
    #[serde(default)]
    pub min: Option<f64>,
    /// Maximum of a number.
    #[serde(default)]
    pub max: Option<f64>,
}

/// Mistake in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessRuleError {
    /// There are more than [`ACCESS_RULES_MAX`] rules.
    #[error("there are more than {ACCESS_RULES_MAX} rules: use patterns")]
    TooMany,
    /// The id has other characters, or another rule has it.
    #[error("`id` must have letters, digits, `.`, `_` or `-`, and be unique")]
    Id,
    /// A list has more than [`ACCESS_RULE_ENTRIES_MAX`] entries, or one that is empty or has more than
    /// [`ACCESS_ENTRY_BYTES_MAX`] bytes.
    #[error(
        "a list may have at most {ACCESS_RULE_ENTRIES_MAX} entries, each of 1 to {ACCESS_ENTRY_BYTES_MAX} bytes"
    )]
    Entries,
    /// A condition has no operator, or no argument.
    #[error(
        "each condition in `when` needs `argument` and one of `equals`, `in`, `matches`, `min` and `max`"
    )]
    Condition,
    /// The rule has conditions on arguments, and names resources or prompts.
    #[error("`when` is about arguments of tools: leave out `resources` and `prompts`")]
    ConditionWithoutTools,
    /// The rule needs approval, and names resources or prompts.
    #[error("`approve` is about tools: leave out `resources` and `prompts`")]
    ApprovalWithoutTools,
    /// The rule says who approves, or in what time, but needs no approval.
    #[error("`approvers` and `approval_minutes` need `effect = \"approve\"`")]
    NoApproval,
    /// The approvers of the rule have more than [`APPROVERS_BYTES_MAX`] bytes together.
    #[error("`approvers` may have at most {APPROVERS_BYTES_MAX} bytes together: use patterns")]
    Approvers,
    /// The time for approval is none, or too long.
    #[error(
        "`approval_minutes` must be between 1 and {APPROVAL_MINUTES_MAX}, and needs `approvers`"
    )]
    ApprovalMinutes,
}

impl AccessRule {
    /// Checks the rule by itself.
    ///
    /// # Errors
    /// Returns the first mistake.
    pub fn validate(&self) -> Result<(), AccessRuleError> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if self.id.is_empty()
            || self.id.len() > ACCESS_ENTRY_BYTES_MAX
            || !self.id.chars().all(is_fine)
        {
            return Err(AccessRuleError::Id);
        }
        let lists = [
            &self.principals,
            &self.scopes,
            &self.purposes,
            &self.agents,
            &self.tools,
            &self.resources,
            &self.prompts,
            &self.approvers,
        ];
        let fits = |entry: &String| (1..=ACCESS_ENTRY_BYTES_MAX).contains(&entry.len());
        let is_bounded =
            |list: &&Vec<String>| list.len() <= ACCESS_RULE_ENTRIES_MAX && list.iter().all(fits);
        if !lists.iter().all(is_bounded) || self.when.len() > ACCESS_RULE_ENTRIES_MAX {
            return Err(AccessRuleError::Entries);
        }
        if !self.when.iter().all(ArgumentCondition::is_complete) {
            return Err(AccessRuleError::Condition);
        }
        let is_about_tools = self.resources.is_empty() && self.prompts.is_empty();
        if !self.when.is_empty() && !is_about_tools {
            return Err(AccessRuleError::ConditionWithoutTools);
        }
        self.validate_approval(is_about_tools)
    }

    fn validate_approval(&self, is_about_tools: bool) -> Result<(), AccessRuleError> {
        if self.effect != AccessEffect::Approve {
            return match self.approvers.is_empty() && self.approval_minutes.is_none() {
                true => Ok(()),
                false => Err(AccessRuleError::NoApproval),
            };
        }
        if !is_about_tools {
            return Err(AccessRuleError::ApprovalWithoutTools);
        }
        if self.approvers.iter().map(String::len).sum::<usize>() > APPROVERS_BYTES_MAX {
            return Err(AccessRuleError::Approvers);
        }
        let fits = |minutes: u32| {
            (1..=APPROVAL_MINUTES_MAX).contains(&minutes) && !self.approvers.is_empty()
        };
        match self.approval_minutes.is_none_or(fits) {
            true => Ok(()),
            false => Err(AccessRuleError::ApprovalMinutes),
        }
    }
}

impl ArgumentCondition {
    fn is_complete(&self) -> bool {
        let operators = [
            self.equals.is_some(),
            self.one_of.is_some(),
            self.matches.is_some(),
            self.min.is_some(),
            self.max.is_some(),
        ];
        !self.argument.is_empty() && operators.contains(&true)
    }
}

/// Terms on which a use of a tool is approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalTerms {
    /// Id of the rule.
    pub rule: String,
    /// Scopes, of which an approver needs one. Empty if the person at the caller approves.
    pub approvers: Vec<String>,
    /// Time after which a use that nobody has decided about isn't approved any more, in minutes.
    pub minutes: u32,
}

/// A rule with its patterns, ready to be applied.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) id: String,
    pub(super) effect: AccessEffect,
    principals: Patterns,
    scopes: Patterns,
    purposes: Vec<String>,
    agents: Patterns,
    classes: Vec<DataClass>,
    tools: Patterns,
    resources: Patterns,
    prompts: Patterns,
    when: Vec<(ArgumentCondition, Option<WildMatch>)>,
    /// Terms of the approval that a use needs.
    pub(super) approval: Option<Arc<ApprovalTerms>>,
}

impl From<AccessRule> for CompiledRule {
    fn from(rule: AccessRule) -> Self {
        let when = rule.when.into_iter().map(|condition| {
            let pattern = condition.matches.as_deref().map(WildMatch::new);
            (condition, pattern)
        });
        let approval = (rule.effect == AccessEffect::Approve).then(|| {
            Arc::new(ApprovalTerms {
                rule: rule.id.clone(),
                approvers: rule.approvers,
                minutes: rule.approval_minutes.unwrap_or(APPROVAL_MINUTES_DEFAULT),
            })
        });
        Self {
            approval,
            id: rule.id,
            effect: rule.effect,
            principals: Patterns::new(&rule.principals, names_kind),
            scopes: Patterns::new(&rule.scopes, |_| false),
            purposes: rule.purposes,
            agents: Patterns::new(&rule.agents, |_| false),
            classes: rule.classes,
            tools: Patterns::new(&rule.tools, |entry| entry.contains('.')),
            resources: Patterns::new(&rule.resources, |_| false),
            prompts: Patterns::new(&rule.prompts, |_| false),
            when: when.collect(),
        }
    }
}

impl CompiledRule {
    /// Returns whether the rule decides about `target`, of an agent whose data class is `class`.
    pub(super) fn applies(
        &self,
        principal: &Principal,
        target: &AccessTarget<'_>,
        class: impl Fn() -> DataClass,
    ) -> bool {
        self.is_about(principal)
            && (self.agents.is_empty() || self.agents.has_plain(target.agent))
            && (self.classes.is_empty() || self.classes.contains(&class()))
            && self.covers(target)
    }

    fn is_about(&self, principal: &Principal) -> bool {
        let by_kind = || format!("{}:{}", principal.kind, principal.id);
        let is_named = self.principals.is_empty() || self.principals.has(&principal.id, by_kind);
        let mut scopes = principal.scopes.iter();
        let has_scope = self.scopes.is_empty() || scopes.any(|scope| self.scopes.has_plain(scope));
        let is_for_purpose = self.purposes.is_empty()
            || principal.purpose.as_ref().is_some_and(|stated| {
                self.purposes.contains(stated) && principal.may_claim_purpose(stated)
            });
        is_named && has_scope && is_for_purpose
    }

    /// Returns whether the rule has no conditions on arguments.
    pub(super) fn is_unconditional(&self) -> bool {
        self.when.is_empty()
    }

    /// Returns whether the rule names no item, so that it covers all of an agent.
    fn is_about_all(&self) -> bool {
        [&self.tools, &self.resources, &self.prompts]
            .into_iter()
            .all(Patterns::is_empty)
    }

    fn covers(&self, target: &AccessTarget<'_>) -> bool {
        let is_allowed = self.effect != AccessEffect::Deny;
        match &target.item {
            // To have something of it is enough, not to be denied something isn't.
            AccessItem::Agent => is_allowed || self.is_about_all() && self.when.is_empty(),
            AccessItem::Tool { name, arguments } => {
                let joined = || format!("{}.{name}", target.agent);
                let is_named = self.is_about_all() || self.tools.has(name, joined);
                is_named
                    && match arguments {
                        _ if self.when.is_empty() => true,
                        // In a list: it is shown if some arguments are permitted.
                        None => is_allowed,
                        Some(arguments) => self.hold_conditions(arguments),
                    }
            }
            AccessItem::Resource(_) | AccessItem::Prompt(_) if self.approval.is_some() => false,
            AccessItem::Resource(uri) => {
                self.when.is_empty() && (self.is_about_all() || self.resources.has_plain(uri))
            }
            AccessItem::Prompt(name) => {
                self.when.is_empty() && (self.is_about_all() || self.prompts.has_plain(name))
            }
        }
    }

    /// Returns whether all conditions hold. If that is doubtful, because the arguments aren't known or have a name
    /// twice but for its case, they hold for a rule that denies or needs approval.
    fn hold_conditions(&self, arguments: &RawValue) -> bool {
        let in_doubt = self.effect != AccessEffect::Allow;
        let arguments: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
        if !arguments.is_object() {
            return in_doubt;
        }
        self.when.iter().all(|(condition, pattern)| {
            let mut value = &arguments;
            for name in condition.argument.split('.') {
                if has_similar(value, name) {
                    return in_doubt;
                }
                let Some(inner) = value.get(name) else {
                    return false;
                };
                value = inner;
            }
            condition.holds(value, pattern.as_ref())
        })
    }
}

impl ArgumentCondition {
    fn holds(&self, value: &Value, pattern: Option<&WildMatch>) -> bool {
        let is_equal = |expected: &Value| is_same(expected, value);
        let is_matched =
            |pattern: &WildMatch| value.as_str().is_some_and(|text| pattern.matches(text));
        let is_large = |min: f64| value.as_f64().is_some_and(|number| number >= min);
        let is_small = |max: f64| value.as_f64().is_some_and(|number| number <= max);
        self.equals.as_ref().is_none_or(is_equal)
            && (self.one_of.as_ref()).is_none_or(|values| values.iter().any(is_equal))
            && pattern.is_none_or(is_matched)
            && self.min.is_none_or(is_large)
            && self.max.is_none_or(is_small)
    }
}

/// Returns whether an object has a name that is `name` but for its case. Some receivers take it for that.
fn has_similar(object: &Value, name: &str) -> bool {
    let members = object.as_object();
    members.is_some_and(|members| members.keys().any(|other| is_similar(other, name)))
}

/// Returns whether two values are equal. Numbers are compared by value: `1` is `1.0`.
fn is_same(one: &Value, other: &Value) -> bool {
    match one.is_f64() || other.is_f64() {
        true => one.as_f64() == other.as_f64(),
        false => one == other,
    }
}

/// Names and patterns of a list. Those that name more than the item itself, such as its agent, are compared
/// in that form alone: a part of one can't be taken for another.
#[derive(Debug, Default)]
pub(in crate::policy) struct Patterns {
    plain: Vec<WildMatch>,
    /// Entries of a longer form.
    qualified: Vec<WildMatch>,
}

impl Patterns {
    pub(in crate::policy) fn new(entries: &[String], is_qualified: impl Fn(&str) -> bool) -> Self {
        let mut patterns = Self::default();
        for entry in entries {
            let list = match is_qualified(entry) {
                true => &mut patterns.qualified,
                false => &mut patterns.plain,
            };
            list.push(WildMatch::new(entry));
        }
        patterns
    }

    pub(in crate::policy) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.qualified.is_empty()
    }

    /// Returns whether an entry matches `name`, or one of the longer form what `qualified` returns.
    pub(in crate::policy) fn has(&self, name: &str, qualified: impl FnOnce() -> String) -> bool {
        if self.plain.iter().any(|pattern| pattern.matches(name)) {
            return true;
        }
        if self.qualified.is_empty() {
            return false;
        }
        let qualified = qualified();
        let mut patterns = self.qualified.iter();
        patterns.any(|pattern| pattern.matches(&qualified))
    }

    pub(in crate::policy) fn has_plain(&self, name: &str) -> bool {
        self.plain.iter().any(|pattern| pattern.matches(name))
    }
}

/// Returns whether an entry about principals names their kind.
pub(in crate::policy) fn names_kind(entry: &str) -> bool {
    let kind = entry.split_once(':').map(|(kind, _)| kind);
    kind.is_some_and(|kind| PrincipalKind::parse(kind).is_some())
}
