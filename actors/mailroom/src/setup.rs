//! Start and reconfiguration of a mailroom.

use std::collections::HashSet;
use std::sync::Arc;

use callboard_macros::Message;
use callboard_message::mail::MAIL_MEMBERS_MAX;
use callboard_message::{Failure, PrincipalKind};
use callboard_runtime::{
    Context, FAN_OUT_BATCH_MAX, JournalError, MAIL_PAGE_MAX, MailStore, System,
};
use futures::{StreamExt, TryStreamExt, stream};

use super::delivery::DeliveryService;
use super::members::Member;
use super::members::directory::MemberDirectory;
use super::members::queue::DeliveryQueue;
use super::members::rate_limit::MemberRateLimit;
use super::options::groups::GroupSet;
use super::options::{MailroomError, MailroomOptions, MemberDeclaration};
use super::peer_nodes::PeerSync;
use super::{Mailroom, Services};

/// Maximum number of member records that are stored concurrently. The store combines concurrent
/// writes.
const STORE_BATCH: usize = 64;

/// Request to replace the configuration of a running mailroom. Members that are no longer declared
/// leave: their mail is kept, and they return when they are declared again or send a request.
#[derive(Debug, Clone, Message)]
#[message(name = "callboard.mail.declare", fallible, local)]
pub struct ReconfigureMailroom {
    /// The new configuration.
    pub options: MailroomOptions,
}

/// Change of a member by a new configuration.
enum MemberChange {
    /// The member is declared, which it wasn't before, or its stored record doesn't say so yet.
    /// With `is_new`, it must also be announced as joined.
    Declared {
        is_new: bool,
    },
    Removed,
}

impl Mailroom {
    /// Creates a mailroom on the system's store, loads its members, and begins to deliver mail that
    /// an earlier process left undelivered. The caller must spawn it before it opens listeners.
    ///
    /// # Errors
    /// A [`MailroomError`] for an invalid configuration or a failure of the store.
    pub async fn open(system: &System, options: MailroomOptions) -> Result<Self, MailroomError> {
        options.validate()?;
        let services = Arc::new(Services::new(system, &options));
        if let Err(error) = services.setup.start(system, &options).await {
            services.receipts.close().await;
            return Err(error);
        }
        Ok(Self { services })
    }

    /// Stops the mailroom's delivery workers and receipt writer. Call it after the mailroom's own
    /// agent has stopped; afterwards another mailroom may use the same store.
    ///
    /// Returns once the deliveries in progress have ended (each within
    /// [`DELIVERY_TIMEOUT`](super::DELIVERY_TIMEOUT)) and their receipts are stored. Closing
    /// continues even if the future is dropped.
    pub async fn close(&self) {
        let services = self.services.clone();
        let ending = tokio::spawn(async move {
            let lines: Vec<DeliveryQueue> = services
                .directory
                .members()
                .all_mut()
                .filter_map(|member| member.line.take())
                .collect();
            lines.iter().for_each(DeliveryQueue::close);
            for line in lines {
                line.worker.wait_for_exit().await;
            }
            services.receipts.close().await;
        });
        // The task isn't cancelled by anything else.
        let _ = ending.await;
    }
}

/// Starts the mailroom, and changes its configuration.
pub(super) struct SetupService {
    pub mail: Arc<dyn MailStore>,
    pub directory: Arc<MemberDirectory>,
    pub deliveries: Arc<DeliveryService>,
    pub peers: Arc<PeerSync>,
}

impl SetupService {
    pub async fn start(
        self: &Arc<Self>,
        system: &System,
        options: &MailroomOptions,
    ) -> Result<(), MailroomError> {
        self.peers.start_cursor().await?;
        self.resume_fan_out().await?;
        self.directory.load_members().await?;
        self.apply_declarations(system, options).await
    }

    /// Creates the recipients' copies that an earlier process has not created, for messages whose
    /// copies are incomplete.
    ///
    /// # Errors
    /// Failures of the store.
    async fn resume_fan_out(&self) -> Result<(), MailroomError> {
        loop {
            let letters = self.mail.pending_fan_out(MAIL_PAGE_MAX).await?;
            if letters.is_empty() {
                return Ok(());
            }
            for letter in letters {
                let count = letter.new.recipients.len();
                let mut done = letter.copies_made as usize;
                while done < count {
                    done = count.min(done + FAN_OUT_BATCH_MAX);
                    self.mail
                        .fan_out(
                            letter.number,
                            u32::try_from(done).unwrap_or(u32::MAX),
                            Vec::new(),
                        )
                        .await?;
                }
            }
        }
    }

    pub async fn reconfigure(
        self: Arc<Self>,
        ReconfigureMailroom { options }: ReconfigureMailroom,
        cx: Context,
    ) -> Result<(), Failure> {
        options
            .validate()
            .map_err(|error| Failure::invalid(error.to_string()))?;
        self.apply_declarations(cx.system(), &options)
            .await
            .map_err(|error| match error {
                MailroomError::Store(error) => error.into(),
                other => Failure::rejected(other.to_string()),
            })
    }

    async fn apply_declarations(
        self: &Arc<Self>,
        system: &System,
        options: &MailroomOptions,
    ) -> Result<(), MailroomError> {
        let changed = self.apply_members(system, options)?;
        // Set only after the members were accepted, so that a rejected configuration changes
        // nothing.
        self.directory.set_options(options);
        let kept = stream::iter(changed).map(|(id, change)| async move {
            match change {
                MemberChange::Declared { is_new } => {
                    self.directory.store_declared(&id, is_new).await
                }
                MemberChange::Removed => self.directory.store_removed(&id).await,
            }
        });
        let kept: Result<Vec<()>, Failure> = kept.buffer_unordered(STORE_BATCH).try_collect().await;
        kept.map(drop)
            .map_err(|failure| JournalError::Store(failure.message).into())
    }

    /// Updates the members in memory to the declarations of `options`, and returns the changes that
    /// must be stored, by member id. Holders of API keys for whom there is no room are left out
    /// with a warning.
    ///
    /// # Errors
    /// [`MailroomError::TooManyMembers`] if the other declared members don't fit; nothing is
    /// changed then.
    fn apply_members(
        self: &Arc<Self>,
        system: &System,
        options: &MailroomOptions,
    ) -> Result<Vec<(Arc<str>, MemberChange)>, MailroomError> {
        let declared: HashSet<&str> = options
            .members
            .iter()
            .map(|declaration| declaration.id.as_str())
            .collect();
        let mut changed = Vec::new();
        let mut members = self.directory.members();
        let others = members
            .agents()
            .filter(|member| !declared.contains(&*member.id))
            .count();
        let without_key = options
            .members
            .iter()
            .filter(|declaration| declaration.key_scopes.is_none())
            .count();
        // Members that have left count too, because their mail is kept. All members of the file
        // must fit; holders of keys become members as far as there is room.
        let Some(mut room) = MAIL_MEMBERS_MAX.checked_sub(others + without_key) else {
            return Err(MailroomError::TooManyMembers);
        };
        members.rebuild_names(options.example_ids);
        for member in members.all_mut() {
            member.rate_limit = MemberRateLimit::new(options);
            if !declared.contains(&*member.id) && self.remove_declared(member) {
                changed.push((member.id.clone(), MemberChange::Removed));
            }
        }
        for declaration in &options.members {
            if declaration.key_scopes.is_some() {
                let Some(left) = room.checked_sub(1) else {
                    callboard_message::log::warn!(
                        member = declaration.id,
                        "the mailroom is full: the holder of this key isn't a member; declare fewer members"
                    );
                    continue;
                };
                room = left;
            }
            let is_known = members.get(&declaration.id).is_some();
            let member = members.entry(&declaration.id, options);
            let is_new = !is_known || member.is_gone;
            if is_new || !member.in_file {
                changed.push((member.id.clone(), MemberChange::Declared { is_new }));
            }
            self.apply_declaration(system, member, declaration);
        }
        Ok(changed)
    }

    /// Removes the declaration of a member that the new configuration doesn't contain. Returns
    /// whether the member was thereby removed from the mailroom; others stay, for example those
    /// that joined by a request.
    fn remove_declared(&self, member: &mut Member) -> bool {
        // A member without any request is known from a file only.
        let was_in_file = member.in_file || (member.kind.is_none() && !member.is_reserved());
        // On a shared store, a member of another node's configuration must not be removed by this
        // one.
        let was_in_this = member.declared_groups.is_some() || !self.mail.is_shared();
        let is_taken_out = !member.is_gone && was_in_file && was_in_this;
        if is_taken_out {
            member.mark_removed();
        } else {
            member.set_declared_groups(None);
        }
        (member.takes, member.via, member.has_key) = (None, None, false);
        member.close_queue();
        is_taken_out
    }

    /// Updates a member to its declaration: groups, claim of its API key, and delivery queue.
    fn apply_declaration(
        self: &Arc<Self>,
        system: &System,
        member: &mut Member,
        declaration: &MemberDeclaration,
    ) {
        if member.is_gone {
            // Replaces the groups kept from before its removal.
            member.set_credential_groups(GroupSet::default());
        }
        (member.in_file, member.is_gone) = (true, false);
        member.set_declared_groups(Some(declaration.declared_groups()));
        // A key can't claim an id of an agent of the process.
        if let Some(scopes) = declaration
            .key_scopes
            .as_ref()
            .filter(|_| member.kind != Some(PrincipalKind::Agent))
        {
            member.set_credential_groups(GroupSet::from_scopes(scopes));
        }
        member.has_key = declaration.key_scopes.is_some() && declaration.delivery_agent.is_none();
        (member.takes, member.via) = (
            declaration.delivery_agent.clone(),
            declaration.delivery_method,
        );
        if member.line.as_ref().map(|line| &*line.delivery_agent)
            != declaration.delivery_agent.as_deref()
        {
            member.close_queue();
            // A terminated member gets its queue when it is resumed.
            self.deliveries.open_queue(system, member);
        }
    }
}
