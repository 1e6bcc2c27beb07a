//! Access tokens at the listeners of a node: one credential opens MCP, A2A and mail.

use std::fs;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use callboard::rpc::{INTROSPECTING_ISSUERS_MAX, TOKEN_CLOCK_LEEWAY_S, format_expiry};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use walkdir::WalkDir;

use crate::certificates::{Authority, LOCAL};
use crate::issuer::{SigningKey, TestIssuer, bad_tokens, now_s};
use crate::kit::gateway::{A2A, MCP, NODE, end, script, serve, started};
use crate::kit::{Home, Running, a2a, mcp, soon};

pub const AUDIENCE: &str = "https://agents.example";
pub const ENDED: &str = "the credential was revoked or has expired";
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// A node with a listener of each protocol, which all take tokens of one issuer.
pub struct Place {
    pub home: Home,
    pub running: Running,
    file: String,
    pub mcp: String,
    a2a: String,
    pub mail: String,
}

impl Place {
    async fn start(issuer: &TestIssuer) -> Self {
        Self::start_with(Home::new(), issuer, "").await
    }

    /// Starts a node whose issuer has more keys than these.
    pub async fn start_with(home: Home, issuer: &TestIssuer, more: &str) -> Self {
        let auth = format!(
            "[listener.auth]\n[[listener.auth.issuer]]\nname = \"corp\"\nissuer = \"{}\"\naudiences = [\"{AUDIENCE}\"]\n{more}\
             scopes_required = [\"callboard\"]\n[listener.auth.issuer.claims]\nroles = \"roles\"\n",
            issuer.url
        );
        let listener = |protocol: &str, agent: &str| {
            format!(
                "[[listener]]\nprotocol = {protocol}\nbind = \"127.0.0.1:0\"\nagent = \"{agent}\"\n"
            )
        };
        let text = format!(
            "{NODE}{}[[agent]]\nkind = \"mailroom\"\nid = \"room\"\n{}keys = \"keys.toml\"\n{auth}{}{auth}{}{auth}",
            script(&home, "one", "one"),
            listener("\"mcp\"\ndialect = \"mcp\"", "one"),
            listener("\"a2a\"", "one"),
            listener("\"mail\"", "room"),
        );
        let file = home.write("n.toml", &text);
        let keys = ["keys", "--topology", &file, "add", "robot"];
        assert_eq!(home.run(&keys).await.code, Some(0));
        let (running, listening) = serve(&home, &[&file]).await;
        let url = |ending: &str| {
            let mut urls = listening.iter().map(|(_, url)| url.clone());
            urls.find(|url| url.ends_with(ending)).unwrap()
        };
        let mail = listening.last().unwrap().1.clone();
        Self {
            mcp: url("/mcp"),
            a2a: url("/a2a"),
            mail,
            home,
            running,
            file,
        }
    }

    fn mcp(&self) -> RequestBuilder {
        let call = json!({ "name": "who", "arguments": {} });
        mcp::request(&self.mcp, &json!({}), "tools/call", call)
    }

    fn a2a(&self) -> RequestBuilder {
        a2a::request(&self.a2a, "SendMessage", a2a::for_skill("who", false))
    }

    fn mail(&self) -> RequestBuilder {
        reqwest::Client::new()
            .get(format!("{}/api/agents", self.mail))
            .header("X-Agent-ID", "corp.alice")
    }

    /// A request of each protocol.
    pub fn requests(&self) -> [(&'static str, RequestBuilder); 3] {
        [
            ("/mcp", self.mcp()),
            ("/a2a", self.a2a()),
            ("/api/agents", self.mail()),
        ]
    }
}

/// Sends a request from an address of its own, so that no failure before it delays its answer.
pub async fn send(request: RequestBuilder) -> Response {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let from = IpAddr::from([127, 0, 1 + number / 200, 1 + number % 200]);
    let client = reqwest::Client::builder().local_address(from).build();
    let sent = client.unwrap().execute(request.build().unwrap());
    soon("an answer", sent).await.unwrap()
}

pub async fn text(response: Response) -> String {
    soon("a body", response.text()).await.unwrap()
}

fn challenge(response: &Response) -> String {
    let header = response.headers().get("www-authenticate");
    header.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

/// Goal: one token opens the listeners of all protocols, and the metadata lead to its issuer; without it, with a bad one, and with one
/// that lacks a scope each refuses, and says what is needed; no token is logged or stored, and the failures are in the audit. Method:
/// a request of each protocol with each; every file of the node and what it logs.
/// Rows: H-17, H-37.
#[tokio::test]
async fn one_token_opens_all_protocols() {
    let (key, other) = (
        SigningKey::new("k1", "EdDSA"),
        SigningKey::new("k2", "ES256"),
    );
    let issuer = TestIssuer::with_keys(&[&key]).await;
    let place = Place::start(&issuer).await;
    let mut claims = issuer.claims(AUDIENCE);
    claims["roles"] = json!(["nurse"]);
    let good = key.token(&claims);
    for (path, request) in place.requests() {
        let base = request.try_clone().unwrap().build().unwrap().url().clone();
        let origin = base.origin().ascii_serialization();
        let metadata = format!("{origin}{WELL_KNOWN}{path}");
        let told = format!("resource_metadata=\"{metadata}\", scope=\"callboard\"");
        let refused = send(request.try_clone().unwrap()).await;
        assert_eq!(refused.status(), 401, "{path}");
        assert_eq!(challenge(&refused), format!("Bearer {told}"));

        let document = reqwest::Client::new().get(&metadata).send();
        let document: Value = serde_json::from_str(&text(document.await.unwrap()).await).unwrap();
        assert_eq!(
            document,
            json!({
                "resource": format!("{origin}{path}"), "authorization_servers": [issuer.url],
                "bearer_methods_supported": ["header"], "scopes_supported": ["callboard"],
            })
        );

        let mut lacking = issuer.claims(AUDIENCE);
        lacking["scope"] = "other".into();
        let lacking = request
            .try_clone()
            .unwrap()
            .bearer_auth(key.token(&lacking));
        let refused = send(lacking).await;
        assert_eq!(refused.status(), 403, "{path}");
        assert_eq!(
            challenge(&refused),
            format!("Bearer error=\"insufficient_scope\", {told}")
        );

        let served = send(request.bearer_auth(&good)).await;
        let status = served.status();
        let body = text(served).await;
        assert_eq!(status, 200, "{path}: {body}");
        assert!(!body.contains("\"error\""), "{path}: {body}");
    }
    let mut tokens = vec![good];
    for (what, token) in bad_tokens(&issuer, AUDIENCE, &key, &other) {
        let status = if what == "too long" { 400 } else { 401 };
        for request in [place.mcp(), place.a2a()] {
            let refused = send(request.bearer_auth(&token)).await;
            assert_eq!(refused.status(), status, "{what}");
            if status == 401 {
                let told = "Bearer error=\"invalid_token\", resource_metadata=\"";
                assert!(challenge(&refused).starts_with(told), "{what}");
            }
        }
        tokens.push(token);
    }
    let show = [
        "audit",
        "show",
        "--event",
        "auth.failed",
        "--topology",
        &place.file,
    ];
    let audited = async {
        loop {
            let shown = place.home.run(&show).await.out;
            if shown.contains("127.0.1.") {
                return shown;
            }
        }
    };
    let audited = soon("the failures in the audit", audited).await;
    let stopped = place.running;
    end(stopped, &place.home).await;
    let files = WalkDir::new(place.home.path("")).into_iter();
    let files = files.map(|entry| entry.unwrap().into_path());
    let mut kept = audited.into_bytes();
    for path in files.filter(|path| path.is_file()) {
        kept.extend(fs::read(path).unwrap());
    }
    let kept = String::from_utf8_lossy(&kept);
    for token in tokens {
        let ending = token.get(token.len().saturating_sub(40)..).unwrap();
        let is_one = token.len() > 100;
        assert!(!is_one || !kept.contains(ending), "a token was kept");
    }
}

/// Goal: the metadata of a listener with TLS name it by `https`, those behind a proxy by what the file says, and nothing that a client or
/// the proxy sends changes either; a token opens each. Method: listeners with TLS, with a trusted proxy and `resource`, and with
/// `public_url`.
/// Rows: H-37.
#[tokio::test]
async fn metadata_with_tls_and_behind_proxies() {
    let key = SigningKey::new("k1", "EdDSA");
    let issuer = TestIssuer::with_keys(&[&key]).await;
    let home = Home::new();
    let authority = Authority::new("test authority");
    let ca = fs::read(authority.write(&home.path(""), "ca")).unwrap();
    authority.issue(&LOCAL, &home.path(""), "server");
    let tls = "tls = { certificate = \"server.pem\", key = \"server-key.pem\" }\n";
    let proxied = "trusted_proxies = [\"127.0.0.1\"]\n";
    let public = "public_url = \"https://public.example/base\"\n";
    let auth = |resource: &str| {
        format!(
            "[listener.auth]\n{resource}[[listener.auth.issuer]]\nname = \"corp\"\nissuer = \"{}\"\naudiences = [\"{AUDIENCE}\"]\n",
            issuer.url
        )
    };
    let (plain, named) = (auth(""), auth("resource = \"https://agents.example\"\n"));
    let topology = format!(
        "{NODE}{}{MCP}agent = \"one\"\n{tls}{plain}{MCP}agent = \"one\"\n{proxied}{named}{A2A}agent = \"one\"\n{public}{plain}",
        script(&home, "one", "one")
    );
    let (running, listening) = started(&home, &topology).await;
    let client = reqwest::Client::builder()
        .add_root_certificate(reqwest::Certificate::from_pem(&ca).unwrap())
        .build()
        .unwrap();
    let mut urls: Vec<_> = listening.iter().map(|(_, url)| url.clone()).collect();
    urls.retain(|url| !url.contains("/agents/"));
    let [with_tls, with_proxy, with_public] = &urls[..] else {
        panic!("{listening:?}");
    };
    assert!(with_tls.starts_with("https://127.0.0.1:"), "{with_tls}");
    let token = key.token(&issuer.claims(AUDIENCE));
    for (url, resource) in [
        (with_tls, with_tls.clone()),
        (with_proxy, "https://agents.example/mcp".to_owned()),
        (with_public, "https://public.example/a2a".to_owned()),
    ] {
        let url: reqwest::Url = url.parse().unwrap();
        let resource: reqwest::Url = resource.parse().unwrap();
        let metadata = |of: &reqwest::Url| of.join(&format!("{WELL_KNOWN}{}", of.path())).unwrap();
        let forwarded = |request: RequestBuilder| {
            request
                .header("X-Forwarded-For", "192.0.2.7")
                .header("X-Forwarded-Proto", "gopher")
                .header("X-Forwarded-Host", "evil.example")
        };
        let refused = forwarded(client.post(url.clone()).json(&json!({})));
        let refused = soon("a refusal", refused.send()).await.unwrap();
        assert_eq!(refused.status(), 401, "{url}");
        let told = format!("Bearer resource_metadata=\"{}\"", metadata(&resource));
        assert_eq!(challenge(&refused), told);

        let document = forwarded(client.get(metadata(&url)));
        let document = soon("metadata", document.send()).await.unwrap();
        let document: Value = serde_json::from_str(&text(document).await).unwrap();
        assert_eq!(document["resource"], resource.as_str());

        let opened = forwarded(client.post(url.clone()).json(&json!({}))).bearer_auth(&token);
        let opened = soon("an answer", opened.send()).await.unwrap();
        assert!(!matches!(opened.status().as_u16(), 401 | 403), "{url}");
    }
    end(running, &home).await;
}

/// Goal: streams end when their credential expires, whatever it is. Method: a stream of server messages with a token and one with a
/// key, both of which have a few seconds left.
#[tokio::test]
async fn streams_end_with_their_credentials() {
    let key = SigningKey::new("k1", "ES256");
    let issuer = TestIssuer::with_keys(&[&key]).await;
    let place = Place::start(&issuer).await;
    for with_token in [true, false] {
        let ends = now_s() + 6;
        let credential = if with_token {
            let mut claims = issuer.claims(AUDIENCE);
            claims["exp"] = (ends - u64::from(TOKEN_CLOCK_LEEWAY_S)).into();
            key.token(&claims)
        } else {
            let until = format_expiry(ends);
            let keys = ["keys", "--topology", &place.file];
            let add = ["add", "brief", "--expires", &until];
            let made = place.home.run(&[&keys[..], &add[..]].concat()).await;
            made.out.trim().to_owned()
        };
        let listen = json!({ "notifications": { "toolsListChanged": true } });
        let open = || {
            let request = mcp::request(
                &place.mcp,
                &json!({}),
                "subscriptions/listen",
                listen.clone(),
            );
            send(request.bearer_auth(&credential))
        };
        // A new key counts within a second.
        let opened = async {
            loop {
                let response = open().await;
                if response.status() == 200 {
                    return response;
                }
            }
        };
        let stream = soon("an open stream", opened).await;
        let rest = text(stream).await;
        assert!(rest.ends_with(&format!(": {ENDED}\n\n")), "{rest}");
    }
    end(place.running, &place.home).await;
}

/// Goal: a declaration that would accept foreign tokens, or none, doesn't start, and says why. Method: rows of `[listener.auth]`.
#[tokio::test]
async fn declarations_that_cannot_be() {
    let home = Home::new();
    let upstream = script(&home, "one", "one");
    const ISSUER: &str = "name = \"a\"\nissuer = \"https://login.example\"\naudiences = [\"x\"]\n";
    let one = |more: &str| format!("[[listener.auth.issuer]]\n{ISSUER}{more}");
    let edited =
        |from: &str, to: &str| format!("[[listener.auth.issuer]]\n{}", ISSUER.replace(from, to));
    const CLIENT: &str = "client_id = \"me\"\nsecret_env = \"PATH\"\n";
    let introspecting = |url: &str, more: &str| one(&format!("introspection = \"{url}\"\n{more}"));
    let many_introspecting = |count: usize| -> String {
        let numbered = (0..count).map(|number| {
            let text = introspecting("https://login.example/introspect", CLIENT);
            let text = text.replace("name = \"a\"", &format!("name = \"a{number}\""));
            text.replace("login.example\"\n", &format!("login{number}.example\"\n"))
        });
        numbered.collect()
    };
    for (lines, said) in [
        (String::new(), "add an [[listener.auth.issuer]]"),
        (
            format!("resource = \"https://a.example/mcp\"\n{}", one("")),
            "scheme, host and port only",
        ),
        (
            one("algorithms = [\"none\"]\n"),
            "no algorithm that tokens may be signed by",
        ),
        (
            one("algorithms = [\"HS256\"]\n"),
            "no algorithm that tokens may be signed by",
        ),
        (one("algorithms = []\n"), "leave it out"),
        (
            edited("[\"x\"]", "[]"),
            "tokens for others would count here",
        ),
        (
            edited("https://login.example", "http://login.example"),
            "must be an https URL",
        ),
        (
            edited("https://login.example", "login"),
            "must be an https URL",
        ),
        (
            edited("https://login.example", "https://login.example/?a=b"),
            "can't have a query",
        ),
        (edited("\"a\"", "\"a.b\""), "letters, digits, - and _"),
        (edited("\"a\"", "\"\""), "letters, digits, - and _"),
        (one("scopes_required = [\"a b\"]\n"), "a space"),
        (
            one("jwks = \"http://login.example/keys\"\n"),
            "`jwks` must be an https URL",
        ),
        (one("jwks = \"nothing.json\"\n"), "there is no key file"),
        (one("ca = \"nothing.pem\"\n"), "nothing.pem"),
        (
            introspecting("http://login.example", CLIENT),
            "`introspection` must be an https URL",
        ),
        (introspecting("introspect", CLIENT), "this is not a URL"),
        (
            introspecting("https://login.example", ""),
            "`introspection` needs `client_id` and `secret_env`",
        ),
        (
            introspecting("https://login.example", "client_id = \"me\"\n"),
            "`introspection` needs `client_id` and `secret_env`",
        ),
        (
            introspecting(
                "https://login.example",
                "client_id = \"me\"\nsecret_env = \"NO_SUCH_VARIABLE\"\n",
            ),
            "`secret_env`: there is no environment variable NO_SUCH_VARIABLE",
        ),
        (one(CLIENT), "are for `introspection`, which is missing"),
        (
            introspecting(
                "https://login.example",
                &format!("{CLIENT}introspection_age_max_s = 301\n"),
            ),
            "must be 1 to 300",
        ),
        (
            introspecting(
                "https://login.example",
                &format!("{CLIENT}introspection_age_max_s = 0\n"),
            ),
            "must be 1 to 300",
        ),
        (
            introspecting(
                "https://login.example",
                &format!("{CLIENT}algorithms = [\"ES256\"]\n"),
            ),
            "has only with `jwks`",
        ),
        (
            many_introspecting(INTROSPECTING_ISSUERS_MAX + 1),
            "at most 4 issuers can have `introspection`",
        ),
        (one("secret = \"x\"\n"), "secret"),
        (
            format!("{}{}", one(""), one("")),
            "different names and URLs",
        ),
    ] {
        let listener =
            "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:0\"\n";
        let text = format!("{NODE}{upstream}{listener}[listener.auth]\n{lines}");
        let file = home.write("n.toml", &text);
        let checked = home.run(&["check", &file]).await;
        assert!(
            checked.code == Some(2) && checked.out.contains(said),
            "{said}: {checked:?}"
        );
    }
    // Tokens are a credential: beyond this machine nothing else is needed.
    let listener = "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"0.0.0.0:0\"\n";
    let age = format!(
        "{CLIENT}introspection_age_max_s = 300\njwks = \"metadata\"\nalgorithms = [\"ES256\"]\n"
    );
    for lines in [
        one(""),
        introspecting("https://login.example/introspect", CLIENT),
        introspecting("http://localhost:1/introspect", &age),
        many_introspecting(INTROSPECTING_ISSUERS_MAX),
    ] {
        let text = format!("{NODE}{upstream}{listener}[listener.auth]\n{lines}");
        let file = home.write("n.toml", &text);
        let checked = home.run(&["check", &file]).await;
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }
    // And so are guests, if that is written out and nothing personal is behind.
    for (more, code) in [
        ("anonymous = \"guest\"\n", 0),
        ("", 2),
        ("anonymous = false\n", 2),
    ] {
        let file = home.write("n.toml", &format!("{NODE}{upstream}{listener}{more}"));
        assert_eq!(home.run(&["check", &file]).await.code, Some(code), "{more}");
    }
}

/// Goal: guests are served beyond this machine if the file says so. Method: a call without a credential.
#[tokio::test]
async fn written_out_guests_are_served() {
    let home = Home::new();
    let listener = "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"0.0.0.0:0\"\nanonymous = \"guest\"\n";
    let text = format!("{NODE}{}{listener}", script(&home, "one", "one"));
    let file = home.write("n.toml", &text);
    let (running, listening) = serve(&home, &[&file]).await;
    let url = listening[0].1.replace("0.0.0.0", "127.0.0.1");
    let call = json!({ "name": "who", "arguments": {} });
    let served = send(mcp::request(&url, &json!({}), "tools/call", call)).await;
    assert_eq!(served.status(), 200);
    end(running, &home).await;
}
