//! The example clinics in this process, with the pipeline that asks them. Between the agents stand
//! others that record what passes, and inject faults.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callboard_clinics::clinic::{Clinic, ClinicConfig, PURPOSE_DEFAULT};
use callboard_clinics::orchestrator::{AskClinics, ClinicAnswer, Orchestrator, OrchestratorConfig};
use callboard_clinics::plan::{ClinicRegistry, Plan, Step};
use callboard_clinics::planner::{MakePlan, Planner};
use callboard_clinics::router::{Router, RouterConfig, StepOutcome};
use callboard_clinics::verifier::{Verdict, Verified, Verifier, Verify};
use callboard_guardrail::Guardrail;
use callboard_message::{Failure, Principal, RawMessage};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Context, Handlers, System};
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tempfile::TempDir;

use super::faults::{
    ExamplePatient, FaultDice, FaultSource, InjectedFault, corrupt_answer, corrupt_text,
    hostile_kind,
};
use crate::cli::CommandError;
use crate::config::Topology;
use crate::examples;
use crate::node::NodeError;

/// Maximum time for one question.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for the agents to finish at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Arbiters: one for agents that wait, one for agents that compute.
const ARBITER_COUNT: usize = 2;
/// Maximum number of messages that an agent between two others handles at once. A question has at
/// most 16 steps at once.
const PASSING_MAX: u32 = 64;

/// Fields of an example's record that identify the patient.
const IDENTITY_FIELDS: [&str; 5] = ["name", "birth_date", "government_id", "address", "phone"];

/// Conditions of one question, and a record of what passed between the agents.
#[derive(Debug, Default)]
pub(super) struct QuestionTrace {
    /// Ids of the clinics that are down.
    down: BTreeSet<String>,
    /// Source of the fault to inject, and its choices.
    fault: Option<(FaultSource, FaultDice)>,
    /// Ids of the clinics that were asked.
    pub(super) asked: BTreeSet<String>,
    /// Output of the planner.
    pub(super) plan: Vec<Step>,
    /// Outcomes of the steps as the verifier received them.
    pub(super) outcomes: Vec<StepOutcome>,
    /// Verdict, if the verifier was asked.
    pub(super) verdict: Option<Verdict>,
    /// Injected fault.
    pub(super) injected: Option<InjectedFault>,
    /// Whether the verifier found the fault in the text: it withheld the answer, or cut the fault
    /// out. `None` if none was injected there.
    pub(super) is_caught: Option<bool>,
    /// Time that the verifier took.
    pub(super) verifying: Option<Duration>,
}

type SharedTrace = Arc<Mutex<QuestionTrace>>;

/// The clinics' agents and the pipeline.
pub(super) struct Federation {
    system: System,
    orchestrator: AgentRef,
    pub(super) registry: Arc<ClinicRegistry>,
    pub(super) patients: Arc<[ExamplePatient]>,
    trace: SharedTrace,
    _folder: TempDir,
}

/// Returns the registry of the host with three clinics.
pub(super) fn example_registry() -> Result<ClinicRegistry, CommandError> {
    Ok(Topology::parse(examples::HOST_OF_THREE, false, Path::new(""))?.registry)
}

impl Federation {
    /// Starts the three example clinics with empty databases in a temporary folder, and the pipeline
    /// that asks them: without a verifier, unless `is_verified`.
    ///
    /// # Errors
    /// The folder can't be written, or a clinic doesn't open.
    pub(super) async fn start(is_verified: bool) -> Result<Self, CommandError> {
        let folder = tempfile::Builder::new()
            .prefix("callboard-eval-")
            .tempdir()
            .map_err(NodeError::Scratch)?;
        let registry = Arc::new(example_registry()?);
        let system = System::start(ARBITER_COUNT).map_err(CommandError::failed)?;
        let trace = SharedTrace::default();
        let mut patients = Vec::new();
        for entry in registry.clinics() {
            examples::write_example(&entry.specialty, folder.path())?;
            let seed = folder.path().join(&entry.specialty).with_extension("json");
            let of_clinic: Arc<[ExamplePatient]> = read_patients(&seed)?.into();
            patients.extend(of_clinic.iter().cloned());
            let config = ClinicConfig {
                id: entry.id.clone(),
                specialty: entry.specialty.clone(),
                database: folder.path().join(&entry.id).with_extension("sqlite"),
                seed,
                purposes_allowed: vec![PURPOSE_DEFAULT.to_owned()],
                tenant: None,
                classes: Default::default(),
            };
            let clinic = Clinic::open(config).await.map_err(CommandError::failed)?;
            let gate = system.spawn(ClinicGate {
                id: entry.id.as_str().into(),
                clinic: system.spawn(clinic),
                patients: of_clinic,
                trace: trace.clone(),
            });
            system
                .directory()
                .register(entry.id.as_str(), &gate)
                .map_err(CommandError::failed)?;
        }
        let patients: Arc<[ExamplePatient]> = patients.into();
        let guardrail = system.spawn_with(Guardrail::default);
        let planner = system.spawn(PlanRecorder {
            planner: system.spawn(Planner::new(registry.clone())),
            trace: trace.clone(),
        });
        let composer = system.spawn(ComposerStage {
            verifier: is_verified.then(|| system.spawn_with(Verifier::default)),
            patients: patients.clone(),
            trace: trace.clone(),
        });
        let routing = RouterConfig::new(registry.clone(), guardrail.clone());
        let router = system.spawn(Router::new(routing));
        let config =
            OrchestratorConfig::new(registry.clone(), guardrail, planner, router, composer);
        Ok(Self {
            orchestrator: system.spawn(Orchestrator::new(config)),
            system,
            registry,
            patients,
            trace,
            _folder: folder,
        })
    }

    /// Asks a question as the local operator without a purpose, with these clinics down and this
    /// fault. Returns the answer and what passed between the agents.
    ///
    /// # Errors
    /// The question is invalid or isn't answered in time.
    pub(super) async fn ask(
        &self,
        question: &str,
        down: &BTreeSet<String>,
        fault: Option<(FaultSource, FaultDice)>,
    ) -> Result<(ClinicAnswer, QuestionTrace), CommandError> {
        *self.trace.lock() = QuestionTrace {
            down: down.clone(),
            fault,
            ..QuestionTrace::default()
        };
        let message = AskClinics {
            query: question.to_owned(),
            purpose: None,
        };
        let call = self
            .orchestrator
            .call(message)
            .principal(Principal::local_operator())
            .within(QUESTION_TIMEOUT);
        let answer = call.start().reply().await.map_err(Failure::from)??;
        Ok((answer, std::mem::take(&mut *self.trace.lock())))
    }

    pub(super) async fn stop(self) {
        self.system.shutdown(SHUTDOWN_TIMEOUT).await;
    }
}

/// Reads the patients of an example's seed file.
fn read_patients(seed: &Path) -> Result<Vec<ExamplePatient>, CommandError> {
    let text = std::fs::read_to_string(seed).map_err(CommandError::failed)?;
    let seed: Value = serde_json::from_str(&text).map_err(CommandError::failed)?;
    let rows = seed["patients"].as_array().into_iter().flatten();
    let patients = rows.map(|row| {
        let fields = IDENTITY_FIELDS.into_iter();
        ExamplePatient {
            id: row["patient_id"].as_str().unwrap_or_default().to_owned(),
            identity: fields
                .filter_map(|field| Some((field, row[field].as_str()?.to_owned())))
                .collect(),
        }
    });
    Ok(patients.collect())
}

/// Agent in front of a clinic: records that it was asked, and fails or changes its answer.
#[derive(Clone)]
struct ClinicGate {
    id: Arc<str>,
    clinic: AgentRef,
    patients: Arc<[ExamplePatient]>,
    trace: SharedTrace,
}

impl Agent for ClinicGate {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(PASSING_MAX);
    }
}

impl ConcurrentHandler<RawMessage> for ClinicGate {
    fn handle(
        &mut self,
        message: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let gate = self.clone();
        async move { gate.forward(message, &cx).await }
    }
}

impl ClinicGate {
    async fn forward(&self, message: RawMessage, cx: &Context) -> Result<Box<RawValue>, Failure> {
        let hostile = {
            let mut trace = self.trace.lock();
            trace.asked.insert((*self.id).to_owned());
            if trace.down.contains(&*self.id) {
                return Err(Failure::unavailable("network failure during HTTP dispatch"));
            }
            // The first answer is the hostile one.
            let is_hostile = matches!(trace.fault, Some((FaultSource::HostileClinic, _)));
            is_hostile.then(|| trace.fault.take()).flatten()
        };
        let asked: Option<Value> = serde_json::from_str(message.payload.get()).ok();
        let asked = asked.and_then(|asked| asked["patient_id"].as_str().map(str::to_owned));
        let answer = self
            .clinic
            .ask_named(message.name, message.payload, cx.next_hop())
            .await?;
        let Some((_, mut dice)) = hostile else {
            return Ok(answer);
        };
        let wrong = |error: serde_json::Error| Failure::internal(error.to_string());
        let mut answer: Value = serde_json::from_str(answer.get()).map_err(wrong)?;
        let kind = hostile_kind(&mut dice);
        let injected = corrupt_answer(
            kind,
            &mut answer,
            asked.as_deref(),
            &self.patients,
            &mut dice,
        );
        self.trace.lock().injected = Some(injected);
        to_raw_value(&answer).map_err(wrong)
    }
}

/// Agent in front of the planner: records its plans.
#[derive(Clone)]
struct PlanRecorder {
    planner: AgentRef,
    trace: SharedTrace,
}

impl Agent for PlanRecorder {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<MakePlan>(PASSING_MAX);
    }
}

impl ConcurrentHandler<MakePlan> for PlanRecorder {
    fn handle(
        &mut self,
        message: MakePlan,
        cx: Context,
    ) -> impl Future<Output = Result<Plan, Failure>> + Send + 'static {
        let recorder = self.clone();
        async move {
            let asking = recorder.planner.ask(message).within_call(cx.next_hop());
            let plan = asking.await.map_err(Failure::from)??;
            recorder.trace.lock().plan = plan.steps.clone();
            Ok(plan)
        }
    }
}

/// Agent in front of the verifier: records the outcomes and the verdict, and changes the text as a
/// faulty composer would. Without a verifier it passes everything.
#[derive(Clone)]
struct ComposerStage {
    verifier: Option<AgentRef>,
    patients: Arc<[ExamplePatient]>,
    trace: SharedTrace,
}

impl Agent for ComposerStage {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Verify>(PASSING_MAX);
    }
}

impl ConcurrentHandler<Verify> for ComposerStage {
    fn handle(
        &mut self,
        message: Verify,
        cx: Context,
    ) -> impl Future<Output = Verified> + Send + 'static {
        let stage = self.clone();
        async move { stage.verify(message, &cx).await }
    }
}

impl ComposerStage {
    async fn verify(&self, mut message: Verify, cx: &Context) -> Verified {
        let marker = {
            let mut trace = self.trace.lock();
            // Results of other shapes are of no step.
            trace.outcomes = serde_json::from_value(message.results.clone()).unwrap_or_default();
            let fault = trace.fault.take();
            let injected = fault.and_then(|(source, mut dice)| {
                corrupt_text(source, &mut message, &self.patients, &mut dice)
            });
            let marker = injected.as_ref().map(|fault| fault.marker.clone());
            trace.injected = injected.or(trace.injected.take());
            marker
        };
        let begun = Instant::now();
        let verified = self.pass(message, cx).await;
        let mut trace = self.trace.lock();
        trace.verifying = Some(begun.elapsed());
        trace.verdict = Some(verified.verdict.clone());
        let is_gone = |marker: String| !verified.verdict.safe || !verified.text.contains(&marker);
        trace.is_caught = marker.map(is_gone);
        verified
    }

    async fn pass(&self, message: Verify, cx: &Context) -> Verified {
        let unchecked = |safe: bool, note: &str| Verdict {
            safe,
            note: note.to_owned(),
            rule: None,
            findings: Vec::new(),
            redactions: 0,
        };
        let Some(verifier) = &self.verifier else {
            return Verified {
                verdict: unchecked(true, "OK"),
                results: message.results,
                text: message.text,
            };
        };
        let asking = verifier.ask(message).within_call(cx.next_hop());
        asking.await.unwrap_or_else(|_| Verified {
            verdict: unchecked(false, "The verifier did not answer."),
            results: Value::Null,
            text: String::new(),
        })
    }
}
