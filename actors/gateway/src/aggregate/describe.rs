//! Joint description of the members: instructions and capabilities.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::Failure;
use callboard_message::RawObject;
use callboard_message::capabilities::{
    CompleteArgument, DescribeAgent, DescribeAgentResult, ListResources, ReadResource,
};
use callboard_runtime::{AccessItem, Context};
use futures::future::join_all;

use super::member::MemberState;
use super::missing::{MissingMembers, TTL_META_KEY};
use super::resolve::NameResolver;

/// Description of all members as one server.
pub(super) struct MemberDescriptions {
    members: Arc<[MemberState]>,
    names: Arc<NameResolver>,
    list_timeout: Duration,
}

impl MemberDescriptions {
    /// Creates a description that waits up to `list_timeout` for the description of each member.
    pub fn new(
        members: Arc<[MemberState]>,
        names: Arc<NameResolver>,
        list_timeout: Duration,
    ) -> Self {
        Self {
            members,
            names,
            list_timeout,
        }
    }

    /// Collects the instructions of all members and their joint capabilities. A member that fails
    /// or is late is reported as missing.
    pub async fn describe(&self, cx: &Context) -> Result<DescribeAgentResult, Failure> {
        let describing = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.handles::<DescribeAgent>())
            .filter(|(_, member)| member.is_permitted(AccessItem::Agent, cx));
        let asking = describing.map(|(at, member)| async move {
            let limit = member.deadline(self.list_timeout, cx);
            (
                at,
                member,
                member
                    .ask_until::<DescribeAgent>(RawObject::new(), limit, cx)
                    .await,
            )
        });
        let (mut instructions, mut missing, mut told) =
            (Vec::new(), MissingMembers::default(), HashMap::new());
        for (at, member, about) in join_all(asking).await {
            match about {
                Ok(about) => {
                    let theirs =
                        about
                            .text("instructions")
                            .map(|theirs| match self.members.len() {
                                1 => theirs,
                                _ => format!("{}: {theirs}", member.name),
                            });
                    instructions.extend(theirs);
                    told.extend(about.object("capabilities").map(|theirs| (at, theirs)));
                }
                Err(failure) => missing.add(member, at, &failure, cx),
            }
        }
        instructions.extend(missing.sentences());
        let mut about = RawObject::single("capabilities", self.capabilities(&told));
        if !missing.is_empty() {
            about.set(TTL_META_KEY, 0);
        }
        if !instructions.is_empty() {
            about.set("instructions", instructions.join("\n"));
        }
        Ok(DescribeAgentResult(about))
    }

    /// Returns the joint capabilities of the members. `told` holds the capabilities that members
    /// reported, by member index. A proxy that reported none counts as capable of everything that
    /// it may handle later.
    fn capabilities(&self, told: &HashMap<usize, RawObject>) -> RawObject {
        let any = |name: &str, can: fn(&MemberState) -> bool| {
            let mut members = self.members.iter().enumerate();
            members.any(
                |(at, member)| match told.get(&at).filter(|_| member.is_proxy) {
                    Some(theirs) => theirs.has(name),
                    None => can(member),
                },
            )
        };
        let changing = || RawObject::single("listChanged", true);
        let mut can = RawObject::single("logging", RawObject::new());
        if !self.names.message_tools().is_empty() || any("tools", MemberState::lists_tools) {
            can.set("tools", changing());
        }
        if any("resources", |member| {
            member.handles::<ReadResource>() || member.handles::<ListResources>()
        }) {
            can.set("resources", changing().with("subscribe", true));
        }
        if any("prompts", MemberState::has_prompts) {
            can.set("prompts", changing());
        }
        if any("completions", MemberState::handles::<CompleteArgument>) {
            can.set("completions", RawObject::new());
        }
        can
    }
}
