//! Commands at a terminal, such as the REPL.

use std::net::TcpListener;
use std::process::Command;

use rexpect::process::Signal;
use rexpect::process::WaitStatus;
use rexpect::session::{Options, PtySession, spawn_with_options};

use crate::kit::{Home, SOON};

/// Time for a process to end before it is killed, in milliseconds.
const END_MS: u64 = 20_000;

/// A person's terminal with a command in it. What is written to it loses its escape codes; it ends with this.
pub struct Terminal(PtySession);

impl Terminal {
    /// Starts `callboard repl ARGUMENTS` at a terminal of the kind `term`.
    pub fn start(home: &Home, arguments: &[&str], term: &str) -> Self {
        Self::run(home, &[&["repl"], arguments].concat(), term)
    }

    /// Starts `callboard ARGUMENTS` at a terminal of the kind `term`.
    pub fn run(home: &Home, arguments: &[&str], term: &str) -> Self {
        let mut command = callboard(home, arguments);
        command.env("TERM", term);
        let wait = u64::try_from(SOON.as_millis()).unwrap();
        let options = Options::new()
            .timeout_ms(Some(wait))
            .strip_ansi_escape_codes(true);
        let mut session = spawn_with_options(command, options).unwrap();
        session.process_mut().set_kill_timeout(Some(END_MS));
        Self(session)
    }

    /// Types a line.
    pub fn types(&mut self, line: &str) {
        self.0.send_line(line).unwrap();
    }

    /// Types each line and waits for each of the texts beside it.
    pub fn goes(&mut self, lines: &[(&str, &[&str])]) {
        for (line, texts) in lines {
            self.types(line);
            texts.iter().for_each(|text| drop(self.sees(text)));
        }
    }

    /// Presses the arrow that goes back in what was typed, and Enter.
    pub fn repeats(&mut self) {
        self.0.send_line("\x1b[A").unwrap();
    }

    /// Presses Ctrl and a letter.
    pub fn control(&mut self, letter: char) {
        self.0.send_control(letter).unwrap();
    }

    /// Waits for a text, line breaks included; what came before it.
    pub fn sees(&mut self, text: &str) -> String {
        let needle = spelled(&text.replace('\n', "\r\n"));
        match self.0.exp_string(&needle) {
            Ok(before) => read(&before),
            Err(error) => panic!("no {text:?}: {}", read(&error.to_string())),
        }
    }

    /// Waits for the end of the process, in order.
    pub fn ends(self) {
        let mut session = self.0;
        session.exp_eof().unwrap();
        assert!(matches!(
            session.process().wait().unwrap(),
            WaitStatus::Exited(_, 0)
        ));
    }

    /// Has the system end the process at once, in the midst of whatever it does.
    pub fn kill(mut self) {
        self.0.process_mut().signal(Signal::SIGKILL).unwrap();
        assert!(matches!(
            self.0.process().wait().unwrap(),
            WaitStatus::Signaled(..)
        ));
    }

    /// Has the system ask the process to end.
    pub fn terminate(&mut self) {
        self.0.process_mut().signal(Signal::SIGTERM).unwrap();
    }
}

/// Returns the text as the session reads it: one char a byte.
fn spelled(text: &str) -> String {
    text.bytes().map(char::from).collect()
}

fn read(spelled: &str) -> String {
    let bytes: Vec<u8> = spelled
        .chars()
        .map(|letter| u8::try_from(u32::from(letter)).unwrap_or(b'?'))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn callboard(home: &Home, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command
        .args(arguments)
        .env_clear()
        .env("RUST_BACKTRACE", "1");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .env("HOME", home.path(""))
        .env("TMPDIR", home.path("tmp"))
        .current_dir(home.path(""));
    command
}

/// Ports that nobody has now. They are below those that the system gives to clients, so that no connection of another
/// test takes one in the meantime.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| {
        let tried = std::iter::repeat_with(|| rand::random_range(20_000..32_000));
        let mut bound = tried.filter_map(|port: u16| TcpListener::bind(("0.0.0.0", port)).ok());
        bound.next().unwrap()
    });
    held.map(|listener| listener.local_addr().unwrap().port())
}
