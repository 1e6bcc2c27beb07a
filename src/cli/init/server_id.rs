//! Id of the first MCP server of a gateway, from its command or URL.

use url::{Host, Url};

use super::plan::{UpstreamSource, parse_agent_id};

/// Id of a server whose command or URL has no name of it.
const SERVER_ID_DEFAULT: &str = "server";
/// Programs that run a package or script: their first argument that is neither an option, nor the value of one, nor one of
/// [`SUBCOMMANDS`].
const LAUNCHERS: [&str; 15] = [
    "bun", "bunx", "deno", "java", "node", "npm", "npx", "pipx", "pnpm", "pnpx", "python",
    "python3", "uv", "uvx", "yarn",
];
/// Options of launchers whose value is the next word. `-m` and `-jar` aren't: their value is the server.
const OPTIONS_WITH_VALUE: [&str; 30] = [
    "--cache",
    "--call",
    "--class-path",
    "--config",
    "--cwd",
    "--default-index",
    "--dir",
    "--directory",
    "--env-file",
    "--extra",
    "--filter",
    "--from",
    "--group",
    "--import",
    "--index",
    "--index-url",
    "--loader",
    "--package",
    "--prefix",
    "--project",
    "--python",
    "--registry",
    "--require",
    "--spec",
    "--with",
    "--workspace",
    "-c",
    "-cp",
    "-p",
    "-r",
];
/// Subcommands of launchers.
const SUBCOMMANDS: [&str; 5] = ["dlx", "exec", "run", "tool", "x"];
/// Programs after which no argument is known to be the server.
const OPAQUE_PROGRAMS: [&str; 7] = ["bash", "cargo", "docker", "env", "podman", "sh", "sudo"];
/// Endings of files with a program.
const FILE_ENDINGS: [&str; 8] = [".cjs", ".exe", ".jar", ".js", ".mjs", ".py", ".sh", ".ts"];
/// Beginnings of names that say only that it is a server, the longest first.
const PREFIXES: [&str; 3] = ["mcp-server-", "server-", "mcp-"];
/// Endings of names that say only that it is a server, the longest first.
const SUFFIXES: [&str; 3] = ["-mcp-server", "-server", "-mcp"];
/// Names that any server may have.
const GENERIC_NAMES: [&str; 8] = [
    "api",
    "app",
    "index",
    "localhost",
    "main",
    "mcp",
    "server",
    "www",
];

/// Returns the id of a server: `everything` for `npx -y @modelcontextprotocol/server-everything`, `notion` for
/// `https://mcp.notion.com/mcp`, and [`SERVER_ID_DEFAULT`] where no name is found.
pub(super) fn server_id(server: &UpstreamSource) -> String {
    let name = match server {
        UpstreamSource::Example => None,
        UpstreamSource::Command(words) => server_word(words).and_then(word_name),
        UpstreamSource::Url(url) => host_name(url),
    };
    name.unwrap_or_else(|| SERVER_ID_DEFAULT.to_owned())
}

/// Returns the word of a command that is the server's program, package or script.
fn server_word(words: &[String]) -> Option<&str> {
    let (program, arguments) = words.split_first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    if OPAQUE_PROGRAMS.contains(&name) {
        return None;
    }
    if !LAUNCHERS.contains(&name) {
        return Some(program);
    }
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(word) = arguments.next() {
        if OPTIONS_WITH_VALUE.contains(&word) {
            arguments.next();
        } else if !word.starts_with('-') && !SUBCOMMANDS.contains(&word) {
            return Some(word);
        }
    }
    None
}

/// Returns the name of a package, program or script, or else the scope of an npm package: `playwright` for
/// `@playwright/mcp`.
fn word_name(word: &str) -> Option<String> {
    let scope = word.strip_prefix('@').and_then(|rest| rest.split_once('/'));
    short_name(word).or_else(|| short_name(scope?.0))
}

/// Returns the name in the domain of a URL: its first part that isn't generic, without the last part.
fn host_name(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let Some(Host::Domain(domain)) = url.host() else {
        return None;
    };
    let parts = domain.split('.').count();
    let mut named = domain.split('.').take(parts.saturating_sub(1).max(1));
    named.find_map(short_name)
}

/// Returns the last part of a path or package without its version, ending and the words for a server. `None` if no id with
/// a letter is left, or a generic one.
fn short_name(word: &str) -> Option<String> {
    let name = word.rsplit('/').find(|part| !part.is_empty())?;
    let name = name.split('@').next().unwrap_or(name);
    let name = name.to_ascii_lowercase().replace('_', "-");
    let stem = FILE_ENDINGS
        .iter()
        .find_map(|ending| name.strip_suffix(*ending))
        .unwrap_or(&name);
    let rest = PREFIXES
        .iter()
        .find_map(|prefix| stem.strip_prefix(*prefix))
        .unwrap_or(stem);
    let id = SUFFIXES
        .iter()
        .find_map(|suffix| rest.strip_suffix(*suffix))
        .unwrap_or(rest);
    let id = parse_agent_id(id).ok()?;
    let is_name = id.contains(|c: char| c.is_ascii_alphabetic()) && !GENERIC_NAMES.contains(&&*id);
    is_name.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a server is called as its package, program or host is, and `server` without such a name. Method: rows of commands and URLs
    /// as the pages of servers have them.
    #[test]
    fn ids_are_names() {
        for (server, id) in [
            (
                "npx -y @modelcontextprotocol/server-everything",
                "everything",
            ),
            (
                "npx -y @modelcontextprotocol/server-filesystem@2025.1.14 /tmp",
                "filesystem",
            ),
            ("uvx mcp-server-git --repository x", "git"),
            ("python3 -m mcp_server_fetch", "fetch"),
            (
                "uvx --from git+https://host.example/a/b serena-server",
                "serena",
            ),
            ("uvx --python 3.12 -p 3.12 mcp-server-time", "time"),
            (
                "uv --directory /opt/x run --with httpx weather.py",
                "weather",
            ),
            ("npx -y -p @scope/package search", "search"),
            ("npx --registry https://host.example @a/b-mcp", "b"),
            ("npx -y @playwright/mcp@latest", "playwright"),
            ("npx @sentry/mcp-server", "sentry"),
            ("npx @1/mcp", "server"),
            ("npx -c 'mcp-server'", "server"),
            ("node --require x --inspect ./search.js", "search"),
            ("java -cp lib -jar notes.jar", "notes"),
            ("node 3.12", "server"),
            ("/usr/bin/node /opt/weather/dist/index.js", "server"),
            ("node ./weather_server.mjs", "weather"),
            ("/opt/bin/github-mcp-server stdio", "github"),
            ("docker run -i --rm ghcr.io/a/b", "server"),
            ("sh -c 'exec cat'", "server"),
            ("npx", "server"),
            ("'my server' x", "server"),
            ("example", "server"),
            ("https://mcp.notion.com/mcp", "notion"),
            ("https://host.example/mcp", "host"),
            ("http://intranet:8080/mcp", "intranet"),
            ("http://localhost:3001/mcp", "server"),
            ("http://127.0.0.1:3001/mcp", "server"),
            ("wss://[::1]:3001", "server"),
        ] {
            let parsed = UpstreamSource::parse(server).unwrap();
            assert_eq!(server_id(&parsed), id, "{server}");
        }
    }
}
