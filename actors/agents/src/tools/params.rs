//! A tool's parameters, read one by one: what is wrong is told by name.

use std::ops::RangeInclusive;

use callboard_message::{Failure, RawObject};
use serde_json::Value;

use super::command::words_of;

/// Longest text that a tool takes, in bytes.
pub const TOOL_TEXT_BYTES_MAX: usize = 64 * 1024;

/// The parameters of one use. Each is read once, then [`Params::done`] tells what nobody read.
pub(super) struct Params<'a> {
    given: &'a RawObject,
    read: Vec<&'static str>,
}

impl<'a> Params<'a> {
    pub(super) fn of(given: &'a RawObject) -> Self {
        Self { given, read: Vec::new() }
    }

    /// A text that must be there, and say something.
    pub(super) fn text(&mut self, name: &'static str) -> Result<String, Failure> {
        let text = self.text_if_any(name)?.ok_or_else(|| Failure::invalid(format!("`{name}` is missing")))?;
        match text.trim().is_empty() {
            true => Err(Failure::invalid(format!("`{name}` is empty"))),
            false => Ok(text),
        }
    }

    pub(super) fn text_if_any(&mut self, name: &'static str) -> Result<Option<String>, Failure> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() > TOOL_TEXT_BYTES_MAX => {
                Err(Failure::invalid(format!("`{name}` has more than {TOOL_TEXT_BYTES_MAX} bytes")))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Failure::invalid(format!("`{name}` must be a string"))),
        }
    }

    pub(super) fn count_if_any(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<usize>, Failure> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let count = value.as_u64().filter(|count| range.contains(count)).and_then(|count| usize::try_from(count).ok());
        let (least, most) = range.into_inner();
        count.map(Some).ok_or_else(|| Failure::invalid(format!("`{name}` must be a number from {least} to {most}")))
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Result<Option<T>, Failure> {
        let Some(word) = self.text_if_any(name)? else { return Ok(None) };
        let found = words.iter().find(|(known, _)| *known == word).map(|(_, means)| *means);
        let known = || words.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| Failure::invalid(format!("`{name}` must be one of: {}", known())))
    }

    /// A program and its arguments: a list of texts, or a command line, cut as [`words_of`] does.
    pub(super) fn command(&mut self, name: &'static str) -> Result<Vec<String>, Failure> {
        let wrong = || Failure::invalid(format!("`{name}` must be a list of strings, or a string"));
        match self.value(name) {
            None => Err(Failure::invalid(format!("`{name}` is missing"))),
            Some(Value::String(line)) => words_of(&line),
            Some(Value::Array(all)) => {
                all.into_iter().map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// # Errors
    /// `InvalidInput` where there is a parameter that the tool hasn't.
    pub(super) fn done(self) -> Result<(), Failure> {
        match self.given.iter().find(|(name, _)| !self.read.contains(name)) {
            // The name is the sender's: it is cut, not trusted.
            Some((name, _)) => {
                let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                Err(Failure::invalid(format!("there is no parameter `{name}`; there are: {}", self.read.join(", "))))
            }
            None => Ok(()),
        }
    }

    fn value(&mut self, name: &'static str) -> Option<Value> {
        self.read.push(name);
        self.given.read(name).filter(|value: &Value| !value.is_null())
    }
}
