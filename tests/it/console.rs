//! The console over HTTP: who may see and do what, sessions, the event stream, and what is done there.

use std::fs;

use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::kit::gateway::{
    KeyClient, MCP, NODE, address_of, end, is_refused, reloaded, said, script, server, started,
};
use crate::kit::{Home, Running, found, soon, until};

/// Table of the console's routes.
const ROUTES: &str = include_str!("../../src/console/routes.rs");

/// A route of the table.
struct Route {
    method: Method,
    path: String,
    role: String,
}

/// Reads the routes of the table, so that none can be left out here.
fn routes() -> Vec<Route> {
    let (_, table) = ROUTES.split_once("const ROUTES: &[Route] = &[").unwrap();
    let (table, _) = table.split_once("\n];").unwrap();
    let rows = table.split("get(").flat_map(|part| {
        let mut rows = part.split("post(");
        let got = rows.next().map(|row| (Method::GET, row));
        got.into_iter().chain(rows.map(|row| (Method::POST, row)))
    });
    let rows = rows.filter(|(_, row)| row.trim_start().starts_with('"'));
    rows.map(|(method, row)| {
        let mut cells = row.split(',').map(str::trim);
        let path = cells.next().unwrap().trim_matches('"').to_owned();
        let role = cells.next().unwrap().strip_prefix("Role::").unwrap();
        Route {
            method,
            path,
            role: role.to_owned(),
        }
    })
    .collect()
}

/// A node with a console, an upstream with pinned tools, a mailroom, and a listener with keys.
struct Watched {
    home: Home,
    node: Running,
    console: String,
    mcp: String,
}

impl Watched {
    async fn start(home: Home, console: &str) -> Self {
        let text = topology(&home, console);
        Self::serve(home, &text, "/up/mcp").await
    }

    /// Serves a topology. The MCP address of a client ends with `mcp`.
    async fn serve(home: Home, text: &str, mcp: &str) -> Self {
        let (node, listening) = started(&home, text).await;
        let mcp = address_of(&listening, mcp).to_owned();
        Self {
            console: address_of_console(&listening),
            home,
            node,
            mcp,
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        client().request(method, format!("{}{path}", self.console))
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    fn post(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        self.request(Method::POST, path).form(fields)
    }

    /// Returns a view, as the holder of a key gets it.
    async fn view(&self, key: &KeyClient, view: &str) -> Value {
        let response = sent(key.signed(self.get(&format!("/api/v1/{view}")))).await;
        assert_eq!(response.status(), StatusCode::OK, "{view}");
        response.json().await.unwrap()
    }

    async fn end(self) {
        end(self.node, &self.home).await;
    }
}

fn topology(home: &Home, console: &str) -> String {
    let upstream = script(home, "up", "me");
    format!(
        "{NODE}[store]\n[console]\nbind = \"127.0.0.1:0\"\n{console}{upstream}pin = \"trust-first\"\n\
         [[agent]]\nkind = \"mailroom\"\nid = \"room\"\nclass = \"internal\"\n\
         {MCP}keys = \"keys.toml\"\n"
    )
}

fn client() -> Client {
    Client::builder().redirect(Policy::none()).build().unwrap()
}

async fn sent(request: RequestBuilder) -> Response {
    soon("a response", request.send()).await.unwrap()
}

/// Session of a browser.
struct Browser {
    cookie: String,
    csrf: String,
}

impl Browser {
    /// Signs in with a key.
    async fn sign_in(watched: &Watched, key: &str) -> Self {
        let response = sent(watched.post("/login", &[("credential", key)])).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let mut browser = Self {
            cookie,
            csrf: String::new(),
        };
        let page = sent(browser.with_session(watched.get("/"))).await;
        assert_eq!(page.status(), StatusCode::OK);
        let page = page.text().await.unwrap();
        let (_, after) = page.split_once("name=\"csrf\" value=\"").unwrap();
        browser.csrf = after.split('"').next().unwrap().to_owned();
        browser
    }

    fn with_session(&self, request: RequestBuilder) -> RequestBuilder {
        request
            .header("cookie", &self.cookie)
            .header("accept", "text/html")
    }
}

/// Returns a new key with scopes, and the key itself.
async fn key(home: &Home, name: &str, scopes: &[&str]) -> (KeyClient, String) {
    let client = KeyClient::new(home, name, scopes).await;
    let request = client.signed(Client::new().get("http://localhost"));
    let request = request.build().unwrap();
    let header = request.headers()["authorization"].to_str().unwrap();
    let key = header.strip_prefix("Bearer ").unwrap().to_owned();
    (client, key)
}

/// Reads an event stream until it has a text.
async fn until_event(feed: &mut Response, text: &str) {
    let reading = async {
        let mut read = String::new();
        while let Some(chunk) = feed.chunk().await.unwrap() {
            read += std::str::from_utf8(&chunk).unwrap();
            if read.contains(text) {
                return;
            }
        }
        panic!("the stream ended without {text:?}: {read}");
    };
    soon(text, reading).await;
}

/// Waits for the end of an event stream.
async fn until_end(mut feed: Response) {
    let reading = async { while feed.chunk().await.unwrap().is_some() {} };
    soon("the end of the stream", reading).await;
}

/// Routes that answer 404 without an id that is known.
const NEEDS_ID: [&str; 6] = [
    "/calls/{id}",
    "/tasks/{id}",
    "/part/timeline",
    "/part/play-run",
    "/api/v1/calls/{id}",
    "/api/v1/tasks/{id}",
];

/// Keys about one role: with its scope and the one to read, with its scope alone, and with all others.
struct RoleKeys {
    role: &'static str,
    with: KeyClient,
    alone: KeyClient,
    without: KeyClient,
}

impl RoleKeys {
    async fn of_each(home: &Home) -> Vec<Self> {
        let scopes = ["console.read", "console.content", "console.act"];
        let mut keys = Vec::new();
        for (role, scope) in ["Read", "Content", "Act"].into_iter().zip(scopes) {
            let others: Vec<_> = scopes.into_iter().filter(|other| *other != scope).collect();
            let with = match role {
                "Read" => vec![scope],
                _ => vec!["console.read", scope],
            };
            let name = |kind: &str| format!("{kind}-{}", role.to_lowercase());
            keys.push(Self {
                role,
                with: KeyClient::new(home, &name("with"), &with).await,
                alone: KeyClient::new(home, &name("alone"), &[scope]).await,
                without: KeyClient::new(home, &name("without"), &others).await,
            });
        }
        keys
    }
}

/// Goal: without the scope of a route nothing is seen and nothing is done; with it the route answers. Pages need the scope to read too,
/// and actions of a browser the token of its session. Method: each route of the table without a credential, with a session without token,
/// with a key that has all scopes but the one, and with the one, alone and beside the one to read.
#[tokio::test]
async fn every_route_needs_its_scope() {
    let home = Home::new();
    let keys = RoleKeys::of_each(&home).await;
    let (_, ops) = key(&home, "ops", &["console.*"]).await;
    let watched = Watched::start(home, "").await;
    let browser = Browser::sign_in(&watched, &ops).await;
    let routes = routes();
    assert!(routes.len() > 40, "the table isn't read: {}", routes.len());
    for Route { method, path, role } in routes {
        let (at, is_post) = (format!("{method} {path}"), method == Method::POST);
        let to = path.replace("{id}", "none").replace("{file}", "style.css");
        let request = || match is_post {
            true => watched.post(&to, &[("id", "none")]),
            false => watched.get(&to),
        };
        let bare = sent(request()).await.status();
        if role == "Open" {
            let expected = match is_post {
                true => StatusCode::UNAUTHORIZED,
                false => StatusCode::OK,
            };
            assert_eq!(bare, expected, "{at}");
            continue;
        }
        assert_eq!(bare, StatusCode::UNAUTHORIZED, "{at}");
        if is_post {
            let forged = sent(browser.with_session(request())).await;
            assert_eq!(forged.status(), StatusCode::FORBIDDEN, "{at}");
        }
        let keys = keys.iter().find(|keys| keys.role == role).unwrap();
        let response = sent(keys.without.signed(request())).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{at}");
        let challenge = response.headers()["www-authenticate"].to_str().unwrap();
        assert!(challenge.contains("insufficient_scope"), "{challenge}");
        let told = response.text().await.unwrap();
        assert!(told.contains("lacks the scope"), "{at}: {told}");
        let is_page = !is_post && !path.starts_with("/api/");
        if is_page && role != "Read" {
            let alone = sent(keys.alone.signed(request())).await.status();
            assert_eq!(alone, StatusCode::FORBIDDEN, "{at}");
        }
        let allowed = sent(keys.with.signed(request())).await.status();
        match &*path {
            // A question of a call needs more, one to a person less.
            "/do/answer" => assert_eq!(allowed, StatusCode::FORBIDDEN, "{at}"),
            _ if is_post => assert!(
                allowed.is_client_error() && ![401, 403, 405].contains(&allowed.as_u16()),
                "{at}: {allowed}"
            ),
            path if NEEDS_ID.contains(&path) => assert_eq!(allowed, StatusCode::NOT_FOUND, "{at}"),
            _ => assert_eq!(allowed, StatusCode::OK, "{at}"),
        }
    }
    let wrong = watched.get("/api/v1/view").bearer_auth("wrong");
    assert_eq!(sent(wrong).await.status(), StatusCode::UNAUTHORIZED);
    watched.end().await;
}

/// Goal: a browser has a session that only its own pages can use, and that ends with its key. Method: requests with and
/// without the token, from another page, with a foreign host; then the key is revoked.
#[tokio::test]
async fn sessions_of_browsers() {
    let home = Home::new();
    let (_, ops) = key(&home, "ops", &["console.*"]).await;
    let watched = Watched::start(home, "").await;
    let refused = sent(watched.post("/login", &[("credential", "guess")])).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let foreign = watched.post("/login", &[("credential", &ops)]);
    let foreign = foreign.header("sec-fetch-site", "cross-site");
    assert_eq!(sent(foreign).await.status(), StatusCode::FORBIDDEN);
    let browser = Browser::sign_in(&watched, &ops).await;
    let page = sent(browser.with_session(watched.get("/questions"))).await;
    let headers = page.headers().clone();
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"));
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["cache-control"], "no-store");

    let cancel = |csrf: &str| {
        let fields = [("id", "none"), ("action", "cancel"), ("csrf", csrf)];
        browser.with_session(watched.post("/do/task", &fields))
    };
    for (request, status) in [
        (cancel(&browser.csrf), StatusCode::NOT_FOUND),
        (cancel(""), StatusCode::FORBIDDEN),
        (cancel(&"0".repeat(64)), StatusCode::FORBIDDEN),
        (
            cancel("").header("x-csrf-token", &browser.csrf),
            StatusCode::NOT_FOUND,
        ),
        (
            cancel(&browser.csrf).header("sec-fetch-site", "same-site"),
            StatusCode::FORBIDDEN,
        ),
        (
            cancel(&browser.csrf).header("origin", "http://localhost:1"),
            StatusCode::FORBIDDEN,
        ),
        (
            browser.with_session(watched.get("/").header("host", "evil.example")),
            StatusCode::FORBIDDEN,
        ),
    ] {
        assert_eq!(sent(request).await.status(), status);
    }

    let mut feed = sent(browser.with_session(watched.get("/feed"))).await;
    until_event(&mut feed, "event: change\n").await;
    let out = watched.post("/logout", &[("csrf", &*browser.csrf)]);
    let out = sent(browser.with_session(out)).await;
    assert_eq!(out.status(), StatusCode::SEE_OTHER);
    until_end(feed).await;

    let browser = Browser::sign_in(&watched, &ops).await;
    let revoke = ["keys", "--keys", "keys.toml", "revoke", "ops"];
    assert_eq!(watched.home.run(&revoke).await.code, Some(0));
    let is_over = async || {
        let page = sent(browser.with_session(watched.get("/"))).await;
        (page.status() == StatusCode::UNAUTHORIZED).then_some(())
    };
    found("the end of the session", is_over).await;
    watched.end().await;
}

/// Goal: the event stream tells of a call that runs and of its end, and ends when its key is revoked; health is public and
/// without details; a path tells its methods. Method: a call that waits while a stream is open; the key is revoked.
#[tokio::test]
async fn feed_and_health() {
    let home = Home::new();
    let (ops, _) = key(&home, "ops", &["console.read"]).await;
    let robot = KeyClient::new(&home, "robot", &[]).await;
    let watched = Watched::start(home, "").await;
    for path in ["/healthz", "/readyz"] {
        let response = sent(watched.get(path)).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert!(response.text().await.unwrap().len() < 16, "{path}");
        let head = sent(watched.request(Method::HEAD, path)).await;
        assert_eq!(head.status(), StatusCode::OK, "{path}");
        assert!(head.text().await.unwrap().is_empty(), "{path}");
    }
    for (method, path, allowed) in [
        (Method::HEAD, "/feed", "GET"),
        (Method::PUT, "/questions", "GET, HEAD"),
        (Method::DELETE, "/login", "GET, HEAD, POST"),
    ] {
        let refused = sent(watched.request(method, path)).await;
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(refused.headers()["allow"], allowed, "{path}");
    }
    let metrics = sent(ops.signed(watched.get("/metrics"))).await;
    let metrics = metrics.text().await.unwrap();
    assert!(metrics.contains("callboard_mailbox_depth"), "{metrics}");
    assert!(!metrics.contains("robot"), "{metrics}");

    let mut feed = sent(ops.signed(watched.get("/feed"))).await;
    until_event(&mut feed, "event: change\n").await;
    assert!(!robot.tools(&watched.mcp).await.is_empty());
    let url = watched.mcp.clone();
    let calling = tokio::spawn(async move { robot.call(&url, "wait").await });
    until_event(&mut feed, "\"running\":1").await;
    watched.home.write("go", "");
    until_event(&mut feed, "\"running\":0").await;
    assert_eq!(said(&soon("the answer", calling).await.unwrap()), "me");
    let revoke = ["keys", "--keys", "keys.toml", "revoke", "ops"];
    assert_eq!(watched.home.run(&revoke).await.code, Some(0));
    until_event(&mut feed, "revoked").await;
    until_end(feed).await;
    watched.end().await;
}

/// Goal: contents are recorded only if the file says so, and shown only with the scope for them. Method: a call at a node without and
/// with `read_content`, its timeline with two keys.
#[tokio::test]
async fn contents_need_declaration_and_scope() {
    for (console, is_recorded) in [("", false), ("read_content = true\n", true)] {
        let home = Home::new();
        let (reader, _) = key(&home, "reader", &["console.read"]).await;
        let (all, _) = key(&home, "all", &["console.read", "console.content"]).await;
        let robot = KeyClient::new(&home, "robot", &[]).await;
        let watched = Watched::start(home, console).await;
        let params = json!({ "name": "who", "arguments": { "word": "sesame" } });
        assert!(!robot.tools(&watched.mcp).await.is_empty());
        robot.mcp(&watched.mcp, "tools/call", params).await;
        let call = found("the call", async || {
            let calls = watched.view(&reader, "calls?filter=who%20robot").await;
            calls[0]["call"].as_str().map(str::to_owned)
        });
        let call = call.await;
        let ended = async || {
            let timeline = watched.view(&all, &format!("calls/{call}")).await;
            timeline["line"]["ms"].is_number().then_some(timeline)
        };
        let seen = found("its end", ended).await.to_string();
        assert_eq!(seen.contains("sesame"), is_recorded, "{seen}");
        let hidden = watched.view(&reader, &format!("calls/{call}")).await;
        assert!(!hidden.to_string().contains("sesame"), "{hidden}");
        watched.end().await;
    }
}

/// Cases of a server whose tool `ask` asks the client for a name, and then says it.
const ASKING: &str = r#"
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1.0"}}' ;;
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*) printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Which name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}\n'
      IFS= read -r line; name=$(printf '%s' "$line" | sed 's/.*"name":"\([^"]*\)".*/\1/'); say "$id" "{\"content\":[{\"type\":\"text\",\"text\":\"$name\"}]}" ;;"#;

/// Goal: a tool that runs from the console is an ordinary call of the viewer; its question is answered at the console, and only by an
/// answer that fits the form. Method: a server that asks; the run's part of the page.
#[tokio::test]
async fn questions_of_a_played_tool() {
    let home = Home::new();
    let (ops, _) = key(&home, "ops", &["console.*"]).await;
    let script = home.write("asking.sh", &server(ASKING));
    let text = format!(
        "{NODE}[store]\n[console]\nbind = \"127.0.0.1:0\"\nkeys = \"keys.toml\"\n[[upstream]]\nid = \"up\"\nera = \"legacy\"\n\
         command = [\"sh\", \"{script}\"]\nsupports_elicitation = true\n{MCP}"
    );
    let watched = Watched::serve(home, &text, "/up/mcp").await;
    let fields = [("agent", "up"), ("tool", "ask")];
    let begun = sent(ops.signed(watched.post("/do/play", &fields))).await;
    assert_eq!(begun.status(), StatusCode::OK);
    let begun: Value = begun.json().await.unwrap();
    let run = begun["id"].as_str().unwrap().to_owned();
    let question = found("its question", async || {
        let questions = watched.view(&ops, "questions").await;
        questions[0]["id"].as_str().map(|_| questions[0].clone())
    });
    let question = question.await;
    assert_eq!(question["message"], "Which name?");
    assert_eq!(question["principal"], "api_key:ops");
    let answer = |values: Value| {
        let body = json!({ "id": question["id"], "action": "accept", "values": values });
        ops.signed(watched.request(Method::POST, "/do/answer").json(&body))
    };
    let wrong = sent(answer(json!({}))).await;
    assert_eq!(wrong.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let right = sent(answer(json!({ "name": "sesame" }))).await;
    assert_eq!(right.status(), StatusCode::OK);
    let late = sent(answer(json!({ "name": "sesame" }))).await;
    assert_eq!(late.status(), StatusCode::NOT_FOUND);
    let part = format!("/part/play-run?id={run}");
    let is_shown = async || {
        let part = sent(ops.signed(watched.get(&part))).await;
        let part = part.text().await.unwrap();
        part.contains("sesame").then_some(())
    };
    found("its result", is_shown).await;
    let audit = ["audit", "show", "--topology", "n.toml", "--event"];
    for event in ["console.tool_called", "question.answered"] {
        let is_recorded = async || {
            let shown = watched.home.run(&[&audit[..], &[event]].concat()).await;
            let shown = shown.with(0, "").out;
            (shown.lines().count() == 1).then_some(shown)
        };
        let entry = found(event, is_recorded).await;
        assert!(!entry.contains("sesame"), "{entry}");
    }
    watched.end().await;
}

/// Goal: nothing that an agent with clinical data says is shown or waits here, whatever the scopes and the file say. Method: a call whose
/// server asks; all scopes, contents recorded; the call ends although nobody answers.
#[tokio::test]
async fn clinical_texts_are_never_shown() {
    let home = Home::new();
    let (ops, _) = key(&home, "ops", &["console.*"]).await;
    let robot = KeyClient::new(&home, "robot", &[]).await;
    let script = home.write("asking.sh", &server(ASKING));
    let text = format!(
        "{NODE}[store]\n[console]\nbind = \"127.0.0.1:0\"\nread_content = true\n[[upstream]]\nid = \"up\"\nera = \"legacy\"\n\
         class = \"clinical\"\ncommand = [\"sh\", \"{script}\"]\nsupports_elicitation = true\n{MCP}keys = \"keys.toml\"\n"
    );
    let watched = Watched::serve(home, &text, "/up/mcp").await;
    assert!(!robot.tools(&watched.mcp).await.is_empty());
    let params = json!({ "name": "ask", "arguments": { "word": "sesame" } });
    robot.mcp(&watched.mcp, "tools/call", params).await;
    let ended = async || {
        let calls = watched.view(&ops, "calls?filter=ask%20robot").await;
        let call = calls[0]["call"].as_str()?;
        let timeline = watched.view(&ops, &format!("calls/{call}")).await;
        timeline["line"]["ms"].is_number().then_some(timeline)
    };
    let timeline = found("the end of the call", ended).await.to_string();
    let questions = watched.view(&ops, "questions").await.to_string();
    for shown in [timeline, questions] {
        let is_hidden = !shown.contains("sesame") && !shown.contains("Which name?");
        assert!(is_hidden, "{shown}");
    }
    watched.end().await;
}

/// Goal: a person answers its own questions with no right but to read; others see that one waits. Method: an agent that asks a person; the
/// person, and somebody who may see contents.
#[tokio::test]
async fn people_answer_their_own_questions() {
    let home = Home::new();
    let (alice, _) = key(&home, "alice", &["console.read", "person:alice"]).await;
    let (bob, _) = key(&home, "bob", &["console.read", "console.content"]).await;
    let robot = KeyClient::new(&home, "robot", &[]).await;
    let text = format!(
        "{NODE}[store]\n[console]\nbind = \"127.0.0.1:0\"\n[[agent]]\nkind = \"person\"\nid = \"alice\"\n\
         {MCP}keys = \"keys.toml\"\n"
    );
    let watched = Watched::serve(home, &text, "/alice/mcp").await;
    let url = watched.mcp.clone();
    let calling = tokio::spawn(async move {
        let arguments = json!({ "question": "Which drawer?" });
        let params = json!({ "name": "ask", "arguments": arguments });
        robot.mcp(&url, "tools/call", params).await
    });
    let question_of = async |reader: &KeyClient| {
        let questions = watched.view(reader, "questions").await;
        questions[0]["id"].as_str().map(|_| questions[0].clone())
    };
    let asked = found("the question", async || question_of(&alice).await).await;
    assert_eq!(asked["message"], "Which drawer?");
    assert_eq!(asked["can_answer"], true);
    assert_eq!(watched.view(&bob, "overview").await["questions"], 1);
    let hidden = question_of(&bob).await.unwrap();
    assert_eq!(hidden["id"], asked["id"]);
    assert_eq!(
        (&hidden["message"], &hidden["schema"]),
        (&json!(""), &Value::Null)
    );
    assert_eq!(hidden["can_answer"], false);
    let answer = |key: &KeyClient, id: &Value| {
        let values = json!({ "answer": "The top one" });
        let body = json!({ "id": id, "action": "accept", "values": values });
        key.signed(watched.request(Method::POST, "/do/answer").json(&body))
    };
    for (key, id, status) in [
        (&bob, &asked["id"], StatusCode::NOT_FOUND),
        (&alice, &json!("none"), StatusCode::FORBIDDEN),
        (&alice, &asked["id"], StatusCode::OK),
        (&alice, &asked["id"], StatusCode::NOT_FOUND),
    ] {
        assert_eq!(sent(answer(key, id)).await.status(), status);
    }
    let answered = soon("the answer", calling).await.unwrap();
    assert!(answered.to_string().contains("The top one"), "{answered}");
    watched.end().await;
}

fn address_of_console(listening: &[(String, String)]) -> String {
    let console = listening.iter().find(|(agent, _)| agent == "console");
    console.unwrap().1.clone()
}

/// Goal: a changed tool is approved as it was seen, and not as another one. Method: a server with other tools after a restart; a wrong
/// hash, the right one.
#[tokio::test]
async fn a_changed_tool_is_approved() {
    let home = Home::new();
    let (ops, _) = key(&home, "ops", &["console.*"]).await;
    let watched = Watched::start(home, "").await;
    assert!(!ops.tools(&watched.mcp).await.is_empty());
    assert_eq!(said(&ops.call(&watched.mcp, "who").await), "me");
    let text = fs::read_to_string(watched.home.path("n.toml")).unwrap();
    let Watched { home, node, .. } = watched;
    end(node, &home).await;
    let server = fs::read_to_string(home.path("server.sh")).unwrap();
    let described = server.replace(
        "{\"name\":\"who\",",
        "{\"name\":\"who\",\"description\":\"new\",",
    );
    home.write("server.sh", &described);
    let watched = Watched::serve(home, &text, "/up/mcp").await;
    assert_eq!(ops.tools(&watched.mcp).await, ["wait"]);
    assert!(is_refused(&ops.call(&watched.mcp, "who").await));
    let tools = watched.view(&ops, "tools").await;
    let mut tools = tools.as_array().unwrap().iter();
    let changed = tools.find(|tool| tool["state"] == "changed").unwrap();
    let hash = changed["offered_hash"].as_str().unwrap();
    let approve = |hash: &str| {
        let fields = [("upstream", "up"), ("tool", "who"), ("hash", hash)];
        ops.signed(watched.post("/do/tool", &fields))
    };
    assert_eq!(sent(approve("0")).await.status(), StatusCode::CONFLICT);
    assert_eq!(sent(approve(hash)).await.status(), StatusCode::OK);
    let is_callable = async || (!is_refused(&ops.call(&watched.mcp, "who").await)).then_some(());
    found("the approved tool", is_callable).await;
    watched.end().await;
}

/// Goal: without keys the console opens on loopback, for reading alone; a reload leaves it open, and it shows what is new, and says that a
/// declared console needs a restart. Method: a node without keys, on both kinds of address.
#[tokio::test]
async fn open_consoles_are_for_reading() {
    let home = Home::new();
    let upstream = script(&home, "up", "me");
    let text = format!("{NODE}[store]\n{upstream}{MCP}");
    home.write("n.toml", &text);
    let file = home.path("n.toml").display().to_string();
    let refused = home.run(&["serve", &file, "--console", "0.0.0.0:0"]).await;
    refused.with(2, "write `keys` in [console]");
    let mut node = home.start(&["serve", &file, "--console", "127.0.0.1:0"]);
    let listening = crate::kit::gateway::addresses(&mut node, "ready").await;
    let mut watched = Watched {
        mcp: address_of(&listening, "/up/mcp").to_owned(),
        console: address_of_console(&listening),
        home,
        node,
    };
    for (path, status) in [
        ("/", StatusCode::OK),
        ("/api/v1/view", StatusCode::OK),
        ("/metrics", StatusCode::OK),
        ("/play", StatusCode::FORBIDDEN),
        ("/mail", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(sent(watched.get(path)).await.status(), status, "{path}");
    }
    let post = watched.post("/do/task", &[("id", "x"), ("action", "cancel")]);
    assert_eq!(sent(post).await.status(), StatusCode::FORBIDDEN);
    let rebound = watched.get("/api/v1/view").header("host", "evil.example");
    assert_eq!(sent(rebound).await.status(), StatusCode::FORBIDDEN);

    let more = format!("{text}[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n");
    reloaded(&watched.home, &mut watched.node, &more).await;
    let page = sent(watched.get("/topology")).await.text().await.unwrap();
    assert!(page.contains("echo"), "{page}");

    let declared = format!("{more}[console]\n");
    reloaded(&watched.home, &mut watched.node, &declared).await;
    let log = watched.home.path("stderr");
    let is_told = || {
        fs::read_to_string(&log)
            .unwrap()
            .contains("restart the node")
    };
    until("a warning that [console] needs a restart", is_told).await;
    watched.end().await;
}
