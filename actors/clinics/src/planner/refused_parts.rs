//! Parts of a fragment that must not be planned: filters, unknown words, orders and complaints.

use callboard_message::text::is_one_of;

use super::fragment::Fragment;
use super::fragment_roles::is_term;
use super::phrases::PhraseKind;
use super::refusal::PlanRefusal;
use super::splitter::FragmentSplitter;
use super::tags::{PhraseTag, TaggedPhrase};
use super::term::TopicTerm;
use super::topic::{SearchTopic, is_part_of_topic};
use super::vocabulary::WordRole;

/// Nouns of a purpose, which narrow no question.
const PURPOSES: &str = "audit meeting review check round rounds handover huddle report call inspection presentation \
     conference auditoria reunião reuniao revisão revisao plantão plantao relatório relatorio passagem \
     conferência conferencia aula aulas tese pesquisa estudo class lecture lesson seminar thesis study \
     research talk visita inspeção inspecao apresentação apresentacao";

impl FragmentSplitter<'_> {
    /// Refuses the fragment if a time, a number, or a comparison with one narrows what it asks for.
    /// Elsewhere these words are noted.
    pub(super) fn check_filters(&mut self, fragment: &Fragment) -> Result<(), PlanRefusal> {
        let asks = !fragment.is_empty() || self.has_only_filter();
        let mut numbers = self.pieces.iter().filter(|p| p.tag == PhraseTag::Number);
        let has_number = numbers.next().is_some();
        // "who joined cardiology last month"
        let has_unknown = self.pieces.iter().any(|p| p.tag == PhraseTag::Unknown);
        for (at, piece) in self.pieces.iter().enumerate() {
            let next = self.pieces.get(at + 1).map(|p| &p.tag);
            let of_clinics = next == Some(&PhraseTag::Vocabulary(WordRole::Clinics));
            let filters = match piece.tag {
                // "I need them since 2020"
                PhraseTag::Number if piece.is_year() => !is_part_of_topic(&self.pieces, at),
                PhraseTag::Number => {
                    asks && !of_clinics
                        && !is_part_of_topic(&self.pieces, at)
                        && !self.is_before_appointment(at)
                }
                PhraseTag::Vocabulary(WordRole::Time) => {
                    // "cardiology, last month"
                    let is_period = at > 0
                        && self.pieces[at - 1].tag == PhraseTag::Vocabulary(WordRole::Relative);
                    let may_filter =
                        !fragment.has_only_clinics() || fragment.who || has_unknown || is_period;
                    asks && may_filter
                        && !self.is_purpose(at)
                        && !self.is_before_appointment(at)
                        && !self.is_present(at, fragment)
                        && !self.is_rhythm(fragment)
                }
                PhraseTag::Vocabulary(WordRole::Relative) => {
                    asks && has_number && !self.is_before_appointment(at)
                }
                _ => continue,
            };
            if filters {
                return Err(PlanRefusal::Filter(piece.shown.clone()));
            }
            if !of_clinics && !is_part_of_topic(&self.pieces, at) {
                self.found.unused.push(piece.shown.clone());
            }
        }
        Ok(())
    }

    /// Returns whether the fragment is a number that narrows the one before it in the sentence: "acne, 2021".
    fn has_only_filter(&self) -> bool {
        let is_number = |p: &TaggedPhrase| {
            use WordRole::{Filler, Of, Relative, Time};
            p.tag == PhraseTag::Number
                || matches!(p.tag, PhraseTag::Vocabulary(Filler | Of | Relative | Time))
        };
        let is_relative = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Relative);
        let has_number = self.pieces.iter().any(|p| p.tag == PhraseTag::Number);
        let before = self.found.fragments.last();
        let narrows =
            before.is_some_and(|before| before.sentence == self.sentence && !before.is_empty());
        narrows
            && (has_number || self.pieces.iter().any(is_relative))
            && self.pieces.iter().all(is_number)
    }

    /// Refuses the fragment if an unknown word in it narrows what is asked. Other unknown words are
    /// noted.
    pub(super) fn check_unknown(&mut self, fragment: &Fragment) -> Result<(), PlanRefusal> {
        // "which patients use an inhaler"
        let asks_for_form = (fragment.patients || fragment.who)
            && fragment.topic.is_none()
            && fragment.ids.is_empty()
            && !fragment.medication;
        for at in 0..self.pieces.len() {
            let piece = &self.pieces[at];
            let unknown = match piece.tag {
                PhraseTag::Unknown => true,
                PhraseTag::Weak => !is_part_of_topic(&self.pieces, at),
                PhraseTag::Vocabulary(WordRole::Form) if asks_for_form => {
                    return Err(self.unknown_word(&piece.shown));
                }
                _ => false,
            };
            if !unknown {
                continue;
            }
            if self.is_restriction(at, fragment) {
                let refusal = self.unknown_word(&piece.shown);
                if self.is_statement(at, fragment) {
                    self.refused_unless_asked.get_or_insert(refusal);
                    self.found.unused.push(piece.shown.clone());
                    continue;
                }
                let may_be_noise = fragment.is_empty()
                    && !fragment.asks()
                    && !fragment.what
                    && (!piece.capital || at == 0)
                    && !looks_medical(&piece.shown);
                if !may_be_noise {
                    return Err(refusal);
                }
                self.refused_unless_noise.get_or_insert(refusal);
            }
            self.found.unused.push(piece.shown.clone());
        }
        Ok(())
    }

    /// Returns whether the unknown word at `at` narrows what is asked: it follows a word such as
    /// `with`, stands beside a word for patients or a medical one, begins with a capital letter, or
    /// is all that a verb asks for.
    fn is_restriction(&self, at: usize, fragment: &Fragment) -> bool {
        let pieces = &self.pieces;
        let is_plain = |p: &&TaggedPhrase| {
            let role = |role| p.tag == PhraseTag::Vocabulary(role);
            p.is_filler() || role(WordRole::Of) || role(WordRole::Relative)
        };
        let before = pieces[..at].iter().rev().find(|p| !is_plain(p));
        let after = pieces[at + 1..].iter().find(|p| !is_plain(p));
        let joined_by_of =
            at > 0 && matches!(pieces[at - 1].tag, PhraseTag::Vocabulary(WordRole::Of));
        let role = |p: Option<&TaggedPhrase>| match p.map(|p| &p.tag) {
            Some(PhraseTag::Vocabulary(role)) => Some(*role),
            _ => None,
        };
        // "quem tem a pele seca": the synonym of a specialty is a part of the body
        let is_body_part = matches!(
            before.map(|p| &p.tag),
            Some(PhraseTag::Clinic(PhraseKind::Synonym, _))
        ) && fragment.cue;
        let is_clinic =
            |p: Option<&TaggedPhrase>| matches!(p.map(|p| &p.tag), Some(PhraseTag::Clinic(..)));
        use WordRole::{Count, Cue, OnePatient, Patients, Taking, Verb, Who};
        // "the patient in front of me is CARD-024": the id tells who
        let is_named = pieces[at + 1..]
            .iter()
            .any(|p| matches!(p.tag, PhraseTag::Id(..)));
        let is_people = match role(before) {
            Some(Who) => true,
            Some(Patients | OnePatient) => !is_named,
            _ => false,
        };
        // "been fitted with a pacemaker", "who developed psoriasis", "patients enrolled in cardiology":
        // a verb before what counts
        let leads_on = is_leading_verb(&pieces[at].shown)
            && (fragment.topic.is_some() && matches!(role(after), Some(Cue | Taking))
                || role(before) == Some(Who) && after.is_some_and(is_term)
                || is_people && is_clinic(after));
        let is_order = before.is_none() && self.may_order(at, fragment);
        // "which doctor prescribed warfarin to CARD-001"
        let asks_which = at > 0 && is_one_of(&pieces[at - 1].shown, "which qual");
        // Portuguese adjectives follow: "insuficiência hepática"
        let beside = at.checked_sub(1).map(|at| &pieces[at]);
        let follows_condition = matches!(beside.map(|p| &p.tag),
            Some(PhraseTag::Term(term)) if !term.is_medicine);
        // "a student needs a case of psoriasis": a sentence lies between
        let following = pieces[at + 1..].iter().take_while(|p| is_plain(p));
        let is_apart = { following }.any(|p| is_one_of(&p.shown, "a an the um uma o os as"));
        // "insuf cardíaca"
        let is_before_body_part = matches!(
            pieces.get(at + 1).map(|p| &p.tag),
            Some(PhraseTag::Clinic(PhraseKind::Synonym, _))
        );
        let narrows = is_people
            || is_body_part
            || is_before_body_part
            || is_order
            || follows_condition
            || matches!(role(before), Some(Cue | Taking))
            || (after.is_some_and(is_term) && !is_apart)
            || (joined_by_of && before.is_some_and(is_term))
            || looks_medical(&pieces[at].shown);
        // A list of patients, or general knowledge about a topic: the word may be what matters.
        let is_bare_list = fragment.patients && fragment.topic.is_none() && fragment.ids.is_empty();
        if self.is_purpose(at) {
            return false;
        }
        ((narrows || is_bare_list) && !leads_on && !self.is_of_asker(fragment))
            || asks_in_general(fragment)
            || asks_which
            || matches!(role(after), Some(Patients | OnePatient))
            || (pieces[at].capital && at > 0 && !self.reading.is_title_case)
            // "tell me a joke about dermatologists"
            || (matches!(role(before), Some(Verb | Count))
                && !fragment.has_subject()
                && !fragment.who
                && fragment.ids.is_empty())
    }

    /// Returns whether a fragment that asks for nothing is about the person who asks: "I am in a hurry with this".
    fn is_of_asker(&self, fragment: &Fragment) -> bool {
        let is_we = |p: &TaggedPhrase| is_one_of(&p.shown, "we we're we've temos estamos");
        fragment.is_empty()
            && !fragment.verb
            && self.pieces.iter().any(|p| is_of_user(p) || is_we(p))
    }

    /// Returns whether the first word that counts, at `at`, may be an order: "discharge CARD-001", but not "I spilled tea
    /// on the chart of CARD-001".
    fn may_order(&self, at: usize, fragment: &Fragment) -> bool {
        const SUBJECTS: &str = "i we he she they someone my our eu ele ela";
        let is_told = { self.pieces[..at].iter() }.any(|p| is_one_of(&p.shown, SUBJECTS));
        !fragment.ids.is_empty() && !is_told
    }

    /// Returns whether the word at `at` tells the hour of an appointment of the asker's, to the end of the fragment:
    /// "the list of cardiology, before the 9 o'clock meeting". A year or a date isn't one.
    fn is_before_appointment(&self, at: usize) -> bool {
        let is_before = |p: &TaggedPhrase| is_one_of(&p.shown, "before until till antes ate até");
        let Some(start) = self.pieces[..=at].iter().rposition(is_before) else {
            return false;
        };
        let [before @ .., last] = &self.pieces[start + 1..] else {
            return false;
        };
        let may_lead = |p: &TaggedPhrase| {
            let is_hour = p.tag == PhraseTag::Number && p.shown.len() <= 2;
            // "tomorrow's meeting"
            let is_day = p.tag == PhraseTag::Vocabulary(WordRole::Time);
            is_hour || is_day || p.is_filler() || p.tag == PhraseTag::Vocabulary(WordRole::Of)
        };
        let before_start = self.pieces[..start].iter().rposition(|p| !p.is_filler());
        let follows_object = before_start.is_some_and(|at| {
            let piece = &self.pieces[at];
            matches!(piece.tag, PhraseTag::Clinic(..)) || is_list_word(piece)
        });
        follows_object && is_one_of(&last.shown, PURPOSES) && before.iter().all(may_lead)
    }

    /// Returns whether the word at `at` stands for the present in a count of those whom the clinics have: "how many
    /// with acne do we have today".
    fn is_present(&self, at: usize, fragment: &Fragment) -> bool {
        let is_having = |at: usize| is_one_of(&self.pieces[at].shown, "have temos há ha existem");
        fragment.count
            && fragment.topic.is_some()
            && is_one_of(&self.pieces[at].shown, "today hoje")
            && at + 1 == self.pieces.len()
            && at.checked_sub(1).is_some_and(is_having)
    }

    /// Returns whether a time tells how often a patient takes a medicine: "every how many weeks does DERM-019 get
    /// dupilumab".
    fn is_rhythm(&self, fragment: &Fragment) -> bool {
        const RHYTHMS: &str = "every each often many times cada quantas quantos vezes";
        let is_rhythm = |p: &TaggedPhrase| is_one_of(&p.shown, RHYTHMS);
        let has_medicine = { &fragment.topic }
            .as_ref()
            .is_some_and(SearchTopic::has_medicine);
        // "every day last month"
        let is_relative = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Relative);
        !fragment.ids.is_empty()
            && has_medicine
            && self.pieces.iter().any(is_rhythm)
            && !self.pieces.iter().any(is_relative)
    }

    /// Reads a purpose before the question as words that aren't used, unless it names what clinics list: "for our valve
    /// meeting I need the patients with angina".
    pub(super) fn read_purpose(&mut self) {
        let is_for = |p: &TaggedPhrase| is_one_of(&p.shown, "for para pra");
        let Some(start) = self.pieces.iter().position(|p| !p.is_filler() || is_for(p)) else {
            return;
        };
        let end = self
            .pieces
            .iter()
            .position(|p| is_one_of(&p.shown, PURPOSES));
        let Some(end) =
            end.filter(|end| is_for(&self.pieces[start]) && *end + 1 < self.pieces.len())
        else {
            return;
        };
        let is_plain = |p: &TaggedPhrase| match &p.tag {
            PhraseTag::Term(term) => term.clinics.is_empty() && !term.is_medicine,
            PhraseTag::Weak | PhraseTag::Unknown => true,
            PhraseTag::Vocabulary(role) => matches!(role, WordRole::Filler | WordRole::Of),
            _ => false,
        };
        if !self.pieces[start..end].iter().all(is_plain) {
            return;
        }
        for piece in &mut self.pieces[start..=end] {
            if !piece.is_filler() {
                self.found.unused.push(piece.shown.clone());
            }
            piece.tag = PhraseTag::Vocabulary(WordRole::Filler);
        }
    }

    /// Returns whether the word at `at` belongs to the purpose at the end of the fragment: "the list, for a lab
    /// check".
    fn is_purpose(&self, at: usize) -> bool {
        let is_for = |p: &TaggedPhrase| is_one_of(&p.shown, "for para pra");
        let Some(start) = self.pieces[..at].iter().rposition(is_for) else {
            return false;
        };
        let rest = &self.pieces[start + 1..];
        let is_object = |p: &TaggedPhrase| {
            matches!(
                p.tag,
                PhraseTag::Term(_) | PhraseTag::Clinic(..) | PhraseTag::Id(..) | PhraseTag::Number
            )
        };
        start > 0
            && rest.iter().any(|p| is_one_of(&p.shown, PURPOSES))
            && !rest.iter().any(is_object)
    }

    /// Returns whether the fragment only states something of a medicine, and its unknown word at `at` isn't
    /// part of that: "there is a shortage of bisoprolol".
    fn is_statement(&self, at: usize, fragment: &Fragment) -> bool {
        let follows_term = at > 0 && is_term(&self.pieces[at - 1]);
        let has_medicine = fragment
            .topic
            .as_ref()
            .is_some_and(SearchTopic::has_medicine);
        let asks = fragment.asks() || fragment.what || fragment.patients || fragment.compare;
        has_medicine
            && !asks
            && fragment.ids.is_empty()
            && !follows_term
            && !self.pieces[at].capital
            && !looks_medical(&self.pieces[at].shown)
    }

    /// Decides about the unknown word of a statement by the next fragment: a question about the medicine tells
    /// that the word is only the reason for it.
    ///
    /// # Errors
    /// The refusal, if the fragment asks for something else.
    pub(super) fn settle_statement(
        &mut self,
        refusal: PlanRefusal,
        fragment: &Fragment,
    ) -> Result<(), PlanRefusal> {
        let asks = fragment.asks() || fragment.what || fragment.patients;
        let asks_of_patients = !matches!(refusal, PlanRefusal::Advice(_)) || fragment.patients;
        if asks && asks_of_patients && fragment.topic.is_none() && fragment.ids.is_empty() {
            return Ok(());
        }
        if fragment.is_empty() {
            self.refused_unless_asked.get_or_insert(refusal);
            return Ok(());
        }
        Err(refusal)
    }

    fn unknown_word(&self, word: &str) -> PlanRefusal {
        PlanRefusal::UnknownWord {
            word: word.to_owned(),
            suggestions: self.query.suggestions_for(word),
            specialties: self.registry.specialties(),
        }
    }

    /// Refuses a complaint of the user's own, such as `I have chest pain`.
    pub(super) fn refuse_own_complaint(&mut self, fragment: &Fragment) -> Result<(), PlanRefusal> {
        const STATES: [&str; 5] = ["have", "feel", "got", "suffer", "take"];
        // "I'm auditing anticoagulation", "estou a preparar": work, no complaint
        const AT_WORK: &str = "i'm i've estou";
        const WORK: &str = "auditing preparing reviewing writing studying collecting compiling teaching organizing organising \
             preparar rever escrever estudar recolher preparando revendo escrevendo estudando";
        // "I'm putting together the list", "estou fechando o levantamento", but not "I'm having a heart attack"
        const OTHERS: &str = "colleague colleagues boss chief registrar consultant manager mentor tutor colega chefe";
        const BODILY: &str = "having getting feeling losing suffering taking using sentindo tendo perdendo tomando usando ficando sofrendo";
        const OBJECTS: &str = "a an the some together up my our this o os as um uma";
        let is_progressive = |at: usize| {
            let word = |at: usize| self.pieces.get(at).map_or("", |p| &*p.shown);
            let verb = word(at + 1);
            (verb.ends_with("ing") || verb.ends_with("ndo"))
                && !is_one_of(verb, BODILY)
                && is_one_of(word(at + 2), OBJECTS)
        };
        // "on my desk"
        let is_place = |at: usize| {
            let before = at.checked_sub(1).map_or("", |at| &*self.pieces[at].shown);
            is_one_of(before, "on to at")
                && self.pieces.get(at + 1).is_some_and(|p| {
                    matches!(
                        p.tag,
                        PhraseTag::Unknown | PhraseTag::Vocabulary(WordRole::Filler)
                    )
                })
        };
        let has_to = |at: usize| self.pieces.get(at + 1).is_some_and(|p| p.shown == "to");
        let is_work = |at: usize| {
            let mut after = self.pieces[at + 1..].iter().filter(|p| p.shown != "a");
            is_one_of(&self.pieces[at].shown, AT_WORK)
                && after.next().is_some_and(|p| is_one_of(&p.shown, WORK))
        };
        let is_own = |(at, piece): (usize, &TaggedPhrase)| {
            if is_work(at) || is_place(at) || is_one_of(&piece.shown, AT_WORK) && is_progressive(at)
            {
                return false;
            }
            let previous = at.checked_sub(1).map_or("", |at| &self.pieces[at].shown);
            let is_state = previous == "i" && STATES.contains(&&*piece.shown) && !has_to(at);
            (is_of_user(piece) && piece.shown != "i") || is_state
        };
        // "ignore my mail about hives"
        if self.is_ignored() {
            return Ok(());
        }
        let about_patients = fragment.patients
            || fragment.who
            || !fragment.clinics.is_empty()
            || !fragment.ids.is_empty();
        match self.pieces.iter().enumerate().find(|piece| is_own(*piece)) {
            Some((at, piece)) if fragment.topic.is_some() && !about_patients => {
                let refusal = PlanRefusal::Advice(piece.shown.clone());
                // "my colleague's cat has ringworm: do any of our patients have it"
                let is_of_another = is_one_of(&piece.shown, "my meu minha")
                    && self
                        .pieces
                        .get(at + 1)
                        .is_some_and(|p| is_one_of(&p.shown, OTHERS));
                if !is_of_another {
                    return Err(refusal);
                }
                self.refused_unless_asked.get_or_insert(refusal);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a question for a patient's name, address or number alone: "the phone of CARD-001", "where does
    /// CARD-001 live". Beside a word for what a record has, the record is asked for.
    pub(super) fn refuse_identity(&self, fragment: &Fragment) -> Result<(), PlanRefusal> {
        const NAMES: &str = "name names surname nome nomes sobrenome apelido";
        const LIVES: &str = "live lives living mora moram vive reside";
        const CONDITIONS: &str = "condition conditions disease diseases diagnosis illness condicao condição doenca \
             doença diagnostico diagnóstico";
        let Some((_, id)) = fragment.ids.first() else {
            return Ok(());
        };
        let has = |words| self.pieces.iter().any(|p| is_one_of(&p.shown, words));
        let is_of_record = self.pieces.iter().any(|p| {
            use WordRole::{Dose, Medication, Record};
            matches!(p.tag, PhraseTag::Vocabulary(Record | Medication | Dose))
        });
        if is_of_record || has(CONDITIONS) {
            return Ok(());
        }
        if let Some(word) = self.number_of_person() {
            let id = id.clone();
            return Err(PlanRefusal::IdentityOfOne { word, id });
        }
        let asks_where = has("where onde");
        // "what's CARD-001 called", but not "CARD-001 called in"
        let asks_called = fragment.what && self.pieces.last().is_some_and(|p| p.shown == "called");
        let asks_how = has("chama chamam");
        let identity = self.pieces.iter().enumerate().find(|(at, p)| match p.tag {
            PhraseTag::Vocabulary(WordRole::Identity) => true,
            // "name CARD-001's condition", but not "name of CARD-001"
            PhraseTag::Vocabulary(WordRole::NameCue) => {
                let next = self.pieces.get(at + 1).map(|p| &p.tag);
                let is_order = *at == 0
                    && p.shown == "name"
                    && next != Some(&PhraseTag::Vocabulary(WordRole::Of));
                asks_called || is_one_of(&p.shown, NAMES) && !is_order
            }
            _ => {
                asks_where && is_one_of(&p.shown, LIVES)
                    || asks_how && is_one_of(&p.shown, "chama chamam")
            }
        });
        match identity {
            Some((_, piece)) => Err(PlanRefusal::IdentityOfOne {
                word: piece.shown.clone(),
                id: id.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the unknown word that tells whose or which number is asked for: "the social security number", "o número do
    /// seguro". `None` if there is none.
    fn number_of_person(&self) -> Option<String> {
        let is_of = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Of);
        // "o nº de beneficiário"
        let is_number = |at: &usize| {
            is_one_of(&self.pieces[*at].shown, "number numbers numero número")
                || is_one_of(&self.pieces[*at].shown, "no nº nr")
                    && self.pieces.get(at + 1).is_some_and(is_of)
        };
        let is_unknown = |p: &&TaggedPhrase| matches!(p.tag, PhraseTag::Unknown | PhraseTag::Weak);
        let at = (0..self.pieces.len()).find(is_number)?;
        // "my father's number is CARD-001"
        let next = self.pieces.get(at + 1);
        if next.is_some_and(|p| is_one_of(&p.shown, "is é")) {
            return None;
        }
        let before = at.checked_sub(1).map(|at| &self.pieces[at]);
        let mut after = self.pieces[at + 1..].iter().skip_while(|p| is_of(p));
        let word = before
            .filter(is_unknown)
            .or(after.next().filter(is_unknown));
        word.map(|p| p.shown.clone())
    }

    /// Refuses the question whether something that is told of a patient is fine: "DERM-018 is on isotretinoin and wants
    /// wine, is that okay?". Behind a request it is a courtesy.
    pub(super) fn refuse_permission(&self) -> Result<(), PlanRefusal> {
        const LEADS: &str = "is that this it would é isso isto está esta tem há ha faz será sera";
        const FINE: &str = "ok okay fine alright allowed advisable bad normal permitido problema problem mal bem mau ruim";
        use WordRole::{Count, Medication, Patients, Record, Verb, Who};
        let is_request = |p: &TaggedPhrase| match &p.tag {
            PhraseTag::Vocabulary(role) => {
                matches!(role, Count | Medication | Patients | Record | Verb | Who)
            }
            tag => matches!(tag, PhraseTag::Clinic(..) | PhraseTag::Id(..)),
        };
        let fine = self.pieces.iter().find(|p| is_one_of(&p.shown, FINE));
        let is_led = { self.pieces.first() }.is_some_and(|p| is_one_of(&p.shown, LEADS));
        let before = &self.found.fragments;
        let tells = before
            .iter()
            .any(|f| !f.ids.is_empty() && (f.taking || f.cue));
        match fine {
            Some(fine)
                if is_led
                    && tells
                    && !self.pieces.iter().any(is_request)
                    && !before.iter().any(|f| f.asks() || f.record) =>
            {
                Err(PlanRefusal::Permission(fine.shown.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a unit of a hospital that is no clinic here: "the kidney unit".
    pub(super) fn refuse_unit(&self) -> Result<(), PlanRefusal> {
        const UNITS: &str = "unit ward department clinic centre center unidade enfermaria";
        let is_other = |p: &TaggedPhrase| {
            let seen = |t: &TopicTerm| !t.clinics.is_empty() || t.is_medicine;
            matches!(&p.tag, PhraseTag::Term(term) if !seen(term))
        };
        let pair = self.pieces.windows(2).find(|pair| {
            (is_other(&pair[0]) && is_one_of(&pair[1].shown, UNITS))
                || (is_other(&pair[1]) && is_one_of(&pair[0].shown, UNITS))
        });
        match pair {
            Some(pair) => Err(PlanRefusal::NoSuchSpecialty {
                specialty: format!("{} {}", pair[0].shown, pair[1].shown),
                specialties: self.registry.specialties(),
            }),
            None => Ok(()),
        }
    }

    /// Refuses a question whether a medicine may be taken, about nobody here: "is it ok to take ibuprofen with
    /// warfarin".
    pub(super) fn refuse_general_taking(&self, fragment: &Fragment) -> Result<(), PlanRefusal> {
        const INFINITIVES: &str = "tomar usar utilizar";
        const ANYBODY: &str = "i you we one";
        let is_about_patients = fragment.patients
            || fragment.who
            || fragment.count
            || !fragment.ids.is_empty()
            || !fragment.clinics.is_empty();
        let mut pairs = self.pieces.windows(2);
        let infinitive = pairs.find(|pair| {
            let [before, here] = pair else { return false };
            let is_english = (before.shown == "to" || is_one_of(&before.shown, ANYBODY))
                && matches!(&*here.shown, "take" | "use");
            let is_purpose = before.shown == "used" && here.shown == "for";
            is_english || is_purpose || (before.shown != "a" && is_one_of(&here.shown, INFINITIVES))
        });
        match infinitive {
            Some(pair) if fragment.topic.is_some() && !is_about_patients => {
                Err(PlanRefusal::Advice(pair[1].shown.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a question whether a patient may take something, and an order to give it: "can CARD-001 take
    /// aspirin", "put CARD-001 on aspirin".
    pub(super) fn refuse_order(
        &self,
        fragment: &Fragment,
        has_medicine: bool,
    ) -> Result<(), PlanRefusal> {
        const MAY: &str = "can could may might pode podem poderia";
        const GIVE: &str = "put give start move keep hold coloque coloca colocar dê dá dar ponha põe administre administer";
        let is_whom = |at: usize| {
            let role = |r| self.pieces[at].tag == PhraseTag::Vocabulary(r);
            matches!(self.pieces[at].tag, PhraseTag::Id(..))
                || role(WordRole::Patients)
                || role(WordRole::OnePatient)
        };
        let has_data = fragment.record || fragment.medication;
        // "what would happen if CARD-001 took aspirin"
        let has = |words| self.pieces.iter().any(|p| is_one_of(&p.shown, words));
        if has_medicine && has("if se") && has("happen happens acontece") {
            return Err(PlanRefusal::Advice("if".to_owned()));
        }
        // "how much furosemide is too much for CARD-016", "how much lorazepam do I give"
        let has_pair = |pairs: &[(&str, &str)]| {
            let is_pair = |two: &[TaggedPhrase]| pairs.contains(&(&*two[0].shown, &*two[1].shown));
            self.pieces.windows(2).any(is_pair)
        };
        if has_medicine
            && has_pair(&[
                ("too", "much"),
                ("too", "high"),
                ("too", "low"),
                ("i", "give"),
                ("eu", "dou"),
            ])
        {
            return Err(PlanRefusal::Advice("much".to_owned()));
        }
        // "can a person with epilepsy drive"
        if let [may, article, whom, ..] = &self.pieces[..]
            && is_one_of(&may.shown, MAY)
            && is_one_of(&article.shown, "a an um uma")
            && whom.tag == PhraseTag::Vocabulary(WordRole::OnePatient)
            && fragment.topic.is_some()
            && fragment.clinics.is_empty()
        {
            return Err(PlanRefusal::Advice(may.shown.clone()));
        }
        if !has_data && let Some(order) = self.order_of_medicine(fragment) {
            return Err(PlanRefusal::Change(order));
        }
        for at in 1..self.pieces.len() {
            let (before, here) = (&*self.pieces[at - 1].shown, &*self.pieces[at].shown);
            let may = (is_one_of(before, MAY) && is_whom(at))
                || (is_one_of(here, MAY) && is_whom(at - 1));
            if may && fragment.taking && !has_data {
                return Err(PlanRefusal::Advice(here.to_owned()));
            }
            let gives = is_one_of(before, GIVE) && matches!(self.pieces[at].tag, PhraseTag::Id(..));
            if gives && has_medicine && !has_data {
                return Err(PlanRefusal::Change(before.to_owned()));
            }
        }
        Ok(())
    }

    /// Returns the verb of an order about a medicine: "give aspirin to CARD-001", "hold warfarin for CARD-001". `None` if
    /// there is none: "did we give aspirin to CARD-001", "give aspirin patients".
    fn order_of_medicine(&self, fragment: &Fragment) -> Option<String> {
        const ORDERS: &str = "put give hold keep withhold administer continue resume restart dê dá dar suspenda segure mantenha \
             administre administra administrar";
        const ASKS: &str = "do does did has have was were when why how if quando como se";
        let at = { self.pieces.iter() }.position(|p| is_one_of(&p.shown, ORDERS))?;
        let leads = |p: &TaggedPhrase| {
            p.is_filler() && !is_one_of(&p.shown, ASKS) || matches!(p.tag, PhraseTag::Id(..))
        };
        // "CARD-001: give aspirin"
        let before = { self.found.fragments.last() }.filter(|f| f.sentence == self.sentence);
        let follows_id =
            !fragment.patients && before.is_some_and(|f| !f.ids.is_empty() && !f.asks());
        let is_article = |p: &&TaggedPhrase| is_one_of(&p.shown, "the a an some more o os um");
        let mut after = self.pieces[at + 1..].iter().skip_while(is_article);
        let is_medicine = |p: &TaggedPhrase| matches!(&p.tag, PhraseTag::Term(t) if t.is_medicine);
        let is_given = after.next().is_some_and(is_medicine);
        let has_receiver =
            { after.next() }.is_some_and(|p| is_one_of(&p.shown, "to para pra ao à aos às"));
        let is_order = self.pieces[..at].iter().all(leads)
            && is_given
            && (has_receiver || follows_id || !fragment.ids.is_empty());
        is_order.then(|| self.pieces[at].shown.clone())
    }

    /// Returns whether the fragment asks what something is: `what is psoriasis`.
    pub(super) fn asks_definition(&self, fragment: &Fragment) -> bool {
        const BE: [&str; 6] = ["is", "are", "é", "são", "sao", "significa"];
        let asks = |pair: &[TaggedPhrase]| {
            matches!(&*pair[0].shown, "what" | "que" | "q" | "oq" | "qual")
                && BE.contains(&&*pair[1].shown)
        };
        let asks = self.pieces.windows(2).any(asks)
            || self
                .pieces
                .iter()
                .any(|p| matches!(&*p.shown, "what's" | "whats"));
        asks && fragment.topic.is_some()
            && !fragment.has_subject()
            && fragment.clinics.is_empty()
            && !fragment.count
    }
}

/// Returns whether a phrase is a word for a list of patients: `list`, `census`.
fn is_list_word(piece: &TaggedPhrase) -> bool {
    is_one_of(&piece.shown, "list lists census roster lista listagem ids")
}

/// Returns whether a fragment asks for general knowledge about a topic, of no patients.
fn asks_in_general(fragment: &Fragment) -> bool {
    fragment.topic.is_some()
        && fragment.ids.is_empty()
        && !fragment.has_subject()
        && !fragment.who
        && !fragment.cue
        && !fragment.count
        && !fragment.compare
        && fragment.clinics.is_empty()
        && fragment.verb
}

/// Returns whether a word, most often a verb, tells nothing but that what follows holds: "fitted with a pacemaker".
fn is_leading_verb(word: &str) -> bool {
    const VERBS: &str = "fitted implanted develop develops developed contracted found identified noted reported documented \
         live lives lived wear wears wore presented presents presenting \
         complaining placed stabilised stabilized established commenced initiated relies rely depends depend went cumprem cumpre \
         admitted referred else doctor doctors physician damos dão dao \
         desenvolveu desenvolveram contraiu contraíram usaram sofreu internado internada internados internadas médico medico \
         médicos medicos";
    is_one_of(word, VERBS)
}

/// Returns whether a word ends as names of diseases do, in English or Portuguese.
fn looks_medical(word: &str) -> bool {
    const ENDINGS: [&str; 16] = [
        "itis", "osis", "emia", "aemia", "pathy", "algia", "plasia", "trophy", "rrhea", "pox",
        "ose", "patia", "trofia", "rreia", "oma", "ite",
    ];
    const LETTERS_MIN: usize = 7;
    word.chars().count() >= LETTERS_MIN && ENDINGS.iter().any(|ending| word.ends_with(ending))
}

/// Returns whether a phrase is about the user, such as `my`.
fn is_of_user(piece: &TaggedPhrase) -> bool {
    matches!(
        &*piece.shown,
        "i" | "i'm" | "i've" | "my" | "meu" | "minha" | "estou" | "tenho"
    )
}
