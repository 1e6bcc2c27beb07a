use std::fmt;

use callboard_rpc::EgressError;

/// Errors of authorizing a request. No variant carries a secret. Of error messages from the
/// upstream or the authorization server, only the error codes of the RFCs are kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The access token, or the HTTP Basic credentials, have characters that a header can't hold.
    /// Obtain another token.
    #[error(
        "the token or client secret has characters that a header can't hold: obtain another one"
    )]
    Token,
    /// The upstream's URL is unsuitable. Configure an http or https URL without user, password and
    /// fragment.
    #[error(
        "the upstream's URL can't be protected by OAuth: it must be http or https, without user, password and fragment"
    )]
    Upstream,
    /// The client-id metadata document isn't at an https URL with a path. Correct the URL.
    #[error("the client-id metadata document must be at an https URL with a path")]
    ClientIdDocument,
    /// The client's private key is unsuitable. Configure a PKCS#8 key in PEM for the algorithm.
    #[error("the private key is no PKCS#8 key in PEM for its algorithm")]
    Key,
    /// The HTTP client can't be built. The source has the reason.
    #[error("can't build the HTTP client: {0}")]
    Client(#[source] reqwest::Error),
    /// The upstream or authorization server names a URL that isn't https, or an address that isn't
    /// permitted. It wasn't contacted. If the URL is right, widen the
    /// [`EgressPolicy`](callboard_rpc::EgressPolicy).
    #[error("{document} is at a URL that may not be contacted: {reason}")]
    Unreachable {
        /// Document to be fetched.
        document: OAuthDocument,
        /// Reason of the refusal.
        #[source]
        reason: EgressError,
    },
    /// The HTTP request failed, for the reason in `source`. Try again later.
    #[error("{document} can't be fetched: {source}; try again later")]
    Http {
        /// Document that was requested.
        document: OAuthDocument,
        /// Error of the HTTP client, without the URL.
        #[source]
        source: reqwest::Error,
    },
    /// The response to an OAuth request is over the size limit.
    #[error("{document} is over the limit of {bytes_max} bytes")]
    TooLarge {
        /// Document that was requested.
        document: OAuthDocument,
        /// Size limit in bytes.
        bytes_max: usize,
    },
    /// The response to an OAuth request has an error status, and no OAuth error code.
    #[error("the request for {document} was answered with HTTP status {status}")]
    Status {
        /// Document that was requested.
        document: OAuthDocument,
        /// The HTTP status.
        status: u16,
    },
    /// The response or URL violates the RFC of the given document.
    #[error("{0} is malformed: the authorization server or the upstream has to be corrected")]
    Malformed(OAuthDocument),
    /// The upstream requires authorization and publishes no authorization server. Configure a
    /// token, or ask its operator.
    #[error(
        "the upstream requires authorization and publishes no protected-resource metadata: configure a token"
    )]
    NoResourceMetadata,
    /// The metadata describe a resource other than the upstream. No token was requested.
    #[error(
        "the protected-resource metadata is of another resource than the upstream's URL: check the URL"
    )]
    ResourceMismatch,
    /// The authorization server has metadata at none of the specified URLs.
    #[error(
        "the authorization server publishes no metadata at its well-known URLs: check its URL with the upstream's operator"
    )]
    NoServerMetadata,
    /// The authorization server's metadata name another issuer. They were not used.
    #[error(
        "the authorization server's metadata names another issuer, so no token was requested: its operator has to correct it"
    )]
    IssuerMismatch,
    /// The authorization server doesn't declare PKCE with S256. It was not used.
    #[error(
        "the authorization server doesn't offer PKCE with S256, so it isn't used: configure a token"
    )]
    NoPkce,
    /// The authorization server accepts registered clients only, and none can be registered
    /// dynamically. Register a client there and configure it.
    #[error(
        "the authorization server accepts registered clients only: register a client there and configure it"
    )]
    NoRegistration,
    /// The configured client belongs to an authorization server other than the one that the
    /// upstream names now. The client wasn't sent there.
    #[error(
        "the configured client belongs to another authorization server than the one that the upstream names now: register a client there and configure it"
    )]
    ForeignClient,
    /// The authorization URL is neither https nor permitted http. It was shown to no user.
    #[error("the authorization URL is neither https nor a permitted http URL, so it isn't opened")]
    AuthorizationUrl,
    /// More scopes would have to be requested than the limit, which is the value.
    #[error(
        "more than {0} scopes are required, which is the limit: the upstream has to ask for fewer"
    )]
    TooManyScopes(usize),
    /// The user didn't consent in time, or the browser's redirect couldn't be received.
    #[error("consent failed: {0}")]
    Consent(&'static str),
    /// The authorization response has another `state` than the authorization request. It was
    /// discarded.
    #[error("the authorization response belongs to another request and was discarded: try again")]
    State,
    /// The authorization response names another issuer, or none although the server declares one
    /// (RFC 9207). It was discarded.
    #[error("the authorization response is not from the expected issuer and was discarded")]
    ResponseIssuer,
    /// The resource owner or the authorization server denied the authorization.
    #[error("authorization was denied: {0}")]
    Denied(OAuthErrorCode),
    /// The authorization server rejected a token request or a registration with an error code.
    #[error("the request for {document} was refused with error code {code}")]
    Refused {
        /// Document that was requested.
        document: OAuthDocument,
        /// The server's error code.
        code: OAuthErrorCode,
    },
    /// Another request tried to obtain a token meanwhile and failed; its own error has the reason.
    /// Later requests try again.
    #[error("another request's attempt at authorization failed: try again")]
    FailedMeanwhile,
    /// The operating system provides no random numbers.
    #[error("system random number generator unavailable")]
    Randomness,
    /// The runtime, or this client, is shutting down.
    #[error("interrupted, because the client is shutting down")]
    Interrupted,
}

/// Kind of document requested in an OAuth flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OAuthDocument {
    /// Protected-resource metadata (RFC 9728).
    ResourceMetadata,
    /// Authorization-server metadata (RFC 8414, OpenID Connect Discovery).
    ServerMetadata,
    /// A client registration (RFC 7591).
    Registration,
    /// Redirect of the authorization endpoint, when a program follows it.
    Authorization,
    /// A token response.
    Token,
}

impl fmt::Display for OAuthDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ResourceMetadata => "the protected-resource metadata",
            Self::ServerMetadata => "the authorization server's metadata",
            Self::Registration => "the client registration",
            Self::Authorization => "the authorization endpoint",
            Self::Token => "the token response",
        })
    }
}

/// An error code of RFC 6749 and its extensions, such as `invalid_grant`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuthErrorCode(String);

impl OAuthErrorCode {
    const BYTES_MAX: usize = 64;

    /// Keeps the code if it is well-formed; other text is replaced, because it might be shown to
    /// users.
    pub(crate) fn new(code: &str) -> Self {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        let fits = !code.is_empty() && code.len() <= Self::BYTES_MAX && code.bytes().all(plain);
        Self(if fits {
            code.to_owned()
        } else {
            "an unknown error".to_owned()
        })
    }

    /// Returns the code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OAuthErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
