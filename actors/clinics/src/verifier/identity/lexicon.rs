//! Meanings of single words, by which names, numbers, dates and addresses are recognised.

use std::sync::LazyLock;

use crate::verifier::word_table::WordTable;

/// Meanings of a word, one bit each.
pub(super) type Meaning = u32;

/// End of a street's name, in English.
pub(super) const STREET: Meaning = 1;
/// Such an end that is hardly ever anything else.
pub(super) const SURE_STREET: Meaning = 1 << 1;
/// Beginning of a street's name, in Portuguese, Spanish, French and Italian.
pub(super) const STREET_START: Meaning = 1 << 2;
/// Such a beginning after which a capitalised word is enough, without a number.
pub(super) const SURE_START: Meaning = 1 << 3;
/// Word between the parts of a name or street.
pub(super) const PARTICLE: Meaning = 1 << 4;
/// Part of a building.
pub(super) const UNIT: Meaning = 1 << 5;
/// Word that may stand between a label and its number.
pub(super) const FILLER: Meaning = 1 << 6;
/// Word of birth.
pub(super) const BIRTH: Meaning = 1 << 7;
/// Event: a date beside it isn't one of birth.
pub(super) const EVENT: Meaning = 1 << 8;
/// Sex or age.
pub(super) const SEX_OR_AGE: Meaning = 1 << 9;
/// Unit of measurement.
pub(super) const MEASURE: Meaning = 1 << 10;
/// Title of a person.
pub(super) const TITLE: Meaning = 1 << 11;
/// Title of a doctor or professor.
pub(super) const DOCTOR: Meaning = 1 << 12;
/// Profession in a clinic, which may stand before a name.
pub(super) const STAFF: Meaning = 1 << 13;
/// Word for a patient.
pub(super) const PATIENT: Meaning = 1 << 14;
/// Relative or contact.
pub(super) const RELATIVE: Meaning = 1 << 15;
/// Word that introduces a name, such as "named".
pub(super) const INTRODUCES: Meaning = 1 << 16;
/// Disease, sign, test or device: a name before it may be that of its discoverer.
pub(super) const DISCOVERY: Meaning = 1 << 17;
/// Institution or place.
pub(super) const INSTITUTION: Meaning = 1 << 18;
/// Institution that stands before its name.
pub(super) const INSTITUTION_FIRST: Meaning = 1 << 19;
/// Verb of which a person is the subject.
pub(super) const PERSON_VERB: Meaning = 1 << 20;
/// Verb of speech.
pub(super) const SPEECH: Meaning = 1 << 21;
/// Names a scheme of identification, such as `CPF`.
pub(super) const SCHEME: Meaning = 1 << 22;
/// May stand before an id, such as `identifier`.
pub(super) const NUMBER_LABEL: Meaning = 1 << 23;
/// Names a telephone.
pub(super) const TELEPHONE: Meaning = 1 << 24;
/// May stand before a telephone number, such as `call`.
pub(super) const CALL: Meaning = 1 << 25;
/// Verb or noun of residence or origin.
pub(super) const RESIDENCE: Meaning = 1 << 26;
/// Word that stands for an address.
pub(super) const ADDRESS_LABEL: Meaning = 1 << 27;
/// Token that ends an address at its label.
pub(super) const CLAUSE: Meaning = 1 << 28;
/// Name of a month, or word of a number in a date. Every date in words begins with one.
pub(super) const DATE_WORD: Meaning = 1 << 29;

const ROWS: &[(Meaning, &str)] = &[
    (
        STREET,
        "street st avenue ave road rd lane ln drive dr boulevard blvd court ct place pl square sq terrace crescent close \
         mews parkway pkwy highway hwy circle row gardens grove walk trail turnpike alley loop plaza ridge heights \
         crossing quay hill rise grange croft meadow cove bend wharf way mission spurs mountains squares greens mall crossroad parks gate bypass station",
    ),
    (
        SURE_STREET,
        "street avenue road lane boulevard terrace crescent drive court parkway highway",
    ),
    (
        STREET_START,
        "rua avenida av travessa alameda praca rodovia estrada largo viela via calle rue carrer strada piazza viale \
         vicolo conjunto condominio residencial recanto vereda chacara sitio fazenda esplanada ladeira loteamento morro \
         nucleo parque passarela patio quadra setor trecho trevo vale vila favela lagoa lago jardim colonia campo \
         avenue boulevard chemin impasse quai allee cours paseo plaza camino rda ronda bairro beco calcada \
         urbanizacao quinta praceta azinhaga escadinhas monte casal",
    ),
    (
        SURE_START,
        "rua avenida travessa alameda rodovia calle carrer",
    ),
    (
        PARTICLE,
        "de da do dos das del della di du des la le les el los las l d of the e y van der den von am im zum zur nad u ten \
         ter bin al dal dalla af av zu",
    ),
    (
        UNIT,
        "apt apartment suite flat studio unit plot apto apartamento bloco andar sala casa room floor fraccao",
    ),
    (
        FILLER,
        "number numbers no num numero nr n is was are e of for the a her his my your their our its it plan health de do \
         da o as on at me us him them pelo pela em para to under this that code main home work card id security social \
         insurance record registration member policy tax federal nacional uk br pt issued eh actual current new ext \
         and or ou account medical license licence driver driving drivers national office daytime emergency preferred \
         telephone phone mobile hospitalar clinico medico trabalho residence saude",
    ),
    (
        BIRTH,
        "dob born birth birthdate birthday bday nascimento nascido nascida nasceu nasc dn aniversario nacimiento nacido \
         nacida naissance geboren geburtsdatum geb ddn nee yob",
    ),
    (
        EVENT,
        "seen visit visited admitted admission discharged discharge since until reviewed review appointment scan exam \
         examined surgery operated started onset diagnosed updated consulta consultado atendido visto vista visita \
         internado internada alta desde cirurgia exame iniciado iniciou retorno agendado was is has had on in em no na \
         at por by presented",
    ),
    (
        SEX_OR_AGE,
        "male female m f sex sexo gender masculino feminino age aged old yo y anos idade idoso woman man boy girl homem \
         mulher menino menina masc fem rapaz rapariga lady gentleman",
    ),
    (
        MEASURE,
        "mg g ml mcg ug kg l iu ui units unidades mmol mmhg bpm h hours horas days dias weeks semanas years anos months \
         meses tablets tablet comprimidos mm cm min minutes minutos",
    ),
    (
        TITLE,
        "mr mrs ms miss mx sr sra srta dona senhor senhora sir madam mister herr frau mme monsieur madame senor senora",
    ),
    (
        DOCTOR,
        "dr dra dres doctor doctors doutor doutora prof professor professora drs",
    ),
    (
        STAFF,
        "nurse nurses enfermeira enfermeiro surgeon cardiologist dermatologist neurologist physician gp consultant \
         resident intern therapist psychologist midwife cardiologista dermatologista neurologista medico medica cirurgiao \
         cirurgia anestesista obstetrician gynaecologist gynecologist radiologist anaesthetist anesthesiologist dietitian \
         enf enfa residente nutricionista pediatra ortopedista fisioterapeuta psicologa psicologo pharmacist farmaceutico farmaceutica oncologist pediatrician registrar \
         attending",
    ),
    (
        PATIENT,
        "pt patient patients paciente pacientes utente utentes client cliente doente member user subject ptnt pcte aluno aluna",
    ),
    (
        RELATIVE,
        "wife husband mother father son daughter sister brother partner spouse uncle aunt cousin niece nephew grandmother \
         grandfather grandson granddaughter mom mum dad carer caregiver guardian kin contact fiance fiancee girlfriend \
         boyfriend stepmother stepfather neighbour neighbor friend esposa esposo marido mulher mae pai filho filha irma \
         irmao companheiro companheira tia tio prima primo avo neto neta cuidador cuidadora responsavel contato contacto \
         namorada namorado sobrinho sobrinha vizinha vizinho amiga amigo acompanhante kid baby genro nora sogra sogro \
         madrinha padrinho witness testemunha nok",
    ),
    (
        INTRODUCES,
        "name names nome forename forenames firstname lastname nomes named called i'm chamado chamada chamo surname sobrenome apelido signed assinado regards sincerely \
         atenciosamente alias nombre nom re attn cumprimentos obrigado obrigada hi hello dear caro cara ola prezado \
         prezada abraco hey oi cheers thanks",
    ),
    (
        DISCOVERY,
        "disease diseases syndrome syndromes sign signs test tests score scores scale scales criteria criterion classification \
         palsy lymphoma sarcoma tumor tumour phenomenon reflex maneuver manoeuvre procedure murmur disorder dementia \
         ulcer fracture contracture thyroiditis anemia anaemia index equation formula catheter stain agar body bodies cell \
         cells node nodes operation law method technique ataxia chorea arteritis encephalopathy esophagus oesophagus \
         hernia triad stage type grade class granulomatosis angina paralysis nodule nodules line lines angle pouch \
         ring rings duct gland glands tooth monitor pump tube drain bag splint position patch device valve vaccine \
         virus bacillus bacteria fever lesion lesions sarcoidosis purpura arthritis nephropathy neuropathy \
         retinopathy cirrhosis gangrene pneumonia thyroid goitre goiter struma oedema edema pain rash spots spot \
         papules osteodystrophy dystrophy atrophy calculation correction estimate clearance rule count risk staging \
         receptor receptors fibers fibres filament loop space membrane layer island islets capsule ligament tendon \
         muscle nerve artery vein canal sinus cyst abscess polyp carcinoma melanoma naevus nevus exam examination \
         doenca doencas sindrome sinal sinais teste escala escore indice reflexo mal sonda cateter criterio criterios \
         classificacao tumor linfoma anemia paralisia manobra manobras prova protese placa fio tala fratura lesao \
         reacao anel",
    ),
    (
        INSTITUTION,
        "hospital hospitals clinic clinics center centre institute university foundation school college street avenue \
         road county city district day study trial group award prize infirmary laboratory laboratories lab labs company \
         inc ltd manor memorial lodge home house residence llc plc corporation corp pharma pharmaceuticals instituto \
         clinica universidade fundacao airport park river island bay church museum pharmacy library practice surgery \
         medical ward unit department trust association society partners investments consulting technologies \
         incorporated orchestra ave st rd town village building tower wing pavilion farmacia laboratorio",
    ),
    (
        INSTITUTION_FIRST,
        "hospital clinica clinic instituto institute fundacao foundation universidade university escola rua avenida santa \
         saint st sao escala centro center laboratorio maternidade colegio santo school college policlinica upa ubs \
         ambulatorio unidade lar igreja church praca travessa bairro municipio cidade city museum parque aeroporto",
    ),
    (
        PERSON_VERB,
        "reports reported says said denies denied complains complained presents presented lives lived was is has had takes \
         took asked asks called calls works worked states stated describes described arrived attends attended came \
         needs needed wants feels felt refuses refused returns returned underwent suffers weighs smokes drinks \
         relata refere nega queixa apresenta mora vive foi esta tem toma disse veio comparece usa trabalha retorna",
    ),
    (
        SPEECH,
        "says said asks asked told disse writes wrote replied adds added",
    ),
    (
        SCHEME,
        "ssn ssns cpf rg cnpj nhs nif cns sus aadhaar aadhar passport passports passaporte mrn prontuario npi crm coren \
         pesel bsn dni nie nino iban curp rut cedula utente security insurance apolice licence license cnh taxpayer \
         identidade identity nationality sns sin chi hcn phn tin ppsn pps mbi ihi tfn nin amka ahv nir nis pis pasep ctps titulo \
         eleitor citizen voter driving condutor conducao cidadao medicare medicaid hic hicn gmc nmc \
         nric fin pan emirates personnummer bvn steuer fiscale codice niss ehic fodselsnummer personnel cpr hkid \
         social rne rnm cro inss",
    ),
    (
        NUMBER_LABEL,
        "identifier identifiers identificador identificacao identification id ids member beneficiario beneficiary account \
         conta card cartao carteira carteirinha subscriber enrollment enrolment employee student staff apolice hosp \
         permit visa badge wristband unit registration policy documento document record registro registo matricula chart processo hospital \
         patient paciente",
    ),
    (
        TELEPHONE,
        "phone phones telephone tel telefone telefones telemovel mobile cell cellphone celular fax whatsapp landline fone \
         whats zap tlm tlf telefono",
    ),
    (
        CALL,
        "call called calls calling contact contacted contacto contato reach reached reachable ligue ligar liga dial ring \
         text sms answering answer messages registered contate",
    ),
    (
        RESIDENCE,
        "lives live lived living resides residing reside born resident native originally comes moved here hails relocated \
         mora moro vive vivo residente moradora morador nascido nascida domiciliado domiciliada natural naturais \
         procedente oriundo oriunda city town cidade hometown birthplace naturalidade municipio",
    ),
    (ADDRESS_LABEL, "address endereco morada direccion adresse"),
    (CLAUSE, "and with e com who que"),
    (DATE_WORD, MONTHS),
    (DATE_WORD, NUMBER_WORDS),
];

/// Names of months, in English, Portuguese and Spanish.
pub(super) const MONTHS: &str = "jan january janeiro enero feb february fev fevereiro febrero mar march marco marzo apr \
    april abr abril may mai maio mayo jun june junho junio jul july julho julio aug august ago \
    agosto sep sept september set setembro septiembre oct october out outubro octubre nov \
    november novembro noviembre dec december dez dezembro diciembre";

/// Number words of dates, in English and Portuguese.
pub(super) const NUMBER_WORDS: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen \
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand oh and \
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth \
    sixteenth seventeenth eighteenth nineteenth twentieth thirtieth um dois tres quatro cinco seis sete oito nove dez \
    onze doze treze catorze quatorze quinze dezasseis dezesseis dezassete dezessete dezoito dezanove dezenove vinte \
    trinta quarenta cinquenta sessenta setenta oitenta noventa cem cento mil novecentos primeiro";

static MEANINGS: LazyLock<WordTable<Meaning>> = LazyLock::new(|| {
    let mut all: WordTable<Meaning> = WordTable::with_capacity(1_024);
    for (meaning, words) in ROWS {
        for word in words.split_ascii_whitespace() {
            *all.or_default(word) |= *meaning;
        }
    }
    all
});

/// Returns the meanings of a word in lower case; 0 if it has none.
pub(super) fn meaning_of(word: &str) -> Meaning {
    MEANINGS.get(word).copied().unwrap_or_default()
}
