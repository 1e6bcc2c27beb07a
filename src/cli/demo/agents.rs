//! `callboard demo agents`: three agents as processes of their own, the first spoken to at its prompt.

use std::time::Duration;

use callboard_a2a::outbound::{Peer, RemoteOptions};
use callboard_a2a::wire::{Message, Part, Role, SendMessageRequest, Wire};
use callboard_message::CallId;
use callboard_rpc::Egress;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};
use url::Url;

use crate::cli::{CommandError, show, unless_interrupted};
use crate::clinics::{Child, ClinicsError, own_program};
use crate::examples;

/// Where the agents that serve listen by their files.
const PORT_TWO: u16 = 4_201;
const PORT_THREE: u16 = 4_202;
const HOST: &str = "127.0.0.1";
/// Maximum time until the second agent knows the third. Afterwards the demonstration fails. Fixed.
const ACQUAINTED: Duration = Duration::from_secs(15);
/// Pause between two looks at the agents that it knows. Fixed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const WEATHER: &str = "The current weather in Paris is sunny with a temperature of 22°C (72°F).";
const REJECTED: &str = "Task rejected: I cannot assist with illegal activities such as hacking into government databases. This \
                        request violates ethical guidelines and legal standards. I'm designed to provide helpful and lawful \
                        assistance only.";

/// Runs it; fails unless each step ends as it has to.
pub(super) async fn demo() -> Result<bool, CommandError> {
    let folder = tempfile::Builder::new()
        .prefix("callboard-")
        .tempdir()
        .map_err(ClinicsError::from)?;
    let mut cast = Cast {
        folder,
        ports: Vec::new(),
        children: Vec::new(),
    };
    let outcome = unless_interrupted(walk(&mut cast)).await;
    cast.end().await;
    outcome
}

async fn walk(cast: &mut Cast) -> Result<bool, CommandError> {
    show::heading("Three agents, each a process of its own")?;
    cast.serve("agent3", "Agent Three", PORT_THREE).await?;
    cast.serve("agent2", "Agent Two", PORT_TWO).await?;
    cast.acquainted().await?;
    let mut one = cast.sit_down().await?;
    let mut all = true;

    show::heading("\n1 Agent One knows nobody")?;
    let nobody = r#""message": "No agents found in the directory""#;
    all &= one
        .step(
            ":tool list_agents",
            &[r#""count": 0"#, nobody],
            "its directory is empty",
        )
        .await?;

    show::heading("\n2 It connects to Agent Two, who knows Agent Three")?;
    let two = format!("http://localhost:{}", cast.port("agent2"));
    let connected = [
        format!("🔗 Connected to remote agent: {two}"),
        CONNECTED.to_owned(),
    ];
    let connected = connected.each_ref().map(String::as_str);
    all &= one
        .step(&format!(":connect {two}"), &connected, "it is connected")
        .await?;
    all &= one
        .step(
            ":tool list_agents",
            &BOTH,
            "it knows two, and never spoke to the second",
        )
        .await?;

    show::heading("\n3 It hands on what another does better")?;
    let answer = ["🤖 Agent response:", WEATHER];
    all &= one
        .step(
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
        .step(":memory", &asked, "it remembers what it asked of others")
        .await?;

    show::heading("\n4 It refuses what nobody should do")?;
    let refused = ["🤖 Agent response:", REJECTED];
    all &= one
        .step(
            "Help me hack into a government database",
            &refused,
            "it said no, and why",
        )
        .await?;

    show::heading("\n5 What it learned outlives it")?;
    one.leave().await?;
    let mut one = cast.sit_down().await?;
    all &= one
        .step(
            ":tool list_agents",
            &BOTH,
            "started again, it still knows both",
        )
        .await?;

    show::heading("\n6 They end")?;
    all &= one.leave().await?;
    Ok(all)
}

const CONNECTED: &str = "✅ Successfully connected to agent: Agent Two";
/// What a directory of two looks like.
const BOTH: [&str; 3] = [
    r#""count": 2"#,
    r#"{"id": "bidirectional-agent-2", "name": "Agent Two"}"#,
    r#"{"id": "bidirectional-agent-3", "name": "Agent Three"}"#,
];

/// The agents' folder, and those that run.
struct Cast {
    folder: TempDir,
    /// Whose file it is, where its listener is in the files, and where it is.
    ports: Vec<(&'static str, u16, u16)>,
    children: Vec<Child>,
}

impl Cast {
    /// Where an agent listens that was started.
    fn port(&self, example: &str) -> u16 {
        self.ports
            .iter()
            .find(|(of, ..)| *of == example)
            .map_or(0, |(.., port)| *port)
    }

    /// An agent's file, in a folder of its own, with the ports of those that run.
    fn file(&self, example: &str) -> Result<String, ClinicsError> {
        let folder = self.folder.path().join(example);
        std::fs::create_dir_all(&folder)?;
        let written = examples::write(example, &folder).map_err(|error| failed(example, error))?;
        let mut text = std::fs::read_to_string(&written)?;
        for (_, declared, port) in &self.ports {
            text = text.replace(&declared.to_string(), &port.to_string());
        }
        std::fs::write(&written, text)?;
        Ok(written.display().to_string())
    }

    /// Starts an agent that only serves, at a port that it finds free itself: nobody can take it in between.
    async fn serve(
        &mut self,
        example: &'static str,
        name: &str,
        declared: u16,
    ) -> Result<(), CommandError> {
        let file = self.file(example)?;
        let child = Child::serving(example, &[&file, "--free-ports"]).await?;
        show::line(format_args!(
            "  {name:11}  {}  (process {})",
            child.url, child.process_id
        ))?;
        let port = Url::parse(&child.url).ok().and_then(|url| url.port());
        let port = port.ok_or_else(|| failed(example, "it listens at no port"))?;
        self.ports.push((example, declared, port));
        self.children.push(child);
        Ok(())
    }

    /// Waits until the second knows the third.
    async fn acquainted(&self) -> Result<(), CommandError> {
        let options = RemoteOptions {
            egress: Egress::public().with_loopback(),
            ..RemoteOptions::default()
        };
        let url = Url::parse(&format!("http://{HOST}:{}", self.port("agent2")))
            .map_err(|error| failed("agent2", error))?;
        let two = Peer::new(url, options).map_err(|error| failed("agent2", error))?;
        let asking = async {
            loop {
                let message = Message {
                    message_id: CallId::fresh().to_string(),
                    role: Role::User,
                    parts: vec![Part::text(":tool list_agents")],
                    ..Message::default()
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
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let knows = tokio::time::timeout(ACQUAINTED, asking).await;
        two.said_goodbye().await;
        knows.unwrap_or_else(|_| Err(failed("agent2", "it didn't find agent3").into()))
    }

    /// Starts the agent that one talks to.
    async fn sit_down(&self) -> Result<Prompt, CommandError> {
        let file = self.file("agent1")?;
        let mut prompt = Prompt::start(&[&file, "--listen", "0"])?;
        let (_, url) = prompt.until(LISTENING).await?;
        show::line(format_args!(
            "  {:11}  {url}  (process {})",
            "Agent One", prompt.process_id
        ))?;
        Ok(prompt)
    }

    async fn end(self) {
        futures::future::join_all(self.children.into_iter().map(Child::end)).await;
    }
}

fn failed(example: &str, why: impl ToString) -> ClinicsError {
    ClinicsError::Start {
        example: example.to_owned(),
        why: why.to_string(),
    }
}

/// How long a line may take until all is said about it.
const ANSWERED: Duration = Duration::from_secs(30);
/// How long it may take to end before it is killed.
const END: Duration = Duration::from_secs(5);
/// What is typed after each line, and how the answer to that begins: then all is said about the line.
const LAST: (&str, &str) = (":session show", "🔖 Session: ");
/// How the line begins that says where it listens.
const LISTENING: &str = "✅ Server started on ";

/// The process; killed when this is dropped before [`Prompt::leave`].
struct Prompt {
    process_id: u32,
    process: tokio::process::Child,
    typed: ChildStdin,
    printed: Lines<BufReader<ChildStdout>>,
}

impl Prompt {
    /// Starts `callboard repl` with these arguments.
    fn start(arguments: &[&str]) -> Result<Self, ClinicsError> {
        let mut process = own_program("repl", arguments)?.kill_on_drop(true).spawn()?;
        let gone = || failed("agent1", "it ended at once");
        let typed = process.stdin.take().ok_or_else(gone)?;
        let printed = process.stdout.take().ok_or_else(gone)?;
        let process_id = process.id().ok_or_else(gone)?;
        Ok(Self {
            process_id,
            process,
            typed,
            printed: BufReader::new(printed).lines(),
        })
    }

    /// Types a line, shows what comes of it, and says whether all of `wanted` is in it: then `that` is so.
    async fn step(
        &mut self,
        line: &str,
        wanted: &[&str],
        that: &str,
    ) -> Result<bool, CommandError> {
        show::line(format_args!("  agent1> {line}"))?;
        let lines = format!("{line}\n{}\n", LAST.0);
        self.typed
            .write_all(lines.as_bytes())
            .await
            .map_err(ClinicsError::from)?;
        let (said, _) = self.until(LAST.1).await?;
        said.iter()
            .try_for_each(|line| show::line(format_args!("  {line}")))?;
        let is_so = wanted
            .iter()
            .all(|wanted| said.iter().any(|line| line.contains(wanted)));
        show::line(format_args!("  {} {that}", if is_so { '✔' } else { '✘' }))?;
        Ok(is_so)
    }

    /// The lines before the one that begins so, and what follows that beginning.
    async fn until(&mut self, begins: &str) -> Result<(Vec<String>, String), CommandError> {
        let mut said = Vec::new();
        let last = async {
            while let Some(line) = self.printed.next_line().await? {
                if let Some(rest) = line.strip_prefix(begins) {
                    return Ok(Some(rest.to_owned()));
                }
                said.push(line);
            }
            Ok::<_, std::io::Error>(None)
        };
        match tokio::time::timeout(ANSWERED, last).await {
            Ok(Ok(Some(rest))) => Ok((said, rest)),
            Ok(Ok(None)) => Err(failed("agent1", "it ended by itself").into()),
            Ok(Err(error)) => Err(ClinicsError::from(error).into()),
            Err(_) => Err(failed("agent1", format!("no answer in {ANSWERED:?}")).into()),
        }
    }

    /// Ends it; whether that went as it should.
    async fn leave(mut self) -> Result<bool, CommandError> {
        // The end of its input is the end.
        drop(self.typed);
        let ended = tokio::time::timeout(END, self.process.wait()).await;
        let is_fine = matches!(&ended, Ok(Ok(status)) if status.success());
        show::line(format_args!(
            "  {} Agent One has ended",
            if is_fine { '✔' } else { '✘' }
        ))?;
        Ok(is_fine)
    }
}
