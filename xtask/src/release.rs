//! Packages of the crates, a static binary for Linux, and an image with it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::command::{
    Outcome, cargo, failed_at, output, program, remove_folder, root, run, target,
};
use crate::container::{self, Container};
use crate::tally::Tally;
use crate::tools;

/// Packages of the workspace that nobody depends on: they aren't published.
const UNPUBLISHED: [&str; 3] = ["callboard-fuzz", "callboard-kernel-bench", "xtask"];

/// Shells that archives have completions for.
const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Files that archives have beside the binary.
const ARCHIVED: [&str; 4] = [
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "packaging/callboard.service",
];

/// Public authorities of the distribution, which the image gets a copy of.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Checks that each crate can be packaged, and that the binary works without any other file. For `cargo xtask test`.
pub fn steps(tally: &mut Tally) {
    tally.step("packages", || {
        packages(&["--no-verify", "--allow-dirty", "--offline"])
    });
    match cfg!(target_os = "linux") && tools::is_root() {
        true => tally.step("static binary", try_static_binary),
        false => tally.skip("static binary: only root can enter its folder, on Linux".to_owned()),
    }
}

/// Links the binary of the profile `dev` statically, and runs it in an empty folder.
pub fn try_static_binary() -> Outcome {
    let binary = static_binary(&[], "debug")?;
    container::try_out(&Container::new(lay_out(&binary)?)?)
}

/// Builds what a release consists of in `target/release-files`: each package, compiled as it will be downloaded; the archive
/// for this machine's processor, and its checksum; the image, as an archive.
pub fn release() -> Outcome {
    packages(&[])?;
    let binary = dist_binary()?;
    container::try_out(&Container::new(lay_out(&binary)?)?)?;
    // Anew: the node that was tried out has left its store and its audit's keys there.
    let folder = lay_out(&binary)?;
    let files = target().join("release-files");
    remove_folder(&files)?;
    fs::create_dir_all(&files).map_err(|e| failed_at(&files, &e))?;
    archive(&binary, &files)?;
    image(&folder, &files)?;
    println!("{}", files.display());
    Ok(())
}

/// Lays out the image in `target/image`, and returns the folder.
pub fn image_folder() -> Outcome<PathBuf> {
    lay_out(&dist_binary()?)
}

fn dist_binary() -> Outcome<PathBuf> {
    static_binary(&["--profile", "dist"], "dist")
}

/// Packages all crates that are published.
fn packages(options: &[&str]) -> Outcome {
    let mut package = cargo(&["package", "--workspace", "--locked", "--quiet"]);
    package.args(options);
    for name in UNPUBLISHED {
        package.args(["--exclude", name]);
    }
    run(package)
}

/// Links the binary statically, and returns its path. The flag is for the last crate alone, so that the libraries are those
/// of other builds of this package.
fn static_binary(profile: &[&str], folder: &str) -> Outcome<PathBuf> {
    let mut build = cargo(&[
        "rustc",
        "--locked",
        "--package",
        "callboard",
        "--bin",
        "callboard",
    ]);
    build.args(profile);
    build.args(["--", "-C", "target-feature=+crt-static"]);
    run(build)?;
    let binary = target().join(folder).join("callboard");
    let bytes = fs::read(&binary).map_err(|e| failed_at(&binary, &e))?;
    match has_interpreter(&bytes) {
        false => Ok(binary),
        true => Err(format!(
            "{} needs libraries of the machine",
            binary.display()
        )),
    }
}

/// Returns whether an ELF file for 64 bits names a dynamic linker (a program header of the type `PT_INTERP`).
fn has_interpreter(elf: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, bytes: usize| {
        let field = elf.get(at..at + bytes).unwrap_or_default();
        let digits = field.iter().rev();
        digits.fold(0_usize, |value, byte| value << 8 | usize::from(*byte))
    };
    let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|nth| number(start + nth * size, 4) == PT_INTERP as usize)
}

/// Lays out the root folder of the image in `target/image`, as packaging/Dockerfile copies it.
fn lay_out(binary: &Path) -> Outcome<PathBuf> {
    let folder = target().join("image");
    remove_folder(&folder)?;
    let certificates = folder.join("etc/ssl/certs");
    for below in [&folder.join("etc/callboard"), &certificates] {
        fs::create_dir_all(below).map_err(|e| failed_at(below, &e))?;
    }
    if !Path::new(AUTHORITIES).exists() {
        tools::install("ca-certificates", &["ca-certificates"])?;
    }
    let copies = [
        (binary, folder.join("callboard")),
        (
            Path::new(AUTHORITIES),
            certificates.join("ca-certificates.crt"),
        ),
    ];
    for (from, to) in copies {
        fs::copy(from, &to).map_err(|e| failed_at(from, &e))?;
        fs::set_permissions(&to, Permissions::from_mode(0o755)).map_err(|e| failed_at(&to, &e))?;
    }
    // Whatever this user's umask is, the image's user may read them.
    for below in ["", "etc", "etc/callboard", "etc/ssl", "etc/ssl/certs"] {
        let below = folder.join(below);
        let mode = Permissions::from_mode(0o755);
        fs::set_permissions(&below, mode).map_err(|e| failed_at(&below, &e))?;
    }
    container::data_folders(&folder)?;
    Ok(folder)
}

/// Writes `callboard-VERSION-TARGET.tar.gz` and its SHA-256: the binary, completions, manual pages, schema.
fn archive(binary: &Path, files: &Path) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    let name = format!(
        "callboard-{version}-{}-unknown-linux-gnu",
        std::env::consts::ARCH
    );
    let folder = files.join(&name);
    let completions = folder.join("completions");
    fs::create_dir_all(&completions).map_err(|e| failed_at(&completions, &e))?;
    let program_name = binary.to_string_lossy();
    let manual = folder.join("man1");
    run(program(&program_name, &["man", &manual.to_string_lossy()]))?;
    let written = |to: PathBuf, text: String| fs::write(&to, text).map_err(|e| failed_at(&to, &e));
    let schema = output(program(&program_name, &["schema"]))?;
    written(folder.join("topology.schema.json"), schema)?;
    for shell in SHELLS {
        let script = output(program(&program_name, &["completions", shell]))?;
        written(completions.join(format!("callboard.{shell}")), script)?;
    }
    let texts = ARCHIVED.iter().map(|file| root().join(file));
    for from in texts.chain([binary.to_owned()]) {
        let to = folder.join(from.file_name().unwrap_or_default());
        fs::copy(&from, &to).map_err(|e| failed_at(&from, &e))?;
    }
    let packed = format!("{name}.tar.gz");
    let mut tar = program("tar", &["--owner=0", "--group=0", "-czf", &packed, &name]);
    tar.current_dir(files);
    run(tar)?;
    let mut sum = program("sha256sum", &[&packed]);
    sum.current_dir(files);
    written(files.join(format!("{packed}.sha256")), output(sum)?)
}

/// Builds the image of packaging/Dockerfile and writes it as an archive that `docker load` and `podman load` read.
fn image(folder: &Path, files: &Path) -> Outcome {
    tools::buildah()?;
    // No daemon, and no user namespace if this is root.
    let storage = target().join("buildah");
    let (images, state) = (storage.join("images"), storage.join("state"));
    let (images, state) = (images.to_string_lossy(), state.to_string_lossy());
    let options = [
        "--storage-driver",
        "vfs",
        "--root",
        &images,
        "--runroot",
        &state,
    ];
    let build = [
        "bud",
        "--isolation",
        "chroot",
        "--file",
        "packaging/Dockerfile",
    ];
    let mut build = program("buildah", &[&options[..], &build[..]].concat());
    build.args(["--tag", "callboard", &folder.to_string_lossy()]);
    run(build)?;
    let to = format!(
        "docker-archive:{}:callboard:latest",
        files.join("callboard-image.tar").display()
    );
    let mut push = program("buildah", &options);
    push.args(["push", "callboard", &to]);
    run(push)
}

#[cfg(test)]
mod tests {
    use super::has_interpreter;

    /// Goal: a binary that needs a dynamic linker is told apart. Method: the program of this test is one; a file without
    /// program headers isn't.
    #[test]
    fn dynamic_linkers_are_found() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(has_interpreter(&own));
        assert!(!has_interpreter(&own[..32]));
    }
}
