//! Linker options of the binary.

use std::env;

/// Folds functions with the same code if the binary is built for size (profile `dist`), so that they
/// share an address. Only where the linker is likely to do it: that of rustc on x86-64 Linux is LLD,
/// unless an option chooses another.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let value = |name: &str| env::var(name).unwrap_or_default();
    let is_small = matches!(&*value("OPT_LEVEL"), "s" | "z");
    let is_chosen =
        env::var_os("RUSTC_LINKER").is_some() || value("CARGO_ENCODED_RUSTFLAGS").contains("link");
    if is_small && value("TARGET") == "x86_64-unknown-linux-gnu" && !is_chosen {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
