//! Receiver for push notifications from remote agents, so that tasks without a stream are polled
//! less often.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use rand::Rng;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use tokio::sync::Notify;
use url::Url;

/// Maximum number of calls that expect a push notification at once.
/// At the limit: further calls only poll.
const EXPECTED_PUSHES_MAX: usize = 4_096;

/// Receiver for push notifications from remote agents. A notification only triggers a poll of its
/// task; its content is ignored. Clones share their state.
#[derive(Clone)]
pub struct PushInbox(Arc<PushInboxState>);

struct PushInboxState {
    base: Url,
    expected: Mutex<HashMap<String, (SecretString, Arc<Notify>)>>,
}

/// Registration of one call for push notifications. It ends when this value is dropped.
pub(super) struct ExpectedPush {
    inbox: PushInbox,
    id: String,
    pub(super) url: Url,
    pub(super) token: SecretString,
    arrived: Arc<Notify>,
}

impl PushInbox {
    /// Creates a receiver for notifications at `{base}/{id}`. The HTTP server there must pass them
    /// to [`deliver`](Self::deliver).
    pub fn new(base: Url) -> Self {
        Self(Arc::new(PushInboxState {
            base,
            expected: Mutex::default(),
        }))
    }

    /// Delivers a notification that arrived at `{base}/{id}` with the header
    /// `X-A2A-Notification-Token`. Returns whether a call expects it and the token is correct.
    /// Tokens are compared in constant time.
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

    /// Registers for notifications with a new id and token; `None` if there are
    /// [`EXPECTED_PUSHES_MAX`] registrations, or the base URL can't have a path.
    pub(super) fn expect_push(&self) -> Option<ExpectedPush> {
        let (id, token) = (random_token(), SecretString::from(random_token()));
        let mut url = self.0.base.clone();
        url.path_segments_mut().ok()?.pop_if_empty().push(&id);
        let arrived = Arc::<Notify>::default();
        let mut expected = self.0.expected.lock();
        if expected.len() == EXPECTED_PUSHES_MAX {
            return None;
        }
        expected.insert(id.clone(), (token.clone(), arrived.clone()));
        drop(expected);
        Some(ExpectedPush {
            inbox: self.clone(),
            id,
            url,
            token,
            arrived,
        })
    }
}

impl ExpectedPush {
    /// Waits for the next notification. Returns at once if one has arrived since the previous wait.
    pub(super) async fn wait_for_push(&self) {
        self.arrived.notified().await;
    }
}

impl Drop for ExpectedPush {
    fn drop(&mut self) {
        self.inbox.0.expected.lock().remove(&self.id);
    }
}

/// Returns 128 random bits in base64url.
fn random_token() -> String {
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

    /// Goal: a call is woken only by its token, and not once it is over. Method: other tokens,
    /// other ids, the right ones, and again after the end.
    #[test]
    fn pushes_need_their_token() {
        let inbox = inbox();
        let expected = inbox.expect_push().unwrap();
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
        assert!(expected.wait_for_push().now_or_never().is_none());
        assert!(inbox.deliver(&id, Some(&token)));
        assert!(expected.wait_for_push().now_or_never().is_some());
        drop(expected);
        assert!(!inbox.deliver(&id, Some(&token)));
    }

    /// Goal: registrations are limited. Method: the limit, one more, and one after another has
    /// ended.
    #[test]
    fn expectations_are_bounded() {
        let inbox = inbox();
        let mut all: Vec<_> = (0..EXPECTED_PUSHES_MAX)
            .map(|_| inbox.expect_push().unwrap())
            .collect();
        assert!(inbox.expect_push().is_none());
        all.pop();
        assert!(inbox.expect_push().is_some());
    }
}
