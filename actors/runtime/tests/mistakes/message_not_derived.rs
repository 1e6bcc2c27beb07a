//! A message without `#[derive(Message)]`.

use callboard_runtime::AgentRef;

struct Add(u64);

async fn add(counter: &AgentRef) {
    let _ = counter.ask(Add(1)).await;
}

fn main() {}
