use super::AuthError;

/// How many scopes are asked for at most.
const SCOPES_MAX: usize = 64;

/// A set of scopes (RFC 6749, section 3.3), in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scopes(Vec<String>);

impl Scopes {
    /// From a space-separated list; what is no scope token is dropped.
    pub(super) fn parse(text: &str) -> Result<Self, AuthError> {
        Self::collect(text.split_ascii_whitespace())
    }

    pub(super) fn collect<'a>(scopes: impl IntoIterator<Item = &'a str>) -> Result<Self, AuthError> {
        let mut all = Self::default();
        for scope in scopes {
            all.insert(scope)?;
        }
        Ok(all)
    }

    /// Adds one.
    pub(super) fn insert(&mut self, scope: &str) -> Result<(), AuthError> {
        let token = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\');
        if scope.is_empty() || !scope.bytes().all(token) || self.contains(scope) {
            return Ok(());
        }
        if self.0.len() == SCOPES_MAX {
            return Err(AuthError::TooManyScopes(SCOPES_MAX));
        }
        self.0.push(scope.to_owned());
        Ok(())
    }

    pub(super) fn remove(&mut self, scope: &str) {
        self.0.retain(|held| held != scope);
    }

    pub(super) fn union(mut self, other: &Self) -> Result<Self, AuthError> {
        for scope in &other.0 {
            self.insert(scope)?;
        }
        Ok(self)
    }

    pub(super) fn contains(&self, scope: &str) -> bool {
        self.0.iter().any(|held| held == scope)
    }

    pub(super) fn contains_all(&self, other: &Self) -> bool {
        other.0.iter().all(|scope| self.contains(scope))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a `scope` parameter; `None` where it is left out.
    pub(super) fn parameter(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lists are sets in order, and nothing gets in that isn't a scope. Method: doubles, quotes, spaces.
    #[test]
    fn lists_are_ordered_sets() -> Result<(), AuthError> {
        let scopes = Scopes::parse(" a  b a c\"d é b ")?;
        assert_eq!(scopes.parameter().as_deref(), Some("a b"));
        assert_eq!(scopes.union(&Scopes::parse("b z")?)?.parameter().as_deref(), Some("a b z"));
        assert_eq!(Scopes::parse("")?.parameter(), None);
        Ok(())
    }

    /// Goal: an upstream can't make us ask for ever more. Method: the limit, and one more.
    #[test]
    fn number_is_bounded() -> Result<(), AuthError> {
        let names: Vec<String> = (0..=SCOPES_MAX).map(|n| format!("s{n}")).collect();
        let all = Scopes::collect(names[..SCOPES_MAX].iter().map(String::as_str))?;
        let one_more = Scopes::parse(&names[SCOPES_MAX])?;
        assert!(matches!(all.union(&one_more), Err(AuthError::TooManyScopes(SCOPES_MAX))));
        Ok(())
    }
}
