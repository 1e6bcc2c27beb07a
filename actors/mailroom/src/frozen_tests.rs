use super::member_identity::Kept;
use crate::shape::shape;

/// Goal: a member that an earlier version kept is read by every later one. Method: the members and variants of what is kept.
#[test]
fn member() {
    insta::assert_snapshot!("member", shape::<Kept>());
}
