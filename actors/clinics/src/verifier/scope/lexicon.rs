//! Word classes of the grammar that finds medical advice, in English and Portuguese (Brazil and
//! Portugal): who is addressed, what is to be done, with what, and whether it is reported.
//!
//! Verbs are written once; their forms are derived by the regular conjugations.

use std::borrow::Cow;
use std::sync::LazyLock;

use callboard_message::{is_one_of, word_set};

pub(super) use super::classes::*;
use super::frames::{ENGLISH_LIVING, FRAME_WORDS, PORTUGUESE_LIVING};
use crate::verifier::fold;
use crate::verifier::medicine::is_medicine;
use crate::verifier::word_lists::{Listing, MEDICAL};
use crate::verifier::word_table::WordTable;

/// Verb of treatment.
pub(super) const ACT: Class = CHANGE | DOSE_VERB | KEEP;

/// Nouns of which advice speaks.
const HEALTH: Class = MEDICINE | TREATMENT | LIFESTYLE | COMPLAINT | BODY;

/// Forms by which a verb may be ordered, if its place in the sentence is that of an order.
pub(super) const ORDER_FORM: Class = BASE | INFINITIVE | POLITE | FAMILIAR;

/// Returns all that the lists tell of a folded word.
pub(super) fn class_of(word: &str) -> Class {
    let class = listed_class(word);
    let is_medicine = word.len() > 3 && class & !(LEAD | BODY) == 0 && is_medicine(word);
    let named = if is_medicine { NAMED_MEDICINE } else { 0 };
    class | named | if is_condition(word) { CONDITION } else { 0 }
}

fn listed_class(word: &str) -> Class {
    if let Some(class) = CLASSES.get(word) {
        return *class;
    }
    // The singular of a word in the plural, and the reverse.
    if let Some(class) = word.strip_suffix('s').and_then(|one| CLASSES.get(one)) {
        return class & HEALTH;
    }
    if let Some(class) = CLASSES.get(&format!("{word}s")) {
        return class & HEALTH;
    }
    // "infecao", "infecoes"
    if let Some(stem) = word.strip_suffix("ao")
        && let Some(class) = CLASSES.get(&format!("{stem}oes"))
    {
        return class & HEALTH;
    }
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        let unit = ["mg", "mcg", "ug", "ml", "iu", "ui", "g"];
        let is_dose = unit.iter().any(|u| {
            word.strip_suffix(u)
                .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
        });
        return if is_dose { NUMBER | UNIT } else { NUMBER };
    }
    if word_set!("ologist ologists ologista ologistas iatra iatrist").ends(word, 0) {
        return ROLE | CARE;
    }
    if word_set!("ology ologia").ends(word, 3) {
        return ROLE;
    }
    let singular = || word.strip_suffix('s').and_then(|one| MEDICAL.find(one));
    if let Some(listing) = MEDICAL.find(word).or_else(singular) {
        return if listing == Listing::Plain { BODY } else { 0 };
    }
    // The Portuguese conditional of any verb: "mandaria".
    let is_conditional = word_set!("aria eria iria ariam eriam iriam").ends(word, 3);
    if is_conditional && !is_one_of!(word, NOT_CONDITIONAL) {
        return LIVING | CONDITIONAL;
    }
    if word.len() > 5 && word.ends_with("ly") || word.len() > 6 && word.ends_with("mente") {
        return LEAD;
    }
    0
}

/// Words that end like a Portuguese conditional and aren't one.
const NOT_CONDITIONAL: &str = "criteria cafeteria hysteria secretaria padaria enfermaria portaria diaria primaria secundaria \
    temporaria necessaria desnecessaria contraria voluntaria ordinaria veterinaria hereditaria bateria materia drogaria \
    hospedaria ouvidoria livraria refeitaria funcionaria usuaria beneficiaria solidaria originaria bilateria maria";

/// Words that are far more often another word than the form of a verb: a preposition, a country,
/// English verbs of the third person.
const OTHER_WORDS: &str = "para usa passa muda baixa uses continues combines ate nada leve leves";

static CLASSES: LazyLock<WordTable<Class>> = LazyLock::new(|| {
    let mut classes: WordTable<Class> = WordTable::with_capacity(8192);
    let mut add = |word: &str, class: Class| {
        if !is_one_of!(word, OTHER_WORDS) {
            *classes.or_default(word) |= class;
        }
    };
    for (class, verbs) in ENGLISH_VERBS {
        for verb in verbs.split_ascii_whitespace() {
            english_forms(verb, |word, form| add(word, class | form));
        }
    }
    for (class, verbs) in PORTUGUESE_VERBS {
        for verb in verbs.split_whitespace() {
            portuguese_forms(verb, |word, form| add(&folded(word), class | form));
        }
    }
    // What was done is history, whatever it was.
    let mut add_living = |word: &str, form: Class| {
        if form != PAST {
            add(word, LIVING | form);
        }
    };
    for verb in ENGLISH_LIVING.split_ascii_whitespace() {
        english_forms(verb, &mut add_living);
    }
    for verb in PORTUGUESE_LIVING.split_whitespace() {
        portuguese_forms(verb, |word, form| add_living(&folded(word), form));
    }
    for (class, words) in WORDS.iter().chain(FRAME_WORDS) {
        for word in words.split_ascii_whitespace() {
            add(word, *class);
        }
    }
    classes
});

fn folded(word: &str) -> Cow<'_, str> {
    match word.is_ascii() {
        true => Cow::Borrowed(word),
        false => Cow::Owned(fold(word)),
    }
}

/// Calls `add` with each form of an English verb. `verb` is its base form; `+` after it doubles the
/// last letter before an ending; irregular past forms follow after `/`.
fn english_forms(verb: &str, mut add: impl FnMut(&str, Class)) {
    let mut parts = verb.split('/');
    let base = parts.next().unwrap_or_default();
    let (base, doubles) = base.strip_suffix('+').map_or((base, false), |b| (b, true));
    let doubled = match base.chars().last().filter(|_| doubles) {
        Some(last) => format!("{base}{last}"),
        None => base.to_owned(),
    };
    let silent = doubled.strip_suffix('e').unwrap_or(&doubled);
    add(base, BASE);
    add(&[silent, "ing"].concat(), GERUND);
    let mut is_irregular = false;
    for past in parts {
        is_irregular = true;
        add(past, PAST);
    }
    if !is_irregular {
        let past = match base
            .strip_suffix('y')
            .filter(|b| !b.ends_with(['a', 'e', 'o']))
        {
            Some(stem) => [stem, "ied"].concat(),
            None => [silent, "ed"].concat(),
        };
        add(&past, PAST);
    }
}

/// Calls `add` with the forms of a Portuguese verb that orders, advice and reports use. `verb` is
/// its infinitive; an irregular stem of the imperative follows after `/`.
fn portuguese_forms(verb: &str, mut add: impl FnMut(&str, Class)) {
    let (infinitive, irregular) = verb.split_once('/').unwrap_or((verb, ""));
    let Some((cut, _)) = infinitive.char_indices().nth_back(1) else {
        return;
    };
    let (stem, ending) = infinitive.split_at(cut);
    let is_ar = ending == "ar";
    let polite = match (irregular, stem.chars().last()) {
        ("", Some('c')) if is_ar => [&stem[..stem.len() - 1], "qu"].concat(),
        ("", Some('g')) if is_ar => [stem, "u"].concat(),
        ("", Some('c')) => [&stem[..stem.len() - 1], "ç"].concat(),
        ("", _) => stem.to_owned(),
        (irregular, _) => irregular.to_owned(),
    };
    let theme = &ending[..1];
    let (polite_vowel, plain_vowel) = if is_ar { ("e", "a") } else { ("a", "e") };
    add(infinitive, INFINITIVE);
    for tail in ["", "m", "s", "mos"] {
        let vowel = if tail == "mos" && !is_ar {
            "a"
        } else {
            polite_vowel
        };
        add(&[&polite, vowel, tail].concat(), POLITE);
    }
    add(&[stem, plain_vowel].concat(), FAMILIAR);
    if !is_ar {
        match stem.chars().last() {
            Some('z') => add(stem, FAMILIAR),
            Some('u') => add(&[stem, "i"].concat(), FAMILIAR),
            _ => {}
        }
    }
    add(&[stem, theme, "ndo"].concat(), GERUND);
    let participle = if is_ar { "ad" } else { "id" };
    for tail in ["o", "a", "os", "as"] {
        add(&[stem, participle, tail].concat(), PAST);
    }
    let past = if is_ar { "ou" } else { "eu" };
    add(&[stem, past].concat(), PAST);
    add(&[stem, "iu"].concat(), PAST);
    add(&[stem, theme, "ram"].concat(), PAST);
    for tail in ["ia", "iam", "íamos"] {
        add(&[infinitive, tail].concat(), CONDITIONAL);
    }
    let imperfect = if is_ar { "ava" } else { "ia" };
    add(&[stem, imperfect].concat(), IMPERFECT);
}

const ENGLISH_VERBS: &[(Class, &str)] = &[
    (
        CHANGE,
        "stop+ start begin+/began/begun increase reduce decrease double triple halve discontinue switch replace \
         suspend skip+ taper restart resume initiate add prescribe administer quit+/quit cease pause cut+/cut lower \
         raise adjust change drop+ wean titrate withhold/withheld omit+ combine mix swap+ substitute interrupt \
         commence introduce withdraw/withdrew/withdrawn escalate intensify self-medicate ditch flush discard toss dump abandon inject \
         prolong exceed push bump nudge ramp hike undergo/underwent/undergone",
    ),
    (
        DOSE_VERB,
        "take/took/taken give/gave/given try use apply swallow inhale avoid keep/kept receive get+/got/gotten \
         hold/held put+/put drink/drank/drunk eat/ate/eaten buy/bought move treat \
         bring/brought throw/threw/thrown rely refrain limit repeat smoke perform chew rub+ spread operate \
         choose/chose/chosen",
    ),
    (
        KEEP,
        "continue maintain remain stick/stuck persist monitor recheck follow",
    ),
];

const PORTUGUESE_VERBS: &[(Class, &str)] = &[
    (
        CHANGE,
        "iniciar começar parar suspender interromper aumentar reduzir diminuir dobrar duplicar triplicar trocar \
         substituir retirar largar cortar abandonar descontinuar ajustar alterar mudar adicionar acrescentar associar \
         prescrever receitar injetar injectar retomar reiniciar cessar desmamar omitir pular saltar misturar combinar \
         adiar passar administrar introduzir elevar baixar subir deixar tirar submeter antecipar espaçar descartar rasgar jogar queimar esconder",
    ),
    (
        DOSE_VERB,
        "tomar usar utilizar aplicar ingerir/ingir evitar experimentar fazer/faç beber comprar tentar \
         receber pedir/peç realizar inalar engolir/engul colocar optar fumar operar tratar \
         repetir/repit escolher/escolh",
    ),
    (
        KEEP,
        "continuar manter/mantenh seguir/sig prosseguir/prossig",
    ),
];

#[rustfmt::skip]
const WORDS: &[(Class, &str)] = &[
    (YOU, "you your yours yourself yourselves ur voce voces vc vcs tu ti contigo teu teus tua tuas vos vosso vossa \
        consigo"),
    (YOU | OBLIGE, "deves precisas deverias devias tens necessitas"),
    (YOU | ABLE, "podes poderias"),
    (YOU | ABLE | WILL, "vais"),
    (FIRST, "i we us our my mine myself ourselves eu meu minha nosso nossa nossos nossas vamos"),
    (PATIENT, "baby babies bebe bebes menino menina rapaz toddler kid patient patients he she they him her them his hers their paciente pacientes doente doentes utente \
        utentes ele ela eles elas gentleman lady man woman boy girl child children crianca homem mulher adult adults adulto adultos person pessoa someone alguem"),
    (OBLIGE, "should must ought shall needs need requires require deve devem deveria deveriam devera deverao devia \
        deviam precisa precisam precisaria basta bastaria necessita necessitam necessitaria shoulda gotta convem"),
    (ABLE, "can may could might would pode podem poderia poderiam podera poderao"),
    (WILL, "will vai vao ira irao gonna"),
    (NEG, "not never nao nunca jamais tampouco nem"),
    (DENIAL, "neither no not never denies denied deny denying without negative nega negou negam sem nao nunca negativo \
        negativa none absent ausente ausencia absence nenhum nenhuma excluded excluida excluido ruled afastada \
        afastado descartada descartado free unlikely nem nor negava resolved"),
    (FAMILY, "family mother father brother sister parent parents sibling siblings grandmother grandfather aunt \
        uncle cousin son daughter relative relatives familial maternal paternal familia mae pai irmao irma avo \
        tia tio primo prima filho filha familiar parente parentes familiares materno materna paterno paterna"),
    (DOSE_VERB | INFINITIVE, "dar comer"),
    (CHANGE | PAST, "suspenso suspensa suspensos suspensas prescrito prescrita prescritos prescritas"),
    (ACT_NOUN, "discontinuation cessation suspension initiation introduction adjustment withdrawal substitution \
        escalation reduction increase titration tapering switch change use administration replacement suspensao \
        interrupcao inicio aumento reducao ajuste troca substituicao retirada introducao descontinuacao uso \
        diminuicao administracao mudanca alteracao desmame prescription prescricao"),
    (MEDICINE, "amount inhalation inhalations inalacao inalacoes medication medications medicine medicines meds dose doses dosage dosages drug drugs tablet tablets \
        pill pills antibiotic antibiotics insulin statin statins medicamento medicamentos remedio remedios medicacao \
        medicacoes dosagem dosagens comprimido comprimidos antibiotico antibioticos insulina capsule capsules capsula \
        capsulas anticoagulant anticoagulants anticoagulante anticoagulantes anticoagulation anticoagulacao steroid \
        steroids esteroide esteroides corticosteroid corticosteroids corticoide corticoides corticosteroide diuretic \
        diuretics diuretico diureticos blocker blockers betabloqueador betabloqueadores antihypertensive antihypertensives \
        anti-hipertensivo antidepressant antidepressants antidepressivo antidepressivos antiplatelet painkiller \
        painkillers analgesic analgesics analgesico analgesicos antihistamine antihistamines anti-inflammatory \
        nsaid nsaids inhaler inhalers inalador cream creams creme ointment ointments pomada pomadas injection \
        injections injecao injecoes syrup xarope drops gotas prescription prescriptions receita receitas supplement \
        supplements suplemento suplementos vitamin vitamins vitamina vitaminas thinner thinners opioid opioids \
        opioide opioides sedative sedatives tranquilizer anxiolytic ansiolitico antiepileptic antiepilepticos \
        anticonvulsant anticonvulsants anticonvulsivante antiviral antivirals antifungal antifungals antifungico \
        anti-inflamatorio anti-inflamatorios estatina estatinas vaccine vaccines vacina vacinas patch patches spray \
        immunosuppressant immunosuppressants imunossupressor biologic biologics biologico biologicos laxative \
        laxatives laxante shot shots bombinha bombinhas puffer adesivo adesivos ampola ampolas chemo placebo remedy remedies homeopathy homeopatia herbal fitoterapico"),
    (MEDICINE | TREATMENT, "treatment treatments therapy therapies tratamento tratamentos terapia terapias \
        terapeutica regimen regime esquema"),
    (UNIT, "unidade unidades mg mcg ug ml iu ui g gram grams grama gramas milligram milligrams miligrama miligramas tab tabs cap caps \
        puff puffs daily twice thrice nightly bid tid qid hourly diariamente diario diaria hours horas"),
    (NUMBER, "one two three four five six half quarter um dois tres quatro cinco seis meia meio metade duas couple \
        dobro double triple"),
    (TREATMENT, "surgery surgeries operation chemotherapy radiotherapy radiation dialysis transplant transplantation \
        ablation angioplasty bypass stent stenting pacemaker defibrillator biopsy transfusion physiotherapy \
        psychotherapy phototherapy cardioversion catheterization angiogram angiography endoscopy colonoscopy mri ct \
        scan scans ultrasound x-ray xray ecg ekg echocardiogram immunotherapy rehabilitation cirurgia cirurgias \
        operacao quimioterapia radioterapia dialise transplante ablacao angioplastia biopsia transfusao fisioterapia \
        psicoterapia fototerapia cateterismo endoscopia colonoscopia ressonancia tomografia ecografia ultrassom \
        ultrassonografia internamento internacao hospitalization admission reabilitacao vaccination vacinacao \
        hemodialysis hemodialise glasses oculos crutches muletas wheelchair cast plaster stitches splint gesso tala extraction extracao mammogram mamografia puncture puncao excision resection procedure procedimento oxygen oxigenio test tests exame exames"),
    (LIFESTYLE, "exercising drinking running salt alcohol coffee caffeine sugar diet exercise exercises smoking weight sodium gluten dairy sun \
        sunlight fasting bed rest sal alcool cafe cafeina acucar dieta exercicio exercicios tabaco peso gluten sol \
        jejum repouso sunscreen tea cha wine vinho sauna driving fluids liquids liquidos cigarros cigarettes food \
        foods alimentos grapefruit toranja laticinio laticinios lacticinios frituras doces queijo refrigerante refrigerantes chocolate \
        picantes cheese rice spicy soda soup sopa yoghurt yogurt iogurte aveia screens screen ecras showers shower duche potassium water agua hydration ice gelo"),
    (CARE, "hospital hospitals er emergency ambulance clinic clinica healthcare professional professionals 911 112 \
        192 999 helpline hotline casualty paramedic paramedics socorro samu inem urgencia urgencias emergencia pronto-socorro upa ubs sns ward profissional profissionais"),
    (CARE | ROLE, "doctor doctors physician physicians gp gps specialist specialists surgeon surgeons nurse nurses \
        pharmacist pharmacists clinician clinicians practitioner consultant medico medica medicos medicas especialista \
        especialistas cirurgiao enfermeiro enfermeira farmaceutico farmaceutica doutor doutora"),
    (ROLE, "dr dra team provider providers therapist cardiology dermatology neurology oncology equipe equipa \
        cardiologia dermatologia neurologia dentist dentista psychologist psicologo psicologa nutritionist \
        nutricionista registrar resident midwife guideline guidelines"),
    (VISIT, "trip viagem appointment appointments visit visits follow-up followup checkup check-up consultation consultations \
        consulta consultas retorno referral review attention care help advice opinion acompanhamento avaliacao \
        atendimento assistencia ajuda conselho orientacao opiniao opinioes assessment evaluation"),
    (SEEK, "see seeing saw visit visiting consult consulting call calling contact contacting go going seek seeking ask \
        asking trouble troubling disturb disturbing tell telling talk talking speak speaking bother bothering involve informing inform get getting need \
        trust listen consultar incomodava incomodaria procurar ir chamar ligar contactar contatar falar ver visitar perguntar marcar \
        incomodar procure consulte ligue chame va contacte contate fale marque avisar buscar busque recorrer"),
    (ORDINARY, "recall ask see know note consult contact call visit speak talk discuss seek check find name specify provide \
        rephrase repeat log sign enter include select view look search query read list show open click type choose \
        review refer inform tell confirm verify clarify be aware careful write mention state say remember expect request \
        consultar procurar contactar contatar ligar falar perguntar confirmar verificar informar indicar especificar \
        saber ver escrever nomear discutir marcar conversar pesquisar listar pedir consulte procure contacte contate \
        ligue fale pergunte confirme verifique informe indique especifique"),
    (HEDGE, "probably likely possibly presumably suspect suspects suspicion appears appear seems seem perhaps maybe \
        probable almost certainly surely definitely clearly obviously undoubtedly apparently potentially \
        provavelmente possivelmente talvez parece parecem suspeito suspeita suspeitamos certamente claramente \
        aparentemente provavel decerto obviamente seguramente looks sounds clear evident obvious claro evidente obvio"),
    (CONCLUDE, "suggest suggests suggesting suggestive indicate indicates indicating indicative point points pointing \
        consistent compatible typical characteristic mean means confirm confirms confirming looks sounds resembles \
        diagnostic implies sugere sugerem sugestivo sugestiva sugestivos sugestivas indica indicam indicativo \
        indicativa aponta apontam significa significam confirma confirmam compativel compativeis tipico tipica \
        tipicos tipicas caracteristico caracteristica parece parecem evidencia evidenciam denuncia traduz trata"),
    (FINDING, "symptom symptoms finding findings result results rash lesion lesions sign signs this these that it mole \
        lump labs picture presentation values readings everything sintoma sintomas achado achados resultado resultados \
        lesao lesoes isso isto mancha manchas quadro sinais analises evidence data complaints valores tudo \
        spot spots pattern numbers ecg scan test tests exame exames"),
    (RECOMMEND, "recommend recommends suggest suggests advise advises prescribe prescribes propose proposes urge urges \
        encourage favour favor endorse recommending advising suggesting prescribing recomendo recomendamos recomendaria \
        recomendariamos sugiro sugerimos sugeriria aconselho aconselhamos aconselharia prescrevo prescrevemos receito \
        receitamos desaconselho desaconselhamos indico indicamos oriento orientamos proponho propomos recomenda recomendam aconselha aconselham \
        sugere sugerem indica indicam orienta preconiza preconizam advocate advocates"),
    (TOLD, "explicado explicada explicados explicadas esclarecido esclarecida comunicado comunicada reforcado reforcada told advised instructed counselled counseled informed educated warned directed asked urged reminded \
        encouraged orientado orientada orientados orientadas instruido instruida aconselhado aconselhada informado \
        informada avisado avisada alertado alertada taught cautioned ensinado ensinada agreed declined refused referred chose opted preferred decided elected wishes wants wanted plans planning intends prefers hopes planeia pretende quer prefere recusou \
        recusa aceitou optou decidiu"),
    (RECOMMENDED, "recommended suggested prescribed indicated ordered planned proposed prescrito prescrita prescritos \
        prescritas recomendado recomendada recomendados recomendadas indicado indicada sugerido sugerida receitado \
        receitada proposto proposta solicitado solicitada"),
    (SAID, "quoted words citacao palavras said stated wrote noted explained requested discussed reported recorded attempted tried managed recomendou \
        recomendaram aconselhou prescreveu asked spoke talked sugeriu indicou orientou disse informou explicou pediu solicitou propos \
        receitou relatou referiu registrou registou anotou combinou planejou planeou tentou ponderou mandou"),
    (DOCUMENT, "form leaflet consent bula folheto termo formulario record records note notes chart report letter summary file history entry entries documentation \
        prescription plan log prontuario ficha registo registro registos registros nota notas relatorio laudo historico \
        carta processo receita anotacao anotacoes sumario resumo"),
    (DOCUMENT_VERB, "says say states state shows show lists list mentions mention reads read indicates indicate contains \
        contain documents document gives give describes describe includes diz dizem mostra mostram indica \
        indicam consta constam menciona mencionam refere referem informa lista listam contem traz descreve regista \
        registra apresenta records notes recommends advises suggests recomenda aconselha sugere reports"),
    (RECORDED, "recorded documented registered charted registrado registrada registado registada registrados registados \
        registradas registadas documentado documentada anotado anotada listed"),
    (EVALUATION, "recommended advisable best better safe safer safest ok okay fine wise wiser prudent necessary required \
        essential important time indicated warranted appropriate reasonable preferable ideal acceptable harmless useful \
        beneficial worthwhile crucial vital imperative suggested advised sensible helpful smart smarter enough \
        recomendado recomendada recomendavel recomendaveis aconselhavel melhor seguro segura necessario necessaria \
        preciso precisa indicado indicada prudente conveniente importante essencial hora ideal adequado adequada \
        preferivel razoavel imprescindivel fundamental crucial sensato util benefico aconselhado sugerido sugerida proposed proposto \
        obrigatorio urgente needed"),
    (NEEDLESS, "unnecessary wasting desperdicio needless pointless overdoing desnecessario desnecessaria desnecessarios desnecessarias dispensavel \
        dispensaveis escusa escusas escusam escusado escusada inutil exagero exaggeration overreaction overkill useless waste perda"),
    (IS, "is are be being am e sao seja sejam esta estao ser becomes seria seriam sera serao would"),
    (WAS, "was were been had foi foram fora sido era eram teria havia tinha tendo recebeu"),
    (BREAK, "so therefore thus hence but however please you your yourself voce voces vc tu teu tua teus tuas portanto \
        entao logo mas porem contudo assim dear warning attention atencao favor accordingly nevertheless"),
    (CONJUNCTION, "and then or but so therefore e entao mas ou logo portanto plus thus"),
    (LEAD, "please kindly just simply now then so also always first next finally instead immediately today tonight ok \
        okay yes no warning important note attention tomorrow therefore thus hence but and or maybe perhaps dear sir \
        madam meanwhile otherwise still ideally better best rather do go ahead por favor agora ja entao sempre hoje \
        amanha simplesmente apenas so primeiro depois por isso portanto mas e ou sim atencao aviso importante talvez \
        ali entretanto senhor senhora caro cara prezado prezada step option tip advice recommendation plan never nunca \
        not nao everyone everybody doctor nurse reader user assistant"),
    (DETERMINER, "everything tudo the a an your his her their its this that these those all any both some my our it them him every each \
        more less extra another no low high o a os as um uma seu sua seus suas teu tua teus tuas meu minha este esta esse essa \
        estes estas esses essas todo toda todos todas ambos dele dela lo la los las lhe daily whatever half only \
        qualquer mais menos outro outra such"),
    (URGENT, "immediately now today tonight once right asap straight already immediate urgent urgently imediatamente \
        agora hoje ja logo imediato imediata urgente urgencia prompt promptly tomorrow amanha"),
    (CHAIN, "consider considering remember forget sure make ensure try trying think opt free aim plan resort start look happy \
        considere considerar considera experimente tente tentar lembre lembrar certifique garanta pense pensar opte \
        optar procure aposte worth vale hora time"),
    (COMPLAINT, "symptom symptoms pain bleeding result results warning warnings chest lump signs sign fever rash \
        palpitations caroco tremor tremors tingling snoring blister blisters borbulhas formigueiro dormencia redness itch vermelhidao comichao coceira dizziness numbness weakness breathlessness swelling headache headaches advice instructions mole \
        lesion allergy vomiting seizure seizures fainting sintoma sintomas dor dores sangramento resultado resultados \
        peito febre tontura fraqueza inchaco palpitacoes sinais alerta alertas mancha caroco nodulo advice conselho \
        orientacao orientacoes hemorragia alarme alteracao alteracoes abnormality readings cough tosse bleeds hurts bleed hurt sangrar sangra doer doi"),
    (OUTCOME, "saudavel saudaveis nascer recuperam melhoram pioram sumido sumida desaparecido desaparecida normalmente normally recover recovers heal heals die dies survive survives improve improves worsen worsens resolve resolves \
        disappear disappears deteriorate relapse relapses cured healed gone fine ok okay healthy better worse recovered \
        recuperar recupera recuperara morrer morre morrera sobreviver sobrevivera melhorar melhorara melhorando piorar \
        piorara desaparecer desaparecera sarar curar curado curada curara bem bom boa recuperado recuperada cicatrizar \
        normal clear sumir passar passara live viver outlive cure remit vanish subside subsides rebound passe melhore stops passes"),
    (HAVE, "have has got suffer suffers suffering having developed contracted caught tem tens teem possui apresenta \
        desenvolveu sofre sofres contraiu padece ter tenha tenho tera sofrer padecer estar esteja be"),
    (INTERROGATIVE, "do does did is are was were can could should would will has have had what when where how which who \
        whom why whose any may shall am que qual quais quando como onde quem quanto quantos quantas porque sera"),
    (IF, "if whether when unless case caso se quando should lest"),
    (HELP, "help helps relieve relieves treat treats cure cures improve improves fix fixes works work ease eases \
        eliminate heal heals solve solves control controls ajuda ajudara ajudar alivia aliviara aliviar cura curar \
        curara melhora melhorara trata tratar resolve resolvera resolver controla reverse reverses reverte benefit hurt harm"),
    (TELL, "dizer informar avisar telling informing dizendo informando avisando tell inform advise instruct notify let warn urge remind ask convince persuade diga informe avise oriente \
        instrua peca comunique recomende aconselhe mande explain explique say reply respond answer responda"),
    (READER, "asker ai assistant assistants model chatbot bot llm agent agents reader readers user users system whoever \
        anyone clinician assistente assistentes modelo agente leitor leitora utilizador usuario sistema ia"),
    (PARTICLE, "to on off back down up from with onto over de a para o as os ao aos without com taking using of out by \
        into under"),
    (BETTER, "better best ideal right correct optimal preferable preferred proper safer safest superior suitable \
        melhor ideal correta correto certa certo adequada adequado preferivel otima otimo optima optimo higher lower \
        stronger weaker strongest maior menor"),
    (REFUSE, "skip skipping cancel cancelling canceling avoid avoiding postpone postponing forget ignore ignoring miss \
        refuse delay decline dismiss disregard cancele cancelar evite evitar adie adiar falte faltar desmarque desmarcar \
        dispense dispensar ignore ignorar ignora ignores recuse recusar esqueca esquecer despreze desprezar desconsidere \
        desconsiderar overlook discount downplay desvalorize desvalorizar save spare poupe poupar"),
    (HESITATE, "hesitate forget delay wait postpone fail neglect hesite hesitar esqueca esquecer demore demorar adie \
        adiar deixe deixar espere esperar without before until unless sem antes exceto salvo"),
    (STOP, "which who that because since while when if whose although que porque enquanto pois cujo about regarding \
        sobre question"),
];

/// Returns whether a folded word seems to name a condition: by a list, or by the endings of Greek
/// and Latin names of diseases, in English and Portuguese.
pub(super) fn is_condition(word: &str) -> bool {
    const ENDINGS: &str = "itis osis emia aemia oma omas pathy algia plegia uria penia ectasis sclerosis rrhea rreia ite ites ose oses patia tensao tension cardia ritmia rhythmia monia phobia fobia philia filia lepsy iase iasis plasia trophy trofia stenosis estenose";
    is_one_of!(word, CONDITIONS)
        || word.len() > 5 && !is_one_of!(word, NOT_CONDITIONS) && word_set!(ENDINGS).ends(word, 0)
}

const CONDITIONS: &str = "virus relapse recaida failing falhando cancer cancerous malignant maligno maligna diabetes diabetic diabetico diabetica asthma asma stroke avc infarto \
     infarction infarct enfarte infarcted angina epilepsy epilepsia migraine migraines enxaqueca depression depressao \
     anxiety ansiedade covid flu gripe influenza tuberculosis tuberculose hiv aids sida lupus psoriasis psoriase eczema \
     rosacea acne melanoma hypertension hypertensive hipertenso hipertensa pneumonia fracture fratura infection infeccao \
     ulcer ulcera embolism embolia insuficiencia fibrillation fibrilhacao fibrilacao dementia demencia alzheimer \
     parkinson syndrome sindrome disease doenca disorder transtorno allergy alergia obesity obesidade gout gota vitiligo \
     herpes measles sarampo dengue malaria sepsis sepse tumor tumour hypothyroidism hyperthyroidism hipotireoidismo \
     hipotiroidismo hipertiroidismo leukemia leucemia lymphoma linfoma autism autismo adhd copd dpoc scabies sarna \
     shingles zona psychosis bipolar schizophrenia esquizofrenia thrombosis trombose aneurysm aneurisma cataract catarata \
     glaucoma anemia arthritis artrite hernia appendicitis apendicite ringworm wart warts verruga verrugas carcinoma \
     tinea tinha micose celulite cellulitis impetigo urticaria hives sclerosis esclerose neuropathy palsy paralisia \
     preeclampsia crohn reflux refluxo ciatica sciatica celiac coeliac celiaca fibromyalgia ptsd ocd burnout panic panico sinusitis lyme polyp polyps polipo polipos \
     kidneystones colic prediabetes menopause menopausa dyslexia autistic lupico gastroenteritis rosea rubella varicela zika concussao mania maniac mania \
     heartfailure neuroma cancro avc enfartes derrame colesterolemia bronquite cirrhosis cirrose failure attack heartattack arrhythmia arritmia tachycardia bradycardia concussion \
     meningitis meningite encefalite";

/// Words that end like names of diseases and aren't. Derived by looking the endings up in common
/// English and Portuguese vocabulary.
const NOT_CONDITIONS: &str = "glucose lactose sucrose fructose purpose purposes propose proposes whose overdose overdoses hypotheses write website \
     favorite favourite despite limite permite diagnosis diagnoses prognosis chemistry diploma aroma appetite white invite \
     opposite definite composite attention extension dimension expose suppose exposes requisite hipotese analise osmosis \
     parasite parasites satellite elite unite ignite suite suites website websites dosis apetite convite sprite transmite \
     admite limites permites emite imite evite evites visite visites necessite possibilite facilite felicite credite \
     acredite medite hesite recite cite excite infinite finite polite granite symptoma sintoma sintomas hemostasis \
     homeostasis gravite tramite quartzite impose imposes compose disclose enclose refuse choose loose transpose dispose \
     pressao tension sebastiao genoma cromossoma idioma idiomas sistoma acidose-free biopsia autopsia prose verbose \
     adipose comatose diagnose diagnoses cellulose celulose dextrose maltose filia";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: forms of a verb are recognised from its base form. Method: regular and irregular verbs
    /// of both languages.
    #[test]
    fn verbs_have_forms() {
        for (word, class) in [
            ("stop", CHANGE | BASE),
            ("stopping", CHANGE | GERUND),
            ("stopped", CHANGE | PAST),
            ("halving", CHANGE | GERUND),
            ("took", DOSE_VERB | PAST),
            ("applied", DOSE_VERB | PAST),
            ("continue", KEEP | BASE | POLITE),
            ("pare", CHANGE | POLITE),
            ("troque", CHANGE | POLITE),
            ("largue", CHANGE | POLITE),
            ("comece", CHANGE | POLITE),
            ("reduza", CHANGE | POLITE),
            ("reduz", CHANGE | FAMILIAR),
            ("diminui", CHANGE | FAMILIAR),
            ("suspendam", CHANGE | POLITE),
            ("suspendeu", CHANGE | PAST),
            ("tomaria", DOSE_VERB | CONDITIONAL),
            ("mantenha", KEEP | POLITE),
            ("prescrever", CHANGE | INFINITIVE),
        ] {
            assert_eq!(class_of(word) & class, class, "{word}");
        }
    }

    /// Goal: a condition is a whole word. Method: names, and words that contain one or end alike.
    #[test]
    fn conditions_are_whole_words() {
        for word in [
            "eczema",
            "hipertensao",
            "dermatite",
            "tuberculose",
            "cardiomyopathy",
        ] {
            assert!(is_condition(word), "{word}");
        }
        for word in [
            "eczemas-like",
            "glucose",
            "website",
            "stroked",
            "gouty",
            "patient",
            "diagnosis",
        ] {
            assert!(!is_condition(word), "{word}");
        }
    }
}
