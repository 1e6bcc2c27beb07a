//! Letters as signed HTTP posts.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::mail::Deliver;
use callboard_message::{Failure, RawObject, hex};
use callboard_rpc::{EgressError, HookOptions, Hooks, Network, Posted};
use callboard_runtime::{Agent, Cx, Handler, Handlers, Profile};
use hmac::{Hmac, Mac};
use reqwest::dns::Resolve;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use tokio::time::Instant;
use url::Url;

/// How long a receiver may take to answer one post.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest wait that a receiver can ask for (`Retry-After`).
pub const WEBHOOK_RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Which message it is.
pub const MESSAGE_ID_HEADER: &str = "x-callboard-message-id";
/// When it was posted, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "x-callboard-timestamp";
/// `sha256=`, and in hexadecimal the HMAC of the timestamp, a `.` and the body, by the secret that both know.
pub const SIGNATURE_HEADER: &str = "x-callboard-signature";
/// The same for each post of the same message.
pub const KEY_HEADER: &str = "idempotency-key";

/// Letters that wait for a receiver: whoever hands them out waits for one before the next.
const MAILBOX_MESSAGES_MAX: u32 = 16;

/// Where letters are posted.
#[derive(derive_more::Debug, Clone)]
// A URL of a webhook is often a secret by itself.
#[debug("WebhookOptions {{ host: {:?}, .. }}", url.host_str())]
pub struct WebhookOptions {
    /// The receiver: `https`, or `http` in a network that is allowed.
    pub url: Url,
    /// What posts are signed with; they aren't where there is none.
    pub secret: Option<SecretString>,
    /// Networks that the receiver may be in beside the public internet.
    pub allow: Vec<Network>,
    /// The name service that is asked in place of the system's; its answers are judged all the same.
    pub lookup: Option<Arc<dyn Resolve>>,
}

impl WebhookOptions {
    /// A receiver in the public internet, of posts that aren't signed.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            secret: None,
            allow: Vec::new(),
            lookup: None,
        }
    }
}

/// Why there is no webhook.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// Name another receiver, or allow its network.
    #[error("the webhook's url is refused: {0}")]
    Url(#[from] EgressError),
    /// Give it a secret with something in it, or none.
    #[error("the webhook's secret is empty")]
    Secret,
    /// There is no TLS to be had: look at the system's.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// Handles [`Deliver`]: posts the letter, one at a time. The body is the letter as JSON, but for its `attempt`.
///
/// It has arrived where the receiver answers 2xx. `Unavailable`: it doesn't answer, or with 408, 429 or 5xx; not before it
/// wants to be asked again. `Rejected`: it answers with anything else, a redirect included, or it may not be posted to.
pub struct WebhookAgent {
    hooks: Hooks,
    url: Url,
    secret: Option<SecretString>,
    /// The receiver wants to be left alone until then.
    not_before: Option<Instant>,
}

impl WebhookAgent {
    /// Stands for a receiver.
    ///
    /// # Errors
    /// Where the URL itself says that it may not be posted to; where its name leads is judged at each post.
    pub fn new(options: WebhookOptions) -> Result<Self, WebhookError> {
        let WebhookOptions {
            url,
            secret,
            allow,
            lookup,
        } = options;
        if secret
            .as_ref()
            .is_some_and(|secret| secret.expose_secret().is_empty())
        {
            return Err(WebhookError::Secret);
        }
        let (timeout, retry_after_max) = (WEBHOOK_TIMEOUT, WEBHOOK_RETRY_AFTER_MAX);
        let hooks = Hooks::new(&HookOptions {
            allow,
            lookup,
            timeout,
            retry_after_max,
        })?;
        hooks.check(&url)?;
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
        on.exclusive::<Deliver>();
    }

    /// It may be dropped before it knows what became of a post: whoever tries again goes by the key.
    fn profile() -> Profile {
        Profile::default()
            .mailbox_capacity(MAILBOX_MESSAGES_MAX)
            .cancel_safe()
    }
}

impl Handler<Deliver> for WebhookAgent {
    async fn handle(&mut self, letter: Deliver, _: &mut Cx) -> Result<(), Failure> {
        if self.not_before.is_some_and(|then| Instant::now() < then) {
            return Err(Failure::unavailable(
                "the receiver wants to be left alone for a while",
            ));
        }
        let body = body(&letter)?;
        let headers = headers(
            &letter.message_id,
            &body,
            self.secret.as_ref(),
            SystemTime::now(),
        )?;
        let posted = self.hooks.post(&self.url, headers, body.into()).await;
        self.not_before = match posted {
            Posted::Answered {
                retry_after: Some(asked),
                ..
            } => Some(Instant::now() + asked),
            _ => None,
        };
        judge(posted)
    }
}

/// What an answer says of a letter.
fn judge(posted: Posted) -> Result<(), Failure> {
    let status = match posted {
        Posted::Answered { status, .. } => status.as_u16(),
        Posted::Silent => return Err(Failure::unavailable("the receiver doesn't answer")),
        Posted::NotAllowed => return Err(Failure::rejected("the receiver may not be posted to")),
    };
    match status {
        200..=299 => Ok(()),
        300..=399 => Err(Failure::rejected(
            "the receiver redirects, and nobody follows",
        )),
        408 | 429 | 500.. => Err(Failure::unavailable(format!(
            "the receiver answers {status}"
        ))),
        _ => Err(Failure::rejected(format!("the receiver answers {status}"))),
    }
}

/// The letter, but for how often it was tried: the same each time.
fn body(letter: &Deliver) -> Result<String, Failure> {
    let unwritable = |_| Failure::internal("the letter can't be written as JSON");
    let mut letter =
        RawObject::parse(&serde_json::value::to_raw_value(letter).map_err(unwritable)?)
            .map_err(unwritable)?;
    letter.remove("attempt");
    Ok(letter.to_raw().get().to_owned())
}

fn headers(
    id: &str,
    body: &str,
    secret: Option<&SecretString>,
    now: SystemTime,
) -> Result<HeaderMap, Failure> {
    let id = HeaderValue::from_str(id)
        .map_err(|_| Failure::invalid("the message's id can't stand in a header"))?;
    let timestamp = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(HeaderName::from_static(MESSAGE_ID_HEADER), id.clone());
    headers.insert(HeaderName::from_static(KEY_HEADER), id);
    headers.insert(HeaderName::from_static(TIMESTAMP_HEADER), timestamp.into());
    if let Some(signature) = secret.and_then(|secret| sign(secret, timestamp, body)) {
        headers.insert(HeaderName::from_static(SIGNATURE_HEADER), signature);
    }
    Ok(headers)
}

fn sign(secret: &SecretString, timestamp: u64, body: &str) -> Option<HeaderValue> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()?;
    mac.update(format!("{timestamp}.").as_bytes());
    mac.update(body.as_bytes());
    HeaderValue::from_str(&format!("sha256={}", hex(&mac.finalize().into_bytes()))).ok()
}

#[cfg(test)]
mod tests {
    use callboard_message::FailureKind;
    use reqwest::StatusCode;

    use super::*;

    /// Goal: whoever has the secret can tell who posted. Method: a signature that another program made (Python's `hmac`).
    #[test]
    fn signature() {
        let secret = SecretString::from("it's a secret");
        let signature = sign(&secret, 1_700_000_000, r#"{"message_id":"m-1","text":"é"}"#).unwrap();
        let expected = "sha256=a2aa48cd408df3f9d03602077c7a4690aa0753c823c46dc78355d2a6d5bfce11";
        assert_eq!(signature.to_str().unwrap(), expected);
    }

    /// Goal: an answer means what it says. Method: a status of each kind, and no answer.
    #[test]
    fn answers() {
        let kind = |posted| judge(posted).map_err(|failure| failure.kind);
        let of = |status: u16| {
            kind(Posted::Answered {
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
        assert_eq!(kind(Posted::Silent), Err(FailureKind::Unavailable));
        assert_eq!(kind(Posted::NotAllowed), Err(FailureKind::Rejected));
    }

    /// Goal: what is secret isn't printed. Method: options with a token in their URL.
    #[test]
    fn options_are_silent() {
        let mut options = WebhookOptions::new("https://hook.example/token-1".parse().unwrap());
        options.secret = Some(SecretString::from("token-2"));
        assert!(!format!("{options:?}").contains("token"));
    }
}
