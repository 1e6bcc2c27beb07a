//! Mistakes that people make in their first topologies: the exact problem and advice of each, and no
//! problem that only follows from another one.

use super::{ConfigProblem, NODE, problems};

/// Upstream in the lines 2 to 4.
const UPSTREAM: &str = "[[upstream]]\nid = \"files\"\ncommand = [\"sh\"]\n";
/// First lines of a listener. After [`UPSTREAM`] they are 5 to 7.
const LISTENER: &str = "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\n";
/// Address of a listener, in its line 4.
const BIND: &str = "bind = \"127.0.0.1:8080\"\n";

/// Returns each problem as `LINE:COLUMN MESSAGE`, with ` | ADVICE` if there is any.
fn shown(text: &str, is_yaml: bool) -> Vec<String> {
    let found = problems(text, is_yaml);
    let line = |problem: &ConfigProblem| {
        let advice = problem.help.as_ref().map(|help| format!(" | {help}"));
        format!(
            "{}:{} {}{}",
            problem.line,
            problem.column,
            problem.message,
            advice.unwrap_or_default()
        )
    };
    found.iter().map(line).collect()
}

/// Goal: an address or port that can't be used is explained with one that can. Method: each wrong form,
/// at a listener, at its gRPC and at the console.
#[test]
fn addresses() {
    let missing_ip = "the IP address is missing: write 127.0.0.1 before the port for this machine alone, or \
                      0.0.0.0 for all of its addresses";
    let name =
        "a name can't be used here: write an IP address before the port, as in 127.0.0.1:8080";
    let missing_port =
        "the port is missing: write it after the IP address, as in 127.0.0.1:8080 or [::1]:8080";
    for (address, why) in [
        (
            "\"127.0.0.1:70000\"",
            "the port is too large: write a port up to 65535",
        ),
        (
            "\"localhost:8080\"",
            "a name can't be used here: write 127.0.0.1 in place of localhost, as in 127.0.0.1:8080",
        ),
        ("\"127.0.0.1\"", missing_port),
        ("\"::1\"", missing_port),
        (
            "8080",
            "it must be an IP address and a port in quotes, as in \"127.0.0.1:8080\", not a whole number",
        ),
        ("\"8080\"", missing_ip),
        ("\":8080\"", missing_ip),
        ("\"*:8080\"", missing_ip),
        ("\"node.example:8080\"", name),
        (
            "\"http://127.0.0.1:8080\"",
            "it must be an address without scheme and path, as in 127.0.0.1:8080",
        ),
        (
            "\"127.0.0.1:http\"",
            "it must be an IP address and a port, as in 127.0.0.1:8080",
        ),
        (
            "\"\"",
            "it must be an IP address and a port, as in 127.0.0.1:8080",
        ),
    ] {
        let listener = format!("{NODE}{UPSTREAM}{LISTENER}bind = {address}\n");
        assert_eq!(shown(&listener, false), [format!("8:8 `bind`: {why}")]);
        let grpc = format!(
            "{NODE}{UPSTREAM}[[listener]]\nprotocol = \"a2a\"\n{BIND}grpc_bind = {address}\n"
        );
        assert_eq!(shown(&grpc, false), [format!("8:13 `grpc_bind`: {why}")]);
        let console = format!("{NODE}{UPSTREAM}[console]\nbind = {address}\n");
        assert_eq!(shown(&console, false), [format!("6:8 `bind`: {why}")]);
    }
}

/// Goal: a value of a wrong type is explained by how to write it. Method: keys of an upstream, each in
/// line 5.
#[test]
fn types_of_values() {
    let seconds = "it must be a whole number, 0 at least, not a text | write the number of seconds alone, as in `call_timeout_s = 30`";
    let too_large =
        "the number is too large | write one up to 9223372036854775807, or a text in quotes";
    for (line, expected) in [
        (
            "env = [\"A=b\"]",
            "5:7 `env`: it must be a table, not a list | write `env = { NAME = \"value\" }`; names of variables to pass on are for `env_passthrough`",
        ),
        (
            "env_passthrough = { A = \"b\" }",
            "5:19 `env_passthrough`: it must be a list, not a table | write names alone, as in `env_passthrough = [\"NAME\"]`; variables with values are for `env`",
        ),
        (
            "env = { A = 1 }",
            "5:13 `A`: it must be a text, not a whole number | write it in quotes",
        ),
        (
            "call_timeout_s = \"30 sec\"",
            &format!("5:18 `call_timeout_s`: {seconds}"),
        ),
        (
            "call_timeout_s = \"1m30\"",
            &format!("5:18 `call_timeout_s`: {seconds}"),
        ),
        (
            "calls_max = \"8\"",
            "5:13 `calls_max`: it must be a whole number, 0 at least, not a text | write the number without quotes",
        ),
        (
            "calls_max = -1",
            "5:13 `calls_max`: it must be a whole number, 0 at least, not -1",
        ),
        (
            "calls_max = 99999999999",
            "5:13 `calls_max`: it must be a whole number, 4294967295 at most, not 99999999999",
        ),
        (
            "stateless = \"yes\"",
            "5:13 `stateless`: it must be true or false, not a text | write `true` or `false`, without quotes",
        ),
        (
            "calls_max = \"30.5\"",
            "5:13 `calls_max`: it must be a whole number, 0 at least, not a text | write a whole number without quotes, as in `calls_max = 30`",
        ),
        (
            "call_timeout_s = \"inf\"",
            &format!("5:18 `call_timeout_s`: {seconds}"),
        ),
        (
            "calls_max = 99999999999999999999",
            &format!("5:13 {too_large}"),
        ),
        (
            "description = 0xffffffffffffffffffff",
            &format!("5:15 {too_large}"),
        ),
        (
            "retry = \"read_*\"",
            "5:9 `retry`: it must be a list, not a text | write it in brackets: [\"…\"]",
        ),
    ] {
        let text = format!("{NODE}{UPSTREAM}{line}\n");
        assert_eq!(shown(&text, false), [expected], "{line}");
    }
    for (line, expected) in [
        (
            "agent = [\"files\"]",
            "9:9 `agent`: it must be a text, not a list | write one id without brackets; several are for `agents`",
        ),
        (
            "agents = \"files\"",
            "9:10 `agents`: it must be a list, not a text | write it in brackets: [\"…\"]",
        ),
        (
            "name = [\"files\"]",
            "9:8 `name`: it must be a text, not a list | write one text without brackets",
        ),
    ] {
        let text = format!("{NODE}{UPSTREAM}{LISTENER}{BIND}{line}\n");
        assert_eq!(shown(&text, false), [expected], "{line}");
    }
}

/// Goal: an unknown key is explained by the one that was meant. Method: keys of an upstream, each in
/// line 5.
#[test]
fn unknown_keys() {
    for (line, expected) in [
        (
            "timeout = 30",
            "5:1 [[upstream]] has no key `timeout` | did you mean `call_timeout_s`?",
        ),
        (
            "descripton = \"x\"",
            "5:1 [[upstream]] has no key `descripton` | did you mean `description`?",
        ),
        (
            "args = [\"x\"]",
            "5:1 [[upstream]] has no key `args` | `command` holds program and arguments: `command = [\"npx\", \"-y\", \"server\"]`",
        ),
    ] {
        let text = format!("{NODE}{UPSTREAM}{line}\n");
        assert_eq!(shown(&text, false), [expected], "{line}");
    }
}

/// Goal: a file in another syntax, or with an error of syntax, is explained. Method: JSON with and without
/// the servers of an MCP client, a TOML header and a TOML text that aren't closed, and tabs in YAML, one of
/// them after a text that may begin with a tab.
#[test]
fn syntax() {
    for (text, is_yaml, expected) in [
        (
            "{\"node\": {\"name\": \"n\"}}".to_owned(),
            false,
            "1:1 this is JSON, and a topology is TOML or YAML | YAML includes JSON: give the file a name that ends in .yaml",
        ),
        (
            "\n{\"mcpServers\": {}}".to_owned(),
            false,
            "2:1 this is JSON, and a topology is TOML or YAML | write each server as [[upstream]] with `id = \"…\"`, and program and arguments as `command = [\"…\"]`",
        ),
        (
            format!("{NODE}[[upstream]\nid = \"a\"\n"),
            false,
            "2:12 unclosed array table, expected `]`",
        ),
        (
            format!("{NODE}[[upstream]]\nid = files\ncommand = [\"sh\"]\n"),
            false,
            "3:6 invalid boolean, expected `false` | a text is written in quotes: \"…\"; only numbers, true and false have none",
        ),
        (
            "node:\n\tname: n\n".to_owned(),
            true,
            "2:2 tabs disallowed within this context (block indentation) | indent with spaces: line 2 is indented with a tab",
        ),
        (
            "node:\n  name: n\nupstream:\n  - id: a\n\tcommand: [sh]\n".to_owned(),
            true,
            "4:9 while scanning a plain scalar, found a tab | indent with spaces: line 5 is indented with a tab",
        ),
        (
            "node:\n  name: |\n    a\n    \tb\nupstream:\n\tid: a\n".to_owned(),
            true,
            "6:2 tabs disallowed within this context (block indentation) | indent with spaces: line 6 is indented with a tab",
        ),
    ] {
        assert_eq!(shown(&text, is_yaml), [expected], "{text}");
    }
}

/// Goal: names and files that aren't there are explained. Method: a program, a key file, an agent, an
/// address that is used twice, and an id that can't be served.
#[test]
fn names_and_files() {
    let program =
        |command: &str| format!("{NODE}[[upstream]]\nid = \"files\"\ncommand = {command}\n");
    let listener = format!("{NODE}{UPSTREAM}{LISTENER}{BIND}");
    for (text, expected) in [
        (
            program("[\"no-such-program\", \"-y\"]"),
            "4:12 there is no program no-such-program in PATH | install it, or write its whole path: without it the upstream can't start",
        ),
        (
            program("[\"no-such-program -y\"]"),
            "4:12 there is no program no-such-program -y in PATH | write program and arguments one by one, as in `command = [\"npx\", \"-y\", \"server\"]`",
        ),
        (
            program("[\"/opt/My App/server\"]"),
            "4:12 there is no program /opt/My App/server | install it, or correct the path: without it the upstream can't start",
        ),
        (
            format!("{listener}keys = \"keys.toml\"\n"),
            "9:8 there is no key file /nowhere/keys.toml | make one with `callboard keys --keys /nowhere/keys.toml add NAME`",
        ),
        (
            format!("{listener}agent = \"file\"\n"),
            "9:9 the listener on 127.0.0.1:8080 is for agent file, which isn't declared | did you mean `files`?",
        ),
        (
            format!("{listener}{LISTENER}{BIND}"),
            "12:8 two listeners have the address 127.0.0.1:8080 | give each a port of its own; port 0 picks a free one",
        ),
        (
            format!("{listener}agent = \"my files\"\n")
                .replace("id = \"files\"", "id = \"my files\""),
            "9:9 the listener on 127.0.0.1:8080: the id \"my files\" can't be part of a URL: use A-Z a-z 0-9 - _ .",
        ),
    ] {
        assert_eq!(shown(&text, false), [expected], "{text}");
    }
}

/// Goal: a cause is reported without what only follows from it. Method: declarations that can't be read,
/// each beside a listener that leads to them.
#[test]
fn causes_without_consequences() {
    let listener = format!("{LISTENER}{BIND}agent = \"a\"\n");
    for (declared, expected) in [
        (
            "[[upstream]]\nid = \"a\"\ncommand = \"npx -y server\"\n",
            "4:11 `command`: it must be a list, not a text | write program and arguments one by one, as in `command = [\"npx\", \"-y\", \"server\"]`",
        ),
        (
            "[[upstream]]\nid = \"a\"\nurl = 1\nheaders = { A = \"b\" }\n",
            "4:7 `url`: it must be a text, not a whole number | write it in quotes",
        ),
        (
            "[[upstream]]\nid = \"a\"\ncomand = [\"sh\"]\nenv = { A = \"b\" }\n",
            "4:1 [[upstream]] has no key `comand` | did you mean `command`?",
        ),
        (
            "[[upstream]]\nid = \"a\"\ncommand = [\"sh\"]\nheader = { A = \"b\" }\n",
            "5:1 [[upstream]] has no key `header` | did you mean `headers`?",
        ),
        (
            "[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\nclient_certificat = \"c.pem\"\n",
            "5:1 [[upstream]] has no key `client_certificat` | did you mean `client_certificate`?",
        ),
        (
            "[[upstream]]\nid = \"a\"\ncommand = [\"sh\"]\n[store]\nurl = \"memory\"\naudits = \"calls\"\n",
            "7:1 [store] has no key `audits` | did you mean `audit`?",
        ),
        (
            "[[upstream]]\nid = \"a\"\ncommand = [\"sh\"]\n[store]\nurl = \"memory\"\npasword_env = \"HOME\"\n",
            "7:1 [store] has no key `pasword_env` | did you mean `password_env`?",
        ),
        (
            "[[upstream]]\nid = \"a\"\n",
            "3:6 upstream a: it needs `command` or `url`",
        ),
        (
            "[[upstream]]\nid = \"a\"\ncommand = [\"sh\"]\nurl = \"http://x/\"\n",
            "5:7 upstream a: write `command` or `url`, not both",
        ),
        (
            "[[upstream]]\ncommand = [\"sh\"]\n",
            "2:1 [[upstream]] lacks `id`",
        ),
        (
            "[upstream]\nid = \"a\"\ncommand = [\"sh\"]\n",
            "2:1 `upstream` must be a list | in TOML each begins with [[upstream]], in YAML with a dash",
        ),
        (
            "[[upstreams]]\nid = \"a\"\ncommand = [\"sh\"]\n",
            "2:3 a topology has no section `upstreams` | did you mean `upstream`?",
        ),
        (
            "[[agent]]\nkind = \"modle\"\nid = \"a\"\nprovider = \"echo\"\n",
            "3:8 there is no kind of agent `modle` | did you mean `model`?",
        ),
    ] {
        let text = format!("{NODE}{declared}{listener}");
        assert_eq!(shown(&text, false), [expected], "{declared}");
    }
    let remote = format!("{NODE}{UPSTREAM}{LISTENER}bind = \"0.0.0.0:1\"\n");
    for (key, expected) in [
        (
            "key = \"k.toml\"",
            "9:1 [[listener]] has no key `key` | did you mean `keys`?",
        ),
        (
            "keys = [\"k.toml\"]",
            "9:8 `keys`: it must be a text, not a list | write one text without brackets",
        ),
        (
            "anonymous = \"gest\"",
            "9:13 `anonymous` can't be `gest` | did you mean `guest`?",
        ),
    ] {
        assert_eq!(shown(&format!("{remote}{key}\n"), false), [expected]);
    }
    let protocol = format!("{NODE}{UPSTREAM}[[listener]]\nprotocol = \"http\"\n{BIND}");
    assert_eq!(
        shown(&protocol, false),
        ["6:12 `protocol` can't be `http` | there are `mcp`, `a2a`, `mail`"]
    );
}

/// Goal: a reference is reported although another declaration has an error, if that one's id is known.
/// Method: an upstream with a wrong value, and a listener for an agent of another name.
#[test]
fn independent_mistakes_are_all_reported() {
    let text = format!("{NODE}{UPSTREAM}calls_max = -1\n{LISTENER}{BIND}agent = \"other\"\n");
    let expected = [
        "5:13 `calls_max`: it must be a whole number, 0 at least, not -1",
        "10:9 the listener on 127.0.0.1:8080 is for agent other, which isn't declared",
    ];
    assert_eq!(shown(&text, false), expected);
}
