//! Federated clinics: a local orchestrator, and clinics in processes of their own.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use callboard_clinics::orchestrator::{AskClinics, ClinicAnswer};
use callboard_clinics::plan::{ClinicEntry, ClinicRegistry, ClinicRegistryError};
use callboard_message::{Failure, FailureKind, Principal};
use callboard_runtime::{AgentRef, CallEvent, System};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdin, Command};

use crate::config::{ConfigError, PipelineAgents, PipelineError, PipelineOptions, Topology};
use crate::examples;
use crate::node::{LISTENING_PREFIX, READY_LINE};

/// Default maximum duration of one question.
pub const QUESTION_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);
/// Maximum time for agents to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// An orchestrator with its helper agents, and the clinics that it queries.
pub struct Clinics {
    system: System,
    orchestrator: AgentRef,
    /// Processes of the example clinics that were started here; they exit when this is dropped.
    example_processes: Vec<ServeProcess>,
}

/// Failure to query clinics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClinicsError {
    /// The host's topology file is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A `[[clinic]]` entry is invalid.
    #[error(transparent)]
    Registry(#[from] ClinicRegistryError),
    /// A clinic's `url` or the model of `[clinics] planner` is unusable.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The host's file declares no `[[clinic]]`.
    #[error("the topology declares no clinic to ask: add a [[clinic]] section")]
    NoClinics,
    /// A clinic's process failed to start. Its standard error has the reason.
    #[error("failed to start the example {example}: {why}")]
    Start {
        /// Name of the example.
        example: String,
        /// Reason.
        why: String,
    },
    /// The orchestrator failed to answer.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// Error of the operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ClinicsError {
    /// Whether the cause is the user's command line, question or file.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Config(_) | Self::Registry(_) | Self::Pipeline(_) | Self::NoClinics => true,
            Self::Failed(failure) => failure.kind == FailureKind::InvalidInput,
            Self::Start { .. } | Self::Io(_) => false,
        }
    }
}

impl Clinics {
    /// Starts the agents of a host that queries the clinics of `topology`. The clinics run
    /// elsewhere.
    ///
    /// # Errors
    /// See [`ClinicsError`].
    pub fn connect(topology: Topology) -> Result<Self, ClinicsError> {
        Self::build(PipelineOptions::for_topology(&topology)?, Vec::new())
    }

    /// Starts the example clinics, each as a process on a free port, and a host that queries them.
    ///
    /// # Errors
    /// See [`ClinicsError`].
    pub async fn start_examples() -> Result<Self, ClinicsError> {
        let declared = Topology::parse(examples::HOST_TOPOLOGY, false, std::path::Path::new(""))?;
        let starting = declared
            .registry
            .clinics()
            .iter()
            .map(|clinic| ServeProcess::start_example(&clinic.specialty));
        let children = futures::future::try_join_all(starting).await?;
        let moved = |clinic: &ClinicEntry| {
            let child = children.iter().find(|child| child.agent == clinic.id);
            ClinicEntry {
                url: child.map_or_else(|| clinic.url.clone(), |c| c.url.clone()),
                ..clinic.clone()
            }
        };
        let registry = ClinicRegistry::try_from(
            declared
                .registry
                .clinics()
                .iter()
                .map(moved)
                .collect::<Vec<_>>(),
        )?;
        Self::build(
            PipelineOptions::new(registry, declared.guard_rules()),
            children,
        )
    }

    fn build(options: PipelineOptions, children: Vec<ServeProcess>) -> Result<Self, ClinicsError> {
        if options.registry.clinics().is_empty() {
            return Err(ClinicsError::NoClinics);
        }
        let system = System::start(PipelineAgents::ARBITER_COUNT)?;
        let agents = PipelineAgents::spawn(&system, options)?;
        Ok(Self {
            system,
            orchestrator: agents.orchestrator,
            example_processes: children,
        })
    }

    /// Returns id, URL and process id of each clinic started here.
    pub fn example_processes(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        self.example_processes
            .iter()
            .map(|child| (child.agent.as_str(), child.url.as_str(), child.process_id))
    }

    /// Returns the system that runs the host's agents.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Asks a question as the local operator. `told` is called with each progress line.
    ///
    /// # Errors
    /// [`ClinicsError`] if there is no answer. A blocked answer is not an error.
    pub async fn ask(
        &self,
        query: &str,
        purpose: Option<&str>,
        told: impl Fn(&str),
    ) -> Result<ClinicAnswer, ClinicsError> {
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

    /// Stops the agents, then the clinics started here.
    pub async fn shutdown(self) {
        self.system.shutdown(SHUTDOWN_TIMEOUT).await;
        futures::future::join_all(
            self.example_processes
                .into_iter()
                .map(ServeProcess::terminate),
        )
        .await;
    }
}

/// Maximum time from start to listening.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for a process to exit before it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Environment variables that a child process inherits.
const INHERITED_VARIABLES: [&str; 4] = ["PATH", "TMPDIR", "CALLBOARD_LOG", "RUST_BACKTRACE"];

/// Returns a command that runs this program with piped standard streams.
pub(crate) fn self_command(command: &str, arguments: &[&str]) -> io::Result<Command> {
    let environment = INHERITED_VARIABLES
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
    // Ctrl-C in a terminal reaches the whole process group; a child is terminated in order instead.
    program.process_group(0);
    Ok(program)
}

/// A child process of `callboard serve`. Dropping it closes its lifeline, so it exits in order; a
/// killed process would leave its data behind.
pub(crate) struct ServeProcess {
    agent: String,
    pub(crate) url: String,
    pub(crate) process_id: u32,
    process: tokio::process::Child,
    /// Closes when this process ends in any way; then the child exits.
    lifeline: ChildStdin,
}

impl ServeProcess {
    /// Starts an example on free ports and waits until it listens; see [`Self::start_serving`].
    pub(crate) async fn start_example(example: &str) -> Result<Self, ClinicsError> {
        Self::start_serving(example, &[&format!("example:{example}"), "--free-ports"]).await
    }

    /// Starts `callboard serve` with these arguments and waits until it listens, at most
    /// [`START_TIMEOUT`]. `example` names it in errors.
    ///
    /// # Errors
    /// [`ClinicsError::Start`] if it ends early, doesn't listen in time, or its output can't be
    /// read; the I/O error if the process can't be spawned.
    pub(crate) async fn start_serving(
        example: &str,
        arguments: &[&str],
    ) -> Result<Self, ClinicsError> {
        let failed = |why: String| ClinicsError::Start {
            example: example.to_owned(),
            why,
        };
        let mut process = self_command("serve", arguments)?
            .arg("--lifeline")
            .spawn()?;
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
                if line == READY_LINE {
                    return Ok(listening);
                }
                let mut words = line.split(' ');
                if let (Some(LISTENING_PREFIX), Some(agent), Some(url)) =
                    (words.next(), words.next(), words.next())
                {
                    listening = Some((agent.to_owned(), url.to_owned()));
                }
            }
            Ok::<_, io::Error>(None)
        };
        match tokio::time::timeout(START_TIMEOUT, ready).await {
            Ok(Ok(Some((agent, url)))) => Ok(Self {
                agent,
                url,
                process_id,
                process,
                lifeline,
            }),
            Ok(Ok(None)) => Err(failed(
                "it ended before it listened: its messages above tell why".into(),
            )),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => {
                // It may have exited already.
                let _ = process.start_kill();
                Err(failed(format!("it didn't listen within {START_TIMEOUT:?}")))
            }
        }
    }

    /// Asks the process to exit, and kills it after a timeout.
    pub(crate) async fn terminate(mut self) {
        drop(self.lifeline);
        if tokio::time::timeout(EXIT_TIMEOUT, self.process.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                agent = self.agent,
                "clinic did not exit in time: killing it"
            );
            // It may have exited already.
            let _ = self.process.kill().await;
        }
    }
}
