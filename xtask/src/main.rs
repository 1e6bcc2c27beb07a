//! Tasks of this repository. See `cargo xtask`.
fn main() {}
