use std::fmt;

use futures::future::BoxFuture;
use secrecy::SecretString;

use super::AuthError;

/// Somebody who vouches for us to an authorization server with a signed assertion (RFC 7523): the platform that our
/// workload runs on, or a company's identity provider.
pub trait Assertions: Send + Sync {
    /// An assertion for `audience`. Asked for each token anew, and never kept.
    ///
    /// # Errors
    /// Whatever keeps it from being had.
    fn assertion<'a>(&'a self, audience: Audience<'a>) -> BoxFuture<'a, Result<SecretString, AuthError>>;
}

/// Whom an assertion is to convince.
#[derive(Debug, Clone, Copy)]
pub struct Audience<'a> {
    /// The authorization server's issuer.
    pub issuer: &'a str,
    /// The upstream's resource identifier.
    pub resource: &'a str,
}

/// An assertion that somebody handed us as it is, like a workload's identity token.
#[derive(Debug, Clone)]
pub struct FixedAssertion(SecretString);

impl FixedAssertion {
    /// With the assertion, a JWT.
    #[must_use]
    pub fn new(assertion: SecretString) -> Self {
        Self(assertion)
    }
}

impl Assertions for FixedAssertion {
    fn assertion<'a>(&'a self, _: Audience<'a>) -> BoxFuture<'a, Result<SecretString, AuthError>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

impl fmt::Debug for dyn Assertions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Assertions")
    }
}
