//! Treatments other than single medicines: procedures, therapies and classes of medicines.

use std::sync::LazyLock;

use callboard_message::is_one_of;
use callboard_message::text::words;

use crate::verifier::byte_classes::{DIGIT, HYPHEN, LETTER, run_end};

use super::word_meanings::{CHANGE_WORDS, flags, word_info};

/// Set of treatments, as bits in the order of [`TREATMENTS`].
pub(super) type Treatments = u128;

/// Maximum number of words between a negation and the treatment after it.
const NEGATION_WORDS_MAX: usize = 8;

/// Words that state or plan a treatment.
const PLAN_WORDS: &str = "treat treated treatment start started starts undergo underwent undergoing undergoes plan planned \
    plans therapy prescribed receive receives received receiving scheduled recommended recommend needs requires should \
    indicated will referred booked awaiting awaits listed had has ordered begin begins began done performed given gets \
    tratamento tratado tratada iniciar iniciou inicia submeter submetido submetida plano terapia prescrito prescrita \
    recebe recebeu agendado agendada indicado indicada precisa deve encaminhado encaminhada fara fez consta constam realizou \
    realizara realizar esta arranged organised organized marcado marcada marcadas pedido pedida solicitado solicitada \
    programado programada proposto proposta requested submitted planeja planejada on takes taking uses using usa toma with com under em \
    awaits waits waiting waitlisted added adding adds introduced inserted implanted placed fitted wears offered advised approved \
    aguarda aguardando espera comeca comecou comecara inicia iniciado iniciada incluido incluida acrescentado acrescentada \
    adicionado adicionada introduzido introduzida colocado colocada implantado implantada prevista previsto aprovado aprovada";

/// Endings of the last word of a spelling of [`TREATMENTS`], besides none. A word with any other one,
/// such as `surgeon` or `supplementary`, names no treatment.
const INFLECTIONS: &str = "s y ies ia ias ic ics ical ico ica icos icas eutic eutico eutica e es ed ing ion ions ao \
    oes a as o os al als ais ly ation ations acao acoes ated ado ada ados adas zation zations sation zacao zacoes \
    zed sed zado zada zados zadas ur ural amental ysis ise ises ulation ulacao ulant ulants ulante ulantes ulated \
    ulado ulada ant ants ante antes ive ives ivo iva ivos ivas ador adores ator atory atorio atoria atorios atorias \
    tic tics tico ticos tica m ms ma mas phy fia in ine ines ina inas inic inico inicos gal gals gico gicos cal \
    cals vante vantes ulsant ulsants ulsivante ulsivantes ure ura r rs or ors ories ral ogia ogica ogico ery \
    oterapia otico oticos ario arios ores ivante ivantes igeno igenos matory matories matorio matorios cional \
    cionais";

/// Treatments, by the name shown. Each has the beginnings of its spellings in folded form, separated
/// by `|`, to which an ending of [`INFLECTIONS`] may be added; a space ends a whole word.
const TREATMENTS: &[(&str, &str)] = &[
    ("Chemotherapy", "chemotherap|quimioterap"),
    (
        "Radiotherapy",
        "radiotherap|radiation therap|radioterap|brachytherap|braquiterap",
    ),
    ("Immunotherapy", "immunotherap|imunoterap"),
    ("Phototherapy", "phototherap|fototerap|uvb|puva"),
    ("Physiotherapy", "physiotherap|physical therap|fisioterap"),
    (
        "Psychotherapy",
        "psychotherap|psicoterap|cognitive behavio|cognitivo-comport|cognitivo comport",
    ),
    ("Speech therapy", "speech therap|fonoaudiol"),
    (
        "Occupational therapy",
        "occupational therap|terapia ocupacional",
    ),
    ("Cryotherapy", "cryotherap|crioterap|cryosurg|criocirurg"),
    ("Laser therapy", "laser"),
    (
        "Hormone therapy",
        "hormone therap|hormone replacement|terapia hormonal|reposicao hormonal",
    ),
    ("Oxygen therapy", "oxygen therap|home oxygen|oxigenoterap"),
    ("Dialysis", "dialysis|dialise|hemodial|haemodial"),
    ("Transplant", "transplant"),
    ("Angioplasty", "angioplast|percutaneous coronary"),
    ("Stent", "stent |stents |stenting"),
    ("Bypass surgery", "bypass|revascularizacao|revasculari"),
    (
        "Valve replacement",
        "valve replacement|valve repair|troca valvar|troca da valva|tavi ",
    ),
    ("Catheterization", "catheteri|cateterismo"),
    ("Ablation", "ablation|ablacao"),
    ("Cardioversion", "cardioversion|cardioversao"),
    ("Pacemaker", "pacemaker|marca-passo|marcapasso|marca passo"),
    ("Defibrillator", "defibrillator|desfibrilador"),
    ("Amputation", "amputat|amputac"),
    (
        "Surgery",
        "surgery|surgeries|surgical|cirurgia |cirurgias |cirurgic|excision|resection|ressecc|craniotom|thrombectom|trombectom|endarterectom",
    ),
    (
        "Deep brain stimulation",
        "deep brain stim|estimulacao cerebral profunda|nerve stimulat",
    ),
    ("Electroconvulsive therapy", "electroconvuls|eletroconvuls"),
    (
        "Plasmapheresis",
        "plasmapheresis|plasmaferese|plasma exchange",
    ),
    ("Transfusion", "transfusion|transfusao|transfusoes"),
    ("Vaccination", "vaccinat|vacinac|vacinad"),
    ("Anticoagulant", "anticoag"),
    ("Antibiotic", "antibiotic"),
    ("Antifungal", "antifung"),
    ("Antiviral", "antiviral|antivirais"),
    ("Antihistamine", "antihistamin|anti-histamin"),
    ("Antidepressant", "antidepress"),
    ("Antipsychotic", "antipsic|antipsychotic"),
    ("Antiplatelet", "antiplatelet|antiplaquet|antiagregante"),
    ("Antiarrhythmic", "antiarrhythmic|antiarritmic"),
    (
        "Beta blocker",
        "beta blocker|beta-blocker|betablocker|betabloqueador",
    ),
    (
        "Calcium channel blocker",
        "calcium channel blocker|bloqueador de calcio|bloqueador dos canais de calcio",
    ),
    ("Statin", "statin |statins |estatina"),
    ("Diuretic", "diuretic"),
    ("ACE inhibitor", "ace inhibitor|inibidor da eca"),
    (
        "Corticosteroid",
        "steroid |steroids |corticosteroid|corticoide|corticoesteroid|esteroide",
    ),
    ("Immunosuppressant", "immunosuppress|imunossupress"),
    (
        "Biologic",
        "biologic therap|biologic agent|terapia biologica|imunobiologic",
    ),
    ("Opioid", "opioid"),
    ("Insulin", "insulin "),
    ("Benzodiazepine", "benzodiazep"),
    ("Anticonvulsant", "anticonvuls|antiepilep"),
    ("Bronchodilator", "bronchodilat|broncodilat"),
    ("Retinoid", "retinoid"),
    ("Sedation", "sedation|sedacao|calmante"),
    ("Cough syrup", "cough syrup|xarope|cough medicine|antituss"),
    ("Cold remedy", "cold remedy|antigripal|antigripais"),
    ("Herbal tea", "herbal tea|cha de |chas de "),
    ("Eye drops", "eye drops|colirio"),
    ("Painkiller", "painkiller|pain killer|analges"),
    ("Anti-inflammatory", "anti-inflam|antiinflam|nsaid|aine "),
    ("Antacid", "antacid|antiacid|anti-acid"),
    ("Laxative", "laxativ|laxante"),
    (
        "Sleeping pill",
        "sleeping pill|sleeping tablet|hypnotic|hipnotic|sonifer",
    ),
    (
        "Supplement",
        "supplement|suplement|multivitamin|polivitamin",
    ),
    ("Vitamin", "vitamin"),
    (
        "Antihypertensive",
        "antihypertens|anti-hypertens|antihipertens|anti-hipertens",
    ),
    (
        "Antidiabetic",
        "antidiabet|hypoglycaemic|hypoglycemic|hipoglicemiante",
    ),
    ("Antiemetic", "antiemetic|anti-emetic"),
    ("Contraceptive", "contracept|anticoncep"),
    (
        "Magnetic resonance imaging",
        "mri |magnetic resonance|ressonancia",
    ),
    (
        "Computed tomography",
        "ct scan|computed tomograph|tomografia",
    ),
    ("Biopsy", "biops"),
    (
        "Endoscopy",
        "endoscop|colonoscop|gastroscop|bronchoscop|broncoscop",
    ),
    ("Echocardiogram", "echocardiogra|ecocardiogra"),
    ("Lumbar puncture", "lumbar puncture|puncao lombar"),
    (
        "Hospital admission",
        "hospitali|internacao|hospital admission",
    ),
    ("Rehabilitation", "rehabilitat|reabilitac"),
    (
        "Herbal treatment",
        "herbal |fitoterap|homeopath|homeopat|acupunctur|acupuntur",
    ),
];

/// Bit of a planned change of a dose.
const CHANGE_BIT: usize = 127;
/// Words of a plan for the future.
const FUTURE_WORDS: &str = "will going planned plan sera serao vai vao plano planejado planejada";
/// Words of what is changed.
const DOSE_WORDS: &str = "dose doses dosage medication medicine medicines treatment therapy drug schedule frequency dosagem \
    medicacao medicamento medicamentos tratamento remedio frequencia posologia";

/// Beginnings and endings of the generic names of medicines that belong to a class, by the class's
/// name in [`TREATMENTS`]: `x-` begins a name, `-x` ends one. Classes by the WHO ATC index.
const CLASSES: &[(&str, &str)] = &[
    (
        "Anticoagulant",
        "warfarin acenocoumarol phenprocoumon -xaban dabigatran -parin heparin fondaparinux bivalirudin",
    ),
    (
        "Antibiotic",
        "-cillin cef- ceph- -cycline -floxacin -thromycin -mycin -penem sulfa- trimethoprim metronidazole tinidazole \
        nitrofurantoin fosfomycin linezolid rifa- -micin amikacin vancomycin colistin chloramphenicol mupirocin fusidic- \
        clavulanate isoniazid ethambutol pyrazinamide dapsone aztreonam teicoplanin",
    ),
    (
        "Antifungal",
        "-conazole terbinafine griseofulvin nystatin -fungin amphotericin clotrimazole",
    ),
    (
        "Antiviral",
        "-ciclovir acyclovir -cyclovir oseltamivir -vir -vudine",
    ),
    (
        "Antihistamine",
        "-tadine cetirizine levocetirizine fexofenadine diphenhydramine hydroxyzine promethazine -pheniramine \
        dimenhydrinate cyproheptadine",
    ),
    (
        "Antidepressant",
        "-oxetine sertraline citalopram escitalopram fluvoxamine -faxine bupropion mirtazapine trazodone \
        -triptyline -ipramine vortioxetine",
    ),
    (
        "Antipsychotic",
        "-peridol -azine -peridone -apine -piprazole ziprasidone lurasidone",
    ),
    (
        "Antiplatelet",
        "aspirin clopidogrel prasugrel ticagrelor dipyridamole cilostazol",
    ),
    (
        "Antiarrhythmic",
        "amiodarone dronedarone sotalol propafenone flecainide quinidine disopyramide mexiletine procainamide",
    ),
    ("Beta blocker", "-olol carvedilol labetalol"),
    ("Calcium channel blocker", "-dipine diltiazem verapamil"),
    ("Statin", "-vastatin"),
    (
        "Diuretic",
        "-thiazide -semide -thalidone indapamide bumetanide spironolactone eplerenone amiloride triamterene \
        acetazolamide",
    ),
    ("ACE inhibitor", "-pril"),
    (
        "Corticosteroid",
        "-sone -solone -asol -onide triamcinolone deflazacort",
    ),
    (
        "Immunosuppressant",
        "cyclosporine azathioprine mycophenolate -limus methotrexate leflunomide cyclophosphamide -citinib",
    ),
    ("Immunotherapy", "-mab -cept interferon- glatiramer"),
    ("Biologic", "-mab -cept"),
    (
        "Opioid",
        "morphine codeine tramadol -codone hydromorphone fentanyl methadone buprenorphine tapentadol",
    ),
    ("Insulin", "insulin-"),
    ("Benzodiazepine", "-azepam -azolam clobazam"),
    (
        "Anticonvulsant",
        "-racetam carbamazepine oxcarbazepine phenytoin phenobarbital primidone valproate lamotrigine \
        topiramate zonisamide lacosamide perampanel ethosuximide clobazam vigabatrin rufinamide gabapentin pregabalin",
    ),
    (
        "Bronchodilator",
        "albuterol -terol -tropium terbutaline theophylline aminophylline",
    ),
    (
        "Retinoid",
        "-tretinoin acitretin adapalene tazarotene isotretinoin tretinoin",
    ),
    (
        "Hormone therapy",
        "estradiol progesterone medroxyprogesterone testosterone levothyroxine tamoxifen -trozole exemestane",
    ),
    (
        "Chemotherapy",
        "-platin -taxel -rubicin cyclophosphamide -citabine fluorouracil methotrexate etoposide vin-",
    ),
    ("Oxygen therapy", "oxygen"),
    (
        "Cough syrup",
        "dextromethorphan guaifenesin ambroxol acetylcysteine codeine -cisteine",
    ),
    ("Eye drops", "-prost timolol dorzolamide brimonidine"),
    (
        "Painkiller",
        "paracetamol metamizole aspirin ibuprofen naproxen diclofenac ketorolac ketoprofen -oxicam -coxib \
        nimesulide indomethacin morphine codeine tramadol -codone hydromorphone fentanyl methadone tapentadol gabapentin \
        pregabalin",
    ),
    (
        "Anti-inflammatory",
        "aspirin ibuprofen naproxen diclofenac ketorolac ketoprofen -oxicam -coxib nimesulide \
        indomethacin -sone -solone -onide colchicine",
    ),
    ("Antacid", "-prazole ranitidine famotidine sucralfate"),
    ("Laxative", "lactulose bisacodyl polyethylene-"),
    (
        "Sleeping pill",
        "zolpidem zopiclone -azepam -azolam melatonin",
    ),
    (
        "Supplement",
        "cholecalciferol cyanocobalamin tocopherol retinol folic- ascorbic- zinc- omega-3 iron calcium- magnesium-",
    ),
    (
        "Vitamin",
        "cholecalciferol cyanocobalamin tocopherol retinol folic- ascorbic- thiamine pyridoxine phytomenadione biotin",
    ),
    (
        "Antihypertensive",
        "-pril -sartan -olol -dipine -thiazide -thalidone carvedilol hydralazine methyldopa clonidine \
        spironolactone -zosin aliskiren verapamil diltiazem indapamide minoxidil",
    ),
    (
        "Antidiabetic",
        "metformin -gliptin -gliflozin -glutide -ide insulin- pioglitazone acarbose tirzepatide exenatide",
    ),
    (
        "Antiemetic",
        "-setron metoclopramide domperidone bromopride dimenhydrinate promethazine",
    ),
    (
        "Contraceptive",
        "levonorgestrel drospirenone ethinylestradiol medroxyprogesterone",
    ),
];

/// Returns the classes to which a medicine belongs, by its generic name in lower case.
pub(super) fn treatments_of(generic: &str) -> Treatments {
    let belongs = |forms: &str| {
        forms.split_ascii_whitespace().any(|form| {
            match (form.strip_prefix('-'), form.strip_suffix('-')) {
                (Some(ending), _) => generic.ends_with(ending),
                (None, Some(beginning)) => generic.starts_with(beginning),
                (None, None) => generic == form,
            }
        })
    };
    let bit = |class: &str| TREATMENTS.iter().position(|(name, _)| *name == class);
    CLASSES
        .iter()
        .filter(|(_, forms)| belongs(forms))
        .filter_map(|(class, _)| bit(class))
        .fold(0, |bits, n| bits | (1 << n))
}

/// Number of bytes by which spellings are looked up.
const KEY_BYTES: usize = 3;
/// Number of slots of the table of spellings: a power of 2.
const SLOTS: usize = 1024;

/// Spelling of a treatment, with its first bytes and the number of the treatment.
type Spelling = ([u8; KEY_BYTES], usize, &'static str);

/// Spellings by the [`slot_of`] their first [`KEY_BYTES`] bytes.
static SPELLINGS: LazyLock<Vec<Vec<Spelling>>> = LazyLock::new(|| {
    let mut slots = vec![Vec::new(); SLOTS];
    for (n, (_, spellings)) in TREATMENTS.iter().enumerate() {
        for spelling in spellings.split('|') {
            if let Some(key) = spelling.as_bytes().first_chunk() {
                slots[slot_of(key)].push((*key, n, spelling));
            }
        }
    }
    slots
});

/// Returns the slot of spellings by their first bytes. Some slots hold several beginnings.
fn slot_of(key: &[u8; KEY_BYTES]) -> usize {
    key.iter().fold(0, |all, b| all * 31 + usize::from(*b)) % SLOTS
}

/// Returns the treatments that a text in folded form names.
pub(super) fn named_treatments(folded: &str) -> Treatments {
    let spellings = &*SPELLINGS;
    let mut named = 0;
    let mut at = 0;
    while at < folded.len() {
        let end = word_end(folded, at);
        if end == at {
            // No word: on to the next character.
            at += 1;
            while !folded.is_char_boundary(at) {
                at += 1;
            }
            continue;
        }
        let word = &folded[at..end];
        named |= treatments_at(&folded[at..], word, spellings);
        if word.len() >= CHANGE_LETTERS_MIN && is_change(word) {
            named |= 1 << CHANGE_BIT;
        }
        at = end;
    }
    named
}

/// Minimum letters of a word of [`CHANGE_WORDS`].
const CHANGE_LETTERS_MIN: usize = 5;

/// Returns whether a word, or a part of it between hyphens, is one for a change.
fn is_change(word: &str) -> bool {
    is_one_of!(word, CHANGE_WORDS)
        || word.bytes().any(|b| b == b'-')
            && word.split('-').any(|part| is_one_of!(part, CHANGE_WORDS))
}

/// Returns the end of the word that begins at a byte; the byte itself if no word does.
fn word_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let end = run_end(bytes, start, LETTER | DIGIT | HYPHEN);
    match bytes.get(end) {
        Some(next) if !next.is_ascii() => {
            let more = text[end..].find(|c| !is_word_char(c));
            more.map_or(text.len(), |more| end + more)
        }
        _ => end,
    }
}

/// Returns the treatments that are named at the beginning of `text`. `word` is its first word, and
/// `spellings` are [`SPELLINGS`].
fn treatments_at(text: &str, word: &str, spellings: &[Vec<Spelling>]) -> Treatments {
    let key = match word.as_bytes() {
        [a, b, c, ..] => [*a, *b, *c],
        bytes => std::array::from_fn(|n| bytes.get(n).copied().unwrap_or(b' ')),
    };
    let is_named = |spelling: &str| {
        let Some(rest) = strip_spelling(text, spelling) else {
            return false;
        };
        let end = word_end(rest, 0);
        spelling.ends_with(' ') || end == 0 || is_one_of!(&rest[..end], INFLECTIONS)
    };
    let near = spellings[slot_of(&key)].iter();
    let found = near.filter(|(first, _, spelling)| *first == key && is_named(spelling));
    found.fold(0, |bits, (_, n, _)| bits | (1 << n))
}

/// Returns what follows a spelling at the start of a text; `None` if the text begins with something
/// else. A space of the spelling stands for any characters between two words, or for the end.
fn strip_spelling<'t>(text: &'t str, spelling: &str) -> Option<&'t str> {
    let mut rest = text;
    for part in spelling.split_inclusive(' ') {
        let word = part.trim_end_matches(' ');
        rest = rest.strip_prefix(word)?;
        if word.len() < part.len() {
            if rest.starts_with(is_word_char) {
                return None;
            }
            rest = rest.trim_start_matches(|c| !is_word_char(c));
        }
    }
    Some(rest)
}

/// Returns whether a character is part of a word: a letter, a digit or a hyphen.
fn is_word_char(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || c == '-',
        false => c.is_alphanumeric(),
    }
}

/// Returns the names of the treatments that a sentence of the text states without denying them, but
/// no record names.
pub(super) fn unrecorded_treatments(folded: &str, recorded: Treatments) -> Vec<&'static str> {
    let mut found = 0;
    // Nothing is named: the usual case.
    if named_treatments(folded) & !recorded == 0 {
        return Vec::new();
    }
    for sentence in folded.split(['\n', '.', ';']) {
        let named = named_treatments(sentence) & !recorded;
        let has = |is_listed: fn(&str) -> bool| words(sentence).any(is_listed);
        let is_change = named & (1 << CHANGE_BIT) != 0
            && has(|word| is_one_of!(word, FUTURE_WORDS))
            && has(|word| is_one_of!(word, DOSE_WORDS));
        let named = named & !(1 << CHANGE_BIT) | Treatments::from(is_change) << CHANGE_BIT;
        let is_plan = named != 0 && has(|word| is_one_of!(word, PLAN_WORDS));
        if is_plan && !is_denied(sentence) {
            found |= named;
        }
    }
    let all = TREATMENTS.iter().enumerate();
    let change = (found & (1 << CHANGE_BIT) != 0).then_some("Change of dose");
    all.filter(|(n, _)| found & (1 << n) != 0)
        .map(|(_, (name, _))| *name)
        .chain(change)
        .collect()
}

/// Returns whether a sentence denies the treatment that it names: a negation stands before it, with
/// at most [`NEGATION_WORDS_MAX`] words between them.
fn is_denied(sentence: &str) -> bool {
    let all: Vec<&str> = words(sentence).collect();
    let named = |from: usize| {
        let end = (from + 4).min(all.len());
        named_treatments(&all[from..end].join(" ")) != 0
    };
    let Some(at) = (0..all.len()).find(|n| named(*n)) else {
        return false;
    };
    let is_negation =
        |word: &&str| *word == "0" || word_info(word).is_some_and(|info| info.is(flags::NEGATION));
    let from = at.saturating_sub(NEGATION_WORDS_MAX);
    let end = (at + 4).min(all.len());
    all[from..at].iter().any(is_negation) || all[at..end].iter().any(is_negation)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: planned treatments are found, denied and recorded ones aren't reported. Method: a table.
    #[test]
    fn treatments() {
        for (text, expect) in [
            ("scheduled for chemotherapy", vec!["Chemotherapy"]),
            ("the dose will be doubled.", vec!["Change of dose"]),
            ("The dose was doubled.", vec![]),
            (
                "an mri has been ordered.",
                vec!["Magnetic resonance imaging"],
            ),
            (
                "will undergo angioplasty with a stent.",
                vec!["Angioplasty", "Stent"],
            ),
            ("sera submetida a cirurgia", vec!["Surgery"]),
            ("no chemotherapy is planned", vec![]),
            ("received physiotherapy", vec![]),
            ("persistent pain treated", vec![]),
            ("seen by a physiotherapist, has a surgeon.", vec![]),
            ("tem um cirurgiao e recebe visitas", vec![]),
            ("anticoagulants were started", vec!["Anticoagulant"]),
            ("recebeu anti-inflamatorios", vec!["Anti-inflammatory"]),
            ("treated with corticosteroids", vec!["Corticosteroid"]),
            ("chemotherapy", vec![]),
            ("also takes a multivitamin", vec!["Supplement"]),
        ] {
            let recorded = named_treatments("physiotherapy twice a week");
            assert_eq!(unrecorded_treatments(text, recorded), expect, "{text}");
        }
        assert!(TREATMENTS.len() < CHANGE_BIT);
        for (class, _) in CLASSES {
            assert!(TREATMENTS.iter().any(|(name, _)| name == class), "{class}");
        }
        assert_eq!(
            unrecorded_treatments("takes a statin", treatments_of("atorvastatin")),
            Vec::<&str>::new()
        );
    }
}
