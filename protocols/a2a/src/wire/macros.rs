/// Declares a type of the wire: its struct, its reader and its writer from one list of fields.
///
/// A field is `name: Type = kind "wireName" | "olderName"`, a kind a method of
/// [`Members`](crate::wire::Members) and of [`ObjectWriter`](crate::wire::ObjectWriter).
macro_rules! wire {
    ($($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$of_field:meta])* $field:ident: $type:ty = $kind:ident $wire:literal $(| $older:literal)*,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl $crate::wire::Wire for $name {
            fn read(
                raw: &serde_json::value::RawValue,
                at: &$crate::wire::At<'_>,
            ) -> Result<Self, $crate::wire::ReadError> {
                let members = $crate::wire::Members::of(raw, at)?;
                Ok(Self { $($field: members.$kind($wire, &[$($older),*])?,)* })
            }

            fn write(&self, out: &mut $crate::wire::Writer<'_>) {
                let mut object = out.object();
                $(object.$kind($wire, &self.$field);)*
                object.end();
            }
        }

        $crate::wire::macros::quiet!($name);
    )*};
}

/// Declares a `oneof`: an object with one of these members. What has none of them is read by the type's `read_bare`.
macro_rules! one_of {
    ($($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$of_variant:meta])* $variant:ident($type:ty) = $wire:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub enum $name {
            $($(#[$of_variant])* $variant($type),)*
        }

        impl $crate::wire::Wire for $name {
            fn read(
                raw: &serde_json::value::RawValue,
                at: &$crate::wire::At<'_>,
            ) -> Result<Self, $crate::wire::ReadError> {
                let members = $crate::wire::Members::of(raw, at)?;
                $(if let Some(found) = members.optional($wire, &[])? {
                    return Ok(Self::$variant(found));
                })*
                Self::read_bare(raw, &members, at)
            }

            fn write(&self, out: &mut $crate::wire::Writer<'_>) {
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

/// What is said may be anybody's data, so it isn't printed; two values are the same if they are written alike.
macro_rules! quiet {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                use $crate::wire::Wire as _;
                self.to_json() == other.to_json()
            }
        }
    };
}

pub(crate) use {one_of, quiet, wire};
