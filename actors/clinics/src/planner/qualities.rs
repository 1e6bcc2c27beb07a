//! Qualities of conditions and medicines, which aren't searched, and words that are a part of what is searched.

use callboard_message::text::{fold, is_one_of};

use super::splitter::FragmentSplitter;
use super::tags::{PhraseTag, TaggedPhrase};
use super::term::TopicTerm;
use super::vocabulary::WordRole;
use crate::verifier::word_lists::EPONYMS;

impl FragmentSplitter<'_> {
    /// Takes the route or rhythm beside a medicine for a quality of it, which isn't searched: "oral retinoids",
    /// "daily aspirin". Neither is its salt, which records may not have.
    pub(super) fn qualify_medicines(&mut self) {
        const ROUTES: &str = "oral orais topical topico topica tópico tópica topicos tópicos topicas \
             tópicas systemic sistemico sistêmico sistémico inhaled inalado injectable injetavel injetável \
             intravenous intravenoso endovenoso subcutaneous subcutaneo subcutâneo sublingual daily nightly long \
             term long-term diario diário diaria diária diariamente";
        const SALTS: &str = "sodium sodio sódio sodico sódico sodica sódica potassium potassio potássio potassico potássico \
             potassica potássica calcium calcio cálcio calcica cálcica magnesium magnesio magnésio hydrochloride hcl \
             cloridrato succinate succinato tartrate tartarato besylate besilato maleate maleato sulfate sulfato";
        let is_medicine = |p: &TaggedPhrase| matches!(&p.tag, PhraseTag::Term(t) if t.is_medicine);
        if !self.pieces.iter().any(is_medicine) {
            return;
        }
        // "valproato de sódio"
        let is_of = |p: &TaggedPhrase| p.tag == PhraseTag::Vocabulary(WordRole::Of);
        for at in 1..self.pieces.len() {
            let before = self.pieces[..at].iter().rev().find(|p| !is_of(p));
            if is_one_of(&self.pieces[at].shown, SALTS) && before.is_some_and(is_medicine) {
                self.found.unused.push(self.pieces[at].shown.clone());
                self.pieces[at].tag = PhraseTag::Vocabulary(WordRole::Filler);
            }
        }
        for piece in &mut self.pieces {
            if is_one_of(&piece.shown, ROUTES) && !is_medicine(piece) {
                piece.tag = PhraseTag::Vocabulary(WordRole::Qualifier);
            }
        }
    }

    /// Reads the route of a medicine that isn't named as what records are searched for: "who gets something
    /// intravenous".
    pub(super) fn search_routes(&mut self) {
        const ROUTES: [(&str, &str); 3] = [
            (
                "intravenous",
                "intravenous intravenously intravenoso intravenosa endovenoso endovenosa",
            ),
            (
                "subcutaneous",
                "subcutaneous subcutaneously subcutaneo subcutâneo subcutanea subcutânea",
            ),
            ("sublingual", "sublingually"),
        ];
        let is_term = |p: &TaggedPhrase| matches!(p.tag, PhraseTag::Term(_));
        let asks = self.pieces.iter().any(|p| {
            use WordRole::{Form, Medication, Taking};
            matches!(p.tag, PhraseTag::Vocabulary(Form | Medication | Taking))
                || is_one_of(&p.shown, "something anything algo")
        });
        if !asks || self.pieces.iter().any(is_term) {
            return;
        }
        for piece in &mut self.pieces {
            if let Some((route, _)) = ROUTES
                .into_iter()
                .find(|(_, words)| is_one_of(&piece.shown, words))
            {
                piece.tag = PhraseTag::Term(TopicTerm::medicine(route, route));
            }
        }
    }

    /// Reads the name behind a medical word that clinics don't list as a part of its disease: "paralisia de Bell",
    /// "doença de Chagas".
    pub(super) fn read_eponyms(&mut self) {
        const DISEASES: &str = "disease doença doenca syndrome mal";
        for at in 2..self.pieces.len() {
            let [disease, of, name] = &self.pieces[at - 2..=at] else {
                continue;
            };
            let is_disease = match &disease.tag {
                PhraseTag::Term(term) => term.clinics.is_empty() && !term.is_medicine,
                _ => is_one_of(&disease.shown, DISEASES),
            };
            let is_name = matches!(name.tag, PhraseTag::Unknown | PhraseTag::Weak)
                && EPONYMS.contains(&fold(&name.shown));
            if is_disease && is_name && of.tag == PhraseTag::Vocabulary(WordRole::Of) {
                self.pieces[at].tag = PhraseTag::Term(TopicTerm::word(&name.shown, ""));
            }
        }
    }

    /// Takes a medical word beside a condition that clinics list for one of its qualities, which isn't
    /// searched: "itchy hives". A disease of another specialty is none.
    pub(super) fn qualify_conditions(&mut self) {
        let is_listed = |at: Option<usize>| match at.and_then(|at| self.pieces.get(at)) {
            Some(piece) => matches!(&piece.tag, PhraseTag::Term(t) if !t.clinics.is_empty()),
            None => false,
        };
        let qualifies = |at: usize| match &self.pieces[at].tag {
            PhraseTag::Term(term) => {
                term.clinics.is_empty()
                    && !term.is_medicine
                    && !self.names.is_foreign(&term.chapters)
                    && (is_listed(at.checked_sub(1)) || is_listed(at.checked_add(1)))
            }
            _ => false,
        };
        let found: Vec<usize> = (0..self.pieces.len()).filter(|at| qualifies(*at)).collect();
        for at in found {
            self.pieces[at].tag = PhraseTag::Vocabulary(WordRole::Qualifier);
        }
    }
}
