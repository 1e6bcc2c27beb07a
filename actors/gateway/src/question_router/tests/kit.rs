//! Test doubles: a scripted client, models and servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_message::capabilities::{CreateMessage, DescribeAgent};
use callboard_message::{
    Answer, CallerCapabilities, ElicitationAnswer, Failure, FailureKind, Message, Principal,
    Progress, Question, RawObject, RootsAnswer, SamplingAnswer, SamplingRequest,
};
use callboard_runtime::{
    Agent, AgentRef, CallContext, Caller, ConcurrentHandler, Context, Handlers, QuestionRouter,
    SyncHandler, System, testkit,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::question_router::{ANSWERED_META_KEY, QuestionRouterOptions, StrategyQuestionRouter};

/// Runs a test with paused time, then shuts the system down.
pub fn paused<T>(test: impl AsyncFnOnce(&System) -> T) -> T {
    testkit::run_with_paused_time(async |system| {
        let ended = test(system).await;
        system.shutdown(Duration::ZERO).await;
        ended
    })
}

/// Scripted reaction to a sample.
#[derive(Clone)]
pub enum Does {
    Answers,
    AnswersLate,
    Costs(u64, u64),
    Fails(FailureKind),
    Hangs,
    /// Asks a sample itself, as the server of its name, and returns that answer.
    AsksBack(StrategyQuestionRouter),
}

pub fn options(toml: &str) -> QuestionRouterOptions {
    toml::from_str(toml).unwrap()
}

/// Client with a model and a person.
pub struct Client {
    pub does: Does,
    pub form: ElicitationAnswer,
    pub can: CallerCapabilities,
    pub asked: Mutex<Vec<Question>>,
}

impl Client {
    pub fn that(does: Does) -> Arc<Self> {
        let asked = Mutex::default();
        Arc::new(Self {
            does,
            form: ElicitationAnswer::decline(),
            can: CallerCapabilities::all(),
            asked,
        })
    }

    pub fn with_form(does: Does, form: ElicitationAnswer) -> Arc<Self> {
        Arc::new(Self {
            does,
            form,
            can: CallerCapabilities::all(),
            asked: Mutex::default(),
        })
    }

    pub fn that_can(can: serde_json::Value) -> Arc<Self> {
        let can = CallerCapabilities(serde_json::from_value(can).unwrap());
        Arc::new(Self {
            does: Does::Answers,
            form: ElicitationAnswer::decline(),
            can,
            asked: Mutex::default(),
        })
    }

    pub fn call(self: &Arc<Self>) -> CallContext {
        CallContext::new(Arc::new(Principal::agent("client"))).with_caller(self.clone())
    }
}

impl Caller for Client {
    fn progress(&self, _: Progress) {}

    fn capabilities(&self) -> CallerCapabilities {
        self.can.clone()
    }

    fn forward(
        &self,
        _: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        Box::pin(async { Ok(params.unwrap()) })
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.asked.lock().unwrap().push(question.clone());
        Box::pin(async move {
            match question {
                Question::Sample(_) => does("client", self.does.clone(), None)
                    .await
                    .map(Answer::Sample),
                Question::Elicit(_) => Ok(Answer::Elicit(self.form.clone())),
                _ => Ok(Answer::Roots(RootsAnswer::from_roots(Vec::new()))),
            }
        })
    }
}

async fn does(
    name: &str,
    does: Does,
    call: Option<Arc<CallContext>>,
) -> Result<SamplingAnswer, Failure> {
    let answer = SamplingAnswer::text(name, format!("from {name}"), None);
    match does {
        Does::Answers => Ok(answer),
        Does::AnswersLate => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(answer)
        }
        Does::Costs(input, output) => {
            let usage = RawObject::single("inputTokens", input)
                .with("outputTokens", output)
                .with("microUsd", 10);
            Ok(SamplingAnswer(answer.0.with(
                "_meta",
                RawObject::single("callboard/usage", usage),
            )))
        }
        Does::Fails(kind) => Err(Failure::new(kind, format!("{name} fails"))),
        Does::Hangs => std::future::pending().await,
        Does::AsksBack(answerers) => {
            let call = call.unwrap();
            let caller = answerers.caller(name, &call).unwrap();
            match caller.ask(Question::sample("and you?", 7)).await? {
                Answer::Sample(answer) => Ok(answer),
                _ => panic!("no sample"),
            }
        }
    }
}

/// Model, or server that answers samples.
pub struct Speaker {
    name: &'static str,
    does: Does,
    about: RawObject,
    heard: Arc<Mutex<Vec<RawObject>>>,
    /// Set while it answers.
    busy: Arc<Mutex<bool>>,
}

/// Observations of a speaker by a test.
#[derive(Clone)]
pub struct Seen {
    pub agent: AgentRef,
    pub heard: Arc<Mutex<Vec<RawObject>>>,
    pub busy: Arc<Mutex<bool>>,
}

/// Adds a speaker of this name to the directory.
pub fn speaker(system: &System, name: &'static str, does: Does) -> Seen {
    speaker_about(system, name, does, serde_json::json!({}))
}

pub fn speaker_about(
    system: &System,
    name: &'static str,
    does: Does,
    about: serde_json::Value,
) -> Seen {
    let (heard, busy): (Arc<Mutex<Vec<_>>>, Arc<Mutex<bool>>) = Default::default();
    let about = serde_json::from_value(about).unwrap();
    let agent = system.spawn(Speaker {
        name,
        does,
        about,
        heard: heard.clone(),
        busy: busy.clone(),
    });
    system.directory().register(name, &agent).unwrap();
    Seen { agent, heard, busy }
}

impl Agent for Speaker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(16).sync::<DescribeAgent>();
    }
}

struct Busy(Arc<Mutex<bool>>);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = false;
    }
}

impl ConcurrentHandler<CreateMessage> for Speaker {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Context,
    ) -> impl Future<Output = Result<SamplingAnswer, Failure>> + Send + 'static {
        let budget = cx.call().unwrap().budget;
        self.heard
            .lock()
            .unwrap()
            .push(message.0.with("budget", budget));
        let (name, what, busy) = (self.name, self.does.clone(), Busy(self.busy.clone()));
        *self.busy.lock().unwrap() = true;
        async move {
            let _busy = busy;
            tokio::select! {
                answer = does(name, what, cx.call().cloned()) => answer,
                () = cx.cancelled() => Err(Failure::cancelled("given up")),
            }
        }
    }
}

impl SyncHandler<DescribeAgent> for Speaker {
    fn handle(&mut self, _: DescribeAgent, _: &mut Context) -> <DescribeAgent as Message>::Reply {
        Ok(callboard_message::capabilities::DescribeAgentResult(
            self.about.clone(),
        ))
    }
}

/// Asks a sample as the server `source` in `call`.
pub async fn ask(
    answerers: &StrategyQuestionRouter,
    source: &str,
    call: &CallContext,
) -> Result<SamplingAnswer, Failure> {
    ask_for(
        answerers,
        source,
        call,
        SamplingRequest::prompt("how are you?", 100),
    )
    .await
}

pub async fn ask_for(
    answerers: &StrategyQuestionRouter,
    source: &str,
    call: &CallContext,
    sample: SamplingRequest,
) -> Result<SamplingAnswer, Failure> {
    let caller = answerers
        .caller(source, call)
        .ok_or_else(|| Failure::internal("no caller"))?;
    match caller.ask(Question::Sample(sample)).await? {
        Answer::Sample(answer) => Ok(answer),
        _ => panic!("no sample"),
    }
}

/// Returns the answerer in `callboard/answered`.
pub fn by(answer: &SamplingAnswer) -> String {
    answer
        .0
        .object("_meta")
        .unwrap()
        .object(ANSWERED_META_KEY)
        .unwrap()
        .text("by")
        .unwrap()
}
