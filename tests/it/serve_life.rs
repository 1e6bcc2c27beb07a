use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::clinics::Served;
use crate::kit::gateway::{self, MCP, NODE, Session};
use crate::kit::{Home, example, soon, until};

/// Offset of SQLite's `user_version`: four bytes, big-endian (database file format, section
/// 1.3.16).
const USER_VERSION_OFFSET: usize = 60;

/// A topology file in `home` with one clinic on this address, and its seed.
fn clinic_file(home: &Home, bind: &str) -> String {
    fs::copy(example("neurology.json"), home.path("neurology.json")).unwrap();
    let text = fs::read_to_string(example("neurology.toml")).unwrap();
    home.write("clinic.toml", &text.replace("127.0.0.1:8003", bind))
}

/// Goal: data outlives the process, and the seed is read once. Method: two starts on one state, the second without the
/// seed's records; a third without the state.
#[tokio::test]
async fn a_second_start_keeps_the_data() {
    let home = Home::new();
    let file = clinic_file(&home, "127.0.0.1:0");
    let first = Served::start(&home, &[&file, "--state", "state"]).await;
    let patients = first.call("list_patients", json!({})).await["result"].clone();
    assert!(patients["patients"].as_array().unwrap().len() > 1);
    assert_eq!(first.end().await.code, Some(0));
    assert!(home.path("state/data/neurology.sqlite").is_file());

    let mut seed: Value =
        serde_json::from_str(&fs::read_to_string(example("neurology.json")).unwrap()).unwrap();
    seed["patients"].as_array_mut().unwrap().truncate(1);
    seed["patients"][0]["patient_id"] = "NEUR-900".into();
    home.write("neurology.json", &seed.to_string());
    let second = Served::start(&home, &[&file, "--state", "state"]).await;
    assert_eq!(
        second.call("list_patients", json!({})).await["result"],
        patients
    );
    assert_eq!(second.end().await.code, Some(0));

    let third = Served::start(&home, &[&file, "--state", "other"]).await;
    let fresh = third.call("list_patients", json!({})).await["result"]["patients"].clone();
    assert_eq!(
        fresh,
        json!([{"patient_id": "NEUR-900", "condition": "Migraine"}])
    );
    assert_eq!(third.end().await.code, Some(0));
}

/// Goal: data also outlives a process that is killed. Method: SIGKILL, then a second start.
#[tokio::test]
async fn a_killed_clinic_starts_again() {
    let home = Home::new();
    let file = clinic_file(&home, "127.0.0.1:0");
    let first = Served::start(&home, &[&file]).await;
    let patients = first.call("list_patients", json!({})).await["result"].clone();
    first.running.signal("KILL").await;
    assert_eq!(first.running.finished().await.code, None);
    let second = Served::start(&home, &[&file]).await;
    assert_eq!(
        second.call("list_patients", json!({})).await["result"],
        patients
    );
    assert_eq!(second.end().await.code, Some(0));
}

/// Goal: SIGTERM takes no new work and finishes what it has. Method: half a request, SIGTERM, a refused connection, the
/// other half; its answer, then the exit code.
#[tokio::test]
async fn terminated_it_drains() {
    let home = Home::new();
    let clinic = Served::example(&home, "neurology").await;
    let address = clinic
        .url
        .trim_start_matches("http://")
        .trim_end_matches("/mcp")
        .to_owned();
    let body =
        r#"{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"list_patients"}}"#;
    let (begin, rest) = body.split_at(20);
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{begin}",
        body.len()
    );
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // Whatever is answered now came after the half: it has been read.
    assert!(clinic.call("list_patients", json!({})).await["result"].is_object());
    clinic.running.signal("TERM").await;
    let refused = async { while TcpStream::connect(&address).await.is_ok() {} };
    soon("a refused connection", refused).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon("the last answer", stream.read_to_string(&mut answer))
        .await
        .unwrap();
    let is_last = answer.contains(r#""id":"last","result":{"patients""#);
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && is_last,
        "{answer}"
    );
    clinic.running.finished().await.quiet(0);
    assert_eq!(home.left_behind(), 0);
}

/// Goal: SIGTERM doesn't wait for streams that never end by themselves. Method: a session with an
/// open GET stream, and one over HTTP+SSE; both streams end in order, and the process ends before
/// the time that requests have to complete (5 s).
#[tokio::test]
async fn open_streams_dont_delay_the_end() {
    const DRAIN_MIN: Duration = Duration::from_secs(4);
    let home = Home::new();
    let topology = format!(
        "{NODE}{}{MCP}compat = [\"sse\"]\n",
        gateway::script(&home, "a", "a")
    );
    let (running, listening) = gateway::started(&home, &topology).await;
    let url = &listening[0].1;
    let mut stream = Session::begin(url).await.listen().await;
    let sse = reqwest::Client::new()
        .get(url.replace("/mcp", "/sse"))
        .header("accept", "text/event-stream");
    let mut sse = soon("a stream", sse.send()).await.unwrap();
    assert!(sse.chunk().await.unwrap().is_some());
    let began = Instant::now();
    running.signal("TERM").await;
    for stream in [&mut stream, &mut sse] {
        let read = async { while stream.chunk().await.unwrap().is_some() {} };
        soon("the end of a stream", read).await;
    }
    running.finished().await.quiet(0);
    let took = began.elapsed();
    assert!(took < DRAIN_MIN, "{took:?}");
    home.swept().await;
}

/// Goal: a mistake in a topology or a state is one clear line, never a panic. Method: rows of edits of an example.
#[tokio::test]
async fn mistakes_are_one_line() {
    let home = Home::new();
    let file = clinic_file(&home, "127.0.0.1:0");
    let good = fs::read_to_string(&file).unwrap();
    let agent = good.split_once("[[agent]]").unwrap().1;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let edit = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    let rows = [
        (
            format!("{good}\n[[agent]]{agent}"),
            2,
            "two agents are called clinic_c",
        ),
        (
            edit("agent = \"clinic_c\"", "agent = \"clinic_z\""),
            2,
            "is for agent clinic_z, which isn't declared",
        ),
        (edit("127.0.0.1:0", "127.0.0.1:99999"), 2, "line"),
        (edit("127.0.0.1:0", "0.0.0.0:0"), 2, "0.0.0.0"),
        (
            edit(
                "compat = [\"bare\"]",
                "dialect = \"mcp\"\ncompat = [\"baroque\"]",
            ),
            2,
            "baroque",
        ),
        (edit("kind = \"clinic\"", "kind = \"clinik\""), 2, "clinik"),
        (
            edit("specialty = \"neurology\"", "speciality = \"neurology\""),
            2,
            "speciality",
        ),
        (
            edit("notes = \"clinical\"", "notes = \"secret\""),
            2,
            "secret",
        ),
        (
            edit("notes = \"clinical\"", "shoe_size = \"clinical\""),
            2,
            "shoe_size",
        ),
        (edit("name = \"clinic_c\"", ""), 2, "name"),
        (
            edit("seed = \"neurology.json\"", "seed = \"nowhere.json\""),
            4,
            "nowhere.json",
        ),
        (edit("127.0.0.1:0", &taken), 4, "failed to listen on"),
    ];
    for (row, (text, code, wanted)) in rows.into_iter().enumerate() {
        let file = home.write("edited.toml", &text);
        // A state each: where there is a database the seed isn't read.
        let ended = home
            .run(&["serve", &file, "--state", &format!("state-{row}")])
            .await
            .printing(code, "");
        assert!(
            ended.err.starts_with("callboard: ") && ended.err.contains(wanted),
            "{wanted}: {}",
            ended.err
        );
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    let host = example("host.toml");
    let ended = home
        .run(&["serve", host.to_str().unwrap()])
        .await
        .with(2, "");
    assert!(
        ended.err.contains("nothing to serve") && ended.err.lines().count() == 1,
        "{}",
        ended.err
    );
    home.run(&["serve", "example:astrology"])
        .await
        .with(2, "cardiology, dermatology, neurology");
}

/// Goal: a state that isn't ours to touch is refused untouched. Method: a database of a newer version, a damaged one,
/// one of another clinic, and a file where a folder should be.
#[tokio::test]
async fn foreign_states_are_refused() {
    let home = Home::new();
    let file = clinic_file(&home, "127.0.0.1:0");
    assert_eq!(
        Served::start(&home, &[&file]).await.end().await.code,
        Some(0)
    );
    let database = home.path("data/neurology.sqlite");
    let ours = fs::read(&database).unwrap();
    let mut newer = ours.clone();
    newer[USER_VERSION_OFFSET..USER_VERSION_OFFSET + 4].copy_from_slice(&9_999_u32.to_be_bytes());
    let other = fs::read_to_string(&file)
        .unwrap()
        .replace("clinic_c", "clinic_d");
    let other = home.write("other.toml", &other);
    let rows = [
        (&file, newer, "version 9999, this program knows up to"),
        (&file, b"not a database".repeat(1_000), "damaged"),
        (
            &other,
            ours,
            "belongs to the clinic `clinic_c`, not to `clinic_d`",
        ),
    ];
    for (topology, bytes, wanted) in rows {
        fs::write(&database, &bytes).unwrap();
        let ended = home.run(&["serve", topology]).await;
        assert_eq!(
            (ended.code, ended.err.lines().count()),
            (Some(4), 1),
            "{wanted}: {}",
            ended.err
        );
        assert!(ended.err.contains(wanted), "{wanted}: {}", ended.err);
        assert!(
            fs::read(&database).unwrap() == bytes,
            "{wanted}: the file was touched"
        );
    }
    home.write("file", "");
    let ended = home.run(&["serve", &file, "--state", "file"]).await;
    assert_eq!(
        (ended.code, ended.err.lines().count()),
        (Some(4), 1),
        "{}",
        ended.err
    );
}

/// Goal: no program of an upstream outlives a gateway that is killed, nor do those that it starts,
/// though they read no standard input and ignore SIGTERM. Method: five that only sleep, each with
/// two of its own; kill -9.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn children_end_with_a_killed_gateway() {
    const CHILDREN: usize = 5;
    const CHILDREN_END: Duration = Duration::from_secs(2);
    let home = Home::new();
    let upstreams: String = (0..CHILDREN)
        .map(|n| {
            format!(
                "[[upstream]]\nid = \"s{n}\"\nera = \"legacy\"\nstart = \"boot\"\n\
                 command = [\"sh\", \"-c\", \"trap '' TERM; sleep 1000 & sleep 1000 & exec sleep 1000\"]\n"
            )
        })
        .collect();
    let (running, _) = gateway::started(&home, &format!("{NODE}{upstreams}{MCP}")).await;
    until("all children", || {
        home.processes().len() == 3 * CHILDREN + 1
    })
    .await;
    running.signal("KILL").await;
    assert_eq!(running.finished().await.code, None);
    let began = Instant::now();
    until("the end of all processes", || home.processes().is_empty()).await;
    assert!(began.elapsed() < CHILDREN_END, "{:?}", began.elapsed());
}

/// Goal: a program that is started by `exec-child` replaces it, isn't run for a parent that has
/// ended, and if it can't be started the exit code and the message say so. Method: this process and
/// another as the parent; a missing program; as a server, also a script without its interpreter;
/// with a variable in the environment that isn't Unicode.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn exec_child_replaces_itself() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    let home = Home::new();
    let this = std::process::id().to_string();
    let run = async |parent: &str, words: &[&str]| {
        home.run(&[&["exec-child", parent, "--"], words].concat())
            .await
    };
    let told = run(
        &this,
        &["sh", "-c", "echo $1 --log; exit 7", "sh", "--help"],
    )
    .await;
    told.printing(7, "--help --log\n");
    run("1", &["touch", "made"])
        .await
        .with(127, "failed to start touch: its parent has ended");
    assert!(!home.path("made").exists());
    run(&this, &["/nowhere/server"]).await.with(
        127,
        "failed to start /nowhere/server: No such file or directory",
    );
    // A variable that callboard would refuse is the program's own.
    let mut own = home.callboard(&["exec-child", &this, "--", "sh", "-c", "exit 7"]);
    own.env("CALLBOARD_LOG", OsStr::from_bytes(b"\xff"));
    assert_eq!(own.status().await.unwrap().code(), Some(7));
    let missing = home.run(&["mcp", "list", "/nowhere/server"]).await;
    missing.with(4, "can't be started: No such file or directory");
    let script = home.write("script", "#!/no/such\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let unusable = home.run(&["mcp", "list", &script]).await;
    unusable.with(4, "can't be started: No such file or directory");
}
