//! Several agents as one: whoever asks it sees the tools, resources and prompts of all.
//!
//! A tool keeps its name where no other member has it, else it is `member.tool`. What a member lists itself (its tools,
//! its prompts) is always `member.name`, for its list may change while the bundle runs, and a name must not come to mean
//! something else. Principal, deadline, questions and cancellation go along with each call.

mod handlers;
mod list;
mod member;
mod names;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use callboard_message::surface::About;
use callboard_message::{Failure, RawObject};
use callboard_runtime::{AgentRef, Changed, Cx};

use member::{Member, OwnTool};
use names::{plain, shown};

/// Most agents of one bundle.
pub const BUNDLE_MEMBERS_MAX: usize = 64;
/// Most items on one page of a bundle's lists, unless one member's page has more.
pub const BUNDLE_PAGE_ITEMS_MAX: usize = 200;
/// Most requests of one kind that a bundle passes on at once; further ones wait in its mailbox.
pub const BUNDLE_CALLS_MAX: u32 = 256;

/// Why agents can't be bundled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Rename one: in names of tools they would be the same.
    #[error("two members of a bundle are called {0:?} in names of tools")]
    SameName(String),
    /// Serve some of them elsewhere.
    #[error("a bundle has at most {BUNDLE_MEMBERS_MAX} members")]
    TooMany,
}

/// Several agents as one. Cheap to clone.
#[derive(Clone)]
pub struct Bundle {
    parts: Arc<Parts>,
}

struct Parts {
    members: Vec<Member>,
    /// The tools that are message types, in order.
    tools: Vec<OwnTool>,
    /// Their places, by the name that they are shown under.
    by_name: HashMap<String, usize>,
}

impl Bundle {
    /// Agents under their names. The same members make the same names, in every process.
    ///
    /// # Errors
    /// See [`BundleError`].
    pub fn new(members: impl IntoIterator<Item = (String, AgentRef)>) -> Result<Self, BundleError> {
        let members: Vec<_> = members.into_iter().map(|(name, agent)| Member::new(name, agent)).collect();
        if members.len() > BUNDLE_MEMBERS_MAX {
            return Err(BundleError::TooMany);
        }
        for (at, member) in members.iter().enumerate() {
            let name = plain(&member.name);
            if members.iter().take(at).any(|other| plain(&other.name) == name) {
                return Err(BundleError::SameName(name));
            }
        }
        let all = || members.iter().enumerate().flat_map(|(at, m)| m.specs.iter().map(move |spec| (at, m, spec)));
        let names = shown(&all().map(|(_, member, spec)| (&*member.name, &*spec.name)).collect::<Vec<_>>());
        let tools: Vec<_> = all().zip(&names).map(|((at, _, spec), name)| OwnTool::new(at, spec, name)).collect();
        let by_name = names.into_iter().zip(0..).collect();
        Ok(Self { parts: Arc::new(Parts { members, tools, by_name }) })
    }

    /// Follows the members, so that whoever follows the bundle hears of their changes.
    fn follow_all(&self, cx: &Cx) {
        if let Some(recipient) = cx.me().recipient::<Changed>() {
            self.parts.members.iter().for_each(|member| member.agent.follow(recipient.clone()));
        }
    }
}

impl Parts {
    /// What the members say of themselves, and what they can do together.
    async fn about(&self, cx: &Cx) -> Result<About, Failure> {
        use callboard_message::surface::Describe;
        let mut instructions = Vec::new();
        for member in self.members.iter().filter(|member| member.describes()) {
            // One that is away says nothing; the others do.
            let about = member.ask::<Describe>(RawObject::new(), cx).await.unwrap_or_default();
            if let Some(theirs) = about.text("instructions") {
                instructions.push(format!("{}: {theirs}", member.name));
            }
        }
        let mut about = RawObject::new().with("capabilities", self.capabilities());
        if !instructions.is_empty() {
            about.set("instructions", instructions.join("\n"));
        }
        Ok(About(about))
    }

    fn capabilities(&self) -> RawObject {
        let any = |can: fn(&Member) -> bool| self.members.iter().any(can);
        let changing = || RawObject::new().with("listChanged", true);
        let mut can = RawObject::new().with("logging", RawObject::new());
        if !self.tools.is_empty() || any(Member::lists_tools) {
            can.set("tools", changing());
        }
        if any(Member::has_resources) || any(Member::lists_resources) {
            can.set("resources", changing().with("subscribe", true));
        }
        if any(Member::has_prompts) {
            can.set("prompts", changing());
        }
        if any(Member::completes) {
            can.set("completions", RawObject::new());
        }
        can
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts.members.iter().map(|member| &member.name)).finish()
    }
}
