//! The loop: a line is read, and what it means is done.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::{CallTool, Converse};
use callboard_message::{
    Answer, CallId, Content, DataClass, Failure, FailureKind, Message, Principal, RawObject,
    TaskState, ToolResult,
};
use callboard_orchestration::memory::{Outgoing, now_ms};
use callboard_runtime::live::LiveTask;
use callboard_runtime::{AgentRef, CallEvent, Task, TaskError, TaskId};

use super::answer::{Answering, text_of_result};
use super::command::{Command, Typed, Whom, read};
use super::desk::Desk;
use super::input::{Asked, Got, Input, Names, Said};
use super::print::{self, Screen, capital, one_line};
use super::remote::{self, Remote, sent};
use super::{Setup, views};
use crate::node::{Listening, Node, Orchestrated};

/// How long a tool or an agent elsewhere may take, questions included.
const CALL_MAX: Duration = Duration::from_secs(60 * 60);
/// The word of the prompt.
const PROMPT_DEFAULT: &str = "agent";
/// What is told where nothing of what is said is kept.
const CLINICAL: &str = "What is said here is clinical: it is kept in memory alone, and what isn't done when this ends is lost.";

/// How the last thing that was said ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Answered,
    Failed,
    /// It asks, and nobody answered.
    Asks,
}

/// Everything that a line may be about.
pub(super) struct Shell<'a> {
    pub(super) node: Node,
    pub(super) setup: Setup<'a>,
    pub(super) orchestrated: Orchestrated,
    pub(super) desk: Arc<Desk>,
    pub(super) screen: Screen,
    pub(super) input: Input,
    /// The conversation.
    pub(super) session: String,
    pub(super) remote: Option<Remote>,
    /// Where the agent can be reached.
    pub(super) listening: Option<String>,
}

impl Shell<'_> {
    /// Reads and does until nothing more comes.
    pub(super) async fn run(&mut self) {
        loop {
            self.name_names().await;
            let prompt = self.prompt();
            let line = match self.input.line(&prompt, true).await {
                Got::Line(line) => line,
                Got::GivenUp if self.input.is_terminal => continue,
                Got::GivenUp | Got::End => return,
            };
            match read(&line) {
                Ok(Typed::Nothing) => {}
                Ok(Typed::Do(Command::Quit)) => return,
                Ok(Typed::Do(command)) => self.act(command).await,
                Ok(Typed::Say(text)) => drop(self.say(&text).await),
                Err(mistake) => self.screen.trouble(&capital(&mistake.to_string())),
            }
            if self.screen.has_failed() {
                return;
            }
        }
    }

    /// Says who is here, to whoever sits at a terminal.
    pub(super) fn welcome(&self) {
        let agent = self.setup.agent;
        let (name, id) = (agent.name(), &agent.id);
        self.screen.aside(&format!(
            "{name} ({id}). :help lists the commands, :quit or Ctrl-D ends."
        ));
        if agent.class == DataClass::Clinical {
            self.screen.aside(CLINICAL);
        }
    }

    fn prompt(&self) -> String {
        let word = self.setup.mode.prompt.as_deref().unwrap_or(PROMPT_DEFAULT);
        match &self.remote {
            Some(remote) => format!("{word}@{}> ", remote.at),
            None => format!("{word}> "),
        }
    }

    /// What can be completed from here on.
    async fn name_names(&self) {
        if !self.input.is_terminal {
            return;
        }
        // Those of sessions before too: what was left open is gone on with by its id.
        let ours = self.desk.ours(None).await.unwrap_or_default();
        let sent = self.orchestrated.memory.list().await.unwrap_or_default();
        let agents = self.orchestrated.known.list().into_iter();
        self.input.completion.set(Names {
            tools: self
                .orchestrated
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

    async fn act(&mut self, command: Command) {
        match command {
            Command::Help => self.screen.line(&views::help()),
            Command::Card { of_remote } => self.card(of_remote),
            Command::Servers => self
                .screen
                .line(&views::servers(&self.orchestrated.known.list())),
            Command::Connect(whom) => self.connect(whom).await,
            Command::Disconnect => self.disconnect(),
            Command::Remote(text) => self.send(&text).await,
            Command::Listen(port) => self.listen(port).await,
            Command::Stop => self.stop().await,
            Command::Tool { name, params } => self.tool(&name, params).await,
            Command::NewSession => {
                self.session = CallId::fresh().to_string();
                self.screen
                    .line(&format!("🆕 New session: {}", self.session));
            }
            Command::ShowSession => self.screen.line(&format!("🔖 Session: {}", self.session)),
            Command::History => self.history().await,
            Command::Tasks { all } => self.tasks(all).await,
            Command::Task(id) => self.task(&id, views::task).await,
            Command::Artifacts(id) => self.task(&id, views::artifacts).await,
            Command::CancelTask(id) => self.cancel(&id).await,
            Command::Answer(id) => self.answer(&id).await,
            Command::Memory => self.memory().await,
            Command::ClearMemory => match self.orchestrated.memory.clear().await {
                Ok(_) => self.screen.line("🧹 Rolling memory cleared"),
                Err(failure) => self.screen.trouble(&capital(&failure.message)),
            },
            Command::MemoryTask(id) => self.memory_task(&id).await,
            // The loop ends with it.
            Command::Quit => {}
        }
    }

    /// Says something to the agent, and stays until its answer.
    pub(super) async fn say(&mut self, text: &str) -> Ended {
        match self.desk.say(&self.session, text).await {
            Ok(live) => self.attend(live).await,
            Err(error) => {
                self.screen
                    .trouble(&format!("The message wasn't taken: {error}"));
                Ended::Failed
            }
        }
    }

    /// Shows what a task makes and asks, until it ends or nobody answers.
    pub(super) async fn attend(&mut self, live: LiveTask) -> Ended {
        let id = live.seen.borrow().id.clone();
        self.desk.attend(Some(&id));
        let ended = self.follow(&live, &id).await;
        self.desk.attend(None);
        if ended == Ended::Asks {
            let put = live.seen.borrow().open.first().map(|open| open.key.clone());
            self.desk.watch(&live, put.unwrap_or_default());
        }
        ended
    }

    async fn follow(&mut self, live: &LiveTask, id: &TaskId) -> Ended {
        let Self {
            screen,
            input,
            desk,
            ..
        } = self;
        let mut seen = live.seen.clone();
        let mut answering = Answering::new(screen);
        loop {
            let task = seen.borrow_and_update().clone();
            if task.state.is_terminal() {
                answering.end(&task);
                return ended(&task);
            }
            answering.news(&task);
            if let Some(open) = task.open.first() {
                screen.end_pieces();
                match input.ask(&open.question, true).await {
                    Asked::Answered(answer) => {
                        let answer = (open.key.clone(), Answer::Elicit(answer));
                        match live.tell(Vec::new(), Some(answer)).await {
                            Ok(_) | Err(TaskError::HasEnded(_)) => {}
                            Err(error) => {
                                screen.trouble(&format!("The answer wasn't taken: {error}"))
                            }
                        }
                    }
                    Asked::Later => {
                        answering.waits(&open.question);
                        return Ended::Asks;
                    }
                    Asked::Interrupted => cancel(live, screen).await,
                }
                continue;
            }
            tokio::select! {
                changed = seen.changed() => if changed.is_err() { break },
                said = input.signals.next() => match said {
                    Said::Interrupt => cancel(live, screen).await,
                    // It goes on with the next start, where it was kept.
                    Said::Terminate => {
                        screen.end_pieces();
                        return Ended::Failed;
                    }
                },
            }
        }
        // It runs here no more: it ended in the last moment, or another has it.
        let Ok(Some(task)) = desk.live.tasks.get(id).await else {
            screen.end_pieces();
            return Ended::Failed;
        };
        answering.end(&task);
        ended(&task)
    }

    /// Calls an agent; whoever types answers what it asks. `None`: it was cancelled, and that was said.
    async fn call<M: Message<Reply = Result<ToolResult, Failure>>>(
        &mut self,
        agent: &AgentRef,
        message: M,
    ) -> Option<Result<ToolResult, Failure>> {
        let mut call = agent
            .call(message)
            .principal(Principal::local_operator())
            .within(CALL_MAX)
            .start();
        let Self { screen, input, .. } = self;
        loop {
            let event = tokio::select! {
                event = call.next() => event,
                _ = input.signals.next() => break,
            };
            match event {
                None => return Some(call.reply().await.map_err(Failure::from).flatten()),
                Some(CallEvent::Progress(progress)) => {
                    progress
                        .message
                        .iter()
                        .for_each(|message| screen.aside(message));
                }
                Some(CallEvent::Question(asked)) => match input.ask(&asked.question, false).await {
                    Asked::Answered(answer) => asked.answer(Answer::Elicit(answer)),
                    Asked::Later => asked.refuse(Failure::nobody_to_ask("nobody answered")),
                    Asked::Interrupted => break,
                },
                Some(_) => {}
            }
        }
        call.cancel();
        screen.line(CANCELLED);
        None
    }
}

fn ended(task: &Task) -> Ended {
    if task.state == TaskState::Completed {
        Ended::Answered
    } else {
        Ended::Failed
    }
}

async fn cancel(live: &LiveTask, screen: &Screen) {
    match live.cancel().await {
        Ok(_) | Err(TaskError::HasEnded(_)) => {}
        Err(error) => screen.trouble(&format!("The task wasn't cancelled: {error}")),
    }
}

/// What is said where somebody had enough of it.
const CANCELLED: &str = "⏹ Cancelled";
/// What is said where `:connect` has to come first.
const NOT_CONNECTED: &str = "Not connected: use :connect URL";

impl Shell<'_> {
    async fn tool(&mut self, name: &str, params: RawObject) {
        let agent = self.orchestrated.agent.clone();
        match self.call(&agent, CallTool::new(name, params)).await {
            None => {}
            Some(Ok(result)) if !result.is_error() => self.result(&result),
            Some(Ok(result)) => self.screen.trouble(&format!(
                "The tool {name} failed: {}",
                text_of_result(&result)
            )),
            Some(Err(failure)) if failure.kind == FailureKind::NotFound => {
                let tools = self
                    .orchestrated
                    .toolbox
                    .list()
                    .into_iter()
                    .map(|tool| tool.name);
                let tools = tools.collect::<Vec<_>>().join(", ");
                self.screen.trouble(&format!(
                    "{} (there are: {tools})",
                    capital(&failure.message)
                ));
            }
            Some(Err(failure)) => self
                .screen
                .trouble(&format!("The tool {name} failed: {}", failure.message)),
        }
    }

    /// A tool's result: values laid out, texts as they are.
    fn result(&self, result: &ToolResult) {
        let text = match result.0.get("structuredContent") {
            Some(value) => print::laid_out(value),
            None => {
                let text = text_of_result(result);
                print::of_text(&text).unwrap_or(text)
            }
        };
        self.screen.line(&format!("📋 Tool Result:\n{text}"));
    }

    pub(super) async fn connect(&mut self, whom: Whom) {
        let Self {
            node,
            setup,
            orchestrated,
            listening,
            input,
            ..
        } = self;
        let connecting = async {
            match (whom, listening) {
                (Whom::Address(typed), Some(listening)) if remote::is_here(&typed, listening) => {
                    let here =
                        remote::connect_here(node.system(), typed.clone(), &setup.agent.id).await;
                    here.map_err(|why| (typed, why))
                }
                (whom, _) => remote::connect(&orchestrated.known, whom).await,
            }
        };
        let connected = tokio::select! {
            connected = connecting => connected,
            _ = input.signals.next() => return self.screen.line(CANCELLED),
        };
        match connected {
            Ok(remote) => {
                self.screen
                    .line(&format!("🔗 Connected to remote agent: {}", remote.typed));
                self.screen.line(&format!(
                    "✅ Successfully connected to agent: {}",
                    remote.name
                ));
                self.remote = Some(remote);
            }
            Err((whom, why)) => {
                self.screen
                    .trouble(&format!("Failed to connect to {}: {why}", one_line(&whom)));
            }
        }
    }

    fn disconnect(&mut self) {
        match self.remote.take() {
            Some(remote) => self
                .screen
                .line(&format!("🔌 Disconnected from {}", remote.at)),
            None => self.screen.trouble(NOT_CONNECTED),
        }
    }

    /// Sends a task to the connected agent.
    async fn send(&mut self, text: &str) {
        let Some(remote) = &self.remote else {
            return self.screen.trouble(NOT_CONNECTED);
        };
        let (agent, to, at_ms) = (remote.agent.clone(), remote.id.clone(), now_ms());
        let key = CallId::fresh().to_string();
        let said = Converse::of([Content::text(text)])
            .0
            .with("key", &key)
            .with("context", &remote.context);
        // Before it goes out: what happens meanwhile must not make it forgotten.
        let working = TaskState::Working;
        let outgoing = Outgoing {
            task: key.clone(),
            to,
            request: text.to_owned(),
            answer: None,
            state: working,
            at_ms,
        };
        self.remembered(self.orchestrated.memory.remember(outgoing.clone()).await);
        let Some(reply) = self.call(&agent, Converse(said)).await else {
            return self.remembered(
                self.orchestrated
                    .memory
                    .update(&key, TaskState::Canceled, None)
                    .await,
            );
        };
        let answer = reply
            .as_ref()
            .map_or_else(|failure| failure.message.clone(), text_of_result);
        let (task, state) = match sent(&reply) {
            Ok(place) => place,
            Err(why) => {
                self.screen
                    .trouble(&format!("Failed to send the task: {why}"));
                return self.remembered(
                    self.orchestrated
                        .memory
                        .update(&key, TaskState::Failed, Some(why))
                        .await,
                );
            }
        };
        let task = task.unwrap_or_else(|| key.clone());
        let settled = Outgoing {
            task: task.clone(),
            answer: Some(answer),
            state,
            ..outgoing
        };
        self.remembered(self.orchestrated.memory.settle(&key, settled).await);
        self.screen.line("✅ Task sent successfully!");
        self.screen.line(&format!("   Task ID: {task}"));
        self.screen.line(&format!(
            "   Initial state reported by remote: {}",
            views::camel(state)
        ));
        if let (true, Ok(result)) = (text.trim_start().starts_with(":tool "), &reply) {
            self.result(result);
        }
    }

    fn remembered(&self, done: Result<(), Failure>) {
        if let Err(failure) = done {
            self.screen.trouble(&format!(
                "The task isn't in the memory: {}",
                failure.message
            ));
        }
    }

    pub(super) async fn listen(&mut self, port: Option<u16>) {
        if let Some(address) = &self.listening {
            return self
                .screen
                .trouble(&format!("Already listening on {address} (:stop ends that)"));
        }
        let bind = SocketAddr::new(self.setup.bind.ip(), port.unwrap_or(self.setup.bind.port()));
        self.screen
            .line(&format!("🚀 Starting server on port {}...", bind.port()));
        match self
            .node
            .listen_a2a(self.setup.topology, &self.setup.agent.id, bind)
            .await
        {
            Ok(Listening { url, .. }) => {
                // Without its path.
                let address = url.split('/').take(3).collect::<Vec<_>>().join("/");
                self.screen.line(&format!("✅ Server started on {address}"));
                self.listening = Some(address);
            }
            Err(error) => self
                .screen
                .trouble(&format!("Failed to start the server: {error}")),
        }
    }

    pub(super) async fn stop(&mut self) {
        if self.listening.take().is_none() {
            return self
                .screen
                .trouble("Not listening (:listen PORT begins it)");
        }
        self.screen.line("🛑 Stopping server...");
        self.node.stop_listening(self.setup.topology).await;
        self.screen.line("✅ Server stopped");
    }

    fn card(&self, of_remote: bool) {
        let card = match (of_remote, &self.remote) {
            (false, _) => {
                let agent = self.setup.agent;
                let description = agent.description.as_deref().unwrap_or_default();
                let address = self
                    .listening
                    .as_deref()
                    .unwrap_or("none, it isn't listening (:listen PORT)");
                let tools = self.orchestrated.toolbox.list();
                views::card(
                    [agent.name(), &agent.id, description, address],
                    tools.iter().map(|tool| (&*tool.name, &*tool.description)),
                )
            }
            (true, Some(remote)) => {
                let Some(known) = self.orchestrated.known.get(&remote.id) else {
                    return self.screen.trouble("The connected agent is known no more");
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
                        views::address(&known),
                    ],
                    skills,
                )
            }
            (true, None) => return self.screen.trouble(NOT_CONNECTED),
        };
        self.screen.line(&card);
    }

    async fn history(&self) {
        self.shown(
            self.desk
                .ours(Some(&self.session))
                .await
                .map(|tasks| views::history(&self.session, &tasks)),
        );
    }

    pub(super) async fn tasks(&self, all: bool) {
        let tasks = match all {
            true => self.desk.all().await,
            false => self.desk.ours(Some(&self.session)).await,
        };
        self.shown(tasks.map(|tasks| views::tasks(&tasks, all)));
    }

    async fn found(&self, id: &str) -> Option<Arc<Task>> {
        self.desk
            .find(id)
            .await
            .inspect_err(|why| self.screen.trouble(why))
            .ok()
    }

    /// Shows a task, with the steps of the plan that it has come to.
    async fn task(&self, id: &str, view: fn(&Task, &[Arc<Task>]) -> String) {
        let Some(task) = self.found(id).await else {
            return;
        };
        self.shown(
            self.desk
                .parts(&task)
                .await
                .map(|parts| view(&task, &parts)),
        );
    }

    pub(super) async fn cancel(&self, id: &str) {
        let Some(task) = self.found(id).await else {
            return;
        };
        match self.desk.cancel(&task.id).await {
            Ok(task) if task.state.is_terminal() => {
                self.screen.line(&format!("⏹ Task {} cancelled", task.id))
            }
            Ok(task) => self
                .screen
                .line(&format!("⏹ Task {} is being cancelled", task.id)),
            Err(TaskError::HasEnded(state)) => {
                self.screen.trouble(&format!(
                    "Task {} has ended: {}",
                    task.id,
                    views::camel(state)
                ));
            }
            Err(error) => self.screen.trouble(&capital(&error.to_string())),
        }
    }

    /// Goes on with a task that asks.
    pub(super) async fn answer(&mut self, id: &str) {
        let Some(task) = self.found(id).await else {
            return;
        };
        match self.desk.live.get(&task.id) {
            Some(live) => drop(self.attend(live).await),
            None if task.state.is_terminal() => {
                self.screen.trouble(&format!(
                    "Task {} has ended (:task {} shows it)",
                    task.id, task.id
                ));
            }
            None => self
                .screen
                .trouble(&format!("Task {} isn't this prompt's to answer", task.id)),
        }
    }

    async fn memory(&self) {
        if self.setup.agent.class == DataClass::Clinical {
            return self
                .screen
                .line("🧠 Nothing is remembered here: what is said is clinical");
        }
        self.shown(
            self.orchestrated
                .memory
                .list()
                .await
                .map(|all| views::memory(&all)),
        );
    }

    async fn memory_task(&self, id: &str) {
        match self.orchestrated.memory.get(id).await {
            Ok(Some(sent)) => self.screen.line(&views::memory_task(&sent)),
            Ok(None) => {
                let id = one_line(id);
                self.screen.trouble(&format!(
                    "There is no task {id} in the memory (:memory lists them)"
                ));
            }
            Err(failure) => self.screen.trouble(&capital(&failure.message)),
        }
    }

    /// What was read, or why it couldn't be.
    fn shown(&self, text: Result<String, impl Display>) {
        match text {
            Ok(text) => self.screen.line(&text),
            Err(error) => self.screen.trouble(&capital(&error.to_string())),
        }
    }
}
