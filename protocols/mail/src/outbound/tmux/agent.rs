//! The agent that stands for a pane.

use std::time::Duration;

use callboard_message::Failure;
use callboard_message::mail::{Deliver, Reach};
use callboard_runtime::{Agent, Cx, Handler, Handlers, Profile};

use super::command::Tmux;
use super::pane::{Pane, PaneTarget};
use super::paste::{Paste, TMUX_SEEN_WITHIN, Unseen};

/// Letters that wait for a pane: whoever hands them out waits for one before the next.
const MAILBOX_MESSAGES_MAX: u32 = 16;

/// Where letters are pasted.
#[derive(Debug, Clone)]
pub struct TmuxOptions {
    /// The pane.
    pub target: PaneTarget,
    /// The server's socket: a path where it has a `/`, else a name; the user's own server where there is none.
    pub socket: Option<String>,
    /// Press Enter after what was pasted, once it was seen.
    pub submit: bool,
    /// The programs one of which must be in front, as tmux calls them (`pane_current_command`). None: any but a shell and some
    /// that take text for commands. A shell never.
    pub command: Vec<String>,
    /// How long a text that was pasted may take to be seen.
    pub seen_within: Duration,
}

impl TmuxOptions {
    /// A pane of the user's own server, submitted to, with any program but a shell in front.
    pub fn new(target: PaneTarget) -> Self {
        Self { target, socket: None, submit: true, command: Vec::new(), seen_within: TMUX_SEEN_WITHIN }
    }
}

/// Handles [`Reach`]: says whether the pane may be written to. Handles [`Deliver`]: pastes the letter's text into a pane, one at a time.
///
/// The reply is true: the text was seen in the pane. `Unavailable`: it can't be pasted now, or it wasn't seen; try again.
/// `Rejected`: it was pasted [`TMUX_PASTES_MAX`](super::TMUX_PASTES_MAX) times and never seen. `InvalidInput`: the text has
/// control characters in it, or doesn't begin with who wrote it.
pub struct TmuxAgent {
    tmux: Tmux,
    options: TmuxOptions,
    unseen: Unseen,
}

impl TmuxAgent {
    /// Stands for a pane, which needn't be there yet.
    pub fn new(options: TmuxOptions) -> Self {
        Self { tmux: Tmux::new(options.socket.clone()), options, unseen: Unseen::default() }
    }
}

impl Agent for TmuxAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Deliver>().exclusive::<Reach>();
    }

    /// What was pasted is counted before it is.
    fn profile() -> Profile {
        Profile::default().mailbox_capacity(MAILBOX_MESSAGES_MAX).cancel_safe()
    }
}

impl Handler<Deliver> for TmuxAgent {
    async fn handle(&mut self, letter: Deliver, _: &mut Cx) -> Result<(), Failure> {
        let pane = Pane::find(&self.tmux, &self.options.target, &self.options.command).await?;
        let TmuxOptions { submit, seen_within, .. } = self.options;
        Paste { tmux: &self.tmux, pane: &pane, submit, seen_within }.deliver(&letter, &mut self.unseen).await
    }
}

impl Handler<Reach> for TmuxAgent {
    async fn handle(&mut self, _: Reach, _: &mut Cx) -> Result<(), Failure> {
        Pane::find(&self.tmux, &self.options.target, &self.options.command).await.map(drop)
    }
}
