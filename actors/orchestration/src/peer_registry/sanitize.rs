//! Sanitizing of names, descriptions, skills and addresses from other agents: one line each, of
//! bounded length.

use callboard_message::Failure;
use callboard_message::text::{cut_chars, fold, normalize, words};
use url::{Host, Url};

use crate::decide::limits::DESCRIPTION_CHARS_MAX;
use crate::decide::{DESTRUCTIVE_TAG, SkillView};

/// Maximum characters of an agent's or skill's name. Longer names are cut. Fixed.
pub const AGENT_NAME_CHARS_MAX: usize = 128;
/// Maximum skills kept of an agent. Further ones are dropped, harmless ones first. Fixed.
pub const AGENT_SKILLS_MAX: usize = 64;
/// Maximum entries of each list of a skill, such as tags and examples. Further entries are dropped.
const SKILL_WORDS_MAX: usize = 16;
/// Id of the placeholder that replaces destructive skills with unprintable ids.
const HIDDEN_SKILL_ID: &str = "unshown";
/// Maximum characters of a skill's example. A longer one is cut.
const EXAMPLE_CHARS_MAX: usize = 200;
/// Maximum bytes of an agent id. A longer one is rejected with `InvalidInput`. Fixed.
pub const AGENT_ID_BYTES_MAX: usize = 64;
/// Maximum bytes of an address. Longer ones are rejected with `InvalidInput`. Fixed.
pub const ADDRESS_BYTES_MAX: usize = 2_048;
/// Well-known card paths. An address with such a path is the same as the one without it.
const CARD_PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
/// Agent id if the name contains no usable character.
const DEFAULT_AGENT_ID: &str = "agent";

/// Sanitizes the display name of an agent or skill: one line of at most [`AGENT_NAME_CHARS_MAX`]
/// characters.
pub(super) fn sanitize_name(text: &str) -> String {
    sanitize_line(text, AGENT_NAME_CHARS_MAX)
}

/// Sanitizes the description of an agent or skill: one line of at most [`DESCRIPTION_CHARS_MAX`]
/// characters.
pub(super) fn sanitize_description(text: &str) -> String {
    sanitize_line(text, DESCRIPTION_CHARS_MAX)
}

/// Sanitizes the skills of an agent, at most [`AGENT_SKILLS_MAX`]; beyond that, harmless ones are
/// dropped first. Skills with unprintable ids are dropped, because ids must be exact; destructive
/// ones among them are replaced by one skill [`HIDDEN_SKILL_ID`]. Destructive skills keep the tag
/// that marks them.
pub(super) fn sanitize_skills(all: Vec<SkillView>) -> Vec<SkillView> {
    let fits = |skill: &SkillView| {
        !skill.id.is_empty() && sanitize_line(&skill.id, AGENT_NAME_CHARS_MAX) == skill.id
    };
    let some = |words: Vec<String>, chars_max: usize| -> Vec<String> {
        let some = words
            .iter()
            .map(|word| sanitize_line(word, chars_max))
            .filter(|word| !word.is_empty());
        some.take(SKILL_WORDS_MAX).collect()
    };
    let shown = |skill: SkillView| {
        let destroys = skill.is_destructive();
        let mut shown = SkillView {
            name: sanitize_name(&skill.name),
            description: sanitize_description(&skill.description),
            tags: some(skill.tags, AGENT_NAME_CHARS_MAX),
            examples: some(skill.examples, EXAMPLE_CHARS_MAX),
            input_modes: some(skill.input_modes, AGENT_NAME_CHARS_MAX),
            output_modes: some(skill.output_modes, AGENT_NAME_CHARS_MAX),
            security: some(skill.security, AGENT_NAME_CHARS_MAX),
            id: skill.id,
        };
        if destroys && !shown.is_destructive() {
            shown.tags.pop();
            shown.tags.push(DESTRUCTIVE_TAG.to_owned());
        }
        shown
    };
    let (mut all, unfit): (Vec<SkillView>, Vec<SkillView>) = all.into_iter().partition(fits);
    if unfit.iter().any(SkillView::is_destructive) {
        let tags = vec![DESTRUCTIVE_TAG.to_owned()];
        all.push(SkillView {
            id: HIDDEN_SKILL_ID.to_owned(),
            name: HIDDEN_SKILL_ID.to_owned(),
            tags,
            ..SkillView::default()
        });
    }
    if all.len() > AGENT_SKILLS_MAX {
        all.sort_by_key(|skill| !skill.is_destructive());
    }
    all.into_iter().take(AGENT_SKILLS_MAX).map(shown).collect()
}

fn sanitize_line(text: &str, chars_max: usize) -> String {
    // Bounds the work for very long input.
    let begin = cut_chars(text, chars_max * 4);
    let line = normalize(begin)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    cut_chars(&line, chars_max).trim_end().to_owned()
}

/// Parses an address as people write it: `localhost:8080` (meaning `http`), a URL, or a card's URL.
/// A fragment is removed.
///
/// # Errors
/// `InvalidInput` if it isn't an address, contains a user or password, or is longer than
/// [`ADDRESS_BYTES_MAX`].
pub(super) fn parse_address(written: &str) -> Result<Url, Failure> {
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

/// Returns the normalized form of an agent's address, which is the same for all its spellings:
/// loopback names are equal, and card paths are removed.
pub(super) fn address_key(url: &Url) -> String {
    let host = match url.host() {
        _ if is_loopback(url) => "localhost".to_owned(),
        Some(host) => host.to_string(),
        None => String::new(),
    };
    let path = CARD_PATHS
        .iter()
        .find_map(|card| url.path().strip_suffix(card))
        .unwrap_or(url.path());
    let (scheme, port) = (
        url.scheme(),
        url.port_or_known_default().unwrap_or_default(),
    );
    format!("{scheme}://{host}:{port}{}", path.trim_end_matches('/'))
}

/// Whether the address is on this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => {
            name.trim_end_matches('.').rsplit('.').next() == Some("localhost")
        }
        None => false,
    }
}

/// Derives an agent id from a name: `Agent Two` becomes `agent-two`. A name without an ASCII letter
/// or digit becomes [`DEFAULT_AGENT_ID`].
pub(super) fn agent_id_from_name(name: &str) -> String {
    let folded = fold(name);
    let ascii = words(&folded).filter(|word| word.is_ascii());
    let mut slug = ascii.collect::<Vec<_>>().join("-");
    slug.truncate(AGENT_ID_BYTES_MAX);
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        DEFAULT_AGENT_ID.to_owned()
    } else {
        slug.to_owned()
    }
}

/// Whether the id is allowed for an agent: ASCII letters, digits, `-`, `_` and `.`, beginning with
/// a letter or digit, at most [`AGENT_ID_BYTES_MAX`] bytes.
pub(super) fn is_agent_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    id.len() <= AGENT_ID_BYTES_MAX
        && id.bytes().all(fits)
        && id.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// Checks that an agent id is valid, as [`is_agent_id`].
///
/// # Errors
/// `InvalidInput` if it isn't.
pub(super) fn check_agent_id(id: &str) -> Result<(), Failure> {
    match is_agent_id(id) {
        true => Ok(()),
        false => Err(Failure::invalid(format!(
            "an agent's id must be 1 to {AGENT_ID_BYTES_MAX} letters, digits, `-`, `_` and `.`, the first a letter or digit"
        ))),
    }
}

/// Returns the failure for an agent id that another agent has.
pub(super) fn id_taken(id: &str) -> Failure {
    Failure::invalid(format!("another agent has the id {id}: choose another one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: texts by other agents become one line of bounded length. Method: line breaks,
    /// invisible characters, one more than each maximum.
    #[test]
    fn strangers_are_cut_short() {
        assert_eq!(
            sanitize_name("Agent\n\u{200b}Two\u{1b}[2J"),
            "Agent Two [2J"
        );
        assert_eq!(
            sanitize_name(&"é".repeat(AGENT_NAME_CHARS_MAX + 1))
                .chars()
                .count(),
            AGENT_NAME_CHARS_MAX
        );
        assert_eq!(
            sanitize_description(&"a".repeat(DESCRIPTION_CHARS_MAX + 1)).len(),
            DESCRIPTION_CHARS_MAX
        );
        let skill = |id: &str| SkillView {
            id: id.into(),
            tags: vec!["t".into(); 17],
            ..SkillView::default()
        };
        let kept = sanitize_skills(vec![skill("a b"), skill(""), skill("x\ny"), skill(" z")]);
        assert_eq!(
            kept.iter().map(|skill| &*skill.id).collect::<Vec<_>>(),
            ["a b"]
        );
        assert_eq!(kept[0].tags.len(), 16);
        assert_eq!(
            sanitize_skills(vec![skill("a"); AGENT_SKILLS_MAX + 1]).len(),
            AGENT_SKILLS_MAX
        );
    }

    /// Goal: destructive skills are kept regardless of the amount of other text. Method: the tag
    /// after more tags than are kept, of a skill after more skills than are kept.
    #[test]
    fn what_destroys_is_kept() {
        let tame = |nth: usize| SkillView {
            id: format!("s{nth}"),
            ..SkillView::default()
        };
        let mut all: Vec<_> = (0..AGENT_SKILLS_MAX).map(tame).collect();
        let tags = (0..SKILL_WORDS_MAX)
            .map(|nth| format!("t{nth}"))
            .chain(["destructive".to_owned()])
            .collect();
        all.push(SkillView {
            id: "wipe".into(),
            tags,
            ..SkillView::default()
        });
        let kept = sanitize_skills(all);
        assert_eq!(
            (kept.len(), kept[0].tags.len()),
            (AGENT_SKILLS_MAX, SKILL_WORDS_MAX)
        );
        assert!(kept[0].id == "wipe" && kept[0].is_destructive());
    }

    /// Goal: destructive skills with unprintable ids are represented. Method: one alone, one after
    /// as many harmless skills as are kept, and a harmless one.
    #[test]
    fn what_destroys_unshown_is_known() {
        let skill = |id: &str, tag: &str| SkillView {
            id: id.into(),
            tags: vec![tag.into()],
            ..SkillView::default()
        };
        let wipe = || skill("wi\u{200b}pe", DESTRUCTIVE_TAG);
        let kept = sanitize_skills(vec![wipe(), wipe()]);
        assert!(
            matches!(&kept[..], [only] if only.id == HIDDEN_SKILL_ID && only.is_destructive()),
            "{kept:?}"
        );
        let mut all: Vec<_> = (0..AGENT_SKILLS_MAX)
            .map(|nth| skill(&format!("s{nth}"), "tame"))
            .collect();
        all.push(wipe());
        let kept = sanitize_skills(all);
        assert_eq!(
            (
                kept.len(),
                kept.iter().filter(|skill| skill.is_destructive()).count()
            ),
            (AGENT_SKILLS_MAX, 1)
        );
        assert!(sanitize_skills(vec![skill("lo\u{200b}ok", "tame")]).is_empty());
    }

    /// Goal: common notations of addresses are parsed, and other texts rejected. Method: rows.
    #[test]
    fn addresses_are_read() {
        for (written, url) in [
            ("localhost:8080", "http://localhost:8080/"),
            (" 127.0.0.1:4201 ", "http://127.0.0.1:4201/"),
            ("agents.example", "http://agents.example/"),
            ("https://agents.example/a2a#x", "https://agents.example/a2a"),
        ] {
            assert_eq!(parse_address(written).unwrap().as_str(), url);
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
            assert!(parse_address(none).is_err(), "{none:?}");
        }
        assert!(parse_address(&"a".repeat(ADDRESS_BYTES_MAX)).is_ok());
        assert!(parse_address(&"a".repeat(ADDRESS_BYTES_MAX + 1)).is_err());
    }

    /// Goal: all notations of an agent's address have one normalized form. Method: notations of one
    /// address, and others.
    #[test]
    fn one_place_has_many_spellings() {
        let of = |written: &str| address_key(&parse_address(written).unwrap());
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
            is_loopback(&parse_address("http://a.localhost").unwrap())
                && !is_loopback(&parse_address("localhost.example").unwrap())
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
            assert_eq!(agent_id_from_name(name), id);
            assert!(is_agent_id(id));
        }
        assert_eq!(
            agent_id_from_name(&"a".repeat(AGENT_ID_BYTES_MAX + 1)).len(),
            AGENT_ID_BYTES_MAX
        );
        assert!(
            is_agent_id(&"a".repeat(AGENT_ID_BYTES_MAX))
                && !is_agent_id(&"a".repeat(AGENT_ID_BYTES_MAX + 1))
        );
        for no in ["", "-a", ".", "a b", "a/b", "é"] {
            assert!(!is_agent_id(no), "{no:?}");
        }
    }
}
