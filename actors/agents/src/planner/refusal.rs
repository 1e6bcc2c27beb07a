/// Why a query is not planned, as the sentence that the user reads. Each says what to ask instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("There is nothing to ask. Try: list all cardiology patients.")]
    Empty,
    #[error(
        "I did not understand what to ask of which clinic. Name a specialty ({specialties}), a condition or \
         a patient id."
    )]
    NotUnderstood { specialties: String },
    #[error(
        "I can list patients, show one by id, check one's medications, or search for a condition. Say which you want."
    )]
    SayWhat,
    #[error("No clinic here treats {specialty}. Registered are: {specialties}.")]
    NoSuchSpecialty { specialty: String, specialties: String },
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
    #[error("Patients are found by id or condition, never by name. List the clinic's patients to find the id.")]
    ByName,
    #[error("I can't leave anything out (\"{word}\"). Say what you want to see instead.")]
    Negation { word: String },
    #[error("The clinics can only be read (\"{word}\" is not possible). Ask to list, show, check or search.")]
    Change { word: String },
    #[error("That is a physician's judgement (\"{word}\"). I can show what the clinics have recorded.")]
    Advice { word: String },
    #[error("Clinics are never compared or joined (\"{word}\"). Ask each of them by itself.")]
    Compare { word: String },
    #[error(
        "The clinics can't select by age, date, number or order (\"{word}\"). List patients or search for a condition."
    )]
    Filter { word: String },
    #[error("\"{start} …\" is too long for a condition. Search for one to {words_max} words.")]
    LongTopic { start: String, words_max: usize },
    #[error("That is {steps} steps, more than {steps_max}. Ask for less at once.")]
    TooManySteps { steps: usize, steps_max: usize },
}
