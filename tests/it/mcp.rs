use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::{Finished, Home, ended, soon};

/// A server of the legacy era as a shell script: it has the tools `echo` (says what it was sent), `ask` (asks a person),
/// `fail` and `picture`.
const SERVER: &str = r#"
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/')
  case "$line" in
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"script","version":"1.0"},"instructions":"Be\u001b[31m kind."}' ;;
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"echo","description":"Says it back.","inputSchema":{"properties":{"text":{"type":"string","description":"What to say."},"n":{"type":"integer"}},"required":["text"]}}]}' ;;
    *'"method":"prompts/list"'*) say "$id" '{"prompts":[{"name":"greet","arguments":[{"name":"who"}]}]}' ;;
    *'"name":"echo"'*) say "$id" "{\"content\":[],\"structuredContent\":{\"sent\":$line}}" ;;
    *'"name":"fail"'*) say "$id" '{"content":[{"type":"text","text":"no such thing"}],"isError":true}' ;;
    *'"name":"silent"'*) ;;
    *'"name":"picture"'*) say "$id" '{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"text","text":"a\u001bb"}]}' ;;
    *'"name":"ask"'*)
      token=$(printf '%s' "$line" | sed 's/.*"progressToken":\([0-9]*\).*/\1/')
      printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"total":2,"message":"half"}}\n' "$token"
      printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":"careful"}}\n'
      printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"properties":{"name":{"type":"string","title":"Name"},"age":{"type":"integer","minimum":0},"sure":{"type":"boolean","default":true}},"required":["name"]}}}\n'
      IFS= read -r answer; say "$id" "{\"content\":[],\"structuredContent\":{\"answer\":$answer}}" ;;
    *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}\n' "$id" ;;
  esac
done
"#;

fn server(home: &Home) -> String {
    format!("sh {}", home.write("server.sh", SERVER))
}

async fn call(home: &Home, input: Option<&str>, arguments: &[&str]) -> Finished {
    let server = server(home);
    ended(
        &mut home.callboard(&[&["mcp", "call", &server], arguments].concat()),
        input,
    )
    .await
}

/// Goal: a person sees what a server is and has, and nothing of it moves their terminal; a program gets one object.
/// Method: list a scripted server both ways.
#[tokio::test]
async fn servers_are_shown() {
    let home = Home::new();
    let server = server(&home);
    let shown = home.run(&["mcp", "list", &server]).await.quiet(0);
    let expected = "script 1.0  (MCP 2025-11-25)\n  Be[31m kind.\n\nTools\n  echo  –  Says it back.\n      text (string)  What to say.\n      n (integer, optional)\n\nPrompts\n  greet\n      who (optional)\n";
    assert_eq!(shown.out, expected);
    let json = home.run(&["mcp", "list", &server, "--json"]).await;
    let found = json.json();
    assert_eq!(
        (found["tools"][0]["name"].as_str(), json.out.lines().count()),
        (Some("echo"), 1)
    );
    home.swept().await;
}

/// Goal: a server can't fill a person's screen. Method: instructions, descriptions of a tool, of an
/// argument and of a prompt of 60,000 characters each; instructions of 60,000 lines.
#[tokio::test]
async fn long_descriptions_are_cut() {
    let home = Home::new();
    let long = "x".repeat(60_000);
    let script = SERVER
        .replace("Be\\u001b[31m kind.", &long)
        .replace("Says it back.", &long)
        .replace("What to say.", &long)
        .replace(
            r#""name":"who"#,
            &format!(r#""description":"{long}","name":"who"#),
        );
    let server = format!("sh {}", home.write("long.sh", &script));
    let shown = home.run(&["mcp", "list", &server]).await.quiet(0);
    let cut = format!("{}…", "x".repeat(200));
    let ends = shown.out.lines().filter(|line| line.ends_with(&cut));
    assert_eq!(ends.count(), 4, "{}", shown.out);
    assert!(shown.out.len() < 2_000, "{}", shown.out.len());
    let lines = SERVER.replace("Be\\u001b[31m kind.", &r"a\n".repeat(60_000));
    let server = format!("sh {}", home.write("lines.sh", &lines));
    let shown = home.run(&["mcp", "list", &server]).await.quiet(0);
    assert_eq!(shown.out.lines().filter(|line| *line == "  a").count(), 20);
    assert!(shown.out.contains("\n  …\n"), "{}", shown.out);
    home.swept().await;
}

/// Goal: arguments reach the tool as it wants them. Method: text that looks like a number, a number, an object, both ways.
#[tokio::test]
async fn tools_are_called() {
    let home = Home::new();
    let arguments = [
        "echo",
        "--json",
        "--json-args",
        r#"{"more":[1.0],"n":1}"#,
        "--arg",
        "text=5",
        "n=7",
    ];
    let result = call(&home, None, &arguments).await.with(0, "").json();
    let sent = &result["structuredContent"]["sent"]["params"];
    assert_eq!(
        sent["arguments"],
        json!({ "more": [1.0], "n": 7, "text": "5" })
    );
    call(&home, None, &["picture"])
        .await
        .printing(0, "[image, image/png, 3 bytes]\nab\n");
    home.swept().await;
}

/// Goal: how it ended is the exit code, and why stands on standard error. Method: a tool that fails, a tool that isn't
/// there, servers that aren't, words that can't be.
#[tokio::test]
async fn ends_have_codes() {
    let home = Home::new();
    for (arguments, code, why) in [
        (vec!["fail"], 4, "the tool reported an error"),
        (vec!["missing"], 4, "what? (code -32601)"),
        (
            vec!["echo", "--json-args", "[]"],
            2,
            "--json-args must be a JSON object",
        ),
        (
            vec!["echo", "--arg", "novalue"],
            2,
            "\"novalue\" is no argument: write NAME=VALUE",
        ),
        (vec!["echo", "novalue"], 2, "write NAME=VALUE"),
        (
            vec!["echo", "--key-env", "NO_SUCH"],
            2,
            "there is no environment variable NO_SUCH",
        ),
        (vec!["echo", "--header", "nocolon"], 2, "NAME: VALUE"),
    ] {
        call(&home, None, &arguments).await.with(code, why);
    }
    let failed = call(&home, None, &["missing", "--json"])
        .await
        .with(4, "what?")
        .json();
    let error = json!({ "kind": "not_found", "message": "what?", "data": { "rpc": { "code": -32601, "message": "what?" } } });
    assert_eq!(failed["error"], error);
    for (arguments, code, kind) in [
        (vec!["echo", "novalue", "--json"], 2, "invalid_input"),
        (
            vec!["echo", "--header", "nocolon", "--json"],
            2,
            "invalid_input",
        ),
        (vec!["silent", "--timeout", "1", "--json"], 4, "timed_out"),
    ] {
        let failed = call(&home, None, &arguments).await.with(code, "");
        let error = failed.json()["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(failed.err.contains(message), "{failed:?}");
        assert_eq!(
            (&error["kind"], error.get("data")),
            (&json!(kind), Some(&json!(null)))
        );
    }
    // The tool's own error is its result: one object.
    let failed = call(&home, None, &["fail", "--json"]).await;
    assert_eq!(failed.with(4, "").json()["isError"], true);
    for (server, code) in [
        ("/no/such/server", 4),
        ("sh 'open", 2),
        ("http://u:p@a.example/", 2),
        ("http://127.0.0.1:9/mcp", 4),
    ] {
        home.run(&["mcp", "list", server]).await.with(code, "");
    }
    home.swept().await;
}

/// Goal: progress and log are told apart from the answer; questions are asked field by field, and asked again where the
/// answer doesn't fit; a person may say no. Method: answers on standard input.
#[tokio::test]
async fn people_are_asked() {
    let home = Home::new();
    let asked = call(&home, Some("\nAna\nmany\n41\n\n"), &["ask", "--ask"])
        .await
        .with(0, "");
    let result = asked.json();
    let accepted =
        json!({ "action": "accept", "content": { "name": "Ana", "age": 41, "sure": true } });
    assert_eq!(result["answer"]["result"], accepted);
    for told in [
        "· 1 of 2  half",
        "· warning: careful",
        "The server asks: Who?",
        "this is needed",
        "a whole number",
        "[yes]",
    ] {
        assert!(asked.err.contains(told), "{told}: {}", asked.err);
    }
    for (typed, action) in [
        ("Ana\n:decline\n", "decline"),
        (":cancel\n", "cancel"),
        ("", "cancel"),
    ] {
        let result = call(&home, Some(typed), &["ask", "--ask"]).await.json();
        assert_eq!(result["answer"]["result"], json!({ "action": action }));
    }
    // Without a person the server learns that there is none.
    let result = call(&home, None, &["ask"]).await.json();
    assert_eq!(result["answer"]["error"]["code"], -7);
    home.swept().await;
}

/// Goal: no log shows a credential, whatever the filter, and whatever the libraries below would print. Method: everything
/// logged, over each kind of URL, to a server that reads what it is sent and hangs up.
#[tokio::test]
async fn credentials_stay_out_of_the_log() {
    const TOKEN: &str = "t0ken-in-a-variable";
    const HEADER: &str = "s3cret-in-a-header";
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = tokio::spawn(async move {
        let mut heads = String::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            heads.push_str(&String::from_utf8_lossy(&head[..read]));
        }
        // Both credentials were really sent.
        assert_eq!(
            (heads.matches(TOKEN).count(), heads.matches(HEADER).count()),
            (2, 2),
            "{heads}"
        );
    });
    let home = Home::new();
    for scheme in ["http", "ws"] {
        let url = format!("{scheme}://{address}/mcp");
        let header = format!("X-Secret: {HEADER}");
        let arguments = [
            "--log",
            "trace",
            "mcp",
            "list",
            &url,
            "--era",
            "legacy",
            "--key-env",
            "TOKEN",
            "--header",
            &header,
        ];
        let Finished { code, out, err, .. } =
            ended(home.callboard(&arguments).env("TOKEN", TOKEN), None).await;
        let said = out + &err;
        assert_eq!(code, Some(4), "{said}");
        assert!(
            !said.contains(TOKEN) && !said.contains(HEADER),
            "{scheme}: {said}"
        );
    }
    soon("what the peer saw", peer).await.unwrap();
}

/// Goal: the key of a shell's environment is the credential of each command. Method: `mcp` and `agents` to a server on this
/// machine that has nothing; with a header `Authorization` of its own.
#[tokio::test]
async fn the_key_is_a_credential_by_default() {
    const KEY: &str = "cbk_of_the_environment";
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (heads, mut heard) = tokio::sync::mpsc::channel(64);
    let peer = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
            let _ = heads.send(head).await;
            let nothing =
                b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(nothing).await;
        }
    });
    let home = Home::new();
    let mut sent = async |arguments: &[&str]| {
        let mut command = home.callboard(arguments);
        let ended = ended(command.env("CALLBOARD_KEY", KEY), None).await;
        assert_eq!(ended.code, Some(4), "{ended:?}");
        let mut all = String::new();
        while let Ok(head) = heard.try_recv() {
            all.push_str(&head);
        }
        all
    };
    let wanted = format!("authorization: bearer {KEY}");
    for command in [&["mcp", "list", &url][..], &["agents", &url]] {
        let heads = sent(command).await;
        assert!(heads.contains(&wanted), "{command:?}: {heads}");
    }
    let own = ["mcp", "list", &url, "--header", "Authorization: Bearer own"];
    let heads = sent(&own).await;
    assert!(
        heads.contains("bearer own") && !heads.contains(KEY),
        "{heads}"
    );
    peer.abort();
}
