//! Loop of the REPL: reads a line and carries it out.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::{CallTool, Converse};
use callboard_message::{
    Answer, CallId, Content, DataClass, Failure, FailureKind, Message, Principal, RawObject,
    TaskState, ToolResult,
};
use callboard_orchestration::memory::{DelegatedRequest, now_ms};
use callboard_runtime::running::RunningTask;
use callboard_runtime::{AgentRef, CallEvent, Task, TaskError, TaskId};

use super::answer::{AnswerPrinter, result_text};
use super::command::{ConnectTarget, ParsedLine, ReplCommand, parse_line};
use super::input::{CompletionNames, LineEvent, LineInput, QuestionOutcome, SignalEvent};
use super::print::{self, Screen, capitalize, summary_line};
use super::remote::{self, RemoteConnection, parse_sent_task};
use super::task_session::{TaskSession, find_by_prefix};
use super::{ReplOptions, views};
use crate::node::{AgentAddress, Node, RunningOrchestrator};

/// Timeout of a tool call or a remote agent, questions included.
const CALL_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Default prompt.
const PROMPT_WORD_DEFAULT: &str = "agent";
/// Notice for agents of clinical data.
const CLINICAL_NOTICE: &str = "This conversation is clinical: it is kept in memory only, and tasks that haven't ended when this program ends are lost.";

/// Outcome of the last message to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplOutcome {
    Answered,
    Failed,
    /// The agent asks, and nobody answered.
    InputRequired,
}

/// State of the interactive shell that commands and messages work on.
pub(super) struct Shell<'a> {
    pub(super) node: Node,
    pub(super) options: ReplOptions<'a>,
    pub(super) orchestrator: RunningOrchestrator,
    pub(super) tasks: Arc<TaskSession>,
    pub(super) screen: Screen,
    pub(super) input: LineInput,
    /// Id of the conversation with the agent; a new session gets a new one.
    pub(super) session_id: String,
    pub(super) remote: Option<RemoteConnection>,
    /// Address at which the agent listens; `None` while it has no listener.
    pub(super) listen_address: Option<String>,
}

impl Shell<'_> {
    /// Reads and carries out lines until the input ends or the user quits.
    pub(super) async fn run_commands(&mut self) {
        loop {
            self.update_completions().await;
            let prompt = self.prompt();
            let line = match self.input.read_line(&prompt, true).await {
                LineEvent::Line(line) => line,
                LineEvent::Interrupted if self.input.is_terminal => continue,
                LineEvent::Interrupted | LineEvent::EndOfInput => return,
            };
            match parse_line(&line) {
                Ok(ParsedLine::Empty) => {}
                Ok(ParsedLine::Command(ReplCommand::Quit)) => return,
                Ok(ParsedLine::Command(command)) => self.execute(command).await,
                Ok(ParsedLine::Message(text)) => drop(self.send_to_agent(&text).await),
                Err(mistake) => self.screen.print_error(&capitalize(&mistake.to_string())),
            }
            if self.screen.has_failed() {
                return;
            }
        }
    }

    /// Prints the greeting, at a terminal only.
    pub(super) fn print_welcome(&self) {
        let agent = self.options.agent;
        let (name, id) = (agent.name(), &agent.id);
        self.screen.print_progress(&format!(
            "{name} ({id}). :help lists the commands, :quit or Ctrl-D ends."
        ));
        if agent.class == DataClass::Clinical {
            self.screen.print_progress(CLINICAL_NOTICE);
        }
    }

    fn prompt(&self) -> String {
        let word = self
            .options
            .mode
            .prompt
            .as_deref()
            .unwrap_or(PROMPT_WORD_DEFAULT);
        match &self.remote {
            Some(remote) => format!("{word}@{}> ", remote.host_and_port),
            None => format!("{word}> "),
        }
    }

    /// Updates the names for completion.
    async fn update_completions(&self) {
        if !self.input.is_terminal {
            return;
        }
        // Includes tasks of earlier sessions, because open ones can be continued by id.
        let ours = self.tasks.own_tasks(None).await.unwrap_or_default();
        let sent = self.orchestrator.memory.list().await.unwrap_or_default();
        let agents = self.orchestrator.known.list().into_iter();
        self.input.completion.set_names(CompletionNames {
            tools: self
                .orchestrator
                .toolbox
                .list()
                .into_iter()
                .map(|tool| tool.name)
                .collect(),
            agents: agents
                .map(|known| known.url)
                .filter(|url| !url.is_empty())
                .collect(),
            tasks: ours
                .iter()
                .map(|task| task.id.to_string())
                .chain(sent.into_iter().map(|sent| sent.task))
                .collect(),
        });
    }

    async fn execute(&mut self, command: ReplCommand) {
        match command {
            ReplCommand::Help => self.screen.print_line(&views::help()),
            ReplCommand::Card { of_remote } => self.print_card(of_remote),
            ReplCommand::Servers => self
                .screen
                .print_line(&views::servers(&self.orchestrator.known.list())),
            ReplCommand::Connect(whom) => self.connect(whom).await,
            ReplCommand::Disconnect => self.disconnect(),
            ReplCommand::Remote(text) => self.send_to_remote(&text).await,
            ReplCommand::Listen { port, anonymous } => self.listen(port, anonymous).await,
            ReplCommand::Stop => self.stop_listening().await,
            ReplCommand::Tool { name, params } => self.run_tool(&name, params).await,
            ReplCommand::NewSession => {
                self.session_id = CallId::generate().to_string();
                self.screen
                    .print_line(&format!("🆕 New session: {}", self.session_id));
            }
            ReplCommand::ShowSession => self
                .screen
                .print_line(&format!("🔖 Session: {}", self.session_id)),
            ReplCommand::History => self.print_history().await,
            ReplCommand::Tasks { all } => self.print_tasks(all).await,
            ReplCommand::Task(id) => self.print_task(&id, views::task).await,
            ReplCommand::Artifacts(id) => self.print_task(&id, views::artifacts).await,
            ReplCommand::CancelTask(id) => self.cancel_task(&id).await,
            ReplCommand::Answer(id) => self.answer_task(&id).await,
            ReplCommand::Memory => self.print_memory().await,
            ReplCommand::ClearMemory => match self.orchestrator.memory.clear().await {
                Ok(_) => self.screen.print_line("🧹 Rolling memory cleared"),
                Err(failure) => self.screen.print_error(&capitalize(&failure.message)),
            },
            ReplCommand::MemoryTask(id) => self.print_memory_task(&id).await,
            // The loop ends after this command.
            ReplCommand::Quit => {}
        }
    }

    /// Sends a message to the agent and waits for the answer.
    pub(super) async fn send_to_agent(&mut self, text: &str) -> ReplOutcome {
        match self.tasks.submit(&self.session_id, text).await {
            Ok(live) => self.attend_task(live).await,
            Err(error) => {
                self.screen
                    .print_error(&format!("The message wasn't accepted: {error}"));
                ReplOutcome::Failed
            }
        }
    }

    /// Prints a task's output and questions until it ends or a question stays unanswered.
    pub(super) async fn attend_task(&mut self, live: RunningTask) -> ReplOutcome {
        let id = live.updates.borrow().id.clone();
        self.tasks.set_attended(Some(&id));
        let ended = self.follow_task(&live, &id).await;
        self.tasks.set_attended(None);
        if ended == ReplOutcome::InputRequired {
            let put = live
                .updates
                .borrow()
                .open_questions
                .first()
                .map(|open| open.key.clone());
            self.tasks.watch_unattended(&live, put.unwrap_or_default());
        }
        ended
    }

    async fn follow_task(&mut self, live: &RunningTask, id: &TaskId) -> ReplOutcome {
        let Self {
            screen,
            input,
            tasks: desk,
            ..
        } = self;
        let mut seen = live.updates.clone();
        let mut answering = AnswerPrinter::new(screen);
        loop {
            let task = seen.borrow_and_update().clone();
            if task.state.is_terminal() {
                answering.finish(&task);
                return outcome_of(&task);
            }
            answering.print_update(&task);
            if let Some(open) = task.open_questions.first() {
                screen.end_chunks();
                match input.ask_question(&open.question, true).await {
                    QuestionOutcome::Answered(answer) => {
                        let answer = (open.key.clone(), Answer::Elicit(answer));
                        match live.apply(Vec::new(), Some(answer)).await {
                            Ok(_) | Err(TaskError::HasEnded(_)) => {}
                            Err(error) => {
                                screen.print_error(&format!("The answer wasn't accepted: {error}"))
                            }
                        }
                    }
                    QuestionOutcome::Postponed => {
                        answering.print_open_question(&open.question);
                        return ReplOutcome::InputRequired;
                    }
                    QuestionOutcome::Interrupted => cancel_live_task(desk, id, screen).await,
                }
                continue;
            }
            tokio::select! {
                changed = seen.changed() => if changed.is_err() { break },
                said = input.signals.next_signal() => match said {
                    SignalEvent::Interrupt => cancel_live_task(desk, id, screen).await,
                    // A stored task resumes at the next start.
                    SignalEvent::Terminate => {
                        screen.end_chunks();
                        return ReplOutcome::Failed;
                    }
                },
            }
        }
        // The task no longer runs here: it has just ended, or another process runs it.
        let Ok(Some(task)) = desk.live.tasks.get(id).await else {
            screen.end_chunks();
            return ReplOutcome::Failed;
        };
        answering.finish(&task);
        outcome_of(&task)
    }

    /// Calls an agent; the user answers its questions. Returns its result, or a timeout after
    /// [`CALL_TIMEOUT`]. `None`: the user cancelled the call, and this was printed.
    async fn call_agent<M: Message<Reply = Result<ToolResult, Failure>>>(
        &mut self,
        agent: &AgentRef,
        message: M,
    ) -> Option<Result<ToolResult, Failure>> {
        let mut call = agent
            .call(message)
            .principal(Principal::local_operator())
            .within(CALL_TIMEOUT)
            .start();
        let Self { screen, input, .. } = self;
        loop {
            let event = tokio::select! {
                event = call.next() => event,
                _ = input.signals.next_signal() => break,
            };
            match event {
                None => return Some(call.reply().await.map_err(Failure::from).flatten()),
                Some(CallEvent::Progress(progress)) => {
                    progress
                        .message
                        .iter()
                        .for_each(|message| screen.print_progress(message));
                }
                Some(CallEvent::Question(asked)) => {
                    match input.ask_question(&asked.question, false).await {
                        QuestionOutcome::Answered(answer) => asked.answer(Answer::Elicit(answer)),
                        QuestionOutcome::Postponed => asked.refuse(Failure::no_responder(
                            "the person at the prompt didn't answer the question",
                        )),
                        QuestionOutcome::Interrupted => break,
                    }
                }
                Some(_) => {}
            }
        }
        call.cancel();
        screen.print_line(CANCELLED);
        None
    }
}

fn outcome_of(task: &Task) -> ReplOutcome {
    if task.state == TaskState::Completed {
        ReplOutcome::Answered
    } else {
        ReplOutcome::Failed
    }
}

async fn cancel_live_task(tasks: &TaskSession, id: &TaskId, screen: &Screen) {
    match tasks.cancel(id).await {
        Ok(_) | Err(TaskError::HasEnded(_)) => {}
        Err(error) => screen.print_error(&format!("The task wasn't cancelled: {error}")),
    }
}

/// Text for a cancelled call.
const CANCELLED: &str = "⏹ Cancelled";
/// Error for commands that need a connection.
const NOT_CONNECTED: &str = "Not connected: use :connect URL";

impl Shell<'_> {
    async fn run_tool(&mut self, name: &str, params: RawObject) {
        let agent = self.orchestrator.agent.clone();
        match self.call_agent(&agent, CallTool::new(name, params)).await {
            None => {}
            Some(Ok(result)) if !result.is_error() => self.print_result(&result),
            Some(Ok(result)) => self
                .screen
                .print_error(&format!("The tool {name} failed: {}", result_text(&result))),
            Some(Err(failure)) if failure.kind == FailureKind::NotFound => {
                let tools = self
                    .orchestrator
                    .toolbox
                    .list()
                    .into_iter()
                    .map(|tool| tool.name);
                let tools = tools.collect::<Vec<_>>().join(", ");
                self.screen.print_error(&format!(
                    "{} (there are: {tools})",
                    capitalize(&failure.message)
                ));
            }
            Some(Err(failure)) => self
                .screen
                .print_error(&format!("The tool {name} failed: {}", failure.message)),
        }
    }

    /// Prints a tool's result: JSON values indented, texts unchanged.
    fn print_result(&self, result: &ToolResult) {
        let text = match result.0.get("structuredContent") {
            Some(value) => print::pretty_json(value),
            None => {
                let text = result_text(result);
                print::pretty_json_text(&text).unwrap_or(text)
            }
        };
        self.screen.print_line(&format!("📋 Tool Result:\n{text}"));
    }

    pub(super) async fn connect(&mut self, whom: ConnectTarget) {
        let Self {
            node,
            options: setup,
            orchestrator: orchestrated,
            listen_address: listening,
            input,
            ..
        } = self;
        let connecting = async {
            match (whom, listening) {
                (ConnectTarget::Address(typed), Some(listening))
                    if remote::is_own_address(&typed, listening) =>
                {
                    let here =
                        remote::connect_to_self(node.system(), typed.clone(), &setup.agent.id)
                            .await;
                    here.map_err(|why| (typed, why))
                }
                (whom, _) => remote::connect(&orchestrated.known, whom).await,
            }
        };
        let connected = tokio::select! {
            connected = connecting => connected,
            _ = input.signals.next_signal() => return self.screen.print_line(CANCELLED),
        };
        match connected {
            Ok(remote) => {
                self.screen.print_line(&format!(
                    "🔗 Connected to remote agent: {}",
                    remote.typed_address
                ));
                self.screen.print_line(&format!(
                    "✅ Successfully connected to agent: {}",
                    remote.name
                ));
                self.remote = Some(remote);
            }
            Err((whom, why)) => {
                self.screen.print_error(&format!(
                    "Failed to connect to {}: {why}",
                    summary_line(&whom)
                ));
            }
        }
    }

    fn disconnect(&mut self) {
        match self.remote.take() {
            Some(remote) => self
                .screen
                .print_line(&format!("🔌 Disconnected from {}", remote.host_and_port)),
            None => self.screen.print_error(NOT_CONNECTED),
        }
    }

    /// Sends a task to the connected agent.
    async fn send_to_remote(&mut self, text: &str) {
        let Some(remote) = &self.remote else {
            return self.screen.print_error(NOT_CONNECTED);
        };
        let (agent, to, at_ms) = (remote.agent.clone(), remote.id.clone(), now_ms());
        let key = CallId::generate().to_string();
        let said = Converse::from_content([Content::text(text)])
            .0
            .with("key", &key)
            .with("context", &remote.context_id);
        // Recorded before the request is sent, so that an interruption doesn't lose it.
        let working = TaskState::Working;
        let outgoing = DelegatedRequest {
            task: key.clone(),
            to,
            request: text.to_owned(),
            answer: None,
            state: working,
            at_ms,
        };
        self.report_memory_error(self.orchestrator.memory.remember(outgoing.clone()).await);
        let Some(reply) = self.call_agent(&agent, Converse(said)).await else {
            return self.report_memory_error(
                self.orchestrator
                    .memory
                    .update(&key, TaskState::Canceled, None)
                    .await,
            );
        };
        let answer = reply
            .as_ref()
            .map_or_else(|failure| failure.message.clone(), result_text);
        let (task, state) = match parse_sent_task(&reply) {
            Ok(place) => place,
            Err(why) => {
                self.screen
                    .print_error(&format!("Failed to send the task: {why}"));
                return self.report_memory_error(
                    self.orchestrator
                        .memory
                        .update(&key, TaskState::Failed, Some(why))
                        .await,
                );
            }
        };
        let task = task.unwrap_or_else(|| key.clone());
        let settled = DelegatedRequest {
            task: task.clone(),
            answer: Some(answer),
            state,
            ..outgoing
        };
        self.report_memory_error(self.orchestrator.memory.replace(&key, settled).await);
        self.screen.print_line("✅ Task sent successfully!");
        self.screen.print_line(&format!("   Task ID: {task}"));
        self.screen.print_line(&format!(
            "   Initial state reported by remote: {}",
            views::camel_case_state(state)
        ));
        if let (true, Ok(result)) = (text.trim_start().starts_with(":tool "), &reply) {
            self.print_result(result);
        }
    }

    fn report_memory_error(&self, done: Result<(), Failure>) {
        if let Err(failure) = done {
            self.screen.print_error(&format!(
                "The task isn't recorded in the memory: {}",
                failure.message
            ));
        }
    }

    pub(super) async fn listen(&mut self, port: Option<u16>, anonymous: bool) {
        if let Some(address) = &self.listen_address {
            return self
                .screen
                .print_error(&format!("Already listening on {address} (:stop ends that)"));
        }
        let bind = SocketAddr::new(
            self.options.bind.ip(),
            port.unwrap_or(self.options.bind.port()),
        );
        let (topology, id) = (self.options.topology, &self.options.agent.id);
        if !anonymous && topology.a2a_listener(id, bind).lacks_authentication() {
            return self.screen.print_error(&format!(
                "{} is not a loopback address, and nobody needs a key there: `:listen {} --anonymous` serves anybody who reaches it",
                bind.ip(),
                bind.port()
            ));
        }
        self.screen
            .print_line(&format!("🚀 Starting server on port {}...", bind.port()));
        match self.node.listen_a2a(topology, id, bind, anonymous).await {
            Ok(AgentAddress { url, .. }) => {
                // Scheme, host and port only.
                let address = url.split('/').take(3).collect::<Vec<_>>().join("/");
                self.screen
                    .print_line(&format!("✅ Server started on {address}"));
                self.listen_address = Some(address);
            }
            Err(error) => self
                .screen
                .print_error(&format!("Failed to start the server: {error}")),
        }
    }

    pub(super) async fn stop_listening(&mut self) {
        if self.listen_address.take().is_none() {
            return self
                .screen
                .print_error("Not listening (:listen PORT begins it)");
        }
        self.screen.print_line("🛑 Stopping server...");
        self.node.stop_listening(self.options.topology).await;
        self.screen.print_line("✅ Server stopped");
    }

    fn print_card(&self, of_remote: bool) {
        let card = match (of_remote, &self.remote) {
            (false, _) => {
                let agent = self.options.agent;
                let description = agent.description.as_deref().unwrap_or_default();
                let address = self
                    .listen_address
                    .as_deref()
                    .unwrap_or("none, it isn't listening (:listen PORT)");
                let tools = self.orchestrator.toolbox.list();
                views::card(
                    [agent.name(), &agent.id, description, address],
                    tools.iter().map(|tool| (&*tool.name, &*tool.description)),
                )
            }
            (true, Some(remote)) => {
                let Some(known) = self.orchestrator.known.get(&remote.id) else {
                    return self
                        .screen
                        .print_error("The connected agent is no longer known: use :connect URL");
                };
                let skills = known
                    .skills
                    .iter()
                    .map(|skill| (&*skill.id, &*skill.description));
                views::card(
                    [
                        &known.name,
                        &known.id,
                        &known.description,
                        views::agent_address(&known),
                    ],
                    skills,
                )
            }
            (true, None) => return self.screen.print_error(NOT_CONNECTED),
        };
        self.screen.print_line(&card);
    }

    async fn print_history(&self) {
        self.print_or_error(
            self.tasks
                .own_tasks(Some(&self.session_id))
                .await
                .map(|tasks| views::history(&self.session_id, &tasks)),
        );
    }

    pub(super) async fn print_tasks(&self, all: bool) {
        let tasks = match all {
            true => self.tasks.all_tasks().await,
            false => self.tasks.own_tasks(Some(&self.session_id)).await,
        };
        self.print_or_error(tasks.map(|tasks| views::tasks(&tasks, all)));
    }

    async fn find_task(&self, id: &str) -> Option<Arc<Task>> {
        self.tasks
            .find_task(id)
            .await
            .inspect_err(|why| self.screen.print_error(why))
            .ok()
    }

    /// Prints a task and the steps of its plan.
    async fn print_task(&self, id: &str, view: fn(&Task, &[Arc<Task>]) -> String) {
        let Some(task) = self.find_task(id).await else {
            return;
        };
        self.print_or_error(
            self.tasks
                .plan_steps(&task)
                .await
                .map(|parts| view(&task, &parts)),
        );
    }

    pub(super) async fn cancel_task(&self, id: &str) {
        let Some(task) = self.find_task(id).await else {
            return;
        };
        match self.tasks.cancel(&task.id).await {
            Ok(task) if task.state.is_terminal() => self
                .screen
                .print_line(&format!("⏹ Task {} cancelled", task.id)),
            Ok(task) => self
                .screen
                .print_line(&format!("⏹ Task {} is being cancelled", task.id)),
            Err(TaskError::HasEnded(state)) => {
                self.screen.print_error(&format!(
                    "Task {} has ended: {}",
                    task.id,
                    views::camel_case_state(state)
                ));
            }
            Err(error) => self.screen.print_error(&capitalize(&error.to_string())),
        }
    }

    /// Resumes a task that waits for an answer.
    pub(super) async fn answer_task(&mut self, id: &str) {
        let Some(task) = self.find_task(id).await else {
            return;
        };
        match self.tasks.live.get(&task.id) {
            Some(live) => drop(self.attend_task(live).await),
            None if task.state.is_terminal() => {
                self.screen.print_error(&format!(
                    "Task {} has ended (:task {} shows it)",
                    task.id, task.id
                ));
            }
            None => self.screen.print_error(&format!(
                "Task {} belongs to another client, which has to answer it",
                task.id
            )),
        }
    }

    async fn print_memory(&self) {
        if self.options.agent.class == DataClass::Clinical {
            return self
                .screen
                .print_line("🧠 Nothing is remembered here: what is said is clinical");
        }
        self.print_or_error(
            self.orchestrator
                .memory
                .list()
                .await
                .map(|all| views::memory(&all)),
        );
    }

    async fn print_memory_task(&self, id: &str) {
        let sent = self.find_sent_task(id).await;
        self.print_or_error(sent.map(|sent| views::memory_task(&sent)));
    }

    /// Finds a request sent to another agent by its task id, or by a prefix that no other one has.
    async fn find_sent_task(&self, id: &str) -> Result<DelegatedRequest, String> {
        let memory = &self.orchestrator.memory;
        let exact = memory.get(id).await.map_err(|failure| failure.message)?;
        let found = match exact {
            Some(sent) => Some(sent),
            None => {
                let all = memory.list().await.map_err(|failure| failure.message)?;
                find_by_prefix(all, id, |sent| &sent.task)?
            }
        };
        found.ok_or_else(|| {
            let id = summary_line(id);
            format!("There is no sent task {id} (:memory lists the sent tasks)")
        })
    }

    /// Prints a text or an error.
    fn print_or_error(&self, text: Result<String, impl Display>) {
        match text {
            Ok(text) => self.screen.print_line(&text),
            Err(error) => self.screen.print_error(&capitalize(&error.to_string())),
        }
    }
}
