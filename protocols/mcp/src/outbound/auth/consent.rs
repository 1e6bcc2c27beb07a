use std::time::Duration;
use std::{fmt, io};

use callboard_rpc::EgressPolicy;
use futures::future::BoxFuture;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fetch::{OAuthHttpClient, REQUEST_TIMEOUT_DEFAULT};
use super::{AuthError, OAuthDocument};

/// User interface that asks a user to consent to an authorization request, usually in a browser.
pub trait ConsentProvider: Send + Sync {
    /// Returns the URI to which the authorization server redirects the browser after the consent.
    /// It must stay the same, because clients are registered with it.
    fn redirect_uri(&self) -> &str;

    /// Opens `url` (https, or http on this machine) and waits for the redirect to
    /// [`redirect_uri`](Self::redirect_uri). Implementations must never pass the URL to a shell.
    ///
    /// # Errors
    /// [`AuthError::Consent`] if no user can be asked.
    fn authorize<'a>(
        &'a self,
        url: &'a Url,
    ) -> BoxFuture<'a, Result<AuthorizationResponse, AuthError>>;
}

impl fmt::Debug for dyn ConsentProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConsentProvider")
    }
}

/// Parameters of an authorization response, unverified: the redirect after a user's consent or
/// refusal.
#[derive(Debug)]
pub struct AuthorizationResponse {
    pub(crate) code: Option<SecretString>,
    pub(crate) state: Option<SecretString>,
    pub(crate) issuer: Option<String>,
    pub(crate) error: Option<String>,
}

impl AuthorizationResponse {
    /// Parses the URL to which the authorization server redirected the browser.
    ///
    /// # Errors
    /// [`AuthError::Malformed`] if a parameter occurs twice (RFC 6749, section 3.1).
    pub fn from_url(url: &Url) -> Result<Self, AuthError> {
        let mut redirected = Self {
            code: None,
            state: None,
            issuer: None,
            error: None,
        };
        for (name, value) in url.query_pairs() {
            let value = value.into_owned();
            let twice = match name.as_ref() {
                "code" => redirected.code.replace(value.into()).is_some(),
                "state" => redirected.state.replace(value.into()).is_some(),
                "iss" => redirected.issuer.replace(value).is_some(),
                "error" => redirected.error.replace(value).is_some(),
                _ => false,
            };
            if twice {
                return Err(AuthError::Malformed(OAuthDocument::Authorization));
            }
        }
        Ok(redirected)
    }

    /// Returns true if the `state` of the response equals that in the authorization request `url`.
    fn has_redirect_target(&self, url: &Url) -> bool {
        let asked = url.query_pairs().find(|(name, _)| name == "state");
        match (asked, &self.state) {
            (Some((_, asked)), Some(state)) => asked == state.expose_secret(),
            _ => false,
        }
    }
}

/// Consent provider without a user: requests the authorization URL itself and reads the redirect.
/// It serves authorization servers that consent to everything, as in tests.
#[derive(Debug)]
pub struct HeadlessConsent {
    fetch: OAuthHttpClient,
    redirect_uri: String,
}

impl HeadlessConsent {
    /// Creates a provider with the given redirect URI, which is never contacted. `egress` restricts
    /// the addresses of authorization servers.
    ///
    /// # Errors
    /// [`AuthError::Client`] if the HTTP client can't be built.
    pub fn new(redirect_uri: impl Into<String>, egress: &EgressPolicy) -> Result<Self, AuthError> {
        Ok(Self {
            fetch: OAuthHttpClient::new(egress, REQUEST_TIMEOUT_DEFAULT)?,
            redirect_uri: redirect_uri.into(),
        })
    }
}

impl ConsentProvider for HeadlessConsent {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn authorize<'a>(
        &'a self,
        url: &'a Url,
    ) -> BoxFuture<'a, Result<AuthorizationResponse, AuthError>> {
        Box::pin(async move {
            let back = self
                .fetch
                .redirect_target(url, OAuthDocument::Authorization)
                .await?;
            match back {
                Some(back) if back.as_str().starts_with(&self.redirect_uri) => {
                    AuthorizationResponse::from_url(&back)
                }
                _ => Err(AuthError::Consent(
                    "the authorization server didn't redirect to the client's address: register that address there",
                )),
            }
        })
    }
}

/// Default time limit for a user to consent.
pub const CONSENT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5 * 60);

/// Maximum size of the request line and headers of a browser's request to [`LoopbackConsent`], in
/// bytes.
pub const REQUEST_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Time limit of serving one connection from a browser.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections from browsers to [`LoopbackConsent`]. Further ones
/// wait.
pub const LOOPBACK_CONNECTIONS_MAX: usize = 16;

/// Consent provider for a browser on the same machine. Shows the user the authorization URL, and
/// waits for the redirect on a port of 127.0.0.1.
pub struct LoopbackConsent {
    listener: Mutex<TcpListener>,
    redirect_uri: String,
    show: Box<dyn Fn(&Url) + Send + Sync>,
}

impl LoopbackConsent {
    /// Listens on `port` of 127.0.0.1; 0 means any free port. `show` presents the authorization URL
    /// to the user.
    ///
    /// # Errors
    /// The I/O error of opening the port.
    pub async fn bind(port: u16, show: impl Fn(&Url) + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let redirect_uri = format!(
            "http://127.0.0.1:{}/callback",
            listener.local_addr()?.port()
        );
        Ok(Self {
            listener: Mutex::new(listener),
            redirect_uri,
            show: Box::new(show),
        })
    }
}

impl ConsentProvider for LoopbackConsent {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn authorize<'a>(
        &'a self,
        url: &'a Url,
    ) -> BoxFuture<'a, Result<AuthorizationResponse, AuthError>> {
        Box::pin(async move {
            let listener = self.listener.lock().await;
            (self.show)(url);
            let mut browsers = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept(), if browsers.len() < LOOPBACK_CONNECTIONS_MAX => match accepted {
                        Ok((browser, _)) => {
                            browsers.spawn(timeout(HEAD_TIMEOUT, serve(browser, url.clone(), self.redirect_uri.clone())));
                        }
                        Err(_) => return Err(AuthError::Consent("the redirect listener can't accept connections")),
                    },
                    Some(served) = browsers.join_next() => {
                        if let Ok(Ok(Some(redirected))) = served {
                            return Ok(redirected);
                        }
                    }
                }
            }
        })
    }
}

/// Serves one browser connection. Returns the authorization response if the browser was redirected
/// from the authorization request `url`, and `None` for any other request.
async fn serve(
    mut browser: TcpStream,
    url: Url,
    redirect_uri: String,
) -> Option<AuthorizationResponse> {
    let head = read_request_head(&mut browser).await?;
    let redirected = redirect_target(&head, &redirect_uri)
        .and_then(|back| AuthorizationResponse::from_url(&back).ok())
        .filter(|redirected| redirected.has_redirect_target(&url));
    let answer = match redirected {
        Some(_) => http_response(
            "200 OK",
            "You can close this page and go back to the program.",
        ),
        None => http_response(
            "400 Bad Request",
            "No authorization is waiting for this page.",
        ),
    };
    // The response counts even if the browser has disconnected.
    let _ = browser.write_all(answer.as_bytes()).await;
    let _ = browser.shutdown().await;
    redirected
}

async fn read_request_head(browser: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = browser.read(&mut chunk).await.ok()?;
        if read == 0 || head.len() + read > REQUEST_HEAD_BYTES_MAX {
            return None;
        }
        head.extend_from_slice(&chunk[..read]);
    }
    String::from_utf8(head).ok()
}

/// Returns the full URL of a GET request to `redirect_uri`, parsed from the request's `head`;
/// `None` for any other request.
fn redirect_target(head: &str, redirect_uri: &str) -> Option<Url> {
    let mut words = head.lines().next()?.split(' ');
    let ("GET", target) = (words.next()?, words.next()?) else {
        return None;
    };
    let ours = Url::parse(redirect_uri).ok()?;
    let url = target.starts_with('/').then(|| ours.join(target).ok())??;
    (url.origin() == ours.origin() && url.path() == ours.path()).then_some(url)
}

fn http_response(status: &str, text: &str) -> String {
    let body = format!("<!doctype html><title>callboard</title><p>{text}</p>");
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
