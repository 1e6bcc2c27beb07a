//! A mailroom begins, and is declared anew.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::mail::{
    GUARDIAN, MAIL_EXPIRES_DEFAULT, MAIL_EXPIRES_MAX, MAIL_GROUPS_MAX, MAIL_MEMBERS_MAX, MailId, MemberWay,
};
use callboard_message::{DataClass, Failure, PrincipalKind};
use callboard_runtime::{Cx, JournalError, MAIL_PAGE_MAX, SPREAD_MAX, System};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use super::delivery::Line;
use super::member_identity::Rights;
use super::members::{Member, Members, Place, is_reserved};
use super::peer_nodes::Elsewhere;
use super::post::Limit;
use super::receipt_writer::Marks;
use super::{Mailroom, Shared};

/// Members that are kept at once: the store makes few writes of many.
const KEPT_AT_ONCE: usize = 64;

/// The mailroom is set up otherwise from now on. Members that aren't declared any more leave: their mail is kept, and they are
/// back when they are declared again or say something.
#[derive(Debug, Clone, Message)]
#[message(name = "callboard.mail.declare", fallible, local)]
pub struct Declare {
    /// How.
    pub options: MailroomOptions,
}

/// What became of a member by a declaration.
enum Changed {
    /// It is in the file now; new, or back.
    Declared {
        is_new: bool,
    },
    TakenOut,
}

impl Mailroom {
    /// Begins a mailroom on the system's store, with whom it had before and what wasn't delivered. Spawn it then, and open
    /// listeners after.
    ///
    /// # Errors
    /// See [`MailroomError`].
    pub async fn open(system: &System, options: MailroomOptions) -> Result<Self, MailroomError> {
        options.check()?;
        let store = system.store();
        let shared = Arc::new_cyclic(|room| Shared {
            mail: store.mail.clone(),
            notes: store.notes.clone(),
            members: Mutex::new(Members::new(&options)),
            options: Mutex::new(Arc::new(options.clone())),
            joining: tokio::sync::Mutex::new(()),
            marks: Marks::open(system, room),
            stage: Mutex::default(),
            elsewhere: Elsewhere::default(),
        });
        if let Err(error) = shared.begin(system, &options).await {
            shared.marks.end().await;
            return Err(error);
        }
        Ok(Self { shared })
    }

    /// Ends what it has running, once its agent has ended: another mailroom on the same store may deliver then. It ends when
    /// the deliveries that are under way have ended (each within [`DELIVER_WITHIN`](super::DELIVER_WITHIN)) and are kept, and
    /// that goes on where nobody waits for it.
    pub async fn end(&self) {
        let room = self.shared.clone();
        let ending = tokio::spawn(async move {
            let lines: Vec<Line> = room.members().all_mut().filter_map(|member| member.line.take()).collect();
            lines.iter().for_each(Line::end);
            for line in lines {
                line.carrier().ended().await;
            }
            room.marks.end().await;
        });
        // It can't be cancelled by anyone else.
        let _ = ending.await;
    }
}

impl Shared {
    async fn begin(self: &Arc<Self>, system: &System, options: &MailroomOptions) -> Result<(), MailroomError> {
        self.begun().await?;
        self.spread_rest().await?;
        self.recall().await?;
        self.declare_all(system, options).await
    }

    /// Makes the copies that a process before this one didn't come to.
    async fn spread_rest(&self) -> Result<(), MailroomError> {
        loop {
            let letters = self.mail.unspread(MAIL_PAGE_MAX).await?;
            if letters.is_empty() {
                return Ok(());
            }
            for letter in letters {
                let count = letter.new.recipients.len();
                let mut done = letter.spread as usize;
                while done < count {
                    done = count.min(done + SPREAD_MAX);
                    self.mail.spread(letter.number, u32::try_from(done).unwrap_or(u32::MAX), Vec::new()).await?;
                }
            }
        }
    }

    pub async fn declare(self: &Arc<Self>, Declare { options }: Declare, cx: &Cx) -> Result<(), Failure> {
        options.check().map_err(|error| Failure::invalid(error.to_string()))?;
        self.declare_all(cx.system(), &options).await.map_err(|error| match error {
            MailroomError::Store(error) => error.into(),
            other => Failure::rejected(other.to_string()),
        })
    }

    async fn declare_all(self: &Arc<Self>, system: &System, options: &MailroomOptions) -> Result<(), MailroomError> {
        let changed = self.take_declared(system, options)?;
        // What is refused changes nothing.
        *self.options.lock() = Arc::new(options.clone());
        let kept = stream::iter(changed).map(|(id, change)| async move {
            match change {
                Changed::Declared { is_new } => self.keep_declared(&id, is_new).await,
                Changed::TakenOut => self.keep_taken_out(&id).await,
            }
        });
        let kept: Result<Vec<()>, Failure> = kept.buffer_unordered(KEPT_AT_ONCE).try_collect().await;
        kept.map(drop).map_err(|failure| JournalError::Store(failure.message).into())
    }

    /// Takes in what is declared; answers what is to be kept of it.
    fn take_declared(
        self: &Arc<Self>,
        system: &System,
        options: &MailroomOptions,
    ) -> Result<Vec<(Arc<str>, Changed)>, MailroomError> {
        let declared: HashSet<&str> = options.members.iter().map(|said| said.id.as_str()).collect();
        let mut changed = Vec::new();
        let mut members = self.members();
        let others = members.agents().filter(|member| !declared.contains(&*member.id)).count();
        let without_key = options.members.iter().filter(|said| said.key.is_none()).count();
        // Whoever has gone counts too, for its mail is kept. The file's must all be there; keys are members as far as there is room.
        let Some(mut room) = MAIL_MEMBERS_MAX.checked_sub(others + without_key) else {
            return Err(MailroomError::TooManyMembers);
        };
        members.rename(options.example_ids);
        for member in members.all_mut() {
            member.limit = Limit::new(options);
            if !declared.contains(&*member.id) && self.take_out(member) {
                changed.push((member.id.clone(), Changed::TakenOut));
            }
        }
        for said in &options.members {
            if said.key.is_some() {
                let Some(left) = room.checked_sub(1) else {
                    callboard_message::log::warn!(
                        member = said.id,
                        "there is no room for whoever has this key: it is no member"
                    );
                    continue;
                };
                room = left;
            }
            let is_known = members.get(&said.id).is_some();
            let member = members.entry(&said.id, options);
            let is_new = !is_known || member.is_gone;
            if is_new || !member.in_file {
                changed.push((member.id.clone(), Changed::Declared { is_new }));
            }
            self.apply_declared(system, member, said);
        }
        Ok(changed)
    }

    /// Notes that the file hasn't a member. `true` where it had it before.
    fn take_out(&self, member: &mut Member) -> bool {
        // Who has said nothing yet has been known from a file alone.
        let was_in_file = member.in_file || (member.kind.is_none() && !member.is_office());
        // What another node's file has isn't known here: only who was in this one before is taken out of it.
        let was_in_this = member.declared.is_some() || !self.mail.is_shared();
        let is_taken_out = !member.is_gone && was_in_file && was_in_this;
        if is_taken_out {
            member.take_out();
        } else {
            member.declare(None);
        }
        (member.takes, member.via, member.has_key) = (None, None, false);
        member.end_line();
        is_taken_out
    }

    /// Notes what the file says of a member.
    fn apply_declared(self: &Arc<Self>, system: &System, member: &mut Member, said: &Declared) {
        if member.is_gone {
            // What it was in when it was taken out.
            member.scope(Place::default());
        }
        (member.in_file, member.is_gone) = (true, false);
        member.declare(Some(Place::declared(said)));
        // A key of an agent of the process would be refused.
        if let Some(scopes) = said.key.as_ref().filter(|_| member.kind != Some(PrincipalKind::Agent)) {
            member.scope(Place::of_scopes(scopes));
        }
        member.has_key = said.key.is_some() && said.way.is_none();
        (member.takes, member.via) = (said.way.clone(), said.via);
        if member.line.as_ref().map(Line::way) != said.way.as_deref() {
            member.end_line();
            // One that is terminated gets its line when it is back.
            self.open_line(system, member);
        }
    }
}

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
        Self { id: id.into(), ..Self::default() }
    }

    /// The same, whose mail the agent of that name takes.
    pub fn with_way(self, way: impl Into<String>) -> Self {
        Self { way: Some(way.into()), ..self }
    }

    /// Whoever has a key of that name with these scopes. `None` where the key is for no agent: it is the Guardian's, its name
    /// can't be an id, or it only watches or administers.
    pub fn of_key(name: &str, scopes: &[String]) -> Option<Self> {
        let rights = Rights::of(scopes);
        let only_looks = (rights.watches || rights.administers) && Place::of_scopes(scopes) == Place::default();
        let is_agents = check_id(name).is_ok() && !rights.guides && !only_looks;
        is_agents.then(|| Self { key: Some(scopes.to_vec()), ..Self::new(name) })
    }
}

/// How a mailroom is set up.
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
        if self.members.iter().filter(|member| member.key.is_none()).count() > MAIL_MEMBERS_MAX {
            return Err(MailroomError::TooManyMembers);
        }
        let mut ids = HashSet::new();
        for member in &self.members {
            check_id(&member.id)?;
            if !ids.insert(&member.id) {
                return Err(MailroomError::Twice(member.id.clone()));
            }
            let words = member.role.iter().chain(&member.phase).chain(&member.groups);
            if member.groups.len() > MAIL_GROUPS_MAX || words.into_iter().any(|word| MailId::parse(word).is_err()) {
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
    if is_reserved(id) { Err(MailroomError::Reserved(id.to_owned())) } else { Ok(()) }
}

/// Why there is no such mailroom, or no such mailbox in it.
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
    #[error("the role, phase and groups of {0} must be named like agents, and at most {MAIL_GROUPS_MAX} groups")]
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
