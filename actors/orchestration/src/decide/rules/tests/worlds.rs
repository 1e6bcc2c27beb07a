//! Routing contexts other than the evaluation's: agents are matched by their descriptions.

use super::*;

fn world_of(agents: Vec<PeerAgentView>) -> Arc<RoutingContext> {
    Arc::new(RoutingContext {
        tools: world().tools.clone(),
        agents,
    })
}

fn route(request: &str, world: &Arc<RoutingContext>) -> String {
    match Rules::default().route(request, &[], world).outcome {
        Some(Route::Remote { agent }) => agent,
        Some(Route::Local) => "here".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Goal: subjects without patterns, and requests without any subject, are matched by the skills'
/// own words. Method: agents of such kinds.
#[test]
fn unknown_fields() {
    let world = world_of(vec![
        agent(
            "tunes",
            "Jukebox",
            &[(
                "Playlists",
                "Plays songs and albums",
                &["music", "playlist", "songs"],
            )],
        ),
        agent(
            "ward",
            "Night Ward",
            &[(
                "Triage",
                "Asks about symptoms of patients",
                &["health", "symptoms", "patient"],
            )],
        ),
        agent(
            "kiln",
            "Fire Clay",
            &[(
                "Firing",
                "Plans kiln firings for ceramics",
                &["kiln", "glaze", "ceramics"],
            )],
        ),
    ]);
    for (request, expect) in [
        ("put on a playlist with old samba songs", "tunes"),
        (
            "the patient in bed four has new symptoms, what should we ask him",
            "ward",
        ),
        (
            "which glaze for the second kiln firing of the ceramics",
            "kiln",
        ),
        ("write a poem about a kiln", "here"),
        ("who invented the playlist", "here"),
    ] {
        assert_eq!(route(request, &world), expect, "{request}");
    }
}

/// Goal: of two agents of one subject, the one whose words are in the request is chosen; without
/// any, a local tool. Method: three contexts.
#[test]
fn several_and_none_of_a_field() {
    let sky = |id: &str, words: &str| agent(id, id, &[("Forecast", words, &["weather"])]);
    let two = world_of(vec![
        sky("land", "Weather for fields and farms"),
        sky("sea", "Weather for boats, tides and harbours"),
    ]);
    assert_eq!(
        route("is there a storm coming for boats off Brest", &two),
        "sea"
    );
    assert_eq!(route("will it rain on my farm in Lugo", &two), "land");
    let none = world_of(vec![agent(
        "words",
        "Babel",
        &[("Translate", "Between languages", &["translation"])],
    )]);
    assert_eq!(route("will it rain in Lugo tomorrow", &none), "here");
    assert_eq!(
        route("will it rain in Lugo tomorrow", &world_of(Vec::new())),
        "here"
    );
}

/// Goal: a request has several parts only if the context has different targets for them. Method:
/// the same request in two contexts.
#[test]
fn parts_depend_on_who_is_there() {
    let request = "Find me a hotel in Arles and tell me whether it will be windy there";
    assert_eq!(
        Rules::default().split(request, &world()).outcome,
        Some(Split::Yes)
    );
    let both = world_of(vec![agent(
        "trips",
        "All in One",
        &[("Trips", "Hotels and forecasts", &["hotel", "weather"])],
    )]);
    assert_eq!(
        Rules::default().split(request, &both).outcome,
        Some(Split::No)
    );
}

/// Goal: of two agents of an unknown subject, the reachable one is chosen, even with less evidence.
/// Method: the better one up, then down.
#[test]
fn who_is_up() {
    let mut better = agent(
        "songs",
        "Songs",
        &[(
            "Playlists",
            "Plays samba songs and albums",
            &["playlist", "samba", "songs"],
        )],
    );
    let other = agent(
        "tunes",
        "Jukebox",
        &[(
            "Playlists",
            "Plays playlists and songs",
            &["playlist", "songs"],
        )],
    );
    let request = "put on a playlist with old samba songs";
    assert_eq!(
        route(request, &world_of(vec![better.clone(), other.clone()])),
        "songs"
    );
    better.is_up = false;
    assert_eq!(route(request, &world_of(vec![better, other])), "tunes");
}

/// Goal: agents with the same general tools are told apart by their own descriptions. Method: the
/// three agents of the example, as the first one knows the others.
#[test]
fn described_agents() {
    let general: [(&str, &str, &[&str]); 3] = [
        (
            "request",
            "Takes any request in words: answers it, delegates it, or does it in several steps.",
            &[],
        ),
        (
            "llm",
            "Answers in words: general knowledge, explaining, writing, translating.",
            &["answer", "explain", "write", "translate", "question"],
        ),
        (
            "list_agents",
            "Lists the other agents that this one knows.",
            &["agents", "directory", "list", "discovery"],
        ),
    ];
    let described = |id: &str, description: &str| PeerAgentView {
        description: description.to_owned(),
        ..agent(id, id, &general)
    };
    let world = world_of(vec![
        described("two", "Knows other agents, and tells who they are"),
        described(
            "three",
            "Reports the weather of cities: current weather, temperature and forecast",
        ),
    ]);
    for (request, expect) in [
        ("What is the weather in Paris?", "three"),
        ("weather in Paris", "three"),
        ("will it be warm in Lyon, what's the forecast?", "three"),
        ("What is the capital of France?", "here"),
        ("Which agents do you know?", "here"),
    ] {
        assert_eq!(route(request, &world), expect, "{request}");
    }
}

/// Goal: a word finds the agent that says it otherwise: by another word of its concept, in the
/// other language, misspelt, or inflected. Method: rows.
#[test]
fn other_words_for_the_same() {
    let world = world_of(vec![
        agent(
            "desk",
            "Counter",
            &[("Entry", "Sells what lets you in", &["ticket", "admission"])],
        ),
        agent(
            "workshop",
            "Bench",
            &[("Mending", "Looks after tools", &["repair", "maintenance"])],
        ),
        agent(
            "archive",
            "Cellar",
            &[("Papers", "Finds what was written", &["manuscript", "deed"])],
        ),
    ]);
    for (request, expect) in [
        ("two seats for Sunday", "desk"),
        ("quero dois ingressos para domingo", "desk"),
        ("the saw is broken", "workshop"),
        ("a serra está com defeito", "workshop"),
        ("show me the manuscrpt from Leiden", "archive"),
        ("onde está o manuscrito de Leiden?", "archive"),
    ] {
        assert_eq!(route(request, &world), expect, "{request}");
    }
}
