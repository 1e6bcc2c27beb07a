//! Questions to people in the key-value store: limits, rights and answers.

use std::time::{Duration, SystemTime};

use callboard_message::{Elicitation, Failure, Principal, PrincipalKind, RawObject, log};
use callboard_runtime::{
    AuditEntry, AuditLog, JournalError, KvEntry, KvError, KvStore, keyed_hash, kv_secret, list_all,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wildmatch::WildMatch;

/// Maximum number of questions of one requester that wait or whose answer is kept. For one more, the oldest
/// answer that has been kept for a minute is removed; without one it is refused. Fixed.
pub const PERSON_REQUESTS_PER_REQUESTER_MAX: usize = 100;
/// Maximum number of questions to one person that wait or whose answer is kept. For one more, the oldest answer
/// that has been kept for a minute is removed; without one it is refused. Fixed.
pub const PERSON_REQUESTS_PER_PERSON_MAX: usize = 500;
/// Maximum number of questions in a store that wait or whose answer is kept. For one more, the oldest answer
/// that has been kept for a minute is removed; without one it is refused. Fixed.
pub const PERSON_REQUESTS_MAX: usize = 1_000;
/// Maximum size of the values of a form in an answer, in bytes. Fixed.
pub const PERSON_ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Prefix of the scope that permits to answer for a person: the person's id follows.
pub const PERSON_SCOPE_PREFIX: &str = "person:";
/// Scope that permits to answer for every person.
pub const ANSWER_SCOPE: &str = "console.act";
/// Space of the questions.
pub(crate) const SPACE: &str = "person-requests";
/// Space of the secret of the keys, which all nodes on the store share.
const SECRET_SPACE: &str = "person-secret";
/// Number of characters of a key.
const KEY_CHARS: usize = 32;
/// Time for which an answer is kept in any case, so that calls that wait read it.
const KEPT_TIME_MIN_S: u64 = 60;
/// Time for which an expired question stays, so that none is removed that somebody is about to answer.
const EXPIRED_TIME_S: u64 = 60;

/// State of a question to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxState {
    /// Nobody has answered.
    Waiting,
    /// The form is filled in.
    Accepted,
    /// The person declined.
    Declined,
    /// The person dismissed the question without a choice.
    Cancelled,
}

impl InboxState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Accepted => "accepted",
            Self::Declined => "declined",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Question that waits in the inbox of a person. Its texts come from the requester.
#[derive(Clone, PartialEq, Serialize, derive_more::Debug)]
pub struct InboxRequest {
    /// Id, which is different for each question.
    pub id: String,
    /// Id of the person.
    pub person: String,
    /// Kind and id of the requester, as `kind:id`.
    pub requester: String,
    /// Question.
    #[debug(skip)]
    pub question: String,
    /// JSON Schema of the form that is the answer; `None` if the stored one is damaged.
    #[debug(skip)]
    pub schema: Option<Value>,
    /// Purpose that the requester states; empty without one.
    pub purpose: String,
    /// Time of the question, in seconds since the Unix epoch.
    pub asked_s: u64,
    /// Time after which the question counts no more, in seconds since the Unix epoch.
    pub expires_s: u64,
    /// State of the question.
    pub state: InboxState,
}

/// Answer to a question in an inbox.
#[derive(Debug, Clone, PartialEq)]
pub enum InboxAnswer {
    /// Values of the form.
    Accept(RawObject),
    /// Refusal to answer.
    Decline,
    /// Dismissal without a choice.
    Cancel,
}

/// Error of an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// No question has this id, it has expired, or the principal may not answer it.
    #[error(
        "no question waits with this id: it has expired, or you lack the scope `person:ID` of its person or `console.act`"
    )]
    Unknown,
    /// The question has been answered or withdrawn.
    #[error("it has been answered or withdrawn already: list the questions that wait")]
    Answered,
    /// The requester itself would answer.
    #[error("whoever asks a question can't answer it: ask another one")]
    Own,
    /// The values have more than [`PERSON_ANSWER_BYTES_MAX`] bytes.
    #[error("the answer has {0} bytes, {PERSON_ANSWER_BYTES_MAX} are allowed: write less")]
    TooLarge(usize),
    /// The values don't fit the form, for these reasons.
    #[error("the answer doesn't fit the form: {0}")]
    Form(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] KvError),
}

/// Time for which an answer counts for repeated calls that don't name a reference, in seconds. Fixed.
const UNNAMED_ANSWER_TIME_S: u64 = 600;

/// Question that is to be put into an inbox.
pub(crate) struct NewRequest<'a> {
    /// Secret of the keys ([`secret`]).
    pub(crate) secret: &'a str,
    pub(crate) person: &'a str,
    pub(crate) requester: &'a Principal,
    /// Reference that the requester has chosen.
    pub(crate) named: Option<&'a str>,
    pub(crate) question: &'a str,
    pub(crate) schema: &'a RawObject,
    pub(crate) answer_time: Duration,
}

/// Returns whether a principal may answer questions to a person: it is the operator, or one of its scopes, which may be
/// patterns, permits `person:ID` or [`ANSWER_SCOPE`]. Nobody may answer an own question in any case.
pub fn may_answer(person: &str, principal: &Principal) -> bool {
    let own = format!("{PERSON_SCOPE_PREFIX}{person}");
    let permits = |scope: &String| {
        let pattern = WildMatch::new(scope);
        pattern.matches(&own) || pattern.matches(ANSWER_SCOPE)
    };
    is_operator(principal) || principal.scopes.iter().any(permits)
}

/// Question as it is stored.
#[derive(Clone, PartialEq, Serialize, Deserialize, derive_more::Debug)]
pub(crate) struct StoredRequest {
    pub(crate) id: String,
    pub(crate) person: String,
    pub(crate) requester_kind: PrincipalKind,
    pub(crate) requester: String,
    #[debug(skip)]
    pub(crate) question: String,
    #[debug(skip)]
    pub(crate) schema: RawObject,
    #[serde(default)]
    pub(crate) purpose: String,
    pub(crate) asked_s: u64,
    pub(crate) expires_s: u64,
    pub(crate) state: InboxState,
    /// Values of the form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[debug(skip)]
    pub(crate) content: Option<RawObject>,
    /// Kind and id of the principal that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answered_by: Option<String>,
    /// Time of the answer, in seconds since the Unix epoch; 0 without one.
    #[serde(default)]
    pub(crate) answered_s: u64,
}

/// Returns the secret of the keys.
///
/// # Errors
/// Those of the store.
pub(crate) async fn secret(store: &dyn KvStore) -> Result<String, KvError> {
    kv_secret(store, SECRET_SPACE).await
}

impl NewRequest<'_> {
    /// Returns the reference that the requester has chosen, or else one that is the same for each call with this
    /// question and schema.
    pub(crate) fn reference(&self) -> String {
        let of_question = || {
            let schema = to_value(self.schema).unwrap_or_default().to_string();
            self.hash(&["reference", self.question, &schema])
        };
        self.named.map_or_else(of_question, str::to_owned)
    }

    /// Returns the key of the question: the same for each call with the same reference by the same principal,
    /// for the same purpose, whose credential opens the same data.
    fn key(&self) -> String {
        self.hash(&["key", &self.reference()])
    }

    /// Returns a keyed hash of texts about a question of this principal to this person, in hexadecimal: nobody who
    /// reads it can try out what they are.
    fn hash(&self, parts: &[&str]) -> String {
        let scopes = self.requester.data_scopes().join(" ");
        let of_requester = [
            self.requester.kind.as_str(),
            &self.requester.id,
            self.requester.purpose.as_deref().unwrap_or_default(),
            &scopes,
            self.person,
        ];
        let mut hash = keyed_hash(self.secret, of_requester.iter().chain(parts).copied());
        hash.truncate(KEY_CHARS);
        hash
    }

    fn to_stored(&self, key: &str) -> StoredRequest {
        let now = unix_s(SystemTime::now());
        StoredRequest {
            // The second part tells this question from earlier ones with the same reference.
            id: format!("{key}-{:08x}", rand::random::<u32>()),
            person: self.person.to_owned(),
            requester_kind: self.requester.kind,
            requester: self.requester.id.clone(),
            question: self.question.to_owned(),
            schema: self.schema.clone(),
            purpose: self.requester.purpose.clone().unwrap_or_default(),
            asked_s: now,
            expires_s: now + self.answer_time.as_secs(),
            state: InboxState::Waiting,
            content: None,
            answered_by: None,
            answered_s: 0,
        }
    }

    fn is_same(&self, stored: &StoredRequest) -> bool {
        self.question == stored.question && to_value(self.schema) == to_value(&stored.schema)
    }
}

impl StoredRequest {
    /// Returns the key of its entry, which the id begins with.
    pub(crate) fn key(&self) -> &str {
        key_of(&self.id).unwrap_or_default()
    }

    /// Returns whether the answer is too old for calls that didn't name the question.
    fn is_answered_long_ago(&self) -> bool {
        let until = self.answered_s.saturating_add(UNNAMED_ANSWER_TIME_S);
        self.state != InboxState::Waiting && until <= unix_s(SystemTime::now())
    }

    fn is_expired(&self) -> bool {
        unix_s(SystemTime::now()) >= self.expires_s
    }

    /// Returns whether a principal has asked: its id is the same, whatever the kind of its credential. The
    /// operator is only itself.
    fn is_requester(&self, principal: &Principal) -> bool {
        let is_same_kind = principal.kind == self.requester_kind;
        principal.id == self.requester && (is_same_kind || !is_operator(principal))
    }

    /// Returns state and values after an answer.
    ///
    /// # Errors
    /// [`InboxError::TooLarge`], [`InboxError::Form`].
    fn check(&self, answer: InboxAnswer) -> Result<(InboxState, Option<RawObject>), InboxError> {
        let content = match answer {
            InboxAnswer::Accept(content) => content,
            InboxAnswer::Decline => return Ok((InboxState::Declined, None)),
            InboxAnswer::Cancel => return Ok((InboxState::Cancelled, None)),
        };
        let bytes = content.to_raw().get().len();
        if bytes > PERSON_ANSWER_BYTES_MAX {
            return Err(InboxError::TooLarge(bytes));
        }
        let values = to_value(&content).unwrap_or_default();
        let faults = Elicitation::form("", &self.schema).check(&values);
        match faults.is_empty() {
            true => Ok((InboxState::Accepted, Some(content))),
            false => Err(InboxError::Form(faults.join("; "))),
        }
    }

    /// Writes the question if its entry has the expected version.
    pub(crate) async fn write(&self, store: &dyn KvStore, expected: u64) -> Result<(), KvError> {
        let body = serde_json::value::to_raw_value(self).ok();
        let body = body.and_then(|body| RawObject::parse(&body).ok());
        let body = body.unwrap_or_default();
        let written = store.put(SPACE, self.key(), body, Some(expected)).await;
        written.map(drop)
    }
}

impl From<StoredRequest> for InboxRequest {
    fn from(stored: StoredRequest) -> Self {
        Self {
            id: stored.id,
            person: stored.person,
            requester: format!("{}:{}", stored.requester_kind, stored.requester),
            question: stored.question,
            schema: to_value(&stored.schema),
            purpose: stored.purpose,
            asked_s: stored.asked_s,
            expires_s: stored.expires_s,
            state: stored.state,
        }
    }
}

/// Limit of the questions that wait or whose answer is kept.
#[derive(Debug, Clone, Copy)]
enum RequestLimit {
    Requester,
    Person,
    Store,
}

impl RequestLimit {
    const ALL: [Self; 3] = [Self::Requester, Self::Person, Self::Store];

    fn max(self) -> usize {
        match self {
            Self::Requester => PERSON_REQUESTS_PER_REQUESTER_MAX,
            Self::Person => PERSON_REQUESTS_PER_PERSON_MAX,
            Self::Store => PERSON_REQUESTS_MAX,
        }
    }

    /// Returns whether another question counts with this one.
    fn counts(self, request: &StoredRequest, other: &StoredRequest) -> bool {
        match self {
            Self::Requester => {
                other.requester_kind == request.requester_kind
                    && other.requester == request.requester
            }
            Self::Person => other.person == request.person,
            Self::Store => true,
        }
    }

    fn overloaded(self) -> Failure {
        let whose = match self {
            Self::Requester => "of your questions to people",
            Self::Person => "questions to this person",
            Self::Store => "questions to people",
        };
        Failure::overloaded(format!(
            "{} {whose} wait or were answered just now: wait until some are answered or expire",
            self.max()
        ))
    }
}

/// Question in the list of all.
struct ListedRequest {
    /// Time at which the question was put, or answered, by the store's clock.
    written_at: SystemTime,
    request: StoredRequest,
}

impl ListedRequest {
    /// Returns the rank by which questions have room: answers first, and then as they were asked.
    fn rank(&self) -> (bool, SystemTime, &str) {
        let is_waiting = self.request.state == InboxState::Waiting;
        (is_waiting, self.written_at, &self.request.id)
    }
}

/// Returns the question with the key of a new one, and whether it was created by this call.
///
/// # Errors
/// `InvalidInput` if the reference belongs to another question; `Overloaded` if there is no room;
/// `Unavailable` if the store fails.
pub(crate) async fn open(
    store: &dyn KvStore,
    new: &NewRequest<'_>,
) -> Result<(StoredRequest, bool), Failure> {
    let key = new.key();
    loop {
        let (known, version) = read(store, &key).await.map_err(unavailable)?;
        let is_current = |known: &StoredRequest| {
            let is_old = new.named.is_none() && known.is_answered_long_ago();
            !known.is_expired() && !is_old
        };
        if let Some(known) = known.filter(is_current) {
            return match new.is_same(&known) {
                true => Ok((known, false)),
                false => Err(Failure::invalid(
                    "`reference` belongs to another question of yours: use another one",
                )),
            };
        }
        let request = new.to_stored(&key);
        make_room(store, &request).await?;
        match request.write(store, version).await {
            Ok(()) => {
                check_rank(store, &request).await?;
                return Ok((request, true));
            }
            // Another call with the reference was first, or the expired question has been removed.
            Err(KvError::VersionConflict { .. }) => {}
            // Questions that have just expired fill the space.
            Err(KvError::Journal(JournalError::Full { .. })) => {
                return Err(RequestLimit::Store.overloaded());
            }
            Err(error) => return Err(unavailable(error)),
        }
    }
}

/// Checks that there is room for one more question. Removes an old answer if that makes room.
///
/// # Errors
/// `Overloaded` if there is no room; `Unavailable` if the store fails.
async fn make_room(store: &dyn KvStore, request: &StoredRequest) -> Result<(), Failure> {
    let mut all = list(store).await.map_err(unavailable)?;
    for limit in RequestLimit::ALL {
        let counted = all
            .iter()
            .map(|listed| &listed.request)
            .filter(|other| limit.counts(request, other));
        if counted.clone().count() < limit.max() {
            continue;
        }
        let Some(old) = oldest_answer(counted).map(|old| old.id.clone()) else {
            return Err(limit.overloaded());
        };
        remove(store, &old).await.map_err(unavailable)?;
        all.retain(|listed| listed.request.id != old);
    }
    Ok(())
}

/// Checks the limits again after a question was written: calls at the same time have written others. Removes the
/// question if others that were there before need all of the room.
///
/// # Errors
/// `Overloaded` if it was removed; `Unavailable` if the store fails.
async fn check_rank(store: &dyn KvStore, request: &StoredRequest) -> Result<(), Failure> {
    let all = list(store).await.map_err(unavailable)?;
    let Some(own) = all.iter().find(|listed| listed.request.id == request.id) else {
        return Ok(());
    };
    for limit in RequestLimit::ALL {
        let counted = all
            .iter()
            .filter(|listed| limit.counts(request, &listed.request));
        if counted.filter(|listed| listed.rank() < own.rank()).count() >= limit.max() {
            remove(store, &request.id).await.map_err(unavailable)?;
            return Err(limit.overloaded());
        }
    }
    Ok(())
}

/// Returns the answered question that may be removed first.
fn oldest_answer<'a>(
    requests: impl Iterator<Item = &'a StoredRequest>,
) -> Option<&'a StoredRequest> {
    let before = unix_s(SystemTime::now()).saturating_sub(KEPT_TIME_MIN_S);
    requests
        .filter(|request| request.state != InboxState::Waiting && request.answered_s <= before)
        .min_by_key(|request| request.answered_s)
}

/// Returns the question with this key, and the version of its entry: `None` and 0 if there is none.
///
/// # Errors
/// Those of the store.
pub(crate) async fn read(
    store: &dyn KvStore,
    key: &str,
) -> Result<(Option<StoredRequest>, u64), KvError> {
    let entry = store.get(SPACE, key).await?;
    let version = entry.as_ref().map_or(0, |entry| entry.version);
    Ok((entry.as_ref().and_then(to_record), version))
}

/// Removes the question with this id, unless another one has its key.
///
/// # Errors
/// Those of the store.
pub(crate) async fn remove(store: &dyn KvStore, id: &str) -> Result<(), KvError> {
    let Some(key) = key_of(id) else {
        return Ok(());
    };
    let (known, _) = read(store, key).await?;
    if known.is_some_and(|known| known.id == id) {
        store.remove(SPACE, key).await?;
    }
    Ok(())
}

/// Returns all questions that haven't expired. Removes those that have been expired for a minute.
async fn list(store: &dyn KvStore) -> Result<Vec<ListedRequest>, KvError> {
    let entries = list_all(store, SPACE).await?;
    remove_old(store, &entries).await?;
    let current = entries.iter().filter_map(|entry| {
        let request = to_record(entry).filter(|request| !request.is_expired())?;
        Some(ListedRequest {
            written_at: entry.at,
            request,
        })
    });
    Ok(current.collect())
}

/// Removes questions and answers that have been expired for a minute. Returns their number.
///
/// # Errors
/// Those of the store.
pub async fn remove_expired(store: &dyn KvStore) -> Result<usize, KvError> {
    let entries = list_all(store, SPACE).await?;
    remove_old(store, &entries).await
}

/// Removes those entries that have been expired for a minute. Returns their number.
async fn remove_old(store: &dyn KvStore, entries: &[KvEntry]) -> Result<usize, KvError> {
    let before = unix_s(SystemTime::now()).saturating_sub(EXPIRED_TIME_S);
    let is_old = |entry: &KvEntry| {
        let request = to_record(entry);
        request.is_some_and(|request| request.expires_s < before)
    };
    let mut removed = 0;
    for entry in entries.iter().filter(|entry| is_old(entry)) {
        // It may have been asked again since it was read.
        let now = store.get(SPACE, &entry.key).await?;
        if now.is_some_and(|now| is_old(&now)) {
            removed += usize::from(store.remove(SPACE, &entry.key).await?);
        }
    }
    Ok(removed)
}

/// Returns the questions that wait for a person, or with `None` for all people, the oldest first. Removes what
/// has been expired for a minute.
///
/// The caller decides who may read them.
///
/// # Errors
/// Those of the store.
pub async fn inbox(
    store: &dyn KvStore,
    person: Option<&str>,
) -> Result<Vec<InboxRequest>, KvError> {
    let listed = list(store).await?;
    let mut waiting: Vec<_> = listed.into_iter().map(|listed| listed.request).collect();
    waiting.retain(|request| {
        request.state == InboxState::Waiting && person.is_none_or(|person| request.person == person)
    });
    waiting.sort_by(|one, other| (one.asked_s, &one.id).cmp(&(other.asked_s, &other.id)));
    Ok(waiting.into_iter().map(InboxRequest::from).collect())
}

/// Answers a question for its person. The answer is kept for as much time as the question had, for calls that
/// wait for it or are repeated, unless newer questions need the room.
///
/// # Errors
/// [`InboxError`].
pub async fn answer_inbox(
    store: &dyn KvStore,
    audit: &AuditLog,
    id: &str,
    by: &Principal,
    answer: InboxAnswer,
) -> Result<(), InboxError> {
    let key = key_of(id).ok_or(InboxError::Unknown)?;
    let (known, version) = read(store, key).await?;
    let is_open = |known: &StoredRequest| {
        known.id == id && !known.is_expired() && may_answer(&known.person, by)
    };
    let known = known.filter(is_open).ok_or(InboxError::Unknown)?;
    if known.is_requester(by) {
        return Err(InboxError::Own);
    }
    if known.state != InboxState::Waiting {
        return Err(InboxError::Answered);
    }
    let (state, content) = known.check(answer)?;
    let now = unix_s(SystemTime::now());
    let answered = StoredRequest {
        state,
        content,
        answered_by: Some(format!("{}:{}", by.kind, by.id)),
        answered_s: now,
        expires_s: now + known.expires_s.saturating_sub(known.asked_s),
        ..known
    };
    match answered.write(store, version).await {
        Ok(()) => {}
        Err(KvError::VersionConflict { .. }) => return Err(InboxError::Answered),
        Err(error) => return Err(error.into()),
    }
    let entry = AuditEntry::new("person.answered")
        .with_agent(answered.person)
        .with_principal(by)
        .with_outcome(state.as_str())
        .with_detail("request", id);
    audit.enqueue(entry).await;
    Ok(())
}

/// Returns the failure of an error of the store.
pub(crate) fn unavailable(error: KvError) -> Failure {
    log::error!(%error, "questions to people can't be read or written");
    Failure::unavailable("the node can't read or write questions to people: try again later")
}

/// Returns the time in seconds since the Unix epoch.
pub(crate) fn unix_s(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Returns the key that an id begins with; `None` if it can't be an id.
fn key_of(id: &str) -> Option<&str> {
    let (key, _) = id.split_once('-')?;
    let is_key = key.len() == KEY_CHARS && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key.then_some(key)
}

fn to_record(entry: &KvEntry) -> Option<StoredRequest> {
    serde_json::from_str(entry.body.to_raw().get()).ok()
}

/// Returns an object as a value; `None` if it is nested too deeply.
fn to_value(object: &RawObject) -> Option<Value> {
    serde_json::from_str(object.to_raw().get()).ok()
}

/// Returns whether a principal is the operator, who may answer for everybody.
fn is_operator(principal: &Principal) -> bool {
    principal.kind == PrincipalKind::LocalOperator
}
