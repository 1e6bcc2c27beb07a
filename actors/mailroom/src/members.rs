//! The members of a mailroom: who they are, what they are in, and what waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use callboard_message::PrincipalKind;
use callboard_message::mail::{
    GUARDIAN, MAIL_GROUPS_MAX, MAIL_UNREAD_MAX, MailId, MemberState, MemberWay, OPERATOR, Preferences, SYSTEM,
};
use callboard_runtime::{NewLetter, PeerSession};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::delivery::Line;
use super::member_identity::Who;
use super::post::Limit;
use super::setup::{Declared, MailroomOptions};
use super::text::Names;

/// How long somebody counts as here who was heard of.
pub const SEEN_FOR: Duration = Duration::from_secs(60);
/// Live sessions of a member that are told of mail: the newest.
pub const SESSIONS_MAX: usize = 8;

/// Ids of those who are no agents.
pub(super) const OFFICES: [&str; 3] = [GUARDIAN, OPERATOR, SYSTEM];

/// Whether an id stands for somebody who is no agent.
pub(super) fn is_reserved(id: &str) -> bool {
    OFFICES.contains(&id)
}

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
        self.kind.or(self.has_key.then_some(PrincipalKind::ApiKey)).is_some_and(|known| known != kind)
    }

    /// Takes what the topology says.
    pub(super) fn declare(&mut self, declared: Option<Place>) {
        self.declared = declared;
        self.settle();
    }

    /// Takes what its credential says. `false` where it said the same before.
    pub(super) fn scope(&mut self, scoped: Place) -> bool {
        let is_other = self.scoped != scoped;
        self.scoped = scoped;
        self.settle();
        is_other
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
        self.place = self.declared.as_ref().map_or_else(|| self.scoped.clone(), |said| said.with(&self.scoped));
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
        self.sessions.retain(|known| !known.over.is_cancelled() && known.id != session.id);
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
        self.sessions.iter().any(|session| !session.over.is_cancelled())
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
        let Preferences { mute_senders, mute_topics, topics, .. } = &*self.wants;
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
        let mut members = Self { by_id: BTreeMap::new(), names, apart };
        for office in [GUARDIAN, OPERATOR] {
            members.by_id.insert(office.into(), Member::new(office, options, members.apart.clone()));
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
        self.by_id.entry(id.into()).or_insert_with(|| Member::new(id, options, self.apart.clone()))
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
        let (Some(who), Some(other)) = (self.get(who), self.get(other)) else { return false };
        sees(who, other)
    }

    /// How many of a letter's recipients `who` may know of: all, where it sent it.
    pub fn known(&self, who: &Who, letter: &NewLetter) -> usize {
        let knows_all = letter.sender == *who.id || who.watches || self.apart.load(Relaxed) == 0;
        if knows_all {
            letter.recipients.len()
        } else {
            letter.recipients.iter().filter(|id| self.sees(&who.id, id)).count()
        }
    }

    /// Those that `who` sees, itself too, by id.
    pub fn seen_by<'a>(&'a self, who: &'a str) -> impl Iterator<Item = &'a Member> + 'a {
        let viewer = self.get(who);
        self.agents().filter(move |member| member.is_here() && viewer.is_some_and(|who| sees(who, member)))
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

/// What a member is in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Place {
    pub role: Option<String>,
    pub phase: Option<String>,
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// It isn't among everyone.
    #[serde(default)]
    pub apart: bool,
}

impl Place {
    /// What a topology says.
    pub fn declared(declared: &Declared) -> Self {
        Self {
            role: declared.role.clone(),
            phase: declared.phase.clone(),
            groups: declared.groups.iter().cloned().collect(),
            apart: declared.apart,
        }
    }

    /// What the scopes of a credential say. Names that can't be any are passed over.
    pub fn of_scopes(scopes: &[String]) -> Self {
        let mut place = Self::default();
        for scope in scopes {
            let Some(said) = scope.strip_prefix("mail.") else { continue };
            match said.split_once(':') {
                None => place.apart |= said == "apart",
                Some((_, name)) if MailId::parse(name).is_err() => {}
                Some(("role", name)) => place.role = Some(name.to_owned()),
                Some(("phase", name)) => place.phase = Some(name.to_owned()),
                Some(("group", name)) if place.groups.len() < MAIL_GROUPS_MAX => {
                    place.groups.insert(name.to_owned());
                }
                Some(_) => {}
            }
        }
        place
    }

    /// Both; where they say different things, `over`.
    fn with(&self, over: &Self) -> Self {
        Self {
            role: over.role.as_ref().or(self.role.as_ref()).cloned(),
            phase: over.phase.as_ref().or(self.phase.as_ref()).cloned(),
            groups: self.groups.union(&over.groups).take(MAIL_GROUPS_MAX).cloned().collect(),
            apart: self.apart || over.apart,
        }
    }

    /// Whether two that are in these places see each other.
    fn sees(&self, other: &Self) -> bool {
        (!self.apart && !other.apart) || !self.groups.is_disjoint(&other.groups)
    }

    /// Every group that it is in but everyone.
    fn all(&self) -> impl Iterator<Item = Group> + '_ {
        let groups = self.groups.iter().cloned().map(Group::Named);
        let role = self.role.iter().cloned().map(Group::Role);
        groups.chain(role).chain(self.phase.iter().cloned().map(Group::Phase))
    }

    pub fn is_in(&self, group: &Group) -> bool {
        match group {
            Group::Named(name) => self.groups.contains(name),
            Group::Role(name) => self.role.as_ref() == Some(name),
            Group::Phase(name) => self.phase.as_ref() == Some(name),
        }
    }
}

/// A group by its name: `group:NAME`, `role:NAME` or `phase:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Named(String),
    Role(String),
    Phase(String),
}

impl Group {
    /// Reads one; a bare name is a group's.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':').unwrap_or(("group", text));
        let name = MailId::parse(name).ok()?.to_string();
        match kind {
            "group" => Some(Self::Named(name)),
            "role" => Some(Self::Role(name)),
            "phase" => Some(Self::Phase(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "group:{name}"),
            Self::Role(name) => write!(f, "role:{name}"),
            Self::Phase(name) => write!(f, "phase:{name}"),
        }
    }
}

/// A group's name in a prefix: what was said to `group:NAME` is said to `NAME`.
pub(super) fn shown(audience: &str) -> &str {
    audience.strip_prefix("group:").unwrap_or(audience)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(of: &[&str]) -> Place {
        Place::of_scopes(&of.iter().map(|&scope| scope.to_owned()).collect::<Vec<_>>())
    }

    /// Goal: only what a scope says plainly puts somebody into a group. Method: one of each, names that can't be any, and a
    /// group too many.
    #[test]
    fn scopes_say_where() {
        let place =
            scopes(&["mail.role:reviewer", "mail.phase:2", "mail.group:red", "mail.apart", "read", "mail.watch"]);
        assert_eq!(
            place.all().map(|group| group.to_string()).collect::<Vec<_>>(),
            ["group:red", "role:reviewer", "phase:2"]
        );
        assert!(place.apart);
        assert_eq!(scopes(&["mail.role:a b", "mail.group:", "mail.group", "mail.other:x", "role:x"]), Place::default());
        let many: Vec<String> = (0..=MAIL_GROUPS_MAX).map(|n| format!("mail.group:{n}")).collect();
        assert_eq!(Place::of_scopes(&many).groups.len(), MAIL_GROUPS_MAX);
    }

    /// Goal: whoever is apart is seen by its groups alone, either way round. Method: each pair of four.
    #[test]
    fn who_sees_whom() {
        let all =
            [scopes(&[]), scopes(&["mail.group:a"]), scopes(&["mail.group:a", "mail.apart"]), scopes(&["mail.apart"])];
        let seen: Vec<Vec<bool>> = all.iter().map(|one| all.iter().map(|other| one.sees(other)).collect()).collect();
        assert_eq!(
            seen,
            [
                vec![true, true, false, false],
                vec![true, true, true, false],
                vec![false, true, true, false],
                vec![false, false, false, false],
            ]
        );
    }

    /// Goal: a name reads as it is written. Method: each kind, a bare name, and what is none.
    #[test]
    fn names() {
        for text in ["group:a", "role:b", "phase:3"] {
            assert_eq!(Group::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Group::parse("a"), Some(Group::Named("a".into())));
        assert!(["", "group:", "team:a", "a:b:c", "a b"].iter().all(|text| Group::parse(text).is_none()));
        assert_eq!([shown("group:a"), shown("role:a")], ["a", "role:a"]);
    }
}
