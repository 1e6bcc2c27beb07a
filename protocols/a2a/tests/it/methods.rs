//! Which words a method and a version are, and the oldest ones read and written.

use callboard_a2a::wire::*;
use callboard_a2a::{Dialect, Operation};
use callboard_message::TaskState;
use serde_json::{Value, json};

use crate::samples::*;

/// Goal: the exchange of the oldest clients is read and written as they know it. Method: the request of the seed, the task
/// that it makes, in all words.
#[test]
fn tasks_send() {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": {"id": "t1", "message": {
        "role": "user", "parts": [{"type": "text", "text": "What is the capital of France?"}]}}});
    let (dialect, operation) = Dialect::of_method(request["method"].as_str().unwrap()).unwrap();
    assert_eq!((dialect, operation), (Dialect::V01, Operation::SendMessage));
    let read = dialect.read_send(Some(&of(&request["params"]))).unwrap();
    assert_eq!((&*read.message.task_id, read.message.role), ("t1", Role::User));
    assert_eq!(read.message.parts[0].as_text(), Some("What is the capital of France?"));
    assert!(!read.message.message_id.is_empty());
    let configuration = read.configuration.unwrap();
    assert_eq!((configuration.return_immediately, configuration.history_length), (false, Some(0)));

    let artifact = Artifact { artifact_id: "result".into(), parts: vec![Part::text("Paris")], ..Default::default() };
    let task = Task { artifacts: Some(vec![artifact]), ..Task::new("t1", "", TaskStatus::new(TaskState::Completed)) };
    let seen = |dialect: Dialect| serde_json::from_str::<Value>(dialect.write_task(&task).get()).unwrap();
    assert_eq!(
        seen(Dialect::V01),
        json!({"id": "t1", "status": {"state": "completed"}, "artifacts": [
            {"parts": [{"type": "text", "text": "Paris"}], "index": 0}]})
    );
    assert_eq!(seen(Dialect::V10)["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(Dialect::V03.as_begun(Operation::GetTask, Dialect::V01), Dialect::V01);
    assert_eq!(Dialect::V10.as_begun(Operation::GetTask, Dialect::V01), Dialect::V10);
}

/// Goal: every method of every version is somebody's. Method: names there and back, and versions as headers have them.
#[test]
fn methods_and_versions() {
    for dialect in [Dialect::V10, Dialect::V03, Dialect::V01] {
        for operation in Operation::ALL {
            let Some(method) = dialect.method(operation) else { continue };
            let (found, asked) = Dialect::of_method(method).unwrap();
            assert_eq!(asked, operation, "{method}");
            assert_eq!(found.as_begun(operation, dialect), dialect, "{method}");
        }
    }
    assert!(["", "tasks", "message/sent", "sendmessage"].iter().all(|method| Dialect::of_method(method).is_none()));
    for (version, dialect) in [
        ("1.0", Some(Dialect::V10)),
        (" 1.0.1 ", Some(Dialect::V10)),
        ("0.3", Some(Dialect::V03)),
        ("0.3.0", Some(Dialect::V03)),
        ("0.2.6", Some(Dialect::V03)),
        ("0.1", Some(Dialect::V01)),
        ("", None),
        ("1", Some(Dialect::V10)),
        ("v1.0", Some(Dialect::V10)),
        ("1.1", None),
        ("0", None),
        ("2.0", None),
        ("0.30", None),
    ] {
        assert_eq!(Dialect::of_version(version), dialect, "{version:?}");
        assert_eq!(Dialect::is_served(version), dialect.is_some() || version.is_empty());
    }
}
