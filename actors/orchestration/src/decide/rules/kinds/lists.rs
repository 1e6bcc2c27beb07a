//! What the fit is worth: labelled lists, each told by weights that were fitted without it, from the request to where it goes.
//!
//! `LISTS=x.jsonl,y.jsonl` adds files of the same form to development's; `SHOW=xy` prints what went elsewhere of those lists.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::points::Rules;
use super::fit::{Sentence, fit, folder, joined, sentences, told_first};
use super::{Kinds, SEVERAL};
use crate::decide::{AgentView, Clarity, Route, SkillView, Split, ToolView, Turn, World};

thread_local! {
    /// Weights in the place of those that come with callboard.
    pub(super) static INSTEAD: Cell<Option<&'static Kinds>> = const { Cell::new(None) };
}

/// Labelled requests count more than sentences of our own: they are more like what comes.
const LABELLED_WEIGHT: f32 = 2.0;
const EVAL: &str = "../../examples/eval";

#[derive(Deserialize, Clone)]
struct Labelled {
    id: String,
    text: String,
    expect: String,
    target: Option<String>,
    #[serde(default)]
    also: Vec<String>,
    #[serde(default)]
    history: Vec<Value>,
}

impl Labelled {
    /// The list that it is of: what its id begins with.
    fn list(&self) -> char {
        self.id.chars().next().unwrap()
    }

    /// What it is labelled with, as a kind; the agents of the eval's world by the field that they are of.
    fn kind(&self) -> String {
        match (self.expect.as_str(), self.target.as_deref()) {
            ("decompose", _) => SEVERAL.to_owned(),
            (_, Some("invoices")) => "accounting".to_owned(),
            (_, Some("code-review")) => "code".to_owned(),
            (_, Some("web-research")) => "research".to_owned(),
            (_, Some("recipes")) => "food".to_owned(),
            (expect, target) => target.unwrap_or(expect).to_owned(),
        }
    }

    fn is_right(&self, class: &str, target: &str) -> bool {
        let is_labelled = self.expect == class && self.target.as_deref().is_none_or(|own| own == target);
        is_labelled || self.also.iter().any(|also| also == class || also == target)
    }

    fn history(&self) -> Vec<Turn> {
        let turn = |said: &Value| match said["role"] == "user" {
            true => Turn::user(said["text"].as_str().unwrap()),
            false => Turn::assistant(said["text"].as_str().unwrap()),
        };
        self.history.iter().map(turn).collect()
    }
}

fn read(file: &Path) -> Vec<Labelled> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Development's requests, and those of `LISTS`.
fn labelled() -> Vec<Labelled> {
    let mut all = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(EVAL).join("routing_dev.jsonl"));
    let more = std::env::var("LISTS").unwrap_or_default();
    for file in more.split(',').filter(|file| !file.is_empty()) {
        all.extend(read(Path::new(file)));
    }
    all
}

/// As they are fitted. Those that carry on are left out: a kind is of words alone.
fn learnt(labelled: &[Labelled]) -> Vec<(char, Sentence)> {
    let alone = labelled.iter().filter(|line| line.history.is_empty());
    alone.map(|line| (line.list(), Sentence::new(line.text.clone(), line.kind(), LABELLED_WEIGHT))).collect()
}

fn world() -> Arc<World> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(EVAL).join("world.json");
    let file: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let said = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let list = |value: &Value, key: &str| -> Vec<String> { serde_json::from_value(value[key].clone()).unwrap() };
    let tool = |value: &Value| ToolView {
        name: said(value, "name"),
        description: said(value, "description"),
        tags: list(value, "tags"),
        examples: list(value, "examples"),
        params: json!({"type": "object"}),
        risk: Default::default(),
    };
    let skill = |value: &Value| SkillView {
        id: said(value, "name"),
        name: said(value, "name"),
        description: said(value, "description"),
        tags: list(value, "tags"),
        examples: list(value, "examples"),
        ..SkillView::default()
    };
    let agent = |value: &Value| AgentView {
        id: said(value, "id"),
        name: said(value, "name"),
        description: said(value, "description"),
        skills: value["skills"].as_array().unwrap().iter().map(skill).collect(),
        is_up: true,
    };
    Arc::new(World {
        tools: file["tools"].as_array().unwrap().iter().map(tool).collect(),
        agents: file["agents"].as_array().unwrap().iter().map(agent).collect(),
    })
}

/// Its class, and the tool or agent.
fn fate(rules: &mut Rules, line: &Labelled, world: &Arc<World>) -> (&'static str, String) {
    let (request, history) = (&line.text, &line.history());
    if matches!(rules.clarity(request, history).outcome, Some(Clarity::NeedsClarify { .. })) {
        return ("clarify", String::new());
    }
    if rules.split(request, history, world).outcome == Some(Split::Yes) && rules.steps(request, world).outcome.is_some()
    {
        return ("decompose", String::new());
    }
    match rules.route(request, history, world).outcome {
        Some(Route::Remote { agent }) => ("remote", agent),
        Some(Route::Reject { .. }) => ("reject", String::new()),
        _ => ("local", rules.tool(request, history, &world.tools).outcome.map_or("llm".into(), |tool| tool.tool_name)),
    }
}

/// How many of them are right, and a line for each that isn't.
fn score<'a>(lines: impl Iterator<Item = &'a Labelled>, world: &Arc<World>) -> (usize, usize, Vec<String>) {
    let mut rules = Rules::default();
    let (mut right, mut all, mut wrong) = (0, 0, Vec::new());
    for line in lines {
        let (class, target) = fate(&mut rules, line, world);
        all += 1;
        if line.is_right(class, &target) {
            right += 1;
        } else {
            let label = line.target.as_deref().unwrap_or(&line.expect);
            let likely = super::Likely::of(&super::Reading::new(&line.text)).ranked_but(&[]);
            let likely: String = likely.iter().take(3).map(|(kind, share)| format!(" {kind} {share:.2}")).collect();
            wrong.push(format!("{} {label} got {class} {target} [{likely} ] {}", line.id, line.text));
        }
    }
    (right, all, wrong)
}

fn shows(list: char) -> bool {
    std::env::var("SHOW").unwrap_or_default().contains(list)
}

/// Goal: the weights are of these sentences. Method: fits them and writes the file.
#[test]
#[ignore = "writes a file: run it after a change of a lexicon, a rule or a sentence"]
fn fits_the_weights() {
    let mut all = sentences();
    let made = [joined(&all), told_first(&all)].concat();
    all.extend(learnt(&labelled()).into_iter().map(|(_, sentence)| sentence));
    all.extend(made);
    fs::write(folder().join("weights.tsv"), fit(&all).written()).unwrap();
}

/// Goal: what the weights that are there are worth for any list. Method: `LISTS`, and development.
#[test]
#[ignore = "a measurement"]
fn lists_as_they_are() {
    let (lines, world) = (labelled(), world());
    let mut lists: BTreeMap<char, Vec<&Labelled>> = BTreeMap::new();
    lines.iter().for_each(|line| lists.entry(line.list()).or_default().push(line));
    for (list, lines) in lists {
        let (right, all, wrong) = score(lines.into_iter(), &world);
        println!("{list}: {right} of {all}");
        if shows(list) {
            println!("{}", wrong.join("\n"));
        }
    }
}

/// Goal: what is learnt holds for a list that wasn't. Method: each list in turn, from the request to where it goes, by weights
/// fitted on the sentences and all other lists.
#[test]
#[ignore = "fits once a list"]
fn each_list_by_the_others() {
    let (lines, world, own) = (labelled(), world(), sentences());
    let (made, learnt) = ([joined(&own), told_first(&own)].concat(), learnt(&lines));
    let mut names: Vec<char> = lines.iter().map(Labelled::list).collect();
    names.sort_unstable();
    names.dedup();
    let (mut right_sum, mut all_sum) = (0, 0);
    for name in names {
        let others = learnt.iter().filter(|(list, _)| *list != name).map(|(_, sentence)| sentence.clone());
        let fitted: Vec<Sentence> = own.iter().cloned().chain(others).chain(made.iter().cloned()).collect();
        INSTEAD.set(Some(Box::leak(Box::new(Kinds::read(&fit(&fitted).written())))));
        let (right, all, wrong) = score(lines.iter().filter(|line| line.list() == name), &world);
        INSTEAD.set(None);
        (right_sum, all_sum) = (right_sum + right, all_sum + all);
        println!("{name}: {right} of {all}");
        if shows(name) {
            println!("{}", wrong.join("\n"));
        }
    }
    println!("all: {right_sum} of {all_sum}");
    assert!(right_sum * 10 >= all_sum * 8);
}
