//! Syntax tree of a topology with the source position of each value. TOML and YAML are both parsed
//! into it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use toml::de::{DeTable, DeValue};

use super::problem::ProblemCollector;

/// Maximum nesting depth of tables and lists in a YAML file.
const DEPTH_MAX: usize = 32;

/// A value with its byte range in the text.
#[derive(Debug, Clone)]
pub(crate) struct ConfigTree {
    pub(super) span: Range<usize>,
    pub(super) value: ConfigValue,
}

/// Content of a value.
#[derive(Debug, Clone)]
pub(super) enum ConfigValue {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<ConfigTree>),
    Table(Vec<(SpannedKey, ConfigTree)>),
    /// Stand-in for a missing or wrong value that was reported. It deserializes as any type, so
    /// that further problems are found.
    Placeholder,
}

/// A key with its byte range in the text.
#[derive(Debug, Clone)]
pub(super) struct SpannedKey {
    pub(super) span: Range<usize>,
    pub(super) name: String,
}

/// One step of a path into the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(String),
    Item(usize),
}

impl ConfigTree {
    pub(super) fn new(span: Range<usize>, value: ConfigValue) -> Self {
        Self { span, value }
    }

    /// Returns an empty table, for a section that the file omits.
    pub(super) fn empty() -> Self {
        Self::new(0..0, ConfigValue::Table(Vec::new()))
    }

    /// Returns a table of texts, all with the same position.
    pub(super) fn table_of_texts<const N: usize>(
        span: &Range<usize>,
        texts: [(&str, &str); N],
    ) -> Self {
        let member = |(name, text): (&str, &str)| {
            let key = SpannedKey {
                span: span.clone(),
                name: name.to_owned(),
            };
            (
                key,
                Self::new(span.clone(), ConfigValue::Text(text.to_owned())),
            )
        };
        Self::new(span.clone(), ConfigValue::Table(texts.map(member).into()))
    }

    pub(super) fn members(&self) -> &[(SpannedKey, ConfigTree)] {
        if let ConfigValue::Table(members) = &self.value {
            members
        } else {
            &[]
        }
    }

    pub(super) fn items(&self) -> &[Self] {
        if let ConfigValue::List(items) = &self.value {
            items
        } else {
            &[]
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let ConfigValue::Text(text) = &self.value {
            Some(text)
        } else {
            None
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.members()
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, value)| value)
    }

    /// Whether the table has a value under `key`, other than one that was reported before.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !value.is_placeholder())
    }

    /// Removes a member of the table and returns its key and value; `None` if there is none, or
    /// this isn't a table.
    pub(super) fn take(&mut self, name: &str) -> Option<(SpannedKey, Self)> {
        let ConfigValue::Table(members) = &mut self.value else {
            return None;
        };
        let at = members.iter().position(|(key, _)| key.name == name)?;
        Some(members.remove(at))
    }

    /// Returns the value at a path of keys through nested tables; `None` if there is none.
    pub(super) fn at_path(&self, names: &[&str]) -> Option<&Self> {
        names.iter().try_fold(self, |tree, name| tree.get(name))
    }

    /// Returns the span of a member, or of this table if there is none; `None` if the member was
    /// reported before.
    pub(super) fn span_of(&self, name: &str) -> Option<Range<usize>> {
        self.span_at_path(&[name])
    }

    /// Returns the span of the value at a path of keys, like [`Self::span_of`].
    pub(super) fn span_at_path(&self, names: &[&str]) -> Option<Range<usize>> {
        match self.at_path(names) {
            Some(found) if found.is_placeholder() => None,
            found => Some(found.unwrap_or(self).span.clone()),
        }
    }

    /// Returns the span of the item at index `at` of the list `key`; that of the list if there is
    /// no such item.
    pub(super) fn item_span(&self, key: &str, at: usize) -> Option<Range<usize>> {
        let item = self.get(key).and_then(|list| list.items().get(at));
        item.map_or_else(|| self.span_of(key), |item| Some(item.span.clone()))
    }

    /// Returns the span of a key itself, without its value; `None` if the table has no such key.
    pub(super) fn key_span(&self, name: &str) -> Option<Range<usize>> {
        self.members()
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(key, _)| key.span.clone())
    }

    /// Whether this stands for a value that was reported before.
    pub(super) fn is_placeholder(&self) -> bool {
        matches!(self.value, ConfigValue::Placeholder)
    }

    /// Whether the value is null, an empty list, or a placeholder.
    pub(super) fn is_empty(&self) -> bool {
        match &self.value {
            ConfigValue::Null | ConfigValue::Placeholder => true,
            ConfigValue::List(items) => items.is_empty(),
            _ => false,
        }
    }

    pub(super) fn child_mut(&mut self, step: &PathStep) -> Option<&mut Self> {
        match (&mut self.value, step) {
            (ConfigValue::Table(members), PathStep::Key(name)) => members
                .iter_mut()
                .find(|(key, _)| key.name == *name)
                .map(|(_, value)| value),
            (ConfigValue::List(items), PathStep::Item(at)) => items.get_mut(*at),
            _ => None,
        }
    }

    /// Removes the value at a step. Returns whether there was one.
    pub(super) fn remove(&mut self, step: &PathStep) -> bool {
        match (&mut self.value, step) {
            (ConfigValue::Table(_), PathStep::Key(name)) => self.take(name).is_some(),
            (ConfigValue::List(items), PathStep::Item(at)) if *at < items.len() => {
                items.remove(*at);
                true
            }
            _ => false,
        }
    }

    /// Returns a hash of the values, independent of positions and of the order of keys.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_into(&mut hasher);
        hasher.finish()
    }

    /// Returns the fingerprint without the member `name`.
    pub(super) fn fingerprint_without(&mut self, name: &str) -> u64 {
        let left_out = self.take(name);
        let fingerprint = self.fingerprint();
        if let (Some(left_out), ConfigValue::Table(members)) = (left_out, &mut self.value) {
            members.push(left_out);
        }
        fingerprint
    }

    fn hash_into(&self, hasher: &mut DefaultHasher) {
        match &self.value {
            ConfigValue::Null | ConfigValue::Placeholder => 0_u8.hash(hasher),
            ConfigValue::Bool(yes) => (1_u8, yes).hash(hasher),
            ConfigValue::Integer(number) => (2_u8, number).hash(hasher),
            ConfigValue::Float(number) => (3_u8, number.to_bits()).hash(hasher),
            ConfigValue::Text(text) => (4_u8, text).hash(hasher),
            ConfigValue::List(items) => {
                (5_u8, items.len()).hash(hasher);
                items.iter().for_each(|item| item.hash_into(hasher));
            }
            ConfigValue::Table(members) => {
                let mut members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| (&key.name, value))
                    .collect();
                members.sort_by_key(|(name, _)| *name);
                (6_u8, members.len()).hash(hasher);
                for (name, value) in members {
                    name.hash(hasher);
                    value.hash_into(hasher);
                }
            }
        }
    }
}

/// Maximum number of values in a YAML file, including repetitions by aliases.
const YAML_VALUES_MAX: usize = 50_000;

/// Parses a text. Syntax errors are reported; the result is the readable part.
pub(super) fn parse_tree(
    text: &str,
    is_yaml: bool,
    problems: &mut ProblemCollector<'_>,
) -> Option<ConfigTree> {
    if is_yaml {
        return parse_yaml(text, problems);
    }
    // No TOML file begins with a brace.
    let content = text.trim_start();
    if content.starts_with('{') {
        let at = text.len() - content.len();
        let message = "this is JSON, and a topology is TOML or YAML";
        problems.error_with(
            Some(at..at + 1),
            message,
            Some(json_advice(text).to_owned()),
        );
        return None;
    }
    Some(parse_toml(text, problems))
}

/// Returns what to do with a JSON file: by the list of servers that MCP clients have in theirs.
fn json_advice(text: &str) -> &'static str {
    if text.contains("\"mcpServers\"") {
        "write each server as [[upstream]] with `id = \"…\"`, and program and arguments as `command = [\"…\"]`"
    } else {
        "YAML includes JSON: give the file a name that ends in .yaml"
    }
}

fn parse_toml(text: &str, problems: &mut ProblemCollector<'_>) -> ConfigTree {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        problems.error_with(
            error.span().or(Some(0..text.len().min(1))),
            error.message().replace('\n', " "),
            quotes_advice(error.message()),
        );
    }
    let span = table.span();
    table_from_toml(table.into_inner(), span, problems)
}

/// Returns advice on an error of the TOML parser that stands for a text without quotes.
fn quotes_advice(message: &str) -> Option<String> {
    let errors = [
        "string values must be quoted",
        "invalid boolean",
        "invalid float",
    ];
    let advice = "a text is written in quotes: \"…\"; only numbers, true and false have none";
    let is_unquoted = errors.iter().any(|error| message.starts_with(error));
    is_unquoted.then(|| advice.to_owned())
}

fn table_from_toml(
    table: DeTable<'_>,
    span: Range<usize>,
    problems: &mut ProblemCollector<'_>,
) -> ConfigTree {
    let member = |(key, value): (toml::Spanned<Cow<'_, str>>, toml::Spanned<DeValue<'_>>)| {
        let key = SpannedKey {
            span: key.span(),
            name: key.into_inner().into_owned(),
        };
        let span = value.span();
        (key, value_from_toml(value.into_inner(), span, problems))
    };
    let mut members: Vec<_> = table.into_iter().map(member).collect();
    // File order, so that problems are reported in that order.
    members.sort_by_key(|(key, _)| key.span.start);
    ConfigTree::new(span, ConfigValue::Table(members))
}

fn value_from_toml(
    value: DeValue<'_>,
    span: Range<usize>,
    problems: &mut ProblemCollector<'_>,
) -> ConfigTree {
    let value = match value {
        DeValue::String(text) => ConfigValue::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => ConfigValue::Integer(number),
            Err(_) => {
                let help = format!("write one up to {}, or a text in quotes", i64::MAX);
                problems.error_with(Some(span.clone()), "the number is too large", Some(help));
                ConfigValue::Placeholder
            }
        },
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or(ConfigValue::Null, ConfigValue::Float),
        DeValue::Boolean(yes) => ConfigValue::Bool(yes),
        DeValue::Datetime(time) => ConfigValue::Text(time.to_string()),
        DeValue::Array(items) => {
            let item = |item: toml::Spanned<DeValue<'_>>| {
                let span = item.span();
                value_from_toml(item.into_inner(), span, problems)
            };
            ConfigValue::List(items.into_iter().map(item).collect())
        }
        DeValue::Table(table) => return table_from_toml(table, span, problems),
    };
    ConfigTree::new(span, value)
}

/// A table or list that isn't closed yet.
struct OpenCollection {
    start: usize,
    anchor: usize,
    items: CollectionItems,
}

enum CollectionItems {
    List(Vec<ConfigTree>),
    /// Members so far, and the key of the next value.
    Table(Vec<(SpannedKey, ConfigTree)>, Option<SpannedKey>),
}

/// Returns the value that `event` completes, and its anchor (0 if it has none). Counts `values`, with
/// those that aliases repeat.
fn complete_value(
    event: Event<'_>,
    span: &Range<usize>,
    open: &mut Vec<OpenCollection>,
    anchors: &HashMap<usize, ConfigTree>,
    values: &mut usize,
) -> Option<(ConfigTree, usize)> {
    match event {
        Event::SequenceStart(anchor, _) => {
            open.push(OpenCollection {
                start: span.start,
                anchor,
                items: CollectionItems::List(Vec::new()),
            });
            None
        }
        Event::MappingStart(anchor, _) => {
            open.push(OpenCollection {
                start: span.start,
                anchor,
                items: CollectionItems::Table(Vec::new(), None),
            });
            None
        }
        Event::Scalar(scalar, style, anchor, tag) => {
            *values += 1;
            Some((
                ConfigTree::new(span.clone(), scalar_value(scalar, style, tag.as_deref())),
                anchor,
            ))
        }
        Event::SequenceEnd | Event::MappingEnd => {
            *values += 1;
            let ended = open.pop()?;
            let value = match ended.items {
                CollectionItems::List(items) => ConfigValue::List(items),
                CollectionItems::Table(members, _) => ConfigValue::Table(members),
            };
            Some((
                ConfigTree::new(ended.start..span.end.max(ended.start + 1), value),
                ended.anchor,
            ))
        }
        Event::Alias(anchor) => {
            let repeated = anchors.get(&anchor).cloned();
            *values += repeated.as_ref().map_or(1, count_values);
            Some((
                repeated.unwrap_or_else(|| ConfigTree::new(span.clone(), ConfigValue::Null)),
                0,
            ))
        }
        _ => None,
    }
}

fn parse_yaml(text: &str, problems: &mut ProblemCollector<'_>) -> Option<ConfigTree> {
    // The parser counts characters, not bytes.
    let starts: Option<Vec<usize>> =
        (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
    let byte = |at: usize| {
        starts
            .as_ref()
            .map_or(at, |starts| starts.get(at).copied().unwrap_or(text.len()))
    };
    let bytes = |span: Span| byte(span.start.index())..byte(span.end.index());
    let (mut open, mut anchors, mut root) = (
        Vec::<OpenCollection>::new(),
        HashMap::<usize, ConfigTree>::new(),
        None,
    );
    let (mut values, mut documents) = (0_usize, 0_usize);
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok((event, span)) => (event, bytes(span)),
            Err(error) => {
                let at = error.marker().index();
                let help = tab_advice(text, error.marker().line());
                let help = help.filter(|_| error.info().contains("tab"));
                problems.error_with(Some(byte(at)..byte(at + 1)), error.info(), help);
                return None;
            }
        };
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                problems.error(Some(span), "a topology must be one YAML document");
                return root;
            }
        }
        let done = complete_value(event, &span, &mut open, &anchors, &mut values);
        if open.len() > DEPTH_MAX {
            problems.error(
                Some(span),
                format!("values are nested deeper than {DEPTH_MAX} levels"),
            );
            return None;
        }
        if values > YAML_VALUES_MAX {
            problems.error(
                Some(span),
                format!("the file has more than {YAML_VALUES_MAX} values, counting those that aliases repeat"),
            );
            return None;
        }
        let Some((tree, anchor)) = done else { continue };
        if anchor > 0 {
            anchors.insert(anchor, tree.clone());
        }
        match open.last_mut().map(|open| &mut open.items) {
            None => root = Some(tree),
            Some(CollectionItems::List(items)) => items.push(tree),
            Some(CollectionItems::Table(members, key)) => match key.take() {
                Some(key) if members.iter().any(|(other, _)| other.name == key.name) => {
                    problems.error(Some(key.span), format!("`{}` is set twice", key.name));
                }
                Some(key) => members.push((key, tree)),
                None => *key = Some(key_from_scalar(tree, problems)),
            },
        }
    }
    Some(root.unwrap_or_else(ConfigTree::empty))
}

/// Returns advice on the first line that is indented with a tab, from the line of an error on (counted
/// from 1); `None` if none is.
fn tab_advice(text: &str, error_line: usize) -> Option<String> {
    let is_indented = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    let mut lines = (1..)
        .zip(text.lines())
        .skip_while(|(at, _)| *at < error_line);
    let (at, _) = lines.find(|(_, line)| is_indented(line))?;
    Some(format!(
        "indent with spaces: line {at} is indented with a tab"
    ))
}

fn count_values(tree: &ConfigTree) -> usize {
    match &tree.value {
        ConfigValue::List(items) => 1 + items.iter().map(count_values).sum::<usize>(),
        ConfigValue::Table(members) => {
            1 + members
                .iter()
                .map(|(_, value)| count_values(value))
                .sum::<usize>()
        }
        _ => 1,
    }
}

fn key_from_scalar(tree: ConfigTree, problems: &mut ProblemCollector<'_>) -> SpannedKey {
    let name = match tree.value {
        ConfigValue::Text(text) => text,
        ConfigValue::Bool(yes) => yes.to_string(),
        ConfigValue::Integer(number) => number.to_string(),
        ConfigValue::Float(number) => number.to_string(),
        _ => {
            problems.error(Some(tree.span.clone()), "a key must be a text");
            String::new()
        }
    };
    SpannedKey {
        span: tree.span,
        name,
    }
}

/// Returns a scalar by the core schema of YAML 1.2 (10.3.2): only plain scalars can be other than
/// text.
fn scalar_value(scalar: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> ConfigValue {
    let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
    if style != ScalarStyle::Plain || is_text {
        return ConfigValue::Text(scalar.into_owned());
    }
    let number = || {
        let radix = [("0x", 16), ("0o", 8)]
            .into_iter()
            .find_map(|(prefix, radix)| {
                i64::from_str_radix(scalar.strip_prefix(prefix)?, radix).ok()
            });
        radix.or_else(|| scalar.parse().ok())
    };
    let is_float =
        || scalar.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    match &*scalar {
        "" | "~" | "null" | "Null" | "NULL" => ConfigValue::Null,
        "true" | "True" | "TRUE" => ConfigValue::Bool(true),
        "false" | "False" | "FALSE" => ConfigValue::Bool(false),
        text => match number() {
            Some(number) => ConfigValue::Integer(number),
            None if is_float() => text
                .parse()
                .map_or_else(|_| ConfigValue::Text(text.to_owned()), ConfigValue::Float),
            None => ConfigValue::Text(text.to_owned()),
        },
    }
}
