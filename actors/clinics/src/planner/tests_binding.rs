//! Tests of what must not be lost from a question: requests in asides, exclusions, years, and identities.

use std::sync::Arc;

use super::Planner;
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

fn notes(query: &str) -> String {
    let plan = Planner::new(Arc::new(three_clinics())).plan(query);
    plan.map(|plan| plan.reply.notes.concat())
        .unwrap_or_default()
}

/// Goal: a statement about something else is left out even if a word in it would be refused in a question, and the
/// answer tells so. Method: statements of both languages before and after a question, and their notes.
#[test]
fn statements_are_left_out() {
    for query in [
        "The phone has been ringing all morning and the printer is broken. Who has acne?",
        "Hope your Monday is better than mine! Who has acne?",
        "I've been on hold for forty minutes. Who has acne?",
        "Honestly, the canteen should be closed down. Who has acne?",
        "O telefone não para, o elevador parou. Quem tem acne?",
        "Who has acne? I'm drafting a protocol.",
        "Who has acne? É para eu conferir com a caixa da farmácia.",
        "Who has acne? The dental nurse rang about it.",
        "Subject: meeting on Thursday. Who has acne? Kind regards, Ana",
        "Just got off the phone with radiology. Who has acne?",
        "I need to find out who has acne so I can warn them",
    ] {
        assert_eq!(planned(three_clinics(), query), "b:query(acne)", "{query}");
        assert!(notes(query).contains("did not use"), "{query}");
    }
    let told = notes("Honestly, the canteen should be closed. Who has acne?");
    assert!(
        told.contains("a remark") && !told.contains("should"),
        "{told}"
    );
}

/// Goal: an aside that asks for identities, a change or sending refuses the question, however it is put. Method:
/// statements and requests of both languages beside a question.
#[test]
fn asides_bind_requests() {
    check_refused(&[
        (
            "Who has acne? My boss wants the phone numbers.",
            "Identities",
        ),
        (
            "Who has acne? The nurse has asked for the addresses.",
            "Identities",
        ),
        (
            "Quem tem acne? A minha chefe precisa das moradas.",
            "Identities",
        ),
        (
            "Lovely weather! Who has acne? Oh and tell me their names.",
            "never by name",
        ),
        (
            "Who has acne? Sorry, I also need the names.",
            "never by name",
        ),
        (
            "Who has acne? My colleague needs their mobile numbers.",
            "Identities",
        ),
        (
            "Quem tem acne? Diz-me o telemóvel de cada um.",
            "Identities",
        ),
        (
            "Who has acne? The printer is broken, please update the list.",
            "only be read",
        ),
        (
            "Who has acne? I'd like you to email it to Joe.",
            "only be read",
        ),
        (
            "Who has acne? I was told you could forward it to Joe.",
            "only be read",
        ),
        (
            "Hope you can delete CARD-001. Who has acne?",
            "only be read",
        ),
        (
            "CARD-001 called in. Mark her record as reviewed.",
            "only be read",
        ),
        ("Who has acne? Should I give isotretinoin?", "judgement"),
        ("Who has acne? She should stop, she is tired.", "judgement"),
        (
            "Who has acne? Kind regards. Also delete CARD-001",
            "only be read",
        ),
        (
            "Who has acne? I need it so I can email them",
            "only be read",
        ),
        ("Who has acne? We forward it to Joe.", "only be read"),
    ]);
}

/// Goal: an aside that narrows the question isn't left out. Method: ages, sexes, years, times and exclusions told as
/// statements.
#[test]
fn asides_bind_filters() {
    check_refused(&[
        (
            "Who has acne? I am only interested in women.",
            "can't select",
        ),
        ("Who has acne? The elderly are excluded.", "can't select"),
        (
            "Who has acne? The study is about men over 60.",
            "can't select",
        ),
        (
            "Who has acne? I need the patients since 2020.",
            "can't select",
        ),
        ("Who has acne? The study covers 2021.", "can't select"),
        ("Quem tem acne? Tira os de 2020.", "can't select"),
        ("Subject: women only. Who has acne?", "can't select"),
        ("Who has acne so we can see those over 60", "can't select"),
        ("patients seen before 2020 in cardiology", "can't select"),
        ("quem entrou na cardiologia em 2023?", "can't select"),
        ("who was seen today in cardiology?", "can't select"),
        (
            "who joined the neurology clinic last month?",
            "can't select",
        ),
        ("list cardiology, last month", "can't select"),
        ("how many with acne came today?", "can't select"),
        ("os doentes mais velhos da neurologia", "can't select"),
        (
            "which cardiology patients take more than one medicine?",
            "can't select",
        ),
        ("patients with the, you know, the thing", "Say which"),
        ("what about the other ones?", "leave out"),
    ]);
    check(&[
        (
            "how many patients with acne do we have today?",
            "b:query(acne)",
        ),
        (
            "Need the skin clinic census before the 9 o'clock meeting",
            "b:list_patients",
        ),
    ]);
}

/// Goal: a request for data is never left out as an aside. Method: a later sentence that asks for the medications of
/// those who are found, and one that isn't understood.
#[test]
fn requests_are_no_asides() {
    check(&[
        (
            "Who has psoriasis? Show me that person's medication.",
            "b:query(psoriasis) b:check_medications*1",
        ),
        (
            "Find the patients with psoriasis, then get the medications of each of those patients.",
            "b:query(psoriasis) b:check_medications*1",
        ),
    ]);
    check_refused(&[(
        "neurology, anything prescribed as needed (prn) – which pts",
        "",
    )]);
}

/// Goal: a clinic or condition that is left out is left out wherever it stands, and of every alternative. Method: rows of
/// both languages; the first clinic lists neither medicine.
#[test]
fn exclusions_hold_everywhere() {
    let elsewhere = "b:query(aspirin) c:query(aspirin)";
    check(&[
        ("Who takes aspirin, but not in cardiology?", elsewhere),
        ("Who takes aspirin? Not cardiology.", elsewhere),
        ("Who takes aspirin? Leave out cardiology.", elsewhere),
        ("Who takes aspirin? Cardiology is excluded.", elsewhere),
        ("Not cardiology: who takes aspirin?", elsewhere),
        ("Forget about cardiology, who takes aspirin?", elsewhere),
        ("who takes aspirin outside cardiology", elsewhere),
        ("aspirin anywhere but cardiology", elsewhere),
        ("quem toma aspirin fora da cardiologia", elsewhere),
        ("Tirando a cardiologia, quem toma aspirin?", elsewhere),
        (
            "everyone except dermatology, please list",
            "a:list_patients c:list_patients",
        ),
        (
            "todos os doentes menos os da dermatologia",
            "a:list_patients c:list_patients",
        ),
        (
            "aspirin in dermatology, not neurology, everyone who takes it",
            "b:query(aspirin)",
        ),
        (
            "pacientes com psoríase menos os com acne",
            "b:query(acne) b:query(psoríase)-1",
        ),
        (
            "patients with acne or psoriasis but not on doxycycline",
            "b:query(doxycycline) b:query(acne)-1 b:query(psoriasis)-1",
        ),
    ]);
    check_refused(&[
        ("Forget cardiology. Who has hypertension?", "leave out"),
        (
            "Who takes aspirin? Who has acne? Not cardiology.",
            "leave out",
        ),
    ]);
}

/// Goal: an identity alone is refused also of one patient, and the remedy is told; words that only look like one, and
/// records that are asked for, are planned. Method: rows with twins.
#[test]
fn identity_alone_is_refused() {
    let says = "Ask for the record of CARD-003, and state the purpose";
    check_refused(&[
        ("What is the name of patient CARD-003?", says),
        ("qual o CPF do CARD-003?", says),
        ("telemóvel do CARD-003", says),
        ("the mobile of CARD-003", says),
        ("where does CARD-003 live?", says),
        ("what's CARD-003 called", says),
        ("personal details of CARD-003", says),
    ]);
    let record = "a:get_patient(CARD-003)";
    check(&[
        ("record of the patient named CARD-003", record),
        ("what is the name of CARD-003's disease", record),
        ("CARD-003 called in, show the record", record),
        ("CARD-003 is mobile again, show the record", record),
        (
            "tudo o que CARD-003 toma, sem nome nem CPF",
            "a:check_medications(CARD-003)",
        ),
        ("list cardiology, no names", "a:list_patients"),
    ]);
}

/// Goal: the question who is a patient of two clinics is refused; lists of both are planned. Method: rows.
#[test]
fn clinics_are_never_joined() {
    check_refused(&[
        (
            "Which cardiology patients are also patients of dermatology?",
            "never joined",
        ),
        (
            "Quais pacientes estão ao mesmo tempo na neurologia e na cardiologia?",
            "never joined",
        ),
        (
            "which patients attend both cardiology and dermatology?",
            "never joined",
        ),
        (
            "Is there anyone seen in both dermatology and cardiology?",
            "never joined",
        ),
    ]);
    check(&[
        (
            "list patients of cardiology and also of dermatology",
            "a:list_patients b:list_patients",
        ),
        (
            "patients in both cardiology and neurology",
            "a:list_patients c:list_patients",
        ),
        (
            "who has psoriasis and also takes methotrexate?",
            "b:query(psoriasis methotrexate)",
        ),
    ]);
}

/// Goal: places, medicines and data belong to the search that they stand beside, also behind a comma. Method: rows.
#[test]
fn parts_behind_commas() {
    let everywhere = "a:query(aspirin) b:query(aspirin) c:query(aspirin)";
    check(&[
        ("Which patients, in any clinic, take aspirin?", everywhere),
        (
            "Which patients, in whichever clinic, take aspirin?",
            everywhere,
        ),
        (
            "aspirin please - cardiology plus neurology, everyone taking it",
            "a:query(aspirin) c:query(aspirin)",
        ),
        (
            "Who takes aspirin, both in heart and in neurology?",
            "a:query(aspirin) c:query(aspirin)",
        ),
        (
            "psoriasis, on methotrexate: which ids?",
            "b:query(psoriasis methotrexate)",
        ),
        (
            "Psoriasis AND taking methotrexate, anybody?",
            "b:query(psoriasis methotrexate)",
        ),
        (
            "dos doentes que têm psoríase e que estão a tomar methotrexate",
            "b:query(psoríase methotrexate)",
        ),
        (
            "drugs and doses of those who have psoriasis",
            "b:query(psoriasis) b:check_medications*1",
        ),
        (
            "which cardiology patients take aspirin? any aspirin",
            "a:query(aspirin)",
        ),
        (
            "Qual das clínicas tem menos doentes, a cardiologia ou a neurologia?",
            "a:list_patients c:list_patients",
        ),
        (
            "Are there as many eczema patients as acne patients?",
            "b:query(eczema) c:query(eczema) b:query(acne)",
        ),
        (
            "some form of psoriasis in dermatology",
            "b:query(psoriasis)",
        ),
    ]);
}

/// Goal: a route stands for the medicines that are given by it, and nobody else is listed; what nobody named isn't
/// searched. Method: rows.
#[test]
fn what_is_searched_is_named() {
    let intravenous = "a:query(intravenous) b:query(intravenous) c:query(intravenous)";
    check(&[
        (
            "infusion suite here, which patients get something intravenous?",
            intravenous,
        ),
        (
            "Which patients are on a medicine given intravenously?",
            intravenous,
        ),
        (
            "Losartan recall. All patients taking it.",
            "a:query(losartan) b:query(losartan) c:query(losartan)",
        ),
        (
            "dos pacientes com psoríase, tira os que usam methotrexate e me mostra o resto",
            "b:query(methotrexate) b:query(psoríase)-1",
        ),
        (
            "all psoriasis patients, methotrexate aside",
            "b:query(methotrexate) b:query(psoriasis)-1",
        ),
        (
            "Não percebo nada deste programa. Quem tem acne?",
            "b:query(acne)",
        ),
    ]);
    check_refused(&[
        ("All patients taking it.", "Say which"),
        ("3am, brain gone. who takes losartan", "Say which"),
        ("put the acne list in one mail to Joe", "only be read"),
        ("how much losartan is too much for CARD-001", "judgement"),
        ("Who is the doctor of CARD-001?", "doctor"),
    ]);
}

/// Goal: an id that is spelled out is read, and a misspelt medicine isn't quoted, because the verifier would take it for
/// an unlisted one. Method: plans and notes.
#[test]
fn spellings() {
    check(&[
        (
            "open record card dash zero two two",
            "a:get_patient(CARD-022)",
        ),
        ("ficha card traço zero dois dois", "a:get_patient(CARD-022)"),
    ]);
    for (query, wrong) in [
        ("propanolol users", "propanolol"),
        ("who is on metropolol", "metropolol"),
    ] {
        let notes = notes(query);
        assert!(
            notes.contains("I read a word as") && !notes.contains(wrong),
            "{notes}"
        );
    }
}

/// Goal: whether something is fine for a patient is refused, and a courtesy behind a request isn't. Method: rows in
/// both languages, with twins.
#[test]
fn permissions_are_refused() {
    check_refused(&[
        (
            "DERM-018 is on isotretinoin and wants a glass of wine, is that okay?",
            "judgement",
        ),
        (
            "DERM-018 is on isotretinoin. Is that ok with wine?",
            "judgement",
        ),
        (
            "O CARD-002 toma varfarina e quer viajar, isso faz mal?",
            "judgement",
        ),
    ]);
    check(&[
        (
            "I need the record of CARD-001, is that ok?",
            "a:get_patient(CARD-001)",
        ),
        ("DERM-018, is that ok?", "b:get_patient(DERM-018)"),
    ]);
}

/// Goal: a number that identifies a person is refused whatever it is called, a message to a patient too; numbers of
/// medicines and how often they are taken are shown. Method: rows in both languages, with twins.
#[test]
fn numbers_and_messages() {
    check_refused(&[
        (
            "What's the social security number of DERM-002?",
            "by themselves",
        ),
        ("o número do seguro do DERM-002", "by themselves"),
        ("qual o nº de beneficiário do CARD-001", "by themselves"),
        ("name of patient CARD-004", "by themselves"),
        ("send CARD-033 the bill", "only be read"),
        ("Send CARD-033 a text message.", "only be read"),
    ]);
    check(&[
        ("send CARD-033's record", "a:get_patient(CARD-033)"),
        ("name CARD-001's condition", "a:get_patient(CARD-001)"),
        (
            "What is CARD-009 being treated for?",
            "a:get_patient(CARD-009)",
        ),
        (
            "Por que motivo é seguido o CARD-011?",
            "a:get_patient(CARD-011)",
        ),
        (
            "My number is CARD-033. Which medicines?",
            "a:get_patient(CARD-033) a:check_medications(CARD-033)",
        ),
        (
            "what's the number of tablets CARD-001 takes",
            "a:check_medications(CARD-001)",
        ),
        (
            "De quantas em quantas semanas faz o DERM-019 o dupilumab?",
            "b:check_medications(DERM-019)",
        ),
    ]);
    check_refused(&[(
        "did CARD-001 take losartan every day last month",
        "can't select",
    )]);
}

/// Goal: a negation behind a phrase takes it back for the next one of its kind; where it may leave out, it is asked;
/// nothing is searched without itself. Method: rows with twins.
#[test]
fn negations_behind() {
    check(&[
        ("Pacientes com acne não, psoríase", "b:query(psoríase)"),
        (
            "pacientes com acne... não, desculpa, acne não, psoríase",
            "b:query(psoríase)",
        ),
    ]);
    check_refused(&[
        ("patients with psoriasis, acne no, eczema yes", "leave out"),
        ("eczema, acne não, psoríase", "leave out"),
        (
            "O representante não me larga por causa do acne. Quem tem acne?",
            "leave out",
        ),
    ]);
}

/// Goal: a disease of somebody of the asker's is left out; one of patients isn't. Method: rows in both languages.
#[test]
fn diseases_of_outsiders_are_left_out() {
    check(&[
        (
            "My neighbour had acne last winter and it made me think. Who has psoriasis?",
            "b:query(psoriasis)",
        ),
        (
            "Minha avó teve acne e sofreu bastante, coitada. Quem tem psoríase?",
            "b:query(psoríase)",
        ),
        (
            "My patient had acne. Who has psoriasis?",
            "b:query(acne) b:query(psoriasis)",
        ),
    ]);
}

/// Goal: if nobody has a further medical word beside a medicine or condition, the answer asks instead of telling that
/// nobody matches. Method: questions with and without such a word.
#[test]
fn unlisted_words_are_asked_about() {
    for (query, asks) in [
        ("thyroid bloods are due for the amiodarone people", true),
        ("who takes retinal isotretinoin", true),
        ("who takes isotretinoin", false),
        ("psoriasis patients on adalimumab", false),
        ("any endocarditis patients?", false),
    ] {
        let plan = Planner::new(Arc::new(three_clinics())).plan(query);
        let told = plan.ok().and_then(|plan| plan.reply.if_none);
        let is_asked = told.is_some_and(|told| told.contains("Ask again without it"));
        assert_eq!(is_asked, asks, "{query}");
    }
}

/// Goal: every clinic behind "not in" is left out, what is left out is left out of every alternative, and the place behind
/// a negated condition holds. Method: rows with twins.
#[test]
fn exclusions_reach_every_part() {
    check(&[
        (
            "who takes aspirin, not in cardiology or dermatology",
            "c:query(aspirin)",
        ),
        (
            "who takes aspirin, not in cardiology but in dermatology",
            "b:query(aspirin)",
        ),
        (
            "skip the cardiology list and go to dermatology",
            "b:list_patients",
        ),
        (
            "aspirin or warfarin patients, but not in cardiology",
            "b:query(aspirin) c:query(aspirin) b:query(warfarin) c:query(warfarin)",
        ),
        (
            "aspirin, losartan or warfarin patients, but not in cardiology or neurology",
            "b:query(aspirin) b:query(losartan) b:query(warfarin)",
        ),
        (
            "Who takes aspirin or warfarin? Leave out cardiology and dermatology.",
            "c:query(aspirin) c:query(warfarin)",
        ),
        (
            "Forget about acne. Who has psoriasis or eczema?",
            "b:query(acne) b:query(psoriasis)-1 b:query(eczema)-1 c:query(acne) c:query(eczema)-4",
        ),
        (
            "patients not on aspirin in cardiology",
            "a:query(aspirin) a:list_patients-1",
        ),
        (
            "cardiology patients not on aspirin",
            "a:query(aspirin) a:list_patients-1",
        ),
        ("In cardiology only. Who has acne?", "a:query(acne)"),
        ("In dermatology only. Who has acne?", "b:query(acne)"),
    ]);
    check_refused(&[(
        "cardiology patients not on aspirin in neurology",
        "leave out",
    )]);
}

/// Goal: a verb that denies what follows isn't read as a positive one. Method: rows in both languages, with twins.
#[test]
fn denying_verbs_are_refused() {
    check_refused(&[
        ("who can't take aspirin", "can't select"),
        ("who won't take aspirin", "can't select"),
        ("who didn't take aspirin", "leave out"),
        ("who isnt on aspirin", "leave out"),
        ("who avoids aspirin", "can't select"),
        ("who lacks aspirin", "can't select"),
        ("patients who deny taking aspirin", "can't select"),
        ("who hates aspirin", "hates"),
        ("quem jamais tomou aspirina", "leave out"),
        ("quem evita aspirina", "can't select"),
        ("quem deixou de tomar aspirina", "can't select"),
    ]);
    check(&[
        (
            "who takes aspirin in cardiology? I can't find the list",
            "a:query(aspirin)",
        ),
        ("who developed psoriasis", "b:query(psoriasis)"),
        (
            "O colega deixou a folha ilegível. Quem tem acne?",
            "b:query(acne)",
        ),
    ]);
}

/// Goal: advice behind a greeting, orders about medicines and what is to be sent are refused. Method: rows with twins.
#[test]
fn orders_are_refused() {
    check_refused(&[
        ("Hi should we double it? Who has acne", "judgement"),
        (
            "Hi there doc should we double it? Who has acne",
            "judgement",
        ),
        ("Hi double it? Who has acne", "judgement"),
        ("give aspirin to CARD-001", "only be read"),
        ("please hold warfarin for CARD-001", "only be read"),
        ("give aspirin to all acne patients", "only be read"),
        (
            "Who has acne? My boss wants it emailed to the insurer.",
            "only be read",
        ),
        ("Who has acne? Get it exported.", "only be read"),
        (
            "Quem tem acne? A chefe quer isso enviado ao seguro.",
            "only be read",
        ),
        ("send joe the list of acne patients", "only be read"),
        ("send the boss the list of acne patients", "only be read"),
    ]);
    let medications = "a:check_medications(CARD-001)";
    check(&[
        ("Hi there, hope all is well. Who has acne?", "b:query(acne)"),
        ("give me the aspirin dose of CARD-001", medications),
        ("did we give aspirin to CARD-001", medications),
        ("hold on, warfarin for CARD-001: what dose?", medications),
        (
            "Who has acne? The nurse said nothing was forwarded.",
            "b:query(acne)",
        ),
        ("get everyone registered in cardiology", "a:list_patients"),
        ("send me the list of acne patients", "b:query(acne)"),
        ("send over the list of acne patients", "b:query(acne)"),
    ]);
}

/// Goal: identities that are asked for by two negations, or by other words, are refused, and so is a number of medicines.
/// Method: rows with twins.
#[test]
fn identities_and_numbers_in_other_words() {
    check_refused(&[
        (
            "Who has acne? Don't forget their phone numbers.",
            "Identities",
        ),
        ("acne patients, not without names", "leave out"),
        ("acne patients with e-mail", "only be read"),
        ("acne patients and their zip codes", "Identities"),
        ("initials of the acne patients", "Identities"),
        (
            "Who has acne? And their social security numbers.",
            "Identities",
        ),
        ("which cardiology patients take two drugs", "can't select"),
        (
            "quais pacientes da cardiologia tomam dois remédios",
            "can't select",
        ),
    ]);
    check(&[
        ("acne patients, without names", "b:query(acne)"),
        (
            "all cardiology patients, without exception",
            "a:list_patients",
        ),
        (
            "CARD-001 takes two drugs, which?",
            "a:check_medications(CARD-001)",
        ),
    ]);
}

/// Goal: what stands in a list behind a negation is left out to its end, and orders, identities and numbers are refused in
/// the further words that they have. Method: rows with twins.
#[test]
fn further_wordings() {
    check(&[
        (
            "acne patients not on aspirin, warfarin or losartan",
            "b:query(aspirin) b:query(warfarin) b:query(losartan) b:query(acne)-1-2-3",
        ),
        (
            "patients without hypertension or psoriasis in cardiology",
            "a:query(hypertension) a:query(psoriasis) a:list_patients-1-2",
        ),
        (
            "CARD-001: give the aspirin dose",
            "a:check_medications(CARD-001)",
        ),
        ("Sorry, feel free to laugh. Who has acne?", "b:query(acne)"),
        (
            "patients stabilised on aspirin in cardiology",
            "a:query(aspirin)",
        ),
        (
            "the list of patients we couldn't reach is lost. Who has acne?",
            "b:query(acne)",
        ),
        (
            "how many drugs does CARD-001 take",
            "a:check_medications(CARD-001)",
        ),
    ]);
    check_refused(&[
        ("CARD-001: give aspirin", "only be read"),
        ("CARD-001 hold warfarin", "only be read"),
        ("Oi, devemos dobrar? Quem tem acne", "judgement"),
        ("Who has acne? Don't leave out their addresses.", ""),
        ("Who has acne? And do not omit the names.", ""),
        ("acne patients and where they live", "Identities"),
        ("Who has acne? With postal codes.", "Identities"),
        ("who has yet to take aspirin", "leave out"),
        (
            "Who has acne? My boss wants it faxed to the insurer.",
            "only be read",
        ),
        (
            "Who has acne? Make sure it's forwarded to joe.",
            "only be read",
        ),
        ("Who has acne? It has to be deleted.", "only be read"),
        (
            "which cardiology patients take three or more drugs",
            "can't select",
        ),
        ("cardiology patients on a single drug", "can't select"),
    ]);
}
