//! What a physician's advice sounds like, in English and Portuguese. Patterns are for folded text.

use std::sync::LazyLock;

use regex::Regex;

use super::OutOfScope;

#[derive(Clone, Copy)]
pub(super) enum Object {
    /// The cue says it all.
    Any,
    /// A medicine must follow.
    Medicine,
    /// A condition that no record holds must follow.
    Condition,
    /// A condition must follow, recorded or not: a guess is no quotation.
    AnyCondition,
}

pub(super) struct Cue {
    pub pattern: Regex,
    pub object: Object,
    pub meaning: OutOfScope,
}

pub(super) static CUES: LazyLock<Result<Vec<Cue>, regex::Error>> = LazyLock::new(|| {
    TABLE
        .iter()
        .map(|(meaning, object, pattern)| {
            let pattern = Regex::new(&format!(r"(?-u:\b)(?:{pattern})(?-u:\b)"))?;
            Ok(Cue { pattern, object: *object, meaning: *meaning })
        })
        .collect()
});

use Object::{Any, AnyCondition, Condition, Medicine};
use OutOfScope::{Diagnosing, Dissuading, Prescribing};

const TABLE: &[(OutOfScope, Object, &str)] = &[
    // Talking somebody out of care
    (
        Dissuading,
        Any,
        concat!(
            r"(?:no|any|without(?: the| any)?) need (?:to|for|of) (?:\w+ ){0,3}(?:see|seeing|visit|visiting|",
            r"consult|consulting|call|calling|doctor|physician|hospital|emergency|specialist|medical)",
        ),
    ),
    (
        Dissuading,
        Any,
        concat!(
            r"(?:do not|don't|dont|needn't|need not|does not|doesn't|shouldn't|should not|",
            r"never) (?:\w+ ){0,3}(?:see|visit|consult|call|go to|contact|bother) (?:\w+ ){0,3}(?:doctor|",
            r"physician|hospital|er|emergency|specialist|cardiologist|dermatologist|clinic|gp|ambulance)",
        ),
    ),
    (
        Dissuading,
        Any,
        concat!(
            r"(?:instead of|rather than) (?:seeing|visiting|consulting|going to|",
            r"calling) (?:\w+ ){0,3}(?:doctor|physician|hospital|specialist|emergency|er)",
        ),
    ),
    (
        Dissuading,
        Any,
        concat!(
            r"(?:you can|it is safe to|you may|safely) (?:safely )?ignore (?:\w+ ){0,3}(?:symptom|symptoms|",
            r"pain|bleeding|result|results|warning)",
        ),
    ),
    (
        Dissuading,
        Any,
        concat!(
            r"(?:doctor|physician|medical (?:visit|attention|care|advice)) (?:is not|isn't|is un|",
            r"are not) ?(?:necessary|needed|required)",
        ),
    ),
    (
        Dissuading,
        Any,
        concat!(
            r"nao (?:e |ha |tem |se )?(?:preciso|precisa|precisam|necessario|necessidade|necessita|",
            r"deve)(?: de)? (?:\w+ ){0,3}(?:medico|medica|consultar|consulta|hospital|especialista|procurar|",
            r"emergencia|pronto)",
        ),
    ),
    (
        Dissuading,
        Any,
        r"(?:em vez de|ao inves de) (?:ir|procurar|consultar) (?:\w+ ){0,3}(?:medico|hospital|especialista)",
    ),
    (Dissuading, Any, r"pode ignorar (?:\w+ ){0,3}(?:sintoma|sintomas|dor|sangramento|resultado)"),
    // Prescribing
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:i|we) (?:would |strongly |also )?(?:recommend|suggest|advise|prescribe|propose|",
            r"am prescribing|are prescribing)",
        ),
    ),
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:you|patient|patients|he|she|they|\w+-\d+)(?: \w+-\d+)? (?:should|must|needs to|need to|",
            r"has to|have to|ought to|can|may|could)(?: now| safely| immediately| also|",
            r" probably)? (?:not )?(?:be )?(?:take|taking|start|stop|begin|increase|reduce|decrease|double|",
            r"halve|discontinue|switch|switched|started|stopped|replace|suspend|use|try|continue|taper|skip|",
            r"given|prescribed|resume|change)",
        ),
    ),
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:^|[,:*\-] ?|please |then |and |now )(?:take|start|stop|begin|increase|reduce|decrease|double|",
            r"halve|discontinue|switch to|replace|suspend|skip|taper|resume|initiate|add|prescribe|give|",
            r"administer|try)",
        ),
    ),
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:it is|it's|would be|is) (?:safe|best|advisable|recommended|better|time|okay|ok|",
            r"fine) (?:for \w+ )?to (?:take|start|stop|increase|reduce|decrease|discontinue|switch|double|",
            r"skip|combine|mix)",
        ),
    ),
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:stopping|starting|discontinuing|increasing|reducing|doubling|taking) (?:\w+ ){0,3}(?:is|",
            r"would be) (?:recommended|advisable|advised|best|safe)",
        ),
    ),
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:consider|recommended|suggested|advisable|should be|best) (?:to )?(?:taking|starting|stopping|",
            r"increasing|reducing|decreasing|doubling|discontinuing|switching|adding|start|stop|increase|",
            r"reduce|discontinue|switch|add)(?: to)?",
        ),
    ),
    (
        Prescribing,
        Any,
        concat!(
            r"(?:your|his|her|the|their|this) (?:dose|dosage|medication|medicine|treatment) (?:should|must|",
            r"can|needs to|has to|could) be (?:\w+ )?(?:increased|reduced|decreased|doubled|halved|stopped|",
            r"changed|discontinued|suspended|started)",
        ),
    ),
    (Prescribing, Medicine, r"(?:recomendo|recomendamos|sugiro|sugerimos|aconselho|prescrevo|receito|indico)"),
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:deve|devem|deveria|precisa|pode|tem que|tem de|necessita)(?: imediatamente| agora|",
            r" ja)? (?:tomar|iniciar|parar|comecar|aumentar|reduzir|diminuir|dobrar|suspender|interromper|",
            r"trocar|substituir|usar|continuar)",
        ),
    ),
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:^|[,:*\-] ?|por favor |entao |e )(?:tome|pare|inicie|comece|aumente|reduza|diminua|dobre|",
            r"suspenda|interrompa|troque|substitua|use|continue)",
        ),
    ),
    (
        Prescribing,
        Medicine,
        concat!(
            r"(?:recomenda-se|sugere-se|indica-se|recomendado|aconselhavel|melhor)(?: a| o)? (?:iniciar|",
            r"inicio|suspender|suspensao|aumentar|aumento|reduzir|reducao|parar|tomar|uso|interromper)",
        ),
    ),
    // Diagnosing
    (
        Diagnosing,
        AnyCondition,
        concat!(
            r"(?:you|patient|he|she|they|\w+-\d+) (?:probably|likely|possibly|may|might|could|must|",
            r"almost certainly|seems? to|appears? to|certainly|surely|definitely) (?:also )?(?:have|has|be|",
            r"suffer|is|be having)",
        ),
    ),
    (
        Diagnosing,
        AnyCondition,
        concat!(
            r"(?:my diagnosis|i diagnose|we diagnose|i am diagnosing|i'm diagnosing|i think (?:you|it|",
            r"the patient|this)|i believe (?:you|it|the patient|this)|i conclude|in my opinion|",
            r"meu diagnostico|eu diagnostico|diagnostico com)",
        ),
    ),
    (
        Diagnosing,
        AnyCondition,
        concat!(
            r"(?:symptoms?|findings|results?|rash|lesions?|signs?|this|these|it) (?:strongly |clearly |",
            r"probably |likely |would )?(?:suggests?|indicates?|points? to|are consistent with|",
            r"is consistent with|means?|confirms?|looks like|are typical of|is typical of|is probably|",
            r"is likely)",
        ),
    ),
    (
        Diagnosing,
        Condition,
        concat!(
            r"(?:you|patient|he|she|you've|youre|you're)(?: \w+-\d+)? (?:have|has|got|suffers? from|",
            r"are suffering from|is suffering from|are having|is having|is diagnosed with|are diagnosed with|",
            r"developed|now have|now has)",
        ),
    ),
    (Diagnosing, Condition, r"\w+-\d+ (?:has|suffers from|is suffering from|is diagnosed with)"),
    (
        Diagnosing,
        Condition,
        r"(?:the |new |final |likely |probable |most likely )?diagnosis(?: is|:| of| would be| must be)",
    ),
    (
        Diagnosing,
        AnyCondition,
        concat!(
            r"(?:voce|paciente|ele|ela|\w+-\d+) (?:provavelmente|possivelmente|talvez|deve|pode|parece|",
            r"certamente) (?:ter|tem|tenha|estar|sofrer|esteja)",
        ),
    ),
    (
        Diagnosing,
        Condition,
        r"(?:voce|paciente|ele|ela)(?: \w+-\d+)? (?:tem|esta com|sofre de|possui|apresenta|desenvolveu)",
    ),
    (
        Diagnosing,
        AnyCondition,
        concat!(
            r"(?:sintomas?|achados|resultados?|lesoes|isso|isto) (?:\w+ )?(?:sugerem?|indicam?|apontam? para|",
            r"significam?|confirmam?|sao compativeis com|e compativel com|parecem?)",
        ),
    ),
    (Diagnosing, Condition, r"(?:o )?diagnostico (?:e|provavel|final|mais provavel)"),
];
