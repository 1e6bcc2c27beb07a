//! Limits as the sources declare them: numeric constants by name, and numeric fields of option structs with their defaults.

use std::collections::BTreeMap;

use syn::{Attribute, Expr, Fields, ImplItem, Item, ItemImpl, ItemStruct, Lit, Meta, Stmt, Type};

/// Endings of names of constants that are limits or waits. Other numbers (codes, weights, layouts) are not.
const SUFFIXES: &[&str] = &[
    "MAX", "MIN", "DEFAULT", "TIMEOUT", "EVERY", "INTERVAL", "WITHIN", "WAIT", "GRACE", "PAUSE",
    "TTL", "LEASE", "WINDOW", "DEADLINE", "KEPT", "FOR", "AFTER", "PAGE", "SOON",
];
/// Endings of names of option structs.
const OPTIONS: &[&str] = &[
    "Options", "Limits", "Timeouts", "Retries", "Caps", "Profile", "Routing",
];

/// A limit in a source file.
pub struct Limit {
    /// Struct whose field it is; `None` for a constant.
    pub owner: Option<String>,
    pub name: String,
    /// Its first type argument counts: `Option<u64>` is a `u64`.
    pub kind: Kind,
    /// `None` for a field that the struct's `Default` doesn't set by a plain value.
    pub value: Option<Expr>,
    /// Doc comment in one line.
    pub doc: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Number,
    Duration,
}

/// Limits of one file in source order, and the values of all its constants by name.
#[derive(Default)]
pub struct FileLimits {
    pub limits: Vec<Limit>,
    pub constants: BTreeMap<String, Expr>,
    defaults: BTreeMap<String, BTreeMap<String, Expr>>,
}

impl FileLimits {
    /// # Errors
    /// The text isn't Rust.
    pub fn read(text: &str) -> syn::Result<Self> {
        let mut read = Self::default();
        read.items(&syn::parse_file(text)?.items);
        for limit in &mut read.limits {
            if let Some(defaults) = limit
                .owner
                .as_ref()
                .and_then(|owner| read.defaults.get(owner))
            {
                limit.value = defaults.get(&limit.name).cloned();
            }
        }
        // Without a `Default` there is no option struct, only one whose name ends like one.
        let has_default = |limit: &Limit| {
            limit
                .owner
                .as_ref()
                .is_none_or(|owner| read.defaults.contains_key(owner))
        };
        read.limits.retain(has_default);
        Ok(read)
    }

    fn items(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Const(constant) => {
                    let name = constant.ident.to_string();
                    let is_limit = name
                        .rsplit('_')
                        .next()
                        .is_some_and(|end| SUFFIXES.contains(&end));
                    if let Some(kind) = kind(&constant.ty) {
                        self.constants
                            .insert(name.clone(), (*constant.expr).clone());
                        if is_limit {
                            let value = Some((*constant.expr).clone());
                            self.limits.push(Limit {
                                owner: None,
                                name,
                                kind,
                                value,
                                doc: doc(&constant.attrs),
                            });
                        }
                    }
                }
                Item::Struct(options) => self.fields(options),
                Item::Impl(block) => self.default_values(block),
                Item::Mod(module) if !is_test_only(&module.attrs) => {
                    self.items(
                        module
                            .content
                            .as_ref()
                            .map_or(&[], |(_, items)| items.as_slice()),
                    );
                }
                _ => {}
            }
        }
    }

    fn fields(&mut self, options: &ItemStruct) {
        let owner = options.ident.to_string();
        let Fields::Named(fields) = &options.fields else {
            return;
        };
        if !OPTIONS.iter().any(|end| owner.ends_with(end)) {
            return;
        }
        for field in &fields.named {
            if let (Some(name), Some(kind)) = (&field.ident, kind(&field.ty)) {
                let (owner, name) = (Some(owner.clone()), name.to_string());
                self.limits.push(Limit {
                    owner,
                    name,
                    kind,
                    value: None,
                    doc: doc(&field.attrs),
                });
            }
        }
    }

    fn default_values(&mut self, block: &ItemImpl) {
        let is_default = block
            .trait_
            .as_ref()
            .is_some_and(|(_, path, _)| path.is_ident("Default"));
        let (true, Type::Path(owner)) = (is_default, &*block.self_ty) else {
            return;
        };
        let (Some(owner), [ImplItem::Fn(default)]) =
            (owner.path.get_ident(), block.items.as_slice())
        else {
            return;
        };
        let values = match default.block.stmts.last() {
            Some(Stmt::Expr(Expr::Struct(made), None)) => made.fields.iter(),
            _ => return,
        };
        let named = values.filter_map(|field| match &field.member {
            syn::Member::Named(name) => Some((name.to_string(), field.expr.clone())),
            syn::Member::Unnamed(_) => None,
        });
        self.defaults.insert(owner.to_string(), named.collect());
    }
}

fn kind(ty: &Type) -> Option<Kind> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    match last.ident.to_string().as_str() {
        "Option" | "NonZero" => match &last.arguments {
            syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
                syn::GenericArgument::Type(ty) => kind(ty),
                _ => None,
            },
            _ => None,
        },
        "Duration" => Some(Kind::Duration),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" | "f32" | "f64"
        | "NonZeroU32" | "NonZeroUsize" => Some(Kind::Number),
        _ => None,
    }
}

fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                Expr::Lit(text) => match &text.lit {
                    Lit::Str(text) => Some(text.value().trim().to_owned()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        });
    lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: limits are found, other numbers aren't. Method: one of each beside what looks like it.
    #[test]
    fn constants_and_fields() {
        let text = "
            /// Bytes of a body.
            /// Beyond it, 413.
            pub const BODY_BYTES_MAX: usize = 4 * 1024;
            const PARSE_ERROR: i64 = -32700;
            const NAME_MAX: &str = \"\";
            #[cfg(test)]
            mod tests { const A_MAX: u8 = 1; }
            pub struct QueueOptions {
                /// Waiting writes.
                pub writes_max: Option<usize>,
                pub name: String,
            }
            impl Default for QueueOptions {
                fn default() -> Self { Self { writes_max: Some(BODY_BYTES_MAX), name: String::new() } }
            }
            struct OtherLimits { a: u8 }
        ";
        let read = FileLimits::read(text).unwrap();
        let found = read.limits.iter().map(|limit| {
            (
                limit.owner.as_deref(),
                limit.name.as_str(),
                limit.doc.as_str(),
            )
        });
        let expected = [
            (None, "BODY_BYTES_MAX", "Bytes of a body. Beyond it, 413."),
            (Some("QueueOptions"), "writes_max", "Waiting writes."),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert!(read.limits.iter().all(|limit| limit.value.is_some()));
        assert_eq!(read.constants.len(), 2);
    }
}
