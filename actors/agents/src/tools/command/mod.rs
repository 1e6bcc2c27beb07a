//! `execute_command`: a program of this machine, if the operator named it. There is no shell: what is given is the program and
//! its arguments, each as it stands.

mod line;
mod run;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_message::{Failure, Principal, PrincipalKind, ToolResult};
use callboard_runtime::Cx;
use serde_json::json;

pub(crate) use line::words_of;

/// Most arguments of a command, by default.
pub const COMMAND_ARGUMENTS_MAX_DEFAULT: usize = 64;
/// How long a command may take, by default.
pub const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Most of a command's output that is kept, of standard output and of standard error each, in bytes, by default.
pub const COMMAND_OUTPUT_BYTES_MAX_DEFAULT: usize = 64 * 1024;
/// Most bytes of a command, program and arguments together.
pub const COMMAND_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of what a command is given on its standard input.
pub const COMMAND_INPUT_BYTES_MAX: usize = 64 * 1024;
/// Where programs without a path are looked for, and what they get as `PATH`.
pub const COMMAND_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The scope that a principal other than the operator needs.
pub const COMMAND_SCOPE: &str = "execute_command";

/// What `execute_command` may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOptions {
    /// The programs: a name, looked for once in [`COMMAND_PATH`], or an absolute path.
    pub allow: Vec<String>,
    /// Where they work; `None`: nothing runs.
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
    pub fn new(allow: impl IntoIterator<Item = impl Into<String>>, directory: impl Into<PathBuf>) -> Self {
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
        Ok(Self { options, directory, programs })
    }

    /// What `words` and `input` come to, if it may be run.
    ///
    /// # Errors
    /// `Denied` where the program isn't allowed, `InvalidInput` where a limit is met.
    pub(crate) fn command(&self, words: Vec<String>, input: Option<String>) -> Result<Command, Failure> {
        let mut words = words.into_iter();
        let program = words.next().ok_or_else(|| Failure::invalid("`command` names no program"))?;
        let arguments: Vec<String> = words.collect();
        if arguments.len() > self.options.arguments_max {
            let most = self.options.arguments_max;
            return Err(Failure::invalid(format!("`command` has more than {most} arguments")));
        }
        let bytes = program.len() + arguments.iter().map(String::len).sum::<usize>();
        if bytes > COMMAND_BYTES_MAX {
            return Err(Failure::invalid(format!("`command` has more than {COMMAND_BYTES_MAX} bytes")));
        }
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(Failure::invalid("`command` has a NUL character"));
        }
        if input.as_ref().is_some_and(|input| input.len() > COMMAND_INPUT_BYTES_MAX) {
            return Err(Failure::invalid(format!("`stdin` has more than {COMMAND_INPUT_BYTES_MAX} bytes")));
        }
        match self.programs.get(&program) {
            Some(path) => Ok(Command { program: path.clone(), arguments, input }),
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
        Ok(ToolResult::text(ran.told()).structured(json!({ "exit_code": ran.code, "is_cut": ran.is_cut() })))
    }
}

impl Commands {
    async fn end_of(&self, command: Command) -> Result<run::Ran, Failure> {
        run::run(command, &self.directory, self.options.within, self.options.output_bytes_max).await
    }
}

/// A peer can't confirm for the person whose machine this is: only the operator, and whoever has the scope, runs programs.
pub(crate) fn may_run(principal: &Principal) -> Result<(), Failure> {
    let has_scope = || principal.scopes.iter().any(|scope| scope == COMMAND_SCOPE);
    match principal.kind == PrincipalKind::LocalOperator || has_scope() {
        true => Ok(()),
        false => Err(Failure::denied("only the operator of this agent runs commands on its machine")),
    }
}

fn found(written: &str) -> Result<PathBuf, CommandError> {
    if written.contains('/') {
        let path = PathBuf::from(written);
        let is_program = path.is_absolute() && is_executable(&path);
        return if is_program { Ok(path) } else { Err(CommandError::NoProgram(written.to_owned())) };
    }
    if written.is_empty() || written.contains(char::is_whitespace) {
        return Err(CommandError::NoProgram(written.to_owned()));
    }
    let mut places = COMMAND_PATH.split(':').map(|place| Path::new(place).join(written));
    places.find(|path| is_executable(path)).ok_or_else(|| CommandError::NotFound(written.to_owned()))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}
