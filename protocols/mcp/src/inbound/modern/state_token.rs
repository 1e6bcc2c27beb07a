use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::Principal;
use hmac::{Hmac, Mac};
use parking_lot::Mutex;
use rand::Rng;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::inbound::request::McpRequest;

/// Time after which the signing key is replaced. States signed with the previous key are still
/// accepted, so this must exceed the lifetime of every state.
const KEY_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// Content of a `requestState`, which identifies the suspended call that a retry resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestState {
    pub call: [u8; 16],
    /// Round of questions that the retry answers, counted from 1.
    pub round: u32,
    /// Expiry in milliseconds since the endpoint started.
    pub expires_ms: u64,
}

/// Hash of a principal and a request. A `requestState` is valid only for the binding it was signed
/// with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateBinding([u8; 32]);

impl StateBinding {
    /// Hashes the principal's kind and id, what data its credential opens, the method, and the params
    /// that define the call: name and arguments, URI, or messages. The order of object members doesn't
    /// matter.
    pub fn new(principal: &Principal, request: &McpRequest) -> Self {
        let mut hash = Sha256::new();
        for text in [
            &*format!("{:?}", principal.kind),
            &principal.id,
            &request.name,
        ] {
            hash_text(&mut hash, text);
        }
        let params: Value = request
            .params
            .raw()
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        // Missing arguments count as empty.
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
            hash_value(&mut hash, member.unwrap_or(&Value::Null));
        }
        for scope in principal.data_scopes() {
            hash_text(&mut hash, scope);
        }
        Self(hash.finalize().into())
    }
}

fn hash_text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

fn hash_value(hash: &mut Sha256, of: &Value) {
    match of {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            hash.update([b'{']);
            hash.update((names.len() as u64).to_be_bytes());
            for name in names {
                hash_text(hash, name);
                hash_value(hash, members.get(name).unwrap_or(&Value::Null));
            }
        }
        Value::Array(items) => {
            hash.update([b'[']);
            hash.update((items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| hash_value(hash, item));
        }
        scalar => {
            hash.update([b'v']);
            hash_text(hash, &scalar.to_string());
        }
    }
}

/// Signer of `requestState` tokens with HMAC-SHA256. A token is valid for its [`StateBinding`]
/// only.
pub(crate) struct StateSigner {
    keys: Mutex<HmacKeys>,
}

struct HmacKeys {
    current: HmacKey,
    previous: Option<HmacKey>,
    rotated_at: Instant,
}

type HmacKey = [u8; 32];

const MAC_BYTES: usize = 32;
const STATE_BYTES: usize = 28;

impl StateSigner {
    pub fn new() -> Self {
        Self {
            keys: Mutex::new(HmacKeys {
                current: random_bytes(),
                previous: None,
                rotated_at: Instant::now(),
            }),
        }
    }

    /// Replaces the signing key. States signed with the previous key stay valid; older ones become
    /// invalid.
    pub fn rotate(&self) {
        let mut keys = self.keys.lock();
        keys.previous = Some(std::mem::replace(&mut keys.current, random_bytes()));
        keys.rotated_at = Instant::now();
    }

    pub fn sign(&self, state: RequestState, binding: &StateBinding) -> String {
        let due = self.keys.lock().rotated_at.elapsed() > KEY_LIFETIME;
        if due {
            self.rotate();
        }
        let RequestState {
            call,
            round,
            expires_ms,
        } = state;
        let mut sealed = [&call[..], &round.to_be_bytes(), &expires_ms.to_be_bytes()].concat();
        if let Some(mac) = mac(&self.keys.lock().current, &sealed, binding) {
            sealed.extend_from_slice(&mac.finalize().into_bytes());
        }
        URL_SAFE_NO_PAD.encode(sealed)
    }

    /// Returns the state in the token `text`; `None` unless this signer signed it for this binding.
    /// The state may have expired. Signatures are compared in constant time.
    pub fn verify(&self, text: &str, binding: &StateBinding) -> Option<RequestState> {
        let sealed = URL_SAFE_NO_PAD
            .decode(text)
            .ok()
            .filter(|sealed| sealed.len() == STATE_BYTES + MAC_BYTES)?;
        let (state, tag) = sealed.split_at_checked(STATE_BYTES)?;
        let keys = self.keys.lock();
        let of = |key: &HmacKey| {
            mac(key, state, binding).is_some_and(|mac| mac.verify_slice(tag).is_ok())
        };
        (of(&keys.current) || keys.previous.as_ref().is_some_and(of)).then_some(())?;
        Some(RequestState {
            call: state.get(..16)?.try_into().ok()?,
            round: u32::from_be_bytes(state.get(16..20)?.try_into().ok()?),
            expires_ms: u64::from_be_bytes(state.get(20..)?.try_into().ok()?),
        })
    }
}

/// Returns the HMAC of a state and its binding. `None` never occurs, because HMAC accepts keys of
/// any length.
fn mac(key: &HmacKey, state: &[u8], binding: &StateBinding) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(b"callboard requestState 1");
    mac.update(state);
    mac.update(&binding.0);
    Some(mac)
}

/// Returns cryptographically random bytes.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn binding(id: &str, method: &str, params: Value) -> StateBinding {
        let params = serde_json::value::to_raw_value(&params).unwrap();
        StateBinding::new(
            &Principal::agent(id),
            &McpRequest::new(method, Some(params)),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        /// Goal: only the endpoint can write a state. Method: flips each bit of the text; other
        /// texts at random.
        #[test]
        fn a_state_with_any_bit_flipped_is_refused(call: [u8; 16], round: u32, expires_ms: u64, other in "\\PC{0,100}") {
            let (seal, state) = (StateSigner::new(), RequestState { call, round, expires_ms });
            let binding = binding("a", "tools/call", json!({ "name": "t" }));
            let text = seal.sign(state, &binding);
            prop_assert_eq!(seal.verify(&text, &binding), Some(state));
            for bit in 0..text.len() * 8 {
                let mut bytes = text.clone().into_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(flipped) = String::from_utf8(bytes) {
                    prop_assert_eq!(seal.verify(&flipped, &binding), None);
                }
            }
            for wrong in [&text[1..], &text[..text.len() - 1], &format!("{text}A"), &format!("{text}-TAMPERED"), &other] {
                prop_assert_eq!(seal.verify(wrong, &binding), None);
            }
        }
    }

    /// Goal: a state is valid for its principal, method and params only. Method: one difference at
    /// a time.
    #[test]
    fn a_state_is_good_for_its_binding_only() {
        let seal = StateSigner::new();
        let own = binding(
            "a",
            "tools/call",
            json!({ "name": "t", "arguments": { "x": 1, "y": [2, { "z": null }] } }),
        );
        let text = seal.sign(
            RequestState {
                call: [7; 16],
                round: 1,
                expires_ms: 1,
            },
            &own,
        );
        let reordered = json!({ "arguments": { "y": [2, { "z": null }], "x": 1 }, "name": "t", "requestState": "s" });
        assert!(
            seal.verify(&text, &binding("a", "tools/call", reordered))
                .is_some()
        );
        let params =
            |x: i32| json!({ "name": "t", "arguments": { "x": x, "y": [2, { "z": null }] } });
        assert!(
            seal.verify(&text, &binding("b", "tools/call", params(1)))
                .is_none()
        );
        assert!(
            seal.verify(&text, &binding("a", "prompts/get", params(1)))
                .is_none()
        );
        assert!(
            seal.verify(&text, &binding("a", "tools/call", params(2)))
                .is_none()
        );
        assert!(
            seal.verify(
                &text,
                &binding("a", "tools/call", json!({ "name": "u", "arguments": {} }))
            )
            .is_none()
        );
        let of_patient = |patient: &str| {
            let params = serde_json::value::to_raw_value(&params(1)).unwrap();
            let mut principal = Principal::agent("a");
            principal.scopes = vec!["other".into(), format!("patient:{patient}")];
            StateBinding::new(&principal, &McpRequest::new("tools/call", Some(params)))
        };
        assert!(seal.verify(&text, &of_patient("PT1")).is_none());
        assert!(of_patient("PT1") != of_patient("PT2") && of_patient("PT1") == of_patient("PT1"));
        assert!(
            binding("a", "tools/call", json!({ "name": "t" }))
                == binding("a", "tools/call", json!({ "name": "t", "arguments": {} }))
        );
    }

    /// Goal: keys rotate without breaking running calls, and old ones expire. Method: one rotation,
    /// then another.
    #[test]
    fn keys_rotate() {
        let (seal, own) = (StateSigner::new(), binding("a", "tools/call", json!({})));
        let text = seal.sign(
            RequestState {
                call: [7; 16],
                round: 1,
                expires_ms: 1,
            },
            &own,
        );
        seal.rotate();
        assert!(seal.verify(&text, &own).is_some());
        seal.rotate();
        assert!(seal.verify(&text, &own).is_none());
        assert!(StateSigner::new().verify(&text, &own).is_none());
    }
}
