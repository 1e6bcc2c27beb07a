//! Talk about health in a frame that only advice has, whatever its words: a modal verb, an order, an
//! opinion, a judgement, a guess, a general truth or the second person, near a medicine, a
//! treatment, a way of living, a part of the body or a condition. Statements about records and
//! about the program, and referrals to a doctor, have the same frames and are excused.

use callboard_message::{is_one_of, word_set};

use super::disclaimers::names_source;
use super::hit::{Address, Hit};
use super::lexicon::*;
use super::reading::SentenceReading;
use super::reports::is_report;
use super::sentence::{JOINED, LABELLED, OPENS, is_nominal};

/// Maximum distance, in words, from a frame to what it says about health.
const NEAR_WORDS: usize = 12;
/// Maximum number of words of a clause before and after a frame that may excuse it.
const CLAUSE_WORDS: usize = 14;

/// Participles of what the program or a clinic does with a question.
const LOOKED_UP: &str = "found looked shown listed asked answered searched checked read done matched named reached \
    given told compared joined combined displayed retrieved lida lido lidas lidos mostrada mostrado mostrados encontrada listada \
    listados apresentada consultada obtida respondida comparados";
/// Verbs of what a person of care is referred to for.
const DECIDING: &str = "see check turn decision decisao decisoes procure procurar speak ask consult decide decides decided say says tell judge assess determine discuss know explain \
    advise help answer contact talk speak confirm only put directed addressed referred colocada colocadas colocados dirigidas feitas encaminhadas decidir decide avaliar avalia dizer diga consultar consulte \
    fale falar pergunte perguntar contacte contate cabe compete confirme confirmar ajudar discuta discutir converse so";
/// Imperfects of helping that stand for a conditional.
const WOULD_HELP: &str = "resolvia curava tratava ajudava esclarecia confirmava";
/// Verbs of living that are advice without an object.
const WAYS_OF_LIVING: &str = "sleep rest exercise stretch meditate relax lie gargle durma descanse repouse caminhe relaxe respire \
    emagreca gargareje deite";
/// Participles of what a record holds, after a form of `be`.
const FILED: &str = "booked planned scheduled due dated printed scanned attached signed pending renewed marcado marcada \
    agendado agendada previsto prevista arquivado arquivada guardado guardada anexado anexada assinado assinada renovado \
    renovada mentioned named noted entered filed stored written quoted cited described mencionado mencionada citado \
    citada escrito escrita referido referida descrito descrita";
/// Persons and places of care that a referral to is a decision about treatment.
const REFERRED: &str = "surgeon therapist psychologist dietitian nutritionist emergency er ambulance hospital urgencia urgencias \
    pronto-socorro pronto upa cirurgiao psicologo psicologa terapeuta nutricionista";
const AGAINST_CARE: &str = "advising against medical care";
const PRESCRIBING: &str = "prescribing";
const DIAGNOSING: &str = "diagnosing";

/// Appends the general advice of a sentence to `hits`.
pub(super) fn find(r: &SentenceReading<'_, '_>, hits: &mut Vec<Hit>) {
    let talk = TalkReading::new(r);
    for n in 0..r.tokens.len() {
        if r.covered[n] {
            continue;
        }
        let found = match r.is_question {
            true => talk.suggests(n),
            false => talk.frame(n),
        };
        hits.extend(found);
    }
    hits.extend(talk.unsourced());
}

/// Returns whether a word of no class looks like a past form.
fn is_past_form(word: &str) -> bool {
    const IRREGULAR: &str = "came went got felt became grew fell broke hung lost kept left lay slept ran sat stood spoke rose \
        sank began found saw held led met sent spent told thought veio fez teve deu quis pode foi spread hurt cut put set let hit shut";
    const ENDINGS: &str = "ou eu iu aram eram iram ava avam ed";
    is_one_of!(word, IRREGULAR) || word.len() > 4 && word_set!(ENDINGS).ends(word, 2)
}

/// Returns whether a word names a specialist, or a place where one is.
fn is_specialist(word: &str) -> bool {
    let endings = ["ologist", "ologista", "iatra", "iatrist"];
    is_one_of!(word, REFERRED) || endings.iter().any(|ending| word.ends_with(ending))
}

/// Sentence with what each of its words says about health.
struct TalkReading<'r, 'a, 't> {
    r: &'r SentenceReading<'a, 't>,
    health: Vec<bool>,
    /// Whether the sentence forbids a change without medical advice, leaves a judgement to care, or
    /// names the source of what it says of a patient.
    is_safeguard: bool,
}

impl<'r, 'a, 't> TalkReading<'r, 'a, 't> {
    fn new(r: &'r SentenceReading<'a, 't>) -> Self {
        let health = (0..r.tokens.len())
            .map(|n| !r.covered[n] && r.is_health(n))
            .collect();
        let forbids = (0..r.tokens.len()).find(|n| r.is(*n, NEG));
        let is_left_to_care = (0..r.tokens.len()).any(|n| r.is_left_to_care(n));
        let is_safeguard = is_left_to_care
            || names_source(r)
            || forbids.is_some_and(|from| {
                (from..r.tokens.len())
                    .any(|n| r.is(n, HESITATE) && r.any(n + 1, n + 8, CARE | ROLE))
            });
        Self {
            r,
            health,
            is_safeguard,
        }
    }

    fn frame(&self, n: usize) -> Option<Hit> {
        const FRAMES: Class = OBLIGE
            | ABLE
            | WILL
            | YOU
            | ACT
            | ACT_NOUN
            | LIVING
            | CHAIN
            | SEEK
            | JUDGE
            | NEEDLESS
            | OPINION
            | HEDGE
            | CONCLUDE
            | GENERAL
            | HELP
            | EFFECT
            | RISK
            | NUMBER
            | HAVE
            | DETERMINER
            | DENIAL
            | PARTICLE;
        let is_word = || {
            is_one_of!(
                self.r.word(n),
                "ha era us like up fewer plenty lots maximum maximo most ate",
            ) || self.r.end == '?'
        };
        if !self.r.is(n, FRAMES) && !is_word() && !is_one_of!(self.r.word(n), WOULD_HELP) {
            return None;
        }
        self.modal(n)
            .or_else(|| self.personal(n))
            .or_else(|| self.order(n))
            .or_else(|| self.judged(n))
            .or_else(|| self.opinion(n))
            .or_else(|| self.uncertain(n))
            .or_else(|| self.usual(n))
            .or_else(|| self.effect(n))
            .or_else(|| self.safe(n))
            .or_else(|| self.nominal(n))
            .or_else(|| (self.r.end == '?').then(|| self.suggests(n)).flatten())
    }

    fn hit(&self, n: usize, other: usize, kind: &'static str, reader: bool) -> Option<Hit> {
        Some(Hit {
            at: n.min(other),
            end: n.max(other),
            kind,
            address: Address::reader_if(reader),
        })
    }

    fn prescribes(&self, n: usize, other: usize) -> Option<Hit> {
        self.hit(n, other, PRESCRIBING, self.r.has_you)
    }

    /// Returns the place nearest to `n` that is about health: a word, or a change of treatment with
    /// a pronoun, as in "halve that".
    fn matter(&self, n: usize) -> Option<usize> {
        let until = self.r.tokens.len().min(n + 1 + NEAR_WORDS);
        (n + 1..until)
            .chain((n.saturating_sub(NEAR_WORDS)..n).rev())
            .find(|at| self.health[*at] || self.changes_it(*at))
    }

    fn health_in(&self, from: usize, to: usize) -> Option<usize> {
        (from..to.min(self.health.len())).find(|at| self.health[*at])
    }

    /// Returns whether the word at `n` is a change of treatment of a pronoun.
    fn changes_it(&self, n: usize) -> bool {
        let r = self.r;
        let is_now = r.is(n, BASE | INFINITIVE | POLITE | GERUND | CONDITIONAL) && r.is(n, CHANGE);
        let next = r.tokens.get(n + 1);
        is_now
            && next.is_some_and(|next| {
                matches!(next.word, "it" | "that" | "them" | "this" | "isso" | "isto")
                    || next.has(JOINED) && next.word.len() <= 3
            })
    }

    /// Returns whether the word at `n` is a verb of treatment or living in a form that isn't past.
    fn is_action(&self, n: usize) -> bool {
        let forms = BASE | INFINITIVE | POLITE | GERUND | CONDITIONAL;
        self.r.is(n, ACT | LIVING) && self.r.is(n, forms) || self.r.is(n, ACT_NOUN)
    }

    /// Returns the range of the clause around `n`.
    fn clause(&self, n: usize) -> (usize, usize) {
        let r = self.r;
        let ends = |at: usize| r.tokens[at].has(OPENS) && at > 0;
        let joins =
            |at: usize| is_one_of!(r.word(at), "but so therefore that que mas porque because");
        let from = (n.saturating_sub(CLAUSE_WORDS)..=n)
            .rev()
            .find(|at| ends(*at) || joins(*at))
            .unwrap_or(n.saturating_sub(CLAUSE_WORDS));
        let until = r.tokens.len().min(n + 1 + CLAUSE_WORDS);
        let to = (n + 1..until).find(|at| ends(*at)).unwrap_or(until);
        (from, to)
    }

    /// Returns whether the clause of the frame at `n` speaks of records or of the program.
    fn is_excused(&self, n: usize) -> bool {
        let r = self.r;
        let (from, to) = self.clause(n);
        let is_recorded = (from..to).any(|at| {
            (r.is(at, RECORDED) || is_one_of!(r.word(at), FILED))
                && r.any(at.saturating_sub(3), at, IS | WAS | HAVE | NEG)
        });
        is_recorded
            || r.any(from, n, SYSTEM | DOCUMENT)
            || r.any(n + 1, to.min(n + 7), SYSTEM)
            || self.defers(from, to)
            || self.is_safeguard
    }

    /// Returns the specialist or place after the verb at `n` that it refers somebody to.
    fn referred(&self, n: usize) -> Option<usize> {
        let r = self.r;
        let seeks = r.is(n, SEEK)
            || is_one_of!(
                r.word(n),
                "let book schedule arrange agende agendar seen reviewed assessed examined visto vista avaliado avaliada",
            );
        let until = r.tokens.len().min(n + 7);
        (n + 1..until).find(|at| seeks && is_specialist(r.word(*at)))
    }

    /// Returns whether a clause refers to a person of care: "only a physician can say …".
    fn defers(&self, from: usize, to: usize) -> bool {
        let r = self.r;
        let Some(person) = (from..to).find(|at| r.is(*at, ROLE | CARE)) else {
            return false;
        };
        let decides = (from..to)
            .any(|at| self.r.tokens[at].word.len() > 1 && is_one_of!(r.word(at), DECIDING));
        let asks_for =
            (person + 1..to).any(|at| r.word(at) == "for" && self.health_in(at, at + 5).is_some());
        let changes = (from..person)
            .any(|at| r.is(at, CHANGE) && r.is(at, BASE | INFINITIVE) && !is_nominal(r.tokens, at));
        decides && !asks_for && !changes
    }

    /// Returns whether a form of `be` in the present, or another verb that states, stands near `n`.
    fn is_stated(&self, n: usize) -> bool {
        let r = self.r;
        let states = |at: usize| {
            r.is(at, IS | HEDGE | ABLE | WILL)
                || is_one_of!(
                    r.word(at),
                    "e era fica ficaria remains makes make faz fazia ha tem have has lo vale nada nothing see vejo existe existem there",
                )
        };
        let is_past = r.any(n.saturating_sub(4), n, WAS)
            && !r.any(n.saturating_sub(4), n, IS | ABLE)
            && !(n.saturating_sub(4)..n).any(|at| r.word(at) == "era");
        !is_past && ((n.saturating_sub(5)..n).any(states) || (n + 1..n + 7).any(states))
    }

    /// Finds a modal verb about health: "an adult can take up to 4 g", "the pills might do harm".
    fn modal(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        let is_month = r.word(n) == "may"
            && n > 0
            && (r.is(n - 1, NUMBER)
                || is_one_of!(r.word(n - 1), "in since on of until from last by"));
        let is_due = matches!(r.word(n), "ha" | "tem" | "have" | "has" | "era")
            && matches!(r.word(n + 1), "que" | "to" | "de")
            && !r.is(n + 2, NUMBER)
            || r.word(n) == "da" && r.word(n + 1) == "para" && r.tokens[n].has(OPENS)
            || matches!(r.word(n), "tem" | "ha") && r.word(n + 1) == "por"
            || r.word(n) == "us" && r.word(n.wrapping_sub(1)) == "let";
        let is_own = r.any(n.saturating_sub(6), n, FIRST)
            || (n.saturating_sub(6)..n).any(|at| matches!(r.word(at), "nos" | "comigo" | "mim"));
        let is_conditional =
            r.is(n, ACT | LIVING) && (r.is(n, CONDITIONAL) || r.is(n, IMPERFECT) && is_own);
        if !r.is(n, OBLIGE | ABLE | WILL) && !is_due && !is_conditional || is_month {
            return None;
        }
        let skipped = |at: usize| {
            r.is(at, LEAD | NEG | URGENT) || is_one_of!(r.word(at), "to be que de ser have")
        };
        let verb = (n + 1..r.tokens.len().min(n + 6)).find(|at| !skipped(*at));
        let verb = verb.unwrap_or(n + 1);
        let is_test = |at: usize| r.is(at, TREATMENT) && !r.is(at, MEDICINE);
        let orders_test =
            r.is(verb, ACT | LIVING) && !r.is(verb, SEEK) && (verb + 1..verb + 5).any(is_test);
        let is_plain = r.is(verb, ORDINARY) && !orders_test && r.word(verb) != "expect"
            || is_one_of!(r.word(verb), LOOKED_UP);
        let refers = r.is(verb, SEEK) && r.any(verb, verb + 7, CARE | ROLE | VISIT);
        let of_patient = r.any(n.saturating_sub(5), n, PATIENT) && !r.any(0, n, IF);
        // "A dermatologist has to look at this."
        let is_seen = (r.is(n, OBLIGE) || is_due)
            && (verb + 1..verb + 3).any(|at| is_one_of!(r.word(at), "this that it isso isto"))
            && is_one_of!(r.word(verb), "see look examine check ver examinar observar");
        let expert = (n.saturating_sub(3)..n).find(|at| is_specialist(r.word(*at)));
        if let Some(at) = expert.filter(|_| is_seen) {
            return self.prescribes(at, verb);
        }
        if let Some(end) = self.referred(verb).filter(|_| !r.any(0, n, IF)) {
            return self.prescribes(n, end);
        }
        let shows = !is_conditional
            && r.any(n.saturating_sub(2), n, FIRST)
            && !matches!(r.word(n), "would" | "should")
            && !r.is(verb, ACT | LIVING);
        if is_plain && !is_conditional || refers && !of_patient || shows || self.is_excused(n) {
            return None;
        }
        let is_wish = matches!(r.word(n), "would" | "basta" | "bastaria" | "should")
            && (r.any(n.saturating_sub(2), n, FIRST) || r.word(n).starts_with("basta"));
        let living = || {
            let lives = |at: &usize| self.is_action(*at) && !r.is(*at, ORDINARY | SEEK);
            (verb..verb + 4).find(lives).filter(|_| is_wish)
        };
        // "Eu nao tomava isso."
        let is_pronoun = is_conditional
            && is_own
            && r.is(n, ACT)
            && is_one_of!(r.word(n + 1), "isso isto nada nenhum");
        if is_pronoun {
            return self.prescribes(n, n + 1);
        }
        let other = match refers {
            true => verb,
            false => self.matter(n).or_else(living)?,
        };
        self.prescribes(n, other)
    }

    /// Finds health of the reader: "your kidneys are failing", "this tea is all you need for the
    /// pain".
    fn personal(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        let is_thanks = n > 0 && matches!(r.word(n - 1), "thank" | "thanking");
        let is_joined = r.tokens.get(n + 1).is_some_and(|next| next.has(JOINED));
        if !r.is(n, YOU) || is_thanks || is_joined || self.is_excused(n) {
            return None;
        }
        let asks = (n + 1..n + 4).any(|at| {
            r.is(at, SYSTEM | ORDINARY)
                || is_one_of!(r.word(at), "want mean meant looking like wish wanted quer")
        });
        let other = self.matter(n).filter(|_| !asks)?;
        self.hit(n, other, PRESCRIBING, false)
    }

    /// Finds an order about living or treatment: "rest for two days and drink water".
    fn order(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        let ordered = r.is(n, BASE | INFINITIVE | POLITE)
            || r.is(n, FAMILIAR)
                && r.is(n + 1, DETERMINER | LIFESTYLE | NUMBER | CONJUNCTION)
                && r.tokens[n].has(OPENS)
                && !r.any(0, r.tokens.len(), PAST)
            || r.is(n, CHAIN);
        let is_verb = r.is(n, ACT | LIVING | CHAIN | SEEK);
        if !is_verb || !ordered || !r.opens(n) || is_nominal(r.tokens, n) {
            return None;
        }
        // "Sleep came back", "por ter o rim fraco": a noun, and the infinitive of a reason.
        let is_noun = r.is(n, BASE)
            && !r.is(n, POLITE)
            && (r.is(n + 1, IS | WAS | SAID)
                || is_one_of!(
                    r.word(n + 1),
                    "came went got felt became did returned stayed lasted helped"
                ));
        if is_noun || n > 0 && r.word(n - 1) == "por" && r.is(n, INFINITIVE) {
            return None;
        }
        if let Some(end) = self.referred(n) {
            return self.prescribes(n, end);
        }
        let joined = r
            .tokens
            .get(n + 1)
            .is_some_and(|next| next.has(JOINED | OPENS));
        let is_polite = r.is(n, POLITE) && !r.is(n, BASE | INFINITIVE);
        let asks = r.is(n + 1, ORDINARY | SEEK) && r.is(n + 1, GERUND) || r.is(n + 1, SYSTEM);
        let refers = r.any(n + 1, n + 5, CARE | ROLE) && !r.is(n, CHANGE);
        if joined && !is_polite
            || asks
            || r.asks_for_data(n)
            || self.is_excused(n)
            || r.is_safeguard(n)
        {
            return None;
        }
        let names_reader = r.names_reader && !r.is(n, ORDINARY | SEEK);
        let Some(object) = self.health_in(n + 1, n + 1 + NEAR_WORDS) else {
            let lives = is_one_of!(r.word(n), WAYS_OF_LIVING)
                && (is_polite
                    || r.is(n + 1, LEAD | URGENT | PARTICLE | DETERMINER | CONJUNCTION)
                        && r.word(n + 1) != "of");
            let found = self.hit(n, n, PRESCRIBING, is_polite || r.has_you);
            return found.filter(|_| names_reader || lives);
        };
        if refers && !r.any(n + 1, object, IF) && (n + 1..object).all(|at| r.word(at) != "for") {
            return None;
        }
        let asks_for = (n + 1..object.min(n + 5)).any(|at| r.word(at) == "for");
        if r.is(n, ORDINARY) && !r.is(object, BODY | TREATMENT | LIFESTYLE) && !refers && !asks_for
        {
            return None;
        }
        let reader = r.has_you || is_polite || r.end == '!';
        self.hit(n, object, PRESCRIBING, reader)
    }

    /// Finds a judgement in the present: "surgery isn't required", "half a tablet is enough".
    fn judged(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        if !r.is(n, JUDGE | NEEDLESS) || is_report(r.tokens, n) {
            return None;
        }
        let is_adverb = |at: usize| {
            r.word(at) == "as"
                && is_one_of!(r.word(n), "needed necessary required indicated appropriate")
        };
        let as_needed = n > 0
            && (r.is(n - 1, IF)
                || is_adverb(n - 1)
                || is_one_of!(r.word(n - 1), "where when quando"));
        let is_verb = n > 0 && r.word(n) == "need" && r.is(n - 1, FIRST);
        if r.is_value(n) || !r.is(n, JUDGE | NEEDLESS) || as_needed || is_verb || self.is_excused(n)
        {
            return None;
        }
        let leads = r.opens(n)
            && r.is(n, EVALUATION | BETTER)
            && (n + 1..n + 4).any(|at| self.is_action(at));
        if !leads && !self.is_stated(n) {
            return None;
        }
        let (from, to) = self.clause(n);
        let care = || (from..to).find(|at| r.is(*at, CARE | VISIT) && *at != n);
        let acts = || {
            let acts = |at: &usize| self.is_action(*at) && !r.is(*at, ORDINARY | SEEK);
            (n + 1..to.min(n + 5)).find(acts)
        };
        self.prescribes(n, self.matter(n).or_else(care).or_else(acts)?)
    }

    /// Finds an opinion about health: "I think the statin should go", "a meu ver é da tiroide".
    fn opinion(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        if !r.is(n, OPINION) {
            return None;
        }
        let is_portuguese = ["o", "os", "ria", "ava", "unha"]
            .iter()
            .any(|ending| r.word(n).ends_with(ending));
        let is_own = r.any(n.saturating_sub(3), n, FIRST) || is_portuguese;
        if !r.is(n, OPINION) || !is_own || self.is_excused(n) {
            return None;
        }
        self.prescribes(n, self.matter(n)?)
    }

    /// Finds a guess about health: "the pain is most likely muscular".
    fn uncertain(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        if !r.is(n, HEDGE | CONCLUDE) {
            return None;
        }
        let until = r.tokens.len().min(n + 10);
        let concludes = r.is(n, CONCLUDE)
            && is_one_of!(r.word(n + 1), "that que towards toward to para a")
            && self.health_in(n.saturating_sub(6), n).is_some()
            && self.health_in(n + 1, until).is_some();
        let is_unclear = r.any(n.saturating_sub(2), n, NEG)
            && is_one_of!(r.word(n), "clear claro evident certain sure evidente");
        let is_place = is_one_of!(r.word(n + 1), "in on under twice once no na nos nas em");
        // "The skin was clear by Christmas" isn't "it is clear that …".
        let is_state = is_one_of!(r.word(n), "clear claro evident evidente obvious obvio")
            && !is_one_of!(r.word(n + 1), "that que case sign caso sinal")
            && !r.tokens.get(n + 1).is_some_and(|next| next.has(OPENS));
        let doubts = is_one_of!(r.word(n), "duvida doubt")
            && !(n.saturating_sub(3)..n).any(|at| r.is(at, DENIAL));
        if doubts
            || is_state
            || !r.is(n, HEDGE) && !concludes
            || is_unclear
            || is_place && r.word(n).starts_with("appear")
            || self.is_excused(n)
        {
            return None;
        }
        self.hit(n, self.matter(n)?, DIAGNOSING, r.has_you)
    }

    /// Finds what is said to hold in general: "patients in this situation usually benefit from …".
    fn usual(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        if !r.is(n, GENERAL) && r.word(n) != "like" {
            return None;
        }
        let (from, to) = self.clause(n);
        let names_one = r.is(n.wrapping_sub(1), DETERMINER) && r.is(n, ROLE);
        let is_of_one = (from..to).any(|at| {
            r.is(at, PATIENT)
                && (r.is(at, NUMBER) || is_one_of!(r.word(at), "he she him her his hers ele ela"))
        });
        let is_counted = n > 0 && r.is(n - 1, NUMBER | DENIAL);
        let is_like =
            r.word(n) == "like" && is_one_of!(r.word(n + 1), "this these him her that yours hers");
        if !r.is(n, GENERAL) && !is_like
            || names_one
            || is_counted
            || is_of_one
            || r.any(from, to, WAS)
            || self.is_excused(n)
        {
            return None;
        }
        let outcome = (n + 1..n + 4).find(|at| r.is(*at, OUTCOME));
        self.prescribes(n, self.matter(n).or(outcome)?)
    }

    /// Finds a claim that something acts on health: "garlic beats hypertension", "yoga helps".
    fn effect(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        // "Um antibiotico resolvia isso": the imperfect for a conditional.
        let would = is_one_of!(r.word(n), WOULD_HELP)
            && is_one_of!(r.word(n + 1), "isso isto nisso muito")
            && !self.is_excused(n);
        if let Some(at) = self.health_in(n.saturating_sub(5), n).filter(|_| would) {
            return self.prescribes(at, n);
        }
        if !r.is(n, HELP | EFFECT) {
            return None;
        }
        let from = n.saturating_sub(8);
        let is_claim = r.is(n, HELP | EFFECT)
            && !r.is(n, PAST)
            && n > 0
            && !r.is(n - 1, DETERMINER | PARTICLE)
            && !r.any(from, n, WAS | NEG | OBLIGE | DENIAL | CARE | ROLE)
            && !r.is(n - 1, PATIENT)
            && (!r.is(n, HELP) || !r.any(from, n, PATIENT));
        if !is_claim || self.is_excused(n) {
            return None;
        }
        let end = (n + 1..r.tokens.len().min(n + 11))
            .find(|at| r.is(*at, CONDITION) || r.is(*at, COMPLAINT | BODY))
            .or_else(|| self.health_in(n.saturating_sub(6), n))?;
        let reader = r.is(n, HELP) && r.is(end, CONDITION) || r.has_you;
        self.hit(from.min(end), n.max(end), PRESCRIBING, reader)
    }

    /// Finds that danger is denied or asserted: "it does no harm", "não é nada de grave".
    fn safe(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        if !r.is(n, RISK) || r.any(n.saturating_sub(4), n + 4, WAS) || self.is_excused(n) {
            return None;
        }
        let back = n.saturating_sub(5);
        let denied = (back..n).any(|at| {
            r.is(at, NEG)
                || is_one_of!(
                    r.word(at),
                    "no nothing without sem nada little less zero barely any rarely",
                )
        });
        let pointed = r.any(back, n, FINDING) || r.any(back, n, YOU);
        if !denied && !self.is_stated(n) {
            return None;
        }
        let other = self.matter(n).or_else(|| {
            let acts = (0..r.tokens.len()).find(|at| self.is_action(*at) && !r.is(*at, ORDINARY));
            acts.or((pointed || denied && r.tokens.len() <= n + 4).then_some(back))
        })?;
        self.hit(n, other, AGAINST_CARE, r.has_you)
    }

    /// Finds a recommendation without a verb: "more fibre and less salt".
    fn nominal(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        if !r.opens(n) {
            return None;
        }
        let measures = is_one_of!(
            r.word(n),
            "more less fewer plenty lots menos mais muita muito pouco nada chega",
        );
        let living = (n + 1..n + 4).find(|at| r.is(*at, LIFESTYLE));
        let dosed = (n + 1..n + 4)
            .find(|at| r.is(n, NUMBER) && r.is(*at, MEDICINE) && r.any(*at, at + 6, URGENT));
        let limits = is_one_of!(r.word(n), "no up maximum max most ate maximo at")
            && r.any(n + 1, n + 5, NUMBER)
            && !r.any(0, r.tokens.len(), PATIENT | SYSTEM);
        let daily = (n + 2..n + 8).find(|at| {
            is_one_of!(r.word(*at), "day daily dia night noite") && limits && !r.is(*at, WAS)
        });
        let object = living.filter(|_| measures).or(dosed).or(daily);
        self.prescribes(n, object.filter(|_| r.opens(n) && !self.is_excused(n))?)
    }

    /// Finds a statement about health in the present that names neither a record nor a patient,
    /// nor anything past: "this picture fits multiple sclerosis".
    fn unsourced(&self) -> Option<Hit> {
        const EVIDENCE: Class =
            DOCUMENT | RECORDED | SYSTEM | WAS | PAST | SAID | TOLD | CARE | ROLE | FAMILY;
        const PATIENTS: &str = "patient patients paciente pacientes doente doentes utente utentes";
        let r = self.r;
        let is_source = |n: usize| {
            let token = &r.tokens[n];
            let uses = r.is(n, IS)
                && (is_one_of!(r.word(n + 1), "on also com medicado medicada")
                    || r.is(n + 1, GERUND)
                    || r.word(n + 1) == "a" && r.is(n + 2, INFINITIVE));
            let owned = is_one_of!(
                token.word,
                "his her hers their dele dela which qual quais mean meant",
            );
            let counts =
                token.is(PATIENT) && (token.is(NUMBER) || is_one_of!(token.word, PATIENTS));
            let is_filed = n > 0 && r.is(n - 1, IS) && is_one_of!(token.word, FILED);
            token.is(EVIDENCE)
                || is_filed
                || counts
                || uses
                || owned
                || token.before & LABELLED != 0
        };
        let len = r.tokens.len();
        if r.is_question || (0..len).any(|n| r.covered[n] || is_source(n)) {
            return None;
        }
        let health = self.health_in(0, len)?;
        let is_for = matches!(r.word(0), "for" | "para") && health < 5;
        let states = |n: &usize| {
            let points = *n > 0 && matches!(r.word(n - 1), "isso" | "isto");
            match r.word(*n) {
                // The conjunction is spelled like the copula.
                "e" if *n == 0 => is_one_of!(r.word(1), "da do das dos o a um uma"),
                "quer" => r.word(n + 1) == "dizer",
                "e" => {
                    let explains =
                        |at| is_one_of!(r.word(at), "culpa causa origem solucao resposta");
                    points
                        || (0..*n).any(explains)
                        || r.is(n.wrapping_sub(1), NEG)
                        || is_one_of!(r.word(n + 1), "um uma so apenas")
                }
                "does" => *n > 0 && !r.is(n + 1, NEG),
                _ => r.is(*n, IS | CLAIM) && *n > 0,
            }
        };
        // Talk about health of nobody, at no time: "everything about this says migraine".
        let is_free = || {
            const WORDS: &str = "the an your this that what everything nothing um uma isso isto essa esse esta este os";
            const NONE: Class = PATIENT | HAVE | IF | FIELD;
            len > 3
                && !r.any(0, len, NONE)
                && (r.is(0, BASE | POLITE | INFINITIVE) || !r.is(0, FAMILIAR))
                && (0..len).any(|n| is_one_of!(r.word(n), WORDS))
                && (0..len).all(|n| r.word(n).len() != 4 || !r.is(n, NUMBER))
                && !(0..len).any(|n| is_past_form(r.word(n)))
        };
        let claim = (0..len)
            .find(states)
            .or((is_for && len > 6).then_some(0))
            .or_else(|| is_free().then_some(0))?;
        // "The route of insulin is subcutaneous", "the ECG is from 2020".
        let is_dated = is_one_of!(r.word(claim + 1), "from de of in") && r.is(claim + 2, NUMBER);
        if is_dated || r.any(0, claim, FIELD) {
            return None;
        }
        self.hit(claim, health, PRESCRIBING, false)
    }

    /// Finds a suggestion in the form of a question: "shouldn't she stop …?", "why not try tea?".
    fn suggests(&self, n: usize) -> Option<Hit> {
        let r = self.r;
        let next = r.word(n + 1);
        let asks = match r.word(n) {
            "how" | "what" => matches!(next, "about" | "if"),
            "que" => next == "tal",
            // "Why see a dermatologist for a spot?"
            "why" => r.is(n + 1, BASE | SEEK) && !r.is(n + 1, INTERROGATIVE | NEG),
            "hurt" | "harm" | "mal" => true,
            "be" => next == "that",
            "sera" => next == "que",
            "e" => next == "se",
            _ => {
                r.is(n, NEG) && !r.any(n, n + 3, RECORDED)
                    || r.is(n, JUDGE | OBLIGE)
                    || r.any(n.saturating_sub(3), n, YOU | PATIENT)
                        && is_one_of!(r.word(n), "considered thought tried consider try")
                    || is_one_of!(
                        r.word(n),
                        "pensou pensaste considerou experimentou ponderou tentou",
                    )
            }
        };
        let to = r.tokens.len();
        let is_plain = r.any(0, to, DOCUMENT | SYSTEM | RECORDED)
            || (0..to).any(|at| is_one_of!(r.word(at), "mean want which quer refere qual quais"))
            || r.is(n + 1, ORDINARY) && r.word(n + 1) != "be" && r.word(n) != "why"
            || r.is(n + 2, ORDINARY) && r.word(n + 2) != "be";
        if !asks || is_plain {
            return None;
        }
        let care = || (n + 1..to).find(|at| r.is(*at, CARE | VISIT) && r.word(n) == "why");
        self.hit(n, self.matter(n).or_else(care)?, PRESCRIBING, true)
    }
}
