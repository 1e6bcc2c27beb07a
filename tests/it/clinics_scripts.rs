use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use tokio::process::Command;

use crate::kit::{Home, ended, example, soon};

/// Ports of the example files.
const PORTS: [&str; 3] = ["8001", "8002", "8003"];

/// Copies the folder of examples, with free ports in place of the declared ones, and a `.env`.
fn copy_examples(home: &Home) -> String {
    let folder = home.path("clinics");
    fs::create_dir(&folder).unwrap();
    let held: Vec<TcpListener> = PORTS
        .iter()
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports = held
        .iter()
        .map(|port| port.local_addr().unwrap().port().to_string());
    let ports: Vec<String> = ports.collect();
    for entry in fs::read_dir(example("")).unwrap() {
        let from = entry.unwrap().path();
        if !from.is_file() {
            continue;
        }
        let mut text = fs::read_to_string(&from).unwrap();
        if from.extension().is_some_and(|ending| ending == "toml") {
            for (declared, port) in PORTS.iter().zip(&ports) {
                text = text.replace(declared, port);
            }
        }
        let to = folder.join(from.file_name().unwrap());
        fs::write(&to, text).unwrap();
        fs::set_permissions(&to, fs::metadata(&from).unwrap().permissions()).unwrap();
    }
    let settings = fs::read_to_string(folder.join(".env.example")).unwrap();
    let program = format!("CALLBOARD=\"{}\"", env!("CARGO_BIN_EXE_callboard"));
    assert!(settings.contains("CALLBOARD=callboard\n"));
    fs::write(
        folder.join(".env"),
        settings.replace("CALLBOARD=callboard", &program),
    )
    .unwrap();
    folder.to_str().unwrap().to_owned()
}

fn script(home: &Home, folder: &str, name: &str) -> Command {
    let mut command = Command::new(format!("{folder}/{name}"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path(""))
        .env("TMPDIR", home.path("tmp"))
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Goal: a new user starts the clinics with one script, tests them with another, and ends them with a signal. Method: the
/// scripts of a copied folder with its `.env`, on free ports; after the end the clinics don't answer.
/// Rows: C-41.
#[tokio::test]
async fn clinics_start_answer_and_end() {
    let home = Home::new();
    let folder = copy_examples(&home);
    let mode = fs::metadata(format!("{folder}/start_clinics.sh"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0o111, "it can be run");
    let mut clinics = script(&home, &folder, "start_clinics.sh").spawn().unwrap();
    let tested = ended(&mut script(&home, &folder, "smoke_test.sh"), None).await;
    assert_eq!(tested.code, Some(0), "{tested:?}");
    assert_eq!(tested.out.matches("ok: ").count(), 4, "{tested:?}");
    let id = clinics.id().unwrap().to_string();
    // A shell can't trap the signal of Ctrl-C where the test itself was started with it ignored.
    let kill = Command::new("kill")
        .args(["-TERM", &id])
        .status()
        .await
        .unwrap();
    assert!(kill.success());
    let status = soon("the end of the clinics", clinics.wait())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(0));
    let mut again = script(&home, &folder, "smoke_test.sh");
    // One that is down is named; the script's retries are for clinics that start.
    let text = fs::read_to_string(format!("{folder}/smoke_test.sh")).unwrap();
    fs::write(
        format!("{folder}/smoke_test.sh"),
        text.replace("--retry 20", "--retry 0"),
    )
    .unwrap();
    let down = ended(&mut again, None).await;
    assert!(
        down.code != Some(0) && !down.out.contains("ok: "),
        "{down:?}"
    );
}
