use std::time::Duration;

use callboard_rpc::{Egress, EgressError};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Client, RequestBuilder, StatusCode, Url, redirect};
use secrecy::zeroize::Zeroizing;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::ErrorCode;
use super::{AuthError, Document};

/// How long a connection may take.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// How long one request to an authorization server may take, its body included.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);
/// How large a metadata document, a registration or a token response may be.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// The only way in which this module reaches others: where [`Egress`] lets it, bounded in time and size, without redirects.
#[derive(Debug, Clone)]
pub(crate) struct Fetch {
    http: Client,
    egress: Egress,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// An answer with its body.
pub(crate) struct Answer {
    status: StatusCode,
    body: Zeroizing<Vec<u8>>,
    document: Document,
}

impl Answer {
    fn json<T: DeserializeOwned>(&self) -> Result<T, AuthError> {
        serde_json::from_slice(&self.body).map_err(|_| AuthError::Malformed(self.document))
    }

    /// What it holds; the reason of a refusal, where the status is no success.
    pub fn accepted<T: DeserializeOwned>(&self) -> Result<T, AuthError> {
        let document = self.document;
        if self.status.is_success() {
            return self.json();
        }
        Err(match self.json::<Refusal>() {
            Ok(refusal) => AuthError::Refused {
                document,
                code: ErrorCode::new(&refusal.error),
            },
            Err(_) => AuthError::Status {
                document,
                status: self.status.as_u16(),
            },
        })
    }
}

impl Fetch {
    pub fn new(egress: &Egress, request_timeout: Duration) -> Result<Self, AuthError> {
        // Tokens and codes pass here.
        let egress = egress.clone().https_only();
        let http = egress
            .client_builder()
            .connect_timeout(CONNECT_TIMEOUT_DEFAULT.min(request_timeout))
            .timeout(request_timeout)
            // No document is elsewhere than it has to be, and a secret goes to one place only.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(AuthError::Client)?;
        Ok(Self { http, egress })
    }

    /// The URL that another side names, if it may be contacted.
    pub fn url(&self, text: &str, document: Document) -> Result<Url, AuthError> {
        let url = Url::parse(text).map_err(|_| AuthError::Malformed(document))?;
        self.permit(&url, document).map(|()| url)
    }

    /// A document, `None` where there is none (404 and its like).
    pub async fn get<T: DeserializeOwned>(
        &self,
        url: &Url,
        document: Document,
    ) -> Result<Option<T>, AuthError> {
        let answer = self
            .send(url, document, |http| http.get(url.clone()))
            .await?;
        match answer.status {
            status if status.is_success() => answer.json().map(Some),
            status if status.is_client_error() => Ok(None),
            status => Err(AuthError::Status {
                document,
                status: status.as_u16(),
            }),
        }
    }

    /// Sends `fields` as a form, with the value of `Authorization` where there is one.
    pub async fn post_form(
        &self,
        url: &Url,
        document: Document,
        fields: &[(&str, &str)],
        authorization: Option<HeaderValue>,
    ) -> Result<Answer, AuthError> {
        self.send(url, document, |http| {
            let request = http.post(url.clone()).form(fields);
            match authorization {
                Some(value) => request.header(AUTHORIZATION, value),
                None => request,
            }
        })
        .await
    }

    pub async fn post_json(
        &self,
        url: &Url,
        document: Document,
        body: Vec<u8>,
    ) -> Result<Answer, AuthError> {
        self.send(url, document, |http| {
            http.post(url.clone())
                .header(CONTENT_TYPE, "application/json")
                .body(body)
        })
        .await
    }

    /// Where `url` redirects to; `None` if it doesn't.
    pub async fn redirect_of(
        &self,
        url: &Url,
        document: Document,
    ) -> Result<Option<Url>, AuthError> {
        self.permit(url, document)?;
        let answer = self
            .http
            .get(url.clone())
            .send()
            .await
            .map_err(|e| network(document, e))?;
        if !answer.status().is_redirection() {
            return Ok(None);
        }
        let location = answer
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok());
        Ok(location.and_then(|text| url.join(text).ok()))
    }

    fn permit(&self, url: &Url, document: Document) -> Result<(), AuthError> {
        self.egress
            .check(url)
            .map_err(|reason| AuthError::Unreachable { document, reason })
    }

    async fn send(
        &self,
        url: &Url,
        document: Document,
        request: impl FnOnce(&Client) -> RequestBuilder,
    ) -> Result<Answer, AuthError> {
        self.permit(url, document)?;
        let request = request(&self.http).header(ACCEPT, "application/json");
        let mut response = request.send().await.map_err(|e| network(document, e))?;
        let status = response.status();
        let too_large = || AuthError::TooLarge {
            document,
            bytes_max: BODY_BYTES_MAX,
        };
        if response
            .content_length()
            .is_some_and(|declared| declared > BODY_BYTES_MAX as u64)
        {
            return Err(too_large());
        }
        let mut body = Zeroizing::new(Vec::new());
        while let Some(chunk) = response.chunk().await.map_err(|e| network(document, e))? {
            if body.len() + chunk.len() > BODY_BYTES_MAX {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer {
            status,
            body,
            document,
        })
    }
}

fn network(document: Document, error: reqwest::Error) -> AuthError {
    match EgressError::among_causes(&error) {
        Some(reason) => AuthError::Unreachable { document, reason },
        None => AuthError::Http {
            document,
            source: error.without_url(),
        },
    }
}
