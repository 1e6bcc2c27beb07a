//! Lookup of tmux panes, checks of their state, and recognition of pasted text.

use std::fmt;
use std::str::FromStr;

use callboard_message::Failure;

use super::TmuxServer;

/// Shells, and programs that pass input on to a shell. Text is never pasted to these.
const SHELLS: &str = "sh bash dash zsh fish ksh mksh csh tcsh ash busybox nu pwsh elvish xonsh yash \
    ssh mosh-client telnet su sudo doas login screen tmux";
/// Programs that read input as commands. Text is pasted to these only if they are allowed by name.
const COMMAND_PROGRAMS: &str = "less more most man vi vim view nvim ex ed emacs gdb lldb python ipython ruby irb perl lua php ghci r \
    julia psql mysql sqlite redis-cli mongosh ftp sftp bc";

/// tmux format that yields 1 if the pane's program has enabled bracketed paste. It yields 0 in
/// versions of tmux that can't tell.
const HAS_BRACKETED_PASTE: &str = "#{==:#{bracket_paste_flag},1}";

/// Address of a tmux pane, as `session:window.pane`: the window by number or name, the pane by
/// number.
///
/// Names are compared as a whole: `agent` never matches `agent-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PaneTarget {
    session: String,
    window: String,
    pane: u32,
}

/// Error for text that isn't `session:window.pane`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pane is named as session:window.pane, for example builder:0.0; names have letters, digits, `_` and `-`"
)]
pub struct PaneTargetError;

impl FromStr for PaneTarget {
    type Err = PaneTargetError;

    fn from_str(text: &str) -> Result<Self, PaneTargetError> {
        let (session, rest) = text.split_once(':').ok_or(PaneTargetError)?;
        let (window, pane) = rest.rsplit_once('.').ok_or(PaneTargetError)?;
        // These are used in tmux formats, where other characters would have a meaning.
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
        };
        let is_number = |number: &str| number.bytes().all(|b| b.is_ascii_digit());
        if !is_name(session) || !is_name(window) || !is_number(pane) {
            return Err(PaneTargetError);
        }
        let pane = pane.parse().map_err(|_| PaneTargetError)?;
        Ok(Self {
            session: session.to_owned(),
            window: window.to_owned(),
            pane,
        })
    }
}

impl fmt::Display for PaneTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}", self.session, self.window, self.pane)
    }
}

/// An existing pane whose foreground program accepts input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pane {
    /// tmux pane id, such as `%5`. It is unique over the lifetime of the tmux server.
    pub id: String,
    /// Foreground program.
    program: String,
    /// Whether the program has enabled bracketed paste, so that pasted text of several lines is one
    /// input. `false` if tmux can't tell (versions before 3.6).
    pub has_bracketed_paste: bool,
}

impl Pane {
    /// Finds the pane and checks that it accepts input now. One of `programs` must be in the
    /// foreground. If `programs` is empty, any program is accepted except shells and programs that
    /// read text as commands.
    ///
    /// # Errors
    /// `Unavailable` with the reason.
    pub async fn find(
        tmux: &TmuxServer,
        target: &PaneTarget,
        programs: &[String],
    ) -> Result<Self, Failure> {
        // Names are compared by tmux formats and here, as a whole. tmux's own target lookup accepts
        // prefixes of names, and falls back to another pane of the session.
        let format = format!(
            "#{{pane_id}} #{{pane_index}} #{{window_index}} #{{==:#{{window_name}},{}}} #{{==:#{{session_name}},{}}}",
            target.window, target.session
        );
        let panes = tmux.run(&["list-panes", "-a", "-F", &format], None).await?;
        let id = find_pane_id(&panes, target)?;
        // The program's name may contain spaces, so it comes last.
        let format = format!(
            "{HAS_BRACKETED_PASTE} #{{pane_dead}} #{{pane_in_mode}} #{{pane_synchronized}} #{{pane_current_command}}"
        );
        let state = tmux
            .run(&["display-message", "-p", "-t", &id, &format], None)
            .await?;
        let (bracketed_paste, state) = state
            .trim_end_matches('\n')
            .split_once(' ')
            .unwrap_or_default();
        let program = check_free(state, programs)?;
        Ok(Self {
            id,
            program,
            has_bracketed_paste: bracketed_paste == "1",
        })
    }

    /// Runs a tmux command if the pane still accepts input and has the same program in the
    /// foreground. For a paste (`is_paste`), bracketed paste must also still be enabled if it was.
    /// Returns whether the command was run. tmux checks and runs in one step.
    pub async fn run_if_unchanged(
        &self,
        tmux: &TmuxServer,
        is_paste: bool,
        command: &str,
    ) -> Result<bool, Failure> {
        let mut condition = self.unchanged_condition();
        if is_paste && self.has_bracketed_paste {
            condition = format!("#{{&&:{condition},{HAS_BRACKETED_PASTE}}}");
        }
        let otherwise = "display-message -p no";
        let output = tmux
            .run(
                &[
                    "if-shell", "-F", "-t", &self.id, &condition, command, otherwise,
                ],
                None,
            )
            .await?;
        Ok(output.is_empty())
    }

    /// Returns the tmux format that is true while the pane accepts input and has the same
    /// foreground program.
    fn unchanged_condition(&self) -> String {
        let same = format!("#{{==:#{{pane_current_command}},{}}}", self.program);
        let free = "#{==:#{pane_dead}#{pane_in_mode}#{pane_synchronized},000}";
        format!("#{{&&:{free},{same}}}")
    }
}

/// Returns the tmux id of the pane that matches `target`. `panes` is the output of `list-panes`.
///
/// # Errors
/// `Unavailable` if no pane or more than one matches.
fn find_pane_id(panes: &str, target: &PaneTarget) -> Result<String, Failure> {
    let is_meant = |line: &&str| {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, pane, window, window_is_named, session_is] = fields[..] else {
            return false;
        };
        let is_number = target.window.bytes().all(|b| b.is_ascii_digit());
        let window_is = if is_number {
            window == target.window
        } else {
            window_is_named == "1"
        };
        pane.parse() == Ok(target.pane) && session_is == "1" && window_is
    };
    let mut meant: Vec<_> = panes
        .lines()
        .filter(is_meant)
        .filter_map(|line| line.split(' ').next())
        .collect();
    meant.dedup();
    match meant[..] {
        [id] if is_pane_id(id) => Ok(id.to_owned()),
        [] | [_] => Err(Failure::unavailable(
            "no such tmux pane: open it, or correct `target`",
        )),
        _ => Err(Failure::unavailable(
            "several tmux panes fit `target`: name its window by number",
        )),
    }
}

fn is_pane_id(id: &str) -> bool {
    id.strip_prefix('%')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Checks that a pane accepts input, and returns its foreground program. `state` consists of three
/// flags (dead, in copy mode, synchronized) and the program's name, separated by spaces.
///
/// # Errors
/// `Unavailable` with the reason.
fn check_free(state: &str, programs: &[String]) -> Result<String, Failure> {
    let fields: Vec<_> = state.splitn(4, ' ').collect();
    let [dead, read_back, synchronized, program] = fields[..] else {
        return Err(Failure::unavailable(
            "no such tmux pane: open it, or correct `target`",
        ));
    };
    for (flag, why) in [
        (dead, "the pane's program has ended"),
        (read_back, "the pane is in copy mode"),
        (synchronized, "the pane is synchronized with others"),
    ] {
        if flag != "0" {
            return Err(Failure::unavailable(why));
        }
    }
    let named = program.trim_start_matches('-').to_lowercase();
    // `python3.11` counts as `python`.
    let kind = named.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_among = |all: &str| {
        all.split_ascii_whitespace()
            .any(|one| one == named || one == kind)
    };
    if is_among(SHELLS) {
        return Err(Failure::unavailable(format!(
            "a shell ({named}) is in the foreground: start the agent there"
        )));
    }
    if programs.is_empty() && is_among(COMMAND_PROGRAMS) {
        return Err(Failure::unavailable(format!(
            "{named} is in the foreground, which reads text as commands: allow it by name (`command`) if that is intended"
        )));
    }
    // Other characters would have a meaning in a tmux format.
    let is_plain =
        |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | ' ' | '/' | '@');
    if program.is_empty() || !program.chars().all(is_plain) {
        return Err(Failure::unavailable(
            "the foreground program's name has unusual characters",
        ));
    }
    if !programs.is_empty() && !programs.iter().any(|one| one == program) {
        return Err(Failure::unavailable(format!(
            "another program ({program}) is in the foreground than `command` names"
        )));
    }
    Ok(program.to_owned())
}

/// Number of visible characters at the beginning, and also at the end, by which a long text is
/// recognised.
const EDGE_CHARS: usize = 120;
/// Text that some programs display in place of a long paste, after removal of white space.
const FOLDED_PASTE: &str = "[Pastedtext#";

/// Symbol that replaces line breaks in text that is pasted as one line.
pub(super) const LINE_BREAK: char = '\u{240a}';

/// Visible characters by which a pasted text is recognised: all of a short text, or the beginning
/// and end of a long one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PasteMarker {
    begins: String,
    ends: String,
}

impl PasteMarker {
    pub fn of(text: &str) -> Self {
        let all: Vec<char> = visible_chars(text).collect();
        if all.len() <= 2 * EDGE_CHARS {
            return Self {
                begins: all.iter().collect(),
                ends: String::new(),
            };
        }
        let (begins, ends) = (&all[..EDGE_CHARS], &all[all.len() - EDGE_CHARS..]);
        Self {
            begins: begins.iter().collect(),
            ends: ends.iter().collect(),
        }
    }

    /// Counts the occurrences of the pasted text, and of placeholders for pastes, in a pane's
    /// content.
    pub fn count(&self, shown: &str) -> MarkerCount {
        let shown: String = visible_chars(shown).collect();
        let (mut whole, mut rest) = (0, &*shown);
        while let Some(after) =
            text_after(rest, &self.begins).and_then(|rest| text_after(rest, &self.ends))
        {
            whole += 1;
            rest = after;
        }
        MarkerCount {
            whole,
            folded: shown.matches(FOLDED_PASTE).count(),
        }
    }
}

/// Returns the text after the first occurrence of `part`.
fn text_after<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    text.find(part).map(|at| &text[at + part.len()..])
}

/// Number of occurrences of a pasted text, and of placeholders, in a pane's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MarkerCount {
    pub whole: usize,
    /// Number of placeholders for pastes. They may also stand for pastes of the pane's user.
    pub folded: usize,
}

impl MarkerCount {
    /// Returns whether the text or a placeholder occurs more often than in `before`. Because the
    /// pane's user may also cause a placeholder, this is meaningful only right after a paste.
    pub fn shows_more_than(self, before: Self) -> bool {
        self.whole > before.whole || self.folded > before.folded
    }
}

/// Returns the characters of a text that programs display unchanged. White space, control
/// characters, box-drawing characters, characters without width, and [`LINE_BREAK`] are left out.
fn visible_chars(text: &str) -> impl Iterator<Item = char> + '_ {
    let stays = |c: &char| {
        !c.is_whitespace()
            && !c.is_control()
            && *c != LINE_BREAK
            && !matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{2500}'..='\u{259f}' | '\u{fe00}'..='\u{fe0f}')
    };
    text.chars().filter(stays)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a target names exactly one pane, and has no characters with a meaning for tmux.
    /// Method: rows.
    #[test]
    fn targets() {
        for text in ["builder:0.0", "a_b-c:main.12", "é:1.0"] {
            assert_eq!(text.parse::<PaneTarget>().unwrap().to_string(), text);
        }
        let others = "a a:0 a.0 a:.0 :0.0 a:0. a:0.x a:0.-1 a:0.+1 =a:0.0 %1 $1:0.0 a:@1.0 a:{last}.0 a:!.0 a,b:0.0 a}:0.0 \
            a#:0.0 a:0.4294967296";
        for text in others.split(' ').chain(["", "a b:0.0", "a\n:0.0"]) {
            assert_eq!(text.parse::<PaneTarget>(), Err(PaneTargetError), "{text}");
        }
    }

    /// Goal: exactly one pane matches, or nothing is written. Method: lists as tmux prints them.
    #[test]
    fn only_one_is_meant() {
        let (several, no) = (
            Err("several tmux panes fit `target`: name its window by number"),
            Err("no such tmux pane: open it, or correct `target`"),
        );
        for (list, target, expected) in [
            ("%0 0 0 0 1\n%1 1 0 0 1\n%2 0 0 0 0\n", "a:0.0", Ok("%0")),
            ("%0 0 0 0 1\n%1 1 0 0 1\n%2 0 0 0 0\n", "a:0.1", Ok("%1")),
            ("%0 0 0 0 1\n%1 1 0 0 1\n%2 0 0 0 0\n", "a:0.2", no),
            ("%0 0 0 0 0\n", "a:0.0", no),
            ("%0 0 3 1 1\n", "a:main.0", Ok("%0")),
            ("%0 0 3 1 1\n%1 0 4 1 1\n", "a:main.0", several),
            // A window whose name is another's number.
            ("%0 0 3 1 1\n%1 0 4 0 1\n", "a:4.0", Ok("%1")),
            ("x 0 0 0 1\n", "a:0.0", no),
            ("%0 0 0 0 1 1\n", "a:0.0", no),
            ("", "a:0.0", no),
        ] {
            let found =
                find_pane_id(list, &target.parse().unwrap()).map_err(|failure| failure.message);
            assert_eq!(
                found.as_deref().map_err(|why| &**why),
                expected,
                "{list} {target}"
            );
        }
    }

    /// Goal: input is sent only to programs that read text and run no commands. Method: states.
    #[test]
    fn who_is_in_front() {
        let claude = ["claude".to_owned(), "bash".to_owned()];
        let python = ["python3.11".to_owned()];
        for (state, programs, expected) in [
            ("0 0 0 cat", &[][..], Ok("cat")),
            ("0 0 0 claude", &claude, Ok("claude")),
            (
                "0 0 0 node",
                &claude,
                Err("another program (node) is in the foreground than `command` names"),
            ),
            (
                "0 0 0 bash",
                &[],
                Err("a shell (bash) is in the foreground: start the agent there"),
            ),
            (
                "0 0 0 bash",
                &claude,
                Err("a shell (bash) is in the foreground: start the agent there"),
            ),
            (
                "0 0 0 -ZSH",
                &[],
                Err("a shell (zsh) is in the foreground: start the agent there"),
            ),
            (
                "0 0 0 ssh",
                &[],
                Err("a shell (ssh) is in the foreground: start the agent there"),
            ),
            (
                "0 0 0 less",
                &[],
                Err(
                    "less is in the foreground, which reads text as commands: allow it by name (`command`) if that is intended",
                ),
            ),
            (
                "0 0 0 python3.11",
                &[],
                Err(
                    "python3.11 is in the foreground, which reads text as commands: allow it by name (`command`) if that is intended",
                ),
            ),
            ("0 0 0 python3.11", &python, Ok("python3.11")),
            (
                "0 0 0 ",
                &[],
                Err("the foreground program's name has unusual characters"),
            ),
            (
                "0 0 0 a,b",
                &[],
                Err("the foreground program's name has unusual characters"),
            ),
            (
                "0 0 0 a\n0",
                &[],
                Err("the foreground program's name has unusual characters"),
            ),
            ("1 0 0 cat", &[], Err("the pane's program has ended")),
            ("0 1 0 cat", &[], Err("the pane is in copy mode")),
            (
                "0 0 1 cat",
                &[],
                Err("the pane is synchronized with others"),
            ),
            (
                "",
                &[],
                Err("no such tmux pane: open it, or correct `target`"),
            ),
        ] {
            let found = check_free(state, programs).map_err(|failure| failure.message);
            assert_eq!(found.as_deref().map_err(|why| &**why), expected, "{state}");
        }
    }

    /// Goal: a text is recognised however it is wrapped and framed, but not by a part of it.
    /// Method: screens.
    #[test]
    fn wrapped_and_framed() {
        let mark = PasteMarker::of("\n[AGENT a TO AGENT b]: hello é\nsecond line\n");
        let sight = |whole, folded| MarkerCount { whole, folded };
        for (shown, expected) in [
            ("", sight(0, 0)),
            ("[AGENT a TO AGENT b]: hello é\nsecond line", sight(1, 0)),
            (
                "│ > [AGENT a TO │\n│ AGENT b]:    │\n│ hello é    │\n│second li│\n│ne │",
                sight(1, 0),
            ),
            ("[AGENT a TO AGENT b]: hello é", sight(0, 0)),
            ("[AGENT a TO AGENT b]: hello _ second line", sight(0, 0)),
            ("> [Pasted text #1 +12 lines]", sight(0, 1)),
        ] {
            assert_eq!(mark.count(shown), expected, "{shown}");
        }
        let joined = "[AGENT a TO AGENT b]: hello é␊ second line";
        assert_eq!(
            (PasteMarker::of(joined), mark.count(joined)),
            (mark.clone(), sight(1, 0))
        );
        let twice = "[AGENT a TO AGENT b]: hello é\nsecond line\n".repeat(2);
        assert_eq!(mark.count(&twice), sight(2, 0));
    }

    /// Goal: beginning and end of a long text must be shown, in order. Method: one with the middle
    /// cut out, and halves.
    #[test]
    fn long_texts() {
        let begins: String = (0..EDGE_CHARS + 1)
            .map(|n| char::from(b'a' + (n % 26) as u8))
            .collect();
        let ends: String = (0..EDGE_CHARS + 1)
            .map(|n| char::from(b'A' + (n % 26) as u8))
            .collect();
        let text = format!("{begins} middle {ends}");
        let seen = |shown: &str| PasteMarker::of(&text).count(shown).whole;
        assert_eq!(
            (
                seen(&text),
                seen(&format!("{begins}…{ends}")),
                seen(&text.repeat(3))
            ),
            (1, 1, 3)
        );
        assert_eq!(
            (seen(&begins), seen(&ends), seen(&format!("{ends}{begins}"))),
            (0, 0, 0)
        );
    }

    /// Goal: only occurrences since the last look count. Method: pairs.
    #[test]
    fn more_than_before() {
        let of = |whole, folded| MarkerCount { whole, folded };
        assert!(of(1, 0).shows_more_than(of(0, 0)) && of(2, 1).shows_more_than(of(2, 0)));
        assert!(!of(1, 1).shows_more_than(of(1, 1)) && !of(0, 0).shows_more_than(of(1, 0)));
    }
}
