//! A mailroom begins, and is declared anew.

use std::collections::HashSet;
use std::sync::Arc;

use callboard_macros::Message;
use callboard_message::mail::MAIL_MEMBERS_MAX;
use callboard_message::{Failure, PrincipalKind};
use callboard_runtime::{Cx, JournalError, MAIL_PAGE_MAX, SPREAD_MAX, System};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use super::delivery::Line;
use super::groups::Place;
use super::limit::Limit;
use super::members::{Member, Members};
use super::options::{Declared, MailroomError, MailroomOptions};
use super::peer_nodes::Elsewhere;
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
            let lines: Vec<Line> = room
                .members()
                .all_mut()
                .filter_map(|member| member.line.take())
                .collect();
            lines.iter().for_each(Line::end);
            for line in lines {
                line.carrier.ended().await;
            }
            room.marks.end().await;
        });
        // It can't be cancelled by anyone else.
        let _ = ending.await;
    }
}

impl Shared {
    async fn begin(
        self: &Arc<Self>,
        system: &System,
        options: &MailroomOptions,
    ) -> Result<(), MailroomError> {
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
                    self.mail
                        .spread(
                            letter.number,
                            u32::try_from(done).unwrap_or(u32::MAX),
                            Vec::new(),
                        )
                        .await?;
                }
            }
        }
    }

    pub async fn declare(
        self: &Arc<Self>,
        Declare { options }: Declare,
        cx: &Cx,
    ) -> Result<(), Failure> {
        options
            .check()
            .map_err(|error| Failure::invalid(error.to_string()))?;
        self.declare_all(cx.system(), &options)
            .await
            .map_err(|error| match error {
                MailroomError::Store(error) => error.into(),
                other => Failure::rejected(other.to_string()),
            })
    }

    async fn declare_all(
        self: &Arc<Self>,
        system: &System,
        options: &MailroomOptions,
    ) -> Result<(), MailroomError> {
        let changed = self.take_declared(system, options)?;
        // What is refused changes nothing.
        *self.options.lock() = Arc::new(options.clone());
        let kept = stream::iter(changed).map(|(id, change)| async move {
            match change {
                Changed::Declared { is_new } => self.keep_declared(&id, is_new).await,
                Changed::TakenOut => self.keep_taken_out(&id).await,
            }
        });
        let kept: Result<Vec<()>, Failure> =
            kept.buffer_unordered(KEPT_AT_ONCE).try_collect().await;
        kept.map(drop)
            .map_err(|failure| JournalError::Store(failure.message).into())
    }

    /// Takes in what is declared; answers what is to be kept of it.
    fn take_declared(
        self: &Arc<Self>,
        system: &System,
        options: &MailroomOptions,
    ) -> Result<Vec<(Arc<str>, Changed)>, MailroomError> {
        let declared: HashSet<&str> = options
            .members
            .iter()
            .map(|said| said.id.as_str())
            .collect();
        let mut changed = Vec::new();
        let mut members = self.members();
        let others = members
            .agents()
            .filter(|member| !declared.contains(&*member.id))
            .count();
        let without_key = options
            .members
            .iter()
            .filter(|said| said.key.is_none())
            .count();
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
        member.declare(Some(said.place()));
        // A key of an agent of the process would be refused.
        if let Some(scopes) = said
            .key
            .as_ref()
            .filter(|_| member.kind != Some(PrincipalKind::Agent))
        {
            member.scope(Place::of_scopes(scopes));
        }
        member.has_key = said.key.is_some() && said.way.is_none();
        (member.takes, member.via) = (said.way.clone(), said.via);
        if member.line.as_ref().map(|line| &*line.way) != said.way.as_deref() {
            member.end_line();
            // One that is terminated gets its line when it is back.
            self.open_line(system, member);
        }
    }
}
