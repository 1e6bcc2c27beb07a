//! A2A types: input that one dialect reads is unchanged after it was written and read again, and is
//! readable in every other.

use callboard_a2a::wire::{SendMessageResponse, StreamResponse, WireType};
use callboard_a2a::{A2aError, Dialect};
use callboard_rpc::{DecodeLimits, check_json};
use serde_json::value::RawValue;

const DIALECTS: [Dialect; 4] = [Dialect::V10, Dialect::V03, Dialect::V03Rest, Dialect::V01];
/// Maximum length of an error's text, in characters: it can't grow with the input.
const ERROR_CHARS_MAX: usize = 400;

/// Reads the bytes as the parameters of each operation.
pub fn request(bytes: &[u8]) {
    let Some(raw) = raw(bytes) else { return };
    let params = Some(&*raw);
    for dialect in DIALECTS {
        if let Some(sent) = read(dialect.read_send(params)) {
            assert!(!sent.message.parts.is_empty() && !sent.message.message_id.is_empty());
            for other in DIALECTS {
                let again = other
                    .read_send(Some(&other.write_send(&sent)))
                    .expect("what is written is a request");
                assert_eq!(again.message.parts.len(), sent.message.parts.len());
            }
            stable(&sent);
        }
        let _ = (
            read(dialect.read_get(params)),
            read(dialect.read_cancel(params)),
            read(dialect.read_subscribe(params)),
        );
        let _ = (
            read(dialect.read_push_list(params)),
            read(dialect.read_push_delete(params)),
        );
        read(dialect.read_list(params)).iter().for_each(stable);
        if let Some(config) = read(dialect.read_push_create(params, None)) {
            stable(&config);
            for other in DIALECTS
                .into_iter()
                .filter(|_| !config.task_id.contains('/') && !config.id.contains('/'))
            {
                let again = other.read_push_create(Some(&other.write_push_config(&config)), None);
                assert_eq!(
                    again.expect("what is written is a configuration").task_id,
                    config.task_id
                );
            }
        }
        if let Some(get) = read(dialect.read_push_get(params)) {
            assert!(!get.task_id.is_empty());
        }
    }
}

/// Reads the bytes as the response of a server.
pub fn answer(bytes: &[u8]) {
    let Some(raw) = raw(bytes) else { return };
    for dialect in DIALECTS {
        if let Some(task) = read(dialect.read_task(&raw)) {
            stable(&task);
            for other in DIALECTS {
                let again = other
                    .read_task(&other.write_task(&task))
                    .expect("what is written is a task");
                assert_eq!(
                    (again.id, again.artifacts.map(|all| all.len())),
                    (task.id.clone(), counted(&task.artifacts))
                );
            }
        }
        if let Some(event) = read(dialect.read_event(&raw)) {
            stable(&event);
            // A message of 0.1 is read as a task, which requires an id.
            let is_bare = matches!(&event, StreamResponse::Message(m) if m.message_id.is_empty() && m.task_id.is_empty());
            for other in DIALECTS
                .into_iter()
                .filter(|other| !(is_bare && *other == Dialect::V01))
            {
                other
                    .read_event(&other.event_writer().write(&event, true))
                    .expect("what is written is an event");
            }
        }
        if let Some(response) = read(dialect.read_send_response(&raw)) {
            assert!(matches!(
                response,
                SendMessageResponse::Task(_) | SendMessageResponse::Message(_)
            ));
            stable(&response);
        }
        read(dialect.read_task_list(&raw)).iter().for_each(stable);
    }
    for status in [400, 404, 500] {
        if let Some(error) = Dialect::read_http_error(status, &raw) {
            let _ = Dialect::V10.write_error(&error);
        }
    }
}

/// Reads the bytes as an agent card.
pub fn card(bytes: &[u8]) {
    let Some(raw) = raw(bytes) else { return };
    let Some(card) = read(Dialect::read_card(&raw)) else {
        return;
    };
    stable(&card);
    let hybrid =
        Dialect::read_card(&Dialect::write_hybrid_card(&card)).expect("a hybrid is a card");
    assert_eq!(hybrid.skills.len(), card.skills.len());
    assert!(hybrid.supported_interfaces.len() >= card.supported_interfaces.len());
    for dialect in DIALECTS {
        let again =
            Dialect::read_card(&dialect.write_card(&card)).expect("what is written is a card");
        assert_eq!(again.name, card.name);
    }
}

/// Checks the bytes and returns them as raw JSON, as servers and clients do.
fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = check_json(bytes, &DecodeLimits::default()).ok()?;
    Some(RawValue::from_string(text.to_owned()).expect("it was checked"))
}

fn read<T>(read: Result<T, A2aError>) -> Option<T> {
    read.map_err(|error| assert!(error.message.len() < ERROR_CHARS_MAX))
        .ok()
}

fn stable<T: WireType>(value: &T) {
    let written = value.to_json();
    let again = T::from_raw(&value.to_raw()).expect("what is written is read");
    assert_eq!(again.to_json(), written);
}

fn counted<T>(list: &Option<Vec<T>>) -> Option<usize> {
    list.as_ref().map(Vec::len)
}
