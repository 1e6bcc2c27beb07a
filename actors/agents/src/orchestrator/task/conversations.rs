//! What was said before, by conversation, as long as the process lasts.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::said::bounded;
use crate::decide::Turn;

/// Conversations that are remembered: those used last.
pub const CONVERSATIONS_MAX: usize = 1_024;

/// By whose it is, and its name.
pub(super) struct Conversations(Cache<(String, String), Arc<Vec<Turn>>>);

impl Default for Conversations {
    fn default() -> Self {
        Self(Cache::new(CONVERSATIONS_MAX))
    }
}

impl Conversations {
    pub fn history(&self, owner: &str, context: &str) -> Vec<Turn> {
        if context.is_empty() {
            return Vec::new();
        }
        self.0.get(&key(owner, context)).map(|turns| turns.to_vec()).unwrap_or_default()
    }

    pub fn add(&self, owner: &str, context: &str, turns: impl IntoIterator<Item = Turn>) {
        if context.is_empty() {
            return;
        }
        // Two exchanges of one conversation at once: one of them may be missed, neither is half there.
        let mut all = self.history(owner, context);
        all.extend(turns);
        self.0.insert(key(owner, context), Arc::new(bounded(all)));
    }
}

fn key(owner: &str, context: &str) -> (String, String) {
    (owner.to_owned(), context.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each has conversations of their own, and there are no more than the limit. Method: one name, two owners; one
    /// conversation too many.
    #[test]
    fn bounded_and_apart() {
        let all = Conversations::default();
        all.add("ann", "c", [Turn::user("hers")]);
        all.add("ann", "", [Turn::user("nowhere")]);
        assert_eq!(all.history("ann", "c").len(), 1);
        assert!(all.history("bob", "c").is_empty() && all.history("ann", "").is_empty());
        for nth in 0..=CONVERSATIONS_MAX {
            all.add("bob", &nth.to_string(), [Turn::user("his")]);
        }
        assert!(all.0.len() <= CONVERSATIONS_MAX);
    }
}
