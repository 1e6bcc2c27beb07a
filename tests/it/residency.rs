use std::fs;

use walkdir::WalkDir;

use crate::kit::Home;
use crate::kit::clinics::{Served, host, identities};

/// Goal: nothing that a clinic answered is kept or logged, by the orchestrator or by the clinic's log (technical
/// blueprint, section 5). Method: a question whose answer holds identities, all logs at their loudest; then a search of
/// standard error and of every file of the orchestrator's home, for every identity of the seed, the record's clinical
/// words, and the question.
/// Rows: C-3, C-33, X-41.
#[tokio::test]
async fn answers_leave_no_trace() {
    let (home, clinic_home) = (Home::new(), Home::new());
    let clinic = Served::start(
        &clinic_home,
        &["example:cardiology", "--free-ports", "--log", "trace"],
    )
    .await;
    let topology = home.write("host.toml", &host("host.toml", &[&clinic.url]));
    let mut asked = Vec::new();
    for id in ["CARD-001", "CARD-002", "CARD-003"] {
        let question = format!("Show patient {id}");
        let arguments = [
            "ask",
            &question,
            "--purpose",
            "treatment",
            "--json",
            "--log",
            "trace",
            "--topology",
            &topology,
        ];
        asked.push(home.run(&arguments).await);
    }
    let identities = identities("cardiology");
    let shown = identities
        .iter()
        .filter(|identity| asked.iter().any(|ended| ended.out.contains(*identity)))
        .count();
    assert!(
        shown >= 9,
        "the answers must hold identities for this test to say anything: {shown}"
    );

    let clinic_log = clinic.end().await.err;
    let mut written: Vec<(String, String)> = vec![("the clinic's log".into(), clinic_log)];
    for ended in asked {
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("DEBUG"), "the log isn't loud");
        written.push(("the orchestrator's log".into(), ended.err));
    }
    for entry in WalkDir::new(home.path("")) {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            let text = String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned();
            written.push((entry.path().display().to_string(), text));
        }
    }
    let private = ["Losartan", "Home readings", "Show patient", "CARD-00"].map(str::to_owned);
    for (place, text) in written {
        let words = identities
            .iter()
            .chain(private.iter().filter(|_| !place.ends_with("host.toml")));
        for word in words {
            assert!(!text.contains(word), "{word:?} is in {place}");
        }
    }
}
