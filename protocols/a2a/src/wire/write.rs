use callboard_message::TaskState;
use callboard_message::json::{quote_to, raw};
use serde_json::value::RawValue;

use crate::wire::Wire;

/// Writes JSON at the end of a text.
pub struct Writer<'a> {
    out: &'a mut String,
}

impl<'a> Writer<'a> {
    /// At the end of `out`.
    pub fn new(out: &'a mut String) -> Self {
        Self { out }
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        quote_to(text, self.out);
    }

    /// What is JSON already.
    pub fn json(&mut self, json: &str) {
        self.out.push_str(json);
    }

    /// The text itself, for who writes strings that need no escapes.
    pub(crate) fn out(&mut self) -> &mut String {
        self.out
    }

    pub(crate) fn object(&mut self) -> ObjectWriter<'_> {
        self.out.push('{');
        ObjectWriter { out: self.out, is_first: true }
    }

    /// An object that outlives this writer.
    pub(crate) fn into_object(self) -> ObjectWriter<'a> {
        self.out.push('{');
        ObjectWriter { out: self.out, is_first: true }
    }

    /// A list whose entries `write` writes.
    pub(crate) fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(T, &mut Writer<'_>)) {
        self.out.push('[');
        for (nth, item) in items.into_iter().enumerate() {
            if nth > 0 {
                self.out.push(',');
            }
            write(item, self);
        }
        self.out.push(']');
    }
}

/// JSON that `write` writes.
pub(crate) fn written(write: impl FnOnce(&mut Writer<'_>)) -> Box<RawValue> {
    written_about(WRITTEN_ROOM_BYTES, write)
}

/// Room for what is written, in bytes, until it turns out to be more.
const WRITTEN_ROOM_BYTES: usize = 512;

/// The same, of about so many bytes.
pub(crate) fn written_about(bytes: usize, write: impl FnOnce(&mut Writer<'_>)) -> Box<RawValue> {
    let mut out = String::with_capacity(bytes);
    write(&mut Writer::new(&mut out));
    // What a writer writes is JSON.
    raw(out)
}

/// An object that is being written. Ends with [`ObjectWriter::end`].
pub(crate) struct ObjectWriter<'a> {
    out: &'a mut String,
    is_first: bool,
}

impl ObjectWriter<'_> {
    /// A member's name, of letters and the like only; its value follows.
    pub(crate) fn member(&mut self, name: &'static str) -> Writer<'_> {
        self.out.push_str(if std::mem::take(&mut self.is_first) { "\"" } else { ",\"" });
        self.out.push_str(name);
        self.out.push_str("\":");
        Writer::new(self.out)
    }

    /// The same with any name.
    pub(crate) fn named(&mut self, name: &str) -> Writer<'_> {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(',');
        }
        quote_to(name, self.out);
        self.out.push(':');
        Writer::new(self.out)
    }

    pub(crate) fn end(self) {
        self.out.push('}');
    }

    pub(crate) fn always<T: Wire>(&mut self, name: &'static str, value: &T) {
        value.write(&mut self.member(name));
    }

    pub(crate) fn required<T: Wire>(&mut self, name: &'static str, value: &T) {
        self.always(name, value);
    }

    pub(crate) fn default<T: Wire>(&mut self, name: &'static str, value: &T) {
        if !value.is_blank() {
            self.always(name, value);
        }
    }

    pub(crate) fn optional<T: Wire>(&mut self, name: &'static str, value: &Option<T>) {
        if let Some(value) = value {
            self.always(name, value);
        }
    }

    pub(crate) fn hint<T: Wire>(&mut self, name: &'static str, value: &Option<T>) {
        self.optional(name, value);
    }

    pub(crate) fn filter(&mut self, name: &'static str, value: &Option<TaskState>) {
        self.optional(name, value);
    }

    pub(crate) fn state(&mut self, name: &'static str, value: &TaskState) {
        self.always(name, value);
    }

    pub(crate) fn text(&mut self, name: &'static str, value: &str) {
        self.member(name).text(value);
    }

    /// A list whose entries `write` writes.
    pub(crate) fn list<T>(
        &mut self,
        name: &'static str,
        items: impl IntoIterator<Item = T>,
        write: impl FnMut(T, &mut Writer<'_>),
    ) {
        self.member(name).list(items, write);
    }

    /// A string, unless it is empty.
    pub(crate) fn words(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.text(name, value);
        }
    }
}
