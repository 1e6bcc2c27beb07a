//! Aggregate agent: presents the tools, resources and prompts of several member agents as those of
//! one agent.
//!
//! A tool keeps its name if no other member has it; otherwise it becomes `member__tool`. Tools and
//! prompts that a member lists itself are `member__name`, unless the member keeps its names: the
//! member's list may change at run time, and a name must not change its meaning ([`PrefixMode`]). A
//! name without prefix that isn't listed can be called while one member has it. A [`ToolFilter`]
//! selects and renames the tools of each member. Principal, deadline, questions and cancellation
//! are passed on with each call.
//!
//! An unavailable or slow member doesn't affect others: members are called concurrently, with a
//! time limit. Missing members are reported in a list's `_meta` ([`MISSING_META_KEY`]) and in the
//! instructions. When a missing member is available again, watchers of the aggregate are notified
//! that its lists have changed.

mod calls;
mod describe;
mod handlers;
mod list;
mod member;
mod missing;
mod names;
mod resolve;
mod resources;
#[cfg(test)]
mod tests;
mod tools;
mod uris;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{Agent, AgentRef, PRINCIPAL_SHARE_PERCENT_DEFAULT, System};
use schemars::JsonSchema;
use serde::Deserialize;

use calls::CallRouter;
use describe::MemberDescriptions;
use list::ListReader;
use member::MemberState;
use names::{NameFilter, NameMapping, sanitize_name};
use resolve::NameResolver;
use resources::ResourceRouter;
use uris::ResourceIndex;

pub use missing::MISSING_META_KEY;

/// Maximum number of members of an aggregate agent. With more, it can't be created. Fixed.
pub const AGGREGATE_MEMBERS_MAX: usize = 64;
/// Maximum items on one page of an aggregate's lists, unless a single member's page has more.
/// Further items follow by `nextCursor`. Fixed.
pub const AGGREGATE_PAGE_ITEMS_MAX: usize = 200;
/// Maximum pages that are read of one member's list. Further pages are omitted and reported as
/// missing. Fixed.
pub const AGGREGATE_MEMBER_PAGES_MAX: usize = 1_000;
/// Maximum number of requests of one type that an aggregate handles at once. Further ones wait. Of
/// those that a server receives, one principal has at most three quarters by default, and another
/// always has room ([`AggregateOptions::principal_share_percent`]). Fixed.
pub const AGGREGATE_CALLS_MAX: u32 = 256;
/// Default time that an aggregate waits for a member's lists and description. At most three
/// quarters of the call's remaining time are used. After it, the member is left out and reported as
/// missing. Changed by [`AggregateOptions::list_timeout`].
pub const AGGREGATE_LIST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Time that an aggregate waits for the lists and description of its only member, if
/// [`AggregateOptions::list_timeout`] is shorter. At most three quarters of the call's remaining
/// time are used. Fixed.
pub const AGGREGATE_SOLE_LIST_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit for the lists and description of a member that timed out within the last
/// [`AGGREGATE_SLOW_PERIOD`]. It replaces [`AggregateOptions::list_timeout`], so that one slow
/// member doesn't delay every list. Fixed.
pub const AGGREGATE_SLOW_TIMEOUT: Duration = Duration::from_millis(250);
/// Period after a timeout in which a member is given only [`AGGREGATE_SLOW_TIMEOUT`]. Fixed.
pub const AGGREGATE_SLOW_PERIOD: Duration = Duration::from_secs(30);
/// Pause before the first probe of a missing member. Each further pause is twice as long. Fixed.
pub const AGGREGATE_PROBE_PAUSE_MIN: Duration = Duration::from_secs(5);
/// Maximum pause between two probes of a missing member. Fixed.
pub const AGGREGATE_PROBE_PAUSE_MAX: Duration = Duration::from_secs(160);
/// Extra wait for a preferred answer. If several members have a resource, the first in order is
/// preferred; after another has answered, the aggregate waits this long for the first. Fixed.
pub const AGGREGATE_READ_GRACE: Duration = Duration::from_millis(250);
/// Maximum entries of each cache of an aggregate: owners of resources, and truncated names. The
/// least used are evicted and looked up again when needed. Fixed.
pub const AGGREGATE_CACHE_ENTRIES_MAX: usize = 10_000;
/// Maximum length of a cached resource URI, in bytes. The member that has a resource with a longer
/// URI is looked up each time. Fixed.
pub const AGGREGATE_URI_BYTES_MAX: usize = 2_048;
/// Maximum length of the original of a truncated name that is cached, in bytes. A longer one is
/// looked up each time. Fixed.
pub const AGGREGATE_NAME_BYTES_MAX: usize = 1_024;
/// Maximum number of resources with subscriptions through one aggregate. A subscription to a
/// further resource fails with `Overloaded`. Fixed.
pub const AGGREGATE_SUBSCRIPTIONS_MAX: usize = 10_000;

/// Agent that combines the tools, resources and prompts of several member agents. Cheap to clone.
/// With `SAMPLES` it also handles `callboard.sample`, by forwarding it to the member that handles
/// it; of several, to the one that the request's model preferences name.
#[derive(derive_more::Debug, Clone)]
#[debug("{:?}", parts.members.iter().map(|member| &member.name).collect::<Vec<_>>())]
pub struct AggregateAgent<const SAMPLES: bool = false> {
    parts: Arc<AggregateServices>,
}

/// Parts of an aggregate agent, each with one task.
struct AggregateServices {
    members: Arc<[MemberState]>,
    list_timeout: Duration,
    principal_share_percent: u8,
    resource_index: Arc<ResourceIndex>,
    descriptions: MemberDescriptions,
    lists: ListReader,
    calls: CallRouter,
    resources: ResourceRouter,
}

impl AggregateAgent {
    /// Creates an aggregate of named agents that shows all their tools. The same members result in
    /// the same tool names in every process.
    ///
    /// # Errors
    /// [`AggregateError`], if there are too many members, or their names can't be distinguished.
    pub fn new(
        members: impl IntoIterator<Item = (String, AgentRef)>,
    ) -> Result<Self, AggregateError> {
        let members = members
            .into_iter()
            .map(|(name, agent)| AggregateMember::new(name, agent));
        Self::with_options(members, AggregateOptions::default())
    }

    /// Creates an aggregate of members with tool filters and options.
    ///
    /// # Errors
    /// [`AggregateError`], if there are too many members, a tool filter or the options are invalid,
    /// or names can't be distinguished.
    pub fn with_options(
        members: impl IntoIterator<Item = AggregateMember>,
        options: AggregateOptions,
    ) -> Result<Self, AggregateError> {
        let mut members = members
            .into_iter()
            .map(|member| MemberState::new(member, &options))
            .collect::<Result<Vec<_>, _>>()?;
        validate(&members, &options)?;
        // Without other members, nothing is gained by leaving one out.
        let list_timeout = match members.len() {
            1 => options.list_timeout.max(AGGREGATE_SOLE_LIST_TIMEOUT),
            _ => options.list_timeout,
        };
        let names = members.iter().map(|member| &*member.name);
        let resource_index = Arc::new(ResourceIndex::new(names));
        if members.len() > 1 {
            for (at, member) in members.iter_mut().enumerate() {
                member.share_resources(at, &resource_index);
            }
        }
        let members: Arc<[MemberState]> = members.into();
        let all = || members.clone();
        let names = Arc::new(NameResolver::new(all(), &options, list_timeout));
        Ok(Self {
            parts: Arc::new(AggregateServices {
                descriptions: MemberDescriptions::new(all(), names.clone(), list_timeout),
                lists: ListReader::new(all(), names.clone(), resource_index.clone(), list_timeout),
                calls: CallRouter::new(all(), names),
                resources: ResourceRouter::new(all(), resource_index.clone()),
                members,
                list_timeout,
                principal_share_percent: options.principal_share_percent,
                resource_index,
            }),
        })
    }

    /// Starts the aggregate agent under `label`. It handles `callboard.sample` if one of its
    /// members declares this message. If it is started by [`System::spawn`] instead, it
    /// doesn't.
    pub fn spawn(self, system: &System, label: &str) -> AgentRef {
        let Self { parts } = self;
        let profile = Self::profile().principal_share(parts.principal_share_percent);
        match parts.calls.has_sampler() {
            false => system
                .prepare_with(move || Self {
                    parts: parts.clone(),
                })
                .label(label)
                .profile(profile)
                .spawn(),
            true => system
                .prepare_with(move || AggregateAgent::<true> {
                    parts: parts.clone(),
                })
                .label(label)
                .profile(profile)
                .spawn(),
        }
    }
}

fn validate(members: &[MemberState], options: &AggregateOptions) -> Result<(), AggregateError> {
    if members.len() > AGGREGATE_MEMBERS_MAX {
        return Err(AggregateError::TooManyMembers);
    }
    for (at, member) in members.iter().enumerate() {
        let name = sanitize_name(&member.name);
        for other in members.iter().take(at) {
            if sanitize_name(&other.name) == name {
                return Err(AggregateError::SameName(name));
            }
            let (one, other) = (
                member.prefix(options.separator),
                other.prefix(options.separator),
            );
            if one.starts_with(&other) || other.starts_with(&one) {
                return Err(AggregateError::Separator(other, one));
            }
        }
    }
    let mut keeping = members
        .iter()
        .filter(|member| member.keeps_names(options.prefix));
    match (keeping.next(), keeping.next()) {
        (Some(one), Some(other)) => Err(AggregateError::NeedsPrefix(
            one.name.clone(),
            other.name.clone(),
        )),
        _ => Ok(()),
    }
}

/// Member of an aggregate agent: its name, its agent and its tool filter.
#[derive(Debug, Clone)]
pub struct AggregateMember {
    /// Name of the member, used as the prefix of its tools with `_` for characters that tool names
    /// don't allow. No other member may have the same prefix.
    pub name: String,
    /// Agent of the member.
    pub agent: AgentRef,
    /// Filter and new names for the member's tools.
    pub filter: ToolFilter,
    /// True if the tools and prompts that the member lists itself have no prefix with
    /// [`PrefixMode::WhereNeeded`]. At most one member can keep its names.
    pub keeps_names: bool,
}

impl AggregateMember {
    /// Creates a member that shows all its tools under their original names.
    pub fn new(name: impl Into<String>, agent: AgentRef) -> Self {
        Self {
            name: name.into(),
            agent,
            filter: ToolFilter::default(),
            keeps_names: false,
        }
    }

    /// Sets the filter and the new names of the member's tools.
    pub fn with_filter(self, filter: ToolFilter) -> Self {
        Self { filter, ..self }
    }

    /// Sets whether the names that the member lists itself have no prefix.
    pub fn with_kept_names(self, keeps_names: bool) -> Self {
        Self {
            keeps_names,
            ..self
        }
    }
}

/// Selection and renaming of a member's tools. A tool that isn't shown can't be called either.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolFilter {
    /// Patterns ([`callboard_runtime::NamePatterns`]) of the original names of tools to show.
    /// Empty: all.
    pub allow: Vec<String>,
    /// Patterns of the original names of tools to hide. Takes precedence over `allow`.
    pub deny: Vec<String>,
    /// New name of each renamed tool, by its original name. If another tool of the member has that
    /// new name as its original one, the other tool is hidden.
    pub rename: BTreeMap<String, String>,
}

impl ToolFilter {
    /// Returns the patterns of `allow` and `deny`, and the original names of `rename`, that match
    /// none of the `tools` of a member.
    pub fn unmatched<'a>(&'a self, tools: &[String]) -> Vec<&'a str> {
        let patterns = self
            .allow
            .iter()
            .chain(&self.deny)
            .chain(self.rename.keys());
        let is_unmatched = |pattern: &&String| {
            let pattern = NameFilter::new(std::slice::from_ref(*pattern), &[]);
            !tools.iter().any(|tool| pattern.passes(tool))
        };
        patterns.filter(is_unmatched).map(String::as_str).collect()
    }

    /// Returns whether `pattern`, one of [`AggregateOptions::allow`] or `deny`, matches the shown
    /// name of a tool of the member named `member` with this filter, with or without the member's
    /// prefix. `tools` are the original names of its tools.
    ///
    /// # Errors
    /// [`AggregateError::Rename`] if the filter is invalid.
    pub fn is_selected_by(
        &self,
        pattern: &str,
        member: &str,
        tools: &[String],
    ) -> Result<bool, AggregateError> {
        let naming = NameMapping::new(self.clone()).map_err(|name| AggregateError::Rename {
            member: member.to_owned(),
            name,
        })?;
        let pattern = NameFilter::new(&[pattern.to_owned()], &[]);
        let mut shown = tools.iter().filter_map(|tool| naming.to_shown(tool));
        Ok(shown.any(|name| pattern.selects(member, name)))
    }
}

/// Options of an aggregate agent: tool filters, naming and a time limit.
#[derive(Debug, Clone)]
pub struct AggregateOptions {
    /// Patterns of the names of tools to include: without prefix, or with the member's (`member.name`
    /// or `member__name`), whatever the separator. Empty: all.
    pub allow: Vec<String>,
    /// Patterns of the names of tools to exclude. Takes precedence over `allow`.
    pub deny: Vec<String>,
    /// Rule by which tools and prompts get the name of their member as prefix.
    pub prefix: PrefixMode,
    /// Separator between the member's name and the original name in a prefixed name.
    pub separator: NameSeparator,
    /// Time that the aggregate waits for a member's lists and description. After it, the member is
    /// reported as missing. Default: [`AGGREGATE_LIST_TIMEOUT_DEFAULT`].
    pub list_timeout: Duration,
    /// Share of a principal in the requests of one type that the aggregate handles at once
    /// ([`AGGREGATE_CALLS_MAX`]), in percent, 1 to 100. Default:
    /// [`callboard_runtime::PRINCIPAL_SHARE_PERCENT_DEFAULT`].
    pub principal_share_percent: u8,
    /// Whether only agents of this system use the aggregate, on behalf of their callers. The rules about
    /// who may use what don't bind them.
    pub is_for_agents: bool,
}

impl Default for AggregateOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            prefix: PrefixMode::default(),
            separator: NameSeparator::default(),
            list_timeout: AGGREGATE_LIST_TIMEOUT_DEFAULT,
            principal_share_percent: PRINCIPAL_SHARE_PERCENT_DEFAULT,
            is_for_agents: false,
        }
    }
}

/// Rule by which tools and prompts get the name of their member as prefix (`member__name`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrefixMode {
    /// Prefixes a message type that several members have, and every item of a list that a member
    /// provides itself, except one that keeps its names ([`AggregateMember::keeps_names`]). Such a
    /// list may change at run time; without prefixes, a name could then change its meaning.
    #[default]
    WhereNeeded,
    /// Prefixes all names, so that adding a member doesn't change any name.
    Always,
    /// Prefixes only a message type that several members have, and a listed tool that has the name
    /// of a message type. Allowed only if at most one member lists tools or prompts itself.
    Never,
}

/// Separator between a member's name and the original name of its tool or prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum NameSeparator {
    /// Full stop: `member.name`. Several clients and models reject such names.
    #[serde(rename = ".")]
    Dot,
    /// Two underscores: `member__name`, for models that accept only letters, digits, `_` and `-` in
    /// tool names. Members can't be named `a` and `a__b`, for example, because `a__b__c` could then
    /// belong to both.
    #[default]
    #[serde(rename = "__")]
    Underscores,
}

impl NameSeparator {
    fn as_str(self) -> &'static str {
        match self {
            Self::Dot => ".",
            Self::Underscores => "__",
        }
    }
}

/// Error of creating an aggregate agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AggregateError {
    /// Two members have the same name after characters that tool names don't allow were replaced.
    /// Rename one of them.
    #[error("two members have the same name {0:?} in tool names: rename one")]
    SameName(String),
    /// There are more than [`AGGREGATE_MEMBERS_MAX`] members.
    #[error(
        "there are more than {} members: leave some out, or serve them as several servers",
        AGGREGATE_MEMBERS_MAX
    )]
    TooManyMembers,
    /// A tool filter gives two tools the same new name, or the new name isn't 1 to 64 letters,
    /// digits, `_`, `-`, `.` and `/`.
    #[error(
        "{member:?}: the new tool name {name:?} is used twice, or isn't 1 to 64 letters, digits, _, -, . and /"
    )]
    Rename {
        /// Name of the member with the invalid filter.
        member: String,
        /// New name that is invalid or used twice.
        name: String,
    },
    /// The prefix of one member begins that of another, so that a tool name could belong to both.
    /// Rename a member, or choose the other separator. Holds both prefixes.
    #[error(
        "tool names with the prefixes {0:?} and {1:?} could be confused: rename one of the two, or use the separator \".\""
    )]
    Separator(String, String),
    /// Two members that list tools or prompts themselves would keep their names without prefix,
    /// because of [`AggregateMember::keeps_names`] or [`PrefixMode::Never`]. Holds the names of the
    /// members.
    #[error(
        "{0:?} and {1:?} both list tools or prompts themselves, so their names could collide: set another `prefix` than \"never\""
    )]
    NeedsPrefix(String, String),
}
