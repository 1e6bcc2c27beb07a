//! Names of methods and versions.

use callboard_a2a::{Dialect, Operation};

/// Goal: every method of every version is recognised. Method: names there and back, and versions as
/// headers have them.
/// Rows: X-26.
#[test]
fn methods_and_versions() {
    for dialect in [Dialect::V10, Dialect::V03, Dialect::V01] {
        for operation in Operation::ALL {
            let Some(method) = dialect.rpc_method(operation) else {
                continue;
            };
            let (found, asked) = Dialect::from_method(method).unwrap();
            assert_eq!(asked, operation, "{method}");
            assert_eq!(found.for_task(operation, dialect), dialect, "{method}");
        }
    }
    assert_eq!(
        Dialect::V10.for_task(Operation::GetTask, Dialect::V01),
        Dialect::V10
    );
    assert!(
        ["", "tasks", "message/sent", "sendmessage"]
            .iter()
            .all(|method| Dialect::from_method(method).is_none())
    );
    for (version, dialect) in [
        ("1.0", Some(Dialect::V10)),
        (" 1.0.1 ", Some(Dialect::V10)),
        ("0.3", Some(Dialect::V03)),
        ("0.3.0", Some(Dialect::V03)),
        ("0.2.6", Some(Dialect::V03)),
        ("0.1", Some(Dialect::V01)),
        ("", None),
        ("1", Some(Dialect::V10)),
        ("v1.0", Some(Dialect::V10)),
        ("1.1", None),
        ("0", None),
        ("2.0", None),
        ("0.30", None),
    ] {
        assert_eq!(Dialect::from_version(version), dialect, "{version:?}");
        assert_eq!(
            Dialect::is_supported(version),
            dialect.is_some() || version.is_empty()
        );
    }
}
