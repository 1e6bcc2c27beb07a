use std::time::Duration;

use callboard_rpc::{EgressError, EgressPolicy};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Client, RequestBuilder, StatusCode, Url, redirect};
use secrecy::zeroize::Zeroizing;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::OAuthErrorCode;
use super::{AuthError, OAuthDocument};

/// Default time limit of a connect attempt.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Default time limit of one HTTP request to an authorization server, including the response's
/// body.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);
/// Maximum size of a metadata document, a registration or a token response, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024;

/// HTTP client for all OAuth requests. It is restricted to https and by an [`EgressPolicy`],
/// limited in time and response size, and follows no redirects.
#[derive(Debug, Clone)]
pub(crate) struct OAuthHttpClient {
    http: Client,
    egress: EgressPolicy,
}

#[derive(Deserialize)]
struct OAuthErrorBody {
    error: String,
}

/// HTTP response to an OAuth request, with its status and body.
pub(crate) struct FetchedDocument {
    status: StatusCode,
    body: Zeroizing<Vec<u8>>,
    document: OAuthDocument,
}

impl FetchedDocument {
    fn parse<T: DeserializeOwned>(&self) -> Result<T, AuthError> {
        serde_json::from_slice(&self.body).map_err(|_| AuthError::Malformed(self.document))
    }

    /// Parses the body as JSON if the status is a success. Otherwise fails with
    /// [`AuthError::Refused`] and the server's error code, or with [`AuthError::Status`] if the
    /// body has none.
    pub fn parse_success<T: DeserializeOwned>(&self) -> Result<T, AuthError> {
        let document = self.document;
        if self.status.is_success() {
            return self.parse();
        }
        Err(match self.parse::<OAuthErrorBody>() {
            Ok(refusal) => AuthError::Refused {
                document,
                code: OAuthErrorCode::new(&refusal.error),
            },
            Err(_) => AuthError::Status {
                document,
                status: self.status.as_u16(),
            },
        })
    }
}

impl OAuthHttpClient {
    pub fn new(egress: &EgressPolicy, request_timeout: Duration) -> Result<Self, AuthError> {
        // Tokens and codes are transferred.
        let egress = egress.clone().https_only();
        let http = egress
            .http_client_builder()
            .connect_timeout(CONNECT_TIMEOUT_DEFAULT.min(request_timeout))
            .timeout(request_timeout)
            // Redirects are never needed here, and a secret must go to one server only.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(AuthError::Client)?;
        Ok(Self { http, egress })
    }

    /// Parses a URL that an upstream or authorization server names, and checks that the egress
    /// policy permits it. `document` is named in errors.
    pub fn parse_url(&self, text: &str, document: OAuthDocument) -> Result<Url, AuthError> {
        let url = Url::parse(text).map_err(|_| AuthError::Malformed(document))?;
        self.check_egress(&url, document).map(|()| url)
    }

    /// Fetches a JSON document. Returns `None` for a status 4xx, and fails for other error
    /// statuses.
    pub async fn get<T: DeserializeOwned>(
        &self,
        url: &Url,
        document: OAuthDocument,
    ) -> Result<Option<T>, AuthError> {
        let answer = self
            .send(url, document, |http| http.get(url.clone()))
            .await?;
        match answer.status {
            status if status.is_success() => answer.parse().map(Some),
            status if status.is_client_error() => Ok(None),
            status => Err(AuthError::Status {
                document,
                status: status.as_u16(),
            }),
        }
    }

    /// Posts `fields` as an HTML form, with `authorization` as `Authorization` header if given.
    pub async fn post_form(
        &self,
        url: &Url,
        document: OAuthDocument,
        fields: &[(&str, &str)],
        authorization: Option<HeaderValue>,
    ) -> Result<FetchedDocument, AuthError> {
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
        document: OAuthDocument,
        body: Vec<u8>,
    ) -> Result<FetchedDocument, AuthError> {
        self.send(url, document, |http| {
            http.post(url.clone())
                .header(CONTENT_TYPE, "application/json")
                .body(body)
        })
        .await
    }

    /// Requests `url` and returns the target of the redirect; `None` if the response isn't a
    /// redirect.
    pub async fn redirect_target(
        &self,
        url: &Url,
        document: OAuthDocument,
    ) -> Result<Option<Url>, AuthError> {
        self.check_egress(url, document)?;
        let answer = self
            .http
            .get(url.clone())
            .send()
            .await
            .map_err(|e| fetch_error(document, e))?;
        if !answer.status().is_redirection() {
            return Ok(None);
        }
        let location = answer
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok());
        Ok(location.and_then(|text| url.join(text).ok()))
    }

    fn check_egress(&self, url: &Url, document: OAuthDocument) -> Result<(), AuthError> {
        self.egress
            .check_url(url)
            .map_err(|reason| AuthError::Unreachable { document, reason })
    }

    async fn send(
        &self,
        url: &Url,
        document: OAuthDocument,
        request: impl FnOnce(&Client) -> RequestBuilder,
    ) -> Result<FetchedDocument, AuthError> {
        self.check_egress(url, document)?;
        let request = request(&self.http).header(ACCEPT, "application/json");
        let mut response = request.send().await.map_err(|e| fetch_error(document, e))?;
        let status = response.status();
        let too_large = || AuthError::TooLarge {
            document,
            bytes_max: DOCUMENT_BYTES_MAX,
        };
        if response
            .content_length()
            .is_some_and(|declared| declared > DOCUMENT_BYTES_MAX as u64)
        {
            return Err(too_large());
        }
        let mut body = Zeroizing::new(Vec::new());
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|e| fetch_error(document, e))?
        {
            if body.len() + chunk.len() > DOCUMENT_BYTES_MAX {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(FetchedDocument {
            status,
            body,
            document,
        })
    }
}

fn fetch_error(document: OAuthDocument, error: reqwest::Error) -> AuthError {
    match EgressError::find_in_causes(&error) {
        Some(reason) => AuthError::Unreachable { document, reason },
        None => AuthError::Http {
            document,
            source: error.without_url(),
        },
    }
}
