use serde_json::{Value, json};

use crate::kit::gateway::serve;
use crate::kit::{Home, Running, a2a, soon};

/// A model that says what was written down: for each point by its code and how the request begins, then for all others.
const ANSWERS: [(&str, &str); 26] = [
    (
        "[NP1] Vague",
        "CLARITY: NEEDS_CLARIFY\nQUESTION: \"Which city?\"",
    ),
    ("[NP1] Garbled", "hm, let me see"),
    ("[NP1]", "CLARITY: CLEAR"),
    ("[NP2.A] Six", "SHOULD_DECOMPOSE: YES\nREASON: \"many\""),
    ("[NP2.A] Extra", "SHOULD_DECOMPOSE: YES\nREASON: \"many\""),
    ("[NP2.A] Circle", "SHOULD_DECOMPOSE: YES\nREASON: \"many\""),
    ("[NP2.A] Doubtful", "SHOULD_DECOMPOSE: YES\nREASON: \"two\""),
    ("[NP2.A] Certain", "SHOULD_DECOMPOSE: YES\nREASON: \"two\""),
    (
        "[NP2.A]",
        "SHOULD_DECOMPOSE: NO\nREASON: \"one tool does it\"",
    ),
    ("[NP2.B] Six", SIX),
    ("[NP2.B] Extra", EXTRA),
    ("[NP2.B] Circle", CIRCLE),
    ("[NP2.B]", TWO),
    ("[DP2] Ghostly", "REMOTE: ghost"),
    ("[DP2] Help me break in", "REJECT: No break-ins."),
    ("[DP2]", "LOCAL"),
    ("[DP3] Jumbled", "not json"),
    (
        "[DP3] What is",
        r#"{"tool_name":"llm","params":{"text":"What is the capital of France?"}}"#,
    ),
    (
        "[DP3] Vague",
        r#"{"tool_name":"echo","params":{"text":"Lisbon it is"}}"#,
    ),
    (
        "[DP3]",
        r#"{"tool_name":"echo","params":{"text":"said again"}}"#,
    ),
    ("[DP4] What is", "The capital of France is Paris."),
    ("[DP4]", "written by the model"),
    (
        "[NP4] Doubtful",
        r#"{"final_answer":"both are said","confidence":0.39}"#,
    ),
    (
        "[NP4]",
        r#"{"final_answer":"both are said","confidence":0.40}"#,
    ),
    (
        "[NP5]",
        "CONFIRMATION: CONFIRM_NEEDED\nJUSTIFICATION: \"not sure\"",
    ),
    ("", "nothing was written down for this"),
];

const SIX: &str = r#"[{"id":"a","input_message":"x","metadata":{"depends_on":[]}},{"id":"b","input_message":"x","metadata":{"depends_on":[]}},{"id":"c","input_message":"x","metadata":{"depends_on":[]}},{"id":"d","input_message":"x","metadata":{"depends_on":[]}},{"id":"e","input_message":"x","metadata":{"depends_on":[]}},{"id":"f","input_message":"x","metadata":{"depends_on":[]}}]"#;
const EXTRA: &str = r#"[{"id":"a","input_message":"x","why":"y","metadata":{"depends_on":[]}},{"id":"b","input_message":"x","metadata":{"depends_on":["a"]}}]"#;
const CIRCLE: &str = r#"[{"id":"a","input_message":"x","metadata":{"depends_on":["b"]}},{"id":"b","input_message":"x","metadata":{"depends_on":["a"]}}]"#;
const TWO: &str = r#"[{"id":"one","input_message":"Say one","metadata":{"depends_on":[]}},{"id":"two","input_message":"Say two","metadata":{"depends_on":["one"]}}]"#;

/// First line of a confirmation question.
const CONFIRM: &str = "⚠️ Planned action needs your confirmation…";

/// A node with one orchestrator, as its A2A address.
struct Served {
    _process: Running,
    url: String,
}

impl Served {
    async fn start(home: &Home) -> Self {
        let answers: Vec<_> = ANSWERS
            .iter()
            .map(|(when, text)| json!({ "when": when, "text": text }))
            .collect();
        let topology = json!({
            "node": { "name": "wire" },
            "agent": [
                { "kind": "model", "provider": "scripted", "id": "script", "answers": answers },
                { "kind": "orchestrator", "id": "helper", "name": "The Helper", "description": "Helps.", "model": "script" },
            ],
            "listener": [{ "protocol": "a2a", "bind": "127.0.0.1:0", "agent": "helper", "anonymous": "operator" }],
        });
        // JSON is YAML.
        let file = home.write("wire.yaml", &topology.to_string());
        let (process, mut listening) = serve(home, &[&file]).await;
        Self {
            _process: process,
            url: listening.remove(0).1,
        }
    }

    async fn post(&self, version: &str, method: &str, params: Value) -> Value {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let request = reqwest::Client::new()
            .post(&self.url)
            .header("content-type", "application/json");
        let request = if version.is_empty() {
            request
        } else {
            request.header("a2a-version", version)
        };
        let mut answer = a2a::response(request.body(body)).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].take()
    }

    /// Says something in A2A 1.0, as a part of `task` where there is one; the task.
    async fn say(&self, text: &str, task: Option<&Value>) -> Value {
        let key = format!("m-{}", rand::random::<u64>());
        let mut message =
            json!({ "messageId": key, "role": "ROLE_USER", "parts": [{ "text": text }] });
        if let Some(task) = task {
            message["taskId"] = task["id"].clone();
            message["contextId"] = task["contextId"].clone();
        }
        let mut said = self
            .post("1.0", "SendMessage", json!({ "message": message }))
            .await;
        assert!(said["task"].is_object(), "{said}");
        said["task"].take()
    }

    /// The text that a request, said in A2A 1.0, is answered with.
    async fn answer(&self, text: &str) -> String {
        let task = self.say(text, None).await;
        assert_eq!(state(&task), "TASK_STATE_COMPLETED", "{text}: {task}");
        texts(&task)
    }
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

/// Returns the text of a task's status.
fn status_text(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

/// The texts of a task's artifacts.
fn texts(task: &Value) -> String {
    let parts = task["artifacts"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|artifact| artifact["parts"].as_array());
    parts
        .flatten()
        .filter_map(|part| part["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Goal (T-B7): a vague request is asked about, in the very words of the question, before anything is chosen, in every version
/// of A2A; the answer goes on to an answer. Method: the request in 1.0, 0.3 and 0.1; the task's state, message and artifacts; the
/// answer in 1.0.
/// Rows: B-44, B-59.
#[tokio::test]
async fn a_vague_request_is_asked_about() {
    let home = Home::new();
    let served = Served::start(&home).await;
    let task = served.say("Vague task", None).await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("TASK_STATE_INPUT_REQUIRED", "Which city?"),
        "{task}"
    );
    assert_eq!(texts(&task), "");
    let done = served.say("Lisbon", Some(&task)).await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{done}");
    assert!(texts(&done).contains("Lisbon it is"), "{done}");

    let parts = |kind: &str| json!([{ kind: "text", "text": "Vague task" }]);
    let message =
        json!({ "kind": "message", "messageId": "m3", "role": "user", "parts": parts("kind") });
    let old = served
        .post("", "message/send", json!({ "message": message }))
        .await;
    assert_eq!(
        (state(&old), status_text(&old)),
        ("input-required", "Which city?"),
        "{old}"
    );
    let message = json!({ "role": "user", "parts": parts("type") });
    let oldest = served
        .post("", "tasks/send", json!({ "id": "t0", "message": message }))
        .await;
    assert_eq!(
        (state(&oldest), status_text(&oldest)),
        ("input-required", "Which city?"),
        "{oldest}"
    );
}

/// Goal (T-B8 to T-B11): what a model says that can't be used is never an answer, and never an end: each point goes on as it is
/// written down. Method: NP1 without an answer; plans of six steps, with another key, in a circle; an agent that nobody knows; a
/// tool that isn't JSON. What the requests are answered with.
#[tokio::test]
async fn what_a_model_gets_wrong_is_gone_around() {
    let home = Home::new();
    let served = Served::start(&home).await;
    for (request, expect) in [
        ("Garbled task", "said again"),
        ("Six steps of a task", "said again"),
        ("Extra keys in a task", "said again"),
        ("Circle of a task", "said again"),
        ("Ghostly task", "written by the model"),
        ("Jumbled task", "written by the model"),
    ] {
        let answer = served.answer(request).await;
        assert!(answer.contains(expect), "{request}: {answer}");
        assert!(
            !answer.contains("nothing was written down"),
            "{request}: {answer}"
        );
    }
}

/// Goal (T-B13): an answer of 0.39 has to be confirmed, one of 0.40 hasn't; confirmed, it is the artifact `final_answer`, and
/// declined it is nobody's. Method: a plan of two steps, put together with either; yes and no.
/// Rows: B-73, B-74, B-78.
#[tokio::test]
async fn an_unsure_answer_has_to_be_confirmed() {
    let home = Home::new();
    let served = Served::start(&home).await;
    let certain = served.say("Certain request", None).await;
    assert_eq!(state(&certain), "TASK_STATE_COMPLETED", "{certain}");
    let is_final = |artifact: &Value| {
        artifact["name"] == "final_answer" && artifact["parts"][0]["text"] == "both are said"
    };
    assert!(
        certain["artifacts"]
            .as_array()
            .unwrap()
            .iter()
            .any(is_final),
        "{certain}"
    );
    for (answer, ended) in [
        ("yes", "TASK_STATE_COMPLETED"),
        ("no", "TASK_STATE_CANCELED"),
    ] {
        let task = served.say("Doubtful request", None).await;
        assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED", "{task}");
        assert_eq!(status_text(&task).lines().next(), Some(CONFIRM), "{task}");
        let done = served.say(answer, Some(&task)).await;
        assert_eq!(state(&done), ended, "{done}");
        let finals = done["artifacts"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|artifact| is_final(artifact))
            .count();
        assert_eq!(finals, usize::from(answer == "yes"), "{done}");
    }
}

/// Goal (T-B14): `tasks/send` of the oldest A2A has its answer in its own words, and the same task is there for the newest. Method:
/// the document's request; `GetTask` in 1.0.
/// Rows: B-43, X-26.
#[tokio::test]
async fn the_oldest_words_still_work() {
    let home = Home::new();
    let served = Served::start(&home).await;
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "What is the capital of France?" }] });
    let task = served
        .post("", "tasks/send", json!({ "id": "t1", "message": message }))
        .await;
    assert_eq!(
        (&task["id"], state(&task)),
        (&json!("t1"), "completed"),
        "{task}"
    );
    assert!(
        task.to_string().contains("The capital of France is Paris."),
        "{task}"
    );
    let same = served.post("1.0", "GetTask", json!({ "id": "t1" })).await;
    assert_eq!(
        (&same["id"], state(&same)),
        (&json!("t1"), "TASK_STATE_COMPLETED"),
        "{same}"
    );
}

/// Goal: a refusal gives its reason as it is in the newest A2A, and as the document has it in the oldest; the card has the names
/// that the file gives. Method: a refused request in both; the card.
/// Rows: B-4, B-52, X-27.
#[tokio::test]
async fn a_refusal_and_the_card() {
    let home = Home::new();
    let served = Served::start(&home).await;
    let task = served.say("Help me break in", None).await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("TASK_STATE_REJECTED", "No break-ins."),
        "{task}"
    );
    let message =
        json!({ "role": "user", "parts": [{ "type": "text", "text": "Help me break in" }] });
    let old = served
        .post("", "tasks/send", json!({ "id": "t2", "message": message }))
        .await;
    assert_eq!(
        (state(&old), status_text(&old)),
        ("failed", "Task rejected: No break-ins."),
        "{old}"
    );
    let url = served.url.replace("/a2a", "/.well-known/agent-card.json");
    let card = soon("a card", async {
        reqwest::get(&url).await.unwrap().text().await.unwrap()
    })
    .await;
    let card: Value = serde_json::from_str(&card).unwrap();
    assert_eq!(
        (&card["name"], &card["description"]),
        (&json!("The Helper"), &json!("Helps.")),
        "{card}"
    );
}
