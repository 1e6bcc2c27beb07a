//! A test of agents that isn't async.

#[callboard_macros::test]
fn counts() {}

fn main() {}
