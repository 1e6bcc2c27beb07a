//! The rules: concepts that follow each other closely, and signs that no honest text carries.

use std::sync::LazyLock;

use super::screen::Origin;

/// A chain of concepts.
pub(super) struct Rule {
    /// Shown in the screening and in the audit.
    pub(super) id: &'static str,
    /// What it adds to the score of a text from whoever asks.
    weight: u32,
    /// What it adds in a text that came from outside: a tool's result has nothing to tell the assistant.
    outside: u32,
    /// Each concept, and within how many words of the one before it must stand.
    pub(super) steps: &'static [(Concepts, u32)],
    /// Spoils the rule where it stands within a few words behind it, or right before it.
    pub(super) unless: Concepts,
}

impl Rule {
    /// What is said of attacks in reports is quoted from these families; an order to act is one wherever it stands.
    pub(super) fn is_quotable(&self) -> bool {
        self.id.starts_with("override.") || self.id.starts_with("leak.")
    }

    pub(super) fn weight(&self, origin: Origin) -> u32 {
        match origin {
            Origin::User => self.weight,
            _ => self.weight.max(self.outside),
        }
    }
}

/// Exceptions that count inside a chain.
pub(super) const INSIDE: Concepts = INDEFINITE;
/// Exceptions that count from a chain's second word to a few words behind it.
pub(super) const BEHIND: Concepts = ORDINARY | UPKEEP;
/// Exceptions that count right before a chain.
pub(super) const BEFORE: Concepts = SPEAKER;

/// A score at which a text is blocked.
pub const SCORE_BLOCKED: u32 = 100;

const fn rule(id: &'static str, weight: u32, outside: u32, steps: &'static [(Concepts, u32)]) -> Rule {
    Rule { id, weight, outside, steps, unless: 0 }
}

const fn unless(id: &'static str, weight: u32, steps: &'static [(Concepts, u32)], unless: Concepts) -> Rule {
    Rule { id, weight, outside: weight, steps, unless }
}

/// The chains. Ids are `family.case`; of one family only the heaviest hit counts.
pub(super) const RULES: &[Rule] = &[
    // Setting instructions aside
    unless("override.prior", 100, &[(OVERRIDE, 0), (PRIOR, 4), (INSTRUCTION, 4)], ORDINARY | SPEAKER),
    unless("override.prior", 100, &[(OVERRIDE, 0), (INSTRUCTION, 4), (PRIOR, 5)], ORDINARY | SPEAKER),
    unless("override.your", 100, &[(OVERRIDE, 0), (YOUR, 4), (INSTRUCTION | RULE, 4)], ORDINARY | SPEAKER),
    unless("override.all", 100, &[(OVERRIDE, 0), (ALL, 3), (INSTRUCTION, 4)], ORDINARY | SPEAKER),
    unless("override.rules", 100, &[(OVERRIDE, 0), (ALL | PRIOR | YOUR, 3), (RULE, 4)], ORDINARY | SPEAKER),
    unless("override.instructions", 60, &[(OVERRIDE, 0), (INSTRUCTION, 4)], ORDINARY | SPEAKER),
    unless("override.everything", 100, &[(OVERRIDE, 0), (ALL, 3), (PRIOR | TOLD, 5)], ORDINARY | SPEAKER),
    unless("override.everything", 60, &[(OVERRIDE, 0), (ALL, 2)], ORDINARY | SPEAKER),
    unless("override.above", 70, &[(OVERRIDE, 0), (THE, 2), (ABOVE, 2)], ORDINARY | SPEAKER),
    unless("override.the_rules", 50, &[(OVERRIDE, 0), (THE, 1), (RULE, 1)], ORDINARY | SPEAKER),
    unless("override.then", 100, &[(OVERRIDE, 0), (ALL, 2), (ANSWER, 5)], ORDINARY | SPEAKER),
    unless("override.then", 100, &[(OVERRIDE, 0), (THE, 2), (ABOVE, 2), (REVEAL | ANSWER, 3)], ORDINARY | SPEAKER),
    unless("override.leave", 100, &[(LEAVE, 0), (PRIOR, 4), (INSTRUCTION | RULE, 3)], ORDINARY | SPEAKER),
    unless("override.leave", 70, &[(LEAVE, 0), (INSTRUCTION, 4), (TOLD, 4)], ORDINARY | SPEAKER),
    rule("override.safety", 100, 100, &[(ACT, 0), (YOUR, 3), (SAFETY, 2), (NEGATION, 4)]),
    rule("override.not_follow", 100, 100, &[(NEGATION, 0), (FOLLOW, 3), (INSTRUCTION | RULE, 4)]),
    rule("override.free", 100, 100, &[(YOU, 0), (NEGATION, 3), (FOLLOW, 5), (INSTRUCTION | RULE | LIMITS, 5)]),
    rule("override.changed", 80, 100, &[(INSTRUCTION | RULE, 0), (CHANGED, 5)]),
    rule("override.opposite", 100, 100, &[(OPPOSITE, 0), (PRIOR | ALL | YOUR, 3), (INSTRUCTION, 3)]),
    rule("override.opposite", 100, 100, &[(OPPOSITE, 0), (FROM | THE, 2), (ALL | INSTRUCTION | EXACTLY | SPEAKER, 4)]),
    rule(
        "override.forgotten",
        100,
        100,
        &[(ACT, 0), (YOU, 3), (OVERRIDE | NEGATION, 3), (INSTRUCTION | RULE | ALL, 5)],
    ),
    // Asking for what the system was told
    rule("leak.system_prompt", 100, 100, &[(REVEAL | WHAT | WANT, 0), (YOUR, 10), (SYSTEM_PROMPT, 3)]),
    rule("leak.system_prompt", 100, 100, &[(REVEAL | WHAT | WANT, 0), (THE, 4), (SYSTEM_PROMPT, 2)]),
    unless("leak.system_prompt", 100, &[(REVEAL, 0), (SYSTEM_PROMPT, 5)], INDEFINITE),
    rule("leak.system_prompt", 60, 100, &[(YOUR | THE, 0), (SYSTEM_PROMPT, 3)]),
    unless("leak.instructions", 100, &[(REVEAL, 0), (YOUR, 8), (INSTRUCTION, 3)], ORDINARY),
    rule("leak.instructions", 100, 100, &[(ALOUD, 0), (ALL | PRIOR, 4), (INSTRUCTION, 3)]),
    unless("leak.instructions", 100, &[(WHAT, 0), (INSTRUCTION, 5), (YOU | TOLD, 4)], ORDINARY | SPEAKER),
    unless("leak.instructions", 100, &[(INSTRUCTION, 0), (YOU, 3), (TOLD, 4)], ORDINARY | SPEAKER),
    unless("leak.instructions", 100, &[(INSTRUCTION, 0), (TOLD, 3), (YOU, 3)], ORDINARY | SPEAKER),
    unless("leak.instructions", 100, &[(TOLD, 0), (YOU, 2), (INSTRUCTION, 4)], ORDINARY | SPEAKER),
    rule("leak.told", 100, 100, &[(WHAT, 0), (YOU, 3), (TOLD, 3), (ABOVE | PRIOR, 4)]),
    rule("leak.told", 100, 100, &[(TEXT, 0), (YOU, 2), (TOLD, 3), (PRIOR, 3)]),
    rule("leak.told", 100, 100, &[(YOU, 0), (NEGATION, 2), (SUPPOSED, 1), (INFORM, 3)]),
    rule("leak.above", 100, 100, &[(ALOUD, 0), (TEXT | ALL, 4), (ABOVE, 3)]),
    rule("leak.above", 100, 100, &[(ALOUD, 0), (ABOVE, 3), (TEXT, 3)]),
    rule("leak.entire", 100, 100, &[(ALOUD, 0), (ALL, 3), (TEXT, 3), (ABOVE | EXACTLY, 8)]),
    unless("leak.secret", 100, &[(REVEAL | WHAT, 0), (THE | YOUR, 3), (SECRET, 4)], ORDINARY | UPKEEP),
    unless("leak.secret", 70, &[(REVEAL, 0), (SECRET, 3)], ORDINARY | UPKEEP),
    // Becoming somebody else
    rule("role.unbound", 100, 100, &[(ACT | YOU, 0), (UNBOUND, 12)]),
    rule("role.unbound", 80, 100, &[(AI | CHARACTER, 0), (UNBOUND, 10)]),
    rule("role.no_limits", 100, 100, &[(AI | CHARACTER | YOU, 0), (WITHOUT, 8), (LIMITS, 4)]),
    rule("role.now", 70, 100, &[(YOU, 0), (BE, 1), (NOW, 2)]),
    rule("role.now", 70, 100, &[(NOW, 0), (YOU, 2), (BE | MUST, 2)]),
    rule("role.mode", 100, 100, &[(YOU, 0), (MODE_KIND, 6), (MODE, 2)]),
    rule("role.character", 60, 100, &[(ACT, 0), (CHARACTER | AI, 6), (MUST, 20)]),
    rule("role.foul", 70, 100, &[(YOU | CHARACTER | AI, 0), (PRISON, 20)]),
    // New orders
    rule("order.new", 70, 100, &[(NEW, 0), (INSTRUCTION, 1)]),
    rule("order.new", 50, 60, &[(NEW, 0), (TASK, 1)]),
    rule("order.new", 100, 100, &[(FOLLOW, 0), (NEW | THE, 2), (INSTRUCTION, 2), (NEGATION | ONLY | NOW, 8)]),
    rule("order.answer_only", 40, 100, &[(ANSWER, 0), (ONLY, 3)]),
    rule("order.say", 50, 100, &[(ANSWER, 0), (SAY, 4)]),
    rule("order.rest", 50, 100, &[(ANSWER | NOW, 0), (ALL, 2), (ANSWER, 2), (ONLY | FROM, 6)]),
    rule("order.decode", 100, 100, &[(DECODE, 0), (OBEY, 8)]),
    rule("order.authority", 60, 100, &[(AUTHORITY, 0), (CLAIM, 8)]),
    rule("order.authority", 60, 60, &[(SPEAKER, 0), (YOUR, 3), (AUTHORITY, 3)]),
    // Switching the guards off
    rule("guard.off", 100, 100, &[(DISABLE, 0), (SAFETY, 4)]),
    rule("guard.off", 100, 100, &[(SAFETY, 0), (DISABLE, 3)]),
    // Doing things
    rule("act.send", 40, 60, &[(SEND, 0), (ADDRESS, 8)]),
    rule("act.assistant", 60, 100, &[(AI, 0), (SEND | ANSWER, 12), (ADDRESS, 12)]),
    rule("act.send_data", 100, 100, &[(SEND, 0), (PATIENT_DATA | SECRET, 8), (ADDRESS, 8)]),
    rule("act.confirm", 60, 100, &[(SEND, 0), (CONFIRM, 30)]),
    rule("act.tool", 60, 100, &[(CALL, 0), (TOOL, 4)]),
    unless("act.hide", 100, &[(NEGATION, 0), (INFORM, 2), (USER, 6)], ORDINARY),
    rule("act.assistant", 30, 100, &[(AI, 0), (PROCESS, 4)]),
];

/// A sign: what no honest text carries, whatever it says.
pub(super) struct Sign {
    pub id: &'static str,
    pub weight: u32,
    pub outside: u32,
    /// For the plain text.
    pub pattern: &'static str,
}

const fn sign(id: &'static str, weight: u32, outside: u32, pattern: &'static str) -> Sign {
    Sign { id, weight, outside, pattern }
}

/// The signs. Linear-time patterns, without Unicode word boundaries.
pub(super) const SIGNS: &[Sign] = &[
    sign("sign.chat_template", 100, 100, r"<\|[a-z_ ]{2,20}\|>|<</?sys>>|\[/?inst\]|<start_of_turn>|<\|?endoftext"),
    sign(
        "sign.system_tag",
        100,
        100,
        r"</?(?:system|system_prompt|assistant|tool_result|untrusted|instructions?|im_start)>",
    ),
    sign(
        "sign.system_line",
        60,
        100,
        concat!(
            r"(?:^|\n)[ #*\[(>-]{0,6}(?:system|assistant|sistema)(?: message| override|",
            r" prompt)?[\]) *]{0,3}:[^\n]{0,80}(?:you|ignore|new|must|task|respond|reply|disregard)",
        ),
    ),
    sign(
        "sign.bracketed_system",
        70,
        100,
        r"\[(?:system|admin|developer|root)\]|#{2,4} ?(?:new )?(?:system|instruction)",
    ),
    sign(
        "sign.comment_order",
        100,
        100,
        r"<!-{1,4}[^>]{0,80}(?:assistant|ai |ignore|instruction|call |send|system|model)",
    ),
    sign(
        "sign.forged_verdict",
        100,
        100,
        r#"(?:"?safe"? ?[:=] ?"?true)|mark(?:ed)? (?:it |this |as )?safe|verifier (?:returned|said|says|approved)"#,
    ),
    sign(
        "sign.shell",
        60,
        100,
        r"(?:cat|curl|wget|rm -rf) [~/h][a-z:/._-]{3,}|/etc/passwd|\.ssh/id_rsa|169\.254\.169\.254",
    ),
    sign(
        "sign.override",
        100,
        100,
        concat!(
            r"(?:system|admin|administrator|policy|safety|guardrail|instruction) override|do anything now|",
            r"jailbreak(?:ed)? mode|developer mode (?:enabled|activated|output)",
        ),
    ),
    sign(
        "sign.complete",
        100,
        100,
        concat!(
            r#"(?:start|begin|beginning|starting)(?: your)?(?: \w+)? with ["'](?:you are|my instructions|i was|"#,
            r#"sure|as an)|["'](?:i was instructed|my instructions are|the system prompt is)"#,
        ),
    ),
    sign("sign.placeholder", 40, 60, r"\{\{ ?user ?\}\}|\{\{ ?char ?\}\}"),
    sign(
        "sign.new_rules",
        100,
        100,
        concat!(
            r"(?:new|updated) (?:system )?(?:instructions?|policy|rules|message)(?: follows?)? ?:|stop\. new|",
            r"end of (?:document|prompt|user input|instructions)",
        ),
    ),
];

/// A set of concepts, one bit each.
pub(super) type Concepts = u64;

/// Letters by which a word is looked up before it is compared.
const KEY_LETTERS: usize = 3;

macro_rules! concepts {
    ($($name:ident = $bit:literal: $words:literal;)*) => {
        $(pub(super) const $name: Concepts = 1 << $bit;)*
        const TABLE: &[(Concepts, &str)] = &[$((1 << $bit, $words)),*];
    };
}

// A word that ends in `*` stands for every word that begins so.
concepts! {
    OVERRIDE = 0: "ignore ignoring ignores disregard* forget forgetting discard override overrides overriding \
        overwrite bypass bypassing neglect dismiss drop unlearn defy erase abandon violate nullify ignora ignoriere \
        ignorieren ignoriert ignorez ignorar esqueca esquece esqueçam desconsidere desconsiderar descarte descartar \
        olvida olvide olvidar olvidate ignorad vergiss vergessen vergesse missachte missachten ueberschreibe oublie \
        oubliez oublier dimentica dimenticare scorda annulla";
    NEGATION = 1: "not don dont never stop no longer nao nunca nicht keine kein nie ne pas jamais non mai cease \
        refuse without";
    FOLLOW = 2: "follow following obey obeying comply adhere listen respect bound siga seguir obedeca obedecer sigas \
        befolge befolgen beachte beachten suis suivre suivez segui seguire rispetta";
    PRIOR = 3: "previous previously prior above earlier before preceding past old initial initially original \
        originally existing foregoing former anterior anteriores acima previas previos previa previo vorherige \
        vorherigen vorheriger obige obigen obiger bisherige bisherigen vorangegangenen vorangehenden vorigen \
        precedent precedents precedente precedentes precedenti ulteriores iniciais inicial antes arriba dessus davor \
        zuvor told given";
    ALL = 4: "all any every everything anything whatever each todas todos todo toda tudo alle alles jegliche toutes \
        tous tout tutte tutti tutto everybody these those aforementioned whole entire";
    YOUR = 5: "your yours ur thy seu sua seus suas teu tua teus tuas tu tus su sus dein deine deinen deiner deines \
        ihre ihren ihrer ton tes votre vos tuo tua tuoi tue vostro vostre";
    INSTRUCTION = 6: "instruction instructions instr instructs directive directives directions prompt prompts \
        preprompt guideline guidelines programming constraints restrictions guardrails safeguards instrucao \
        instrucoes instruccion instrucciones diretriz diretrizes directriz directrices anweisung anweisungen \
        instruktion instruktionen vorgaben richtlinien consigne consignes istruzione istruzioni direttive \
        systemprompt";
    RULE = 7: "rule rules policy policies command commands order orders context requests request assignments \
        assignment protocol protocols training regra regras regla reglas ordens ordenes orden comando comandos regel \
        regeln befehl befehle regles ordres regole comandi knowledge documents tos input inputs task tasks told \
        conversation conversations prompting limitations filters directions aufgaben dokumente information";
    REVEAL = 8: "reveal revealing show showing print output outputting display repeat tell give share recite dump \
        leak expose disclose return write say list echo provide encode translate summarize summarise spell type send \
        copy paste retrieve state paraphrase reproduce describe read mostre mostra mostrar revele revela revelar \
        imprima exiba diga repita escreva liste muestra muestre imprime repite dime di escribe zeige zeig gib nenne \
        verrate verrat wiederhole ausgeben schreibe schreib sage sag affiche montre revele repete donne dis ecris \
        stampa ripeti rivela mostrami dimmi extract complete continue log cat";
    WHAT = 9: "what whats which how who que qual quais cual cuales was welche wie quel quelle quelles quale quali";
    SECRET = 10: "password passwords passwort passcode passphrase senha contrasena parola secret secrets credential \
        credentials codeword confidential apikey geheimnis geheime geheimen segredo secreto kennwort";
    SYSTEM = 11: "system systems sistema systeme systemmeldung initial initialization initialisation hidden starting \
        internal underlying initiale ursprunglichen";
    PROMPTING = 12: "prompt prompts instruction instructions message messages configuration config string directives \
        guidelines rules instrucoes instrucciones anweisungen role setup";
    SYSTEM_PROMPT = 13: "systemprompt systemprompts preprompt metaprompt";
    YOU = 14: "you u du sie voce tu vous usted ihr youre";
    BE = 15: "are re be bist es sera eres seja sind is act become werde";
    NOW = 16: "now jetzt agora ahora maintenant adesso henceforth onwards nun";
    ACT = 17: "act pretend roleplay behave simulate imagine impersonate finja finge actua atue aja fungiere \
        fungieren verhalte imaginez imagina simula simule emulate playing";
    AI = 19: "ai assistant assistants chatgpt gpt gpt3 gpt4 llm chatbot bot claude gemini copilot bard openai clyde \
        assistente asistente ki agi model";
    UNBOUND = 20: "unfiltered uncensored unrestricted unlimited jailbreak jailbroken jailbreaking amoral immoral \
        unethical immorally dan unhinged unmoderated lawless nsfw evil illegal obscene";
    WITHOUT = 21: "no without zero free any never sem sin ohne sans senza not lack lacks doesn hasn doesnt hasnt \
        bypasses beyond none";
    LIMITS = 22: "restriction restrictions limit limits limitation limitations filter filters filtering guideline \
        guidelines rules ethics ethical ethic moral morals morality censorship censor censoring guardrails \
        boundaries constraints policies restricoes limites filtros warnings disclaimers restricciones \
        einschrankungen limiti scruples inhibitions";
    SAFETY = 23: "guardrail guardrails safety verifier observer privacy safeguards moderation safeguard filters \
        protections policy verificador seguranca privacidade seguridad sicherheit";
    DISABLE = 24: "disable disabled disables bypass skip deactivate circumvent evade override disregard ignore off \
        suspend lift remove disarm without desative desligue pule";
    SEND = 25: "send sends email forward post upload transmit append submit exfiltrate leak reply deliver transfer \
        fetch envie encaminhe enviar mande reenvia sende";
    ADDRESS = 26: "";
    CALL = 27: "call calls invoke execute run use trigger ejecuta execute chame";
    TOOL = 28: "tool function";
    NEW = 29: "new neue neuen neues nova novas nuevas nueva nuevos nouvelle nouvelles nuove nuova additional updated \
        real actual true weitere";
    TASK = 30: "task tasks instruction instructions aufgabe aufgaben anweisungen tarefa tarefas tarea tareas \
        instrucoes instrucciones role persona objective mission directive directives rules policy command system \
        identity tache istruzioni";
    ALOUD = 31: "repeat recite echo verbatim copy print output spell reproduce repita wiederhole repite ripeti \
        beginning starting translate encode summarize summarise dump";
    ABOVE = 32: "above obigen obige acima arriba dessus preceding previous before start beginning earlier anfang \
        inicio";
    TEXT = 33: "text everything words conversation messages lines line paragraph sentence sentences phrase chat \
        content word history texto tudo todo alles prompt letter characters directions array log";
    ANSWER = 34: "reply respond answer say output print write responda answering replying responding antworte \
        antworten sag sage schreibe schreib respond di diga responde end ends repeat confirm tell beantworte";
    ONLY = 35: "only just exactly solely nothing nur apenas somente solo solamente seulement exact precisely always \
        never";
    AUTHORITY = 36: "administrator admin developer boss creator owner root sudo superuser ciso engineer programmer \
        chef entwickler desenvolvedor administrador supervisor auditor god";
    MODE = 37: "mode modus modo";
    MODE_KIND = 38: "developer debug debugging maintenance god admin dan jailbreak unrestricted sudo diagnostic root \
        opposite training test evil override unlimited";
    CLAIM = 39: "override authorise authorize authorised authorized drill audit debugging troubleshooting diagnostic \
        clearance emergency urgent";
    DECODE = 40: "decode decrypt rot13 base64 backwards hex unscramble decipher decodifique dekodiere reverse base32 \
        morse caesar cipher binary";
    INFORM = 41: "mention tell inform notify alert disclose reveal mencione conte avise show";
    USER = 42: "user users human humans anyone usuario utilizador benutzer owner";
    TOLD = 43: "told given instructed received provided programmed trained informed written asked gave";
    CHANGED = 44: "changed updated replaced revoked cancelled canceled superseded obsolete void lifted expired test \
        lie fake finished over overridden irrelevant invalid ungultig";
    SPEAKER = 45: "i we he she they patient doctor nurse";
    THE = 46: "the this that those these o os el la los las das die der den dem le les il lo gli";
    ORDINARY = 47: "manual leaflet folleto folheto nurse doctor pharmacist recipe label discharge meter insulin \
        colonoscopia colonoscopy surgery mother father parents family relatives wife husband employer warnings cache \
        linter draft estimates invoice brochure assembly kit inhaler doctors surgeon physician clinic wound bula";
    OBEY = 48: "obey follow do execute comply obedeca siga run perform act carry";
    OPPOSITE = 49: "opposite contrary gegenteil oposto contrario abweichend entgegen deviating";
    EXACTLY = 50: "it says what instructions they told say said them";
    FROM = 51: "from ab a desde des da dal of in for del do";
    CHARACTER = 52: "character persona personality chatbot roleplay fictional fiction story narrator bot girlfriend \
        simulator rp npc ai";
    MUST = 53: "must will shall should always never muss musst sollst soll deve debes need cannot can";
    PRISON = 54: "swear swearing curse cursing profanity offensive insult insults vulgar rude toxic horny lewd \
        sexual explicit slurs crude cuss";
    CONFIRM = 55: "confirmation confirm confirmar confirmed bestatigung acknowledgment acknowledge";
    PROCESS = 57: "reading processing summarizing summarising parsing analyzing analysing reviewing reviewer \
        reviewers handling";
    PATIENT_DATA = 58: "records record patients patient names database keys key token history data credentials \
        registros pacientes lista";
    LEAVE = 18: "leave lassen lasse laisse deixe put set strike streichen clear throw deja";
    WANT = 56: "see need want know access view get learn inspect quero ver";
    INDEFINITE = 60: "a an um uma un une ein eine einen";
    SUPPOSED = 61: "supposed allowed permitted meant";
    REPORTED = 62: "paper papers authors author phrase phrases attacker attackers detected detector detects \
        detection filters article example examples explain explained attack attacks study studies researchers staff \
        training security phishing descriptive vulnerability";
    UPKEEP = 63: "reset procedure generator generators expired manager requirements protected";
    SAY = 59: "love hate pwned hello haha yes lol";
}

struct Entry {
    word: &'static str,
    begins: bool,
    concepts: Concepts,
}

/// The words, by a hash of their first letters.
static WORDS: LazyLock<Vec<Vec<Entry>>> = LazyLock::new(|| {
    let mut words: Vec<Vec<Entry>> = std::iter::repeat_with(Vec::new).take(BUCKETS).collect();
    for (concepts, list) in TABLE {
        for word in list.split_ascii_whitespace() {
            let (word, begins) = word.strip_suffix('*').map_or((word, false), |w| (w, true));
            let entries = &mut words[bucket(word)];
            match entries.iter_mut().find(|e| e.word == word && e.begins == begins) {
                Some(entry) => entry.concepts |= concepts,
                None => entries.push(Entry { word, begins, concepts: *concepts }),
            }
        }
    }
    words
});

const BUCKETS: usize = 1 << 12;

/// Where words with these first letters are. Shorter words count as filled up.
fn bucket(word: &str) -> usize {
    let letters = word.as_bytes().iter().take(KEY_LETTERS);
    letters.fold(0x9e37, |hash: usize, letter| (hash ^ usize::from(*letter)).wrapping_mul(0x0100_0193)) >> 7
        & (BUCKETS - 1)
}

/// What a plain word stands for; 0 for most words.
fn concepts(word: &str) -> Concepts {
    let entries = &WORDS[bucket(word)];
    entries.iter().filter(|e| e.word == word || e.begins && word.starts_with(e.word)).fold(0, |all, e| all | e.concepts)
}

/// A word that stands for something, and its place in the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// In words; the end of a sentence counts as some words more.
    pub place: u32,
    pub concepts: Concepts,
}

/// Words that the end of a sentence counts as: what is said in two sentences hangs together less.
const SENTENCE_END_WORDS: u32 = 3;

/// The marked words of a plain text, in order.
pub(super) fn marks(plain: &str) -> Vec<Mark> {
    let bytes = plain.as_bytes();
    let mut marks = Vec::new();
    let (mut place, mut at, mut end) = (0, 0, 0);
    while at < bytes.len() {
        if !is_letter(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && is_letter(bytes[at]) {
            at += 1;
        }
        let gap = &bytes[end..start];
        let sentence =
            gap.iter().any(|b| matches!(b, b'!' | b'?' | b'\n')) || gap.first() == Some(&b'.') && gap.len() > 1;
        place += 1 + if sentence { SENTENCE_END_WORDS } else { 0 };
        end = at;
        let mut found = concepts(&plain[start..at]);
        if gap.ends_with(b"@") || gap.starts_with(b"://") {
            found |= ADDRESS;
        }
        if gap == b"_" {
            found |= TOOL;
        }
        if found != 0 {
            compose(&marks, place, &mut found);
            marks.push(Mark { place, concepts: found });
        }
    }
    marks
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// "system prompt", "prompt do sistema": two words that are one concept.
fn compose(marks: &[Mark], place: u32, found: &mut Concepts) {
    let Some(before) = marks.last() else { return };
    let near = place - before.place;
    let pair = |a: Concepts, b: Concepts| before.concepts & a != 0 && *found & b != 0;
    if near <= 1 && pair(SYSTEM, PROMPTING) && before.concepts & PROMPTING == 0
        || near <= 3 && pair(PROMPTING, SYSTEM) && place_is_system(*found)
    {
        *found |= SYSTEM_PROMPT;
    }
}

/// Only "prompt do sistema", not "prompt … initial".
fn place_is_system(found: Concepts) -> bool {
    found & SYSTEM != 0 && found & (PRIOR | AUTHORITY | SECRET) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: words of one concept are found in each language, ordinary words aren't. Method: a table.
    #[test]
    fn words_have_concepts() {
        for (word, concept) in [
            ("ignore", OVERRIDE),
            ("disregarding", OVERRIDE),
            ("esqueca", OVERRIDE),
            ("vergiss", OVERRIDE),
            ("anweisungen", INSTRUCTION),
            ("istruzioni", INSTRUCTION),
            ("passwort", SECRET),
        ] {
            assert_ne!(concepts(word) & concept, 0, "{word}");
        }
        for word in ["ignorance", "hypertension", "psoriasis", "cardiology"] {
            assert_eq!(concepts(word), 0, "{word}");
        }
    }
}
