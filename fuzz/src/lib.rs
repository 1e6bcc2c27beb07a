//! What every decoder promises for any bytes: a function a decoder, which panics where a promise is broken.
//!
//! Tests hold them against a corpus and its mutations on any compiler; `cargo xtask fuzz` does so at length, and hands
//! them to libFuzzer where there is one. Beside these promises: no panic, no loop without end, no memory beyond the
//! limits.

mod a2a;
mod framing;
mod message;
mod places;

/// One decoder's promises.
pub struct Target {
    /// Also the name of its directory in `corpus/`.
    pub name: &'static str,
    /// Panics if a promise is broken for these bytes.
    pub run: fn(&[u8]),
}

/// All targets. (A WebSocket's text is one message: `envelope`.)
pub const TARGETS: &[Target] = &[
    Target {
        name: "a2a_answer",
        run: a2a::answer,
    },
    Target {
        name: "a2a_card",
        run: a2a::card,
    },
    Target {
        name: "a2a_request",
        run: a2a::request,
    },
    Target {
        name: "envelope",
        run: message::envelope,
    },
    Target {
        name: "batch",
        run: message::batch,
    },
    Target {
        name: "id",
        run: message::id,
    },
    Target {
        name: "sse",
        run: framing::sse,
    },
    Target {
        name: "lines",
        run: framing::lines,
    },
    Target {
        name: "keys",
        run: places::keys,
    },
    Target {
        name: "host",
        run: places::host,
    },
    Target {
        name: "url",
        run: places::url,
    },
];

/// Where the corpus lies: a directory a target, a file an input.
pub const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
