use futures::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

use super::AuthError;

/// What authorises requests to one upstream. One value serves all requests to it, at once.
pub trait Authorizer: Send + Sync {
    /// The whole value of `Authorization` for the next request, `None` where nothing is known yet that the upstream
    /// would take. Renews a token that is about to expire.
    ///
    /// # Errors
    /// See [`AuthError`]; the request isn't sent then.
    fn authorization(&self) -> BoxFuture<'_, Result<Option<SecretString>, AuthError>>;

    /// The upstream refused a request: gets a better token where it can. `Ok(true)`: send the same request again, with
    /// the value that [`authorization`](Self::authorization) gives now. `Ok(false)`: the refusal is the answer.
    ///
    /// Call it for each answer with [status 401 or 403](Challenge::concerns).
    ///
    /// # Errors
    /// See [`AuthError`]; the request has failed then.
    fn challenged<'a>(&'a self, challenge: Challenge<'a>) -> BoxFuture<'a, Result<bool, AuthError>>;
}

/// An upstream's refusal of one request.
#[derive(Debug, Clone, Copy)]
pub struct Challenge<'a> {
    /// The status of the answer: 401 or 403.
    pub status: u16,
    /// The values of its `WWW-Authenticate` header lines, in order.
    pub www_authenticate: &'a [&'a str],
    /// The value of `Authorization` that the request was sent with. Where it is no longer the current one, another
    /// request has got a better token meanwhile.
    pub sent: Option<&'a SecretString>,
    /// How many times this request has been refused before: 0 the first time.
    pub refused_before: u32,
}

impl Challenge<'_> {
    /// Whether an answer of this status is for the authorizer.
    #[must_use]
    pub fn concerns(status: u16) -> bool {
        matches!(status, 401 | 403)
    }
}

/// A bearer token (RFC 6750) that somebody configured: sent as it is, never renewed.
#[derive(Debug, Clone)]
pub struct StaticBearer {
    value: SecretString,
}

impl StaticBearer {
    /// Sends `Authorization: Bearer {token}`.
    ///
    /// # Errors
    /// [`AuthError::Token`] if the token can't stand in a header.
    pub fn new(token: &SecretString) -> Result<Self, AuthError> {
        Ok(Self { value: bearer(token.expose_secret())? })
    }
}

impl Authorizer for StaticBearer {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<SecretString>, AuthError>> {
        Box::pin(async { Ok(Some(self.value.clone())) })
    }

    fn challenged<'a>(&'a self, _: Challenge<'a>) -> BoxFuture<'a, Result<bool, AuthError>> {
        Box::pin(async { Ok(false) })
    }
}

/// The header value for a bearer token; held to visible ASCII, so that no token can add a header line.
pub(super) fn bearer(token: &str) -> Result<SecretString, AuthError> {
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(AuthError::Token);
    }
    Ok(SecretString::from(format!("Bearer {token}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a fixed token is sent as it is and never renewed. Method: ask before and after a refusal.
    #[tokio::test]
    async fn fixed_token_stays() -> Result<(), AuthError> {
        let fixed = StaticBearer::new(&SecretString::from("t0k3n"))?;
        let sent = fixed.authorization().await?;
        assert_eq!(sent.as_ref().map(ExposeSecret::expose_secret), Some("Bearer t0k3n"));
        let refused = Challenge { status: 401, www_authenticate: &[], sent: sent.as_ref(), refused_before: 0 };
        assert!(!fixed.challenged(refused).await?);
        assert!(!format!("{fixed:?} {refused:?}").contains("t0k3n"));
        Ok(())
    }

    /// Goal: no token can add a header line. Method: tokens with line ends, spaces, nothing.
    #[test]
    fn token_must_fit_a_header() {
        for token in ["", "a b", "a\r\nX-Evil: 1", "tok\u{e9}n"] {
            assert!(matches!(StaticBearer::new(&SecretString::from(token)), Err(AuthError::Token)), "{token:?}");
        }
    }
}
