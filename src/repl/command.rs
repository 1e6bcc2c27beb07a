//! What a line means: a command, a command in plain words (whole lines only), or something for the agent.

use callboard_message::RawObject;

use crate::config::closest;
use crate::text;

/// Longest line, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;

/// A line that was typed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Typed {
    /// Nothing but spaces.
    Nothing,
    /// Something to do here.
    Do(Command),
    /// For the agent.
    Say(String),
}

/// Something to do here, without any decision of the agent's.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
    Help,
    /// Our card, or that of whoever is connected.
    Card {
        of_remote: bool,
    },
    Servers,
    Connect(Whom),
    Disconnect,
    Remote(String),
    /// Without a port: the one that is configured.
    Listen(Option<u16>),
    Stop,
    Tool {
        name: String,
        params: RawObject,
    },
    NewSession,
    ShowSession,
    History,
    Tasks {
        /// Of every session, and what others asked too.
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

/// Whom to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whom {
    /// As it was typed.
    Address(String),
    /// A number of `:servers`, from 1.
    Number(usize),
}

/// Why a line is no command; the text says what to type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mistake {
    /// Type the name that was meant.
    #[error("there is no command :{name}{}", meant(.nearest))]
    Unknown {
        name: String,
        nearest: Option<&'static str>,
    },
    /// Type it like this.
    #[error("type it like this: {0}")]
    Usage(&'static str),
    /// Write the parameters as JSON.
    #[error("the parameters of a tool are a JSON object, for example {{\"format\":\"simple\"}}")]
    Params,
    /// Cut it.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
}

fn meant(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!(": did you mean :{name}?"),
        None => " (:help lists them)".to_owned(),
    }
}

/// All commands in the order of the help: each as it is typed, and what it does.
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
    (":listen [PORT]", "Start the server on PORT"),
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

/// Reads a line.
///
/// # Errors
/// It begins like a command and is none.
pub(super) fn read(line: &str) -> Result<Typed, Mistake> {
    if line.len() > LINE_BYTES_MAX {
        return Err(Mistake::TooLong);
    }
    let line = line.trim();
    match line.strip_prefix(':') {
        _ if line.is_empty() => Ok(Typed::Nothing),
        Some(command) => command_of(command).map(Typed::Do),
        None => Ok(command(line).map_or_else(|| Typed::Say(line.to_owned()), Typed::Do)),
    }
}

/// Whether a line begins like a command that there is.
pub(super) fn is_command(line: &str) -> bool {
    let name = line.trim().strip_prefix(':').map(|typed| cut(typed).0);
    name.is_some_and(|name| names().any(|known| known.eq_ignore_ascii_case(name)))
}

/// Names of all commands.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(usage, _)| cut(&usage[1..]).0)
}

fn command_of(typed: &str) -> Result<Command, Mistake> {
    let (name, rest) = cut(typed);
    let Some((known, (usage, _))) = names()
        .zip(COMMANDS)
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
    else {
        return Err(Mistake::Unknown {
            name: text::cut(name, NAME_CHARS_MAX),
            nearest: closest(name, names()),
        });
    };
    let usage = Mistake::Usage(usage);
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
    let alone = |command: Command| {
        if rest.is_empty() {
            Ok(command)
        } else {
            Err(usage.clone())
        }
    };
    let word = |word: &str| rest.eq_ignore_ascii_case(word);
    match known {
        "help" => Ok(Command::Help),
        "card" if word("remote") => Ok(Command::Card { of_remote: true }),
        "card" => alone(Command::Card { of_remote: false }),
        "servers" => alone(Command::Servers),
        "connect" => id().map(whom).map(Command::Connect),
        "disconnect" => alone(Command::Disconnect),
        "remote" => whole().map(Command::Remote),
        "listen" if rest.is_empty() => Ok(Command::Listen(None)),
        "listen" => rest
            .parse()
            .map(|port| Command::Listen(Some(port)))
            .map_err(|_| usage),
        "stop" => alone(Command::Stop),
        "tool" => tool(rest, usage),
        "session" if word("new") => Ok(Command::NewSession),
        "session" if word("show") => Ok(Command::ShowSession),
        "history" => alone(Command::History),
        "tasks" if word("all") => Ok(Command::Tasks { all: true }),
        "tasks" => alone(Command::Tasks { all: false }),
        "task" => id().map(Command::Task),
        "artifacts" => id().map(Command::Artifacts),
        "cancelTask" => id().map(Command::CancelTask),
        "answer" => id().map(Command::Answer),
        "memory" if word("clear") => Ok(Command::ClearMemory),
        "memory" => alone(Command::Memory),
        "memoryTask" => id().map(Command::MemoryTask),
        "quit" => alone(Command::Quit),
        _ => Err(usage),
    }
}

/// A number of the list, or an address.
fn whom(typed: String) -> Whom {
    typed.parse().map_or(Whom::Address(typed), Whom::Number)
}

fn tool(rest: &str, usage: Mistake) -> Result<Command, Mistake> {
    let (name, params) = cut(rest);
    if name.is_empty() {
        return Err(usage);
    }
    let params = match params {
        "" => RawObject::new(),
        params => serde_json::from_str(params).map_err(|_| Mistake::Params)?,
    };
    Ok(Command::Tool {
        name: name.to_owned(),
        params,
    })
}

/// The first word, and the rest.
fn cut(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

/// Characters of a name that are repeated in a message.
const NAME_CHARS_MAX: usize = 40;

/// Lines that are commands, word for word.
const LINES: &[(&[&str], Command)] = &[
    (&["help", "ajuda"], Command::Help),
    (
        &["show card", "card", "mostrar cartão"],
        Command::Card { of_remote: false },
    ),
    (
        &[
            "list servers",
            "servers",
            "list agents",
            "listar servidores",
            "listar agentes",
        ],
        Command::Servers,
    ),
    (&["disconnect", "desconectar"], Command::Disconnect),
    (&["stop server", "parar servidor"], Command::Stop),
    (&["history", "histórico"], Command::History),
    (&["tasks", "tarefas"], Command::Tasks { all: false }),
    (&["memory", "memória"], Command::Memory),
    (&["quit", "exit", "sair"], Command::Quit),
];
/// How a line begins that names an address or a number of the list.
const CONNECT: &[&str] = &["connect to", "connect", "conectar a", "conectar"];
/// How a line begins that names a port.
const LISTEN: &[&str] = &[
    "listen on port",
    "listen on",
    "listen port",
    "listen",
    "escutar na porta",
];

/// The command that a line is, in plain words. `None`: it is something to say.
fn command(line: &str) -> Option<Command> {
    let plain = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lower = plain.to_lowercase();
    if let Some((_, command)) = LINES.iter().find(|(lines, _)| lines.contains(&&*lower)) {
        return Some(command.clone());
    }
    if let Some(port) = after(&plain, LISTEN).and_then(|port| port.parse().ok()) {
        return Some(Command::Listen(Some(port)));
    }
    after(&plain, CONNECT)
        .filter(|what| is_address(what))
        .map(|what| Command::Connect(whom(what.to_owned())))
}

/// The one word after the first of the beginnings that fits.
fn after<'a>(plain: &'a str, beginnings: &[&str]) -> Option<&'a str> {
    let fits = |beginning: &&str| {
        let (head, rest) = plain.split_at_checked(beginning.len())?;
        let rest = rest.strip_prefix(' ')?;
        (head.eq_ignore_ascii_case(beginning) && !rest.contains(' ')).then_some(rest)
    };
    beginnings.iter().find_map(fits)
}

/// Whether it is a URL, `host:port`, or a number of the list.
fn is_address(text: &str) -> bool {
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

    fn done(line: &str) -> Command {
        match read(line) {
            Ok(Typed::Do(command)) => command,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// Goal: each command is read with what it needs. Method: a row each, also in other cases and with spaces.
    #[test]
    fn commands() {
        for (line, command) in [
            (":help", Command::Help),
            (":card", Command::Card { of_remote: false }),
            (":card remote", Command::Card { of_remote: true }),
            (":servers", Command::Servers),
            (":connect localhost:8080", address("localhost:8080")),
            (
                "  :connect   http://localhost:4201 ",
                address("http://localhost:4201"),
            ),
            (":connect 2", Command::Connect(Whom::Number(2))),
            (":disconnect", Command::Disconnect),
            (
                ":remote What's the weather in Paris?",
                Command::Remote("What's the weather in Paris?".into()),
            ),
            (
                ":remote :tool list_agents",
                Command::Remote(":tool list_agents".into()),
            ),
            (":listen 8080", Command::Listen(Some(8080))),
            (":listen", Command::Listen(None)),
            (":stop", Command::Stop),
            (":session new", Command::NewSession),
            (":session show", Command::ShowSession),
            (":history", Command::History),
            (":tasks", Command::Tasks { all: false }),
            (":tasks all", Command::Tasks { all: true }),
            (":task t-1", Command::Task("t-1".into())),
            (":artifacts t-1", Command::Artifacts("t-1".into())),
            (":cancelTask t-1", Command::CancelTask("t-1".into())),
            (":canceltask t-1", Command::CancelTask("t-1".into())),
            (":answer t-1", Command::Answer("t-1".into())),
            (":memory", Command::Memory),
            (":memory clear", Command::ClearMemory),
            (
                ":memoryTask 1234-abcd",
                Command::MemoryTask("1234-abcd".into()),
            ),
            (":quit", Command::Quit),
        ] {
            assert_eq!(done(line), command, "{line}");
        }
    }

    /// Goal: a tool's parameters are an object, as they were written. Method: none, one, and what is none.
    #[test]
    fn tools() {
        let params = |line: &str| match read(line)? {
            Typed::Do(Command::Tool { name, params }) => {
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
            assert_eq!(params(wrong), Err(Mistake::Params), "{wrong}");
        }
    }

    /// Goal: nobody is left without a way on. Method: misspelled, incomplete and excessive commands.
    #[test]
    fn mistakes_say_what_to_type() {
        let told = |line: &str| read(line).unwrap_err().to_string();
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
        for port in [":listen 65536", ":listen -1", ":listen http"] {
            assert_eq!(told(port), "type it like this: :listen [PORT]");
        }
    }

    /// Goal: what isn't a command is said as it is; a line has a bound. Method: texts, and a line at it and over it.
    #[test]
    fn texts() {
        assert_eq!(read("  "), Ok(Typed::Nothing));
        assert_eq!(
            read(" What is 2:1? "),
            Ok(Typed::Say("What is 2:1?".into()))
        );
        assert!(matches!(
            read(&"x".repeat(LINE_BYTES_MAX)),
            Ok(Typed::Say(_))
        ));
        assert_eq!(read(&"x".repeat(LINE_BYTES_MAX + 1)), Err(Mistake::TooLong));
    }

    proptest! {
        /// Goal: no line breaks the reader. Method: any text, also as a command.
        #[test]
        fn any_line_is_read(line in "\\PC{0,80}") {
            let _ = read(&line);
            let _ = read(&format!(":{line}")).map_err(|mistake| mistake.to_string());
        }
    }

    fn address(text: &str) -> Command {
        Command::Connect(Whom::Address(text.to_owned()))
    }

    /// Goal: the lines that people type for commands are those. Method: rows, in both languages and any case.
    #[test]
    fn plain_words_are_commands() {
        let rows: [(&[&str], Command); 14] = [
            (
                &["connect localhost:8080", "conectar a localhost:8080"],
                address("localhost:8080"),
            ),
            (
                &["Connect to http://localhost:4201"],
                address("http://localhost:4201"),
            ),
            (&["connect to 2"], Command::Connect(Whom::Number(2))),
            (&["connect [::1]:8080"], address("[::1]:8080")),
            (&["disconnect"], Command::Disconnect),
            (
                &[
                    "list servers",
                    "List  Servers",
                    "servers",
                    "list agents",
                    "listar servidores",
                ],
                Command::Servers,
            ),
            (&["show card"], Command::Card { of_remote: false }),
            (&["help", "ajuda"], Command::Help),
            (
                &["listen 8080", "listen on port 8080"],
                Command::Listen(Some(8080)),
            ),
            (&["stop server"], Command::Stop),
            (&["history"], Command::History),
            (&["tasks"], Command::Tasks { all: false }),
            (&["memory"], Command::Memory),
            (&["exit", "Sair"], Command::Quit),
        ];
        for (lines, is) in rows {
            for line in lines {
                assert_eq!(command(line), Some(is.clone()), "{line}");
            }
        }
    }

    /// Goal: what only begins like a command is said to the agent. Method: sentences with those words in them.
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
            assert_eq!(command(line), None, "{line}");
        }
    }
}
