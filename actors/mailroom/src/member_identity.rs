//! Who asks: from its credential, never from what it says.

use std::ops::Range;
use std::sync::Arc;

use callboard_message::mail::{
    GUARDIAN, MAIL_MEMBERS_MAX, MailId, MemberWay, NEEDED_SCOPE, OPERATOR, Preferences,
};
use callboard_message::{Change, Failure, Principal, PrincipalKind, RawObject};
use callboard_runtime::{Cx, JournalError, Note, NoteError, PeerSession, StoredEvent, System};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::Shared;
use super::delivery::Line;
use super::groups::Place;
use super::members::{Member, Members};
use super::options::Rights;
use super::text::is_reserved;

/// Where it is kept who has mail.
const SPACE: &str = "mail/agents";
/// Address of the list of members, as a resource.
pub(super) const AGENTS_URI: &str = "callboard://agents";
/// How often it is tried to keep a member that other nodes keep too.
const KEPT_TRIES_MAX: usize = 8;

/// Whoever asks.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub id: Arc<str>,
    pub is_guardian: bool,
    /// It may know of everybody's mail.
    pub watches: bool,
    /// It may end agents.
    pub administers: bool,
}

impl Who {
    fn of(principal: &Principal) -> Result<Self, Failure> {
        let rights = Rights::of(&principal.scopes);
        let who = |id: &str, is_guardian, may_all| Self {
            id: id.into(),
            is_guardian,
            watches: may_all || rights.watches,
            administers: may_all || rights.administers,
        };
        match principal.kind {
            PrincipalKind::LocalOperator => Ok(who(OPERATOR, false, true)),
            PrincipalKind::ApiKey | PrincipalKind::Agent if rights.guides => {
                Ok(who(GUARDIAN, true, false))
            }
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
    pub fn member(id: &str) -> Self {
        Self {
            id: id.into(),
            is_guardian: false,
            watches: false,
            administers: false,
        }
    }

    /// It is an agent.
    pub fn is_agent(&self) -> bool {
        !is_reserved(&self.id)
    }
}

/// Refuses one more than can be known.
fn has_room(members: &Members, id: &str) -> Result<(), Failure> {
    if members.get(id).is_some() || members.len() < MAIL_MEMBERS_MAX {
        return Ok(());
    }
    let why = format!("{MAIL_MEMBERS_MAX} agents have mail here, more can't");
    Err(Failure::overloaded(why))
}

pub(super) fn denied(why: &str) -> Failure {
    Failure::denied(why)
}

/// The same, for want of a scope.
pub(super) fn denied_without(scope: &str, why: &str) -> Failure {
    denied(why).with_data(json!({ NEEDED_SCOPE: scope }))
}

/// What is kept of a member.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    kind: Option<PrincipalKind>,
    pub ended: bool,
    /// What its credential said.
    pub place: Place,
    pub wants: Preferences,
    #[serde(default)]
    pub in_file: bool,
    #[serde(default)]
    pub gone: bool,
}

impl Kept {
    fn of(member: &Member) -> Self {
        let wants = Preferences::clone(&member.wants);
        let (ended, in_file, gone) = (member.is_ended, member.in_file, member.is_gone);
        Self {
            kind: member.kind,
            ended,
            place: member.scoped.clone(),
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

impl Shared {
    /// Who asks, once it is sure that it may. Whoever asks for the first time is a member from then on.
    ///
    /// # Errors
    /// `Denied`.
    pub async fn who(&self, cx: &Cx, claim: Option<&str>) -> Result<Who, Failure> {
        self.who_asks(cx, claim, true).await
    }

    /// The same for what is no mail: whoever may watch or administer isn't a member for asking that.
    ///
    /// # Errors
    /// `Denied`.
    pub async fn who_looks(&self, cx: &Cx) -> Result<Who, Failure> {
        self.who_asks(cx, None, false).await
    }

    async fn who_asks(&self, cx: &Cx, claim: Option<&str>, is_mail: bool) -> Result<Who, Failure> {
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
        if !self.hear(&who, principal, session.as_ref())?
            && (is_mail || !self.visits(&who, principal)?)
        {
            self.join(&who, principal, session.as_ref()).await?;
        }
        Ok(who)
    }

    /// Notes that a member said something. `false` where that has to be kept first, or it is none yet.
    fn hear(
        &self,
        who: &Who,
        principal: &Principal,
        session: Option<&Arc<PeerSession>>,
    ) -> Result<bool, Failure> {
        let mut members = self.members();
        let Some(member) = members.get_mut(&who.id) else {
            return Ok(false);
        };
        if member.is_others(principal.kind) {
            return Err(denied(
                "this id is somebody else's: use a credential with another name",
            ));
        }
        if member.is_ended {
            return Err(denied(
                "you are terminated here: you can neither send nor receive messages",
            ));
        }
        if member.kind.is_none()
            || member.has_left
            || !member.is_here()
            || member.scoped != Place::of_scopes(&principal.scopes)
        {
            return Ok(false);
        }
        member.heard(session);
        if let Some(line) = &member.line {
            line.retry();
        }
        Ok(true)
    }

    /// Whether whoever asks may watch or administer, and is no member. It is known then by what it may see, as one that isn't
    /// there.
    fn visits(&self, who: &Who, principal: &Principal) -> Result<bool, Failure> {
        let options = self.options();
        let mut members = self.members();
        if !(who.watches || who.administers) || members.get(&who.id).is_some_and(Member::is_here) {
            return Ok(false);
        }
        has_room(&members, &who.id)?;
        let member = members.entry(&who.id, &options);
        member.is_gone = true;
        member.scope(Place::of_scopes(&principal.scopes));
        Ok(true)
    }

    /// Makes a member of whoever asks, or keeps what has changed about it.
    async fn join(
        &self,
        who: &Who,
        principal: &Principal,
        session: Option<&Arc<PeerSession>>,
    ) -> Result<(), Failure> {
        // One at a time: of two first messages only one makes a member.
        let _turn = self.joining.lock().await;
        if self.hear(who, principal, session)? {
            return Ok(());
        }
        // Whoever was declared has been told of.
        let is_first = self
            .members()
            .get(&who.id)
            .is_none_or(|member| member.has_left || !member.is_here());
        let mut tries = 0..KEPT_TRIES_MAX;
        let (kept, version) = loop {
            let kept = self.joined(who, principal)?;
            if let Some(version) = self.keep(&who.id, &kept, &mut tries).await? {
                break (kept, version);
            }
            // Another node may have ended it, or let in somebody else under its id.
            if self.hear(who, principal, session)? {
                return Ok(());
            }
        };
        let way = {
            let mut members = self.members();
            let options = self.options();
            let member = members.entry(&who.id, &options);
            member.version = member.version.max(version);
            member.kind = kept.kind;
            member.is_gone = kept.gone;
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

    /// What is to be kept of whoever joins.
    fn joined(&self, who: &Who, principal: &Principal) -> Result<Kept, Failure> {
        let members = self.members();
        has_room(&members, &who.id)?;
        let known = members.get(&who.id);
        let place = Place::of_scopes(&principal.scopes);
        let wants = known
            .map(|member| Preferences::clone(&member.wants))
            .unwrap_or_default();
        let in_file = known.is_some_and(|member| member.in_file);
        Ok(Kept {
            kind: Some(principal.kind),
            ended: false,
            place,
            wants,
            in_file,
            gone: false,
        })
    }

    pub async fn tell_joined(&self, id: &str, way: MemberWay) -> Result<(), Failure> {
        self.tell(StoredEvent::Joined(id.to_owned(), way.as_str().to_owned()))
            .await
    }

    pub async fn tell_left(&self, id: &str, why: &str) -> Result<(), Failure> {
        self.tell(StoredEvent::Left(id.to_owned(), why.to_owned()))
            .await
    }

    /// Tells of an event that changes who is here.
    async fn tell(&self, event: StoredEvent) -> Result<(), Failure> {
        self.mail.tell(event).await?;
        self.changed(Change::Resource(AGENTS_URI.to_owned()));
        self.marks.happened();
        Ok(())
    }

    /// Keeps a member, and answers the version. `None` where another node kept it meanwhile, which is taken in now.
    ///
    /// # Errors
    /// The store's; `Unavailable` where there are no `tries` left.
    async fn keep(
        &self,
        id: &str,
        kept: &Kept,
        tries: &mut Range<usize>,
    ) -> Result<Option<u64>, Failure> {
        let known = self.members().get(id).map_or(0, |member| member.version);
        match self.notes.put(SPACE, id, kept.to_raw(), Some(known)).await {
            Ok(version) => Ok(Some(version)),
            Err(NoteError::Changed { .. }) if tries.next().is_some() => {
                self.recall_one(id).await?;
                Ok(None)
            }
            Err(NoteError::Journal(error)) => Err(error.into()),
            Err(_) => Err(Failure::unavailable(
                "other nodes keep changing this agent: try again",
            )),
        }
    }

    /// Keeps a member as it is now, with `change`d, and changes it once that is kept.
    pub async fn change(&self, id: &str, change: impl Fn(&mut Kept)) -> Result<(), Failure> {
        let _turn = self.joining.lock().await;
        self.keep_with(id, change).await
    }

    async fn keep_with(&self, id: &str, change: impl Fn(&mut Kept)) -> Result<(), Failure> {
        let mut tries = 0..KEPT_TRIES_MAX;
        loop {
            let known = self
                .members()
                .get(id)
                .map(|member| (Kept::of(member), member.version));
            let Some((mut kept, version)) = known else {
                return Ok(());
            };
            change(&mut kept);
            let version = if is_reserved(id) {
                Some(version)
            } else {
                self.keep(id, &kept, &mut tries).await?
            };
            let Some(version) = version else { continue };
            // Unless a newer one was taken in meanwhile.
            if let Some(member) = self
                .members()
                .get_mut(id)
                .filter(|member| member.version <= version)
            {
                member.version = version;
                kept.apply_to(member);
            }
            return Ok(());
        }
    }

    /// Takes in who had mail before this process began.
    pub async fn recall(&self) -> Result<(), JournalError> {
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
    pub async fn recall_one(&self, id: &str) -> Result<(), JournalError> {
        let note = self.notes.get(SPACE, id).await?;
        note.iter().for_each(|note| self.take_in(note));
        Ok(())
    }

    fn take_in(&self, note: &Note) {
        let Ok(kept) = serde_json::from_str::<Kept>(note.body.to_raw().get()) else {
            return;
        };
        if MailId::parse(&*note.key).is_err() || is_reserved(&note.key) {
            return;
        }
        let options = self.options();
        let mut members = self.members();
        let member = members.entry(&note.key, &options);
        if note.version < member.version {
            // This node kept a newer one while this was on its way.
            return;
        }
        member.version = note.version;
        member.kind = kept.kind.or(member.kind);
        member.scope(kept.place.clone());
        kept.apply_to(member);
        if member.is_ended {
            member.end_line();
        }
    }

    /// Keeps that a file has a member, and tells of it where it wasn't there.
    pub async fn keep_declared(&self, id: &str, is_new: bool) -> Result<(), Failure> {
        // Many are kept at once: they don't take turns.
        self.keep_with(id, |kept| (kept.in_file, kept.gone) = (true, false))
            .await?;
        let way = match self.members().get(id) {
            Some(member) if is_new => member.way(),
            _ => return Ok(()),
        };
        self.tell_joined(id, way).await
    }

    /// Keeps that a member was taken out of the file, and tells of it.
    pub async fn keep_taken_out(&self, id: &str) -> Result<(), Failure> {
        let known = self
            .members()
            .get(id)
            .map(|member| (member.place.clone(), member.is_ended));
        let Some((place, is_ended)) = known else {
            return Ok(());
        };
        self.keep_with(id, |kept| {
            (kept.in_file, kept.gone) = (false, true);
            kept.place.clone_from(&place);
        })
        .await?;
        if is_ended {
            Ok(())
        } else {
            self.tell_left(id, "undeclared").await
        }
    }

    /// Begins the line of a member that has a way and none yet, unless it is terminated.
    pub fn open_line(self: &Arc<Self>, system: &System, member: &mut Member) {
        if !member.is_ended
            && member.line.is_none()
            && let Some(way) = &member.takes
        {
            member.line = Line::open(system, self, &member.id, way);
        }
    }
}
