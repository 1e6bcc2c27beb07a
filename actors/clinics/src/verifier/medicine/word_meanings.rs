//! Words of prescriptions with their meanings, in English and Portuguese.

use std::sync::LazyLock;

use crate::verifier::word_table::WordTable;

use super::model::UnitKind::{self, *};
use super::model::{Routes, Schedule, Times, routes, times};

/// Meanings of one word. A word may have several: `d` is a day and a letter.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WordInfo {
    pub number: Option<SpelledNumber>,
    /// Unit of medicine, and its size in the base unit of its kind.
    pub unit: Option<(UnitKind, f64)>,
    /// Number of times a day that "once in this period" is: 1 for a day.
    pub period: Option<f64>,
    pub schedule: Option<Schedule>,
    pub times: Times,
    pub route: Option<Routes>,
    /// Other meanings, as bits: see [`flags`].
    pub flags: u32,
}

impl WordInfo {
    pub fn is(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Returns whether the word is part of a dose, schedule or route.
    pub fn is_quantity(&self) -> bool {
        self.number.is_some()
            || self.unit.is_some()
            || self.period.is_some()
            || self.schedule.is_some()
    }
}

/// Bits of [`WordInfo::flags`].
pub(super) mod flags {
    /// Word that may stand between a dose and the medicine after it.
    pub const LINK: u32 = 1;
    /// Word that binds a dose to the medicine after it: "50 mg of".
    pub const OF: u32 = 1 << 1;
    pub const ARTICLE: u32 = 1 << 2;
    pub const NEGATION: u32 = 1 << 3;
    /// Word that may stand between an unlisted medicine and its dose.
    pub const FILLER: u32 = 1 << 4;
    /// Word before an amount that is no unlisted medicine.
    pub const ORDINARY: u32 = 1 << 5;
    /// Activity that isn't taking a medicine: a schedule after it isn't that of a medicine.
    pub const ACTIVITY: u32 = 1 << 6;
    /// Word for taking or giving a medicine.
    pub const TAKING: u32 = 1 << 7;
    /// Laboratory value, nutrient or measure: an amount after it is no dose.
    pub const MEASURED: u32 = 1 << 8;
    /// Word between the members of a list.
    pub const AND: u32 = 1 << 9;
    /// Word that applies what follows to all medicines of the sentence.
    pub const EACH: u32 = 1 << 10;
    pub const STOPPED: u32 = 1 << 11;
    pub const AUXILIARY: u32 = 1 << 12;
    /// Preparation for skin or eye, such as a cream.
    pub const PREPARATION: u32 = 1 << 13;
    /// Label of a field: `dose:`, `frequency:`.
    pub const LABEL: u32 = 1 << 14;
    /// Word that contrasts two clauses.
    pub const BUT: u32 = 1 << 15;
    pub const ENGLISH: u32 = 1 << 16;
    pub const PORTUGUESE: u32 = 1 << 17;
    pub const ABOVE: u32 = 1 << 18;
    pub const BELOW: u32 = 1 << 19;
    /// Label of a field that holds a unit.
    pub const UNIT_LABEL: u32 = 1 << 20;
    pub const BEFORE_DURATION: u32 = 1 << 21;
    /// Change of a dose or treatment.
    pub const CHANGE: u32 = 1 << 22;
}

#[derive(Debug, Clone, Copy)]
pub(super) enum SpelledNumber {
    Value(f64),
    /// Part of a whole, such as a half: multiplies a number before it.
    Part(f64),
    Hundred,
    Scale(f64),
}

/// Returns the meanings of a word in folded form; `None` if it has none here.
pub(super) fn word_info(word: &str) -> Option<&'static WordInfo> {
    WORDS.get(word)
}

static WORDS: LazyLock<WordTable<WordInfo>> = LazyLock::new(|| {
    let mut table: WordTable<WordInfo> = WordTable::with_capacity(1536);
    let mut add = |words: &'static str, set: &dyn Fn(&mut WordInfo)| {
        for word in words.split_ascii_whitespace() {
            set(table.or_default(word));
        }
    };
    for (n, words) in (1..).zip(ONE_TO_NINETEEN) {
        add(words, &|w| {
            w.number = Some(SpelledNumber::Value(f64::from(n)))
        });
    }
    for (n, words) in (2..).zip(TENS) {
        add(words, &|w| {
            w.number = Some(SpelledNumber::Value(f64::from(n * 10)))
        });
    }
    for (n, words) in (1..).zip(HUNDREDS) {
        add(words, &|w| {
            w.number = Some(SpelledNumber::Value(f64::from(n * 100)))
        });
    }
    for (words, number) in OTHER_NUMBERS {
        add(words, &|w| w.number = Some(*number));
    }
    for (words, kind, size) in UNITS {
        add(words, &|w| w.unit = Some((*kind, *size)));
    }
    for (words, per_day) in PERIODS {
        add(words, &|w| w.period = Some(*per_day));
    }
    for (words, schedule) in SCHEDULES {
        add(words, &|w| w.schedule = Some(*schedule));
    }
    for (words, bits) in TIMES {
        add(words, &|w| w.times |= *bits);
    }
    for (words, route) in ROUTES {
        add(words, &|w| w.route = Some(*route));
    }
    for (words, flag) in FLAGS {
        add(words, &|w| w.flags |= *flag);
    }
    table
});

const ONE_TO_NINETEEN: &[&str] = &[
    "one um uma",
    "two dois duas couple pair par",
    "three tres",
    "four quatro",
    "five cinco",
    "six seis",
    "seven sete",
    "eight oito",
    "nine nove",
    "ten dez",
    "eleven onze",
    "twelve doze dozen duzia",
    "thirteen treze",
    "fourteen quatorze catorze",
    "fifteen quinze",
    "sixteen dezesseis dezasseis",
    "seventeen dezessete dezassete",
    "eighteen dezoito",
    "nineteen dezenove dezanove",
];
/// Words for twenty, thirty and so on, English and Portuguese.
const TENS: &[&str] = &[
    "twenty vinte",
    "thirty trinta",
    "forty fourty quarenta",
    "fifty cinquenta cinqueta",
    "sixty sessenta",
    "seventy setenta",
    "eighty oitenta",
    "ninety noventa",
];
/// Words for a hundred, two hundred and so on, Portuguese only.
const HUNDREDS: &[&str] = &[
    "cem cento",
    "duzentos duzentas",
    "trezentos trezentas",
    "quatrocentos quatrocentas",
    "quinhentos quinhentas",
    "seiscentos seiscentas",
    "setecentos setecentas",
    "oitocentos oitocentas",
    "novecentos novecentas",
];

const OTHER_NUMBERS: &[(&str, SpelledNumber)] = &[
    ("zero", SpelledNumber::Value(0.0)),
    (
        "half halves halved meio meia metade",
        SpelledNumber::Part(0.5),
    ),
    ("quarter quarters", SpelledNumber::Part(0.25)),
    ("third thirds terco tercos", SpelledNumber::Part(1.0 / 3.0)),
    ("hundred hundreds", SpelledNumber::Hundred),
    ("thousand thousands mil", SpelledNumber::Scale(1e3)),
    ("million millions milhao milhoes", SpelledNumber::Scale(1e6)),
];

const UNITS: &[(&str, UnitKind, f64)] = &[
    (
        "g gm gms gr gram grams gramme grammes grama gramas gramo gramos",
        Mass,
        1e3,
    ),
    (
        "kg kgs kilogram kilograms quilograma quilogramas",
        Mass,
        1e6,
    ),
    (
        "mg mgs milligram milligrams milligramme milligrammes miligram miligrams miligrama miligramas miligramo miligramos",
        Mass,
        1.0,
    ),
    (
        "mcg mcgs ug ugs microgram micrograms microgramme microgrammes micrograma microgramas microgramo microgramos",
        Mass,
        1e-3,
    ),
    ("ng nanogram nanograms nanograma nanogramas", Mass, 1e-6),
    ("pg picogram picograms picograma picogramas", Mass, 1e-9),
    (
        "ml mls millilitre millilitres milliliter milliliters mililitro mililitros cc",
        Volume,
        1.0,
    ),
    ("l litre litres liter liters litro litros", Volume, 1e3),
    (
        "teaspoon teaspoons teaspoonful teaspoonfuls tsp",
        Volume,
        5.0,
    ),
    (
        "tablespoon tablespoons tablespoonful tablespoonfuls tbsp",
        Volume,
        15.0,
    ),
    (
        "iu ius ui uis u unit units unidade unidades unidad unidades",
        Activity,
        1.0,
    ),
    ("miu mu mui", Activity, 1e6),
    ("ku", Activity, 1e3),
    (
        "meq meqs milliequivalent milliequivalents miliequivalentes",
        Equivalent,
        1.0,
    ),
    (
        "mmol mmols millimole millimoles milimol milimoles",
        Mole,
        1.0,
    ),
    ("percent", Percent, 1.0),
    (
        "tablet tablets tab tabs comprimido comprimidos comp comps cp cps cpr pill pills pilula pilulas capsule capsules \
         cap caps capsula capsulas dragea drageas caplet caplets softgel softgels gelcap gelcaps pastilha pastilhas",
        Tablet,
        1.0,
    ),
    ("drop drops gota gotas gtt gtts", Drop, 1.0),
    (
        "puff puffs inhalation inhalations spray sprays jato jatos actuation actuations inalacao inalacoes",
        Puff,
        1.0,
    ),
    ("patch patches adesivo adesivos", Patch, 1.0),
    (
        "vial vials ampoule ampoules ampule ampules ampola ampolas frasco frascos amp amps",
        Vial,
        1.0,
    ),
    (
        "sachet sachets suppository suppositories supositorio supositorios lozenge lozenges envelope envelopes sache \
         saches pessary pessaries ovulo ovulos",
        Piece,
        1.0,
    ),
];

const PERIODS: &[(&str, f64)] = &[
    ("day days d dia dias daily diaria diario 24h", 1.0),
    ("week weeks wk wks semana semanas weekly", 1.0 / 7.0),
    ("fortnight fortnights quinzena quinzenas", 1.0 / 14.0),
    ("month months mo mes meses monthly", 1.0 / 30.0),
    ("trimester trimestre trimestres", 1.0 / 90.0),
    ("semestre semestres", 1.0 / 180.0),
    ("year years yr yrs ano anos yearly annum", 1.0 / 365.0),
    ("hour hours h hr hrs hora horas hourly", 24.0),
    ("min mins minute minutes minuto minutos", 1440.0),
    ("meal refeicao", 3.0),
    (
        "night nights noite noites morning mornings manha manhas evening evenings bedtime afternoon afternoons tarde \
         tardes breakfast lunch dinner supper",
        1.0,
    ),
];

const SCHEDULES: &[(&str, Schedule)] = &[
    ("biweekly", Schedule::times(1.0 / 14.0)),
    (
        "daily diario diaria diarios diarias diariamente",
        Schedule::total(1.0),
    ),
    ("qd od qday qam qpm die sid", Schedule::times(1.0)),
    (
        "nightly qhs hs nocte mane noturno noturna matinal",
        Schedule::day_part(),
    ),
    ("bid bd", Schedule::times(2.0)),
    ("tid tds", Schedule::times(3.0)),
    ("qid qds", Schedule::times(4.0)),
    ("qod eod", Schedule::times(0.5)),
    (
        "weekly semanal semanais semanalmente qw qwk",
        Schedule::times(1.0 / 7.0),
    ),
    ("biw", Schedule::times(2.0 / 7.0)),
    ("tiw", Schedule::times(3.0 / 7.0)),
    (
        "fortnightly quinzenal quinzenais quinzenalmente",
        Schedule::times(1.0 / 14.0),
    ),
    (
        "monthly mensal mensais mensalmente",
        Schedule::times(1.0 / 30.0),
    ),
    (
        "quarterly trimestral trimestralmente",
        Schedule::times(1.0 / 90.0),
    ),
    ("semestral semestralmente", Schedule::times(1.0 / 180.0)),
    (
        "yearly annually anual anualmente",
        Schedule::times(1.0 / 365.0),
    ),
    ("hourly", Schedule::times(24.0)),
];

const TIMES: &[(&str, Times)] = &[
    (
        "morning mornings manha manhas qam mane breakfast matinal desjejum matutino am",
        times::MORNING,
    ),
    (
        "noon midday lunch almoco afternoon afternoons tarde tardes lunchtime vespertino",
        times::MIDDAY,
    ),
    (
        "night nights nightly noite noites evening evenings bedtime bed deitar dormir qhs hs nocte qpm dinner supper jantar \
         noturno noturna pm",
        times::NIGHT,
    ),
    ("monday mondays segunda segundas", times::MONDAY),
    ("tuesday tuesdays terca tercas", times::MONDAY << 1),
    ("wednesday wednesdays quarta quartas", times::MONDAY << 2),
    ("thursday thursdays quinta quintas", times::MONDAY << 3),
    ("friday fridays sexta sextas", times::MONDAY << 4),
    ("saturday saturdays sabado sabados", times::MONDAY << 5),
    ("sunday sundays domingo domingos", times::MONDAY << 6),
];

const ROUTES: &[(&str, Routes)] = &[
    (
        "oral orally po vo oralmente swallowed swallow swallows swallowing engole engolir engolido",
        routes::ORAL,
    ),
    (
        "iv ev intravenous intravenously intravenosa intravenoso endovenosa endovenoso infusion drip infusao intravenosamente",
        routes::INTRAVENOUS,
    ),
    (
        "im intramuscular intramuscularly intramuscularmente",
        routes::INTRAMUSCULAR,
    ),
    (
        "sc sq subcut subq subcutaneous subcutaneously subcutanea subcutaneo",
        routes::SUBCUTANEOUS,
    ),
    (
        "topical topically topica topico topicamente cutaneous cutanea",
        routes::TOPICAL,
    ),
    (
        "inhaled inalatoria inalatorio inalado inalada inhalational inh breathed nebulised nebulized inhalation inalacao",
        routes::INHALED,
    ),
    ("sublingual sublingually sl", routes::SUBLINGUAL),
    (
        "rectal rectally retal suppository supositorio enema",
        routes::RECTAL,
    ),
    ("nasal nasally intranasal intranasally", routes::NASAL),
    ("ophthalmic ophth ocular oftalmica oftalmico", routes::EYE),
    (
        "transdermal transdermally transdermica transdermico",
        routes::TRANSDERMAL,
    ),
    ("vaginal vaginally pessary ovulo", routes::VAGINAL),
    (
        "intrathecal intrathecally epidural intraarticular intracardiac intraosseous intratecal intravitreal intravitrea \
         intraperitoneal intravesical intratympanic articular",
        routes::OTHER,
    ),
    (
        "intralesional intralesionally intralesionalmente",
        routes::INTRALESIONAL,
    ),
    (
        "intradermal intradermally intradermica intradermico",
        routes::INTRADERMAL,
    ),
    ("buccal buccally bucal", routes::BUCCAL),
    (
        "patch patches adesivo adesivos",
        routes::TRANSDERMAL | routes::FORM,
    ),
    ("eyedrops colirio", routes::EYE | routes::FORM),
    (
        "cream ointment gel lotion creme pomada locao",
        routes::TOPICAL | routes::FORM,
    ),
    (
        "inhaler nebuliser nebulizer inalador nebulizador bombinha",
        routes::INHALED | routes::FORM,
    ),
    ("otic otologica otologico eardrops", routes::EAR),
    (
        "injected injection injections injectable parenteral parenterally injetavel injecao injecoes injetado injetada shot jab",
        routes::PARENTERAL,
    ),
];

/// Words for the change of a dose or treatment.
pub(super) const CHANGE_WORDS: &str = "increased increase raised raise reduced reduce lowered lower doubled double halved halve changed \
    change adjusted adjust tapered taper switched switch replaced replace titrated titrate uptitrated \
    aumentado aumentada aumentar reduzido reduzida reduzir diminuido diminuida diminuir dobrado dobrada \
    dobrar ajustado ajustada ajustar trocado trocada trocar substituido substituida substituir alterado \
    alterada alterar";

const FLAGS: &[(&str, u32)] = &[
    (CHANGE_WORDS, flags::CHANGE),
    ("of de do da dos das", flags::OF),
    ("of de do da dos das the oral iv dose doses", flags::LINK),
    ("a an the um uma o", flags::ARTICLE),
    (
        "no not never without denies denied none nobody nothing neither nor nao nenhum nenhuma sem nega nunca ninguem \
         nada absent unknown cannot isn wasn doesn didn aren weren hasn haven don t tampouco nem negou",
        flags::NEGATION,
    ),
    (
        "at a an the of is was dose dosage doses to in with on de do da na em uma um foi dosagem oral orally iv po total \
         about approximately up as for s and ate cerca por com a",
        flags::FILLER,
    ),
    (
        "about added additional administered adjusted amount another approximately around aumentada aumentado average \
         below bolus comprimidos continue continued continues cream current currently daily dosagem doses dosed either \
         every exactly extra first followed full given gives gram increase increased infusion initial initially \
         injection least level levels loading maintenance maximum medication medications medicine medicines medicamento \
         medicamentos minimum mesma needs ointment patient patients paciente pacientes pediatric plus prescribed \
         prescribe prescription quantity receive received receives receiving recebe recebeu reduced remains same second \
         single solution start started starting strength strong syrup tablet tablets takes taking taper tapered target \
         than their then third titrated tomar tomou total treatment twice under using usual weight weighing weighed \
         which within capsules drops dosage toma usava usando recorded records record registered listed listing \
         currently atualmente registrado registrada registro prescrito prescrita dosage posologia respectively \
         respectivamente currently administra administered strength potencia recebendo faz uso utiliza continua mantem \
         keeps maintained mantida mantido stands remains exactly apenas somente only precisely exatos exatamente quantity \
         instead versus against compared between entre sendo being totalling totaling making equals equivalent equivale \
         unchanged inalterada mornings evenings respective latter former divided dividida whose where equal",
        flags::ORDINARY,
    ),
    (
        "check checks checked measure measures measured measuring monitor monitors monitored monitoring visit visits \
         visited walk walks walking exercise exercises exercising review reviews reviewed reviewing appointment \
         appointments session sessions control controls mede medir medida aferir afere aferida caminha caminhada \
         caminhadas consulta consultas retorno retornos exame exames follow followup dialysis dialise hemodialysis \
         physiotherapy fisioterapia phototherapy fototerapia smokes smoke fuma drinks drinking bebe episodes episode \
         episodios attack attacks crises crise seizures seizure convulsoes headaches headache admitted diagnosed \
         diagnosticado diagnosticada internado internada scan scans ecg mri holter readings reading pressure pressao \
         weighs weighed weighing test tests tested symptoms sintomas pain dor wakes urinates age aged idade since desde \
         last ultima ultimo ultimos ultimas ago atras sleeps sleep dorme meals \
         refeicoes repeated repeat repetir exercicio exercicios",
        flags::ACTIVITY,
    ),
    (
        "take takes taking taken took give gives given giving receive receives receiving received administer \
         administered administration use uses using used dose doses dosing dosage frequency schedule toma tomar tomando \
         tomada tomou recebe receber recebendo recebeu usa usar usando usou uso utiliza administrar administrado \
         administrada frequencia posologia apply applied applies aplicar aplica aplicado aplicada inject injects inhale \
         inhales swallow swallows placed inserted instilled colocado colocada instilado tablet tablets prescribed prescription prescrito prescrita on medication faz em",
        flags::TAKING,
    ),
    (
        "albumin albumina albuminuria proteinuria creatinine creatinina glucose glicose glycemia glicemia cholesterol \
         colesterol triglycerides triglicerides ldl hdl hemoglobin hemoglobina ferritin ferritina troponin troponina bnp \
         tsh psa crp pcr urea sodium sodio salt sal protein proteina proteinas alcohol alcool ethanol fibre fiber carbohydrate \
         carbohydrates carboidratos sugar acucar level levels nivel niveis serum serico serica plasma concentration \
         concentracao trough urine urina excretion excrecao ratio razao bilirubin bilirrubina platelets leukocytes \
         leucocitos inr dimer caffeine cafeina fat gordura birthweight peso weight calcium calcio intake diet dieta water agua fluid fluids \
         liquid liquids liquido liquidos wine vinho beer cerveja coffee cafe milk leite juice suco",
        flags::MEASURED,
    ),
    ("and e plus com mais with nor or ou", flags::AND),
    (
        "both each all ambos ambas cada todos todas respectively respectivamente",
        flags::EACH,
    ),
    (
        "stopped discontinued withdrawn halted ceased suspended suspenso suspensa suspensos suspendeu interrompido \
         interrompida interrompeu descontinuado descontinuada parou cessou abandonou retirado retirada",
        flags::STOPPED,
    ),
    (
        "is was are were be been being has have had does do did foi foram e esta estao sido ser nao consta constam ha \
         that was",
        flags::AUXILIARY,
    ),
    (
        "cream ointment gel lotion shampoo solution creme pomada locao colirio foam espuma",
        flags::PREPARATION,
    ),
    (
        "dose dosage dosing strength amount frequency schedule interval route via dosagem posologia frequencia intervalo \
         potencia concentracao unit units unidade medication medicine drug name medicamento nome remedio sig value valor \
         timing qty quantity quantidade",
        flags::LABEL,
    ),
    ("unit units unidade unidades uom", flags::UNIT_LABEL),
    (
        "but however though although whereas while mas porem contudo entretanto enquanto",
        flags::BUT,
    ),
    (
        "the and daily patient is with for twice every once day takes was tablet tablets per hours at by mouth each of \
         has been taking given night morning to in on weekly doses",
        flags::ENGLISH,
    ),
    (
        "do da ao dia vez vezes por com comprimido comprimidos paciente cada uma um para horas noite manha em toma tomar \
         via e na no dos das pela recebe usa duas dois tres diaria diario semana dias as os foi sob mantem esta uso",
        flags::PORTUGUESE,
    ),
    ("above over exceeding exceeds acima superior", flags::ABOVE),
    ("below under abaixo inferior", flags::BELOW),
    (
        "for por durante during over another next",
        flags::BEFORE_DURATION,
    ),
];
