//! `execute_command`: a program of this machine, if the operator named it. There is no shell: what is given is the program and
//! its arguments, each as it stands.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use callboard_message::{Failure, Principal, PrincipalKind, ToolResult};
use callboard_runtime::Cx;
use futures::future::{Either, join3, select};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout;

/// Most arguments of a command, by default.
pub const COMMAND_ARGUMENTS_MAX_DEFAULT: usize = 64;
/// Default time limit of a command.
pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Most of a command's output that is kept, of standard output and of standard error each, in bytes, by default.
pub const COMMAND_OUTPUT_BYTES_MAX_DEFAULT: usize = 64 * 1024;
/// Most bytes of a command, program and arguments together.
pub const COMMAND_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of what a command is given on its standard input.
pub const COMMAND_INPUT_BYTES_MAX: usize = 64 * 1024;
/// Directories in which programs without a path are looked for, and their `PATH`.
pub const COMMAND_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The scope that a principal other than the operator needs.
pub const COMMAND_SCOPE: &str = "execute_command";
/// Time for which output is still read after a program's end: another process may hold its other end.
const DRAIN: Duration = Duration::from_millis(500);
/// `LANG` of a program where this process has none.
const LANG_DEFAULT: &str = "C.UTF-8";
const READ_BYTES: usize = 8 * 1024;

/// Options of `execute_command`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOptions {
    /// The programs: a name, looked for once in [`COMMAND_PATH`], or an absolute path.
    pub allow: Vec<String>,
    /// Working directory; `None`: nothing runs.
    pub directory: Option<PathBuf>,
    /// Most arguments.
    pub arguments_max: usize,
    /// How long one may run.
    pub within: Duration,
    /// Most of its output that is kept, of standard output and of standard error each, in bytes.
    pub output_bytes_max: usize,
}

impl CommandOptions {
    /// These programs, in that directory, with the limits of this module.
    pub fn new(
        allow: impl IntoIterator<Item = impl Into<String>>,
        directory: impl Into<PathBuf>,
    ) -> Self {
        Self {
            allow: allow.into_iter().map(Into::into).collect(),
            directory: Some(directory.into()),
            arguments_max: COMMAND_ARGUMENTS_MAX_DEFAULT,
            within: COMMAND_TIMEOUT_DEFAULT,
            output_bytes_max: COMMAND_OUTPUT_BYTES_MAX_DEFAULT,
        }
    }
}

/// Why commands can't be had so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Name a program, or leave the tool off.
    #[error("no program is allowed: name one in `allow`")]
    NothingAllowed,
    /// Install it, or write its absolute path.
    #[error("there is no program {0} in {COMMAND_PATH}")]
    NotFound(String),
    /// Write a bare name or an absolute path to an executable file.
    #[error("{0} is neither a program's name nor the absolute path of one")]
    NoProgram(String),
    /// Make the directory, or name another.
    #[error("{} is no directory to work in", .0.display())]
    NoDirectory(PathBuf),
    /// Name a directory.
    #[error("programs need a directory to work in: name it in `directory`")]
    Nowhere,
}

/// Programs that may be run, found.
#[derive(Debug, Clone)]
pub struct Commands {
    options: CommandOptions,
    directory: PathBuf,
    /// By what is written in `allow`, and by their paths.
    programs: HashMap<String, PathBuf>,
}

/// What is run: a program that is allowed, and its arguments.
#[derive(derive_more::Debug, Clone, PartialEq)]
// Its arguments may be anybody's data.
#[debug("Command({}, {} arguments)", program.display(), arguments.len())]
pub(crate) struct Command {
    program: PathBuf,
    arguments: Vec<String>,
    input: Option<String>,
}

impl Commands {
    /// Looks for the programs, once: what is put in their place by another name later isn't run.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn open(options: CommandOptions) -> Result<Self, CommandError> {
        if options.allow.is_empty() {
            return Err(CommandError::NothingAllowed);
        }
        let directory = options.directory.clone().ok_or(CommandError::Nowhere)?;
        if !directory.is_dir() {
            return Err(CommandError::NoDirectory(directory));
        }
        let mut programs = HashMap::new();
        for written in &options.allow {
            let path = found(written)?;
            programs.insert(path.to_string_lossy().into_owned(), path.clone());
            programs.insert(written.clone(), path);
        }
        Ok(Self {
            options,
            directory,
            programs,
        })
    }

    /// What `words` and `input` come to, if it may be run.
    ///
    /// # Errors
    /// `Denied` where the program isn't allowed, `InvalidInput` where a limit is met.
    pub(crate) fn command(
        &self,
        words: Vec<String>,
        input: Option<String>,
    ) -> Result<Command, Failure> {
        let mut words = words.into_iter();
        let program = words
            .next()
            .ok_or_else(|| Failure::invalid("`command` names no program"))?;
        let arguments: Vec<String> = words.collect();
        if arguments.len() > self.options.arguments_max {
            let most = self.options.arguments_max;
            return Err(Failure::invalid(format!(
                "`command` has more than {most} arguments"
            )));
        }
        let bytes = program.len() + arguments.iter().map(String::len).sum::<usize>();
        if bytes > COMMAND_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "`command` has more than {COMMAND_BYTES_MAX} bytes"
            )));
        }
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(Failure::invalid("`command` has a NUL character"));
        }
        if input
            .as_ref()
            .is_some_and(|input| input.len() > COMMAND_INPUT_BYTES_MAX)
        {
            return Err(Failure::invalid(format!(
                "`stdin` has more than {COMMAND_INPUT_BYTES_MAX} bytes"
            )));
        }
        match self.programs.get(&program) {
            Some(path) => Ok(Command {
                program: path.clone(),
                arguments,
                input,
            }),
            None => Err(Failure::denied("that program is not allowed here")),
        }
    }

    /// Runs it and waits for its end. Whatever it started ends with it.
    ///
    /// # Errors
    /// `Denied` for who may not, `TimedOut`, `Cancelled`, `Unavailable` where it can't be started.
    pub(crate) async fn run(&self, command: Command, cx: &Cx) -> Result<ToolResult, Failure> {
        may_run(cx.principal())?;
        let ran = tokio::select! {
            biased;
            () = cx.cancelled() => return Err(Failure::cancelled("the command was cancelled")),
            ran = self.end_of(command) => ran?,
        };
        Ok(ToolResult::text(ran.told())
            .structured(json!({ "exit_code": ran.code, "is_cut": ran.is_cut() })))
    }

    /// Runs it to its end. Dropped, it kills it.
    async fn end_of(&self, command: Command) -> Result<Ran, Failure> {
        let CommandOptions {
            within,
            output_bytes_max,
            ..
        } = self.options;
        let ended = timeout(
            within,
            to_the_end(command, &self.directory, output_bytes_max),
        )
        .await;
        let ended = ended
            .map_err(|_| Failure::timed_out(format!("the command was ended after {within:?}")))?;
        ended.map_err(|error| {
            callboard_message::log::warn!(%error, "a command can't be run");
            Failure::unavailable("the command can't be run")
        })
    }
}

/// A peer can't confirm for the person whose machine this is: only the operator, and whoever has the scope, runs programs.
pub(crate) fn may_run(principal: &Principal) -> Result<(), Failure> {
    let has_scope = || principal.scopes.iter().any(|scope| scope == COMMAND_SCOPE);
    match principal.kind == PrincipalKind::LocalOperator || has_scope() {
        true => Ok(()),
        false => Err(Failure::denied(
            "only the operator of this agent runs commands on its machine",
        )),
    }
}

fn found(written: &str) -> Result<PathBuf, CommandError> {
    if written.contains('/') {
        let path = PathBuf::from(written);
        let is_program = path.is_absolute() && is_executable(&path);
        return if is_program {
            Ok(path)
        } else {
            Err(CommandError::NoProgram(written.to_owned()))
        };
    }
    if written.is_empty() || written.contains(char::is_whitespace) {
        return Err(CommandError::NoProgram(written.to_owned()));
    }
    let mut places = COMMAND_PATH
        .split(':')
        .map(|place| Path::new(place).join(written));
    places
        .find(|path| is_executable(path))
        .ok_or_else(|| CommandError::NotFound(written.to_owned()))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// How a program ended, and what it said.
struct Ran {
    /// `None`: a signal ended it.
    code: Option<i32>,
    output: Kept,
    errors: Kept,
}

impl Ran {
    /// Whether some of its output wasn't kept.
    fn is_cut(&self) -> bool {
        self.output.left_out > 0 || self.errors.left_out > 0
    }

    /// For whoever asked: output, then errors, then how it ended where that isn't well.
    fn told(&self) -> String {
        let mut told = self.output.text();
        let errors = self.errors.text();
        let mut add = |heading: &str, text: &str| {
            if !told.is_empty() && !told.ends_with('\n') {
                told.push('\n');
            }
            told.push_str(heading);
            told.push_str(text);
        };
        if !errors.is_empty() {
            add("standard error:\n", &errors);
        }
        match self.code {
            Some(0) => {}
            Some(code) => add("", &format!("exit code {code}")),
            None => add("", "ended by a signal"),
        }
        told
    }
}

/// The first bytes of an output; the rest is counted.
struct Kept {
    bytes: Vec<u8>,
    bytes_max: usize,
    left_out: usize,
}

impl Kept {
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            bytes_max,
            left_out: 0,
        }
    }

    /// Reads to the end, whatever is kept: a program whose output nobody takes would wait for ever.
    async fn fill(&mut self, output: Option<impl AsyncRead + Unpin>) {
        let Some(mut output) = output else { return };
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(read @ 1..) = output.read(&mut buffer).await {
            let room = self.bytes_max.saturating_sub(self.bytes.len()).min(read);
            self.bytes.extend(buffer.iter().take(room));
            self.left_out += read - room;
        }
    }

    /// As text, without what moves a terminal's cursor.
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut text: String = text
            .chars()
            .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
            .collect();
        if self.left_out > 0 {
            text.push_str(&format!("\n[{} bytes more were left out]\n", self.left_out));
        }
        text
    }
}

/// A program and what it started. Killed when dropped, whatever else happens.
struct Group(Option<Pid>);

impl Group {
    fn kill(&self) {
        if let Some(group) = self.0 {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn to_the_end(command: Command, directory: &Path, bytes_max: usize) -> io::Result<Ran> {
    let lang = std::env::var_os("LANG").unwrap_or_else(|| LANG_DEFAULT.into());
    let input = if command.input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut child = tokio::process::Command::new(&command.program)
        .args(&command.arguments)
        .env_clear()
        .env("PATH", COMMAND_PATH)
        .env("LANG", lang)
        .current_dir(directory)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = Group(
        child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)),
    );
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut kept, mut kept_errors) = (Kept::new(bytes_max), Kept::new(bytes_max));
    let ended: io::Result<ExitStatus> = {
        let talking = join3(
            kept.fill(output),
            kept_errors.fill(errors),
            feed(input, command.input),
        );
        let waiting = async {
            let status = child.wait().await;
            // What it left running would go on without a limit.
            group.kill();
            status
        };
        match select(pin!(waiting), pin!(talking)).await {
            Either::Left((status, talking)) => {
                // What comes later than this is nobody's output.
                let _ = timeout(DRAIN, talking).await;
                status
            }
            Either::Right((_, waiting)) => waiting.await,
        }
    };
    Ok(Ran {
        code: ended?.code(),
        output: kept,
        errors: kept_errors,
    })
}

async fn feed(input: Option<ChildStdin>, text: Option<String>) {
    if let (Some(mut input), Some(text)) = (input, text) {
        // A program needn't read what it is given.
        let _ = input.write_all(text.as_bytes()).await;
    }
}

/// The words of a command line: blanks separate them; `'…'`, `"…"` and `\` quote. The whole line comes to words, or none of
/// it: what a shell would act on (`;`, `|`, `&`, `<`, `>`, globs, expansions, substitutions, comments, line breaks) is refused.
///
/// # Errors
/// `InvalidInput`, with what is refused and what to do.
pub(crate) fn words_of(line: &str) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    // `None`: between words.
    let mut word: Option<String> = None;
    // The mark that began a quoted passage.
    let mut quote: Option<char> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (Some('"'), '$' | '`') => return Err(needs_shell(c)),
            (Some('"'), '\\') if chars.peek() == Some(&'\n') => {
                return Err(refused("a line break"));
            }
            (Some('"'), '\\') => {
                let escaped = chars.next_if(|next| matches!(next, '"' | '\\' | '$' | '`'));
                word.get_or_insert_default().push(escaped.unwrap_or(c));
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\\') => match chars.next() {
                Some('\n') => return Err(refused("a line break")),
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(refused("a `\\` at its end")),
            },
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, '\n' | '\r') => return Err(refused("a line break")),
            (None, c) if c.is_whitespace() || c.is_control() => {
                return Err(refused(&format!("the character U+{:04X}", u32::from(c))));
            }
            (None, '#' | '~') if word.is_none() => return Err(needs_shell(c)),
            (None, '{') if word.is_none() && chars.peek() == Some(&'}') => {
                word = Some("{".to_owned())
            }
            (None, c) if is_of_shell(c, word.as_deref()) => return Err(needs_shell(c)),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(refused("a quotation mark that isn't closed"));
    }
    words.extend(word);
    match words.first() {
        Some(first) if is_assignment(first) => Err(refused("a variable in front of the program")),
        _ => Ok(words),
    }
}

/// Whether a shell acts on a character that isn't quoted; or readers take it for a quotation mark and a shell doesn't.
fn is_of_shell(c: char, word: Option<&str>) -> bool {
    // `{}` is a word of its own to `find`.
    let closes_empty = c == '}' && word == Some("{");
    matches!(
        c,
        ';' | '|' | '&' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | ']' | '{'
    ) || c == '}' && !closes_empty
        || matches!(c, '“' | '”' | '„' | '«' | '»' | '‘' | '’' | '‚')
}

/// `NAME=value`.
fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn needs_shell(c: char) -> Failure {
    refused(&format!("`{c}`"))
}

fn refused(what: &str) -> Failure {
    Failure::invalid(format!(
        "`command` has {what}: there is no shell that would read it, and nothing of the command was run. Give one program and its \
         arguments, as a list or with quotes around what is meant literally, and each further command by itself"
    ))
}
