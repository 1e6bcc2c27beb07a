//! A node with a listener of each protocol, credentials for it, and what its callers own there.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use callboard::mcp::inbound::{ListenOptions, McpServerOptions};
use callboard::message::{DataClass, Elicitation};
use callboard::rpc::{
    AccessControl, BearerVerifier, CertificateClients, ClaimNames, IssuerRegistry, JwsAlgorithm,
    KeySource, ReloadingKeyStore, TokenIssuer, TokenVerifier,
};
use callboard::{
    AccessRule, AccessRules, Agent, ConcurrentHandler, Context, Failure, Handlers, Message,
    SyncHandler, System,
};
use rcgen::KeyPair;
use reqwest::{Client, Method, RequestBuilder, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client_certificates::{CallerCertificates, GUESSER, UNLISTED, listed, listener_lines};
use crate::introspection_server::{CLIENT, IntrospectionServer};
use crate::issuer::{SigningKey, TestIssuer, bad_tokens};
use crate::kit::gateway::{NODE, end, reloaded, script, started};
use crate::kit::{Home, Listening, Running, a2a, example, found, mcp, soon};

/// Issuer whose tokens are introspected.
const OPAQUE_ISSUER: &str = "https://opaque.example";
const AUDIENCE: &str = "https://agents.example";
/// Scope that the listeners require.
pub const LISTENER_SCOPE: &str = "callboard";
/// Callers with a valid credential, and their scopes. A token has [`LISTENER_SCOPE`] too.
pub const CALLERS: [(&str, &str); 5] = [
    ("alice", "hmcp:read"),
    ("bob", ""),
    ("dave", ""),
    ("erin", ""),
    ("chief", "mail.admin mail.watch"),
];

/// Line of a listener behind the proxy of [`forwarded`].
const PROXIES: &str = "trusted_proxies = [\"127.0.0.1\"]\n";
/// First cases of the upstream's script: descriptions of its tools, a resource and a prompt. No request has the texts of its answers.
const FIRST_CASES: &str = r#"
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"who","description":"description of who","inputSchema":{"type":"object"}},{"name":"wait","description":"description of wait","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{}},"serverInfo":{"name":"script","version":"1.0"}}' ;;
    *'"method":"resources/list"'*) say "$id" '{"resources":[{"uri":"x:y","name":"resource entry y"}]}' ;;
    *'"method":"resources/read"'*'"x:y"'*) say "$id" '{"contents":[{"uri":"x:y","text":"resource content y"}]}' ;;
    *'"method":"resources/subscribe"'*) say "$id" '{}' ;;
    *'"method":"prompts/list"'*) say "$id" '{"prompts":[{"name":"x","description":"prompt entry x"}]}' ;;
    *'"method":"prompts/get"'*) say "$id" '{"messages":[{"role":"user","content":{"type":"text","text":"prompt content x"}}]}' ;;
    *'"method":"completion/complete"'*) say "$id" '{"completion":{"values":["prompt value x"]}}' ;;"#;

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
            cx.elicit(form).await.map(|_| "answer of ask".to_owned())
        }
    }
}

impl SyncHandler<Work> for Worker {
    fn handle(&mut self, _: Work, _: &mut Context) -> String {
        "answer of work".to_owned()
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

/// ShownCredential of a request: a certificate at a node whose callers have some, and a token.
#[derive(Clone, Copy)]
pub struct ShownCredential<'a> {
    /// Owner of the certificate.
    pub certificate_of: &'a str,
    /// Value of `Authorization`.
    pub authorization: Option<&'a str>,
}

/// A credential that opens nothing.
pub struct BadCredential {
    pub name: &'static str,
    certificate_of: &'static str,
    authorization: Option<String>,
    pub refusal: ExpectedRefusal,
}

impl BadCredential {
    fn new(
        name: &'static str,
        certificate_of: &'static str,
        token: Option<&str>,
        refusal: ExpectedRefusal,
    ) -> Self {
        Self {
            name,
            certificate_of,
            authorization: token.map(|token| format!("Bearer {token}")),
            refusal,
        }
    }

    pub fn credential(&self) -> ShownCredential<'_> {
        ShownCredential {
            certificate_of: self.certificate_of,
            authorization: self.authorization.as_deref(),
        }
    }
}

/// Ids of objects by the name that stands for them in a request.
pub type Ids = BTreeMap<&'static str, String>;

/// A node, its callers and their objects.
pub struct TestNode {
    pub home: Home,
    running: Running,
    _issuers: Vec<TestIssuer>,
    _endpoint: IntrospectionServer,
    /// An MCP server whose agent has tasks of its own and asks, which no agent of the topology does.
    task_server: (System, Listening),
    /// Streams of the callers, which end with this.
    streams: Vec<Response>,
    http: Client,
    /// URLs of the listeners, without a path: `mcp`, `tasks`, `a2a`, `mail`, `bare` and `grpc`.
    pub bases: BTreeMap<&'static str, String>,
    pub bad: Vec<BadCredential>,
    /// Values of `Authorization` by caller; empty if the callers have certificates.
    tokens: BTreeMap<&'static str, String>,
    /// The callers' certificates; `None` if the callers have tokens.
    pub certificates: Option<CallerCertificates>,
    /// Objects of alice, and those that bob has too.
    pub ids: [Ids; 2],
}

impl TestNode {
    /// Starts a node whose callers have tokens. A key and a token that it accepts at first are revoked, and listed as bad.
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
        let robot = prepare(&home).await;

        let claims = |who: &str, scope: &str| token_claims(&issuer, who, scope);
        let tokens = caller_tokens(&issuer, &key, CALLERS);
        let withdrawn = retired.token(&claims("alice", LISTENER_SCOPE));

        let opaque = "opaque-0123456789".to_owned();
        let mut opaque_claims = claims("alice", LISTENER_SCOPE);
        opaque_claims["iss"] = OPAQUE_ISSUER.into();
        endpoint.activate(&opaque, &opaque_claims);

        let before = topology(&home, &issuer, "/jwks", &endpoint, PROXIES);
        let (mut running, listening) = started(&home, &before).await;
        let bases = bases_of(&listening);
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
        let revoke = ["keys", "--keys", "keys.toml", "revoke", "robot"];
        assert_eq!(home.run(&revoke).await.code, Some(0));
        for (who, token) in [("robot", &robot), ("opaque.alice", &opaque)] {
            until_answered(&bases, who, token, false).await;
        }
        // The node fetches known keys each ten minutes; a reload shows the same at once.
        let after = topology(&home, &issuer, "/later", &endpoint, PROXIES);
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
        let bad = |name, token: Option<&str>, refusal| BadCredential::new(name, "", token, refusal);
        let lacking = key.token(&claims("alice", "other"));
        let mut all = vec![
            bad("no credential", None, ExpectedRefusal::Missing),
            bad("wrong scope", Some(&lacking), ExpectedRefusal::Scope),
        ];
        for (name, token) in invalid {
            all.push(bad(name, Some(&token), ExpectedRefusal::Invalid));
        }
        let mut site = Self {
            bad: all,
            tokens,
            ..Self::serving(home, running, bases, vec![issuer, other], endpoint, None)
        };
        site.open_objects().await;
        site
    }

    /// Starts a node whose callers have certificates, with listeners that accept tokens too.
    pub async fn start_with_certificates() -> Self {
        let issuer = TestIssuer::with_keys(&[&SigningKey::new("k1", "RS256")]).await;
        let endpoint = IntrospectionServer::start().await;
        let home = Home::new();
        prepare(&home).await;
        let certificates = CallerCertificates::issue(&home);
        let topology = topology(&home, &issuer, "/jwks", &endpoint, &listener_lines());
        let (running, listening) = started(&home, &topology).await;
        let bases = bases_of(&listening);
        let (unlisted, invalid) = (ExpectedRefusal::Missing, ExpectedRefusal::Invalid);
        let mut site = Self {
            bad: vec![
                BadCredential::new("unlisted certificate", UNLISTED, None, unlisted),
                BadCredential::new("wrong token", GUESSER, Some("cbk_wrong"), invalid),
            ],
            ..Self::serving(
                home,
                running,
                bases,
                vec![issuer],
                endpoint,
                Some(certificates),
            )
        };
        site.open_objects().await;
        site
    }

    /// Starts a node with rules about who may use what, and callers with tokens: those of the matrix, and `others` with their scopes,
    /// who have no objects.
    pub async fn start_with_rules(
        rules: &str,
        others: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        let key = SigningKey::new("k1", "ES256");
        let issuer = TestIssuer::with_keys(&[&key]).await;
        let keys = json!({ "keys": [key.jwk()] }).to_string();
        issuer.set("/later", 200, &keys);
        let tokens = caller_tokens(&issuer, &key, CALLERS.into_iter().chain(others));
        let endpoint = IntrospectionServer::start().await;
        let home = Home::new();
        prepare(&home).await;
        let topology = topology(&home, &issuer, "/jwks", &endpoint, PROXIES);
        let (running, listening) = started(&home, &format!("{topology}{rules}")).await;
        let bases = bases_of(&listening);
        let token = tokens["alice"].strip_prefix("Bearer ").unwrap();
        until_answered(&bases, "corp.alice", token, true).await;
        let mut site = Self {
            tokens,
            ..Self::serving(home, running, bases, vec![issuer], endpoint, None)
        };
        let (system, _) = &site.task_server;
        let rules = Arc::new(access_rules(rules));
        system.policy().set_access_rules(Some(rules));
        site.open_objects().await;
        site
    }

    /// A node that serves, without credentials and objects of its callers.
    fn serving(
        home: Home,
        running: Running,
        mut bases: BTreeMap<&'static str, String>,
        issuers: Vec<TestIssuer>,
        endpoint: IntrospectionServer,
        certificates: Option<CallerCertificates>,
    ) -> Self {
        let (system, tasks) = task_server(&home, &issuers[0], certificates.as_ref());
        let url = tasks.url.strip_suffix("/mcp").unwrap();
        let url = match certificates {
            Some(_) => url.replacen("http:", "https:", 1),
            None => url.to_owned(),
        };
        bases.insert("tasks", url);
        Self {
            home,
            running,
            _issuers: issuers,
            _endpoint: endpoint,
            task_server: (system, tasks),
            streams: Vec::new(),
            http: Client::new(),
            bases,
            bad: Vec::new(),
            tokens: BTreeMap::new(),
            certificates,
            ids: Default::default(),
        }
    }

    pub async fn end(self) {
        drop(self.streams);
        end(self.running, &self.home).await;
    }

    /// ShownCredential of a caller.
    pub fn credential<'a>(&'a self, who: &'a str) -> ShownCredential<'a> {
        ShownCredential {
            certificate_of: who,
            authorization: self.tokens.get(who).map(String::as_str),
        }
    }

    /// The caller with a scope of its own: alice if she has it.
    pub fn caller_with(&self, scope: &str) -> &'static str {
        let has = |(_, scopes): &&(&str, &str)| scopes.split(' ').any(|own| own == scope);
        CALLERS.iter().find(has).unwrap().0
    }

    /// A request over a connection with this owner's certificate, if there are certificates.
    pub fn request(&self, certificate_of: &str, method: &str, url: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client(certificate_of).request(method, url)
    }

    fn client(&self, certificate_of: &str) -> Client {
        match &self.certificates {
            Some(certificates) => certificates.client(certificate_of),
            None => self.http.clone(),
        }
    }

    /// Sends a request of a caller. Its answer must be a success.
    async fn ask(&self, who: &str, request: RequestBuilder) -> Response {
        let request = request.header("x-agent-id", format!("corp.{who}"));
        let request = match self.credential(who).authorization {
            Some(shown) => forwarded(request).header("authorization", shown),
            None => request,
        };
        let client = self.client(who);
        let sent = client.execute(request.build().unwrap());
        let response = soon("an answer", sent).await.unwrap();
        let (url, status) = (response.url(), response.status());
        assert!(status.is_success(), "{who} {url}: {status}");
        response
    }

    /// Opens a session of each kind for a caller. Returns their ids.
    pub async fn open_sessions(&mut self, who: &str) -> Ids {
        let mut ids = Ids::new();
        for (name, base, path) in [
            ("session", "mcp", "/mcp"),
            ("ended", "mcp", "/mcp"),
            ("named_session", "mcp", "/agents/one/mcp"),
            ("named_ended", "mcp", "/agents/one/mcp"),
            ("patients_session", "mcp", "/agents/patients/mcp"),
            ("room_session", "mcp", "/agents/room/mcp"),
            ("tasks_session", "tasks", "/mcp"),
        ] {
            let url = format!("{}{path}", self.bases[base]);
            let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params() });
            let opened = self.ask(who, self.post(&url).json(&hello)).await;
            let id = opened.headers()["mcp-session-id"].to_str().unwrap();
            ids.insert(name, id.to_owned());
        }
        for (name, path) in [("sse", "/sse"), ("named_sse", "/agents/one/sse")] {
            let open = self.http.get(format!("{}{path}", self.bases["mcp"]));
            let open = open.header("accept", "text/event-stream");
            let mut stream = self.ask(who, open).await;
            let first = soon("an event", stream.chunk()).await.unwrap().unwrap();
            let first = String::from_utf8(first.to_vec()).unwrap();
            let (_, id) = first.split_once("session=").unwrap();
            let id = id.split_whitespace().next().unwrap();
            ids.insert(name, id.to_owned());
            self.streams.push(stream);
        }
        ids
    }

    /// Gives alice an object of each kind, and bob sessions.
    async fn open_objects(&mut self) {
        for (at, who) in ["alice", "bob"].into_iter().enumerate() {
            self.ids[at] = self.open_sessions(who).await;
        }
        for (who, _) in CALLERS {
            let agents = self.http.get(format!("{}/api/agents", self.bases["mail"]));
            self.ask(who, agents).await;
        }
        let letter = json!({ "recipient_agent_id": "corp.alice", "message": "text of the letter" });
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

/// Claims of a caller's token with these scopes.
fn token_claims(issuer: &TestIssuer, who: &str, scopes: &str) -> Value {
    let mut claims = issuer.claims(AUDIENCE);
    (claims["sub"], claims["scope"]) = (who.into(), scopes.into());
    claims
}

/// Values of `Authorization` by caller, with tokens of the callers' scopes and that of the listeners.
fn caller_tokens(
    issuer: &TestIssuer,
    key: &SigningKey,
    callers: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> BTreeMap<&'static str, String> {
    let token = |(who, scopes): (&'static str, &str)| {
        let scopes = format!("{LISTENER_SCOPE} {scopes}");
        let token = key.token(&token_claims(issuer, who, scopes.trim_end()));
        (who, format!("Bearer {token}"))
    };
    callers.into_iter().map(token).collect()
}

/// Rules of a topology, for a system of this process.
fn access_rules(topology: &str) -> AccessRules {
    let read: toml::Value = toml::from_str(topology).unwrap();
    let rules: Vec<AccessRule> = read["policy"]["rules"].clone().try_into().unwrap();
    AccessRules::new(rules, Arc::new(|_| DataClass::Public)).unwrap()
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

/// Writes the files of a topology. Returns the key of `robot`.
async fn prepare(home: &Home) -> String {
    let pem = KeyPair::generate().unwrap().serialize_pem();
    home.write("card.pem", &pem);
    fs::copy(example("cardiology.json"), home.path("cardiology.json")).unwrap();
    let add = ["keys", "--keys", "keys.toml", "add", "robot"];
    let made = home.run(&add).await.with(0, "");
    made.out.trim().to_owned()
}

/// An upstream with a tool, a resource and a prompt.
fn upstream(home: &Home) -> String {
    let declared = script(home, "one", "answer of one");
    let text = fs::read_to_string(home.path("server.sh")).unwrap();
    let (start, cases) = text.split_once(" in\n").unwrap();
    home.write("server.sh", &format!("{start} in{FIRST_CASES}\n{cases}"));
    declared
}

/// The topology of the node. The keys of its issuer are at a path; another issuer's tokens are
/// introspected. `lines` are of each listener with credentials.
fn topology(
    home: &Home,
    issuer: &TestIssuer,
    keys: &str,
    endpoint: &IntrospectionServer,
    lines: &str,
) -> String {
    let url = &issuer.url;
    let (client, secret) = CLIENT;
    let secret = home.write("secret", secret);
    let auth = format!(
        "{lines}keys = \"keys.toml\"\n[listener.auth]\n[[listener.auth.issuer]]\nname = \"corp\"\n\
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
        &upstream(home),
        "[[agent]]\nkind = \"mailroom\"\nid = \"room\"\n",
        "[[agent]]\nkind = \"patient_data\"\nid = \"patients\"\npatients = [{ name = \"Jane Doe\", id = \"PT67890\" }]\n",
        "[[agent]]\n",
        clinic,
        &listener("protocol = \"mcp\"\ndialect = \"mcp\"\nagents = [\"one\", \"patients\", \"room\"]\ncompat = [\"sse\", \"websocket\"]\n"),
        &auth,
        &listener("protocol = \"a2a\"\nagents = [\"one\", \"room\"]\npush_allow = [\"127.0.0.0/8\"]\nsigning_key = \"card.pem\"\n"),
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
        (
            "mail",
            of(&|agent, url| agent == "room" && !url.contains("/agents/")),
        ),
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
fn task_server(
    home: &Home,
    issuer: &TestIssuer,
    certificates: Option<&CallerCertificates>,
) -> (System, Listening) {
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
    let mut verifiers: Vec<Box<dyn BearerVerifier>> =
        vec![Box::new(keys), Box::new(Arc::new(tokens))];
    let mut listen = ListenOptions {
        token_resource: Some(resource.into()),
        ..ListenOptions::default()
    };
    match certificates {
        Some(certificates) => {
            verifiers.push(Box::new(CertificateClients::new(listed())));
            listen.tls = Some(certificates.listener_tls());
        }
        None => listen.trusted_proxies = ["127.0.0.1".parse().unwrap()].into_iter().collect(),
    }
    let options = McpServerOptions {
        access: AccessControl::with_verifiers(verifiers),
        ..McpServerOptions::default()
    };
    let system = System::start(1).unwrap();
    let worker = system.prepare_with(|| Worker).label("worker").spawn();
    let listening = mcp::serve_with(worker, options, &listen);
    (system, listening)
}
