//! Whoever calls: says yes to whatever the suite asks, with the defaults of its forms.

use std::error::Error;

use callboard::message::{Answer, ElicitAnswer, Failure, Question, RootsAnswer, SampleAnswer};
use callboard::{AgentRef, CallEvent, Message};
use serde_json::{Map, Value};

pub async fn call<T, M: Message<Reply = Result<T, Failure>>>(
    server: &AgentRef,
    message: M,
) -> Result<T, Box<dyn Error>> {
    let mut call = server.call(message).start();
    while let Some(event) = call.next().await {
        if let CallEvent::Question(pending) = event {
            let answer = answer(&pending.question);
            pending.answer(answer);
        }
    }
    Ok(call.reply().await??)
}

fn answer(question: &Question) -> Answer {
    match question {
        Question::Elicit(form) => Answer::Elicit(ElicitAnswer::accept(defaults(&form.schema().unwrap_or_default()))),
        Question::Sample(_) => Answer::Sample(SampleAnswer::text("none", "No.", Some("endTurn"))),
        _ => Answer::Roots(RootsAnswer::of(Vec::new())),
    }
}

fn defaults(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    Value::Object(
        fields.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone()))).collect::<Map<_, _>>(),
    )
}
