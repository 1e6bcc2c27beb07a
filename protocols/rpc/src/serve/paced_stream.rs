//! TCP connection that lets other connections have their turn.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes that a connection reads before others have their turn. Without it, a client
/// that sends faster than the server reads, such as one whose body is refused and read to its end,
/// occupies a worker thread for milliseconds at a time. Fixed.
const READ_TURN_BYTES_MAX: usize = 64 * 1024;

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

impl AsyncRead for PacedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= READ_TURN_BYTES_MAX {
            self.read = 0;
            cx.waker().wake_by_ref();
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
    use std::rc::Rc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Goal: a connection with much to read lets other tasks run in between, after the limit and not before,
    /// and loses nothing. Method: a client sends sixteen turns' worth before anything is read; the reads that
    /// happened each time another task had its turn.
    #[tokio::test(flavor = "current_thread")]
    async fn others_have_their_turn() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let sent: Vec<u8> = (0..16 * READ_TURN_BYTES_MAX).map(|n| n as u8).collect();
        let expected = sent.clone();
        let sending = async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
        };
        let (read, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let reading = async {
            let mut stream = PacedStream::new(stream);
            let (mut all, mut chunk) = (Vec::new(), vec![0; 8 * 1024]);
            loop {
                let count = stream.read(&mut chunk).await.unwrap();
                if count == 0 {
                    return all;
                }
                all.extend_from_slice(&chunk[..count]);
                read.set(read.get() + count);
            }
        };
        let watching = async {
            loop {
                most.set(most.get().max(read.take()));
                tokio::task::yield_now().await;
            }
        };
        let (all, ()) = tokio::select! {
            biased;
            done = async { tokio::join!(reading, sending) } => done,
            () = watching => unreachable!(),
        };
        assert_eq!(all, expected);
        let most = most.get();
        assert!(
            (1..READ_TURN_BYTES_MAX + 8 * 1024).contains(&most),
            "{most} bytes in one turn"
        );
    }
}
