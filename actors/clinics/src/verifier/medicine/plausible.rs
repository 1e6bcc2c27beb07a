//! Plausible ranges of doses: a record with a slip of a unit or decimal point isn't repeated.

use std::sync::LazyLock;

use foldhash::{HashMap, HashMapExt};

use super::compare::single_dose;
use super::lexicon::{LEXICON, whole_medicine};
use super::model::{Amounts, Claim, Dose, DosePer, Substance, UnitKind};

/// Factor above the largest usual dose from which a dose counts as implausible.
const LARGEST_DOSE_FACTOR: f64 = 2.0;
/// Body weight for doses per kilogram, in kilograms.
const BODY_WEIGHT_KG: f64 = 70.0;
/// Body surface for doses per square metre, in square metres.
const BODY_SURFACE_M2: f64 = 1.8;
/// Maximum number of intakes a day: one an hour. Rates such as mg/hour are totals, not intakes.
const INTAKES_PER_DAY_MAX: f64 = 24.0;

/// General ceilings of a single dose and of a day by unit, for medicines without limits of their own
/// and in addition to these.
const CEILINGS: &[(UnitKind, f64, f64)] = &[
    (UnitKind::Mass, 30_000.0, 100_000.0),
    (UnitKind::Activity, 50e6, 100e6),
    (UnitKind::Volume, 3_000.0, 10_000.0),
    (UnitKind::Equivalent, 400.0, 1_000.0),
    (UnitKind::Percent, 100.0, f64::INFINITY),
    (UnitKind::Tablet, 20.0, 60.0),
    (UnitKind::Drop, 120.0, 400.0),
    (UnitKind::Puff, 16.0, 60.0),
    (UnitKind::Patch, 6.0, 12.0),
    (UnitKind::Vial, 20.0, 40.0),
    (UnitKind::Piece, 20.0, 60.0),
];

/// Largest usual dose of a medicine.
struct Limit {
    kind: UnitKind,
    single: f64,
    daily: f64,
}

/// Limits of `data/dose_limits.txt` by substance.
static LIMITS: LazyLock<HashMap<Substance, Vec<Limit>>> = LazyLock::new(|| {
    let mut limits: HashMap<Substance, Vec<Limit>> = HashMap::new();
    for line in include_str!("../../../data/dose_limits.txt").lines() {
        if let Some((substance, limit)) = read_limit(line) {
            limits.entry(substance).or_default().push(limit);
        }
    }
    limits
});

/// Reads a line of the limits; `None` for comments and empty lines.
fn read_limit(line: &str) -> Option<(Substance, Limit)> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = line.rsplitn(4, ' ');
    let daily = fields.next()?.parse().ok()?;
    let single = fields.next()?.parse().ok()?;
    let kind = match fields.next()? {
        "mg" => UnitKind::Mass,
        "units" => UnitKind::Activity,
        _ => return None,
    };
    let found = whole_medicine(fields.next()?)?;
    let substance = found.substances.into_iter().next()?;
    Some((
        substance,
        Limit {
            kind,
            single,
            daily,
        },
    ))
}

/// Returns whether a claim's dose is beyond every plausible range, for any of its substances: too
/// much at once or in a day, in the wrong kind of unit, or more often than hourly. Claims without a
/// dose are plausible.
pub(super) fn is_implausible(claim: &Claim) -> bool {
    let is_frequent = claim
        .schedule
        .is_some_and(|s| !s.is_total && s.per_day > INTAKES_PER_DAY_MAX);
    if is_frequent && (claim.dose.is_some() || claim.pieces.is_some()) {
        return true;
    }
    let Some(dose) = single_dose(claim).map(per_person) else {
        return false;
    };
    let times = claim.schedule.map_or(0.0, |s| s.per_day);
    let is_total = claim.schedule.is_some_and(|s| s.is_total);
    if dose.per == Some(DosePer::Millilitre) {
        return false;
    }
    let (times, is_total) = match dose.per {
        Some(DosePer::Hour) => (24.0, true),
        _ => (times, is_total),
    };
    let largest = dose.amounts.iter().copied().fold(0.0, f64::max);
    // The total of a period may be divided, so only the amount of a day is known.
    let at_once = if is_total { 0.0 } else { largest };
    let exceeds =
        |single: f64, daily: f64| at_once > single || times >= 1.0 && largest * times > daily;
    let limits = claim.substances.iter().enumerate().map(|(n, substance)| {
        let part = match dose.relation {
            Amounts::Parts => dose.amounts.get(n).copied(),
            _ => Some(largest).filter(|_| claim.substances.len() == 1),
        };
        (limits_of(substance), part)
    });
    let mut is_limited = false;
    for (limits, part) in limits {
        let (Some(limits), Some(amount)) = (limits, part) else {
            continue;
        };
        if !matches!(dose.kind, UnitKind::Mass | UnitKind::Activity) {
            continue;
        }
        is_limited = true;
        let within = limits.iter().any(|limit| {
            let at_once = if is_total { 0.0 } else { amount };
            limit.kind == dose.kind
                && at_once <= limit.single * LARGEST_DOSE_FACTOR
                && (times < 1.0 || amount * times <= limit.daily * LARGEST_DOSE_FACTOR)
        });
        if !within {
            return true;
        }
    }
    let ceiling = CEILINGS.iter().find(|(kind, ..)| *kind == dose.kind);
    !is_limited && ceiling.is_some_and(|(_, single, daily)| exceeds(*single, *daily))
}

/// Returns the limits of a substance, or those of the general name that begins its name; `None` if
/// there are none.
fn limits_of(substance: &Substance) -> Option<&'static Vec<Limit>> {
    LIMITS
        .get(substance)
        .or_else(|| LIMITS.get(&LEXICON.parent(substance)?))
}

/// Converts a dose per body weight or surface to that of an adult.
fn per_person(dose: Dose) -> Dose {
    match dose.per {
        Some(DosePer::Weight) => dose.times(BODY_WEIGHT_KG),
        Some(DosePer::Surface) => dose.times(BODY_SURFACE_M2),
        _ => dose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::medicine::model::Schedule;

    fn claim(name: &str, kind: UnitKind, amount: f64, schedule: Schedule) -> Claim {
        Claim {
            substances: whole_medicine(name).unwrap().substances,
            dose: Some(Dose::single(kind, amount)),
            schedule: Some(schedule),
            ..Claim::default()
        }
    }

    /// Goal: every limit names a medicine of the list. Method: each line is read.
    #[test]
    fn limits_are_read() {
        let lines = include_str!("../../../data/dose_limits.txt").lines();
        for line in lines.filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (substance, limit) = read_limit(line).unwrap_or_else(|| panic!("{line}"));
            assert!(matches!(substance, Substance::Listed(_)), "{line}");
            assert!(limit.single <= limit.daily, "{line}");
        }
        assert!(LIMITS.len() >= 120);
    }

    /// Goal: slips of a unit are found, usual and large doses aren't. Method: at the limit times the factor, and above.
    #[test]
    fn slips_are_implausible() {
        let daily = Schedule::times(1.0);
        for (name, kind, amount, schedule, expect) in [
            ("losartan", UnitKind::Mass, 100.0, daily, false),
            ("losartan", UnitKind::Mass, 200.0, daily, false),
            ("losartan", UnitKind::Mass, 201.0, daily, true),
            (
                "losartan",
                UnitKind::Mass,
                100.0,
                Schedule::times(3.0),
                true,
            ),
            ("losartan", UnitKind::Activity, 50.0, daily, true),
            ("levothyroxine", UnitKind::Mass, 50.0, daily, true),
            (
                "amiodarone",
                UnitKind::Mass,
                200_000.0,
                Schedule::times(24.0),
                true,
            ),
            (
                "amiodarone",
                UnitKind::Mass,
                60.0,
                Schedule::total(1.0),
                false,
            ),
            (
                "methotrexate",
                UnitKind::Mass,
                15.0,
                Schedule::times(1.0 / 7.0),
                false,
            ),
            (
                "insulin lispro",
                UnitKind::Activity,
                10.0,
                Schedule::times(3.0),
                false,
            ),
            ("dobutamine", UnitKind::Mass, 30_001.0, daily, true),
            (
                "dobutamine",
                UnitKind::Mass,
                1.0,
                Schedule::times(25.0),
                true,
            ),
        ] {
            assert_eq!(
                is_implausible(&claim(name, kind, amount, schedule)),
                expect,
                "{name} {amount} {schedule:?}"
            );
        }
    }
}
