//! Which server program there is, and how to come by one where there is none.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Result;

/// `redis-server` or `valkey-server` from the path, else `meebis`, which is installed under the
/// target directory when it is not there yet.
pub(super) fn find_or_install() -> Result<PathBuf> {
    if let Some(program) = ["redis-server", "valkey-server"].into_iter().find_map(on_path) {
        return Ok(program);
    }
    let root = target_dir()?.join("meebis");
    let program = root.join("bin").join(format!("meebis{}", env::consts::EXE_SUFFIX));
    if !program.is_file() {
        install(&root)?;
    }
    Ok(program)
}

fn install(root: &Path) -> Result<()> {
    eprintln!(
        "redis: neither redis-server nor valkey-server is installed. Installing meebis, a small \
         Redis-compatible server, in {}; this takes about half a minute, once.",
        root.display()
    );
    // `cargo run` and `cargo test` say which cargo they are.
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["install", "meebis", "--version", "^0.15", "--locked", "--root"])
        .arg(root)
        // Its objects belong in cargo's temporary directory, not among those of this project.
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .stdin(Stdio::null())
        .status();
    let hint = "install redis-server, or set REDIS_URL";
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo install meebis failed ({status}); {hint}").into()),
        Err(e) => Err(format!("cannot run cargo to install meebis: {e}; {hint}").into()),
    }
}

/// The target directory that this program was built in: `<target>/<profile>/examples/<program>`.
fn target_dir() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3).ok_or("this program is not in a target directory")?;
    Ok(target.to_path_buf())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    let path = env::var_os("PATH")?;
    let mut candidates = env::split_paths(&path).map(|dir| dir.join(&name));
    // Absolute, because it is started in another directory.
    std::path::absolute(candidates.find(|program| program.is_file())?).ok()
}
