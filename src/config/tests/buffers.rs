//! Tests of the budget of buffered bytes in topologies.

use std::path::Path;

use callboard_rpc::BufferLimits;

use super::{NODE, told};
use crate::config::{PolicyDeclaration, Topology};

/// Goal: the budget of buffered bytes is read in MiB, with a share in percent. Method: rows, and
/// shares beyond the limits.
#[test]
fn buffered_bytes() {
    let of = |keys: &str| format!("{NODE}[policy]\n{keys}");
    for (keys, bytes_max, principal_percent) in [
        ("buffered_mib_max = 1", 1 << 20, 25),
        (
            "buffered_mib_max = 64\nbuffered_principal_percent = 100",
            64 << 20,
            100,
        ),
        ("", BufferLimits::default().bytes_max, 25),
    ] {
        let topology = Topology::parse(&of(keys), false, Path::new("")).unwrap();
        let policy: &PolicyDeclaration = topology.section().unwrap();
        let limits = BufferLimits {
            bytes_max,
            principal_percent,
        };
        assert_eq!(policy.buffer_limits(), limits, "{keys}");
    }
    for percent in [0, 101] {
        let told = told(
            &of(&format!("buffered_principal_percent = {percent}")),
            false,
        );
        assert!(
            told.iter()
                .any(|told| told.ends_with(&format!("must be from 1 to 100, not {percent}"))),
            "{told:?}"
        );
    }
    assert!(!told(&of("buffered_mib_max = 0"), false).is_empty());
}

/// Goal: a listener takes no larger messages than half of the budget. Method: `body_bytes_max` at
/// that limit and one byte over it, and the defaults.
#[test]
fn budget_has_room_for_a_message() {
    const MIB: usize = 1024 * 1024;
    let of = |protocol: &str, mib: usize, body_bytes_max: Option<usize>| {
        let body = body_bytes_max.map(|bytes| format!("body_bytes_max = {bytes}\n"));
        let text = format!(
            "{NODE}[policy]\nbuffered_mib_max = {mib}\n[[listener]]\nprotocol = \"{protocol}\"\n\
             bind = \"127.0.0.1:4000\"\n{}",
            body.unwrap_or_default()
        );
        let told = told(&text, false);
        told.into_iter()
            .find(|told| told.contains("`buffered_mib_max`"))
    };
    for (protocol, mib, body_bytes_max, least) in [
        ("a2a", 8, None, None),
        ("a2a", 7, None, Some(8)),
        ("mail", 1, None, None),
        ("a2a", 2, Some(MIB), None),
        ("a2a", 2, Some(MIB + 1), Some(3)),
        ("mail", 1, Some(MIB), Some(2)),
    ] {
        let told = of(protocol, mib, body_bytes_max);
        let is_right = match (&told, least) {
            (None, None) => true,
            (Some(told), Some(least)) => told.contains(&format!("raise it to {least} ")),
            _ => false,
        };
        assert!(is_right, "{protocol} {mib} {body_bytes_max:?}: {told:?}");
    }
}
