/// Declares enums whose variants each have one name, used in text and in JSON (snake case).
macro_rules! text_enum {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)* })*) => {$(
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        $(#[$doc])*
        pub enum $name {
            $($(#[$word_doc])* $word,)*
        }

        impl $name {
            /// All variants of the enum, in order of declaration.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$word),*];

            /// Returns the variant's name, as written in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }

            /// Returns the variant whose name is `name` (case-sensitive); `None` if there is none.
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
pub(crate) use text_enum;
