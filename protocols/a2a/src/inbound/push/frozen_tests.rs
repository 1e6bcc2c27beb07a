use std::time::UNIX_EPOCH;

use callboard_runtime::KvEntry;

use super::config::{StoredPushConfig, config_key, parse_config_key, push_namespace};

/// A configuration as stored by callboard 0.1.
const KEPT: &str = r#"{"config":{"id":"c","taskId":"t","url":"https://a.example/hook","token":"secret","authentication":{"scheme":"Bearer","credentials":"of it"}},"version":"1.0","delivered":3,"givenUp":false,"node":"n"}"#;

/// Goal: configurations stored by an earlier version work in every later one. Method: an entry of
/// that version, there and back; its key and namespace.
#[test]
fn kept_configurations_stay() {
    let body = serde_json::from_str(KEPT).unwrap();
    let note = KvEntry {
        key: "t\u{1}c".to_owned(),
        version: 1,
        at: UNIX_EPOCH,
        body,
    };
    let kept = StoredPushConfig::from_note(&note).unwrap();
    assert_eq!(kept.to_body().to_raw().get(), KEPT);
    let (task, config) = parse_config_key(&note.key).unwrap();
    assert_eq!(
        (config_key(&task, config), push_namespace("a")),
        (note.key, "a2a-push/a".to_owned())
    );
}
