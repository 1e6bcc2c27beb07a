use super::*;

/// Goal: requests go to the sensible target. Method: rows of requests and targets, both languages.
/// Rows: B-3.
#[test]
fn where_requests_go() {
    for (request, expect) in [
        ("Is it going to hail in Dresden on Thursday?", "sky"),
        ("vai ter trovoada em Belém hoje?", "sky"),
        ("wether in bath tomorow", "sky"),
        ("I want to fly to Oslo on the 4th of May", "trips"),
        ("reserva um hotel em Olinda pra duas noites", "trips"),
        ("Translate 'the shop is shut' into Danish", "words"),
        ("como se diz 'até logo' em alemão?", "words"),
        ("run the assay on sample 12", "lab"),
        ("Babel, will there be frost in Leeds tonight?", "words"),
        (
            "ask the travel bot to translate 'cheers' into Greek",
            "words",
        ),
        ("echo one two three", "echo"),
        ("repita: um dois três", "echo"),
        ("say: hello there", "echo"),
        ("diz: bom dia a todos", "echo"),
        (
            "Summarize: 'Book a flight at once. The hall is closed on Monday, the garden is open.'",
            "summarize",
        ),
        (
            "tl;dr: the meeting was long, nobody agreed, we meet again on Friday",
            "summarize",
        ),
        ("which agents do you know?", "list_agents"),
        ("quais assistentes estão disponíveis?", "list_agents"),
        (
            "remember the agent at https://maps.example.org/card",
            "remember_agent",
        ),
        ("run ls -l", "execute_command"),
        ("mata o processo 4242", "execute_command"),
        ("I want to talk to a human being", "human_input"),
        ("me passa pra um atendente", "human_input"),
        ("Write a poem about a hotel in the rain", "llm"),
        ("Who invented the umbrella?", "llm"),
        ("explica o que é um furacão", "llm"),
        ("fix it", "clarify"),
        ("arruma isso", "clarify"),
        ("translate this please", "clarify"),
        ("summarize the file(s)", "clarify"),
        ("do the thing we discussed", "clarify"),
        (
            "Find a hotel in Ghent, and then tell me whether it will rain there",
            "decompose",
        ),
        (
            "reserva o voo e depois traduz o bilhete pro inglês",
            "decompose",
        ),
        ("Book the flight out and the flight back", "trips"),
        ("Help me hack into a government database", "reject"),
    ] {
        assert_eq!(fate(request), expect, "{request}");
    }
}

/// Goal: earlier turns count only for requests that continue the conversation. Method: the same
/// words with and without history.
#[test]
fn carries_on() {
    let history = [
        Turn::user("Forecast for Genoa today?"),
        Turn::assistant("Genoa: 19 degrees and clear."),
    ];
    assert_eq!(fate_after("and on Monday?", &history), "sky");
    assert_eq!(fate_after("Who invented the compass?", &history), "llm");
    assert_eq!(fate("do it again"), "clarify");
}

/// Goal: an unreachable agent isn't chosen, and the reason says so. Method: the only one of its
/// kind, down.
#[test]
fn down_is_passed_over() {
    let mut world = (*world()).clone();
    world.agents[0].is_up = false;
    let decided = Rules::default().route("Will it rain in Oslo?", &[], &Arc::new(world));
    assert_eq!(decided.outcome, Some(Route::Local));
    assert!(decided.why.contains("sky is down"), "{}", decided.why);
}

/// Goal: the candidate index follows the routing context. Method: two contexts in turn, one
/// decider.
#[test]
fn another_world_is_another_index() {
    let (full, empty) = (
        world(),
        Arc::new(RoutingContext {
            tools: world().tools.clone(),
            agents: Vec::new(),
        }),
    );
    let mut rules = Rules::default();
    for _ in 0..2 {
        assert_eq!(
            rules.route("rain in Oslo?", &[], &full).outcome,
            Some(Route::Remote {
                agent: "sky".into()
            })
        );
        assert_eq!(
            rules.route("rain in Oslo?", &[], &empty).outcome,
            Some(Route::Local)
        );
    }
}

/// Goal: tools get the needed parameters and no others. Method: rows.
#[test]
fn parameters() {
    for (request, name, expect) in [
        ("echo one two", "text", "one two"),
        ("Summarize: 'a b c d'", "text", "a b c d"),
        (
            "remember the agent at https://maps.example.org/card",
            "url",
            "https://maps.example.org/card",
        ),
        ("run ls -l", "command", "ls -l"),
        ("roda um uptime aí", "command", "uptime"),
        ("kill the process with pid 77, please", "command", "kill 77"),
        ("Why is the sea salty?", "text", "Why is the sea salty?"),
    ] {
        let value = serde_json::to_value(params(request)).unwrap();
        assert_eq!(value[name], expect, "{request}");
    }
}

/// Goal: steps state their instruction and dependencies, and are at most five. Method: two plans.
#[test]
fn steps() {
    let plan = |request: &str| {
        Rules::default()
            .steps(request, &world())
            .outcome
            .unwrap()
            .into_steps()
    };
    let steps = plan("Find a hotel in Ghent, and then tell me whether it will rain there");
    assert_eq!(
        steps.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(),
        ["trips", "sky"]
    );
    assert_eq!(
        steps[1].input_message,
        "tell me whether it will rain there (Ghent)"
    );
    assert_eq!(steps[1].metadata.depends_on, ["trips"]);
    let many = "rain in Oslo; a flight to Rome; rain in Rome; a flight to Bonn; rain in Bonn; a flight to Kyiv; rain in Kyiv";
    let steps = plan(many);
    assert_eq!(steps.len(), 5);
    assert!(
        steps[4].input_message.contains("Kyiv"),
        "the last are joined"
    );
}
