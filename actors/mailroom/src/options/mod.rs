//! Configuration of a mailroom and its members, with validation.

pub(crate) mod groups;

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use callboard_message::DataClass;
use callboard_message::mail::{
    DeliveryMethod, GUARDIAN_ID, GUARDIAN_SCOPE, MAIL_EXPIRES_DEFAULT, MAIL_EXPIRES_MAX,
    MAIL_GROUPS_MAX, MAIL_MEMBERS_MAX, MemberId, WATCH_SCOPE,
};
use callboard_runtime::JournalError;

use groups::GroupSet;

use crate::text::is_reserved;

/// Scope that permits to mark agents as ended or as back.
pub(crate) const ADMIN_SCOPE: &str = "mail.admin";
/// Default number of messages a second that a member may send. Further ones are rejected with
/// `Overloaded`.
pub const MESSAGES_PER_SECOND_DEFAULT: NonZeroU32 = NonZeroU32::new(50).unwrap();
/// Default number of broadcasts a minute that a member may send. Further ones are rejected with
/// `Overloaded`.
pub const BROADCASTS_PER_MINUTE_DEFAULT: NonZeroU32 = NonZeroU32::new(30).unwrap();

/// Declaration of a member in a mailroom's configuration. A declared member can receive mail before
/// its first request; other agents become members by their first request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberDeclaration {
    /// Agent id ([`MemberId`]).
    pub id: String,
    /// Role of the member.
    pub role: Option<String>,
    /// Work phase that the member is in.
    pub phase: Option<String>,
    /// Named groups of the member.
    pub groups: Vec<String>,
    /// Whether the member is isolated: it sees, and is seen by, only agents that share one of its
    /// named groups, and the Guardian and the operator.
    pub is_isolated: bool,
    /// Directory name of the agent that takes the member's mail: one that handles
    /// [`DeliverMessage`](callboard_message::mail::DeliverMessage) or converses. `None` if the
    /// member fetches its mail.
    pub delivery_agent: Option<String>,
    /// Delivery method of the delivery agent, as shown in lists; `None` for an agent of this
    /// process.
    pub delivery_method: Option<DeliveryMethod>,
    /// Scopes of the member's API key; `None` if it has none. Scopes can grant further groups.
    pub key_scopes: Option<Vec<String>>,
}

impl MemberDeclaration {
    /// Creates a declaration without groups and without a delivery agent.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            ..Self::default()
        }
    }

    /// Sets the directory name of the agent that takes the member's mail, and returns the
    /// declaration.
    pub fn with_delivery_agent(self, way: impl Into<String>) -> Self {
        Self {
            delivery_agent: Some(way.into()),
            ..self
        }
    }

    /// Returns the role, phase, named groups and isolation of the declaration.
    pub(crate) fn declared_groups(&self) -> GroupSet {
        GroupSet {
            role: self.role.clone(),
            phase: self.phase.clone(),
            groups: self.groups.iter().cloned().collect(),
            apart: self.is_isolated,
        }
    }

    /// Creates the declaration of a member from the name and scopes of an API key. Returns `None`
    /// if the key's holder is no agent: the key is the Guardian's, its name is not a valid agent
    /// id, or its scopes grant only the rights to watch or administer.
    pub fn from_key(name: &str, scopes: &[String]) -> Option<Self> {
        let rights = MemberRights::of(scopes);
        let only_looks = (rights.can_watch || rights.can_administer)
            && GroupSet::from_scopes(scopes) == GroupSet::default();
        let is_agents = check_id(name).is_ok() && !rights.is_guardian && !only_looks;
        is_agents.then(|| Self {
            key_scopes: Some(scopes.to_vec()),
            ..Self::new(name)
        })
    }
}

/// Special rights that the scopes of a credential grant.
pub(crate) struct MemberRights {
    /// Whether the holder is the Guardian.
    pub is_guardian: bool,
    pub can_watch: bool,
    pub can_administer: bool,
}

impl MemberRights {
    pub fn of(scopes: &[String]) -> Self {
        let may = |scope: &str| scopes.iter().any(|has| has == scope);
        Self {
            is_guardian: may(GUARDIAN_SCOPE),
            can_watch: may(WATCH_SCOPE),
            can_administer: may(ADMIN_SCOPE),
        }
    }
}

/// Configuration of a mailroom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailroomOptions {
    /// Declared members.
    pub members: Vec<MemberDeclaration>,
    /// Number of messages a second that a member may send, broadcasts included; also the size of a
    /// burst. Further ones are rejected with `Overloaded`. The Guardian has no limit.
    pub messages_per_second: NonZeroU32,
    /// Number of broadcasts a minute that a member may send, those to groups included; also the
    /// size of a burst. Further ones are rejected with `Overloaded`. The Guardian has no limit.
    pub broadcasts_per_minute: NonZeroU32,
    /// Time until a message expires unless its sender chooses another; at least 1 s and at most
    /// [`MAIL_EXPIRES_MAX`].
    pub expires: Duration,
    /// Confidentiality class of messages. It must not be clinical, because messages are stored.
    pub class: DataClass,
    /// Whether ids such as `agent-456` are displayed as `456`.
    pub example_ids: bool,
}

impl Default for MailroomOptions {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            messages_per_second: MESSAGES_PER_SECOND_DEFAULT,
            broadcasts_per_minute: BROADCASTS_PER_MINUTE_DEFAULT,
            expires: MAIL_EXPIRES_DEFAULT,
            class: DataClass::Personal,
            example_ids: false,
        }
    }
}

impl MailroomOptions {
    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns the first problem as a [`MailroomError`].
    pub fn validate(&self) -> Result<(), MailroomError> {
        if self.class == DataClass::Clinical {
            return Err(MailroomError::ClinicalClass);
        }
        if self.expires > MAIL_EXPIRES_MAX || self.expires < Duration::from_secs(1) {
            return Err(MailroomError::InvalidExpiry);
        }
        // Holders of keys become members only as far as there is room.
        if self
            .members
            .iter()
            .filter(|member| member.key_scopes.is_none())
            .count()
            > MAIL_MEMBERS_MAX
        {
            return Err(MailroomError::TooManyMembers);
        }
        let mut ids = HashSet::new();
        for member in &self.members {
            check_id(&member.id)?;
            if !ids.insert(&member.id) {
                return Err(MailroomError::DuplicateMember(member.id.clone()));
            }
            let words = member
                .role
                .iter()
                .chain(&member.phase)
                .chain(&member.groups);
            if member.groups.len() > MAIL_GROUPS_MAX
                || words.into_iter().any(|word| MemberId::parse(word).is_err())
            {
                return Err(MailroomError::InvalidGroups(member.id.clone()));
            }
        }
        Ok(())
    }
}

/// Checks that an id is valid and not reserved.
///
/// # Errors
/// [`MailroomError::InvalidId`], [`MailroomError::ReservedId`].
pub(crate) fn check_id(id: &str) -> Result<(), MailroomError> {
    if MemberId::parse(id).is_err() {
        return Err(MailroomError::InvalidId(id.to_owned()));
    }
    if is_reserved(id) {
        Err(MailroomError::ReservedId(id.to_owned()))
    } else {
        Ok(())
    }
}

/// Error of an invalid configuration, or of a mailroom or mailbox that can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailroomError {
    /// The text is not a valid agent id.
    #[error("{0:?} is no agent's id: use 1 to {max} characters of A-Z a-z 0-9 . _ -", max = MemberId::CHARS_MAX)]
    InvalidId(String),
    /// The id is reserved for the Guardian, the operator or the system.
    #[error("the id {0} is reserved: {GUARDIAN_ID}, operator and system can't be used")]
    ReservedId(String),
    /// The id is declared twice.
    #[error("the member {0} is declared twice: remove one declaration")]
    DuplicateMember(String),
    /// The role, phase or a group has an invalid name, or there are too many groups.
    #[error(
        "{0} can be in at most {MAIL_GROUPS_MAX} groups; the names of these, its role and its phase have 1 to {max} characters of A-Z a-z 0-9 . _ -",
        max = MemberId::CHARS_MAX
    )]
    InvalidGroups(String),
    /// There are more than [`MAIL_MEMBERS_MAX`] members.
    #[error("a mailroom has at most {MAIL_MEMBERS_MAX} members: declare fewer")]
    TooManyMembers,
    /// The confidentiality class is clinical, which must not be stored.
    #[error(
        "a mailroom can't have the class `clinical`, because it stores its messages: choose a lower class"
    )]
    ClinicalClass,
    /// The default expiry is less than 1 s or more than [`MAIL_EXPIRES_MAX`].
    #[error("messages expire after 1 s at least and {} days at most", MAIL_EXPIRES_MAX.as_secs() / 86_400)]
    InvalidExpiry,
    /// The id is claimed by a principal with an API key.
    #[error("the id {0} is claimed by a principal with an API key: choose another id")]
    IdTaken(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] JournalError),
}
