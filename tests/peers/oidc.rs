//! Access tokens of oidc-provider: clients register there, get tokens for a listener, and call it.

use reqwest::{Client, Identity, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::certificates::{Authority, LOCAL};
use crate::gateway::{ECHO, Gateway, Topology};
use crate::kit::{Peers, Served, initialize, peers, script, soon, trusting, with};

const AUDIENCE: &str = "https://agents.example";
const AUDIENCE_OPAQUE: &str = "https://agents.example/opaque";

/// The authorization server, and a client that trusts it.
struct OidcProvider {
    served: Served,
    http: Client,
    folder: tempfile::TempDir,
    authority: Authority,
}

impl OidcProvider {
    async fn start(peers: &Peers) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("test authority");
        let ca = authority.write(folder.path(), "ca");
        let issued = authority.issue(&LOCAL, folder.path(), "server");
        let served = Served::start(|port| {
            let command = with(peers.command(&peers.node()), [script("oidc.mjs")]);
            let command = with(command, [port.to_string()]);
            with(command, [issued.certificate, issued.key])
        })
        .await;
        let http = trusting(&std::fs::read(ca).unwrap()).build().unwrap();
        Self {
            served,
            http,
            folder,
            authority,
        }
    }

    fn url(&self, path: &str) -> String {
        self.served.url("https", path)
    }

    fn ca(&self) -> String {
        self.folder.path().join("ca.pem").display().to_string()
    }

    /// Registers a client for the grant by its own credentials (RFC 7591). Returns its id and secret.
    async fn register(&self, more: Value) -> (String, String) {
        let mut wanted = json!({
            "grant_types": ["client_credentials"], "response_types": [], "redirect_uris": [],
            "token_endpoint_auth_method": "client_secret_basic", "scope": "callboard other",
        });
        let more = more.as_object().unwrap().clone();
        wanted.as_object_mut().unwrap().extend(more);
        let request = self.http.post(self.url("/reg")).json(&wanted);
        let client = json_of(request).await;
        let text = |name: &str| client[name].as_str().unwrap_or_else(|| panic!("{client}"));
        (
            text("client_id").to_owned(),
            text("client_secret").to_owned(),
        )
    }

    /// Returns an access token of a client for a resource (RFC 8707).
    async fn token(
        &self,
        http: &Client,
        (id, secret): &(String, String),
        resource: &str,
        scope: &str,
    ) -> String {
        let form = [
            ("grant_type", "client_credentials"),
            ("resource", resource),
            ("scope", scope),
        ];
        let request = http.post(self.url("/token")).form(&form);
        let issued = json_of(request.basic_auth(id, Some(secret))).await;
        let token = issued["access_token"].as_str();
        token.unwrap_or_else(|| panic!("{issued}")).to_owned()
    }
}

async fn json_of(request: RequestBuilder) -> Value {
    let response = soon("an answer", request.send()).await.unwrap();
    response.json().await.unwrap()
}

/// Sends `initialize` with a token.
async fn opened(gateway: &Gateway, token: &str) -> Response {
    let request = Client::new().post(gateway.mcp("echo"));
    let request = request.json(&initialize());
    let request = request.header("accept", "application/json, text/event-stream");
    soon("an answer", request.bearer_auth(token).send())
        .await
        .unwrap()
}

fn challenge(response: &Response) -> &str {
    let value = response.headers().get("www-authenticate");
    value.map_or("", |value| value.to_str().unwrap())
}

/// Goal: tokens of a real authorization server open a listener, signed and opaque ones; not those of
/// another audience, without the scope, revoked, or bound to a certificate. Method: clients that register
/// at oidc-provider, with tokens for two listeners, one of which verifies by keys and one introspects.
/// Rows: H-17, H-37.
#[tokio::test]
async fn tokens_of_oidc_provider() {
    let Some(peers) = peers() else { return };
    let provider = OidcProvider::start(&peers).await;
    let resource_server = provider.register(json!({})).await;
    let secret = provider.folder.path().join("secret");
    std::fs::write(&secret, &resource_server.1).unwrap();
    let (url, ca) = (provider.url(""), provider.ca());
    let issuer = |audience: &str, more: &str| {
        format!(
            "[listener.auth]\n[[listener.auth.issuer]]\nname = \"oidc\"\nissuer = \"{url}\"\naudiences = [\"{audience}\"]\nca = \"{ca}\"\n\
             networks = [\"127.0.0.0/8\"]\nscopes_required = [\"callboard\"]\nclaims = {{ principal = \"client_id\" }}\n{more}"
        )
    };
    let signed = Gateway::start(&peers, Topology::with_access(&issuer(AUDIENCE, ""), ECHO)).await;
    let introspection = format!(
        "introspection = \"{url}/token/introspection\"\nclient_id = \"{}\"\nsecret_env = \"file:{}\"\nintrospection_age_max_s = 1\n",
        resource_server.0,
        secret.display()
    );
    let introspected = issuer(AUDIENCE_OPAQUE, &introspection);
    let introspected = Gateway::start(&peers, Topology::with_access(&introspected, ECHO)).await;

    // What a client without a token is told leads it to the server.
    let without = opened(&signed, "no-token").await;
    let (_, metadata) = challenge(&without)
        .split_once("resource_metadata=\"")
        .unwrap();
    let (metadata, _) = metadata.split_once('"').unwrap();
    let metadata = json_of(Client::new().get(metadata)).await;
    assert_eq!(metadata["authorization_servers"], json!([url]));

    let client = provider.register(json!({})).await;
    let http = &provider.http;
    for (gateway, own, other) in [
        (&signed, AUDIENCE, AUDIENCE_OPAQUE),
        (&introspected, AUDIENCE_OPAQUE, AUDIENCE),
    ] {
        let right = provider.token(http, &client, own, "callboard").await;
        assert_eq!(opened(gateway, &right).await.status(), 200, "{own}");
        let elsewhere = provider.token(http, &client, other, "callboard").await;
        assert_eq!(opened(gateway, &elsewhere).await.status(), 401, "{own}");
        let lacking = provider.token(http, &client, own, "other").await;
        let lacking = opened(gateway, &lacking).await;
        assert_eq!(lacking.status(), 403, "{own}");
        assert!(challenge(&lacking).contains("insufficient_scope"));
    }

    let revoked = provider
        .token(http, &client, AUDIENCE_OPAQUE, "callboard")
        .await;
    assert_eq!(opened(&introspected, &revoked).await.status(), 200);
    let revocation = http.post(provider.url("/token/revocation"));
    let revocation = revocation.form(&[("token", &revoked)]);
    let revocation = revocation.basic_auth(&client.0, Some(&client.1));
    let done = soon("the revocation", revocation.send()).await.unwrap();
    assert_eq!(done.status(), 200);
    let refused = async { while opened(&introspected, &revoked).await.status() != 401 {} };
    soon("the end of the revoked token", refused).await;

    let own = provider
        .authority
        .issue(&["robot"], provider.folder.path(), "robot");
    let pem = [own.certificate, own.key].map(|path| std::fs::read(path).unwrap());
    let identity = Identity::from_pem(&pem.concat()).unwrap();
    let certified = trusting(&std::fs::read(provider.ca()).unwrap());
    let certified = certified.identity(identity).build().unwrap();
    let bound = json!({ "tls_client_certificate_bound_access_tokens": true });
    let bound = provider.register(bound).await;
    for (gateway, audience) in [(&signed, AUDIENCE), (&introspected, AUDIENCE_OPAQUE)] {
        let token = provider
            .token(&certified, &bound, audience, "callboard")
            .await;
        assert_eq!(opened(gateway, &token).await.status(), 401, "{audience}");
    }
    signed.end().await;
    introspected.end().await;
}
