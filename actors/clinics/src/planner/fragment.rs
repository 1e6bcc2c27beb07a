//! Part of a question between two separators, and what all parts have.

use super::topic::SearchTopic;

/// Separator before a fragment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Connector {
    /// Beginning of a sentence.
    #[default]
    Start,
    /// Comma or similar sign, or a word such as `plus`.
    Comma,
    And,
    /// `or`, or `than` in a comparison.
    Or,
    /// Negation: the fragment before goes on.
    Negation,
}

/// Part of a query between two separators, such as commas or conjunctions. Its flags tell which
/// [`WordRole`]s its words have. Parts that it lacks, such as the clinic, may be taken from its
/// neighbours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Index of the sentence that holds the fragment.
    pub sentence: usize,
    pub connector: Connector,
    /// Whether it begins with a word such as `but`.
    pub but: bool,
    pub verb: bool,
    pub what: bool,
    /// Whether a fragment beside it, such as `list` alone, requests it.
    pub asked: bool,
    pub who: bool,
    pub cue: bool,
    /// Whether it begins with a preposition such as `of`.
    pub of: bool,
    pub patients: bool,
    /// Whether a singular word such as `patient` is all that refers to patients.
    pub one_patient: bool,
    pub record: bool,
    pub medication: bool,
    pub dose: bool,
    pub taking: bool,
    pub pronoun: bool,
    pub all: bool,
    pub both: bool,
    /// Whether `both` stands after the topic: "psoriasis and eczema at the same time".
    pub both_last: bool,
    /// Whether a word such as `someone` means a single person.
    pub one_person: bool,
    /// Whether it begins with a word such as `only`.
    pub only: bool,
    /// Word for those who are left, such as `others`.
    pub rest: Option<String>,
    /// Whether what is left out of what is ignored is asked for: "ignore those without acne".
    pub unignored: bool,
    pub count: bool,
    pub compare: bool,
    /// Whether it has the noun `list` beside a clinic: "cardiology list".
    pub is_list: bool,
    /// Whether a plural word such as `clinics` names the clinics.
    pub clinic_words: bool,
    /// Whether it refers to a single clinic without naming it: "that clinic".
    pub one_clinic: bool,
    /// Whether it mentions names or other identifying fields.
    pub identity: bool,
    /// Negation before the fragment, or verb such as `ignore` in it; both together cancel out.
    pub left_out: Option<String>,
    /// Patient ids. Each comes with the registry index of the clinic whose id prefix it has.
    pub ids: Vec<(usize, String)>,
    /// Clinics that the fragment names, as indexes in the registry.
    pub clinics: Vec<usize>,
    /// Whether it tells something of a part of the body that stands for clinics: "brain gone".
    pub is_body_part: bool,
    /// Condition, medicine or other text that the fragment asks to search for; `None` if it asks
    /// for no search, or its own words include a patient id.
    pub topic: Option<SearchTopic>,
    /// Texts whose patients are left out of the fragment's.
    pub excluded: Vec<SearchTopic>,
    /// Whether it tells what the patients of the fragment before are too: "are also patients of neurology".
    pub also: bool,
    /// Whether it asks for the records or medications of the patients that the clause before found.
    pub follows: bool,
}

impl Fragment {
    /// Returns whether the fragment names a kind of data: patients, records or medications.
    pub fn has_subject(&self) -> bool {
        self.patients || self.record || self.medication || self.taking
    }

    /// Returns whether the fragment names a kind of data of patients: records or medications.
    pub fn has_data(&self) -> bool {
        self.record || self.medication
    }

    /// Returns whether the fragment requests nothing, such as `please` or a verb alone.
    pub fn is_empty(&self) -> bool {
        !self.has_subject() && self.has_no_object() && self.rest.is_none()
    }

    /// Returns whether the fragment has a word that requests something: a verb, or a question word.
    pub fn asks(&self) -> bool {
        self.verb || self.who || self.count || self.asked
    }

    /// Returns whether the fragment tells of nobody in particular: it has no topic, clinic or id.
    pub fn has_no_object(&self) -> bool {
        self.topic.is_none() && self.clinics.is_empty() && self.ids.is_empty()
    }

    /// Returns whether the fragment names clinics and nothing else, except perhaps a verb, a
    /// pronoun or a word such as `all`.
    pub fn has_only_clinics(&self) -> bool {
        !self.clinics.is_empty()
            && !self.has_subject()
            && self.ids.is_empty()
            && self.topic.is_none()
    }

    /// Returns whether the fragment has a topic and nothing else that tells what is asked.
    pub fn has_only_topic(&self) -> bool {
        self.topic.is_some()
            && !self.verb
            && !self.patients
            && !self.record
            && !self.medication
            && self.clinics.is_empty()
    }
}

/// Fragments of a query, without those that request nothing, and what concerns all of them.
#[derive(Debug, Default)]
pub(super) struct QueryFragments {
    pub fragments: Vec<Fragment>,
    pub count: bool,
    pub compare: bool,
    /// Words that were neither understood nor searched.
    pub unused: Vec<String>,
    /// Words such as `severe`, which aren't searched.
    pub qualifiers: Vec<String>,
}
