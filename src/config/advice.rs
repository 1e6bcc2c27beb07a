//! Advice beside problems of keys and values: how to write what was probably meant.

use super::tree::ConfigValue;

/// Units of numbers, each with the part of a key's name that states it.
const UNITS: [(&str, &str); 5] = [
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("minutes", "minutes"),
    ("days", "days"),
    ("mib", "MiB"),
];

/// Returns how to write the value of `key`, which must be `expected` (as messages call it) and isn't;
/// `None` if there is nothing to say beyond that. The value isn't repeated, because it may be a
/// secret.
pub(super) fn type_advice(key: &str, expected: &str, written: &ConfigValue) -> Option<String> {
    let is_whole = expected.starts_with("a whole number");
    let is_number = is_whole || expected == "a number";
    let is_written = |text: &str| match is_whole {
        true => text.parse::<i64>().is_ok(),
        false => text.parse::<f64>().is_ok_and(f64::is_finite),
    };
    let advice = match (expected, written) {
        ("a table", ConfigValue::List(_)) if key == "env" => {
            "write `env = { NAME = \"value\" }`; names of variables to pass on are for `env_passthrough`"
        }
        ("a list", ConfigValue::Table(_)) if key == "env_passthrough" => {
            "write names alone, as in `env_passthrough = [\"NAME\"]`; variables with values are for `env`"
        }
        ("a list", ConfigValue::Text(_)) if key == "command" => {
            "write program and arguments one by one, as in `command = [\"npx\", \"-y\", \"server\"]`"
        }
        ("a list", ConfigValue::Text(_)) => "write it in brackets: [\"…\"]",
        ("a text", ConfigValue::List(_)) if key == "agent" => {
            "write one id without brackets; several are for `agents`"
        }
        ("a text", ConfigValue::List(_)) => "write one text without brackets",
        ("a text", ConfigValue::Integer(_) | ConfigValue::Float(_) | ConfigValue::Bool(_)) => {
            "write it in quotes"
        }
        ("true or false", ConfigValue::Text(_)) => "write `true` or `false`, without quotes",
        (_, ConfigValue::Text(text)) if is_number && is_written(text.trim()) => {
            "write the number without quotes"
        }
        (_, ConfigValue::Text(_)) if is_number => {
            let what = match unit_of(key) {
                Some(unit) => format!("the number of {unit} alone"),
                None if is_whole => "a whole number without quotes".to_owned(),
                None => return None,
            };
            return Some(format!("write {what}, as in `{key} = 30`"));
        }
        _ => return None,
    };
    Some(advice.to_owned())
}

/// Returns the unit that a key's name states.
fn unit_of(key: &str) -> Option<&'static str> {
    key.rsplit('_').find_map(|part| {
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == part)?;
        Some(*unit)
    })
}

/// Returns where the value of an unknown key belongs that files of other programs have, for a table
/// with the `known` keys; `None` for other keys.
pub(super) fn key_advice(name: &str, known: &[&str]) -> Option<String> {
    let advice = "`command` holds program and arguments: `command = [\"npx\", \"-y\", \"server\"]`";
    (name == "args" && known.contains(&"command")).then(|| advice.to_owned())
}
