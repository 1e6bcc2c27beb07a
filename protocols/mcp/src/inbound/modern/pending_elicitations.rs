use std::sync::{Arc, OnceLock};

use callboard_message::{
    Abilities, Answer, ElicitAction, Elicitation, Failure, Log, LogLevel, Progress, Question,
    RawObject, Sample,
};
use callboard_rpc::{RpcError, encode_notification};
use callboard_runtime::{CallMeta, Caller};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};

use super::REVISION;
use crate::inbound::agent_adapter::{AgentAdapter, Outcome};
use crate::inbound::client::{MessageSink, Reports, question_request};
use crate::inbound::request::Request;
use crate::wire::code::URL_ELICITATION_REQUIRED;

/// Most questions of one call that wait for answers at once.
pub const QUESTIONS_MAX: usize = 16;

/// The questions of one call that wait for the client, which answers them with its next request.
pub(crate) struct PendingElicitations {
    state: Mutex<State>,
    /// A question came in since the last time.
    pub asked: Notify,
}

struct State {
    /// What the client can answer, as its newest request says.
    abilities: Abilities,
    waiting: Vec<Waiting>,
    /// Answers that came before their questions.
    early: RawObject,
    /// Questions so far.
    count: usize,
}

struct Waiting {
    key: String,
    question: Question,
    answer: oneshot::Sender<Answer>,
}

impl PendingElicitations {
    pub fn new(abilities: Abilities, early: RawObject) -> Arc<Self> {
        let state = State {
            abilities,
            waiting: Vec::new(),
            early,
            count: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            asked: Notify::new(),
        })
    }

    pub fn abilities(&self) -> Abilities {
        self.state.lock().abilities.clone()
    }

    /// Puts a question up and waits for its answer.
    pub async fn ask(self: &Arc<Self>, mut question: Question) -> Result<Answer, Failure> {
        let key = question.take_key();
        let answered = {
            let mut state = self.state.lock();
            state.waiting.retain(|waiting| !waiting.answer.is_closed());
            check_ability(&question, &state.abilities)?;
            if state.waiting.len() >= QUESTIONS_MAX {
                return Err(Failure::overloaded("too many questions wait for answers"));
            }
            let key = state.key(key);
            if let Some(early) = state
                .early
                .remove(&key)
                .and_then(|raw| read_answer(&question, &raw))
            {
                return Ok(early);
            }
            let (answer, answered) = oneshot::channel();
            state.waiting.push(Waiting {
                key,
                question,
                answer,
            });
            answered
        };
        self.asked.notify_one();
        answered.await.map_err(|_| nobody())
    }

    /// The questions that wait, as `inputRequests`; `None` where none does.
    pub fn requests(&self) -> Option<RawObject> {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut requests = RawObject::new();
        for Waiting { key, question, .. } in &state.waiting {
            requests.set_some(key, &question_request(question));
        }
        (!requests.is_empty()).then_some(requests)
    }

    /// Takes what the client's next request brings: what it can answer now, and its answers. What nobody asked for is
    /// ignored; what isn't answered waits on. Returns whether the call goes on: at least one question was answered, or none is
    /// left.
    ///
    /// # Errors
    /// The key of an answer that doesn't fit its question: nothing was taken.
    pub fn deliver(&self, abilities: Abilities, responses: &RawObject) -> Result<bool, String> {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut answers = Vec::new();
        for waiting in &state.waiting {
            let Some(raw) = responses.get(&waiting.key) else {
                continue;
            };
            let answer = read_answer(&waiting.question, raw).ok_or_else(|| waiting.key.clone())?;
            answers.push((waiting.key.clone(), answer));
        }
        state.abilities = abilities;
        if answers.is_empty() && !state.waiting.is_empty() {
            return Ok(false);
        }
        for (key, answer) in answers {
            if let Some(at) = state.waiting.iter().position(|waiting| waiting.key == key) {
                // A callee that gave up meanwhile doesn't need it.
                let _ = state.waiting.remove(at).answer.send(answer);
            }
        }
        Ok(true)
    }
}

impl State {
    /// The key of a question: its own where that is free.
    fn key(&mut self, own: Option<String>) -> String {
        self.count += 1;
        let wanted = own
            .filter(|key| !key.is_empty())
            .unwrap_or_else(|| format!("q{}", self.count));
        let taken = |key: &str| self.waiting.iter().any(|waiting| waiting.key == key);
        match taken(&wanted) {
            false => wanted,
            // At most so many wait, so one of the next numbers is free.
            true => (2..)
                .map(|n| format!("{wanted}-{n}"))
                .find(|key| !taken(key))
                .unwrap_or(wanted),
        }
    }
}

/// Refuses a question that the client hasn't said it can answer, and says what it would have to declare.
fn check_ability(question: &Question, abilities: &Abilities) -> Result<(), Failure> {
    if abilities.can_answer(question) {
        return Ok(());
    }
    let required = match question {
        Question::Sample(Sample(body)) if body.has("tools") || body.has("toolChoice") => {
            json!({ "sampling": { "tools": {} } })
        }
        Question::Sample(_) => json!({ "sampling": {} }),
        Question::Elicit(elicitation) if elicitation.is_visit() => {
            json!({ "elicitation": { "url": {} } })
        }
        Question::Elicit(_) => json!({ "elicitation": {} }),
        _ => json!({ "roots": {} }),
    };
    let failure = Failure::nobody_to_ask("the client hasn't declared that it can answer this");
    Err(failure.with_data(json!({ "requiredCapabilities": required })))
}

/// An answer as its question wants it; `None` where it doesn't fit.
fn read_answer(question: &Question, raw: &RawValue) -> Option<Answer> {
    let body = RawObject::parse(raw).ok()?;
    let fits = match question {
        Question::Sample(_) => {
            let content = body.get("content")?.get();
            body.text("role").is_some()
                && body.text("model").is_some()
                && content.starts_with(['{', '['])
        }
        Question::Elicit(_) => {
            let known = matches!(
                body.text("action")?.as_str(),
                "accept" | "decline" | "cancel"
            );
            known
                && body
                    .get("content")
                    .is_none_or(|content| content.get().starts_with('{'))
        }
        _ => body
            .read::<Vec<RawObject>>("roots")?
            .iter()
            .all(|root| root.text("uri").is_some()),
    };
    fits.then(|| question.answered(body))
}

/// The client behind a call. Progress and log lines go to the request of it that is open, questions to the elicitations.
pub(crate) struct Client {
    line: Mutex<Option<RequestSink>>,
    /// `None` where the request can't be answered with questions.
    elicitations: Option<Arc<PendingElicitations>>,
    /// Who has taken the call over; then it alone hears and is asked.
    successor: OnceLock<Arc<dyn Caller>>,
}

/// Where what happens during one request goes.
pub(crate) struct RequestSink {
    link: Arc<dyn MessageSink>,
    reports: Option<Reports>,
    level: Option<LogLevel>,
}

impl RequestSink {
    /// The line of a request; `None` where its sender wants to hear nothing.
    pub fn of(
        reports: Option<Reports>,
        level: Option<LogLevel>,
        link: &Arc<dyn MessageSink>,
    ) -> Option<Self> {
        let wanted = reports.is_some() || level.is_some();
        wanted.then(|| Self {
            link: link.clone(),
            reports,
            level,
        })
    }
}

impl Client {
    pub fn new(line: Option<RequestSink>, elicitations: Option<Arc<PendingElicitations>>) -> Self {
        Self {
            line: Mutex::new(line),
            elicitations,
            successor: OnceLock::new(),
        }
    }

    /// The next request of the same call, or none: nothing may be sent for one that was answered.
    pub fn attach(&self, line: Option<RequestSink>) {
        *self.line.lock() = line;
    }

    /// Puts somebody in the client's place, once.
    pub fn hand_over(&self, successor: Arc<dyn Caller>) {
        let _ = self.successor.set(successor);
    }
}

impl Caller for Client {
    fn progress(&self, progress: Progress) {
        if let Some(successor) = self.successor.get() {
            return successor.progress(progress);
        }
        let mut line = self.line.lock();
        let Some(RequestSink {
            link,
            reports: Some(reports),
            ..
        }) = &mut *line
        else {
            return;
        };
        if let Some(report) = reports.next(progress) {
            link.offer(report.into());
        }
    }

    fn log(&self, log: Log) {
        if let Some(successor) = self.successor.get() {
            return successor.log(log);
        }
        let line = self.line.lock();
        let Some(RequestSink {
            link,
            level: Some(level),
            ..
        }) = &*line
        else {
            return;
        };
        if log.level() >= *level {
            link.offer(encode_notification("notifications/message", Some(&log.0.to_raw())).into());
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        if let Some(successor) = self.successor.get() {
            return successor.ask(question);
        }
        match &self.elicitations {
            Some(elicitations) => Box::pin(elicitations.ask(question)),
            None => Box::pin(async { Err(nobody()) }),
        }
    }

    fn abilities(&self) -> Abilities {
        if let Some(successor) = self.successor.get() {
            return successor.abilities();
        }
        self.elicitations
            .as_ref()
            .map(|elicitations| elicitations.abilities())
            .unwrap_or_default()
    }
}

fn nobody() -> Failure {
    Failure::nobody_to_ask("nobody can be asked during this request")
}

/// Most times that one request is done again after its addresses were visited.
pub const VISITS_MAX: usize = 4;
/// Most addresses of one refusal that are asked; one with more goes to the client as an error.
pub const VISITS_AT_ONCE_MAX: usize = 8;

/// Does a request, and what must be visited first.
pub(crate) async fn perform_with_visits(
    adapter: &AgentAdapter,
    request: &Request,
    call: CallMeta,
    client: Arc<dyn Caller>,
) -> Outcome {
    for _ in 0..VISITS_MAX {
        match adapter.perform(request, REVISION, call.clone()).await {
            Err(refused) => match wanted(&refused) {
                Some(visits)
                    if client.abilities().elicitation_url()
                        && all_made(&*client, &visits).await => {}
                _ => return Err(refused),
            },
            done => return done,
        }
    }
    adapter.perform(request, REVISION, call).await
}

/// What a refusal wants visited; `None` where it is no such refusal, or wants too much.
fn wanted(refused: &RpcError) -> Option<Vec<Elicitation>> {
    let data = refused
        .data
        .as_ref()
        .filter(|_| refused.code == URL_ELICITATION_REQUIRED)?;
    let visits: Vec<RawObject> = RawObject::parse(data).ok()?.read("elicitations")?;
    let visits: Vec<_> = visits.into_iter().map(Elicitation).collect();
    let all_visits = visits.iter().all(|visit| visit.address().is_some());
    (all_visits && (1..=VISITS_AT_ONCE_MAX).contains(&visits.len())).then_some(visits)
}

/// Whether the person agreed to all of them. They are asked at once.
async fn all_made(client: &dyn Caller, visits: &[Elicitation]) -> bool {
    let asked = futures::future::join_all(
        visits
            .iter()
            .cloned()
            .map(|visit| client.ask(Question::Elicit(visit))),
    )
    .await;
    asked.into_iter().all(|answer| match answer {
        Ok(Answer::Elicit(answer)) => answer.action() == ElicitAction::Accept,
        _ => false,
    })
}
