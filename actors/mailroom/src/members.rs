//! Members of a mailroom: identity, presence, delivery and who sees whom.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use callboard_message::PrincipalKind;
use callboard_message::mail::{
    GUARDIAN, MAIL_UNREAD_MAX, MemberState, MemberWay, OPERATOR, Preferences,
};
use callboard_runtime::{NewLetter, PeerSession};
use tokio::time::Instant;

use super::delivery::Line;
use super::groups::{Group, Place};
use super::limit::Limit;
use super::options::MailroomOptions;
use super::text::{Names, is_reserved};

/// How long somebody counts as here who was heard of.
pub const SEEN_FOR: Duration = Duration::from_secs(60);
/// Live sessions of a member that are told of mail: the newest.
pub const SESSIONS_MAX: usize = 8;

/// Somebody who has mail.
pub(super) struct Member {
    pub(super) id: Arc<str>,
    /// What vouches for it: nobody whom something else vouches for is it. `None` until it first says something.
    pub(super) kind: Option<PrincipalKind>,
    /// A file has a key of its name, and no agent takes its mail.
    pub(super) has_key: bool,
    /// How many members are apart, this one counted.
    apart: Arc<AtomicUsize>,
    /// What the topology says that it is in, and what its credential said.
    pub(super) declared: Option<Place>,
    pub(super) scoped: Place,
    /// Both.
    pub(super) place: Place,
    /// The agent that takes its mail, by its name in the directory, and what kind of a way that is.
    pub(super) takes: Option<String>,
    pub(super) via: Option<MemberWay>,
    pub(super) line: Option<Line>,
    pub(super) is_ended: bool,
    /// A file has it, or had it last.
    pub(super) in_file: bool,
    /// No file has it any more, and it has said nothing since: it isn't there, and its mail waits.
    pub(super) is_gone: bool,
    /// Which version of what is kept of it this is; 0: nothing is kept.
    pub(super) version: u64,
    /// It said that it goes, and hasn't been heard of since.
    pub(super) has_left: bool,
    pub(super) seen: Option<(Instant, SystemTime)>,
    /// How much it has not read.
    pub(super) unread: i64,
    pub(super) wants: Arc<Preferences>,
    pub(super) limit: Limit,
    sessions: Vec<Arc<PeerSession>>,
    /// It is being asked about an urgent message.
    pub(super) is_asked: Arc<AtomicBool>,
    /// Whoever watches its inbox is told of mail.
    pub(super) is_watched: bool,
}

impl Member {
    fn new(id: &str, options: &MailroomOptions, apart: Arc<AtomicUsize>) -> Self {
        Self {
            id: id.into(),
            apart,
            kind: None,
            has_key: false,
            declared: None,
            scoped: Place::default(),
            place: Place::default(),
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
            limit: Limit::new(options),
            sessions: Vec::new(),
            is_asked: Arc::default(),
            is_watched: false,
        }
    }

    /// It is the Guardian or the operator: no agent, and so in no group, and seen by all.
    pub(super) fn is_office(&self) -> bool {
        is_reserved(&self.id)
    }

    /// Whether something else vouches for it than `kind`. Until it says something, that is its key, where a file has one.
    pub(super) fn is_others(&self, kind: PrincipalKind) -> bool {
        self.kind
            .or(self.has_key.then_some(PrincipalKind::ApiKey))
            .is_some_and(|known| known != kind)
    }

    /// Takes what the topology says.
    pub(super) fn declare(&mut self, declared: Option<Place>) {
        self.declared = declared;
        self.settle();
    }

    /// Takes what its credential says.
    pub(super) fn scope(&mut self, scoped: Place) {
        self.scoped = scoped;
        self.settle();
    }

    /// Whether it is among the members: this node's file has it, or it wasn't taken out of one.
    pub(super) fn is_here(&self) -> bool {
        !self.is_gone || self.declared.is_some()
    }

    /// Whether it can be written to.
    pub(super) fn is_open(&self) -> bool {
        !self.is_ended && self.is_here()
    }

    /// It was taken out of the file. What it was in stays, so that nobody learns by its end of whom it didn't see.
    pub(super) fn take_out(&mut self) {
        self.scoped = self.place.clone();
        self.declared = None;
        (self.in_file, self.is_gone) = (false, true);
        self.leave();
    }

    fn settle(&mut self) {
        let was_apart = self.place.apart;
        self.place = self
            .declared
            .as_ref()
            .map_or_else(|| self.scoped.clone(), |said| said.with(&self.scoped));
        match (was_apart, self.place.apart) {
            (false, true) => self.apart.fetch_add(1, Relaxed),
            (true, false) => self.apart.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }

    /// It said something just now.
    pub(super) fn heard(&mut self, session: Option<&Arc<PeerSession>>) {
        self.seen = Some((Instant::now(), SystemTime::now()));
        self.has_left = false;
        let Some(session) = session else { return };
        self.sessions
            .retain(|known| !known.over.is_cancelled() && known.id != session.id);
        if self.sessions.len() >= SESSIONS_MAX {
            self.sessions.remove(0);
        }
        self.sessions.push(session.clone());
    }

    /// Ends the delivery of its mail, where it has a way.
    pub fn end_line(&mut self) {
        if let Some(line) = self.line.take() {
            line.end();
        }
    }

    /// It goes.
    pub(super) fn leave(&mut self) {
        self.seen = None;
        self.sessions.clear();
        self.has_left = true;
    }

    /// Its live sessions, newest last.
    pub(super) fn sessions(&mut self) -> &[Arc<PeerSession>] {
        self.sessions.retain(|session| !session.over.is_cancelled());
        &self.sessions
    }

    fn has_session(&self) -> bool {
        self.sessions
            .iter()
            .any(|session| !session.over.is_cancelled())
    }

    pub(super) fn state(&self) -> MemberState {
        let was_seen = || self.seen.is_some_and(|(at, _)| at.elapsed() <= SEEN_FOR);
        let works = || self.line.as_ref().is_some_and(Line::works);
        match self.is_ended {
            true => MemberState::Terminated,
            false if self.has_session() || works() || was_seen() => MemberState::Active,
            false => MemberState::Away,
        }
    }

    pub(super) fn way(&self) -> MemberWay {
        match &self.line {
            Some(line) if line.leads_nowhere() => MemberWay::None,
            Some(_) => self.via.unwrap_or(MemberWay::Agent),
            None if self.has_session() => MemberWay::Mcp,
            None => MemberWay::None,
        }
    }

    /// Whether its box takes no more. Whoever gets its mail needn't say that it reads it.
    pub(super) fn is_full(&self) -> bool {
        match &self.line {
            Some(line) => line.undelivered() >= MAIL_UNREAD_MAX,
            None => usize::try_from(self.unread).is_ok_and(|unread| unread >= MAIL_UNREAD_MAX),
        }
    }

    /// Whether it doesn't want what somebody says to all or to a group.
    pub(super) fn mutes(&self, sender: &str, topic: Option<&str>) -> bool {
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

/// Everybody, by id.
pub(super) struct Members {
    by_id: BTreeMap<Arc<str>, Member>,
    pub names: Names,
    /// How many are apart: where none is, all see each other.
    apart: Arc<AtomicUsize>,
}

impl Members {
    /// Nobody but the Guardian and the operator.
    pub fn new(options: &MailroomOptions) -> Self {
        let (names, apart) = (Names::new(options.example_ids), Arc::default());
        let mut members = Self {
            by_id: BTreeMap::new(),
            names,
            apart,
        };
        for office in [GUARDIAN, OPERATOR] {
            members.by_id.insert(
                office.into(),
                Member::new(office, options, members.apart.clone()),
            );
        }
        members
    }

    /// How many agents there are.
    pub fn len(&self) -> usize {
        self.agents().count()
    }

    pub fn get(&self, id: &str) -> Option<&Member> {
        self.by_id.get(id)
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.by_id.get_mut(id)
    }

    /// The member of that id, made where there is none.
    pub fn entry(&mut self, id: &str, options: &MailroomOptions) -> &mut Member {
        self.names.insert(id);
        self.by_id
            .entry(id.into())
            .or_insert_with(|| Member::new(id, options, self.apart.clone()))
    }

    /// Everybody but the Guardian and the operator.
    pub fn agents(&self) -> impl Iterator<Item = &Member> {
        self.by_id.values().filter(|member| !member.is_office())
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.by_id.values_mut()
    }

    /// Other names, where examples' ids are shown otherwise from now on.
    pub fn rename(&mut self, example_ids: bool) {
        let mut names = Names::new(example_ids);
        for member in self.agents() {
            names.insert(&member.id);
        }
        self.names = names;
    }

    /// Whether `who` sees `other`: they share a group, or one of them is no agent.
    pub fn sees(&self, who: &str, other: &str) -> bool {
        let (Some(who), Some(other)) = (self.get(who), self.get(other)) else {
            return false;
        };
        sees(who, other)
    }

    /// Number of a letter's recipients that the member `id` may know of: all, where it sent it or `watches`.
    pub fn known(&self, id: &str, watches: bool, letter: &NewLetter) -> usize {
        let knows_all = letter.sender == id || watches || self.apart.load(Relaxed) == 0;
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

    /// Those that `who` sees, itself too, by id.
    pub fn seen_by<'a>(&'a self, who: &'a str) -> impl Iterator<Item = &'a Member> + 'a {
        let viewer = self.get(who);
        self.agents()
            .filter(move |member| member.is_here() && viewer.is_some_and(|who| sees(who, member)))
    }

    /// Whether there is such a group for `who`: somebody is in it that it sees, who may be terminated, or itself.
    pub fn has_group(&self, who: &str, group: &Group) -> bool {
        self.seen_by(who).any(|member| member.place.is_in(group))
    }

    /// The groups that `who` can write to, and how many in each it sees.
    pub fn groups_seen_by(&self, who: &str) -> BTreeMap<Group, u64> {
        let mut groups = BTreeMap::new();
        for member in self.seen_by(who).filter(|member| !member.is_ended) {
            for group in member.place.all() {
                *groups.entry(group).or_default() += 1;
            }
        }
        groups
    }
}

fn sees(who: &Member, other: &Member) -> bool {
    who.id == other.id || who.is_office() || other.is_office() || who.place.sees(&other.place)
}
