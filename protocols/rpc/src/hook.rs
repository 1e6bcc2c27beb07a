//! Posts to places that somebody else named. Where a post may go is judged by [`Egress`]: before, and again when it is
//! connected, to exactly the addresses that were judged.

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

use crate::{Egress, EgressError, Network};

/// How long a name may take to be looked up when a place is judged.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Where posts may go, and how long they may take.
#[derive(Debug, Clone)]
pub struct HookOptions {
    /// Networks that receivers may be in beside the public internet, there over `http` as well.
    pub allow: Vec<Network>,
    /// The name service that is asked in place of the system's; its answers are judged all the same.
    #[debug(skip)]
    pub lookup: Option<Arc<dyn Resolve>>,
    /// How long a receiver may take to answer.
    pub timeout: Duration,
    /// Longest wait that a receiver can ask for (`Retry-After`).
    #[debug(skip)]
    pub retry_after_max: Duration,
}

/// What became of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// The receiver answered; its body isn't read. A redirect is an answer like any other: nobody goes where it points.
    Answered {
        /// With what.
        status: StatusCode,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// Nobody answered in time: try again.
    Silent,
    /// A post may not go there.
    NotAllowed,
}

/// Posts over `https` to anywhere in public and in the networks that are allowed, over `http` to those networks alone.
pub struct Hooks {
    safe: Way,
    plain: Option<Way>,
    retry_after_max: Duration,
}

struct Way {
    egress: Egress,
    client: Client,
}

impl Way {
    fn new(egress: Egress, options: &HookOptions) -> Result<Self, reqwest::Error> {
        let egress = options
            .allow
            .iter()
            .fold(egress, |egress, network| egress.with_network(*network));
        let egress = options
            .lookup
            .iter()
            .fold(egress, |egress, lookup| egress.with_lookup(lookup.clone()));
        let client = egress
            .client_builder()
            .redirect(Policy::none())
            .timeout(options.timeout)
            .build()?;
        Ok(Self { egress, client })
    }
}

impl Hooks {
    /// Ready to post.
    ///
    /// # Errors
    /// Where there is no TLS to be had.
    pub fn new(options: &HookOptions) -> Result<Self, reqwest::Error> {
        let plain = (!options.allow.is_empty())
            .then(|| Way::new(Egress::nowhere(), options))
            .transpose()?;
        Ok(Self {
            safe: Way::new(Egress::public(), options)?,
            plain,
            retry_after_max: options.retry_after_max,
        })
    }

    /// Whether a post may go there, as far as the URL itself says.
    ///
    /// # Errors
    /// As of [`Egress::check`].
    pub fn check(&self, url: &Url) -> Result<(), EgressError> {
        self.way(url).map(drop)
    }

    /// The same, by what its name leads to now too. A name that can't be looked up now is judged when it is connected to.
    ///
    /// # Errors
    /// As of [`Egress::look_up`], but [`EgressError::Lookup`].
    pub async fn look_up(&self, url: &Url) -> Result<(), EgressError> {
        let way = self.way(url)?;
        match timeout(LOOKUP_TIMEOUT, way.egress.look_up(url)).await {
            Ok(Err(error)) if error != EgressError::Lookup => Err(error),
            _ => Ok(()),
        }
    }

    /// Posts a body once.
    pub async fn post(&self, url: &Url, headers: HeaderMap, body: Bytes) -> Posted {
        let Ok(way) = self.way(url) else {
            return Posted::NotAllowed;
        };
        // The answer's body isn't read: nothing of it concerns us, and it may have no end.
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
                Posted::Answered {
                    status: answer.status(),
                    retry_after,
                }
            }
            Err(error) => match EgressError::among_causes(&error) {
                None | Some(EgressError::Lookup) => Posted::Silent,
                Some(_) => Posted::NotAllowed,
            },
        }
    }

    /// Judged at each post anew: a client asks no name service about an address.
    fn way(&self, url: &Url) -> Result<&Way, EgressError> {
        let way = match url.scheme() {
            "https" => &self.safe,
            "http" => self.plain.as_ref().ok_or(EgressError::Scheme)?,
            _ => return Err(EgressError::Scheme),
        };
        way.egress.check(url).map(|()| way)
    }
}

/// `Retry-After`: seconds, or a date; `max` at most.
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

    /// Goal: how long a receiver wants to be left alone is read in both shapes, up to a limit. Method: rows.
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
