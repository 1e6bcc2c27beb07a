//! Delivery of mail by signed HTTP POST requests.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::mail::DeliverMessage;
use callboard_message::{Failure, RawObject, encode_hex};
use callboard_rpc::{
    ClientTls, EgressError, IpNetwork, PostOutcome, WebhookClient, WebhookClientError,
    WebhookClientOptions,
};
use callboard_runtime::{Agent, AgentProfile, Context, Handler, Handlers};
use hmac::{Hmac, Mac};
use reqwest::dns::Resolve;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use tokio::time::Instant;
use url::Url;

/// Timeout of one webhook request, until the response has arrived.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum delay between requests that a webhook's receiver can request with `Retry-After`. A
/// longer one is shortened.
pub const WEBHOOK_RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Request header with the message's id.
pub const MESSAGE_ID_HEADER: &str = "x-callboard-message-id";
/// Request header with the time of the request, in seconds since the Unix epoch.
pub const TIMESTAMP_HEADER: &str = "x-callboard-timestamp";
/// Request header with the signature: `sha256=`, followed by the HMAC-SHA256 in hexadecimal. Its
/// key is the shared secret, its input the value of the timestamp header, a `.`, and the body.
pub const SIGNATURE_HEADER: &str = "x-callboard-signature";
/// Request header with the idempotency key, which is the same for all attempts to deliver a
/// message.
pub const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";

/// Capacity of the webhook agent's mailbox. A small one suffices, because the delivery worker waits
/// for each delivery.
const MAILBOX_MESSAGES_MAX: u32 = 16;

/// Receiver of a webhook and its secret.
#[derive(derive_more::Debug, Clone)]
// The URL of a webhook is often a secret, so only its host is printed.
#[debug("WebhookOptions {{ host: {:?}, .. }}", url.host_str())]
pub struct WebhookOptions {
    /// URL of the receiver. `http` is allowed only in `allowed_networks`; elsewhere it must be
    /// `https`.
    pub url: Url,
    /// Secret for signatures; `None` to send unsigned requests.
    pub secret: Option<SecretString>,
    /// Networks to which requests are allowed in addition to the public internet.
    pub allowed_networks: Vec<IpNetwork>,
    /// DNS resolver to use instead of the operating system's. Addresses that it returns are checked
    /// in the same way.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// Authorities that the receiver's certificate may be of. Default: the public ones.
    pub tls: ClientTls,
}

impl WebhookOptions {
    /// Creates options for a receiver in the public internet, with unsigned requests.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            secret: None,
            allowed_networks: Vec::new(),
            resolver: None,
            tls: ClientTls::default(),
        }
    }
}

/// Error in the options of a [`WebhookAgent`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// Requests to the URL are not allowed.
    #[error("the webhook's url is refused: {0}")]
    Url(#[from] EgressError),
    /// The secret is empty.
    #[error("the webhook's secret is empty: set the variable of `secret_env`")]
    Secret,
    /// The HTTP client can't be created, because TLS can't be set up.
    #[error("failed to create the HTTP client: {0}")]
    Client(#[from] WebhookClientError),
}

/// Agent that delivers mail to a webhook, one message at a time. It handles [`DeliverMessage`]. The
/// request body is that message as JSON, without `attempt`.
///
/// A 2xx response means that the message is delivered. The failure is `Unavailable` if there is no
/// response, the status is 408, 429 or 5xx, or a delay that the receiver requested has not passed.
/// It is `Rejected` for any other status, redirects included, and if requests to the URL are not
/// allowed.
pub struct WebhookAgent {
    hooks: WebhookClient,
    url: Url,
    secret: Option<SecretString>,
    /// Time before which no request is sent, as requested by the receiver (`Retry-After`).
    not_before: Option<Instant>,
}

impl WebhookAgent {
    /// Creates an agent for a receiver. The addresses of the URL's host are checked at each
    /// request.
    ///
    /// # Errors
    /// [`WebhookError`] if the secret is empty, the URL is not allowed, or TLS can't be set up.
    pub fn new(options: WebhookOptions) -> Result<Self, WebhookError> {
        let WebhookOptions {
            url,
            secret,
            allowed_networks: allow,
            resolver: lookup,
            tls,
        } = options;
        if secret
            .as_ref()
            .is_some_and(|secret| secret.expose_secret().is_empty())
        {
            return Err(WebhookError::Secret);
        }
        let (timeout, retry_after_max) = (WEBHOOK_TIMEOUT, WEBHOOK_RETRY_AFTER_MAX);
        let hooks = WebhookClient::new(&WebhookClientOptions {
            allowed_networks: allow,
            resolver: lookup,
            tls,
            timeout,
            retry_after_max,
        })?;
        hooks.check_url(&url)?;
        Ok(Self {
            hooks,
            url,
            secret,
            not_before: None,
        })
    }
}

impl Agent for WebhookAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<DeliverMessage>();
    }

    /// Returns the settings of the agent. Handlers may be cancelled, because a repeated delivery
    /// has the same idempotency key.
    fn profile() -> AgentProfile {
        AgentProfile::default()
            .mailbox_capacity(MAILBOX_MESSAGES_MAX)
            .cancel_safe()
    }
}

impl Handler<DeliverMessage> for WebhookAgent {
    async fn handle(&mut self, letter: DeliverMessage, _: &mut Context) -> Result<(), Failure> {
        if self.not_before.is_some_and(|then| Instant::now() < then) {
            return Err(Failure::unavailable(
                "the receiver has requested a delay (Retry-After)",
            ));
        }
        let body = request_body(&letter)?;
        let headers = request_headers(
            &letter.message_id,
            &body,
            self.secret.as_ref(),
            SystemTime::now(),
        )?;
        let posted = self.hooks.post(&self.url, headers, body.into()).await;
        self.not_before = match posted {
            PostOutcome::Answered {
                retry_after: Some(asked),
                ..
            } => Some(Instant::now() + asked),
            _ => None,
        };
        delivery_result(posted)
    }
}

/// Converts the outcome of a request to the result of a delivery.
fn delivery_result(posted: PostOutcome) -> Result<(), Failure> {
    let status = match posted {
        PostOutcome::Answered { status, .. } => status.as_u16(),
        PostOutcome::NoAnswer => return Err(Failure::unavailable("the receiver doesn't answer")),
        PostOutcome::NotAllowed => {
            return Err(Failure::rejected(
                "requests to the receiver's address are not allowed: add its network to `allow`",
            ));
        }
    };
    match status {
        200..=299 => Ok(()),
        300..=399 => Err(Failure::rejected(
            "the receiver redirects, and redirects are not followed: correct `url`",
        )),
        408 | 429 | 500.. => Err(Failure::unavailable(format!(
            "the receiver answers with HTTP status {status}"
        ))),
        _ => Err(Failure::rejected(format!(
            "the receiver answers with HTTP status {status}"
        ))),
    }
}

/// Serialises the message as the request body, without `attempt`, so that the body is the same for
/// each attempt.
fn request_body(letter: &DeliverMessage) -> Result<String, Failure> {
    let unwritable = |_| Failure::internal("the letter can't be written as JSON");
    let mut letter =
        RawObject::parse(&serde_json::value::to_raw_value(letter).map_err(unwritable)?)
            .map_err(unwritable)?;
    letter.remove("attempt");
    Ok(letter.to_raw().get().to_owned())
}

fn request_headers(
    id: &str,
    body: &str,
    secret: Option<&SecretString>,
    now: SystemTime,
) -> Result<HeaderMap, Failure> {
    let id = HeaderValue::from_str(id)
        .map_err(|_| Failure::invalid("the message's id can't be sent in a header"))?;
    let timestamp = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut request_headers = HeaderMap::new();
    request_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request_headers.insert(HeaderName::from_static(MESSAGE_ID_HEADER), id.clone());
    request_headers.insert(HeaderName::from_static(IDEMPOTENCY_KEY_HEADER), id);
    request_headers.insert(HeaderName::from_static(TIMESTAMP_HEADER), timestamp.into());
    if let Some(signature) = secret.and_then(|secret| signature(secret, timestamp, body)) {
        request_headers.insert(HeaderName::from_static(SIGNATURE_HEADER), signature);
    }
    Ok(request_headers)
}

fn signature(secret: &SecretString, timestamp: u64, body: &str) -> Option<HeaderValue> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()?;
    mac.update(format!("{timestamp}.").as_bytes());
    mac.update(body.as_bytes());
    HeaderValue::from_str(&format!(
        "sha256={}",
        encode_hex(&mac.finalize().into_bytes())
    ))
    .ok()
}

#[cfg(test)]
mod tests {
    use callboard_message::FailureKind;
    use reqwest::StatusCode;

    use super::*;

    /// Goal: a receiver with the secret can verify the sender. Method: a signature made by another
    /// program (Python's `hmac`).
    #[test]
    fn signature() {
        let secret = SecretString::from("it's a secret");
        let signature =
            super::signature(&secret, 1_700_000_000, r#"{"message_id":"m-1","text":"é"}"#).unwrap();
        let expected = "sha256=a2aa48cd408df3f9d03602077c7a4690aa0753c823c46dc78355d2a6d5bfce11";
        assert_eq!(signature.to_str().unwrap(), expected);
    }

    /// Goal: each outcome has the right failure kind. Method: a status of each class, and no
    /// response.
    #[test]
    fn answers() {
        let kind = |posted| delivery_result(posted).map_err(|failure| failure.kind);
        let of = |status: u16| {
            kind(PostOutcome::Answered {
                status: StatusCode::from_u16(status).unwrap(),
                retry_after: None,
            })
        };
        assert!(
            [200, 202, 204]
                .into_iter()
                .all(|status| of(status) == Ok(()))
        );
        assert!(
            [408, 429, 500, 503]
                .into_iter()
                .all(|status| of(status) == Err(FailureKind::Unavailable))
        );
        assert!(
            [301, 308, 400, 401, 404, 410, 422]
                .into_iter()
                .all(|status| of(status) == Err(FailureKind::Rejected))
        );
        assert_eq!(kind(PostOutcome::NoAnswer), Err(FailureKind::Unavailable));
        assert_eq!(kind(PostOutcome::NotAllowed), Err(FailureKind::Rejected));
    }

    /// Goal: secrets aren't printed. Method: options with a token in their URL.
    #[test]
    fn options_are_silent() {
        let mut options = WebhookOptions::new("https://hook.example/token-1".parse().unwrap());
        options.secret = Some(SecretString::from("token-2"));
        assert!(!format!("{options:?}").contains("token"));
    }
}
