//! Terminal of `callboard top`: a screen of its own, its size, and the key that ends it.

use std::future::pending;
use std::io::{self, IsTerminal, Read, Write, stdin, stdout};
use std::thread;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::oneshot;

use super::screen::{LineStyle, ScreenLine, ScreenSize};

/// Switches to the other screen, hides the cursor, and cuts long lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Value of a special character that is turned off (`_POSIX_VDISABLE`).
const DISABLED_CHAR: u8 = if cfg!(target_os = "linux") { 0 } else { 0xff };
/// Reverts [`ENTER`].
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Terminal with a screen for views. The former screen and settings return when it is dropped.
pub(super) struct LiveTerminal {
    /// Settings before; `None` if standard input isn't a terminal.
    saved_termios: Option<Termios>,
    has_colour: bool,
}

impl LiveTerminal {
    /// Returns whether standard output is a terminal that can show a screen.
    pub(super) fn is_available() -> bool {
        stdout().is_terminal() && variable("TERM") != "dumb"
    }

    /// Opens the screen. Keys are neither shown nor collected to lines from now on. Ctrl-Z and Ctrl-\ have no
    /// effect, because they would leave the terminal as it is then.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn open() -> io::Result<Self> {
        let saved_termios = tcgetattr(stdin()).ok();
        if let Some(saved) = &saved_termios {
            let mut changed = saved.clone();
            changed
                .local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO);
            changed.special_codes[SpecialCodeIndex::VMIN] = 1;
            changed.special_codes[SpecialCodeIndex::VTIME] = 0;
            changed.special_codes[SpecialCodeIndex::VSUSP] = DISABLED_CHAR;
            changed.special_codes[SpecialCodeIndex::VQUIT] = DISABLED_CHAR;
            set_termios(&changed);
        }
        let terminal = Self {
            saved_termios,
            has_colour: variable("NO_COLOR").is_empty(),
        };
        write_all(ENTER)?;
        Ok(terminal)
    }

    /// Returns the size of the terminal; no limits if it is unknown.
    pub(super) fn size() -> ScreenSize {
        let size = tcgetwinsize(stdout()).ok();
        let known = |count: u16| Some(usize::from(count)).filter(|count| *count > 0);
        ScreenSize {
            columns: size.and_then(|size| known(size.ws_col)),
            rows: size.and_then(|size| known(size.ws_row)),
        }
    }

    /// Shows lines in place of the former ones.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn draw(&self, lines: &[ScreenLine]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                text.push_str("\r\n");
            }
            let styles = match line.style {
                LineStyle::Plain => "",
                LineStyle::Title => "\x1b[1m",
                LineStyle::Heading => "\x1b[7m",
                LineStyle::Alert if self.has_colour => "\x1b[31m",
                LineStyle::Alert => "\x1b[1m",
            };
            // The rest of the line is cleared.
            text.extend([styles, line.text.as_str(), "\x1b[0m\x1b[K"]);
        }
        text.push_str("\x1b[J");
        write_all(&text)
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        if let Err(error) = write_all(LEAVE) {
            tracing::debug!(%error, "failed to leave the screen");
        }
        if let Some(saved) = &self.saved_termios {
            set_termios(saved);
        }
    }
}

/// Waits until the key `q` is pressed; forever if standard input isn't a terminal, or ends.
pub(super) async fn wait_for_quit_key() {
    let (pressed, quit) = oneshot::channel();
    let read_keys = move || {
        let mut keys = stdin().lock().bytes().map_while(Result::ok);
        if keys.any(|key| matches!(key, b'q' | b'Q')) {
            // Nobody waits if the command ends for another reason.
            let _ = pressed.send(());
        }
    };
    // Reading has a thread of its own, because a blocked read can't be cancelled.
    let reader = stdin().is_terminal().then(|| {
        thread::Builder::new()
            .name("keys".to_owned())
            .spawn(read_keys)
    });
    if let Some(Err(error)) = reader {
        tracing::warn!(%error, "failed to read keys: end with Ctrl-C");
    }
    if quit.await.is_err() {
        pending::<()>().await;
    }
}

fn set_termios(termios: &Termios) {
    if let Err(error) = tcsetattr(stdin(), OptionalActions::Now, termios) {
        tracing::debug!(%error, "failed to change the terminal settings");
    }
}

fn write_all(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns an environment variable; empty if it isn't set.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
