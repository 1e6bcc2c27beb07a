//! The rules: concepts that follow each other closely, and signs that no honest text carries.

use super::concept::*;
use super::screen::Origin;

/// A chain of concepts.
pub(super) struct Rule {
    /// Shown in the screening and in the audit.
    pub(super) id: &'static str,
    /// What it adds to the score of a text from whoever asks.
    pub(super) weight: u32,
    /// What it adds in a text that came from outside: a tool's result has nothing to tell the assistant.
    pub(super) outside: u32,
    /// Each concept, and within how many words of the one before it must stand.
    pub(super) steps: &'static [(Concepts, u32)],
    /// Spoils the rule where it stands within a few words behind it, or right before it.
    pub(super) unless: Concepts,
}

impl Rule {
    /// What is said of attacks in reports is quoted from these families; an order to act is one wherever it stands.
    pub(super) fn is_quotable(&self) -> bool {
        self.id.starts_with("override.") || self.id.starts_with("leak.")
    }

    pub(super) fn weight(&self, origin: Origin) -> u32 {
        match origin {
            Origin::User => self.weight,
            _ => self.weight.max(self.outside),
        }
    }
}

/// Exceptions that count inside a chain.
pub(super) const INSIDE: Concepts = INDEFINITE;
/// Exceptions that count from a chain's second word to a few words behind it.
pub(super) const BEHIND: Concepts = ORDINARY | UPKEEP;
/// Exceptions that count right before a chain.
pub(super) const BEFORE: Concepts = SPEAKER;

/// A score at which a text is blocked.
pub const SCORE_BLOCKED: u32 = 100;

const fn rule(id: &'static str, weight: u32, outside: u32, steps: &'static [(Concepts, u32)]) -> Rule {
    Rule { id, weight, outside, steps, unless: 0 }
}

const fn unless(id: &'static str, weight: u32, steps: &'static [(Concepts, u32)], unless: Concepts) -> Rule {
    Rule { id, weight, outside: weight, steps, unless }
}

/// The chains. Ids are `family.case`; of one family only the heaviest hit counts.
pub(super) const RULES: &[Rule] = &[
    // Setting instructions aside
    unless("override.prior", 100, &[(OVERRIDE, 0), (PRIOR, 4), (INSTRUCTION, 4)], ORDINARY | SPEAKER),
    unless("override.prior", 100, &[(OVERRIDE, 0), (INSTRUCTION, 4), (PRIOR, 5)], ORDINARY | SPEAKER),
    unless("override.your", 100, &[(OVERRIDE, 0), (YOUR, 4), (INSTRUCTION | RULE, 4)], ORDINARY | SPEAKER),
    unless("override.all", 100, &[(OVERRIDE, 0), (ALL, 3), (INSTRUCTION, 4)], ORDINARY | SPEAKER),
    unless("override.rules", 100, &[(OVERRIDE, 0), (ALL | PRIOR | YOUR, 3), (RULE, 4)], ORDINARY | SPEAKER),
    unless("override.instructions", 60, &[(OVERRIDE, 0), (INSTRUCTION, 4)], ORDINARY | SPEAKER),
    unless("override.everything", 100, &[(OVERRIDE, 0), (ALL, 3), (PRIOR | TOLD, 5)], ORDINARY | SPEAKER),
    unless("override.everything", 60, &[(OVERRIDE, 0), (ALL, 2)], ORDINARY | SPEAKER),
    unless("override.above", 70, &[(OVERRIDE, 0), (THE, 2), (ABOVE, 2)], ORDINARY | SPEAKER),
    unless("override.the_rules", 50, &[(OVERRIDE, 0), (THE, 1), (RULE, 1)], ORDINARY | SPEAKER),
    unless("override.then", 100, &[(OVERRIDE, 0), (ALL, 2), (ANSWER, 5)], ORDINARY | SPEAKER),
    unless("override.then", 100, &[(OVERRIDE, 0), (THE, 2), (ABOVE, 2), (REVEAL | ANSWER, 3)], ORDINARY | SPEAKER),
    unless("override.leave", 100, &[(LEAVE, 0), (PRIOR, 4), (INSTRUCTION | RULE, 3)], ORDINARY | SPEAKER),
    unless("override.leave", 70, &[(LEAVE, 0), (INSTRUCTION, 4), (TOLD, 4)], ORDINARY | SPEAKER),
    rule("override.safety", 100, 100, &[(ACT, 0), (YOUR, 3), (SAFETY, 2), (NEGATION, 4)]),
    rule("override.not_follow", 100, 100, &[(NEGATION, 0), (FOLLOW, 3), (INSTRUCTION | RULE, 4)]),
    rule("override.free", 100, 100, &[(YOU, 0), (NEGATION, 3), (FOLLOW, 5), (INSTRUCTION | RULE | LIMITS, 5)]),
    rule("override.changed", 80, 100, &[(INSTRUCTION | RULE, 0), (CHANGED, 5)]),
    rule("override.opposite", 100, 100, &[(OPPOSITE, 0), (PRIOR | ALL | YOUR, 3), (INSTRUCTION, 3)]),
    rule("override.opposite", 100, 100, &[(OPPOSITE, 0), (FROM | THE, 2), (ALL | INSTRUCTION | EXACTLY | SPEAKER, 4)]),
    rule(
        "override.forgotten",
        100,
        100,
        &[(ACT, 0), (YOU, 3), (OVERRIDE | NEGATION, 3), (INSTRUCTION | RULE | ALL, 5)],
    ),
    // Asking for what the system was told
    rule("leak.system_prompt", 100, 100, &[(REVEAL | WHAT | WANT, 0), (YOUR, 10), (SYSTEM_PROMPT, 3)]),
    rule("leak.system_prompt", 100, 100, &[(REVEAL | WHAT | WANT, 0), (THE, 4), (SYSTEM_PROMPT, 2)]),
    unless("leak.system_prompt", 100, &[(REVEAL, 0), (SYSTEM_PROMPT, 5)], INDEFINITE),
    rule("leak.system_prompt", 60, 100, &[(YOUR | THE, 0), (SYSTEM_PROMPT, 3)]),
    unless("leak.instructions", 100, &[(REVEAL, 0), (YOUR, 8), (INSTRUCTION, 3)], ORDINARY),
    rule("leak.instructions", 100, 100, &[(ALOUD, 0), (ALL | PRIOR, 4), (INSTRUCTION, 3)]),
    unless("leak.instructions", 100, &[(WHAT, 0), (INSTRUCTION, 5), (YOU | TOLD, 4)], ORDINARY | SPEAKER),
    unless("leak.instructions", 100, &[(INSTRUCTION, 0), (YOU, 3), (TOLD, 4)], ORDINARY | SPEAKER),
    unless("leak.instructions", 100, &[(INSTRUCTION, 0), (TOLD, 3), (YOU, 3)], ORDINARY | SPEAKER),
    unless("leak.instructions", 100, &[(TOLD, 0), (YOU, 2), (INSTRUCTION, 4)], ORDINARY | SPEAKER),
    rule("leak.told", 100, 100, &[(WHAT, 0), (YOU, 3), (TOLD, 3), (ABOVE | PRIOR, 4)]),
    rule("leak.told", 100, 100, &[(TEXT, 0), (YOU, 2), (TOLD, 3), (PRIOR, 3)]),
    rule("leak.told", 100, 100, &[(YOU, 0), (NEGATION, 2), (SUPPOSED, 1), (INFORM, 3)]),
    rule("leak.above", 100, 100, &[(ALOUD, 0), (TEXT | ALL, 4), (ABOVE, 3)]),
    rule("leak.above", 100, 100, &[(ALOUD, 0), (ABOVE, 3), (TEXT, 3)]),
    rule("leak.entire", 100, 100, &[(ALOUD, 0), (ALL, 3), (TEXT, 3), (ABOVE | EXACTLY, 8)]),
    unless("leak.secret", 100, &[(REVEAL | WHAT, 0), (THE | YOUR, 3), (SECRET, 4)], ORDINARY | UPKEEP),
    unless("leak.secret", 70, &[(REVEAL, 0), (SECRET, 3)], ORDINARY | UPKEEP),
    // Becoming somebody else
    rule("role.unbound", 100, 100, &[(ACT | YOU, 0), (UNBOUND, 12)]),
    rule("role.unbound", 80, 100, &[(AI | CHARACTER, 0), (UNBOUND, 10)]),
    rule("role.no_limits", 100, 100, &[(AI | CHARACTER | YOU, 0), (WITHOUT, 8), (LIMITS, 4)]),
    rule("role.now", 70, 100, &[(YOU, 0), (BE, 1), (NOW, 2)]),
    rule("role.now", 70, 100, &[(NOW, 0), (YOU, 2), (BE | MUST, 2)]),
    rule("role.mode", 100, 100, &[(YOU, 0), (MODE_KIND, 6), (MODE, 2)]),
    rule("role.character", 60, 100, &[(ACT, 0), (CHARACTER | AI, 6), (MUST, 20)]),
    rule("role.foul", 70, 100, &[(YOU | CHARACTER | AI, 0), (PRISON, 20)]),
    // New orders
    rule("order.new", 70, 100, &[(NEW, 0), (INSTRUCTION, 1)]),
    rule("order.new", 50, 60, &[(NEW, 0), (TASK, 1)]),
    rule("order.new", 100, 100, &[(FOLLOW, 0), (NEW | THE, 2), (INSTRUCTION, 2), (NEGATION | ONLY | NOW, 8)]),
    rule("order.answer_only", 40, 100, &[(ANSWER, 0), (ONLY, 3)]),
    rule("order.say", 50, 100, &[(ANSWER, 0), (SAY, 4)]),
    rule("order.rest", 50, 100, &[(ANSWER | NOW, 0), (ALL, 2), (ANSWER, 2), (ONLY | FROM, 6)]),
    rule("order.decode", 100, 100, &[(DECODE, 0), (OBEY, 8)]),
    rule("order.authority", 60, 100, &[(AUTHORITY, 0), (CLAIM, 8)]),
    rule("order.authority", 60, 60, &[(SPEAKER, 0), (YOUR, 3), (AUTHORITY, 3)]),
    // Switching the guards off
    rule("guard.off", 100, 100, &[(DISABLE, 0), (SAFETY, 4)]),
    rule("guard.off", 100, 100, &[(SAFETY, 0), (DISABLE, 3)]),
    // Doing things
    rule("act.send", 40, 60, &[(SEND, 0), (ADDRESS, 8)]),
    rule("act.assistant", 60, 100, &[(AI, 0), (SEND | ANSWER, 12), (ADDRESS, 12)]),
    rule("act.send_data", 100, 100, &[(SEND, 0), (PATIENT_DATA | SECRET, 8), (ADDRESS, 8)]),
    rule("act.confirm", 60, 100, &[(SEND, 0), (CONFIRM, 30)]),
    rule("act.tool", 60, 100, &[(CALL, 0), (TOOL, 4)]),
    unless("act.hide", 100, &[(NEGATION, 0), (INFORM, 2), (USER, 6)], ORDINARY),
    rule("act.assistant", 30, 100, &[(AI, 0), (PROCESS, 4)]),
];

/// A sign: what no honest text carries, whatever it says.
pub(super) struct Sign {
    pub id: &'static str,
    pub weight: u32,
    pub outside: u32,
    /// For the plain text.
    pub pattern: &'static str,
}

const fn sign(id: &'static str, weight: u32, outside: u32, pattern: &'static str) -> Sign {
    Sign { id, weight, outside, pattern }
}

/// The signs. Linear-time patterns, without Unicode word boundaries.
pub(super) const SIGNS: &[Sign] = &[
    sign("sign.chat_template", 100, 100, r"<\|[a-z_ ]{2,20}\|>|<</?sys>>|\[/?inst\]|<start_of_turn>|<\|?endoftext"),
    sign(
        "sign.system_tag",
        100,
        100,
        r"</?(?:system|system_prompt|assistant|tool_result|untrusted|instructions?|im_start)>",
    ),
    sign(
        "sign.system_line",
        60,
        100,
        concat!(
            r"(?:^|\n)[ #*\[(>-]{0,6}(?:system|assistant|sistema)(?: message| override|",
            r" prompt)?[\]) *]{0,3}:[^\n]{0,80}(?:you|ignore|new|must|task|respond|reply|disregard)",
        ),
    ),
    sign(
        "sign.bracketed_system",
        70,
        100,
        r"\[(?:system|admin|developer|root)\]|#{2,4} ?(?:new )?(?:system|instruction)",
    ),
    sign(
        "sign.comment_order",
        100,
        100,
        r"<!-{1,4}[^>]{0,80}(?:assistant|ai |ignore|instruction|call |send|system|model)",
    ),
    sign(
        "sign.forged_verdict",
        100,
        100,
        r#"(?:"?safe"? ?[:=] ?"?true)|mark(?:ed)? (?:it |this |as )?safe|verifier (?:returned|said|says|approved)"#,
    ),
    sign(
        "sign.shell",
        60,
        100,
        r"(?:cat|curl|wget|rm -rf) [~/h][a-z:/._-]{3,}|/etc/passwd|\.ssh/id_rsa|169\.254\.169\.254",
    ),
    sign(
        "sign.override",
        100,
        100,
        concat!(
            r"(?:system|admin|administrator|policy|safety|guardrail|instruction) override|do anything now|",
            r"jailbreak(?:ed)? mode|developer mode (?:enabled|activated|output)",
        ),
    ),
    sign(
        "sign.complete",
        100,
        100,
        concat!(
            r#"(?:start|begin|beginning|starting)(?: your)?(?: \w+)? with ["'](?:you are|my instructions|i was|"#,
            r#"sure|as an)|["'](?:i was instructed|my instructions are|the system prompt is)"#,
        ),
    ),
    sign("sign.placeholder", 40, 60, r"\{\{ ?user ?\}\}|\{\{ ?char ?\}\}"),
    sign(
        "sign.new_rules",
        100,
        100,
        concat!(
            r"(?:new|updated) (?:system )?(?:instructions?|policy|rules|message)(?: follows?)? ?:|stop\. new|",
            r"end of (?:document|prompt|user input|instructions)",
        ),
    ),
];
