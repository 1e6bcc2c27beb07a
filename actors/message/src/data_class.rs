use crate::words::words;

words! {
    /// What a body may hold, and so where it may be kept. Ordered: what is made of several bodies has the highest class of them.
    #[derive(Default)]
    DataClass {
        /// Anybody may know it.
        Public = "public",
        /// Nobody outside need know it, and nobody is harmed by it.
        #[default]
        Internal = "internal",
        /// It may be about people: kept, and marked by a keyed hash in the audit.
        Personal = "personal",
        /// It may be about patients: never on a disk of this system.
        Clinical = "clinical",
    }
}

impl DataClass {
    /// Whether a body can be guessed from a plain hash of it with harm: names, dates of birth. Its mark is keyed then.
    pub const fn is_keyed(self) -> bool {
        matches!(self, Self::Personal | Self::Clinical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a class has one name, here and in JSON, reads back, and is over those before it. Method: every class.
    #[test]
    fn names() {
        for class in DataClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
            assert_eq!(DataClass::parse(class.as_str()), Some(class));
        }
        assert!(DataClass::ALL.is_sorted());
        assert_eq!(DataClass::parse("secret"), None);
    }
}
