//! Several agents as one: whoever asks it sees the tools, resources and prompts of all.
//!
//! A tool keeps its name where no other member has it, else it is `member.tool`. What a member lists itself (its tools,
//! its prompts) is `member.name`, for its list may change while the bundle runs, and a name must not come to mean
//! something else ([`Prefix`]). Which tools are shown, and what they are called, a [`Filter`] says for each member.
//! Principal, deadline, questions and cancellation go along with each call.
//!
//! One member that is away or slow harms no other: members are asked at once and waited for so long and no longer. What is
//! missing is said, in a list's `_meta` ([`MISSING`]) and in the instructions; when the member is there again, whoever
//! follows the bundle is told that its lists have changed.

mod handlers;
mod list;
mod member;
mod names;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use callboard_message::RawObject;
use callboard_message::surface::{Complete, ListResources, ReadResource};
use callboard_runtime::{AgentRef, System};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use serde::Deserialize;

use handlers::Followed;
use member::{Member, OwnTool};
use names::{Sieve, plain, shown};

pub use member::MISSING;

/// Maximum agents of one bundle. A bundle of more doesn't start. Fixed.
pub const BUNDLE_MEMBERS_MAX: usize = 64;
/// Maximum items on one page of a bundle's lists, unless one member's page has more. The rest comes by `nextCursor`.
/// Fixed.
pub const BUNDLE_PAGE_ITEMS_MAX: usize = 200;
/// Maximum pages of one member's list that are shown. The list goes without the rest, and says so. Fixed.
pub const BUNDLE_MEMBER_PAGES_MAX: usize = 1_000;
/// Maximum requests of one kind that a bundle passes on at once. Further ones wait in its mailbox. Fixed.
pub const BUNDLE_CALLS_MAX: u32 = 256;
/// Default time limit of a member for its lists and its description, at most three quarters of the time that the call
/// has left. After it the bundle's list goes without, and says so. Changed by [`BundleOptions::list_timeout`].
pub const BUNDLE_LIST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// The same time limit of a member that was too slow less than [`BUNDLE_SLOW_FOR`] ago. After it the bundle's list goes
/// without, and says so. Fixed.
pub const BUNDLE_SLOW_WAIT: Duration = Duration::from_millis(250);
/// Time for which a member counts as slow. After it the member has the whole time limit again. Fixed.
pub const BUNDLE_SLOW_FOR: Duration = Duration::from_secs(30);
/// First pause before a bundle looks whether a missing member is there again; each is twice as long. Fixed.
pub const BUNDLE_PROBE_PAUSE_MIN: Duration = Duration::from_secs(5);
/// Longest of those pauses. All further ones are as long. Fixed.
pub const BUNDLE_PROBE_PAUSE_MAX: Duration = Duration::from_secs(160);
/// Time by which an earlier member's answer for a resource may come later than another's and still go before it. After
/// it the other's counts. Fixed.
pub const BUNDLE_READ_GRACE: Duration = Duration::from_millis(250);
/// Maximum resources whose member is remembered, and maximum names that had to be cut. Those of least use are looked
/// for again. Fixed.
pub const BUNDLE_REMEMBERED_MAX: usize = 10_000;
/// Maximum bytes of the URI of a resource whose member is remembered. With a longer one it isn't. Fixed.
pub const BUNDLE_URI_BYTES_MAX: usize = 2_048;
/// Maximum bytes of a name that is remembered when it had to be cut. A longer one isn't. Fixed.
pub const BUNDLE_NAME_BYTES_MAX: usize = 1_024;
/// Maximum resources that are followed through one bundle. Further ones are refused with `Overloaded`. Fixed.
pub const BUNDLE_SUBSCRIPTIONS_MAX: usize = 10_000;

/// Several agents as one. Cheap to clone. One that `SAMPLES` answers like a model, as one of its members does.
#[derive(derive_more::Debug, Clone)]
#[debug("{:?}", parts.members.iter().map(|member| &member.name).collect::<Vec<_>>())]
pub struct Bundle<const SAMPLES: bool = false> {
    parts: Arc<Parts>,
}

struct Parts {
    members: Vec<Member>,
    /// The tools that are message types, in order.
    tools: Vec<OwnTool>,
    /// Their places, by the name that they are shown under.
    by_name: HashMap<String, usize>,
    sieve: Sieve,
    prefix: Prefix,
    list_timeout: Duration,
    /// The one member that answers like a model, by place.
    sampler: Option<usize>,
    /// Which member has listed a resource, or was able to read it.
    owners: Cache<String, usize>,
    /// What names stand for that had to be cut, in which list.
    cut: Cache<(&'static str, String), (usize, String)>,
    followed: Mutex<HashMap<String, Followed>>,
}

impl Bundle {
    /// Agents under their names, whole. The same members make the same names, in every process.
    ///
    /// # Errors
    /// See [`BundleError`].
    pub fn new(members: impl IntoIterator<Item = (String, AgentRef)>) -> Result<Self, BundleError> {
        let members = members
            .into_iter()
            .map(|(name, agent)| BundleMember::new(name, agent));
        Self::with(members, BundleOptions::default())
    }

    /// Agents, or what is to be seen of them.
    ///
    /// # Errors
    /// See [`BundleError`].
    pub fn with(
        members: impl IntoIterator<Item = BundleMember>,
        options: BundleOptions,
    ) -> Result<Self, BundleError> {
        let members = members
            .into_iter()
            .map(|member| Member::new(member, options.separator))
            .collect::<Result<Vec<_>, _>>()?;
        check(&members, &options)?;
        let sieve = Sieve::new(&options.allow, &options.deny);
        // A message type must not have a name that a member's list may come to have.
        let may_be_listed = |name: &str| {
            members
                .iter()
                .any(|m| m.lists_tools() && m.own_name(name).is_some())
        };
        let may_stay = |name: &str| options.prefix != Prefix::Always && !may_be_listed(name);
        let all: Vec<_> = members
            .iter()
            .enumerate()
            .flat_map(|(at, m)| m.specs.iter().map(move |spec| (at, m, spec)))
            .filter_map(|(at, member, spec)| {
                Some((at, &*member.name, member.naming.outward(&spec.name)?, spec))
            })
            .collect();
        let theirs: Vec<_> = all
            .iter()
            .map(|(_, member, name, _)| (*member, *name))
            .collect();
        let names = shown(&theirs, options.separator, may_stay);
        let tools = all
            .iter()
            .zip(&names)
            .filter(|(_, name)| sieve.passes(name));
        let tools: Vec<_> = tools
            .map(|((at, _, _, spec), name)| OwnTool::new(*at, spec, name))
            .collect();
        let by_name = names
            .into_iter()
            .filter(|name| sieve.passes(name))
            .zip(0..)
            .collect();
        let mut samplers = members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.samples());
        let sampler = samplers
            .next()
            .map(|(at, _)| at)
            .filter(|_| samplers.next().is_none());
        Ok(Self {
            parts: Arc::new(Parts {
                sampler,
                members,
                tools,
                by_name,
                sieve,
                prefix: options.prefix,
                list_timeout: options.list_timeout,
                owners: Cache::new(BUNDLE_REMEMBERED_MAX),
                cut: Cache::new(BUNDLE_REMEMBERED_MAX),
                followed: Mutex::default(),
            }),
        })
    }

    /// Starts it. It answers like a model (`callboard.sample`) where exactly one of its members says that it does;
    /// [`System::spawn`] starts one that doesn't.
    pub fn spawn(self, system: &System, label: &str) -> AgentRef {
        let Self { parts } = self;
        match parts.sampler {
            None => system
                .prepare_with(move || Self {
                    parts: parts.clone(),
                })
                .label(label)
                .spawn(),
            Some(_) => system
                .prepare_with(move || Bundle::<true> {
                    parts: parts.clone(),
                })
                .label(label)
                .spawn(),
        }
    }
}

fn check(members: &[Member], options: &BundleOptions) -> Result<(), BundleError> {
    if members.len() > BUNDLE_MEMBERS_MAX {
        return Err(BundleError::TooMany);
    }
    for (at, member) in members.iter().enumerate() {
        let name = plain(&member.name);
        if members
            .iter()
            .take(at)
            .any(|other| plain(&other.name) == name)
        {
            return Err(BundleError::SameName(name));
        }
        if options.separator == Separator::Underscores
            && (name.contains("__") || name.ends_with('_'))
        {
            return Err(BundleError::Separator(member.name.clone()));
        }
    }
    let mut listing = members
        .iter()
        .filter(|member| member.lists_tools() || member.has_prompts());
    match (listing.next(), listing.next()) {
        (Some(one), Some(other)) if options.prefix == Prefix::Never => Err(
            BundleError::NeedsPrefix(one.name.clone(), other.name.clone()),
        ),
        _ => Ok(()),
    }
}

impl Parts {
    /// What the members can do together. `told` is what those outside say of themselves; of one that says nothing
    /// everything is believed, for it may come to have it.
    fn capabilities(&self, told: &HashMap<usize, RawObject>) -> RawObject {
        let any = |name: &str, can: fn(&Member) -> bool| {
            let mut members = self.members.iter().enumerate();
            members.any(
                |(at, member)| match told.get(&at).filter(|_| member.is_outside) {
                    Some(theirs) => theirs.has(name),
                    None => can(member),
                },
            )
        };
        let changing = || RawObject::of("listChanged", true);
        let mut can = RawObject::of("logging", RawObject::new());
        if !self.tools.is_empty() || any("tools", Member::lists_tools) {
            can.set("tools", changing());
        }
        if any("resources", |member| {
            member.handles::<ReadResource>() || member.handles::<ListResources>()
        }) {
            can.set("resources", changing().with("subscribe", true));
        }
        if any("prompts", Member::has_prompts) {
            can.set("prompts", changing());
        }
        if any("completions", Member::handles::<Complete>) {
            can.set("completions", RawObject::new());
        }
        can
    }
}

/// One of a bundle's agents.
#[derive(Debug, Clone)]
pub struct BundleMember {
    /// What its tools are called after.
    pub name: String,
    /// The agent.
    pub agent: AgentRef,
    /// Which of its tools are shown.
    pub filter: Filter,
}

impl BundleMember {
    /// An agent with all its tools, as they are called.
    pub fn new(name: impl Into<String>, agent: AgentRef) -> Self {
        Self {
            name: name.into(),
            agent,
            filter: Filter::default(),
        }
    }

    /// The same, with only what passes `filter`.
    pub fn filtered(self, filter: Filter) -> Self {
        Self { filter, ..self }
    }
}

/// Which of an agent's tools are shown, and under which names. What isn't shown can't be called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Patterns of its own names ([`callboard_runtime::Patterns`]); none: all.
    pub allow: Vec<String>,
    /// Patterns of its own names that aren't shown, whatever `allow` says.
    pub deny: Vec<String>,
    /// Own name → the name that takes its place. A tool that has such a name of its own is hidden by it.
    pub rename: BTreeMap<String, String>,
}

/// How a bundle shows its members.
#[derive(Debug, Clone)]
pub struct BundleOptions {
    /// Patterns of the names that tools are shown under; none: all.
    pub allow: Vec<String>,
    /// Patterns of such names that aren't shown, whatever `allow` says.
    pub deny: Vec<String>,
    /// Which names say whose they are.
    pub prefix: Prefix,
    /// What stands between a member and a name of its own.
    pub separator: Separator,
    /// How long a member's lists, and what it says of itself, are waited for; then the bundle's go without.
    pub list_timeout: Duration,
}

impl Default for BundleOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            prefix: Prefix::default(),
            separator: Separator::default(),
            list_timeout: BUNDLE_LIST_TIMEOUT_DEFAULT,
        }
    }
}

/// Which names have their member's before them (`member.name`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefix {
    /// Those of message types that another member has too, and all that a member lists itself: its list may change while
    /// the bundle runs, and a name must not come to mean something else.
    #[default]
    WhereNeeded,
    /// All of them: a member more changes no name.
    Always,
    /// Those of message types that another member has too. Only for bundles of which at most one member lists anything
    /// itself, for then nothing can come between; where its list has a name of a message type, that one is joined.
    Never,
}

/// What stands between a member and a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Separator {
    /// `member.name`.
    #[default]
    #[serde(rename = ".")]
    Dot,
    /// `member__name`: for clients whose models take letters, digits, `_` and `-` only. No member's name then has `__` in
    /// it or `_` at its end.
    #[serde(rename = "__")]
    Underscores,
}

impl Separator {
    fn text(self) -> &'static str {
        match self {
            Self::Dot => ".",
            Self::Underscores => "__",
        }
    }
}

/// Why agents can't be bundled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Rename one: in names of tools they would be the same.
    #[error("two members of a bundle are called {0:?} in names of tools")]
    SameName(String),
    /// Serve some of them elsewhere.
    #[error("a bundle has at most {} members", BUNDLE_MEMBERS_MAX)]
    TooMany,
    /// Give each tool a name of its own, of 1 to 64 letters, digits, `_`, `-`, `.` and `/`.
    #[error("two tools of {member:?} are to be called {name:?}, or nothing can be")]
    Rename {
        /// Whose.
        member: String,
        /// The name.
        name: String,
    },
    /// Rename it, or take the other separator: it couldn't be told where its name ends.
    #[error(
        "{0:?} has \"__\" in its name, or \"_\" at its end, which separate it from names of tools"
    )]
    Separator(String),
    /// Let names say whose they are, or serve some of them elsewhere.
    #[error(
        "{0:?} and {1:?} both list what they have themselves, so names must say whose they are"
    )]
    NeedsPrefix(String, String),
}
