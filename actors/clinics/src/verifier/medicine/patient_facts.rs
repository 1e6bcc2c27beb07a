//! Index of the recorded claims about one patient.

use foldhash::HashMap;

use super::model::Substance;

/// Indexes of the recorded claims about one patient, or about all.
#[derive(Default)]
pub(super) struct PatientFacts {
    all: Vec<usize>,
    /// Indexes of the claims about each substance.
    by_substance: HashMap<Substance, Vec<usize>>,
}

impl PatientFacts {
    /// Adds a claim about all of `substances`; each time that one occurs there, under it.
    pub fn add(&mut self, index: usize, substances: &[Substance]) {
        self.all.push(index);
        for substance in substances {
            match self.by_substance.get_mut(substance) {
                Some(known) => known.push(index),
                None => {
                    self.by_substance.insert(substance.clone(), vec![index]);
                }
            }
        }
    }

    /// Returns the indexes of the claims about a substance; all if it is `None`.
    pub fn about(&self, substance: Option<&Substance>) -> &[usize] {
        match substance {
            None => &self.all,
            Some(substance) => self.by_substance.get(substance).map_or(&[], Vec::as_slice),
        }
    }
}
