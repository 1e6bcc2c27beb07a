use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use callboard_rpc::{
    DecodeLimits, DecodedLine, LINE_BYTES_MAX_DEFAULT, LineDecoder, RequestId, decode, encode_line,
    encode_request,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, ReadBuf};

fn read(chunks: &[&[u8]], line_bytes_max: usize) -> Vec<DecodedLine> {
    let mut decoder = LineDecoder::new(line_bytes_max);
    let mut lines = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        lines.extend(std::iter::from_fn(|| decoder.next()));
    }
    lines.extend(std::iter::from_fn(|| decoder.finish()));
    lines
}

fn line(text: &str) -> DecodedLine {
    DecodedLine::Whole(text.to_owned().into())
}

/// Goal: lines end with LF or CRLF, and the stream ends the last. Method: rows.
#[test]
fn lines_are_cut() {
    for (stream, expected) in [
        (
            "a\nb\r\n\n\r\n c \n",
            vec![line("a"), line("b"), line(" c ")],
        ),
        ("a\rb\n", vec![line("a\rb")]),
        ("a\nb", vec![line("a"), line("b")]),
        ("a\r\r\n", vec![line("a\r")]),
        ("", vec![]),
        ("\n", vec![]),
    ] {
        assert_eq!(read(&[stream.as_bytes()], 100), expected, "{stream:?}");
    }
}

/// Goal: the limit is exact, and a longer line doesn't affect others. Method: the default, one
/// more, ended or not.
#[test]
fn line_bytes() {
    let max = LINE_BYTES_MAX_DEFAULT;
    let at = "x".repeat(max);
    for end in ["\n", "\r\n", ""] {
        assert_eq!(read(&[at.as_bytes(), end.as_bytes()], max), [line(&at)]);
    }
    let over = at + "x";
    for end in ["\n", "\r\n"] {
        assert_eq!(
            read(&[over.as_bytes(), end.as_bytes(), b"next\n"], max),
            [DecodedLine::TooLong, line("next")]
        );
        assert_eq!(
            read(&[(over.clone() + end + "next\n").as_bytes()], max),
            [DecodedLine::TooLong, line("next")]
        );
    }
    assert_eq!(read(&[over.as_bytes()], max), [DecodedLine::TooLong]);
}

/// Goal: the id of a response is found in a line that is dropped, whether the limit is passed within a
/// chunk or over several, and no id stays for the next. Method: a line over the limit, whole and
/// bytewise, and one without id.
#[test]
fn dropped_lines_are_scanned() {
    let long = "x".repeat(100);
    let response = format!("{{\"result\":\"{long}\",\"id\":7}}\nnext\n{long}\n");
    for bytes in [response.len(), 1] {
        let mut decoder = LineDecoder::with_scan(50);
        let mut seen = Vec::new();
        for chunk in response.as_bytes().chunks(bytes) {
            decoder.push(chunk);
            while let Some(item) = decoder.next() {
                let id = decoder.dropped_response();
                seen.push((item, id.map(|id| id.as_json().to_owned())));
            }
        }
        let expected = [
            (DecodedLine::TooLong, Some("7".to_owned())),
            (line("next"), None),
            (DecodedLine::TooLong, None),
        ];
        assert_eq!(seen, expected, "{bytes}");
    }
}

/// An endless stream without a line end, which records the buffer sizes of its reads.
struct Endless {
    left: usize,
    largest_read: usize,
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.largest_read = self.largest_read.max(into.remaining());
        let bytes = into.remaining().min(self.left).min(64 * 1024);
        self.left -= bytes;
        into.put_slice(&vec![b'x'; bytes]);
        Poll::Ready(Ok(()))
    }
}

/// Goal: an endless line uses memory up to the limit. Method: 64 MiB of it; the buffer sizes
/// offered to reads.
#[tokio::test]
async fn endless_line_has_bounded_memory() {
    const MAX: usize = 1024 * 1024;
    let mut endless = Endless {
        left: 64 * MAX,
        largest_read: 0,
    };
    let mut decoder = LineDecoder::new(MAX);
    assert_eq!(
        decoder.read(&mut endless).await.unwrap(),
        Some(DecodedLine::TooLong)
    );
    assert!(endless.left > 62 * MAX, "it is said as soon as it is known");
    assert_eq!(decoder.read(&mut endless).await.unwrap(), None);
    assert!(
        endless.largest_read <= 2 * MAX,
        "{} bytes of room",
        endless.largest_read
    );
    decoder.push(b"\nnext\n");
    assert_eq!(decoder.next(), Some(line("next")));
}

/// Goal: a stream is read to its end, and a cancelled read loses nothing. Method: a pipe, cut
/// within a line.
#[tokio::test]
async fn reads_a_stream() {
    use tokio::io::AsyncWriteExt;
    let (mut near, mut far) = tokio::io::duplex(64);
    let mut decoder = LineDecoder::default();
    near.write_all(b"first\nsec").await.unwrap();
    assert_eq!(decoder.read(&mut far).await.unwrap(), Some(line("first")));
    tokio::select! {
        biased;
        line = decoder.read(&mut far) => panic!("{line:?}"),
        () = std::future::ready(()) => {}
    }
    near.write_all(b"ond\nlast").await.unwrap();
    drop(near);
    assert_eq!(decoder.read(&mut far).await.unwrap(), Some(line("second")));
    assert_eq!(decoder.read(&mut far).await.unwrap(), Some(line("last")));
    assert_eq!(decoder.read(&mut far).await.unwrap(), None);
}

/// Goal: a message is one line, whatever white space its payload has. Method: encode, split,
/// decode.
#[test]
fn messages_are_one_line() {
    let params = RawValue::from_string("{\r\n \"a\":\n\"\\n\"}".into()).unwrap();
    let bytes = encode_line(encode_request(&RequestId::integer(1), "m", &params));
    assert_eq!(
        bytes.iter().filter(|b| matches!(b, b'\n' | b'\r')).count(),
        1
    );
    let lines = read(&[&bytes], 100);
    let [DecodedLine::Whole(text)] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    assert!(decode(text, &DecodeLimits::default()).is_ok());
}

/// Goal: a log line or garbage between messages doesn't affect them. Method: both around a message.
#[test]
fn pollution_costs_its_line_only() {
    let stream =
        b"INFO starting\n{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\xFF\xFE\0\n{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n";
    let read: Vec<bool> = read(&[stream], 100)
        .iter()
        .map(|line| matches!(line, DecodedLine::Whole(text) if decode(text, &DecodeLimits::default()).is_ok()))
        .collect();
    assert_eq!(read, [false, true, false, true]);
}

proptest! {
    /// Goal: chunk boundaries make no difference, up to the limit. Method: cut anywhere, and at
    /// every byte.
    #[test]
    fn any_cut_gives_the_same_lines(
        pieces in vec(prop_oneof![Just("\n"), Just("\r"), Just("\r\n"), Just("a"), Just("12345678"), Just("é")], 0..60),
        chunk in 1..20usize,
        max in 1..20usize,
    ) {
        let stream = pieces.concat();
        let whole = read(&[stream.as_bytes()], max);
        prop_assert_eq!(&read(&stream.as_bytes().chunks(chunk).collect::<Vec<_>>(), max), &whole);
        prop_assert_eq!(&read(&stream.as_bytes().chunks(1).collect::<Vec<_>>(), max), &whole);
        let expected: Vec<DecodedLine> = stream
            .split('\n')
            .map(|text| text.strip_suffix('\r').unwrap_or(text))
            .filter(|text| !text.is_empty())
            .map(|text| if text.len() > max { DecodedLine::TooLong } else { line(text) })
            .collect();
        prop_assert_eq!(whole, expected);
    }
}
