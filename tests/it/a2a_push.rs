use std::fs;

use serde_json::{Value, json};

use crate::kit::gateway::{A2A, NODE, end, serve};
use crate::kit::{Home, a2a, soon};
use crate::played::Played;

/// So many looks take longer than a test waits where nobody pushes: their pauses grow to seconds.
const LOOKS: usize = 60;

fn task(state: &str) -> Value {
    let artifacts = json!([{ "artifactId": "a", "parts": [{ "text": "a cat" }] }]);
    let artifacts = if state == "TASK_STATE_COMPLETED" {
        artifacts
    } else {
        json!([])
    };
    json!({ "id": "t", "contextId": "c", "status": { "state": state }, "artifacts": artifacts })
}

/// Status of a post to where an agent was told to push.
async fn push(base: &str, config: &Value, token: Option<&str>) -> u16 {
    let path = config["url"]
        .as_str()
        .unwrap()
        .strip_prefix("http://node.example")
        .unwrap();
    let post = reqwest::Client::new()
        .post(format!("{base}{path}"))
        .body("{}");
    let post = post.header("content-type", "application/a2a+json");
    let post = token.into_iter().fold(post, |post, token| {
        post.header("x-a2a-notification-token", token)
    });
    soon("an answer", post.send())
        .await
        .unwrap()
        .status()
        .as_u16()
}

/// Goal: an agent that doesn't stream is told where to push, and its pushes, by its token alone, are what makes the node look.
/// Method: a caller over A2A of an agent that the test plays; it pushes after each look, and more often than anybody would look
/// who isn't told; other tokens, other ids, and the same after the end.
#[tokio::test]
async fn pushes_make_the_node_look() {
    let home = Home::new();
    let mut far = Played::at("").await;
    let agent = format!(
        "[[agent]]\nkind = \"a2a\"\nid = \"far\"\nurl = \"{}\"\npush_url = \"http://node.example/\"\n",
        far.url
    );
    let file = home.write("n.toml", &format!("{NODE}{agent}{A2A}"));
    let (running, listening) = serve(&home, &[&file]).await;
    let url = listening[0].1.clone();
    let base = url.strip_suffix("/a2a").unwrap().to_owned();

    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "draw" }] });
    let asked =
        tokio::spawn(
            async move { a2a::ask(&url, "SendMessage", json!({ "message": message })).await },
        );
    let capabilities = json!({ "streaming": false, "pushNotifications": true });
    let card = a2a::card("far", &format!("{}/a2a", far.url), capabilities, json!([]));
    far.skips = |hit| hit.method == "GET" && hit.target != "/.well-known/agent-card.json";
    let mut hit = far.hit().await;
    while hit.method == "GET" {
        hit.json(200, &card).await;
        hit = far.hit().await;
    }
    assert_eq!(hit.body["method"], "SendMessage", "{}", hit.text);
    hit.result(json!({ "task": task("TASK_STATE_WORKING") }))
        .await;
    let hit = far.expect("CreateTaskPushNotificationConfig").await;
    let config = hit.body["params"].clone();
    assert_eq!(config["taskId"], "t");
    hit.result(config.clone()).await;
    let token = config["token"].as_str();

    far.expect("GetTask")
        .await
        .result(task("TASK_STATE_WORKING"))
        .await;
    let elsewhere = json!({ "url": "http://node.example/a2a-push/other" });
    for (config, token) in [
        (&config, None),
        (&config, Some("other")),
        (&elsewhere, token),
    ] {
        assert_eq!(push(&base, config, token).await, 404);
    }
    let looks = async {
        for _ in 0..LOOKS {
            assert_eq!(push(&base, &config, token).await, 204);
            far.expect("GetTask")
                .await
                .result(task("TASK_STATE_WORKING"))
                .await;
        }
    };
    soon("the looks", looks).await;
    assert_eq!(push(&base, &config, token).await, 204);
    far.expect("GetTask")
        .await
        .result(task("TASK_STATE_COMPLETED"))
        .await;
    assert_eq!(a2a::said(&soon("the call", asked).await.unwrap()), "a cat");
    assert_eq!(push(&base, &config, token).await, 404);
    let said = fs::read_to_string(home.path("stderr")).unwrap();
    assert!(!said.contains(token.unwrap()), "the token is logged");
    end(running, &home).await;
}
