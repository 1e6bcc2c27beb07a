//! Addresses of agents on the command line. The form of the text decides; nothing is sent to find out.

use std::path::Path;

use super::CommandError;

/// Endings of topology files. A name with one of them is a file, whether it exists or not.
const FILE_ENDINGS: [&str; 3] = ["toml", "yaml", "yml"];

/// Location of an agent, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// Path of a topology file, or `example:NAME`.
    File(String),
    /// URL or `HOST[:PORT][/PATH]`.
    Remote(String),
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// Usage error if the text is neither a file nor an address, or may be both.
    pub(super) fn parse(typed: &str) -> Result<Self, CommandError> {
        Self::parse_with(typed, |path| Path::new(path).is_file())
    }

    fn parse_with(typed: &str, is_file: impl Fn(&str) -> bool) -> Result<Self, CommandError> {
        let (file, remote) = (
            || Ok(Self::File(typed.to_owned())),
            || Ok(Self::Remote(typed.to_owned())),
        );
        if typed.starts_with("example:") {
            return file();
        }
        if let Some((scheme, _)) = typed.split_once("://") {
            return match scheme.to_ascii_lowercase().as_str() {
                "http" | "https" => remote(),
                _ => Err(CommandError::usage(format_args!(
                    "an address begins with http:// or https://, not {scheme}://"
                ))),
            };
        }
        let ending = Path::new(typed)
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or_default();
        if ["/", "./", "../"]
            .iter()
            .any(|begin| typed.starts_with(begin))
            || FILE_ENDINGS.contains(&ending)
        {
            return file();
        }
        match (is_file(typed), host_form(typed)) {
            (true, HostForm::No) => file(),
            (false, HostForm::Yes) => remote(),
            (true, HostForm::Yes | HostForm::BareName) => Err(CommandError::usage(format_args!(
                "{typed:?} is ambiguous, a file or a host: write ./{typed} for the file, http://{typed} for the host"
            ))),
            (false, HostForm::BareName) => Err(CommandError::usage(format_args!(
                "{typed:?} is neither a file nor an address: write ./{typed} for a file, http://{typed} for a host"
            ))),
            (false, HostForm::No) => Err(CommandError::usage(format_args!(
                "{typed:?} is neither a file nor an address (a topology file, example:NAME, http://HOST:PORT or HOST:PORT)"
            ))),
        }
    }

    /// Returns the URL of a remote address; without a scheme, that of HTTP.
    pub(super) fn remote_url(typed: &str) -> String {
        if typed.contains("://") {
            typed.to_owned()
        } else {
            format!("http://{typed}")
        }
    }
}

/// Whether a text without a scheme may name a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HostForm {
    No,
    /// A single word, which may also be the id of an agent.
    BareName,
    Yes,
}

fn host_form(typed: &str) -> HostForm {
    let host = typed.split('/').next().unwrap_or_default();
    let is_host = !host.is_empty()
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-_[]:".contains(c));
    match is_host {
        false => HostForm::No,
        true if host == "localhost" || host.contains(['.', ':']) => HostForm::Yes,
        true => HostForm::BareName,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the form of an address decides what it is, and an ambiguous one says how to write it. Method: rows, with a folder that
    /// has three files.
    /// Rows: B-17, X-34.
    #[test]
    fn forms_decide() {
        let here = |path: &str| ["localhost", "office", "my office"].contains(&path);
        for (typed, expected) in [
            ("example:agent1", Ok(true)),
            ("missing.toml", Ok(true)),
            ("office.txt", Ok(false)),
            ("./office", Ok(true)),
            ("/tmp/localhost", Ok(true)),
            ("my office", Ok(true)),
            ("localhost:8080", Ok(false)),
            ("localhost/agents/a", Ok(false)),
            ("[::1]:8080", Ok(false)),
            ("agent.example", Ok(false)),
            ("http://agent.example/card.toml", Ok(false)),
            ("HTTPS://agent.example", Ok(false)),
            (
                "localhost",
                Err("./localhost for the file, http://localhost for the host"),
            ),
            ("office", Err("./office for the file")),
            ("builder", Err("http://builder for a host")),
            ("ftp://agent.example", Err("not ftp://")),
            ("", Err("neither")),
            ("two words", Err("neither")),
        ] {
            match (Address::parse_with(typed, here), expected) {
                (Ok(address), Ok(is_file)) => {
                    assert_eq!(matches!(address, Address::File(_)), is_file, "{typed}")
                }
                (Err(error), Err(part)) => {
                    assert!(error.message.contains(part), "{typed}: {}", error.message)
                }
                (other, _) => panic!("{typed}: {other:?}"),
            }
        }
    }
}
