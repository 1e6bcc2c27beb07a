//! Units of a dose, and what they are counted against.

use std::sync::LazyLock;

use crate::text::{Meanings, meanings};

/// What a unit measures. Amounts compare only within one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// In milligrams.
    Mass,
    /// In millilitres.
    Volume,
    /// International units.
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
}

impl Kind {
    /// Counted in pieces: its size in milligrams may stand beside it.
    pub fn is_count(self) -> bool {
        matches!(self, Self::Tablet | Self::Drop | Self::Puff | Self::Patch | Self::Vial | Self::Piece)
    }
}

static UNITS: Meanings<(Kind, f64)> = LazyLock::new(|| {
    use Kind::*;
    meanings(&[
        ("g gm gms gr gram grams gramme grammes grama gramas", (Mass, 1e3)),
        ("mg mgs milligram milligrams milligramme milligrammes miligrama miligramas", (Mass, 1.0)),
        ("mcg mcgs ug microgram micrograms microgramme micrograma microgramas", (Mass, 1e-3)),
        ("ng nanogram nanograms nanograma nanogramas", (Mass, 1e-6)),
        ("ml millilitre millilitres milliliter milliliters mililitro mililitros cc", (Volume, 1.0)),
        ("iu ui u unit units unidade unidades", (Activity, 1.0)),
        ("miu mu mui", (Activity, 1e6)),
        ("meq", (Equivalent, 1.0)),
        ("mmol millimole millimoles", (Mole, 1.0)),
        ("% percent", (Percent, 1.0)),
        (
            "tablet tablets tab tabs comprimido comprimidos comp cp cps pill pills capsule capsules cap caps capsula \
             capsulas dragea drageas",
            (Tablet, 1.0),
        ),
        ("drop drops gota gotas", (Drop, 1.0)),
        ("puff puffs inhalation inhalations spray sprays jato jatos", (Puff, 1.0)),
        ("patch patches adesivo adesivos", (Patch, 1.0)),
        ("vial vials ampoule ampoules ampule ampules ampola ampolas", (Vial, 1.0)),
        (
            "sachet sachets suppository suppositories supositorio lozenge lozenges envelope envelopes sache saches",
            (Piece, 1.0),
        ),
    ])
});

/// The kind of a unit word and how many of the kind's base unit it is.
pub(super) fn unit(word: &str) -> Option<(Kind, f64)> {
    UNITS.get(word).copied()
}

static PERIODS: Meanings<f64> = LazyLock::new(|| {
    meanings(&[
        ("day days d dia dias daily 24h", 1.0),
        ("week weeks wk semana semanas", 1.0 / 7.0),
        ("month months mes meses", 1.0 / 30.0),
        ("year years ano anos", 1.0 / 365.0),
        ("hour hours h hr hrs hora horas", 24.0),
        ("min minute minutes minuto minutos", 1440.0),
        ("night nights noite noites morning mornings manha manhas evening evenings bedtime", 1.0),
    ])
});

/// Times a day that one of something in a period of this name makes.
pub(super) fn period_per_day(word: &str) -> Option<f64> {
    PERIODS.get(word).copied()
}
