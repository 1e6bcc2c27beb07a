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

mod away;
mod filter;
mod handlers;
mod list;
mod member;
mod names;
mod options;
mod resources;
mod shown;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callboard_message::RawObject;
use callboard_runtime::{AgentRef, Changed, Cx, System};
use quick_cache::sync::Cache;

pub use away::MISSING;
use filter::Sieve;
use handlers::Sampling;
use member::{Member, OwnTool};
use names::{plain, shown};
pub use options::{BundleError, BundleMember, BundleOptions, Filter, Prefix, Separator};
use resources::Followed;

/// Most agents of one bundle.
pub const BUNDLE_MEMBERS_MAX: usize = 64;
/// Most items on one page of a bundle's lists, unless one member's page has more.
pub const BUNDLE_PAGE_ITEMS_MAX: usize = 200;
/// Most pages of one member's list that are shown.
pub const BUNDLE_MEMBER_PAGES_MAX: usize = 1_000;
/// Most requests of one kind that a bundle passes on at once; further ones wait in its mailbox.
pub const BUNDLE_CALLS_MAX: u32 = 256;
/// How long a member's lists, and what it says of itself, are waited for, by default.
pub const BUNDLE_LIST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// How long they are waited for of a member that was too slow less than [`BUNDLE_SLOW_FOR`] ago.
pub const BUNDLE_SLOW_WAIT: Duration = Duration::from_millis(250);
/// How long a member counts as slow.
pub const BUNDLE_SLOW_FOR: Duration = Duration::from_secs(30);
/// The first pause before a bundle looks whether a missing member is there again; each is twice as long.
pub const BUNDLE_PROBE_PAUSE_MIN: Duration = Duration::from_secs(5);
/// The longest of those pauses.
pub const BUNDLE_PROBE_PAUSE_MAX: Duration = Duration::from_secs(160);
/// Where several members answer for one resource: how much later an earlier one's answer may come and still count.
pub const BUNDLE_READ_GRACE: Duration = Duration::from_millis(250);
/// Most resources of which a bundle remembers whose they are, and most names that it had to cut.
pub const BUNDLE_REMEMBERED_MAX: usize = 10_000;
/// Longest URI of a resource whose member is remembered, in bytes.
pub const BUNDLE_URI_BYTES_MAX: usize = 2_048;
/// Longest name, in bytes, that is remembered when it had to be cut.
pub const BUNDLE_NAME_BYTES_MAX: usize = 1_024;
/// Most resources that are followed through one bundle.
pub const BUNDLE_SUBSCRIPTIONS_MAX: usize = 10_000;

/// Several agents as one. Cheap to clone.
#[derive(derive_more::Debug, Clone)]
#[debug("{:?}", parts.members.iter().map(|member| &member.name).collect::<Vec<_>>())]
pub struct Bundle {
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
        let members = members.into_iter().map(|(name, agent)| BundleMember::new(name, agent));
        Self::with(members, BundleOptions::default())
    }

    /// Agents, or what is to be seen of them.
    ///
    /// # Errors
    /// See [`BundleError`].
    pub fn with(members: impl IntoIterator<Item = BundleMember>, options: BundleOptions) -> Result<Self, BundleError> {
        let members =
            members.into_iter().map(|member| Member::new(member, options.separator)).collect::<Result<Vec<_>, _>>()?;
        check(&members, &options)?;
        let sieve = Sieve::new(&options.allow, &options.deny);
        // A message type must not have a name that a member's list may come to have.
        let may_be_listed = |name: &str| members.iter().any(|m| m.lists_tools() && m.own_name(name).is_some());
        let may_stay = |name: &str| options.prefix != Prefix::Always && !may_be_listed(name);
        let all: Vec<_> = members
            .iter()
            .enumerate()
            .flat_map(|(at, m)| m.specs.iter().map(move |spec| (at, m, spec)))
            .filter_map(|(at, member, spec)| Some((at, &*member.name, member.naming.outward(&spec.name)?, spec)))
            .collect();
        let theirs: Vec<_> = all.iter().map(|(_, member, name, _)| (*member, *name)).collect();
        let names = shown(&theirs, options.separator, may_stay);
        let tools = all.iter().zip(&names).filter(|(_, name)| sieve.passes(name));
        let tools: Vec<_> = tools.map(|((at, _, _, spec), name)| OwnTool::new(*at, spec, name)).collect();
        let by_name = names.into_iter().filter(|name| sieve.passes(name)).zip(0..).collect();
        let mut samplers = members.iter().enumerate().filter(|(_, member)| member.samples());
        let sampler = samplers.next().map(|(at, _)| at).filter(|_| samplers.next().is_none());
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
        match self.parts.sampler {
            None => system.prepare_with(move || self.clone()).label(label).spawn(),
            Some(_) => system.prepare_with(move || Sampling(self.clone())).label(label).spawn(),
        }
    }

    /// Follows the members, so that whoever follows the bundle hears of their changes.
    fn follow_all(&self, cx: &Cx) {
        if let Some(recipient) = cx.me().recipient::<Changed>() {
            self.parts.members.iter().for_each(|member| member.agent.follow(recipient.clone()));
        }
    }
}

fn check(members: &[Member], options: &BundleOptions) -> Result<(), BundleError> {
    if members.len() > BUNDLE_MEMBERS_MAX {
        return Err(BundleError::TooMany);
    }
    for (at, member) in members.iter().enumerate() {
        let name = plain(&member.name);
        if members.iter().take(at).any(|other| plain(&other.name) == name) {
            return Err(BundleError::SameName(name));
        }
        if options.separator == Separator::Underscores && (name.contains("__") || name.ends_with('_')) {
            return Err(BundleError::Separator(member.name.clone()));
        }
    }
    let mut listing = members.iter().filter(|member| member.lists_tools() || member.has_prompts());
    match (listing.next(), listing.next()) {
        (Some(one), Some(other)) if options.prefix == Prefix::Never => {
            Err(BundleError::NeedsPrefix(one.name.clone(), other.name.clone()))
        }
        _ => Ok(()),
    }
}

impl Parts {
    fn followed(&self) -> MutexGuard<'_, HashMap<String, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the members can do together. `told` is what those outside say of themselves; of one that says nothing
    /// everything is believed, for it may come to have it.
    fn capabilities(&self, told: &HashMap<usize, RawObject>) -> RawObject {
        let any = |name: &str, can: fn(&Member) -> bool| {
            let mut members = self.members.iter().enumerate();
            members.any(|(at, member)| match told.get(&at).filter(|_| member.is_outside()) {
                Some(theirs) => theirs.has(name),
                None => can(member),
            })
        };
        let changing = || RawObject::of("listChanged", true);
        let mut can = RawObject::of("logging", RawObject::new());
        if !self.tools.is_empty() || any("tools", Member::lists_tools) {
            can.set("tools", changing());
        }
        if any("resources", |member| member.has_resources() || member.lists_resources()) {
            can.set("resources", changing().with("subscribe", true));
        }
        if any("prompts", Member::has_prompts) {
            can.set("prompts", changing());
        }
        if any("completions", Member::completes) {
            can.set("completions", RawObject::new());
        }
        can
    }
}
