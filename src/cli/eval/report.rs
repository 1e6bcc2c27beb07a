//! What was measured, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::score::{Class, Miss, Part, Share};

/// One object: `by`, and each set by its name.
pub(super) fn json(by: &str, parts: &[(&str, Part)], failures: bool) -> Value {
    let mut all = Map::new();
    all.insert("by".to_owned(), by.into());
    for (name, part) in parts {
        all.insert((*name).to_owned(), part_json(name, part, failures));
    }
    Value::Object(all)
}

fn part_json(name: &str, part: &Part, failures: bool) -> Value {
    let by_lang: Map<String, Value> =
        part.by_lang.iter().map(|(lang, share)| (lang.clone(), share_json(*share))).collect();
    let mut value = json!({
        "n": part.all.all,
        "correct": part.all.right,
        "accuracy": rounded(part.accuracy()),
        "interval": part.all.interval().map(rounded),
        "classes": Class::ALL.map(Class::as_str),
        "confusion": part.confusion,
        "by_lang": by_lang,
        "tricky": share_json(part.tricky),
        "class_accuracy": rounded(part.class_only.accuracy()),
        "folds": part.folds.map(|fold| rounded(fold.accuracy())),
        "decisions": part.decisions,
        "fallbacks": part.fallbacks,
        "decisions_per_s": per_second(part).round(),
        "micro_usd": part.micro_usd,
    });
    if failures && let Value::Object(value) = &mut value {
        let miss = |miss: &Miss| {
            let mut line = json!({"id": miss.id, "expected": miss.expected, "got": miss.got});
            if may_show_texts(name)
                && let Value::Object(line) = &mut line
            {
                line.insert("text".to_owned(), miss.text.as_str().into());
            }
            line
        };
        value.insert("failures".to_owned(), part.misses.iter().map(miss).collect());
    }
    value
}

fn share_json(share: Share) -> Value {
    json!({"n": share.all, "correct": share.right, "accuracy": rounded(share.accuracy()), "interval": share.interval().map(rounded)})
}

/// What is to be measured with stays unseen: who reads it writes rules for it.
fn may_show_texts(name: &str) -> bool {
    name != "heldout"
}

/// To four places: more would say what nobody knows.
fn rounded(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}

fn per_second(part: &Part) -> f64 {
    part.decisions as f64 / part.took.as_secs_f64().max(1e-9)
}

/// The same for people.
pub(super) fn text(by: &str, parts: &[(&str, Part)], failures: bool) -> String {
    let mut text = format!("Routing, decided by {by}");
    for (name, part) in parts {
        text.push_str(&part_text(name, part, failures));
    }
    text
}

fn part_text(name: &str, part: &Part, failures: bool) -> String {
    let mut text = String::new();
    // Writing to a String doesn't fail.
    let _ = writeln!(text, "\n\n{name}: {}", share_text(part.all));
    let (low, high) = part
        .folds
        .iter()
        .fold((1.0_f64, 0.0_f64), |(low, high), fold| (low.min(fold.accuracy()), high.max(fold.accuracy())));
    let _ = writeln!(text, "  class alone   {}", share_text(part.class_only));
    for (lang, share) in &part.by_lang {
        let _ = writeln!(text, "  {lang:<13} {}", share_text(*share));
    }
    let _ = writeln!(text, "  tricky        {}", share_text(part.tricky));
    let _ = writeln!(text, "  five parts    {} to {}", percent(low), percent(high));
    let _ = writeln!(
        text,
        "  {} decisions, {:.0} a second, {} by fallback, {:.4} USD",
        part.decisions,
        per_second(part),
        part.fallbacks,
        part.micro_usd as f64 / 1e6
    );
    let _ = write!(text, "\n  {:<22}", "expected \\ got");
    for class in Class::ALL {
        let _ = write!(text, "{:>10}", class.as_str());
    }
    for (class, row) in Class::ALL.into_iter().zip(part.confusion) {
        let _ = write!(text, "\n  {:<22}", class.as_str());
        for count in row {
            let _ = write!(text, "{count:>10}");
        }
    }
    if failures {
        for miss in &part.misses {
            let Miss { id, expected, got, text: request } = miss;
            let _ = write!(text, "\n  {id}: expected {expected}, got {got}");
            if may_show_texts(name) {
                let _ = write!(text, "\n      {request}");
            }
        }
    }
    text
}

fn share_text(share: Share) -> String {
    let [low, high] = share.interval();
    format!(
        "{} ({} of {}; 95 %: {} to {})",
        percent(share.accuracy()),
        share.right,
        share.all,
        percent(low),
        percent(high)
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
