//! TCP connection that lets other connections have their turn.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;
use tokio::time::{Instant, Sleep, sleep_until};

use super::ConnectionOrigin;

/// Maximum number of bytes that a connection reads before others have their turn. Without it, a client
/// that sends faster than the server reads, such as one whose body is refused and read to its end,
/// occupies a worker thread for milliseconds at a time. Fixed.
pub(super) const READ_TURN_BYTES_MAX: usize = 64 * 1024;

/// Number of operations that are more than tokio lets a task do in one turn.
const TASK_BUDGET_MAX: usize = 1_024;

/// Time that a worker thread leaves between two turns in which it reads what it will discard, of all its
/// connections: 16 MiB a second. More would take the processor from those who are served. Fixed.
const DISCARD_INTERVAL: Duration = Duration::from_millis(4);

/// Maximum time that a connection waits for its turn to discard. Turns of connections that have gone meanwhile
/// stay reserved, so that the wait had no bound otherwise. Fixed.
const DISCARD_WAIT_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// Time of the last turn to discard that is reserved on this worker thread.
    static LAST_DISCARD: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Mark of a connection whose newest response is a refusal: what is left of the request's body is read
/// only to be discarded. Clones share the mark.
#[derive(Clone, Default)]
pub(super) struct RefusalMark(Rc<Cell<bool>>);

impl RefusalMark {
    /// Sets or removes the mark.
    pub fn set(&self, is_refused: bool) {
        self.0.set(is_refused);
    }
}

/// TCP connection whose reads pause after [`READ_TURN_BYTES_MAX`].
pub(super) struct PacedStream {
    tcp: TcpStream,
    /// Origin of the connection; `None` until it was set.
    origin: Option<ConnectionOrigin>,
    /// Number of bytes that were read in this turn.
    read: usize,
    refused: RefusalMark,
    /// Pause until the next turn that discards.
    pause: Option<Pin<Box<Sleep>>>,
}

impl PacedStream {
    pub fn new(tcp: TcpStream) -> Self {
        Self {
            tcp,
            origin: None,
            read: 0,
            refused: RefusalMark::default(),
            pause: None,
        }
    }

    pub fn refusal_mark(&self) -> RefusalMark {
        self.refused.clone()
    }

    /// Ends this turn, until the other connections had theirs; of a refused one, until the thread's next turn to discard.
    fn end_turn(&mut self, cx: &mut Context<'_>) {
        self.read = 0;
        if !self.refused.0.get() {
            return yield_turn(cx);
        }
        let now = Instant::now();
        let last = LAST_DISCARD.take().map_or(now, |last| last.max(now));
        let turn = (last + DISCARD_INTERVAL).min(now + DISCARD_WAIT_MAX);
        LAST_DISCARD.set(Some(turn));
        self.pause = Some(Box::pin(sleep_until(turn)));
    }

    /// Returns the origin of the connection; `None` until it was set.
    pub fn origin(&self) -> Option<ConnectionOrigin> {
        self.origin
    }

    /// Sets the origin of the connection.
    pub fn set_origin(&mut self, origin: ConnectionOrigin) {
        self.origin = Some(origin);
    }

    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

/// Ends the turn of the running task, and has it polled again after the others. Its budget is used up,
/// so that a caller that reads again at once (actix, discarding the rest of a refused body) gets nothing
/// before that.
fn yield_turn(cx: &mut Context<'_>) {
    for _ in 0..TASK_BUDGET_MAX {
        match poll_proceed(cx) {
            Poll::Ready(used) => used.made_progress(),
            // It wakes the task after the others had their turn.
            Poll::Pending => return,
        }
    }
    cx.waker().wake_by_ref();
}

impl AsyncRead for PacedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= READ_TURN_BYTES_MAX {
            self.end_turn(cx);
            if self.pause.is_none() {
                return Poll::Pending;
            }
        }
        if !self.refused.0.get() {
            self.pause = None;
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.tcp).poll_read(cx, buffer);
        if polled.is_pending() && !self.refused.0.get() {
            self.read = 0;
        }
        ready!(polled)?;
        self.read += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PacedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Goal: a connection with much to read lets other tasks run in between, after the limit and not before,
    /// and loses nothing, even if its reader reads again at once. Method: a client sends sixteen turns' worth;
    /// the bytes that were read each time another task had its turn.
    #[tokio::test(flavor = "current_thread")]
    async fn others_have_their_turn() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let sent: Vec<u8> = (0..16 * READ_TURN_BYTES_MAX).map(|n| n as u8).collect();
        let expected = sent.clone();
        let sending = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
        });
        let (read, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let reading = async {
            let mut stream = PacedStream::new(stream);
            let (mut all, mut chunk) = (Vec::new(), vec![0; 8 * 1024]);
            // As impatient as actix is while it discards a body: a pause is followed by another read.
            poll_fn(|cx| {
                let mut pauses = 0;
                loop {
                    let mut buffer = ReadBuf::new(&mut chunk);
                    match Pin::new(&mut stream).poll_read(cx, &mut buffer) {
                        Poll::Pending if pauses == 2 => return Poll::Pending,
                        Poll::Pending => pauses += 1,
                        Poll::Ready(done) => {
                            done.unwrap();
                            if buffer.filled().is_empty() {
                                return Poll::Ready(());
                            }
                            all.extend_from_slice(buffer.filled());
                            read.set(read.get() + buffer.filled().len());
                        }
                    }
                }
            })
            .await;
            all
        };
        let watching = async {
            loop {
                most.set(most.get().max(read.take()));
                tokio::task::yield_now().await;
            }
        };
        let all = tokio::select! {
            biased;
            all = reading => all,
            () = watching => unreachable!(),
        };
        sending.await.unwrap();
        assert_eq!(all, expected);
        let most = most.get();
        assert!(
            (1..READ_TURN_BYTES_MAX + 8 * 1024).contains(&most),
            "{most} bytes in one turn"
        );
    }

    /// Goal: what is discarded is read at most at the thread's rate, by all its connections together, and what
    /// isn't refused is not slowed down. Method: paused time; two connections with eight turns' worth each.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn discarding_has_a_rate() {
        const TURNS: usize = 8;
        for is_refused in [false, true] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let read_all = async || {
                let mut client = TcpStream::connect(address).await.unwrap();
                let (stream, _) = listener.accept().await.unwrap();
                let sending = tokio::spawn(async move {
                    let bytes = vec![0; TURNS * READ_TURN_BYTES_MAX];
                    client.write_all(&bytes).await.unwrap();
                });
                let mut stream = PacedStream::new(stream);
                stream.refusal_mark().set(is_refused);
                let (mut read, mut chunk) = (0, vec![0; 8 * 1024]);
                loop {
                    match stream.read(&mut chunk).await.unwrap() {
                        0 => break,
                        more => read += more,
                    }
                }
                sending.await.unwrap();
                read
            };
            let start = Instant::now();
            let read = tokio::join!(read_all(), read_all());
            assert_eq!(
                read,
                (TURNS * READ_TURN_BYTES_MAX, TURNS * READ_TURN_BYTES_MAX)
            );
            let least = DISCARD_INTERVAL * (2 * TURNS - 2) as u32;
            match is_refused {
                true => assert!(start.elapsed() >= least, "{:?}", start.elapsed()),
                false => assert!(start.elapsed() < DISCARD_INTERVAL, "{:?}", start.elapsed()),
            }
        }
    }
}
