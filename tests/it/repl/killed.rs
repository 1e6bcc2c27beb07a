//! Tasks of a REPL that is killed, and their continuation.

use crate::kit::Home;
use crate::repl::pty::{Terminal, free_ports};
use crate::repl::serving;

/// Agent whose plan says hello and then asks a person. It also asks for clarification.
const AGENT: &str = r#"
experimental_clarification = true
experimental_decomposition = true

[server]
port = PORT
agent_id = "NAME"
agent_name = "NAME"

[mode]
repl = true

[tools]
enabled = ["echo", "llm", "list_agents", "remember_agent", "human_input"]

[scripted]
answers = [
    { when = "[NP1] What's the weather?", text = "CLARITY: NEEDS_CLARIFY\nQUESTION: \"Which city?\"" },
    { when = "[NP1]", text = "CLARITY: CLEAR" },
    { when = "[NP2.A] Prepare the trip", text = "SHOULD_DECOMPOSE: YES\nREASON: \"two things\"" },
    { when = "[NP2.A]", text = "SHOULD_DECOMPOSE: NO\nREASON: \"one thing\"" },
    { when = "[NP2.B]", text = '[{"id": "greet", "input_message": "say hello", "metadata": {"depends_on": []}}, {"id": "hotel", "input_message": "ask for the hotel", "metadata": {"depends_on": ["greet"]}}]' },
    { when = "[DP2]", text = "LOCAL" },
    { when = "[DP3] say hello", text = '{"tool_name": "echo", "params": {"text": "hello"}}' },
    { when = "[DP3] ask for the hotel", text = '{"tool_name": "human_input", "params": {"question": "Which hotel?"}}' },
    { when = "[NP4]", text = '{"final_answer": "The trip is prepared.", "confidence": 0.9}' },
    { text = "Yes." },
]
"#;

fn file(home: &Home, name: &str, port: u16) -> String {
    home.write(
        &format!("{name}.toml"),
        &AGENT
            .replace("NAME", name)
            .replace("PORT", &port.to_string()),
    )
}

/// Goal: a REPL that is killed in the midst of a plan goes on with it when it is started again, what it knew and what was typed
/// is there, and what it was sending to another agent is remembered. Method: kill -9 while a plan's step asks, and while an agent
/// elsewhere does; what is shown of the plan while it runs, its question answered, the directory, the memory, the last line.
#[tokio::test(flavor = "multi_thread")]
async fn killed_it_goes_on() {
    let (home, other) = (Home::new(), Home::new());
    let [ours, theirs] = free_ports();
    let _remote = serving(&other, &file(&other, "remote", theirs)).await;
    let file = file(&home, "killed", ours);
    tokio::task::spawn_blocking(move || {
        let connected = "✅ Successfully connected to agent: remote\n";
        let mut terminal = Terminal::start(&home, &[&file], "xterm");
        terminal.sees("agent> ");
        terminal.goes(&[
            (&format!(":connect localhost:{theirs}"), &[connected]),
            ("Prepare the trip", &["❓ Which hotel?\n", "> "]),
        ]);
        terminal.kill();

        let mut terminal = Terminal::start(&home, &[&file], "xterm");
        terminal.sees("🔔 Task ");
        let id = terminal.sees(" goes on\n");
        terminal.sees(&format!("🔔 Task {id} asks: Which hotel? (:answer {id})\n"));
        let steps = "Steps:\n  greet (Completed, by echo) say hello\n    hello\n  hotel (InputRequired, by human_input) ask \
                     for the hotel\n    Asks: Which hotel? Results of earlier steps: - greet: hello\n";
        let artifacts = format!("📦 Artifacts of task {id} (1):\n\n1. step greet (by echo)\nhello\n");
        terminal.goes(&[
            (&format!(":task {id}"), &["Status: InputRequired\n", steps]),
            (&format!(":artifacts {id}"), &[&artifacts]),
            (&format!(":answer {id}"), &["❓ Which hotel?\n", "> "]),
            ("The Ritz", &["🤖 Agent response:\nThe trip is prepared.\n"]),
            (":connect 1", &[connected]),
            (":remote What's the weather?", &["❓ Which city?\n", "> "]),
        ]);
        terminal.kill();

        let mut terminal = Terminal::start(&home, &[&file], "xterm");
        terminal.sees("agent> ");
        terminal.repeats();
        terminal.sees("❌ Not connected: use :connect URL\n");
        let memory = "🧠 Rolling Memory (1 outgoing requests):\n\n1. Task ID: ";
        terminal.goes(&[
            (":memory", &[memory, " (Status: Working)\n   Request: What's the weather?\n"]),
            (":tasks all", &[&format!("Task ID: {id} (Status: Completed)\n")]),
            (":quit", &[]),
        ]);
        terminal.ends();
    })
    .await
    .unwrap();
}
