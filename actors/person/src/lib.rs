//! People as agents. A [`PersonAgent`] stands for a person: other agents ask it, and the question waits
//! in the store until somebody with the right answers it, or its time is over.
//!
//! [`inbox()`] lists the questions that wait, and [`answer_inbox`] answers one. Both need only the store,
//! so that a page, a command or another process can serve the person.

mod form;
mod inbox;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_macros::Message;
use callboard_message::{ElicitationAction, Failure, Progress, RawObject, log};
use callboard_runtime::{
    Agent, AgentProfile, AuditEntry, ConcurrentHandler, Context, Handlers, KvStore,
    PRINCIPAL_SHARE_PERCENT_DEFAULT, PrincipalShares, SharePermit,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

pub use form::PERSON_SCHEMA_BYTES_MAX;
pub use inbox::{
    ANSWER_SCOPE, InboxAnswer, InboxError, InboxRequest, InboxState, PERSON_ANSWER_BYTES_MAX,
    PERSON_REQUESTS_MAX, PERSON_REQUESTS_PER_PERSON_MAX, PERSON_REQUESTS_PER_REQUESTER_MAX,
    PERSON_SCOPE_PREFIX, answer_inbox, inbox, may_answer, remove_expired,
};

use inbox::{NewRequest, StoredRequest};

/// Default time within which a question is answered.
pub const ANSWER_TIME_DEFAULT: Duration = Duration::from_secs(3_600);
/// Maximum time within which a question is answered.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Maximum length of a person's name for display, in characters. Fixed.
pub const PERSON_LABEL_CHARS_MAX: usize = 64;
/// Maximum length of a question, in bytes. Fixed.
pub const PERSON_QUESTION_BYTES_MAX: usize = 4 * 1024;
/// Maximum length of a reference, in bytes. Fixed.
pub const PERSON_REFERENCE_BYTES_MAX: usize = 128;
/// Maximum number of calls that wait at one person. Of these, one principal has at most three quarters, and a quarter in
/// any case; further ones are refused. Fixed.
const PERSON_WAITS_MAX: usize = 1_000;
/// Maximum number of calls that the agent handles at once: those that wait, and others that are refused. Fixed.
const PERSON_HANDLERS_MAX: u32 = 2_000;
/// Interval at which a waiting call first reads whether somebody has answered, which may happen in another process.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of reading after [`FAST_POLL_TIME`].
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which a call reads every [`POLL_INTERVAL`].
const FAST_POLL_TIME: Duration = Duration::from_secs(30);
/// Interval at which expired questions are removed, also at the start.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(3_600);
/// Time before a call's deadline at which it ends, so that its caller hears of the reference.
const DEADLINE_MARGIN: Duration = Duration::from_millis(500);
/// Progress at the one report of a call that waits.
const WAIT_PROGRESS: f64 = 1e-6;

/// Asks a person a question and waits for the answer. The person may decline. If the call ends before the
/// person has answered, repeat it with the same question: within ten minutes of the answer it gets the same one. To ask
/// the same question anew, choose a new reference.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize, JsonSchema, derive_more::Debug)]
#[message(name = "ask", reply = PersonAnswer, fallible, title = "Ask a person", idempotent, destructive = false, open_world = false, task = "optional")]
#[serde(deny_unknown_fields)]
pub struct AskPerson {
    /// Question as the person reads it, of at most 4 KiB.
    #[debug(skip)]
    pub question: String,
    /// JSON Schema of the form that the person fills in: an object whose properties are texts, numbers, booleans,
    /// choices or lists of choices, as in MCP's `elicitation/create`. Without it, the person writes a text, which is
    /// the member `answer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[debug(skip)]
    pub schema: Option<RawObject>,
    /// Name of the question, chosen by you, of at most 128 bytes. Your calls with the same reference get one answer; without
    /// it, those with the same question and schema do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// Answer of a person.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, derive_more::Debug)]
pub struct PersonAnswer {
    /// Choice of the person: `accept` if the form is filled in, `decline`, or `cancel` without a choice.
    pub action: ElicitationAction,
    /// Values of the form, if it is filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[debug(skip)]
    pub content: Option<RawObject>,
    /// Kind and id of the principal that answered.
    pub answered_by: String,
}

/// Options of a [`PersonAgent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonOptions {
    /// Id of the person, which scopes and the inbox name.
    pub id: String,
    /// Name for display, of at most [`PERSON_LABEL_CHARS_MAX`] characters; the id by default.
    pub label: Option<String>,
    /// Time within which a question is answered, in whole seconds, at most [`ANSWER_TIME_MAX`]. Default:
    /// [`ANSWER_TIME_DEFAULT`].
    pub answer_time: Duration,
}

/// Error in [`PersonOptions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PersonOptionsError {
    /// The label is empty, too long, or contains control characters.
    #[error("write 1 to {PERSON_LABEL_CHARS_MAX} characters without control characters")]
    Label,
    /// The time is too short or too long.
    #[error("write 1 to {} seconds", ANSWER_TIME_MAX.as_secs())]
    AnswerTime,
}

impl PersonOptions {
    /// Creates the options of a person with defaults.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            label: None,
            answer_time: ANSWER_TIME_DEFAULT,
        }
    }

    /// Checks the limits of the options.
    ///
    /// # Errors
    /// [`PersonOptionsError`] of the first option that is out of its limits.
    pub fn validate(&self) -> Result<(), PersonOptionsError> {
        let is_name = |label: &String| {
            let chars = label.chars().count();
            (1..=PERSON_LABEL_CHARS_MAX).contains(&chars) && !label.contains(char::is_control)
        };
        if !self.label.as_ref().is_none_or(is_name) {
            return Err(PersonOptionsError::Label);
        }
        match (Duration::from_secs(1)..=ANSWER_TIME_MAX).contains(&self.answer_time) {
            true => Ok(()),
            false => Err(PersonOptionsError::AnswerTime),
        }
    }

    fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }
}

/// Agent that stands for a person. Each question waits in the store of the system, past the end of its
/// call and of the process.
#[derive(Clone, derive_more::Debug)]
pub struct PersonAgent {
    options: Arc<PersonOptions>,
    /// Places of calls that wait.
    #[debug(skip)]
    waits: Arc<PrincipalShares>,
}

/// Removes expired questions.
#[derive(Debug, Message)]
#[message(name = "callboard.person.clean", local)]
struct RemoveExpired;

impl PersonAgent {
    /// Creates the agent of a person.
    ///
    /// # Errors
    /// [`PersonOptionsError`] if an option is out of its limits.
    pub fn new(options: PersonOptions) -> Result<Self, PersonOptionsError> {
        options.validate()?;
        Ok(Self {
            options: Arc::new(options),
            waits: PrincipalShares::new(PERSON_WAITS_MAX, PRINCIPAL_SHARE_PERCENT_DEFAULT),
        })
    }

    /// Returns a place for a call that waits.
    ///
    /// # Errors
    /// `Overloaded` if there is none for its principal.
    fn take_place(&self, cx: &Context) -> Result<SharePermit, Failure> {
        let place = self.waits.try_acquire(cx.principal());
        place.map_err(|_| {
            Failure::overloaded(format!(
                "of {PERSON_WAITS_MAX} calls that may wait for {}, {} of one requester, too many do: end one, or ask again later",
                self.options.name(),
                self.waits.rule().alone_max()
            ))
        })
    }
}

impl Agent for PersonAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<AskPerson>(PERSON_HANDLERS_MAX);
        on.concurrent::<RemoveExpired>(1);
    }

    /// Returns the agent's profile: a principal whose questions wait leaves room for others.
    fn profile() -> AgentProfile {
        AgentProfile::default()
            .principal_share(PRINCIPAL_SHARE_PERCENT_DEFAULT)
            .cancel_safe()
    }

    fn started(&mut self, cx: &mut Context) {
        // An hour later it is tried again.
        let _ = cx.me().try_tell(RemoveExpired);
        cx.tell_every(CLEANUP_INTERVAL, || RemoveExpired);
    }
}

impl ConcurrentHandler<RemoveExpired> for PersonAgent {
    fn handle(
        &mut self,
        _: RemoveExpired,
        cx: Context,
    ) -> impl Future<Output = ()> + Send + 'static {
        async move {
            if let Err(error) = remove_expired(&*cx.system().store().kv).await {
                log::warn!(%error, "expired questions to people can't be removed: they are in an hour");
            }
        }
    }
}

impl ConcurrentHandler<AskPerson> for PersonAgent {
    fn handle(
        &mut self,
        message: AskPerson,
        cx: Context,
    ) -> impl Future<Output = Result<PersonAnswer, Failure>> + Send + 'static {
        let agent = self.clone();
        async move {
            let _place = agent.take_place(&cx)?;
            ask(&agent.options, message, &cx).await
        }
    }
}

/// Puts the question into the inbox, unless it is there, and waits for its answer.
///
/// # Errors
/// `InvalidInput` if a text, the schema or the reference is invalid; `Overloaded` if too many questions
/// wait; `TimedOut` if nobody has answered in time; `Cancelled`; `Unavailable` if the store fails.
async fn ask(
    options: &PersonOptions,
    message: AskPerson,
    cx: &Context,
) -> Result<PersonAnswer, Failure> {
    check_texts(&message)?;
    let schema = match message.schema {
        Some(schema) => {
            form::check_schema(&schema).map_err(Failure::invalid)?;
            schema
        }
        None => form::text_form(),
    };
    let store = &*cx.system().store().kv;
    let secret = inbox::secret(store).await.map_err(inbox::unavailable)?;
    let new = NewRequest {
        secret: &secret,
        person: &options.id,
        requester: cx.principal(),
        named: message.reference.as_deref(),
        question: &message.question,
        schema: &schema,
        answer_time: options.answer_time,
    };
    let reference = new.reference();
    let (request, is_new) = inbox::open(store, &new).await?;
    if is_new {
        record_asked(&request, cx).await;
    }
    cx.progress(Progress {
        done: WAIT_PROGRESS,
        total: None,
        message: Some(format!(
            "waits for the answer of {} ({})",
            options.name(),
            request.id
        )),
    });
    let wait = AnswerWait {
        options,
        store,
        request: &request,
        reference: &reference,
    };
    // The question stays after a cancelled call, and its answer: a node that stops cancels the calls of its tasks, which
    // it repeats after its start.
    wait.until_answered(cx).await.map_err(|end| match end {
        WaitEnd::Cancelled => {
            Failure::cancelled("the call was cancelled: the question still waits")
        }
        WaitEnd::Deadline => wait.still_waiting(),
        WaitEnd::Expired => wait.expired(),
        WaitEnd::Failed(failure) => failure,
    })
}

/// Checks the limits of question and reference.
fn check_texts(message: &AskPerson) -> Result<(), Failure> {
    let bytes = message.question.len();
    if message.question.trim().is_empty() || bytes > PERSON_QUESTION_BYTES_MAX {
        return Err(Failure::invalid(format!(
            "`question` has {bytes} bytes: write a text of at most {PERSON_QUESTION_BYTES_MAX}"
        )));
    }
    let is_wrong = |reference: &&String| {
        reference.is_empty()
            || reference.len() > PERSON_REFERENCE_BYTES_MAX
            || reference.contains(char::is_control)
    };
    match message.reference.as_ref().filter(is_wrong) {
        None => Ok(()),
        Some(_) => Err(Failure::invalid(format!(
            "`reference` must have 1 to {PERSON_REFERENCE_BYTES_MAX} bytes, without control characters"
        ))),
    }
}

/// Records that a question waits, without its text.
async fn record_asked(request: &StoredRequest, cx: &Context) {
    let entry = AuditEntry::new("person.asked")
        .with_agent(request.person.as_str())
        .with_principal(cx.principal())
        .with_detail("request", request.id.as_str());
    let entry = match cx.call() {
        Some(call) => entry.with_call(call.id),
        None => entry,
    };
    cx.system().audit().enqueue(entry).await;
}

/// Call that waits for the answer of a request.
struct AnswerWait<'a> {
    options: &'a PersonOptions,
    store: &'a dyn KvStore,
    request: &'a StoredRequest,
    reference: &'a str,
}

/// Reason why a call waits no longer, without an answer.
enum WaitEnd {
    /// The caller no longer wants the answer.
    Cancelled,
    /// The call's deadline is near.
    Deadline,
    /// The time of the request is over.
    Expired,
    /// The store failed.
    Failed(Failure),
}

impl AnswerWait<'_> {
    async fn until_answered(&self, cx: &Context) -> Result<PersonAnswer, WaitEnd> {
        let left_s = self
            .request
            .expires_s
            .saturating_sub(inbox::unix_s(SystemTime::now()));
        let expiry = Instant::now() + Duration::from_secs(left_s);
        let deadline = cx
            .deadline()
            .map(|deadline| deadline.checked_sub(DEADLINE_MARGIN).unwrap_or(deadline));
        let end = deadline.map_or(expiry, |deadline| deadline.min(expiry));
        let slow_from = Instant::now() + FAST_POLL_TIME;
        loop {
            if let Some(answer) = self.read_answer().await? {
                return Ok(answer);
            }
            let now = Instant::now();
            if now >= end {
                return Err(match now >= expiry {
                    true => WaitEnd::Expired,
                    false => WaitEnd::Deadline,
                });
            }
            let interval = match now < slow_from {
                true => POLL_INTERVAL,
                false => SLOW_POLL_INTERVAL,
            };
            tokio::select! {
                biased;
                () = cx.cancelled() => return Err(WaitEnd::Cancelled),
                () = tokio::time::sleep_until(end.min(now + interval)) => {}
            }
        }
    }

    /// Reads whether somebody has answered.
    async fn read_answer(&self) -> Result<Option<PersonAnswer>, WaitEnd> {
        let read = inbox::read(self.store, self.request.key()).await;
        let (known, _) = read.map_err(|error| WaitEnd::Failed(inbox::unavailable(error)))?;
        // An expired request may have been removed, or have made room for another with its key.
        let known = known.filter(|known| known.id == self.request.id);
        let known = known.ok_or(WaitEnd::Expired)?;
        let action = match known.state {
            InboxState::Waiting => return Ok(None),
            InboxState::Accepted => ElicitationAction::Accept,
            InboxState::Declined => ElicitationAction::Decline,
            InboxState::Cancelled => ElicitationAction::Cancel,
        };
        Ok(Some(PersonAnswer {
            action,
            content: known.content,
            answered_by: known.answered_by.unwrap_or_default(),
        }))
    }

    fn still_waiting(&self) -> Failure {
        let (name, reference) = (self.options.name(), self.reference);
        Failure::timed_out(format!(
            "{name} has not answered yet: ask again later with the same question, schema and the reference {reference:?}"
        ))
        .with_data(json!({ "reason": "person", "request": self.request.id, "reference": reference }))
    }

    fn expired(&self) -> Failure {
        Failure::timed_out(format!(
            "{} has not answered in time ({}): ask again if you still need the answer",
            self.options.name(),
            self.request.id
        ))
    }
}
