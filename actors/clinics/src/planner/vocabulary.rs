//! Vocabulary of the rules in English and Portuguese, lower case without accents.

use std::sync::LazyLock;

use WordRole::*;

#[cfg(test)]
use callboard_message::text::fold;
use callboard_message::text::{WordTable, is_one_of, word_table};

use super::tokens::singular;

/// Role of a vocabulary word in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordRole {
    /// Request verb: `show`.
    Verb,
    /// Interrogative that may ask for a definition: `what`.
    What,
    /// Word that asks for a number: `many`.
    Count,
    /// Comparative that asks for the larger number: `more`.
    More,
    /// Word after which the second part of a comparison follows: `than`.
    Than,
    /// Plural reference to patients: `patients`, `those`.
    Patients,
    /// Singular reference to a patient, which a name may follow: `patient`, `mrs`. Also counts as
    /// [`Self::Patients`].
    OnePatient,
    /// Relative or interrogative pronoun for people: `who`.
    Who,
    /// Word for a patient's record: `chart`.
    Record,
    /// Word for a patient's medications: `drugs`.
    Medication,
    /// Word for the dose or schedule of a medication: `dose`. Also counts as [`Self::Medication`].
    Dose,
    /// Word for taking a medicine: `takes`, `prescribed`, `on`.
    Taking,
    /// Word after which a condition follows: `with`, `has`.
    Cue,
    /// Pronoun that refers to a patient: `their`.
    Pronoun,
    /// Word for a whole group: `every`.
    All,
    /// `both`: two conditions together. Also counts as [`Self::All`].
    Both,
    /// Plural word for clinics, which means all clinics.
    Clinics,
    /// Conjunction, which separates fragments like a comma.
    Join,
    /// Conjunction between alternatives, which separates fragments like a comma.
    Or,
    /// Word such as `then`, which ends a sentence like a full stop.
    Stop,
    /// Negation: `not`, `except`. The fragment after it is left out.
    Negation,
    /// Verb for leaving something aside: `ignore`. Its fragment is left out.
    Ignore,
    /// Verb for changing, sending or copying data. The planner refuses it.
    Change,
    /// Verb such as `send`: a request if its receiver is the user, else as [`Self::Change`].
    Send,
    /// Verb such as `repeat`: a request beside what is asked for, else as [`Self::Change`].
    Repeat,
    /// Request for a physician's judgement. The planner refuses it.
    Advice,
    /// Request to combine data of clinics. The planner refuses it.
    Combine,
    /// Filter that the clinics' tools don't support: age, sex, date, dose, order. The planner
    /// refuses it.
    Filter,
    /// Word for a time, such as `today`: a filter where its fragment asks for something.
    Time,
    /// Word that compares or orders, such as `over`: a filter beside a number.
    Relative,
    /// Word that introduces a person's name: `named`. The planner refuses it in a fragment without
    /// a patient id.
    NameCue,
    /// Word for what identifies a person: `address`. A record in a fragment with a patient id; the
    /// planner refuses it elsewhere.
    Identity,
    /// Word for how severe a condition is, which the clinics don't record. It isn't searched, and
    /// the answer tells so.
    Qualifier,
    /// Form of a medicine, such as `cream`: a filler beside a medicine or a patient id, else unknown.
    Form,
    /// Filler word that doesn't change the request.
    Filler,
    /// Word for those who are left, such as `others`: they can be told where something was left out.
    Rest,
    /// Preposition such as `of` or `de`. Kept only between two words of a search text (`dor de
    /// cabeça`), else ignored.
    Of,
}

const WORD_ROLES: &[(&str, WordRole)] = &[
    (
        "list show display get fetch give see view find search look lookup query check verify review retrieve pull \
         tell read open print enumerate which identify locate bring need want lemme gimme furnish \
         liste lista listar listem mostre mostrar mostra mostrem exiba exibir veja ver verifique verificar verifica \
         cheque checar consulte consultar consulta busque buscar busca procure procurar encontre encontrar pesquise \
         pesquisar traga traz trazer obtenha obter quero queria queremos peco pedimos preciso precisamos qual quais diga diz dizer \
         identifique identificar return returns returning abre abra abrir passa passe passem revelar apresentar reveal puxar bringing listing pulling \
         showing de-me da-me indique indicar informar mostrar lembre lembrar localizar enumerar filtrar selecionar \
         listagem precisar ve ves veem verem veres virem vejo vejam vejas vejamos tragam trazes digam digas dizes obtem obtenham queira queiram \
         remind rever revisar analisar analise analyze analyse necessito necessitar solicito solicitar \
         provide produce compile gather collect extract output summarise summarize describe confirm determine \
         select pick choose grab seek require wish supply outline highlight detect discover spot specify state \
         figure detail-me fornecer gerar compilar reunir extrair descrever resumir escolher apontar citar elencar \
         levantar falar arranjar conferir olhar descobrir determinar confirmar mencionar disponibilizar desejar \
         requerer pretender pegar cite confira descubra forneca fornecam requeiro",
        Verb,
    ),
    ("what what's whats wat", What),
    (
        "many count counts number numbers headcount qts qtos qtas quantos quantas quanto quantidade numero total tally conte contar \
         contagem large",
        Count,
    ),
    (
        "more fewer most fewest bigger biggest larger largest smaller smallest longer longest shorter shortest maior menor compare compares comparing comparison versus vs comparar comparacao",
        More,
    ),
    ("than", Than),
    (
        "patients people persons folks individuals outpatients inpatients clients guys pts ppl those ones cases whoever anyone anybody everyone everybody someone somebody takers any1 every1 \
         users subjects sufferers survivors roster census caseload cohort victims utilizadores vitimas population populacao \
         pacientes pessoas aqueles aquelas casos doentes utentes usuarios individuos clientes malta galera pctes pcts pacs alguem portador portadora portadores portadoras",
        Patients,
    ),
    (
        "patient pt person outpatient inpatient client pessoa individuo paciente doente utente usuario pcte pac pct mr mrs ms dr sr sra senhor senhora",
        OnePatient,
    ),
    ("who who's whos whose whom who've quem qm", Who),
    (
        "record records chart charts file files details detail info information data profile notes note findings \
         prontuario prontuarios ficha fichas detalhes detalhe informacoes informacao dados registro registros \
         registo registos perfil processo processos notas anotacao anotacoes observacao observacoes",
        Record,
    ),
    (
        "medication medications medicine medicines meds med drug drugs prescription prescriptions pills tablets \
         regimen rx script scripts regimens \
         medicamento medicamentos remedio remedios medicacao medicacoes prescricao prescricoes receita receitas \
         farmaco farmacos comprimidos esquema esquemas",
        Medication,
    ),
    (
        "dose doses dosage dosages strength strengths horario horarios frequency schedule dosing freq dosagem dosagens posologia frequencia",
        Dose,
    ),
    (
        "take takes taking took taken use uses using used prescribed on receive receives receiving medicated treated \
         therapy treatment treatments therapies therapeutic taken prescribing consume consumes started \
         toma tomam tomando tomar usa usam usando usar uso recebe recebem recebendo medicado medicada medicados \
         medicadas tratado tratada tratados tratadas tratamento tratamentos terapia receitado receitada receitados receitadas prescrito prescrita \
         prescritos prescritas prescreveu prescreveram receitou receitaram terapeutica utilizar iniciou gave inject injects injecting swallow swallows swallowed",
        Taking,
    ),
    (
        "with have has had having got gets suffering suffer suffers suffered carry carries experienced mention mentions mentioned \
         experience experiences experiencing apresenta apresentam com tem tenha tenham possui possuir sofrer padecer",
        Cue,
    ),
    (
        "their his her hers its theirs them it they eles elas dele dela deles delas seu sua seus suas",
        Pronoun,
    ),
    (
        "all every everything entire whole todos todas todo toda tudo each cada inteiro inteira inteiros inteiras",
        All,
    ),
    (
        "both common comum together simultaneously concurrently ambos ambas simultaneamente juntos juntas",
        Both,
    ),
    (
        "clinics hospitals specialties clinicas hospitais especialidades",
        Clinics,
    ),
    ("and plus also e tambem but mas mais porem", Join),
    ("or ou", Or),
    ("then afterwards next depois entao", Stop),
    (
        "not don't dont doesn't doesnt isn't isnt aren't arent haven't havent hasn't hasnt tirando retirando descontando removing except excluding exclude without outside exception lacking besides neither nor never \
         off minus nada nao jamais sem exceto excecao excepcao excepto excluindo nem nunca menos salvo",
        Negation,
    ),
    (
        "excluded excluido excluida excluidos excluidas excluem ignore disregard omit omitir skip forget scrap tira tire ignorar esqueca esquece esquecer desconsiderar",
        Ignore,
    ),
    (
        "delete remove erase drop change edit modify insert add create forward export rename replace \
         download upload transfer save overwrite cancel disable enable reschedule book appointment \
         appointments translate decode release encode obey pretend register \
         apagar exclua excluir remover deletar atualizar altere alterar mudar editar insira inserir adicionar criar \
         exportar baixar salvar cancelar agende agendar marque marcar remarcar traduza traduzir liberar desligue \
         desligar desativar acrescentar anotar decodifique finja eliminar trocar substitua substituir",
        Change,
    ),
    (
        "send fax email e-mail mail share dump update copy write draft mandar envie enviar copiar escreva escrever",
        Send,
    ),
    ("repeat run execute repita repetir executar rodar", Repeat),
    (
        "diagnose diagnosing prescribe recommend recommends recommended recommendation suggest suggestion advise advice treat should \
         best better stop start increase decrease reduce raise double halve switch adjust titrate taper cure safe \
         dangerous harmful explain define meaning means interaction interactions contraindication contraindications \
         contraindicated kill kills killing overdose lethal letal matar mataria side-effect side-effects prognosis predict ought \
         diagnostique diagnosticar prescreva prescrever receite receitar recomende recomendar sugira sugerir aconselhe \
         aconselhar trate tratar deve devo devemos deveria deveriamos dobrar duplicar melhor pare parar inicie iniciar comece comecar aumente aumentar \
         reduza reduzir ajustar diminuir suspender curar explicar explique significa significado interacao \
         interacoes contraindicacao contraindicacoes efeitos prognostico effect effects conselho recomendacao perigoso posso",
        Advice,
    ),
    (
        "join merge combine combined combination combinacao correlate intersect intersection intersecao interseccao cross-reference cross overlap overlapping junte juntar combine combinar cruze \
         cruzar correlacione correlacionar",
        Combine,
    ),
    (
        "milligram milligrams microgram micrograms miligrama miligramas micrograma microgramas route routes velho velha velhos velhas age aged ages old older oldest young younger youngest elderly recent recently newest latest male males female \
         females man men woman women boy boys girl girls sorted sort average mg mcg ug ml adults child children \
         teenager teenagers sixty seventy eighty ninety hundred forty fifty thirty \
         twenty idade anos ano recentes homens homem mulheres mulher idoso idosa idosos idosas jovens criancas maiores \
         menores masculino feminino newly stopped discontinued quit refused refuse refuses declined declines avoid avoids avoided avoiding lack lacks lacked deny denies denied dislike dislikes \
         evitar evita evitam evitou evitaram evitando negar nega negam negou negaram parou pararam suspendeu suspenderam largou largaram recusou \
         recusaram interrompeu interromperam vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
        Filter,
    ),
    (
        "january february march april june july august september october november december monday \
         tuesday wednesday thursday friday saturday sunday janeiro fevereiro abril maio junho julho agosto setembro \
         outubro novembro dezembro today yesterday tomorrow week weeks month months year years tonight hoje ontem amanha semana semanas mes meses",
        Time,
    ),
    (
        "over under above below between since before after last top order mean acima abaixo entre desde antes ultimo \
         ultimos ultima ultimas primeiros primeiras media",
        Relative,
    ),
    (
        "named called name names surname chamado chamada chamados nome nomes sobrenome apelido",
        NameCue,
    ),
    (
        "address addresses telemovel telemoveis cellphone cellphones postcode phone phones telephone telephones cpf cpfs ssn ssns rg birthday birthdate birthdates birth \
         dob passport identity identities endereco enderecos morada moradas telefone telefones celular nascimento \
         identidade identidades contact contacts contato contatos insurance nif zip zips zipcode zipcodes initials iniciais cep ceps",
        Identity,
    ),
    (
        "childhood infancia removed excised operated resolved healed suspected severe mild moderate grave graves leve leves moderada moderado moderados serious acute recurrent persistent \
         uncontrolled controlled chronic cronico cronica stable unstable estavel instavel advanced avancado avancada aguda agudo recorrente persistente controlada controlado descontrolada continuo continuous continuously regular regularly regularmente continuamente",
        Qualifier,
    ),
    (
        "rest others remaining resto restante restantes demais outros outras",
        Rest,
    ),
    ("of de da do das dos del", Of),
    (
        "injection injections injected shot shots jab jabs cream creams ointment ointments drops capsule capsules \
         inhaler inhalers infusion infusions patch patches injecao injecoes pomada pomadas creme cremes gotas \
         capsula capsulas adesivo adesivos",
        Form,
    ),
    (
        "a an the two three any love hope hoping wonder wondering happen happens curious appreciate appreciated cheers thx \
         tks sec minute bother question questions wanted wants trying try colleague boss meeting audit call duty think maintained include includes included including lot lots bunch much kind kinds straight fine sure maybe perhaps apparently \
         basically simply nowadays lately overview some please pls plz kindly thanks thank you hello hi hey can could would will \
         may might shall i we me us my our ours i'm i'd i'll i've we're you're they're she he like from in at to by as well that this these there \
         here is are was were be been being am does did done doing about regarding concerning same currently \
         current active now already just only still yet ever once history historico registered listed recorded known diagnosed confirmed \
         diagnosis condition conditions disease diseases disorder disorders illness problem problems trouble issue \
         issues case seen followed departments department sector unit clinic hospital specialty center \
         centre ward service database system out up into onto if let let's id ids forgot remember other another for so such \
         very too across among within during through per via available existing present getting given \
         full complete how when where why while because whether moment time good morning afternoon \
         evening day ok okay yes nobody say says know interested looking waiting back \
         \
         books help helps ask asks asking asked earlier answer answers directly usual request requests said told previous previously first second third firstly finally either pressa helping looking looked needs needed often enrolled belong belongs belonging \
         assigned attending attend attends visiting visit visits comes come remain working work shift rounds \
         round treating treats manage managed managing monitor monitored monitoring follows care cared \
         caring handle handled sorry story exactly single individual individually separately alone \
         apart line lines item items thing things summary report reports entries entry \
         roll group groups altogether mind possible quick brief short kept keep keeps held \
         hold put gone down away came your following particular specific certain one own again really actually quickly quick asap \
         affected living follow-up enough go along \
         o os as dois duas tres um uma uns umas algum alguma alguns algumas qualquer quaisquer por favor obrigado \
         obrigada ola oi bom boa dia tarde noite faz voce voces pode poderia podem podia gostaria no na nos nas em ao \
         aos pelo pela pelos pelas para pra pro que cujo cuja este esta esse essa isso isto aquele aquela aquilo \
         ha existe existem temos estao sao foi foram era eram ser sendo sido ter tido teve tiveram tiver \
         sobre mesmo mesma atualmente atual atuais ativo ativos agora ja so somente apenas ainda cadastrado cadastrada \
         cadastrados cadastradas registado registada registados registadas motivo razao registrados registradas diagnosticados diagnosticadas diagnosticado diagnosticada \
         diagnostico condicao condicoes doencas problema problemas setor departamento unidade clinica especialidade \
         me lhe nos se la aqui ali ai vez como onde quando porque ate sob durante dentro acompanha acompanhamos \
         acompanhados gente nosso nossa nossos nossas meu minha meus minhas estou estamos esta ta tao fazem fazer \
         andam anda saber sabe ajuda ajudar sim outro outra muito muita presente \
         frequentam atende atendidos atendemos \
         acompanhamento vao vou ir cuidados cuida cuidamos trata tratamos desculpa desculpe individual \
         separado separadamente grupo grupos resumo relatorio coisa coisas lugar seguimos ficam fica \
         ficar mantem vindo vem vir afinal sera seria haver haja deixe deixa quer assim bem pergunta duvida obg valeu colega reuniao plantao turno mundo rol gentileza gostava inscrito inscrita inscritos inscritas houver facam pf pfv codigo codigos code codes relacao algo eu ele ela disse pedi falei anterior existentes disponiveis seguido seguida seguidos seguidas momento tempo agradeco completo completa geral integral overall alright acesso access receber licenca vinculado vinculada vinculados vinculadas fall falls \
         noon midday midnight lunch lunchtime breakfast dinner shortly soon urgent urgently immediately fast \
         rapidly hurry rush busy handover rundown breakdown snapshot recap briefing picture idea sense luck seeing \
         dealing coping struggling facing battling brilliant great awesome perfect nice lovely cool super wonderful \
         excellent welcome grateful honestly frankly literally essentially hopefully ideally preferably \
         specifically particularly especially generally usually normally presently believe guess suppose assume \
         heard noticed confused unsure hence therefore thus however though although anyway otherwise meanwhile \
         somewhere anywhere everywhere anything something whatever whichever able ready glad happy excuse pardon \
         wth u ur r n teh hav hve wich primeiro primeira segundo terceiro terceira continua continuam segue \
         permanece permanecem rapido rapida rapidinho urgente depressa imediatamente beleza blz tchau abraco \
         abracos grato grata atenciosamente cumprimentos saudacoes caro prezado prezados pessoal consegue consegues \
         conseguir consegui poderias podias pudesse acho creio penso imagino suponho aproximadamente exatamente \
         especificamente principalmente geralmente normalmente entretanto contudo todavia alias portanto logo pois \
         vivem vive viver convivem convive conviver vivendo convivendo almoco jantar cedo q oq vc vcs tb tbm cmg msm \
         mt mto td tds dps pq acometido acometidos afetado afetados nisso disso daqui dai nela nele deste desta \
         desse dessa neste nesta nesse nessa num numa nuns numas dum duma set sets conjunto conjuntos dx hx enumeration enumeracao revisao habitual habituais recon reconciliation \
         reconciliacao conciliacao huddle filing paperwork inspection accreditation spreadsheet presentation conference \
         registry auditoria auditorias conferencia passagem inspecao acreditacao planilha apresentacao passada visita mim \
         auditing pedem pediram pede comecei rather scratch strike meant correction errei enganei enganei-me minto corrigindo espera \
         pessoais jeito sickness survey o'clock oclock we've we'd we'll you've you'll yeah yep uh uhm erm hmm oops identifier identifiers identificador identificadores possible possibly possivel possiveis chance agradecer agradecia agradecido agradecida \
         agradecidos instead anymore constar consta constam constem side room estejam esteja estiver estiverem sites wherever whenever arrived prescritor",
        Filler,
    ),
];

/// Maximum words of an idiom.
pub(super) const IDIOM_WORDS_MAX: usize = 4;

/// Phrases that mean nothing beside a request, though their words may.
const IDIOMS: [&str; 71] = [
    "peco desculpa",
    "peco imensa desculpa",
    "at all",
    "should be grateful",
    "should be most grateful",
    "should be very grateful",
    "i should like",
    "com alguma urgencia",
    "com muita urgencia",
    "ao telefone",
    "to phone",
    "at present",
    "junto com",
    "com urgencia",
    "hoje em dia",
    "on call",
    "on duty",
    "on shift",
    "on the ward",
    "on the phone",
    "on the line",
    "on the books",
    "on hand",
    "side by side",
    "lado a lado",
    "com certeza",
    "com cuidado",
    "com calma",
    "com licenca",
    "com antecedencia",
    "sem pressa",
    "sem falta",
    "sem demora",
    "sem problema",
    "sem mais",
    "mais nada",
    "nada mais",
    "no rush",
    "no hurry",
    "no worries",
    "no problem",
    "not urgent",
    "without delay",
    "nothing else",
    "nothing more",
    "with thanks",
    "with pleasure",
    "why not",
    "be a pain",
    "por causa",
    "best regards",
    "best wishes",
    "all the best",
    "before i forget",
    "antes que me esqueca",
    "antes que eu esqueca",
    "not being funny",
    "full stop",
    "ponto final",
    "right now",
    "right away",
    "by the way",
    "as soon as possible",
    "at once",
    "on second thought",
    "on the way",
    "mais uma vez",
    "once more",
    "one more time",
    "more or less",
    "mais ou menos",
];

/// Returns the number of words of an idiom that begins with these words, in folded form; `None` if none does.
pub(super) fn idiom_words(words: &[&str]) -> Option<usize> {
    let words_of = |idiom: &str| idiom.split(' ').count();
    let is_begun = |idiom: &&str| {
        words_of(idiom) <= words.len()
            && idiom
                .split(' ')
                .eq(words.iter().copied().take(words_of(idiom)))
    };
    IDIOMS.iter().copied().find(is_begun).map(words_of)
}

/// Names of medical specialties without an ending by which [`is_specialty`] recognises them. A
/// specialty that no registered clinic has is refused, instead of being searched for as a
/// condition.
const SPECIALTIES: &str = "pediatrics paediatrics pediatric paediatric psychiatry psychiatric psychiatrist orthopedics \
     orthopaedics orthopedic orthopaedic obstetrics obstetric geriatrics geriatric dentistry dentist radiotherapy \
     physiotherapy nutrition pediatria pediatra psiquiatria psiquiatra ortopedia ortopedista obstetricia obstetra \
     geriatria geriatra odontologia dentista fisioterapia nutricao gastro oncologic oncologico oncologicos \
     oncologica onco haemato hemato nephro nefro pneumo pulmo endocrino uro gyn gyno gineco ophthalmo oftalmo ent otorrino \
     rheumato reumato neuro cardio derm derma dermato psych psiq ortho orto peds maternity maternidade emergency emergencia urgencia icu uti physio \
     fisio dental";

static ROLES_BY_WORD: WordTable<WordRole> = LazyLock::new(|| word_table(WORD_ROLES));

/// Returns the role of a word in folded form (lower case, without accents). A word that isn't in
/// the vocabulary has the role that it has without its plural `s`, without an attached pronoun
/// (`diz-me`), or as the infinitive of a Portuguese verb (`apaga`, `sofreram`); `None` if none of
/// these is in it.
pub(super) fn word_role(folded: &str) -> Option<WordRole> {
    let known = |word: &str| {
        let role = ROLES_BY_WORD.get(word);
        role.or_else(|| ROLES_BY_WORD.get(singular(word))).copied()
    };
    let role = |word: &str| {
        let role = known(word).or_else(|| verb_role(word));
        role.or_else(|| inflected_role(word))
            .or_else(|| adverb_role(word))
            .or_else(|| gerund_role(word))
    };
    role(folded).or_else(|| role(without_pronoun(folded)?))
}

/// Returns the role of a Portuguese adverb by its adjective: `urgentemente`.
fn adverb_role(folded: &str) -> Option<WordRole> {
    let adjective = folded.strip_suffix("mente")?;
    let role = ROLES_BY_WORD.get(adjective).copied();
    let role = role.or_else(|| inflected_role(adjective));
    role.filter(|role| matches!(role, Filler | Qualifier))
}

/// Returns the role of an English verb from its form with `-ing`: `finding`, `carrying`.
fn gerund_role(folded: &str) -> Option<WordRole> {
    let stem = folded.strip_suffix("ing")?;
    let undoubled = stem.get(..stem.len().saturating_sub(1)).unwrap_or_default();
    let forms = [stem.to_owned(), format!("{stem}e"), undoubled.to_owned()];
    let role = forms
        .into_iter()
        .find_map(|form| ROLES_BY_WORD.get(form.as_str()).copied());
    role.filter(|role| matches!(role, Verb | Cue | Taking | Change | Send))
}

/// Returns the role of a noun or adjective by another form of it: its plural, or in Portuguese the other
/// gender (`caso` by `casos`, `separadas` by `separado`). Only words that tell who or what is asked for,
/// and fillers, have other forms.
fn inflected_role(folded: &str) -> Option<WordRole> {
    const LETTERS_MIN: usize = 4;
    if folded.len() < LETTERS_MIN {
        return None;
    }
    let stem = singular(folded);
    let other_gender = match (stem.strip_suffix('a'), stem.strip_suffix('o')) {
        (Some(stem), _) => Some(format!("{stem}o")),
        (_, Some(stem)) => Some(format!("{stem}a")),
        _ => None,
    };
    let known = |form: String| ROLES_BY_WORD.get(form.as_str()).copied();
    let plural = known(format!("{folded}s"));
    let of_other_gender = || {
        let stem = other_gender.as_ref()?;
        known(stem.clone()).or_else(|| known(format!("{stem}s")))
    };
    plural
        .filter(|role| matches!(role, Patients | Medication | Form | Filler | Qualifier))
        .or_else(|| of_other_gender().filter(|role| matches!(role, Filler | Qualifier)))
}

/// Returns a Portuguese verb without the pronoun that a hyphen attaches to it; `None` if there is none.
fn without_pronoun(folded: &str) -> Option<&str> {
    const PRONOUNS: &str = "me nos lhe lhes te se o a os as lo la los las";
    let (verb, pronoun) = folded.rsplit_once('-')?;
    is_one_of(pronoun, PRONOUNS).then_some(verb)
}

/// Returns the role of a Portuguese verb, by its infinitive, from a regular form of it.
fn verb_role(folded: &str) -> Option<WordRole> {
    /// Endings of the present tense and of orders, by the infinitive's ending.
    const PRESENT: [(&str, &str); 3] = [
        (
            "ar",
            "a as am amos o e es em ando arem asse assem aria ariam",
        ),
        (
            "er",
            "e es em emos o a as am endo erem esse essem eria eriam",
        ),
        (
            "ir",
            "e es em imos o a as am indo irem isse issem iria iriam",
        ),
    ];
    /// Endings of the past and of participles.
    const PAST: [(&str, &str); 3] = [
        ("ar", "ou aram ava avam ei aste ado ada ados adas"),
        ("er", "eu eram ia iam ido ida idos idas"),
        ("ir", "iu iram ia iam ido ida idos idas"),
    ];
    const STEM_LETTERS_MIN: usize = 2;
    // "apague", "marque", "corrija": before other vowels, the same sound is spelled differently.
    const RESPELLED: [(&str, &str); 4] =
        [("gue", "gar"), ("que", "car"), ("ja", "gir"), ("ja", "ger")];
    let bare = folded.strip_suffix(['m', 's']).unwrap_or(folded);
    let respelled = RESPELLED.into_iter().find_map(|(ending, infinitive)| {
        let stem = bare.strip_suffix(ending)?;
        ROLES_BY_WORD.get(&*format!("{stem}{infinitive}")).copied()
    });
    let infinitive = |(infinitive, endings): (&str, &str)| {
        let stems = endings.split(' ').filter_map(|e| folded.strip_suffix(e));
        stems
            .filter(|stem| stem.len() >= STEM_LETTERS_MIN)
            .find_map(|stem| ROLES_BY_WORD.get(&*format!("{stem}{infinitive}")).copied())
    };
    let requests = |role: &WordRole| {
        matches!(
            role,
            Verb | Taking | Cue | Change | Send | Repeat | Advice | Combine | Ignore | More
        )
    };
    // "alterado" tells a state, which nobody requests.
    let tells = |role: &WordRole| matches!(role, Verb | Taking | Cue);
    let present = PRESENT.into_iter().find_map(infinitive).or(respelled);
    present
        .filter(requests)
        .or_else(|| PAST.into_iter().find_map(infinitive).filter(tells))
}

/// Returns the words of the vocabulary that a misspelt word may stand for: those that request, and
/// those for patients and their data. None of them turns a question into its opposite.
pub(super) fn role_words() -> impl Iterator<Item = &'static str> {
    let is_plain = |role: WordRole| {
        matches!(
            role,
            Verb | Count
                | Cue
                | Patients
                | OnePatient
                | Record
                | Medication
                | Dose
                | Taking
                | Clinics
        )
    };
    WORD_ROLES
        .iter()
        .filter(move |(_, role)| is_plain(*role))
        .flat_map(|(words, _)| words.split_ascii_whitespace())
}

/// Returns whether a word in folded form names a medical specialty, by the list or by its ending,
/// such as `-ology` or `-ologia`. Related words with `-ologist`, `-ologista` or `-ological` count
/// too.
pub(super) fn is_specialty(folded: &str) -> bool {
    const ENDINGS: &str = "ology ologist ologists ologia ologista ologistas ological";
    ENDINGS.split(' ').any(|ending| folded.ends_with(ending)) || is_one_of(folded, SPECIALTIES)
}

/// Function words that only English has, and that only Portuguese has, among those of a question. `do` is in both.
const ENGLISH: &str = "the with patients patient who which have has and of is are what how show on any all from for or we does an you many";
const PORTUGUESE: &str = "os com pacientes paciente quais que de da dos das em quem tem doentes para ao na nas mostre ou mais gente temos pra uma \
     um nao sem por qual quantos quantas ha esta estou tenho pelo pela";

/// Returns whether a question with these words, in folded form, has no more of Portuguese than of
/// English.
pub(super) fn is_english<'a>(words: impl Iterator<Item = &'a str>) -> bool {
    let score = words
        .map(|word| i32::from(is_one_of(word, ENGLISH)) - i32::from(is_one_of(word, PORTUGUESE)));
    score.sum::<i32>() >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no word has two meanings, and all are written as they are compared. Method: walk the table.
    #[test]
    fn every_word_means_one_thing() {
        let (mut seen, mut twice) = (std::collections::HashMap::new(), Vec::new());
        for (words, known) in WORD_ROLES {
            for word in words.split_ascii_whitespace() {
                assert_eq!(fold(word), word);
                // The same word in both languages is no conflict.
                let before = seen.insert(word, *known).filter(|b| b != known);
                twice.extend(before.map(|before| (word, before, *known)));
            }
        }
        assert_eq!(twice, []);
    }
}
