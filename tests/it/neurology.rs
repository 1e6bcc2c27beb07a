use crate::kit::Home;
use crate::kit::clinics::{Served, host};
use crate::kit::example;

/// Goal: a third clinic is one registry entry and one topology file. Method: the files of `examples/clinics` as they
/// are (but for the ports), with the two-clinic host beside: it knows nothing of neurology.
/// Rows: C-9.
#[tokio::test]
async fn a_third_clinic_needs_no_code() {
    let homes = [Home::new(), Home::new(), Home::new()];
    let file = example("neurology.toml");
    let from_file = [file.to_str().unwrap(), "--free-ports", "--state", "state"];
    let (a, b, c) = tokio::join!(
        Served::example(&homes[0], "cardiology"),
        Served::example(&homes[1], "dermatology"),
        Served::start(&homes[2], &from_file),
    );
    let home = Home::new();
    let three = home.write(
        "three.toml",
        &host("host-with-neurology.toml", &[&a.url, &b.url, &c.url]),
    );
    let two = home.write("two.toml", &host("host.toml", &[&a.url, &b.url]));

    let question = "List all neurology patients and check dermatology patients with psoriasis";
    let answered = home
        .run(&["ask", question, "--topology", &three])
        .await
        .with(0, "");
    let steps = [
        "clinic_c (neurology): list_patients",
        "NEUR-001  Migraine",
        "DERM-001  Psoriasis",
        "Verdict  safe",
    ];
    answered.has(&steps);
    let by_id = home
        .run(&[
            "ask",
            "Quais medicamentos toma o paciente NEUR-001?",
            "--topology",
            &three,
        ])
        .await
        .with(0, "");
    assert!(
        by_id.out.contains("Sumatriptan") && !by_id.out.contains("clinic_a"),
        "{}",
        by_id.out
    );

    let unknown = home
        .run(&["ask", "List all neurology patients", "--topology", &two])
        .await
        .with(4, "");
    assert!(!unknown.out.contains("NEUR-"), "{}", unknown.out);
    for clinic in [a, b, c] {
        assert_eq!(clinic.end().await.code, Some(0));
    }
}
