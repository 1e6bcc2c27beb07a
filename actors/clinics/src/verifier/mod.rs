//! Verifier agent: decides by three rules whether an answer may be shown, without a model.
//!
//! - **R1** no dose and no treatment that isn't in the clinics' answers;
//! - **R2** no personal name, id number, birth date, address or contact; a caller with the right to
//!   it sees those in the records. What is found is cut out, and the rest of the answer is shown;
//! - **R3** no diagnosing, no prescribing, no advice against seeing a doctor.
//!
//! Each rule reads the aggregated results and the final text; R1 and R3 skip echoes of the request,
//! such as the question, in the text only quoted ones. Data that is too long or nested too deeply
//! counts as unsafe.

mod byte_classes;
mod identity;
mod medicine;
mod scope;
mod spans;
#[cfg(test)]
mod tests;
mod verdict;
pub(crate) mod word_lists;
mod word_table;

use std::borrow::Cow;

use callboard_macros::Message;
use callboard_message::text::{cut_bytes, is_invisible, latin_lookalike};
use callboard_runtime::{Agent, AgentProfile, Context, Handlers, SyncHandler};
use foldhash::HashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use identity::{Redaction, redact_answer, redact_note};
use medicine::find_fabrications;
use spans::{SpanKind, TextSpan, asserted_spans, text_spans};

pub(crate) use identity::{IDENTITY_MARKS, KnownIdentities, NameReach, redact_known};
pub(crate) use spans::IdentityKind;

pub use identity::{Disclosure, IdentityClass, IdentityPolicy, PersonalSpan, find_personal_data};
pub use spans::VALUE_DEPTH_MAX;
pub use verdict::{FINDINGS_MAX, Finding, Rule, Verdict, Verified};

/// Maximum size of one verification, in bytes: the text, and the strings and keys of results and
/// records; other values count a few bytes each. A larger one counts as unsafe.
pub const VERIFY_BYTES_MAX: usize = 4 << 20;

/// Maximum length of an echo of the request that may be quoted in the text, in bytes. A longer one
/// is checked like any other text.
const ECHO_BYTES_MAX: usize = 1024;

/// Verifier agent: handles [`Verify`].
#[derive(Debug, Default)]
pub struct Verifier {
    policy: IdentityPolicy,
    verified: u64,
    withheld: u64,
    redacted: u64,
}

impl Verifier {
    /// Creates a verifier with a policy for personal data.
    pub fn with_policy(policy: IdentityPolicy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }
}

impl Agent for Verifier {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Verify>();
    }

    /// Returns the agent's profile: it never runs on the caller's thread, because a verification
    /// may take long.
    fn profile() -> AgentProfile {
        AgentProfile::default().without_inline()
    }

    fn observe(&self) -> Value {
        json!({"verified": self.verified, "withheld": self.withheld, "redacted": self.redacted})
    }
}

impl SyncHandler<Verify> for Verifier {
    fn handle(&mut self, message: Verify, _cx: &mut Context) -> Verified {
        let verified = message.check_with(&self.policy);
        self.verified += 1;
        self.withheld += u64::from(!verified.verdict.safe);
        self.redacted += u64::from(verified.verdict.redactions > 0);
        verified
    }
}

impl Verify {
    /// Checks the answer with the default policy for personal data, and returns its verdict with
    /// the results and text that may be shown.
    pub fn check(self) -> Verified {
        self.check_with(&IdentityPolicy::default())
    }

    /// Checks the answer, and returns its verdict with the results and text that may be shown. An
    /// input above a limit is unsafe without a rule. The same input always gives the same result.
    pub fn check_with(self, policy: &IdentityPolicy) -> Verified {
        let unchecked = |note| Verified::new(Verdict::unchecked(note), Value::Null, String::new());
        if self.bytes() > VERIFY_BYTES_MAX {
            return unchecked("Response is too long to be verified.");
        }
        self.apply_rules(policy)
            .unwrap_or_else(|| unchecked("Response is nested too deeply to be verified."))
    }

    /// Returns the verdict of [`Self::check`].
    pub fn verdict(&self) -> Verdict {
        self.clone().check().verdict
    }

    /// Applies all rules. Returns `None` if a value is nested deeper than [`VALUE_DEPTH_MAX`].
    fn apply_rules(self, policy: &IdentityPolicy) -> Option<Verified> {
        let Self {
            records,
            results,
            text,
            identities,
        } = self;
        let recorded = text_spans(&records)?;
        let (fabrications, advice) = {
            let shown = text_spans([&results])?;
            let text = without_echoes(&text, &recorded);
            let fabrications = find_fabrications(&records, &results, &text);
            (fabrications, check_advice(&recorded, &shown, &text))
        };
        let redaction = redact_answer(results, text, &recorded, identities, policy);
        let (stuck, cut) = identity_findings(&redaction);
        let found = fabrications
            .into_iter()
            .map(|note| Finding::new(Rule::R1, note))
            .chain(stuck)
            .chain(advice);
        let mut found: Vec<Finding> = found.collect();
        // A name that R1 or R3 took for a word of their own must not leave by their notes.
        for finding in found.iter_mut().filter(|finding| finding.rule != Rule::R2) {
            redact_note(&mut finding.note, &recorded, Identities::Withheld, policy);
        }
        let verdict = Verdict::with_findings(found).with_redactions(cut, redaction.count);
        Some(Verified::new(verdict, redaction.results, redaction.text))
    }
}

/// Returns an answer's text without quoted echoes of the request, as the records hold them, since
/// these state no facts. A quotation ends at the next mark of its kind.
fn without_echoes<'t>(text: &'t str, recorded: &[TextSpan<'_>]) -> Cow<'t, str> {
    let echoes: HashSet<&str> = recorded
        .iter()
        .filter(|l| l.kind == SpanKind::Echo && (1..=ECHO_BYTES_MAX).contains(&l.text.len()))
        .map(|l| l.text.as_ref())
        .collect();
    if echoes.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut kept, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(start) = text[at..].find(['"', '\'', '“', '`']).map(|n| at + n) {
        let Some(open) = text[start..].chars().next() else {
            break;
        };
        let inside = start + open.len_utf8();
        let close = if open == '“' { '”' } else { open };
        at = inside;
        let ahead = cut_bytes(&text[inside..], ECHO_BYTES_MAX + close.len_utf8());
        if let Some(length) = ahead.find(close)
            && echoes.contains(&text[inside..inside + length])
        {
            kept.push_str(&text[copied..start]);
            at = inside + length + close.len_utf8();
            copied = at;
        }
    }
    kept.push_str(&text[copied..]);
    Cow::Owned(kept)
}

/// Returns the findings about personal data that can't be cut out, and about what was.
fn identity_findings(redaction: &Redaction) -> (Option<Finding>, Vec<Finding>) {
    let stuck = redaction.stuck.map(|class| {
        let note = format!("Response exposes personal data ({}).", class.description());
        Finding::new(Rule::R2, note)
    });
    let mut cut: Vec<Finding> = Vec::new();
    for class in &redaction.classes {
        let note = format!("Personal data was redacted ({}).", class.description());
        let finding = Finding::new(Rule::R2, note);
        if !cut.contains(&finding) {
            cut.push(finding);
        }
    }
    (stuck, cut)
}

/// Returns the texts of the spans that state facts, each once.
fn distinct_texts<'a>(spans: &'a [TextSpan<'_>]) -> impl Iterator<Item = &'a str> {
    let mut known: HashSet<&str> = HashSet::default();
    asserted_spans(spans)
        .map(|span| span.text.as_ref())
        .filter(move |text| known.insert(text))
}

fn check_advice(recorded: &[TextSpan<'_>], shown: &[TextSpan<'_>], text: &str) -> Option<Finding> {
    let records = scope::RecordedText::new(distinct_texts(recorded).map(fold));
    let in_lines = distinct_texts(shown).find_map(|line| scope::find_advice(line, &records));
    let found = in_lines.or_else(|| scope::find_advice(text, &records))?;
    let note = format!("Response recommends an action outside the agent's scope ({found}).");
    Some(Finding::new(Rule::R3, note))
}

/// Checks the answer to a question before a person sees it: medicines and doses against the
/// records, personal data, medical advice.
#[derive(derive_more::Debug, Clone, Message, Serialize, Deserialize, JsonSchema)]
// Records and text hold patient data: they are never printed.
#[debug("Verify({} records, {} bytes, identities {:?})", records.len(), self.bytes(), identities)]
#[message(name = "verify", reply = Verified)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// Answers of the clinics to this question: the only facts that the answer may state.
    pub records: Vec<Value>,
    /// Aggregated results as they would be shown; `null` if only the text is shown.
    #[serde(default)]
    pub results: Value,
    /// Final text of the answer.
    #[serde(default)]
    pub text: String,
    /// Whether the caller may see patients' identities.
    #[serde(default)]
    pub identities: Identities,
}

impl Verify {
    /// Returns the size compared with [`VERIFY_BYTES_MAX`], in bytes: that of the text, and those
    /// of results and records as [`text_bytes`] counts them.
    fn bytes(&self) -> usize {
        self.records
            .iter()
            .chain([&self.results])
            .map(|value| text_bytes(value, 0))
            .sum::<usize>()
            + self.text.len()
    }
}

/// Returns the total size of the strings and keys in a value, in bytes; numbers, booleans and
/// `null` count as 4 bytes each, and each item of an array as one more. Values nested deeper than
/// [`VALUE_DEPTH_MAX`] aren't counted.
fn text_bytes(value: &Value, depth: usize) -> usize {
    match value {
        _ if depth > VALUE_DEPTH_MAX => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|v| 1 + text_bytes(v, depth + 1)).sum(),
        Value::Object(map) => map
            .iter()
            .map(|(k, v)| k.len() + text_bytes(v, depth + 1))
            .sum(),
        _ => 4,
    }
}

/// Visibility of patients' identities for a caller, by its principal and purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identities {
    /// No identifying data may be shown.
    #[default]
    Withheld,
    /// Names, ids and addresses may be shown, but only those that the records hold.
    AsRecorded,
}

/// Returns a text in folded form: compatibility form, lower case, without accents and invisible
/// characters; look-alike letters, dashes, quotation marks and signs such as `½` as ASCII. Line
/// breaks are kept.
fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut plain = remove_disguises(text);
    if plain.is_ascii() {
        plain.make_ascii_lowercase();
        return plain;
    }
    plain.chars().flat_map(char::to_lowercase).collect()
}

/// Normalizes a text as [`fold`] does, but keeps upper and lower case.
fn remove_disguises(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push_undisguised(c, &mut out));
    out
}

/// Appends a character in the form that [`remove_disguises`] gives it, which is empty for an
/// invisible one.
fn push_undisguised(c: char, out: &mut String) {
    match c {
        c if c.is_ascii() => out.push(c),
        // NFKC would join the fraction to the number before it: "2½" must not become "21/2".
        '½' => out.push_str(" 1/2"),
        '¼' => out.push_str(" 1/4"),
        '¾' => out.push_str(" 3/4"),
        '⅓' => out.push_str(" 1/3"),
        '⅔' => out.push_str(" 2/3"),
        'µ' | 'μ' => out.push('u'),
        'º' | '°' => out.push('o'),
        '–' | '—' | '‒' | '−' | '‐' | '‑' => out.push('-'),
        '’' | '‘' | 'ʼ' => out.push('\''),
        '“' | '”' => out.push('"'),
        '×' => out.push('x'),
        c if is_invisible(c) || is_combining_mark(c) => {}
        c => out.extend(
            std::iter::once(c)
                .nfkd()
                .filter(|d| !is_combining_mark(*d))
                .map(lookalike_ascii),
        ),
    }
}

/// Returns the ASCII character that `c` looks like, for characters that normalisation doesn't
/// convert, so that look-alike letters can't hide a name; a digit of another script as its value.
/// Other characters are returned unchanged.
fn lookalike_ascii(c: char) -> char {
    if let Some(digit) = DIGIT_ZEROS
        .iter()
        .find_map(|zero| u32::from(c).checked_sub(*zero).filter(|digit| *digit < 10))
    {
        return char::from_digit(digit, 10).unwrap_or(c);
    }
    match c {
        'đ' => 'd',
        'æ' => 'a',
        'Æ' => 'A',
        '⁄' | '∕' => '/',
        '，' => ',',
        c => latin_lookalike(c).unwrap_or(c),
    }
}

/// Code points of the digit zero in other scripts: Arabic, Persian, Devanagari, Bengali, Thai.
const DIGIT_ZEROS: [u32; 5] = [0x0660, 0x06f0, 0x0966, 0x09e6, 0x0e50];
