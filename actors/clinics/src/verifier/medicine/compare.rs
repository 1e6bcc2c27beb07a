//! Comparison of claims with the records, field by field.

use super::model::{Amounts, Bound, Claim, Dose, Pieces, UnitKind, times};
use super::parts::is_open;
use super::steps::count_step;

/// Relative difference up to which two amounts, or times a day, count as equal, because unit
/// conversions round.
const AMOUNT_TOLERANCE: f64 = 1e-4;
/// Relative difference up to which two intervals of [`LONG_INTERVAL_DAYS`] or more count as equal:
/// "monthly" and "every 4 weeks".
const LONG_INTERVAL_TOLERANCE: f64 = 0.1;
const LONG_INTERVAL_DAYS: f64 = 27.0;
/// Factors between the units of mass in which a number without a unit may be meant.
const BARE_FACTORS: [f64; 5] = [1.0, 1e3, 1e-3, 1e6, 1e-6];

/// Returns whether a record states everything that a claim about the same medicine states.
pub(super) fn supports(recorded: &Claim, said: &Claim) -> bool {
    count_step();
    has_route(recorded, said)
        && has_times(recorded, said)
        && has_days(recorded, said)
        && (!said.as_needed || recorded.as_needed)
        && has_dose_and_schedule(recorded, said)
}

/// Returns whether the routes agree. The oral route needs no record.
pub(super) fn has_route(recorded: &Claim, said: &Claim) -> bool {
    use super::model::routes::{FORM, ORAL};
    match (said.route, recorded.route) {
        (None, _) => true,
        (Some(said), Some(recorded)) => said & recorded & !FORM != 0,
        (Some(said), None) => said == ORAL || said & FORM != 0,
    }
}

/// Returns whether the times of day and days of the week agree, as far as the record states any.
fn has_times(recorded: &Claim, said: &Claim) -> bool {
    [times::OF_DAY, !times::OF_DAY].into_iter().all(|mask| {
        let (said, recorded) = (said.times & mask, recorded.times & mask);
        said == 0 || recorded == 0 || said & !recorded == 0
    })
}

fn has_days(recorded: &Claim, said: &Claim) -> bool {
    match (said.days, recorded.days) {
        (Some(said), Some(recorded)) => is_close(said, recorded),
        _ => true,
    }
}

/// Compares dose and schedule. A claim without a schedule is compared by its dose alone; one with a
/// schedule never matches a record without. If one of the schedules is a total of a day or other
/// period, equal amounts of a day match too.
fn has_dose_and_schedule(recorded: &Claim, said: &Claim) -> bool {
    let is_dosed = said.dose.is_some() || said.pieces.is_some();
    let Some(schedule) = said.schedule else {
        return !is_dosed || is_same_dose(recorded, said);
    };
    let Some(recorded_schedule) = recorded.schedule else {
        return false;
    };
    let same_times = is_same_frequency(schedule.per_day, recorded_schedule.per_day);
    if !is_dosed {
        // "every day" doesn't tell how often in a day.
        return same_times || schedule.is_total && schedule.per_day <= recorded_schedule.per_day;
    }
    let portions = |claim: &Claim| {
        claim
            .portions
            .or(claim.schedule.filter(|s| !s.is_total).map(|s| s.per_day))
    };
    if let (Some(said), Some(recorded)) = (said.portions, portions(recorded))
        && !is_same_frequency(said, recorded)
    {
        return false;
    }
    if same_times && is_same_dose(recorded, said) {
        return true;
    }
    let per_day = |claim: &Claim, times: f64| single_dose(claim).map(|dose| dose.times(times));
    let totals = per_day(said, schedule.per_day).zip(per_day(recorded, recorded_schedule.per_day));
    (schedule.is_total || recorded_schedule.is_total)
        && totals.is_some_and(|(a, b)| has_same_amounts(&a, &b))
}

/// Returns the total of a day; `None` if dose or schedule are unknown.
pub(super) fn daily_total(claim: &Claim) -> Option<Dose> {
    Some(single_dose(claim)?.times(claim.schedule?.per_day))
}

fn is_same_frequency(a: f64, b: f64) -> bool {
    let is_long = a.max(b) <= 1.0 / LONG_INTERVAL_DAYS;
    let tolerance = if is_long {
        LONG_INTERVAL_TOLERANCE
    } else {
        AMOUNT_TOLERANCE
    };
    (a - b).abs() <= tolerance * a.max(b)
}

/// Returns the total of one intake: strength times number of pieces, or the one of them that is
/// stated. A range of pieces beside a strength is ignored. `None` if the claim states neither.
pub(super) fn single_dose(claim: &Claim) -> Option<Dose> {
    match (&claim.dose, &claim.pieces) {
        (Some(dose), Some(pieces)) => match pieces.numbers.as_slice() {
            [number] => Some(dose.clone().times(*number)),
            _ => Some(dose.clone()),
        },
        (Some(dose), None) => Some(dose.clone()),
        (None, Some(pieces)) => Some(as_dose(pieces)),
        (None, None) => None,
    }
}

fn as_dose(pieces: &Pieces) -> Dose {
    let mut dose = Dose::single(pieces.kind, 0.0);
    dose.amounts.clone_from(&pieces.numbers);
    if dose.amounts.len() > 1 {
        dose.relation = Amounts::Range;
    }
    dose
}

fn is_same_dose(recorded: &Claim, said: &Claim) -> bool {
    let has_parts = match (&said.dose, &said.pieces, &recorded.dose, &recorded.pieces) {
        (Some(a), None, Some(b), None) => has_same_amounts(a, b),
        (None, Some(a), _, Some(b)) => has_same_pieces(a, b),
        // One piece of the recorded dose.
        (None, Some(a), Some(_), None) => is_one(a),
        (Some(a), Some(n), Some(b), Some(m)) => has_same_amounts(a, b) && has_same_pieces(n, m),
        (Some(a), Some(n), Some(b), None) => n.may_be_total && has_same_amounts(a, b),
        (Some(a), None, Some(b), Some(_)) if a.is_strength => has_same_amounts(a, b),
        _ => false,
    };
    let at_once = || single_dose(said).zip(single_dose(recorded));
    has_parts
        || said.dose.is_some() && at_once().is_some_and(|(a, b)| has_same_amounts(&a, &b))
        || is_same_volume(recorded, said)
}

fn has_same_pieces(a: &Pieces, b: &Pieces) -> bool {
    has_same_amounts(&as_dose(a), &as_dose(b))
}

fn is_one(pieces: &Pieces) -> bool {
    matches!(pieces.numbers.as_slice(), [n] if is_close(*n, 1.0))
        && matches!(
            pieces.kind,
            UnitKind::Tablet | UnitKind::Piece | UnitKind::Patch
        )
}

/// Compares a strength per millilitre and the dose of a record that states both as one.
fn is_same_volume(recorded: &Claim, said: &Claim) -> bool {
    match (&said.dose, &recorded.dose) {
        (Some(a), Some(b)) => {
            a.kind == UnitKind::Volume && b.kind == UnitKind::Volume && has_same_amounts(a, b)
        }
        _ => false,
    }
}

/// Returns whether two doses are equal. A stated bound must hold for the recorded amount.
fn has_same_amounts(said: &Dose, recorded: &Dose) -> bool {
    if said.kind == UnitKind::Bare || recorded.kind == UnitKind::Bare {
        return has_same_number(said, recorded);
    }
    if said.kind != recorded.kind || said.per != recorded.per {
        return false;
    }
    if is_open(said.bound) && !is_open(recorded.bound) {
        return match (
            said.bound,
            said.amounts.as_slice(),
            recorded.amounts.as_slice(),
        ) {
            (Bound::Above, [limit], [amount]) => amount > limit,
            (Bound::Below, [limit], [amount]) => amount < limit,
            _ => false,
        };
    }
    let same =
        |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| is_close(*x, *y));
    if same(&said.amounts, &recorded.amounts) {
        return said.amounts.len() == 1 || is_compatible(said.relation, recorded.relation);
    }
    // The sum of a combination's parts: "amoxicillin/clavulanate 1 g".
    recorded.relation == Amounts::Parts
        && said.amounts.len() == 1
        && is_close(said.amounts[0], recorded.amounts.iter().sum())
}

fn is_compatible(said: Amounts, recorded: Amounts) -> bool {
    said == recorded || said == Amounts::Single || recorded == Amounts::Single
}

/// Compares a number without a unit.
fn has_same_number(said: &Dose, recorded: &Dose) -> bool {
    match (said.amounts.as_slice(), recorded.amounts.as_slice()) {
        (a, b) if a.len() > 1 && a.len() == b.len() => {
            a.iter().zip(b).all(|(a, b)| is_close(*a, *b))
        }
        ([a], [b]) => {
            let is_mass = said.kind == UnitKind::Mass || recorded.kind == UnitKind::Mass;
            let factors = if is_mass {
                &BARE_FACTORS[..]
            } else {
                &BARE_FACTORS[..1]
            };
            factors.iter().any(|factor| is_close(*a, b * factor))
        }
        _ => false,
    }
}

pub(super) fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= AMOUNT_TOLERANCE * a.abs().max(b.abs())
}

/// Returns whether two doses of a day are equal.
pub(super) fn is_same_total(a: &Dose, b: &Dose) -> bool {
    has_same_amounts(a, b)
}
