//! Vocabulary of the rules in English and Portuguese, lower case without accents; and the splitting
//! of text into words.

use std::sync::LazyLock;

use WordRole::*;

use callboard_message::text::{WordTable, fold, is_one_of, normalize, word_table};

/// Role of a vocabulary word in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordRole {
    /// Request verb: `show`.
    Verb,
    /// Plural reference to patients: `patients`, `those`.
    Patients,
    /// Word for a patient's record: `chart`.
    Record,
    /// Word for a patient's medications: `drugs`.
    Medication,
    /// Word for taking a medicine: `takes`, `prescribed`, `on`.
    Taking,
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
    /// Word such as `then`, which ends a sentence like a full stop.
    Stop,
    /// Negation: `not`, `except`. The planner refuses it.
    Negation,
    /// Verb for changing, sending or copying data. The planner refuses it.
    Change,
    /// Request for a physician's judgement. The planner refuses it.
    Advice,
    /// Request to compare or combine data. The planner refuses it.
    Compare,
    /// Filter that the clinics' tools don't support: age, sex, date, order. The planner refuses it.
    Filter,
    /// Word that introduces a person's name: `named`. The planner refuses it in a fragment without
    /// a patient id.
    NameCue,
    /// Singular reference to a patient, which a name may follow: `patient`, `mrs`. Also counts as
    /// [`Self::Patients`].
    OnePatient,
    /// Filler word that doesn't change the request.
    Filler,
    /// Preposition such as `of` or `de`. Kept only between two words of a search text (`dor de
    /// cabeça`), else ignored.
    Of,
}

const WORD_ROLES: &[(&str, WordRole)] = &[
    (
        "list show display get fetch give see view find search look lookup query check verify review retrieve pull \
         tell read open print count enumerate which what how many identify locate bring \
         liste listar lista listem mostre mostrar mostra exiba exibir veja ver verifique verificar verifica cheque \
         checar consulte consultar consulta busque buscar busca procure procurar encontre encontrar pesquise pesquisar \
         traga trazer obtenha obter quero qual quais quantos quantas conte contar diga identifique",
        Verb,
    ),
    (
        "patients people persons those ones cases pacientes pessoas aqueles aquelas casos doentes",
        Patients,
    ),
    (
        "patient paciente mr mrs ms dr sr sra senhor senhora",
        OnePatient,
    ),
    (
        "record records chart charts file files details detail info information data profile prontuario prontuarios \
              ficha fichas detalhes detalhe informacoes informacao dados registro registros perfil",
        Record,
    ),
    (
        "medication medications medicine medicines meds med drug drugs prescription prescriptions dose doses dosage \
         dosages medicamento medicamentos remedio remedios medicacao medicacoes prescricao prescricoes receita \
         receitas dosagem dosagens posologia",
        Medication,
    ),
    (
        "take takes taking took use uses using prescribed on toma tomam tomando usa usam usando",
        Taking,
    ),
    (
        "their his her its theirs them dele dela deles delas seu sua seus suas",
        Pronoun,
    ),
    (
        "all every everyone everything entire todos todas todo toda tudo",
        All,
    ),
    ("both ambos ambas", Both),
    (
        "clinics hospitals specialties clinicas hospitais especialidades",
        Clinics,
    ),
    ("and or plus also e ou mais tambem but mas", Join),
    ("then afterwards next depois entao", Stop),
    (
        "not don't dont doesn't doesnt isn't aren't except excluding exclude without neither nor never nao sem \
                exceto excluindo nem nunca menos",
        Negation,
    ),
    (
        "delete remove erase drop update change edit modify insert add create send email mail forward export dump \
         download upload transfer share copy write save overwrite cancel schedule book execute run disable enable \
         apague apagar exclua excluir remova remover delete deletar atualize atualizar altere alterar mude mudar edite \
         editar insira inserir adicione adicionar crie criar envie enviar mande mandar exporte exportar baixe baixar \
         copie copiar salve salvar cancele cancelar agende agendar marque marcar execute executar",
        Change,
    ),
    (
        "diagnose diagnosing prescribe recommend recommends recommended suggest advise treat should best better stop \
         start increase reduce adjust cure \
         diagnostique diagnosticar prescreva prescrever receite receitar recomende recomendar sugira sugerir aconselhe \
         aconselhar trate tratar deve devo deveria melhor pare parar inicie iniciar comece comecar aumente aumentar \
         reduza reduzir ajuste ajustar cure curar",
        Advice,
    ),
    (
        "compare comparing join merge combine correlate intersect versus vs cross-reference cross overlap \
               compare comparar junte juntar combine combinar cruze cruzar correlacione correlacionar",
        Compare,
    ),
    (
        "age aged ages old older oldest young younger youngest over under above below between since before after \
         last top recent recently newest latest today yesterday tomorrow week weeks month months year years male \
         female men women sorted sort order average mean idade anos ano mes meses semana semanas acima abaixo entre \
         desde antes ultimo ultimos ultima ultimas primeiros primeiras recentes hoje ontem amanha homens mulheres \
         media",
        Filter,
    ),
    (
        "named called name names surname chamado chamada chamados nome nomes sobrenome",
        NameCue,
    ),
    ("of de da do das dos", Of),
    (
        "a an the two any overview some please kindly thanks thank you hello hi hey can could would will i we me us \
         my our want need like with from in at to by as well who whom whose that this these there is are was were be \
         been being has have had having does did about regarding concerning same currently current active now \
         already just only registered known diagnosed confirmed diagnosis condition conditions disease suffering \
         suffer suffers history treated treatment treating severe mild moderate department departments sector unit \
         clinic hospital specialty center centre ward service database out up into onto if it let let's id ids each \
         other for o os dois duas um uma uns umas por favor obrigado obrigada ola oi voce voces pode poderia podem \
         gostaria preciso com no na nos nas em ao aos pelo pela para pra que quem cujo cuja este esta esse essa isso \
         ha existe existem tem temos estao sao foi foram ser ter tenha tenham possui possuem sobre mesmo mesma \
         atualmente atual ativo ativos agora ja so somente apenas cadastrados cadastradas registrados registradas \
         diagnosticados diagnosticadas diagnosticado diagnosticada diagnostico condicao condicoes doenca sofrem \
         sofre historico tratados tratadas tratamento grave leve moderada moderado setor departamento unidade \
         clinica hospital especialidade me lhe nos se la cada",
        Filler,
    ),
];

/// Names of medical specialties without an ending by which [`is_specialty`] recognises them. A
/// specialty that no registered clinic has is refused, instead of being searched for as a
/// condition.
const SPECIALTIES: &str = "pediatrics paediatrics pediatric psychiatry psychiatric orthopedics orthopaedics orthopedic \
     obstetrics geriatrics dentistry surgery radiotherapy physiotherapy nutrition pediatria psiquiatria ortopedia \
     obstetricia geriatria odontologia cirurgia fisioterapia nutricao";

static ROLES_BY_WORD: WordTable<WordRole> = LazyLock::new(|| word_table(WORD_ROLES));

/// Returns the role of a word in folded form (lower case, without accents). A word that isn't in
/// the vocabulary has the role that it has without its plural `s`; `None` if that isn't either.
pub(super) fn word_role(folded: &str) -> Option<WordRole> {
    ROLES_BY_WORD
        .get(folded)
        .or_else(|| ROLES_BY_WORD.get(singular(folded)))
        .copied()
}

/// Returns whether a word in folded form names a medical specialty, by the list or by its ending,
/// such as `-ology` or `-ologia`. Related words with `-ologist`, `-ologista` or `-ological` count
/// too.
pub(super) fn is_specialty(folded: &str) -> bool {
    const ENDINGS: &str = "ology ologist ologists ologia ologista ologistas ological";
    ENDINGS.split(' ').any(|ending| folded.ends_with(ending)) || is_one_of(folded, SPECIALTIES)
}

/// Token of a query's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QueryToken {
    Word(QueryWord),
    /// Comma or similar sign (`&`, `/`, `+`, `:`): the words after it may continue the clause.
    Join,
    /// End of a sentence: `.`, `?`, `!`, `;` or a line break.
    Stop,
}

impl QueryToken {
    pub fn as_word(&self) -> Option<&QueryWord> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Word of a query, in the forms that the rules compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryWord {
    /// Word in lower case with accents. This form is sent to clinics.
    pub text: String,
    /// Word in lower case without accents.
    pub folded: String,
    /// Whether the word starts with a capital letter.
    pub is_capitalized: bool,
}

impl QueryWord {
    /// Returns whether the word equals another one in folded form, apart from a plural `s`.
    pub fn equals_singular(&self, folded: &str) -> bool {
        singular(&self.folded) == singular(folded)
    }
}

/// Removes a final plural `s` from a word of more than three letters. Both sides of a comparison
/// are reduced, so words such as `diabetes` still match.
pub(super) fn singular(folded: &str) -> &str {
    if folded.len() > 3 {
        folded.strip_suffix('s').unwrap_or(folded)
    } else {
        folded
    }
}

/// Abbreviated titles. A full stop after them doesn't end a sentence.
const TITLES: &str = "dr dra mr mrs sr sra";

/// Splits the text of a query, or a phrase of the registry, into words and separators. Other signs,
/// such as quotation marks, are dropped.
pub(super) fn tokenize(text: &str) -> Vec<QueryToken> {
    let chars: Vec<char> = normalize(text).chars().collect();
    let mut tokens = Vec::new();
    let mut word = String::new();
    for (at, &c) in chars.iter().enumerate() {
        if is_inside_word(&chars, at) {
            word.push(c);
            continue;
        }
        let title = c == '.' && is_one_of(&word.to_lowercase(), TITLES);
        end_word(&mut word, &mut tokens);
        match c {
            '.' if title => {}
            ',' | '&' | '/' | '+' | ':' => tokens.push(QueryToken::Join),
            ';' | '.' | '?' | '!' | '\n' => tokens.push(QueryToken::Stop),
            _ => {}
        }
    }
    end_word(&mut word, &mut tokens);
    tokens
}

/// Returns whether the character at index `at` belongs to a word. Letters, digits, marks and `_`
/// do. A hyphen or apostrophe does only between letters or digits (`CARD-001`, `don't`), and a full
/// stop only between digits (`2.5`).
fn is_inside_word(chars: &[char], at: usize) -> bool {
    let plain = |c: &char| {
        c.is_alphanumeric() || *c == '_' || unicode_normalization::char::is_combining_mark(*c)
    };
    let around = |fits: fn(&char) -> bool| {
        at > 0 && chars.get(at - 1).is_some_and(fits) && chars.get(at + 1).is_some_and(fits)
    };
    match chars[at] {
        '-' | '\'' => around(|c| c.is_alphanumeric()),
        '.' => around(char::is_ascii_digit),
        c => plain(&c),
    }
}

fn end_word(word: &mut String, tokens: &mut Vec<QueryToken>) {
    if !word.is_empty() {
        let (shown, folded) = (word.to_lowercase(), fold(word));
        let capital = word.starts_with(char::is_uppercase);
        tokens.push(QueryToken::Word(QueryWord {
            text: shown,
            folded,
            is_capitalized: capital,
        }));
        word.clear();
    }
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

    /// Goal: ids, contractions and numbers stay whole; signs split. Method: rows.
    #[test]
    fn words_and_signs() {
        let shown = |text: &str| {
            let token = |t| match t {
                QueryToken::Word(w) => w.text,
                QueryToken::Join => ",".into(),
                QueryToken::Stop => ".".into(),
            };
            tokenize(text)
                .into_iter()
                .map(token)
                .collect::<Vec<String>>()
                .join(" ")
        };
        for (text, expect) in [
            ("Get CARD-001, please.", "get card-001 , please ."),
            ("don’t — 2.5 mg", "don't 2.5 mg"),
            ("clinic_a: psoríase?", "clinic_a , psoríase ."),
            ("-a- 'b' a\u{0}b", "a b a b"),
            ("Dr. Silva. Next", "dr silva . next"),
            ("", ""),
        ] {
            assert_eq!(shown(text), expect, "{text:?}");
        }
    }
}
