//! A message to which the agent asks something back, with nobody there.

use crate::kit::Home;
use crate::repl::pty::free_ports;

/// Agent whose plans produce an answer that needs confirmation.
const DOUBTFUL: &str = r#"
experimental_decomposition = true

[server]
port = PORT

[tools]
enabled = ["echo"]

[scripted]
answers = [
    { when = "[NP2.A]", text = "SHOULD_DECOMPOSE: YES\nREASON: \"two things\"" },
    { when = "[NP2.B]", text = '[{"id": "a", "input_message": "say hello", "metadata": {"depends_on": []}}, {"id": "b", "input_message": "say bye", "metadata": {"depends_on": []}}]' },
    { when = "[DP2]", text = "LOCAL" },
    { when = "[DP3]", text = '{"tool_name": "echo", "params": {"text": "hello"}}' },
    { when = "[NP4]", text = '{"final_answer": "both are said", "confidence": 0.39}' },
    { when = "[NP5]", text = "CONFIRMATION: CONFIRM_NEEDED\nJUSTIFICATION: \"not sure\"" },
]
"#;

/// Goal: who can't be asked still sees what would be asked: the answer that has to be confirmed. Method: a doubtful answer, nobody
/// at the terminal; standard error, and the exit code that says so.
#[tokio::test]
async fn the_question_is_shown() {
    let home = Home::new();
    let [port] = free_ports();
    let file = home.write(
        "doubtful.toml",
        &DOUBTFUL.replace("PORT", &port.to_string()),
    );
    let sent = home
        .run(&["ask", "--to", &file, "Say hello and then say bye to all"])
        .await
        .printing(5, "");
    assert!(
        sent.err
            .contains("Nobody is at the terminal to be asked: ⚠️"),
        "{}",
        sent.err
    );
    assert!(sent.err.contains("both are said"), "{}", sent.err);
}
