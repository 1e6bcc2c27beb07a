//! The points while something is done: DP4, NP3, NP4, NP5.

use callboard_message::{RawObject, TaskState};
use serde_json::{Value, json};

use super::{Posed, Shown, UNKNOWN_WORD, one_of, shape, string};
use crate::decide::model::budget::{Material, PROMPT_TOKENS_MAX, without_middle};
use crate::decide::model::prompt::{Fill, one_line};
use crate::decide::model::read::{Line, Read, Reading, bare, object_in, sentence, word_of};
use crate::decide::{
    Action, Confirm, ConfirmWhy, DecideConfirm, DecideRecovery, Recovery, StepReport, Synthesis, Synthesize,
    WriteAnswer, told_instead,
};

/// Longest question or reason of a recovery, in characters.
const MESSAGE_CHARS_MAX: usize = 500;
/// Bytes of all results together that a synthesis is shown: less than the whole prompt.
const RESULTS_BYTES_MAX: usize = PROMPT_TOKENS_MAX * 3;

fn number(value: f32) -> Fill {
    Fill::Bare(format!("{value:.2}"))
}

fn yes_or_no(value: bool) -> Fill {
    Fill::Bare(if value { "yes" } else { "no" }.to_owned())
}

impl Shown for WriteAnswer {
    const TOKENS_MAX: u32 = 4_096;

    fn material(&self) -> Material {
        Material {
            history: self.history.clone(),
            fixed: vec![("system_prompt", Fill::Bare(self.system_prompt.clone()))],
            ..Material::said(&self.request)
        }
    }
}

impl Shown for DecideRecovery {
    const TOKENS_MAX: u32 = 1_024;

    fn material(&self) -> Material {
        let ids = |ids: &[String]| Fill::Data(ids.iter().map(|id| format!("- {id}")).collect::<Vec<_>>().join("\n"));
        let action = serde_json::to_string(&self.action).unwrap_or_default();
        Material {
            subject: self.root_goal.clone(),
            texts: vec![
                ("root_goal", self.root_goal.clone()),
                ("action_json", action),
                ("err_string", one_line(&self.error, MESSAGE_CHARS_MAX)),
            ],
            fixed: vec![
                ("task_id", Fill::Bare(one_line(&self.task_id, MESSAGE_CHARS_MAX))),
                ("attempts", Fill::Bare(self.attempts.to_string())),
                ("may_ask", yes_or_no(self.may_ask)),
                ("class", Fill::Bare(self.class.as_str().to_owned())),
                ("list", ids(&self.tools)),
                ("list", ids(&self.agents)),
            ],
            ..Material::default()
        }
    }
}

impl Posed for DecideRecovery {
    fn schema(&self) -> Value {
        let mut words = vec!["RETRY_SAME", "RETRY_MODIFIED", "USE_ALTERNATIVE", "ABANDON"];
        if self.may_ask {
            words.push("ASK_HUMAN");
        }
        shape(&[("strategy", one_of(&words)), ("params", json!({ "type": "object" }))], &["strategy", "params"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<Recovery>> {
        let strategy = word_of(&object.text("strategy")?);
        let params = match object.get("params").map(RawObject::parse) {
            None => None,
            Some(Ok(params)) => Some(params),
            Some(Err(_)) => return Some(Err("the model's parameters are no object")),
        };
        Some(self.strategy(&strategy, params, None).map(|outcome| Reading::of(outcome, object)))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Recovery>> {
        let strategy = |line: &Line| {
            let text = line.text();
            let end = text.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(text.len());
            let (word, behind) = text.split_at_checked(end)?;
            let word = word.to_uppercase();
            if !STRATEGIES.contains(&&*word) {
                return None;
            }
            let behind = behind.trim_start_matches(':').trim();
            let params = object_in::<RawObject>(behind);
            let said = Some(bare(behind)).filter(|said| params.is_none() && !said.is_empty());
            Some(self.strategy(&word, params, said))
        };
        let found = lines.iter().filter_map(strategy);
        found.map(|strategy| Ok(Reading::from(strategy?, lines))).collect()
    }
}

const STRATEGIES: [&str; 5] = ["RETRY_SAME", "RETRY_MODIFIED", "USE_ALTERNATIVE", "ASK_HUMAN", "ABANDON"];

impl DecideRecovery {
    /// The strategy of that name; `said`: what stands behind it in words.
    fn strategy(&self, name: &str, params: Option<RawObject>, said: Option<&str>) -> Result<Recovery, &'static str> {
        let text = |member: &str| params.as_ref().and_then(|params| params.text(member)).or(said.map(str::to_owned));
        let said = |member: &str| text(member).map(|text| sentence(&text, MESSAGE_CHARS_MAX)).unwrap_or_default();
        Ok(match name {
            "RETRY_SAME" => Recovery::RetrySame,
            "RETRY_MODIFIED" => match (&self.action, params) {
                (_, None) => return Err("the model gives no parameters"),
                (Action::Remote { .. }, Some(params)) if told_instead(&params).is_none() => {
                    return Err("an agent is told one text");
                }
                (_, Some(params)) => Recovery::RetryModified { params },
            },
            "USE_ALTERNATIVE" => match text("which") {
                Some(which) => Recovery::UseAlternative { which },
                None => return Err("the model names nobody else"),
            },
            "ASK_HUMAN" => match said("message") {
                none if none.is_empty() => return Err("the model wants to ask something and doesn't say what"),
                message => Recovery::AskHuman { message },
            },
            "ABANDON" => match said("reason") {
                none if none.is_empty() => Recovery::Abandon { reason: self.error.clone() },
                reason => Recovery::Abandon { reason },
            },
            _ => return Err(UNKNOWN_WORD),
        })
    }
}

impl Shown for Synthesize {
    const TOKENS_MAX: u32 = 4_096;

    fn material(&self) -> Material {
        let bytes_max = RESULTS_BYTES_MAX / self.results.len().max(1);
        let line = |report: &StepReport| {
            let text = without_middle(&report.text, bytes_max).unwrap_or_default();
            let state = match report.state {
                TaskState::Completed => String::new(),
                state => format!(" [{state}]"),
            };
            format!(
                "- {} by {}{state}: {}\n  {}",
                report.id,
                report.by,
                one_line(&report.goal, MESSAGE_CHARS_MAX),
                text
            )
        };
        let results = self.results.iter().map(line).collect::<Vec<_>>().join("\n");
        Material {
            subject: self.goal.clone(),
            texts: vec![("original_goal", self.goal.clone()), ("bullet_point_each_subtask_with_key_findings", results)],
            ..Material::default()
        }
    }
}

impl Posed for Synthesize {
    fn schema(&self) -> Value {
        shape(&[("final_answer", string()), ("notes", string())], &["final_answer", "confidence"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<Synthesis>> {
        let final_answer = object.text("final_answer")?;
        // Without it nobody would be asked where it is low.
        let Some(confidence) = object.read::<f32>("confidence") else {
            return Some(Err("the model doesn't say how sure it is"));
        };
        let notes = object.text("notes").filter(|notes| !notes.trim().is_empty());
        Some(Ok(Reading::of(Synthesis { final_answer, confidence, notes }, object)))
    }
}

impl Shown for DecideConfirm {
    const TOKENS_MAX: u32 = 256;

    fn material(&self) -> Material {
        let action = serde_json::to_string_pretty(&self.action).unwrap_or_default();
        let why = match self.why {
            ConfirmWhy::Confidence => "the answer isn't sure enough",
            ConfirmWhy::Risk => "the action may do harm",
            ConfirmWhy::Cost => "it may cost more than was meant",
        };
        Material {
            subject: serde_json::to_string(&self.action).unwrap_or_default(),
            texts: vec![("json_dump_action", action)],
            fixed: vec![
                ("why", Fill::Bare(why.to_owned())),
                ("numeric", number(self.risk)),
                ("bool", yes_or_no(self.preference_known)),
            ],
            ..Material::default()
        }
    }
}

impl Posed for DecideConfirm {
    fn schema(&self) -> Value {
        let words = one_of(&["CONFIRM_NEEDED", "SAFE_TO_PROCEED"]);
        shape(&[("confirmation", words), ("justification", string())], &["confirmation"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<Confirm>> {
        Some(confirm(&object.text("confirmation")?).map(|outcome| Reading::of(outcome, object)))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Confirm>> {
        let words = lines.iter().filter_map(|line| line.value("CONFIRMATION"));
        words.map(|word| Ok(Reading::from(confirm(word)?, lines))).collect()
    }
}

fn confirm(word: &str) -> Result<Confirm, &'static str> {
    match &*word_of(word) {
        "CONFIRM_NEEDED" => Ok(Confirm::ConfirmNeeded),
        "SAFE_TO_PROCEED" => Ok(Confirm::SafeToProceed),
        _ => Err(UNKNOWN_WORD),
    }
}
