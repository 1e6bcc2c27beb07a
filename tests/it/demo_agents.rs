use crate::kit::{Home, soon};

/// Goal: three agents find one another in one command, and nothing is left of them, also where it is interrupted. Method:
/// run it, each step has to be as it should; run it again and interrupt it; no process or folder stays.
#[tokio::test]
async fn three_agents_find_one_another() {
    let home = Home::new();
    let finished = home.run(&["demo", "agents"]).await;
    assert_eq!(finished.code, Some(0), "{}\n{}", finished.out, finished.err);
    assert!(!finished.out.contains('✘'), "{}", finished.out);
    for line in [
        r#"{"id": "bidirectional-agent-3", "name": "Agent Three"}"#,
        "The current weather in Paris is sunny with a temperature of 22°C (72°F).",
        "Task rejected: I cannot assist with illegal activities",
        "✔ started again, it still knows both",
        "The agents have ended",
    ] {
        assert!(finished.out.contains(line), "{line:?} in {}", finished.out);
    }
    home.swept().await;

    // In one test, for both want the same ports.
    let home = Home::new();
    let mut running = home.start(&["demo", "agents"]);
    running.line_with("Agent One").await;
    running.signal("INT").await;
    let finished = soon("the end of the demo", running.finished()).await;
    assert_eq!(finished.code, Some(4), "{}", finished.err);
    home.swept().await;
}
