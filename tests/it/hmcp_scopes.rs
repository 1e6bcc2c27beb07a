//! Scopes, patients, tenants and purposes of credentials at the listeners of a node.

use std::fs;

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::issuer::{SigningKey, TestIssuer};
use crate::kit::clinics::identities;
use crate::kit::gateway::{A2A, MCP, NODE, edit, end, reloaded, script, serve, started};
use crate::kit::{Home, Running, a2a, example, found, mcp, soon};

const AUDIENCE: &str = "https://agents.example";
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
const DATA: &str = r#"clinical_data={"diagnosis": "Hypertension"}"#;
const AGENTS: &str = "[[agent]]\nkind = \"emr_writeback\"\nid = \"emr\"\nfile = \"emr.jsonl\"\n\
    [[agent]]\nkind = \"patient_data\"\nid = \"patients\"\npatients = [{ name = \"John Smith\", id = \"PT12345\" }]\n";

/// A node with a record system that has listeners of its own, and one beside an upstream.
struct Ward {
    home: Home,
    running: Running,
    file: String,
    issuer: TestIssuer,
    signer: SigningKey,
    /// Keys without a scope, for reading of one patient, and for all access to one.
    keys: [String; 3],
    emr: String,
    mixed: String,
    a2a: String,
}

impl Ward {
    async fn start() -> Self {
        let key = SigningKey::new("k1", "EdDSA");
        let issuer = TestIssuer::with_keys(&[&key]).await;
        let home = Home::new();
        let auth = format!(
            "keys = \"keys.toml\"\n[listener.auth]\n[[listener.auth.issuer]]\nname = \"corp\"\nissuer = \"{}\"\n\
             audiences = [\"{AUDIENCE}\"]\nscopes_required = [\"callboard\"]\n",
            issuer.url
        );
        let text = format!(
            "{NODE}[store]\n{}{AGENTS}{MCP}agent = \"emr\"\n{auth}{MCP}agents = [\"patients\", \"one\"]\n{auth}\
             {A2A}agent = \"emr\"\n{auth}",
            script(&home, "one", "one"),
        );
        let file = home.write("n.toml", &text);
        let add = async |name, more: &[&str]| add_key(&home, &file, name, more).await;
        let keys = [
            add("unscoped", &[]).await,
            add("reader", &["--scope", "hmcp:read", "--patient", "PT1"]).await,
            add("app", &["--scope", "patient/hmcp:*", "--patient", "PT1"]).await,
        ];
        let (running, at) = serve(&home, &[&file]).await;
        let url = |agent: &str, ending: &str| {
            let found = at
                .iter()
                .find(|(id, url)| id == agent && url.ends_with(ending));
            found.unwrap_or_else(|| panic!("{at:?}")).1.clone()
        };
        Self {
            emr: url("emr", "/mcp"),
            mixed: url("n", "/mcp"),
            a2a: url("emr", "/a2a"),
            home,
            running,
            file,
            issuer,
            signer: key,
            keys,
        }
    }

    /// A token with these scopes, besides the one that each must have, and a patient.
    fn token(&self, scopes: &str, patient: Option<&str>) -> String {
        let mut claims = self.issuer.claims(AUDIENCE);
        claims["scope"] = format!("callboard {scopes}").into();
        if let Some(patient) = patient {
            claims["patient"] = patient.into();
        }
        self.signer.token(&claims)
    }

    fn write(&self, patient: Option<&str>) -> RequestBuilder {
        let mut arguments = json!({ "clinical_data": { "diagnosis": "Hypertension" } });
        if let Some(patient) = patient {
            arguments["patient_id"] = patient.into();
        }
        let call = json!({ "name": "write_clinical_data", "arguments": arguments });
        mcp::request(&self.emr, &json!({}), "tools/call", call)
    }

    fn converse(&self, text: &str) -> RequestBuilder {
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        let params = json!({ "messages": [message], "maxTokens": 100 });
        mcp::request(&self.emr, &json!({}), "sampling/createMessage", params)
    }

    /// Patients of the written records, in their order.
    fn written(&self) -> Vec<String> {
        let text = fs::read_to_string(self.home.path("emr.jsonl")).unwrap_or_default();
        let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let patient = |record: Value| record["patient_id"].as_str().unwrap().to_owned();
        records.map(patient).collect()
    }
}

/// Adds a key. A node that is running already accepts it within a second.
async fn add_key(home: &Home, file: &str, name: &str, more: &[&str]) -> String {
    let add = ["keys", "--topology", file, "add", name];
    let made = home.run(&[&add[..], more].concat()).await;
    assert_eq!(made.code, Some(0), "{}", made.err);
    made.out.trim().to_owned()
}

async fn send(request: RequestBuilder) -> Response {
    soon("an answer", request.send()).await.unwrap()
}

async fn body(response: Response) -> Value {
    let text = soon("a body", response.text()).await.unwrap();
    // An answer that took long comes as an event.
    let event = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data: {"));
    let json = event.map_or_else(|| text.clone(), |rest| format!("{{{rest}"));
    serde_json::from_str(&json).unwrap_or_else(|_| panic!("no answer: {text}"))
}

fn challenge(response: &Response) -> String {
    let header = response.headers().get("www-authenticate");
    header.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

/// Sends a request, and asserts that another patient or none is the reason of its refusal.
async fn is_of_another_patient(what: &str, request: RequestBuilder) {
    let refused = send(request).await;
    assert_eq!(
        (refused.status(), &*challenge(&refused)),
        (200.try_into().unwrap(), ""),
        "{what}"
    );
    let error = body(refused).await["error"].clone();
    assert_eq!(
        (&error["code"], &error["data"]),
        (&json!(-2), &Value::Null),
        "{what}: {error}"
    );
    let told = error["message"].as_str().unwrap();
    assert!(
        told.contains("the data of one patient") && !told.contains("PT"),
        "{what}: {told}"
    );
}

/// Goal: a listener tells which scopes its agents need; a credential without them is answered 403 with the scope to get, one for
/// another patient an error of the protocol, before anything is written; and both are in the audit. Method: metadata and challenges of
/// a listener of such an agent and of one beside others; tokens and keys with and without scopes and patients, by tool, by
/// conversation and over A2A; the records and the audit afterwards.
/// Rows: H-17, H-37, X-16.
#[tokio::test]
async fn scopes_and_patients_bind() {
    let ward = Ward::start().await;
    for (url, challenged, supported) in [
        (
            &ward.emr,
            "callboard hmcp:write",
            "callboard hmcp:write patient/hmcp:write",
        ),
        (
            &ward.mixed,
            "callboard",
            "callboard hmcp:read patient/hmcp:read",
        ),
    ] {
        let origin = url.strip_suffix("/mcp").unwrap();
        let refused = send(mcp::request(url, &json!({}), "tools/list", json!({}))).await;
        let metadata = format!("{origin}{WELL_KNOWN}/mcp");
        let told = format!("Bearer resource_metadata=\"{metadata}\", scope=\"{challenged}\"");
        assert_eq!(
            (refused.status().as_u16(), challenge(&refused)),
            (401, told)
        );
        let document = body(send(reqwest::Client::new().get(&metadata)).await).await;
        let supported: Vec<_> = supported.split(' ').collect();
        assert_eq!(document["scopes_supported"], json!(supported));
    }

    let metadata = format!("{}{WELL_KNOWN}/mcp", ward.emr.strip_suffix("/mcp").unwrap());
    let (wide, bound) = ("hmcp:write", "patient/hmcp:write");
    let [unscoped, reader, app] = ward.keys.clone();
    for (what, credential, needed) in [
        ("none", ward.token("", None), wide),
        ("reading", ward.token("hmcp:read", None), wide),
        ("other case", ward.token("HMCP:WRITE", None), wide),
        (
            "wildcards",
            ward.token("* hmcp* *:* patient/*.*", None),
            wide,
        ),
        ("a patient alone", ward.token("", Some("PT1")), bound),
        ("a key", unscoped, wide),
        ("a key for a patient", reader, bound),
    ] {
        for request in [
            ward.write(Some("PT1")),
            ward.converse(&format!("{DATA} patient_id=PT1")),
        ] {
            let refused = send(request.bearer_auth(&credential)).await;
            let told = format!(
                "Bearer error=\"insufficient_scope\", resource_metadata=\"{metadata}\", scope=\"callboard {needed}\""
            );
            assert_eq!(
                (refused.status().as_u16(), challenge(&refused)),
                (403, told),
                "{what}"
            );
            let error = body(refused).await["error"].clone();
            assert_eq!(error["code"], -2, "{what}: {error}");
            assert_eq!(error["data"], json!({ "needed_scope": needed }), "{what}");
        }
        // Descriptions are no clinical data.
        let list = mcp::request(&ward.emr, &json!({}), "tools/list", json!({}));
        assert_eq!(
            send(list.bearer_auth(&credential)).await.status(),
            200,
            "{what}"
        );
    }

    for credential in [
        ward.token(bound, Some("PT1")),
        ward.token("patient/hmcp:*", Some("PT1")),
        app,
    ] {
        for patient in [
            Some("PT2"),
            Some("pt1"),
            Some("ＰＴ１"),
            Some("PT1\u{301}"),
            None,
        ] {
            let request = ward.write(patient).bearer_auth(&credential);
            is_of_another_patient(&format!("{patient:?}"), request).await;
        }
        for named in ["", " patient_id=PT2", " patient_id=PT1 patient_id=PT2"] {
            let request = ward
                .converse(&format!("{DATA}{named}"))
                .bearer_auth(&credential);
            is_of_another_patient(named, request).await;
        }
        // Two values for one argument are no arguments.
        let twice = ward.write(Some("PT1")).build().unwrap();
        let text = String::from_utf8(twice.body().unwrap().as_bytes().unwrap().to_vec()).unwrap();
        let text = text.replace(
            "\"patient_id\":\"PT1\"",
            "\"patient_id\":\"PT1\",\"patient_id\":\"PT2\"",
        );
        assert!(text.contains("PT2"), "{text}");
        let refused = send(ward.write(Some("PT1")).body(text).bearer_auth(&credential)).await;
        assert!(body(refused).await["error"].is_object());
    }
    // Two patients of one principal: the scope opens nothing.
    is_of_another_patient(
        "no claim",
        ward.write(Some("PT1")).bearer_auth(ward.token(bound, None)),
    )
    .await;
    assert_eq!(ward.written(), [""; 0]);

    let over_a2a = |patient: &str, credential: &str| {
        let text = json!({ "clinical_data": { "a": 1 }, "patient_id": patient }).to_string();
        let mut params = a2a::for_skill("write_clinical_data", false);
        params["message"]["parts"][0]["text"] = text.into();
        a2a::request(&ward.a2a, "SendMessage", params).bearer_auth(credential)
    };
    let own = ward.token(bound, Some("PT1"));
    for (patient, credential) in [("PT2", own.clone()), ("PT1", ward.token("", None))] {
        let refused = body(send(over_a2a(patient, &credential)).await)
            .await
            .to_string();
        assert!(refused.contains("the credential"), "{refused}");
    }
    assert_eq!(ward.written(), [""; 0]);

    let written = body(send(over_a2a("PT1", &own)).await).await.to_string();
    assert!(written.contains("Success"), "{written}");
    let done = body(send(ward.write(Some("PT1")).bearer_auth(&own)).await).await;
    assert_eq!(
        done["result"]["structuredContent"]["written"], true,
        "{done}"
    );
    let said = send(
        ward.converse(&format!("{DATA} patient_id=PT1"))
            .bearer_auth(&own),
    )
    .await;
    assert_eq!(said.status(), 200);
    let all = ward.token("hmcp:*", Some("PT1"));
    let done = body(send(ward.write(Some("PT2")).bearer_auth(all)).await).await;
    assert_eq!(
        done["result"]["structuredContent"]["written"], true,
        "{done}"
    );
    assert_eq!(ward.written(), ["PT1", "PT1", "PT1", "PT2"]);

    let Ward {
        home,
        running,
        file,
        ..
    } = ward;
    end(running, &home).await;
    let show = [
        "audit",
        "show",
        "--event",
        "message",
        "--json",
        "--limit",
        "1000",
        "--topology",
        &file,
    ];
    let shown = home.run(&show).await.with(0, "");
    let lacking = |what: &str| {
        let lines = shown
            .out
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|entry| entry["more"]["lacks"] == what).count()
    };
    assert_eq!(
        (lacking("scope"), lacking("patient")),
        (14 + 1, 24 + 1 + 1),
        "{}",
        shown.out
    );
    assert!(
        !shown.out.contains("PT1") && !shown.out.contains("PT2"),
        "{}",
        shown.out
    );
}

/// Goal: each call of a batch is judged for itself, and a session has the rights of the token that it was opened with. Method: a batch of
/// calls for the credential's patient and others, one without the scope, and a session that is used with another token.
#[tokio::test]
async fn calls_of_a_batch_are_judged_alone() {
    let ward = Ward::start().await;
    let post = |token: &str, session: Option<&str>, body: &Value| {
        let request = reqwest::Client::new().post(&ward.emr);
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .bearer_auth(token)
            .body(body.to_string());
        match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    };
    let open = async |token: &str| {
        let params = json!({ "protocolVersion": "2025-03-26", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let opened = send(post(token, None, &hello)).await;
        assert_eq!(opened.status(), 200);
        opened.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    let call = |id: u32, patient: &str| {
        let arguments = json!({ "clinical_data": { "a": 1 }, "patient_id": patient });
        let params = json!({ "name": "write_clinical_data", "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let batch = json!([
        call(1, "PT1"),
        call(2, "PT2"),
        call(3, "PT1"),
        call(4, "PT3")
    ]);
    for (token, written) in [
        (
            ward.token("patient/hmcp:write", Some("PT1")),
            [true, false, true, false],
        ),
        (ward.token("", Some("PT1")), [false; 4]),
        (ward.token("hmcp:write", None), [true; 4]),
    ] {
        let session = open(&token).await;
        let answered = send(post(&token, Some(&session), &batch)).await;
        assert_eq!(
            (answered.status().as_u16(), &*challenge(&answered)),
            (200, "")
        );
        let answers = body(answered).await;
        let mut answers = answers.as_array().unwrap().clone();
        answers.sort_by_key(|answer| answer["id"].as_u64());
        let done: Vec<_> = answers
            .iter()
            .map(|answer| answer["error"].is_null())
            .collect();
        assert_eq!(done, written, "{answers:?}");
    }
    assert_eq!(ward.written().len(), 2 + 4);

    // Alone, a call of a session is refused like others.
    let own = ward.token("", Some("PT1"));
    let session = open(&own).await;
    let refused = send(post(&own, Some(&session), &call(5, "PT1"))).await;
    assert_eq!(refused.status(), 403);
    assert!(challenge(&refused).ends_with("scope=\"callboard patient/hmcp:write\""));
    let other = ward.token("hmcp:write", Some("PT2"));
    let refused = send(post(&other, Some(&session), &call(6, "PT2"))).await;
    assert_eq!(refused.status(), 404);
    assert_eq!(ward.written().len(), 6);
    end(ward.running, &ward.home).await;
}

/// Returns a topology with the cardiology clinic, and lines of its agent and its listener.
fn clinic(home: &Home, agent: &str, listener: &str) -> String {
    fs::copy(example("cardiology.json"), home.path("cardiology.json")).unwrap();
    format!(
        "{NODE}[[agent]]\nkind = \"clinic\"\nid = \"clinic_a\"\nspecialty = \"cardiology\"\ndatabase = \"a.sqlite\"\n\
         seed = \"cardiology.json\"\n{agent}{MCP}agent = \"clinic_a\"\n{listener}"
    )
}

/// Goal: a purpose counts only from a credential that may claim it, also behind a gateway whose own credential may; a clinic of a tenant
/// serves that one's keys only, and a key for one patient sees that one. Method: a clinic with keys and a gateway before it; keys with
/// and without scopes at both.
/// Rows: X-36, C-34.
#[tokio::test]
async fn purposes_need_a_credential_that_may_claim_them() {
    let [ward, gate] = [Home::new(), Home::new()];
    let file = ward.write(
        "n.toml",
        &clinic(&ward, "tenant = \"acme\"\n", "keys = \"keys.toml\"\n"),
    );
    let add = async |home: &Home, file: &str, name: &str, scopes: &[&str]| {
        let scopes: Vec<_> = scopes.iter().flat_map(|scope| ["--scope", scope]).collect();
        add_key(home, file, name, &scopes).await
    };
    let acme = "tenant:acme";
    let mut keys = Vec::new();
    for (name, scopes, purpose, is_told) in [
        ("a", &[acme, "patient.identity"][..], "treatment", false),
        ("b", &[acme, "purpose:treatment"], "treatment", false),
        (
            "c",
            &[acme, "patient.identity", "purpose:treatment"],
            "marketing",
            false,
        ),
        (
            "d",
            &[acme, "patient.identity", "purpose:*"],
            "treatment",
            false,
        ),
        (
            "e",
            &[acme, "patient.identity", "purpose:treatment"],
            "treatment",
            true,
        ),
    ] {
        keys.push((add(&ward, &file, name, scopes).await, purpose, is_told));
    }
    let full = keys[4].0.clone();
    let app = add_key(
        &ward,
        &file,
        "app",
        &["--scope", acme, "--patient", "CARD-001"],
    )
    .await;
    let other = add(&ward, &file, "other", &["tenant:other", "hmcp:*"]).await;
    let (running, at) = serve(&ward, &[&file]).await;
    let url = at[0].1.clone();
    let get = |url: &str, tool: &str, key: &str, patient: &str, purpose: &str| {
        let arguments = json!({ "patient_id": patient });
        let meta = json!({ "callboard/purpose": purpose });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        mcp::request(url, &json!({}), "tools/call", params).bearer_auth(key)
    };
    let secrets = identities("cardiology");
    let identifies = |answer: &Value| {
        let text = answer.to_string();
        secrets.iter().any(|secret| text.contains(secret.as_str()))
    };
    for (key, purpose, is_told) in &keys {
        let told = body(send(get(&url, "get_patient", key, "CARD-001", purpose)).await).await;
        let patient = &told["result"]["structuredContent"]["patient"];
        assert_eq!(patient["condition"], "Hypertension", "{told}");
        assert_eq!(identifies(&told), *is_told, "{told}");
    }
    for (key, patient, is_served) in [
        (&app, "CARD-001", true),
        (&app, "CARD-002", false),
        (&app, "card-001", false),
        (&other, "CARD-001", false),
        (&full, "CARD-002", true),
    ] {
        let told = body(send(get(&url, "get_patient", key, patient, "x")).await).await;
        let code = if is_served { Value::Null } else { json!(-2) };
        assert_eq!(told["error"]["code"], code, "{patient}: {told}");
    }

    let gateway = format!(
        "{NODE}[[upstream]]\nid = \"ward\"\nurl = \"{url}\"\nbearer_env = \"file:{}\"\n{MCP}agent = \"ward\"\nkeys = \"keys.toml\"\n",
        gate.write("key", &full)
    );
    let file = gate.write("n.toml", &gateway);
    let plain = add(&gate, &file, "plain", &["patient.identity"]).await;
    let claiming = add(&gate, &file, "claiming", &["purpose:treatment"]).await;
    let (before, at) = serve(&gate, &[&file]).await;
    for (key, is_told) in [(plain, false), (claiming, true)] {
        let told =
            body(send(get(&at[0].1, "get_patient", &key, "CARD-001", "treatment")).await).await;
        assert!(told.to_string().contains("Hypertension"), "{told}");
        assert_eq!(identifies(&told), is_told, "{told}");
    }
    end(before, &gate).await;
    end(running, &ward).await;
}

/// Goal: what clients are told follows the agents of a reloaded file. Method: a listener of all agents, before and after another is added.
#[tokio::test]
async fn told_scopes_follow_a_reload() {
    let key = SigningKey::new("k1", "EdDSA");
    let issuer = TestIssuer::with_keys(&[&key]).await;
    let home = Home::new();
    let auth = format!(
        "[listener.auth]\n[[listener.auth.issuer]]\nname = \"corp\"\nissuer = \"{}\"\naudiences = [\"x\"]\n",
        issuer.url
    );
    let (one, listener) = (script(&home, "one", "one"), format!("{MCP}{auth}"));
    let (mut running, at) = started(&home, &format!("{NODE}{AGENTS}{listener}")).await;
    let url = at[0].1.clone();
    let told = async || {
        let refused = send(mcp::request(&url, &json!({}), "tools/list", json!({}))).await;
        let origin = url.strip_suffix("/mcp").unwrap();
        let get = reqwest::Client::new().get(format!("{origin}{WELL_KNOWN}/mcp"));
        let document = body(send(get).await).await;
        (challenge(&refused), document["scopes_supported"].clone())
    };
    let (challenged, supported) = told().await;
    assert!(
        challenged.ends_with("scope=\"hmcp:read hmcp:write\""),
        "{challenged}"
    );
    let all = json!([
        "hmcp:read",
        "hmcp:write",
        "patient/hmcp:read",
        "patient/hmcp:write"
    ]);
    assert_eq!(supported, all);
    reloaded(
        &home,
        &mut running,
        &format!("{NODE}{AGENTS}{one}{listener}"),
    )
    .await;
    // Some connections may still reach the former server.
    let is_new = async || {
        let (challenged, supported) = told().await;
        (!challenged.contains("scope=") && supported == all).then_some(())
    };
    found("a challenge without scopes", is_new).await;
    reloaded(&home, &mut running, &format!("{NODE}{one}{listener}")).await;
    let is_new = async || {
        let (challenged, supported) = told().await;
        (!challenged.contains("scope=") && supported.is_null()).then_some(())
    };
    found("no scopes at all", is_new).await;
    end(running, &home).await;
}

/// Goal: a tenant that no credential can be of is a mistake of the file. Method: each kind of agent with tenants at the limits.
#[tokio::test]
async fn impossible_tenants_are_refused() {
    let home = Home::new();
    let longest = "t".repeat(128 - "tenant:".len());
    let longer = format!("{longest}t");
    for (tenant, is_possible) in [
        ("acme", true),
        (&*longest, true),
        (&*longer, false),
        ("", false),
        ("two words", false),
        ("é", false),
    ] {
        let line = format!("tenant = \"{tenant}\"\n");
        let listener =
            "[[clinic]]\nid = \"c\"\nspecialty = \"x\"\nurl = \"http://127.0.0.1:9/mcp\"\n";
        let clinics = format!("[[agent]]\nkind = \"clinics\"\nid = \"ward\"\n{line}");
        let emr = format!("[[agent]]\nkind = \"emr_writeback\"\nid = \"emr\"\n{line}");
        let patients =
            format!("[[agent]]\nkind = \"patient_data\"\nid = \"patients\"\npatients = []\n{line}");
        let text = format!(
            "{}{listener}{clinics}{emr}{patients}",
            clinic(&home, &line, "")
        );
        edit(&home, &text);
        let file = home.path("n.toml").display().to_string();
        let checked = home.run(&["check", &file]).await;
        assert_eq!(
            checked.code,
            Some(if is_possible { 0 } else { 2 }),
            "{tenant}: {checked:?}"
        );
        let mistakes = checked
            .out
            .matches("no credential can be of this tenant")
            .count();
        assert_eq!(
            mistakes,
            if is_possible { 0 } else { 4 },
            "{tenant}: {checked:?}"
        );
    }
}
