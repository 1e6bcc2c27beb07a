use std::fs;

use crate::kit::Home;

/// Goal: a key is shown once and kept nowhere; a revoked one stays in the list. Method: the three commands, and the file.
#[tokio::test]
async fn keys_are_shown_once() {
    let home = Home::new();
    let file = home.path("keys.toml");
    let file = file.to_str().unwrap();
    let add = [
        "keys",
        "--keys",
        file,
        "add",
        "robot",
        "--scope",
        "patient.identity",
        "--scope",
        "other",
    ];
    let made = home.run(&add).await.with(0, "");
    let key = made.out.strip_suffix('\n').unwrap();
    assert!(
        key.starts_with("cbk_") && key.len() == 47 && !key.contains(char::is_whitespace),
        "{}",
        key.len()
    );
    assert!(!made.err.contains(key));
    assert!(!fs::read_to_string(file).unwrap().contains(&key[4..]));

    home.run(&add).await.printing(2, "");
    home.run(&["keys", "list", "--keys", file])
        .await
        .printing(0, "robot\tvalid\tpatient.identity\tother\n");
    assert_eq!(
        home.run(&["keys", "--keys", file, "revoke", "robot"])
            .await
            .code,
        Some(0)
    );
    assert_eq!(
        home.run(&["keys", "--keys", file, "list"]).await.out,
        "robot\trevoked\tpatient.identity\tother\n"
    );
}

/// Goal: a key can be replaced without a gap: its holder has two for a while, and the list says until when and whose they are.
/// Method: a key that expires, another for the same holder, and the first revoked.
#[tokio::test]
async fn keys_expire_and_are_replaced() {
    let home = Home::new();
    let file = home.path("keys.toml");
    let keys = ["keys", "--keys", file.to_str().unwrap()];
    let run = async |more: &[&str]| home.run(&[&keys[..], more].concat()).await;
    let first = run(&["add", "robot", "--scope", "s", "--expires", "2099-12-31"]).await;
    let rotate = [
        "rotate",
        "robot",
        "robot-2",
        "--until",
        "2098-01-01T12:00:00Z",
    ];
    let second = run(&rotate).await;
    assert_eq!(
        (first.code, second.code),
        (Some(0), Some(0)),
        "{}",
        second.err
    );
    assert_ne!(first.out, second.out);
    run(&["list"]).await.printing(
        0,
        "robot\tvalid until 2098-01-01T12:00:00Z\ts\nrobot-2\tvalid as robot\ts\n",
    );
    assert_eq!(run(&["revoke", "robot"]).await.code, Some(0));
    run(&["list"])
        .await
        .printing(0, "robot\trevoked\ts\nrobot-2\tvalid as robot\ts\n");
    for (wrong, said) in [
        (&["rotate", "robot", "robot-3"][..], "no key of that name"),
        (&["rotate", "robot-2", "robot"], "already"),
        (
            &["add", "late", "--expires", "2001-01-01"],
            "not in the future",
        ),
        (&["add", "late", "--expires", "soon"], "2026-12-31"),
    ] {
        run(wrong).await.with(2, said);
    }
}

/// Goal: a key can be for one patient, which the list tells, and only by the option for it. Method: such a
/// key, one that replaces it, and mistakes.
#[tokio::test]
async fn keys_for_one_patient() {
    let home = Home::new();
    let file = home.path("keys.toml");
    let keys = ["keys", "--keys", file.to_str().unwrap()];
    let run = async |more: &[&str]| home.run(&[&keys[..], more].concat()).await;
    let add = [
        "add",
        "app",
        "--scope",
        "patient/hmcp:*",
        "--patient",
        "PT1",
    ];
    assert_eq!(run(&add).await.code, Some(0));
    assert_eq!(run(&["rotate", "app", "app-2"]).await.code, Some(0));
    run(&["list"]).await.printing(
        0,
        "app\tvalid for patient PT1\tpatient/hmcp:*\napp-2\tvalid as app for patient PT1\tpatient/hmcp:*\n",
    );
    for (wrong, said) in [
        (&["add", "b", "--scope", "patient:PT1"][..], "--patient"),
        (&["add", "b", "--patient", "PT1 PT2"], "a key's patient"),
        (&["add", "b", "--patient", ""], "a key's patient"),
    ] {
        run(wrong).await.with(2, said);
    }
}

/// Goal: mistakes are the user's, and say what to do. Method: rows.
#[tokio::test]
async fn mistakes_with_keys() {
    let home = Home::new();
    let file = home.path("keys.toml");
    let file = file.to_str().unwrap();
    assert_eq!(
        home.run(&["keys", "--keys", file, "add", "a"]).await.code,
        Some(0)
    );
    let none = home.write("none.toml", "[node]\nname = \"n\"\n");
    for (arguments, said) in [
        (&["keys", "list"][..], "--keys FILE"),
        (&["keys", "--topology", &none, "list"], "--keys FILE"),
        (
            &["keys", "--keys", file, "revoke", "b"],
            "no key of that name",
        ),
        (&["keys", "--keys", file, "add", "a b"], "letters, digits"),
        (
            &["keys", "--keys", file, "add", "b", "--scope", "two words"],
            "scopes",
        ),
    ] {
        assert_eq!(
            home.run(arguments).await.with(2, said).out,
            "",
            "{arguments:?}"
        );
    }
}
