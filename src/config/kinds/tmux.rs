//! A program in a tmux pane that gets its mail typed in (`[[agent]]` of the kind `tmux`).

use callboard_mail::outbound::tmux::{PaneTarget, PaneTargetError, TmuxAgent, TmuxOptions};
use callboard_message::DataClass;
use callboard_message::mail::MemberWay;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::{AgentKind, Reach, Running, StartContext, StartError, declared, report};
use crate::config::problem::{Problems, in_path};
use crate::config::tree::Tree;
use crate::config::{Names, yes};

/// A program in a tmux pane, which gets its mail typed in.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmuxDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// The pane: `session:window.pane`.
    pub target: Pane,
    /// tmux' server: its name, or the path of its socket where there is a `/` in it; the user's own where it isn't said.
    pub socket: Option<String>,
    /// Whether a message is followed by Enter.
    #[serde(default = "yes")]
    pub submit: bool,
    /// The programs of which one must be in front; without them, anything but a shell.
    #[serde(default)]
    pub command: Vec<String>,
}

/// A pane, as `session:window.pane`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pane(PaneTarget);

impl Pane {
    /// The pane.
    pub fn target(&self) -> &PaneTarget {
        &self.0
    }
}

impl TryFrom<String> for Pane {
    type Error = PaneTargetError;

    fn try_from(written: String) -> Result<Self, PaneTargetError> {
        written.parse().map(Self)
    }
}

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    declared::<TmuxDeclaration>(tree, "a tmux pane", problems)
}

impl TmuxDeclaration {
    /// The pane that it is: two with the same one are one.
    pub(super) fn pane(&self) -> (Option<&str>, &PaneTarget) {
        (self.socket.as_deref(), &self.target.0)
    }
}

impl AgentKind for TmuxDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    /// Whatever somebody writes to it.
    fn class(&self) -> DataClass {
        DataClass::Personal
    }

    fn reach(&self) -> Reach {
        Reach::Mail
    }

    fn mail_way(&self) -> MemberWay {
        MemberWay::Tmux
    }

    fn check(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
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
            wrong.push(("command", "a program has a name"));
        }
        report(&self.id, wrong, tree, problems);
        names.check_has_mail(&self.id, tree, problems);
    }

    fn check_machine(&self, tree: &Tree, problems: &mut Problems<'_>) {
        if in_path("tmux").is_none() {
            problems.warning(tree.place("target"), "there is no program tmux in PATH");
        }
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        let options = TmuxOptions {
            socket: self.socket.clone(),
            submit: self.submit,
            command: self.command.clone(),
            ..TmuxOptions::new(self.target.0.clone())
        };
        let agent = cx
            .system
            .prepare_with(move || TmuxAgent::new(options.clone()))
            .label(self.id.as_str())
            .spawn();
        Box::pin(async { Ok(Running::new(agent)) })
    }
}
