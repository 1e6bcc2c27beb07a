//! `callboard demo agents`: three agents as processes; the demonstration types at the prompt of the
//! first.

use std::time::Duration;

use callboard_a2a::outbound::{A2aClient, RemoteOptions};
use callboard_a2a::wire::{A2aMessage, Part, Role, SendMessageRequest, WireType};
use callboard_message::CallId;
use callboard_rpc::EgressPolicy;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};
use url::Url;

use crate::cli::{CommandError, output, run_until_interrupted};
use crate::clinics::{ClinicsError, ServeProcess, self_command};
use crate::examples;

/// Ports of the listeners in the example files.
const PORT_TWO: u16 = 4_201;
const PORT_THREE: u16 = 4_202;
const HOST: &str = "127.0.0.1";
/// Maximum time until the second agent knows the third. Afterwards the demonstration fails. Fixed.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval between two checks whether the second agent knows the third. Fixed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const WEATHER_ANSWER: &str =
    "The current weather in Paris is sunny with a temperature of 22°C (72°F).";
const REJECTED_ANSWER: &str = "Task rejected: I cannot assist with illegal activities such as hacking into government databases. This \
                        request violates ethical guidelines and legal standards. I'm designed to provide helpful and lawful \
                        assistance only.";

/// Runs the demonstration. Fails unless each step ends as expected.
pub(super) async fn run_demo() -> Result<bool, CommandError> {
    let folder = tempfile::Builder::new()
        .prefix("callboard-")
        .tempdir()
        .map_err(ClinicsError::from)?;
    let mut cast = DemoAgents {
        folder,
        ports: Vec::new(),
        children: Vec::new(),
    };
    let outcome = run_until_interrupted(run_steps(&mut cast)).await;
    cast.terminate().await;
    outcome
}

async fn run_steps(cast: &mut DemoAgents) -> Result<bool, CommandError> {
    output::print_heading("Three agents, each a process of its own")?;
    cast.start_server("agent3", "Agent Three", PORT_THREE)
        .await?;
    cast.start_server("agent2", "Agent Two", PORT_TWO).await?;
    cast.wait_for_discovery().await?;
    let mut one = cast.start_repl().await?;
    let mut all = true;

    output::print_heading("\n1 Agent One knows nobody")?;
    let nobody = r#""message": "No agents found in the directory""#;
    all &= one
        .run_step(
            ":tool list_agents",
            &[r#""count": 0"#, nobody],
            "its directory is empty",
        )
        .await?;

    output::print_heading("\n2 It connects to Agent Two, who knows Agent Three")?;
    let two = format!("http://localhost:{}", cast.port_of("agent2"));
    let connected = [
        format!("🔗 Connected to remote agent: {two}"),
        CONNECTED_LINE.to_owned(),
    ];
    let connected = connected.each_ref().map(String::as_str);
    all &= one
        .run_step(&format!(":connect {two}"), &connected, "it is connected")
        .await?;
    all &= one
        .run_step(
            ":tool list_agents",
            &BOTH_AGENTS_LINES,
            "it knows two, and never spoke to the second",
        )
        .await?;

    output::print_heading("\n3 It hands on what another does better")?;
    let answer = ["🤖 Agent response:", WEATHER_ANSWER];
    all &= one
        .run_step(
            "What is the weather in Paris?",
            &answer,
            "Agent Three answered",
        )
        .await?;
    let asked = [
        "🧠 Rolling Memory (1 outgoing requests):",
        "(Status: Completed)",
    ];
    all &= one
        .run_step(":memory", &asked, "it remembers what it asked of others")
        .await?;

    output::print_heading("\n4 It refuses what nobody should do")?;
    let refused = ["🤖 Agent response:", REJECTED_ANSWER];
    all &= one
        .run_step(
            "Help me hack into a government database",
            &refused,
            "it said no, and why",
        )
        .await?;

    output::print_heading("\n5 What it learned outlives it")?;
    one.quit().await?;
    let mut one = cast.start_repl().await?;
    all &= one
        .run_step(
            ":tool list_agents",
            &BOTH_AGENTS_LINES,
            "started again, it still knows both",
        )
        .await?;

    output::print_heading("\n6 They end")?;
    all &= one.quit().await?;
    Ok(all)
}

const CONNECTED_LINE: &str = "✅ Successfully connected to agent: Agent Two";
/// Texts that a directory listing with the second and the third agent contains.
const BOTH_AGENTS_LINES: [&str; 3] = [
    r#""count": 2"#,
    r#"{"id": "bidirectional-agent-2", "name": "Agent Two"}"#,
    r#"{"id": "bidirectional-agent-3", "name": "Agent Three"}"#,
];

/// Folder with the topology files, and running agents.
struct DemoAgents {
    folder: TempDir,
    /// Example name, port in its file, and actual port of each agent.
    ports: Vec<(&'static str, u16, u16)>,
    children: Vec<ServeProcess>,
}

impl DemoAgents {
    /// Returns the actual port of a started agent; 0 if it has not been started.
    fn port_of(&self, example: &str) -> u16 {
        self.ports
            .iter()
            .find(|(of, ..)| *of == example)
            .map_or(0, |(.., port)| *port)
    }

    /// Writes an agent's topology file to a folder of its own, with the actual ports of the running
    /// agents.
    fn write_topology(&self, example: &str) -> Result<String, ClinicsError> {
        let folder = self.folder.path().join(example);
        std::fs::create_dir_all(&folder)?;
        let written = examples::write_example(example, &folder)
            .map_err(|error| start_error(example, error))?;
        let mut text = std::fs::read_to_string(&written)?;
        for (_, declared, port) in &self.ports {
            text = text.replace(&declared.to_string(), &port.to_string());
        }
        std::fs::write(&written, text)?;
        Ok(written.display().to_string())
    }

    /// Starts an agent without a prompt. It picks a free port itself, so that no other process can
    /// take it before.
    async fn start_server(
        &mut self,
        example: &'static str,
        name: &str,
        declared: u16,
    ) -> Result<(), CommandError> {
        let file = self.write_topology(example)?;
        let child = ServeProcess::start_serving(example, &[&file, "--free-ports"]).await?;
        output::print_line(format_args!(
            "  {name:11}  {}  (process {})",
            child.url, child.process_id
        ))?;
        let port = Url::parse(&child.url).ok().and_then(|url| url.port());
        let port = port.ok_or_else(|| start_error(example, "it listens at no port"))?;
        self.ports.push((example, declared, port));
        self.children.push(child);
        Ok(())
    }

    /// Waits until the second agent knows the third.
    async fn wait_for_discovery(&self) -> Result<(), CommandError> {
        let options = RemoteOptions {
            egress: EgressPolicy::public_internet().with_loopback(),
            ..RemoteOptions::default()
        };
        let url = Url::parse(&format!("http://{HOST}:{}", self.port_of("agent2")))
            .map_err(|error| start_error("agent2", error))?;
        let two = A2aClient::new(url, options).map_err(|error| start_error("agent2", error))?;
        let asking = async {
            loop {
                let message = A2aMessage {
                    message_id: CallId::generate().to_string(),
                    role: Role::User,
                    parts: vec![Part::text(":tool list_agents")],
                    ..A2aMessage::default()
                };
                let said = two
                    .send(SendMessageRequest {
                        message,
                        ..SendMessageRequest::default()
                    })
                    .await?;
                if said.to_json().contains("Agent Three") {
                    return Ok::<_, CommandError>(());
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let knows = tokio::time::timeout(DISCOVERY_TIMEOUT, asking).await;
        two.drained().await;
        knows.unwrap_or_else(|_| Err(start_error("agent2", "it didn't find agent3").into()))
    }

    /// Starts the agent with a prompt.
    async fn start_repl(&self) -> Result<ReplProcess, CommandError> {
        let file = self.write_topology("agent1")?;
        let mut prompt = ReplProcess::start(&[&file, "--listen", "0"])?;
        let (_, url) = prompt.read_until(LISTENING_PREFIX).await?;
        output::print_line(format_args!(
            "  {:11}  {url}  (process {})",
            "Agent One", prompt.process_id
        ))?;
        Ok(prompt)
    }

    async fn terminate(self) {
        futures::future::join_all(self.children.into_iter().map(ServeProcess::terminate)).await;
    }
}

fn start_error(example: &str, why: impl ToString) -> ClinicsError {
    ClinicsError::Start {
        example: example.to_owned(),
        why: why.to_string(),
    }
}

/// Maximum time until the output of a typed line is complete. Then the demonstration fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the process to end by itself; then it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Command typed after each line, and the first words of its answer, which mark the end of the
/// line's own output.
const END_MARKER: (&str, &str) = (":session show", "🔖 Session: ");
/// Beginning of the line that names the agent's address.
const LISTENING_PREFIX: &str = "✅ Server started on ";

/// Process of `callboard repl`. It is killed if this is dropped before [`Self::quit`].
struct ReplProcess {
    process_id: u32,
    process: tokio::process::Child,
    stdin: ChildStdin,
    stdout_lines: Lines<BufReader<ChildStdout>>,
}

impl ReplProcess {
    /// Starts `callboard repl` with these arguments.
    fn start(arguments: &[&str]) -> Result<Self, ClinicsError> {
        let mut process = self_command("repl", arguments)?
            .kill_on_drop(true)
            .spawn()?;
        let gone = || start_error("agent1", "it ended at once");
        let typed = process.stdin.take().ok_or_else(gone)?;
        let printed = process.stdout.take().ok_or_else(gone)?;
        let process_id = process.id().ok_or_else(gone)?;
        Ok(Self {
            process_id,
            process,
            stdin: typed,
            stdout_lines: BufReader::new(printed).lines(),
        })
    }

    /// Types a line and prints its output, and then `that` with a mark for success or failure.
    /// Success, which is returned, is that each of `wanted` is contained in a line of the output.
    async fn run_step(
        &mut self,
        line: &str,
        wanted: &[&str],
        that: &str,
    ) -> Result<bool, CommandError> {
        output::print_line(format_args!("  agent1> {line}"))?;
        let lines = format!("{line}\n{}\n", END_MARKER.0);
        self.stdin
            .write_all(lines.as_bytes())
            .await
            .map_err(ClinicsError::from)?;
        let (said, _) = self.read_until(END_MARKER.1).await?;
        said.iter()
            .try_for_each(|line| output::print_line(format_args!("  {line}")))?;
        let is_so = wanted
            .iter()
            .all(|wanted| said.iter().any(|line| line.contains(wanted)));
        output::print_line(format_args!("  {} {that}", if is_so { '✔' } else { '✘' }))?;
        Ok(is_so)
    }

    /// Reads up to a line that begins with `begins`. Returns the lines before it, and the rest of
    /// that line.
    ///
    /// # Errors
    /// The output ends before, or the line doesn't come within [`ANSWER_TIMEOUT`].
    async fn read_until(&mut self, begins: &str) -> Result<(Vec<String>, String), CommandError> {
        let mut said = Vec::new();
        let last = async {
            while let Some(line) = self.stdout_lines.next_line().await? {
                if let Some(rest) = line.strip_prefix(begins) {
                    return Ok(Some(rest.to_owned()));
                }
                said.push(line);
            }
            Ok::<_, std::io::Error>(None)
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, last).await {
            Ok(Ok(Some(rest))) => Ok((said, rest)),
            Ok(Ok(None)) => Err(start_error("agent1", "it ended by itself").into()),
            Ok(Err(error)) => Err(ClinicsError::from(error).into()),
            Err(_) => Err(start_error("agent1", format!("no answer in {ANSWER_TIMEOUT:?}")).into()),
        }
    }

    /// Ends the process. Returns whether it ended normally.
    async fn quit(mut self) -> Result<bool, CommandError> {
        // The end of its input ends the process.
        drop(self.stdin);
        let ended = tokio::time::timeout(EXIT_TIMEOUT, self.process.wait()).await;
        let is_fine = matches!(&ended, Ok(Ok(status)) if status.success());
        output::print_line(format_args!(
            "  {} Agent One has ended",
            if is_fine { '✔' } else { '✘' }
        ))?;
        Ok(is_fine)
    }
}
