//! One letter into one pane: pasted, looked for, and submitted.

use std::collections::VecDeque;
use std::time::Duration;

use callboard_message::mail::Deliver;
use callboard_message::{Failure, FailureKind};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::command::Tmux;
use super::pane::Pane;
use super::seen::{LINE_BREAK, Mark, Sight};

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
pub(super) struct Unseen(VecDeque<Pasted>);

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
        if let Some(pasted) = self.0.iter_mut().find(|pasted| pasted.message_id == message_id) {
            pasted.times += 1;
            if pasted.pane != pane {
                (pasted.pane, pasted.whole) = (pane.to_owned(), whole);
            }
            return pasted.whole;
        }
        if self.0.len() == UNSEEN_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Pasted { message_id: message_id.to_owned(), pane: pane.to_owned(), whole, times: 1 });
        whole
    }
}

/// A way into a pane that is free now.
pub(super) struct Paste<'a> {
    pub(super) tmux: &'a Tmux,
    pub(super) pane: &'a Pane,
    /// Press Enter once it was seen.
    pub(super) submit: bool,
    pub(super) seen_within: Duration,
}

impl Paste<'_> {
    /// Delivers a letter. What comes back is true: the text was seen, and submitted if it should be.
    pub(super) async fn deliver(&self, letter: &Deliver, unseen: &mut Unseen) -> Result<(), Failure> {
        let (id, pane) = (&letter.message_id, self.pane);
        let text = shown(&letter.text, id, pane.has_bracketed_paste)?;
        let mark = Mark::of(&text);
        let now = self.look(&mark).await?;
        // By the whole text alone: what is folded since may be what the pane's user has pasted.
        let is_late = |pasted: &Pasted| pasted.pane == pane.id && now.whole > pasted.whole;
        if !unseen.get(id).is_some_and(is_late) {
            if unseen.get(id).is_some_and(|pasted| pasted.times >= TMUX_PASTES_MAX) {
                unseen.forget(id);
                return Err(Failure::new(FailureKind::Rejected, "pasted, and never seen in the pane"));
            }
            // Counted first: who drops this in the middle may have pasted it.
            let whole = unseen.count(id, &pane.id, now.whole);
            self.paste(&text).await?;
            self.see(&mark, Sight { whole, ..now }).await?;
        }
        if self.submit && !pane.if_still(self.tmux, &format!("send-keys -t {} Enter", pane.id)).await? {
            return Err(Failure::unavailable("seen in the pane, and not submitted"));
        }
        unseen.forget(id);
        Ok(())
    }

    async fn paste(&self, text: &str) -> Result<(), Failure> {
        let buffer = format!("callboard-{}", Uuid::now_v7().simple());
        self.tmux.run(&["load-buffer", "-b", &buffer, "-"], Some(text)).await?;
        let command = format!("paste-buffer -p -r -d -b {buffer} -t {}", self.pane.id);
        let pasted = self.pane.if_still_pastes(self.tmux, &command).await;
        if !matches!(pasted, Ok(true)) {
            // There is none where it was pasted and only the answer is missing.
            let _ = self.tmux.run(&["delete-buffer", "-b", &buffer], None).await;
        }
        if pasted? { Ok(()) } else { Err(Failure::unavailable("another program came to the front")) }
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
        let shown = self.tmux.run(&["capture-pane", "-p", "-J", "-S", HISTORY, "-t", &self.pane.id], None).await?;
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
    if text.chars().any(|c| c.is_control() && c != '\n') || message_id.chars().any(char::is_control) {
        return Err(Failure::invalid("the text has control characters in it"));
    }
    let text = if has_bracketed_paste { text } else { one_line(&text) };
    if text.len() <= TMUX_TEXT_BYTES_MAX {
        return Ok(format!("\n{text}\n"));
    }
    let message_begins = text.find("]: ").map_or(0, |at| at + "]: ".len());
    let ends =
        text[message_begins..].char_indices().nth(BEGINNING_CHARS).map_or(text.len(), |(at, _)| message_begins + at);
    Ok(format!("\n{}… (read_message {message_id})\n", &text[..ends]))
}

/// The text with [`LINE_BREAK`] and a space for every character that ends a line. Those that are control characters were
/// refused before.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\u{2028}', '\u{2029}'], &format!("{LINE_BREAK} "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "[AGENT a BROADCAST]: ";

    /// Goal: what is pasted is on lines of its own, obeyed by no terminal and lost by none. Method: rows, at the limit too.
    #[test]
    fn as_it_is_pasted() {
        let shown = |text: &str| shown(text, "m-1", true);
        assert_eq!(shown("[AGENT a TO AGENT b]: x\ty\nz").unwrap(), "\n[AGENT a TO AGENT b]: x    y\nz\n");
        for text in ["\u{1b}[2J", "a\rb", "a\u{7f}", "a\u{9b}", "\0", "a\u{85}b", "a\u{b}b", "a\u{c}b"] {
            let failure = shown(&format!("{PREFIX}{text}")).unwrap_err();
            assert_eq!(
                (failure.kind, &*failure.message),
                (FailureKind::InvalidInput, "the text has control characters in it")
            );
        }
        let longest = format!("{PREFIX}{}", "é".repeat((TMUX_TEXT_BYTES_MAX - PREFIX.len()) / 2));
        let longest = longest + &"x".repeat((TMUX_TEXT_BYTES_MAX - PREFIX.len()) % 2);
        assert_eq!((longest.len(), shown(&longest).unwrap()), (TMUX_TEXT_BYTES_MAX, format!("\n{longest}\n")));
        let cut = format!("\n{PREFIX}{}… (read_message m-1)\n", "é".repeat(BEGINNING_CHARS));
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
        let cut = format!("\n{PREFIX}{}… (read_message m-1)\n", "␊ ".repeat(BEGINNING_CHARS / 2));
        assert_eq!(shown(&(fits + "x")).unwrap(), cut);
        assert!(super::shown(PREFIX, "m\n1", false).is_err());
    }

    /// Goal: nothing is pasted that a program takes for a command from its first character. Method: beginnings.
    #[test]
    fn begins_with_its_writer() {
        for text in ["!ls", "/clear", "\n[AGENT a BROADCAST]: x", " [AGENT a BROADCAST]: x", "AGENT", ""] {
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
