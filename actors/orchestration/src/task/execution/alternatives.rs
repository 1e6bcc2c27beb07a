//! Choice of the agents that may take over a failed step.

use callboard_message::text::{folded_words, is_one_of};

use super::RESULTS_HEADING;
use crate::decide::{Action, PeerAgentView, RoutingContext};

/// Words in the names of skills and tags that say nothing of what an agent does, separated by
/// spaces.
const GENERAL_WORDS: &str = "a agent agents ai an and api assistant bot by expert for from general get help helper in of on or \
    server service skill task tasks the to tool tools unshown utility with";

/// Returns the ids of the agents that are up and fit a step, in the order of the routing context. An
/// agent fits if its skills share a word with those of the agent, or the tags of the tool, that
/// failed, or with the text of the step. An agent that says nothing of itself fits only instead of
/// another such agent.
pub(super) fn fitting_agents<'a>(
    world: &'a RoutingContext,
    failed: &Action,
    text: &str,
) -> Vec<&'a str> {
    let text = text.split(RESULTS_HEADING).next().unwrap_or_default();
    let (mut wanted, is_silent) = match failed {
        Action::Remote { agent, .. } => match world.agent(agent) {
            Some(agent) => (subjects_of(agent), is_silent(agent)),
            None => (Vec::new(), true),
        },
        Action::Local { tool, .. } => {
            let tags = world.tool(tool).map_or(&[][..], |tool| &tool.tags);
            (subjects(tags.iter().map(String::as_str)), false)
        }
    };
    wanted.extend(subjects([text]));
    let fits = |agent: &&PeerAgentView| match self::is_silent(agent) {
        true => is_silent,
        false => subjects_of(agent).iter().any(|word| wanted.contains(word)),
    };
    let up = world.agents.iter().filter(|agent| agent.is_up);
    up.filter(fits).map(|agent| &*agent.id).collect()
}

/// Whether an agent says nothing of what it does.
fn is_silent(agent: &PeerAgentView) -> bool {
    agent.skills.is_empty() && agent.description.trim().is_empty()
}

/// Returns the words of an agent's id and name, and of the ids, names and tags of its skills; of its
/// description if it has no skills.
fn subjects_of(agent: &PeerAgentView) -> Vec<String> {
    let skills = agent.skills.iter().flat_map(|skill| {
        let tags = skill.tags.iter().map(String::as_str);
        [&*skill.id, &*skill.name].into_iter().chain(tags)
    });
    let description = agent.skills.is_empty().then_some(&*agent.description);
    subjects(skills.chain([&*agent.id, &*agent.name]).chain(description))
}

fn subjects<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let words = texts.into_iter().flat_map(folded_words);
    words
        .filter(|word| word.chars().count() > 1 && !is_one_of(word, GENERAL_WORDS))
        .collect()
}

#[cfg(test)]
mod tests {
    use callboard_message::RawObject;

    use super::*;
    use crate::decide::{SkillView, ToolView};

    fn agent(id: &str, tags: &[&str]) -> PeerAgentView {
        let skill = SkillView {
            id: format!("{id}-tool"),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..SkillView::default()
        };
        PeerAgentView {
            id: id.into(),
            skills: vec![skill],
            is_up: true,
            ..PeerAgentView::default()
        }
    }

    fn remote(agent: &str) -> Action {
        Action::Remote {
            agent: agent.into(),
            text: String::new(),
        }
    }

    /// Goal: a step goes on only to agents of the same subject: that of the failed agent or tool, or
    /// of the text. Method: rows over agents of two subjects, one that is away, and one that says
    /// nothing.
    #[test]
    fn agents_of_the_subject() {
        let mut away = agent("storms", &["weather"]);
        away.is_up = false;
        let silent = PeerAgentView {
            id: "silent".into(),
            is_up: true,
            ..PeerAgentView::default()
        };
        let other = PeerAgentView {
            id: "other".into(),
            ..silent.clone()
        };
        let tool = ToolView {
            name: "forecast".into(),
            description: String::new(),
            tags: vec!["Weather".into()],
            examples: Vec::new(),
            params: serde_json::Value::Null,
            risk: Default::default(),
        };
        let world = RoutingContext {
            tools: vec![tool],
            agents: vec![
                agent("sky", &["weather", "tool"]),
                agent("rain", &["weather"]),
                agent("hotels", &["rooms"]),
                away,
                silent,
                other,
            ],
        };
        let local = Action::Local {
            tool: "forecast".into(),
            params: RawObject::new(),
        };
        for (failed, text, expected) in [
            (remote("sky"), "will it be nice?", &["sky", "rain"][..]),
            (remote("hotels"), "a nice place", &["hotels"]),
            (remote("hotels"), "rooms without Rain", &["rain", "hotels"]),
            (remote("silent"), "a nice place", &["silent", "other"]),
            (local, "nice?", &["sky", "rain"]),
            (
                remote("hotels"),
                &format!("a place{RESULTS_HEADING}\n- a: rain"),
                &["hotels"],
            ),
        ] {
            assert_eq!(
                fitting_agents(&world, &failed, text),
                expected,
                "{failed:?} {text}"
            );
        }
    }
}
