//! Requests with several parts, requests that only seem to have several, and unclear requests.

use super::*;

/// Goal: parts for different targets are separated, even without a joining word. Method: rows of
/// requests and targets.
#[test]
fn parts_of_requests() {
    for (request, expect) in [
        (
            "translate 'the gate is open' into Danish and book me a flight to Aarhus",
            vec!["words", "trips"],
        ),
        (
            "Reserva um hotel em Tavira. Vai chover lá na sexta?",
            vec!["trips", "sky"],
        ),
        (
            "hotel in Ghent, forecast for Ghent, and how to say goodnight in Dutch",
            vec!["trips", "sky", "words"],
        ),
        (
            "if it rains in Oslo on Sunday, cancel my flight there",
            vec!["sky", "trips"],
        ),
    ] {
        let steps = Rules::default()
            .steps(request, &world())
            .outcome
            .map(|plan| plan.into_steps())
            .unwrap_or_default();
        let ids: Vec<&str> = steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids, expect, "{request}");
    }
}

/// Goal: one action with several objects or with background is one part. Method: rows.
#[test]
fn one_part() {
    for request in [
        "book a flight to Oslo and a hotel there",
        "Translate this into Danish, Dutch and German: 'The hotel is closed because of the storm.'",
        "My aunt from Recife is coming and she hates surprises. Will it rain on Friday?",
        "Summarise: 'Book the hotel. Check the weather. Then translate the menu and send it to the guests.'",
        "write a poem about trains, rain and hotels",
        "The hotel was full and the train late. It rained. We ate badly in Lyon. Could you tell me how to say refund in French?",
    ] {
        assert_ne!(fate(request), "decompose", "{request}");
    }
}

/// Goal: a request without a referent is clarified, but not after a turn that provides it. Method:
/// rows, without and with history.
/// Rows: B-56, X-29.
#[test]
fn what_is_asked_about() {
    let history = [
        Turn::user("A flight from Oslo to Bergen on Friday?"),
        Turn::assistant("There are two, at 9 and at 14."),
    ];
    for request in [
        "the second one",
        "change it",
        "muda pra mais tarde",
        "that's not what I meant",
        "can you do it now",
    ] {
        assert_eq!(fate(request), "clarify", "{request}");
        assert_ne!(fate_after(request, &history), "clarify", "{request}");
    }
    for request in [
        "hello",
        "good morning!",
        "why is grass green",
        "rain in Oslo?",
    ] {
        assert_ne!(fate(request), "clarify", "{request}");
    }
}
