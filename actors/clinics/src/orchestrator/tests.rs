use std::sync::Mutex;

use callboard_guardrail::Screen;
use callboard_message::FailureKind;
use callboard_runtime::testkit::{Probe, ScriptStep, ScriptedAgent, run_with_paused_time};
use callboard_runtime::{CallEvent, System};
use serde_json::{Value, json};

use super::*;
use crate::plan::Plan;
use crate::plan::samples::two_clinics;
use crate::planner::{MakePlan, Planner};
use crate::router::{Router, RouterConfig};
use crate::verifier::{Verdict, Verified, Verify};

const QUESTION: &str = "List all cardiology patients and check dermatology patients with psoriasis";

/// All agents around one orchestrator; each test replaces those it is about.
pub(super) struct Cast {
    guardrail: AgentRef,
    planner: AgentRef,
    verifier: AgentRef,
}

impl Cast {
    /// Starts a guardrail and a verifier that object to the words INJECTION and UNSAFE, the
    /// rule-based planner, and two clinics.
    pub(super) fn new(system: &System) -> Self {
        for (name, answer) in [
            (
                "clinic_a",
                json!({ "patients": [{ "patient_id": "CARD-001", "condition": "Hypertension" }] }),
            ),
            (
                "clinic_b",
                json!({ "specialty": "dermatology", "query": "psoriasis",
                "matches": [{ "patient_id": "DERM-001", "condition": "Psoriasis" }] }),
            ),
        ] {
            register(
                system,
                name,
                (0..8).map(|_| ScriptStep::Reply(answer.clone())),
            );
        }
        Self {
            guardrail: guardrail(system),
            planner: system.spawn(Planner::new(Arc::new(two_clinics()))),
            verifier: Probe::<Verify>::spawn(system, |v| verified(!v.text.contains("UNSAFE"), v)).0,
        }
    }

    fn spawn(self, system: &System) -> AgentRef {
        system.spawn(Orchestrator::new(self.config(system)))
    }

    pub(super) fn config(self, system: &System) -> OrchestratorConfig {
        let registry = Arc::new(two_clinics());
        let router = system.spawn(Router::new(RouterConfig::new(
            registry.clone(),
            self.guardrail.clone(),
        )));
        OrchestratorConfig::new(
            registry,
            self.guardrail,
            self.planner,
            router,
            self.verifier,
        )
    }
}

fn guardrail(system: &System) -> AgentRef {
    Probe::<Screen>::spawn(system, |screen| {
        let blocked = screen.text.contains("INJECTION");
        read(json!({ "blocked": blocked, "score": 0, "rules": [] }))
    })
    .0
}

fn verdict(safe: bool) -> Verdict {
    match safe {
        true => read(json!({ "safe": true, "note": "OK" })),
        false => read(
            json!({ "safe": false, "note": "Response contains fabricated dosage for Amiodarone.", "rule": "R1" }),
        ),
    }
}

fn verified(safe: bool, asked: &Verify) -> Verified {
    read(json!({ "verdict": verdict(safe), "results": asked.results, "text": asked.text }))
}

fn read<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap_or_else(|e| panic!("{e}"))
}

fn register(system: &System, name: &str, script: impl IntoIterator<Item = ScriptStep>) {
    let agent = system.spawn(ScriptedAgent::new(script));
    system
        .directory()
        .register(name, &agent)
        .unwrap_or_else(|e| panic!("{e}"));
}

/// Stops a clinic, as if its process had ended.
pub(super) async fn remove(system: &System, name: &str) {
    let clinic = system
        .directory()
        .get(name)
        .unwrap_or_else(|| panic!("{name}"));
    clinic.kill();
    clinic.wait_for_exit().await;
}

fn scripted(system: &System, act: ScriptStep) -> AgentRef {
    system.spawn(ScriptedAgent::new([act]))
}

async fn ended(system: &System) -> AgentRef {
    let agent = system.spawn(ScriptedAgent::new([]));
    agent.kill();
    agent.wait_for_exit().await;
    agent
}

async fn ask(orchestrator: &AgentRef, query: &str) -> ClinicAnswer {
    let message = AskClinics {
        query: query.into(),
        purpose: None,
    };
    let answer = orchestrator
        .ask(message)
        .await
        .unwrap_or_else(|e| panic!("{e}"));
    answer.unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the answer as JSON, without the times.
fn json_of(answer: &ClinicAnswer) -> Value {
    let mut json = serde_json::to_value(answer).unwrap_or_else(|e| panic!("{e}"));
    json.as_object_mut().and_then(|o| o.remove("times_ms"));
    for step in json
        .get_mut("steps")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        step.as_object_mut().and_then(|o| o.remove("ms"));
    }
    json
}

/// Runs a test with paused time, and stops the system's agents.
pub(super) fn until_ended(test: impl AsyncFnOnce(&System)) {
    run_with_paused_time(async |system| {
        test(system).await;
        system.shutdown(Duration::from_secs(60)).await;
    });
}

/// Goal: the document's question goes through the whole pipeline. Method: scripted clinics; the answer as JSON and
/// text.
/// Rows: H-46, C-1.
#[test]
fn the_documents_question_is_answered() {
    until_ended(async |system| {
        let orchestrator = Cast::new(system).spawn(system);
        let answer = ask(&orchestrator, QUESTION).await;
        let expect = json!({
            "status": "answered",
            "text": "1. clinic_a (cardiology): list_patients\n   patients: 1\n      CARD-001  Hypertension\n\n\
                2. clinic_b (dermatology): query \"psoriasis\"\n   matches: 1\n      DERM-001  Psoriasis",
            "plan": [
                { "step_id": 1, "clinic": "clinic_a", "action": "list_patients", "parameters": {} },
                { "step_id": 2, "clinic": "clinic_b", "action": "query", "parameters": { "query": "psoriasis" } }
            ],
            "steps": [
                { "step_id": 1, "clinic": "clinic_a", "action": "list_patients",
                    "result": { "patients": [{ "patient_id": "CARD-001", "condition": "Hypertension" }] } },
                { "step_id": 2, "clinic": "clinic_b", "action": "query",
                    "result": { "specialty": "dermatology", "query": "psoriasis",
                        "matches": [{ "patient_id": "DERM-001", "condition": "Psoriasis" }] } }
            ],
            "verdict": { "safe": true, "note": "OK" }
        });
        assert_eq!(json_of(&answer), expect);
        assert!(!format!("{answer:?}").contains("DERM-001"));
    });
}

/// Goal: an unsafe answer is replaced by the verifier's note (C-27). Method: a clinic's text that
/// the verifier objects to.
/// Rows: C-27.
#[test]
fn an_unsafe_answer_is_only_its_note() {
    until_ended(async |system| {
        let orchestrator = Cast::new(system).spawn(system);
        let unsafe_answer =
            json!({ "patient": { "patient_id": "CARD-001", "notes": "UNSAFE Jane Roe" } });
        remove(system, "clinic_a").await;
        register(system, "clinic_a", [ScriptStep::Reply(unsafe_answer)]);
        let answer = ask(&orchestrator, "get CARD-001").await;
        let note = "Response contains fabricated dosage for Amiodarone.";
        let expect = json!({
            "status": "blocked", "text": note, "verdict": { "safe": false, "note": note, "rule": "R1" }
        });
        assert_eq!(json_of(&answer), expect);
    });
}

/// Goal: one clinic's unsafe or oversized answer costs no other clinic's; that of all is withheld whole.
/// Method: an unsafe answer of one clinic, and of both; one beyond the verifier's limit.
/// Rows: C-27.
#[test]
fn an_unsafe_step_costs_no_other() {
    let unsafe_row = json!({ "patient_id": "CARD-001", "condition": "UNSAFE" });
    let large_list: Vec<Value> = (100..200)
        .map(|n| json!({ "patient_id": format!("CARD-{n}"), "condition": "Hypertension" }))
        .collect();
    let large_list = json!({ "patients": large_list });
    let matches = json!({ "specialty": "dermatology", "query": "psoriasis",
        "matches": [{ "patient_id": "DERM-001", "condition": "UNSAFE" }] });
    let unsafe_list = json!({ "patients": [unsafe_row] });
    let of = |lists: Value, matches: Option<Value>| {
        let answered = Arc::new(Mutex::new(None));
        let into = answered.clone();
        until_ended(async move |system: &System| {
            let mut cast = Cast::new(system);
            cast.verifier = Probe::<Verify>::spawn(system, |asked| {
                let mut verified = verified(!asked.text.contains("UNSAFE"), asked);
                if asked.text.len() > 1_000 {
                    verified.verdict = Verdict {
                        rule: None,
                        ..verdict(false)
                    };
                }
                verified
            })
            .0;
            remove(system, "clinic_a").await;
            register(system, "clinic_a", [ScriptStep::Reply(lists.clone())]);
            if let Some(matches) = &matches {
                remove(system, "clinic_b").await;
                register(system, "clinic_b", [ScriptStep::Reply(matches.clone())]);
            }
            *into.lock().unwrap() = Some(ask(&cast.spawn(system), QUESTION).await);
        });
        answered.lock().unwrap().take().unwrap()
    };
    let one = of(unsafe_list.clone(), None);
    assert_eq!(one.status(), AnswerStatus::Partial);
    assert!(one.text().contains("DERM-001") && !one.text().contains("CARD-001"));
    assert!(one.text().contains("the verifier withheld its answer (R1)"));
    assert!(one.steps()[0].result.is_none() && one.verdict().unwrap().safe);
    let both = of(unsafe_list, Some(matches));
    assert_eq!(both.status(), AnswerStatus::Blocked);
    assert!(both.steps().is_empty());
    let large = of(large_list, None);
    assert_eq!(large.status(), AnswerStatus::Partial, "{}", large.text());
    assert!(large.text().contains("DERM-001") && !large.text().contains("CARD-1"));
}

/// Goal: what the real verifier says about one clinic's words passes it again, also those of an error.
/// Method: a row that tells the reader what to do, and an error that does.
#[test]
fn what_is_said_of_a_withheld_answer_is_safe() {
    let row = |text: &str| {
        ScriptStep::Reply(json!({ "patients": [{ "patient_id": "CARD-001", "condition": text }] }))
    };
    let advice = "You should stop taking your warfarin today.";
    for said in [row(advice), ScriptStep::Fail(Failure::invalid(advice))] {
        let said = Mutex::new(Some(said));
        until_ended(async |system| {
            let mut cast = Cast::new(system);
            cast.verifier = system.spawn(crate::verifier::Verifier::default());
            remove(system, "clinic_a").await;
            let said = said.lock().unwrap().take().unwrap();
            register(system, "clinic_a", [said]);
            let answer = ask(&cast.spawn(system), QUESTION).await;
            assert_eq!(answer.status(), AnswerStatus::Partial, "{}", answer.text());
            let text = answer.text();
            assert!(
                text.contains("the verifier withheld its answer (R"),
                "{text}"
            );
            assert!(text.contains("DERM-001"), "{text}");
            assert!(!text.contains("warfarin"), "{text}");
            let findings = &answer.verdict().unwrap().findings;
            assert_eq!(findings[0].note, "An answer of clinic_a was withheld.");
        });
    }
}

/// Goal: the verifier receives every value, the final text, and whether identities may be seen.
/// Method: record its requests, with and without purpose.
/// Rows: C-45, X-43.
#[test]
fn the_verifier_reads_everything() {
    until_ended(async |system| {
        let mut cast = Cast::new(system);
        let (verifier, mut asked) = Probe::<Verify>::spawn(system, |v| verified(true, v));
        cast.verifier = verifier;
        let orchestrator = cast.spawn(system);
        for (purpose, identities) in [
            (None, Identities::Withheld),
            (Some("curiosity"), Identities::Withheld),
            (Some("treatment"), Identities::AsRecorded),
        ] {
            let message = AskClinics {
                query: QUESTION.into(),
                purpose: purpose.map(str::to_owned),
            };
            // The call has the local operator as principal.
            let answer = orchestrator.call(message).start().reply().await;
            let answer = answer
                .unwrap_or_else(|e| panic!("{e}"))
                .unwrap_or_else(|e| panic!("{e}"));
            let verify = asked.recv().await.unwrap_or_else(|| panic!("not asked"));
            assert_eq!(verify.identities, identities, "{purpose:?}");
            assert_eq!(verify.text, answer.text());
            assert_eq!(verify.records.len(), 2);
            assert_eq!(
                verify.results[1]["result"]["matches"][0]["patient_id"],
                "DERM-001"
            );
        }
        // Another principal: a purpose alone gives no access.
        let message = AskClinics {
            query: QUESTION.into(),
            purpose: Some("treatment".into()),
        };
        let _ = orchestrator
            .call(message)
            .principal(Principal::anonymous())
            .start()
            .reply()
            .await;
        assert_eq!(
            asked.recv().await.map(|v| v.identities),
            Some(Identities::Withheld)
        );
    });
}

/// Goal: without a verifier no answer is shown (bad input G8). Method: ended, hanging, panicking,
/// of the wrong type, contradictory.
#[test]
fn without_a_verifier_nothing_is_shown() {
    until_ended(async |system| {
        let cast = Cast::new(system);
        let ended = ended(system).await;
        let wrong = json!({ "safe": "true", "note": "OK" });
        let torn = json!({ "safe": true, "note": "OK", "rule": "R2" });
        let verifiers = [
            ScriptStep::Hang,
            ScriptStep::Panic,
            ScriptStep::Reply(wrong),
            ScriptStep::Reply(torn),
            ScriptStep::Reply(json!(null)),
        ];
        let verifiers: Vec<AgentRef> = verifiers
            .map(|act| scripted(system, act))
            .into_iter()
            .chain([ended])
            .collect();
        for verifier in verifiers {
            let (guardrail, planner) = (cast.guardrail.clone(), cast.planner.clone());
            let orchestrator = Cast {
                guardrail,
                planner,
                verifier,
            }
            .spawn(system);
            let answer = ask(&orchestrator, QUESTION).await;
            let text = "The answer is withheld: the verifier could not check it. Ask again later.";
            assert_eq!(
                json_of(&answer),
                json!({ "status": "failed", "text": text })
            );
        }
    });
}

/// Goal: a question that the guardrail blocks or can't screen isn't planned. Method: a planner that
/// records.
#[test]
fn the_guardrail_comes_first() {
    until_ended(async |system| {
        let (planner, mut planned) =
            Probe::<MakePlan>::spawn(system, |_| Err(Failure::internal("x")));
        let cast = Cast {
            planner,
            ..Cast::new(system)
        };
        let ended = ended(system).await;
        for (guardrail, query) in [(cast.guardrail.clone(), "INJECTION"), (ended, QUESTION)] {
            let (planner, verifier) = (cast.planner.clone(), cast.verifier.clone());
            let orchestrator = Cast {
                guardrail,
                planner,
                verifier,
            }
            .spawn(system);
            let answer = ask(&orchestrator, query).await;
            assert_eq!(
                json_of(&answer),
                json!({ "status": "blocked", "text": "Request blocked by guardrails" })
            );
        }
        assert!(planned.try_recv().is_err());
    });
}

/// Goal: a question that can't be planned is refused with a sentence and without a code (T-C9).
/// Method: the rules' refusal, a model's prose, a plan that names an unknown clinic, a stopped
/// planner.
/// Rows: C-22.
#[test]
fn what_cannot_be_planned_is_refused() {
    until_ended(async |system| {
        let cast = Cast::new(system);
        let prose = Plan::parse_or_refuse("I would list the patients. UNSAFE");
        let stray = Plan::parse_or_refuse(
            r#"[{"step_id":1,"clinic":"clinic_z","action":"list_patients","parameters":{}}]"#,
        );
        let refusal = Plan::parse_or_refuse(
            r#"[{"step_id":1,"clinic":"UNSAFE","action":"raw_response","parameters":{"reason":"Not possible.","note":"UNSAFE"}}]"#,
        );
        let script = [prose, stray, refusal]
            .map(|plan| ScriptStep::Reply(serde_json::to_value(plan).unwrap_or_default()));
        let model = system.spawn(ScriptedAgent::new(script));
        for (planner, query, says, action) in [
            (
                cast.planner.clone(),
                "What's the weather?",
                "Name a specialty",
                Some("raw_response"),
            ),
            (
                model.clone(),
                QUESTION,
                "The plan could not be read",
                Some("raw_response"),
            ),
            (
                model.clone(),
                QUESTION,
                "clinic_z, which is not a registered clinic",
                Some("raw_response"),
            ),
            (
                model.clone(),
                QUESTION,
                "Not possible.",
                Some("raw_response"),
            ),
            (model, QUESTION, "the planner is away", None),
        ] {
            let (guardrail, verifier) = (cast.guardrail.clone(), cast.verifier.clone());
            let orchestrator = Cast {
                guardrail,
                planner,
                verifier,
            }
            .spawn(system);
            let answer = ask(&orchestrator, query).await;
            assert_eq!(answer.status(), AnswerStatus::Failed);
            assert!(
                answer.text().contains(says) && !answer.text().contains("-326"),
                "{}",
                answer.text()
            );
            assert_eq!(answer.plan().first().map(|s| s.action.as_str()), action);
            // The unusable text itself isn't shown.
            assert!(!json_of(&answer).to_string().contains("UNSAFE"));
        }
    });
}

/// Goal: with one clinic down, the rest is a partial answer that names the clinic; with all down, the
/// question fails. Method: clinics that fail.
#[test]
fn a_clinic_that_is_down_says_so() {
    until_ended(async |system| {
        let cast = Cast::new(system);
        let orchestrator = cast.spawn(system);
        for (name, status) in [
            ("clinic_b", AnswerStatus::Partial),
            ("clinic_a", AnswerStatus::Failed),
        ] {
            remove(system, name).await;
            let answer = ask(&orchestrator, QUESTION).await;
            assert_eq!(answer.status(), status);
            assert!(
                answer
                    .text()
                    .contains("   not answered: clinic_b can't be reached (-32000)"),
                "{}",
                answer.text()
            );
            let partial = "Partial answer: what clinic_b (dermatology) was asked is missing";
            let is_partial = status == AnswerStatus::Partial;
            assert_eq!(
                answer.text().contains(partial),
                is_partial,
                "{}",
                answer.text()
            );
            assert_eq!(answer.verdict(), Some(&verdict(true)));
        }
    });
}

/// Goal: a step is repeated for the patients that its source found, with their ids and at the same
/// clinic only; what is left out isn't shown. Method: two clinics that record their calls; a plan with
/// both, each clinic's answer in another's words.
#[test]
fn patients_flow_within_their_clinic() {
    until_ended(async |system| {
        let cast = Cast::new(system);
        remove(system, "clinic_a").await;
        remove(system, "clinic_b").await;
        let row = |id: &str| json!({ "patient_id": id, "condition": "Angina" });
        let medications = |id: &str| json!({ "patient_id": id, "medications": [] });
        let a = system.spawn(ScriptedAgent::new([
            ScriptStep::Reply(json!({ "matches": [row("CARD-002")] })),
            ScriptStep::Reply(
                json!({ "patients": [row("CARD-001"), row("CARD-002"), row("CARD-003")] }),
            ),
            ScriptStep::Reply(medications("CARD-001")),
            ScriptStep::Reply(medications("CARD-003")),
        ]));
        let b = system.spawn(ScriptedAgent::new([
            ScriptStep::Reply(json!({ "matches": [row("DERM-001")] })),
            ScriptStep::Reply(medications("DERM-001")),
        ]));
        for (name, agent) in [("clinic_a", &a), ("clinic_b", &b)] {
            system
                .directory()
                .register(name, agent)
                .unwrap_or_else(|e| panic!("{e}"));
        }
        let orchestrator = cast.spawn(system);
        let query = "medications of cardiology patients without hypertension and of patients with psoriasis";
        let answer = ask(&orchestrator, query).await;
        assert_eq!(answer.status(), AnswerStatus::Answered, "{}", answer.text());
        let told: Vec<String> = answer
            .plan()
            .iter()
            .map(|s| format!("{} {}", s.step_id, s.action))
            .collect();
        assert_eq!(
            told,
            [
                "1 query",
                "2 list_patients",
                "3 query",
                "4 check_medications",
                "5 check_medications",
                "6 check_medications"
            ]
        );
        assert!(
            !json_of(&answer).to_string().contains("CARD-002"),
            "{}",
            answer.text()
        );
        assert!(
            answer
                .text()
                .contains("2. clinic_a (cardiology): list_patients without those of step 1")
        );
        assert!(!a.observe().await.to_string().contains("DERM"));
        assert!(!b.observe().await.to_string().contains("CARD"));
    });
}

/// Goal: what belongs to another specialty, and nobody has, is refused; what somebody has is shown.
/// Method: a search that finds nothing, and one that finds somebody.
#[test]
fn nobody_with_a_foreign_disease_is_a_refusal() {
    until_ended(async |system| {
        let cast = Cast::new(system);
        remove(system, "clinic_a").await;
        remove(system, "clinic_b").await;
        let row = json!({ "patient_id": "DERM-001", "condition": "Eczema" });
        let script = |second: Value| [json!({ "matches": [] }), second].map(ScriptStep::Reply);
        register(system, "clinic_a", script(json!({ "matches": [] })));
        register(system, "clinic_b", script(json!({ "matches": [row] })));
        let orchestrator = cast.spawn(system);
        let none = ask(&orchestrator, "which patients are diabetic?").await;
        assert_eq!(
            (none.status(), none.steps().len()),
            (AnswerStatus::Failed, 0)
        );
        assert!(
            none.text()
                .starts_with("No clinic here treats \"diabetic\""),
            "{}",
            none.text()
        );
        let some = ask(&orchestrator, "which patients are diabetic?").await;
        assert_eq!(some.status(), AnswerStatus::Answered);
        assert!(some.text().contains("DERM-001"), "{}", some.text());
    });
}

/// Goal: a patient whom the clinic doesn't have is an answer. Method: a clinic that tells so.
#[test]
fn nobody_with_an_id_is_an_answer() {
    until_ended(async |system| {
        let orchestrator = Cast::new(system).spawn(system);
        remove(system, "clinic_a").await;
        let none = ScriptStep::Fail(Failure::not_found("no patient CARD-999"));
        register(system, "clinic_a", [none]);
        let answer = ask(&orchestrator, "get CARD-999").await;
        assert_eq!(answer.status(), AnswerStatus::Answered);
        assert!(
            answer
                .text()
                .contains("   nobody: clinic_a: no patient CARD-999 (-32602)"),
            "{}",
            answer.text()
        );
    });
}

/// Goal: outcomes of other steps than requested are rejected. Method: a router that returns
/// outcomes of another step.
#[test]
fn outcomes_of_other_steps_are_not_shown() {
    until_ended(async |system| {
        let cast = Cast::new(system);
        let outcome = |clinic: &str| json!({ "step_id": 1, "clinic": clinic, "action": "list_patients", "result": {}, "ms": 1 });
        for steps in [
            json!([outcome("clinic_b")]),
            json!([]),
            json!([outcome("clinic_a"), outcome("clinic_a")]),
        ] {
            let router = scripted(system, ScriptStep::Reply(json!({ "steps": steps })));
            let (guardrail, planner, verifier) = (
                cast.guardrail.clone(),
                cast.planner.clone(),
                cast.verifier.clone(),
            );
            let config = OrchestratorConfig::new(
                Arc::new(two_clinics()),
                guardrail,
                planner,
                router,
                verifier,
            );
            let orchestrator = system.spawn(Orchestrator::new(config));
            let answer = ask(&orchestrator, "list cardiology patients").await;
            assert_eq!(
                (answer.status(), answer.steps().len()),
                (AnswerStatus::Failed, 0)
            );
            assert!(answer.text().contains("the router is away"));
        }
    });
}

/// Goal: progress reports give plan, steps and verdict in order, numbered consecutively, without
/// words that the user didn't write. Method: follow two calls, one planned by a model that makes up
/// words.
/// Rows: C-4.
#[test]
fn progress_tells_the_stages() {
    until_ended(async |system| {
        let mut cast = Cast::new(system);
        let follow = async |orchestrator: &AgentRef| {
            let mut call = orchestrator
                .call(AskClinics {
                    query: QUESTION.into(),
                    purpose: None,
                })
                .start();
            let mut told = Vec::new();
            while let Some(event) = call.next().await {
                if let CallEvent::Progress(p) = event {
                    told.push(format!("{} {}", p.done, p.message.unwrap_or_default()));
                }
            }
            told
        };
        let (guardrail, verifier) = (cast.guardrail.clone(), cast.verifier.clone());
        let planner = std::mem::replace(&mut cast.planner, cast.verifier.clone());
        let orchestrator = Cast {
            guardrail,
            planner,
            verifier,
        }
        .spawn(system);
        let expect = [
            "1 plan step 1: clinic_a list_patients",
            "2 plan step 2: clinic_b query \"psoriasis\"",
            "3 step 1 clinic_a list_patients started",
            "4 step 2 clinic_b query started",
            "5 step 1 clinic_a list_patients done in 0 ms",
            "6 step 2 clinic_b query done in 0 ms",
            "7 verdict: safe",
        ];
        assert_eq!(follow(&orchestrator).await, expect);

        let made_up = r#"[{"step_id":1,"clinic":"clinic_b","action":"query","parameters":{"query":"Jane Roe"}}]"#;
        let plan = serde_json::to_value(Plan::parse_or_refuse(made_up)).unwrap_or_default();
        cast.planner = scripted(system, ScriptStep::Reply(plan));
        let told = follow(&cast.spawn(system)).await;
        assert_eq!(told[0], "1 plan step 1: clinic_b query …");
        assert!(!told.join("\n").contains("Jane"));
    });
}

/// Goal: limits of a question hold. Method: at the limit and one above.
#[test]
fn limits() {
    until_ended(async |system| {
        let orchestrator = Cast::new(system).spawn(system);
        let ask = async |query: String, purpose: Option<String>| {
            let reply = orchestrator.ask(AskClinics { query, purpose }).await;
            reply
                .unwrap_or_else(|e| panic!("{e}"))
                .map(|_| ())
                .map_err(|f| f.kind)
        };
        assert_eq!(ask("é".repeat(QUERY_CHARS_MAX), None).await, Ok(()));
        assert_eq!(
            ask("é".repeat(QUERY_CHARS_MAX + 1), None).await,
            Err(FailureKind::InvalidInput)
        );
        assert_eq!(
            ask(" \t\n".into(), None).await,
            Err(FailureKind::InvalidInput)
        );
        assert_eq!(
            ask(QUESTION.into(), Some("p".repeat(PURPOSE_CHARS_MAX))).await,
            Ok(())
        );
        for bad in [
            "p".repeat(PURPOSE_CHARS_MAX + 1),
            String::new(),
            "a b".into(),
            "a\nb".into(),
        ] {
            assert_eq!(
                ask(QUESTION.into(), Some(bad)).await,
                Err(FailureKind::InvalidInput)
            );
        }
    });
}
