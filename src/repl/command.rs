//! Parser for typed lines: a command, a command in plain words (whole lines only), or a message to
//! the agent.

use callboard_message::RawObject;

use crate::config::closest_name;
use crate::text;

/// Maximum length of a typed line, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Meaning of a typed line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ParsedLine {
    /// Only white space.
    Empty,
    /// A command for the REPL.
    Command(ReplCommand),
    /// A message to the agent.
    Message(String),
}

/// A command that the REPL carries out itself, without a decision of the agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReplCommand {
    Help,
    /// Show the card of this agent or of the connected one.
    Card {
        of_remote: bool,
    },
    Servers,
    Connect(ConnectTarget),
    Disconnect,
    Remote(String),
    Listen {
        /// Port; `None` for the configured one.
        port: Option<u16>,
        /// Serve clients without a credential at an address that isn't loopback.
        anonymous: bool,
    },
    Stop,
    Tool {
        name: String,
        params: RawObject,
    },
    NewSession,
    ShowSession,
    History,
    Tasks {
        /// List the tasks of all sessions and of other clients too.
        all: bool,
    },
    Task(String),
    Artifacts(String),
    CancelTask(String),
    Answer(String),
    Memory,
    ClearMemory,
    MemoryTask(String),
    Quit,
}

/// Agent to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectTarget {
    /// Address as typed.
    Address(String),
    /// Position in the list of `:servers`, from 1.
    Number(usize),
}

/// Invalid command. The text tells the user what to type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandParseError {
    /// There is no command of this name. The text suggests the most similar one.
    #[error("there is no command :{name}{}", meant(.nearest))]
    Unknown {
        name: String,
        nearest: Option<&'static str>,
    },
    /// The arguments are wrong. The text shows the right form.
    #[error("type it like this: {0}")]
    Usage(&'static str),
    /// The parameters of a tool aren't a JSON object.
    #[error("the parameters of a tool are a JSON object, for example {{\"format\":\"simple\"}}")]
    Params,
    /// The line is longer than [`LINE_BYTES_MAX`].
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
}

fn meant(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!(": did you mean :{name}?"),
        None => " (:help lists them)".to_owned(),
    }
}

/// Usage and description of each command, in the order of the help.
pub(super) const COMMANDS: [(&str, &str); 19] = [
    (":help", "Show this help"),
    (
        ":card [remote]",
        "Show the agent's card, or that of the connected agent",
    ),
    (":servers", "List the agents that are known"),
    (
        ":connect URL|N",
        "Connect to the agent at URL, or to number N of :servers",
    ),
    (":disconnect", "Disconnect from the connected agent"),
    (
        ":remote MESSAGE",
        "Send MESSAGE as a task to the connected agent",
    ),
    (
        ":listen [PORT] [--anonymous]",
        "Start the server on PORT; --anonymous: for anybody who reaches the address",
    ),
    (":stop", "Stop the server"),
    (
        ":tool NAME [PARAMS]",
        "Run a tool with PARAMS, a JSON object",
    ),
    (
        ":session new|show",
        "Begin a new conversation, or show the id of this one",
    ),
    (":history", "Show what was said in this session"),
    (
        ":tasks [all]",
        "List the tasks of this session, or all that this agent keeps",
    ),
    (":task ID", "Show a task"),
    (":artifacts ID", "Show what a task has made"),
    (":cancelTask ID", "Cancel a task"),
    (
        ":answer ID",
        "Answer what a task asks, and wait for its end",
    ),
    (
        ":memory [clear]",
        "Show what was sent to other agents, or forget it",
    ),
    (
        ":memoryTask ID",
        "Show a task that was sent to another agent",
    ),
    (":quit", "End"),
];

/// Parses a typed line: a command with `:`, a command in plain words such as `help` or
/// `connect to URL`, or else a message to the agent.
///
/// # Errors
/// [`CommandParseError`] if the line begins with `:` and is no valid command, or exceeds
/// [`LINE_BYTES_MAX`].
pub(super) fn parse_line(line: &str) -> Result<ParsedLine, CommandParseError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(CommandParseError::TooLong);
    }
    let line = line.trim();
    match line.strip_prefix(':') {
        _ if line.is_empty() => Ok(ParsedLine::Empty),
        Some(command) => parse_command(command).map(ParsedLine::Command),
        None => Ok(parse_plain_words(line)
            .map_or_else(|| ParsedLine::Message(line.to_owned()), ParsedLine::Command)),
    }
}

/// Returns whether a line begins with the name of a command.
pub(super) fn is_command(line: &str) -> bool {
    let name = line
        .trim()
        .strip_prefix(':')
        .map(|typed| split_first_word(typed).0);
    name.is_some_and(|name| command_names().any(|known| known.eq_ignore_ascii_case(name)))
}

/// Returns the names of all commands.
pub(super) fn command_names() -> impl Iterator<Item = &'static str> {
    COMMANDS
        .iter()
        .map(|(usage, _)| split_first_word(&usage[1..]).0)
}

fn parse_command(typed: &str) -> Result<ReplCommand, CommandParseError> {
    let (name, rest) = split_first_word(typed);
    let Some((known, (usage, _))) = command_names()
        .zip(COMMANDS)
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
    else {
        return Err(CommandParseError::Unknown {
            name: text::truncate_chars(name, ECHOED_NAME_CHARS_MAX),
            nearest: closest_name(name, command_names()),
        });
    };
    let usage = CommandParseError::Usage(usage);
    let whole = || {
        (!rest.is_empty())
            .then(|| rest.to_owned())
            .ok_or(usage.clone())
    };
    let id = || {
        whole().and_then(|id| {
            if id.contains(char::is_whitespace) {
                Err(usage.clone())
            } else {
                Ok(id)
            }
        })
    };
    let alone = |command: ReplCommand| {
        if rest.is_empty() {
            Ok(command)
        } else {
            Err(usage.clone())
        }
    };
    let word = |word: &str| rest.eq_ignore_ascii_case(word);
    match known {
        "help" => Ok(ReplCommand::Help),
        "card" if word("remote") => Ok(ReplCommand::Card { of_remote: true }),
        "card" => alone(ReplCommand::Card { of_remote: false }),
        "servers" => alone(ReplCommand::Servers),
        "connect" => id().map(connect_target).map(ReplCommand::Connect),
        "disconnect" => alone(ReplCommand::Disconnect),
        "remote" => whole().map(ReplCommand::Remote),
        "listen" => parse_listen_command(rest).ok_or(usage),
        "stop" => alone(ReplCommand::Stop),
        "tool" => parse_tool_command(rest, usage),
        "session" if word("new") => Ok(ReplCommand::NewSession),
        "session" if word("show") => Ok(ReplCommand::ShowSession),
        "history" => alone(ReplCommand::History),
        "tasks" if word("all") => Ok(ReplCommand::Tasks { all: true }),
        "tasks" => alone(ReplCommand::Tasks { all: false }),
        "task" => id().map(ReplCommand::Task),
        "artifacts" => id().map(ReplCommand::Artifacts),
        "cancelTask" => id().map(ReplCommand::CancelTask),
        "answer" => id().map(ReplCommand::Answer),
        "memory" if word("clear") => Ok(ReplCommand::ClearMemory),
        "memory" => alone(ReplCommand::Memory),
        "memoryTask" => id().map(ReplCommand::MemoryTask),
        "quit" => alone(ReplCommand::Quit),
        _ => Err(usage),
    }
}

/// Parses a list position or an address.
fn connect_target(typed: String) -> ConnectTarget {
    typed
        .parse()
        .map_or(ConnectTarget::Address(typed), ConnectTarget::Number)
}

fn parse_tool_command(
    rest: &str,
    usage: CommandParseError,
) -> Result<ReplCommand, CommandParseError> {
    let (name, params) = split_first_word(rest);
    if name.is_empty() {
        return Err(usage);
    }
    let params = match params {
        "" => RawObject::new(),
        params => serde_json::from_str(params).map_err(|_| CommandParseError::Params)?,
    };
    Ok(ReplCommand::Tool {
        name: name.to_owned(),
        params,
    })
}

/// Splits a text into its first word and the rest.
fn split_first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

/// Maximum characters of an unknown name that an error repeats.
const ECHOED_NAME_CHARS_MAX: usize = 40;

/// Whole lines in plain words that are commands.
const PLAIN_COMMANDS: &[(&[&str], ReplCommand)] = &[
    (&["help", "ajuda"], ReplCommand::Help),
    (
        &["show card", "card", "mostrar cartão"],
        ReplCommand::Card { of_remote: false },
    ),
    (
        &[
            "list servers",
            "servers",
            "list agents",
            "listar servidores",
            "listar agentes",
        ],
        ReplCommand::Servers,
    ),
    (&["disconnect", "desconectar"], ReplCommand::Disconnect),
    (&["stop server", "parar servidor"], ReplCommand::Stop),
    (&["history", "histórico"], ReplCommand::History),
    (&["tasks", "tarefas"], ReplCommand::Tasks { all: false }),
    (&["memory", "memória"], ReplCommand::Memory),
    (&["quit", "exit", "sair"], ReplCommand::Quit),
];
/// Beginnings of lines in plain words that connect to an address or list position.
const CONNECT_PREFIXES: &[&str] = &["connect to", "connect", "conectar a", "conectar"];
/// Beginnings of lines in plain words that listen at a port.
const LISTEN_PREFIXES: &[&str] = &[
    "listen on port",
    "listen on",
    "listen port",
    "listen",
    "escutar na porta",
];

/// Parses the arguments of `:listen`. `None` if they aren't a port and `--anonymous`, each at most
/// once.
fn parse_listen_command(rest: &str) -> Option<ReplCommand> {
    let (mut port, mut anonymous) = (None, false);
    for word in rest.split_whitespace() {
        match word {
            "--anonymous" if !anonymous => anonymous = true,
            _ if port.is_none() => port = Some(word.parse().ok()?),
            _ => return None,
        }
    }
    Some(ReplCommand::Listen { port, anonymous })
}

/// Parses a command in plain words. `None`: the line is a message to the agent.
fn parse_plain_words(line: &str) -> Option<ReplCommand> {
    let plain = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lower = plain.to_lowercase();
    if let Some((_, command)) = PLAIN_COMMANDS
        .iter()
        .find(|(lines, _)| lines.contains(&&*lower))
    {
        return Some(command.clone());
    }
    if let Some(port) =
        single_word_after(&plain, LISTEN_PREFIXES).and_then(|port| port.parse().ok())
    {
        return Some(ReplCommand::Listen {
            port: Some(port),
            anonymous: false,
        });
    }
    single_word_after(&plain, CONNECT_PREFIXES)
        .filter(|what| is_connect_target(what))
        .map(|what| ReplCommand::Connect(connect_target(what.to_owned())))
}

/// Returns the rest after the first matching prefix if it is one word.
fn single_word_after<'a>(plain: &'a str, beginnings: &[&str]) -> Option<&'a str> {
    let fits = |beginning: &&str| {
        let (head, rest) = plain.split_at_checked(beginning.len())?;
        let rest = rest.strip_prefix(' ')?;
        (head.eq_ignore_ascii_case(beginning) && !rest.contains(' ')).then_some(rest)
    };
    beginnings.iter().find_map(fits)
}

/// Returns whether a text is a URL, `host:port` or a list position.
fn is_connect_target(text: &str) -> bool {
    if text.starts_with("http://") || text.starts_with("https://") {
        return true;
    }
    match text.rsplit_once(':') {
        Some((host, port)) => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
            !host.is_empty() && host.chars().all(is_name) && port.parse::<u16>().is_ok()
        }
        None => text.parse::<usize>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn done(line: &str) -> ReplCommand {
        match parse_line(line) {
            Ok(ParsedLine::Command(command)) => command,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn listen(port: Option<u16>, anonymous: bool) -> ReplCommand {
        ReplCommand::Listen { port, anonymous }
    }

    /// Goal: each command is read with what it needs. Method: a row each, also in other cases and with spaces.
    /// Rows: B-20, B-21, B-22, B-23, B-24, B-25, B-26, B-27, B-28, B-29, B-30, B-31, B-54.
    #[test]
    fn commands() {
        for (line, command) in [
            (":help", ReplCommand::Help),
            (":card", ReplCommand::Card { of_remote: false }),
            (":card remote", ReplCommand::Card { of_remote: true }),
            (":servers", ReplCommand::Servers),
            (":connect localhost:8080", address("localhost:8080")),
            (
                "  :connect   http://localhost:4201 ",
                address("http://localhost:4201"),
            ),
            (":connect 2", ReplCommand::Connect(ConnectTarget::Number(2))),
            (":disconnect", ReplCommand::Disconnect),
            (
                ":remote What's the weather in Paris?",
                ReplCommand::Remote("What's the weather in Paris?".into()),
            ),
            (
                ":remote :tool list_agents",
                ReplCommand::Remote(":tool list_agents".into()),
            ),
            (":listen 8080", listen(Some(8080), false)),
            (":listen", listen(None, false)),
            (":listen 8080 --anonymous", listen(Some(8080), true)),
            (":listen --anonymous", listen(None, true)),
            (":stop", ReplCommand::Stop),
            (":session new", ReplCommand::NewSession),
            (":session show", ReplCommand::ShowSession),
            (":history", ReplCommand::History),
            (":tasks", ReplCommand::Tasks { all: false }),
            (":tasks all", ReplCommand::Tasks { all: true }),
            (":task t-1", ReplCommand::Task("t-1".into())),
            (":artifacts t-1", ReplCommand::Artifacts("t-1".into())),
            (":cancelTask t-1", ReplCommand::CancelTask("t-1".into())),
            (":canceltask t-1", ReplCommand::CancelTask("t-1".into())),
            (":answer t-1", ReplCommand::Answer("t-1".into())),
            (":memory", ReplCommand::Memory),
            (":memory clear", ReplCommand::ClearMemory),
            (
                ":memoryTask 1234-abcd",
                ReplCommand::MemoryTask("1234-abcd".into()),
            ),
            (":quit", ReplCommand::Quit),
        ] {
            assert_eq!(done(line), command, "{line}");
        }
    }

    /// Goal: a tool's parameters are an object, as they were written. Method: none, one, and what is none.
    /// Rows: B-27.
    #[test]
    fn tools() {
        let params = |line: &str| match parse_line(line)? {
            ParsedLine::Command(ReplCommand::Tool { name, params }) => {
                Ok((name, params.to_raw().get().to_owned()))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(
            params(":tool list_agents"),
            Ok(("list_agents".into(), "{}".into()))
        );
        let simple = r#"{"format":"simple"}"#;
        assert_eq!(
            params(&format!(":tool list_agents {simple}")),
            Ok(("list_agents".into(), simple.into()))
        );
        for wrong in [
            ":tool echo hello",
            ":tool echo [1]",
            ":tool echo {\"a\":1",
            ":tool echo {\"a\":1,\"a\":2}",
        ] {
            assert_eq!(params(wrong), Err(CommandParseError::Params), "{wrong}");
        }
    }

    /// Goal: nobody is left without a way on. Method: misspelled, incomplete and excessive commands.
    #[test]
    fn mistakes_say_what_to_type() {
        let told = |line: &str| parse_line(line).unwrap_err().to_string();
        assert_eq!(
            told(":conect x"),
            "there is no command :conect: did you mean :connect?"
        );
        assert_eq!(
            told(":xyzzy"),
            "there is no command :xyzzy (:help lists them)"
        );
        for incomplete in [
            ":connect",
            ":remote",
            ":tool",
            ":task",
            ":task a b",
            ":session",
            ":session x",
            ":quit now",
        ] {
            assert!(
                told(incomplete).starts_with("type it like this: :"),
                "{incomplete}"
            );
        }
        for wrong in [
            ":listen 65536",
            ":listen -1",
            ":listen http",
            ":listen 1 2",
            ":listen --anonymous --anonymous",
        ] {
            assert_eq!(
                told(wrong),
                "type it like this: :listen [PORT] [--anonymous]"
            );
        }
    }

    /// Goal: what isn't a command is said as it is; a line has a bound. Method: texts, and a line at it and over it.
    #[test]
    fn texts() {
        assert_eq!(parse_line("  "), Ok(ParsedLine::Empty));
        assert_eq!(
            parse_line(" What is 2:1? "),
            Ok(ParsedLine::Message("What is 2:1?".into()))
        );
        assert!(matches!(
            parse_line(&"x".repeat(LINE_BYTES_MAX)),
            Ok(ParsedLine::Message(_))
        ));
        assert_eq!(
            parse_line(&"x".repeat(LINE_BYTES_MAX + 1)),
            Err(CommandParseError::TooLong)
        );
    }

    proptest! {
        /// Goal: no line breaks the reader. Method: any text, also as a command.
        #[test]
        fn any_line_is_read(line in "\\PC{0,80}") {
            let _ = parse_line(&line);
            let _ = parse_line(&format!(":{line}")).map_err(|mistake| mistake.to_string());
        }
    }

    fn address(text: &str) -> ReplCommand {
        ReplCommand::Connect(ConnectTarget::Address(text.to_owned()))
    }

    /// Goal: the lines that people type for commands are those. Method: rows, in both languages and any case.
    /// Rows: B-33.
    #[test]
    fn plain_words_are_commands() {
        let rows: [(&[&str], ReplCommand); 14] = [
            (
                &["connect localhost:8080", "conectar a localhost:8080"],
                address("localhost:8080"),
            ),
            (
                &["Connect to http://localhost:4201"],
                address("http://localhost:4201"),
            ),
            (
                &["connect to 2"],
                ReplCommand::Connect(ConnectTarget::Number(2)),
            ),
            (&["connect [::1]:8080"], address("[::1]:8080")),
            (&["disconnect"], ReplCommand::Disconnect),
            (
                &[
                    "list servers",
                    "List  Servers",
                    "servers",
                    "list agents",
                    "listar servidores",
                ],
                ReplCommand::Servers,
            ),
            (&["show card"], ReplCommand::Card { of_remote: false }),
            (&["help", "ajuda"], ReplCommand::Help),
            (
                &["listen 8080", "listen on port 8080"],
                listen(Some(8080), false),
            ),
            (&["stop server"], ReplCommand::Stop),
            (&["history"], ReplCommand::History),
            (&["tasks"], ReplCommand::Tasks { all: false }),
            (&["memory"], ReplCommand::Memory),
            (&["exit", "Sair"], ReplCommand::Quit),
        ];
        for (lines, is) in rows {
            for line in lines {
                assert_eq!(parse_plain_words(line), Some(is.clone()), "{line}");
            }
        }
    }

    /// Goal: what only begins like a command is said to the agent. Method: sentences with those words in them.
    /// Rows: B-33.
    #[test]
    fn sentences_are_said() {
        for line in [
            "connect the dots for me",
            "connect",
            "connect to",
            "connect me",
            "Connect to the database at work:",
            "connect paris:france",
            "list servers that are cheap",
            "help me",
            "Help me hack into a government database",
            "listen to this",
            "listen",
            "listen 8080 times",
            "listen 99999",
            "stop",
            "stop servers",
            "history of France",
            "tasks of a mayor",
            "memory foam",
            "quit smoking",
            "",
        ] {
            assert_eq!(parse_plain_words(line), None, "{line}");
        }
    }
}
