//! Tests of bidirectional agents' files, with the documented sample.

use std::path::Path;

use callboard_models::ModelConfig;
use callboard_orchestration::decide::{DeciderKind, DecisionPoint};

use super::told;
use crate::config::{
    ModelDeclaration, OrchestratorDeclaration, ServedProtocol, Severity, Topology, parse_topology,
};

/// The documented sample.
const SAMPLE: &str = r#"[server]
port = 8080
bind_address = "0.0.0.0"
agent_id = "bidirectional-agent"
agent_name = "My Bidirectional Agent"

[client]
# Optional URL of remote agent to connect to
target_url = "http://localhost:8081"

[llm]
# API key for Claude (can also use CLAUDE_API_KEY environment variable)
# claude_api_key = "your-api-key-here"
system_prompt = "You are an AI agent assistant that helps with tasks."

[mode]
# REPL mode enabled by default
repl = true
repl_log_file = "agent_interactions.log"

[tools]
# Enable specific tools for the agent
enabled = ["echo", "llm", "summarize", "list_agents"]
# Path to store the agent directory for persistence
agent_directory_path = "./data/agent_directory.json"
"#;

fn read(text: &str) -> Topology {
    Topology::parse(text, false, Path::new("/here")).unwrap()
}

fn orchestrator(topology: &Topology) -> &OrchestratorDeclaration {
    topology.orchestrator(&topology.name).unwrap()
}

/// Goal: the document's file is read as it is written, and says what it says. Method: the sample; every part of what it
/// comes to; one warning, about the address.
/// Rows: B-9, B-10, B-11, B-12, B-13, B-14.
#[test]
fn the_documents_sample() {
    let (topology, problems) = parse_topology(SAMPLE, false, Path::new("/here"), true);
    let shown: Vec<_> = problems
        .iter()
        .map(|problem| (problem.level, problem.line))
        .collect();
    assert_eq!(shown, [(Severity::Warning, 3)], "{problems:?}");
    let topology = topology.unwrap();
    assert_eq!(topology.name, "bidirectional-agent");
    let [listener] = &*topology.listeners else {
        panic!("{:?}", topology.listeners)
    };
    assert_eq!(listener.bind.to_string(), "0.0.0.0:8080");
    assert_eq!(
        (
            listener.served_protocol(),
            listener.open,
            listener.lacks_authentication()
        ),
        (ServedProtocol::A2a, false, true)
    );
    assert_eq!(
        listener.public_url.as_ref().map(|url| url.url().as_str()),
        Some("http://localhost:8080/")
    );
    assert_eq!(listener.agent.as_deref(), Some("bidirectional-agent"));
    let declared = orchestrator(&topology);
    assert_eq!(declared.name(), "My Bidirectional Agent");
    assert_eq!(
        declared.system_prompt.as_deref(),
        Some("You are an AI agent assistant that helps with tasks.")
    );
    assert_eq!(declared.tools, ["echo", "llm", "summarize", "list_agents"]);
    assert_eq!(
        declared.registry.import.as_deref(),
        Some(Path::new("/here/./data/agent_directory.json"))
    );
    assert!(!declared.clarification && !declared.decomposition);
    let mode = topology.mode.as_ref().unwrap();
    assert_eq!(mode.target_url.as_deref(), Some("http://localhost:8081"));
    assert_eq!(
        mode.repl_log_file.as_deref(),
        Some(Path::new("/here/agent_interactions.log"))
    );
    assert!(mode.repl);
}

/// Goal: with a key a model decides, without one rules do, and neither the key nor anything of it is in what is told of the
/// file. Method: a file with a key and the scripted one; who decides; the topology's and the warnings' text.
/// Rows: B-2, B-12.
#[test]
fn who_decides_depends_on_the_key() {
    let with_key = "[llm]\nclaude_api_key = \"sk-s3cret\"\n";
    let topology = read(with_key);
    let model = topology
        .agents_of_kind::<ModelDeclaration>()
        .next()
        .unwrap();
    assert!(matches!(model.config, ModelConfig::Anthropic(_)));
    assert_eq!(
        orchestrator(&topology).deciders_at(DecisionPoint::Route)[0].kind(),
        DeciderKind::Model
    );
    let warnings = told(with_key, false);
    assert_eq!(
        warnings,
        ["2:1 the API key stands in this file, and whoever reads the file has it"]
    );
    assert!(!format!("{topology:?}").contains("s3cret"));
    let scripted = read("[llm]\n[[scripted.answers]]\ntext = \"x\"\n");
    assert_eq!(
        orchestrator(&scripted).deciders_at(DecisionPoint::Route)[0].kind(),
        DeciderKind::Model
    );
}

/// Goal: both names of the switch count, wherever they stand. Method: each name in each place; both with one value, and with
/// two.
/// Rows: B-15, B-79, X-28.
#[test]
fn switches_have_two_names_and_three_places() {
    for place in ["", "[mode]\n", "[llm]\n"] {
        for (name, warned) in [
            ("experimental_decomposition", 0),
            ("experimental_decompose", 1),
        ] {
            let text = format!("{place}{name} = true\nmax_risk = 0.2\n[client]\n");
            let (topology, problems) = parse_topology(&text, false, Path::new(""), false);
            assert_eq!(problems.len(), warned, "{text}: {problems:?}");
            let topology = topology.unwrap();
            let declared = orchestrator(&topology);
            assert!(declared.decomposition && !declared.clarification, "{text}");
            assert_eq!(declared.max_risk, Some(0.2));
        }
    }
    let both = |value| {
        format!("experimental_decomposition = true\n[mode]\nexperimental_decompose = {value}\n")
    };
    assert!(
        parse_topology(&both("true"), false, Path::new(""), false)
            .0
            .is_some()
    );
    let twice = "3:1 `experimental_decomposition` is set twice, with different values";
    assert!(told(&both("false"), false).contains(&twice.to_owned()));
}

/// Goal: mistakes are told in the file's own words, at their places. Method: several in one file.
#[test]
fn mistakes_are_told_where_they_are() {
    let text = "[server]\nport = 80800\n[tools]\nenabled = [\"ech\", \"execute_command\"]\n[mode]\nrepll = true\n";
    let all = told(text, false);
    assert_eq!(all[0].split(':').next(), Some("2"), "{all:?}");
    assert!(
        all[1].starts_with("4:12 there is no tool `ech`") || all[1].contains("execute_command"),
        "{all:?}"
    );
    assert!(
        all.iter()
            .any(|line| line == "6:1 [mode] has no key `repll`"),
        "{all:?}"
    );
}

/// Goal: a file of another program's newer version still loads. Method: keys and a section that nothing here reads, in a
/// bidirectional agent's file and in a MagicTunnel's; each is warned of, with what may have been meant.
#[test]
fn unknown_keys_of_foreign_files_are_warnings() {
    let ours = "[server]\nport = 8080\nportt = 1\n[mode]\nrepll = true\n[metrics]\non = true\n";
    let theirs = "external_mcp:\n  servers:\n    a: {url: \"http://x/\", ur: 1}\n  extra: 1\n";
    for (text, is_yaml, unknown) in [(ours, false, 3), (theirs, true, 2)] {
        let (topology, problems) = parse_topology(text, is_yaml, Path::new(""), false);
        assert!(topology.is_some(), "{problems:?}");
        let told = problems
            .iter()
            .filter(|problem| problem.message.contains("has no "));
        let told: Vec<_> = told
            .map(|problem| (problem.level, problem.help.is_some()))
            .collect();
        assert_eq!(
            told,
            vec![(Severity::Warning, true); unknown],
            "{problems:?}"
        );
    }
}
