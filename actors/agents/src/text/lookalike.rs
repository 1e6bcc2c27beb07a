use std::collections::HashMap;
use std::sync::LazyLock;

/// Latin letters, each with the letters of other scripts that are drawn like it (Unicode TR 39, the common ones).
const DRAWN_ALIKE: &str = "aаαɑ AАΑᎪ bвβЬь BВΒᏴ cсϲ CСϹᏟ dԁɗ DԀᎠ eеεҽ EЕΕᎬ fғ FϜ gɡց GᏀ hһнհ HҺНΗᎻ iіιıɩᎥӏ \
    IІΙӀ jјϳ JЈ kкκ KКΚᏦ lⅼł LᏞʟŁ mм MМΜᎷ nոп NΝ oоοօσø OОΟØ pрρ PРΡᏢ qԛ QԚ rг RʀᏒ \
    sѕʂß SЅᏚ tтτ TТΤᎢ uυսц vνѵ VᏙ wԝѡω WᎳ xхχ XХΧ yуγү YУΥ zᴢ ZΖᏃ";

static LATIN: LazyLock<HashMap<char, char>> = LazyLock::new(|| {
    let others = |row: &'static str| row.chars().skip(1).zip(row.chars().take(1).cycle());
    DRAWN_ALIKE.split_ascii_whitespace().flat_map(others).collect()
});

/// The Latin letter that a letter of another script is drawn like; case is kept.
pub(crate) fn lookalike(c: char) -> Option<char> {
    LATIN.get(&c).copied()
}
