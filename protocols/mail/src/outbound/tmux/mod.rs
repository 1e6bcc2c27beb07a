//! Delivery of mail by pasting it into a tmux pane and checking the pane's content.
//!
//! A message counts as delivered only once it is visible in the pane. Nothing is pasted while a
//! shell is in the foreground, because it would run the text as commands.

mod pane;

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use callboard_message::Failure;
use callboard_message::mail::{CheckDelivery, DeliverMessage};
use callboard_message::text::cut_chars;
use callboard_runtime::{Agent, AgentProfile, Context, Handler, Handlers};
use futures::future::try_join;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use pane::{LINE_BREAK, MarkerCount, Pane, PasteMarker};

pub use pane::{PaneTarget, PaneTargetError};

/// Capacity of the tmux agent's mailbox. A small one suffices, because the delivery worker waits
/// for each delivery.
const MAILBOX_MESSAGES_MAX: u32 = 16;

/// Target pane and settings of a [`TmuxAgent`].
#[derive(Debug, Clone)]
pub struct TmuxOptions {
    /// Target pane.
    pub target: PaneTarget,
    /// Socket of the tmux server: a path if it contains `/`, else a name; `None` for the user's
    /// default server.
    pub socket: Option<String>,
    /// Whether to press Enter after the pasted text has become visible.
    pub submit: bool,
    /// Programs to which text may be pasted, by the names that tmux reports
    /// (`pane_current_command`). One of them must be in the foreground. If empty, all programs are
    /// allowed except those that read text as commands, such as editors and interpreters. Shells
    /// are never allowed.
    pub allowed_programs: Vec<String>,
    /// Time within which pasted text must become visible in the pane; otherwise delivery fails.
    pub confirm_timeout: Duration,
}

impl TmuxOptions {
    /// Creates options for a pane of the user's default tmux server. Enter is pressed after each
    /// message, and all programs are allowed except shells and programs that read text as commands.
    pub fn new(target: PaneTarget) -> Self {
        Self {
            target,
            socket: None,
            submit: true,
            allowed_programs: Vec::new(),
            confirm_timeout: TMUX_CONFIRM_TIMEOUT,
        }
    }
}

/// Agent that delivers mail to a tmux pane, one message at a time. It handles [`DeliverMessage`] by
/// pasting the message's text, and [`CheckDelivery`] by checking whether the pane accepts input.
///
/// A delivery succeeds once the text is visible in the pane. Failures: `Unavailable` if the text
/// can't be pasted now or isn't visible in time; `Rejected` if it was pasted [`TMUX_PASTES_MAX`]
/// times without becoming visible; `InvalidInput` if the text has control characters other than
/// tabs and line feeds, or doesn't begin with its sender.
pub struct TmuxAgent {
    tmux: TmuxServer,
    options: TmuxOptions,
    unseen: UnconfirmedPastes,
}

impl TmuxAgent {
    /// Creates an agent for a pane, which needn't exist yet.
    pub fn new(options: TmuxOptions) -> Self {
        Self {
            tmux: TmuxServer {
                socket: options.socket.clone(),
            },
            options,
            unseen: UnconfirmedPastes::default(),
        }
    }
}

impl Agent for TmuxAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<DeliverMessage>()
            .exclusive::<CheckDelivery>();
    }

    /// Returns the settings of the agent. Handlers may be cancelled, because each paste is recorded
    /// before it is made.
    fn profile() -> AgentProfile {
        AgentProfile::default()
            .mailbox_capacity(MAILBOX_MESSAGES_MAX)
            .cancel_safe()
    }
}

impl Handler<DeliverMessage> for TmuxAgent {
    async fn handle(&mut self, letter: DeliverMessage, _: &mut Context) -> Result<(), Failure> {
        let pane = Pane::find(
            &self.tmux,
            &self.options.target,
            &self.options.allowed_programs,
        )
        .await?;
        let TmuxOptions {
            submit,
            confirm_timeout: seen_within,
            ..
        } = self.options;
        PaneWriter {
            tmux: &self.tmux,
            pane: &pane,
            submit,
            confirm_timeout: seen_within,
        }
        .deliver(&letter, &mut self.unseen)
        .await
    }
}

impl Handler<CheckDelivery> for TmuxAgent {
    async fn handle(&mut self, _: CheckDelivery, _: &mut Context) -> Result<(), Failure> {
        check_pane(&self.options).await
    }
}

/// Checks whether a pane accepts mail, without writing to it.
///
/// # Errors
/// `Unavailable` with the reason: there is no such pane, or its foreground program isn't allowed.
pub async fn check_pane(options: &TmuxOptions) -> Result<(), Failure> {
    let tmux = TmuxServer {
        socket: options.socket.clone(),
    };
    let pane = Pane::find(&tmux, &options.target, &options.allowed_programs);
    pane.await.map(drop)
}

/// Timeout of one tmux command.
pub const TMUX_COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of bytes that are read from the output of a tmux command.
const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Environment variables that are passed to tmux commands, so that they find the tmux server. All
/// others are removed.
const ENVIRONMENT: &str = "PATH HOME TERM TMUX_TMPDIR";

/// Client that runs tmux commands on one tmux server.
#[derive(Debug, Clone)]
struct TmuxServer {
    socket: Option<String>,
}

impl TmuxServer {
    /// Runs a tmux command with `input` on its standard input, and returns its standard output.
    ///
    /// # Errors
    /// `Unavailable` if the command fails, tmux or its server isn't there, or it takes longer than
    /// [`TMUX_COMMAND_TIMEOUT`].
    async fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<String, Failure> {
        match timeout(TMUX_COMMAND_TIMEOUT, self.run_to_exit(arguments, input)).await {
            Ok(Ok(Some(output))) => Ok(output),
            Ok(Ok(None)) => Err(Failure::unavailable(
                "tmux refused the command, or no tmux server runs",
            )),
            Ok(Err(error)) => {
                callboard_message::log::warn!(%error, "tmux can't be run: install it, or correct `PATH`");
                Err(Failure::unavailable(
                    "tmux can't be run: install it, or correct `PATH`",
                ))
            }
            Err(_) => Err(Failure::unavailable(format!(
                "tmux did not answer in {} s",
                TMUX_COMMAND_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn run_to_exit(
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
        let (_, output) = try_join(
            write_stdin(child.stdin.take(), input),
            read_bounded(child.stdout.take()),
        )
        .await?;
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
        // Without it, other characters than ASCII are captured as `_`.
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

async fn write_stdin(to: Option<ChildStdin>, input: Option<&str>) -> io::Result<()> {
    if let (Some(mut to), Some(input)) = (to, input) {
        to.write_all(input.as_bytes()).await?;
    }
    Ok(())
}

async fn read_bounded(from: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(from) = from {
        from.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await?;
    }
    Ok(output)
}

/// Default time within which pasted text must become visible in the pane.
pub const TMUX_CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of times that one message is pasted if it doesn't become visible. After that,
/// delivery fails with `Rejected` and the message stays in the inbox.
pub const TMUX_PASTES_MAX: u32 = 3;
/// Maximum length of pasted text, in bytes. Of a longer text, an excerpt is pasted, with an
/// instruction to read the whole message. Terminals drop the part of a line beyond 4,095 bytes.
pub const TMUX_TEXT_BYTES_MAX: usize = 3_500;

/// Prefixes with which a pasted text may begin. Text with another beginning, such as `!` or `/`,
/// could be read as a command.
const ALLOWED_PREFIXES: [&str; 2] = ["[AGENT ", "[GUARDIAN GUIDANCE"];
/// Length of the excerpt that is pasted of a message that is too long, in characters.
const EXCERPT_CHARS: usize = 200;
/// Interval between checks of the pane's content.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Start of the scrollback that is searched for pasted text: 500 lines above the visible part.
const SCROLLBACK_START: &str = "-500";
/// Maximum number of unconfirmed pastes that are remembered. Beyond it, the oldest is forgotten.
const UNCONFIRMED_MAX: usize = 64;

/// Messages that were pasted but have not become visible yet, oldest first.
#[derive(Debug, Default)]
struct UnconfirmedPastes(VecDeque<UnconfirmedPaste>);

#[derive(Debug)]
struct UnconfirmedPaste {
    message_id: String,
    /// tmux id of the pane into which the message was last pasted.
    pane: String,
    /// Number of occurrences of the text in that pane before the first paste.
    whole: usize,
    attempts: u32,
}

impl UnconfirmedPastes {
    fn get(&self, message_id: &str) -> Option<&UnconfirmedPaste> {
        self.0.iter().find(|pasted| pasted.message_id == message_id)
    }

    fn forget(&mut self, message_id: &str) {
        self.0.retain(|pasted| pasted.message_id != message_id);
    }

    /// Records one more paste of a message. `whole` is the number of occurrences of its text in the
    /// pane now. Returns the number before the first paste into this pane.
    fn record_paste(&mut self, message_id: &str, pane: &str, whole: usize) -> usize {
        if let Some(pasted) = self
            .0
            .iter_mut()
            .find(|pasted| pasted.message_id == message_id)
        {
            pasted.attempts += 1;
            if pasted.pane != pane {
                (pasted.pane, pasted.whole) = (pane.to_owned(), whole);
            }
            return pasted.whole;
        }
        if self.0.len() == UNCONFIRMED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(UnconfirmedPaste {
            message_id: message_id.to_owned(),
            pane: pane.to_owned(),
            whole,
            attempts: 1,
        });
        whole
    }
}

/// Pastes messages into a pane that accepts input.
struct PaneWriter<'a> {
    tmux: &'a TmuxServer,
    pane: &'a Pane,
    /// Whether to press Enter once the pasted text is visible.
    submit: bool,
    confirm_timeout: Duration,
}

impl PaneWriter<'_> {
    /// Pastes a message. Returns once its text is visible, and has been submitted with Enter if the
    /// options say so. A text that became visible late is not pasted again.
    ///
    /// # Errors
    /// The failures of [`TmuxAgent`].
    async fn deliver(
        &self,
        letter: &DeliverMessage,
        unseen: &mut UnconfirmedPastes,
    ) -> Result<(), Failure> {
        let (id, pane) = (&letter.message_id, self.pane);
        let text = pasteable_text(&letter.text, id, pane.has_bracketed_paste)?;
        let mark = PasteMarker::of(&text);
        let now = self.read_pane(&mark).await?;
        // Only the whole text counts: a placeholder may stand for a paste of the pane's user.
        let is_late =
            |pasted: &UnconfirmedPaste| pasted.pane == pane.id && now.whole > pasted.whole;
        if !unseen.get(id).is_some_and(is_late) {
            if unseen
                .get(id)
                .is_some_and(|pasted| pasted.attempts >= TMUX_PASTES_MAX)
            {
                unseen.forget(id);
                return Err(Failure::rejected(format!(
                    "pasted {TMUX_PASTES_MAX} times, but never visible in the pane"
                )));
            }
            // Recorded first, because the paste may happen even if this future is dropped.
            let whole = unseen.record_paste(id, &pane.id, now.whole);
            self.paste(&text).await?;
            self.wait_until_shown(&mark, MarkerCount { whole, ..now })
                .await?;
        }
        if self.submit
            && !pane
                .run_if_unchanged(self.tmux, false, &format!("send-keys -t {} Enter", pane.id))
                .await?
        {
            return Err(Failure::unavailable(
                "visible in the pane, but not submitted: another program came to its foreground",
            ));
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
        let pasted = self.pane.run_if_unchanged(self.tmux, true, &command).await;
        if !matches!(pasted, Ok(true)) {
            // The buffer is gone already if the paste was made and only its result is missing.
            let _ = self.tmux.run(&["delete-buffer", "-b", &buffer], None).await;
        }
        if pasted? {
            Ok(())
        } else {
            Err(Failure::unavailable(
                "not pasted: another program came to the pane's foreground",
            ))
        }
    }

    async fn wait_until_shown(
        &self,
        mark: &PasteMarker,
        before: MarkerCount,
    ) -> Result<(), Failure> {
        let until = Instant::now() + self.confirm_timeout;
        while !self.read_pane(mark).await?.shows_more_than(before) {
            if Instant::now() >= until {
                return Err(Failure::unavailable(
                    "pasted, but not visible in the pane in time",
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn read_pane(&self, mark: &PasteMarker) -> Result<MarkerCount, Failure> {
        let shown = self
            .tmux
            .run(
                &[
                    "capture-pane",
                    "-p",
                    "-J",
                    "-S",
                    SCROLLBACK_START,
                    "-t",
                    &self.pane.id,
                ],
                None,
            )
            .await?;
        Ok(mark.count(&shown))
    }
}

/// Converts a message's text to the text to paste: with a line break before and after, tabs
/// replaced by spaces, and shortened if too long. Without bracketed paste, all lines are joined to
/// one, because a program would read each line as a separate input.
///
/// # Errors
/// `InvalidInput` if the text has control characters or no allowed prefix.
fn pasteable_text(
    text: &str,
    message_id: &str,
    has_bracketed_paste: bool,
) -> Result<String, Failure> {
    if !ALLOWED_PREFIXES
        .iter()
        .any(|header| text.starts_with(header))
    {
        return Err(Failure::invalid("the text doesn't begin with its sender"));
    }
    let text = text.replace('\t', "    ");
    if text.chars().any(|c| c.is_control() && c != '\n') || message_id.chars().any(char::is_control)
    {
        return Err(Failure::invalid("the text has control characters"));
    }
    let text = if has_bracketed_paste {
        text
    } else {
        join_lines(&text)
    };
    if text.len() <= TMUX_TEXT_BYTES_MAX {
        return Ok(format!("\n{text}\n"));
    }
    let message_begins = text.find("]: ").map_or(0, |at| at + "]: ".len());
    let (header, message) = text.split_at(message_begins);
    Ok(format!(
        "\n{header}{}… (read_message {message_id})\n",
        cut_chars(message, EXCERPT_CHARS)
    ))
}

/// Replaces each line feed, line separator and paragraph separator with [`LINE_BREAK`] and a space.
/// Other line ends were rejected as control characters.
fn join_lines(text: &str) -> String {
    text.replace(['\n', '\u{2028}', '\u{2029}'], &format!("{LINE_BREAK} "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callboard_message::FailureKind;

    /// Goal: output of tmux is read up to a limit. Method: as much, and one byte more.
    #[tokio::test]
    async fn output_is_bounded() {
        for more in [0, 1] {
            let said = tokio::io::repeat(b'x').take(OUTPUT_BYTES_MAX + more);
            assert_eq!(
                read_bounded(Some(said)).await.unwrap().len() as u64,
                OUTPUT_BYTES_MAX
            );
        }
    }

    const PREFIX: &str = "[AGENT a BROADCAST]: ";

    /// Goal: pasted text is on lines of its own, without control characters, and short enough for a
    /// terminal's line. Method: rows, at the limit too.
    /// Rows: P-18.
    #[test]
    fn as_it_is_pasted() {
        let shown = |text: &str| pasteable_text(text, "m-1", true);
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
                (FailureKind::InvalidInput, "the text has control characters")
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
            "é".repeat(EXCERPT_CHARS)
        );
        assert_eq!(shown(&(longest + "x")).unwrap(), cut);
    }

    /// Goal: without bracketed paste a text is one line, whatever its line ends, and within the
    /// limit. Method: rows; a text that only its joined lines make too long; an id with a line
    /// break.
    #[test]
    fn joined_to_one_line() {
        let shown = |text: &str| pasteable_text(&format!("{PREFIX}{text}"), "m-1", false);
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
            "␊ ".repeat(EXCERPT_CHARS / 2)
        );
        assert_eq!(shown(&(fits + "x")).unwrap(), cut);
        assert!(pasteable_text(PREFIX, "m\n1", false).is_err());
    }

    /// Goal: nothing is pasted that a program could take for a command by its first character.
    /// Method: beginnings.
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
                let failure = pasteable_text(text, "m-1", has_bracketed_paste).unwrap_err();
                assert_eq!(failure.kind, FailureKind::InvalidInput, "{text:?}");
            }
        }
        assert!(pasteable_text("[GUARDIAN GUIDANCE - STUCK]: x", "m-1", false).is_ok());
    }

    /// Goal: the number of remembered messages is bounded, and attempts are counted for each.
    /// Method: one more than the limit.
    #[test]
    fn unseen_is_bounded() {
        let mut unseen = UnconfirmedPastes::default();
        for n in 0..=UNCONFIRMED_MAX {
            unseen.record_paste(&n.to_string(), "%0", 0);
        }
        unseen.record_paste("1", "%0", 0);
        assert!(unseen.get("0").is_none() && unseen.0.len() == UNCONFIRMED_MAX);
        assert_eq!(unseen.get("1").unwrap().attempts, 2);
        unseen.forget("1");
        assert!(unseen.get("1").is_none());
    }
}
