use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::Principal;
use hmac::{Hmac, Mac};
use parking_lot::Mutex;
use rand::RngCore;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::inbound::request::Request;

/// How long one key seals. The one before it still opens, so it must outlast every state.
const KEY_LIFE: Duration = Duration::from_secs(24 * 3_600);

/// Which parked call a client means: what `requestState` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub call: [u8; 16],
    /// Which questions of the call, counted from 1.
    pub round: u32,
    /// When it expires, in milliseconds since the endpoint began.
    pub expires_ms: u64,
}

/// Whom and what a state is good for: the principal and the request that it was given to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding([u8; 32]);

impl Binding {
    /// Of the params those that are the method's own: name and arguments, or URI, or messages. However an object's members are ordered it is the same.
    pub fn of(principal: &Principal, request: &Request) -> Self {
        let mut hash = Sha256::new();
        for text in [
            &*format!("{:?}", principal.kind),
            &principal.id,
            &request.name,
        ] {
            put(&mut hash, text);
        }
        let params: Value = request
            .params
            .raw()
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        // Whoever says nothing of arguments means none.
        let arguments = params
            .get("arguments")
            .filter(|a| !a.is_null())
            .cloned()
            .unwrap_or_else(|| Value::Object(Default::default()));
        for member in [
            params.get("name"),
            params.get("uri"),
            params.get("messages"),
            Some(&arguments),
        ] {
            value(&mut hash, member.unwrap_or(&Value::Null));
        }
        Self(hash.finalize().into())
    }
}

fn put(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

fn value(hash: &mut Sha256, of: &Value) {
    match of {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            hash.update([b'{']);
            hash.update((names.len() as u64).to_be_bytes());
            for name in names {
                put(hash, name);
                value(hash, members.get(name).unwrap_or(&Value::Null));
            }
        }
        Value::Array(items) => {
            hash.update([b'[']);
            hash.update((items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| value(hash, item));
        }
        scalar => {
            hash.update([b'v']);
            put(hash, &scalar.to_string());
        }
    }
}

/// Writes and reads `requestState`: nobody else can write one, and it is good for its binding only.
pub(crate) struct Seal {
    keys: Mutex<Keys>,
}

struct Keys {
    now: Key,
    before: Option<Key>,
    since: Instant,
}

type Key = [u8; 32];

const MAC_BYTES: usize = 32;
const STATE_BYTES: usize = 28;

impl Seal {
    pub fn new() -> Self {
        Self {
            keys: Mutex::new(Keys {
                now: random(),
                before: None,
                since: Instant::now(),
            }),
        }
    }

    /// Takes a fresh key. What the last one sealed still opens, what the one before it sealed doesn't.
    pub fn rotate(&self) {
        let mut keys = self.keys.lock();
        keys.before = Some(std::mem::replace(&mut keys.now, random()));
        keys.since = Instant::now();
    }

    pub fn seal(&self, state: State, binding: &Binding) -> String {
        let due = self.keys.lock().since.elapsed() > KEY_LIFE;
        if due {
            self.rotate();
        }
        let State {
            call,
            round,
            expires_ms,
        } = state;
        let mut sealed = [&call[..], &round.to_be_bytes(), &expires_ms.to_be_bytes()].concat();
        if let Some(mac) = mac(&self.keys.lock().now, &sealed, binding) {
            sealed.extend_from_slice(&mac.finalize().into_bytes());
        }
        URL_SAFE_NO_PAD.encode(sealed)
    }

    /// The state, where this endpoint wrote it for this binding; it may have expired. Compares in constant time.
    pub fn open(&self, text: &str, binding: &Binding) -> Option<State> {
        let sealed = URL_SAFE_NO_PAD
            .decode(text)
            .ok()
            .filter(|sealed| sealed.len() == STATE_BYTES + MAC_BYTES)?;
        let (state, tag) = sealed.split_at_checked(STATE_BYTES)?;
        let keys = self.keys.lock();
        let of =
            |key: &Key| mac(key, state, binding).is_some_and(|mac| mac.verify_slice(tag).is_ok());
        (of(&keys.now) || keys.before.as_ref().is_some_and(of)).then_some(())?;
        Some(State {
            call: state.get(..16)?.try_into().ok()?,
            round: u32::from_be_bytes(state.get(16..20)?.try_into().ok()?),
            expires_ms: u64::from_be_bytes(state.get(20..)?.try_into().ok()?),
        })
    }
}

/// A key of any length makes one; the `None` is never met.
fn mac(key: &Key, state: &[u8], binding: &Binding) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(b"callboard requestState 1");
    mac.update(state);
    mac.update(&binding.0);
    Some(mac)
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn binding(id: &str, method: &str, params: Value) -> Binding {
        let params = serde_json::value::to_raw_value(&params).unwrap();
        Binding::of(&Principal::agent(id), &Request::new(method, Some(params)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        /// Goal: nobody writes a state but the endpoint. Method: flips each bit of the text; other texts at random.
        #[test]
        fn a_state_with_any_bit_flipped_is_refused(call: [u8; 16], round: u32, expires_ms: u64, other in "\\PC{0,100}") {
            let (seal, state) = (Seal::new(), State { call, round, expires_ms });
            let binding = binding("a", "tools/call", json!({ "name": "t" }));
            let text = seal.seal(state, &binding);
            prop_assert_eq!(seal.open(&text, &binding), Some(state));
            for bit in 0..text.len() * 8 {
                let mut bytes = text.clone().into_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(flipped) = String::from_utf8(bytes) {
                    prop_assert_eq!(seal.open(&flipped, &binding), None);
                }
            }
            for wrong in [&text[1..], &text[..text.len() - 1], &format!("{text}A"), &format!("{text}-TAMPERED"), &other] {
                prop_assert_eq!(seal.open(wrong, &binding), None);
            }
        }
    }

    /// Goal: a state is good for its principal, method and params only. Method: one difference at a time.
    #[test]
    fn a_state_is_good_for_its_binding_only() {
        let seal = Seal::new();
        let own = binding(
            "a",
            "tools/call",
            json!({ "name": "t", "arguments": { "x": 1, "y": [2, { "z": null }] } }),
        );
        let text = seal.seal(
            State {
                call: [7; 16],
                round: 1,
                expires_ms: 1,
            },
            &own,
        );
        let reordered = json!({ "arguments": { "y": [2, { "z": null }], "x": 1 }, "name": "t", "requestState": "s" });
        assert!(
            seal.open(&text, &binding("a", "tools/call", reordered))
                .is_some()
        );
        let params =
            |x: i32| json!({ "name": "t", "arguments": { "x": x, "y": [2, { "z": null }] } });
        assert!(
            seal.open(&text, &binding("b", "tools/call", params(1)))
                .is_none()
        );
        assert!(
            seal.open(&text, &binding("a", "prompts/get", params(1)))
                .is_none()
        );
        assert!(
            seal.open(&text, &binding("a", "tools/call", params(2)))
                .is_none()
        );
        assert!(
            seal.open(
                &text,
                &binding("a", "tools/call", json!({ "name": "u", "arguments": {} }))
            )
            .is_none()
        );
        assert!(
            binding("a", "tools/call", json!({ "name": "t" }))
                == binding("a", "tools/call", json!({ "name": "t", "arguments": {} }))
        );
    }

    /// Goal: keys change without breaking calls under way, and old ones end. Method: one turn, then another.
    #[test]
    fn keys_rotate() {
        let (seal, own) = (Seal::new(), binding("a", "tools/call", json!({})));
        let text = seal.seal(
            State {
                call: [7; 16],
                round: 1,
                expires_ms: 1,
            },
            &own,
        );
        seal.rotate();
        assert!(seal.open(&text, &own).is_some());
        seal.rotate();
        assert!(seal.open(&text, &own).is_none());
        assert!(Seal::new().open(&text, &own).is_none());
    }
}
