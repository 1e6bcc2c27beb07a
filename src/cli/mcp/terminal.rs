//! The person at the terminal, as the caller: told on standard error, asked on standard input.

use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use callboard_message::surface::Abilities;
use callboard_message::{
    Answer, ElicitAnswer, Elicitation, Failure, FailureKind, Log, Progress, Question, RawObject, Root, RootsAnswer,
    Sample, SampleAnswer, Speaker,
};
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use tokio::sync::{Mutex, oneshot};

use super::super::show;
use super::Stopped;
use super::form::{Field, Filled};
use super::words::{printable, told_progress};

const DECLINE: &str = ":decline";
const CANCEL: &str = ":cancel";

/// The person, if there is one, and the folders that they lend.
pub(in crate::cli) struct Terminal {
    asks: bool,
    roots: Vec<Root>,
    /// One question at a time.
    turn: Mutex<()>,
}

/// What a person typed.
enum Typed {
    Line(String),
    Decline,
    /// Also when nothing more can be read.
    Cancel,
}

impl Terminal {
    pub(super) fn new(asks: bool, roots: &[PathBuf]) -> Result<Self, Stopped> {
        let roots = roots.iter().map(|path| {
            let whole = path.canonicalize().map_err(|e| Stopped::Usage(format!("{}: {e}", path.display())))?;
            let uri = file_uri(&whole);
            Ok(Root { uri, name: whole.file_name().map(|name| name.to_string_lossy().into_owned()) })
        });
        Ok(Self { asks, roots: roots.collect::<Result<_, Stopped>>()?, turn: Mutex::new(()) })
    }

    /// One that lends no folders.
    pub(in crate::cli) fn without_folders(asks: bool) -> Self {
        Self { asks, roots: Vec::new(), turn: Mutex::new(()) }
    }

    async fn fill_in(&self, form: &Elicitation) -> ElicitAnswer {
        say(&format!("The server asks: {}", form.message()));
        if let Some(address) = form.address() {
            say(&format!("Visit {address} yourself, then press Enter ({DECLINE}, {CANCEL})."));
            return match typed("> ").await {
                Typed::Line(_) => ElicitAnswer::agree(),
                Typed::Decline => ElicitAnswer::decline(),
                Typed::Cancel => ElicitAnswer::cancel(),
            };
        }
        say(&format!("(Enter takes what stands in brackets; {DECLINE} says no, {CANCEL} closes the form.)"));
        let schema = form.0.object("requestedSchema").unwrap_or_default();
        let fields = schema.object("properties").unwrap_or_default();
        let required: Vec<String> = schema.read("required").unwrap_or_default();
        let mut content = serde_json::Map::new();
        for (name, field) in fields.iter() {
            let field = Field::read(name, field, required.iter().any(|r| r == name));
            loop {
                let line = match typed(&printable(&field.prompt())).await {
                    Typed::Line(line) => line,
                    Typed::Decline => return ElicitAnswer::decline(),
                    Typed::Cancel => return ElicitAnswer::cancel(),
                };
                match field.fill(line.trim()) {
                    Ok(Filled::With(value)) => drop(content.insert(name.to_owned(), value)),
                    Ok(Filled::LeftOut) => {}
                    Err(why) => {
                        say(&format!("  {why}"));
                        continue;
                    }
                }
                break;
            }
        }
        if fields.is_empty() && !matches!(typed("Press Enter to agree: ").await, Typed::Line(_)) {
            return ElicitAnswer::decline();
        }
        ElicitAnswer::accept(content.into())
    }

    async fn write(&self, sample: &Sample) -> Result<SampleAnswer, Failure> {
        say("The server asks for what a language model would write. You may write it.");
        if let Some(prompt) = sample.0.text("systemPrompt") {
            say(&format!("  system: {prompt}"));
        }
        for (speaker, text) in sample.texts() {
            say(&format!("  {}: {text}", if speaker == Speaker::User { "user" } else { "assistant" }));
        }
        say(&format!("(An empty line ends it; {DECLINE} says no.)"));
        let mut text = String::new();
        loop {
            match typed("> ").await {
                Typed::Line(line) if line.is_empty() => break,
                Typed::Line(line) => {
                    text.push_str(if text.is_empty() { "" } else { "\n" });
                    text.push_str(&line);
                }
                Typed::Cancel if !text.is_empty() => break,
                Typed::Decline | Typed::Cancel => {
                    return Err(Failure::new(FailureKind::Rejected, "the person at the terminal declined"));
                }
            }
        }
        Ok(SampleAnswer::text("a person", text, Some("endTurn")))
    }
}

impl Caller for Terminal {
    fn progress(&self, progress: Progress) {
        show::progress(&told_progress(&progress));
    }

    fn log(&self, line: Log) {
        let level = format!("{:?}", line.level()).to_lowercase();
        let data = line.0.text("data").or_else(|| line.0.get("data").map(|raw| raw.get().to_owned()));
        show::progress(&format!("{level}: {}", printable(&data.unwrap_or_default())));
    }

    fn abilities(&self) -> Abilities {
        let mut can = RawObject::new();
        if self.asks {
            can.set("sampling", RawObject::new());
            can.set("elicitation", RawObject::new().with("form", RawObject::new()).with("url", RawObject::new()));
        }
        if !self.roots.is_empty() {
            can.set("roots", RawObject::new());
        }
        Abilities(can)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            if let Question::Roots(_) = question {
                return match self.roots.is_empty() {
                    true => Err(nobody()),
                    false => Ok(Answer::Roots(RootsAnswer::of(self.roots.clone()))),
                };
            }
            if !self.asks {
                // What is asked may hold the answer, which only has to be confirmed.
                if let Question::Elicit(form) = &question {
                    say(&format!("Nobody is at the terminal to be asked: {}", form.message()));
                }
                return Err(nobody());
            }
            let _turn = self.turn.lock().await;
            match question {
                Question::Elicit(form) => Ok(Answer::Elicit(self.fill_in(&form).await)),
                Question::Sample(sample) => self.write(&sample).await.map(Answer::Sample),
                _ => Err(nobody()),
            }
        })
    }
}

/// A path as a `file://` URI (RFC 8089): what isn't plain in it is percent-encoded.
fn file_uri(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match plain(*byte) {
            true => uri.push(char::from(*byte)),
            false => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

fn nobody() -> Failure {
    Failure::new(FailureKind::NobodyToAsk, "nobody is at the terminal to be asked")
}

fn say(text: &str) {
    // Where nobody reads standard error, nobody can be asked: the answer will be missing, and that is told.
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

/// Reads a line. On a thread of its own, for a blocked read can't be given up.
async fn typed(prompt: &str) -> Typed {
    let prompt = prompt.to_owned();
    let (sender, line) = oneshot::channel();
    std::thread::spawn(move || {
        let mut out = io::stderr().lock();
        let _ = write!(out, "{prompt}").and_then(|()| out.flush());
        drop(out);
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        drop(sender.send(read.is_ok_and(|bytes| bytes > 0).then_some(line)));
    });
    match line.await.ok().flatten() {
        None => Typed::Cancel,
        Some(line) => match line.trim_end_matches(['\r', '\n']) {
            DECLINE => Typed::Decline,
            CANCEL => Typed::Cancel,
            line => Typed::Line(line.to_owned()),
        },
    }
}
