use std::time::Duration;

use callboard_rpc::{SSE_KEEP_ALIVE, SseDecoder, SseError, SseEvent, SseLimits, encode_event};
use proptest::collection::vec;
use proptest::prelude::*;

/// Decoded stream: its events with id and delay after each, and the result at its end.
type DecodedStream = (
    Vec<(SseEvent, Option<String>, Option<Duration>)>,
    Result<(), SseError>,
);

fn read(chunks: &[&[u8]], limits: &SseLimits) -> DecodedStream {
    let mut decoder = SseDecoder::new(limits);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.next() {
                Ok(Some(event)) => events.push((
                    event,
                    decoder.last_event_id().map(str::to_owned),
                    decoder.retry(),
                )),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next(), Err(error), "a broken stream stays broken");
                    return (events, Err(error));
                }
            }
        }
    }
    (events, Ok(()))
}

fn events(stream: &[u8]) -> Vec<SseEvent> {
    let (events, end) = read(&[stream], &SseLimits::default());
    assert_eq!(end, Ok(()));
    events.into_iter().map(|(event, ..)| event).collect()
}

fn texts(stream: &str) -> Vec<String> {
    events(stream.as_bytes())
        .into_iter()
        .map(|event| String::from_utf8(event.data).unwrap())
        .collect()
}

/// Goal: streams are decoded by the standard. Method: its own examples, and each rule's edge.
#[test]
fn reads_as_the_standard_says() {
    for (stream, expected) in [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", vec!["YHOO\n+2\n10"]),
        (
            ": a stream\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third\n\n",
            vec!["first", "second", " third"],
        ),
        // The last one never ends.
        ("data\n\ndata\ndata\n\ndata:", vec!["", "\n"]),
        ("data:test\n\ndata: test\n\n", vec!["test", "test"]),
        (
            "data: a\r\rdata: b\r\n\r\ndata: c\n\r\n",
            vec!["a", "b", "c"],
        ),
        ("data: a\rdata: b\n\n", vec!["a\nb"]),
        ("\u{feff}data: a\n\n", vec!["a"]),
        ("\u{feff}\u{feff}data: a\n\ndata: b\n\n", vec!["b"]),
        ("data: b\n\n\u{feff}data: a\n\n", vec!["b"]),
        ("event: x\n\nid: 3\n\n\n\n\r\n", vec![]),
        ("Data: a\n data: b\ndata : c\nother: d\n\n", vec![]),
        ("data: a: b\n\n", vec!["a: b"]),
        ("", vec![]),
        ("data: never ended\n", vec![]),
    ] {
        assert_eq!(texts(stream), expected, "{stream:?}");
    }
}

/// Goal: type, id and delay belong to their event. Method: with, without, emptied, and forged by
/// NUL or non-digits.
#[test]
fn reads_names_ids_and_pauses() {
    let stream = "event: ping\nid: 1\nretry: 500\ndata: a\n\ndata: b\n\nid: 2\n\ndata: c\nid: x\0y\n\nid:\ndata\nevent:\n\n\
                  retry: 1x\nretry: -1\nretry:\nretry: 99999999999999999999999\ndata: d\n\nid: 9\ndata: unfinished\n";
    let (seen, end) = read(&[stream.as_bytes()], &SseLimits::default());
    assert_eq!(end, Ok(()));
    let short: Vec<_> = seen
        .iter()
        .map(|(event, last, _)| (event.kind(), event.id.as_deref(), last.as_deref()))
        .collect();
    let expected = [
        ("ping", Some("1"), Some("1")),
        ("message", None, Some("1")),
        ("message", None, Some("2")),
        ("message", Some(""), None),
        ("message", None, None),
    ];
    assert_eq!(short, expected);
    assert!(
        seen.iter()
            .all(|(_, _, retry)| *retry == Some(Duration::from_millis(500)))
    );
    assert_eq!(seen[0].0.retry, Some(Duration::from_millis(500)));
    assert_eq!(seen[4].0.retry, None);
}

/// Goal: data that is not UTF-8 is passed on unchanged, so that the message is rejected. Method:
/// bytes.
#[test]
fn data_is_not_repaired() {
    assert_eq!(events(b"data: \xC3\nid: \xFF\n\n")[0].data, b"\xC3");
    assert_eq!(
        events(b"data: \xC3\nid: \xFF\n\n")[0].id.as_deref(),
        Some("\u{fffd}")
    );
}

/// Goal: text in an event can neither end it nor start another. Method: breaks of each kind in
/// data, type and id.
#[test]
fn no_text_forges_an_event() {
    let forged = "a\n\nid: 9\ndata: forged\r\rdata: x\r\n\r\nevent: y\n";
    let event = SseEvent {
        event: Some(format!("n{forged}")),
        data: forged.into(),
        id: Some(format!("7{forged}")),
        retry: Some(Duration::from_millis(1_500)),
    };
    let read = events(&encode_event(&event));
    let data = "a\n\nid: 9\ndata: forged\n\ndata: x\n\nevent: y\n".into();
    assert_eq!(
        read,
        [SseEvent {
            event: None,
            data,
            id: None,
            retry: event.retry
        }]
    );
    let nul = SseEvent::message("a").with_id("\0");
    assert_eq!(encode_event(&nul), b"data: a\n\n");
    assert_eq!(
        encode_event(&SseEvent::default().with_id("p1")),
        b"id: p1\ndata: \n\n"
    );
    assert!(events(SSE_KEEP_ALIVE).is_empty());
}

/// Goal: each limit is exact. Method: a line and an event at the limit, and one byte more, ended or
/// not.
#[test]
fn bounds() {
    let max = SseLimits::default().line_bytes_max;
    let line = |bytes: usize| format!("data: {}", "x".repeat(bytes - 6));
    for end in ["", "\n\n"] {
        let stream = line(max + 1) + end;
        let (_, error) = read(&[b"data: a\n\n", stream.as_bytes()], &SseLimits::default());
        assert_eq!(error, Err(SseError::LineOver { max }));
    }
    assert_eq!(events((line(max) + "\n\n").as_bytes()).len(), 1);

    let max = SseLimits::default().event_bytes_max;
    // Two lines with a break between them, a name and an id.
    let event = |bytes: usize| {
        let half = (bytes - 1 - 2) / 2;
        let (a, b) = ("x".repeat(half), "x".repeat(bytes - 1 - 2 - half));
        format!("event: too long to begin with\nevent: e\nid: i\ndata: {a}\ndata: {b}\n\n")
    };
    assert_eq!(events(event(max).as_bytes()).len(), 1);
    let (_, error) = read(&[event(max + 1).as_bytes()], &SseLimits::default());
    assert_eq!(error, Err(SseError::EventOver { max }));
}

/// Goal: data of a peer is never printed. Method: a name in each part.
#[test]
fn debug_shows_no_data() {
    let mut decoder = SseDecoder::new(&SseLimits::default());
    decoder.push(b"id: Souza\nevent: Souza\ndata: Souza\n\ndata: Souza");
    let event = decoder.next().unwrap().unwrap();
    assert_eq!(decoder.next(), Ok(None));
    assert!(!format!("{event:?} {decoder:?}").contains("Souza"));
}

/// Generator of streams with everything that matters at a chunk's edge.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"data: ".to_vec()),
        Just(b"data".to_vec()),
        Just(b"id: ".to_vec()),
        Just(b"event:".to_vec()),
        Just(b"retry: 12".to_vec()),
        Just(b"\xEF\xBB\xBF".to_vec()),
        Just("ação".as_bytes().to_vec()),
        Just(b"0123456789".to_vec()),
        vec(any::<u8>(), 1..3),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.push(bytes.len());
    at.sort_unstable();
    let mut begin = 0;
    at.into_iter()
        .map(|end| &bytes[std::mem::replace(&mut begin, end)..end])
        .collect()
}

proptest! {
    /// Goal: chunk boundaries make no difference, also for limits. Method: cut anywhere, and at
    /// every byte.
    #[test]
    fn any_cut_gives_the_same_events(stream in stream(), cuts: Vec<prop::sample::Index>, small: bool) {
        let small = SseLimits { line_bytes_max: if small { 16 } else { 200 }, event_bytes_max: 24 };
        for limits in [SseLimits::default(), small] {
            let whole = read(&[&stream], &limits);
            prop_assert_eq!(&read(&cut(&stream, &cuts), &limits), &whole);
            prop_assert_eq!(&read(&stream.chunks(1).collect::<Vec<_>>(), &limits), &whole);
            for (event, ..) in whole.0 {
                let texts = [&event.event, &event.id].into_iter().flatten().map(String::len).sum::<usize>();
                prop_assert!(event.data.len() + texts <= limits.event_bytes_max);
            }
        }
    }

    /// Goal: an encoded event is decoded as one, unchanged but for its line breaks. Method: any
    /// parts.
    #[test]
    fn events_round_trip(data in "\\PC*([\r\n]\\PC*){0,3}", kind in "\\PC{1,9}", id in "\\PC{0,9}", ms: u64) {
        let event = SseEvent { event: Some(kind), data: data.into(), id: Some(id), retry: Some(Duration::from_millis(ms)) };
        let mut lines = event.clone();
        lines.data = String::from_utf8(event.data.clone()).unwrap().replace("\r\n", "\n").replace('\r', "\n").into();
        prop_assert_eq!(events(&encode_event(&event)), [lines]);
    }
}
