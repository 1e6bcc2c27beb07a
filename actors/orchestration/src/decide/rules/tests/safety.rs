use std::time::Duration;

use callboard_runtime::testkit::cpu_time;
use proptest::prelude::*;

use super::*;

/// Goal: time grows linearly with the text. Method: the longest request of each potentially slow
/// kind, all decision points.
#[test]
fn long_texts_take_little_time() {
    const BYTES: usize = crate::decide::limits::REQUEST_CHARS_MAX;
    // Unoptimized builds are far slower, but quadratic growth would exceed even this limit.
    let limit = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 50 });
    let world = world();
    for piece in [
        "a",
        "' ",
        "'a'",
        "and ",
        "hack government database ",
        "xqzt ",
        "(",
        "http://",
        "kill her ",
        ": ",
        "\n",
        "í́",
        "🌧️",
        "fligt wether agnet ",
        "it that this ",
        "Oslo to Rome ",
    ] {
        let text: String = piece.repeat(BYTES / piece.len());
        let begun = cpu_time();
        let mut rules = Rules::default();
        let _ = rules.clarity(&text, &[], &world);
        let _ = rules.split(&text, &world);
        let _ = rules.steps(&text, &world);
        let _ = rules.route(&text, &[], &world);
        let _ = rules.tool(&text, &[], &world.tools);
        let took = cpu_time() - begun;
        assert!(took < limit, "{piece:?}: {took:?}");
    }
}

proptest! {
    /// Goal: a text always gets the same answer, and never causes a panic. Method: random texts,
    /// two deciders, one of them used before.
    #[test]
    fn the_same_answer_twice(text in "\\PC{0,200}", words in proptest::collection::vec("(rain|flight|and|hack|it|'|:|translate|em|inglês|run|,|e depois|my|bank)", 0..24)) {
        let world = world();
        let mut used = Rules::default();
        let _ = used.route("rain in Oslo?", &[], &world);
        for text in [text, words.join(" ")] {
            let mut fresh = Rules::default();
            prop_assert_eq!(fresh.route(&text, &[], &world), used.route(&text, &[], &world));
            prop_assert_eq!(fresh.split(&text, &world), used.split(&text, &world));
            prop_assert_eq!(fresh.steps(&text, &world), used.steps(&text, &world));
            prop_assert_eq!(fresh.clarity(&text, &[], &world), used.clarity(&text, &[], &world));
            prop_assert_eq!(fresh.tool(&text, &[], &world.tools), used.tool(&text, &[], &world.tools));
        }
    }
}
