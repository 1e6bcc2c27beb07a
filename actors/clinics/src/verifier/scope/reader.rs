//! Address of the reader: pronouns, vocatives, and clauses about whoever reads, in English and
//! Portuguese. A record never addresses its reader, so that there any address is a finding.

use callboard_message::is_one_of;

use super::lexicon::*;
use super::sentence::{JOINED, LABELLED, OPENS, Token};

/// Names by which a text addresses a program or a person who reads it.
const READERS: &str = "ai assistant assistants chatbot bot llm reader readers asker enquirer inquirer viewer viewers \
    assistente assistentes leitor leitora leitores ia";
/// Names that address the reader only as a vocative: "dear friend, …".
const VOCATIVES: &str = "friend friends stranger human user users visitor you system curious curioso curiosa amigo amiga amigos \
    model visitante desconhecido estranho utilizador utilizadora usuario usuaria sistema modelo colega colegas";
/// Words before a vocative.
const GREETINGS: &str = "dear hello hi hey to any you caro cara prezado prezada meu minha senhor senhora ola oi ao a \
    aos as querido querida our nossos nossas language ai virtual digital linguagem";
/// Pronouns of any person.
const ANY_PERSON: &str = "whoever anyone anybody everyone everybody those someone somebody you next quem qualquer todos \
    alguem tu voce voces one";
/// Nouns of any person, who may be the reader by what a relative clause says.
const PERSONS: &str = "person people client clients colleague colleagues relative lady gentleman mother father user users \
    caller human pessoa pessoas senhora senhor senhores colega colegas cliente clientes familiar mae pai utilizador \
    usuario curioso";
/// Verbs of reading and asking, in the present.
const READING: &str = "read reads reading open opens opening view views viewing consult consults consulting see sees \
    seeing looks looking access accesses accessing summarise summarises summarising summarize summarizes summarizing \
    browse browses browsing query queries querying scroll scrolls scrolling le ler leia leem leiam lendo abre abrir abra \
    abrem abrirem consulta consultar consulte consultam acede aceder aceda acessa acessar acesse ve vir veja resume \
    resumir resuma recebe receber recebem receive receives pesquisa pesquisar pesquise";
/// Verbs of asking, which only [`ANY_PERSON`] does as a reader.
const ASKING: &str = "ask asks asking enquires enquiring inquires inquiring requests requesting types typing pergunta \
    perguntar pergunte perguntarem pede pedir peca pedirem";
/// Words between a person and the verb of a relative clause.
const LINKS: &str =
    "who that is are be may might happens que me nos isto isso esta estiver a e ever else";
/// Places in front of which a reader sits.
const SCREENS: &str =
    "screen chat keyboard monitor terminal portal app ecra tela teclado aplicativo";

/// Returns whether a sentence has a name of a reader, or tells something to whoever asks.
pub(super) fn names_reader(tokens: &[Token<'_>]) -> bool {
    let asks = |n: usize| {
        let next = tokens.get(n + 1).map_or("", |next| next.word);
        tokens[n].is(TELL) && matches!(next, "quem" | "whoever" | "anyone")
    };
    (0..tokens.len()).any(|n| is_one_of!(tokens[n].word, READERS) || asks(n))
}

/// Returns whether a sentence addresses the reader by a pronoun, "thank you" aside.
pub(super) fn has_you(tokens: &[Token<'_>]) -> bool {
    tokens.iter().enumerate().any(|(n, token)| {
        let before = n.checked_sub(1).map(|at| &tokens[at]);
        let is_clitic = token.has(JOINED)
            && (matches!(token.word, "te" | "vos")
                || token.word == "lhe" && before.is_some_and(|verb| !verb.is(PAST | SAID | TOLD)));
        (token.is(YOU) || is_clitic)
            && before.is_none_or(|word| !matches!(word.word, "thank" | "thanking"))
    })
}

/// Returns whether a sentence addresses whoever reads it: "reader, …", "whoever opens this file",
/// "a pessoa do outro lado".
pub(super) fn addresses_reader(tokens: &[Token<'_>]) -> bool {
    (0..tokens.len()).any(|n| {
        let word = tokens[n].word;
        is_vocative(tokens, n)
            || is_one_of!(word, ANY_PERSON) && reads(tokens, n, true)
            || is_one_of!(word, PERSONS) && (reads(tokens, n, false) || is_across(tokens, n))
    })
}

fn is_vocative(tokens: &[Token<'_>], n: usize) -> bool {
    let word = tokens[n].word;
    let is_reader = is_one_of!(word, READERS);
    if !is_reader && !is_one_of!(word, VOCATIVES) || word == "you" {
        return false;
    }
    let ends = tokens
        .get(n + 1)
        .is_none_or(|next| next.has(OPENS) && !next.is(NUMBER));
    let is_label = tokens.get(n + 1).is_some_and(|next| next.has(LABELLED));
    let before = n.checked_sub(1).map_or("", |at| tokens[at].word);
    let greets = is_one_of!(before, GREETINGS)
        && (is_reader || is_label || !is_one_of!(before, "to a ao as aos"))
        || is_one_of!(word, "leitor leitora leitores") && before == "o";
    // "Friend, stop the tablets" but not "a friend, who had stopped".
    ends && (tokens[n].has(OPENS) || greets) || is_reader && greets && before != "a"
}

/// Returns whether a relative clause, participle or verb after the person at `n` says that the person
/// reads. A noun needs a clause about this text, a pronoun doesn't.
fn reads(tokens: &[Token<'_>], n: usize, is_pronoun: bool) -> bool {
    let links = |token: &&Token<'_>| is_one_of!(token.word, LINKS);
    let rest = &tokens[n + 1..];
    let linked = rest.iter().take(4).take_while(links).count();
    let has_clause = linked > 0 && is_one_of!(rest[0].word, "who that que is");
    let names_this = |from: usize| {
        let object = rest.iter().skip(from).take(4);
        let is_this = |t: &Token<'_>| {
            t.is(DOCUMENT)
                || is_one_of!(
                    t.word,
                    "this these along isto isso este esta estas aqui here"
                )
        };
        object.into_iter().any(is_this)
    };
    // "Quem esta lendo": the link is the verb too.
    (0..=linked).filter(|at| *at < rest.len()).any(|at| {
        let verb = rest[at].word;
        let is_person =
            is_pronoun && !matches!(tokens[n].word, "you" | "those" | "someone" | "one");
        is_one_of!(verb, READING)
            && (is_person
                || (has_clause || verb.ends_with("ing")) && (is_pronoun || names_this(at + 1)))
            || is_one_of!(verb, ASKING) && (is_person || verb == "asking")
            || is_one_of!(verb, ASKING) && n > 0 && tokens[n - 1].is(IF)
            || is_person && is_one_of!(verb, "has have got holds tem") && names_this(at + 1)
    })
}

/// Returns whether the person at `n` sits before a screen or at the other end.
fn is_across(tokens: &[Token<'_>], n: usize) -> bool {
    let rest = &tokens[n + 1..tokens.len().min(n + 7)];
    let word = |at: usize| rest.get(at).map_or("", |t| t.word);
    let sits = |at: usize| {
        is_one_of!(word(at), SCREENS)
            && (at.saturating_sub(2)..at)
                .any(|n| is_one_of!(word(n), "at on behind of no na ao pelo pela da do"))
    };
    (1..rest.len()).any(sits)
        || is_one_of!(word(0), "on at")
            && rest
                .windows(2)
                .any(|pair| pair[0].word == "other" && is_one_of!(pair[1].word, "end side"))
        || word(0) == "do" && word(1) == "outro" && word(2) == "lado"
}
