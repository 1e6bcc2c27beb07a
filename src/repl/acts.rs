//! What each command does.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use callboard_agents::memory::{Outgoing, now_ms};
use callboard_message::surface::{CallTool, Converse};
use callboard_message::{CallId, Content, DataClass, Failure, FailureKind, TaskState, ToolResult};
use callboard_runtime::{Task, TaskError};

use super::answer::text_of_result;
use super::command::{Params, Whom};
use super::remote::{self, sent};
use super::shell::{Shell, capital};
use super::{Setup, json, views};
use crate::node::Listening;

/// What is said where somebody had enough of it.
pub(super) const CANCELLED: &str = "⏹ Cancelled";
/// What is said where `:connect` has to come first.
const NOT_CONNECTED: &str = "Not connected: use :connect URL";

impl Shell<'_> {
    pub(super) async fn tool(&mut self, name: &str, Params(params): Params) {
        let agent = self.orchestrated.agent.clone();
        match self.call(&agent, CallTool::new(name, params)).await {
            None => {}
            Some(Ok(result)) if !result.is_error() => self.result(&result),
            Some(Ok(result)) => self.screen.trouble(&format!("The tool {name} failed: {}", text_of_result(&result))),
            Some(Err(failure)) if failure.kind == FailureKind::NotFound => {
                let tools = self.orchestrated.toolbox.list().into_iter().map(|tool| tool.name);
                let tools = tools.collect::<Vec<_>>().join(", ");
                self.screen.trouble(&format!("{} (there are: {tools})", capital(&failure.message)));
            }
            Some(Err(failure)) => self.screen.trouble(&format!("The tool {name} failed: {}", failure.message)),
        }
    }

    /// A tool's result: values laid out, texts as they are.
    pub(super) fn result(&self, result: &ToolResult) {
        let text = match result.0.get("structuredContent") {
            Some(value) => json::laid_out(value),
            None => {
                let text = text_of_result(result);
                json::of_text(&text).unwrap_or(text)
            }
        };
        self.screen.line(&format!("📋 Tool Result:\n{text}"));
    }

    pub(super) async fn connect(&mut self, whom: Whom) {
        let Self { node, setup, orchestrated, listening, signals, .. } = self;
        let connecting = async {
            match (whom, listening) {
                (Whom::Address(typed), Some(listening)) if remote::is_here(&typed, listening) => {
                    let here = remote::connect_here(node.system(), typed.clone(), setup).await;
                    here.map_err(|why| (typed, why))
                }
                (whom, _) => remote::connect(&orchestrated.known, whom).await,
            }
        };
        let connected = tokio::select! {
            connected = connecting => connected,
            _ = signals.next() => return self.screen.line(CANCELLED),
        };
        match connected {
            Ok(remote) => {
                self.screen.line(&format!("🔗 Connected to remote agent: {}", remote.typed));
                self.screen.line(&format!("✅ Successfully connected to agent: {}", remote.name));
                self.remote = Some(remote);
            }
            Err((whom, why)) => {
                self.screen.trouble(&format!("Failed to connect to {}: {why}", views::one_line(&whom)));
            }
        }
    }

    pub(super) async fn connect_to(&mut self, address: &str) {
        self.connect(Whom::Address(address.to_owned())).await;
    }

    pub(super) fn disconnect(&mut self) {
        match self.remote.take() {
            Some(remote) => self.screen.line(&format!("🔌 Disconnected from {}", remote.at)),
            None => self.screen.trouble(NOT_CONNECTED),
        }
    }

    /// Sends a task to the connected agent.
    pub(super) async fn send(&mut self, text: &str) {
        let Some(remote) = &self.remote else { return self.screen.trouble(NOT_CONNECTED) };
        let (agent, to, at_ms) = (remote.agent.clone(), remote.id.clone(), now_ms());
        let key = CallId::fresh().to_string();
        let said = Converse::of([Content::text(text)]).0.with("key", &key).with("context", &remote.context);
        // Before it goes out: what happens meanwhile must not make it forgotten.
        let working = TaskState::Working;
        let outgoing =
            Outgoing { task: key.clone(), to, request: text.to_owned(), answer: None, state: working, at_ms };
        self.remembered(self.orchestrated.memory.remember(outgoing.clone()).await);
        let Some(reply) = self.call(&agent, Converse(said)).await else {
            return self.remembered(self.orchestrated.memory.update(&key, TaskState::Canceled, None).await);
        };
        let answer = reply.as_ref().map_or_else(|failure| failure.message.clone(), text_of_result);
        let place = match sent(&reply) {
            Ok(place) => place,
            Err(why) => {
                self.screen.trouble(&format!("Failed to send the task: {why}"));
                return self.remembered(self.orchestrated.memory.update(&key, TaskState::Failed, Some(why)).await);
            }
        };
        let (task, state) = (place.task.unwrap_or_else(|| key.clone()), place.state);
        let settled = Outgoing { task: task.clone(), answer: Some(answer), state, ..outgoing };
        self.remembered(self.orchestrated.memory.settle(&key, settled).await);
        self.screen.line("✅ Task sent successfully!");
        self.screen.line(&format!("   Task ID: {task}"));
        self.screen.line(&format!("   Initial state reported by remote: {}", views::camel(state)));
        if let (true, Ok(result)) = (text.trim_start().starts_with(":tool "), &reply) {
            self.result(result);
        }
    }

    fn remembered(&self, done: Result<(), Failure>) {
        if let Err(failure) = done {
            self.screen.trouble(&format!("The task isn't in the memory: {}", failure.message));
        }
    }

    pub(super) async fn listen(&mut self, port: Option<u16>) {
        if let Some(address) = &self.listening {
            return self.screen.trouble(&format!("Already listening on {address} (:stop ends that)"));
        }
        let bind = SocketAddr::new(self.setup.bind.ip(), port.unwrap_or(self.setup.bind.port()));
        self.screen.line(&format!("🚀 Starting server on port {}...", bind.port()));
        match self.node.listen_a2a(self.setup.topology, &self.setup.id, bind).await {
            Ok(Listening { url, .. }) => {
                let address = origin(&url);
                self.screen.line(&format!("✅ Server started on {address}"));
                self.listening = Some(address);
            }
            Err(error) => self.screen.trouble(&format!("Failed to start the server: {error}")),
        }
    }

    pub(super) async fn stop(&mut self) {
        if self.listening.take().is_none() {
            return self.screen.trouble("Not listening (:listen PORT begins it)");
        }
        self.screen.line("🛑 Stopping server...");
        self.node.stop_listening(self.setup.topology).await;
        self.screen.line("✅ Server stopped");
    }

    pub(super) fn card(&self, of_remote: bool) {
        let card = match (of_remote, &self.remote) {
            (false, _) => {
                let Setup { id, name, description, .. } = &self.setup;
                let address = self.listening.as_deref().unwrap_or("none, it isn't listening (:listen PORT)");
                let tools = self.orchestrated.toolbox.list();
                views::card(
                    [name, id, description, address],
                    tools.iter().map(|tool| (&*tool.name, &*tool.description)),
                )
            }
            (true, Some(remote)) => {
                let Some(known) = self.orchestrated.known.get(&remote.id) else {
                    return self.screen.trouble("The connected agent is known no more");
                };
                let skills = known.skills.iter().map(|skill| (&*skill.id, &*skill.description));
                views::card([&known.name, &known.id, &known.description, views::address(&known)], skills)
            }
            (true, None) => return self.screen.trouble(NOT_CONNECTED),
        };
        self.screen.line(&card);
    }

    pub(super) async fn history(&self) {
        self.shown(self.desk.ours(Some(&self.session)).await.map(|tasks| views::history(&self.session, &tasks)));
    }

    pub(super) async fn tasks(&self, all: bool) {
        let tasks = match all {
            true => self.desk.all().await,
            false => self.desk.ours(Some(&self.session)).await,
        };
        self.shown(tasks.map(|tasks| views::tasks(&tasks, all)));
    }

    async fn found(&self, id: &str) -> Option<Arc<Task>> {
        self.desk.find(id).await.inspect_err(|why| self.screen.trouble(why)).ok()
    }

    /// Shows a task, with the steps of the plan that it has come to.
    pub(super) async fn task(&self, id: &str, view: fn(&Task, &[Arc<Task>]) -> String) {
        let Some(task) = self.found(id).await else { return };
        self.shown(self.desk.parts(&task).await.map(|parts| view(&task, &parts)));
    }

    pub(super) async fn cancel(&self, id: &str) {
        let Some(task) = self.found(id).await else { return };
        match self.desk.cancel(&task.id).await {
            Ok(task) if task.state.is_terminal() => self.screen.line(&format!("⏹ Task {} cancelled", task.id)),
            Ok(task) => self.screen.line(&format!("⏹ Task {} is being cancelled", task.id)),
            Err(TaskError::HasEnded(state)) => {
                self.screen.trouble(&format!("Task {} has ended: {}", task.id, views::camel(state)));
            }
            Err(error) => self.screen.trouble(&capital(&error.to_string())),
        }
    }

    /// Goes on with a task that asks.
    pub(super) async fn answer(&mut self, id: &str) {
        let Some(task) = self.found(id).await else { return };
        match self.desk.live(&task.id) {
            Some(live) => drop(self.attend(live).await),
            None if task.state.is_terminal() => {
                self.screen.trouble(&format!("Task {} has ended (:task {} shows it)", task.id, task.id));
            }
            None => self.screen.trouble(&format!("Task {} isn't this prompt's to answer", task.id)),
        }
    }

    pub(super) async fn memory(&self) {
        if self.setup.class == DataClass::Clinical {
            return self.screen.line("🧠 Nothing is remembered here: what is said is clinical");
        }
        self.shown(self.orchestrated.memory.list().await.map(|all| views::memory(&all)));
    }

    pub(super) async fn memory_task(&self, id: &str) {
        match self.orchestrated.memory.get(id).await {
            Ok(Some(sent)) => self.screen.line(&views::memory_task(&sent)),
            Ok(None) => {
                let id = views::one_line(id);
                self.screen.trouble(&format!("There is no task {id} in the memory (:memory lists them)"));
            }
            Err(failure) => self.screen.trouble(&capital(&failure.message)),
        }
    }

    /// What was read, or why it couldn't be.
    pub(super) fn shown(&self, text: Result<String, impl Display>) {
        match text {
            Ok(text) => self.screen.line(&text),
            Err(error) => self.screen.trouble(&capital(&error.to_string())),
        }
    }
}

/// A URL without its path.
fn origin(url: &str) -> String {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    url[..end].to_owned()
}
