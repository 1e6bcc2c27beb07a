use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, web};
use callboard_message::capabilities::CreateMessage;
use callboard_message::{Failure, SamplingAnswer};
use callboard_models::{LanguageModel, ModelConfig, RemoteModelConfig};
use callboard_rpc::TlsFiles;
use callboard_rpc::serve::tls::ListenerTls;
use callboard_rpc::serve::{ListenOptions, serve};
use callboard_runtime::System;
use parking_lot::Mutex;
use serde_json::json;

use crate::certificates::{Authority, Issued, LOCAL};
use crate::kit::gateway::{A2A, MCP, NODE, edit, end, modern, reloaded, said, script, started};
use crate::kit::{Home, a2a, ended, mcp, soon};

/// An authority whose certificate is in a home's file `ca.pem`.
fn authority(home: &Home) -> Authority {
    let authority = Authority::new("test authority");
    authority.write(&home.path(""), "ca");
    authority
}

/// Returns the lines of a listener's TLS.
fn tls(issued: &Issued) -> String {
    let [certificate, key] = [&issued.certificate, &issued.key].map(|path| name_of(path));
    format!("tls = {{ certificate = \"{certificate}\", key = \"{key}\" }}\n")
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn trusting(home: &Home) -> reqwest::Client {
    client_of(home).build().unwrap()
}

/// Returns a client that trusts the home's authority and shows a certificate.
fn showing(home: &Home, issued: &Issued) -> reqwest::Client {
    let pem = [&issued.certificate, &issued.key].map(|path| fs::read(path).unwrap());
    let identity = reqwest::Identity::from_pem(&pem.concat()).unwrap();
    client_of(home).identity(identity).build().unwrap()
}

fn client_of(home: &Home) -> reqwest::ClientBuilder {
    let pem = fs::read(home.path("ca.pem")).unwrap();
    let ca = reqwest::Certificate::from_pem(&pem).unwrap();
    let client = reqwest::Client::builder().no_proxy();
    client.add_root_certificate(ca)
}

/// Returns a topology with listeners for MCP, A2A, mail and the bare dialect, all with TLS.
fn all_kinds(home: &Home) -> String {
    let tls = tls(&authority(home).issue(&LOCAL, &home.path(""), "server"));
    let listener = "[[listener]]\nbind = \"127.0.0.1:0\"\n";
    let room = "[[agent]]\nkind = \"mailroom\"\nid = \"room\"\n";
    let mail = "protocol = \"mail\"\nagent = \"room\"\nanonymous = \"operator\"\n";
    let bare = "protocol = \"mcp\"\ncompat = [\"bare\"]\nagent = \"a\"\n";
    format!(
        "{NODE}{}{room}{MCP}agent = \"a\"\n{tls}{A2A}agent = \"a\"\n{tls}{listener}{mail}{tls}{listener}{bare}{tls}",
        script(home, "a", "here")
    )
}

/// Returns the bases of the addresses that a node printed, one a listener.
fn bases(listening: &[(String, String)]) -> Vec<String> {
    let mut bases: Vec<String> = listening
        .iter()
        .map(|(_, url)| url.split('/').take(3).collect::<Vec<_>>().join("/"))
        .collect();
    bases.dedup();
    bases
}

/// Goal: every kind of listener serves TLS at the address that it prints, and a card names it.
/// Method: listeners for MCP, the bare dialect, A2A and mail with one certificate; a request to
/// each with and without its authority.
#[tokio::test]
async fn every_kind_of_listener() {
    let home = Home::new();
    let (running, listening) = started(&home, &all_kinds(&home)).await;
    let (client, stranger) = (trusting(&home), reqwest::Client::new());
    for (_, url) in &listening {
        assert!(url.starts_with("https://127.0.0.1:"), "{url}");
        let answered = soon("an answer", client.get(url).send()).await.unwrap();
        assert!(answered.status().as_u16() < 500, "{url}");
        let refused = soon("a refusal", stranger.get(url).send()).await;
        assert!(refused.unwrap_err().is_connect(), "{url}");
    }
    let bases = bases(&listening);
    assert_eq!(bases.len(), 4, "{listening:?}");
    let card = format!("{}/.well-known/agent-card.json", bases[1]);
    let card = client.get(card).send().await.unwrap().text().await.unwrap();
    assert!(card.contains(&format!("{}/a2a", bases[1])), "{card}");
    end(running, &home).await;
}

/// Goal: a listed client certificate alone opens each kind of listener as its principal, another of the
/// same authority opens none, and a reload changes the list. Method: listeners for MCP, A2A and mail
/// without keys; requests with both certificates, before and after the other one takes the first's place.
#[tokio::test]
async fn certificates_open_every_kind_of_listener() {
    let home = Home::new();
    let authority = authority(&home);
    let folder = home.path("");
    let server = tls(&authority.issue(&LOCAL, &folder, "server"));
    let certificates = ["robot.example", "other.example"]
        .map(|name| (name, authority.issue(&[name], &folder, name)));
    let agents = format!(
        "{}[[agent]]\nkind = \"mailroom\"\nid = \"room\"\n",
        script(&home, "one", "one")
    );
    let knowing = |name: &str| {
        let clients = format!(
            ", client_ca = \"ca.pem\", client = [{{ name = \"{name}\", principal = \"robot\" }}] }}"
        );
        let tls = server.replace(" }", &clients);
        let mail = "[[listener]]\nbind = \"127.0.0.1:0\"\nprotocol = \"mail\"\nagent = \"room\"\n";
        format!("{NODE}{agents}{MCP}agent = \"one\"\n{tls}{A2A}agent = \"one\"\n{tls}{mail}{tls}")
    };
    let (mut running, listening) = started(&home, &knowing("robot.example")).await;
    let bases = bases(&listening);
    let requests = || {
        let call = json!({ "name": "who", "arguments": {} });
        let message = a2a::for_skill("who", false);
        [
            mcp::request(&format!("{}/mcp", bases[0]), &json!({}), "tools/call", call),
            a2a::request(&format!("{}/a2a", bases[1]), "SendMessage", message),
            reqwest::Client::new()
                .get(format!("{}/api/agents", bases[2]))
                .header("x-agent-id", "robot"),
        ]
    };
    // New connections each time: those of before belong to the listener of before.
    let statuses = async |issued: &Issued| {
        let client = showing(&home, issued);
        let mut statuses = Vec::new();
        for request in requests() {
            let sent = client.execute(request.build().unwrap());
            statuses.push(soon("an answer", sent).await.unwrap().status().as_u16());
        }
        statuses
    };
    for known in ["robot.example", "other.example"] {
        if known == "other.example" {
            reloaded(&home, &mut running, &knowing(known)).await;
        }
        for (name, issued) in &certificates {
            let status = if *name == known { 200 } else { 401 };
            assert_eq!(statuses(issued).await, [status; 3], "{known} {name}");
        }
    }
    end(running, &home).await;
}

/// Goal: the clients for people trust the authority of `--ca`, those of the system with `--ca system`,
/// and name the key without it. Method: `mcp`, `a2a` and `mail` against listeners with TLS; the system's
/// authorities are those of `SSL_CERT_FILE`, also if there is no such file.
#[tokio::test]
async fn commands_with_their_own_authority() {
    let home = Home::new();
    let (running, listening) = started(&home, &all_kinds(&home)).await;
    let bases = bases(&listening);
    let mcp = format!("{}/mcp", bases[0]);
    for command in [
        ["mcp", "list", &mcp].to_vec(),
        ["a2a", "card", &bases[1]].to_vec(),
        ["mail", "members", "--url", &bases[2]].to_vec(),
    ] {
        let trusting = [&command[..], &["--ca", "ca.pem"]].concat();
        home.run(&trusting).await.with(0, "");
        let system = [&command[..], &["--ca", "system"]].concat();
        let mut system = home.callboard(&system);
        system.env("SSL_CERT_FILE", home.path("ca.pem"));
        ended(&mut system, None).await.with(0, "");
        let mut absent = home.callboard(&[&command[..], &["--ca", "system"]].concat());
        absent.env("SSL_CERT_FILE", home.path("absent.pem"));
        let absent = ended(&mut absent, None).await;
        assert!(absent.err.contains("absent.pem"), "{absent:?}");
        let refused = home.run(&command).await;
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.err.contains("certificate in `ca`"), "{refused:?}");
    }
    end(running, &home).await;
}

/// Goal: an upstream with a private authority is reached over HTTP and WebSocket, and an error says
/// which certificate is wrong and what to write. Method: `check --connect` of upstreams behind
/// listeners with a good, an expired and a wrong certificate, and one that demands a certificate.
#[tokio::test]
async fn upstreams_with_their_own_authority() {
    let home = Home::new();
    let authority = authority(&home);
    let folder = home.path("");
    let (good, old, other) = (
        authority.issue(&LOCAL, &folder, "good"),
        authority.issue_until(2_001, &LOCAL, &folder, "old"),
        authority.issue(&["other.example"], &folder, "other"),
    );
    let mine = authority.issue(&["this client"], &folder, "mine");
    let demanding = tls(&good).replace(" }", ", client_ca = \"ca.pem\" }");
    let listeners: String = [tls(&good), tls(&old), tls(&other), demanding]
        .iter()
        .map(|tls| format!("{MCP}agent = \"a\"\ncompat = [\"websocket\"]\n{tls}"))
        .collect();
    let text = format!("{NODE}{}{listeners}", script(&home, "a", "here"));
    let (running, listening) = started(&home, &text).await;
    let mut urls: Vec<_> = listening.iter().map(|(_, url)| url.clone()).collect();
    urls.retain(|url| !url.contains("/agents/"));
    let [good, old, other, demanding] = &urls[..] else {
        panic!("{listening:?}");
    };
    let socket = good.replace("https", "wss");
    let ca = "ca = \"ca.pem\"";
    let shown = format!(
        "{ca}\nclient_certificate = \"{}\"\nclient_key = \"{}\"",
        name_of(&mine.certificate),
        name_of(&mine.key)
    );
    let fixed = format!("{ca}\ntransport = \"websocket\"");
    let strange = "transport = \"websocket\"";
    for (url, keys, code, wanted) in [
        (good, ca, 0, "2 tools"),
        (&socket, &*fixed, 0, "2 tools"),
        (
            good,
            "",
            4,
            "a file with the authority's certificate in `ca`",
        ),
        (
            &socket,
            strange,
            4,
            "a file with the authority's certificate in `ca`",
        ),
        (old, ca, 4, "has expired"),
        (other, ca, 4, "for other host names"),
        (demanding, ca, 4, "check `client_certificate`"),
        (demanding, &*shown, 0, "2 tools"),
    ] {
        let upstream = format!("[[upstream]]\nid = \"far\"\nurl = \"{url}\"\n{keys}\n");
        let file = home.write("far.toml", &format!("{NODE}{upstream}"));
        let checked = home.run(&["check", "--connect", &file]).await;
        assert_eq!(checked.code, Some(code), "{url} {keys}: {checked:?}");
        assert!(checked.out.contains(wanted), "{wanted}: {checked:?}");
    }
    end(running, &home).await;
}

/// Goal: a node's clients trust the authority of their section: an upstream and a remote A2A agent.
/// Method: two nodes, the second of which calls the first over TLS.
#[tokio::test]
async fn clients_of_a_node() {
    let (far, near) = (Home::new(), Home::new());
    let authority = authority(&far);
    authority.write(&near.path(""), "ca");
    let tls = tls(&authority.issue(&LOCAL, &far.path(""), "server"));
    let text = format!(
        "{NODE}{}{MCP}agent = \"a\"\n{tls}{A2A}agent = \"a\"\n{tls}",
        script(&far, "a", "there")
    );
    let (behind, listening) = started(&far, &text).await;
    let url = |path: &str| {
        let found = listening.iter().find(|(_, url)| url.ends_with(path));
        found.unwrap_or_else(|| panic!("{listening:?}")).1.clone()
    };
    let text = format!(
        "{NODE}[[upstream]]\nid = \"far\"\nurl = \"{}\"\nca = \"ca.pem\"\n\
         [[agent]]\nkind = \"a2a\"\nid = \"peer\"\nurl = \"{}\"\nca = \"ca.pem\"\n{MCP}",
        url("/mcp"),
        url("/a2a")
    );
    let (running, here) = started(&near, &text).await;
    let call = json!({ "name": "far__who", "arguments": {} });
    let (_, answer) = modern(&here[0].1, "tools/call", call).await;
    assert_eq!(said(&answer), "there");
    let (_, listed) = modern(&here[0].1, "tools/list", json!({})).await;
    assert!(listed.to_string().contains("peer__"), "{listed}");
    end(running, &near).await;
    end(behind, &far).await;
}

/// Goal: a node takes a renewed certificate without a reload. Method: the files are replaced by
/// those of another authority while the node runs.
#[tokio::test]
async fn a_renewed_certificate() {
    let home = Home::new();
    let issued = authority(&home).issue(&LOCAL, &home.path(""), "server");
    let text = format!("{NODE}{}{MCP}{}", script(&home, "a", "here"), tls(&issued));
    let (running, listening) = started(&home, &text).await;
    let url = &listening[0].1;
    soon("an answer", trusting(&home).get(url).send())
        .await
        .unwrap();
    authority(&home).issue(&LOCAL, &home.path(""), "server");
    let client = trusting(&home);
    let renewed = async || client.get(url).send().await.ok();
    crate::kit::found("the renewed certificate", renewed).await;
    end(running, &home).await;
}

/// Goal: a broken certificate stops the start with its path, and a reload that brings one changes
/// nothing. Method: a topology with a missing key, at the start and as a new version.
#[tokio::test]
async fn a_broken_certificate() {
    let home = Home::new();
    let issued = authority(&home).issue(&LOCAL, &home.path(""), "server");
    let head = format!("{NODE}{}{MCP}", script(&home, "a", "here"));
    let broken = format!("{head}{}", tls(&issued).replace("server-key", "no-key"));
    let file = home.write("broken.toml", &broken);
    for command in ["check", "serve"] {
        let refused = home.run(&[command, &file]).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        let told = format!("{}{}", refused.out, refused.err);
        assert!(told.contains("no-key.pem"), "{told}");
    }
    let (running, listening) = started(&home, &format!("{head}{}", tls(&issued))).await;
    edit(&home, &broken);
    let complains = || {
        fs::read_to_string(home.path("stderr"))
            .unwrap()
            .contains("no-key.pem")
    };
    crate::kit::until("the complaint", complains).await;
    let url = &listening[0].1;
    soon("an answer", trusting(&home).get(url).send())
        .await
        .unwrap();
    end(running, &home).await;
}

/// A server with TLS that records the credential of each request, and gives one answer.
fn recording(home: &Home, answer: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let issued = authority(home).issue(&LOCAL, &home.path(""), "server");
    let files = TlsFiles {
        certificate: issued.certificate,
        key: issued.key,
        client_ca: None,
    };
    let listen = ListenOptions {
        tls: Some(ListenerTls::open(files).unwrap()),
        ..ListenOptions::default()
    };
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let record = seen.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bound = serve(listener, &listen, move |config| {
        let record = record.clone();
        let handler = move |request: HttpRequest| {
            let shown = request.headers().get("authorization");
            let shown = shown.map(|value| value.to_str().unwrap().to_owned());
            record.lock().push(shown.unwrap_or_default());
            async move {
                HttpResponse::Ok()
                    .content_type("application/json")
                    .body(answer)
            }
        };
        config.default_service(web::to(handler));
    })
    .unwrap();
    let url = format!("https://localhost:{}", bound.address.port());
    tokio::spawn(bound.server);
    (url, seen)
}

/// Goal: the credential of a clinic goes to that clinic's URL, and only over TLS with a trusted
/// certificate. Method: a question with and without `ca`, and over plain HTTP to another machine.
#[tokio::test]
async fn a_credential_for_a_clinic() {
    let home = Home::new();
    let (url, seen) = recording(&home, "{}");
    let ask = async |keys: &str| {
        let clinic = "[[clinic]]\nid = \"clinic_b\"\nspecialty = \"dermatology\"\nconditions = [\"Psoriasis\"]\n";
        let file = home.write("host.toml", &format!("{NODE}{clinic}{keys}\n"));
        let question = "Which dermatology patients have psoriasis?";
        let mut command = home.callboard(&["ask", "--topology", &file, question]);
        ended(command.env("CLINIC_TOKEN", "s3cret"), None).await
    };
    let token = "bearer_env = \"CLINIC_TOKEN\"";
    ask(&format!("url = \"{url}/mcp\"\n{token}")).await;
    assert!(seen.lock().is_empty());
    ask(&format!("url = \"{url}/mcp\"\n{token}\nca = \"ca.pem\"")).await;
    assert_eq!(
        seen.lock().first().map(String::as_str),
        Some("Bearer s3cret")
    );
    let refused = ask(&format!("url = \"http://clinic.example/mcp\"\n{token}")).await;
    let refused = refused.with(2, "write an https URL");
    assert!(!refused.err.contains("s3cret"), "{refused:?}");
}

/// Goal: a model behind a private authority is reached with `ca`, and its failure names the key
/// without it. Method: one answer of a provider over TLS.
#[tokio::test]
async fn a_model_with_its_own_authority() {
    let home = Home::new();
    let answer =
        r#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}],"usage":{}}"#;
    let (url, _) = recording(&home, answer);
    let system = System::start(1).unwrap();
    let sample = async |ca: Option<&str>| {
        let config = RemoteModelConfig {
            url: Some(format!("{url}/v1")),
            ca: ca.map(|file| home.path(file)),
            stream: false,
            ..RemoteModelConfig::new("m-1")
        };
        let model = LanguageModel::open(ModelConfig::OpenaiCompatible(config)).unwrap();
        let turn = json!({ "role": "user", "content": { "type": "text", "text": "Hi" } });
        let request = json!({ "messages": [turn], "maxTokens": 10 }).to_string();
        let request: CreateMessage = serde_json::from_str(&request).unwrap();
        let asked = system.spawn(model);
        let answer: Result<SamplingAnswer, Failure> =
            soon("an answer", asked.ask(request)).await.unwrap();
        answer
    };
    let answer = sample(Some("ca.pem")).await.unwrap();
    assert!(answer.0.to_raw().get().contains("Hello"));
    let failure = sample(None).await.unwrap_err();
    assert!(failure.message.contains("`ca`"), "{failure:?}");
    system.shutdown(std::time::Duration::from_secs(5)).await;
}
