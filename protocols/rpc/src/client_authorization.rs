//! Authentication of an OAuth client at an endpoint of an authorization server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderValue, InvalidHeaderValue};
use secrecy::{ExposeSecret, SecretString};
use url::form_urlencoded::byte_serialize;

/// Returns the value of `Authorization` for HTTP Basic, which isn't printed. Client id and secret
/// are form-encoded before they are joined (RFC 6749, section 2.3.1).
///
/// # Errors
/// [`InvalidHeaderValue`] if the value can't stand in a header. Base64 always can.
pub fn basic_authorization(
    id: &str,
    secret: &SecretString,
) -> Result<HeaderValue, InvalidHeaderValue> {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let secret = SecretString::from(encoded(secret.expose_secret()));
    let pair = SecretString::from(format!("{}:{}", encoded(id), secret.expose_secret()));
    let value = SecretString::from(format!("Basic {}", STANDARD.encode(pair.expose_secret())));
    let mut header = HeaderValue::from_str(value.expose_secret())?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: Basic is encoded as in the RFC, and isn't printed. Method: characters that form encoding
    /// changes.
    #[test]
    fn basic_is_form_encoded() {
        let header = basic_authorization("a:b", &"c d%".into()).unwrap();
        let encoded = header.to_str().unwrap().strip_prefix("Basic ").unwrap();
        assert_eq!(STANDARD.decode(encoded).unwrap(), b"a%3Ab:c+d%25");
        assert!(!format!("{header:?}").contains(encoded));
    }
}
