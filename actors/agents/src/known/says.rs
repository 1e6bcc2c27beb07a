//! What agents say of themselves, made fit to be shown and to be decided by: one line each, of bounded length.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::decide::SkillView;
use crate::decide::TAG_DESTRUCTIVE;
use crate::decide::limits::{DESCRIPTION_CHARS_MAX, cut_chars};
use crate::text::plain;

/// Longest name of an agent or skill, in characters.
pub const NAME_CHARS_MAX: usize = 128;
/// Most skills of an agent that are kept.
pub const SKILLS_KEPT_MAX: usize = 64;
/// Most tags, and most examples, of one skill.
const WORDS_MAX: usize = 16;
/// Id of the entry for skills that may destroy something and have ids that can't be shown.
const UNSHOWN: &str = "unshown";
/// Longest example, in characters.
const EXAMPLE_CHARS_MAX: usize = 200;

/// A name.
pub(super) fn name(text: &str) -> String {
    one_line(text, NAME_CHARS_MAX)
}

/// A description.
pub(super) fn description(text: &str) -> String {
    one_line(text, DESCRIPTION_CHARS_MAX)
}

/// Skills. An id is exact, so one that can't be shown as it is isn't kept. That something may be destroyed is kept where other
/// tags and skills are left out: of skills that aren't kept, as one skill [`UNSHOWN`] in their stead.
pub(super) fn skills(all: Vec<SkillView>) -> Vec<SkillView> {
    let fits = |skill: &SkillView| !skill.id.is_empty() && one_line(&skill.id, NAME_CHARS_MAX) == skill.id;
    let some = |words: Vec<String>, chars_max: usize| -> Vec<String> {
        let some = words.iter().map(|word| one_line(word, chars_max)).filter(|word| !word.is_empty());
        some.take(WORDS_MAX).collect()
    };
    let shown = |skill: SkillView| {
        let destroys = skill.is_destructive();
        let mut shown = SkillView {
            name: name(&skill.name),
            description: description(&skill.description),
            tags: some(skill.tags, NAME_CHARS_MAX),
            examples: some(skill.examples, EXAMPLE_CHARS_MAX),
            input_modes: some(skill.input_modes, NAME_CHARS_MAX),
            output_modes: some(skill.output_modes, NAME_CHARS_MAX),
            security: some(skill.security, NAME_CHARS_MAX),
            id: skill.id,
        };
        if destroys && !shown.is_destructive() {
            shown.tags.pop();
            shown.tags.push(TAG_DESTRUCTIVE.to_owned());
        }
        shown
    };
    let (mut all, unfit): (Vec<SkillView>, Vec<SkillView>) = all.into_iter().partition(fits);
    if unfit.iter().any(SkillView::is_destructive) {
        let tags = vec![TAG_DESTRUCTIVE.to_owned()];
        all.push(SkillView { id: UNSHOWN.to_owned(), name: UNSHOWN.to_owned(), tags, ..SkillView::default() });
    }
    if all.len() > SKILLS_KEPT_MAX {
        all.sort_by_key(|skill| !skill.is_destructive());
    }
    all.into_iter().take(SKILLS_KEPT_MAX).map(shown).collect()
}

fn one_line(text: &str, chars_max: usize) -> String {
    // Nobody reads what is behind this; what is left out may be long.
    let begin = cut_chars(text, chars_max * 4);
    let line = plain(begin).split_whitespace().collect::<Vec<_>>().join(" ");
    cut_chars(&line, chars_max).trim_end().to_owned()
}

/// Now, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what strangers write takes one line of bounded length. Method: line breaks, invisible characters, one more than
    /// the most of each.
    #[test]
    fn strangers_are_cut_short() {
        assert_eq!(name("Agent\n\u{200b}Two\u{1b}[2J"), "Agent Two [2J");
        assert_eq!(name(&"é".repeat(NAME_CHARS_MAX + 1)).chars().count(), NAME_CHARS_MAX);
        assert_eq!(description(&"a".repeat(DESCRIPTION_CHARS_MAX + 1)).len(), DESCRIPTION_CHARS_MAX);
        let skill = |id: &str| SkillView { id: id.into(), tags: vec!["t".into(); 17], ..SkillView::default() };
        let kept = skills(vec![skill("a b"), skill(""), skill("x\ny"), skill(" z")]);
        assert_eq!(kept.iter().map(|skill| &*skill.id).collect::<Vec<_>>(), ["a b"]);
        assert_eq!(kept[0].tags.len(), 16);
        assert_eq!(skills(vec![skill("a"); SKILLS_KEPT_MAX + 1]).len(), SKILLS_KEPT_MAX);
    }

    /// Goal: what may destroy something is known however much a stranger says. Method: the tag behind more tags than are kept,
    /// of a skill behind more skills than are kept.
    #[test]
    fn what_destroys_is_kept() {
        let tame = |nth: usize| SkillView { id: format!("s{nth}"), ..SkillView::default() };
        let mut all: Vec<_> = (0..SKILLS_KEPT_MAX).map(tame).collect();
        let tags = (0..WORDS_MAX).map(|nth| format!("t{nth}")).chain(["destructive".to_owned()]).collect();
        all.push(SkillView { id: "wipe".into(), tags, ..SkillView::default() });
        let kept = skills(all);
        assert_eq!((kept.len(), kept[0].tags.len()), (SKILLS_KEPT_MAX, WORDS_MAX));
        assert!(kept[0].id == "wipe" && kept[0].is_destructive());
    }

    /// Goal: that something may be destroyed is known of skills whose ids can't be shown. Method: one alone, one behind as many
    /// harmless skills as are kept, and one that destroys nothing.
    #[test]
    fn what_destroys_unshown_is_known() {
        let skill = |id: &str, tag: &str| SkillView { id: id.into(), tags: vec![tag.into()], ..SkillView::default() };
        let wipe = || skill("wi\u{200b}pe", TAG_DESTRUCTIVE);
        let kept = skills(vec![wipe(), wipe()]);
        assert!(matches!(&kept[..], [only] if only.id == UNSHOWN && only.is_destructive()), "{kept:?}");
        let mut all: Vec<_> = (0..SKILLS_KEPT_MAX).map(|nth| skill(&format!("s{nth}"), "tame")).collect();
        all.push(wipe());
        let kept = skills(all);
        assert_eq!((kept.len(), kept.iter().filter(|skill| skill.is_destructive()).count()), (SKILLS_KEPT_MAX, 1));
        assert!(skills(vec![skill("lo\u{200b}ok", "tame")]).is_empty());
    }
}
