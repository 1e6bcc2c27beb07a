//! Tests of topology parsing and of each problem that it reports.

mod bidirectional;
mod buffers;
mod frozen;
mod mail;
mod mistakes;
mod mutations;
mod orchestrator;
mod policy;
mod renamed;
mod tls;

use std::path::Path;

use super::{ConfigProblem, ServedProtocol, Severity, Topology, parse_topology};

fn problems(text: &str, is_yaml: bool) -> Vec<ConfigProblem> {
    parse_topology(text, is_yaml, Path::new("/nowhere"), true).1
}

/// `line:column message` of each.
fn told(text: &str, is_yaml: bool) -> Vec<String> {
    problems(text, is_yaml)
        .iter()
        .map(|p| format!("{}:{} {}", p.line, p.column, p.message))
        .collect()
}

const NODE: &str = "node = { name = \"n\" }\n";

/// Goal: both notations say the same. Method: one topology in each; what they come to, and the marks of change.
#[test]
fn toml_and_yaml_are_one() {
    let toml = "[node]\nname = \"n\"\n[[upstream]]\nid = \"a\"\ncommand = [\"x\", \"1\"]\ncalls_max = 0x10\nsupports_sampling = true\n[upstream.tools.rename]\n\"b c\" = \"d\"\n";
    let yaml = "node: {name: n}\nupstream:\n  - supports_sampling: true\n    calls_max: 16\n    id: 'a'\n    command: [x, \"1\"]\n    tools:\n      rename: {\"b c\": d}\n";
    let (one, other) = (
        Topology::parse(toml, false, Path::new("")).unwrap(),
        Topology::parse(yaml, true, Path::new("")).unwrap(),
    );
    assert_eq!(
        format!("{:?}", one.upstreams),
        format!("{:?}", other.upstreams)
    );
    assert_eq!(one.fingerprints.agents, other.fingerprints.agents);
    let changed = toml.replace("0x10", "17");
    assert_ne!(
        Topology::parse(&changed, false, Path::new(""))
            .unwrap()
            .fingerprints
            .agents,
        one.fingerprints.agents
    );
}

/// Goal: the bare dialect is a compatibility mode of MCP. Method: each notation, and MCP.
#[test]
fn the_bare_dialect_is_a_mode() {
    for (keys, speaks) in [
        ("compat = [\"bare\"]", ServedProtocol::Bare),
        (
            "dialect = \"mcp\"\ncompat = [\"bare\"]",
            ServedProtocol::Bare,
        ),
        ("dialect = \"mcp\"", ServedProtocol::Mcp),
    ] {
        let text = format!(
            "{NODE}[[upstream]]\nid = \"a\"\ncommand = [\"x\"]\n[[listener]]\nprotocol = \"mcp\"\nbind = \"127.0.0.1:0\"\nagent = \"a\"\n{keys}\n"
        );
        let topology = Topology::parse(&text, false, Path::new("")).unwrap();
        assert_eq!(topology.listeners[0].served_protocol(), speaks, "{keys}");
    }
}

/// Goal: one table's mistakes are all told, each at its place, and none that only follows from another. Method: a table
/// with a mistake of each kind.
#[test]
fn every_mistake_of_a_table() {
    let text = format!(
        "{NODE}[[upstream]]\nidd = \"a\"\nurl = 5\nera = \"old\"\ncalls_max = \"x\"\nheaders = [1]\ncache = {{ a = -1 }}\nretries_max = 1.5\n"
    );
    assert_eq!(
        told(&text, false),
        [
            "3:1 [[upstream]] has no key `idd`",
            "4:7 `url`: it must be a text, not a whole number",
            "5:7 `era` can't be `old`",
            "6:13 `calls_max`: it must be a whole number, 0 at least, not a text",
            "7:11 `headers`: it must be a table, not a list",
            "8:15 `a`: it must be a whole number, 0 at least, not -1",
            "9:15 `retries_max`: it must be a whole number, 0 at least, not a number with a fraction",
        ]
    );
}

/// Goal: a wrong value is never in a message: it may be a secret. Method: secrets where something else belongs.
#[test]
fn values_stay_out_of_messages() {
    let text = format!(
        "{NODE}[[upstream]]\nid = \"a\"\ncalls_max = \"s3cret\"\nurl = \"http://u:s3cret@x/\"\n[upstream.headers]\n\"X Y\" = \"s3cret\"\nX = \"s3\\ncret\"\n"
    );
    let told = told(&text, false);
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(!told.join(" ").contains("cret"), "{told:?}");
}

/// Goal: places are right where a character is more than a byte, in both notations. Method: such characters before the
/// mistake, on its line and above it.
#[test]
fn places_count_characters() {
    assert_eq!(
        told("# ✅\nnode: {name: é, x: 1}\n", true),
        ["2:17 [node] has no key `x`"]
    );
    assert_eq!(
        told("# ✅\nnode = { name = \"é\", x = 1 }\n", false),
        ["2:22 [node] has no key `x`"]
    );
}

/// Goal: unreadable texts are reported with a position, without a panic or an endless loop. Method:
/// rows: syntax errors, nesting, aliases that repeat aliases, a second document, repeated keys,
/// excessive depth.
#[test]
fn unreadable_texts() {
    let aliases = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)
    });
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    for (text, is_yaml, wanted) in [
        ("[node\nname = ", false, "unclosed table"),
        ("a: [1\nb: 2", true, "illegal"),
        ("a: 1\na: 2", true, "twice"),
        ("a: 1\n---\nb: 2", true, "one YAML document"),
        (&aliases, true, "aliases repeat"),
        (&deep, true, "recursion"),
        (&deep[4_900..5_100], true, "deeper"),
        (&format!("a = {deep}"), false, "recursion"),
        (
            &format!("{}a = 1", "a.".repeat(100_000)),
            false,
            "recursion",
        ),
        (&format!("[{}a]", "a.".repeat(100_000)), false, "recursion"),
        ("[]", true, "a table of sections"),
        ("", false, "no section [node]"),
        ("a = 1\na = 2", false, "duplicate key"),
    ] {
        let found = problems(text, is_yaml);
        assert!(
            found
                .iter()
                .any(|p| p.level == Severity::Error && p.message.contains(wanted)),
            "{wanted}: {found:?}"
        );
    }
    // Both syntax errors are reported.
    assert_eq!(
        problems("[node\nname = \"n\"\n[[upstream]]\nid =\n", false).len(),
        2
    );
}

/// Goal: the number of reported problems is bounded. Method: one more than the limit.
#[test]
fn mistakes_are_bounded() {
    let text: String = (0..=super::PROBLEMS_MAX)
        .map(|n| format!("s{n} = 1\n"))
        .collect();
    let found = problems(&format!("{NODE}{text}"), false);
    assert_eq!(found.len(), super::PROBLEMS_MAX + 1);
    assert_eq!(
        found.last().unwrap().message,
        "more problems, not listed: 1"
    );
}

/// Goal: keys of an upstream's endpoint that contradict each other are reported. Method: rows.
#[test]
fn endpoints() {
    for (lines, wanted) in [
        ("", "it needs `command` or `url`"),
        ("command = [\"sh\"]\nurl = \"http://x/\"", "not both"),
        (
            "command = [\"sh\"]\ntransport = \"sse\"",
            "a `command` speaks over `stdio` only",
        ),
        (
            "url = \"http://x/\"\ntransport = \"stdio\"",
            "needs a `command`",
        ),
        (
            "url = \"http://x/\"\ntransport = \"websocket\"",
            "needs a ws or wss URL",
        ),
        (
            "url = \"ws://x/\"\ntransport = \"streamable_http\"",
            "needs an http or https URL",
        ),
        ("url = \"ftp://x/\"", "not an http"),
        (
            "url = \"http://x/\"\nenv = { A = \"b\" }",
            "`env` is for upstreams with a `command`",
        ),
        (
            "command = [\"sh\"]\nbearer_env = \"HOME\"",
            "`bearer_env` is for upstreams with a `url`",
        ),
        (
            "url = \"http://x/\"\nbearer_env = \"NO_SUCH_VARIABLE\"",
            "there is no environment variable NO_SUCH_VARIABLE",
        ),
        (
            "command = [\"no-such-program\"]",
            "there is no program no-such-program in PATH",
        ),
        (
            "command = [\"sh\"]\nworking_directory = \"no_such\"",
            "there is no folder",
        ),
        ("url = \"http://x/\"\ncalls_max = 0", "must be 1 at least"),
        (
            "url = \"http://x/\"\ntools = { rename = { a = \"c\", b = \"c\" } }",
            "would both be shown as `c`",
        ),
    ] {
        let told = told(&format!("{NODE}[[upstream]]\nid = \"a\"\n{lines}\n"), false);
        assert!(
            told.len() == 1 && told[0].contains(wanted),
            "{lines}: {told:?}"
        );
    }
}

/// Goal: the share of a principal is a percentage, at a listener and a virtual server. Method: each
/// limit, and one beyond.
#[test]
fn shares_of_principals() {
    let upstream = "[[upstream]]\nid = \"a\"\nurl = \"http://x/\"";
    for section in [
        "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:7000\"",
        "[[server]]\nid = \"all\"\nmembers = [\"a\"]",
    ] {
        let with = |percent: u8| {
            let lines = format!("{section}\nprincipal_share_percent = {percent}");
            told(&format!("{NODE}{upstream}\n{lines}\n"), false)
        };
        for good in [1, 100] {
            assert_eq!(with(good), [""; 0], "{section}");
        }
        for wrong in [0, 101] {
            let told = with(wrong);
            assert!(
                told.len() == 1 && told[0].contains("must be from 1 to 100"),
                "{told:?}"
            );
        }
    }
}

/// Goal: routing that can't work is reported: models for elicitations, unknown answerers. Method:
/// rows.
#[test]
fn answerers() {
    let upstream = "[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\nsupports_sampling = true\n";
    let model = "[[agent]]\nkind = \"model\"\nid = \"m\"\nprovider = \"echo\"\n";
    for (lines, wanted) in [
        ("elicitation.default_strategy = \"models\"", "for a person"),
        (
            "elicitation.server_strategies = { a = \"parallel\" }",
            "for a person",
        ),
        (
            "elicitation.order = [\"client\", \"models\"]",
            "for a person",
        ),
        (
            "sampling.default_strategy = \"client_fist\"",
            "can't be `client_fist`",
        ),
        (
            "sampling.server_strategies = { b = \"hybrid\" }",
            "there is no upstream b",
        ),
        (
            "sampling.order = [\"client\", \"model:a\"]",
            "there is no model a",
        ),
        ("sampling.order = [\"server:a\"]", "answers no samples"),
        ("sampling.order = [\"client\", \"client\"]", "twice"),
        ("sampling.order = [\"nobody\"]", "nobody"),
    ] {
        let told = told(
            &format!("{NODE}{upstream}{model}[routing]\n{lines}\n"),
            false,
        );
        assert!(
            told.iter().any(|line| line.contains(wanted)),
            "{lines}: {told:?}"
        );
    }
    let without = told(
        &format!("{NODE}{upstream}[routing]\nsampling.default_strategy = \"models\"\n"),
        false,
    );
    assert!(
        without.len() == 1 && without[0].contains("no model is declared"),
        "{without:?}"
    );
}

/// Goal: unknown names are reported with a suggestion, and unreachable agents with a warning.
/// Method: a topology of several members.
#[test]
fn names_lead_somewhere() {
    let text = format!(
        "{NODE}[[upstream]]\nid = \"files\"\nurl = \"http://x/\"\n[[upstream]]\nid = \"lonely\"\nurl = \"http://y/\"\n\
         [[server]]\nid = \"research\"\nmembers = [\"fils\", \"files\", \"files\", \"research\"]\n\
         [[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:7000\"\nagents = [\"reserch\", \"research\"]\n\
         [[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"0.0.0.0:7000\"\nagent = \"files\"\nkeys = \"no_such\"\n"
    );
    let found = problems(&text, false);
    let of = |message: &str| {
        found
            .iter()
            .find(|p| p.message.contains(message))
            .unwrap_or_else(|| panic!("{message}: {found:?}"))
    };
    assert_eq!(
        of("the member fils").help.as_deref(),
        Some("did you mean `files`?")
    );
    assert_eq!(
        of("is for agent reserch").help.as_deref(),
        Some("did you mean `research`?")
    );
    of("files is a member twice");
    let unreached = format!(
        "{NODE}[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\n[[upstream]]\nid = \"lonely\"\nurl = \"http://y/\"\n[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:7000\"\nagent = \"a\"\n"
    );
    assert_eq!(
        told(&unreached, false),
        ["6:6 no listener leads to lonely, so no client reaches it"]
    );
    of("a virtual server, which can't be a member");
    of("two listeners have the address 0.0.0.0:7000");
    of("there is no key file");
    assert_eq!(found.len(), 6, "{found:?}");
}

/// Goal: guard rules that apply nowhere are reported. Method: the same rules, with each guard and
/// without one; beside an upstream, whose descriptions are screened or not.
#[test]
fn guard_rules_without_a_guard() {
    let rules = "guard_rules = [{ id = \"site.x\", phrases = [\"x\"] }]\n";
    let agent = |guard: bool| {
        format!("[[agent]]\nkind = \"orchestrator\"\nid = \"desk\"\nguard = {guard}\n")
    };
    let upstream = "[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\n";
    for (text, warned) in [
        (format!("{NODE}[policy]\n{rules}"), true),
        (format!("{NODE}[policy]\nguard = true\n{rules}"), false),
        (format!("{NODE}[policy]\n{rules}{}", agent(false)), true),
        (format!("{NODE}[policy]\n{rules}{}", agent(true)), false),
        (format!("{NODE}[policy]\n{rules}{upstream}"), false),
        (
            format!("{NODE}[policy]\nguard_descriptions = false\n{rules}{upstream}"),
            true,
        ),
    ] {
        let told = told(&text, false);
        assert_eq!(
            told.iter()
                .any(|line| line.contains("these rules have no effect")),
            warned,
            "{text}: {told:?}"
        );
    }
}

/// Goal: invalid store settings are reported at their position, and a password in a URL isn't
/// repeated. Method: one mistake each.
#[test]
fn stores() {
    let told = |section: &str| told(&format!("{NODE}[store]\n{section}\n"), false);
    for fine in [
        "",
        "url = \"memory\"",
        "url = \"sqlite:a.sqlite\"\nsize_max_mib = 64\n[store.retention]\ntasks_days = 0",
    ] {
        assert_eq!(told(fine), [""; 0], "{fine}");
    }
    let password = told("url = \"postgres://u:s3cret@localhost/db\"");
    assert_eq!(password.len(), 1);
    assert!(
        password[0].starts_with("3:7 ")
            && password[0].contains("password")
            && !password[0].contains("s3cret")
    );
    for (section, expected) in [
        (
            "url = \"mysql://h/d\"",
            "3:7 store: the URL must begin with `sqlite:` or `postgres://`",
        ),
        (
            "url = \"memory\"\nwriter = \"a\"",
            "4:1 `writer` has no effect: a store in memory ends with the node",
        ),
        (
            "password_env = \"PATH\"",
            "3:1 `password_env` is for a store in Postgres",
        ),
        (
            "writer = \"a#1\"",
            "3:10 `writer` must have 1 to 128 bytes, and no `#` or line break",
        ),
        (
            "size_max_mib = 0",
            "3:16 `size_max_mib`: it must be a whole number, 1 at least, not 0",
        ),
        (
            "[store.retention]\ntask_days = 1",
            "4:1 [store] has no key `task_days`",
        ),
    ] {
        assert_eq!(told(section), [expected]);
    }
    let elsewhere = told("url = \"postgres://u@db.example/db\"");
    assert!(
        elsewhere.len() == 1 && elsewhere[0].contains("sslmode=verify-full"),
        "{elsewhere:?}"
    );
}

/// Goal: an A2A listener requires its keys, and other protocols reject them. Method: rows.
#[test]
fn listeners_of_a2a() {
    let told = |lines: &str| {
        told(
            &format!(
                "{NODE}[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\n[[listener]]\n{lines}\n"
            ),
            false,
        )
    };
    let here = "bind = \"127.0.0.1:7100\"";
    let all = "public_url = \"https://agents.example/base\"\npush_allow = [\"127.0.0.0/8\", \"::1\"]\nversion = \"2\"\nanonymous_task_listing = true\nidempotency_window_s = 0\n\
               provider = { organization = \"o\", url = \"https://o.example\" }\nicon_url = \"https://o.example/i.png\"\n";
    assert_eq!(told(&format!("protocol = \"a2a\"\n{here}\n{all}")), [""; 0]);
    assert_eq!(
        told(&format!(
            "protocol = \"mcp\"\n{here}\n{all}dialect = \"mcp\""
        ))
        .len(),
        6
    );
    let told_by_mcp = "name = \"n\"\nversion = \"2\"\ninstructions = \"i\"";
    assert_eq!(
        told(&format!(
            "protocol = \"mcp\"\n{here}\ndialect = \"mcp\"\n{told_by_mcp}"
        )),
        [""; 0]
    );
    for (lines, wanted) in [
        ("protocol = \"mcp\"", "the protocol \"mcp\" needs `dialect`"),
        ("protocol = \"a2a\"\ndialect = \"mcp\"", "has no dialects"),
        (
            "protocol = \"a2a\"\ncompat = [\"sse\"]",
            "`compat`: this is for the dialect \"mcp\"",
        ),
        (
            "protocol = \"a2a\"\nagent = \"a\"\nagents = [\"a\"]",
            "not both",
        ),
        (
            "protocol = \"a2a\"\nextended_card = true",
            "no client could read it without keys",
        ),
        (
            "protocol = \"a2a\"\nanonymous_task_listing = true\nanonymous = \"operator\"",
            "this listener accepts no anonymous clients",
        ),
        (
            "protocol = \"a2a\"\nanonymous_task_listing = true\nkeys = \"k\"",
            "this listener accepts no anonymous clients",
        ),
        (
            "protocol = \"a2a\"\npush_allow = [\"127.0.0.1/8\"]",
            "with all other bits zero",
        ),
        (
            "protocol = \"a2a\"\npublic_url = \"ftp://x/\"",
            "not an http or https URL",
        ),
        (
            "protocol = \"a2a\"\npublic_url = \"http://u:p@x/\"",
            "user and password",
        ),
        (
            "protocol = \"a2a\"\npublic_url = \"http://x/?k=v\"",
            "can't have a query",
        ),
        (
            "protocol = \"a2a\"\nsigning_key = \"no_such.key\"",
            "there is no key file",
        ),
        ("protocol = \"a2b\"", "`protocol` can't be `a2b`"),
        (
            "protocol = \"a2a\"\nname = \"n\"",
            "this is for the dialect \"mcp\"",
        ),
        (
            "protocol = \"mcp\"\ncompat = [\"bare\"]\nagent = \"a\"\nversion = \"2\"",
            "this is for the dialect \"mcp\" and the protocol \"a2a\"",
        ),
    ] {
        let told = told(&format!("{lines}\n{here}"));
        assert!(
            told.iter().any(|line| line.contains(wanted)),
            "{lines}: {told:?}"
        );
    }
    for (lines, wanted) in [
        (
            "grpc_target = \"x:1\"",
            "8:15 the listener on 127.0.0.1:7100: `grpc_target`: no gRPC listener is declared for it",
        ),
        ("grpc_bind = \"0.0.0.0:7200\"", "write `grpc_target`"),
        (
            "proxy_protocol = true",
            "name their addresses in `trusted_proxies`",
        ),
        ("grpc_bind = \"10.0.0.1:7200\"", "keys are needed"),
        (
            "grpc_bind = \"10.0.0.1:7200\"\nanonymous = \"operator\"",
            "can't be the operator",
        ),
        (
            "grpc_bind = \"127.0.0.1:0\"\ngrpc_target = \"x:1\"\nanonymous = \"operator\"",
            "would be the operator",
        ),
        (
            "public_url = \"https://x/\"\nanonymous = \"operator\"",
            "8:14 the listener on 127.0.0.1:7100: `public_url`: requests to this address",
        ),
        (
            "hosts = [\"x.example\"]\nanonymous = \"operator\"",
            "write `keys` in place of `anonymous",
        ),
        (
            "grpc_bind = \"127.0.0.1:7100\"",
            "two listeners have the address 127.0.0.1:7100",
        ),
        (
            "grpc_bind = \"[::1]:0\"\ngrpc_target = \"http://x:1\"",
            "must be `host:port`",
        ),
        (
            "grpc_bind = \"127.0.0.1:0\"\ngrpc_target = \"x:0\"",
            "must be `host:port`",
        ),
    ] {
        let told = told(&format!("protocol = \"a2a\"\n{here}\n{lines}"));
        assert!(
            told.iter().any(|line| line.contains(wanted)),
            "{lines}: {told:?}"
        );
    }
    let open = told("protocol = \"a2a\"\nbind = \"0.0.0.0:7100\"");
    assert_eq!(open.len(), 2, "{open:?}");
    assert!(
        open.iter().any(|line| line.contains("keys are needed"))
            && open.iter().any(|line| line.contains("`public_url`"))
    );
}

/// Goal: anonymous tasks can be listed by default only on listeners that other machines and proxies
/// don't reach and that need no keys. Method: rows.
#[test]
fn who_lists_the_tasks_of_the_anonymous() {
    for (lines, lists) in [
        ("bind = \"127.0.0.1:7100\"", true),
        ("bind = \"[::1]:7100\"", true),
        (
            "bind = \"127.0.0.1:7100\"\nanonymous_task_listing = false",
            false,
        ),
        ("bind = \"127.0.0.1:7100\"\nkeys = \"k\"", false),
        ("bind = \"127.0.0.1:7100\"\nanonymous = \"operator\"", false),
        ("bind = \"10.0.0.1:7100\"\nkeys = \"k\"", false),
        // Clients come through the proxy.
        (
            "bind = \"127.0.0.1:7100\"\npublic_url = \"https://agents.example\"",
            false,
        ),
        (
            "bind = \"127.0.0.1:7100\"\nhosts = [\"agents.example\"]",
            false,
        ),
        (
            "bind = \"127.0.0.1:7100\"\npublic_url = \"https://agents.example\"\nanonymous_task_listing = true",
            true,
        ),
    ] {
        let text = format!(
            "{NODE}[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\n[[listener]]\nprotocol = \"a2a\"\n{lines}\n"
        );
        let topology = Topology::parse(&text, false, Path::new("")).unwrap();
        assert_eq!(topology.listeners[0].lists_anonymous(), lists, "{lines}");
    }
}

/// Goal: everything that is served by name may have a description; mail delivery agents may not.
/// Method: one of each.
#[test]
fn descriptions() {
    let text = format!(
        "{NODE}[[upstream]]\nid = \"u\"\nurl = \"http://x/\"\ndescription = \"of u\"\n\
         [[agent]]\nkind = \"model\"\nprovider = \"echo\"\nid = \"m\"\ndescription = \"of m\"\n\
         [[agent]]\nkind = \"a2a\"\nid = \"r\"\nurl = \"http://y/\"\ndescription = \"of r\"\n\
         [[agent]]\nkind = \"orchestrator\"\nid = \"o\"\nmodel = \"m\"\ndescription = \"of o\"\n\
         [[server]]\nid = \"s\"\nmembers = [\"u\"]\ndescription = \"of s\"\n\
         [[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:7100\"\n"
    );
    let topology = Topology::parse(&text, false, Path::new("")).unwrap();
    for id in ["u", "m", "r", "o", "s"] {
        assert_eq!(topology.description(id), Some(&*format!("of {id}")));
    }
    assert_eq!(topology.description("other"), None);
    // A changed description changes only fingerprints of agents that use it themselves.
    let other = Topology::parse(&text.replace("\"of ", "\"for "), false, Path::new("")).unwrap();
    assert_eq!(other.description("u"), Some("for u"));
    for id in ["u", "m", "r", "o", "s"] {
        assert_eq!(
            other.fingerprints.agents[id] == topology.fingerprints.agents[id],
            id != "o",
            "{id}"
        );
    }
    let wrong = |lines: &str| told(&format!("{NODE}[[agent]]\n{lines}\n"), false).join("\n");
    let of_model = wrong("kind = \"model\"\nprovider = \"echo\"\nid = \"m\"\ndescription = 5");
    assert!(
        of_model.contains("`description` must be a text"),
        "{of_model}"
    );
    let of_way = wrong("kind = \"tmux\"\nid = \"t\"\ndescription = \"x\"");
    assert!(of_way.contains("has no key `description`"), "{of_way}");
}

/// Goal: a file that needs gRPC is rejected if callboard is built without it. Method: a listener
/// with gRPC, with the feature and without.
#[test]
fn grpc_is_a_feature() {
    let lines = "[[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:7100\"\n  grpc_bind = \"[::1]:7200\"\ngrpc_target = \"agents.example:443\"\n";
    let told = told(
        &format!("{NODE}[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\n{lines}"),
        false,
    );
    let without = "8:15 the listener on 127.0.0.1:7100: `grpc_bind`: this callboard speaks no gRPC: build it with `--features grpc`";
    assert_eq!(
        told,
        if cfg!(feature = "grpc") {
            vec![]
        } else {
            vec![without]
        }
    );
}

/// Goal: `a2a_listener` keeps the declared keys at another address, gRPC included, but not the
/// public URL. Method: rows of addresses.
#[test]
fn a_listener_elsewhere() {
    let lines = "[[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:7100\"\npublic_url = \"https://x/\"\nversion = \"2\"\n\
         [[agent]]\nkind = \"a2a\"\nid = \"far\"\nurl = \"https://far.example/agent\"\n";
    let mut topology = Topology::parse(&format!("{NODE}{lines}"), false, Path::new("")).unwrap();
    // As parsed with the feature `grpc`.
    topology.listeners[0].grpc_bind = Some("127.0.0.1:7200".parse().unwrap());
    topology.listeners[0].grpc_target = Some("x:443".to_owned());
    for (bind, url, grpc, target) in [
        (
            "127.0.0.1:7100",
            Some("https://x/"),
            "127.0.0.1:7200",
            Some("x:443"),
        ),
        ("127.0.0.1:1", None, "127.0.0.1:7200", None),
        ("127.0.0.2:1", None, "127.0.0.2:7200", None),
        (
            "0.0.0.0:1",
            Some("http://localhost:1/"),
            "0.0.0.0:7200",
            Some("localhost:7200"),
        ),
    ] {
        let listener = topology.a2a_listener("a", bind.parse().unwrap());
        assert_eq!(listener.bind.to_string(), bind);
        assert_eq!(
            listener.public_url.as_ref().map(|url| url.url().as_str()),
            url,
            "{bind}"
        );
        assert_eq!(
            listener.grpc_bind.map(|grpc| grpc.to_string()).as_deref(),
            Some(grpc),
            "{bind}"
        );
        assert_eq!(
            (listener.grpc_target.as_deref(), listener.version.as_deref()),
            (target, Some("2")),
            "{bind}"
        );
    }
}

/// Goal: a remote A2A agent can be declared in full, and contradictions are reported at their
/// position. Method: rows.
#[test]
fn agents_that_speak_a2a() {
    let agent = "[[agent]]\nkind = \"a2a\"\nid = \"far\"\n";
    let full = "url = \"https://far.example/agent\"\nclass = \"clinical\"\ncall_timeout_s = 60\nnetworks = [\"10.0.0.0/8\"]\n\
                interface = { version = \"0.3\" }\ntools = { deny = [\"secret\"] }\n";
    assert_eq!(told(&format!("{NODE}{agent}{full}"), false), [""; 0]);
    let topology = Topology::parse(&format!("{NODE}{agent}{full}"), false, Path::new("")).unwrap();
    assert_eq!(
        topology.class_of(&["far"]),
        callboard_message::DataClass::Clinical
    );
    for (lines, wanted) in [
        ("", "lacks `url`"),
        ("url = \"far.example\"", "this is not a URL"),
        (
            "url = \"http://x/\"\nbearer_env = \"HOME\"\napi_key_env = \"HOME\"",
            "write one of",
        ),
        (
            "url = \"http://x/\"\nbearer_env = \"NO_SUCH_VARIABLE\"",
            "there is no environment variable NO_SUCH_VARIABLE",
        ),
        (
            "url = \"http://x/\"\napi_key_header = \"X-Key\"",
            "write `api_key_env` too",
        ),
        (
            "url = \"http://x/\"\napi_key_env = \"HOME\"\napi_key_header = \"X Key\"",
            "not a header's name",
        ),
        (
            "url = \"http://x/\"\ninterface = { version = \"0.4\" }",
            "can't be `0.4`",
        ),
        (
            "url = \"http://x/\"\noauth = { client_id = \"c\" }",
            "`oauth` lacks `secret_env`",
        ),
        (
            "url = \"http://x/\"\noauth = { client_id = \"c\", secret_env = \"NO_SUCH_VARIABLE\" }",
            "no environment variable",
        ),
        (
            "url = \"http://x/\"\ntrusted_keys = \"no_such.json\"",
            "there is no key file",
        ),
        (
            "url = \"http://x/\"\nnetworks = [\"10.0.0.0/33\"]",
            "with all other bits zero",
        ),
    ] {
        let told = told(&format!("{NODE}{agent}{lines}\n"), false);
        assert!(
            told.len() == 1 && told[0].contains(wanted),
            "{lines}: {told:?}"
        );
    }
}
