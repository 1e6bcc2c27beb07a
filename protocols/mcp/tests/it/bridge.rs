//! Two hops: a client, a proxy server of ours, and the remote server behind it. Each hop of either
//! era.

use std::sync::{Arc, Mutex};

use callboard_mcp::outbound::Era;
use callboard_message::capabilities::{CallTool, ListTools};
use callboard_message::{
    Answer, Elicitation, ElicitationAnswer, Failure, FailureKind, LogLevel, LogMessage, Progress,
    Question, RawObject, Root, RootsAnswer, SamplingAnswer, SamplingRequest, ToolResult,
};
use callboard_runtime::{Agent, AgentRef, CallEvent, Context, Handler, Handlers, SyncHandler};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::value::RawValue;

use crate::bridge_kit::Site;
use crate::kit::soon;

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// Remote server: records its calls, and asks and answers as scripted.
#[derive(Default)]
struct Far {
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    called: Vec<RawObject>,
    asks: Vec<Question>,
    answered: Vec<Result<Answer, Failure>>,
    result: RawObject,
    tools: RawObject,
}

impl Agent for Far {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<CallTool>().sync::<ListTools>();
    }
}

impl SyncHandler<ListTools> for Far {
    fn handle(&mut self, _: ListTools, _: &mut Context) -> Result<RawObject, Failure> {
        Ok(self.script.lock().unwrap().tools.clone())
    }
}

impl Handler<CallTool> for Far {
    async fn handle(&mut self, call: CallTool, cx: &mut Context) -> Result<ToolResult, Failure> {
        let asks = {
            let mut script = self.script.lock().unwrap();
            script.called.push(call.0);
            script.asks.clone()
        };
        for question in asks {
            cx.progress(Progress {
                done: 1.0,
                total: Some(2.0),
                message: Some("half".into()),
            });
            cx.log(LogMessage::new(LogLevel::Warning, "far", "asking"));
            cx.elicitation_done("visit-1");
            let answer = cx.ask_caller(question).await;
            self.script.lock().unwrap().answered.push(answer);
        }
        Ok(ToolResult(self.script.lock().unwrap().result.clone()))
    }
}

/// The whole chain, on free ports of this machine.
struct Way {
    near: AgentRef,
    script: Arc<Mutex<Script>>,
    site: Site,
}

impl Way {
    /// `near` is the era of the client and the proxy, `far` that of the proxy and the remote
    /// server.
    fn lay(near: Era, far: Era) -> Self {
        let (mut site, script) = (Site::new(), Arc::new(Mutex::new(Script::default())));
        let end = site.system.spawn(Far {
            script: script.clone(),
        });
        let middle = site.beyond(end, far);
        let near = site.beyond(middle, near);
        Self { near, script, site }
    }
}

/// JSON of any shape, as text: numbers beyond a double's precision, unnecessary escapes.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        Just("1.0".to_owned()),
        Just("-0".to_owned()),
        Just("1.50E+3".to_owned()),
        Just("123456789012345678901234567890".to_owned()),
        Just(r#""\u00e9\/\n\ud83d\ude00""#.to_owned()),
        "[^\"\\\\\\p{Cc}]{0,12}".prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let member = ("[a-z]{1,6}", inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::btree_map(member.0, member.1, 0..4).prop_map(|members| {
                let members = members
                    .iter()
                    .map(|(name, value)| format!("\"{name}\":{value}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn object(json: &str) -> RawObject {
    serde_json::from_str(json).unwrap()
}

/// Checks that every member of `sent` is in `came`, byte for byte; in `_meta` the hops may add
/// their own.
#[track_caller]
fn assert_kept(sent: &RawObject, came: &RawObject) {
    for (name, value) in sent.iter() {
        match name {
            "_meta" => assert_kept(&sent.object(name).unwrap(), &came.object(name).unwrap()),
            _ => assert_eq!(
                came.get(name).map(RawValue::get),
                Some(value.get()),
                "{name}"
            ),
        }
    }
}

/// Goal: a hop forwards unknown members byte for byte. Method: random members in params, result,
/// `_meta`, content and annotations, over every pair of eras.
#[tokio::test]
async fn nothing_is_lost() {
    const CASES: usize = 24;
    let mut runner = TestRunner::deterministic();
    let mut any = || json().new_tree(&mut runner).unwrap().current();
    for (near, far) in ERAS
        .into_iter()
        .flat_map(|near| ERAS.map(|far| (near, far)))
    {
        let way = Way::lay(near, far);
        for _ in 0..CASES {
            let mut params = object(r#"{"name":"t"}"#);
            params.set_raw(
                "arguments",
                raw(&format!("{{\"a\":{},\"b\":{}}}", any(), any())),
            );
            params.set_raw("unheardOf", raw(&any()));
            params.set_raw(
                "_meta",
                raw(&format!("{{\"example.com/x\":{},\"y\":{}}}", any(), any())),
            );
            let block = format!(
                r#"{{"type":"text","text":"t","annotations":{{"audience":["user"],"new":{}}},"more":{}}}"#,
                any(),
                any()
            );
            let mut result = RawObject::new();
            result.set_raw(
                "content",
                raw(&format!(
                    "[{block},{{\"type\":\"hologram\",\"data\":{}}}]",
                    any()
                )),
            );
            result.set_raw("structuredContent", raw(&format!("{{\"z\":{}}}", any())));
            result.set_raw("unheardOf", raw(&any()));
            result.set_raw("_meta", raw(&format!("{{\"example.com/r\":{}}}", any())));
            way.script.lock().unwrap().result = result.clone();
            let came = soon(way.near.ask(CallTool(params.clone())))
                .await
                .unwrap()
                .unwrap();
            let called = way.script.lock().unwrap().called.pop().unwrap();
            assert_kept(&params, &called);
            assert_kept(&result, &came.0);
        }
        way.site.end().await;
    }
}

/// Goal: a tool's definition reaches the client with unknown members and keywords. Method: the
/// members on which other implementations lose data (`execution`, `icons`, schema keywords), over
/// every pair of eras.
#[tokio::test]
async fn definitions_are_kept() {
    let tools = r##"{"tools":[{"name":"t","title":"T","description":"d","inputSchema":{"type":"object","$schema":
        "https://json-schema.org/draft/2020-12/schema","$defs":{"a":{"$anchor":"x","type":"string","contentEncoding":
        "base64"}},"properties":{"p":{"$ref":"#/$defs/a","x-unknown":1.0}},"unevaluatedProperties":false,
        "dependentSchemas":{"p":{}}},"outputSchema":{"type":"object","x-out":[1e2]},"annotations":{"readOnlyHint":true,
        "newHint":{"a":1}},"icons":[{"src":"https://example.com/i.png","theme":"dark"}],"execution":{"taskSupport":
        "optional","new":0},"_meta":{"example.com/t":1.50},"unheardOf":[null]}],"unheardOf":{"list":true}}"##;
    let tools = object(&tools.replace("\n        ", ""));
    for (near, far) in ERAS
        .into_iter()
        .flat_map(|near| ERAS.map(|far| (near, far)))
    {
        let way = Way::lay(near, far);
        way.script.lock().unwrap().tools = tools.clone();
        let came = soon(way.near.ask(ListTools::default()))
            .await
            .unwrap()
            .unwrap();
        assert_kept(&tools, &came);
        way.site.end().await;
    }
}

/// Goal: questions of a tool during a call are answered by the caller two hops away, whatever era
/// each hop has, and questions and answers are unchanged; so are progress and log messages. Method:
/// a sampling request, a form and roots with unknown members.
/// Rows: M-1, X-3, X-46.
#[tokio::test]
async fn questions_cross_the_eras() {
    let questions = [
        Question::Sample(SamplingRequest(object(
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"Hi","new":1.0}}],"maxTokens":7,
            "modelPreferences":{"hints":[{"name":"m"}],"costPriority":0.50},"unheardOf":{"a":1e1}}"#,
        ))),
        Question::Elicit(Elicitation(object(
            r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","x-new":1.0}},
            "required":["name"],"x-form":[]},"unheardOf":0}"#,
        ))),
        Question::roots(),
    ];
    let answers = [
        Answer::Sample(SamplingAnswer(
            SamplingAnswer::text("model", "Hello", Some("endTurn"))
                .0
                .with("unheardOf", 1),
        )),
        Answer::Elicit(ElicitationAnswer(
            ElicitationAnswer::accept(serde_json::json!({ "name": "Ann" }))
                .0
                .with("unheardOf", 2),
        )),
        Answer::Roots(RootsAnswer::from_roots(vec![Root {
            uri: "file:///tmp".into(),
            name: Some("tmp".into()),
        }])),
    ];
    for (near, far) in ERAS
        .into_iter()
        .flat_map(|near| ERAS.map(|far| (near, far)))
    {
        let way = Way::lay(near, far);
        {
            let mut script = way.script.lock().unwrap();
            script.asks = questions.to_vec();
            script.result = ToolResult::text("done").0;
        }
        let mut call = way
            .near
            .call(CallTool::new("t", serde_json::json!({})))
            .start();
        let (mut asked, mut progress, mut lines, mut done) = (Vec::new(), 0, 0, Vec::new());
        while let Some(event) = soon(call.next()).await {
            match event {
                CallEvent::Question(pending) => {
                    let answer = answers[asked.len()].clone();
                    asked.push(pending.question.clone());
                    pending.answer(answer);
                }
                CallEvent::Progress(_) => progress += 1,
                CallEvent::Log(_) => lines += 1,
                CallEvent::ElicitationDone(id) => done.push(id),
                _ => {}
            }
        }
        let result = soon(call.reply()).await.unwrap().unwrap();
        assert_eq!(result.texts(), "done", "{near:?} {far:?}");
        assert_eq!(asked.len(), 3, "{near:?} {far:?}");
        for (sent, came) in questions.iter().zip(&asked) {
            assert_kept(sent.body(), came.body());
        }
        let answered = std::mem::take(&mut way.script.lock().unwrap().answered);
        for (sent, came) in answers.iter().zip(&answered) {
            assert_kept(sent.body(), came.as_ref().unwrap().body());
        }
        assert!(
            progress >= 1 && lines >= 1,
            "{near:?} {far:?}: {progress} reports, {lines} lines"
        );
        // The modern era has no such notification.
        let told = if (near, far) == (Era::Legacy, Era::Legacy) {
            3
        } else {
            0
        };
        assert_eq!(done, vec!["visit-1"; told], "{near:?} {far:?}");
        way.site.end().await;
    }
}

/// Goal: without a caller that can answer, the tool gets an error, or the call ends if the era has
/// no such error. Method: a plain ask, without a caller, over every pair.
/// Rows: M-58.
#[tokio::test]
async fn nobody_to_ask_is_said() {
    for (near, far) in ERAS
        .into_iter()
        .flat_map(|near| ERAS.map(|far| (near, far)))
    {
        let way = Way::lay(near, far);
        {
            let mut script = way.script.lock().unwrap();
            script.asks = vec![Question::elicit(
                "Who?",
                serde_json::json!({ "type": "object", "properties": {} }),
            )];
            script.result = ToolResult::text("done").0;
        }
        let result = soon(way.near.ask(CallTool::new("t", serde_json::json!({}))))
            .await
            .unwrap()
            .unwrap();
        let answered = way.script.lock().unwrap().answered.pop();
        match (near, far) {
            // A legacy client declares its capabilities before any caller is known, and the modern
            // era has no failure of a question.
            (Era::Legacy, Era::Modern) => {
                assert_eq!(
                    (result.texts().as_str(), result.is_error()),
                    (
                        "nobody can answer the question: call from a client that supports such questions",
                        true
                    )
                )
            }
            _ => {
                assert_eq!(result.texts(), "done", "{near:?} {far:?}");
                let kind = answered.unwrap().unwrap_err().kind;
                assert!(
                    matches!(kind, FailureKind::NoResponder | FailureKind::Rejected),
                    "{near:?} {far:?}: {kind}"
                );
            }
        }
        way.site.end().await;
    }
}
