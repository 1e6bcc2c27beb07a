use std::fmt;

use callboard_rpc::EgressError;

/// Why a request couldn't be authorised. Each variant tells what to do next; none carries a secret, and of what the
/// other side says only the error codes of the RFCs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The token holds characters that no header may: get another.
    #[error("the token can't stand in a header")]
    Token,
    /// Configure an http or https URL without user, password and fragment.
    #[error("the upstream's URL can't be protected by OAuth")]
    Upstream,
    /// Configure an https URL with a path (client-id metadata documents).
    #[error("the client-id metadata document is not an https URL with a path")]
    ClientIdDocument,
    /// Configure a PKCS#8 key in PEM that fits the algorithm.
    #[error("the private key is no PKCS#8 key for its algorithm")]
    Key,
    /// The HTTP client can't be built: see the cause.
    #[error("can't build the HTTP client")]
    Client(#[source] reqwest::Error),
    /// Nothing was contacted: the other side names a URL that is not https, or an address that may not be reached. If
    /// it is right, widen [`Egress`](callboard_rpc::Egress).
    #[error("{document} is at a URL that may not be contacted")]
    Unreachable {
        /// What was to be asked for.
        document: Document,
        /// Why it wasn't.
        #[source]
        reason: EgressError,
    },
    /// No answer from there: try again later. See the cause.
    #[error("{document} can't be fetched")]
    Http {
        /// What was asked for.
        document: Document,
        /// Without the URL.
        #[source]
        source: reqwest::Error,
    },
    /// The answer is larger than it may be.
    #[error("{document} is over {bytes_max} bytes")]
    TooLarge {
        /// What was asked for.
        document: Document,
        /// How large it may be.
        bytes_max: usize,
    },
    /// The answer has a status that means it isn't there.
    #[error("{document} was answered with status {status}")]
    Status {
        /// What was asked for.
        document: Document,
        /// The HTTP status.
        status: u16,
    },
    /// The answer breaks its RFC: the other side is at fault.
    #[error("{0} is malformed")]
    Malformed(Document),
    /// The upstream asks for authorisation and doesn't say by whom: configure a token, or ask its operator.
    #[error("the upstream publishes no protected-resource metadata")]
    NoResourceMetadata,
    /// The metadata speaks of another resource than the one we talk to: nothing was authorised.
    #[error("the protected-resource metadata is another resource's")]
    ResourceMismatch,
    /// No metadata at any of the places where the authorization server could have it.
    #[error("the authorization server publishes no metadata")]
    NoServerMetadata,
    /// The authorization server's metadata names another issuer: they were not used.
    #[error("the authorization server's metadata is another issuer's")]
    IssuerMismatch,
    /// The authorization server doesn't say that it can do PKCE with S256: it was not used.
    #[error("the authorization server doesn't offer PKCE with S256")]
    NoPkce,
    /// The authorization server takes no client that it doesn't know: register one there and configure it.
    #[error("the authorization server needs a client that is registered beforehand")]
    NoRegistration,
    /// The configured client is another authorization server's than the one the upstream names now: nothing was sent.
    #[error("the configured client belongs to another authorization server")]
    ForeignClient,
    /// The authorization URL is neither https nor allowed http: it was shown to nobody.
    #[error("the authorization URL may not be opened")]
    AuthorizationUrl,
    /// More scopes than a client should hold at once.
    #[error("over {0} scopes would be asked for")]
    TooManyScopes(usize),
    /// Nobody consented in time, or the browser couldn't be waited for.
    #[error("consent failed: {0}")]
    Consent(&'static str),
    /// The browser came back with a `state` that isn't ours: dropped.
    #[error("the authorization response belongs to another request")]
    State,
    /// The response names another issuer, or none where it has to (RFC 9207): dropped.
    #[error("the authorization response is another issuer's")]
    ResponseIssuer,
    /// The owner or the authorization server said no.
    #[error("authorisation was denied: {0}")]
    Denied(ErrorCode),
    /// The authorization server refused a token or a registration.
    #[error("{document} was refused: {code}")]
    Refused {
        /// What was asked for.
        document: Document,
        /// Its reason.
        code: ErrorCode,
    },
    /// Another request has just tried to get a token, in vain: it knows why. Later ones try again.
    #[error("another request's attempt at authorisation failed")]
    FailedMeanwhile,
    /// The operating system gives no random numbers: nothing can be kept secret.
    #[error("no random numbers to be had")]
    Randomness,
    /// The runtime, or this client, is shutting down.
    #[error("interrupted")]
    Interrupted,
}

/// What was asked for over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Document {
    /// Protected-resource metadata (RFC 9728).
    ResourceMetadata,
    /// Authorization-server metadata (RFC 8414, OpenID Connect Discovery).
    ServerMetadata,
    /// A client registration (RFC 7591).
    Registration,
    /// The authorization endpoint, where a program follows its redirect.
    Authorization,
    /// A token response.
    Token,
}

impl fmt::Display for Document {
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

/// An error code of RFC 6749 and those that build on it, like `invalid_grant`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorCode(String);

impl ErrorCode {
    const BYTES_MAX: usize = 64;

    /// The code, where it looks like one: anything else might be text to be shown to people.
    pub(crate) fn new(code: &str) -> Self {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        let fits = !code.is_empty() && code.len() <= Self::BYTES_MAX && code.bytes().all(plain);
        Self(if fits {
            code.to_owned()
        } else {
            "an unknown error".to_owned()
        })
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
