use crate::plan::STEPS_MAX;

use super::term::TOPIC_WORDS_MAX;

/// Reason a query isn't planned, as a sentence for the user that suggests an alternative.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlanRefusal {
    #[error("There is nothing to ask. Try: list all cardiology patients.")]
    Empty,
    #[error(
        "I can list patients, show one by id, check one's medications, or search for a condition or medicine. Say \
         which you want. Name a specialty ({specialties}), a condition or a patient id."
    )]
    SayWhat { specialties: String },
    #[error(
        "I don't know the word \"{word}\"{suggestions}. Name a specialty ({specialties}), a condition, a medicine \
         or a patient id."
    )]
    UnknownWord {
        word: String,
        suggestions: String,
        specialties: String,
    },
    #[error("No clinic here treats {specialty}. Registered are: {specialties}.")]
    NoSuchSpecialty {
        specialty: String,
        specialties: String,
    },
    #[error("No clinic here is called {clinic}. Registered are: {clinics}.")]
    NoSuchClinic { clinic: String, clinics: String },
    #[error("No clinic here has patient ids like {id}. Known are: {prefixes}.")]
    NoSuchPrefix { id: String, prefixes: String },
    #[error(
        "{id} is a patient of {owner}, not of the clinic that you named. Ask one clinic at a time about its \
         own patients."
    )]
    WrongClinic { id: String, owner: String },
    #[error("That needs a patient id, such as {example}. List the clinic's patients to find it.")]
    NeedsId { example: String },
    #[error(
        "Patients are found by id or condition, never by name. List the clinic's patients to find the id."
    )]
    ByName,
    #[error(
        "Identities are not listed (\"{0}\"). Ask for one patient by id, and state the purpose."
    )]
    Identity(String),
    #[error(
        "Identities are not told by themselves (\"{word}\"). Ask for the record of {id}, and state the purpose."
    )]
    IdentityOfOne { word: String, id: String },
    #[error(
        "I can't tell what to leave out (\"{0}\"). Say which patients you want to see instead."
    )]
    Negation(String),
    #[error(
        "The clinics can only be read (\"{0}\" is not possible). Ask to list, show, check or search."
    )]
    Change(String),
    #[error(
        "That is a physician's judgement (\"{0}\"). I can show what the clinics have recorded."
    )]
    Advice(String),
    #[error(
        "Whether that is fine for a patient is a physician's judgement (\"{0}\"). I can show what the clinics have \
         recorded."
    )]
    Permission(String),
    #[error("Clinics are never joined (\"{0}\"). Ask each of them by itself.")]
    Join(String),
    #[error(
        "The clinics can't select by age, sex, date, dose, number or order (\"{0}\"). List patients or search \
         for a condition."
    )]
    Filter(String),
    #[error(
        "\"{start} …\" is too long for a condition. Search for one to {TOPIC_WORDS_MAX} words."
    )]
    LongTopic { start: String },
    #[error("That is {steps} steps, more than {STEPS_MAX}. Ask for less at once.")]
    TooManySteps { steps: usize },
}

impl PlanRefusal {
    /// Returns whether a word beside the question may be the reason, so that it is planned without what may
    /// be an aside.
    pub fn may_be_of_aside(&self) -> bool {
        matches!(
            self,
            Self::UnknownWord { .. }
                | Self::SayWhat { .. }
                | Self::NoSuchSpecialty { .. }
                | Self::NeedsId { .. }
                | Self::ByName
                | Self::Identity(_)
                | Self::Negation(_)
                | Self::Change(_)
                | Self::Advice(_)
                | Self::Filter(_)
        )
    }
}
