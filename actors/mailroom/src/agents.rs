//! Requests about members: status, groups, preferences, saved memories, and their joining and
//! leaving. Mailboxes for agents of the process.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::mail::{
    AgentStatus, AgentView, BroadcastMessage, CheckInbox, EndAgent, GUARDIAN_ID, GUARDIAN_SCOPE,
    GetAgentStatus, GroupList, GroupView, Inbox, JoinMailroom, LeaveMailroom, ListGroups,
    MAIL_MEMBERS_MAX, MAIL_MEMORY_BYTES_MAX, MAIL_MUTED_MAX, MAIL_TOPIC_CHARS_MAX, MailAck,
    MailPreferences, MailView, MemberId, Preferences, ReadMessage, ReplyMessage, SaveMemory,
    SavedMemory, SendMessage, SendReceipt,
};
use callboard_message::time::format_rfc3339;
use callboard_message::{Failure, Message, Principal, PrincipalKind, RawObject};
use callboard_runtime::{AgentRef, CallContext, Context, KV_KEY_BYTES_MAX, KvError};
use uuid::Uuid;

use super::member_identity::{MemberIdentity, denied_without};
use super::members::{Member, Members};
use super::options::{ADMIN_SCOPE, MailroomError, check_id};
use super::{Mailroom, MailroomState};

/// Maximum number of tags of a saved note (`SaveMemory`). A note with more tags is rejected as
/// invalid.
const TAGS_MAX: usize = 16;
/// Maximum length of one tag of a saved note, in characters. A longer tag is rejected as invalid.
const TAG_CHARS_MAX: usize = 64;

impl MailroomState {
    pub async fn agent_status(
        &self,
        message: GetAgentStatus,
        cx: &Context,
    ) -> Result<AgentStatus, Failure> {
        let identity = self.identify_viewer(cx).await?;
        Ok(self.status_for(&identity, message.agent_id.as_deref()))
    }

    pub fn status_for(&self, identity: &MemberIdentity, only: Option<&str>) -> AgentStatus {
        let members = self.members();
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

    pub async fn groups(&self, _: ListGroups, cx: &Context) -> Result<GroupList, Failure> {
        let identity = self.identify_viewer(cx).await?;
        let groups = self.members().visible_groups(&identity.id);
        let groups = groups.into_iter().map(|(group, count)| GroupView {
            name: group.to_string(),
            count,
        });
        Ok(GroupList {
            groups: groups.collect(),
        })
    }

    pub async fn save_memory(
        &self,
        message: SaveMemory,
        cx: &Context,
    ) -> Result<SavedMemory, Failure> {
        let identity = self
            .identify(cx, message.sender_agent_id.as_deref())
            .await?;
        if message.content.is_empty() || message.content.len() > MAIL_MEMORY_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "`content` must be 1 to {MAIL_MEMORY_BYTES_MAX} bytes"
            )));
        }
        let tags = &message.tags;
        if tags.len() > TAGS_MAX || tags.iter().any(|tag| tag.chars().count() > TAG_CHARS_MAX) {
            return Err(Failure::invalid(format!(
                "at most {TAGS_MAX} `tags` of {TAG_CHARS_MAX} characters"
            )));
        }
        // Generated keys are in chronological order.
        let key = message.key.unwrap_or_else(|| Uuid::now_v7().to_string());
        if key.is_empty() || key.len() > KV_KEY_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "`key` must be 1 to {KV_KEY_BYTES_MAX} bytes"
            )));
        }
        let body = RawObject::single("content", &message.content).with("tags", tags);
        let body = body.with("at", format_rfc3339(SystemTime::now()));
        match self
            .kv
            .put(&format!("memory/{}", identity.id), &key, body, None)
            .await
        {
            Ok(version) => Ok(SavedMemory { key, version }),
            Err(KvError::Journal(error)) => Err(error.into()),
            Err(error) => Err(Failure::internal(error.to_string())),
        }
    }

    pub async fn preferences(
        &self,
        message: MailPreferences,
        cx: &Context,
    ) -> Result<Preferences, Failure> {
        let identity = self.identify(cx, None).await?;
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
            let why = format!("each list has at most {MAIL_MUTED_MAX} agents' ids, or topics");
            return Err(Failure::invalid(why));
        }
        if mute_senders.is_some()
            || mute_topics.is_some()
            || topics.is_some()
            || ask_urgent.is_some()
        {
            self.update_member(&identity.id, |kept| {
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
            .members()
            .get(&identity.id)
            .map(|member| Preferences::clone(&member.wants))
            .unwrap_or_default())
    }

    pub async fn end_agent(
        self: &Arc<Self>,
        message: EndAgent,
        cx: &Context,
    ) -> Result<MailAck, Failure> {
        let identity = self.identify_viewer(cx).await?;
        if !identity.administers {
            return Err(denied_without(
                ADMIN_SCOPE,
                "ending agents requires the scope mail.admin",
            ));
        }
        let EndAgent { agent_id: id, back } = message;
        let was_ended = self
            .members()
            .get(&id)
            .filter(|member| !member.is_reserved())
            .map(|member| member.is_ended);
        let was_ended = was_ended.ok_or_else(|| Failure::not_found("there is no such agent"))?;
        if was_ended != back {
            return Ok(MailAck { success: true });
        }
        self.update_member(&id, |kept| kept.ended = !back).await?;
        let way = {
            let mut members = self.members();
            let Some(member) = members.get_mut(&id) else {
                return Ok(MailAck { success: true });
            };
            if back {
                self.open_queue(cx.system(), member);
            } else {
                member.close_queue();
                member.mark_left();
            }
            member.has_left = false;
            member.delivery_method()
        };
        if back {
            self.append_joined(&id, way).await?
        } else {
            self.append_left(&id, "terminated").await?
        }
        Ok(MailAck { success: true })
    }

    pub async fn join_mailroom(&self, _: JoinMailroom, cx: &Context) -> Result<AgentView, Failure> {
        let identity = self.identify(cx, None).await?;
        let members = self.members();
        let member = members
            .get(&identity.id)
            .ok_or_else(|| Failure::not_found("there is no such agent"))?;
        Ok(agent_view(&members, member, &identity))
    }

    pub async fn leave_mailroom(&self, _: LeaveMailroom, cx: &Context) -> Result<MailAck, Failure> {
        let identity = self.identify(cx, None).await?;
        if let Some(member) = self.members().get_mut(&identity.id) {
            member.mark_left();
        }
        if identity.is_agent() {
            self.append_left(&identity.id, "left").await?;
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
    }
}

/// Mailroom client that sends and receives as one member. Its holder acts under the member's
/// identity, so it must not be passed to other agents.
#[derive(derive_more::Debug, Clone)]
#[debug("Mailbox({})", self.id())]
pub struct Mailbox {
    mailroom: AgentRef,
    principal: Arc<Principal>,
}

impl Mailroom {
    /// Returns the mailbox of an agent of this process. From then on, API keys can't claim the id
    /// `id`. `mailroom` must be the running agent of this mailroom.
    ///
    /// # Errors
    /// [`MailroomError::InvalidId`], [`MailroomError::ReservedId`], [`MailroomError::IdTaken`],
    /// [`MailroomError::TooManyMembers`].
    pub fn mailbox(&self, mailroom: &AgentRef, id: &str) -> Result<Mailbox, MailroomError> {
        check_id(id)?;
        let options = self.shared.options();
        let mut members = self.shared.members();
        let is_new = members.get(id).is_none();
        if is_new && members.len() >= MAIL_MEMBERS_MAX {
            return Err(MailroomError::TooManyMembers);
        }
        let member = members.entry(id, &options);
        if member.is_claimed_by_other(PrincipalKind::Agent) {
            return Err(MailroomError::IdTaken(id.to_owned()));
        }
        member.kind = Some(PrincipalKind::Agent);
        // A new member joins with its first request.
        member.has_left |= is_new;
        Ok(Mailbox {
            mailroom: mailroom.clone(),
            principal: Arc::new(Principal::agent(id)),
        })
    }

    /// Returns the Guardian's mailbox. `mailroom` must be the running agent of this mailroom.
    pub fn guardian(&self, mailroom: &AgentRef) -> Mailbox {
        let guardian = Principal {
            scopes: vec![GUARDIAN_SCOPE.to_owned()],
            ..Principal::agent(GUARDIAN_ID)
        };
        Mailbox {
            mailroom: mailroom.clone(),
            principal: Arc::new(guardian),
        }
    }
}

impl Mailbox {
    /// Returns the agent id of the mailbox's member.
    pub fn id(&self) -> &str {
        &self.principal.id
    }

    /// Sends any request to the mailroom.
    ///
    /// # Errors
    /// Returns the failure of the mailroom, or `Unavailable` if it isn't running.
    pub async fn ask<T, M>(&self, message: M) -> Result<T, Failure>
    where
        T: Send + 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let call = CallContext::new(self.principal.clone());
        self.mailroom
            .ask(message)
            .within_call(Some(Arc::new(call)))
            .await
            .map_err(Failure::from)?
    }

    /// Sends a message to one agent.
    ///
    /// # Errors
    /// Fails like [`Mailbox::ask`]. An unreachable recipient is not an error, but reported by
    /// [`SendReceipt::success`].
    pub async fn send(&self, to: &str, message: &str) -> Result<SendReceipt, Failure> {
        let to = Some(to.to_owned());
        self.ask(SendMessage {
            message: message.to_owned(),
            recipient_agent_id: to,
            ..SendMessage::default()
        })
        .await
    }

    /// Sends a message to all agents that the member can see.
    ///
    /// # Errors
    /// Fails like [`Mailbox::ask`].
    pub async fn broadcast(&self, message: &str) -> Result<SendReceipt, Failure> {
        self.ask(BroadcastMessage {
            message: message.to_owned(),
            ..BroadcastMessage::default()
        })
        .await
    }

    /// Replies to the sender of a message.
    ///
    /// # Errors
    /// Fails like [`Mailbox::ask`], and with `NotFound` if the message neither comes from the
    /// member nor is for it.
    pub async fn reply(&self, message_id: &str, message: &str) -> Result<SendReceipt, Failure> {
        let (message_id, message) = (message_id.to_owned(), message.to_owned());
        self.ask(ReplyMessage {
            message_id,
            message,
            ..ReplyMessage::default()
        })
        .await
    }

    /// Returns the member's unread messages. Messages that are returned in full are marked as read.
    ///
    /// # Errors
    /// Fails like [`Mailbox::ask`].
    pub async fn check(&self) -> Result<Inbox, Failure> {
        self.ask(CheckInbox::default()).await
    }

    /// Returns a message in full and marks it as read.
    ///
    /// # Errors
    /// Fails like [`Mailbox::reply`].
    pub async fn read(&self, message_id: &str) -> Result<MailView, Failure> {
        self.ask(ReadMessage {
            message_id: message_id.to_owned(),
            ..ReadMessage::default()
        })
        .await
    }
}
