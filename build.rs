//! Linker options of the binary.

use std::env;

/// Profiles that are built for size (`dist`) fold functions with the same code, which saves about a
/// megabyte. Only where the linker is known to do it: rustc's own on x86-64 Linux is LLD.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, values: &[&str]| {
        env::var(name).is_ok_and(|value| values.contains(&value.as_str()))
    };
    let is_small = is("OPT_LEVEL", &["s", "z"]);
    let has_lld =
        is("TARGET", &["x86_64-unknown-linux-gnu"]) && env::var_os("RUSTC_LINKER").is_none();
    if is_small && has_lld {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
