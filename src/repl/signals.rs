//! What the system says to a process while it talks to a person.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// Ctrl-C while no line is edited.
    Interrupt,
    /// The process is to end.
    Terminate,
}

/// Signals, heard from the beginning on. Within a tokio runtime only.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// It was said once, and stays.
    is_ending: bool,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, is_ending: false })
    }

    /// What is said next. It may be given up and waited for again.
    pub(super) async fn next(&mut self) -> Said {
        if self.is_ending {
            return Said::Terminate;
        }
        tokio::select! {
            Some(()) = self.interrupt.recv() => Said::Interrupt,
            Some(()) = self.terminate.recv() => {
                self.is_ending = true;
                Said::Terminate
            }
            // No signal will come any more.
            else => std::future::pending().await,
        }
    }
}
