//! Checks of a call's arguments against the input schema of its tool, bounded in time and memory.
//!
//! A schema comes from the server, so that it may be made to exhaust the checker. Its work is
//! estimated before anything is checked: from its subschemas, with references followed, and from
//! the size and depth of the arguments. A schema that is too expensive, or that isn't one, isn't
//! enforced: the server checks its arguments itself.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use jsonschema::{PatternOptions, ValidationError, Validator};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use serde_json::Value;
use serde_json::value::RawValue;

use super::listed_tools::ListedTool;

/// Maximum size of an input schema that is enforced, in bytes.
const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Maximum number of subschemas of a schema that is enforced, with references followed.
const SUBSCHEMAS_MAX: u64 = 10_000;
/// Maximum nesting depth of the subschemas of a schema that is enforced, with references followed.
const SCHEMA_DEPTH_MAX: u64 = 64;
/// Maximum number of regular expressions in a schema that is enforced.
const PATTERNS_MAX: u64 = 16;
/// Maximum size of a compiled regular expression, and of its cache, in bytes.
const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Maximum estimated number of states of one regular expression: as many as fit its size.
const PATTERN_STATES_MAX: u64 = (PATTERN_BYTES_MAX / 32) as u64;
/// Maximum estimated number of steps of one check. Arguments that need more aren't checked.
const STEPS_MAX: u64 = 1_000_000;
/// Maximum estimated number of steps of a check on the caller's own thread.
const INLINE_STEPS_MAX: u64 = 10_000;
/// Maximum depth of recursion of one check. Arguments that need more aren't checked.
const RECURSION_MAX: u64 = 256;
/// Size of text that counts as one step, in bytes.
const TEXT_STEP_BYTES: usize = 64;
/// Estimated size of the compiled schemas of one server that are kept, in bytes. The least used are
/// compiled again when needed.
const COMPILED_BYTES_MAX: u64 = 32 << 20;
/// Number of compiled schemas that are expected in the cache.
const COMPILED_EXPECTED: usize = 128;
/// Estimated ratio of a compiled schema's size to that of its text.
const COMPILED_RATIO: u64 = 20;
/// Estimated size of a compiled schema without its parts, in bytes. One that isn't enforced has it.
const COMPILED_ENTRY_BYTES: u64 = 1 << 10;
/// Estimated size of a compiled subschema, in bytes.
const COMPILED_SUBSCHEMA_BYTES: u64 = 1 << 10;
// The largest schema fits the cache: one that doesn't would be compiled for each call.
const _: () = assert!(
    COMPILED_ENTRY_BYTES
        + COMPILED_RATIO * SCHEMA_BYTES_MAX as u64
        + COMPILED_SUBSCHEMA_BYTES * SUBSCHEMAS_MAX
        + PATTERN_BYTES_MAX as u64 * PATTERNS_MAX
        < COMPILED_BYTES_MAX / 2
);
/// Maximum length of a path, and of a rule, in an error, in characters. The rest is cut.
const SHOWN_CHARS_MAX: usize = 200;

/// Compiled input schemas of one server.
pub(crate) struct ArgumentSchemas {
    server: String,
    /// Schemas by the digest of their text. `None` if there can be no cache.
    compiled: Option<Cache<[u8; 32], Arc<CompiledSchema>, SchemaWeighter>>,
    /// Number of schemas that were found not to be enforceable.
    unenforced: AtomicU64,
    /// Number of calls whose arguments weren't checked because they are too large for their schema.
    unchecked: AtomicU64,
    /// Number of calls whose arguments didn't fit.
    refused: AtomicU64,
}

/// Input schema of a tool, compiled.
struct CompiledSchema {
    /// `None` if the schema isn't enforced.
    enforced: Option<(Validator, SchemaCost)>,
    weight: u64,
}

#[derive(Clone)]
struct SchemaWeighter;

impl Weighter<[u8; 32], Arc<CompiledSchema>> for SchemaWeighter {
    fn weight(&self, _: &[u8; 32], schema: &Arc<CompiledSchema>) -> u64 {
        schema.weight
    }
}

impl ArgumentSchemas {
    /// Creates an empty cache for the schemas of `server`.
    pub fn new(server: &str) -> Self {
        // One shard, so that the limit applies to the whole cache.
        let sizes = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(COMPILED_EXPECTED)
            .weight_capacity(COMPILED_BYTES_MAX)
            .build();
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self {
            server: server.to_owned(),
            compiled: sizes
                .ok()
                .map(|sizes| Cache::with_options(sizes, SchemaWeighter, hasher, lifecycle)),
            unenforced: AtomicU64::new(0),
            unchecked: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Checks the arguments of a call of the tool `name`.
    ///
    /// # Errors
    /// The place in the arguments and the rule that it breaks.
    pub async fn check(
        &self,
        name: &str,
        tool: &ListedTool,
        arguments: &RawValue,
    ) -> Result<(), String> {
        let Some(text) = tool.input_schema.as_deref() else {
            return Ok(());
        };
        let compiled = self.compiled.as_ref();
        let schema = match compiled.and_then(|compiled| compiled.get(&tool.digest)) {
            Some(schema) => schema,
            None => self.compile(name, tool.digest, text).await,
        };
        let Some((_, cost)) = &schema.enforced else {
            return Ok(());
        };
        let Ok(arguments) = serde_json::from_str::<Value>(arguments.get()) else {
            return Err("the arguments aren't JSON".to_owned());
        };
        let steps = cost.steps_for(&arguments);
        let fits = match steps {
            None => {
                self.unchecked.fetch_add(1, Relaxed);
                return Ok(());
            }
            Some(steps) if steps > INLINE_STEPS_MAX => {
                let work = tokio::task::spawn_blocking(move || schema.validate(&arguments));
                // A check that fails by itself says nothing about the arguments.
                work.await.unwrap_or(Ok(()))
            }
            Some(_) => schema.validate(&arguments),
        };
        fits.map_err(|flaw| {
            self.refused.fetch_add(1, Relaxed);
            format!(
                "the arguments of `{}` don't fit its input schema: {flaw}",
                shown(name)
            )
        })
    }

    /// Compiles a schema and keeps it. One that isn't enforced is logged.
    async fn compile(&self, name: &str, digest: [u8; 32], text: &RawValue) -> Arc<CompiledSchema> {
        let schema = text.get().to_owned();
        let compiling = tokio::task::spawn_blocking(move || compile_schema(&schema));
        let compiled = compiling
            .await
            .unwrap_or_else(|_| Err("it can't be compiled".to_owned()));
        let bytes = text.get().len() as u64;
        let schema = match compiled {
            Ok((validator, cost)) => CompiledSchema {
                weight: cost.compiled_bytes(bytes),
                enforced: Some((validator, cost)),
            },
            Err(flaw) => {
                self.unenforced.fetch_add(1, Relaxed);
                callboard_message::log::warn!(by: &self.server, server = self.server, tool = shown(name), flaw, "an input schema isn't enforced");
                CompiledSchema {
                    enforced: None,
                    weight: COMPILED_ENTRY_BYTES,
                }
            }
        };
        let schema = Arc::new(schema);
        if let Some(compiled) = &self.compiled {
            compiled.insert(digest, schema.clone());
        }
        schema
    }

    /// Returns the counters as JSON for the admin page.
    pub fn observe(&self) -> Value {
        serde_json::json!({
            "schemas": self.compiled.as_ref().map_or(0, Cache::len),
            "unenforced": self.unenforced.load(Relaxed),
            "unchecked": self.unchecked.load(Relaxed),
            "refused": self.refused.load(Relaxed),
        })
    }
}

impl CompiledSchema {
    fn validate(&self, arguments: &Value) -> Result<(), String> {
        match &self.enforced {
            Some((validator, _)) => validator
                .validate(arguments)
                .map_err(|error| describe_error(&error)),
            None => Ok(()),
        }
    }
}

/// Names the place and the rule of an error, without values of the arguments.
fn describe_error(error: &ValidationError<'_>) -> String {
    let place = match error.instance_path().as_str() {
        "" => "the object".to_owned(),
        path => format!("`{}`", shown(path)),
    };
    let (rule, message) = (error.schema_path().to_string(), error.masked().to_string());
    format!(
        "{place} breaks the rule `{}`: {}",
        shown(&rule),
        shown(&message)
    )
}

/// Returns a text of a peer for an error: without control characters, cut.
fn shown(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(SHOWN_CHARS_MAX)
        .collect()
}

/// Compiles a schema that can be enforced within the limits.
///
/// # Errors
/// The reason why it isn't enforced.
fn compile_schema(text: &str) -> Result<(Validator, SchemaCost), String> {
    if text.len() > SCHEMA_BYTES_MAX {
        return Err(format!("it is larger than {SCHEMA_BYTES_MAX} bytes"));
    }
    let schema: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let cost = SchemaCost::estimate(&schema)?;
    // Linear-time patterns: no text makes them slow.
    let patterns = PatternOptions::regex()
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    let validator = jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(patterns)
        .build(&schema)
        .map_err(|error| shown(&error.masked().to_string()))?;
    Ok((validator, cost))
}

/// Estimated cost of a schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SchemaCost {
    /// Number of subschemas, with references followed until they recur.
    subschemas: u64,
    depth: u64,
    patterns: u64,
    /// Estimated number of states of all patterns.
    pattern_states: u64,
    /// Number of keywords that look at the results of those beside them.
    rescans: u64,
    /// Number of references to a schema that they are part of.
    recurrences: u64,
}

impl SchemaCost {
    /// Estimates the cost of a schema.
    ///
    /// # Errors
    /// The limit that the schema exceeds, or a keyword whose cost can't be estimated.
    fn estimate(schema: &Value) -> Result<Self, String> {
        let mut estimate = CostEstimate {
            root: schema,
            cost: Self::default(),
            open: Vec::new(),
        };
        estimate.visit(schema, 0)?;
        Ok(estimate.cost)
    }

    /// Returns the estimated size of the schema once it is compiled, from the size of its text.
    fn compiled_bytes(&self, text_bytes: u64) -> u64 {
        COMPILED_ENTRY_BYTES
            + COMPILED_RATIO * text_bytes
            + COMPILED_SUBSCHEMA_BYTES * self.subschemas
            + PATTERN_BYTES_MAX as u64 * self.patterns
    }

    /// Returns the estimated number of steps of a check of `arguments`; `None` above the limits.
    ///
    /// Each subschema is applied to each value at most once, and again for each way of recurrences
    /// that leads to the value. A pattern is applied to each piece of a text in each of its states.
    fn steps_for(&self, arguments: &Value) -> Option<u64> {
        let (values, depth) = measure_value(arguments);
        let levels = if self.recurrences == 0 { 0 } else { depth };
        let ways = self
            .recurrences
            .saturating_pow(u32::try_from(levels).unwrap_or(u32::MAX));
        let of_value = self.subschemas.saturating_mul(1 + self.rescans);
        let of_value = of_value.saturating_add(self.pattern_states);
        let steps = of_value.saturating_mul(values).saturating_mul(ways);
        let recursion = self.depth.saturating_mul(levels.max(1));
        (steps <= STEPS_MAX && recursion <= RECURSION_MAX).then_some(steps)
    }
}

/// Returns the number of values in `value`, with long texts counted as several, and its depth.
fn measure_value(value: &Value) -> (u64, u64) {
    let of_text = |text: &str| 1 + (text.len() / TEXT_STEP_BYTES) as u64;
    let combine = |(values, depth): (u64, u64), (more, below): (u64, u64)| {
        (values + more, depth.max(below + 1))
    };
    match value {
        Value::String(text) => (of_text(text), 1),
        Value::Array(items) => items.iter().map(measure_value).fold((1, 1), combine),
        Value::Object(members) => {
            let measured = members.iter().map(|(name, value)| {
                let (values, depth) = measure_value(value);
                (values + of_text(name), depth)
            });
            measured.fold((1, 1), combine)
        }
        _ => (1, 1),
    }
}

/// Returns the estimated number of states of a regular expression: its length, multiplied by the
/// counts of its repetitions.
fn pattern_states(pattern: &str) -> u64 {
    let counts = pattern.split('{').skip(1).filter_map(|rest| {
        let (bounds, _) = rest.split_once('}')?;
        let bounds = bounds
            .split(',')
            .filter_map(|bound| bound.trim().parse::<u64>().ok());
        bounds.max()
    });
    let repeated = counts.fold(1 + pattern.len() as u64, |states, count: u64| {
        states.saturating_mul(count.max(1))
    });
    repeated.min(PATTERN_STATES_MAX)
}

/// Walk through a schema and the schemas that it refers to.
struct CostEstimate<'a> {
    root: &'a Value,
    cost: SchemaCost,
    /// Schemas that are being visited, with the number of steps into the value before each.
    open: Vec<(&'a Value, u64)>,
}

impl<'a> CostEstimate<'a> {
    /// Visits a schema. `inner` is the number of steps into the value so far.
    fn visit(&mut self, schema: &'a Value, inner: u64) -> Result<(), String> {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(_) => {
                self.cost.subschemas += 1;
                return self.check_limits();
            }
            _ => return Ok(()),
        };
        if let Some((_, before)) = self
            .open
            .iter()
            .find(|(open, _)| std::ptr::eq(*open, schema))
        {
            if *before == inner {
                return Err("it refers to itself".to_owned());
            }
            self.cost.recurrences += 1;
            return Ok(());
        }
        self.cost.subschemas += 1;
        self.open.push((schema, inner));
        self.cost.depth = self.cost.depth.max(self.open.len() as u64);
        self.check_limits()?;
        for (keyword, value) in members {
            self.visit_keyword(keyword, value, inner)?;
        }
        self.open.pop();
        Ok(())
    }

    fn check_limits(&self) -> Result<(), String> {
        let SchemaCost {
            subschemas,
            depth,
            patterns,
            ..
        } = self.cost;
        for (value, max, what) in [
            (subschemas, SUBSCHEMAS_MAX, "subschemas"),
            (depth, SCHEMA_DEPTH_MAX, "levels"),
            (patterns, PATTERNS_MAX, "patterns"),
        ] {
            if value > max {
                return Err(format!("it has more than {max} {what}"));
            }
        }
        Ok(())
    }

    fn visit_keyword(&mut self, keyword: &str, value: &'a Value, inner: u64) -> Result<(), String> {
        match (keyword, value) {
            ("$ref", Value::String(reference)) => {
                let target = self.resolve(reference)?;
                self.visit(target, inner)
            }
            ("$dynamicRef" | "$recursiveRef", _) => Err(format!("it uses `{keyword}`")),
            ("$id" | "$anchor" | "$dynamicAnchor", _) | ("id", Value::String(_))
                if self.open.len() > 1 =>
            {
                Err(format!("it uses `{keyword}` in a subschema"))
            }
            ("not" | "if" | "then" | "else", schema) => self.visit(schema, inner),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => schemas
                .iter()
                .try_for_each(|schema| self.visit(schema, inner)),
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => schemas
                .values()
                .try_for_each(|schema| self.visit(schema, inner)),
            ("properties" | "patternProperties", Value::Object(schemas)) => {
                if keyword == "patternProperties" {
                    schemas.keys().try_for_each(|name| self.add_pattern(name))?;
                }
                schemas
                    .values()
                    .try_for_each(|schema| self.visit(schema, inner + 1))
            }
            ("items" | "prefixItems", Value::Array(schemas)) => schemas
                .iter()
                .try_for_each(|schema| self.visit(schema, inner + 1)),
            ("unevaluatedProperties" | "unevaluatedItems", schema) => {
                self.cost.rescans += 1;
                self.visit(schema, inner + 1)
            }
            (
                "items" | "additionalItems" | "contains" | "additionalProperties" | "propertyNames",
                schema,
            ) => self.visit(schema, inner + 1),
            ("pattern", Value::String(pattern)) => self.add_pattern(pattern),
            ("enum", Value::Array(values)) => {
                self.cost.subschemas += values.len() as u64;
                self.check_limits()
            }
            _ => Ok(()),
        }
    }

    fn add_pattern(&mut self, pattern: &str) -> Result<(), String> {
        self.cost.patterns += 1;
        self.cost.pattern_states += pattern_states(pattern);
        self.check_limits()
    }

    /// Returns the schema that a reference within the document names. It must be the one that the
    /// validator finds: that decodes `%`, and resolves what is below an identifier against it.
    fn resolve(&self, reference: &str) -> Result<&'a Value, String> {
        let unknown = || format!("it refers to `{}`", shown(reference));
        let pointer = reference
            .strip_prefix('#')
            .filter(|pointer| !pointer.contains('%'))
            .ok_or_else(unknown)?;
        let is_identified = |below: &str| {
            let schema = self.root.pointer(below);
            let has = |name: &str| {
                schema
                    .and_then(|schema| schema.get(name)?.as_str())
                    .is_some()
            };
            has("$id") || has("id")
        };
        let mut ends = pointer.match_indices('/').map(|(end, _)| end).skip(1);
        if ends.any(|end| pointer.get(..end).is_some_and(is_identified)) {
            return Err(unknown());
        }
        self.root.pointer(pointer).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests;
