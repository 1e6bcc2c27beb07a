//! Requests about members: status, groups, preferences, and their joining and leaving.

use std::sync::Arc;

use callboard_message::Failure;
use callboard_message::mail::{
    AgentStatus, AgentView, EndAgent, GetAgentStatus, GroupList, GroupView, JoinMailroom,
    LeaveMailroom, ListGroups, MAIL_MUTED_MAX, MAIL_TOPIC_CHARS_MAX, MailAck, MailPreferences,
    MemberId, Preferences,
};
use callboard_message::time::format_rfc3339;
use callboard_runtime::Context;

use crate::delivery::DeliveryService;
use crate::members::directory::MemberDirectory;
use crate::members::identity::MemberIdentity;
use crate::members::queue::DeliveryQueue;
use crate::members::{Member, Members};
use crate::options::ADMIN_SCOPE;

/// Lists members, and changes their state and preferences.
pub(crate) struct MemberService {
    pub directory: Arc<MemberDirectory>,
    pub deliveries: Arc<DeliveryService>,
}

impl MemberService {
    pub async fn agent_status(
        self: Arc<Self>,
        message: GetAgentStatus,
        cx: Context,
    ) -> Result<AgentStatus, Failure> {
        let identity = self.directory.identify_viewer(&cx).await?;
        Ok(self.status_for(&identity, message.agent_id.as_deref()))
    }

    pub fn status_for(&self, identity: &MemberIdentity, only: Option<&str>) -> AgentStatus {
        let members = self.directory.members();
        let wanted = members
            .visible_to(&identity.id)
            .filter(|member| only.is_none_or(|only| *member.id == *only));
        let agents: Vec<AgentView> = wanted
            .map(|member| agent_view(&members, member, identity))
            .collect();
        AgentStatus {
            count: agents.len() as u64,
            agents,
        }
    }

    pub async fn groups(self: Arc<Self>, _: ListGroups, cx: Context) -> Result<GroupList, Failure> {
        let identity = self.directory.identify_viewer(&cx).await?;
        let groups = self.directory.members().visible_groups(&identity.id);
        let groups = groups.into_iter().map(|(group, count)| GroupView {
            name: group.to_string(),
            count,
        });
        Ok(GroupList {
            groups: groups.collect(),
        })
    }

    pub async fn preferences(
        self: Arc<Self>,
        message: MailPreferences,
        cx: Context,
    ) -> Result<Preferences, Failure> {
        let identity = self.directory.identify(&cx, None).await?;
        let MailPreferences {
            mute_senders,
            mute_topics,
            topics,
            ask_urgent,
        } = message;
        let is_id = |id: &String| MemberId::parse(id.as_str()).is_ok();
        let is_topic = |topic: &String| (1..=MAIL_TOPIC_CHARS_MAX).contains(&topic.chars().count());
        let fits = |list: &Option<Vec<String>>, fits: &dyn Fn(&String) -> bool| {
            list.as_ref()
                .is_none_or(|list| list.len() <= MAIL_MUTED_MAX && list.iter().all(fits))
        };
        if !fits(&mute_senders, &is_id)
            || !fits(&mute_topics, &is_topic)
            || !fits(&topics, &is_topic)
        {
            let why = format!(
                "`mute_senders` takes at most {MAIL_MUTED_MAX} agents' ids, `mute_topics` and `topics` \
                 as many topics of 1 to {MAIL_TOPIC_CHARS_MAX} characters"
            );
            return Err(Failure::invalid(why));
        }
        if mute_senders.is_some()
            || mute_topics.is_some()
            || topics.is_some()
            || ask_urgent.is_some()
        {
            self.directory
                .update_member(&identity.id, |kept| {
                    let wants = &mut kept.wants;
                    let put = |place: &mut Vec<String>, new_list: &Option<Vec<String>>| {
                        if let Some(new_list) = new_list {
                            place.clone_from(new_list);
                        }
                    };
                    put(&mut wants.mute_senders, &mute_senders);
                    put(&mut wants.mute_topics, &mute_topics);
                    put(&mut wants.topics, &topics);
                    wants.ask_urgent = ask_urgent.unwrap_or(wants.ask_urgent);
                })
                .await?;
        }
        Ok(self
            .directory
            .members()
            .get(&identity.id)
            .map(|member| Preferences::clone(&member.wants))
            .unwrap_or_default())
    }

    pub async fn end_agent(
        self: Arc<Self>,
        message: EndAgent,
        cx: Context,
    ) -> Result<MailAck, Failure> {
        let identity = self.directory.identify_viewer(&cx).await?;
        if !identity.administers {
            return Err(Failure::lacking_scope(
                "ending agents requires the scope mail.admin",
                ADMIN_SCOPE,
            ));
        }
        let EndAgent { agent_id: id, back } = message;
        let was_ended = self
            .directory
            .members()
            .get(&id)
            .filter(|member| !member.is_reserved())
            .map(|member| member.is_ended);
        let was_ended = was_ended
            .ok_or_else(|| Failure::not_found("there is no agent with this `agent_id`"))?;
        if was_ended != back {
            return Ok(MailAck { success: true });
        }
        self.directory
            .update_member(&id, |kept| kept.ended = !back)
            .await?;
        let way = {
            let mut members = self.directory.members();
            let Some(member) = members.get_mut(&id) else {
                return Ok(MailAck { success: true });
            };
            if back {
                self.deliveries.open_queue(cx.system(), member);
            } else {
                member.close_queue();
                member.mark_left();
            }
            member.has_left = false;
            member.delivery_method()
        };
        if back {
            self.directory.append_joined(&id, way).await?
        } else {
            self.directory.append_left(&id, "terminated").await?
        }
        Ok(MailAck { success: true })
    }

    pub async fn join_mailroom(
        self: Arc<Self>,
        _: JoinMailroom,
        cx: Context,
    ) -> Result<AgentView, Failure> {
        let identity = self.directory.identify(&cx, None).await?;
        let members = self.directory.members();
        let member = members
            .get(&identity.id)
            .ok_or_else(|| Failure::not_found("the mailroom has no record of you: try again"))?;
        Ok(agent_view(&members, member, &identity))
    }

    pub async fn leave_mailroom(
        self: Arc<Self>,
        _: LeaveMailroom,
        cx: Context,
    ) -> Result<MailAck, Failure> {
        let identity = self.directory.identify(&cx, None).await?;
        if let Some(member) = self.directory.members().get_mut(&identity.id) {
            member.mark_left();
        }
        if identity.is_agent() {
            self.directory.append_left(&identity.id, "left").await?;
        }
        Ok(MailAck { success: true })
    }
}

fn agent_view(members: &Members, member: &Member, identity: &MemberIdentity) -> AgentView {
    let may_know = member.id == identity.id || identity.is_guardian || identity.watches;
    AgentView {
        agent_id: member.id.to_string(),
        display_id: members.display_names.display(&member.id).to_owned(),
        state: member.state(),
        name: None,
        role: member.place.role.clone(),
        phase: member.place.phase.clone(),
        groups: member.place.groups.iter().cloned().collect(),
        way: member.delivery_method(),
        unread: may_know.then(|| u64::try_from(member.unread).unwrap_or_default()),
        last_seen: member.seen.map(|(_, at)| format_rfc3339(at)),
        trouble: (member.line.as_ref())
            .and_then(DeliveryQueue::trouble)
            .map(|why| why.to_string()),
    }
}
