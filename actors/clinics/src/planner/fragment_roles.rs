//! Flags, clinics and ids that the words of a fragment give it.

use callboard_message::text::is_one_of;

use super::fragment::Fragment;
use super::phrases::extend_unique;
use super::refusal::PlanRefusal;
use super::tags::{PhraseTag, TaggedPhrase};
use super::vocabulary::WordRole;
use crate::plan::ClinicRegistry;

/// Units of doses. With an id they ask for the dose; else they would select by it.
const DOSE_UNITS: &str = "mg mcg ug ml milligram milligrams microgram micrograms miligrama miligramas micrograma microgramas route routes";
/// Words that ask for all patients of a clinic that they stand beside.
const WHOLE: &str = "full complete completa completas completo completos integral ids";
/// Words for a single person.
const ONE_PERSON: &str = "someone somebody alguem alguém";

/// Returns whether the phrase at `at` is a verb whose receiver is the user: `send me`, `mande-me`.
fn is_to_user(pieces: &[TaggedPhrase], at: usize) -> bool {
    let is_user = |at: Option<usize>| {
        let shown = at.and_then(|at| pieces.get(at)).map(|p| &*p.shown);
        matches!(shown, Some("me" | "us" | "nos"))
    };
    let shown = &pieces[at].shown;
    let is_here = |p: &TaggedPhrase| matches!(&*p.shown, "here" | "aqui" | "mim");
    let is_receiver = |p: &TaggedPhrase| is_one_of(&p.shown, "to para pra pro ao à às aos por via");
    let has_receiver = pieces[at..].iter().any(is_receiver);
    // "send CARD-001 a message"
    let is_to_patient = is_before_id(pieces, at)
        && pieces
            .get(at + 2)
            .is_some_and(|p| is_one_of(&p.shown, "a an um uma some the his her their"));
    if is_to_patient {
        return false;
    }
    // "send the list of cardiology": nobody else is named
    let is_plain = is_one_of(
        &pieces[at].shown,
        "send manda mande mandar envia envie enviar",
    );
    pieces[at..].iter().any(is_here)
        || (is_plain && !has_receiver && !names_receiver(&pieces[at + 1..]))
        || shown.ends_with("-me")
        || shown.ends_with("-nos")
        || is_user(at.checked_add(1))
        || is_user(at.checked_sub(1))
}

/// Returns whether somebody stands before what is sent: "joe the list", "the boss the list".
fn names_receiver(pieces: &[TaggedPhrase]) -> bool {
    const ARTICLES: &str = "the a an all every my our o a os as um uma";
    let is_article = |p: &TaggedPhrase| is_one_of(&p.shown, ARTICLES);
    let has_article = pieces.first().is_some_and(is_article);
    let [receiver, object, ..] = &pieces[usize::from(has_article)..] else {
        return false;
    };
    let is_somebody = match receiver.tag {
        PhraseTag::Unknown | PhraseTag::Weak | PhraseTag::Vocabulary(WordRole::Pronoun) => true,
        _ => has_article && receiver.is_filler() || is_one_of(&receiver.shown, "him her"),
    };
    is_somebody && is_article(object)
}

/// Returns whether a fragment asks for patients: "repeat the list of cardiology patients".
fn has_request(pieces: &[TaggedPhrase]) -> bool {
    let is_asked_for = |p: &TaggedPhrase| {
        matches!(
            p.tag,
            PhraseTag::Clinic(..)
                | PhraseTag::Term(_)
                | PhraseTag::Id(..)
                | PhraseTag::Vocabulary(WordRole::Patients)
        )
    };
    pieces.iter().any(is_asked_for)
}

fn is_before_verb(pieces: &[TaggedPhrase], at: usize) -> bool {
    let mut rest = pieces[at + 1..].iter().filter(|p| !p.is_filler());
    rest.next().map(|p| &p.tag) == Some(&PhraseTag::Vocabulary(WordRole::Verb))
}

fn is_before_knowing(pieces: &[TaggedPhrase], at: usize) -> bool {
    let mut rest = pieces[at + 1..].iter().filter(|p| p.shown != "i");
    rest.next()
        .is_some_and(|p| is_one_of(&p.shown, "know see read look check saber ver ler"))
}

fn is_told_of_us(pieces: &[TaggedPhrase], at: usize) -> bool {
    let is_who = |p: &TaggedPhrase| {
        let role = |role| p.tag == PhraseTag::Vocabulary(role);
        role(WordRole::Who) || role(WordRole::Patients) || role(WordRole::Count)
    };
    at > 0 && pieces[at - 1].shown == "we" && pieces[..at].iter().any(is_who)
}

fn orders_by_id(pieces: &[TaggedPhrase]) -> bool {
    let is_order = |pair: &[TaggedPhrase]| {
        matches!(&*pair[0].shown, "by" | "por")
            && is_one_of(&pair[1].shown, "id code codigo código")
    };
    pieces.windows(2).any(is_order)
}

fn is_before_id(pieces: &[TaggedPhrase], at: usize) -> bool {
    matches!(pieces.get(at + 1).map(|p| &p.tag), Some(PhraseTag::Id(..)))
}

pub(super) fn is_term(piece: &TaggedPhrase) -> bool {
    matches!(piece.tag, PhraseTag::Term(_))
}

fn is_clinic(piece: &TaggedPhrase) -> bool {
    matches!(piece.tag, PhraseTag::Clinic(..))
}

/// Returns whether the word at `at` is `clinic` of any of them: `every clinic`.
fn is_every_clinic(pieces: &[TaggedPhrase], at: usize) -> bool {
    at > 0
        && is_one_of(&pieces[at].shown, "clinic clinica clínica")
        && is_one_of(
            &pieces[at - 1].shown,
            "every each any all whichever whatever cada toda qualquer",
        )
}

/// Returns whether the word at `at` is a single clinic that isn't named: `the clinic`, `dessa clínica`.
fn is_one_clinic(pieces: &[TaggedPhrase], at: usize) -> bool {
    const POINTERS: &str =
        "the that this our da na a dessa desta daquela nessa nesta essa esta nossa";
    at > 0
        && is_one_of(&pieces[at].shown, "clinic clinica clínica")
        && is_one_of(&pieces[at - 1].shown, POINTERS)
}

/// Returns whether the plural word for clinics at `at` stands beside the name of one.
fn names_clinics(pieces: &[TaggedPhrase], at: usize) -> bool {
    let is_of = |p: &&TaggedPhrase| {
        p.tag == PhraseTag::Vocabulary(WordRole::Of) || is_one_of(&p.shown, "for at in em")
    };
    let mut after = pieces[at + 1..].iter().skip_while(is_of);
    (at > 0 && is_clinic(&pieces[at - 1])) || after.next().is_some_and(is_clinic)
}

/// Returns whether the verb at `at` is the noun `list` of a clinic: after its name, or before `of`.
fn is_list_noun(pieces: &[TaggedPhrase], at: usize) -> bool {
    let is_of = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Of);
    is_one_of(&pieces[at].shown, "list lists lista listas listagem")
        && ((at > 0 && is_clinic(&pieces[at - 1])) || pieces.get(at + 1).is_some_and(is_of))
}

fn is_before_list(pieces: &[TaggedPhrase], at: usize) -> bool {
    let next = pieces.get(at + 1);
    next.is_some_and(|p| is_one_of(&p.shown, "list lists ids"))
}

/// Returns whether the word for a patient at `at` tells that something is asked of each: `per patient`.
fn is_distributive(pieces: &[TaggedPhrase], at: usize) -> bool {
    at > 0 && is_one_of(&pieces[at - 1].shown, "per by por") && !is_before_id(pieces, at)
}

/// Returns whether the words ask for data of patients found before: "the other medicines of that person".
fn points_at_patients(pieces: &[TaggedPhrase]) -> bool {
    const POINTERS: &str = "that those these this such said esse essa esses essas desse dessa desses dessas este esta estes \
         estas deste desta destes destas aquele aquela aqueles aquelas daqueles daquelas";
    use WordRole::{Medication, OnePatient, Patients, Record};
    let is_role = |p: &TaggedPhrase, roles: &[WordRole]| matches!(&p.tag, PhraseTag::Vocabulary(role) if roles.contains(role));
    let is_pointed = |pair: &[TaggedPhrase]| {
        is_one_of(&pair[0].shown, POINTERS) && is_role(&pair[1], &[Patients, OnePatient])
    };
    let asks_data = pieces.iter().any(|p| is_role(p, &[Record, Medication]));
    let is_object =
        |p: &TaggedPhrase| is_term(p) || is_clinic(p) || matches!(p.tag, PhraseTag::Id(..));
    asks_data && pieces.windows(2).any(is_pointed) && !pieces.iter().any(is_object)
}

/// Returns whether the word at `at` names what is asked for: "treatments of the patients with acne", but not
/// "patients in treatment of acne".
fn is_treatment_noun(pieces: &[TaggedPhrase], at: usize) -> bool {
    const TREATMENTS: &str = "treatment treatments therapy therapies therapeutic tratamento \
         tratamentos terapia terapias terapeutica terapêutica";
    let is_of = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Of);
    let leads = |p: &TaggedPhrase| {
        let role = |role| p.tag == PhraseTag::Vocabulary(role);
        (p.is_filler() && !is_one_of(&p.shown, "in em under sob fazem"))
            || role(WordRole::Verb)
            || role(WordRole::What)
            || role(WordRole::All)
    };
    is_one_of(&pieces[at].shown, TREATMENTS)
        && pieces[..at].iter().all(leads)
        && pieces.get(at + 1).is_some_and(is_of)
}

/// Returns whether the word at `at`, which may order something, is a noun: "my earlier mail", "the cardiology register".
/// A mail to somebody is sent.
fn is_noun(pieces: &[TaggedPhrase], at: usize) -> bool {
    const DETERMINERS: &str = "my this that the one earlier previous last";
    let before = at.checked_sub(1).map(|at| &pieces[at]);
    let is_sent = pieces[at..]
        .iter()
        .any(|p| is_one_of(&p.shown, "to para ao à"));
    let is_mail = is_one_of(&pieces[at].shown, "mail email e-mail");
    let is_register = pieces[at].shown == "register" && at + 1 == pieces.len();
    before.is_some_and(|p| {
        is_mail && !is_sent && is_one_of(&p.shown, DETERMINERS)
            || is_register && (is_clinic(p) || p.shown == "the")
    })
}

/// Returns whether the word at `at` follows a word for a session, which begins: "the clinic starts".
fn follows_session(pieces: &[TaggedPhrase], at: usize) -> bool {
    const SESSIONS: &str = "clinic shift round rounds meeting lecture class session";
    at > 0 && is_one_of(&pieces[at - 1].shown, SESSIONS)
}

/// Returns whether a word with this role is refused unless the words around it tell otherwise.
fn is_refusable(role: WordRole) -> bool {
    use WordRole::{Advice, Change, Combine, Filter, Repeat, Send};
    matches!(role, Change | Send | Repeat | Advice | Combine | Filter)
}

/// Reads the word at `at`, whose role is refused unless the words around it tell otherwise.
///
/// # Errors
/// The refusal of the word.
fn read_refusable(
    pieces: &[TaggedPhrase],
    at: usize,
    role: WordRole,
    fragment: &mut Fragment,
) -> Result<(), PlanRefusal> {
    let piece = &pieces[at];
    let has_id = pieces.iter().any(|p| matches!(p.tag, PhraseTag::Id(..)));
    match role {
        // "send me the list"
        WordRole::Send if is_to_user(pieces, at) => fragment.verb = true,
        WordRole::Repeat if has_request(pieces) => fragment.verb = true,
        WordRole::Change | WordRole::Send if is_noun(pieces, at) => {}
        WordRole::Change | WordRole::Send | WordRole::Repeat => {
            return Err(PlanRefusal::Change(piece.shown.clone()));
        }
        // "posso ver a lista"
        WordRole::Advice if piece.shown == "posso" && is_before_verb(pieces, at) => {}
        // "how many people do we treat for"
        WordRole::Advice if piece.shown == "treat" && is_told_of_us(pieces, at) => {
            fragment.cue = true;
        }
        // "what should I know from the chart"
        WordRole::Advice
            if is_one_of(&piece.shown, "should devo") && is_before_knowing(pieces, at) => {}
        // "before the clinic starts"
        WordRole::Advice
            if is_one_of(&piece.shown, "starts start") && follows_session(pieces, at) => {}
        // "Best, Ana"
        WordRole::Advice if piece.shown == "best" && pieces.len() == 1 => {}
        WordRole::Advice => return Err(PlanRefusal::Advice(piece.shown.clone())),
        // "overlap between losartan and amlodipine"
        WordRole::Combine if pieces.iter().any(is_term) => {
            (fragment.all, fragment.both) = (true, true);
        }
        WordRole::Combine => return Err(PlanRefusal::Join(piece.shown.clone())),
        // "how many mg of losartan does CARD-001 take"
        WordRole::Filter if has_id && is_one_of(&piece.shown, DOSE_UNITS) => {
            (fragment.medication, fragment.dose) = (true, true);
        }
        // As the clinics list them anyway: "sorted by id".
        WordRole::Filter
            if is_one_of(&piece.shown, "sort sorted") && orders_by_id(&pieces[at..]) => {}
        WordRole::Filter => return Err(PlanRefusal::Filter(piece.shown.clone())),
        _ => {}
    }
    Ok(())
}

/// Returns whether the word at `at`, such as `que`, asks what somebody takes.
fn asks_what(pieces: &[TaggedPhrase], at: usize) -> bool {
    let has_medicine =
        { pieces.iter() }.any(|p| matches!(&p.tag, PhraseTag::Term(t) if t.is_medicine));
    let leads = |p: &TaggedPhrase| p.is_filler() || p.tag == PhraseTag::Vocabulary(WordRole::Verb);
    // "e que estão a tomar aspirina": a relative pronoun
    let is_relative = at == 0
        && has_medicine
        && pieces.get(1).is_some_and(|p| {
            is_one_of(&p.shown, "está esta estão estao")
                || matches!(
                    p.tag,
                    PhraseTag::Vocabulary(WordRole::Taking | WordRole::Cue)
                )
        });
    !is_relative
        && (pieces[..at].iter().all(leads) || (at == 1 && matches!(&*pieces[0].shown, "o" | "com")))
}

/// Returns a fragment with the flags, clinics and ids of its phrases, without a topic.
///
/// # Errors
/// The refusal of a phrase that must not be planned.
pub(super) fn read_roles(
    pieces: &[TaggedPhrase],
    registry: &ClinicRegistry,
) -> Result<Fragment, PlanRefusal> {
    let mut fragment = Fragment::default();
    let has_id = pieces.iter().any(|p| matches!(p.tag, PhraseTag::Id(..)));
    let has_object = has_id || pieces.iter().any(|p| is_term(p) || is_clinic(p));
    let mut plural = false;
    for (at, piece) in pieces.iter().enumerate() {
        let word = || piece.shown.clone();
        let role = match &piece.tag {
            PhraseTag::Vocabulary(role) => *role,
            PhraseTag::Clinic(_, clinics) => {
                extend_unique(&mut fragment.clinics, clinics);
                continue;
            }
            PhraseTag::Id(clinic, id) => {
                fragment.ids.push((*clinic, id.clone()));
                continue;
            }
            _ => continue,
        };
        match role {
            WordRole::Patients => (fragment.patients, plural) = (true, true),
            // "cardiology list", "lista da neurologia"
            WordRole::Verb if is_list_noun(pieces, at) => {
                (fragment.verb, fragment.is_list) = (true, true);
            }
            // "patient list"
            WordRole::OnePatient if is_before_list(pieces, at) => {
                (fragment.patients, plural) = (true, true);
            }
            // "per patient, the drugs of …"
            WordRole::OnePatient if is_distributive(pieces, at) => {
                (fragment.patients, fragment.all) = (has_object, has_object);
            }
            // "quais os tratamentos de …"
            WordRole::Taking if is_treatment_noun(pieces, at) => fragment.medication = true,
            // "on file", "on our records"
            WordRole::Record if at > 0 && pieces[at - 1].shown == "on" => fragment.taking = false,
            // "everything on CARD-001"
            WordRole::Taking if piece.shown == "on" && is_before_id(pieces, at) => {}
            // "the dermatology and neurology clinics"
            WordRole::Clinics if names_clinics(pieces, at) => {}
            WordRole::Clinics => {
                fragment.clinic_words = true;
                let all: Vec<usize> = (0..registry.clinics().len()).collect();
                extend_unique(&mut fragment.clinics, &all);
            }
            role if is_refusable(role) => read_refusable(pieces, at, role, &mut fragment)?,
            // "list them all, every clinic"
            WordRole::Filler if is_every_clinic(pieces, at) => {
                fragment.clinic_words = true;
                fragment.clinics = (0..registry.clinics().len()).collect();
            }
            WordRole::Filler if is_one_clinic(pieces, at) => fragment.one_clinic = true,
            // "que remédios tomam …", "o que toma …", "how are … treated"
            WordRole::Filler if matches!(&*piece.shown, "que" | "q" | "oq" | "how" | "como") => {
                let asks = asks_what(pieces, at);
                fragment.what |= asks;
                fragment.verb |= asks;
            }
            WordRole::Rest => fragment.rest = Some(word()),
            role => set_flags(&mut fragment, role),
        }
    }
    read_positions(pieces, &mut fragment);
    // "cardiologia completa"
    let is_whole = |p: &TaggedPhrase| is_one_of(&p.shown, WHOLE);
    fragment.all |= !fragment.has_subject()
        && !fragment.clinics.is_empty()
        && !pieces.iter().any(is_term)
        && pieces.iter().any(is_whole);
    fragment.one_patient = fragment.patients && !plural && !fragment.all;
    fragment.record |= fragment.identity && !fragment.ids.is_empty();
    Ok(fragment)
}

/// Sets the flags that depend on where a word stands in the fragment.
fn read_positions(pieces: &[TaggedPhrase], fragment: &mut Fragment) {
    let is_both = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Both);
    let (term_at, both_at) = (
        pieces.iter().rposition(is_term),
        pieces.iter().rposition(is_both),
    );
    // "the records of those who have vitiligo"
    let position = |role| {
        let tag = PhraseTag::Vocabulary(role);
        pieces.iter().position(|p| p.tag == tag)
    };
    if let (Some(record), Some(who)) = (position(WordRole::Record), position(WordRole::Who)) {
        fragment.all |= record < who;
    }
    fragment.pronoun |= points_at_patients(pieces);
    fragment.both_last = term_at.is_some() && both_at > term_at;
    let first_words = pieces.iter().take_while(|p| !is_term(p)).take(2);
    let is_only = |p: &TaggedPhrase| is_one_of(&p.shown, "only just só apenas somente");
    // "in cardiology only"
    let ends_only = fragment.has_only_clinics() && pieces.last().is_some_and(is_only);
    fragment.only = { first_words }.any(is_only) || term_at.is_none() && ends_only;
    fragment.one_person = pieces.iter().any(|p| is_one_of(&p.shown, ONE_PERSON));
    let first = pieces.iter().find(|p| p.shown != "out");
    fragment.of = first.is_some_and(|p| {
        let is_among = is_one_of(&p.shown, "among amongst dentre entre");
        p.tag == PhraseTag::Vocabulary(WordRole::Of) || is_among
    });
}

/// Sets the flags of a word whose meaning doesn't depend on the words around it.
fn set_flags(fragment: &mut Fragment, role: WordRole) {
    match role {
        WordRole::Verb => fragment.verb = true,
        WordRole::What => (fragment.verb, fragment.what) = (true, true),
        WordRole::Who => fragment.who = true,
        WordRole::Cue => fragment.cue = true,
        WordRole::Count => fragment.count = true,
        WordRole::More => fragment.compare = true,
        WordRole::OnePatient => fragment.patients = true,
        WordRole::Record => fragment.record = true,
        WordRole::Medication => fragment.medication = true,
        WordRole::Dose => (fragment.medication, fragment.dose) = (true, true),
        WordRole::Taking => fragment.taking = true,
        WordRole::Pronoun => fragment.pronoun = true,
        WordRole::All => fragment.all = true,
        WordRole::Both => (fragment.all, fragment.both) = (true, true),
        WordRole::NameCue | WordRole::Identity => fragment.identity = true,
        _ => {}
    }
}

/// Refuses a fragment that seems to contain a person's name with [`PlanRefusal::ByName`]: a word
/// such as `named`, two unknown capitalised words, or one after a word such as `patient`. Otherwise
/// the name would be sent to clinics that have no such patient. `is_title_case` tells that all words
/// of the query are capitalised, so that capitals don't indicate a name.
pub(super) fn refuse_names(
    pieces: &[TaggedPhrase],
    is_title_case: bool,
) -> Result<(), PlanRefusal> {
    let name_like = |p: &TaggedPhrase| {
        matches!(p.tag, PhraseTag::Unknown | PhraseTag::Weak) && p.capital && !is_title_case
    };
    let pairs = || pieces.iter().zip(pieces.iter().skip(1));
    // "name all patients with acne"; "names of the medicines"
    let has = |role| pieces.iter().any(|p| p.tag == PhraseTag::Vocabulary(role));
    let of_medicines = has(WordRole::Medication);
    let cue = |(at, p): (usize, &TaggedPhrase)| {
        let is_verb = at == 0 && p.shown == "name";
        p.tag == PhraseTag::Vocabulary(WordRole::NameCue) && !is_verb && !of_medicines
    };
    let named = pieces.iter().enumerate().any(cue)
        || pairs().any(|(a, b)| {
            (a.tag == PhraseTag::Vocabulary(WordRole::OnePatient) || name_like(a)) && name_like(b)
        });
    if named {
        Err(PlanRefusal::ByName)
    } else {
        Ok(())
    }
}
