use std::collections::BTreeSet;
use std::fs;

use tokio::process::Command;

use crate::kit::{Home, ended};

/// Commands that the help hides: old names, and those that callboard itself or a package calls.
const HIDDEN: [&str; 4] = ["exec-child", "man", "msg", "send"];

/// Names of the commands that the help lists.
async fn listed_commands(home: &Home) -> BTreeSet<String> {
    let help = home.run(&["--help"]).await.quiet(0).out;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\nOptions:").unwrap();
    // The explanation goes on in lines that are indented further.
    let named = commands.lines().filter_map(|line| line.strip_prefix("  "));
    let named = named.filter(|line| !line.starts_with(' '));
    let names = named.filter_map(|line| line.split(' ').next());
    let names: BTreeSet<_> = names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    assert!(names.contains("serve") && names.len() > 20, "{help}");
    names
}

/// Goal: in bash, the tab key offers commands, subcommands and options, but no hidden command. Method: bash runs the completion
/// of four lines.
#[tokio::test]
async fn bash_completes() {
    let home = Home::new();
    let script = home.run(&["completions", "bash"]).await.quiet(0).out;
    let script = home.write("callboard.bash", &script);
    for (words, expected) in [
        (&["callboard", ""][..], "serve"),
        (&["callboard", "comp"], "completions"),
        (&["callboard", "completions", ""], "zsh"),
        (&["callboard", "mail", "se"], "send"),
        (&["callboard", "check", "--"], "--json"),
    ] {
        let [.., before, word] = words else {
            panic!("{words:?} are too few")
        };
        let line = words.join("\" \"");
        let program = format!(
            "source '{script}'; COMP_WORDS=(\"{line}\"); COMP_CWORD={}; _callboard callboard \"{word}\" \"{before}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.len() - 1
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &program]).kill_on_drop(true);
        // A script that bash would run first.
        bash.env_remove("BASH_ENV");
        bash.stdout(std::process::Stdio::piped());
        bash.stderr(std::process::Stdio::piped());
        let offered = ended(&mut bash, None).await.quiet(0).out;
        let offered: Vec<_> = offered.lines().collect();
        assert!(offered.contains(&expected), "{words:?}: {offered:?}");
        if words.len() == 2 {
            let hidden = HIDDEN.iter().find(|hidden| offered.contains(hidden));
            assert_eq!(hidden, None, "{words:?}: {offered:?}");
        }
    }
}

/// Goal: each shell gets its own script with all commands, and another name is refused with those that there are. Method: five
/// shells, each with its form of a command, and a sixth.
#[tokio::test]
async fn every_shell_has_a_script() {
    let home = Home::new();
    let commands = listed_commands(&home).await;
    for (shell, mark, before, after) in [
        ("bash", "complete -F _callboard", "callboard,", ")\n"),
        ("zsh", "#compdef callboard", "'", ":"),
        ("fish", "complete -c callboard", "-a \"", "\""),
        (
            "elvish",
            "edit:completion:arg-completer[callboard]",
            "cand ",
            " '",
        ),
        (
            "powershell",
            "Register-ArgumentCompleter",
            "[CompletionResult]::new('",
            "'",
        ),
    ] {
        let script = home.run(&["completions", shell]).await.quiet(0);
        script.has(&[mark]);
        for command in &commands {
            let offer = format!("{before}{command}{after}");
            assert!(script.out.contains(&offer), "{shell} lacks {offer}");
        }
        assert!(!script.out.contains("exec-child"), "{shell}");
    }
    let refused = home.run(&["completions", "tcsh"]).await;
    refused.with(2, "bash, elvish, fish, powershell, zsh");
}

/// Goal: each command has a manual page, hidden ones have none, and a folder that can't be written is an error with its name.
/// Method: the pages beside the help's commands; a file in the folder's place.
#[tokio::test]
async fn every_command_has_a_page() {
    let home = Home::new();
    let folder = home.path("pages/man1");
    let folder = folder.to_str().unwrap();
    home.run(&["man", folder])
        .await
        .printing(0, &format!("{folder}\n"));
    let files: BTreeSet<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    for command in listed_commands(&home).await {
        let page = format!("callboard-{command}.1");
        assert!(files.contains(&page), "there is no {page}");
    }
    for hidden in HIDDEN {
        assert!(
            !files.contains(&format!("callboard-{hidden}.1")),
            "{hidden}"
        );
    }
    assert!(files.contains("callboard-mail-send.1"), "{files:?}");
    let page = fs::read_to_string(format!("{folder}/callboard-serve.1")).unwrap();
    for text in [".TH", "topology", "free\\-ports"] {
        assert!(page.contains(text), "{text} isn't in {page}");
    }
    let main = fs::read_to_string(format!("{folder}/callboard.1")).unwrap();
    assert!(main.contains("never contain messages"), "{main}");
    let file = home.write("file", "");
    let refused = home.run(&["man", &format!("{file}/below")]).await;
    refused.with(4, "failed to write pages to");
}
