//! The loop: a line is read, and what it means is done.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{CallId, DataClass, Failure, FailureKind, Message, Principal, TaskState, ToolResult};
use callboard_runtime::live::LiveTask;
use callboard_runtime::{AgentRef, CallEvent, RunningCall, SendError, Task, TaskError, TaskId};

use super::acts::CANCELLED;
use super::answer::Answering;
use super::command::{Command, Typed, read};
use super::complete::{Completion, Names};
use super::desk::Desk;
use super::input::{Asked, Got, Input, Said, Signals, ask};
use super::print::Screen;
use super::remote::Remote;
use super::{Setup, views};
use crate::node::{Node, Orchestrated};

/// How long a tool or an agent elsewhere may take, questions included.
const CALL_MAX: Duration = Duration::from_secs(60 * 60);
/// What is told where nothing of what is said is kept.
const CLINICAL: &str =
    "What is said here is clinical: it is kept in memory alone, and what isn't done when this ends is lost.";

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
    pub(super) signals: Signals,
    pub(super) completion: Completion,
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
            let got = tokio::select! {
                got = self.input.line(&prompt, true) => got,
                said = self.signals.next() => match (said, self.input.is_terminal()) {
                    // A terminal that can't edit lines lets it through.
                    (Said::Interrupt, true) => Got::GivenUp,
                    _ => Got::End,
                },
            };
            let line = match got {
                Got::Line(line) => line,
                Got::GivenUp => continue,
                Got::End => return,
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
        let Setup { name, id, .. } = &self.setup;
        self.screen.aside(&format!("{name} ({id}). :help lists the commands, :quit or Ctrl-D ends."));
        if self.setup.class == DataClass::Clinical {
            self.screen.aside(CLINICAL);
        }
    }

    fn prompt(&self) -> String {
        match &self.remote {
            Some(remote) => format!("{}@{}> ", self.setup.prompt, remote.at),
            None => format!("{}> ", self.setup.prompt),
        }
    }

    /// What can be completed from here on.
    async fn name_names(&self) {
        if !self.input.is_terminal() {
            return;
        }
        // Those of sessions before too: what was left open is gone on with by its id.
        let ours = self.desk.ours(None).await.unwrap_or_default();
        let sent = self.orchestrated.memory.list().await.unwrap_or_default();
        let agents = self.orchestrated.known.list().into_iter();
        self.completion.set(Names {
            tools: self.orchestrated.toolbox.list().into_iter().map(|tool| tool.name).collect(),
            agents: agents.map(|known| known.url).filter(|url| !url.is_empty()).collect(),
            tasks: ours.iter().map(|task| task.id.to_string()).chain(sent.into_iter().map(|sent| sent.task)).collect(),
        });
    }

    async fn act(&mut self, command: Command) {
        match command {
            Command::Help => self.screen.line(&views::help()),
            Command::Card { of_remote } => self.card(of_remote),
            Command::Servers => self.screen.line(&views::servers(&self.orchestrated.known.list())),
            Command::Connect(whom) => self.connect(whom).await,
            Command::Disconnect => self.disconnect(),
            Command::Remote(text) => self.send(&text).await,
            Command::Listen(port) => self.listen(port).await,
            Command::Stop => self.stop().await,
            Command::Tool { name, params } => self.tool(&name, params).await,
            Command::NewSession => {
                self.session = CallId::fresh().to_string();
                self.screen.line(&format!("🆕 New session: {}", self.session));
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
                self.screen.trouble(&format!("The message wasn't taken: {error}"));
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
        let Self { screen, input, signals, desk, .. } = self;
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
                answering.pause();
                match ask(&open.question, true, input, screen, signals).await {
                    Asked::Answered(answer) => match live.tell(Vec::new(), Some((open.key.clone(), answer))).await {
                        Ok(_) | Err(TaskError::HasEnded(_)) => {}
                        Err(error) => screen.trouble(&format!("The answer wasn't taken: {error}")),
                    },
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
                said = signals.next() => match said {
                    Said::Interrupt => cancel(live, screen).await,
                    // It goes on with the next start, where it was kept.
                    Said::Terminate => {
                        answering.pause();
                        return Ended::Failed;
                    }
                },
            }
        }
        // It runs here no more: it ended in the last moment, or another has it.
        match desk.tasks().get(id).await {
            Ok(Some(task)) => {
                answering.end(&task);
                ended(&task)
            }
            _ => {
                answering.pause();
                Ended::Failed
            }
        }
    }

    /// Hears a call to its end; whoever types answers what it asks. `None`: it was cancelled.
    async fn hear<M: Message>(&mut self, mut call: RunningCall<M>) -> Option<Result<M::Reply, SendError<M>>> {
        let Self { screen, input, signals, .. } = self;
        loop {
            let event = tokio::select! {
                event = call.next() => event,
                _ = signals.next() => {
                    call.cancel();
                    return None;
                }
            };
            match event {
                None => return Some(call.reply().await),
                Some(CallEvent::Progress(progress)) => {
                    progress.message.iter().for_each(|message| screen.aside(message));
                }
                Some(CallEvent::Question(asked)) => match ask(&asked.question, false, input, screen, signals).await {
                    Asked::Answered(answer) => asked.answer(answer),
                    Asked::Later => asked.refuse(Failure::new(FailureKind::NobodyToAsk, "nobody answered")),
                    Asked::Interrupted => {
                        call.cancel();
                        return None;
                    }
                },
                Some(_) => {}
            }
        }
    }

    pub(super) async fn call<M: Message<Reply = Result<ToolResult, Failure>>>(
        &mut self,
        agent: &AgentRef,
        message: M,
    ) -> Option<Result<ToolResult, Failure>> {
        let call = agent.call(message).principal(Principal::local_operator()).within(CALL_MAX).start();
        let reply = self.hear(call).await;
        if reply.is_none() {
            self.screen.line(CANCELLED);
        }
        reply.map(|reply| reply.map_err(Failure::from).flatten())
    }
}

fn ended(task: &Task) -> Ended {
    if task.state == TaskState::Completed { Ended::Answered } else { Ended::Failed }
}

async fn cancel(live: &LiveTask, screen: &Screen) {
    match live.cancel().await {
        Ok(_) | Err(TaskError::HasEnded(_)) => {}
        Err(error) => screen.trouble(&format!("The task wasn't cancelled: {error}")),
    }
}

/// A sentence that begins as one.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
