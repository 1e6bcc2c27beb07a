//! `cargo xtask book`: the documentation site in `target/book`, without a dead link.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Outcome, failed_at, program, root, target};

/// Variable with the URL that files of the repository are below, for links that leave the pages: for example
/// `https://git.example/callboard/blob/v1`.
const FILES_URL: &str = "CALLBOARD_FILES_URL";
/// Folder of the pages, from the repository's root.
const PAGES: &str = "docs";
/// Start of a link, as mdBook writes it.
const LINK: &str = "<a href=\"";

/// HTML of the site's pages, by path from the site's root.
type Pages = BTreeMap<PathBuf, String>;

/// Builds the site with a program mdbook. Fails on a warning, and on a link that leads nowhere.
pub fn build(mdbook: &Path) -> Outcome {
    let site = target().join("book");
    let mut build = program(&mdbook.to_string_lossy(), &["build", PAGES, "--dest-dir"]);
    build.arg(&site).env("MDBOOK_LOG", "warn");
    let built = build
        .output()
        .map_err(|e| format!("mdbook can't be started: {e}"))?;
    let log = String::from_utf8_lossy(&built.stderr);
    if !built.status.success() || !log.trim().is_empty() {
        return Err(format!("mdbook {}: {}", built.status, log.trim()));
    }
    let files_url = std::env::var(FILES_URL).ok();
    let mut pages = Pages::new();
    read_pages(&site, Path::new(""), &mut pages)?;
    for (path, html) in &mut pages {
        let exists = |file: &Path| root().join(file).exists();
        *html = with_files_linked(path, html, files_url.as_deref(), exists);
        let path = site.join(path);
        fs::write(&path, html).map_err(|e| failed_at(&path, &e))?;
    }
    let dead = dead_links(&pages, |path| site.join(path).is_file());
    if !dead.is_empty() {
        return Err(format!("links lead nowhere:\n{}", dead.join("\n")));
    }
    println!("{} pages in {}", pages.len(), site.display());
    Ok(())
}

/// Reads the HTML files of a folder of the site and of those below it.
fn read_pages(site: &Path, folder: &Path, pages: &mut Pages) -> Outcome {
    let from = site.join(folder);
    for entry in fs::read_dir(&from).map_err(|e| failed_at(&from, &e))? {
        let entry = entry.map_err(|e| failed_at(&from, &e))?;
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            read_pages(site, &path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "html") {
            let html = fs::read_to_string(entry.path()).map_err(|e| failed_at(&path, &e))?;
            pages.insert(path, html);
        }
    }
    Ok(())
}

/// Returns a page whose links to files outside of the pages lead to `files_url`, or are plain text without it.
fn with_files_linked(
    page: &Path,
    html: &str,
    files_url: Option<&str>,
    exists: impl Fn(&Path) -> bool,
) -> String {
    let mut parts = html.split(LINK);
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once('"').unwrap_or((part, ""));
        let (path, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
        match (linked_file(page, path, &exists), files_url) {
            (Some(file), Some(url)) => {
                let (url, file) = (url.trim_end_matches('/'), file.display());
                linked.push_str(&format!("{LINK}{url}/{file}{anchor}\"{rest}"));
            }
            (Some(_), None) => {
                let text = rest.split_once('>').map_or(rest, |(_, text)| text);
                linked.push_str(&text.replacen("</a>", "", 1));
            }
            (None, _) => linked.extend([LINK, part]),
        }
    }
    linked
}

/// Existing file of the repository, outside of the pages, that a path in a link of a page leads to.
fn linked_file(page: &Path, path: &str, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    if path.is_empty() || path.starts_with('/') || has_scheme(path) {
        return None;
    }
    let file = resolve(&Path::new(PAGES).join(page), path)?;
    // mdBook takes every Markdown file for a page of the site.
    let markdown = file.with_extension("md");
    let existing = [file, markdown].into_iter().find(|file| exists(file))?;
    (!existing.starts_with(PAGES)).then_some(existing)
}

/// Links and sources of the pages to files or anchors that aren't in the site. Other sites aren't asked.
fn dead_links(pages: &Pages, is_file: impl Fn(&Path) -> bool) -> Vec<String> {
    let anchors: BTreeMap<&PathBuf, BTreeSet<&str>> = pages
        .iter()
        .map(|(path, html)| (path, attributes(html, "id").collect()))
        .collect();
    let is_dead = |page: &Path, link: &str| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match path {
            "" => Some(page.to_owned()),
            "/" => Some(PathBuf::from("index.html")),
            path => resolve(page, path),
        };
        target.is_none_or(|target| {
            let has_anchor = anchors.get(&target).is_some_and(|ids| ids.contains(anchor));
            !is_file(&target) || !(anchor.is_empty() || has_anchor)
        })
    };
    let mut dead = Vec::new();
    for (page, html) in pages {
        let links = attributes(html, "href").chain(attributes(html, "src"));
        let here = links.filter(|link| !has_scheme(link) && is_dead(page, link));
        dead.extend(here.map(|link| format!("{}: {link}", page.display())));
    }
    dead
}

/// Values of an attribute, in the order of the page. mdBook writes all in double quotes.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let start = format!("{name}=\"");
    let mut rest = html;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find(&start)?;
            let is_whole = rest[..at].ends_with(char::is_whitespace);
            let (value, after) = rest[at + start.len()..].split_once('"')?;
            rest = after;
            if is_whole {
                return Some(value);
            }
        }
    })
}

fn has_scheme(link: &str) -> bool {
    let before = link.split(['/', '#', '?']).next().unwrap_or_default();
    before.contains(':')
}

/// Path that a relative link of a page leads to; `None` if it leads out of the page's root.
fn resolve(page: &Path, link: &str) -> Option<PathBuf> {
    let mut path = page.parent()?.to_owned();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if !path.pop() {
                    return None;
                }
            }
            name => path.push(name),
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = "<h2 id=\"a\"><a class=\"header\" href=\"#a\">A</a></h2> <a href=\"../../e/x.rs\">x</a>, \
        <a href=\"../../README.html#top\">README</a>, <a href=\"b.html#b\">b</a>, <a href=\"../../none.rs\">none</a>, \
        <a href=\"https://none.example/x\">other</a> <img data-src=\"y.png\" src=\"x.png\">";

    fn is_in_repository(file: &Path) -> bool {
        ["README.md", "e/x.rs", "docs/hours/b.md"]
            .iter()
            .any(|path| file == Path::new(path))
    }

    /// Goal: a link to a file of the repository leads to it, or is text. Method: a source file, a Markdown file with an anchor; a page,
    /// a file that doesn't exist and another site stay.
    #[test]
    fn files_outside_of_the_pages_are_linked() {
        let page = Path::new("hours/a.html");
        let linked = |url| with_files_linked(page, HTML, url, is_in_repository);
        let with_url = HTML
            .replace("../../e/x.rs", "https://git.example/v1/e/x.rs")
            .replace(
                "../../README.html#top",
                "https://git.example/v1/README.md#top",
            );
        assert_eq!(linked(Some("https://git.example/v1/")), with_url);
        let plain = HTML
            .replace("<a href=\"../../e/x.rs\">x</a>", "x")
            .replace("<a href=\"../../README.html#top\">README</a>", "README");
        assert_eq!(linked(None), plain);
    }

    /// Goal: each link that leads nowhere is named. Method: a missing file, a missing anchor, a missing picture and a way out, beside
    /// links that lead somewhere.
    #[test]
    fn dead_links_are_found() {
        let html = with_files_linked(Path::new("hours/a.html"), HTML, None, is_in_repository);
        let other = "<b id=\"c\"></b><a href=\"a.html#a\">a</a><a href=\"/\">home</a>";
        let pages = Pages::from([
            (PathBuf::from("hours/a.html"), html),
            (PathBuf::from("hours/b.html"), other.to_owned()),
            (PathBuf::from("index.html"), String::new()),
        ]);
        let dead = dead_links(&pages, |path| pages.contains_key(path));
        let expected = ["b.html#b", "../../none.rs", "x.png"];
        let expected = expected.map(|link| format!("hours/a.html: {link}"));
        assert_eq!(dead, expected);
    }
}
