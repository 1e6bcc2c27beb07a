//! Clauses of a query: fragments that took what they lack from their neighbours.

use super::fragment::{Connector, Fragment};
use super::leaving_out::{LeavingOut, join_left_out};
use super::phrases::extend_unique;
use super::places::{
    begins_places, lists_places, place_behind, place_between, place_contexts, places,
};
use super::refusal::PlanRefusal;
use super::topic::SearchTopic;

/// Turns the fragments of a query into clauses: each takes parts that it lacks from the next
/// fragment of its sentence, or from the clause before it, which may be in an earlier sentence.
/// Some fragments are merged with the next or the one before; those that leave something out narrow
/// the clause before. A clause may still lack parts.
///
/// # Errors
/// [`PlanRefusal::Negation`], if it can't be told what is to be left out.
pub(super) fn share_between(
    mut fragments: Vec<Fragment>,
    clinics_total: usize,
) -> Result<Vec<Fragment>, PlanRefusal> {
    ask_before_ids(&mut fragments);
    place_behind(&mut fragments);
    place_between(&mut fragments);
    compare_named_clinics(&mut fragments);
    join_left_out(&mut fragments);
    let mut clauses: Vec<Fragment> = Vec::new();
    let mut leaving_out = LeavingOut::new(clinics_total);
    for at in 0..fragments.len() {
        let mut fragment = fragments[at].clone();
        if clauses.is_empty() {
            ask_for_others(&mut fragment);
        }
        if leaving_out.takes(&fragment, &mut clauses)?
            || leaving_out.takes_rest(&mut fragment, clauses.last())?
        {
            continue;
        }
        if clauses
            .last_mut()
            .is_some_and(|before| lists_places(&fragment, before))
        {
            continue;
        }
        let next = fragments
            .get_mut(at + 1)
            .filter(|n| n.sentence == fragment.sentence && n.left_out.is_none());
        if next.is_some_and(|next| carry_forward(&mut fragment, next)) {
            continue;
        }
        if joins_both(&fragment, &mut clauses) {
            continue;
        }
        if let Some(before) = clauses.last_mut() {
            if asks_of_patient(&fragment, before) {
                continue;
            }
            if repeats(&fragment, before)
                || joins_taken(&fragment, before)
                || narrows(&fragment, before)
                || widens(&fragment, before)
                || says_again(&fragment, before)
                || places(&fragment, before)
                || names_again(&fragment, before)
            {
                continue;
            }
            // "more people in cardiology or in dermatology"
            fragment.compare |=
                before.compare && before.topic.is_none() && fragment.has_only_clinics();
            inherit_from(&mut fragment, before);
        }
        leaving_out.narrow(&mut fragment)?;
        clauses.push(fragment);
    }
    leaving_out.take_last(&mut clauses)?;
    leaving_out.finish(&clauses)?;
    Ok(place_contexts(clauses))
}

/// Copies what a first sentence asks of nobody in particular to a next one that is only patient ids: "meds?
/// NEUR-010", "dose of levodopa? it's NEUR-015".
fn ask_before_ids(fragments: &mut Vec<Fragment>) {
    let [asked, next, ..] = &mut fragments[..] else {
        return;
    };
    let of_medicine = asked.topic.as_ref().is_some_and(SearchTopic::has_medicine) && asked.dose;
    let asks_of_nobody = asked.has_data()
        && (asked.has_no_object() || (of_medicine && asked.clinics.is_empty()))
        && !asked.patients
        && !asked.who
        && !asked.pronoun
        && !asked.count
        && !asked.compare
        && asked.rest.is_none()
        && asked.left_out.is_none();
    let is_only_ids = !next.ids.is_empty() && !next.has_subject() && next.left_out.is_none();
    if asks_of_nobody && is_only_ids && next.sentence == asked.sentence + 1 {
        next.record |= asked.record;
        next.medication |= asked.medication;
        next.dose |= asked.dose;
        fragments.remove(0);
    }
}

/// Takes the clinics that follow for those that a first fragment compares: "which of the clinics has fewer patients,
/// cardiology or neurology".
fn compare_named_clinics(fragments: &mut Vec<Fragment>) {
    let [first, named @ ..] = &mut fragments[..] else {
        return;
    };
    let is_named = |f: &&Fragment| {
        f.has_only_clinics() && !f.clinic_words && f.left_out.is_none() && !f.asks()
    };
    let count = named.iter().take_while(|f| is_named(f)).count();
    let compares = first.compare
        && first.clinic_words
        && first.topic.is_none()
        && first.ids.is_empty()
        && count > 1
        && count == named.len();
    if compares {
        first.clinics.clear();
        for place in named {
            extend_unique(&mut first.clinics, &place.clinics);
        }
        fragments.truncate(1);
    }
}

/// Turns a first fragment that asks who of a clinic doesn't match into a request for its patients without
/// these: "who isn't on losartan in cardiology".
fn ask_for_others(fragment: &mut Fragment) {
    let asks = fragment.connector == Connector::Negation
        && fragment.asked
        && !fragment.clinics.is_empty()
        && fragment.left_out.is_some();
    if asks && let Some(topic) = fragment.topic.take() {
        fragment.excluded.push(topic);
        (fragment.left_out, fragment.patients) = (None, true);
        fragment.taking = false;
    }
}

/// Copies parts of a fragment to the next fragment, or from it, if they belong together. Returns
/// `true` if the fragment was merged into the next one, and the caller must drop it.
fn carry_forward(fragment: &mut Fragment, next: &mut Fragment) -> bool {
    if is_address(fragment, next) {
        return true;
    }
    // "cardiology and dermatology patients"; "in dermatology, list patients"; but not "all of
    // neurology, plus dermatology's acne cases"
    let wants_clinics = match next.verb {
        true => next.clinics.is_empty() && next.ids.is_empty() && !fragment.verb,
        false => (next.patients || next.topic.is_some()) && next.ids.is_empty(),
    };
    let stands_alone = stands_alone(fragment, next);
    fragment.asked |= stands_alone && fragment.has_only_clinics();
    if fragment.has_only_clinics()
        && wants_clinics
        && !stands_alone
        && (next.patients || next.topic.is_some())
    {
        put_clinics_first(&fragment.clinics, next);
        next.verb |= fragment.verb;
        next.all |= fragment.all;
        next.compare |= fragment.compare;
        return true;
    }
    if begins_places(fragment, next) || joins_wording(fragment, next) {
        return true;
    }
    // "check cardiology and neurology: who has …"
    let are_places = fragment.has_only_clinics() && next.has_only_clinics();
    if are_places && next.connector == Connector::And && !next.verb && !fragment.compare {
        put_clinics_first(&fragment.clinics, next);
        (next.verb, next.connector) = (fragment.verb, fragment.connector);
        next.asked |= fragment.asked;
        (next.all, next.count) = (next.all || fragment.all, next.count || fragment.count);
        next.both |= fragment.both;
        next.who |= fragment.who;
        return true;
    }
    // "are there more patients with psoriasis than …": the words before what is compared
    // "o que é que se usa mais, bisoprolol ou carvedilol"
    let only_patients = (fragment.patients || fragment.taking)
        && fragment.has_no_object()
        && !fragment.record
        && !fragment.medication;
    let is_compared = next.topic.is_some() || next.has_only_clinics();
    if only_patients && fragment.compare && is_compared {
        next.patients = true;
        return true;
    }
    if join_topics(fragment, next) {
        return true;
    }
    // "for CARD-001, check medications"
    let bare_ids = !fragment.ids.is_empty() && !fragment.verb && !fragment.has_subject();
    // "CARD-001, CARD-002: medications"
    let goes_on_with_ids = bare_ids
        && !next.ids.is_empty()
        && !next.verb
        && !next.has_subject()
        && matches!(next.connector, Connector::Comma | Connector::And);
    if goes_on_with_ids {
        let ids = std::mem::replace(&mut next.ids, fragment.ids.clone());
        extend_unique(&mut next.ids, &ids);
        next.connector = fragment.connector;
        return true;
    }
    // "NEUR-004: medication?"
    let is_heading = next.connector == Connector::Comma
        && !next.pronoun
        && !next.patients
        && next.has_no_object();
    if bare_ids && (next.verb || is_heading) && next.ids.is_empty() && next.has_data() {
        next.ids = fragment.ids.clone();
        return true;
    }
    share_subject(fragment, next);
    false
}

/// Puts `clinics` before those of a fragment.
fn put_clinics_first(clinics: &[usize], fragment: &mut Fragment) {
    let named = std::mem::replace(&mut fragment.clinics, clinics.to_vec());
    extend_unique(&mut fragment.clinics, &named);
}

/// Returns whether a fragment only addresses the clinics that the next one names again: "dear cardiology and dermatology:
/// who has psoriasis in dermatology".
fn is_address(fragment: &Fragment, next: &Fragment) -> bool {
    fragment.has_only_clinics()
        && !fragment.asks()
        && !fragment.all
        && !fragment.compare
        && !fragment.is_list
        && fragment.clinics.len() > 1
        && next.connector == Connector::Comma
        && next.topic.is_some()
        && !next.clinics.is_empty()
        && next.clinics.iter().all(|at| fragment.clinics.contains(at))
}

/// Returns whether a fragment with only clinics asks for their patients, and the next for a topic elsewhere:
/// "all of neurology, plus dermatology's acne cases", "list dermatology, and who has epilepsy".
fn stands_alone(fragment: &Fragment, next: &Fragment) -> bool {
    let Some(topic) = &next.topic else {
        return false;
    };
    let seen_at = topic.seen_at();
    let is_seen_elsewhere =
        !seen_at.is_empty() && !seen_at.iter().any(|at| fragment.clinics.contains(at));
    match next.clinics.is_empty() {
        true => is_seen_elsewhere && (fragment.verb || next.connector == Connector::And),
        false => {
            next.connector == Connector::Comma || fragment.is_list || (fragment.verb && next.who)
        }
    }
}

/// Merges a fragment into the next that says the same of the same patients in other words. Returns `true` if
/// it did.
fn joins_wording(fragment: &Fragment, next: &mut Fragment) -> bool {
    // "medications and doses: CARD-001"
    let is_data_alone =
        |f: &Fragment| f.has_data() && !f.patients && !f.pronoun && f.has_no_object();
    // "doing a drug review, need the dose and frequency for CARD-001"
    let goes_on = !next.verb || !fragment.asks();
    if is_data_alone(fragment) && is_data_alone(next) && goes_on {
        (next.verb, next.connector) = (fragment.verb || next.verb, fragment.connector);
        next.asked |= fragment.asked;
        next.record |= fragment.record;
        next.medication |= fragment.medication;
        next.dose |= fragment.dose;
        next.all |= fragment.all;
        return true;
    }
    // "who took or takes colchicine"
    let only_relates =
        (fragment.taking || fragment.cue) && fragment.has_no_object() && !fragment.has_data();
    if only_relates
        && next.connector == Connector::Or
        && (next.taking || next.cue)
        && next.topic.is_some()
    {
        next.connector = fragment.connector;
        next.who |= fragment.who;
        next.patients |= fragment.patients;
        next.verb |= fragment.verb;
        next.asked |= fragment.asked;
        next.count |= fragment.count;
        return true;
    }
    false
}

/// Returns whether the topics of a fragment and the next are asked of one person: "somebody with psoriasis
/// and eczema", "with psoriasis and eczema at the same time".
fn is_one_person(fragment: &Fragment, next: &Fragment) -> bool {
    let is_single = next.both_last || fragment.one_person;
    is_single && next.connector == Connector::And && !next.who
}

/// Joins the topics of "patients with both psoriasis and eczema" into one search for both, because
/// clinics match all words. Returns `true` if it did.
fn join_topics(fragment: &mut Fragment, next: &mut Fragment) -> bool {
    let only_topic = !next.verb
        && !next.record
        && !next.medication
        && !next.taking
        && (next.clinics.is_empty() || fragment.clinics.is_empty())
        && next.ids.is_empty();
    if let (true, true, Some(topic), Some(more)) = (
        (fragment.both || is_one_person(fragment, next)) && !fragment.compare,
        only_topic,
        &mut fragment.topic,
        &next.topic,
    ) {
        topic.and(more);
        fragment.patients |= next.patients;
        extend_unique(&mut fragment.clinics, &next.clinics);
        let connector = next.connector;
        *next = fragment.clone();
        next.connector = connector;
        return true;
    }
    false
}

/// Copies the subject and the clinics of the next fragment to a fragment without them.
fn share_subject(fragment: &mut Fragment, next: &Fragment) {
    // "the record and the medications of CARD-001", "of patients with migraine"
    let wants_whose = (fragment.record || fragment.medication)
        && fragment.has_no_object()
        && !fragment.patients
        && !fragment.pronoun;
    if wants_whose && !next.verb {
        fragment.ids = next.ids.clone();
        if next.record || next.medication {
            fragment.topic = next.topic.clone();
            fragment.clinics = next.clinics.clone();
            fragment.patients = next.patients;
            fragment.who |= next.who;
            fragment.all |= next.all;
        }
    }
    // "vitiligo and eczema patients of dermatology"
    let unplaced = fragment.clinics.is_empty()
        && fragment
            .topic
            .as_ref()
            .is_some_and(|t| t.seen_at().is_empty());
    // "AF and taking clopidogrel, anybody": that asks of both
    let asks_of_all = next.has_no_object() && next.connector == Connector::Comma;
    if unplaced && !fragment.patients && !next.verb && !asks_of_all {
        fragment.clinics = next.clinics.clone();
        fragment.patients |= next.patients;
    }
    // "anybody on aspirin or clopidogrel in neurology"
    let goes_on = matches!(next.connector, Connector::Or | Connector::And)
        && next.topic.is_some()
        && !next.patients
        && !next.who
        && !next.verb
        && !next.has_data();
    if unplaced && goes_on {
        fragment.clinics = next.clinics.clone();
    }
}

/// Returns whether the fragment asks something about the patients that the clause before names by id,
/// whose record or medications answer it: "is CARD-001 on losartan or on amlodipine".
fn asks_of_patient(fragment: &Fragment, before: &mut Fragment) -> bool {
    let about_them = fragment.topic.is_some()
        && !fragment.who
        && !fragment.count
        && !fragment.patients
        && !fragment.record
        && fragment.clinics.is_empty()
        && fragment.ids.is_empty()
        && fragment.sentence == before.sentence
        && !before.ids.is_empty();
    let goes_on = !fragment.verb
        && !fragment.medication
        && (before.taking || before.cue)
        && matches!(fragment.connector, Connector::And | Connector::Or);
    // "compare CARD-001 and CARD-002, do they take the same"
    let asks_taking = fragment.taking
        && fragment.has_no_object()
        && !fragment.has_data()
        && !fragment.patients
        && !fragment.who
        && !fragment.count
        && fragment.sentence == before.sentence
        && !before.ids.is_empty();
    if asks_taking {
        before.medication = true;
        return true;
    }
    // "CARD-001: losartan dose?"
    let asks = about_them && (goes_on || fragment.dose);
    if asks {
        before.record |= fragment.cue;
        before.medication |= fragment.dose || (before.record && fragment.taking);
    }
    asks
}

/// Joins the topics of the last two clauses if the fragment asks who has both: "migraine and propranolol, who
/// has both". Returns `true` if it did.
fn joins_both(fragment: &Fragment, clauses: &mut Vec<Fragment>) -> bool {
    let asks = fragment.both
        && fragment.has_no_object()
        && !fragment.has_data()
        && (fragment.who || fragment.cue || fragment.patients || fragment.taking);
    let [.., first, second] = &mut clauses[..] else {
        return false;
    };
    let is_bare = |f: &Fragment| f.has_only_topic() && f.sentence == fragment.sentence;
    if !asks || !is_bare(first) || !is_bare(second) {
        return false;
    }
    if let (Some(topic), Some(more)) = (&mut first.topic, &second.topic) {
        topic.and(more);
        first.patients = true;
        clauses.pop();
    }
    true
}

/// Returns whether the fragment only refers back to what the clause before searches: "only the ones
/// who have it".
fn repeats(fragment: &Fragment, before: &mut Fragment) -> bool {
    // "aspirin, which patients"
    let names_only = before.topic.is_some()
        && !(before.asks() && (fragment.all || fragment.connector != Connector::Comma))
        && !before.has_data()
        && fragment.patients
        && fragment.sentence == before.sentence;
    // "losartan recall. All patients taking it."
    let is_of_medicine = fragment.taking
        && fragment.pronoun
        && !fragment.compare
        && before.topic.as_ref().is_some_and(SearchTopic::has_medicine);
    let repeats = before.topic.is_some()
        && fragment.has_no_object()
        && !fragment.record
        && !fragment.medication
        && (!fragment.all || names_only || is_of_medicine)
        && (fragment.pronoun || fragment.taking || fragment.cue || fragment.who || names_only);
    if repeats {
        before.patients |= fragment.patients;
        before.taking |= fragment.taking;
    }
    repeats
}

/// Merges a medicine behind a comma into the condition of the clause before: "heart failure, on a beta blocker".
/// Returns `true` if it did.
fn joins_taken(fragment: &Fragment, before: &mut Fragment) -> bool {
    let is_search = before.has_only_topic() && !before.who || before.patients && !before.has_data();
    let is_taken = fragment.connector == Connector::Comma
        && fragment.sentence == before.sentence
        && fragment.taking
        && fragment.has_only_topic()
        && fragment.ids.is_empty()
        && !fragment.who
        && !fragment.count
        && !fragment.compare;
    let is_open = is_search && !before.taking && !before.count && !before.compare;
    match (&mut before.topic, &fragment.topic) {
        (Some(topic), Some(more))
            if is_taken && is_open && more.has_medicine() && !topic.has_medicine() =>
        {
            topic.and(more);
            (before.taking, before.asked) = (true, before.asked || fragment.asked);
            true
        }
        _ => false,
    }
}

/// Merges the fragment's topic into the clause before, if it narrows what that searches: "patients on
/// aspirin and atorvastatin", "with psoriasis and who take methotrexate". Conditions alone don't,
/// because a record has one.
fn narrows(fragment: &Fragment, before: &mut Fragment) -> bool {
    // "on aspirin and clopidogrel in neurology"
    let same_place = Fragment {
        clinics: Vec::new(),
        ..fragment.clone()
    };
    let seen_at = before.topic.as_ref().map(SearchTopic::seen_at);
    // "psoriasis + adalimumab in dermatology"
    let is_placed = before.clinics.is_empty() && seen_at.as_ref() == Some(&fragment.clinics);
    let may_go_on = fragment.connector == Connector::And
        && fragment.sentence == before.sentence
        && (fragment.clinics.is_empty() || fragment.clinics == before.clinics || is_placed)
        && same_place.has_only_topic()
        && fragment.ids.is_empty()
        && !fragment.compare
        && !before.compare
        && !(fragment.who && before.who);
    let goes_on = may_go_on && (before.patients || before.who || before.taking || fragment.taking);
    // "hypertension + amlodipine"
    let is_bare = before.has_only_topic() && !before.who && !before.count && !before.taking;
    // "of the patients with psoriasis, who takes methotrexate"
    let chooses = before.of
        && (before.patients || before.who)
        && !before.verb
        && !before.asked
        && !before.count
        && !before.has_data()
        && fragment.asks()
        && !fragment.has_data()
        && fragment.connector == Connector::Comma
        && fragment.sentence == before.sentence
        && fragment.clinics.is_empty();
    // "patients on furosemide, but only those with heart failure"
    let only_some = fragment.only
        && !fragment.verb
        && !fragment.who
        && !fragment.count
        && !fragment.has_data()
        && !before.compare
        && before.ids.is_empty()
        && fragment.ids.is_empty()
        && fragment.clinics.is_empty()
        && (fragment.patients || fragment.sentence == before.sentence);
    match (&mut before.topic, &fragment.topic) {
        (Some(topic), Some(more)) if only_some => {
            topic.and(more);
            true
        }
        (None, Some(more)) if only_some && !before.clinics.is_empty() => {
            before.topic = Some(more.clone());
            true
        }
        (Some(topic), Some(more)) if chooses => {
            topic.and(more);
            (before.asked, before.taking) = (true, fragment.taking);
            (before.count, before.who) = (fragment.count, fragment.who);
            true
        }
        (None, Some(more)) if chooses && !before.clinics.is_empty() => {
            before.topic = Some(more.clone());
            (before.asked, before.taking) = (true, fragment.taking);
            (before.count, before.who) = (fragment.count, fragment.who);
            true
        }
        (Some(topic), Some(more))
            if may_go_on && is_bare && topic.has_medicine() != more.has_medicine() =>
        {
            topic.and(more);
            true
        }
        (Some(topic), Some(more)) if goes_on && (topic.has_medicine() || more.has_medicine()) => {
            topic.and(more);
            before.taking |= fragment.taking;
            true
        }
        _ => false,
    }
}

/// Returns whether the fragment only says again what the clause before searches: "which cardiology patients take a
/// statin? Any statin."
fn says_again(fragment: &Fragment, before: &Fragment) -> bool {
    fragment.has_only_topic()
        && fragment.ids.is_empty()
        && !fragment.taking
        && !fragment.who
        && !fragment.count
        && !fragment.compare
        && !before.compare
        && before.asks()
        && before.topic.as_ref().map(|topic| &topic.terms)
            == fragment.topic.as_ref().map(|topic| &topic.terms)
}

/// Adds the fragment's medicine to the one that narrows what the clause before searches: "migraine
/// patients on topiramate or propranolol".
fn widens(fragment: &Fragment, before: &mut Fragment) -> bool {
    let goes_on = fragment.connector == Connector::Or
        && fragment.sentence == before.sentence
        && fragment.has_only_topic()
        && fragment.ids.is_empty()
        && !fragment.compare
        && !before.compare;
    match (&mut before.topic, &fragment.topic) {
        (Some(topic), Some(more)) if goes_on => topic.or_medicine(more),
        _ => false,
    }
}

/// Returns whether a fragment of a later sentence only asks again for the patients of a clinic that the
/// clause before names: "Who does cardiology see? Give me the list of patients."
fn names_again(fragment: &Fragment, before: &mut Fragment) -> bool {
    let names_again = fragment.patients
        && !fragment.all
        && !fragment.compare
        && !fragment.count
        && !fragment.has_data()
        && fragment.has_no_object()
        && fragment.rest.is_none()
        && fragment.sentence != before.sentence
        && before.ids.is_empty()
        && !before.has_data()
        && (!before.clinics.is_empty() || before.topic.is_some());
    if names_again {
        before.asked = true;
        before.patients = true;
    }
    names_again
}

/// Copies parts that a fragment lacks from the clause before it.
fn inherit_from(fragment: &mut Fragment, before: &Fragment) {
    // "medications of cardiology patients and of patients with acne"
    // "medications of cardiology and dermatology patients"
    let of_another_group = fragment.patients
        && !fragment.asks()
        && fragment.sentence == before.sentence
        && (fragment.of || !before.patients);
    if of_another_group && !fragment.medication && !fragment.record {
        (fragment.record, fragment.medication) = (before.record, before.medication);
    }
    // "CARD-001 and their medications"
    let points_back = fragment.pronoun
        || (fragment.clinics.is_empty() && fragment.topic.is_none() && !fragment.patients);
    if fragment.ids.is_empty() && (fragment.medication || fragment.record) && points_back {
        fragment.ids = before.ids.clone();
        let of_group = before.ids.is_empty()
            && fragment.topic.is_none()
            && fragment.clinics.is_empty()
            && (before.patients || before.topic.is_some() || !before.clinics.is_empty());
        if of_group {
            // "list cardiology patients and their medications"
            fragment.topic = before.topic.clone();
            fragment.clinics = before.clinics.clone();
            fragment.excluded = before.excluded.clone();
            (fragment.patients, fragment.all, fragment.taking) = (true, true, false);
            fragment.follows = true;
        }
        return;
    }
    let says_only_what = !fragment.verb && !fragment.has_subject();
    if !fragment.ids.is_empty() {
        // "the medications of CARD-001 and CARD-002"
        if says_only_what {
            (fragment.record, fragment.medication, fragment.taking) =
                (before.record, before.medication, before.taking);
        }
    } else if let Some(topic) = &fragment.topic {
        // "dermatology patients with psoriasis and eczema"; but not "list cardiology patients and
        // check psoriasis"
        let registered = !topic.seen_at().is_empty();
        let goes_on = !registered || (!fragment.verb && before.topic.is_some());
        let same_request = fragment.sentence == before.sentence || fragment.pronoun;
        if fragment.clinics.is_empty() && !fragment.patients && goes_on && same_request {
            let fits = !registered || topic.seen_at().iter().any(|at| before.clinics.contains(at));
            if fits {
                fragment.clinics = before.clinics.clone();
            }
            fragment.patients = before.patients;
            fragment.taking |= before.taking;
            fragment.who |= before.who;
        }
    } else if fragment.has_only_clinics()
        && says_only_what
        && !is_bare_group(before)
        && (!fragment.all || fragment.clinic_words)
    {
        // "list patients with psoriasis in dermatology and in cardiology"
        fragment.topic = before.topic.clone();
        fragment.patients = before.patients || before.asks() || before.taking;
    } else if fragment.pronoun && fragment.patients && fragment.clinics.is_empty() {
        // "dermatology. List its patients."
        fragment.clinics = before.clinics.clone();
    }
}

/// Returns whether a clause only names patients, whose clinic may follow: "everyone, all clinics".
fn is_bare_group(clause: &Fragment) -> bool {
    clause.patients
        && !clause.asks()
        && !clause.compare
        && !clause.has_data()
        && clause.has_no_object()
}
