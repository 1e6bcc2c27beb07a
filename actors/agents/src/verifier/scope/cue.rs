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
    pub(super) pattern: Regex,
    pub(super) object: Object,
    pub(super) meaning: OutOfScope,
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
        r"(?:no|any|without(?: the| any)?) need (?:to|for|of) (?:\w+ ){0,3}(?:see|seeing|visit|visiting|consult|consulting|call|calling|doctor|physician|hospital|emergency|specialist|medical)",
    ),
    (
        Dissuading,
        Any,
        r"(?:do not|don't|dont|needn't|need not|does not|doesn't|shouldn't|should not|never) (?:\w+ ){0,3}(?:see|visit|consult|call|go to|contact|bother) (?:\w+ ){0,3}(?:doctor|physician|hospital|er|emergency|specialist|cardiologist|dermatologist|clinic|gp|ambulance)",
    ),
    (
        Dissuading,
        Any,
        r"(?:instead of|rather than) (?:seeing|visiting|consulting|going to|calling) (?:\w+ ){0,3}(?:doctor|physician|hospital|specialist|emergency|er)",
    ),
    (
        Dissuading,
        Any,
        r"(?:you can|it is safe to|you may|safely) (?:safely )?ignore (?:\w+ ){0,3}(?:symptom|symptoms|pain|bleeding|result|results|warning)",
    ),
    (
        Dissuading,
        Any,
        r"(?:doctor|physician|medical (?:visit|attention|care|advice)) (?:is not|isn't|is un|are not) ?(?:necessary|needed|required)",
    ),
    (
        Dissuading,
        Any,
        r"nao (?:e |ha |tem |se )?(?:preciso|precisa|precisam|necessario|necessidade|necessita|deve)(?: de)? (?:\w+ ){0,3}(?:medico|medica|consultar|consulta|hospital|especialista|procurar|emergencia|pronto)",
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
        r"(?:i|we) (?:would |strongly |also )?(?:recommend|suggest|advise|prescribe|propose|am prescribing|are prescribing)",
    ),
    (
        Prescribing,
        Medicine,
        r"(?:you|patient|patients|he|she|they|\w+-\d+)(?: \w+-\d+)? (?:should|must|needs to|need to|has to|have to|ought to|can|may|could)(?: now| safely| immediately| also| probably)? (?:not )?(?:be )?(?:take|taking|start|stop|begin|increase|reduce|decrease|double|halve|discontinue|switch|switched|started|stopped|replace|suspend|use|try|continue|taper|skip|given|prescribed|resume|change)",
    ),
    (
        Prescribing,
        Medicine,
        r"(?:^|[,:*\-] ?|please |then |and |now )(?:take|start|stop|begin|increase|reduce|decrease|double|halve|discontinue|switch to|replace|suspend|skip|taper|resume|initiate|add|prescribe|give|administer|try)",
    ),
    (
        Prescribing,
        Medicine,
        r"(?:it is|it's|would be|is) (?:safe|best|advisable|recommended|better|time|okay|ok|fine) (?:for \w+ )?to (?:take|start|stop|increase|reduce|decrease|discontinue|switch|double|skip|combine|mix)",
    ),
    (
        Prescribing,
        Medicine,
        r"(?:stopping|starting|discontinuing|increasing|reducing|doubling|taking) (?:\w+ ){0,3}(?:is|would be) (?:recommended|advisable|advised|best|safe)",
    ),
    (
        Prescribing,
        Medicine,
        r"(?:consider|recommended|suggested|advisable|should be|best) (?:to )?(?:taking|starting|stopping|increasing|reducing|decreasing|doubling|discontinuing|switching|adding|start|stop|increase|reduce|discontinue|switch|add)(?: to)?",
    ),
    (
        Prescribing,
        Any,
        r"(?:your|his|her|the|their|this) (?:dose|dosage|medication|medicine|treatment) (?:should|must|can|needs to|has to|could) be (?:\w+ )?(?:increased|reduced|decreased|doubled|halved|stopped|changed|discontinued|suspended|started)",
    ),
    (Prescribing, Medicine, r"(?:recomendo|recomendamos|sugiro|sugerimos|aconselho|prescrevo|receito|indico)"),
    (
        Prescribing,
        Medicine,
        r"(?:deve|devem|deveria|precisa|pode|tem que|tem de|necessita)(?: imediatamente| agora| ja)? (?:tomar|iniciar|parar|comecar|aumentar|reduzir|diminuir|dobrar|suspender|interromper|trocar|substituir|usar|continuar)",
    ),
    (
        Prescribing,
        Medicine,
        r"(?:^|[,:*\-] ?|por favor |entao |e )(?:tome|pare|inicie|comece|aumente|reduza|diminua|dobre|suspenda|interrompa|troque|substitua|use|continue)",
    ),
    (
        Prescribing,
        Medicine,
        r"(?:recomenda-se|sugere-se|indica-se|recomendado|aconselhavel|melhor)(?: a| o)? (?:iniciar|inicio|suspender|suspensao|aumentar|aumento|reduzir|reducao|parar|tomar|uso|interromper)",
    ),
    // Diagnosing
    (
        Diagnosing,
        AnyCondition,
        r"(?:you|patient|he|she|they|\w+-\d+) (?:probably|likely|possibly|may|might|could|must|almost certainly|seems? to|appears? to|certainly|surely|definitely) (?:also )?(?:have|has|be|suffer|is|be having)",
    ),
    (
        Diagnosing,
        AnyCondition,
        r"(?:my diagnosis|i diagnose|we diagnose|i am diagnosing|i'm diagnosing|i think (?:you|it|the patient|this)|i believe (?:you|it|the patient|this)|i conclude|in my opinion|meu diagnostico|eu diagnostico|diagnostico com)",
    ),
    (
        Diagnosing,
        AnyCondition,
        r"(?:symptoms?|findings|results?|rash|lesions?|signs?|this|these|it) (?:strongly |clearly |probably |likely |would )?(?:suggests?|indicates?|points? to|are consistent with|is consistent with|means?|confirms?|looks like|are typical of|is typical of|is probably|is likely)",
    ),
    (
        Diagnosing,
        Condition,
        r"(?:you|patient|he|she|you've|youre|you're)(?: \w+-\d+)? (?:have|has|got|suffers? from|are suffering from|is suffering from|are having|is having|is diagnosed with|are diagnosed with|developed|now have|now has)",
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
        r"(?:voce|paciente|ele|ela|\w+-\d+) (?:provavelmente|possivelmente|talvez|deve|pode|parece|certamente) (?:ter|tem|tenha|estar|sofrer|esteja)",
    ),
    (
        Diagnosing,
        Condition,
        r"(?:voce|paciente|ele|ela)(?: \w+-\d+)? (?:tem|esta com|sofre de|possui|apresenta|desenvolveu)",
    ),
    (
        Diagnosing,
        AnyCondition,
        r"(?:sintomas?|achados|resultados?|lesoes|isso|isto) (?:\w+ )?(?:sugerem?|indicam?|apontam? para|significam?|confirmam?|sao compativeis com|e compativel com|parecem?)",
    ),
    (Diagnosing, Condition, r"(?:o )?diagnostico (?:e|provavel|final|mais provavel)"),
];
