//! The federated clinics: an orchestrator here, and clinics behind their own addresses.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use callboard_clinics::orchestrator::{Answer, AskClinics, Orchestrator, OrchestratorConfig};
use callboard_clinics::plan::{ClinicEntry, Registry, RegistryError};
use callboard_clinics::planner::Planner;
use callboard_clinics::router::{Router, RouterConfig};
use callboard_clinics::verifier::Verifier;
use callboard_guardrail::{Guardrail, OwnRule};
use callboard_mcp::bare::{BareClientError, BareClientOptions, BareMcpClient};
use callboard_message::{Failure, FailureKind, Principal};
use callboard_runtime::{AgentRef, CallEvent, NameTaken, System};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdin, Command};

use crate::config::{ConfigError, Topology};
use crate::examples;
use crate::node::{LISTENING, READY};

/// How long one question may take in all.
pub const QUESTION_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);
/// How long agents may take to finish when all ends.
const SHUTDOWN: Duration = Duration::from_secs(2);
/// One arbiter for those that wait for others, one for those that think for long: a deadline must not wait for a thought.
const ARBITERS: usize = 2;
const WAITING: usize = 0;
const THINKING: usize = 1;
/// The group that sees the clinics: they are silos, no agent else finds them.
const GROUP: &str = "orchestrator";

/// The orchestrator with its colleagues, and the clinics that it may ask.
pub struct Clinics {
    system: System,
    orchestrator: AgentRef,
    /// Those started here; they end with this.
    children: Vec<Child>,
}

/// Why clinics can't be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClinicsError {
    /// Correct the host's file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Correct the `[[clinic]]` named.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Correct the clinic's `url`.
    #[error("clinic {id}: {source}")]
    Address {
        /// Whose.
        id: String,
        /// Why.
        source: BareClientError,
    },
    /// Add a `[[clinic]]` to the host's file.
    #[error("the topology declares no clinic to ask")]
    NoClinics,
    /// Rename a clinic.
    #[error(transparent)]
    Name(#[from] NameTaken),
    /// See what the clinic's process says on standard error.
    #[error("failed to start the example {example}: {why}")]
    Start {
        /// Which example.
        example: String,
        /// What happened.
        why: String,
    },
    /// What the orchestrator answered in place of an answer.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// See what the system says.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ClinicsError {
    /// Whether the user's command line, question or file is at fault.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Registry(_)
            | Self::Address { .. }
            | Self::NoClinics
            | Self::Name(_) => true,
            Self::Failed(failure) => failure.kind == FailureKind::InvalidInput,
            Self::Start { .. } | Self::Io(_) => false,
        }
    }
}

impl Clinics {
    /// Starts the agents of a host that asks the clinics of `topology`. The clinics run elsewhere.
    ///
    /// # Errors
    /// See [`ClinicsError`].
    pub fn connect(topology: Topology) -> Result<Self, ClinicsError> {
        let rules = topology.guard_rules();
        Self::with(topology.registry, rules, Vec::new())
    }

    /// Starts the example clinics, each a process of its own on a free port, and a host that asks them.
    ///
    /// # Errors
    /// See [`ClinicsError`].
    pub async fn start_examples() -> Result<Self, ClinicsError> {
        let declared = Topology::parse(examples::HOST, false, std::path::Path::new(""))?;
        let starting = declared
            .registry
            .clinics()
            .iter()
            .map(|clinic| Child::start(&clinic.specialty));
        let children = futures::future::try_join_all(starting).await?;
        let moved = |clinic: &ClinicEntry| {
            let child = children.iter().find(|child| child.agent == clinic.id);
            ClinicEntry {
                url: child.map_or_else(|| clinic.url.clone(), |c| c.url.clone()),
                ..clinic.clone()
            }
        };
        let registry = Registry::try_from(
            declared
                .registry
                .clinics()
                .iter()
                .map(moved)
                .collect::<Vec<_>>(),
        )?;
        Self::with(registry, declared.guard_rules(), children)
    }

    fn with(
        registry: Registry,
        rules: Vec<OwnRule>,
        children: Vec<Child>,
    ) -> Result<Self, ClinicsError> {
        if registry.clinics().is_empty() {
            return Err(ClinicsError::NoClinics);
        }
        let registry = Arc::new(registry);
        let clients = registry.clinics().iter().map(|clinic| {
            let client = BareMcpClient::new(&clinic.url, BareClientOptions::default());
            client
                .map(|c| (clinic.id.clone(), c))
                .map_err(|source| ClinicsError::Address {
                    id: clinic.id.clone(),
                    source,
                })
        });
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        let system = System::start(ARBITERS)?;
        for (id, client) in clients {
            let agent = system
                .prepare_with(move || client.clone())
                .label(id.as_str())
                .on(WAITING)
                .spawn();
            system
                .directory()
                .register_in(id.as_str(), &agent, [GROUP])?;
        }
        let guardrail = system
            .prepare_with(move || Guardrail::with(&rules))
            .label("guardrail")
            .on(THINKING)
            .spawn();
        let verifier = system
            .prepare_with(Verifier::default)
            .label("verifier")
            .on(THINKING)
            .spawn();
        let planning = registry.clone();
        let planner = system
            .prepare_with(move || Planner::new(planning.clone()))
            .label("planner")
            .on(WAITING)
            .spawn();
        let routing = RouterConfig::new(registry.clone(), guardrail.clone());
        let router = system
            .prepare_with(move || Router::new(routing.clone()))
            .label("router")
            .on(WAITING)
            .spawn();
        let config = OrchestratorConfig::new(registry, guardrail, planner, router, verifier);
        let orchestrator = system
            .prepare_with(move || Orchestrator::new(config.clone()))
            .label("orchestrator")
            .on(WAITING)
            .spawn();
        Ok(Self {
            system,
            orchestrator,
            children,
        })
    }

    /// The clinics started here: id, URL, process id.
    pub fn started(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        self.children
            .iter()
            .map(|child| (child.agent.as_str(), child.url.as_str(), child.process_id))
    }

    /// The agents of the host.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Asks as the local operator. `told` gets each line of progress.
    ///
    /// # Errors
    /// Where there is no answer at all; one that was blocked is an answer.
    pub async fn ask(
        &self,
        query: &str,
        purpose: Option<&str>,
        told: impl Fn(&str),
    ) -> Result<Answer, ClinicsError> {
        let message = AskClinics {
            query: query.to_owned(),
            purpose: purpose.map(str::to_owned),
        };
        let call = self
            .orchestrator
            .call(message)
            .principal(Principal::local_operator());
        let mut call = call.within(QUESTION_DEADLINE_DEFAULT).start();
        while let Some(event) = call.next().await {
            if let CallEvent::Progress(progress) = event
                && let Some(line) = progress.message
            {
                told(&line);
            }
        }
        Ok(call.reply().await.map_err(Failure::from)??)
    }

    /// Ends the agents, then the clinics started here.
    pub async fn shutdown(self) {
        self.system.shutdown(SHUTDOWN).await;
        futures::future::join_all(self.children.into_iter().map(Child::end)).await;
    }
}

/// How long it may take from its start until it listens.
const START: Duration = Duration::from_secs(30);
/// How long it may take to end before it is killed.
const END: Duration = Duration::from_secs(5);
/// What of this process's environment a child gets.
const ENVIRONMENT: [&str; 4] = ["PATH", "TMPDIR", "CALLBOARD_LOG", "RUST_BACKTRACE"];

/// This program again, spoken to by pipes.
pub(crate) fn own_program(command: &str, arguments: &[&str]) -> io::Result<Command> {
    let environment = ENVIRONMENT
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut program = Command::new(std::env::current_exe()?);
    program
        .arg(command)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // Ctrl-C at a terminal reaches its whole group; a child is ended in order instead.
    program.process_group(0);
    Ok(program)
}

/// The process. When this is dropped it ends by its lifeline, in order: killed, it would leave its data behind.
pub(crate) struct Child {
    agent: String,
    pub(crate) url: String,
    pub(crate) process_id: u32,
    process: tokio::process::Child,
    /// Closes when this process ends, however it ends: then the child does too.
    lifeline: ChildStdin,
}

impl Child {
    /// Starts the example and waits until it listens.
    pub(crate) async fn start(example: &str) -> Result<Self, ClinicsError> {
        Self::serving(example, &[&format!("example:{example}"), "--free-ports"]).await
    }

    /// Starts `callboard serve` with these arguments and waits until it listens. `example`: what it is, for errors.
    pub(crate) async fn serving(example: &str, arguments: &[&str]) -> Result<Self, ClinicsError> {
        let failed = |why: String| ClinicsError::Start {
            example: example.to_owned(),
            why,
        };
        let mut process = own_program("serve", arguments)?.arg("--lifeline").spawn()?;
        let lifeline = process
            .stdin
            .take()
            .ok_or_else(|| failed("it has no standard input".into()))?;
        let output = process
            .stdout
            .take()
            .ok_or_else(|| failed("it has no standard output".into()))?;
        let process_id = process
            .id()
            .ok_or_else(|| failed("it ended at once".into()))?;
        let mut lines = BufReader::new(output).lines();
        let mut listening = None;
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if line == READY {
                    return Ok(listening);
                }
                let mut words = line.split(' ');
                if let (Some(LISTENING), Some(agent), Some(url)) =
                    (words.next(), words.next(), words.next())
                {
                    listening = Some((agent.to_owned(), url.to_owned()));
                }
            }
            Ok::<_, io::Error>(None)
        };
        match tokio::time::timeout(START, ready).await {
            Ok(Ok(Some((agent, url)))) => Ok(Self {
                agent,
                url,
                process_id,
                process,
                lifeline,
            }),
            Ok(Ok(None)) => Err(failed("it ended before it listened".into())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => {
                // It may have ended just now.
                let _ = process.start_kill();
                Err(failed(format!("it didn't listen within {START:?}")))
            }
        }
    }

    /// Lets it end in order, or kills it.
    pub(crate) async fn end(mut self) {
        drop(self.lifeline);
        if tokio::time::timeout(END, self.process.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                agent = self.agent,
                "clinic doesn't end in time and is killed"
            );
            // It may have ended just now.
            let _ = self.process.kill().await;
        }
    }
}
