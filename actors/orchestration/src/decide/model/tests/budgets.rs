//! Shortening of prompts that exceed the token limit.

use callboard_runtime::testkit::cpu_time;

use super::kit::*;
use crate::decide::limits::{
    CONTEXT_AGENTS_MAX, HISTORY_TURNS_MAX, REQUEST_CHARS_MAX, STEP_RESULT_BYTES_MAX, TURN_BYTES_MAX,
};
use crate::decide::model::answer_parser::PromptSpec;
use crate::decide::model::prompt::PromptTemplate;
use crate::decide::model::prompt::{PROMPT_TOKENS_MAX, PromptData, cut_middle, fit_prompt};
use crate::decide::*;

const BYTES_A_TOKEN: usize = 4;

fn prompt() -> PromptTemplate {
    PromptTemplate::parse(
        DecisionPoint::Route,
        "{{history_as_bullet_points}}\n{{latest_user_text}}\n{{tool_table}}\n{{agent_table}}",
    )
    .unwrap()
}

fn material() -> PromptData {
    let numbered = |at: u64| Turn::user(format!("turn-{at} {}", "h".repeat(1_000)));
    let agents = (0..40_u64).map(|at| {
        let mut agent = agent(&format!("agent-{at}"));
        agent.description = format!("{} end-{at}", "d".repeat(300));
        agent
    });
    PromptData {
        subject: "s".into(),
        history: (0..10).map(numbered).collect(),
        tools: world().tools.clone(),
        agents: agents.chain([agent("porto")]).collect(),
        texts: vec![(
            "latest_user_text",
            format!("begin porto {} end", "r".repeat(4_000)),
        )],
        ..PromptData::default()
    }
}

fn fitted(tokens_max: usize) -> String {
    let (system, turn) = fit_prompt(&prompt(), material(), tokens_max).unwrap();
    assert!(
        system.len() + turn.len() <= tokens_max * BYTES_A_TOKEN,
        "{} bytes",
        system.len() + turn.len()
    );
    turn
}

/// Goal: the oldest turns are left out first, then examples, long descriptions, the least related
/// agents, and finally the middle of the request. Method: ever fewer tokens, down to none.
/// Rows: B-79.
#[test]
fn least_important_first() {
    let all = fitted(20_000);
    let less = |bytes: usize| fitted((all.len() - bytes) / BYTES_A_TOKEN);
    assert!(
        all.contains("turn-0 ")
            && all.contains("for example")
            && all.contains("end-0")
            && !all.contains("left out")
    );
    let without_some = less(1_500);
    assert!(
        !without_some.contains("turn-1 ")
            && without_some.contains("turn-9 ")
            && without_some.contains("for example")
    );
    let without_history = less(10_000);
    assert!(
        !without_history.contains("turn-9 ") && without_history.contains("for example"),
        "{without_history}"
    );
    let without_examples = less(11_000);
    assert!(
        !without_examples.contains("for example") && without_examples.contains("end-0"),
        "{without_examples}"
    );
    let short = less(13_000);
    assert!(
        !short.contains("end-0") && short.contains("- agent-39 ("),
        "{short}"
    );
    let few = less(19_000);
    assert!(
        few.contains("- porto (") && !few.contains("- agent-39 (") && !few.contains("left out"),
        "{few}"
    );
    assert_eq!(few.matches("\n- ").count(), 2 + 32);
    let cut = less(22_000);
    assert!(
        cut.contains("begin porto")
            && cut.contains("r end")
            && cut.contains(" characters left out …]"),
        "{cut}"
    );
    assert!(fit_prompt(&prompt(), material(), 500).is_none());
}

/// Goal: input at all its own limits fits into a prompt or is reported as too long, in little time.
/// Method: the largest request, conversation and routing context; the largest results.
#[test]
fn the_largest_of_all() {
    let begun = cpu_time();
    let mut large = agent("large");
    large.description = "d".repeat(500);
    let agents = (0..CONTEXT_AGENTS_MAX)
        .map(|at| PeerAgentView {
            id: format!("agent-{at}"),
            ..large.clone()
        })
        .collect();
    let asked = DecideRoute {
        request: "é".repeat(REQUEST_CHARS_MAX),
        history: vec![Turn::user("h".repeat(TURN_BYTES_MAX)); HISTORY_TURNS_MAX],
        world: RoutingContext {
            agents,
            ..RoutingContext::default()
        }
        .into(),
        slim: false,
    };
    let (system, turn) = fit_prompt(&prompt(), asked.prompt_data(), PROMPT_TOKENS_MAX).unwrap();
    assert!(system.len() + turn.len() <= PROMPT_TOKENS_MAX * BYTES_A_TOKEN);
    let report = synthesis().results.remove(0);
    let results = vec![
        StepReport {
            text: "r".repeat(STEP_RESULT_BYTES_MAX),
            ..report
        };
        5
    ];
    let asked = Synthesize {
        goal: "é".repeat(REQUEST_CHARS_MAX),
        results,
    };
    let text = "{{original_goal}} {{bullet_point_each_subtask_with_key_findings}}";
    let prompt = PromptTemplate::parse(DecisionPoint::Synthesis, text).unwrap();
    let (system, turn) = fit_prompt(&prompt, asked.prompt_data(), PROMPT_TOKENS_MAX).unwrap();
    assert!(system.len() + turn.len() <= PROMPT_TOKENS_MAX * BYTES_A_TOKEN);
    let took = cpu_time() - begun;
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}

/// Goal: a middle is cut out between characters, and the omitted ones are counted. Method: letters
/// of two bytes at every length; too few bytes.
#[test]
fn middles() {
    let text = "é".repeat(2_000);
    for bytes_max in 400..420 {
        let cut = cut_middle(&text, bytes_max).unwrap();
        assert!(cut.len() <= bytes_max, "{} of {bytes_max}", cut.len());
        let left = cut.chars().filter(|c| *c == 'é').count();
        assert!(
            cut.contains(&format!("[… {} characters left out …]", 2_000 - left)),
            "{cut}"
        );
    }
    assert_eq!(cut_middle(&text, 4_000).unwrap(), text);
    assert_eq!(cut_middle(&text, 100), None);
}
