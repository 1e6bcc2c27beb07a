use std::time::Duration;
use std::{fmt, io};

use callboard_rpc::Egress;
use futures::future::BoxFuture;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fetch::{Fetch, REQUEST_TIMEOUT_DEFAULT};
use super::{AuthError, Document};

/// Where somebody consents to what we ask for: a browser in front of a person, as a rule.
pub trait Consent: Send + Sync {
    /// Where the authorization server sends the browser back to. Stays the same: clients are registered with it.
    fn redirect_uri(&self) -> &str;

    /// Opens `url` (https, or http on this machine) and waits for the browser to come back. Never hand it to a shell.
    ///
    /// # Errors
    /// [`AuthError::Consent`] where nobody can be asked.
    fn authorize<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Redirected, AuthError>>;
}

impl fmt::Debug for dyn Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Consent")
    }
}

/// What the browser brought back: the parameters of an authorization response. Nothing in it is checked yet.
#[derive(Debug)]
pub struct Redirected {
    pub(crate) code: Option<SecretString>,
    pub(crate) state: Option<SecretString>,
    pub(crate) issuer: Option<String>,
    pub(crate) error: Option<String>,
}

impl Redirected {
    /// From the URL that the browser came back to.
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
                return Err(AuthError::Malformed(Document::Authorization));
            }
        }
        Ok(redirected)
    }

    /// Whether it answers the request that `url` made.
    fn answers(&self, url: &Url) -> bool {
        let asked = url.query_pairs().find(|(name, _)| name == "state");
        match (asked, &self.state) {
            (Some((_, asked)), Some(state)) => asked == state.expose_secret(),
            _ => false,
        }
    }
}

/// Consent without a person: asks the authorization server itself and reads where it redirects to. For servers that
/// consent to everything, as in tests.
#[derive(Debug)]
pub struct HeadlessConsent {
    fetch: Fetch,
    redirect_uri: String,
}

impl HeadlessConsent {
    /// With the redirect URI to name; nothing needs to listen there. `egress` says where the server may be.
    ///
    /// # Errors
    /// [`AuthError::Client`] if there is no HTTP client to be had.
    pub fn new(redirect_uri: impl Into<String>, egress: &Egress) -> Result<Self, AuthError> {
        Ok(Self {
            fetch: Fetch::new(egress, REQUEST_TIMEOUT_DEFAULT)?,
            redirect_uri: redirect_uri.into(),
        })
    }
}

impl Consent for HeadlessConsent {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn authorize<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Redirected, AuthError>> {
        Box::pin(async move {
            let back = self.fetch.redirect_of(url, Document::Authorization).await?;
            match back {
                Some(back) if back.as_str().starts_with(&self.redirect_uri) => {
                    Redirected::from_url(&back)
                }
                _ => Err(AuthError::Consent(
                    "the authorization server didn't redirect to us",
                )),
            }
        })
    }
}

/// How long somebody may take to consent.
pub const CONSENT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5 * 60);

/// How large the head of a browser's request may be.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long a browser may take to send it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How many browsers are listened to at once.
pub const CONNECTIONS_MAX: usize = 16;

/// Shows people the URL at which they can consent, and waits for their browser on 127.0.0.1.
pub struct LoopbackConsent {
    listener: Mutex<TcpListener>,
    redirect_uri: String,
    show: Box<dyn Fn(&Url) + Send + Sync>,
}

impl LoopbackConsent {
    /// Listens on `port` of 127.0.0.1, 0 for any; `show` shows the URL to the person.
    ///
    /// # Errors
    /// That of the port.
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

impl Consent for LoopbackConsent {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn authorize<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Redirected, AuthError>> {
        Box::pin(async move {
            let listener = self.listener.lock().await;
            (self.show)(url);
            let mut browsers = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept(), if browsers.len() < CONNECTIONS_MAX => match accepted {
                        Ok((browser, _)) => {
                            browsers.spawn(timeout(HEAD_TIMEOUT, serve(browser, url.clone(), self.redirect_uri.clone())));
                        }
                        Err(_) => return Err(AuthError::Consent("this machine takes no more connections")),
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

/// Answers one browser; what it brought, if it is the answer to `url`.
async fn serve(mut browser: TcpStream, url: Url, redirect_uri: String) -> Option<Redirected> {
    let head = head(&mut browser).await?;
    let redirected = target(&head, &redirect_uri)
        .and_then(|back| Redirected::from_url(&back).ok())
        .filter(|redirected| redirected.answers(&url));
    let answer = match redirected {
        Some(_) => answer(
            "200 OK",
            "You can close this page and go back to the program.",
        ),
        None => answer("400 Bad Request", "Nobody is waiting for this page."),
    };
    // The browser may be gone already: what it brought counts all the same.
    let _ = browser.write_all(answer.as_bytes()).await;
    let _ = browser.shutdown().await;
    redirected
}

async fn head(browser: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = browser.read(&mut chunk).await.ok()?;
        if read == 0 || head.len() + read > HEAD_BYTES_MAX {
            return None;
        }
        head.extend_from_slice(&chunk[..read]);
    }
    String::from_utf8(head).ok()
}

/// The URL of a GET request to our redirect URI.
fn target(head: &str, redirect_uri: &str) -> Option<Url> {
    let mut words = head.lines().next()?.split(' ');
    let ("GET", target) = (words.next()?, words.next()?) else {
        return None;
    };
    let ours = Url::parse(redirect_uri).ok()?;
    let url = target.starts_with('/').then(|| ours.join(target).ok())??;
    (url.origin() == ours.origin() && url.path() == ours.path()).then_some(url)
}

fn answer(status: &str, text: &str) -> String {
    let body = format!("<!doctype html><title>callboard</title><p>{text}</p>");
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
