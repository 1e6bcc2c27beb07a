//! Properties that every decoder must keep for any bytes: one function a decoder, which panics if a
//! property is violated.
//!
//! The tests check them with a corpus and its mutations on any compiler. `cargo xtask fuzz` does so
//! for longer, with libFuzzer if it is installed. In addition no decoder may panic, loop without
//! end, or use memory beyond its limits.

mod a2a;
mod framing;
mod message;
mod places;

/// A fuzz target: the properties of one decoder.
pub struct Target {
    /// Name of the target and of its directory in `corpus/`.
    pub name: &'static str,
    /// Checks the properties for these bytes. Panics if one is violated.
    pub run: fn(&[u8]),
}

/// All targets. Texts of a WebSocket are single messages, which `envelope` covers.
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

/// Path of the corpus: a directory for each target with a file for each input.
pub const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
