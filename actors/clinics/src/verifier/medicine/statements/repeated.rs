//! Objects of results that repeat those of the records, as most do: they are walked once.

use serde_json::{Map, Number, Value};

use super::{Loose, Statement, ValuePlace, Walk};

/// Collects the statements of a value, in which the objects of `recorded` are likely to stand in their
/// order: these aren't read again.
pub(in super::super) fn collect_repeated(
    value: &Value,
    recorded: &[RecordedObject<'_>],
) -> Vec<Statement> {
    let mut walk = Walk::new(recorded);
    let loose = walk.value(value, &ValuePlace::default());
    walk.emit(loose, None);
    walk.out
}

/// Record that is an object, with what a walk finds in it.
pub(in super::super) struct RecordedObject<'v> {
    map: &'v Map<String, Value>,
    statements: Vec<Statement>,
    loose: Loose,
}

/// Collects the statements of records, and what is found in each that is an object.
pub(in super::super) fn collect_recorded(
    records: &[Value],
) -> (Vec<Statement>, Vec<RecordedObject<'_>>) {
    let (mut all, mut objects) = (Vec::new(), Vec::new());
    for record in records {
        let mut walk = Walk::new(&[]);
        let loose = walk.value(record, &ValuePlace::default());
        if let Value::Object(map) = record {
            objects.push(RecordedObject {
                map,
                statements: walk.out.clone(),
                loose: loose.clone(),
            });
        }
        walk.emit(loose, None);
        all.append(&mut walk.out);
    }
    (all, objects)
}

impl Walk<'_> {
    /// Takes over what was found in an object if it is the next recorded one, at a place that is like
    /// that of a record. Each object is compared with one record, so that the time is linear.
    pub(super) fn repeated(
        &mut self,
        map: &Map<String, Value>,
        place: &ValuePlace<'_>,
    ) -> Option<Loose> {
        let (next, rest) = self.recorded.split_first()?;
        if place.in_list || place.patient.is_some() || !is_same_object(next.map, map) {
            return None;
        }
        self.recorded = rest;
        self.out.extend_from_slice(&next.statements);
        Some(next.loose.clone())
    }
}

/// Returns whether two objects have the same fields in the same order.
fn is_same_object(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let mut fields = a.iter().zip(b);
    a.len() == b.len() && fields.all(|((a_key, a), (b_key, b))| a_key == b_key && is_same(a, b))
}

/// Returns whether two values have the same text and order.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => is_same_object(a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        // Of numbers, `0.0` and `-0.0` are equal.
        (Value::Number(a), Value::Number(b)) => {
            a == b && a.is_f64() == b.is_f64() && {
                let sign = |number: &Number| number.as_f64().map(f64::is_sign_negative);
                sign(a) == sign(b)
            }
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::collect_statements;
    use super::*;

    /// Goal: objects that repeat records have the same statements as if they were read. Method: results
    /// with equal records, changed ones, and records at other places.
    #[test]
    fn repeated_objects() {
        let record = |id: &str, dose: f64| {
            json!({"patient": {"patient_id": id, "condition": "Angina", "medications": [
            {"name": "Losartan", "dose": dose, "unit": "mg", "frequency": "once daily"}]}, "notes": "on 5 mg"})
        };
        let lone = json!({"name": "Losartan", "extra": {"dose": "50 mg"}});
        let records = [
            record("A-001", 50.0),
            record("A-002", 0.0),
            lone.clone(),
            json!("text"),
        ];
        let (all, objects) = collect_recorded(&records);
        let alone: Vec<Statement> = records.iter().flat_map(collect_statements).collect();
        assert!(all == alone && objects.len() == 3);
        for results in [
            json!(records),
            json!([{"step": 1, "result": records[0]}, {"result": records[1]}, {"result": lone}]),
            json!([record("A-001", 51.0), record("A-002", -0.0), lone]),
            json!([records[1], records[0], records[0]]),
            json!({"medications": records[0], "patient_id": "B-001", "more": [records[0], lone]}),
        ] {
            let repeated = collect_repeated(&results, &objects);
            assert!(repeated == collect_statements(&results), "{results}");
        }
    }
}
