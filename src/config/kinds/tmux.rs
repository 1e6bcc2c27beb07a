//! Mail delivery into tmux panes (`[[agent]] kind = "tmux"`).

use callboard_mail::outbound::tmux::{
    PaneTarget, PaneTargetError, TmuxAgent, TmuxOptions, check_pane,
};
use callboard_message::DataClass;
use callboard_message::mail::DeliveryMethod;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AgentDeclaration, Reachability, RunningAgent, StartContext, StartError, decode_declaration,
    report_key_errors,
};
use crate::config::problem::{ProblemCollector, find_program};
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, yes};

/// A program in a tmux pane. Mail is pasted into the pane.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TmuxDeclaration {
    /// Unique name in the directory.
    pub id: String,
    /// Pane, as `session:window.pane`.
    pub target: TmuxPane,
    /// tmux server: its name, or the path of its socket if it contains `/`. Default: the user's own
    /// server.
    pub socket: Option<String>,
    /// Whether Enter is sent after a message.
    #[serde(default = "yes")]
    pub submit: bool,
    /// Accepted foreground programs of the pane. Default: any but a shell.
    #[serde(default)]
    pub command: Vec<String>,
}

/// A pane, as `session:window.pane`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(with = "String")]
#[serde(try_from = "String")]
pub struct TmuxPane(PaneTarget);

impl TmuxPane {
    /// Returns the parsed pane.
    pub fn target(&self) -> &PaneTarget {
        &self.0
    }
}

impl TryFrom<String> for TmuxPane {
    type Error = PaneTargetError;

    fn try_from(written: String) -> Result<Self, PaneTargetError> {
        written.parse().map(Self)
    }
}

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<TmuxDeclaration>(tree, "a tmux pane", problems)
}

impl TmuxDeclaration {
    fn options(&self) -> TmuxOptions {
        TmuxOptions {
            socket: self.socket.clone(),
            submit: self.submit,
            allowed_programs: self.command.clone(),
            ..TmuxOptions::new(self.target.0.clone())
        }
    }

    /// Returns the identity of the pane: server and target.
    pub(super) fn pane_id(&self) -> (Option<&str>, &PaneTarget) {
        (self.socket.as_deref(), &self.target.0)
    }
}

impl AgentDeclaration for TmuxDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "tmux"
    }

    /// Returns the class `Personal`, though senders decide what they write.
    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn reachability(&self) -> Reachability {
        Reachability::Mail
    }

    fn mail_delivery(&self) -> DeliveryMethod {
        DeliveryMethod::Tmux
    }

    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let mut wrong = Vec::new();
        if self
            .socket
            .as_deref()
            .is_some_and(|name| name.is_empty() || name.contains(char::is_control))
        {
            wrong.push((
                "socket",
                "write the name of a server of tmux, or the path of its socket",
            ));
        }
        if self.command.iter().any(String::is_empty) {
            wrong.push(("command", "the program's name is empty"));
        }
        report_key_errors(&self.id, wrong, tree, problems);
        names.check_has_mailroom(&self.id, tree, problems);
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        if find_program("tmux").is_none() {
            problems.warning(tree.span_of("target"), "there is no program tmux in PATH");
        }
    }

    fn check_reachable(&self) -> Option<BoxFuture<'_, Result<(), String>>> {
        Some(Box::pin(async {
            let checked = check_pane(&self.options()).await;
            checked.map_err(|failure| failure.message)
        }))
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        let options = self.options();
        let agent = cx
            .system
            .prepare_with(move || TmuxAgent::new(options.clone()))
            .label(self.id.as_str())
            .spawn();
        Box::pin(async { Ok(RunningAgent::new(agent)) })
    }
}
