//! HTTP client for webhooks: POST requests to URLs from untrusted sources. Destinations are checked
//! by [`EgressPolicy`] before the request, and again at the connection, which goes to exactly the
//! checked addresses.

use derive_more::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::dns::Resolve;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use tokio::time::timeout;
use url::Url;

use crate::{CertificateFault, ClientTls, EgressError, EgressPolicy, IpNetwork};

/// Timeout of the DNS lookup in [`WebhookClient::resolve_url`].
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Allowed destinations and timeouts of a [`WebhookClient`].
#[derive(Debug, Clone)]
pub struct WebhookClientOptions {
    /// Networks to which requests are allowed in addition to the public internet. To these, `http`
    /// is allowed too.
    pub allowed_networks: Vec<IpNetwork>,
    /// DNS resolver to use instead of the operating system's. Addresses that it returns are checked
    /// in the same way.
    #[debug(skip)]
    pub resolver: Option<Arc<dyn Resolve>>,
    /// Authorities that the receivers' certificates may be of. Default: the public ones.
    pub tls: ClientTls,
    /// Timeout of a request, until the head of the response has arrived.
    pub timeout: Duration,
    /// Maximum delay that a receiver can request with `Retry-After`. A longer one is shortened.
    #[debug(skip)]
    pub retry_after_max: Duration,
}

/// Outcome of a POST request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostOutcome {
    /// The receiver sent a response. Its body isn't read. Redirects are not followed, but reported
    /// like any other status.
    Answered {
        /// Status of the response.
        status: StatusCode,
        /// Delay that the receiver requests before the next request (`Retry-After`), limited to
        /// [`WebhookClientOptions::retry_after_max`]; `None` if it requests none.
        retry_after: Option<Duration>,
    },
    /// The connection failed, or there was no response in time. A retry may succeed.
    NoAnswer,
    /// Requests to the URL or to the addresses of its host are not allowed. No request was sent.
    NotAllowed,
}

/// HTTP client for webhooks, which sends POST requests to URLs from untrusted sources. `https` is
/// allowed to the public internet and the allowed networks; `http` only to the allowed networks.
pub struct WebhookClient {
    safe: WebhookRoute,
    plain: Option<WebhookRoute>,
    retry_after_max: Duration,
}

/// Failure to create a [`WebhookClient`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookClientError {
    /// The HTTP client can't be created.
    #[error("can't build the HTTP client: {0}")]
    Http(#[from] reqwest::Error),
    /// The TLS settings can't be used.
    #[error("can't set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

struct WebhookRoute {
    egress: EgressPolicy,
    client: Client,
}

impl WebhookRoute {
    fn new(
        egress: EgressPolicy,
        options: &WebhookClientOptions,
    ) -> Result<Self, WebhookClientError> {
        let egress = options
            .allowed_networks
            .iter()
            .fold(egress, |egress, network| egress.with_network(*network));
        let egress = options.resolver.iter().fold(egress, |egress, lookup| {
            egress.with_resolver(lookup.clone())
        });
        let client = egress
            .http_client_builder()
            .redirect(Policy::none())
            .timeout(options.timeout)
            .use_preconfigured_tls(options.tls.config()?)
            .build()?;
        Ok(Self { egress, client })
    }
}

impl WebhookClient {
    /// Creates a client.
    ///
    /// # Errors
    /// [`WebhookClientError`] if the HTTP client or TLS can't be set up.
    pub fn new(options: &WebhookClientOptions) -> Result<Self, WebhookClientError> {
        let plain = (!options.allowed_networks.is_empty())
            .then(|| WebhookRoute::new(EgressPolicy::deny_all(), options))
            .transpose()?;
        Ok(Self {
            safe: WebhookRoute::new(EgressPolicy::public_internet(), options)?,
            plain,
            retry_after_max: options.retry_after_max,
        })
    }

    /// Checks whether requests to a URL are allowed, without a DNS lookup.
    ///
    /// # Errors
    /// The errors of [`EgressPolicy::check_url`].
    pub fn check_url(&self, url: &Url) -> Result<(), EgressError> {
        self.route_for(url).map(drop)
    }

    /// Checks whether requests to a URL are allowed, including the addresses of its host. If the
    /// host can't be resolved within 2 s, the check passes, because addresses are checked again at
    /// each connection.
    ///
    /// # Errors
    /// The errors of [`EgressPolicy::resolve_url`] except [`EgressError::Lookup`].
    pub async fn resolve_url(&self, url: &Url) -> Result<(), EgressError> {
        let way = self.route_for(url)?;
        match timeout(LOOKUP_TIMEOUT, way.egress.resolve_url(url)).await {
            Ok(Err(error)) if error != EgressError::Lookup => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends a POST request, without retries.
    pub async fn post(&self, url: &Url, headers: HeaderMap, body: Bytes) -> PostOutcome {
        let Ok(way) = self.route_for(url) else {
            return PostOutcome::NotAllowed;
        };
        // The response body isn't read: it is not needed and may be endless.
        match way
            .client
            .post(url.clone())
            .headers(headers)
            .body(body)
            .send()
            .await
        {
            Ok(answer) => {
                let retry_after =
                    retry_after(answer.headers(), SystemTime::now(), self.retry_after_max);
                PostOutcome::Answered {
                    status: answer.status(),
                    retry_after,
                }
            }
            Err(error) => match EgressError::find_in_causes(&error) {
                None | Some(EgressError::Lookup) => {
                    // The URL is often a secret, so only its host is named.
                    if let Some(fault) = CertificateFault::find_in_causes(&error) {
                        let host = url.host_str().unwrap_or_default();
                        callboard_message::log::warn!(by: host, host, reason = %fault, "a webhook can't be reached");
                    }
                    PostOutcome::NoAnswer
                }
                Some(_) => PostOutcome::NotAllowed,
            },
        }
    }

    /// Checks a URL and returns the HTTP client for its scheme. Called for each request, because
    /// HTTP clients don't check URLs with IP addresses.
    fn route_for(&self, url: &Url) -> Result<&WebhookRoute, EgressError> {
        let way = match url.scheme() {
            "https" => &self.safe,
            "http" => self.plain.as_ref().ok_or(EgressError::Scheme)?,
            _ => return Err(EgressError::Scheme),
        };
        way.egress.check_url(url).map(|()| way)
    }
}

/// Returns the delay in the header `Retry-After`, given in seconds or as a date, limited to `max`.
fn retry_after(headers: &HeaderMap, now: SystemTime, max: Duration) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value)
            .ok()?
            .duration_since(now)
            .unwrap_or_default(),
    };
    Some(asked.min(max))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    /// Goal: `Retry-After` is read in both formats, up to a limit. Method: rows.
    #[test]
    fn how_long_to_wait() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        for (value, expected) in [
            (None, None),
            (Some("7"), Some(7)),
            (Some("Wed, 21 Oct 2015 07:28:30 GMT"), Some(30)),
            (Some("Wed, 21 Oct 2015 07:27:00 GMT"), Some(0)),
            (Some("60"), Some(60)),
            (Some("61"), Some(60)),
            (Some("soon"), None),
            (Some("-1"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            }
            assert_eq!(
                retry_after(&headers, now, Duration::from_secs(60)),
                expected.map(Duration::from_secs),
                "{value:?}"
            );
        }
    }
}
