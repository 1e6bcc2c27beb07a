use crate::kit::{Home, soon};

/// Goal: three agents find one another in one command, also where two such commands run at once, and nothing is left of them.
/// Method: start two, each step of both has to be as it should; no process or folder stays.
/// Rows: B-82.
#[tokio::test]
async fn three_agents_find_one_another() {
    let homes = [Home::new(), Home::new()];
    let [one, two] = homes.each_ref().map(|home| home.run(&["demo", "agents"]));
    let (one, two) = tokio::join!(one, two);
    for (home, finished) in homes.iter().zip([one, two]) {
        let finished = finished.with(0, "");
        assert!(!finished.out.contains('✘'), "{}", finished.out);
        finished.has(&[
            r#"{"id": "bidirectional-agent-3", "name": "Agent Three"}"#,
            "The current weather in Paris is sunny with a temperature of 22°C (72°F).",
            "Task rejected: I cannot assist with illegal activities",
            "✔ started again, it still knows both",
            "The agents have ended",
        ]);
        home.swept().await;
    }
}

/// Goal: where it is interrupted nothing is left. Method: interrupt it while the agents run; no process or folder stays.
#[tokio::test]
async fn an_interrupted_one_leaves_nothing() {
    let home = Home::new();
    let mut running = home.start(&["demo", "agents"]);
    running.line_with("Agent One").await;
    running.signal("INT").await;
    soon("the end of the demo", running.finished())
        .await
        .with(4, "");
    home.swept().await;
}
