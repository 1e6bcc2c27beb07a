//! A message with a type parameter.

use callboard_macros::Message;

#[derive(Message)]
#[message(local)]
struct Add<T>(T);

fn main() {}
