//! Rust tokens of one file, without comments and without what only tests compile.

use proc_macro2::{Delimiter, Group, LexError, Spacing, TokenStream, TokenTree};

/// Operators of more than one character. Each is one token; any other punctuation character is one by itself.
const OPERATORS: &[&str] = &[
    "<<=", ">>=", "...", "..=", "::", "->", "=>", "==", "!=", "<=", ">=", "&&", "||", "+=", "-=",
    "*=", "/=", "%=", "^=", "&=", "|=", "<<", ">>", "..",
];

/// Tokens of one file, and the files that it refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileTokens {
    /// Identifiers, literals, lifetimes, operators and delimiters.
    pub count: u64,
    /// Arguments of `include_str!` and `include_bytes!`: the literal pieces of each path, in order.
    pub included: Vec<Vec<String>>,
    /// Modules in files of their own under `#[cfg(test)]`: name, and the path if an attribute gives one.
    pub test_modules: Vec<(String, Option<String>)>,
}

impl FileTokens {
    /// # Errors
    /// The text isn't Rust.
    pub fn read(text: &str) -> Result<Self, LexError> {
        let mut tokens = Self::default();
        tokens.stream(text.parse()?);
        Ok(tokens)
    }

    fn stream(&mut self, stream: TokenStream) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            at = match attribute(&trees[at..]) {
                Some((_, length)) if is_doc(&trees[at + length - 1]) => at + length,
                // Of a file, a module or a block: all that follows is a test's.
                Some((true, length)) if is_test_only(&trees[at + length - 1]) => return,
                Some((false, length)) if is_test_only(&trees[at + length - 1]) => {
                    at + self.skip_item(&trees[at..])
                }
                _ => at + self.token(&trees[at..]),
            };
        }
    }

    /// Counts the first token, and returns how many trees it takes.
    fn token(&mut self, trees: &[TokenTree]) -> usize {
        self.count += 1;
        match &trees[0] {
            TokenTree::Group(group) => {
                self.count += u64::from(group.delimiter() != Delimiter::None);
                self.stream(group.stream());
                1
            }
            TokenTree::Ident(name) if name == "include_str" || name == "include_bytes" => {
                if let [_, TokenTree::Punct(_), TokenTree::Group(path), ..] = trees {
                    self.included.push(literals(path));
                }
                1
            }
            TokenTree::Punct(punct) if punct.as_char() == '\'' => 2,
            TokenTree::Punct(_) => operator(trees),
            _ => 1,
        }
    }

    /// Trees up to the end of the item, statement, field or arm that an attribute is on. Notes a module whose text is in
    /// another file.
    fn skip_item(&mut self, trees: &[TokenTree]) -> usize {
        let (mut start, mut path) = (0, None);
        while let Some((_, length)) = attribute(&trees[start..]) {
            path = path.or_else(|| value_of(&trees[start + length - 1], "path"));
            start += length;
        }
        let words = first_words(&trees[start..]);
        let is_item = words.iter().any(|word| ITEMS.contains(&word.as_str()));
        let is_statement = !is_item && words.iter().any(|word| STATEMENTS.contains(&word.as_str()));
        let mut angles = 0_i32;
        for (at, tree) in trees.iter().enumerate().skip(start) {
            let ends = match tree {
                TokenTree::Group(body) => body.delimiter() == Delimiter::Brace && !is_statement,
                TokenTree::Punct(punct) => match punct.as_char() {
                    ';' => true,
                    ',' => angles == 0 && !is_item && !is_statement,
                    '<' => {
                        angles += 1;
                        false
                    }
                    '>' => {
                        angles = (angles - 1).max(0);
                        false
                    }
                    _ => false,
                },
                _ => false,
            };
            if ends {
                if let ([.., module, name], TokenTree::Punct(_)) = (words.as_slice(), tree)
                    && module == "mod"
                {
                    self.test_modules.push((name.clone(), path));
                }
                return at + 1;
            }
        }
        trees.len()
    }
}

/// Words that begin an item which ends with its braces or a semicolon.
const ITEMS: &[&str] = &[
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "struct",
    "trait",
    "union",
];
/// Words that begin what ends with a semicolon, and may have braces before it.
const STATEMENTS: &[&str] = &["const", "let", "static", "type", "use"];

/// Identifiers up to the first punctuation: visibility, qualifiers, keyword and name.
fn first_words(trees: &[TokenTree]) -> Vec<String> {
    let words = trees.iter().take_while(|tree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Parenthesis,
        TokenTree::Punct(_) => false,
        TokenTree::Ident(_) | TokenTree::Literal(_) => true,
    });
    words
        .filter_map(|tree| {
            if let TokenTree::Ident(word) = tree {
                Some(word.to_string())
            } else {
                None
            }
        })
        .collect()
}

/// An attribute at the start: whether it is an inner one (`#!`), and its length in trees, of which the last is its group.
fn attribute(trees: &[TokenTree]) -> Option<(bool, usize)> {
    let is = |tree: Option<&TokenTree>, char| matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == char);
    if !is(trees.first(), '#') {
        return None;
    }
    let is_inner = is(trees.get(1), '!');
    let length = if is_inner { 3 } else { 2 };
    let group = trees.get(length - 1);
    let is_attribute =
        matches!(group, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket);
    is_attribute.then_some((is_inner, length))
}

/// The trees of an attribute whose first word is `name`, after it.
fn arguments(attribute: &TokenTree, name: &str) -> Option<Vec<TokenTree>> {
    let TokenTree::Group(group) = attribute else {
        return None;
    };
    let mut trees = group.stream().into_iter();
    matches!(trees.next(), Some(TokenTree::Ident(word)) if word == name).then(|| trees.collect())
}

/// A comment that documents: `///` is `#[doc = "…"]` to the lexer.
fn is_doc(attribute: &TokenTree) -> bool {
    arguments(attribute, "doc").is_some_and(|rest| {
        matches!(
            rest.as_slice(),
            [TokenTree::Punct(_), TokenTree::Literal(_)]
        )
    })
}

/// `cfg(test)`, or `cfg(all(…, test, …))`.
fn is_test_only(attribute: &TokenTree) -> bool {
    let condition = arguments(attribute, "cfg");
    let Some([TokenTree::Group(condition)]) = condition.as_deref() else {
        return false;
    };
    let condition: Vec<TokenTree> = condition.stream().into_iter().collect();
    let is_test = |tree: &TokenTree| matches!(tree, TokenTree::Ident(word) if word == "test");
    match condition.as_slice() {
        [tree] => is_test(tree),
        [TokenTree::Ident(all), TokenTree::Group(group)] if all == "all" => {
            group.stream().into_iter().any(|tree| is_test(&tree))
        }
        _ => false,
    }
}

/// The text of `#[name = "text"]`.
fn value_of(attribute: &TokenTree, name: &str) -> Option<String> {
    match arguments(attribute, name)?.as_slice() {
        [TokenTree::Punct(_), TokenTree::Literal(text)] => Some(unquoted(&text.to_string())),
        _ => None,
    }
}

/// All string literals in a group, at any depth.
fn literals(group: &Group) -> Vec<String> {
    let mut found = Vec::new();
    for tree in group.stream() {
        match tree {
            TokenTree::Literal(text) => found.push(unquoted(&text.to_string())),
            TokenTree::Group(group) => found.append(&mut literals(&group)),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
    found
}

fn unquoted(literal: &str) -> String {
    literal.trim_matches('"').to_owned()
}

/// Returns the length of the leading operator, in characters.
fn operator(trees: &[TokenTree]) -> usize {
    let mut text = String::new();
    for tree in trees.iter().take(3) {
        let TokenTree::Punct(punct) = tree else { break };
        text.push(punct.as_char());
        if punct.spacing() == Spacing::Alone {
            break;
        }
    }
    OPERATORS
        .iter()
        .find(|operator| text.starts_with(**operator))
        .map_or(1, |operator| operator.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> u64 {
        FileTokens::read(text).unwrap().count
    }

    /// Goal: a token is what the language calls one. Method: texts with their number of tokens.
    #[test]
    fn tokens_are_counted() {
        for (text, tokens) in [
            ("", 0),
            (
                "// nothing\n/* at all */\n//! of the file\n/// of the item\n",
                0,
            ),
            ("use a::b;", 5),
            ("fn f<'a>(x: &'a str) -> u8 { x.len() as u8 }", 23),
            ("let x = 1_000u64 << 2; y >>= \"a b\"; 'z'", 12),
            ("#[derive(Debug)] struct A;", 10),
            ("/** doc */ #[doc(hidden)] mod a {}", 11),
            ("m! { /* a */ $x:ident => { $x } }", 13),
        ] {
            assert_eq!(count(text), tokens, "{text}");
        }
    }

    /// Goal: what only tests compile doesn't count, and nothing beside it is lost. Method: each kind of item under an
    /// attribute, before a struct of three tokens.
    #[test]
    fn tests_do_not_count() {
        for skipped in [
            "#[cfg(test)] mod tests { fn f() {} }",
            "#[cfg(test)] mod tests;",
            "#[cfg(test)] pub(crate) mod tests;",
            "/// Doc.\n#[cfg(test)] #[expect(dead_code, reason = \"x\")] pub(super) const fn f<T>() where T: A, T: B {}",
            "#[cfg(all(test, unix))] use a::{b, c};",
            "#[cfg(test)] static S: A = A { b: 1 };",
            "#[cfg(test)] impl<T> A<T> { fn f() {} }",
            "#[cfg(test)] field: HashMap<A, B>,",
            "#[cfg(test)] thread_local! { static A: u8 = 1; }",
        ] {
            assert_eq!(count(&format!("{skipped} struct A;")), 3, "{skipped}");
        }
        assert_eq!(count("struct A; #![cfg(test)] struct B;"), 3);
        assert_eq!(count("#[cfg(not(test))] struct A;"), 13);
        assert_eq!(count("#[cfg(any(test, unix))] struct A;"), 15);
    }

    /// Goal: other files are found. Method: modules of tests in files of their own, and data.
    #[test]
    fn other_files_are_named() {
        let text = "#[cfg(test)] mod a; #[cfg(test)] #[path = \"b_test.rs\"] mod b; mod c; \
                    const D: &str = include_str!(\"d.txt\"); f(include_bytes!(concat!(\"e/\", $n, \".bin\")));";
        let tokens = FileTokens::read(text).unwrap();
        assert_eq!(
            tokens.test_modules,
            [("a".into(), None), ("b".into(), Some("b_test.rs".into()))]
        );
        assert_eq!(tokens.included, [vec!["d.txt"], vec!["e/", ".bin"]]);
    }
}
