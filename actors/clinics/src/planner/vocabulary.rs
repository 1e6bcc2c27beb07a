//! The words that the rules know, English and Portuguese, lower case without accents.

use std::sync::LazyLock;

use Known::*;

use callboard_message::text::{Meanings, fold, is_one_of, meanings, plain};

/// Role of a known word in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Asks for something.
    Verb,
    /// Patients, or those of them that were named before.
    Patients,
    /// One patient's record.
    Record,
    /// A patient's medicines.
    Medication,
    /// Says that patients take a medicine.
    Taking,
    /// Points back at a patient: `their`.
    Pronoun,
    /// All of something.
    All,
    /// Two of something, together.
    Both,
    /// More than one clinic.
    Clinics,
    /// Like a comma.
    Join,
    /// Like a full stop.
    Stop,
    /// `not`, `except`: what isn't wanted.
    Negation,
    /// Would change, send or copy something.
    Change,
    /// Asks for a physician's judgement.
    Advice,
    /// Puts two clinics' patients side by side.
    Compare,
    /// Age, date and amount, which the tools don't look at.
    Filter,
    /// A person's name follows.
    NameCue,
    /// One patient, whose name may follow.
    OnePatient,
    /// Says nothing about what is asked.
    Filler,
    /// Joins the words of one condition: `doença de pele`.
    Of,
}

const WORDS: &[(&str, Known)] = &[
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

/// Specialties, so that one without a clinic here is refused by name and not taken for a condition.
const SPECIALTIES: &str = "pediatrics paediatrics pediatric psychiatry psychiatric orthopedics orthopaedics orthopedic \
     obstetrics geriatrics dentistry surgery radiotherapy physiotherapy nutrition pediatria psiquiatria ortopedia \
     obstetricia geriatria odontologia cirurgia fisioterapia nutricao";

static BY_WORD: Meanings<Known> = LazyLock::new(|| meanings(WORDS));

/// Looks a folded word up, also without a plural `s`.
pub(super) fn known(folded: &str) -> Option<Known> {
    BY_WORD
        .get(folded)
        .or_else(|| BY_WORD.get(singular(folded)))
        .copied()
}

/// Whether a folded word is the name of a medical specialty, by the list or by its ending (`-ology`, `-ologia`).
pub(super) fn is_specialty(folded: &str) -> bool {
    const ENDINGS: &str = "ology ologist ologists ologia ologista ologistas ological";
    ENDINGS.split(' ').any(|ending| folded.ends_with(ending)) || is_one_of(folded, SPECIALTIES)
}

/// A piece of the user's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// A comma or the like: what follows may go on with what came before.
    Join,
    /// The end of a sentence.
    Stop,
}

impl Token {
    pub fn word(&self) -> Option<&Word> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// One word in the forms that the rules compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// Lower case, as the user wrote it otherwise: what a clinic is asked for.
    pub shown: String,
    /// Without accents as well.
    pub folded: String,
    /// Whether it was written with a capital letter.
    pub capital: bool,
}

impl Word {
    /// Whether two words differ at most by a plural `s`.
    pub fn is(&self, folded: &str) -> bool {
        singular(&self.folded) == singular(folded)
    }
}

/// The word without one plural `s`. Used on both sides of a comparison, so `diabetes` stays comparable.
pub(super) fn singular(folded: &str) -> &str {
    if folded.len() > 3 {
        folded.strip_suffix('s').unwrap_or(folded)
    } else {
        folded
    }
}

/// Abbreviations whose point doesn't end a sentence.
const TITLES: &str = "dr dra mr mrs sr sra";

/// Splits a text into words and the signs between them.
pub(super) fn tokenize(text: &str) -> Vec<Token> {
    let chars: Vec<char> = plain(text).chars().collect();
    let mut tokens = Vec::new();
    let mut word = String::new();
    for (at, &c) in chars.iter().enumerate() {
        if in_word(&chars, at) {
            word.push(c);
            continue;
        }
        let title = c == '.' && is_one_of(&word.to_lowercase(), TITLES);
        end_word(&mut word, &mut tokens);
        match c {
            '.' if title => {}
            ',' | '&' | '/' | '+' | ':' => tokens.push(Token::Join),
            ';' | '.' | '?' | '!' | '\n' => tokens.push(Token::Stop),
            _ => {}
        }
    }
    end_word(&mut word, &mut tokens);
    tokens
}

/// Letters, digits and marks; hyphen, apostrophe and point only between two of them (`CARD-001`, `don't`, `2.5`).
fn in_word(chars: &[char], at: usize) -> bool {
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

fn end_word(word: &mut String, tokens: &mut Vec<Token>) {
    if !word.is_empty() {
        let (shown, folded) = (word.to_lowercase(), fold(word));
        let capital = word.starts_with(char::is_uppercase);
        tokens.push(Token::Word(Word {
            shown,
            folded,
            capital,
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
        for (words, known) in WORDS {
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
                Token::Word(w) => w.shown,
                Token::Join => ",".into(),
                Token::Stop => ".".into(),
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
