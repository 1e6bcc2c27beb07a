//! A call that reports progress and asks a question, which the caller answers in code.

use std::error::Error;
use std::time::Duration;

use callboard::message::{Answer, Elicitation, ElicitationAnswer, Progress, Question};
use callboard::{Agent, CallEvent, Context, Failure, Handler, Handlers, Message, System};
use serde_json::json;

/// Books a table for tonight.
#[derive(Message)]
#[message(reply = String, fallible, local)]
struct BookTable {
    guests: u32,
}

struct Restaurant;

impl Agent for Restaurant {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<BookTable>();
    }
}

impl Handler<BookTable> for Restaurant {
    async fn handle(&mut self, BookTable { guests }: BookTable, cx: &mut Context) -> Result<String, Failure> {
        cx.progress(Progress { done: 1.0, total: Some(2.0), message: Some(format!("a table for {guests} is free")) });
        let schema = json!({ "type": "object", "properties": { "hour": { "type": "integer" } } });
        let form = Elicitation::form("At what hour?", schema);
        // The handler pauses here until the caller answers.
        match cx.elicit(form).await?.content() {
            Some(content) => Ok(format!("booked at {}:00", content["hour"])),
            None => Err(Failure::rejected("no hour, no table")),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let system = System::start(1)?;
    let restaurant = system.spawn(Restaurant);

    let mut call = restaurant.call(BookTable { guests: 4 }).within(Duration::from_secs(5)).start();
    while let Some(event) = call.next().await {
        match event {
            CallEvent::Progress(progress) => println!("progress: {}", progress.message.unwrap_or_default()),
            CallEvent::Question(pending) => {
                let Question::Elicit(form) = &pending.question else { continue };
                println!("question: {}", form.message());
                pending.answer(Answer::Elicit(ElicitationAnswer::accept(json!({ "hour": 20 }))));
            }
            _ => {}
        }
    }
    println!("reply: {}", call.reply().await??);
    // An ask has no caller that could answer, so the question fails.
    println!("without a caller: {:?}", restaurant.ask(BookTable { guests: 2 }).await?.map_err(|f| f.to_string()));
    system.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
