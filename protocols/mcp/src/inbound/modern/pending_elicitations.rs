use std::sync::{Arc, OnceLock};

use callboard_message::{
    Answer, CallerCapabilities, Elicitation, ElicitationAction, Failure, LogLevel, LogMessage,
    Progress, Question, RawObject, SamplingAnswer, SamplingRequest,
};
use callboard_rpc::{RpcError, encode_notification};
use callboard_runtime::{CallContext, Caller};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};

use super::REVISION;
use crate::inbound::agent_adapter::{AgentAdapter, AgentHandler, RpcResult};
use crate::inbound::client_messages::{
    MessageSink, ProgressReporter, parse_answer, question_request,
};
use crate::inbound::request::McpRequest;
use crate::wire::code::URL_ELICITATION_REQUIRED;

/// Maximum number of unanswered questions of one call. One more fails with `Overloaded`.
pub const ELICITATIONS_MAX: usize = 16;

/// Unanswered questions of one call. The client receives them in a result, and answers them with
/// its next request.
pub(crate) struct PendingElicitations {
    state: Mutex<ElicitationState>,
    /// Notified when a question has been added.
    pub new_question: Notify,
}

struct ElicitationState {
    /// Capabilities that the client declared in its latest request.
    abilities: CallerCapabilities,
    waiting: Vec<PendingElicitation>,
    /// Answers by key, received before their questions were asked.
    early: RawObject,
    /// Number of questions asked so far.
    count: usize,
}

struct PendingElicitation {
    key: String,
    question: Question,
    answer: oneshot::Sender<Answer>,
}

impl PendingElicitations {
    pub fn new(abilities: CallerCapabilities, early: RawObject) -> Arc<Self> {
        let state = ElicitationState {
            abilities,
            waiting: Vec::new(),
            early,
            count: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            new_question: Notify::new(),
        })
    }

    pub fn abilities(&self) -> CallerCapabilities {
        self.state.lock().abilities.clone()
    }

    /// Adds a question and waits for its answer. Returns at once if the answer was received before.
    ///
    /// # Errors
    /// `NoResponder` if the client lacks the capability or the call's questions are dropped,
    /// `Overloaded` if too many questions are open.
    pub async fn ask(self: &Arc<Self>, mut question: Question) -> Result<Answer, Failure> {
        let key = question.take_key();
        let answered = {
            let mut state = self.state.lock();
            state.waiting.retain(|waiting| !waiting.answer.is_closed());
            check_capability(&question, &state.abilities)?;
            if state.waiting.len() >= ELICITATIONS_MAX {
                return Err(Failure::overloaded(format!(
                    "{ELICITATIONS_MAX} questions of this call wait for answers already"
                )));
            }
            let key = state.assign_key(key);
            if let Some(early) = state
                .early
                .remove(&key)
                .and_then(|raw| parse_valid_answer(&question, &raw).ok())
            {
                return Ok(early);
            }
            let (answer, answered) = oneshot::channel();
            state.waiting.push(PendingElicitation {
                key,
                question,
                answer,
            });
            answered
        };
        self.new_question.notify_one();
        answered.await.map_err(|_| {
            Failure::no_responder("the call ended before the client answered its question")
        })
    }

    /// Returns the unanswered questions as `inputRequests`, by key; `None` if there are none.
    pub fn input_requests(&self) -> Option<RawObject> {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut requests = RawObject::new();
        for PendingElicitation { key, question, .. } in &state.waiting {
            requests.set_some(key, &question_request(question));
        }
        (!requests.is_empty()).then_some(requests)
    }

    /// Records the client capabilities of a retry, and delivers its answers. Answers without an
    /// open question are ignored; unanswered questions stay open. Returns true if the call can
    /// continue: a question was answered, or none is open.
    ///
    /// # Errors
    /// The key of an answer that doesn't fit its question, and the reason. No answer is delivered
    /// then.
    pub fn deliver(
        &self,
        abilities: CallerCapabilities,
        responses: &RawObject,
    ) -> Result<bool, String> {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut answers = Vec::new();
        for waiting in &state.waiting {
            let Some(raw) = responses.get(&waiting.key) else {
                continue;
            };
            let answer = parse_valid_answer(&waiting.question, raw).map_err(|unfit| {
                format!(
                    "`inputResponses.{}` doesn't fit its question: {}",
                    waiting.key, unfit.message
                )
            })?;
            answers.push((waiting.key.clone(), answer));
        }
        state.abilities = abilities;
        if answers.is_empty() && !state.waiting.is_empty() {
            return Ok(false);
        }
        for (key, answer) in answers {
            if let Some(at) = state.waiting.iter().position(|waiting| waiting.key == key) {
                // The agent's call may have given up meanwhile.
                let _ = state.waiting.remove(at).answer.send(answer);
            }
        }
        Ok(true)
    }
}

impl ElicitationState {
    /// Returns a key that no open question has: `own` if it is free.
    fn assign_key(&mut self, own: Option<String>) -> String {
        self.count += 1;
        let wanted = own
            .filter(|key| !key.is_empty())
            .unwrap_or_else(|| format!("q{}", self.count));
        let taken = |key: &str| self.waiting.iter().any(|waiting| waiting.key == key);
        match taken(&wanted) {
            false => wanted,
            // The number of questions is limited, so one of the next keys is free.
            true => (2..)
                .map(|n| format!("{wanted}-{n}"))
                .find(|key| !taken(key))
                .unwrap_or(wanted),
        }
    }
}

/// Checks that the client has declared the capability to answer the question.
///
/// # Errors
/// `NoResponder`; `data.requiredCapabilities` names the missing capability.
fn check_capability(question: &Question, abilities: &CallerCapabilities) -> Result<(), Failure> {
    if abilities.can_answer(question) {
        return Ok(());
    }
    let required = match question {
        Question::Sample(SamplingRequest(body)) if body.has("tools") || body.has("toolChoice") => {
            json!({ "sampling": { "tools": {} } })
        }
        Question::Sample(_) => json!({ "sampling": {} }),
        Question::Elicit(elicitation) if elicitation.is_url() => {
            json!({ "elicitation": { "url": {} } })
        }
        Question::Elicit(_) => json!({ "elicitation": {} }),
        _ => json!({ "roots": {} }),
    };
    let failure = Failure::no_responder(
        "the client hasn't declared that it can answer this question: see `requiredCapabilities`",
    );
    Err(failure.with_data(json!({ "requiredCapabilities": required })))
}

/// Parses the answer to a question. The answer of a model must name role and model.
///
/// # Errors
/// `InvalidInput` if it doesn't fit the question.
fn parse_valid_answer(question: &Question, raw: &RawValue) -> Result<Answer, Failure> {
    let answer = parse_answer(question, raw)?;
    if let Answer::Sample(SamplingAnswer(body)) = &answer
        && let Some(lacks) = ["role", "model"]
            .iter()
            .find(|name| body.text(name).is_none())
    {
        return Err(Failure::invalid(format!(
            "the client's answer is invalid: `{lacks}` is required"
        )));
    }
    Ok(answer)
}

/// Client of a modern-era call, as the agent sees it. Progress and log messages go to the open
/// request, questions to `elicitations`.
pub(crate) struct ModernCaller {
    sink: Mutex<Option<RequestSink>>,
    /// Capabilities that the client declares.
    abilities: CallerCapabilities,
    /// Questions of the call; `None` if the client can't be asked during this request.
    elicitations: Option<Arc<PendingElicitations>>,
    /// Caller that replaces the client once the call has become a task.
    successor: OnceLock<Arc<dyn Caller>>,
}

/// Sink for the progress and log notifications of one open request.
pub(crate) struct RequestSink {
    message_sink: Arc<dyn MessageSink>,
    progress: Option<ProgressReporter>,
    level: Option<LogLevel>,
}

impl RequestSink {
    /// Creates the sink of a request; `None` if the client wants neither progress nor log messages.
    pub fn new(
        reports: Option<ProgressReporter>,
        level: Option<LogLevel>,
        sink: &Arc<dyn MessageSink>,
    ) -> Option<Self> {
        let wanted = reports.is_some() || level.is_some();
        wanted.then(|| Self {
            message_sink: sink.clone(),
            progress: reports,
            level,
        })
    }
}

impl ModernCaller {
    /// Creates the caller of a request by a client that declares `abilities`. Without `elicitations`
    /// a question fails: a list shows what the client can call, but asks nothing.
    pub fn new(
        request_sink: Option<RequestSink>,
        abilities: CallerCapabilities,
        elicitations: Option<Arc<PendingElicitations>>,
    ) -> Self {
        Self {
            sink: Mutex::new(request_sink),
            abilities,
            elicitations,
            successor: OnceLock::new(),
        }
    }

    /// Sets the open request of the call. `None` stops notifications, because none may follow a
    /// request's response.
    pub fn attach(&self, request_sink: Option<RequestSink>) {
        *self.sink.lock() = request_sink;
    }

    /// Replaces the client by `successor`. Only the first replacement takes effect.
    pub fn hand_over(&self, successor: Arc<dyn Caller>) {
        let _ = self.successor.set(successor);
    }
}

impl Caller for ModernCaller {
    fn progress(&self, progress: Progress) {
        if let Some(successor) = self.successor.get() {
            return successor.progress(progress);
        }
        let mut request_sink = self.sink.lock();
        let Some(RequestSink {
            message_sink: sink,
            progress: Some(reports),
            ..
        }) = &mut *request_sink
        else {
            return;
        };
        if let Some(report) = reports.next_notification(progress) {
            sink.send_lossy(report.into());
        }
    }

    fn log(&self, log: LogMessage) {
        if let Some(successor) = self.successor.get() {
            return successor.log(log);
        }
        let request_sink = self.sink.lock();
        let Some(RequestSink {
            message_sink: sink,
            level: Some(level),
            ..
        }) = &*request_sink
        else {
            return;
        };
        if log.level() >= *level {
            sink.send_lossy(
                encode_notification("notifications/message", Some(&log.0.to_raw())).into(),
            );
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        if let Some(successor) = self.successor.get() {
            return successor.ask(question);
        }
        match &self.elicitations {
            Some(elicitations) => Box::pin(elicitations.ask(question)),
            None => Box::pin(async {
                Err(Failure::no_responder(
                    "the client can't be asked during a request of this method",
                ))
            }),
        }
    }

    fn capabilities(&self) -> CallerCapabilities {
        if let Some(successor) = self.successor.get() {
            return successor.capabilities();
        }
        match &self.elicitations {
            Some(elicitations) => elicitations.abilities(),
            None => self.abilities.clone(),
        }
    }
}

/// Maximum number of times that a request is repeated after the user has visited the required URLs.
/// Then its outcome is sent to the client, also if it requires URLs again.
pub const URL_ELICITATION_ROUNDS_MAX: usize = 4;
/// Maximum number of URLs that one error may require. An error with more is sent to the client
/// unchanged.
pub const URL_ELICITATIONS_MAX: usize = 8;

/// Executes a request. If the agent requires the user to visit URLs, asks the user and repeats the
/// request.
pub(crate) async fn perform_with_url_elicitation(
    adapter: &AgentAdapter,
    handler: AgentHandler,
    request: &McpRequest,
    call: CallContext,
    client: Arc<dyn Caller>,
) -> RpcResult {
    for _ in 0..URL_ELICITATION_ROUNDS_MAX {
        // Each round is an exchange of its own.
        let round = CallContext {
            trace: call.trace.sibling(),
            ..call.clone()
        };
        match handler(adapter, request, REVISION, round).await {
            Err(refused) => match required_elicitations(&refused) {
                Some(visits)
                    if client.capabilities().has_elicitation_url()
                        && all_accepted(&*client, &visits).await => {}
                _ => return Err(refused),
            },
            done => return done,
        }
    }
    handler(adapter, request, REVISION, call).await
}

/// Returns the URLs that an error requires the user to visit, as elicitations. `None` for any other
/// error, or for too many URLs.
fn required_elicitations(refused: &RpcError) -> Option<Vec<Elicitation>> {
    let data = refused
        .data
        .as_ref()
        .filter(|_| refused.code == URL_ELICITATION_REQUIRED)?;
    let visits: Vec<RawObject> = RawObject::parse(data).ok()?.read("elicitations")?;
    let visits: Vec<_> = visits.into_iter().map(Elicitation).collect();
    let all_visits = visits.iter().all(|visit| visit.target_url().is_some());
    (all_visits && (1..=URL_ELICITATIONS_MAX).contains(&visits.len())).then_some(visits)
}

/// Asks the user to visit all URLs at once. Returns true if the user accepted every one.
async fn all_accepted(client: &dyn Caller, visits: &[Elicitation]) -> bool {
    let asked = futures::future::join_all(
        visits
            .iter()
            .cloned()
            .map(|visit| client.ask(Question::Elicit(visit))),
    )
    .await;
    asked.into_iter().all(|answer| match answer {
        Ok(Answer::Elicit(answer)) => answer.action() == ElicitationAction::Accept,
        _ => false,
    })
}
