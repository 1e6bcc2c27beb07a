//! Commands in plain words: whole lines only, and only where what follows looks like what the command needs.

use super::command::{Command, whom};

/// Lines that are commands, word for word.
const LINES: &[(&[&str], Command)] = &[
    (&["help", "ajuda"], Command::Help),
    (&["show card", "card", "mostrar cartão"], Command::Card { of_remote: false }),
    (&["list servers", "servers", "list agents", "listar servidores", "listar agentes"], Command::Servers),
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
const LISTEN: &[&str] = &["listen on port", "listen on", "listen port", "listen", "escutar na porta"];

/// The command that a line is, in plain words. `None`: it is something to say.
pub(super) fn command(line: &str) -> Option<Command> {
    let plain = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lower = plain.to_lowercase();
    if let Some((_, command)) = LINES.iter().find(|(lines, _)| lines.contains(&&*lower)) {
        return Some(command.clone());
    }
    if let Some(port) = after(&plain, LISTEN).and_then(|port| port.parse().ok()) {
        return Some(Command::Listen(Some(port)));
    }
    after(&plain, CONNECT).filter(|what| is_address(what)).map(|what| Command::Connect(whom(what.to_owned())))
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
    use super::super::command::Whom;
    use super::*;

    /// Goal: the lines that people type for commands are those. Method: rows, in both languages and any case.
    #[test]
    fn plain_words_are_commands() {
        let address = |text: &str| Command::Connect(Whom::Address(text.to_owned()));
        for (line, is) in [
            ("connect localhost:8080", address("localhost:8080")),
            ("Connect to http://localhost:4201", address("http://localhost:4201")),
            ("connect to 2", Command::Connect(Whom::Number(2))),
            ("conectar a localhost:8080", address("localhost:8080")),
            ("connect [::1]:8080", address("[::1]:8080")),
            ("disconnect", Command::Disconnect),
            ("list servers", Command::Servers),
            ("List  Servers", Command::Servers),
            ("servers", Command::Servers),
            ("list agents", Command::Servers),
            ("listar servidores", Command::Servers),
            ("show card", Command::Card { of_remote: false }),
            ("help", Command::Help),
            ("ajuda", Command::Help),
            ("listen 8080", Command::Listen(Some(8080))),
            ("listen on port 8080", Command::Listen(Some(8080))),
            ("stop server", Command::Stop),
            ("history", Command::History),
            ("tasks", Command::Tasks { all: false }),
            ("memory", Command::Memory),
            ("exit", Command::Quit),
            ("Sair", Command::Quit),
        ] {
            assert_eq!(command(line), Some(is), "{line}");
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
