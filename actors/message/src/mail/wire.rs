//! How the messages here cross a wire. `#[derive(Message)]` names this crate from outside, so it can't be used in it.

/// Each message with its name, its reply (it may be refused), what is said of it, and more members of its tool.
macro_rules! mail_message {
    ($($name:ident = $wire:literal -> $reply:ty, $description:expr, more: [$($more:expr),*];)*) => {$(
        impl crate::Message for $name {
            type Reply = Result<$reply, crate::Failure>;
            const NAME: &'static str = $wire;

            fn wire() -> Option<&'static crate::Wire<Self>> {
                use crate::message::codec;
                static WIRE: crate::Wire<$name> = crate::Wire {
                    description: $description,
                    decode: codec::decode::<$name>,
                    encode: codec::encode::<$name>,
                    decode_reply: codec::decode_fallible::<$reply>,
                    encode_reply: codec::encode_fallible::<$reply>,
                    input_schema: codec::input_schema::<$name>,
                    output_schema: codec::schema::<$reply>,
                    more: &[$($more),*],
                };
                Some(&WIRE)
            }
        }
    )*};
}
pub(super) use mail_message;

/// Of a tool that changes nothing.
pub(super) const READ_ONLY: (&str, &str) = ("annotations", r#"{"readOnlyHint":true}"#);
