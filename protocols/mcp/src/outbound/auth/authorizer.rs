use futures::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

use super::AuthError;

/// Source of the `Authorization` header for all requests to one upstream, including concurrent
/// ones.
pub trait Authorizer: Send + Sync {
    /// Returns the whole value of the `Authorization` header for the next request, or `None` if no
    /// token is known yet. A token that is about to expire is renewed first.
    ///
    /// # Errors
    /// See [`AuthError`]; the request isn't sent then.
    fn authorization(&self) -> BoxFuture<'_, Result<Option<SecretString>, AuthError>>;

    /// Handles the upstream's rejection of a request, and obtains a better token if possible.
    /// Returns true if the request is to be sent again with the value that
    /// [`authorization`](Self::authorization) then returns. Returns false if the rejection is
    /// final.
    ///
    /// Call it for each response with [status 401 or 403](AuthChallenge::is_challenge_status).
    ///
    /// # Errors
    /// See [`AuthError`]; the request has failed then.
    fn handle_challenge<'a>(
        &'a self,
        challenge: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<bool, AuthError>>;
}

/// Rejection of one request by the upstream.
#[derive(Debug, Clone, Copy)]
pub struct AuthChallenge<'a> {
    /// Status of the response: 401 or 403.
    pub status: u16,
    /// Values of the response's `WWW-Authenticate` header lines, in order.
    pub www_authenticate: &'a [&'a str],
    /// Value of `Authorization` in the rejected request; `None` if it had none. If it differs from
    /// the current value, another request has obtained a new token meanwhile.
    pub sent_authorization: Option<&'a SecretString>,
    /// Number of earlier rejections of the same request; 0 for the first rejection.
    pub earlier_rejections: u32,
}

impl AuthChallenge<'_> {
    /// Returns true if `status` is one that an [`Authorizer`] handles: 401 or 403.
    #[must_use]
    pub fn is_challenge_status(status: u16) -> bool {
        matches!(status, 401 | 403)
    }
}

/// Authorizer with a configured bearer token (RFC 6750), which is sent unchanged and never renewed.
#[derive(Debug, Clone)]
pub struct StaticBearer {
    value: SecretString,
}

impl StaticBearer {
    /// Creates an authorizer that sends `Authorization: Bearer {token}`.
    ///
    /// # Errors
    /// [`AuthError::Token`] if the token is empty or has characters other than visible ASCII.
    pub fn new(token: &SecretString) -> Result<Self, AuthError> {
        Ok(Self {
            value: bearer_value(token.expose_secret())?,
        })
    }
}

impl Authorizer for StaticBearer {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<SecretString>, AuthError>> {
        Box::pin(async { Ok(Some(self.value.clone())) })
    }

    fn handle_challenge<'a>(
        &'a self,
        _: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<bool, AuthError>> {
        Box::pin(async { Ok(false) })
    }
}

/// Returns the `Authorization` value `Bearer {token}`. Fails with [`AuthError::Token`] unless the
/// token is visible ASCII, so that it can't add a header line.
pub(crate) fn bearer_value(token: &str) -> Result<SecretString, AuthError> {
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(AuthError::Token);
    }
    Ok(SecretString::from(format!("Bearer {token}")))
}

/// Maximum length of a `WWW-Authenticate` header line that is parsed, in bytes. Longer lines are
/// ignored.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Parameters of a Bearer challenge in a `WWW-Authenticate` header.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BearerChallenge {
    pub resource_metadata: Option<String>,
    pub scope: Option<String>,
    pub error: Option<String>,
}

impl BearerChallenge {
    /// Parses the first Bearer challenge in the given `WWW-Authenticate` lines. Returns a challenge
    /// without parameters if there is none.
    pub fn parse(lines: &[&str]) -> Self {
        lines
            .iter()
            .filter(|line| line.len() <= LINE_BYTES_MAX)
            .find_map(|line| Self::parse_line(line))
            .unwrap_or_default()
    }

    fn parse_line(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut bearer: Option<Self> = None;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let Some((name, after)) = split_token(rest) else {
                return bearer;
            };
            let value = after.trim_start_matches([' ', '\t']);
            match value
                .strip_prefix('=')
                .map(|value| value.trim_start_matches([' ', '\t']))
            {
                Some(value) if !value.starts_with('=') => {
                    let Some((value, after)) = parameter_value(value) else {
                        return bearer;
                    };
                    if let Some(challenge) = &mut bearer {
                        challenge.set(name, value);
                    }
                    rest = after;
                }
                // A name without a value starts a challenge, so the previous one is complete.
                _ if bearer.is_some() => return bearer,
                _ => {
                    bearer = name.eq_ignore_ascii_case("bearer").then(Self::default);
                    rest = after_token68(after);
                }
            }
            if rest.trim_start_matches([' ', '\t', ',']).is_empty() {
                return bearer;
            }
        }
    }

    /// Stores the parameter `name` if it is a known one. If it occurs several times, the first
    /// value counts.
    fn set(&mut self, name: &str, value: String) {
        let slot = match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => &mut self.resource_metadata,
            "scope" => &mut self.scope,
            "error" => &mut self.error,
            _ => return,
        };
        slot.get_or_insert(value);
    }
}

fn split_token(text: &str) -> Option<(&str, &str)> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let end = text
        .bytes()
        .position(|b| !is_token(b))
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Returns the text after the token68 that may follow a scheme, as in `Negotiate YII=`. A word that
/// is the name of a parameter isn't a token68.
fn after_token68(after_scheme: &str) -> &str {
    let text = after_scheme.trim_start_matches([' ', '\t']);
    let is_token68 = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
    let word = text
        .bytes()
        .position(|b| !is_token68(b))
        .unwrap_or(text.len());
    let rest = &text[word..];
    let padding = rest.len() - rest.trim_start_matches('=').len();
    let end = rest[padding..].trim_start_matches([' ', '\t']);
    let ends_here = end.is_empty() || end.starts_with(',');
    if word > 0 && ends_here {
        end
    } else {
        after_scheme
    }
}

fn parameter_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        return split_token(text).map(|(value, rest)| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod authorizer_tests {
    use super::*;

    /// Goal: a fixed token is sent unchanged and never renewed. Method: read it before and after a
    /// rejection.
    /// Rows: H-17.
    #[tokio::test]
    async fn fixed_token_stays() -> Result<(), AuthError> {
        let fixed = StaticBearer::new(&SecretString::from("t0k3n"))?;
        let sent = fixed.authorization().await?;
        assert_eq!(
            sent.as_ref().map(ExposeSecret::expose_secret),
            Some("Bearer t0k3n")
        );
        let refused = AuthChallenge {
            status: 401,
            www_authenticate: &[],
            sent_authorization: sent.as_ref(),
            earlier_rejections: 0,
        };
        assert!(!fixed.handle_challenge(refused).await?);
        assert!(!format!("{fixed:?} {refused:?}").contains("t0k3n"));
        Ok(())
    }

    /// Goal: no token can add a header line. Method: tokens with line ends, spaces, nothing.
    #[test]
    fn token_must_fit_a_header() {
        for token in ["", "a b", "a\r\nX-Evil: 1", "tok\u{e9}n"] {
            assert!(
                matches!(
                    StaticBearer::new(&SecretString::from(token)),
                    Err(AuthError::Token)
                ),
                "{token:?}"
            );
        }
    }
}

#[cfg(test)]
mod bearer_tests {
    use proptest::prelude::*;

    use super::*;

    fn challenge(
        resource_metadata: Option<&str>,
        scope: Option<&str>,
        error: Option<&str>,
    ) -> BearerChallenge {
        BearerChallenge {
            resource_metadata: resource_metadata.map(str::to_owned),
            scope: scope.map(str::to_owned),
            error: error.map(str::to_owned),
        }
    }

    /// Goal: the Bearer challenge is found among others and in all spellings. Method: a table.
    #[test]
    fn bearer_is_found() {
        let metadata = "https://m.example/.well-known/oauth-protected-resource";
        let full = format!(
            r#"Bearer error="insufficient_scope", scope="a b", resource_metadata="{metadata}""#
        );
        for (lines, expected) in [
            (
                vec![full.as_str()],
                challenge(Some(metadata), Some("a b"), Some("insufficient_scope")),
            ),
            (
                vec![r#"Basic realm="x, Bearer scope=no", bEaReR scope=a"#],
                challenge(None, Some("a"), None),
            ),
            (
                vec!["Negotiate YII==", "Bearer SCOPE = \"q\\\"s\" ,error=e"],
                challenge(None, Some("q\"s"), Some("e")),
            ),
            (
                vec!["Negotiate YII=, Bearer scope=a"],
                challenge(None, Some("a"), None),
            ),
            (
                vec![r#"Bearer scope="first", scope="second", Basic realm="r", scope="third""#],
                challenge(None, Some("first"), None),
            ),
            (vec!["Bearer"], BearerChallenge::default()),
            (vec!["Bearer, Basic realm=x"], BearerChallenge::default()),
            (
                vec![r#"Bearer scope="never closed"#],
                BearerChallenge::default(),
            ),
            (
                vec!["", ",,,", "=", "DPoP algs=\"ES256\""],
                BearerChallenge::default(),
            ),
        ] {
            assert_eq!(BearerChallenge::parse(&lines), expected, "{lines:?}");
        }
    }

    /// Goal: an overlong header line isn't parsed. Method: a line at the limit is read, one byte
    /// more is not.
    #[test]
    fn long_lines_are_not_read() {
        let line =
            |bytes: usize| format!("Bearer scope={}", "a".repeat(bytes - "Bearer scope=".len()));
        assert!(
            BearerChallenge::parse(&[&line(LINE_BYTES_MAX)])
                .scope
                .is_some()
        );
        assert!(
            BearerChallenge::parse(&[&line(LINE_BYTES_MAX + 1)])
                .scope
                .is_none()
        );
    }

    proptest! {
        /// Goal: no header makes the parser panic or loop. Method: generated text of the
        /// significant characters.
        #[test]
        fn reader_ends(line in r#"(Bearer |[a-z]{1,3}|[ ,="\\\t]|é){0,40}"#) {
            BearerChallenge::parse(&[&line]);
        }
    }
}
