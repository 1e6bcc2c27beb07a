/// How long a patient's id may be, in characters.
pub const PATIENT_ID_CHARS_MAX: usize = 64;
/// How long the text of a `query` step may be, in characters.
pub const QUERY_TEXT_CHARS_MAX: usize = 200;

/// The tools that a step may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    tools: Vec<Tool>,
}

/// A tool that every clinic has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Its name, as a step's `action`.
    pub name: &'static str,
    /// All are required; all are text.
    pub parameters: Vec<Parameter>,
}

/// An argument of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its key.
    pub name: &'static str,
    /// How long its value may be, in characters.
    pub chars_max: usize,
}

impl Default for Catalogue {
    /// The four tools of the federated clinics (technical blueprint, section 2.4).
    fn default() -> Self {
        let patient_id = || Parameter { name: "patient_id", chars_max: PATIENT_ID_CHARS_MAX };
        let query = Parameter { name: "query", chars_max: QUERY_TEXT_CHARS_MAX };
        Self {
            tools: vec![
                Tool { name: "list_patients", parameters: Vec::new() },
                Tool { name: "get_patient", parameters: vec![patient_id()] },
                Tool { name: "check_medications", parameters: vec![patient_id()] },
                Tool { name: "query", parameters: vec![query] },
            ],
        }
    }
}

impl Catalogue {
    /// The tool of that name.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|t| t.name == name)
    }

    /// All of them, for a model's prompt.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }
}
