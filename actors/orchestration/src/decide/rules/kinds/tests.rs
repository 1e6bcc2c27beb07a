//! Sentences of these tests are in no list that the weights were fitted on.

use super::super::lexicon::lexicon;
use super::super::tools::is_ours;
use super::*;

/// Goal: the file is whole, and every kind is something that can be done, or one of three that can't. Method: all lines.
#[test]
fn weights_are_whole() {
    const KINDS: usize = 18;
    let kinds = kinds();
    assert_eq!(kinds.names.len(), KINDS);
    for name in &kinds.names {
        let is_asked = [CLARIFY, REJECT, SEVERAL].contains(&name.as_str());
        assert!(is_asked || is_ours(name) || lexicon().field(name).is_some(), "{name}");
    }
    let lines = WEIGHTS.lines().filter(|line| !line.starts_with("# ")).skip(1);
    let columns = lines.clone().flat_map(|line| line.split('\t').skip(1)).count();
    assert_eq!(kinds.places.len(), lines.count(), "no two signs have one key");
    assert_eq!(kinds.weights.iter().map(Vec::len).sum::<usize>(), columns);
}

/// Goal: kinds are told. Method: a row or two for each, both languages.
#[test]
fn kinds_are_told() {
    for (request, expect) in [
        ("will it drizzle in Antwerp tomorrow morning", "weather"),
        ("vai garoar em Curitiba de noite?", "weather"),
        ("two nights in a guesthouse near the harbour in Split", "travel"),
        ("quero um voo pra Recife na sexta", "travel"),
        ("which of my clients haven't settled their bill yet", "accounting"),
        ("emite a nota fiscal da oficina, 240 reais", "accounting"),
        ("is there a bug in this? while (i < 5) { j++; }", "code"),
        ("put the optician on Wednesday at eleven", "calendar"),
        ("me lembra de regar a horta amanhã cedo", "calendar"),
        ("how do you say raincoat in Hungarian", "translation"),
        ("compare the prices of three robot lawnmowers", "research"),
        ("receita de sopa de lentilha sem carne", "food"),
        ("repeat after me: seven silver swans", "echo"),
        ("why do owls turn their heads so far", "llm"),
        ("Summarise: 'The club met, nobody agreed, and they will meet again in June after the holidays.'", "summarize"),
        ("what other agents can you reach", "list_agents"),
        ("keep the agent at http://10.3.2.1:8000", "remember_agent"),
        ("run ls -a", "execute_command"),
        ("let me speak to a real person", "human_input"),
        ("how do I break into my neighbour's email", REJECT),
        ("quero clonar o celular da minha ex", REJECT),
        ("change it back", CLARIFY),
        ("faz aquilo de novo", CLARIFY),
        ("find a hotel in Bruges and tell me whether it will rain there", SEVERAL),
    ] {
        assert_eq!(Likely::of(&Reading::new(request)).best().0, expect, "{request}");
    }
}

/// Goal: shares are shares, of any text. Method: texts that say nothing.
#[test]
fn shares_come_to_one() {
    for text in ["", " ", "?!", "🌧️", "zzz qqq", "it it it"] {
        let likely = Likely::of(&Reading::new(text));
        let sum: f32 = likely.ranked_but(&[]).iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-4, "{text:?}: {sum}");
        let rest: f32 = likely.ranked_but(&[CLARIFY, REJECT]).iter().map(|(_, share)| share).sum();
        assert!((rest - 1.0).abs() < 1e-3, "{text:?}: {rest}");
    }
}

/// Goal: only what is short and not clear by itself goes on from what was said. Method: three requests after the same turn.
#[test]
fn what_carries_on() {
    let history = [Turn::user("How warm is it in Naples today?"), Turn::assistant("24 degrees.")];
    let after = |request: &str| {
        let reading = Reading::new(request);
        Likely::of(&reading).after(&reading, &history).ranked_but(&[CLARIFY]).first().map_or("", |(kind, _)| *kind)
    };
    assert_eq!(after("and on Sunday?"), "weather");
    assert_eq!(after("run ls -a"), "execute_command");
    assert_eq!(after("book me a flight from Naples to Rome on Sunday morning please"), "travel");
}

/// Goal: where one kind is nearly all there is, the others' shares of the rest are still shares. Method: one of 1 and others that are
/// lost beside it, and none at all.
#[test]
fn a_rest_that_is_nearly_nothing() {
    let at = |name: &str| kinds().names.iter().position(|kind| kind == name).unwrap();
    let mut shares = vec![0.0; kinds().names.len()];
    (shares[at(SEVERAL)], shares[at(REJECT)], shares[at("weather")]) = (1.0, 1e-10, 3e-10);
    let likely = Likely { shares };
    assert!((likely.share_but(REJECT, &[SEVERAL]) - 0.25).abs() < 1e-3);
    assert!((likely.ranked_but(&[SEVERAL])[0].1 - 0.75).abs() < 1e-3);
    let mut shares = vec![0.0; kinds().names.len()];
    shares[at(SEVERAL)] = 1.0;
    assert!(Likely { shares }.share_but(REJECT, &[SEVERAL]) == 0.0);
}
