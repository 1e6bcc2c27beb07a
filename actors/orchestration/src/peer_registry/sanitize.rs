//! What agents say of themselves, made fit to be shown and to be decided by: one line each, of bounded length.

use callboard_message::Failure;
use callboard_message::text::{cut_chars, fold, plain, words};
use url::{Host, Url};

use crate::decide::limits::DESCRIPTION_CHARS_MAX;
use crate::decide::{SkillView, TAG_DESTRUCTIVE};

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
/// Longest id of an agent, in bytes.
pub const AGENT_ID_BYTES_MAX: usize = 64;
/// Longest address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 2_048;
/// Where a card is, behind an agent's address: the address with it and the one without are one.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
/// The id of an agent whose name has nothing that an id may have.
const NAMELESS: &str = "agent";

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
    let fits =
        |skill: &SkillView| !skill.id.is_empty() && one_line(&skill.id, NAME_CHARS_MAX) == skill.id;
    let some = |words: Vec<String>, chars_max: usize| -> Vec<String> {
        let some = words
            .iter()
            .map(|word| one_line(word, chars_max))
            .filter(|word| !word.is_empty());
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
        all.push(SkillView {
            id: UNSHOWN.to_owned(),
            name: UNSHOWN.to_owned(),
            tags,
            ..SkillView::default()
        });
    }
    if all.len() > SKILLS_KEPT_MAX {
        all.sort_by_key(|skill| !skill.is_destructive());
    }
    all.into_iter().take(SKILLS_KEPT_MAX).map(shown).collect()
}

fn one_line(text: &str, chars_max: usize) -> String {
    // Nobody reads what is behind this; what is left out may be long.
    let begin = cut_chars(text, chars_max * 4);
    let line = plain(begin)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    cut_chars(&line, chars_max).trim_end().to_owned()
}

/// An address in any form that people write: `localhost:8080`, a URL, a card's URL.
///
/// # Errors
/// `InvalidInput` where it is none.
pub(super) fn address(written: &str) -> Result<Url, Failure> {
    let none = || {
        Failure::invalid(
            "not an address: write HOST:PORT or an http or https URL, without user and password",
        )
    };
    let written = written.trim();
    if written.is_empty()
        || written.len() > ADDRESS_BYTES_MAX
        || written.contains(char::is_whitespace)
    {
        return Err(none());
    }
    let whole = if written.contains("://") {
        written.to_owned()
    } else {
        format!("http://{written}")
    };
    let mut url = Url::parse(&whole).map_err(|_| none())?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none();
    if !is_plain || !url.has_host() {
        return Err(none());
    }
    url.set_fragment(None);
    Ok(url)
}

/// What two addresses of one agent have in common: this machine's names are one, and a card is where its agent is.
pub(super) fn place(url: &Url) -> String {
    let host = match url.host() {
        _ if is_here(url) => "localhost".to_owned(),
        Some(host) => host.to_string(),
        None => String::new(),
    };
    let path = CARDS
        .iter()
        .find_map(|card| url.path().strip_suffix(card))
        .unwrap_or(url.path());
    let (scheme, port) = (
        url.scheme(),
        url.port_or_known_default().unwrap_or_default(),
    );
    format!("{scheme}://{host}:{port}{}", path.trim_end_matches('/'))
}

/// Whether it is on this machine.
pub(super) fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => {
            name.trim_end_matches('.').rsplit('.').next() == Some("localhost")
        }
        None => false,
    }
}

/// An agent's id made of its name: `Agent Two` is `agent-two`.
pub(super) fn slug(name: &str) -> String {
    let folded = fold(name);
    let ascii = words(&folded).filter(|word| word.is_ascii());
    let mut slug = ascii.collect::<Vec<_>>().join("-");
    slug.truncate(AGENT_ID_BYTES_MAX);
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        NAMELESS.to_owned()
    } else {
        slug.to_owned()
    }
}

/// Whether a stranger may name an agent so.
pub(super) fn is_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    id.len() <= AGENT_ID_BYTES_MAX
        && id.bytes().all(fits)
        && id.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what strangers write takes one line of bounded length. Method: line breaks, invisible characters, one more than
    /// the most of each.
    #[test]
    fn strangers_are_cut_short() {
        assert_eq!(name("Agent\n\u{200b}Two\u{1b}[2J"), "Agent Two [2J");
        assert_eq!(
            name(&"é".repeat(NAME_CHARS_MAX + 1)).chars().count(),
            NAME_CHARS_MAX
        );
        assert_eq!(
            description(&"a".repeat(DESCRIPTION_CHARS_MAX + 1)).len(),
            DESCRIPTION_CHARS_MAX
        );
        let skill = |id: &str| SkillView {
            id: id.into(),
            tags: vec!["t".into(); 17],
            ..SkillView::default()
        };
        let kept = skills(vec![skill("a b"), skill(""), skill("x\ny"), skill(" z")]);
        assert_eq!(
            kept.iter().map(|skill| &*skill.id).collect::<Vec<_>>(),
            ["a b"]
        );
        assert_eq!(kept[0].tags.len(), 16);
        assert_eq!(
            skills(vec![skill("a"); SKILLS_KEPT_MAX + 1]).len(),
            SKILLS_KEPT_MAX
        );
    }

    /// Goal: what may destroy something is known however much a stranger says. Method: the tag behind more tags than are kept,
    /// of a skill behind more skills than are kept.
    #[test]
    fn what_destroys_is_kept() {
        let tame = |nth: usize| SkillView {
            id: format!("s{nth}"),
            ..SkillView::default()
        };
        let mut all: Vec<_> = (0..SKILLS_KEPT_MAX).map(tame).collect();
        let tags = (0..WORDS_MAX)
            .map(|nth| format!("t{nth}"))
            .chain(["destructive".to_owned()])
            .collect();
        all.push(SkillView {
            id: "wipe".into(),
            tags,
            ..SkillView::default()
        });
        let kept = skills(all);
        assert_eq!(
            (kept.len(), kept[0].tags.len()),
            (SKILLS_KEPT_MAX, WORDS_MAX)
        );
        assert!(kept[0].id == "wipe" && kept[0].is_destructive());
    }

    /// Goal: that something may be destroyed is known of skills whose ids can't be shown. Method: one alone, one behind as many
    /// harmless skills as are kept, and one that destroys nothing.
    #[test]
    fn what_destroys_unshown_is_known() {
        let skill = |id: &str, tag: &str| SkillView {
            id: id.into(),
            tags: vec![tag.into()],
            ..SkillView::default()
        };
        let wipe = || skill("wi\u{200b}pe", TAG_DESTRUCTIVE);
        let kept = skills(vec![wipe(), wipe()]);
        assert!(
            matches!(&kept[..], [only] if only.id == UNSHOWN && only.is_destructive()),
            "{kept:?}"
        );
        let mut all: Vec<_> = (0..SKILLS_KEPT_MAX)
            .map(|nth| skill(&format!("s{nth}"), "tame"))
            .collect();
        all.push(wipe());
        let kept = skills(all);
        assert_eq!(
            (
                kept.len(),
                kept.iter().filter(|skill| skill.is_destructive()).count()
            ),
            (SKILLS_KEPT_MAX, 1)
        );
        assert!(skills(vec![skill("lo\u{200b}ok", "tame")]).is_empty());
    }

    /// Goal: what people write is an address, and nothing else is. Method: rows.
    #[test]
    fn addresses_are_read() {
        for (written, url) in [
            ("localhost:8080", "http://localhost:8080/"),
            (" 127.0.0.1:4201 ", "http://127.0.0.1:4201/"),
            ("agents.example", "http://agents.example/"),
            ("https://agents.example/a2a#x", "https://agents.example/a2a"),
        ] {
            assert_eq!(address(written).unwrap().as_str(), url);
        }
        for none in [
            "",
            "the dots for me",
            "ftp://a.example",
            "http://user@a.example",
            "http://",
            "http://a:99999",
            "::",
        ] {
            assert!(address(none).is_err(), "{none:?}");
        }
        assert!(address(&"a".repeat(ADDRESS_BYTES_MAX)).is_ok());
        assert!(address(&"a".repeat(ADDRESS_BYTES_MAX + 1)).is_err());
    }

    /// Goal: an agent is known once, however its address is written. Method: spellings of one place, and others.
    #[test]
    fn one_place_has_many_spellings() {
        let of = |written: &str| place(&address(written).unwrap());
        for same in [
            "127.0.0.1:8080",
            "http://[::1]:8080/",
            "http://localhost:8080/.well-known/agent-card.json",
        ] {
            assert_eq!(of(same), of("localhost:8080"), "{same}");
        }
        for other in [
            "localhost:8081",
            "https://localhost:8080",
            "localhost:8080/agents/x",
            "10.0.0.1:8080",
        ] {
            assert_ne!(of(other), of("localhost:8080"), "{other}");
        }
        assert!(
            is_here(&address("http://a.localhost").unwrap())
                && !is_here(&address("localhost.example").unwrap())
        );
    }

    /// Goal: names become ids. Method: rows, and one past the longest.
    #[test]
    fn names_become_ids() {
        for (name, id) in [
            ("Agent Two", "agent-two"),
            ("Météo  (Paris)!", "meteo-paris"),
            ("天気", "agent"),
            ("", "agent"),
        ] {
            assert_eq!(slug(name), id);
            assert!(is_id(id));
        }
        assert_eq!(
            slug(&"a".repeat(AGENT_ID_BYTES_MAX + 1)).len(),
            AGENT_ID_BYTES_MAX
        );
        assert!(
            is_id(&"a".repeat(AGENT_ID_BYTES_MAX)) && !is_id(&"a".repeat(AGENT_ID_BYTES_MAX + 1))
        );
        for no in ["", "-a", ".", "a b", "a/b", "é"] {
            assert!(!is_id(no), "{no:?}");
        }
    }
}
