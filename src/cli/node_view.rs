//! Client of a node's console: its views as JSON.

use std::time::Duration;

use callboard_rpc::http1::{
    BodyError, ConnectFailure, Connector, Http1Client, NetError, RequestTarget,
};
use callboard_rpc::{ClientTls, is_loopback_host};
use callboard_runtime::visible;
use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use super::address::Address;
use super::arguments::{AuthorityArguments, read_key};
use super::{CommandError, EXIT_BLOCKED, EXIT_USAGE, REFUSED_STATUSES};

/// Address of a console if none is given.
const CONSOLE_ADDRESS_DEFAULT: &str = "http://127.0.0.1:9090";
/// Path of the views at a console.
const VIEWS_PATH: &str = "/api/v1/";
/// Timeout for connecting to a console. Default 5 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request to a console, from connecting to the end of the response. Default 10 s.
const VIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a view, in bytes: room for 10,000 agents and the calls of a node. Default 32 MiB.
const VIEW_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Maximum size of a refusal that is read, in bytes. Default 16 KiB.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of the reason of a refusal that is shown, in characters. Default 200.
const REASON_CHARS_MAX: usize = 200;

/// Address of a console, and the credential for it.
#[derive(Debug, clap::Args)]
pub(super) struct ConsoleArguments {
    /// Address of the node's console: a URL or HOST:PORT.
    #[arg(value_name = "ADDRESS", default_value = CONSOLE_ADDRESS_DEFAULT)]
    address: String,
    /// Environment variable that holds your key. Without it, a key in CALLBOARD_KEY is sent, to this
    /// machine only. Another machine must be reached by https.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    #[command(flatten)]
    authorities: AuthorityArguments,
}

impl ConsoleArguments {
    /// Returns a client for the console. Sends nothing yet.
    ///
    /// # Errors
    /// Usage error if the address, the variable of the key or the file of `--ca` can't be used.
    pub(super) fn console_client(&self) -> Result<ConsoleClient, CommandError> {
        let url = Url::parse(&Address::remote_url(&self.address));
        let url = url.map_err(|_| NodeViewError::InvalidAddress)?;
        let key = self.key(&url)?;
        Ok(ConsoleClient::new(
            url,
            key,
            &self.authorities.client_tls()?,
        )?)
    }

    fn key(&self, url: &Url) -> Result<Option<SecretString>, CommandError> {
        if self.key_env.is_some() && url.scheme() == "http" && !is_loopback_host(url) {
            return Err(CommandError::usage(
                "a key isn't sent over plain HTTP to another machine: give the address as https://HOST:PORT",
            ));
        }
        read_key(self.key_env.as_deref(), || is_loopback_host(url))
    }
}

/// HTTP client of one console.
pub(super) struct ConsoleClient {
    http: Http1Client,
    base: Url,
    headers: HeaderMap,
    has_key: bool,
}

impl ConsoleClient {
    fn new(base: Url, key: Option<SecretString>, tls: &ClientTls) -> Result<Self, NodeViewError> {
        let is_bare = base.path() == "/"
            && base.query().is_none()
            && base.username().is_empty()
            && base.password().is_none();
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() || !is_bare {
            return Err(NodeViewError::InvalidAddress);
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(key) = &key {
            let value = format!("Bearer {}", key.expose_secret());
            let mut value = HeaderValue::from_str(&value).map_err(|_| NodeViewError::InvalidKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let connector = Connector::with_tls(CONNECT_TIMEOUT, tls);
        let connector =
            connector.map_err(|_| NodeViewError::unreachable(&base, ConnectFailure::Tls))?;
        Ok(Self {
            http: Http1Client::new(connector),
            base,
            headers,
            has_key: key.is_some(),
        })
    }

    /// Returns a view of the node by its name in the path, such as `agents`, with these parameters.
    ///
    /// # Errors
    /// See [`NodeViewError`].
    pub(super) async fn view(
        &self,
        name: &str,
        query: &[(&str, &str)],
    ) -> Result<Value, NodeViewError> {
        let mut url = self.base.clone();
        url.set_path(&format!("{VIEWS_PATH}{name}"));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let target = RequestTarget::new(&url).ok_or(NodeViewError::InvalidAddress)?;
        let exchange = async {
            let response = self
                .http
                .send(
                    &target,
                    Method::GET,
                    self.headers.clone(),
                    Default::default(),
                )
                .await
                .map_err(|error| self.net_error(error))?;
            let status = response.status().as_u16();
            if status != 200 {
                let body = response.body(REFUSAL_BYTES_MAX).await;
                return Err(self.refused(status, &body.unwrap_or_default()));
            }
            let body = response.body(VIEW_BYTES_MAX).await;
            let body = body.map_err(|error| match error {
                BodyError::TooLarge => NodeViewError::TooLarge,
                BodyError::Net(error) => self.net_error(error),
            })?;
            serde_json::from_slice(&body).map_err(|_| NodeViewError::InvalidResponse)
        };
        let in_time = timeout(VIEW_TIMEOUT, exchange).await;
        in_time.map_err(|_| NodeViewError::TimedOut(VIEW_TIMEOUT))?
    }

    fn net_error(&self, error: NetError) -> NodeViewError {
        match error {
            NetError::Unreachable(why) => NodeViewError::unreachable(&self.base, why),
            NetError::Broken => NodeViewError::ConnectionLost,
        }
    }

    fn refused(&self, status: u16, body: &[u8]) -> NodeViewError {
        match status {
            401 if self.has_key => NodeViewError::KeyRejected,
            401 => NodeViewError::KeyMissing,
            403 => NodeViewError::Forbidden {
                reason: refusal_reason(body),
            },
            404 => NodeViewError::InvalidResponse,
            status => NodeViewError::Refused { status },
        }
    }
}

/// Returns the reason in the body of a refusal: `detail` or `message` of an object, or a text. It is cut to
/// [`REASON_CHARS_MAX`] characters, with control characters escaped.
fn refusal_reason(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => {
            let known = ["detail", "message"]
                .iter()
                .find_map(|name| value[*name].as_str());
            known.unwrap_or_default().to_owned()
        }
        // Not the page of a proxy.
        Err(_) => String::from_utf8_lossy(body)
            .lines()
            .next()
            .filter(|line| !line.trim_start().starts_with('<'))
            .unwrap_or_default()
            .to_owned(),
    };
    let reason: String = text.trim().chars().take(REASON_CHARS_MAX).collect();
    match reason.trim_end_matches('.') {
        "" => "it gives no reason".to_owned(),
        reason => visible(reason),
    }
}

/// Failure of a request to a console.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeViewError {
    /// The address isn't `http://HOST:PORT` or `https://HOST`, without path, query or user.
    #[error("invalid address of a console: write http://HOST:PORT or https://HOST")]
    InvalidAddress,
    /// The key has characters that can't be sent in a header.
    #[error("the key has characters that a header can't hold: copy it again")]
    InvalidKey,
    /// No connection could be established.
    #[error(
        "can't connect to the console at {address}: {why}. Start the node with `callboard serve FILE --console HOST:PORT`, \
         or give the address of its console"
    )]
    Unreachable {
        /// Scheme, host and port.
        address: String,
        /// Reason that the connection failed.
        why: ConnectFailure,
    },
    /// The connection broke during the request.
    #[error("the connection to the console broke: run the command again")]
    ConnectionLost,
    /// There was no whole response within this time.
    #[error("the console did not answer in {} s: look at the load of the node", .0.as_secs())]
    TimedOut(Duration),
    /// The console asks for a key, and none was sent.
    #[error(
        "the console asks for a key (401): name the variable that holds one with --key-env NAME. A key in CALLBOARD_KEY \
         is sent to this machine only"
    )]
    KeyMissing,
    /// The console doesn't accept the key.
    #[error(
        "the console rejects the key (401): give one of this node that is neither expired nor revoked, see `callboard keys \
         list`"
    )]
    KeyRejected,
    /// The credential lacks a scope, or the console doesn't permit the name of its host.
    #[error(
        "the console refuses the view (403): {reason}. If the key lacks the scope console.read, `callboard keys add NAME \
         --scope console.read` creates one that has it"
    )]
    Forbidden {
        /// Reason that the console gives.
        reason: String,
    },
    /// The console answered with another status than 200.
    #[error("the console answered with status {status}: try again later, or read the node's log")]
    Refused {
        /// HTTP status.
        status: u16,
    },
    /// The view is larger than [`VIEW_BYTES_MAX`].
    #[error(
        "the view has more than {} bytes: look at a part of it with --view NAME",
        VIEW_BYTES_MAX
    )]
    TooLarge,
    /// The response isn't the view of a console.
    #[error(
        "the answer isn't from a console of this version: check the address, and the version of the node"
    )]
    InvalidResponse,
}

impl NodeViewError {
    fn unreachable(base: &Url, why: ConnectFailure) -> Self {
        Self::Unreachable {
            address: base.origin().ascii_serialization(),
            why,
        }
    }

    /// Returns whether the same request may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::ConnectionLost | Self::TimedOut(_) => true,
            Self::Refused { status } => matches!(status, 429 | 500..=599),
            _ => false,
        }
    }

    fn exit_code(&self) -> Option<u8> {
        match self {
            Self::InvalidAddress | Self::InvalidKey => Some(EXIT_USAGE),
            Self::KeyMissing | Self::KeyRejected | Self::Forbidden { .. } => Some(EXIT_BLOCKED),
            Self::Refused { status } if REFUSED_STATUSES.contains(status) => Some(EXIT_BLOCKED),
            _ => None,
        }
    }
}

impl From<NodeViewError> for CommandError {
    fn from(error: NodeViewError) -> Self {
        let failed = Self::failed(&error);
        Self {
            exit_code: error.exit_code().unwrap_or(failed.exit_code),
            ..failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::EXIT_FAILED;

    fn client(address: &str, key: Option<&str>) -> Result<ConsoleClient, NodeViewError> {
        let url = Url::parse(address).map_err(|_| NodeViewError::InvalidAddress)?;
        ConsoleClient::new(url, key.map(SecretString::from), &ClientTls::default())
    }

    /// Goal: an address that isn't a console's, and a key that no header holds, are usage errors. Method: rows.
    #[test]
    fn addresses_and_keys() {
        for address in ["http://127.0.0.1:9090", "https://node.example"] {
            assert!(client(address, Some("k")).is_ok(), "{address}");
        }
        for address in [
            "ftp://127.0.0.1",
            "http://127.0.0.1/agents",
            "http://a@127.0.0.1",
            "http://127.0.0.1/?a=1",
        ] {
            let error = CommandError::from(client(address, None).err().unwrap());
            assert_eq!(error.exit_code, EXIT_USAGE, "{address}");
        }
        let error = client("http://127.0.0.1", Some("a\nb")).err().unwrap();
        assert!(matches!(error, NodeViewError::InvalidKey), "{error}");
    }

    /// Goal: a refusal says its remedy and has the exit code of refusals. Method: each status, with and without a key.
    #[test]
    fn refusals() {
        let (with_key, without) = (
            client("http://127.0.0.1", Some("k")).unwrap(),
            client("http://127.0.0.1", None).unwrap(),
        );
        for (client, status, exit_code, remedy) in [
            (&without, 401, EXIT_BLOCKED, "--key-env NAME"),
            (&with_key, 401, EXIT_BLOCKED, "callboard keys list"),
            (&with_key, 403, EXIT_BLOCKED, "--scope console.read"),
            (&with_key, 429, EXIT_BLOCKED, "status 429"),
            (&with_key, 404, EXIT_FAILED, "check the address"),
            (&with_key, 503, EXIT_FAILED, "status 503"),
        ] {
            let error = CommandError::from(client.refused(status, b""));
            assert_eq!(error.exit_code, exit_code, "{status}");
            assert!(error.message.contains(remedy), "{}", error.message);
        }
    }

    /// Goal: the reason of a refusal is shown, bounded and harmless to a terminal. Method: bodies in each form.
    #[test]
    fn reasons_of_refusals() {
        let long = "x".repeat(REASON_CHARS_MAX + 1);
        let none = "it gives no reason";
        for (body, expect) in [
            (
                r#"{"detail":"this host isn't allowed."}"#,
                "this host isn't allowed",
            ),
            (r#"{"message":"no"}"#, "no"),
            (r#"{"detail":"\u001b[2J"}"#, r"\u{1b}[2J"),
            ("this host isn't allowed\nmore", "this host isn't allowed"),
            ("<html><body>403</body></html>", none),
            (r#"{"detail":7}"#, none),
            ("[]", none),
            ("", none),
            (long.as_str(), &long[1..]),
        ] {
            assert_eq!(refusal_reason(body.as_bytes()), expect, "{body}");
        }
    }
}
