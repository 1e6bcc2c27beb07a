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
    fn challenged<'a>(&'a self, challenge: Challenge<'a>)
    -> BoxFuture<'a, Result<bool, AuthError>>;
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
        Ok(Self {
            value: bearer(token.expose_secret())?,
        })
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
pub(crate) fn bearer(token: &str) -> Result<SecretString, AuthError> {
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(AuthError::Token);
    }
    Ok(SecretString::from(format!("Bearer {token}")))
}

/// How long a header line may be to be read at all.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// What a Bearer challenge says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BearerChallenge {
    pub resource_metadata: Option<String>,
    pub scope: Option<String>,
    pub error: Option<String>,
}

impl BearerChallenge {
    /// The first Bearer challenge of these header lines; an empty one where there is none.
    pub fn of(lines: &[&str]) -> Self {
        lines
            .iter()
            .filter(|line| line.len() <= LINE_BYTES_MAX)
            .find_map(|line| Self::of_line(line))
            .unwrap_or_default()
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut bearer: Option<Self> = None;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let Some((name, after)) = token(rest) else {
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
                // A name without a value opens a challenge; the one before it is complete.
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

    /// The first of each name counts.
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

fn token(text: &str) -> Option<(&str, &str)> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let end = text
        .bytes()
        .position(|b| !is_token(b))
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Skips the token68 that may follow a scheme (`Negotiate YII=`): one word that isn't the name of a parameter.
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
        return token(text).map(|(value, rest)| (value.to_owned(), rest));
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

    /// Goal: a fixed token is sent as it is and never renewed. Method: ask before and after a refusal.
    #[tokio::test]
    async fn fixed_token_stays() -> Result<(), AuthError> {
        let fixed = StaticBearer::new(&SecretString::from("t0k3n"))?;
        let sent = fixed.authorization().await?;
        assert_eq!(
            sent.as_ref().map(ExposeSecret::expose_secret),
            Some("Bearer t0k3n")
        );
        let refused = Challenge {
            status: 401,
            www_authenticate: &[],
            sent: sent.as_ref(),
            refused_before: 0,
        };
        assert!(!fixed.challenged(refused).await?);
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
            assert_eq!(BearerChallenge::of(&lines), expected, "{lines:?}");
        }
    }

    /// Goal: an endless line costs nothing. Method: a line at the limit is read, one byte more is not.
    #[test]
    fn long_lines_are_not_read() {
        let line =
            |bytes: usize| format!("Bearer scope={}", "a".repeat(bytes - "Bearer scope=".len()));
        assert!(
            BearerChallenge::of(&[&line(LINE_BYTES_MAX)])
                .scope
                .is_some()
        );
        assert!(
            BearerChallenge::of(&[&line(LINE_BYTES_MAX + 1)])
                .scope
                .is_none()
        );
    }

    proptest! {
        /// Goal: no header makes the reader panic or loop. Method: generated text of the characters that matter.
        #[test]
        fn reader_ends(line in r#"(Bearer |[a-z]{1,3}|[ ,="\\\t]|é){0,40}"#) {
            BearerChallenge::of(&[&line]);
        }
    }
}
