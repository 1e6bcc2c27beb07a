//! Metadata of a listener as a protected resource (RFC 9728).

use callboard_message::RawObject;
use url::Url;

/// Beginning of the path of the metadata, before the path of the resource.
pub const RESOURCE_METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Maximum length of the path of a resource that has metadata, in bytes. Longer ones have none.
pub const RESOURCE_PATH_BYTES_MAX: usize = 1_024;

/// Description of the tokens that a listener accepts, for clients. Each URL of the listener is a
/// resource of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenResource {
    /// Origin under which clients reach the listener, such as `https://agents.example`. `None` for
    /// that of the request.
    pub origin: Option<Url>,
    /// Issuers whose tokens are accepted.
    pub issuers: Vec<String>,
    /// Scopes that a token must have.
    pub scopes: Vec<String>,
    /// Scopes that everything served needs besides, unless a token has a scope of
    /// [`Self::optional_scopes`] in their place.
    pub served_scopes: Vec<String>,
    /// Further scopes that open something here, named in the metadata only.
    pub optional_scopes: Vec<String>,
}

impl TokenResource {
    /// Returns the URL of `path` at the listener; `None` if a request's `host` isn't a host, or the
    /// path is too long.
    fn url(&self, host: Option<&str>, is_tls: bool, path: &str) -> Option<Url> {
        let mut url = match &self.origin {
            Some(origin) => origin.clone(),
            None => {
                let scheme = if is_tls { "https" } else { "http" };
                Url::parse(&format!("{scheme}://{}", host?)).ok()?
            }
        };
        let is_origin = url.path() == "/" && url.query().is_none() && url.username().is_empty();
        if !is_origin || url.fragment().is_some() || path.len() > RESOURCE_PATH_BYTES_MAX {
            return None;
        }
        url.set_path(path);
        Some(url)
    }

    /// Returns the URL of the metadata of the resource at `path`, for a challenge. `host` and
    /// `is_tls` are those of the request.
    pub fn metadata_url(&self, host: Option<&str>, is_tls: bool, path: &str) -> Option<Url> {
        let path = path.trim_end_matches('/');
        self.url(host, is_tls, &format!("{RESOURCE_METADATA_PATH}{path}"))
    }

    /// Returns the metadata of the resource at `path`; `None` if its URL can't be told.
    pub fn metadata(&self, host: Option<&str>, is_tls: bool, path: &str) -> Option<RawObject> {
        let url = self.url(host, is_tls, path)?;
        // Without a path the identifier has no slash at its end, as clients write it.
        let resource = match url.path() {
            "/" => url.as_str().trim_end_matches('/'),
            _ => url.as_str(),
        };
        let mut document = RawObject::single("resource", resource)
            .with("authorization_servers", &self.issuers)
            .with("bearer_methods_supported", ["header"]);
        let served = self.scopes.iter().chain(&self.served_scopes);
        let supported: Vec<_> = served.chain(&self.optional_scopes).collect();
        if !supported.is_empty() {
            document.set("scopes_supported", supported);
        }
        Some(document)
    }

    /// Returns the challenge `plain` (`Bearer …`) with the metadata's URL and the scopes that a token
    /// must have, and `needed`, that of the request; `None` stands for those of everything served.
    pub fn extend_challenge(
        &self,
        plain: &str,
        metadata: Option<&Url>,
        needed: Option<&str>,
    ) -> String {
        let mut parameters = Vec::new();
        parameters.extend(metadata.map(|url| format!("resource_metadata=\"{url}\"")));
        let mut scopes: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
        match needed {
            Some(needed) => scopes.push(needed),
            None => scopes.extend(self.served_scopes.iter().map(String::as_str)),
        }
        if !scopes.is_empty() {
            parameters.push(format!("scope=\"{}\"", scopes.join(" ")));
        }
        let separator = match plain.contains(' ') {
            true => ", ",
            false => " ",
        };
        match parameters.is_empty() {
            true => plain.to_owned(),
            false => format!("{plain}{separator}{}", parameters.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(origin: Option<&str>) -> TokenResource {
        TokenResource {
            origin: origin.map(|origin| origin.parse().unwrap()),
            issuers: vec!["https://login.example".into()],
            scopes: vec!["a".into(), "b".into()],
            ..TokenResource::default()
        }
    }

    /// Goal: the well-known path is inserted before the resource's, and nothing of a request leaves
    /// the quotes of a challenge. Method: rows of origins, hosts and paths.
    #[test]
    fn metadata_urls() {
        for (origin, host, is_tls, path, url) in [
            (
                None,
                Some("a.example:8080"),
                false,
                "/mcp",
                Some("http://a.example:8080/.well-known/oauth-protected-resource/mcp"),
            ),
            (
                None,
                Some("[::1]:1"),
                true,
                "/agents/x/mcp",
                Some("https://[::1]:1/.well-known/oauth-protected-resource/agents/x/mcp"),
            ),
            (
                Some("https://b.example"),
                Some("a.example"),
                false,
                "/",
                Some("https://b.example/.well-known/oauth-protected-resource"),
            ),
            (
                None,
                Some("a.example"),
                false,
                "/a\"b",
                Some("http://a.example/.well-known/oauth-protected-resource/a%22b"),
            ),
            (None, Some("a.example/x"), false, "/mcp", None),
            (None, Some("u@a.example"), false, "/mcp", None),
            (None, Some("a.example?q"), false, "/mcp", None),
            (None, Some("a b"), false, "/mcp", None),
            (None, None, false, "/mcp", None),
        ] {
            let found = resource(origin).metadata_url(host, is_tls, path);
            assert_eq!(found.as_ref().map(Url::as_str), url, "{host:?} {path}");
        }
        let long = "/".to_owned() + &"x".repeat(RESOURCE_PATH_BYTES_MAX - 1);
        let of = |path: &str| resource(None).metadata(Some("a"), false, path);
        assert!(of(&long).is_some() && of(&format!("{long}x")).is_none());
    }

    /// Goal: documents and challenges are as the RFCs write them. Method: one of each.
    #[test]
    fn documents_and_challenges() {
        let told = resource(None);
        let document = told.metadata(Some("a.example"), false, "/mcp").unwrap();
        assert_eq!(
            document.to_raw().get(),
            r#"{"resource":"http://a.example/mcp","authorization_servers":["https://login.example"],"bearer_methods_supported":["header"],"scopes_supported":["a","b"]}"#
        );
        let root = told.metadata(Some("a.example"), true, "/").unwrap();
        assert_eq!(root.text("resource").as_deref(), Some("https://a.example"));
        let url = told.metadata_url(Some("a.example"), false, "/mcp");
        assert_eq!(
            told.extend_challenge("Bearer", url.as_ref(), None),
            "Bearer resource_metadata=\"http://a.example/.well-known/oauth-protected-resource/mcp\", scope=\"a b\""
        );
        assert_eq!(
            told.extend_challenge("Bearer error=\"insufficient_scope\"", None, None),
            "Bearer error=\"insufficient_scope\", scope=\"a b\""
        );
        let plain = TokenResource::default();
        assert_eq!(plain.extend_challenge("Bearer", None, None), "Bearer");
    }

    /// Goal: a challenge names what all requests need, or what the refused one does, and the document
    /// names whatever counts. Method: a listener with scopes of each kind.
    #[test]
    fn scopes_of_what_is_served() {
        let told = TokenResource {
            served_scopes: vec!["c:write".into()],
            optional_scopes: vec!["one/c:write".into()],
            ..resource(None)
        };
        assert_eq!(
            told.extend_challenge("Bearer", None, None),
            "Bearer scope=\"a b c:write\""
        );
        assert_eq!(
            told.extend_challenge("Bearer error=\"x\"", None, Some("one/c:write")),
            "Bearer error=\"x\", scope=\"a b one/c:write\""
        );
        let document = told.metadata(Some("a.example"), false, "/mcp").unwrap();
        assert_eq!(
            document.read::<Vec<String>>("scopes_supported").unwrap(),
            ["a", "b", "c:write", "one/c:write"]
        );
    }
}
