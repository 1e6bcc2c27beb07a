use crate::members::directory::MemberRecord;
use crate::shape::shape;

/// Goal: member records of earlier versions can be read by every later one. Method: a snapshot of
/// fields and variants of the record.
#[test]
fn member() {
    insta::assert_snapshot!("member", shape::<MemberRecord>());
}
