use std::time::UNIX_EPOCH;

use callboard_runtime::Note;

use super::config::{Kept, key, parts_of, space};

/// As 0.1 keeps a configuration.
const KEPT: &str = r#"{"config":{"id":"c","taskId":"t","url":"https://a.example/hook","token":"secret","authentication":{"scheme":"Bearer","credentials":"of it"}},"version":"1.0","delivered":3,"givenUp":false,"node":"n"}"#;

/// Goal: receivers that an earlier version kept are posted to by every later one. Method: a note of that version, there and
/// back; where it is.
#[test]
fn kept_configurations_stay() {
    let body = serde_json::from_str(KEPT).unwrap();
    let note = Note {
        key: "t\u{1}c".to_owned(),
        version: 1,
        at: UNIX_EPOCH,
        body,
    };
    let kept = Kept::of(&note).unwrap();
    assert_eq!(kept.to_body().to_raw().get(), KEPT);
    let (task, config) = parts_of(&note.key).unwrap();
    assert_eq!(
        (key(&task, config), space("a")),
        (note.key, "a2a-push/a".to_owned())
    );
}
