//! A type that isn't an agent is spawned.

use callboard_runtime::System;

struct Counter(u64);

fn spawn(system: &System) {
    system.spawn(Counter(0));
}

fn main() {}
