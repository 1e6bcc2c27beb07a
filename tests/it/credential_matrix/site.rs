//! A node with a listener of each protocol, credentials for it, and what its callers own there.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use callboard::mcp::inbound::{ListenOptions, McpServerOptions};
use callboard::message::Elicitation;
use callboard::rpc::{
    AccessControl, ClaimNames, IssuerRegistry, JwsAlgorithm, KeySource, ReloadingKeyStore,
    TokenIssuer, TokenVerifier,
};
use callboard::{
    Agent, ConcurrentHandler, Context, Failure, Handlers, Message, SyncHandler, System,
};
use rcgen::KeyPair;
use reqwest::{Client, Method, RequestBuilder, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::introspection_server::{CLIENT, IntrospectionServer};
use crate::issuer::{SigningKey, TestIssuer, bad_tokens};
use crate::kit::gateway::{NODE, end, reloaded, script, started};
use crate::kit::{Home, Listening, Running, a2a, example, found, mcp, soon};

/// Issuer whose tokens are introspected.
const OPAQUE_ISSUER: &str = "https://opaque.example";
const AUDIENCE: &str = "https://agents.example";
/// Scope that the listeners require.
pub const LISTENER_SCOPE: &str = "callboard";
/// Callers with a valid token, and the scopes that they have beside [`LISTENER_SCOPE`].
const CALLERS: [(&str, &str); 5] = [
    ("alice", "hmcp:read"),
    ("bob", ""),
    ("dave", ""),
    ("erin", ""),
    ("chief", "mail.admin mail.watch"),
];

/// A tool whose calls may be tasks.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "work", reply = String, task = "optional")]
struct Work {}

/// A tool that asks its caller a question.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "ask", reply = String, fallible)]
struct Ask {}

struct Worker;

impl Agent for Worker {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Work>().concurrent::<Ask>(8);
    }
}

impl ConcurrentHandler<Ask> for Worker {
    fn handle(
        &mut self,
        _: Ask,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        async move {
            let form = Elicitation::form("Which one?", json!({ "type": "object" }));
            cx.elicit(form).await.map(|_| "done".to_owned())
        }
    }
}

impl SyncHandler<Work> for Worker {
    fn handle(&mut self, _: Work, _: &mut Context) -> String {
        "done".to_owned()
    }
}

/// How a credential is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedRefusal {
    /// 401 without an error.
    Missing,
    /// 401 with `invalid_token`.
    Invalid,
    /// 403 with `insufficient_scope`.
    Scope,
}

/// A credential that opens nothing.
pub struct BadCredential {
    pub name: &'static str,
    pub authorization: Option<String>,
    pub refusal: ExpectedRefusal,
}

/// Ids of objects by the name that stands for them in a request.
pub type Ids = BTreeMap<&'static str, String>;

/// A node, its callers and their objects.
pub struct TestNode {
    pub home: Home,
    running: Running,
    _issuers: [TestIssuer; 2],
    _endpoint: IntrospectionServer,
    /// An MCP server whose agent has tasks of its own and asks, which no agent of the topology does.
    _task_server: (System, Listening),
    /// Streams of the callers, which end with this.
    streams: Vec<Response>,
    http: Client,
    /// URLs of the listeners, without a path: `mcp`, `tasks`, `a2a`, `mail`, `bare` and `grpc`.
    pub bases: BTreeMap<&'static str, String>,
    pub bad: Vec<BadCredential>,
    tokens: BTreeMap<&'static str, String>,
    /// Objects of alice, and those that bob has too.
    pub ids: [Ids; 2],
}

impl TestNode {
    /// Starts the node. A key and a token that it accepts at first are revoked, and listed as bad.
    pub async fn start() -> Self {
        let (key, retired) = (
            SigningKey::new("k1", "RS256"),
            SigningKey::new("k2", "ES256"),
        );
        let stranger = SigningKey::new("k1", "EdDSA");
        let issuer = TestIssuer::with_keys(&[&key, &retired]).await;
        let endpoint = IntrospectionServer::start().await;
        let other = TestIssuer::with_keys(&[&stranger]).await;
        let home = Home::new();
        let pem = KeyPair::generate().unwrap().serialize_pem();
        home.write("card.pem", &pem);
        fs::copy(example("cardiology.json"), home.path("cardiology.json")).unwrap();
        let keys = home.path("keys.toml").display().to_string();
        let add = ["keys", "--keys", &keys, "add", "robot"];
        let made = home.run(&add).await.with(0, "");
        let robot = made.out.trim().to_owned();

        let claims = |who: &str, scope: &str| {
            let mut claims = issuer.claims(AUDIENCE);
            (claims["sub"], claims["scope"]) = (who.into(), scope.into());
            claims
        };
        let good = |(who, scope)| {
            let scope = format!("{LISTENER_SCOPE} {scope}");
            (who, key.token(&claims(who, scope.trim_end())))
        };
        let tokens: BTreeMap<_, _> = CALLERS.into_iter().map(good).collect();
        let withdrawn = retired.token(&claims("alice", LISTENER_SCOPE));

        let opaque = "opaque-0123456789".to_owned();
        let mut opaque_claims = claims("alice", LISTENER_SCOPE);
        opaque_claims["iss"] = OPAQUE_ISSUER.into();
        endpoint.activate(&opaque, &opaque_claims);

        let before = topology(&home, &issuer, "/jwks", &endpoint);
        let (mut running, listening) = started(&home, &before).await;
        let mut bases = bases_of(&listening);
        for (who, token) in [
            ("robot", &robot),
            ("corp.alice", &withdrawn),
            ("opaque.alice", &opaque),
        ] {
            until_answered(&bases, who, token, true).await;
        }
        // Neither needs another topology.
        endpoint.revoke(&opaque);
        issuer.set("/later", 200, &json!({ "keys": [key.jwk()] }).to_string());
        let revoke = ["keys", "--keys", &keys, "revoke", "robot"];
        assert_eq!(home.run(&revoke).await.code, Some(0));
        for (who, token) in [("robot", &robot), ("opaque.alice", &opaque)] {
            until_answered(&bases, who, token, false).await;
        }
        // The node fetches known keys each ten minutes; a reload shows the same at once.
        let after = topology(&home, &issuer, "/later", &endpoint);
        reloaded(&home, &mut running, &after).await;

        let mut invalid: BTreeMap<_, _> = bad_tokens(&issuer, AUDIENCE, &key, &stranger)
            .into_iter()
            .collect();
        invalid.retain(|name, _| INVALID.contains(name));
        assert_eq!(invalid.len(), INVALID.len());
        invalid.insert("wrong issuer", stranger.token(&other.claims(AUDIENCE)));
        invalid.insert("revoked key", robot);
        invalid.insert("revoked opaque token", opaque);
        invalid.insert("withdrawn signing key", withdrawn);
        let bad = |name, token: Option<String>, refusal| BadCredential {
            name,
            authorization: token.map(|token| format!("Bearer {token}")),
            refusal,
        };
        let lacking = key.token(&claims("alice", "other"));
        let mut all = vec![
            bad("no credential", None, ExpectedRefusal::Missing),
            bad("wrong scope", Some(lacking), ExpectedRefusal::Scope),
        ];
        let invalid = invalid.into_iter();
        all.extend(invalid.map(|(name, token)| bad(name, Some(token), ExpectedRefusal::Invalid)));

        let (system, tasks) = task_server(&home, &issuer);
        bases.insert("tasks", tasks.url.strip_suffix("/mcp").unwrap().to_owned());
        let mut site = Self {
            home,
            running,
            _issuers: [issuer, other],
            _endpoint: endpoint,
            _task_server: (system, tasks),
            streams: Vec::new(),
            http: Client::new(),
            bases,
            bad: all,
            tokens,
            ids: Default::default(),
        };
        site.open_objects().await;
        site
    }

    pub async fn end(self) {
        drop(self.streams);
        end(self.running, &self.home).await;
    }

    /// Value of `Authorization` of a caller.
    pub fn authorization(&self, who: &str) -> String {
        format!("Bearer {}", self.tokens[who])
    }

    /// The caller with a scope of its own: alice if she has it.
    pub fn caller_with(&self, scope: &str) -> &'static str {
        let has = |(_, scopes): &&(&str, &str)| scopes.split(' ').any(|own| own == scope);
        CALLERS.iter().find(has).unwrap().0
    }

    pub fn request(&self, method: &str, url: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.http.request(method, url)
    }

    /// Sends a request of a caller. Its answer must be a success.
    async fn ask(&self, who: &str, request: RequestBuilder) -> Response {
        let request = forwarded(request)
            .header("authorization", self.authorization(who))
            .header("x-agent-id", format!("corp.{who}"));
        let response = soon("an answer", request.send()).await.unwrap();
        let (url, status) = (response.url(), response.status());
        assert!(status.is_success(), "{who} {url}: {status}");
        response
    }

    /// Gives alice an object of each kind, and bob sessions.
    async fn open_objects(&mut self) {
        for (at, who) in ["alice", "bob"].into_iter().enumerate() {
            for (name, base, path) in [
                ("session", "mcp", "/mcp"),
                ("ended", "mcp", "/mcp"),
                ("named_session", "mcp", "/agents/one/mcp"),
                ("named_ended", "mcp", "/agents/one/mcp"),
                ("patients_session", "mcp", "/agents/patients/mcp"),
                ("tasks_session", "tasks", "/mcp"),
            ] {
                let url = format!("{}{path}", self.bases[base]);
                let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params() });
                let opened = self.ask(who, self.post(&url).json(&hello)).await;
                let id = opened.headers()["mcp-session-id"].to_str().unwrap();
                self.ids[at].insert(name, id.to_owned());
            }
            for (name, path) in [("sse", "/sse"), ("named_sse", "/agents/one/sse")] {
                let open = self.http.get(format!("{}{path}", self.bases["mcp"]));
                let open = open.header("accept", "text/event-stream");
                let mut stream = self.ask(who, open).await;
                let first = soon("an event", stream.chunk()).await.unwrap().unwrap();
                let first = String::from_utf8(first.to_vec()).unwrap();
                let (_, id) = first.split_once("session=").unwrap();
                let id = id.split_whitespace().next().unwrap();
                self.ids[at].insert(name, id.to_owned());
                self.streams.push(stream);
            }
        }
        for (who, _) in CALLERS {
            let agents = self.http.get(format!("{}/api/agents", self.bases["mail"]));
            self.ask(who, agents).await;
        }
        let letter = json!({ "recipient_agent_id": "corp.alice", "message": "hello" });
        let send = self.post(&format!("{}/api/send_message", self.bases["mail"]));
        let sent = self.ask("dave", send.json(&letter)).await;
        let id = sent.headers()["x-message-id"].to_str().unwrap().to_owned();
        self.ids[0].insert("mail", id);

        let url = format!("{}/a2a", self.bases["a2a"]);
        let send = a2a::request(&url, "SendMessage", a2a::for_skill("who", false));
        let begun = json_of(self.ask("alice", send).await).await;
        self.ids[0].insert("task", text(&begun["result"]["task"]["id"]));

        let url = format!("{}/mcp", self.bases["tasks"]);
        let params = json!({ "name": "work", "arguments": {}, "task": {} });
        let call = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params });
        let call = self.post(&url).json(&call);
        let call = call.header("mcp-session-id", &self.ids[0]["tasks_session"]);
        let begun = json_of(self.ask("alice", call).await).await;
        self.ids[0].insert("legacy_task", text(&begun["result"]["task"]["taskId"]));

        for (name, tool, member) in [
            ("modern_task", "work", "taskId"),
            ("suspended_call", "ask", "requestState"),
        ] {
            let params = json!({ "name": tool, "arguments": {} });
            let call = mcp::request(&url, &capabilities(), "tools/call", params);
            let begun = json_of(self.ask("alice", call).await).await;
            self.ids[0].insert(name, text(&begun["result"][member]));
        }
        // Of what bob has none, his requests name alice's.
        let [alice, bob] = &mut self.ids;
        for (name, id) in alice.iter() {
            bob.entry(name).or_insert_with(|| id.clone());
        }
    }

    fn post(&self, url: &str) -> RequestBuilder {
        let post = self.http.post(url);
        post.header("accept", "application/json, text/event-stream")
    }
}

/// Names of those of the bad tokens that the matrix has.
const INVALID: [&str; 6] = [
    "another issuer",
    "another audience",
    "expired",
    "alg none",
    "HS256 with the public key",
    "HS256 with the public key as JSON",
];

/// Capabilities of a client that has tasks and answers questions.
pub fn capabilities() -> Value {
    json!({
        "elicitation": { "form": {} },
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    })
}

/// Params of `initialize`.
pub fn initialize_params() -> Value {
    json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    })
}

fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_else(|| panic!("no text: {value}"));
    text.to_owned()
}

async fn json_of(response: Response) -> Value {
    let body = soon("a body", response.text()).await.unwrap();
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// The topology of the node. The keys of its issuer are at a path; another issuer's tokens are
/// introspected.
fn topology(
    home: &Home,
    issuer: &TestIssuer,
    keys: &str,
    endpoint: &IntrospectionServer,
) -> String {
    let url = &issuer.url;
    let (client, secret) = CLIENT;
    let secret = home.write("secret", secret);
    let auth = format!(
        "keys = \"keys.toml\"\ntrusted_proxies = [\"127.0.0.1\"]\n[listener.auth]\n[[listener.auth.issuer]]\nname = \"corp\"\n\
         issuer = \"{url}\"\njwks = \"{url}{keys}\"\naudiences = [\"{AUDIENCE}\"]\nscopes_required = [\"{LISTENER_SCOPE}\"]\n\
         [[listener.auth.issuer]]\nname = \"opaque\"\nissuer = \"{OPAQUE_ISSUER}\"\naudiences = [\"{AUDIENCE}\"]\n\
         introspection = \"{}\"\nclient_id = \"{client}\"\nsecret_env = \"file:{secret}\"\nintrospection_age_max_s = 1\n\
         scopes_required = [\"{LISTENER_SCOPE}\"]\n",
        endpoint.url
    );
    let listener = |lines: &str| format!("[[listener]]\nbind = \"127.0.0.1:0\"\n{lines}");
    let clinic = fs::read_to_string(example("cardiology.toml")).unwrap();
    let (_, clinic) = clinic.split_once("[[agent]]\n").unwrap();
    let grpc = match cfg!(feature = "grpc") {
        true => "grpc_bind = \"127.0.0.1:0\"\n",
        false => "",
    };
    [
        NODE,
        &script(home, "one", "one"),
        "[[agent]]\nkind = \"mailroom\"\nid = \"room\"\n",
        "[[agent]]\nkind = \"patient_data\"\nid = \"patients\"\npatients = [{ name = \"Jane Doe\", id = \"PT67890\" }]\n",
        "[[agent]]\n",
        clinic,
        &listener("protocol = \"mcp\"\ndialect = \"mcp\"\nagents = [\"one\", \"patients\"]\ncompat = [\"sse\", \"websocket\"]\n"),
        &auth,
        &listener("protocol = \"a2a\"\nagent = \"one\"\npush_allow = [\"127.0.0.0/8\"]\nsigning_key = \"card.pem\"\n"),
        grpc,
        &auth,
        &listener("protocol = \"mail\"\nagent = \"room\"\n"),
        &auth,
        &listener("protocol = \"mcp\"\ncompat = [\"bare\"]\nagent = \"clinic_a\"\nanonymous = \"operator\"\n"),
    ]
    .concat()
}

fn bases_of(listening: &[(String, String)]) -> BTreeMap<&'static str, String> {
    let of = |is_it: &dyn Fn(&str, &str) -> bool| {
        let found = listening.iter().find(|(agent, url)| is_it(agent, url));
        let (_, url) = found.unwrap_or_else(|| panic!("{listening:?}"));
        let origin = reqwest::Url::parse(url).unwrap();
        origin.as_str().trim_end_matches('/').to_owned()
    };
    let without = |url: String, path: &str| url.strip_suffix(path).unwrap().to_owned();
    let mut bases = BTreeMap::from([
        ("mcp", without(of(&|_, url| url.ends_with("/mcp")), "/mcp")),
        ("a2a", without(of(&|_, url| url.ends_with("/a2a")), "/a2a")),
        ("mail", of(&|agent, _| agent == "room")),
        ("bare", without(of(&|agent, _| agent == "clinic_a"), "/mcp")),
    ]);
    if cfg!(feature = "grpc") {
        let url = of(&|_, url| url.starts_with("grpc://"));
        bases.insert("grpc", url.replacen("grpc://", "http://", 1));
    }
    bases
}

/// A request from an address of its own, so that no failure before it delays its answer.
pub fn forwarded(request: RequestBuilder) -> RequestBuilder {
    static NEXT: AtomicU32 = AtomicU32::new(0x0A00_0001);
    let address = Ipv4Addr::from(NEXT.fetch_add(1, Relaxed));
    request.header("x-forwarded-for", address.to_string())
}

/// Waits until each listener accepts a credential, or refuses it.
async fn until_answered(
    bases: &BTreeMap<&'static str, String>,
    who: &str,
    token: &str,
    is_accepted: bool,
) {
    let http = Client::new();
    for (base, path, accepted) in [
        // There is no session.
        ("mcp", "/mcp", 400),
        ("a2a", "/a2a/tasks", 200),
        ("mail", "/api/agents", 200),
    ] {
        let wanted = if is_accepted { accepted } else { 401 };
        let look = async || {
            let request = forwarded(http.get(format!("{}{path}", bases[base])));
            let request = request.bearer_auth(token).header("x-agent-id", who);
            let response = soon("an answer", request.send()).await.unwrap();
            (response.status() == wanted).then_some(())
        };
        found("the wanted answer to a credential", look).await;
    }
}

/// Serves an agent with tasks over MCP, with the node's credentials.
fn task_server(home: &Home, issuer: &TestIssuer) -> (System, Listening) {
    let settings = TokenIssuer {
        name: "corp".to_owned(),
        issuer: issuer.url.clone(),
        audiences: vec![AUDIENCE.to_owned()],
        keys: Some(KeySource::Url(
            format!("{}/later", issuer.url).parse().unwrap(),
        )),
        introspection: None,
        networks: Vec::new(),
        ca: None,
        algorithms: JwsAlgorithm::DEFAULT.to_vec(),
        scopes_required: vec![LISTENER_SCOPE.to_owned()],
        claims: ClaimNames::default(),
    };
    let tokens = TokenVerifier::new(vec![settings], None, &IssuerRegistry::default());
    let resource = tokens.resource().clone();
    let keys = ReloadingKeyStore::open(home.path("keys.toml")).unwrap();
    let options = McpServerOptions {
        access: AccessControl::with_verifiers(vec![Box::new(keys), Box::new(Arc::new(tokens))]),
        ..McpServerOptions::default()
    };
    let listen = ListenOptions {
        token_resource: Some(resource.into()),
        trusted_proxies: ["127.0.0.1".parse().unwrap()].into_iter().collect(),
        ..ListenOptions::default()
    };
    let system = System::start(1).unwrap();
    let listening = mcp::serve_with(system.spawn(Worker), options, &listen);
    (system, listening)
}
