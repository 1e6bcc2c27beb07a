//! Says yes to whatever the suite asks, with the defaults of its forms.

use callboard::message::{Answer, ElicitAnswer, Question, RootsAnswer, SampleAnswer};
use serde_json::{Map, Value};

pub fn to(question: &Question) -> Answer {
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
