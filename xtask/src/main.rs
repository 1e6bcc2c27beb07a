//! Tasks of this repository: `cargo xtask` lists them.

mod bench;
mod book;
mod command;
mod conformance;
mod container;
mod evaluation;
mod examples;
mod features;
mod fixture;
mod fuzz;
mod instructions;
mod limits;
mod long;
mod peers;
mod postgres;
mod release;
mod size;
mod tally;
mod tck;
mod test;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test                 everything that must hold: format, lints, tests, examples, conformance, instructions
  peers [--heavy]      installs the programs that tests/peers talks to, and says how to run one of its tests; with --heavy
                       those that are too large for `test`, and runs their tests
  postgres -- COMMAND  runs it with a Postgres server of its own, whose URL is CALLBOARD_POSTGRES
  conformance [SIDE]   the official MCP suite against our server, our client, or both
  tck DIR [1.0|0.3]    the official kit of A2A against our server; DIR is a clone of it (github.com/a2aproject/a2a-tck), for no
                       registry has it. Written to docs/a2a-conformance.md
  bench [--rounds N]   the tables of mailboxes, wire and HTTP, written to benches/README.md
  bench gateway [--rounds N]
                       callboard as a gateway beside the crate mcp-proxy, which is installed: the tables of that
  bench journal [--rounds N] [--check]
                       durable appends beside SQLite driven directly: the table of that
  bench a2a [--rounds N] [--check TIMES]
                       an A2A server beside that of the official Rust SDK: the table of that
  bench mail [--seconds N] [--check] [--million [MESSAGES]]
                       agent mail on SQLite: the table of that; with --million, whether memory stays flat
  bench verifier [--check]
                       duration of a verification of an answer of clinics: the table of that
  bench abuse [--seconds N] [--only ABUSE] [--check]
                       one principal misbehaves while another makes calls: the table of docs/security.md
  instructions         instructions a tell and an ask, of every contestant
  soak [--minutes N] [--record]
                       the stress bench and the tests that are marked as soaks, with optimisation; then a node under mixed load
                       with kills and other faults, for two hours. With --minutes the node only, for so long. --record writes its
                       table to docs/soak.md
  fuzz [CASES]         every property test with so many cases (default 10000), with optimisation
  fuzz --minutes N [--keep]
                       libFuzzer for so many minutes on all decoders, the longest on those where it finds most; needs a C++
                       compiler. --keep adds small inputs that it found to fuzz/corpus
  size [--json] [--at REV]
                       tokens of Rust outside of tests and comments, and bytes of data compiled in, a row a crate; of the
                       files here, or of any revision
  limits               writes docs/limits.md from the doc comments of the limits
  evaluation           writes docs/evaluation.md and its figures: what `callboard eval all` measures
  book                 the documentation site, in target/book. Links to files outside of docs/ lead to CALLBOARD_FILES_URL/PATH;
                       without that variable they are plain text
  features             writes docs/features.md from the lines `Rows:` above the tests
  fixture              stores and key files as this version writes them, for the tests of later versions: before each release
  static               links the binary statically, and runs it in an empty folder as the image's user
  image                lays out the image of packaging/Dockerfile in target/image: a static binary, and the public authorities
  release              what a release consists of, in target/release-files: compiles each package as it will be downloaded, builds
                       the archive for Linux on x86-64 and the image
  deny                 licences, duplicates and sources of all dependencies";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test"] => return test::run(),
        ["conformance"] => return test::conformance(None),
        ["conformance", side] => return test::conformance(Some(side)),
        ["peers"] => peers::install(),
        ["peers", "--heavy"] => peers::heavy(),
        ["postgres", "--", command @ ..] => postgres::with(command),
        ["bench"] => bench::run(None),
        ["bench", "--rounds", rounds] => bench::run(Some(rounds)),
        ["bench", "gateway"] => bench::gateway(None),
        ["bench", "gateway", "--rounds", rounds] => bench::gateway(Some(rounds)),
        ["bench", "journal", options @ ..] => bench::journal(options),
        ["bench", "a2a", options @ ..] => bench::a2a(options),
        ["bench", "mail", options @ ..] => bench::mail(options),
        ["bench", "verifier", options @ ..] => bench::verifier(options),
        ["bench", "abuse", options @ ..] => bench::abuse(options),
        ["tck", clone] => tck::run_kit(clone, None),
        ["tck", clone, version] => tck::run_kit(clone, Some(version)),
        ["instructions"] => instructions::table().map(|table| print!("{table}")),
        ["soak", options @ ..] => long::soak(options),
        ["fuzz", options @ ..] => fuzz::fuzz(options),
        ["fixture"] => fixture::write(),
        ["limits"] => limits::write(),
        ["evaluation"] => evaluation::write(),
        ["features"] => features::write(),
        ["size", options @ ..] => size::run(options),
        ["static"] => release::try_static_binary(),
        ["image"] => release::image_folder().map(|folder| println!("{}", folder.display())),
        ["release"] => release::release(),
        ["book"] => tools::mdbook().and_then(|mdbook| book::build(&mdbook)),
        ["deny"] => tools::deny(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("failed: {why}");
            ExitCode::FAILURE
        }
    }
}
