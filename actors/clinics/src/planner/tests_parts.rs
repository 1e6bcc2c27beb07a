//! Tests of the parts of a question: what joins, stands alone, gives a reason or narrows.

use super::tests::{check_refused_by, planned};
use crate::plan::samples::three_clinics;

fn check(rows: &[(&str, &str)]) {
    for (query, expect) in rows {
        assert_eq!(planned(three_clinics(), query), *expect, "{query}");
    }
}

fn check_refused(rows: &[(&str, &str)]) {
    for (query, says) in rows {
        check_refused_by(three_clinics(), query, says);
    }
}

/// Goal: a condition and a medicine that are joined are one search; two conditions, and a request with a
/// verb, stay two. Method: rows in both languages, with twins.
#[test]
fn condition_and_medicine_join() {
    check(&[
        ("hypertension + losartan", "a:query(hypertension losartan)"),
        ("hypertension & losartan", "a:query(hypertension losartan)"),
        ("psoríase e adalimumab", "b:query(psoríase adalimumab)"),
        (
            "migraine and propranolol - who has both?",
            "c:query(migraine propranolol)",
        ),
        (
            "who takes bisoprolol plus furosemide in cardiology",
            "a:query(bisoprolol furosemide)",
        ),
        ("acne + hypertension", "b:query(acne) a:query(hypertension)"),
        (
            "psoriasis vs acne: which has more patients",
            "b:query(psoriasis) b:query(acne)",
        ),
        (
            "show heart failure patients; only those on carvedilol",
            "a:query(heart failure carvedilol)",
        ),
    ]);
}

/// Goal: a clinic's list isn't narrowed by a topic of another clinic; a place before a topic still is one.
/// Method: rows in both languages, with twins.
#[test]
fn lists_stand_alone() {
    check(&[
        (
            "list dermatology, and also who has migraine",
            "b:list_patients c:query(migraine)",
        ),
        (
            "lista da cardiologia e também quem tem psoríase na dermatologia",
            "a:list_patients b:query(psoríase)",
        ),
        (
            "cardiology list and neurology patients with migraine",
            "a:list_patients c:query(migraine)",
        ),
        (
            "show dermatology and migraine patients",
            "b:list_patients c:query(migraine)",
        ),
        ("check dermatology: who has psoriasis", "b:query(psoriasis)"),
        (
            "a cardiologia inteira, e a neurologia também",
            "a:list_patients c:list_patients",
        ),
        ("dermatology, all of it", "b:list_patients"),
        ("cardiologia completa", "a:list_patients"),
        (
            "patient ids of the dermatology and neurology clinics",
            "b:list_patients c:list_patients",
        ),
        (
            "list them all, every clinic",
            "a:list_patients b:list_patients c:list_patients",
        ),
        (
            "quem não toma losartan na cardiologia",
            "a:query(losartan) a:list_patients-1",
        ),
        (
            "who has acne, check every clinic",
            "a:query(acne) b:query(acne) c:query(acne)",
        ),
    ]);
    check_refused(&[
        ("dermatology", "Say which you want"),
        ("quem não toma losartan", "leave out"),
    ]);
}

/// Goal: the reason before a question isn't searched, and doesn't refuse it; a word that narrows what is
/// asked still does. Method: statements before a question, alone, and about the medicine itself.
#[test]
fn reasons_precede_questions() {
    let everywhere = "a:query(furosemide) b:query(furosemide) c:query(furosemide)";
    check(&[
        (
            "we've had a recall on a batch of furosemide, who's getting it?",
            everywhere,
        ),
        (
            "There is a shortage of furosemide. Which patients are affected?",
            everywhere,
        ),
        (
            "preciso da lista da cardiologia para a auditoria",
            "a:list_patients",
        ),
        (
            "doing drug recon, need dose and freq for everything CARD-001 takes",
            "a:check_medications(CARD-001)",
        ),
        (
            "who is in cardiology? I'm on call tonight",
            "a:list_patients",
        ),
    ]);
    check_refused(&[
        ("there is a shortage of furosemide", "shortage"),
        ("who takes the recalled furosemide batch", "recalled"),
        (
            "there is a shortage of furosemide, who has acne",
            "shortage",
        ),
    ]);
}

/// Goal: no filter is dropped because of where it stands, and none is searched as text. Method: times and
/// numbers after a separator; routes, rhythms and forms of medicines; whether a medicine was stopped.
#[test]
fn filters_are_kept() {
    check_refused(&[
        ("doentes com enxaqueca depois de 2022", "depois"),
        ("acne patients, 2021", "2021"),
        ("who stopped warfarin", "stopped"),
        ("quem parou a varfarina", "parou"),
        ("which patients use an inhaler", "inhaler"),
        ("quem tem a pele seca", "seca"),
        ("can you take aspirin with warfarin?", "physician"),
        ("what is losartan used for", "physician"),
    ]);
    check(&[
        (
            "cardiology patients on oral methotrexate",
            "a:query(methotrexate)",
        ),
        ("daily aspirin in cardiology", "a:query(aspirin)"),
        (
            "lista da cardiologia, depois a da neurologia",
            "a:list_patients c:list_patients",
        ),
        (
            "who uses hydrocortisone cream in dermatology",
            "b:query(hydrocortisone)",
        ),
    ]);
}

/// Goal: what is asked of each patient is found wherever the words for it stand. Method: rows.
#[test]
fn each_patients_data() {
    let of_psoriasis = "b:query(psoriasis) b:check_medications*1";
    check(&[
        (
            "drugs used by people with psoriasis, per patient",
            of_psoriasis,
        ),
        (
            "per patient, the drugs taken by those with psoriasis",
            of_psoriasis,
        ),
        ("treatments of the patients with psoriasis", of_psoriasis),
        ("patients in treatment of psoriasis", "b:query(psoriasis)"),
        (
            "os prontuários de quem tem psoríase",
            "b:query(psoríase) b:get_patient*1",
        ),
        (
            "a medicação dos hipertensos",
            "a:query(hypertension) a:check_medications*1",
        ),
        ("NEUR-004: medication?", "c:check_medications(NEUR-004)"),
        (
            "CARD-001, NEUR-004: medications",
            "a:check_medications(CARD-001) c:check_medications(NEUR-004)",
        ),
    ]);
}

/// Goal: what the asker takes back isn't asked, and nothing else is lost. Method: corrections of each kind, and
/// questions with the same words that correct nothing.
#[test]
fn corrections_of_the_asker() {
    check(&[
        (
            "List dermatology, no wait, cardiology patients",
            "a:list_patients",
        ),
        (
            "Chart for CARD-003. Hmm, scratch that, CARD-013.",
            "a:get_patient(CARD-013)",
        ),
        ("abre DERM-011, não, DERM-012", "b:get_patient(DERM-012)"),
        (
            "Who has acne, sorry, I meant psoriasis",
            "b:query(psoriasis)",
        ),
        ("meds? CARD-024", "a:check_medications(CARD-024)"),
        (
            "List the acne patients. Scratch that, I meant psoriasis.",
            "b:query(psoriasis)",
        ),
        (
            "CARD-003 record please. no wait, CARD-013",
            "a:get_patient(CARD-013)",
        ),
        (
            "CARD-001's medications, I mean CARD-002",
            "a:check_medications(CARD-002)",
        ),
    ]);
    let both = |query: &str, parts: [&str; 2]| {
        let plan = planned(three_clinics(), query);
        assert!(
            parts.iter().all(|part| plan.contains(part)),
            "{query}: {plan}"
        );
    };
    both(
        "patients with psoriasis, I mean those with acne",
        ["psoriasis", "acne"],
    );
    both(
        "acne patients in dermatology? No? In cardiology?",
        ["a:", "b:"],
    );
}

/// Goal: work is no complaint of the asker's own. Method: sentences of both kinds.
#[test]
fn own_complaints_are_advice() {
    check_refused(&[
        ("I'm having chest pain", "physician's judgement"),
        ("I have itching", "physician's judgement"),
        ("I'm taking losartan, is that ok", "physician's judgement"),
        ("estou com dor de cabeça", "physician's judgement"),
    ]);
    check(&[(
        "I'm auditing psoriasis. Who has psoriasis?",
        "b:query(psoriasis)",
    )]);
}

/// Goal: what is told beside the question isn't asked, and nothing that narrows it is lost. Method: questions with
/// asides before and after, and twins whose second part narrows or asks for something else.
#[test]
fn asides_are_left_out() {
    check(&[
        (
            "who has psoriasis? doing the handouts and I only want to print as many as I need",
            "b:query(psoriasis)",
        ),
        (
            "acne pts pls, because the nurse rang twice",
            "b:query(acne)",
        ),
        (
            "alguém com acne? minha colega da enfermagem quer se planejar",
            "b:query(acne)",
        ),
    ]);
    check_refused(&[
        ("Who has psoriasis? Only those over 60.", "can't select"),
        ("Who has psoriasis, aged 20 to 40?", "can't select"),
        ("Who has psoriasis? Show me only women.", "can't select"),
        (
            "Who takes warfarin? I need women in cardiology.",
            "can't select",
        ),
        ("Who has psoriasis? I need the urology list too.", "urology"),
        ("Who has psoriasis, with glorbix?", "glorbix"),
        (
            "Who has psoriasis? I want you to delete CARD-003.",
            "only be read",
        ),
        ("Who has psoriasis? Stop her methotrexate.", "judgement"),
        ("Who has psoriasis? Delete those records.", "only be read"),
        ("Who has glorbix? I'm in a hurry.", "glorbix"),
    ]);
}

/// Goal: all places that are named are those of one search. Method: the places behind and before what is
/// searched.
#[test]
fn places_are_listed() {
    check(&[
        (
            "aspirin in cardiology and neurology, list everybody on it",
            "a:query(aspirin) c:query(aspirin)",
        ),
        (
            "Which patients in dermatology or neurology are on adalimumab?",
            "b:query(adalimumab) c:query(adalimumab)",
        ),
    ]);
}

/// Goal: a clinic behind a topic is its place, and a question for anybody behind both asks of them. Method: rows with
/// several topics, and twins where the clinic stands before.
#[test]
fn places_stand_behind() {
    check(&[
        (
            "melanoma (derm), migraine (clinic c), angina (cardio): who?",
            "b:query(melanoma) c:query(migraine) a:query(angina)",
        ),
        (
            "dermatology: acne; neurology: migraine",
            "b:query(acne) c:query(migraine)",
        ),
        (
            "Huntington's disease, neurology: anyone?",
            "c:query(huntington's)",
        ),
        ("aspirin, neurology: anybody", "c:query(aspirin)"),
        ("acne, neurology patients", "b:query(acne) c:list_patients"),
        (
            "psoríase + adalimumab na dermatologia, quais pacientes",
            "b:query(psoríase adalimumab)",
        ),
    ]);
}

/// Goal: a single clinic that isn't named is asked for. Method: rows in both languages, with twins that name it.
#[test]
fn unnamed_clinics_are_asked_for() {
    for query in [
        "List the patients of the clinic.",
        "Mostre os doentes da clínica.",
        "How many patients does that clinic have?",
    ] {
        check_refused(&[(query, "Say which you want")]);
    }
    check(&[
        (
            "Dermatology. List the patients of the clinic.",
            "b:list_patients",
        ),
        ("Who in that clinic has acne?", "b:query(acne)"),
        (
            "list the patients of every clinic",
            "a:list_patients b:list_patients c:list_patients",
        ),
    ]);
}

/// Goal: a name behind a disease is searched with it, another name isn't; short forms of chats are read; a salt is no
/// part of what is searched. Method: rows.
#[test]
fn names_of_diseases_and_short_forms() {
    check(&[
        (
            "paralisia de Bell na cardiologia",
            "a:query(paralisia de bell)",
        ),
        ("doença de Chagas na cardiologia", "a:query(chagas)"),
        ("oq o CARD-018 toma", "a:check_medications(CARD-018)"),
        (
            "pega os pacientes com acne e me diz o q cada um usa",
            "b:query(acne) b:check_medications*1",
        ),
        ("qais pacientes têm acne", "b:query(acne)"),
        (
            "qual a dose do bisoprolol no CARD-004",
            "a:check_medications(CARD-004)",
        ),
        ("Peço a ficha do DERM-020", "b:get_patient(DERM-020)"),
        ("losartan potassium in cardiology", "a:query(losartan)"),
    ]);
    check_refused(&[(
        "pacientes com dor de Maria",
        "I don't know the word \"maria\"",
    )]);
}
