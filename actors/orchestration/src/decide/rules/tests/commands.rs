//! Commands within sentences: a command is planned whole or not at all.

use super::*;

/// Returns the planned command line; `None` for another tool.
fn line(request: &str) -> Option<String> {
    let choice = Rules::default()
        .tool(request, &[], &world().tools)
        .outcome?;
    (choice.tool_name == "execute_command").then(|| choice.params.text("command").unwrap())
}

/// Goal: a planned command contains every word, with quotes and shell syntax. Method: rows.
#[test]
fn nothing_is_cut_out() {
    for (request, expect) in [
        ("run touch 'x y'", "touch 'x y'"),
        ("run ls 'my file' other", "ls 'my file' other"),
        ("run git commit -m \"a, b; c\"", "git commit -m \"a, b; c\""),
        ("execute touch a; touch b", "touch a; touch b"),
        ("run ls a; ls b", "ls a; ls b"),
        ("run ls -l | grep x > y", "ls -l | grep x > y"),
        ("run ls a && ls b", "ls a && ls b"),
        ("run ls a\nls b", "ls a\nls b"),
        ("run cat a, b", "cat a, b"),
        ("run ls .", "ls ."),
        ("run ls ..", "ls .."),
        ("run ls foo?", "ls foo?"),
        ("run echo `date`", "echo `date`"),
        ("run echo please", "echo please"),
        (
            "run echo salt, please call the office",
            "echo salt, please call the office",
        ),
        ("run git add just this.rs", "git add just this.rs"),
        ("run frobnicate --all ls", "frobnicate --all ls"),
        ("run nohup ls -l", "nohup ls -l"),
        ("strace ls -l", "strace ls -l"),
        ("run which_tool -a", "which_tool -a"),
        ("kill -9 4242", "kill -9 4242"),
    ] {
        assert_eq!(line(request).as_deref(), Some(expect), "{request}");
    }
}

/// Goal: text around a command isn't planned as part of it. Method: rows of sentences that contain
/// commands.
#[test]
fn sentences_around_commands() {
    for (request, expect) in [
        ("run ls -l.", "ls -l"),
        ("please run `ls -l 'a b'` on this box", "ls -l 'a b'"),
        (
            "grab the output of `free -m` and then explain it to me",
            "free -m",
        ),
        (
            "please execute \"free -m\" on this computer and let me see what it prints",
            "free -m",
        ),
        ("run the command uname -a", "uname -a"),
        ("run this: ls -l", "ls -l"),
        ("run df -h, the disk alert went off again", "df -h"),
        ("Execute kill 4312 on this box", "kill 4312 on this box"),
        ("can you run df -h?", "df -h"),
        ("run df -h please", "df -h"),
        ("roda um uptime aí pra mim", "uptime"),
        (
            "executa python3 --version pra eu ver qual tá instalado",
            "python3 --version",
        ),
        (
            "git log --since '10 min ago', run that for me, I am on my phone",
            "git log --since '10 min ago'",
        ),
    ] {
        assert_eq!(line(request).as_deref(), Some(expect), "{request}");
    }
}

/// Goal: an ambiguous command isn't planned. Method: several commands, numbers with several
/// meanings, characters changed by normalization.
#[test]
fn none_rather_than_a_part() {
    for request in [
        "run ls a and run ls b",
        "run touch a and then touch b",
        "kill processes 12 and 15",
        "kill the process with pid 12 in 5 minutes",
        "run ls caf\u{fb01}",
        "remember the agents at https://a.example.org/x and https://b.example.org/y",
    ] {
        let choice = Rules::default()
            .tool(request, &[], &world().tools)
            .outcome
            .unwrap();
        assert_eq!(choice.tool_name, "llm", "{request}: {:?}", choice.params);
    }
    assert_eq!(
        line("kill the process with pid 12"),
        Some("kill 12".to_owned())
    );
}

/// Goal: a step that runs a command has all of it. Method: a command with a quoted argument at its
/// end, before another step.
#[test]
fn steps_keep_quoted_arguments() {
    let request = "run ls -l 'x y', and then tell me whether it will rain in Oslo";
    let steps = Rules::default()
        .steps(request, &world())
        .outcome
        .unwrap()
        .into_steps();
    let told: Vec<&str> = steps
        .iter()
        .map(|step| step.input_message.as_str())
        .collect();
    assert_eq!((steps.len(), told[0]), (2, "run ls -l 'x y'"), "{told:?}");
    assert_eq!(line(told[0]).as_deref(), Some("ls -l 'x y'"));
}
