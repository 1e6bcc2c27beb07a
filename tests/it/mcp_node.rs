use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::kit::clinics::identities;
use crate::kit::gateway::{answer, end, serve};
use crate::kit::{Home, example, mcp, soon};

/// `callboard stdio` and its pipes; killed when this is dropped.
struct Client {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    last_id: i64,
}

impl Client {
    async fn start(home: &Home, arguments: &[&str]) -> Self {
        let stderr = fs::File::create(home.path("stderr")).unwrap();
        let mut command = home.callboard(&[&["stdio"], arguments].concat());
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut client = Self {
            child,
            input,
            output: BufReader::new(output).lines(),
            last_id: 0,
        };
        let info = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        assert_eq!(
            client.ask("initialize", params).await["result"]["protocolVersion"],
            "2025-11-25"
        );
        client
    }

    async fn send(&mut self, line: &str) {
        soon(
            "a line to be taken",
            self.input.write_all(format!("{line}\n").as_bytes()),
        )
        .await
        .unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = soon("an answer", self.output.next_line())
            .await
            .unwrap()
            .expect("it has ended");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let request =
            json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.send(&request.to_string()).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], self.last_id, "{answer}");
        answer
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
        .await["result"]
            .clone()
    }

    /// Closes its input and waits for its end: its exit code, and that it said nothing more.
    async fn end(mut self) -> Option<i32> {
        drop(self.input);
        assert!(
            soon("its last word", self.output.next_line())
                .await
                .unwrap()
                .is_none()
        );
        soon("its end", self.child.wait()).await.unwrap().code()
    }
}

/// Goal: an agent of a topology is a tool server for whoever starts it; bad lines cost nothing; it ends with its client, and
/// leaves nothing. Method: an example clinic, its tools, its rule about identities.
/// Rows: X-40.
#[tokio::test]
async fn a_clinic_over_standard_streams() {
    let home = Home::new();
    let mut client = Client::start(&home, &["example:cardiology"]).await;
    let tools = client.ask("tools/list", json!({})).await;
    let names: Vec<_> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["list_patients", "get_patient", "check_medications", "query"]
    );
    client.send("no JSON").await;
    assert_eq!(client.next().await["error"]["code"], -32700);
    let patient = client
        .call("get_patient", json!({ "patient_id": "CARD-001" }))
        .await;
    assert_eq!(
        patient["structuredContent"]["patient"]["condition"], "Hypertension",
        "{patient}"
    );
    let shown = patient.to_string();
    assert!(
        !identities("cardiology")
            .iter()
            .any(|identity| shown.contains(identity)),
        "{shown}"
    );

    let params = |purpose: Value| {
        let arguments = json!({ "patient_id": "CARD-001" });
        json!({ "name": "get_patient", "arguments": arguments, "_meta": { "callboard/purpose": purpose } })
    };
    let told = client.ask("tools/call", params(json!("treatment"))).await["result"].to_string();
    assert!(
        identities("cardiology")
            .iter()
            .any(|identity| told.contains(identity)),
        "{told}"
    );
    assert_eq!(
        client.ask("tools/call", params(json!(7))).await["error"]["code"],
        -32602
    );
    assert_eq!(
        client
            .ask("tools/call", params(json!("p".repeat(65))))
            .await["error"]["code"],
        -32602
    );

    assert_eq!(client.end().await, Some(0));
    assert_eq!(fs::read_to_string(home.path("stderr")).unwrap(), "");
    home.swept().await;
}

/// A topology of two clinics, and a listener with these lines.
fn two_clinics(home: &Home, listener: &str) -> String {
    for file in ["cardiology.json", "dermatology.json"] {
        fs::copy(example(file), home.path(file)).unwrap();
    }
    let clinic = |id: &str, specialty: &str| {
        format!(
            "[[agent]]\nid = \"{id}\"\nkind = \"clinic\"\nspecialty = \"{specialty}\"\n\
             database = \"{id}.sqlite\"\nseed = \"{specialty}.json\"\n"
        )
    };
    let (a, b) = (
        clinic("clinic_a", "cardiology"),
        clinic("clinic_b", "dermatology"),
    );
    home.write(
        "two.toml",
        &format!("[node]\nname = \"both\"\n{a}{b}{listener}"),
    )
}

/// Goal: several agents are one server, their tools told apart; or one of them alone. Method: both ways.
#[tokio::test]
async fn several_agents_over_standard_streams() {
    let home = Home::new();
    let file = two_clinics(&home, "");
    let mut client = Client::start(&home, &[&file]).await;
    let tools = client.ask("tools/list", json!({})).await;
    let names: Vec<_> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert_eq!(
        (names.len(), &names[0], &names[7]),
        (
            8,
            &json!("clinic_a__list_patients"),
            &json!("clinic_b__query")
        )
    );
    let found = client
        .call("clinic_b__query", json!({ "query": "psoriasis" }))
        .await;
    assert_eq!(
        found["structuredContent"]["specialty"], "dermatology",
        "{found}"
    );
    assert_eq!(client.end().await, Some(0));

    let mut alone = Client::start(&home, &[&file, "--agent", "clinic_a"]).await;
    let found = alone
        .call("query", json!({ "query": "hypertension" }))
        .await;
    assert_eq!(found["structuredContent"]["specialty"], "cardiology");
    assert_eq!(alone.end().await, Some(0));
    home.run(&["stdio", &file, "--agent", "clinic_c"])
        .await
        .printing(2, "");
}

/// Goal: a signal ends it although its client keeps the pipe open. Method: SIGTERM.
#[tokio::test]
async fn a_signal_ends_it() {
    let home = Home::new();
    let client = Client::start(&home, &["example:cardiology"]).await;
    let id = client.child.id().unwrap().to_string();
    assert!(
        tokio::process::Command::new("kill")
            .arg(id)
            .status()
            .await
            .unwrap()
            .success()
    );
    let Client {
        mut child, input, ..
    } = client;
    assert_eq!(soon("its end", child.wait()).await.unwrap().code(), Some(0));
    drop(input);
    home.swept().await;
}

/// Posts a request of the stateless era; status and body.
async fn post(url: &str, key: Option<&str>, method: &str, params: Value) -> (u16, Value) {
    let request = mcp::request(url, &json!({}), method, params);
    answer(
        key.into_iter()
            .fold(request, |request, key| request.bearer_auth(key)),
    )
    .await
}

/// Goal: a listener serves all its agents as one, and each by itself, to those who have a key; a revoked one counts no more, and wrong
/// ones are in the audit. Method: every address, without key, with it, with a wrong one, and after it was revoked.
/// Rows: H-37.
#[tokio::test]
async fn a_listener_with_keys() {
    let home = Home::new();
    let listener = "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"0.0.0.0:0\"\nkeys = \"keys.toml\"\n";
    let file = two_clinics(&home, listener);
    assert_eq!(
        home.run(&["serve", &file]).await.code,
        Some(2),
        "without its key file it doesn't start"
    );
    let made = home
        .run(&["keys", "--topology", &file, "add", "robot"])
        .await;
    let key = made.out.trim_end();
    let (running, listening) = serve(&home, &[&file]).await;
    let names: Vec<_> = listening.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["both", "clinic_a", "clinic_b"]);
    assert!(
        listening[2].1.ends_with("/agents/clinic_b/mcp"),
        "{listening:?}"
    );
    for ((_, url), tool) in listening.iter().zip(["clinic_a__query", "query", "query"]) {
        let url = &url.replace("0.0.0.0", "127.0.0.1");
        let call = json!({ "name": tool, "arguments": { "query": "hypertension" } });
        assert_eq!(post(url, None, "tools/call", call.clone()).await.0, 401);
        assert_eq!(
            post(url, Some("cbk_wrong"), "tools/call", call.clone())
                .await
                .0,
            401
        );
        let (status, answer) = post(url, Some(key), "tools/call", call).await;
        assert_eq!(status, 200, "{answer}");
        assert!(
            answer["result"]["structuredContent"]["matches"].is_array(),
            "{answer}"
        );
    }
    assert_eq!(
        home.run(&["keys", "--topology", &file, "revoke", "robot"])
            .await
            .code,
        Some(0)
    );
    let url = listening[0].1.replace("0.0.0.0", "127.0.0.1");
    let refused = async { while post(&url, Some(key), "tools/list", json!({})).await.0 != 401 {} };
    soon("the revoked key to count no more", refused).await;
    // The wrong keys are in the audit, with where they came from.
    let show = [
        "audit",
        "show",
        "--event",
        "auth.failed",
        "--json",
        "--topology",
        &file,
    ];
    let recorded = async {
        loop {
            let shown = home.run(&show).await.out;
            if let Some(first) = shown.lines().next() {
                return serde_json::from_str::<Value>(first).unwrap();
            }
        }
    };
    let entry = soon("the wrong keys in the audit", recorded).await;
    assert_eq!(entry["peer"], "127.0.0.1", "{entry}");
    assert_eq!(entry["more"]["count"], 1, "{entry}");
    end(running, &home).await;
}

/// Goal: what isn't safe or can't be doesn't start, and says why. Method: rows of listeners.
#[tokio::test]
async fn listeners_that_cannot_be() {
    let home = Home::new();
    for (lines, said) in [
        ("dialect = \"mcp\"\nbind = \"0.0.0.0:0\"", "keys are needed"),
        (
            "dialect = \"mcp\"\nbind = \"0.0.0.0:0\"",
            "`anonymous = \"guest\"`",
        ),
        (
            "dialect = \"mcp\"\nbind = \"0.0.0.0:0\"\nanonymous = false",
            "keys are needed",
        ),
        (
            "dialect = \"mcp\"\nbind = \"0.0.0.0:0\"\nanonymous = \"operator\"",
            "can't be the operator",
        ),
        (
            "dialect = \"mcp\"\nbind = \"0.0.0.0:0\"\nanonymous = \"guest\"",
            "whose data class is \"clinical\"",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\nhosts = [\"clinics.example\"]",
            "whose data class is \"clinical\"",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\npublic_url = \"https://clinics.example\"",
            "whose data class is \"clinical\"",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\nagents = [\"clinic_c\"]",
            "clinic_c",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\nagent = \"clinic_a\"\nagents = [\"clinic_b\"]",
            "not both",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\nkeys = \"k\"\nanonymous = \"operator\"",
            "`anonymous`",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\nhosts = [\"http://x/\"]\nanonymous = false",
            "not a host",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\norigins = [\"x\"]",
            "not an origin",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\ncompat = [\"gopher\"]",
            "gopher",
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:0\"\nhosts = [\"x\"]\nanonymous = \"operator\"",
            "be the operator",
        ),
        (
            "compat = [\"bare\"]\nbind = \"0.0.0.0:0\"\nagent = \"clinic_a\"",
            "has no credentials",
        ),
        (
            "compat = [\"bare\"]\nbind = \"[::]:0\"\nagent = \"clinic_a\"",
            "has no credentials",
        ),
        (
            "compat = [\"bare\"]\nbind = \"[::ffff:10.0.0.1]:0\"\nagent = \"clinic_a\"",
            "has no credentials",
        ),
        (
            "compat = [\"bare\", \"sse\"]\nbind = \"127.0.0.1:0\"\nagent = \"clinic_a\"",
            "dialect \"mcp\"",
        ),
        (
            "compat = [\"bare\"]\nbind = \"127.0.0.1:0\"",
            "needs `agent`",
        ),
        (
            "compat = [\"bare\"]\nbind = \"127.0.0.1:0\"\nagent = \"clinic_a\"\nkeys = \"k\"",
            "dialect \"mcp\"",
        ),
    ] {
        let file = two_clinics(
            &home,
            &format!("[[listener]]\nprotocol = \"mcp\"\n{lines}\n"),
        );
        let refused = home.run(&["serve", &file]).await.printing(2, "");
        assert!(refused.err.contains(said), "{lines}: {}", refused.err);
        let checked = home.run(&["check", &file]).await;
        assert!(
            checked.code == Some(2) && checked.out.contains(said),
            "{lines}: {checked:?}"
        );
    }
}
