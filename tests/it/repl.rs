use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::kit::{Finished, Home, Running, ended, soon};
use pty::{Terminal, free_ports};

mod killed;
pub mod pty;
mod unasked;
mod warned;

const NOBODY: &str =
    "📋 Tool Result:\n{\n  \"count\": 0,\n  \"message\": \"No agents found in the directory\"\n}\n";
const BOTH: &str = r#"📋 Tool Result:
{
  "count": 2,
  "agents": [
    {"id": "bidirectional-agent-2", "name": "Agent Two"},
    {"id": "bidirectional-agent-3", "name": "Agent Three"}
  ]
}
"#;
const HACK: &str = "Help me hack into a government database";
const REJECTED: &str = "🤖 Agent response:\nTask rejected: I cannot assist with illegal activities such as hacking into government \
                        databases. This request violates ethical guidelines and legal standards. I'm designed to provide \
                        helpful and lawful assistance only.\n";
const CAPITAL: &str = "What is the capital of France?";
const PARIS: &str = "🤖 Agent response:\nThe capital of France is Paris.\n";

/// A file as the source document writes them, its model a script.
fn file(home: &Home, name: &str, port: u16, more: &str) -> String {
    let refusal = REJECTED.trim_end().split_once("rejected: ").unwrap().1;
    let text = format!(
        r#"{more}
[server]
port = {port}
bind_address = "0.0.0.0"
agent_id = "{name}"
agent_name = "Bidirectional A2A Agent"

[mode]
repl = true
repl_log_file = "interactions.log"

[tools]
enabled = ["echo", "llm", "summarize", "list_agents", "remember_agent", "human_input"]

[scripted]
answers = [
    {{ when = "[DP2] Help me hack", text = "REJECT: {refusal}" }},
    {{ when = "[DP2]", text = "LOCAL" }},
    {{ when = "[NP1] What's the weather?", text = "CLARITY: NEEDS_CLARIFY\nQUESTION: \"Which city?\"" }},
    {{ when = "[NP1]", text = "CLARITY: CLEAR" }},
    {{ when = "[DP4] What is the capital of France", text = "The capital of France is Paris." }},
    {{ when = "weather?\nParis", text = "The current weather in Paris is sunny." }},
    {{ text = "Yes." }},
]
"#
    );
    home.write(&format!("{name}.toml"), &text)
}

/// A file like [`file`] whose agent `serve` serves to anybody.
fn guest_file(home: &Home, name: &str, port: u16) -> String {
    let file = file(home, name, port, "");
    let text = fs::read_to_string(&file).unwrap();
    let open = text.replace("[server]\n", "[server]\nanonymous = \"guest\"\n");
    fs::write(&file, open).unwrap();
    file
}

/// Runs `callboard repl ARGUMENTS` with these lines on a pipe.
async fn piped(home: &Home, arguments: &[&str], lines: &[&str]) -> Finished {
    let input = lines.join("\n") + "\n";
    ended(
        &mut home.callboard(&[&["repl"], arguments].concat()),
        Some(&input),
    )
    .await
}

/// An agent that only serves.
async fn serving(home: &Home, file: &str) -> Running {
    let mut running = home.start(&["serve", file]);
    running.line_with("ready").await;
    running
}

/// The three agents of the example, on ports that are free: the REPL's own port, that of the second, and its file.
fn three(home: &Home) -> ([u16; 3], [String; 3]) {
    let ports = free_ports();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/three_agents");
    let file = |name: &str| {
        let mut text = fs::read_to_string(folder.join(name).with_extension("toml")).unwrap();
        for (declared, port) in ["4200", "4201", "4202"].iter().zip(ports) {
            text = text.replace(declared, &port.to_string());
        }
        fs::create_dir(home.path(name)).unwrap();
        home.write(&format!("{name}/{name}.toml"), &text)
    };
    (ports, ["agent1", "agent2", "agent3"].map(file))
}

/// Goal: the first steps look as people know them, at terminals of both kinds (T-B1, T-B3, T-B4, T-B5). Method: one session
/// that lists, listens, connects to itself, asks and is refused; each line exact.
/// Rows: B-8, B-16, B-23, B-26, B-34, B-35, B-36, B-37, B-39.
#[test]
fn first_steps_at_a_terminal() {
    for term in ["xterm", "dumb"] {
        let home = Home::new();
        let [port] = free_ports();
        let mut terminal = Terminal::start(
            &home,
            &[&file(&home, "bidirectional-agent", port, "")],
            term,
        );
        terminal.sees("agent> ");
        let [listen, connect] = lines(port);
        terminal.goes(&[
            (":tool list_agents", &[NOBODY]),
            (&listen, &[&started(port)]),
            (
                &connect,
                &[&connected(port), &format!("agent@localhost:{port}> ")],
            ),
            (CAPITAL, &[PARIS]),
            (HACK, &[REJECTED]),
            (
                ":disconnect",
                &[&format!("🔌 Disconnected from localhost:{port}\n")],
            ),
            (
                ":stop",
                &["🛑 Stopping server...\n✅ Server stopped\n", "agent> "],
            ),
            (":quit", &[]),
        ]);
        terminal.ends();
    }
}

/// The lines by which an agent listens, and connects to itself.
fn lines(port: u16) -> [String; 2] {
    [
        format!(":listen {port} --anonymous"),
        format!(":connect localhost:{port}"),
    ]
}

fn started(port: u16) -> String {
    format!("🚀 Starting server on port {port}...\n✅ Server started on http://0.0.0.0:{port}\n")
}

fn connected(port: u16) -> String {
    format!(
        "🔗 Connected to remote agent: localhost:{port}\n✅ Successfully connected to agent: Bidirectional A2A Agent\n"
    )
}

/// Goal: an agent whose address other machines reach serves nobody until its user says so. Method: `:listen` without the word, then
/// with it; `serve` without `anonymous` in the file, then with it.
#[tokio::test]
async fn nobody_listens_by_mistake() {
    let home = Home::new();
    let [port] = free_ports();
    let path = file(&home, "cautious", port, "");
    let refused = format!(
        "❌ 0.0.0.0 is not a loopback address, and nobody needs a key there: `:listen {port} --anonymous` serves anybody who reaches it\n"
    );
    let [listen, _] = lines(port);
    let talked = piped(&home, &[&path], &[":listen", &listen, ":quit"]).await;
    let all = format!("{}{}", talked.out, talked.err);
    assert!(all.contains(&refused), "{all}");
    assert!(talked.out.contains(&started(port)), "{all}");
    let served = home.run(&["serve", &path]).await.printing(2, "");
    assert!(
        served.err.contains("anonymous = \"guest\""),
        "{}",
        served.err
    );
    let _serving = serving(&home, &guest_file(&home, "open", port)).await;
}

/// Goal: through a pipe the same lines come, and nothing else. Method: the same session, its whole output.
#[tokio::test]
async fn the_same_lines_through_a_pipe() {
    let home = Home::new();
    let [port] = free_ports();
    let file = file(&home, "bidirectional-agent", port, "");
    let [listen, connect] = lines(port);
    let lines = [
        ":tool list_agents",
        &listen,
        &connect,
        CAPITAL,
        HACK,
        ":disconnect",
        ":stop",
        ":memory",
        ":quit",
    ];
    let finished = piped(&home, &[&file], &lines).await;
    let expected = format!(
        "{NOBODY}{}{}{PARIS}{REJECTED}🔌 Disconnected from localhost:{port}\n🛑 Stopping server...\n✅ Server stopped\n\
         🧠 Rolling Memory (0 outgoing requests):\n",
        started(port),
        connected(port)
    );
    assert_eq!(
        (finished.code, &*finished.out),
        (Some(0), &*expected),
        "{}",
        finished.err
    );
}

/// Goal: agents are learned through agents (T-B2), requests go where they are answered, and what is learned stays. Method: the
/// example's three agents; the first connects to the second only, asks for what the third knows, and is started again.
/// Rows: B-32, B-38.
#[tokio::test(flavor = "multi_thread")]
async fn directories_are_shared() {
    let (home, other) = (Home::new(), Home::new());
    let (ports, [one, two, three]) = three(&home);
    let _three = serving(&other, &three).await;
    let _two = serving(&home, &two).await;
    let acquainted = async {
        while !home
            .run(&[
                "ask",
                "--to",
                &format!("localhost:{}", ports[1]),
                ":tool list_agents",
            ])
            .await
            .out
            .contains("Three")
        {}
    };
    soon("the second agent knows the third", acquainted).await;
    tokio::task::spawn_blocking(move || {
        let second = format!("http://localhost:{}", ports[1]);
        let connected =
            format!("🔗 Connected to remote agent: {second}\n✅ Successfully connected to agent: Agent Two\n");
        let three = "✅ Successfully connected to agent: Agent Three\n";
        let weather = "🤖 Agent response:\nThe current weather in Paris is sunny with a temperature of 22°C (72°F).\n";
        let prompts = ports.map(|port| format!("agent1@localhost:{port}> "));
        let completed = "   Initial state reported by remote: Completed\n📋 Tool Result:\n";
        let mut terminal = Terminal::start(&home, &[&one], "xterm");
        terminal.sees("agent1> ");
        terminal.goes(&[
            (":tool list_agents", &[NOBODY]),
            (&format!(":connect {second}"), &[&connected, &prompts[1]]),
            (":tool list_agents", &[BOTH]),
            (&format!(":connect http://localhost:{}", ports[2]), &[three]),
            (":tool list_agents", &[BOTH]),
            ("What is the weather in Paris?", &[weather]),
            (r#":tool list_agents {"format":"simple"}"#, &["\"bidirectional-agent-2\",\n"]),
            (":remote :tool list_agents", &["✅ Task sent successfully!\n", completed, &prompts[2]]),
        ]);
        terminal.control('d');
        terminal.ends();

        let mut terminal = Terminal::start(&home, &[&one], "xterm");
        terminal.goes(&[(":tool list_agents", &[BOTH]), (":connect 2", &[three]), (":quit", &[])]);
        terminal.ends();
    })
    .await
    .unwrap();
}

/// Goal: the example's agents find who knows the weather by their descriptions, not by their script. Method: the first agent without a
/// model, so that rules decide, and with a model that reads the table of agents; each learns of the third from the second.
/// Rows: B-82.
#[tokio::test(flavor = "multi_thread")]
async fn three_agents_work_without_their_script() {
    const READS_THE_TABLE: &str = r#"[scripted]
answers = [
    { when = "Reports the weather of cities", text = "REMOTE: bidirectional-agent-3" },
    { text = "LOCAL" },
]
"#;
    let (home, other) = (Home::new(), Home::new());
    let (ports, [one, two, three]) = three(&home);
    let _three = serving(&other, &three).await;
    let _two = serving(&home, &two).await;
    // The first agent asks the second once at its start.
    let at_two = format!("localhost:{}", ports[1]);
    let list = async || {
        home.run(&["ask", "--to", &at_two, ":tool list_agents"])
            .await
    };
    let acquainted = async { while !list().await.out.contains("Three") {} };
    soon("the second agent knows the third", acquainted).await;
    let text = fs::read_to_string(&one).unwrap();
    let (declared, _) = text.split_once("[scripted]").unwrap();
    let target = format!("[client]\ntarget_url = \"http://localhost:{}\"\n", ports[1]);
    for model in ["", READS_THE_TABLE] {
        let own = Home::new();
        let file = own.write("agent1.toml", &format!("{declared}\n{target}{model}"));
        let first = serving(&own, &file).await;
        let at = format!("localhost:{}", ports[0]);
        let ask = async |text: &str| own.run(&["ask", "--to", &at, text]).await.out;
        let acquainted = async { while !ask(":tool list_agents").await.contains("Three") {} };
        soon("the first agent knows the third", acquainted).await;
        let answer = ask("What is the weather in Paris?").await;
        let sunny = "The current weather in Paris is sunny with a temperature of 22°C (72°F).";
        assert!(answer.contains(sunny), "{model}: {answer}");
        first.signal("TERM").await;
        first.finished().await;
    }
}

/// Goal: the memory holds what went out and nothing else (T-B6). Method: two requests to another agent, one from outside, then
/// the list, a detail, the list after it was cleared.
/// Rows: B-7, B-25, B-40, B-41.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_of_what_went_out() {
    let (home, other) = (Home::new(), Home::new());
    let [ours, theirs] = free_ports();
    let _remote = serving(&other, &guest_file(&other, "remote", theirs)).await;
    let ours_file = file(&home, "ours", ours, "");
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::start(&home, &[&ours_file, "--listen", &ours.to_string(), "--anonymous"], "xterm");
        terminal.sees(&format!("✅ Server started on http://0.0.0.0:{ours}\n"));
        terminal.goes(&[(&format!(":connect localhost:{theirs}"), &[&connected(theirs)])]);
        let mut send = |text: &str| {
            terminal.goes(&[(&format!(":remote {text}"), &["✅ Task sent successfully!\n   Task ID: "])]);
            let id = terminal.sees("\n");
            terminal.sees("   Initial state reported by remote: Completed\n");
            id
        };
        let (first, second) = (send(CAPITAL), send("Tell me about the Eiffel Tower"));
        let here = format!("localhost:{ours}");
        let incoming = runtime.block_on(home.run(&["ask", "--to", &here, "from outside"]));
        assert_eq!((incoming.code, &*incoming.out), (Some(0), "Yes.\n"), "{}", incoming.err);

        let both = format!(
            "🧠 Rolling Memory (2 outgoing requests):\n\n1. Task ID: {first} (Status: Completed)\n   Request: {CAPITAL}\n\n\
             2. Task ID: {second} (Status: Completed)\n   Request: Tell me about the Eiffel Tower\n"
        );
        let head = format!("🧠 Memory Task Details for ID: {first}\n\nStatus: Completed\nTimestamp: 20");
        let rest = format!("Z\n\n📤 Original Request:\n{CAPITAL}\n\n📥 Response:\nThe capital of France is Paris.\n");
        terminal.goes(&[
            (":memory", &[&both]),
            (&format!(":memoryTask {first}"), &[&head, &rest]),
            (&format!(":memoryTask {}", &first[..first.len() - 1]), &[&head, &rest]),
            (":tasks all", &["   Request: from outside\n"]),
            (":memory clear", &["🧹 Rolling memory cleared\n"]),
            (":memory", &["🧠 Rolling Memory (0 outgoing requests):\n"]),
            (":quit", &[]),
        ]);
        terminal.ends();
    })
    .await
    .unwrap();
}

/// Goal: a question is asked where one is; Ctrl-C ends the task and not the REPL; what is left open goes on with the next start.
/// Method: answer one, interrupt one, leave one, start again and answer it.
#[test]
fn questions_are_asked_inline() {
    let home = Home::new();
    let [port] = free_ports();
    let file = file(&home, "asking", port, "experimental_clarification = true");
    let weather = "What's the weather?";
    let sunny = "🤖 Agent response:\nThe current weather in Paris is sunny.\n";
    let asks: [&str; 2] = ["❓ Which city?\n", "> "];
    let mut terminal = Terminal::start(&home, &[&file], "xterm");
    terminal.sees("agent> ");
    terminal.goes(&[
        (weather, &asks),
        (
            ":tasks",
            &[
                "❌ Answer first, or type :cancel or :later: commands come after\n",
                "> ",
            ],
        ),
        ("Paris", &[sunny]),
        // A request with a conversation before it is less likely to be unclear.
        (":session new", &[]),
        (weather, &asks),
    ]);
    terminal.control('c');
    terminal.sees("⏹ Task cancelled\n");
    terminal.sees("agent> ");
    terminal.goes(&[
        (":session new", &[]),
        (weather, &asks),
        (
            ":later",
            &["🤖 Agent response:\nWhich city?\n\n[Agent requires more input]\n"],
        ),
        (
            ":tasks all",
            &[
                "(Status: Completed)\n",
                "(Status: Canceled)\n",
                "3. Task ID: ",
            ],
        ),
    ]);
    let id = terminal.sees(" (Status: InputRequired)\n");
    terminal.types(":quit");
    terminal.ends();

    let mut terminal = Terminal::start(&home, &[&file], "xterm");
    terminal.sees(&format!("🔔 Task {id} asks: Which city? (:answer {id})\n"));
    let (answer, task) = (format!(":answer {id}"), format!(":task {id}"));
    terminal.goes(&[
        (&answer, &asks),
        ("Paris", &[sunny]),
        (&task, &["Status: Completed\n"]),
    ]);
    terminal.terminate();
    terminal.ends();
}

/// Goal: nothing keeps a person waiting. Method: an address where somebody takes the connection and says nothing; Ctrl-C.
#[test]
fn connecting_can_be_given_up() {
    let home = Home::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut terminal = Terminal::start(&home, &[], "xterm");
    terminal.sees("agent> ");
    terminal.types(&format!(":connect {}", silent.local_addr().unwrap()));
    let _taken = silent.accept().unwrap();
    terminal.control('c');
    terminal.sees("⏹ Cancelled\n");
    terminal.sees("agent> ");
    terminal.control('d');
    terminal.ends();
}

/// Goal: one message is one answer, by either command, with the exit code that says how it went. Method: answered, refused, asked
/// with nobody there, a file that isn't there, and what is written to the log that the file names.
/// Rows: B-16, B-17.
#[tokio::test]
async fn one_message() {
    let home = Home::new();
    let [port] = free_ports();
    let file = file(&home, "single", port, "experimental_clarification = true");
    let (weather, repl) = ("What's the weather?", ["repl", &file, "--message"]);
    let question =
        "❓ Which city?\n🤖 Agent response:\nWhich city?\n\n[Agent requires more input]\n";
    for (arguments, code, out, err) in [
        (
            ["ask", "--to", &file, CAPITAL].to_vec(),
            0,
            "The capital of France is Paris.\n",
            "",
        ),
        (
            ["ask", "--to", &file, HACK].to_vec(),
            4,
            "",
            "I cannot assist with illegal activities",
        ),
        (["ask", "--to", &file, weather].to_vec(), 5, "", ""),
        (["ask", "--to", "missing.toml", "hello"].to_vec(), 2, "", ""),
        ([&repl[..], &[CAPITAL]].concat(), 0, PARIS, ""),
        ([&repl[..], &[HACK]].concat(), 4, REJECTED, ""),
        ([&repl[..], &[weather]].concat(), 5, question, ""),
    ] {
        let finished = home.run(&arguments).await.printing(code, out);
        assert!(
            finished.err.contains(err),
            "{arguments:?}: {}",
            finished.err
        );
    }
    let answer = home
        .run(&["ask", "--json", "--to", &file, CAPITAL])
        .await
        .json();
    assert_eq!(
        answer["content"][0]["text"],
        "The capital of France is Paris."
    );

    let log = home.path("interactions.log");
    let text = fs::read_to_string(&log).unwrap();
    assert!(
        text.contains(r#""printed":"The capital of France is Paris.""#),
        "{text}"
    );
    assert_eq!(
        fs::metadata(&log).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// Goal: who talks about patients is told that nothing is remembered. Method: an agent of that class, its memory.
#[tokio::test]
async fn clinical_data_is_not_remembered() {
    let home = Home::new();
    let text = "[node]\nname = \"c\"\n[[agent]]\nkind = \"orchestrator\"\nid = \"c\"\nclass = \"clinical\"\n";
    let finished = piped(&home, &[&home.write("c.toml", text)], &[":memory"]).await;
    let told = "🧠 Nothing is remembered here: what is said is clinical\n";
    assert_eq!(
        (finished.code, &*finished.out),
        (Some(0), told),
        "{}",
        finished.err
    );
}

/// Goal: there is no dead end. Method: mistakes of every kind; each says what to do next, and the REPL goes on.
#[tokio::test]
async fn mistakes_lead_on() {
    let home = Home::new();
    let long = format!(":task {}", "é".repeat(300));
    let lines = [
        ":conect localhost:1",
        ":disconnect",
        ":remote hello",
        ":tool echo hello",
        ":tool nothing",
        ":task nothing",
        &long,
        ":memoryTask nothing",
        ":connect 7",
        ":stop",
        "list servers",
        "connect the dots for me",
        "exit",
    ];
    let finished = piped(&home, &[], &lines).await.with(0, "");
    finished.has(&[
        "❌ There is no command :conect: did you mean :connect?\n❌ Not connected: use :connect URL\n❌ Not connected: use",
        "❌ The parameters of a tool are a JSON object, for example {\"format\":\"simple\"}\n",
        "(there are: echo, ",
        &format!("❌ There is no task {}… (:tasks lists them)\n", "é".repeat(200)),
        "❌ There is no task nothing (:tasks lists them)\n",
        "❌ There is no sent task nothing (:memory lists the sent tasks)\n",
        "❌ Failed to connect to 7: there is no agent of that number: :servers lists them\n",
        "❌ Not listening (:listen PORT begins it)\n",
        "📡 No servers are known yet (:connect URL)\n",
    ]);
    assert_eq!(finished.out.matches("Failed to connect to").count(), 1);
}
