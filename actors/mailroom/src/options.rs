//! Configuration of a mailroom and its members, and what makes it refused.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use callboard_message::DataClass;
use callboard_message::mail::{
    GUARDIAN, GUARDIAN_SCOPE, MAIL_EXPIRES_DEFAULT, MAIL_EXPIRES_MAX, MAIL_GROUPS_MAX,
    MAIL_MEMBERS_MAX, MailId, MemberWay, WATCH_SCOPE,
};
use callboard_runtime::JournalError;

use super::groups::Place;
use super::text::is_reserved;

/// Scope that lets its holder end agents.
pub(super) const ADMIN_SCOPE: &str = "mail.admin";
/// Messages a second that a member may send, by default.
pub const MESSAGES_A_SECOND_DEFAULT: NonZeroU32 = NonZeroU32::new(50).unwrap();
/// Broadcasts a minute that a member may send, by default.
pub const BROADCASTS_A_MINUTE_DEFAULT: NonZeroU32 = NonZeroU32::new(30).unwrap();

/// A member that is known before it first says something. Others join by saying something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Declared {
    /// Its id ([`MailId`]).
    pub id: String,
    /// What it does.
    pub role: Option<String>,
    /// The phase of the work that it is in.
    pub phase: Option<String>,
    /// The groups that it is in, beside everyone.
    pub groups: Vec<String>,
    /// It isn't among everyone: only those in one of its groups see it, and it sees only those.
    pub apart: bool,
    /// The agent that takes its mail, by its name in the directory: one that handles
    /// [`Deliver`](callboard_message::mail::Deliver), or converses. Without one it has to ask for its mail.
    pub way: Option<String>,
    /// What kind of a way that is; an agent of this process where it isn't said.
    pub via: Option<MemberWay>,
    /// The scopes of its key, where it is known to have one: what it says by it puts it into groups as well.
    pub key: Option<Vec<String>>,
}

impl Declared {
    /// A member of that id, in no group, that asks for its mail.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            ..Self::default()
        }
    }

    /// The same, whose mail the agent of that name takes.
    pub fn with_way(self, way: impl Into<String>) -> Self {
        Self {
            way: Some(way.into()),
            ..self
        }
    }

    /// Place that the topology declares.
    pub(super) fn place(&self) -> Place {
        Place {
            role: self.role.clone(),
            phase: self.phase.clone(),
            groups: self.groups.iter().cloned().collect(),
            apart: self.apart,
        }
    }

    /// Whoever has a key of that name with these scopes. `None` where the key is for no agent: it is the Guardian's, its name
    /// can't be an id, or it only watches or administers.
    pub fn of_key(name: &str, scopes: &[String]) -> Option<Self> {
        let rights = Rights::of(scopes);
        let only_looks =
            (rights.watches || rights.administers) && Place::of_scopes(scopes) == Place::default();
        let is_agents = check_id(name).is_ok() && !rights.guides && !only_looks;
        is_agents.then(|| Self {
            key: Some(scopes.to_vec()),
            ..Self::new(name)
        })
    }
}

/// Rights from the scopes of a credential, beside having mail.
pub(super) struct Rights {
    /// It is the Guardian.
    pub guides: bool,
    pub watches: bool,
    pub administers: bool,
}

impl Rights {
    pub fn of(scopes: &[String]) -> Self {
        let may = |scope: &str| scopes.iter().any(|has| has == scope);
        Self {
            guides: may(GUARDIAN_SCOPE),
            watches: may(WATCH_SCOPE),
            administers: may(ADMIN_SCOPE),
        }
    }
}

/// Configuration of a mailroom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailroomOptions {
    /// Who is known from the beginning.
    pub members: Vec<Declared>,
    /// Messages a second that a member may send, broadcasts among them; bursts of as many.
    pub messages_a_second: NonZeroU32,
    /// Broadcasts a minute that a member may send, those to groups among them; bursts of as many.
    pub broadcasts_a_minute: NonZeroU32,
    /// How long a message is handed out where its sender doesn't say; at most [`MAIL_EXPIRES_MAX`].
    pub expires: Duration,
    /// What messages may hold. Never clinical.
    pub class: DataClass,
    /// The id `agent-456` is shown as `456`.
    pub example_ids: bool,
}

impl Default for MailroomOptions {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            messages_a_second: MESSAGES_A_SECOND_DEFAULT,
            broadcasts_a_minute: BROADCASTS_A_MINUTE_DEFAULT,
            expires: MAIL_EXPIRES_DEFAULT,
            class: DataClass::Personal,
            example_ids: false,
        }
    }
}

impl MailroomOptions {
    /// Refuses what can't be.
    ///
    /// # Errors
    /// See [`MailroomError`].
    pub fn check(&self) -> Result<(), MailroomError> {
        if self.class == DataClass::Clinical {
            return Err(MailroomError::Clinical);
        }
        if self.expires > MAIL_EXPIRES_MAX || self.expires < Duration::from_secs(1) {
            return Err(MailroomError::Expires);
        }
        // Those with a key are members as far as there is room.
        if self
            .members
            .iter()
            .filter(|member| member.key.is_none())
            .count()
            > MAIL_MEMBERS_MAX
        {
            return Err(MailroomError::TooManyMembers);
        }
        let mut ids = HashSet::new();
        for member in &self.members {
            check_id(&member.id)?;
            if !ids.insert(&member.id) {
                return Err(MailroomError::Twice(member.id.clone()));
            }
            let words = member
                .role
                .iter()
                .chain(&member.phase)
                .chain(&member.groups);
            if member.groups.len() > MAIL_GROUPS_MAX
                || words.into_iter().any(|word| MailId::parse(word).is_err())
            {
                return Err(MailroomError::Groups(member.id.clone()));
            }
        }
        Ok(())
    }
}

/// Refuses what no member can be called.
pub(super) fn check_id(id: &str) -> Result<(), MailroomError> {
    if MailId::parse(id).is_err() {
        return Err(MailroomError::Id(id.to_owned()));
    }
    if is_reserved(id) {
        Err(MailroomError::Reserved(id.to_owned()))
    } else {
        Ok(())
    }
}

/// Error of a configuration that is refused, or of a mailroom or mailbox that does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailroomError {
    /// Choose another id.
    #[error("{0:?} is no agent's id: use 1 to {max} characters of A-Z a-z 0-9 . _ -", max = MailId::CHARS_MAX)]
    Id(String),
    /// Choose another id.
    #[error("the id {0} stands for somebody else: {GUARDIAN}, operator and system are taken")]
    Reserved(String),
    /// Declare it once.
    #[error("{0} is declared twice")]
    Twice(String),
    /// Use names like ids, and fewer.
    #[error(
        "the role, phase and groups of {0} must be named like agents, and at most {MAIL_GROUPS_MAX} groups"
    )]
    Groups(String),
    /// Declare fewer.
    #[error("a mailroom has at most {MAIL_MEMBERS_MAX} members")]
    TooManyMembers,
    /// Choose a lower class: what is said there is kept.
    #[error("a mailroom keeps no clinical messages")]
    Clinical,
    /// Choose a time in between.
    #[error("messages expire after 1 s at least and {} days at most", MAIL_EXPIRES_MAX.as_secs() / 86_400)]
    Expires,
    /// Whoever goes by this id shows a key: choose another id.
    #[error("{0} is somebody who comes by a key")]
    Taken(String),
    /// See there.
    #[error(transparent)]
    Store(#[from] JournalError),
}
