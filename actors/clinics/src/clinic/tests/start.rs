use std::fs;
use std::path::Path;

use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::super::agent::ClinicBackend;
use super::super::config::ClinicConfig;
use super::super::config::ClinicError;
use super::super::messages::{CheckMedications, GetPatient};
use super::{Bench, anyone, one_patient, patient, seed, treating};

/// SQLite's default page size.
const PAGE_BYTES: usize = 4096;

async fn refusal(config: ClinicConfig) -> ClinicError {
    ClinicBackend::open(config).await.err().unwrap()
}

async fn patients(silo: &ClinicBackend) -> usize {
    silo.list_patients().await.unwrap().patients.len()
}

async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .connect()
        .await
        .unwrap()
}

async fn run(path: &Path, sql: &str) {
    let mut db = raw(path).await;
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut db)
        .await
        .unwrap();
    db.close().await.unwrap();
}

/// Goal: the first start fills the database, a later one leaves it. Method: another seed, then
/// none.
#[tokio::test]
async fn seed_is_read_once() {
    let bench = Bench::new();
    assert_eq!(patients(&bench.open(&one_patient()).await).await, 1);
    let other = seed(&[
        patient("CARD-007", "Angina", "x"),
        patient("CARD-008", "Angina", "x"),
    ]);
    let config = bench.config(&other);
    assert_eq!(
        patients(&ClinicBackend::open(config.clone()).await.unwrap()).await,
        1
    );
    fs::remove_file(&config.seed).unwrap();
    assert_eq!(
        patients(&ClinicBackend::open(config).await.unwrap()).await,
        1
    );
}

/// Goal: without its seed a first start says so and can be repeated. Method: delete the seed, start, put it back.
#[tokio::test]
async fn missing_seed_is_named_and_leaves_nothing() {
    let bench = Bench::new();
    let config = bench.config(&one_patient());
    fs::remove_file(&config.seed).unwrap();
    let error = refusal(config.clone()).await;
    assert!(
        matches!(&error, ClinicError::SeedUnreadable { path, .. } if *path == config.seed),
        "{error}"
    );
    assert_eq!(patients(&bench.open(&one_patient()).await).await, 1);
}

/// Goal: the file is private to its owner and in WAL mode. Method: look at rights and at the header.
#[cfg(unix)]
#[tokio::test]
async fn file_is_private_and_in_wal_mode() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let config = bench.config(&one_patient());
    let _silo = ClinicBackend::open(config.clone()).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&config.database), 0o600);
    assert_eq!(mode(config.database.parent().unwrap()), 0o700);
    // Bytes 18 and 19: file format versions, 2 for WAL (SQLite file format, section 1.3).
    assert_eq!(fs::read(&config.database).unwrap()[18..20], [2, 2]);
}

/// Goal: processes that start at once fill the file once. Method: eight openings of a new file, ten times.
#[tokio::test]
async fn simultaneous_first_starts_agree() {
    for _ in 0..10 {
        let bench = Bench::new();
        let config = bench.config(&one_patient());
        let openings = (0..8).map(|_| ClinicBackend::open(config.clone()));
        for silo in futures::future::join_all(openings).await {
            assert_eq!(patients(&silo.unwrap()).await, 1);
        }
    }
}

/// Goal: a damaged file is reported and left unchanged. Method: a file of text, a cut file, and
/// each page after the first overwritten in turn.
#[tokio::test]
async fn damage_is_told() {
    let bench = Bench::new();
    let config = bench.config(&one_patient());
    drop(ClinicBackend::open(config.clone()).await.unwrap());
    run(&config.database, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    let whole = fs::read(&config.database).unwrap();
    let mut files = vec![
        b"no database, but long enough to be taken for one at first".to_vec(),
        whole[..6000].to_vec(),
    ];
    for begin in (PAGE_BYTES..whole.len()).step_by(PAGE_BYTES) {
        let mut file = whole.clone();
        file[begin..begin + PAGE_BYTES].fill(0xa5);
        files.push(file);
    }
    assert!(files.len() > 8);
    for damaged in files {
        let bench = Bench::new();
        let config = bench.config(&one_patient());
        fs::create_dir_all(config.database.parent().unwrap()).unwrap();
        fs::write(&config.database, &damaged).unwrap();
        let error = refusal(config.clone()).await;
        assert!(matches!(error, ClinicError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("restore a backup"), "{error}");
        assert_eq!(fs::read(&config.database).unwrap(), damaged);
    }
}

/// Goal: another program's database is rejected unchanged. Method: a file with a foreign table.
#[tokio::test]
async fn foreign_database_is_refused_untouched() {
    let bench = Bench::new();
    let config = bench.config(&one_patient());
    fs::create_dir_all(config.database.parent().unwrap()).unwrap();
    run(&config.database, "CREATE TABLE bookmarks (url TEXT)").await;
    let before = fs::read(&config.database).unwrap();
    assert!(matches!(
        refusal(config.clone()).await,
        ClinicError::NotAClinic { .. }
    ));
    assert_eq!(fs::read(&config.database).unwrap(), before);
}

/// Goal: a clinic can't open another clinic's database. Method: the same file under another id.
/// Rows: C-32.
#[tokio::test]
async fn other_clinics_database_is_refused() {
    let bench = Bench::new();
    let mut config = bench.config(&one_patient());
    drop(ClinicBackend::open(config.clone()).await.unwrap());
    config.id = "clinic_b".into();
    let error = refusal(config).await;
    assert!(
        matches!(&error, ClinicError::OtherClinic { found, .. } if found == "clinic_a"),
        "{error}"
    );
}

/// Goal: a newer version's file is refused with both numbers. Method: raise the version of a file.
#[tokio::test]
async fn newer_schema_is_refused() {
    let bench = Bench::new();
    let config = bench.config(&one_patient());
    drop(ClinicBackend::open(config.clone()).await.unwrap());
    run(&config.database, "PRAGMA user_version = 2").await;
    assert!(matches!(
        refusal(config).await,
        ClinicError::NewerSchema {
            found: 2,
            known: 1,
            ..
        }
    ));
}

/// Goal: the error of a malformed seed has a position and no content. Method: wrong shapes in JSON
/// and TOML.
#[tokio::test]
async fn malformed_seed_is_located_without_patient_text() {
    let rows = [
        (
            "json",
            "{\n \"patients\": [{\"patient_id\": \"A-1\", \"name\": [\"Marta\"]}]}",
            2,
        ),
        ("json", "{\"patients\": [", 1),
        ("json", "{\"patients\": [],\n\"Marta\": 1}", 2),
        (
            "toml",
            "[[patients]]\npatient_id = \"A-1\"\nname = [\"Marta\"]\n",
            3,
        ),
        ("toml", "patients = [\n", 1),
    ];
    for (ending, text, line_expected) in rows {
        let bench = Bench::new();
        let mut config = bench.config(&one_patient());
        config.seed = bench.path("other").with_extension(ending);
        fs::write(&config.seed, text).unwrap();
        let error = refusal(config).await;
        assert!(
            matches!(error, ClinicError::SeedMalformed { line, .. } if line == line_expected),
            "{text}: {error}"
        );
        assert!(!format!("{error} {error:?}").contains("Marta"), "{error:?}");
    }
}

/// Goal: one bad record refuses the whole seed. Method: a good and a bad record; then the good one alone.
#[tokio::test]
async fn bad_record_refuses_the_seed() {
    let bench = Bench::new();
    let good = patient("CARD-001", "Angina", "x");
    let with = |key: &str, value: serde_json::Value| {
        let mut bad = patient("CARD-002", "Angina", "x");
        bad[key] = value;
        bad
    };
    let dose = |dose: f64| json!([{"name": "A", "dose": dose, "unit": "mg", "frequency": "daily", "route": "oral"}]);
    for bad in [
        with("patient_id", json!("card-001")),
        with("patient_id", json!("CARD 2")),
        with("patient_id", json!("")),
        with("condition", json!(" ")),
        with("medications", dose(0.0)),
        with("medications", dose(-5.0)),
    ] {
        let error = refusal(bench.config(&seed(&[good.clone(), bad.clone()]))).await;
        assert!(
            matches!(error, ClinicError::SeedRefused { index: 1, .. }),
            "{bad}: {error}"
        );
    }
    assert_eq!(patients(&bench.open(&seed(&[good])).await).await, 1);
}

/// Goal: a seed may be TOML. Method: one patient in TOML.
#[tokio::test]
async fn seed_may_be_toml() {
    let bench = Bench::new();
    let mut config = bench.config(&one_patient());
    config.seed = bench.path("seed.toml");
    fs::write(&config.seed, toml::to_string(&one_patient()).unwrap()).unwrap();
    let silo = ClinicBackend::open(config).await.unwrap();
    let message = CheckMedications {
        patient_id: "CARD-001".into(),
    };
    let medications = silo
        .check_medications(message, &anyone())
        .await
        .unwrap()
        .medications;
    assert_eq!(
        serde_json::to_value(&medications[0]).unwrap()["dose"],
        json!(0.125)
    );
}

/// Goal: reads run beside each other and answers don't mix. Method: 200 reads of 20 patients at the same time.
#[tokio::test]
async fn reads_run_beside_each_other() {
    let bench = Bench::new();
    let records: Vec<_> = (0..20)
        .map(|i| patient(&format!("CARD-{i:03}"), &format!("Condition {i}"), "x"))
        .collect();
    let silo = bench.open(&seed(&records)).await;
    let reads = (0..200).map(|i| {
        let silo = &silo;
        async move {
            let id = format!("CARD-{:03}", i % 20);
            let file = silo
                .get_patient(
                    GetPatient {
                        patient_id: id.clone(),
                    },
                    &treating(),
                )
                .await
                .unwrap();
            assert_eq!(
                (file.patient.patient_id, file.patient.condition),
                (id, format!("Condition {}", i % 20))
            );
        }
    });
    futures::future::join_all(reads).await;
}
