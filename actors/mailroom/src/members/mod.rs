//! Members of a mailroom: identity, presence, delivery and visibility.

pub(crate) mod directory;
pub(crate) mod identity;
pub(crate) mod queue;
pub(crate) mod rate_limit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use callboard_message::PrincipalKind;
use callboard_message::mail::{
    DeliveryMethod, GUARDIAN_ID, MAIL_UNREAD_MAX, MailMessageKind, MemberState, OPERATOR_ID,
    Preferences,
};
use callboard_runtime::{NewMailMessage, PeerSession};
use tokio::time::Instant;

use crate::options::MailroomOptions;
use crate::options::groups::{Group, GroupSet, audience_name};
use crate::text::{DisplayNames, OutgoingMail, is_reserved, message_prefix};
use queue::DeliveryQueue;
use rate_limit::MemberRateLimit;

/// Time after its last request during which a member without a live session or a working delivery
/// queue is shown as active. Then it is shown as away.
pub const PRESENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of live sessions per member that are notified of mail. A further session replaces
/// the oldest.
pub const MEMBER_SESSIONS_MAX: usize = 8;

/// Entry of one member: the Guardian, the operator, or an agent with a mailbox.
pub(crate) struct Member {
    pub(crate) id: Arc<str>,
    /// Credential kind that first claimed this id; claims by other kinds are rejected. `None` until
    /// the first request.
    pub(crate) kind: Option<PrincipalKind>,
    /// Whether the configuration has an API key with this member's id as name, and no delivery
    /// agent for the member.
    pub(crate) has_key: bool,
    /// Number of isolated members in the mailroom, shared by all members. This member changes it
    /// when its own isolation changes.
    isolated_count: Arc<AtomicUsize>,
    /// Groups declared in the configuration; `None` if the member isn't declared.
    pub(crate) declared_groups: Option<GroupSet>,
    /// Groups granted by the scopes of the member's credential.
    pub(crate) credential_groups: GroupSet,
    /// Effective groups: union of the declared groups and those of the credential.
    pub(crate) place: GroupSet,
    /// Directory name of the delivery agent; `None` if the member fetches its mail.
    pub(crate) takes: Option<String>,
    /// Delivery method of the delivery agent; `None` for an agent of this process, or without a
    /// delivery agent.
    pub(crate) via: Option<DeliveryMethod>,
    pub(crate) line: Option<DeliveryQueue>,
    pub(crate) is_ended: bool,
    /// Whether the member is declared in a configuration file, according to its stored record or
    /// this node's configuration.
    pub(crate) in_file: bool,
    /// Whether the member was removed from the configuration and has sent no request since. It is
    /// then hidden from lists; its mail is kept.
    pub(crate) is_gone: bool,
    /// Version of the stored record; 0 if none is stored.
    pub(crate) version: u64,
    /// Whether the member has left the mailroom and hasn't sent a request since.
    pub(crate) has_left: bool,
    pub(crate) seen: Option<(Instant, SystemTime)>,
    /// Number of unread messages.
    pub(crate) unread: i64,
    pub(crate) wants: Arc<Preferences>,
    pub(crate) rate_limit: MemberRateLimit,
    sessions: Vec<Arc<PeerSession>>,
    /// Whether a question about an urgent message to this member is open. Only one is asked at a
    /// time.
    pub(crate) is_asked: Arc<AtomicBool>,
    /// Whether clients have subscribed to the member's inbox resource, which must be notified of
    /// new mail.
    pub(crate) is_watched: bool,
}

impl Member {
    fn new(id: &str, options: &MailroomOptions, isolated_count: Arc<AtomicUsize>) -> Self {
        Self {
            id: id.into(),
            isolated_count,
            kind: None,
            has_key: false,
            declared_groups: None,
            credential_groups: GroupSet::default(),
            place: GroupSet::default(),
            takes: None,
            via: None,
            line: None,
            is_ended: false,
            in_file: false,
            is_gone: false,
            version: 0,
            has_left: false,
            seen: None,
            unread: 0,
            wants: Arc::default(),
            rate_limit: MemberRateLimit::new(options),
            sessions: Vec::new(),
            is_asked: Arc::default(),
            is_watched: false,
        }
    }

    /// Returns whether the member is the Guardian or the operator. These are no agents, are in no
    /// group, and are visible to all members.
    pub(crate) fn is_reserved(&self) -> bool {
        is_reserved(&self.id)
    }

    /// Returns whether another credential kind than `kind` has claimed the id. Until the first
    /// request, a declared API key of this name claims it.
    pub(crate) fn is_claimed_by_other(&self, kind: PrincipalKind) -> bool {
        self.kind
            .or(self.has_key.then_some(PrincipalKind::ApiKey))
            .is_some_and(|known| known != kind)
    }

    /// Sets the groups declared in the configuration; `None` if the member isn't declared.
    pub(crate) fn set_declared_groups(&mut self, declared: Option<GroupSet>) {
        self.declared_groups = declared;
        self.recompute_groups();
    }

    /// Sets the groups granted by the credential's scopes.
    pub(crate) fn set_credential_groups(&mut self, scoped: GroupSet) {
        self.credential_groups = scoped;
        self.recompute_groups();
    }

    /// Returns whether the member appears in lists. Members that were removed from the
    /// configuration don't, unless this node declares them.
    pub(crate) fn is_listed(&self) -> bool {
        !self.is_gone || self.declared_groups.is_some()
    }

    /// Returns whether messages to the member are accepted: it is listed and not terminated.
    pub(crate) fn accepts_mail(&self) -> bool {
        !self.is_ended && self.is_listed()
    }

    /// Marks the member as removed from the configuration and as absent. It keeps its effective
    /// groups, so that only agents that could see it get the event that it left.
    pub(crate) fn mark_removed(&mut self) {
        self.credential_groups = self.place.clone();
        self.declared_groups = None;
        (self.in_file, self.is_gone) = (false, true);
        self.mark_left();
    }

    fn recompute_groups(&mut self) {
        let was_apart = self.place.apart;
        self.place = self.declared_groups.as_ref().map_or_else(
            || self.credential_groups.clone(),
            |said| said.merged_with(&self.credential_groups),
        );
        match (was_apart, self.place.apart) {
            (false, true) => self.isolated_count.fetch_add(1, Relaxed),
            (true, false) => self.isolated_count.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }

    /// Records the time of a member's request, and the session through which it came, if any.
    pub(crate) fn record_activity(&mut self, session: Option<&Arc<PeerSession>>) {
        self.seen = Some((Instant::now(), SystemTime::now()));
        self.has_left = false;
        let Some(session) = session else { return };
        self.sessions
            .retain(|known| !known.closed.is_cancelled() && known.id != session.id);
        if self.sessions.len() >= MEMBER_SESSIONS_MAX {
            self.sessions.remove(0);
        }
        self.sessions.push(session.clone());
    }

    /// Stops and removes the delivery queue, if the member has one.
    pub fn close_queue(&mut self) {
        if let Some(line) = self.line.take() {
            line.close();
        }
    }

    /// Marks the member as absent and drops its sessions.
    pub(crate) fn mark_left(&mut self) {
        self.seen = None;
        self.sessions.clear();
        self.has_left = true;
    }

    /// Returns the live sessions, newest last.
    pub(crate) fn sessions(&mut self) -> &[Arc<PeerSession>] {
        self.sessions
            .retain(|session| !session.closed.is_cancelled());
        &self.sessions
    }

    fn has_session(&self) -> bool {
        self.sessions
            .iter()
            .any(|session| !session.closed.is_cancelled())
    }

    pub(crate) fn state(&self) -> MemberState {
        let was_seen = || {
            self.seen
                .is_some_and(|(at, _)| at.elapsed() <= PRESENCE_TIMEOUT)
        };
        let works = || self.line.as_ref().is_some_and(DeliveryQueue::is_working);
        match self.is_ended {
            true => MemberState::Terminated,
            false if self.has_session() || works() || was_seen() => MemberState::Active,
            false => MemberState::Away,
        }
    }

    pub(crate) fn delivery_method(&self) -> DeliveryMethod {
        match &self.line {
            Some(line) if line.has_no_receiver() => DeliveryMethod::None,
            Some(_) => self.via.unwrap_or(DeliveryMethod::Agent),
            None if self.has_session() => DeliveryMethod::Mcp,
            None => DeliveryMethod::None,
        }
    }

    /// Returns whether the mailbox is full, that is whether [`MAIL_UNREAD_MAX`] messages wait.
    /// Undelivered messages count if the member has a delivery queue, because such a member needn't
    /// mark mail as read; otherwise unread messages count.
    pub(crate) fn is_mailbox_full(&self) -> bool {
        match &self.line {
            Some(line) => line.undelivered_count() >= MAIL_UNREAD_MAX,
            None => usize::try_from(self.unread).is_ok_and(|unread| unread >= MAIL_UNREAD_MAX),
        }
    }

    /// Returns whether the member's preferences exclude a broadcast of this sender and topic. If
    /// they limit broadcasts to certain topics, one without a topic is excluded too.
    pub(crate) fn mutes(&self, sender: &str, topic: Option<&str>) -> bool {
        let Preferences {
            mute_senders,
            mute_topics,
            topics,
            ..
        } = &*self.wants;
        let is_in = |list: &[String], word: &str| list.iter().any(|wanted| wanted == word);
        is_in(mute_senders, sender)
            || topic.is_some_and(|topic| is_in(mute_topics, topic))
            || (!topics.is_empty() && !topic.is_some_and(|topic| is_in(topics, topic)))
    }
}

/// All members by id, with their display names.
pub(crate) struct Members {
    by_id: BTreeMap<Arc<str>, Member>,
    pub display_names: DisplayNames,
    /// Number of isolated members, shared with each member. While it is 0, all members see each
    /// other.
    isolated_count: Arc<AtomicUsize>,
}

impl Members {
    /// Creates the initial members: the Guardian and the operator.
    pub fn new(options: &MailroomOptions) -> Self {
        let (names, apart) = (DisplayNames::new(options.example_ids), Arc::default());
        let mut members = Self {
            by_id: BTreeMap::new(),
            display_names: names,
            isolated_count: apart,
        };
        for office in [GUARDIAN_ID, OPERATOR_ID] {
            members.by_id.insert(
                office.into(),
                Member::new(office, options, members.isolated_count.clone()),
            );
        }
        members
    }

    /// Returns the number of agents, that is of members other than the Guardian and the operator.
    pub fn len(&self) -> usize {
        self.agents().count()
    }

    pub fn get(&self, id: &str) -> Option<&Member> {
        self.by_id.get(id)
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.by_id.get_mut(id)
    }

    /// Returns the member with the given id, and creates it if there is none.
    pub fn entry(&mut self, id: &str, options: &MailroomOptions) -> &mut Member {
        self.display_names.insert(id);
        self.by_id
            .entry(id.into())
            .or_insert_with(|| Member::new(id, options, self.isolated_count.clone()))
    }

    /// Iterates over the agents: all members except the Guardian and the operator.
    pub fn agents(&self) -> impl Iterator<Item = &Member> {
        self.by_id.values().filter(|member| !member.is_reserved())
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.by_id.values_mut()
    }

    /// Recomputes the display names of all agents. With `example_ids`, ids such as `agent-456` are
    /// displayed as `456`.
    pub fn rebuild_names(&mut self, example_ids: bool) {
        let mut names = DisplayNames::new(example_ids);
        for member in self.agents() {
            names.insert(&member.id);
        }
        self.display_names = names;
    }

    /// Returns whether the member `who` sees the member `other`. Members see each other if neither
    /// is isolated, if they share a named group, or if one of them is the Guardian or the operator.
    /// Returns `false` if either is unknown.
    pub fn sees(&self, who: &str, other: &str) -> bool {
        let (Some(who), Some(other)) = (self.get(who), self.get(other)) else {
            return false;
        };
        sees(who, other)
    }

    /// Returns how many recipients of a message the member `id` may see. The sender and callers
    /// with the right to watch (`watches`) see all.
    pub fn count_visible_recipients(
        &self,
        id: &str,
        watches: bool,
        letter: &NewMailMessage,
    ) -> usize {
        let knows_all = letter.sender == id || watches || self.isolated_count.load(Relaxed) == 0;
        if knows_all {
            letter.recipients.len()
        } else {
            letter
                .recipients
                .iter()
                .filter(|other| self.sees(id, other))
                .count()
        }
    }

    /// Iterates over the listed agents that the member `who` sees, itself included, in order of
    /// ids. Empty if `who` is unknown.
    pub fn visible_to<'a>(&'a self, who: &'a str) -> impl Iterator<Item = &'a Member> + 'a {
        let viewer = self.get(who);
        self.agents()
            .filter(move |member| member.is_listed() && viewer.is_some_and(|who| sees(who, member)))
    }

    /// Returns the text of a message as displayed to a recipient.
    pub fn format_text(&self, outgoing: &OutgoingMail, to: &str) -> String {
        let new = &outgoing.letter.new;
        let to = match new.kind {
            MailMessageKind::Group => audience_name(&new.audience),
            _ => self.display_names.display(to),
        };
        let mut text = message_prefix(
            new.kind,
            self.display_names.display(&new.sender),
            to,
            new.label.as_deref(),
        );
        text.push_str(outgoing.neutral_body());
        text
    }

    /// Returns whether the group exists from the view of the member `who`: it sees at least one
    /// agent of the group. Terminated agents and `who` itself count.
    pub fn has_group(&self, who: &str, group: &Group) -> bool {
        self.visible_to(who).any(|member| member.place.is_in(group))
    }

    /// Returns the groups of the agents that the member `who` sees, with the number of these agents
    /// in each. Terminated agents don't count.
    pub fn visible_groups(&self, who: &str) -> BTreeMap<Group, u64> {
        let mut groups = BTreeMap::new();
        for member in self.visible_to(who).filter(|member| !member.is_ended) {
            for group in member.place.iter_groups() {
                *groups.entry(group).or_default() += 1;
            }
        }
        groups
    }
}

fn sees(who: &Member, other: &Member) -> bool {
    who.id == other.id || who.is_reserved() || other.is_reserved() || who.place.sees(&other.place)
}
