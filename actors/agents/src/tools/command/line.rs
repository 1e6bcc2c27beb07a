//! A command line cut into the program and its arguments, as a POSIX shell quotes them, without anything else of a shell.

use callboard_message::Failure;

/// A quoted passage that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    Single,
    Double,
}

/// The words of a command line: blanks separate them; `'…'`, `"…"` and `\` quote. The whole line comes to words, or none of
/// it: what a shell would act on (`;`, `|`, `&`, `<`, `>`, globs, expansions, substitutions, comments, line breaks) is refused.
///
/// # Errors
/// `InvalidInput`, with what is refused and what to do.
pub(crate) fn words_of(line: &str) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    // `None`: between words.
    let mut word: Option<String> = None;
    let mut quote: Option<Quote> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(Quote::Single), '\'') | (Some(Quote::Double), '"') => quote = None,
            (Some(Quote::Double), '$' | '`') => return Err(needs_shell(c)),
            (Some(Quote::Double), '\\') if chars.peek() == Some(&'\n') => return Err(refused("a line break")),
            (Some(Quote::Double), '\\') => {
                let escaped = chars.next_if(|next| matches!(next, '"' | '\\' | '$' | '`'));
                word.get_or_insert_default().push(escaped.unwrap_or(c));
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(if c == '"' { Quote::Double } else { Quote::Single });
                word.get_or_insert_default();
            }
            (None, '\\') => match chars.next() {
                Some('\n') => return Err(refused("a line break")),
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(refused("a `\\` at its end")),
            },
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, '\n' | '\r') => return Err(refused("a line break")),
            (None, c) if c.is_whitespace() || c.is_control() => {
                return Err(refused(&format!("the character U+{:04X}", u32::from(c))));
            }
            (None, '#' | '~') if word.is_none() => return Err(needs_shell(c)),
            (None, '{') if word.is_none() && chars.peek() == Some(&'}') => word = Some("{".to_owned()),
            (None, c) if is_of_shell(c, word.as_deref()) => return Err(needs_shell(c)),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(refused("a quotation mark that isn't closed"));
    }
    words.extend(word);
    match words.first() {
        Some(first) if is_assignment(first) => Err(refused("a variable in front of the program")),
        _ => Ok(words),
    }
}

/// Whether a shell acts on a character that isn't quoted; or readers take it for a quotation mark and a shell doesn't.
fn is_of_shell(c: char, word: Option<&str>) -> bool {
    // `{}` is a word of its own to `find`.
    let closes_empty = c == '}' && word == Some("{");
    matches!(c, ';' | '|' | '&' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | ']' | '{')
        || c == '}' && !closes_empty
        || matches!(c, '“' | '”' | '„' | '«' | '»' | '‘' | '’' | '‚')
}

/// `NAME=value`.
fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn needs_shell(c: char) -> Failure {
    refused(&format!("`{c}`"))
}

fn refused(what: &str) -> Failure {
    Failure::invalid(format!(
        "`command` has {what}: there is no shell that would read it, and nothing of the command was run. Give one program and its \
         arguments, as a list or with quotes around what is meant literally, and each further command by itself"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Goal: a line comes to the words that a shell would make of it. Method: rows of line and words.
    #[test]
    fn quoted_as_in_a_shell() {
        for (line, expected) in [
            ("touch 'x y'", vec!["touch", "x y"]),
            ("touch \"x y\" z", vec!["touch", "x y", "z"]),
            ("  ls\t-l  ", vec!["ls", "-l"]),
            ("a'b c'\"d e\"f", vec!["ab cd ef"]),
            ("a '' \"\"", vec!["a", "", ""]),
            (r"touch x\ y \; \'", vec!["touch", "x y", ";", "'"]),
            (r#"echo "a\"b\\c\d\$e""#, vec!["echo", r#"a"b\c\d$e"#]),
            (r"echo '\n $(id) `id` ; * ~ #'", vec!["echo", r"\n $(id) `id` ; * ~ #"]),
            ("echo 'a\nb'", vec!["echo", "a\nb"]),
            ("git log --format=%h a#b a~1 x=1", vec!["git", "log", "--format=%h", "a#b", "a~1", "x=1"]),
            ("find . -exec x {} +", vec!["find", ".", "-exec", "x", "{}", "+"]),
            ("", vec![]),
        ] {
            assert_eq!(words_of(line).unwrap(), expected, "{line}");
        }
    }

    /// Goal: what needs a shell is refused as a whole, and it is said why. Method: a line of each kind.
    #[test]
    fn needs_a_shell() {
        for (line, named) in [
            ("touch a; touch b", "`;`"),
            ("cat a | wc", "`|`"),
            ("a && b", "`&`"),
            ("a || b", "`|`"),
            ("sleep 1 &", "`&`"),
            ("echo a > b", "`>`"),
            ("wc < a", "`<`"),
            ("echo `id`", "``"),
            ("echo $(id)", "`$`"),
            ("echo \"$HOME\"", "`$`"),
            ("echo \"`id`\"", "``"),
            ("ls *.rs", "`*`"),
            ("ls a?", "`?`"),
            ("ls [ab]", "`[`"),
            ("ls {a,b}", "`{`"),
            ("ls a{b,c}", "`{`"),
            ("ls {}}", "`}`"),
            ("(ls)", "`(`"),
            ("ls ~", "`~`"),
            ("ls # all", "`#`"),
            ("ls a\nls b", "a line break"),
            ("ls a\rls b", "a line break"),
            ("ls \\\n-l", "a line break"),
            ("ls \"a\\\nb\"", "a line break"),
            ("ls a\u{2028}b", "U+2028"),
            ("ls a\u{a0}b", "U+00A0"),
            ("ls a\u{b}b", "U+000B"),
            ("touch 'x y", "isn't closed"),
            ("touch \"x y", "isn't closed"),
            ("touch it's", "isn't closed"),
            ("touch x\\", "at its end"),
            ("touch “x y”", "`“`"),
            ("A=b ls", "a variable"),
        ] {
            let failure = words_of(line).unwrap_err();
            assert!(failure.message.contains(named) && failure.message.contains("no shell"), "{line}: {failure}");
        }
    }

    proptest! {
        /// Goal: whatever is quoted comes out as it went in. Method: random words, quoted singly and with `\`.
        #[test]
        fn quoting_and_back(words in proptest::collection::vec("[ -~\\n\u{e9}]{0,12}", 0..6)) {
            let single = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
            let double = |word: &String| {
                let escaped: String = word.chars().flat_map(|c| {
                    let mark = matches!(c, '"' | '\\' | '$' | '`').then_some('\\');
                    mark.into_iter().chain([c])
                }).collect();
                format!("\"{escaped}\"")
            };
            // A variable in front is told apart from a program though it is quoted.
            prop_assume!(!words.first().is_some_and(|word| is_assignment(word)));
            for line in [words.iter().map(single).collect::<Vec<_>>(), words.iter().map(double).collect()] {
                prop_assert_eq!(&words_of(&line.join(" ")).unwrap(), &words);
            }
        }
    }
}
