//! Answers to the questions of `callboard init`, and their parsers.

use std::net::{Ipv4Addr, SocketAddr};

use callboard_mcp::outbound::ServerEndpoint;
use callboard_message::mail::{GUARDIAN_ID, MemberId, OPERATOR_ID, SYSTEM_ID};

use crate::config::parse_socket_address;

/// Id of the first agent, unless another is given.
pub(super) const AGENT_DEFAULT: &str = "assistant";
/// Id of the mailroom in a new file.
pub(super) const MAILROOM_ID: &str = "mailroom";
/// Word for the MCP server that comes with callboard.
pub(super) const EXAMPLE_SERVER: &str = "example";
/// Members of a mailroom, unless others are given.
const MEMBERS_DEFAULT: [&str; 2] = ["builder", "tester"];
/// Ids that no member can have.
const MEMBERS_RESERVED: [&str; 4] = [GUARDIAN_ID, OPERATOR_ID, SYSTEM_ID, MAILROOM_ID];

/// Kind of node that a new topology file describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitKind {
    Gateway,
    Agents,
    Mail,
}

impl InitKind {
    pub(super) const ALL: [Self; 3] = [Self::Gateway, Self::Agents, Self::Mail];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Agents => "agents",
            Self::Mail => "mail",
        }
    }

    /// Returns the name of the kind as a person chooses it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Gateway => "a gateway before MCP servers",
            Self::Agents => "agents",
            Self::Mail => "mail for coding agents",
        }
    }

    /// Returns the address of the first listener, that of the documentation's examples.
    pub(super) fn listen_default(self) -> SocketAddr {
        let port = match self {
            Self::Gateway => 3_001,
            Self::Agents => 8_080,
            Self::Mail => 8_090,
        };
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }
}

/// Answers to all questions.
#[derive(Debug)]
pub(super) struct InitPlan {
    pub(super) contents: NodeContents,
    /// Address of the first listener.
    pub(super) listen: SocketAddr,
}

/// Contents of the node, by its kind.
#[derive(Debug)]
pub(super) enum NodeContents {
    Gateway { server: UpstreamSource },
    Agents { agent: String },
    Mail { members: MemberNames },
}

impl InitPlan {
    /// Returns the address of the second listener: that of the first with the next port.
    pub(super) fn second_listen(&self) -> SocketAddr {
        let port = match self.listen.port() {
            // Any free one, for both.
            0 => 0,
            u16::MAX => u16::MAX - 1,
            port => port + 1,
        };
        SocketAddr::new(self.listen.ip(), port)
    }
}

/// First MCP server of a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UpstreamSource {
    /// Server that comes with callboard, so that a gateway works without any other program.
    Example,
    /// Program and arguments.
    Command(Vec<String>),
    Url(String),
}

impl UpstreamSource {
    /// Parses [`EXAMPLE_SERVER`], a URL, or a command line.
    ///
    /// # Errors
    /// Text that describes the expected form.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == EXAMPLE_SERVER {
            return Ok(Self::Example);
        }
        let is_url = ["http://", "https://", "ws://", "wss://"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        if is_url {
            return match ServerEndpoint::from_url(text) {
                Ok(_) => Ok(Self::Url(text.to_owned())),
                Err(error) => Err(error.to_string()),
            };
        }
        let words = shlex::split(text).unwrap_or_default();
        match words.first() {
            Some(program) if !program.is_empty() => Ok(Self::Command(words)),
            _ => Err(
                "write a URL, or a program with its arguments, with quotes that are closed"
                    .to_owned(),
            ),
        }
    }
}

/// Ids of a mailroom's members, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberNames(Vec<String>);

impl Default for MemberNames {
    fn default() -> Self {
        Self(MEMBERS_DEFAULT.map(str::to_owned).to_vec())
    }
}

impl MemberNames {
    /// Parses ids with commas between them.
    ///
    /// # Errors
    /// Text that names the wrong id and the reason.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut names: Vec<String> = Vec::new();
        for name in text.split(',').map(str::trim) {
            let name = parse_id(name)?;
            if MEMBERS_RESERVED.contains(&&*name) {
                return Err(format!("{name} is a reserved id: choose another one"));
            }
            if names.contains(&name) {
                return Err(format!("{name} is named twice"));
            }
            names.push(name);
        }
        Ok(Self(names))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns the ids with commas between them.
    pub(super) fn joined(&self) -> String {
        self.0.join(", ")
    }
}

/// Parses the id of an agent, which becomes a part of URLs.
///
/// # Errors
/// Text that describes the expected form.
pub(super) fn parse_agent_id(text: &str) -> Result<String, String> {
    parse_id(text.trim())
}

fn parse_id(text: &str) -> Result<String, String> {
    let is_segment = text.chars().any(|c| c != '.');
    match MemberId::parse(text) {
        Ok(id) if is_segment => Ok(id.into()),
        _ => Err(format!(
            "{text:?} is no id: use 1 to {} characters of A-Z a-z 0-9 . _ -",
            MemberId::CHARS_MAX
        )),
    }
}

/// Parses the address of a listener. A new file asks for no credentials, or has keys that go over plain HTTP, so the address
/// must be this machine's own.
///
/// # Errors
/// Text that describes the expected form.
pub(super) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = parse_socket_address(text.trim())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(
            "a new file listens on this machine only: write 127.0.0.1:PORT, and change `bind` once the listener has keys and TLS"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a server is the example, a URL or a command line, as it is written. Method: rows, and texts that are none.
    #[test]
    fn servers() {
        let command = |words: &[&str]| {
            UpstreamSource::Command(words.iter().map(|word| (*word).to_owned()).collect())
        };
        for (text, expected) in [
            (" example ", UpstreamSource::Example),
            ("./example", command(&["./example"])),
            ("npx -y 'a b' \"c\"", command(&["npx", "-y", "a b", "c"])),
            (
                "https://host.example/mcp?a=1",
                UpstreamSource::Url("https://host.example/mcp?a=1".to_owned()),
            ),
        ] {
            assert_eq!(UpstreamSource::parse(text), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "  ",
            "npx 'open",
            "https://",
            "http://user@host.example/",
        ] {
            assert!(UpstreamSource::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// Goal: only ids that a topology accepts are taken. Method: lists, and mistakes in one of their ids.
    #[test]
    fn members_and_agents() {
        let names = MemberNames::parse("ann, b.o-b_2").unwrap();
        assert_eq!(names.joined(), "ann, b.o-b_2");
        assert_eq!(MemberNames::default().joined(), "builder, tester");
        for wrong in [
            "", "ann,", "ann,ann", "a b", "mailroom", "guardian", "..", "é",
        ] {
            assert!(MemberNames::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_agent_id(" helper "), Ok("helper".to_owned()));
        assert!(parse_agent_id(&"a".repeat(MemberId::CHARS_MAX)).is_ok());
        assert!(parse_agent_id(&"a".repeat(MemberId::CHARS_MAX + 1)).is_err());
    }

    /// Goal: a new file listens on this machine, and its second listener has a port of its own. Method: addresses within and
    /// beyond this machine; the ports at both ends.
    #[test]
    fn addresses() {
        for right in ["127.0.0.1:3001", "[::1]:0", " 127.1.2.3:65535 "] {
            assert!(parse_listen(right).is_ok(), "{right}");
        }
        for wrong in ["", "3001", "localhost:1", "0.0.0.0:3001", "192.168.0.1:80"] {
            assert!(parse_listen(wrong).is_err(), "{wrong}");
        }
        for (first, second) in [(0, 0), (8_090, 8_091), (65_535, 65_534)] {
            let plan = InitPlan {
                contents: NodeContents::Gateway {
                    server: UpstreamSource::Example,
                },
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, first)),
            };
            assert_eq!(plan.second_listen().port(), second);
        }
    }
}
