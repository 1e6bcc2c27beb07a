//! Tests of orchestrators in topologies.

use std::path::Path;

use callboard_message::DataClass;
use callboard_orchestration::decide::{DeciderKind, DecisionPoint};

use super::{NODE, told};
use crate::config::{DeciderEntry, ModelDeclaration, Topology};

/// Returns a topology with a model, a remote agent, and an orchestrator with the keys `more`.
fn with(more: &str) -> String {
    format!(
        "{NODE}[[agent]]\nkind = \"model\"\nprovider = \"echo\"\nid = \"m\"\n[[agent]]\nkind = \"a2a\"\nid = \"weather\"\nurl = \"https://w.example\"\n[[agent]]\nkind = \"orchestrator\"\nid = \"helper\"\n{more}"
    )
}

/// Goal: who decides is what the file says, else the model's, else the rules'; answers are the model's. Method: four files.
#[test]
fn who_decides() {
    let who = |more: &str, point| {
        let topology = Topology::parse(&with(more), false, Path::new("")).unwrap();
        let orchestrator = topology.orchestrator("helper").unwrap();
        let deciders = orchestrator.deciders_at(point);
        assert_eq!(deciders.len(), 1, "{more}");
        deciders[0].kind()
    };
    assert_eq!(who("", DecisionPoint::Route), DeciderKind::Rules);
    assert_eq!(who("", DecisionPoint::Answer), DeciderKind::Model);
    assert_eq!(
        who("model = \"m\"", DecisionPoint::Route),
        DeciderKind::Model
    );
    let mixed = "model = \"m\"\ndecide = { default = \"rules\", route = \"weather\", confirm = \"person\" }";
    assert_eq!(who(mixed, DecisionPoint::Clarity), DeciderKind::Rules);
    assert_eq!(
        who(mixed, DecisionPoint::Route),
        DeciderKind::Agent("weather".to_owned())
    );
    assert_eq!(who(mixed, DecisionPoint::Confirm), DeciderKind::Person);
    assert_eq!(who(mixed, DecisionPoint::Answer), DeciderKind::Model);
}

/// Goal: deciders follow one another in the order of the file, with their time limits, and the model
/// decides at once unless a point that this stands for has an entry of its own. Method: rows.
#[test]
fn chains_of_deciders() {
    let names = |more: &str, point| {
        let topology = Topology::parse(&with(more), false, Path::new("")).unwrap();
        let deciders = topology.orchestrator("helper").unwrap().deciders_at(point);
        let name = |entry: &DeciderEntry| match entry.timeout() {
            Some(limit) => format!("{} {}", entry.name(), limit.as_millis()),
            None => entry.name().to_owned(),
        };
        deciders.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let chain = "model = \"m\"\ndecide = { default = [\"model\", \"rules\"], recovery = { by = \"weather\", timeout_ms = 900 } }";
    for (more, point, expected) in [
        (chain, DecisionPoint::Route, "model, rules"),
        (chain, DecisionPoint::Intake, "model"),
        (chain, DecisionPoint::Recovery, "weather 900"),
        (chain, DecisionPoint::Answer, "model"),
        ("", DecisionPoint::Intake, ""),
        ("model = \"m\"", DecisionPoint::Intake, "model"),
        (
            "model = \"m\"\ndecide = { route = \"model\" }",
            DecisionPoint::Intake,
            "",
        ),
        (
            "model = \"m\"\ndecide = { default = [\"rules\", \"model\"] }",
            DecisionPoint::Intake,
            "",
        ),
        (
            "decide = { intake = [{ by = \"weather\", timeout_ms = 1 }] }",
            DecisionPoint::Intake,
            "weather 1",
        ),
        (
            "embedding = { model = \"w\" }\ndecide = { tool = [\"embedding\", \"rules\"] }\n[[agent]]\nkind = \"model\"\nprovider = \"ollama\"\nid = \"w\"\nmodel = \"x\"",
            DecisionPoint::Tool,
            "embedding, rules",
        ),
    ] {
        assert_eq!(names(more, point), expected, "{more} {point}");
    }
}

/// Goal: models that only make embeddings answer no sampling requests. Method: a model that answers,
/// one that an orchestrator embeds by, and a table of word vectors.
#[test]
fn models_that_only_embed() {
    let text = with(
        "embedding = { model = \"e\" }\n[[agent]]\nkind = \"model\"\nprovider = \"ollama\"\nid = \"e\"\nmodel = \"nomic-embed-text\"\n[[agent]]\nkind = \"model\"\nprovider = \"word_vectors\"\nid = \"w\"\npath = \"w.vec\"",
    );
    let topology = Topology::parse(&text, false, Path::new("/here")).unwrap();
    assert_eq!(topology.answering_models().collect::<Vec<_>>(), ["m"]);
    let vectors = topology.agent_of_kind::<ModelDeclaration>("w").unwrap();
    assert_eq!(
        vectors.config.vectors_file(),
        Some(Path::new("/here/w.vec"))
    );
}

/// Goal: every mistake is told where it stands. Method: one file a mistake; what is told, and that there is no other.
#[test]
fn every_mistake_of_an_orchestrator() {
    for (more, expect) in [
        ("model = \"n\"", "13:9 there is no model n"),
        (
            "agents = [\"wether\"]",
            "13:11 helper delegates to wether, which is no agent or upstream",
        ),
        (
            "agents = [\"tools\"]\n[[server]]\nid = \"tools\"\nmembers = [\"weather\"]",
            "13:11 tools is a virtual server, which can't be delegated to",
        ),
        (
            "agents = [\"weather\", \"weather\"]",
            "13:22 weather is named twice",
        ),
        (
            "agents = [\"helper\"]",
            "12:6 helper delegates to itself or lets itself decide, directly or through other agents",
        ),
        (
            "decide = { rout = \"rules\" }",
            "13:12 there is no decision point `rout`",
        ),
        (
            "decide = { route = \"model\" }",
            "13:20 helper has no model to decide",
        ),
        (
            "decide = { route = \"whether\" }",
            "13:20 there is no agent whether to decide",
        ),
        (
            "decide = { route = [\"rules\", \"rules\"] }",
            "13:30 `rules` is named twice",
        ),
        (
            "decide = { route = 1 }",
            "13:20 `route`: it must be a decider, a table of `by` and `timeout_ms`, or a list of them, not a whole number",
        ),
        (
            "decide = { route = [] }",
            "13:20 `route` names 0 deciders: name 1 to 4",
        ),
        (
            "decide = { route = [\"a\", \"b\", \"c\", \"d\", \"e\"] }",
            "13:20 `route` names 5 deciders: name 1 to 4",
        ),
        (
            "decide = { intake = \"rules\" }",
            "13:21 `rules` decides the points of a request one by one: leave `intake` out",
        ),
        (
            "decide = { route = \"embedding\" }",
            "13:20 helper has no embeddings to decide",
        ),
        (
            "embedding = { model = \"w\" }\ndecide = { clarity = \"embedding\" }\n[[agent]]\nkind = \"model\"\nprovider = \"ollama\"\nid = \"w\"\nmodel = \"x\"",
            "14:22 `embedding` decides only `route` and `tool`",
        ),
        ("embedding = { model = \"n\" }", "13:23 there is no model n"),
        (
            "embedding = { model = \"m\" }",
            "13:23 m makes no embeddings",
        ),
        (
            "embedding = { model = \"w\", lead_min = -1 }\n[[agent]]\nkind = \"model\"\nprovider = \"ollama\"\nid = \"w\"\nmodel = \"x\"",
            "13:39 `lead_min` must be from 0 to 2",
        ),
        (
            "tools = [\"echo\", \"ecko\"]",
            "13:18 there is no tool `ecko`",
        ),
        (
            "tools = [\"execute_command\"]",
            "13:10 `execute_command` stays off: no program is allowed",
        ),
        (
            "confidence_min = 1.1",
            "13:18 `confidence_min` must be from 0 to 1",
        ),
        ("max_risk = -0.1", "13:12 `max_risk` must be from 0 to 1"),
        (
            "cost_usd_max = -1",
            "13:16 `cost_usd_max` must be 0 or more",
        ),
        (
            "class = \"public\"\nagents = [\"weather\"]",
            "14:11 weather has data of the class `internal`, and helper is only for `public`",
        ),
        (
            "name = \"weather\"",
            "13:8 weather and helper have the same name, under which their tasks are stored: change `name` of one",
        ),
        ("prompt = \"x\"", "13:1 an orchestrator has no key `prompt`"),
    ] {
        assert_eq!(told(&with(more), false), [expect], "{more}");
    }
}

/// Goal: orchestrators that wait for one another are found, and those that don't aren't. Method: two of each.
#[test]
fn circles_of_orchestrators() {
    let second = |first: &str, second: &str| {
        with(&format!(
            "{first}\n[[agent]]\nkind = \"orchestrator\"\nid = \"other\"\n{second}"
        ))
    };
    let circle = second("agents = [\"other\"]", "decide = { route = \"helper\" }");
    assert_eq!(told(&circle, false).len(), 2);
    let line = second("agents = [\"other\"]", "agents = [\"weather\"]");
    assert_eq!(told(&line, false), Vec::<String>::new());
}

/// Goal: what an orchestrator says may be about people, unless the file says otherwise. Method: the default, and one.
#[test]
fn the_class_is_personal_unless_it_is_said() {
    let class = |more: &str| {
        Topology::parse(&with(more), false, Path::new(""))
            .unwrap()
            .class_of(&["helper"])
    };
    assert_eq!(class(""), DataClass::Personal);
    assert_eq!(class("class = \"clinical\""), DataClass::Clinical);
}
