//! Where remote agents may push, so that tasks without a stream needn't be looked at so often.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use rand::RngCore;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use tokio::sync::Notify;
use url::Url;

/// Most calls that wait for a push at once; more look at their tasks only.
/// At the limit: more only look.
const PUSHES_EXPECTED_MAX: usize = 4_096;

/// Where remote agents may push. A push says nothing but that it is time to look at a task; its clones are one.
#[derive(Clone)]
pub struct PushInbox(Arc<Inner>);

struct Inner {
    base: Url,
    expected: Mutex<HashMap<String, (SecretString, Arc<Notify>)>>,
}

/// A push that a call waits for. Dropped, it isn't expected any more.
pub(super) struct Expected {
    inbox: PushInbox,
    id: String,
    pub(super) url: Url,
    pub(super) token: SecretString,
    arrived: Arc<Notify>,
}

impl PushInbox {
    /// Pushes arrive at `base`, and an id: whoever takes requests there hands them to [`deliver`](Self::deliver).
    pub fn new(base: Url) -> Self {
        Self(Arc::new(Inner {
            base,
            expected: Mutex::default(),
        }))
    }

    /// A push has arrived at `{base}/{id}`, with this `X-A2A-Notification-Token`. Whether it was expected, and its token is
    /// the one that was given.
    pub fn deliver(&self, id: &str, token: Option<&str>) -> bool {
        let expected = self.0.expected.lock();
        let Some((given, arrived)) = expected.get(id) else {
            return false;
        };
        let is_given = given
            .expose_secret()
            .as_bytes()
            .ct_eq(token.unwrap_or_default().as_bytes());
        if bool::from(is_given) {
            arrived.notify_one();
        }
        is_given.into()
    }

    /// Expects a push; `None` where too many are.
    pub(super) fn expect(&self) -> Option<Expected> {
        let (id, token) = (random(), SecretString::from(random()));
        let mut url = self.0.base.clone();
        url.path_segments_mut().ok()?.pop_if_empty().push(&id);
        let arrived = Arc::<Notify>::default();
        let mut expected = self.0.expected.lock();
        if expected.len() == PUSHES_EXPECTED_MAX {
            return None;
        }
        expected.insert(id.clone(), (token.clone(), arrived.clone()));
        drop(expected);
        Some(Expected {
            inbox: self.clone(),
            id,
            url,
            token,
            arrived,
        })
    }
}

impl Expected {
    /// Ends with the next push, at once where one came since the last.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.inbox.0.expected.lock().remove(&self.id);
    }
}

/// 128 random bits.
fn random() -> String {
    let mut bits = [0; 16];
    rand::rng().fill_bytes(&mut bits);
    URL_SAFE_NO_PAD.encode(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn inbox() -> PushInbox {
        PushInbox::new("https://here.example/a2a-push".parse().unwrap())
    }

    /// Goal: only who was given the token wakes the call, and nobody once it is over. Method: other tokens, other ids, the
    /// right ones, and again after the end.
    #[test]
    fn pushes_need_their_token() {
        let inbox = inbox();
        let expected = inbox.expect().unwrap();
        let id = expected
            .url
            .path()
            .strip_prefix("/a2a-push/")
            .unwrap()
            .to_owned();
        let token = expected.token.expose_secret().to_owned();
        for (id, token) in [
            (&*id, None),
            (&*id, Some("other")),
            (&*id, Some("")),
            ("other", Some(&*token)),
        ] {
            assert!(!inbox.deliver(id, token));
        }
        assert!(expected.arrived().now_or_never().is_none());
        assert!(inbox.deliver(&id, Some(&token)));
        assert!(expected.arrived().now_or_never().is_some());
        drop(expected);
        assert!(!inbox.deliver(&id, Some(&token)));
    }

    /// Goal: what is expected is bounded. Method: the bound, one more, and one after another has gone.
    #[test]
    fn expectations_are_bounded() {
        let inbox = inbox();
        let mut all: Vec<_> = (0..PUSHES_EXPECTED_MAX)
            .map(|_| inbox.expect().unwrap())
            .collect();
        assert!(inbox.expect().is_none());
        all.pop();
        assert!(inbox.expect().is_some());
    }
}
