//! Tokens in their parts (RFC 7515), and their claims (RFC 7519, RFC 9068).

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::{
    PATIENT_SCOPE_PREFIX, Principal, PrincipalKind, RawObject, TENANT_SCOPE_PREFIX,
};
use serde::Deserialize;

use super::jwk::JwsAlgorithm;
use crate::json::{DecodeLimits, check_json};
use crate::keys::{KEY_SCOPES_MAX, is_valid_scope};

/// Maximum length of an access token, in bytes. A longer one is refused without being read.
pub const TOKEN_BYTES_MAX: usize = 8_000;
/// Maximum length of the claim that identifies a principal, in bytes. A token with a longer one is
/// refused.
pub const TOKEN_PRINCIPAL_BYTES_MAX: usize = 128;
/// Tolerated difference between the issuer's clock and this machine's, in seconds.
pub const TOKEN_CLOCK_LEEWAY_S: u32 = 60;
/// Prefix of the scope that a role becomes. A token's own scopes with it are ignored.
pub const ROLE_SCOPE_PREFIX: &str = "role:";
/// Prefixes of scopes that a token can't have by its own scopes, and which are ignored there: those that
/// its claims become, and whose loss narrows what it opens.
const RESERVED_SCOPE_PREFIXES: [&str; 2] = [ROLE_SCOPE_PREFIX, TENANT_SCOPE_PREFIX];

/// Accepted types of a token (`typ`). A token without a type is accepted too.
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];

/// Types (claim `typ`) of tokens that Keycloak introspects besides access tokens.
const OTHER_TYPES: [&str; 3] = ["Refresh", "Offline", "ID"];

/// Reason why a token is refused. Contains nothing of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("it is not a signed token (JWT) of at most {TOKEN_BYTES_MAX} bytes")]
    Malformed,
    #[error("its algorithm is not allowed for its issuer")]
    Algorithm,
    #[error("its type is not that of an access token")]
    Type,
    #[error("its issuer is none of the listener's")]
    Issuer,
    #[error("no key of its issuer made its signature")]
    Signature,
    #[error("it is for another audience")]
    Audience,
    #[error("it has expired, or doesn't say when it does")]
    Expired,
    #[error("it isn't valid yet")]
    NotYetValid,
    #[error("a claim is missing or has a wrong type or length")]
    Claim,
    #[error("it lacks a scope that the listener requires")]
    Scope,
    #[error("the keys of its issuer could not be fetched")]
    Unavailable,
    #[error("its issuer says that it isn't active")]
    Inactive,
    #[error("its issuer could not be asked about it, or too many tokens are asked about")]
    NotIntrospected,
}

/// Claims by which a token's holder is known. A name is that of a claim, or a path of names joined
/// by `.` to one in nested objects, such as `realm_access.roles`.
#[derive(Debug, Clone)]
pub struct ClaimNames {
    /// Claim with the id of the principal, unique at the issuer. Default: `sub`.
    pub principal: String,
    /// Claim with the tenant, which becomes a scope with [`TENANT_SCOPE_PREFIX`]. A token without it
    /// is refused. `None` for no tenants.
    pub tenant: Option<String>,
    /// Claim with a role or a list of roles, each of which becomes a scope with
    /// [`ROLE_SCOPE_PREFIX`]. A token may lack it. `None` for no roles.
    pub roles: Option<String>,
    /// Claim with the only patient whose data the scopes for one patient open, which becomes a scope
    /// with [`PATIENT_SCOPE_PREFIX`]. A token may lack it. Default: `patient`, as in the launch
    /// context of SMART on FHIR.
    pub patient: String,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self {
            principal: "sub".to_owned(),
            tenant: None,
            roles: None,
            patient: "patient".to_owned(),
        }
    }
}

/// Parts of a token whose signature hasn't been verified.
pub(super) struct UnverifiedToken<'a> {
    /// Bytes that are signed.
    pub(super) message: &'a [u8],
    pub(super) signature: Vec<u8>,
    /// Name of the algorithm, as the token states it.
    pub(super) algorithm: String,
    pub(super) key_id: Option<String>,
    pub(super) claims: RawObject,
}

/// Text, or a list of texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Whether a bearer token has the three parts of a signed token.
pub(super) fn is_signed_token(token: &[u8]) -> bool {
    token.iter().filter(|byte| **byte == b'.').count() == 2
}

/// Whether a bearer token claims to be a signed token: it has three parts, and the first is a header.
pub(super) fn has_header(token: &[u8]) -> bool {
    let header = token.split(|byte| *byte == b'.').next();
    let header = header.and_then(|header| decode_part(header).ok());
    let is_header = |text: Vec<u8>| serde_json::from_slice::<RawObject>(&text).is_ok();
    is_signed_token(token) && header.is_some_and(is_header)
}

impl<'a> UnverifiedToken<'a> {
    /// Splits and decodes a token.
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed);
        }
        let mut parts = token.split(|byte| *byte == b'.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed);
        };
        let head = decode_object(header)?;
        // Critical headers would have to be understood (RFC 7515, section 4.1.11), and `b64` changes
        // what is signed (RFC 7797).
        if head.has("crit") || head.has("b64") {
            return Err(TokenError::Malformed);
        }
        let text = |name: &str| match head.get(name) {
            Some(_) => head.text(name).map(Some).ok_or(TokenError::Malformed),
            None => Ok(None),
        };
        let is_access_token = |kind: String| TYPES.iter().any(|t| t.eq_ignore_ascii_case(&kind));
        if !text("typ")?.is_none_or(is_access_token) {
            return Err(TokenError::Type);
        }
        let body = decode_object(claims)?;
        // Marks of an ID token (OpenID Connect Core, section 3.1.3.6), which tells a client who has
        // signed in and opens nothing.
        if body.has("at_hash") || body.has("c_hash") {
            return Err(TokenError::Type);
        }
        Ok(Self {
            message: token
                .get(..header.len() + 1 + claims.len())
                .unwrap_or_default(),
            signature: decode_part(signature)?,
            algorithm: text("alg")?.ok_or(TokenError::Algorithm)?,
            key_id: text("kid")?,
            claims: body,
        })
    }

    /// Returns the algorithm if it is one of `allowed`.
    pub(super) fn allowed_algorithm(
        &self,
        allowed: &[JwsAlgorithm],
    ) -> Result<JwsAlgorithm, TokenError> {
        JwsAlgorithm::from_name(&self.algorithm)
            .filter(|algorithm| allowed.contains(algorithm))
            .ok_or(TokenError::Algorithm)
    }
}

/// Returns the current time in seconds since the Unix epoch.
pub(super) fn unix_time() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Checks the times of a token and returns that of its expiry. `now` and the result are in seconds
/// since the Unix epoch.
pub(super) fn check_times(claims: &RawObject, now: f64) -> Result<f64, TokenError> {
    let leeway = f64::from(TOKEN_CLOCK_LEEWAY_S);
    let time = |name: &str| match claims.get(name) {
        Some(_) => {
            let time = claims.read::<f64>(name).filter(|time| time.is_finite());
            time.map(Some).ok_or(TokenError::Claim)
        }
        None => Ok(None),
    };
    let expires = time("exp")?.ok_or(TokenError::Expired)? + leeway;
    if expires <= now {
        return Err(TokenError::Expired);
    }
    for name in ["nbf", "iat"] {
        if time(name)?.is_some_and(|from| from > now + leeway) {
            return Err(TokenError::NotYetValid);
        }
    }
    Ok(expires)
}

/// Checks that a token is for one of the audiences.
pub(super) fn check_audience(claims: &RawObject, audiences: &[String]) -> Result<(), TokenError> {
    let named = match claims.read::<OneOrMany>("aud") {
        Some(OneOrMany::One(one)) => vec![one],
        Some(OneOrMany::Many(many)) => many,
        None => return Err(TokenError::Audience),
    };
    match named.iter().any(|name| audiences.contains(name)) {
        true => Ok(()),
        false => Err(TokenError::Audience),
    }
}

/// Checks that an introspected token is an access token that is sent as a bearer token, if that is told:
/// endpoints tell of refresh tokens and ID tokens too.
pub(super) fn check_use(claims: &RawObject) -> Result<(), TokenError> {
    let is_one_of = |name: &str, known: &[&str]| match claims.get(name) {
        None => Ok(None),
        Some(_) => {
            let told = claims.text(name).ok_or(TokenError::Type)?;
            let mut known = known.iter();
            Ok(Some(known.any(|known| told.eq_ignore_ascii_case(known))))
        }
    };
    let is_right = is_one_of("token_type", &["Bearer"])?.unwrap_or(true)
        && is_one_of("token_use", &["access_token", "access"])?.unwrap_or(true)
        && !is_one_of("typ", &OTHER_TYPES)?.unwrap_or(false);
    is_right.then_some(()).ok_or(TokenError::Type)
}

/// Checks that whoever has a token may use it: that it isn't bound to a key or certificate of its client
/// (RFC 7800, RFC 8705, RFC 9449), which a bearer doesn't prove to have.
pub(super) fn check_unbound(claims: &RawObject) -> Result<(), TokenError> {
    match claims.has("cnf") {
        true => Err(TokenError::Type),
        false => Ok(()),
    }
}

/// Returns the principal of a token: `ISSUER.ID`, with its scopes, roles and tenant. `issuer` is the
/// short name of the issuer, in which no `.` is, so that issuers can't name each other's principals.
pub(super) fn principal_of(
    claims: &RawObject,
    issuer: &str,
    names: &ClaimNames,
) -> Result<Principal, TokenError> {
    let id = text_claim(claims, &names.principal)?;
    let is_printable = |c: char| !c.is_control() && !c.is_whitespace();
    if id.is_empty() || id.len() > TOKEN_PRINCIPAL_BYTES_MAX || !id.chars().all(is_printable) {
        return Err(TokenError::Claim);
    }
    let mut scopes = token_scopes(claims)?;
    if let Some(name) = &names.tenant {
        scopes.push(claim_scope(TENANT_SCOPE_PREFIX, claims, name)?);
    }
    if is_told(claims, &names.patient) {
        // A token whose patient can't be read would otherwise not be limited to one.
        scopes.push(claim_scope(PATIENT_SCOPE_PREFIX, claims, &names.patient)?);
    }
    if let Some(name) = &names.roles {
        let roles = match find_claim(claims, name) {
            Some(_) => many_claim(claims, name)?,
            None => Vec::new(),
        };
        let roles = roles
            .iter()
            .map(|role| format!("{ROLE_SCOPE_PREFIX}{role}"));
        // A role with other characters grants nothing.
        scopes.extend(roles.filter(|scope| is_valid_scope(scope)));
    }
    if scopes.len() > KEY_SCOPES_MAX {
        return Err(TokenError::Claim);
    }
    Ok(Principal {
        id: format!("{issuer}.{id}"),
        kind: PrincipalKind::Token,
        scopes,
        purpose: None,
    })
}

/// Returns the scopes of a token: of `scope`, a text (RFC 9068), and `scp`, a text or a list.
fn token_scopes(claims: &RawObject) -> Result<Vec<String>, TokenError> {
    let mut scopes: Vec<String> = Vec::new();
    for name in ["scope", "scp"] {
        let named = match claims.get(name) {
            Some(_) => claims.read::<OneOrMany>(name).ok_or(TokenError::Claim)?,
            None => continue,
        };
        let named = match named {
            OneOrMany::One(text) => text.split(' ').map(str::to_owned).collect(),
            OneOrMany::Many(list) => list,
        };
        for scope in named.into_iter().filter(|scope| !scope.is_empty()) {
            if !is_valid_scope(&scope) {
                return Err(TokenError::Claim);
            }
            if scope.starts_with(PATIENT_SCOPE_PREFIX) {
                // To ignore it would widen what the token opens.
                return Err(TokenError::Claim);
            }
            let is_reserved = RESERVED_SCOPE_PREFIXES
                .iter()
                .any(|prefix| scope.starts_with(prefix));
            if !is_reserved && !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
    }
    Ok(scopes)
}

/// Returns the JSON of a claim by its name, else by the path that the name may be.
fn find_claim(claims: &RawObject, name: &str) -> Option<String> {
    if let Some(value) = claims.get(name) {
        return Some(value.get().to_owned());
    }
    let (first, rest) = name.split_once('.')?;
    find_claim(&claims.object(first)?, rest)
}

/// Returns whether a token has a claim by its name, or anything at the path that the name may be. `null`
/// counts as nothing.
fn is_told(claims: &RawObject, name: &str) -> bool {
    let is_null = |name: &str| claims.get(name).is_none_or(|value| value.get() == "null");
    if !is_null(name) {
        return true;
    }
    name.split_once('.')
        .is_some_and(|(first, rest)| match claims.object(first) {
            Some(object) => is_told(&object, rest),
            None => !is_null(first),
        })
}

/// Returns the scope that a claim with a text becomes.
fn claim_scope(prefix: &str, claims: &RawObject, name: &str) -> Result<String, TokenError> {
    let scope = format!("{prefix}{}", text_claim(claims, name)?);
    match is_valid_scope(&scope) && scope.len() > prefix.len() {
        true => Ok(scope),
        false => Err(TokenError::Claim),
    }
}

fn text_claim(claims: &RawObject, name: &str) -> Result<String, TokenError> {
    let value = find_claim(claims, name).ok_or(TokenError::Claim)?;
    serde_json::from_str(&value).map_err(|_| TokenError::Claim)
}

fn many_claim(claims: &RawObject, name: &str) -> Result<Vec<String>, TokenError> {
    let value = find_claim(claims, name).ok_or(TokenError::Claim)?;
    match serde_json::from_str(&value) {
        Ok(OneOrMany::One(one)) => Ok(vec![one]),
        Ok(OneOrMany::Many(many)) => Ok(many),
        Err(_) => Err(TokenError::Claim),
    }
}

fn decode_part(part: &[u8]) -> Result<Vec<u8>, TokenError> {
    match URL_SAFE_NO_PAD.decode(part) {
        Ok(decoded) if !decoded.is_empty() => Ok(decoded),
        _ => Err(TokenError::Malformed),
    }
}

/// Decodes a part that is a JSON object. Duplicate keys, at any depth, are an error: which of them
/// counts would depend on the reader.
fn decode_object(part: &[u8]) -> Result<RawObject, TokenError> {
    let decoded = decode_part(part)?;
    let limits = DecodeLimits {
        body_bytes_max: TOKEN_BYTES_MAX,
        ..DecodeLimits::default()
    };
    let text = check_json(&decoded, &limits).map_err(|_| TokenError::Malformed)?;
    serde_json::from_str(text).map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claims(value: &Value) -> RawObject {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    /// Goal: the clocks may differ by the leeway and no more; a token without an expiry is refused.
    /// Method: rows around the limits.
    #[test]
    fn times() {
        let (now, leeway) = (1_000_000_f64, f64::from(TOKEN_CLOCK_LEEWAY_S));
        let late = json!(now + 10.0);
        for (value, checked) in [
            (json!({ "exp": now + 1.0 }), Ok(())),
            (json!({ "exp": now - leeway + 1.0 }), Ok(())),
            (json!({ "exp": now - leeway }), Err(TokenError::Expired)),
            (json!({}), Err(TokenError::Expired)),
            (json!({ "exp": "9999999999" }), Err(TokenError::Claim)),
            (json!({ "exp": null }), Err(TokenError::Claim)),
            (json!({ "exp": late, "nbf": now + leeway }), Ok(())),
            (
                json!({ "exp": late, "nbf": now + leeway + 1.0 }),
                Err(TokenError::NotYetValid),
            ),
            (json!({ "exp": late, "iat": now + leeway }), Ok(())),
            (
                json!({ "exp": late, "iat": now + leeway + 1.0 }),
                Err(TokenError::NotYetValid),
            ),
            (json!({ "exp": late, "nbf": true }), Err(TokenError::Claim)),
        ] {
            let found = check_times(&claims(&value), now).map(drop);
            assert_eq!(found, checked, "{value}");
        }
    }

    /// Goal: only what claims to be a signed token is taken for one. Method: rows.
    #[test]
    fn headers() {
        for (token, is_signed) in [
            ("eyJhbGciOiJFUzI1NiJ9.e30.c2ln", true),
            ("eyJhbGciOiJFUzI1NiJ9.!.", true),
            ("e30..", true),
            ("eyJhbGciOiJFUzI1NiJ9.e30", false),
            ("eyJhbGciOiJFUzI1NiJ9.e30.c2ln.c2ln.c2ln", false),
            ("v4.local.c2ln", false),
            ("W10.e30.c2ln", false),
            ("..", false),
            ("opaque", false),
        ] {
            assert_eq!(has_header(token.as_bytes()), is_signed, "{token}");
        }
    }

    /// Goal: an introspected token that isn't for access, or not for whoever has it, is refused.
    /// Method: rows of what endpoints tell.
    #[test]
    fn uses() {
        for (told, is_access) in [
            (json!({}), true),
            (json!({ "token_type": "Bearer", "typ": "Bearer" }), true),
            (json!({ "token_type": "bearer" }), true),
            (json!({ "token_use": "access_token" }), true),
            (json!({ "typ": "at+jwt" }), true),
            (json!({ "token_type": "DPoP" }), false),
            (json!({ "token_type": "Refresh" }), false),
            (
                json!({ "token_use": "refresh_token", "token_type": "Bearer" }),
                false,
            ),
            (json!({ "typ": "Refresh" }), false),
            (json!({ "typ": "ID" }), false),
            (json!({ "token_type": ["DPoP"] }), false),
            (json!({ "token_use": null }), false),
        ] {
            assert_eq!(check_use(&claims(&told)).is_ok(), is_access, "{told}");
        }
    }

    /// Goal: an audience is a text or a list of texts, compared exactly. Method: rows.
    #[test]
    fn audiences() {
        let own = ["https://a.example/mcp".to_owned(), "b".to_owned()];
        for (value, is_ours) in [
            (json!({ "aud": "https://a.example/mcp" }), true),
            (json!({ "aud": ["x", "b"] }), true),
            (json!({ "aud": "https://a.example/mcp/" }), false),
            (json!({ "aud": "https://a.example" }), false),
            (json!({ "aud": ["x"] }), false),
            (json!({ "aud": [] }), false),
            (json!({ "aud": ["b", 1] }), false),
            (json!({ "aud": null }), false),
            (json!({}), false),
        ] {
            let found = check_audience(&claims(&value), &own).is_ok();
            assert_eq!(found, is_ours, "{value}");
        }
    }

    /// Goal: claims become id, scopes, roles and tenant, and a token can't claim a role or a tenant
    /// by a scope. Method: rows.
    #[test]
    fn principals() {
        let names = ClaimNames {
            principal: "sub".into(),
            tenant: Some("org".into()),
            roles: Some("realm_access.roles".into()),
            ..ClaimNames::default()
        };
        let of = |value: Value| principal_of(&claims(&value), "corp", &names);
        let full = of(json!({
            "sub": "alice", "org": "acme", "scope": "a b a role:admin tenant:other", "scp": ["c"],
            "realm_access": { "roles": ["nurse", "two words"] },
        }))
        .unwrap();
        assert_eq!(
            (full.id.as_str(), full.kind),
            ("corp.alice", PrincipalKind::Token)
        );
        assert_eq!(full.scopes, ["a", "b", "c", "tenant:acme", "role:nurse"]);
        let named = json!({ "sub": "a", "org": "o", "realm_access.roles": "one" });
        assert_eq!(of(named).unwrap().scopes, ["tenant:o", "role:one"]);
        let long = "x".repeat(TOKEN_PRINCIPAL_BYTES_MAX + 1);
        assert!(of(json!({ "sub": long[1..], "org": "o" })).is_ok());
        let many = |count: usize| vec!["r"; count];
        let scopes = |count: usize| json!({ "sub": "a", "org": "o", "realm_access": { "roles": many(count) } });
        assert!(of(scopes(KEY_SCOPES_MAX - 1)).is_ok());
        for wrong in [
            json!({ "sub": long, "org": "o" }),
            json!({ "org": "o" }),
            json!({ "sub": "", "org": "o" }),
            json!({ "sub": 1, "org": "o" }),
            json!({ "sub": "a b", "org": "o" }),
            json!({ "sub": "a\u{0}", "org": "o" }),
            json!({ "sub": "a" }),
            json!({ "sub": "a", "org": "" }),
            json!({ "sub": "a", "org": "two words" }),
            json!({ "sub": "a", "org": ["o"] }),
            json!({ "sub": "a", "org": "o", "scope": 1 }),
            json!({ "sub": "a", "org": "o", "scope": "a\"b" }),
            json!({ "sub": "a", "org": "o", "realm_access": { "roles": 1 } }),
            scopes(KEY_SCOPES_MAX),
        ] {
            assert_eq!(of(wrong.clone()), Err(TokenError::Claim), "{wrong}");
        }
    }

    /// Goal: the patient of a token is what its claim says, byte by byte; a token can't name one by a
    /// scope; and a claim that can't be read refuses the token, which would otherwise be limited to
    /// nobody. Method: rows, with the default name of the claim and another.
    #[test]
    fn patients_of_tokens() {
        let of = |names: &ClaimNames, value: Value| {
            principal_of(&claims(&value), "corp", names).map(|principal| principal.scopes)
        };
        let default = ClaimNames::default();
        for (value, scopes) in [
            (json!({ "patient": "PT1" }), Ok(vec!["patient:PT1"])),
            (json!({ "patient": "pt1" }), Ok(vec!["patient:pt1"])),
            (
                json!({ "patient": "PT1", "scope": "a patient/hmcp:read" }),
                Ok(vec!["a", "patient/hmcp:read", "patient:PT1"]),
            ),
            (json!({ "scope": "patient:PT2" }), Err(TokenError::Claim)),
            (json!({ "Patient": "PT1" }), Ok(vec![])),
            (json!({ "patient": "" }), Err(TokenError::Claim)),
            (json!({ "patient": null }), Ok(vec![])),
            (json!({ "patient": ["PT1"] }), Err(TokenError::Claim)),
            (json!({ "patient": ["PT1", "PT2"] }), Err(TokenError::Claim)),
            (
                json!({ "patient": { "id": "PT1" } }),
                Err(TokenError::Claim),
            ),
            (json!({ "patient": "PT1 PT2" }), Err(TokenError::Claim)),
            (json!({ "patient": "PT１" }), Err(TokenError::Claim)),
            (json!({ "patient": "PT1\u{301}" }), Err(TokenError::Claim)),
            (
                json!({ "patient": "P".repeat(crate::KEY_SCOPE_BYTES_MAX) }),
                Err(TokenError::Claim),
            ),
        ] {
            let mut value = value;
            value["sub"] = "a".into();
            let scopes = scopes.map(|scopes| scopes.into_iter().map(str::to_owned).collect());
            assert_eq!(of(&default, value.clone()), scopes, "{value}");
        }
        let named = ClaimNames {
            patient: "ctx.person".to_owned(),
            ..default
        };
        let value = json!({ "sub": "a", "ctx": { "person": "PT1" }, "patient": 7 });
        assert_eq!(of(&named, value).unwrap(), ["patient:PT1"]);
        for unreadable in [json!("PT1"), json!(["PT1"]), json!({ "person": ["PT1"] })] {
            let value = json!({ "sub": "a", "ctx": unreadable });
            assert_eq!(of(&named, value), Err(TokenError::Claim));
        }
        for absent in [json!({}), json!(null), json!({ "person": null })] {
            let value = json!({ "sub": "a", "ctx": absent });
            assert_eq!(of(&named, value).unwrap(), [""; 0]);
        }
    }
}
