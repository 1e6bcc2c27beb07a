//! HTTP requests to token issuers, within the rules for outgoing connections.

use std::path::{Path, PathBuf};

use derive_more::Debug;
use reqwest::redirect::Policy;
use reqwest::{Client, Request};
use url::Url;

use crate::egress::{EgressError, EgressPolicy, IpNetwork, is_loopback_host};
use crate::{CertificateFault, ClientTls, TlsFileError};

/// Reason why a request to an issuer failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssuerRequestError {
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error(transparent)]
    Certificate(#[from] CertificateFault),
    #[error("the authorities of its certificate: {0}")]
    Authorities(#[from] TlsFileError),
    #[error("the server could not be reached, or did not answer in time")]
    Unreachable,
    #[error("the server answered with status {0}, expected 200")]
    Status(u16),
    #[error("the document has more than {0} bytes")]
    TooLarge(usize),
}

/// Rules for requests to one issuer. Redirects aren't followed.
#[derive(Debug)]
pub(super) struct IssuerHttp {
    #[debug(skip)]
    pub(super) networks: Vec<IpNetwork>,
    /// File with the authorities of the server's certificate. `None` for the public ones.
    pub(super) ca: Option<PathBuf>,
    #[debug(skip)]
    egress: EgressPolicy,
}

impl IssuerHttp {
    /// Creates the rules for an issuer that may be on the public internet, over `https`, and in
    /// `networks`. It may be on this machine if the URL that was configured for it, `configured`,
    /// says so.
    pub(super) fn new(configured: Option<&Url>, networks: &[IpNetwork], ca: Option<&Path>) -> Self {
        let mut egress = EgressPolicy::public_internet().https_only();
        if configured.is_some_and(is_loopback_host) {
            egress = egress.with_loopback();
        }
        let egress = networks
            .iter()
            .fold(egress, |egress, network| egress.with_network(*network));
        Self {
            networks: networks.to_vec(),
            ca: ca.map(Path::to_owned),
            egress,
        }
    }

    /// Parses a URL of the issuer, and checks that it may be asked.
    pub(super) fn parse_url(&self, url: &str) -> Result<Url, IssuerRequestError> {
        Ok(self.egress.parse_url(url)?)
    }

    /// Creates a client. Reads the file of the authorities.
    pub(super) fn client(&self) -> Result<Client, IssuerRequestError> {
        let tls = match &self.ca {
            Some(file) => ClientTls::default().with_ca(file)?,
            None => ClientTls::default(),
        };
        let config = tls.config().map_err(|_| IssuerRequestError::Unreachable)?;
        let builder = self.egress.http_client_builder().redirect(Policy::none());
        let built = builder.use_preconfigured_tls(config).build();
        built.map_err(|_| IssuerRequestError::Unreachable)
    }

    /// Sends a request by a client of [`Self::client`], and returns the body of the answer, of
    /// `bytes_max` bytes at most. Its status must be 200.
    pub(super) async fn send(
        &self,
        client: &Client,
        request: Request,
        bytes_max: usize,
    ) -> Result<Vec<u8>, IssuerRequestError> {
        match self.exchange(client, request, bytes_max, &[200]).await? {
            (200, body) => Ok(body),
            (status, _) => Err(IssuerRequestError::Status(status)),
        }
    }

    /// Sends a request like [`Self::send`], and returns status and body of the answer. The body is
    /// read if the status is one of `read`, and else empty.
    pub(super) async fn exchange(
        &self,
        client: &Client,
        request: Request,
        bytes_max: usize,
        read: &[u16],
    ) -> Result<(u16, Vec<u8>), IssuerRequestError> {
        self.egress.check_url(request.url())?;
        let failed = |error: reqwest::Error| {
            if let Some(egress) = EgressError::find_in_causes(&error) {
                return IssuerRequestError::Egress(egress);
            }
            CertificateFault::find_in_causes(&error).map_or(
                IssuerRequestError::Unreachable,
                IssuerRequestError::Certificate,
            )
        };
        let mut answer = client.execute(request).await.map_err(failed)?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        if !read.contains(&status) {
            return Ok((status, body));
        }
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > bytes_max {
                return Err(IssuerRequestError::TooLarge(bytes_max));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }
}
