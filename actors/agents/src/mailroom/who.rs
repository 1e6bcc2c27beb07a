//! Who asks: from its credential, never from what it says.

use std::sync::Arc;

use callboard_message::mail::{GUARDIAN, MAIL_MEMBERS_MAX, MailId, MemberWay, Preferences};
use callboard_message::{Change, Failure, FailureKind, Principal, PrincipalKind, RawObject};
use callboard_runtime::{Cx, JournalError, Note, NoteError, PeerSession, StoredEvent};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use super::Shared;
use super::groups::Place;
use super::members::{Member, OPERATOR, is_reserved};
use super::resources::AGENTS_URI;

/// Where it is kept who has mail.
pub(super) const SPACE: &str = "mail/agents";
pub(super) const GUARDIAN_SCOPE: &str = "mail.guardian";
const WATCH_SCOPE: &str = "mail.watch";
const ADMIN_SCOPE: &str = "mail.admin";

/// Whoever asks.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub(super) id: Arc<str>,
    pub(super) is_guardian: bool,
    /// It may know of everybody's mail.
    pub(super) watches: bool,
    /// It may end agents.
    pub(super) administers: bool,
}

impl Who {
    fn of(principal: &Principal) -> Result<Self, Failure> {
        let may = |scope: &str| principal.scopes.iter().any(|has| has == scope);
        let who = |id: &str, is_guardian, may_all| Self {
            id: id.into(),
            is_guardian,
            watches: may_all || may(WATCH_SCOPE),
            administers: may_all || may(ADMIN_SCOPE),
        };
        match principal.kind {
            PrincipalKind::LocalOperator => Ok(who(OPERATOR, false, true)),
            PrincipalKind::ApiKey | PrincipalKind::Agent if may(GUARDIAN_SCOPE) => Ok(who(GUARDIAN, true, false)),
            PrincipalKind::ApiKey | PrincipalKind::Agent
                if MailId::parse(&*principal.id).is_ok() && !is_reserved(&principal.id) =>
            {
                Ok(who(&principal.id, false, false))
            }
            PrincipalKind::Agent => Err(denied("say who you are: ask by a mailbox")),
            PrincipalKind::ApiKey => Err(denied("this key's name can't be an agent's id")),
            _ => Err(denied("show a credential")),
        }
    }

    /// A member that says nothing by itself.
    pub(super) fn member(id: &str) -> Self {
        Self { id: id.into(), is_guardian: false, watches: false, administers: false }
    }

    /// It is an agent.
    pub(super) fn is_agent(&self) -> bool {
        !is_reserved(&self.id)
    }
}

pub(super) fn denied(why: &str) -> Failure {
    Failure::new(FailureKind::Denied, why)
}

/// What is kept of a member.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    kind: Option<PrincipalKind>,
    pub(super) ended: bool,
    /// What its credential said.
    place: Place,
    pub(super) wants: Preferences,
}

impl Kept {
    fn of(member: &Member) -> Self {
        let wants = Preferences::clone(&member.wants);
        Self { kind: member.kind, ended: member.is_ended, place: member.scoped.clone(), wants }
    }

    fn to_raw(&self) -> RawObject {
        to_raw_value(self).ok().and_then(|raw| RawObject::parse(&raw).ok()).unwrap_or_default()
    }
}

impl Shared {
    /// Who asks, once it is sure that it may. Whoever asks for the first time is a member from then on.
    ///
    /// # Errors
    /// `Denied`.
    pub(super) async fn who(&self, cx: &Cx, claim: Option<&str>) -> Result<Who, Failure> {
        let principal = cx.principal();
        let who = Who::of(principal)?;
        if claim.is_some_and(|claim| claim != &*who.id) {
            return Err(denied("`sender_agent_id` isn't your own id: leave it out"));
        }
        let session = cx.call().and_then(|call| call.session.clone());
        if !who.is_agent() {
            if let Some(member) = self.members().get_mut(&who.id) {
                member.heard(session.as_ref());
            }
            return Ok(who);
        }
        if !self.hear(&who, principal, session.as_ref())? {
            self.join(&who, principal, session.as_ref()).await?;
        }
        Ok(who)
    }

    /// Notes that a member said something. `false` where that has to be kept first, or it is none yet.
    fn hear(&self, who: &Who, principal: &Principal, session: Option<&Arc<PeerSession>>) -> Result<bool, Failure> {
        let mut members = self.members();
        let Some(member) = members.get_mut(&who.id) else { return Ok(false) };
        if member.kind.is_some_and(|kind| kind != principal.kind) {
            return Err(denied("this id is somebody else's: use a credential with another name"));
        }
        if member.is_ended {
            return Err(denied("you are terminated here: you can neither send nor receive messages"));
        }
        if member.kind.is_none() || member.has_left || member.scoped != Place::of_scopes(&principal.scopes) {
            return Ok(false);
        }
        member.heard(session);
        if let Some(line) = &member.line {
            line.retry();
        }
        Ok(true)
    }

    /// Makes a member of whoever asks, or keeps what has changed about it.
    async fn join(&self, who: &Who, principal: &Principal, session: Option<&Arc<PeerSession>>) -> Result<(), Failure> {
        // One at a time: of two first messages only one makes a member.
        let _turn = self.joining.lock().await;
        if self.hear(who, principal, session)? {
            return Ok(());
        }
        let (kept, is_first) = {
            let mut members = self.members();
            if members.get(&who.id).is_none() && members.len() >= MAIL_MEMBERS_MAX {
                let why = format!("{MAIL_MEMBERS_MAX} agents have mail here, more can't");
                return Err(Failure::new(FailureKind::Overloaded, why));
            }
            let known = members.get(&who.id).map(Kept::of);
            // Whoever was declared has been told of.
            let is_first = members.get_mut(&who.id).is_none_or(|member| member.has_left);
            let place = Place::of_scopes(&principal.scopes);
            let wants = known.map(|kept| kept.wants).unwrap_or_default();
            (Kept { kind: Some(principal.kind), ended: false, place, wants }, is_first)
        };
        self.keep(&who.id, &kept).await?;
        let way = {
            let mut members = self.members();
            let options = self.options();
            let member = members.entry(&who.id, &options);
            member.kind = kept.kind;
            member.scope(kept.place);
            member.heard(session);
            if let Some(line) = &member.line {
                line.retry();
            }
            member.way()
        };
        if is_first {
            self.tell_joined(&who.id, way).await?;
        }
        Ok(())
    }

    pub(super) async fn tell_joined(&self, id: &str, way: MemberWay) -> Result<(), Failure> {
        self.mail.tell(StoredEvent::Joined(id.to_owned(), way.as_str().to_owned())).await?;
        self.changed(Change::Resource(AGENTS_URI.to_owned()));
        self.happened();
        Ok(())
    }

    async fn keep(&self, id: &str, kept: &Kept) -> Result<(), Failure> {
        match self.notes.put(SPACE, id, kept.to_raw(), None).await {
            Ok(_) => Ok(()),
            Err(NoteError::Journal(error)) => Err(error.into()),
            // Nothing was expected.
            Err(changed) => Err(Failure::internal(changed.to_string())),
        }
    }

    /// Keeps a member as it is now, with `change`d, and changes it once that is kept.
    pub(super) async fn change(&self, id: &str, change: impl FnOnce(&mut Kept)) -> Result<(), Failure> {
        let _turn = self.joining.lock().await;
        let kept = {
            let members = self.members();
            let Some(member) = members.get(id) else { return Ok(()) };
            let mut kept = Kept::of(member);
            change(&mut kept);
            kept
        };
        if !is_reserved(id) {
            self.keep(id, &kept).await?;
        }
        if let Some(member) = self.members().get_mut(id) {
            member.is_ended = kept.ended;
            member.wants = Arc::new(kept.wants);
        }
        Ok(())
    }

    /// Takes in who had mail before this process began.
    pub(super) async fn recall(&self) -> Result<(), JournalError> {
        const PAGE: usize = 500;
        let mut after: Option<String> = None;
        loop {
            let notes = self.notes.list(SPACE, after.as_deref(), PAGE).await?;
            notes.iter().for_each(|note| self.take_in(note));
            match notes.last() {
                Some(last) if notes.len() >= PAGE => after = Some(last.key.clone()),
                _ => break,
            }
        }
        for (id, unread) in self.mail.waiting().await? {
            if let Some(member) = self.members().get_mut(&id) {
                member.unread = i64::try_from(unread).unwrap_or(i64::MAX);
            }
        }
        Ok(())
    }

    /// Takes in a member that another node changed.
    pub(super) async fn recall_one(&self, id: &str) -> Result<(), JournalError> {
        let note = self.notes.get(SPACE, id).await?;
        note.iter().for_each(|note| self.take_in(note));
        Ok(())
    }

    fn take_in(&self, note: &Note) {
        let Ok(kept) = serde_json::from_str::<Kept>(note.body.to_raw().get()) else { return };
        if MailId::parse(&*note.key).is_err() || is_reserved(&note.key) {
            return;
        }
        let options = self.options();
        let mut members = self.members();
        let member = members.entry(&note.key, &options);
        member.kind = kept.kind.or(member.kind);
        member.is_ended = kept.ended;
        member.wants = Arc::new(kept.wants);
        member.scope(kept.place);
        if kept.ended
            && let Some(line) = member.line.take()
        {
            line.end();
        }
    }

    /// Keeps a member that was declared just now, and tells of it.
    pub(super) async fn keep_declared(&self, id: &str) -> Result<(), Failure> {
        let (kept, way) = {
            let members = self.members();
            let Some(member) = members.get(id) else { return Ok(()) };
            (Kept::of(member), member.way())
        };
        self.keep(id, &kept).await?;
        self.tell_joined(id, way).await
    }
}
