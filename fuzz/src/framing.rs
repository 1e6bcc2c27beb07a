//! Framings: the same events and lines however the bytes are split, each within the limits, and the
//! same after they are written again.

use callboard_rpc::{
    DecodedLine, LineDecoder, SseDecoder, SseError, SseEvent, SseLimits, encode_event, encode_line,
};

const LINE_BYTES_MAX: usize = 64;
const EVENT_BYTES_MAX: usize = 96;

pub fn sse(bytes: &[u8]) {
    let limits = SseLimits {
        line_bytes_max: LINE_BYTES_MAX,
        event_bytes_max: EVENT_BYTES_MAX,
    };
    for limits in [limits, SseLimits::default()] {
        let whole = events([bytes], &limits);
        for step in steps(bytes) {
            assert_eq!(
                events(bytes.chunks(step), &limits),
                whole,
                "cut every {step} bytes"
            );
        }
        for event in &whole.0 {
            let names = [&event.event, &event.id]
                .into_iter()
                .flatten()
                .map(String::len)
                .sum::<usize>();
            assert!(event.data.len() + names <= limits.event_bytes_max);
            let again = events([encode_event(event).as_slice()], &SseLimits::default());
            // The encoder omits values that can't be written, and an empty name counts as none.
            let id = event
                .id
                .clone()
                .filter(|id| !id.contains(['\r', '\n', '\0']));
            let expected = SseEvent {
                id,
                ..event.clone()
            };
            assert_eq!(
                again,
                (
                    vec![SseEvent {
                        event: again.0[0].event.clone(),
                        ..expected
                    }],
                    Ok(())
                )
            );
        }
    }
    // An event stays one event, whatever its text is.
    let text = String::from_utf8_lossy(bytes).into_owned();
    let forged = SseEvent {
        event: Some(text.clone()),
        data: bytes.to_vec(),
        id: Some(text),
        retry: None,
    };
    let (read, end) = events([encode_event(&forged).as_slice()], &SseLimits::default());
    assert!(end.is_err() || read.len() == 1);
}

pub fn lines(bytes: &[u8]) {
    for max in [1, LINE_BYTES_MAX, usize::MAX] {
        let whole = cut([bytes], max);
        for step in steps(bytes) {
            assert_eq!(
                cut(bytes.chunks(step), max),
                whole,
                "cut every {step} bytes"
            );
        }
        for line in &whole {
            let DecodedLine::Whole(line) = line else {
                continue;
            };
            assert!((1..=max).contains(&line.len()));
            let again = cut([encode_line(line.to_vec()).as_slice()], usize::MAX);
            assert_eq!(again.len(), 1, "a line that is written is one line");
        }
        assert!(max < usize::MAX || !whole.contains(&DecodedLine::TooLong));
    }
}

/// Returns the sizes of chunks: one byte, and one that the input determines.
pub fn steps(bytes: &[u8]) -> [usize; 2] {
    [1, 2 + bytes.last().map_or(0, |byte| usize::from(*byte))]
}

fn events<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    limits: &SseLimits,
) -> (Vec<SseEvent>, Result<(), SseError>) {
    let mut decoder = SseDecoder::new(limits);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.next() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Err(error)),
            }
        }
    }
    (events, Ok(()))
}

fn cut<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, line_bytes_max: usize) -> Vec<DecodedLine> {
    let mut decoder = LineDecoder::new(line_bytes_max);
    let mut lines = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        lines.extend(std::iter::from_fn(|| decoder.next()));
    }
    lines.extend(std::iter::from_fn(|| decoder.finish()));
    lines
}
