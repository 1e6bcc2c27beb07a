//! HTTP client of the OTLP exporters.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use callboard_message::log;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::redirect::Policy;
use tokio::runtime::Handle;

/// Maximum size of a receiver's response that is read, in bytes. The rest is ignored. Fixed.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// HTTP client that sends on a tokio runtime, so that threads without one can wait for its responses.
#[derive(Debug)]
pub(super) struct ExportClient {
    client: reqwest::Client,
    runtime: Handle,
}

impl ExportClient {
    /// Creates a client that sends on the runtime of the caller. It follows no redirects, because
    /// the headers may hold a secret.
    ///
    /// # Errors
    /// [`reqwest::Error`] if the TLS settings of this machine can't be used.
    pub fn new(timeout: Duration) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .timeout(timeout)
            .redirect(Policy::none())
            .build()?;
        Ok(Self {
            client,
            runtime: Handle::current(),
        })
    }
}

#[async_trait]
impl HttpClient for ExportClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let sending = self.runtime.spawn(send(self.client.clone(), request));
        let response = match sending.await {
            Ok(response) => response,
            Err(error) => Err(error.into()),
        };
        // The SDK doesn't tell why an export failed.
        match &response {
            Ok(response) if !response.status().is_success() => log::warn!(
                status = response.status().as_u16(),
                "the OTLP receiver rejected an export: check its address and the headers"
            ),
            Ok(_) => {}
            Err(error) => {
                let cause = root_cause(error.as_ref());
                log::warn!(cause, "failed to reach the OTLP receiver");
            }
        }
        response
    }
}

async fn send(
    client: reqwest::Client,
    request: reqwest::Request,
) -> Result<Response<Bytes>, HttpError> {
    let mut response = client
        .execute(request)
        .await
        .map_err(reqwest::Error::without_url)?;
    let mut body = Vec::new();
    while body.len() < RESPONSE_BYTES_MAX
        && let Some(chunk) = response
            .chunk()
            .await
            .map_err(reqwest::Error::without_url)?
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(RESPONSE_BYTES_MAX);
    let response = Response::builder()
        .status(response.status())
        .body(Bytes::from(body))?;
    Ok(response)
}

/// Returns the text of the error below all others. The ones above say only that a request failed.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
