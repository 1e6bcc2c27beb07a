//! Orchestrators learn of one another: by connecting, and of each other's directories. What strangers say of others is hearsay.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callboard::a2a::card::CardSigningKey;
use callboard::a2a::outbound::{A2aClient, RemoteOptions};
use callboard::agents::peer_registry::{
    DiscoverySource, EXCHANGE_AGENTS_MAX, PeerHealth, PeerRegistry,
};
use callboard::config::Topology;
use callboard::message::capabilities::{CallTool, ListTools};
use callboard::message::{RawObject, ToolResult};
use callboard::rpc::{AccessControl, UnauthenticatedAccess};
use callboard::{Agent, Context, Failure, Handlers, Node, SyncHandler, System};
use serde_json::{Value, json};

use crate::kit::{Home, Listening, a2a, soon};

/// A node with one orchestrator at a free port, which it keeps when it is started again.
struct One {
    node: Node,
    id: &'static str,
}

impl One {
    async fn start(home: &Home, id: &'static str, name: &str, bind: &str, directory: &str) -> Self {
        Self::signing(home, id, name, bind, directory, "").await
    }

    /// One whose listener has more lines.
    async fn signing(
        home: &Home,
        id: &'static str,
        name: &str,
        bind: &str,
        directory: &str,
        listener: &str,
    ) -> Self {
        let topology = format!(
            "[node]\nname = \"{id}\"\n[[agent]]\nkind = \"orchestrator\"\nid = \"{id}\"\nname = \"{name}\"\nguard = false\n\
             [agent.registry]\n{directory}\n\
             [[listener]]\nprotocol = \"a2a\"\nbind = \"{bind}\"\nagent = \"{id}\"\n{listener}"
        );
        let topology = Topology::parse(&topology, false, Path::new("."))
            .unwrap_or_else(|error| panic!("{error}"));
        let state = home.path(id);
        std::fs::create_dir_all(&state).unwrap();
        let node = soon("a node", Node::start(&topology, &state, false)).await;
        Self {
            node: node.unwrap_or_else(|error| panic!("{error}")),
            id,
        }
    }

    fn known(&self) -> PeerRegistry {
        self.node.orchestrator(self.id).unwrap().known
    }

    /// `HOST:PORT`.
    fn address(&self) -> String {
        let url: url::Url = self.node.listeners().next().unwrap().url.parse().unwrap();
        format!("{}:{}", url.host_str().unwrap(), url.port().unwrap())
    }

    /// Returns the answer of the tool `list_agents`.
    async fn list(&self, arguments: Value) -> Value {
        let agent = self.node.orchestrator(self.id).unwrap().agent;
        let result = soon("a list", agent.ask(CallTool::new("list_agents", arguments)))
            .await
            .unwrap()
            .unwrap();
        result.structured_content().unwrap()
    }

    async fn end(self) {
        soon("the end of a node", self.node.shutdown()).await;
    }
}

const ANY_PORT: &str = "127.0.0.1:0";
const HERE: &str = "allow = [\"http://127.0.0.1:*\"]";

fn ids(known: &PeerRegistry) -> Vec<String> {
    known.list().into_iter().map(|known| known.id).collect()
}

/// Goal: who connects to one agent knows the agents of that one, and is known to it; the list is the document's; it is there
/// after a restart; who went away is noticed. Method: three nodes, of which the second knew the third.
/// Rows: B-1, B-5.
#[actix_web::test]
async fn directories_are_shared() {
    let home = Home::new();
    let [first, second, third] = [
        "bidirectional-agent",
        "bidirectional-agent-2",
        "bidirectional-agent-3",
    ];
    let three = One::start(&home, third, "Agent Three", ANY_PORT, HERE).await;
    let two = One::start(&home, second, "Agent Two", ANY_PORT, HERE).await;
    let one = One::start(&home, first, "Agent One", ANY_PORT, HERE).await;
    let empty = json!({ "count": 0, "message": "No agents found in the directory" });
    assert_eq!(one.list(json!({})).await, empty);
    soon("a connection", two.known().connect(&three.address()))
        .await
        .unwrap();
    let connected = soon("a connection", one.known().connect(&two.address()))
        .await
        .unwrap();
    assert_eq!((&*connected.id, &*connected.name), (second, "Agent Two"));

    let both = json!({ "count": 2, "agents": [
        { "id": second, "name": "Agent Two" },
        { "id": third, "name": "Agent Three" },
    ] });
    assert_eq!(one.list(json!({})).await, both);
    assert_eq!(
        one.list(json!({ "format": "simple" })).await,
        json!({ "count": 2, "agents": [second, third] })
    );
    let hearsay = one.known().get(third).unwrap();
    assert_eq!(
        (hearsay.learned, hearsay.from.as_deref()),
        (DiscoverySource::Exchange, Some(second))
    );
    assert!(
        hearsay.skills.iter().any(|skill| skill.id == "echo"),
        "its card was fetched"
    );
    let told = two.known().get(first).unwrap();
    assert_eq!(
        (told.name.as_str(), told.learned),
        ("Agent One", DiscoverySource::Told)
    );

    // Whom one was told of does as it is asked.
    let agent = one.known().agent_ref(third).await.unwrap();
    let echo = CallTool::new("echo", json!({ "text": "hello" }));
    assert_eq!(
        soon("an echo", agent.ask(echo))
            .await
            .unwrap()
            .unwrap()
            .texts(),
        "hello"
    );

    let address = one.address();
    one.end().await;
    let one = One::start(&home, first, "Agent One", &address, HERE).await;
    assert_eq!(one.list(json!({})).await, both);
    three.end().await;
    for _ in 0..2 {
        soon("a look at all", one.known().check_all_health()).await;
    }
    let states = [second, third].map(|id| one.known().get(id).unwrap().state);
    assert_eq!(states, [PeerHealth::Up, PeerHealth::Down]);
    one.end().await;
    two.end().await;
}

/// Two keys of Ed25519: PKCS#8 in base64.
const KEYS: [&str; 2] = [
    "MC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH",
    "MC4CAQAwBQYDK2VwBCIEIAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI",
];

/// One of them as a listener's file has it.
fn key_file(home: &Home, name: &str, key: &str) -> (String, CardSigningKey) {
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
    (
        home.write(name, &pem),
        CardSigningKey::from_pem(&pem.into()).unwrap(),
    )
}

/// Goal: over the wire an agent is learned second-hand by its card's signature alone, if that is good and a trusted key's.
/// Method: a teacher that knows three agents: one signed by the trusted key, one by nobody, one by a key that is known under
/// its name with another's members; who trusts that set of keys and allows no origin, and who trusts none.
/// Rows: X-34.
#[actix_web::test]
async fn signed_cards_are_learned() {
    let home = Home::new();
    let ((good_file, good), (bad_file, bad)) = (
        key_file(&home, "good.pem", KEYS[0]),
        key_file(&home, "bad.pem", KEYS[1]),
    );
    let trusted = good
        .jwks()
        .read::<Vec<RawObject>>("keys")
        .unwrap()
        .remove(0);
    let forged = trusted.clone().with("kid", bad.id());
    let keys = home.write(
        "keys.json",
        RawObject::new()
            .with("keys", [trusted, forged])
            .to_raw()
            .get(),
    );
    let signing = |file: &str| format!("signing_key = \"{file}\"\n");
    let signed = One::signing(
        &home,
        "signed",
        "Signed",
        ANY_PORT,
        "",
        &signing(&good_file),
    )
    .await;
    let badly = One::signing(&home, "badly", "Badly", ANY_PORT, "", &signing(&bad_file)).await;
    let unsigned = One::start(&home, "unsigned", "Unsigned", ANY_PORT, "").await;
    let teacher = One::start(&home, "teacher", "Teacher", ANY_PORT, HERE).await;
    for one in [&signed, &badly, &unsigned] {
        soon("a connection", teacher.known().connect(&one.address()))
            .await
            .unwrap();
    }
    let trusting = One::start(
        &home,
        "trusting",
        "T",
        ANY_PORT,
        &format!("trusted_keys = \"{keys}\""),
    )
    .await;
    let wary = One::start(&home, "wary", "W", ANY_PORT, "").await;
    for (pupil, learned) in [
        (&trusting, vec!["signed", "teacher"]),
        (&wary, vec!["teacher"]),
    ] {
        soon("a connection", pupil.known().connect(&teacher.address()))
            .await
            .unwrap();
        assert_eq!(ids(&pupil.known()), learned);
    }
    // It is asked as it was learned: by its signed card.
    let agent = trusting.known().agent_ref("signed").await.unwrap();
    let echo = CallTool::new("echo", json!({ "text": "hello" }));
    assert_eq!(
        soon("an echo", agent.ask(echo))
            .await
            .unwrap()
            .unwrap()
            .texts(),
        "hello"
    );
    for one in [trusting, wary, teacher, signed, badly, unsigned] {
        one.end().await;
    }
}

/// Says of others what it was given.
struct Liar(Value);

impl Agent for Liar {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<ListTools>().sync::<CallTool>();
    }
}

impl SyncHandler<ListTools> for Liar {
    fn handle(&mut self, _: ListTools, _: &mut Context) -> Result<RawObject, Failure> {
        let tool = json!({ "name": "list_agents", "inputSchema": { "type": "object" } });
        Ok(RawObject::new().with("tools", json!([tool])))
    }
}

impl SyncHandler<CallTool> for Liar {
    fn handle(&mut self, _: CallTool, _: &mut Context) -> Result<ToolResult, Failure> {
        Ok(ToolResult::text(self.0.to_string()).with_structured_content(&self.0))
    }
}

fn served(system: &System, says: Value) -> Listening {
    a2a::serve(system.spawn(Liar(says)), |options| {
        options.access = AccessControl::Open(UnauthenticatedAccess::Anonymous);
        options.agent.name = "Liar".into();
    })
}

/// A port that counts who comes.
struct Trap {
    url: String,
    came: Arc<AtomicUsize>,
}

impl Trap {
    async fn set() -> Self {
        let listener = tokio::net::TcpListener::bind(ANY_PORT).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let came = Arc::new(AtomicUsize::new(0));
        let counter = came.clone();
        actix_web::rt::spawn(async move {
            while listener.accept().await.is_ok() {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { url, came }
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }
}

/// Goal: a hostile teacher teaches nothing, and nobody is connected to for its word. Method: it names a port that counts who
/// comes, a metadata service, an id of somebody else's, ours, and more agents than are taken, all of them at that port.
#[actix_web::test]
async fn hostile_teachers_reach_nobody() {
    let (home, trap) = (Home::new(), Trap::set().await);
    let one = One::start(&home, "one", "One", ANY_PORT, "").await;
    let two = One::start(&home, "two", "Two", ANY_PORT, HERE).await;
    let entry = |id: &str, url: &str| json!({ "id": id, "name": "X", "url": url });
    let many = (0..=EXCHANGE_AGENTS_MAX)
        .map(|nth| entry(&format!("x{nth}"), &format!("{}/{nth}", trap.url)));
    let mut agents: Vec<_> = [
        "http://169.254.169.254/latest",
        &*trap.url,
        "http://[::ffff:127.0.0.1]:80",
        "file:///etc",
    ]
    .iter()
    .enumerate()
    .map(|(nth, url)| entry(&format!("y{nth}"), url))
    .collect();
    agents.extend(many);
    let liar = served(
        one.node.system(),
        json!({ "self": { "id": "liar" }, "agents": agents }),
    );
    // Nothing is allowed: nobody is even looked at.
    let known = soon("a connection", one.known().connect(&liar.url))
        .await
        .unwrap();
    assert_eq!((&*known.id, &*known.name), ("liar", "Liar"));
    assert_eq!(
        (ids(&one.known()), trap.came()),
        (vec!["liar".to_owned()], 0)
    );

    // This machine is allowed: but those ids are others', and the metadata service isn't here.
    let agents = json!([
        entry("two", &trap.url),
        entry("known", &trap.url),
        entry("m", "http://169.254.169.254")
    ]);
    let thief = served(
        two.node.system(),
        json!({ "self": { "id": "liar-2" }, "agents": agents }),
    );
    let first = served(
        two.node.system(),
        json!({ "self": { "id": "known" }, "agents": [] }),
    );
    for url in [&first.url, &thief.url] {
        soon("a connection", two.known().connect(url))
            .await
            .unwrap();
    }
    assert_eq!(
        (ids(&two.known()), trap.came()),
        (vec!["known".to_owned(), "liar-2".to_owned()], 0)
    );
    one.end().await;
    two.end().await;
}

/// Goal: what was named by others passes the guard on every way, its own origin included. Method: a port on this machine,
/// named by the operator and by somebody else, as an address and as a name.
#[actix_web::test]
async fn hearsay_is_guarded() {
    let trap = Trap::set().await;
    let port = trap.url.rsplit(':').next().unwrap();
    for url in [trap.url.clone(), format!("http://localhost:{port}")] {
        let options = RemoteOptions {
            is_url_untrusted: true,
            ..RemoteOptions::default()
        };
        let hearsay = A2aClient::new(url.parse().unwrap(), options).unwrap();
        assert!(soon("a refusal", hearsay.public_card()).await.is_err());
    }
    assert_eq!(trap.came(), 0);
    let named = A2aClient::new(trap.url.parse().unwrap(), RemoteOptions::default()).unwrap();
    assert!(soon("a refusal", named.public_card()).await.is_err());
    assert!(trap.came() > 0);
}

/// Goal: the agents' crate, which knows no store, keeps its directory where the store looks for it. Method: both names.
#[test]
fn the_directory_has_one_space() {
    assert_eq!(
        callboard::agents::peer_registry::DIRECTORY_SPACE,
        callboard::store::DIRECTORY_SPACE
    );
}
