//! Buffered bytes of a listener's requests and responses, counted in its [`BufferBudget`].
//!
//! [`BufferBudget`]: crate::BufferBudget

use std::error::Error as StdError;
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::{HttpMessage, HttpRequest};
use bytes::Bytes;
use callboard_message::Principal;
use parking_lot::Mutex;

use super::client_address::client_address;
use crate::{
    BufferAccount, BufferOwner, BufferReservation, BuffersFull, ClosableBuffer, ListenerBuffers,
    ReaderReservation, UNCOUNTED_REQUEST_BYTES_MAX,
};

/// Maximum size of the parts in which a response is written, in bytes. The server copies a part to
/// its own buffer, and takes the next one when the client has read enough.
const RESPONSE_PART_BYTES_MAX: usize = 64 * 1024;

/// Records the principal of a request, whose share its bytes count in.
pub(crate) fn record_owner(request: &HttpRequest, principal: &Principal) {
    if let Some(buffers) = request.app_data::<ListenerBuffers>() {
        let peer = client_address(request);
        let owner = buffers.budget().owner(Some(principal), peer);
        request.extensions_mut().insert(owner);
    }
}

/// Returns the account that the bytes of a request, and of streams to its client, count for: that
/// of its principal, or of its address before it was authenticated. `None` if its listener has no
/// budget.
pub fn account_of(request: &HttpRequest) -> Option<BufferAccount> {
    let buffers = request.app_data::<ListenerBuffers>()?;
    let known = request.extensions().get::<BufferOwner>().copied();
    let owner = known.unwrap_or_else(|| {
        let peer = client_address(request);
        buffers.budget().owner(None, peer)
    });
    Some(buffers.account(owner))
}

/// Body of a request. Its bytes count for its client until it is dropped.
#[derive(Debug)]
pub struct RequestBody {
    bytes: Vec<u8>,
    held: Option<BufferReservation>,
    /// Declared or maximum size, in bytes.
    bytes_max: usize,
}

impl RequestBody {
    /// Creates an empty body, which may become as large as `bytes_max`.
    pub(super) fn new(request: &HttpRequest, room: usize, bytes_max: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(room),
            held: account_of(request).map(|account| account.reservation()),
            bytes_max,
        }
    }

    /// Appends a part of the body.
    ///
    /// # Errors
    /// [`BuffersFull`] if the budget doesn't allow it.
    pub(super) fn push(&mut self, part: &[u8]) -> Result<(), BuffersFull> {
        let needed = self.bytes.len() + part.len();
        if needed > self.bytes.capacity() {
            let doubled = (2 * self.bytes.capacity()).min(self.bytes_max);
            let capacity = doubled.max(needed);
            if let Some(held) = &mut self.held {
                held.resize(capacity)?;
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Returns the bytes. They count for the client as long as a clone of them exists.
    pub fn freeze(self) -> Bytes {
        match &self.held {
            Some(held) if held.bytes() > 0 => Bytes::from_owner(self),
            _ => Bytes::from(self.bytes),
        }
    }
}

impl Deref for RequestBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for RequestBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts the body of a response until its client has read it. A body that can't be larger than a
/// small request doesn't count.
pub(super) fn count_response(response: ServiceResponse) -> ServiceResponse {
    let is_small = match response.response().body().size() {
        BodySize::None => true,
        BodySize::Sized(bytes) => bytes <= UNCOUNTED_REQUEST_BYTES_MAX as u64,
        BodySize::Stream => false,
    };
    if is_small {
        return response;
    }
    let Some(account) = account_of(response.request()) else {
        return response;
    };
    response.map_body(|_, body| {
        let unread = UnreadChunk::new(&account);
        BoxBody::new(CountedBody { body, unread })
    })
}

/// Response body that passes large chunks on in parts, as fast as the client reads.
struct CountedBody {
    body: BoxBody,
    unread: Arc<UnreadChunk>,
}

/// Large chunk of a response that is passed on in parts, and counts for its client until the last one
/// is taken.
pub struct UnreadChunk {
    bytes: Mutex<UnreadBytes>,
    held: ReaderReservation,
}

#[derive(Default)]
struct UnreadBytes {
    rest: Bytes,
    /// Size of the whole chunk, which stays in memory until its last part is written.
    chunk_bytes: usize,
    is_closed: bool,
}

impl UnreadChunk {
    /// Creates an empty one that counts for the client of `account`.
    pub fn new(account: &BufferAccount) -> Arc<Self> {
        Arc::new_cyclic(|unread: &Weak<Self>| Self {
            bytes: Mutex::default(),
            held: account.reader(unread.clone()),
        })
    }

    fn track(&self) {
        self.held.track(|| self.buffered_bytes());
    }

    /// Returns the first part of a chunk, and keeps the rest. A small chunk is its only part, and doesn't
    /// count. The previous chunk must have been taken whole.
    pub fn put(&self, chunk: Bytes) -> Option<io::Result<Bytes>> {
        if chunk.len() <= RESPONSE_PART_BYTES_MAX {
            return Some(Ok(chunk));
        }
        {
            let mut unread = self.bytes.lock();
            unread.chunk_bytes = chunk.len();
            unread.rest = chunk;
        }
        self.track();
        self.next_part()
    }

    /// Returns the next part of the present chunk, at most 64 KiB; `None` if there is none.
    ///
    /// # Errors
    /// [`ConnectionAborted`](io::ErrorKind::ConnectionAborted) if the budget has closed it for the
    /// memory of others.
    pub fn next_part(&self) -> Option<io::Result<Bytes>> {
        let mut unread = self.bytes.lock();
        if unread.is_closed {
            return Some(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if unread.rest.is_empty() {
            return None;
        }
        let bytes = unread.rest.len().min(RESPONSE_PART_BYTES_MAX);
        let part = unread.rest.split_to(bytes);
        if unread.rest.is_empty() {
            unread.chunk_bytes = 0;
            drop(unread);
            self.track();
        }
        Some(Ok(part))
    }
}

impl ClosableBuffer for UnreadChunk {
    fn buffered_bytes(&self) -> usize {
        self.bytes.lock().chunk_bytes
    }

    fn close_buffer(&self) {
        let closed = UnreadBytes {
            is_closed: true,
            ..UnreadBytes::default()
        };
        // Dropped without the lock, because the bytes may be those of a request, which count.
        let unread = std::mem::replace(&mut *self.bytes.lock(), closed);
        drop(unread);
    }
}

impl MessageBody for CountedBody {
    type Error = Box<dyn StdError>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        let part = match this.unread.next_part() {
            Some(part) => Some(part),
            None => match ready!(Pin::new(&mut this.body).poll_next(cx)) {
                Some(Ok(chunk)) => this.unread.put(chunk),
                other => return Poll::Ready(other),
            },
        };
        Poll::Ready(part.map(|part| part.map_err(Into::into)))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::HttpResponse;
    use actix_web::test::TestRequest;
    use futures::task::noop_waker_ref;

    use super::*;
    use crate::{BufferBudget, BufferLimits};

    const MAX: usize = 1_000_000;

    fn budget() -> BufferBudget {
        BufferBudget::new(BufferLimits {
            bytes_max: MAX,
            principal_percent: 25,
        })
    }

    fn response(buffers: &ListenerBuffers, body: Vec<u8>) -> BoxBody {
        let request = TestRequest::default()
            .app_data(buffers.clone())
            .to_srv_request();
        let response = request.into_response(HttpResponse::Ok().body(body));
        count_response(response).into_body()
    }

    fn next(body: &mut BoxBody) -> Option<Result<Bytes, ()>> {
        match Pin::new(body).poll_next(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Ready(part) => part.map(|part| part.map_err(|_| ())),
            Poll::Pending => panic!("the body waits"),
        }
    }

    /// Goal: a large response comes whole, in parts, with its length, and counts until its last part
    /// is taken; a small one doesn't count. Method: sizes around the limits.
    #[test]
    fn responses_count_until_read() {
        let budget = budget();
        let buffers = budget.listener();
        for bytes in [
            0,
            UNCOUNTED_REQUEST_BYTES_MAX,
            RESPONSE_PART_BYTES_MAX,
            RESPONSE_PART_BYTES_MAX + 1,
            300_000,
        ] {
            let whole: Vec<u8> = (0..bytes).map(|nth| nth as u8).collect();
            let mut body = response(&buffers, whole.clone());
            assert_eq!(body.size(), BodySize::Sized(bytes as u64));
            let mut read = Vec::new();
            while read.len() < bytes {
                let part = next(&mut body).unwrap().unwrap();
                assert!(part.len() <= RESPONSE_PART_BYTES_MAX);
                read.extend_from_slice(&part);
                let is_counted = bytes > RESPONSE_PART_BYTES_MAX && read.len() < bytes;
                assert_eq!(budget.used_bytes() >= bytes.max(1), is_counted, "{bytes}");
            }
            assert!(next(&mut body).is_none());
            assert_eq!(read, whole);
        }
        assert_eq!(budget.used_bytes(), 0);
    }

    /// Goal: a response over the budget ends with an error after what was sent, and its memory is
    /// free at once; dropping one releases it. Method: two responses that aren't read.
    #[test]
    fn unread_responses_are_closed() {
        let budget = budget();
        let buffers = budget.listener();
        let mut large = response(&buffers, vec![b'x'; 400_000]);
        let mut other = response(&buffers, vec![b'x'; 200_000]);
        next(&mut large).unwrap().unwrap();
        assert!(budget.used_bytes() >= 400_000);
        next(&mut other).unwrap().unwrap();
        assert!(budget.used_bytes() < 250_000);
        assert_eq!(next(&mut large), Some(Err(())));
        assert!(next(&mut other).unwrap().is_ok());
        drop(other);
        assert_eq!(budget.used_bytes(), 0);
    }

    /// Goal: a body reserves its memory before it takes it, at most what it declares, and as long
    /// as its bytes exist. Method: a body in parts, then one byte over a share.
    #[test]
    fn bodies_count_until_dropped() {
        let budget = budget();
        let request = TestRequest::default()
            .app_data(budget.listener())
            .to_http_request();
        let mut body = RequestBody::new(&request, UNCOUNTED_REQUEST_BYTES_MAX, 100_000);
        body.push(&[b'x'; UNCOUNTED_REQUEST_BYTES_MAX]).unwrap();
        assert_eq!(budget.used_bytes(), 0);
        for _ in 0..83_616 / 8 {
            body.push(&[b'x'; 8]).unwrap();
        }
        assert_eq!((body.len(), body.bytes.capacity()), (100_000, 100_000));
        assert_eq!(budget.used_bytes(), 100_000);
        let part = body.freeze().slice(..10);
        assert_eq!(budget.used_bytes(), 100_000);
        drop(part);
        assert_eq!(budget.used_bytes(), 0);
        let mut body = RequestBody::new(&request, 0, MAX);
        body.push(&vec![b'x'; MAX / 2]).unwrap();
        assert!(body.push(b"x").is_err());
        assert_eq!((body.len(), budget.used_bytes()), (MAX / 2, MAX / 2));
    }
}
