/// Enums of words: each variant has one name, here and in JSON.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$word_doc])* $word,)*
        }

        impl $name {
            /// Every one, in order.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$word),*];

            /// Its name as it is written in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }

            /// The one of that name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|word| word.as_str() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}
pub(crate) use words;
