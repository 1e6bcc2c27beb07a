//! TCP connection that lets other connections have their turn.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;

/// Maximum number of bytes that a connection reads before others have their turn. Without it, a client
/// that sends faster than the server reads, such as one whose body is refused and read to its end,
/// occupies a worker thread for milliseconds at a time. Fixed.
const READ_TURN_BYTES_MAX: usize = 64 * 1024;

/// Number of operations that are more than tokio lets a task do in one turn.
const TASK_BUDGET_MAX: usize = 1_024;

/// TCP connection whose reads pause after [`READ_TURN_BYTES_MAX`].
pub(super) struct PacedStream {
    tcp: TcpStream,
    /// Number of bytes that were read in this turn.
    read: usize,
}

impl PacedStream {
    pub fn new(tcp: TcpStream) -> Self {
        Self { tcp, read: 0 }
    }

    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

/// Ends the turn of the running task, and has it polled again after the others. Its budget is used up,
/// so that a caller that reads again at once (actix, discarding the rest of a refused body) gets nothing
/// before that.
fn end_turn(cx: &mut Context<'_>) {
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
            self.read = 0;
            end_turn(cx);
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.tcp).poll_read(cx, buffer);
        if polled.is_pending() {
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
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use tokio::io::AsyncWriteExt;

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
}
