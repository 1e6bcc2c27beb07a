//! Classes of words that the rules of advice ask about.

/// Set of word classes, one bit each.
pub(super) type Class = u128;

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        $($(#[$doc])* pub(super) const $name: Class = 1 << $bit;)*
    };
}

classes! {
    /// Second person: `you`, `voce`.
    YOU = 0;
    /// First person: `I`, `our`.
    FIRST = 1;
    /// Patient in the third person.
    PATIENT = 2;
    /// Obligation: `should`, `deve`.
    OBLIGE = 3;
    /// Ability or permission: `can`, `pode`.
    ABLE = 4;
    /// Negation: `not`, `nunca`.
    NEG = 5;
    /// Verb that changes a treatment: `stop`, `aumentar`.
    CHANGE = 6;
    /// Verb that needs a medicine beside it to be one of treatment: `take`, `usar`.
    DOSE_VERB = 7;
    /// Verb that keeps a treatment as it is: `continue`, `manter`.
    KEEP = 8;
    /// English base form: imperative or infinitive.
    BASE = 9;
    /// Portuguese infinitive.
    INFINITIVE = 10;
    /// Portuguese polite imperative: `tome`, `suspendam`.
    POLITE = 11;
    /// Portuguese familiar imperative, which is the present of the third person too: `suspende`.
    FAMILIAR = 12;
    /// English form in `-ing`, Portuguese gerund.
    GERUND = 13;
    /// Past form or past participle.
    PAST = 14;
    /// Portuguese conditional.
    CONDITIONAL = 15;
    /// Noun of a change of treatment: `increase`, `suspensao`.
    ACT_NOUN = 16;
    /// Word about medicines that isn't the name of one: `dose`, `remedio`.
    MEDICINE = 17;
    /// Unit of a dose or part of a schedule.
    UNIT = 18;
    /// Number, in digits or as a word.
    NUMBER = 19;
    /// Treatment or examination other than a medicine: `surgery`, `biopsia`.
    TREATMENT = 20;
    /// Way of living that a physician may order or forbid: `salt`, `alcool`.
    LIFESTYLE = 21;
    /// Person or place of medical care.
    CARE = 22;
    /// Contact with medical care: `appointment`, `consulta`.
    VISIT = 23;
    /// Verb of seeking medical care: `see`, `procurar`.
    SEEK = 24;
    /// Verb that no advice about treatment begins with: `ask`, `know`, `specify`.
    ORDINARY = 25;
    /// Uncertainty: `probably`, `talvez`.
    HEDGE = 26;
    /// Conclusion from findings: `suggests`, `compativel`.
    CONCLUDE = 27;
    /// Findings that a conclusion is drawn from: `symptoms`, `this`.
    FINDING = 28;
    /// Recommendation in the present: `recommend`, `recomendo`.
    RECOMMEND = 29;
    /// Past form of telling a person what to do; it may stand without a subject: `advised`.
    TOLD = 30;
    /// Past form of recommending; without a subject in the past it is a recommendation itself.
    RECOMMENDED = 31;
    /// Past form of saying: `said`, `decidiu`.
    SAID = 32;
    /// Person with a role in care.
    ROLE = 33;
    /// Document of the clinic: `record`, `prontuario`.
    DOCUMENT = 34;
    /// Verb of what a document does: `states`, `consta`.
    DOCUMENT_VERB = 35;
    /// Participle of writing down: `recorded`, `registado`.
    RECORDED = 36;
    /// Evaluation of an action: `advisable`, `melhor`.
    EVALUATION = 37;
    /// Present of `be`.
    IS = 38;
    /// Past of `be`.
    WAS = 39;
    /// Word that ends what a report covers: `so`, `please`, `portanto`.
    BREAK = 40;
    /// Conjunction after which an imperative may stand.
    CONJUNCTION = 41;
    /// Word before an imperative that belongs to it: `please`, `simply`.
    LEAD = 42;
    /// Article, possessive, or another word before a noun.
    DETERMINER = 43;
    /// Urgency: `immediately`, `hoje`.
    URGENT = 44;
    /// Verb or adjective that another verb completes: `consider`, `remember`.
    CHAIN = 45;
    /// Complaint or result that must not be played down: `pain`, `sangramento`.
    COMPLAINT = 46;
    /// Outcome of an illness: `recover`, `morrer`.
    OUTCOME = 47;
    /// Verb of having a condition.
    HAVE = 48;
    /// Future: `will`, `vai`.
    WILL = 49;
    /// Word that begins a question.
    INTERROGATIVE = 50;
    /// Condition: `if`, `se`.
    IF = 51;
    /// Member of the family.
    FAMILY = 52;
    /// Denial of a finding: `denies`, `without`.
    DENIAL = 53;
    /// Effect of a treatment: `helps`, `alivia`.
    HELP = 54;
    /// Verb of telling somebody: `tell`, `informe`.
    TELL = 55;
    /// Reader or program that a text may address: `assistant`, `leitor`.
    READER = 56;
    /// Preposition or particle of a verb of treatment: `off`, `back`.
    PARTICLE = 57;
    /// Comparison of treatments: `better`, `ideal`.
    BETTER = 58;
    /// Verb of refusing care or playing it down: `skip`, `ignore`.
    REFUSE = 59;
    /// Verb with `not` that urges to seek care: `hesitate`, `deixe`.
    HESITATE = 60;
    /// Word that isn't part of a noun phrase before a medicine, such as a relative pronoun.
    STOP = 61;
    /// Negated need: `unnecessary`, `dispensavel`.
    NEEDLESS = 62;
    /// Part or function of the body, illness in general: `heart`, `pressao`.
    BODY = 63;
    /// Verb of living or of watching one's health: `rest`, `medir`.
    LIVING = 64;
    /// Word of what holds in general: `usually`, `pessoas`.
    GENERAL = 65;
    /// Word about questions and answers of the program: `query`, `lista`.
    SYSTEM = 66;
    /// Word of holding or giving an opinion: `think`, `opiniao`.
    OPINION = 67;
    /// Danger or its absence: `harmless`, `risco`.
    RISK = 68;
    /// Effect on health, in the present: `lowers`, `previne`.
    EFFECT = 69;
    /// Judgement that a sentence states of something: `advisable`, `opcao`.
    JUDGE = 70;
    /// Portuguese imperfect of the first person, which stands for a conditional: `trocava`.
    IMPERFECT = 71;
    /// Verb in the present that claims something of a health matter: `fits`, `funciona`.
    CLAIM = 72;
    /// Field of a record: `route`, `frequencia`.
    FIELD = 73;
    /// Name of a condition, by a list or its ending.
    CONDITION = 74;
    /// Name of a medicine, by a list or its ending, of a word without classes but [`LEAD`] and [`BODY`].
    NAMED_MEDICINE = 75;
}
