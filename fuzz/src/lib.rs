//! Properties that every decoder must keep for any bytes: one function a decoder, which panics if a
//! property is violated.
//!
//! The tests check them with a corpus and its mutations on any compiler. `cargo xtask fuzz` does so
//! for longer, with libFuzzer if it is installed. In addition no decoder may panic, loop without
//! end, or use memory beyond its limits.

mod a2a;
mod audit;
mod framing;
mod mail;
mod message;
mod places;
mod web_socket;

/// A fuzz target: the properties of one decoder.
pub struct Target {
    /// Name of the target and of its directory in `corpus/`.
    pub name: &'static str,
    /// Checks the properties for these bytes. Panics if one is violated.
    pub run: fn(&[u8]),
}

/// All targets. Topology files are a test of the root package (`src/config/tests/mutations.rs`), whose build is large.
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
        name: "audit",
        run: audit::export,
    },
    Target {
        name: "authorization",
        run: places::authorization,
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
        name: "mail",
        run: mail::messages,
    },
    Target {
        name: "web_socket",
        run: web_socket::messages,
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
