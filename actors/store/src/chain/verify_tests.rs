use std::time::{Duration, UNIX_EPOCH};

use callboard_message::{CallId, Principal};
use callboard_runtime::AuditEntry;
use proptest::prelude::*;

use super::super::checkpoint::AuditKey;
use super::super::entry_line::{EntryPosition, format_line};
use super::*;

/// Number of entries of the valid chain, with a checkpoint at every third.
const ENTRIES: u64 = 10;

/// Chain as a store holds it; the tests manipulate it.
struct Kept {
    key: AuditKey,
    rows: Vec<AuditRow>,
    checkpoints: BTreeMap<u64, Checkpoint>,
    counted: u64,
    /// Lines of the anchor, public keys.
    anchor: String,
    keys: String,
}

fn row(number: u64, before: &ChainHash) -> AuditRow {
    let at = UNIX_EPOCH + Duration::from_millis(1_000 + number);
    // The eighth records the removal of the first six, which one test does.
    let event = if number == 8 { "audit.cut" } else { "message" };
    let entry = AuditEntry {
        at,
        ..AuditEntry::new(event)
    }
    .with_agent(format!("agent {number}"));
    let entry = entry
        .with_principal(&Principal::agent("p"))
        .with_call(CallId::generate())
        .with_detail("n", number);
    let entry = if number == 8 {
        entry.with_detail("chain", "c").with_detail("up_to", 6_u64)
    } else {
        entry
    };
    let line = format_line(
        &entry,
        EntryPosition {
            chain: "c",
            number,
            run: "r",
        },
    )
    .unwrap();
    AuditRow {
        number,
        at_ms: 1_000 + i64::try_from(number).unwrap(),
        event: event.into(),
        agent: entry.agent,
        principal: Some("p".into()),
        call_id: entry.call.map(|call| call.to_string()),
        class: "internal".into(),
        hash: chain_hash(before, &line).to_vec(),
        line,
    }
}

impl Kept {
    fn good() -> Self {
        let key = AuditKey::generate().unwrap();
        let mut kept = Self {
            keys: PublicKeys::line(key.public()),
            rows: Vec::new(),
            checkpoints: BTreeMap::new(),
            counted: ENTRIES,
            anchor: String::new(),
            key,
        };
        let mut hash = GENESIS_HASH;
        for number in 1..=ENTRIES {
            let row = row(number, &hash);
            hash = row.hash.as_slice().try_into().unwrap();
            kept.rows.push(row);
            if number % 3 == 0 {
                let checkpoint = Checkpoint::sign("c", number, &hash, 5_000, &kept.key);
                kept.anchor += &format!("{}\n", checkpoint.anchor_line());
                kept.checkpoints.insert(number, checkpoint);
            }
        }
        kept
    }

    fn at(&mut self, number: usize) -> &mut AuditRow {
        &mut self.rows[number - 1]
    }

    /// Rehashes all entries from a number on, as an attacker without the key would.
    fn rehash(&mut self, from: u64) {
        let mut hash = GENESIS_HASH;
        for row in &mut self.rows {
            if row.number >= from {
                row.hash = chain_hash(&hash, &row.line).to_vec();
            }
            hash = row.hash.as_slice().try_into().unwrap();
        }
    }

    fn report(&self, rows_a_page: usize) -> ChainReport {
        let keys = PublicKeys::parse(&self.keys);
        let anchor = Anchor::parse(&self.anchor, &keys);
        let ends = ChainBounds {
            counted: self.counted,
            first: self.rows.first().map_or(0, |row| row.number),
            last: self.rows.last().map_or(0, |row| row.number),
            base: self.checkpoints.values().next().cloned(),
            last_checkpoint: self.checkpoints.keys().copied().max().unwrap_or_default(),
        };
        let mut check = ChainVerifier::begin("c", ends, &keys, &anchor);
        for page in self.rows.chunks(rows_a_page) {
            if !check.check_page(page, &self.checkpoints) {
                break;
            }
        }
        verify_cuts(vec![check.finish()], None).remove(0)
    }

    fn fault(&self) -> Option<AuditFault> {
        let report = self.report(4);
        assert_eq!(report, self.report(1), "pages make a difference");
        report.fault
    }
}

fn attacked(attack: impl FnOnce(&mut Kept)) -> Option<AuditFault> {
    let mut kept = Kept::good();
    attack(&mut kept);
    kept.fault()
}

fn changed(number: u64, what: &'static str) -> Option<AuditFault> {
    Some(AuditFault::Changed { number, what })
}

const HASHED: &str = "its hash doesn't match its text";
const BESIDE: &str = "its columns don't match its text";

/// Goal: a valid chain passes, whole and after its beginning was removed. Method: the valid one;
/// its first six removed with the checkpoints before the one that stays.
#[test]
fn good_chains_are_good() {
    let mut kept = Kept::good();
    let told = "ok c 1..10 entries, 3 checkpoints, signed up to 9";
    assert_eq!(kept.report(3).to_string(), told);
    kept.rows.drain(..6);
    kept.checkpoints.remove(&3);
    assert_eq!(
        kept.report(3).to_string(),
        "ok c 7..10 entries, 2 checkpoints, signed up to 9"
    );

    let empty = Kept {
        rows: vec![],
        checkpoints: BTreeMap::new(),
        counted: 0,
        anchor: String::new(),
        ..Kept::good()
    };
    assert_eq!(empty.fault(), None);
}

/// Goal: a change of any member is detected, in the text and in the columns. Method: change one
/// after another in the fifth.
#[test]
fn changes_are_found() {
    let texts = [
        "agent 5",
        "\"n\":5",
        "\"id\":\"p\"",
        "internal",
        "message",
        "\"run\":\"r\"",
        "1005",
        "\"v\":1",
    ];
    for (at, text) in texts.iter().enumerate() {
        let with = [
            "agent 6",
            "\"n\":6",
            "\"id\":\"q\"",
            "public",
            "massage",
            "\"run\":\"s\"",
            "1006",
            "\"v\":2",
        ][at];
        let fault = attacked(|kept| kept.at(5).line = kept.at(5).line.replace(text, with));
        assert_eq!(fault, changed(5, HASHED), "{text}");
    }
    assert_eq!(attacked(|kept| kept.at(5).hash[0] ^= 1), changed(5, HASHED));
    assert_eq!(attacked(|kept| kept.at(5).hash.clear()), changed(5, HASHED));
    let beside: [fn(&mut AuditRow); 6] = [
        |row| row.agent = None,
        |row| row.principal = Some("q".into()),
        |row| row.call_id = None,
        |row| row.class = "public".into(),
        |row| row.event = "other".into(),
        |row| row.at_ms += 1,
    ];
    for change in beside {
        assert_eq!(attacked(|kept| change(kept.at(5))), changed(5, BESIDE));
    }
    assert_eq!(
        attacked(|kept| kept.at(5).line = "{}".into()),
        changed(5, "its text isn't an entry")
    );
}

/// Goal: a rehashed change is detected at the next hash or checkpoint that doesn't match. Method:
/// rehash only the changed entry; everything after it; sign with another key.
#[test]
fn rewriting_needs_the_key() {
    let change = |kept: &mut Kept| kept.at(5).line = kept.at(5).line.replace("\"n\":5", "\"n\":6");
    let one = attacked(|kept| {
        change(kept);
        let hash: ChainHash = kept.at(4).hash.as_slice().try_into().unwrap();
        kept.at(5).hash = chain_hash(&hash, &kept.at(5).line.clone()).to_vec();
    });
    assert_eq!(one, changed(6, HASHED));
    let all = |kept: &mut Kept| {
        change(kept);
        kept.rehash(5);
    };
    assert_eq!(attacked(all), Some(AuditFault::BadCheckpoint { number: 6 }));
    // Without the checkpoints, the anchor detects it.
    let unsigned = |kept: &mut Kept| {
        all(kept);
        kept.checkpoints.retain(|number, _| *number < 5);
    };
    assert_eq!(
        attacked(unsigned),
        Some(AuditFault::NotAnchored { number: 6 })
    );
    let foreign = |kept: &mut Kept, name: Option<&str>| {
        all(kept);
        let other = AuditKey::generate().unwrap();
        for number in [6, 9] {
            let hash: ChainHash = kept.at(number).hash.as_slice().try_into().unwrap();
            let mut checkpoint = Checkpoint::sign("c", number as u64, &hash, 5_000, &other);
            checkpoint.key_id = name.unwrap_or(other.id()).to_owned();
            kept.checkpoints.insert(number as u64, checkpoint);
        }
    };
    let fault = attacked(|kept| foreign(kept, None));
    assert!(
        matches!(fault, Some(AuditFault::UnknownKey { number: 6, .. })),
        "{fault:?}"
    );
    let named = attacked(|kept| {
        let id = kept.key.id().to_owned();
        foreign(kept, Some(&id));
    });
    assert_eq!(named, Some(AuditFault::BadCheckpoint { number: 6 }));
}

/// Goal: two hashes of one entry in the anchor are reported, with both, also if the entry was removed after its
/// retention; a repeated line isn't. Method: repeat the anchor; add another hash of 6 and of 9; remove entries.
#[test]
fn forks_of_the_anchor_are_found() {
    let mut kept = Kept::good();
    kept.anchor = kept.anchor.repeat(2);
    assert_eq!(kept.fault(), None);

    for number in [9, 6] {
        let other = Checkpoint::sign("c", number, &[7; 32], 9_000, &kept.key);
        kept.anchor = format!("{}\n{}", other.anchor_line(), kept.anchor);
    }
    let forked = |kept: &Kept| match kept.fault() {
        Some(AuditFault::Forked { number, anchors }) => (number, anchors),
        other => panic!("{other:?}"),
    };
    let (number, anchors) = forked(&kept);
    let [first, second] = [[7_u8; 32].as_slice(), kept.at(6).hash.as_slice()].map(encode_hex);
    assert_eq!(number, 6);
    assert_eq!(
        anchors,
        [
            format!("{first} of 1970-01-01T00:00:09.000Z"),
            format!("{second} of 1970-01-01T00:00:05.000Z")
        ]
    );
    let told = kept.report(4).to_string();
    assert!(
        told.contains(&first)
            && told.contains(&second)
            && told.contains("anchor file from the time of the backup"),
        "{told}"
    );

    kept.rows.drain(..9);
    kept.checkpoints.retain(|number, _| *number == 9);
    assert_eq!(forked(&kept).0, 6);
}

/// Goal: a restored store that has continued is reported, with a remedy, also if both histories signed different entries.
/// Method: continue a copy of the first three with other entries, signed at 5 and 8; the anchor has both histories, 6 and 9
/// being those of the other one; end the copy before 9, and before 6.
#[test]
fn histories_without_a_common_number_differ() {
    let mut kept = Kept::good();
    for row in &mut kept.rows[3..] {
        row.line = row.line.replace("\"run\":\"r\"", "\"run\":\"s\"");
    }
    kept.rehash(4);
    kept.checkpoints.retain(|number, _| *number == 3);
    for number in [5, 8] {
        let hash: ChainHash = kept.rows[number - 1].hash.as_slice().try_into().unwrap();
        let number = number as u64;
        let checkpoint = Checkpoint::sign("c", number, &hash, 9_000, &kept.key);
        kept.anchor += &format!("{}\n", checkpoint.anchor_line());
        kept.checkpoints.insert(number, checkpoint);
    }
    for last in [10, 8] {
        kept.rows.truncate(last);
        kept.counted = last as u64;
        assert_eq!(kept.fault(), Some(AuditFault::NotAnchored { number: 6 }));
    }
    let told = kept.report(4).to_string();
    assert!(
        told.contains("if no restore is known")
            && told.contains("anchor file from the time of the backup"),
        "{told}"
    );

    kept.rows.truncate(5);
    kept.checkpoints.remove(&8);
    kept.counted = 5;
    let truncated = AuditFault::Truncated {
        last: 5,
        expected: 9,
    };
    assert_eq!(kept.fault(), Some(truncated));
}

/// Goal: missing entries are detected. Method: remove the first, one in the middle, the last with
/// and without the counters; all; the beginning up to a checkpoint, and past one.
#[test]
fn removals_are_found() {
    let missing = |number| Some(AuditFault::Missing { number });
    let remove = |number: usize| move |kept: &mut Kept| drop(kept.rows.remove(number - 1));
    assert_eq!(attacked(remove(1)), missing(1));
    assert_eq!(attacked(remove(5)), missing(5));
    let truncated = |last, expected| Some(AuditFault::Truncated { last, expected });
    assert_eq!(attacked(remove(10)), truncated(9, 10));
    let cut = |kept: &mut Kept, to: u64| {
        kept.rows.truncate(usize::try_from(to).unwrap());
        kept.counted = to;
    };
    assert_eq!(attacked(|kept| cut(kept, 8)), truncated(8, 9));
    let with_checkpoints = |kept: &mut Kept| {
        cut(kept, 8);
        kept.checkpoints.remove(&9);
    };
    assert_eq!(attacked(with_checkpoints), truncated(8, 9));
    let with_anchor = |kept: &mut Kept| {
        with_checkpoints(kept);
        kept.anchor.clear();
    };
    assert_eq!(
        attacked(with_anchor),
        None,
        "nothing tells of it: this is what the anchor is for"
    );
    assert_eq!(attacked(|kept| kept.rows.clear()), truncated(3, 10));
    let all = |kept: &mut Kept| {
        kept.rows.clear();
        kept.checkpoints.clear();
        kept.counted = 0;
    };
    assert_eq!(attacked(all), truncated(0, 9));
    // As by retention, but with its checkpoints left: the oldest covers entries before it, and no
    // more.
    assert_eq!(attacked(|kept| drop(kept.rows.drain(..9))), missing(4));
    let with_its_checkpoints = |kept: &mut Kept| {
        kept.rows.drain(..9);
        kept.checkpoints.retain(|number, _| *number == 9);
    };
    // No signed entry records the removal.
    assert_eq!(attacked(with_its_checkpoints), missing(1));
    let past_a_checkpoint = |kept: &mut Kept| drop(kept.rows.drain(..4));
    assert_eq!(attacked(past_a_checkpoint), missing(4));
}

/// Goal: reordered entries are detected at the first that was moved. Method: swap two texts, two
/// whole rows; insert one of another chain.
#[test]
fn reorders_are_found() {
    let moved = |number, says: &str| {
        Some(AuditFault::Moved {
            number,
            says: says.to_owned(),
        })
    };
    let texts = attacked(|kept| {
        let (fourth, seventh) = (kept.at(4).line.clone(), kept.at(7).line.clone());
        (kept.at(4).line, kept.at(7).line) = (seventh, fourth);
    });
    assert_eq!(texts, moved(4, "c:7"));
    let rows = attacked(|kept| {
        kept.rows.swap(3, 6);
        (kept.at(4).number, kept.at(7).number) = (4, 7);
    });
    assert_eq!(rows, moved(4, "c:7"));
    let foreign = attacked(|kept| {
        kept.at(4).line = kept
            .at(4)
            .line
            .replace("\"chain\":\"c\"", "\"chain\":\"d\"")
    });
    assert_eq!(foreign, moved(4, "d:4"));
}

/// Goal: checkpoints themselves are verified. Method: change each member of one; insert one of
/// another number.
#[test]
fn checkpoints_are_checked() {
    let bad = |number| Some(AuditFault::BadCheckpoint { number });
    let changes: [fn(&mut Checkpoint); 4] = [
        |c| c.hash[3] ^= 1,
        |c| c.at_ms += 1,
        |c| c.signature[9] ^= 1,
        |c| c.signature.clear(),
    ];
    for change in changes {
        assert_eq!(
            attacked(|kept| change(kept.checkpoints.get_mut(&6).unwrap())),
            bad(6)
        );
    }
    let other = attacked(|kept| {
        let third = kept.checkpoints[&3].clone();
        kept.checkpoints
            .insert(6, Checkpoint { number: 6, ..third });
    });
    assert_eq!(other, bad(6));
    let unknown = attacked(|kept| kept.keys.clear());
    assert!(
        matches!(unknown, Some(AuditFault::UnknownKey { number: 3, .. })),
        "{unknown:?}"
    );
    // The one after which a cut chain begins.
    let base = attacked(|kept| {
        kept.rows.drain(..3);
        kept.checkpoints.get_mut(&3).unwrap().hash[0] ^= 1;
    });
    assert_eq!(base, bad(3));
}

/// Goal: an entry added without the key is detected, or isn't covered by a signature. Method: add
/// one past the store's counter; one that is counted.
#[test]
fn additions_are_not_vouched_for() {
    let add = |kept: &mut Kept| {
        let before: ChainHash = kept.at(10).hash.as_slice().try_into().unwrap();
        kept.rows.push(row(11, &before));
    };
    assert_eq!(attacked(add), Some(AuditFault::Uncounted { number: 11 }));
    let mut kept = Kept::good();
    add(&mut kept);
    kept.counted = 11;
    let report = kept.report(100);
    assert_eq!(
        (report.fault, report.last, report.signed_up_to),
        (None, 11, 9)
    );
}

proptest! {
    /// Goal: no byte of a line can change undetected. Method: flip random bits of a random one.
    #[test]
    fn any_changed_byte_is_found(at in 0..10_usize, byte in 0..10_000_usize, bits in 1..128_u8) {
        let mut kept = Kept::good();
        let line = &mut kept.rows[at].line;
        let mut bytes = line.clone().into_bytes();
        let byte = byte % bytes.len();
        bytes[byte] ^= bits;
        // Flipped below the eighth bit, ASCII stays UTF-8.
        *line = String::from_utf8(bytes).unwrap();
        let number = match kept.fault() {
            Some(AuditFault::Changed { number, .. } | AuditFault::Moved { number, .. }) => number,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(number, at as u64 + 1);
    }
}
