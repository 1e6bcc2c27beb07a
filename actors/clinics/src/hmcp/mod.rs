//! HMCP agents: one writes clinical data to a medical record system, one returns the identifier of
//! a patient.
//!
//! Both can be called like a model (`sampling/createMessage` from client to server, as in HMCP
//! 0.1.0), by a tool of their own, and within the process. Every message passes the
//! [guardrail](callboard_guardrail::GuardrailPolicy) before the agent receives it, and every reply
//! before it is returned; it screens neither failures nor the caller's answers to questions. The
//! guardrail is part of the agent, so no agent can be served without it.
//!
//! Before that, the caller's credential must open the access that the request needs, and name the
//! patient of the request if it is for one patient only ([`access`](crate::access)).

mod emr;
mod patients;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_access;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use callboard_guardrail::{Guardrail, GuardrailPolicy, TextOrigin, blocking_rules};
use callboard_message::capabilities::{CreateMessage, MISSING_META_KEY};
use callboard_message::{
    DataClass, Elicitation, ElicitationAction, Failure, FailureKind, Message, RawObject,
    SamplingAnswer,
};
use callboard_runtime::{
    Agent, AgentProfile, AgentRef, AuditEntry, ConcurrentHandler, Context, Handlers,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::access::{AccessError, HmcpAccess, NamedPatients, check_hmcp};
use patients::last_text;

pub use emr::{
    EMR_FILE_BYTES_MAX_DEFAULT, EMR_RECORDS_MAX_DEFAULT, EmrHandler, EmrRecord, EmrStore,
    EmrWriteResult, EmrWritebackAgent, WriteClinicalData,
};
pub use patients::{
    CLINICAL_DATA_BYTES_MAX, FindPatient, FindPatientResult, PATIENT_ID_DIGITS_MAX,
    PATIENT_NAME_BYTES_MAX, PATIENTS_MAX, PatientDataAgent, PatientDirectory, is_patient_id,
};

/// Maximum number of messages of each type that one HMCP agent handles at once. Further ones wait
/// in its mailbox.
pub const HMCP_CALLS_MAX: u32 = 64;

/// Behaviour of an HMCP agent behind its guardrail. Its methods are called only with messages that
/// the guardrail passed.
pub trait HmcpHandler: Sized + Send + Sync + 'static {
    /// Access that every request to the agent needs.
    const ACCESS: HmcpAccess;

    /// Registers the agent's tools, each behind the guardrail.
    fn register_tools(on: &mut Handlers<GuardedAgent<Self>>);

    /// Returns the model name that replies of `sampling/createMessage` state.
    fn model(&self) -> &str;

    /// Returns the patients that `text`, the last turn of a conversation, names. It must include any
    /// whose data [`Self::converse`] would touch.
    fn patients_of_turn(&self, text: &str) -> NamedPatients;

    /// Returns the reply to `text`, the last turn of a conversation.
    ///
    /// # Errors
    /// [`Failure`], which the caller receives in place of a reply.
    fn converse(
        &self,
        text: String,
        cx: &Context,
    ) -> impl Future<Output = Result<HmcpReply, Failure>> + Send;

    /// Returns the handler's state as JSON for the admin page.
    fn observe(&self) -> Value;
}

/// Reply of an HMCP agent to a turn of a conversation.
pub struct HmcpReply {
    text: String,
    /// Name of a parameter that the request lacked; `None` if it lacked none. It is told only to
    /// callers that set [`MISSING_META_KEY`] in the request.
    missing: Option<&'static str>,
}

/// Returns the text parameter `name`: as `given`, or else as the caller's answer to `question`,
/// trimmed, and empty if it isn't a text. `shape` is the JSON schema of the parameter. Returns
/// `None` if the caller can't be asked.
///
/// # Errors
/// `Rejected` with the message `refused`, if the caller declines or dismisses the question;
/// otherwise the failure of the question.
async fn given_or_questioned(
    given: Option<String>,
    cx: &Context,
    (question, name, shape): (&str, &str, Value),
    refused: &str,
) -> Result<Option<String>, Failure> {
    if given.is_some() {
        return Ok(given);
    }
    let schema = json!({ "type": "object", "properties": { name: shape }, "required": [name] });
    match cx
        .elicit(Elicitation::form(question, schema).with_key(name))
        .await
    {
        Ok(answer) if answer.action() == ElicitationAction::Accept => Ok(Some(
            answer.content().unwrap_or_default()[name]
                .as_str()
                .unwrap_or_default()
                .trim()
                .to_owned(),
        )),
        Ok(_) => Err(Failure::rejected(refused)),
        Err(failure) if failure.kind == FailureKind::NoResponder => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// HMCP agent: the handler `D` behind a guardrail. The guardrail screens every message before `D`
/// receives it, and every reply before it is returned, but neither failures nor the caller's
/// answers to questions. If the guardrail blocks a text, is late or crashes, the text isn't passed
/// on.
///
/// Each agent starts a guardrail of its own, unless [`Self::with_guard`] sets a shared one.
pub struct GuardedAgent<D: HmcpHandler> {
    handler: Arc<D>,
    /// Tenant whose principals may use the agent; `None` for all.
    tenant: Option<Arc<str>>,
    shared_guard: Option<GuardrailPolicy>,
    /// Guardrail that the agent started at its latest start; `None` before it, or with a shared
    /// one.
    own_guard: Option<OwnGuardrail>,
}

/// Guardrail started by an agent, and stopped when that agent stops.
struct OwnGuardrail(AgentRef);

impl Drop for OwnGuardrail {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<D: HmcpHandler> GuardedAgent<D> {
    fn from_handler(duty: D, tenant: Option<&str>) -> Self {
        Self {
            handler: Arc::new(duty),
            tenant: tenant.map(Arc::from),
            shared_guard: None,
            own_guard: None,
        }
    }

    /// Sets a shared guardrail. Without one, the agent starts its own.
    pub fn with_guard(mut self, guard: GuardrailPolicy) -> Self {
        self.shared_guard = Some(guard);
        self
    }

    /// Returns the handler behind the guardrail.
    pub fn handler(&self) -> &D {
        &self.handler
    }

    fn guard(&self) -> Option<GuardrailPolicy> {
        self.shared_guard.clone().or_else(|| {
            self.own_guard
                .as_ref()
                .map(|own| GuardrailPolicy::new(own.0.clone()))
        })
    }
}

/// Clones the agent for a restart: with the same handler, and the same shared guardrail if one is
/// set.
impl<D: HmcpHandler> Clone for GuardedAgent<D> {
    fn clone(&self) -> Self {
        Self {
            handler: self.handler.clone(),
            tenant: self.tenant.clone(),
            shared_guard: self.shared_guard.clone(),
            own_guard: None,
        }
    }
}

impl<D: HmcpHandler> Agent for GuardedAgent<D> {
    fn handlers(on: &mut Handlers<Self>) {
        D::register_tools(on.concurrent::<CreateMessage>(HMCP_CALLS_MAX));
    }

    /// Returns the agent's profile: requests may be cancelled at any time, because the agent has no
    /// state that could be half changed.
    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe()
    }

    fn started(&mut self, cx: &mut Context) {
        if self.shared_guard.is_none() {
            let label = format!("{}.guardrail", cx.me());
            self.own_guard = Some(OwnGuardrail(
                cx.system()
                    .prepare_with(Guardrail::default)
                    .label(label)
                    .spawn(),
            ));
        }
    }

    fn observe(&self) -> Value {
        self.handler.observe()
    }
}

impl<D: HmcpHandler> ConcurrentHandler<CreateMessage> for GuardedAgent<D> {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Context,
    ) -> impl Future<Output = Result<SamplingAnswer, Failure>> + Send + 'static {
        let asked = message.0.to_raw();
        let message = Arc::new(message);
        let named = {
            let message = message.clone();
            move |duty: &D| match last_text(&message) {
                Ok(text) => duty.patients_of_turn(&text),
                // The request fails whatever it names.
                Err(_) => NamedPatients::None,
            }
        };
        self.run_guarded(
            CreateMessage::NAME,
            asked,
            named,
            cx,
            |duty, cx| async move {
                let wants_missing = message
                    .0
                    .object("_meta")
                    .and_then(|meta| meta.read(MISSING_META_KEY))
                    .unwrap_or(false);
                let said = duty.converse(last_text(&message)?, &cx).await?;
                let mut answer = SamplingAnswer::text(duty.model(), said.text, Some("endTurn"));
                if let Some(missing) = said.missing.filter(|_| wants_missing) {
                    answer
                        .0
                        .set("_meta", RawObject::single(MISSING_META_KEY, [missing]));
                }
                Ok(answer)
            },
        )
    }
}

impl<D: HmcpHandler> GuardedAgent<D> {
    /// Checks the caller's access, screens the request, runs `work` on the handler, screens the reply,
    /// and writes the audit entry. Handlers are reached only through this function. `message` is the
    /// name of the request, `asked` its content, and `named` returns the patients that it names. An
    /// error after `work` doesn't undo what `work` did.
    ///
    /// # Errors
    /// The failure of `work`; `Denied` if the caller's credential doesn't open the access; `Blocked`
    /// for a request or reply that the guardrail rejects or can't screen; `Unavailable`, if the audit
    /// entry of a reply that may name a patient can't be written; `Internal`, if the agent hasn't
    /// started or the reply can't be encoded.
    fn run_guarded<R, N, W, F>(
        &self,
        message: &'static str,
        asked: Box<RawValue>,
        named: N,
        cx: Context,
        work: W,
    ) -> impl Future<Output = Result<R, Failure>> + Send + 'static + use<D, R, N, W, F>
    where
        N: FnOnce(&D) -> NamedPatients + Send + 'static,
        R: Serialize + Send + 'static,
        W: FnOnce(Arc<D>, Context) -> F + Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let (duty, guard, tenant) = (self.handler.clone(), self.guard(), self.tenant.clone());
        async move {
            let admitted = check_hmcp(cx.principal(), tenant.as_deref(), D::ACCESS, || {
                named(&duty)
            });
            let outcome = async {
                admitted?;
                let guard = guard.ok_or_else(|| Failure::internal("the agent hasn't started"))?;
                guard
                    .check(&asked, TextOrigin::User, cx.principal())
                    .await?;
                let reply = work(duty, cx.clone()).await?;
                let told = to_raw_value(&reply)
                    .map_err(|_| Failure::internal("the reply can't be encoded as JSON"))?;
                guard
                    .check(&told, TextOrigin::ToolResult, cx.principal())
                    .await?;
                Ok((reply, told))
            }
            .await;
            write_audit(
                &cx,
                message,
                &asked,
                outcome.as_ref().map(|(_, told)| &**told),
                admitted.err(),
            )
            .await?;
            outcome.map(|(reply, _)| reply)
        }
    }
}

/// Configuration of an EMR write-back agent in the topology (`kind = "emr_writeback"`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmrConfig {
    /// Agent id.
    pub id: String,
    /// Model name in the replies of `sampling/createMessage`. Default: `emr-writeback-agent`.
    #[serde(default = "emr_model")]
    pub model: String,
    /// Path of the file for written data, with one JSON object a line. The file and its folder are
    /// created if missing. A relative path must already be resolved against the state directory.
    /// `None`: data is kept in memory.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// Tenant whose principals may use the agent; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Configuration of a patient-data agent in the topology (`kind = "patient_data"`).
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// Names of patients are never printed.
#[debug("PatientDataConfig({}, {} patients)", id, patients.len())]
#[serde(deny_unknown_fields)]
pub struct PatientDataConfig {
    /// Agent id.
    pub id: String,
    /// Model name in the replies of `sampling/createMessage`. Default: `patient-data-agent`.
    #[serde(default = "patient_model")]
    pub model: String,
    /// Patients that the agent can find; at most [`PATIENTS_MAX`].
    pub patients: Vec<PatientEntry>,
    /// Tenant whose principals may use the agent; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Patient in the configuration of a patient-data agent: name and identifier.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("PatientEntry(..)")]
#[serde(deny_unknown_fields)]
pub struct PatientEntry {
    /// Full name.
    pub name: String,
    /// Identifier of the patient, for example `PT12345`.
    pub id: String,
}

fn emr_model() -> String {
    "emr-writeback-agent".to_owned()
}

fn patient_model() -> String {
    "patient-data-agent".to_owned()
}

/// Error of creating an HMCP agent. Each message names what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HmcpError {
    /// The file can't be opened; check the path and its permissions.
    #[error("failed to open {path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// A patient has an invalid identifier.
    #[error("patient {place}: the identifier must be PT and 1 to {PATIENT_ID_DIGITS_MAX} digits")]
    PatientId {
        /// Position of the patient in the list, from 1.
        place: usize,
    },
    /// A patient's name has no letter or digit, or is too long.
    #[error(
        "patient {place}: the name must have a letter, and at most {PATIENT_NAME_BYTES_MAX} bytes"
    )]
    PatientName {
        /// Position of the patient in the list, from 1.
        place: usize,
    },
    /// Two patients have the same name, apart from case, accents and punctuation.
    #[error("patient {place}: another patient has the same name")]
    SameName {
        /// Position in the list of the second patient with this name, from 1.
        place: usize,
    },
    /// The list has more than [`PATIENTS_MAX`] patients.
    #[error("`patients` has more than {PATIENTS_MAX} entries")]
    TooManyPatients,
}

/// Writes the audit entry of a message and its outcome. `refused` is the reason if the caller has no
/// access.
///
/// # Errors
/// `Unavailable`, if the message is [`FindPatient`] or [`CreateMessage`], it succeeded, and the
/// entry can't be written. The caller must not send the reply then. Failures to write other entries
/// aren't reported.
async fn write_audit(
    cx: &Context,
    message: &'static str,
    asked: &RawValue,
    outcome: Result<&RawValue, &Failure>,
    refused: Option<AccessError>,
) -> Result<(), Failure> {
    let log = cx.system().audit();
    let (ended, rules) = match outcome {
        Ok(_) => ("answered", Vec::new()),
        Err(failure) if failure.kind == FailureKind::Blocked => {
            ("blocked", blocking_rules(failure).unwrap_or_default())
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
    let entry = entry.with_body(log.digest(DataClass::Clinical, asked.get().as_bytes()));
    let entry = entry
        .with_detail("bytes_out", outcome.map_or(0, |reply| reply.get().len()))
        .with_detail("rules", rules);
    let entry = match cx.call() {
        Some(call) => entry.with_call(call.id).with_detail("hops", call.hops),
        None => entry,
    };
    let entry = match refused {
        Some(refused) => entry.with_detail("lacks", refused.lacks()),
        None => entry,
    };
    match outcome {
        Ok(_) if [FindPatient::NAME, CreateMessage::NAME].contains(&message) => {
            let unkept = |error| {
                Failure::unavailable(format!(
                    "the reply is withheld, because its disclosure can't be recorded in the audit: {error}"
                ))
            };
            return log.record(entry).await.map(drop).map_err(unkept);
        }
        Ok(_) => log.enqueue(entry).await,
        Err(failure) => {
            log.enqueue(entry.with_detail("failure", failure.kind.to_string()))
                .await
        }
    }
    Ok(())
}
