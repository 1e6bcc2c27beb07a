//! Places of a question: the clinics that its parts name, and what these are the place of.

use super::fragment::{Connector, Fragment};
use super::phrases::extend_unique;
use super::topic::SearchTopic;

/// Takes the clinics of a fragment for the place of a search that has none, and that no clinic lists: "who
/// takes warfarin and belongs to cardiology".
pub(super) fn places(fragment: &Fragment, before: &mut Fragment) -> bool {
    // "who gets atorvastatin, check every clinic"
    let is_everywhere = fragment.has_only_clinics()
        && fragment.clinic_words
        && fragment.verb
        && !fragment.count
        && !fragment.compare
        && fragment.sentence == before.sentence
        && before.topic.is_some()
        && before.clinics.is_empty()
        && before.ids.is_empty();
    if is_everywhere {
        before.clinics = fragment.clinics.clone();
        return true;
    }
    // "list of patients (dermatology)"
    let is_unplaced_list = before.patients
        && before.has_no_object()
        && before.asks()
        && !before.compare
        && !before.count
        && !before.one_patient;
    if is_unplaced_list
        && fragment.has_only_clinics()
        && !fragment.asks()
        && !fragment.compare
        && fragment.sentence == before.sentence
        && fragment.connector == Connector::Comma
    {
        before.clinics = fragment.clinics.clone();
        return true;
    }
    // "beta-blockers. cardiology only.", "who takes aspirin, both in heart and in neuro"
    let only_there = fragment.has_only_clinics()
        && !fragment.asks()
        && !fragment.compare
        && before.topic.is_some()
        && before.clinics.is_empty()
        && before.ids.is_empty();
    if only_there && (fragment.only || (fragment.both && fragment.sentence == before.sentence)) {
        before.clinics = fragment.clinics.clone();
        return true;
    }
    let is_unplaced = before.clinics.is_empty()
        && before.ids.is_empty()
        && before
            .topic
            .as_ref()
            .is_some_and(|t| t.seen_at().is_empty());
    let only_place = fragment.has_only_clinics()
        && !fragment.asks()
        && !fragment.all
        && fragment.sentence == before.sentence
        && fragment.connector == Connector::And;
    if is_unplaced && only_place {
        before.clinics = fragment.clinics.clone();
    }
    is_unplaced && only_place
}

/// Adds the clinics of a fragment to the places of the search before it: "beta blockers across cardiology and
/// neurology, list everybody". Returns `true` if it did.
pub(super) fn lists_places(fragment: &Fragment, before: &mut Fragment) -> bool {
    let goes_on = fragment.has_only_clinics()
        && !fragment.asks()
        && (!fragment.all || fragment.both)
        && !fragment.compare
        && (fragment.both || matches!(fragment.connector, Connector::And | Connector::Or))
        && fragment.sentence == before.sentence
        && before.topic.is_some()
        && !before.compare
        && !before.clinics.is_empty()
        && before.ids.is_empty();
    if goes_on {
        extend_unique(&mut before.clinics, &fragment.clinics);
    }
    goes_on
}

/// Adds the clinics of a fragment to those of the next, which tells what its patients are searched for:
/// "which patients in dermatology or neurology are on a monoclonal antibody". Returns `true` if it did.
pub(super) fn begins_places(fragment: &Fragment, next: &mut Fragment) -> bool {
    let is_group = fragment.patients
        && !fragment.clinics.is_empty()
        && fragment.topic.is_none()
        && fragment.ids.is_empty()
        && !fragment.has_data()
        && (!fragment.all || fragment.both)
        && !fragment.compare;
    let goes_on = matches!(next.connector, Connector::And | Connector::Or)
        && (next.taking || next.cue)
        && next.topic.is_some()
        && !next.clinics.is_empty()
        && next.ids.is_empty()
        && !next.patients
        && !next.asks()
        && !next.has_data();
    if is_group && goes_on {
        let mut clinics = fragment.clinics.clone();
        extend_unique(&mut clinics, &next.clinics);
        (next.clinics, next.patients) = (clinics, true);
        next.connector = fragment.connector;
        (next.verb, next.who) = (fragment.verb, fragment.who);
        (next.asked, next.count) = (fragment.asked, fragment.count);
    }
    is_group && goes_on
}

/// Merges clinics in apposition into the search around them: "which patients, in any clinic, take aspirin",
/// "aspirin, in cardiology, everyone who takes it". Nothing is merged beside a fragment that is left out.
pub(super) fn place_between(fragments: &mut Vec<Fragment>) {
    let mut at = 0;
    while at + 2 < fragments.len() {
        join_neighbouring_places(fragments, at + 1);
        let Some([first, place, last, ..]) = fragments.get_mut(at..) else {
            return;
        };
        let one_sentence = first.sentence == place.sentence && place.sentence == last.sentence;
        let is_open = one_sentence
            && is_only_place(place)
            && last.clinics.is_empty()
            && last.ids.is_empty()
            && first.left_out.is_none()
            && last.left_out.is_none()
            && !first.compare;
        // "which patients, in any clinic, take aspirin"
        let asks_first = (first.patients || first.who)
            && first.has_no_object()
            && !first.has_data()
            && (last.taking || last.cue)
            && last.topic.is_some()
            && last.connector == Connector::Comma
            && !last.asks()
            && !last.patients;
        // "aspirin, in cardiology, everyone who takes it"
        let asks_last = first.has_only_topic()
            && first.ids.is_empty()
            && last.has_no_object()
            && last.pronoun
            && last.taking
            && !last.has_data();
        // "Huntington's disease, neurology: anyone?"
        let asks_anybody = first.has_only_topic()
            && first.ids.is_empty()
            && !first.asks()
            && place.connector == Connector::Comma
            && last.connector == Connector::Comma
            && last.patients
            && last.has_no_object()
            && !last.verb
            && !last.all
            && !last.count
            && !last.compare
            && !last.has_data();
        if is_open && asks_first {
            (last.clinics, last.patients) = (place.clinics.clone(), true);
            (last.verb, last.who, last.count) = (first.verb, first.who, first.count);
            (last.asked, last.connector) = (first.asked, first.connector);
            fragments.drain(at..at + 2);
        } else if is_open && (asks_last || asks_anybody) {
            (first.clinics, first.patients) = (place.clinics.clone(), true);
            fragments.drain(at + 1..at + 3);
        }
        at += 1;
    }
}

/// Takes the clinic behind each of several topics for its place: "melanoma (derm), migraine (neuro): who".
pub(super) fn place_behind(fragments: &mut Vec<Fragment>) {
    let is_pair = |pair: &[Fragment]| {
        let [topic, place] = pair else { return false };
        let is_topic = topic.topic.is_some()
            && topic.clinics.is_empty()
            && topic.ids.is_empty()
            && topic.left_out.is_none()
            && !topic.compare;
        let is_place = place.has_only_clinics()
            && !(place.verb || place.who || place.count || place.compare || place.all)
            && place.left_out.is_none()
            && place.connector == Connector::Comma;
        is_topic && is_place && topic.sentence == place.sentence && fits(topic, place)
    };
    for start in 0..fragments.len() {
        let pairs = fragments[start..]
            .chunks(2)
            .take_while(|pair| is_pair(pair))
            .count();
        if pairs < 2 {
            continue;
        }
        for at in start..start + pairs {
            let place = fragments.remove(at + 1);
            fragments[at].clinics = place.clinics;
            fragments[at].asked |= place.asked;
        }
        return;
    }
}

/// Returns whether a topic may be searched at a place: a clinic there lists it, or none does.
fn fits(topic: &Fragment, place: &Fragment) -> bool {
    let seen_at = topic.topic.as_ref().map(SearchTopic::seen_at);
    seen_at.is_none_or(|seen| seen.is_empty() || seen.iter().any(|at| place.clinics.contains(at)))
}

fn is_only_place(fragment: &Fragment) -> bool {
    fragment.has_only_clinics()
        && !fragment.asks()
        && !fragment.compare
        && !fragment.count
        && fragment.left_out.is_none()
}

/// Joins the places from `at` on, unless what follows them is left out: "aspirin: cardiology, neurology, everyone who
/// takes it".
fn join_neighbouring_places(fragments: &mut Vec<Fragment>, at: usize) {
    while let Some([place, next, last, ..]) = fragments.get_mut(at..)
        && is_only_place(place)
        && is_only_place(next)
        && last.left_out.is_none()
        && place.sentence == next.sentence
    {
        extend_unique(&mut place.clinics, &next.clinics);
        fragments.remove(at + 1);
    }
}

/// Drops clauses that only name clinics: they are the place of the clause before or after that names
/// none. A single clause stays.
pub(super) fn place_contexts(mut clauses: Vec<Fragment>) -> Vec<Fragment> {
    let is_context = |clause: &Fragment| {
        clause.has_only_clinics()
            && !clause.compare
            && !clause.asks()
            && (!clause.all || clause.clinic_words)
    };
    let lacks_place = |clause: &Fragment| clause.clinics.is_empty() && clause.ids.is_empty();
    let mut at = 0;
    while at < clauses.len() && clauses.len() > 1 {
        if !is_context(&clauses[at]) {
            at += 1;
            continue;
        }
        // "brain gone. who's on a statin": said of something else
        let is_of_others = clauses[at].is_body_part
            && !{ clauses.iter() }.any(|c| c.sentence == clauses[at].sentence && !is_context(c));
        if is_of_others {
            at += 1;
            continue;
        }
        let context = clauses.remove(at);
        let next = match clauses.get_mut(at) {
            Some(next) if lacks_place(next) => Some(next),
            _ => at
                .checked_sub(1)
                .and_then(|before| clauses.get_mut(before))
                .filter(|b| lacks_place(b)),
        };
        let Some(clause) = next else {
            // "cardiology + neurology patient lists"
            let next = clauses.get_mut(at).filter(|next| {
                let is_list = next.topic.is_none() && next.ids.is_empty() && next.asks();
                is_list && next.sentence == context.sentence
            });
            if let Some(next) = next {
                let own = std::mem::replace(&mut next.clinics, context.clinics);
                extend_unique(&mut next.clinics, &own);
            }
            continue;
        };
        {
            let seen_at = clause
                .topic
                .as_ref()
                .map(SearchTopic::seen_at)
                .unwrap_or_default();
            let fits = seen_at.is_empty() || seen_at.iter().any(|at| context.clinics.contains(at));
            // "in cardiology only. Who has acne?"
            if fits || context.only {
                clause.clinics = context.clinics;
            }
        }
    }
    clauses
}
