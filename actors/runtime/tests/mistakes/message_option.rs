//! An option of a message that doesn't exist.

use callboard_macros::Message;

#[derive(Message)]
#[message(replies = u64, local)]
struct Count;

fn main() {}
