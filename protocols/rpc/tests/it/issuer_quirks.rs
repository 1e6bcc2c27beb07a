//! Issuers that write their documents and tokens in ways of their own. The documents here have the members
//! that the products document for a tenant (September 2026), shortened, with a key and URLs of the test; they
//! weren't recorded from a tenant.

use callboard_rpc::{ClaimNames, CredentialError, IssuerRegistry, KeySource, TokenIssuer};
use serde_json::{Value, json};

use crate::issuer::{SigningKey, TestIssuer, now_s};
use crate::tokens::{access_with, ask, settings};

/// Documents and a token of a product.
struct Product {
    /// Path of the issuer, with its slash at the end if it has one.
    path: &'static str,
    /// Path of its metadata.
    metadata: &'static str,
    /// Members that its metadata have besides `issuer` and `jwks_uri`.
    more: Value,
    /// Members that its key has besides those of the algorithm.
    of_key: Value,
    /// Other keys of its set.
    other_keys: Value,
    /// Members of a token's head besides `alg` and `kid`.
    head: Value,
    /// Claims besides times and issuer.
    claims: Value,
}

/// Returns both objects as one. A member of the second that is null is left out.
fn merged(base: &Value, more: &Value) -> Value {
    let mut all = base.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    all.retain(|_, value| !value.is_null());
    all.into()
}

/// A running issuer with a product's documents.
struct Tenant {
    server: TestIssuer,
    issuer: String,
    key: SigningKey,
    product: Product,
}

impl Tenant {
    async fn start(product: Product) -> Self {
        let server = TestIssuer::start().await;
        let issuer = format!("{}{}", server.url, product.path);
        let key = SigningKey::new("k1", "RS256");
        let metadata = json!({ "issuer": issuer, "jwks_uri": format!("{}/keys", server.url) });
        let metadata = merged(&metadata, &product.more);
        server.set("/.well-known/oauth-authorization-server", 404, "");
        server.set(product.metadata, 200, &metadata.to_string());
        let mut keys = product.other_keys.as_array().unwrap().clone();
        keys.push(merged(&key.jwk(), &product.of_key));
        server.set("/keys", 200, &json!({ "keys": keys }).to_string());
        Self {
            server,
            issuer,
            key,
            product,
        }
    }

    fn token(&self, change: &Value) -> String {
        let now = now_s();
        let own = json!({ "iss": self.issuer, "iat": now, "nbf": now, "exp": now + 600 });
        let claims = merged(&merged(&own, &self.product.claims), change);
        let head = merged(&json!({ "alg": "RS256", "kid": "k1" }), &self.product.head);
        self.key.sign(&head, &claims.to_string())
    }

    /// Settings for this issuer, as its section of a topology has them.
    fn settings(&self, audience: &str, scopes: &[&str], claims: ClaimNames) -> TokenIssuer {
        TokenIssuer {
            issuer: self.issuer.clone(),
            audiences: vec![audience.to_owned()],
            keys: Some(KeySource::Metadata(self.issuer.clone())),
            scopes_required: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            claims,
            ..settings(&self.server)
        }
    }
}

/// Returns id and scopes of a token's principal.
async fn principal(
    settings: &TokenIssuer,
    token: &str,
) -> Result<(String, String), CredentialError> {
    let access = access_with(vec![settings.clone()], &IssuerRegistry::default());
    let found = ask(&access, token).await?;
    Ok((found.id, found.scopes.join(" ")))
}

fn ok(id: &str, scopes: &str) -> Result<(String, String), CredentialError> {
    Ok((id.to_owned(), scopes.to_owned()))
}

const WRONG: Result<(String, String), CredentialError> = Err(CredentialError::Wrong);

/// Goal: tokens of Microsoft Entra (v2.0) are accepted: the issuer has a path, keys name no algorithm, the
/// audience is a client id, scopes are in `scp` or applications' roles in `roles`. Not those of v1.0 or of
/// another tenant, nor an ID token. Method: documents as the product has them.
#[tokio::test]
async fn microsoft_entra() {
    let client = "6731de76-14a6-49ae-97bc-6eba6914391e";
    let tenant = Tenant::start(Product {
        path: "/9122040d/v2.0",
        metadata: "/9122040d/v2.0/.well-known/openid-configuration",
        more: json!({
            "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt", "client_secret_basic"],
            "response_modes_supported": ["query", "fragment", "form_post"],
            "subject_types_supported": ["pairwise"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "http_logout_supported": true,
            "tenant_region_scope": "EU",
            "cloud_instance_name": "microsoftonline.com",
        }),
        of_key: json!({ "use": "sig", "x5t": "k1", "x5c": ["MIIC"], "cloud_instance_name": "microsoftonline.com" }),
        other_keys: json!([{ "kty": "RSA", "use": "sig", "kid": "k0", "x5t": "k0", "n": "AQAB", "e": "AQAB", "x5c": ["MIIC"] }]),
        head: json!({ "typ": "JWT" }),
        claims: json!({
            "aud": client, "azp": client, "azpacr": "1", "oid": "690222be", "sub": "pairwise", "scp": "Agents.Call Mail.Read",
            "tid": "9122040d", "ver": "2.0", "uti": "x", "rh": "0.A", "name": "Alice Example", "preferred_username": "alice@example.com",
        }),
    })
    .await;
    let names = ClaimNames {
        principal: "oid".to_owned(),
        tenant: Some("tid".to_owned()),
        roles: Some("roles".to_owned()),
        ..ClaimNames::default()
    };
    let delegated = tenant.settings(client, &["Agents.Call"], names.clone());
    let scopes = "Agents.Call Mail.Read tenant:9122040d";
    let right = tenant.token(&json!({}));
    assert_eq!(
        principal(&delegated, &right).await,
        ok("corp.690222be", scopes)
    );
    let application = tenant.settings(client, &["role:Agents.Call.All"], names);
    let change = json!({ "scp": null, "roles": ["Agents.Call.All"], "idtyp": "app" });
    let of_application = tenant.token(&change);
    let scopes = "tenant:9122040d role:Agents.Call.All";
    assert_eq!(
        principal(&application, &of_application).await,
        ok("corp.690222be", scopes)
    );
    for (what, change) in [
        (
            "v1.0",
            json!({ "iss": format!("{}/9122040d/", tenant.server.url), "ver": "1.0" }),
        ),
        (
            "another tenant",
            json!({ "iss": format!("{}/other/v2.0", tenant.server.url) }),
        ),
        (
            "the application's URI",
            json!({ "aud": format!("api://{client}") }),
        ),
        ("an ID token", json!({ "at_hash": "x" })),
    ] {
        assert_eq!(
            principal(&delegated, &tenant.token(&change)).await,
            WRONG,
            "{what}"
        );
    }
}

/// Goal: tokens of Auth0 are accepted: the issuer ends with a slash, `aud` is a list with the user-info
/// endpoint, permissions are a list of their own. Not a token for that endpoint alone. Method: documents as
/// the product has them.
#[tokio::test]
async fn auth0() {
    let audience = "https://agents.example";
    let tenant = Tenant::start(Product {
        path: "/",
        metadata: "/.well-known/openid-configuration",
        more: json!({
            "device_authorization_endpoint": "https://tenant.example/oauth/device/code",
            "scopes_supported": ["openid", "profile", "offline_access"],
            "code_challenge_methods_supported": ["S256", "plain"],
            "request_uri_parameter_supported": false,
            "mfa_challenge_endpoint": "https://tenant.example/mfa/challenge",
        }),
        of_key: json!({ "use": "sig", "alg": "RS256", "x5t": "k1", "x5c": ["MIIC"] }),
        other_keys: json!([]),
        head: json!({ "typ": "JWT" }),
        claims: json!({
            "sub": "auth0-5f7c8ec7c33c6c004bbafe82", "azp": "my_client", "scope": "openid profile callboard",
            "aud": [audience, "https://tenant.example/userinfo"], "permissions": ["read:agents", "call:agents"],
        }),
    })
    .await;
    let names = ClaimNames {
        roles: Some("permissions".to_owned()),
        ..ClaimNames::default()
    };
    let settings = tenant.settings(audience, &["callboard"], names);
    let scopes = "openid profile callboard role:read:agents role:call:agents";
    let id = "corp.auth0-5f7c8ec7c33c6c004bbafe82";
    assert_eq!(
        principal(&settings, &tenant.token(&json!({}))).await,
        ok(id, scopes)
    );
    let without_slash = tenant.issuer.trim_end_matches('/').to_owned();
    for (what, change) in [
        ("without the slash", json!({ "iss": without_slash })),
        (
            "for user info alone",
            json!({ "aud": ["https://tenant.example/userinfo"] }),
        ),
    ] {
        assert_eq!(
            principal(&settings, &tenant.token(&change)).await,
            WRONG,
            "{what}"
        );
    }
}

/// Goal: tokens of Keycloak are accepted: its key set has a key for encryption too, and roles are nested. Not
/// one whose audience is `account`, which is the default, nor a refresh or ID token. Method: documents as the
/// product has them.
#[tokio::test]
async fn keycloak() {
    let tenant = Tenant::start(Product {
        path: "/realms/agents",
        metadata: "/realms/agents/.well-known/openid-configuration",
        more: json!({
            "introspection_endpoint": "https://keycloak.example/realms/agents/protocol/openid-connect/token/introspect",
            "tls_client_certificate_bound_access_tokens": true,
            "mtls_endpoint_aliases": { "token_endpoint": "https://keycloak.example/realms/agents/protocol/openid-connect/token" },
            "authorization_response_iss_parameter_supported": true,
            "frontchannel_logout_supported": true,
        }),
        of_key: json!({ "use": "sig", "alg": "RS256", "x5t": "k1", "x5t#S256": "k1", "x5c": ["MIIC"] }),
        other_keys: json!([{ "kid": "enc", "kty": "RSA", "alg": "RSA-OAEP", "use": "enc", "n": "AQAB", "e": "AQAB", "x5c": ["MIIC"] }]),
        head: json!({ "typ": "JWT" }),
        claims: json!({
            "jti": "onrtac:1", "sub": "f4b1", "typ": "Bearer", "azp": "client", "sid": "s", "acr": "1", "allowed-origins": ["/*"],
            "aud": ["agents", "account"], "scope": "email callboard", "email_verified": false, "preferred_username": "alice",
            "realm_access": { "roles": ["offline_access", "clinician"] },
            "resource_access": { "account": { "roles": ["manage-account"] } },
        }),
    })
    .await;
    let names = ClaimNames {
        principal: "preferred_username".to_owned(),
        roles: Some("realm_access.roles".to_owned()),
        ..ClaimNames::default()
    };
    let settings = tenant.settings("agents", &["callboard"], names);
    let scopes = "email callboard role:offline_access role:clinician";
    assert_eq!(
        principal(&settings, &tenant.token(&json!({}))).await,
        ok("corp.alice", scopes)
    );
    for (what, change) in [
        ("the default audience", json!({ "aud": "account" })),
        ("no audience", json!({ "aud": null })),
        ("an ID token", json!({ "typ": "ID", "at_hash": "x" })),
        (
            "bound to a certificate",
            json!({ "cnf": { "x5t#S256": "x" } }),
        ),
    ] {
        assert_eq!(
            principal(&settings, &tenant.token(&change)).await,
            WRONG,
            "{what}"
        );
    }
}
