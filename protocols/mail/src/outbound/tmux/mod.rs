//! Letters pasted into a tmux pane, and confirmed by looking at it.
//!
//! Nobody's word is taken for a delivery but the pane's own: what isn't seen there isn't delivered. Nothing is pasted where a
//! shell is in front, for it would run what it is told.

mod pane;

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use callboard_message::Failure;
use callboard_message::mail::{Deliver, Reach};
use callboard_message::text::cut_chars;
use callboard_runtime::{Agent, Cx, Handler, Handlers, Profile};
use futures::future::try_join;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use pane::{LINE_BREAK, Mark, Pane, Sight};

pub use pane::{PaneTarget, PaneTargetError};

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
        Self {
            target,
            socket: None,
            submit: true,
            command: Vec::new(),
            seen_within: TMUX_SEEN_WITHIN,
        }
    }
}

/// Handles [`Reach`]: says whether the pane may be written to. Handles [`Deliver`]: pastes the letter's text into a pane, one at a time.
///
/// The reply is true: the text was seen in the pane. `Unavailable`: it can't be pasted now, or it wasn't seen; try again.
/// `Rejected`: it was pasted [`TMUX_PASTES_MAX`](TMUX_PASTES_MAX) times and never seen. `InvalidInput`: the text has
/// control characters in it, or doesn't begin with who wrote it.
pub struct TmuxAgent {
    tmux: Tmux,
    options: TmuxOptions,
    unseen: Unseen,
}

impl TmuxAgent {
    /// Stands for a pane, which needn't be there yet.
    pub fn new(options: TmuxOptions) -> Self {
        Self {
            tmux: Tmux {
                socket: options.socket.clone(),
            },
            options,
            unseen: Unseen::default(),
        }
    }
}

impl Agent for TmuxAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Deliver>().exclusive::<Reach>();
    }

    /// What was pasted is counted before it is.
    fn profile() -> Profile {
        Profile::default()
            .mailbox_capacity(MAILBOX_MESSAGES_MAX)
            .cancel_safe()
    }
}

impl Handler<Deliver> for TmuxAgent {
    async fn handle(&mut self, letter: Deliver, _: &mut Cx) -> Result<(), Failure> {
        let pane = Pane::find(&self.tmux, &self.options.target, &self.options.command).await?;
        let TmuxOptions {
            submit,
            seen_within,
            ..
        } = self.options;
        Paste {
            tmux: &self.tmux,
            pane: &pane,
            submit,
            seen_within,
        }
        .deliver(&letter, &mut self.unseen)
        .await
    }
}

impl Handler<Reach> for TmuxAgent {
    async fn handle(&mut self, _: Reach, _: &mut Cx) -> Result<(), Failure> {
        Pane::find(&self.tmux, &self.options.target, &self.options.command)
            .await
            .map(drop)
    }
}

/// How long one command of tmux may take.
pub const TMUX_TIMEOUT: Duration = Duration::from_secs(2);
/// Most of what a command prints that is read, in bytes.
const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// What tmux finds its server by; nothing else of our surroundings concerns it.
const ENVIRONMENT: &str = "PATH HOME TERM TMUX_TMPDIR";

/// A server of tmux.
#[derive(Debug, Clone)]
struct Tmux {
    socket: Option<String>,
}

impl Tmux {
    /// The user's own server, or that of a socket: a path where it has a `/`, else a name beside the user's own.
    /// What a command prints. `input` is what it reads.
    ///
    /// # Errors
    /// `Unavailable`: it says no, there is no server or no tmux, or it takes longer than [`TMUX_TIMEOUT`].
    async fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<String, Failure> {
        match timeout(TMUX_TIMEOUT, self.to_the_end(arguments, input)).await {
            Ok(Ok(Some(output))) => Ok(output),
            Ok(Ok(None)) => Err(Failure::unavailable("tmux refuses, or has no server")),
            Ok(Err(error)) => {
                callboard_message::log::warn!(%error, "tmux can't be run");
                Err(Failure::unavailable("tmux can't be run"))
            }
            Err(_) => Err(Failure::unavailable("tmux doesn't answer")),
        }
    }

    async fn to_the_end(
        &self,
        arguments: &[&str],
        input: Option<&str>,
    ) -> io::Result<Option<String>> {
        let mut child = self
            .command()
            .args(arguments)
            .stdin(if input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .spawn()?;
        let (_, output) =
            try_join(feed(child.stdin.take(), input), read(child.stdout.take())).await?;
        let status = child.wait().await?;
        Ok(status
            .success()
            .then(|| String::from_utf8_lossy(&output).into_owned()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.env_clear();
        command.envs(
            ENVIRONMENT
                .split(' ')
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        );
        // Without it, what isn't ASCII is captured as `_`.
        command.arg("-u");
        match &self.socket {
            Some(path) if path.contains('/') => command.args(["-S", path]),
            Some(name) => command.args(["-L", name]),
            None => &mut command,
        };
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

async fn feed(to: Option<ChildStdin>, input: Option<&str>) -> io::Result<()> {
    if let (Some(mut to), Some(input)) = (to, input) {
        to.write_all(input.as_bytes()).await?;
    }
    Ok(())
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(from) = from {
        from.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await?;
    }
    Ok(output)
}

/// How long a text that was pasted may take to be seen.
pub const TMUX_SEEN_WITHIN: Duration = Duration::from_secs(5);
/// How often one message is pasted, if it isn't seen. After that it is left in the inbox.
pub const TMUX_PASTES_MAX: u32 = 3;
/// Bytes of a text that is pasted whole, after its lines were joined where they are: a terminal loses what a line has beyond
/// 4,095. Of a longer one its beginning is pasted, and how to read the rest.
pub const TMUX_TEXT_BYTES_MAX: usize = 3_500;

/// How a text begins that says whose it is: one of these. A program would take another beginning (`!`, `/`) for a command.
const HEADERS: [&str; 2] = ["[AGENT ", "[GUARDIAN GUIDANCE"];
/// Characters of a message that is too long which are pasted.
const BEGINNING_CHARS: usize = 200;
/// How long between two looks at the pane.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of what has gone off the pane's top that are looked at.
const HISTORY: &str = "-500";
/// Messages that were pasted and not seen, which are remembered.
const UNSEEN_MAX: usize = 64;

/// What was pasted and not seen.
#[derive(Debug, Default)]
struct Unseen(VecDeque<Pasted>);

#[derive(Debug)]
struct Pasted {
    message_id: String,
    /// Where the last was pasted, and how often the whole text was to be seen there before the first.
    pane: String,
    whole: usize,
    times: u32,
}

impl Unseen {
    fn get(&self, message_id: &str) -> Option<&Pasted> {
        self.0.iter().find(|pasted| pasted.message_id == message_id)
    }

    fn forget(&mut self, message_id: &str) {
        self.0.retain(|pasted| pasted.message_id != message_id);
    }

    /// Counts one more, and how often it was to be seen before the first in this pane.
    fn count(&mut self, message_id: &str, pane: &str, whole: usize) -> usize {
        if let Some(pasted) = self
            .0
            .iter_mut()
            .find(|pasted| pasted.message_id == message_id)
        {
            pasted.times += 1;
            if pasted.pane != pane {
                (pasted.pane, pasted.whole) = (pane.to_owned(), whole);
            }
            return pasted.whole;
        }
        if self.0.len() == UNSEEN_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Pasted {
            message_id: message_id.to_owned(),
            pane: pane.to_owned(),
            whole,
            times: 1,
        });
        whole
    }
}

/// A way into a pane that is free now.
struct Paste<'a> {
    tmux: &'a Tmux,
    pane: &'a Pane,
    /// Press Enter once it was seen.
    submit: bool,
    seen_within: Duration,
}

impl Paste<'_> {
    /// Delivers a letter. What comes back is true: the text was seen, and submitted if it should be.
    async fn deliver(&self, letter: &Deliver, unseen: &mut Unseen) -> Result<(), Failure> {
        let (id, pane) = (&letter.message_id, self.pane);
        let text = shown(&letter.text, id, pane.has_bracketed_paste)?;
        let mark = Mark::of(&text);
        let now = self.look(&mark).await?;
        // By the whole text alone: what is folded since may be what the pane's user has pasted.
        let is_late = |pasted: &Pasted| pasted.pane == pane.id && now.whole > pasted.whole;
        if !unseen.get(id).is_some_and(is_late) {
            if unseen
                .get(id)
                .is_some_and(|pasted| pasted.times >= TMUX_PASTES_MAX)
            {
                unseen.forget(id);
                return Err(Failure::rejected("pasted, and never seen in the pane"));
            }
            // Counted first: who drops this in the middle may have pasted it.
            let whole = unseen.count(id, &pane.id, now.whole);
            self.paste(&text).await?;
            self.see(&mark, Sight { whole, ..now }).await?;
        }
        if self.submit
            && !pane
                .if_still(self.tmux, false, &format!("send-keys -t {} Enter", pane.id))
                .await?
        {
            return Err(Failure::unavailable("seen in the pane, and not submitted"));
        }
        unseen.forget(id);
        Ok(())
    }

    async fn paste(&self, text: &str) -> Result<(), Failure> {
        let buffer = format!("callboard-{}", Uuid::now_v7().simple());
        self.tmux
            .run(&["load-buffer", "-b", &buffer, "-"], Some(text))
            .await?;
        let command = format!("paste-buffer -p -r -d -b {buffer} -t {}", self.pane.id);
        let pasted = self.pane.if_still(self.tmux, true, &command).await;
        if !matches!(pasted, Ok(true)) {
            // There is none where it was pasted and only the answer is missing.
            let _ = self.tmux.run(&["delete-buffer", "-b", &buffer], None).await;
        }
        if pasted? {
            Ok(())
        } else {
            Err(Failure::unavailable("another program came to the front"))
        }
    }

    async fn see(&self, mark: &Mark, before: Sight) -> Result<(), Failure> {
        let until = Instant::now() + self.seen_within;
        while !self.look(mark).await?.is_more_than(before) {
            if Instant::now() >= until {
                return Err(Failure::unavailable("not seen in the pane"));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn look(&self, mark: &Mark) -> Result<Sight, Failure> {
        let shown = self
            .tmux
            .run(
                &[
                    "capture-pane",
                    "-p",
                    "-J",
                    "-S",
                    HISTORY,
                    "-t",
                    &self.pane.id,
                ],
                None,
            )
            .await?;
        Ok(mark.count(&shown))
    }
}

/// The text as it is pasted: on lines of its own, without tabs, cut where it is too long. Unless the program has bracketed
/// paste enabled, it is one line: each line of another kind would be an input of its own, and one may be a command.
///
/// # Errors
/// `InvalidInput`: it has control characters, or doesn't begin with whose it is.
fn shown(text: &str, message_id: &str, has_bracketed_paste: bool) -> Result<String, Failure> {
    if !HEADERS.iter().any(|header| text.starts_with(header)) {
        return Err(Failure::invalid("the text doesn't begin with who wrote it"));
    }
    let text = text.replace('\t', "    ");
    if text.chars().any(|c| c.is_control() && c != '\n') || message_id.chars().any(char::is_control)
    {
        return Err(Failure::invalid("the text has control characters in it"));
    }
    let text = if has_bracketed_paste {
        text
    } else {
        one_line(&text)
    };
    if text.len() <= TMUX_TEXT_BYTES_MAX {
        return Ok(format!("\n{text}\n"));
    }
    let message_begins = text.find("]: ").map_or(0, |at| at + "]: ".len());
    let (header, message) = text.split_at(message_begins);
    Ok(format!(
        "\n{header}{}… (read_message {message_id})\n",
        cut_chars(message, BEGINNING_CHARS)
    ))
}

/// The text with [`LINE_BREAK`] and a space for every character that ends a line. Those that are control characters were
/// refused before.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\u{2028}', '\u{2029}'], &format!("{LINE_BREAK} "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callboard_message::FailureKind;

    /// Goal: what tmux says is read up to a limit, and no further. Method: as much, and one byte more.
    #[tokio::test]
    async fn output_is_bounded() {
        for more in [0, 1] {
            let said = tokio::io::repeat(b'x').take(OUTPUT_BYTES_MAX + more);
            assert_eq!(
                read(Some(said)).await.unwrap().len() as u64,
                OUTPUT_BYTES_MAX
            );
        }
    }

    const PREFIX: &str = "[AGENT a BROADCAST]: ";

    /// Goal: what is pasted is on lines of its own, obeyed by no terminal and lost by none. Method: rows, at the limit too.
    #[test]
    fn as_it_is_pasted() {
        let shown = |text: &str| shown(text, "m-1", true);
        assert_eq!(
            shown("[AGENT a TO AGENT b]: x\ty\nz").unwrap(),
            "\n[AGENT a TO AGENT b]: x    y\nz\n"
        );
        for text in [
            "\u{1b}[2J",
            "a\rb",
            "a\u{7f}",
            "a\u{9b}",
            "\0",
            "a\u{85}b",
            "a\u{b}b",
            "a\u{c}b",
        ] {
            let failure = shown(&format!("{PREFIX}{text}")).unwrap_err();
            assert_eq!(
                (failure.kind, &*failure.message),
                (
                    FailureKind::InvalidInput,
                    "the text has control characters in it"
                )
            );
        }
        let longest = format!(
            "{PREFIX}{}",
            "é".repeat((TMUX_TEXT_BYTES_MAX - PREFIX.len()) / 2)
        );
        let longest = longest + &"x".repeat((TMUX_TEXT_BYTES_MAX - PREFIX.len()) % 2);
        assert_eq!(
            (longest.len(), shown(&longest).unwrap()),
            (TMUX_TEXT_BYTES_MAX, format!("\n{longest}\n"))
        );
        let cut = format!(
            "\n{PREFIX}{}… (read_message m-1)\n",
            "é".repeat(BEGINNING_CHARS)
        );
        assert_eq!(shown(&(longest + "x")).unwrap(), cut);
    }

    /// Goal: without bracketed paste a text is one line, whatever ends its lines, and within the limit. Method: rows; a text
    /// that only its joined lines make too long; an id with a line break.
    #[test]
    fn joined_to_one_line() {
        let shown = |text: &str| shown(&format!("{PREFIX}{text}"), "m-1", false);
        for (text, expected) in [
            ("hello\n!rm -rf x\n/clear", "hello␊ !rm -rf x␊ /clear"),
            ("a\u{2028}!b\u{2029}!c\n\n!d", "a␊ !b␊ !c␊ ␊ !d"),
            ("\n!a\n", "␊ !a␊ "),
        ] {
            assert_eq!(shown(text).unwrap(), format!("\n{PREFIX}{expected}\n"));
        }
        let joined_bytes = "␊ ".len();
        let room = TMUX_TEXT_BYTES_MAX - PREFIX.len();
        let fits = "\n".repeat(room / joined_bytes) + &"x".repeat(room % joined_bytes);
        assert_eq!(shown(&fits).unwrap().len(), TMUX_TEXT_BYTES_MAX + 2);
        let cut = format!(
            "\n{PREFIX}{}… (read_message m-1)\n",
            "␊ ".repeat(BEGINNING_CHARS / 2)
        );
        assert_eq!(shown(&(fits + "x")).unwrap(), cut);
        assert!(super::shown(PREFIX, "m\n1", false).is_err());
    }

    /// Goal: nothing is pasted that a program takes for a command from its first character. Method: beginnings.
    #[test]
    fn begins_with_its_writer() {
        for text in [
            "!ls",
            "/clear",
            "\n[AGENT a BROADCAST]: x",
            " [AGENT a BROADCAST]: x",
            "AGENT",
            "",
        ] {
            for has_bracketed_paste in [true, false] {
                let failure = shown(text, "m-1", has_bracketed_paste).unwrap_err();
                assert_eq!(failure.kind, FailureKind::InvalidInput, "{text:?}");
            }
        }
        assert!(shown("[GUARDIAN GUIDANCE - STUCK]: x", "m-1", false).is_ok());
    }

    /// Goal: what is remembered is bounded, and counted by message. Method: one more than are kept.
    #[test]
    fn unseen_is_bounded() {
        let mut unseen = Unseen::default();
        for n in 0..=UNSEEN_MAX {
            unseen.count(&n.to_string(), "%0", 0);
        }
        unseen.count("1", "%0", 0);
        assert!(unseen.get("0").is_none() && unseen.0.len() == UNSEEN_MAX);
        assert_eq!(unseen.get("1").unwrap().times, 2);
        unseen.forget("1");
        assert!(unseen.get("1").is_none());
    }
}
