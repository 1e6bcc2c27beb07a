//! Normal form of what a text states about a medicine: units, doses, schedules and routes.

/// Active substance of a medicine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Substance {
    /// Substance of the list of medicines, by its index there.
    Listed(u16),
    /// Other substance, by the stem of its name, and whether it is on the list of stems, so that
    /// its name may be shown.
    Other(String, bool),
}

/// Kind of a unit of medicine. Amounts can be compared only within one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum UnitKind {
    /// Mass; base unit milligram.
    Mass,
    /// Volume; base unit millilitre.
    Volume,
    /// Activity in units, international or not.
    Activity,
    /// Milliequivalents.
    Equivalent,
    /// Millimoles.
    Mole,
    /// Per cent.
    Percent,
    /// Tablets, capsules and other single doses to swallow.
    Tablet,
    /// Drops.
    Drop,
    /// Puffs of an inhaler or spray.
    Puff,
    /// Patches.
    Patch,
    /// Vials and ampoules.
    Vial,
    /// Sachets, suppositories and other counted forms.
    Piece,
    /// Number without a unit, beside a medicine or a word such as `dose`.
    Bare,
}

impl UnitKind {
    /// Returns whether the unit counts pieces, such as tablets. The strength of one piece may be
    /// stated beside it.
    pub fn is_count(self) -> bool {
        matches!(
            self,
            Self::Tablet | Self::Drop | Self::Puff | Self::Patch | Self::Vial | Self::Piece
        )
    }

    /// Returns whether a dose in this unit implies a medicine even if none is named beside it.
    pub fn implies_medicine(self) -> bool {
        matches!(
            self,
            Self::Mass | Self::Activity | Self::Tablet | Self::Puff | Self::Bare
        )
    }
}

/// Reference quantity of a dose, other than time, such as body weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DosePer {
    /// Per kilogram of body weight.
    Weight,
    /// Per square metre of body surface.
    Surface,
    /// Per millilitre: the strength of a liquid.
    Millilitre,
    /// Per hour: the rate of an infusion or patch.
    Hour,
    /// Per litre, decilitre, gram and so on: a laboratory value, not a dose.
    Laboratory,
}

/// Relation between the amounts of one dose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Amounts {
    /// One amount.
    Single,
    /// Lower and upper limit, or an amount and its deviation.
    Range,
    /// Amounts of the substances of a combination.
    Parts,
}

/// Relation of the real amount to the stated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Bound {
    Exact,
    /// More than the stated amount.
    Above,
    /// Less than the stated amount.
    Below,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Dose {
    pub kind: UnitKind,
    /// Amounts in the base unit of their kind.
    pub amounts: Vec<f64>,
    pub relation: Amounts,
    pub bound: Bound,
    /// Reference quantity of the dose; `None` for an absolute dose.
    pub per: Option<DosePer>,
    /// Whether a form follows ("200 mg tablets"), so that the amount is the strength of one piece.
    pub is_strength: bool,
}

impl Dose {
    pub fn single(kind: UnitKind, amount: f64) -> Self {
        Self {
            kind,
            amounts: vec![amount],
            relation: Amounts::Single,
            bound: Bound::Exact,
            per: None,
            is_strength: false,
        }
    }

    pub fn times(mut self, factor: f64) -> Self {
        self.amounts.iter_mut().for_each(|amount| *amount *= factor);
        self
    }
}

/// Number of pieces taken at once, such as tablets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pieces {
    pub kind: UnitKind,
    /// Number; two for a range.
    pub numbers: Vec<f64>,
    /// Whether a dose beside it may be the total rather than the strength of one piece:
    /// "2 tablets (50 mg)".
    pub may_be_total: bool,
}

/// Frequency of a dose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Schedule {
    /// Number of times a day; below 1 for every other day, weekly and so on.
    pub per_day: f64,
    /// Whether the dose is the total of a day or other period ("1 g a day", "1 g daily"), however
    /// it is divided.
    pub is_total: bool,
    /// Whether it is only a part of a day, such as mornings.
    pub is_day_part: bool,
    /// Whether it is a time of the clock.
    pub is_clock: bool,
    /// Whether it states into how many doses the total of a day is divided.
    pub is_division: bool,
}

impl Schedule {
    pub const fn times(per_day: f64) -> Self {
        Self {
            per_day,
            is_total: false,
            is_day_part: false,
            is_clock: false,
            is_division: false,
        }
    }

    pub const fn total(per_day: f64) -> Self {
        let mut schedule = Self::times(per_day);
        schedule.is_total = true;
        schedule
    }

    pub const fn day_part() -> Self {
        let mut schedule = Self::times(1.0);
        schedule.is_day_part = true;
        schedule
    }

    /// Combines two schedules of one dose. Two parts of a day, such as mornings and evenings, are
    /// added. Otherwise the schedule that isn't a part of a day is kept: `self` if neither is one,
    /// unless only the other states times.
    pub fn combine(self, other: Self) -> Self {
        match (self.is_day_part, other.is_day_part) {
            (true, true) => Self {
                per_day: self.per_day + other.per_day,
                ..self
            },
            (true, false) => other,
            (false, false) if self.is_total && !other.is_total => other,
            _ => self,
        }
    }
}

/// Times of day and days of the week as bits: see [`times`].
pub(super) type Times = u16;

/// Bits of [`Times`].
pub(super) mod times {
    use super::Times;

    pub const MORNING: Times = 1;
    pub const MIDDAY: Times = 2;
    pub const NIGHT: Times = 4;
    /// Bit of Monday; the next ones follow.
    pub const MONDAY: Times = 8;
    /// Times of day.
    pub const OF_DAY: Times = MORNING | MIDDAY | NIGHT;
}

/// Routes of administration as bits, several for a word that doesn't tell them apart, such as
/// `injection`: see [`routes`].
pub(super) type Routes = u32;

/// Bits of [`Routes`].
pub(super) mod routes {
    use super::Routes;

    pub const ORAL: Routes = 1;
    pub const INTRAVENOUS: Routes = 2;
    pub const INTRAMUSCULAR: Routes = 4;
    pub const SUBCUTANEOUS: Routes = 8;
    pub const TOPICAL: Routes = 16;
    pub const INHALED: Routes = 32;
    pub const SUBLINGUAL: Routes = 64;
    pub const RECTAL: Routes = 128;
    pub const NASAL: Routes = 256;
    pub const EYE: Routes = 512;
    pub const TRANSDERMAL: Routes = 1024;
    pub const VAGINAL: Routes = 2048;
    pub const EAR: Routes = 4096;
    /// Rare routes, such as into the spinal canal.
    pub const OTHER: Routes = 8192;
    /// Mark of a route that only the form tells, such as a cream: it needs no record.
    pub const FORM: Routes = 16384;
    pub const INTRALESIONAL: Routes = 32768;
    pub const INTRADERMAL: Routes = 65536;
    pub const BUCCAL: Routes = 131_072;
    pub const PARENTERAL: Routes =
        INTRAVENOUS | INTRAMUSCULAR | SUBCUTANEOUS | INTRALESIONAL | INTRADERMAL | OTHER;
    /// Routes by places where a disease may also be.
    pub const SURFACE: Routes = TOPICAL | EYE | EAR | NASAL;
}

/// Statement about one medicine: its dose, schedule and route.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Claim {
    /// Active substances; empty for a dose without a medicine.
    pub substances: Vec<Substance>,
    pub dose: Option<Dose>,
    pub pieces: Option<Pieces>,
    pub schedule: Option<Schedule>,
    pub times: Times,
    /// Number of doses into which the total of a day is divided.
    pub portions: Option<f64>,
    pub route: Option<Routes>,
    /// Whether it is taken only as needed.
    pub as_needed: bool,
    /// Duration of the treatment in days.
    pub days: Option<f64>,
    pub stance: Stance,
    /// Whether the medicine was named in an earlier sentence only.
    pub is_carried: bool,
    /// Index of the patients whom the claim concerns, in the list of the text; `None` if unknown.
    pub about: Option<usize>,
}

impl Claim {
    /// Returns whether the claim states more than the medicine's name.
    pub fn has_details(&self) -> bool {
        self.dose.is_some() || self.pieces.is_some() || self.schedule.is_some()
    }
}

/// Attitude of a sentence to the medicine that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Stance {
    #[default]
    Asserted,
    /// The medicine is said to be absent: "no record of digoxin".
    Denied,
    /// The patient is said not to take it.
    NotTaken,
    /// The medicine is said to have been stopped.
    Stopped,
}
