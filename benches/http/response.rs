//! Reading an HTTP response with few instructions, so that the server is what limits. For the benches' own clients.

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Reads one response into `received`; where its body begins, and where it ends. It is sized, in chunks, or has no body.
pub async fn read(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<(usize, usize), String> {
    received.clear();
    loop {
        let read = stream.read_buf(received).await.map_err(|e| format!("can't receive: {e}"))?;
        if read == 0 {
            return Err(format!("closed after {}", String::from_utf8_lossy(received)));
        }
        let Some(head) = find(received, b"\r\n\r\n").map(|at| at + 4) else { continue };
        let text = std::str::from_utf8(&received[..head]).map_err(|e| e.to_string())?;
        let end = match header(text, "content-length").map(str::parse::<usize>) {
            Some(Ok(length)) => Some(head + length),
            Some(Err(e)) => return Err(e.to_string()),
            None if header(text, "transfer-encoding").is_some() => {
                received.ends_with(b"0\r\n\r\n").then_some(received.len())
            }
            None => Some(head),
        };
        if let Some(end) = end.filter(|end| *end <= received.len()) {
            return Ok((head, end));
        }
    }
}

/// A header of a response that begins with its head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.split("\r\n").skip(1).take_while(|line| !line.is_empty());
    let found = lines.filter_map(|line| line.split_once(':')).find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

pub fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|window| window == what)
}
