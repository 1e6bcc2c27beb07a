//! All outcomes of all decision points, in all supported answer formats.

use serde_json::{Value, json};

use super::kit::*;
use crate::decide::*;

/// Returns an object as the offered tool's input, as bare JSON, in a code fence, and surrounded by
/// prose.
fn forms(object: Value) -> [Value; 4] {
    [
        uses(object.clone()),
        says(object.to_string()),
        says(format!("```json\n{object:#}\n```")),
        says(format!(
            "Let me think {{first}} [sic].\nHere it is: {object} I hope that helps."
        )),
    ]
}

fn each<D: DecisionRequest + Sync>(asked: &D, object: Value, texts: &[&str], expected: D::Outcome) {
    for answer in forms(object)
        .into_iter()
        .chain(texts.iter().map(|text| says(*text)))
    {
        check(asked, answer, &expected);
    }
}

/// Goal: every outcome of DP0 is parsed, and an answer that lacks what its choice needs, or makes a
/// choice that isn't offered, is unclear. Method: rows in every form; rows of mistakes.
#[test]
fn combined_decisions() {
    let ask = intake();
    let question = "Which Porto?".to_owned();
    let rows = [
        (
            json!({ "decision": "CLARIFY", "question": question }),
            Intake::NeedsClarify { question },
        ),
        (
            json!({ "decision": "local", "tool_name": "echo", "params": { "text": "a" } }),
            Intake::Local(ToolChoice {
                tool_name: "echo".into(),
                params: object(json!({ "text": "a" })),
            }),
        ),
        (
            json!({ "decision": "LOCAL", "tool_name": "echo" }),
            Intake::Local(ToolChoice {
                tool_name: "echo".into(),
                params: object(json!({})),
            }),
        ),
        (
            json!({ "decision": "REMOTE", "agent_id": "weather", "reason": "it rains" }),
            Intake::Remote {
                agent: "weather".into(),
            },
        ),
        (
            json!({ "decision": "REJECT", "reason": "No." }),
            Intake::Reject {
                reason: "No.".into(),
            },
        ),
        (
            json!({ "decision": "ANSWER", "answer": "Sun." }),
            Intake::Answer {
                text: "Sun.".into(),
            },
        ),
    ];
    for (object, outcome) in rows {
        each(&ask, object, &[], outcome);
    }
    let step = json!({ "id": "a", "input_message": "do", "metadata": { "depends_on": [] } });
    let plan: StepPlan = serde_json::from_value(json!({ "steps": [step] })).unwrap();
    let split = json!({ "decision": "STEPS", "steps": [step] });
    each(&ask, split.clone(), &[], Intake::Split(plan));
    let one_step = DecideIntake {
        may_clarify: false,
        may_split: false,
        answer_prompt: None,
        ..intake()
    };
    for wrong in [
        split,
        json!({ "decision": "CLARIFY", "question": "Which?" }),
        json!({ "decision": "ANSWER", "answer": "Sun." }),
        json!({ "decision": "LOCAL" }),
        json!({ "decision": "LOCAL", "tool_name": "echo", "params": 3 }),
        json!({ "decision": "REMOTE" }),
        json!({ "decision": "ELSEWHERE" }),
    ] {
        falls_back(&one_step, uses(wrong), FallbackReason::Unclear);
    }
    let unknown = json!({ "decision": "REMOTE", "agent_id": "moon" });
    falls_back(&one_step, uses(unknown), FallbackReason::Unknown);
}

/// Goal: DP1's two outcomes are parsed, with and without a question. Method: rows in every form.
/// Rows: B-45.
#[test]
fn follow_ups() {
    each(
        &follow_up(),
        json!({ "decision": "HANDLE_DIRECTLY" }),
        &["HANDLE_DIRECTLY", "**handle_directly**."],
        FollowUp::HandleDirectly,
    );
    let none = FollowUp::NeedHumanInput { question: None };
    each(
        &follow_up(),
        json!({ "decision": "NEED_HUMAN_INPUT" }),
        &["NEED_HUMAN_INPUT", "`need_human_input`"],
        none,
    );
    let which = FollowUp::NeedHumanInput {
        question: Some("Which Porto?".into()),
    };
    let texts = [
        "NEED_HUMAN_INPUT: Which Porto?",
        "NEED_HUMAN_INPUT\nQUESTION: \"Which Porto?\"",
    ];
    each(
        &follow_up(),
        json!({ "decision": "need_human_input", "question": "Which\nPorto?" }),
        &texts,
        which,
    );
}

/// Goal: NP1's two outcomes are parsed; the text of T-B7 yields its question only. Method: rows in
/// every form.
/// Rows: B-46, B-57, X-33.
#[test]
fn clarity_of_requests() {
    each(
        &clarity(),
        json!({ "clarity": "CLEAR" }),
        &["CLARITY: CLEAR", "**Clarity:** clear", "CLEAR"],
        Clarity::Clear,
    );
    let texts = [
        "CLARITY: NEEDS_CLARIFY\nQUESTION: \"Which city?\"",
        "- **CLARITY:** NEEDS_CLARIFY\n- **QUESTION:** “Which city?”",
        "clarity: [NEEDS_CLARIFY]\r\nquestion: Which city?\r\nconfidence: 0.9",
    ];
    let which = Clarity::NeedsClarify {
        question: "Which city?".into(),
    };
    each(
        &clarity(),
        json!({ "clarity": "NEEDS_CLARIFY", "question": "Which city?" }),
        &texts,
        which,
    );
}

/// Goal: NP2.A's two outcomes are parsed, as keywords or JSON. Method: rows in every form.
/// Rows: B-47, B-61, X-33.
#[test]
fn splits() {
    let texts = [
        "SHOULD_DECOMPOSE: YES\nREASON: \"two skills\"",
        "should_decompose: yes",
    ];
    each(
        &split(),
        json!({ "should_decompose": "YES", "reason": "two skills" }),
        &texts,
        Split::Yes,
    );
    each(
        &split(),
        json!({ "should_decompose": true }),
        &[],
        Split::Yes,
    );
    each(
        &split(),
        json!({ "should_decompose": "NO" }),
        &["SHOULD_DECOMPOSE: NO\nREASON: \"one tool\""],
        Split::No,
    );
    each(
        &split(),
        json!({ "should_decompose": false }),
        &[],
        Split::No,
    );
}

fn step(id: &str, needs: &[&str]) -> Value {
    json!({ "id": id, "input_message": format!("do {id}"), "metadata": { "depends_on": needs } })
}

/// Goal: NP2.B's plan is parsed, as a bare list or within an object, and put into dependency order.
/// Method: one step, five, and two in the wrong order.
/// Rows: B-47, B-62.
#[test]
fn plans() {
    let plan =
        |steps: &[Value]| StepPlan::try_new(serde_json::from_value(json!(steps)).unwrap()).unwrap();
    let five = [
        step("a", &[]),
        step("b", &["a"]),
        step("c", &["a"]),
        step("d", &["b", "c"]),
        step("e-2", &[]),
    ];
    for steps in [&five[..], &five[..1], &[step("b", &["a"]), step("a", &[])]] {
        let list = json!(steps).to_string();
        let texts = [
            &*list,
            &format!("```json\n{list}\n```"),
            &format!("The plan:\n{list}\nThat is all."),
        ];
        each(&steps_of(), json!({ "steps": steps }), &texts, plan(steps));
    }
}

fn steps_of() -> MakeSteps {
    steps()
}

/// Goal: an invalid plan is unclear, so that DP2 follows (T-B9). Method: six steps, an extra key, a
/// cycle, and all other mistakes.
/// Rows: B-63.
#[test]
fn plans_that_are_none() {
    let six: Vec<Value> = (0..6).map(|at| step(&format!("s{at}"), &[])).collect();
    let mut extra = step("a", &[]);
    extra["tool"] = json!("echo");
    let mut extra_inside = step("a", &[]);
    extra_inside["metadata"]["why"] = json!("so");
    for steps in [
        json!(six),
        json!([extra]),
        json!([extra_inside]),
        json!([step("a", &["b"]), step("b", &["a"])]),
        json!([step("a", &["a"])]),
        json!([step("a", &["ghost"])]),
        json!([step("a", &[]), step("a", &[])]),
        json!([step("Not Kebab", &[])]),
        json!([{ "id": "a", "input_message": "" , "metadata": { "depends_on": [] } }]),
        json!([{ "id": "a", "input_message": "do" }]),
        json!([]),
        json!(["a"]),
    ] {
        falls_back(
            &steps_of(),
            says(steps.to_string()),
            FallbackReason::Unclear,
        );
        falls_back(
            &steps_of(),
            uses(json!({ "steps": steps })),
            FallbackReason::Unclear,
        );
    }
}

/// Goal: DP2's three outcomes are parsed; T-B5's reason is kept verbatim. Method: rows in every
/// form.
/// Rows: B-48.
#[test]
fn routes() {
    each(
        &route(),
        json!({ "decision": "LOCAL" }),
        &["LOCAL", "**LOCAL**", "local.", "`LOCAL`\n"],
        Route::Local,
    );
    let texts = [
        "REMOTE: weather",
        "REMOTE: [weather]",
        "**REMOTE:** `weather`",
        "remote: \"weather\"\nCONFIDENCE: 0.8",
    ];
    each(
        &route(),
        json!({ "decision": "REMOTE", "agent_id": "weather" }),
        &texts,
        Route::Remote {
            agent: "weather".into(),
        },
    );
    let reason = "I cannot assist with illegal activities such as hacking into government databases. This request violates \
        ethical guidelines and legal standards. I'm designed to provide helpful and lawful assistance only.";
    let two_lines = format!("REJECT: {}", reason.replacen(". This", ".\nThis", 1));
    let texts = [
        &*format!("REJECT: {reason}"),
        &format!("REJECT: [{reason}]"),
        &two_lines,
    ];
    each(
        &route(),
        json!({ "decision": "REJECT", "reason": reason }),
        &texts,
        Route::Reject {
            reason: reason.into(),
        },
    );
    let unsaid = Route::Reject {
        reason: "This request was refused.".into(),
    };
    each(
        &route(),
        json!({ "decision": "REJECT" }),
        &["REJECT", "REJECT:"],
        unsaid,
    );
}

/// Goal: a missing or inexactly named agent is never asked (T-B10). Method: rows.
/// Rows: B-48.
#[test]
fn agents_that_are_not_there() {
    for id in [
        "ghost",
        "Weather",
        "weather ",
        "weather2",
        "Agent weather",
        "wеather",
    ] {
        let known = id.trim() == "weather";
        let said = uses(json!({ "decision": "REMOTE", "agent_id": id }));
        falls_back(&route(), said, FallbackReason::Unknown);
        if !known {
            falls_back(
                &route(),
                says(format!("REMOTE: {id}")),
                FallbackReason::Unknown,
            );
        }
    }
    falls_back(
        &route(),
        says("REMOTE: weather, travel"),
        FallbackReason::Unknown,
    );
    falls_back(&route(), says("REMOTE:"), FallbackReason::Unclear);
    falls_back(
        &route(),
        uses(json!({ "decision": "REMOTE" })),
        FallbackReason::Unclear,
    );
}

/// Goal: DP3's tool and parameters are parsed, and missing parameters are empty. Method: rows in
/// every form.
/// Rows: B-49.
#[test]
fn tools() {
    let choice = |params: Value| ToolChoice {
        tool_name: "echo".into(),
        params: object(params),
    };
    let params = json!({ "text": "a {brace} and a [bracket], \"LOCAL\"\n", "sentences": 2 });
    each(
        &tool_choice(),
        json!({ "tool_name": "echo", "params": params }),
        &[],
        choice(params.clone()),
    );
    each(
        &tool_choice(),
        json!({ "tool_name": "echo" }),
        &[],
        choice(json!({})),
    );
}

/// Goal: invalid JSON, a non-object or an unknown tool falls back to `llm` with the request
/// (T-B11). Method: rows.
/// Rows: B-49.
#[test]
fn tools_that_are_none() {
    for text in [
        "not json",
        "echo",
        "{\"tool_name\": \"echo\", \"params\": {\"text\": \"a\"",
        "{'tool_name': 'echo'}",
    ] {
        falls_back(&tool_choice(), says(text), FallbackReason::Unclear);
    }
    falls_back(
        &tool_choice(),
        uses(json!({ "tool_name": "echo", "params": "text" })),
        FallbackReason::Unclear,
    );
    falls_back(
        &tool_choice(),
        uses(json!({ "params": {} })),
        FallbackReason::Unclear,
    );
    falls_back(
        &tool_choice(),
        uses(json!({ "tool_name": "Echo", "params": {} })),
        FallbackReason::Unknown,
    );
    let fallback = tool_choice().fallback().unwrap();
    assert!(
        fallback
            == ToolChoice {
                tool_name: "llm".into(),
                params: object(json!({ "text": REQUEST }))
            }
    );
}

/// Goal: DP4's answer is the model's text unchanged; a cut-off answer has low confidence. Method:
/// rows.
/// Rows: B-50.
#[test]
fn answers() {
    for text in [
        "Sunny.",
        "LOCAL",
        "{\"a\": 1}",
        "REJECT: no\n\nsecond paragraph",
    ] {
        check(&answer(), says(text), &text.to_owned());
    }
    let cut = settled(
        answer(),
        json!({ "text": "Sun and", "stop_reason": "maxTokens" }),
    );
    assert_eq!(
        (cut.outcome.as_deref(), cut.record.confidence),
        (Some("Sun and…"), 0.3)
    );
}

/// Goal: NP3's five strategies are parsed with their parameters. Method: rows in every form, and
/// the document's own words.
/// Rows: B-68, B-69.
#[test]
fn recoveries() {
    let recovery = recovery();
    let like = |strategy: &str, params: Value| json!({ "strategy": strategy, "params": params });
    each(
        &recovery,
        like("RETRY_SAME", json!({})),
        &["RETRY_SAME", "1. RETRY_SAME"],
        Recovery::RetrySame,
    );
    let params = object(json!({ "text": "b" }));
    let modified = Recovery::RetryModified { params };
    each(
        &recovery,
        like("RETRY_MODIFIED", json!({ "text": "b" })),
        &["RETRY_MODIFIED {\"text\":\"b\"}"],
        modified,
    );
    let texts = [
        "3. USE_ALTERNATIVE { \"which\": \"weather\" }",
        "USE_ALTERNATIVE: weather",
    ];
    let other = Recovery::UseAlternative {
        which: "weather".into(),
    };
    each(
        &recovery,
        like("USE_ALTERNATIVE", json!({ "which": "weather" })),
        &texts,
        other,
    );
    let texts = ["ASK_HUMAN \"Which one?\"", "ask_human: Which one?"];
    let ask = Recovery::AskHuman {
        message: "Which one?".into(),
    };
    each(
        &recovery,
        like("ASK_HUMAN", json!({ "message": "Which one?" })),
        &texts,
        ask,
    );
    let stop = Recovery::Abandon {
        reason: "No way.".into(),
    };
    each(
        &recovery,
        like("ABANDON", json!({ "reason": "No way." })),
        &["ABANDON \"No way.\""],
        stop,
    );
    let unsaid = Recovery::Abandon {
        reason: "the line is down".into(),
    };
    each(
        &recovery,
        json!({ "strategy": "ABANDON" }),
        &["ABANDON"],
        unsaid,
    );
}

/// Goal: an infeasible strategy is rejected. Method: no target, a target tried before, a question
/// without anyone to ask, parameters for an agent.
#[test]
fn recoveries_that_cannot_be() {
    let like =
        |strategy: &str, params: Value| uses(json!({ "strategy": strategy, "params": params }));
    let rows = [
        (
            like("USE_ALTERNATIVE", json!({ "which": "echo" })),
            FallbackReason::Unknown,
        ),
        (
            like("USE_ALTERNATIVE", json!({ "which": "Weather" })),
            FallbackReason::Unknown,
        ),
        (like("USE_ALTERNATIVE", json!({})), FallbackReason::Unclear),
        (like("ASK_HUMAN", json!({})), FallbackReason::Unclear),
        (like("RETRY_MODIFIED", json!([])), FallbackReason::Unclear),
        (
            uses(json!({ "strategy": "RETRY_MODIFIED" })),
            FallbackReason::Unclear,
        ),
        (like("GIVE_UP", json!({})), FallbackReason::Unclear),
    ];
    for (answer, why) in rows {
        falls_back(&recovery(), answer, why);
    }
    let nobody = DecideRecovery {
        may_ask: false,
        ..recovery()
    };
    falls_back(
        &nobody,
        like("ASK_HUMAN", json!({ "message": "Which?" })),
        FallbackReason::Unknown,
    );
    let action = Action::Remote {
        agent: "travel".into(),
        text: "go".into(),
    };
    falls_back(
        &DecideRecovery {
            action,
            ..recovery()
        },
        like("RETRY_MODIFIED", json!({ "a": 1 })),
        FallbackReason::Unclear,
    );
}

/// Goal: NP4's answer is parsed, with the confidence as stated on either side of T-B13's threshold.
/// Method: rows in every form.
/// Rows: B-72.
#[test]
fn syntheses() {
    for confidence in [0.39_f32, 0.4, 0.0, 1.0] {
        let rounded = (f64::from(confidence) * 100.0).round() / 100.0;
        let said = json!({ "final_answer": "Sun.\n\nMore.", "confidence": rounded, "notes": "one failed" });
        let expected = Synthesis {
            final_answer: "Sun.\n\nMore.".into(),
            confidence,
            notes: Some("one failed".into()),
        };
        each(&synthesis(), said, &[], expected);
    }
    let said = uses(json!({ "final_answer": "Sun.", "confidence": 0.8 }));
    check(
        &synthesis(),
        said,
        &Synthesis {
            final_answer: "Sun.".into(),
            confidence: 0.8,
            notes: None,
        },
    );
}

/// Goal: an answer with missing or impossible confidence is replaced by the fallback, which is
/// confirmed first. Method: rows, and the fallback's confidence.
#[test]
fn syntheses_that_cannot_be() {
    for (said, why) in [
        (json!({ "final_answer": "Sun." }), FallbackReason::Unclear),
        (
            json!({ "final_answer": "Sun.", "confidence": "high" }),
            FallbackReason::Unclear,
        ),
        (
            json!({ "final_answer": "Sun.", "confidence": 85 }),
            FallbackReason::Unknown,
        ),
        (
            json!({ "final_answer": "Sun.", "confidence": -0.1 }),
            FallbackReason::Unknown,
        ),
        (
            json!({ "final_answer": " ", "confidence": 0.9 }),
            FallbackReason::Unknown,
        ),
        (json!({ "confidence": 0.9 }), FallbackReason::Unclear),
    ] {
        falls_back(&synthesis(), uses(said), why);
    }
    assert!(synthesis().fallback().unwrap().confidence < 0.4);
}

/// Goal: NP5's two outcomes are parsed. Method: rows in every form.
/// Rows: B-77.
#[test]
fn confirmations() {
    let texts = [
        "CONFIRMATION: CONFIRM_NEEDED\nJUSTIFICATION: \"It acts.\"",
        "**Confirmation:** confirm_needed",
    ];
    each(
        &confirm(),
        json!({ "confirmation": "CONFIRM_NEEDED", "justification": "It acts." }),
        &texts,
        Confirm::ConfirmNeeded,
    );
    let texts = ["CONFIRMATION: SAFE_TO_PROCEED\nJUSTIFICATION: \"It reads.\""];
    each(
        &confirm(),
        json!({ "confirmation": "SAFE_TO_PROCEED" }),
        &texts,
        Confirm::SafeToProceed,
    );
}

/// Goal: confidence, reason and cost are the model's, and 0.7 is the default confidence. Method:
/// JSON, lines, an invalid number.
#[test]
fn confidence_and_cost() {
    let mut said = uses(json!({ "decision": "LOCAL", "confidence": 0.25 }));
    said["usage"] = json!({ "input_tokens": 150, "output_tokens": 7 });
    let record = settled(route(), said).record;
    assert_eq!(
        (record.confidence, record.cost),
        (
            0.25,
            DecisionCost {
                tokens_in: 150,
                tokens_out: 7,
                micro_usd: 0
            }
        )
    );
    assert_eq!(
        record.to_string(),
        "Handling the request locally, confidence 0.25 (model:m)"
    );
    for (text, confidence) in [
        ("LOCAL\nCONFIDENCE: 0.5", 0.5),
        ("LOCAL", 0.7),
        ("LOCAL\nCONFIDENCE: very", 0.7),
        ("{\"decision\": \"LOCAL\", \"confidence\": 85}", 0.7),
    ] {
        assert_eq!(
            settled(route(), says(text)).record.confidence,
            confidence,
            "{text}"
        );
    }
}
