//! Orders and numbers that several words of a question give together.

use callboard_message::text::is_one_of;

use super::refusal::PlanRefusal;
use super::tokens::{QueryToken, looks_like_an_id};
use super::vocabulary::{WordRole, word_role};

/// Refuses a question that selects by the number of medicines: "who takes more than one medicine", "who takes two drugs".
///
/// # Errors
/// [`PlanRefusal::Filter`], if it does.
pub(super) fn refuse_medicine_count(tokens: &[QueryToken]) -> Result<(), PlanRefusal> {
    const LEADS: [&str; 8] = [
        "more than",
        "fewer than",
        "less than",
        "at least",
        "mais de",
        "mais do que",
        "menos de",
        "pelo menos",
    ];
    const ONE: &str = "um uma";
    const NUMERALS: &str = "one single many two three four five six seven eight nine ten several multiple dois duas tres quatro cinco seis \
                            sete oito nove dez varios varias muitos muitas";
    const EXACTLY: &str = "a exactly only just precisely exatamente apenas somente so";
    let words: Vec<&str> = tokens.iter().map(folded).collect();
    let is_number = |word: &str| {
        is_one_of(word, NUMERALS) || !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
    };
    let has_id = words.iter().any(|word| looks_like_an_id(word));
    for at in 0..words.len() {
        let lead = LEADS.iter().find(|lead| begins_with(&words[at..], lead));
        let after = at + lead.map_or(0, |lead| lead.split(' ').count());
        let Some([number, behind @ ..]) = words.get(after..) else {
            continue;
        };
        // "three or more drugs"
        let has_more = ["or more", "ou mais"]
            .iter()
            .any(|more| begins_with(behind, more));
        let Some(of) = behind.get(if has_more { 2 } else { 0 }) else {
            continue;
        };
        let is_of_medicines = word_role(of) == Some(WordRole::Medication);
        let is_limited = lead.is_some() || at > 0 && is_one_of(words[at - 1], EXACTLY);
        // "CARD-001 takes two drugs"
        let is_taken = { words[..at].iter().rev() }
            .find(|word| !is_one_of(word, EXACTLY))
            .is_some_and(|word| matches!(word_role(word), Some(WordRole::Taking | WordRole::Cue)));
        if is_of_medicines
            && (is_limited && (is_number(number) || is_one_of(number, ONE))
                || is_number(number) && is_taken && !has_id)
        {
            return Err(PlanRefusal::Filter((*lead.unwrap_or(number)).to_owned()));
        }
    }
    Ok(())
}

/// Refuses a wish that something be changed or sent: "my boss wants it emailed to the insurer", "get it exported".
///
/// # Errors
/// [`PlanRefusal::Change`] with the participle, if there is one.
pub(super) fn refuse_causative(tokens: &[QueryToken]) -> Result<(), PlanRefusal> {
    const CAUSES: &str = "want wants wanted need needs get gets have having sure ensure like likes quer quero querem precisa preciso";
    const TOLD: &str =
        "who that which was were is are been has had i he she they we quem que foi foram";
    const ARTICLES: &str = "the a an any my our o a os as um uma";
    const DISTANCE_MAX: usize = 6;
    let words: Vec<&str> = tokens.iter().map(folded).collect();
    // "it has to be deleted"
    let is_to_be = |pair: &&[&str]| pair[0] == "be" && is_participle_of_order(pair[1]);
    if let Some(pair) = words.windows(2).find(is_to_be) {
        return Err(PlanRefusal::Change(pair[1].to_owned()));
    }
    let causes = (0..words.len()).filter(|at| is_one_of(words[*at], CAUSES));
    for start in causes {
        let within = words[start + 1..].iter().take(DISTANCE_MAX);
        let within: Vec<&str> = { within.copied() }
            .take_while(|word| !word.is_empty() && !is_one_of(word, TOLD))
            .collect();
        // Not "I have emailed him", "I need the updated list".
        let is_wished = |pair: &&[&str]| {
            !is_one_of(pair[0], ARTICLES)
                && !is_participle_of_order(pair[0])
                && is_participle_of_order(pair[1])
        };
        if let Some(pair) = within.windows(2).find(is_wished) {
            return Err(PlanRefusal::Change(pair[1].to_owned()));
        }
    }
    Ok(())
}

/// Returns whether a word is the participle of a verb for changing or sending: `exported`, `copied`, `enviado`.
fn is_participle_of_order(word: &str) -> bool {
    if !matches!(
        word_role(word),
        None | Some(WordRole::Change | WordRole::Send)
    ) {
        return false;
    }
    let is_order = |verb: &str| matches!(word_role(verb), Some(WordRole::Change | WordRole::Send));
    let of_english = |stem: &str| {
        let undoubled = stem.get(..stem.len().saturating_sub(1)).unwrap_or_default();
        is_order(stem) || is_order(&format!("{stem}e")) || is_order(undoubled)
    };
    let of_y = |stem: &str| is_order(&format!("{stem}y"));
    let of_portuguese = |ending: &str| {
        { word.strip_suffix(ending) }.is_some_and(|stem| is_order(&format!("{stem}ar")))
    };
    word == "sent"
        || word.strip_suffix("ied").is_some_and(of_y)
        || word.strip_suffix("ed").is_some_and(of_english)
        || ["ado", "ada", "ados", "adas"]
            .into_iter()
            .any(of_portuguese)
}

/// Returns the word of a token in folded form, empty for a sign.
pub(super) fn folded(token: &QueryToken) -> &str {
    token.as_word().map_or("", |word| word.folded.as_str())
}

/// Returns whether the words begin with those of a phrase.
pub(super) fn begins_with(words: &[&str], phrase: &str) -> bool {
    let count = phrase.split(' ').count();
    words.len() >= count
        && phrase
            .split(' ')
            .zip(words)
            .all(|(part, word)| part == *word)
}
