//! Access tokens of oidc-provider: clients register there, get tokens for a listener, and call it.

use reqwest::{Client, Identity, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::certificates::{Authority, LOCAL};
use crate::gateway::{ECHO, Gateway, Topology};
use crate::kit::{Peers, Served, initialize, peers, script, soon, trusting, with};

const AUDIENCE: &str = "https://agents.example";
const AUDIENCE_OPAQUE: &str = "https://agents.example/opaque";
/// Resources whose tokens have the same formats and are for no listener here.
const ELSEWHERE: &str = "https://other.example";
const ELSEWHERE_OPAQUE: &str = "https://other.example/opaque";

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

    /// Returns lines of a listener that is opened by tokens for an audience, with further lines of the issuer's table.
    fn issuer(&self, audience: &str, more: &str) -> String {
        format!(
            "[listener.auth]\n[[listener.auth.issuer]]\nname = \"oidc\"\nissuer = \"{}\"\naudiences = [\"{audience}\"]\nca = \"{}\"\n\
             networks = [\"127.0.0.0/8\"]\nscopes_required = [\"callboard\"]\nclaims = {{ principal = \"client_id\" }}\n{more}",
            self.url(""),
            self.ca()
        )
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
/// at oidc-provider, with tokens for two listeners, one of which verifies by keys and one introspects;
/// a token for another audience has the listener's format.
/// Rows: H-17, H-37.
#[tokio::test]
async fn tokens_of_oidc_provider() {
    let Some(peers) = peers() else { return };
    let provider = OidcProvider::start(&peers).await;
    let resource_server = provider.register(json!({})).await;
    let secret = provider.folder.path().join("secret");
    std::fs::write(&secret, &resource_server.1).unwrap();
    let url = provider.url("");
    let signed = provider.issuer(AUDIENCE, "");
    let signed = Gateway::start(&peers, Topology::with_access(&signed, ECHO)).await;
    let introspection = format!(
        "introspection = \"{url}/token/introspection\"\nclient_id = \"{}\"\nsecret_env = \"file:{}\"\nintrospection_age_max_s = 1\n",
        resource_server.0,
        secret.display()
    );
    let introspected = provider.issuer(AUDIENCE_OPAQUE, &introspection);
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
        (&signed, AUDIENCE, ELSEWHERE),
        (&introspected, AUDIENCE_OPAQUE, ELSEWHERE_OPAQUE),
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

/// Goal: a client of HMCP's kind reads a patient with a token for reading, and without that scope is told which one it
/// lacks. Method: the Python SDK 1 over streamable HTTP and HTTP+SSE, with tokens of oidc-provider, against a patient-data
/// agent. HMCP's own client is built on that major version of the SDK and is in no registry, so this stands in for it.
/// Rows: H-15, H-17, H-37.
#[tokio::test]
async fn hmcp_client_with_tokens() {
    const PATIENTS: &str = "[[agent]]\nkind = \"patient_data\"\nid = \"patients\"\npatients = [{ name = \"John Smith\", id = \"PT12345\" }]\n";
    let Some(peers) = peers() else { return };
    let provider = OidcProvider::start(&peers).await;
    let access = format!("compat = [\"sse\"]\n{}", provider.issuer(AUDIENCE, ""));
    let node = Gateway::start(&peers, Topology::with_access(&access, PATIENTS)).await;
    let scope = json!({ "scope": "callboard hmcp:read" });
    let client = provider.register(scope).await;
    let token = async |scope: &str| {
        let http = &provider.http;
        provider.token(http, &client, AUDIENCE, scope).await
    };
    let (reading, lacking) = (token("callboard hmcp:read").await, token("callboard").await);
    let mut python = peers.client(&peers.python("python-old"), &[&script("hmcp_client.py")]);
    let mut find = async |path: &str, token: &str| {
        let wanted = json!({
            "url": format!("http://{}{path}", node.authority()), "token": token,
            "call": "find_patient", "arguments": { "name": "John Smith" },
        });
        let line = python.ask("a call", &wanted).await;
        serde_json::from_str::<Value>(&line).unwrap_or_else(|e| panic!("{e} in {line}"))
    };
    for (path, refusal) in [
        ("/mcp/", "403 Bearer error=\"insufficient_scope\""),
        ("/sse/", "-2 {\"needed_scope\": \"hmcp:read\"}"),
    ] {
        let found = find(path, &reading).await;
        assert_eq!(found["said"]["patient_id"], "PT12345", "{path}: {found}");
        let refused = find(path, &lacking).await;
        let told = refused["refused"].as_str().unwrap_or_default();
        assert!(told.starts_with(refusal), "{path}: {refused}");
        assert!(told.contains("hmcp:read"), "{path}: {refused}");
    }
    node.end().await;
}
