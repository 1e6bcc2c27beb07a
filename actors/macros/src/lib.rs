//! Macros for authors of agents: the derive of messages and the attribute of tests.

mod test_attribute;

use proc_macro::TokenStream;
use proc_macro_crate::{FoundCrate, crate_name};
use quote::quote;
use syn::{Data, DeriveInput, Expr, ExprLit, Lit, LitBool, LitStr, Meta, Type, parse_macro_input};

/// Derives `Message` for a struct or enum without type parameters.
///
/// ```ignore
/// /// Lists the clinic's patients, by id and condition.
/// #[derive(Message, Serialize, Deserialize, JsonSchema)]
/// #[message(reply = Patients, fallible)]
/// struct ListPatients {}
/// ```
///
/// - `reply = T`: type of the reply; default `()`.
/// - `fallible`: the reply is `Result<T, Failure>`; protocols transmit the failure as an error, not
///   as a value.
/// - `name = "…"`: name in protocols, 1 to 64 characters of `A-Za-z0-9_-.`; default: the type's
///   name in snake case.
/// - `local`: the message never leaves the process; it needs no serde traits and no schema.
/// - `title = "…"`, `icon = "https://…"`: for display (MCP `title`, `icons`).
/// - `read_only`, `idempotent`, `destructive = bool`, `open_world = bool`: hints for clients that
///   let a model call the message (MCP `annotations`).
/// - `task = "optional"` or `"required"`: the message may, or must, run as a task (MCP
///   `execution.taskSupport`). `"after_questions"`: the same as `"required"`, except for clients
///   that can't answer questions during a task. They get the first questions before the task
///   starts.
///
/// The doc comment becomes the description that other agents read.
#[proc_macro_derive(Message, attributes(message))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input)
        .unwrap_or_else(|e| e.to_compile_error())
        .into()
}

/// Makes a test of an `async fn` that takes `system: &System`, or nothing.
///
/// ```ignore
/// #[callboard::test]
/// async fn counts(system: &System) {
///     let counter = system.spawn_with(Counter::default);
///     counter.tell(Add(2)).await.unwrap();
///     assert_eq!(counter.ask(Count).await.unwrap(), 2);
/// }
/// ```
///
/// Each test has a system of its own, on the thread of the test. Its time is paused: it jumps to
/// the next timer when all tasks wait. After the function, the system is shut down. Agents that
/// still have work are killed after 1 s. The function may return a `Result`. Other attributes, such
/// as `#[ignore]` and `#[should_panic]`, work as with `#[test]`.
///
/// - `real_time`: time isn't paused. For tests with I/O.
/// - `arbiters = N`: the agents run on `N` threads of their own, at least 1. Implies `real_time`,
///   because a paused clock belongs to one thread.
///
/// Needs the feature `testkit` of `callboard` or `callboard-runtime`.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    test_attribute::expand(options.into(), item.into())
        .unwrap_or_else(|e| e.to_compile_error())
        .into()
}

struct MessageAttributes {
    name: String,
    reply: Type,
    fallible: bool,
    local: bool,
    title: Option<String>,
    icon: Option<String>,
    task: Option<String>,
    /// MCP names of the message's hints, such as `readOnlyHint`, with their values.
    hints: Vec<(&'static str, bool)>,
}

impl MessageAttributes {
    /// Returns the members of the MCP tool description that the attributes define, as names with
    /// JSON values.
    fn tool_members(&self) -> Vec<(&'static str, String)> {
        let mut more = Vec::new();
        if let Some(title) = &self.title {
            more.push(("title", json_string(title)));
        }
        if let Some(icon) = &self.icon {
            more.push(("icons", format!("[{{\"src\":{}}}]", json_string(icon))));
        }
        if !self.hints.is_empty() {
            let hints: Vec<String> = self
                .hints
                .iter()
                .map(|(name, value)| format!("\"{name}\":{value}"))
                .collect();
            more.push(("annotations", format!("{{{}}}", hints.join(","))));
        }
        if let Some(task) = &self.task {
            let (support, asks_first) = if task == "after_questions" {
                ("required", true)
            } else {
                (&**task, false)
            };
            more.push((
                "execution",
                format!("{{\"taskSupport\":{}}}", json_string(support)),
            ));
            if asks_first {
                more.push((
                    "_meta",
                    format!("{{\"callboard/task\":{}}}", json_string(task)),
                ));
            }
        }
        more
    }
}

/// Encodes a text as a JSON string.
fn json_string(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if u32::from(c) < 0x20 => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn expand(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    if let Data::Union(_) = input.data {
        return Err(syn::Error::new_spanned(
            input,
            "a message is a struct or an enum",
        ));
    }
    if !input.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(
            &input.generics,
            "a message has no type parameters: its name stands for one type",
        ));
    }
    let options = parse_attributes(input)?;
    let (ident, name, reply) = (&input.ident, &options.name, &options.reply);
    let root = message_crate_path();
    let reply_type = match options.fallible {
        true => quote!(::std::result::Result<#reply, #root::Failure>),
        false => quote!(#reply),
    };
    let wire = if options.local {
        quote!()
    } else {
        codec_method(&root, ident, &doc_comment(input), &options)
    };
    Ok(quote! {
        impl #root::Message for #ident {
            type Reply = #reply_type;
            const NAME: &'static str = #name;
            #wire
        }
    })
}

/// Returns the path of the message crate, or of the facade crate's re-export, so that embedders
/// need one dependency.
fn message_crate_path() -> proc_macro2::TokenStream {
    crate_path("callboard-message")
        .or_else(|| crate_path("callboard").map(|facade| quote!(#facade::message)))
        .unwrap_or_else(|| quote!(::callboard_message))
}

/// Returns the path of a package by its name in the user's Cargo.toml; `None` if it isn't in there.
fn crate_path(package: &str) -> Option<proc_macro2::TokenStream> {
    let name = match crate_name(package).ok()? {
        FoundCrate::Itself => package.replace('-', "_"),
        FoundCrate::Name(name) => name,
    };
    let name = syn::Ident::new(&name, proc_macro2::Span::call_site());
    Some(quote!(::#name))
}

fn codec_method(
    root: &proc_macro2::TokenStream,
    ident: &syn::Ident,
    description: &str,
    options: &MessageAttributes,
) -> proc_macro2::TokenStream {
    let reply = &options.reply;
    let (names, values): (Vec<_>, Vec<_>) = options.tool_members().into_iter().unzip();
    let (decode_reply, encode_reply) = match options.fallible {
        true => (
            quote!(decode_fallible::<#reply>),
            quote!(encode_fallible::<#reply>),
        ),
        false => (
            quote!(decode_plain::<#reply>),
            quote!(encode_plain::<#reply>),
        ),
    };
    quote! {
        fn codec() -> ::std::option::Option<&'static #root::MessageCodec<Self>> {
            use #root::message::codec;
            static WIRE: #root::MessageCodec<#ident> = #root::MessageCodec {
                description: #description,
                decode: codec::decode,
                encode: codec::encode,
                decode_reply: codec::#decode_reply,
                encode_reply: codec::#encode_reply,
                input_schema: codec::input_schema::<#ident>,
                output_schema: codec::schema::<#reply>,
                more: &[#((#names, #values)),*],
            };
            ::std::option::Option::Some(&WIRE)
        }
    }
}

fn parse_attributes(input: &DeriveInput) -> syn::Result<MessageAttributes> {
    let mut options = MessageAttributes {
        name: snake_case(&input.ident.to_string()),
        reply: syn::parse_quote!(()),
        fallible: false,
        local: false,
        title: None,
        icon: None,
        task: None,
        hints: Vec::new(),
    };
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("message")) {
        attribute.parse_nested_meta(|meta| {
            let option = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            match option.as_str() {
                "reply" => options.reply = meta.value()?.parse()?,
                "name" => options.name = checked_name(&meta.value()?.parse()?)?,
                "fallible" => options.fallible = true,
                "local" => options.local = true,
                "title" => options.title = Some(meta.value()?.parse::<LitStr>()?.value()),
                "icon" => options.icon = Some(meta.value()?.parse::<LitStr>()?.value()),
                "task" => {
                    let task: LitStr = meta.value()?.parse()?;
                    if !["optional", "required", "after_questions"].contains(&task.value().as_str()) {
                        let why = "a task is \"optional\", \"required\" or \"after_questions\"";
                        return Err(syn::Error::new_spanned(task, why));
                    }
                    options.task = Some(task.value());
                }
                "read_only" => options.hints.push(("readOnlyHint", true)),
                "idempotent" => options.hints.push(("idempotentHint", true)),
                "destructive" => options.hints.push(("destructiveHint", meta.value()?.parse::<LitBool>()?.value)),
                "open_world" => options.hints.push(("openWorldHint", meta.value()?.parse::<LitBool>()?.value)),
                _ => {
                    return Err(meta.error(
                        "expected `reply = T`, `name`, `title`, `icon`, `task`, `fallible`, `local`, `read_only`, `idempotent`, \
                         `destructive = bool` or `open_world = bool`",
                    ));
                }
            }
            Ok(())
        })?;
    }
    Ok(options)
}

fn checked_name(name: &LitStr) -> syn::Result<String> {
    let text = name.value();
    let fits = (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if fits {
        Ok(text)
    } else {
        Err(syn::Error::new_spanned(
            name,
            "a name is 1 to 64 characters of A-Za-z0-9_-.",
        ))
    }
}

fn doc_comment(input: &DeriveInput) -> String {
    let lines = input.attrs.iter().filter_map(|a| match &a.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(line),
                ..
            }) => Some(line.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.char_indices() {
        if c.is_uppercase() && i > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}
