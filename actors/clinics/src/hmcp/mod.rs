//! The agents of HMCP: one writes clinical data into a record system, one knows which identifier a patient has.
//!
//! Both answer like a model (`sampling/createMessage` from client to server, in the words of HMCP 0.1.0), by a tool of
//! their own, and in this process. Every message passes the [guard](callboard_guardrail::Guard) before the agent sees it and
//! every reply before it goes: the guard is part of the agent, so that none can be served without it.

mod emr;
mod patients;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use callboard_guardrail::{Guard, Guardrail, Origin, rules_of};
use callboard_message::surface::{CreateMessage, MISSING};
use callboard_message::{
    DataClass, ElicitAction, Elicitation, Failure, FailureKind, Message, RawObject, SampleAnswer,
};
use callboard_runtime::{Agent, AgentRef, AuditEntry, ConcurrentHandler, Cx, Handlers, Profile};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use patients::last_text;

pub use emr::{
    EMR_FILE_BYTES_MAX_DEFAULT, EMR_RECORDS_MAX_DEFAULT, Emr, EmrRecord, EmrStore, EmrWriteback,
    WriteClinicalData, Written,
};
pub use patients::{
    CLINICAL_DATA_BYTES_MAX, FindPatient, PATIENT_ID_DIGITS_MAX, PATIENT_NAME_BYTES_MAX,
    PATIENTS_MAX, PatientData, PatientFound, Patients, is_patient_id,
};

/// Messages of each kind that one HMCP agent answers at once; more wait in its mailbox.
pub const HMCP_CALLS_MAX: u32 = 64;

/// What an HMCP agent does with what has passed the guard.
pub trait Duty: Sized + Send + Sync + 'static {
    /// Registers what it does beside conversing, each behind the guard.
    fn tools(on: &mut Handlers<Guarded<Self>>);

    /// What it calls itself.
    fn model(&self) -> &str;

    /// Answers what was said last.
    fn converse(&self, text: String, cx: &Cx)
    -> impl Future<Output = Result<Said, Failure>> + Send;

    /// What people see of it.
    fn observe(&self) -> Value;
}

/// What is said in a conversation.
pub struct Said {
    text: String,
    /// What it lacks to do what it was asked, by name.
    missing: Option<&'static str>,
}

/// The text `name` as it was `given`, else as whoever called tells it when asked, of this shape; `None` where nobody can be
/// asked.
///
/// # Errors
/// `Rejected`, as `refused` says, where they don't tell.
async fn given_or_asked(
    given: Option<String>,
    cx: &Cx,
    (question, name, shape): (&str, &str, Value),
    refused: &str,
) -> Result<Option<String>, Failure> {
    if given.is_some() {
        return Ok(given);
    }
    let schema = json!({ "type": "object", "properties": { name: shape }, "required": [name] });
    match cx
        .elicit(Elicitation::form(question, schema).key(name))
        .await
    {
        Ok(answer) if answer.action() == ElicitAction::Accept => Ok(Some(
            answer.content().unwrap_or_default()[name]
                .as_str()
                .unwrap_or_default()
                .trim()
                .to_owned(),
        )),
        Ok(_) => Err(Failure::rejected(refused)),
        Err(failure) if failure.kind == FailureKind::NobodyToAsk => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// An HMCP agent: `D` behind the guard. Every message passes it before `D` sees it, every reply before it goes; what the
/// guard blocks, is late with or crashes on doesn't.
///
/// It starts a guardrail of its own, unless it was [given](Self::guarded_by) another.
pub struct Guarded<D: Duty> {
    duty: Arc<D>,
    given: Option<Guard>,
    /// Of this incarnation.
    own: Option<Own>,
}

/// A guardrail that ends with the agent that started it.
struct Own(AgentRef);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<D: Duty> Guarded<D> {
    fn of(duty: D) -> Self {
        Self {
            duty: Arc::new(duty),
            given: None,
            own: None,
        }
    }

    /// The same agent, asking this guard in place of one of its own.
    pub fn guarded_by(mut self, guard: Guard) -> Self {
        self.given = Some(guard);
        self
    }

    /// What it does.
    pub fn duty(&self) -> &D {
        &self.duty
    }

    fn guard(&self) -> Option<Guard> {
        self.given
            .clone()
            .or_else(|| self.own.as_ref().map(|own| Guard::new(own.0.clone())))
    }
}

/// A like agent, for the next incarnation: same duty, same guard if it was given one.
impl<D: Duty> Clone for Guarded<D> {
    fn clone(&self) -> Self {
        Self {
            duty: self.duty.clone(),
            given: self.given.clone(),
            own: None,
        }
    }
}

impl<D: Duty> Agent for Guarded<D> {
    fn handlers(on: &mut Handlers<Self>) {
        D::tools(on.concurrent::<CreateMessage>(HMCP_CALLS_MAX));
    }

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }

    fn started(&mut self, cx: &mut Cx) {
        if self.given.is_none() {
            let label = format!("{}.guardrail", cx.me());
            self.own = Some(Own(cx
                .system()
                .prepare_with(Guardrail::default)
                .label(label)
                .spawn()));
        }
    }

    fn observe(&self) -> Value {
        self.duty.observe()
    }
}

impl<D: Duty> ConcurrentHandler<CreateMessage> for Guarded<D> {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Cx,
    ) -> impl Future<Output = Result<SampleAnswer, Failure>> + Send + 'static {
        let asked = message.0.to_raw();
        self.between(CreateMessage::NAME, asked, cx, |duty, cx| async move {
            let wants_missing = message
                .0
                .object("_meta")
                .and_then(|meta| meta.read(MISSING))
                .unwrap_or(false);
            let said = duty.converse(last_text(&message)?, &cx).await?;
            let mut answer = SampleAnswer::text(duty.model(), said.text, Some("endTurn"));
            if let Some(missing) = said.missing.filter(|_| wants_missing) {
                answer.0.set("_meta", RawObject::of(MISSING, [missing]));
            }
            Ok(answer)
        })
    }
}

impl<D: Duty> Guarded<D> {
    /// Does `work` between two looks of the guard, and puts it on record. `work` is what only the agent's own module can
    /// give it, so that there is no other way in.
    fn between<R, W, F>(
        &self,
        message: &'static str,
        asked: Box<RawValue>,
        cx: Cx,
        work: W,
    ) -> impl Future<Output = Result<R, Failure>> + Send + 'static + use<D, R, W, F>
    where
        R: Serialize + Send + 'static,
        W: FnOnce(Arc<D>, Cx) -> F + Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let (duty, guard) = (self.duty.clone(), self.guard());
        async move {
            let outcome = async {
                let guard = guard.ok_or_else(|| Failure::internal("the agent hasn't started"))?;
                guard.pass(&asked, Origin::User).await?;
                let reply = work(duty, cx.clone()).await?;
                let told = to_raw_value(&reply)
                    .map_err(|_| Failure::internal("the reply can't be written"))?;
                guard.pass(&told, Origin::ToolResult).await?;
                Ok((reply, told))
            }
            .await;
            record(
                &cx,
                message,
                &asked,
                outcome.as_ref().map(|(_, told)| &**told),
            )
            .await?;
            outcome.map(|(reply, _)| reply)
        }
    }
}

/// What the topology says about an EMR write-back agent (`kind = "emr_writeback"`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmrConfig {
    /// The agent's id.
    pub id: String,
    /// What it calls itself in the answers of `sampling/createMessage`.
    #[serde(default = "emr_model")]
    pub model: String,
    /// Where what is written goes, a JSON object a line; created with its folder. As the process sees it: whoever reads
    /// the topology resolves it against the state directory. Without it, memory.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

/// What the topology says about a patient-data agent (`kind = "patient_data"`).
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
// Names of patients are never printed.
#[debug("PatientDataConfig({}, {} patients)", id, patients.len())]
#[serde(deny_unknown_fields)]
pub struct PatientDataConfig {
    /// The agent's id.
    pub id: String,
    /// What it calls itself in the answers of `sampling/createMessage`.
    #[serde(default = "patient_model")]
    pub model: String,
    /// Whom it knows; at most [`PATIENTS_MAX`].
    pub patients: Vec<PatientEntry>,
}

/// A patient, as far as the patient-data agent tells.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[debug("PatientEntry(..)")]
#[serde(deny_unknown_fields)]
pub struct PatientEntry {
    /// The full name.
    pub name: String,
    /// The identifier, for example `PT12345`.
    pub id: String,
}

fn emr_model() -> String {
    "emr-writeback-agent".to_owned()
}

fn patient_model() -> String {
    "patient-data-agent".to_owned()
}

/// Why an HMCP agent can't be made; each names what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HmcpError {
    /// Check the path and its permissions.
    #[error("failed to open {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Correct the identifier of the patient in that place of the list, from 1.
    #[error("patient {place}: the identifier must be PT and 1 to {PATIENT_ID_DIGITS_MAX} digits")]
    PatientId {
        /// Its place.
        place: usize,
    },
    /// Correct the name of the patient in that place of the list, from 1.
    #[error(
        "patient {place}: the name must have a letter, and at most {PATIENT_NAME_BYTES_MAX} bytes"
    )]
    PatientName {
        /// Its place.
        place: usize,
    },
    /// Two have the same name: tell them apart.
    #[error("patient {place}: another patient has the same name")]
    SameName {
        /// Its place, from 1.
        place: usize,
    },
    /// List fewer.
    #[error("more than {PATIENTS_MAX} patients")]
    TooManyPatients,
}

/// Puts a message and what came of it on record.
///
/// # Errors
/// `Unavailable` where the answer says who a patient is and that can't be put on record: then it must not go.
async fn record(
    cx: &Cx,
    message: &'static str,
    asked: &RawValue,
    outcome: Result<&RawValue, &Failure>,
) -> Result<(), Failure> {
    let log = cx.system().audit();
    let (ended, rules) = match outcome {
        Ok(_) => ("answered", Vec::new()),
        Err(failure) if failure.kind == FailureKind::Blocked => {
            ("blocked", rules_of(failure).unwrap_or_default())
        }
        Err(_) => ("failed", Vec::new()),
    };
    let entry = AuditEntry::new("message")
        .with_agent(cx.me().to_string())
        .with_message(message)
        .with_outcome(ended);
    let entry = entry
        .with_principal(cx.principal())
        .with_class(DataClass::Clinical);
    let entry = entry.with_body(log.mark(DataClass::Clinical, asked.get().as_bytes()));
    let entry = entry
        .with("bytes_out", outcome.map_or(0, |reply| reply.get().len()))
        .with("rules", rules);
    let entry = match cx.call() {
        Some(call) => entry.with_call(call.id).with("hops", call.hops),
        None => entry,
    };
    match outcome {
        Ok(_) if message == FindPatient::NAME => {
            let unkept = |error| {
                Failure::unavailable(format!("it can't be put on record who was shown: {error}"))
            };
            return log.record(entry).await.map(drop).map_err(unkept);
        }
        Ok(_) => log.placed(entry).await,
        Err(failure) => {
            log.placed(entry.with("failure", failure.kind.to_string()))
                .await
        }
    }
    Ok(())
}
