//! Tool `execute_command`: runs a program that the operator allows, without a shell. The arguments
//! are passed on unchanged.

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
use callboard_runtime::{Context, child_process};
use futures::future::{Either, join3, select};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout;

/// Default maximum number of a command's arguments. More are rejected with `InvalidInput`.
pub const COMMAND_ARGUMENTS_MAX_DEFAULT: usize = 64;
/// Default time limit of a command. After it the command is killed and fails as `TimedOut`.
pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Default maximum of captured bytes, for standard output and standard error each. More is counted
/// and discarded.
pub const COMMAND_OUTPUT_BYTES_MAX_DEFAULT: usize = 64 * 1024;
/// Maximum bytes of a command, program and arguments together. Longer ones are rejected with
/// `InvalidInput`. Fixed.
pub const COMMAND_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes of a command's standard input. More is rejected with `InvalidInput`. Fixed.
pub const COMMAND_INPUT_BYTES_MAX: usize = 64 * 1024;
/// Search path for programs without a path, and the `PATH` of a running program.
pub const COMMAND_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Scope that lets principals other than the local operator run commands.
pub const COMMAND_SCOPE: &str = "execute_command";
/// Time for which output is still read after the program has ended, because another process may
/// hold the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Value of `LANG` for the program if this process has none.
const LANG_DEFAULT: &str = "C.UTF-8";
const READ_BUFFER_BYTES: usize = 8 * 1024;

/// Options of the tool `execute_command`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOptions {
    /// Allowed programs: names, resolved once in [`COMMAND_PATH`], or absolute paths.
    pub allowed_programs: Vec<String>,
    /// Working directory. `None` is rejected by [`CommandRunner::open`].
    pub directory: Option<PathBuf>,
    /// Maximum number of arguments. More are rejected with `InvalidInput`.
    pub arguments_max: usize,
    /// Time limit of a command. After it the command is killed and fails as `TimedOut`.
    pub timeout: Duration,
    /// Maximum captured bytes, for standard output and standard error each. More is counted and
    /// discarded.
    pub output_bytes_max: usize,
}

impl CommandOptions {
    /// Creates options for these programs and this working directory, with the default limits.
    pub fn new(
        allow: impl IntoIterator<Item = impl Into<String>>,
        directory: impl Into<PathBuf>,
    ) -> Self {
        Self {
            allowed_programs: allow.into_iter().map(Into::into).collect(),
            directory: Some(directory.into()),
            arguments_max: COMMAND_ARGUMENTS_MAX_DEFAULT,
            timeout: COMMAND_TIMEOUT_DEFAULT,
            output_bytes_max: COMMAND_OUTPUT_BYTES_MAX_DEFAULT,
        }
    }
}

/// Error in the options of `execute_command`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No program is allowed. Remedy: name a program or disable the tool.
    #[error("no program is allowed: name one in `command.allow`")]
    NothingAllowed,
    /// The program isn't in [`COMMAND_PATH`]. Remedy: install it or use its absolute path.
    #[error("there is no program {0} in {COMMAND_PATH}: install it, or write its absolute path")]
    NotFound(String),
    /// The entry is neither a bare name nor the absolute path of an executable file.
    #[error("{0:?} is neither a program's name nor the absolute path of an executable file")]
    InvalidProgram(String),
    /// The working directory doesn't exist. Remedy: create it or name another.
    #[error("the working directory {} doesn't exist: create it or name another", .0.display())]
    NotADirectory(PathBuf),
    /// No working directory is set. Remedy: name one.
    #[error("programs need a directory to work in: name it in `command.working_directory`")]
    MissingDirectory,
}

/// Runner of the allowed programs.
#[derive(Debug, Clone)]
pub struct CommandRunner {
    options: CommandOptions,
    directory: PathBuf,
    /// Resolved paths of the allowed programs, by configured name and by absolute path.
    programs: HashMap<String, PathBuf>,
}

/// Allowed program with its arguments, ready to run.
#[derive(derive_more::Debug, Clone, PartialEq)]
// `Debug` omits arguments and input: they may contain user data.
#[debug("Command({}, {} arguments)", program.display(), arguments.len())]
pub(crate) struct AllowedCommand {
    program: PathBuf,
    arguments: Vec<String>,
    input: Option<String>,
}

impl CommandRunner {
    /// Resolves the allowed programs once. A file that appears earlier in the search path later
    /// isn't run.
    ///
    /// # Errors
    /// [`CommandError`] for options that can't be used.
    pub fn open(options: CommandOptions) -> Result<Self, CommandError> {
        if options.allowed_programs.is_empty() {
            return Err(CommandError::NothingAllowed);
        }
        let directory = options
            .directory
            .clone()
            .ok_or(CommandError::MissingDirectory)?;
        if !directory.is_dir() {
            return Err(CommandError::NotADirectory(directory));
        }
        let mut programs = HashMap::new();
        for written in &options.allowed_programs {
            let path = resolve_program(written)?;
            programs.insert(path.to_string_lossy().into_owned(), path.clone());
            programs.insert(written.clone(), path);
        }
        Ok(Self {
            options,
            directory,
            programs,
        })
    }

    /// Checks a command and resolves its program.
    ///
    /// # Errors
    /// `Denied` for a program that isn't allowed, `InvalidInput` for a missing program, a NUL
    /// character or an exceeded limit.
    pub(crate) fn prepare(
        &self,
        words: Vec<String>,
        input: Option<String>,
    ) -> Result<AllowedCommand, Failure> {
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
            Some(path) => Ok(AllowedCommand {
                program: path.clone(),
                arguments,
                input,
            }),
            None => Err(Failure::denied(
                "that program isn't allowed: the agent's `command.allow` has to name it",
            )),
        }
    }

    /// Runs a command and waits for its end. Kills its whole process group at the end, on timeout
    /// and on cancellation.
    ///
    /// # Errors
    /// `Denied` if the principal may not run commands, `TimedOut`, `Cancelled`, and `Unavailable`
    /// if the program can't be started.
    pub(crate) async fn run(
        &self,
        command: AllowedCommand,
        cx: &Context,
    ) -> Result<ToolResult, Failure> {
        check_may_run(cx.principal())?;
        let ran = tokio::select! {
            biased;
            () = cx.cancelled() => return Err(Failure::cancelled("the command was cancelled")),
            ran = self.run_to_end(command) => ran?,
        };
        Ok(ToolResult::text(ran.to_text())
            .with_structured_content(json!({ "exit_code": ran.code, "is_cut": ran.is_cut() })))
    }

    /// Runs a command to its end, within the time limit. Dropping the future kills it.
    ///
    /// # Errors
    /// `TimedOut`, and `Unavailable` if the program can't be started. A program that fails by
    /// itself is no error.
    async fn run_to_end(&self, command: AllowedCommand) -> Result<CommandOutcome, Failure> {
        let CommandOptions {
            timeout: within,
            output_bytes_max,
            ..
        } = self.options;
        let ended = timeout(
            within,
            spawn_and_wait(command, &self.directory, output_bytes_max),
        )
        .await;
        let ended = ended.map_err(|_| {
            Failure::timed_out(format!(
                "the command ran for {within:?}, the maximum, and was ended"
            ))
        })?;
        ended.map_err(|error| {
            callboard_message::log::warn!(%error, "failed to start a command");
            Failure::unavailable(
                "the command can't be started: the agent's operator finds the reason in the log",
            )
        })
    }
}

/// Checks that the principal may run commands: only the local operator and principals with
/// [`COMMAND_SCOPE`] may. A peer can't confirm for the person whose machine this is.
///
/// # Errors
/// `Denied`.
pub(crate) fn check_may_run(principal: &Principal) -> Result<(), Failure> {
    let has_scope = || principal.scopes.iter().any(|scope| scope == COMMAND_SCOPE);
    match principal.kind == PrincipalKind::LocalOperator || has_scope() {
        true => Ok(()),
        false => Err(Failure::denied(format!(
            "commands are only for the operator of this agent and keys with the scope `{COMMAND_SCOPE}`"
        ))),
    }
}

fn resolve_program(written: &str) -> Result<PathBuf, CommandError> {
    if written.contains('/') {
        let path = PathBuf::from(written);
        let is_program = path.is_absolute() && is_executable(&path);
        return if is_program {
            Ok(path)
        } else {
            Err(CommandError::InvalidProgram(written.to_owned()))
        };
    }
    if written.is_empty() || written.contains(char::is_whitespace) {
        return Err(CommandError::InvalidProgram(written.to_owned()));
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

/// Exit code and captured output of a program.
struct CommandOutcome {
    /// Exit code; `None` after a signal.
    code: Option<i32>,
    output: CapturedOutput,
    errors: CapturedOutput,
}

impl CommandOutcome {
    /// Whether some output was discarded because it exceeded the limit.
    fn is_cut(&self) -> bool {
        self.output.left_out > 0 || self.errors.left_out > 0
    }

    /// Returns the standard output and standard error as text, followed by the exit status if it
    /// isn't 0.
    fn to_text(&self) -> String {
        let mut out = self.output.text();
        let errors = self.errors.text();
        let mut add = |heading: &str, text: &str| {
            if !out.is_empty() && !out.ends_with('\n') {
                out.push('\n');
            }
            out.push_str(heading);
            out.push_str(text);
        };
        if !errors.is_empty() {
            add("standard error:\n", &errors);
        }
        match self.code {
            Some(0) => {}
            Some(code) => add("", &format!("exit code {code}")),
            None => add("", "ended by a signal"),
        }
        out
    }
}

/// First bytes of an output stream, with the number of discarded bytes.
struct CapturedOutput {
    bytes: Vec<u8>,
    bytes_max: usize,
    left_out: usize,
}

impl CapturedOutput {
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            bytes_max,
            left_out: 0,
        }
    }

    /// Reads the stream to its end. Keeps the first bytes up to the limit and discards the rest,
    /// because the program would block on a full pipe.
    async fn read_all(&mut self, output: Option<impl AsyncRead + Unpin>) {
        let Some(mut output) = output else { return };
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        while let Ok(read @ 1..) = output.read(&mut buffer).await {
            let room = self.bytes_max.saturating_sub(self.bytes.len()).min(read);
            self.bytes.extend(buffer.iter().take(room));
            self.left_out += read - room;
        }
    }

    /// Returns the output as text without control characters, except line breaks and tabs.
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

/// Process group of a program and all it started. Killed when dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn kill(&self) {
        if let Some(group) = self.0 {
            // The group may have ended in between.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
        if let Some(group) = self.0 {
            child_process::forget_group(group.as_raw_pid().unsigned_abs());
        }
    }
}

async fn spawn_and_wait(
    command: AllowedCommand,
    directory: &Path,
    bytes_max: usize,
) -> io::Result<CommandOutcome> {
    let lang = std::env::var_os("LANG").unwrap_or_else(|| LANG_DEFAULT.into());
    let input = if command.input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut program = child_process::command(&command.program, &command.arguments);
    program
        .env_clear()
        .env("PATH", COMMAND_PATH)
        .env("LANG", lang)
        .current_dir(directory)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = child_process::start(program).await?;
    let group = ProcessGroup(
        child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)),
    );
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut kept, mut kept_errors) = (
        CapturedOutput::new(bytes_max),
        CapturedOutput::new(bytes_max),
    );
    let ended: io::Result<ExitStatus> = {
        let talking = join3(
            kept.read_all(output),
            kept_errors.read_all(errors),
            write_stdin(input, command.input),
        );
        let waiting = async {
            let status = child.wait().await;
            // Processes left running would escape the time limit.
            group.kill();
            status
        };
        match select(pin!(waiting), pin!(talking)).await {
            Either::Left((status, talking)) => {
                // Output after this point comes from other processes.
                let _ = timeout(DRAIN_TIMEOUT, talking).await;
                status
            }
            Either::Right((_, waiting)) => waiting.await,
        }
    };
    let status = ended?;
    if let Some(error) = child_process::launch_failure(status, &kept_errors.text()) {
        return Err(io::Error::other(error));
    }
    Ok(CommandOutcome {
        code: status.code(),
        output: kept,
        errors: kept_errors,
    })
}

async fn write_stdin(input: Option<ChildStdin>, text: Option<String>) {
    if let (Some(mut input), Some(text)) = (input, text) {
        // A program may ignore its standard input.
        let _ = input.write_all(text.as_bytes()).await;
    }
}

/// Splits a command line into words, separated by blanks and quoted by `'…'`, `"…"` and `\`.
/// Rejects everything that a shell would interpret: `;`, `|`, `&`, `<`, `>`, globs, expansions,
/// substitutions, variable assignments, comments and line breaks. A blank line has no words.
///
/// # Errors
/// `InvalidInput` with the rejected syntax and the remedy.
pub(crate) fn split_command_line(line: &str) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    // `None` between words.
    let mut word: Option<String> = None;
    // Opening quotation mark of the current quoted part.
    let mut quote: Option<char> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (Some('"'), '$' | '`') => return Err(shell_syntax_failure(c)),
            (Some('"'), '\\') if chars.peek() == Some(&'\n') => {
                return Err(invalid_command("a line break"));
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
                Some('\n') => return Err(invalid_command("a line break")),
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(invalid_command("a `\\` at its end")),
            },
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, '\n' | '\r') => return Err(invalid_command("a line break")),
            (None, c) if c.is_whitespace() || c.is_control() => {
                return Err(invalid_command(&format!(
                    "the character U+{:04X}",
                    u32::from(c)
                )));
            }
            (None, '#' | '~') if word.is_none() => return Err(shell_syntax_failure(c)),
            (None, '{') if word.is_none() && chars.peek() == Some(&'}') => {
                word = Some("{".to_owned())
            }
            (None, c) if is_shell_syntax(c, word.as_deref()) => {
                return Err(shell_syntax_failure(c));
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(invalid_command("a quotation mark that isn't closed"));
    }
    words.extend(word);
    match words.first() {
        Some(first) if is_assignment(first) => {
            Err(invalid_command("a variable in front of the program"))
        }
        _ => Ok(words),
    }
}

/// Whether an unquoted character is shell syntax, or a typographic quotation mark, which looks like
/// quoting but isn't.
fn is_shell_syntax(c: char, word: Option<&str>) -> bool {
    // `{}` as a word of its own is the placeholder of `find`.
    let closes_empty = c == '}' && word == Some("{");
    matches!(
        c,
        ';' | '|' | '&' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | ']' | '{'
    ) || c == '}' && !closes_empty
        || matches!(c, '“' | '”' | '„' | '«' | '»' | '‘' | '’' | '‚')
}

/// Whether a word has the form `NAME=value`.
fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn shell_syntax_failure(c: char) -> Failure {
    invalid_command(&format!("`{c}`"))
}

fn invalid_command(what: &str) -> Failure {
    Failure::invalid(format!(
        "`command` has {what}: there is no shell that would read it, and nothing of the command was run. Give one program and its \
         arguments, as a list or with quotes around what is meant literally, and each further command by itself"
    ))
}
