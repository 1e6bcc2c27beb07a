//! Arguments that several commands have.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_rpc::{ClientTls, is_loopback_host};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use secrecy::SecretString;
use url::Url;

use super::CommandError;
use crate::config::{SECONDS_PER_DAY, client_tls, resolve_ca, variable_for_message};

/// Parses a duration: a whole number and `s`, `m`, `h` or `d` (seconds, minutes, hours, days).
///
/// # Errors
/// Text that describes the expected form.
pub(super) fn parse_span(text: &str) -> Result<Duration, String> {
    let wanted = || "write a number and s, m, h or d, for example 2h".to_owned();
    let unit = text.chars().next_back().ok_or_else(wanted)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => SECONDS_PER_DAY,
        _ => return Err(wanted()),
    };
    let number: u64 = text
        .strip_suffix(unit)
        .unwrap_or_default()
        .parse()
        .map_err(|_| wanted())?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(wanted)
}

/// Returns a parser of an argument that accepts exactly these names and gives the value of each.
pub(super) fn one_of_names<T: Clone + Send + Sync + 'static>(
    all: impl IntoIterator<Item = (&'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let all: Vec<_> = all.into_iter().collect();
    PossibleValuesParser::new(all.iter().map(|(name, _)| *name)).try_map(move |written| {
        let found = all.iter().find(|(name, _)| *name == written);
        found
            .map(|(_, value)| value.clone())
            .ok_or("there is no such value")
    })
}

/// Environment variable with the key that is sent if no other credential is given.
pub(super) const KEY_VARIABLE: &str = "CALLBOARD_KEY";

/// Returns the key in the environment variable `name`, or without a name the one in a non-empty
/// [`KEY_VARIABLE`], if `may_send_default` permits to send that.
///
/// # Errors
/// Usage error if the variable `name` doesn't exist, is empty or isn't UTF-8. The name isn't repeated if
/// it may be the key itself.
pub(super) fn read_key(
    name: Option<&str>,
    may_send_default: impl FnOnce() -> bool,
) -> Result<Option<SecretString>, CommandError> {
    let key = std::env::var(name.unwrap_or(KEY_VARIABLE));
    let why = match (name, key) {
        (_, Ok(key)) if !key.is_empty() => {
            let is_sent = name.is_some() || may_send_default();
            return Ok(is_sent.then(|| SecretString::from(key)));
        }
        (None, _) => return Ok(None),
        (Some(name), Ok(_)) => format!("the {} is empty", variable_for_message(name)),
        (Some(name), Err(VarError::NotPresent)) => {
            format!("there is no {}", variable_for_message(name))
        }
        (Some(name), Err(VarError::NotUnicode(_))) => {
            format!("the {} isn't UTF-8", variable_for_message(name))
        }
    };
    Err(CommandError::usage(why))
}

/// Headers and bearer token for requests to a server.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct CredentialArguments {
    /// A header for each HTTP request.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Environment variable that holds your key or another bearer token. Without it and without a header
    /// `Authorization`, a key in CALLBOARD_KEY is sent, to this machine only.
    #[arg(long, alias = "bearer-env", value_name = "NAME")]
    key_env: Option<String>,
    #[command(flatten)]
    authorities: AuthorityArguments,
}

/// Authorities of the server's certificate.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct AuthorityArguments {
    /// PEM file with the authorities of the server's certificate, or "system", in place of the public
    /// ones.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl AuthorityArguments {
    /// Returns the TLS settings of a client.
    ///
    /// # Errors
    /// Usage error if the file of `--ca` can't be used.
    pub(super) fn client_tls(&self) -> Result<ClientTls, CommandError> {
        let ca = self.ca.as_deref();
        let ca = ca.map(|file| resolve_ca(file, Path::new("")));
        client_tls(ca.as_deref()).map_err(|why| CommandError::usage(format_args!("--ca: {why}")))
    }
}

impl CredentialArguments {
    /// Returns whether one of the options was given.
    pub(super) fn is_given(&self) -> bool {
        !self.headers.is_empty() || self.key_env.is_some() || self.authorities.ca.is_some()
    }

    /// Returns the TLS settings of a client, see [`AuthorityArguments::client_tls`].
    pub(super) fn client_tls(&self) -> Result<ClientTls, CommandError> {
        self.authorities.client_tls()
    }

    /// Adds each header to `options`.
    pub(super) fn add_headers<O, E>(
        &self,
        options: O,
        add: impl Fn(O, &str, &SecretString) -> Result<O, E>,
    ) -> Result<O, CommandError>
    where
        CommandError: From<E>,
    {
        self.headers.iter().try_fold(options, |options, header| {
            let wrong = || CommandError::usage("--header must be NAME: VALUE");
            let (name, value) = header.split_once(':').ok_or_else(wrong)?;
            Ok(add(
                options,
                name.trim(),
                &SecretString::from(value.trim()),
            )?)
        })
    }

    /// Returns the bearer token for requests to `url` (`None` for a program's
    /// pipes): that of `--key-env`, or else a non-empty
    /// [`KEY_VARIABLE`], unless a header `Authorization` is given or the host is another machine,
    /// which may not be meant to learn the key.
    ///
    /// # Errors
    /// See [`read_key`].
    pub(super) fn bearer_token(
        &self,
        url: Option<&Url>,
    ) -> Result<Option<SecretString>, CommandError> {
        read_key(self.key_env.as_deref(), || {
            url.is_some_and(|url| self.sends_default_key(url))
        })
    }

    /// Returns whether the key of [`KEY_VARIABLE`] may be sent to `url`.
    fn sends_default_key(&self, url: &Url) -> bool {
        let has_own = self.headers.iter().any(|header| {
            let name = header.split_once(':').map_or("", |(name, _)| name.trim());
            name.eq_ignore_ascii_case("authorization")
        });
        !has_own && is_loopback_host(url)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AuthorityArguments, CredentialArguments, parse_span};

    /// Goal: a span is read exactly, or refused. Method: rows.
    #[test]
    fn spans() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("2h", 7_200), ("7d", 604_800)] {
            assert_eq!(parse_span(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in [
            "",
            "h",
            "2",
            "-1h",
            "1.5h",
            "2w",
            "é",
            "99999999999999999999d",
            "9999999999999999999d",
        ] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }

    /// Goal: the default key is sent on this machine only, whatever the scheme, and never beside
    /// another `Authorization`. Method: rows of URLs and headers.
    #[test]
    fn default_key() {
        let sends = |url: &str, header: Option<&str>| {
            let arguments = CredentialArguments {
                headers: header.into_iter().map(str::to_owned).collect(),
                key_env: None,
                authorities: AuthorityArguments::default(),
            };
            arguments.sends_default_key(&url.parse().unwrap())
        };
        for (url, is_sent) in [
            ("https://example.org/mcp", false),
            ("wss://example.org/mcp", false),
            ("https://127.0.0.1:8080/mcp", true),
            ("http://127.0.0.1:8080/mcp", true),
            ("http://[::1]:8080/mcp", true),
            ("http://localhost/mcp", true),
            ("http://example.org/mcp", false),
            ("ws://example.org/mcp", false),
            ("http://192.168.0.1/mcp", false),
            ("http://localhost.example.org/mcp", false),
        ] {
            assert_eq!(sends(url, None), is_sent, "{url}");
            assert!(!sends(url, Some("authorization : Bearer x")), "{url}");
            assert_eq!(sends(url, Some("X-Trace: 1")), is_sent, "{url}");
        }
    }
}
