//! Codec of mail messages. `#[derive(Message)]` refers to this crate by its external name, so it
//! can't be used inside the crate.

/// Implements `Message` for message types of this module. Takes for each: wire name, type of the
/// successful reply, description for models, and further members of the MCP tool.
macro_rules! mail_message {
    ($($name:ident = $wire:literal -> $reply:ty, $description:expr, more: [$($more:expr),*];)*) => {$(
        impl crate::Message for $name {
            type Reply = Result<$reply, crate::Failure>;
            const NAME: &'static str = $wire;

            fn codec() -> Option<&'static crate::MessageCodec<Self>> {
                use crate::message::codec;
                static WIRE: crate::MessageCodec<$name> = crate::MessageCodec {
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

/// MCP tool annotation (`readOnlyHint`) of messages that change nothing.
pub(super) const READ_ONLY: (&str, &str) = ("annotations", r#"{"readOnlyHint":true}"#);
