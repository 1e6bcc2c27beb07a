/// Declares wire types: struct, reader and writer are generated from one list of fields.
///
/// A field is `name: Type = kind "wireName" | "olderName"`. A kind is a method of both
/// [`ObjectReader`](crate::wire::ObjectReader) and [`ObjectWriter`](crate::wire::ObjectWriter).
macro_rules! wire {
    ($($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$of_field:meta])* $field:ident: $type:ty = $kind:ident $wire:literal $(| $older:literal)*,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl $crate::wire::WireType for $name {
            fn read(
                raw: &serde_json::value::RawValue,
                at: &$crate::wire::FieldPath<'_>,
            ) -> Result<Self, $crate::wire::ReadError> {
                let members = $crate::wire::ObjectReader::parse(raw, at)?;
                Ok(Self { $($field: members.$kind($wire, &[$($older),*])?,)* })
            }

            fn write(&self, out: &mut $crate::wire::JsonWriter<'_>) {
                let mut object = out.object();
                $(object.$kind($wire, &self.$field);)*
                object.end();
            }
        }

        $crate::wire::macros::quiet!($name);
    )*};
}

/// Declares a type for a `oneof` of the schema: an enum that is written as an object with exactly
/// one member, named after the variant's literal. An object without any of these members, or for
/// which the enum's function `is_bare` returns true, is read by the enum's function `read_bare`.
macro_rules! one_of {
    ($($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$of_variant:meta])* $variant:ident($type:ty) = $wire:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub enum $name {
            $($(#[$of_variant])* $variant($type),)*
        }

        impl $crate::wire::WireType for $name {
            fn read(
                raw: &serde_json::value::RawValue,
                at: &$crate::wire::FieldPath<'_>,
            ) -> Result<Self, $crate::wire::ReadError> {
                let members = $crate::wire::ObjectReader::parse(raw, at)?;
                if !Self::is_bare(&members) {
                    $(if let Some(found) = members.optional($wire, &[])? {
                        return Ok(Self::$variant(found));
                    })*
                }
                Self::read_bare(raw, &members, at)
            }

            fn write(&self, out: &mut $crate::wire::JsonWriter<'_>) {
                let mut object = out.object();
                match self {
                    $(Self::$variant(value) => object.always($wire, value),)*
                }
                object.end();
            }
        }

        $crate::wire::macros::quiet!($name);
    )*};
}

/// Implements `Debug` without the content, which may be confidential, and `PartialEq` by comparing
/// the JSON.
macro_rules! quiet {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                use $crate::wire::WireType as _;
                self.to_json() == other.to_json()
            }
        }
    };
}

pub(crate) use {one_of, quiet, wire};
