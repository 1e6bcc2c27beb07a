//! The names that a type has in JSON. The type is asked to read itself from a reader that has nothing but makes up what it
//! is asked for, once for each variant; so the names are found without samples, and none of Rust's types is told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// Texts that a checked text may be, tried in turn.
const TEXTS: &[&str] = &[
    "a",
    "{}",
    "00000000-0000-4000-8000-000000000000",
    "1970-01-01T00:00:00Z",
    "https://a.example/",
    "",
    "1",
];
const RAW: &str = "$serde_json::private::RawValue";

/// A line for each member (`.a.b`, `.list[].b`, `.map{}.b`) and each variant (`.a = variant`); sorted.
pub fn shape<T: for<'a> Deserialize<'a>>() -> String {
    let state = RefCell::new(State::default());
    loop {
        state.borrow_mut().passed = Vec::new();
        let read = T::deserialize(Probe {
            at: String::new(),
            within: Vec::new(),
            state: &state,
        });
        let mut state = state.borrow_mut();
        let goes_on = match read {
            Ok(_) => state.next_variant(),
            Err(error) => {
                assert!(state.avoid(&error), "{error}, within {:?}", state.last_text);
                true
            }
        };
        if !goes_on {
            return state.lines.iter().map(|line| format!("{line}\n")).collect();
        }
    }
}

#[derive(Default)]
struct State {
    lines: BTreeSet<String>,
    /// Variants that are made up now, by place and list of variants.
    variants: BTreeMap<(String, usize), (usize, usize)>,
    /// Enums of this pass, in their order.
    passed: Vec<(String, usize)>,
    /// Options, lists and maps that have to be empty.
    empty: BTreeSet<String>,
    /// Members left out: another name of one that was there.
    left_out: BTreeSet<String>,
    /// Which text a place tries.
    texts: BTreeMap<String, usize>,
    last_text: Option<(String, Option<String>)>,
    last_member: Option<String>,
    /// Path from a type to itself; must be empty.
    recursive: Option<Option<String>>,
}

impl State {
    /// The next variant of the innermost enum that has more; false where all were there.
    fn next_variant(&mut self) -> bool {
        while let Some(place) = self.passed.pop() {
            if let Some((at, count)) = self.variants.get_mut(&place)
                && *at + 1 < *count
            {
                *at += 1;
                return true;
            }
        }
        false
    }

    /// Has the next pass avoid what this one failed at; false where it can't.
    fn avoid(&mut self, error: &Unread) -> bool {
        if matches!(error, Unread::Twice) {
            return self
                .last_member
                .take()
                .is_some_and(|member| self.left_out.insert(member));
        }
        if let Some(enclosing) = self.recursive.take() {
            return enclosing.is_some_and(|place| self.empty.insert(place));
        }
        let Some((place, enclosing)) = self.last_text.clone() else {
            return false;
        };
        let text = self.texts.entry(place).or_default();
        *text += 1;
        *text < TEXTS.len() || enclosing.is_some_and(|place| self.empty.insert(place))
    }
}

#[derive(Debug)]
enum Unread {
    Twice,
    Other(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice => f.write_str("a member is there twice"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unread {}

impl de::Error for Unread {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn duplicate_field(_: &'static str) -> Self {
        Self::Twice
    }
}

/// Container of a value. An enum with a tag and a content is a struct too.
#[derive(Clone, Copy, PartialEq)]
enum Around {
    MayBeEmpty,
    Struct(&'static str),
    Enum(&'static str),
}

/// A place, and what is around it; of what may be empty, also where that is.
struct Probe<'s> {
    at: String,
    within: Vec<(Around, Option<String>)>,
    state: &'s RefCell<State>,
}

impl<'s> Probe<'s> {
    fn below(&self, step: &str) -> Self {
        Probe {
            at: format!("{}{step}", self.at),
            within: self.within.clone(),
            state: self.state,
        }
    }

    /// Within something that may be empty.
    fn inside(&self, step: &str) -> Self {
        let mut inside = self.below(step);
        inside
            .within
            .push((Around::MayBeEmpty, Some(self.at.clone())));
        inside
    }

    fn enclosing(&self) -> Option<String> {
        self.within
            .iter()
            .rev()
            .find_map(|(_, place)| place.clone())
    }

    fn is_empty(&self) -> bool {
        self.state.borrow().empty.contains(&self.at)
    }

    fn note(&self, line: String) {
        self.state.borrow_mut().lines.insert(line);
    }

    fn text(&self) -> &'static str {
        let mut state = self.state.borrow_mut();
        state.last_text = Some((self.at.clone(), self.enclosing()));
        TEXTS[state
            .texts
            .get(&self.at)
            .copied()
            .unwrap_or_default()
            .min(TEXTS.len() - 1)]
    }

    /// Within a type of that name; an error where it is already.
    fn enter(&mut self, of: Around) -> Result<(), Unread> {
        if self.within.iter().any(|(around, _)| *around == of) {
            self.state.borrow_mut().recursive = Some(self.enclosing());
            return Err(Unread::Other("it is within itself".to_owned()));
        }
        self.within.push((of, None));
        Ok(())
    }
}

macro_rules! made_up {
    ($($deserialize:ident: $visit:ident $value:expr;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
            visitor.$visit($value)
        }
    )*};
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Unread;

    made_up! {
        deserialize_bool: visit_bool true;
        deserialize_i8: visit_i8 1;
        deserialize_i16: visit_i16 1;
        deserialize_i32: visit_i32 1;
        deserialize_i64: visit_i64 1;
        deserialize_u8: visit_u8 1;
        deserialize_u16: visit_u16 1;
        deserialize_u32: visit_u32 1;
        deserialize_u64: visit_u64 1;
        deserialize_f32: visit_f32 1.0;
        deserialize_f64: visit_f64 1.0;
        deserialize_char: visit_char 'a';
    }

    forward_to_deserialize_any! { bytes byte_buf identifier ignored_any unit unit_struct }

    /// Whatever it is, JSON has nothing to say about its names.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_unit()
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_borrowed_str(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_borrowed_str(self.text())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        if self.is_empty() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self.inside(""))
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unread> {
        match name {
            RAW => visitor.visit_map(Members {
                of: self,
                names: &[RAW],
                at: 0,
            }),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        let left = usize::from(!self.is_empty());
        visitor.visit_seq(Items {
            of: self.inside("[]"),
            left,
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Unread> {
        visitor.visit_seq(Items {
            of: self.below("[]"),
            left: count,
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Unread> {
        self.deserialize_tuple(count, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        let left = usize::from(!self.is_empty());
        visitor.visit_map(Entries {
            of: self.inside("{}"),
            left,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unread> {
        self.enter(Around::Struct(name))?;
        visitor.visit_map(Members {
            of: self,
            names,
            at: 0,
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unread> {
        self.enter(Around::Enum(name))?;
        for variant in variants {
            self.note(format!("{} = {variant}", self.at));
        }
        let place = (self.at.clone(), variants.as_ptr() as usize);
        let mut state = self.state.borrow_mut();
        let (at, _) = *state
            .variants
            .entry(place.clone())
            .or_insert((0, variants.len()));
        state.passed.push(place);
        drop(state);
        visitor.visit_enum(Variant {
            name: variants[at],
            of: self.below(&format!("<{}>", variants[at])),
        })
    }
}

struct Members<'s> {
    of: Probe<'s>,
    names: &'static [&'static str],
    at: usize,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Unread;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unread> {
        while let Some(name) = self.names.get(self.at) {
            let place = self.of.below(&format!(".{name}")).at;
            if self.of.state.borrow().left_out.contains(&place) {
                self.at += 1;
                continue;
            }
            if *name != RAW {
                self.of.note(place.clone());
            }
            self.of.state.borrow_mut().last_member = Some(place);
            return seed
                .deserialize(BorrowedStrDeserializer::new(name))
                .map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unread> {
        let name = self.names[self.at];
        self.at += 1;
        match name {
            RAW => seed.deserialize(BorrowedStrDeserializer::new("{}")),
            _ => seed.deserialize(self.of.below(&format!(".{name}"))),
        }
    }
}

struct Items<'s> {
    of: Probe<'s>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Unread;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Unread> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        seed.deserialize(self.of.below("")).map(Some)
    }
}

struct Entries<'s> {
    of: Probe<'s>,
    left: usize,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Unread;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unread> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        seed.deserialize(self.of.below(".key")).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unread> {
        seed.deserialize(self.of.below(""))
    }
}

struct Variant<'s> {
    name: &'static str,
    of: Probe<'s>,
}

impl<'de, 's> EnumAccess<'de> for Variant<'s> {
    type Error = Unread;
    type Variant = Probe<'s>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Probe<'s>), Unread> {
        let name: StrDeserializer<'_, Unread> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.of))
    }
}

impl<'de> VariantAccess<'de> for Probe<'_> {
    type Error = Unread;

    fn unit_variant(self) -> Result<(), Unread> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Unread> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Unread> {
        self.deserialize_tuple(count, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unread> {
        visitor.visit_map(Members {
            of: self,
            names,
            at: 0,
        })
    }
}
