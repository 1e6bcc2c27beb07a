//! Places of the configuration files of applications, and of this program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::{fs, io};

use crate::cli::CommandError;
use crate::client_config::ClientApp;
use crate::config::find_program;

/// Name of this program in `PATH`.
const PROGRAM_NAME: &str = "callboard";

/// Operating system, by its places of configuration files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Platform {
    MacOs,
    /// Linux and others: the folders of the XDG specification.
    Xdg,
}

impl Platform {
    fn current() -> Self {
        match cfg!(target_os = "macos") {
            true => Self::MacOs,
            false => Self::Xdg,
        }
    }
}

/// Returns the user's configuration file of an application on this machine, whether it exists or not.
///
/// # Errors
/// Usage error if the environment doesn't tell the user's folders.
pub(in crate::cli) fn user_file(app: ClientApp) -> Result<PathBuf, CommandError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    find_user_file(app, Platform::current(), variable).ok_or_else(|| {
        CommandError::usage(
            "the home directory is unknown: set HOME, or name the file by --config PATH",
        )
    })
}

fn find_user_file(
    app: ClientApp,
    platform: Platform,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from);
    let home = || folder("HOME");
    // Folder with the settings of all applications.
    let settings = || match platform {
        Platform::MacOs => Some(home()?.join("Library").join("Application Support")),
        Platform::Xdg => folder("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config"))),
    };
    Some(match app {
        ClientApp::ClaudeCode => folder("CLAUDE_CONFIG_DIR")
            .or_else(home)?
            .join(".claude.json"),
        ClientApp::ClaudeDesktop => settings()?
            .join("Claude")
            .join("claude_desktop_config.json"),
        ClientApp::Codex => folder("CODEX_HOME")
            .or_else(|| Some(home()?.join(".codex")))?
            .join("config.toml"),
        ClientApp::VsCode => settings()?.join("Code").join("User").join("mcp.json"),
        ClientApp::Cursor => home()?.join(".cursor").join("mcp.json"),
    })
}

/// Returns the path by which other programs start this one: that in `PATH`, if it leads to this program, since it stays the same when
/// another version is installed.
///
/// # Errors
/// That of the system if the path is unknown.
pub(in crate::cli) fn own_program() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let is_own = |found: &PathBuf| {
        let target = fs::canonicalize(found).ok();
        found.is_absolute() && target.is_some() && target == fs::canonicalize(&program).ok()
    };
    let in_path = find_program(PROGRAM_NAME).filter(is_own);
    Ok(in_path.unwrap_or(program))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Application, platform, variables and path.
    type PlaceRow = (
        ClientApp,
        Platform,
        &'static [(&'static str, &'static str)],
        Option<&'static str>,
    );

    /// Goal: each application's file is found where that application looks for it. Method: rows of platform, variables and
    /// path.
    #[test]
    fn places() {
        use ClientApp::{ClaudeCode, ClaudeDesktop, Codex, Cursor, VsCode};
        use Platform::{MacOs, Xdg};
        let home: &[_] = &[("HOME", "/h")];
        let rows: [PlaceRow; 11] = [
            (ClaudeCode, Xdg, home, Some("/h/.claude.json")),
            (
                ClaudeCode,
                MacOs,
                &[("HOME", "/h"), ("CLAUDE_CONFIG_DIR", "/c")],
                Some("/c/.claude.json"),
            ),
            (
                ClaudeDesktop,
                MacOs,
                home,
                Some("/h/Library/Application Support/Claude/claude_desktop_config.json"),
            ),
            (
                ClaudeDesktop,
                Xdg,
                home,
                Some("/h/.config/Claude/claude_desktop_config.json"),
            ),
            (Codex, Xdg, home, Some("/h/.codex/config.toml")),
            (
                Codex,
                Xdg,
                &[("HOME", "/h"), ("CODEX_HOME", "/c")],
                Some("/c/config.toml"),
            ),
            (VsCode, Xdg, home, Some("/h/.config/Code/User/mcp.json")),
            (
                VsCode,
                Xdg,
                &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")],
                Some("/x/Code/User/mcp.json"),
            ),
            (
                VsCode,
                MacOs,
                home,
                Some("/h/Library/Application Support/Code/User/mcp.json"),
            ),
            (Cursor, Xdg, home, Some("/h/.cursor/mcp.json")),
            (Cursor, Xdg, &[], None),
        ];
        for (app, platform, variables, expected) in rows {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let file = find_user_file(app, platform, variable);
            assert_eq!(
                file.as_deref(),
                expected.map(Path::new),
                "{app:?} {platform:?}"
            );
        }
    }
}
