//! Which pane is meant, and what is in it now.

use std::fmt;
use std::str::FromStr;

use callboard_message::Failure;

use super::Tmux;

/// Programs that run what they are told, or hand it to one that does.
const SHELLS: &str = "sh bash dash zsh fish ksh mksh csh tcsh ash busybox nu pwsh elvish xonsh yash \
    ssh mosh-client telnet su sudo doas login screen tmux";
/// Programs that take what is typed for commands, some of which run others. Those that wrap an agent are named where they
/// are meant.
const COMMANDED: &str = "less more most man vi vim view nvim ex ed emacs gdb lldb python ipython ruby irb perl lua php ghci r \
    julia psql mysql sqlite redis-cli mongosh ftp sftp bc";

/// Format that is 1 where the pane's program has enabled bracketed paste. A tmux that doesn't know the variable says 0.
const HAS_BRACKETED_PASTE: &str = "#{==:#{bracket_paste_flag},1}";

/// A pane, as `session:window.pane`: the window by its number or its name, the pane by its number.
///
/// A name is compared as a whole: `agent` is never `agent-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PaneTarget {
    session: String,
    window: String,
    pane: u32,
}

/// Name a pane as `session:window.pane`.
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
        // These stand in formats, where others would mean something.
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

/// A pane that is there, with a program in front that may be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pane {
    /// tmux' own name of it, `%5`: no other pane of the server has or had it.
    pub id: String,
    /// What is in front.
    program: String,
    /// Whether that program has enabled bracketed paste, so that several lines are one paste to it and not several inputs.
    /// `false` where tmux doesn't tell: versions before 3.6 don't.
    pub has_bracketed_paste: bool,
}

impl Pane {
    /// The pane that is meant, if it may be written to now. `programs`: those that may be in front; where there are none, any
    /// but a shell and what takes text for commands.
    ///
    /// # Errors
    /// `Unavailable`, with what is in the way.
    pub async fn find(
        tmux: &Tmux,
        target: &PaneTarget,
        programs: &[String],
    ) -> Result<Self, Failure> {
        // Compared by tmux, and here as a whole: where it resolves a name itself, it takes one that only begins like it, and
        // another pane of the session for one that isn't there.
        let format = format!(
            "#{{pane_id}} #{{pane_index}} #{{window_index}} #{{==:#{{window_name}},{}}} #{{==:#{{session_name}},{}}}",
            target.window, target.session
        );
        let panes = tmux.run(&["list-panes", "-a", "-F", &format], None).await?;
        let id = only(&panes, target)?;
        // One of these may hold what its program likes: it comes last, alone.
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
        let program = free(state, programs)?;
        Ok(Self {
            id,
            program,
            has_bracketed_paste: bracketed_paste == "1",
        })
    }

    /// Runs a command of tmux where the pane is as it was found: the same program in front, nobody reading back, and for a
    /// paste (`is_paste`) bracketed paste enabled still, where it was. `false` where it isn't. tmux judges and runs it in one
    /// step.
    pub async fn if_still(
        &self,
        tmux: &Tmux,
        is_paste: bool,
        command: &str,
    ) -> Result<bool, Failure> {
        let mut condition = self.still();
        if is_paste && self.has_bracketed_paste {
            condition = format!("#{{&&:{condition},{HAS_BRACKETED_PASTE}}}");
        }
        let otherwise = "display-message -p no";
        let said = tmux
            .run(
                &[
                    "if-shell", "-F", "-t", &self.id, &condition, command, otherwise,
                ],
                None,
            )
            .await?;
        Ok(said.is_empty())
    }

    /// The condition, as a tmux format, that the pane is as it was found.
    fn still(&self) -> String {
        let same = format!("#{{==:#{{pane_current_command}},{}}}", self.program);
        let free = "#{==:#{pane_dead}#{pane_in_mode}#{pane_synchronized},000}";
        format!("#{{&&:{free},{same}}}")
    }
}

/// The id of the one pane of a list that is meant.
fn only(panes: &str, target: &PaneTarget) -> Result<String, Failure> {
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
        [] | [_] => Err(Failure::unavailable("no such pane")),
        _ => Err(Failure::unavailable("more than one such pane")),
    }
}

fn is_pane_id(id: &str) -> bool {
    id.strip_prefix('%')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The program in front of a pane, from its state: whether it is dead, read back in and synchronized, and the program.
fn free(state: &str, programs: &[String]) -> Result<String, Failure> {
    let fields: Vec<_> = state.splitn(4, ' ').collect();
    let [dead, read_back, synchronized, program] = fields[..] else {
        return Err(Failure::unavailable("no such pane"));
    };
    for (flag, why) in [
        (dead, "the pane's program has ended"),
        (read_back, "somebody reads back in the pane"),
        (
            synchronized,
            "what is typed into the pane goes to others too",
        ),
    ] {
        if flag != "0" {
            return Err(Failure::unavailable(why));
        }
    }
    let named = program.trim_start_matches('-').to_lowercase();
    // `python3.11` is one like `python`.
    let kind = named.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_among = |all: &str| {
        all.split_ascii_whitespace()
            .any(|one| one == named || one == kind)
    };
    if is_among(SHELLS) {
        return Err(Failure::unavailable("a shell is in front"));
    }
    if programs.is_empty() && is_among(COMMANDED) {
        return Err(Failure::unavailable(
            "what is in front takes text for commands; name it, if it is meant",
        ));
    }
    // Others would mean something in a format.
    let is_plain =
        |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | ' ' | '/' | '@');
    if program.is_empty() || !program.chars().all(is_plain) {
        return Err(Failure::unavailable("the program in front isn't known"));
    }
    if !programs.is_empty() && !programs.iter().any(|one| one == program) {
        return Err(Failure::unavailable("another program is in front"));
    }
    Ok(program.to_owned())
}

/// How many characters of a long text's beginning and of its end are looked for.
const EDGE_CHARS: usize = 120;
/// What programs show in place of a long paste.
const FOLDED: &str = "[Pastedtext#";

/// Stands for a line break in a text that is pasted as one line.
pub(super) const LINE_BREAK: char = '\u{240a}';

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    begins: String,
    ends: String,
}

impl Mark {
    pub fn of(text: &str) -> Self {
        let all: Vec<char> = squash(text).collect();
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

    /// How often a pane shows it.
    pub fn count(&self, shown: &str) -> Sight {
        let shown: String = squash(shown).collect();
        let (mut whole, mut rest) = (0, &*shown);
        while let Some(after) = after(rest, &self.begins).and_then(|rest| after(rest, &self.ends)) {
            whole += 1;
            rest = after;
        }
        Sight {
            whole,
            folded: shown.matches(FOLDED).count(),
        }
    }
}

/// What follows the first `part` of a text.
fn after<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    text.find(part).map(|at| &text[at + part.len()..])
}

/// How often a pane shows a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sight {
    pub whole: usize,
    /// Pastes, whosever, of which it shows only that there are some.
    pub folded: usize,
}

impl Sight {
    /// Whether it came to be shown since: that more is folded says so only of what was pasted just before.
    pub fn is_more_than(self, before: Self) -> bool {
        self.whole > before.whole || self.folded > before.folded
    }
}

/// A text without what a program changes where it shows one: spaces, ends of lines and frames; without what takes no room;
/// and without what stands for a line break, so that a text is the same whether its lines were joined or not.
fn squash(text: &str) -> impl Iterator<Item = char> + '_ {
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

    /// Goal: a target names one pane, and nothing that tmux would take for something else. Method: rows.
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

    /// Goal: one pane is meant or none is written to. Method: lists as tmux prints them.
    #[test]
    fn only_one_is_meant() {
        let (several, no) = (Err("more than one such pane"), Err("no such pane"));
        for (list, target, expected) in [
            ("%0 0 0 0 1\n%1 1 0 0 1\n%2 0 0 0 0\n", "a:0.0", Ok("%0")),
            ("%0 0 0 0 1\n%1 1 0 0 1\n%2 0 0 0 0\n", "a:0.1", Ok("%1")),
            ("%0 0 0 0 1\n%1 1 0 0 1\n%2 0 0 0 0\n", "a:0.2", no),
            ("%0 0 0 0 0\n", "a:0.0", no),
            ("%0 0 3 1 1\n", "a:main.0", Ok("%0")),
            ("%0 0 3 1 1\n%1 0 4 1 1\n", "a:main.0", several),
            // A window that is called by another's number.
            ("%0 0 3 1 1\n%1 0 4 0 1\n", "a:4.0", Ok("%1")),
            ("x 0 0 0 1\n", "a:0.0", no),
            ("%0 0 0 0 1 1\n", "a:0.0", no),
            ("", "a:0.0", no),
        ] {
            let found = only(list, &target.parse().unwrap()).map_err(|failure| failure.message);
            assert_eq!(
                found.as_deref().map_err(|why| &**why),
                expected,
                "{list} {target}"
            );
        }
    }

    /// Goal: only what reads, and runs nothing, is written to. Method: states.
    #[test]
    fn who_is_in_front() {
        let claude = ["claude".to_owned(), "bash".to_owned()];
        let python = ["python3.11".to_owned()];
        for (state, programs, expected) in [
            ("0 0 0 cat", &[][..], Ok("cat")),
            ("0 0 0 claude", &claude, Ok("claude")),
            ("0 0 0 node", &claude, Err("another program is in front")),
            ("0 0 0 bash", &[], Err("a shell is in front")),
            ("0 0 0 bash", &claude, Err("a shell is in front")),
            ("0 0 0 -ZSH", &[], Err("a shell is in front")),
            ("0 0 0 ssh", &[], Err("a shell is in front")),
            (
                "0 0 0 less",
                &[],
                Err("what is in front takes text for commands; name it, if it is meant"),
            ),
            (
                "0 0 0 python3.11",
                &[],
                Err("what is in front takes text for commands; name it, if it is meant"),
            ),
            ("0 0 0 python3.11", &python, Ok("python3.11")),
            ("0 0 0 ", &[], Err("the program in front isn't known")),
            ("0 0 0 a,b", &[], Err("the program in front isn't known")),
            ("0 0 0 a\n0", &[], Err("the program in front isn't known")),
            ("1 0 0 cat", &[], Err("the pane's program has ended")),
            ("0 1 0 cat", &[], Err("somebody reads back in the pane")),
            (
                "0 0 1 cat",
                &[],
                Err("what is typed into the pane goes to others too"),
            ),
            ("", &[], Err("no such pane")),
        ] {
            let found = free(state, programs).map_err(|failure| failure.message);
            assert_eq!(found.as_deref().map_err(|why| &**why), expected, "{state}");
        }
    }

    /// Goal: a text is seen however it is wrapped and framed, and not where only a part of it is. Method: screens.
    #[test]
    fn wrapped_and_framed() {
        let mark = Mark::of("\n[AGENT a TO AGENT b]: hello é\nsecond line\n");
        let sight = |whole, folded| Sight { whole, folded };
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
            (Mark::of(joined), mark.count(joined)),
            (mark.clone(), sight(1, 0))
        );
        let twice = "[AGENT a TO AGENT b]: hello é\nsecond line\n".repeat(2);
        assert_eq!(mark.count(&twice), sight(2, 0));
    }

    /// Goal: of a long text beginning and end must be there, in order. Method: one with the middle cut out, and halves.
    #[test]
    fn long_texts() {
        let begins: String = (0..EDGE_CHARS + 1)
            .map(|n| char::from(b'a' + (n % 26) as u8))
            .collect();
        let ends: String = (0..EDGE_CHARS + 1)
            .map(|n| char::from(b'A' + (n % 26) as u8))
            .collect();
        let text = format!("{begins} middle {ends}");
        let seen = |shown: &str| Mark::of(&text).count(shown).whole;
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

    /// Goal: only what came since counts. Method: pairs.
    #[test]
    fn more_than_before() {
        let of = |whole, folded| Sight { whole, folded };
        assert!(of(1, 0).is_more_than(of(0, 0)) && of(2, 1).is_more_than(of(2, 0)));
        assert!(!of(1, 1).is_more_than(of(1, 1)) && !of(0, 0).is_more_than(of(1, 0)));
    }
}
