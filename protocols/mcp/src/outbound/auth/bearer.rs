//! Reads `WWW-Authenticate` (RFC 9110, section 11.6.1), as far as the Bearer scheme goes (RFC 6750, RFC 9728).

/// How long a header line may be to be read at all.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// What a Bearer challenge says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BearerChallenge {
    pub(super) resource_metadata: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) error: Option<String>,
}

impl BearerChallenge {
    /// The first Bearer challenge of these header lines; an empty one where there is none.
    pub(super) fn of(lines: &[&str]) -> Self {
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
            let Some((name, after)) = token(rest) else { return bearer };
            let value = after.trim_start_matches([' ', '\t']);
            match value.strip_prefix('=').map(|value| value.trim_start_matches([' ', '\t'])) {
                Some(value) if !value.starts_with('=') => {
                    let Some((value, after)) = parameter_value(value) else { return bearer };
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
    let end = text.bytes().position(|b| !is_token(b)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Skips the token68 that may follow a scheme (`Negotiate YII=`): one word that isn't the name of a parameter.
fn after_token68(after_scheme: &str) -> &str {
    let text = after_scheme.trim_start_matches([' ', '\t']);
    let is_token68 = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
    let word = text.bytes().position(|b| !is_token68(b)).unwrap_or(text.len());
    let rest = &text[word..];
    let padding = rest.len() - rest.trim_start_matches('=').len();
    let end = rest[padding..].trim_start_matches([' ', '\t']);
    let ends_here = end.is_empty() || end.starts_with(',');
    if word > 0 && ends_here { end } else { after_scheme }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn challenge(resource_metadata: Option<&str>, scope: Option<&str>, error: Option<&str>) -> BearerChallenge {
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
        let full = format!(r#"Bearer error="insufficient_scope", scope="a b", resource_metadata="{metadata}""#);
        for (lines, expected) in [
            (vec![full.as_str()], challenge(Some(metadata), Some("a b"), Some("insufficient_scope"))),
            (vec![r#"Basic realm="x, Bearer scope=no", bEaReR scope=a"#], challenge(None, Some("a"), None)),
            (vec!["Negotiate YII==", "Bearer SCOPE = \"q\\\"s\" ,error=e"], challenge(None, Some("q\"s"), Some("e"))),
            (vec!["Negotiate YII=, Bearer scope=a"], challenge(None, Some("a"), None)),
            (
                vec![r#"Bearer scope="first", scope="second", Basic realm="r", scope="third""#],
                challenge(None, Some("first"), None),
            ),
            (vec!["Bearer"], BearerChallenge::default()),
            (vec!["Bearer, Basic realm=x"], BearerChallenge::default()),
            (vec![r#"Bearer scope="never closed"#], BearerChallenge::default()),
            (vec!["", ",,,", "=", "DPoP algs=\"ES256\""], BearerChallenge::default()),
        ] {
            assert_eq!(BearerChallenge::of(&lines), expected, "{lines:?}");
        }
    }

    /// Goal: an endless line costs nothing. Method: a line at the limit is read, one byte more is not.
    #[test]
    fn long_lines_are_not_read() {
        let line = |bytes: usize| format!("Bearer scope={}", "a".repeat(bytes - "Bearer scope=".len()));
        assert!(BearerChallenge::of(&[&line(LINE_BYTES_MAX)]).scope.is_some());
        assert!(BearerChallenge::of(&[&line(LINE_BYTES_MAX + 1)]).scope.is_none());
    }

    proptest! {
        /// Goal: no header makes the reader panic or loop. Method: generated text of the characters that matter.
        #[test]
        fn reader_ends(line in r#"(Bearer |[a-z]{1,3}|[ ,="\\\t]|é){0,40}"#) {
            BearerChallenge::of(&[&line]);
        }
    }
}
