//! Values of constant expressions, as a reader of the page sees them.

use std::collections::BTreeMap;

use syn::{BinOp, Expr, ExprCall, Lit, UnOp};

use super::source::Kind;

/// Depth to which constants that name constants are followed.
const DEPTH_MAX: usize = 16;

/// A constant's value. Durations are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Number(f64),
    Nanoseconds(f64),
    Nothing,
}

/// The text of `expression` for a limit called `name`; its source where it can't be computed.
pub fn text(
    name: &str,
    kind: Kind,
    expression: &Expr,
    constants: &BTreeMap<String, Expr>,
) -> String {
    match evaluate(expression, constants, 0) {
        Some(Value::Nothing) => "none".to_owned(),
        Some(Value::Nanoseconds(nanoseconds)) => duration(nanoseconds),
        Some(Value::Number(number)) if kind == Kind::Number => quantity(name, number),
        _ => format!(
            "`{}`",
            quote::quote!(#expression)
                .to_string()
                .replace(" :: ", "::")
                .replace(' ', "")
        ),
    }
}

fn evaluate(expression: &Expr, constants: &BTreeMap<String, Expr>, depth: usize) -> Option<Value> {
    let within = |expression: &Expr| {
        if depth < DEPTH_MAX {
            evaluate(expression, constants, depth + 1)
        } else {
            None
        }
    };
    match expression {
        Expr::Paren(inner) => within(&inner.expr),
        Expr::Group(inner) => within(&inner.expr),
        Expr::Cast(inner) => within(&inner.expr),
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok().map(Value::Number),
            Lit::Float(number) => number.base10_parse().ok().map(Value::Number),
            _ => None,
        },
        Expr::Unary(negated) if matches!(negated.op, UnOp::Neg(_)) => {
            match within(&negated.expr)? {
                Value::Number(number) => Some(Value::Number(-number)),
                _ => None,
            }
        }
        Expr::Binary(operation) => match (within(&operation.left)?, within(&operation.right)?) {
            (Value::Number(left), Value::Number(right)) => {
                arithmetic(&operation.op, left, right).map(Value::Number)
            }
            _ => None,
        },
        Expr::Path(path) => {
            let name = path.path.segments.last()?.ident.to_string();
            match (name.as_str(), path.path.segments.len()) {
                ("None", 1) => Some(Value::Nothing),
                ("MAX", 2) => None,
                ("ZERO", 2) => Some(Value::Nanoseconds(0.0)),
                _ => within(constants.get(&name)?),
            }
        }
        Expr::Call(call) => called(call, within),
        _ => None,
    }
}

fn arithmetic(operator: &BinOp, left: f64, right: f64) -> Option<f64> {
    match operator {
        BinOp::Add(_) => Some(left + right),
        BinOp::Sub(_) => Some(left - right),
        BinOp::Mul(_) => Some(left * right),
        BinOp::Div(_) if right != 0.0 => Some(left / right),
        BinOp::Shl(_) => Some(left * right.exp2()),
        _ => None,
    }
}

fn called(call: &ExprCall, within: impl Fn(&Expr) -> Option<Value>) -> Option<Value> {
    let (Expr::Path(function), Some(argument), 1) =
        (&*call.func, call.args.first(), call.args.len())
    else {
        return None;
    };
    let value = within(argument)?;
    let scale = match (
        function.path.segments.last()?.ident.to_string().as_str(),
        value,
    ) {
        ("Some", value) => return Some(value),
        ("from_secs", Value::Number(number)) | ("from_secs_f64", Value::Number(number)) => {
            (number, 1e9)
        }
        ("from_millis", Value::Number(number)) => (number, 1e6),
        ("from_micros", Value::Number(number)) => (number, 1e3),
        ("from_nanos", Value::Number(number)) => (number, 1.0),
        _ => return None,
    };
    Some(Value::Nanoseconds(scale.0 * scale.1))
}

/// In the largest unit that needs no fraction.
fn duration(nanoseconds: f64) -> String {
    const UNITS: &[(f64, &str)] = &[
        (86_400e9, "d"),
        (3_600e9, "h"),
        (60e9, "min"),
        (1e9, "s"),
        (1e6, "ms"),
        (1e3, "µs"),
        (1.0, "ns"),
    ];
    let fits = |(size, _): &&(f64, &str)| nanoseconds >= *size && nanoseconds % size == 0.0;
    UNITS.iter().find(fits).map_or_else(
        || "0 s".to_owned(),
        |(size, unit)| format!("{} {unit}", grouped(nanoseconds / size)),
    )
}

/// A number with the unit that its name tells, if any.
fn quantity(name: &str, number: f64) -> String {
    let words: Vec<String> = name.to_lowercase().split('_').map(str::to_owned).collect();
    let has = |word: &str| words.iter().any(|w| w == word);
    if has("bytes") {
        const UNITS: &[(f64, &str)] = &[
            (1_073_741_824.0, "GiB"),
            (1_048_576.0, "MiB"),
            (1_024.0, "KiB"),
        ];
        let fits = |(size, _): &&(f64, &str)| number >= *size && number % size == 0.0;
        return match UNITS.iter().find(fits) {
            Some((size, unit)) => format!("{} {unit}", grouped(number / size)),
            None => format!("{} bytes", grouped(number)),
        };
    }
    let unit = match () {
        () if has("chars") => " characters",
        () if has("ms") => return duration(number * 1e6),
        () if has("s") || has("seconds") => return duration(number * 1e9),
        () if has("mib") => " MiB",
        () if has("tokens") => " tokens",
        () if has("digits") => " digits",
        () => "",
    };
    format!("{}{unit}", grouped(number))
}

/// With a comma before each three digits.
fn grouped(number: f64) -> String {
    if number.fract() != 0.0 || number.abs() >= 1e15 {
        return number.to_string();
    }
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 {
        format!("-{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: values read as people write them. Method: expressions as they stand in sources, with their texts.
    #[test]
    fn texts() {
        let constants = BTreeMap::from([("KIB".to_owned(), syn::parse_str("1024").unwrap())]);
        let check = |name: &str, kind, expression: &str, expected: &str| {
            assert_eq!(
                text(name, kind, &syn::parse_str(expression).unwrap(), &constants),
                expected,
                "{expression}"
            );
        };
        check(
            "BODY_BYTES_MAX",
            Kind::Number,
            "4 * 1024 * limits::KIB",
            "4 MiB",
        );
        check("BODY_BYTES_MAX", Kind::Number, "3_500", "3,500 bytes");
        check("TASKS_MAX", Kind::Number, "Some(10_000)", "10,000");
        check("TASKS_MAX", Kind::Number, "None", "none");
        check("TASKS_MAX", Kind::Number, "u32::MAX", "`u32::MAX`");
        check("connect_ms", Kind::Number, "10_000", "10 s");
        check(
            "LEASE",
            Kind::Duration,
            "Duration::from_secs(30 * 60)",
            "30 min",
        );
        check(
            "TURN",
            Kind::Duration,
            "Duration::from_micros(200)",
            "200 µs",
        );
        check("SHARE", Kind::Number, "0.5", "0.5");
    }
}
