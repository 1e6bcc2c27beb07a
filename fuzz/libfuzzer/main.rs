//! Runs one target under libFuzzer. The environment variable `FUZZ_TARGET` names it.

#![no_main]

use std::sync::LazyLock;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let target = callboard_fuzz::TARGETS
        .iter()
        .find(|target| target.name == name);
    target
        .unwrap_or_else(|| panic!("FUZZ_TARGET names no target: {name:?}"))
        .run
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| RUN(bytes));
