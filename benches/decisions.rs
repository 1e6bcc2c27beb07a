//! What deciding costs beside the deciders themselves.

fn main() {}
