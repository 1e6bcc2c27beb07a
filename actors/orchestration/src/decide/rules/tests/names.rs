//! Requests addressed to an agent by name.

use super::*;
use crate::decide::limits::QUESTION_CHARS_MAX;

fn desk(id: &str, name: &str) -> PeerAgentView {
    agent(id, name, &[("Desk", "Ties knots", &["knots"])])
}

/// Builds a context of several agents whose names don't tell what they do.
fn named_world() -> RoutingContext {
    let mut world = (*world()).clone();
    world.agents.extend([
        desk("atlas", "Atlas"),
        desk("atlas-travel", "Atlas Travel"),
        desk("web-research", "Finder"),
        desk("gpt", "GPT-4"),
        desk("doctor", "Dr. Smith"),
        desk("data_lab", "Numbers"),
    ]);
    world
}

fn route(request: &str, world: &RoutingContext) -> String {
    match Rules::default()
        .route(request, &[], &Arc::new(world.clone()))
        .outcome
    {
        Some(Route::Remote { agent }) => agent,
        other => format!("{other:?}"),
    }
}

/// Goal: names are normalized like the request, and the longest match counts. Method: names with
/// hyphens, underscores, full stops, a common beginning.
#[test]
fn names_are_found() {
    let world = named_world();
    for (request, expect) in [
        ("web-research, what do you know of rope?", "web-research"),
        ("ask web-research to find a book on rope", "web-research"),
        ("tell data_lab to count the ropes", "data_lab"),
        ("Data_Lab: how many ropes are there?", "data_lab"),
        ("GPT-4, what is a rope?", "gpt"),
        ("hey Dr. Smith what is a rope?", "doctor"),
        ("ask Atlas to look at this rope", "atlas"),
        ("ask Atlas Travel to look at this rope", "atlas-travel"),
        (
            "Can you please ask Atlas Travel to look at this rope?",
            "atlas-travel",
        ),
        ("The rope broke. Atlas, what should I do?", "atlas"),
        ("Ó Atlas, onde está a corda?", "atlas"),
    ] {
        assert_eq!(route(request, &world), expect, "{request}");
    }
}

/// Goal: an agent that is only mentioned isn't addressed. Method: a name after an article, and one
/// in a text to work on.
#[test]
fn names_that_are_only_mentioned() {
    let world = named_world();
    for request in [
        "Vi que o Atlas errou ontem, escreve um poema sobre amor",
        "O Atlas errou ontem, escreve um poema sobre amor",
        "Correct the grammar of my letter please. Dear Atlas, I was unhappy with the rope.",
        "Correct the grammar of my letter please. Dear Atlas, I want my money back.",
        "My letter begins with hello Atlas Travel, is that polite?",
    ] {
        assert_ne!(route(request, &world), "atlas", "{request}");
    }
}

/// Goal: the name of an unreachable agent has no effect at any decision point. Method: the same
/// requests, the agent up and down.
#[test]
fn names_of_those_that_are_down() {
    let several = "Atlas, find a hotel in Ghent, and then tell me whether it will rain there";
    let mut world = named_world();
    for is_up in [true, false] {
        world
            .agents
            .iter_mut()
            .find(|agent| agent.id == "atlas")
            .unwrap()
            .is_up = is_up;
        let shared = Arc::new(world.clone());
        let mut rules = Rules::default();
        assert_eq!(
            rules.split(several, &shared).outcome == Some(Split::Yes),
            !is_up
        );
        let clarity = rules.clarity("Atlas, fix it", &[], &shared).outcome;
        assert_eq!(
            matches!(clarity, Some(Clarity::NeedsClarify { .. })),
            !is_up,
            "{clarity:?}"
        );
        assert_eq!(
            route("ask Atlas to look at this rope", &world) == "atlas",
            is_up
        );
    }
}

/// Goal: a question that suggests agents stays within its limit. Method: three agents with the
/// longest names.
#[test]
fn questions_with_long_names() {
    let mut world = (*world()).clone();
    for letter in ["a", "b", "c"] {
        let name = letter.repeat(128);
        world
            .agents
            .push(agent(letter, &name, &[("Desk", "Fixes things", &[])]));
    }
    let clarity = Rules::default()
        .clarity("fix it", &[], &Arc::new(world))
        .outcome;
    let Some(Clarity::NeedsClarify { question }) = clarity else {
        panic!("{clarity:?}")
    };
    assert!(question.chars().count() <= QUESTION_CHARS_MAX, "{question}");
    assert!(
        question.contains(&"a".repeat(128)),
        "as many as fit: {question}"
    );
}
