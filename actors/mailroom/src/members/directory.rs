//! Directory of members: identification of callers, and the stored records of members.

use std::ops::Range;
use std::sync::Arc;

use callboard_message::mail::{DeliveryMethod, MAIL_MEMBERS_MAX, MemberId, Preferences};
use callboard_message::{CapabilityChange, Failure, Principal, PrincipalKind, RawObject};
use callboard_runtime::{
    Context, JournalError, KvEntry, KvError, KvStore, MailStore, PeerSession, Store,
    StoredMailEvent,
};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use super::identity::{MemberIdentity, denied};
use super::{Member, Members};
use crate::options::MailroomOptions;
use crate::options::groups::GroupSet;
use crate::receipts::ReceiptWriter;
use crate::text::{OutgoingMail, is_reserved};

/// Key space of the stored member records.
const MEMBERS_SPACE: &str = "mail/agents";
/// URI of the list of members, as a resource.
pub(crate) const AGENTS_URI: &str = "callboard://agents";
/// Maximum number of attempts to store a member record when other nodes change it at the same time.
/// After them the request fails as `Unavailable`.
const STORE_ATTEMPTS_MAX: usize = 8;

/// Checks that the mailroom has room for `id` as a further member. A known id always has room.
///
/// # Errors
/// `Overloaded` if there are [`MAIL_MEMBERS_MAX`] members already.
fn has_room(members: &Members, id: &str) -> Result<(), Failure> {
    if members.get(id).is_some() || members.len() < MAIL_MEMBERS_MAX {
        return Ok(());
    }
    let why = format!("the mailroom is full ({MAIL_MEMBERS_MAX} members): no other agent can join");
    Err(Failure::overloaded(why))
}

/// Stored record of a member.
#[derive(Serialize, Deserialize)]
pub(crate) struct MemberRecord {
    kind: Option<PrincipalKind>,
    pub ended: bool,
    /// Groups granted by the scopes of the member's credential. For a member removed from the
    /// configuration, all groups that it had.
    pub place: GroupSet,
    pub wants: Preferences,
    #[serde(default)]
    pub in_file: bool,
    #[serde(default)]
    pub gone: bool,
}

impl MemberRecord {
    fn from_member(member: &Member) -> Self {
        let wants = Preferences::clone(&member.wants);
        let (ended, in_file, gone) = (member.is_ended, member.in_file, member.is_gone);
        Self {
            kind: member.kind,
            ended,
            place: member.credential_groups.clone(),
            wants,
            in_file,
            gone,
        }
    }

    fn apply_to(self, member: &mut Member) {
        member.is_ended = self.ended;
        member.wants = Arc::new(self.wants);
        (member.in_file, member.is_gone) = (self.in_file, self.gone);
    }

    fn to_raw(&self) -> RawObject {
        to_raw_value(self)
            .ok()
            .and_then(|raw| RawObject::parse(&raw).ok())
            .unwrap_or_default()
    }
}

/// Members of a mailroom, in memory and as stored records. Identifies callers.
pub(crate) struct MemberDirectory {
    mail: Arc<dyn MailStore>,
    kv: Arc<dyn KvStore>,
    receipts: Arc<ReceiptWriter>,
    options: Mutex<Arc<MailroomOptions>>,
    members: Mutex<Members>,
    /// Lock held while a caller becomes a member, or a stored member record is changed.
    join_lock: tokio::sync::Mutex<()>,
    /// Context of the mailroom's agent; `None` until it runs.
    context: Mutex<Option<Context>>,
}

impl MemberDirectory {
    /// Creates a directory with the Guardian and the operator only: see [`Self::load_members`].
    pub fn new(store: &Store, receipts: Arc<ReceiptWriter>, options: &MailroomOptions) -> Self {
        Self {
            mail: store.mail.clone(),
            kv: store.kv.clone(),
            receipts,
            options: Mutex::new(Arc::new(options.clone())),
            members: Mutex::new(Members::new(options)),
            join_lock: tokio::sync::Mutex::new(()),
            context: Mutex::default(),
        }
    }

    pub fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock()
    }

    pub fn options(&self) -> Arc<MailroomOptions> {
        self.options.lock().clone()
    }

    pub fn set_options(&self, options: &MailroomOptions) {
        *self.options.lock() = Arc::new(options.clone());
    }

    /// Sets the context of the mailroom's agent, through which its followers are notified.
    pub fn set_context(&self, cx: &Context) {
        *self.context.lock() = Some(cx.clone());
    }

    /// Notifies agents that follow the mailroom of a change of its tools or resources.
    pub fn notify_changed(&self, change: CapabilityChange) {
        if let Some(cx) = &*self.context.lock() {
            cx.notify_changed(change);
        }
    }

    /// Returns the text of a message as displayed to a recipient.
    pub fn display_text(&self, outgoing: &OutgoingMail, to: &str) -> String {
        // Computed outside the lock, because a long body takes a while.
        outgoing.neutral_body();
        self.members().format_text(outgoing, to)
    }

    /// Returns whether a member is terminated.
    pub fn is_terminated(&self, identity: &MemberIdentity) -> bool {
        self.members()
            .get(&identity.id)
            .is_some_and(|member| member.is_ended)
    }

    /// Returns the number of unread messages of a member; 0 if the member is unknown.
    pub fn unread_count(&self, id: &str) -> i64 {
        self.members().get(id).map_or(0, |member| member.unread)
    }

    /// Adds `more`, which may be negative, to the number of unread messages of a member.
    pub fn add_unread(&self, id: &str, more: i64) {
        if let Some(member) = self.members().get_mut(id) {
            member.unread += more;
        }
    }

    /// Identifies the caller of a request that sends or reads mail. A new caller becomes a member.
    /// `claim` is the `sender_agent_id` of the request, if given.
    ///
    /// # Errors
    /// `Denied` if the credential permits no mail, the claim is not the caller's id, another kind
    /// of credential has claimed the id, or the member is terminated.
    pub async fn identify(
        &self,
        cx: &Context,
        claim: Option<&str>,
    ) -> Result<MemberIdentity, Failure> {
        self.identify_caller(cx, claim, true).await
    }

    /// Identifies the caller of a request that only reads lists, logs or events, or administers. A
    /// caller with the right to watch or administer doesn't become a member by such a request;
    /// others do.
    ///
    /// # Errors
    /// `Denied` if the credential permits no mail, another kind of credential has claimed the id,
    /// or the member is terminated.
    pub async fn identify_viewer(&self, cx: &Context) -> Result<MemberIdentity, Failure> {
        self.identify_caller(cx, None, false).await
    }

    async fn identify_caller(
        &self,
        cx: &Context,
        claim: Option<&str>,
        is_mail: bool,
    ) -> Result<MemberIdentity, Failure> {
        let principal = cx.principal();
        let identity = MemberIdentity::from_principal(principal)?;
        if claim.is_some_and(|claim| claim != &*identity.id) {
            return Err(denied("`sender_agent_id` isn't your own id: leave it out"));
        }
        let session = cx.call().and_then(|call| call.session.clone());
        if !identity.is_agent() {
            if let Some(member) = self.members().get_mut(&identity.id) {
                member.record_activity(session.as_ref());
            }
            return Ok(identity);
        }
        if !self.record_activity(&identity, principal, session.as_ref())?
            && (is_mail || !self.is_visitor(&identity, principal)?)
        {
            self.register_member(&identity, principal, session.as_ref())
                .await?;
        }
        Ok(identity)
    }

    /// Records the activity of a member. Returns `false`, and records nothing, if the caller isn't
    /// a current member or its stored record must be changed first: see [`Self::register_member`].
    ///
    /// # Errors
    /// `Denied` if another kind of credential has claimed the id, or the member is terminated.
    fn record_activity(
        &self,
        identity: &MemberIdentity,
        principal: &Principal,
        session: Option<&Arc<PeerSession>>,
    ) -> Result<bool, Failure> {
        let mut members = self.members();
        let Some(member) = members.get_mut(&identity.id) else {
            return Ok(false);
        };
        if member.is_claimed_by_other(principal.kind) {
            return Err(denied(
                "this id is claimed by another principal: use a credential with another name",
            ));
        }
        if member.is_ended {
            return Err(denied(
                "you are terminated here: you can neither send nor receive messages",
            ));
        }
        if member.kind.is_none()
            || member.has_left
            || !member.is_listed()
            || member.credential_groups != GroupSet::from_scopes(&principal.scopes)
        {
            return Ok(false);
        }
        member.record_activity(session);
        if let Some(line) = &member.line {
            line.retry_now();
        }
        Ok(true)
    }

    /// Returns whether the caller has the right to watch or administer, without being a member.
    /// Such a caller gets an unlisted member entry, which holds the groups that determine what it
    /// may see.
    ///
    /// # Errors
    /// `Overloaded` if the mailroom has no room for the entry.
    fn is_visitor(
        &self,
        identity: &MemberIdentity,
        principal: &Principal,
    ) -> Result<bool, Failure> {
        let options = self.options();
        let mut members = self.members();
        if !(identity.watches || identity.administers)
            || members.get(&identity.id).is_some_and(Member::is_listed)
        {
            return Ok(false);
        }
        has_room(&members, &identity.id)?;
        let member = members.entry(&identity.id, &options);
        member.is_gone = true;
        member.set_credential_groups(GroupSet::from_scopes(&principal.scopes));
        Ok(true)
    }

    /// Makes the caller a member, or stores the changed record of a member, and announces a new
    /// member as joined.
    ///
    /// # Errors
    /// `Denied` as [`Self::record_activity`], `Overloaded` if the mailroom is full, and failures of
    /// the store.
    async fn register_member(
        &self,
        identity: &MemberIdentity,
        principal: &Principal,
        session: Option<&Arc<PeerSession>>,
    ) -> Result<(), Failure> {
        // Serialised, so that two concurrent first requests make one member.
        let _turn = self.join_lock.lock().await;
        if self.record_activity(identity, principal, session)? {
            return Ok(());
        }
        // Declared members have been announced already.
        let is_first = self
            .members()
            .get(&identity.id)
            .is_none_or(|member| member.has_left || !member.is_listed());
        let mut tries = 0..STORE_ATTEMPTS_MAX;
        let (record, version) = loop {
            let record = self.joined_record(identity, principal)?;
            if let Some(version) = self.store_record(&identity.id, &record, &mut tries).await? {
                break (record, version);
            }
            // Another node may have ended the member, or registered another principal under its id.
            if self.record_activity(identity, principal, session)? {
                return Ok(());
            }
        };
        let way = {
            let mut members = self.members();
            let options = self.options();
            let member = members.entry(&identity.id, &options);
            member.version = member.version.max(version);
            member.kind = record.kind;
            member.is_gone = record.gone;
            member.set_credential_groups(record.place);
            member.record_activity(session);
            if let Some(line) = &member.line {
                line.retry_now();
            }
            member.delivery_method()
        };
        if is_first {
            self.append_joined(&identity.id, way).await?;
        }
        Ok(())
    }

    /// Builds the record to store for a caller that becomes a member. Preferences of a known member
    /// are kept.
    ///
    /// # Errors
    /// `Overloaded` if the mailroom is full.
    fn joined_record(
        &self,
        identity: &MemberIdentity,
        principal: &Principal,
    ) -> Result<MemberRecord, Failure> {
        let members = self.members();
        has_room(&members, &identity.id)?;
        let known = members.get(&identity.id);
        let place = GroupSet::from_scopes(&principal.scopes);
        let wants = known
            .map(|member| Preferences::clone(&member.wants))
            .unwrap_or_default();
        let in_file = known.is_some_and(|member| member.in_file);
        Ok(MemberRecord {
            kind: Some(principal.kind),
            ended: false,
            place,
            wants,
            in_file,
            gone: false,
        })
    }

    pub async fn append_joined(&self, id: &str, way: DeliveryMethod) -> Result<(), Failure> {
        self.append_event(StoredMailEvent::Joined(
            id.to_owned(),
            way.as_str().to_owned(),
        ))
        .await
    }

    pub async fn append_left(&self, id: &str, why: &str) -> Result<(), Failure> {
        self.append_event(StoredMailEvent::Left(id.to_owned(), why.to_owned()))
            .await
    }

    /// Stores an event that changes the list of members, and notifies followers and event
    /// listeners.
    ///
    /// # Errors
    /// Failures of the store.
    async fn append_event(&self, event: StoredMailEvent) -> Result<(), Failure> {
        self.mail.append_event(event).await?;
        self.notify_changed(CapabilityChange::Resource(AGENTS_URI.to_owned()));
        self.receipts.notify_events();
        Ok(())
    }

    /// Stores a member record and returns its new version. Returns `None` if another node has
    /// stored a record meanwhile; that record has then been loaded, and the caller should try again
    /// with the same `tries`, of which this takes one.
    ///
    /// # Errors
    /// Failures of the store; `Unavailable` if no `tries` are left.
    async fn store_record(
        &self,
        id: &str,
        record: &MemberRecord,
        tries: &mut Range<usize>,
    ) -> Result<Option<u64>, Failure> {
        let known = self.members().get(id).map_or(0, |member| member.version);
        match self
            .kv
            .put(MEMBERS_SPACE, id, record.to_raw(), Some(known))
            .await
        {
            Ok(version) => Ok(Some(version)),
            Err(KvError::VersionConflict { .. }) if tries.next().is_some() => {
                self.reload_member(id).await?;
                Ok(None)
            }
            Err(KvError::Journal(error)) => Err(error.into()),
            Err(_) => Err(Failure::unavailable(
                "other nodes changed this agent's record at the same time: try again",
            )),
        }
    }

    /// Applies `change` to a member's record, stores it, and then updates the member. Does nothing
    /// if there is no such member. The records of the Guardian and the operator aren't stored.
    /// `change` is applied again if another node has changed the record meanwhile.
    ///
    /// # Errors
    /// Fails like [`Self::store_record`].
    pub async fn update_member(
        &self,
        id: &str,
        change: impl Fn(&mut MemberRecord),
    ) -> Result<(), Failure> {
        let _turn = self.join_lock.lock().await;
        self.update_record(id, change).await
    }

    async fn update_record(
        &self,
        id: &str,
        change: impl Fn(&mut MemberRecord),
    ) -> Result<(), Failure> {
        let mut tries = 0..STORE_ATTEMPTS_MAX;
        loop {
            let known = self
                .members()
                .get(id)
                .map(|member| (MemberRecord::from_member(member), member.version));
            let Some((mut record, version)) = known else {
                return Ok(());
            };
            change(&mut record);
            let version = if is_reserved(id) {
                Some(version)
            } else {
                self.store_record(id, &record, &mut tries).await?
            };
            let Some(version) = version else { continue };
            // Unless a newer record was loaded in the meantime.
            if let Some(member) = self
                .members()
                .get_mut(id)
                .filter(|member| member.version <= version)
            {
                member.version = version;
                record.apply_to(member);
            }
            return Ok(());
        }
    }

    /// Loads the stored members and their numbers of unread messages, at the start of the mailroom.
    pub async fn load_members(&self) -> Result<(), JournalError> {
        const PAGE: usize = 500;
        let mut after: Option<String> = None;
        loop {
            let notes = self.kv.list(MEMBERS_SPACE, after.as_deref(), PAGE).await?;
            notes.iter().for_each(|note| self.apply_entry(note));
            match notes.last() {
                Some(last) if notes.len() >= PAGE => after = Some(last.key.clone()),
                _ => break,
            }
        }
        for (id, unread) in self.mail.unread_counts().await? {
            if let Some(member) = self.members().get_mut(&id) {
                member.unread = i64::try_from(unread).unwrap_or(i64::MAX);
            }
        }
        Ok(())
    }

    /// Reloads the stored record of a member, because another node may have changed it. Does
    /// nothing if none is stored.
    pub async fn reload_member(&self, id: &str) -> Result<(), JournalError> {
        let note = self.kv.get(MEMBERS_SPACE, id).await?;
        note.iter().for_each(|note| self.apply_entry(note));
        Ok(())
    }

    fn apply_entry(&self, note: &KvEntry) {
        let Ok(record) = serde_json::from_str::<MemberRecord>(note.body.to_raw().get()) else {
            return;
        };
        if MemberId::parse(&*note.key).is_err() || is_reserved(&note.key) {
            return;
        }
        let options = self.options();
        let mut members = self.members();
        let member = members.entry(&note.key, &options);
        if note.version < member.version {
            // This node has stored a newer record in the meantime.
            return;
        }
        member.version = note.version;
        member.kind = record.kind.or(member.kind);
        member.set_credential_groups(record.place.clone());
        record.apply_to(member);
        if member.is_ended {
            member.close_queue();
        }
    }

    /// Stores that a member is declared in the configuration. If `is_new`, also appends the event
    /// that it joined.
    ///
    /// # Errors
    /// Fails like [`Self::update_member`].
    pub async fn store_declared(&self, id: &str, is_new: bool) -> Result<(), Failure> {
        // Declared members are stored concurrently, so this doesn't take `join_lock`.
        self.update_record(id, |record| (record.in_file, record.gone) = (true, false))
            .await?;
        let way = match self.members().get(id) {
            Some(member) if is_new => member.delivery_method(),
            _ => return Ok(()),
        };
        self.append_joined(id, way).await
    }

    /// Stores that a member was removed from the configuration. Also appends the event that it
    /// left, unless it is terminated.
    ///
    /// # Errors
    /// Fails like [`Self::update_member`].
    pub async fn store_removed(&self, id: &str) -> Result<(), Failure> {
        let known = self
            .members()
            .get(id)
            .map(|member| (member.place.clone(), member.is_ended));
        let Some((place, is_ended)) = known else {
            return Ok(());
        };
        self.update_record(id, |record| {
            (record.in_file, record.gone) = (false, true);
            record.place.clone_from(&place);
        })
        .await?;
        if is_ended {
            Ok(())
        } else {
            self.append_left(id, "undeclared").await
        }
    }
}
