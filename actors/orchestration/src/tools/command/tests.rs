use std::time::Instant;

use callboard_message::FailureKind;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn commands(allow: &[&str], home: &TempDir) -> CommandRunner {
    CommandRunner::open(CommandOptions::new(allow.iter().copied(), home.path())).unwrap()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs `command` and returns its text.
async fn told(commands: &CommandRunner, command: &[&str]) -> Result<String, Failure> {
    commands
        .run_to_end(commands.prepare(words(command), None)?)
        .await
        .map(|ran| ran.to_text())
}

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Goal: only allowed programs run, by their exact name or path. Method: similar names.
#[tokio::test]
async fn only_what_is_allowed_is_run() {
    let home = home();
    let commands = commands(&["echo", "/bin/ls"], &home);
    assert_eq!(told(&commands, &["echo", "hi"]).await.unwrap(), "hi\n");
    assert_eq!(told(&commands, &["/bin/ls"]).await.unwrap(), "");
    for no in ["ls", "/bin/../bin/ls", "Echo", "./echo", "echo ", "sh", ""] {
        assert_eq!(
            told(&commands, &[no]).await.unwrap_err().kind,
            FailureKind::Denied,
            "{no:?}"
        );
    }
    assert_eq!(
        told(&commands, &[]).await.unwrap_err().kind,
        FailureKind::InvalidInput
    );
}

/// Goal: invalid options are reported at start. Method: one of each kind.
#[test]
fn mistakes_are_told() {
    let home = home();
    let open = |allow: &[&str]| {
        CommandRunner::open(CommandOptions::new(allow.iter().copied(), home.path())).unwrap_err()
    };
    assert_eq!(open(&[]), CommandError::NothingAllowed);
    assert_eq!(
        open(&["no-such-program"]),
        CommandError::NotFound("no-such-program".into())
    );
    for no in ["bin/ls", "/etc/passwd", "/usr/bin", "ls -l", ""] {
        assert_eq!(open(&[no]), CommandError::InvalidProgram(no.into()));
    }
    let nowhere = CommandOptions::new(["ls"], home.path().join("no"));
    assert!(matches!(
        CommandRunner::open(nowhere.clone()),
        Err(CommandError::NotADirectory(_))
    ));
    assert_eq!(
        CommandRunner::open(CommandOptions {
            directory: None,
            ..nowhere
        })
        .unwrap_err(),
        CommandError::MissingDirectory
    );
}

/// Goal: there is no shell. Method: shell syntax is output unchanged.
#[tokio::test]
async fn metacharacters_are_text() {
    let home = home();
    let commands = commands(&["echo"], &home);
    let odd = "; rm -rf / && $(id) `id` | cat > x * ~ $HOME 'a' \"b\" \\n";
    assert_eq!(
        told(&commands, &["echo", odd]).await.unwrap(),
        format!("{odd}\n")
    );
    assert!(std::fs::read_dir(home.path()).unwrap().next().is_none());
}

/// Goal: programs get a minimal environment and the configured directory. Method: `env`, `pwd`, and
/// `cat` without input.
#[tokio::test]
async fn surroundings_are_bare() {
    let home = home();
    let commands = commands(&["env", "pwd", "cat"], &home);
    let env = told(&commands, &["env"]).await.unwrap();
    let mut names: Vec<_> = env
        .lines()
        .map(|line| line.split('=').next().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["LANG", "PATH"]);
    let here = home.path().canonicalize().unwrap();
    assert_eq!(
        told(&commands, &["pwd"]).await.unwrap().trim(),
        here.to_str().unwrap()
    );
    assert_eq!(
        told(&commands, &["cat"]).await.unwrap(),
        "",
        "its input is empty"
    );
    let fed = commands
        .prepare(words(&["cat"]), Some("given".into()))
        .unwrap();
    assert_eq!(commands.run_to_end(fed).await.unwrap().to_text(), "given");
}

/// Goal: every limit holds, and nothing is lost below it. Method: at the limit and one beyond.
#[tokio::test]
async fn limits_hold() {
    let home = home();
    let mut commands = commands(&["echo", "head", "sleep"], &home);
    commands.options.output_bytes_max = 10;
    let many = |n: usize| {
        let mut many = vec!["echo".to_owned()];
        many.resize(n + 1, String::new());
        commands.prepare(many, None)
    };
    assert!(many(COMMAND_ARGUMENTS_MAX_DEFAULT).is_ok());
    assert_eq!(
        many(COMMAND_ARGUMENTS_MAX_DEFAULT + 1).unwrap_err().kind,
        FailureKind::InvalidInput
    );
    let long = |n: usize| commands.prepare(vec!["echo".into(), "a".repeat(n)], None);
    assert!(long(COMMAND_BYTES_MAX - 4).is_ok());
    assert_eq!(
        long(COMMAND_BYTES_MAX - 3).unwrap_err().kind,
        FailureKind::InvalidInput
    );
    let fed = |n: usize| commands.prepare(words(&["echo"]), Some("a".repeat(n)));
    assert!(fed(COMMAND_INPUT_BYTES_MAX).is_ok());
    assert_eq!(
        fed(COMMAND_INPUT_BYTES_MAX + 1).unwrap_err().kind,
        FailureKind::InvalidInput
    );
    assert!(commands.prepare(words(&["echo", "a\0b"]), None).is_err());

    assert_eq!(
        told(&commands, &["echo", "123456789"]).await.unwrap(),
        "123456789\n"
    );
    let cut = told(&commands, &["echo", "1234567890"]).await.unwrap();
    assert!(
        cut.starts_with("1234567890\n[1 bytes more were left out]"),
        "{cut}"
    );
    // More than a pipe holds: the output is read to its end anyway.
    let much = told(&commands, &["head", "-c", "1000000", "/dev/zero"])
        .await
        .unwrap();
    assert!(much.contains("999990 bytes more"), "{much}");

    commands.options.timeout = Duration::from_millis(50);
    let began = Instant::now();
    assert_eq!(
        told(&commands, &["sleep", "60"]).await.unwrap_err().kind,
        FailureKind::TimedOut
    );
    assert!(began.elapsed() < Duration::from_secs(30));
}

/// Goal: exit code and error output are reported. Method: a program that fails.
#[tokio::test]
async fn failures_are_told() {
    let home = home();
    let commands = commands(&["ls", "false"], &home);
    assert_eq!(told(&commands, &["false"]).await.unwrap(), "exit code 1");
    let missing = told(&commands, &["ls", "nothing-here"]).await.unwrap();
    assert!(
        missing.starts_with("standard error:\n") && missing.ends_with("exit code 2"),
        "{missing}"
    );
}

/// Waits until no process has `mark` among its arguments.
async fn gone(mark: &str) {
    let lives = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines =
            all.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.any(|line| line.contains(mark))
    };
    timeout(Duration::from_secs(20), async {
        while lives() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

/// Goal: child processes end with the program: at its own end, at the time limit, and on
/// cancellation. Method: a shell (allowed here) that leaves a sleeper behind, found by its unusual
/// number of seconds.
#[tokio::test]
async fn children_of_children_die() {
    let home = home();
    let mut commands = commands(&["sh"], &home);
    let script = |mark: &str, then: &str| format!("sleep {mark} & echo begun; {then}");
    assert_eq!(
        told(&commands, &["sh", "-c", &script("86461.25", "exit 0")])
            .await
            .unwrap(),
        "begun\n"
    );
    gone("86461.25").await;
    commands.options.timeout = Duration::from_millis(300);
    assert!(
        told(&commands, &["sh", "-c", &script("86462.25", "wait")])
            .await
            .is_err()
    );
    gone("86462.25").await;
    commands.options.timeout = Duration::from_secs(60);
    let script = script("86463.25", "wait");
    let words = ["sh", "-c", &script];
    let given_up = told(&commands, &words);
    assert!(timeout(Duration::from_millis(300), given_up).await.is_err());
    gone("86463.25").await;
}

/// Goal: only the operator and principals with the scope run commands. Method: each kind of
/// principal.
#[test]
fn peers_run_nothing() {
    assert!(check_may_run(&Principal::local_operator()).is_ok());
    for kind in [
        PrincipalKind::Anonymous,
        PrincipalKind::Agent,
        PrincipalKind::ApiKey,
    ] {
        let peer = Principal {
            kind,
            ..Principal::local_operator()
        };
        assert_eq!(check_may_run(&peer).unwrap_err().kind, FailureKind::Denied);
        assert!(
            check_may_run(&Principal {
                scopes: vec!["execute_command".into()],
                ..peer.clone()
            })
            .is_ok()
        );
        assert!(
            check_may_run(&Principal {
                scopes: vec!["execute".into()],
                ..peer
            })
            .is_err()
        );
    }
}

/// Goal: a command line is split as a shell would split it. Method: rows of lines and words.
#[test]
fn quoted_as_in_a_shell() {
    for (line, expected) in [
        ("touch 'x y'", vec!["touch", "x y"]),
        ("touch \"x y\" z", vec!["touch", "x y", "z"]),
        ("  ls\t-l  ", vec!["ls", "-l"]),
        ("a'b c'\"d e\"f", vec!["ab cd ef"]),
        ("a '' \"\"", vec!["a", "", ""]),
        (r"touch x\ y \; \'", vec!["touch", "x y", ";", "'"]),
        (r#"echo "a\"b\\c\d\$e""#, vec!["echo", r#"a"b\c\d$e"#]),
        (
            r"echo '\n $(id) `id` ; * ~ #'",
            vec!["echo", r"\n $(id) `id` ; * ~ #"],
        ),
        ("echo 'a\nb'", vec!["echo", "a\nb"]),
        (
            "git log --format=%h a#b a~1 x=1",
            vec!["git", "log", "--format=%h", "a#b", "a~1", "x=1"],
        ),
        (
            "find . -exec x {} +",
            vec!["find", ".", "-exec", "x", "{}", "+"],
        ),
        ("", vec![]),
    ] {
        assert_eq!(split_command_line(line).unwrap(), expected, "{line}");
    }
}

/// Goal: a line with shell syntax is rejected as a whole, with the reason. Method: a line of each
/// kind.
#[test]
fn needs_a_shell() {
    for (line, named) in [
        ("touch a; touch b", "`;`"),
        ("cat a | wc", "`|`"),
        ("a && b", "`&`"),
        ("a || b", "`|`"),
        ("sleep 1 &", "`&`"),
        ("echo a > b", "`>`"),
        ("wc < a", "`<`"),
        ("echo `id`", "``"),
        ("echo $(id)", "`$`"),
        ("echo \"$HOME\"", "`$`"),
        ("echo \"`id`\"", "``"),
        ("ls *.rs", "`*`"),
        ("ls a?", "`?`"),
        ("ls [ab]", "`[`"),
        ("ls {a,b}", "`{`"),
        ("ls a{b,c}", "`{`"),
        ("ls {}}", "`}`"),
        ("(ls)", "`(`"),
        ("ls ~", "`~`"),
        ("ls # all", "`#`"),
        ("ls a\nls b", "a line break"),
        ("ls a\rls b", "a line break"),
        ("ls \\\n-l", "a line break"),
        ("ls \"a\\\nb\"", "a line break"),
        ("ls a\u{2028}b", "U+2028"),
        ("ls a\u{a0}b", "U+00A0"),
        ("ls a\u{b}b", "U+000B"),
        ("touch 'x y", "isn't closed"),
        ("touch \"x y", "isn't closed"),
        ("touch it's", "isn't closed"),
        ("touch x\\", "at its end"),
        ("touch “x y”", "`“`"),
        ("A=b ls", "a variable"),
    ] {
        let failure = split_command_line(line).unwrap_err();
        assert!(
            failure.message.contains(named) && failure.message.contains("no shell"),
            "{line}: {failure}"
        );
    }
}

proptest! {
    /// Goal: quoting round-trips. Method: random words, in single quotes and with `\`.
    #[test]
    fn quoting_and_back(words in proptest::collection::vec("[ -~\\n\u{e9}]{0,12}", 0..6)) {
        let single = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
        let double = |word: &String| {
            let escaped: String = word.chars().flat_map(|c| {
                let mark = matches!(c, '"' | '\\' | '$' | '`').then_some('\\');
                mark.into_iter().chain([c])
            }).collect();
            format!("\"{escaped}\"")
        };
        // An assignment before the program is rejected even if quoted.
        prop_assume!(!words.first().is_some_and(|word| is_assignment(word)));
        for line in [words.iter().map(single).collect::<Vec<_>>(), words.iter().map(double).collect()] {
            prop_assert_eq!(&split_command_line(&line.join(" ")).unwrap(), &words);
        }
    }
}
