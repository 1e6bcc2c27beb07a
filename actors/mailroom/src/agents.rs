//! Who is here, what they want, and what they keep.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::mail::{
    AgentStatus, AgentView, BroadcastMessage, CheckInbox, Done, EndAgent, GUARDIAN, GUARDIAN_SCOPE,
    GetAgentStatus, GroupView, Groups, Inbox, Join, Leave, ListGroups, MAIL_MEMBERS_MAX,
    MAIL_MEMORY_BYTES_MAX, MAIL_MUTED_MAX, MAIL_TOPIC_CHARS_MAX, MailId, MailPreferences, MailView,
    Preferences, ReadMessage, ReplyMessage, SaveMemory, Saved, SendMessage, Sent,
};
use callboard_message::time::rfc3339;
use callboard_message::{Failure, Message, Principal, PrincipalKind, RawObject};
use callboard_runtime::{AgentRef, CallMeta, Cx, NOTE_NAME_BYTES_MAX, NoteError};
use uuid::Uuid;

use super::member_identity::{Who, denied_without};
use super::members::{Member, Members};
use super::options::{ADMIN_SCOPE, MailroomError, check_id};
use super::{Mailroom, Shared};

/// Maximum tags of a note. A note with more is refused as invalid. Fixed.
const TAGS_MAX: usize = 16;
/// Maximum characters of one of those tags. A longer one is refused as invalid. Fixed.
const TAG_CHARS_MAX: usize = 64;

impl Shared {
    pub async fn status(&self, message: GetAgentStatus, cx: &Cx) -> Result<AgentStatus, Failure> {
        let who = self.who_looks(cx).await?;
        Ok(self.status_for(&who, message.agent_id.as_deref()))
    }

    pub fn status_for(&self, who: &Who, only: Option<&str>) -> AgentStatus {
        let members = self.members();
        let wanted = members
            .seen_by(&who.id)
            .filter(|member| only.is_none_or(|only| *member.id == *only));
        let agents: Vec<AgentView> = wanted.map(|member| view(&members, member, who)).collect();
        AgentStatus {
            count: agents.len() as u64,
            agents,
        }
    }

    pub async fn groups(&self, _: ListGroups, cx: &Cx) -> Result<Groups, Failure> {
        let who = self.who_looks(cx).await?;
        let groups = self.members().groups_seen_by(&who.id);
        let groups = groups.into_iter().map(|(group, count)| GroupView {
            name: group.to_string(),
            count,
        });
        Ok(Groups {
            groups: groups.collect(),
        })
    }

    pub async fn save_memory(&self, message: SaveMemory, cx: &Cx) -> Result<Saved, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
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
        // Those without a name stand in the order of their time.
        let key = message.key.unwrap_or_else(|| Uuid::now_v7().to_string());
        if key.is_empty() || key.len() > NOTE_NAME_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "`key` must be 1 to {NOTE_NAME_BYTES_MAX} bytes"
            )));
        }
        let body = RawObject::of("content", &message.content).with("tags", tags);
        let body = body.with("at", rfc3339(SystemTime::now()));
        match self
            .notes
            .put(&format!("memory/{}", who.id), &key, body, None)
            .await
        {
            Ok(version) => Ok(Saved { key, version }),
            Err(NoteError::Journal(error)) => Err(error.into()),
            Err(error) => Err(Failure::internal(error.to_string())),
        }
    }

    pub async fn preferences(
        &self,
        message: MailPreferences,
        cx: &Cx,
    ) -> Result<Preferences, Failure> {
        let who = self.who(cx, None).await?;
        let MailPreferences {
            mute_senders,
            mute_topics,
            topics,
            ask_urgent,
        } = message;
        let is_id = |id: &String| MailId::parse(id.as_str()).is_ok();
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
            self.change(&who.id, |kept| {
                let wants = &mut kept.wants;
                let put = |place: &mut Vec<String>, said: &Option<Vec<String>>| {
                    if let Some(said) = said {
                        place.clone_from(said);
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
            .get(&who.id)
            .map(|member| Preferences::clone(&member.wants))
            .unwrap_or_default())
    }

    pub async fn end(self: &Arc<Self>, message: EndAgent, cx: &Cx) -> Result<Done, Failure> {
        let who = self.who_looks(cx).await?;
        if !who.administers {
            return Err(denied_without(
                ADMIN_SCOPE,
                "only whoever may administer mail (mail.admin) ends agents",
            ));
        }
        let EndAgent { agent_id: id, back } = message;
        let was_ended = self
            .members()
            .get(&id)
            .filter(|member| !member.is_office())
            .map(|member| member.is_ended);
        let was_ended = was_ended.ok_or_else(|| Failure::not_found("there is no such agent"))?;
        if was_ended != back {
            return Ok(Done { success: true });
        }
        self.change(&id, |kept| kept.ended = !back).await?;
        let way = {
            let mut members = self.members();
            let Some(member) = members.get_mut(&id) else {
                return Ok(Done { success: true });
            };
            if back {
                self.open_line(cx.system(), member);
            } else {
                member.end_line();
                member.leave();
            }
            member.has_left = false;
            member.way()
        };
        if back {
            self.tell_joined(&id, way).await?
        } else {
            self.tell_left(&id, "terminated").await?
        }
        Ok(Done { success: true })
    }

    pub async fn come(&self, _: Join, cx: &Cx) -> Result<AgentView, Failure> {
        let who = self.who(cx, None).await?;
        let members = self.members();
        let member = members
            .get(&who.id)
            .ok_or_else(|| Failure::not_found("there is no such agent"))?;
        Ok(view(&members, member, &who))
    }

    pub async fn go(&self, _: Leave, cx: &Cx) -> Result<Done, Failure> {
        let who = self.who(cx, None).await?;
        if let Some(member) = self.members().get_mut(&who.id) {
            member.leave();
        }
        if who.is_agent() {
            self.tell_left(&who.id, "left").await?;
        }
        Ok(Done { success: true })
    }
}

fn view(members: &Members, member: &Member, who: &Who) -> AgentView {
    let may_know = member.id == who.id || who.is_guardian || who.watches;
    AgentView {
        agent_id: member.id.to_string(),
        display_id: members.names.display(&member.id).to_owned(),
        state: member.state(),
        name: None,
        role: member.place.role.clone(),
        phase: member.place.phase.clone(),
        groups: member.place.groups.iter().cloned().collect(),
        way: member.way(),
        unread: may_know.then(|| u64::try_from(member.unread).unwrap_or_default()),
        last_seen: member.seen.map(|(_, at)| rfc3339(at)),
    }
}

/// What one member asks of a mailroom. Whoever has it is that member: hand it to nobody else.
#[derive(derive_more::Debug, Clone)]
#[debug("Mailbox({})", self.id())]
pub struct Mailbox {
    mailroom: AgentRef,
    principal: Arc<Principal>,
}

impl Mailroom {
    /// The mailbox of an agent of this process. From then on nobody who shows a key is taken for it. `mailroom` is this
    /// mailroom, running.
    ///
    /// # Errors
    /// [`MailroomError::Id`], [`MailroomError::Reserved`], [`MailroomError::Taken`], [`MailroomError::TooManyMembers`].
    pub fn mailbox(&self, mailroom: &AgentRef, id: &str) -> Result<Mailbox, MailroomError> {
        check_id(id)?;
        let options = self.shared.options();
        let mut members = self.shared.members();
        let is_new = members.get(id).is_none();
        if is_new && members.len() >= MAIL_MEMBERS_MAX {
            return Err(MailroomError::TooManyMembers);
        }
        let member = members.entry(id, &options);
        if member.is_others(PrincipalKind::Agent) {
            return Err(MailroomError::Taken(id.to_owned()));
        }
        member.kind = Some(PrincipalKind::Agent);
        // It joins with its first word.
        member.has_left |= is_new;
        Ok(Mailbox {
            mailroom: mailroom.clone(),
            principal: Arc::new(Principal::agent(id)),
        })
    }

    /// The Guardian's mailbox.
    pub fn guardian(&self, mailroom: &AgentRef) -> Mailbox {
        let guardian = Principal {
            scopes: vec![GUARDIAN_SCOPE.to_owned()],
            ..Principal::agent(GUARDIAN)
        };
        Mailbox {
            mailroom: mailroom.clone(),
            principal: Arc::new(guardian),
        }
    }
}

impl Mailbox {
    /// Whose it is.
    pub fn id(&self) -> &str {
        &self.principal.id
    }

    /// Asks any of a mailroom's messages.
    ///
    /// # Errors
    /// The mailroom's, and where it is away.
    pub async fn ask<T, M>(&self, message: M) -> Result<T, Failure>
    where
        T: Send + 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let call = CallMeta::new(self.principal.clone());
        self.mailroom
            .ask(message)
            .within_call(Some(Arc::new(call)))
            .await
            .map_err(Failure::from)?
    }

    /// Says something to one agent.
    ///
    /// # Errors
    /// As [`Mailbox::ask`]. Whoever isn't there is told by [`Sent::success`].
    pub async fn send(&self, to: &str, message: &str) -> Result<Sent, Failure> {
        let to = Some(to.to_owned());
        self.ask(SendMessage {
            message: message.to_owned(),
            recipient_agent_id: to,
            ..SendMessage::default()
        })
        .await
    }

    /// Says something to all that it sees.
    ///
    /// # Errors
    /// As [`Mailbox::ask`].
    pub async fn broadcast(&self, message: &str) -> Result<Sent, Failure> {
        self.ask(BroadcastMessage {
            message: message.to_owned(),
            ..BroadcastMessage::default()
        })
        .await
    }

    /// Answers a message.
    ///
    /// # Errors
    /// As [`Mailbox::ask`]; `NotFound` where it isn't one of its own.
    pub async fn reply(&self, message_id: &str, message: &str) -> Result<Sent, Failure> {
        let (message_id, message) = (message_id.to_owned(), message.to_owned());
        self.ask(ReplyMessage {
            message_id,
            message,
            ..ReplyMessage::default()
        })
        .await
    }

    /// What it hasn't read; what is shown whole is read by that.
    ///
    /// # Errors
    /// As [`Mailbox::ask`].
    pub async fn check(&self) -> Result<Inbox, Failure> {
        self.ask(CheckInbox::default()).await
    }

    /// A message whole; it is read by that.
    ///
    /// # Errors
    /// As [`Mailbox::reply`].
    pub async fn read(&self, message_id: &str) -> Result<MailView, Failure> {
        self.ask(ReadMessage {
            message_id: message_id.to_owned(),
            ..ReadMessage::default()
        })
        .await
    }
}
