//! Routing of labelled requests: `callboard eval routing`.

use serde_json::json;

use crate::kit::Home;

/// Share of each part that the rules have to get right, a little below what they do. The floors rise with them.
const FLOORS: [(&str, f64); 2] = [("dev", 0.75), ("heldout", 0.80)];
/// The same of worlds whose fields no rule names, of both parts together.
const FLOORS_ELSEWHERE: [(&str, f64); 4] = [
    ("bank", 0.90),
    ("museum", 0.83),
    ("shipyard", 0.92),
    ("vineyard", 0.90),
];

/// Goal: the rules lose nothing of what they reached, and a program can read it. Method: `--json`.
/// Rows: B-80.
#[actix_web::test]
async fn rules_route_what_they_should() {
    let home = Home::new();
    let run = home.run(&["eval", "routing", "--json"]).await.with(0, "");
    let report = run.json();
    assert_eq!(report["by"], "rules");
    for (part, floor) in FLOORS {
        let part = &report[part];
        assert_eq!(
            part["classes"],
            json!(["local", "remote", "reject", "clarify", "decompose"])
        );
        let rows = part["confusion"].as_array().unwrap();
        let counts = rows
            .iter()
            .flat_map(|row| row.as_array().unwrap())
            .map(|count| count.as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), part["n"].as_u64().unwrap());
        let (low, high) = (
            part["interval"][0].as_f64().unwrap(),
            part["interval"][1].as_f64().unwrap(),
        );
        let accuracy = part["accuracy"].as_f64().unwrap();
        assert!(
            low < accuracy && accuracy <= high,
            "{low} {accuracy} {high}"
        );
        assert!(accuracy >= floor, "{accuracy}: {}", run.out);
        assert_eq!(
            part["fallbacks"], 0,
            "rules are never unclear about where to"
        );
    }
    assert!(
        FLOORS
            .iter()
            .all(|(part, _)| report[part]["n"].as_u64().unwrap() >= 100)
    );
}

/// Goal: requests go where they should in worlds that no rule knows, by what agents say of themselves. Method: each world's requests.
#[actix_web::test]
async fn rules_route_in_unknown_worlds() {
    let home = Home::new();
    for (world, floor) in FLOORS_ELSEWHERE {
        let folder = format!(
            "{}/examples/eval/routing/{world}",
            env!("CARGO_MANIFEST_DIR")
        );
        let run = home
            .run(&["eval", "routing", "--json", "--dir", &folder])
            .await;
        let report = run.json();
        let count = |part: &str| report[part]["n"].as_f64().unwrap();
        let right = |part: &str| report[part]["accuracy"].as_f64().unwrap() * count(part);
        let share = (right("dev") + right("heldout")) / (count("dev") + count("heldout"));
        assert!(share >= floor, "{world}: {share}: {}", run.out);
    }
}

/// Goal: other requests can be measured, their mistakes are named, too few right ones fail, and what is held out isn't shown.
/// Method: a folder of our own with one right and one wrong label in each part, then a broken line.
/// Rows: C-43.
#[actix_web::test]
async fn own_requests_are_measured() {
    let home = Home::new();
    let world = include_str!("../../examples/eval/world.json");
    let right = r#"{"id":"a","text":"rain in Oslo tomorrow?","lang":"en","expect":"remote","target":"weather","from":"x"}"#;
    let wrong = r#"{"id":"b","text":"snow in Bergen tonight?","lang":"en","expect":"local","target":"echo","from":"x"}"#;
    home.write("world.json", world);
    home.write("routing_dev.jsonl", &format!("{right}\n{wrong}\n"));
    home.write("routing_heldout.jsonl", &format!("{right}\n{wrong}\n"));
    let measure = [
        "eval",
        "routing",
        "--dir",
        ".",
        "--failures",
        "--min",
        "0.6",
    ];
    let run = home.run(&measure).await.with(4, "");
    assert!(run.out.contains("50.0 % (1 of 2;"), "{}", run.out);
    assert!(
        run.out
            .contains("b: expected local echo, got remote weather"),
        "{}",
        run.out
    );
    assert_eq!(
        run.out.matches("snow in Bergen").count(),
        1,
        "of dev only: {}",
        run.out
    );
    let enough = home
        .run(&[
            "eval", "routing", "--dir", ".", "--min", "0.5", "--set", "dev",
        ])
        .await;
    assert_eq!(
        (enough.code, enough.out.contains("heldout")),
        (Some(0), false),
        "{}",
        enough.out
    );
    home.write("routing_dev.jsonl", &format!("{right}\n{{\n"));
    home.run(&["eval", "routing", "--dir", "."])
        .await
        .with(2, "routing_dev.jsonl, line 2: ");
    home.run(&["eval", "routing", "--by", "somebody"])
        .await
        .with(2, "--topology");
}
