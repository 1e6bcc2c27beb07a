//! A client that says what it is told to, models and servers that do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_message::surface::{CreateMessage, Describe};
use callboard_message::{
    Abilities, Answer, ElicitAnswer, Failure, FailureKind, Message, Principal, Progress, Question,
    RawObject, RootsAnswer, Sample, SampleAnswer,
};
use callboard_runtime::{
    Agent, AgentRef, Answering, CallMeta, Caller, ConcurrentHandler, Cx, Handlers, SyncHandler,
    System, testkit,
};
use futures::future::BoxFuture;

use crate::answering::{ANSWERED, AnswerOptions, Answerers};

/// A test in paused time; the system is shut down after it.
pub fn paused<T>(test: impl AsyncFnOnce(&System) -> T) -> T {
    testkit::paused(async |system| {
        let ended = test(system).await;
        system.shutdown(Duration::ZERO).await;
        ended
    })
}

/// What somebody does with a sample.
#[derive(Clone)]
pub enum Does {
    Answers,
    AnswersLate,
    Costs(u64, u64),
    Fails(FailureKind),
    Hangs,
    /// Asks a sample of its own, as the server of its name, and answers what it got.
    AsksBack(Answerers),
}

pub fn options(toml: &str) -> AnswerOptions {
    toml::from_str(toml).unwrap()
}

/// Who calls, with a model and a person.
pub struct Client {
    pub does: Does,
    pub form: ElicitAnswer,
    pub can: Abilities,
    pub asked: Mutex<Vec<Question>>,
}

impl Client {
    pub fn that(does: Does) -> Arc<Self> {
        let asked = Mutex::default();
        Arc::new(Self {
            does,
            form: ElicitAnswer::decline(),
            can: Abilities::all(),
            asked,
        })
    }

    pub fn with_form(does: Does, form: ElicitAnswer) -> Arc<Self> {
        Arc::new(Self {
            does,
            form,
            can: Abilities::all(),
            asked: Mutex::default(),
        })
    }

    pub fn that_can(can: serde_json::Value) -> Arc<Self> {
        let can = Abilities(serde_json::from_value(can).unwrap());
        Arc::new(Self {
            does: Does::Answers,
            form: ElicitAnswer::decline(),
            can,
            asked: Mutex::default(),
        })
    }

    pub fn call(self: &Arc<Self>) -> CallMeta {
        CallMeta::new(Arc::new(Principal::agent("client"))).with_caller(self.clone())
    }
}

impl Caller for Client {
    fn progress(&self, _: Progress) {}

    fn abilities(&self) -> Abilities {
        self.can.clone()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.asked.lock().unwrap().push(question.clone());
        Box::pin(async move {
            match question {
                Question::Sample(_) => does("client", self.does.clone(), None)
                    .await
                    .map(Answer::Sample),
                Question::Elicit(_) => Ok(Answer::Elicit(self.form.clone())),
                _ => Ok(Answer::Roots(RootsAnswer::of(Vec::new()))),
            }
        })
    }
}

async fn does(
    name: &str,
    does: Does,
    call: Option<Arc<CallMeta>>,
) -> Result<SampleAnswer, Failure> {
    let answer = SampleAnswer::text(name, format!("from {name}"), None);
    match does {
        Does::Answers => Ok(answer),
        Does::AnswersLate => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(answer)
        }
        Does::Costs(input, output) => {
            let usage = RawObject::of("inputTokens", input)
                .with("outputTokens", output)
                .with("microUsd", 10);
            Ok(SampleAnswer(
                answer
                    .0
                    .with("_meta", RawObject::of("callboard/usage", usage)),
            ))
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

/// A model, or a server that answers like one.
pub struct Speaker {
    name: &'static str,
    does: Does,
    about: RawObject,
    heard: Arc<Mutex<Vec<RawObject>>>,
    /// Set while it answers.
    busy: Arc<Mutex<bool>>,
}

/// What a test sees of a speaker.
#[derive(Clone)]
pub struct Seen {
    pub agent: AgentRef,
    pub heard: Arc<Mutex<Vec<RawObject>>>,
    pub busy: Arc<Mutex<bool>>,
}

/// A speaker of this name in the directory.
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
        on.concurrent::<CreateMessage>(16).sync::<Describe>();
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
        cx: Cx,
    ) -> impl Future<Output = Result<SampleAnswer, Failure>> + Send + 'static {
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

impl SyncHandler<Describe> for Speaker {
    fn handle(&mut self, _: Describe, _: &mut Cx) -> <Describe as Message>::Reply {
        Ok(callboard_message::surface::About(self.about.clone()))
    }
}

/// `source` asks a sample in `call`.
pub async fn ask(
    answerers: &Answerers,
    source: &str,
    call: &CallMeta,
) -> Result<SampleAnswer, Failure> {
    ask_for(answerers, source, call, Sample::prompt("how are you?", 100)).await
}

pub async fn ask_for(
    answerers: &Answerers,
    source: &str,
    call: &CallMeta,
    sample: Sample,
) -> Result<SampleAnswer, Failure> {
    let caller = answerers
        .caller(source, call)
        .ok_or_else(|| Failure::internal("no caller"))?;
    match caller.ask(Question::Sample(sample)).await? {
        Answer::Sample(answer) => Ok(answer),
        _ => panic!("no sample"),
    }
}

/// Who answered: `callboard/answered`.
pub fn by(answer: &SampleAnswer) -> String {
    answer
        .0
        .object("_meta")
        .unwrap()
        .object(ANSWERED)
        .unwrap()
        .text("by")
        .unwrap()
}
