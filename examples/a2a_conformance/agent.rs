//! An agent that talks, and asks back in mid-call: what it does, the key of the message that it hears last says.

use std::time::Duration;

use callboard::message::surface::{Converse, SAID};
use callboard::message::{Elicitation, Failure, Progress, RawObject, ToolResult};
use callboard::{Agent, ConcurrentHandler, Cx, Handlers};
use serde_json::json;

use crate::play::play;
use crate::script::Part;

/// Most conversations at the same time.
const AT_ONCE_MAX: u32 = 1024;
/// How long it works before it asks, where nothing else is wanted: long enough to be seen working.
const WORK: Duration = Duration::from_secs(3);
/// Twice as long as the kit waits for an event.
const LONG: Duration = Duration::from_secs(4);

pub struct Conversing;

impl Agent for Conversing {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<Converse> for Conversing {
    fn handle(&mut self, said: Converse, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let mut part = Part::of(&said.key());
            if matches!(part, Part::Work | Part::Linger) {
                working(&cx);
                tokio::time::sleep(if part == Part::Work { WORK } else { LONG }).await;
            }
            loop {
                match part {
                    Part::Ask | Part::Work => part = Part::of(&answered(&cx).await?),
                    part => return play(part, &cx),
                }
            }
        }
    }
}

/// Tells the caller that it is at work.
pub fn working(cx: &Cx) {
    cx.progress(Progress { done: 0.0, total: None, message: Some("working".to_owned()) });
}

/// The key of the message that answers.
async fn answered(cx: &Cx) -> Result<String, Failure> {
    let whatever = json!({ "type": "object", "properties": {} });
    let answer = cx.elicit(Elicitation::form("What else?", whatever)).await?;
    let said: Option<RawObject> = answer.0.object("_meta").and_then(|meta| meta.object(SAID));
    Ok(said.and_then(|said| said.text("key")).unwrap_or_default())
}
